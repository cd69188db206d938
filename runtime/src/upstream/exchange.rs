//! One attempt's exchange with an upstream: connect or reuse, send, read, and give the connection back.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::uri::Uri;
use http::{HeaderMap, Method, Request, StatusCode, header, response};
use surefoot_core::event::Fault;

use super::coding::Decoder;
use super::{Upstream, lock};
use crate::reactor::{Link, Reactor, timeout};

/// What is left of a finished answer is read away up to here, so that its connection can serve again.
const DRAIN_BYTES: usize = 64 << 10;
/// Pieces of a body that are there at once are handed on together up to this size; longer ones go as they are.
const JOIN_BYTES: usize = 8 << 10;
/// As [`JOIN_BYTES`], in pieces: a body that comes byte by byte must not keep the others waiting.
const JOIN_PIECES: usize = 256;
/// A connection that brought an upstream's own trouble rests for so long: often it is closed behind such an answer, without
/// a word, and an immediate retry would be written into it just before that is seen.
const TROUBLED_REST: Duration = Duration::from_millis(50);
/// As [`DRAIN_BYTES`], in time.
const DRAIN_TIME: Duration = Duration::from_millis(500);

/// A request for an upstream.
#[derive(Debug)]
pub struct Order {
    /// Its method.
    pub method: Method,
    /// Path and query, with the base URL's own path.
    pub target: Uri,
    /// Its headers, `host` and `content-length` left out.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// For DNS, TCP and TLS together.
    pub connect: Option<Duration>,
    /// Whether the answer's body is to be opened for inspection (X5).
    pub inspect: bool,
}

/// What happened.
#[derive(Debug)]
pub enum News {
    /// The head.
    Head(response::Parts),
    /// A part of the body, never empty.
    Chunk(Bytes),
    /// The body is complete.
    End,
    /// It broke.
    Fault(Fault),
}

/// An exchange under way. Dropping it closes its HTTP/1 connection or resets its HTTP/2 stream.
pub struct Exchange<R: Reactor> {
    upstream: Arc<Upstream<R>>,
    stage: Stage<R::Link>,
    inspect: bool,
    connect: Option<Duration>,
    decoder: Option<Decoder>,
    /// What was found behind the bytes handed out last.
    behind: Option<Behind>,
    /// Before its connection is used again.
    rest: Duration,
}

/// The end of a body, one way or the other.
#[derive(Copy, Clone, Debug)]
enum Behind {
    End,
    Fault(Fault),
}

type Dial<L> = Pin<Box<dyn Future<Output = Result<L, Fault>> + Send>>;

enum Stage<L> {
    Dialing { dial: Dial<L>, request: Request<Bytes> },
    Waiting { link: L, reused: bool },
    Reading { link: L },
    Over,
}

impl<R: Reactor> Exchange<R> {
    /// Starts an exchange; it goes on when it is polled.
    pub fn start(upstream: Arc<Upstream<R>>, order: Order) -> Exchange<R> {
        let mut request = Request::new(order.body);
        *request.method_mut() = order.method;
        *request.uri_mut() = order.target;
        *request.headers_mut() = order.headers;
        let stage = begin(&upstream, request, order.connect);
        Exchange {
            upstream,
            stage,
            inspect: order.inspect,
            connect: order.connect,
            decoder: None,
            behind: None,
            rest: Duration::ZERO,
        }
    }

