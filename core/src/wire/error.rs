//! Errors in and out: what upstreams tell and in which of their many shapes (M2, M4), and the shapes that clients read.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{Dialect, ErrorFact, Format};

/// The status of an error that does not tell one (M4).
const UNKNOWN: u16 = 502;
/// Longer plain texts are pages or dumps: no message to pass on.
const MAX_PLAIN_MESSAGE: usize = 1000;

/// The error that the body of an answer with an error status tells. The status stays the answer's own.
pub fn from_body(status: u16, body: &[u8]) -> ErrorFact {
    let mut fact = match serde_json::from_slice::<Value>(body) {
        Ok(value) => of_object(Dialect::OpenAi, &value).unwrap_or_else(|| of_loose(Dialect::OpenAi, &value)),
        Err(_) => ErrorFact { message: plain_message(body), ..ErrorFact::default() },
    };
    fact.status = status;
    fact
}

/// The error that a document tells, if it tells one (M2, M4): in an `error` field (an object, a text), flat with
/// `object` or `type` "error", in the `response` of a Responses event, or any of these as the one element of a list.
pub fn of_object(dialect: Dialect, document: &Value) -> Option<ErrorFact> {
    let document = match document {
        Value::Array(list) => match list.as_slice() {
            [only] => only,
            _ => return None,
        },
        other => other,
    };
    let outer = document.as_object()?;
    let response = outer.get("response").and_then(Value::as_object);
    for holder in [Some(outer), response].into_iter().flatten() {
        match holder.get("error") {
            Some(Value::Object(inner)) if !inner.is_empty() => return Some(read(dialect, inner, holder)),
            Some(Value::Array(list)) if !list.is_empty() => {
                let first = list.first().and_then(Value::as_object);
                return Some(read(dialect, first.unwrap_or(holder), holder));
            }
            Some(Value::String(text)) if !text.is_empty() => {
                let mut fact = read(dialect, holder, holder);
                fact.message = if fact.message.is_empty() { text.clone() } else { fact.message };
                return Some(fact);
            }
            Some(Value::Bool(true)) => return Some(read(dialect, holder, holder)),
            Some(Value::Number(number)) if number.as_f64() != Some(0.0) => return Some(read(dialect, holder, holder)),
            _ => {}
        }
    }
    let is_error = |key| outer.get(key).and_then(Value::as_str) == Some("error");
    (is_error("object") || is_error("type")).then(|| read(dialect, outer, outer))
}

/// The error of an event or a body that is known to be one, whatever it holds.
pub(super) fn of_event(dialect: Dialect, data: &[u8]) -> ErrorFact {
    let mut fact = match serde_json::from_slice::<Value>(data) {
        Ok(value) => of_object(dialect, &value).unwrap_or_else(|| of_loose(dialect, &value)),
        Err(_) => ErrorFact { status: UNKNOWN, message: plain_message(data), ..ErrorFact::default() },
    };
    if fact.message.is_empty() {
        fact.message = "the provider reported an error and said no more".to_owned();
    }
    fact
}

/// The error in a document that is not of its protocol, if it is one.
pub(super) fn in_document(dialect: Dialect, data: &[u8]) -> Option<ErrorFact> {
    of_object(dialect, &serde_json::from_slice(data).ok()?)
}

/// The error in a document that has no known shape of one: whatever words it has.
fn of_loose(dialect: Dialect, document: &Value) -> ErrorFact {
    let first = match document {
        Value::Array(list) => list.first().unwrap_or(document),
        other => other,
    };
    match first {
        Value::Object(object) => {
            let inner = ["errors", "detail"].iter().find_map(|key| match object.get(*key)? {
                Value::Array(list) => list.first().and_then(Value::as_object),
                Value::Object(inner) => Some(inner),
                _ => None,
            });
            read(dialect, inner.unwrap_or(object), object)
        }
        Value::String(text) => ErrorFact { status: UNKNOWN, message: text.clone(), ..ErrorFact::default() },
        _ => ErrorFact { status: UNKNOWN, ..ErrorFact::default() },
    }
}

/// Reads an error object; `outer` is what it stands in, where some put the status.
fn read(dialect: Dialect, inner: &Map<String, Value>, outer: &Map<String, Value>) -> ErrorFact {
    let word = |key: &str| inner.get(key).and_then(Value::as_str).unwrap_or_default();
    let kind = match word("type") {
        "error" => "",
        kind => kind,
    };
    let code = match inner.get("code") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let message = ["message", "msg", "detail", "error_message", "error", "title"]
        .iter()
        .find_map(|key| message(inner.get(*key)?));
    // Google's own word for it; OpenAI-shaped answers of theirs have it beside a numeric code.
    let google = word("status");
    let status = ["code", "status", "status_code", "http_status", "error"]
        .iter()
        .flat_map(|key| [inner.get(*key), outer.get(*key)])
        .find_map(numeric_status)
        .or_else(|| by_words(dialect, &code, google, kind))
        .unwrap_or(UNKNOWN);
    let message = message.unwrap_or_default();
    let quota_gone = [&*code, google, kind].into_iter().any(is_quota_word) || is_quota_message(&message);
    ErrorFact { status, kind: kind.to_owned(), code, message, quota_gone }
}

