//! What the gateway did for each call, in its own words: heard from its notices, kept until the client's side asks.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use surefoot_core::event::{Incomplete, Notice, Reason, What, Why};
use surefoot_core::outcome::Outcome;
use surefoot_core::policy::Route;
use surefoot_core::pool::{BreakerState, Refusal};
use surefoot_core::time::Span;
use tokio::sync::mpsc::UnboundedSender;

use crate::admin::metrics::changed;
use surefoot_runtime::serve::shared::Watch;

/// How the request ids of the demo's own calls begin.
pub(super) const OURS: &str = "demo-";

/// One step of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// An attempt.
    Try {
        source: String,
        why: Why,
        probe: bool,
        /// `None` while it runs.
        end: Option<Ended>,
    },
    /// It waited for somebody to be free.
    Wait { why: Refusal, from: Span, until: Span },
}

/// How an attempt ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) status: Option<u16>,
    pub(super) reason: Reason,
}

/// A call's life in the gateway.
#[derive(Clone, Debug, Default)]
pub(super) struct Life {
    pub(super) steps: Vec<Step>,
    /// Why the client came to own an answer.
    pub(super) commit: Option<&'static str>,
    /// From the end of the first failed attempt to the commit.
    pub(super) added: Option<Span>,
    pub(super) incomplete: Option<Incomplete>,
}

/// A change of a breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Breaker {
    pub(super) target: String,
    pub(super) to: BreakerState,
}

/// Hears the gateway.
#[derive(Debug)]
pub(super) struct Watcher {
    /// By request id.
    lives: Mutex<HashMap<String, Life>>,
    breakers: UnboundedSender<Breaker>,
}

impl Watcher {
    /// Changes of breakers go to `breakers` as they happen.
    pub(super) fn new(breakers: UnboundedSender<Breaker>) -> Watcher {
        Watcher { lives: Mutex::default(), breakers }
    }

    /// Hands out the life of the call with this request id.
    pub(super) fn take(&self, request_id: &str) -> Life {
        self.lives().remove(request_id).unwrap_or_default()
    }

    fn lives(&self) -> MutexGuard<'_, HashMap<String, Life>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch for Watcher {
    fn notice(&self, request: &str, route: &Route, notice: &Notice) {
        if let What::BreakerOpened(change) | What::BreakerClosed(change) = &notice.what
            && let Some(candidate) = changed(route, change)
        {
            let target = format!("{}/{}", shown(&candidate.source_name), candidate.model);
            // The last one to hear of it may be gone already.
            let _ = self.breakers.send(Breaker { target, to: change.to });
        }
        // With --keep others may call too, and nobody asks for their lives.
        if !request.starts_with(OURS) {
            return;
        }
        let candidate = notice.choice.and_then(|choice| route.candidates.get(usize::from(choice.0)));
        let source = candidate.map_or("?", |candidate| shown(&candidate.source_name));
        self.lives().entry(request.to_owned()).or_default().hear(source, notice);
    }
}

impl Life {
    fn hear(&mut self, source: &str, notice: &Notice) {
        match &notice.what {
            What::AttemptStarted { why, probe, .. } => {
                if let Some(Step::Wait { until, .. }) = self.steps.last_mut() {
                    *until = notice.elapsed;
                }
                self.steps.push(Step::Try { source: source.to_owned(), why: *why, probe: *probe, end: None });
            }
            What::AttemptEnded { outcome, status, reason, .. } => {
                let ended = Ended { outcome: *outcome, status: *status, reason: *reason };
                let open = |step: &&mut Step| matches!(step, Step::Try { end: None, .. });
                if let Some(Step::Try { end, .. }) = self.steps.iter_mut().rfind(open) {
                    *end = Some(ended);
                }
            }
            What::Paced { why, .. } => match self.steps.last_mut() {
                // Woken, and not yet free: the same wait goes on.
                Some(Step::Wait { until, .. }) => *until = notice.elapsed,
                _ => self.steps.push(Step::Wait { why: *why, from: notice.elapsed, until: notice.elapsed }),
            },
            What::Commit { reason, failover_added } => {
                (self.commit, self.added) = (Some(reason.as_str()), *failover_added);
            }
            What::StreamIncomplete { reason } => self.incomplete = Some(*reason),
            _ => {}
        }
    }

    /// The attempts, in the order of their starts.
    pub(super) fn tries(&self) -> impl Iterator<Item = (&str, Why, Option<Ended>)> {
        self.steps.iter().filter_map(|step| match step {
            Step::Try { source, why, end, .. } => Some((source.as_str(), *why, *end)),
            Step::Wait { .. } => None,
        })
    }

    /// Whether the first attempt was all it took.
    pub(super) fn is_plain(&self) -> bool {
        let [Step::Try { end: Some(ended), .. }] = self.steps.as_slice() else { return false };
        ended.outcome == Outcome::Success
    }
}

/// A source's name as the demo shows it: its providers have one key each, so the provider's name is enough.
fn shown(source: &str) -> &str {
    source.split('/').next().unwrap_or(source)
}

impl Ended {
    /// What happened, in a few words that need no manual.
    pub(super) fn words(self) -> String {
        let status = self.status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
        let more = match self.reason {
            Reason::Good | Reason::Status | Reason::BadStatus => return status,
            Reason::Fault(fault) if self.status.is_none() => return fault.as_str().replace('_', " "),
            Reason::FirstByteTimeout | Reason::FirstContentTimeout if self.status.is_none() => {
                return "silence".to_owned();
            }
            Reason::TotalTimeout if self.status.is_none() => return "too slow".to_owned(),
            Reason::ErrorObject => "error inside",
            Reason::SuccessRule => "ruled out",
            Reason::EmptyCompletion => "empty",
            Reason::NoChoices => "no choices",
            Reason::EmptyBody => "not an answer",
            Reason::EmptyStream => "ended at once",
            Reason::Drifted => "wrong type",
            Reason::Malformed => "broken JSON",
            Reason::NotStructured => "not JSON",
            Reason::Fault(_) | Reason::Cut => "cut off",
            Reason::FirstByteTimeout | Reason::FirstContentTimeout => "then silence",
            Reason::IdleTimeout => "fell silent",
            Reason::TotalTimeout => "too slow",
            Reason::Deadline => "out of time",
            Reason::Cancelled => "given up",
        };
        format!("{status} {more}")
    }
}
