//! One request: its plan, its attempts, the window, the budgets and the commit.
//!
//! The transitions stand in this file; each phase's rules in the file of its name:
//!
//! | phase | waits for | file |
//! |---|---|---|
//! | asking, waiting | a place at the pool | `waiting` |
//! | opening | the upstream's head | `attempt` |
//! | sniffing, window | business content | `attempt`, `stream` |
//! | body, error body | the whole answer | `attempt`, `whole` |
//! | streaming, passing | the end | `stream` |
//! | finished | nothing | `ending` |
//!
//! A failed attempt goes through `failure` (what follows from it), `budget` (what may still start) and back to asking,
//! or to `ending`.

mod attempt;
mod budget;
mod classify;
mod ending;
mod failure;
mod judge;
mod mask;
mod stream;
mod timers;
mod waiting;
mod whole;
mod window;

#[cfg(test)]
pub(crate) mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::event::{Action, CancelCause, End, Fault, Input, Notice, Output, Reason, Timer, What};
use crate::id::{AttemptNo, CallId, Choice, LeaseId};
use crate::mutants::{Mutant, active};
use crate::policy::{CallPolicy, Candidate, Plan};
use crate::pool::{Op, Refusal, Reply, Standing, Strategy};
use crate::rng::Rng;
use crate::time::{Span, Time};

use attempt::Attempt;
use budget::Budgets;
use failure::{Genuine, Own, Tally};
use timers::Timers;
use window::Window;

pub use judge::{Judge, Schema};

/// Where a call stands.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The pool was asked for a place.
    Asking,
    /// The pool had none: waiting for a rest, a backoff, a slot.
    Waiting,
    /// An attempt was sent, its head has not come.
    Opening,
    /// A 200 to a stream request whose body has not shown yet what it is.
    Sniffing,
    /// An event stream before its commit: everything can still be undone.
    Window,
    /// A whole answer is being collected.
    Body,
    /// The body of an error status is being collected.
    ErrorBody,
    /// A committed event stream.
    Streaming,
    /// A committed body that is not looked at: images, pass-through.
    Passing,
    /// Nothing more will happen.
    Finished,
}

impl Phase {
    /// Every phase.
    pub const ALL: [Phase; 10] = [
        Phase::Asking,
        Phase::Waiting,
        Phase::Opening,
        Phase::Sniffing,
        Phase::Window,
        Phase::Body,
        Phase::ErrorBody,
        Phase::Streaming,
        Phase::Passing,
        Phase::Finished,
    ];

    /// Whether the client owns the live attempt.
    pub const fn is_committed(self) -> bool {
        matches!(self, Phase::Streaming | Phase::Passing)
    }
}

/// An answer that is delivered only if nothing better comes: an empty completion (M3), or one that is not the JSON
/// asked for (G17).
#[derive(Debug)]
struct Fallback {
    attempt: AttemptNo,
    choice: Choice,
    shape: crate::event::Shape,
    length: Option<u64>,
    bytes: Window,
    /// What the upstream had sent for it.
    held: u64,
}

/// Whether the client can take a piece.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Client {
    Free,
    /// It has not taken the last piece yet.
    Busy {
        since: Time,
    },
    /// Nobody is there; what is still told goes nowhere and is not waited for.
    Gone,
}

impl Client {
    const fn is_busy(self) -> bool {
        matches!(self, Client::Busy { .. })
    }
}

/// One request as a state machine. See the [crate's contract](crate) for how it is driven.
#[derive(Debug)]
pub struct Call {
    id: CallId,
    plan: Plan,
    request_id: Box<str>,
    rng: Rng,
    started: Time,
    now: Time,
    phase: Phase,
    actions: VecDeque<Action>,
    timers: Timers,
    /// The lease that was asked for and not yet granted.
    asked: Option<LeaseId>,
    /// A place asked for while the live attempt is slow to its first content (F16).
    switch: Option<LeaseId>,
    leases: u64,
    /// The call's experience with its candidates, by choice.
    standing: Vec<Standing>,
    budgets: Budgets,
    live: Option<Box<Attempt>>,
    window: Window,
    /// Bytes that were held when the window became the stream that they stand for (F15).
    bridged: Option<u64>,
    judge: Judge,
    /// What the JSON asked for has to fit (G17).
    schema: Option<Box<dyn Schema>>,
    client: Client,
    /// What follows the window's bytes: the `stream_incomplete` event, or a line feed.
    closing: Option<Bytes>,
    ending: Option<End>,
    fallback: Option<Box<Fallback>>,
    genuine: Option<Box<Genuine>>,
    own: Option<Own>,
    wait: Wait,
    /// Why the attempt before failed, until the next starts.
    after: Option<Reason>,
    first_failure: Option<Time>,
    reasks: u32,
    tally: Tally,
    /// Pushbacks met, by choice: their backoff grows (G12).
    pushbacks: Vec<u16>,
    /// The candidate that has the sticky tries (F2).
    first_choice: Option<Choice>,
    last_choice: Option<Choice>,
    /// The candidate that is to be asked again for the JSON that it owes (G17).
    only: Option<Choice>,
    provider_limit_told: bool,
    /// The end of the last whole event of the live stream, and where that event began.
    held_to: u64,
    event_from: u64,
    /// The live attempt's commit came later than `slow_call_seconds`.
    slow_commit: bool,
    tokens_used: Option<u32>,
    late: u64,
}

