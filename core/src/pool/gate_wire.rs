//! The gate's commands as a script's arguments, and the script's answers as replies (G18).
//!
//! Only text and durations cross: the store goes by its own clock, and its names are the configuration's, never this
//! process's numbers. Encoding and decoding are pure; whoever owns the connection sends [`Command::args`] with
//! [`GATE_SCRIPT`] and hands the one line that comes back to [`Command::decode`].

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use crate::id::{LeaseId, TargetId};
use crate::time::{Span, Time};

use super::breaker::Evidence;
use super::engine::Pool;
use super::gate::{Admit, Candidate, GateOp, GateReply, Hold, Verdict};
use super::{BreakerChange, BreakerState, Refusal, RestScope};

/// The gate as a script for Redis (6 or later) and Valkey: one call a command, every command in one round trip.
pub const GATE_SCRIPT: &str = include_str!("gate.lua");

/// No span that matters is longer; longer ones would leave the whole numbers that the script can count in.
const LONGEST: Span = Span::from_secs(10 * 365 * 86_400);

/// Keys that nobody touched for so long are given up by the store, unless a cooldown is longer still.
const KEEP: Span = Span::from_secs(2 * 86_400);

/// Who asks, and where the keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace {
    prefix: String,
    instance: u64,
}

impl Keyspace {
    /// The keys under a prefix without braces, for one process. `instance` tells its leases from those of other processes
    /// on the same store: drawn at random when the process starts.
    pub fn new(prefix: &str, instance: u64) -> Keyspace {
        let mut key = String::with_capacity(prefix.len() + 3);
        let _ = write!(key, "{{{prefix}}}:");
        Keyspace { prefix: key, instance }
    }

    /// The script's one key: all others begin with it, and the braces keep them in one slot of a cluster.
    pub fn key(&self) -> &str {
        &self.prefix
    }
}

/// A command as it goes to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    text: String,
    ends: Vec<u32>,
    /// Whom a settlement is about, as far as this process knows.
    subject: Option<TargetId>,
}

/// What the store said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The reply, its times on this process's clock.
    pub reply: GateReply,
    /// What was found at each candidate up to the one that starts; empty where none were asked for.
    pub verdicts: Vec<Verdict>,
    /// The breakers that were looked at, as they stand at the store.
    pub seen: Vec<Seen>,
}

/// A breaker as it stands at the store.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whose.
    pub target: TargetId,
    /// Its state.
    pub state: BreakerState,
    /// When an open one lets a probe through.
    pub open_until: Time,
}

/// The store said something that this version does not understand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store's answer makes no sense here; does a gateway of another version share its prefix?")]
pub struct Unreadable;

impl Pool {
    /// The arguments of a command. `clock` replaces the store's clock, for tests alone.
    pub fn encode(&self, now: Time, op: &GateOp, keys: &Keyspace, clock: Option<Time>) -> Command {
        let mut out = Command { text: String::new(), ends: Vec::new(), subject: None };
        match clock {
            Some(clock) => out.number(clock.0),
            None => out.word(""),
        }
        let keep = KEEP.max(self.settings.breaker.max_cooldown.max(self.settings.breaker.cooldown).scaled(4, 1));
        let head = |out: &mut Command, verb: &str, lease: LeaseId| {
            out.word(verb);
            out.number(keep.min(LONGEST).as_millis());
            out.with(format_args!("{:016x}-{lease}", keys.instance));
        };
        match op {
            GateOp::Admit(admit) => {
                head(&mut out, "admit", admit.lease);
                self.encode_admit(now, admit, &mut out);
            }
            GateOp::Settle { lease, evidence, rest, tokens } => {
                head(&mut out, "settle", *lease);
                out.word(evidence_word(*evidence));
                match rest {
                    Some(rest) => {
                        out.word(match rest.scope {
                            RestScope::Account => "account",
                            RestScope::Source => "source",
                        });
                        out.span(rest.span);
                    }
                    None => {
                        out.word("");
                        out.number(0);
                    }
                }
                match tokens {
                    Some(tokens) => out.number(u64::from(*tokens)),
                    None => out.word(""),
                }
                self.encode_settle(*lease, *evidence, &mut out);
            }
            GateOp::Renew { lease } => {
                head(&mut out, "renew", *lease);
            }
            GateOp::Release { lease } => {
                head(&mut out, "release", *lease);
                let source = self.held_source(*lease);
                out.number(source.map_or(0, |source| u64::from(source.rpm)));
                out.number(source.map_or(0, |source| u64::from(source.tpm)));
            }
        }
        out
    }

    fn encode_admit(&self, now: Time, admit: &Admit, out: &mut Command) {
        out.span(admit.ttl);
        out.number(u64::from(admit.tokens));
        out.span(admit.wait_until.since(now));
        out.number(u64::from(admit.credible_ppm));
        out.span(self.settings.breaker.probe_ttl);
        out.number(admit.candidates.len() as u64);
        for candidate in &admit.candidates {
            self.encode_candidate(now, candidate, out);
        }
    }

