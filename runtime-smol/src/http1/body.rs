//! Bodies out of their framing, in whatever pieces the bytes come.

use bytes::{Buf, Bytes, BytesMut};

use super::{Framing, Malformed};

/// The longest line with a chunk's size, its extensions included.
const MAX_SIZE_LINE: usize = 4096;
/// The longest trailers, in bytes. They are read away: nobody was told of them.
const MAX_TRAILERS: usize = 16 << 10;

/// Takes one body out of a connection's bytes.
#[derive(Debug)]
pub(crate) struct Decoder(State);

#[derive(Debug)]
enum State {
    /// So many bytes to come.
    Length(u64),
    /// A line with a size.
    Size,
    /// So many bytes of a chunk to come.
    Chunk(u64),
    /// The line end behind a chunk.
    ChunkEnd,
    /// The trailers; so many bytes of them seen.
    Trailers(usize),
    /// Until the connection ends.
    Close,
    Done,
}

/// What was taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// Some of the body, never empty.
    Data(Bytes),
    /// Nothing more without more bytes.
    Hungry,
    /// The body is complete. What is left in the buffer is not its.
    End,
}

impl Decoder {
    pub(crate) fn new(framing: Framing) -> Decoder {
        Decoder(match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size,
            Framing::Close => State::Close,
        })
    }

    /// Whether the body is complete.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.0, State::Done)
    }

    /// Whether the connection's end is the body's.
    pub(crate) fn ends_with_connection(&self) -> bool {
        matches!(self.0, State::Close)
    }

    /// The length still to come, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match self.0 {
            State::Length(left) => Some(left),
            State::Done => Some(0),
            _ => None,
        }
    }

    /// The connection ended: whether the body was complete with that.
    pub(crate) fn finish(&mut self) -> bool {
        if self.ends_with_connection() {
            self.0 = State::Done;
        }
        self.is_done()
    }

    /// Takes what it can from the front of `buf`.
    pub(crate) fn decode(&mut self, buf: &mut BytesMut) -> Result<Decoded, Malformed> {
        loop {
            if self.is_done() {
                return Ok(Decoded::End);
            }
            if buf.is_empty() {
                return Ok(Decoded::Hungry);
            }
            match &mut self.0 {
                State::Length(left) => {
                    let data = take(buf, left);
                    if *left == 0 {
                        self.0 = State::Done;
                    }
                    return Ok(Decoded::Data(data));
                }
                State::Chunk(left) => {
                    let data = take(buf, left);
                    if *left == 0 {
                        self.0 = State::ChunkEnd;
                    }
                    return Ok(Decoded::Data(data));
                }
                State::Close => return Ok(Decoded::Data(buf.split().freeze())),
                State::Size => match line(buf, MAX_SIZE_LINE)? {
                    Some(line) => {
                        self.0 = match size(&line)? {
                            0 => State::Trailers(0),
                            size => State::Chunk(size),
                        };
                    }
                    None => return Ok(Decoded::Hungry),
                },
                State::ChunkEnd => match line(buf, 0)? {
                    Some(_) => self.0 = State::Size,
                    None => return Ok(Decoded::Hungry),
                },
                State::Trailers(seen) => match line(buf, MAX_TRAILERS - *seen)? {
                    Some(line) if line.is_empty() => self.0 = State::Done,
                    Some(line) => *seen = (*seen + line.len()).min(MAX_TRAILERS),
                    None => return Ok(Decoded::Hungry),
                },
                State::Done => {}
            }
        }
    }
}

fn take(buf: &mut BytesMut, left: &mut u64) -> Bytes {
    let count = usize::try_from(*left).map_or(buf.len(), |left| left.min(buf.len()));
    *left -= count as u64;
    buf.split_to(count).freeze()
}

