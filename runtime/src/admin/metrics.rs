//! The metrics (F17, F18, M3). Labels come from the configuration and from fixed words, never from a client.

use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder,
};
use surefoot_core::event::{Notice, What};
use surefoot_core::id::Choice;
use surefoot_core::outcome::Outcome;
use surefoot_core::policy::{Candidate, Route};
use surefoot_core::pool::{BreakerChange, BreakerState};
use surefoot_core::time::Span;
use surefoot_core::wire::Format;

/// Seconds: from a cache's answer to a long thought.
const SECONDS: [f64; 16] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0];
/// Bytes held in the window.
const BYTES: [f64; 9] = [256.0, 1024.0, 4096.0, 16384.0, 65536.0, 131072.0, 262144.0, 1048576.0, 4194304.0];

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    attempts: IntCounterVec,
    transfers: IntCounterVec,
    retries: IntCounterVec,
    commits: IntCounterVec,
    incomplete: IntCounterVec,
    empty: IntCounterVec,
    transitions: IntCounterVec,
    paced: IntCounterVec,
    events: IntCounterVec,
    request_seconds: Histogram,
    first_content_seconds: Histogram,
    failover_added_seconds: Histogram,
    held_bytes: Histogram,
    breaker_state: IntGaugeVec,
    pace_limit: GaugeVec,
    inflight: IntGaugeVec,
    degraded: IntGaugeVec,
    calls: Gauge,
}

/// What the pool's view of one target puts into the gauges.
#[derive(Copy, Clone, Debug)]
pub struct TargetGauges<'a> {
    /// `source/model`.
    pub target: &'a str,
    /// The breaker's state.
    pub state: BreakerState,
    /// The pace's limit; `None` = none but the source's own.
    pub pace: Option<f64>,
    /// Attempts under way.
    pub inflight: u32,
}

impl Metrics {
    /// Nothing counted yet.
    pub fn new() -> Metrics {
        let registry = Registry::new();
        let register = &registry;
        let counter = |name: &str, help: &str, labels: &[&str]| {
            registered(register, IntCounterVec::new(Opts::new(name, help), labels))
        };
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            registered(register, Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())))
        };
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            registered(register, IntGaugeVec::new(Opts::new(name, help), labels))
        };
        Metrics {
            requests: counter(
                "surefoot_requests_total",
                "Client requests by how they ended",
                &["model", "format", "status", "outcome"],
            ),
            attempts: counter("surefoot_attempts_total", "Attempts by outcome", &["provider", "model", "outcome"]),
            transfers: counter("surefoot_transfers_total", "Switches of source", &["from", "to", "reason"]),
            retries: counter("surefoot_retries_total", "Further attempts on the same source", &["provider", "reason"]),
            commits: counter("surefoot_commits_total", "Commits by reason", &["reason"]),
            incomplete: counter(
                "surefoot_streams_incomplete_total",
                "Committed streams that broke",
                &["provider", "reason"],
            ),
            empty: counter(
                "surefoot_empty_responses_total",
                "Answers with nothing in them",
                &["provider", "model", "reason"],
            ),
            transitions: counter(
                "surefoot_breaker_transitions_total",
                "Changes of a breaker's state",
                &["target", "to"],
            ),
            paced: counter("surefoot_waits_total", "Calls that had to wait", &["reason"]),
            events: counter("surefoot_events_total", "Decisions by event code", &["event"]),
            request_seconds: histogram("surefoot_request_seconds", "Whole requests, to the last byte", &SECONDS),
            first_content_seconds: histogram("surefoot_first_content_seconds", "Arrival to commit", &SECONDS),
            failover_added_seconds: histogram(
                "surefoot_failover_added_seconds",
                "What failing over added to a served request",
                &SECONDS,
            ),
            held_bytes: histogram("surefoot_held_bytes", "Bytes held at the commit", &BYTES),
            breaker_state: gauge("surefoot_breaker_state", "0 closed, 1 half-open, 2 open", &["target"]),
            pace_limit: registered(
                register,
                GaugeVec::new(Opts::new("surefoot_pace_limit", "Attempts that may be under way"), &["target"]),
            ),
            inflight: gauge("surefoot_inflight", "Attempts under way", &["target"]),
            degraded: gauge("surefoot_model_degraded", "1 = too many of its calls fail (10 minutes)", &["model"]),
            calls: registered(register, Gauge::new("surefoot_calls", "Client calls in flight")),
            registry,
        }
    }

    /// Counts a call's end.
    pub fn call_ended(&self, model: &str, format: Format, status: u16, outcome: Outcome, took: Span) {
        let mut digits = [0; 5];
        let labels = [model, format.as_str(), decimal(status, &mut digits), outcome.as_str()];
        self.requests.with_label_values(&labels).inc();
        if !took.is_zero() {
            self.request_seconds.observe(seconds(took));
        }
    }

    /// Counts what a notice tells.
    pub fn notice(&self, route: &Route, notice: &Notice) {
        let candidate = notice.choice.and_then(|choice| candidate(route, choice));
        let provider = candidate.map_or("", |candidate| &candidate.provider.name);
        let model = candidate.map_or("", model_of);
        match &notice.what {
            What::AttemptStarted { from: Some(from), after, .. } => {
                let from = candidate_source(route, *from);
                let to = candidate.map_or("", |candidate| &candidate.source_name);
                self.transfers.with_label_values(&[from, to, after.map_or("", |reason| reason.as_str())]).inc();
            }
            What::AttemptStarted { why, after, .. } => {
                if *why != surefoot_core::event::Why::First {
                    self.retries
                        .with_label_values(&[provider, after.map_or(why.as_str(), |reason| reason.as_str())])
                        .inc();
                }
            }
            What::AttemptEnded { outcome, .. } => {
                self.attempts.with_label_values(&[provider, model, outcome.as_str()]).inc();
            }
            What::Commit { reason, failover_added } => {
                self.commits.with_label_values(&[reason.as_str()]).inc();
                self.first_content_seconds.observe(seconds(notice.elapsed));
                self.held_bytes.observe(notice.held_bytes as f64);
                if let Some(added) = failover_added {
                    self.failover_added_seconds.observe(seconds(*added));
                }
            }
            What::StreamIncomplete { reason } => self.incomplete.with_label_values(&[provider, reason.as_str()]).inc(),
            What::EmptyResponse { reason } => self.empty.with_label_values(&[provider, model, reason]).inc(),
            What::BreakerOpened(change) | What::BreakerClosed(change) | What::Probe(change) => {
                let target = changed(route, change).map_or_else(String::new, target_name);
                self.transitions.with_label_values(&[&target, change.to.as_str()]).inc();
            }
            What::Paced { why, .. } => self.paced.with_label_values(&[why.as_str()]).inc(),
            what @ (What::RoutingTransferLimitReached
            | What::ProviderTransferLimitReached
            | What::LocalStreamCandidateRetryScheduled
            | What::LocalStreamTransportRetryScheduled
            | What::ClientCancelled { .. }
            | What::Stalled) => self.events.with_label_values(&[what.code()]).inc(),
        }
    }

    /// Renders everything, with the gauges as they stand now.
    pub fn render<'a>(
        &self,
        targets: impl Iterator<Item = TargetGauges<'a>>,
        models: impl Iterator<Item = (&'a str, bool)>,
        calls: usize,
    ) -> Vec<u8> {
        // Targets and models that are gone leave no last value behind.
        self.breaker_state.reset();
        self.pace_limit.reset();
        self.inflight.reset();
        self.degraded.reset();
        for target in targets {
            let state = match target.state {
                BreakerState::Closed => 0,
                BreakerState::HalfOpen => 1,
                BreakerState::Open => 2,
            };
            self.breaker_state.with_label_values(&[target.target]).set(state);
            self.inflight.with_label_values(&[target.target]).set(target.inflight.into());
            if let Some(pace) = target.pace {
                self.pace_limit.with_label_values(&[target.target]).set(pace);
            }
        }
        for (model, degraded) in models {
            self.degraded.with_label_values(&[model]).set(degraded.into());
        }
        self.calls.set(calls as f64);
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            tracing::error!(%error, "the metrics could not be rendered");
        }
        text
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

