//! The pool: what all calls share. It orders candidates (health, P2C, pace; process-local) and guards them (breaker,
//! limits, leases; local or in a store), and it hears how attempts ended.
//!
//! Everything goes through [`Pool::apply`]: an [`Op`] in, a [`Reply`] out, no clock, no waiting, no allocation once
//! warm. A call that cannot start now may stay queued: when something frees a place, the pool grants it to the first
//! in line and the driver takes that reply from [`Pool::pop_granted`], after every command until there is none.
//!
//! | half | files | where it runs |
//! |---|---|---|
//! | order | `order`, `health`, `pace`, `line`, `progress` | always in this process |
//! | gate | `gate`, `walk`, `breaker`, `limits`, `lease` | in memory, or in a store by the same [`GateOp`]s ([`Pool::plan`]) |
//!
//! `engine` joins the two, `registry` keeps the names, `shared` splits a command in two steps for a
//! store, `gate_wire` puts the gate's half in words for the script in `gate.lua`.

mod breaker;
mod engine;
mod gate;
mod gate_wire;
mod health;
mod lease;
mod limits;
mod line;
mod order;
mod pace;
mod progress;
mod registry;
mod settings;
mod shared;
#[cfg(test)]
mod tests;
mod walk;

use alloc::sync::Arc;
use alloc::vec::Vec;

pub use breaker::{Evidence, Transitions};
pub use engine::{Pool, line_helps};
pub use gate::{Admit, Candidate, GateOp, GateReply, Hold, Verdict};
pub use gate_wire::{Answer, Command, GATE_SCRIPT, Keyspace, Seen, Unreadable};
pub use progress::{Progress, stalled_at};
pub use registry::{SourceSpec, TargetSpec, TargetView};
pub use settings::{BreakerSettings, HealthSettings, PaceSettings, Settings};
pub use shared::Plan;

use crate::id::{Choice, LeaseId, TargetId};
use crate::outcome::Outcome;
use crate::time::{Span, Time};

/// How a model's targets are put in order within a tier (G9).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// In the order of the list; each target is a tier of its own (F2).
    #[default]
    Priority,
    /// Two random picks, the better score first, the rest by score.
    HealthAware,
    /// Each call begins one further.
    RoundRobin,
    /// Fewest in flight first.
    LeastInflight,
}

impl Strategy {
    /// The word in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Strategy::Priority => "priority",
            Strategy::HealthAware => "health_aware",
            Strategy::RoundRobin => "round_robin",
            Strategy::LeastInflight => "least_inflight",
        }
    }
}

/// One candidate as the pool sees it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The target, as registered.
    pub target: TargetId,
    /// Its tier, from 0; a later tier is tried when nothing of an earlier one can start.
    pub tier: u16,
}

/// A virtual model's candidates for one protocol: fixed for a policy snapshot and shared by its calls.
#[derive(Debug, PartialEq, Eq)]
pub struct Roster {
    /// Round robin turns per roster; this is its name.
    pub id: u32,
    /// The order within a tier.
    pub strategy: Strategy,
    /// The candidates; their places are the [`Choice`] numbers. At most 4096.
    pub entries: Vec<Entry>,
}

/// What a call knows of one candidate: its own experience, not the pool's.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Failures in this call that a retry can cure.
    pub failed: u16,
    /// Spent, skipped or over its provider's budget: not to be considered again in this call.
    pub out: bool,
    /// The call's own backoff on this source; [`Time::ZERO`] when none runs (G11).
    pub not_before: Time,
    /// Which of the call's attempts last started there, counted from 1; 0 = none. A new turn goes to the longest unused.
    pub last_attempt: u16,
}

/// A place wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// The name that the place will have. Asking again under it keeps the queue position.
    pub lease: LeaseId,
    /// Whom to consider.
    pub roster: Arc<Roster>,
    /// The call's experience, by choice; empty = none yet.
    pub standing: Vec<Standing>,
    /// Failures after which a source yields its place in a balanced tier (`sticky_key_attempts`, at least 1; G10).
    pub sticky: u16,
    /// The call's draw for this decision; all of the pool's chance comes from it.
    pub draw: u64,
    /// Tokens that the request is estimated to use, for `tpm` (G15).
    pub tokens: u32,
    /// The call could wait until then: a rest that ends later counts as out of reach (G12).
    pub wait_until: Time,
    /// How long the lease holds unless renewed.
    pub ttl: Span,
    /// Whether to queue when only a place is missing (G14, G15).
    pub queue: bool,
}

