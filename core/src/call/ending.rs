//! How a call ends when no attempt is to follow (F7, F19, G7, G11, G16, M10).

use alloc::boxed::Box;
use alloc::string::ToString;

use bytes::Bytes;

use crate::event::{Answer, CommitReason, End, Incomplete, Reason, Stop, What};
use crate::outcome::Outcome;
use crate::time::Span;
use crate::wire::{Format, error};

use super::budget::Refused;
use super::{Call, Fallback, Phase};

/// When a client may come again while the shared state is away: whether it is back, nobody knows before.
const STORE_AGAIN: Span = Span::from_secs(1);

const BREAKER_OPEN: &str = "circuit breaker is open - provider temporarily unavailable";

/// Why no attempt follows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Every candidate had its turn.
    List,
    /// A limit of the policy's.
    Budget(Refused),
    /// The request was rejected, a rule stopped the call, or it must not be repeated.
    Rejected,
    /// Every candidate left is refused by its breaker.
    Breaker,
    /// Every candidate left rests, is paced or full for longer than the call may wait.
    Limited,
    /// Nothing succeeded anywhere while it waited.
    Stalled,
    /// The shared store is down and admission fails closed.
    StoreDown,
    /// The call's own deadline.
    Deadline,
}

impl Call {
    /// No attempt follows: the empty answer kept back, or the error that F19 says.
    pub(super) fn exhausted(&mut self, cause: Cause) {
        self.leave_queue();
        match cause {
            Cause::Budget(Refused::Routing) => self.notice(What::RoutingTransferLimitReached),
            Cause::Budget(Refused::Provider) if !self.provider_limit_told => {
                self.provider_limit_told = true;
                self.notice(What::ProviderTransferLimitReached);
            }
            Cause::Stalled => self.notice(What::Stalled),
            _ => {}
        }
        match self.fallback.take() {
            Some(fallback) => self.deliver(*fallback),
            None => {
                let answer = self.last_word(cause);
                self.finish(End::Answer(Box::new(answer)));
            }
        }
    }

    /// Nothing better came: the answer kept back is the answer (M3, G17).
    fn deliver(&mut self, fallback: Fallback) {
        let Fallback { attempt, choice, shape, length, bytes, held } = fallback;
        self.window = bytes;
        self.bridged = Some(held);
        self.window.mark_all();
        self.commit(attempt, choice, CommitReason::End, shape, length);
        self.finish(End::Complete);
    }

    fn last_word(&mut self, cause: Cause) -> Answer {
        let stop = match cause {
            Cause::Budget(refused) => refused.stop(),
            Cause::Stalled => Some(Stop::Stalled),
            // The list is used up because a provider's limit took the rest out of it.
            Cause::List if self.provider_limit_told => Some(Stop::ProviderTransferLimit),
            _ => None,
        };
        let no_retry = matches!(cause, Cause::Budget(_) | Cause::Rejected);
        let limited = match cause {
            Cause::Limited => self.tally.all_limited(),
            Cause::List | Cause::Budget(_) => self.tally.all_limited() && self.genuine.is_some(),
            _ => false,
        };
        let mut answer = match cause {
            Cause::Stalled => self.own_words(
                503,
                "stalled: nothing has succeeded anywhere for too long; try again later",
                Outcome::Transient,
            ),
            Cause::StoreDown => {
                let words = "the shared state cannot be reached; try again later";
                Answer { retry_after: Some(STORE_AGAIN), ..self.own_words(503, words, Outcome::Transient) }
            }
            _ if limited => self.rate_limited(),
            _ => match self.genuine.take() {
                Some(genuine) => self.upstream_words(*genuine),
                None => self.no_words(cause),
            },
        };
        answer.stop = stop;
        answer.no_retry = no_retry;
        answer
    }

