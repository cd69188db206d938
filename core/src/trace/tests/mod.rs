//! Traces as a whole: to lines and back, whole files, replays.

mod codec;
mod files;
mod replays;

use alloc::string::String;
use alloc::vec::Vec;

use super::{Policies, Reader, RecordedCall, Recorder, Start};
use crate::call::tests::harness::{Outcome, World};
use crate::call::{Call, Judge};
use crate::event::CancelCause;
use crate::id::CallId;
use crate::policy::Plan;
use crate::policy::config::TraceMode;
use crate::time::Time;

/// Runs a call of a scripted world and records it.
pub(super) fn traced(world: &mut World, mode: TraceMode, cancel: Option<(Time, CancelCause)>) -> (Outcome, String) {
    let plan = world.plan();
    traced_plan(world, plan, mode, cancel)
}

pub(super) fn traced_plan(
    world: &mut World,
    plan: Plan,
    mode: TraceMode,
    cancel: Option<(Time, CancelCause)>,
) -> (Outcome, String) {
    let start = Start { id: CallId(5), seed: 11, now: world.now, request_id: "req-5", unix_ms: 1_760_000_000_000 };
    let mut policies = Policies::new();
    world.recorder = Recorder::new(mode, &mut policies, &plan, &start);
    let judge = if world.recorder.is_some() { Judge::Telling } else { Judge::Live };
    let call = Call::new(plan, start.id, start.seed, start.now).with_request_id(start.request_id).with_judge(judge);
    let outcome = world.drive(call, cancel);
    let lines = world.recorder.take().map(|mut recorder| recorder.take()).unwrap_or_default();
    (outcome, lines)
}

/// The calls of a clean file.
pub(super) fn calls(file: &str) -> Vec<RecordedCall> {
    let mut reader = Reader::new();
    let calls = file.lines().filter_map(|line| reader.push(line).unwrap()).collect();
    assert!(reader.unfinished().is_empty());
    calls
}
