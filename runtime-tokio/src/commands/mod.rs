//! Commands that serve nobody: they look at what a gateway wrote.

pub mod explain;
pub mod replay;