    fn encode_candidate(&self, now: Time, candidate: &Candidate, out: &mut Command) {
        out.word(self.names.target(candidate.target));
        let source = self.gate.targets.get(candidate.target.0 as usize).map(|target| target.source);
        let limits = source.and_then(|id| self.gate.sources.get(id.0 as usize));
        out.word(source.map_or("", |id| self.names.source(id)));
        out.word(limits.map_or("", |source| self.names.account(source.account)));
        let limits = limits.map_or((0, 0, 0), |source| (source.max_concurrency, source.rpm, source.tpm));
        for limit in [limits.0, limits.1, limits.2, u32::from(candidate.tier)] {
            out.number(u64::from(limit));
        }
        out.number(u64::from(candidate.fresh));
        out.number(u64::from(candidate.health_ppm));
        out.number(u64::from(candidate.paced));
        out.number(u64::from(candidate.behind));
        out.word(match candidate.hold {
            Hold::None => "none",
            Hold::Tier => "tier",
            Hold::Call => "call",
        });
        out.span(candidate.not_before.since(now));
    }

    fn encode_settle(&self, lease: LeaseId, evidence: Evidence, out: &mut Command) {
        let held = self.gate.held(lease);
        out.subject = held.map(|(target, _)| target);
        let source = self.held_source(lease);
        out.word(source.map_or("", |source| self.names.account(source.account)));
        out.number(source.map_or(0, |source| u64::from(source.tpm)));
        out.number(source.map_or(0, |source| u64::from(source.max_concurrency)));
        let rules = &self.settings.breaker;
        for count in [rules.fail_threshold, rules.min_calls, rules.fail_rate_ppm] {
            out.number(u64::from(count));
        }
        out.span(rules.window);
        out.span(rules.cooldown);
        out.span(rules.max_cooldown);
        if let (Evidence::Dead, Some((_, source))) = (evidence, held) {
            let targets = self.gate.targets.iter().enumerate().filter(|(_, target)| target.source == source);
            let names = targets.map(|(id, _)| self.names.target(TargetId(id as u32)));
            out.number(names.clone().count() as u64);
            names.for_each(|name| out.word(name));
        } else {
            out.number(0);
        }
    }

    fn held_source(&self, lease: LeaseId) -> Option<&super::gate::GateSource> {
        self.gate.held(lease).and_then(|(_, source)| self.gate.sources.get(source.0 as usize))
    }
}

fn evidence_word(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::Success => "success",
        Evidence::Failure => "failure",
        Evidence::Dead => "dead",
        Evidence::Neutral => "neutral",
    }
}

impl Command {
    /// The script's arguments, in order.
    pub fn args(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let arg = self.text.get(start..*end as usize).unwrap_or_default();
            start = *end as usize;
            arg
        })
    }

    /// Reads the script's answer to this command, which was encoded from `op`. `now` is this process's clock.
    ///
    /// # Errors
    ///
    /// Anything that the script does not say.
    pub fn decode(&self, now: Time, op: &GateOp, answer: &[u8]) -> Result<Answer, Unreadable> {
        let text = core::str::from_utf8(answer).map_err(|_| Unreadable)?;
        let mut fields = Fields { words: text.split(' '), now };
        let answer = match (fields.word()?, op) {
            ("A", GateOp::Admit(admit)) => fields.admitted(admit)?,
            ("D", GateOp::Admit(admit)) => fields.denied(admit)?,
            ("S", GateOp::Settle { .. }) => fields.settled(self.subject)?,
            ("K", GateOp::Renew { .. } | GateOp::Release { .. }) => Answer::bare(GateReply::Done),
            _ => return Err(Unreadable),
        };
        match fields.words.next() {
            None => Ok(answer),
            Some(_) => Err(Unreadable),
        }
    }

    fn word(&mut self, word: &str) {
        self.text.push_str(word);
        self.ends.push(self.text.len() as u32);
    }

    fn with(&mut self, words: core::fmt::Arguments<'_>) {
        let _ = self.text.write_fmt(words);
        self.ends.push(self.text.len() as u32);
    }

    fn number(&mut self, number: u64) {
        self.with(format_args!("{number}"));
    }

    fn span(&mut self, span: Span) {
        self.number(span.min(LONGEST).0);
    }
}

impl Answer {
    /// A reply without findings.
    pub fn bare(reply: GateReply) -> Answer {
        Answer { reply, verdicts: Vec::new(), seen: Vec::new() }
    }
}

/// The fields of an answer, one after the other.
struct Fields<'a> {
    words: core::str::Split<'a, char>,
    now: Time,
}

