//! A scripted world: upstreams that follow a list of steps, a real pool, a clock.

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use alloc::{format, vec};

use bytes::Bytes;

use crate::call::Call;
use crate::event::{Action, Answer, CancelCause, Commit, End, Fault, Head, Input, Output, What, Why};
use crate::id::{AttemptNo, CallId, Choice};
use crate::policy::{
    CallPolicy, Candidate, EmptyCompletion, Place, Plan, ProviderPolicy, Retry, Route, Rules, Secret, Timeouts, Window,
};
use crate::pool::{Entry, Op, Pool, Roster, Settings, SourceSpec, Strategy, TargetSpec};
use crate::time::{Span, Time};
use crate::trace::Recorder;
use crate::wire::Format;

/// One step of an upstream.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Head(u16),
    HeadWith(u16, Vec<(&'static str, &'static str)>),
    Say(String),
    Wait(u64),
    End,
    Fault(Fault),
}

/// A whole answer.
pub(crate) fn body(status: u16, text: &str) -> Vec<Step> {
    vec![Step::HeadWith(status, vec![("content-type", "application/json")]), Step::Say(text.into()), Step::End]
}

/// A stream of these pieces, ending cleanly.
pub(crate) fn sse(pieces: &[&str]) -> Vec<Step> {
    let mut steps = vec![Step::HeadWith(200, vec![("content-type", "text/event-stream")])];
    steps.extend(pieces.iter().map(|piece| Step::Say((*piece).to_string())));
    steps.push(Step::End);
    steps
}

/// A 429 that names its wait.
pub(crate) fn limited(wait_ms: &'static str) -> Vec<Step> {
    vec![Step::HeadWith(429, vec![("retry-after-ms", wait_ms)]), Step::Say(error("slow down")), Step::End]
}

pub(crate) fn error(message: &str) -> String {
    format!(r#"{{"error":{{"message":"{message}","type":"upstream_failure","param":null,"code":null}}}}"#)
}

pub(crate) fn answer_body(text: &str) -> String {
    format!(
        r#"{{"id":"c","object":"chat.completion","choices":[{{"index":0,"message":{{"role":"assistant","content":{}}},"finish_reason":"stop"}}],"usage":{{"total_tokens":11}}}}"#,
        serde_json::Value::from(text)
    )
}

pub(crate) fn delta(text: &str) -> String {
    format!(
        "data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
    )
}

pub(crate) const ROLE: &str = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n";
pub(crate) const STOP: &str =
    "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
pub(crate) const DONE: &str = "data: [DONE]\n\n";
pub(crate) const OVERLOADED: &str =
    "data: {\"error\":{\"message\":\"overloaded\",\"type\":\"overloaded_error\",\"param\":null,\"code\":null}}\n\n";

pub(crate) fn policy() -> CallPolicy {
    CallPolicy {
        sticky_key_attempts: 1,
        max_transfer_count: 0,
        max_transfer_timeout: Span::ZERO,
        max_attempts: 3,
        max_attempts_hard: 64,
        max_wait: Span::from_secs(30),
        deadline: Span::ZERO,
        empty_completion: EmptyCompletion::Failover,
        structured_max_retries: 2,
        rules: Rules::default(),
        retry: Retry {
            initial: Span::from_millis(500),
            max: Span::from_secs(30),
            factor_milli: 2000,
            jitter_ppm: 0,
            stream: true,
        },
        window: Window { max_bytes: 262_144, max_events: 4096 },
        stall_window: Span::from_secs(120),
        slow_call: Span::ZERO,
    }
}

pub(crate) fn provider(name: &str) -> ProviderPolicy {
    ProviderPolicy {
        name: name.into(),
        max_transfer_count: 0,
        max_transfer_timeout: Span::ZERO,
        stop_on_transport_errors: false,
        continue_status_codes: Vec::new(),
        stop_status_codes: Vec::new(),
        retry_on_errors: Vec::new(),
        rules: Rules::default(),
    }
}

/// A world of upstreams u1, u2 … each a provider with one key.
pub(crate) struct World {
    pub(crate) pool: Pool,
    pub(crate) policy: CallPolicy,
    pub(crate) strategy: Strategy,
    pub(crate) providers: Vec<ProviderPolicy>,
    pub(crate) max_concurrency: u32,
    pub(crate) timeouts: Timeouts,
    pub(crate) format: Format,
    pub(crate) stream: bool,
    pub(crate) structured: bool,
    pub(crate) replay_safe: bool,
    /// The replies of each upstream: to the 1st, 2nd … request; the last repeats.
    pub(crate) scripts: Vec<Vec<Vec<Step>>>,
    pub(crate) asked: Vec<usize>,
    pub(crate) now: Time,
    /// Records the next call.
    pub(crate) recorder: Option<Recorder>,
    pub(crate) calls: u64,
}

/// What became of a call.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) sent: Vec<(u16, Why)>,
    pub(crate) commit: Option<Commit>,
    pub(crate) body: Vec<u8>,
    pub(crate) end: End,
    pub(crate) codes: Vec<&'static str>,
    pub(crate) notices: Vec<What>,
    pub(crate) took: Span,
    pub(crate) actions: Vec<Action>,
}

