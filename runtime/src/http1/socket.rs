//! What HTTP/1 needs of a connection's byte stream.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;

/// A byte stream: a TCP connection, or TLS over one. The adapters bring theirs.
pub trait Socket: fmt::Debug + Send + 'static {
    /// Reads what is there; how much, 0 at the stream's end.
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Writes some of the pieces; how much.
    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Sends on what was written and is still kept back.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// The TCP connection that it is, or goes over.
    fn tcp(&self) -> SockRef<'_>;

    /// Tells the other side that nothing more will be written.
    ///
    /// # Errors
    ///
    /// The system's, such as that the connection is gone.
    fn close_write(&mut self) -> io::Result<()> {
        self.tcp().shutdown(Shutdown::Write)
    }

    /// Makes the stream break when it is dropped: the other side sees an error and not an end.
    fn break_off(&mut self) {
        // Nothing waits to be sent any more, so a close is a reset.
        let _ = self.tcp().set_linger(Some(Duration::ZERO));
    }
}
