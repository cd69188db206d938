//! The byte stream of a connection: plain or TLS, as one type without dynamic calls.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use surefoot_runtime::http1;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// A connection's bytes.
#[derive(Debug)]
pub enum Socket {
    /// As they are.
    Plain(TcpStream),
    /// Within TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl http1::Socket for Socket {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        ready!(match self {
            Socket::Plain(stream) => Pin::new(stream).poll_read(cx, &mut buf),
            Socket::Tls(stream) => Pin::new(stream).poll_read(cx, &mut buf),
        })?;
        Poll::Ready(Ok(buf.filled().len()))
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
            Socket::Plain(stream) => stream,
            Socket::Tls(stream) => stream.get_ref().0,
        })
    }
}
