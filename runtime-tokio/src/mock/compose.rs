//! Behaviour and request become an answer: a head and a list of steps. Pure, so that the socket side only plays.

use std::io::Write as _;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};

use super::ask::{Ask, Route};
use super::behaviour::{Behaviour, Break, Chunk, Empty, Fault, Gzip, How, LineEnd, Point, Shape};
use super::date;
use super::dialect::{self, Part, Say};

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
}

/// What to do next on the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Send(Bytes),
    Wait(Duration),
    /// These bytes again and again, so far apart, for ever.
    Repeat(Bytes, Duration),
    Stall,
    End(Ending),
}

/// How a connection ends before its answer does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Close,
    Reset,
    /// These bytes first, then it closes.
    Raw(Bytes),
}

/// An answer to play.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Before the head; what stalls or ends here has no head.
    pub(super) before: Vec<Step>,
    pub(super) head: Head,
    pub(super) body: Vec<Step>,
}

/// A body before its breaks: what it is and where its contents are.
struct Body {
    content_type: &'static str,
    stream: bool,
    pieces: Vec<Piece>,
}

struct Piece {
    bytes: Vec<u8>,
    content: bool,
    /// The same event with broken data.
    damaged: Vec<u8>,
}

impl Body {
    fn whole(content_type: &'static str, text: String) -> Body {
        // Of HTML and the like half is as damaged as it gets; of JSON it is the usual torn body.
        let damaged = dialect::half(&text).as_bytes().to_vec();
        let pieces = vec![Piece { bytes: text.into_bytes(), content: true, damaged }];
        Body { content_type, stream: false, pieces }
    }

    fn empty(content_type: &'static str, stream: bool) -> Body {
        Body { content_type, stream, pieces: Vec::new() }
    }
}

const JSON: &str = "application/json";
const SSE: &str = "text/event-stream; charset=utf-8";

/// The answer of `behaviour` to `ask`. `number` is the request's, `models` what there is to list.
pub(super) fn compose(route: Route, ask: &Ask, behaviour: &Behaviour, number: u64, models: &[String]) -> Answer {
    let status = status(route, behaviour);
    let body = body(route, ask, behaviour, status, number, models);
    let mut head = Head { status, headers: headers(route, behaviour, &body, status, number) };
    let mut before = Vec::new();
    wait(&mut before, behaviour.delay_ms);
    match behaviour.broken {
        _ if behaviour.raw.is_some() => {
            let raw = behaviour.raw.clone().unwrap_or_default();
            before.push(Step::End(Ending::Raw(raw.into())));
        }
        Some(Break { at: Point::Head, how }) => before.push(tail(route, behaviour, how, true)),
        _ => {}
    }
    let stream = body.stream;
    let mut cut = break_off(route, ask, behaviour, body, number);
    frame(&mut cut.pieces, behaviour, stream);
    // A stream that breaks has no trailer; a whole answer breaks as it goes over the wire, so it has one to lose.
    compress(&mut cut.pieces, behaviour.gzip, !stream || cut.tail.is_none());
    let length: usize = cut.pieces.iter().map(Vec::len).sum();
    keep(&mut cut.pieces, if cut.halves == 2 { length } else { length / 2 * cut.halves });
    if let Some(Break { at: Point::Bytes(most), how }) = behaviour.broken {
        keep(&mut cut.pieces, most);
        cut.tail = Some(tail(route, behaviour, how, stream));
    }
    // A stream's length is not known when it begins, nor is that of whitespace without end.
    if !stream && !matches!(cut.tail, Some(Step::Repeat(..))) && status != 204 && status != 304 {
        head.headers.push(("content-length".to_owned(), length.to_string()));
    }
    let mut steps = Vec::new();
    wait(&mut steps, behaviour.first_ms);
    for (index, chunk) in chunks(cut.pieces, behaviour.chunk).into_iter().enumerate() {
        if index > 0 {
            wait(&mut steps, behaviour.gap_ms);
        }
        steps.push(Step::Send(chunk));
    }
    steps.extend(cut.tail);
    Answer { before, head, body: steps }
}

fn wait(steps: &mut Vec<Step>, ms: u64) {
    if ms > 0 {
        steps.push(Step::Wait(Duration::from_millis(ms)));
    }
}

