//! The vocabulary as fields, both ways.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::fields::{Fields, Problem};
use super::policy::word;
use super::words::Word;
use crate::event::{Action, Answer, Commit, End, Head, Hit, Input, Judgement, Notice, What};
use crate::id::{AttemptNo, Choice, LeaseId, TargetId};
use crate::policy::Route;
use crate::pool::{BreakerChange, Op, Reply, Reserve, Rest, Roster, Settle, Standing};
use crate::time::{Span, Time};

/// Reasons of an empty answer, which are words of the program's own.
const EMPTY_REASONS: [&str; 6] =
    ["no_choices", "no_usage", "no_output", "empty_completion", "empty_body", "empty_stream"];

type Read<T> = Result<T, Problem>;

fn need<T>(field: Option<T>, name: &str) -> Read<T> {
    field.ok_or_else(|| Problem::missing(name))
}

fn need_word<T: Word>(field: Option<&str>, name: &str) -> Read<T> {
    word(name, need(field, name)?)
}

fn maybe_word<T: Word>(field: Option<&str>, name: &str) -> Read<Option<T>> {
    field.map(|found| word(name, found)).transpose()
}

/// A number that is no count: in hexadecimal, for not every reader of JSON has 64 bits.
pub(super) fn hex(number: u64) -> String {
    format!("{number:016x}")
}

pub(super) fn of_hex(field: Option<&str>, name: &str) -> Read<u64> {
    let text = need(field, name)?;
    u64::from_str_radix(text, 16).map_err(|_| Problem::unknown(name, text))
}

/// A time, or none for [`Time::NEVER`].
fn bounded(time: Time) -> Option<u64> {
    (time != Time::NEVER).then_some(time.0)
}

fn change_fields(change: Option<BreakerChange>) -> Option<(u32, &'static str, &'static str)> {
    change.map(|change| (change.target.0, change.from.word(), change.to.word()))
}

fn change_of(fields: &Fields<'_>) -> Read<Option<BreakerChange>> {
    let Some((target, from, to)) = fields.change else { return Ok(None) };
    Ok(Some(BreakerChange { target: TargetId(target), from: word("state", from)?, to: word("state", to)? }))
}

