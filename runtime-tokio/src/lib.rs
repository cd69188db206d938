//! The Surefoot gateway on tokio.

pub mod upstream;