fn status(route: Route, behaviour: &Behaviour) -> u16 {
    let usual = match behaviour.fault {
        Fault::Redirect(_) => 302,
        _ if route == Route::Unknown && behaviour.body.is_none() => 404,
        _ => 200,
    };
    behaviour.status.unwrap_or(usual)
}

fn body(route: Route, ask: &Ask, behaviour: &Behaviour, status: u16, number: u64, models: &[String]) -> Body {
    let stream = route.streams()
        && match behaviour.shape {
            Some(shape) => shape == Shape::Stream,
            None => ask.stream,
        };
    match &behaviour.fault {
        _ if status == 204 || status == 304 => return Body::empty(JSON, false),
        Fault::Empty(Empty::Body) => return Body::empty(JSON, false),
        Fault::Empty(Empty::Stream) => return Body::empty(if stream { SSE } else { JSON }, stream),
        Fault::Html => return Body::whole("text/html; charset=utf-8", page(status)),
        Fault::Redirect(_) => return Body::whole("text/plain; charset=utf-8", "moved\n".to_owned()),
        _ => {}
    }
    if let Some(body) = &behaviour.body {
        let json = body.trim_start().starts_with(['{', '[']);
        let stream = stream && !json;
        return Body { stream, ..Body::whole(if stream { SSE } else { JSON }, body.clone()) };
    }
    let say = Say::new(ask, behaviour, number);
    let error = &behaviour.error;
    match behaviour.broken.map(|broken| broken.how).filter(|_| !stream) {
        _ if status >= 400 => return Body::whole(JSON, dialect::error_body(route, status, error, number).to_string()),
        Some(How::Failed) if route == Route::Responses => {
            let failed = dialect::failed(&say, standing_for(route, behaviour), error);
            return Body::whole(JSON, failed.to_string());
        }
        Some(How::Error | How::Failed) => {
            let behind_200 = dialect::error_body(route, standing_for(route, behaviour), error, number);
            return Body::whole(JSON, behind_200.to_string());
        }
        _ => {}
    }
    if stream {
        return Body { content_type: SSE, stream, pieces: events(route, ask, behaviour, &say) };
    }
    let mut value = dialect::whole(route, ask, &say, models);
    if behaviour.fault == Fault::Drift {
        dialect::drift(&mut value);
    }
    Body::whole(JSON, value.to_string())
}

/// The status that an error object behind a 200 stands for: by default the one its protocol has for an overload.
fn standing_for(route: Route, behaviour: &Behaviour) -> u16 {
    behaviour.error.standing_for.unwrap_or(if route.anthropic() { 529 } else { 503 })
}

fn page(status: u16) -> String {
    let title = format!("{status} from a proxy in between");
    format!("<!DOCTYPE html>\n<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>\n")
}

fn events(route: Route, ask: &Ask, behaviour: &Behaviour, say: &Say) -> Vec<Piece> {
    let mut events = dialect::events(route, ask, say);
    match behaviour.fault {
        Fault::NoDone => events.retain(|event| event.part != Part::Terminal),
        Fault::NoFinish => events.retain(|event| !matches!(event.part, Part::Finish | Part::Terminal)),
        Fault::DoubleDone => {
            let again: Vec<_> = events.iter().filter(|event| event.part == Part::Terminal).cloned().collect();
            events.extend(again);
        }
        Fault::Drift => {
            let first = events.iter().position(|event| event.part == Part::Content).unwrap_or(0);
            if let Some(event) = events.get_mut(first) {
                dialect::drift(&mut event.data);
            }
        }
        _ => {}
    }
    let piece = |event: dialect::Event| Piece {
        content: event.part == Part::Content,
        damaged: event.bytes(true),
        bytes: event.bytes(false),
    };
    let mut pieces: Vec<Piece> = events.into_iter().map(piece).collect();
    if let (Fault::Torn, Some(last)) = (&behaviour.fault, pieces.last_mut()) {
        last.bytes.pop();
        last.bytes.pop();
    }
    pieces
}

/// What is left of a body after its break.
struct Cut {
    pieces: Vec<Vec<u8>>,
    tail: Option<Step>,
    /// A whole answer that breaks: the part of it that is sent, of 2.
    halves: usize,
}

