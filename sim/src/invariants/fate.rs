//! What an attempt must have taught, and how a call must have ended, by what really came over the wire (S1, S10, S11, F9–
//! F19, M1–M6).

use surefoot_core::event::{CommitReason, End, Incomplete, Reason};
use surefoot_core::outcome::Outcome;
use surefoot_core::policy::EmptyCompletion;
use surefoot_core::pool::{RestScope, Settle};
use surefoot_core::time::{Span, Time};
use surefoot_core::wire::Format;

use super::book::Wrong;
use super::calls::{Attempt, Call};
use crate::world::script::{Fate, Truth};
use crate::world::speech::Part;

/// The beginning of every key of every world: no client may ever see it.
const KEY: &[u8] = b"sk-sim-";

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// An attempt is settled: does that follow from what came (S11)?
pub(super) fn settled(call: &Call, now: Time, settle: &Settle) -> Result<(), Wrong> {
    let Some(attempt) = call.attempts.iter().rev().find(|attempt| attempt.lease == settle.lease) else { return Ok(()) };
    let Some(truth) = &attempt.truth else { return Ok(()) };
    let outcome = settle.outcome;
    if outcome == Outcome::Cancelled {
        let ends = call.left.is_some() || now >= call.deadline();
        return if ends { Ok(()) } else { Err(("S11", "an attempt was cancelled and nobody left".into())) };
    }
    if call.left.is_some_and(|(at, _)| at < now) && !call.client_may_be_gone() {
        return Err(("S11", format!("a client left, and {outcome:?} was taught")));
    }
    let timed_out = attempt.could_time_out(call, now);
    let conservative =
        matches!(call.commit.map(|commit| commit.reason), Some(CommitReason::WindowBytes | CommitReason::WindowEvents));
    let by_status = truth.status.map(crate::world::trouble::outcome_of);
    let broke_first = attempt.fault.is_some() && !attempt.head_told;
    let fits = match truth.fate {
        _ if broke_first => outcome == Outcome::Transient,
        // Of what passes through only the head is looked at, unless another attempt may follow (M7).
        Fate::Fails(_) if call.plan.format == Format::Raw && by_status == Some(outcome) => true,
        Fate::Fails(_) if call.plan.format == Format::Raw && attempt.fault.is_some() => outcome == Outcome::Transient,
        Fate::Good => outcome == Outcome::Success,
        Fate::Unstructured => matches!(outcome, Outcome::Success | Outcome::ResultInvalid),
        Fate::Empty => match call.policy().empty_completion {
            EmptyCompletion::Deliver => outcome == Outcome::Success,
            EmptyCompletion::Failover => outcome == Outcome::Transient || (conservative && outcome == Outcome::Success),
        },
        Fate::Fails(fails) => outcome == fails || (conservative && outcome == Outcome::Success),
        Fate::Breaks(breaks) => outcome == breaks,
        Fate::Silent => attempt.fault.is_some() && outcome == Outcome::Transient,
    };
    if !(fits || outcome == Outcome::Transient && timed_out) {
        return Err((
            "S11",
            format!("{outcome:?} was taught by {:?} ({:?}), nothing timed out", truth.trouble, truth.fate),
        ));
    }
    if fits && !broke_first && !early(attempt, truth) && call.plan.format != Format::Raw {
        pushback(call, truth, settle)?;
    }
    Ok(())
}

/// Whether it was settled before all of it was told: by a timeout, or for another place.
fn early(attempt: &Attempt, truth: &Truth) -> bool {
    !attempt.over && attempt.told < truth.body.len()
}

/// What a failure says of waiting and pace (G12–G14).
fn pushback(call: &Call, truth: &Truth, settle: &Settle) -> Result<(), Wrong> {
    let retry = &call.policy().retry;
    let failed = truth.status.is_some_and(|status| status >= 400);
    if settle.overload != truth.overload && settle.outcome != Outcome::Success && call.plan.format != Format::Raw {
        return Err(("G14", format!("overload is told as {}, it is {}", settle.overload, truth.overload)));
    }
    match (settle.outcome, settle.rest) {
        (Outcome::RateLimited, Some(rest)) => {
            let (low, high) = truth.hint.filter(|_| failed).unwrap_or_default();
            let longest = high.max(retry.max);
            if rest.scope != RestScope::Account || rest.span < low || rest.span > longest {
                return Err(("G12", format!("rests {rest:?} after a 429 that asked for {low} to {high}")));
            }
            Ok(())
        }
        (Outcome::RateLimited, None) => Err(("G12", "a 429 and no rest".into())),
        (Outcome::Transient, rest) => match (truth.hint.filter(|_| failed), rest) {
            (Some((low, high)), Some(rest))
                if rest.scope == RestScope::Source && rest.span >= low && rest.span <= high =>
            {
                Ok(())
            }
            (None, None) => Ok(()),
            (hint, rest) => Err(("F2", format!("rests {rest:?} after an answer that asked for {hint:?}"))),
        },
        (_, Some(rest)) => Err(("G12", format!("rests {rest:?} after {:?}", settle.outcome))),
        (_, None) => Ok(()),
    }
}

