//! What upstreams say: real event streams and bodies of every protocol.
//!
//! Written here from the protocols' own documents, not with the core's writers: what the core reads must not have been
//! written by itself.

mod chat;
mod messages;
mod other;
mod responses;

use surefoot_core::wire::Format;

use crate::rng::Stream;

/// What a request asked for, as far as the answer's shape depends on it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The protocol.
    pub format: Format,
    /// An event stream.
    pub stream: bool,
    /// A usage chunk at the end of a chat stream.
    pub include_usage: bool,
    /// JSON text.
    pub structured: bool,
}

/// One piece of a body: an event of a stream, or a whole body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its bytes, the blank line included.
    pub bytes: Vec<u8>,
    /// What it is.
    pub part: Part,
}

/// What a piece is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Before any content, or without any.
    Opener,
    /// Business content.
    Content,
    /// The end as the protocol tells it: a finish reason, `message_delta`.
    Finish,
    /// The last event of the protocol.
    Last,
    /// After the last event: nobody must see it.
    After,
    /// An error event.
    Error,
    /// What cannot be read.
    Bad,
}

/// How a provider writes its events: all of these are the same stream.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Style {
    /// LF, CRLF or CR.
    pub eol: &'static str,
    /// A space behind the colon.
    pub space: bool,
    /// A byte order mark at the very beginning.
    pub bom: bool,
    /// The data of each event on two lines.
    pub split: bool,
}

impl Style {
    /// The usual one.
    pub const PLAIN: Style = Style { eol: "\n", space: true, bom: false, split: false };

    /// Mostly the usual one.
    pub fn draw(stream: &mut Stream) -> Style {
        if stream.chance(700_000) {
            return Style::PLAIN;
        }
        Style {
            eol: stream.pick(&["\n", "\r\n", "\r"]),
            space: stream.chance(700_000),
            bom: stream.chance(200_000),
            split: stream.chance(200_000),
        }
    }

    /// An event.
    pub fn event(&self, name: &str, data: &str) -> Vec<u8> {
        let space = if self.space { " " } else { "" };
        let mut text = String::with_capacity(data.len() + 48);
        if !name.is_empty() {
            text.extend(["event:", space, name, self.eol]);
        }
        // A JSON text may be cut behind a comma outside of its strings; the first one is (an `id`, a `type`, follows none).
        let cut = if self.split { data.find(",\"").map_or(data.len(), |at| at + 1) } else { data.len() };
        for line in [&data[..cut], &data[cut..]].into_iter().filter(|line| !line.is_empty()) {
            text.extend(["data:", space, line, self.eol]);
        }
        text.push_str(self.eol);
        text.into_bytes()
    }

    /// A comment.
    pub fn comment(&self, words: &str) -> Vec<u8> {
        [":", words, self.eol, self.eol].concat().into_bytes()
    }
}

/// What kind of answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// Thinking, then text.
    Reasoning,
    /// A tool call.
    Tool,
    /// A refusal.
    Refusal,
    /// Text cut at the limit of tokens.
    Length,
    /// Nothing and a plain stop.
    Empty,
}

/// An answer before it is put into a protocol's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What it is.
    pub kind: Kind,
    /// Its id.
    pub id: u64,
    /// Its words; JSON text when that was asked for and the answer obeys.
    pub words: Vec<String>,
    /// Tokens in and out; all zero = told as zero.
    pub usage: (u32, u32),
    /// Choices of a chat answer.
    pub choices: u64,
}

const WORDS: [&str; 16] = [
    "sure",
    " footed",
    " über",
    " the ",
    "ridge",
    "\\n",
    " step",
    "s ",
    "\\\"quoted\\\"",
    " and",
    " 登る",
    " on",
    ", ",
    "mule",
    " \\u00e9t\\u00e9",
    ".",
];

impl Answer {
    /// Draws one.
    pub fn draw(stream: &mut Stream, ask: &Ask, pieces: u64, obeys: bool) -> Answer {
        let kind = match stream.below(20) {
            _ if ask.structured => Kind::Text,
            0 => Kind::Reasoning,
            1 => Kind::Tool,
            2 => Kind::Refusal,
            3 => Kind::Length,
            _ => Kind::Text,
        };
        let words = match (ask.structured, obeys) {
            (true, true) => ["{\\\"steps\\\":", "3", "}"].map(String::from).to_vec(),
            (true, false) => ["{\\\"steps\\\":", "three"].map(String::from).to_vec(),
            _ => (0..pieces.max(1)).map(|_| stream.pick(&WORDS).to_owned()).collect(),
        };
        let out = words.len() as u32 + 1;
        let choices = if stream.chance(60_000) { 2 } else { 1 };
        Answer { kind, id: stream.bits() >> 16, words, usage: (stream.range(5, 60) as u32, out), choices }
    }

    /// The same with nothing in it.
    pub fn emptied(mut self) -> Answer {
        self.kind = Kind::Empty;
        self.words.clear();
        self
    }

    /// Its text as JSON writes it, without the quotes.
    pub fn text(&self) -> String {
        self.words.concat()
    }
}

/// The events of a good stream.
pub fn stream(ask: &Ask, style: &Style, answer: &Answer) -> Vec<Piece> {
    let mut pieces = match ask.format {
        Format::Responses => responses::stream(style, answer),
        Format::Messages => messages::stream(style, answer),
        Format::Images => other::image_stream(style, answer),
        _ => chat::stream(ask, style, answer),
    };
    if style.bom
        && let Some(first) = pieces.first_mut()
    {
        first.bytes.splice(0..0, *b"\xef\xbb\xbf");
    }
    pieces
}

/// A good whole body.
pub fn whole(ask: &Ask, answer: &Answer) -> Vec<u8> {
    match ask.format {
        Format::Responses => responses::whole(answer),
        Format::Messages => messages::whole(answer),
        Format::Chat => chat::whole(answer),
        _ => other::whole(ask.format, answer),
    }
    .into_bytes()
}

/// An error body, or the data of an error event, in the protocol's shape.
pub fn error_text(format: Format, status: u16, kind: &str, code: &str, message: &str) -> String {
    match format {
        Format::Messages | Format::CountTokens => {
            format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}}}}"#)
        }
        _ => {
            let code = if code.is_empty() { status.to_string() } else { format!("\"{code}\"") };
            format!(r#"{{"error":{{"message":"{message}","type":"{kind}","param":null,"code":{code}}}}}"#)
        }
    }
}

/// An error in the middle of a stream, as the protocol tells it.
pub fn error_event(format: Format, style: &Style, status: u16, kind: &str, code: &str, message: &str) -> Piece {
    let bytes = match format {
        Format::Messages => style.event("error", &error_text(format, status, kind, code, message)),
        Format::Responses => style.event(
            "error",
            &format!(r#"{{"type":"error","code":"{code}","message":"{message}","param":null,"sequence_number":77}}"#),
        ),
        _ => style.event("", &error_text(format, status, kind, code, message)),
    };
    Piece { bytes, part: Part::Error }
}

fn opener(bytes: Vec<u8>) -> Piece {
    Piece { bytes, part: Part::Opener }
}

fn content(bytes: Vec<u8>) -> Piece {
    Piece { bytes, part: Part::Content }
}
