//! The pool by the book: leases, limits, rests, pace, health and breakers recomputed from commands and replies alone
//! (S4, S6, S7, G8, G12–G15). After every command the pool's own view is held against it.

mod store;

use std::collections::BTreeMap;

use surefoot_core::id::{AccountId, LeaseId, SourceId, TargetId};
use surefoot_core::outcome::Outcome;
use surefoot_core::pool::{
    BreakerState, Op, Refusal, Reply, Reserve, Rest, RestScope, Roster, Settings, Settle, Standing, Strategy,
    TargetView,
};
use surefoot_core::time::{Span, Time};

use super::breaker::{Breaker, Door, Says};

/// What was wrong: the invariant and the words.
pub(super) type Wrong = (&'static str, String);

#[derive(Clone, Debug)]
struct Target {
    source: SourceId,
    breaker: Breaker,
    health: f64,
    pace: Option<f64>,
    ceiling: u32,
    inflight: u32,
}

#[derive(Clone, Debug)]
struct Source {
    account: AccountId,
    max_concurrency: u32,
    inflight: u32,
    rest: Time,
    rpm: u32,
    tpm: u32,
    requests: Leak,
    tokens: Leak,
}

impl Source {
    /// Whether its limits let one more start.
    fn has_room(&self, now: Time, tokens: u32, grace: f64) -> bool {
        let full = self.max_concurrency > 0 && self.inflight >= self.max_concurrency;
        !full && self.requests.fits(now, self.rpm, 1, grace) && self.tokens.fits(now, self.tpm, tokens, grace)
    }
}

/// A leaking bucket: what was used and has not leaked away; the limit holds over every pair of grants iff it never
/// passes one minute's worth.
#[derive(Copy, Clone, Debug, Default)]
struct Leak {
    /// The limit that the level was counted under; 0 = never used.
    limit: u32,
    level: f64,
    at: Time,
}

impl Leak {
    /// The level under a limit. One that changed by a reload keeps the filled share, in whole units.
    fn used(&self, now: Time, limit: u32) -> f64 {
        if self.limit == 0 {
            return 0.0;
        }
        let leaked = now.since(self.at).0 as f64 * f64::from(self.limit) / 60e6;
        let used = (self.level - leaked).max(0.0);
        if self.limit == limit {
            return used;
        }
        let left = (f64::from(self.limit) - used + 1e-7).floor();
        f64::from(limit) - (left * f64::from(limit) / f64::from(self.limit) + 1e-7).floor()
    }

    fn add(&mut self, now: Time, limit: u32, amount: f64) {
        if limit > 0 {
            let level = (self.used(now, limit) + amount).clamp(0.0, f64::from(limit) * 6.0);
            *self = Leak { limit, level, at: now };
        }
    }

    fn fits(&self, now: Time, limit: u32, cost: u32, grace: f64) -> bool {
        limit == 0 || self.used(now, limit) + f64::from(cost.min(limit)) <= f64::from(limit) + grace
    }
}

#[derive(Clone, Debug)]
struct Held {
    call: u32,
    target: usize,
    source: usize,
    epoch: u64,
    ttl: Span,
    expires: Time,
    tokens: u32,
}

/// The pool by the book.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    settings: Settings,
    targets: Vec<Option<Target>>,
    sources: Vec<Option<Source>>,
    accounts: Vec<Time>,
    leases: BTreeMap<LeaseId, Held>,
    /// Leases that ran out of which the gate has not heard: it looks when it is next asked something.
    run_out: Vec<(LeaseId, Held)>,
    /// Commands of calls that wait: a grant from the line refers to them.
    asked: BTreeMap<LeaseId, (u32, Reserve)>,
}

/// What rounding may make of a limit.
const GRACE: f64 = 1e-3;

/// Why a candidate cannot start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Bar {
    Breaker,
    Rest,
    Backoff,
    Pace,
    Limit,
}

fn grown<T: Clone>(list: &mut Vec<T>, at: usize, fill: T) -> &mut T {
    if list.len() <= at {
        list.resize(at + 1, fill);
    }
    &mut list[at]
}

