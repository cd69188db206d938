//! Patience with a client that takes nothing: it ends (X4).

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::lifecycle::Presence;
use crate::reactor::{Alarm, Timer};

/// Watches the writes to a client's socket: one that stays pending for too long is an error.
#[derive(Debug)]
pub struct Patience<T> {
    presence: Arc<Presence>,
    /// `None`: clients may take their time.
    limit: Option<Duration>,
    /// Since when nothing was taken.
    since: Option<Instant>,
    alarm: Alarm<T>,
}

impl<T: Timer> Patience<T> {
    /// `presence` is told when its client's time is over.
    pub fn new(presence: Arc<Presence>, limit: Option<Duration>) -> Patience<T> {
        Patience { presence, limit, since: None, alarm: Alarm::default() }
    }

    /// Hears what a write came to, and says what that is to be to the writer.
    pub fn after_write(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.since = None;
            return written;
        }
        let Some(limit) = self.limit else { return written };
        let since = *self.since.get_or_insert_with(Instant::now);
        std::task::ready!(self.alarm.poll(cx, since + limit));
        self.presence.set_stalled();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}