/// A call is over: is its end the one that follows, and did the client get what it must (S1)?
pub(super) fn over(call: &Call, now: Time, end: &End) -> Result<(), Wrong> {
    if contains(&call.forwarded, KEY) && call.plan.format != Format::Raw {
        return Err(("X6", "a provider's key went out to the client".into()));
    }
    // What was on its way when the client left goes by the end that the call had come to.
    let end = call.finished.as_ref().unwrap_or(end);
    if let End::Answer(answer) = end {
        return answered(call, now, answer);
    }
    let Some(commit) = call.commit else {
        let empty = call.forwarded.is_empty();
        let cancelled = matches!(end, End::Cancelled(_));
        return if cancelled && empty { Ok(()) } else { Err(("S10", format!("{end:?} without a commit"))) };
    };
    let Some(attempt) = call.attempt(commit.attempt) else {
        return Err(("S1", format!("attempt {} was committed and never sent", commit.attempt)));
    };
    let Some(truth) = &attempt.truth else { return Ok(()) };
    follows(call, attempt, truth, now, end)?;
    let bytes = &call.forwarded[..];
    let looked_at = !matches!(call.plan.format, Format::Images | Format::Raw);
    let is_json = truth.body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let told = &truth.body[..attempt.told.min(truth.body.len())];
    if call.client_may_be_gone() {
        // Nobody took the rest.
        return Ok(());
    }
    match end {
        End::Complete if call.plan.stream && looked_at && is_json => bridged(bytes, &truth.body),
        End::Complete if call.plan.stream && looked_at => whole_stream(bytes, truth, told.len()),
        End::Complete => same(bytes, &truth.body),
        End::Incomplete(reason) => torn_stream(call, attempt, truth, *reason),
        End::UpstreamError(_) => {
            let error = truth.ends.iter().find(|(_, part)| *part == Part::Error).map_or(0, |(end, _)| *end);
            same(bytes, &truth.body[..error])
        }
        _ if is_json && call.plan.stream && looked_at => Ok(()),
        _ => prefix(bytes, told),
    }
}

fn same(bytes: &[u8], body: &[u8]) -> Result<(), Wrong> {
    if bytes == body {
        return Ok(());
    }
    let at = bytes.iter().zip(body).take_while(|(a, b)| a == b).count();
    Err((
        "S1",
        format!("the client has {} bytes, {} were meant; they differ from byte {at} on", bytes.len(), body.len()),
    ))
}

fn prefix(bytes: &[u8], body: &[u8]) -> Result<(), Wrong> {
    if body.starts_with(bytes) { Ok(()) } else { same(bytes, body) }
}

/// Everything up to the protocol's end; a blank line may have been added (M5).
fn whole_stream(bytes: &[u8], truth: &Truth, told: usize) -> Result<(), Wrong> {
    let last = truth.ends.iter().find(|(_, part)| *part == Part::Last).map_or(truth.body.len(), |(end, _)| *end);
    let body = &truth.body[..last.min(told)];
    match bytes.strip_prefix(body) {
        Some(added) if added.len() <= 4 && added.iter().all(|byte| matches!(byte, b'\r' | b'\n')) => Ok(()),
        // The line feed behind the last carriage return may have come too late.
        _ => same(bytes, body),
    }
}

/// Whole events, then one error event and nothing else (M5).
fn torn_stream(call: &Call, attempt: &Attempt, truth: &Truth, reason: Incomplete) -> Result<(), Wrong> {
    let bytes = &call.forwarded[..];
    let provider = &call.candidate(attempt.choice).provider.name;
    let bad = truth.ends.iter().find(|(_, part)| *part == Part::Bad).map_or(usize::MAX, |(end, _)| *end);
    let told = attempt.told;
    let whole = truth.ends.iter().map(|(end, _)| *end).filter(|end| *end <= told && *end < bad).max().unwrap_or(0);
    let exact = matches!(reason, Incomplete::Cut | Incomplete::Malformed | Incomplete::Idle);
    let mut ends: Vec<usize> = if exact { vec![whole] } else { truth.ends.iter().map(|(end, _)| *end).collect() };
    if !exact {
        ends.push(0);
    }
    for end in ends.into_iter().rev().filter(|end| *end <= bytes.len()) {
        if bytes[..end] != truth.body[..end] {
            continue;
        }
        let tail = String::from_utf8_lossy(&bytes[end..]);
        let event = tail.trim_start_matches(['\r', '\n']);
        let one = event.ends_with("\n\n") && event.trim_end().split("\n\n").count() == 1;
        let says =
            event.contains("stream_incomplete") && event.contains(&**provider) && event.contains(reason.as_str());
        if one && says && !event.contains("[DONE]") {
            return Ok(());
        }
    }
    let tail = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(240)..]).into_owned();
    Err(("S1", format!("not whole events and one error event ({reason:?}; {whole} bytes were whole): …{tail:?}")))
}

