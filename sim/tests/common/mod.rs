//! Traces made to order: the real core records what scripted upstreams make of it, one call after the other.

use std::sync::Arc;

use bytes::Bytes;
use surefoot_core::call::{Call, Judge};
use surefoot_core::event::{Action, CancelCause, Head, Input, Output};
use surefoot_core::gateway::models::Inventory;
use surefoot_core::gateway::{Gateway, Operation, pool_settings};
use surefoot_core::id::{AttemptNo, CallId};
use surefoot_core::policy::config::{self, TraceMode};
use surefoot_core::pool::Pool;
use surefoot_core::time::{Span, Time};
use surefoot_core::trace::{Policies, Recorder, Start};

/// What an upstream does: after so long, this status and this body. Without a status it stays silent.
pub(crate) struct Reply {
    pub(crate) after: Span,
    pub(crate) status: Option<u16>,
    pub(crate) body: &'static str,
}

pub(crate) const GOOD: &str = r#"{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"well"},"finish_reason":"stop"}],"usage":{"total_tokens":20}}"#;
pub(crate) const ERROR: &str = r#"{"error":{"message":"no luck","type":"server_error"}}"#;

impl Reply {
    pub(crate) fn good(after_ms: u64) -> Reply {
        Reply { after: Span::from_millis(after_ms), status: Some(200), body: GOOD }
    }

    pub(crate) fn error(status: u16, after_ms: u64) -> Reply {
        Reply { after: Span::from_millis(after_ms), status: Some(status), body: ERROR }
    }

    pub(crate) fn silence() -> Reply {
        Reply { after: Span::ZERO, status: None, body: "" }
    }
}

/// Records so many calls of model `m`, `gap` apart or later where one takes longer. `upstream` is told the source, the time
/// and the call; a call's client leaves after `patience`.
pub(crate) fn record(
    tree: &serde_json::Value,
    mode: TraceMode,
    calls: u64,
    gap: Span,
    patience: Span,
    upstream: impl Fn(&str, Time, u64) -> Reply,
) -> String {
    let config = Arc::new(config::read(tree, &|_| None).expect("a good configuration"));
    let mut pool = Pool::new(pool_settings(&config));
    let gateway = Gateway::build(config.clone(), &Inventory::new(&config, Time::ZERO), &mut pool);
    let (mut policies, mut file, mut now) = (Policies::new(), String::new(), Time::from_millis(1000));
    for number in 1..=calls {
        now = now.max(Time(1_000_000 + gap.0 * number));
        let body = br#"{"model":"m","messages":[],"max_tokens":100}"#;
        let plan = gateway.plan(Operation::ChatCompletions, None, None, body, "r").expect("a plan").plan;
        let request_id = format!("req-{number}");
        let start = Start {
            id: CallId(number),
            seed: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            now,
            request_id: &request_id,
            unix_ms: 1_700_000_000_000 + now.0 / 1000,
        };
        let mut recorder = Recorder::new(mode, &mut policies, &plan, &start).expect("it is traced");
        let route = plan.route.clone();
        let call = Call::new(plan, start.id, start.seed, now).with_request_id(&request_id);
        let mut call = call.with_judge(Judge::Telling);
        let leaves = now.after(patience);
        let mut coming: Option<(Time, AttemptNo, Reply)> = None;
        loop {
            let input = match call.poll() {
                Output::Do(action) => {
                    recorder.action(&action);
                    match action {
                        Action::Ask(op) | Action::Tell(op) => {
                            let reply = pool.apply(now, &op);
                            Input::Reply { lease: op.lease(), reply }
                        }
                        Action::Send { attempt, choice, .. } => {
                            let source = &route.candidates[usize::from(choice.0)].source_name;
                            let reply = upstream(source, now, number);
                            let at = if reply.status.is_some() { now.after(reply.after) } else { Time::NEVER };
                            coming = Some((at, attempt, reply));
                            continue;
                        }
                        Action::Abort(_) => {
                            coming = None;
                            continue;
                        }
                        Action::Forward(_) => Input::Flushed,
                        Action::Finish(_) => break,
                        _ => continue,
                    }
                }
                Output::Wait(wake) => {
                    let next = coming.as_ref().map_or(Time::NEVER, |(at, ..)| *at);
                    let wake = wake.map_or(Time::NEVER, |wake| wake.at);
                    now = next.min(wake).min(leaves);
                    assert_ne!(now, Time::NEVER, "nothing comes any more");
                    if now == leaves {
                        Input::Cancel(CancelCause::ClientGone)
                    } else if next > wake {
                        Input::Tick
                    } else {
                        let (_, attempt, reply) = coming.take().expect("it comes");
                        let headers = vec![("content-type".into(), "application/json".into())];
                        let head = Head { status: reply.status.unwrap_or(0), headers, unix_ms: 0 };
                        for input in [
                            Input::Head { attempt, head },
                            Input::Chunk { attempt, bytes: Bytes::from_static(reply.body.as_bytes()) },
                        ] {
                            recorder.input(now, &input);
                            call.handle(now, input);
                        }
                        Input::End { attempt }
                    }
                }
            };
            recorder.input(now, &input);
            call.handle(now, input);
        }
        file.push_str(&recorder.take());
    }
    file
}

/// Two providers, `a` before `b`, under this policy.
pub(crate) fn two_sources(policy: serde_json::Value) -> serde_json::Value {
    let provider = |name: &str| {
        serde_json::json!({ "name": name, "formats": ["chat"], "base_url": "http://x.invalid/v1",
                            "keys": [{ "name": "k", "value": format!("sk-{name}") }] })
    };
    let mut tree = serde_json::json!({
        "providers": [provider("a"), provider("b")],
        "models": [{ "name": "m", "targets": ["a/x", "b/x"] }],
    });
    for (section, value) in policy.as_object().expect("a table") {
        tree[section] = value.clone();
    }
    tree
}
