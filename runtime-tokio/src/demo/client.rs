//! The demo's client: sends one call, reads all of the answer, and judges it by the answer alone. It shares no code with
//! the gateway's own reading of streams, so that it can find the gateway wrong.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::story::{JSON_MODEL, SOURCES, words};

/// No answer of the gateway takes so long in this story, waiting for rate limits included.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The wire format of a call.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protocol {
    Chat,
    Responses,
    Messages,
}

/// How the answer is wanted.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mode {
    Stream,
    Whole,
    Json,
}

/// A call.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) model: &'static str,
    pub(super) protocol: Protocol,
    pub(super) mode: Mode,
}

/// What a client thinks of what it got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All of it, and nothing else.
    Good,
    /// Some words, and then the error event that says that there will be no more.
    Incomplete {
        /// The words before it.
        words: usize,
    },
    /// An error event of another kind, or an error status.
    Error(String),
    /// It ended without a word about it that it is not whole: what must never happen.
    Silent(String),
    /// It says that it is whole, but is not what was asked for.
    Wrong(String),
}

impl Verdict {
    pub(super) fn is_good(&self) -> bool {
        *self == Verdict::Good
    }
}

/// What a client saw of a call.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) verdict: Verdict,
    /// From the sending of the request to the first word, or to the whole answer.
    pub(super) first_content: Option<Duration>,
    pub(super) took: Duration,
    /// What `x-surefoot-attempts` says.
    pub(super) attempts: Option<usize>,
}

impl Seen {
    /// Holds the answer's headers against what the gateway did: telling of other attempts would be misleading too (X6).
    pub(super) fn hold_against(&mut self, attempts: usize) {
        if self.verdict.is_good() && self.attempts != Some(attempts) {
            let told = self.attempts.map_or("none".to_owned(), |told| told.to_string());
            self.verdict = Verdict::Wrong(format!("the headers tell of {told} attempts, there were {attempts}"));
        }
    }
}

impl Protocol {
    pub(super) fn name(self) -> &'static str {
        match self {
            Protocol::Chat => "chat",
            Protocol::Responses => "responses",
            Protocol::Messages => "messages",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Protocol::Chat => "/v1/chat/completions",
            Protocol::Responses => "/v1/responses",
            Protocol::Messages => "/v1/messages",
        }
    }

    /// The words in a whole answer.
    fn text(self, answer: &Value) -> Option<&str> {
        let text = match self {
            Protocol::Chat => &answer["choices"][0]["message"]["content"],
            Protocol::Responses => &answer["output"][0]["content"][0]["text"],
            Protocol::Messages => &answer["content"][0]["text"],
        };
        text.as_str()
    }

    /// The words in an event.
    fn delta(self, event: &Value) -> Option<&str> {
        let text = match self {
            Protocol::Chat => &event["choices"][0]["delta"]["content"],
            Protocol::Responses if event["type"] == "response.output_text.delta" => &event["delta"],
            Protocol::Responses => return None,
            Protocol::Messages => &event["delta"]["text"],
        };
        text.as_str().filter(|text| !text.is_empty())
    }

    fn is_terminal(self, data: &str, event: &Value) -> bool {
        match self {
            Protocol::Chat => data == "[DONE]",
            Protocol::Responses => event["type"] == "response.completed",
            Protocol::Messages => event["type"] == "message_stop",
        }
    }

    /// What an error event says.
    fn error(self, event: &Value) -> Option<String> {
        let code = match self {
            Protocol::Chat => &event["error"]["code"],
            Protocol::Responses if event["type"] == "error" => &event["code"],
            Protocol::Messages if event["type"] == "error" => &event["error"]["message"],
            _ => return None,
        };
        (!code.is_null() || !event["error"].is_null()).then(|| code.as_str().unwrap_or("an error").to_owned())
    }
}

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Stream => "stream",
            Mode::Whole => "whole",
            Mode::Json => "json",
        }
    }
}

impl Ask {
    /// The traffic: call by call, over and over.
    pub(super) fn nth(number: u64) -> Ask {
        use Mode::{Json, Stream, Whole};
        use Protocol::{Chat, Messages, Responses};
        const DECK: [(&str, Protocol, Mode); 11] = [
            ("smart", Chat, Stream),
            ("smart", Messages, Stream),
            ("fast", Chat, Whole),
            ("smart", Responses, Stream),
            (JSON_MODEL, Chat, Json),
            ("smart", Messages, Whole),
            ("fast", Messages, Stream),
            ("smart", Chat, Stream),
            (JSON_MODEL, Responses, Json),
            ("smart", Responses, Whole),
            ("fast", Responses, Stream),
        ];
        let (model, protocol, mode) = DECK[(number % DECK.len() as u64) as usize];
        Ask { model, protocol, mode }
    }

