//! From the vocabulary to fields.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Text, hex};
use crate::event::{Action, Answer, End, Hit, Input, Judgement, Notice, What};
use crate::id::Choice;
use crate::policy::Route;
use crate::pool::{BreakerChange, Op, Reply, Standing};
use crate::time::Time;
use crate::trace::fields::Fields;
use crate::trace::words::Word;
use crate::wire::Header;

/// Puts an input into fields. Its chunk, if it is one, as `text` has it.
pub(in crate::trace) fn put_input(fields: &mut Fields<'_>, input: &Input, headers: Vec<Header>, text: Text) {
    fields.input = Some(match input {
        Input::Reply { lease, reply } => {
            fields.lease = Some(lease.0);
            reply_fields(reply, fields);
            "reply"
        }
        Input::Head { attempt, head } => {
            fields.attempt = Some(attempt.0);
            fields.status = Some(head.status);
            fields.headers = headers;
            fields.unix_ms = Some(head.unix_ms);
            "head"
        }
        Input::Chunk { attempt, .. } => {
            fields.attempt = Some(attempt.0);
            text.put(fields);
            "chunk"
        }
        Input::End { attempt } => {
            fields.attempt = Some(attempt.0);
            "end"
        }
        Input::Fault { attempt, fault } => {
            fields.attempt = Some(attempt.0);
            fields.fault = Some(fault.word());
            "fault"
        }
        Input::Flushed => "flushed",
        Input::Tick => "tick",
        Input::Cancel(cause) => {
            fields.cause = Some(cause.word());
            "cancel"
        }
    });
}

fn reply_fields(reply: &Reply, fields: &mut Fields<'_>) {
    fields.reply = Some(match reply {
        Reply::Granted { choice, probe, change } => {
            fields.choice = Some(choice.0);
            fields.probe = *probe;
            fields.change = change_fields(*change);
            "granted"
        }
        Reply::Refused { why, after, soonest, progress } => {
            fields.why = Some(why.word());
            fields.again_at = after.map(|at| at.0);
            fields.soonest = soonest.map(|at| at.0);
            fields.progress = Some(progress.0);
            "refused"
        }
        Reply::Settled { change } => {
            fields.change = change_fields(*change);
            "settled"
        }
        Reply::Done => "done",
    });
}

/// Puts an action into fields. Its bytes, if it has any, as `text` has them; `draw` is a place for its draw in digits.
pub(in crate::trace) fn put_action<'a>(
    fields: &mut Fields<'a>,
    action: &Action,
    route: &Route,
    text: Text,
    draw: &'a mut String,
) {
    let source = |choice: Choice| {
        let candidate = route.candidates.get(usize::from(choice.0));
        candidate.map(|candidate| Box::from(&*candidate.source_name))
    };
    fields.action = Some(match action {
        Action::Ask(op) => {
            op_fields(op, fields, draw);
            "ask"
        }
        Action::Tell(op) => {
            op_fields(op, fields, draw);
            "tell"
        }
        Action::Send { attempt, choice, why } => {
            fields.attempt = Some(attempt.0);
            fields.choice = Some(choice.0);
            fields.source = source(*choice);
            fields.why = Some(why.word());
            "send"
        }
        Action::Abort(attempt) => {
            fields.attempt = Some(attempt.0);
            "abort"
        }
        Action::Commit(commit) => {
            fields.attempt = Some(commit.attempt.0);
            fields.choice = Some(commit.choice.0);
            fields.source = source(commit.choice);
            fields.reason = Some(commit.reason.word());
            fields.shape = Some(commit.shape.word());
            fields.length = commit.length;
            "commit"
        }
        Action::Forward(_) => {
            text.put(fields);
            "forward"
        }
        Action::Notice(notice) => {
            fields.source = notice.choice.and_then(source);
            notice_fields(notice, fields);
            "notice"
        }
        Action::Judged(judgement) => {
            judgement_fields(*judgement, fields);
            "judge"
        }
        Action::Finish(end) => {
            end_fields(end, fields, text);
            "finish"
        }
    });
}

fn op_fields<'a>(op: &Op, fields: &mut Fields<'a>, draw: &'a mut String) {
    fields.lease = Some(op.lease().0);
    fields.op = Some(match op {
        Op::Reserve(reserve) => {
            *draw = hex(reserve.draw);
            fields.roster = Some(reserve.roster.id);
            fields.standing = reserve
                .standing
                .iter()
                .map(|standing| {
                    let Standing { failed, out, not_before, last_attempt } = *standing;
                    (failed, u8::from(out), not_before.0, last_attempt)
                })
                .collect();
            fields.sticky = Some(reserve.sticky);
            fields.draw = Some(draw);
            fields.tokens = Some(reserve.tokens);
            fields.wait_until = bounded(reserve.wait_until);
            fields.ttl = Some(reserve.ttl.0);
            fields.queue = reserve.queue;
            "reserve"
        }
        Op::Settle(settle) => {
            fields.outcome = Some(settle.outcome.word());
            fields.slow = settle.slow;
            fields.rest = settle.rest.map(|rest| (rest.span.0, rest.scope.word()));
            fields.overload = settle.overload;
            fields.tokens = settle.tokens;
            "settle"
        }
        Op::Renew { .. } => "renew",
        Op::Leave { .. } => "leave",
    });
}

