//! Recorded streams through a whole call, cut and chunked: what the client gets is what an independent reader says it
//! must (F15, M5, S1, S12).

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::{Oracle, format_of, recordings};
use surefoot_core::call::Call;
use surefoot_core::event::{Action, End, Fault, Head, Incomplete, Input, Output};
use surefoot_core::gateway::models::Inventory;
use surefoot_core::gateway::{Gateway, Operation, pool_settings};
use surefoot_core::id::CallId;
use surefoot_core::policy::config;
use surefoot_core::pool::Pool;
use surefoot_core::time::Time;
use surefoot_core::wire::Format;

/// One provider that speaks everything, one try.
struct Bench {
    gateway: Gateway,
    pool: Pool,
    calls: u64,
}

impl Bench {
    fn new() -> Bench {
        let tree = serde_json::json!({
            "providers": [{ "name": "one", "formats": ["chat", "responses", "messages"], "models": ["m"],
                            "base_url": "http://127.0.0.1:9/v1", "keys": [{ "value": "sk-1" }] }],
            "default_policy": { "sticky_key_attempts": 1 },
            "breaker": { "fail_threshold": 1_000_000, "min_calls": 1_000_000 },
            "discovery": { "configured_models_mode": "allowlist" },
        });
        let config = Arc::new(config::read(&tree, &|_| None).unwrap());
        let mut pool = Pool::new(pool_settings(&config));
        let gateway = Gateway::build(config.clone(), &Inventory::new(&config, Time::ZERO), &mut pool);
        Bench { gateway, pool, calls: 0 }
    }

    /// What the client gets of a stream in these chunks, which ends cleanly or by a reset.
    fn run(&mut self, format: Format, chunks: &[&[u8]], fault: Option<Fault>) -> (Vec<u8>, End) {
        self.calls += 1;
        let operation = match format {
            Format::Chat => Operation::ChatCompletions,
            Format::Responses => Operation::Responses,
            _ => Operation::Messages,
        };
        let request = br#"{"model":"one/m","stream":true,"max_tokens":9,"input":"x","messages":[]}"#;
        let planned = self.gateway.plan(operation, None, None, request, "r").unwrap();
        let now = Time::from_millis(self.calls);
        let mut call = Call::new(planned.plan, CallId(self.calls), self.calls, now);
        let mut client = Vec::new();
        loop {
            match call.poll() {
                Output::Do(Action::Ask(op) | Action::Tell(op)) => {
                    let reply = self.pool.apply(now, &op);
                    call.handle(now, Input::Reply { lease: op.lease(), reply });
                }
                Output::Do(Action::Send { attempt, .. }) => {
                    let headers = vec![("content-type".into(), "text/event-stream".into())];
                    call.handle(now, Input::Head { attempt, head: Head { status: 200, headers, unix_ms: 0 } });
                    for chunk in chunks {
                        call.handle(now, Input::Chunk { attempt, bytes: Bytes::copy_from_slice(chunk) });
                    }
                    call.handle(
                        now,
                        match fault {
                            Some(fault) => Input::Fault { attempt, fault },
                            None => Input::End { attempt },
                        },
                    );
                }
                Output::Do(Action::Forward(bytes)) => {
                    client.extend_from_slice(&bytes);
                    call.handle(now, Input::Flushed);
                }
                Output::Do(Action::Finish(end)) => return (client, end),
                Output::Do(_) => {}
                Output::Wait(_) => panic!("everything was told"),
            }
        }
    }
}

fn check(bench: &mut Bench, name: &str, format: Format, stream: &[u8], cut: usize) {
    let whole = Oracle::events(format, stream);
    let (told, good) = Oracle::cut(format, &stream[..cut], &whole);
    let commits = told.iter().any(|event| matches!(event.1, "Content" | "Stop" | "Finish"));
    let end_of_last = told.last().map_or(0, |last| last.0);
    let sent = &stream[..cut];
    let chance: Vec<&[u8]> = sent.chunks(1 + cut % 61).collect();
    let bytes: Vec<&[u8]> = sent.chunks(1).collect();
    for (way, chunks, fault) in [
        ("at once", vec![sent], None),
        ("at once, reset", vec![sent], Some(Fault::Reset)),
        ("in slices", chance, None),
        ("byte by byte", bytes, None),
    ] {
        let chunks: Vec<&[u8]> = chunks.into_iter().filter(|chunk| !chunk.is_empty()).collect();
        let (client, end) = bench.run(format, &chunks, fault);
        let context = || format!("{name} cut at {cut} {way}: {end:?}");
        if !commits {
            let is_answer = matches!(&end, End::Answer(answer) if answer.status == 502);
            assert!(client.is_empty() && is_answer, "{}", context());
            continue;
        }
        assert!(client.starts_with(&stream[..end_of_last]), "{}", context());
        let added = String::from_utf8_lossy(&client[end_of_last..]).into_owned();
        if good {
            assert_eq!(end, End::Complete, "{}", context());
            assert!(added.len() <= 2 && added.chars().all(|c| c == '\n'), "{} added {added:?}", context());
        } else {
            assert_eq!(end, End::Incomplete(Incomplete::Cut), "{}", context());
            let told = added.trim_start_matches('\n');
            assert!(told.contains("stream_incomplete") && told.ends_with("\n\n"), "{} added {added:?}", context());
            assert_eq!(told.matches("data:").count(), 1, "{} added {added:?}", context());
        }
    }
}

#[test]
fn the_client_gets_the_whole_events_of_every_cut_and_one_loud_end() {
    let mut bench = Bench::new();
    for path in recordings("_stream.txt") {
        let format = format_of(&path).expect("a stream's format");
        let stream = std::fs::read(&path).expect("a recording");
        let name = path.display().to_string();
        // Every cut of a short recording; of a long one, whose cuts are alike, a prime's multiples and the end.
        let step = if stream.len() < 2500 { 1 } else { (stream.len() / 300) | 1 };
        for cut in (0..stream.len()).step_by(step).chain([stream.len()]) {
            check(&mut bench, &name, format, &stream, cut);
        }
    }
}
