//! One HTTP/1.1 connection to an upstream, and what goes on over it.

use std::io;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use http::uri::{Scheme, Uri};
use http::{HeaderValue, Method, Request, Response, StatusCode, header, response};
use surefoot_core::event::Fault;

use super::{
    Decoded, Decoder, Malformed, Out, Socket, encode_request, may_be_complete, parse_response, poll_read_into,
    response_framing, wants_close,
};
use crate::reactor::{self, Broken};
use crate::upstream::Origin;

/// A connection to an upstream.
#[derive(Debug)]
pub struct Link<S> {
    socket: S,
    /// A plain proxy forwards: it wants the whole URL in the request line, and this header if it asks for one.
    forward: Option<Option<HeaderValue>>,
    out: Out,
    flushed: bool,
    buf: BytesMut,
    at: At,
    /// The connection cannot serve another request.
    spent: bool,
}

#[derive(Debug)]
enum At {
    Rest,
    /// The request is being sent, its head awaited.
    Asking(Asking),
    Reading(Decoder),
}

#[derive(Debug)]
struct Asking {
    /// As it was handed over, for another connection.
    request: Request<Bytes>,
    /// Written before this request.
    before: u64,
    /// Why it cannot be written any further. An answer may be there all the same: a server that refuses a body early
    /// closes behind its answer.
    unwritable: bool,
    /// Bytes at the last look for a head.
    looked: usize,
}

impl<S: Socket> Link<S> {
    /// Speaks HTTP over a fresh connection. Behind a plain proxy that forwards (`Some`), requests carry the whole URL, and
    /// its `proxy-authorization` if it asks for one.
    pub fn new(socket: S, forward: Option<Option<HeaderValue>>) -> Link<S> {
        Link { socket, forward, out: Out::default(), flushed: true, buf: BytesMut::new(), at: At::Rest, spent: false }
    }

    /// Sends on. Ready when nothing is left to be sent.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Link { socket, out, flushed, .. } = self;
        if out.waiting() > 0 {
            *flushed = false;
            ready!(out.poll_write(cx, |cx, slices| socket.poll_write(cx, slices)))?;
        }
        if !*flushed {
            ready!(socket.poll_flush(cx))?;
            *flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads what is there; how much, 0 at the connection's end.
    fn poll_in(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Link { socket, buf, .. } = self;
        poll_read_into(buf, |bytes| socket.poll_read(cx, bytes))
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<response::Parts, Fault>> {
        loop {
            let At::Asking(asking) = &mut self.at else { return Poll::Pending };
            if !asking.unwritable {
                // Sending and reading go on side by side: a server may answer before it has read everything.
                let sent = self.poll_out(cx);
                if let At::Asking(asking) = &mut self.at {
                    asking.unwritable = matches!(sent, Poll::Ready(Err(_)));
                }
            }
            if let Some(head) = self.take_head().map_err(|_| Fault::Protocol)? {
                return Poll::Ready(Ok(head));
            }
            match ready!(self.poll_in(cx)) {
                Ok(0) | Err(_) => return Poll::Ready(Err(Fault::Reset)),
                Ok(_) => {}
            }
        }
    }

    /// The head, if it is there.
    fn take_head(&mut self) -> Result<Option<response::Parts>, Malformed> {
        loop {
            let At::Asking(asking) = &mut self.at else { return Ok(None) };
            if self.buf.is_empty() || !may_be_complete(&self.buf, asking.looked) {
                return Ok(None);
            }
            asking.looked = self.buf.len();
            let Some(head) = parse_response(&mut self.buf)? else { return Ok(None) };
            asking.looked = 0;
            // A switch of protocols was not asked for. Other interim answers say nothing that anybody here waits for.
            if head.status == StatusCode::SWITCHING_PROTOCOLS {
                return Err(Malformed::Syntax);
            }
            if head.status.is_informational() {
                continue;
            }
            let framing = response_framing(&head, asking.request.method())?;
            self.spent |= wants_close(head.version, &head.headers);
            self.at = At::Reading(Decoder::new(framing));
            let (mut parts, ()) = Response::new(()).into_parts();
            (parts.status, parts.version, parts.headers) = (head.status, head.version, head.headers);
            return Ok(Some(parts));
        }
    }
}

impl<S: Socket> reactor::Link for Link<S> {
    fn send(&mut self, request: Request<Bytes>, origin: &Origin) {
        // A provider's configured headers may name another host than its address does.
        let host =
            request.headers().get(header::HOST).map_or(origin.authority.as_str().as_bytes(), |host| host.as_bytes());
        let absolute = self.forward.as_ref().map(|_| absolute(request.uri(), origin));
        let target = absolute.as_ref().unwrap_or(request.uri());
        let body = request.body();
        let usual = matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH);
        let length = (usual || !body.is_empty()).then_some(body.len());
        let head = match &self.forward {
            Some(Some(authorization)) => {
                let mut headers = request.headers().clone();
                headers.insert(header::PROXY_AUTHORIZATION, authorization.clone());
                encode_request(request.method(), target, &headers, host, length)
            }
            _ => encode_request(request.method(), target, request.headers(), host, length),
        };
        let before = self.out.written();
        self.out.push(head);
        self.out.push(body.clone());
        self.at = At::Asking(Asking { request, before, unwritable: false, looked: 0 });
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<response::Parts, Broken>> {
        let fault = match ready!(self.poll_answer(cx)) {
            Ok(head) => return Poll::Ready(Ok(head)),
            Err(fault) => fault,
        };
        self.spent = true;
        let unsent = match std::mem::replace(&mut self.at, At::Rest) {
            // Nothing came and nothing went: nobody saw the request.
            At::Asking(asking) if self.out.written() == asking.before && self.buf.is_empty() => Some(asking.request),
            _ => None,
        };
        Poll::Ready(Err(Broken { fault, unsent }))
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Fault>>> {
        if self.out.waiting() > 0 && !self.spent && matches!(self.poll_out(cx), Poll::Ready(Err(_))) {
            self.spent = true;
        }
        loop {
            let At::Reading(decoder) = &mut self.at else { return Poll::Ready(None) };
            match decoder.decode(&mut self.buf) {
                Ok(Decoded::Data(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                Ok(Decoded::End) => {
                    self.at = At::Rest;
                    return Poll::Ready(None);
                }
                Ok(Decoded::Hungry) => {}
                Err(_) => {
                    self.spent = true;
                    return Poll::Ready(Some(Err(Fault::Protocol)));
                }
            }
            let read = ready!(self.poll_in(cx));
            if let (Ok(0) | Err(_), At::Reading(decoder)) = (&read, &mut self.at) {
                self.spent = true;
                // Where the connection's end is the body's, only an orderly end is one.
                let complete = read.is_ok() && decoder.finish();
                if !complete {
                    return Poll::Ready(Some(Err(Fault::Reset)));
                }
            }
        }
    }

    fn is_usable(&mut self) -> bool {
        if self.spent || !matches!(self.at, At::Rest) || self.out.waiting() > 0 || !self.buf.is_empty() {
            return false;
        }
        // Whatever can be read now, an end or unasked bytes, is no answer to the next request.
        self.poll_in(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn share(&self) -> Option<Link<S>> {
        None
    }
}

/// The whole URL, as a plain proxy wants it.
fn absolute(target: &Uri, origin: &Origin) -> Uri {
    let mut parts = target.clone().into_parts();
    parts.scheme = Some(if origin.https { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = Some(origin.authority.clone());
    Uri::from_parts(parts).unwrap_or_default()
}
