//! The configuration of a drawn run: every knob somewhere in its range, the usual values most often.

use serde_json::{Value, json};
use surefoot_core::time::Span;

use super::draw::{Offer, Provider};
use crate::rng::{Concern, Stream};
use crate::world::trouble::REFUSED_WORDS;

/// What a run's configuration says besides its providers.
#[derive(Clone, Debug)]
pub(super) struct Knobs {
    /// There is a success rule against [`REFUSED_WORDS`].
    pub(super) refuses_words: bool,
    pub(super) max_cooldown: Span,
    pub(super) sections: Value,
    pub(super) model_policy: Value,
}

/// The limits of a provider's keys, and its own budgets.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    max_concurrency: u64,
    rpm: u64,
    tpm: u64,
    extra: Value,
}

impl Limits {
    pub(super) fn draw(seed: u64, provider: u64, version: u64, none: bool) -> Limits {
        let mut stream = Stream::new(seed, Concern::Config, 10 + version, provider);
        if none {
            return Limits { max_concurrency: 0, rpm: 0, tpm: 0, extra: json!({}) };
        }
        let mut extra = json!({});
        if stream.chance(150_000) {
            extra["max_transfer_count"] = stream.range(1, 2).into();
        }
        if stream.chance(100_000) {
            extra["max_transfer_timeout_seconds"] = stream.pick(&[0.3, 2.0, 10.0]).into();
        }
        if stream.chance(80_000) {
            extra["stop_on_transport_errors"] = true.into();
        }
        if stream.chance(150_000) {
            extra["continue_status_codes"] = json!([400, 413]);
        }
        if stream.chance(100_000) {
            extra["stop_status_codes"] = json!([stream.pick(&[500, 503, 404])]);
        }
        Limits {
            max_concurrency: stream.pick(&[0, 0, 0, 1, 3, 10]),
            rpm: stream.pick(&[0, 0, 0, 0, 60, 300]),
            tpm: stream.pick(&[0, 0, 0, 0, 3000, 3000]),
            extra,
        }
    }
}

