//! The simulated adapter of one call: the real loop of the core on a clock that only the world moves.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use surefoot_core::call::Phase;
use surefoot_core::drive::Host;
use surefoot_core::event::{Action, Fault, Input, Notice, Why};
use surefoot_core::id::{AttemptNo, Choice, LeaseId};
use surefoot_core::policy::Route;
use surefoot_core::pool::{Op, Pool, Refusal, Reply, TargetView, line_helps};
use surefoot_core::time::{Span, Time};

use super::episode::Episode;
use super::log::Log;
use super::record::Record;
use super::script::{Chunking, Step};
use super::shared::Fleet;
use super::site::{Account, Arrival, Site};
use super::speech::Ask;
use crate::rng::{Concern, Stream};

/// What all calls of a run share.
#[derive(Debug)]
pub struct Shared {
    /// The world's time.
    pub now: Time,
    /// The run's seed.
    pub seed: u64,
    /// The real pool.
    pub pool: Pool,
    /// The log, the hash and the invariants.
    pub log: Log,
    /// Every source by its place.
    pub sites: Vec<Site>,
    /// The places by name.
    pub places: BTreeMap<String, usize>,
    /// The quotas.
    pub accounts: Vec<Account>,
    /// Faults of the run.
    pub episodes: Vec<Episode>,
    /// How bodies are cut.
    pub chunking: Chunking,
    /// The policy has a rule against certain words.
    pub refuses_words: bool,
    /// The longest pushback.
    pub longest_hint: Span,
    /// The store's latency, one way; zero = the pool answers at once.
    pub store_latency: Span,
    /// How often news of an attempt that was dropped comes all the same, in millionths.
    pub late_ppm: u64,
    /// Commands on their way to a slow store, in order.
    pub to_store: VecDeque<(Time, u32, Op)>,
    /// Replies and grants on their way to a call, by its number.
    pub mail: BTreeMap<u32, VecDeque<(Time, LeaseId, Reply)>>,
    /// Whom a grant is to be sent to.
    pub asking: BTreeMap<LeaseId, (u64, u32)>,
    /// Places in line given out so far.
    tickets: u64,
    /// Calls that have mail and are to be looked at.
    pub ready: Vec<(Time, u32)>,
    /// Several gateways on one store, in place of the one pool.
    pub fleet: Option<Fleet>,
    store: Stream,
    last_due: Time,
}

impl Shared {
    /// A world at its beginning.
    pub fn new(seed: u64, pool: Pool, log: Log) -> Shared {
        Shared {
            now: Time::ZERO,
            seed,
            pool,
            log,
            sites: Vec::new(),
            places: BTreeMap::new(),
            accounts: Vec::new(),
            episodes: Vec::new(),
            chunking: Chunking::Pieces,
            refuses_words: false,
            longest_hint: Span::from_secs(5),
            store_latency: Span::ZERO,
            late_ppm: 0,
            to_store: VecDeque::new(),
            mail: BTreeMap::new(),
            asking: BTreeMap::new(),
            tickets: 0,
            ready: Vec::new(),
            fleet: None,
            store: Stream::new(seed, Concern::Store, 0, 0),
            last_due: Time::ZERO,
        }
    }

