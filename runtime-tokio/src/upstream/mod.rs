//! The side that faces the providers: connections, their reuse, and one attempt's exchange over one of them.
//!
//! An HTTP/1 connection is driven by the call that uses it, in the call's own task: a chunk costs one wake-up. A client
//! that gives every connection a task of its own costs a second wake-up and a queue for each chunk, most often on
//! another core.

mod coding;
mod connector;
mod exchange;
mod link;
mod relay;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

pub use coding::OPENED_MAX;
pub use connector::{Connector, Origin};
pub use exchange::{Exchange, News, Order};

use link::{H1, H2, Link};

/// How long an unused connection is kept: below the 60 s after which common load balancers drop theirs.
const IDLE_MAX: Duration = Duration::from_secs(50);
/// Unused connections kept for one origin.
const IDLE_COUNT_MAX: usize = 512;
/// Requests at a time over one HTTP/2 connection: the least that servers are advised to allow.
const H2_SHARE: usize = 100;

/// One origin's connections.
#[derive(Debug)]
pub struct Upstream {
    origin: Origin,
    connector: Arc<Connector>,
    idle: Mutex<Vec<(Instant, H1)>>,
    shared: Mutex<Vec<H2>>,
}

impl Upstream {
    /// Where it goes.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// A connection that is there already: the one used last, which is the least likely to have died meanwhile.
    fn reuse(&self) -> Option<Link> {
        if self.origin.https
            && let Some(link) = self.reuse_h2()
        {
            return Some(link);
        }
        loop {
            let (since, mut h1) = lock(&self.idle).pop()?;
            if since.elapsed() < IDLE_MAX && h1.is_usable() {
                return Some(Link::H1(h1));
            }
        }
    }

    fn reuse_h2(&self) -> Option<Link> {
        let mut shared = lock(&self.shared);
        shared.retain(H2::is_open);
        shared.iter().find(|h2| h2.in_flight() < H2_SHARE).map(|h2| Link::H2(h2.share()))
    }

    fn keep_h2(&self, h2: &H2) {
        lock(&self.shared).push(h2.share());
    }

    /// Takes a connection back that is at rest between two requests; any other is dropped.
    fn put_back(&self, mut h1: H1) {
        if !h1.is_usable() {
            return;
        }
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_COUNT_MAX {
            idle.push((Instant::now(), h1));
        }
    }

    /// Drops the connections that are too old or were closed by the peer.
    fn sweep(&self) {
        // Taken out first: looking at a connection runs its state machine, which is not for under a lock.
        let kept = std::mem::take(&mut *lock(&self.idle));
        let mut kept: Vec<_> = kept
            .into_iter()
            .filter_map(|(since, mut h1)| (since.elapsed() < IDLE_MAX && h1.is_usable()).then_some((since, h1)))
            .collect();
        let mut idle = lock(&self.idle);
        kept.append(&mut idle);
        *idle = kept;
        drop(idle);
        lock(&self.shared).retain(H2::is_open);
    }
}

/// Every origin in use. Survives reloads, and so do the connections.
#[derive(Debug)]
pub struct Upstreams {
    connector: Arc<Connector>,
    known: Mutex<HashMap<Origin, Weak<Upstream>>>,
}

impl Upstreams {
    /// No origins yet.
    pub fn new(connector: Connector) -> Upstreams {
        Upstreams { connector: Arc::new(connector), known: Mutex::new(HashMap::new()) }
    }

    /// The connections of `origin`, shared with everyone else who asks for it.
    pub fn get(&self, origin: Origin) -> Arc<Upstream> {
        let mut known = lock(&self.known);
        if let Some(upstream) = known.get(&origin).and_then(Weak::upgrade) {
            return upstream;
        }
        if origin.https {
            self.connector.warm_tls();
        }
        let upstream = Arc::new(Upstream {
            origin: origin.clone(),
            connector: self.connector.clone(),
            idle: Mutex::default(),
            shared: Mutex::default(),
        });
        known.insert(origin, Arc::downgrade(&upstream));
        upstream
    }

    /// Closes what is unused for long. To be called every few seconds.
    pub fn sweep(&self) {
        let all: Vec<Arc<Upstream>> = {
            let mut known = lock(&self.known);
            known.retain(|_, upstream| upstream.strong_count() > 0);
            known.values().filter_map(Weak::upgrade).collect()
        };
        for upstream in all {
            upstream.sweep();
        }
    }
}

/// A lock whose holder panicked is no reason to stop: every change under these locks is one step.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
