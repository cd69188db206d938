//! The pool itself: one command in, one reply out.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::id::{Choice, LeaseId, SourceId, TargetId};
use crate::mutants::{Mutant, active};
use crate::outcome::Outcome;
use crate::time::{Span, Time};

use super::breaker::Evidence;
use super::gate::{Admit, Candidate, Gate, GateOp, GateReply, Verdict};
use super::health::Health;
use super::lease::Leases;
use super::line::{Line, Sources};
use super::order::{self, Load, Question, Ranked};
use super::pace::Pace;
use super::progress::Progress;
use super::registry::Names;
use super::settings::Settings;
use super::{Op, Refusal, Reply, Reserve, Settle, Strategy};

/// What all calls share: who is well, who may be asked, who stands in line.
///
/// [`Pool::apply`] is total: any command in any order gets an answer, unknown names do nothing.
#[derive(Clone, Debug)]
pub struct Pool {
    pub(super) settings: Settings,
    pub(super) now: Time,
    pub(super) names: Names,
    pub(super) targets: Vec<Target>,
    pub(super) sources: Vec<Source>,
    pub(super) gate: Gate,
    /// Places held here. The gate keeps its own book: it may be another machine's.
    pub(super) grants: Leases<Grant>,
    turns: Vec<(u32, u32)>,
    pub(super) line: Line,
    /// When the line must be looked at even if nothing frees.
    line_due: Time,
    /// One in line whose call asks again by then, so that the line is looked at.
    watch: Option<LeaseId>,
    /// Sources that freed something since the line was last looked at.
    pub(super) freed: Sources,
    /// Sources of which a breaker changed since then: others may stand in for them, whatever room they have themselves.
    changed: Sources,
    outbox: VecDeque<(LeaseId, Reply)>,
    pub(super) progress: Progress,
    /// Room that is used again for every decision.
    ranked: Vec<Ranked>,
    candidates: Vec<Candidate>,
    pub(super) verdicts: Vec<Verdict>,
    asked: Vec<Asked>,
}

/// The order half's view of a target.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) source: SourceId,
    /// It stands in the present configuration.
    pub(super) kept: bool,
    pub(super) health: Health,
    pub(super) pace: Pace,
    pub(super) inflight: u32,
    /// Questions under way that will most likely start here; 0 while the gate is in memory.
    pub(super) asking: u32,
    /// The lower of the server's and the source's concurrency; 0 = none.
    pub(super) ceiling: u32,
}

impl Target {
    /// Attempts in flight, and those that are about to be.
    fn busy(&self) -> u32 {
        self.inflight.saturating_add(self.asking)
    }
}

/// The order half's view of a source.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// The first in line that waits for its tokens; nobody behind takes them (G15).
    pub(super) token_line: u64,
}

/// A place held.
#[derive(Copy, Clone, Debug)]
pub(super) struct Grant {
    pub(super) target: TargetId,
    choice: Choice,
    probe: bool,
    ttl: Span,
}

/// A waiter without experience of its own that was asked in vain: others like it need not be asked this time.
#[derive(Copy, Clone, Debug)]
struct Asked {
    /// Its address: who asks for the same list.
    roster: usize,
    wait_until: Time,
    why: Refusal,
    next: Time,
    /// The soonest that anything ends by itself, be it beyond `wait_until`: one who can wait longer may wait for it.
    soonest: Option<Time>,
}

/// Rosters whose turns are remembered; beyond it all begin anew.
const MAX_ROSTERS: usize = 4096;

impl Pool {
    /// An empty pool.
    pub fn new(settings: Settings) -> Pool {
        Pool {
            gate: Gate::new(settings.breaker.clone()),
            settings,
            now: Time::ZERO,
            names: Names::default(),
            targets: Vec::new(),
            sources: Vec::new(),
            grants: Leases::new(),
            turns: Vec::new(),
            line: Line::new(),
            line_due: Time::NEVER,
            watch: None,
            freed: Sources::NONE,
            changed: Sources::NONE,
            outbox: VecDeque::new(),
            progress: Progress::default(),
            ranked: Vec::new(),
            candidates: Vec::new(),
            verdicts: Vec::new(),
            asked: Vec::new(),
        }
    }

