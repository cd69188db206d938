//! What became of a call, in figures: read off a recorded one and a simulated one by the same code.

use std::sync::Arc;

use surefoot_core::event::{Action, End, Input, Reason, What, Why};
use surefoot_core::id::{AttemptNo, LeaseId, TargetId};
use surefoot_core::outcome::Outcome;
use surefoot_core::policy::Route;
use surefoot_core::pool::{BreakerChange, BreakerState, Op, Reply};
use surefoot_core::time::{Span, Time};
use surefoot_core::trace::{Entry, RecordedCall};

/// Where an attempt's behaviour comes from.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// What this very call met on that source when it was recorded.
    #[default]
    Own,
    /// What another call met there about then, and no other call of the simulation uses.
    Lent,
    /// What a call met there about then, once more.
    Reused,
    /// Nothing was seen there about then, or not to its end: drawn from what was seen at other times, or elsewhere.
    Modelled,
}

/// One attempt.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// `provider/endpoint/key`.
    pub source: Arc<str>,
    /// The model's name there.
    pub model: Arc<str>,
    /// When it started.
    pub started: Time,
    /// When it ended; as far as it is known where it did not.
    pub ended: Time,
    /// What for.
    pub why: Why,
    /// How it ended; `None` for one that did not.
    pub outcome: Option<Outcome>,
    /// Why it ended so.
    pub reason: Option<Reason>,
    /// The upstream's status.
    pub status: Option<u16>,
    /// Tokens that the answer told of.
    pub tokens: Option<u32>,
    /// The client's answer is this attempt's, and a good one.
    pub served: bool,
    /// Where its behaviour comes from.
    pub basis: Basis,
}

/// A breaker's change.
#[derive(Clone, Debug)]
pub struct Change {
    /// When.
    pub at: Time,
    /// The target's source.
    pub source: Arc<str>,
    /// The target's model.
    pub model: Arc<str>,
    /// Before.
    pub from: BreakerState,
    /// After.
    pub to: BreakerState,
}

/// One call.
#[derive(Clone, Debug)]
pub struct Facts {
    /// When it arrived.
    pub arrived: Time,
    /// When it ended.
    pub ended: Time,
    /// How it ended; `None` for one that did not.
    pub end: Option<End>,
    /// When the client was given its answer's head.
    pub committed: Option<Time>,
    /// Its attempts, in their order.
    pub attempts: Vec<Attempt>,
    /// Times that it had to wait.
    pub waits: u32,
    /// Breakers that it moved.
    pub changes: Vec<Change>,
}

impl Facts {
    /// Its outcome; `None` for one that did not end.
    pub fn outcome(&self) -> Option<Outcome> {
        self.end.as_ref().map(End::outcome)
    }

    /// Whether its client got a whole good answer.
    pub fn is_success(&self) -> bool {
        self.outcome() == Some(Outcome::Success)
    }

    /// Whether its client left.
    pub fn is_cancelled(&self) -> bool {
        self.outcome() == Some(Outcome::Cancelled)
    }

    /// From its arrival to the start of the attempt that served it: what waiting and failed attempts have cost.
    pub fn added(&self) -> Option<Span> {
        let served = self.attempts.iter().find(|attempt| attempt.served)?;
        Some(served.started.since(self.arrived))
    }

    /// From its arrival to its answer's head, for a good answer.
    pub fn first(&self) -> Option<Span> {
        self.committed.filter(|_| self.is_success()).map(|at| at.since(self.arrived))
    }

    /// Attempts of that kind.
    pub fn count(&self, why: Why) -> u64 {
        self.attempts.iter().filter(|attempt| attempt.why == why).count() as u64
    }

    /// All times later by so much.
    pub fn shift(&mut self, by: Span) {
        let shift = |at: &mut Time| *at = at.after(by);
        shift(&mut self.arrived);
        shift(&mut self.ended);
        self.committed.iter_mut().for_each(shift);
        for attempt in &mut self.attempts {
            shift(&mut attempt.started);
            shift(&mut attempt.ended);
        }
        self.changes.iter_mut().for_each(|change| shift(&mut change.at));
    }
}

/// How a call ended, in a word or two.
pub fn end_words(end: Option<&End>) -> String {
    match end {
        None => "no end".to_owned(),
        Some(End::Complete) => "complete".to_owned(),
        Some(End::Incomplete(why)) => format!("stream_incomplete ({})", why.as_str()),
        Some(End::UpstreamError(outcome)) => format!("the upstream's own error ({})", outcome.as_str()),
        Some(End::Broken) => "broken off".to_owned(),
        Some(End::Answer(answer)) => match answer.stop {
            Some(stop) => format!("{} {}", answer.status, stop.as_str()),
            None => answer.status.to_string(),
        },
        Some(End::Cancelled(cause)) => cause.as_str().to_owned(),
    }
}