/// Names and labels are fixed, so neither making nor registering can fail; a metric that did would stay unregistered.
fn registered<T: prometheus::core::Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<T>) -> T {
    let metric = made.unwrap_or_else(|error| panic!("a metric is defined wrongly: {error}"));
    if let Err(error) = registry.register(Box::new(metric.clone())) {
        tracing::error!(%error, "a metric could not be registered");
    }
    metric
}

fn candidate(route: &Route, choice: Choice) -> Option<&Candidate> {
    route.candidates.get(usize::from(choice.0))
}

fn candidate_source(route: &Route, choice: Choice) -> &str {
    candidate(route, choice).map_or("", |candidate| &candidate.source_name)
}

/// The candidate whose breaker changed: not always the one that the notice is about.
pub fn changed<'r>(route: &'r Route, change: &BreakerChange) -> Option<&'r Candidate> {
    let choice = route.roster.entries.iter().position(|entry| entry.target == change.target)?;
    route.candidates.get(choice)
}

/// The model at the provider; `*` for what passes through.
pub fn model_of(candidate: &Candidate) -> &str {
    if candidate.model.is_empty() { "*" } else { &candidate.model }
}

/// A target's name: its source and its model.
pub fn target_name(candidate: &Candidate) -> String {
    format!("{}/{}", candidate.source_name, model_of(candidate))
}

fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1e6
}

/// A number as text without an allocation.
fn decimal(mut number: u16, digits: &mut [u8; 5]) -> &str {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 || at == 0 {
            break;
        }
    }
    std::str::from_utf8(&digits[at..]).unwrap_or("0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_they_are() {
        let shown = [0, 7, 200, 65535].map(|number| decimal(number, &mut [0; 5]).to_owned());
        assert_eq!(shown, ["0", "7", "200", "65535"]);
    }

    #[test]
    fn an_ended_call_and_the_gauges_of_now_are_rendered() {
        let metrics = Metrics::new();
        metrics.call_ended("m", Format::Chat, 200, Outcome::Success, Span::from_millis(20));
        let render = |targets: &[&str]| {
            let targets = targets.iter().map(|target| TargetGauges {
                target,
                state: BreakerState::Open,
                pace: None,
                inflight: 3,
            });
            String::from_utf8(metrics.render(targets, [("sick", true)].into_iter(), 1)).unwrap()
        };
        let text = render(&["u1/k1/a"]);
        for line in [
            "surefoot_requests_total{format=\"chat\",model=\"m\",outcome=\"success\",status=\"200\"} 1",
            "surefoot_request_seconds_count 1",
            "surefoot_breaker_state{target=\"u1/k1/a\"} 2",
            "surefoot_inflight{target=\"u1/k1/a\"} 3",
            "surefoot_model_degraded{model=\"sick\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!render(&["u2/k1/a"]).contains("u1/k1/a"));
    }
}
