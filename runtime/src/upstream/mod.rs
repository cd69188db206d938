//! The side that faces the providers: connections, their reuse, and one attempt's exchange over one of them.
//!
//! An HTTP/1 connection is driven by the call that uses it, in the call's own task: a chunk costs one wake-up. A client
//! that gives every connection a task of its own costs a second wake-up and a queue for each chunk, most often on
//! another core.

mod coding;
mod exchange;
mod origin;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use surefoot_core::event::Fault;

pub use coding::OPENED_MAX;
pub use exchange::{Exchange, News, Order};
pub use origin::{Origin, tls_config, trusted_roots};

use crate::reactor::{Link, Reactor};

/// How long an unused connection is kept: below the 60 s after which common load balancers drop theirs.
const IDLE_MAX: Duration = Duration::from_secs(50);
/// Unused connections kept for one origin.
const IDLE_COUNT_MAX: usize = 512;

/// One origin's connections.
#[derive(Debug)]
pub struct Upstream<R: Reactor> {
    origin: Origin,
    reactor: Arc<R>,
    idle: Mutex<Vec<(Instant, R::Link)>>,
    shared: Mutex<Vec<R::Link>>,
}

impl<R: Reactor> Upstream<R> {
    /// Where it goes.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// A connection that is there already: the one used last, which is the least likely to have died meanwhile.
    fn reuse(&self) -> Option<R::Link> {
        if self.origin.https
            && let Some(link) = self.reuse_shared()
        {
            return Some(link);
        }
        loop {
            let (since, mut link) = self.take_rested()?;
            if since.elapsed() < IDLE_MAX && link.is_usable() {
                return Some(link);
            }
        }
    }

    fn take_rested(&self) -> Option<(Instant, R::Link)> {
        let mut idle = lock(&self.idle);
        let now = Instant::now();
        let last = idle.iter().rposition(|(since, _)| *since <= now)?;
        Some(idle.remove(last))
    }

    fn reuse_shared(&self) -> Option<R::Link> {
        let mut shared = lock(&self.shared);
        shared.retain_mut(Link::is_usable);
        shared.iter().find_map(Link::share)
    }

    /// Lets others use a fresh connection too, if it takes several requests at a time.
    fn keep_shared(&self, link: &R::Link) {
        if let Some(share) = link.share() {
            lock(&self.shared).push(share);
        }
    }

    /// Takes a connection back that is at rest between two requests; any other is dropped. It is not used again before it
    /// has rested for so long.
    fn put_back(&self, mut link: R::Link, rest: Duration) {
        if link.is_shared() || !link.is_usable() {
            return;
        }
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_COUNT_MAX {
            idle.push((Instant::now() + rest, link));
        }
    }

    /// Drops the connections that are too old or were closed by the peer.
    fn sweep(&self) {
        // Taken out first: looking at a connection runs its state machine, which is not for under a lock.
        let kept = std::mem::take(&mut *lock(&self.idle));
        let is_good = |kept: &mut (Instant, R::Link)| kept.0.elapsed() < IDLE_MAX && kept.1.is_usable();
        let mut kept: Vec<_> = kept.into_iter().filter_map(|mut kept| is_good(&mut kept).then_some(kept)).collect();
        let mut idle = lock(&self.idle);
        kept.append(&mut idle);
        *idle = kept;
        drop(idle);
        lock(&self.shared).retain_mut(Link::is_usable);
    }
}

/// Every origin in use. Survives reloads, and so do the connections.
#[derive(Debug)]
pub struct Upstreams<R: Reactor> {
    reactor: Arc<R>,
    known: Mutex<HashMap<Origin, Weak<Upstream<R>>>>,
}

impl<R: Reactor> Upstreams<R> {
    /// No origins yet.
    pub fn new(reactor: R) -> Upstreams<R> {
        Upstreams { reactor: Arc::new(reactor), known: Mutex::new(HashMap::new()) }
    }

    /// What the connections are made by.
    pub fn reactor(&self) -> &R {
        &self.reactor
    }

    /// The connections of `origin`, shared with everyone else who asks for it.
    pub fn get(&self, origin: Origin) -> Arc<Upstream<R>> {
        let mut known = lock(&self.known);
        if let Some(upstream) = known.get(&origin).and_then(Weak::upgrade) {
            return upstream;
        }
        if origin.https {
            self.reactor.warm_tls();
        }
        let upstream = Arc::new(Upstream {
            origin: origin.clone(),
            reactor: self.reactor.clone(),
            idle: Mutex::default(),
            shared: Mutex::default(),
        });
        known.insert(origin, Arc::downgrade(&upstream));
        upstream
    }

    /// Closes what is unused for long. To be called every few seconds.
    pub fn sweep(&self) {
        let all: Vec<Arc<Upstream<R>>> = {
            let mut known = lock(&self.known);
            known.retain(|_, upstream| upstream.strong_count() > 0);
            known.values().filter_map(Weak::upgrade).collect()
        };
        for upstream in all {
            upstream.sweep();
        }
    }
}

/// What a failure to connect is to a call: the source's, or our own (F7).
pub fn connect_fault(error: &(dyn std::error::Error + 'static)) -> Fault {
    /// No memory, no descriptor left in the system or in the process, no port left, no buffers: the same numbers on all
    /// of Linux' architectures but the last two on some, where it is a source's failure as before.
    const OURS: [i32; 5] = [12, 23, 24, 99, 105];
    let mut next = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<std::io::Error>();
        if io.and_then(std::io::Error::raw_os_error).is_some_and(|code| OURS.contains(&code)) {
            return Fault::Local;
        }
        // An error within an I/O error is its source's source, but not itself.
        next = io.and_then(|io| io.get_ref().map(|inner| inner as _)).or_else(|| error.source());
    }
    Fault::Connect
}

/// A lock whose holder panicked is no reason to stop: every change under these locks is one step.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("no connection")]
    struct Outer(#[source] io::Error);

    /// F7.
    #[test]
    fn a_want_of_our_own_is_no_fault_of_the_source() {
        for (code, fault) in [(24, Fault::Local), (99, Fault::Local), (111, Fault::Connect), (113, Fault::Connect)] {
            assert_eq!(connect_fault(&Outer(io::Error::from_raw_os_error(code))), fault, "{code}");
            let within = io::Error::other(Outer(io::Error::from_raw_os_error(code)));
            assert_eq!(connect_fault(&within), fault, "{code} within");
        }
    }
}