    /// Executes a command. Time never goes back: an earlier `now` counts as the latest one known.
    ///
    /// It may grant places to others who wait: take them with [`Pool::pop_granted`] before the next command.
    pub fn apply(&mut self, now: Time, op: &Op) -> Reply {
        self.now = self.now.max(now);
        self.expire();
        let reply = match op {
            Op::Reserve(reserve) => {
                // Whoever asks again has not given up: he is not passed over for the time that he named before.
                if let Some(at) = self.line.position(reserve.lease) {
                    self.line.extend(at, reserve.wait_until);
                }
                self.serve_line();
                self.reserve(reserve)
            }
            Op::Settle(settle) => {
                let told = self.take_settlement(settle).map(|op| self.gate_apply(&op));
                let change = told.and_then(GateReply::change);
                if let Some(target) = change.and_then(|change| self.targets.get(change.target.0 as usize)) {
                    self.changed.add(target.source);
                }
                self.serve_line();
                Reply::Settled { change }
            }
            Op::Renew { lease } => {
                let _ = self.take_renewal(*lease).map(|op| self.gate_apply(&op));
                self.serve_line();
                Reply::Done
            }
            Op::Leave { lease } => {
                let _ = self.take_leave(*lease).map(|op| self.gate_apply(&op));
                self.serve_line();
                Reply::Done
            }
        };
        self.keep_watch();
        reply
    }

    /// Serves those in line who can start by now, for a driver that changed something which no command tells of: a new
    /// configuration. What they get is to be taken with [`Pool::pop_granted`], as after a command.
    pub fn look(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.expire();
        self.serve_line();
        self.keep_watch();
    }

    /// News for somebody in line: his lease and a [`Reply::Granted`], with which he stands in line no longer, or another
    /// [`Reply::Refused`]. That says that waiting on is no use any more, because breakers opened meanwhile (G7), or, where
    /// [`line_helps`], until when it is: he keeps his place, and asks again then as if he had been told so at first.
    pub fn pop_granted(&mut self) -> Option<(LeaseId, Reply)> {
        self.outbox.pop_front()
    }

    pub(super) fn gate_apply(&mut self, op: &GateOp) -> GateReply {
        self.gate.apply(self.now, op, &mut self.verdicts)
    }

    pub(super) fn expire(&mut self) {
        self.gate.expire(self.now);
        while let Some((lease, grant)) = self.grants.pop_expired(self.now) {
            self.give_back(lease, grant);
        }
    }

    /// The bookkeeping of every end of a grant.
    fn give_back(&mut self, lease: LeaseId, grant: Grant) {
        self.unpost(lease);
        if let Some(target) = self.targets.get_mut(grant.target.0 as usize) {
            target.inflight = target.inflight.saturating_sub(1);
            if !active(Mutant::LineForgotten) {
                self.freed.add(target.source);
            }
        }
    }

    /// Takes a settlement in; what the gate is to hear of it, unless the lease is unknown.
    pub(super) fn take_settlement(&mut self, settle: &Settle) -> Option<GateOp> {
        let grant = self.grants.remove(settle.lease)?;
        self.learn(grant.target, settle);
        self.give_back(settle.lease, grant);
        let evidence = match settle.outcome {
            Outcome::Success if settle.slow => Evidence::Failure,
            Outcome::Success => Evidence::Success,
            Outcome::Transient => Evidence::Failure,
            Outcome::RateLimited if self.settings.breaker.count_rate_limited => Evidence::Failure,
            Outcome::RateLimited if active(Mutant::PushbackIsAFailure) => Evidence::Failure,
            Outcome::Cancelled if active(Mutant::CancelIsAFailure) => Evidence::Failure,
            Outcome::SourceDead => Evidence::Dead,
            Outcome::RateLimited | Outcome::ResultInvalid | Outcome::RequestRejected | Outcome::Cancelled => {
                Evidence::Neutral
            }
        };
        Some(GateOp::Settle { lease: settle.lease, evidence, rest: settle.rest, tokens: settle.tokens })
    }

    /// What the order half takes from an outcome (G3, G8, G14, G16). The attempt still counts as in flight.
    fn learn(&mut self, target: TargetId, settle: &Settle) {
        let Some(target) = self.targets.get_mut(target.0 as usize) else { return };
        let good = match settle.outcome {
            Outcome::Success => Some(true),
            Outcome::Transient | Outcome::RateLimited | Outcome::SourceDead => Some(false),
            Outcome::ResultInvalid | Outcome::RequestRejected | Outcome::Cancelled => None,
        };
        if let Some(good) = good {
            target.health.learn(good, &self.settings.health);
        }
        if settle.overload || settle.outcome == Outcome::RateLimited {
            target.pace.cut(target.inflight, &self.settings.pace, target.ceiling);
        } else if good == Some(true) {
            target.pace.grow(target.ceiling);
        }
        if good == Some(true) {
            self.progress.note(self.now);
        }
    }

