//! What every adapter of Surefoot needs and no reactor is needed for: the configuration's file, the log, the books, the
//! answers' heads, and a call's means, generic over the few things that only a reactor brings ([`reactor::Reactor`]).
//!
//! The core has no clock and no thread; this crate has both, and locks, but no socket that it would wait for. What decides
//! anything stands in `surefoot-core`; what polls a socket or a timer stands in the adapters.

pub mod admin;
pub mod cli;
pub mod config_file;
pub mod logging;
pub mod reactor;
pub mod serve;
pub mod state;
pub mod trace_file;
pub mod upstream;
