//! The pool itself: one command in, one reply out.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::id::{Choice, LeaseId, SourceId, TargetId};
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
    /// Sources that freed something since the line was last looked at.
    pub(super) freed: Sources,
    outbox: VecDeque<(LeaseId, Reply)>,
    pub(super) progress: Progress,
    /// Room that is used again for every decision.
    ranked: Vec<Ranked>,
    candidates: Vec<Candidate>,
    verdicts: Vec<Verdict>,
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
    /// The lower of the server's and the source's concurrency; 0 = none.
    pub(super) ceiling: u32,
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
    next: Time,
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
            freed: Sources::NONE,
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
    /// It may have news for others who wait: take it with [`Pool::pop_granted`] before the next command.
    pub fn apply(&mut self, now: Time, op: &Op) -> Reply {
        self.now = self.now.max(now);
        self.expire();
        match op {
            Op::Reserve(reserve) => {
                self.serve_line();
                self.reserve(reserve)
            }
            Op::Settle(settle) => {
                let reply = self.settle(settle);
                self.serve_line();
                reply
            }
            Op::Renew { lease } => {
                if let Some(grant) = self.grants.get(*lease) {
                    let expires = self.now.after(grant.ttl);
                    self.grants.renew(*lease, expires);
                    self.gate_apply(&GateOp::Renew { lease: *lease });
                }
                self.serve_line();
                Reply::Done
            }
            Op::Leave { lease } => {
                self.leave(*lease);
                self.serve_line();
                Reply::Done
            }
        }
    }

    /// News for somebody in line: his lease and the [`Reply::Granted`] that he waits for, or the [`Reply::Refused`] that
    /// ends his waiting because what he waited for will not come: its breaker opened, its rest became too long (G7, G12).
    pub fn pop_granted(&mut self) -> Option<(LeaseId, Reply)> {
        self.outbox.pop_front()
    }

    fn gate_apply(&mut self, op: &GateOp) -> GateReply {
        self.gate.apply(self.now, op, &mut self.verdicts)
    }

    fn expire(&mut self) {
        while let Some((lease, grant)) = self.grants.pop_expired(self.now) {
            self.give_back(lease, grant);
        }
    }

    /// The bookkeeping of every end of a grant.
    fn give_back(&mut self, lease: LeaseId, grant: Grant) {
        self.outbox.retain(|(granted, _)| *granted != lease);
        if let Some(target) = self.targets.get_mut(grant.target.0 as usize) {
            target.inflight = target.inflight.saturating_sub(1);
            self.freed.add(target.source);
        }
    }

    fn settle(&mut self, settle: &Settle) -> Reply {
        let Some(grant) = self.grants.remove(settle.lease) else { return Reply::Settled { change: None } };
        self.learn(grant.target, settle);
        self.give_back(settle.lease, grant);
        let evidence = match settle.outcome {
            Outcome::Success if settle.slow => Evidence::Failure,
            Outcome::Success => Evidence::Success,
            Outcome::Transient => Evidence::Failure,
            Outcome::RateLimited if self.settings.breaker.count_rate_limited => Evidence::Failure,
            Outcome::SourceDead => Evidence::Dead,
            Outcome::RateLimited | Outcome::ResultInvalid | Outcome::RequestRejected | Outcome::Cancelled => {
                Evidence::Neutral
            }
        };
        let op = GateOp::Settle { lease: settle.lease, evidence, rest: settle.rest, tokens: settle.tokens };
        match self.gate_apply(&op) {
            GateReply::Settled { change } => Reply::Settled { change },
            _ => Reply::Settled { change: None },
        }
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

    fn leave(&mut self, lease: LeaseId) {
        if let Some(grant) = self.grants.remove(lease) {
            self.give_back(lease, grant);
            self.gate_apply(&GateOp::Release { lease });
        } else if let Some(at) = self.line.position(lease) {
            self.leave_line(at);
        }
    }

    fn reserve(&mut self, reserve: &Reserve) -> Reply {
        // A refusal that was posted just now is overtaken by the answer to this question.
        self.outbox.retain(|(lease, reply)| *lease != reserve.lease || matches!(reply, Reply::Granted { .. }));
        if let Some(grant) = self.grants.get(reserve.lease) {
            let again = Reply::Granted { choice: grant.choice, probe: grant.probe, change: None };
            let posted = self.outbox.iter().position(|(lease, _)| *lease == reserve.lease);
            return posted.and_then(|at| self.outbox.remove(at)).map_or(again, |(_, reply)| reply);
        }
        let position = self.line.position(reserve.lease);
        let (ticket, turn) = match position {
            Some(at) => (self.line.get(at).map_or(0, |waiter| waiter.ticket), self.line.turn(at)),
            None => (self.line.next_ticket(), self.turn(reserve)),
        };
        let question = Question {
            roster: &reserve.roster,
            standing: &reserve.standing,
            sticky: reserve.sticky,
            draw: reserve.draw,
            turn,
        };
        let admit = Admit {
            lease: reserve.lease,
            ttl: reserve.ttl,
            tokens: reserve.tokens,
            wait_until: reserve.wait_until,
            ..Admit::default()
        };
        let reply = self.decide(ticket, question, admit);
        match reply {
            Reply::Refused { why: Refusal::Paced | Refusal::Full | Refusal::Resting, after, .. } if reserve.queue => {
                let at = match position {
                    Some(at) => {
                        self.line.update(at, reserve);
                        Some(at)
                    }
                    None if self.line.len() >= self.settings.max_queue.max(1) as usize => None,
                    None => Some(self.line.join(reserve, turn)),
                };
                if let Some(at) = at {
                    self.note_waiter(at, after);
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
    fn turn(&mut self, reserve: &Reserve) -> u32 {
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
    fn decide(&mut self, ticket: u64, question: Question<'_>, mut admit: Admit) -> Reply {
        let targets = &self.targets;
        order::rank(&mut self.ranked, question, &self.settings.health, |target| {
            targets.get(target.0 as usize).map(|target| Load { health: target.health, inflight: target.inflight })
        });
        admit.credible_ppm = self.settings.health.credible_ppm;
        admit.candidates = core::mem::take(&mut self.candidates);
        admit.candidates.clear();
        for ranked in &self.ranked {
            let target = &self.targets[ranked.target.0 as usize];
            admit.candidates.push(Candidate {
                target: ranked.target,
                tier: ranked.tier,
                fresh: order::is_fresh(&ranked.standing, question.sticky),
                health_ppm: ranked.health,
                paced: !target.pace.allows(target.inflight, target.ceiling),
                behind: self.sources[target.source.0 as usize].token_line < ticket,
                hold: ranked.hold,
                not_before: ranked.standing.not_before,
            });
        }
        let (lease, ttl) = (admit.lease, admit.ttl);
        let op = GateOp::Admit(admit);
        let reply = self.gate_apply(&op);
        if let GateOp::Admit(admit) = op {
            self.candidates = admit.candidates;
        }
        match reply {
            GateReply::Admitted { index, probe, change } => match self.ranked.get(usize::from(index)).copied() {
                Some(Ranked { choice, target, .. }) => {
                    let choice = Choice(choice);
                    self.targets[target.0 as usize].inflight += 1;
                    self.grants.insert(lease, self.now.after(ttl), Grant { target, choice, probe, ttl });
                    Reply::Granted { choice, probe, change }
                }
                None => self.refused(Refusal::Nothing, None, None),
            },
            GateReply::Denied { why, after, soonest } => self.refused(why, after, soonest),
            GateReply::Settled { .. } | GateReply::Done => self.refused(Refusal::Nothing, None, None),
        }
    }

    fn refused(&self, why: Refusal, after: Option<Time>, soonest: Option<Time>) -> Reply {
        Reply::Refused { why, after, soonest, progress: self.progress.last() }
    }

    /// Writes down what a waiter waits for, right after it was refused.
    fn note_waiter(&mut self, at: usize, after: Option<Time>) {
        let Some(waiter) = self.line.get_mut(at) else { return };
        waiter.next = after.unwrap_or(Time::NEVER);
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
    /// Runs before every newcomer's own question, so nobody is overtaken. Every waiter is passed once.
    fn serve_line(&mut self) {
        if self.line.len() == 0 || (self.freed == Sources::NONE && self.now < self.line_due) {
            self.freed = Sources::NONE;
            return;
        }
        self.line_due = Time::NEVER;
        self.asked.clear();
        let mut freed = core::mem::replace(&mut self.freed, Sources::NONE);
        let mut at = 0;
        while let Some(waiter) = self.line.get(at).copied() {
            if waiter.wait_until < self.now {
                // Its call has given up, or will when it hears of the time.
                self.leave_line(at);
                freed = freed.with(core::mem::replace(&mut self.freed, Sources::NONE));
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
                    freed = freed.with(core::mem::replace(&mut self.freed, Sources::NONE));
                    self.outbox.push_back((waiter.lease, reply));
                }
                None => at += 1,
            }
        }
    }

    /// Asks for one waiter; what ends his waiting, if anything does.
    fn ask(&mut self, at: usize, ticket: u64, lease: LeaseId) -> Option<Reply> {
        let request = self.line.lend(at);
        let roster = request.roster.as_deref().map_or(0, |roster| core::ptr::from_ref(roster).addr());
        let plain = request.standing.is_empty();
        // The longer one can wait, the more one waits for, so whoever can wait as long as one refused is refused.
        let like = |asked: &&Asked| asked.roster == roster && asked.wait_until <= request.wait_until;
        if let Some(asked) = self.asked.iter().find(like).filter(|_| plain).copied() {
            self.line.give_back(at, request);
            if let Some(waiter) = self.line.get_mut(at) {
                waiter.next = asked.next;
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
            // Nothing is left that a wait would cure: nobody would ever ask for him again.
            Reply::Refused { why, after: None, .. } if !matches!(why, Refusal::Paced | Refusal::Full) => Some(reply),
            Reply::Refused { after, .. } => {
                self.note_waiter(at, after);
                if plain {
                    self.asked.push(Asked { roster, wait_until, next: after.unwrap_or(Time::NEVER) });
                }
                None
            }
            granted => Some(granted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{Entry, Roster, SourceSpec, TargetSpec};
    use alloc::sync::Arc;
    use alloc::vec;

    /// G7: who waits for a place at a target whose breaker opens meanwhile hears of it, as a newcomer would.
    #[test]
    fn a_breaker_that_opens_ends_the_waiting_for_its_target() {
        let mut settings = Settings::default();
        settings.breaker.fail_threshold = 1;
        let mut pool = Pool::new(settings);
        let source = SourceSpec { name: "p/k", account: "p/k", max_concurrency: 1, rpm: 0, tpm: 0 };
        let (target, _) = pool.register(&TargetSpec { name: "p/k/m", provider: "p", model: "m", source });
        let entries = vec![Entry { target, tier: 0 }];
        let roster = Arc::new(Roster { id: 0, strategy: Strategy::Priority, entries });
        let reserve = |lease| {
            Op::Reserve(Reserve {
                lease: LeaseId(lease),
                roster: roster.clone(),
                standing: vec![],
                sticky: 1,
                draw: 0,
                tokens: 0,
                wait_until: Time::NEVER,
                ttl: Span::from_secs(150),
                queue: true,
            })
        };
        let now = Time::from_millis(1);
        assert!(matches!(pool.apply(now, &reserve(1)), Reply::Granted { .. }));
        assert!(matches!(pool.apply(now, &reserve(2)), Reply::Refused { why: Refusal::Paced, .. }));
        let failed = |lease| {
            let (lease, outcome) = (LeaseId(lease), Outcome::Transient);
            Op::Settle(Settle { lease, outcome, slow: false, rest: None, overload: false, tokens: None })
        };
        // By the source's own concurrency two failures in a row open (G1).
        pool.apply(now, &failed(1));
        let granted = pool.pop_granted();
        assert!(matches!(granted, Some((LeaseId(2), Reply::Granted { .. }))), "{granted:?}");
        assert!(matches!(pool.apply(now, &reserve(3)), Reply::Refused { why: Refusal::Paced, .. }));
        pool.apply(now, &failed(2));
        let told = pool.pop_granted();
        assert!(matches!(told, Some((LeaseId(3), Reply::Refused { why: Refusal::Breaker, .. }))), "{told:?}");
        assert_eq!(pool.waiting(), 0);
    }
}
