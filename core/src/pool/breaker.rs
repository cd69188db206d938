//! The breaker of one target (G1–G7): every transition is in this file.
//!
//! | state | event | what happens |
//! |---|---|---|
//! | closed | success | sample; `failures` 0; the streak falls after a long enough quiet |
//! | closed | failure | sample; `failures` +1; opens when a channel says so |
//! | closed, open, half-open | key is dead | opens by force; an open one stays open at least one more cooldown |
//! | open | admission before `open_until` | refused |
//! | open | admission from `open_until` on | half-open, this is the probe |
//! | half-open | admission, slot free or its TTL over | this is the probe |
//! | half-open | admission, slot taken | refused |
//! | half-open | success of a probe | closed |
//! | half-open | failure of the probe | open, streak +1 |
//! | half-open | anything else from the probe | the slot is free |
//! | any | result of another epoch | nothing |
//!
//! Channels are asked on failures only. The window is not emptied by opening or closing, so with a cooldown shorter
//! than the window the first success after a probe would otherwise open the breaker again.

use crate::id::LeaseId;
use crate::mutants::{Mutant, active};
use crate::time::{Span, Time};

use super::settings::BreakerSettings;
use super::{BreakerChange, BreakerState};
use crate::id::TargetId;

/// What a result says about a target (G3).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// It works.
    Success,
    /// It failed.
    Failure,
    /// The key is bad or its credit is gone: for every target of its source.
    Dead,
    /// Nothing.
    Neutral,
}

/// How often a breaker changed to each state.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Transitions {
    /// To open.
    pub opened: u64,
    /// To half-open.
    pub half_opened: u64,
    /// To closed.
    pub closed: u64,
}

/// Whether a breaker lets an attempt start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Yes.
    Free,
    /// As the one probe.
    Probe,
    /// No; not before this time, if nothing else happens.
    Refused(Time),
}

/// The samples of the last window in two half-window buckets that rotate by the clock (G2): O(1), nothing to sweep.
///
/// A ring of finer buckets would forget more evenly; two tell the same story for a tenth of the fields in a store.
///
/// It remembers the length that it was counted by. Another one, after a reload or from a gateway with another file, is
/// noticed at the next sample: its numbers mean other times then, so what was counted stays as the newer half.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    /// Number of the half window that `a0`, `f0` belong to; `None` before the first sample.
    pub(super) win_id: Option<u64>,
    /// How long a half is, in microseconds.
    half: u64,
    pub(super) a0: u32,
    pub(super) f0: u32,
    pub(super) a1: u32,
    pub(super) f1: u32,
}

impl Window {
    /// The window as it stands at `now`.
    pub(super) fn at(mut self, now: Time, length: Span) -> Window {
        let half = (length.0 / 2).max(1);
        let id = now.0 / half;
        match self.win_id {
            None => {}
            Some(_) if self.half != half => {
                let (a0, f0) = self.counts();
                self = Window { a0, f0, ..Window::default() };
            }
            Some(held) if held == id => {}
            Some(held) if held.checked_add(1) == Some(id) => {
                (self.a1, self.f1, self.a0, self.f0) = (self.a0, self.f0, 0, 0);
            }
            Some(_) if active(Mutant::WindowNeverEmpties) => {}
            Some(_) => self = Window::default(),
        }
        (self.win_id, self.half) = (Some(id), half);
        self
    }

    /// Samples and failures among them.
    pub(super) fn counts(&self) -> (u32, u32) {
        (self.a0.saturating_add(self.a1), self.f0.saturating_add(self.f1))
    }

    fn add(&mut self, now: Time, length: Span, failed: bool) {
        *self = self.at(now, length);
        self.a0 = self.a0.saturating_add(1);
        self.f0 = self.f0.saturating_add(u32::from(failed));
    }
}

