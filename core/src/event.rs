//! The vocabulary of a call: what goes in, what comes out, what is told about it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::id::{AttemptNo, Choice, LeaseId};
use crate::outcome::Outcome;
use crate::pool::{BreakerChange, BreakerState, Op, Refusal, Reply};
use crate::time::{Span, Time};
use crate::wire::Header;

/// Something that happened, told to [`Call::handle`](crate::call::Call::handle). Any input is accepted at any time;
/// news of an attempt that is over is dropped and counted.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The pool's answer to an [`Action::Ask`], at once or later.
    Reply {
        /// The lease that was asked for.
        lease: LeaseId,
        /// The answer.
        reply: Reply,
    },
    /// The upstream's head.
    Head {
        /// Whose.
        attempt: AttemptNo,
        /// It.
        head: Head,
    },
    /// Bytes of the upstream's body, decompressed, in any chunking.
    Chunk {
        /// Whose.
        attempt: AttemptNo,
        /// At least one.
        bytes: Bytes,
    },
    /// The upstream's body is complete.
    End {
        /// Whose.
        attempt: AttemptNo,
    },
    /// The attempt broke below HTTP.
    Fault {
        /// Whose.
        attempt: AttemptNo,
        /// How.
        fault: Fault,
    },
    /// The client took everything that was forwarded. Until then the upstream is not waited for (M5).
    Flushed,
    /// Time passed: look at the timers.
    Tick,
    /// The call is to end without an answer.
    Cancel(CancelCause),
}

/// An upstream's head, as far as it decides anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The status as sent, sane or not.
    pub status: u16,
    /// The headers for which [`is_relevant_header`](crate::wire::is_relevant_header) holds.
    pub headers: Vec<Header>,
    /// Wall clock at its arrival, milliseconds of the Unix epoch: for HTTP dates.
    pub unix_ms: u64,
}

/// What can break below HTTP (F13).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The name could not be resolved, or the address not be reached.
    Connect,
    /// DNS, TCP and TLS together took longer than `connect_ms`.
    ConnectTimeout,
    /// The TLS handshake failed.
    Tls,
    /// The connection broke.
    Reset,
    /// What came was no HTTP.
    Protocol,
    /// The body's coding is unknown, or its bytes do not fit it (X5).
    Coding,
    /// The body opens to more than the adapter will hold.
    TooLarge,
    /// The gateway itself had no means to ask: no descriptor, port or memory left. Says nothing of the source (F7).
    Local,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Fault; 8] = [
        Fault::Connect,
        Fault::ConnectTimeout,
        Fault::Tls,
        Fault::Reset,
        Fault::Protocol,
        Fault::Coding,
        Fault::TooLarge,
        Fault::Local,
    ];

    /// The word used in traces, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Fault::Connect => "connect",
            Fault::ConnectTimeout => "connect_timeout",
            Fault::Tls => "tls",
            Fault::Reset => "reset",
            Fault::Protocol => "protocol",
            Fault::Coding => "coding",
            Fault::TooLarge => "too_large",
            Fault::Local => "local",
        }
    }
}

/// Why a call ends without an answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CancelCause {
    /// The client left (X4).
    ClientGone,
    /// The client took nothing for `client_stall_seconds`.
    ClientStalled,
    /// The drain's deadline is over (M10): a committed stream gets its `stream_incomplete`, others a 503.
    Shutdown,
}

impl CancelCause {
    /// The word used in traces and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            CancelCause::ClientGone => "client_gone",
            CancelCause::ClientStalled => "client_stalled",
            CancelCause::Shutdown => "shutdown",
        }
    }
}

/// What [`Call::poll`](crate::call::Call::poll) yields.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Do this, then poll again.
    Do(Action),
    /// Nothing to do until an input comes or the wake is due. `None`: only an input can change anything; after
    /// [`Action::Finish`] nothing can.
    Wait(Option<Wake>),
}

/// When to send [`Input::Tick`], and what for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The time.
    pub at: Time,
    /// The reason.
    pub why: Timer,
}

/// The timers of a call: a fixed set, each a reason to wake.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The whole call's deadline.
    Deadline,
    /// A stream's first byte (F16).
    FirstByte,
    /// A stream's first content, while another candidate could start (F16).
    FirstContent,
    /// Silence in a stream (M5).
    Idle,
    /// The whole of a non-stream attempt.
    Total,
    /// The lease wants renewing.
    Renew,
    /// A rest, a backoff or a limit is over: ask the pool again.
    Again,
    /// The call has waited as long as it may (G11).
    MaxWait,
    /// Look whether anything succeeds anywhere (G16).
    Stall,
}

