//! Asking the pool for a place, and waiting for one (G11–G16).

use crate::event::{Action, Timer, What, Why};
use crate::id::{AttemptNo, Choice, LeaseId};
use crate::mutants::{Mutant, active};
use crate::outcome::Outcome;
use crate::pool::{BreakerChange, Op, Refusal, Reply, Reserve, Standing};
use crate::time::{Span, Time};

use super::attempt::Attempt;
use super::budget::{Budgets, Refused};
use super::ending::Cause;
use super::{Call, Phase};

/// How long a lease holds unless renewed. Twice a minute's renewals: one may be lost, and a place whose gateway died is
/// free again before anyone has waited it out.
const LEASE_TTL: Span = Span::from_secs(150);
const RENEW_EVERY: Span = Span::from_secs(60);

impl Call {
    /// Asks for the next attempt's place, or ends the call when no limit lets one start.
    pub(super) fn ask(&mut self) {
        let mut standing = self.standing.clone();
        if let Err(refused) = self.budgets.restrict(&self.plan, &mut standing, self.now) {
            return self.exhausted(Cause::Budget(refused));
        }
        self.tell_provider_limits(&standing);
        if let Some(only) = self.only {
            for (index, standing) in standing.iter_mut().enumerate() {
                standing.out |= index != usize::from(only.0);
            }
        }
        let lease = match self.asked {
            Some(lease) => lease,
            None => self.next_lease(),
        };
        self.asked = Some(lease);
        if self.phase != Phase::Waiting {
            self.phase = Phase::Asking;
        }
        let reserve = self.reserve(lease, standing, true);
        self.act(Action::Ask(Op::Reserve(reserve)));
    }

    fn reserve(&mut self, lease: LeaseId, standing: alloc::vec::Vec<Standing>, queue: bool) -> Reserve {
        Reserve {
            lease,
            roster: self.plan.route.roster.clone(),
            standing: if self.budgets.started() == 0 { alloc::vec::Vec::new() } else { standing },
            sticky: u16::try_from(self.policy().sticky_key_attempts.max(1)).unwrap_or(u16::MAX),
            draw: self.rng.next_u64(),
            tokens: self.plan.tokens,
            wait_until: self.wait_until(),
            ttl: LEASE_TTL,
            queue,
        }
    }

    /// The latest time that a rest may end to be waited for (G11, G12).
    fn wait_until(&self) -> Time {
        let policy = self.policy();
        let mut until = self.hard_wait_until();
        if let Some(limit) = policy.max_wait.limit() {
            // What it waits for now may be a backoff, which does not count (G11).
            let since = self.wait.since.filter(|_| self.wait.why != Some(Refusal::Backoff)).unwrap_or(self.now);
            until = until.min(since.after(Span(limit.0.saturating_sub(self.wait.spent.0))));
        }
        until
    }

    /// The same for backoff, which is no pushback and uses none of `max_wait`.
    fn hard_wait_until(&self) -> Time {
        let policy = self.policy();
        let deadline = policy.deadline.limit().map_or(Time::NEVER, |deadline| self.started.after(deadline));
        deadline.min(self.budgets.time_is_over_at(policy.max_transfer_timeout))
    }

    pub(super) fn on_reply(&mut self, lease: LeaseId, reply: Reply) {
        match reply {
            Reply::Done => {}
            Reply::Settled { change } => self.tell_change(change),
            Reply::Granted { choice, probe, change } => self.on_granted(lease, choice, probe, change),
            Reply::Refused { why, after, soonest, progress } => {
                if self.asked == Some(lease) {
                    self.on_refused(why, after, soonest, progress);
                } else if self.switch == Some(lease) {
                    self.on_switch_refused(after);
                } else {
                    self.late += 1;
                }
            }
        }
    }

    fn on_granted(&mut self, lease: LeaseId, choice: Choice, probe: bool, change: Option<BreakerChange>) {
        let wanted = self.asked == Some(lease) || self.switch == Some(lease);
        let known = usize::from(choice.0) < self.plan.route.candidates.len();
        if !wanted || !known {
            self.late += 1;
            if self.live.as_ref().is_none_or(|live| live.lease != lease) {
                self.tell(Op::Leave { lease });
            }
            return;
        }
        self.tell_change(change);
        let switching = self.switch.take_if(|switch| *switch == lease).is_some();
        if switching && (self.phase.is_committed() || self.live.is_none()) {
            return self.tell(Op::Leave { lease });
        }
        if !switching {
            self.asked = None;
            self.stop_waiting();
        }
        if self.policy().deadline.limit().is_some_and(|deadline| self.now >= self.started.after(deadline)) {
            // Its tick is on its way; an attempt would be sent to be dropped.
            self.tell(Op::Leave { lease });
            return self.on_deadline();
        }
        // The place may have come late: the limits are looked at before each attempt, not before each question (F4, F6).
        if let Some(refused) = self.refused_now(choice, switching) {
            self.tell(Op::Leave { lease });
            return match refused {
                _ if switching => self.on_switch_refused(None),
                Refused::Routing => self.exhausted(Cause::Budget(Refused::Routing)),
                Refused::Provider | Refused::Attempts => self.ask(),
            };
        }
        if switching {
            self.leave_slow_attempt();
        }
        self.start(lease, choice, probe);
    }

