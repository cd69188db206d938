//! The core as an oracle: what would it do if the providers answered so? No socket, no clock; answers come from a file.
//!
//! `oracle GATEWAY.json SCRIPT`. A line of the script is one of
//!
//! | line | says |
//! |---|---|
//! | `request {JSON}` | the client's request; the first line |
//! | `attempt` | what follows is said by the next attempt's upstream |
//! | `status 429 retry-after: 2; content-type: text/html` | its head |
//! | `data {JSON}` | one event of a stream; `data [DONE]` too |
//! | `body {…}` | bytes of a body as they stand |
//! | `after 1500` | so many milliseconds later |
//! | `fault reset` | it breaks; the words are those of the trace |
//! | `end` | its body is complete |
//!
//! Empty lines and lines that begin with `#` say nothing. An attempt whose lines are used up is silent from there on.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use surefoot_core::call::Call;
use surefoot_core::event::{Action, End, Fault, Head, Input, Notice, Output, What};
use surefoot_core::gateway::models::Inventory;
use surefoot_core::gateway::{Gateway, Operation, pool_settings};
use surefoot_core::id::{AttemptNo, CallId};
use surefoot_core::policy::{Route, config};
use surefoot_core::pool::Pool;
use surefoot_core::time::{Span, Time};

/// What an upstream does, in order; the span is how long after what came before.
type Script = VecDeque<(Span, Said)>;

enum Said {
    Head(Head),
    Bytes(Bytes),
    Fault(Fault),
    End,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(config), Some(script)) = (arguments.next(), arguments.next()) else {
        return Err("usage: oracle GATEWAY.json SCRIPT".into());
    };
    let tree = serde_json::from_str(&std::fs::read_to_string(config)?)?;
    let config = Arc::new(config::read(&tree, &|name| std::env::var(name).ok()).map_err(|found| format!("{found:?}"))?);
    let (request, mut scripts) = read(&std::fs::read_to_string(script)?)?;

    let mut pool = Pool::new(pool_settings(&config));
    let gateway = Gateway::build(config.clone(), &Inventory::new(&config, Time::ZERO), &mut pool);
    let planned = gateway.plan(Operation::ChatCompletions, None, None, &request, "oracle");
    let planned = planned.map_err(|answer| String::from_utf8_lossy(&answer.body).into_owned())?;
    let route = planned.plan.route.clone();

    let mut now = Time::ZERO;
    let mut call = Call::new(planned.plan, CallId(1), 1, now);
    let mut live: Option<(AttemptNo, Script)> = None;
    loop {
        match call.poll() {
            Output::Do(Action::Finish(end)) => {
                println!("{}  {}", at(now), ending(&end));
                return Ok(());
            }
            Output::Do(action) => {
                if let Some(words) = words(&action, &route) {
                    println!("{}  {words}", at(now));
                }
                match action {
                    Action::Ask(op) | Action::Tell(op) => {
                        let reply = pool.apply(now, &op);
                        call.handle(now, Input::Reply { lease: op.lease(), reply });
                    }
                    Action::Send { attempt, .. } => live = Some((attempt, scripts.pop_front().unwrap_or_default())),
                    Action::Abort(_) => live = None,
                    Action::Forward(_) => call.handle(now, Input::Flushed),
                    _ => {}
                }
            }
            Output::Wait(wake) => {
                // Whichever comes first: the call's own timer, or what the upstream says next.
                let says = live.as_ref().and_then(|(_, script)| script.front()).map(|(pause, _)| now.after(*pause));
                let ticks = wake.map(|wake| wake.at);
                match (says, ticks) {
                    (Some(says), ticks) if ticks.is_none_or(|ticks| says <= ticks) => {
                        now = says;
                        call.handle(now, next(&mut live).ok_or("an attempt without a script")?);
                    }
                    (_, Some(ticks)) => {
                        if let Some((_, script)) = &mut live
                            && let Some((pause, _)) = script.front_mut()
                        {
                            *pause = Span(pause.0.saturating_sub(ticks.0.saturating_sub(now.0)));
                        }
                        now = ticks;
                        call.handle(now, Input::Tick);
                    }
                    _ => return Err("nothing is awaited any more: this is a defect".into()),
                }
            }
        }
    }
}

/// What the live attempt's upstream says next.
fn next(live: &mut Option<(AttemptNo, Script)>) -> Option<Input> {
    let (attempt, script) = live.as_mut()?;
    let attempt = *attempt;
    Some(match script.pop_front()?.1 {
        Said::Head(head) => Input::Head { attempt, head },
        Said::Bytes(bytes) => Input::Chunk { attempt, bytes },
        Said::Fault(fault) => Input::Fault { attempt, fault },
        Said::End => Input::End { attempt },
    })
}

