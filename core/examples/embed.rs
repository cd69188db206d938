//! The core in a program of one's own: blocking sockets, one call, two providers of which the first is down.
//!
//! `cargo run -p surefoot-core --example embed`
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "clock and sockets are what the embedder brings"
)]

use std::io::{Error, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use surefoot_core::call::Call;
use surefoot_core::event::{Action, End, Fault, Head, Input, Output};
use surefoot_core::gateway::models::Inventory;
use surefoot_core::gateway::{Gateway, Operation, Upstream, pool_settings};
use surefoot_core::id::CallId;
use surefoot_core::policy::config;
use surefoot_core::pool::Pool;
use surefoot_core::time::Time;

/// One request, from its body to its answer.
fn serve(gateway: &Gateway, pool: &mut Pool, began: Instant, request: &Bytes) -> (Vec<u8>, End) {
    let now = || Time(began.elapsed().as_micros() as u64);
    let planned = gateway.plan(Operation::ChatCompletions, None, None, request, "req-1").expect("a good request");
    let route = planned.plan.route.clone();
    let mut call = Call::new(planned.plan, CallId(1), 42, now()); // 42: the seed of its random choices
    let mut answer = Vec::new();
    loop {
        let input = match call.poll() {
            Output::Do(Action::Ask(op) | Action::Tell(op)) => {
                Input::Reply { lease: op.lease(), reply: pool.apply(now(), &op) }
            }
            Output::Do(Action::Send { attempt, choice, .. }) => {
                let candidate = &route.candidates[usize::from(choice.0)];
                let upstream = gateway.upstream(candidate.place).expect("a place of this configuration");
                match post(&upstream, &planned.slot.body_for(request, &candidate.model)) {
                    Ok((status, body)) => {
                        call.handle(now(), Input::Head { attempt, head: Head { status, ..Head::default() } });
                        call.handle(now(), Input::Chunk { attempt, bytes: body.into() });
                        Input::End { attempt }
                    }
                    Err(_) => Input::Fault { attempt, fault: Fault::Connect },
                }
            }
            Output::Do(Action::Forward(bytes)) => {
                answer.extend_from_slice(&bytes);
                Input::Flushed
            }
            Output::Do(Action::Finish(end)) => return (answer, end),
            Output::Do(_) => continue, // the commit, and what is worth a line in a log
            Output::Wait(wake) => {
                let wake = wake.expect("no attempt is under way, so only time can go on");
                thread::sleep(Duration::from_micros(wake.at.0.saturating_sub(now().0)));
                Input::Tick
            }
        };
        call.handle(now(), input);
    }
}

/// Asks a provider over a plain socket and waits for the whole answer.
fn post(upstream: &Upstream<'_>, body: &[u8]) -> Result<(u16, Vec<u8>), Error> {
    let base = upstream.base;
    let mut stream = TcpStream::connect((base.host(), base.port()))?;
    let key = upstream.key.map_or("", |key| key.value.expose());
    let length = body.len();
    let head = format!(
        "POST {}/chat/completions HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {key}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n",
        base.path(),
        base.host()
    );
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::InvalidData)?;
    let status =
        head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(std::io::ErrorKind::InvalidData)?;
    Ok((status, body.as_bytes().to_vec()))
}

/// A provider that always answers the same.
fn provider(status: &'static str, body: &'static str) -> Result<String, Error> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/v1", listener.local_addr()?);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let length = body.len();
            let _ = write!(stream, "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
        }
    });
    Ok(url)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let down = provider("503 Service Unavailable", r#"{"error":{"message":"overloaded"}}"#)?;
    let good = r#"{"choices":[{"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}]}"#;
    let up = provider("200 OK", good)?;
    let tree = serde_json::json!({
        "providers": [
            { "name": "first", "formats": ["chat"], "base_url": down, "models": ["m"], "keys": [{ "value": "sk-1" }] },
            { "name": "second", "formats": ["chat"], "base_url": up, "models": ["m"], "keys": [{ "value": "sk-2" }] },
        ],
        "models": [{ "name": "smart", "targets": ["first/m", "second/m"] }],
        "discovery": { "configured_models_mode": "allowlist" },
    });
    let config = Arc::new(config::read(&tree, &|_| None).map_err(|problems| format!("{problems:?}"))?);
    let mut pool = Pool::new(pool_settings(&config));
    let gateway = Gateway::build(config.clone(), &Inventory::new(&config, Time::ZERO), &mut pool);

    let request = Bytes::from_static(br#"{"model":"smart","messages":[{"role":"user","content":"Hi"}]}"#);
    let (answer, end) = serve(&gateway, &mut pool, Instant::now(), &request);
    println!("{end:?}: {}", String::from_utf8_lossy(&answer));
    assert_eq!((end, &*answer), (End::Complete, good.as_bytes()));
    Ok(())
}
