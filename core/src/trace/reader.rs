//! Reads lines back, and puts a call's lines together.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::codec::{Stars, action_of, input_of, of_hex};
use super::fields::{Fields, Problem, SUM, TraceError, check, parse};
use super::hash::Hash;
use super::policy::{PolicyLine, word};
use crate::event::{Action, Input};
use crate::id::CallId;
use crate::policy::config::TraceMode;
use crate::policy::{Plan, Route};
use crate::pool::Roster;
use crate::time::Time;
use crate::wire::Format;

/// A line, read.
#[derive(Clone, Debug)]
pub enum Line {
    /// A route, for the calls that name it.
    Policy {
        /// Its name: the hash of its content.
        id: u64,
        /// It. In the place of its keys stand tokens.
        route: Box<Route>,
    },
    /// A call begins.
    Begin(Begin),
    /// A call heard or did something.
    Entry {
        /// The call.
        call: CallId,
        /// What.
        entry: Entry,
    },
    /// A call ended.
    End {
        /// The call.
        call: CallId,
        /// Its lines before this one.
        lines: u32,
        /// The hash of their checksums.
        hash: u64,
    },
}

/// The beginning of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The call.
    pub id: CallId,
    /// When it arrived.
    pub at: Time,
    /// Wall clock then, milliseconds of the Unix epoch.
    pub unix_ms: u64,
    /// Its route.
    pub policy: u64,
    /// How much is traced; never [`TraceMode::Off`].
    pub mode: TraceMode,
    /// The request's name.
    pub request_id: Box<str>,
    /// Its chance.
    pub seed: u64,
    /// As [`Plan::format`].
    pub format: Format,
    /// As [`Plan::stream`].
    pub stream: bool,
    /// As [`Plan::include_usage`].
    pub include_usage: bool,
    /// As [`Plan::structured`].
    pub structured: bool,
    /// As [`Plan::replay_safe`].
    pub replay_safe: bool,
    /// As [`Plan::tokens`].
    pub tokens: u32,
}

impl Begin {
    /// The call's plan under a route: the one that it had, or another.
    pub fn plan(&self, route: Arc<Route>) -> Plan {
        let Begin { format, stream, include_usage, structured, replay_safe, tokens, .. } = *self;
        Plan { route, format, stream, include_usage, structured, replay_safe, tokens }
    }
}

/// What a call heard or did, and when.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// An input.
    In(Time, Input),
    /// An action. Of the upstream's own bytes that it forwards only the number is true.
    Do(Time, Action),
}

/// Reads one line; `line` is its number, from 1.
///
/// # Errors
/// What [`Problem`] names, with the line's number. A line alone does not know its call's route: the roster of a
/// [`Reserve`](crate::pool::Reserve) is empty but for its id. [`Reader`] fills it in.
pub fn read_line(text: &str, line: usize) -> Result<Line, TraceError> {
    let read = |text| {
        check(text)?;
        line_of(text, |_| None, &mut Stars::default())
    };
    read(text).map_err(|problem| TraceError { line, problem })
}

/// Reads a checked line; `roster` knows the rosters of the calls under way.
fn line_of(text: &str, roster: impl Fn(u64) -> Option<Arc<Roster>>, stars: &mut Stars) -> Result<Line, Problem> {
    if text.starts_with("{\"v\":1,\"policy\"") {
        let (id, route) = parse::<PolicyLine>(text)?.read()?;
        return Ok(Line::Policy { id, route: Box::new(route) });
    }
    if let Some((call, entry)) = frequent(text, stars) {
        return Ok(Line::Entry { call, entry });
    }
    let mut fields = parse::<Fields<'_>>(text)?;
    let call = fields.call.ok_or_else(|| Problem::missing("call"))?;
    if fields.begin.is_some() {
        return begin_of(fields, call).map(Line::Begin);
    }
    if fields.end.is_some() {
        let lines = fields.lines.ok_or_else(|| Problem::missing("lines"))?;
        return Ok(Line::End { call: CallId(call), lines, hash: of_hex(fields.end, "end")? });
    }
    let at = Time(fields.at.ok_or_else(|| Problem::missing("at"))?);
    let entry = match (fields.input, fields.action) {
        (Some(_), None) => Entry::In(at, input_of(&mut fields, stars)?),
        (None, Some(_)) => {
            let unknown = || Roster {
                id: fields.roster.unwrap_or_default(),
                strategy: crate::pool::Strategy::default(),
                entries: Vec::new(),
            };
            let roster = roster(call).unwrap_or_else(|| Arc::new(unknown()));
            Entry::Do(at, action_of(&mut fields, &roster, stars)?)
        }
        _ => return Err(Problem::unknown("kind of line", text.get(..60).unwrap_or(text))),
    };
    Ok(Line::Entry { call: CallId(call), entry })
}

