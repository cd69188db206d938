//! What follows from a failed attempt: the rules (F8), the status table (M6), retries and pushback (F2, G11, G12).

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use bytes::Bytes;

use crate::event::{Fault, Hit, Judgement, Reason, What};
use crate::id::{AttemptNo, Choice};
use crate::mutants::{Mutant, active};
use crate::outcome::Outcome;
use crate::pool::{Rest, RestScope};
use crate::time::{Span, Time};
use crate::wire::{ErrorFact, error, haystack, retry_after};

use super::classify::{Class, classify, is_overload};
use super::ending::Cause;
use super::{Call, Phase, mask};

/// The longest rest that an answer may ask for (G12).
const MAX_REST: Span = Span::from_secs(24 * 3600);

/// A failed attempt, before anything follows from it.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    pub(super) outcome: Outcome,
    /// What the client gets if it ends there.
    pub(super) status: u16,
    pub(super) retry: bool,
    pub(super) transfer: bool,
    pub(super) overload: bool,
    /// The upstream's own words, where it had some.
    pub(super) fact: Option<ErrorFact>,
    /// Its body, where the words were one.
    pub(super) body: Option<Bytes>,
    /// Our words, where it had none.
    words: &'static str,
    field: &'static str,
}

/// The last error of an upstream's own (F19).
#[derive(Debug)]
pub(super) struct Genuine {
    pub(super) attempt: AttemptNo,
    pub(super) choice: Choice,
    pub(super) status: u16,
    pub(super) outcome: Outcome,
    pub(super) fact: ErrorFact,
    pub(super) body: Option<Bytes>,
}

/// The last failure that an upstream had no words for.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) status: u16,
    pub(super) outcome: Outcome,
    pub(super) message: String,
}

impl Failure {
    fn own(reason: Reason, class: Class, words: &'static str) -> Failure {
        Failure {
            reason,
            outcome: class.outcome,
            status: class.status,
            retry: class.retry,
            transfer: class.transfer,
            overload: false,
            fact: None,
            body: None,
            words,
            field: "",
        }
    }

    /// A failure in the class of a 502: curable, and a failure for the breaker.
    fn bad_gateway(reason: Reason, words: &'static str) -> Failure {
        Failure::own(reason, classify(502), words)
    }

    pub(super) fn bad_status(status: u16) -> Failure {
        Failure::own(Reason::BadStatus, classify(status), "answered with a status that is no answer")
    }

    /// An error status that was passed through as it came (M7): delivered, and no less a failure of its source.
    pub(super) fn passed(status: u16) -> Option<Failure> {
        let mut failure = Failure::own(Reason::Status, classify(status), "");
        failure.overload = is_overload(&ErrorFact { status, ..ErrorFact::default() });
        (!(200..300).contains(&status)).then_some(failure)
    }

    pub(super) fn error_object(fact: ErrorFact) -> Failure {
        let class = Call::error_class(&fact);
        let mut failure = Failure::own(Reason::ErrorObject, class, "");
        failure.overload = is_overload(&fact);
        failure.fact = Some(fact);
        failure
    }

    fn status(fact: ErrorFact, body: Bytes) -> Failure {
        let mut failure = Failure::error_object(fact);
        failure.reason = Reason::Status;
        failure.body = Some(body);
        failure
    }

    pub(super) fn success_rule() -> Failure {
        Failure::bad_gateway(Reason::SuccessRule, "answered with what a failover rule refuses")
    }

    pub(super) fn empty_completion() -> Failure {
        Failure::bad_gateway(Reason::EmptyCompletion, "provider returned an empty completion")
    }

    pub(super) fn empty_stream(any_event: bool) -> Failure {
        let words = if any_event { "the stream ended before any content" } else { "provider returned an empty stream" };
        Failure::bad_gateway(Reason::EmptyStream, words)
    }

    pub(super) fn empty_body() -> Failure {
        Failure::bad_gateway(Reason::EmptyBody, "provider returned empty response")
    }

    pub(super) fn no_choices() -> Failure {
        Failure::bad_gateway(Reason::NoChoices, "provider returned no choices")
    }