/// The fields of G6. They change here and nowhere else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Breaker {
    pub(super) state: BreakerState,
    /// +1 on every opening. A result carries the epoch that it started under.
    pub(super) epoch: u64,
    pub(super) open_until: Time,
    /// Who probes, and until when the slot is theirs.
    pub(super) probe: Option<(LeaseId, Time)>,
    /// In a row: +1 on a counted failure, 0 on a success, the threshold when the rate opens.
    pub(super) failures: u32,
    pub(super) window: Window,
    /// Openings by rate or by a failed probe since the last long quiet: the exponent of the open time.
    pub(super) reopen_streak: u32,
    /// Set when a probe closes, cleared on opening.
    pub(super) closed_since: Option<Time>,
    /// How long the last opening was: what "a long quiet" is measured by.
    pub(super) last_cooldown: Span,
    pub(super) transitions: Transitions,
}

/// What `Breaker::record` needs to know besides the breaker.
#[derive(Copy, Clone, Debug)]
pub(super) struct Rules<'a> {
    pub(super) settings: &'a BreakerSettings,
    /// The source's own `max_concurrency`; 0 = none (G1).
    pub(super) concurrency: u32,
}

impl Rules<'_> {
    /// Failures in a row that open. By the source's own concurrency: the global one once raised a threshold to 200 (G19).
    fn threshold(&self) -> u32 {
        self.settings.fail_threshold.max(self.concurrency.saturating_mul(2)).max(1)
    }

    /// Open time at a streak (G5): the cooldown doubled for every reopening after the first.
    fn open_time(&self, streak: u32) -> Span {
        let cap = self.settings.max_cooldown.max(self.settings.cooldown);
        let streak = if active(Mutant::CooldownNotDoubled) { 0 } else { streak };
        let doubled = 1u64.checked_shl(streak.saturating_sub(1)).unwrap_or(u64::MAX);
        self.settings.cooldown.scaled(doubled, 1).min(cap)
    }

    /// Whether the window convicts, whether it acquits (G1, G4). Neither without `min_calls` samples.
    fn verdict(&self, window: &Window) -> (bool, bool) {
        let (samples, failures) = window.counts();
        if samples < self.settings.min_calls {
            return (false, active(Mutant::SuppressAlways));
        }
        let bad = u64::from(failures) * 1_000_000 >= u64::from(self.settings.fail_rate_ppm) * u64::from(samples);
        if active(Mutant::SuppressNever) || !self.settings.suppress {
            return (bad, false);
        }
        (bad, !bad || active(Mutant::SuppressAlways))
    }
}

impl Breaker {
    /// Whether an attempt may start; changes nothing.
    pub(super) fn admission(&self, now: Time) -> Admission {
        match (self.state, self.probe) {
            (BreakerState::Closed, _) => Admission::Free,
            (BreakerState::HalfOpen, Some((_, until))) if until > now => Admission::Refused(until),
            (BreakerState::HalfOpen, _) => Admission::Probe,
            (BreakerState::Open, _) if self.open_until > now => Admission::Refused(self.open_until),
            (BreakerState::Open, _) => Admission::Probe,
        }
    }

    /// Makes an admitted attempt the probe, in the place of one that was lost.
    pub(super) fn probe(&mut self, target: TargetId, lease: LeaseId, until: Time) -> Option<BreakerChange> {
        self.probe = (!active(Mutant::ProbeWithoutLease)).then_some((lease, until));
        self.become_state(target, BreakerState::HalfOpen)
    }

    /// A probe that never started, or whose lease expired, gives its slot back at once.
    pub(super) fn unused(&mut self, now: Time, lease: LeaseId) {
        if self.probes(lease) {
            self.probe = None;
            self.open_until = now;
        }
    }

    /// Hears how an attempt ended that started under `epoch`.
    pub(super) fn record(
        &mut self,
        now: Time,
        target: TargetId,
        (lease, epoch): (LeaseId, u64),
        evidence: Evidence,
        rules: Rules<'_>,
    ) -> Option<BreakerChange> {
        if epoch != self.epoch && !active(Mutant::EpochIgnored) {
            return None;
        }
        match self.state {
            BreakerState::Closed => self.record_closed(now, target, evidence, rules),
            BreakerState::HalfOpen => self.record_half_open(now, target, lease, evidence, rules),
            // No attempt starts between an opening and its probe.
            BreakerState::Open => None,
        }
    }

