//! The scanner of event streams, by the WHATWG algorithm (X2), in any chunking.
//!
//! It tells where events end and what their data is, and leaves the bytes where they are: forwarding is the upstream's
//! own bytes. An event that lies in one chunk with one data line is read in place; only what spans chunks or has several
//! data lines is put together in a scratch buffer, which is kept for the next one unless it has grown large.

use alloc::vec::Vec;
use memchr::memchr2;

/// An event of more bytes than this is [`Scanned::Oversized`] (X2): 16 MiB, from its first byte to its blank line.
pub const MAX_EVENT_BYTES: u64 = 16 << 20;

/// A scratch buffer larger than this is given back after its event: thousands of held streams must stay small.
const KEPT_SCRATCH_BYTES: usize = 16 << 10;

const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];

/// What stands before a blank line.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// The value of its last `event` field; empty when there is none. Cut to 64 bytes: longer names are unknown anyway.
    pub name: &'a [u8],
    /// Its data lines joined by line feeds; `None` when it has none, so that nothing is dispatched.
    pub data: Option<&'a [u8]>,
    /// The offset of its first byte: behind the blank line before it, its late LF included.
    pub from: u64,
    /// The offset just behind its blank line.
    pub end: u64,
}

/// One step of the scanner.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Scanned<'a> {
    /// A blank line came.
    Block(Block<'a>),
    /// The event is beyond [`MAX_EVENT_BYTES`]; the offset where that was seen. Nothing comes after it.
    Oversized(u64),
}

/// Whether a CR ended the bytes so far: the LF that may follow is the second half of that line end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum AfterCr {
    No,
    /// The CR ended a field's line.
    Line,
    /// The CR ended a blank line: the event is out already, never held back for an LF that may not come.
    Blank,
}

/// The scanner: feed it slices, it yields blocks.
#[derive(Clone, Debug)]
pub struct Scanner {
    offset: u64,
    whole: u64,
    after_cr: AfterCr,
    /// Whether the last line with something in it ended in CRLF.
    crlf: bool,
    /// How many bytes of a leading byte order mark have matched; 3 once past it.
    bom: usize,
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    /// Data lines that can not be read in place: from `data_from` on, joined by line feeds.
    data: Vec<u8>,
    data_from: usize,
    has_data: bool,
    name: [u8; 64],
    name_len: usize,
    /// The block is out; what it left is cleared by the next step, for the caller still borrows it.
    spent: bool,
    stopped: bool,
}

impl Default for Scanner {
    fn default() -> Self {
        Scanner::new()
    }
}

impl Scanner {
    /// A scanner at the beginning of a stream.
    pub const fn new() -> Scanner {
        Scanner {
            offset: 0,
            whole: 0,
            after_cr: AfterCr::No,
            crlf: false,
            bom: 0,
            line: Vec::new(),
            data: Vec::new(),
            data_from: 0,
            has_data: false,
            name: [0; 64],
            name_len: 0,
            spent: false,
            stopped: false,
        }
    }

    /// Bytes consumed.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The offset up to which everything is whole events; it grows by one when the LF of a split CRLF comes late.
    pub const fn whole(&self) -> u64 {
        self.whole
    }

    /// Whether the last block's blank line ended in a CR at the end of its slice: an LF as next byte still belongs to it.
    pub fn line_feed_due(&self) -> bool {
        self.after_cr == AfterCr::Blank
    }

    /// Whether that LF is surely on its way: the lines before ended in CRLF.
    pub fn line_feed_sure(&self) -> bool {
        self.crlf && self.line_feed_due()
    }

