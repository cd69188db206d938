//! A world: one clock, clients, a gateway, its pool, upstreams. Events run in the order of `(time, sequence)`.

pub mod client;
pub mod episode;
pub mod host;
pub mod log;
pub mod record;
pub mod script;
pub mod shared;
pub mod site;
pub mod speech;
pub mod tape;
pub mod told;
pub mod trouble;

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use surefoot_core::call::Call;
use surefoot_core::drive::{Drive, Step};
use surefoot_core::event::{CancelCause, End};
use surefoot_core::gateway::models::Inventory;
use surefoot_core::gateway::{Gateway, RequestHead, Routed, pool_settings};
use surefoot_core::id::CallId;
use surefoot_core::policy::{Plan, config};
use surefoot_core::pool::{Pool, TargetView};
use surefoot_core::time::{Span, Time};

use self::client::Client;
use self::host::{Shared, SimHost};
use self::log::{Coverage, Keep, Log, Watch};
use self::record::Record;
use self::shared::Fleet;
use crate::invariants::{Checks, Violation};
use crate::rng::{Concern, Stream};
use crate::scenario::Scenario;

/// Events of a run at most: whatever is drawn, a run ends.
const MAX_RECORDS: u64 = 30_000_000;

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The hash of all its events.
    pub hash: u64,
    /// Events.
    pub records: u64,
    /// Calls that began.
    pub calls: u64,
    /// Simulated time.
    pub took: Span,
    /// How often each input met each phase.
    pub coverage: Coverage,
    /// The first thing that was wrong.
    pub violation: Option<Violation>,
    /// The kept lines.
    pub lines: Vec<String>,
    /// What counted.
    pub tally: Tally,
}

/// What is counted of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls by how they ended: complete, incomplete, upstream's error, broken, answered, cancelled.
    pub ends: [u64; 6],
    /// Each call: its end and attempts, by its number.
    pub calls: Vec<CallTally>,
}

/// One call's figures.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTally {
    /// It ended complete.
    pub complete: bool,
    /// The status of an answer in place of one; else 0.
    pub status: u16,
    /// Attempts.
    pub attempts: u32,
    /// From its arrival to its end.
    pub took: Span,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrive(u32),
    Work,
    Wake(u32, u32),
    Mail(u32),
    Store,
    Fleet,
    Reload(u32),
    Heal,
    Judge,
}

struct Slot {
    drive: Drive<SimHost>,
    client: Client,
    arrived: Time,
    leaves: Option<(Time, CancelCause)>,
    resumes: Time,
    turn: u32,
    gone: bool,
}

/// A run under way.
pub struct World {
    scenario: Arc<Scenario>,
    shared: Rc<RefCell<Shared>>,
    gateway: Gateway,
    calls: BTreeMap<u32, Slot>,
    queue: BinaryHeap<Reverse<(Time, u64, Happening)>>,
    sequence: u64,
    begun: u32,
    next_client: usize,
    store_watched: Time,
    fleet_watched: Time,
    tally: Tally,
}

fn gateway(tree: &serde_json::Value, now: Time, pool: Option<&mut Pool>) -> (Gateway, Option<Pool>) {
    let read = config::read(tree, &|_| None);
    let config =
        Arc::new(read.unwrap_or_else(|problems| panic!("a scenario's configuration is wrong: {problems:?}\n{tree}")));
    let inventory = Inventory::new(&config, now);
    match pool {
        Some(pool) => (Gateway::build(config, &inventory, pool), None),
        None => {
            let mut pool = Pool::new(pool_settings(&config));
            let gateway = Gateway::build(config, &inventory, &mut pool);
            (gateway, Some(pool))
        }
    }
}

