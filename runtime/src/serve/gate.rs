//! The pool, shared by all calls, and the calls that stand in line at it.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use surefoot_core::id::LeaseId;
use surefoot_core::pool::{BreakerChange, Command, Op, Pool, Reply, Unreadable};
use surefoot_core::time::Time;

use super::shared::Clock;
use crate::state::{Book, Job};

/// The one lock that all calls meet at. Held for one operation, never across a wait: attempts take it, chunks do not.
#[derive(Debug)]
pub struct Gate {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    pool: Pool,
    /// Where the grant of each queued lease goes.
    line: HashMap<LeaseId, Arc<Place>>,
    /// What is asked of a store that several gateways share; without one the pool's own gate decides.
    book: Option<Book>,
}

/// Where a call's late replies come to.
#[derive(Debug, Default)]
pub struct Place {
    inner: Mutex<Mailbox>,
}

#[derive(Default)]
struct Mailbox {
    replies: VecDeque<(LeaseId, Reply)>,
    waker: Option<Waker>,
    /// The call is over; this hears of breakers that its last settlements changed.
    heir: Option<Heir>,
}

type Heir = Box<dyn Fn(BreakerChange) + Send>;

impl Gate {
    /// A gate around `pool`.
    pub fn new(pool: Pool) -> Gate {
        Gate { inner: Arc::new(Mutex::new(Inner { pool, line: HashMap::new(), book: None })) }
    }

    /// Has a store decide from now on, by way of `book`. What to give to whoever hears the store's answers.
    pub fn share(&self, book: Book, clock: Clock) -> BookKeeper {
        lock(&self.inner).book = Some(book);
        BookKeeper { inner: Arc::downgrade(&self.inner), clock }
    }

    /// Applies an operation. If it leaves the call in line, or `None` is returned, a reply comes to `place`.
    pub fn apply(&self, now: Time, op: &Op, place: &Arc<Place>) -> Option<Reply> {
        let mut guard = lock(&self.inner);
        let inner = &mut *guard;
        if let Some(book) = &mut inner.book {
            let reply = book.apply(&mut inner.pool, now, op, place);
            let news = book.take_news();
            drop(guard);
            self.keep(now, deliver(news));
            return reply;
        }
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
        drop(guard);
        self.keep(now, deliver(woken));
        Some(reply)
    }

    /// Gives back what was granted to calls that are over.
    fn keep(&self, now: Time, orphans: Vec<LeaseId>) {
        let nobody = Arc::default();
        for lease in orphans {
            self.apply(now, &Op::Leave { lease }, &nobody);
        }
    }

    /// The pool consists of something else: whoever stands in line may be able to start now.
    pub fn look(&self, now: Time) {
        let mut guard = lock(&self.inner);
        let inner = &mut *guard;
        let news = match &mut inner.book {
            Some(book) => {
                book.look_again(&mut inner.pool, now);
                book.take_news()
            }
            None => {
                inner.pool.look(now);
                inner.granted(now)
            }
        };
        drop(guard);
        self.keep(now, deliver(news));
    }

    /// Looks at the pool, or changes what it consists of.
    pub fn with_pool<T>(&self, with: impl FnOnce(&mut Pool) -> T) -> T {
        with(&mut lock(&self.inner).pool)
    }

    /// Calls that stand in line.
    pub fn waiting(&self) -> usize {
        let inner = lock(&self.inner);
        inner.book.as_ref().map_or_else(|| inner.pool.waiting(), Book::waiting)
    }
}

