//! Heads of answers: the upstream's less what stays here, and the gateway's own headers on all of them (X1, X6, F19).

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use memchr::memmem;
use surefoot_core::event::{Answer, Commit, Shape, Stop};
use surefoot_core::gateway;
use surefoot_core::gateway::headers::{Fate, Handling, response_header};
use surefoot_core::gateway::render::Served;

use super::body::{CallBody, ReplyBody};
use super::host::CallHost;
use super::running::Running;
use crate::reactor::Reactor;

/// What stands for a key that an upstream's header repeats.
const MASK: &[u8] = b"***";

/// An answer of the gateway's own.
pub(super) fn local<R: Reactor>(answer: gateway::Answer) -> Response<ReplyBody<R>> {
    let mut response = Response::new(ReplyBody::Whole(answer.body));
    *response.status_mut() = status(answer.status);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    put(headers, answer.headers);
    response
}

/// The head of a committed attempt, and the rest of its call as the body.
pub(super) fn committed<R: Reactor>(mut running: Box<Running<R>>, commit: &Commit) -> Response<ReplyBody<R>> {
    let attempts = running.attempts();
    let mut headers = HeaderMap::new();
    let mut code = StatusCode::OK;
    if let Some(host) = running.host() {
        if let Some(head) = host.head(commit.attempt) {
            code = head.status;
            headers = upstream_headers(host, &head.headers, commit.choice, host.handling());
        }
        let source = host.candidate(commit.choice).map(|candidate| &*candidate.source_name);
        let request_id = host.request_id();
        put(&mut headers, Served { request_id, source, attempts, ..Served::default() }.headers());
    }
    if commit.shape == Shape::EventStream {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.remove(header::CONTENT_LENGTH);
    }
    if let Some(length) = commit.length {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    running.set_status(code.as_u16());
    running.forget_request();
    let length = commit.length.or_else(|| announced(&headers));
    let mut response = Response::new(ReplyBody::Call(CallBody::new(running, length)));
    *response.status_mut() = code;
    *response.headers_mut() = headers;
    response
}

/// The answer of a call in which nothing was committed.
pub(super) fn answered<R: Reactor>(running: &Running<R>, answer: &Answer) -> Response<ReplyBody<R>> {
    let mut headers = HeaderMap::new();
    if let Some(host) = running.host() {
        let head = answer.head.and_then(|attempt| host.head(attempt));
        if let (Some(head), Some(choice)) = (head, answer.choice) {
            let handling = if answer.as_sent { host.handling() } else { Handling::Inspected };
            headers = upstream_headers(host, &head.headers, choice, handling);
        }
        let served = Served {
            request_id: host.request_id(),
            source: answer.choice.and_then(|choice| host.candidate(choice)).map(|candidate| &*candidate.source_name),
            attempts: running.attempts(),
            stop: answer.stop.map(Stop::as_str),
            no_retry: answer.no_retry,
            retry_after: answer.retry_after,
        };
        put(&mut headers, served.headers());
    }
    headers.remove(header::CONTENT_LENGTH);
    if !answer.as_sent {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let mut response = Response::new(ReplyBody::Whole(answer.body.clone()));
    *response.status_mut() = status(answer.status);
    *response.headers_mut() = headers;
    response
}

/// For nobody: the client is gone.
pub(super) fn nothing<R: Reactor>() -> Response<ReplyBody<R>> {
    let mut response = Response::new(ReplyBody::Whole(Bytes::new()));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

fn upstream_headers<R: Reactor>(
    host: &CallHost<R>,
    sent: &HeaderMap,
    choice: surefoot_core::id::Choice,
    handling: Handling,
) -> HeaderMap {
    let secret = host.candidate(choice).map_or("", |candidate| candidate.secret.expose());
    let connection = connection_tokens(sent);
    let mut headers = HeaderMap::with_capacity(sent.len() + 4);
    for (name, value) in sent {
        let name = match response_header(name.as_str(), &connection, handling) {
            Fate::Pass => name.clone(),
            Fate::Rename(name) => HeaderName::from_static(name),
            Fate::Drop => continue,
        };
        headers.append(name, masked(value, secret));
    }
    headers
}

/// A value with bytes of its own: a clone would keep the buffer that the whole head was read into.
pub(super) fn copied(value: &HeaderValue) -> HeaderValue {
    let mut copy = HeaderValue::from_bytes(value.as_bytes()).unwrap_or_else(|_| value.clone());
    copy.set_sensitive(value.is_sensitive());
    copy
}

/// The values of a message's `connection` headers.
pub(super) fn connection_tokens(headers: &HeaderMap) -> Vec<&str> {
    headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok()).collect()
}

/// A header's value with the provider's key taken out, should it repeat that (X6).
fn masked(value: &HeaderValue, secret: &str) -> HeaderValue {
    if secret.is_empty() || memmem::find(value.as_bytes(), secret.as_bytes()).is_none() {
        return value.clone();
    }
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some(at) = memmem::find(rest, secret.as_bytes()) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(MASK);
        rest = &rest[at + secret.len()..];
    }
    out.extend_from_slice(rest);
    HeaderValue::from_bytes(&out).unwrap_or_else(|_| HeaderValue::from_static("***"))
}

/// The length that a passed-on head promises; bodies that break it break the connection.
fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn put(headers: &mut HeaderMap, values: Vec<(&'static str, String)>) {
    for (name, value) in values {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_GATEWAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_a_header_is_masked_wherever_it_stands() {
        let shown = |text: &str, secret| masked(&HeaderValue::from_str(text).unwrap(), secret);
        assert_eq!(shown("key sk-1 and sk-1", "sk-1"), "key *** and ***");
        assert_eq!(shown("nothing here", "sk-1"), "nothing here");
        assert_eq!(shown("no key", ""), "no key");
    }
}
