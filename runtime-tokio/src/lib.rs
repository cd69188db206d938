//! The Surefoot gateway on tokio.
