//! Recorded traffic, once more (X8): under the policy that it had, to identical actions; or under another, side by side.
//!
//! See `docs/replay.md`.

pub mod explain;
pub mod facts;
pub mod figures;
mod host;
pub mod html;
mod lanes;
pub mod policy;
pub mod report;
pub mod same;
pub mod scan;
pub mod shelf;
pub mod whatif;
mod words;

pub use report::Comparison;
pub use same::{Same, same};
pub use scan::{ReadError, threads};
pub use whatif::{Trace, WhatIf, what_if};
