//! What upstreams did, attempt by attempt, and which of it an attempt of a simulation gets.
//!
//! Records are kept by source, model, protocol and whether a stream was asked for. An attempt gets, in this order:
//!
//! 1. what its own call met there when it was recorded: the answer may have been the request's doing;
//! 2. where its call was refused anywhere for what it asks (400, 413, 415, 422), that refusal: it would be refused here too;
//! 3. of what other calls met there within [`NEAR`], the nearest that no call will claim as its own;
//! 4. one of those within [`NEAR`] again, drawn by the seed;
//! 5. one of the [`FEW`] nearest in time, drawn by the seed; of another model of the source where this one was never asked;
//!    where the source never was, one of everything that the others did.
//!
//! 4 and 5 are told apart in the report: the former was seen, though not so often; the latter is a model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use surefoot_core::event::{Action, Input, Judgement, Reason, What};
use surefoot_core::id::{AttemptNo, Choice};
use surefoot_core::time::{Span, Time};
use surefoot_core::trace::{Entry, RecordedCall};
use surefoot_core::wire::Format;

use super::facts::Basis;
use crate::rng::Stream;
pub use crate::world::script::Step;

/// What was seen so close to an attempt is what it would have met.
pub const NEAR: Span = Span::from_secs(30);
/// A model draws from so many.
pub const FEW: usize = 32;

/// What an upstream did in one attempt.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its call's place among the calls.
    pub call: usize,
    /// Its candidate in its call's route.
    pub choice: Choice,
    /// `provider/endpoint/key`.
    pub source: Arc<str>,
    /// The model's name there.
    pub model: Arc<str>,
    /// The protocol.
    pub format: Format,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// When it started.
    pub started: Time,
    /// What came, and how long after the start.
    pub steps: Vec<(Span, Step)>,
    /// So long it was watched.
    pub watched: Span,
    /// It was watched to its end.
    pub whole: bool,
    /// The request itself was refused.
    pub refused: bool,
    /// What its words were found to mean.
    pub verdicts: Vec<Judgement>,
}

impl Record {
    /// The records of a call, which stands at `place` among the calls.
    pub fn of(call: &RecordedCall, place: usize) -> Vec<Record> {
        let mut records: Vec<Record> = Vec::new();
        let mut live: Option<AttemptNo> = None;
        for entry in &call.entries {
            match entry {
                Entry::Do(at, Action::Send { attempt, choice, .. }) => {
                    live = Some(*attempt);
                    let Some(candidate) = call.route.candidates.get(usize::from(choice.0)) else { continue };
                    records.push(Record {
                        call: place,
                        choice: *choice,
                        source: candidate.source_name.clone(),
                        model: candidate.model.clone(),
                        format: call.begin.format,
                        stream: call.begin.stream,
                        started: *at,
                        steps: Vec::new(),
                        watched: Span::ZERO,
                        whole: false,
                        refused: false,
                        verdicts: Vec::new(),
                    });
                }
                Entry::Do(at, action) => {
                    if let Some(record) = records.last_mut() {
                        record.hear_action(*at, action);
                    }
                }
                Entry::In(at, input) => {
                    if let Some(record) = records.last_mut() {
                        record.hear_input(*at, input, live);
                    }
                }
            }
        }
        records.iter_mut().filter(|record| !record.whole).for_each(Record::trim);
        records
    }

    fn hear_action(&mut self, at: Time, action: &Action) {
        match action {
            Action::Judged(judgement) => self.verdicts.push(*judgement),
            Action::Notice(notice) => {
                let What::AttemptEnded { reason, status, .. } = notice.what else { return };
                self.refused = reason == Reason::Status && matches!(status, Some(400 | 413 | 415 | 422));
                if !self.whole {
                    self.watched = at.since(self.started);
                }
                if reason == Reason::Good && !self.whole {
                    // Nothing that could follow a whole answer means anything.
                    self.steps.push((self.watched, Step::End));
                    self.whole = true;
                }
            }
            _ => {}
        }
    }

