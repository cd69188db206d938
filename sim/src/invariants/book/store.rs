//! The gate of a store that several gateways share, by the book (S4, S6, S7, G13): whatever a gateway believes, what the
//! store admits must be right by what the store was told.

use surefoot_core::id::TargetId;
use surefoot_core::pool::{
    Admit, BreakerChange, BreakerState, Candidate, Evidence, GateOp, GateReply, Refusal, TargetView,
};
use surefoot_core::time::Time;

use super::super::breaker::{Breaker, Says};
use super::{Bar, Book, GRACE, Held, Leak, Wrong};
use crate::world::shared::call_of;

impl Book {
    /// The store carried a command out.
    pub(in super::super) fn stored(&mut self, now: Time, op: &GateOp, reply: &GateReply) -> Result<(), Wrong> {
        self.run_out_at_store(now);
        match (op, reply) {
            (GateOp::Admit(admit), GateReply::Admitted { index, probe, change }) => {
                self.stored_release(now, admit.lease);
                self.admitted(now, admit, usize::from(*index), *probe, *change)
            }
            (GateOp::Admit(admit), GateReply::Denied { why, after, .. }) => {
                self.stored_release(now, admit.lease);
                self.denied(now, admit, *why, *after)
            }
            (GateOp::Settle { lease, evidence, rest, tokens }, GateReply::Settled { change }) => {
                let Some(held) = self.give_back(*lease) else {
                    return if change.is_none() {
                        Ok(())
                    } else {
                        Err(("S4", "an unknown lease taught something".into()))
                    };
                };
                let was = self.target(held.target).breaker.state;
                let says = match evidence {
                    Evidence::Success => Says::Good,
                    Evidence::Failure => Says::Bad,
                    Evidence::Dead => Says::Dead,
                    Evidence::Neutral => Says::Nothing,
                };
                self.teach(now, *lease, &held, says, *rest, *tokens);
                let is = self.target(held.target).breaker.state;
                told_rightly(held.target, was, is, *change)
            }
            (GateOp::Renew { lease }, GateReply::Done) => {
                if let Some(held) = self.leases.get_mut(lease) {
                    held.expires = now.after(held.ttl);
                }
                Ok(())
            }
            (GateOp::Release { lease }, GateReply::Done) => {
                self.stored_release(now, *lease);
                Ok(())
            }
            (op, reply) => Err(("S4", format!("{op:?} was answered by {reply:?}"))),
        }
    }

    /// What ran out at the store by now is free there.
    pub(in super::super) fn run_out_at_store(&mut self, now: Time) {
        self.expire(now);
        self.touch_gate(now);
    }

    /// The store forgot everything that it had learnt.
    pub(in super::super) fn wipe(&mut self) {
        self.leases.clear();
        self.run_out.clear();
        self.accounts.fill(Time::ZERO);
        for target in self.targets.iter_mut().flatten() {
            (target.breaker, target.inflight) = (Breaker::default(), 0);
        }
        for source in self.sources.iter_mut().flatten() {
            (source.inflight, source.rest) = (0, Time::ZERO);
            (source.requests, source.tokens) = (Leak::default(), Leak::default());
        }
    }

    fn stored_release(&mut self, now: Time, lease: surefoot_core::id::LeaseId) {
        if let Some(held) = self.give_back(lease) {
            self.returned(now, lease, &held);
        }
    }

    /// What keeps a candidate from starting at the store; paces are the gateways' own.
    fn bar_at_store(&self, now: Time, admit: &Admit, candidate: &Candidate, grace: f64) -> Option<Bar> {
        let target = self.targets.get(candidate.target.0 as usize)?.as_ref()?;
        let source = self.sources[target.source.0 as usize].as_ref()?;
        if let Some(bar) = self.closed(now, target, source, candidate.not_before) {
            return Some(bar);
        }
        if candidate.paced {
            return Some(Bar::Pace);
        }
        let behind = candidate.behind && source.tpm > 0;
        (behind || !source.has_room(now, admit.tokens, grace)).then_some(Bar::Limit)
    }

