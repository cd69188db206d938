//! The judges. Each recomputes from the log what must be, by code that shares nothing with what it judges.
//!
//! | id | law |
//! |---|---|
//! | S1 | the client's bytes are whole events of exactly one attempt, a prefix of it, plus at most one error event |
//! | S2 | no attempt after commit, finish, cancel, deadline; no byte before the commit |
//! | S3 | one live attempt a call |
//! | S4 | every lease is settled once, given back, or expires; in-flight = live leases |
//! | S5 | budgets, recomputed from what was sent, are never exceeded |
//! | S6 | no grant on an open target, one probe in half-open; the breaker's fields are those of the book |
//! | S7 | limits hold over every pair of grants |
//! | S8 | window, actions and attempts are bounded |
//! | S9 | a wake in the past never repeats |
//! | S10 | exactly one finish, one terminal, the end that follows from what came |
//! | S11 | slow or gone clients and refused requests never count against a target; every outcome is the true one |
//! | S12 | any chunking gives the same outcome and bytes |
//! | L1–L4 | liveness: see [`life`] |
//!
//! A row id of the contract (F2, G12, M6 …) names the law where it says more than these.

mod book;
mod breaker;
mod calls;
mod fate;
pub mod life;
mod rechunk;

use std::collections::BTreeMap;
use std::fmt;

use surefoot_core::call::Phase;
use surefoot_core::event::{Action, CancelCause};
use surefoot_core::pool::{BreakerState, Op, TargetView};
use surefoot_core::time::Time;

use self::book::{Book, Wrong};
use self::calls::Call;
use crate::rng::{Concern, Stream};
use crate::scenario::Scenario;
use crate::world::record::Record;

/// Something that must never happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The law.
    pub id: &'static str,
    /// When.
    pub at: Time,
    /// The call that it happened to.
    pub call: Option<u32>,
    /// What.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:.6} s", self.id, self.at.0 as f64 / 1e6)?;
        if let Some(call) = self.call {
            write!(f, ", call {call}")?;
        }
        write!(f, ": {}", self.text)
    }
}

/// All judges of a run.
#[derive(Debug)]
pub struct Checks {
    first: Option<Violation>,
    book: Book,
    calls: BTreeMap<u32, Call>,
    judged: bool,
    life: life::Life,
    sample: Stream,
    finishes_for_nobody: bool,
    slow_store: bool,
    /// Several gateways share a store: the book is the store's gate alone.
    shared: bool,
}

impl Checks {
    /// The judges of a scenario's run.
    pub fn new(scenario: &Scenario) -> Checks {
        Checks {
            first: None,
            book: Book::default(),
            calls: BTreeMap::new(),
            judged: false,
            life: life::Life::new(scenario),
            sample: Stream::new(scenario.seed, Concern::Sample, 0, 0),
            finishes_for_nobody: scenario.finishes_for_nobody,
            slow_store: !scenario.store_latency.is_zero() || scenario.sharing.is_some(),
            shared: scenario.sharing.is_some(),
        }
    }

    /// The first thing that was wrong.
    pub fn first(&self) -> Option<&Violation> {
        self.first.as_ref()
    }

    fn hold(&mut self, now: Time, call: Option<u32>, judged: Result<(), Wrong>) {
        if let Err((id, text)) = judged
            && self.first.is_none()
        {
            self.first = Some(Violation { id, at: now, call, text });
        }
    }

