//! Calls that wait in line at a source (G14, G15): they start when it can, whoever else has left.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use surefoot_tests::http::post;
use surefoot_tests::upstream::{Upstream, write_json};
use surefoot_tests::{Gateway, Runtime, on_each_runtime, provider, within};

on_each_runtime!(
    a_place_that_comes_to_rest_is_taken_when_the_rest_is_over,
    a_place_that_a_reload_makes_is_taken_at_once,
);

/// One provider with a key of so many places.
fn config(upstream: &Upstream, places: u32) -> String {
    format!(
        r#"
[server]
listen = "127.0.0.1:0"
{}
keys = [{{ name = "k", value = "sk-test", max_concurrency = {places} }}]
"#,
        provider(&upstream.url())
    )
}

fn write_answer(stream: &mut TcpStream) -> std::io::Result<()> {
    let message = json!({ "role": "assistant", "content": "Hi" });
    let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
    write_json(stream, &json!({ "id": "c", "object": "chat.completion", "choices": [choice] }))
}

fn body() -> serde_json::Value {
    json!({ "model": "up/m", "messages": [{ "role": "user", "content": "Hi" }] })
}

/// One place. Its holder gets a 429, waits for it to be over, and leaves. Who stands in line behind is alone then: nothing
/// happens any more that would wake him, but the end of the rest.
fn a_place_that_comes_to_rest_is_taken_when_the_rest_is_over(runtime: &Runtime) {
    let asked = AtomicUsize::new(0);
    let upstream = Upstream::start(move |_, stream| {
        if asked.fetch_add(1, Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(600));
            let head =
                "HTTP/1.1 429 Too Many Requests\r\nretry-after: 3\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            return stream.write_all(head.as_bytes());
        }
        write_answer(stream)
    });
    let gateway = Gateway::start(runtime, &config(&upstream, 1));
    let body = body();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let first = post("/v1/chat/completions", &body).timeout(Duration::from_millis(1500));
            first.fetch(gateway.addr()).expect_err("it leaves before the rest is over");
        });
        std::thread::sleep(Duration::from_millis(200));
        let began = Instant::now();
        let second = post("/v1/chat/completions", &body).timeout(Duration::from_secs(60));
        let second = second.fetch(gateway.addr()).expect("an answer");
        assert_eq!(second.status, 200, "after {:?}: {}", began.elapsed(), second.text());
    });
}

/// F1, G15: who stands in line for the one place has the second that a reload brings, though nothing else happens.
fn a_place_that_a_reload_makes_is_taken_at_once(runtime: &Runtime) {
    let asked = AtomicUsize::new(0);
    let answered = Arc::new(AtomicBool::new(false));
    let second = Arc::clone(&answered);
    let upstream = Upstream::start(move |_, stream| {
        if asked.fetch_add(1, Ordering::SeqCst) == 0 {
            // Holds its place until the other has been served.
            assert!(within(20, || second.load(Ordering::SeqCst)), "the second call never got a place");
        }
        write_answer(stream)
    });
    let gateway = Gateway::start(runtime, &config(&upstream, 1));
    let ask = || post("/v1/chat/completions", &body()).timeout(Duration::from_secs(60)).fetch(gateway.addr());
    std::thread::scope(|scope| {
        let first = scope.spawn(ask);
        std::thread::sleep(Duration::from_millis(300));
        let waiting = scope.spawn(ask);
        std::thread::sleep(Duration::from_millis(300));
        gateway.reload(&config(&upstream, 2));
        assert_eq!(waiting.join().expect("no panic").expect("an answer").status, 200);
        answered.store(true, Ordering::SeqCst);
        assert_eq!(first.join().expect("no panic").expect("an answer").status, 200);
    });
}
