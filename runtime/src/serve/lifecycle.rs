//! Running, draining, ending (M10): who is still here, and how they hear that it is time to go.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// What the process is at.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It serves.
    Running,
    /// It finishes what runs and takes nothing new.
    Draining,
    /// The drain's deadline is over: calls end now.
    Cutting,
}

/// The life of a server, shared by all its connections and calls.
#[derive(Debug, Default)]
pub struct Lifecycle {
    stage: AtomicU8,
    calls: AtomicUsize,
    next: AtomicU64,
    present: Mutex<HashMap<u64, Arc<Presence>>>,
    emptied: Bell,
}

/// A connection, or a call without one: what is waited for at the end.
#[derive(Debug, Default)]
pub struct Presence {
    waker: Mutex<Option<Waker>>,
    /// Requests under way.
    busy: AtomicU32,
    /// Requests that came in all.
    requests: AtomicU64,
    /// The client took nothing for too long and is dropped for it.
    stalled: AtomicBool,
}

impl Lifecycle {
    /// What the process is at.
    pub fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Running,
            1 => Stage::Draining,
            _ => Stage::Cutting,
        }
    }

    /// Goes on to `stage` and wakes everybody to look at it.
    pub fn enter(&self, stage: Stage) {
        self.stage.fetch_max(stage as u8, Ordering::AcqRel);
        let present: Vec<Arc<Presence>> = lock(&self.present).values().cloned().collect();
        for presence in present {
            presence.wake();
        }
    }

    /// Signs in.
    pub fn join(self: &Arc<Self>) -> Present {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let presence = Arc::new(Presence::default());
        lock(&self.present).insert(id, presence.clone());
        Present { id, presence, life: self.clone() }
    }

    /// Ready when nobody is left.
    pub async fn empty(&self) {
        while !lock(&self.present).is_empty() {
            poll_fn(|cx| self.emptied.poll(cx)).await;
        }
    }

    /// Counts one more call in flight; `None` when there are `limit` already (0 = no limit).
    pub fn begin_call(self: &Arc<Self>, limit: u32) -> Option<CallPermit> {
        let before = self.calls.fetch_add(1, Ordering::AcqRel);
        let permit = CallPermit { life: self.clone() };
        (limit == 0 || before < limit as usize).then_some(permit)
    }

    /// Calls in flight.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Acquire)
    }
}

/// Somebody signed in; signs out when dropped.
#[derive(Debug)]
pub struct Present {
    id: u64,
    presence: Arc<Presence>,
    life: Arc<Lifecycle>,
}

impl Present {
    /// What others may know of it.
    pub fn presence(&self) -> &Arc<Presence> {
        &self.presence
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut present = lock(&self.life.present);
        present.remove(&self.id);
        if present.is_empty() {
            self.life.emptied.ring();
        }
    }
}

impl Presence {
    /// Has `waker` woken when the stage changes.
    pub fn listen(&self, waker: &Waker) {
        let mut kept = lock(&self.waker);
        match &mut *kept {
            Some(kept) => kept.clone_from(waker),
            None => *kept = Some(waker.clone()),
        }
    }

    fn wake(&self) {
        if let Some(waker) = lock(&self.waker).take() {
            waker.wake();
        }
    }

    /// A request begins.
    pub fn begin(self: &Arc<Self>) -> Busy {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.busy.fetch_add(1, Ordering::AcqRel);
        Busy(self.clone())
    }

    /// Whether a request is under way.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) > 0
    }

    /// Requests that came in all.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Notes that the client took nothing for too long.
    pub fn set_stalled(&self) {
        self.stalled.store(true, Ordering::Relaxed);
    }

    /// Whether the client took nothing for too long.
    pub fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }
}

/// A request under way on a connection.
#[derive(Debug)]
pub struct Busy(Arc<Presence>);

impl Busy {
    /// Its connection.
    pub fn presence(&self) -> &Presence {
        &self.0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A call in flight.
#[derive(Debug)]
pub struct CallPermit {
    life: Arc<Lifecycle>,
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.life.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Wakes one waiter. A ring that nobody waits for is kept for the next who does.
#[derive(Debug, Default)]
pub(super) struct Bell(Mutex<(bool, Option<Waker>)>);

impl Bell {
    pub(super) fn ring(&self) {
        let mut inner = lock(&self.0);
        inner.0 = true;
        if let Some(waker) = inner.1.take() {
            drop(inner);
            waker.wake();
        }
    }

    /// Ready once for one ring or several. Of several waiters only the last is woken.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = lock(&self.0);
        if std::mem::take(&mut inner.0) {
            return Poll::Ready(());
        }
        match &mut inner.1 {
            Some(waker) => waker.clone_from(cx.waker()),
            None => inner.1 = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[test]
    fn calls_beyond_the_limit_get_no_permit_and_leave_no_count() {
        let life = Arc::new(Lifecycle::default());
        let first = life.begin_call(1);
        assert!(first.is_some() && life.begin_call(1).is_none());
        assert_eq!(life.calls(), 1);
        drop(first);
        assert!(life.begin_call(1).is_some() && life.begin_call(0).is_some());
        assert_eq!(life.calls(), 0);
    }

    #[test]
    fn everybody_is_waited_for_and_the_stage_never_goes_back() {
        let life = Arc::new(Lifecycle::default());
        let (one, two) = (life.join(), life.join());
        life.enter(Stage::Cutting);
        life.enter(Stage::Draining);
        assert_eq!(life.stage(), Stage::Cutting);
        let mut waiting = pin!(life.empty());
        let mut cx = Context::from_waker(Waker::noop());
        drop(one);
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        drop(two);
        assert!(waiting.as_mut().poll(&mut cx).is_ready());
    }
}
