//! The gate half of the pool: breakers, pushbacks, limits and the leases that guard them (G18).
//!
//! A [`GateOp`] is plain data with one meaning, whoever executes it: this file in memory, or a script in a store that
//! several gateways share. The order half has put the candidates in order and written down all that it knows of them
//! ([`Candidate`]); the gate walks the list once. Nothing here draws a number, knows a health or sees a call.

use alloc::vec::Vec;

use crate::id::{AccountId, Choice, LeaseId, SourceId, TargetId};
use crate::mutants::{Mutant, active};
use crate::time::{Span, Time};

use super::breaker::{Admission, Breaker, Evidence, Rules};
use super::lease::Leases;
use super::limits::Bucket;
use super::settings::BreakerSettings;
use super::walk::Walk;
use super::{BreakerChange, Refusal, Reserve, Rest, RestScope};

/// How a candidate that waits out its call's own backoff holds up the candidates behind it (G11).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hold {
    /// Not at all: it has yielded its place.
    #[default]
    None,
    /// It is its turn within its tier; a later tier need not wait for it.
    Tier,
    /// The call stays with it.
    Call,
}

/// A candidate as the order half sees it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name in the call; the gate does not look at it.
    pub choice: Choice,
    /// Whom.
    pub target: TargetId,
    /// Its tier.
    pub tier: u16,
    /// It may stand in for a resting one: it has not used up its tries in this call (G10).
    pub fresh: bool,
    /// Its health in millionths, where the selector goes by health; else 0.
    pub health_ppm: u32,
    /// It is at its pace (G14).
    pub paced: bool,
    /// Somebody ahead in line waits for tokens of its source.
    pub behind: bool,
    /// What its backoff holds up.
    pub hold: Hold,
    /// The end of its backoff.
    pub not_before: Time,
}

/// Admit the first candidate that can start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admit {
    /// The name of the place.
    pub lease: LeaseId,
    /// How long it holds unless renewed.
    pub ttl: Span,
    /// Tokens that the request is estimated to use.
    pub tokens: u32,
    /// The call could wait until then.
    pub wait_until: Time,
    /// Share of a resting candidate's health that makes another of its tier credible, in millionths.
    pub credible_ppm: u32,
    /// In the order in which they are to be tried.
    pub candidates: Vec<Candidate>,
}

/// A command to the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateOp {
    /// Answered by [`GateReply::Admitted`] or [`GateReply::Denied`].
    Admit(Admit),
    /// Gives a place back and records what it taught; answered by [`GateReply::Settled`]. Once per lease.
    Settle {
        /// The place.
        lease: LeaseId,
        /// For the breaker.
        evidence: Evidence,
        /// A pushback (G12).
        rest: Option<Rest>,
        /// Tokens really used.
        tokens: Option<u32>,
    },
    /// The place's TTL starts anew; a probe's slot is not prolonged. Answered by [`GateReply::Done`].
    Renew {
        /// The place.
        lease: LeaseId,
    },
    /// Gives an unused place back, as if it had not been taken. Answered by [`GateReply::Done`].
    Release {
        /// The place.
        lease: LeaseId,
    },
}

/// The gate's answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum GateReply {
    /// A place is taken.
    Admitted {
        /// Whose: an index into the candidates.
        index: u16,
        /// It is the probe.
        probe: bool,
        /// The breaker's change.
        change: Option<BreakerChange>,
    },
    /// None can start; the fields are those of [`Reply::Refused`](super::Reply::Refused).
    Denied {
        /// Why.
        why: Refusal,
        /// When one may start by itself, if not after `wait_until`.
        after: Option<Time>,
        /// The soonest end of anything that ends by itself, however far.
        soonest: Option<Time>,
    },
    /// Noted.
    Settled {
        /// The breaker's change.
        change: Option<BreakerChange>,
    },
    /// Done.
    Done,
}

impl Admit {
    /// The question of a reservation, still without candidates.
    pub(super) fn of(reserve: &Reserve) -> Admit {
        let Reserve { lease, ttl, tokens, wait_until, .. } = *reserve;
        Admit { lease, ttl, tokens, wait_until, ..Admit::default() }
    }
}

impl GateReply {
    /// The breaker's change, if there was one.
    pub const fn change(self) -> Option<BreakerChange> {
        match self {
            GateReply::Admitted { change, .. } | GateReply::Settled { change } => change,
            GateReply::Denied { .. } | GateReply::Done => None,
        }
    }
}

