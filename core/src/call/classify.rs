//! The status table of M6: what each failure cures, costs and ends as.

use crate::outcome::Outcome;
use crate::wire::ErrorFact;

/// What follows from an upstream's status, real or derived from an error object (M4).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    /// How the attempt ended.
    pub(crate) outcome: Outcome,
    /// Whether the same source may cure it.
    pub(crate) retry: bool,
    /// Whether another source may.
    pub(crate) transfer: bool,
    /// What the client gets if it ends there.
    pub(crate) status: u16,
}

/// The table.
pub(crate) fn classify(status: u16) -> Class {
    use Outcome::{RateLimited, RequestRejected, SourceDead, Transient};
    let (outcome, retry, transfer) = match status {
        429 => (RateLimited, true, true),
        408 | 425 | 502 | 503 | 504 | 520..=524 | 529 => (Transient, true, true),
        401 | 402 => (SourceDead, false, true),
        403 | 404 => (RequestRejected, false, true),
        400..=499 => (RequestRejected, false, false),
        500..=599 => (Transient, false, true),
        _ => return Class { outcome: RequestRejected, retry: false, transfer: true, status: 502 },
    };
    Class { outcome, retry, transfer, status }
}

/// Whether an error speaks of overload or rate limiting, by its status or its words: the pace is cut (G14).
pub(crate) fn is_overload(fact: &ErrorFact) -> bool {
    let says = |word: &str| word.to_ascii_lowercase().contains("overload");
    matches!(fact.status, 429 | 529) || says(&fact.kind) || says(&fact.code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use core::fmt::Write;

    /// M6, every status that has a line of its own or stands for a range.
    #[test]
    fn the_status_table() {
        let mut table = String::new();
        for status in [
            100, 200, 301, 399, 400, 401, 402, 403, 404, 405, 408, 409, 413, 418, 422, 425, 429, 451, 500, 501, 502,
            503, 504, 507, 519, 520, 524, 525, 529, 530, 599, 600, 666, 999,
        ] {
            let class = classify(status);
            let yes = |it| if it { "yes" } else { "no" };
            writeln!(
                table,
                "{status} retry {:3} transfer {:3} {:16} ends as {}",
                yes(class.retry),
                yes(class.transfer),
                class.outcome.as_str(),
                class.status
            )
            .unwrap();
        }
        insta::assert_snapshot!(table);
    }

    /// G14: an overload told in a stream cuts the pace like a 529, though its status is derived.
    #[test]
    fn overload_is_told_by_status_or_by_words() {
        let fact = |status, kind: &str, code: &str| ErrorFact {
            status,
            kind: kind.into(),
            code: code.into(),
            ..ErrorFact::default()
        };
        assert!(is_overload(&fact(529, "", "")) && is_overload(&fact(429, "", "")));
        assert!(
            is_overload(&fact(503, "overloaded_error", "")) && is_overload(&fact(503, "x", "server_is_overloaded"))
        );
        assert!(!is_overload(&fact(503, "server_error", "")));
    }
}
