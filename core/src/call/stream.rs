//! Event streams: what is held, what commits, how they end (F9, F10, F15, F16, M5).

use bytes::Bytes;

use crate::event::{CommitReason, End, Fault, Hit, Incomplete, Judgement, Reason, Shape, What};
use crate::mutants::{Mutant, active};
use crate::outcome::Outcome;
use crate::wire::stream::StreamReader;
use crate::wire::{self, ErrorFact, Event, Kind, haystack, header};

use super::classify::classify;
use super::failure::Failure;
use super::{Call, Phase};

impl Call {
    /// More of an event stream.
    pub(super) fn on_stream_bytes(&mut self, bytes: Bytes) {
        let chunk = bytes.clone();
        self.window.push(bytes);
        let mut rest = &chunk[..];
        while matches!(self.phase, Phase::Window | Phase::Streaming) {
            let max_bytes = match self.phase {
                Phase::Window if !active(Mutant::WindowUnbounded) => self.policy().window.max_bytes,
                _ => u64::MAX,
            };
            let Some(reader) = self.live.as_mut().and_then(|live| live.reader.as_mut()) else { return };
            // No byte beyond the window's limit is looked at before its commit: what is decided must not depend on how
            // the bytes were cut into chunks (S12).
            let room = match max_bytes.saturating_sub(reader.offset()) {
                _ if active(Mutant::WindowByChunk) => usize::MAX,
                room => usize::try_from(room).unwrap_or(usize::MAX),
            };
            let (mut within, beyond) = rest.split_at(room.min(rest.len()));
            let complete = reader.complete();
            let event = reader.next(&mut within);
            let full = reader.offset() >= max_bytes;
            rest = &rest[rest.len() - within.len() - beyond.len()..];
            // A line feed that came a chunk after its carriage return belongs to the event before (S12).
            let whole = event.as_ref().map_or(reader.whole(), |event| event.from);
            self.pass(whole);
            match event {
                Some(event) => self.on_event(event, complete),
                None if full => self.try_commit(CommitReason::WindowBytes),
                None => break,
            }
        }
    }

    fn reader(&self) -> Option<&StreamReader> {
        self.live.as_ref()?.reader.as_deref()
    }

    /// Everything up to `whole` is events that were seen already.
    fn pass(&mut self, whole: u64) {
        if active(Mutant::LateLineFeedLost) {
            return;
        }
        self.held_to = self.held_to.max(whole);
        if self.phase == Phase::Streaming {
            self.window.mark_whole(whole);
        }
    }

    /// An event, and whether the answer had all that its protocol wants before it.
    fn on_event(&mut self, event: Event, complete: bool) {
        match (self.phase, &event.kind) {
            // Behind the answer's end: dropped, for nothing is missing (M5).
            (Phase::Streaming, Kind::Malformed | Kind::Oversized | Kind::Error(_)) if complete => self.complete(),
            (Phase::Streaming, _) => self.on_committed_event(event),
            _ => self.on_held_event(event),
        }
    }

    fn on_held_event(&mut self, event: Event) {
        let Some(live) = self.live.as_mut() else { return };
        live.held_events += 1;
        let held_events = live.held_events;
        (self.event_from, self.held_to) = (event.from, event.end);
        match event.kind {
            Kind::Error(fact) => {
                let fact = self.judged_error(*fact);
                return self.fail(Failure::error_object(fact));
            }
            Kind::Malformed | Kind::Oversized => return self.fail(Failure::malformed()),
            Kind::EarlyDone => return self.fail_empty_stream(),
            Kind::Content => self.try_commit(CommitReason::Content),
            Kind::Stop => self.try_commit(CommitReason::End),
            Kind::PlainStop => live.plain_stop = true,
            Kind::Opener if active(Mutant::CommitEarly) => self.try_commit(CommitReason::Content),
            Kind::Opener | Kind::Last => {}
        }
        if self.phase == Phase::Window && event.terminal {
            return self.on_empty_stream_completion();
        }
        match self.phase {
            Phase::Streaming => self.on_good_event(event.end, event.terminal),
            Phase::Window if held_events >= self.policy().window.max_events => {
                self.try_commit(CommitReason::WindowEvents);
                if self.phase == Phase::Streaming {
                    self.on_good_event(event.end, false);
                }
            }
            _ => {}
        }
    }

