//! The lines of an explanation.

use std::fmt::Write as _;

use surefoot_core::event::{
    Action, CancelCause, CommitReason, End, Hit, Incomplete, Input, Judgement, Notice, Reason, Shape, Stop, What, Why,
};
use surefoot_core::id::Choice;
use surefoot_core::outcome::Outcome;
use surefoot_core::policy::config::TraceMode;
use surefoot_core::pool::{BreakerChange, BreakerState, Op, Refusal, Reply, Reserve, RestScope, Settle, Strategy};
use surefoot_core::time::{Span, Time};
use surefoot_core::trace::{Entry, RecordedCall};

use super::facts::{Book, end_words};

/// Tells a call's life.
pub(super) fn tell(call: &RecordedCall, out: &mut String) {
    let mut teller = Teller { call, out, run: Run::default(), out_of_it: Vec::new() };
    teller.head();
    for (step, entry) in call.entries.iter().enumerate() {
        teller.entry(step, entry);
    }
    teller.flush();
    teller.tail();
}

struct Teller<'a> {
    call: &'a RecordedCall,
    out: &'a mut String,
    run: Run,
    /// Whom the call did not consider any more when it last asked.
    out_of_it: Vec<bool>,
}

/// Pieces of a body on their way, told in one line.
#[derive(Default)]
struct Run {
    line: usize,
    from: Time,
    to: Time,
    came: u64,
    pieces: u32,
    went: u64,
}

