//! The other policy on the recorded traffic: the arrivals and what upstreams did are kept, everything between them is the
//! real gateway, call and pool on a virtual clock.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use serde_json::Value;
use surefoot_core::call::{Call, Judge};
use surefoot_core::drive::{Drive, Step};
use surefoot_core::event::{CancelCause, End, Incomplete};
use surefoot_core::id::CallId;
use surefoot_core::outcome::Outcome;
use surefoot_core::policy::Route;
use surefoot_core::policy::config::TraceMode;
use surefoot_core::time::{Span, Time};
use surefoot_core::trace::{Begin, RecordedCall, TraceError};
use surefoot_core::wire::Format;

use super::facts::{Book, Facts};
use super::host::{ReplayHost, Shared};
use super::policy::{Live, Other, PolicyError};
use super::scan::{ReadError, scan};
use super::shelf::{Record, Shelf};

/// Beginnings of processes so close to each other are one process's.
const SAME_PROCESS_MS: u64 = 5_000;

/// A call of the trace.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The line where it begins.
    pub line: usize,
    /// How it began; its times are on the clock of the whole trace.
    pub begin: Begin,
    /// The route that it had.
    pub route: Arc<Route>,
    /// What became of it.
    pub facts: Facts,
    records: Vec<Record>,
    complete: bool,
}

/// The calls of a trace on one clock.
#[derive(Debug)]
pub struct Trace {
    /// Those that ended by themselves, in the order of their arrival.
    pub calls: Vec<Recorded>,
    /// Calls without an end in the file, or ended by the gateway's stop: left out.
    pub left_out: usize,
    /// Processes that wrote the file.
    pub processes: usize,
    /// Lines that cannot be read; their calls are left out.
    pub problems: Vec<TraceError>,
}

impl Trace {
    /// Reads a file with so many threads.
    ///
    /// # Errors
    /// Where there is no trace at all.
    pub fn read(path: &Path, threads: usize) -> Result<Trace, ReadError> {
        let scan = scan(path, threads, load)?;
        let mut all: Vec<Recorded> =
            scan.calls.into_iter().map(|(line, recorded)| Recorded { line, ..recorded }).collect();
        let processes = one_clock(&mut all);
        let before = all.len();
        all.retain(|call| call.complete && !ends_with_process(call.facts.end.as_ref()));
        all.sort_by_key(|call| (call.facts.arrived, call.line));
        let left_out = before - all.len();
        Ok(Trace { calls: all, left_out, processes, problems: scan.problems })
    }
}

fn load(call: &RecordedCall) -> Recorded {
    Recorded {
        line: 0,
        begin: call.begin.clone(),
        route: call.route.clone(),
        facts: Book::of(call),
        records: Record::of(call, 0),
        complete: call.complete,
    }
}

fn ends_with_process(end: Option<&End>) -> bool {
    matches!(end, Some(End::Cancelled(CancelCause::Shutdown) | End::Incomplete(Incomplete::Shutdown)))
}

/// Each process counts its time from its own beginning: their calls are put on one clock by the wall's. The number of
/// processes.
fn one_clock(calls: &mut [Recorded]) -> usize {
    let origin = |call: &Recorded| call.begin.unix_ms.saturating_sub(call.begin.at.0 / 1000);
    let mut origins: Vec<u64> = Vec::new();
    let process = |call: &Recorded, origins: &[u64]| {
        origins.iter().position(|known| known.abs_diff(origin(call)) <= SAME_PROCESS_MS)
    };
    for call in calls.iter() {
        if process(call, &origins).is_none() {
            origins.push(origin(call));
        }
    }
    let first = origins.iter().min().copied().unwrap_or_default();
    for call in calls.iter_mut() {
        let own = process(call, &origins).and_then(|at| origins.get(at)).copied().unwrap_or(first);
        let shift = Span::from_millis(own - first);
        call.begin.at = call.begin.at.after(shift);
        call.facts.shift(shift);
        call.records.iter_mut().for_each(|record| record.started = record.started.after(shift));
    }
    origins.len()
}

/// What the other policy would have come to.
#[derive(Debug)]
pub struct WhatIf {
    /// What became of each call of the trace, in its order.
    pub calls: Vec<Facts>,
    /// What is worth knowing of how the figures came about.
    pub notes: Vec<String>,
}

