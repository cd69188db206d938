//! Directives: the words that say how an answer goes wrong.
//!
//! A header, a model's name, an API key and a script all use the same words, and all go through [`Behaviour::set`]: a
//! second notation with its own keys would be a second meaning to keep in step.

use super::behaviour::{Behaviour, Break, Chunk, Empty, Fault, Gzip, How, LineEnd, Point, Shape};
use super::table;

/// Why a directive was not understood. Every kind says what would have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectiveError {
    /// No such word.
    #[error("unknown directive `{name}`{}; allowed are a status (200-999) and {}", table::did_you_mean(.name), table::names())]
    Unknown {
        /// The word.
        name: String,
    },
    /// The word's value is missing or makes no sense.
    #[error("`{name}` wants {wants}, not `{value}`")]
    Value {
        /// The word.
        name: String,
        /// What stood there.
        value: String,
        /// What should.
        wants: &'static str,
    },
    /// Two words that exclude each other.
    #[error("`{second}` does not go with `{first}`: an answer breaks in one way only, keep one of the two")]
    Twice {
        /// The earlier one.
        first: String,
        /// The later one.
        second: String,
    },
    /// Nothing there.
    #[error("an empty directive: write `ok` for a good answer")]
    Nothing,
}

impl Behaviour {
    /// Reads the compact notation: words separated by commas, `503:retry-after=2, delay=100`.
    pub fn parse(text: &str) -> Result<Behaviour, DirectiveError> {
        let mut behaviour = Behaviour::default();
        let mut some = false;
        for word in split(text, ',') {
            some = true;
            let (name, value) = match split_once(word, '=') {
                Some((name, _)) if name.contains(':') => (word, None),
                Some((name, value)) => (name.trim(), Some(unquoted(value.trim()))),
                None => (word, None),
            };
            behaviour.set(name, value.as_deref())?;
        }
        if some { Ok(behaviour) } else { Err(DirectiveError::Nothing) }
    }

    /// Reads a sequence: behaviours separated by semicolons, `503*2; ok`. At most 1000 of them.
    pub fn parse_sequence(text: &str) -> Result<Vec<Behaviour>, DirectiveError> {
        let mut all = Vec::new();
        for part in split(text, ';') {
            let (word, times) = match part.rsplit_once('*') {
                Some((word, times)) if times.trim().bytes().all(|b| b.is_ascii_digit()) => {
                    (word, number("*", Some(times.trim()), "a number of times, 1-1000", 1, 1000)?)
                }
                _ => (part, 1),
            };
            let behaviour = Behaviour::parse(word)?;
            all.extend(std::iter::repeat_n(behaviour, (times as usize).min(1000 - all.len().min(1000))));
        }
        if all.is_empty() { Err(DirectiveError::Nothing) } else { Ok(all) }
    }

