//! The last decisions worth a look, for the status page: everything but plain success.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use surefoot_core::event::{Notice, Reason, What, Why};
use surefoot_core::id::CallId;
use surefoot_core::outcome::Outcome;
use surefoot_core::policy::Route;
use surefoot_core::time::Time;

use super::metrics::changed;

/// Decisions kept.
const KEPT: usize = 200;

/// One decision, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// When.
    pub at: Time,
    /// In which call.
    pub call: CallId,
    /// The id that the client was given.
    pub request: String,
    /// The call's model.
    pub model: String,
    /// Its event code.
    pub event: &'static str,
    /// The source that it is about; may be empty.
    pub source: String,
    /// The rest.
    pub detail: String,
}

/// The ring of decisions.
#[derive(Debug, Default)]
pub struct Recent(Mutex<VecDeque<Decision>>);

impl Recent {
    /// Keeps what a notice tells, if it is worth a look.
    pub fn notice(&self, at: Time, call: CallId, request: &str, route: &Route, notice: &Notice) {
        let Some(detail) = detail(route, &notice.what) else { return };
        let source = match &notice.what {
            What::BreakerOpened(change) | What::BreakerClosed(change) | What::Probe(change) => {
                changed(route, change).map_or("", |candidate| &candidate.source_name)
            }
            _ => notice.choice.map_or("", |choice| source_of(route, choice)),
        };
        let source = source.to_owned();
        let (request, model) = (request.to_owned(), route.model.to_string());
        let decision = Decision { at, call, request, model, event: notice.what.code(), source, detail };
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.len() == KEPT {
            ring.pop_front();
        }
        ring.push_back(decision);
    }

    /// The decisions, the newest first.
    pub fn newest_first(&self) -> Vec<Decision> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }
}

fn source_of(route: &Route, choice: surefoot_core::id::Choice) -> &str {
    route.candidates.get(usize::from(choice.0)).map_or("", |candidate| &candidate.source_name)
}

/// The words for a decision; `None` for one that says that all is well.
fn detail(route: &Route, what: &What) -> Option<String> {
    let told = match what {
        What::AttemptStarted { why: Why::First, probe: false, .. } => return None,
        What::AttemptStarted { why, probe, from, after } => {
            let from = from.map_or(String::new(), |from| format!(" from {}", source_of(route, from)));
            let after = after.map_or(String::new(), |after| format!(" after {}", after.as_str()));
            let probe = if *probe { " as a probe" } else { "" };
            format!("{}{from}{after}{probe}", why.as_str())
        }
        What::AttemptEnded { outcome: Outcome::Success, .. } | What::Commit { failover_added: None, .. } => {
            return None;
        }
        What::AttemptEnded { outcome, status, reason, took } => {
            let seen = match (reason, status) {
                (Reason::Status | Reason::BadStatus, Some(status)) => format!("status {status}"),
                (reason, Some(status)) => format!("{} behind {status}", reason.as_str()),
                (reason, None) => reason.as_str().to_owned(),
            };
            format!("{} ({seen}) in {took}", outcome.as_str())
        }
        What::Commit { reason, failover_added: Some(added) } => {
            format!("{}, failing over added {added}", reason.as_str())
        }
        What::StreamIncomplete { reason } => reason.as_str().to_owned(),
        What::ClientCancelled { cause } => cause.as_str().to_owned(),
        What::BreakerOpened(change) | What::BreakerClosed(change) | What::Probe(change) => {
            format!("{} → {}", change.from.as_str(), change.to.as_str())
        }
        What::Paced { why, until } => format!("{}, until {until} at most", why.as_str()),
        What::EmptyResponse { reason } => (*reason).to_owned(),
        What::RoutingTransferLimitReached
        | What::ProviderTransferLimitReached
        | What::LocalStreamCandidateRetryScheduled
        | What::LocalStreamTransportRetryScheduled
        | What::Stalled => String::new(),
    };
    Some(told)
}