    fn hear_input(&mut self, at: Time, input: &Input, live: Option<AttemptNo>) {
        let (attempt, step) = match input {
            Input::Head { attempt, head } => (*attempt, Step::Head(head.clone())),
            Input::Chunk { attempt, bytes } => (*attempt, Step::Chunk(bytes.clone())),
            Input::End { attempt } => (*attempt, Step::End),
            Input::Fault { attempt, fault } => (*attempt, Step::Fault(*fault)),
            _ => return,
        };
        if self.whole || live != Some(attempt) {
            return;
        }
        self.whole = matches!(step, Step::End | Step::Fault(_));
        self.watched = at.since(self.started);
        self.steps.push((self.watched, step));
    }

    fn status(&self) -> Option<u16> {
        self.steps.iter().find_map(|(_, step)| if let Step::Head(head) = step { Some(head.status) } else { None })
    }

    fn head_at(&self) -> Option<usize> {
        self.steps.iter().position(|(_, step)| matches!(step, Step::Head(_)))
    }

    /// Drops what is torn at the end of an answer that was not watched to its end, so that another's rest can follow it:
    /// of a stream the last event, of anything else all of the body.
    fn trim(&mut self) {
        let Some(head) = self.head_at() else { return };
        if !self.stream {
            self.steps.truncate(head + 1);
            return;
        }
        while let Some((at, Step::Chunk(bytes))) = self.steps.last() {
            match bytes.windows(2).rposition(|pair| pair == b"\n\n") {
                Some(end) => {
                    let (at, kept) = (*at, bytes.slice(..end + 2));
                    self.steps.pop();
                    self.steps.push((at, Step::Chunk(kept)));
                    return;
                }
                None => self.steps.pop(),
            };
        }
    }

    /// What of this record may follow another that was watched for `watched` only, from when on.
    fn rest_after(&self, other: &Record) -> Vec<(Span, Step)> {
        let later = |at: Span| at.max(other.watched);
        if other.head_at().is_none() {
            return self.steps.iter().map(|(at, step)| (later(*at), step.clone())).collect();
        }
        let body = self.steps.iter().filter(|(_, step)| !matches!(step, Step::Head(_)));
        let mut rest: Vec<(Span, Step)> = Vec::new();
        let mut begun = !self.stream;
        for (at, step) in body {
            if self.stream && *at <= other.watched && !matches!(step, Step::End | Step::Fault(_)) {
                continue;
            }
            // From an event's first byte on: what is torn would be malformed.
            let begins = match step {
                Step::Chunk(bytes) => [&b"data:"[..], b"event:", b":"].iter().any(|word| bytes.starts_with(word)),
                _ => true,
            };
            begun |= begins;
            if begun {
                rest.push((later(*at), step.clone()));
            }
        }
        rest
    }
}

/// What is kept together.
type Key = (Arc<str>, Arc<str>, Format, bool);

/// All records.
#[derive(Debug, Default)]
pub struct Shelf {
    records: Vec<Record>,
    /// By when they started.
    by_key: BTreeMap<Key, Vec<usize>>,
    own: BTreeMap<(usize, Key), Vec<usize>>,
    refused: BTreeMap<usize, usize>,
    used: Vec<bool>,
    /// Of each key, what no call will claim, by when it started.
    free: BTreeMap<Key, BTreeSet<(Time, usize)>>,
}

/// What an attempt gets.
#[derive(Clone, Debug)]
pub struct Given {
    /// The record; `None` where nothing like it was ever seen.
    pub record: Option<usize>,
    /// Why that one.
    pub basis: Basis,
}

impl Shelf {
    /// Of these records.
    pub fn new(records: Vec<Record>) -> Shelf {
        let mut shelf = Shelf { used: vec![false; records.len()], ..Shelf::default() };
        for (place, record) in records.iter().enumerate() {
            let key = (record.source.clone(), record.model.clone(), record.format, record.stream);
            shelf.by_key.entry(key.clone()).or_default().push(place);
            shelf.own.entry((record.call, key)).or_default().push(place);
            if record.refused {
                shelf.refused.insert(record.call, place);
            }
        }
        for places in shelf.by_key.values_mut() {
            places.sort_by_key(|place| records.get(*place).map(|record| record.started));
        }
        shelf.records = records;
        shelf
    }