fn message(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Object(object) if !object.is_empty() => match object.get("message") {
            Some(Value::String(text)) => Some(text.clone()),
            _ => Some(value.to_string()),
        },
        Value::Array(list) if !list.is_empty() => Some(value.to_string()),
        _ => None,
    }
}

/// A status that an error tells as a number or as digits, if it is an error status.
fn numeric_status(value: Option<&Value>) -> Option<u16> {
    let number = match value? {
        Value::Number(number) => u16::try_from(number.as_u64()?).ok()?,
        Value::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    (400..=599).contains(&number).then_some(number)
}

/// The status that an error's words mean. The code word is the finer one, so it wins over the type.
fn by_words(dialect: Dialect, code: &str, google: &str, kind: &str) -> Option<u16> {
    match dialect {
        Dialect::OpenAi => [code, google, kind].into_iter().find_map(openai_word),
        Dialect::Anthropic => {
            let foreign = |word| match openai_word(word)? {
                503 if folded(word).contains("overloaded") => Some(529),
                status => Some(status),
            };
            let own = || (!kind.is_empty()).then(|| anthropic_type(kind).unwrap_or(500));
            foreign(code).or_else(|| foreign(google)).or_else(own)
        }
    }
}

/// Anthropic's error types; the ones that are not here are 500 (M4).
fn anthropic_type(kind: &str) -> Option<u16> {
    Some(match kind {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" => 429,
        "overloaded_error" => 529,
        "api_error" | "timeout_error" | "billing_error" => 500,
        _ => return None,
    })
}

/// Parts of OpenAI-style type and code words (folded: small letters and digits only), the first that occurs decides.
const OPENAI_WORDS: [(&str, u16); 44] = [
    ("ratelimit", 429),
    ("toomanyrequests", 429),
    ("throttl", 429),
    ("insufficientbalance", 402),
    ("insufficientcredit", 402),
    ("insufficientfunds", 402),
    ("paymentrequired", 402),
    ("quota", 429),
    ("resourceexhausted", 429),
    ("billing", 429),
    ("toolarge", 413),
    ("contextlength", 400),
    ("contextwindow", 400),
    ("authentic", 401),
    ("invalidapikey", 401),
    ("incorrectapikey", 401),
    ("unauthorized", 401),
    ("unauthorised", 401),
    ("accountdeactivated", 401),
    ("permission", 403),
    ("forbidden", 403),
    ("accessdenied", 403),
    ("unsupportedcountry", 403),
    ("notfound", 404),
    ("nosuchmodel", 404),
    ("overloaded", 503),
    ("unavailable", 503),
    ("capacity", 503),
    ("slowdown", 503),
    ("timeout", 504),
    ("timedout", 504),
    ("deadlineexceeded", 504),
    ("servererror", 500),
    ("internal", 500),
    ("apierror", 500),
    ("invalid", 400),
    ("badrequest", 400),
    ("unsupported", 400),
    ("validation", 400),
    ("contentpolicy", 400),
    ("contentfilter", 400),
    ("failedprecondition", 400),
    ("outofrange", 400),
    ("missingrequired", 400),
];

fn openai_word(word: &str) -> Option<u16> {
    let word = folded(word);
    OPENAI_WORDS.iter().find(|(part, _)| word.contains(part)).map(|(_, status)| *status)
}

/// `RateLimitError`, `rate_limit_error`, `rate-limit` are the same word.
fn folded(word: &str) -> String {
    word.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Words that say that a key's credit is gone: no wait will cure it (G12).
///
/// A bare "quota" is not among them: Google's RESOURCE_EXHAUSTED is a limit per minute.
fn is_quota_word(word: &str) -> bool {
    const GONE: [&str; 8] = [
        "insufficientquota",
        "insufficientbalance",
        "insufficientcredit",
        "insufficientfunds",
        "exceededcurrentquota",
        "billing",
        "paymentrequired",
        "creditbalance",
    ];
    let word = folded(word);
    GONE.iter().any(|part| word.contains(part))
}

/// The few sentences that say it where the words do not: Anthropic tells it as an `invalid_request_error`.
fn is_quota_message(message: &str) -> bool {
    const GONE: [&str; 4] =
        ["credit balance is too low", "billing hard limit", "insufficient balance", "insufficient credits"];
    let message = message.to_ascii_lowercase();
    GONE.iter().any(|phrase| message.contains(phrase))
}

/// A body that is no JSON as a message: short plain text only, a page's words are not passed on.
fn plain_message(body: &[u8]) -> String {
    match core::str::from_utf8(body).map(str::trim) {
        Ok(text) if text.len() <= MAX_PLAIN_MESSAGE && !text.contains(['<', '\0']) => text.to_owned(),
        _ => String::new(),
    }
}

/// The `type` of an error with this status, in the words of the dialect's own SDKs.
pub fn type_for(dialect: Dialect, status: u16) -> &'static str {
    match (status, dialect) {
        (401, _) => "authentication_error",
        (403, _) => "permission_error",
        (404, _) => "not_found_error",
        (429, _) => "rate_limit_error",
        (400..=499, _) => "invalid_request_error",
        (529, Dialect::Anthropic) => "overloaded_error",
        (_, Dialect::Anthropic) => "api_error",
        (_, Dialect::OpenAi) => "provider_error",
    }
}

/// An error of our own as a body. Anthropic's shape has no code; OpenAI's has no request id.
pub fn render(dialect: Dialect, status: u16, message: &str, code: Option<&str>, request_id: &str) -> Bytes {
    envelope(dialect, type_for(dialect, status), message, code, request_id)
}

fn envelope(dialect: Dialect, kind: &str, message: &str, code: Option<&str>, request_id: &str) -> Bytes {
    let value = match dialect {
        Dialect::OpenAi => json!({"error": {"message": message, "type": kind, "param": null, "code": code}}),
        Dialect::Anthropic => {
            json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id})
        }
    };
    Bytes::from(value.to_string())
}

