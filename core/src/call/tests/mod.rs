//! The call against the real pool, on a clock that the tests own.

mod budgets;
mod endings;
pub(crate) mod harness;
mod laws;
mod matrix;
mod windows;
