//! One connection to an upstream: HTTP/1.1 as everywhere, or a share of an HTTP/2 connection.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, response};
use surefoot_core::event::Fault;
use surefoot_runtime::http1;
use surefoot_runtime::reactor::{self, Broken};
use surefoot_runtime::upstream::Origin;

use super::connector::Dialed;
use super::h2;
use crate::socket::Socket;

/// A connection, and what goes on over it for the one request that this handle is for.
#[derive(Debug)]
pub enum Link {
    /// HTTP/1.1.
    H1(http1::Link<Socket>),
    /// A share of an HTTP/2 connection.
    H2(h2::Link),
}

impl Link {
    /// Speaks HTTP over a fresh connection.
    pub(crate) async fn open(dialed: Dialed) -> Result<Link, Fault> {
        match dialed.socket {
            Socket::Tls(stream) if dialed.h2 => Ok(Link::H2(h2::Link::open(stream).await?)),
            socket => Ok(Link::H1(http1::Link::new(socket, dialed.forward))),
        }
    }
}

impl reactor::Link for Link {
    fn send(&mut self, request: Request<Bytes>, origin: &Origin) {
        match self {
            Link::H1(link) => link.send(request, origin),
            Link::H2(link) => link.send(request, origin),
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<response::Parts, Broken>> {
        match self {
            Link::H1(link) => link.poll_head(cx),
            Link::H2(link) => link.poll_head(cx),
        }
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Fault>>> {
        match self {
            Link::H1(link) => link.poll_chunk(cx),
            Link::H2(link) => link.poll_chunk(cx),
        }
    }

    fn is_usable(&mut self) -> bool {
        match self {
            // Without a budget: one that is used up makes every socket look silent, a closed one too, and whoever looks
            // at many connections in a row uses it up.
            Link::H1(link) => {
                let look = pin!(tokio::task::unconstrained(poll_fn(|_| Poll::Ready(link.is_usable()))));
                look.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(true)
            }
            Link::H2(link) => link.is_open(),
        }
    }

    fn is_shared(&self) -> bool {
        matches!(self, Link::H2(_))
    }

    fn share(&self) -> Option<Link> {
        match self {
            Link::H1(_) => None,
            Link::H2(link) => link.share().map(Link::H2),
        }
    }
}