/// The bytes of a line.
pub(super) enum Text {
    /// These.
    Bytes(Vec<u8>),
    /// So many, of which nothing else is told.
    Length(u64),
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

/// Of bytes that are only counted, no more are made up than one chunk may have.
const MAX_COUNTED: u64 = 1 << 30;

fn bytes_of(fields: &mut Fields<'_>) -> Read<Bytes> {
    if let Some(text) = fields.text.take() {
        return Ok(text.into());
    }
    if let Some(text) = fields.b64.take() {
        let decoded = STANDARD.decode(text);
        return Ok(decoded.map_err(|_| Problem::Value("`b64` is no base64".into()))?.into());
    }
    let length = need(fields.n, "text")?;
    if length > MAX_COUNTED {
        return Err(Problem::Value("`n` is more than a chunk can have".into()));
    }
    Ok(alloc::vec![b'*'; usize::try_from(length).unwrap_or(0)].into())
}

/// The fields of an input. Its chunk, if it is one, as `text` has it.
pub(super) fn input_fields<'a>(input: &Input, headers: Vec<crate::wire::Header>, text: Text) -> Fields<'a> {
    let mut fields = Fields::default();
    fields.input = Some(match input {
        Input::Reply { lease, reply } => {
            fields.lease = Some(lease.0);
            reply_fields(reply, &mut fields);
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
            text.put(&mut fields);
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
    fields
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

/// The input of a line.
pub(super) fn input_of(fields: &mut Fields<'_>) -> Read<Input> {
    let attempt = |fields: &Fields<'_>| Ok(AttemptNo(need(fields.attempt, "attempt")?));
    Ok(match need(fields.input, "in")? {
        "reply" => Input::Reply { lease: LeaseId(need(fields.lease, "lease")?), reply: reply_of(fields)? },
        "head" => {
            let head = Head {
                status: need(fields.status, "status")?,
                headers: core::mem::take(&mut fields.headers),
                unix_ms: need(fields.unix_ms, "unix_ms")?,
            };
            Input::Head { attempt: attempt(fields)?, head }
        }
        "chunk" => Input::Chunk { attempt: attempt(fields)?, bytes: bytes_of(fields)? },
        "end" => Input::End { attempt: attempt(fields)? },
        "fault" => Input::Fault { attempt: attempt(fields)?, fault: need_word(fields.fault, "fault")? },
        "flushed" => Input::Flushed,
        "tick" => Input::Tick,
        "cancel" => Input::Cancel(need_word(fields.cause, "cause")?),
        other => return Err(Problem::unknown("input", other)),
    })
}

fn reply_of(fields: &Fields<'_>) -> Read<Reply> {
    Ok(match need(fields.reply, "reply")? {
        "granted" => Reply::Granted {
            choice: Choice(need(fields.choice, "choice")?),
            probe: fields.probe,
            change: change_of(fields)?,
        },
        "refused" => Reply::Refused {
            why: need_word(fields.why, "why")?,
            after: fields.again_at.map(Time),
            soonest: fields.soonest.map(Time),
            progress: Time(need(fields.progress, "progress")?),
        },
        "settled" => Reply::Settled { change: change_of(fields)? },
        "done" => Reply::Done,
        other => return Err(Problem::unknown("reply", other)),
    })
}

/// The fields of an action. Its bytes, if it has any, as `text` has them; `draw` is a place for its draw in digits.
pub(super) fn action_fields<'a>(action: &Action, route: &Route, text: Text, draw: &'a mut String) -> Fields<'a> {
    let mut fields = Fields::default();
    let source = |choice: Choice| {
        let candidate = route.candidates.get(usize::from(choice.0));
        candidate.map(|candidate| Box::from(&*candidate.source_name))
    };
    fields.action = Some(match action {
        Action::Ask(op) => {
            op_fields(op, &mut fields, draw);
            "ask"
        }
        Action::Tell(op) => {
            op_fields(op, &mut fields, draw);
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
            text.put(&mut fields);
            "forward"
        }
        Action::Notice(notice) => {
            fields.source = notice.choice.and_then(source);
            notice_fields(notice, &mut fields);
            "notice"
        }
        Action::Judged(judgement) => {
            judgement_fields(*judgement, &mut fields);
            "judge"
        }
        Action::Finish(end) => {
            end_fields(end, &mut fields, text);
            "finish"
        }
    });
    fields
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

/// The action of a line. The bytes of a `forward` that are only counted are made up.
pub(super) fn action_of(fields: &mut Fields<'_>, roster: &Arc<Roster>) -> Read<Action> {
    let attempt = |fields: &Fields<'_>| Ok(AttemptNo(need(fields.attempt, "attempt")?));
    let choice = |fields: &Fields<'_>| Ok(Choice(need(fields.choice, "choice")?));
    Ok(match need(fields.action, "do")? {
        "ask" => Action::Ask(op_of(fields, roster)?),
        "tell" => Action::Tell(op_of(fields, roster)?),
        "send" => {
            Action::Send { attempt: attempt(fields)?, choice: choice(fields)?, why: need_word(fields.why, "why")? }
        }
        "abort" => Action::Abort(attempt(fields)?),
        "commit" => Action::Commit(Commit {
            attempt: attempt(fields)?,
            choice: choice(fields)?,
            reason: need_word(fields.reason, "reason")?,
            shape: need_word(fields.shape, "shape")?,
            length: fields.length,
        }),
        "forward" => Action::Forward(bytes_of(fields)?),
        "notice" => Action::Notice(notice_of(fields)?),
        "judge" => Action::Judged(judgement_of(fields)?),
        "finish" => Action::Finish(end_of(fields)?),
        other => return Err(Problem::unknown("action", other)),
    })
}

fn op_of(fields: &mut Fields<'_>, roster: &Arc<Roster>) -> Read<Op> {
    let lease = LeaseId(need(fields.lease, "lease")?);
    Ok(match need(fields.op, "op")? {
        "reserve" => {
            if need(fields.roster, "roster")? != roster.id {
                return Err(Problem::Value("`roster` is not that of the call's policy".into()));
            }
            let standing = |(failed, out, not_before, last_attempt)| Standing {
                failed,
                out: out != 0,
                not_before: Time(not_before),
                last_attempt,
            };
            Op::Reserve(Reserve {
                lease,
                roster: roster.clone(),
                standing: core::mem::take(&mut fields.standing).into_iter().map(standing).collect(),
                sticky: need(fields.sticky, "sticky")?,
                draw: of_hex(fields.draw, "draw")?,
                tokens: need(fields.tokens, "tokens")?,
                wait_until: fields.wait_until.map_or(Time::NEVER, Time),
                ttl: Span(need(fields.ttl, "ttl")?),
                queue: fields.queue,
            })
        }
        "settle" => {
            let rest = match fields.rest {
                Some((span, scope)) => Some(Rest { span: Span(span), scope: word("rest", scope)? }),
                None => None,
            };
            let outcome = need_word(fields.outcome, "outcome")?;
            let Fields { slow, overload, tokens, .. } = *fields;
            Op::Settle(Settle { lease, outcome, slow, rest, overload, tokens })
        }
        "renew" => Op::Renew { lease },
        "leave" => Op::Leave { lease },
        other => return Err(Problem::unknown("op", other)),
    })
}

fn notice_of(fields: &Fields<'_>) -> Read<Notice> {
    Ok(Notice {
        elapsed: Span(need(fields.elapsed, "elapsed")?),
        attempt: fields.attempt.map(AttemptNo),
        choice: fields.choice.map(Choice),
        held_bytes: need(fields.held_bytes, "held_bytes")?,
        held_events: need(fields.held_events, "held_events")?,
        what: what_of(fields)?,
    })
}

fn what_of(fields: &Fields<'_>) -> Read<What> {
    let change = |fields| need(change_of(fields)?, "change");
    Ok(match need(fields.what, "what")? {
        "attempt_started" => What::AttemptStarted {
            why: need_word(fields.why, "why")?,
            probe: fields.probe,
            from: fields.from.map(Choice),
            after: maybe_word(fields.after, "after")?,
        },
        "attempt_ended" => What::AttemptEnded {
            outcome: need_word(fields.outcome, "outcome")?,
            status: fields.status,
            reason: need_word(fields.reason, "reason")?,
            took: Span(need(fields.took, "took")?),
        },
        "routing_transfer_limit_reached" => What::RoutingTransferLimitReached,
        "provider_transfer_limit_reached" => What::ProviderTransferLimitReached,
        "local_stream_candidate_retry_scheduled" => What::LocalStreamCandidateRetryScheduled,
        "local_stream_transport_retry_scheduled" => What::LocalStreamTransportRetryScheduled,
        "commit" => What::Commit {
            reason: need_word(fields.reason, "reason")?,
            failover_added: fields.failover_added.map(Span),
        },
        "stream_incomplete" => What::StreamIncomplete { reason: need_word(fields.reason, "reason")? },
        "client_cancelled" => What::ClientCancelled { cause: need_word(fields.cause, "cause")? },
        "breaker_opened" => What::BreakerOpened(change(fields)?),
        "breaker_closed" => What::BreakerClosed(change(fields)?),
        "probe" => What::Probe(change(fields)?),
        "paced" => What::Paced { why: need_word(fields.why, "why")?, until: Span(need(fields.until, "until")?) },
        "stalled" => What::Stalled,
        "empty_response" => {
            let told = need(fields.reason, "reason")?;
            let reason = EMPTY_REASONS.into_iter().find(|reason| *reason == told);
            What::EmptyResponse { reason: reason.ok_or_else(|| Problem::unknown("reason", told))? }
        }
        other => return Err(Problem::unknown("notice", other)),
    })
}

fn judgement_of(fields: &Fields<'_>) -> Read<Judgement> {
    let hit = || fields.hit.map(|(own, place)| Hit { own: own != 0, place });
    Ok(match need(fields.verdict, "verdict")? {
        "success_rule" => Judgement::SuccessRule(hit()),
        "stop_rule" => Judgement::StopRule(hit()),
        "phrase" => Judgement::Phrase(fields.yes),
        "structured" => Judgement::Structured(fields.yes),
        "error" => Judgement::Error { status: need(fields.status, "status")?, quota_gone: fields.quota_gone },
        other => return Err(Problem::unknown("verdict", other)),
    })
}

fn end_of(fields: &mut Fields<'_>) -> Read<End> {
    Ok(match need(fields.end_as, "end_as")? {
        "complete" => End::Complete,
        "incomplete" => End::Incomplete(need_word(fields.reason, "reason")?),
        "upstream_error" => End::UpstreamError(need_word(fields.outcome, "outcome")?),
        "broken" => End::Broken,
        "answer" => End::Answer(Box::new(Answer {
            status: need(fields.status, "status")?,
            body: bytes_of(fields)?,
            as_sent: fields.as_sent,
            head: fields.head.map(AttemptNo),
            retry_after: fields.retry_after.map(Span),
            stop: maybe_word(fields.stop, "stop")?,
            no_retry: fields.no_retry,
            choice: fields.choice.map(Choice),
            outcome: need_word(fields.outcome, "outcome")?,
        })),
        "cancelled" => End::Cancelled(need_word(fields.cause, "cause")?),
        other => return Err(Problem::unknown("end", other)),
    })
}
