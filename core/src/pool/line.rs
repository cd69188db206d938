//! The line: calls that wait for a place, first come first served (G14, G15).
//!
//! A waiter is asked again when a source that it considers has freed something, or when its own time has come; nobody
//! is woken to find the place gone. A list of waiters per source would find them faster, at the price of a link per
//! candidate and call; a mask of sources in a flat queue skips a waiter in a nanosecond or two.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::id::{LeaseId, SourceId};
use crate::time::{Span, Time};

use super::lease::IdMap;
use super::order::Question;
use super::{Refusal, Reserve, Roster, Standing};

/// Sources as bits. Two may share one: then a waiter is asked in vain, never forgotten.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sources(u64);

impl Sources {
    pub(super) const NONE: Sources = Sources(0);
    pub(super) const ALL: Sources = Sources(u64::MAX);
    /// So many have a bit of their own.
    pub(super) const EXACT: usize = 64;

    pub(super) fn add(&mut self, source: SourceId) {
        self.0 |= 1 << (source.0 % 64);
    }

    pub(super) fn remove(&mut self, source: SourceId) {
        self.0 &= !(1 << (source.0 % 64));
    }

    pub(super) const fn has(self, source: SourceId) -> bool {
        self.0 & 1 << (source.0 % 64) != 0
    }

    pub(super) const fn with(self, other: Sources) -> Sources {
        Sources(self.0 | other.0)
    }

    pub(super) const fn meets(self, other: Sources) -> bool {
        self.0 & other.0 != 0
    }
}

/// A place in line. Tickets count up: the smaller came first.
#[derive(Copy, Clone, Debug)]
pub(super) struct Waiter {
    pub(super) ticket: u64,
    pub(super) lease: LeaseId,
    /// Whom it considers.
    pub(super) sources: Sources,
    /// When it may be able to start by itself.
    pub(super) next: Time,
    /// The reason of its last refusal, and the soonest end of a rest or an open breaker, be it out of reach.
    pub(super) why: Refusal,
    pub(super) soonest: Option<Time>,
    /// When its call asks again unasked, as far as it was told to.
    pub(super) told: Time,
    /// After this its call waits no more.
    pub(super) wait_until: Time,
    /// Where its request is kept.
    slot: u32,
}

/// A waiter's request. Kept in slots that are used again: standing in line allocates nothing once warm.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    pub(super) roster: Option<Arc<Roster>>,
    pub(super) standing: Vec<Standing>,
    pub(super) sticky: u16,
    pub(super) draw: u64,
    pub(super) tokens: u32,
    pub(super) wait_until: Time,
    pub(super) ttl: Span,
    pub(super) turn: u32,
}

impl Request {
    fn take_in(&mut self, reserve: &Reserve, turn: u32) {
        self.roster = Some(Arc::clone(&reserve.roster));
        self.standing.clear();
        self.standing.extend_from_slice(&reserve.standing);
        self.sticky = reserve.sticky;
        self.draw = reserve.draw;
        self.tokens = reserve.tokens;
        self.wait_until = reserve.wait_until;
        self.ttl = reserve.ttl;
        self.turn = turn;
    }

    /// The order's question, if the slot is taken.
    pub(super) fn question(&self) -> Option<Question<'_>> {
        Some(Question {
            roster: self.roster.as_deref()?,
            standing: &self.standing,
            sticky: self.sticky,
            draw: self.draw,
            turn: self.turn,
        })
    }
}

/// Everyone who waits.
#[derive(Clone, Debug)]
pub(super) struct Line {
    waiters: VecDeque<Waiter>,
    requests: Vec<Request>,
    free: Vec<u32>,
    /// Lease → slot; the slot's ticket is in `tickets`.
    index: IdMap,
    tickets: Vec<u64>,
    next_ticket: u64,
}

