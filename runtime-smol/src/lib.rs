//! The Surefoot data plane on smol: the thin side of another reactor. What is decided, is decided in `surefoot-core`; what
//! every adapter needs, stands in `surefoot-runtime`; here stand the server, the connections to providers, the timers and
//! the tasks. No tokio is in this crate's tree.

pub mod cli;
pub mod executor;
mod http1;
pub mod reactor;
pub mod serve;
pub mod upstream;
