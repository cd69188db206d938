//! Whole answers: looked at when complete, delivered byte for byte or made into the stream they stand for.

use bytes::Bytes;

use crate::event::{CommitReason, End, Judgement, Reason, Shape, What};
use crate::id::{AttemptNo, Choice};
use crate::mutants::{Mutant, active};
use crate::outcome::Outcome;
use crate::policy::EmptyCompletion;
use crate::wire::sniff::Sniffed;
use crate::wire::{Verdict, body, bridge, haystack};

use super::failure::Failure;
use super::window::Window;
use super::{Call, Fallback, mask};

impl Call {
    /// The whole body of a 2xx is there (M1–M3, F9, F10, G17).
    pub(super) fn on_whole_body(&mut self) {
        let bytes = self.window.all();
        let is_text = self.live.as_ref().is_some_and(|live| live.foreign == Some(Sniffed::Text));
        let verdict = if is_text { Verdict::Unreadable } else { body::inspect(self.plan.format, &bytes) };
        let verdict = match verdict {
            Verdict::Error(_) if active(Mutant::ErrorBehind200IsGood) => Verdict::Good { empty: None, tokens: None },
            verdict => verdict,
        };
        if let Verdict::Error(fact) = verdict {
            let fact = self.judged_error(*fact);
            return self.fail(Failure::error_object(fact));
        }
        if self.success_rule_matches(haystack::of_body) {
            return self.fail(Failure::success_rule());
        }
        match verdict {
            Verdict::Good { empty, tokens } => {
                self.tokens_used = tokens;
                if let Some(reason) = empty {
                    self.notice(What::EmptyResponse { reason });
                }
                self.on_good_body(&bytes);
            }
            Verdict::EmptyCompletion { tokens } => {
                self.tokens_used = tokens;
                let Some((attempt, choice)) = self.live.as_ref().map(|live| (live.no, live.choice)) else { return };
                match self.deliverable(&bytes) {
                    Some((shape, length)) => self.on_empty_completion(attempt, choice, shape, length),
                    None => self.fail(Failure::empty_body()),
                }
            }
            Verdict::NoChoices => {
                self.notice(What::EmptyResponse { reason: "no_choices" });
                self.fail(Failure::no_choices());
            }
            Verdict::Drifted { field } => self.fail(Failure::drifted(field)),
            Verdict::Unreadable | Verdict::Error(_) => {
                self.notice(What::EmptyResponse { reason: "empty_body" });
                self.fail(if self.plan.stream { Failure::empty_stream(false) } else { Failure::empty_body() });
            }
        }
    }

    /// Makes the window hold what the client is to get: the bytes as they came, or the stream that they stand for.
    fn deliverable(&mut self, bytes: &Bytes) -> Option<(Shape, Option<u64>)> {
        if !self.plan.stream {
            self.mask_window();
            self.window.mark_all();
            return Some((Shape::AsSent, Some(self.window.len())));
        }
        let frames = bridge::as_stream(self.plan.format, bytes, self.plan.include_usage)?;
        self.bridged = Some(self.window.len());
        self.window = frames.into_iter().collect();
        self.mask_window();
        self.window.mark_all();
        Some((Shape::EventStream, None))
    }

    /// A provider's key in its own answer is masked, whatever the status (X6).
    fn mask_window(&mut self) {
        let Some(live) = self.live.as_ref() else { return };
        let secret = self.candidate(live.choice).secret.clone();
        if mask::tells(&self.window.all(), &secret) {
            self.window.rewrite(u64::MAX, |held| haystack::mask(held, secret.expose()));
        }
    }

    fn on_good_body(&mut self, bytes: &Bytes) {
        let Some((attempt, choice)) = self.live.as_ref().map(|live| (live.no, live.choice)) else { return };
        let asks_again = self.plan.structured
            && !self.plan.stream
            && self.reasks < self.policy().structured_max_retries
            && !self.is_structured_ok(bytes);
        let Some((shape, length)) = self.deliverable(bytes) else {
            return self.fail(Failure::empty_body());
        };
        if asks_again {
            self.reasks += 1;
            self.keep(attempt, choice, shape, length);
            return self.fail(Failure::not_structured());
        }
        self.commit(attempt, choice, CommitReason::Content, shape, length);
        self.settle(Outcome::Success, Reason::Good, None);
        self.finish(End::Complete);
    }

    /// Whether the answer is the JSON asked for, and fits the schema asked for where somebody can tell (G17).
    fn is_structured_ok(&mut self, bytes: &Bytes) -> bool {
        self.judged(
            |call| {
                let fits = |text: &str| call.schema.as_ref().is_none_or(|schema| schema.fits(text));
                body::is_structured_ok(call.plan.format, bytes, &fits)
            },
            Judgement::Structured,
            |judgement| match judgement {
                Judgement::Structured(ok) => Some(ok),
                _ => None,
            },
        )
    }

    /// No content and a plain stop; the window holds what could be delivered (M3).
    pub(super) fn on_empty_completion(
        &mut self,
        attempt: AttemptNo,
        choice: Choice,
        shape: Shape,
        length: Option<u64>,
    ) {
        self.notice(What::EmptyResponse { reason: "empty_completion" });
        if self.policy().empty_completion == EmptyCompletion::Deliver || active(Mutant::EmptyIsGood) {
            self.commit(attempt, choice, CommitReason::End, shape, length);
            self.settle(Outcome::Success, Reason::EmptyCompletion, None);
            return self.finish(End::Complete);
        }
        self.keep(attempt, choice, shape, length);
        self.fail(Failure::empty_completion());
    }

    /// Keeps the window's answer for the case that nothing better comes.
    fn keep(&mut self, attempt: AttemptNo, choice: Choice, shape: Shape, length: Option<u64>) {
        let held = self.bridged.take().unwrap_or(self.window.len());
        let bytes: Window = core::mem::take(&mut self.window);
        self.fallback = Some(alloc::boxed::Box::new(Fallback { attempt, choice, shape, length, bytes, held }));
    }
}
