//! What the show shows: a line for every call, and what it came to.

use std::io::{self, Write};

use surefoot_core::pool::BreakerState;

use super::traffic::Answered;
use crate::admin::recent::Decision;
use crate::serve::World;

/// Above the lines.
pub(super) const HEADINGS: &str = "   #  kind    status       ms  served by      what happened on the way";

/// What became of all calls.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    good: u32,
    failed: u32,
    first_try: u32,
    attempts: u64,
    slowest_ms: u128,
}

impl Tally {
    pub(super) fn count(&mut self, answer: &Answered) {
        if answer.good {
            self.good += 1;
            self.first_try += u32::from(answer.attempts == 1);
        } else {
            self.failed += 1;
        }
        self.attempts += answer.attempts;
        self.slowest_ms = self.slowest_ms.max(answer.took.as_millis());
    }

    /// Calls that got a whole answer.
    pub fn good(&self) -> u32 {
        self.good
    }

    /// Calls that did not.
    pub fn failed(&self) -> u32 {
        self.failed
    }

    /// Attempts of all calls.
    pub fn attempts(&self) -> u64 {
        self.attempts
    }
}

/// The line of one call.
pub(super) fn line(out: &mut impl Write, answer: &Answered, newest_first: &[Decision]) -> io::Result<()> {
    let kind = if answer.stream { "stream" } else { "whole" };
    let status = if answer.good { answer.status.to_string() } else { format!("{} BAD", answer.status) };
    let mine = |decision: &&Decision| decision.request == answer.request && !answer.request.is_empty();
    let way: Vec<String> = newest_first.iter().filter(mine).rev().filter_map(step).collect();
    let (number, took, source) = (answer.number, answer.took.as_millis(), &answer.source);
    writeln!(out, "{number:4}  {kind:6}  {status:8}  {took:5}  {source:13}  {}", way.join("; ").trim_end())
}

/// What a decision adds to a call's story.
fn step(decision: &Decision) -> Option<String> {
    match decision.event {
        "attempt_ended" => {
            let reason = decision
                .detail
                .split_once('(')
                .map_or("", |(_, rest)| rest.split_once(')').map_or("", |(reason, _)| reason));
            Some(format!("{}: {reason}", decision.source))
        }
        "breaker_opened" => Some("its breaker opens".to_owned()),
        "breaker_closed" => Some("its breaker closes".to_owned()),
        "probe" => Some(format!("{} is probed", decision.source)),
        "paced" => Some(format!("waits ({})", decision.detail)),
        _ => None,
    }
}

/// What it all came to.
pub(super) fn summary(out: &mut impl Write, tally: &Tally, world: &World) -> io::Result<()> {
    let Tally { good, failed, first_try, attempts, slowest_ms } = tally;
    let calls = good + failed;
    let share = |part: u32| f64::from(part) * 100.0 / f64::from(calls.max(1));
    writeln!(out, "\n{calls} calls, {good} served well ({:.0} %), {failed} not", share(*good))?;
    writeln!(
        out,
        "{first_try} of them at the first try ({:.0} %); the others because another attempt followed",
        share(*first_try)
    )?;
    writeln!(out, "{attempts} attempts in all, the slowest call took {slowest_ms} ms\n")?;
    writeln!(out, "target                breaker    opened  health")?;
    let shared = world.shared();
    let rows: Vec<String> = shared.gate.with_pool(|pool| {
        let views = pool.views(shared.clock.now()).filter(|view| view.model != "*");
        let row = |view: surefoot_core::pool::TargetView<'_>| {
            let state = match view.state {
                BreakerState::Closed => "closed",
                BreakerState::HalfOpen => "half-open",
                BreakerState::Open => "open",
            };
            format!("{:20}  {state:9}  {:6}  {:4} %", view.name, view.epoch, view.ewma_ppm / 10_000)
        };
        views.map(row).collect()
    });
    for row in rows {
        writeln!(out, "{row}")?;
    }
    Ok(())
}