/// Tries a policy's tree on a trace. All chance comes from `seed` and the calls' own seeds.
///
/// # Errors
/// A tree that is no policy, or not one for this trace.
pub fn what_if(
    trace: &Trace,
    policy: &Value,
    environment: &dyn Fn(&str) -> Option<String>,
    seed: u64,
) -> Result<WhatIf, PolicyError> {
    let mut live = Live::default();
    trace.calls.iter().for_each(|call| live.note(&call.route, call.begin.format));
    let other = live.other(policy, environment)?;
    let mut world = World::new(trace, other, seed);
    world.check_sources(&live.sources())?;
    world.run();
    Ok(world.close())
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrive(usize),
    Wake(usize, u32),
    Mail(usize),
}

struct Slot {
    drive: Drive<ReplayHost>,
    leaves: Option<(Time, CancelCause)>,
    turn: u32,
}

struct World<'a> {
    trace: &'a Trace,
    routes: BTreeMap<(Arc<str>, Format), Option<Arc<Route>>>,
    notes: Vec<String>,
    shared: Rc<RefCell<Shared>>,
    running: BTreeMap<usize, Slot>,
    queue: BinaryHeap<Reverse<(Time, u64, Happening)>>,
    sequence: u64,
    ended: Vec<Option<Facts>>,
}