    /// Nothing after this is looked at: the rest is only counted.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.spent = true;
    }

    /// Consumes from `input` up to the next blank line; `None` when the slice is used up first.
    pub fn scan<'s, 'i: 's>(&'s mut self, input: &mut &'i [u8]) -> Option<Scanned<'s>> {
        self.renew();
        self.lead_in(input);
        if self.stopped {
            let rest = input.len();
            self.eat(input, rest);
            return None;
        }
        let bytes = *input;
        let room = MAX_EVENT_BYTES.saturating_sub(self.offset - self.whole);
        let limit = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
        let mut in_place: Option<&'i [u8]> = None;
        let mut at = 0;
        while let Some(length) = memchr2(b'\n', b'\r', bytes.get(at..limit).unwrap_or_default()) {
            let end = at + length;
            let piece = bytes.get(at..end).unwrap_or_default();
            let cr = bytes.get(end) == Some(&b'\r');
            at = end + 1;
            let blank = piece.is_empty() && self.line.is_empty();
            let pair = cr && bytes.get(at) == Some(&b'\n');
            if pair {
                at += 1;
            } else if cr && at == bytes.len() {
                self.after_cr = if blank { AfterCr::Blank } else { AfterCr::Line };
            }
            if !blank {
                self.crlf = pair;
            }
            if blank {
                self.eat(input, at);
                return Some(Scanned::Block(self.dispatch(in_place)));
            }
            if self.line.is_empty() {
                self.take_line(piece, &mut in_place);
            } else {
                self.line.extend_from_slice(piece);
                self.take_held_line(&mut in_place);
            }
        }
        if let Some(value) = in_place {
            self.append(value);
        }
        let seen = limit.max(at.min(bytes.len()));
        self.line.extend_from_slice(bytes.get(at..limit).unwrap_or_default());
        self.eat(input, seen);
        if seen == bytes.len() {
            return None;
        }
        self.stop();
        Some(Scanned::Oversized(self.offset))
    }

    /// At the end of the stream: the last event without its blank line, if it has data, and what would close it.
    ///
    /// Whether it counts is the caller's decision ([`Scanner::accept`]); nothing else comes after it.
    pub fn close(&mut self) -> Option<(Block<'_>, &'static [u8])> {
        self.renew();
        if self.stopped {
            return None;
        }
        // A line feed after a CR would only complete its line end.
        let closing: &[u8] = if self.line.is_empty() && self.after_cr == AfterCr::No { b"\n" } else { b"\n\n" };
        if !self.line.is_empty() {
            self.take_held_line(&mut None);
        }
        self.stopped = true;
        self.has_data.then(|| (self.block(None, self.whole), closing))
    }

    /// Counts the event that [`Scanner::close`] told as a whole one.
    pub fn accept(&mut self) {
        self.whole = self.offset;
        self.spent = true;
    }

    fn eat(&mut self, input: &mut &[u8], count: usize) {
        self.offset += count as u64;
        *input = input.get(count..).unwrap_or_default();
    }

    /// Clears what the last block left.
    fn renew(&mut self) {
        if !core::mem::take(&mut self.spent) {
            return;
        }
        self.has_data = false;
        self.name_len = 0;
        for scratch in [&mut self.line, &mut self.data] {
            scratch.clear();
            if scratch.capacity() > KEPT_SCRATCH_BYTES {
                *scratch = Vec::new();
            }
        }
    }

    /// What may stand before a line: the LF of a split CRLF, the byte order mark of the stream.
    fn lead_in(&mut self, input: &mut &[u8]) {
        if self.after_cr != AfterCr::No
            && let Some(first) = input.first()
        {
            let blank = core::mem::replace(&mut self.after_cr, AfterCr::No) == AfterCr::Blank;
            if *first == b'\n' {
                self.eat(input, 1);
                self.whole = if blank { self.offset } else { self.whole };
                self.crlf |= !blank;
            }
        }
        while self.bom < BOM.len()
            && let Some(byte) = input.first()
        {
            if BOM.get(self.bom) == Some(byte) {
                self.bom += 1;
                self.eat(input, 1);
            } else {
                self.line.extend_from_slice(BOM.get(..self.bom).unwrap_or_default());
                self.bom = BOM.len();
            }
        }
    }

    /// Reads a line of the slice.
    fn take_line<'i>(&mut self, line: &'i [u8], in_place: &mut Option<&'i [u8]>) {
        match field(line) {
            Field::Data(from) => {
                let value = line.get(from..).unwrap_or_default();
                if !self.has_data {
                    self.has_data = true;
                    self.data.clear();
                    self.data_from = 0;
                    *in_place = Some(value);
                    return;
                }
                if let Some(first) = in_place.take() {
                    self.append(first);
                }
                self.data.push(b'\n');
                self.append(value);
            }
            Field::Event(from) => set_name(&mut self.name, &mut self.name_len, line.get(from..).unwrap_or_default()),
            Field::Other => {}
        }
    }

    /// Reads the line in the scratch buffer.
    fn take_held_line(&mut self, in_place: &mut Option<&[u8]>) {
        match field(&self.line) {
            Field::Data(from) if !self.has_data => {
                self.has_data = true;
                core::mem::swap(&mut self.line, &mut self.data);
                self.data_from = from;
            }
            Field::Data(from) => {
                if let Some(first) = in_place.take() {
                    self.append(first);
                }
                self.data.push(b'\n');
                self.data.extend_from_slice(self.line.get(from..).unwrap_or_default());
            }
            Field::Event(from) => {
                set_name(&mut self.name, &mut self.name_len, self.line.get(from..).unwrap_or_default());
            }
            Field::Other => {}
        }
        self.line.clear();
    }

    fn append(&mut self, value: &[u8]) {
        self.data.extend_from_slice(value);
    }

    fn dispatch<'s, 'i: 's>(&'s mut self, in_place: Option<&'i [u8]>) -> Block<'s> {
        let from = core::mem::replace(&mut self.whole, self.offset);
        self.spent = true;
        self.block(in_place, from)
    }

    fn block<'s, 'i: 's>(&'s self, in_place: Option<&'i [u8]>, from: u64) -> Block<'s> {
        let held = || self.data.get(self.data_from..).unwrap_or_default();
        Block {
            name: self.name.get(..self.name_len).unwrap_or_default(),
            data: self.has_data.then(|| in_place.unwrap_or_else(held)),
            from,
            end: self.offset,
        }
    }
}

