//! From fields to the vocabulary.

use alloc::boxed::Box;
use alloc::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::{Read, Stars, of_hex};
use crate::event::{Action, Answer, Commit, End, Head, Hit, Input, Judgement, Notice, What};
use crate::id::{AttemptNo, Choice, LeaseId, TargetId};
use crate::pool::{BreakerChange, Op, Reply, Reserve, Rest, Roster, Settle, Standing};
use crate::time::{Span, Time};
use crate::trace::fields::{Fields, Problem};
use crate::trace::policy::word;
use crate::trace::words::Word;

/// Reasons of an empty answer, which are words of the program's own.
const EMPTY_REASONS: [&str; 6] =
    ["no_choices", "no_usage", "no_output", "empty_completion", "empty_body", "empty_stream"];

fn need<T>(field: Option<T>, name: &str) -> Read<T> {
    field.ok_or_else(|| Problem::missing(name))
}

fn need_word<T: Word>(field: Option<&str>, name: &str) -> Read<T> {
    word(name, need(field, name)?)
}

fn maybe_word<T: Word>(field: Option<&str>, name: &str) -> Read<Option<T>> {
    field.map(|found| word(name, found)).transpose()
}

/// The input of a line.
pub(in crate::trace) fn input_of(fields: &mut Fields<'_>, stars: &mut Stars) -> Read<Input> {
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
        "chunk" => Input::Chunk { attempt: attempt(fields)?, bytes: bytes_of(fields, stars)? },
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

/// The action of a line. The bytes of a `forward` that are only counted are made up.
pub(in crate::trace) fn action_of(fields: &mut Fields<'_>, roster: &Arc<Roster>, stars: &mut Stars) -> Read<Action> {
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
        "forward" => Action::Forward(bytes_of(fields, stars)?),
        "notice" => Action::Notice(notice_of(fields)?),
        "judge" => Action::Judged(judgement_of(fields)?),
        "finish" => Action::Finish(end_of(fields, stars)?),
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

fn end_of(fields: &mut Fields<'_>, stars: &mut Stars) -> Read<End> {
    Ok(match need(fields.end_as, "end_as")? {
        "complete" => End::Complete,
        "incomplete" => End::Incomplete(need_word(fields.reason, "reason")?),
        "upstream_error" => End::UpstreamError(need_word(fields.outcome, "outcome")?),
        "broken" => End::Broken,
        "answer" => End::Answer(Box::new(Answer {
            status: need(fields.status, "status")?,
            body: bytes_of(fields, stars)?,
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

fn change_of(fields: &Fields<'_>) -> Read<Option<BreakerChange>> {
    let Some((target, from, to)) = fields.change else { return Ok(None) };
    Ok(Some(BreakerChange { target: TargetId(target), from: word("state", from)?, to: word("state", to)? }))
}

fn bytes_of(fields: &mut Fields<'_>, stars: &mut Stars) -> Read<Bytes> {
    if let Some(text) = fields.text.take() {
        return Ok(text.into());
    }
    if let Some(text) = fields.b64.take() {
        let decoded = STANDARD.decode(text);
        return Ok(decoded.map_err(|_| Problem::Value("`b64` is no base64".into()))?.into());
    }
    stars.take(need(fields.n, "text")?)
}