    /// Which limit keeps an attempt there from starting now.
    fn refused_now(&self, choice: Choice, switching: bool) -> Option<Refused> {
        if self.now >= self.budgets.time_is_over_at(self.policy().max_transfer_timeout) {
            return Some(Refused::Routing);
        }
        let budgets = if switching { &self.budgets_after_live() } else { &self.budgets };
        budgets.refusal(&self.plan, choice, self.candidate(choice), self.now)
    }

    /// The budgets as they are once the live attempt is left for another: it counts, too (G11).
    fn budgets_after_live(&self) -> Budgets {
        let mut budgets = self.budgets.clone();
        if let Some(live) = &self.live {
            let entry = self.plan.route.roster.entries.get(usize::from(live.choice.0));
            budgets.end(entry.map_or(0, |entry| entry.tier), Outcome::Transient);
        }
        budgets
    }

    fn start(&mut self, lease: LeaseId, choice: Choice, probe: bool) {
        let candidate = self.candidate(choice).clone();
        let last = self.budgets.last_source();
        let why = match (last, self.after) {
            (None, _) => Why::First,
            (Some(last), _) if last != candidate.source => Why::Transfer,
            (_, Some(crate::event::Reason::NotStructured)) => Why::Reask,
            _ => Why::Retry,
        };
        let from = self.last_choice;
        let no = AttemptNo(u16::try_from(self.budgets.started()).unwrap_or(u16::MAX));
        self.budgets.start(&candidate, self.now);
        if let Some(standing) = self.standing.get_mut(usize::from(choice.0)) {
            standing.last_attempt = no.0.saturating_add(1);
        }
        self.only = None;
        self.first_choice.get_or_insert(choice);
        self.last_choice = Some(choice);
        self.window = super::Window::default();
        self.bridged = None;
        (self.held_to, self.event_from) = (0, 0);
        self.live = Some(alloc::boxed::Box::new(Attempt::new(no, choice, lease, probe, self.now)));
        self.phase = Phase::Opening;
        self.set_attempt_timers(&candidate.timeouts);
        self.timers.set(Timer::Renew, self.now.after(RENEW_EVERY));
        let after = self.after.take();
        if let Some(code) = after.filter(|_| self.plan.stream).and_then(super::failure::scheduled_code) {
            self.notice(code);
        }
        self.notice(What::AttemptStarted { why, probe, from: from.filter(|_| why == Why::Transfer), after });
        self.act(Action::Send { attempt: no, choice, why });
    }

    fn on_refused(&mut self, why: Refusal, after: Option<Time>, soonest: Option<Time>, progress: Time) {
        self.wait.soonest = soonest;
        let quiet_since = self.wait.began.unwrap_or(self.now).max(progress);
        if let Some(window) = self.policy().stall_window.limit()
            && self.wait.began.is_some()
            && self.now.since(quiet_since) >= window
        {
            return self.exhausted(Cause::Stalled);
        }
        if self.wait.why.is_some_and(|before| (before == Refusal::Backoff) != (why == Refusal::Backoff)) {
            self.book_wait();
        }
        let until = match why {
            Refusal::Nothing => return self.exhausted(Cause::List),
            Refusal::Breaker => return self.exhausted(Cause::Breaker),
            Refusal::StoreDown => return self.exhausted(Cause::StoreDown),
            Refusal::Resting => match after {
                Some(after) => after,
                None => return self.exhausted(Cause::Limited),
            },
            Refusal::Backoff => match after.or_else(|| self.own_backoff()) {
                Some(after) if after <= self.hard_wait_until() => after,
                _ => return self.exhausted(Cause::List),
            },
            Refusal::Paced | Refusal::Full => self.wait_until(),
        };
        if until <= self.now && matches!(why, Refusal::Paced | Refusal::Full) {
            return self.exhausted(Cause::Limited);
        }
        self.wait_for(why, after, until, quiet_since);
    }

