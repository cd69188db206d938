//! One execution on one target: its head, its timers, the way of its bytes.

use alloc::boxed::Box;

use bytes::Bytes;

use crate::event::{Action, CommitReason, Fault, Head, Reason, Shape, Timer};
use crate::id::{AttemptNo, Choice, LeaseId};
use crate::mutants::{Mutant, active};
use crate::outcome::Outcome;
use crate::policy::Timeouts;
use crate::pool::{Op, Settle};
use crate::time::{Span, Time};
use crate::wire::sniff::{Sniffed, sniff};
use crate::wire::stream::StreamReader;
use crate::wire::{Format, header};

use super::classify::classify;
use super::failure::Failure;
use super::window::Window;
use super::{Call, Phase};

/// An answer that is held whole may be so large: as much as a compressed one may open to.
const MAX_BODY_BYTES: u64 = 64 << 20;
/// Of an error's body so much is read.
const MAX_ERROR_BYTES: u64 = 1 << 20;

/// The live attempt.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) no: AttemptNo,
    pub(super) choice: Choice,
    pub(super) lease: LeaseId,
    pub(super) probe: bool,
    pub(super) started: Time,
    pub(super) head: Option<Head>,
    pub(super) first_byte: bool,
    /// The upstream has nothing more to say: there is no connection to drop.
    pub(super) ended: bool,
    pub(super) reader: Option<Box<StreamReader>>,
    pub(super) held_events: u32,
    pub(super) plain_stop: bool,
    /// A body that is no event stream although one was asked for.
    pub(super) foreign: Option<Sniffed>,
}

impl Attempt {
    pub(super) fn new(no: AttemptNo, choice: Choice, lease: LeaseId, probe: bool, started: Time) -> Attempt {
        Attempt {
            no,
            choice,
            lease,
            probe,
            started,
            head: None,
            first_byte: false,
            ended: false,
            reader: None,
            held_events: 0,
            plain_stop: false,
            foreign: None,
        }
    }

    pub(super) fn status(&self) -> u16 {
        self.head.as_ref().map_or(0, |head| head.status)
    }
}

impl Call {
    /// Whether the answer comes as a stream: bounded by first byte and silence, not as a whole.
    fn is_stream_like(&self) -> bool {
        self.plan.stream || self.plan.format == Format::Raw
    }

    pub(super) fn set_attempt_timers(&mut self, timeouts: &Timeouts) {
        let mut set = |timer, span: Span| {
            if let Some(span) = span.limit() {
                self.timers.set(timer, self.now.after(span));
            }
        };
        if self.plan.stream {
            set(Timer::FirstByte, timeouts.first_byte);
            set(Timer::FirstContent, timeouts.first_content);
        } else {
            set(Timer::Total, timeouts.total);
        }
    }

    fn timeouts(&self) -> Option<&Timeouts> {
        self.live.as_ref().map(|live| &self.candidate(live.choice).timeouts)
    }

    /// Silence counts from the last byte, and only while the client takes what there is (M5).
    pub(super) fn restart_idle(&mut self) {
        let talks = self.live.as_ref().is_some_and(|live| live.first_byte || self.plan.format == Format::Raw);
        if let Some(idle) = self.timeouts().and_then(|timeouts| timeouts.idle.limit())
            && talks
            && self.is_stream_like()
            && self.phase != Phase::Finished
        {
            self.timers.set(Timer::Idle, self.now.after(idle));
        }
    }

    pub(super) fn on_head(&mut self, head: Head) {
        let status = head.status;
        let Some(live) = self.live.as_mut() else { return };
        live.head = Some(head);
        let good = (200..300).contains(&status);
        let is_error = (400..600).contains(&status);
        match self.plan.format {
            Format::Raw if good || !self.is_worth_repeating(status) => self.commit_on_head(),
            Format::Images if good => self.commit_on_head(),
            _ if good && self.plan.stream => self.phase = Phase::Sniffing,
            _ if good => self.phase = Phase::Body,
            _ if is_error => self.expect_error_body(),
            _ => self.fail(Failure::bad_status(status)),
        }
    }

    /// A pass-through answer is held back only where another attempt may and could do better (M7).
    fn is_worth_repeating(&self, status: u16) -> bool {
        let outcome = classify(status).outcome;
        self.plan.replay_safe && matches!(outcome, Outcome::Transient | Outcome::RateLimited | Outcome::SourceDead)
    }

