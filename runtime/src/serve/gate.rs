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

    /// The grant of `lease`, once it is there.
    ///
    /// One of another lease is stale: its call asked again in the same moment and got the same answer then, or gave the
    /// place back.
    pub fn poll(&self, lease: LeaseId, cx: &mut Context<'_>) -> Poll<Reply> {
        let mut inner = lock(&self.inner);
        if let Some((_, reply)) = inner.reply.take().filter(|(granted, _)| *granted == lease) {
            return Poll::Ready(reply);
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

#[cfg(test)]
mod tests {
    use super::*;
    use surefoot_core::id::Choice;
    use surefoot_core::outcome::Outcome;
    use surefoot_core::pool::{Entry, Reserve, Roster, Settings, Settle, SourceSpec, Strategy, TargetSpec};
    use surefoot_core::time::Span;

    fn gate_of_one() -> (Gate, Arc<Roster>) {
        let mut pool = Pool::new(Settings::default());
        let source = SourceSpec { name: "p/k", account: "k", max_concurrency: 1, rpm: 0, tpm: 0 };
        let (target, _) = pool.register(&TargetSpec { name: "p/k/m", provider: "p", model: "m", source });
        let entries = vec![Entry { target, tier: 0 }];
        (Gate::new(pool), Arc::new(Roster { id: 0, strategy: Strategy::Priority, entries }))
    }

    fn reserve(lease: u64, roster: &Arc<Roster>) -> Op {
        Op::Reserve(Reserve {
            lease: LeaseId(lease),
            roster: roster.clone(),
            standing: Vec::new(),
            sticky: 1,
            draw: 0,
            tokens: 0,
            wait_until: Time::NEVER,
            ttl: Span::from_secs(60),
            queue: true,
        })
    }

    fn settle(lease: u64) -> Op {
        let lease = LeaseId(lease);
        Op::Settle(Settle { lease, outcome: Outcome::Success, slow: false, rest: None, overload: false, tokens: None })
    }

    #[test]
    fn a_place_that_frees_goes_to_the_first_who_still_waits() {
        let (gate, roster) = gate_of_one();
        let places: Vec<Arc<Place>> = (0..3).map(|_| Arc::default()).collect();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(matches!(gate.apply(Time(1), &reserve(1, &roster), &places[0]), Reply::Granted { .. }));
        for (lease, place) in [(2, &places[1]), (3, &places[2])] {
            assert!(matches!(gate.apply(Time(2), &reserve(lease, &roster), place), Reply::Refused { .. }));
            assert!(place.poll(LeaseId(lease), &mut cx).is_pending());
        }
        gate.apply(Time(3), &Op::Leave { lease: LeaseId(2) }, &places[1]);
        gate.apply(Time(4), &settle(1), &places[0]);
        assert!(places[1].poll(LeaseId(2), &mut cx).is_pending());
        let granted = places[2].poll(LeaseId(3), &mut cx);
        assert!(matches!(granted, Poll::Ready(Reply::Granted { choice: Choice(0), .. })), "{granted:?}");
    }

    #[test]
    fn a_stale_grant_is_not_taken_for_another_lease() {
        let place = Place::default();
        let mut cx = Context::from_waker(Waker::noop());
        place.grant(LeaseId(1), Reply::Done);
        assert!(place.poll(LeaseId(2), &mut cx).is_pending());
        place.grant(LeaseId(2), Reply::Done);
        assert_eq!(place.poll(LeaseId(2), &mut cx), Poll::Ready(Reply::Done));
    }
}
