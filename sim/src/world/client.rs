//! Clients: when they come, what they ask for, how they read, when they leave.

use surefoot_core::event::CancelCause;
use surefoot_core::gateway::Operation;
use surefoot_core::time::{Span, Time};
use surefoot_core::wire::Format;

use super::speech::Ask;

/// One client and its one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The model that it names.
    pub model: String,
    /// The route; `None` = pass-through with this method.
    pub operation: Option<Operation>,
    /// For pass-through.
    pub method: &'static str,
    /// What it wants.
    pub ask: Ask,
    /// Leaves, or is dropped, so long after its arrival.
    pub leaves: Option<(Span, CancelCause)>,
    /// Takes so long for each piece; zero = none.
    pub dawdles: Span,
    /// Its words, for the estimate of tokens.
    pub words: u64,
}

impl Client {
    /// Its request's body.
    pub fn body(&self) -> String {
        let words = "step ".repeat(self.words as usize);
        let mut body = format!(r#"{{"model":"{}""#, self.model);
        match self.ask.format {
            Format::Responses | Format::Embeddings => body.push_str(&format!(r#","input":"{words}""#)),
            Format::Images => body.push_str(&format!(r#","prompt":"{words}""#)),
            _ => body.push_str(&format!(r#","messages":[{{"role":"user","content":"{words}"}}]"#)),
        }
        if self.ask.format == Format::Messages {
            body.push_str(r#","max_tokens":64"#);
        }
        if self.ask.stream {
            body.push_str(r#","stream":true"#);
        }
        if self.ask.include_usage {
            body.push_str(r#","stream_options":{"include_usage":true}"#);
        }
        if self.ask.structured {
            body.push_str(match self.ask.format {
                Format::Responses => r#","text":{"format":{"type":"json_object"}}"#,
                _ => r#","response_format":{"type":"json_object"}"#,
            });
        }
        body.push('}');
        body
    }
}

/// When a client leaves, as a time.
pub fn leaving(client: &Client, arrived: Time) -> Option<(Time, CancelCause)> {
    client.leaves.map(|(after, cause)| (arrived.after(after), cause))
}
