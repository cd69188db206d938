//! Liveness: once nothing fails any more, everything works again.
//!
//! | id | law |
//! |---|---|
//! | L1 | after healing every call ends well |
//! | L2 | targets that serve are closed again |
//! | L3 | nothing is left over when idle |
//! | L4 | one healthy target and the rest dead: once their breakers are open, the first attempt succeeds |

use std::collections::BTreeSet;

use surefoot_core::event::End;
use surefoot_core::id::TargetId;
use surefoot_core::outcome::Outcome;
use surefoot_core::policy::Plan;
use surefoot_core::time::Time;

use super::book::{Book, Wrong};
use super::calls::Call;
use crate::scenario::Scenario;

/// What is known of liveness.
#[derive(Debug)]
pub struct Life {
    /// The name of the only source that works.
    healthy: Option<String>,
    /// Targets that served since everything must work.
    served: BTreeSet<TargetId>,
}

impl Life {
    pub(super) fn new(scenario: &Scenario) -> Life {
        let healthy = scenario.lone.map(|site| scenario.sites[site].name.clone());
        Life { healthy, served: BTreeSet::new() }
    }

    /// Whether a call that comes now finds every source but the healthy one shut.
    pub(super) fn is_lone(&self, now: Time, plan: &Plan, book: &mut Book) -> bool {
        let Some(healthy) = &self.healthy else { return false };
        let mut met = false;
        let all = plan.route.candidates.iter().zip(&plan.route.roster.entries).all(|(candidate, entry)| {
            let own = *candidate.source_name == **healthy;
            met |= own;
            if own { book.is_free(now, entry.target) } else { book.breaker(now, entry.target).1 }
        });
        met && all
    }

    pub(super) fn settled(&mut self, target: Option<TargetId>, outcome: Outcome) {
        if let Some(target) = target.filter(|_| outcome == Outcome::Success) {
            self.served.insert(target);
        }
    }

    pub(super) fn over(&self, call: &Call, now: Time, end: &End) -> Result<(), Wrong> {
        if call.judged && *end != End::Complete {
            return Err((
                "L1",
                format!("ends as {end:?} long after everything is well ({} attempts)", call.attempts.len()),
            ));
        }
        let slow = call.attempts.iter().any(|attempt| attempt.could_time_out(call, now));
        let well = call.attempts.len() == 1 && *end == End::Complete;
        if call.lone && call.left.is_none() && !slow && !call.plan.structured && !well {
            return Err((
                "L4",
                format!("{} attempts, ends as {end:?}, though only the healthy source was open", call.attempts.len()),
            ));
        }
        Ok(())
    }

    pub(super) fn closed(&self, is_closed: impl Fn(TargetId) -> bool) -> Result<(), Wrong> {
        match self.served.iter().find(|target| !is_closed(**target)) {
            Some(target) => Err(("L2", format!("target {target} serves and its breaker is not closed"))),
            None => Ok(()),
        }
    }
}
