//! Everything that can be wrong with an upstream's answer, and how each looks on the wire.

use surefoot_core::event::Fault;
use surefoot_core::outcome::Outcome;
use surefoot_core::time::Span;
use surefoot_core::wire::Format;

use super::script::{Close, EPOCH_MS, Fate, Opening, Script};
use super::speech::{self, Answer, Ask, Part, Piece, Style};
use crate::rng::Stream;

/// Declares the troubles, and the list of those that chance may pick.
macro_rules! troubles {
    ($($name:ident,)* ; $($status:literal,)*) => {
        /// What is wrong with an answer.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "the names tell")]
        pub enum Trouble {
            None,
            Status(u16),
            $($name,)*
        }

        /// Every trouble that chance may pick; statuses stand for their kind.
        pub const ALL: &[Trouble] = &[$(Trouble::$name,)* $(Trouble::Status($status),)*];
    };
}

troubles! {
    Refused, ConnectTimeout, Tls, ResetBeforeHead, NotHttp, BlackHole, Limited, Overloaded, QuotaGone, BadKey,
    ResetAfterHead, SilentAfterHead, CommentsForever, SlowFirstByte, CutBeforeContent, ResetBeforeContent,
    CutAfterContent, TornAfterContent, ResetAfterContent, SilentAfterContent, ErrorBeforeContent, ErrorAfterContent,
    ErrorBehind200, MalformedBeforeContent, MalformedAfterContent, DriftedBeforeContent, DriftedAfterContent, Html,
    EmptyBody, WrongContentType, JsonForStream, StreamForJson, Empty, NoChoices, ZeroUsage, DoubleDone, AfterTheEnd,
    NoDone, NoLastBlankLine, LongOpening, RefusedWords, BadCoding, TooLarge, Unstructured, KeyInError, Trickle,
    ;
    301, 400, 402, 403, 404, 408, 413, 422, 425, 500, 502, 503, 504, 524, 999,
}

/// The text that failover rules of worlds refuse.
pub const REFUSED_WORDS: &str = "all capacity is exhausted";

/// What the table of the contract says of a status (M6).
pub fn outcome_of(status: u16) -> Outcome {
    match status {
        429 => Outcome::RateLimited,
        401 | 402 => Outcome::SourceDead,
        408 | 425 | 500..=599 => Outcome::Transient,
        _ => Outcome::RequestRejected,
    }
}

/// What there is to say, before trouble comes over it.
pub struct Telling<'a> {
    /// What was asked for.
    pub ask: &'a Ask,
    /// How this provider writes.
    pub style: Style,
    /// Until the head.
    pub opens_after: Span,
    /// Between pieces, on average.
    pub gap: Span,
    /// Content pieces.
    pub pieces: u64,
    /// Its key, which some repeat in their errors.
    pub secret: &'a str,
    /// Whether the policy has a rule against [`REFUSED_WORDS`].
    pub refuses_words: bool,
    /// The longest wait that a pushback may ask for.
    pub longest_hint: Span,
    /// When, in milliseconds since the world's origin: for dates.
    pub now_ms: u64,
    /// Its chance.
    pub stream: &'a mut Stream,
}