impl World {
    /// A world at its beginning. Without `judged` nothing is checked.
    pub fn new(scenario: Arc<Scenario>, keep: Keep, judged: bool) -> World {
        let (built, pool) = gateway(&scenario.tree, Time::ZERO, None);
        let checks = judged.then(|| Checks::new(&scenario));
        let pool = pool.unwrap_or_else(|| Pool::new(pool_settings(built.config())));
        let mut shared = Shared::new(scenario.seed, pool, Log::new(keep, checks));
        shared.sites.clone_from(&scenario.sites);
        shared.places = scenario.sites.iter().enumerate().map(|(at, site)| (site.name.clone(), at)).collect();
        shared.accounts.clone_from(&scenario.accounts);
        shared.episodes.clone_from(&scenario.episodes);
        shared.chunking = scenario.chunking;
        shared.refuses_words = scenario.refuses_words;
        shared.longest_hint = scenario.longest_hint;
        shared.store_latency = scenario.store_latency;
        shared.late_ppm = scenario.late_ppm;
        shared.fleet = scenario.sharing.as_ref().map(|sharing| {
            let mut fleet = Fleet::new(scenario.seed, sharing, &pool_settings(built.config()));
            fleet.pools().for_each(|pool| drop(gateway(&scenario.tree, Time::ZERO, Some(pool))));
            fleet
        });
        let mut world = World {
            shared: Rc::new(RefCell::new(shared)),
            gateway: built,
            calls: BTreeMap::new(),
            queue: BinaryHeap::new(),
            sequence: 0,
            begun: 0,
            next_client: 0,
            store_watched: Time::NEVER,
            fleet_watched: Time::NEVER,
            tally: Tally::default(),
            scenario: scenario.clone(),
        };
        world.tell_configuration();
        let present = |(index, _): &(usize, _)| !scenario.absent.contains(&(*index as u32));
        for (index, (at, _)) in scenario.arrivals.iter().enumerate().filter(present) {
            world.at(*at, Happening::Arrive(index as u32));
        }
        scenario.workers.iter().for_each(|at| world.at(*at, Happening::Work));
        for (index, (at, _)) in scenario.reloads.iter().enumerate() {
            world.at(*at, Happening::Reload(index as u32));
        }
        if let Some(heal) = &scenario.heal {
            world.at(heal.at, Happening::Heal);
            world.at(heal.judged, Happening::Judge);
        }
        world
    }

    /// Tells every event to `watcher`, too.
    pub fn watch(&mut self, watcher: Box<dyn Watch>) {
        self.shared.borrow_mut().log.watch(watcher);
    }

    /// Lets the breakers forget that healthy evidence suppresses the consecutive channel (G4), until a reload: no
    /// configuration says so. The judges know the rule, a world without it is not to be judged.
    pub fn without_suppression(&mut self) {
        let mut settings = pool_settings(self.gateway.config());
        settings.breaker.suppress = false;
        self.shared.borrow_mut().pool.configure(settings);
    }

    /// Runs to the end, or to the first thing that is wrong.
    pub fn run(mut self) -> Report {
        let mut sane = true;
        while let Some(Reverse((at, _, happening))) = self.queue.pop() {
            {
                let mut shared = self.shared.borrow_mut();
                shared.now = shared.now.max(at);
            }
            self.happen(happening);
            self.watch_mail();
            let shared = self.shared.borrow();
            if shared.log.violation().is_some() {
                break;
            }
            if shared.log.records() > MAX_RECORDS {
                sane = false;
                break;
            }
        }
        self.close(sane)
    }

