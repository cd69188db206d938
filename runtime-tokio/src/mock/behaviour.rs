//! What an answer can be told to do, as data; [`std::fmt::Display`] writes it back as the directive that means it.

use std::fmt::{self, Write as _};

/// What one answer does: the good answer of its route, changed by what was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Behaviour {
    /// HTTP status, 200–999; `None` is 200. 400 and above bring an error body of the protocol's shape.
    pub status: Option<u16>,
    /// Headers added to the answer; a value `@date+2` is an HTTP-date two seconds from now, `@rfc3339+2` a timestamp.
    pub headers: Vec<(String, String)>,
    /// `retry-after`, sent with error answers and with refusals by [`Limit`].
    pub retry_after: Option<String>,
    /// Wait before the head, in ms.
    pub delay_ms: u64,
    /// Wait between the head and the first byte of the body, in ms.
    pub first_ms: u64,
    /// Wait between chunks of the body, in ms.
    pub gap_ms: u64,
    /// How the body is cut into chunks.
    pub chunk: Chunk,
    /// The words to say.
    pub text: Option<String>,
    /// Answers with a call of this tool; empty = the first one that the request offers.
    pub tool: Option<String>,
    /// The finish or stop reason to give.
    pub finish: Option<String>,
    /// The whole body, as it stands.
    pub body: Option<String>,
    /// Bytes written to the socket in place of an HTTP answer.
    pub raw: Option<String>,
    /// What error objects say.
    pub error: ErrorWords,
    /// What is wrong with the content.
    pub fault: Fault,
    /// Where the answer breaks, and how.
    pub broken: Option<Break>,
    /// Compression of the body.
    pub gzip: Gzip,
    /// `content-type` in place of the right one; empty = none at all.
    pub content_type: Option<String>,
    /// Line ends of SSE.
    pub line: LineEnd,
    /// Starts an SSE body with a byte order mark.
    pub bom: bool,
    /// Answers as a stream or as a whole, whatever was asked.
    pub shape: Option<Shape>,
    /// The chance, 0–1, that all this happens; else the answer is good. `None` = always.
    pub flaky: Option<f64>,
    /// Seed of the draws for `flaky`; `None` = the script's.
    pub seed: Option<u64>,
    /// Limits of the account.
    pub limit: Limit,
    /// The account that `limit` counts for; `None` = the API key.
    pub account: Option<String>,
}

/// What error objects say, in an error answer, behind a 200 or inside a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorWords {
    /// The status that an error object stands for when the answer's own is 200; `None` = 503.
    pub standing_for: Option<u16>,
    /// `error.type` in place of the usual one.
    pub kind: Option<String>,
    /// `error.code` in place of the usual one; digits become a number.
    pub code: Option<String>,
    /// `error.message` in place of the usual one.
    pub message: Option<String>,
}

/// What is wrong with the content of an answer that arrives whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Something is missing.
    Empty(Empty),
    /// A known field has the wrong type.
    Drift,
    /// An HTML page in place of the answer.
    Html,
    /// Two choices at least, the last of which never finishes; no terminal event.
    Unfinished,
    /// The terminal event is missing (`[DONE]`, `message_stop`, `response.completed`).
    NoDone,
    /// The finish reason and the terminal event are missing.
    NoFinish,
    /// The terminal event comes twice.
    DoubleDone,
    /// The last event lacks its blank line.
    Torn,
    /// The first content is this many bytes long.
    Huge(usize),
    /// A redirect to this address.
    Redirect(String),
}

/// What an empty answer lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Empty {
    /// Words: the lifecycle is complete, the text is empty.
    Text,
    /// Choices, content blocks or output items.
    Choices,
    /// Every event: the head, then the end.
    Stream,
    /// Every byte.
    Body,
    /// Usage: all counts are zero.
    Usage,
}

/// Where an answer breaks, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Break {
    /// Where.
    pub at: Point,
    /// How.
    pub how: How,
}

/// A place in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Before the head.
    Head,
    /// After so many events of any kind; 0 = right after the head.
    Events(usize),
    /// After so many events with content; 0 = right before the first.
    Content(usize),
    /// After so many bytes of the body.
    Bytes(usize),
}

/// How an answer breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Silence; the connection stays open.
    Stall,
    /// The connection closes.
    Close,
    /// The connection is reset (RST).
    Reset,
    /// An error event, then the end; on a whole answer an error object behind a 200.
    Error,
    /// The same; on Responses it is the response itself that has failed (`response.failed`, `"status":"failed"`).
    Failed,
    /// The event there is damaged, the others follow; a whole answer ends in mid-JSON.
    Malformed,
    /// Comments for ever, `gap` apart.
    Comments,
    /// The protocol's pings for ever, `gap` apart.
    Pings,
}

/// How a body is cut into chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chunk {
    /// A chunk for each event.
    #[default]
    Event,
    /// One chunk for everything.
    Whole,
    /// Chunks of so many bytes.
    Bytes(usize),
}

/// Compression of the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gzip {
    /// None.
    #[default]
    Off,
    /// Compressed, and said so.
    On,
    /// Compressed, without `content-encoding`.
    Bare,
    /// Said to be compressed, but is not.
    Header,
}

/// Line ends of SSE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineEnd {
    /// `\n`.
    #[default]
    Lf,
    /// `\r\n`.
    CrLf,
    /// `\r`.
    Cr,
}

/// The two shapes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One JSON body.
    Whole,
    /// Server-sent events.
    Stream,
}

