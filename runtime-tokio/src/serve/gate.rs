//! The pool, shared by all calls, and the calls that stand in line at it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use surefoot_core::id::LeaseId;
use surefoot_core::pool::{Op, Pool, Reply};
use surefoot_core::time::Time;

/// The one lock that all calls meet at. Held for one operation, never across a wait: attempts take it, chunks do not.
#[derive(Debug)]
pub struct Gate {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    pool: Pool,
    /// Where the grant of each queued lease goes.
    line: HashMap<LeaseId, Arc<Place>>,
}

/// A call's place in line.
#[derive(Debug, Default)]
pub struct Place {
    inner: Mutex<Granted>,
}

#[derive(Debug, Default)]
struct Granted {
    reply: Option<(LeaseId, Reply)>,
    waker: Option<Waker>,
}

impl Gate {
    /// A gate around `pool`.
    pub fn new(pool: Pool) -> Gate {
        Gate { inner: Mutex::new(Inner { pool, line: HashMap::new() }) }
    }

    /// Applies an operation. If it leaves the call in line, its grant comes to `place`.
    pub fn apply(&self, now: Time, op: &Op, place: &Arc<Place>) -> Reply {
        let mut inner = lock(&self.inner);
        let reply = inner.pool.apply(now, op);
        match op {
            Op::Reserve(reserve) if reserve.queue && matches!(reply, Reply::Refused { .. }) => {
                inner.line.insert(reserve.lease, place.clone());
            }
            Op::Reserve(_) | Op::Leave { .. } if !inner.line.is_empty() => {
                inner.line.remove(&op.lease());
            }
            _ => {}
        }
        let woken = inner.granted(now);
        drop(inner);
        for (place, lease, reply) in woken {
            place.grant(lease, reply);
        }
        reply
    }

    /// Looks at the pool, or changes what it consists of.
    pub fn with_pool<T>(&self, with: impl FnOnce(&mut Pool) -> T) -> T {
        with(&mut lock(&self.inner).pool)
    }
}

impl Inner {
    fn granted(&mut self, now: Time) -> Vec<(Arc<Place>, LeaseId, Reply)> {
        let mut woken = Vec::new();
        while let Some((lease, reply)) = self.pool.pop_granted() {
            match self.line.remove(&lease) {
                Some(place) => woken.push((place, lease, reply)),
                // Nobody waits under that name any more: the place goes to the next.
                None => {
                    self.pool.apply(now, &Op::Leave { lease });
                }
            }
        }
        woken
    }
}

impl Place {
    fn grant(&self, lease: LeaseId, reply: Reply) {
        let mut inner = lock(&self.inner);
        inner.reply = Some((lease, reply));
        if let Some(waker) = inner.waker.take() {
            drop(inner);
            waker.wake();
        }
    }

    /// The grant, once it is there.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<(LeaseId, Reply)> {
        let mut inner = lock(&self.inner);
        if let Some(granted) = inner.reply.take() {
            return Poll::Ready(granted);
        }
        match &mut inner.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => inner.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

/// No holder of these locks leaves a half-done change behind if it panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
