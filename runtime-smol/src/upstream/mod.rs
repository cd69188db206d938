//! The side that faces the providers: connections, and HTTP over them, driven by the call that uses them.

mod connector;
mod proxy;
mod socks;
#[cfg(test)]
mod tests;

pub use connector::Connector;
pub use proxy::Proxies;

use crate::socket::Socket;

/// A connection to an upstream, and HTTP over it.
pub type Link = surefoot_runtime::http1::Link<Socket>;