impl Teller<'_> {
    fn head(&mut self) {
        let begin = &self.call.begin;
        let kind = if begin.stream { "a stream" } else { "a whole answer" };
        let mode = if begin.mode == TraceMode::Redacted { ", recorded without texts" } else { "" };
        let _ = writeln!(
            self.out,
            "call {} · request {} · model {} · {}, {kind} · {}{mode}",
            begin.id,
            begin.request_id,
            self.call.route.model,
            begin.format.as_str(),
            date(begin.unix_ms)
        );
        let route = &self.call.route;
        let order = match route.roster.strategy {
            Strategy::Priority => "in this order",
            Strategy::HealthAware => "the healthier and less busy of two drawn first",
            Strategy::RoundRobin => "each call begins one further",
            Strategy::LeastInflight => "the least busy first",
        };
        let _ = writeln!(self.out, "may go to, {order}:");
        for (place, candidate) in route.candidates.iter().enumerate() {
            let tier = route.roster.entries.get(place).map_or(0, |entry| entry.tier);
            let tier = if route.roster.strategy == Strategy::Priority {
                String::new()
            } else {
                format!(", tier {}", tier + 1)
            };
            let model = if candidate.model.is_empty() { "as asked" } else { &candidate.model };
            let _ = writeln!(self.out, "  {} ({model}{tier})", candidate.source_name);
        }
        let _ = writeln!(self.out, "under: {}\n", self.policy());
    }

    fn policy(&self) -> String {
        let policy = &self.call.route.policy;
        let count = |what: &str, count: u32| if count == 0 { String::new() } else { format!("{what} {count}") };
        let span = |what: &str, span: Span| if span.is_zero() { String::new() } else { format!("{what} {span}") };
        let balanced = self.call.route.roster.strategy != Strategy::Priority;
        let parts = [
            count("tries on the first source", policy.sticky_key_attempts),
            if balanced { count("attempts", policy.max_attempts) } else { String::new() },
            count("transfers", policy.max_transfer_count),
            span("no new attempt after", policy.max_transfer_timeout),
            span("waiting", policy.max_wait),
            span("deadline", policy.deadline),
        ];
        parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(" · ")
    }

    fn tail(&mut self) {
        let facts = Book::of(self.call);
        let took = facts.ended.since(facts.arrived);
        let attempts = match facts.attempts.len() {
            1 => "one attempt".to_owned(),
            count => format!("{count} attempts"),
        };
        let _ = write!(self.out, "\n{} after {took}, {attempts}", end_words(facts.end.as_ref()));
        if let Some(added) = facts.added() {
            let _ = write!(self.out, "; waiting and failed attempts added {added}");
        }
        self.out.push_str("\n\n");
    }

    fn line(&mut self, line: usize, at: Time, text: &str) {
        let since = at.since(self.call.begin.at);
        let shown = format!("{}.{:03} ms", since.0 / 1000, since.0 % 1000);
        let _ = writeln!(self.out, "{line:>8}  {shown:>14}  {text}");
    }

    fn entry(&mut self, step: usize, entry: &Entry) {
        let line = self.call.line_of(step);
        match entry {
            Entry::In(at, Input::Chunk { bytes, .. }) => {
                self.join(line, *at);
                self.run.came += bytes.len() as u64;
                self.run.pieces += 1;
            }
            Entry::Do(at, Action::Forward(bytes)) => {
                self.join(line, *at);
                self.run.went += bytes.len() as u64;
            }
            Entry::In(_, Input::Flushed | Input::Tick | Input::Reply { reply: Reply::Done, .. }) => {}
            Entry::In(at, input) => {
                let text = self.heard(input);
                self.told(line, *at, &text);
            }
            Entry::Do(at, action) => {
                if let Action::Ask(Op::Reserve(reserve)) = action {
                    self.out_of_it = reserve.standing.iter().map(|standing| standing.out).collect();
                }
                let text = self.done(action);
                self.told(line, *at, &text);
            }
        }
    }

    fn join(&mut self, line: usize, at: Time) {
        if self.run.line == 0 {
            self.run = Run { line, from: at, ..Run::default() };
        }
        self.run.to = at;
    }

    fn told(&mut self, line: usize, at: Time, text: &str) {
        if !text.is_empty() {
            self.flush();
            self.line(line, at, text);
        }
    }

    fn flush(&mut self) {
        let run = std::mem::take(&mut self.run);
        if run.line == 0 {
            return;
        }
        let mut parts = Vec::new();
        if run.pieces > 0 {
            let pieces = if run.pieces == 1 { "one piece".to_owned() } else { format!("{} pieces", run.pieces) };
            parts.push(format!("{} bytes came in {pieces}", run.came));
        }
        if run.went > 0 {
            parts.push(format!("{} bytes went to the client", run.went));
        }
        let over = run.to.since(run.from);
        let over = if over.is_zero() { String::new() } else { format!(", over {over}") };
        self.line(run.line, run.from, &(parts.join(", ") + &over));
    }

    fn source(&self, choice: Choice) -> &str {
        self.call.route.candidates.get(usize::from(choice.0)).map_or("?", |candidate| &candidate.source_name)
    }

    fn change(&self, change: Option<BreakerChange>) -> String {
        let Some(BreakerChange { target, from, to }) = change else { return String::new() };
        let place = self.call.route.roster.entries.iter().position(|entry| entry.target == target);
        let candidate = place.and_then(|place| self.call.route.candidates.get(place));
        let name = candidate.map_or_else(|| "?".to_owned(), |it| format!("{} ({})", it.source_name, it.model));
        let why = match (from, to) {
            (_, BreakerState::Open) => "nothing goes there for a while",
            (_, BreakerState::HalfOpen) => "its time is over: one probe may go there",
            (_, BreakerState::Closed) => "it answers again",
        };
        format!("the breaker of {name}: {} → {}, {why}", from.as_str(), to.as_str())
    }

    /// Why this candidate, as far as the call's own record knows.
    fn placed(&self, choice: Choice) -> &'static str {
        let before = usize::from(choice.0);
        let considered = (0..before).any(|place| !self.out_of_it.get(place).copied().unwrap_or(false));
        match self.call.route.roster.strategy {
            Strategy::Priority if before == 0 => "the first in the list",
            Strategy::Priority if !considered => "the first that is left in the list",
            Strategy::Priority => "whoever stands before it cannot start now",
            Strategy::HealthAware => "the first in this call's draw that could start",
            Strategy::RoundRobin => "the first in its turn that could start",
            Strategy::LeastInflight => "the least busy that could start",
        }
    }

    fn heard(&self, input: &Input) -> String {
        match input {
            Input::Reply { reply: Reply::Granted { choice, probe, change }, .. } => {
                let why = if *probe { "as its breaker's probe, one try" } else { self.placed(*choice) };
                let change = self.change(*change);
                let change = if change.is_empty() { change } else { format!("; {change}") };
                format!("may start on {}: {why}{change}", self.source(*choice))
            }
            Input::Reply { reply: Reply::Refused { why, after, soonest, .. }, .. } => {
                let now = self.call.begin.at;
                let again = after.map(|at| format!("; something may start at {}", ms(at.since(now))));
                let far = soonest.filter(|_| after.is_none());
                let far = far.map(|at| format!("; the first is back at {}", ms(at.since(now))));
                format!("nothing can start now: {}{}", refusal(*why), again.or(far).unwrap_or_default())
            }
            Input::Reply { reply: Reply::Settled { change }, .. } => self.change(*change),
            Input::Reply { reply: Reply::Done, .. } | Input::Flushed | Input::Tick | Input::Chunk { .. } => {
                String::new()
            }
            Input::Head { attempt, head } => {
                let mut text = format!("attempt {}: status {}", attempt.0 + 1, head.status);
                for (name, value) in &head.headers {
                    let _ = write!(text, ", {name}: {value}");
                }
                text
            }
            Input::End { attempt } => format!("attempt {}: its body is complete", attempt.0 + 1),
            Input::Fault { attempt, fault } => {
                format!("attempt {}: broke below HTTP ({})", attempt.0 + 1, fault.as_str())
            }
            Input::Cancel(cause) => match cause {
                CancelCause::ClientGone => "the client left".to_owned(),
                CancelCause::ClientStalled => "the client took nothing for too long".to_owned(),
                CancelCause::Shutdown => "the gateway stops".to_owned(),
            },
        }
    }

    fn done(&self, action: &Action) -> String {
        match action {
            Action::Ask(Op::Reserve(reserve)) => self.asked(reserve),
            Action::Tell(Op::Settle(settle)) => settled(settle),
            Action::Ask(_) | Action::Tell(Op::Renew { .. } | Op::Reserve(_)) => String::new(),
            Action::Tell(Op::Leave { .. }) => "gives its place in line back".to_owned(),
            // Told by its notice, which knows why.
            Action::Send { .. } | Action::Forward(_) => String::new(),
            Action::Abort(attempt) => format!("attempt {}: its connection is dropped", attempt.0 + 1),
            Action::Commit(commit) => {
                let why = match commit.reason {
                    CommitReason::Content => "there is content",
                    CommitReason::End => "it ended normally",
                    CommitReason::WindowBytes => "the window's bytes are used up",
                    CommitReason::WindowEvents => "the window's events are used up",
                    CommitReason::Head => "its head decides",
                };
                let shape = if commit.shape == Shape::EventStream { ", made into an event stream" } else { "" };
                format!("the client gets attempt {} and no other from here on: {why}{shape}", commit.attempt.0 + 1)
            }
            Action::Notice(notice) => self.noticed(notice),
            Action::Judged(judgement) => judged(*judgement),
            Action::Finish(end) => self.finished(end),
        }
    }

    fn asked(&self, reserve: &Reserve) -> String {
        let mut parts = Vec::new();
        for (place, standing) in reserve.standing.iter().enumerate() {
            let source = self.source(Choice(u16::try_from(place).unwrap_or(u16::MAX)));
            if standing.out {
                parts.push(format!("{source} is out"));
            } else if standing.not_before > Time::ZERO {
                let at = standing.not_before.since(self.call.begin.at);
                parts.push(format!("{source} failed {} and rests until {}", times(standing.failed), ms(at)));
            } else if standing.failed > 0 {
                parts.push(format!("{source} failed {}", times(standing.failed)));
            }
        }
        if parts.is_empty() {
            "asks who can start".to_owned()
        } else {
            format!("asks who can start: {}", parts.join(", "))
        }
    }

    fn noticed(&self, notice: &Notice) -> String {
        let number = notice.attempt.map_or(0, |attempt| attempt.0 + 1);
        let policy = &self.call.route.policy;
        match &notice.what {
            What::AttemptStarted { why, probe, from, after } => {
                let source = notice.choice.map_or("?", |choice| self.source(choice));
                let after = after.map(|after| format!(" after {}", reason(after))).unwrap_or_default();
                let from = from.map(|from| format!(" from {}", self.source(from))).unwrap_or_default();
                let what = match why {
                    Why::First => "the first".to_owned(),
                    Why::Retry => format!("a retry on the same source{after}"),
                    Why::Transfer => format!("a transfer{from}{after}"),
                    Why::Reask => "asked again for the JSON that it owes".to_owned(),
                };
                let probe = if *probe { ", a probe" } else { "" };
                format!("attempt {number} on {source}: {what}{probe}")
            }
            What::AttemptEnded { outcome, status, reason: why, took } => {
                let why = match (why, status) {
                    (Reason::Status, Some(status)) => format!("its status: {status}"),
                    (why, _) => reason(*why),
                };
                format!("attempt {number} ended: {} ({why}), took {took}", outcome.as_str())
            }
            What::RoutingTransferLimitReached => format!(
                "a limit of the policy ends the attempts: {} transfers, {} for another attempt, {} attempts in all",
                limit(u64::from(policy.max_transfer_count)),
                if policy.max_transfer_timeout.is_zero() {
                    "any time".to_owned()
                } else {
                    policy.max_transfer_timeout.to_string()
                },
                policy.max_attempts_hard
            ),
            What::ProviderTransferLimitReached => "a provider's own limit takes its sources out".to_owned(),
            What::LocalStreamCandidateRetryScheduled | What::LocalStreamTransportRetryScheduled => {
                "the client has seen nothing of it, so another attempt may follow".to_owned()
            }
            // The action says it.
            What::Commit { .. } => String::new(),
            What::StreamIncomplete { reason } => {
                let why = match reason {
                    Incomplete::Cut => "it ended before its terminal event",
                    Incomplete::Idle => "it went silent",
                    Incomplete::Malformed => "an event could not be read",
                    Incomplete::Deadline => "the call's deadline",
                    Incomplete::Shutdown => "the gateway stops",
                };
                format!("the stream is not complete, and the client is told so: {why}")
            }
            What::ClientCancelled { .. } | What::BreakerOpened(_) | What::BreakerClosed(_) | What::Probe(_) => {
                String::new()
            }
            What::Paced { why, until } => format!("waits until {} at most: {}", ms(*until), refusal(*why)),
            What::Stalled => "gives up waiting: nothing has succeeded anywhere for too long".to_owned(),
            What::EmptyResponse { reason } => format!("attempt {number}: an answer with nothing in it ({reason})"),
        }
    }

    fn finished(&self, end: &End) -> String {
        match end {
            End::Complete => "over: the client has a whole answer".to_owned(),
            End::Incomplete(_) => "over: `stream_incomplete` was the last that the client got".to_owned(),
            End::UpstreamError(_) => "over: the upstream's own error event was the last that the client got".to_owned(),
            End::Broken => "over: the client's connection is broken off".to_owned(),
            End::Cancelled(_) => "over: nobody is there to answer".to_owned(),
            End::Answer(answer) => {
                let whose = match (answer.as_sent, answer.head) {
                    (true, _) => "as its upstream sent it",
                    (false, Some(_)) => "the last upstream's error",
                    (false, None) => "the gateway's own words",
                };
                let stop = match answer.stop {
                    Some(Stop::Stalled) => "; it waited for too long",
                    Some(_) => "; a limit ended the attempts",
                    None if answer.outcome == Outcome::RequestRejected => "; no other source would take this request",
                    None => "; nobody else was left to ask",
                };
                let retry = answer.retry_after.map(|span| format!(", retry-after {}", span.as_secs_ceil()));
                let retry = retry.unwrap_or_default();
                format!("over: the client gets {} ({whose}){retry}{stop}", answer.status)
            }
        }
    }
}

