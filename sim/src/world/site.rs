//! Sources as they really are: how fast, how much at once, how often empty, and what befalls them.

use std::collections::VecDeque;

use bytes::Bytes;
use surefoot_core::event::{Fault, Head};
use surefoot_core::outcome::Outcome;
use surefoot_core::time::{Span, Time};
use surefoot_core::wire::Format;

use super::episode::{Address, Episode};
use super::script::{EPOCH_MS, Fate, Script, Step, Truth};
use super::speech::{Ask, Part, Style};
use super::told::Told;
use super::trouble::{Telling, Trouble, outcome_of};
use crate::rng::Stream;

/// One source.
#[derive(Clone, Debug)]
pub struct Site {
    /// `provider/endpoint/key`, as the gateway names it.
    pub name: String,
    /// Where it stands.
    pub address: Address,
    /// The quota that it uses.
    pub account: usize,
    /// Its key.
    pub secret: String,
    /// Until its head: at least, and more on average.
    pub head: (Span, Span),
    /// Between tokens on average.
    pub gap: Span,
    /// Content pieces of an answer: from, to.
    pub pieces: (u64, u64),
    /// Requests at once; one more is turned away with this status. 0 = any number.
    pub gate: (u32, u16),
    /// What it does when its account has no room.
    pub at_limit: AtLimit,
    /// Kills what takes longer, with this status; zero = nothing.
    pub watchdog: (Span, u16),
    /// Troubles of every day and their share in millionths.
    pub daily: Vec<(Trouble, u64)>,
    /// What it answers before anything else, one request after the other; the last of these for ever. Empty: by chance.
    pub told: VecDeque<Told>,
    /// It writes its events so.
    pub style: Style,
    /// Requests under way and when they end by themselves.
    open: Vec<(u64, Time)>,
}

/// What a source does with a request for which its account has no room.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum AtLimit {
    /// 429, and in most cases a word on when to come back, in one of many spellings.
    Refuses,
    /// 429 without such a word; this share in millionths it takes on instead, to break it off with an overload error.
    RefusesBarely(u64),
    /// It does not ask, and only this share of its requests in millionths is charged to the account.
    Ignores(u64),
}

/// A quota that keys share: `limit` requests in each `window`.
#[derive(Clone, Debug)]
pub struct Account {
    /// Requests in a window; 0 = any number.
    pub limit: u32,
    /// Its length.
    pub window: Span,
    /// The present window's number and the requests in it.
    used: (u64, u32),
}

impl Account {
    /// A quota.
    pub fn new(limit: u32, window: Span) -> Account {
        Account { limit, window, used: (0, 0) }
    }

    /// Counts a request; false when the quota is used up, and how long until it is full again.
    fn take(&mut self, now: Time) -> Result<(), Span> {
        if self.limit == 0 {
            return Ok(());
        }
        let number = now.0 / self.window.0.max(1);
        if self.used.0 != number {
            self.used = (number, 0);
        }
        if self.used.1 >= self.limit {
            return Err(Span((number + 1) * self.window.0.max(1) - now.0));
        }
        self.used.1 += 1;
        Ok(())
    }
}

/// What the world knows of a request when it reaches a source.
#[derive(Copy, Clone, Debug)]
pub struct Arrival<'a> {
    /// When.
    pub now: Time,
    /// Its name in the world: call and attempt.
    pub exchange: u64,
    /// What it asks for.
    pub ask: &'a Ask,
    /// Faults of the run.
    pub episodes: &'a [Episode],
    /// See [`Telling::refuses_words`].
    pub refuses_words: bool,
    /// See [`Telling::longest_hint`].
    pub longest_hint: Span,
}

impl Site {
    /// A healthy source.
    pub fn new(name: &str, address: Address, account: usize, secret: &str) -> Site {
        Site {
            name: name.to_owned(),
            address,
            account,
            secret: secret.to_owned(),
            head: (Span::from_millis(50), Span::from_millis(100)),
            gap: Span::from_millis(20),
            pieces: (2, 8),
            gate: (0, 429),
            at_limit: AtLimit::Refuses,
            watchdog: (Span::ZERO, 504),
            daily: Vec::new(),
            told: VecDeque::new(),
            style: Style::PLAIN,
            open: Vec::new(),
        }
    }

    /// Everything that was wrong is well again.
    pub fn heal(&mut self) {
        self.head = (Span::from_millis(20), Span::from_millis(50));
        self.gap = Span::from_millis(5);
        self.gate.0 = 0;
        self.watchdog.0 = Span::ZERO;
        self.daily.clear();
    }

    /// Requests under way.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether a request that is under way never ends by itself.
    pub fn is_endless(&self, exchange: u64) -> bool {
        self.open.iter().any(|(open, ends)| *open == exchange && *ends == Time::NEVER)
    }

