//! What each protocol says: good answers, their events, and the errors of its own kind.

mod chat;
mod messages;
mod other;
mod responses;

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::ask::{Ask, Route, instance};
use super::behaviour::{Behaviour, Empty, ErrorWords, Fault};

/// One server-sent event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    pub(super) name: Option<&'static str>,
    /// A string is sent as it stands: `[DONE]`.
    pub(super) data: Value,
    pub(super) part: Part,
}

/// What an event is in the life of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Before and between contents.
    Frame,
    Content,
    /// The finish reason.
    Finish,
    /// The end.
    Terminal,
}

impl Event {
    /// An event whose name stands in its data too.
    fn typed(data: Value, name: &'static str, part: Part) -> Event {
        Event { name: Some(name), data, part }
    }

    fn plain(data: Value, part: Part) -> Event {
        Event { name: None, data, part }
    }

    /// The event as bytes, its data damaged if `broken`.
    pub(super) fn bytes(&self, broken: bool) -> Vec<u8> {
        let data = self.data.as_str().map_or_else(|| self.data.to_string(), str::to_owned);
        let data = if broken { half(&data) } else { &data };
        match self.name {
            Some(name) => format!("event: {name}\ndata: {data}\n\n").into_bytes(),
            None => format!("data: {data}\n\n").into_bytes(),
        }
    }
}

/// The first half of a text, cut between characters.
pub(super) fn half(text: &str) -> &str {
    let end = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

/// What an answer is to say.
#[derive(Clone, Debug)]
pub(super) struct Say {
    /// Number of the request: the ids are made of it.
    pub(super) number: u64,
    pub(super) created: u64,
    pub(super) model: String,
    /// The words, in the pieces of a stream.
    pub(super) pieces: Vec<String>,
    /// A tool call: name and arguments.
    pub(super) tool: Option<(String, String)>,
    pub(super) finish: Option<String>,
    pub(super) n: usize,
    /// The last choice never finishes.
    pub(super) unfinished: bool,
    /// No choices, blocks or output at all.
    pub(super) hollow: bool,
    pub(super) usage: (u64, u64),
}

impl Say {
    pub(super) fn new(ask: &Ask, behaviour: &Behaviour, number: u64) -> Say {
        let tool = behaviour.tool.as_ref().or(ask.must_call.as_ref()).map(|wanted| {
            let offered = ask.tools.iter().find(|(name, _)| wanted.is_empty() || name == wanted);
            let (name, schema) =
                offered.map_or((wanted.as_str(), &Value::Null), |(name, schema)| (name.as_str(), schema));
            let name = if name.is_empty() { "mock_tool" } else { name };
            (name.to_owned(), instance(schema, 8).to_string())
        });
        let text = match (&behaviour.text, &ask.schema) {
            (Some(text), _) => text.clone(),
            (None, Some(schema)) => instance(schema, 8).to_string(),
            (None, None) => "Hello! This is the mock, and all is well.".to_owned(),
        };
        let mut pieces: Vec<String> = text.split_inclusive(' ').map(str::to_owned).collect();
        match behaviour.fault {
            Fault::Huge(bytes) => pieces.insert(0, "x".repeat(bytes)),
            Fault::Empty(Empty::Text | Empty::Choices) => pieces.clear(),
            _ => {}
        }
        let spoken = pieces.len().max(1) as u64;
        let unfinished = behaviour.fault == Fault::Unfinished;
        Say {
            number,
            created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            model: ask.model.clone(),
            pieces,
            tool: tool.filter(|_| !matches!(behaviour.fault, Fault::Empty(Empty::Text | Empty::Choices))),
            finish: behaviour.finish.clone(),
            n: if unfinished { ask.n.max(2) } else { ask.n.max(1) },
            unfinished,
            hollow: behaviour.fault == Fault::Empty(Empty::Choices),
            usage: if behaviour.fault == Fault::Empty(Empty::Usage) { (0, 0) } else { (ask.prompt_tokens, spoken) },
        }
    }

    fn text(&self) -> String {
        self.pieces.concat()
    }

    fn reason<'a>(&'a self, usual: &'a str, for_tools: &'a str) -> &'a str {
        self.finish.as_deref().unwrap_or(if self.tool.is_some() { for_tools } else { usual })
    }
}

/// The whole answer of a route.
pub(super) fn whole(route: Route, ask: &Ask, say: &Say, models: &[String]) -> Value {
    match route {
        Route::Chat => chat::whole(say),
        Route::Responses => responses::whole(say),
        Route::Messages => messages::whole(say),
        Route::CountTokens => json!({ "input_tokens": say.usage.0 }),
        Route::Embeddings => other::embeddings(ask, say),
        Route::Images(_) => other::images(ask, say),
        Route::Models => other::models(models, say),
        Route::Model => other::model(&ask.model, say),
        Route::Unknown => json!({ "object": "mock", "ok": true }),
    }
}