    /// Hears an event before it is applied.
    pub fn observe(&mut self, now: Time, record: &Record<'_>) {
        match record {
            Record::Arrived { call, plan, .. } => {
                let lone = self.life.is_lone(now, plan, &mut self.book);
                self.calls.insert(*call, Call::new(now, plan, self.judged, lone));
            }
            Record::Input { call, input, .. } => {
                if let Some(known) = self.calls.get_mut(call) {
                    let judged = known.input(now, input);
                    self.hold(now, Some(*call), judged);
                }
            }
            Record::Action { call, action } => self.action(now, *call, action),
            // What a gateway's own book says of a command, the store's says again.
            Record::Applying { .. } | Record::Applied { .. } | Record::Granted { .. } if self.shared => {}
            Record::Stored { op, reply, .. } => {
                let judged = self.book.stored(now, op, reply);
                self.hold(now, None, judged);
            }
            Record::Wiped => self.book.wipe(),
            Record::Applying { .. } => self.run_out(now),
            Record::Applied { call, op, reply } => {
                let judged = self.book.apply(now, *call, op, reply);
                self.hold(now, Some(*call), judged);
            }
            Record::Granted { lease, reply } => {
                // A look at the line is no command, but the pool hears of the time by it.
                self.run_out(now);
                let judged = self.book.granted_in_line(now, *lease, reply);
                self.hold(now, None, judged);
            }
            Record::Sent { call, attempt, truth, .. } => {
                if let Some(known) = self.calls.get_mut(call) {
                    known.tell_truth(*attempt, truth);
                }
            }
            Record::Left { call, cause } => {
                if let Some(known) = self.calls.get_mut(call) {
                    known.leave(now, *cause, self.finishes_for_nobody);
                }
            }
            Record::Over { call, end } => self.over(now, *call, end),
            Record::Reloaded { settings, views } => self.book.configure(settings, views),
            Record::Judged => self.judged = true,
            Record::Turned { .. } | Record::Taken { .. } | Record::Healed => {}
        }
    }

    /// A lease that nobody spoke for is nobody's: a living attempt's is renewed.
    fn run_out(&mut self, now: Time) {
        for (lease, call) in self.book.before(now) {
            let attempts = self.calls.get(&call).map(|known| &known.attempts);
            let lives = attempts.is_some_and(|all| all.iter().any(|one| one.lease == lease && one.settled.is_none()));
            if lives {
                self.hold(now, Some(call), Err(("S4", format!("lease {lease} of a living attempt ran out"))));
            }
        }
    }

    fn action(&mut self, now: Time, call: u32, action: &Action) {
        let Some(known) = self.calls.get_mut(&call) else {
            return self.hold(now, Some(call), Err(("S10", format!("a call that is over wants {action:?}"))));
        };
        let mut judged = known.action(now, action);
        if let Action::Tell(Op::Settle(settle)) = action {
            judged = judged.and_then(|()| fate::settled(known, now, settle));
            if self.judged {
                let target = known.attempts.iter().rev().find(|attempt| attempt.lease == settle.lease);
                let target = target.map(|attempt| known.route().roster.entries[usize::from(attempt.choice.0)].target);
                self.life.settled(target, settle.outcome);
            }
        }
        if let Action::Send { attempt, .. } = action {
            let lease = known.attempt(*attempt).map(|attempt| attempt.lease);
            let holder = lease.and_then(|lease| self.book.holder(lease));
            if judged.is_ok() && holder != Some(call) && !self.shared {
                judged = Err(("S4", format!("attempt {attempt} is sent on a place that {holder:?} holds")));
            }
        }
        self.hold(now, Some(call), judged);
    }

    fn over(&mut self, now: Time, call: u32, end: &surefoot_core::event::End) {
        let Some(known) = self.calls.remove(&call) else { return };
        let mut judged = match &known.finished {
            Some(finished) if finished == end => Ok(()),
            // Its last bytes were on their way when the client left.
            Some(_) if matches!(end, surefoot_core::event::End::Cancelled(_)) => Ok(()),
            finished => Err(("S10", format!("is over as {end:?}, its last action was {finished:?}"))),
        };
        judged = judged.and_then(|()| fate::over(&known, now, end));
        judged = judged.and_then(|()| self.life.over(&known, now, end));
        if !self.slow_store {
            judged = judged.and_then(|()| match self.book.held_by(call) {
                Some(lease) => Err(("S4", format!("is over and holds lease {lease}"))),
                None => Ok(()),
            });
        }
        // Where the window is narrow, cuts have more to decide.
        let narrow = known.policy().window.max_bytes < 10_000 || known.policy().window.max_events < 100;
        if judged.is_ok() && self.sample.chance(if narrow { 400_000 } else { 60_000 }) {
            judged = rechunk::same(&known, &mut self.sample);
        }
        self.hold(now, Some(call), judged);
    }

