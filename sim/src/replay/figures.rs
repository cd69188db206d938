//! Figures of a set of calls: what the two sides of a comparison consist of.

use std::collections::BTreeMap;

use surefoot_core::event::Why;
use surefoot_core::outcome::Outcome;
use surefoot_core::time::{Span, Time};

use super::facts::{Attempt, Basis, Facts};
use super::whatif::Trace;

/// What counts of the calls of one model, or of all.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Calls.
    pub calls: u64,
    /// Whose client got a whole good answer.
    pub success: u64,
    /// Whose client left before its end.
    pub left: u64,
    /// Attempts.
    pub attempts: u64,
    /// Attempts on another source than the one before.
    pub transfers: u64,
    /// Attempts on the same source.
    pub retries: u64,
    /// Attempts for the JSON asked for.
    pub reasks: u64,
    /// Times that a call had to wait.
    pub waits: u64,
    /// What waiting and failed attempts added, of each good answer.
    pub added: Quantiles,
    /// From arrival to the head of each good answer.
    pub first: Quantiles,
    /// Time of attempts whose answer nobody got.
    pub wasted_time: Span,
    /// Tokens of attempts whose answer nobody got.
    pub wasted_tokens: u64,
}

/// What counts of the attempts on one source.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Attempts.
    pub attempts: u64,
    /// Attempts by their outcome; the last are those without one.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Those whose client got a whole good answer.
    pub served: u64,
    /// Time of the others.
    pub wasted_time: Span,
    /// Tokens of the others.
    pub wasted_tokens: u64,
    /// Attempts by where their behaviour comes from.
    pub bases: BTreeMap<Basis, u64>,
    /// How often a breaker of its opened.
    pub opened: u64,
}

/// Everything.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// All calls.
    pub all: Calls,
    /// By model.
    pub models: BTreeMap<String, Calls>,
    /// By source.
    pub sources: BTreeMap<String, Source>,
    /// From the first arrival to the last end.
    pub took: Span,
}

/// Times in order.
#[derive(Clone, Debug, Default)]
pub struct Quantiles(Vec<Span>);

impl Quantiles {
    /// The time that so many of a hundred took at most; `None` without any.
    pub fn at(&self, percent: usize) -> Option<Span> {
        let last = self.0.len().checked_sub(1)?;
        self.0.get((last * percent).div_ceil(100)).copied()
    }

    fn sort(&mut self) {
        self.0.sort_unstable();
    }
}

impl Figures {
    /// The figures of a trace's calls, of which this became. `tokens` of the trace's requests stand for those that an answer
    /// does not tell.
    pub fn of<'a>(trace: &Trace, facts: impl Iterator<Item = &'a Facts>) -> Figures {
        let mut figures = Figures::default();
        let (mut first, mut last) = (Time::NEVER, Time::ZERO);
        for (recorded, facts) in trace.calls.iter().zip(facts) {
            first = first.min(facts.arrived);
            last = last.max(facts.ended);
            let estimate = u64::from(recorded.begin.tokens);
            let model = figures.models.entry(recorded.route.model.to_string()).or_default();
            model.add(facts, estimate);
            figures.all.add(facts, estimate);
            for attempt in &facts.attempts {
                figures.sources.entry(attempt.source.to_string()).or_default().add(attempt, estimate);
            }
            for change in facts.changes.iter().filter(|change| change.to == surefoot_core::pool::BreakerState::Open) {
                figures.sources.entry(change.source.to_string()).or_default().opened += 1;
            }
        }
        figures.took = last.since(first);
        figures.models.values_mut().chain([&mut figures.all]).for_each(|calls| {
            calls.added.sort();
            calls.first.sort();
        });
        figures
    }

    /// Attempts by where their behaviour comes from.
    pub fn bases(&self) -> BTreeMap<Basis, u64> {
        let mut bases = BTreeMap::new();
        for (basis, count) in self.sources.values().flat_map(|source| &source.bases) {
            *bases.entry(*basis).or_default() += count;
        }
        bases
    }
}

impl Calls {
    fn add(&mut self, facts: &Facts, estimate: u64) {
        self.calls += 1;
        self.success += u64::from(facts.is_success());
        self.left += u64::from(facts.is_cancelled());
        self.attempts += facts.attempts.len() as u64;
        self.transfers += facts.count(Why::Transfer);
        self.retries += facts.count(Why::Retry);
        self.reasks += facts.count(Why::Reask);
        self.waits += u64::from(facts.waits);
        self.added.0.extend(facts.added());
        self.first.0.extend(facts.first());
        for attempt in facts.attempts.iter().filter(|attempt| !attempt.served) {
            self.wasted_time = Span(self.wasted_time.0.saturating_add(attempt.ended.since(attempt.started).0));
            self.wasted_tokens += tokens(attempt, estimate);
        }
    }
}

impl Source {
    fn add(&mut self, attempt: &Attempt, estimate: u64) {
        self.attempts += 1;
        *self.outcomes.entry(attempt.outcome.map_or("no_end", Outcome::as_str)).or_default() += 1;
        *self.bases.entry(attempt.basis).or_default() += 1;
        self.served += u64::from(attempt.served);
        if !attempt.served {
            self.wasted_time = Span(self.wasted_time.0.saturating_add(attempt.ended.since(attempt.started).0));
            self.wasted_tokens += tokens(attempt, estimate);
        }
    }

    /// Attempts that ended so.
    pub fn outcome(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(outcome.as_str()).copied().unwrap_or_default()
    }

    /// Attempts with such a behaviour.
    pub fn basis(&self, basis: Basis) -> u64 {
        self.bases.get(&basis).copied().unwrap_or_default()
    }
}

/// What an attempt cost: what its answer told, else the request's estimate where the upstream had begun to answer.
fn tokens(attempt: &Attempt, estimate: u64) -> u64 {
    match (attempt.tokens, attempt.status) {
        (Some(told), _) => u64::from(told),
        (None, Some(200..300)) => estimate,
        (None, _) => 0,
    }
}
