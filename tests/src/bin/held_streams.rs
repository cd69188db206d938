//! Prints the resident memory of an idle gateway, and what a stream costs that it holds: in the window and after commit.
//!
//! `cargo run --release -p surefoot-tests --bin held_streams [STREAMS] [smol]`. Numbers, not a test: they depend on the
//! machine.

use std::io::Read as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use surefoot_tests::http::post;
use surefoot_tests::upstream::{Upstream, chat_event, write_chunk, write_stream_head};
use surefoot_tests::{Gateway, Runtime, SMOL, TOKIO, provider, within};

/// Openers sent before the silence: what the window holds.
const HELD: usize = 2048;

fn main() {
    let streams = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(500);
    let runtime = if std::env::args().nth(2).is_some_and(|name| name == "smol") { &SMOL } else { &TOKIO };
    let gateway = Gateway::start(runtime, &config(&quiet(String::new(), Arc::default())));
    std::thread::sleep(Duration::from_millis(500));
    println!("idle: {:.1} MiB resident", mib(gateway.rss()));
    drop(gateway);
    let mut openers = String::new();
    while openers.len() < HELD {
        openers.push_str(&chat_event(""));
    }
    let held = openers.len() as u64;
    measure(runtime, "held in the window", streams, openers.clone(), held, false);
    measure(runtime, "committed, waiting for more", streams, openers + &chat_event("Hi"), 0, true);
}

fn mib(bytes: Option<u64>) -> f64 {
    bytes.unwrap_or_default() as f64 / f64::from(1 << 20)
}

/// An upstream that says this, then nothing for a minute.
fn quiet(says: String, asked: Arc<AtomicUsize>) -> Upstream {
    Upstream::start(move |_, stream| {
        write_stream_head(stream)?;
        write_chunk(stream, says.as_bytes())?;
        asked.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs(60));
        Ok(())
    })
}

fn config(upstream: &Upstream) -> String {
    format!(
        r#"
[server]
listen = "127.0.0.1:0"
drain_seconds = 0
{}
"#,
        provider(&upstream.url())
    )
}

fn measure(runtime: &Runtime, what: &str, streams: usize, says: String, held: u64, committed: bool) {
    let asked = Arc::new(AtomicUsize::new(0));
    let upstream = quiet(says, Arc::clone(&asked));
    let gateway = Gateway::start(runtime, &config(&upstream));
    // The first call pays for what all share.
    let warm = open(&gateway, committed);
    assert!(within(10, || asked.load(Ordering::Relaxed) >= 1), "the first call does not arrive");
    std::thread::sleep(Duration::from_millis(300));
    let before = gateway.rss();
    let opened: Vec<_> = std::thread::scope(|scope| {
        let gateway = &gateway;
        let threads: Vec<_> = (0..streams).map(|_| scope.spawn(move || open(gateway, committed))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(within(30, || asked.load(Ordering::Relaxed) > streams), "not all calls arrive");
    std::thread::sleep(Duration::from_millis(500));
    let grown = gateway.rss().unwrap_or_default().saturating_sub(before.unwrap_or_default());
    let each = grown / streams as u64;
    println!(
        "{streams} streams {what}: {:.1} MiB more, {:.1} KiB a stream, {:.1} KiB beyond the {held} bytes held",
        mib(Some(grown)),
        each as f64 / 1024.0,
        each.saturating_sub(held) as f64 / 1024.0
    );
    drop((warm, opened));
}

/// A call on its way; where it commits, its answer has begun.
fn open(gateway: &Gateway, committed: bool) -> TcpStream {
    let body = json!({ "model": "up/m", "stream": true, "messages": [{ "role": "user", "content": "Hi" }] });
    let mut stream = post("/v1/chat/completions", &body).start(gateway.addr()).expect("a connection");
    if committed {
        stream.read_exact(&mut [0; 12]).expect("a head");
    }
    stream
}
