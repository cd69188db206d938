//! The log of a run: every event, told before it is applied. The hash, the invariants and the printed trace all read it.

use std::fmt::Write;

use surefoot_core::call::Phase;
use surefoot_core::event::{Action, CancelCause, End, Input, What};
use surefoot_core::id::{AttemptNo, Choice, LeaseId};
use surefoot_core::policy::Plan;
use surefoot_core::pool::{GateOp, GateReply, Op, Reply, Settings, TargetView};
use surefoot_core::time::Time;

use super::client::Client;
use super::script::Truth;
use crate::digest::Digest;

/// One thing that happens.
#[derive(Debug)]
pub enum Record<'a> {
    /// A call begins.
    Arrived {
        /// Its number in the run.
        call: u32,
        /// What it is to do.
        plan: &'a Plan,
        /// Who asks.
        client: &'a Client,
    },
    /// A request that the gateway answered by itself.
    Turned {
        /// Its number.
        call: u32,
        /// The status.
        status: u16,
    },
    /// A call is about to be told something.
    Input {
        /// Which.
        call: u32,
        /// Where it stands.
        phase: Phase,
        /// What.
        input: &'a Input,
    },
    /// A call wants something done.
    Action {
        /// Which.
        call: u32,
        /// What.
        action: &'a Action,
    },
    /// A command is about to be applied.
    Applying {
        /// Whose.
        call: u32,
        /// It.
        op: &'a Op,
    },
    /// It was applied.
    Applied {
        /// Whose.
        call: u32,
        /// It.
        op: &'a Op,
        /// The answer.
        reply: &'a Reply,
    },
    /// A place was granted to somebody in line.
    Granted {
        /// Its lease.
        lease: LeaseId,
        /// The grant.
        reply: &'a Reply,
    },
    /// A store that several gateways share carried a command out.
    Stored {
        /// Whose.
        gateway: u32,
        /// It.
        op: &'a GateOp,
        /// The answer.
        reply: &'a GateReply,
    },
    /// The store forgot everything.
    Wiped,
    /// An upstream was asked.
    Sent {
        /// By which call.
        call: u32,
        /// Its attempt.
        attempt: AttemptNo,
        /// The candidate.
        choice: Choice,
        /// What will come.
        truth: &'a Truth,
    },
    /// The client took a piece.
    Taken {
        /// Which call's.
        call: u32,
        /// It.
        bytes: &'a [u8],
    },
    /// A client leaves, or is dropped.
    Left {
        /// Which.
        call: u32,
        /// Why.
        cause: CancelCause,
    },
    /// A call is over and gone.
    Over {
        /// Which.
        call: u32,
        /// How.
        end: &'a End,
    },
    /// A new configuration is in force.
    Reloaded {
        /// The pool's knobs.
        settings: &'a Settings,
        /// Its targets.
        views: &'a [TargetView<'a>],
    },
    /// Everything is well again.
    Healed,
    /// From here on every call must end well.
    Judged,
}