    /// The next news. After [`News::End`] and [`News::Fault`] there is none.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<News> {
        loop {
            let news = match &mut self.stage {
                Stage::Dialing { .. } => match std::task::ready!(self.poll_dialing(cx)) {
                    Some(fault) => News::Fault(fault),
                    None => continue,
                },
                Stage::Waiting { .. } => match std::task::ready!(self.poll_waiting(cx)) {
                    Some(news) => news,
                    None => continue,
                },
                Stage::Reading { .. } => match std::task::ready!(self.poll_reading(cx)) {
                    Some(news) => news,
                    None => continue,
                },
                Stage::Over => return Poll::Pending,
            };
            match news {
                News::End => self.put_back(),
                News::Fault(_) => self.stage = Stage::Over,
                News::Head(_) | News::Chunk(_) => {}
            }
            return Poll::Ready(news);
        }
    }

    /// Lets go of an exchange whose answer was complete for the call: what is left of it, the last chunk of a body
    /// behind a protocol's own end most often, is read away in the background so that the connection can serve again.
    pub fn release(mut self) {
        let mut left = DRAIN_BYTES;
        if self.poll_rest(&mut Context::from_waker(Waker::noop()), &mut left).is_ready() {
            return;
        }
        let upstream = self.upstream.clone();
        upstream.reactor.spawn(async move {
            let rest = poll_fn(|cx| self.poll_rest(cx, &mut left));
            let _ = timeout::<R::Timer, _>(DRAIN_TIME, rest).await;
        });
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>, left: &mut usize) -> Poll<()> {
        loop {
            let Stage::Reading { link } = &mut self.stage else { return Poll::Ready(()) };
            let next = match self.behind {
                None => std::task::ready!(link.poll_chunk(cx)),
                Some(Behind::End) => None,
                Some(Behind::Fault(_)) => return Poll::Ready(()),
            };
            match next {
                Some(Ok(bytes)) if bytes.len() <= *left => *left -= bytes.len(),
                None => {
                    self.put_back();
                    return Poll::Ready(());
                }
                Some(_) => {
                    self.stage = Stage::Over;
                    return Poll::Ready(());
                }
            }
        }
    }

    fn poll_dialing(&mut self, cx: &mut Context<'_>) -> Poll<Option<Fault>> {
        let Stage::Dialing { dial, request } = &mut self.stage else { return Poll::Ready(None) };
        match std::task::ready!(dial.as_mut().poll(cx)) {
            Ok(mut link) => {
                self.upstream.keep_shared(&link);
                link.send(std::mem::take(request), &self.upstream.origin);
                self.stage = Stage::Waiting { link, reused: false };
                Poll::Ready(None)
            }
            Err(fault) => Poll::Ready(Some(fault)),
        }
    }

    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<Option<News>> {
        let Stage::Waiting { link, reused } = &mut self.stage else { return Poll::Ready(None) };
        match std::task::ready!(link.poll_head(cx)) {
            Ok(head) => Poll::Ready(Some(self.answered(head))),
            Err(broken) => match broken.unsent.filter(|_| *reused) {
                // The kept connection was closed before a byte of the request was written: nobody saw it.
                Some(request) => {
                    self.stage = begin(&self.upstream, request, self.connect);
                    Poll::Ready(None)
                }
                None => Poll::Ready(Some(News::Fault(broken.fault))),
            },
        }
    }

    /// The next bytes: everything that is there already, up to a bound. Events that came together go on together: each
    /// piece on its own would go through every layer from here to the client's socket.
    fn poll_reading(&mut self, cx: &mut Context<'_>) -> Poll<Option<News>> {
        let Stage::Reading { link } = &mut self.stage else { return Poll::Ready(None) };
        let mut joined = Joined::default();
        while self.behind.is_none() && joined.wants_more() {
            match link.poll_chunk(cx) {
                Poll::Ready(Some(Ok(bytes))) => joined.push(bytes),
                Poll::Ready(Some(Err(fault))) => self.behind = Some(Behind::Fault(fault)),
                Poll::Ready(None) => self.behind = Some(Behind::End),
                Poll::Pending if joined.pieces == 0 => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        if joined.pieces > 0 {
            return Poll::Ready(self.opened(joined.into_bytes()));
        }
        Poll::Ready(Some(match self.behind {
            Some(Behind::Fault(fault)) => News::Fault(fault),
            _ => self.closed().unwrap_or(News::End),
        }))
    }

    fn answered(&mut self, head: response::Parts) -> News {
        if let Stage::Waiting { link, .. } = std::mem::replace(&mut self.stage, Stage::Over) {
            self.stage = Stage::Reading { link };
        }
        if head.status.is_server_error() || head.status == StatusCode::REQUEST_TIMEOUT {
            self.rest = TROUBLED_REST;
        }
        if self.inspect {
            let codings = head.headers.get_all(header::CONTENT_ENCODING);
            match Decoder::new(codings.iter().map(|value| value.to_str().unwrap_or("?"))) {
                Ok(decoder) => self.decoder = decoder,
                Err(fault) => return News::Fault(fault),
            }
        }
        News::Head(head)
    }

    /// A chunk, opened; `None` when nothing came out of it yet.
    fn opened(&mut self, bytes: Bytes) -> Option<News> {
        let opened = match &mut self.decoder {
            Some(decoder) => decoder.feed(&bytes),
            None => Ok(bytes),
        };
        match opened {
            Ok(bytes) => (!bytes.is_empty()).then_some(News::Chunk(bytes)),
            Err(fault) => Some(News::Fault(fault)),
        }
    }

    /// The body is complete: what the decoder still holds, or its objection.
    fn closed(&mut self) -> Option<News> {
        match self.decoder.take()?.finish() {
            Ok(bytes) => (!bytes.is_empty()).then_some(News::Chunk(bytes)),
            Err(fault) => Some(News::Fault(fault)),
        }
    }

    fn put_back(&mut self) {
        if let Stage::Reading { link } = std::mem::replace(&mut self.stage, Stage::Over) {
            self.upstream.put_back(link, self.rest);
        }
    }
}

impl<R: Reactor> fmt::Debug for Exchange<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            Stage::Dialing { .. } => "dialing",
            Stage::Waiting { .. } => "waiting",
            Stage::Reading { .. } => "reading",
            Stage::Over => "over",
        };
        f.debug_struct("Exchange").field("origin", &self.upstream.origin).field("stage", &stage).finish_non_exhaustive()
    }
}

/// Pieces of a body put together. The first is kept as it is: most often it stays the only one.
#[derive(Default)]
struct Joined {
    first: Bytes,
    all: BytesMut,
    pieces: usize,
}

impl Joined {
    fn wants_more(&self) -> bool {
        self.first.len() < JOIN_BYTES && self.all.len() < JOIN_BYTES && self.pieces < JOIN_PIECES
    }

    fn push(&mut self, bytes: Bytes) {
        self.pieces += 1;
        if self.pieces == 1 {
            self.first = bytes;
            return;
        }
        if self.all.is_empty() {
            self.all.reserve(JOIN_BYTES);
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&bytes);
    }

    fn into_bytes(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.freeze() }
    }
}

/// Sends over a connection that is there, or begins to dial one.
fn begin<R: Reactor>(
    upstream: &Arc<Upstream<R>>,
    request: Request<Bytes>,
    connect: Option<Duration>,
) -> Stage<R::Link> {
    if let Some(mut link) = upstream.reuse() {
        link.send(request, &upstream.origin);
        return Stage::Waiting { link, reused: true };
    }
    let dialer = upstream.clone();
    let dial = async move {
        let dialing = dialer.reactor.connect(&dialer.origin);
        match connect {
            Some(limit) => timeout::<R::Timer, _>(limit, dialing).await.unwrap_or(Err(Fault::ConnectTimeout)),
            None => dialing.await,
        }
    };
    Stage::Dialing { dial: Box::pin(dial), request }
}

impl<R: Reactor> Upstream<R> {
    /// Connections kept at the moment, for tests and the status page.
    pub fn kept(&self) -> usize {
        lock(&self.idle).len() + lock(&self.shared).len()
    }
}
