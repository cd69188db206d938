//! One HTTP connection: HTTP/1 driven by whoever uses it, HTTP/2 shared and driven by a task of its own.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Scheme, Uri};
use http::{HeaderValue, Request, Response, header, response};
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use surefoot_core::event::Fault;
use surefoot_runtime::reactor::{self, Broken};
use surefoot_runtime::upstream::Origin;

use super::connector::Dialed;
use super::relay::Relay;
use super::stream::UpstreamStream;

type Body = Full<Bytes>;
type Sending = Pin<Box<dyn Future<Output = Result<Response<Incoming>, TrySendError<Request<Body>>>> + Send>>;

/// Requests at a time over one HTTP/2 connection: the least that servers are advised to allow.
const H2_SHARE: usize = 100;

/// A connection, and what goes on over it for the one request that this handle is for.
pub struct Link {
    way: Way,
    at: At,
}

#[derive(Debug)]
enum Way {
    H1(H1),
    H2(H2),
}

enum At {
    Rest,
    /// With the host that the request names itself, if it does.
    Sending(Sending, Option<HeaderValue>),
    Reading(Incoming),
}

impl Link {
    /// Speaks HTTP over a fresh connection.
    pub(crate) async fn open(dialed: Dialed) -> Result<Link, Fault> {
        let way = match dialed.h2 {
            true => Way::H2(H2::open(dialed.stream).await?),
            false => Way::H1(H1::open(dialed).await?),
        };
        Ok(Link { way, at: At::Rest })
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("way", &self.way).finish_non_exhaustive()
    }
}

impl reactor::Link for Link {
    fn send(&mut self, request: Request<Bytes>, origin: &Origin) {
        let mut request = request.map(Full::new);
        // A provider's configured headers may name another host than its address does.
        let named = request.headers_mut().remove(header::HOST);
        let mut authority = origin.authority.clone();
        let absolute = match &self.way {
            Way::H2(_) => {
                authority = named.as_ref().and_then(|host| host.to_str().ok()?.parse().ok()).unwrap_or(authority);
                true
            }
            Way::H1(H1 { forward, .. }) => {
                let host = named.clone().or_else(|| HeaderValue::from_str(origin.authority.as_str()).ok());
                request.headers_mut().extend(host.map(|host| (header::HOST, host)));
                if let Some(Some(authorization)) = forward {
                    request.headers_mut().insert(header::PROXY_AUTHORIZATION, authorization.clone());
                }
                forward.is_some()
            }
        };
        if absolute {
            let mut parts = std::mem::take(request.uri_mut()).into_parts();
            parts.scheme = Some(if origin.https { Scheme::HTTPS } else { Scheme::HTTP });
            parts.authority = Some(authority);
            *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
        }
        let sending: Sending = match &mut self.way {
            Way::H1(h1) => Box::pin(h1.sender.try_send_request(request)),
            Way::H2(h2) => Box::pin(h2.sender.try_send_request(request)),
        };
        self.at = At::Sending(sending, named);
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<response::Parts, Broken>> {
        let At::Sending(sending, named) = &mut self.at else { return Poll::Pending };
        match ready!(self.way.poll(cx, |cx| sending.as_mut().poll(cx))) {
            Ok(response) => {
                let (head, body) = response.into_parts();
                self.at = At::Reading(body);
                Poll::Ready(Ok(head))
            }
            Err(mut error) => {
                let unsent = error.take_message().map(|request| plain(request, named.take()));
                Poll::Ready(Err(Broken { fault: fault(error.error()), unsent }))
            }
        }
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Fault>>> {
        loop {
            let At::Reading(body) = &mut self.at else { return Poll::Ready(None) };
            match ready!(self.way.poll(cx, |cx| Pin::new(&mut *body).poll_frame(cx))) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if !bytes.is_empty() => return Poll::Ready(Some(Ok(bytes))),
                    // Trailers say nothing to a client that was not told of them.
                    _ => continue,
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(fault(&error)))),
                None => self.at = At::Rest,
            }
        }
    }

    fn is_usable(&mut self) -> bool {
        match &mut self.way {
            Way::H1(h1) => h1.is_usable(),
            Way::H2(h2) => h2.is_open(),
        }
    }

    fn is_shared(&self) -> bool {
        matches!(self.way, Way::H2(_))
    }

    fn share(&self) -> Option<Link> {
        match &self.way {
            Way::H2(h2) if h2.in_flight() < H2_SHARE => Some(Link { way: Way::H2(h2.share()), at: At::Rest }),
            _ => None,
        }
    }
}

/// A request as it was before it was handed over.
fn plain(request: Request<Body>, named: Option<HeaderValue>) -> Request<Bytes> {
    let (mut parts, mut body) = request.into_parts();
    parts.headers.remove(header::HOST);
    parts.headers.extend(named.map(|host| (header::HOST, host)));
    parts.headers.remove(header::PROXY_AUTHORIZATION);
    let target = parts.uri.path_and_query().cloned();
    parts.uri = target.map(Uri::from).unwrap_or_default();
    // A body in one piece gives it at once.
    let piece = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
    let body = match piece {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        _ => Bytes::new(),
    };
    Request::from_parts(parts, body)
}

impl Way {
    /// Polls something that comes over this connection, with the connection's own machine run as far as it goes.
    ///
    /// Both ends of hyper's channels live in this one task under HTTP/1: what is polled need not wake anybody, and a
    /// machine that wakes itself is run again here and now instead of through the scheduler.
    fn poll<T>(&mut self, cx: &mut Context<'_>, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let Way::H1(h1) = self else { return poll(cx) };
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
struct H1 {
    sender: http1::SendRequest<Body>,
    /// `None` once it is closed.
    machine: Option<Box<http1::Connection<TokioIo<UpstreamStream>, Body>>>,
    relay: Arc<Relay>,
    /// The relay as the machine's waker.
    waker: Waker,
    /// As in [`Dialed::forward`].
    forward: Option<Option<http::HeaderValue>>,
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
    fn is_usable(&mut self) -> bool {
        self.relay.forget();
        // Without a budget: one that is used up makes every socket look silent, a closed one too, and whoever looks at
        // many connections in a row uses it up.
        let look = pin!(tokio::task::unconstrained(poll_fn(|cx| {
            self.run(cx);
            Poll::Ready(())
        })));
        let _ = look.poll(&mut Context::from_waker(Waker::noop()));
        self.machine.is_some() && self.sender.is_ready()
    }
}

/// A share of an HTTP/2 connection.
#[derive(Debug)]
struct H2 {
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

    fn share(&self) -> H2 {
        self.shares.fetch_add(1, Ordering::Relaxed);
        H2 { sender: self.sender.clone(), shares: self.shares.clone() }
    }

    fn in_flight(&self) -> usize {
        self.shares.load(Ordering::Relaxed).saturating_sub(1)
    }

    fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }
}

impl Drop for H2 {
    fn drop(&mut self) {
        self.shares.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What an HTTP error is to a call.
fn fault(error: &hyper::Error) -> Fault {
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
