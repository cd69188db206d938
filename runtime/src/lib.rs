//! What every adapter of Surefoot needs and no reactor is needed for: the configuration's file, the log, HTTP/1.1
//! ([`http1`]), the books, the answers' heads, and a call's means, generic over the few things that only a reactor brings ([`reactor::Reactor`]).
//!
//! The core has no clock and no thread; this crate has both, and locks, but no socket of its own. What decides anything
//! stands in `surefoot-core`; the sockets and timers that are polled come from the adapters.

pub mod admin;
pub mod cli;
pub mod config_file;
pub mod http1;
pub mod logging;
pub mod reactor;
pub mod serve;
pub mod state;
pub mod trace_file;
pub mod upstream;
