//! HTTP/1.1, both sides of it, over any [`Socket`]: heads from bytes and to bytes, bodies out of their framing and into it.
//!
//! hyper 1 is not used here: for each connection that waits it holds five blocks of memory, 44 KiB in all for a stream with
//! its two sides, and it depends on tokio unconditionally, for its channels (`docs/decisions/0005-http1.md`). What stays is
//! small, because a gateway needs little: no upgrades, no trailers to pass on, one request at a time.

mod body;
mod client;
mod head;
mod incoming;
mod input;
mod out;
mod server;
mod socket;

pub use client::Link;
pub use incoming::Incoming;
pub use server::serve;
pub use socket::Socket;

use body::{Decoded, Decoder};
use head::{
    RequestHead, encode_request, encode_response, parse_request, parse_response, request_framing, response_framing,
    wants_close,
};
use input::poll_read_into;
use out::{Out, frame_chunk};

use http::StatusCode;

/// The longest head that is read, in bytes.
const MAX_HEAD: usize = 256 << 10;
/// Headers of one head.
const MAX_HEADERS: usize = 256;
/// The longest request target.
const MAX_TARGET: usize = 64 << 10;

/// Bytes that are not HTTP/1 as it is spoken here.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Malformed {
    /// Against the grammar.
    Syntax,
    /// The request's target is too long.
    TargetTooLong,
    /// The head is too long, or has too many headers.
    HeadTooLong,
}

impl Malformed {
    /// What a server says to it.
    fn message(self) -> &'static str {
        match self {
            Malformed::Syntax => "the request's head cannot be read as HTTP/1.1",
            Malformed::TargetTooLong => "the request's target is longer than 64 KiB",
            Malformed::HeadTooLong => "the request's head is longer than 256 KiB, or has more than 256 headers",
        }
    }

    /// What a server answers to it.
    fn status(self) -> StatusCode {
        match self {
            Malformed::Syntax => StatusCode::BAD_REQUEST,
            Malformed::TargetTooLong => StatusCode::URI_TOO_LONG,
            Malformed::HeadTooLong => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        }
    }
}

/// How a body's end is known.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Framing {
    /// By its length in bytes.
    Length(u64),
    /// By its last chunk.
    Chunked,
    /// By the connection's end.
    Close,
}

/// Whether a head may be complete, given that it was not when `looked` bytes of it were there. Parsing anew after every
/// byte of a long head would cost its length squared.
fn may_be_complete(buf: &[u8], looked: usize) -> bool {
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