fn break_off(route: Route, ask: &Ask, behaviour: &Behaviour, body: Body, number: u64) -> Cut {
    let stream = body.stream;
    let mut pieces = body.pieces;
    let all = |pieces: Vec<Piece>| pieces.into_iter().map(|piece| piece.bytes).collect::<Vec<_>>();
    let Some(Break { at, how }) = behaviour.broken.filter(|broken| !matches!(broken.at, Point::Head | Point::Bytes(_)))
    else {
        return Cut { pieces: all(pieces), tail: None, halves: 2 };
    };
    let index = place(&pieces, at);
    match how {
        How::Malformed => {
            let index = index.min(pieces.len().saturating_sub(1));
            if let Some(piece) = pieces.get_mut(index) {
                piece.bytes = std::mem::take(&mut piece.damaged);
            }
            Cut { pieces: all(pieces), tail: None, halves: 2 }
        }
        How::Error | How::Failed if stream => {
            pieces.truncate(index);
            let status = standing_for(route, behaviour);
            let event = match (how, route) {
                (How::Failed, Route::Responses) => {
                    dialect::failed_event(&Say::new(ask, behaviour, number), status, &behaviour.error, index)
                }
                _ => dialect::error_event(route, status, &behaviour.error, index),
            };
            let mut left = all(pieces);
            left.push(event.bytes(false));
            Cut { pieces: left, tail: None, halves: 2 }
        }
        How::Error | How::Failed => Cut { pieces: all(pieces), tail: None, halves: 2 },
        _ if stream => {
            pieces.truncate(index);
            Cut { pieces: all(pieces), tail: Some(tail(route, behaviour, how, stream)), halves: 2 }
        }
        // A whole answer is one piece: it breaks after its head or in its middle.
        _ => {
            let halves = usize::from(!matches!(at, Point::Events(0) | Point::Content(0)));
            Cut { pieces: all(pieces), tail: Some(tail(route, behaviour, how, stream)), halves }
        }
    }
}

/// The index of the first piece that a break keeps back.
fn place(pieces: &[Piece], at: Point) -> usize {
    let contents = || pieces.iter().enumerate().filter(|(_, piece)| piece.content).map(|(index, _)| index);
    match at {
        Point::Events(count) => count.min(pieces.len()),
        // Before any content, yet after the openers; without contents that is before everything.
        Point::Content(0) => contents().next().unwrap_or(0),
        Point::Content(count) => contents().nth(count - 1).map_or(pieces.len(), |index| index + 1),
        Point::Head | Point::Bytes(_) => pieces.len(),
    }
}

/// How the broken answer goes on.
fn tail(route: Route, behaviour: &Behaviour, how: How, stream: bool) -> Step {
    let gap = Duration::from_millis(if behaviour.gap_ms > 0 { behaviour.gap_ms } else { 100 });
    match how {
        How::Stall | How::Error | How::Failed | How::Malformed => Step::Stall,
        How::Close => Step::End(Ending::Close),
        How::Reset => Step::End(Ending::Reset),
        // Providers that keep a whole answer's connection busy do it with whitespace, which JSON allows.
        How::Comments | How::Pings if !stream => Step::Repeat(Bytes::from_static(b"\n"), gap),
        How::Comments | How::Pings => Step::Repeat(dialect::ping(route, how == How::Comments).into(), gap),
    }
}

/// Line ends and byte order mark.
fn frame(pieces: &mut [Vec<u8>], behaviour: &Behaviour, stream: bool) {
    if !stream {
        return;
    }
    let line: &[u8] = match behaviour.line {
        LineEnd::Lf => b"\n",
        LineEnd::CrLf => b"\r\n",
        LineEnd::Cr => b"\r",
    };
    for piece in pieces.iter_mut() {
        *piece = piece.split(|byte| *byte == b'\n').collect::<Vec<_>>().join(line);
    }
    if let (true, Some(first)) = (behaviour.bom, pieces.first_mut()) {
        first.splice(0..0, *b"\xef\xbb\xbf");
    }
}

