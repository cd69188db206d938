//! The shared gate: several gateways on one store see one breaker, one set of limits, one pushback (G18). Here stands what
//! needs no reactor; an adapter brings the way to the store, if it has one.
//!
//! | file | does |
//! |---|---|
//! | `book` | under the pool's lock: what is asked, who waits for which answer, who stands in line |
//! | `line` | calls that wait for a place, first come first served |
//!
//! A command never waits: it is handed to the [`Carrier`], and its reply comes to the call's
//! [`Place`](crate::serve::gate::Place) by way of a [`BookKeeper`](crate::serve::gate::BookKeeper). While the store cannot
//! be reached the same commands are answered by the gate in memory, which keeps the store's book all along, or are
//! refused, as `state.on_down` says.

mod book;
mod line;

use std::fmt;

pub use self::book::{Book, Job};

/// Takes commands to the store. Called under the pool's lock: must not wait.
pub trait Carrier: fmt::Debug + Send {
    /// Takes a job over, to be answered through the [`BookKeeper`](crate::serve::gate::BookKeeper) in the order in which
    /// jobs came. One that it gives back is answered without the store.
    fn carry(&self, job: Job) -> Option<Job>;
}
