//! The byte stream of a connection: plain or TLS, as one type without dynamic calls.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_rustls::client::TlsStream;
use smol::Async;
use smol::io::{AsyncRead, AsyncWrite};
use socket2::SockRef;
use surefoot_runtime::http1;

/// A connection's bytes.
#[derive(Debug)]
pub enum Socket {
    /// As they are.
    Plain(Async<TcpStream>),
    /// Within TLS.
    Tls(Box<TlsStream<Async<TcpStream>>>),
}

impl http1::Socket for Socket {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Socket::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Socket::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Socket::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn tcp(&self) -> SockRef<'_> {
        SockRef::from(match self {
            Socket::Plain(stream) => stream.get_ref(),
            Socket::Tls(stream) => stream.get_ref().0.get_ref(),
        })
    }
}