fn judged(judgement: Judgement) -> String {
    let rule =
        |hit: Hit| format!("rule {} of the {}", hit.place + 1, if hit.own { "provider's own" } else { "policy" });
    match judgement {
        Judgement::SuccessRule(Some(hit)) => format!("what is held matches success {}", rule(hit)),
        Judgement::StopRule(Some(hit)) => format!("the error fits stop {}: no other attempt", rule(hit)),
        Judgement::StopRule(None) => "no stop rule fits the error".to_owned(),
        Judgement::Phrase(true) => "the error has the words of `retry_on_errors`: on to another source".to_owned(),
        Judgement::Structured(false) => "the answer is not the JSON asked for".to_owned(),
        Judgement::Error { status, quota_gone } => {
            let gone = if quota_gone { ", and the key's credit is gone" } else { "" };
            format!("the error means status {status}{gone}")
        }
        Judgement::SuccessRule(None) | Judgement::Phrase(false) | Judgement::Structured(true) => String::new(),
    }
}

fn settled(settle: &Settle) -> String {
    let mut text = match settle.outcome {
        Outcome::Success => "the pool learns: a success".to_owned(),
        Outcome::Transient => "the pool learns: a failure, for breaker and health".to_owned(),
        Outcome::RateLimited => "the pool learns: rate limited, no failure for the breaker".to_owned(),
        Outcome::SourceDead => "the pool learns: the key is dead, its breakers open at once".to_owned(),
        Outcome::ResultInvalid | Outcome::RequestRejected | Outcome::Cancelled => {
            format!("the pool learns: {}, no evidence against the source", settle.outcome.as_str())
        }
    };
    if let Some(rest) = settle.rest {
        let who = if rest.scope == RestScope::Account { "every key of the account" } else { "the source" };
        let _ = write!(text, "; {who} rests for {}", rest.span);
    }
    if settle.slow {
        text.push_str("; slower than allowed, which counts as a failure");
    }
    if settle.overload {
        text.push_str("; its pace is cut");
    }
    if let Some(tokens) = settle.tokens {
        let _ = write!(text, "; {tokens} tokens");
    }
    text
}