impl Timer {
    /// Every timer.
    pub const ALL: [Timer; 9] = [
        Timer::Deadline,
        Timer::FirstByte,
        Timer::FirstContent,
        Timer::Idle,
        Timer::Total,
        Timer::Renew,
        Timer::Again,
        Timer::MaxWait,
        Timer::Stall,
    ];

    /// The word used in traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            Timer::Deadline => "deadline",
            Timer::FirstByte => "first_byte",
            Timer::FirstContent => "first_content",
            Timer::Idle => "idle",
            Timer::Total => "total",
            Timer::Renew => "renew",
            Timer::Again => "again",
            Timer::MaxWait => "max_wait",
            Timer::Stall => "stall",
        }
    }
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Apply this at the pool and tell the reply with [`Input::Reply`].
    Ask(Op),
    /// Apply this at the pool; its reply may be told, or dropped.
    Tell(Op),
    /// Start an attempt.
    Send {
        /// Its number.
        attempt: AttemptNo,
        /// Where.
        choice: Choice,
        /// What for.
        why: Why,
    },
    /// Drop an attempt: its connection, its buffers.
    Abort(AttemptNo),
    /// Send the client this attempt's head: from here on it sees this attempt and no other.
    Commit(Commit),
    /// Send the client these bytes. The next ones, and the end, come behind [`Input::Flushed`].
    Forward(Bytes),
    /// Something worth telling.
    Notice(Notice),
    /// Nothing to do: what a text was found to say, for the trace. Only from a call that
    /// [tells its verdicts](crate::call::Judge::Telling).
    Judged(Judgement),
    /// The last action.
    Finish(End),
}

/// What a text was found to say: the decisions that an upstream's very words make.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Which success rule matched what is held, if any (F9).
    SuccessRule(Option<Hit>),
    /// Which stop rule an error fits, if any (F12).
    StopRule(Option<Hit>),
    /// Whether an error has the words of a `retry_on_errors` phrase (M6).
    Phrase(bool),
    /// Whether the answer is the JSON asked for (G17).
    Structured(bool),
    /// What an error's words mean (M4).
    Error {
        /// 400–599.
        status: u16,
        /// The key's credit is gone (G12).
        quota_gone: bool,
    },
}

/// A rule that matched.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Whether it is a rule of the provider's own.
    pub own: bool,
    /// Its place in its group, from 0.
    pub place: u16,
}

impl Hit {
    /// The rule at `place` of the global rules, or of the provider's own.
    pub(crate) fn new(own: bool, place: usize) -> Hit {
        Hit { own, place: u16::try_from(place).unwrap_or(u16::MAX) }
    }
}

/// Why an attempt starts.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// The call's first.
    First,
    /// Another attempt on the same source.
    Retry,
    /// An attempt on another source.
    Transfer,
    /// The answer was not the JSON asked for (G17).
    Reask,
}

impl Why {
    /// The word used in traces and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Why::First => "first",
            Why::Retry => "retry",
            Why::Transfer => "transfer",
            Why::Reask => "reask",
        }
    }
}

/// The moment from which the client owns the stream.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The attempt; not the last one when an earlier empty answer is delivered for want of a better (M3).
    pub attempt: AttemptNo,
    /// Its candidate.
    pub choice: Choice,
    /// What made it so.
    pub reason: CommitReason,
    /// How the head goes to the client.
    pub shape: Shape,
    /// The body's length where all of it is there.
    pub length: Option<u64>,
}

/// What made a commit (F15, F16, F18).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CommitReason {
    /// Business content, or a whole answer.
    Content,
    /// A normal end without content before it.
    End,
    /// The window's bytes are used up.
    WindowBytes,
    /// The window's events are used up.
    WindowEvents,
    /// A 200 that commits on its head (F11, M7).
    Head,
}

impl CommitReason {
    /// The word used in traces, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            CommitReason::Content => "content",
            CommitReason::End => "end",
            CommitReason::WindowBytes => "window_bytes",
            CommitReason::WindowEvents => "window_events",
            CommitReason::Head => "head",
        }
    }
}

/// How an upstream's head goes to the client.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shape {
    /// As it came, less hop-by-hop.
    AsSent,
    /// As an event stream: its content type did not say so, or a JSON answer was made into one (F15).
    EventStream,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The committed answer is complete.
    Complete,
    /// The committed answer is not: `stream_incomplete` was the last thing forwarded (M5).
    Incomplete(Incomplete),
    /// The committed stream ended with the upstream's own error event.
    UpstreamError(Outcome),
    /// A pass-through or image body broke after its head was sent: break the client's connection, add nothing.
    Broken,
    /// Nothing was committed: this is the whole answer.
    Answer(Box<Answer>),
    /// Nobody is there to answer.
    Cancelled(CancelCause),
}

