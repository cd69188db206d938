//! Calls that wait for a place at the shared gate, first come first served within this process.
//!
//! The store cannot tell when another gateway frees a place, so those in line ask: from the head, one question after the
//! other, whenever something frees here, a newcomer wants what they want, or some time has passed. Across gateways the
//! first to ask gets the place.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use surefoot_core::id::{LeaseId, TargetId};
use surefoot_core::pool::{Reserve, Verdict};

use crate::serve::gate::Place;

/// One who waits.
#[derive(Debug)]
pub(super) struct Waiter {
    /// What it asks for.
    pub(super) reserve: Reserve,
    /// Where its answer goes.
    pub(super) place: Arc<Place>,
    /// Its call waits for an answer, be it a refusal; others only hear of a grant.
    pub(super) wants_answer: bool,
}

/// Everyone who waits, and how far they were asked.
#[derive(Debug, Default)]
pub(super) struct Line {
    waiters: BTreeMap<u64, Waiter>,
    tickets: HashMap<LeaseId, u64>,
    next_ticket: u64,
    /// How many want each target.
    wanted: HashMap<TargetId, u32>,
    /// Where this pass goes on.
    cursor: u64,
    /// Everyone is to be asked anew after this pass.
    again: bool,
    /// The one who is being asked.
    asked: Option<LeaseId>,
    /// Targets that nobody could start at, whoever asked: the rest of the pass need not ask for them.
    shut: HashSet<TargetId>,
}

impl Line {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn get_mut(&mut self, lease: LeaseId) -> Option<&mut Waiter> {
        self.waiters.get_mut(self.tickets.get(&lease)?)
    }

    /// Whether somebody in line wants a target that `reserve` wants too.
    pub(super) fn is_ahead_of(&self, reserve: &Reserve) -> bool {
        !self.waiters.is_empty() && targets(reserve).any(|target| self.wanted.contains_key(&target))
    }

    /// Puts a newcomer at the end.
    pub(super) fn join(&mut self, waiter: Waiter) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        for target in targets(&waiter.reserve) {
            *self.wanted.entry(target).or_default() += 1;
        }
        self.tickets.insert(waiter.reserve.lease, ticket);
        self.waiters.insert(ticket, waiter);
    }

    /// Takes over what one in line asks for now; it keeps its place.
    pub(super) fn update(&mut self, reserve: Reserve, place: Arc<Place>) {
        let Some(waiter) = self.tickets.get(&reserve.lease).and_then(|ticket| self.waiters.get_mut(ticket)) else {
            return;
        };
        let old = std::mem::replace(&mut waiter.reserve, reserve);
        (waiter.place, waiter.wants_answer) = (place, true);
        for target in targets(&waiter.reserve) {
            *self.wanted.entry(target).or_default() += 1;
        }
        self.unwant(&old);
    }

    /// Takes one out.
    pub(super) fn leave(&mut self, lease: LeaseId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&self.tickets.remove(&lease)?)?;
        self.unwant(&waiter.reserve);
        Some(waiter)
    }

    fn unwant(&mut self, reserve: &Reserve) {
        for target in targets(reserve) {
            if let Some(count) = self.wanted.get_mut(&target) {
                *count -= 1;
                if *count == 0 {
                    self.wanted.remove(&target);
                }
            }
        }
    }

    /// Something may have freed: everyone is asked, from the head.
    pub(super) fn ask_everyone(&mut self) {
        self.again = true;
    }

    /// The next one to be asked, unless somebody is being asked. One at a time: an earlier answer decides who is next.
    pub(super) fn next(&mut self) -> Option<Reserve> {
        while self.asked.is_none() {
            let Some((ticket, waiter)) = self.waiters.range(self.cursor..).next() else {
                if !std::mem::take(&mut self.again) || self.waiters.is_empty() {
                    return None;
                }
                self.cursor = 0;
                self.shut.clear();
                continue;
            };
            self.cursor = ticket + 1;
            if waiter.wants_answer || targets(&waiter.reserve).any(|target| !self.shut.contains(&target)) {
                self.asked = Some(waiter.reserve.lease);
                return Some(waiter.reserve.clone());
            }
        }
        None
    }

    /// The one who was asked has its answer; what was found on the way, candidate by candidate.
    pub(super) fn answered(&mut self, found: impl Iterator<Item = (TargetId, Verdict)>) {
        self.asked = None;
        let shut = |verdict| {
            use Verdict::{Breaker, Concurrency, Paced, Requests, Resting};
            matches!(verdict, Breaker | Resting | Paced | Concurrency | Requests)
        };
        self.shut.extend(found.filter(|(_, verdict)| shut(*verdict)).map(|(target, _)| target));
    }
}

