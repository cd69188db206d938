//! What is asked of the store, and who waits for the answers. Everything here happens under the pool's lock and at once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use surefoot_core::id::LeaseId;
use surefoot_core::policy::config::OnDown;
use surefoot_core::pool::{Command, GateOp, Keyspace, Op, Plan, Pool, Reply, Reserve, Unreadable, Verdict, line_helps};
use surefoot_core::time::Time;

use super::Carrier;
use super::line::{Line, Waiter};
use crate::serve::gate::Place;

/// Calls that may stand in line at once; who comes later is told no.
const MAX_LINE: usize = 65_536;
/// Places that are remembered as owed to the store while it is away. They expire there by themselves, only later.
const MAX_OWED: usize = 4096;

/// A command on its way to the store.
#[derive(Debug)]
pub struct Job {
    op: GateOp,
    whose: Whose,
    command: Command,
}

impl Job {
    /// What goes to the store.
    pub fn command(&self) -> &Command {
        &self.command
    }

    /// What the gate is to do, for a store that is no other process's.
    pub fn op(&self) -> &GateOp {
        &self.op
    }
}

/// Who waits for an answer.
#[derive(Debug)]
enum Whose {
    /// A call that just asked.
    Call,
    /// One in line.
    Line,
    /// Nobody; a call hears what it did to a breaker.
    Note(Option<Arc<Place>>),
}

/// A call whose question is under way.
#[derive(Debug)]
struct Asking {
    reserve: Reserve,
    place: Arc<Place>,
    /// It gave up; a place that it is granted goes back.
    left: bool,
}

/// The shared gate's book.
#[derive(Debug)]
pub struct Book {
    keys: Keyspace,
    on_down: OnDown,
    carrier: Box<dyn Carrier>,
    /// Whether commands go to the store. Hopeful at first: the connection may be there in a moment.
    up: bool,
    asking: HashMap<LeaseId, Asking>,
    line: Line,
    /// Places that the store may still count, though nobody holds them.
    owed: VecDeque<LeaseId>,
    /// Replies to be handed out once the lock is free.
    news: Vec<(Arc<Place>, LeaseId, Reply)>,
}

impl Book {
    /// An empty book whose commands go to `carrier`.
    pub fn new(keys: Keyspace, on_down: OnDown, carrier: Box<dyn Carrier>) -> Book {
        Book {
            keys,
            on_down,
            carrier,
            up: true,
            asking: HashMap::new(),
            line: Line::default(),
            owed: VecDeque::new(),
            news: Vec::new(),
        }
    }

    /// Calls that stand in line.
    pub fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Replies that came due; each belongs to a place.
    pub fn take_news(&mut self) -> Vec<(Arc<Place>, LeaseId, Reply)> {
        std::mem::take(&mut self.news)
    }

    /// Begins a command. `None`: its reply comes to `place`.
    pub fn apply(&mut self, pool: &mut Pool, now: Time, op: &Op, place: &Arc<Place>) -> Option<Reply> {
        let reply = match op {
            Op::Reserve(reserve) => self.reserve(pool, now, op, reserve, place),
            Op::Leave { lease } => {
                self.leave(pool, now, *lease);
                Some(Reply::Done)
            }
            Op::Settle(_) | Op::Renew { .. } => match pool.plan(now, op) {
                Plan::Done(reply) => Some(reply),
                Plan::Ask(asked) => {
                    self.submit(pool, now, asked, Whose::Note(Some(Arc::clone(place))));
                    None
                }
            },
        };
        if matches!(op, Op::Settle(_) | Op::Leave { .. }) {
            self.line.ask_everyone();
        }
        self.ask_line(pool, now);
        reply
    }

    fn reserve(&mut self, pool: &mut Pool, now: Time, op: &Op, reserve: &Reserve, place: &Arc<Place>) -> Option<Reply> {
        if let Some(asking) = self.asking.get_mut(&reserve.lease) {
            // The answer that is under way is its answer.
            (asking.reserve, asking.place) = (reserve.clone(), Arc::clone(place));
            return None;
        }
        if self.line.get_mut(reserve.lease).is_some() {
            self.line.update(reserve.clone(), Arc::clone(place));
            self.line.ask_everyone();
            return None;
        }
        if reserve.queue && self.line.len() < MAX_LINE && self.line.is_ahead_of(reserve) {
            self.line.join(Waiter { reserve: reserve.clone(), place: Arc::clone(place), wants_answer: true });
            self.line.ask_everyone();
            return None;
        }
        match pool.plan(now, op) {
            Plan::Done(reply) => Some(reply),
            Plan::Ask(asked) => {
                let asking = Asking { reserve: reserve.clone(), place: Arc::clone(place), left: false };
                self.asking.insert(reserve.lease, asking);
                self.submit(pool, now, asked, Whose::Call);
                None
            }
        }
    }

    fn leave(&mut self, pool: &mut Pool, now: Time, lease: LeaseId) {
        if let Some(asking) = self.asking.get_mut(&lease) {
            asking.left = true;
        } else if self.line.leave(lease).is_none() {
            self.give_back(pool, now, lease);
        }
    }

    fn give_back(&mut self, pool: &mut Pool, now: Time, lease: LeaseId) {
        if let Plan::Ask(asked) = pool.plan(now, &Op::Leave { lease }) {
            self.submit(pool, now, asked, Whose::Note(None));
        }
    }

    /// Asks those in line, one after the other.
    fn ask_line(&mut self, pool: &mut Pool, now: Time) {
        while let Some(reserve) = self.line.next() {
            let lease = reserve.lease;
            match pool.plan(now, &Op::Reserve(reserve)) {
                Plan::Ask(asked) => self.submit(pool, now, asked, Whose::Line),
                Plan::Done(reply) => {
                    self.line.answered(std::iter::empty());
                    self.tell_line(pool, now, lease, reply);
                }
            }
        }
    }