    fn record_closed(
        &mut self,
        now: Time,
        target: TargetId,
        evidence: Evidence,
        rules: Rules<'_>,
    ) -> Option<BreakerChange> {
        match evidence {
            Evidence::Neutral => None,
            Evidence::Dead => self.force_open(now, target, rules),
            Evidence::Success => {
                self.window.add(now, rules.settings.window, false);
                self.failures = 0;
                let quiet = self.last_cooldown.scaled(2, 1);
                if self.closed_since.is_some_and(|since| now.since(since) >= quiet) {
                    self.reopen_streak = 0;
                }
                None
            }
            Evidence::Failure => {
                self.window.add(now, rules.settings.window, true);
                self.failures = self.failures.saturating_add(1);
                let (bad, good) = rules.verdict(&self.window);
                if bad {
                    self.failures = rules.threshold();
                    self.reopen(now, target, rules)
                } else if self.failures >= rules.threshold() && !good {
                    self.open(now, target, rules.open_time(0))
                } else {
                    None
                }
            }
        }
    }

    fn record_half_open(
        &mut self,
        now: Time,
        target: TargetId,
        lease: LeaseId,
        evidence: Evidence,
        rules: Rules<'_>,
    ) -> Option<BreakerChange> {
        match evidence {
            // Of a probe that lost its slot too: a stream longer than the TTL is a recovery all the same, and a target
            // that has only such streams would else never close.
            Evidence::Success => {
                self.window.add(now, rules.settings.window, false);
                self.failures = 0;
                self.probe = None;
                self.closed_since = Some(now);
                self.become_state(target, BreakerState::Closed)
            }
            // A probe that lost its slot was given up for lost already: its failure is no news.
            _ if !self.probes(lease) => None,
            Evidence::Failure | Evidence::Dead => {
                self.window.add(now, rules.settings.window, true);
                self.failures = self.failures.saturating_add(1);
                self.reopen(now, target, rules)
            }
            Evidence::Neutral => {
                self.probe = None;
                None
            }
        }
    }

    /// The key is dead: opens whatever the state. The streak stays, nobody probed in vain.
    pub(super) fn force_open(&mut self, now: Time, target: TargetId, rules: Rules<'_>) -> Option<BreakerChange> {
        if self.state == BreakerState::Open {
            self.open_until = self.open_until.max(now.after(rules.open_time(0)));
            return None;
        }
        self.open(now, target, rules.open_time(0))
    }

    /// Takes over how it stands at a store that several gateways share: what all of them saw outweighs what this one did.
    pub(super) fn adopt(&mut self, now: Time, target: TargetId, state: BreakerState, open_until: Time) {
        match state {
            BreakerState::Open if self.state == BreakerState::Open => self.open_until = open_until,
            BreakerState::Open => {
                self.open(now, target, open_until.since(now));
            }
            BreakerState::HalfOpen => {
                self.become_state(target, BreakerState::HalfOpen);
            }
            BreakerState::Closed if self.state != BreakerState::Closed => {
                self.failures = 0;
                self.probe = None;
                self.closed_since = Some(now);
                self.become_state(target, BreakerState::Closed);
            }
            BreakerState::Closed => {}
        }
    }

    /// Counts a result that a store decides on: should the store go away, the channels here do not start from nothing.
    pub(super) fn observe(&mut self, now: Time, evidence: Evidence, window: Span) {
        if self.state == BreakerState::Closed && matches!(evidence, Evidence::Success | Evidence::Failure) {
            let failed = evidence == Evidence::Failure;
            self.window.add(now, window, failed);
            self.failures = if failed { self.failures.saturating_add(1) } else { 0 };
        }
    }

    fn probes(&self, lease: LeaseId) -> bool {
        self.probe.is_some_and(|(held, _)| held == lease)
    }

    fn reopen(&mut self, now: Time, target: TargetId, rules: Rules<'_>) -> Option<BreakerChange> {
        self.reopen_streak = self.reopen_streak.saturating_add(1);
        self.open(now, target, rules.open_time(self.reopen_streak))
    }

    fn open(&mut self, now: Time, target: TargetId, length: Span) -> Option<BreakerChange> {
        self.epoch += 1;
        self.open_until = now.after(length);
        self.last_cooldown = length;
        self.probe = None;
        self.closed_since = None;
        self.become_state(target, BreakerState::Open)
    }

