//! A client's socket, with one addition: a client that takes nothing for too long is dropped (X4).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::lifecycle::Presence;

/// Wraps a socket so that a write that stays pending for `limit` is an error.
#[derive(Debug)]
pub(super) struct ClientIo<S> {
    inner: S,
    presence: Arc<Presence>,
    /// `None`: clients may take their time.
    limit: Option<Duration>,
    /// Since when nothing was taken.
    since: Option<Instant>,
    /// Armed at the first pending write and left to run: it is looked at again when it fires.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<S> ClientIo<S> {
    /// Wraps a socket; `presence` is told when its client is dropped.
    pub(super) fn new(inner: S, presence: Arc<Presence>, limit: Option<Duration>) -> ClientIo<S> {
        ClientIo { inner, presence, limit, since: None, alarm: None }
    }

    fn after_write(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.since = None;
            return written;
        }
        let Some(limit) = self.limit else { return written };
        let since = *self.since.get_or_insert_with(Instant::now);
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(since + limit)));
        while alarm.as_mut().poll(cx).is_ready() {
            if since.elapsed() >= limit {
                self.presence.set_stalled();
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            alarm.as_mut().reset(since + limit);
        }
        Poll::Pending
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
        self.after_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.after_write(cx, written)
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
    use crate::serve::lifecycle::Lifecycle;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_dropped_and_one_that_is_slow_is_not() {
        let presence = Arc::new(Lifecycle::default()).join().presence().clone();
        let (socket, mut client) = tokio::io::duplex(8);
        let mut io = ClientIo::new(socket, presence.clone(), Some(Duration::from_secs(60)));
        let writing = tokio::spawn(async move { io.write_all(&[0; 64]).await });
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_secs(40)).await;
            let _ = client.read(&mut [0; 8]).await.unwrap();
        }
        assert!(!writing.is_finished() && !presence.is_stalled());
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(writing.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(presence.is_stalled());
    }
}
