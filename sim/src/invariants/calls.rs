//! One call by the book: what may follow what (S2, S3, S8, S9, S10) and what its budgets allow (S5, F2–F6, G11, M6).

use std::sync::Arc;

use surefoot_core::call::Phase;
use surefoot_core::event::{Action, Answer, CancelCause, Commit, End, Fault, Input, Reason, Stop, What};
use surefoot_core::id::{AttemptNo, Choice, LeaseId};
use surefoot_core::outcome::Outcome;
use surefoot_core::policy::{CallPolicy, Candidate, Plan, ProviderPolicy, Route};
use surefoot_core::pool::{Op, Refusal, Reply, Strategy};
use surefoot_core::time::{Span, Time};
use surefoot_core::wire::Format;

use super::book::Wrong;
use crate::world::script::Truth;

/// Actions between two inputs at most, forwarded bytes aside.
const MAX_ACTIONS: u32 = 24;
/// Ticks at one moment at most: there are nine timers.
const MAX_TICKS: u32 = 12;
/// Replies at one moment at most: every attempt there may be asks, is settled and given back a few times over.
const MAX_REPLIES: u32 = 1000;

/// An attempt as seen from outside.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) choice: Choice,
    pub(super) lease: LeaseId,
    pub(super) probe: bool,
    pub(super) started: Time,
    pub(super) truth: Option<Arc<Truth>>,
    /// Bytes of the body that the call was told, and when last.
    pub(super) told: usize,
    pub(super) last_byte: Time,
    pub(super) head_told: bool,
    /// Its end or its break was told.
    pub(super) over: bool,
    pub(super) fault: Option<Fault>,
    /// How it was settled, and when.
    pub(super) settled: Option<(Time, Outcome)>,
    pub(super) reason: Option<Reason>,
}

/// A call as seen from outside.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) plan: Plan,
    /// Chunks that it took in after its deadline.
    after_deadline: u32,
    pub(super) arrived: Time,
    pub(super) judged: bool,
    /// L4: everything but one source was shut when it came.
    pub(super) lone: bool,
    pub(super) attempts: Vec<Attempt>,
    pub(super) commit: Option<Commit>,
    pub(super) forwarded: Vec<u8>,
    pub(super) finished: Option<End>,
    pub(super) left: Option<(Time, CancelCause)>,
    /// Its client left and its attempts run on.
    pub(super) runs_on: bool,
    granted: Option<(LeaseId, bool)>,
    connection: Option<AttemptNo>,
    actions: u32,
    ticks: (Time, u32),
    replies: (Time, u32),
    waits: Waits,
    largest_chunk: usize,
}

#[derive(Debug, Default)]
struct Waits {
    since: Option<Time>,
    spent: Span,
    backoff: bool,
}

fn ensure(holds: bool, id: &'static str, text: impl FnOnce() -> String) -> Result<(), Wrong> {
    if holds { Ok(()) } else { Err((id, text())) }
}

impl Attempt {
    /// Whether one of its timeouts had run out by `now` (F4: each stands on its own).
    pub(super) fn could_time_out(&self, call: &Call, now: Time) -> bool {
        let timeouts = &call.candidate(self.choice).timeouts;
        let age = now.since(self.started);
        let over = |limit: Span, age: Span| !limit.is_zero() && age >= limit;
        let silent = self.told == 0 && over(timeouts.first_byte, age);
        // What passes through begins with its head.
        let passes = self.head_told && matches!(call.plan.format, Format::Raw | Format::Images);
        let idle = (self.told > 0 || passes) && over(timeouts.idle, now.since(self.last_byte));
        silent || idle || over(timeouts.total, age) || self.could_be_left(call, now)
    }

    /// Whether it was slow enough to its first content to be left for another (F16).
    pub(super) fn could_be_left(&self, call: &Call, now: Time) -> bool {
        let limit = call.candidate(self.choice).timeouts.first_content;
        call.commit.is_none() && call.plan.stream && !limit.is_zero() && now.since(self.started) >= limit
    }
}

impl Call {
    pub(super) fn new(now: Time, plan: &Plan, judged: bool, lone: bool) -> Call {
        Call {
            plan: plan.clone(),
            after_deadline: 0,
            arrived: now,
            judged,
            lone,
            attempts: Vec::new(),
            commit: None,
            forwarded: Vec::new(),
            finished: None,
            left: None,
            runs_on: false,
            granted: None,
            connection: None,
            actions: 0,
            ticks: (Time::ZERO, 0),
            replies: (Time::ZERO, 0),
            waits: Waits::default(),
            largest_chunk: 0,
        }
    }

