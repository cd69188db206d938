//! Recorded answers of real providers, cut at every byte and chunked in three ways, against an oracle that shares nothing
//! with the scanner: lines split by a regex, documents read by `serde_json` (X2, M5, F15, M1).

mod common;

use surefoot_core::wire::body::inspect;
use surefoot_core::wire::bridge::as_stream;
use surefoot_core::wire::stream::StreamReader;
use surefoot_core::wire::{Format, Kind, Verdict};

use common::{Oracle, Told, format_of, recordings};

fn kind(kind: &Kind) -> &'static str {
    match kind {
        Kind::Opener => "Opener",
        Kind::Content => "Content",
        Kind::PlainStop => "PlainStop",
        Kind::Stop => "Stop",
        Kind::Last => "Last",
        Kind::EarlyDone => "EarlyDone",
        Kind::Error(_) => "Error",
        Kind::Malformed => "Malformed",
        Kind::Oversized => "Oversized",
    }
}

/// A reader and what it has told so far.
#[derive(Clone)]
struct Reading {
    reader: StreamReader,
    told: Vec<Told>,
}

impl Reading {
    fn new(format: Format) -> Reading {
        Reading { reader: StreamReader::new(format), told: Vec::new() }
    }

    fn feed(&mut self, mut slice: &[u8], stream: &[u8]) {
        while let Some(event) = self.reader.next(&mut slice) {
            // An end between CR and LF is the chunk's doing; the LF belongs to the event.
            let end = event.end as usize;
            let late = stream.get(end - 1..=end) == Some(b"\r\n");
            self.told.push((end + usize::from(late), kind(&event.kind), event.terminal));
        }
        assert!(slice.is_empty());
    }

    /// What is told if the stream ends here.
    fn ended(mut self) -> (Vec<Told>, bool) {
        if let Some(event) = self.reader.finish() {
            self.told.push((event.end as usize, kind(&event.kind), event.terminal));
        }
        let whole = self.told.last().map_or(0, |last| last.0);
        assert_eq!(self.reader.whole() as usize, whole);
        (self.told, self.reader.complete())
    }
}

fn check_cuts(name: &str, format: Format, stream: &[u8]) {
    let whole = Oracle::events(format, stream);
    let plain = |(told, good): (Vec<Told>, bool)| {
        let told =
            told.into_iter().map(|(end, kind, last)| (end, if kind == "Finish" { "Content" } else { kind }, last));
        (told.collect::<Vec<_>>(), good)
    };
    let (mut by_byte, mut by_event, mut by_chance) = (Reading::new(format), Reading::new(format), Reading::new(format));
    let (mut event_at, mut chance_at, mut seed) = (0, 0, 0x9e37_79b9_u32);
    let mut next_chance = 7;
    for cut in 0..=stream.len() {
        let inside_crlf = cut > 0 && stream.get(cut - 1..=cut) == Some(b"\r\n");
        if cut > 0 {
            by_byte.feed(&stream[cut - 1..cut], stream);
        }
        if inside_crlf {
            continue;
        }
        let wanted = plain(Oracle::cut(format, &stream[..cut], &whole));
        assert_eq!(by_byte.clone().ended(), wanted, "{name} byte by byte, cut at {cut}");

        // One slice from the last event on: what came before is the same reader in the same state.
        let mut one = by_event.clone();
        one.feed(&stream[event_at..cut], stream);
        if one.told.len() > by_event.told.len() {
            (by_event, event_at) = (one.clone(), cut);
        }
        assert_eq!(one.ended(), wanted, "{name} by events, cut at {cut}");

        let mut slice = by_chance.clone();
        slice.feed(&stream[chance_at..cut], stream);
        if cut >= next_chance {
            (by_chance, chance_at) = (slice.clone(), cut);
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            next_chance = cut + 1 + (seed >> 24) as usize;
        }
        assert_eq!(slice.ended(), wanted, "{name} in random slices, cut at {cut}");

        // The whole prefix as one slice costs the square of the length: every cut of a short recording, some of a long one.
        if stream.len() < 8192 || cut % 1021 == 0 || cut == stream.len() {
            let mut once = Reading::new(format);
            once.feed(&stream[..cut], stream);
            assert_eq!(once.ended(), wanted, "{name} at once, cut at {cut}");
        }
    }
}

#[test]
fn every_cut_of_every_recorded_stream_tells_what_the_page_says() {
    for path in recordings("_stream.txt") {
        let format = format_of(&path).expect("a stream's format");
        let stream = std::fs::read(&path).expect("a recording");
        check_cuts(&path.display().to_string(), format, &stream);
    }
}

#[test]
fn the_line_ends_of_a_recorded_stream_do_not_matter() {
    for path in recordings("_stream.txt") {
        let format = format_of(&path).expect("a stream's format");
        let text = std::fs::read_to_string(&path).expect("a recording");
        if text.len() < 8192 {
            for end in ["\r\n", "\r"] {
                check_cuts(&format!("{} with {end:?}", path.display()), format, text.replace('\n', end).as_bytes());
            }
        }
    }
}

#[test]
fn every_recorded_stream_is_complete_and_tells_its_tokens() {
    for path in recordings("_stream.txt") {
        let mut reading = Reading::new(format_of(&path).expect("a stream's format"));
        let stream = std::fs::read(&path).expect("a recording");
        reading.feed(&stream, &stream);
        let last = reading.reader.finish();
        assert!(reading.reader.complete(), "{}", path.display());
        assert!(
            last.is_some_and(|event| event.terminal) || reading.told.last().is_some_and(|event| event.2),
            "{}",
            path.display()
        );
        let told = String::from_utf8_lossy(&stream).contains("\"output_tokens\":")
            || String::from_utf8_lossy(&stream).contains("\"total_tokens\":");
        assert_eq!(reading.reader.tokens().is_some(), told, "{}", path.display());
    }
}

#[test]
fn every_recorded_body_is_good_whole_and_unreadable_cut() {
    for path in recordings(".json") {
        let Some(format) = format_of(&path) else { continue };
        let body = std::fs::read(&path).expect("a recording");
        let verdict = inspect(format, &body);
        let told = body.windows(8).any(|word| word == b"_tokens\"");
        assert!(
            matches!(verdict, Verdict::Good { empty: None, tokens } if tokens.is_some() == told),
            "{verdict:?} {}",
            path.display()
        );
        for cut in 0..body.trim_ascii_end().len() {
            assert_eq!(inspect(format, &body[..cut]), Verdict::Unreadable, "{} cut at {cut}", path.display());
        }
    }
}

#[test]
fn every_recorded_body_stands_for_a_complete_stream() {
    for path in recordings(".json") {
        let Some(format) = format_of(&path).filter(|format| *format != Format::Embeddings) else { continue };
        let body = std::fs::read(&path).expect("a recording");
        let events = as_stream(format, &body, true).expect("a stream").concat();
        let mut reading = Reading::new(format);
        reading.feed(&events, &events);
        assert!(reading.reader.complete(), "{}", path.display());
        assert!(reading.told.iter().any(|event| event.1 == "Content"), "{}", path.display());
        assert!(reading.told.iter().all(|event| event.1 != "Malformed"), "{}", path.display());
    }
}
