//! Targets and sources by name, and what the status page sees of them.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::id::{AccountId, SourceId, TargetId};
use crate::time::Time;

use super::BreakerState;
use super::breaker::{Breaker, Transitions};
use super::engine::{Pool, Source, Target};
use super::gate::{GateSource, GateTarget};
use super::health::Health;
use super::line::Sources;
use super::pace::Pace;
use super::settings::Settings;

/// A target as the configuration names it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TargetSpec<'a> {
    /// `provider/endpoint/key/model`; unique.
    pub name: &'a str,
    /// Its provider.
    pub provider: &'a str,
    /// The model's name there.
    pub model: &'a str,
    /// Where it lives.
    pub source: SourceSpec<'a>,
}

/// A source as the configuration names it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SourceSpec<'a> {
    /// `provider/endpoint/key`; unique.
    pub name: &'a str,
    /// Whose quota it uses (G13).
    pub account: &'a str,
    /// Attempts at once; 0 = no limit.
    pub max_concurrency: u32,
    /// Requests a minute; 0 = no limit.
    pub rpm: u32,
    /// Tokens a minute; 0 = no limit.
    pub tpm: u32,
}

/// Names and the numbers that they stand for. Numbers are never given twice.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    targets: BTreeMap<Arc<str>, TargetId>,
    sources: BTreeMap<Arc<str>, SourceId>,
    accounts: BTreeMap<Box<str>, AccountId>,
    of_target: Vec<TargetNames>,
    of_source: Vec<Arc<str>>,
    of_account: Vec<Box<str>>,
}

impl Names {
    /// A target's name; empty for a number that was never given.
    pub(super) fn target(&self, id: TargetId) -> &str {
        self.of_target.get(id.0 as usize).map_or("", |names| &names.name)
    }

    pub(super) fn source(&self, id: SourceId) -> &str {
        self.of_source.get(id.0 as usize).map_or("", |name| name)
    }

    pub(super) fn account(&self, id: AccountId) -> &str {
        self.of_account.get(id.0 as usize).map_or("", |name| name)
    }
}

#[derive(Clone, Debug)]
struct TargetNames {
    name: Arc<str>,
    provider: Box<str>,
    model: Box<str>,
}

/// A target at one moment, for `/status` and `/metrics`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TargetView<'a> {
    /// Its number.
    pub id: TargetId,
    /// `provider/endpoint/key/model`.
    pub name: &'a str,
    /// Its provider.
    pub provider: &'a str,
    /// The model's name there.
    pub model: &'a str,
    /// Its source.
    pub source: SourceId,
    /// `provider/endpoint/key`.
    pub source_name: &'a str,
    /// Its account.
    pub account: AccountId,
    /// The breaker's state; an open one whose time is over stays open until somebody asks.
    pub state: BreakerState,
    /// How often the breaker opened, as results are told apart by.
    pub epoch: u64,
    /// When an open breaker lets a probe through.
    pub open_until: Option<Time>,
    /// A probe is under way.
    pub probing: bool,
    /// Failures in a row.
    pub failures: u32,
    /// Attempts counted in the window.
    pub samples: u32,
    /// Failures among them.
    pub window_failures: u32,
    /// The exponent of the next open time.
    pub reopen_streak: u32,
    /// The breaker's changes so far.
    pub transitions: Transitions,
    /// Health in millionths.
    pub ewma_ppm: u32,
    /// Attempts that may be in flight, in millionths; `None` = no limit.
    pub pace_limit_ppm: Option<u64>,
    /// Attempts in flight on the target.
    pub inflight: u32,
    /// Attempts in flight on its source.
    pub source_inflight: u32,
    /// When the pushback on the source or its account ends.
    pub resting_until: Option<Time>,
    /// The source's limits; 0 = none.
    pub max_concurrency: u32,
    /// Requests a minute; 0 = no limit.
    pub rpm: u32,
    /// Tokens a minute; 0 = no limit.
    pub tpm: u32,
}

impl Pool {
    /// Takes new knobs over. What was learnt stays; a pace in force is not set back to `initial`.
    pub fn configure(&mut self, settings: Settings) {
        self.gate.settings = settings.breaker.clone();
        self.settings = settings;
        for target in &mut self.targets {
            let own = self.gate.sources[target.source.0 as usize].max_concurrency;
            target.ceiling = ceiling(self.settings.pace.ceiling, own);
        }
        self.freed = Sources::ALL;
    }

