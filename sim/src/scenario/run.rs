//! `surefoot sim FILE`: one world by a file, and what became of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;

use surefoot_core::event::{Action, What};
use surefoot_core::id::AttemptNo;
use surefoot_core::outcome::Outcome;
use surefoot_core::policy::Route;
use surefoot_core::time::{Span, Time};

use super::Scenario;
use crate::world::log::{Keep, Watch};
use crate::world::record::Record;
use crate::world::{Report, World};

/// One source's part.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Attempts.
    pub attempts: u64,
    /// By outcome, in the order of [`Outcome::ALL`].
    pub outcomes: [u64; Outcome::ALL.len()],
}

/// Counts attempts by source.
#[derive(Debug, Default)]
struct Counter {
    routes: BTreeMap<u32, Arc<Route>>,
    sent: BTreeMap<(u32, AttemptNo), String>,
    shares: BTreeMap<String, Share>,
}

#[derive(Debug, Default)]
struct Ear(Rc<RefCell<Counter>>);

impl Watch for Ear {
    fn watch(&mut self, _: Time, record: &Record<'_>) {
        let counter = &mut *self.0.borrow_mut();
        match record {
            Record::Arrived { call, plan, .. } => {
                counter.routes.insert(*call, plan.route.clone());
            }
            Record::Sent { call, attempt, choice, .. } => {
                let Some(route) = counter.routes.get(call) else { return };
                let name = route.candidates[usize::from(choice.0)].source_name.to_string();
                counter.shares.entry(name.clone()).or_default().attempts += 1;
                counter.sent.insert((*call, *attempt), name);
            }
            Record::Action { call, action: Action::Notice(notice) } => {
                if let (What::AttemptEnded { outcome, .. }, Some(attempt)) = (&notice.what, notice.attempt)
                    && let Some(name) = counter.sent.remove(&(*call, attempt))
                    && let Some(share) = counter.shares.get_mut(&name)
                {
                    share.outcomes[*outcome as usize] += 1;
                }
            }
            Record::Over { call, .. } => {
                counter.routes.remove(call);
            }
            _ => {}
        }
    }
}

/// Runs a scenario and tells what became of it, its seed first and its hash last. True when no law was broken.
///
/// # Errors
/// Those of `out`.
pub fn run_scenario(scenario: Scenario, log: bool, out: &mut dyn Write) -> io::Result<bool> {
    writeln!(out, "seed {}", scenario.seed)?;
    for words in &scenario.words {
        writeln!(out, "  {words}")?;
    }
    let ear = Ear::default();
    let counter = ear.0.clone();
    let mut world = World::new(Arc::new(scenario), if log { Keep::All } else { Keep::Nothing }, true);
    world.watch(Box::new(ear));
    let report = world.run();
    for line in &report.lines {
        writeln!(out, "{line}")?;
    }
    tell(&report, &counter.borrow().shares, out)?;
    match &report.violation {
        Some(violation) => writeln!(out, "{violation}")?,
        None => writeln!(out, "no law was broken")?,
    }
    writeln!(out, "hash {:016x}", report.hash)?;
    Ok(report.violation.is_none())
}

fn tell(report: &Report, shares: &BTreeMap<String, Share>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{} calls, {} events, {} simulated", report.calls, report.records, report.took)?;
    let [complete, incomplete, upstream, broken, answered, cancelled] = report.tally.ends;
    let percent = 100.0 * complete as f64 / report.calls.max(1) as f64;
    writeln!(
        out,
        "{percent:.1} % complete: {complete} complete, {incomplete} incomplete, {upstream} by the upstream's error, \
         {broken} broken, {answered} with an error answer, {cancelled} by the client"
    )?;
    let attempts: u64 = report.tally.calls.iter().map(|call| u64::from(call.attempts)).sum();
    let mut took: Vec<Span> = report.tally.calls.iter().filter(|call| call.complete).map(|call| call.took).collect();
    took.sort_unstable();
    let at = |share: f64| took.get(((took.len() as f64 * share) as usize).min(took.len().saturating_sub(1)));
    let at = |share: f64| at(share).map_or(0.0, |span| span.0 as f64 / 1e3);
    writeln!(
        out,
        "{attempts} attempts; complete calls took {:.0} ms (p50), {:.0} ms (p95), {:.0} ms (p99)",
        at(0.5),
        at(0.95),
        at(0.99)
    )?;
    writeln!(out, "{:24} {:>9}  outcomes", "source", "attempts")?;
    for (name, share) in shares {
        let outcomes = Outcome::ALL.iter().zip(share.outcomes).filter(|(_, count)| *count > 0);
        let outcomes: Vec<String> = outcomes.map(|(outcome, count)| format!("{} {count}", outcome.as_str())).collect();
        writeln!(out, "{name:24} {:>9}  {}", share.attempts, outcomes.join(", "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::draw::draw;

    #[test]
    fn a_run_is_told_with_its_seed_first_and_its_hash_last() {
        let mut out = Vec::new();
        let good = run_scenario(draw(3), false, &mut out).expect("writes to memory");
        let text = String::from_utf8(out).expect("text");
        assert!(good && text.starts_with("seed 3\n"), "{text}");
        assert!(text.lines().last().is_some_and(|line| line.starts_with("hash ")), "{text}");
        assert!(text.contains("% complete") && text.contains("attempts"), "{text}");
    }
}
