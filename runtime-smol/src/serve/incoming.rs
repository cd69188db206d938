//! What comes from a client: its connection's bytes, read by whoever needs them at the moment.

use std::io;
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use smol::Async;
use smol::io::{AsyncRead, AsyncWrite};

use crate::http1::{Decoded, Decoder, Framing, Malformed, RequestHead, may_be_complete, parse_request, poll_read_into};

/// What a client that asked first is told when its body is wanted.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The reading side of a client's connection.
#[derive(Debug)]
pub(super) struct Input {
    stream: Arc<Async<TcpStream>>,
    buf: BytesMut,
    /// Bytes at the last look for a head.
    looked: usize,
    /// The body of the request under way.
    body: Decoder,
    /// What is still to be written before the body can be expected.
    invitation: &'static [u8],
    ended: bool,
}

impl Input {
    pub(super) fn new(stream: Arc<Async<TcpStream>>) -> Input {
        let body = Decoder::new(Framing::Length(0));
        Input { stream, buf: BytesMut::new(), looked: 0, body, invitation: &[], ended: false }
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

    /// Ready when the client is gone. What it sends meanwhile is kept; how much of it is there does not matter here, so
    /// no more is read.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.ended {
            return Poll::Ready(());
        }
        // A body that is still to come is watched by whoever reads it.
        if !self.body.is_done() || !self.buf.is_empty() {
            return Poll::Pending;
        }
        match ready!(self.poll_fill(cx)) {
            Ok(0) | Err(_) => Poll::Ready(()),
            Ok(_) => Poll::Pending,
        }
    }

    /// Reads away what comes, for as long as it comes.
    pub(super) fn poll_away(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while ready!(self.poll_fill(cx)).unwrap_or(0) > 0 {
            self.buf.clear();
        }
        Poll::Ready(())
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Input { stream, buf, ended, .. } = self;
        let count = ready!(poll_read_into(buf, |bytes| Pin::new(&mut &**stream).poll_read(cx, bytes)));
        *ended |= !matches!(count, Ok(1..));
        Poll::Ready(count)
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        while !self.invitation.is_empty() && self.buf.is_empty() {
            match ready!(Pin::new(&mut &*self.stream).poll_write(cx, self.invitation)) {
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
#[derive(Clone, Debug)]
pub(super) struct SharedInput(Arc<Mutex<Input>>);

impl SharedInput {
    pub(super) fn new(input: Input) -> SharedInput {
        SharedInput(Arc::new(Mutex::new(input)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Input> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request's body.
#[derive(Debug)]
pub struct Incoming(pub(super) SharedInput);

impl Body for Incoming {
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
