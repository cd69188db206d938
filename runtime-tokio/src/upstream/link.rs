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
use super::stream::UpstreamStream;

pub(super) type Body = Full<Bytes>;
pub(super) type Sending =
    Pin<Box<dyn Future<Output = Result<Response<Incoming>, TrySendError<Request<Body>>>> + Send>>;

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

    /// Goes on with what the connection has to do.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if let Link::H1(h1) = self {
            h1.drive(cx);
        }
    }
}

/// An HTTP/1 connection and its machine.
#[derive(Debug)]
pub(super) struct H1 {
    sender: http1::SendRequest<Body>,
    /// `None` once it is closed.
    machine: Option<Box<http1::Connection<TokioIo<UpstreamStream>, Body>>>,
    /// As in [`Dialed::forward`].
    pub(super) forward: Option<Option<http::HeaderValue>>,
}

impl H1 {
    async fn open(dialed: Dialed) -> Result<H1, Fault> {
        let mut builder = http1::Builder::new();
        // A lenient reading of what providers and the proxies before them send; the defaults reject some of it.
        builder.allow_obsolete_multiline_headers_in_responses(true).allow_spaces_after_header_name_in_responses(true);
        builder.max_headers(256);
        let io = TokioIo::new(dialed.stream);
        let (sender, machine) = builder.handshake(io).await.map_err(|_| Fault::Reset)?;
        Ok(H1 { sender, machine: Some(Box::new(machine)), forward: dialed.forward })
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        // Its errors are told to the response or to the body as well; there they are seen in order.
        if let Some(machine) = &mut self.machine
            && Pin::new(machine).poll(cx).is_ready()
        {
            self.machine = None;
        }
    }

    /// Whether it is at rest between two requests and still open. Forgets the last user's waker.
    pub(super) fn is_usable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
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

/// Polls something whose progress only [`Link::drive`] can bring (HTTP/1), or that wakes by itself (HTTP/2).
///
/// Under HTTP/1 both ends of hyper's channels live in this one task: waking it from within itself would only poll it
/// once more for nothing.
pub(super) fn quiet<T>(link: &Link, cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    match link {
        Link::H1(_) => poll(&mut Context::from_waker(Waker::noop())),
        Link::H2(_) => poll(cx),
    }
}