    pub(super) fn candidate(&self, choice: Choice) -> &Candidate {
        &self.plan.route.candidates[usize::from(choice.0)]
    }

    pub(super) fn policy(&self) -> &CallPolicy {
        &self.plan.route.policy
    }

    pub(super) fn route(&self) -> &Route {
        &self.plan.route
    }

    pub(super) fn deadline(&self) -> Time {
        self.policy().deadline.limit().map_or(Time::NEVER, |deadline| self.arrived.after(deadline))
    }

    pub(super) fn attempt(&self, no: AttemptNo) -> Option<&Attempt> {
        self.attempts.get(usize::from(no.0))
    }

    /// The call is about to be told something.
    pub(super) fn input(&mut self, now: Time, input: &Input) -> Result<(), Wrong> {
        self.actions = 0;
        if !matches!(input, Input::Tick) {
            self.ticks.1 = 0;
        }
        match input {
            Input::Tick => {
                self.ticks = if self.ticks.0 == now { (now, self.ticks.1 + 1) } else { (now, 1) };
                return ensure(self.ticks.1 <= MAX_TICKS, "S9", || "ticked over and over at one moment".into());
            }
            Input::Reply { lease, reply } => {
                self.replies = if self.replies.0 == now { (now, self.replies.1 + 1) } else { (now, 1) };
                ensure(self.replies.1 <= MAX_REPLIES, "S9", || "asks over and over at one moment".into())?;
                return self.replied(now, *lease, reply);
            }
            Input::Head { attempt, .. } => self.of(*attempt, |attempt| {
                (attempt.head_told, attempt.last_byte) = (true, now);
            }),
            Input::Chunk { attempt, bytes } => {
                // News goes before a timer that is due with it, once: a client that is slow to take pieces changes nothing.
                self.after_deadline += u32::from(now > self.deadline());
                ensure(self.after_deadline <= 2, "S2", || "an attempt goes on after the deadline".into())?;
                self.largest_chunk = self.largest_chunk.max(bytes.len());
                self.of(*attempt, |attempt| {
                    attempt.told += bytes.len();
                    attempt.last_byte = now;
                });
            }
            Input::End { attempt } => self.ended(*attempt, None),
            Input::Fault { attempt, fault } => self.ended(*attempt, Some(*fault)),
            // The time that the client took is not the upstream's silence (M5).
            Input::Flushed => {
                if let Some(last) = self.attempts.last_mut().filter(|last| last.settled.is_none()) {
                    last.last_byte = last.last_byte.max(now);
                }
            }
            Input::Cancel(_) => {}
        }
        Ok(())
    }

    /// News of an attempt that is over changes nothing.
    fn of(&mut self, no: AttemptNo, change: impl FnOnce(&mut Attempt)) {
        if let Some(attempt) = self.attempts.get_mut(usize::from(no.0)).filter(|attempt| attempt.settled.is_none()) {
            change(attempt);
        }
    }

    fn ended(&mut self, no: AttemptNo, fault: Option<Fault>) {
        let live = self.attempts.get(usize::from(no.0)).is_some_and(|attempt| attempt.settled.is_none());
        self.connection.take_if(|open| *open == no && live);
        self.of(no, |attempt| (attempt.over, attempt.fault) = (true, fault));
    }

