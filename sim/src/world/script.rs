//! One exchange with an upstream: what will come over the wire and when, and what is true about it.

use std::collections::VecDeque;

use bytes::Bytes;
use surefoot_core::event::{Fault, Head, Input};
use surefoot_core::id::AttemptNo;
use surefoot_core::outcome::Outcome;
use surefoot_core::time::{Span, Time};
use surefoot_core::wire::{Header, is_relevant_header};

use super::speech::{Part, Piece};
use super::trouble::Trouble;
use crate::rng::Stream;

/// Wall clock at the world's origin, milliseconds of the Unix epoch.
pub const EPOCH_MS: u64 = 1_760_000_000_000;

/// What an upstream is going to do with one request.
#[derive(Clone, Debug)]
pub struct Script {
    /// What is wrong with it.
    pub trouble: Trouble,
    /// Since the attempt's start.
    pub opens_after: Span,
    /// How it begins.
    pub opening: Opening,
    /// The body, each piece so long after the one before.
    pub pieces: Vec<(Span, Piece)>,
    /// Since the last piece.
    pub closes_after: Span,
    /// How it ends.
    pub close: Close,
    /// What a reader of all of it must come to.
    pub fate: Fate,
    /// The wait that its head asks for, as a range: some spellings are coarse.
    pub hint: Option<(Span, Span)>,
    /// It speaks of overload or rate limits.
    pub overload: bool,
}

/// How an exchange begins.
#[derive(Clone, Debug)]
pub enum Opening {
    /// With a head.
    Head(u16, Vec<(&'static str, String)>),
    /// It breaks first.
    Fault(Fault),
    /// Nothing ever comes.
    Never,
}

/// How an exchange ends.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Close {
    /// In order.
    Clean,
    /// It breaks.
    Fault(Fault),
    /// Nothing more ever comes.
    Never,
}

/// What a reader of the whole exchange must come to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A good answer.
    Good,
    /// A good answer that is not the JSON asked for.
    Unstructured,
    /// No content and a plain stop.
    Empty,
    /// A failure before anything could be delivered.
    Fails(Outcome),
    /// A failure after content went out.
    Breaks(Outcome),
    /// Silence.
    Silent,
}

/// What stays known of an exchange after its steps are spent.
#[derive(Clone, Debug)]
pub struct Truth {
    /// What was wrong.
    pub trouble: Trouble,
    /// What a reader must come to.
    pub fate: Fate,
    /// The status of its head.
    pub status: Option<u16>,
    /// What the adapter hands on of its headers.
    pub headers: Vec<Header>,
    /// See [`Script::hint`].
    pub hint: Option<(Span, Span)>,
    /// See [`Script::overload`].
    pub overload: bool,
    /// Every byte of the body.
    pub body: Bytes,
    /// Where each piece ends, and what it is.
    pub ends: Vec<(usize, Part)>,
    /// When it began.
    pub started: Time,
    /// When the first byte of the body comes; never for one without.
    pub first_byte: Time,
    /// The longest silence between pieces, the end included.
    pub longest_gap: Span,
    /// When it ends by itself; never if it does not.
    pub closes: Time,
}

impl Truth {
    /// It is good but for words that a rule refuses.
    pub fn trouble_is_words(&self) -> bool {
        self.trouble == Trouble::RefusedWords
    }
}

/// One thing that comes over the wire.
#[derive(Clone, Debug)]
pub enum Step {
    /// The head.
    Head(Head),
    /// Bytes of the body.
    Chunk(Bytes),
    /// The body is over.
    End,
    /// It broke.
    Fault(Fault),
}

impl Step {
    /// The input that it is for a call.
    pub fn into_input(self, attempt: AttemptNo) -> Input {
        match self {
            Step::Head(head) => Input::Head { attempt, head },
            Step::Chunk(bytes) => Input::Chunk { attempt, bytes },
            Step::End => Input::End { attempt },
            Step::Fault(fault) => Input::Fault { attempt, fault },
        }
    }
}

/// How bodies are cut into chunks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Chunking {
    /// One chunk a piece.
    Pieces,
    /// Pieces that come at the same time together, and cuts anywhere.
    Anywhere,
    /// Byte by byte.
    Bytes,
}