fn refusal(why: Refusal) -> &'static str {
    match why {
        Refusal::Nothing => "nobody is left to ask",
        Refusal::Breaker => "every breaker that is left is open",
        Refusal::Resting => "it rests after a rate limit",
        Refusal::Backoff => "the pause before the next try on the same source",
        Refusal::Paced => "as many are on their way as the pace allows",
        Refusal::Full => "a limit of the source is reached",
        Refusal::StoreDown => "the shared store cannot be reached",
    }
}

fn reason(reason: Reason) -> String {
    let words = match reason {
        Reason::Good => "a whole good answer",
        Reason::Status => "an error status",
        Reason::BadStatus => "a status that is no answer",
        Reason::ErrorObject => "an error in its answer",
        Reason::SuccessRule => "a success rule matched",
        Reason::EmptyCompletion => "an empty completion",
        Reason::NoChoices => "an answer without choices",
        Reason::EmptyBody => "no body that could be read",
        Reason::EmptyStream => "a stream that ended before any content",
        Reason::Drifted => "a field of the wrong type",
        Reason::Malformed => "an event that cannot be read",
        Reason::NotStructured => "not the JSON asked for",
        Reason::FirstByteTimeout => "no first byte in time",
        Reason::FirstContentTimeout => "no content in time",
        Reason::IdleTimeout => "silence",
        Reason::TotalTimeout => "too slow as a whole",
        Reason::Deadline => "the call's deadline",
        Reason::Cancelled => "cancelled",
        Reason::Cut => "the stream ended too early",
        Reason::Fault(fault) => return format!("a broken connection: {}", fault.as_str().replace('_', " ")),
    };
    words.to_owned()
}

fn times(count: u16) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        more => format!("{more} times"),
    }
}

fn limit(count: u64) -> String {
    if count == 0 { "any number of".to_owned() } else { count.to_string() }
}

fn ms(span: Span) -> String {
    format!("{} ms", span.as_millis())
}

/// A time of the wall clock, in UTC.
pub(super) fn date(unix_ms: u64) -> String {
    let (days, seconds) = (unix_ms / 86_400_000, unix_ms / 1000 % 86_400);
    // Howard Hinnant's `civil_from_days`, for days since 1970.
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        let at = [0, 951_782_399_000, 951_782_400_000, 1_760_000_000_000];
        let told = [
            "1970-01-01 00:00:00 UTC",
            "2000-02-28 23:59:59 UTC",
            "2000-02-29 00:00:00 UTC",
            "2025-10-09 08:53:20 UTC",
        ];
        assert_eq!(at.map(date), told);
    }
}