impl Knobs {
    pub(super) fn draw(seed: u64, version: u64, lone: bool) -> Knobs {
        let mut s = Stream::new(seed, Concern::Config, 3, version);
        let refuses_words = s.chance(400_000);
        let mut rules = json!({});
        if refuses_words {
            rules["success_failover_patterns"] = json!([{ "pattern": format!("(?i){REFUSED_WORDS}") }]);
        }
        if s.chance(200_000) && !lone {
            rules["error_stop_patterns"] =
                json!([{ "status_codes": [s.pick(&[503, 500, 429])], "pattern": "(?i)busy|failed" }]);
        }
        let cooldown = s.pick(&[1.0, 5.0, 20.0, 60.0]);
        let max_cooldown = cooldown * s.pick(&[1.0, 2.0, 5.0]);
        let mut policy = json!({
            "sticky_key_attempts": s.range(0, 3),
            "max_attempts": s.pick(&[0, 2, 3, 3, 6]),
            "max_wait_seconds": s.pick(&[0.5, 3.0, 30.0, 30.0, 0.0]),
            "structured_max_retries": s.range(0, 2),
            "empty_completion": s.pick(&["failover", "failover", "deliver"]),
            "failover_rules": rules,
        });
        if !lone {
            policy["max_transfer_count"] = s.pick(&[0, 0, 0, 1, 3]).into();
            policy["max_transfer_timeout_seconds"] = s.pick(&[0.0, 0.0, 0.0, 1.0, 8.0]).into();
            policy["deadline_seconds"] = s.pick(&[0.0, 0.0, 0.0, 6.0, 20.0]).into();
            policy["max_attempts_hard"] = s.pick(&[64, 64, 64, 2, 5]).into();
        }
        let sections = json!({
            "default_policy": policy,
            "retry": { "initial_ms": s.pick(&[50, 500]), "max_ms": s.pick(&[400, 4000, 30_000]), "factor": s.pick(&[1.0, 2.0, 3.0]),
                       "jitter": s.pick(&[0.0, 0.1, 1.0]), "stream": s.pick(&["before_commit", "before_commit", "never"]) },
            "window": { "max_bytes": s.pick(&[262_144, 262_144, 4000, 300]), "max_events": s.pick(&[4096, 4096, 12, 3]) },
            "timeouts": { "connect_ms": 10_000, "first_byte_ms": s.pick(&[1500, 4000, 20_000]),
                          "first_content_ms": if lone { 0 } else { s.pick(&[0, 0, 0, 700, 2500]) },
                          "idle_ms": s.pick(&[2000, 6000, 30_000, 90_000]), "total_ms": s.pick(&[4000, 12_000, 60_000, 200_000]) },
            "breaker": { "fail_threshold": s.pick(&[1, 2, 3, 5]), "min_calls": s.pick(&[3, 10, 10]), "fail_rate": s.pick(&[0.3, 0.6, 0.6, 0.9]),
                         "window_seconds": s.pick(&[2.0, 10.0, 60.0]), "cooldown_seconds": cooldown, "max_cooldown_seconds": max_cooldown,
                         "probe_ttl_seconds": s.pick(&[1.0, 10.0, 60.0]), "count_rate_limited": s.chance(100_000),
                         "slow_call_seconds": if lone { 0.0 } else { s.pick(&[0.0, 0.0, 0.0, 2.0]) } },
            "health": { "alpha": s.pick(&[0.2, 0.2, 0.05, 1.0]), "floor": s.pick(&[0.05, 0.05, 0.3]), "credible": s.pick(&[0.5, 0.5, 0.0, 1.0]) },
            "pace": { "initial": s.pick(&[0, 0, 2, 8]), "cut": s.pick(&[0.5, 0.5, 0.1, 0.9]), "min": s.pick(&[1, 1, 2]) },
            "stall": { "window_seconds": s.pick(&[120.0, 120.0, 20.0, 0.0]) },
            "server": { "max_concurrency": s.pick(&[0, 0, 16]) },
            "discovery": { "configured_models_mode": "allowlist" },
        });
        let model_policy = if s.chance(300_000) { json!({ "sticky_key_attempts": s.range(1, 2) }) } else { json!({}) };
        Knobs { refuses_words, max_cooldown: Span((max_cooldown * 1e6) as u64), sections, model_policy }
    }

    /// The whole tree.
    pub(super) fn tree(&self, providers: &[Provider], offers: &[Offer], limits: &[Limits]) -> Value {
        let mut tree = self.sections.clone();
        let listed = providers.iter().zip(limits).map(|(provider, limits)| {
            let keys = provider.keys.iter().map(|key| {
                let mut told = json!({ "name": key.name, "value": key.value, "max_concurrency": limits.max_concurrency,
                                       "rpm": limits.rpm, "tpm": limits.tpm });
                if let Some(account) = &key.account {
                    told["account"] = account.as_str().into();
                }
                told
            });
            let formats: Vec<&str> = provider.formats.iter().map(|format| format.as_str()).collect();
            let endpoints = provider.endpoints.iter().map(|endpoint| {
                json!({ "name": endpoint, "base_url": format!("http://{}-{endpoint}.sim/v1", provider.name) })
            });
            let mut told = json!({ "name": provider.name, "formats": formats, "models": ["m"],
                                   "endpoints": endpoints.collect::<Vec<_>>(), "keys": keys.collect::<Vec<_>>() });
            if let (Some(told), Some(extra)) = (told.as_object_mut(), limits.extra.as_object()) {
                told.extend(extra.clone());
            }
            told
        });
        tree["providers"] = listed.collect();
        let models = offers.iter().filter_map(|offer| {
            let strategy = offer.strategy?;
            let name = |provider: &usize| format!("{}/m", providers[*provider].name);
            let targets: Value = match strategy {
                "priority" => offer.tiers.iter().flatten().map(name).collect(),
                _ => offer.tiers.iter().map(|tier| tier.iter().map(name).collect::<Value>()).collect(),
            };
            Some(json!({ "name": offer.model, "strategy": strategy, "targets": targets, "policy": self.model_policy }))
        });
        tree["models"] = models.collect();
        tree
    }
}