impl<'a> Fields<'a> {
    fn word(&mut self) -> Result<&'a str, Unreadable> {
        self.words.next().ok_or(Unreadable)
    }

    fn number<T: core::str::FromStr>(&mut self) -> Result<T, Unreadable> {
        self.word()?.parse().map_err(|_| Unreadable)
    }

    fn time(&mut self) -> Result<Option<Time>, Unreadable> {
        match self.word()? {
            "-" => Ok(None),
            span => span.parse().map(|span| Some(self.now.after(Span(span)))).map_err(|_| Unreadable),
        }
    }

    fn admitted(&mut self, admit: &Admit) -> Result<Answer, Unreadable> {
        let index: u16 = self.number()?;
        let target = admit.candidates.get(usize::from(index)).ok_or(Unreadable)?.target;
        let probe = self.flag()?;
        let change = self.change(Some(target))?;
        let verdicts = self.verdicts(admit)?;
        let seen = self.seen(admit, &verdicts)?;
        Ok(Answer { reply: GateReply::Admitted { index, probe, change }, verdicts, seen })
    }

    fn denied(&mut self, admit: &Admit) -> Result<Answer, Unreadable> {
        let why = match self.word()? {
            "nothing" => Refusal::Nothing,
            "breaker" => Refusal::Breaker,
            "resting" => Refusal::Resting,
            "backoff" => Refusal::Backoff,
            "paced" => Refusal::Paced,
            "full" => Refusal::Full,
            _ => return Err(Unreadable),
        };
        let (after, soonest) = (self.time()?, self.time()?);
        let verdicts = self.verdicts(admit)?;
        let seen = self.seen(admit, &verdicts)?;
        Ok(Answer { reply: GateReply::Denied { why, after, soonest }, verdicts, seen })
    }

    fn settled(&mut self, subject: Option<TargetId>) -> Result<Answer, Unreadable> {
        let change = self.change(subject)?;
        let left: u64 = self.number()?;
        let open_until = self.now.after(Span(left));
        let seen = change.map(|change| Seen { target: change.target, state: change.to, open_until });
        let seen = seen.into_iter().collect();
        Ok(Answer { reply: GateReply::Settled { change }, verdicts: Vec::new(), seen })
    }

    fn flag(&mut self) -> Result<bool, Unreadable> {
        match self.word()? {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err(Unreadable),
        }
    }

    /// `from * 3 + to + 1`; 0 = none.
    fn change(&mut self, target: Option<TargetId>) -> Result<Option<BreakerChange>, Unreadable> {
        let Some(code) = self.number::<u8>()?.checked_sub(1) else { return Ok(None) };
        let (from, to) = (state(code / 3)?, state(code % 3)?);
        Ok(target.map(|target| BreakerChange { target, from, to }))
    }

    fn verdicts(&mut self, admit: &Admit) -> Result<Vec<Verdict>, Unreadable> {
        let letters = match self.word()? {
            "-" => "",
            letters => letters,
        };
        if letters.len() > admit.candidates.len() {
            return Err(Unreadable);
        }
        let found = |letter| VERDICTS.iter().find(|(code, _)| *code == letter).map(|(_, verdict)| *verdict);
        letters.bytes().map(|letter| found(letter).ok_or(Unreadable)).collect()
    }

    /// `index:state:left,…`: those that are not closed. Who was looked at and is not named is closed.
    fn seen(&mut self, admit: &Admit, verdicts: &[Verdict]) -> Result<Vec<Seen>, Unreadable> {
        // A candidate that was passed over may not have been looked at.
        let unknown = |verdict: &Verdict| matches!(verdict, Verdict::NotReached | Verdict::NotCredible);
        let looked_at = admit.candidates.iter().zip(verdicts).enumerate().filter(|(_, (_, found))| !unknown(found));
        let now = self.now;
        let as_closed =
            |candidate: &Candidate| Seen { target: candidate.target, state: BreakerState::Closed, open_until: now };
        let mut seen: Vec<(usize, Seen)> = looked_at.map(|(at, (candidate, _))| (at, as_closed(candidate))).collect();
        let named = match self.word()? {
            "-" => "",
            named => named,
        };
        for news in named.split(',').filter(|news| !news.is_empty()) {
            let mut parts = news.split(':').map(|part| part.parse::<u64>().map_err(|_| Unreadable));
            let (Some(at), Some(code), Some(left), None) = (parts.next(), parts.next(), parts.next(), parts.next())
            else {
                return Err(Unreadable);
            };
            let at = at? as usize;
            let mut one = as_closed(admit.candidates.get(at).ok_or(Unreadable)?);
            one.state = state(u8::try_from(code?).map_err(|_| Unreadable)?)?;
            one.open_until = self.now.after(Span(left?));
            seen.retain(|(seen, _)| *seen != at);
            seen.push((at, one));
        }
        Ok(seen.into_iter().map(|(_, seen)| seen).collect())
    }
}

const VERDICTS: [(u8, Verdict); 10] = [
    (b'A', Verdict::Admitted),
    (b'B', Verdict::Breaker),
    (b'R', Verdict::Resting),
    (b'N', Verdict::NotCredible),
    (b'O', Verdict::Backoff),
    (b'P', Verdict::Paced),
    (b'C', Verdict::Concurrency),
    (b'Q', Verdict::Requests),
    (b'T', Verdict::Tokens),
    (b'.', Verdict::NotReached),
];

fn state(code: u8) -> Result<BreakerState, Unreadable> {
    match code {
        0 => Ok(BreakerState::Closed),
        1 => Ok(BreakerState::HalfOpen),
        2 => Ok(BreakerState::Open),
        _ => Err(Unreadable),
    }
}
