//! HTTP/1.1, both sides of it, without a socket: heads from bytes and to bytes, bodies out of their framing and into it.
//!
//! hyper 1 is not used here: it depends on tokio unconditionally, for its channels, and this tree has no tokio in it. What
//! stays is small, because a gateway needs little: no upgrades, no trailers to pass on, one request at a time.

mod body;
mod head;
mod input;
mod out;

pub(crate) use body::{Decoded, Decoder};
pub(crate) use head::{
    RequestHead, encode_request, encode_response, parse_request, parse_response, request_framing, response_framing,
    wants_close,
};
pub(crate) use input::poll_read_into;
pub(crate) use out::{Out, frame_chunk};

use http::StatusCode;

/// The longest head that is read, in bytes.
pub(crate) const MAX_HEAD: usize = 256 << 10;
/// Headers of one head.
const MAX_HEADERS: usize = 256;
/// The longest request target.
const MAX_TARGET: usize = 64 << 10;

/// Bytes that are not HTTP/1 as it is spoken here.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// Against the grammar.
    Syntax,
    /// The request's target is too long.
    TargetTooLong,
    /// The head is too long, or has too many headers.
    HeadTooLong,
}

impl Malformed {
    /// What a server answers to it.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Malformed::Syntax => StatusCode::BAD_REQUEST,
            Malformed::TargetTooLong => StatusCode::URI_TOO_LONG,
            Malformed::HeadTooLong => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        }
    }
}

/// How a body's end is known.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// By its length in bytes.
    Length(u64),
    /// By its last chunk.
    Chunked,
    /// By the connection's end.
    Close,
}

/// Whether a head may be complete, given that it was not when `looked` bytes of it were there. Parsing anew after every
/// byte of a long head would cost its length squared.
pub(crate) fn may_be_complete(buf: &[u8], looked: usize) -> bool {
    /// Up to here parsing costs nothing worth saving, and shows early that something is no HTTP at all.
    const SHORT: usize = 4096;
    let fresh = &buf[looked.saturating_sub(3).min(buf.len())..];
    let ends = |end: &[u8]| fresh.windows(end.len()).any(|window| window == end);
    buf.len() <= SHORT || buf.len() >= MAX_HEAD || ends(b"\n\r\n") || ends(b"\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_head_is_parsed_when_its_end_came_and_not_before() {
        let long = vec![b'x'; 5000];
        assert!(may_be_complete(b"GET", 0) && !may_be_complete(&long, 4000));
        for end in ["\r\n\r\n", "\n\n"] {
            let whole = [&long[..], end.as_bytes()].concat();
            for looked in 5000..whole.len() {
                assert!(may_be_complete(&whole, looked), "{end:?} after {looked}");
            }
        }
        assert!(may_be_complete(&vec![b'x'; MAX_HEAD], MAX_HEAD));
    }
}