/// Whether an upstream's error body is in the client's shape already, so that it goes out as it came.
pub fn fits(dialect: Dialect, body: &[u8]) -> bool {
    let Ok(Value::Object(outer)) = serde_json::from_slice::<Value>(body) else { return false };
    let Some(error) = outer.get("error").and_then(Value::as_object) else { return false };
    let has = |key: &str| error.get(key).is_some_and(Value::is_string);
    match dialect {
        // An Anthropic error has this, too; its `type` beside the object is what tells them apart.
        Dialect::OpenAi => has("message") && outer.get("type").is_none_or(|kind| kind != "error"),
        Dialect::Anthropic => outer.get("type").is_some_and(|kind| kind == "error") && has("type") && has("message"),
    }
}

/// An upstream's error in the client's shape, with its own words where the shape has a place for them.
pub fn render_fact(dialect: Dialect, status: u16, fact: &ErrorFact, request_id: &str) -> Bytes {
    let stated = |text| if fact.message.is_empty() { text } else { fact.message.clone() };
    let message = stated(format!("the provider answered with status {status} and no message"));
    let own_kind = match dialect {
        Dialect::OpenAi => !fact.kind.is_empty(),
        Dialect::Anthropic => anthropic_type(&fact.kind).is_some(),
    };
    let kind = if own_kind { &*fact.kind } else { type_for(dialect, status) };
    let code = (!fact.code.is_empty()).then_some(&*fact.code);
    envelope(dialect, kind, &message, code, request_id)
}

/// The one error event that ends a committed stream which broke off (M5), in the client's protocol.
///
/// `reason`: `cut`, `idle`, `malformed`, `oversized`, `shutdown`; `sequence` is the number that a Responses event needs.
pub fn render_incomplete(format: Format, provider: &str, reason: &str, sequence: u64) -> Bytes {
    let what = match reason {
        "cut" => "ended before the answer was complete",
        "idle" => "went silent",
        "malformed" => "sent an event that can not be read",
        "oversized" => "sent an event that is too large",
        "shutdown" => "was left because the gateway is shutting down",
        _ => "was left before the answer was complete",
    };
    let message = format!("stream_incomplete: the stream of provider {provider} {what} (reason: {reason})");
    let event = match format {
        Format::Responses => {
            let data = json!({"type": "error", "code": "stream_incomplete", "message": message, "param": null, "sequence_number": sequence});
            format!("event: error\ndata: {data}\n\n")
        }
        Format::Messages | Format::CountTokens => {
            let data = json!({"type": "error", "error": {"type": "api_error", "message": message}});
            format!("event: error\ndata: {data}\n\n")
        }
        _ => {
            let error =
                json!({"code": "stream_incomplete", "message": message, "param": null, "type": "provider_error"});
            format!("data: {}\n\n", json!({ "error": error }))
        }
    };
    Bytes::from(event)
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
