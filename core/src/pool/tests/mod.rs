//! The pool from outside: a world on a clock of its own.

mod contract;
mod laws;
mod selection;
mod waiting;
mod world;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::*;
use crate::id::SourceId;

pub(super) use world::*;

/// Gateways share a pool between threads, behind a lock of theirs.
const _: () = {
    const fn sendable<T: Send + 'static>() {}
    sendable::<Pool>();
};

/// The gate that stands in the pool itself. The gateway's tests run the same worlds over a store's gate.
pub(super) struct Backend;

impl Backend {
    fn begin() -> Backend {
        Backend
    }

    fn apply(&mut self, pool: &mut Pool, now: Time, op: &Op) -> Reply {
        pool.apply(now, op)
    }

    /// How a target stands at the gate, given how it stands in the pool.
    fn look<'a>(&self, _now: Time, view: TargetView<'a>) -> TargetView<'a> {
        view
    }
}