    /// Takes a command to the pool, and the grants that it made to those who wait.
    pub fn apply(&mut self, call: u32, op: &Op) -> Reply {
        self.log.record(self.now, &Record::Applying { call, op });
        let reply = self.pool.apply(self.now, op);
        // Who stood in line before is served in his turn, a newcomer after all who wait; whatever frees a place does so first.
        let own = match op {
            // Whose waiting was over has lost his place in line: he comes last, like a newcomer.
            Op::Reserve(reserve) if matches!(reply, Reply::Granted { .. }) && reserve.wait_until >= self.now => {
                self.asking.get(&reserve.lease).map_or(u64::MAX, |(ticket, _)| *ticket)
            }
            Op::Reserve(_) => u64::MAX,
            _ => 0,
        };
        match (op, &reply) {
            (Op::Reserve(reserve), Reply::Refused { why, .. }) if reserve.queue && queues(*why) => {
                self.tickets += 1;
                self.asking.entry(reserve.lease).or_insert((self.tickets, call));
            }
            (Op::Reserve(_) | Op::Leave { .. }, _) => {
                self.asking.remove(&op.lease());
            }
            _ => {}
        }
        let grants = self.granted();
        let earlier = grants.iter().take_while(|(ticket, ..)| *ticket < own).count();
        for (at, (_, waiter, lease, granted)) in grants.iter().enumerate() {
            if at == earlier {
                self.log.record(self.now, &Record::Applied { call, op, reply: &reply });
            }
            self.tell_waiter(*waiter, *lease, granted);
        }
        if earlier == grants.len() {
            self.log.record(self.now, &Record::Applied { call, op, reply: &reply });
        }
        // Nobody waits under that name any more: the place goes to the next.
        for (_, _, lease, _) in grants.iter().filter(|(_, call, ..)| call.is_none()) {
            self.apply(call, &Op::Leave { lease: *lease });
        }
        let views: Vec<TargetView<'_>> = self.pool.views(self.now).collect();
        self.log.look(self.now, &views, self.pool.waiting());
        reply
    }

    /// A new configuration is in force: whoever stands in line may be able to start.
    pub fn look_at_line(&mut self) {
        self.pool.look(self.now);
        for (_, waiter, lease, granted) in self.granted() {
            self.tell_waiter(waiter, lease, &granted);
        }
    }

    /// The news for those in line: their tickets and calls with it.
    fn granted(&mut self) -> Vec<(u64, Option<u32>, LeaseId, Reply)> {
        let mut grants = Vec::new();
        while let Some((lease, reply)) = self.pool.pop_granted() {
            let waiter = match &reply {
                Reply::Refused { why, after, .. } if line_helps(*why, *after) => self.asking.get(&lease).copied(),
                _ => self.asking.remove(&lease),
            };
            let (ticket, call) = waiter.map_or((u64::MAX, None), |(ticket, call)| (ticket, Some(call)));
            grants.push((ticket, call, lease, reply));
        }
        grants
    }

    fn tell_waiter(&mut self, waiter: Option<u32>, lease: LeaseId, news: &Reply) {
        self.log.record(self.now, &Record::Granted { lease, reply: news });
        if let Some(call) = waiter {
            let due = self.now.after(self.latency());
            self.mail.entry(call).or_default().push_back((due, lease, news.clone()));
            self.ready.push((due, call));
        }
    }

    /// A command of a call at its gateway, one of several; the replies that it brought go to whom they are for.
    fn apply_at_fleet(&mut self, call: u32, op: &Op) -> Option<Reply> {
        let now = self.now;
        let reply = self.fleet.as_mut()?.apply(now, call, op, &mut self.log);
        self.hand_out_mail();
        reply
    }

    /// Lets happen what is due between several gateways and their store.
    pub fn run_fleet(&mut self) {
        if let Some(fleet) = &mut self.fleet {
            fleet.run(self.now, &mut self.log);
            self.hand_out_mail();
        }
    }

    fn hand_out_mail(&mut self) {
        let mail = self.fleet.as_mut().map(Fleet::take_mail).unwrap_or_default();
        for (call, lease, reply) in mail {
            self.mail.entry(call).or_default().push_back((self.now, lease, reply));
            self.ready.push((self.now, call));
        }
    }

    /// Executes what has reached a slow store by now. Replies take as long again.
    pub fn serve_store(&mut self) {
        while self.to_store.front().is_some_and(|(due, ..)| *due <= self.now) {
            let Some((_, call, op)) = self.to_store.pop_front() else { return };
            let reply = self.apply(call, &op);
            let due = self.now.after(self.latency());
            self.mail.entry(call).or_default().push_back((due, op.lease(), reply));
            self.ready.push((due, call));
        }
    }

    /// An exchange is over, or was dropped.
    fn forget(&mut self, exchange: u64) {
        self.sites.iter_mut().for_each(|site| site.drop_exchange(exchange));
    }

