//! JSON, byte by byte: which bytes are structure, which are a word that decides, which are text.

use alloc::vec::Vec;

use super::utf8::Utf8;
use super::{MAX_WORD, is_word_byte};

/// A string under this key is a machine word: kept as long as it looks like one.
pub(in crate::trace) const WORD: u8 = 1;
/// A number under this key is kept.
pub(in crate::trace) const NUMBER: u8 = 2;
/// The objects under this key belong to the protocol: their keys are kept, and looked up here in turn.
pub(in crate::trace) const KNOWN: u8 = 4;
/// A frame of the stack that is an object.
const OBJECT: u8 = 8;

/// Nesting beyond this is malformed for every reader of ours.
const MAX_DEPTH: usize = 128;
const MAX_KEY: usize = 40;

/// What the protocols say of a key. Everything else is text: masked, with all that is below it.
pub(in crate::trace) fn class_of(key: &[u8]) -> u8 {
    match key {
        b"type"
        | b"object"
        | b"role"
        | b"model"
        | b"id"
        | b"finish_reason"
        | b"native_finish_reason"
        | b"stop_reason"
        | b"reason"
        | b"param"
        | b"service_tier"
        | b"item_id"
        | b"response_id"
        | b"call_id"
        | b"request_id"
        | b"system_fingerprint" => WORD,
        b"code" | b"status" | b"status_code" | b"http_status" => WORD | NUMBER,
        b"error" => KNOWN | NUMBER,
        b"index" | b"output_index" | b"content_index" | b"summary_index" | b"sequence_number" | b"created"
        | b"created_at" | b"completed_at" => NUMBER,
        b"choices"
        | b"delta"
        | b"message"
        | b"content"
        | b"tool_calls"
        | b"function"
        | b"audio"
        | b"response"
        | b"output"
        | b"item"
        | b"part"
        | b"content_block"
        | b"summary"
        | b"data"
        | b"usage"
        | b"errors"
        | b"detail"
        | b"details"
        | b"incomplete_details"
        | b"prompt_tokens_details"
        | b"completion_tokens_details"
        | b"input_tokens_details"
        | b"output_tokens_details" => KNOWN,
        _ if key.ends_with(b"_tokens") => NUMBER,
        _ => 0,
    }
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// A value must come.
    Value,
    /// A value or the end of the array.
    FirstItem,
    /// A key or the end of the object.
    FirstKey,
    Key,
    Colon,
    /// A comma or the end of the container.
    After,
    String {
        key: bool,
    },
    Escape {
        key: bool,
    },
    Hex {
        key: bool,
        place: usize,
        code: u16,
    },
    Number {
        exponent: bool,
    },
    Literal(&'static [u8]),
    /// The rest of `[DONE]`.
    Done(&'static [u8]),
    /// Only white space may follow.
    End,
    /// Not JSON.
    Broken,
}

/// One document being read. `step` yields the masked byte, or `None` for a byte that makes it no JSON.
#[derive(Clone, Debug)]
pub(super) struct Json {
    state: State,
    frames: Vec<u8>,
    /// The class of the value to come.
    class: u8,
    /// Bytes that the string under way may go on as a word; 0 = it is text.
    word_left: u8,
    key: [u8; MAX_KEY],
    key_len: usize,
}

impl Json {
    pub(super) const fn new() -> Json {
        Json { state: State::Value, frames: Vec::new(), class: KNOWN, word_left: 0, key: [0; MAX_KEY], key_len: 0 }
    }

    /// Another document begins.
    pub(super) fn reset(&mut self) {
        self.frames.clear();
        self.state = State::Value;
        self.class = KNOWN;
    }

    /// What comes until the next reset is no JSON.
    pub(super) fn give_up(&mut self) {
        self.state = State::Broken;
    }

    pub(super) fn step(&mut self, byte: u8, utf8: &mut Utf8) -> Option<u8> {
        if byte < 0x80 {
            utf8.reset();
        }
        match self.state {
            State::String { key } => return self.string(key, byte, utf8),
            State::Escape { key } => return self.escape(key, byte),
            State::Hex { key, place, code } => return self.hex(key, place, code, byte),
            State::Number { exponent } => {
                if let Some(masked) = self.number(exponent, byte) {
                    return Some(masked);
                }
                self.value_ends();
            }
            State::Literal(rest) | State::Done(rest) => return self.fixed(rest, byte),
            State::Broken => return None,
            _ => {}
        }
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            return Some(byte);
        }
        match (self.state, byte) {
            (State::FirstItem, b'D') if self.frames.len() == 1 => {
                self.state = State::Done(b"ONE]");
                Some(byte)
            }
            (State::FirstItem, b']') | (State::FirstKey, b'}') => self.leave(byte),
            (State::Value | State::FirstItem, _) => self.value(byte),
            (State::FirstKey | State::Key, b'"') => {
                self.key_len = 0;
                let known = self.frames.last().is_some_and(|frame| frame & KNOWN != 0);
                self.word_left = if known { MAX_WORD } else { 0 };
                self.state = State::String { key: true };
                Some(byte)
            }
            (State::Colon, b':') => {
                self.state = State::Value;
                Some(byte)
            }
            (State::After, b',') => self.next_member(byte),
            (State::After, b'}' | b']') => self.leave(byte),
            _ => None,
        }
    }

    fn value(&mut self, byte: u8) -> Option<u8> {
        self.state = match byte {
            b'{' | b'[' if self.frames.len() >= MAX_DEPTH => return None,
            b'{' => {
                self.frames.push(OBJECT | self.class & KNOWN);
                State::FirstKey
            }
            b'[' => {
                self.frames.push(self.class);
                State::FirstItem
            }
            b'"' => {
                self.word_left = if self.class & WORD != 0 { MAX_WORD } else { 0 };
                State::String { key: false }
            }
            b't' => State::Literal(b"rue"),
            b'f' => State::Literal(b"alse"),
            b'n' => State::Literal(b"ull"),
            b'-' | b'0'..=b'9' => {
                return self.number(false, byte);
            }
            _ => return None,
        };
        Some(byte)
    }

    fn next_member(&mut self, byte: u8) -> Option<u8> {
        let frame = *self.frames.last()?;
        if frame & OBJECT != 0 {
            self.state = State::Key;
        } else {
            self.class = frame;
            self.state = State::Value;
        }
        Some(byte)
    }

    fn leave(&mut self, byte: u8) -> Option<u8> {
        let frame = self.frames.pop()?;
        if (frame & OBJECT != 0) != (byte == b'}') {
            return None;
        }
        self.value_ends();
        Some(byte)
    }

    fn value_ends(&mut self) {
        self.state = if self.frames.is_empty() { State::End } else { State::After };
    }

    fn fixed(&mut self, rest: &'static [u8], byte: u8) -> Option<u8> {
        let (first, rest) = rest.split_first()?;
        if *first != byte {
            return None;
        }
        match (rest.is_empty(), self.state) {
            (true, State::Done(_)) => {
                self.frames.clear();
                self.state = State::End;
            }
            (true, _) => self.value_ends(),
            (false, State::Done(_)) => self.state = State::Done(rest),
            (false, _) => self.state = State::Literal(rest),
        }
        Some(byte)
    }

    /// The masked byte, or `None` when the number is over. Zeros stay: `01` is no number and stays none, `1.50` stays as
    /// long once written again. Exponents stay: a number out of range stays out of range.
    fn number(&mut self, exponent: bool, byte: u8) -> Option<u8> {
        let masked = match byte {
            b'1'..=b'9' if self.class & NUMBER == 0 && !exponent => b'1',
            b'0'..=b'9' | b'e' | b'E' | b'-' | b'+' | b'.' => byte,
            _ => return None,
        };
        self.state = State::Number { exponent: exponent || matches!(byte, b'e' | b'E') };
        Some(masked)
    }

    fn string(&mut self, key: bool, byte: u8, utf8: &mut Utf8) -> Option<u8> {
        match byte {
            b'"' => {
                self.string_ends(key);
                Some(byte)
            }
            b'\\' => {
                self.state = State::Escape { key };
                Some(byte)
            }
            ..0x20 => None,
            0x7f => {
                self.word_left = 0;
                Some(byte)
            }
            0x80.. => {
                self.word_left = 0;
                Some(utf8.step(byte))
            }
            _ if self.word_left > 0 && is_word_byte(byte) => {
                self.take_word_byte(key, byte);
                Some(byte)
            }
            _ => {
                self.word_left = 0;
                Some(b'*')
            }
        }
    }

    /// One more byte of a word that stays a word.
    fn take_word_byte(&mut self, key: bool, byte: u8) {
        self.word_left -= 1;
        if key {
            if let Some(slot) = self.key.get_mut(self.key_len) {
                *slot = byte;
            }
            self.key_len += 1;
        }
        if self.word_left == 0 {
            // Longer than any key that is known.
            self.key_len = MAX_KEY + 1;
        }
    }

    fn string_ends(&mut self, key: bool) {
        if !key {
            return self.value_ends();
        }
        let word = if self.word_left > 0 { self.key.get(..self.key_len) } else { None };
        self.class = word.map_or(0, class_of);
        self.state = State::Colon;
    }

    /// What follows a backslash. A line feed in a text stays one: like white space it tells no word.
    fn escape(&mut self, key: bool, byte: u8) -> Option<u8> {
        self.state = match byte {
            b'u' => State::Hex { key, place: 0, code: 0 },
            b'/' if self.word_left > 0 => {
                self.take_word_byte(key, byte);
                State::String { key }
            }
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                self.word_left = 0;
                State::String { key }
            }
            _ => return None,
        };
        Some(byte)
    }

    fn hex(&mut self, key: bool, place: usize, code: u16, byte: u8) -> Option<u8> {
        let digit = u16::try_from(char::from(byte).to_digit(16)?).ok()?;
        let whole = code << 4 | digit;
        let masked = match (self.word_left > 0, place) {
            (true, 2) if (2..8).contains(&digit) && code == 0 => digit,
            (true, 3) if code < 8 => match u8::try_from(whole).ok().filter(|byte| is_word_byte(*byte)) {
                Some(byte) => {
                    self.take_word_byte(key, byte);
                    digit
                }
                None => {
                    self.word_left = 0;
                    no_word(code, digit)
                }
            },
            _ => {
                if digit != 0 || place > 1 {
                    self.word_left = 0;
                }
                masked_digit(place, code, digit)
            }
        };
        self.state = if place == 3 { State::String { key } } else { State::Hex { key, place: place + 1, code: whole } };
        b"0123456789abcdef".get(usize::from(masked)).copied()
    }
}

