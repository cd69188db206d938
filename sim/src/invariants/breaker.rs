//! The breaker by the book: G1–G6 written a second time, from the contract's words, with every sample kept.

use std::collections::VecDeque;

use surefoot_core::id::LeaseId;
use surefoot_core::pool::{BreakerSettings, BreakerState};
use surefoot_core::time::{Span, Time};

/// One target's breaker as it must be.
#[derive(Clone, Debug)]
pub(super) struct Breaker {
    pub(super) state: BreakerState,
    pub(super) epoch: u64,
    pub(super) open_until: Time,
    pub(super) probe: Option<(LeaseId, Time)>,
    pub(super) failures: u32,
    pub(super) streak: u32,
    /// Half windows, oldest first: number, samples, failures. `None` = waits for its number after a change of length.
    halves: VecDeque<(Option<u64>, u32, u32)>,
    closed_since: Option<Time>,
    last_cooldown: Span,
}

/// What a result says.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Says {
    Good,
    Bad,
    Dead,
    Nothing,
}

/// What may start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Door {
    Open,
    ForProbe,
    Shut,
}

impl Default for Breaker {
    fn default() -> Breaker {
        Breaker {
            state: BreakerState::Closed,
            epoch: 0,
            open_until: Time::ZERO,
            probe: None,
            failures: 0,
            streak: 0,
            halves: VecDeque::new(),
            closed_since: None,
            last_cooldown: Span::ZERO,
        }
    }
}

fn half(now: Time, settings: &BreakerSettings) -> u64 {
    now.0 / (settings.window.0 / 2).max(1)
}

impl Breaker {
    pub(super) fn door(&self, now: Time) -> Door {
        match self.state {
            BreakerState::Closed => Door::Open,
            BreakerState::Open if now < self.open_until => Door::Shut,
            BreakerState::Open => Door::ForProbe,
            BreakerState::HalfOpen => match self.probe {
                Some((_, until)) if now < until => Door::Shut,
                _ => Door::ForProbe,
            },
        }
    }

    /// Somebody starts; whether as the probe, and the state it brings.
    pub(super) fn start(&mut self, now: Time, lease: LeaseId, ttl: Span, settings: &BreakerSettings) -> bool {
        if self.door(now) == Door::Open {
            return false;
        }
        self.probe = Some((lease, now.after(ttl.min(settings.probe_ttl))));
        self.state = BreakerState::HalfOpen;
        true
    }

    /// A place was given back unused, or its lease ran out.
    pub(super) fn unused(&mut self, now: Time, lease: LeaseId) {
        if self.probe.is_some_and(|(probe, _)| probe == lease) {
            self.probe = None;
            self.open_until = now;
        }
    }

    /// Samples and failures in the window that ends now.
    pub(super) fn counts(&self, now: Time, settings: &BreakerSettings) -> (u32, u32) {
        let number = half(now, settings);
        let fresh = self.halves.iter().filter(|(of, ..)| of.is_none_or(|of| of == number || of + 1 == number));
        fresh.fold((0, 0), |(all, bad), (_, samples, failures)| (all + samples, bad + failures))
    }

    fn sample(&mut self, now: Time, failed: bool, settings: &BreakerSettings) {
        let number = half(now, settings);
        for waiting in self.halves.iter_mut().filter(|(of, ..)| of.is_none()) {
            waiting.0 = Some(number);
        }
        match self.halves.iter_mut().find(|(of, ..)| *of == Some(number)) {
            Some((_, samples, failures)) => {
                *samples += 1;
                *failures += u32::from(failed);
            }
            None => self.halves.push_back((Some(number), 1, u32::from(failed))),
        }
        self.halves.retain(|(of, ..)| of.is_none_or(|of| of + 1 >= number));
    }

    /// The window's length changed: what was counted last counts on, whenever it was.
    pub(super) fn resized(&mut self) {
        let newest = self.halves.back().and_then(|(of, ..)| *of);
        self.halves.retain(|(of, ..)| newest.is_none_or(|newest| of.is_none_or(|of| of + 1 >= newest)));
        let (mut samples, mut failures) = (0, 0);
        for (_, all, bad) in self.halves.drain(..) {
            (samples, failures) = (samples + all, failures + bad);
        }
        if samples > 0 {
            self.halves.push_back((None, samples, failures));
        }
    }

    fn open(&mut self, now: Time, length: Span) {
        self.state = BreakerState::Open;
        self.epoch += 1;
        self.open_until = now.after(length);
        self.last_cooldown = length;
        self.probe = None;
        self.closed_since = None;
    }

    fn reopen(&mut self, now: Time, settings: &BreakerSettings) {
        self.streak += 1;
        let cap = settings.max_cooldown.max(settings.cooldown);
        let mut length = settings.cooldown;
        for _ in 1..self.streak {
            length = Span(length.0.saturating_mul(2)).min(cap);
        }
        self.open(now, length.min(cap));
    }

    /// The key is dead.
    pub(super) fn force(&mut self, now: Time, settings: &BreakerSettings) {
        let length = settings.cooldown.min(settings.max_cooldown.max(settings.cooldown));
        if self.state == BreakerState::Open {
            self.open_until = self.open_until.max(now.after(length));
        } else {
            self.open(now, length);
        }
    }

    /// A result of an attempt that started under `epoch`; `concurrency` is its source's own.
    pub(super) fn hear(
        &mut self,
        now: Time,
        (lease, epoch): (LeaseId, u64),
        says: Says,
        concurrency: u32,
        settings: &BreakerSettings,
    ) {
        if epoch != self.epoch || self.state == BreakerState::Open {
            return;
        }
        let threshold = settings.fail_threshold.max(2 * concurrency).max(1);
        if self.state == BreakerState::HalfOpen {
            let own = self.probe.is_some_and(|(probe, _)| probe == lease);
            match says {
                Says::Good => {
                    self.sample(now, false, settings);
                    self.failures = 0;
                    self.probe = None;
                    self.state = BreakerState::Closed;
                    self.closed_since = Some(now);
                }
                Says::Bad | Says::Dead if own => {
                    self.sample(now, true, settings);
                    self.failures += 1;
                    self.reopen(now, settings);
                }
                Says::Nothing if own => self.probe = None,
                _ => {}
            }
            return;
        }
        match says {
            Says::Nothing => {}
            Says::Dead => self.force(now, settings),
            Says::Good => {
                self.sample(now, false, settings);
                self.failures = 0;
                if self.closed_since.is_some_and(|since| now.since(since).0 >= 2 * self.last_cooldown.0) {
                    self.streak = 0;
                }
            }
            Says::Bad => {
                self.sample(now, true, settings);
                self.failures += 1;
                let (samples, failures) = self.counts(now, settings);
                let enough = samples >= settings.min_calls;
                let bad = u64::from(failures) * 1_000_000 >= u64::from(samples) * u64::from(settings.fail_rate_ppm);
                if enough && bad {
                    self.failures = threshold;
                    self.reopen(now, settings);
                } else if self.failures >= threshold && !enough {
                    let cap = settings.max_cooldown.max(settings.cooldown);
                    self.open(now, settings.cooldown.min(cap));
                }
            }
        }
    }
}