/// A line without its end, of at most `max` bytes. A bare line feed is no line end here: a proxy that read it otherwise
/// would see other chunks (RFC 9112, 7.1).
fn line(buf: &mut BytesMut, max: usize) -> Result<Option<Bytes>, Malformed> {
    let Some(end) = buf.iter().take(max + 2).position(|byte| *byte == b'\n') else {
        let plausible = buf.len() <= max || (buf.len() == max + 1 && buf[max] == b'\r');
        return if plausible { Ok(None) } else { Err(Malformed::Syntax) };
    };
    let line = buf.split_to(end).freeze();
    buf.advance(1);
    match line.split_last() {
        Some((b'\r', line_bytes)) if !line_bytes.contains(&b'\r') => Ok(Some(line.slice(..line.len() - 1))),
        _ => Err(Malformed::Syntax),
    }
}

/// The size in a chunk's first line.
fn size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    if digits.is_empty() || digits.len() > 16 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(Malformed::Syntax);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| Malformed::Syntax)?;
    u64::from_str_radix(digits, 16).map_err(|_| Malformed::Syntax)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body, whether it was complete, and what was left over, with the bytes coming in pieces of `step`.
    fn decode(framing: Framing, bytes: &[u8], step: usize) -> Result<(Vec<u8>, bool, Vec<u8>), Malformed> {
        let (mut decoder, mut buf, mut body) = (Decoder::new(framing), BytesMut::new(), Vec::new());
        let mut pieces = bytes.chunks(step);
        loop {
            match decoder.decode(&mut buf)? {
                Decoded::Data(data) => body.extend_from_slice(&data),
                Decoded::Hungry => match pieces.next() {
                    Some(piece) => buf.extend_from_slice(piece),
                    None => return Ok((body, decoder.finish(), Vec::new())),
                },
                Decoded::End => {
                    let rest = [buf.to_vec(), pieces.flatten().copied().collect()].concat();
                    return Ok((body, true, rest));
                }
            }
        }
    }

    const CHUNKED: &[u8] = b"5\r\nhello\r\nA ;x=\"y\"\r\n, world!!!\r\n0\r\nx-trailer: 1\r\n\r\nGET /";

    #[test]
    fn every_framing_gives_the_body_and_leaves_the_rest_in_any_pieces() {
        for step in 1..CHUNKED.len() {
            let chunked = decode(Framing::Chunked, CHUNKED, step).unwrap();
            assert_eq!(chunked, (b"hello, world!!!".to_vec(), true, b"GET /".to_vec()), "in steps of {step}");
            let length = decode(Framing::Length(5), b"helloGET /", step).unwrap();
            assert_eq!(length, (b"hello".to_vec(), true, b"GET /".to_vec()), "in steps of {step}");
            assert_eq!(decode(Framing::Close, b"hello", step).unwrap(), (b"hello".to_vec(), true, vec![]));
        }
        assert_eq!(decode(Framing::Length(0), b"GET /", 9).unwrap(), (vec![], true, b"GET /".to_vec()));
    }

    #[test]
    fn a_body_that_is_cut_is_not_complete() {
        let end = CHUNKED.len() - b"GET /".len();
        for cut in 0..end {
            assert!(!decode(Framing::Chunked, &CHUNKED[..cut], 3).unwrap().1, "cut at {cut}");
        }
        assert!(!decode(Framing::Length(5), b"hell", 3).unwrap().1);
    }

    #[test]
    fn broken_chunks_are_malformed_and_no_line_is_endless() {
        let endless = [&b"1;"[..], &[b'x'; MAX_SIZE_LINE + 9]].concat();
        let trailers = [&b"0\r\n"[..], &b"a: b\r\n".repeat(MAX_TRAILERS)].concat();
        let cases: [&[u8]; 11] = [
            b"zz\r\nhello\r\n",
            b"\r\n",
            b"-1\r\n",
            b"+5\r\nhello\r\n",
            b"5\nhello\r\n",
            b"5\r\nhelloX\r\n",
            b"5\r\nhello\n0\r\n\r\n",
            b"11112222333344445\r\n",
            b"5\rx\r\nhello\r\n",
            &endless,
            &trailers,
        ];
        for bytes in cases {
            for step in [1, 7, 100_000] {
                let found = decode(Framing::Chunked, bytes, step);
                assert_eq!(
                    found,
                    Err(Malformed::Syntax),
                    "{:?}",
                    String::from_utf8_lossy(&bytes[..bytes.len().min(20)])
                );
            }
        }
    }
}