    fn latency(&mut self) -> Span {
        if self.store_latency.is_zero() { Span::ZERO } else { self.store.exponential(self.store_latency) }
    }

    /// Puts a command on its way; when it arrives. One connection: nothing overtakes.
    fn post(&mut self, call: u32, op: Op) {
        self.last_due = self.last_due.max(self.now.after(self.latency()));
        self.to_store.push_back((self.last_due, call, op));
    }
}

/// Whether a call that is refused so may stand in line.
fn queues(why: Refusal) -> bool {
    matches!(why, Refusal::Paced | Refusal::Full | Refusal::Resting)
}

/// The adapter of one call.
#[derive(Debug)]
pub struct SimHost {
    shared: Rc<RefCell<Shared>>,
    call: u32,
    ask: Ask,
    route: Arc<Route>,
    phase: Phase,
    live: Option<(AttemptNo, VecDeque<(Time, Step)>)>,
    /// News that comes too late.
    stale: VecDeque<(AttemptNo, Step)>,
    /// The lease that waits for a reply or stands in line, where several gateways share a store.
    queued: Option<LeaseId>,
    /// When the call wants to be ticked.
    pub sleeps_until: Time,
}

/// The name of an exchange in the world.
fn exchange_of(call: u32, attempt: AttemptNo) -> u64 {
    u64::from(call) << 16 | u64::from(attempt.0)
}

impl SimHost {
    /// The adapter of call number `call`.
    pub fn new(shared: Rc<RefCell<Shared>>, call: u32, ask: Ask, route: Arc<Route>) -> SimHost {
        SimHost {
            shared,
            call,
            ask,
            route,
            phase: Phase::Asking,
            live: None,
            stale: VecDeque::new(),
            queued: None,
            sleeps_until: Time::NEVER,
        }
    }

    /// Breaks an exchange that would never end.
    pub fn break_endless(&mut self) {
        let shared = self.shared.borrow();
        let exchange = self.live.as_ref().map(|(attempt, _)| exchange_of(self.call, *attempt));
        if exchange.is_some_and(|exchange| shared.sites.iter().any(|site| site.is_endless(exchange)))
            && let Some((_, steps)) = &mut self.live
        {
            steps.clear();
            steps.push_back((shared.now, Step::Fault(Fault::Reset)));
        }
    }

    /// When there is something to hear, or the call wants to be ticked.
    pub fn next_event(&self) -> Time {
        let step = self.live.as_ref().and_then(|(_, steps)| steps.front()).map_or(Time::NEVER, |(at, _)| *at);
        step.min(self.sleeps_until)
    }
}

impl Host for SimHost {
    fn now(&mut self) -> Time {
        self.shared.borrow().now
    }

    fn apply(&mut self, op: &Op) -> Option<Reply> {
        let mut shared = self.shared.borrow_mut();
        // Nor is one answered for ever.
        if shared.log.violation().is_some() {
            return None;
        }
        if shared.fleet.is_some() {
            let reply = shared.apply_at_fleet(self.call, op);
            match op {
                Op::Reserve(reserve) => {
                    let queued = reply.is_none() || reserve.queue && matches!(reply, Some(Reply::Refused { .. }));
                    self.queued = queued.then_some(reserve.lease);
                }
                Op::Leave { lease } if self.queued == Some(*lease) => self.queued = None,
                Op::Settle(_) | Op::Leave { .. } | Op::Renew { .. } => {}
            }
            return reply;
        }
        if shared.store_latency.is_zero() {
            return Some(shared.apply(self.call, op));
        }
        shared.post(self.call, op.clone());
        None
    }