impl Outcome {
    pub(crate) fn text(&self) -> &str {
        core::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn order(&self) -> Vec<u16> {
        self.sent.iter().map(|(choice, _)| choice + 1).collect()
    }

    pub(crate) fn answer(&self) -> &Answer {
        match &self.end {
            End::Answer(answer) => answer,
            other => panic!("an answer in place of a commit was expected, the end is {other:?}"),
        }
    }

    pub(crate) fn served_by(&self) -> u16 {
        self.commit.expect("a commit").choice.0 + 1
    }

    pub(crate) fn has(&self, code: &str) -> bool {
        self.codes.contains(&code)
    }
}

impl World {
    pub(crate) fn new(scripts: Vec<Vec<Vec<Step>>>) -> World {
        let count = scripts.len();
        World {
            pool: Pool::new(Settings::default()),
            policy: policy(),
            strategy: Strategy::Priority,
            providers: (0..count).map(|i| provider(&format!("u{}", i + 1))).collect(),
            max_concurrency: 0,
            timeouts: Timeouts {
                connect: Span::from_secs(10),
                first_byte: Span::from_secs(120),
                first_content: Span::ZERO,
                idle: Span::from_secs(300),
                total: Span::from_secs(600),
            },
            format: Format::Chat,
            stream: false,
            structured: false,
            replay_safe: true,
            scripts,
            asked: vec![0; count],
            now: Time::from_millis(1),
            recorder: None,
            calls: 0,
        }
    }

    pub(crate) fn streams(scripts: Vec<Vec<Vec<Step>>>) -> World {
        World { stream: true, ..World::new(scripts) }
    }

    pub(crate) fn plan(&mut self) -> Plan {
        let mut entries = Vec::new();
        let mut candidates = Vec::new();
        for (index, provider) in self.providers.iter().enumerate() {
            let source = format!("{}/k", provider.name);
            let spec = TargetSpec {
                name: &format!("{source}/up"),
                provider: &provider.name,
                model: "up",
                source: SourceSpec {
                    name: &source,
                    account: &source,
                    max_concurrency: self.max_concurrency,
                    rpm: 0,
                    tpm: 0,
                },
            };
            let (target, source_id) = self.pool.register(&spec);
            let tier = if self.strategy == Strategy::Priority { index as u16 } else { 0 };
            entries.push(Entry { target, tier });
            candidates.push(Candidate {
                source: source_id,
                source_name: source.as_str().into(),
                provider: Arc::new(provider.clone()),
                place: Place::default(),
                model: "up".into(),
                timeouts: self.timeouts.clone(),
                secret: Secret::new("sk-very-secret"),
            });
        }
        let roster = Arc::new(Roster { id: 0, strategy: self.strategy, entries });
        Plan {
            route: Arc::new(Route { model: "m".into(), policy: Arc::new(self.policy.clone()), candidates, roster }),
            format: self.format,
            stream: self.stream,
            include_usage: false,
            structured: self.structured,
            replay_safe: self.replay_safe,
            tokens: 10,
        }
    }

    pub(crate) fn call(&mut self) -> Call {
        self.calls += 1;
        let plan = self.plan();
        Call::new(plan, CallId(self.calls), 7 + self.calls, self.now)
    }

    pub(crate) fn run(&mut self) -> Outcome {
        self.run_until(None)
    }

    /// Runs a call to its end; at `cancel` the client leaves.
    pub(crate) fn run_until(&mut self, cancel: Option<(Time, CancelCause)>) -> Outcome {
        let call = self.call();
        self.drive(call, cancel)
    }

    /// Runs a call under a plan of the test's own.
    pub(crate) fn run_plan(&mut self, plan: Plan) -> Outcome {
        self.calls += 1;
        let call = Call::new(plan, CallId(self.calls), 7 + self.calls, self.now);
        self.drive(call, None)
    }

