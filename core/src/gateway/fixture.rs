//! Configurations for the tests of this module.

use std::sync::Arc;

use super::models::Inventory;
use super::{Gateway, pool_settings};
use crate::policy::config::{self, Config};
use crate::pool::Pool;
use crate::time::Time;

/// The configuration of a tree.
pub(super) fn config(tree: &serde_json::Value) -> Config {
    config::read(tree, &|_| None).unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// Two OpenAI-like providers and an Anthropic-like one, lists configured, open to all.
pub(super) fn tree() -> serde_json::Value {
    serde_json::json!({
        "providers": [
            {
                "name": "u1", "formats": ["chat", "responses", "embeddings", "images"], "base_url": "http://h1/v1",
                "models": ["up-model", "org/other:free"],
                "keys": [{ "name": "a", "value": "sk-u1-a" }, { "name": "b", "value": "sk-u1-b", "account": "acme" }],
            },
            {
                "name": "u2", "formats": ["chat"], "models": ["up-model"],
                "endpoints": [{ "name": "eu", "base_url": "http://h2/v1" }, { "name": "us", "base_url": "http://h3/v1" }],
                "keys": [{ "name": "a", "value": "sk-u1-a" }],
            },
            { "name": "claude", "formats": ["messages"], "base_url": "http://h4", "models": ["opus"] },
        ],
        "models": [
            { "name": "m", "targets": ["u2/up-model", "claude/opus", "u1/unlisted"] },
            { "name": "flat", "strategy": "round_robin", "targets": ["u1/up-model", "u2/up-model"] },
            { "name": "tiers", "targets": [["u1/up-model", "claude/opus"], ["u2/up-model"]] },
        ],
        "discovery": { "configured_models_mode": "allowlist" },
    })
}

/// The gateway of a tree, nothing fetched.
pub(super) fn gateway(tree: &serde_json::Value) -> Gateway {
    gateway_and_pool(tree).0
}

/// The same, and the pool that it was built with.
pub(super) fn gateway_and_pool(tree: &serde_json::Value) -> (Gateway, Pool) {
    let config = Arc::new(config(tree));
    let inventory = Inventory::new(&config, Time::ZERO);
    let mut pool = Pool::new(pool_settings(&config));
    (Gateway::build(config, &inventory, &mut pool), pool)
}
