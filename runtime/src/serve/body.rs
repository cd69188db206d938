//! Bodies: the client's request, collected, and the answers, whole or polled out of a running call.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use surefoot_core::drive::Step;
use surefoot_core::event::End;

use super::running::Running;
use crate::reactor::{Reactor, timeout};

/// Why a request's body was not taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Beyond the limit.
    TooLarge,
    /// The client stopped sending.
    Slow,
    /// It broke off.
    Gone,
    /// Its chunks are none.
    Malformed,
}

fn refused(error: &io::Error) -> Refused {
    if error.kind() == io::ErrorKind::InvalidData { Refused::Malformed } else { Refused::Gone }
}

/// Bytes a second that a body comes with at least, on the whole and behind the first pause: one byte a minute would hold a
/// call's place for a month.
const LEAST_RATE: u32 = 1024;

/// Collects a request's body of at most `max` bytes; a client may pause for `stall` at most, and be as late in all.
///
/// # Errors
///
/// Why there is no whole body.
pub async fn collect<R: Reactor, B>(mut body: B, max: u64, stall: Option<Duration>) -> Result<Bytes, Refused>
where
    B: Body<Data = Bytes, Error = io::Error> + Unpin,
{
    if body.size_hint().lower() > max {
        return Err(Refused::TooLarge);
    }
    let mut first = Bytes::new();
    let mut all: Option<BytesMut> = None;
    let (began, mut received) = (Instant::now(), 0u32);
    loop {
        let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
        let frame = match stall {
            Some(stall) => {
                let in_all = stall + Duration::from_secs(1) * received / LEAST_RATE;
                let pause = stall.min(in_all.saturating_sub(began.elapsed()));
                timeout::<R::Timer, _>(pause, frame).await.ok_or(Refused::Slow)?
            }
            None => frame.await,
        };
        let Some(frame) = frame else { break };
        let Ok(bytes) = frame.map_err(|error| refused(&error))?.into_data() else { continue };
        received = received.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        let so_far = all.as_ref().map_or(first.len(), BytesMut::len);
        if (so_far + bytes.len()) as u64 > max {
            return Err(Refused::TooLarge);
        }
        // Most bodies come in one piece: that one is kept as it is.
        match &mut all {
            Some(all) => all.extend_from_slice(&bytes),
            None if first.is_empty() => first = bytes,
            None => {
                let expected = usize::try_from(body.size_hint().lower()).unwrap_or(0) + first.len() + bytes.len();
                let mut both = BytesMut::with_capacity(expected);
                both.extend_from_slice(&first);
                both.extend_from_slice(&bytes);
                all = Some(both);
            }
        }
    }
    Ok(all.map_or(first, BytesMut::freeze))
}

/// An answer's body.
#[derive(Debug)]
pub enum ReplyBody<R: Reactor> {
    /// All of it.
    Whole(Bytes),
    /// A running call's.
    Call(CallBody<R>),
}

/// The body of a committed answer: polling it goes on with the call, so that a client that takes nothing has nothing read
/// for it; dropping it early is the client's leaving.
#[derive(Debug)]
pub struct CallBody<R: Reactor> {
    /// `None` once it ended.
    running: Option<Box<Running<R>>>,
    /// The bytes still to come, where that is known.
    left: Option<u64>,
}

impl<R: Reactor> CallBody<R> {
    /// The body of `running`, of `length` where it is known.
    pub fn new(running: Box<Running<R>>, length: Option<u64>) -> CallBody<R> {
        CallBody { running: Some(running), left: length }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            let Some(running) = &mut self.running else { return Poll::Ready(None) };
            match std::task::ready!(running.poll_step(cx)) {
                Step::Data(bytes) => {
                    if let Some(left) = &mut self.left {
                        *left = left.saturating_sub(bytes.len() as u64);
                        if *left == 0 {
                            self.run_out(cx);
                        }
                    }
                    if !bytes.is_empty() {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
                Step::End(end) => {
                    self.running = None;
                    let broken = matches!(end, End::Broken | End::Cancelled(_));
                    return Poll::Ready(broken.then(|| Err(io::ErrorKind::ConnectionAborted.into())));
                }
                Step::Commit(_) => {}
            }
        }
    }

    /// Behind the last byte of a known length nobody polls on: the end is taken right away.
    fn run_out(&mut self, cx: &mut Context<'_>) {
        if let Some(running) = &mut self.running
            && let Poll::Ready(Step::End(_)) = running.poll_step(cx)
        {
            self.running = None;
        }
    }

    /// Runs the call to its end for an answer that has no body to send (HEAD, 204, 304).
    pub fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while std::task::ready!(self.poll(cx)).is_some() {}
        Poll::Ready(())
    }
}

/// The body of an answer that has to do even while its client has no room for more of it.
pub trait AnswerBody: Body<Data = Bytes, Error = io::Error> {
    /// Called instead of [`Body::poll_frame`] while there is no room. Registers the waker for what is next to do.
    fn poll_blocked(self: Pin<&mut Self>, _: &mut Context<'_>) {}
}

impl<R: Reactor> AnswerBody for ReplyBody<R> {
    fn poll_blocked(self: Pin<&mut Self>, cx: &mut Context<'_>) {
        match self.get_mut() {
            // Nothing more is wanted but the end.
            ReplyBody::Call(call) if call.left == Some(0) => call.run_out(cx),
            ReplyBody::Call(CallBody { running: Some(running), .. }) => running.poll_timers(cx),
            ReplyBody::Call(_) | ReplyBody::Whole(_) => {}
        }
    }
}

impl<R: Reactor> Body for ReplyBody<R> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            ReplyBody::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            ReplyBody::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            ReplyBody::Call(call) => call.poll(cx).map(|next| next.map(|bytes| bytes.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ReplyBody::Whole(bytes) => bytes.is_empty(),
            ReplyBody::Call(call) => call.running.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ReplyBody::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            ReplyBody::Call(_) => SizeHint::default(),
        }
    }
}