    /// A record.
    pub fn record(&self, place: usize) -> Option<&Record> {
        self.records.get(place)
    }

    /// Attempts on record on each source, by its name.
    pub fn seen(&self) -> BTreeMap<Arc<str>, usize> {
        let mut seen = BTreeMap::new();
        for ((source, ..), places) in &self.by_key {
            *seen.entry(source.clone()).or_default() += places.len();
        }
        seen
    }

    /// A call is over: what it did not claim of its own is free for others.
    pub fn release(&mut self, call: usize) {
        let first = (call, (Arc::from(""), Arc::from(""), Format::ALL[0], false));
        let own = self.own.range(first..).take_while(|((owner, _), _)| *owner == call);
        for ((_, key), places) in own {
            for place in places {
                let Some(record) = self.records.get(*place) else { continue };
                if !self.used[*place] && !record.refused {
                    self.free.entry(key.clone()).or_default().insert((record.started, *place));
                }
            }
        }
    }

    /// Chooses for an attempt of a call.
    pub fn give(&mut self, call: usize, key: &Key, now: Time, chance: &mut Stream) -> Given {
        if let Some(own) = self.own.get(&(call, key.clone()))
            && let Some(place) = own.iter().copied().find(|place| !self.used[*place])
        {
            return self.taken(Some(place), Basis::Own);
        }
        if let Some(place) = self.refused.get(&call).copied() {
            let alike = self.records.get(place).is_some_and(|known| (known.format, known.stream) == (key.2, key.3));
            if alike {
                return self.taken(Some(place), Basis::Modelled);
            }
        }
        if let Some(place) = self.nearest_free(key, now) {
            return self.taken(Some(place), Basis::Lent);
        }
        let near = self.around(key, now, true);
        if !near.is_empty() {
            return self.taken(Some(chance.pick(&near)), Basis::Reused);
        }
        let alike = |other: &Key| (other.2, other.3) == (key.2, key.3);
        let mut others = self.around(key, now, false);
        if others.is_empty() {
            others = self.around_any(now, |other| other.0 == key.0 && alike(other));
        }
        if others.is_empty() {
            others = self.all(alike);
        }
        let drawn = if others.is_empty() { None } else { Some(chance.pick(&others)) };
        self.taken(drawn, Basis::Modelled)
    }

    fn taken(&mut self, record: Option<usize>, basis: Basis) -> Given {
        // What is seen once more stays its own call's, and free for whoever comes nearest.
        if let Some(place) = record.filter(|_| matches!(basis, Basis::Own | Basis::Lent)) {
            self.used[place] = true;
            if let Some(known) = self.records.get(place) {
                let key = (known.source.clone(), known.model.clone(), known.format, known.stream);
                if let Some(free) = self.free.get_mut(&key) {
                    free.remove(&(known.started, place));
                }
            }
        }
        Given { record, basis }
    }

    fn nearest_free(&self, key: &Key, now: Time) -> Option<usize> {
        let free = self.free.get(key)?;
        let before = free.range(..(now, 0)).next_back();
        let after = free.range((now, 0)..).next();
        let nearest = before.into_iter().chain(after).min_by_key(|(at, _)| distance(*at, now))?;
        (distance(nearest.0, now) <= NEAR).then_some(nearest.1)
    }

    /// The nearest of a key that are no refusals of a request: those within [`NEAR`], or the [`FEW`].
    fn around(&self, key: &Key, now: Time, near: bool) -> Vec<usize> {
        let Some(places) = self.by_key.get(key) else { return Vec::new() };
        self.nearest(places, now, near)
    }

    fn around_any(&self, now: Time, fits: impl Fn(&Key) -> bool) -> Vec<usize> {
        let fitting = self.by_key.iter().filter(|(key, _)| fits(key));
        let mut all: Vec<usize> = fitting.flat_map(|(_, places)| self.nearest(places, now, false)).collect();
        all.sort_by_key(|place| (self.records.get(*place).map(|record| distance(record.started, now)), *place));
        all.truncate(FEW);
        all
    }

