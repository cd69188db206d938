//! The wire: event streams, each protocol's events and bodies, errors in and out. One file a protocol, one table each.

use alloc::string::String;

pub mod body;
pub mod bridge;
mod chat;
pub mod error;
mod facts;
pub mod haystack;
mod images;
pub mod json;
mod messages;
mod responses;
pub mod retry_after;
pub mod sniff;
pub mod sse;
pub mod stream;

/// What a call speaks: the protocol of its route.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// OpenAI Chat Completions.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
    /// Anthropic token counting: a plain JSON answer beside Messages.
    CountTokens,
    /// OpenAI Embeddings.
    Embeddings,
    /// OpenAI Images: generations, edits, variations (F11).
    Images,
    /// Pass-through: nothing is looked at (M7).
    Raw,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 7] = [
        Format::Chat,
        Format::Responses,
        Format::Messages,
        Format::CountTokens,
        Format::Embeddings,
        Format::Images,
        Format::Raw,
    ];

    /// The word used in traces and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Format::Chat => "chat",
            Format::Responses => "responses",
            Format::Messages => "messages",
            Format::CountTokens => "count_tokens",
            Format::Embeddings => "embeddings",
            Format::Images => "images",
            Format::Raw => "raw",
        }
    }

    /// The shape of its errors: Anthropic's on the Messages routes, OpenAI's elsewhere.
    pub const fn dialect(self) -> Dialect {
        match self {
            Format::Messages | Format::CountTokens => Dialect::Anthropic,
            _ => Dialect::OpenAi,
        }
    }
}

/// The two error envelopes of the field.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `{"error":{"message","type","param","code"}}`
    OpenAi,
    /// `{"type":"error","error":{"type","message"}}`
    Anthropic,
}

/// An error that an upstream told, in an error body, behind a 200 or in a stream (M2, M4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorFact {
    /// 400–599: its own numeric code or status, else derived from its type and code words, else 502.
    pub status: u16,
    /// Its type word, empty when absent.
    pub kind: String,
    /// Its code as text, empty when absent.
    pub code: String,
    /// Its message, empty when absent.
    pub message: String,
    /// `insufficient_quota` and its like: the key is dead, no wait will cure it (G12).
    pub quota_gone: bool,
}

/// What one whole event of a stream is (F15). Facts only: what follows from them is the call's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Comments, `retry:`, an event without data, an opener, an unknown event without content.
    Opener,
    /// Business content.
    Content,
    /// A plain end (`stop`, `end_turn` …): business content only if something came before it (M3).
    PlainStop,
    /// Any other end that is an answer in itself: `length`, `content_filter`, `tool_calls`, `max_tokens`,
    /// `response.incomplete`, `response.completed`.
    Stop,
    /// The protocol's last event: `[DONE]` after a finish reason, `message_stop`, `response.completed` and its like
    /// carry it through [`Event::terminal`]; alone it is this kind.
    Last,
    /// `[DONE]` though no choice was ever finished, or in a Responses stream before its end: the stream is cut (M5). Not
    /// to be passed on: clients stop reading at it and would not see what is said after it.
    EarlyDone,
    /// An error event; terminal in every protocol that has ends.
    Error(alloc::boxed::Box<ErrorFact>),
    /// Data that is no JSON, or not of the protocol's types. Never in an image stream.
    Malformed,
    /// An event beyond the size cap (X2).
    Oversized,
}

/// One whole event, seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The offset in the stream of its first byte, where the event before is over to its last line feed.
    pub from: u64,
    /// The offset in the stream just behind its blank line (or behind the last byte, at the end of the stream). An LF that
    /// comes in the next slice after a CR is not counted here, see [`stream::StreamReader::whole`].
    pub end: u64,
    /// What it is.
    pub kind: Kind,
    /// Whether the stream is complete with it: nothing after it is delivered.
    pub terminal: bool,
}

/// What a whole JSON answer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Good; deliver it byte for byte.
    Good {
        /// Silent failures that are delivered and counted: `no_usage`, `no_output` (M3).
        empty: Option<&'static str>,
        /// Tokens used in all, where told.
        tokens: Option<u32>,
    },
    /// No content and a plain stop (M3).
    EmptyCompletion {
        /// Tokens used in all, where told.
        tokens: Option<u32>,
    },
    /// `choices` empty or missing (M3).
    NoChoices,
    /// An error behind a 200 (M2).
    Error(alloc::boxed::Box<ErrorFact>),
    /// A known field of the wrong type (M1).
    Drifted {
        /// The field's path.
        field: &'static str,
    },
    /// Missing or unparseable.
    Unreadable,
}

/// Whether a header of an upstream's answer means something to the core: the adapter hands on these and no others.
pub fn is_relevant_header(name: &str) -> bool {
    name.eq_ignore_ascii_case("content-type") || retry_hint_header(name)
}

fn retry_hint_header(name: &str) -> bool {
    const EXACT: [&str; 3] = ["retry-after", "retry-after-ms", "x-ms-retry-after-ms"];
    EXACT.iter().any(|known| name.eq_ignore_ascii_case(known))
        || name.get(..12).is_some_and(|head| head.eq_ignore_ascii_case("x-ratelimit-"))
        || name.get(..20).is_some_and(|head| head.eq_ignore_ascii_case("anthropic-ratelimit-"))
}

/// A relevant header: its lower-case name and its value.
pub type Header = (alloc::boxed::Box<str>, alloc::boxed::Box<str>);

/// The first value of `name` (lower-case) among `headers`.
pub fn header<'a>(headers: &'a [Header], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| &**known == name).map(|(_, value)| &**value)
}