impl Telling<'_> {
    /// The script of an answer with `trouble`.
    pub fn compose(mut self, trouble: Trouble) -> Script {
        match trouble {
            Trouble::Refused => self.broken(trouble, Fault::Connect),
            Trouble::ConnectTimeout => {
                let mut script = self.broken(trouble, Fault::ConnectTimeout);
                script.opens_after = Span::from_secs(10);
                script
            }
            Trouble::Tls => self.broken(trouble, Fault::Tls),
            Trouble::ResetBeforeHead => self.broken(trouble, Fault::Reset),
            Trouble::NotHttp => self.broken(trouble, Fault::Protocol),
            Trouble::BlackHole => Script { opening: Opening::Never, fate: Fate::Silent, ..self.blank(trouble) },
            Trouble::Status(status) => self.status(trouble, status),
            Trouble::Limited => self.pushback(trouble, 429),
            Trouble::Overloaded => {
                let status = self.stream.pick(&[503, 529]);
                self.pushback(trouble, status)
            }
            Trouble::QuotaGone => {
                let text = speech::error_text(
                    Format::Chat,
                    429,
                    "insufficient_quota",
                    "insufficient_quota",
                    "You exceeded your current quota",
                );
                let mut script = self.error(trouble, 429, Vec::new(), text.into_bytes());
                script.fate = Fate::Fails(Outcome::SourceDead);
                script
            }
            Trouble::BadKey => {
                let text =
                    speech::error_text(self.ask.format, 401, "authentication_error", "invalid_api_key", "bad key");
                self.error(trouble, 401, Vec::new(), text.into_bytes())
            }
            Trouble::KeyInError => {
                let told = format!("Incorrect API key provided: {}", self.secret);
                let text = speech::error_text(self.ask.format, 400, "invalid_request_error", "", &told);
                self.error(trouble, 400, Vec::new(), text.into_bytes())
            }
            trouble if self.ask.stream && self.ask.format != Format::Raw => self.stream(trouble),
            trouble => self.whole(trouble),
        }
    }

    fn blank(&self, trouble: Trouble) -> Script {
        Script {
            trouble,
            opens_after: self.opens_after,
            opening: Opening::Never,
            pieces: Vec::new(),
            closes_after: Span::ZERO,
            close: Close::Clean,
            fate: Fate::Good,
            hint: None,
            overload: false,
        }
    }

    fn broken(&self, trouble: Trouble, fault: Fault) -> Script {
        let fate = Fate::Fails(Outcome::Transient);
        Script { opening: Opening::Fault(fault), fate, ..self.blank(trouble) }
    }

    pub(super) fn error(
        &mut self,
        trouble: Trouble,
        status: u16,
        mut headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    ) -> Script {
        headers.push(("content-type", "application/json".into()));
        Script {
            opening: Opening::Head(status, headers),
            pieces: vec![(Span::ZERO, Piece { bytes: body, part: Part::Error })],
            fate: Fate::Fails(outcome_of(status)),
            overload: matches!(status, 429 | 529),
            ..self.blank(trouble)
        }
    }

    fn status(&mut self, trouble: Trouble, status: u16) -> Script {
        let body = match self.stream.below(4) {
            0 => Vec::new(),
            1 => b"<html><body>upstream connect error</body></html>".to_vec(),
            2 => b"upstream connect error".to_vec(),
            _ => speech::error_text(self.ask.format, status, "upstream_failure", "", "it failed").into_bytes(),
        };
        let mut script = self.error(trouble, status, Vec::new(), body);
        match self.stream.below(20) {
            0 => script.close = Close::Fault(Fault::Reset),
            1 => script.close = Close::Never,
            2 => {
                let Some((_, piece)) = script.pieces.pop() else { return script };
                script.pieces = self.trickled(piece);
            }
            _ => {}
        }
        script
    }

    /// A piece in parts, with long pauses between them.
    fn trickled(&mut self, piece: Piece) -> Vec<(Span, Piece)> {
        let size = piece.bytes.len().div_ceil(4).max(1);
        let parts = piece.bytes.chunks(size).map(|bytes| Piece { bytes: bytes.to_vec(), part: piece.part });
        parts.map(|part| (Span(self.stream.range(1_000_000, 40_000_000)), part)).collect()
    }

    /// A pushback in one of the spellings of G12.
    fn pushback(&mut self, trouble: Trouble, status: u16) -> Script {
        let ms = self.stream.range(1, self.longest_hint.as_millis().max(2));
        let exact = |ms: u64| Some((Span::from_millis(ms), Span::from_millis(ms)));
        let seconds = ms.div_ceil(1000);
        let (headers, hint): (Vec<(&'static str, String)>, _) = match self.stream.below(10) {
            0 => (vec![("retry-after-ms", ms.to_string())], exact(ms)),
            1 => (vec![("x-ms-retry-after-ms", ms.to_string())], exact(ms)),
            2 => (vec![("retry-after", format!("{}.{:03}", ms / 1000, ms % 1000))], exact(ms)),
            3 => (vec![("retry-after", "-3".into())], None),
            4 => {
                let at = self.now_ms + self.opens_after.as_millis() + ms;
                // A date has whole seconds: what it asks for is up to one short of what was meant.
                let date = http_date((EPOCH_MS + at) / 1000);
                (vec![("retry-after", date)], Some((Span::from_millis(ms.saturating_sub(1001)), Span::from_millis(ms))))
            }
            5 => (
                vec![("x-ratelimit-remaining-requests", "0".into()), ("x-ratelimit-reset-requests", format!("{ms}ms"))],
                exact(ms),
            ),
            6 => (
                vec![
                    ("anthropic-ratelimit-requests-remaining", "0".into()),
                    ("anthropic-ratelimit-requests-reset", rfc3339((EPOCH_MS + self.now_ms) / 1000 + seconds)),
                ],
                Some((
                    Span::from_millis((seconds * 1000).saturating_sub(1001 + self.opens_after.as_millis())),
                    Span::from_millis(seconds * 1000),
                )),
            ),
            7 => (Vec::new(), None),
            _ => (vec![("retry-after", seconds.to_string())], exact(seconds * 1000)),
        };
        let (kind, code) = match status {
            429 => ("rate_limit_error", "rate_limit_exceeded"),
            _ => ("overloaded_error", "server_is_overloaded"),
        };
        let text = speech::error_text(self.ask.format, status, kind, code, "slow down");
        let mut script = self.error(trouble, status, headers, text.into_bytes());
        script.hint = hint;
        script.overload = true;
        script
    }

    /// A 429 that does not say when to come back.
    pub fn bare_pushback(&mut self) -> Script {
        let text = speech::error_text(self.ask.format, 429, "rate_limit_error", "rate_limit_exceeded", "slow down");
        self.error(Trouble::Limited, 429, Vec::new(), text.into_bytes())
    }

    /// A stream that begins and is then broken off before any content, because there is no capacity for it.
    pub fn overloaded_stream(&mut self) -> Script {
        let (kind, code) = ("overloaded_error", "server_is_overloaded");
        let error = speech::error_event(self.ask.format, &self.style, 503, kind, code, "no capacity");
        let mut script = self.event_stream(Trouble::ErrorBeforeContent, vec![error], Fate::Fails(Outcome::Transient));
        script.overload = true;
        script
    }

    fn gap(&mut self) -> Span {
        // Half of the tokens come together with their neighbours.
        if self.stream.chance(500_000) { Span::ZERO } else { self.stream.exponential(Span(self.gap.0 * 2)) }
    }

    fn answer(&mut self, obeys: bool) -> Answer {
        Answer::draw(self.stream, self.ask, self.pieces, obeys)
    }

    /// Puts pieces in time behind a head.
    fn tell(&mut self, trouble: Trouble, content_type: &str, pieces: Vec<Piece>, fate: Fate) -> Script {
        let head = vec![("content-type", content_type.to_owned())];
        let pieces = pieces.into_iter().map(|piece| (self.gap(), piece)).collect();
        Script { opening: Opening::Head(200, head), pieces, fate, ..self.blank(trouble) }
    }

    fn event_stream(&mut self, trouble: Trouble, pieces: Vec<Piece>, fate: Fate) -> Script {
        let content_type = self.stream.pick(&["text/event-stream", "text/event-stream; charset=utf-8"]);
        self.tell(trouble, content_type, pieces, fate)
    }

    fn bad(&mut self, drifted: bool) -> Piece {
        let data = match (drifted, self.ask.format) {
            (false, _) => r#"{"choices":[{"delta""#,
            (true, Format::Messages) => r#"{"type":"content_block_delta","index":0,"delta":"Hi"}"#,
            (true, Format::Responses) => r#"{"type":"response.created","response":"r"}"#,
            (true, _) => r#"{"id":"c","choices":"none"}"#,
        };
        Piece { bytes: self.style.event("", data), part: Part::Bad }
    }

    fn error_piece(&mut self) -> (Piece, u16, bool) {
        let (status, kind, code) = match (self.ask.format, self.stream.below(3)) {
            (Format::Messages, 0) => (529, "overloaded_error", ""),
            (Format::Messages, 1) => (429, "rate_limit_error", ""),
            (Format::Messages, _) => (500, "api_error", ""),
            (_, 0) => (503, "server_error", "server_is_overloaded"),
            (_, 1) => (429, "rate_limit_error", "rate_limit_exceeded"),
            _ => (500, "server_error", "server_error"),
        };
        (
            speech::error_event(self.ask.format, &self.style, status, kind, code, "it broke off"),
            status,
            status == 429 || kind.contains("overload") || code.contains("overload"),
        )
    }

    fn stream(&mut self, trouble: Trouble) -> Script {
        use Outcome::Transient;
        let ask = *self.ask;
        let answer = self.answer(true);
        let style = self.style;
        if ask.format == Format::Images {
            return self.image_stream(trouble, &answer);
        }
        let mut pieces = speech::stream(&ask, &style, &answer);
        let first_content = pieces.iter().position(|piece| piece.part == Part::Content).unwrap_or(0);
        let last_content = pieces.iter().rposition(|piece| piece.part == Part::Content).unwrap_or(0);
        // Somewhere behind the first content and before any end.
        let middle = self.stream.range(first_content as u64 + 1, last_content as u64 + 1) as usize;
        // Nothing stands before a byte order mark.
        let early = self.stream.range(u64::from(style.bom), (first_content as u64).max(u64::from(style.bom))) as usize;
        match trouble {
            Trouble::ResetAfterHead => {
                let mut script = self.event_stream(trouble, Vec::new(), Fate::Fails(Transient));
                script.close = Close::Fault(Fault::Reset);
                script
            }
            Trouble::SilentAfterHead => {
                let mut script = self.event_stream(trouble, Vec::new(), Fate::Silent);
                script.close = Close::Never;
                script
            }
            Trouble::CommentsForever => {
                let mut script = self.event_stream(trouble, Vec::new(), Fate::Silent);
                let every = Span(self.stream.range(200_000, 2_000_000));
                let comment = Piece { bytes: style.comment(" keepalive"), part: Part::Opener };
                // An hour and a quarter, as good as for ever: no timeout is as long.
                script.pieces = (0..(4_500_000_000 / every.0).min(2250)).map(|_| (every, comment.clone())).collect();
                script.close = Close::Never;
                script
            }
            Trouble::SlowFirstByte => {
                let mut script = self.event_stream(trouble, pieces, Fate::Good);
                script.opens_after = Span(script.opens_after.0 + self.stream.range(500_000, 15_000_000));
                script
            }
            Trouble::CutBeforeContent | Trouble::ResetBeforeContent => {
                pieces.truncate(early);
                let mut script = self.event_stream(trouble, pieces, Fate::Fails(Transient));
                if trouble == Trouble::ResetBeforeContent {
                    script.close = Close::Fault(Fault::Reset);
                }
                script
            }
            Trouble::CutAfterContent
            | Trouble::TornAfterContent
            | Trouble::ResetAfterContent
            | Trouble::SilentAfterContent => {
                let torn = pieces.get(middle).map(|piece| piece.bytes[..piece.bytes.len() / 2].to_vec());
                pieces.truncate(middle);
                if let Some(bytes) = torn.filter(|_| trouble == Trouble::TornAfterContent) {
                    pieces.push(Piece { bytes, part: Part::Bad });
                }
                let mut script = self.event_stream(trouble, pieces, Fate::Breaks(Transient));
                script.close = match trouble {
                    Trouble::ResetAfterContent => Close::Fault(Fault::Reset),
                    Trouble::SilentAfterContent => Close::Never,
                    _ => Close::Clean,
                };
                script
            }
            Trouble::ErrorBeforeContent | Trouble::ErrorAfterContent => {
                let (error, status, overload) = self.error_piece();
                let before = trouble == Trouble::ErrorBeforeContent;
                pieces.truncate(if before { early } else { middle });
                pieces.push(error);
                let outcome = outcome_of(status);
                let fate = if before { Fate::Fails(outcome) } else { Fate::Breaks(outcome) };
                let mut script = self.event_stream(trouble, pieces, fate);
                script.overload = overload;
                script
            }
            Trouble::MalformedBeforeContent | Trouble::DriftedBeforeContent => {
                let bad = self.bad(trouble == Trouble::DriftedBeforeContent);
                pieces.insert(early, bad);
                self.event_stream(trouble, pieces, Fate::Fails(Transient))
            }
            Trouble::MalformedAfterContent | Trouble::DriftedAfterContent => {
                let bad = self.bad(trouble == Trouble::DriftedAfterContent);
                pieces.insert(middle, bad);
                self.event_stream(trouble, pieces, Fate::Breaks(Transient))
            }
            Trouble::WrongContentType => {
                let content_type = self.stream.pick(&["application/json", "text/plain", "application/octet-stream"]);
                self.tell(trouble, content_type, pieces, Fate::Good)
            }
            Trouble::JsonForStream => self.whole(trouble),
            Trouble::Empty => {
                let fate = if ask.format == Format::Responses { Fate::Good } else { Fate::Empty };
                let pieces = speech::stream(&ask, &style, &answer.emptied());
                self.event_stream(trouble, pieces, fate)
            }
            Trouble::NoChoices if ask.format == Format::Chat => {
                let data = r#"{"id":"c","object":"chat.completion.chunk","choices":[]}"#;
                let none = Piece { bytes: style.event("", data), part: Part::Opener };
                self.event_stream(trouble, vec![none.clone(), none], Fate::Fails(Transient))
            }
            Trouble::DoubleDone | Trouble::AfterTheEnd => {
                let last = pieces.last().cloned();
                if let Some(last) = last {
                    let bytes = if trouble == Trouble::DoubleDone { last.bytes } else { self.bad(false).bytes };
                    pieces.push(Piece { bytes, part: Part::After });
                }
                self.event_stream(trouble, pieces, Fate::Good)
            }
            Trouble::NoDone if ask.format == Format::Chat => {
                pieces.retain(|piece| piece.part != Part::Last);
                self.event_stream(trouble, pieces, Fate::Good)
            }
            Trouble::NoLastBlankLine => {
                if let Some(last) = pieces.last_mut() {
                    let line = last.bytes.len() - style.eol.len();
                    last.bytes.truncate(if self.stream.chance(500_000) { line } else { line - style.eol.len() });
                }
                self.event_stream(trouble, pieces, Fate::Good)
            }
            Trouble::LongOpening => {
                let comment = Piece { bytes: style.comment(&" ".repeat(997)), part: Part::Opener };
                let count = self.stream.range(2, 40) as usize;
                pieces.splice(early..early, std::iter::repeat_n(comment, count));
                self.event_stream(trouble, pieces, Fate::Good)
            }
            Trouble::RefusedWords => {
                let refused = Answer { words: vec![REFUSED_WORDS.into()], kind: speech::Kind::Text, ..answer };
                let pieces = speech::stream(&ask, &style, &refused);
                let fate = if self.refuses_words { Fate::Fails(Transient) } else { Fate::Good };
                self.event_stream(trouble, pieces, fate)
            }
            Trouble::BadCoding | Trouble::TooLarge => {
                pieces.truncate(early);
                let mut script = self.event_stream(trouble, pieces, Fate::Fails(Transient));
                script.close =
                    Close::Fault(if trouble == Trouble::BadCoding { Fault::Coding } else { Fault::TooLarge });
                script
            }
            Trouble::Trickle => {
                let mut script = self.event_stream(trouble, pieces, Fate::Good);
                for (gap, _) in script.pieces.iter_mut().take(8) {
                    *gap = Span(self.stream.range(500_000, 20_000_000));
                }
                script
            }
            Trouble::ErrorBehind200 | Trouble::Html | Trouble::EmptyBody => self.whole(trouble),
            _ => self.event_stream(trouble, pieces, Fate::Good),
        }
    }

    /// An image stream is committed on its head and not looked at (F11).
    fn image_stream(&mut self, trouble: Trouble, answer: &Answer) -> Script {
        let style = self.style;
        let mut pieces = speech::stream(self.ask, &style, answer);
        let (close, fate) = match trouble {
            Trouble::ResetAfterHead | Trouble::ResetBeforeContent | Trouble::ResetAfterContent => {
                pieces.truncate(1);
                (Close::Fault(Fault::Reset), Fate::Breaks(Outcome::Transient))
            }
            Trouble::SilentAfterHead | Trouble::CommentsForever | Trouble::SilentAfterContent => {
                pieces.truncate(1);
                (Close::Never, Fate::Silent)
            }
            _ => (Close::Clean, Fate::Good),
        };
        let mut script = self.event_stream(trouble, pieces, fate);
        script.close = close;
        script
    }

    /// A whole body, for a request that wanted one, or in place of a stream.
    fn whole(&mut self, trouble: Trouble) -> Script {
        use Outcome::Transient;
        let ask = *self.ask;
        let obeys = trouble != Trouble::Unstructured;
        let answer = self.answer(obeys);
        let looked_at = !matches!(ask.format, Format::Images | Format::Raw);
        let fails = |outcome| if looked_at { Fate::Fails(outcome) } else { Fate::Good };
        let body = speech::whole(&ask, &answer);
        let half = body.len() / 2;
        let empty_matters = matches!(ask.format, Format::Chat | Format::Messages);
        let mut overload = false;
        let (bytes, fate, close) = match trouble {
            Trouble::ResetAfterHead => (Vec::new(), fails_below(looked_at), Close::Fault(Fault::Reset)),
            Trouble::ResetBeforeContent | Trouble::ResetAfterContent => {
                (body[..half].to_vec(), fails_below(looked_at), Close::Fault(Fault::Reset))
            }
            Trouble::BadCoding => (body[..half].to_vec(), fails_below(looked_at), Close::Fault(Fault::Coding)),
            Trouble::TooLarge => (body[..half].to_vec(), fails_below(looked_at), Close::Fault(Fault::TooLarge)),
            Trouble::SilentAfterHead | Trouble::CommentsForever => (Vec::new(), Fate::Silent, Close::Never),
            Trouble::SilentAfterContent => (body[..half].to_vec(), Fate::Silent, Close::Never),
            Trouble::CutBeforeContent | Trouble::EmptyBody => (Vec::new(), fails(Transient), Close::Clean),
            Trouble::CutAfterContent | Trouble::TornAfterContent if ask.format != Format::Embeddings || half > 0 => {
                (body[..half].to_vec(), fails(Transient), Close::Clean)
            }
            Trouble::ErrorBeforeContent | Trouble::ErrorAfterContent | Trouble::ErrorBehind200 => {
                let text = speech::error_text(ask.format, 503, "overloaded_error", "server_is_overloaded", "busy");
                overload = looked_at;
                (text.into_bytes(), fails(Transient), Close::Clean)
            }
            Trouble::MalformedBeforeContent | Trouble::MalformedAfterContent => {
                (b"{\"choices\":[{\"message\":".to_vec(), fails(Transient), Close::Clean)
            }
            Trouble::DriftedBeforeContent | Trouble::DriftedAfterContent => {
                let text =
                    r#"{"choices":"none","output":"none","content":7,"data":"none","input_tokens":"x","usage":5}"#;
                (text.as_bytes().to_vec(), fails(Transient), Close::Clean)
            }
            Trouble::Html => (b"<!DOCTYPE html><html><body>Hi</body></html>".to_vec(), fails(Transient), Close::Clean),
            Trouble::StreamForJson if looked_at => {
                let events = speech::stream(&Ask { stream: true, ..ask }, &self.style, &answer);
                (events.into_iter().flat_map(|piece| piece.bytes).collect(), fails(Transient), Close::Clean)
            }
            Trouble::Empty if empty_matters => (speech::whole(&ask, &answer.emptied()), Fate::Empty, Close::Clean),
            Trouble::NoChoices if ask.format == Format::Chat => {
                (br#"{"id":"c","choices":[],"usage":{"total_tokens":9}}"#.to_vec(), fails(Transient), Close::Clean)
            }
            Trouble::ZeroUsage => (speech::whole(&ask, &Answer { usage: (0, 0), ..answer }), Fate::Good, Close::Clean),
            Trouble::RefusedWords if matches!(ask.format, Format::Chat | Format::Messages | Format::Responses) => {
                let refused = Answer { words: vec![REFUSED_WORDS.into()], kind: speech::Kind::Text, ..answer };
                let fate = if self.refuses_words { Fate::Fails(Transient) } else { Fate::Good };
                let fate = if ask.structured && !self.refuses_words { Fate::Unstructured } else { fate };
                (speech::whole(&ask, &refused), fate, Close::Clean)
            }
            Trouble::Unstructured if ask.structured && !ask.stream => (body, Fate::Unstructured, Close::Clean),
            _ => (body, Fate::Good, Close::Clean),
        };
        let content_type = if trouble == Trouble::Html { "text/html" } else { "application/json" };
        let pieces = if bytes.is_empty() { Vec::new() } else { vec![Piece { bytes, part: Part::Content }] };
        let mut script = self.tell(trouble, content_type, pieces, fate);
        script.close = close;
        script.overload = overload;
        if trouble == Trouble::Trickle
            && let Some((_, piece)) = script.pieces.pop()
        {
            script.pieces = self.trickled(piece);
        }
        if trouble == Trouble::SlowFirstByte {
            script.opens_after = Span(script.opens_after.0 + self.stream.range(500_000, 15_000_000));
        }
        script
    }
}

/// A body that breaks below HTTP: a failure before anything, or of what was committed on its head.
fn fails_below(looked_at: bool) -> Fate {
    if looked_at { Fate::Fails(Outcome::Transient) } else { Fate::Breaks(Outcome::Transient) }
}

/// Year, month, day and the second of the day of a Unix time (the civil-from-days algorithm of Hinnant).
fn civil(unix: u64) -> (u64, u64, u64, u64) {
    let days = unix / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day, unix % 86_400)
}

fn http_date(unix: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day, second) = civil(unix);
    let (weekday, month) = (DAYS[(unix / 86_400 % 7) as usize], MONTHS[month as usize - 1]);
    format!("{weekday}, {day:02} {month} {year} {:02}:{:02}:{:02} GMT", second / 3600, second / 60 % 60, second % 60)
}

fn rfc3339(unix: u64) -> String {
    let (year, month, day, second) = civil(unix);
    format!("{year}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_the_calendar_has_them() {
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(EPOCH_MS / 1000), "2025-10-09T08:53:20Z");
    }
}