    fn admitted(
        &mut self,
        now: Time,
        admit: &Admit,
        index: usize,
        probe: bool,
        change: Option<BreakerChange>,
    ) -> Result<(), Wrong> {
        let Some(candidate) = admit.candidates.get(index) else {
            return Err(("S6", format!("candidate {index} was admitted, there is none such")));
        };
        let why = |id, what: &str| Err((id, format!("the store admits {} {what}", candidate.target)));
        match self.bar_at_store(now, admit, candidate, GRACE) {
            Some(Bar::Breaker) => return why("S6", "although its breaker is shut"),
            Some(Bar::Rest) => return why("G13", "while it rests"),
            Some(Bar::Backoff) => return why("G11", "before its backoff is over"),
            Some(Bar::Pace) => return why("G14", "beyond its pace"),
            Some(Bar::Limit) => return why("S7", "beyond its limits"),
            None => {}
        }
        let before: Vec<Option<Bar>> =
            admit.candidates[..index].iter().map(|other| self.bar_at_store(now, admit, other, -GRACE)).collect();
        // Who rests may be waited for in place of another: with rests and backoffs nothing is said of the order.
        let waits = before.iter().any(|bar| matches!(bar, Some(Bar::Rest | Bar::Backoff)));
        if !waits && before.iter().any(Option::is_none) {
            return why("F2", "although one before it could start");
        }
        let settings = self.settings.breaker.clone();
        let at = candidate.target.0 as usize;
        let target = self.target(at);
        let was = target.breaker.state;
        let is_probe = target.breaker.start(now, admit.lease, admit.ttl, &settings);
        target.inflight += 1;
        let (epoch, source, is) = (target.breaker.epoch, target.source.0 as usize, target.breaker.state);
        if is_probe != probe {
            return why("S6", &format!("as probe: {probe}, by the book: {is_probe}"));
        }
        told_rightly(at, was, is, change)?;
        let Some(known) = &mut self.sources[source] else { return Ok(()) };
        known.inflight += 1;
        known.requests.add(now, known.rpm, 1.0);
        known.tokens.add(now, known.tpm, f64::from(admit.tokens));
        let (ttl, tokens) = (admit.ttl, admit.tokens);
        let call = call_of(admit.lease).unwrap_or(u32::MAX);
        let held = Held { call, target: at, source, epoch, ttl, expires: now.after(ttl), tokens };
        self.leases.insert(admit.lease, held);
        Ok(())
    }

    fn denied(&self, now: Time, admit: &Admit, why: Refusal, after: Option<Time>) -> Result<(), Wrong> {
        let bars: Vec<Option<Bar>> =
            admit.candidates.iter().map(|candidate| self.bar_at_store(now, admit, candidate, -GRACE)).collect();
        if why == Refusal::Breaker && bars.iter().any(|bar| *bar != Some(Bar::Breaker)) {
            return Err(("S6", format!("the store refuses for breakers; by the book it is {bars:?}")));
        }
        if after.is_some_and(|after| after <= now) {
            return Err(("S9", format!("the store refuses until {after:?}, which is not ahead")));
        }
        let waits = bars.iter().any(|bar| matches!(bar, Some(Bar::Rest | Bar::Backoff)));
        if !waits && bars.iter().any(Option::is_none) {
            return Err(("F2", format!("the store refuses ({why:?}); by the book it is {bars:?}")));
        }
        Ok(())
    }

    /// Holds the store's own view against the book.
    pub(in super::super) fn compare_store(&self, now: Time, views: &[TargetView<'_>]) -> Result<(), Wrong> {
        for view in views {
            let Some(target) = self.targets.get(view.id.0 as usize).and_then(Option::as_ref) else { continue };
            let Some(source) = self.sources[target.source.0 as usize].as_ref() else { continue };
            let wrong = |id, is: String, book: String| {
                Err((id, format!("at the store target {} is {is}, by the book {book}", view.name)))
            };
            if view.source_inflight != source.inflight {
                return wrong("S4", format!("{} in flight", view.source_inflight), source.inflight.to_string());
            }
            let breaker = &target.breaker;
            let (samples, failures) = breaker.counts(now, &self.settings.breaker);
            let shown = (view.state, view.epoch, view.failures, view.samples, view.window_failures, view.reopen_streak);
            let booked = (breaker.state, breaker.epoch, breaker.failures, samples, failures, breaker.streak);
            if shown != booked {
                return wrong("S6", format!("{shown:?}"), format!("{booked:?}"));
            }
            let rests = source.rest.max(self.accounts[source.account.0 as usize]);
            if view.resting_until != (rests > now).then_some(rests) {
                return wrong("G13", format!("resting until {:?}", view.resting_until), format!("{rests:?}"));
            }
        }
        Ok(())
    }
}

fn told_rightly(at: usize, was: BreakerState, is: BreakerState, told: Option<BreakerChange>) -> Result<(), Wrong> {
    let meant = (was != is).then_some(BreakerChange { target: TargetId(at as u32), from: was, to: is });
    if told == meant {
        return Ok(());
    }
    Err(("S6", format!("the store tells {told:?} of a breaker, by the book it is {meant:?}")))
}
