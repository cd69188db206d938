//! What is counted of a run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use surefoot_core::event::{Action, End, Notice, Reason, What};
use surefoot_core::outcome::Outcome;
use surefoot_core::policy::Route;
use surefoot_core::pool::Refusal;
use surefoot_core::time::{Span, Time};

use super::world::{CACHED, SOURCES};
use crate::world::log::Watch;
use crate::world::record::Record;

/// One source's part of a run.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Attempts.
    pub attempts: u64,
    /// Good answers.
    pub good: u64,
    /// Answered 429.
    pub limited: u64,
    /// Empty completions.
    pub empty: u64,
}

/// The figures of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The seed.
    pub seed: u64,
    /// Calls that reached the engine.
    pub calls: u64,
    /// Those of them that got a good answer.
    pub good: u64,
    /// Failed calls that never had an attempt on source 1.
    pub never_healthy: u64,
    /// By source.
    pub shares: [Share; SOURCES.len()],
    /// Calls that waited for a place, whatever for.
    pub waited: u64,
    /// Their waiting in all.
    pub waiting: Span,
    /// The longest of one wait.
    pub longest_wait: Span,
    /// Breakers that opened, by source.
    pub opened: [u64; SOURCES.len()],
    /// Failed calls by the status that their clients got; 200 = an empty answer.
    pub failures: BTreeMap<u16, u64>,
    /// Simulated time.
    pub took: Span,
    /// Of each call until its end, in order of length.
    pub latencies: Vec<Span>,
    /// The run's hash.
    pub hash: u64,
}

impl Figures {
    /// Attempts in all.
    pub fn attempts(&self) -> u64 {
        self.shares.iter().map(|share| share.attempts).sum()
    }

    /// Success in percent, of the calls that reached the engine.
    pub fn success(&self) -> f64 {
        percent(self.good, self.calls)
    }

    /// The same with the repeats that a cache answered.
    pub fn success_with_cached(&self) -> f64 {
        percent(self.good + CACHED, self.calls + CACHED)
    }

    /// A source's part of all attempts, in percent.
    pub fn part(&self, source: usize) -> f64 {
        percent(self.shares[source].attempts, self.attempts())
    }

    /// What so many percent of the calls took at most.
    pub fn latency(&self, percent: usize) -> Span {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get(last * percent / 100).copied().unwrap_or_default()
    }
}

/// `part` of `whole` in percent.
pub fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// A call under way.
#[derive(Debug)]
struct Open {
    route: Arc<Route>,
    arrived: Time,
    waits_since: Option<Time>,
    waited: bool,
    touched_healthy: bool,
    good: bool,
}

/// The one who counts.
#[derive(Debug, Default)]
pub(super) struct Counter {
    pub(super) figures: Figures,
    open: BTreeMap<u32, Open>,
}

/// Hears a run for a counter that somebody else holds, too.
#[derive(Debug)]
pub(super) struct Ear(pub(super) Rc<RefCell<Counter>>);

impl Watch for Ear {
    fn watch(&mut self, now: Time, record: &Record<'_>) {
        self.0.borrow_mut().hear(now, record);
    }
}

fn place(name: &str) -> Option<usize> {
    SOURCES.iter().position(|source| name.split('/').next() == Some(source))
}

impl Counter {
    fn hear(&mut self, now: Time, record: &Record<'_>) {
        match record {
            Record::Arrived { call, plan, .. } => {
                self.figures.calls += 1;
                let route = plan.route.clone();
                let open =
                    Open { route, arrived: now, waits_since: None, waited: false, touched_healthy: false, good: false };
                self.open.insert(*call, open);
            }
            Record::Action { call, action: Action::Notice(notice) } => self.notice(now, *call, notice),
            Record::Over { call, end } => self.over(now, *call, end),
            _ => {}
        }
    }

    fn notice(&mut self, now: Time, call: u32, notice: &Notice) {
        let Some(open) = self.open.get_mut(&call) else { return };
        let source = notice.choice.and_then(|choice| open.route.candidates.get(usize::from(choice.0)));
        let source = source.and_then(|candidate| place(&candidate.source_name));
        match (&notice.what, source) {
            (What::AttemptStarted { .. }, Some(source)) => {
                open.touched_healthy |= source == 0;
                self.figures.shares[source].attempts += 1;
                self.waited(now, call);
            }
            (What::AttemptEnded { outcome, reason, .. }, Some(source)) => {
                let share = &mut self.figures.shares[source];
                share.good += u64::from(*outcome == Outcome::Success);
                share.limited += u64::from(*outcome == Outcome::RateLimited);
                share.empty += u64::from(*reason == Reason::EmptyCompletion);
                open.good |= *outcome == Outcome::Success;
            }
            (What::Paced { why, .. }, _) if *why != Refusal::Backoff => {
                open.waits_since = Some(now);
                self.figures.waited += u64::from(!std::mem::replace(&mut open.waited, true));
            }
            (What::BreakerOpened(change), _) => {
                let mut entries = open.route.roster.entries.iter().zip(&open.route.candidates);
                let opened = entries.find(|(entry, _)| entry.target == change.target);
                if let Some(source) = opened.and_then(|(_, candidate)| place(&candidate.source_name)) {
                    self.figures.opened[source] += 1;
                }
            }
            _ => {}
        }
    }

    fn waited(&mut self, now: Time, call: u32) {
        let Some(since) = self.open.get_mut(&call).and_then(|open| open.waits_since.take()) else { return };
        let wait = now.since(since);
        self.figures.waiting = Span(self.figures.waiting.0 + wait.0);
        self.figures.longest_wait = self.figures.longest_wait.max(wait);
    }

    fn over(&mut self, now: Time, call: u32, end: &End) {
        self.waited(now, call);
        let Some(open) = self.open.remove(&call) else { return };
        self.figures.latencies.push(now.since(open.arrived));
        if *end == End::Complete && open.good {
            self.figures.good += 1;
            return;
        }
        self.figures.never_healthy += u64::from(!open.touched_healthy);
        let status = if let End::Answer(answer) = end { answer.status } else { 200 };
        *self.figures.failures.entry(status).or_default() += 1;
    }
}