/// An action in words; `None` for what is only housekeeping.
fn words(action: &Action, route: &Route) -> Option<String> {
    let source = |choice: surefoot_core::id::Choice| {
        let candidate = &route.candidates[usize::from(choice.0)];
        format!("{}/{}", candidate.source_name, candidate.model)
    };
    Some(match action {
        Action::Send { attempt, choice, why } => {
            format!("send       {} ({}, attempt {})", source(*choice), why.as_str(), attempt.0)
        }
        Action::Abort(attempt) => format!("abort      attempt {}", attempt.0),
        Action::Commit(commit) => format!("commit     {} ({})", source(commit.choice), commit.reason.as_str()),
        Action::Forward(bytes) => {
            format!("forward    {} bytes: {}", bytes.len(), shortened(&String::from_utf8_lossy(bytes)))
        }
        Action::Notice(notice) => told(notice)?,
        Action::Ask(_) | Action::Tell(_) | Action::Judged(_) | Action::Finish(_) => return None,
    })
}

fn told(notice: &Notice) -> Option<String> {
    let words = match &notice.what {
        What::AttemptStarted { .. } | What::Commit { .. } => return None,
        What::AttemptEnded { outcome, reason, .. } => format!("{} ({})", outcome.as_str(), reason.as_str()),
        What::Paced { why, until } => format!("{}, until {until} at most", why.as_str()),
        What::StreamIncomplete { reason } => reason.as_str().to_owned(),
        _ => String::new(),
    };
    Some(format!("notice     {} {words}", notice.what.code()).trim_end().to_owned())
}

fn ending(end: &End) -> String {
    match end {
        End::Answer(answer) => {
            format!("answer     {} {}", answer.status, shortened(&String::from_utf8_lossy(&answer.body)))
        }
        End::Complete => "end        complete".into(),
        End::Incomplete(reason) => format!("end        incomplete ({})", reason.as_str()),
        other => format!("end        {}", other.outcome().as_str()),
    }
}

fn at(now: Time) -> String {
    format!("{:>8} ms", now.0 / 1000)
}

fn shortened(text: &str) -> String {
    let line: String = text.replace('\n', "⏎").chars().take(60).collect();
    if line.chars().count() < text.chars().count() { line + "…" } else { line }
}

/// The request, and what each attempt's upstream says.
fn read(text: &str) -> Result<(Bytes, VecDeque<Script>), Box<dyn Error>> {
    let (mut request, mut scripts, mut pause) = (None, VecDeque::new(), Span::ZERO);
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let wrong = |what: &str| format!("line {}: {what}", number + 1);
        let said = match word {
            "request" => {
                request = Some(Bytes::copy_from_slice(rest.as_bytes()));
                continue;
            }
            "attempt" => {
                scripts.push_back(Script::new());
                pause = Span::ZERO;
                continue;
            }
            "after" => {
                pause = Span::from_millis(rest.parse().map_err(|_| wrong("milliseconds are wanted"))?);
                continue;
            }
            "status" => {
                Said::Head(head(rest).ok_or_else(|| wrong("a status is wanted, and `name: value` pairs behind it"))?)
            }
            "data" => Said::Bytes(format!("data: {rest}\n\n").into()),
            "body" => Said::Bytes(Bytes::copy_from_slice(rest.as_bytes())),
            "end" => Said::End,
            "fault" => {
                let known = Fault::ALL.into_iter().find(|fault| fault.as_str() == rest);
                Said::Fault(known.ok_or_else(|| wrong(&format!("faults are {:?}", Fault::ALL.map(Fault::as_str))))?)
            }
            _ => return Err(wrong(&format!("`{word}` is not known here")).into()),
        };
        let script = scripts.back_mut().ok_or_else(|| wrong("`attempt` comes before what its upstream says"))?;
        script.push_back((std::mem::replace(&mut pause, Span::ZERO), said));
    }
    Ok((request.ok_or("the script has no request")?, scripts))
}

fn head(text: &str) -> Option<Head> {
    let (status, headers) = text.split_once(' ').unwrap_or((text, ""));
    let header = |pair: &str| pair.split_once(':').map(|(name, value)| (name.trim().into(), value.trim().into()));
    let pairs = headers.split(';').filter(|pair| !pair.trim().is_empty());
    Some(Head { status: status.parse().ok()?, headers: pairs.map(header).collect::<Option<_>>()?, unix_ms: 0 })
}