    fn at(&mut self, at: Time, happening: Happening) {
        self.sequence += 1;
        self.queue.push(Reverse((at, self.sequence, happening)));
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrive(index) => {
                let scenario = self.scenario.clone();
                self.begin(index, scenario.arrivals[index as usize].1.clone());
            }
            Happening::Work => self.work(),
            Happening::Wake(call, turn) => {
                if self.calls.get(&call).is_some_and(|slot| slot.turn == turn) {
                    self.turn(call);
                }
            }
            Happening::Mail(call) => {
                if self.calls.contains_key(&call) {
                    self.turn(call);
                } else {
                    self.shared.borrow_mut().mail.remove(&call);
                }
            }
            Happening::Store => {
                self.store_watched = Time::NEVER;
                self.shared.borrow_mut().serve_store();
            }
            Happening::Fleet => {
                self.fleet_watched = Time::NEVER;
                self.shared.borrow_mut().run_fleet();
            }
            Happening::Reload(index) => self.reload(index as usize),
            Happening::Heal => self.heal(),
            Happening::Judge => self.note(&Record::Judged),
        }
    }

    fn note(&mut self, record: &Record<'_>) {
        let mut shared = self.shared.borrow_mut();
        let now = shared.now;
        shared.log.record(now, record);
    }

    /// Grants and replies wake those that they are for.
    fn watch_mail(&mut self) {
        let (ready, store, fleet) = {
            let mut shared = self.shared.borrow_mut();
            let store = shared.to_store.front().map_or(Time::NEVER, |(due, ..)| *due);
            let fleet = shared.fleet.as_ref().map_or(Time::NEVER, Fleet::next);
            (std::mem::take(&mut shared.ready), store, fleet)
        };
        for (due, call) in ready {
            self.at(due, Happening::Mail(call));
        }
        if store < self.store_watched {
            self.store_watched = store;
            self.at(store, Happening::Store);
        }
        if fleet < self.fleet_watched {
            self.fleet_watched = fleet;
            self.at(fleet, Happening::Fleet);
        }
    }

    /// A worker takes the next client, as soon as the one before is served.
    fn work(&mut self) {
        let scenario = self.scenario.clone();
        if let Some(client) = scenario.queue.get(self.next_client) {
            let call = scenario.arrivals.len() + self.next_client;
            self.next_client += 1;
            self.begin(call as u32, client.clone());
        }
    }

    fn begin(&mut self, call: u32, client: Client) {
        self.begun += 1;
        if self.tally.calls.len() <= call as usize {
            self.tally.calls.resize(call as usize + 1, CallTally::default());
        }
        let most = self.gateway.config().server.max_concurrency as usize;
        let busy = most > 0 && self.calls.len() >= most;
        let plan = match if busy { Err(503) } else { self.plan(&client) } {
            Ok(plan) => plan,
            Err(status) => {
                self.tally.calls[call as usize].status = status;
                self.tally.ends[4] += 1;
                self.note(&Record::Turned { call, status });
                return self.served();
            }
        };
        let now = self.shared.borrow().now;
        self.note(&Record::Arrived { call, plan: &plan, client: &client });
        let seed = Stream::new(self.scenario.seed, Concern::CallSeed, u64::from(call), 0).bits();
        let route = plan.route.clone();
        let machine = Call::new(plan, CallId(u64::from(call) + 1), seed, now);
        let host = SimHost::new(self.shared.clone(), call, client.ask, route);
        let leaves = client::leaving(&client, now);
        let drive = Drive::new(machine, host);
        let slot = Slot { drive, client, arrived: now, leaves, resumes: Time::ZERO, turn: 0, gone: false };
        self.calls.insert(call, slot);
        self.turn(call);
    }

    /// The plan of a client's request, through the real gateway; the status of an answer of its own otherwise.
    fn plan(&self, client: &Client) -> Result<Plan, u16> {
        let path = match client.operation {
            Some(operation) => operation.path().to_owned(),
            None => format!("/p/{}/files", client.model.split('/').next().unwrap_or_default()),
        };
        let header = |name: &str| (name == "content-type").then_some("application/json");
        let head = RequestHead { method: client.method, path: &path, query: None, header: &header, request_id: "r" };
        match self.gateway.route(&head) {
            Routed::Local(answer) => Err(answer.status),
            Routed::Pass { plan, .. } => Ok(plan),
            Routed::Call { operation, .. } => {
                let body = client.body();
                let planned = self.gateway.plan(operation, Some("application/json"), None, body.as_bytes(), "r");
                planned.map(|planned| planned.plan).map_err(|answer| answer.status)
            }
        }
    }

    /// Lets a call do all that it can do now.
    fn turn(&mut self, call: u32) {
        let now = self.shared.borrow().now;
        let mut cx = Context::from_waker(Waker::noop());
        let next = loop {
            let Some(slot) = self.calls.get_mut(&call) else { return };
            if let Some((_, cause)) = slot.leaves.take_if(|(at, _)| *at <= now) {
                self.shared.borrow_mut().log.record(now, &Record::Left { call, cause });
                if cause == CancelCause::ClientGone && self.scenario.finishes_for_nobody {
                    (slot.gone, slot.resumes) = (true, Time::ZERO);
                    continue;
                }
                slot.drive.cancel(cause);
                if cause != CancelCause::Shutdown {
                    return self.over(call, &End::Cancelled(cause));
                }
                slot.resumes = Time::ZERO;
            }
            if slot.resumes > now {
                slot.drive.poll_timers(&mut cx);
                let leaves = slot.leaves.map_or(Time::NEVER, |(at, _)| at);
                break slot.resumes.min(leaves).min(slot.drive.host().sleeps_until);
            }
            let step = slot.drive.poll_next(&mut cx);
            let (phase, held) = (slot.drive.call().phase(), slot.drive.call().held_bytes());
            if let Some(checks) = self.shared.borrow_mut().log.checks_mut() {
                checks.held(now, call, phase, held);
            }
            match step {
                Poll::Ready(Step::Commit(_)) => {}
                Poll::Ready(Step::Data(bytes)) => {
                    if !slot.gone {
                        slot.resumes = now.after(slot.client.dawdles);
                        self.shared.borrow_mut().log.record(now, &Record::Taken { call, bytes: &bytes });
                    }
                }
                Poll::Ready(Step::End(end)) => return self.over(call, &end),
                Poll::Pending => {
                    let leaves = slot.leaves.map_or(Time::NEVER, |(at, _)| at);
                    break slot.drive.host().next_event().min(leaves);
                }
            }
        };
        let Some(slot) = self.calls.get_mut(&call) else { return };
        slot.turn += 1;
        let turn = slot.turn;
        if next != Time::NEVER {
            if next <= now
                && let Some(checks) = self.shared.borrow_mut().log.checks_mut()
            {
                checks.spin(now, call, next);
            }
            self.at(next, Happening::Wake(call, turn));
        }
    }

    fn over(&mut self, call: u32, end: &End) {
        self.note(&Record::Over { call, end });
        if let Some(fleet) = &mut self.shared.borrow_mut().fleet {
            fleet.forget(call);
        }
        let Some(slot) = self.calls.remove(&call) else { return };
        let kind = match end {
            End::Complete => 0,
            End::Incomplete(_) => 1,
            End::UpstreamError(_) => 2,
            End::Broken => 3,
            End::Answer(_) => 4,
            End::Cancelled(_) => 5,
        };
        self.tally.ends[kind] += 1;
        let now = self.shared.borrow().now;
        self.tally.calls[call as usize] = CallTally {
            complete: *end == End::Complete,
            status: if let End::Answer(answer) = end { answer.status } else { 0 },
            attempts: slot.drive.call().attempts(),
            took: now.since(slot.arrived),
        };
        self.served();
    }

    /// A client is done with; in a closed loop the next one comes.
    fn served(&mut self) {
        if !self.scenario.workers.is_empty() {
            let now = self.shared.borrow().now;
            self.at(now.after(self.scenario.thinks), Happening::Work);
        }
    }

    fn reload(&mut self, index: usize) {
        let scenario = self.scenario.clone();
        let now = self.shared.borrow().now;
        let tree = &scenario.reloads[index].1;
        {
            let mut guard = self.shared.borrow_mut();
            let (new, _) = gateway(tree, now, Some(&mut guard.pool));
            self.gateway = new;
            for pool in guard.fleet.iter_mut().flat_map(Fleet::pools) {
                gateway(tree, now, Some(pool));
            }
        }
        self.tell_configuration();
        let mut shared = self.shared.borrow_mut();
        if shared.fleet.is_none() {
            shared.look_at_line();
        }
    }

    fn tell_configuration(&mut self) {
        let settings = pool_settings(self.gateway.config());
        let mut guard = self.shared.borrow_mut();
        let shared = &mut *guard;
        let views: Vec<TargetView<'_>> = match &shared.fleet {
            Some(fleet) => fleet.store_views(shared.now),
            None => shared.pool.views(shared.now).collect(),
        };
        shared.log.record(shared.now, &Record::Reloaded { settings: &settings, views: &views });
    }

    fn heal(&mut self) {
        self.note(&Record::Healed);
        let healed = self.shared.borrow().now;
        for slot in self.calls.values_mut() {
            slot.drive.host_mut().break_endless();
            // Who reads slowly, or not at all, holds a place for as long as he likes: that is no sickness of the sources.
            if let Some((at, CancelCause::ClientStalled)) = &mut slot.leaves {
                *at = (*at).min(healed);
            }
            (slot.client.dawdles, slot.resumes) = (Span::ZERO, Time::ZERO);
        }
        let calls: Vec<u32> = self.calls.keys().copied().collect();
        let mut shared = self.shared.borrow_mut();
        let now = shared.now;
        shared.ready.extend(calls.into_iter().map(|call| (now, call)));
        shared.episodes.clear();
        shared.sites.iter_mut().for_each(site::Site::heal);
        shared.accounts.iter_mut().for_each(|account| account.limit = 0);
        // Nor is a store so slow that a place is held for longer than a call may wait.
        shared.store_latency = shared.store_latency.min(Span::from_millis(1));
        if let Some(fleet) = &mut shared.fleet {
            fleet.heal();
        }
    }

    fn close(self, sane: bool) -> Report {
        let mut guard = self.shared.borrow_mut();
        let shared = &mut *guard;
        let now = shared.now;
        let open: usize = shared.sites.iter().map(site::Site::open).sum();
        // Leases whose end was lost on its way to the store run out there.
        let later = if shared.fleet.is_some() { now.after(Span::from_secs(3600)) } else { now };
        let (counted, in_line) = shared.fleet.as_mut().map_or((0, 0), |fleet| fleet.left_over(later));
        let views: Vec<TargetView<'_>> = match &shared.fleet {
            Some(fleet) => fleet.store_views(later),
            None => shared.pool.views(now).collect(),
        };
        let waiting = shared.pool.waiting() + in_line + counted as usize;
        if let Some(checks) = shared.log.checks_mut() {
            if sane {
                checks.run_out_at_store(later);
                checks.idle(now, &views, waiting, open, self.calls.keys().next().copied());
            } else {
                checks.endless(now, MAX_RECORDS);
            }
        }
        Report {
            seed: self.scenario.seed,
            hash: shared.log.hash(),
            records: shared.log.records(),
            calls: u64::from(self.begun),
            took: now.since(Time::ZERO),
            coverage: *shared.log.coverage(),
            violation: shared.log.violation().cloned(),
            lines: shared.log.lines().cloned().collect(),
            tally: self.tally.clone(),
        }
    }
}