    /// Commits unless a success rule matches what is held, this event included (F9).
    fn try_commit(&mut self, reason: CommitReason) {
        if self.success_rule_matches(haystack::of_stream) {
            return self.fail(Failure::success_rule());
        }
        let Some(live) = self.live.as_ref() else { return };
        let declared = live.head.as_ref().and_then(|head| header(&head.headers, "content-type"));
        let is_declared = declared.is_some_and(|value| {
            value.trim_start().get(..17).is_some_and(|start| start.eq_ignore_ascii_case("text/event-stream"))
        });
        let shape = if is_declared { Shape::AsSent } else { Shape::EventStream };
        let (attempt, choice, took) = (live.no, live.choice, self.now.since(live.started));
        self.slow_commit = self.policy().slow_call.limit().is_some_and(|slow| took > slow);
        self.phase = Phase::Streaming;
        self.commit(attempt, choice, reason, shape, None);
        self.window.mark_whole(self.held_to);
        if active(Mutant::CommitLosesHeld) {
            self.window.pop();
        }
    }

    /// Whether a success rule matches the whole of what is held (exactly 200 only). The text is made only for a rule.
    pub(super) fn success_rule_matches(&mut self, text: impl FnOnce(&[u8]) -> alloc::string::String) -> bool {
        if active(Mutant::SuccessRulesIgnored) {
            return false;
        }
        let Some(live) = self.live.as_ref().filter(|live| live.status() == 200) else { return false };
        let (choice, is_stream) = (live.choice, live.reader.is_some());
        if self.policy().rules.success.is_empty() && self.candidate(choice).provider.rules.success.is_empty() {
            return false;
        }
        let ask = |call: &Call| {
            let held = if is_stream { call.window.joined(call.held_to) } else { call.window.all() };
            let text = text(&held);
            let global = call.policy().rules.success_match(&text).map(|place| Hit::new(false, place));
            let own = || call.candidate(choice).provider.rules.success_match(&text);
            global.or_else(|| own().map(|place| Hit::new(true, place)))
        };
        let hit = self.judged(ask, Judgement::SuccessRule, |judgement| match judgement {
            Judgement::SuccessRule(hit) => Some(hit),
            _ => None,
        });
        hit.is_some()
    }

    fn on_committed_event(&mut self, event: Event) {
        self.held_to = event.end;
        match event.kind {
            Kind::Malformed | Kind::Oversized => self.incomplete(Incomplete::Malformed),
            Kind::EarlyDone => self.incomplete(Incomplete::Cut),
            Kind::Error(fact) => self.on_upstream_error(event.end, &fact),
            Kind::Opener | Kind::Content | Kind::PlainStop | Kind::Stop | Kind::Last => {
                self.on_good_event(event.end, event.terminal);
            }
        }
    }

    fn on_good_event(&mut self, end: u64, terminal: bool) {
        self.window.mark_whole(end);
        if terminal {
            self.complete();
        }
    }

    /// The upstream's own error event after the commit is an end: it is the last thing forwarded, its key masked (X6).
    fn on_upstream_error(&mut self, end: u64, fact: &ErrorFact) {
        if let Some(live) = self.live.as_ref() {
            let secret = self.candidate(live.choice).secret.clone();
            self.window.rewrite(end, |event| haystack::mask(event, secret.expose()));
        }
        self.window.mark_whole(end);
        self.window.drop_torn();
        self.give_last_line_feed();
        let fact = self.judged_error(fact.clone());
        let failure = Failure::error_object(fact);
        let outcome = failure.outcome;
        self.settle(outcome, Reason::ErrorObject, Some(&failure));
        self.finish(End::UpstreamError(outcome));
    }

    /// A chunk ended between the two bytes of the very last line end: its line feed is not waited for, but given.
    fn give_last_line_feed(&mut self) {
        if self.reader().is_some_and(|reader| reader.line_feed_sure()) {
            self.closing = Some(Bytes::from_static(b"\n"));
        }
    }

    /// A committed stream with all that its protocol wants.
    fn complete(&mut self) {
        if active(Mutant::TwoTerminals) {
            self.window.mark_all();
        }
        self.window.drop_torn();
        self.give_last_line_feed();
        if let Some(reason) = self.reader().and_then(|reader| reader.silent()) {
            self.notice(What::EmptyResponse { reason });
        }
        self.settle(Outcome::Success, Reason::Good, None);
        self.finish(End::Complete);
    }

