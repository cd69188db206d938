//! The waker between a connection and the task that uses it at the moment.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// Nobody runs the connection now: a wake goes to the task.
const OUTSIDE: u8 = 0;
/// It is being run: a wake need not go anywhere.
const INSIDE: u8 = 1;
/// It was woken while it was being run: it wants to be run again.
const AGAIN: u8 = 2;

/// Hands wakes on to whichever task uses the connection, but not those that the task causes itself while it runs the
/// connection: each would cost a round through the scheduler.
#[derive(Debug, Default)]
pub(super) struct Relay {
    state: AtomicU8,
    task: Mutex<Option<Waker>>,
}

impl Relay {
    /// The task of `waker` runs the connection from now on.
    pub(super) fn enter(&self, waker: &Waker) {
        let mut task = self.task();
        match &mut *task {
            Some(task) => task.clone_from(waker),
            None => *task = Some(waker.clone()),
        }
        drop(task);
        self.state.store(INSIDE, Ordering::Release);
    }

    /// It does so no longer; whether the connection wants to be run again.
    pub(super) fn leave(&self) -> bool {
        self.state.swap(OUTSIDE, Ordering::AcqRel) == AGAIN
    }

    /// No task uses the connection.
    pub(super) fn forget(&self) {
        *self.task() = None;
    }

    fn task(&self) -> MutexGuard<'_, Option<Waker>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // One step: a wake that saw "inside" must not be lost to a task that has just left.
        let noted = self.state.compare_exchange(INSIDE, AGAIN, Ordering::AcqRel, Ordering::Acquire);
        if noted == Err(OUTSIDE)
            && let Some(task) = &*self.task()
        {
            task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_from_outside_reaches_the_task_and_one_from_inside_is_a_wish_to_run_again() {
        let (count, relay) = (Arc::new(Count::default()), Arc::new(Relay::default()));
        let waker = Waker::from(relay.clone());
        waker.wake_by_ref();
        relay.enter(&Waker::from(count.clone()));
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert!(relay.leave());
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        waker.wake_by_ref();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(!relay.leave());
        relay.forget();
        waker.wake_by_ref();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}
