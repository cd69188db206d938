//! The Surefoot data plane on smol: the thin side of another reactor. What is decided, is decided in `surefoot-core`; what
//! every adapter needs, HTTP/1.1 too, stands in `surefoot-runtime`; here stand listeners, sockets, the timers and the tasks. No tokio is in this crate's tree.

pub mod cli;
pub mod executor;
pub mod reactor;
pub mod serve;
pub mod socket;
pub mod upstream;