/// The waiting of a call.
#[derive(Clone, Debug, Default)]
struct Wait {
    /// Since when it waits, whatever for (G16).
    began: Option<Time>,
    /// For what it waits now.
    why: Option<Refusal>,
    /// Since when it waits for that, or for another thing that counts alike: backoff is no pushback (G11).
    since: Option<Time>,
    /// What it has waited before, backoff aside.
    spent: Span,
    /// The last known end of a rest or an open breaker.
    soonest: Option<Time>,
}

impl Call {
    /// A call under `plan` that arrived `now`. All its chance comes from `seed`.
    pub fn new(plan: Plan, id: CallId, seed: u64, now: Time) -> Call {
        let candidates = plan.route.candidates.len();
        let mut call = Call {
            id,
            request_id: Box::default(),
            rng: Rng::new(seed),
            started: now,
            now,
            phase: Phase::Asking,
            actions: VecDeque::with_capacity(8),
            timers: Timers::new(),
            asked: None,
            switch: None,
            leases: 0,
            standing: alloc::vec![Standing::default(); candidates],
            budgets: Budgets::default(),
            live: None,
            window: Window::default(),
            bridged: None,
            judge: Judge::Live,
            schema: None,
            client: Client::Free,
            closing: None,
            ending: None,
            fallback: None,
            genuine: None,
            own: None,
            wait: Wait::default(),
            after: None,
            first_failure: None,
            reasks: 0,
            tally: Tally::default(),
            pushbacks: alloc::vec![0; candidates],
            first_choice: None,
            last_choice: None,
            only: None,
            provider_limit_told: false,
            held_to: 0,
            event_from: 0,
            slow_commit: false,
            tokens_used: None,
            late: 0,
            plan,
        };
        if let Some(deadline) = call.policy().deadline.limit() {
            call.timers.set(Timer::Deadline, now.after(deadline));
        }
        call.ask();
        call
    }

    /// Names the request in error bodies that have a place for it (Anthropic's `request_id`).
    #[must_use]
    pub fn with_request_id(mut self, request_id: &str) -> Call {
        self.request_id = request_id.into();
        self
    }

    /// Sets who judges the texts of the call.
    #[must_use]
    pub fn with_judge(mut self, judge: Judge) -> Call {
        self.set_judge(judge);
        self
    }

    /// Sets the schema that the JSON asked for has to fit; without one it need only parse.
    #[must_use]
    pub fn with_schema(mut self, schema: Box<dyn Schema>) -> Call {
        self.schema = Some(schema);
        self
    }

    /// Sets who judges the texts of the call from now on.
    pub fn set_judge(&mut self, judge: Judge) {
        self.judge = judge;
    }

    /// The call's name.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// What it is to do.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Where it stands.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Attempts started so far (X6).
    pub fn attempts(&self) -> u32 {
        self.budgets.started()
    }

    /// Inputs that came too late to mean anything.
    pub fn late_inputs(&self) -> u64 {
        self.late
    }

    /// Bytes held for the client or for a decision.
    pub fn held_bytes(&self) -> u64 {
        self.window.len() + self.fallback.as_ref().map_or(0, |fallback| fallback.bytes.len())
    }

