//! Several gateways on one store (G18): the book that serves real traffic, on a link that is slow, loses replies and breaks,
//! to a store that stays away at times and may forget everything.
//!
//! | part | real or simulated |
//! |---|---|
//! | each gateway's pool and its book of what is asked | the real ones |
//! | the link: batches one after the other, deadlines, the way down and back | simulated, after the adapters' own |
//! | the store | the gate in memory, speaking the script's words |

mod store;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use surefoot_core::id::LeaseId;
use surefoot_core::policy::config::OnDown;
use surefoot_core::pool::{GateOp, Keyspace, Op, Pool, Reply, Settings, TargetView};
use surefoot_core::time::{Span, Time};
use surefoot_runtime::serve::gate::Place;
use surefoot_runtime::state::{Book, Carrier, Job};

use self::store::Store;
use super::log::Log;
use super::record::Record;
use crate::rng::{Concern, Stream};

/// What a batch may take; the adapters' figure, like the three below.
const ANSWER_LIMIT: Span = Span::from_millis(250);
const LOOK_AGAIN: Span = Span::from_millis(100);
const FIRST_PAUSE: Span = Span::from_millis(100);
const LONGEST_PAUSE: Span = Span::from_secs(5);
/// A connection that held so long was a good one.
const STEADY: Span = Span::from_secs(10);
const MAX_BATCH: usize = 128;

/// How the gateways of a run share a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Gateways; calls come to them in turn.
    pub gateways: u32,
    /// One way between a gateway and the store, on average.
    pub latency: Span,
    /// Batches whose answer is lost on its way back, in millionths; the store has carried them out.
    pub lost_ppm: u64,
    /// When the store cannot be reached.
    pub outages: Vec<(Time, Time)>,
    /// When the store forgets everything.
    pub wipes: Vec<Time>,
    /// A gateway without a store admits nothing (`on_down = "closed"`), and does not decide by itself.
    pub closed: bool,
}

/// The gateways and their store.
#[derive(Debug)]
pub struct Fleet {
    sharing: Sharing,
    gateways: Vec<Front>,
    store: Store,
    queue: BTreeMap<(Time, u64), Event>,
    sequence: u64,
    chance: Stream,
    /// Replies that came due, for the calls.
    mail: Vec<(u32, LeaseId, Reply)>,
}

/// One gateway's side.
#[derive(Debug)]
struct Front {
    pool: Pool,
    book: Book,
    carried: Arc<Mutex<VecDeque<Job>>>,
    /// Those that live, by their calls.
    places: BTreeMap<u32, Arc<Place>>,
    link: Link,
    /// The batch that is under way; older ones are forgotten.
    batch: u64,
    pause: Span,
    up_since: Time,
    ticking: bool,
}

#[derive(Debug)]
enum Link {
    Idle,
    Waiting(Vec<Job>),
    Down,
}

#[derive(Debug)]
enum Event {
    /// Commands reach the store.
    Arrive { gateway: usize, batch: u64, ops: Vec<GateOp>, back: Option<Span> },
    /// Its answers reach the gateway.
    Answer { gateway: usize, batch: u64, answers: Vec<Vec<u8>> },
    /// The gateway has waited long enough.
    Expire { gateway: usize, batch: u64 },
    /// The gateway tries again.
    Connect { gateway: usize },
    /// Those in line ask anew.
    Tick { gateway: usize },
    /// The store forgets.
    Wipe,
}

/// The way to the link.
struct Way(Arc<Mutex<VecDeque<Job>>>);

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Way")
    }
}

impl Carrier for Way {
    fn carry(&self, job: Job) -> Option<Job> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(job);
        None
    }
}

/// The call that a lease belongs to: its number stands in the name.
pub fn call_of(lease: LeaseId) -> Option<u32> {
    (lease.0 >> 12).checked_sub(1).and_then(|call| u32::try_from(call).ok())
}

impl Fleet {
    /// Gateways and a store that know no targets yet.
    pub fn new(seed: u64, sharing: &Sharing, settings: &Settings) -> Fleet {
        let front = |at: u32| {
            let carried: Arc<Mutex<VecDeque<Job>>> = Arc::default();
            let on_down = if sharing.closed { OnDown::Closed } else { OnDown::Local };
            let book = Book::new(Keyspace::new("sim", u64::from(at)), on_down, Box::new(Way(carried.clone())));
            Front {
                pool: Pool::new(settings.clone()),
                book,
                carried,
                places: BTreeMap::new(),
                link: Link::Idle,
                batch: 0,
                pause: FIRST_PAUSE,
                up_since: Time::ZERO,
                ticking: false,
            }
        };
        let mut fleet = Fleet {
            sharing: sharing.clone(),
            gateways: (0..sharing.gateways).map(front).collect(),
            store: Store::new(settings.clone()),
            queue: BTreeMap::new(),
            sequence: 0,
            chance: Stream::new(seed, Concern::Store, 1, 0),
            mail: Vec::new(),
        };
        for at in &sharing.wipes {
            fleet.at(*at, Event::Wipe);
        }
        fleet
    }