impl Inner {
    fn granted(&mut self, now: Time) -> Vec<(Arc<Place>, LeaseId, Reply)> {
        let mut woken = Vec::new();
        while let Some((lease, reply)) = self.pool.pop_granted() {
            // Whoever is refused may stand in line all the same.
            let place = match reply {
                Reply::Granted { .. } => self.line.remove(&lease),
                _ => self.line.get(&lease).cloned(),
            };
            match place {
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

/// Wakes calls up; never under the lock, whatever a waker does. The grants that nobody takes.
fn deliver(news: Vec<(Arc<Place>, LeaseId, Reply)>) -> Vec<LeaseId> {
    news.into_iter().filter_map(|(place, lease, reply)| place.put(lease, reply).then_some(lease)).collect()
}

/// The way of a store's answers into the book, for as long as there is one.
#[derive(Clone, Debug)]
pub struct BookKeeper {
    inner: Weak<Mutex<Inner>>,
    clock: Clock,
}

/// The gate was dropped.
#[derive(Copy, Clone, Debug)]
pub struct Gone;

impl BookKeeper {
    fn with<T>(&self, with: impl FnOnce(&mut Book, &mut Pool, Time) -> T) -> Result<T, Gone> {
        let inner = self.inner.upgrade().ok_or(Gone)?;
        let mut guard = lock(&inner);
        let Inner { pool, book: Some(book), .. } = &mut *guard else { return Err(Gone) };
        let told = with(book, pool, self.clock.now());
        let news = book.take_news();
        drop(guard);
        let orphans = deliver(news);
        Gate { inner }.keep(self.clock.now(), orphans);
        Ok(told)
    }

    /// The store answered these, in order.
    ///
    /// # Errors
    ///
    /// The gate is gone, or an answer makes no sense; that command and those after it are answered without the store.
    pub fn answered(&self, jobs: Vec<Job>, answers: Vec<Vec<u8>>) -> Result<Result<(), Unreadable>, Gone> {
        self.with(|book, pool, now| {
            let mut whole = Ok(());
            for (job, answer) in jobs.into_iter().zip(answers) {
                match whole {
                    Ok(()) => whole = book.answered(pool, now, job, &answer),
                    Err(_) => book.unanswered(pool, now, job),
                }
            }
            whole
        })
    }

    /// The store did not answer these.
    ///
    /// # Errors
    ///
    /// The gate is gone.
    pub fn unanswered(&self, jobs: Vec<Job>) -> Result<(), Gone> {
        self.with(|book, pool, now| jobs.into_iter().for_each(|job| book.unanswered(pool, now, job)))
    }

    /// Whether commands are to go to the store; what it is to hear first.
    ///
    /// # Errors
    ///
    /// The gate is gone.
    pub fn set_up(&self, up: bool) -> Result<Vec<Command>, Gone> {
        self.with(|book, pool, now| book.set_up(pool, now, up))
    }

    /// Some time has passed.
    ///
    /// # Errors
    ///
    /// The gate is gone.
    pub fn look_again(&self) -> Result<(), Gone> {
        self.with(|book, pool, now| book.look_again(pool, now))
    }
}

impl Place {
    /// Hands a reply over; whether it is a grant that nobody takes any more.
    fn put(&self, lease: LeaseId, reply: Reply) -> bool {
        let mut inner = lock(&self.inner);
        if let Some(heir) = &inner.heir {
            if let Reply::Settled { change: Some(change) } = reply {
                heir(change);
            }
            return matches!(reply, Reply::Granted { .. });
        }
        inner.replies.push_back((lease, reply));
        if let Some(waker) = inner.waker.take() {
            drop(inner);
            waker.wake();
        }
        false
    }

    /// The next reply for the one who asked under `lease`, or to a settlement, once it is there.
    ///
    /// One of another lease is stale: its call asked again in the same moment and got the same answer then, or gave the
    /// place back.
    pub fn poll(&self, lease: Option<LeaseId>, cx: &mut Context<'_>) -> Poll<(LeaseId, Reply)> {
        let mut inner = lock(&self.inner);
        while let Some((whose, reply)) = inner.replies.pop_front() {
            if Some(whose) == lease || matches!(reply, Reply::Settled { .. }) {
                return Poll::Ready((whose, reply));
            }
        }
        match &mut inner.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => inner.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// The call is over: what is still to come of its settlements goes to `heir`.
    pub fn bequeath(&self, heir: impl Fn(BreakerChange) + Send + 'static) {
        let mut inner = lock(&self.inner);
        for (_, reply) in inner.replies.drain(..) {
            if let Reply::Settled { change: Some(change) } = reply {
                heir(change);
            }
        }
        inner.heir = Some(Box::new(heir));
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("replies", &self.replies).field("over", &self.heir.is_some()).finish()
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
        assert!(matches!(gate.apply(Time(1), &reserve(1, &roster), &places[0]), Some(Reply::Granted { .. })));
        for (lease, place) in [(2, &places[1]), (3, &places[2])] {
            assert!(matches!(gate.apply(Time(2), &reserve(lease, &roster), place), Some(Reply::Refused { .. })));
            assert!(place.poll(Some(LeaseId(lease)), &mut cx).is_pending());
        }
        gate.apply(Time(3), &Op::Leave { lease: LeaseId(2) }, &places[1]);
        gate.apply(Time(4), &settle(1), &places[0]);
        assert!(places[1].poll(Some(LeaseId(2)), &mut cx).is_pending());
        let granted = places[2].poll(Some(LeaseId(3)), &mut cx);
        assert!(matches!(granted, Poll::Ready((_, Reply::Granted { choice: Choice(0), .. }))), "{granted:?}");
    }

    #[test]
    fn a_stale_grant_is_not_taken_for_another_lease() {
        let place = Place::default();
        let mut cx = Context::from_waker(Waker::noop());
        place.put(LeaseId(1), Reply::Done);
        assert!(place.poll(Some(LeaseId(2)), &mut cx).is_pending());
        place.put(LeaseId(2), Reply::Done);
        assert_eq!(place.poll(Some(LeaseId(2)), &mut cx), Poll::Ready((LeaseId(2), Reply::Done)));
    }

    /// F18: the last settlement of a call may be answered after its end; what it did to a breaker is told all the same.
    #[test]
    fn what_comes_after_a_call_goes_to_its_heir() {
        use surefoot_core::id::TargetId;
        use surefoot_core::pool::BreakerState::{Closed, HalfOpen, Open};
        let change = |from, to| BreakerChange { target: TargetId(0), from, to };
        let settled = |change| Reply::Settled { change: Some(change) };
        let (place, told) = (Place::default(), Arc::new(Mutex::new(Vec::new())));
        place.put(LeaseId(1), settled(change(Closed, Open)));
        let heir = told.clone();
        place.bequeath(move |change| lock(&heir).push(change));
        place.put(LeaseId(2), settled(change(HalfOpen, Closed)));
        assert!(!place.put(LeaseId(2), Reply::Done));
        let granted = Reply::Granted { choice: Choice(0), probe: false, change: None };
        assert!(place.put(LeaseId(3), granted), "nobody takes it");
        assert_eq!(*lock(&told), [change(Closed, Open), change(HalfOpen, Closed)]);
    }
}
