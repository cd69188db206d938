//! Redaction (X7): structure, lengths and the words that decide stay, every other text becomes `*`.
//!
//! The law that replay stands on: whatever the wire reads of an answer, it reads the same of the masked answer, except
//! for the few questions that only the text can answer (rules, phrases, quota sentences, the JSON asked for); their
//! verdicts are recorded beside it. So masking keeps
//!
//! - every byte's place, and with it chunk boundaries, window sizes and event ends;
//! - line ends and field names of event streams, JSON's structure, its validity and UTF-8's, white space outside strings;
//! - whether a string is empty, and how long it is once decoded and written again;
//! - keys, machine words and numbers along the known paths of the protocols ([`json`] has the list).
//!
//! A masker goes byte by byte and holds nothing back: its output does not depend on the chunking, a masked chunk is as
//! long as the chunk, and masking what is masked changes nothing.

mod json;
mod utf8;

pub(super) use json::{KNOWN, NUMBER, WORD, class_of};

use json::Json;
use utf8::Utf8;

/// The names of event stream fields; each has a first letter of its own.
const FIELDS: [&[u8]; 4] = [b"data", b"event", b"id", b"retry"];
const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];
/// Machine words longer than this are none. The scanner cuts event names here, too.
const MAX_WORD: u8 = 64;

/// What the next byte belongs to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing but white space has come.
    Lead,
    /// One JSON document.
    Document,
    /// So many bytes of this field's name.
    Name { field: usize, matched: usize },
    /// The beginning of a line.
    LineStart,
    /// The value of a `data` field.
    Data,
    /// The value of another field: a word of so many bytes at most.
    Word { left: u8, first: bool },
    /// The rest of a line that is text.
    Text,
}

/// Masks one body or stream.
#[derive(Clone, Debug)]
pub(super) struct Masker {
    place: Place,
    json: Json,
    utf8: Utf8,
    /// Bytes so far, up to the length of a byte order mark.
    seen: usize,
    after_cr: bool,
    /// The next byte begins a line.
    at_line_start: bool,
}

impl Masker {
    /// A masker at the beginning of a body.
    pub(super) fn new() -> Masker {
        Masker {
            place: Place::Lead,
            json: Json::new(),
            utf8: Utf8::default(),
            seen: 0,
            after_cr: false,
            at_line_start: true,
        }
    }

    /// Masks the next bytes in place.
    pub(super) fn mask(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.step(*byte);
        }
    }

    fn step(&mut self, byte: u8) -> u8 {
        if self.seen < BOM.len() {
            if BOM.get(self.seen) == Some(&byte) {
                self.seen += 1;
                self.utf8.step(byte);
                return byte;
            }
            self.seen = BOM.len();
        }
        match byte {
            b'\n' if self.after_cr => {
                self.after_cr = false;
                self.utf8.reset();
                return byte;
            }
            b'\n' | b'\r' => self.end_line(byte),
            _ => {
                let masked = self.inner(byte);
                self.at_line_start = false;
                self.after_cr = false;
                return masked;
            }
        }
        self.after_cr = byte == b'\r';
        byte
    }

    fn end_line(&mut self, byte: u8) {
        self.utf8.reset();
        match self.place {
            Place::Lead => {}
            Place::Document => {
                if self.json.step(byte, &mut self.utf8).is_none() {
                    self.json.reset();
                    self.place = Place::LineStart;
                }
            }
            // A blank line ends the event.
            Place::LineStart => self.json.reset(),
            Place::Data => {
                if self.json.step(byte, &mut self.utf8).is_none() {
                    self.json.give_up();
                }
                self.place = Place::LineStart;
            }
            Place::Name { .. } | Place::Word { .. } | Place::Text => self.place = Place::LineStart,
        }
        self.at_line_start = true;
    }

    /// Any byte but a line end.
    fn inner(&mut self, byte: u8) -> u8 {
        match self.place {
            Place::Lead if byte.is_ascii_whitespace() => byte,
            Place::Lead if matches!(byte, b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                self.place = Place::Document;
                self.document(byte)
            }
            Place::Lead if !self.at_line_start => self.text(byte),
            Place::Lead | Place::LineStart => self.line_start(byte),
            Place::Document => self.document(byte),
            Place::Name { field, matched } => self.name(field, matched, byte),
            Place::Data => match self.json.step(byte, &mut self.utf8) {
                Some(masked) => masked,
                None => {
                    self.json.give_up();
                    self.plain(byte)
                }
            },
            Place::Word { left, first } => self.word(left, first, byte),
            Place::Text => self.plain(byte),
        }
    }

    /// What is no JSON is read by lines from here on.
    fn document(&mut self, byte: u8) -> u8 {
        if let Some(masked) = self.json.step(byte, &mut self.utf8) {
            return masked;
        }
        self.json.reset();
        if self.at_line_start { self.line_start(byte) } else { self.text(byte) }
    }

    fn line_start(&mut self, byte: u8) -> u8 {
        match FIELDS.iter().position(|name| name.first() == Some(&byte)) {
            Some(field) => {
                self.place = Place::Name { field, matched: 1 };
                byte
            }
            None => self.text(byte),
        }
    }

    fn name(&mut self, field: usize, matched: usize, byte: u8) -> u8 {
        let name = FIELDS.get(field).copied().unwrap_or_default();
        match name.get(matched) {
            Some(expected) if *expected == byte => {
                self.place = Place::Name { field, matched: matched + 1 };
                byte
            }
            None if byte == b':' => {
                self.place = if field == 0 { Place::Data } else { Place::Word { left: MAX_WORD, first: true } };
                byte
            }
            _ => self.text(byte),
        }
    }

    fn word(&mut self, left: u8, first: bool, byte: u8) -> u8 {
        if first && byte == b' ' {
            self.place = Place::Word { left, first: false };
            return byte;
        }
        if left > 0 && is_word_byte(byte) {
            self.place = Place::Word { left: left - 1, first: false };
            return byte;
        }
        self.text(byte)
    }

    fn text(&mut self, byte: u8) -> u8 {
        self.place = Place::Text;
        self.plain(byte)
    }

    /// Text that is no JSON: letters and digits go, the rest stays, for marks such as `<` tell what kind of body it is.
    fn plain(&mut self, byte: u8) -> u8 {
        match byte {
            0x80.. => self.utf8.step(byte),
            _ => {
                self.utf8.reset();
                if byte.is_ascii_alphanumeric() { b'*' } else { byte }
            }
        }
    }
}

/// Masks a whole body.
pub(super) fn masked(bytes: &[u8]) -> alloc::vec::Vec<u8> {
    let mut masked = bytes.to_vec();
    Masker::new().mask(&mut masked);
    masked
}

/// What names, types, codes and ids are made of.
const fn is_word_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b':' | b'/')
}

#[cfg(test)]
mod tests;
