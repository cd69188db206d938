//! One HTTP connection: HTTP/1 driven by whoever uses it, HTTP/2 shared and driven by a task of its own.

use std::future::Future;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use surefoot_core::event::Fault;

use super::connector::Dialed;
use super::relay::Relay;
use super::stream::UpstreamStream;

pub(super) type Body = Full<Bytes>;
pub(super) type Sending = Pin<Box<dyn Future<Output = Result<Response<Incoming>, TrySendError<Request<Body>>>> + Send>>;

#[derive(Debug)]
pub(super) enum Link {
    H1(H1),
    H2(H2),
}

impl Link {
    /// Speaks HTTP over a fresh connection.
    pub(super) async fn open(dialed: Dialed) -> Result<Link, Fault> {
        if dialed.h2 { H2::open(dialed.stream).await.map(Link::H2) } else { H1::open(dialed).await.map(Link::H1) }
    }

    pub(super) fn send(&mut self, request: Request<Body>) -> Sending {
        match self {
            Link::H1(h1) => Box::pin(h1.sender.try_send_request(request)),
            Link::H2(h2) => Box::pin(h2.sender.try_send_request(request)),
        }
    }

    /// Polls something that comes over this connection, with the connection's own machine run as far as it goes.
    ///
    /// Both ends of hyper's channels live in this one task under HTTP/1: what is polled need not wake anybody, and a
    /// machine that wakes itself is run again here and now instead of through the scheduler.
    pub(super) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Link::H1(h1) = self else { return poll(cx) };
        let mut quiet = Context::from_waker(Waker::noop());
        let mut found = poll(&mut quiet);
        for _ in 0..MAX_ROUNDS {
            if found.is_ready() {
                return found;
            }
            h1.relay.enter(cx.waker());
            h1.drive();
            found = poll(&mut quiet);
            if !h1.relay.leave() {
                return found;
            }
        }
        if found.is_pending() {
            cx.waker().wake_by_ref();
        }
        found
    }
}

/// How often a connection is run in one go before others get their turn.
const MAX_ROUNDS: usize = 4;

/// An HTTP/1 connection and its machine.
#[derive(Debug)]
pub(super) struct H1 {
    sender: http1::SendRequest<Body>,
    /// `None` once it is closed.
    machine: Option<Box<http1::Connection<TokioIo<UpstreamStream>, Body>>>,
    relay: Arc<Relay>,
    /// The relay as the machine's waker.
    waker: Waker,
    /// As in [`Dialed::forward`].
    pub(super) forward: Option<Option<http::HeaderValue>>,
}

impl H1 {
    async fn open(dialed: Dialed) -> Result<H1, Fault> {
        let mut builder = http1::Builder::new();
        // A lenient reading of what providers and the proxies before them send; the defaults reject some of it.
        builder.allow_obsolete_multiline_headers_in_responses(true).allow_spaces_after_header_name_in_responses(true);
        let io = TokioIo::new(dialed.stream);
        let (sender, machine) = builder.handshake(io).await.map_err(|_| Fault::Reset)?;
        let relay = Arc::new(Relay::default());
        let waker = Waker::from(relay.clone());
        Ok(H1 { sender, machine: Some(Box::new(machine)), relay, waker, forward: dialed.forward })
    }

    fn drive(&mut self) {
        self.run(&mut Context::from_waker(&self.waker.clone()));
    }

    fn run(&mut self, cx: &mut Context<'_>) {
        // Its errors are told to the response or to the body as well; there they are seen in order.
        if let Some(machine) = &mut self.machine
            && Pin::new(machine).poll(cx).is_ready()
        {
            self.machine = None;
        }
    }

    /// Whether it is at rest between two requests and still open. Forgets the last user's waker.
    pub(super) fn is_usable(&mut self) -> bool {
        self.relay.forget();
        self.run(&mut Context::from_waker(Waker::noop()));
        self.machine.is_some() && self.sender.is_ready()
    }
}

/// A share of an HTTP/2 connection.
#[derive(Debug)]
pub(super) struct H2 {
    sender: http2::SendRequest<Body>,
    /// Counts the shares: the pool's own and one for every request.
    shares: Arc<AtomicUsize>,
}

impl H2 {
    async fn open(stream: UpstreamStream) -> Result<H2, Fault> {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        // A dead peer is noticed while requests run: their own timeouts may be long.
        builder.timer(TokioTimer::new()).keep_alive_interval(Duration::from_secs(20));
        builder.keep_alive_timeout(Duration::from_secs(10)).adaptive_window(true);
        let (sender, machine) = builder.handshake(TokioIo::new(stream)).await.map_err(|_| Fault::Reset)?;
        tokio::spawn(async move {
            if let Err(error) = machine.await {
                tracing::debug!(%error, "an HTTP/2 connection ended");
            }
        });
        Ok(H2 { sender, shares: Arc::new(AtomicUsize::new(1)) })
    }

    pub(super) fn share(&self) -> H2 {
        self.shares.fetch_add(1, Ordering::Relaxed);
        H2 { sender: self.sender.clone(), shares: self.shares.clone() }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.shares.load(Ordering::Relaxed).saturating_sub(1)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }
}

impl Drop for H2 {
    fn drop(&mut self) {
        self.shares.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What an HTTP error is to a call.
pub(super) fn fault(error: &hyper::Error) -> Fault {
    if error.is_parse() || is_malformed(error) { Fault::Protocol } else { Fault::Reset }
}

/// A chunk whose size cannot be read is told as bad data deep inside; a connection that broke is not.
fn is_malformed(error: &hyper::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            return matches!(io.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData);
        }
        source = inner.source();
    }
    false
}