    fn become_state(&mut self, target: TargetId, to: BreakerState) -> Option<BreakerChange> {
        let from = core::mem::replace(&mut self.state, to);
        if from == to {
            return None;
        }
        match to {
            BreakerState::Open => self.transitions.opened += 1,
            BreakerState::HalfOpen => self.transitions.half_opened += 1,
            BreakerState::Closed => self.transitions.closed += 1,
        }
        Some(BreakerChange { target, from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    const TARGET: TargetId = TargetId(0);
    const HOLDER: LeaseId = LeaseId(1);
    const OTHER: LeaseId = LeaseId(2);

    fn settings() -> BreakerSettings {
        BreakerSettings {
            fail_threshold: 3,
            min_calls: 6,
            window: Span(100),
            cooldown: Span(100),
            max_cooldown: Span(350),
            probe_ttl: Span(40),
            ..BreakerSettings::default()
        }
    }

    fn rules(settings: &BreakerSettings) -> Rules<'_> {
        Rules { settings, concurrency: 0 }
    }

    fn record(breaker: &mut Breaker, now: u64, lease: LeaseId, evidence: Evidence) -> Option<BreakerChange> {
        let epoch = breaker.epoch;
        breaker.record(Time(now), TARGET, (lease, epoch), evidence, rules(&settings()))
    }

    fn fed(results: &str) -> Breaker {
        let mut breaker = Breaker::default();
        for (at, result) in results.chars().enumerate() {
            let evidence = if result == 's' { Evidence::Success } else { Evidence::Failure };
            record(&mut breaker, at as u64, HOLDER, evidence);
        }
        breaker
    }

    fn half_open(probe: bool) -> Breaker {
        let mut breaker = fed("fff");
        breaker.probe(TARGET, HOLDER, Time(1040));
        if !probe {
            record(&mut breaker, 1000, HOLDER, Evidence::Neutral);
        }
        breaker
    }

    fn fields(breaker: &Breaker) -> String {
        let (samples, failed) = breaker.window.counts();
        format!(
            "{:<9} epoch {} until {:<4} probe {:<7} failures {} window {failed}/{samples} streak {} since {}",
            breaker.state.as_str(),
            breaker.epoch,
            breaker.open_until.0,
            breaker.probe.map_or(String::from("-"), |(lease, until)| format!("#{lease}@{}", until.0)),
            breaker.failures,
            breaker.reopen_streak,
            breaker.closed_since.map_or(String::from("-"), |since| format!("{}", since.0)),
        )
    }

    /// Every state × every event, at time 1000 unless the state is younger.
    #[test]
    fn the_transition_table() {
        let reopened = || {
            let mut breaker = half_open(true);
            record(&mut breaker, 1000, HOLDER, Evidence::Failure);
            breaker.probe(TARGET, HOLDER, Time(1200));
            record(&mut breaker, 1150, HOLDER, Evidence::Success);
            breaker
        };
        let states: [(&str, u64, Breaker); 11] = [
            ("closed, new", 50, fed("")),
            ("closed, one short of the threshold", 10, fed("sff")),
            ("closed, one short of the rate", 10, fed("sfsff")),
            ("closed, healthy window, in a streak", 10, fed("ssssssff")),
            ("closed, reopened once, young", 1300, reopened()),
            ("closed, reopened once, quiet for long", 1350, reopened()),
            ("open", 50, fed("fff")),
            ("open, time over", 102, fed("fff")),
            ("half-open, probing", 1030, half_open(true)),
            ("half-open, probe lost", 1040, half_open(true)),
            ("half-open, free", 1040, half_open(false)),
        ];
        type Event = fn(&mut Breaker, u64) -> String;
        let events: [(&str, Event); 10] = [
            ("admission", |breaker, now| match breaker.admission(Time(now)) {
                Admission::Probe => {
                    breaker.probe(TARGET, OTHER, Time(now + 40));
                    String::from("as the probe")
                }
                Admission::Free => String::from("free"),
                Admission::Refused(until) => format!("not before {}", until.0),
            }),
            ("success", |breaker, now| change(record(breaker, now, HOLDER, Evidence::Success))),
            ("failure", |breaker, now| change(record(breaker, now, HOLDER, Evidence::Failure))),
            ("dead", |breaker, now| change(record(breaker, now, HOLDER, Evidence::Dead))),
            ("neutral", |breaker, now| change(record(breaker, now, HOLDER, Evidence::Neutral))),
            ("success of another", |breaker, now| change(record(breaker, now, OTHER, Evidence::Success))),
            ("failure of another", |breaker, now| change(record(breaker, now, OTHER, Evidence::Failure))),
            ("failure of another epoch", |breaker, now| {
                let old = (HOLDER, breaker.epoch.wrapping_sub(1));
                change(breaker.record(Time(now), TARGET, old, Evidence::Failure, rules(&settings())))
            }),
            ("grant unused", |breaker, now| {
                breaker.unused(Time(now), HOLDER);
                String::from("-")
            }),
            ("key dead elsewhere", |breaker, now| change(breaker.force_open(Time(now), TARGET, rules(&settings())))),
        ];
        let mut table = String::new();
        for (name, now, state) in states {
            table += &format!("{name} (at {now})\n  {:<26} {}\n", "", fields(&state));
            for (event, happen) in &events {
                let mut breaker = state.clone();
                let said = happen(&mut breaker, now);
                table += &format!(
                    "  {event:<26} {}{said}\n",
                    match breaker == state {
                        true => String::from("unchanged | "),
                        false => format!("{} | ", fields(&breaker)),
                    }
                );
            }
        }
        insta::assert_snapshot!(table);
    }

    fn change(change: Option<BreakerChange>) -> String {
        change.map_or(String::from("-"), |change| format!("{} → {}", change.from.as_str(), change.to.as_str()))
    }

    #[test]
    fn the_window_rotates_by_halves_and_forgets_what_is_older() {
        let mut window = Window::default();
        window.add(Time(10), Span(100), true);
        assert_eq!(window.at(Time(49), Span(100)).counts(), (1, 1));
        window.add(Time(60), Span(100), false);
        assert_eq!(window.at(Time(99), Span(100)).counts(), (2, 1));
        assert_eq!(window.at(Time(100), Span(100)).counts(), (1, 0), "the older half is gone");
        assert_eq!(window.at(Time(150), Span(100)).counts(), (0, 0));
        let none = window.at(Time(10_000), Span::ZERO);
        assert_eq!(none.at(Time(10_002), Span::ZERO).counts(), (0, 0), "no length, no division by it");
    }

    #[test]
    fn a_resized_window_keeps_its_samples() {
        let window = fed("ssf").window.at(Time(123_456), Span(7));
        assert_eq!(window.counts(), (3, 1));
        assert_eq!(window.at(Time(123_466), Span(7)).counts(), (0, 0));
    }

    /// G4, and the breaker that was without it (G19).
    #[test]
    fn a_streak_opens_a_healthy_target_only_where_the_rate_does_not_suppress_it() {
        let ends = [true, false].map(|suppress| {
            let settings = BreakerSettings { suppress, ..settings() };
            let mut breaker = fed("ssssssss");
            for now in 10..13 {
                let lease = (HOLDER, breaker.epoch);
                breaker.record(Time(now), TARGET, lease, Evidence::Failure, rules(&settings));
            }
            (breaker.state, breaker.reopen_streak)
        });
        assert_eq!(ends, [(BreakerState::Closed, 0), (BreakerState::Open, 0)]);
    }

    #[test]
    fn numbers_at_their_ends_neither_wrap_nor_panic() {
        let extreme = BreakerSettings { cooldown: Span::MAX, ..settings() };
        let rules = Rules { settings: &extreme, concurrency: u32::MAX };
        assert_eq!((rules.threshold(), rules.open_time(200)), (u32::MAX, Span::MAX));
        let mut breaker = Breaker { failures: u32::MAX, reopen_streak: u32::MAX, ..half_open(true) };
        breaker.record(Time::NEVER, TARGET, (HOLDER, breaker.epoch), Evidence::Failure, rules);
        assert_eq!((breaker.state, breaker.open_until), (BreakerState::Open, Time::NEVER));
    }
}
