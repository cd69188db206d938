//! Commands that serve nobody: they look at what a gateway wrote, or play worlds.

pub mod explain;
pub mod replay;
pub mod sim;
