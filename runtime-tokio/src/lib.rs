//! The Surefoot gateway on tokio: the thin side. What is decided, is decided in `surefoot-core`; here stand the server, the
//! connections to providers, the timers, the configuration's file, the log and the admin side.

pub mod admin;
pub mod cli;
pub mod config_file;
pub mod demo;
mod logging;
pub mod mock;
pub mod serve;
pub mod trace_file;
pub mod upstream;