/// The targets that a reservation considers.
fn targets(reserve: &Reserve) -> impl Iterator<Item = TargetId> {
    let out = |at: usize| reserve.standing.get(at).is_some_and(|standing| standing.out);
    reserve.roster.entries.iter().enumerate().filter(move |(at, _)| !out(*at)).map(|(_, entry)| entry.target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use surefoot_core::pool::{Entry, Roster, Standing, Strategy};
    use surefoot_core::time::{Span, Time};

    fn waiter(lease: u64, wanted: &[u32], wants_answer: bool) -> Waiter {
        let entries = wanted.iter().map(|target| Entry { target: TargetId(*target), tier: 0 }).collect();
        let reserve = Reserve {
            lease: LeaseId(lease),
            roster: Arc::new(Roster { id: 0, strategy: Strategy::Priority, entries }),
            standing: Vec::new(),
            sticky: 1,
            draw: 0,
            tokens: 0,
            wait_until: Time::NEVER,
            ttl: Span::from_secs(1),
            queue: true,
        };
        Waiter { reserve, place: Arc::default(), wants_answer }
    }

    fn pass(line: &mut Line, verdict: Verdict) -> Vec<u64> {
        let mut asked = Vec::new();
        while let Some(reserve) = line.next() {
            asked.push(reserve.lease.0);
            assert!(line.next().is_none(), "one at a time");
            let found: Vec<_> = targets(&reserve).map(|target| (target, verdict)).collect();
            line.answered(found.into_iter());
        }
        asked
    }

    #[test]
    fn a_pass_asks_in_order_and_nobody_in_vain() {
        let mut line = Line::default();
        for (lease, wanted) in [(1, &[0u32, 1][..]), (2, &[1]), (3, &[2]), (4, &[0])] {
            line.join(waiter(lease, wanted, false));
        }
        assert_eq!(pass(&mut line, Verdict::Concurrency), [1, 3], "2 and 4 want what was full for 1");
        assert!(pass(&mut line, Verdict::Concurrency).is_empty(), "nothing new");
        line.ask_everyone();
        assert_eq!(pass(&mut line, Verdict::Tokens), [1, 2, 3, 4], "tokens differ from call to call");
        if let Some(waiter) = line.get_mut(LeaseId(4)) {
            waiter.wants_answer = true;
        }
        line.ask_everyone();
        assert_eq!(pass(&mut line, Verdict::Paced), [1, 3, 4], "who asked is answered");
    }

    #[test]
    fn newcomers_stand_behind_those_who_want_the_same() {
        let mut line = Line::default();
        let (first, same, other) = (waiter(1, &[0, 1], false), waiter(2, &[1], false), waiter(3, &[2], false));
        assert!(!line.is_ahead_of(&first.reserve));
        line.join(first);
        assert!(line.is_ahead_of(&same.reserve) && !line.is_ahead_of(&other.reserve));
        let out = |out| Standing { out, ..Standing::default() };
        let narrowed = Reserve { standing: vec![out(false), out(true)], ..waiter(1, &[0, 1], false).reserve };
        line.update(narrowed, Arc::default());
        assert!(!line.is_ahead_of(&same.reserve), "the first wants it no more");
        assert!(line.get_mut(LeaseId(1)).is_some_and(|waiter| waiter.wants_answer));
        assert!(line.leave(LeaseId(1)).is_some() && line.leave(LeaseId(1)).is_none());
        assert!(line.wanted.is_empty() && line.len() == 0);
    }
}
