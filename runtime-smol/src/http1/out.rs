//! What waits to be written: pieces, sent without being copied together.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};

/// Pieces that one write takes at most.
const SLICES: usize = 16;

/// Bytes on their way out.
#[derive(Debug, Default)]
pub(crate) struct Out {
    pieces: VecDeque<Bytes>,
    waiting: usize,
    /// Written in all.
    written: u64,
}

impl Out {
    pub(crate) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.waiting += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Bytes that were taken from here so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Writes until nothing waits; `write` is a vectored write.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&mut Context<'_>, &[IoSlice<'_>]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        while self.waiting > 0 {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.pieces.len().min(SLICES);
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                *slice = IoSlice::new(piece);
            }
            let taken = std::task::ready!(write(cx, &slices[..count]))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(taken);
        }
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, taken: usize) {
        self.written += taken as u64;
        self.waiting = self.waiting.saturating_sub(taken);
        let mut taken = taken;
        while let Some(piece) = self.pieces.front_mut() {
            if piece.len() > taken {
                piece.advance(taken);
                return;
            }
            taken -= piece.len();
            self.pieces.pop_front();
        }
    }
}

/// A chunk's first line.
pub(crate) fn frame_chunk(length: usize) -> Bytes {
    Bytes::from(format!("{length:x}\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn all_pieces_come_out_in_order_however_little_a_write_takes() {
        for most in 1..12 {
            let mut out = Out::default();
            for piece in ["one", "", "two", "three"] {
                out.push(Bytes::from_static(piece.as_bytes()));
            }
            let (mut taken, mut turn) = (Vec::new(), 0);
            let mut cx = Context::from_waker(Waker::noop());
            let mut polls = 0;
            while out.waiting() > 0 {
                polls += 1;
                assert!(polls < 99);
                let _ = out.poll_write(&mut cx, |_, slices| {
                    turn += 1;
                    if turn % 3 == 0 {
                        return Poll::Pending;
                    }
                    let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(most).collect();
                    taken.extend_from_slice(&bytes);
                    Poll::Ready(Ok(bytes.len()))
                });
            }
            assert_eq!(taken, b"onetwothree");
            assert_eq!(out.written(), 11);
        }
    }

    #[test]
    fn a_write_that_takes_nothing_is_an_error() {
        let mut out = Out::default();
        out.push(Bytes::from_static(b"x"));
        let wrote = out.poll_write(&mut Context::from_waker(Waker::noop()), |_, _| Poll::Ready(Ok(0)));
        assert!(matches!(wrote, Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::WriteZero));
    }
}
