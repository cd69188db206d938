//! What a file may say, what is refused, and what becomes of it (F1, F14).

use serde_json::{Value, json};

use super::{Config, Problem, read};

mod accepted;
mod faults;
mod laws;
mod resolved;

/// An environment in which nothing is set.
fn nothing(_: &str) -> Option<String> {
    None
}

/// `over` laid on `base`, key by key; a list or a value takes the place of what was there.
fn laid(base: &Value, over: &Value) -> Value {
    let (Some(base), Some(over)) = (base.as_object(), over.as_object()) else { return over.clone() };
    let mut laid = base.clone();
    for (key, value) in over {
        let under = laid.get(key).cloned().unwrap_or(Value::Null);
        laid.insert(key.clone(), self::laid(&under, value));
    }
    Value::Object(laid)
}

/// A small file with one provider `u1` and one model `m`, and `over` laid on it.
fn small(over: &Value) -> Value {
    let base = json!({
        "providers": [{
            "name": "u1", "formats": ["chat"], "base_url": "http://127.0.0.1:9/v1", "keys": [{ "value": "sk-SECRET" }],
        }],
        "models": [{ "name": "m", "targets": ["u1/up-model"] }],
    });
    laid(&base, over)
}

/// The small file with `over` laid on its provider.
fn provider(over: &Value) -> Value {
    let mut tree = small(&json!({}));
    tree["providers"][0] = laid(&tree["providers"][0], over);
    tree
}

/// The small file with `over` laid on its model.
fn model(over: &Value) -> Value {
    let mut tree = small(&json!({}));
    tree["models"][0] = laid(&tree["models"][0], over);
    tree
}

fn config(tree: &Value) -> Config {
    read(tree, &nothing).unwrap_or_else(|problems| panic!("{}", told(&problems)))
}

fn problems(tree: &Value) -> Vec<Problem> {
    read(tree, &nothing).err().unwrap_or_default()
}

fn told(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

/// Every table of the interface page with every key that it documents.
fn documented() -> Value {
    json!({
        "server": {
            "listen": "127.0.0.1:4000", "admin_listen": "127.0.0.1:4001", "api_keys": ["${SUREFOOT_API_KEY}"], "open": false,
            "max_concurrency": 0, "max_body_bytes": 33_554_432, "drain_seconds": 10, "client_stall_seconds": 60,
            "on_client_disconnect": "cancel",
        },
        "providers": [
            {
                "name": "openai",
                "formats": ["chat", "responses", "embeddings", "images"],
                "base_url": "https://api.openai.com/v1",
                "models": ["gpt-5"],
                "headers": { "OpenAI-Organization": "acme" },
                "max_transfer_count": 0,
                "max_transfer_timeout_seconds": 0,
                "stop_on_transport_errors": false,
                "continue_status_codes": [400],
                "stop_status_codes": [503],
                "retry_on_errors": ["model retired", "422 Upstream"],
                "failover_rules": {
                    "success_failover_patterns": [{ "pattern": "busy", "status_codes": [200] }],
                    "error_stop_patterns": [{ "status_codes": [400], "pattern": "x" }],
                },
                "timeouts": { "first_byte_ms": 1000 },
                "keys": [{
                    "name": "a", "value": "${OPENAI_API_KEY}", "account": "acme", "max_concurrency": 64, "rpm": 0, "tpm": 0,
                }],
            },
            {
                "name": "anthropic",
                "formats": ["messages"],
                "endpoints": [
                    { "name": "eu", "base_url": "https://eu.example.com" },
                    { "name": "us", "base_url": "https://us.example.com" },
                ],
                "keys": [{ "value": "${ANOTHER_KEY:-none}" }],
            },
        ],
        "models": [
            {
                "name": "smart",
                "strategy": "priority",
                "targets": ["openai/gpt-5", "anthropic/claude-sonnet-5"],
                "policy": { "max_transfer_count": 1 },
                "timeouts": { "total_ms": 1000 },
                "window": { "max_bytes": 1000 },
                "retry": { "stream": "never" },
                "structured": false,
            },
            { "name": "tiers", "targets": [["openai/gpt-5", "anthropic/claude-sonnet-5"], ["anthropic/claude-haiku-4-5"]] },
        ],
        "default_policy": {
            "sticky_key_attempts": 2, "max_transfer_count": 0, "max_transfer_timeout_seconds": 0, "max_attempts": 3,
            "max_attempts_hard": 64, "max_wait_seconds": 30, "deadline_seconds": 0, "empty_completion": "failover",
            "structured_max_retries": 2,
            "failover_rules": { "success_failover_patterns": [], "error_stop_patterns": [] },
        },
        "retry": { "initial_ms": 500, "max_ms": 30000, "factor": 2.0, "jitter": 0.1, "stream": "before_commit" },
        "window": { "max_bytes": 262_144, "max_events": 4096 },
        "timeouts": {
            "connect_ms": 10000, "first_byte_ms": 120_000, "first_content_ms": 0, "idle_ms": 300_000, "total_ms": 600_000,
        },
        "breaker": {
            "fail_threshold": 5, "min_calls": 10, "fail_rate": 0.6, "window_seconds": 60, "cooldown_seconds": 60,
            "max_cooldown_seconds": 300, "probe_ttl_seconds": 60, "count_rate_limited": false, "slow_call_seconds": 0,
        },
        "health": { "alpha": 0.2, "floor": 0.05, "credible": 0.5 },
        "pace": { "initial": 0, "cut": 0.5, "min": 1 },
        "stall": { "window_seconds": 120 },
        "discovery": { "configured_models_mode": "fallback", "recheck_seconds": 60, "refresh_seconds": 3600 },
        "trace": { "mode": "redacted", "path": "" },
        "state": { "url": "", "on_down": "local", "prefix": "surefoot" },
    })
}

/// The environment that the documented file asks for.
fn documented_env(name: &str) -> Option<String> {
    match name {
        "SUREFOOT_API_KEY" => Some("client-SECRET".to_owned()),
        "OPENAI_API_KEY" => Some("openai-SECRET".to_owned()),
        _ => None,
    }
}