    fn replied(&mut self, now: Time, lease: LeaseId, reply: &Reply) -> Result<(), Wrong> {
        match reply {
            Reply::Granted { probe, .. } => {
                self.granted = Some((lease, *probe));
                self.stop_waiting(now)
            }
            Reply::Refused { why, .. } if self.attempts.last().is_none_or(|last| last.settled.is_some()) => {
                if matches!(why, Refusal::Resting | Refusal::Paced | Refusal::Full | Refusal::Backoff) {
                    let backoff = *why == Refusal::Backoff;
                    if self.waits.backoff != backoff {
                        self.stop_waiting(now)?;
                    }
                    self.waits.since.get_or_insert(now);
                    self.waits.backoff = backoff;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// G11: all waiting together, the call's own backoff aside, is bounded.
    fn stop_waiting(&mut self, now: Time) -> Result<(), Wrong> {
        let Some(since) = self.waits.since.take() else { return Ok(()) };
        if !self.waits.backoff {
            self.waits.spent.0 += now.since(since).0;
        }
        let spent = self.waits.spent;
        // A reply of a slow store may come late: what it is late by is no waiting of the call's will.
        let slack = Span::from_secs(2);
        let limit = self.policy().max_wait;
        ensure(limit.is_zero() || spent.0 <= limit.0 + slack.0, "G11", || {
            format!("has waited {spent}, {limit} are allowed")
        })
    }

    /// The call wants something done.
    pub(super) fn action(&mut self, now: Time, action: &Action) -> Result<(), Wrong> {
        if let Some(end) = &self.finished {
            return Err(("S10", format!("after its end ({end:?}) it wants {action:?}")));
        }
        if let Action::Forward(bytes) = action {
            self.forwarded.extend_from_slice(bytes);
            return ensure(self.commit.is_some(), "S2", || "bytes go out before the commit".into());
        }
        if matches!(action, Action::Judged(_)) {
            return Ok(());
        }
        self.actions += 1;
        ensure(self.actions <= MAX_ACTIONS, "S8", || "too many actions for one input".into())?;
        match action {
            Action::Send { attempt, choice, .. } => self.send(now, *attempt, *choice),
            Action::Abort(attempt) => {
                let open = self.connection.take();
                ensure(open == Some(*attempt), "S3", || format!("aborts attempt {attempt}, open is {open:?}"))
            }
            Action::Commit(commit) => {
                let before = self.commit.replace(*commit);
                ensure(before.is_none(), "S10", || "commits a second time".into())?;
                self.stop_waiting(now)
            }
            Action::Notice(notice) => {
                if let What::AttemptEnded { reason, .. } = notice.what
                    && let Some(attempt) = notice.attempt
                {
                    self.of(attempt, |attempt| attempt.reason = Some(reason));
                }
                Ok(())
            }
            Action::Finish(end) => {
                self.finished = Some(end.clone());
                self.stop_waiting(now)
            }
            Action::Tell(Op::Settle(settle)) => {
                let (lease, outcome) = (settle.lease, settle.outcome);
                let attempt = self.attempts.iter_mut().rev().find(|attempt| attempt.lease == lease);
                let Some(attempt) = attempt else {
                    return Err(("S4", format!("settles {lease}, which is no attempt's")));
                };
                let before = attempt.settled.replace((now, outcome));
                ensure(before.is_none(), "S4", || format!("settles {lease} a second time"))
            }
            Action::Ask(Op::Reserve(reserve)) => self.backoffs(now, &reserve.standing),
            Action::Ask(_) | Action::Tell(_) | Action::Forward(_) | Action::Judged(_) => Ok(()),
        }
    }

    /// G11: a source's backoff is at most the cap, and not yet over only after a failure there.
    fn backoffs(&self, now: Time, standing: &[surefoot_core::pool::Standing]) -> Result<(), Wrong> {
        let retry = &self.policy().retry;
        for (choice, standing) in standing.iter().enumerate().filter(|(_, standing)| standing.not_before > now) {
            let tries = self.attempts.iter().filter(|attempt| usize::from(attempt.choice.0) == choice);
            let failed: Vec<Time> = tries
                .filter_map(|attempt| attempt.settled)
                .filter(|(_, outcome)| !matches!(outcome, Outcome::RateLimited | Outcome::ResultInvalid))
                .map(|(at, _)| at)
                .collect();
            let Some(last) = failed.last() else {
                return Err(("G11", format!("candidate {choice} has a backoff without a failure")));
            };
            ensure(failed.len() > 1, "F2", || format!("the first retry on candidate {choice} is not immediate"))?;
            let mut due = retry.initial.0.min(retry.max.0) as f64;
            for _ in 2..failed.len() {
                due = (due * f64::from(retry.factor_milli) / 1000.0).min(retry.max.0 as f64);
            }
            let jitter = f64::from(retry.jitter_ppm) / 1e6;
            let (low, high) = (due * (1.0 - jitter), (due * (1.0 + jitter)).min(retry.max.0 as f64));
            let wait = standing.not_before.since(*last).0 as f64;
            ensure(wait >= low - 2.0 && wait <= high + 2.0, "G11", || {
                format!("candidate {choice} waits {wait} us before its retry, {low} to {high} are right")
            })?;
        }
        Ok(())
    }

    fn send(&mut self, now: Time, no: AttemptNo, choice: Choice) -> Result<(), Wrong> {
        ensure(self.commit.is_none(), "S2", || "sends after the commit".into())?;
        ensure(self.left.is_none_or(|(_, cause)| cause == CancelCause::ClientGone), "S2", || {
            "sends for a client that left".into()
        })?;
        ensure(now < self.deadline(), "S2", || "sends after its deadline".into())?;
        ensure(self.connection.is_none(), "S3", || format!("attempt {no} is sent beside {:?}", self.connection))?;
        let unsettled = self.attempts.last().is_some_and(|last| last.settled.is_none());
        ensure(!unsettled, "S3", || format!("attempt {no} is sent before the one before it was settled"))?;
        ensure(usize::from(no.0) == self.attempts.len(), "S3", || format!("attempt {no} is out of turn"))?;
        let Some((lease, probe)) = self.granted.take() else {
            return Err(("S4", format!("attempt {no} is sent without a place")));
        };
        self.budgets(now, choice)?;
        self.connection = Some(no);
        self.attempts.push(Attempt {
            choice,
            lease,
            probe,
            started: now,
            truth: None,
            told: 0,
            last_byte: now,
            head_told: false,
            over: false,
            fault: None,
            settled: None,
            reason: None,
        });
        Ok(())
    }

    /// The name of the attempt that was sent last.
    pub(super) fn tell_truth(&mut self, no: AttemptNo, truth: &Truth) {
        self.of(no, |attempt| attempt.truth = Some(Arc::new(truth.clone())));
    }

    fn budgets(&self, now: Time, choice: Choice) -> Result<(), Wrong> {
        let policy = self.policy();
        let source_of = |attempt: &Attempt| self.candidate(attempt.choice).source;
        let next = self.candidate(choice).source;
        let switches = |sources: Vec<surefoot_core::id::SourceId>| {
            let before = sources.windows(2).filter(|pair| pair[0] != pair[1]).count() as u32;
            before + u32::from(sources.last().is_some_and(|last| *last != next))
        };
        let transfers = switches(self.attempts.iter().map(source_of).collect());
        let allowed = |limit: u32, used: u32| limit == 0 || used <= limit;
        ensure(self.attempts.len() < policy.max_attempts_hard.max(1) as usize, "S5", || {
            format!("more than {} attempts (F5)", policy.max_attempts_hard)
        })?;
        ensure(
            allowed(policy.max_transfer_count, transfers) || self.attempts.is_empty() || self.stays(next),
            "S5",
            || format!("{transfers} transfers, {} are allowed (F3)", policy.max_transfer_count),
        )?;
        let since = self.attempts.first().map_or(now, |first| first.started);
        ensure(policy.max_transfer_timeout.limit().is_none_or(|limit| now.since(since) < limit), "S5", || {
            format!("an attempt {} after the first (F4)", now.since(since))
        })?;
        self.provider_budget(now, choice, &switches)?;
        self.tries(choice)
    }

    /// Whether it is no switch.
    fn stays(&self, next: surefoot_core::id::SourceId) -> bool {
        self.attempts.last().is_some_and(|last| self.candidate(last.choice).source == next)
    }

    fn provider_budget(
        &self,
        now: Time,
        choice: Choice,
        switches: &dyn Fn(Vec<surefoot_core::id::SourceId>) -> u32,
    ) -> Result<(), Wrong> {
        let provider: &Arc<ProviderPolicy> = &self.candidate(choice).provider;
        let own =
            || self.attempts.iter().filter(|attempt| self.candidate(attempt.choice).provider.name == provider.name);
        let sources: Vec<_> = own().map(|attempt| self.candidate(attempt.choice).source).collect();
        let stays = sources.last() == Some(&self.candidate(choice).source);
        let used = switches(sources);
        ensure(provider.max_transfer_count == 0 || used <= provider.max_transfer_count || stays, "S5", || {
            format!("{used} transfers within {}, {} are allowed (F6)", provider.name, provider.max_transfer_count)
        })?;
        let since = own().next().map_or(now, |first| first.started);
        ensure(provider.max_transfer_timeout.limit().is_none_or(|limit| now.since(since) < limit), "S5", || {
            format!("an attempt at {} {} after its first (F6)", provider.name, now.since(since))
        })
    }

    /// Tries on one source and in one tier (F2, G11); what a retry cannot cure is not retried (M6).
    fn tries(&self, choice: Choice) -> Result<(), Wrong> {
        let policy = self.policy();
        let counts = |attempt: &&Attempt| {
            attempt.settled.is_none_or(|(_, outcome)| !matches!(outcome, Outcome::RateLimited | Outcome::ResultInvalid))
        };
        let here = self.attempts.iter().filter(|attempt| attempt.choice == choice);
        let failed = here.clone().filter(counts).count() as u32;
        let tier = |choice: Choice| self.route().roster.entries[usize::from(choice.0)].tier;
        let reasked = self
            .attempts
            .last()
            .is_some_and(|last| last.choice == choice && matches!(last.settled, Some((_, Outcome::ResultInvalid))));
        if self.route().roster.strategy == Strategy::Priority {
            let first = self.attempts.first().is_none_or(|first| first.choice == choice);
            let most = if first { policy.sticky_key_attempts.max(1) } else { 1 };
            ensure(failed < most || reasked, "S5", || {
                format!("try {} on candidate {choice}, {most} are allowed (F2)", failed + 1)
            })?;
        } else if policy.max_attempts > 0 {
            let used =
                self.attempts.iter().filter(|attempt| tier(attempt.choice) == tier(choice)).filter(counts).count()
                    as u32;
            ensure(used < policy.max_attempts || reasked, "S5", || format!("attempt {} in its tier (G11)", used + 1))?;
        }
        for attempt in here {
            let Some((_, outcome)) = attempt.settled else { continue };
            let curable = match attempt.truth.as_ref().and_then(|truth| truth.status) {
                Some(status) if attempt.head_told && status >= 400 && outcome != Outcome::RateLimited => {
                    matches!(status, 408 | 425 | 502..=504 | 520..=524 | 529)
                }
                _ => !matches!(outcome, Outcome::SourceDead | Outcome::RequestRejected),
            };
            ensure(curable, "M6", || format!("retried on candidate {choice}, where {outcome:?} cannot be cured"))?;
            ensure(!attempt.probe || outcome != Outcome::Transient, "M6", || {
                format!("a probe on candidate {choice} is retried")
            })?;
        }
        Ok(())
    }

    /// The other side of S5: a limit that is told as the reason was reached, and a 429 used up nothing (G12).
    pub(super) fn gave_up_rightly(&self, now: Time, answer: &Answer) -> Result<(), Wrong> {
        let policy = self.policy();
        let sources: Vec<_> = self.attempts.iter().map(|attempt| self.candidate(attempt.choice).source).collect();
        let transfers = sources.windows(2).filter(|pair| pair[0] != pair[1]).count() as u32;
        let first = self.attempts.first().map_or(now, |first| first.started);
        let told = |what: &str| format!("{what} is told as reached; {transfers} transfers, {} attempts", sources.len());
        let reached = policy.max_transfer_count > 0 && transfers >= policy.max_transfer_count
            || policy.max_transfer_timeout.limit().is_some_and(|limit| now.since(first) >= limit)
            || sources.len() >= policy.max_attempts_hard.max(1) as usize;
        ensure(answer.stop != Some(Stop::RoutingTransferLimit) || reached, "S5", || told("a global limit"))?;
        let provider_reached = self.route().candidates.iter().any(|candidate| {
            let own =
                self.attempts.iter().filter(|one| self.candidate(one.choice).provider.name == candidate.provider.name);
            let sources: Vec<_> = own.clone().map(|attempt| self.candidate(attempt.choice).source).collect();
            let used = sources.windows(2).filter(|pair| pair[0] != pair[1]).count() as u32;
            let since = own.clone().next().map(|attempt| now.since(attempt.started));
            let limit = candidate.provider.max_transfer_timeout.limit();
            (candidate.provider.max_transfer_count > 0 && used >= candidate.provider.max_transfer_count)
                || limit.is_some_and(|limit| since.is_some_and(|since| since >= limit))
        });
        let by_provider = answer.stop == Some(Stop::ProviderTransferLimit);
        ensure(!by_provider || provider_reached, "S5", || told("a provider's limit"))?;
        let pushed_back =
            self.attempts.iter().all(|attempt| matches!(attempt.settled, Some((_, Outcome::RateLimited))));
        let gave_up = answer.no_retry && answer.stop.is_none() && self.plan.replay_safe && !self.attempts.is_empty();
        ensure(!(gave_up && pushed_back), "G12", || "gives up for its budget, of which a 429 uses nothing".into())
    }

    /// S8: the window is bounded. `held` is what the call holds in `phase`.
    pub(super) fn window(&self, phase: Phase, held: u64) -> Result<(), Wrong> {
        if phase != Phase::Window {
            return Ok(());
        }
        let kept = self.attempts.iter().rev().skip(1).filter_map(|attempt| attempt.truth.as_ref());
        let kept = kept.map(|truth| truth.body.len()).max().unwrap_or(0) as u64;
        let most = self.policy().window.max_bytes + kept + self.largest_chunk as u64;
        ensure(held <= most, "S8", || format!("{held} bytes are held in the window, {most} are allowed"))
    }
}