/// What an attempt taught, and the end of its lease. Settling a lease that is unknown, settled or expired does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// The lease.
    pub lease: LeaseId,
    /// How it ended.
    pub outcome: Outcome,
    /// A success slower than `slow_call_seconds`: the breaker counts a failure (M6).
    pub slow: bool,
    /// The source is to rest so long from now (G12); never shortens a running rest.
    pub rest: Option<Rest>,
    /// The answer spoke of overload or rate limiting: the pace is cut (G14).
    pub overload: bool,
    /// Tokens really used, where the answer told; corrects the estimate (G15).
    pub tokens: Option<u32>,
}

/// A rest that an answer asked for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// How long from now; at most 24 h.
    pub span: Span,
    /// Who rests.
    pub scope: RestScope,
}

/// Who rests after a pushback.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum RestScope {
    /// Every key of the account: a 429 (G13).
    Account,
    /// The source alone: a `retry-after` on another status (F2).
    Source,
}

/// A command to the pool. Plain data: it is traced, and a store executes the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Choose and admit; answered by [`Reply::Granted`] or [`Reply::Refused`].
    Reserve(Reserve),
    /// Give back and teach; answered by [`Reply::Settled`].
    Settle(Settle),
    /// The attempt of this lease goes on: its TTL starts anew. Answered by [`Reply::Done`].
    Renew {
        /// The lease.
        lease: LeaseId,
    },
    /// Leave the queue, or give an unused grant back. Answered by [`Reply::Done`].
    Leave {
        /// The lease.
        lease: LeaseId,
    },
}

impl Op {
    /// The lease that it is about.
    pub const fn lease(&self) -> LeaseId {
        match self {
            Op::Reserve(reserve) => reserve.lease,
            Op::Settle(settle) => settle.lease,
            Op::Renew { lease } | Op::Leave { lease } => *lease,
        }
    }
}

/// Why nothing could start.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// No candidate is left to consider.
    Nothing,
    /// Every candidate that is left is refused by its breaker (G7).
    Breaker,
    /// At least one waits out a pushback (G12, G13), none can start.
    Resting,
    /// The call's own backoff on the source that keeps its place (G11).
    Backoff,
    /// At least one is at its pace (G14), none can start.
    Paced,
    /// At least one is at a limit of its own: `max_concurrency`, `rpm`, `tpm` (G15), none can start.
    Full,
    /// The store cannot be reached and `on_down` says to fail closed (G18).
    StoreDown,
}

impl Refusal {
    /// The word used in traces and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Refusal::Nothing => "nothing_left",
            Refusal::Breaker => "breaker_open",
            Refusal::Resting => "resting",
            Refusal::Backoff => "backoff",
            Refusal::Paced => "adaptive_paced",
            Refusal::Full => "limit_reached",
            Refusal::StoreDown => "store_down",
        }
    }
}

/// A breaker's state (G1).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BreakerState {
    /// Traffic flows.
    #[default]
    Closed,
    /// One probe at a time.
    HalfOpen,
    /// Nothing goes there.
    Open,
}

impl BreakerState {
    /// The word used in traces, logs and status pages.
    pub const fn as_str(self) -> &'static str {
        match self {
            BreakerState::Closed => "closed",
            BreakerState::HalfOpen => "half_open",
            BreakerState::Open => "open",
        }
    }
}

/// A breaker that changed its state.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BreakerChange {
    /// Whose.
    pub target: TargetId,
    /// The state before.
    pub from: BreakerState,
    /// The state now.
    pub to: BreakerState,
}

/// The pool's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Start there.
    Granted {
        /// Whom.
        choice: Choice,
        /// It is the one probe of a half-open breaker: a single attempt (M6).
        probe: bool,
        /// The breaker's change, when the grant made it half-open.
        change: Option<BreakerChange>,
    },
    /// Nothing can start now.
    Refused {
        /// Why; when several reasons apply, the one that a wait cures.
        why: Refusal,
        /// When something may start by itself, if that is known and not after `wait_until`. A queued call is also
        /// granted a place as soon as one frees.
        after: Option<Time>,
        /// The soonest end of any pushback or open breaker, however far: what `retry-after` tells (F19).
        soonest: Option<Time>,
        /// When anything at all last succeeded at this pool (G16).
        progress: Time,
    },
    /// Taken note of.
    Settled {
        /// The breaker's change, if the outcome made one.
        change: Option<BreakerChange>,
    },
    /// Done; nothing to say.
    Done,
}