    /// Takes a departure in; what the gate is to hear of it.
    pub(super) fn take_leave(&mut self, lease: LeaseId) -> Option<GateOp> {
        self.unpost(lease);
        if let Some(grant) = self.grants.remove(lease) {
            self.give_back(lease, grant);
            return Some(GateOp::Release { lease });
        }
        if let Some(at) = self.line.position(lease) {
            self.leave_line(at);
        }
        None
    }

    /// Takes a sign of life in; what the gate is to hear of it.
    pub(super) fn take_renewal(&mut self, lease: LeaseId) -> Option<GateOp> {
        let expires = self.now.after(self.grants.get(lease)?.ttl);
        self.grants.renew(lease, expires).then_some(GateOp::Renew { lease })
    }

    /// What a lease that is live already is told when it asks again.
    pub(super) fn held(&mut self, lease: LeaseId) -> Option<Reply> {
        let posted = self.unpost(lease);
        let Grant { choice, probe, .. } = *self.grants.get(lease)?;
        Some(posted.unwrap_or(Reply::Granted { choice, probe, change: None }))
    }

    /// Takes back news that was not fetched.
    fn unpost(&mut self, lease: LeaseId) -> Option<Reply> {
        let at = self.outbox.iter().position(|(posted, _)| *posted == lease)?;
        self.outbox.remove(at).map(|(_, reply)| reply)
    }

    fn reserve(&mut self, reserve: &Reserve) -> Reply {
        if let Some(held) = self.held(reserve.lease) {
            return held;
        }
        let position = self.line.position(reserve.lease);
        let (ticket, turn) = match position {
            Some(at) => (self.line.get(at).map_or(0, |waiter| waiter.ticket), self.line.turn(at)),
            None => (self.line.next_ticket(), self.turn(reserve)),
        };
        let reply = self.decide(ticket, Question::of(reserve, turn), Admit::of(reserve));
        match reply {
            Reply::Refused { why, after, soonest, .. } if reserve.queue && line_helps(why, after) => {
                let at = match position {
                    Some(at) => {
                        self.line.update(at, reserve);
                        Some(at)
                    }
                    None if self.line.len() >= self.settings.max_queue.max(1) as usize => None,
                    None => Some(self.line.join(reserve, turn)),
                };
                if let Some(at) = at {
                    self.note_waiter(at, why, after, soonest);
                    if let Some(waiter) = self.line.get_mut(at) {
                        waiter.told = waiter.next;
                    }
                }
            }
            _ => {
                if let Some(at) = position {
                    self.leave_line(at);
                }
            }
        }
        reply
    }

    /// The turn of a call on its roster: its first question begins one further, the later ones stay there.
    pub(super) fn turn(&mut self, reserve: &Reserve) -> u32 {
        if reserve.roster.strategy != Strategy::RoundRobin {
            return 0;
        }
        let at = match self.turns.binary_search_by_key(&reserve.roster.id, |(id, _)| *id) {
            Ok(at) => at,
            Err(at) => {
                let at = if self.turns.len() >= MAX_ROSTERS { 0 } else { at };
                if self.turns.len() >= MAX_ROSTERS {
                    self.turns.clear();
                }
                self.turns.insert(at, (reserve.roster.id, 0));
                at
            }
        };
        let next = &mut self.turns[at].1;
        if reserve.standing.is_empty() {
            *next = next.wrapping_add(1);
        }
        next.wrapping_sub(1)
    }

    /// Orders the candidates and asks the gate. On a grant the place is booked.
    fn decide(&mut self, ticket: u64, question: Question<'_>, admit: Admit) -> Reply {
        let room = core::mem::take(&mut self.candidates);
        let op = GateOp::Admit(self.draft(ticket, question, admit, room));
        let reply = self.gate_apply(&op);
        let GateOp::Admit(admit) = op else { return self.refused(Refusal::Nothing, None, None) };
        let reply = self.book(&admit, reply);
        self.candidates = admit.candidates;
        reply
    }