    /// Holds the pool's own view against the book, after every command.
    pub fn look(&mut self, now: Time, views: &[TargetView<'_>], _waiting: usize) {
        let judged = if self.shared { self.book.compare_store(now, views) } else { self.book.compare(now, views) };
        self.hold(now, None, judged);
    }

    /// What a call holds, after every turn of it.
    pub fn held(&mut self, now: Time, call: u32, phase: Phase, held: u64) {
        if let Some(known) = self.calls.get(&call) {
            let judged = known.window(phase, held);
            self.hold(now, Some(call), judged);
        }
    }

    /// A call wants to be woken at a time that is not ahead.
    pub fn spin(&mut self, now: Time, call: u32, wake: Time) {
        self.hold(now, Some(call), Err(("S9", format!("wants to be woken at {wake:?}, now is {now:?}"))));
    }

    /// Leases at a shared store whose end was lost on the way there have run out.
    pub fn run_out_at_store(&mut self, later: Time) {
        if self.shared {
            self.book.run_out_at_store(later);
        }
    }

    /// Nothing more can happen: nothing may be left over (L3).
    pub fn idle(&mut self, now: Time, views: &[TargetView<'_>], waiting: usize, open: usize, left: Option<u32>) {
        if self.first.is_some() {
            return;
        }
        let inflight: u32 = views.iter().map(|view| view.inflight + view.source_inflight).sum();
        let held = self.book.held();
        let judged = match left {
            Some(call) => Err(("L1", format!("call {call} never ends"))),
            None if (inflight, waiting, open, held) != (0, 0, 0, 0) => Err((
                "L3",
                format!("{inflight} in flight, {waiting} in line, {open} connections, {held} leases are left over"),
            )),
            None => self.life.closed(|target| {
                views.iter().find(|view| view.id == target).is_none_or(|view| view.state == BreakerState::Closed)
            }),
        };
        self.hold(now, left, judged);
    }

    /// The run does not come to an end.
    pub fn endless(&mut self, now: Time, records: u64) {
        self.hold(now, None, Err(("L1", format!("no end after {records} events"))));
    }
}

impl Call {
    fn leave(&mut self, now: Time, cause: CancelCause, runs_on: bool) {
        self.left = Some((now, cause));
        self.runs_on = runs_on && cause == CancelCause::ClientGone;
    }

    /// Its client left and its attempts run on for nobody.
    fn client_may_be_gone(&self) -> bool {
        self.runs_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::draw::draw;
    use surefoot_core::id::TargetId;
    use surefoot_core::outcome::Outcome;

    fn broken(by: impl FnOnce(&mut Checks)) -> Option<&'static str> {
        let mut checks = Checks::new(&draw(0));
        by(&mut checks);
        checks.first().map(|violation| violation.id)
    }

    /// The laws that a planted bug would break only after another one: that they can be broken at all.
    #[test]
    fn laws_of_the_end_can_be_broken() {
        let end = Time(9);
        assert_eq!(broken(|checks| checks.spin(end, 1, Time(8))), Some("S9"));
        assert_eq!(broken(|checks| checks.idle(end, &[], 0, 0, Some(3))), Some("L1"));
        assert_eq!(broken(|checks| checks.endless(end, 7)), Some("L1"));
        assert_eq!(broken(|checks| checks.idle(end, &[], 1, 0, None)), Some("L3"));
        assert_eq!(broken(|checks| checks.idle(end, &[], 0, 1, None)), Some("L3"));
        assert_eq!(broken(|checks| checks.idle(end, &[], 0, 0, None)), None);
    }

    #[test]
    fn a_target_that_serves_must_be_closed_in_the_end() {
        let mut life = life::Life::new(&draw(0));
        life.settled(Some(TargetId(4)), Outcome::Success);
        assert_eq!(life.closed(|target| target != TargetId(4)).map_err(|(id, _)| id), Err("L2"));
        assert!(life.closed(|_| true).is_ok());
    }

    #[test]
    fn the_first_broken_law_is_the_one_that_is_told() {
        let told = broken(|checks| {
            checks.spin(Time(1), 1, Time(0));
            checks.endless(Time(2), 7);
        });
        assert_eq!(told, Some("S9"));
    }
}