/// The two lines that streams are full of, exactly as they are written: two thirds of a long stream's lines, read without
/// a parser. `None` for anything else.
fn frequent(text: &str, stars: &mut Stars) -> Option<(CallId, Entry)> {
    fn number<'a>(text: &'a str, key: &str) -> Option<(u64, &'a str)> {
        let text = text.strip_prefix(key)?;
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        Some((text.get(..digits)?.parse().ok()?, text.get(digits..)?))
    }
    let rest = text.strip_prefix("{\"v\":1,")?;
    let (flushed, rest) = match rest.strip_prefix("\"in\":\"flushed\",") {
        Some(rest) => (true, rest),
        None => (false, rest.strip_prefix("\"do\":\"forward\",")?),
    };
    let (call, rest) = number(rest, "\"call\":")?;
    let (at, rest) = number(rest, ",\"at\":")?;
    let entry = if flushed {
        rest.strip_prefix(SUM)?;
        Entry::In(Time(at), Input::Flushed)
    } else {
        let (length, rest) = number(rest, ",\"n\":")?;
        rest.strip_prefix(SUM)?;
        Entry::Do(Time(at), Action::Forward(stars.take(length).ok()?))
    };
    Some((CallId(call), entry))
}

fn begin_of(fields: Fields<'_>, call: u64) -> Result<Begin, Problem> {
    let need = |name: &'static str| move || Problem::missing(name);
    let mode = match fields.mode.ok_or_else(need("mode"))? {
        "redacted" => TraceMode::Redacted,
        "full" => TraceMode::Full,
        other => return Err(Problem::unknown("mode", other)),
    };
    Ok(Begin {
        id: CallId(call),
        at: Time(fields.at.ok_or_else(need("at"))?),
        unix_ms: fields.unix_ms.unwrap_or_default(),
        policy: of_hex(fields.policy, "policy")?,
        mode,
        request_id: fields.request_id.unwrap_or_default(),
        seed: of_hex(fields.seed, "seed")?,
        format: word("format", fields.begin.unwrap_or_default())?,
        stream: fields.stream,
        include_usage: fields.include_usage,
        structured: fields.structured,
        replay_safe: fields.replay_safe,
        tokens: fields.tokens.unwrap_or_default(),
    })
}

/// A call as it was recorded.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    /// Its beginning.
    pub begin: Begin,
    /// The route that it had.
    pub route: Arc<Route>,
    /// What it heard and did, in order.
    pub entries: Vec<Entry>,
    /// Whether its last line is there: all of it was recorded.
    pub complete: bool,
    /// The number of its `begin` line and of each entry's, from 1.
    pub(super) numbers: Vec<usize>,
    /// The lines of its actions as they were written, and where each ends: what a replay must write again.
    pub(super) actions: String,
    pub(super) action_ends: Vec<usize>,
    hash: Hash,
}

impl RecordedCall {
    /// The number of its `begin` line in its file, from 1.
    pub fn first_line(&self) -> usize {
        self.numbers.first().copied().unwrap_or_default()
    }

    /// The number of an entry's line in its file, from 1.
    pub fn line_of(&self, entry: usize) -> usize {
        self.numbers.get(entry + 1).copied().unwrap_or_default()
    }
}

