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

/// A reactor in which nothing happens, for tests of what stands around it.
#[cfg(test)]
pub(crate) mod still {
    use super::*;

    #[derive(Debug)]
    pub(crate) struct Still;

    impl Reactor for Still {
        type Timer = StillTimer;
        type Link = NoLink;

        async fn connect(&self, _: &Origin) -> Result<NoLink, Fault> {
            Err(Fault::Connect)
        }

        fn warm_tls(&self) {}

        fn spawn(&self, _: impl Future<Output = ()> + Send + 'static) {}
    }

    /// Wakes nobody; knows how often it was set.
    #[derive(Debug)]
    pub(crate) struct StillTimer {
        at: Instant,
        pub(crate) set: usize,
    }

    impl Timer for StillTimer {
        fn at(at: Instant) -> StillTimer {
            StillTimer { at, set: 0 }
        }

        fn set(&mut self, at: Instant) {
            self.at = at;
            self.set += 1;
        }
    }

    impl Future for StillTimer {
        type Output = ();

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            if Instant::now() >= self.at { Poll::Ready(()) } else { Poll::Pending }
        }
    }

    #[derive(Debug)]
    pub(crate) enum NoLink {}

    impl Link for NoLink {
        fn send(&mut self, _: Request<Bytes>, _: &Origin) {
            match *self {}
        }

        fn poll_head(&mut self, _: &mut Context<'_>) -> Poll<Result<response::Parts, Broken>> {
            match *self {}
        }

        fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Fault>>> {
            match *self {}
        }

        fn is_usable(&mut self) -> bool {
            match *self {}
        }

        fn is_shared(&self) -> bool {
            match *self {}
        }

        fn share(&self) -> Option<NoLink> {
            match *self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::still::StillTimer;
    use super::*;

    #[test]
    fn the_alarm_rings_at_the_deadline_asked_for_last_and_is_set_only_when_it_comes_nearer() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut alarm = Alarm::<StillTimer>::default();
        let mut cx = Context::from_waker(Waker::noop());
        let set = |alarm: &Alarm<StillTimer>| alarm.timer.as_ref().map(|(_, timer)| timer.set);
        for (moved, times) in [(3600, 0), (7200, 0), (9000, 0), (1800, 1), (9000, 1)] {
            assert!(alarm.poll(&mut cx, after(moved)).is_pending());
            assert_eq!(set(&alarm), Some(times), "moved to {moved} s");
        }
        assert!(alarm.poll(&mut cx, begun).is_ready());
        assert!(alarm.poll(&mut cx, begun).is_ready());
        assert!(alarm.poll(&mut cx, after(3600)).is_pending());
        assert!(alarm.poll(&mut cx, Instant::now()).is_ready());
    }

    #[test]
    fn a_limit_ends_what_is_not_ready_and_what_is_ready_has_no_limit() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut poll = |limit, value: Option<u8>| {
            let future = async move {
                match value {
                    Some(value) => value,
                    None => std::future::pending().await,
                }
            };
            pin!(timeout::<StillTimer, _>(limit, future)).poll(&mut cx)
        };
        assert_eq!(poll(Duration::ZERO, Some(1)), Poll::Ready(Some(1)));
        assert_eq!(poll(Duration::ZERO, None), Poll::Ready(None));
        assert_eq!(poll(Duration::from_secs(3600), None), Poll::Pending);
    }
}
