//! The pool with its gate elsewhere: the same commands in two steps, for a store that several gateways share (G18).
//!
//! [`Pool::plan`] does the order half's part and says what the gate is to be asked; whoever holds the gate answers;
//! [`Pool::conclude`] turns that answer into the call's reply. Other commands may come between the two. Nobody stands in
//! line here, a place that another gateway frees is not heard of: a call that may wait asks again.

use alloc::vec::Vec;

use crate::time::Time;

use super::breaker::Evidence;
use super::engine::Pool;
use super::gate::{Admit, GateOp, GateReply, Verdict};
use super::gate_wire::Answer;
use super::order::Question;
use super::{Op, Refusal, Reply};

/// What a command needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The gate's answer to this.
    Ask(GateOp),
    /// Nothing: this is the reply.
    Done(Reply),
}

impl Pool {
    /// The first step of a command whose gate is elsewhere. `now` is the driver's clock; the gate goes by its own.
    pub fn plan(&mut self, now: Time, op: &Op) -> Plan {
        self.now = self.now.max(now);
        self.expire();
        let (asked, unknown) = match op {
            Op::Reserve(reserve) => {
                if let Some(held) = self.held(reserve.lease) {
                    return Plan::Done(held);
                }
                let turn = self.turn(reserve);
                let admit = self.draft(0, Question::of(reserve, turn), Admit::of(reserve), Vec::new());
                self.count_asking(&admit, true);
                (Some(GateOp::Admit(admit)), Reply::Done)
            }
            Op::Settle(settle) => (self.take_settlement(settle), Reply::Settled { change: None }),
            Op::Renew { lease } => (self.take_renewal(*lease), Reply::Done),
            Op::Leave { lease } => (self.take_leave(*lease), Reply::Done),
        };
        asked.map_or(Plan::Done(unknown), Plan::Ask)
    }

    /// The second step: what the call is told. `None` = the store can not be reached and `on_down` says to fail closed.
    pub fn conclude(&mut self, now: Time, asked: &GateOp, reply: Option<GateReply>) -> Reply {
        self.now = self.now.max(now);
        if let GateOp::Admit(admit) = asked {
            self.count_asking(admit, false);
        }
        match (asked, reply) {
            (GateOp::Admit(admit), Some(reply)) => self.book(admit, reply),
            (GateOp::Admit(_), None) => self.refused(Refusal::StoreDown, None, None),
            (GateOp::Settle { .. }, reply) => Reply::Settled { change: reply.and_then(GateReply::change) },
            (GateOp::Renew { .. } | GateOp::Release { .. }, _) => Reply::Done,
        }
    }

    /// Asks the gate in memory instead, as `on_down = "local"` wants it: its breakers and limits are this process's own.
    pub fn ask_local(&mut self, now: Time, asked: &GateOp) -> GateReply {
        self.now = self.now.max(now);
        self.gate_apply(asked)
    }