    /// Takes one input. Time never goes back: the later of `now` and what was known counts.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.now = self.now.max(now);
        match input {
            Input::Flushed => {
                if let Client::Busy { since } = self.client {
                    self.client = Client::Free;
                    self.timers.delay(Timer::Total, self.now.since(since));
                }
            }
            Input::Cancel(CancelCause::ClientGone | CancelCause::ClientStalled) => self.client = Client::Gone,
            _ => {}
        }
        if self.phase == Phase::Finished && !matches!(input, Input::Reply { reply: Reply::Settled { .. }, .. }) {
            self.late += u64::from(!matches!(input, Input::Flushed | Input::Tick | Input::Reply { .. }));
            return;
        }
        match input {
            Input::Reply { lease, reply } => self.on_reply(lease, reply),
            Input::Head { attempt, head } if self.is_live(attempt) && self.phase == Phase::Opening => {
                self.on_head(head)
            }
            Input::Chunk { attempt, bytes } if self.is_live(attempt) => self.on_chunk(bytes),
            Input::End { attempt } if self.is_live(attempt) => self.on_end(),
            Input::Fault { attempt, fault } if self.is_live(attempt) => self.on_fault(fault),
            Input::Head { .. } | Input::Chunk { .. } | Input::End { .. } | Input::Fault { .. } => self.late += 1,
            Input::Flushed => self.on_flushed(),
            Input::Tick => self.on_tick(),
            Input::Cancel(cause) => self.on_cancel(cause),
        }
    }

    /// The next thing to do. Actions come in the order in which they are to be done.
    pub fn poll(&mut self) -> Output {
        if let Some(action) = self.actions.pop_front() {
            return Output::Do(action);
        }
        if !self.client.is_busy() && (self.phase.is_committed() || self.phase == Phase::Finished) {
            if let Some(bytes) = self.window.pop().or_else(|| self.closing.take()) {
                if self.client == Client::Free {
                    self.client = Client::Busy { since: self.now };
                }
                return Output::Do(Action::Forward(bytes));
            }
            if let Some(end) = self.ending.take() {
                return Output::Do(Action::Finish(end));
            }
        }
        Output::Wait(self.timers.next(!self.client.is_busy()))
    }

    fn on_tick(&mut self) {
        while let Some(timer) = self.timers.take_due(self.now, !self.client.is_busy()) {
            match timer {
                Timer::Deadline => self.on_deadline(),
                Timer::FirstByte => self.time_out(Reason::FirstByteTimeout),
                Timer::FirstContent => self.on_first_content_due(),
                Timer::Idle => self.on_idle(),
                Timer::Total => self.on_total_due(),
                Timer::Renew => self.renew(),
                Timer::Again | Timer::Stall => self.ask(),
                Timer::MaxWait => self.on_waited_enough(),
            }
        }
        if active(Mutant::TickForTick) && self.live.is_some() {
            self.timers.set(Timer::Renew, self.now);
        }
    }

    fn on_flushed(&mut self) {
        if !active(Mutant::IdleBlamesSlowClients) {
            self.restart_idle();
        }
    }

    fn on_cancel(&mut self, cause: CancelCause) {
        if cause == CancelCause::Shutdown {
            return self.shut_down();
        }
        self.notice(What::ClientCancelled { cause });
        self.leave_queue();
        self.drop_live(crate::outcome::Outcome::Cancelled, Reason::Cancelled);
        self.window = Window::default();
        self.finish(End::Cancelled(cause));
    }

    fn policy(&self) -> &CallPolicy {
        &self.plan.route.policy
    }

    fn candidate(&self, choice: Choice) -> &Candidate {
        &self.plan.route.candidates[usize::from(choice.0)]
    }

    fn provider_name(&self, choice: Choice) -> String {
        self.candidate(choice).provider.name.as_ref().into()
    }

    fn is_balanced(&self) -> bool {
        self.plan.route.roster.strategy != Strategy::Priority
    }

    fn is_live(&self, attempt: AttemptNo) -> bool {
        self.live.as_ref().is_some_and(|live| live.no == attempt)
    }

    fn next_lease(&mut self) -> LeaseId {
        // 4096 names a call: the hard ceiling of attempts is far below, and a name is free again once settled.
        self.leases = (self.leases + 1) & 0xfff;
        LeaseId(self.id.0 << 12 | self.leases)
    }

    fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    fn notice(&mut self, what: What) {
        let live = self.live.as_ref();
        let notice = Notice {
            elapsed: self.now.since(self.started),
            attempt: live.map(|live| live.no),
            choice: live.map(|live| live.choice),
            held_bytes: self.bridged.unwrap_or(self.window.len()),
            held_events: live.map_or(0, |live| live.held_events),
            what,
        };
        self.act(Action::Notice(notice));
    }

    fn finish(&mut self, end: End) {
        debug_assert!(self.ending.is_none() && self.phase != Phase::Finished, "a call finishes once");
        self.phase = Phase::Finished;
        self.timers = Timers::new();
        self.ending = Some(end);
    }

    fn tell(&mut self, op: Op) {
        self.act(Action::Tell(op));
    }

    fn fault_is_timeout(fault: Fault) -> bool {
        fault == Fault::ConnectTimeout
    }
}
