//! After the commit a chunk goes through the core without an allocation and without a copy of a payload byte (F16).
#![allow(unsafe_code)] // A counting allocator cannot be had without.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use surefoot_core::call::{Call, Phase};
use surefoot_core::event::{Action, Head, Input, Output};
use surefoot_core::gateway::models::Inventory;
use surefoot_core::gateway::{Gateway, Operation, pool_settings};
use surefoot_core::id::{AttemptNo, CallId};
use surefoot_core::policy::config;
use surefoot_core::pool::Pool;
use surefoot_core::time::{Span, Time};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: hands everything to the system's allocator; counting touches a thread-local number without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Each protocol: its route, what opens and commits a stream, and what then comes again and again.
const STREAMS: [(Operation, &str, &str, &str); 3] = [
    (
        Operation::ChatCompletions,
        "chat",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n",
        "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a \\\"quoted\\\" line\\n\",\"x\":[{\"y\":[1,{}]}]},\"finish_reason\":null}],\"usage\":null}\n\n",
    ),
    (
        Operation::Responses,
        "responses",
        "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":1,\"delta\":\"Hi\"}\n\n",
        "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":2,\"delta\":\"more \\u00e9\",\"logprobs\":[[]]}\n\n",
    ),
    (
        Operation::Messages,
        "messages",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"more\\n\"}}\n\n",
    ),
];

fn committed(operation: Operation, format: &str, opening: &str, now: Time) -> Call {
    let tree = serde_json::json!({
        "providers": [{ "name": "one", "formats": [format], "base_url": "http://127.0.0.1:9/v1", "models": ["m"],
                        "keys": [{ "value": "sk-1" }] }],
        "discovery": { "configured_models_mode": "allowlist" },
    });
    let config = Arc::new(config::read(&tree, &|_| None).unwrap());
    let mut pool = Pool::new(pool_settings(&config));
    let gateway = Gateway::build(config.clone(), &Inventory::new(&config, now), &mut pool);
    let body = br#"{"model":"one/m","stream":true,"max_tokens":9,"input":"x","messages":[]}"#;
    let planned = gateway.plan(operation, None, None, body, "r").unwrap();
    let mut call = Call::new(planned.plan, CallId(1), 1, now);
    let attempt = AttemptNo(0);
    loop {
        match call.poll() {
            Output::Do(Action::Ask(op)) => {
                let reply = pool.apply(now, &op);
                call.handle(now, Input::Reply { lease: op.lease(), reply });
            }
            Output::Do(Action::Send { .. }) => {
                let headers = vec![("content-type".into(), "text/event-stream".into())];
                call.handle(now, Input::Head { attempt, head: Head { status: 200, headers, unix_ms: 0 } });
                call.handle(now, Input::Chunk { attempt, bytes: Bytes::copy_from_slice(opening.as_bytes()) });
            }
            Output::Do(Action::Forward(_)) => call.handle(now, Input::Flushed),
            Output::Do(_) => {}
            Output::Wait(_) => break,
        }
    }
    assert_eq!(call.phase(), Phase::Streaming);
    call
}

/// Feeds a chunk and takes what comes out of it; true when every piece lies within `home`.
fn pass(call: &mut Call, now: Time, bytes: Bytes, home: &Bytes) -> (usize, bool) {
    let (mut passed, mut at_home) = (0, true);
    call.handle(now, Input::Chunk { attempt: AttemptNo(0), bytes });
    while let Output::Do(action) = call.poll() {
        let Action::Forward(piece) = action else { panic!("nothing but forwarding follows the commit") };
        let start = home.as_ptr() as usize;
        at_home &= piece.as_ptr() as usize >= start && piece.as_ptr() as usize + piece.len() <= start + home.len();
        passed += piece.len();
        call.handle(now, Input::Flushed);
    }
    (passed, at_home)
}

#[test]
fn forwarding_allocates_nothing_and_copies_nothing() {
    for (operation, format, opening, event) in STREAMS {
        let now = Time::from_millis(1);
        // Many events in one buffer, cut into chunks of every awkward size: whole events, torn ones, several in one.
        let home = Bytes::from(event.repeat(400));
        for size in [event.len(), event.len() * 3, event.len() / 2 + 1, 7] {
            let mut call = committed(operation, format, opening, now);
            let mut later = now;
            let mut left = home.clone();
            let mut passed = 0;
            let mut counted = 0;
            let mut fed = 0;
            while !left.is_empty() {
                let chunk = left.split_to(size.min(left.len()));
                later = later.after(Span::from_millis(20));
                let before = ALLOCATIONS.with(Cell::get);
                let (bytes, at_home) = pass(&mut call, later, chunk, &home);
                // The first tenth warms queues and scratch buffers up.
                if fed > home.len() / 10 {
                    counted += ALLOCATIONS.with(Cell::get) - before;
                }
                fed += size;
                assert!(at_home, "{format}: a forwarded byte lies outside the upstream's buffer");
                passed += bytes;
            }
            assert_eq!(passed, home.len(), "{format}: whole events pass at once");
            assert_eq!(counted, 0, "{format}: allocations while forwarding chunks of {size} bytes");
        }
    }
}