impl Line {
    pub(super) const fn new() -> Line {
        Line {
            waiters: VecDeque::new(),
            requests: Vec::new(),
            free: Vec::new(),
            index: IdMap::new(),
            tickets: Vec::new(),
            next_ticket: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<&Waiter> {
        self.waiters.get(at)
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Waiter> {
        self.waiters.get_mut(at)
    }

    /// The place of a lease in line.
    pub(super) fn position(&self, lease: LeaseId) -> Option<usize> {
        let ticket = *self.tickets.get(self.index.get(lease.0)? as usize)?;
        self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
    }

    /// The ticket that the next newcomer would get.
    pub(super) const fn next_ticket(&self) -> u64 {
        self.next_ticket
    }

    /// The turn that a waiter's request began with.
    pub(super) fn turn(&self, at: usize) -> u32 {
        self.waiters.get(at).and_then(|waiter| self.requests.get(waiter.slot as usize)).map_or(0, |kept| kept.turn)
    }

    /// Puts a newcomer at the end; its place.
    pub(super) fn join(&mut self, reserve: &Reserve, turn: u32) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.requests.push(Request::default());
            self.tickets.push(0);
            (self.requests.len() - 1) as u32
        });
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.tickets[slot as usize] = ticket;
        self.index.insert(reserve.lease.0, slot);
        self.waiters.push_back(Waiter {
            ticket,
            lease: reserve.lease,
            sources: Sources::NONE,
            next: Time::NEVER,
            why: Refusal::Nothing,
            soonest: None,
            told: Time::NEVER,
            wait_until: reserve.wait_until,
            slot,
        });
        self.requests[slot as usize].take_in(reserve, turn);
        self.waiters.len() - 1
    }

    /// Takes over what a waiter asks for now; its place and turn stay.
    pub(super) fn update(&mut self, at: usize, reserve: &Reserve) {
        let turn = self.turn(at);
        self.extend(at, reserve.wait_until);
        if let Some(waiter) = self.waiters.get(at) {
            self.requests[waiter.slot as usize].take_in(reserve, turn);
        }
    }

    /// Lets a waiter wait until then.
    pub(super) fn extend(&mut self, at: usize, wait_until: Time) {
        if let Some(waiter) = self.waiters.get_mut(at) {
            waiter.wait_until = wait_until;
            self.requests[waiter.slot as usize].wait_until = wait_until;
        }
    }

    /// The waiter whose time comes first, and when.
    pub(super) fn first_due(&self) -> Option<&Waiter> {
        self.waiters.iter().min_by_key(|waiter| (waiter.next, waiter.ticket)).filter(|first| first.next != Time::NEVER)
    }

    /// Whoever asks again by then unasked.
    pub(super) fn asking_by(&self, due: Time) -> Option<&Waiter> {
        self.waiters.iter().find(|waiter| waiter.told <= due)
    }

    /// Removes a waiter.
    pub(super) fn leave(&mut self, at: usize) -> Option<Waiter> {
        let waiter = self.waiters.remove(at)?;
        self.index.remove(waiter.lease.0);
        self.requests[waiter.slot as usize].roster = None;
        self.free.push(waiter.slot);
        Some(waiter)
    }

    /// Lends a waiter's request out; it must come back through [`Line::give_back`].
    pub(super) fn lend(&mut self, at: usize) -> Request {
        match self.waiters.get(at) {
            Some(waiter) => core::mem::take(&mut self.requests[waiter.slot as usize]),
            None => Request::default(),
        }
    }

    pub(super) fn give_back(&mut self, at: usize, request: Request) {
        if let Some(waiter) = self.waiters.get(at) {
            self.requests[waiter.slot as usize] = request;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Strategy;

    fn reserve(lease: u64) -> Reserve {
        Reserve {
            lease: LeaseId(lease),
            roster: Arc::new(Roster { id: 0, strategy: Strategy::Priority, entries: Vec::new() }),
            standing: Vec::new(),
            sticky: 1,
            draw: 0,
            tokens: 0,
            wait_until: Time(lease),
            ttl: Span(1),
            queue: true,
        }
    }

    #[test]
    fn places_stay_in_the_order_of_arrival_whoever_leaves() {
        let mut line = Line::new();
        for lease in 1..=4 {
            line.join(&reserve(lease), 0);
        }
        assert_eq!(line.position(LeaseId(3)), Some(2));
        let second = line.position(LeaseId(2)).and_then(|at| line.leave(at));
        assert_eq!(second.map(|waiter| waiter.lease), Some(LeaseId(2)));
        line.join(&reserve(9), 0);
        let leases: Vec<u64> = (0..line.len()).filter_map(|at| line.get(at)).map(|w| w.lease.0).collect();
        assert_eq!(leases, [1, 3, 4, 9]);
        assert_eq!((line.position(LeaseId(9)), line.position(LeaseId(2))), (Some(3), None));
        assert_eq!(line.requests.len(), 4, "the slot of the one who left was used again");
    }
}
