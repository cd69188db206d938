//! A store that several gateways share: the gate's commands on a clock of the world, and answers in the script's words.
//!
//! The gate in memory stands for the script: that both say the same, reply by reply, is proven against real servers (S13).

use surefoot_core::id::LeaseId;
use surefoot_core::pool::{
    BreakerChange, BreakerState, GateOp, GateReply, Pool, Refusal, Settings, TargetView, Verdict,
};
use surefoot_core::time::{Span, Time};

/// The store's side.
#[derive(Debug)]
pub(super) struct Store {
    pool: Pool,
    /// The same targets, and nothing learnt of them.
    blank: Pool,
}

impl Store {
    /// A store that knows nothing yet; targets are registered with [`Store::pools`].
    pub(super) fn new(settings: Settings) -> Store {
        Store { pool: Pool::new(settings.clone()), blank: Pool::new(settings) }
    }

    /// For registering what a configuration names.
    pub(super) fn pools(&mut self) -> [&mut Pool; 2] {
        [&mut self.pool, &mut self.blank]
    }

    /// Everything is forgotten: breakers, limits, leases. What is registered is the gateways' knowledge, not the store's.
    pub(super) fn forget(&mut self, now: Time) {
        self.pool = self.blank.clone();
        self.expire(now);
    }

    /// How things stand.
    pub(super) fn views(&self, now: Time) -> Vec<TargetView<'_>> {
        self.pool.views(now).collect()
    }

    /// Lets run out what has run out by now.
    pub(super) fn expire(&mut self, now: Time) {
        self.pool.ask_local(now, &GateOp::Renew { lease: LeaseId(u64::MAX) });
    }

    /// Executes a command; the reply, and the words for it.
    pub(super) fn execute(&mut self, now: Time, op: &GateOp) -> (GateReply, Vec<u8>) {
        if let GateOp::Admit(admit) = op {
            // One lease, one place: the script's books are kept by its name.
            self.pool.ask_local(now, &GateOp::Release { lease: admit.lease });
        }
        let reply = self.pool.ask_local(now, op);
        let words = match (op, reply) {
            (GateOp::Admit(admit), GateReply::Admitted { index, probe, change }) => {
                let (letters, seen) = self.findings(now, admit);
                format!("A {index} {} {} {letters} {seen}", u8::from(probe), code(change))
            }
            (GateOp::Admit(admit), GateReply::Denied { why, after, soonest }) => {
                let (letters, seen) = self.findings(now, admit);
                format!("D {} {} {} {letters} {seen}", word(why), left(now, after), left(now, soonest))
            }
            (GateOp::Settle { .. }, GateReply::Settled { change }) => {
                let open =
                    change.and_then(|change| self.pool.target(now, change.target)).and_then(|view| view.open_until);
                format!("S {} {}", code(change), open.map_or(Span::ZERO, |until| until.since(now)).0)
            }
            _ => "K".to_owned(),
        };
        (reply, words.into_bytes())
    }

    /// A letter for each candidate, and those that were looked at and are not closed.
    fn findings(&self, now: Time, admit: &surefoot_core::pool::Admit) -> (String, String) {
        let found = self.pool.found();
        let letters: String = found.iter().map(|verdict| letter(*verdict)).collect();
        let mut seen = Vec::new();
        for (at, (candidate, verdict)) in admit.candidates.iter().zip(found).enumerate() {
            if matches!(verdict, Verdict::NotReached | Verdict::NotCredible) {
                continue;
            }
            let Some(view) = self.pool.target(now, candidate.target) else { continue };
            if view.state != BreakerState::Closed {
                let open = view.open_until.map_or(0, |until| until.since(now).0);
                seen.push(format!("{at}:{}:{open}", number(view.state)));
            }
        }
        let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        (or_none(letters), or_none(seen.join(",")))
    }
}

fn number(state: BreakerState) -> u8 {
    match state {
        BreakerState::Closed => 0,
        BreakerState::HalfOpen => 1,
        BreakerState::Open => 2,
    }
}

fn code(change: Option<BreakerChange>) -> u8 {
    change.map_or(0, |change| number(change.from) * 3 + number(change.to) + 1)
}

fn left(now: Time, at: Option<Time>) -> String {
    at.map_or_else(|| "-".to_owned(), |at| at.since(now).0.to_string())
}

fn word(why: Refusal) -> &'static str {
    match why {
        Refusal::Nothing | Refusal::StoreDown => "nothing",
        Refusal::Breaker => "breaker",
        Refusal::Resting => "resting",
        Refusal::Backoff => "backoff",
        Refusal::Paced => "paced",
        Refusal::Full => "full",
    }
}

fn letter(verdict: Verdict) -> char {
    match verdict {
        Verdict::Admitted => 'A',
        Verdict::Breaker => 'B',
        Verdict::Resting => 'R',
        Verdict::NotCredible => 'N',
        Verdict::Backoff => 'O',
        Verdict::Paced => 'P',
        Verdict::Concurrency => 'C',
        Verdict::Requests => 'Q',
        Verdict::Tokens => 'T',
        Verdict::NotReached => '.',
    }
}
