//! Surefoot's core.
#![cfg_attr(not(test), no_std)]
#![deny(missing_docs)]

extern crate alloc;

pub mod event;
pub mod gateway;
pub mod id;
pub mod outcome;
pub mod policy;
pub mod pool;
pub mod rng;
pub mod time;
pub mod wire;