impl Record<'_> {
    /// Takes it into a hash.
    pub fn digest(&self, now: Time, digest: &mut Digest) {
        digest.word(now.0);
        match self {
            Record::Arrived { call, plan, .. } => {
                digest.word(1 << 56 | u64::from(*call));
                digest.word(plan.format as u64 | u64::from(plan.stream) << 8);
                digest.bytes(plan.route.model.as_bytes());
            }
            Record::Turned { call, status } => digest.word(2 << 56 | u64::from(*status) << 32 | u64::from(*call)),
            Record::Input { call, phase, input } => {
                digest.word(3 << 56 | (*phase as u64) << 40 | u64::from(*call));
                digest_input(input, digest);
            }
            Record::Action { call, action } => {
                digest.word(4 << 56 | u64::from(*call));
                digest_action(action, digest);
            }
            Record::Applying { call, op } => digest.word(5 << 56 | u64::from(*call) ^ op.lease().0.rotate_left(20)),
            Record::Applied { call, op, reply } => {
                digest.word(6 << 56 | u64::from(*call) ^ op.lease().0.rotate_left(20));
                digest_reply(reply, digest);
            }
            Record::Granted { lease, reply } => {
                digest.word(7 << 56 ^ lease.0);
                digest_reply(reply, digest);
            }
            Record::Sent { call, attempt, choice, truth } => {
                digest.word(8 << 56 | u64::from(*call));
                digest.word(u64::from(attempt.0) << 16 | u64::from(choice.0));
                digest.bytes(&truth.body);
            }
            Record::Taken { call, bytes } => {
                digest.word(9 << 56 | u64::from(*call));
                digest.bytes(bytes);
            }
            Record::Left { call, cause } => digest.word(10 << 56 | (*cause as u64) << 40 | u64::from(*call)),
            Record::Over { call, end } => {
                digest.word(11 << 56 | u64::from(*call));
                digest_end(end, digest);
            }
            Record::Reloaded { views, .. } => digest.word(12 << 56 | views.len() as u64),
            Record::Healed => digest.word(13 << 56),
            Record::Stored { gateway, op, reply } => {
                digest.word(15 << 56 | u64::from(*gateway));
                digest_gate(op, reply, digest);
            }
            Record::Wiped => digest.word(16 << 56),
            Record::Judged => digest.word(14 << 56),
        }
    }

    /// One line for a person.
    pub fn line(&self, now: Time) -> String {
        let mut line = String::new();
        let seconds = now.0 as f64 / 1e6;
        let _ = write!(line, "{seconds:12.6} ");
        let _ = match self {
            Record::Arrived { call, plan, client } => write!(
                line,
                "call {call} arrives: {} {}{} {:?}",
                plan.route.model,
                plan.format.as_str(),
                if plan.stream { " stream" } else { "" },
                client
            ),
            Record::Turned { call, status } => write!(line, "call {call} is answered {status} at once"),
            Record::Input { call, phase, input } => match input {
                Input::Chunk { attempt, bytes } => {
                    write!(line, "call {call} {phase:?} <- chunk of {attempt}: {:?}", String::from_utf8_lossy(bytes))
                }
                input => write!(line, "call {call} {phase:?} <- {input:?}"),
            },
            Record::Action { call, action } => match action {
                Action::Forward(bytes) => write!(line, "call {call} -> forward {:?}", String::from_utf8_lossy(bytes)),
                Action::Ask(op) => write!(line, "call {call} -> ask {}", op_line(op)),
                Action::Tell(op) => write!(line, "call {call} -> tell {}", op_line(op)),
                action => write!(line, "call {call} -> {action:?}"),
            },
            Record::Applying { call, op } => write!(line, "pool <- call {call}: {}", op_line(op)),
            Record::Applied { reply, .. } => write!(line, "pool -> {reply:?}"),
            Record::Granted { lease, reply } => write!(line, "pool grants {lease}: {reply:?}"),
            Record::Sent { call, attempt, choice, truth } => write!(
                line,
                "upstream of call {call} attempt {attempt} (candidate {choice}): {:?} {:?} status {:?} until {:?}",
                truth.trouble, truth.fate, truth.status, truth.closes
            ),
            Record::Taken { call, bytes } => write!(line, "client {call} takes {} bytes", bytes.len()),
            Record::Left { call, cause } => write!(line, "client {call} leaves: {}", cause.as_str()),
            Record::Over { call, end } => write!(line, "call {call} is over: {end:?}"),
            Record::Reloaded { views, .. } => write!(line, "a configuration with {} targets is in force", views.len()),
            Record::Healed => write!(line, "everything is well again"),
            Record::Stored { gateway, op, reply } => write!(line, "store <- gateway {gateway}: {op:?} -> {reply:?}"),
            Record::Wiped => write!(line, "the store forgets everything"),
            Record::Judged => write!(line, "from here on every call must end well"),
        };
        line
    }
}

fn op_line(op: &Op) -> String {
    match op {
        Op::Reserve(reserve) => {
            let standing = reserve
                .standing
                .iter()
                .map(|s| format!("{}{}@{}", s.failed, if s.out { "x" } else { "" }, s.not_before.0));
            format!(
                "reserve {} of roster {} [{}] until {}{}",
                reserve.lease,
                reserve.roster.id,
                standing.collect::<Vec<_>>().join(" "),
                reserve.wait_until.0,
                if reserve.queue { " queueing" } else { "" }
            )
        }
        op => format!("{op:?}"),
    }
}

fn digest_input(input: &Input, digest: &mut Digest) {
    match input {
        Input::Reply { lease, reply } => {
            digest.word(1 << 48 ^ lease.0);
            digest_reply(reply, digest);
        }
        Input::Head { attempt, head } => {
            digest.word(2 << 48 | u64::from(head.status) << 16 | u64::from(attempt.0));
            head.headers.iter().for_each(|(_, value)| digest.bytes(value.as_bytes()));
        }
        Input::Chunk { attempt, bytes } => {
            digest.word(3 << 48 | u64::from(attempt.0));
            digest.bytes(bytes);
        }
        Input::End { attempt } => digest.word(4 << 48 | u64::from(attempt.0)),
        Input::Fault { attempt, fault } => digest.word(5 << 48 | (*fault as u64) << 16 | u64::from(attempt.0)),
        Input::Flushed => digest.word(6 << 48),
        Input::Tick => digest.word(7 << 48),
        Input::Cancel(cause) => digest.word(8 << 48 | *cause as u64),
    }
}

