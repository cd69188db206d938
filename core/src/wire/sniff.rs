//! What a 200 answer to a stream request really is: content types lie, so the first bytes decide (F15).

/// What the first bytes say.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Sniffed {
    /// More bytes are needed.
    Undecided,
    /// Server-sent events.
    EventStream,
    /// One JSON document.
    Json,
    /// Neither: text, a page, bytes of an unknown coding.
    Text,
}

/// Decides from the `content-type` and the bytes so far; with `end` no more will come and it always decides.
///
/// A stream is known by a field name at its very start, whatever its label says. Something labelled as a stream that
/// begins like nothing else is one too, for the standard passes over lines it does not know: it just holds no event.
pub fn sniff(content_type: Option<&str>, first: &[u8], end: bool) -> Sniffed {
    let labelled = |part: &str| content_type.is_some_and(|label| contains_ignoring_case(label, part));
    let undecided = |otherwise| if end { otherwise } else { Sniffed::Undecided };
    let otherwise = || match (labelled("event-stream"), labelled("json")) {
        (true, _) => Sniffed::EventStream,
        (false, true) => Sniffed::Json,
        (false, false) => Sniffed::Text,
    };
    let bom: &[u8] = b"\xef\xbb\xbf";
    let body = match first.strip_prefix(bom) {
        Some(rest) => rest,
        None if first.len() < bom.len() && bom.starts_with(first) && !first.is_empty() => {
            return undecided(Sniffed::Text);
        }
        None => first,
    };
    let text = body.trim_ascii_start();
    match text.first() {
        // An empty body is an empty stream unless it was to be JSON.
        None => {
            undecided(if labelled("json") && !labelled("event-stream") { Sniffed::Json } else { Sniffed::EventStream })
        }
        Some(b'{' | b'[') => Sniffed::Json,
        // A page, or bytes that no text begins with: gzip without its header begins with 0x1f.
        Some(b'<' | 0..0x20 | 0x7f..) => Sniffed::Text,
        Some(_) => match starts_as_field(body) {
            Start::Field => Sniffed::EventStream,
            Start::Perhaps => undecided(otherwise()),
            Start::Other if is_garbage(text) => Sniffed::Text,
            Start::Other => otherwise(),
        },
    }
}

enum Start {
    Field,
    Perhaps,
    Other,
}

/// Whether the first line that is not blank is a field of an event stream. A space before the name makes it none.
fn starts_as_field(body: &[u8]) -> Start {
    const NAMES: [&[u8]; 5] = [b"", b"data", b"event", b"id", b"retry"];
    let blank = body.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let line = body.get(blank..).unwrap_or_default();
    for name in NAMES {
        match line.strip_prefix(name) {
            Some([b':', ..]) => return Start::Field,
            // A bare `data` line is a field as well; a bare word of text that is no field name never gets here.
            Some([b'\r' | b'\n', ..]) if !name.is_empty() => return Start::Field,
            Some([]) => return Start::Perhaps,
            None if name.starts_with(line) => return Start::Perhaps,
            _ => {}
        }
    }
    Start::Other
}

/// Whether the first bytes are no text at all: an unknown coding under the label of a stream (X5).
fn is_garbage(text: &[u8]) -> bool {
    let head = text.get(..16).unwrap_or(text);
    let control = |byte: &u8| matches!(byte, 0..=8 | 14..=31 | 127);
    head.iter().any(control) || core::str::from_utf8(head).is_err_and(|error| error.error_len().is_some())
}

fn contains_ignoring_case(text: &str, part: &str) -> bool {
    text.as_bytes().windows(part.len()).any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Option<&str> = Some("text/event-stream; charset=utf-8");
    const JSON: Option<&str> = Some("application/json");
    const PLAIN: Option<&str> = Some("text/plain");

    #[test]
    fn a_field_name_makes_a_stream_whatever_the_label() {
        for label in [STREAM, JSON, PLAIN, Some("application/octet-stream"), None] {
            for first in [
                "data: {}",
                "data:{}",
                "event: x",
                ": hi",
                "retry: 1",
                "id: 7",
                "data\n",
                "\n\r\ndata: x",
                "\u{feff}data: x",
                ":",
            ] {
                assert_eq!(sniff(label, first.as_bytes(), false), Sniffed::EventStream, "{label:?} {first:?}");
            }
        }
    }

    #[test]
    fn braces_make_json_whatever_the_label() {
        for label in [STREAM, JSON, PLAIN, None] {
            for first in ["{", "[", " \n\t{\"a\"", "\u{feff}{"] {
                assert_eq!(sniff(label, first.as_bytes(), false), Sniffed::Json, "{label:?} {first:?}");
            }
        }
    }

    #[test]
    fn pages_and_unknown_codings_are_text_even_as_a_labelled_stream() {
        for label in [STREAM, JSON, PLAIN, None] {
            for first in [
                b"<!DOCTYPE html>".as_slice(),
                b" \n<html>",
                b"\x1f\x8b\x08\0",
                b"\x1f",
                b"\0",
                b"x\x9c\xed\xbd",
                b"\xff\xff",
            ] {
                assert_eq!(sniff(label, first, false), Sniffed::Text, "{label:?} {first:?}");
            }
        }
    }

    #[test]
    fn other_text_is_what_its_label_says() {
        for first in ["oh this is malformed", " data: {}", "database is down", "identity", "null"] {
            assert_eq!(sniff(STREAM, first.as_bytes(), false), Sniffed::EventStream, "{first:?}");
            assert_eq!(sniff(JSON, first.as_bytes(), false), Sniffed::Json, "{first:?}");
            assert_eq!(sniff(PLAIN, first.as_bytes(), false), Sniffed::Text, "{first:?}");
            assert_eq!(sniff(None, first.as_bytes(), false), Sniffed::Text, "{first:?}");
        }
    }

    #[test]
    fn what_may_still_become_something_waits_for_more_and_decides_at_the_end() {
        for first in ["", " ", "\n", "d", "dat", "data", "even", "i", "re", "\r\nre"] {
            assert_eq!(sniff(PLAIN, first.as_bytes(), false), Sniffed::Undecided, "{first:?}");
            assert_ne!(sniff(PLAIN, first.as_bytes(), true), Sniffed::Undecided, "{first:?}");
        }
        assert_eq!(
            [sniff(STREAM, b"\xef\xbb", false), sniff(STREAM, b"\xef\xbb", true)],
            [Sniffed::Undecided, Sniffed::Text]
        );
        assert_eq!(
            [sniff(STREAM, b"", true), sniff(None, b"\n", true), sniff(JSON, b" ", true)],
            [Sniffed::EventStream, Sniffed::EventStream, Sniffed::Json]
        );
        assert_eq!([sniff(STREAM, b"dat", true), sniff(PLAIN, b"dat", true)], [Sniffed::EventStream, Sniffed::Text]);
    }
}
