//! The side that faces the providers: connections, and HTTP over them, driven by the call that uses them.

mod connector;
mod link;
mod proxy;
mod socks;
mod stream;
#[cfg(test)]
mod tests;

pub use connector::Connector;
pub use link::Link;
pub use proxy::Proxies;