    /// The stream is over, cleanly or not. Its last event counts without its blank line if it is complete (M5).
    pub(super) fn on_stream_end(&mut self, fault: Option<Fault>) {
        let reader = self.live.as_mut().and_then(|live| live.reader.as_mut());
        let last = reader.and_then(|reader| {
            let complete = reader.complete();
            reader.finish().map(|event| (event, reader.closing(), complete))
        });
        if let Some((mut event, closing, complete)) = last {
            // Its line ends are added as if the upstream had sent them: it may be delivered now, later or never.
            self.window.push(Bytes::from_static(closing));
            event.end += closing.len() as u64;
            self.on_event(event, complete);
        }
        match self.phase {
            Phase::Streaming if self.is_protocol_complete() => self.complete(),
            Phase::Streaming => self.incomplete(Incomplete::Cut),
            Phase::Window => match fault {
                Some(fault) if !self.is_empty_completion() => self.fail(Failure::fault(fault)),
                _ if self.is_empty_completion() => self.on_empty_stream_completion(),
                _ => self.fail_empty_stream(),
            },
            _ => {}
        }
    }

    fn is_protocol_complete(&self) -> bool {
        self.reader().is_some_and(|reader| reader.complete())
    }

    fn is_empty_completion(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.plain_stop) && self.is_protocol_complete()
    }

    /// A stream whose terminal event came before any content (M3).
    fn on_empty_stream_completion(&mut self) {
        let Some(live) = self.live.as_ref() else { return };
        if !live.plain_stop {
            return self.fail_empty_stream();
        }
        let (attempt, choice) = (live.no, live.choice);
        self.window.mark_whole(self.held_to);
        self.window.drop_torn();
        if self.reader().is_some_and(|reader| reader.line_feed_sure()) {
            self.window.push(Bytes::from_static(b"\n"));
            self.window.mark_all();
        }
        self.on_empty_completion(attempt, choice, Shape::AsSent, None);
    }

    fn fail_empty_stream(&mut self) {
        let any = self.reader().is_some_and(|reader| reader.any_event());
        self.notice(What::EmptyResponse { reason: "empty_stream" });
        self.fail(Failure::empty_stream(any));
    }

    pub(super) fn on_idle(&mut self) {
        match self.phase {
            Phase::Streaming if self.is_protocol_complete() => self.complete(),
            Phase::Streaming => self.incomplete(Incomplete::Idle),
            _ => self.time_out(Reason::IdleTimeout),
        }
    }

    /// Ends a committed stream that will not be complete: whole events, then exactly one error event (M5).
    pub(super) fn incomplete(&mut self, reason: Incomplete) {
        if active(Mutant::RetryAfterCommit) && reason == Incomplete::Cut {
            return self.fail(Failure::empty_stream(true));
        }
        if active(Mutant::TornForwarded) {
            self.window.mark_all();
        }
        self.window.drop_torn();
        self.notice(What::StreamIncomplete { reason });
        let Some(live) = self.live.as_ref() else { return };
        let sequence = live.reader.as_ref().map_or(0, |reader| reader.next_sequence());
        let provider = self.provider_name(live.choice);
        let told = wire::error::render_incomplete(self.plan.format, &provider, reason.as_str(), sequence);
        self.closing = Some(told);
        let (outcome, why) = match reason {
            Incomplete::Cut if active(Mutant::CutIsASuccess) => (Outcome::Success, Reason::Cut),
            Incomplete::Cut => (Outcome::Transient, Reason::Cut),
            Incomplete::Idle => (Outcome::Transient, Reason::IdleTimeout),
            Incomplete::Malformed => (Outcome::Transient, Reason::Malformed),
            Incomplete::Deadline => (Outcome::Cancelled, Reason::Deadline),
            Incomplete::Shutdown => (Outcome::Cancelled, Reason::Cancelled),
        };
        self.settle(outcome, why, None);
        self.finish(End::Incomplete(reason));
    }

    /// What an error object inside an answer is worth, for tests and the table.
    pub(super) fn error_class(fact: &ErrorFact) -> super::classify::Class {
        let mut class = classify(fact.status);
        if fact.quota_gone {
            class.outcome = Outcome::SourceDead;
            class.retry = false;
            class.transfer = true;
        }
        class
    }
}