    /// Applies one word. Underscores count as hyphens, and a unit `_ms` may be written out.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), DirectiveError> {
        let name = name.trim().to_ascii_lowercase().replace('_', "-");
        let name = match name.strip_suffix("-ms") {
            Some(short) if short != "retry-after" => short,
            _ => name.as_str(),
        };
        if name.starts_with(|first: char| first.is_ascii_digit()) {
            return self.set_status_word(name);
        }
        if let Some(broken) = break_of(name, value)? {
            return self.set_break(broken, name, value);
        }
        let some = |wants| value.map(str::to_owned).ok_or_else(|| wrong(name, value, wants));
        let ms = || number(name, value, "milliseconds, at most a day", 0, 86_400_000);
        let share = || fraction(name, value);
        match name {
            "ok" => self.status = None,
            "status" => self.status = Some(number(name, value, "a status, 200-999", 200, 999)? as u16),
            "retry-after" => self.retry_after = Some(some("seconds, a date, or whatever the header should say")?),
            "retry-after-ms" => self.headers.push((name.to_owned(), some("milliseconds")?)),
            "header" => self.headers.push(header(name, value)?),
            "delay" => self.delay_ms = ms()?,
            "first" => self.first_ms = ms()?,
            "gap" => self.gap_ms = ms()?,
            "trickle" => (self.chunk, self.gap_ms) = (Chunk::Bytes(1), ms()?),
            "chunk" => self.chunk = chunk(name, value)?,
            "text" => self.text = Some(some("the words to say")?),
            "tool" => self.tool = Some(value.unwrap_or_default().to_owned()),
            "finish" => self.finish = Some(some("a finish or stop reason")?),
            "body" => self.body = Some(some("the body")?),
            "raw" => self.raw = Some(some("the bytes to write")?),
            "garbage" => self.raw = Some("SSH-2.0-OpenSSH_9.6\r\n".to_owned()),
            "as" => self.error.standing_for = Some(number(name, value, "an error status, 400-599", 400, 599)? as u16),
            "type" => self.error.kind = Some(some("an error type")?),
            "code" => self.error.code = Some(some("an error code")?),
            "message" => self.error.message = Some(some("an error message")?),
            "empty" => return self.set_fault(Fault::Empty(empty(name, value)?), name),
            "drift" => return self.set_fault(Fault::Drift, name),
            "html" => return self.set_fault(Fault::Html, name),
            "unfinished" => return self.set_fault(Fault::Unfinished, name),
            "no-done" => return self.set_fault(Fault::NoDone, name),
            "no-finish" => return self.set_fault(Fault::NoFinish, name),
            "double-done" => return self.set_fault(Fault::DoubleDone, name),
            "torn" => return self.set_fault(Fault::Torn, name),
            "huge" => {
                let bytes = number(name, value, "bytes, at most 67108864", 1, 64 << 20)?;
                return self.set_fault(Fault::Huge(bytes as usize), name);
            }
            "redirect" => {
                let to = value.unwrap_or("/moved").to_owned();
                return self.set_fault(Fault::Redirect(to), name);
            }
            "gzip" => self.gzip = gzip(name, value)?,
            "content-type" => self.content_type = Some(some("a content type, or \"\" for none")?),
            "line" => self.line = line_end(name, value)?,
            "bom" => self.bom = true,
            "as-json" => self.shape = Some(Shape::Whole),
            "as-stream" => self.shape = Some(Shape::Stream),
            "flaky" => self.flaky = Some(share()?),
            "lucky" => self.flaky = Some(1.0 - share()?),
            "seed" => self.seed = Some(number(name, value, "a whole number", 0, u64::MAX)?),
            "watchdog" => {
                self.delay_ms = ms()?;
                self.set_break(Break { at: Point::Head, how: How::Close }, name, value)?;
            }
            "in-flight" => self.limit.in_flight = number(name, value, "a number of requests", 1, 1 << 20)? as u32,
            "rate" => (self.limit.requests, self.limit.window_ms) = rate(name, value)?,
            "account" => self.account = Some(some("a name")?),
            _ => return Err(DirectiveError::Unknown { name: name.to_owned() }),
        }
        Ok(())
    }

    /// `503:retry-after=2:x-a=b`: a status and headers that come with it.
    fn set_status_word(&mut self, word: &str) -> Result<(), DirectiveError> {
        let mut parts = word.split(':');
        let status = parts.next().unwrap_or_default().trim();
        self.status = Some(number("status", Some(status), "a number, 200-999", 200, 999)? as u16);
        for part in parts {
            let (name, value) = part.split_once('=').ok_or_else(|| wrong(word, Some(part), "`:name=value`"))?;
            match name.trim() {
                "retry-after" => self.retry_after = Some(unquoted(value.trim())),
                _ => self.headers.push(header(word, Some(&format!("{name}:{}", unquoted(value.trim()))))?),
            }
        }
        Ok(())
    }

    fn set_fault(&mut self, fault: Fault, name: &str) -> Result<(), DirectiveError> {
        if self.fault != Fault::None && self.fault != fault {
            return Err(DirectiveError::Twice { first: self.fault.to_string(), second: name.to_owned() });
        }
        self.fault = fault;
        Ok(())
    }

    fn set_break(&mut self, broken: Break, name: &str, value: Option<&str>) -> Result<(), DirectiveError> {
        if let Some(earlier) = self.broken.filter(|earlier| *earlier != broken) {
            return Err(DirectiveError::Twice { first: earlier.to_string(), second: name.to_owned() });
        }
        if let ("error" | "failed", Some(_)) = (name, value) {
            let status = number(name, value, "the status it stands for, 400-599", 400, 599)?;
            self.error.standing_for = Some(status as u16);
        }
        self.broken = Some(broken);
        Ok(())
    }
}

/// `stall`, `cut-after=2`, `reset-at=120`: the words that say where an answer breaks.
fn break_of(name: &str, value: Option<&str>) -> Result<Option<Break>, DirectiveError> {
    let (base, place) = match name {
        _ if name.ends_with("-after") => (&name[..name.len() - 6], "after"),
        _ if name.ends_with("-at") => (&name[..name.len() - 3], "at"),
        _ => (name, ""),
    };
    let (how, usual) = match base {
        "stall" => (How::Stall, Point::Head),
        "close" => (How::Close, Point::Head),
        "cut" => (How::Close, Point::Content(1)),
        "reset" => (How::Reset, Point::Head),
        "error" => (How::Error, Point::Content(0)),
        "failed" => (How::Failed, Point::Content(0)),
        "malformed" => (How::Malformed, Point::Content(0)),
        "comments" => (How::Comments, Point::Events(0)),
        "pings" => (How::Pings, Point::Content(0)),
        _ => return Ok(None),
    };
    let at = match place {
        "at" if !matches!(how, How::Stall | How::Close | How::Reset) => return Ok(None),
        "at" => Point::Bytes(number(name, value, "a number of bytes", 0, 1 << 30)? as usize),
        "after" => point(name, value)?,
        _ => usual,
    };
    Ok(Some(Break { at, how }))
}

