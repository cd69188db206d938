//! What comes from a client: its connection's bytes, read by whoever needs them at the moment.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

use super::{
    Decoded, Decoder, Framing, Malformed, RequestHead, Socket, may_be_complete, parse_request, poll_read_into,
};

/// Bytes of later requests that are read while one is answered.
const MAX_AHEAD: usize = 64 << 10;

/// What a client that asked first is told when its body is wanted.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A client's connection, and what came over it.
#[derive(Debug)]
pub(super) struct Input<S> {
    pub(super) socket: S,
    buf: BytesMut,
    /// Bytes at the last look for a head.
    looked: usize,
    /// The body of the request under way.
    body: Decoder,
    /// What is still to be written before the body can be expected.
    invitation: &'static [u8],
    ended: bool,
}

impl<S: Socket> Input<S> {
    pub(super) fn new(socket: S) -> Input<S> {
        let body = Decoder::new(Framing::Length(0));
        Input { socket, buf: BytesMut::new(), looked: 0, body, invitation: &[], ended: false }
    }

    /// Whether a request has begun to come.
    pub(super) fn has_begun(&self) -> bool {
        !self.buf.is_empty()
    }

    /// Whether the request's body was read to its end.
    pub(super) fn is_at_rest(&self) -> bool {
        self.body.is_done()
    }

    /// The next request's head; `None` when there comes none.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<RequestHead, Malformed>>> {
        loop {
            if !self.buf.is_empty() && may_be_complete(&self.buf, self.looked) {
                match parse_request(&mut self.buf) {
                    Ok(Some(head)) => {
                        self.looked = 0;
                        return Poll::Ready(Some(Ok(head)));
                    }
                    Ok(None) => self.looked = self.buf.len(),
                    Err(malformed) => return Poll::Ready(Some(Err(malformed))),
                }
            }
            if ready!(self.poll_fill(cx)).unwrap_or(0) == 0 {
                return Poll::Ready(None);
            }
        }
    }

    /// A body begins.
    pub(super) fn begin_body(&mut self, framing: Framing, invited: bool) {
        self.body = Decoder::new(framing);
        self.invitation = if invited && !self.body.is_done() { CONTINUE } else { &[] };
    }

    /// Ready when the client is gone; ending its side of the connection is leaving. What it sends meanwhile is kept up to a
    /// bound, so that its leaving is seen behind it.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // A body that is still to come is watched by whoever reads it.
        while !self.ended && self.body.is_done() {
            if self.buf.len() >= MAX_AHEAD {
                return Poll::Pending;
            }
            let _ = ready!(self.poll_fill(cx));
        }
        if self.ended { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Reads away what comes, for as long as it comes.
    pub(super) fn poll_away(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while ready!(self.poll_fill(cx)).unwrap_or(0) > 0 {
            self.buf.clear();
        }
        Poll::Ready(())
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Input { socket, buf, ended, .. } = self;
        let count = ready!(poll_read_into(buf, |bytes| socket.poll_read(cx, bytes)));
        *ended |= !matches!(count, Ok(1..));
        Poll::Ready(count)
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        while !self.invitation.is_empty() && self.buf.is_empty() {
            match ready!(self.socket.poll_write(cx, &[IoSlice::new(self.invitation)])) {
                Ok(written) if written > 0 => self.invitation = self.invitation.get(written..).unwrap_or_default(),
                _ => return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into()))),
            }
        }
        loop {
            match self.body.decode(&mut self.buf) {
                Ok(Decoded::Data(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                Ok(Decoded::End) => return Poll::Ready(None),
                Ok(Decoded::Hungry) => {}
                Err(_) => return Poll::Ready(Some(Err(io::ErrorKind::InvalidData.into()))),
            }
            if ready!(self.poll_fill(cx))? == 0 {
                return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
            }
        }
    }
}

/// An input that the connection and the request's body share. Both live in the connection's task, so nobody ever waits
/// for the lock.
#[derive(Debug)]
pub(super) struct SharedInput<S>(Arc<Mutex<Input<S>>>);

impl<S> Clone for SharedInput<S> {
    fn clone(&self) -> SharedInput<S> {
        SharedInput(self.0.clone())
    }
}

impl<S: Socket> SharedInput<S> {
    pub(super) fn new(socket: S) -> SharedInput<S> {
        SharedInput(Arc::new(Mutex::new(Input::new(socket))))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Input<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request's body.
#[derive(Debug)]
pub struct Incoming<S>(pub(super) SharedInput<S>);

impl<S: Socket> Body for Incoming<S> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.lock().poll_data(cx).map(|data| data.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().is_at_rest()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().body.left().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