    fn wait_for(&mut self, why: Refusal, after: Option<Time>, until: Time, quiet_since: Time) {
        let fresh = self.wait.began.is_none();
        self.phase = Phase::Waiting;
        self.wait.began.get_or_insert(self.now);
        self.wait.since.get_or_insert(self.now);
        self.wait.why = Some(why);
        // News from the line may come behind a newer answer: the earlier time counts, or the pool would count on a question
        // that does not come.
        let again = self.timers.at(Timer::Again);
        self.timers.clear_waiting();
        if why == Refusal::Backoff {
            self.timers.set(Timer::Again, until);
        } else {
            self.timers.set(Timer::Again, after.unwrap_or(Time::NEVER).min(again));
            self.timers.set(Timer::MaxWait, self.wait_until());
        }
        if let Some(window) = self.policy().stall_window.limit() {
            self.timers.set(Timer::Stall, quiet_since.after(window));
        }
        if fresh {
            self.notice(What::Paced { why, until: until.min(self.wait_until()).since(self.started) });
        }
    }

    /// The earliest end of the call's own backoffs.
    fn own_backoff(&self) -> Option<Time> {
        let ends = self.standing.iter().filter(|standing| !standing.out).map(|standing| standing.not_before);
        ends.filter(|end| *end > self.now).min()
    }

    pub(super) fn on_waited_enough(&mut self) {
        if self.phase == Phase::Waiting {
            self.exhausted(Cause::Limited);
        }
    }

    pub(super) fn stop_waiting(&mut self) {
        self.timers.clear_waiting();
        self.wait.began = None;
        self.book_wait();
    }

    /// Counts what was waited so far.
    fn book_wait(&mut self) {
        let why = self.wait.why.take();
        if let Some(since) = self.wait.since.take()
            && why != Some(Refusal::Backoff)
        {
            self.wait.spent = Span(self.wait.spent.0.saturating_add(self.now.since(since).0));
        }
    }

    /// Gives up what was asked for and not granted.
    pub(super) fn leave_queue(&mut self) {
        self.stop_waiting();
        for lease in [self.asked.take(), self.switch.take()].into_iter().flatten() {
            self.tell(Op::Leave { lease });
        }
    }

    pub(super) fn renew(&mut self) {
        if let Some(live) = self.live.as_ref().filter(|_| !active(Mutant::LeaseNotRenewed)) {
            let lease = live.lease;
            self.timers.set(Timer::Renew, self.now.after(RENEW_EVERY));
            self.tell(Op::Renew { lease });
        }
    }

    /// The first content is late: ask for another place, and leave this attempt only for one that can start (F16).
    pub(super) fn on_first_content_due(&mut self) {
        let Some(live) = self.live.as_ref().filter(|_| !self.phase.is_committed() && self.switch.is_none()) else {
            return;
        };
        let choice = live.choice;
        if self.candidate(choice).provider.stop_on_transport_errors || !self.plan.replay_safe {
            return;
        }
        let mut standing = self.standing.clone();
        if let Some(own) = standing.get_mut(usize::from(choice.0)) {
            own.out = true;
        }
        let open = self.budgets_after_live().restrict(&self.plan, &mut standing, self.now).is_ok();
        if !open || standing.iter().all(|standing| standing.out) {
            return;
        }
        let lease = self.next_lease();
        self.switch = Some(lease);
        let reserve = self.reserve(lease, standing, false);
        self.act(Action::Ask(Op::Reserve(reserve)));
    }

    /// Nobody else could start: the attempt goes on, and the question is put again later.
    fn on_switch_refused(&mut self, after: Option<Time>) {
        self.switch = None;
        let Some(live) = self.live.as_ref().filter(|_| !self.phase.is_committed()) else { return };
        let again = self.candidate(live.choice).timeouts.first_content;
        let again = self.now.after(again.max(Span::from_millis(1)));
        self.timers.set(Timer::FirstContent, after.map_or(again, |after| after.max(self.now).min(again)));
    }

    fn tell_change(&mut self, change: Option<BreakerChange>) {
        if let Some(change) = change {
            self.notice(What::of_change(change));
        }
    }

    /// Says once that a provider's limit took candidates out (F18).
    fn tell_provider_limits(&mut self, restricted: &[Standing]) {
        let held_back = self.standing.iter().zip(restricted).any(|(own, cut)| !own.out && cut.out);
        if held_back && !self.provider_limit_told && self.budgets.a_provider_is_at_its_limit(&self.plan, self.now) {
            self.provider_limit_told = true;
            self.notice(What::ProviderTransferLimitReached);
        }
    }
}