    pub(super) fn drifted(field: &'static str) -> Failure {
        Failure { field, ..Failure::bad_gateway(Reason::Drifted, "provider returned a field of the wrong type") }
    }

    pub(super) fn malformed() -> Failure {
        Failure::bad_gateway(Reason::Malformed, "provider sent a malformed event")
    }

    pub(super) fn not_structured() -> Failure {
        let class = Class { outcome: Outcome::ResultInvalid, retry: true, transfer: false, status: 502 };
        Failure::own(Reason::NotStructured, class, "the answer is not the JSON asked for")
    }

    pub(super) fn fault(fault: Fault) -> Failure {
        let words = match fault {
            Fault::Connect => "could not be reached",
            Fault::ConnectTimeout => "did not accept the connection in time",
            Fault::Tls => "failed the TLS handshake",
            Fault::Reset => "broke the connection",
            Fault::Protocol => "did not speak HTTP",
            Fault::Coding => "sent a body whose content coding cannot be opened",
            Fault::TooLarge => "sent a body that is too large",
            Fault::Local => return Failure::local(),
        };
        let status = if Call::fault_is_timeout(fault) { 504 } else { 502 };
        let mut failure = Failure::own(Reason::Fault(fault), classify(status), words);
        // The same source would code and size its answer in the same way.
        failure.retry = !matches!(fault, Fault::Coding | Fault::TooLarge);
        failure
    }

    /// An error of our own ends the call, and no source is blamed for it (F7).
    fn local() -> Failure {
        let class = Class { outcome: Outcome::Cancelled, retry: false, transfer: false, status: 503 };
        let words = "could not be asked, for the gateway has no socket or memory left; try again later";
        Failure::own(Reason::Fault(Fault::Local), class, words)
    }

    pub(super) fn timeout(reason: Reason) -> Failure {
        let words = match reason {
            Reason::FirstByteTimeout => "sent no first byte in time",
            Reason::FirstContentTimeout => "sent no content in time",
            Reason::IdleTimeout => "went silent",
            _ => "did not answer in time",
        };
        Failure::own(reason, classify(504), words)
    }

    /// Whether it happened below HTTP or by the clock (F13).
    fn is_transport(&self) -> bool {
        matches!(self.reason, Reason::Fault(_) | Reason::FirstByteTimeout | Reason::IdleTimeout | Reason::TotalTimeout)
    }

    fn message(&self, provider: &str) -> String {
        match self.field {
            "" => format!("{provider}: {}", self.words),
            field => format!("{provider}: {}: `{field}`", self.words),
        }
    }
}

/// The event code for an attempt scheduled after a stream's failure before output (F18).
pub(super) fn scheduled_code(after: Reason) -> Option<What> {
    match after {
        Reason::ErrorObject
        | Reason::SuccessRule
        | Reason::EmptyCompletion
        | Reason::NoChoices
        | Reason::EmptyBody
        | Reason::EmptyStream
        | Reason::Drifted
        | Reason::Malformed => Some(What::LocalStreamCandidateRetryScheduled),
        Reason::Fault(_)
        | Reason::FirstByteTimeout
        | Reason::FirstContentTimeout
        | Reason::IdleTimeout
        | Reason::TotalTimeout => Some(What::LocalStreamTransportRetryScheduled),
        _ => None,
    }
}

impl Call {
    /// The live attempt failed with an error status; what came of its body is all there is.
    pub(super) fn fail_with_status(&mut self) {
        let status = self.live.as_ref().map_or(0, |live| live.status());
        let body = self.window.all();
        let fact = self.judged_error(error::from_body(status, &body));
        self.fail(Failure::status(fact, body));
    }

    /// The live attempt failed: settle it, and go on or end.
    pub(super) fn fail(&mut self, failure: Failure) {
        if self.close(failure) {
            self.ask();
        }
    }

    /// The live attempt is left for a place elsewhere that can start at once (F16).
    pub(super) fn leave_slow_attempt(&mut self) {
        self.close(Failure::timeout(Reason::FirstContentTimeout));
    }