/// Each piece is flushed, so that a compressed stream still arrives event by event.
fn compress(pieces: &mut Vec<Vec<u8>>, gzip: Gzip, ends: bool) {
    if !matches!(gzip, Gzip::On | Gzip::Bare) {
        return;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let mut done = Vec::with_capacity(pieces.len() + 1);
    for piece in pieces.iter() {
        // Writing to memory cannot fail.
        let _ = encoder.write_all(piece).and_then(|()| encoder.flush());
        done.push(std::mem::take(encoder.get_mut()));
    }
    if ends {
        done.push(encoder.finish().unwrap_or_default());
    }
    *pieces = done;
}

/// Keeps the first `most` bytes.
fn keep(pieces: &mut Vec<Vec<u8>>, most: usize) {
    let mut left = most;
    for piece in pieces.iter_mut() {
        piece.truncate(left);
        left -= piece.len();
    }
    pieces.retain(|piece| !piece.is_empty());
}

fn chunks(pieces: Vec<Vec<u8>>, chunk: Chunk) -> Vec<Bytes> {
    let chunks: Vec<Bytes> = match chunk {
        Chunk::Event => pieces.into_iter().map(Bytes::from).collect(),
        Chunk::Whole => vec![pieces.concat().into()],
        Chunk::Bytes(size) => pieces.concat().chunks(size.max(1)).map(Bytes::copy_from_slice).collect(),
    };
    // An empty chunk would end a chunked body.
    chunks.into_iter().filter(|chunk| !chunk.is_empty()).collect()
}

fn headers(route: Route, behaviour: &Behaviour, body: &Body, status: u16, number: u64) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    let mut add = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
    match behaviour.content_type.as_deref() {
        Some("") => {}
        Some(other) => add("content-type", other),
        None => add("content-type", body.content_type),
    }
    if body.stream {
        add("cache-control", "no-cache");
    }
    if matches!(behaviour.gzip, Gzip::On | Gzip::Header) {
        add("content-encoding", "gzip");
    }
    let id = format!("req_mock{number}");
    if route.anthropic() {
        add("request-id", &id)
    } else {
        add("x-request-id", &id)
    }
    if let Fault::Redirect(to) = &behaviour.fault {
        add("location", to);
    }
    let now = SystemTime::now();
    if let (true, Some(value)) = (status >= 400, &behaviour.retry_after) {
        add("retry-after", &date::resolved(value, now));
    }
    for (name, value) in &behaviour.headers {
        add(name, &date::resolved(value, now));
    }
    headers
}

#[cfg(test)]
mod tests {
    use surefoot_core::rng::Rng;

    use super::*;
    use crate::mock::DIRECTIVES;

    const ROUTES: [Route; 8] = [
        Route::Chat,
        Route::Responses,
        Route::Messages,
        Route::CountTokens,
        Route::Embeddings,
        Route::Images(true),
        Route::Models,
        Route::Unknown,
    ];

    /// Three words of the table, joined; `None` where they exclude each other.
    fn drawn(rng: &mut Rng) -> Option<Behaviour> {
        let words: Vec<&str> = DIRECTIVES.iter().flat_map(|(_, rows)| rows.iter()).map(|row| row.example).collect();
        let place = ["", "-after=0", "-after=2", "-after=1c", "-after=99", "-at=0", "-at=70"];
        let mut word = || {
            let word = words[rng.below(words.len() as u32) as usize];
            if word.contains("huge") {
                "huge=500".to_owned()
            } else {
                format!("{word}{}", place[rng.below(7) as usize])
            }
        };
        Behaviour::parse(&format!("{}, {}, {}", word(), word(), word())).ok()
    }

    #[test]
    fn whatever_is_told_the_promised_length_is_kept_unless_the_answer_breaks() {
        let mut rng = Rng::new(1);
        let (mut answers, mut promised) = (0, 0);
        while answers < 5000 {
            let Some(behaviour) = drawn(&mut rng) else { continue };
            let ask = Ask { model: "m".to_owned(), stream: rng.below(2) == 1, n: 2, ..Ask::default() };
            let route = ROUTES[rng.below(8) as usize];
            let answer = compose(route, &ask, &behaviour, 1, &["m".to_owned()]);
            answers += 1;
            let sent = |step: &Step| if let Step::Send(bytes) = step { bytes.len() } else { 0 };
            let sent: usize = answer.body.iter().map(sent).sum();
            let breaks = !matches!(answer.body.last(), None | Some(Step::Send(_) | Step::Wait(_)));
            let length = answer.head.headers.iter().find(|(name, _)| name == "content-length");
            if let Some(length) = length.and_then(|(_, length)| length.parse::<usize>().ok()) {
                promised += 1;
                assert!(if breaks { sent <= length } else { sent == length }, "{route:?} {behaviour}");
            }
        }
        assert!(promised > 1000);
    }
}
