//! The side that faces the providers: connections, and HTTP over them.
//!
//! An HTTP/1 connection is driven by the call that uses it, in the call's own task: a chunk costs one wake-up. A client
//! that gives every connection a task of its own costs a second wake-up and a queue for each chunk, most often on
//! another core.

mod connector;
mod link;
mod relay;
mod stream;
#[cfg(test)]
mod tests;

pub use connector::Connector;
pub use link::Link;
pub use surefoot_runtime::upstream::{News, OPENED_MAX, Order, Origin};

use crate::reactor::Tokio;

/// One origin's connections.
pub type Upstream = surefoot_runtime::upstream::Upstream<Tokio>;
/// Every origin in use.
pub type Upstreams = surefoot_runtime::upstream::Upstreams<Tokio>;
/// An exchange under way.
pub type Exchange = surefoot_runtime::upstream::Exchange<Tokio>;
