//! Leases: places that are held by name and fall back by themselves when nobody speaks for them.
//!
//! A look-up by id is one probe into an open table, the next expiry is the root of a heap that knows where everyone
//! stands in it: a settled lease leaves it at once. A lazy heap would keep one dead entry per attempt until its TTL; a
//! sorted list would move memory on every attempt. Nothing is allocated once the tables have grown.

use alloc::vec::Vec;

use crate::id::LeaseId;
use crate::time::Time;

/// Live leases with a value each.
#[derive(Clone, Debug)]
pub(super) struct Leases<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    index: IdMap,
    /// Slots, the earliest expiry first; `Slot::at` is the place in here.
    heap: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    id: LeaseId,
    expires: Time,
    at: u32,
    value: T,
}

impl<T: Copy> Leases<T> {
    pub(super) const fn new() -> Leases<T> {
        Leases { slots: Vec::new(), free: Vec::new(), index: IdMap::new(), heap: Vec::new() }
    }

    /// Live leases.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn get(&self, id: LeaseId) -> Option<&T> {
        self.index.get(id.0).map(|slot| &self.slots[slot as usize].value)
    }

    /// Adds a lease; one of that name that lives already is replaced.
    pub(super) fn insert(&mut self, id: LeaseId, expires: Time, value: T) {
        self.remove(id);
        let at = self.heap.len() as u32;
        let fresh = Slot { id, expires, at, value };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = fresh;
                slot
            }
            None => {
                self.slots.push(fresh);
                (self.slots.len() - 1) as u32
            }
        };
        self.index.insert(id.0, slot);
        self.heap.push(slot);
        self.sift_up(at as usize);
    }

    pub(super) fn remove(&mut self, id: LeaseId) -> Option<T> {
        let slot = self.index.remove(id.0)?;
        let at = self.slots[slot as usize].at as usize;
        self.heap.swap_remove(at);
        if let Some(moved) = self.heap.get(at) {
            self.slots[*moved as usize].at = at as u32;
            self.sift_down(at);
            self.sift_up(at);
        }
        self.free.push(slot);
        Some(self.slots[slot as usize].value)
    }

    /// Moves a lease's expiry; false when it does not live.
    pub(super) fn renew(&mut self, id: LeaseId, expires: Time) -> bool {
        let Some(slot) = self.index.get(id.0) else { return false };
        let slot = &mut self.slots[slot as usize];
        slot.expires = expires;
        let at = slot.at as usize;
        self.sift_down(at);
        self.sift_up(at);
        true
    }

    /// Takes a lease whose time has come, if there is one.
    pub(super) fn pop_expired(&mut self, now: Time) -> Option<(LeaseId, T)> {
        let slot = &self.slots[*self.heap.first()? as usize];
        if slot.expires > now {
            return None;
        }
        let id = slot.id;
        self.remove(id).map(|value| (id, value))
    }

    fn expires(&self, at: usize) -> Time {
        self.slots[self.heap[at] as usize].expires
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.slots[self.heap[a] as usize].at = a as u32;
        self.slots[self.heap[b] as usize].at = b as u32;
    }

    fn sift_up(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.expires(parent) <= self.expires(at) {
                return;
            }
            self.swap(at, parent);
            at = parent;
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.expires(child) < self.expires(least) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }
}

/// A map from ids to small numbers: linear probing, removal by shifting back, so no tombstones gather.
///
/// Its order is never looked at: what the pool decides can not depend on it.
#[derive(Clone, Debug)]
pub(super) struct IdMap {
    /// Key and value + 1; 0 = empty. A power of two long, at most half full.
    cells: Vec<(u64, u32)>,
    len: usize,
}

impl IdMap {
    pub(super) const fn new() -> IdMap {
        IdMap { cells: Vec::new(), len: 0 }
    }

    pub(super) fn get(&self, key: u64) -> Option<u32> {
        self.find(key).map(|at| self.cells[at].1 - 1)
    }

    pub(super) fn insert(&mut self, key: u64, value: u32) {
        if let Some(at) = self.find(key) {
            self.cells[at].1 = value + 1;
            return;
        }
        if (self.len + 1) * 2 > self.cells.len() {
            let doubled = alloc::vec![(0, 0); (self.cells.len() * 2).max(16)];
            for (key, value) in core::mem::replace(&mut self.cells, doubled) {
                if value != 0 {
                    self.place(key, value);
                }
            }
        }
        self.place(key, value + 1);
        self.len += 1;
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<u32> {
        let mut hole = self.find(key)?;
        let value = self.cells[hole].1 - 1;
        let mask = self.cells.len() - 1;
        let mut next = hole;
        loop {
            next = (next + 1) & mask;
            let (key, cell) = self.cells[next];
            if cell == 0 {
                break;
            }
            // It may move into the hole unless its home lies behind the hole.
            if (next.wrapping_sub(self.home(key)) & mask) >= (next.wrapping_sub(hole) & mask) {
                self.cells[hole] = (key, cell);
                hole = next;
            }
        }
        self.cells[hole] = (0, 0);
        self.len -= 1;
        Some(value)
    }

    fn home(&self, key: u64) -> usize {
        // Fibonacci hashing: ids that count up spread over the table.
        let mixed = (key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (self.cells.len() - 1)
    }

    fn find(&self, key: u64) -> Option<usize> {
        if self.cells.is_empty() {
            return None;
        }
        let mut at = self.home(key);
        loop {
            match self.cells[at] {
                (_, 0) => return None,
                (held, _) if held == key => return Some(at),
                _ => at = (at + 1) & (self.cells.len() - 1),
            }
        }
    }

    fn place(&mut self, key: u64, cell: u32) {
        let mut at = self.home(key);
        while self.cells[at].1 != 0 {
            at = (at + 1) & (self.cells.len() - 1);
        }
        self.cells[at] = (key, cell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against the obvious model: a map, searched for the earliest expiry.
        #[test]
        fn leases_behave_like_a_plain_map(ops in prop::collection::vec((0u8..4, 0u64..40, 0u64..100), 1..400)) {
            let (mut leases, mut model) = (Leases::new(), BTreeMap::new());
            for (op, id, time) in ops {
                let lease = LeaseId(id.wrapping_mul(0x1_0000_0001));
                match op {
                    0 => {
                        leases.insert(lease, Time(time), id);
                        model.insert(lease, (Time(time), id));
                    }
                    1 => prop_assert_eq!(leases.remove(lease), model.remove(&lease).map(|held| held.1)),
                    2 => {
                        let known = model.get_mut(&lease).map(|held| held.0 = Time(time)).is_some();
                        prop_assert_eq!(leases.renew(lease, Time(time)), known);
                    }
                    _ => {
                        let earliest = model.values().map(|held| held.0).min();
                        match leases.pop_expired(Time(time)) {
                            Some((id, _)) => prop_assert_eq!(model.remove(&id).map(|held| held.0), earliest),
                            None => prop_assert!(earliest.is_none_or(|earliest| earliest > Time(time))),
                        }
                    }
                }
                prop_assert_eq!(leases.len(), model.len());
                for (id, held) in &model {
                    prop_assert_eq!(leases.get(*id), Some(&held.1));
                }
            }
        }
    }

    #[test]
    fn settled_leases_leave_nothing_behind() {
        let mut leases = Leases::new();
        for id in 0..10_000 {
            leases.insert(LeaseId(id), Time(id), ());
            assert_eq!(leases.remove(LeaseId(id)), Some(()));
        }
        assert_eq!((leases.slots.len(), leases.heap.len(), leases.index.cells.len()), (1, 0, 16));
    }
}
