//! Every phase × every input: what comes of it, as a table. An input that a phase does not know is dropped, never a
//! panic; nothing follows a finish.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::fmt::Write;

use super::harness::*;
use crate::call::{Call, Phase};
use crate::event::{Action, CancelCause, Fault, Input, Output};
use crate::id::{AttemptNo, Choice, LeaseId};
use crate::pool::{Op, Refusal, Reply};
use crate::time::{Span, Time};

const LATER: Time = Time::from_millis(10_000_000);

/// A fresh call in `phase`, and its time.
fn call_in(phase: Phase) -> (Call, Time, LeaseId) {
    let mut world = World::streams(vec![vec![], vec![]]);
    world.stream = !matches!(phase, Phase::Body);
    if phase == Phase::Passing {
        world.format = crate::wire::Format::Raw;
    }
    let now = world.now;
    let mut call = world.call();
    let lease = match call.poll() {
        Output::Do(Action::Ask(op)) => op.lease(),
        other => panic!("asks first, not {other:?}"),
    };
    let granted = Reply::Granted { choice: Choice(0), probe: false, change: None };
    let stream = || Step::HeadWith(200, vec![("content-type", "text/event-stream")]);
    let say = |text: &str| Step::Say(text.into());
    let steps: Vec<Step> = match phase {
        Phase::Asking => return (call, now, lease),
        Phase::Waiting => {
            let refused = Reply::Refused { why: Refusal::Full, after: None, soonest: None, progress: now };
            call.handle(now, Input::Reply { lease, reply: refused });
            drain(&mut call);
            return (call, now, lease);
        }
        Phase::Opening => vec![],
        Phase::Sniffing => vec![stream()],
        Phase::Window => vec![stream(), say(ROLE)],
        Phase::Body | Phase::Passing => vec![Step::Head(200)],
        Phase::ErrorBody => vec![Step::Head(503)],
        Phase::Streaming => vec![stream(), say(ROLE), say(&delta("Hi"))],
        Phase::Finished => vec![stream(), say(&delta("Hi")), say(STOP), say(DONE)],
    };
    call.handle(now, Input::Reply { lease, reply: granted });
    drain(&mut call);
    for step in steps {
        call.handle(now, input(AttemptNo(0), step));
        drain(&mut call);
    }
    call.handle(now, Input::Flushed);
    assert_eq!(call.phase(), phase);
    (call, now, lease)
}

fn drain(call: &mut Call) -> String {
    let mut done = Vec::new();
    for _ in 0..1000 {
        match call.poll() {
            Output::Do(action) => {
                done.push(brief(&action));
                if matches!(action, Action::Forward(_)) {
                    call.handle(Time::ZERO, Input::Flushed);
                }
            }
            Output::Wait(_) => return done.join(" "),
        }
    }
    panic!("never waits");
}

fn brief(action: &Action) -> String {
    match action {
        Action::Ask(Op::Reserve(_)) => "ask".into(),
        Action::Ask(_) => "ask?".into(),
        Action::Tell(Op::Settle(settle)) => format!("settle({})", settle.outcome.as_str()),
        Action::Tell(Op::Leave { .. }) => "leave".into(),
        Action::Tell(Op::Renew { .. }) => "renew".into(),
        Action::Tell(Op::Reserve(_)) => "tell?".into(),
        Action::Send { choice, why, .. } => format!("send({choice},{})", why.as_str()),
        Action::Abort(_) => "abort".into(),
        Action::Commit(commit) => format!("commit({})", commit.reason.as_str()),
        Action::Forward(bytes) => format!("forward({})", bytes.len()),
        Action::Judged(judgement) => format!("{judgement:?}"),
        Action::Notice(notice) => format!("[{}]", notice.what.code()),
        Action::Finish(end) => match end {
            crate::event::End::Answer(answer) => format!("finish({})", answer.status),
            other => format!("finish({other:?})").to_lowercase(),
        },
    }
}

fn inputs(lease: LeaseId) -> Vec<(&'static str, Time, Input)> {
    let now = Time::from_millis(1);
    let attempt = AttemptNo(0);
    let of = |step| input(attempt, step);
    let reply = |reply| Input::Reply { lease, reply };
    vec![
        ("granted", now, reply(Reply::Granted { choice: Choice(1), probe: true, change: None })),
        ("granted nobody", now, reply(Reply::Granted { choice: Choice(99), probe: false, change: None })),
        (
            "refused: rests",
            now,
            reply(Reply::Refused {
                why: Refusal::Resting,
                after: Some(now.after(Span::from_secs(1))),
                soonest: None,
                progress: now,
            }),
        ),
        (
            "refused: breakers",
            now,
            reply(Reply::Refused { why: Refusal::Breaker, after: None, soonest: None, progress: now }),
        ),
        ("settled", now, reply(Reply::Settled { change: None })),
        ("head 200", now, of(Step::Head(200))),
        ("head 503", now, of(Step::Head(503))),
        ("head 302", now, of(Step::Head(302))),
        ("opener", now, of(Step::Say(ROLE.into()))),
        ("content", now, of(Step::Say(delta("Hi")))),
        ("error event", now, of(Step::Say(OVERLOADED.into()))),
        ("noise", now, of(Step::Say("data: \u{fffd}\n\n".into()))),
        ("no bytes", now, of(Step::Say(String::new()))),
        ("end", now, of(Step::End)),
        ("reset", now, of(Step::Fault(Fault::Reset))),
        ("another's end", now, Input::End { attempt: AttemptNo(7) }),
        ("flushed", now, Input::Flushed),
        ("tick", now, Input::Tick),
        ("tick, all due", LATER, Input::Tick),
        ("client gone", now, Input::Cancel(CancelCause::ClientGone)),
        ("shutdown", now, Input::Cancel(CancelCause::Shutdown)),
    ]
}

#[test]
fn every_phase_takes_every_input() {
    let mut table = String::new();
    for phase in Phase::ALL {
        writeln!(table, "{phase:?}").unwrap();
        let (_, _, lease) = call_in(phase);
        for (name, now, input) in inputs(lease) {
            let (mut call, _, _) = call_in(phase);
            call.handle(now, input);
            let done = drain(&mut call);
            let after = call.phase();
            let arrow = if after == phase { String::new() } else { format!(" -> {after:?}") };
            let late = if call.late_inputs() > 0 { "late " } else { "" };
            writeln!(table, "  {name:18} {late}{done}{arrow}").unwrap();
            if phase == Phase::Finished {
                assert!(done.is_empty(), "nothing follows a finish");
            }
        }
    }
    insta::assert_snapshot!(table);
}