    fn expect_error_body(&mut self) {
        self.phase = Phase::ErrorBody;
        self.timers.clear(Timer::FirstContent);
        // An error's body is a whole one, whatever was asked for: without this a trickling one would never end.
        self.bound_as_a_whole();
    }

    fn commit_on_head(&mut self) {
        let Some((attempt, choice)) = self.live.as_ref().map(|live| (live.no, live.choice)) else { return };
        self.phase = Phase::Passing;
        if self.plan.format == Format::Raw {
            // Nobody knows whether it is a stream: up to its head it is bounded as a whole, from there on by silence.
            self.timers.clear(Timer::Total);
            self.restart_idle();
        }
        self.commit(attempt, choice, CommitReason::Head, Shape::AsSent, None);
    }

    pub(super) fn on_chunk(&mut self, bytes: Bytes) {
        let Some(live) = self.live.as_mut().filter(|live| !live.ended) else { return };
        if bytes.is_empty() {
            return;
        }
        if !live.first_byte {
            live.first_byte = true;
            self.timers.clear(Timer::FirstByte);
        }
        self.restart_idle();
        match self.phase {
            Phase::Window | Phase::Streaming => self.on_stream_bytes(bytes),
            Phase::Passing => {
                self.window.push(bytes);
                self.window.mark_all();
            }
            Phase::Sniffing => {
                self.window.push(bytes);
                self.look_at_body(false);
            }
            Phase::Body => {
                self.window.push(bytes);
                if self.window.len() > MAX_BODY_BYTES {
                    self.fail(Failure::fault(Fault::TooLarge));
                }
            }
            Phase::ErrorBody => {
                self.window.push(bytes);
                if self.window.len() > MAX_ERROR_BYTES {
                    self.fail_with_status();
                }
            }
            Phase::Asking | Phase::Waiting | Phase::Opening | Phase::Finished => self.late += 1,
        }
    }

    /// A 200 to a stream request shows by its first bytes what it is (F15).
    fn look_at_body(&mut self, end: bool) {
        let Some(live) = self.live.as_mut() else { return };
        let content_type = live.head.as_ref().and_then(|head| header(&head.headers, "content-type"));
        let first = self.window.joined(self.window.len().min(512));
        match sniff(content_type, &first, end) {
            // So many bytes of nothing that an answer could begin with.
            Sniffed::Undecided if self.window.len() >= 512 => self.expect_whole_body(Sniffed::Text),
            Sniffed::Undecided => {}
            Sniffed::EventStream => {
                live.reader = Some(Box::new(StreamReader::new(self.plan.format)));
                self.phase = Phase::Window;
                let held = core::mem::take(&mut self.window);
                for bytes in held {
                    if self.phase == Phase::Window || self.phase == Phase::Streaming {
                        self.on_stream_bytes(bytes);
                    }
                }
            }
            foreign @ (Sniffed::Json | Sniffed::Text) => self.expect_whole_body(foreign),
        }
    }

    /// A stream was asked for and something else comes: it is collected, and bounded as a whole.
    fn expect_whole_body(&mut self, foreign: Sniffed) {
        if let Some(live) = self.live.as_mut() {
            live.foreign = Some(foreign);
        }
        self.phase = Phase::Body;
        self.bound_as_a_whole();
    }

    fn bound_as_a_whole(&mut self) {
        if let Some(total) = self.timeouts().and_then(|timeouts| timeouts.total.limit())
            && !self.timers.is_set(Timer::Total)
        {
            self.timers.set(Timer::Total, self.now.after(total));
        }
    }

    pub(super) fn on_end(&mut self) {
        if self.phase == Phase::Opening {
            return self.on_fault(Fault::Protocol);
        }
        if let Some(live) = self.live.as_mut() {
            live.ended = true;
        }
        if self.phase == Phase::Sniffing {
            self.look_at_body(true);
        }
        match self.phase {
            Phase::Window | Phase::Streaming => self.on_stream_end(None),
            Phase::Body => self.on_whole_body(),
            Phase::ErrorBody => self.fail_with_status(),
            Phase::Passing => self.on_passed(),
            _ => {}
        }
    }

    /// A body that was not looked at is through. Its status is known all the same: what it says of the source counts.
    fn on_passed(&mut self) {
        let status = self.live.as_ref().map_or(0, |live| live.status());
        match Failure::passed(status) {
            Some(failure) => self.settle(failure.outcome, failure.reason, Some(&failure)),
            None => self.settle(Outcome::Success, Reason::Good, None),
        };
        self.finish(crate::event::End::Complete);
    }