    /// Every pool, for registering what a configuration names: the store's first.
    pub fn pools(&mut self) -> impl Iterator<Item = &mut Pool> {
        self.store.pools().into_iter().chain(self.gateways.iter_mut().map(|gateway| &mut gateway.pool))
    }

    /// When something happens by itself.
    pub fn next(&self) -> Time {
        self.queue.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at)
    }

    /// Replies that came due.
    pub fn take_mail(&mut self) -> Vec<(u32, LeaseId, Reply)> {
        std::mem::take(&mut self.mail)
    }

    /// Breakers and limits as they stand at the store.
    pub fn store_views(&self, now: Time) -> Vec<TargetView<'_>> {
        self.store.views(now)
    }

    /// What is left once everything has run out: places counted at any gateway or the store, and calls in line.
    pub fn left_over(&mut self, later: Time) -> (u32, usize) {
        self.store.expire(later);
        let mut counted: u32 = self.store.views(later).iter().map(|view| view.source_inflight).sum();
        let mut waiting = 0;
        for gateway in &mut self.gateways {
            gateway.pool.ask_local(later, &GateOp::Renew { lease: LeaseId(u64::MAX) });
            counted += gateway.pool.views(later).map(|view| view.inflight + view.source_inflight).sum::<u32>();
            waiting += gateway.book.waiting();
        }
        (counted, waiting)
    }

    /// The store is well and near.
    pub fn heal(&mut self) {
        self.sharing.lost_ppm = 0;
        self.sharing.latency = self.sharing.latency.min(Span::from_millis(2));
        self.sharing.outages.clear();
        self.queue.retain(|_, event| !matches!(event, Event::Wipe));
    }

    /// A call's command at its gateway. `None`: its reply comes by mail.
    pub fn apply(&mut self, now: Time, call: u32, op: &Op, log: &mut Log) -> Option<Reply> {
        log.record(now, &Record::Applying { call, op });
        let at = self.gateway_of(call);
        let front = &mut self.gateways[at];
        let place = front.places.entry(call).or_default().clone();
        let reply = front.book.apply(&mut front.pool, now, op, &place);
        if let Some(reply) = &reply {
            log.record(now, &Record::Applied { call, op, reply });
        }
        self.settle_down(now, at);
        reply
    }

    /// A call is over: nobody hears of it any more.
    pub fn forget(&mut self, call: u32) {
        let at = self.gateway_of(call);
        self.gateways[at].places.remove(&call);
    }

    /// Lets everything happen that is due by `now`.
    pub fn run(&mut self, now: Time, log: &mut Log) {
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= now) {
            match entry.remove() {
                Event::Arrive { gateway, batch, ops, back } => self.arrive(now, gateway, batch, &ops, back, log),
                Event::Answer { gateway, batch, answers } => self.answered(now, gateway, batch, answers),
                Event::Expire { gateway, batch } => self.expired(now, gateway, batch),
                Event::Connect { gateway } => self.connect(now, gateway),
                Event::Tick { gateway } => {
                    let front = &mut self.gateways[gateway];
                    front.ticking = false;
                    front.book.look_again(&mut front.pool, now);
                    self.settle_down(now, gateway);
                }
                Event::Wipe => {
                    log.record(now, &Record::Wiped);
                    self.store.forget(now);
                }
            }
        }
    }

    fn gateway_of(&self, call: u32) -> usize {
        (call % self.sharing.gateways.max(1)) as usize
    }

    fn at(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), event);
    }

    fn is_away(&self, at: Time) -> bool {
        self.sharing.outages.iter().any(|(from, until)| *from <= at && at < *until)
    }

    fn latency(&mut self) -> Span {
        self.chance.exponential(self.sharing.latency)
    }

    /// After anything at a gateway: its replies go out, its commands go on their way.
    fn settle_down(&mut self, now: Time, at: usize) {
        loop {
            let front = &mut self.gateways[at];
            let news = front.book.take_news();
            if news.is_empty() {
                break;
            }
            for (place, lease, reply) in news {
                let owner =
                    call_of(lease).filter(|call| front.places.get(call).is_some_and(|own| Arc::ptr_eq(own, &place)));
                match owner {
                    Some(call) => self.mail.push((call, lease, reply)),
                    // A grant that nobody takes any more goes back.
                    None if matches!(reply, Reply::Granted { .. }) => {
                        front.book.apply(&mut front.pool, now, &Op::Leave { lease }, &Arc::default());
                    }
                    None => {}
                }
            }
        }
        self.send(now, at);
        let front = &mut self.gateways[at];
        if !front.ticking && front.book.waiting() > 0 {
            front.ticking = true;
            self.at(now.after(LOOK_AGAIN), Event::Tick { gateway: at });
        }
    }

    /// The next batch goes out, unless one is under way.
    fn send(&mut self, now: Time, at: usize) {
        let front = &mut self.gateways[at];
        if !matches!(front.link, Link::Idle) {
            return;
        }
        let mut carried = front.carried.lock().unwrap_or_else(PoisonError::into_inner);
        let most = carried.len().min(MAX_BATCH);
        let jobs: Vec<Job> = carried.drain(..most).collect();
        drop(carried);
        if !jobs.is_empty() {
            let ops = jobs.iter().map(|job| job.op().clone()).collect();
            self.gateways[at].link = Link::Waiting(jobs);
            self.dispatch(now, at, ops);
        }
    }

    fn dispatch(&mut self, now: Time, at: usize, ops: Vec<GateOp>) {
        let (there, back) = (self.latency(), self.latency());
        let lost = self.chance.chance(self.sharing.lost_ppm);
        let front = &mut self.gateways[at];
        front.batch += 1;
        let batch = front.batch;
        let arrives = now.after(there);
        if !self.is_away(arrives) {
            self.at(arrives, Event::Arrive { gateway: at, batch, ops, back: (!lost).then_some(back) });
        }
        self.at(now.after(ANSWER_LIMIT), Event::Expire { gateway: at, batch });
    }

    /// The store carries commands out, whether or not anybody still waits for the answers.
    fn arrive(&mut self, now: Time, gateway: usize, batch: u64, ops: &[GateOp], back: Option<Span>, log: &mut Log) {
        let mut answers = Vec::with_capacity(ops.len());
        for op in ops {
            let (reply, words) = self.store.execute(now, op);
            log.record(now, &Record::Stored { gateway: gateway as u32, op, reply: &reply });
            log.look(now, &self.store.views(now), 0);
            answers.push(words);
        }
        if let Some(back) = back {
            self.at(now.after(back), Event::Answer { gateway, batch, answers });
        }
    }

    fn answered(&mut self, now: Time, at: usize, batch: u64, answers: Vec<Vec<u8>>) {
        let front = &mut self.gateways[at];
        if front.batch != batch || !matches!(front.link, Link::Waiting(_)) {
            return;
        }
        let Link::Waiting(jobs) = std::mem::replace(&mut front.link, Link::Idle) else { return };
        for (job, answer) in jobs.into_iter().zip(&answers) {
            let told = front.book.answered(&mut front.pool, now, job, answer);
            assert!(told.is_ok(), "the store's words are not read: {}", String::from_utf8_lossy(answer));
        }
        self.settle_down(now, at);
    }

    fn expired(&mut self, now: Time, at: usize, batch: u64) {
        let front = &mut self.gateways[at];
        if front.batch != batch || !matches!(front.link, Link::Waiting(_)) {
            return;
        }
        let Link::Waiting(jobs) = std::mem::replace(&mut front.link, Link::Down) else { return };
        jobs.into_iter().for_each(|job| front.book.unanswered(&mut front.pool, now, job));
        let _ = front.book.set_up(&front.pool, now, false);
        loop {
            let next = front.carried.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(job) = next else { break };
            front.book.unanswered(&mut front.pool, now, job);
        }
        if now.since(front.up_since) > STEADY {
            front.pause = FIRST_PAUSE;
        }
        let again = now.after(front.pause);
        front.pause = Span(front.pause.0 * 2).min(LONGEST_PAUSE);
        self.at(again, Event::Connect { gateway: at });
        self.settle_down(now, at);
    }

    fn connect(&mut self, now: Time, at: usize) {
        let away = self.is_away(now);
        let front = &mut self.gateways[at];
        if away {
            let again = now.after(front.pause);
            front.pause = Span(front.pause.0 * 2).min(LONGEST_PAUSE);
            return self.at(again, Event::Connect { gateway: at });
        }
        front.up_since = now;
        let owed = front.book.set_up(&front.pool, now, true);
        let owed: Vec<GateOp> = owed.iter().filter_map(|command| command.args().nth(3).and_then(released)).collect();
        if owed.is_empty() {
            front.link = Link::Idle;
        } else {
            front.link = Link::Waiting(Vec::new());
            self.dispatch(now, at, owed);
        }
        self.settle_down(now, at);
    }
}

/// The command that gives a place back, from the name that it has at the store: `instance-lease`.
fn released(name: &str) -> Option<GateOp> {
    let lease = name.split_once('-')?.1.parse().ok()?;
    Some(GateOp::Release { lease: LeaseId(lease) })
}