/// Puts the lines of a file together, call by call.
#[derive(Debug, Default)]
pub struct Reader {
    routes: BTreeMap<u64, Arc<Route>>,
    open: BTreeMap<u64, Box<RecordedCall>>,
    line: usize,
    stars: Stars,
    /// Calls that were left open because another with the same name began.
    left: Vec<RecordedCall>,
}

impl Reader {
    /// A reader at the beginning of a file.
    pub fn new() -> Reader {
        Reader::default()
    }

    /// The number of the last line taken.
    pub fn lines(&self) -> usize {
        self.line
    }

    /// Takes the next line, with or without its end. Returns the call that it completes.
    ///
    /// # Errors
    /// What is wrong with the line; it counts, and whoever wants to can go on with the next.
    pub fn push(&mut self, text: &str) -> Result<Option<RecordedCall>, TraceError> {
        self.push_at(self.line + 1, text)
    }

    /// As [`push`](Reader::push), of the line with this number: for one of several readers that share a file's calls, each
    /// call's lines with one of them and the policies' with all.
    ///
    /// # Errors
    /// As [`push`](Reader::push).
    pub fn push_at(&mut self, line: usize, text: &str) -> Result<Option<RecordedCall>, TraceError> {
        self.line = line;
        let text = text.strip_suffix('\n').unwrap_or(text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.is_empty() {
            return Ok(None);
        }
        self.take(text).map_err(|problem| TraceError { line: self.line, problem })
    }

    fn take(&mut self, text: &str) -> Result<Option<RecordedCall>, Problem> {
        let sum = check(text)?;
        let open = &self.open;
        let roster = |call| open.get(&call).map(|call| call.route.roster.clone());
        let line = line_of(text, roster, &mut self.stars)?;
        match line {
            Line::Policy { id, route } => {
                self.routes.insert(id, Arc::from(route));
            }
            Line::Begin(begin) => self.begin(begin, sum)?,
            Line::Entry { call, entry } => {
                let open = self.open.get_mut(&call.0).ok_or(Problem::Orphan(call.0))?;
                open.hash = open.hash.with(&sum.to_le_bytes());
                open.numbers.push(self.line);
                if matches!(entry, Entry::Do(..)) {
                    open.actions.push_str(text);
                    open.action_ends.push(open.actions.len());
                }
                open.entries.push(entry);
            }
            Line::End { call, lines, hash } => {
                let mut ended = *self.open.remove(&call.0).ok_or(Problem::Orphan(call.0))?;
                let is_whole = matches!(ended.entries.last(), Some(Entry::Do(_, Action::Finish(_))));
                if !is_whole || hash != ended.hash.value() || usize::try_from(lines) != Ok(ended.numbers.len()) {
                    return Err(Problem::Torn(call.0));
                }
                ended.complete = true;
                return Ok(Some(ended));
            }
        }
        Ok(None)
    }

    fn begin(&mut self, begin: Begin, sum: u32) -> Result<(), Problem> {
        let route = self.routes.get(&begin.policy).cloned();
        let route = route.ok_or_else(|| Problem::UnknownPolicy(super::codec::hex(begin.policy).into()))?;
        let id = begin.id.0;
        let call = RecordedCall {
            begin,
            route,
            entries: Vec::new(),
            complete: false,
            numbers: Vec::from([self.line]),
            actions: String::new(),
            action_ends: Vec::new(),
            hash: Hash::new().with(&sum.to_le_bytes()),
        };
        // A process that was killed leaves its calls open, and the next one counts anew.
        self.left.extend(self.open.insert(id, Box::new(call)).map(|call| *call));
        Ok(())
    }

    /// The calls that began and never ended: their process was stopped, or the file is cut.
    pub fn unfinished(self) -> Vec<RecordedCall> {
        let mut calls = self.left;
        calls.extend(self.open.into_values().map(|call| *call));
        calls
    }
}
