//! The pool's knobs: the `[breaker]`, `[health]` and `[pace]` sections of the configuration.

use crate::time::Span;

/// Every knob of the pool; the defaults are the configuration's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// G1–G7.
    pub breaker: BreakerSettings,
    /// G8–G10.
    pub health: HealthSettings,
    /// G14.
    pub pace: PaceSettings,
    /// Calls that may stand in line at once; who comes later is refused without a place in it. At least 1.
    pub max_queue: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            breaker: BreakerSettings::default(),
            health: HealthSettings::default(),
            pace: PaceSettings::default(),
            max_queue: 65_536,
        }
    }
}

/// The breaker's knobs (G1–G6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Failures in a row that open; a source's own concurrency may raise it (G1).
    pub fail_threshold: u32,
    /// Samples in the window without which the rate says nothing.
    pub min_calls: u32,
    /// Failure rate that opens, in millionths.
    pub fail_rate_ppm: u32,
    /// Length of the window (G2).
    pub window: Span,
    /// How long the first opening lasts (G5).
    pub cooldown: Span,
    /// The longest opening; a longer `cooldown` raises it.
    pub max_cooldown: Span,
    /// After so long a probe that was not heard of gives its place up (G6).
    pub probe_ttl: Span,
    /// A 429 counts as a failure (the other table of G3).
    pub count_rate_limited: bool,
    /// Healthy evidence suppresses the consecutive channel (G4). No configuration turns it off: `false` is for simulating
    /// the breaker that the rule was found wanting in (G19).
    pub suppress: bool,
}

impl Default for BreakerSettings {
    fn default() -> BreakerSettings {
        BreakerSettings {
            fail_threshold: 5,
            min_calls: 10,
            fail_rate_ppm: 600_000,
            window: Span::from_secs(60),
            cooldown: Span::from_secs(60),
            max_cooldown: Span::from_secs(300),
            probe_ttl: Span::from_secs(60),
            count_rate_limited: false,
            suppress: true,
        }
    }
}

/// Health's knobs (G8–G10), in millionths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// Weight of the newest outcome.
    pub alpha_ppm: u32,
    /// Health that a score never falls below: the exploration of G9.
    pub floor_ppm: u32,
    /// Share of a source's health that makes another a credible one (G10).
    pub credible_ppm: u32,
}

impl Default for HealthSettings {
    fn default() -> HealthSettings {
        HealthSettings { alpha_ppm: 200_000, floor_ppm: 50_000, credible_ppm: 500_000 }
    }
}

/// The pace's knobs (G14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaceSettings {
    /// Attempts in flight that a new target may have; 0 = as many as its ceiling allows, until the first cut.
    pub initial: u32,
    /// What a cut leaves of the limit, in millionths.
    pub cut_ppm: u32,
    /// The limit never falls below this; 0 counts as 1.
    pub min: u32,
    /// The server's own `max_concurrency`, a ceiling for every target; 0 = none.
    pub ceiling: u32,
}

impl Default for PaceSettings {
    fn default() -> PaceSettings {
        PaceSettings { initial: 0, cut_ppm: 500_000, min: 1, ceiling: 0 }
    }
}