impl Book {
    /// A configuration is in force.
    pub(super) fn configure(&mut self, settings: &Settings, views: &[TargetView<'_>]) {
        if settings.breaker.window != self.settings.breaker.window {
            self.targets.iter_mut().flatten().for_each(|target| target.breaker.resized());
        }
        self.settings = settings.clone();
        for view in views {
            let AccountId(account) = view.account;
            grown(&mut self.accounts, account as usize, Time::ZERO);
            let source = grown(&mut self.sources, view.source.0 as usize, None).get_or_insert_with(|| Source {
                account: view.account,
                max_concurrency: 0,
                inflight: 0,
                rest: Time::ZERO,
                rpm: 0,
                tpm: 0,
                requests: Leak::default(),
                tokens: Leak::default(),
            });
            source.account = view.account;
            source.max_concurrency = view.max_concurrency;
            (source.rpm, source.tpm) = (view.rpm, view.tpm);
            let initial = settings.pace.initial;
            let pace = (initial > 0).then(|| f64::from(initial.max(settings.pace.min)));
            grown(&mut self.targets, view.id.0 as usize, None).get_or_insert_with(|| Target {
                source: view.source,
                breaker: Breaker::default(),
                health: 1.0,
                pace,
                ceiling: 0,
                inflight: 0,
            });
        }
        for target in self.targets.iter_mut().flatten() {
            let own = self.sources[target.source.0 as usize].as_ref().map_or(0, |source| source.max_concurrency);
            target.ceiling = [own, settings.pace.ceiling].into_iter().filter(|limit| *limit > 0).min().unwrap_or(0);
        }
    }

    /// Leases that nobody spoke for: their places are free at once, the gate's part follows.
    fn expire(&mut self, now: Time) {
        let ran_out = |(_, held): &(&LeaseId, &Held)| held.expires <= now;
        while let Some((lease, _)) =
            self.leases.iter().filter(ran_out).min_by_key(|(lease, held)| (held.expires, **lease))
        {
            let lease = *lease;
            if let Some(held) = self.leases.remove(&lease) {
                self.target(held.target).inflight -= 1;
                self.run_out.push((lease, held));
            }
        }
    }

    /// The gate is asked something: it hears of what ran out.
    fn touch_gate(&mut self, now: Time) {
        for (lease, held) in std::mem::take(&mut self.run_out) {
            if let Some(source) = &mut self.sources[held.source] {
                source.inflight -= 1;
            }
            self.target(held.target).breaker.unused(now, lease);
        }
    }

    fn target(&mut self, at: usize) -> &mut Target {
        self.targets[at].as_mut().expect("a target that was registered")
    }

    fn give_back(&mut self, lease: LeaseId) -> Option<Held> {
        let held = self.leases.remove(&lease)?;
        self.target(held.target).inflight -= 1;
        if let Some(source) = &mut self.sources[held.source] {
            source.inflight -= 1;
        }
        Some(held)
    }

    /// A command is about to be applied: what has run out by now is gone. Whose it was.
    pub(super) fn before(&mut self, now: Time) -> Vec<(LeaseId, u32)> {
        let known = self.run_out.len();
        if self.leases.values().any(|held| held.expires <= now) {
            self.expire(now);
        }
        self.run_out[known..].iter().map(|(lease, held)| (*lease, held.call)).collect()
    }

    /// A command was applied.
    pub(super) fn apply(&mut self, now: Time, call: u32, op: &Op, reply: &Reply) -> Result<(), Wrong> {
        if matches!(op, Op::Reserve(_)) || self.leases.contains_key(&op.lease()) {
            self.touch_gate(now);
        }
        match (op, reply) {
            (Op::Reserve(reserve), Reply::Granted { choice, probe, change }) => {
                // Who stands in line is served by what he last asked for; what he asks now came too late for that.
                let waiting = self.asked.remove(&reserve.lease).map(|(_, waiting)| waiting);
                if self.leases.contains_key(&reserve.lease) {
                    return Ok(());
                }
                let out = reserve.standing.get(usize::from(choice.0)).is_some_and(|standing| standing.out);
                let asked = waiting.filter(|_| out);
                self.granted(now, call, asked.as_ref().unwrap_or(reserve), choice.0, *probe, change.is_some())
            }
            (Op::Reserve(reserve), Reply::Refused { why, after, .. }) => {
                self.asked.remove(&reserve.lease);
                if reserve.queue && matches!(why, Refusal::Paced | Refusal::Full | Refusal::Resting) {
                    self.asked.insert(reserve.lease, (call, reserve.clone()));
                }
                self.refused(now, reserve, *why, *after)
            }
            (Op::Settle(settle), Reply::Settled { change }) => {
                let before = self.leases.get(&settle.lease).map(|held| held.target);
                let was = before.map(|at| self.target(at).breaker.state);
                self.settle(now, settle);
                let is = before.map(|at| self.target(at).breaker.state);
                let told = change.map(|change| (Some(change.from), Some(change.to)));
                match told {
                    Some(told) if told != (was, is) || was == is => Err((
                        "S6",
                        format!("the breaker's change was told as {told:?}, by the book it is {was:?} to {is:?}"),
                    )),
                    None if was != is => {
                        Err(("S6", format!("the breaker goes from {was:?} to {is:?} and nothing was told")))
                    }
                    _ => Ok(()),
                }
            }
            (Op::Renew { lease }, Reply::Done) => {
                if let Some(held) = self.leases.get_mut(lease) {
                    held.expires = now.after(held.ttl);
                }
                Ok(())
            }
            (Op::Leave { lease }, Reply::Done) => {
                self.asked.remove(lease);
                if let Some(held) = self.give_back(*lease) {
                    self.returned(now, *lease, &held);
                }
                Ok(())
            }
            (op, reply) => Err(("S4", format!("{op:?} was answered by {reply:?}"))),
        }
    }

    /// A place was given back as if it had not been taken.
    fn returned(&mut self, now: Time, lease: LeaseId, held: &Held) {
        self.target(held.target).breaker.unused(now, lease);
        if let Some(source) = &mut self.sources[held.source] {
            source.requests.add(now, source.rpm, -1.0);
            source.tokens.add(now, source.tpm, -f64::from(held.tokens));
        }
    }

    /// Somebody in line got a place.
    pub(super) fn granted_in_line(&mut self, now: Time, lease: LeaseId, reply: &Reply) -> Result<(), Wrong> {
        self.touch_gate(now);
        let Some((call, reserve)) = self.asked.remove(&lease) else {
            return Err(("S4", format!("lease {lease} got a place that nobody waits for")));
        };
        if matches!(
            reply,
            Reply::Refused { why: Refusal::Paced | Refusal::Full | Refusal::Resting, after: Some(_), .. }
        ) {
            self.asked.insert(lease, (call, reserve.clone()));
        }
        match reply {
            Reply::Granted { choice, probe, change } => {
                self.granted(now, call, &reserve, choice.0, *probe, change.is_some())
            }
            Reply::Refused { why, after, .. } => self.refused(now, &reserve, *why, *after),
            other => Err(("S4", format!("lease {lease} in line was answered by {other:?}"))),
        }
    }

    fn granted(
        &mut self,
        now: Time,
        call: u32,
        reserve: &Reserve,
        choice: u16,
        probe: bool,
        changed: bool,
    ) -> Result<(), Wrong> {
        let Some(entry) = reserve.roster.entries.get(usize::from(choice)) else {
            return Err(("S6", format!("candidate {choice} was granted, the roster has none such")));
        };
        let standing = reserve.standing.get(usize::from(choice)).copied().unwrap_or_default();
        if standing.out {
            return Err(("S5", format!("candidate {choice} was granted although the call is done with it")));
        }
        match self.bar(now, entry.target, &standing, reserve.tokens, GRACE) {
            Some(Bar::Breaker) => return Err(("S6", format!("candidate {choice} was granted, its breaker is shut"))),
            Some(Bar::Rest) => return Err(("G13", format!("candidate {choice} was granted while it rests"))),
            Some(Bar::Backoff) => {
                return Err(("G11", format!("candidate {choice} was granted before its backoff was over")));
            }
            Some(Bar::Pace) => return Err(("G14", format!("candidate {choice} was granted beyond its pace"))),
            Some(Bar::Limit) => return Err(("S7", format!("candidate {choice} was granted beyond its limits"))),
            None => {}
        }
        self.in_order(now, reserve, choice)?;
        let breaker_settings = self.settings.breaker.clone();
        let at = entry.target.0 as usize;
        let target = self.target(at);
        let was = target.breaker.state;
        let is_probe = target.breaker.start(now, reserve.lease, reserve.ttl, &breaker_settings);
        target.inflight += 1;
        let (epoch, source, is) = (target.breaker.epoch, target.source.0 as usize, target.breaker.state);
        if is_probe != probe || changed != (was != is) {
            return Err((
                "S6",
                format!("the grant says probe {probe}, changed {changed}; by the book {is_probe}, {was:?} to {is:?}"),
            ));
        }
        let Some(known) = &mut self.sources[source] else { return Ok(()) };
        known.inflight += 1;
        known.requests.add(now, known.rpm, 1.0);
        known.tokens.add(now, known.tpm, f64::from(reserve.tokens));
        let held = Held {
            call,
            target: at,
            source,
            epoch,
            ttl: reserve.ttl,
            expires: now.after(reserve.ttl),
            tokens: reserve.tokens,
        };
        self.leases.insert(reserve.lease, held);
        Ok(())
    }

    /// What keeps a candidate from starting; the more lasting reason first. The pool counts in whole millionths, the book in
    /// fractions: `grace` decides what lies between, for or against.
    fn bar(&self, now: Time, target: TargetId, standing: &Standing, tokens: u32, grace: f64) -> Option<Bar> {
        let target = self.targets.get(target.0 as usize)?.as_ref()?;
        let source = self.sources[target.source.0 as usize].as_ref()?;
        if let Some(bar) = self.closed(now, target, source, standing.not_before) {
            return Some(bar);
        }
        // At its ceiling the pace says nothing: whose limit that is says it.
        let limit = match target.pace {
            Some(pace) if target.ceiling == 0 || pace < f64::from(target.ceiling) => pace,
            _ => f64::INFINITY,
        };
        if f64::from(target.inflight) >= (limit + grace).floor() {
            return Some(Bar::Pace);
        }
        (!source.has_room(now, tokens, grace)).then_some(Bar::Limit)
    }

    /// What keeps a candidate from starting whatever its pace and its limits say.
    fn closed(&self, now: Time, target: &Target, source: &Source, not_before: Time) -> Option<Bar> {
        if target.breaker.door(now) == Door::Shut {
            return Some(Bar::Breaker);
        }
        if source.rest.max(self.accounts[source.account.0 as usize]) > now {
            return Some(Bar::Rest);
        }
        if not_before > now {
            return Some(Bar::Backoff);
        }
        None
    }

    fn bars(&mut self, now: Time, reserve: &Reserve) -> Vec<(u16, Standing, Option<Bar>)> {
        let roster: &Roster = &reserve.roster;
        let mut bars = Vec::with_capacity(roster.entries.len());
        for (choice, entry) in roster.entries.iter().enumerate() {
            let standing = reserve.standing.get(choice).copied().unwrap_or_default();
            if !standing.out {
                bars.push((choice as u16, standing, self.bar(now, entry.target, &standing, reserve.tokens, -GRACE)));
            }
        }
        bars
    }

    /// F2, G9: nobody of an earlier tier could have started. Rests and backoffs change who may stand in for whom, so with
    /// them nothing is said.
    fn in_order(&mut self, now: Time, reserve: &Reserve, choice: u16) -> Result<(), Wrong> {
        let bars = self.bars(now, reserve);
        if bars.iter().any(|(_, _, bar)| matches!(bar, Some(Bar::Rest | Bar::Backoff))) {
            return Ok(());
        }
        let tier = reserve.roster.entries[usize::from(choice)].tier;
        let has_token_line = |choice: u16| self.token_limit(reserve, choice) > 0;
        let earlier = bars.iter().find(|(other, _, bar)| {
            bar.is_none() && reserve.roster.entries[usize::from(*other)].tier < tier && !has_token_line(*other)
        });
        match earlier {
            Some((other, ..)) => {
                Err(("F2", format!("candidate {choice} was granted although {other} of an earlier tier could start")))
            }
            None => Ok(()),
        }
    }

    fn token_limit(&self, reserve: &Reserve, choice: u16) -> u32 {
        let target = reserve.roster.entries[usize::from(choice)].target.0 as usize;
        let source = self.targets.get(target).and_then(Option::as_ref).map(|target| target.source.0 as usize);
        source.and_then(|source| self.sources[source].as_ref()).map_or(0, |source| source.tpm)
    }

    /// F2, G14: nobody waits while something credible can start.
    fn refused(&mut self, now: Time, reserve: &Reserve, why: Refusal, after: Option<Time>) -> Result<(), Wrong> {
        let bars = self.bars(now, reserve);
        if why == Refusal::Nothing && !bars.is_empty() {
            return Err(("F2", format!("nothing is left, it says, but there are {}", bars.len())));
        }
        if why == Refusal::Breaker
            && let Some((choice, _, bar)) = bars.iter().find(|(_, _, bar)| *bar != Some(Bar::Breaker))
        {
            return Err(("S6", format!("refused by breakers, but candidate {choice} has {bar:?}")));
        }
        if after.is_some_and(|after| after <= now) {
            return Err(("S9", format!("refused until {after:?}, which is not ahead")));
        }
        if bars.iter().any(|(_, _, bar)| *bar == Some(Bar::Backoff)) {
            return Ok(());
        }
        let by_health = reserve.roster.strategy == Strategy::HealthAware;
        let resting = bars.iter().filter(|(_, _, bar)| *bar == Some(Bar::Rest));
        let best = resting
            .map(|(choice, ..)| self.health(reserve, *choice))
            .fold(None, |best: Option<f64>, one| Some(best.map_or(one, |best| best.max(one))));
        let credible = f64::from(self.settings.health.credible_ppm) / 1e6;
        let could = bars.iter().find(|(choice, standing, bar)| {
            let stands_in = match best {
                None => true,
                Some(best) => {
                    standing.failed < reserve.sticky.max(1)
                        && (!by_health || self.health(reserve, *choice) >= credible * best + 1e-3)
                }
            };
            bar.is_none() && stands_in && self.token_limit(reserve, *choice) == 0
        });
        match could {
            Some((choice, ..)) => Err(("F2", format!("refused ({why:?}) although candidate {choice} could start"))),
            None => Ok(()),
        }
    }

    fn health(&self, reserve: &Reserve, choice: u16) -> f64 {
        let target = reserve.roster.entries[usize::from(choice)].target.0 as usize;
        self.targets.get(target).and_then(Option::as_ref).map_or(0.0, |target| target.health)
    }

    fn settle(&mut self, now: Time, settle: &Settle) {
        let Some(held) = self.leases.get(&settle.lease).cloned() else { return };
        let (health, pace) = (self.settings.health.clone(), self.settings.pace.clone());
        let target = self.target(held.target);
        let alpha = f64::from(health.alpha_ppm) / 1e6;
        let learn = match settle.outcome {
            Outcome::Success => Some(1.0),
            Outcome::Transient | Outcome::RateLimited | Outcome::SourceDead => Some(0.0),
            _ => None,
        };
        if let Some(value) = learn {
            target.health += alpha * (value - target.health);
        }
        let ceiling = if target.ceiling == 0 { f64::INFINITY } else { f64::from(target.ceiling) };
        if settle.overload || settle.outcome == Outcome::RateLimited {
            let from = target.pace.map_or(f64::from(target.inflight), |limit| limit.min(ceiling));
            target.pace = Some((from * f64::from(pace.cut_ppm) / 1e6).max(f64::from(pace.min.max(1))));
        } else if settle.outcome == Outcome::Success
            && let Some(limit) = target.pace
        {
            target.pace = Some((limit + 1.0 / limit).min(ceiling));
        }
        self.give_back(settle.lease);
        let says = match settle.outcome {
            Outcome::Success if settle.slow => Says::Bad,
            Outcome::Success => Says::Good,
            Outcome::Transient => Says::Bad,
            Outcome::RateLimited if self.settings.breaker.count_rate_limited => Says::Bad,
            Outcome::SourceDead => Says::Dead,
            _ => Says::Nothing,
        };
        self.teach(now, settle.lease, &held, says, settle.rest, settle.tokens);
    }

    /// What the gate takes from a result.
    fn teach(&mut self, now: Time, lease: LeaseId, held: &Held, says: Says, rest: Option<Rest>, tokens: Option<u32>) {
        let Some(source) = &mut self.sources[held.source] else { return };
        if let Some(used) = tokens {
            source.tokens.add(now, source.tpm, f64::from(used) - f64::from(held.tokens));
        }
        if let Some(rest) = rest {
            let until = match rest.scope {
                RestScope::Account => &mut self.accounts[source.account.0 as usize],
                RestScope::Source => &mut source.rest,
            };
            *until = (*until).max(now.after(rest.span));
        }
        let concurrency = source.max_concurrency;
        let settings = self.settings.breaker.clone();
        let target = self.target(held.target);
        let current = target.breaker.epoch == held.epoch;
        target.breaker.hear(now, (lease, held.epoch), says, concurrency, &settings);
        if says == Says::Dead && current {
            for (at, other) in self.targets.iter_mut().enumerate() {
                if let Some(other) =
                    other.as_mut().filter(|other| other.source.0 as usize == held.source && at != held.target)
                {
                    other.breaker.force(now, &settings);
                }
            }
        }
    }

    /// Holds the pool's own view against the book.
    pub(super) fn compare(&mut self, now: Time, views: &[TargetView<'_>]) -> Result<(), Wrong> {
        let settings = self.settings.breaker.clone();
        for view in views {
            let Some(target) = self.targets.get(view.id.0 as usize).and_then(Option::as_ref) else { continue };
            let Some(source) = self.sources[target.source.0 as usize].as_ref() else { continue };
            let wrong = |id, what: &str, is: String, book: String| {
                Err((id, format!("target {} has {what} {is}, by the book {book}", view.name)))
            };
            let unheard =
                self.run_out.iter().filter(|(_, held)| held.source == target.source.0 as usize).count() as u32;
            if (view.inflight, view.source_inflight) != (target.inflight, source.inflight) && unheard == 0 {
                let book = format!("{} ({} on its source)", target.inflight, source.inflight);
                return wrong("S4", "in flight", format!("{} ({})", view.inflight, view.source_inflight), book);
            }
            let breaker = &target.breaker;
            let (samples, failures) = breaker.counts(now, &settings);
            let shown = (view.state, view.epoch, view.failures, view.samples, view.window_failures, view.reopen_streak);
            let booked = (breaker.state, breaker.epoch, breaker.failures, samples, failures, breaker.streak);
            if shown != booked {
                return wrong("S6", "breaker", format!("{shown:?}"), format!("{booked:?}"));
            }
            let until = (breaker.state == BreakerState::Open).then_some(breaker.open_until);
            if view.open_until != until {
                return wrong("S6", "breaker open until", format!("{:?}", view.open_until), format!("{until:?}"));
            }
            let rests = source.rest.max(self.accounts[source.account.0 as usize]);
            if view.resting_until != (rests > now).then_some(rests) {
                return wrong("G13", "a rest until", format!("{:?}", view.resting_until), format!("{rests:?}"));
            }
            if (f64::from(view.ewma_ppm) / 1e6 - target.health).abs() > 1e-3 {
                return wrong("G8", "health", format!("{}", view.ewma_ppm), format!("{}", target.health));
            }
            let pace = view.pace_limit_ppm.map(|ppm| ppm as f64 / 1e6);
            let ceiling = if target.ceiling == 0 { f64::INFINITY } else { f64::from(target.ceiling) };
            let booked = target.pace.unwrap_or(f64::INFINITY).min(ceiling);
            if (pace.unwrap_or(f64::INFINITY) - booked).abs() > 1e-3 + booked.min(1e6) * 1e-4 {
                return wrong("G14", "pace", format!("{pace:?}"), format!("{booked}"));
            }
        }
        Ok(())
    }

    /// Whether a lease is held, and by whom.
    pub(super) fn holder(&self, lease: LeaseId) -> Option<u32> {
        self.leases.get(&lease).map(|held| held.call)
    }

    /// A lease of a call that is held still.
    pub(super) fn held_by(&self, call: u32) -> Option<LeaseId> {
        self.leases.iter().find(|(_, held)| held.call == call).map(|(lease, _)| *lease)
    }

    /// Leases held.
    pub(super) fn held(&self) -> usize {
        self.leases.len()
    }

    /// Whether a fresh call could start there now.
    pub(super) fn is_free(&mut self, now: Time, target: TargetId) -> bool {
        self.bar(now, target, &Standing::default(), 0, -GRACE).is_none()
    }

    /// The breaker's state by the book, and whether it lets nobody through now.
    pub(super) fn breaker(&self, now: Time, target: TargetId) -> (BreakerState, bool) {
        let known = self.targets.get(target.0 as usize).and_then(Option::as_ref);
        known.map_or((BreakerState::Closed, false), |target| {
            (target.breaker.state, target.breaker.door(now) == Door::Shut)
        })
    }
}