    fn body(self, model: &str) -> Value {
        let said = json!([{ "role": "user", "content": "Say hello, please." }]);
        let mut body = match self.protocol {
            Protocol::Chat => json!({ "model": model, "messages": said }),
            Protocol::Responses => json!({ "model": model, "input": said }),
            Protocol::Messages => json!({ "model": model, "max_tokens": 100, "messages": said }),
        };
        match (self.mode, self.protocol) {
            (Mode::Stream, _) => body["stream"] = json!(true),
            (Mode::Json, Protocol::Responses) => {
                body["text"] = json!({ "format": { "type": "json_schema", "name": "hello", "schema": schema() } });
            }
            (Mode::Json, _) => {
                body["response_format"] =
                    json!({ "type": "json_schema", "json_schema": { "name": "hello", "schema": schema() } });
            }
            (Mode::Whole, _) => {}
        }
        body
    }

    /// Sends the call and reads the answer to its end.
    pub(super) async fn send(self, to: SocketAddr, request_id: &str, patience: Duration) -> Seen {
        let begun = Instant::now();
        let mut answer = Answer::default();
        let read = async {
            let got = self.exchange(to, request_id, begun, &mut answer).await;
            got.err().map(|error| format!("the connection broke: {error}"))
        };
        let broken = match tokio::time::timeout(patience, read).await {
            Ok(broken) => broken,
            Err(_) => Some(format!("nothing more came in {} s", patience.as_secs())),
        };
        let verdict = self.judge(&answer, broken);
        let attempts = answer.header("x-surefoot-attempts").and_then(|attempts| attempts.parse().ok());
        Seen { verdict, first_content: answer.first_content, took: begun.elapsed(), attempts }
    }

    async fn exchange(self, to: SocketAddr, id: &str, begun: Instant, into: &mut Answer) -> Result<(), Broken> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::post(self.protocol.path())
            .header(header::HOST, to.to_string())
            .header(header::CONTENT_TYPE, "application/json")
            .header("x-request-id", id)
            .body(Full::new(Bytes::from(self.body(self.model).to_string())))?;
        let mut response = sender.send_request(request).await?;
        into.status = response.status().as_u16();
        into.headers = std::mem::take(response.headers_mut());
        while let Some(frame) = response.frame().await {
            let Ok(bytes) = frame?.into_data() else { continue };
            into.body.extend_from_slice(&bytes);
            if into.first_content.is_none() && (self.mode != Mode::Stream || self.has_words(&into.body)) {
                into.first_content = Some(begun.elapsed());
            }
        }
        Ok(())
    }

    fn has_words(self, body: &[u8]) -> bool {
        events(body).any(|(_, event)| self.protocol.delta(&event).is_some())
    }

    fn judge(self, answer: &Answer, broken: Option<String>) -> Verdict {
        if answer.status >= 400 {
            return Verdict::Error(answer.status.to_string());
        }
        match (self.mode, broken) {
            (Mode::Stream, broken) => self.judge_stream(answer, broken),
            // A body that is shorter than was promised is noticed by any client.
            (_, Some(broken)) => Verdict::Error(broken),
            (mode, None) => self.judge_whole(mode, answer),
        }
    }

    fn judge_stream(self, answer: &Answer, broken: Option<String>) -> Verdict {
        let (mut text, mut words, mut ended) = (String::new(), 0, false);
        for (data, event) in events(&answer.body) {
            if ended {
                return Verdict::Wrong("something came behind the end".to_owned());
            }
            if let Some(error) = self.protocol.error(&event) {
                return match error.starts_with("stream_incomplete") {
                    true => Verdict::Incomplete { words },
                    false => Verdict::Error(error),
                };
            }
            if let Some(delta) = self.protocol.delta(&event) {
                text.push_str(delta);
                words += 1;
            }
            ended = self.protocol.is_terminal(&data, &event);
        }
        match (ended, broken) {
            (true, _) => answer.right(&text),
            (false, Some(broken)) => Verdict::Error(broken),
            (false, None) => Verdict::Silent(format!("it ended after {words} words and did not say so")),
        }
    }

    fn judge_whole(self, mode: Mode, answer: &Answer) -> Verdict {
        let Ok(body) = serde_json::from_slice::<Value>(&answer.body) else {
            return Verdict::Wrong("the body is no JSON".to_owned());
        };
        match self.protocol.text(&body) {
            None if !body["error"].is_null() => Verdict::Wrong("an error behind a 200".to_owned()),
            None => Verdict::Wrong("there are no words in it".to_owned()),
            Some(text) if mode == Mode::Json => match serde_json::from_str::<Value>(text) {
                Ok(Value::Object(fields)) if fields.contains_key("greeting") => Verdict::Good,
                _ => Verdict::Wrong("it is not the JSON asked for".to_owned()),
            },
            Some(text) => answer.right(text),
        }
    }
}