/// The last digit of an ASCII escape that ends a word: neither a word byte, nor a quote that was none.
fn no_word(code: u16, digit: u16) -> u16 {
    match (code, digit) {
        (2, 2) | (5, 0xc) => digit,
        (2, _) => 0xa,
        (3, _) => 0xf,
        (5, _) => 0xd,
        (7, _) => 0xb,
        (4 | 6, _) => 0,
        _ => digit,
    }
}

/// A digit of a `\u` escape, such that the whole stays in its class: as long in UTF-8, a control character, a quote or
/// a backslash where it was one, half a surrogate pair where it was that half. `code` is what came before it.
fn masked_digit(place: usize, code: u16, digit: u16) -> u16 {
    match (place, code) {
        (0, _) => match digit {
            0 | 0xd => digit,
            _ => 2,
        },
        (1, 0) => match digit {
            0 => 0,
            1..=7 => 3,
            _ => 9,
        },
        (1, 0xd) => match digit {
            8..=0xb => 8,
            0xc.. => 0xc,
            _ => 0,
        },
        (1, _) => 5,
        (2, 0) => match digit {
            0 | 1 | 2 | 5 => digit,
            3 | 4 | 6 | 7 => 2,
            _ => 0xa,
        },
        (2, 1..=7) => 9,
        (2, 8..=0xf | 0xd0..=0xdf) => 0,
        (2, _) => 8,
        (_, 0 | 1) => digit,
        (_, 2) if digit == 2 => 2,
        (_, 2) => 0xa,
        (_, 5) if digit == 0xc => 0xc,
        (_, 5) => 8,
        (_, 3 | 4 | 6 | 7) => 0xa,
        (_, 8..=0xf) => 7,
        (_, 0x10..=0x7f) => 9,
        (_, 0x80..=0xff) => 5,
        (_, 0xd00..=0xdff) => 0,
        _ => 8,
    }
}
