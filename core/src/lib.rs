//! Surefoot's core decides, for every LLM request, which source to try, whether what comes back is good, when to try
//! again and where, and the exact moment from which the client owns the answer. It has no clock, no socket, no thread
//! and no chance of its own: time, bytes and randomness come in as data.
//!
//! # The contract
//!
//! A [`Call`](call::Call) is one request. It is driven by one law:
//!
//! > **Give it one input, then poll until it says wait; then sleep for that one thing.**
//!
//! [`handle`](call::Call::handle) takes any input at any time and returns nothing, [`poll`](call::Call::poll) yields what
//! is to be done, in order, until it yields [`Wait`](event::Output::Wait) with the time of the next
//! [`Tick`](event::Input::Tick). After [`Finish`](event::Action::Finish) nothing follows. Whatever a peer sends is data:
//! no input is an error, none can panic it. The [`Pool`](pool::Pool) is what calls share; it answers at once.
//!
//! ```
//! use std::sync::Arc;
//! use surefoot_core::event::{Action, End, Head, Input, Output};
//! use surefoot_core::gateway::{Gateway, Operation, models::Inventory, pool_settings};
//! use surefoot_core::{call::Call, id::CallId, policy::config, pool::Pool, time::Time};
//!
//! // A configuration is a tree; here is one provider, asked twice before the call gives up.
//! let tree = serde_json::json!({
//!     "providers": [{ "name": "one", "formats": ["chat"], "base_url": "http://127.0.0.1:9/v1",
//!                     "models": ["m"], "keys": [{ "value": "sk-1" }] }],
//!     "discovery": { "configured_models_mode": "allowlist" },
//! });
//! let config = Arc::new(config::read(&tree, &|_| None).map_err(|problems| format!("{problems:?}"))?);
//! let mut now = Time::ZERO;
//! let mut pool = Pool::new(pool_settings(&config));
//! let gateway = Gateway::build(config.clone(), &Inventory::new(&config, now), &mut pool);
//!
//! let request = br#"{"model":"one/m","messages":[{"role":"user","content":"Hi"}]}"#;
//! let planned = gateway.plan(Operation::ChatCompletions, None, None, request, "req-1").expect("a good request");
//! let mut call = Call::new(planned.plan, CallId(1), 42, now);
//!
//! // What the upstream answers to the first and the second attempt.
//! let good: &[u8] = br#"{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}"#;
//! let mut answers = vec![(503, &b"{}"[..]), (200, good)].into_iter();
//! let mut client = Vec::new();
//!
//! let end = loop {
//!     match call.poll() {
//!         Output::Do(Action::Ask(op) | Action::Tell(op)) => {
//!             let reply = pool.apply(now, &op);
//!             call.handle(now, Input::Reply { lease: op.lease(), reply });
//!         }
//!         Output::Do(Action::Send { attempt, .. }) => {
//!             let (status, body) = answers.next().expect("two attempts");
//!             call.handle(now, Input::Head { attempt, head: Head { status, ..Head::default() } });
//!             call.handle(now, Input::Chunk { attempt, bytes: body.into() });
//!             call.handle(now, Input::End { attempt });
//!         }
//!         Output::Do(Action::Forward(bytes)) => {
//!             client.extend_from_slice(&bytes);
//!             call.handle(now, Input::Flushed);
//!         }
//!         Output::Do(Action::Finish(end)) => break end,
//!         Output::Do(Action::Commit(_) | Action::Abort(_) | Action::Notice(_) | Action::Judged(_)) => {}
//!         Output::Wait(Some(wake)) => {
//!             now = wake.at;
//!             call.handle(now, Input::Tick);
//!         }
//!         Output::Wait(None) => unreachable!("every attempt was answered"),
//!     }
//! };
//! assert_eq!(end, End::Complete);
//! assert_eq!(client, good);
//! # Ok::<(), String>(())
//! ```
//!
//! [`drive`] holds this loop for adapters that poll, as a body of a real server does.
//!
//! # The map
//!
//! | module | holds |
//! |---|---|
//! | [`event`] | the vocabulary: inputs, actions, notices, reasons |
//! | [`call`] | one request: phases, attempts, the window, budgets, the commit |
//! | [`pool`] | what calls share: order (health, pace) and gate (breaker, limits, leases) |
//! | [`policy`] | what a configuration means; [`policy::config`] reads and checks one |
//! | [`wire`] | event streams, each protocol's events and bodies, errors in and out |
//! | [`gateway`] | from a request's head and body to a plan or an answer; models, health |
//! | [`drive`] | the action loop over a `Host` |
//! | [`trace`] | what a call heard and did, a line each; redaction and replay |
//! | [`mutants`] | planted bugs that the simulator must find; none without their feature |
//! | [`time`], [`rng`], [`id`], [`outcome`] | the small change |
//!
//! Row ids such as F15 or G12 name rows of the project's contract; tests carry the same.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

pub mod call;
#[cfg(feature = "drive")]
pub mod drive;
pub mod event;
pub mod gateway;
pub mod id;
pub mod mutants;
pub mod outcome;
pub mod policy;
pub mod pool;
pub mod rng;
pub mod time;
pub mod trace;
pub mod wire;