fn point(name: &str, value: Option<&str>) -> Result<Point, DirectiveError> {
    const WANTS: &str = "a number of events (`2`), of events with content (`2c`), or `content` for the first of these";
    match value {
        Some("content") => Ok(Point::Content(1)),
        Some(text) => match text.strip_suffix('c') {
            Some(count) => Ok(Point::Content(count.parse().map_err(|_| wrong(name, value, WANTS))?)),
            None => Ok(Point::Events(text.parse().map_err(|_| wrong(name, value, WANTS))?)),
        },
        None => Err(wrong(name, value, WANTS)),
    }
}

fn wrong(name: &str, value: Option<&str>, wants: &'static str) -> DirectiveError {
    DirectiveError::Value { name: name.to_owned(), value: value.unwrap_or_default().to_owned(), wants }
}

fn number(name: &str, value: Option<&str>, wants: &'static str, min: u64, max: u64) -> Result<u64, DirectiveError> {
    let found = value.and_then(|text| text.parse::<u64>().ok()).filter(|n| (min..=max).contains(n));
    found.ok_or_else(|| wrong(name, value, wants))
}

fn fraction(name: &str, value: Option<&str>) -> Result<f64, DirectiveError> {
    let found = value.and_then(|text| text.parse::<f64>().ok()).filter(|share| (0.0..=1.0).contains(share));
    found.ok_or_else(|| wrong(name, value, "a share from 0 to 1"))
}

/// A header that HTTP can carry: found out here, where a person can be told, and not when the answer is built.
fn header(name: &str, value: Option<&str>) -> Result<(String, String), DirectiveError> {
    let pair = value.and_then(|text| text.split_once(':')).map(|(name, value)| (name.trim(), value.trim()));
    pair.filter(|(name, value)| {
        http::HeaderName::try_from(*name).is_ok() && http::HeaderValue::try_from(*value).is_ok()
    })
    .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
    .ok_or_else(|| wrong(name, value, "`name:value`"))
}

fn chunk(name: &str, value: Option<&str>) -> Result<Chunk, DirectiveError> {
    match value {
        Some("event") => Ok(Chunk::Event),
        Some("whole") => Ok(Chunk::Whole),
        Some("byte") => Ok(Chunk::Bytes(1)),
        _ => Ok(Chunk::Bytes(number(name, value, "event, whole, byte or a number of bytes", 1, 1 << 30)? as usize)),
    }
}

fn empty(name: &str, value: Option<&str>) -> Result<Empty, DirectiveError> {
    Ok(match value {
        None | Some("text" | "content") => Empty::Text,
        Some("choices" | "output") => Empty::Choices,
        Some("stream") => Empty::Stream,
        Some("body") => Empty::Body,
        Some("usage") => Empty::Usage,
        _ => return Err(wrong(name, value, "text, choices, output, stream, body or usage")),
    })
}

fn gzip(name: &str, value: Option<&str>) -> Result<Gzip, DirectiveError> {
    Ok(match value {
        None => Gzip::On,
        Some("bare") => Gzip::Bare,
        Some("header") => Gzip::Header,
        _ => return Err(wrong(name, value, "nothing, bare or header")),
    })
}

fn line_end(name: &str, value: Option<&str>) -> Result<LineEnd, DirectiveError> {
    Ok(match value {
        Some("lf") => LineEnd::Lf,
        Some("crlf") => LineEnd::CrLf,
        Some("cr") => LineEnd::Cr,
        _ => return Err(wrong(name, value, "lf, crlf or cr")),
    })
}

fn rate(name: &str, value: Option<&str>) -> Result<(u32, u64), DirectiveError> {
    let parsed = value.and_then(|text| {
        let (requests, window) = text.split_once('/').unwrap_or((text, "1000"));
        Some((requests.trim().parse().ok()?, window.trim().parse().ok()?))
    });
    parsed
        .filter(|&(requests, window)| requests > 0 && (1..=86_400_000).contains(&window))
        .ok_or_else(|| wrong(name, value, "requests/milliseconds, like `10/1000`"))
}