    /// Settles the failed attempt, keeps what may be told of it and what the call learnt. True when another may follow.
    fn close(&mut self, mut failure: Failure) -> bool {
        let stops = self.apply_rules(&mut failure);
        if let Some(lease) = self.switch.take() {
            self.tell(crate::pool::Op::Leave { lease });
        }
        let Some(live) = self.settle(failure.outcome, failure.reason, Some(&failure)) else { return false };
        self.window = super::Window::default();
        self.phase = Phase::Asking;
        self.first_failure.get_or_insert(self.now);
        self.after = Some(failure.reason);
        self.tally.add(&failure);
        self.learn(&failure, live.choice, live.probe);
        self.remember(failure, live.no, live.choice);
        if stops {
            self.exhausted(Cause::Rejected);
        }
        !stops
    }

    /// The rules in their order (F8); true when the call ends here. Success rules have had their turn before.
    fn apply_rules(&mut self, failure: &mut Failure) -> bool {
        let Some(live) = self.live.as_ref() else { return true };
        let choice = live.choice;
        let provider = self.candidate(choice).provider.clone();
        if failure.reason == Reason::NotStructured {
            return false;
        }
        if !self.plan.replay_safe {
            return true;
        }
        if failure.is_transport() && provider.stop_on_transport_errors {
            return true;
        }
        let Some(fact) = &failure.fact else { return !(failure.retry || failure.transfer) };
        if provider.stop_status_codes.contains(&fact.status) || self.fits_stop_rule(choice, fact, failure.body.as_ref())
        {
            return true;
        }
        if provider.continue_status_codes.contains(&fact.status) || self.has_phrase(choice, fact) {
            failure.transfer = true;
        }
        !(failure.retry || failure.transfer)
    }

    /// Whether a stop rule fits the error, a global one or one of the provider's own (F12).
    fn fits_stop_rule(&mut self, choice: Choice, fact: &ErrorFact, body: Option<&Bytes>) -> bool {
        if self.policy().rules.stop.is_empty() && self.candidate(choice).provider.rules.stop.is_empty() {
            return false;
        }
        let ask = |call: &Call| {
            let is_stream = call.live.as_ref().is_some_and(|live| live.reader.is_some());
            let text = match body {
                Some(body) => String::from_utf8_lossy(body).into_owned(),
                // The error's own event: what its openers echo of the request is not the upstream's word on it.
                None if is_stream => {
                    let held = call.window.joined(call.held_to);
                    let from = usize::try_from(call.event_from).unwrap_or(usize::MAX).min(held.len());
                    haystack::of_stream(&held[from..])
                }
                None => haystack::of_body(&call.window.all()),
            };
            let global = call.policy().rules.stop_match(fact.status, &text).map(|place| Hit::new(false, place));
            let own = || call.candidate(choice).provider.rules.stop_match(fact.status, &text);
            global.or_else(|| own().map(|place| Hit::new(true, place)))
        };
        let hit = self.judged(ask, Judgement::StopRule, |judgement| match judgement {
            Judgement::StopRule(hit) => Some(hit),
            _ => None,
        });
        hit.is_some()
    }

    /// Whether the error has the words of one of the provider's `retry_on_errors` phrases (M6).
    fn has_phrase(&mut self, choice: Choice, fact: &ErrorFact) -> bool {
        if self.candidate(choice).provider.retry_on_errors.is_empty() {
            return false;
        }
        let ask = |call: &Call| {
            let mut phrases = call.candidate(choice).provider.retry_on_errors.iter();
            phrases.any(|phrase| phrase.matches(fact.status, &fact.code, &fact.message))
        };
        self.judged(ask, Judgement::Phrase, |judgement| match judgement {
            Judgement::Phrase(named) => Some(named),
            _ => None,
        })
    }

