//! The log: structured events on stderr, as chosen by `RUST_LOG` (default `info`). Never a secret, never a body.

use std::io::IsTerminal as _;

use surefoot_core::event::{Notice, What};
use surefoot_core::id::CallId;
use surefoot_core::policy::Route;
use tracing_subscriber::EnvFilter;

use crate::admin::metrics::{changed, target_name};

/// Starts logging, at `default` where `RUST_LOG` says nothing. Stdout stays free for what scripts wait for.
pub fn init(default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    // Colours are for people: in a file or a pipe they are rubbish between the fields.
    let ansi = std::io::stderr().is_terminal();
    // A second start in one process (tests, `demo`) keeps the first one's.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(std::io::stderr).try_init();
}

/// Logs one notice of a call (F18); `request` is the id that the client was given.
pub fn notice(call: CallId, request: &str, route: &Route, notice: &Notice) {
    let name = |choice| source_of(route, choice);
    let source = notice.choice.map_or("", name);
    let attempt = notice.attempt.map(|attempt| attempt.0);
    let code = notice.what.code();
    let elapsed_ms = notice.elapsed.as_millis();
    let (bytes, events) = (notice.held_bytes, notice.held_events);
    macro_rules! tell {
        ($level:ident $(, $name:ident $(= $value:expr)?)*) => {
            tracing::$level!(
                target: "surefoot::call", call = call.0, request, model = &*route.model, source, attempt, elapsed_ms,
                held_bytes = bytes, held_events = events $(, $name $(= $value)?)*, "{code}"
            )
        };
    }
    match &notice.what {
        What::AttemptStarted { why, probe, from, after } => {
            tell!(debug, why = why.as_str(), probe, from = from.map(name), after = after.map(|reason| reason.as_str()));
        }
        What::AttemptEnded { outcome, status, reason, took } => {
            tell!(debug, outcome = outcome.as_str(), status, reason = reason.as_str(), took_ms = took.as_millis());
        }
        What::Commit { reason, failover_added } => {
            tell!(debug, reason = reason.as_str(), failover_added_ms = failover_added.map(|span| span.as_millis()));
        }
        What::StreamIncomplete { reason } => tell!(warn, reason = reason.as_str()),
        What::ClientCancelled { cause } => tell!(info, cause = cause.as_str()),
        What::BreakerOpened(change) | What::BreakerClosed(change) | What::Probe(change) => {
            let breaker = changed(route, change).map(target_name);
            tell!(warn, breaker, from = change.from.as_str(), to = change.to.as_str());
        }
        What::Paced { why, until } => tell!(info, why = why.as_str(), until_ms = until.as_millis()),
        What::EmptyResponse { reason } => tell!(warn, reason),
        What::Stalled | What::RoutingTransferLimitReached | What::ProviderTransferLimitReached => tell!(warn),
        What::LocalStreamCandidateRetryScheduled | What::LocalStreamTransportRetryScheduled => tell!(info),
    }
}

fn source_of(route: &Route, choice: surefoot_core::id::Choice) -> &str {
    route.candidates.get(usize::from(choice.0)).map_or("?", |candidate| &candidate.source_name)
}