impl End {
    /// The call's own outcome, for `surefoot_requests_total`.
    pub fn outcome(&self) -> Outcome {
        match self {
            End::Complete => Outcome::Success,
            End::Incomplete(_) | End::Broken => Outcome::Transient,
            End::UpstreamError(outcome) => *outcome,
            End::Answer(answer) => answer.outcome,
            End::Cancelled(_) => Outcome::Cancelled,
        }
    }
}

/// Why a committed stream is not complete (M5).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Incomplete {
    /// It ended, or broke, before its terminal event.
    Cut,
    /// It went silent.
    Idle,
    /// An event was no JSON, not of the protocol, or too large.
    Malformed,
    /// The call's own deadline.
    Deadline,
    /// The gateway stops (M10).
    Shutdown,
}

impl Incomplete {
    /// The word used in traces, logs, metrics and the message.
    pub const fn as_str(self) -> &'static str {
        match self {
            Incomplete::Cut => "cut",
            Incomplete::Idle => "idle",
            Incomplete::Malformed => "malformed",
            Incomplete::Deadline => "deadline",
            Incomplete::Shutdown => "shutdown",
        }
    }
}

/// An answer in place of a committed one (F19). Never a 2xx.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 400–599; as sent by the upstream where the body is.
    pub status: u16,
    /// The body.
    pub body: Bytes,
    /// Whether the body is the upstream's own: then its content type is too. Otherwise it is JSON.
    pub as_sent: bool,
    /// The attempt whose head's headers go along.
    pub head: Option<AttemptNo>,
    /// `retry-after`, in place of the head's own.
    pub retry_after: Option<Span>,
    /// `x-surefoot-stop` (F18).
    pub stop: Option<Stop>,
    /// `x-should-retry: false`.
    pub no_retry: bool,
    /// The last started candidate.
    pub choice: Option<Choice>,
    /// The call's own outcome.
    pub outcome: Outcome,
}

/// What ended a call's attempts before the list was used up (F18, F19).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stop {
    /// A global limit: transfers, time or the hard ceiling of attempts.
    RoutingTransferLimit,
    /// Every provider left had reached a limit of its own.
    ProviderTransferLimit,
    /// It waited while nothing succeeded anywhere (G16).
    Stalled,
}

impl Stop {
    /// The event code.
    pub const fn as_str(self) -> &'static str {
        match self {
            Stop::RoutingTransferLimit => "routing_transfer_limit_reached",
            Stop::ProviderTransferLimit => "provider_transfer_limit_reached",
            Stop::Stalled => "stalled",
        }
    }
}

/// Something worth telling: to the log, the trace and the metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// Since the call's start.
    pub elapsed: Span,
    /// The attempt it is about.
    pub attempt: Option<AttemptNo>,
    /// The candidate it is about.
    pub choice: Option<Choice>,
    /// Bytes held in the window.
    pub held_bytes: u64,
    /// Events held in the window.
    pub held_events: u32,
    /// What.
    pub what: What,
}

impl Notice {
    /// A breaker's change that was heard of after its call's end.
    pub const fn of_change(elapsed: Span, change: BreakerChange) -> Notice {
        let what = What::of_change(change);
        Notice { elapsed, attempt: None, choice: None, held_bytes: 0, held_events: 0, what }
    }
}

/// What a notice tells (F17, F18).
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// An attempt starts.
    AttemptStarted {
        /// What for.
        why: Why,
        /// It is a half-open breaker's probe.
        probe: bool,
        /// The source left, for a transfer.
        from: Option<Choice>,
        /// Why the attempt before it failed.
        after: Option<Reason>,
    },
    /// An attempt ended; its HTTP status and its outcome are two observations (F17).
    AttemptEnded {
        /// How.
        outcome: Outcome,
        /// The upstream's HTTP status, where a head came.
        status: Option<u16>,
        /// Why, in one word.
        reason: Reason,
        /// Since its start.
        took: Span,
    },
    /// A global limit ends the attempts.
    RoutingTransferLimitReached,
    /// A provider's limit takes its candidates out.
    ProviderTransferLimitReached,
    /// An in-stream error or a success rule, before output: another attempt follows.
    LocalStreamCandidateRetryScheduled,
    /// A transport error before output of a stream: another attempt follows.
    LocalStreamTransportRetryScheduled,
    /// The client owns the stream.
    Commit {
        /// What made it so.
        reason: CommitReason,
        /// Since the call's first failed attempt ended, where one did: what failing over has cost.
        failover_added: Option<Span>,
    },
    /// A committed stream is not complete.
    StreamIncomplete {
        /// Why.
        reason: Incomplete,
    },
    /// The client left, or was dropped.
    ClientCancelled {
        /// Which of the two.
        cause: CancelCause,
    },
    /// A breaker opened.
    BreakerOpened(BreakerChange),
    /// A breaker closed.
    BreakerClosed(BreakerChange),
    /// A half-open breaker lets its probe through.
    Probe(BreakerChange),
    /// The call waits.
    Paced {
        /// For what.
        why: Refusal,
        /// Until when at most; from the call's start.
        until: Span,
    },
    /// The call waited while nothing succeeded anywhere.
    Stalled,
    /// An answer with nothing in it (M3): `no_choices`, `no_usage`, `no_output`, `empty_completion`, `empty_body`,
    /// `empty_stream`.
    EmptyResponse {
        /// Which.
        reason: &'static str,
    },
}

