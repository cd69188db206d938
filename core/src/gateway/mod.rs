//! The gateway, as far as it is pure.

pub mod body;
mod form;
pub mod headers;
pub mod health;