    fn send(&mut self, attempt: AttemptNo, choice: Choice, _: Why) {
        let mut guard = self.shared.borrow_mut();
        let shared = &mut *guard;
        let name = &self.route.candidates[usize::from(choice.0)].source_name;
        let Some(place) = shared.places.get(&**name).copied() else {
            self.live = Some((attempt, VecDeque::new()));
            return;
        };
        let exchange = exchange_of(self.call, attempt);
        let arrival = Arrival {
            now: shared.now,
            exchange,
            ask: &self.ask,
            episodes: &shared.episodes,
            refuses_words: shared.refuses_words,
            longest_hint: shared.longest_hint,
        };
        let site = &mut shared.sites[place];
        let mut stream = Stream::new(shared.seed, Concern::Exchange, u64::from(self.call), u64::from(attempt.0));
        let script = site.answer(arrival, &mut shared.accounts[site.account], &mut stream);
        let mut chunks = Stream::new(shared.seed, Concern::Chunks, u64::from(self.call), u64::from(attempt.0));
        let (mut steps, mut truth) = script.play(shared.now, shared.chunking, &mut chunks);
        site.guard(shared.now, self.ask.format, &mut steps, &mut truth);
        site.open_exchange(exchange, truth.closes);
        shared.log.record(shared.now, &Record::Sent { call: self.call, attempt, choice, truth: &truth });
        self.live = Some((attempt, steps));
    }

    fn abort(&mut self, attempt: AttemptNo) {
        if let Some((_, steps)) = self.live.take_if(|(live, _)| *live == attempt) {
            let exchange = exchange_of(self.call, attempt);
            let mut shared = self.shared.borrow_mut();
            shared.forget(exchange);
            let mut late = Stream::new(shared.seed, Concern::Late, exchange, 0);
            if late.chance(shared.late_ppm) {
                // What was next, or how it ends: either may be on its way already.
                let next = late.chance(700_000);
                let most = 1 + late.below(3) as usize;
                let from = if next { 0 } else { steps.len().saturating_sub(1) };
                self.stale.extend(steps.into_iter().skip(from).take(most).map(|(_, step)| (attempt, step)));
            }
        }
    }

    fn notice(&mut self, _: &Notice) {}

    fn poll_input(&mut self, _: &mut Context<'_>) -> Poll<Input> {
        let mut shared = self.shared.borrow_mut();
        let now = shared.now;
        let by_name = shared.fleet.is_some();
        while let Some(mail) = shared.mail.get_mut(&self.call)
            && mail.front().is_some_and(|(due, ..)| *due <= now)
            && let Some((_, lease, reply)) = mail.pop_front()
        {
            // Like the adapters' places: what is for another lease is stale.
            if by_name && self.queued != Some(lease) && !matches!(reply, Reply::Settled { .. }) {
                continue;
            }
            if matches!(reply, Reply::Granted { .. }) {
                self.queued = None;
            }
            return Poll::Ready(Input::Reply { lease, reply });
        }
        if let Some((attempt, step)) = self.stale.pop_front() {
            return Poll::Ready(step.into_input(attempt));
        }
        let Some((attempt, steps)) = &mut self.live else { return Poll::Pending };
        if steps.front().is_none_or(|(at, _)| *at > now) {
            return Poll::Pending;
        }
        let attempt = *attempt;
        let Some((_, step)) = steps.pop_front() else { return Poll::Pending };
        if matches!(step, Step::End | Step::Fault(_)) {
            self.live = None;
            shared.forget(exchange_of(self.call, attempt));
        }
        Poll::Ready(step.into_input(attempt))
    }

    fn poll_sleep(&mut self, _: &mut Context<'_>, until: Time) -> Poll<()> {
        let shared = self.shared.borrow();
        // A call that ticks for ever would never let the world see that a law was broken.
        if until <= shared.now && shared.log.violation().is_none() {
            return Poll::Ready(());
        }
        self.sleeps_until = until;
        Poll::Pending
    }

    fn record_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    fn record_input(&mut self, now: Time, input: &Input) {
        self.sleeps_until = Time::NEVER;
        let record = Record::Input { call: self.call, phase: self.phase, input };
        self.shared.borrow_mut().log.record(now, &record);
    }

    fn record_action(&mut self, action: &Action) {
        let mut shared = self.shared.borrow_mut();
        let now = shared.now;
        shared.log.record(now, &Record::Action { call: self.call, action });
    }
}
