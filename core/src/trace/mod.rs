//! What a call heard and did, a line each: enough to replay it to identical actions (X7, X8).
//!
//! # The file
//!
//! One JSON object a line, keys in a fixed order, `"v":1` first and a checksum last. The second key tells the kind:
//!
//! | kind | is | |
//! |---|---|---|
//! | `policy` | a [`Route`] as calls read it, named by the hash of its content | once a file |
//! | `begin` | a call: its format, its name, its route, what its request asks for, its seed | first of a call |
//! | `in` | an [`Input`], before it was handled | |
//! | `do` | an [`Action`], before it was done | |
//! | `end` | how many lines the call has, and the hash of them | last of a call |
//!
//! Times are microseconds. A call's lines stand in their order; those of several calls may be mixed. A field that is
//! absent is zero, false, none or, for times that are limits, never.
//!
//! # Bytes
//!
//! | mode | an upstream's bytes are |
//! |---|---|
//! | `full` | as they came: `text` where they are UTF-8, else `b64` |
//! | `redacted` | masked, same length: structure, known keys, deciding words and lengths stay; `n` alone where nothing is looked at |
//!
//! Forwarded bytes that are the upstream's own are told by their number, for they stand in the chunks above; what was made
//! here (a bridged answer, the last error event) is told as text. In no mode does a provider's key get in: a token of the
//! same length stands for it. What rules, phrases and sentences were found to say is traced as a verdict
//! ([`Judged`](Action::Judged)), so that a replay needs none of the words.
//!
//! # Recording
//!
//! ```
//! use surefoot_core::policy::config::TraceMode;
//! use surefoot_core::trace::{Policies, Recorder, Start};
//! # fn f(plan: surefoot_core::policy::Plan) {
//! # use surefoot_core::{call::{Call, Judge}, event::Output, id::CallId, time::Time};
//! let mut policies = Policies::new();                 // one a file, shared by its calls
//! let start = Start { id: CallId(7), seed: 42, now: Time(0), request_id: "r", unix_ms: 0 };
//! let mut recorder = Recorder::new(TraceMode::Redacted, &mut policies, &plan, &start);
//! let judge = if recorder.is_some() { Judge::Telling } else { Judge::Live };
//! let mut call = Call::new(plan, start.id, start.seed, start.now).with_request_id(start.request_id).with_judge(judge);
//! // … before each `call.handle(now, input)`: `recorder.input(now, &input)`; after each `call.poll()`: `recorder.action(&action)`
//! # let Output::Do(action) = call.poll() else { return };
//! if let Some(recorder) = &mut recorder {
//!     recorder.action(&action);
//!     let lines: String = recorder.take();            // whole lines, to be appended to the file
//! }
//! # }
//! ```
//!
//! # Replaying
//!
//! [`replay`] goes through the lines of a file, runs each call anew and compares every action; [`Reader`] hands out the
//! recorded calls one by one, for whoever wants to do something else with them.

mod codec;
mod fields;
mod hash;
mod mask;
mod policy;
mod reader;
mod recorder;
mod replay;
mod secrets;
mod shape;
mod words;

#[cfg(test)]
mod tests;

#[cfg(doc)]
use crate::{
    event::{Action, Input},
    policy::Route,
};

pub use fields::{Problem, TraceError};
pub use policy::Policies;
pub use reader::{Begin, Entry, Line, Reader, RecordedCall, read_line};
pub use recorder::{Recorder, Start};
pub use replay::{Difference, Report, replay};

/// The version of the format.
pub const VERSION: u32 = 1;
