//! A share of an HTTP/2 connection: hyper's machine runs as a task of its own, and its users hold handles on it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
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
use hyper::client::conn::{TrySendError, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use surefoot_core::event::Fault;
use surefoot_runtime::reactor::Broken;
use surefoot_runtime::upstream::Origin;

use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

type Body = Full<Bytes>;
type Sending = Pin<Box<dyn Future<Output = Result<Response<Incoming>, TrySendError<Request<Body>>>> + Send>>;

/// Requests at a time over one connection: the least that servers are advised to allow.
const SHARE: usize = 100;

/// A handle, and what goes on over it.
pub struct Link {
    sender: http2::SendRequest<Body>,
    /// Counts the handles: the pool's own and one for every request.
    handles: Arc<AtomicUsize>,
    at: At,
}

enum At {
    Rest,
    /// With the host that the request names itself, if it does.
    Sending(Sending, Option<HeaderValue>),
    Reading(Incoming),
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("handles", &self.handles).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) async fn open(stream: Box<TlsStream<TcpStream>>) -> Result<Link, Fault> {
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
        Ok(Link { sender, handles: Arc::new(AtomicUsize::new(1)), at: At::Rest })
    }

    pub(super) fn share(&self) -> Option<Link> {
        // The pool's own handle serves no request.
        if self.handles.load(Ordering::Relaxed) > SHARE {
            return None;
        }
        self.handles.fetch_add(1, Ordering::Relaxed);
        Some(Link { sender: self.sender.clone(), handles: self.handles.clone(), at: At::Rest })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    pub(super) fn send(&mut self, request: Request<Bytes>, origin: &Origin) {
        let mut request = request.map(Full::new);
        // A provider's configured headers may name another host than its address does.
        let named = request.headers_mut().remove(header::HOST);
        let authority = named.as_ref().and_then(|host| host.to_str().ok()?.parse().ok());
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(if origin.https { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = Some(authority.unwrap_or_else(|| origin.authority.clone()));
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
        self.at = At::Sending(Box::pin(self.sender.try_send_request(request)), named);
    }

    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<response::Parts, Broken>> {
        let At::Sending(sending, named) = &mut self.at else { return Poll::Pending };
        match ready!(sending.as_mut().poll(cx)) {
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

    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Fault>>> {
        loop {
            let At::Reading(body) = &mut self.at else { return Poll::Ready(None) };
            match ready!(Pin::new(body).poll_frame(cx)) {
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
}

impl Drop for Link {
    fn drop(&mut self) {
        self.handles.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request as it was before it was handed over.
fn plain(request: Request<Body>, named: Option<HeaderValue>) -> Request<Bytes> {
    let (mut parts, mut body) = request.into_parts();
    parts.headers.extend(named.map(|host| (header::HOST, host)));
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

/// What an HTTP error is to a call.
fn fault(error: &hyper::Error) -> Fault {
    if error.is_parse() { Fault::Protocol } else { Fault::Reset }
}