    /// Everything that fits: of a source that was never tried, the trouble that another had about then says nothing.
    fn all(&self, fits: impl Fn(&Key) -> bool) -> Vec<usize> {
        let fitting = self.by_key.iter().filter(|(key, _)| fits(key)).flat_map(|(_, places)| places);
        fitting.copied().filter(|place| self.records.get(*place).is_some_and(|record| !record.refused)).collect()
    }

    fn nearest(&self, places: &[usize], now: Time, near: bool) -> Vec<usize> {
        let started = |place: &usize| self.records.get(*place).map_or(Time::ZERO, |record| record.started);
        let lends = |place: &&usize| self.records.get(**place).is_some_and(|record| !record.refused);
        let middle = places.partition_point(|place| started(place) < now);
        let (before, after) = places.split_at(middle);
        let within = |place: &&usize| !near || distance(started(place), now) <= NEAR;
        let before = before.iter().rev().take_while(within).filter(lends).take(FEW);
        let after = after.iter().take_while(within).filter(lends).take(FEW);
        let mut all: Vec<usize> = before.chain(after).copied().collect();
        all.sort_by_key(|place| (distance(started(place), now), *place));
        all.truncate(FEW);
        all
    }

    /// How an attempt goes on behind what was watched of its record, drawn from those that were still going on then.
    ///
    /// With them the other record where all of the answer is its own.
    pub fn rest(&self, place: usize, chance: &mut Stream) -> (Vec<(Span, Step)>, Option<usize>) {
        let Some(record) = self.records.get(place) else { return (Vec::new(), None) };
        let key = (record.source.clone(), record.model.clone(), record.format, record.stream);
        let goes_on = |other: &usize| {
            let Some(other) = self.records.get(*other) else { return false };
            let same_head = record.head_at().is_none() || other.status() == record.status();
            let first = other.steps.first().map_or(Span::MAX, |(at, _)| *at);
            let silent = record.steps.is_empty();
            other.whole
                && !other.refused
                && other.watched > record.watched
                && same_head
                && (!silent || first > record.watched)
        };
        let others: Vec<usize> = self.by_key.get(&key).into_iter().flatten().copied().filter(goes_on).collect();
        if others.is_empty() {
            return (Vec::new(), None);
        }
        let drawn = chance.pick(&others);
        let rest = self.records.get(drawn).map(|other| other.rest_after(record)).unwrap_or_default();
        (rest, record.head_at().is_none().then_some(drawn))
    }
}