/// Keeps a call's facts while it goes on.
#[derive(Debug)]
pub struct Book {
    route: Arc<Route>,
    facts: Facts,
    granted: Option<LeaseId>,
    /// The lease and the number of the live attempt.
    live: Option<(LeaseId, AttemptNo)>,
    serving: Option<AttemptNo>,
}

impl Book {
    /// Of a call that arrives.
    pub fn new(route: Arc<Route>, arrived: Time) -> Book {
        let facts = Facts {
            arrived,
            ended: arrived,
            end: None,
            committed: None,
            attempts: Vec::new(),
            waits: 0,
            changes: Vec::new(),
        };
        Book { route, facts, granted: None, live: None, serving: None }
    }

    /// The facts of a recorded call.
    pub fn of(call: &RecordedCall) -> Facts {
        let mut book = Book::new(call.route.clone(), call.begin.at);
        for entry in &call.entries {
            match entry {
                Entry::In(at, input) => book.input(*at, input),
                Entry::Do(at, action) => book.action(*at, action),
            }
        }
        book.close()
    }

    /// Hears an input.
    pub fn input(&mut self, now: Time, input: &Input) {
        self.facts.ended = self.facts.ended.max(now);
        let Input::Reply { lease, reply } = input else { return };
        match reply {
            Reply::Granted { change, .. } => {
                self.granted = Some(*lease);
                self.change(now, *change);
            }
            Reply::Settled { change } => self.change(now, *change),
            Reply::Refused { .. } | Reply::Done => {}
        }
    }

    fn change(&mut self, at: Time, change: Option<BreakerChange>) {
        let Some(BreakerChange { target, from, to }) = change else { return };
        let (source, model) = self.names(target);
        self.facts.changes.push(Change { at, source, model, from, to });
    }

    fn names(&self, target: TargetId) -> (Arc<str>, Arc<str>) {
        let place = self.route.roster.entries.iter().position(|entry| entry.target == target);
        let candidate = place.and_then(|place| self.route.candidates.get(place));
        candidate.map_or_else(Default::default, |candidate| (candidate.source_name.clone(), candidate.model.clone()))
    }

    /// Hears an action.
    pub fn action(&mut self, now: Time, action: &Action) {
        self.facts.ended = self.facts.ended.max(now);
        match action {
            Action::Send { attempt, choice, why } => {
                let candidate = self.route.candidates.get(usize::from(choice.0));
                let (source, model) =
                    candidate.map_or_else(Default::default, |known| (known.source_name.clone(), known.model.clone()));
                self.live = self.granted.take().map(|lease| (lease, *attempt));
                self.facts.attempts.push(Attempt {
                    source,
                    model,
                    started: now,
                    ended: now,
                    why: *why,
                    outcome: None,
                    reason: None,
                    status: None,
                    tokens: None,
                    served: false,
                    basis: Basis::Own,
                });
            }
            Action::Notice(notice) => match &notice.what {
                What::AttemptEnded { outcome, status, reason, .. } => {
                    if let Some(attempt) = self.facts.attempts.last_mut() {
                        (attempt.ended, attempt.outcome) = (now, Some(*outcome));
                        (attempt.status, attempt.reason) = (*status, Some(*reason));
                    }
                }
                What::Paced { .. } => self.facts.waits += 1,
                _ => {}
            },
            Action::Tell(Op::Settle(settle)) => {
                if self.live.is_some_and(|(lease, _)| lease == settle.lease)
                    && let Some(attempt) = self.facts.attempts.last_mut()
                {
                    attempt.tokens = settle.tokens;
                }
            }
            Action::Commit(commit) => {
                self.facts.committed = Some(now);
                self.serving = Some(commit.attempt);
            }
            Action::Finish(end) => {
                self.facts.end = Some(end.clone());
                if end.outcome() == Outcome::Success
                    && let Some(attempt) = self.serving
                    && let Some(attempt) = self.facts.attempts.get_mut(usize::from(attempt.0))
                {
                    attempt.served = true;
                }
            }
            Action::Ask(_) | Action::Tell(_) | Action::Abort(_) | Action::Forward(_) | Action::Judged(_) => {}
        }
    }

    /// Notes where the last attempt's behaviour comes from.
    pub fn basis(&mut self, basis: Basis) {
        if let Some(attempt) = self.facts.attempts.last_mut() {
            attempt.basis = basis;
        }
    }

    /// The facts.
    pub fn close(mut self) -> Facts {
        let ended = self.facts.ended;
        for attempt in self.facts.attempts.iter_mut().filter(|attempt| attempt.outcome.is_none()) {
            attempt.ended = ended;
        }
        self.facts
    }
}
