//! Surefoot's core.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

pub mod id;
pub mod outcome;
pub mod policy;
pub mod pool;
pub mod rng;
pub mod time;
pub mod wire;
