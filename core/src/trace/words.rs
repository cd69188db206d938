//! The words of the vocabulary's enums, both ways.

use crate::event::{CancelCause, CommitReason, Fault, Incomplete, Reason, Shape, Stop, Why};
use crate::outcome::Outcome;
use crate::policy::EmptyCompletion;
use crate::pool::{BreakerState, Refusal, RestScope, Strategy};
use crate::wire::Format;

/// An enum whose variants are words in a trace.
pub(super) trait Word: Copy + Sized + 'static {
    /// Every variant.
    const ALL: &'static [Self];

    /// Its word.
    fn word(self) -> &'static str;

    /// The variant of a word.
    fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|variant| variant.word() == word)
    }
}

/// Lists an enum's variants with their words. The match makes a variant that is missing here an error.
macro_rules! words {
    ($($kind:ident { $($variant:ident = $word:literal),+ $(,)? })+) => {$(
        impl Word for $kind {
            const ALL: &'static [$kind] = &[$($kind::$variant),+];

            fn word(self) -> &'static str {
                match self { $($kind::$variant => $word),+ }
            }
        }
    )+};
}

words! {
    Fault {
        Connect = "connect", ConnectTimeout = "connect_timeout", Tls = "tls", Reset = "reset", Protocol = "protocol",
        Coding = "coding", TooLarge = "too_large", Local = "local",
    }
    CancelCause { ClientGone = "client_gone", ClientStalled = "client_stalled", Shutdown = "shutdown" }
    Why { First = "first", Retry = "retry", Transfer = "transfer", Reask = "reask" }
    CommitReason {
        Content = "content", End = "end", WindowBytes = "window_bytes", WindowEvents = "window_events", Head = "head",
    }
    Shape { AsSent = "as_sent", EventStream = "event_stream" }
    Incomplete { Cut = "cut", Idle = "idle", Malformed = "malformed", Deadline = "deadline", Shutdown = "shutdown" }
    Stop {
        RoutingTransferLimit = "routing_transfer_limit_reached",
        ProviderTransferLimit = "provider_transfer_limit_reached", Stalled = "stalled",
    }
    Outcome {
        Success = "success", Transient = "transient", RateLimited = "rate_limited", SourceDead = "source_dead",
        ResultInvalid = "result_invalid", RequestRejected = "request_rejected", Cancelled = "cancelled",
    }
    Refusal {
        Nothing = "nothing_left", Breaker = "breaker_open", Resting = "resting", Backoff = "backoff",
        Paced = "adaptive_paced", Full = "limit_reached", StoreDown = "store_down",
    }
    BreakerState { Closed = "closed", HalfOpen = "half_open", Open = "open" }
    RestScope { Account = "account", Source = "source" }
    Strategy {
        Priority = "priority", HealthAware = "health_aware", RoundRobin = "round_robin",
        LeastInflight = "least_inflight",
    }
    EmptyCompletion { Failover = "failover", Deliver = "deliver" }
    Format {
        Chat = "chat", Responses = "responses", Messages = "messages", CountTokens = "count_tokens",
        Embeddings = "embeddings", Images = "images", Raw = "raw",
    }
}

impl Word for Reason {
    const ALL: &'static [Reason] = &[
        Reason::Good,
        Reason::Status,
        Reason::BadStatus,
        Reason::ErrorObject,
        Reason::SuccessRule,
        Reason::EmptyCompletion,
        Reason::NoChoices,
        Reason::EmptyBody,
        Reason::EmptyStream,
        Reason::Drifted,
        Reason::Malformed,
        Reason::NotStructured,
        Reason::Fault(Fault::Connect),
        Reason::Fault(Fault::ConnectTimeout),
        Reason::Fault(Fault::Tls),
        Reason::Fault(Fault::Reset),
        Reason::Fault(Fault::Protocol),
        Reason::Fault(Fault::Coding),
        Reason::Fault(Fault::TooLarge),
        Reason::Fault(Fault::Local),
        Reason::FirstByteTimeout,
        Reason::FirstContentTimeout,
        Reason::IdleTimeout,
        Reason::TotalTimeout,
        Reason::Deadline,
        Reason::Cancelled,
        Reason::Cut,
    ];

    fn word(self) -> &'static str {
        match self {
            Reason::Good
            | Reason::Status
            | Reason::BadStatus
            | Reason::ErrorObject
            | Reason::SuccessRule
            | Reason::EmptyCompletion
            | Reason::NoChoices
            | Reason::EmptyBody
            | Reason::EmptyStream
            | Reason::Drifted
            | Reason::Malformed
            | Reason::NotStructured
            | Reason::Fault(_)
            | Reason::FirstByteTimeout
            | Reason::FirstContentTimeout
            | Reason::IdleTimeout
            | Reason::TotalTimeout
            | Reason::Deadline
            | Reason::Cancelled
            | Reason::Cut => self.as_str(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn check<T: Word + PartialEq + core::fmt::Debug>() {
        let words: Vec<&str> = T::ALL.iter().map(|variant| variant.word()).collect();
        for (index, word) in words.iter().enumerate() {
            assert_eq!(T::of(word), Some(T::ALL[index]), "{word} means two things");
        }
        assert_eq!(T::of("no such word"), None);
    }

    #[test]
    fn every_word_means_one_thing() {
        check::<Fault>();
        check::<CancelCause>();
        check::<Why>();
        check::<CommitReason>();
        check::<Shape>();
        check::<Incomplete>();
        check::<Stop>();
        check::<Outcome>();
        check::<Refusal>();
        check::<BreakerState>();
        check::<RestScope>();
        check::<Strategy>();
        check::<EmptyCompletion>();
        check::<Format>();
        check::<Reason>();
    }

    #[test]
    fn the_words_are_those_of_logs_and_metrics() {
        assert!(Fault::ALL.iter().all(|it| it.word() == it.as_str()));
        assert!(CancelCause::ALL.iter().all(|it| it.word() == it.as_str()));
        assert!(Why::ALL.iter().all(|it| it.word() == it.as_str()));
        assert!(CommitReason::ALL.iter().all(|it| it.word() == it.as_str()));
        assert!(Incomplete::ALL.iter().all(|it| it.word() == it.as_str()));
        assert!(Stop::ALL.iter().all(|it| it.word() == it.as_str()));
        assert!(Outcome::ALL.iter().all(|it| it.word() == it.as_str()));
        assert!(Refusal::ALL.iter().all(|it| it.word() == it.as_str()));
        assert!(BreakerState::ALL.iter().all(|it| it.word() == it.as_str()));
        assert!(Strategy::ALL.iter().all(|it| it.word() == it.as_str()));
        assert!(Format::ALL.iter().all(|it| it.word() == it.as_str()));
    }
}