impl Script {
    /// The steps with their times, and the truth.
    pub fn play(self, start: Time, chunking: Chunking, stream: &mut Stream) -> (VecDeque<(Time, Step)>, Truth) {
        let mut steps = VecDeque::with_capacity(self.pieces.len() + 2);
        let mut at = start.after(self.opens_after);
        let mut truth = Truth {
            trouble: self.trouble,
            fate: self.fate,
            status: None,
            headers: Vec::new(),
            hint: self.hint,
            overload: self.overload,
            body: Bytes::new(),
            ends: Vec::with_capacity(self.pieces.len()),
            started: start,
            first_byte: Time::NEVER,
            longest_gap: Span::ZERO,
            closes: Time::NEVER,
        };
        match self.opening {
            Opening::Never => return (steps, truth),
            Opening::Fault(fault) => {
                steps.push_back((at, Step::Fault(fault)));
                truth.closes = at;
                return (steps, truth);
            }
            Opening::Head(status, headers) => {
                truth.status = Some(status);
                let headers = headers.into_iter().filter(|(name, _)| is_relevant_header(name));
                let headers: Vec<Header> = headers.map(|(name, value)| (name.into(), value.into())).collect();
                truth.headers.clone_from(&headers);
                let head = Head { status, headers, unix_ms: EPOCH_MS + at.0 / 1000 };
                steps.push_back((at, Step::Head(head)));
            }
        }
        let mut body = Vec::with_capacity(self.pieces.iter().map(|(_, piece)| piece.bytes.len()).sum());
        let mut times = Vec::with_capacity(self.pieces.len());
        for (gap, piece) in &self.pieces {
            at = at.after(*gap);
            if !body.is_empty() {
                truth.longest_gap = truth.longest_gap.max(*gap);
            } else if !piece.bytes.is_empty() {
                truth.first_byte = at;
            }
            body.extend_from_slice(&piece.bytes);
            truth.ends.push((body.len(), piece.part));
            times.push((at, body.len()));
        }
        truth.body = body.into();
        cut(&truth.body, &times, chunking, stream, &mut steps);
        at = at.after(self.closes_after);
        truth.longest_gap = truth.longest_gap.max(self.closes_after);
        match self.close {
            Close::Clean => steps.push_back((at, Step::End)),
            Close::Fault(fault) => steps.push_back((at, Step::Fault(fault))),
            Close::Never => {
                truth.longest_gap = Span::MAX;
                return (steps, truth);
            }
        }
        truth.closes = at;
        (steps, truth)
    }
}

/// Cuts a body into chunks. No byte comes before its piece's time.
fn cut(
    body: &Bytes,
    times: &[(Time, usize)],
    chunking: Chunking,
    stream: &mut Stream,
    steps: &mut VecDeque<(Time, Step)>,
) {
    let mut from = 0;
    let mut at_piece = 0;
    while from < body.len() {
        while times[at_piece].1 <= from {
            at_piece += 1;
        }
        let (time, end) = times[at_piece];
        let to = match chunking {
            Chunking::Pieces => end,
            Chunking::Bytes if body.len() < 4096 => from + 1,
            Chunking::Bytes => (from + 97).min(end),
            Chunking::Anywhere => {
                // As far as the bytes of this moment go.
                let together = times[at_piece..].iter().take_while(|(at, _)| *at == time).last();
                let last = together.map_or(end, |(_, end)| *end);
                let most = last - from;
                if stream.chance(600_000) { last } else { from + 1 + stream.below(most as u64) as usize }
            }
        };
        steps.push_back((time, Step::Chunk(body.slice(from..to))));
        from = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Concern;

    #[test]
    fn any_cutting_gives_the_same_bytes_in_the_same_order_of_time() {
        let piece = |text: &str| Piece { bytes: text.as_bytes().to_vec(), part: Part::Content };
        let script = Script {
            trouble: Trouble::None,
            opens_after: Span(10),
            opening: Opening::Head(200, vec![("content-type", "x".into()), ("server", "y".into())]),
            pieces: vec![(Span(0), piece("abc")), (Span(0), piece("defg")), (Span(5), piece("hi"))],
            closes_after: Span(2),
            close: Close::Clean,
            fate: Fate::Good,
            hint: None,
            overload: false,
        };
        for chunking in [Chunking::Pieces, Chunking::Anywhere, Chunking::Bytes] {
            let mut stream = Stream::new(3, Concern::Chunks, 0, 0);
            let (steps, truth) = script.clone().play(Time(100), chunking, &mut stream);
            let bytes: Vec<u8> = steps
                .iter()
                .filter_map(|(_, step)| match step {
                    Step::Chunk(bytes) => Some(bytes.to_vec()),
                    _ => None,
                })
                .flatten()
                .collect();
            assert_eq!(bytes, b"abcdefghi");
            assert!(steps.iter().zip(steps.iter().skip(1)).all(|(a, b)| a.0 <= b.0));
            assert_eq!((truth.first_byte, truth.longest_gap, truth.closes), (Time(110), Span(5), Time(117)));
            assert_eq!(truth.ends.iter().map(|(end, _)| *end).collect::<Vec<_>>(), [3, 7, 9]);
            assert!(matches!(&steps[0], (Time(110), Step::Head(head)) if head.headers.len() == 1));
        }
    }
}