/// What came so far.
#[derive(Debug, Default)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    first_content: Option<Duration>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The words must be those of the provider that the headers name (X6), each once and in order; where no gateway
    /// names one, any provider's.
    fn right(&self, text: &str) -> Verdict {
        let served = self.header("x-surefoot-source").and_then(|source| source.split('/').next());
        let fits = |source: &str| served.is_none_or(|served| served == source) && text == words(source);
        if SOURCES.iter().any(|source| fits(source)) {
            return Verdict::Good;
        }
        Verdict::Wrong(match text {
            "" => "there are no words in it".to_owned(),
            text => format!("not one provider's words, each once: {:?}", text.chars().take(40).collect::<String>()),
        })
    }
}

type Broken = Box<dyn std::error::Error + Send + Sync>;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": { "greeting": { "type": "string" }, "warm": { "type": "boolean" } },
        "required": ["greeting", "warm"],
        "additionalProperties": false,
    })
}

/// The events of an SSE body: data, and the same as JSON. Mocks and gateway end lines with LF and write one data line an
/// event; this client need not know more.
fn events(body: &[u8]) -> impl Iterator<Item = (String, Value)> {
    let text = String::from_utf8_lossy(body).into_owned();
    let data: Vec<String> =
        text.lines().filter_map(|line| line.strip_prefix("data:")).map(|data| data.trim().to_owned()).collect();
    data.into_iter().map(|data| {
        let event = serde_json::from_str(&data).unwrap_or(Value::Null);
        (data, event)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(protocol: Protocol, body: &str) -> Verdict {
        let ask = Ask { model: "smart", protocol, mode: Mode::Stream };
        ask.judge(&Answer { status: 200, body: body.as_bytes().to_vec(), ..Answer::default() }, None)
    }

    fn chat(text: &str) -> String {
        format!("data: {}\n\n", json!({ "choices": [{ "delta": { "content": text } }] }))
    }

    #[test]
    fn a_stream_is_good_only_with_one_providers_words_and_its_end() {
        let whole = chat(&words("u2"));
        let done = "data: [DONE]\n\n";
        assert_eq!(judged(Protocol::Chat, &format!("{whole}{done}")), Verdict::Good);
        assert!(matches!(judged(Protocol::Chat, &whole), Verdict::Silent(_)));
        for wrong in [done.to_owned(), format!("{whole}{whole}{done}"), format!("{whole}{done}{done}")] {
            assert!(matches!(judged(Protocol::Chat, &wrong), Verdict::Wrong(_)), "{wrong}");
        }
    }

    #[test]
    fn what_says_that_it_is_incomplete_is_known_in_every_protocol() {
        let words = chat("Hello ");
        let told = [
            (Protocol::Chat, json!({ "error": { "code": "stream_incomplete", "message": "stream_incomplete: cut" } })),
            (
                Protocol::Responses,
                json!({ "type": "error", "code": "stream_incomplete", "message": "stream_incomplete" }),
            ),
            (Protocol::Messages, json!({ "type": "error", "error": { "message": "stream_incomplete: cut" } })),
        ];
        for (protocol, event) in told {
            let verdict = judged(protocol, &format!("{words}data: {event}\n\n"));
            assert!(matches!(verdict, Verdict::Incomplete { .. }), "{protocol:?}: {verdict:?}");
        }
        let other = judged(Protocol::Messages, "data: {\"type\":\"error\",\"error\":{\"message\":\"busy\"}}\n\n");
        assert_eq!(other, Verdict::Error("busy".to_owned()));
    }
}