/// What the gate found at a candidate; one each, in their order, for the trace and for the line.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It starts.
    Admitted,
    /// Its breaker refuses.
    Breaker,
    /// It or its account waits out a pushback.
    Resting,
    /// It is passed over: the call rather waits for a resting one than goes there.
    NotCredible,
    /// The call's backoff.
    Backoff,
    /// At its pace.
    Paced,
    /// At `max_concurrency`.
    Concurrency,
    /// At `rpm`.
    Requests,
    /// At `tpm`.
    Tokens,
    /// The walk ended before it.
    NotReached,
}

/// The gate in memory.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    pub(super) settings: BreakerSettings,
    pub(super) targets: Vec<GateTarget>,
    pub(super) sources: Vec<GateSource>,
    /// When each account's pushback ends (G13).
    pub(super) accounts: Vec<Time>,
    leases: Leases<Held>,
}

#[derive(Clone, Debug)]
pub(super) struct GateTarget {
    pub(super) source: SourceId,
    pub(super) breaker: Breaker,
}

#[derive(Clone, Debug)]
pub(super) struct GateSource {
    pub(super) account: AccountId,
    /// 0 = no limit; `rpm` and `tpm` likewise.
    pub(super) max_concurrency: u32,
    pub(super) rpm: u32,
    pub(super) tpm: u32,
    pub(super) inflight: u32,
    pub(super) rest_until: Time,
    requests: Bucket,
    tokens: Bucket,
}

/// A lease's value.
#[derive(Copy, Clone, Debug)]
struct Held {
    target: TargetId,
    /// Where its place is counted, whatever a reload makes of the target meanwhile.
    source: SourceId,
    epoch: u64,
    ttl: Span,
    tokens: u32,
}

impl GateSource {
    pub(super) fn new(account: AccountId) -> GateSource {
        GateSource {
            account,
            max_concurrency: 0,
            rpm: 0,
            tpm: 0,
            inflight: 0,
            rest_until: Time::ZERO,
            requests: Bucket::FULL,
            tokens: Bucket::FULL,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        let limit = self.max_concurrency + active(Mutant::ConcurrencyOffByOne) as u32;
        self.max_concurrency > 0 && self.inflight >= limit
    }

    pub(super) fn limit(&mut self, max_concurrency: u32, rpm: u32, tpm: u32) {
        (self.max_concurrency, self.rpm, self.tpm) = (max_concurrency, rpm, tpm);
    }
}

impl Gate {
    pub(super) fn new(settings: BreakerSettings) -> Gate {
        Gate { settings, targets: Vec::new(), sources: Vec::new(), accounts: Vec::new(), leases: Leases::new() }
    }

    /// Executes a command. `verdicts` is overwritten by an admission, its room is used again.
    pub(super) fn apply(&mut self, now: Time, op: &GateOp, verdicts: &mut Vec<Verdict>) -> GateReply {
        self.expire(now);
        match op {
            GateOp::Admit(admit) => self.admit(now, admit, verdicts),
            GateOp::Settle { lease, evidence, rest, tokens } => {
                GateReply::Settled { change: self.settle(now, *lease, *evidence, *rest, *tokens) }
            }
            GateOp::Renew { lease } => {
                if let Some(held) = self.leases.get(*lease) {
                    let expires = now.after(held.ttl);
                    self.leases.renew(*lease, expires);
                }
                GateReply::Done
            }
            GateOp::Release { lease } => {
                if let Some(held) = self.leases.remove(*lease) {
                    self.vacate(now, *lease, held);
                    let source = &mut self.sources[held.source.0 as usize];
                    source.requests.give(now, source.rpm, 1);
                    source.tokens.give(now, source.tpm, held.tokens);
                }
                GateReply::Done
            }
        }
    }

    /// Takes back the places that nobody spoke for in time.
    pub(super) fn expire(&mut self, now: Time) {
        while let Some((lease, held)) = self.leases.pop_expired(now) {
            self.vacate(now, lease, held);
        }
    }

    /// Whose place a live lease holds.
    pub(super) fn held(&self, lease: LeaseId) -> Option<(TargetId, SourceId)> {
        self.leases.get(lease).map(|held| (held.target, held.source))
    }

    fn admit(&mut self, now: Time, admit: &Admit, verdicts: &mut Vec<Verdict>) -> GateReply {
        verdicts.clear();
        let mut walk = Walk::new(admit);
        for (index, candidate) in admit.candidates.iter().enumerate() {
            let (verdict, opens) = match walk.stops(candidate) {
                true => (Verdict::NotReached, Time::NEVER),
                false => self.examine(now, admit, candidate),
            };
            match walk.pass(candidate, verdict, opens) {
                Verdict::Admitted => {
                    verdicts.push(Verdict::Admitted);
                    return self.take(now, admit, index, candidate.target);
                }
                verdict => verdicts.push(verdict),
            }
        }
        walk.conclude()
    }

