//! A JSON cursor that validates and allocates nothing.
//!
//! After the commit every event of every stream passes here, so it reads the few facts that matter in one pass over the
//! bytes: no tree, no copy, no recursion. `serde_json::IgnoredAny` was the alternative: it keeps a heap stack for nested
//! values and would walk an event a second time for its facts.

use alloc::string::String;

/// Nesting beyond this is malformed: nobody nests that deep, and the bit stack of [`Cursor::skip`] ends here.
pub const MAX_DEPTH: u32 = 128;

/// Why a document could not be read.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// Not JSON (RFC 8259), invalid UTF-8, or nested beyond [`MAX_DEPTH`].
    #[error("not valid JSON: ask the provider what it sent")]
    Syntax,
    /// JSON, but a known field is of the wrong type; the field's path.
    #[error("the field `{0}` is of the wrong type: the provider's schema has drifted")]
    Type(&'static str),
}

/// What a reading step returns.
pub type Parsed<T> = Result<T, Bad>;

/// What the next value is, told by its first byte.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// `{`
    Object,
    /// `[`
    Array,
    /// `"`
    Text,
    /// A digit or `-`.
    Number,
    /// `true`
    True,
    /// `false`
    False,
    /// `null`
    Null,
    /// Nothing that begins a value, or the end of the bytes.
    Nothing,
}

/// A string as it stands in the document, between its quotes: valid UTF-8, its escapes valid but not decoded.
#[derive(Copy, Clone, Debug)]
pub struct Text<'a> {
    raw: &'a [u8],
    escaped: bool,
}

impl<'a> Text<'a> {
    /// Whether it is the empty string.
    pub const fn is_empty(self) -> bool {
        self.raw.is_empty()
    }

    /// The decoded bytes, for comparing with known words; a longer escaped text yields `[0xff]`, which is no word.
    ///
    /// `buffer` is only written when there are escapes.
    pub fn word<'b>(self, buffer: &'b mut [u8; 64]) -> &'b [u8]
    where
        'a: 'b,
    {
        if !self.escaped {
            return self.raw;
        }
        let mut used = 0;
        let mut fits = true;
        self.each_char(|c| {
            let mut utf8 = [0; 4];
            for byte in c.encode_utf8(&mut utf8).bytes() {
                match buffer.get_mut(used) {
                    Some(slot) => *slot = byte,
                    None => fits = false,
                }
                used += 1;
            }
        });
        if fits { buffer.get(..used).unwrap_or_default() } else { b"\xff" }
    }

    /// Appends the decoded text to `out`; a lone surrogate becomes U+FFFD.
    pub fn decode_into(self, out: &mut String) {
        match core::str::from_utf8(self.raw) {
            Ok(plain) if !self.escaped => out.push_str(plain),
            _ => self.each_char(|c| out.push(c)),
        }
    }

    fn each_char(self, mut yield_char: impl FnMut(char)) {
        let mut chars = core::str::from_utf8(self.raw).unwrap_or_default().chars();
        // The second half of a broken pair is a character of its own, so a high half waits for what follows it.
        let mut high: Option<u32> = None;
        while let Some(c) = chars.next() {
            let unit = match c {
                '\\' => match chars.next() {
                    Some('u') => (0..4).fold(0, |n, _| n * 16 + chars.next().and_then(|d| d.to_digit(16)).unwrap_or(0)),
                    Some('b') => 8,
                    Some('f') => 12,
                    Some('n') => 10,
                    Some('r') => 13,
                    Some('t') => 9,
                    Some(other) => u32::from(other),
                    None => return,
                },
                plain => u32::from(plain),
            };
            match (high.take(), unit) {
                (Some(first), 0xdc00..=0xdfff) => {
                    let joined = 0x1_0000 + ((first - 0xd800) << 10) + (unit - 0xdc00);
                    yield_char(char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER));
                    continue;
                }
                (Some(_), _) => yield_char(char::REPLACEMENT_CHARACTER),
                (None, _) => {}
            }
            match unit {
                0xd800..=0xdbff => high = Some(unit),
                _ => yield_char(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)),
            }
        }
        if high.is_some() {
            yield_char(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// A number as it stands in the document.
#[derive(Copy, Clone, Debug)]
pub struct Number<'a>(&'a [u8]);

impl Number<'_> {
    /// Its value cut to whole numbers from 0 to `u64::MAX`; a negative one is `None`.
    pub fn as_u64(self) -> Option<u64> {
        let text = core::str::from_utf8(self.0).ok()?;
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return Some(text.parse().unwrap_or(u64::MAX));
        }
        // A float to integer cast saturates, which is what is wanted of 1e300.
        text.parse::<f64>().ok().filter(|n| *n >= 0.0).map(|n| n as u64)
    }
}

