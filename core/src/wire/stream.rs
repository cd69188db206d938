//! The reader of a stream: bytes in, whole events out, with what they mean in their protocol.

use alloc::boxed::Box;

use super::facts::{Class, Memory, is_done};
use super::json::{self, Bad, Parsed};
use super::sse::{Scanned, Scanner};
use super::{Event, Format, Kind, chat, error, images, messages, responses};

/// Reads one stream. Bytes go in by slices, in any chunking; the events that come out are the same in each (X2).
///
/// One detail depends on the chunks: [`Event::end`] of an event whose blank line is a CR at the end of a slice lies
/// before the LF that may follow, because the event is not held back for it. [`StreamReader::whole`] takes the LF in as
/// soon as it comes, and [`StreamReader::line_feed_sure`] tells that it will.
#[derive(Clone, Debug)]
pub struct StreamReader {
    format: Format,
    scanner: Scanner,
    memory: Memory,
    any_event: bool,
    closing: &'static [u8],
}

impl StreamReader {
    /// A reader at the beginning of a stream of `format`.
    pub fn new(format: Format) -> Self {
        StreamReader { format, scanner: Scanner::new(), memory: Memory::default(), any_event: false, closing: b"" }
    }

    /// Consumes from `input` until one more event is whole; `None` once the slice is used up.
    ///
    /// Blocks without data are events of kind [`Kind::Opener`]. After a terminal, an error or an oversized event nothing
    /// comes any more: the rest is consumed and dropped (M5).
    pub fn next(&mut self, input: &mut &[u8]) -> Option<Event> {
        let event = match self.scanner.scan(input)? {
            Scanned::Oversized(end) => {
                let from = self.scanner.whole();
                return Some(Event { from, end, kind: Kind::Oversized, terminal: false });
            }
            Scanned::Block(block) => {
                self.any_event |= block.data.is_some();
                let (kind, terminal) = match block.data {
                    Some(data) => understand(self.format, block.name, data, &mut self.memory),
                    None => (Kind::Opener, false),
                };
                Event { from: block.from, end: block.end, kind, terminal }
            }
        };
        if event.terminal {
            self.scanner.stop();
        }
        Some(event)
    }

    /// At the end of the stream: its last event if only the blank line is missing and its data is whole: `[DONE]` or
    /// JSON (M5). A torn one is dropped.
    pub fn finish(&mut self) -> Option<Event> {
        let (block, closing) = self.scanner.close()?;
        let data = block.data.filter(|data| is_done(data) || json::is_valid(data))?;
        let (kind, terminal) = understand(self.format, block.name, data, &mut self.memory);
        let (from, end) = (block.from, block.end);
        self.any_event = true;
        self.closing = closing;
        self.scanner.accept();
        Some(Event { from, end, kind, terminal })
    }

    /// The line ends that close the event which [`StreamReader::finish`] told; empty when there was none.
    pub fn closing(&self) -> &'static [u8] {
        self.closing
    }

    /// The offset up to which everything is whole events: what may be forwarded.
    pub fn whole(&self) -> u64 {
        self.scanner.whole()
    }

    /// Bytes consumed.
    pub fn offset(&self) -> u64 {
        self.scanner.offset()
    }

    /// Whether the last event's blank line ended in a CR at the very end of the bytes so far, and by the line ends before
    /// an LF is on its way that still belongs to it, after a terminal event too.
    pub fn line_feed_sure(&self) -> bool {
        self.scanner.line_feed_sure()
    }

    /// Whether there was an event: a block with a `data` field, be it empty. Comments alone are an empty stream (M5).
    pub fn any_event(&self) -> bool {
        self.any_event
    }

    /// Whether the end of the stream here is a good end (M5).
    pub fn complete(&self) -> bool {
        match self.format {
            Format::Chat => chat::complete(&self.memory),
            Format::Responses | Format::Messages => self.memory.ended,
            _ => true,
        }
    }

    /// Tokens used in all, as far as the stream has told.
    pub fn tokens(&self) -> Option<u32> {
        self.memory.usage.tokens()
    }

    /// The `sequence_number` of an event of our own in a Responses stream: one more than the last seen, else 0.
    pub fn next_sequence(&self) -> u64 {
        self.memory.next_sequence
    }

    /// Why the whole answer is a silent failure that is delivered and counted: `no_output`, `no_usage` (M3).
    pub fn silent(&self) -> Option<&'static str> {
        if self.memory.no_output { Some("no_output") } else { self.memory.usage.is_all_zero().then_some("no_usage") }
    }
}

/// What an event with data means. `memory` is only changed by an event that can be read.
fn understand(format: Format, name: &[u8], data: &[u8], memory: &mut Memory) -> (Kind, bool) {
    let mut after = *memory;
    let read = if name == b"error" { Ok(Class::Error) } else { classify(format, name, data, &mut after) };
    let fact = match read {
        Ok(class) => {
            *memory = after;
            match class {
                Class::Opener => return (Kind::Opener, false),
                Class::Content => return (Kind::Content, false),
                Class::PlainStop => return (Kind::PlainStop, false),
                Class::Stop(terminal) => return (Kind::Stop, terminal),
                Class::Last => return (Kind::Last, true),
                Class::EarlyDone => return (Kind::EarlyDone, false),
                Class::Error => error::of_event(format.dialect(), data),
            }
        }
        // F10: an error is looked for first, in shapes that no protocol has, too: a list around it, a drifted neighbour.
        Err(bad) => match error::in_document(format.dialect(), data) {
            Some(fact) => fact,
            None if bad == Bad::Syntax && is_foreign(name) && json::is_valid(data) => return (Kind::Opener, false),
            None => return (Kind::Malformed, false),
        },
    };
    // An image stream has no end of its own, so an error is none of it either.
    let terminal = matches!(format, Format::Chat | Format::Responses | Format::Messages);
    memory.ended = terminal;
    (Kind::Error(Box::new(fact)), terminal)
}

fn classify(format: Format, name: &[u8], data: &[u8], memory: &mut Memory) -> Parsed<Class> {
    if data.is_empty() {
        return Ok(Class::Opener);
    }
    match format {
        Format::Chat => chat::read(data, memory),
        Format::Responses => responses::read(name, data, memory),
        Format::Messages => messages::read(name, data, memory),
        Format::Images | Format::Embeddings | Format::CountTokens | Format::Raw => Ok(images::read(data)),
    }
}

/// Whether an event has a name of its own: a bare number or text in it is no drifted chunk.
fn is_foreign(name: &[u8]) -> bool {
    !name.is_empty() && name != b"message"
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