    /// What stands in a candidate's way, and when that ends by itself. In this order, so that a dead or resting source
    /// is never taken for a busy one.
    fn examine(&self, now: Time, admit: &Admit, candidate: &Candidate) -> (Verdict, Time) {
        let Some(target) = self.targets.get(candidate.target.0 as usize) else {
            return (Verdict::NotReached, Time::NEVER);
        };
        let source = &self.sources[target.source.0 as usize];
        if let Admission::Refused(until) = target.breaker.admission(now) {
            return (Verdict::Breaker, until);
        }
        let rests = source.rest_until.max(self.accounts[source.account.0 as usize]);
        if rests > now {
            return (Verdict::Resting, rests);
        }
        if candidate.not_before > now {
            return (Verdict::Backoff, candidate.not_before);
        }
        if candidate.paced {
            return (Verdict::Paced, Time::NEVER);
        }
        if source.is_full() {
            return (Verdict::Concurrency, Time::NEVER);
        }
        let requests = source.requests.opens(now, source.rpm, 1);
        if requests > now {
            return (Verdict::Requests, requests);
        }
        if source.tpm > 0 && candidate.behind {
            return (Verdict::Tokens, Time::NEVER);
        }
        let tokens = source.tokens.opens(now, source.tpm, admit.tokens);
        if tokens > now { (Verdict::Tokens, tokens) } else { (Verdict::Admitted, now) }
    }

    /// Takes a place, whatever stands in its way.
    pub(super) fn take(&mut self, now: Time, admit: &Admit, index: usize, id: TargetId) -> GateReply {
        let target = &mut self.targets[id.0 as usize];
        let source = &mut self.sources[target.source.0 as usize];
        source.inflight += 1;
        source.requests.take(now, source.rpm, 1);
        source.tokens.take(now, source.tpm, admit.tokens);
        let probe = target.breaker.admission(now) == Admission::Probe;
        let mut change = None;
        if probe {
            let until = now.after(admit.ttl.min(self.settings.probe_ttl));
            change = target.breaker.probe(id, admit.lease, until);
        }
        let held = Held {
            target: id,
            source: target.source,
            epoch: target.breaker.epoch,
            ttl: admit.ttl,
            tokens: admit.tokens,
        };
        self.leases.insert(admit.lease, now.after(admit.ttl), held);
        GateReply::Admitted { index: index as u16, probe, change }
    }

    pub(super) fn settle(
        &mut self,
        now: Time,
        lease: LeaseId,
        evidence: Evidence,
        rest: Option<Rest>,
        used: Option<u32>,
    ) -> Option<BreakerChange> {
        let held = self.leases.remove(lease)?;
        let id = held.target;
        let target = &mut self.targets[id.0 as usize];
        let source = &mut self.sources[held.source.0 as usize];
        source.inflight = source.inflight.saturating_sub(1);
        match used {
            _ if active(Mutant::TokensNotCorrected) => {}
            Some(used) if used > held.tokens => source.tokens.take(now, source.tpm, used - held.tokens),
            Some(used) => source.tokens.give(now, source.tpm, held.tokens - used),
            None => {}
        }
        if let Some(rest) = rest {
            let until = match rest.scope {
                RestScope::Account if !active(Mutant::RestForKeyAlone) => &mut self.accounts[source.account.0 as usize],
                RestScope::Account | RestScope::Source => &mut source.rest_until,
            };
            let running = if active(Mutant::RestShortened) { Time::ZERO } else { *until };
            *until = running.max(now.after(rest.span.min(Span::from_secs(86_400))));
        }
        let rules = Rules { settings: &self.settings, concurrency: source.max_concurrency };
        let current = held.epoch == target.breaker.epoch;
        let change = target.breaker.record(now, id, (lease, held.epoch), evidence, rules);
        if evidence == Evidence::Dead && current && !active(Mutant::DeadKeySparesOthers) {
            for (other, target) in self.targets.iter_mut().enumerate() {
                if target.source == held.source && other != id.0 as usize {
                    target.breaker.force_open(now, TargetId(other as u32), rules);
                }
            }
        }
        change
    }

    /// Frees a place whose holder says nothing of how it went.
    fn vacate(&mut self, now: Time, lease: LeaseId, held: Held) {
        let source = &mut self.sources[held.source.0 as usize];
        source.inflight = source.inflight.saturating_sub(1);
        self.targets[held.target.0 as usize].breaker.unused(now, lease);
    }
}