    /// Nothing but rate limits: 429 and the shortest wait (F19, G11).
    fn rate_limited(&mut self) -> Answer {
        let mut answer = match self.genuine.take() {
            Some(genuine) => self.upstream_words(*genuine),
            None => self.own_words(429, "every source is at its limit; try again later", Outcome::RateLimited),
        };
        if self.wait.soonest.is_some() || answer.head.is_none() {
            answer.retry_after = Some(self.soonest());
        }
        answer
    }

    /// No upstream had words of its own.
    fn no_words(&mut self, cause: Cause) -> Answer {
        if let Some(own) = self.own.take() {
            let deadline = cause == Cause::Deadline;
            let status = match own.status {
                504 if !self.tally.all_timed_out() && !deadline => 502,
                _ if deadline => 504,
                status => status,
            };
            return self.own_words(status, &own.message, own.outcome);
        }
        match cause {
            Cause::Breaker => {
                let mut answer = self.own_words(503, BREAKER_OPEN, Outcome::Transient);
                answer.retry_after = Some(self.soonest());
                answer
            }
            Cause::Deadline => {
                self.own_words(504, "the call's deadline is over; no answer came in time", Outcome::Transient)
            }
            _ => self.own_words(503, "no source can take this call; try again later", Outcome::Transient),
        }
    }

    fn soonest(&self) -> Span {
        // One second where nothing is known: a client that comes back at once would only wait again.
        let known = self.wait.soonest.map(|at| at.since(self.now));
        known.unwrap_or(Span::from_secs(1))
    }

    fn own_words(&self, status: u16, message: &str, outcome: Outcome) -> Answer {
        let dialect = self.plan.format.dialect();
        let body = error::render(dialect, status, message, None, &self.request_id);
        self.answer(status, body, outcome)
    }

    /// The last genuine error: as sent where the client can read it so, else its words in the client's shape (F19).
    fn upstream_words(&self, genuine: super::Genuine) -> Answer {
        let dialect = self.plan.format.dialect();
        let readable = |body: &Bytes| self.plan.format == Format::Raw || error::fits(dialect, body);
        let as_sent = genuine.body.filter(readable);
        let is_as_sent = as_sent.is_some();
        let body = match as_sent {
            Some(body) => body,
            None => {
                let mut fact = genuine.fact;
                if fact.message.is_empty() {
                    fact.message =
                        self.provider_name(genuine.choice) + " answered with status " + &genuine.status.to_string();
                }
                error::render_fact(dialect, genuine.status, &fact, &self.request_id)
            }
        };
        let mut answer = self.answer(genuine.status, body, genuine.outcome);
        answer.as_sent = is_as_sent;
        answer.head = Some(genuine.attempt);
        answer
    }

    fn answer(&self, status: u16, body: Bytes, outcome: Outcome) -> Answer {
        Answer {
            status,
            body,
            as_sent: false,
            head: None,
            retry_after: None,
            stop: None,
            no_retry: false,
            choice: self.last_choice,
            outcome,
        }
    }

    /// The call's own deadline: nobody is blamed for it.
    pub(super) fn on_deadline(&mut self) {
        match self.phase {
            Phase::Finished => {}
            Phase::Streaming => self.incomplete(Incomplete::Deadline),
            Phase::Passing => self.break_off(Outcome::Cancelled, Reason::Deadline),
            _ => {
                self.drop_live(Outcome::Cancelled, Reason::Deadline);
                self.window = super::Window::default();
                self.exhausted(Cause::Deadline);
            }
        }
    }

    /// The drain's deadline (M10): loud, never silent.
    pub(super) fn shut_down(&mut self) {
        match self.phase {
            Phase::Finished => {}
            Phase::Streaming => self.incomplete(Incomplete::Shutdown),
            Phase::Passing => self.break_off(Outcome::Cancelled, Reason::Cancelled),
            _ => {
                self.leave_queue();
                self.drop_live(Outcome::Cancelled, Reason::Cancelled);
                self.window = super::Window::default();
                let answer = self.own_words(503, "the gateway is shutting down; try again", Outcome::Cancelled);
                self.finish(End::Answer(Box::new(answer)));
            }
        }
    }
}