/// A line's field, and where its value begins.
enum Field {
    Data(usize),
    Event(usize),
    Other,
}

#[inline]
fn field(line: &[u8]) -> Field {
    let value_from = |name: usize| match line.get(name..) {
        Some([b':', b' ', ..]) => Some(name + 2),
        Some([b':', ..]) => Some(name + 1),
        Some([]) => Some(name),
        _ => None,
    };
    if line.starts_with(b"data") {
        value_from(4).map_or(Field::Other, Field::Data)
    } else if line.starts_with(b"event") {
        value_from(5).map_or(Field::Other, Field::Event)
    } else {
        Field::Other
    }
}

fn set_name(name: &mut [u8; 64], length: &mut usize, value: &[u8]) {
    *length = value.len().min(name.len());
    for (slot, byte) in name.iter_mut().zip(value) {
        *slot = *byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use alloc::vec;
    use proptest::prelude::*;

    type Seen = (String, Option<String>, usize);

    /// The blocks of `bytes` fed in slices of the given sizes (the last one repeats), ends taken behind a late LF.
    fn blocks(bytes: &[u8], sizes: &[usize]) -> Vec<Seen> {
        let mut scanner = Scanner::new();
        let mut seen = Vec::new();
        let mut rest = bytes;
        let mut sizes = sizes.iter().copied();
        let mut size = bytes.len().max(1);
        while !rest.is_empty() {
            size = sizes.next().unwrap_or(size);
            let (mut slice, after) = rest.split_at(size.clamp(1, rest.len()));
            rest = after;
            while let Some(step) = scanner.scan(&mut slice) {
                let Scanned::Block(block) = step else { panic!("oversized") };
                let end = block.end as usize;
                let late = bytes.get(end - 1..=end) == Some(b"\r\n");
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_string();
                seen.push((text(block.name), block.data.map(text), end + usize::from(late)));
            }
            assert!(slice.is_empty());
        }
        assert_eq!(scanner.offset(), bytes.len() as u64);
        assert_eq!(scanner.whole(), seen.last().map_or(0, |last| last.2 as u64));
        seen
    }

    fn data(bytes: &[u8]) -> Vec<Option<String>> {
        blocks(bytes, &[]).into_iter().map(|block| block.1).collect()
    }

    fn some(words: &[&str]) -> Vec<Option<String>> {
        words.iter().map(|word| Some(word.to_string())).collect()
    }

    #[test]
    fn every_line_end_in_any_mix_ends_a_line() {
        for stream in [
            "data: a\n\ndata: b\n\n",
            "data: a\r\n\r\ndata: b\r\n\r\n",
            "data: a\r\rdata: b\r\r",
            "data: a\n\r\ndata: b\r\r\n",
        ] {
            assert_eq!(data(stream.as_bytes()), some(&["a", "b"]), "{stream:?}");
            assert_eq!(blocks(stream.as_bytes(), &[1]), blocks(stream.as_bytes(), &[]), "{stream:?}");
        }
    }

    #[test]
    fn fields_are_read_as_the_standard_says() {
        assert_eq!(data(b"data:a\n\ndata:  b\n\ndata\n\ndata:\n\n"), some(&["a", " b", "", ""]));
        assert_eq!(data(b" data: a\n\ndatax: a\n\ndata : a\n\nDATA: a\n\n"), vec![None; 4]);
        assert_eq!(data(b"data: {\nfoo: bar\nid: 1\n: c\ndata: }\ndata\n\n"), some(&["{\n}\n"]));
        assert_eq!(data(b": hi\n\nretry: 1\n\n\n"), vec![None; 3]);
    }

    #[test]
    fn the_last_event_name_counts_and_only_for_its_block() {
        let names: Vec<String> =
            blocks(b"event: a\nevent:b\ndata\n\ndata\n\nevent\ndata\n\n", &[]).into_iter().map(|b| b.0).collect();
        assert_eq!(names, ["b", "", ""]);
    }

    #[test]
    fn a_byte_order_mark_is_skipped_whole_or_split_and_only_at_the_start() {
        assert_eq!(data(b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n"), [Some("a".to_string()), None]);
        assert_eq!(blocks(b"\xef\xbb\xbfdata: a\n\n", &[1]), [(String::new(), Some("a".to_string()), 12)]);
        assert_eq!(data(b"\xef\xbbdata: a\n\n"), vec![None]);
    }

    #[test]
    fn a_blank_line_is_out_before_the_line_feed_of_its_carriage_return() {
        let mut scanner = Scanner::new();
        assert!(matches!(scanner.scan(&mut b"data: a\r\n\r".as_slice()), Some(Scanned::Block(Block { end: 10, .. }))));
        assert!(scanner.line_feed_due());
        assert_eq!(scanner.scan(&mut b"\n".as_slice()), None);
        assert_eq!((scanner.whole(), scanner.line_feed_due()), (11, false));
    }

    #[test]
    fn a_line_feed_that_comes_late_is_passed_on_after_the_stop_too() {
        let mut scanner = Scanner::new();
        assert!(scanner.scan(&mut b"data: a\r\r".as_slice()).is_some());
        scanner.stop();
        assert_eq!(scanner.scan(&mut b"\ndata: b\n\n".as_slice()), None);
        assert_eq!((scanner.whole(), scanner.offset()), (10, 19));
    }

    #[test]
    fn an_event_of_the_cap_passes_and_one_byte_more_does_not() {
        for (extra, chunk) in [(0, usize::MAX), (1, usize::MAX), (0, 1 << 20), (1, 1 << 20), (40, 4099)] {
            let mut stream = b"data: a\n\ndata: ".to_vec();
            stream.resize(9 + MAX_EVENT_BYTES as usize - 2 + extra, b'x');
            stream.extend_from_slice(b"\n\ndata: b\n\n");
            let mut scanner = Scanner::new();
            let mut ends = Vec::new();
            for mut slice in stream.chunks(chunk.min(stream.len())) {
                while let Some(step) = scanner.scan(&mut slice) {
                    ends.push(match step {
                        Scanned::Block(block) => Ok(block.end),
                        Scanned::Oversized(at) => Err(at),
                    });
                }
            }
            let cap = 9 + MAX_EVENT_BYTES;
            let wanted = if extra == 0 { vec![Ok(9), Ok(cap), Ok(cap + 9)] } else { vec![Ok(9), Err(cap)] };
            assert_eq!(ends, wanted, "{extra} {chunk}");
        }
    }

    #[test]
    fn a_large_scratch_is_given_back_once_the_slice_is_used_up() {
        let mut scanner = Scanner::new();
        let mut stream = b"data: ".to_vec();
        stream.resize(200_000, b'x');
        assert_eq!(scanner.scan(&mut stream.as_slice()), None);
        assert!(scanner.line.capacity() >= 200_000);
        let mut end = b"\n\n".as_slice();
        assert!(scanner.scan(&mut end).is_some());
        assert_eq!(scanner.scan(&mut end), None);
        assert!(scanner.line.capacity() + scanner.data.capacity() <= 2 * KEPT_SCRATCH_BYTES);
    }

    #[test]
    fn an_open_end_tells_its_data_and_what_closes_it() {
        let close = |stream: &[u8]| {
            let mut scanner = Scanner::new();
            let mut rest = stream;
            while scanner.scan(&mut rest).is_some() {}
            scanner
                .close()
                .map(|(block, closing)| (String::from_utf8_lossy(block.data.unwrap_or_default()).to_string(), closing))
        };
        assert_eq!(close(b"data: a\n\ndata: b"), Some(("b".to_string(), b"\n\n".as_slice())));
        assert_eq!(close(b"data: b\n"), Some(("b".to_string(), b"\n".as_slice())));
        assert_eq!(close(b"data: b\r"), Some(("b".to_string(), b"\n\n".as_slice())));
        assert_eq!(close(b"data: b\r\n"), Some(("b".to_string(), b"\n".as_slice())));
        assert_eq!([close(b"data: b\n\n"), close(b""), close(b"event: x\n"), close(b"\xef")], [None, None, None, None]);
    }

    proptest! {
        #[test]
        fn any_chunking_yields_the_same_blocks(
            pieces in proptest::collection::vec(prop_oneof![
                Just("data: {\"a\":1}"), Just("data:x"), Just("data"), Just("event: error"), Just(": c"), Just("é你🙂"), Just("\u{feff}"),
                Just("\n"), Just("\r"), Just("\r\n"), Just("\n\n"), Just("\r\r"), Just("\r\n\r\n"),
            ], 0..40),
            sizes in proptest::collection::vec(1_usize..12, 1..20),
        ) {
            let stream = pieces.concat();
            let whole = blocks(stream.as_bytes(), &[]);
            prop_assert_eq!(&blocks(stream.as_bytes(), &[1]), &whole);
            prop_assert_eq!(&blocks(stream.as_bytes(), &sizes), &whole);
        }
    }
}