/// The parts of `text` between `separator`s that stand outside double quotes, trimmed, empty ones left out.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c| {
        quoted ^= c == '"';
        c == separator && !quoted
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

/// [`str::split_once`] that does not look into quotes.
fn split_once(text: &str, separator: char) -> Option<(&str, &str)> {
    let quote = text.find('"').unwrap_or(text.len());
    let at = text[..quote].find(separator)?;
    Some((&text[..at], &text[at + separator.len_utf8()..]))
}

fn unquoted(text: &str) -> String {
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(inner) => inner.to_owned(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Behaviour {
        Behaviour::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refused(text: &str) -> String {
        match Behaviour::parse_sequence(text) {
            Ok(behaviours) => panic!("{text} passed: {behaviours:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_status_brings_its_headers() {
        let behaviour = parsed("429:retry-after=2:x-a=b=c, delay=100");
        assert_eq!(
            (behaviour.status, behaviour.retry_after.as_deref(), behaviour.delay_ms),
            (Some(429), Some("2"), 100)
        );
        assert_eq!(behaviour.headers, [("x-a".to_owned(), "b=c".to_owned())]);
    }

    #[test]
    fn breaks_have_a_place_in_events_contents_or_bytes() {
        let at = |text| parsed(text).broken.map(|broken| (broken.how, broken.at));
        assert_eq!(at("stall"), Some((How::Stall, Point::Head)));
        assert_eq!(at("cut"), Some((How::Close, Point::Content(1))));
        assert_eq!(at("cut-after=2"), Some((How::Close, Point::Events(2))));
        assert_eq!(at("error-after=3c"), Some((How::Error, Point::Content(3))));
        assert_eq!(at("reset-at=120"), Some((How::Reset, Point::Bytes(120))));
        assert_eq!(at("watchdog=500"), Some((How::Close, Point::Head)));
    }

    #[test]
    fn quotes_protect_separators_and_units_may_be_written_out() {
        let all = Behaviour::parse_sequence("text=\"a, b; c\", gap_ms=5; 503*2;ok").expect("it is right");
        assert_eq!(all.len(), 4);
        assert_eq!((all[0].text.as_deref(), all[0].gap_ms), (Some("a, b; c"), 5));
        assert_eq!((all[1].status, all[2].status, all[3].status), (Some(503), Some(503), None));
    }

    #[test]
    fn a_sequence_has_a_bound() {
        assert_eq!(Behaviour::parse_sequence("503*1000; ok*1000").map(|all| all.len()), Ok(1000));
        assert!(refused("503*1001").contains("1-1000"));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_is_allowed() {
        insta::assert_snapshot!(refused("delay=soon"), @"`delay` wants milliseconds, at most a day, not `soon`");
        insta::assert_snapshot!(refused("1503"), @"`status` wants a number, 200-999, not `1503`");
        insta::assert_snapshot!(refused("empty=all"), @"`empty` wants text, choices, output, stream, body or usage, not `all`");
        insta::assert_snapshot!(refused("stall, cut-after=2"), @"`cut-after` does not go with `stall`: an answer breaks in one way only, keep one of the two");
        insta::assert_snapshot!(refused("html, drift"), @"`drift` does not go with `html`: an answer breaks in one way only, keep one of the two");
        insta::assert_snapshot!(refused("header=x y:b"), @"`header` wants `name:value`, not `x y:b`");
        insta::assert_snapshot!(refused(" ; "), @"an empty directive: write `ok` for a good answer");
        let unknown = refused("stal");
        assert!(
            unknown.starts_with("unknown directive `stal`, did you mean `stall`?; allowed are a status"),
            "{unknown}"
        );
    }

    #[test]
    fn any_text_is_read_without_a_panic_and_what_passes_keeps_its_meaning() {
        let mut rng = surefoot_core::rng::Rng::new(3);
        let parts = [
            "503", ":", "=", ",", ";", "\"", "*", "-after", "-at", "cut", "stall", "text", "é", "2c", "9", " ", "_ms",
            "gap",
        ];
        let mut passed = 0;
        for _ in 0..20_000 {
            let text: String = (0..rng.below(7)).map(|_| parts[rng.below(parts.len() as u32) as usize]).collect();
            let Ok(all) = Behaviour::parse_sequence(&text) else { continue };
            passed += 1;
            for behaviour in all.iter().take(3) {
                let plain = behaviour.text.as_ref().is_none_or(|text| !text.contains('"'));
                assert!(!plain || Behaviour::parse(&behaviour.to_string()).as_ref() == Ok(behaviour), "{text}");
            }
        }
        assert!(passed > 100, "{passed}");
    }
}
