//! Where every event of a run is told before it is applied.

use std::collections::VecDeque;

use surefoot_core::call::Phase;
use surefoot_core::event::Input;
use surefoot_core::pool::TargetView;
use surefoot_core::time::Time;

use super::record::Record;
use crate::digest::Digest;
use crate::invariants::{Checks, Violation};

/// How much of a run is kept as text.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing: fast.
    Nothing,
    /// The last lines.
    Last(usize),
    /// All.
    All,
}

/// What inputs a call can get, for the coverage.
pub const INPUTS: [&str; 8] = ["reply", "head", "chunk", "end", "fault", "flushed", "tick", "cancel"];

/// How often each input met each phase.
pub type Coverage = [[u64; INPUTS.len()]; Phase::ALL.len()];

/// Somebody who hears of every event, to count or to draw it.
pub trait Watch: std::fmt::Debug {
    /// An event, before it is applied.
    fn watch(&mut self, now: Time, record: &Record<'_>);
}

/// The log of one run.
#[derive(Debug)]
pub struct Log {
    digest: Digest,
    records: u64,
    keep: Keep,
    lines: VecDeque<String>,
    coverage: Coverage,
    checks: Option<Box<Checks>>,
    watcher: Option<Box<dyn Watch>>,
}

impl Log {
    /// An empty log. Without `checks` nothing is judged.
    pub fn new(keep: Keep, checks: Option<Checks>) -> Log {
        Log {
            digest: Digest::default(),
            records: 0,
            keep,
            lines: VecDeque::new(),
            coverage: Coverage::default(),
            checks: checks.map(Box::new),
            watcher: None,
        }
    }

    /// Tells every event to `watcher`, too.
    pub fn watch(&mut self, watcher: Box<dyn Watch>) {
        self.watcher = Some(watcher);
    }

    /// Takes an event down.
    pub fn record(&mut self, now: Time, record: &Record<'_>) {
        self.records += 1;
        record.digest(now, &mut self.digest);
        if let Record::Input { phase, input, .. } = record {
            self.coverage[*phase as usize][column(input)] += 1;
        }
        match self.keep {
            Keep::Nothing => {}
            Keep::Last(most) => {
                self.lines.push_back(record.line(now));
                if self.lines.len() > most {
                    self.lines.pop_front();
                }
            }
            Keep::All => self.lines.push_back(record.line(now)),
        }
        if let Some(checks) = &mut self.checks {
            checks.observe(now, record);
        }
        if let Some(watcher) = &mut self.watcher {
            watcher.watch(now, record);
        }
    }

    /// Compares what the pool shows of itself with what must be.
    pub fn look(&mut self, now: Time, views: &[TargetView<'_>], waiting: usize) {
        if let Some(checks) = &mut self.checks {
            checks.look(now, views, waiting);
        }
    }

    /// The first thing that was wrong.
    pub fn violation(&self) -> Option<&Violation> {
        self.checks.as_ref().and_then(|checks| checks.first())
    }

    /// The judge, for what only the world can tell.
    pub fn checks_mut(&mut self) -> Option<&mut Checks> {
        self.checks.as_deref_mut()
    }

    /// The hash so far.
    pub fn hash(&self) -> u64 {
        self.digest.value()
    }

    /// Events so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// How often each input met each phase.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// The lines that were kept.
    pub fn lines(&self) -> impl Iterator<Item = &String> {
        self.lines.iter()
    }
}

fn column(input: &Input) -> usize {
    match input {
        Input::Reply { .. } => 0,
        Input::Head { .. } => 1,
        Input::Chunk { .. } => 2,
        Input::End { .. } => 3,
        Input::Fault { .. } => 4,
        Input::Flushed => 5,
        Input::Tick => 6,
        Input::Cancel(_) => 7,
    }
}