    /// What the call's own experience says of the candidate from now on (F2, G10, G11).
    fn learn(&mut self, failure: &Failure, choice: Choice, probe: bool) {
        if failure.reason == Reason::NotStructured {
            // Asked again on the same source; the others wait behind it.
            self.only = Some(choice);
            return;
        }
        if failure.outcome == Outcome::RateLimited {
            return;
        }
        let sticky = self.policy().sticky_key_attempts.max(1) + u32::from(active(Mutant::StickyOffByOne));
        let may_retry = failure.retry
            && (!probe || active(Mutant::ProbeRetried))
            && (!self.plan.stream || self.policy().retry.stream)
            && failure.reason != Reason::FirstContentTimeout;
        let keeps_place = self.is_balanced() || self.first_choice == Some(choice);
        let (balanced, now) = (self.is_balanced(), self.now);
        let Some(standing) = self.standing.get_mut(usize::from(choice.0)) else { return };
        standing.failed = standing.failed.saturating_add(1);
        let failed = standing.failed;
        if may_retry && keeps_place && (balanced || u32::from(failed) < sticky) {
            // The first retry is immediate (F2).
            let wait = if failed < 2 && !active(Mutant::FirstRetryWaits) {
                Span::ZERO
            } else {
                self.backoff(u32::from(failed).saturating_sub(2))
            };
            let not_before = if wait.is_zero() { Time::ZERO } else { now.after(wait) };
            self.standing[usize::from(choice.0)].not_before = not_before;
        } else {
            standing.out = true;
        }
    }

    /// The wait before a source's retry number `step`, counted from 0; jitter lies inside the cap (G11).
    fn backoff(&mut self, step: u32) -> Span {
        let retry = self.policy().retry.clone();
        let mut span = retry.initial.min(retry.max);
        for _ in 0..step.min(64) {
            if span >= retry.max {
                break;
            }
            span = span.scaled(u64::from(retry.factor_milli), 1000).min(retry.max);
        }
        self.rng.jittered(span, retry.jitter_ppm, retry.max)
    }

    /// Who is to rest after this, and how long (G12, G13).
    pub(super) fn rest_after(&mut self, failure: &Failure) -> Option<Rest> {
        let live = self.live.as_ref()?;
        let choice = live.choice;
        let hint = live
            .head
            .as_ref()
            .filter(|head| head.status >= 400 && !active(Mutant::HintIgnored))
            .and_then(|head| retry_after::retry_hint(&head.headers, head.unix_ms));
        match failure.outcome {
            Outcome::RateLimited => {
                let before = self.pushbacks.get(usize::from(choice.0)).copied().unwrap_or(0);
                if let Some(count) = self.pushbacks.get_mut(usize::from(choice.0)) {
                    *count = count.saturating_add(1);
                }
                let span = self.backoff(u32::from(before)).max(hint.unwrap_or_default()).min(MAX_REST);
                Some(Rest { span, scope: RestScope::Account })
            }
            Outcome::Transient => hint.map(|hint| Rest { span: hint.min(MAX_REST), scope: RestScope::Source }),
            _ => None,
        }
    }

    fn remember(&mut self, failure: Failure, attempt: AttemptNo, choice: Choice) {
        let Failure { outcome, status, ref fact, .. } = failure;
        match fact {
            Some(fact) => {
                let secret = &self.candidate(choice).secret;
                let mut fact = fact.clone();
                for words in [&mut fact.message, &mut fact.code, &mut fact.kind] {
                    mask::text(words, secret);
                }
                let body = failure.body.map(|body| mask::bytes(body, secret));
                if self.genuine.is_some() && active(Mutant::FirstErrorTold) {
                    return;
                }
                self.genuine = Some(Box::new(Genuine { attempt, choice, status, outcome, fact, body }));
            }
            None => {
                let message = failure.message(&self.provider_name(choice));
                self.own = Some(Own { status, outcome, message });
            }
        }
    }
}

/// How a call's attempts have failed so far (F19).
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    failed: u32,
    limited: u32,
    timed_out: u32,
}

impl Tally {
    fn add(&mut self, failure: &Failure) {
        self.failed += 1;
        self.limited += u32::from(failure.outcome == Outcome::RateLimited);
        self.timed_out += u32::from(failure.fact.is_none() && failure.status == 504);
    }

    /// Whether nothing but rate limits was met.
    pub(super) fn all_limited(&self) -> bool {
        self.failed == self.limited
    }

    /// Whether nothing but timeouts was met.
    pub(super) fn all_timed_out(&self) -> bool {
        self.failed == self.timed_out
    }
}
