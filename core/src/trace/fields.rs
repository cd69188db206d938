//! One line as flat fields: written in the order of this struct, read back, and checked.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::hash::Hash;
use crate::wire::Header;

/// What is wrong with a line, and with which.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct TraceError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What can be wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// Not a JSON object.
    #[error("not JSON; a trace has one JSON object a line")]
    NotJson,
    /// It ends in the middle.
    #[error("the line is cut off; the writer was stopped here: remove the line, or record again")]
    Cut,
    /// Written by another version.
    #[error("version {found} of the format, this program reads version 1: replay it with the release that wrote it")]
    Version {
        /// What its `v` says; `none` where there is none.
        found: Box<str>,
    },
    /// A field that its kind must have is not there.
    #[error("the field `{0}` is missing; the line is not as it was written")]
    Missing(Box<str>),
    /// A kind, an input, an action or another word that this program does not know.
    #[error("unknown {what} `{found}`; the line is not as it was written, or by a later release")]
    Unknown {
        /// What it should be.
        what: Box<str>,
        /// What it is.
        found: Box<str>,
    },
    /// A field's value is of the wrong type.
    #[error("{0}; the line is not as it was written")]
    Value(Box<str>),
    /// Its checksum does not fit.
    #[error("the line was changed after it was written (its checksum does not fit)")]
    Edited,
    /// The route that it names has not been told before.
    #[error("the policy `{0}` is not in the lines before; keep the file's beginning")]
    UnknownPolicy(Box<str>),
    /// It belongs to a call that has not begun.
    #[error("call {0} has no `begin` line before this one; keep the file's beginning")]
    Orphan(u64),
    /// Lines of the call are missing, doubled or in another order.
    #[error("the lines of call {0} are not those that were written: some are missing, doubled or in another order")]
    Torn(u64),
}

impl Problem {
    pub(super) fn missing(field: &str) -> Problem {
        Problem::Missing(field.into())
    }

    pub(super) fn unknown(what: &str, found: &str) -> Problem {
        // A trace file is a peer's, too: what it says is shown, but not at length.
        let found: String = found.chars().take(60).collect();
        Problem::Unknown { what: what.into(), found: found.into() }
    }

    fn of(error: &serde_json::Error) -> Problem {
        let told = error.to_string();
        let told = told.split(" at line ").next().unwrap_or_default();
        let quoted = || told.split('`').nth(1).unwrap_or_default();
        match error.classify() {
            serde_json::error::Category::Eof => Problem::Cut,
            serde_json::error::Category::Data if told.starts_with("missing field") => Problem::missing(quoted()),
            serde_json::error::Category::Data if told.starts_with("unknown field") => {
                Problem::unknown("field", quoted())
            }
            serde_json::error::Category::Data => Problem::Value(told.into()),
            _ => Problem::NotJson,
        }
    }
}

/// All fields of all kinds but `policy`. Absent is none, zero or false.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Fields<'a> {
    pub(super) v: u32,
    // The kind.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(super) begin: Option<&'a str>,
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub(super) input: Option<&'a str>,
    #[serde(rename = "do", skip_serializing_if = "Option::is_none")]
    pub(super) action: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<&'a str>,
    // Of every kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) call: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<u64>,
    // Of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mode: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_id: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seed: Option<&'a str>,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) stream: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) include_usage: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) structured: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) replay_safe: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lines: Option<u32>,
    // The word that tells which of a group it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) op: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reply: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) what: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) end_as: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verdict: Option<&'a str>,
    // Whom it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) attempt: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) choice: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<Box<str>>,
    // The rest, by its names in the vocabulary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fault: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cause: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) headers: Vec<Header>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unix_ms: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) probe: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) change: Option<(u32, &'a str, &'a str)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) again_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) soonest: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) progress: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) roster: Option<u32>,
    /// Failed, out, not before, last attempt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) standing: Vec<(u16, u8, u64, u16)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sticky: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) draw: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wait_until: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ttl: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) queue: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) slow: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rest: Option<(u64, &'a str)>,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) overload: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shape: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) elapsed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) held_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) held_events: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) took: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failover_added: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<u64>,
    /// The rule that matched: whether the provider's own, and its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hit: Option<(u8, u16)>,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) yes: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) quota_gone: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) as_sent: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) head: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stop: Option<&'a str>,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) no_retry: bool,
    // Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) n: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) b64: Option<String>,
    // Last: over everything before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sum: Option<&'a str>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// What stands before the checksum.
pub(super) const SUM: &str = ",\"sum\":\"";
/// A line's tail: the checksum's key, eight digits, a quote and a brace.
const TAIL: usize = SUM.len() + 8 + 2;

/// Appends `line` with its checksum to `out`. Returns the checksum.
pub(super) fn write(line: &impl Serialize, out: &mut Vec<u8>) -> u32 {
    let written = serde_json::to_vec(line);
    debug_assert!(written.is_ok(), "numbers, words and texts can always be written");
    let mut written = written.unwrap_or_default();
    written.pop();
    let sum = Hash::new().with(&written).folded();
    out.extend_from_slice(&written);
    out.extend_from_slice(SUM.as_bytes());
    out.extend_from_slice(format!("{sum:08x}").as_bytes());
    out.extend_from_slice(b"\"}\n");
    sum
}

/// Checks a line's version and checksum. Returns the checksum.
pub(super) fn check(line: &str) -> Result<u32, Problem> {
    if !line.starts_with("{\"v\":1,") {
        return Err(other_version(line));
    }
    let tail = line.len().checked_sub(TAIL).and_then(|at| line.get(at..).map(|tail| (at, tail)));
    let told = tail.and_then(|(at, tail)| {
        let digits = tail.strip_prefix(SUM)?.strip_suffix("\"}")?;
        Some((at, u32::from_str_radix(digits, 16).ok()?))
    });
    let Some((at, told)) = told else { return Err(parse::<Unchecked>(line).err().unwrap_or(Problem::missing("sum"))) };
    let sum = Hash::new().with(line.get(..at).unwrap_or_default().as_bytes()).folded();
    if sum == told { Ok(sum) } else { Err(parse::<Unchecked>(line).err().unwrap_or(Problem::Edited)) }
}

/// Any JSON object.
#[derive(Deserialize)]
struct Unchecked {}

/// What is wrong with a line that does not begin as version 1 does.
fn other_version(line: &str) -> Problem {
    #[derive(Deserialize)]
    struct Versioned {
        #[serde(default)]
        v: serde_json::Value,
    }
    match parse::<Versioned>(line) {
        Ok(Versioned { v }) if v == 1 => Problem::Edited,
        Ok(Versioned { v: serde_json::Value::Null }) => Problem::Version { found: "none".into() },
        Ok(Versioned { v }) => Problem::Version { found: v.to_string().chars().take(20).collect::<String>().into() },
        Err(Problem::Value(_)) => Problem::NotJson,
        Err(problem) => problem,
    }
}

pub(super) fn parse<'a, T: Deserialize<'a>>(line: &'a str) -> Result<T, Problem> {
    serde_json::from_str(line).map_err(|error| Problem::of(&error))
}