/// A position in a document. Every `read` step consumes exactly one value or fails; after a failure it is of no more use.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u32,
}

impl<'a> Cursor<'a> {
    /// A cursor before the first value of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0, depth: 0 }
    }

    /// What comes next; consumes white space only.
    #[inline]
    pub fn peek(&mut self) -> Token {
        self.space();
        match self.byte() {
            b'{' => Token::Object,
            b'[' => Token::Array,
            b'"' => Token::Text,
            b'-' | b'0'..=b'9' => Token::Number,
            b't' => Token::True,
            b'f' => Token::False,
            b'n' => Token::Null,
            _ => Token::Nothing,
        }
    }

    /// Reads an object; `member` must consume the value of each key. A repeated key is told again.
    #[inline]
    pub fn object(&mut self, mut member: impl FnMut(&mut Self, Text<'a>) -> Parsed<()>) -> Parsed<()> {
        if !self.open(b'{', b'}')? {
            return Ok(());
        }
        loop {
            let key = self.key()?;
            member(self, key)?;
            if !self.more(b'}')? {
                return Ok(());
            }
        }
    }

    /// Reads an array; `item` must consume each element.
    #[inline]
    pub fn array(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<()>) -> Parsed<()> {
        if !self.open(b'[', b']')? {
            return Ok(());
        }
        loop {
            item(self)?;
            if !self.more(b']')? {
                return Ok(());
            }
        }
    }

    /// Reads a string.
    #[inline]
    pub fn text(&mut self) -> Parsed<Text<'a>> {
        self.space();
        if self.byte() != b'"' {
            return Err(Bad::Syntax);
        }
        let start = self.at + 1;
        let (mut at, mut escaped, mut non_ascii) = (start, false, 0);
        loop {
            let rest = self.bytes.get(at..).unwrap_or_default();
            let Some(eight) = rest.first_chunk::<8>() else { break };
            let word = u64::from_le_bytes(*eight);
            let stops = text_stops(word);
            non_ascii |= word & HIGH_BITS;
            if stops == 0 {
                at += 8;
                continue;
            }
            at += (stops.trailing_zeros() / 8) as usize;
            match self.bytes.get(at) {
                Some(b'"') => return self.text_ends(start, at, escaped, non_ascii != 0),
                Some(b'\\') => (escaped, at) = (true, self.escape(at)?),
                _ => return Err(Bad::Syntax),
            }
        }
        loop {
            match self.bytes.get(at) {
                Some(b'"') => return self.text_ends(start, at, escaped, non_ascii != 0),
                Some(b'\\') => (escaped, at) = (true, self.escape(at)?),
                None | Some(..0x20) => return Err(Bad::Syntax),
                Some(byte) => (non_ascii, at) = (non_ascii | u64::from(byte & 0x80), at + 1),
            }
        }
    }

    /// Reads a number.
    #[inline]
    pub fn number(&mut self) -> Parsed<Number<'a>> {
        self.space();
        let start = self.at;
        self.at += usize::from(self.byte() == b'-');
        match self.byte() {
            b'0' => self.at += 1,
            _ => self.digits()?,
        }
        if self.byte() == b'.' {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.byte(), b'e' | b'E') {
            self.at += 1;
            self.at += usize::from(matches!(self.byte(), b'+' | b'-'));
            self.digits()?;
        }
        Ok(Number(self.bytes.get(start..self.at).unwrap_or_default()))
    }

    /// Reads any value and forgets it.
    #[inline]
    pub fn skip(&mut self) -> Parsed<()> {
        match self.peek() {
            Token::Text => self.text().map(drop),
            Token::Number => self.number().map(drop),
            Token::Object | Token::Array => self.walk(|_| {}),
            _ => self.literal(),
        }
    }

    /// Reads any value and shows every string in it that is a value, in order. Keys are not shown.
    pub fn walk(&mut self, mut show: impl FnMut(Text<'a>)) -> Parsed<()> {
        // One bit a level: 1 = object. Depth is bounded, so a word holds them and no stack is needed.
        let mut objects: u128 = 0;
        let base = self.depth;
        loop {
            let mut entered = false;
            match self.peek() {
                Token::Object => {
                    entered = self.open(b'{', b'}')?;
                    if entered {
                        objects = (objects << 1) | 1;
                        self.key()?;
                    }
                }
                Token::Array => {
                    entered = self.open(b'[', b']')?;
                    if entered {
                        objects <<= 1;
                    }
                }
                Token::Text => show(self.text()?),
                Token::Number => drop(self.number()?),
                _ => self.literal()?,
            }
            if entered {
                continue;
            }
            loop {
                if self.depth == base {
                    return Ok(());
                }
                let object = objects & 1 == 1;
                if self.more(if object { b'}' } else { b']' })? {
                    if object {
                        self.key()?;
                    }
                    break;
                }
                objects >>= 1;
            }
        }
    }

    /// Nothing but white space may follow.
    pub fn end(&mut self) -> Parsed<()> {
        self.space();
        if self.at >= self.bytes.len() { Ok(()) } else { Err(Bad::Syntax) }
    }

    #[inline]
    fn byte(&self) -> u8 {
        // NUL begins, separates and ends nothing in JSON, so it stands for the end.
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    #[inline]
    fn space(&mut self) {
        // One comparison where there is none, which is nearly everywhere.
        while self.byte() <= b' ' && matches!(self.byte(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }

    /// Enters a container; `false` when it was empty and is already left.
    #[inline]
    fn open(&mut self, opener: u8, closer: u8) -> Parsed<bool> {
        self.space();
        if self.byte() != opener || self.depth >= MAX_DEPTH {
            return Err(Bad::Syntax);
        }
        self.at += 1;
        self.space();
        if self.byte() == closer {
            self.at += 1;
            return Ok(false);
        }
        self.depth += 1;
        Ok(true)
    }

    /// After an element: whether another follows; otherwise the container is left.
    #[inline]
    fn more(&mut self, closer: u8) -> Parsed<bool> {
        self.space();
        let byte = self.byte();
        self.at += 1;
        if byte == closer {
            self.depth = self.depth.saturating_sub(1);
            Ok(false)
        } else if byte == b',' {
            Ok(true)
        } else {
            Err(Bad::Syntax)
        }
    }

    #[inline]
    fn key(&mut self) -> Parsed<Text<'a>> {
        let key = self.text()?;
        self.space();
        if self.byte() != b':' {
            return Err(Bad::Syntax);
        }
        self.at += 1;
        Ok(key)
    }

    #[inline]
    fn text_ends(&mut self, start: usize, end: usize, escaped: bool, non_ascii: bool) -> Parsed<Text<'a>> {
        let raw = self.bytes.get(start..end).ok_or(Bad::Syntax)?;
        if non_ascii && core::str::from_utf8(raw).is_err() {
            return Err(Bad::Syntax);
        }
        self.at = end + 1;
        Ok(Text { raw, escaped })
    }

    /// The position behind the escape at `at`. Lone surrogates pass, as RFC 8259 has it: some providers cut a pair in two.
    fn escape(&self, at: usize) -> Parsed<usize> {
        match self.bytes.get(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
            Some(b'u') => {
                let hex = self.bytes.get(at + 2..at + 6).ok_or(Bad::Syntax)?;
                if hex.iter().all(u8::is_ascii_hexdigit) { Ok(at + 6) } else { Err(Bad::Syntax) }
            }
            _ => Err(Bad::Syntax),
        }
    }

    #[inline]
    fn digits(&mut self) -> Parsed<()> {
        if !self.byte().is_ascii_digit() {
            return Err(Bad::Syntax);
        }
        while self.byte().is_ascii_digit() {
            self.at += 1;
        }
        Ok(())
    }

    #[inline]
    fn literal(&mut self) -> Parsed<()> {
        let word: &[u8] = match self.byte() {
            b't' => b"true",
            b'f' => b"false",
            b'n' => b"null",
            _ => return Err(Bad::Syntax),
        };
        if !self.bytes.get(self.at..).unwrap_or_default().starts_with(word) {
            return Err(Bad::Syntax);
        }
        self.at += word.len();
        Ok(())
    }
}

/// Typed readings: what the protocols ask for.
impl<'a> Cursor<'a> {
    /// Reads an object with `member`, or a null; whether it was an object. Anything else is [`Bad::Type`] of `field`.
    #[inline]
    pub fn object_or_null(
        &mut self,
        field: &'static str,
        member: impl FnMut(&mut Self, Text<'a>) -> Parsed<()>,
    ) -> Parsed<bool> {
        match self.peek() {
            Token::Object => self.object(member).map(|()| true),
            Token::Null => self.literal().map(|()| false),
            other => Err(wrong(other, field)),
        }
    }

    /// Reads an array with `item`, or a null; whether it was an array. Anything else is [`Bad::Type`] of `field`.
    #[inline]
    pub fn array_or_null(&mut self, field: &'static str, item: impl FnMut(&mut Self) -> Parsed<()>) -> Parsed<bool> {
        match self.peek() {
            Token::Array => self.array(item).map(|()| true),
            Token::Null => self.literal().map(|()| false),
            other => Err(wrong(other, field)),
        }
    }

    /// Reads a string or a null. Anything else is [`Bad::Type`] of `field`.
    #[inline]
    pub fn text_or_null(&mut self, field: &'static str) -> Parsed<Option<Text<'a>>> {
        match self.peek() {
            Token::Text => self.text().map(Some),
            Token::Null => self.literal().map(|()| None),
            other => Err(wrong(other, field)),
        }
    }

    /// Reads any value; a count when it is a number that is not negative.
    #[inline]
    pub fn count(&mut self) -> Parsed<Option<u64>> {
        match self.peek() {
            Token::Number => Ok(self.number()?.as_u64()),
            _ => self.skip().map(|()| None),
        }
    }

    /// Reads any value; whether it is a string, an array or an object that is not empty.
    #[inline]
    pub fn filled(&mut self) -> Parsed<bool> {
        let mut any = false;
        match self.peek() {
            Token::Text => any = !self.text()?.is_empty(),
            Token::Object => self.object(|c, _| {
                any = true;
                c.skip()
            })?,
            Token::Array => self.array(|c| {
                any = true;
                c.skip()
            })?,
            _ => self.skip()?,
        }
        Ok(any)
    }

    /// Reads any value; whether an `error` field with it tells of an error: null, false, 0 and empty ones do not.
    #[inline]
    pub fn tells_error(&mut self) -> Parsed<bool> {
        match self.peek() {
            Token::True => self.skip().map(|()| true),
            Token::Number => Ok(self.number()?.as_u64() != Some(0)),
            _ => self.filled(),
        }
    }
}

/// Whether `bytes` are one JSON document.
pub fn is_valid(bytes: &[u8]) -> bool {
    let mut cursor = Cursor::new(bytes);
    cursor.skip().and_then(|()| cursor.end()).is_ok()
}

fn wrong(token: Token, field: &'static str) -> Bad {
    if token == Token::Nothing { Bad::Syntax } else { Bad::Type(field) }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// The high bit of each byte that ends the plain run of a string: a quote, a backslash, a control character.
///
/// Bytes above the lowest hit may be false hits (borrows travel upwards); only the lowest is used.
#[inline]
const fn text_stops(word: u64) -> u64 {
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let hits = (quote.wrapping_sub(ONES) & !quote) | (backslash.wrapping_sub(ONES) & !backslash) | control;
    hits & HIGH_BITS
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