    /// The gate's question: the candidates in order, with all that the order half knows of them, written into `room`.
    pub(super) fn draft(
        &mut self,
        ticket: u64,
        question: Question<'_>,
        admit: Admit,
        mut room: Vec<Candidate>,
    ) -> Admit {
        let targets = &self.targets;
        order::rank(&mut self.ranked, question, &self.settings.health, |target| {
            targets.get(target.0 as usize).map(|target| Load { health: target.health, inflight: target.busy() })
        });
        room.clear();
        room.extend(self.ranked.iter().map(|ranked| {
            let target = &targets[ranked.target.0 as usize];
            Candidate {
                choice: Choice(ranked.choice),
                target: ranked.target,
                tier: ranked.tier,
                fresh: order::is_fresh(&ranked.standing, question.sticky),
                health_ppm: ranked.health,
                paced: !target.pace.allows(target.busy(), target.ceiling),
                behind: self.sources[target.source.0 as usize].token_line < ticket,
                hold: ranked.hold,
                not_before: ranked.standing.not_before,
            }
        }));
        Admit { credible_ppm: self.settings.health.credible_ppm, candidates: room, ..admit }
    }

    /// Books what the gate granted; its answer in the call's terms.
    pub(super) fn book(&mut self, admit: &Admit, reply: GateReply) -> Reply {
        match reply {
            GateReply::Admitted { index, probe, change } => match admit.candidates.get(usize::from(index)) {
                Some(&Candidate { choice, target, .. }) => {
                    if let Some(target) = self.targets.get_mut(target.0 as usize) {
                        target.inflight += 1;
                    }
                    let grant = Grant { target, choice, probe, ttl: admit.ttl };
                    self.grants.insert(admit.lease, self.now.after(admit.ttl), grant);
                    Reply::Granted { choice, probe, change }
                }
                None => self.refused(Refusal::Nothing, None, None),
            },
            GateReply::Denied { why, after, soonest } => self.refused(why, after, soonest),
            GateReply::Settled { .. } | GateReply::Done => self.refused(Refusal::Nothing, None, None),
        }
    }

    pub(super) fn refused(&self, why: Refusal, after: Option<Time>, soonest: Option<Time>) -> Reply {
        Reply::Refused { why, after, soonest, progress: self.progress.last() }
    }

    /// Writes down what a waiter waits for, right after it was refused.
    fn note_waiter(&mut self, at: usize, why: Refusal, after: Option<Time>, soonest: Option<Time>) {
        let Some(waiter) = self.line.get_mut(at) else { return };
        waiter.next = after.unwrap_or(Time::NEVER);
        (waiter.why, waiter.soonest) = (why, soonest);
        waiter.sources = Sources::NONE;
        self.line_due = self.line_due.min(waiter.next);
        for (ranked, verdict) in self.ranked.iter().zip(&self.verdicts) {
            let source = self.targets[ranked.target.0 as usize].source;
            waiter.sources.add(source);
            if *verdict == Verdict::Tokens {
                let line = &mut self.sources[source.0 as usize].token_line;
                *line = (*line).min(waiter.ticket);
            }
        }
    }

    /// Takes a waiter out of the line; whoever stood behind it for tokens is asked again.
    fn leave_line(&mut self, at: usize) {
        let Some(waiter) = self.line.leave(at) else { return };
        for (id, source) in self.sources.iter_mut().enumerate() {
            if source.token_line == waiter.ticket {
                source.token_line = u64::MAX;
                self.freed.add(SourceId(id as u32));
            }
        }
    }

    /// Asks those in line who may be able to start, first come first served, and posts what they get.
    ///
    /// Runs before every newcomer's own question, so nobody is overtaken. Every waiter is passed once at most.
    fn serve_line(&mut self) {
        let changed = core::mem::replace(&mut self.changed, Sources::NONE);
        if self.line.len() == 0 || (self.freed.with(changed) == Sources::NONE && self.now < self.line_due) {
            self.freed = Sources::NONE;
            return;
        }
        let due = core::mem::replace(&mut self.line_due, Time::NEVER);
        self.asked.clear();
        let mut freed = self.take_freed().with(changed);
        let mut at = 0;
        while let Some(waiter) = self.line.get(at).copied() {
            if freed == Sources::NONE && self.now < due {
                // What was freed is taken, nobody's time has come: the rest of the line need not be looked at.
                self.line_due = self.line_due.min(due);
                break;
            }
            if waiter.wait_until < self.now {
                // Its call has given up, or will when it hears of the time.
                self.leave_line(at);
                freed = freed.with(self.take_freed());
                continue;
            }
            if !waiter.sources.meets(freed) && waiter.next > self.now {
                self.line_due = self.line_due.min(waiter.next);
                at += 1;
                continue;
            }
            match self.ask(at, waiter.ticket, waiter.lease) {
                Some(reply) => {
                    self.leave_line(at);
                    freed = self.with_room(freed).with(self.take_freed()).with(changed);
                    self.outbox.push_back((waiter.lease, reply));
                }
                None => at += 1,
            }
        }
    }