    pub(crate) fn drive(&mut self, mut call: Call, mut cancel: Option<(Time, CancelCause)>) -> Outcome {
        let started = self.now;
        let mut out = Outcome {
            sent: vec![],
            commit: None,
            body: vec![],
            end: End::Complete,
            codes: vec![],
            notices: vec![],
            took: Span::ZERO,
            actions: vec![],
        };
        let mut live: Option<(AttemptNo, VecDeque<Step>)> = None;
        let mut due = Time::ZERO;
        for _ in 0..100_000 {
            let wake = match call.poll() {
                Output::Do(action) => {
                    out.actions.push(action.clone());
                    if let Some(recorder) = &mut self.recorder {
                        recorder.action(&action);
                    }
                    match action {
                        Action::Ask(op) | Action::Tell(op) => {
                            let lease = op.lease();
                            let reply = self.pool.apply(self.now, &op);
                            self.tell(&mut call, Input::Reply { lease, reply });
                            assert!(self.pool.pop_granted().is_none(), "one call at a time: nobody queues");
                        }
                        Action::Send { attempt, choice: Choice(choice), why } => {
                            assert!(live.is_none(), "S3: one live attempt a call");
                            assert!(out.commit.is_none(), "S2: no send after the commit");
                            out.sent.push((choice, why));
                            live = Some((attempt, self.script(usize::from(choice))));
                            due = self.now;
                        }
                        Action::Abort(attempt) => {
                            assert_eq!(live.take().map(|(no, _)| no), Some(attempt));
                        }
                        Action::Commit(commit) => assert!(out.commit.replace(commit).is_none(), "one commit"),
                        Action::Forward(bytes) => {
                            assert!(out.commit.is_some(), "nothing leaves before the commit");
                            out.body.extend_from_slice(&bytes);
                            self.tell(&mut call, Input::Flushed);
                        }
                        Action::Judged(_) => {}
                        Action::Notice(notice) => {
                            out.codes.push(notice.what.code());
                            out.notices.push(notice.what);
                        }
                        Action::Finish(end) => {
                            assert_eq!(call.poll(), Output::Wait(None), "S10: the finish is the last action");
                            out.end = end;
                            out.took = self.now.since(started);
                            return out;
                        }
                    }
                    continue;
                }
                Output::Wait(wake) => wake.map_or(Time::NEVER, |wake| wake.at),
            };
            let step_at = if live.as_ref().is_some_and(|(_, steps)| !steps.is_empty()) { due } else { Time::NEVER };
            let cancel_at = cancel.map_or(Time::NEVER, |(at, _)| at);
            let next = wake.min(step_at).min(cancel_at);
            assert_ne!(next, Time::NEVER, "the call hangs in {:?}", call.phase());
            self.now = self.now.max(next);
            if cancel_at <= self.now {
                let (_, cause) = cancel.take().unwrap();
                self.tell(&mut call, Input::Cancel(cause));
            } else if step_at <= self.now {
                let (attempt, steps) = live.as_mut().unwrap();
                let attempt = *attempt;
                let step = steps.pop_front().unwrap();
                match step {
                    Step::Wait(ms) => due = self.now.after(Span::from_millis(ms)),
                    step => {
                        if matches!(step, Step::End | Step::Fault(_)) {
                            live = None;
                        }
                        self.tell(&mut call, input(attempt, step));
                    }
                }
            } else {
                self.tell(&mut call, Input::Tick);
            }
        }
        panic!("the call does not end: {:?}", call.phase());
    }

    fn tell(&mut self, call: &mut Call, input: Input) {
        if let Some(recorder) = &mut self.recorder {
            recorder.input(self.now, &input);
        }
        call.handle(self.now, input);
    }

    fn script(&mut self, choice: usize) -> VecDeque<Step> {
        let replies = &self.scripts[choice];
        let steps = replies[self.asked[choice].min(replies.len() - 1)].clone();
        self.asked[choice] += 1;
        steps.into()
    }

    pub(crate) fn inflight(&self) -> u32 {
        self.pool.views(self.now).map(|view| view.inflight).sum()
    }
}

pub(crate) fn input(attempt: AttemptNo, step: Step) -> Input {
    match step {
        Step::Head(status) => Input::Head { attempt, head: Head { status, ..Head::default() } },
        Step::HeadWith(status, headers) => {
            let headers = headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
            Input::Head { attempt, head: Head { status, headers, unix_ms: 1_760_000_000_000 } }
        }
        Step::Say(text) => Input::Chunk { attempt, bytes: Bytes::from(text) },
        Step::End => Input::End { attempt },
        Step::Fault(fault) => Input::Fault { attempt, fault },
        Step::Wait(_) => Input::Tick,
    }
}

/// A plan's lease operations, for assertions.
pub(crate) fn settled(outcome: &Outcome) -> usize {
    outcome.actions.iter().filter(|action| matches!(action, Action::Tell(Op::Settle(_)))).count()
}
