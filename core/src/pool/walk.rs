//! What the gate's findings along the list of candidates mean together: who may stand in for whom, what is waited for.

use crate::time::Time;

use super::Refusal;
use super::gate::{Admit, Candidate, GateReply, Hold, Verdict};

/// One walk along the candidates: what was passed over, and what that means for those that follow.
pub(super) struct Walk<'a> {
    admit: &'a Admit,
    /// A resting candidate within reach was passed over; only a credible one may start in its place (F2).
    resting: bool,
    /// The best health among those of the present tier.
    bar: (u16, u32),
    /// A candidate that it is the turn of holds its tier up, or the whole call.
    held_tier: Option<u16>,
    held: bool,
    /// The first reason, in the order of the list, that waiting cures.
    curable: Option<Refusal>,
    backoff: bool,
    /// The best of the reasons that waiting does not cure.
    incurable: Refusal,
    after: Time,
    soonest: Time,
}

impl Walk<'_> {
    pub(super) fn new(admit: &Admit) -> Walk<'_> {
        Walk {
            admit,
            resting: false,
            bar: (0, 0),
            held_tier: None,
            held: false,
            curable: None,
            backoff: false,
            incurable: Refusal::Nothing,
            after: Time::NEVER,
            soonest: Time::NEVER,
        }
    }

    /// Whether a candidate before it keeps this one from being looked at.
    pub(super) fn stops(&self, candidate: &Candidate) -> bool {
        self.held || self.held_tier == Some(candidate.tier)
    }

    /// Takes note of what was found at a candidate; the verdict as it stands in this walk.
    pub(super) fn pass(&mut self, candidate: &Candidate, verdict: Verdict, opens: Time) -> Verdict {
        let in_reach = opens <= self.admit.wait_until;
        if matches!(verdict, Verdict::Breaker | Verdict::Resting | Verdict::Requests | Verdict::Tokens) {
            self.soonest = self.soonest.min(opens);
        }
        if verdict != Verdict::Resting && verdict != Verdict::Breaker && !self.credible(candidate) {
            return Verdict::NotCredible;
        }
        let credible = self.credible(candidate);
        match verdict {
            Verdict::Admitted | Verdict::NotReached | Verdict::NotCredible => return verdict,
            Verdict::Breaker => self.incurable = self.incurable.max(Refusal::Breaker),
            Verdict::Resting if in_reach => {
                self.curable = self.curable.or(Some(Refusal::Resting));
                self.raise_bar(candidate);
            }
            Verdict::Resting => self.incurable = Refusal::Resting,
            Verdict::Backoff if in_reach => {
                self.backoff = true;
                match candidate.hold {
                    Hold::None => {}
                    Hold::Tier => self.held_tier = Some(candidate.tier),
                    Hold::Call => self.held = true,
                }
            }
            Verdict::Backoff => {
                if self.incurable != Refusal::Resting {
                    self.incurable = Refusal::Backoff;
                }
            }
            Verdict::Paced => self.curable = self.curable.or(Some(Refusal::Paced)),
            Verdict::Concurrency | Verdict::Requests | Verdict::Tokens => {
                self.curable = self.curable.or(Some(Refusal::Full));
            }
        }
        if in_reach && credible {
            self.after = self.after.min(opens);
        }
        verdict
    }

    /// Whether it may start in the place of the resting ones that were passed over: a call waits only when nothing
    /// credible can start now. A rest out of reach sets no bar, waiting for it would be no use.
    fn credible(&self, candidate: &Candidate) -> bool {
        if !self.resting {
            return true;
        }
        let (tier, health) = self.bar;
        let needed = u64::from(health) * u64::from(self.admit.credible_ppm);
        candidate.fresh && (candidate.tier != tier || u64::from(candidate.health_ppm) * 1_000_000 >= needed)
    }

    fn raise_bar(&mut self, candidate: &Candidate) {
        self.resting = true;
        let same = if self.bar.0 == candidate.tier { self.bar.1 } else { 0 };
        self.bar = (candidate.tier, same.max(candidate.health_ppm));
    }

    pub(super) fn conclude(self) -> GateReply {
        let why = match (self.curable, self.backoff) {
            (Some(why), _) => why,
            (None, true) => Refusal::Backoff,
            (None, false) => self.incurable,
        };
        let waits = self.curable.is_some() || self.backoff;
        let known = |time: Time| (time != Time::NEVER).then_some(time);
        GateReply::Denied { why, after: known(self.after).filter(|_| waits), soonest: known(self.soonest) }
    }
}