/// A JSON answer told as a stream says the same words, and ends once (F15).
fn bridged(bytes: &[u8], body: &[u8]) -> Result<(), Wrong> {
    let text = String::from_utf8_lossy(bytes);
    let mut words = String::new();
    let mut ends = 0;
    for line in text.lines() {
        let Some(data) = line.strip_prefix("data: ") else { continue };
        if data == "[DONE]" {
            ends += 1;
            continue;
        }
        let Ok(event) = serde_json::from_str::<serde_json::Value>(data) else {
            return Err(("F15", format!("an event that is no JSON in a bridged stream: {data}")));
        };
        match event["type"].as_str() {
            Some("message_stop" | "response.completed" | "response.incomplete") => ends += 1,
            Some("response.output_text.delta") => words.push_str(event["delta"].as_str().unwrap_or_default()),
            _ => {}
        }
        words.push_str(event["delta"]["text"].as_str().unwrap_or_default());
        for choice in event["choices"].as_array().into_iter().flatten() {
            words.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        }
    }
    let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let mut meant = String::new();
    for choice in body["choices"].as_array().into_iter().flatten() {
        meant.push_str(choice["message"]["content"].as_str().unwrap_or_default());
    }
    let items = body["output"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|item| item["content"].as_array().into_iter().flatten());
    for block in body["content"].as_array().into_iter().flatten().chain(items) {
        meant.push_str(block["text"].as_str().unwrap_or_default());
    }
    if ends == 1 && words == meant {
        return Ok(());
    }
    Err(("F15", format!("a bridged stream says {words:?} and ends {ends} times; {meant:?} was meant")))
}

fn follows(call: &Call, attempt: &Attempt, truth: &Truth, now: Time, end: &End) -> Result<(), Wrong> {
    let conservative = call.commit.is_some_and(|commit| {
        matches!(commit.reason, CommitReason::WindowBytes | CommitReason::WindowEvents | CommitReason::Head)
    });
    let broken = matches!(truth.fate, Fate::Breaks(_))
        || (truth.fate == Fate::Silent && attempt.fault.is_some())
        || (conservative && matches!(truth.fate, Fate::Fails(_)));
    let timed_out = attempt.could_time_out(call, now) || truth.fate == Fate::Silent;
    let fits = match end {
        End::Complete => {
            matches!(truth.fate, Fate::Good | Fate::Unstructured | Fate::Empty)
                || conservative && (call.plan.format == Format::Raw || truth.trouble_is_words())
        }
        End::Incomplete(Incomplete::Cut | Incomplete::Malformed) => broken && truth_has_no(truth, Part::Error),
        End::Incomplete(Incomplete::Idle) => timed_out,
        End::Incomplete(Incomplete::Deadline) => now >= call.deadline(),
        End::Incomplete(Incomplete::Shutdown) => call.left.is_some(),
        End::UpstreamError(_) => broken && !truth_has_no(truth, Part::Error),
        End::Broken => broken || timed_out || call.left.is_some() || now >= call.deadline(),
        End::Cancelled(_) => call.left.is_some(),
        End::Answer(_) => false,
    };
    if fits {
        return Ok(());
    }
    Err(("S10", format!("ended as {end:?}; what came was {:?} ({:?})", truth.trouble, truth.fate)))
}

fn truth_has_no(truth: &Truth, part: Part) -> bool {
    truth.ends.iter().all(|(_, known)| *known != part)
}

/// F19: an answer of our own, or the last genuine one.
fn answered(call: &Call, now: Time, answer: &surefoot_core::event::Answer) -> Result<(), Wrong> {
    if call.commit.is_some() || !call.forwarded.is_empty() {
        return Err(("S10", "an answer in place of a committed one".into()));
    }
    if !(400..=599).contains(&answer.status) {
        return Err(("F19", format!("an error with status {}", answer.status)));
    }
    if contains(&answer.body, KEY) {
        return Err(("X6", "a provider's key stands in the answer".into()));
    }
    call.gave_up_rightly(now, answer)?;
    let genuine = |attempt: &Attempt| {
        matches!(attempt.reason, Some(Reason::Status | Reason::ErrorObject))
            && attempt.truth.as_ref().is_some_and(|truth| truth.ends.iter().any(|(_, part)| *part == Part::Error))
    };
    if let Some(head) = answer.head {
        let later = call.attempts.iter().skip(usize::from(head.0) + 1).any(genuine);
        if later {
            return Err(("F19", format!("the error of attempt {head} is told, a later one had an error of its own")));
        }
        let truth = call.attempt(head).and_then(|attempt| attempt.truth.as_ref());
        if answer.as_sent
            && truth.is_some()
            && call.attempt(head).is_some_and(|attempt| attempt.told != answer.body.len())
        {
            return Err(("F19", "the answer is not the upstream's body although it says so".into()));
        }
    }
    if call.attempts.is_empty() && !matches!(answer.status, 429 | 503 | 504) {
        return Err(("F19", format!("status {} and no attempt", answer.status)));
    }
    let waits = answer.retry_after.is_some_and(|span| span > Span::from_secs(86_400 * 2));
    if waits { Err(("F19", format!("retry after {:?}", answer.retry_after))) } else { Ok(()) }
}
