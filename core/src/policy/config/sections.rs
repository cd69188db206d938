//! The sections that stand once in a file.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::reader::{Node, Table};
use super::rules;
use super::text::Text;
use super::{
    Breaker, Discovery, Health, ModelsMode, OnDisconnect, OnDown, Pace, PolicyOverrides, RetryOverrides, Server, State,
    TimeoutOverrides, Trace, TraceMode, WindowOverrides,
};
use crate::policy::{EmptyCompletion, Secret};
use crate::time::Span;

/// `[server]`.
pub(super) fn server(table: &mut Table<'_, '_>) -> Server {
    let listen = address(table, "listen");
    let admin_listen = address(table, "admin_listen");
    let keys_given = table.key("api_keys").is_some_and(|node| !node.elements().is_empty() || !node.is_list());
    let api_keys = table.key("api_keys").and_then(|node| node.list(secret)).unwrap_or_default();
    let open = table.flag("open").unwrap_or(false);
    if !keys_given && !open && listen.is_some_and(|addr| !addr.ip().to_canonical().is_loopback()) {
        table.wrong(
            "api_keys",
            "none given, but `listen` is reached from beyond this machine; \
             set keys, listen on 127.0.0.1, or say `open = true`",
        );
    }
    if listen.is_some_and(|addr| addr.port() != 0 && Some(addr) == admin_listen) {
        table.wrong("admin_listen", "the same address as `listen`; give it another port");
    }
    Server {
        listen: listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 4000))),
        admin_listen,
        api_keys,
        open,
        max_concurrency: table.count("max_concurrency").unwrap_or(0),
        max_body_bytes: table.key("max_body_bytes").and_then(|node| node.count(1..=1 << 40)).unwrap_or(33_554_432),
        drain: table.seconds("drain_seconds").unwrap_or(Span::from_secs(10)),
        client_stall: table.seconds("client_stall_seconds").unwrap_or(Span::from_secs(60)),
        on_client_disconnect: table
            .word("on_client_disconnect", &[("cancel", OnDisconnect::Cancel), ("finish", OnDisconnect::Finish)])
            .unwrap_or_default(),
    }
}

/// An address to listen on; an empty text is none, so that a variable can leave it out.
fn address(table: &mut Table<'_, '_>, key: &'static str) -> Option<SocketAddr> {
    let node = table.key(key)?;
    node.parsed(|text| match text.as_str().trim() {
        "" if key == "admin_listen" => Ok(None),
        trimmed => trimmed.parse().map(Some).map_err(|_| {
            let shown = text.shown();
            alloc::format!("{shown} is no IP address with a port; write it like 127.0.0.1:4000 or [::1]:4000")
        }),
    })?
}

/// A credential as a header carries it: visible ASCII, not empty. White space around it is no part of it.
pub(super) fn secret(node: Node<'_, '_>) -> Option<Secret> {
    node.parsed(|text| match text.as_str().trim() {
        "" => Err("is empty; set it, or leave it out where no key is needed"),
        key if key.bytes().all(|b| b.is_ascii_graphic()) => Ok(Secret::new(key)),
        _ => Err("holds characters that no header can carry"),
    })
}

/// `[default_policy]` and a model's `policy`.
pub(super) fn policy(table: &mut Table<'_, '_>) -> PolicyOverrides {
    PolicyOverrides {
        sticky_key_attempts: table.count("sticky_key_attempts"),
        max_transfer_count: table.count("max_transfer_count"),
        max_transfer_timeout: table.seconds("max_transfer_timeout_seconds"),
        max_attempts: table.count("max_attempts"),
        // An attempt's number has 16 bits, and nobody needs more (F5).
        max_attempts_hard: table
            .key("max_attempts_hard")
            .and_then(|node| node.count(1..=65_535))
            .and_then(|count| u32::try_from(count).ok()),
        max_wait: table.seconds("max_wait_seconds"),
        deadline: table.seconds("deadline_seconds"),
        empty_completion: table.word(
            "empty_completion",
            &[("failover", EmptyCompletion::Failover), ("deliver", EmptyCompletion::Deliver)],
        ),
        structured_max_retries: table.count("structured_max_retries"),
        rules: table.section("failover_rules", rules::groups),
    }
}

/// `[retry]`, global or a model's.
pub(super) fn retry(table: &mut Table<'_, '_>) -> RetryOverrides {
    RetryOverrides {
        initial: table.millis("initial_ms"),
        max: table.millis("max_ms"),
        // A factor below 1 would retry ever faster.
        factor_milli: table
            .key("factor")
            .and_then(|node| node.number(1.0, 1000.0))
            .map(|factor| (factor * 1000.0 + 0.5) as u32),
        jitter_ppm: table.share("jitter"),
        stream: table.word("stream", &[("before_commit", true), ("never", false)]),
    }
}

/// `[window]`, global or a model's.
pub(super) fn window(table: &mut Table<'_, '_>) -> WindowOverrides {
    WindowOverrides {
        max_bytes: table.key("max_bytes").and_then(|node| node.count(1..=1 << 40)),
        max_events: table.positive("max_events"),
    }
}