/// Limits of an account: beyond them the answer is 429 with `retry-after`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Requests at once; 0 = no limit.
    pub in_flight: u32,
    /// Requests per window; 0 = no limit.
    pub requests: u32,
    /// Length of the window, in ms.
    pub window_ms: u64,
}

impl Behaviour {
    /// Whether it leaves the answer itself good, however slow or whatever it says. Only a good answer depends on the
    /// request: one that goes wrong to order does so for a bad request as well.
    pub(super) fn is_good(&self) -> bool {
        let told = self.status.is_some() || self.body.is_some() || self.raw.is_some();
        !told && self.fault == Fault::None && self.broken.is_none()
    }
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = Words::of(self).0;
        f.write_str(if words.is_empty() { "ok" } else { &words })
    }
}

/// A directive being written.
struct Words(String);

impl Words {
    fn of(b: &Behaviour) -> Words {
        let mut words = Words(String::new());
        if let Some(status) = b.status {
            words.add(format_args!("{status}"));
        }
        words.some("retry-after", b.retry_after.as_deref());
        for (name, value) in &b.headers {
            words.some("header", Some(&format!("{name}:{value}")));
        }
        words.count("delay", b.delay_ms);
        words.count("first", b.first_ms);
        words.count("gap", b.gap_ms);
        match b.chunk {
            Chunk::Event => {}
            Chunk::Whole => words.add(format_args!("chunk=whole")),
            Chunk::Bytes(1) => words.add(format_args!("chunk=byte")),
            Chunk::Bytes(size) => words.add(format_args!("chunk={size}")),
        }
        words.some("text", b.text.as_deref());
        words.some("tool", b.tool.as_deref());
        words.some("finish", b.finish.as_deref());
        words.some("body", b.body.as_deref());
        words.some("raw", b.raw.as_deref());
        words.count("as", b.error.standing_for.unwrap_or(0).into());
        words.some("type", b.error.kind.as_deref());
        words.some("code", b.error.code.as_deref());
        words.some("message", b.error.message.as_deref());
        match &b.fault {
            Fault::None => {}
            Fault::Redirect(to) => words.some("redirect", Some(to)),
            fault => words.add(format_args!("{fault}")),
        }
        if let Some(broken) = b.broken {
            words.add(format_args!("{broken}"));
        }
        words.transport(b);
        words
    }

    fn transport(&mut self, b: &Behaviour) {
        match b.gzip {
            Gzip::Off => {}
            Gzip::On => self.add(format_args!("gzip")),
            Gzip::Bare => self.add(format_args!("gzip=bare")),
            Gzip::Header => self.add(format_args!("gzip=header")),
        }
        self.some("content-type", b.content_type.as_deref());
        match b.line {
            LineEnd::Lf => {}
            LineEnd::CrLf => self.add(format_args!("line=crlf")),
            LineEnd::Cr => self.add(format_args!("line=cr")),
        }
        if b.bom {
            self.add(format_args!("bom"));
        }
        match b.shape {
            None => {}
            Some(Shape::Whole) => self.add(format_args!("as-json")),
            Some(Shape::Stream) => self.add(format_args!("as-stream")),
        }
        if let Some(share) = b.flaky {
            self.add(format_args!("flaky={share}"));
        }
        if let Some(seed) = b.seed {
            self.add(format_args!("seed={seed}"));
        }
        self.count("in-flight", b.limit.in_flight.into());
        if b.limit.requests > 0 {
            self.add(format_args!("rate={}/{}", b.limit.requests, b.limit.window_ms));
        }
        self.some("account", b.account.as_deref());
    }

    fn add(&mut self, word: fmt::Arguments<'_>) {
        let between = if self.0.is_empty() { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{between}{word}");
    }

    fn count(&mut self, name: &str, value: u64) {
        if value > 0 {
            self.add(format_args!("{name}={value}"));
        }
    }

    fn some(&mut self, name: &str, value: Option<&str>) {
        match value {
            None => {}
            Some(value) if value.is_empty() || value.contains(|c: char| c.is_whitespace() || ",;*".contains(c)) => {
                self.add(format_args!("{name}=\"{value}\""));
            }
            Some(value) => self.add(format_args!("{name}={value}")),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::None => "ok",
            Fault::Empty(Empty::Text) => "empty",
            Fault::Empty(Empty::Choices) => "empty=choices",
            Fault::Empty(Empty::Stream) => "empty=stream",
            Fault::Empty(Empty::Body) => "empty=body",
            Fault::Empty(Empty::Usage) => "empty=usage",
            Fault::Drift => "drift",
            Fault::Html => "html",
            Fault::Unfinished => "unfinished",
            Fault::NoDone => "no-done",
            Fault::NoFinish => "no-finish",
            Fault::DoubleDone => "double-done",
            Fault::Torn => "torn",
            Fault::Huge(bytes) => return write!(f, "huge={bytes}"),
            Fault::Redirect(to) => return write!(f, "redirect={to}"),
        })
    }
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.how {
            How::Stall => "stall",
            How::Close => "close",
            How::Reset => "reset",
            How::Error => "error",
            How::Failed => "failed",
            How::Malformed => "malformed",
            How::Comments => "comments",
            How::Pings => "pings",
        };
        match self.at {
            Point::Head => f.write_str(how),
            Point::Events(count) => write!(f, "{how}-after={count}"),
            Point::Content(count) => write!(f, "{how}-after={count}c"),
            Point::Bytes(count) => write!(f, "{how}-at={count}"),
        }
    }
}
