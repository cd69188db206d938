//! The byte stream of a connection to an upstream: plain or TLS, as one type without dynamic calls.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_rustls::client::TlsStream;
use smol::Async;
use smol::io::{AsyncRead, AsyncWrite};

#[derive(Debug)]
pub(crate) enum UpstreamStream {
    Plain(Async<TcpStream>),
    Tls(Box<TlsStream<Async<TcpStream>>>),
}

impl UpstreamStream {
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            UpstreamStream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            UpstreamStream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            UpstreamStream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            UpstreamStream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            UpstreamStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            UpstreamStream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }
}