    /// A connection was dropped, or its end was reached.
    pub fn drop_exchange(&mut self, exchange: u64) {
        self.open.retain(|(open, _)| *open != exchange);
    }

    /// What it answers a request that arrives.
    pub fn answer(&mut self, arrival: Arrival<'_>, account: &mut Account, stream: &mut Stream) -> Script {
        let Arrival { now, ask, episodes, .. } = arrival;
        self.open.retain(|(_, ends)| *ends > now);
        let mut telling = Telling {
            ask,
            style: self.style,
            opens_after: Span(self.head.0.0 + stream.exponential(self.head.1).0),
            gap: self.gap,
            pieces: stream.range(self.pieces.0, self.pieces.1),
            secret: &self.secret,
            refuses_words: arrival.refuses_words,
            longest_hint: arrival.longest_hint,
            now_ms: now.0 / 1000,
            stream,
        };
        if let Some(told) = self.told.front().copied() {
            if self.told.len() > 1 {
                self.told.pop_front();
            }
            return told.script(telling);
        }
        let quick = Span(self.head.0.0.min(20_000));
        let struck = episodes.iter().find_map(|episode| episode.strike(now, self.address, telling.stream));
        if let Some(trouble) = struck {
            return telling.compose(trouble);
        }
        if self.gate.0 > 0 && self.open.len() >= self.gate.0 as usize {
            telling.opens_after = quick;
            return telling.compose(if self.gate.1 == 429 { Trouble::Limited } else { Trouble::Status(self.gate.1) });
        }
        let uncharged = matches!(self.at_limit, AtLimit::Ignores(share) if !telling.stream.chance(share));
        if !uncharged && let Err(rest) = account.take(now) {
            match self.at_limit {
                AtLimit::Ignores(_) => {}
                AtLimit::RefusesBarely(share) if telling.stream.chance(share) => return telling.overloaded_stream(),
                AtLimit::RefusesBarely(_) => {
                    telling.opens_after = quick;
                    return telling.bare_pushback();
                }
                AtLimit::Refuses => {
                    telling.opens_after = quick;
                    telling.longest_hint = Span(rest.0.clamp(2000, telling.longest_hint.0.max(2000)));
                    return telling.compose(Trouble::Limited);
                }
            }
        }
        let mut draw = telling.stream.below(1_000_000);
        for (trouble, share) in &self.daily {
            if draw < *share {
                return telling.compose(*trouble);
            }
            draw -= share;
        }
        telling.compose(Trouble::None)
    }

    /// Lets the watchdog end what takes too long.
    pub fn guard(&self, start: Time, format: Format, steps: &mut VecDeque<(Time, Step)>, truth: &mut Truth) {
        let deadline = start.after(self.watchdog.0);
        if self.watchdog.0.is_zero() || truth.closes <= deadline {
            return;
        }
        steps.retain(|(at, _)| *at < deadline);
        truth.closes = deadline;
        if steps.is_empty() {
            let status = self.watchdog.1;
            let head = Head { status, headers: Vec::new(), unix_ms: EPOCH_MS + deadline.0 / 1000 };
            steps.extend([(deadline, Step::Head(head)), (deadline, Step::End)]);
            truth.status = Some(status);
            truth.fate = Fate::Fails(outcome_of(status));
            (truth.hint, truth.overload) = (None, matches!(status, 429 | 529));
            (truth.body, truth.first_byte) = (Bytes::new(), Time::NEVER);
            truth.ends.clear();
            return;
        }
        let sent: usize =
            steps.iter().map(|(_, step)| if let Step::Chunk(bytes) = step { bytes.len() } else { 0 }).sum();
        let content = truth.ends.iter().any(|(end, part)| *end <= sent && *part == Part::Content);
        let committed = matches!(truth.fate, Fate::Good | Fate::Breaks(_)) && content;
        // A finish reason for every choice is the end of a chat stream, `[DONE]` or not (M5).
        let end = if format == Format::Chat { Part::Finish } else { Part::Last };
        let finished = truth.ends.iter().rfind(|(_, part)| *part == end).is_some_and(|(end, _)| *end <= sent);
        steps.push_back((deadline, Step::Fault(Fault::Reset)));
        truth.body.truncate(sent);
        truth.ends.retain(|(end, _)| *end <= sent);
        truth.overload &= truth.status.is_some_and(|status| status >= 400);
        truth.fate = match truth.fate {
            Fate::Fails(outcome) if truth.status != Some(200) => Fate::Fails(outcome),
            fate @ (Fate::Good | Fate::Empty) if finished => fate,
            _ if committed => Fate::Breaks(Outcome::Transient),
            _ => Fate::Fails(Outcome::Transient),
        };
    }

    /// Takes note of a request that is being answered until `closes`.
    pub fn open_exchange(&mut self, exchange: u64, closes: Time) {
        self.open.push((exchange, closes));
    }
}