impl What {
    /// What a breaker's change is told as.
    pub const fn of_change(change: BreakerChange) -> What {
        match change.to {
            BreakerState::Open => What::BreakerOpened(change),
            BreakerState::Closed => What::BreakerClosed(change),
            BreakerState::HalfOpen => What::Probe(change),
        }
    }

    /// The event code used in logs and traces.
    pub const fn code(&self) -> &'static str {
        match self {
            What::AttemptStarted { .. } => "attempt_started",
            What::AttemptEnded { .. } => "attempt_ended",
            What::RoutingTransferLimitReached => "routing_transfer_limit_reached",
            What::ProviderTransferLimitReached => "provider_transfer_limit_reached",
            What::LocalStreamCandidateRetryScheduled => "local_stream_candidate_retry_scheduled",
            What::LocalStreamTransportRetryScheduled => "local_stream_transport_retry_scheduled",
            What::Commit { .. } => "commit",
            What::StreamIncomplete { .. } => "stream_incomplete",
            What::ClientCancelled { .. } => "client_cancelled",
            What::BreakerOpened(_) => "breaker_opened",
            What::BreakerClosed(_) => "breaker_closed",
            What::Probe(_) => "probe",
            What::Paced { .. } => "paced",
            What::Stalled => "stalled",
            What::EmptyResponse { .. } => "empty_response",
        }
    }
}

/// Why an attempt ended, in one word; the label of transfers and retries.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A whole good answer.
    Good,
    /// An error status of the upstream's.
    Status,
    /// A status that is not HTTP-sane for an API: 1xx, 3xx, beyond 599.
    BadStatus,
    /// An error object behind a 200 or in a stream.
    ErrorObject,
    /// A success rule matched.
    SuccessRule,
    /// No content and a plain stop.
    EmptyCompletion,
    /// `choices` empty or missing.
    NoChoices,
    /// No body, or one that cannot be read.
    EmptyBody,
    /// A stream that ended before any content.
    EmptyStream,
    /// A known field of the wrong type.
    Drifted,
    /// An event that is no JSON, or too large.
    Malformed,
    /// The answer is not the JSON asked for.
    NotStructured,
    /// Below HTTP.
    Fault(Fault),
    /// No first byte in time.
    FirstByteTimeout,
    /// No content in time.
    FirstContentTimeout,
    /// Silence.
    IdleTimeout,
    /// The whole took too long.
    TotalTimeout,
    /// The call's deadline.
    Deadline,
    /// The client left, or the gateway stops.
    Cancelled,
    /// A committed stream ended before its terminal event.
    Cut,
}

impl Reason {
    /// The word used in traces, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::Good => "good",
            Reason::Status => "status",
            Reason::BadStatus => "bad_status",
            Reason::ErrorObject => "error_object",
            Reason::SuccessRule => "success_rule",
            Reason::EmptyCompletion => "empty_completion",
            Reason::NoChoices => "no_choices",
            Reason::EmptyBody => "empty_body",
            Reason::EmptyStream => "empty_stream",
            Reason::Drifted => "drifted",
            Reason::Malformed => "malformed",
            Reason::NotStructured => "not_structured",
            Reason::Fault(fault) => fault.as_str(),
            Reason::FirstByteTimeout => "first_byte_timeout",
            Reason::FirstContentTimeout => "first_content_timeout",
            Reason::IdleTimeout => "idle_timeout",
            Reason::TotalTimeout => "total_timeout",
            Reason::Deadline => "deadline",
            Reason::Cancelled => "cancelled",
            Reason::Cut => "cut",
        }
    }
}
