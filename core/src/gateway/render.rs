//! Answers of our own: errors in the protocol's shape, health, and the headers that stand on every answer (X1, X6).

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use bytes::Bytes;

use crate::time::Span;
use crate::wire::{Dialect, error};

/// The content type of all answers made here.
pub const JSON: &str = "application/json";

/// A whole answer that needs no upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its content type.
    pub content_type: &'static str,
    /// Its other headers, names in lower case; those of X6 among them.
    pub headers: Vec<(&'static str, String)>,
    /// Its body.
    pub body: Bytes,
}

impl Answer {
    /// An answer with a JSON body.
    pub fn json(status: u16, body: impl Into<Bytes>, request_id: &str) -> Answer {
        let headers = Served { request_id, ..Served::default() }.headers();
        Answer { status, content_type: JSON, headers, body: body.into() }
    }

    /// An error in the shape of `dialect`.
    pub fn error(dialect: Dialect, status: u16, message: &str, code: Option<&str>, request_id: &str) -> Answer {
        Answer::json(status, error::render(dialect, status, message, code, request_id), request_id)
    }

    /// The same with one more header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.headers.push((name, value.into()));
        self
    }

    /// A body beyond `max_body_bytes`: 413 (X3).
    pub fn too_large(dialect: Dialect, max_body_bytes: u64, request_id: &str) -> Answer {
        let message =
            alloc::format!("the request body is larger than {max_body_bytes} bytes, the gateway's `max_body_bytes`");
        Answer::error(dialect, 413, &message, None, request_id)
    }

    /// More calls than `max_concurrency`: 503; the client may come back at once.
    pub fn busy(dialect: Dialect, request_id: &str) -> Answer {
        Answer::error(dialect, 503, "the gateway serves as many calls as it may; try again shortly", None, request_id)
            .with("retry-after", "1")
    }

    /// A call that came while the gateway stops: 503 (M10).
    pub fn stopping(dialect: Dialect, request_id: &str) -> Answer {
        Answer::error(dialect, 503, "the gateway is shutting down; try again", None, request_id)
            .with("retry-after", "1")
            .with("connection", "close")
    }
}

/// What an answer's own headers tell (X6, F19).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Served<'a> {
    /// The call's id.
    pub request_id: &'a str,
    /// The source of the last attempt; `None` = there was none.
    pub source: Option<&'a str>,
    /// Attempts started.
    pub attempts: u32,
    /// The event code that ended the call before its list was used up (F18).
    pub stop: Option<&'a str>,
    /// An immediate retry of the client would only multiply load.
    pub no_retry: bool,
    /// When a retry may help; whole seconds, rounded up.
    pub retry_after: Option<Span>,
}

impl Served<'_> {
    /// The headers, names in lower case.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = Vec::with_capacity(6);
        headers.push(("x-request-id", self.request_id.into()));
        headers.push(("x-surefoot-attempts", self.attempts.to_string()));
        headers.extend(self.source.map(|source| ("x-surefoot-source", source.into())));
        headers.extend(self.stop.map(|stop| ("x-surefoot-stop", stop.into())));
        headers.extend(self.no_retry.then(|| ("x-should-retry", "false".into())));
        headers.extend(self.retry_after.map(|span| ("retry-after", span.as_secs_ceil().to_string())));
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_an_attempt_has_an_id_and_no_source() {
        let answer = Answer::too_large(Dialect::OpenAi, 400, "r-1");
        assert_eq!((answer.status, answer.content_type), (413, "application/json"));
        assert_eq!(answer.headers, [("x-request-id", "r-1".into()), ("x-surefoot-attempts", "0".to_string())]);
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["error"]["type"], "invalid_request_error");
    }

    #[test]
    fn the_headers_of_a_call_tell_who_served_and_why_it_ended() {
        let served = Served {
            request_id: "r-1",
            source: Some("u1/k1"),
            attempts: 2,
            stop: Some("routing_transfer_limit_reached"),
            no_retry: true,
            retry_after: Some(Span::from_millis(1_200)),
        };
        let shown: Vec<String> = served.headers().iter().map(|(name, value)| format!("{name}: {value}")).collect();
        insta::assert_snapshot!(shown.join("\n"), @r"
        x-request-id: r-1
        x-surefoot-attempts: 2
        x-surefoot-source: u1/k1
        x-surefoot-stop: routing_transfer_limit_reached
        x-should-retry: false
        retry-after: 2
        ");
    }
}