    /// Sees to it that somebody looks at the line when its time comes. What one waits for may have become another thing
    /// since he was told: the place that he stood in line for was freed by a pushback, and now it rests. With nobody else
    /// about, nothing would ever happen again. One who is told is enough: with his question all are asked.
    fn keep_watch(&mut self) {
        if self.line_due == Time::NEVER || self.line.len() == 0 {
            return;
        }
        let watch = self.watch.and_then(|lease| self.line.position(lease)).and_then(|at| self.line.get(at));
        if watch.is_some_and(|watch| watch.told <= self.line_due) {
            return;
        }
        let first = self.line.first_due().copied();
        self.line_due = first.map_or(Time::NEVER, |first| first.next);
        let Some(first) = first else { return };
        if let Some(watch) = self.line.asking_by(first.next) {
            self.watch = Some(watch.lease);
            return;
        }
        self.watch = Some(first.lease);
        if let Some(waiter) = self.line.position(first.lease).and_then(|at| self.line.get_mut(at)) {
            waiter.told = first.next;
        }
        // The end that he waits for may lie beyond his reach by now; he gives up in his own time then.
        let reply = self.refused(first.why, Some(first.next), first.soonest);
        self.outbox.push_back((first.lease, reply));
    }

    fn take_freed(&mut self) -> Sources {
        let freed = core::mem::replace(&mut self.freed, Sources::NONE);
        self.with_room(freed)
    }

    /// Those of them that may have room: where the first in line took the one place, the others need not be asked.
    /// With more sources than bits all stay, one that is full may share its bit with one that is not.
    fn with_room(&self, mut freed: Sources) -> Sources {
        if self.sources.len() > Sources::EXACT {
            return freed;
        }
        for at in 0..self.sources.len() {
            let id = SourceId(at as u32);
            if freed.has(id) && !self.has_room(id) {
                freed.remove(id);
            }
        }
        freed
    }

    /// Whether anything could start at a source as far as its own concurrency and its targets' paces go.
    fn has_room(&self, id: SourceId) -> bool {
        let unpaced = |target: &Target| target.source == id && target.pace.allows(target.inflight, target.ceiling);
        !self.gate.sources[id.0 as usize].is_full() && self.targets.iter().any(unpaced)
    }

    /// Asks for one waiter; what there is to tell him, if anything.
    fn ask(&mut self, at: usize, ticket: u64, lease: LeaseId) -> Option<Reply> {
        let request = self.line.lend(at);
        let roster = request.roster.as_deref().map_or(0, |roster| core::ptr::from_ref(roster).addr());
        let plain = request.standing.is_empty();
        // The longer one can wait, the more one waits for, so whoever can wait as long as one refused is refused.
        let like = |asked: &&Asked| asked.roster == roster && asked.wait_until <= request.wait_until;
        if let Some(asked) = self.asked.iter().find(like).filter(|_| plain).copied() {
            self.line.give_back(at, request);
            if let Some(waiter) = self.line.get_mut(at) {
                waiter.next = asked.next.min(asked.soonest.unwrap_or(Time::NEVER));
                (waiter.why, waiter.soonest) = (asked.why, asked.soonest);
                self.line_due = self.line_due.min(waiter.next);
            }
            return None;
        }
        let wait_until = request.wait_until;
        let admit = Admit { lease, ttl: request.ttl, tokens: request.tokens, wait_until, ..Admit::default() };
        let reply = match request.question() {
            Some(question) => self.decide(ticket, question, admit),
            None => self.refused(Refusal::Nothing, None, None),
        };
        self.line.give_back(at, request);
        match reply {
            Reply::Refused { why, after, soonest, .. } if line_helps(why, after) => {
                self.note_waiter(at, why, after, soonest);
                if plain {
                    self.asked.push(Asked { roster, wait_until, why, next: after.unwrap_or(Time::NEVER), soonest });
                }
                None
            }
            told => Some(told),
        }
    }
}

/// Whether standing in line may bring a place: one is missing, or a pushback ends in time. A breaker is not waited for
/// (G7), and a backoff is the call's own business.
pub fn line_helps(why: Refusal, after: Option<Time>) -> bool {
    match why {
        Refusal::Paced | Refusal::Full => true,
        Refusal::Resting => after.is_some(),
        Refusal::Nothing | Refusal::Breaker | Refusal::Backoff | Refusal::StoreDown => false,
    }
}
