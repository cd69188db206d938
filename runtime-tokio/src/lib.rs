//! The Surefoot gateway on tokio: the thin side. What is decided, is decided in `surefoot-core`; here stand listeners, sockets,
//! HTTP/2 and the timers, the link to a store, and the commands. HTTP/1.1 and all that other adapters need as well comes from
//! `surefoot-runtime`.

pub mod cli;
pub mod commands;
pub mod demo;
pub mod mock;
pub mod reactor;
pub mod serve;
pub mod socket;
pub mod state;
pub mod upstream;

pub use surefoot_runtime::{admin, config_file, logging, trace_file};