    pub(super) fn on_fault(&mut self, fault: Fault) {
        if let Some(live) = self.live.as_mut() {
            live.ended = true;
        }
        match self.phase {
            Phase::Window | Phase::Streaming => self.on_stream_end(Some(fault)),
            Phase::ErrorBody => self.fail_with_status(),
            Phase::Passing => self.break_off(Outcome::Transient, Reason::Fault(fault)),
            Phase::Opening | Phase::Sniffing | Phase::Body => self.fail(Failure::fault(fault)),
            Phase::Asking | Phase::Waiting | Phase::Finished => {}
        }
    }

    /// The live attempt ran out of time before its commit.
    pub(super) fn time_out(&mut self, reason: Reason) {
        match self.phase {
            Phase::ErrorBody => self.fail_with_status(),
            Phase::Passing => self.break_off(Outcome::Transient, reason),
            Phase::Opening | Phase::Sniffing | Phase::Window | Phase::Body => self.fail(Failure::timeout(reason)),
            Phase::Asking | Phase::Waiting | Phase::Streaming | Phase::Finished => {}
        }
    }

    pub(super) fn on_total_due(&mut self) {
        self.time_out(Reason::TotalTimeout);
    }

    /// Settles the live attempt's lease and takes the attempt down. Returns it.
    pub(super) fn settle(&mut self, outcome: Outcome, reason: Reason, teach: Option<&Failure>) -> Option<Box<Attempt>> {
        let took = self.live.as_ref().map(|live| self.now.since(live.started)).unwrap_or_default();
        let status = self.live.as_ref().and_then(|live| live.head.as_ref()).map(|head| head.status);
        self.notice(crate::event::What::AttemptEnded { outcome, status, reason, took });
        let rest = teach.and_then(|failure| self.rest_after(failure));
        let live = self.live.take()?;
        self.timers.clear_attempt();
        let forgets = active(Mutant::TimeoutKeepsConnection) && reason == Reason::FirstByteTimeout;
        if !live.ended && !forgets {
            self.act(Action::Abort(live.no));
        }
        let slow = outcome == Outcome::Success && self.policy().slow_call.limit().is_some_and(|slow| took > slow);
        if active(Mutant::CancelKeepsLease) && reason == Reason::Cancelled {
            return Some(live);
        }
        self.tell(Op::Settle(Settle {
            lease: live.lease,
            outcome,
            slow: (slow && !self.plan.stream) || self.slow_commit,
            rest,
            overload: teach.is_some_and(|failure| failure.overload),
            tokens: self.tokens_used.or_else(|| live.reader.as_ref().and_then(|reader| reader.tokens())),
        }));
        self.tokens_used = None;
        self.slow_commit = false;
        let tier = self.plan.route.roster.entries.get(usize::from(live.choice.0)).map_or(0, |entry| entry.tier);
        self.budgets.end(tier, outcome);
        Some(live)
    }

    /// Ends a live attempt that nobody will hear of any more.
    pub(super) fn drop_live(&mut self, outcome: Outcome, reason: Reason) {
        if self.live.is_some() {
            self.settle(outcome, reason, None);
        }
    }

    /// A committed body that is not looked at broke: nothing can be added, the client's connection breaks too.
    pub(super) fn break_off(&mut self, outcome: Outcome, reason: Reason) {
        self.settle(outcome, reason, None);
        self.finish(crate::event::End::Broken);
    }

    /// Hands the client the attempt; the caller has set what is to be delivered.
    pub(super) fn commit(
        &mut self,
        attempt: AttemptNo,
        choice: Choice,
        reason: CommitReason,
        shape: Shape,
        length: Option<u64>,
    ) {
        self.timers.clear(Timer::FirstContent);
        let failover_added = self.first_failure.map(|first| self.now.since(first));
        self.notice(crate::event::What::Commit { reason, failover_added });
        self.act(Action::Commit(crate::event::Commit { attempt, choice, reason, shape, length }));
        if let Some(lease) = self.switch.take() {
            self.tell(Op::Leave { lease });
        }
    }
}

impl IntoIterator for Window {
    type Item = Bytes;
    type IntoIter = alloc::collections::vec_deque::IntoIter<Bytes>;

    fn into_iter(self) -> Self::IntoIter {
        self.into_chunks().into_iter()
    }
}