    /// What [`Pool::ask_local`] found at each candidate of the last admission: for one that plays a store.
    pub fn found(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// Lets the gate in memory keep the store's book too, so that it can take over at any moment and the views tell how
    /// things stand. Before [`Pool::conclude`], for every answer that did not come from [`Pool::ask_local`].
    pub fn mirror(&mut self, now: Time, asked: &GateOp, answer: &Answer) {
        self.now = self.now.max(now);
        let (now, gate) = (self.now, &mut self.gate);
        gate.expire(now);
        for seen in &answer.seen {
            if let Some(target) = gate.targets.get_mut(seen.target.0 as usize) {
                target.breaker.adopt(now, seen.target, seen.state, seen.open_until);
            }
        }
        match (asked, answer.reply) {
            (GateOp::Admit(admit), GateReply::Admitted { index, .. }) => {
                let candidate = admit.candidates.get(usize::from(index));
                if let Some(target) = candidate.map(|it| it.target).filter(|id| gate.targets.len() > id.0 as usize) {
                    gate.take(now, admit, usize::from(index), target);
                }
            }
            (GateOp::Admit(_), _) => {}
            (GateOp::Settle { lease, evidence, rest, tokens }, _) => {
                let target = gate.held(*lease).map(|(target, _)| target);
                gate.settle(now, *lease, Evidence::Neutral, *rest, *tokens);
                if let Some(target) = target.and_then(|id| gate.targets.get_mut(id.0 as usize)) {
                    target.breaker.observe(now, *evidence, gate.settings.window);
                }
            }
            (GateOp::Renew { .. } | GateOp::Release { .. }, _) => {
                self.gate_apply(asked);
            }
        }
    }

    /// A question under way counts as in flight on the candidate that it will most likely get. Else a burst would find
    /// every pace unused until the first answer is back.
    fn count_asking(&mut self, admit: &Admit, begins: bool) {
        let likely = admit.candidates.iter().find(|candidate| !candidate.paced);
        if let Some(target) = likely.and_then(|candidate| self.targets.get_mut(candidate.target.0 as usize)) {
            target.asking = if begins { target.asking.saturating_add(1) } else { target.asking.saturating_sub(1) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::tests::{Limits, World, settled};
    use crate::pool::{Reserve, Settings, Settle, Strategy};
    use alloc::format;

    /// One meaning, however it is executed: in one step, in two, with a second pool's gate as the store.
    #[test]
    fn two_steps_say_what_one_says() {
        let world = || {
            let mut settings = Settings::default();
            settings.breaker.fail_threshold = 2;
            let mut world = World::new(0, settings);
            for at in 0..4 {
                let limits = Limits { max_concurrency: at % 3, rpm: 10 * at, tpm: 0 };
                world.add(&format!("s{at}"), &format!("a{}", at / 2), limits);
            }
            world
        };
        let (mut whole, mut split, mut store) = (world(), world(), world());
        let roster = whole.roster(Strategy::RoundRobin, &[&[0, 1], &[2, 3]]);
        let mut rng = crate::rng::Rng::new(5);
        for step in 0..3000u64 {
            let wait = crate::time::Span::from_millis(u64::from(rng.below(2000)));
            whole.wait(wait);
            let lease = crate::id::LeaseId(u64::from(rng.below(12)));
            let op = match rng.below(6) {
                0..3 => Op::Reserve(Reserve { lease, queue: false, draw: step, ..whole.ask(&roster) }),
                3 | 4 => Op::Settle(Settle {
                    lease,
                    outcome: crate::outcome::Outcome::ALL[rng.below(7) as usize],
                    ..settled()
                }),
                _ => Op::Leave { lease },
            };
            let one = whole.pool.apply(whole.now, &op);
            let two = match split.pool.plan(whole.now, &op) {
                Plan::Done(reply) => reply,
                Plan::Ask(asked) => {
                    let reply = store.pool.ask_local(whole.now, &asked);
                    split.pool.conclude(whole.now, &asked, Some(reply))
                }
            };
            assert_eq!(one, two, "step {step}: {op:?}");
        }
        let counted: u64 = (0..4).map(|at| whole.view(at).transitions.opened).sum();
        assert!(counted > 10, "breakers were at work: {counted}");
    }

    #[test]
    fn a_store_that_is_down_fails_closed_and_leaves_nothing_behind() {
        let mut world = World::new(1, Settings::default());
        let roster = world.roster(Strategy::Priority, &[&[0]]);
        let reserve = Op::Reserve(world.ask(&roster));
        let Plan::Ask(asked) = world.pool.plan(world.now, &reserve) else { panic!("nothing to ask") };
        let reply = world.pool.conclude(world.now, &asked, None);
        assert!(matches!(reply, Reply::Refused { why: Refusal::StoreDown, .. }));
        assert_eq!(world.view(0).inflight, 0);
    }
}
