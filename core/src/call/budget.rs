//! What may still start: global limits (F3–F5), providers' own (F6), attempts in a tier (G11).

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::event::Stop;
use crate::id::{Choice, SourceId};
use crate::mutants::{Mutant, active};
use crate::outcome::Outcome;
use crate::policy::{Candidate, Plan, ProviderPolicy};
use crate::pool::{Standing, Strategy};
use crate::time::{Span, Time};

/// The use of one provider's limits.
#[derive(Clone, Debug)]
struct ProviderUse {
    provider: Arc<ProviderPolicy>,
    first_start: Time,
    last_source: SourceId,
    transfers: u32,
}

impl ProviderUse {
    fn is_out_of_time(&self, now: Time) -> bool {
        self.provider.max_transfer_timeout.limit().is_some_and(|limit| now.since(self.first_start) >= limit)
    }

    fn refuses(&self, source: SourceId, now: Time) -> bool {
        let limit = self.provider.max_transfer_count;
        self.is_out_of_time(now) || (limit > 0 && source != self.last_source && self.transfers >= limit)
    }
}

/// What a call has used of its limits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budgets {
    started: u32,
    transfers: u32,
    first_start: Time,
    last_source: Option<SourceId>,
    providers: Vec<ProviderUse>,
    /// Attempts that count, by tier (G11).
    in_tier: Vec<(u16, u32)>,
}

/// Why candidates that the call would still try may not start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// F3, F4, F5.
    Routing,
    /// F6.
    Provider,
    /// G11.
    Attempts,
}

impl Refused {
    /// The event code for the client, where the contract has one.
    pub(crate) fn stop(self) -> Option<Stop> {
        match self {
            Refused::Routing => Some(Stop::RoutingTransferLimit),
            Refused::Provider => Some(Stop::ProviderTransferLimit),
            Refused::Attempts => None,
        }
    }
}

impl Budgets {
    pub(crate) fn started(&self) -> u32 {
        self.started
    }

    pub(crate) fn last_source(&self) -> Option<SourceId> {
        self.last_source
    }

    /// When the time for further attempts is over (F4); [`Time::NEVER`] before the first attempt or without a limit.
    pub(crate) fn time_is_over_at(&self, limit: Span) -> Time {
        match limit.limit() {
            Some(_) if active(Mutant::TransferTimeIgnored) => Time::NEVER,
            Some(limit) if self.started > 0 => self.first_start.after(limit),
            _ => Time::NEVER,
        }
    }

    /// Takes note of a start.
    pub(crate) fn start(&mut self, candidate: &Candidate, now: Time) {
        if self.started == 0 {
            self.first_start = now;
        }
        self.started += 1;
        self.transfers += u32::from(self.last_source.is_some_and(|last| last != candidate.source));
        self.last_source = Some(candidate.source);
        let known = self.providers.iter_mut().find(|known| Arc::ptr_eq(&known.provider, &candidate.provider));
        match known {
            Some(known) => {
                known.transfers += u32::from(known.last_source != candidate.source);
                known.last_source = candidate.source;
            }
            None => self.providers.push(ProviderUse {
                provider: candidate.provider.clone(),
                first_start: now,
                last_source: candidate.source,
                transfers: 0,
            }),
        }
    }

    /// Takes note of an end: pushback and wrong answers use no retry budget (G12, G17).
    pub(crate) fn end(&mut self, tier: u16, outcome: Outcome) {
        if matches!(outcome, Outcome::RateLimited | Outcome::ResultInvalid) && !active(Mutant::PushbackUsesBudget) {
            return;
        }
        match self.in_tier.iter_mut().find(|(known, _)| *known == tier) {
            Some((_, count)) => *count += 1,
            None => self.in_tier.push((tier, 1)),
        }
    }

    /// Takes out of `standing` what no limit lets start, and tells which limit was the reason when nothing is left.
    /// Global limits are checked first (F6).
    pub(crate) fn restrict(&self, plan: &Plan, standing: &mut [Standing], now: Time) -> Result<(), Refused> {
        let policy = &plan.route.policy;
        let ceiling = if active(Mutant::CeilingIgnored) { u32::MAX } else { policy.max_attempts_hard.max(1) };
        if self.started >= ceiling || now >= self.time_is_over_at(policy.max_transfer_timeout) {
            return Err(Refused::Routing);
        }
        let mut refused = None;
        let mut left = false;
        for (index, candidate) in plan.route.candidates.iter().enumerate() {
            let Some(standing) = standing.get_mut(index).filter(|standing| !standing.out) else { continue };
            match self.refusal(plan, Choice(index as u16), candidate, now) {
                None => left = true,
                Some(why) => {
                    standing.out = true;
                    // The global limit is the reason wherever it is one.
                    if refused != Some(Refused::Routing) {
                        refused = Some(why);
                    }
                }
            }
        }
        match refused {
            Some(why) if !left => Err(why),
            _ => Ok(()),
        }
    }

    /// Whether a provider's own limit holds one of its candidates back.
    pub(crate) fn a_provider_is_at_its_limit(&self, plan: &Plan, now: Time) -> bool {
        let at_limit = |candidate: &Candidate| {
            let known = self.providers.iter().find(|known| Arc::ptr_eq(&known.provider, &candidate.provider));
            known.is_some_and(|known| known.refuses(candidate.source, now))
        };
        plan.route.candidates.iter().any(at_limit)
    }

    /// Which limit keeps a candidate that is not spent from starting.
    pub(crate) fn refusal(&self, plan: &Plan, choice: Choice, candidate: &Candidate, now: Time) -> Option<Refused> {
        let policy = &plan.route.policy;
        let switches = self.last_source.is_some_and(|last| last != candidate.source);
        if switches
            && policy.max_transfer_count > 0
            && self.transfers >= policy.max_transfer_count + u32::from(active(Mutant::TransferOffByOne))
        {
            return Some(Refused::Routing);
        }
        let known = self.providers.iter().find(|known| Arc::ptr_eq(&known.provider, &candidate.provider));
        if known.is_some_and(|known| known.refuses(candidate.source, now)) {
            return Some(Refused::Provider);
        }
        let tier = plan.route.roster.entries.get(usize::from(choice.0)).map_or(0, |entry| entry.tier);
        let counted = self.in_tier.iter().find(|(known, _)| *known == tier).map_or(0, |(_, count)| *count);
        let bounded = plan.route.roster.strategy != Strategy::Priority && policy.max_attempts > 0;
        (bounded && counted >= policy.max_attempts).then_some(Refused::Attempts)
    }
}