fn notice_fields(notice: &Notice, fields: &mut Fields<'_>) {
    fields.elapsed = Some(notice.elapsed.0);
    fields.attempt = notice.attempt.map(|attempt| attempt.0);
    fields.choice = notice.choice.map(|choice| choice.0);
    fields.held_bytes = Some(notice.held_bytes);
    fields.held_events = Some(notice.held_events);
    fields.what = Some(notice.what.code());
    match &notice.what {
        What::AttemptStarted { why, probe, from, after } => {
            fields.why = Some(why.word());
            fields.probe = *probe;
            fields.from = from.map(|choice| choice.0);
            fields.after = after.map(Word::word);
        }
        What::AttemptEnded { outcome, status, reason, took } => {
            fields.outcome = Some(outcome.word());
            fields.status = *status;
            fields.reason = Some(reason.word());
            fields.took = Some(took.0);
        }
        What::Commit { reason, failover_added } => {
            fields.reason = Some(reason.word());
            fields.failover_added = failover_added.map(|span| span.0);
        }
        What::StreamIncomplete { reason } => fields.reason = Some(reason.word()),
        What::ClientCancelled { cause } => fields.cause = Some(cause.word()),
        What::BreakerOpened(change) | What::BreakerClosed(change) | What::Probe(change) => {
            fields.change = change_fields(Some(*change));
        }
        What::Paced { why, until } => {
            fields.why = Some(why.word());
            fields.until = Some(until.0);
        }
        What::EmptyResponse { reason } => fields.reason = Some(reason),
        What::RoutingTransferLimitReached
        | What::ProviderTransferLimitReached
        | What::LocalStreamCandidateRetryScheduled
        | What::LocalStreamTransportRetryScheduled
        | What::Stalled => {}
    }
}

fn judgement_fields(judgement: Judgement, fields: &mut Fields<'_>) {
    let hit = |hit: Option<Hit>| hit.map(|hit| (u8::from(hit.own), hit.place));
    fields.verdict = Some(match judgement {
        Judgement::SuccessRule(rule) => {
            fields.hit = hit(rule);
            "success_rule"
        }
        Judgement::StopRule(rule) => {
            fields.hit = hit(rule);
            "stop_rule"
        }
        Judgement::Phrase(yes) => {
            fields.yes = yes;
            "phrase"
        }
        Judgement::Structured(yes) => {
            fields.yes = yes;
            "structured"
        }
        Judgement::Error { status, quota_gone } => {
            fields.status = Some(status);
            fields.quota_gone = quota_gone;
            "error"
        }
    });
}

fn end_fields(end: &End, fields: &mut Fields<'_>, text: Text) {
    fields.end_as = Some(match end {
        End::Complete => "complete",
        End::Incomplete(reason) => {
            fields.reason = Some(reason.word());
            "incomplete"
        }
        End::UpstreamError(outcome) => {
            fields.outcome = Some(outcome.word());
            "upstream_error"
        }
        End::Broken => "broken",
        End::Answer(answer) => {
            let Answer { status, body: _, as_sent, head, retry_after, stop, no_retry, choice, outcome } = &**answer;
            fields.status = Some(*status);
            fields.as_sent = *as_sent;
            fields.head = head.map(|attempt| attempt.0);
            fields.retry_after = retry_after.map(|span| span.0);
            fields.stop = stop.map(Word::word);
            fields.no_retry = *no_retry;
            fields.choice = choice.map(|choice| choice.0);
            fields.outcome = Some(outcome.word());
            text.put(fields);
            "answer"
        }
        End::Cancelled(cause) => {
            fields.cause = Some(cause.word());
            "cancelled"
        }
    });
}

/// A time, or none for [`Time::NEVER`].
fn bounded(time: Time) -> Option<u64> {
    (time != Time::NEVER).then_some(time.0)
}

fn change_fields(change: Option<BreakerChange>) -> Option<(u32, &'static str, &'static str)> {
    change.map(|change| (change.target.0, change.from.word(), change.to.word()))
}

impl Text {
    fn put(self, fields: &mut Fields<'_>) {
        match self {
            Text::Length(length) => fields.n = Some(length),
            Text::Bytes(bytes) => match String::from_utf8(bytes) {
                Ok(text) => fields.text = Some(text),
                Err(other) => fields.b64 = Some(STANDARD.encode(other.as_bytes())),
            },
        }
    }
}