    /// Makes a target known, or takes its source's present limits over. The same name always gives the same numbers.
    pub fn register(&mut self, spec: &TargetSpec<'_>) -> (TargetId, SourceId) {
        let account = self.account(spec.source.account);
        let source = self.source(&spec.source, account);
        let limits = &spec.source;
        let gate = &mut self.gate.sources[source.0 as usize];
        gate.account = account;
        gate.limit(limits.max_concurrency, limits.rpm, limits.tpm);
        let known = self.names.targets.get(spec.name).copied();
        let id = known.unwrap_or_else(|| self.new_target(spec, source));
        self.targets[id.0 as usize].kept = true;
        self.targets[id.0 as usize].source = source;
        self.gate.targets[id.0 as usize].source = source;
        for target in self.targets.iter_mut().filter(|target| target.source == source) {
            target.ceiling = ceiling(self.settings.pace.ceiling, limits.max_concurrency);
        }
        self.freed = Sources::ALL;
        (id, source)
    }

    /// After a reload: all other targets leave the views. They go on working for calls that are under way, and their
    /// numbers and what was learnt wait for their return.
    pub fn keep_only(&mut self, kept: &[TargetId]) {
        for target in &mut self.targets {
            target.kept = false;
        }
        for id in kept {
            if let Some(target) = self.targets.get_mut(id.0 as usize) {
                target.kept = true;
            }
        }
    }

    /// Every target of the present configuration as it stands at `now`.
    pub fn views(&self, now: Time) -> impl Iterator<Item = TargetView<'_>> {
        let kept = self.targets.iter().enumerate().filter(|(_, target)| target.kept);
        kept.map(move |(id, target)| self.view(now.max(self.now), id, target))
    }

    /// One target as it stands at `now`, in the present configuration or not; `None` for an unknown number.
    pub fn target(&self, now: Time, id: TargetId) -> Option<TargetView<'_>> {
        let target = self.targets.get(id.0 as usize)?;
        Some(self.view(now.max(self.now), id.0 as usize, target))
    }

    /// When anything at all last succeeded (G16).
    pub fn last_progress(&self) -> Time {
        self.progress.last()
    }

    /// Calls that stand in line.
    pub fn waiting(&self) -> usize {
        self.line.len()
    }

    fn view<'a>(&'a self, now: Time, id: usize, target: &'a Target) -> TargetView<'a> {
        let names = &self.names.of_target[id];
        let breaker = &self.gate.targets[id].breaker;
        let source = &self.gate.sources[target.source.0 as usize];
        let (samples, window_failures) = breaker.window.at(now, self.settings.breaker.window).counts();
        let rests = source.rest_until.max(self.gate.accounts[source.account.0 as usize]);
        TargetView {
            id: TargetId(id as u32),
            name: &names.name,
            provider: &names.provider,
            model: &names.model,
            source: target.source,
            source_name: &self.names.of_source[target.source.0 as usize],
            account: source.account,
            state: breaker.state,
            epoch: breaker.epoch,
            open_until: (breaker.state == BreakerState::Open).then_some(breaker.open_until),
            probing: breaker.probe.is_some_and(|(_, until)| until > now),
            failures: breaker.failures,
            samples,
            window_failures,
            reopen_streak: breaker.reopen_streak,
            transitions: breaker.transitions,
            ewma_ppm: target.health.ppm(),
            pace_limit_ppm: target.pace.limit(target.ceiling),
            inflight: target.inflight,
            source_inflight: source.inflight,
            resting_until: (rests > now).then_some(rests),
            max_concurrency: source.max_concurrency,
            rpm: source.rpm,
            tpm: source.tpm,
        }
    }

    fn account(&mut self, name: &str) -> AccountId {
        if let Some(known) = self.names.accounts.get(name) {
            return *known;
        }
        let id = AccountId(self.gate.accounts.len() as u32);
        self.gate.accounts.push(Time::ZERO);
        self.names.accounts.insert(name.into(), id);
        self.names.of_account.push(name.into());
        id
    }

    fn source(&mut self, spec: &SourceSpec<'_>, account: AccountId) -> SourceId {
        if let Some(known) = self.names.sources.get(spec.name) {
            return *known;
        }
        let id = SourceId(self.sources.len() as u32);
        let name: Arc<str> = spec.name.into();
        self.sources.push(Source { token_line: u64::MAX });
        self.gate.sources.push(GateSource::new(account));
        self.names.of_source.push(name.clone());
        self.names.sources.insert(name, id);
        id
    }

    fn new_target(&mut self, spec: &TargetSpec<'_>, source: SourceId) -> TargetId {
        let id = TargetId(self.targets.len() as u32);
        let name: Arc<str> = spec.name.into();
        self.targets.push(Target {
            source,
            kept: true,
            health: Health::NEW,
            pace: Pace::new(&self.settings.pace),
            inflight: 0,
            asking: 0,
            ceiling: 0,
        });
        self.gate.targets.push(GateTarget { source, breaker: Breaker::default() });
        self.names.targets.insert(name.clone(), id);
        self.names.of_target.push(TargetNames { name, provider: spec.provider.into(), model: spec.model.into() });
        id
    }
}

/// The lower of two limits of which 0 means none.
fn ceiling(server: u32, source: u32) -> u32 {
    match (server, source) {
        (0, one) | (one, 0) => one,
        (server, source) => server.min(source),
    }
}
