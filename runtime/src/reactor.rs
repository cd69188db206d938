//! The seam: what an adapter brings.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, response};
use surefoot_core::event::Fault;

use crate::upstream::Origin;

/// A runtime: timers, tasks and connections. One value for the whole process.
pub trait Reactor: fmt::Debug + Send + Sync + Sized + 'static {
    /// Its timer.
    type Timer: Timer;
    /// Its connection to an upstream.
    type Link: Link;

    /// Connects to `origin`: DNS, TCP, the environment's proxies and TLS. Whoever calls it bounds it.
    ///
    /// # Errors
    ///
    /// What kept it from connecting.
    fn connect(&self, origin: &Origin) -> impl Future<Output = Result<Self::Link, Fault>> + Send;

    /// Prepares what TLS needs, so that the first request need not wait for it.
    fn warm_tls(&self);

    /// Runs a task that nobody waits for.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);
}

/// A timer, ready when it is due and from then on.
pub trait Timer: Future<Output = ()> + fmt::Debug + Send + Unpin + 'static {
    /// One that is due at `at`.
    fn at(at: Instant) -> Self;

    /// Makes it due at `at`, whether it was due before or not.
    fn set(&mut self, at: Instant);
}

/// A connection to an upstream, made. Progress comes from polling it: whoever uses it drives it.
pub trait Link: fmt::Debug + Send + Sized + 'static {
    /// Hands it a request whose URI is path and query; `host` and `content-length` are its own to add.
    fn send(&mut self, request: Request<Bytes>, origin: &Origin);

    /// The head of the answer.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<response::Parts, Broken>>;

    /// The next bytes of the answer's body, never empty; `None` when it is complete.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Fault>>>;

    /// Whether it is open and, if it takes one request at a time, at rest. Forgets its last user's waker.
    fn is_usable(&mut self) -> bool;

    /// Whether it takes several requests at a time (HTTP/2).
    fn is_shared(&self) -> bool;

    /// Another handle on it for another request; `None` if it takes one at a time or has its fill.
    fn share(&self) -> Option<Self>;
}

/// A request that got no head.
#[derive(Debug)]
pub struct Broken {
    /// What became of it.
    pub fault: Fault,
    /// The request as it was handed over, if nothing of it was sent: nobody saw it.
    pub unsent: Option<Request<Bytes>>,
}

/// What `future` gives, or `None` once `limit` is over.
pub async fn timeout<T: Timer, O>(limit: Duration, future: impl Future<Output = O>) -> Option<O> {
    timeout_at::<T, O>(Instant::now() + limit, future).await
}

/// What `future` gives, or `None` once it is `deadline`.
pub async fn timeout_at<T: Timer, O>(deadline: Instant, future: impl Future<Output = O>) -> Option<O> {
    let mut future = pin!(future);
    // Made when it is needed: most of what has a limit is ready at once.
    let mut timer = None;
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        let timer = timer.get_or_insert_with(|| T::at(deadline));
        Pin::new(timer).poll(cx).map(|()| None)
    })
    .await
}

/// One timer for many deadlines. It is set anew only when a deadline comes nearer: one that moves away, as the idle
/// deadline does with every chunk, is looked at again when the old one is due.
#[derive(Debug)]
pub struct Alarm<T> {
    timer: Option<(Instant, T)>,
}

impl<T> Default for Alarm<T> {
    fn default() -> Alarm<T> {
        Alarm { timer: None }
    }
}

impl<T: Timer> Alarm<T> {
    /// Ready when it is `until` or later. A later call replaces an earlier one.
    pub fn poll(&mut self, cx: &mut Context<'_>, until: Instant) -> Poll<()> {
        let (at, timer) = self.timer.get_or_insert_with(|| (until, T::at(until)));
        if *at > until {
            *at = until;
            timer.set(until);
        }
        while Pin::new(&mut *timer).poll(cx).is_ready() {
            if Instant::now() >= until {
                return Poll::Ready(());
            }
            *at = until;
            timer.set(until);
        }
        Poll::Pending
    }
}