/// `[timeouts]`, global, a provider's or a model's.
pub(super) fn timeouts(table: &mut Table<'_, '_>) -> TimeoutOverrides {
    TimeoutOverrides {
        connect: table.millis("connect_ms"),
        first_byte: table.millis("first_byte_ms"),
        first_content: table.millis("first_content_ms"),
        idle: table.millis("idle_ms"),
        total: table.millis("total_ms"),
    }
}

/// `[breaker]`.
pub(super) fn breaker(table: &mut Table<'_, '_>) -> Breaker {
    let cooldown = table.seconds("cooldown_seconds").unwrap_or(Span::from_secs(60));
    let max_cooldown = table.seconds("max_cooldown_seconds").unwrap_or(cooldown.max(Span::from_secs(300)));
    Breaker {
        fail_threshold: table.positive("fail_threshold").unwrap_or(5),
        min_calls: table.positive("min_calls").unwrap_or(10),
        fail_rate_ppm: table.share("fail_rate").unwrap_or(600_000),
        window: table.positive_seconds("window_seconds").unwrap_or(Span::from_secs(60)),
        cooldown: cooldown.min(max_cooldown),
        max_cooldown,
        probe_ttl: table.positive_seconds("probe_ttl_seconds").unwrap_or(Span::from_secs(60)),
        count_rate_limited: table.flag("count_rate_limited").unwrap_or(false),
        slow_call: table.seconds("slow_call_seconds").unwrap_or(Span::ZERO),
    }
}

/// `[health]`.
pub(super) fn health(table: &mut Table<'_, '_>) -> Health {
    Health {
        alpha_ppm: table.share("alpha").unwrap_or(200_000),
        floor_ppm: table.share("floor").unwrap_or(50_000),
        credible_ppm: table.share("credible").unwrap_or(500_000),
    }
}

/// `[pace]`.
pub(super) fn pace(table: &mut Table<'_, '_>) -> Pace {
    Pace {
        initial: table.count("initial").unwrap_or(0),
        cut_ppm: table.share("cut").unwrap_or(500_000),
        min: table.positive("min").unwrap_or(1),
    }
}

/// `[stall]`.
pub(super) fn stall(table: &mut Table<'_, '_>) -> Span {
    table.seconds("window_seconds").unwrap_or(Span::from_secs(120))
}

/// `[discovery]`.
pub(super) fn discovery(table: &mut Table<'_, '_>) -> Discovery {
    Discovery {
        mode: table
            .word("configured_models_mode", &[("fallback", ModelsMode::Fallback), ("allowlist", ModelsMode::Allowlist)])
            .unwrap_or_default(),
        recheck: table.seconds("recheck_seconds").unwrap_or(Span::from_secs(60)),
        refresh: table.seconds("refresh_seconds").unwrap_or(Span::from_secs(3600)),
    }
}

/// `[state]`.
pub(super) fn state(table: &mut Table<'_, '_>) -> State {
    State {
        url: table.key("url").and_then(|node| node.parsed(store_url)).flatten(),
        on_down: table.word("on_down", &[("local", OnDown::Local), ("closed", OnDown::Closed)]).unwrap_or_default(),
        prefix: table.key("prefix").and_then(|node| node.parsed(prefix)).unwrap_or_else(|| "surefoot".to_string()),
    }
}

/// The store's URL; its password is why it is a secret. Empty = no store.
fn store_url(text: &Text) -> Result<Option<Secret>, &'static str> {
    const SCHEMES: [&str; 6] = ["redis://", "rediss://", "valkey://", "valkeys://", "redis+unix://", "unix://"];
    let text = text.as_str().trim();
    if text.is_empty() {
        return Ok(None);
    }
    let rest = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme));
    match rest {
        Some(rest) if !rest.is_empty() && text.bytes().all(|b| b.is_ascii_graphic()) => Ok(Some(Secret::new(text))),
        _ => Err("is no address of a store; write it like redis://127.0.0.1:6379"),
    }
}

/// The beginning of the store's keys. Braces would tear its keys apart in a cluster, where they mark what belongs together.
fn prefix(text: &Text) -> Result<String, &'static str> {
    match text.as_str() {
        "" => Err("is empty; other programs may use the same store"),
        prefix if prefix.contains(['{', '}']) || prefix.chars().any(char::is_control) => {
            Err("must not hold braces or control characters")
        }
        prefix => Ok(prefix.to_string()),
    }
}

/// `[trace]`.
pub(super) fn trace(table: &mut Table<'_, '_>) -> Trace {
    let modes = [("off", TraceMode::Off), ("redacted", TraceMode::Redacted), ("full", TraceMode::Full)];
    Trace {
        mode: table.word("mode", &modes).unwrap_or_default(),
        path: table.text("path").map(Text::into_string).filter(|path| !path.is_empty()),
    }
}

/// A list of statuses, each 400–599.
pub(super) fn statuses(table: &mut Table<'_, '_>, key: &'static str) -> Vec<u16> {
    table.key(key).and_then(|node| node.list(rules::error_status)).unwrap_or_default()
}
