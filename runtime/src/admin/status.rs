//! `/status`: everything that a person asks first, as JSON.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use surefoot_core::gateway::models::Listing;
use surefoot_core::pool::TargetView;
use surefoot_core::time::Time;

use super::recent::Decision;
use crate::reactor::Reactor;
use crate::serve::World;

/// One target.
#[derive(Serialize)]
struct Target {
    target: String,
    source: String,
    provider: String,
    model: String,
    state: &'static str,
    /// Until an open breaker lets a probe through.
    open_for_ms: Option<u64>,
    probing: bool,
    opened: u64,
    failures_in_a_row: u32,
    window: Window,
    health: f64,
    pace_limit: Option<f64>,
    inflight: u32,
    source_inflight: u32,
    /// Until the pushback on its source or account is over.
    resting_for_ms: Option<u64>,
    limits: Limits,
    last_error: Option<LastError>,
}

#[derive(Serialize)]
struct Window {
    samples: u32,
    failures: u32,
}

#[derive(Serialize)]
struct Limits {
    max_concurrency: u32,
    rpm: u32,
    tpm: u32,
}

#[derive(Serialize)]
struct LastError {
    ago_ms: u64,
    detail: String,
}

/// Renders the status as it stands now.
pub(super) fn render<R: Reactor>(world: &World<R>) -> Bytes {
    let shared = world.shared();
    let now = shared.clock.now();
    let decisions = shared.recent.newest_first();
    let mut targets: Vec<Target> =
        shared.gate.with_pool(|pool| pool.views(now).map(|view| target(now, &view)).collect());
    for target in &mut targets {
        target.last_error = last_error(now, &decisions, &target.source);
    }
    let models: Vec<Value> = {
        let health = shared.request_health();
        let name = |model: &str, degraded| json!({"model": model, "health": if degraded { "degraded" } else { "ok" }});
        let snapshot = shared.snapshot();
        snapshot.gateway.models().map(|model| name(model, health.is_degraded(now, model))).collect()
    };
    let document = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "stage": format!("{:?}", shared.life.stage()).to_lowercase(),
        "uptime_ms": now.0 / 1000,
        "calls": shared.life.calls(),
        "waiting": shared.gate.waiting(),
        "targets": targets,
        "models": models,
        "providers": providers(world),
        "budgets": budgets(world),
        "recent": decisions.iter().map(|decision| shown(now, decision)).collect::<Vec<_>>(),
    });
    Bytes::from(document.to_string())
}

fn target(now: Time, view: &TargetView<'_>) -> Target {
    let ahead = |until: Option<Time>| until.filter(|until| *until > now).map(|until| until.since(now).as_millis());
    Target {
        target: view.name.to_owned(),
        source: view.source_name.to_owned(),
        provider: view.provider.to_owned(),
        model: view.model.to_owned(),
        state: view.state.as_str(),
        open_for_ms: ahead(view.open_until),
        probing: view.probing,
        opened: view.epoch,
        failures_in_a_row: view.failures,
        window: Window { samples: view.samples, failures: view.window_failures },
        health: f64::from(view.ewma_ppm) / 1e6,
        pace_limit: view.pace_limit_ppm.map(|ppm| ppm as f64 / 1e6),
        inflight: view.inflight,
        source_inflight: view.source_inflight,
        resting_for_ms: ahead(view.resting_until),
        limits: Limits { max_concurrency: view.max_concurrency, rpm: view.rpm, tpm: view.tpm },
        last_error: None,
    }
}

fn last_error(now: Time, decisions: &[Decision], source: &str) -> Option<LastError> {
    let found = decisions.iter().find(|decision| decision.event == "attempt_ended" && decision.source == source)?;
    Some(LastError { ago_ms: now.since(found.at).as_millis(), detail: found.detail.clone() })
}

/// Where each provider's models come from (M9).
fn providers<R: Reactor>(world: &World<R>) -> Vec<Value> {
    let snapshot = world.shared().snapshot();
    let providers = snapshot.gateway.config().providers.iter().enumerate();
    world.with_inventory(|inventory| {
        let one = |(place, provider): (usize, &surefoot_core::policy::config::Provider)| {
            json!({
                "provider": provider.name,
                "models": inventory.models(place).len(),
                "list": listing(inventory.listing(place)),
                "discovery_error": inventory.failure(place).map(|error| error.to_string()),
            })
        };
        providers.map(one).collect()
    })
}

fn listing(listing: Listing) -> &'static str {
    match listing {
        Listing::Certain => "certain",
        Listing::StandIn => "stand_in",
        Listing::Nothing => "none",
    }
}

/// The limits that end a call's attempts (F3, F4, F6); 0 = none.
fn budgets<R: Reactor>(world: &World<R>) -> Value {
    let snapshot = world.shared().snapshot();
    let config = snapshot.gateway.config();
    let policy = &config.default_policy;
    let own = config.providers.iter().map(|provider| {
        json!({
            "provider": provider.name,
            "max_transfer_count": provider.max_transfer_count,
            "max_transfer_timeout_ms": provider.max_transfer_timeout.as_millis(),
        })
    });
    json!({
        "sticky_key_attempts": policy.sticky_key_attempts,
        "max_transfer_count": policy.max_transfer_count,
        "max_transfer_timeout_ms": policy.max_transfer_timeout.as_millis(),
        "max_attempts": policy.max_attempts,
        "max_attempts_hard": policy.max_attempts_hard,
        "max_wait_ms": policy.max_wait.as_millis(),
        "providers": own.collect::<Vec<_>>(),
    })
}

fn shown(now: Time, decision: &Decision) -> Value {
    json!({
        "ago_ms": now.since(decision.at).as_millis(),
        "call": decision.call.0,
        "request": decision.request,
        "model": decision.model,
        "event": decision.event,
        "source": decision.source,
        "detail": decision.detail,
    })
}
