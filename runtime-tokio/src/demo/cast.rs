//! The cast: who provides, and how each of them misbehaves.

use std::net::SocketAddr;

use serde_json::json;
use surefoot_core::policy::config::{self, Config};

use super::DemoError;
use crate::mock::{Accept, Mock, Script};

/// A part in the show.
pub(super) struct Part {
    /// The provider's name.
    pub(super) name: &'static str,
    /// What is wrong with it, for people.
    pub(super) about: &'static str,
    /// The same in the mock's words.
    plays: &'static str,
}

/// The parts; the last one stands in a tier of its own, behind all others.
pub(super) const PARTS: [Part; 6] = [
    Part { name: Cast::STAR, about: "good and fast, but goes down in the middle", plays: "delay=30, gap=5" },
    Part {
        name: "torn",
        about: "a third of its answers turn into errors before any content",
        plays: "flaky=0.35, error-after=1, delay=40",
    },
    Part { name: "hollow", about: "nearly half of its answers are empty", plays: "flaky=0.45, empty, delay=40" },
    Part { name: "limited", about: "takes two requests a second, 429 beyond", plays: "rate=2/1000, delay=50" },
    Part { name: "locked", about: "its key is revoked", plays: "401, message=\"the key was revoked\"" },
    Part { name: "steady", about: "slow, but always there: the last resort", plays: "delay=250, gap=10" },
];

/// The running cast.
pub(super) struct Cast(Vec<Mock>);

impl Cast {
    /// Who goes down.
    pub(super) const STAR: &'static str = "swift";

    pub(super) async fn start() -> Result<Cast, DemoError> {
        let mut actors = Vec::new();
        for part in PARTS {
            let mock = Mock::start(SocketAddr::from(([127, 0, 0, 1], 0)), script(part.plays)?).await?;
            actors.push(mock);
        }
        Ok(Cast(actors))
    }

    /// The gateway's configuration over them.
    pub(super) fn config(&self, listen: SocketAddr) -> Result<Config, DemoError> {
        let providers = PARTS.iter().zip(&self.0).map(|(part, actor)| {
            json!({
                "name": part.name, "formats": ["chat"], "base_url": format!("{}/v1", actor.url()), "models": ["small"],
                "keys": [{"value": format!("sk-demo-{}", part.name)}],
            })
        });
        let providers = providers.collect::<Vec<_>>();
        let target = |part: &Part| format!("{}/small", part.name);
        let (last, first) = PARTS
            .split_last()
            .map(|(last, first)| (target(last), first.iter().map(target).collect::<Vec<_>>()))
            .unwrap_or_default();
        let tree = json!({
            "server": {"listen": listen.to_string(), "admin_listen": "127.0.0.1:0", "drain_seconds": 1},
            "providers": providers,
            "models": [{"name": "demo", "strategy": "health_aware", "targets": [first, [last]]}],
            // Quick to judge and to forgive: a show is short.
            "breaker": {"fail_threshold": 3, "min_calls": 5, "cooldown_seconds": 1, "max_cooldown_seconds": 2},
            "retry": {"initial_ms": 50},
            "discovery": {"configured_models_mode": "allowlist"},
            "trace": {"mode": "off"},
        });
        config::read(&tree, &|_| None).map_err(|problems| {
            let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
            DemoError::Config(told.join("; "))
        })
    }

    /// The star goes down.
    pub(super) fn fall(&self) {
        if let (Some(actor), Ok(script)) = (self.0.first(), script(PARTS[0].plays)) {
            actor.set_script(Script { accept: Accept::Refuse, ..script });
        }
    }

    /// The star is back.
    pub(super) fn rise(&self) {
        if let (Some(actor), Ok(script)) = (self.0.first(), script(PARTS[0].plays)) {
            actor.set_script(script);
        }
    }
}

fn script(plays: &str) -> Result<Script, DemoError> {
    Script::always(plays).map_err(|error| DemoError::Config(error.to_string()))
}