    /// Hands a command to the carrier; without a store it is answered here and now.
    fn submit(&mut self, pool: &mut Pool, now: Time, op: GateOp, whose: Whose) {
        if !self.up {
            return self.answer_alone(pool, now, &op, whose, false);
        }
        let command = pool.encode(now, &op, &self.keys, None);
        if let Some(Job { op, whose, .. }) = self.carrier.carry(Job { op, whose, command }) {
            self.answer_alone(pool, now, &op, whose, false);
        }
    }

    /// The store answered a command.
    ///
    /// # Errors
    ///
    /// The answer makes no sense; the command was answered without the store then.
    pub fn answered(&mut self, pool: &mut Pool, now: Time, job: Job, answer: &[u8]) -> Result<(), Unreadable> {
        let answer = match job.command.decode(now, &job.op, answer) {
            Ok(answer) => answer,
            Err(error) => {
                self.unanswered(pool, now, job);
                return Err(error);
            }
        };
        pool.mirror(now, &job.op, &answer);
        let reply = pool.conclude(now, &job.op, Some(answer.reply));
        self.dispatch(pool, now, &job.op, job.whose, reply, &answer.verdicts);
        self.ask_line(pool, now);
        Ok(())
    }

    /// The store did not answer a command, though it may have carried it out.
    pub fn unanswered(&mut self, pool: &mut Pool, now: Time, job: Job) {
        self.answer_alone(pool, now, &job.op, job.whose, true);
        self.ask_line(pool, now);
    }

    /// The fallback (`on_down`): this process's own gate, or a refusal.
    fn answer_alone(&mut self, pool: &mut Pool, now: Time, op: &GateOp, whose: Whose, sent: bool) {
        let closed = self.on_down == OnDown::Closed && matches!(op, GateOp::Admit(_));
        let answer = if closed { None } else { Some(pool.ask_local(now, op)) };
        let reply = pool.conclude(now, op, answer);
        let owed = match op {
            GateOp::Admit(_) => sent && !matches!(reply, Reply::Granted { .. }),
            GateOp::Settle { .. } | GateOp::Release { .. } => true,
            GateOp::Renew { .. } => false,
        };
        if owed {
            self.owed.truncate(MAX_OWED - 1);
            self.owed.push_front(lease_of(op));
        }
        self.dispatch(pool, now, op, whose, reply, &[]);
    }

    fn dispatch(&mut self, pool: &mut Pool, now: Time, op: &GateOp, whose: Whose, reply: Reply, verdicts: &[Verdict]) {
        let lease = lease_of(op);
        match whose {
            Whose::Call => self.tell_call(pool, now, lease, reply),
            Whose::Line => {
                let candidates = if let GateOp::Admit(admit) = op { admit.candidates.as_slice() } else { &[] };
                let targets = candidates.iter().map(|candidate| candidate.target);
                self.line.answered(targets.zip(verdicts.iter().copied()));
                self.tell_line(pool, now, lease, reply);
            }
            Whose::Note(place) => {
                if let (Some(place), Reply::Settled { change: Some(_) }) = (place, &reply) {
                    self.news.push((place, lease, reply));
                }
            }
        }
    }

    fn tell_call(&mut self, pool: &mut Pool, now: Time, lease: LeaseId, reply: Reply) {
        let Some(Asking { reserve, place, left }) = self.asking.remove(&lease) else { return };
        let granted = matches!(reply, Reply::Granted { .. });
        if left {
            if granted {
                self.give_back(pool, now, lease);
            }
            return;
        }
        if reserve.queue && self.line.len() < MAX_LINE && waits(&reply) {
            self.line.join(Waiter { reserve, place: Arc::clone(&place), wants_answer: false });
        }
        self.news.push((place, lease, reply));
    }

    fn tell_line(&mut self, pool: &mut Pool, now: Time, lease: LeaseId, reply: Reply) {
        let granted = matches!(reply, Reply::Granted { .. });
        let Some(waiter) = self.line.get_mut(lease) else {
            if granted {
                self.give_back(pool, now, lease);
            }
            return;
        };
        if !waits(&reply) {
            let place = Arc::clone(&waiter.place);
            self.line.leave(lease);
            self.news.push((place, lease, reply));
        } else if std::mem::take(&mut waiter.wants_answer) {
            self.news.push((Arc::clone(&waiter.place), lease, reply));
        }
    }

    /// From now on commands go to the store, or do not. What the store is to hear first, when it is back.
    pub fn set_up(&mut self, pool: &Pool, now: Time, up: bool) -> Vec<Command> {
        self.up = up;
        self.line.ask_everyone();
        if !up {
            return Vec::new();
        }
        let release = |lease| pool.encode(now, &GateOp::Release { lease }, &self.keys, None);
        self.owed.drain(..).map(release).collect()
    }

    /// Some time has passed: places may have freed that were not heard of.
    pub fn look_again(&mut self, pool: &mut Pool, now: Time) {
        self.line.ask_everyone();
        self.ask_line(pool, now);
    }
}

fn waits(reply: &Reply) -> bool {
    matches!(reply, Reply::Refused { why, after, .. } if line_helps(*why, *after))
}

fn lease_of(op: &GateOp) -> LeaseId {
    match op {
        GateOp::Admit(admit) => admit.lease,
        GateOp::Settle { lease, .. } | GateOp::Renew { lease } | GateOp::Release { lease } => *lease,
    }
}