fn digest_action(action: &Action, digest: &mut Digest) {
    match action {
        Action::Ask(op) | Action::Tell(op) => digest_op(op, digest),
        Action::Send { attempt, choice, why } => {
            digest.word(1 << 48 | (*why as u64) << 32 | u64::from(attempt.0) << 16 | u64::from(choice.0));
        }
        Action::Judged(_) => digest.word(11 << 48),
        Action::Abort(attempt) => digest.word(2 << 48 | u64::from(attempt.0)),
        Action::Commit(commit) => {
            digest.word(3 << 48 | (commit.reason as u64) << 32 | u64::from(commit.attempt.0));
            digest.word(commit.length.unwrap_or(u64::MAX));
        }
        Action::Forward(bytes) => {
            digest.word(4 << 48);
            digest.bytes(bytes);
        }
        Action::Notice(notice) => {
            digest.word(5 << 48 | notice.held_bytes << 16 | u64::from(notice.held_events));
            digest.bytes(notice.what.code().as_bytes());
            if let What::AttemptEnded { outcome, reason, took, .. } = &notice.what {
                digest.word(*outcome as u64);
                digest.bytes(reason.as_str().as_bytes());
                digest.word(took.0);
            }
        }
        Action::Finish(end) => {
            digest.word(6 << 48);
            digest_end(end, digest);
        }
    }
}

fn digest_op(op: &Op, digest: &mut Digest) {
    match op {
        Op::Reserve(reserve) => {
            digest.word(7 << 48 ^ reserve.lease.0);
            digest.word(reserve.draw);
            digest.word(reserve.wait_until.0);
            for standing in &reserve.standing {
                digest.word(
                    u64::from(standing.failed) << 32 | u64::from(standing.out) << 16 | u64::from(standing.last_attempt),
                );
                digest.word(standing.not_before.0);
            }
        }
        Op::Settle(settle) => {
            digest.word(8 << 48 ^ settle.lease.0);
            digest.word((settle.outcome as u64) << 8 | u64::from(settle.slow) << 1 | u64::from(settle.overload));
            digest.word(settle.rest.map_or(u64::MAX, |rest| rest.span.0));
            digest.word(settle.tokens.map_or(u64::MAX, u64::from));
        }
        Op::Renew { lease } => digest.word(9 << 48 ^ lease.0),
        Op::Leave { lease } => digest.word(10 << 48 ^ lease.0),
    }
}

fn digest_gate(op: &GateOp, reply: &GateReply, digest: &mut Digest) {
    match op {
        GateOp::Admit(admit) => {
            digest.word(1 << 48 ^ admit.lease.0);
            for candidate in &admit.candidates {
                digest.word(u64::from(candidate.target.0) << 32 | u64::from(candidate.paced) << 1);
            }
        }
        GateOp::Settle { lease, evidence, .. } => {
            digest.word(2 << 48 ^ lease.0);
            digest.word(*evidence as u64);
        }
        GateOp::Renew { lease } => digest.word(3 << 48 ^ lease.0),
        GateOp::Release { lease } => digest.word(4 << 48 ^ lease.0),
    }
    match reply {
        GateReply::Admitted { index, probe, .. } => digest.word(1 << 48 | u64::from(*index) << 1 | u64::from(*probe)),
        GateReply::Denied { why, after, .. } => {
            digest.word(2 << 48 | *why as u64);
            digest.word(after.map_or(0, |at| at.0));
        }
        GateReply::Settled { change } => digest.word(3 << 48 | u64::from(change.is_some())),
        GateReply::Done => digest.word(4 << 48),
    }
}

fn digest_reply(reply: &Reply, digest: &mut Digest) {
    match reply {
        Reply::Granted { choice, probe, change } => {
            digest.word(1 << 48 | u64::from(choice.0) << 8 | u64::from(*probe) << 1 | u64::from(change.is_some()));
        }
        Reply::Refused { why, after, soonest, .. } => {
            digest.word(2 << 48 | *why as u64);
            digest.word(after.map_or(0, |at| at.0));
            digest.word(soonest.map_or(0, |at| at.0));
        }
        Reply::Settled { change } => {
            let change = change.map_or(0, |change| (u64::from(change.target.0) << 8) | (change.to as u64 + 1));
            digest.word(3 << 48 | change);
        }
        Reply::Done => digest.word(4 << 48),
    }
}

fn digest_end(end: &End, digest: &mut Digest) {
    match end {
        End::Complete => digest.word(1),
        End::Incomplete(reason) => digest.word(2 | (*reason as u64) << 8),
        End::UpstreamError(outcome) => digest.word(3 | (*outcome as u64) << 8),
        End::Broken => digest.word(4),
        End::Answer(answer) => {
            digest.word(5 | u64::from(answer.status) << 8);
            digest.bytes(&answer.body);
            digest.word(answer.retry_after.map_or(u64::MAX, |span| span.0));
        }
        End::Cancelled(cause) => digest.word(6 | (*cause as u64) << 8),
    }
}
