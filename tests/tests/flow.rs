//! A client that reads slowly, or not at all: the gateway waits, and makes the upstream wait (M5, X4).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use surefoot_tests::http::post;
use surefoot_tests::upstream::{Upstream, chat_end, chat_event, write_chunk, write_end, write_stream_head};
use surefoot_tests::{Gateway, Runtime, on_each_runtime, provider, skip, within};

on_each_runtime!(
    a_client_that_does_not_read_makes_the_upstream_wait,
    a_client_that_stops_reading_for_good_is_dropped,
    a_deadline_passes_while_the_client_does_not_read,
    a_client_that_leaves_in_the_window_or_after_commit_drops_the_upstream,
);

const MIB: usize = 1 << 20;
const EVENTS: usize = 800;
const EVENT: usize = 64 * 1024;

fn config(upstream: &Upstream, more: &str) -> String {
    format!(
        r#"
[server]
listen = "127.0.0.1:0"
drain_seconds = 0.2
{more}
[default_policy]
sticky_key_attempts = 1
[timeouts]
idle_ms = 700
{}
"#,
        provider(&upstream.url())
    )
}

/// 50 MiB of content, as fast as they are taken; counts what was.
fn flood(sent: Arc<AtomicUsize>) -> Upstream {
    let text = "x".repeat(EVENT);
    Upstream::start(move |_, stream| {
        write_stream_head(stream)?;
        for _ in 0..EVENTS {
            write_chunk(stream, chat_event(&text).as_bytes())?;
            sent.fetch_add(EVENT, Ordering::Relaxed);
        }
        write_chunk(stream, chat_end().as_bytes())?;
        write_end(stream)
    })
}

fn a_client_that_does_not_read_makes_the_upstream_wait(runtime: &Runtime) {
    let sent = Arc::new(AtomicUsize::new(0));
    let upstream = flood(Arc::clone(&sent));
    let gateway = Gateway::start(runtime, &config(&upstream, ""));
    let before = gateway.rss();
    let body = json!({ "model": "up/m", "stream": true, "messages": [{ "role": "user", "content": "Hi" }] });
    let mut open = post("/v1/chat/completions", &body).send(gateway.addr()).expect("a head");
    assert_eq!(open.status, 200);
    // Three times the idle timeout: waiting for a slow client never counts against the upstream.
    std::thread::sleep(Duration::from_millis(2100));
    let waiting = sent.load(Ordering::Relaxed);
    assert!(waiting < 25 * MIB, "{} MiB were taken from the upstream for a client that reads nothing", waiting / MIB);
    match (before, gateway.rss()) {
        (Some(before), Some(after)) => {
            let grown = after.saturating_sub(before) / MIB as u64;
            assert!(grown < 8, "{grown} MiB are held for a client that reads nothing");
        }
        _ => skip("resident memory", "this system does not tell it"),
    }
    let mut received = 0;
    let mut tail = Vec::new();
    while let Some(chunk) = open.chunk().expect("the rest of the stream") {
        received += chunk.len();
        tail.extend_from_slice(&chunk);
        let surplus = tail.len().saturating_sub(1000);
        tail.drain(..surplus);
    }
    let expected = EVENTS * chat_event(&"x".repeat(EVENT)).len() + chat_end().len();
    assert_eq!(received, expected, "the stream ends with {}", String::from_utf8_lossy(&tail));
}

fn a_client_that_stops_reading_for_good_is_dropped(runtime: &Runtime) {
    let sent = Arc::new(AtomicUsize::new(0));
    let upstream = flood(Arc::clone(&sent));
    let gateway = Gateway::start(runtime, &config(&upstream, "client_stall_seconds = 1"));
    let body = json!({ "model": "up/m", "stream": true, "messages": [{ "role": "user", "content": "Hi" }] });
    let open = post("/v1/chat/completions", &body).send(gateway.addr()).expect("a head");
    assert!(within(10, || upstream.left() == 1), "the upstream still waits for a client that reads nothing");
    assert!(open.finish().is_err(), "the answer must not look complete");
}

/// The call's timers go on while its client pauses: the source is free at the deadline, and the client hears of it when it
/// reads on (F6, M5, S4).
fn a_deadline_passes_while_the_client_does_not_read(runtime: &Runtime) {
    let sent = Arc::new(AtomicUsize::new(0));
    let upstream = flood(Arc::clone(&sent));
    let policy = "[default_policy]\ndeadline_seconds = 1.5\n";
    let config = config(&upstream, "client_stall_seconds = 0").replace("[default_policy]\n", policy);
    let gateway = Gateway::start(runtime, &config);
    let body = json!({ "model": "up/m", "stream": true, "messages": [{ "role": "user", "content": "Hi" }] });
    let mut open = post("/v1/chat/completions", &body).send(gateway.addr()).expect("a head");
    assert!(within(10, || upstream.left() == 1), "the upstream is held beyond the deadline for a client that pauses");
    let (mut received, mut tail) = (0, Vec::new());
    while let Some(chunk) = open.chunk().expect("an orderly end") {
        received += chunk.len();
        tail = chunk;
    }
    let tail = String::from_utf8_lossy(&tail);
    assert!(received < 25 * MIB && tail.contains("stream_incomplete") && tail.contains("deadline"), "{tail}");
}

fn a_client_that_leaves_in_the_window_or_after_commit_drops_the_upstream(runtime: &Runtime) {
    for (count, first) in [chat_event(""), chat_event("Hi")].into_iter().enumerate() {
        let committed = count == 1;
        let upstream = Upstream::start(move |_, stream| {
            write_stream_head(stream)?;
            write_chunk(stream, first.as_bytes())?;
            loop {
                write_chunk(stream, b": still here\n\n")?;
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let gateway = Gateway::start(runtime, &config(&upstream, ""));
        let body = json!({ "model": "up/m", "stream": true, "messages": [{ "role": "user", "content": "Hi" }] });
        let request = post("/v1/chat/completions", &body);
        if committed {
            drop(request.send(gateway.addr()).expect("a head"));
        } else {
            request.timeout(Duration::from_millis(300)).send(gateway.addr()).expect_err("nothing was committed yet");
        }
        assert!(within(10, || upstream.left() == 1), "committed {committed}: the upstream streams on");
    }
}
