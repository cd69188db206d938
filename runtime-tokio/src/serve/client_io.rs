//! A client's socket, with one addition: a client that takes nothing for too long is dropped (X4).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use surefoot_runtime::serve::patience::Patience;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::reactor::TokioTimer;

/// Wraps a socket so that writes are watched.
#[derive(Debug)]
pub(super) struct ClientIo<S> {
    inner: S,
    patience: Patience<TokioTimer>,
}

impl<S> ClientIo<S> {
    /// Wraps a socket.
    pub(super) fn new(inner: S, patience: Patience<TokioTimer>) -> ClientIo<S> {
        ClientIo { inner, patience }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.patience.after_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.patience.after_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    use surefoot_runtime::serve::lifecycle::Lifecycle;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_dropped_and_one_that_is_slow_is_not() {
        let presence = Arc::new(Lifecycle::default()).join().presence().clone();
        let (socket, mut client) = tokio::io::duplex(8);
        let mut io = ClientIo::new(socket, Patience::new(presence.clone(), Some(Duration::from_millis(400))));
        let writing = tokio::spawn(async move { io.write_all(&[0; 64]).await });
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let _ = client.read(&mut [0; 8]).await.unwrap();
        }
        assert!(!writing.is_finished() && !presence.is_stalled());
        assert_eq!(writing.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(presence.is_stalled());
    }
}