fn distance(one: Time, other: Time) -> Span {
    Span(one.0.abs_diff(other.0))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use surefoot_core::event::Head;

    use super::*;
    use crate::rng::Concern;

    fn record(call: usize, source: &str, started_ms: u64, steps: &[(u64, &str)], whole: bool) -> Record {
        let head = Head { status: 200, headers: Vec::new(), unix_ms: 0 };
        let step = |(at, text): &(u64, &str)| {
            let step = match *text {
                "head" => Step::Head(head.clone()),
                "end" => Step::End,
                text => Step::Chunk(Bytes::copy_from_slice(text.as_bytes())),
            };
            (Span::from_millis(*at), step)
        };
        let mut record = Record {
            call,
            choice: Choice(0),
            source: source.into(),
            model: "x".into(),
            format: Format::Chat,
            stream: true,
            started: Time::from_millis(started_ms),
            steps: steps.iter().map(step).collect(),
            watched: Span::from_millis(steps.last().map_or(1000, |(at, _)| *at)),
            whole,
            refused: false,
            verdicts: Vec::new(),
        };
        if !whole {
            record.trim();
        }
        record
    }

    fn told(steps: &[(Span, Step)]) -> String {
        let told = steps.iter().map(|(at, step)| {
            let what = match step {
                Step::Head(_) => "head".to_owned(),
                Step::Chunk(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
                Step::End => "end".to_owned(),
                Step::Fault(fault) => fault.as_str().to_owned(),
            };
            format!("{} {what}", at.as_millis())
        });
        told.collect::<Vec<_>>().join(", ")
    }

    fn key(source: &str) -> Key {
        (source.into(), "x".into(), Format::Chat, true)
    }

    fn give(shelf: &mut Shelf, call: usize, source: &str, at_ms: u64) -> (Option<usize>, Basis) {
        let mut chance = Stream::new(1, Concern::Exchange, call as u64, at_ms);
        let given = shelf.give(call, &key(source), Time::from_millis(at_ms), &mut chance);
        (given.record, given.basis)
    }

    fn good(call: usize, source: &str, started_ms: u64) -> Record {
        record(call, source, started_ms, &[(10, "head"), (20, "data: a\n\n"), (30, "end")], true)
    }

    #[test]
    fn a_call_gets_its_own_then_what_nobody_claims_then_something_once_more() {
        let mut shelf = Shelf::new(vec![good(0, "a", 1000), good(1, "a", 2000), good(2, "a", 3000)]);
        // Its own, although another is nearer.
        assert_eq!(give(&mut shelf, 1, "a", 2900), (Some(1), Basis::Own));
        // Call 2 may still claim its own: nothing is free, so one is used once more.
        assert_eq!(give(&mut shelf, 9, "a", 3000).1, Basis::Reused);
        shelf.release(2);
        assert_eq!(give(&mut shelf, 9, "a", 1000), (Some(2), Basis::Lent));
        assert_eq!(give(&mut shelf, 9, "a", 1000).1, Basis::Reused);
        assert_eq!(give(&mut shelf, 0, "a", 9000), (Some(0), Basis::Own));
    }

    #[test]
    fn far_from_everything_an_attempt_is_modelled_and_on_an_untried_source_too() {
        let mut shelf = Shelf::new(vec![good(0, "a", 1000)]);
        shelf.release(0);
        assert_eq!(give(&mut shelf, 9, "a", 32_000), (Some(0), Basis::Modelled));
        assert_eq!(give(&mut shelf, 9, "b", 1000), (Some(0), Basis::Modelled));
        assert_eq!(give(&mut shelf, 9, "a", 31_000), (Some(0), Basis::Lent));
        assert_eq!(give(&mut Shelf::default(), 9, "a", 1000), (None, Basis::Modelled));
    }

    #[test]
    fn a_refusal_is_never_lent_and_goes_with_its_call() {
        let refused = Record { refused: true, ..good(0, "a", 1000) };
        let mut shelf = Shelf::new(vec![refused, good(1, "a", 20_000)]);
        shelf.release(0);
        assert_eq!(give(&mut shelf, 9, "a", 1000), (Some(1), Basis::Reused));
        assert_eq!(give(&mut shelf, 0, "b", 1000), (Some(0), Basis::Modelled));
    }

    /// What was seen of a stream stays, less a torn event; the rest is another's, from an event's first byte on.
    #[test]
    fn a_stream_that_was_left_goes_on_like_another_that_did() {
        let left = record(0, "a", 1000, &[(10, "head"), (20, "data: a\n\ndata: to"), (30, "rn")], false);
        assert_eq!(told(&left.steps), r#"10 head, 20 "data: a\n\n""#);
        let other = record(
            1,
            "a",
            2000,
            &[(5, "head"), (25, "data: b\n\nda"), (35, "ta: c\n\n"), (45, "data: d\n\n"), (50, "end")],
            true,
        );
        let shelf = Shelf::new(vec![left, other]);
        let mut chance = Stream::new(1, Concern::Exchange, 0, 0);
        assert_eq!(told(&shelf.rest(0, &mut chance).0), r#"45 "data: d\n\n", 50 end"#);
    }

    /// Who was silent for a second goes on like somebody who was silent for at least as long, or for ever.
    #[test]
    fn silence_goes_on_like_another_silence() {
        let silent = || record(0, "a", 1000, &[], false);
        let late = record(1, "a", 2000, &[(4000, "head"), (4001, "data: b\n\n"), (4002, "end")], true);
        let mut chance = Stream::new(1, Concern::Exchange, 0, 0);
        let shelf = Shelf::new(vec![silent(), good(2, "a", 1500), late]);
        assert_eq!(told(&shelf.rest(0, &mut chance).0), r#"4000 head, 4001 "data: b\n\n", 4002 end"#);
        let shelf = Shelf::new(vec![silent(), good(2, "a", 1500)]);
        assert!(shelf.rest(0, &mut chance).0.is_empty());
    }
}