impl<'a> World<'a> {
    fn new(trace: &'a Trace, other: Other, seed: u64) -> World<'a> {
        let mut routes = BTreeMap::new();
        for call in &trace.calls {
            let key = (call.route.model.clone(), call.begin.format);
            routes.entry(key).or_insert_with(|| {
                // A model that the configuration did not name has its provider's name in front, once asked for by itself.
                let real = call.route.candidates.first();
                let real = real.map(|candidate| format!("{}/{}", candidate.provider.name, candidate.model));
                other.route(&call.route.model, real.as_deref(), call.begin.format)
            });
        }
        let records =
            trace.calls.iter().enumerate().flat_map(|(place, call)| {
                call.records.iter().cloned().map(move |record| Record { call: place, ..record })
            });
        let shelf = Shelf::new(records.collect());
        let Other { pool, notes, .. } = other;
        let shared = Shared::new(seed, pool, shelf, trace.calls.iter().map(|call| call.route.clone()).collect());
        let mut world = World {
            trace,
            routes,
            notes,
            shared: Rc::new(RefCell::new(shared)),
            running: BTreeMap::new(),
            queue: BinaryHeap::new(),
            sequence: 0,
            ended: vec![None; trace.calls.len()],
        };
        for (place, call) in trace.calls.iter().enumerate() {
            world.at(call.facts.arrived, Happening::Arrive(place));
        }
        world
    }

    fn check_sources(&mut self, known: &BTreeSet<Arc<str>>) -> Result<(), PolicyError> {
        let mut wanted: BTreeSet<Arc<str>> = BTreeSet::new();
        for route in self.routes.values().flatten() {
            wanted.extend(route.candidates.iter().map(|candidate| candidate.source_name.clone()));
        }
        let list = |names: Vec<&Arc<str>>| names.iter().map(|name| &***name).collect::<Vec<_>>().join(", ");
        let unknown: Vec<&Arc<str>> = wanted.difference(known).collect();
        if !unknown.is_empty() {
            return Err(PolicyError::Sources { unknown: list(unknown), known: list(known.iter().collect()) });
        }
        let lost: Vec<String> = self
            .routes
            .iter()
            .filter(|(_, route)| route.is_none())
            .map(|((model, format), _)| format!("{model} ({})", format.as_str()))
            .collect();
        if !lost.is_empty() {
            self.notes.push(format!("not in the policy, so their calls fail with 404: {}", lost.join(", ")));
        }
        Ok(())
    }

    fn at(&mut self, at: Time, happening: Happening) {
        self.sequence += 1;
        self.queue.push(Reverse((at, self.sequence, happening)));
    }

    fn run(&mut self) {
        while let Some(Reverse((at, _, happening))) = self.queue.pop() {
            let now = {
                let mut shared = self.shared.borrow_mut();
                shared.now = shared.now.max(at);
                shared.now
            };
            match happening {
                Happening::Arrive(call) => self.begin(call),
                Happening::Wake(call, turn) => {
                    if self.running.get(&call).is_some_and(|slot| slot.turn == turn) {
                        self.turn(call);
                    }
                }
                Happening::Mail(call) => self.turn(call),
            }
            let ready = std::mem::take(&mut self.shared.borrow_mut().ready);
            for call in ready {
                self.at(now, Happening::Mail(call));
            }
        }
    }

    fn begin(&mut self, place: usize) {
        let Some(recorded) = self.trace.calls.get(place) else { return };
        let begin = &recorded.begin;
        let now = self.shared.borrow().now;
        let route = self.routes.get(&(recorded.route.model.clone(), begin.format)).cloned().flatten();
        let Some(route) = route else {
            self.shared.borrow_mut().close(place);
            return;
        };
        // Seeds are the recorded ones: under the policy that was live, chance falls as it fell. Names are new ones: those
        // of two processes may be the same.
        let call = Call::new(begin.plan(route.clone()), CallId(place as u64 + 1), begin.seed, now);
        let call = call.with_request_id(&begin.request_id);
        let masked = begin.mode == TraceMode::Redacted;
        let kind = (begin.format, begin.stream, masked);
        let host = ReplayHost::new(self.shared.clone(), place, route, kind, now);
        let leaves = match recorded.facts.end {
            Some(End::Cancelled(cause)) => Some((now.after(recorded.facts.ended.since(recorded.facts.arrived)), cause)),
            _ => None,
        };
        self.running.insert(place, Slot { drive: Drive::new(call, host), leaves, turn: 0 });
        self.turn(place);
    }

    /// Lets a call do all that it can do now.
    fn turn(&mut self, place: usize) {
        let now = self.shared.borrow().now;
        let mut cx = Context::from_waker(Waker::noop());
        let Some(slot) = self.running.get_mut(&place) else { return };
        let over = loop {
            if let Some((_, cause)) = slot.leaves.take_if(|(at, _)| *at <= now) {
                slot.drive.cancel(cause);
                break true;
            }
            match slot.drive.poll_next(&mut cx) {
                Poll::Ready(Step::Commit(_) | Step::Data(_)) => {}
                Poll::Ready(Step::End(_)) => break true,
                Poll::Pending => match slot.drive.host_mut().take_verdicts() {
                    Some(verdicts) => slot.drive.set_judge(Judge::Recorded(verdicts)),
                    None => break false,
                },
            }
        };
        if over {
            let slot = self.running.remove(&place);
            let book = slot.and_then(|mut slot| slot.drive.host_mut().book.take());
            if let Some(ended) = self.ended.get_mut(place) {
                *ended = book.map(Book::close);
            }
            self.shared.borrow_mut().close(place);
            return;
        }
        slot.turn += 1;
        let turn = slot.turn;
        let leaves = slot.leaves.map_or(Time::NEVER, |(at, _)| at);
        let next = slot.drive.host().next_event().min(leaves);
        if next != Time::NEVER {
            self.at(next, Happening::Wake(place, turn));
        }
    }

    fn close(self) -> WhatIf {
        let mut notes = self.notes;
        let unjudged = self.shared.borrow().unjudged;
        if unjudged > 0 {
            notes.push(format!(
                "the trace is redacted: in {unjudged} attempts the policy's own rules were applied to masked words, and \
                 may have missed what they look for"
            ));
        }
        let seen = self.shared.borrow().shelf.seen();
        let calls = self.trace.calls.iter().zip(self.ended);
        let calls: Vec<Facts> = calls.map(|(recorded, ended)| ended.unwrap_or_else(|| unserved(recorded))).collect();
        let tried: BTreeSet<&str> =
            calls.iter().flat_map(|call| &call.attempts).map(|attempt| &*attempt.source).collect();
        let unseen: Vec<&str> = tried.into_iter().filter(|source| !seen.contains_key(*source)).collect();
        if !unseen.is_empty() {
            notes.push(format!("never tried in the trace, so modelled on the other sources: {}", unseen.join(", ")));
        }
        WhatIf { calls, notes }
    }
}

/// A call of a model that the policy does not have.
fn unserved(recorded: &Recorded) -> Facts {
    let answer = surefoot_core::event::Answer {
        status: 404,
        body: bytes::Bytes::new(),
        as_sent: false,
        head: None,
        retry_after: None,
        stop: None,
        no_retry: true,
        choice: None,
        outcome: Outcome::RequestRejected,
    };
    let mut facts = Book::new(recorded.route.clone(), recorded.facts.arrived).close();
    facts.end = Some(End::Answer(Box::new(answer)));
    facts
}