/// The events of a route's stream; nothing for a route without streams.
pub(super) fn events(route: Route, ask: &Ask, say: &Say) -> Vec<Event> {
    match route {
        Route::Chat => chat::events(ask, say),
        Route::Responses => responses::events(say),
        Route::Messages => messages::events(say),
        Route::Images(edit) => other::image_events(edit, say),
        _ => Vec::new(),
    }
}

/// Gives a known field the wrong type: in a whole answer, or in an event.
pub(super) fn drift(data: &mut Value) {
    for field in ["choices", "content", "output", "delta", "data", "input_tokens", "b64_json"] {
        if let Some(value) = data.get_mut(field) {
            *value = if value.is_string() { json!(["drifted"]) } else { json!("drifted") };
            return;
        }
    }
}

/// The comment or ping that keeps a connection busy without saying anything.
pub(super) fn ping(route: Route, comment: bool) -> Vec<u8> {
    match route {
        Route::Messages if !comment => Event::typed(json!({ "type": "ping" }), "ping", Part::Frame).bytes(false),
        _ => b": keep-alive\n\n".to_vec(),
    }
}

/// An error answer's body.
pub(super) fn error_body(route: Route, status: u16, words: &ErrorWords, number: u64) -> Value {
    let (kind, code, message) = error_words(route, status, words);
    if route.anthropic() {
        json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": format!("req_mock{number}") })
    } else {
        json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
    }
}

/// An error inside a stream.
pub(super) fn error_event(route: Route, status: u16, words: &ErrorWords, sequence: usize) -> Event {
    let (kind, code, message) = error_words(route, status, words);
    match route {
        Route::Messages => Event::typed(
            json!({ "type": "error", "error": { "type": kind, "message": message } }),
            "error",
            Part::Frame,
        ),
        Route::Responses => Event::typed(
            json!({ "type": "error", "sequence_number": sequence, "code": code, "message": message, "param": null }),
            "error",
            Part::Frame,
        ),
        Route::Images(_) => Event::typed(
            json!({ "type": "error", "error": { "message": message, "type": kind, "param": null, "code": code } }),
            "error",
            Part::Frame,
        ),
        _ => Event::plain(
            json!({ "error": { "message": message, "type": kind, "param": null, "code": code } }),
            Part::Frame,
        ),
    }
}

/// The response that has failed (Responses only).
pub(super) fn failed(say: &Say, status: u16, words: &ErrorWords) -> Value {
    let (kind, code, message) = error_words(Route::Responses, status, words);
    // The code is an enumeration of words here; a number has none.
    responses::failed(say, json!({ "code": code.as_str().unwrap_or(&kind), "message": message }))
}

/// `response.failed`.
pub(super) fn failed_event(say: &Say, status: u16, words: &ErrorWords, sequence: usize) -> Event {
    let response = failed(say, status, words);
    let data = json!({ "type": "response.failed", "sequence_number": sequence, "response": response });
    Event::typed(data, "response.failed", Part::Frame)
}

fn error_words(route: Route, status: u16, words: &ErrorWords) -> (String, Value, String) {
    let (kind, code) = if route.anthropic() { (anthropic_kind(status), Value::Null) } else { openai_kind(status) };
    let kind = words.kind.clone().unwrap_or_else(|| kind.to_owned());
    let code = words.code.as_ref().map_or(code, |code| code.parse::<u32>().map_or_else(|_| json!(code), |n| json!(n)));
    let message = words.message.clone().unwrap_or_else(|| format!("mock: {}", usual_message(status)));
    (kind, code, message)
}

fn anthropic_kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

/// Type and code; a code that has no word of its own is the number, as routers in front of providers give it.
fn openai_kind(status: u16) -> (&'static str, Value) {
    match status {
        400 | 422 => ("invalid_request_error", Value::Null),
        401 => ("invalid_request_error", json!("invalid_api_key")),
        402 => ("insufficient_quota", json!("insufficient_quota")),
        403 => ("permission_error", json!("permission_denied")),
        404 => ("invalid_request_error", json!("model_not_found")),
        413 => ("invalid_request_error", json!("request_too_large")),
        429 => ("rate_limit_error", json!("rate_limit_exceeded")),
        500 => ("server_error", json!("server_error")),
        503 => ("server_error", json!("service_unavailable")),
        400..=499 => ("invalid_request_error", json!(status)),
        529 => ("overloaded_error", json!(529)),
        _ => ("server_error", json!(status)),
    }
}

fn usual_message(status: u16) -> &'static str {
    match status {
        400 | 422 => "the request is invalid",
        401 => "incorrect API key provided",
        402 => "no credit left",
        403 => "this key may not do that",
        404 => "the model does not exist",
        408 | 504 | 524 => "the request timed out",
        413 => "the request is too large",
        429 => "rate limit reached, please slow down",
        500 => "the server had an error while processing your request",
        503 | 529 => "the engine is currently overloaded, please try again later",
        _ => "an error on purpose",
    }
}
