//! Bytes that come in.

use std::cell::RefCell;
use std::io;
use std::task::{Poll, ready};

use bytes::BytesMut;

/// Bytes that are read at a time.
const READ: usize = 32 << 10;

thread_local! {
    /// Where reads go first. A buffer for each connection would have to be large for the few that need it, and what is
    /// held back of an answer would keep all of it: so each connection has what came, and one copy of it is the price.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
}

/// Appends what `read` gives to `buf`; how much, 0 at the end.
pub(crate) fn poll_read_into(
    buf: &mut BytesMut,
    read: impl FnOnce(&mut [u8]) -> Poll<io::Result<usize>>,
) -> Poll<io::Result<usize>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let count = ready!(read(scratch))?;
        buf.extend_from_slice(&scratch[..count]);
        Poll::Ready(Ok(count))
    })
}
