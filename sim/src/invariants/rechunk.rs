//! S12: what an upstream says decides, not how it is cut into chunks.
//!
//! A metamorphic law: the bytes of an exchange are told to fresh calls in other chunks, and nothing may change.

use std::sync::Arc;

use bytes::Bytes;
use surefoot_core::call::Call as Machine;
use surefoot_core::event::{Action, End, Head, Input, Output};
use surefoot_core::id::{AttemptNo, CallId, TargetId};
use surefoot_core::outcome::Outcome;
use surefoot_core::policy::{Plan, Route};
use surefoot_core::pool::{Entry, Op, Reply, Roster};
use surefoot_core::time::Time;

use super::book::Wrong;
use super::calls::{Attempt, Call};
use crate::rng::Stream;
use crate::world::script::Truth;

/// What became of one reading.
#[derive(Debug, PartialEq)]
struct Reading {
    bytes: Vec<u8>,
    outcome: Option<Outcome>,
    committed: bool,
    end: Option<String>,
}

/// Reads one exchange of the call whole and in pieces.
pub(super) fn same(call: &Call, stream: &mut Stream) -> Result<(), Wrong> {
    // Also those that the call left before they ended: how they would have ended is no less of a law.
    let begun = |attempt: &&Attempt| attempt.head_told;
    // Any of them: the last one is mostly the good one.
    let count = call.attempts.iter().filter(begun).count() as u64;
    let Some(attempt) = call.attempts.iter().filter(begun).nth(stream.below(count) as usize) else { return Ok(()) };
    let Some(truth) = &attempt.truth else { return Ok(()) };
    let one = read(call, attempt, truth, |_| usize::MAX);
    let most = stream.pick(&[1, 2, 7, 64, 700]);
    let cut = read(call, attempt, truth, |left| 1 + stream.below(most.min(left as u64)) as usize);
    if one == cut {
        return Ok(());
    }
    Err((
        "S12",
        format!("{:?} read whole: {}; in pieces of {most} at most: {}", truth.trouble, shown(&one), shown(&cut)),
    ))
}

fn shown(reading: &Reading) -> String {
    let Reading { bytes, outcome, committed, end } = reading;
    let tail = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(60)..]).into_owned();
    format!("{outcome:?} committed {committed} {} bytes …{tail:?} {end:?}", bytes.len())
}

fn read(call: &Call, attempt: &Attempt, truth: &Truth, mut size: impl FnMut(usize) -> usize) -> Reading {
    let mut machine = Machine::new(alone(call, attempt), CallId(1), 7, Time(1));
    let mut reading = Reading { bytes: Vec::new(), outcome: None, committed: false, end: None };
    let no = AttemptNo(0);
    drain(&mut machine, &mut reading);
    let head = Head { status: truth.status.unwrap_or(0), headers: truth.headers.clone(), unix_ms: 0 };
    tell(&mut machine, &mut reading, Input::Head { attempt: no, head });
    let mut rest = truth.body.clone();
    while !rest.is_empty() {
        let chunk: Bytes = rest.split_to(size(rest.len()).min(rest.len()));
        tell(&mut machine, &mut reading, Input::Chunk { attempt: no, bytes: chunk });
    }
    let last = match attempt.fault {
        Some(fault) => Input::Fault { attempt: no, fault },
        None => Input::End { attempt: no },
    };
    tell(&mut machine, &mut reading, last);
    reading
}

/// The call's plan with the attempt's candidate alone.
fn alone(call: &Call, attempt: &Attempt) -> Plan {
    let route = call.route();
    let roster =
        Roster { id: 0, strategy: route.roster.strategy, entries: vec![Entry { target: TargetId(0), tier: 0 }] };
    let route = Route {
        model: route.model.clone(),
        policy: route.policy.clone(),
        candidates: vec![call.candidate(attempt.choice).clone()],
        roster: Arc::new(roster),
    };
    Plan { route: Arc::new(route), ..call.plan.clone() }
}

fn tell(machine: &mut Machine, reading: &mut Reading, input: Input) {
    machine.handle(Time(1), input);
    drain(machine, reading);
}

/// Does what the machine wants until its first attempt is over; there is no second.
fn drain(machine: &mut Machine, reading: &mut Reading) {
    while let Output::Do(action) = machine.poll() {
        match action {
            Action::Ask(Op::Reserve(reserve)) if reading.outcome.is_none() => {
                let reply = Reply::Granted { choice: surefoot_core::id::Choice(0), probe: false, change: None };
                machine.handle(Time(1), Input::Reply { lease: reserve.lease, reply });
            }
            Action::Tell(Op::Settle(settle)) => {
                reading.outcome.get_or_insert(settle.outcome);
            }
            Action::Commit(_) => reading.committed = true,
            Action::Forward(bytes) => {
                reading.bytes.extend_from_slice(&bytes);
                machine.handle(Time(1), Input::Flushed);
            }
            Action::Finish(end) => {
                // An answer's words depend on nothing but the body; its bulk is not needed.
                reading.end = Some(if let End::Answer(answer) = &end {
                    format!("{}", answer.status)
                } else {
                    format!("{end:?}")
                });
            }
            _ => {}
        }
    }
}
