//! One call's life in plain lines: what it heard, what it did, and why.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use surefoot_core::trace::{Line, Reader, RecordedCall, TraceError, read_line};

use super::scan::{Beginning, MAX_LINE, ReadError, call_of};
use super::words;

/// Calls of one name that are told: a file that several processes wrote may have a few.
const TOLD: usize = 5;

/// Why there is nothing to tell.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// No trace to begin with.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A line of the call that cannot be read.
    #[error("{path}: {error}")]
    Line {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: TraceError,
    },
    /// No such call.
    #[error("{path}: no call `{wanted}`; {known}")]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        wanted: String,
        /// Which there are.
        known: String,
    },
}

/// Tells the life of a call, named by its number or its request's id. Of several with one name, each.
///
/// # Errors
/// Where the file has no such call, or not all of it.
pub fn explain(path: &Path, wanted: &str) -> Result<String, ExplainError> {
    let found = find(path, wanted)?;
    let mut out = String::new();
    if found.len() > 1 {
        let _ = writeln!(out, "{} calls have this name, each of another process\n", found.len());
    }
    for call in found.iter().take(TOLD) {
        words::tell(call, &mut out);
    }
    if found.len() > TOLD {
        let _ = writeln!(out, "… and {} more", found.len() - TOLD);
    }
    Ok(out)
}

fn find(path: &Path, wanted: &str) -> Result<Vec<RecordedCall>, ExplainError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let wrong = |error| ExplainError::Line { path: path.to_owned(), error };
    let mut lines = BufReader::with_capacity(1 << 20, File::open(path).map_err(failed)?);
    let mut reader = Reader::new();
    let mut known = Known::new(wanted);
    let mut chosen: BTreeSet<u64> = BTreeSet::new();
    let (mut found, mut line, mut number) = (Vec::new(), Vec::new(), 0);
    let mut beginning = Beginning::default();
    let no_trace = |error| ReadError::NoTrace { path: path.to_owned(), error };
    loop {
        line.clear();
        if lines.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line).map_err(failed)? == 0 {
            break;
        }
        number += 1;
        if line.len() > MAX_LINE && line.last() != Some(&b'\n') {
            return Err(ReadError::Endless { path: path.to_owned(), line: number }.into());
        }
        beginning.hear(number, line.trim_ascii_end()).map_err(no_trace)?;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        let call = call_of(text.as_bytes());
        let begins = text.starts_with("{\"v\":1,\"begin\"");
        match call {
            Some(id) if begins => match read_line(text, number) {
                Ok(Line::Begin(begin)) => {
                    if known.note(begin.id.0, &begin.request_id) {
                        chosen.insert(id);
                        reader.push_at(number, text).map_err(wrong)?;
                    } else {
                        chosen.remove(&id);
                    }
                }
                Ok(_) => {}
                // Another call's line is none of ours.
                Err(error) if known.by_number == Some(id) => return Err(wrong(error)),
                Err(_) => {}
            },
            Some(id) if chosen.contains(&id) => {
                if let Some(whole) = reader.push_at(number, text).map_err(wrong)? {
                    chosen.remove(&id);
                    found.push(whole);
                }
            }
            Some(_) => {}
            // A policy, or what cannot be read: the calls that want it miss it.
            None => drop(reader.push_at(number, text)),
        }
    }
    beginning.over().map_err(no_trace)?;
    if number == 0 {
        return Err(ReadError::Empty { path: path.to_owned() }.into());
    }
    found.extend(reader.unfinished());
    found.sort_by_key(RecordedCall::first_line);
    if found.is_empty() {
        return Err(ExplainError::Unknown { path: path.to_owned(), wanted: wanted.to_owned(), known: known.told() });
    }
    Ok(found)
}

/// Which calls there are, as far as it helps whoever asked for another.
struct Known {
    by_number: Option<u64>,
    wanted: String,
    calls: usize,
    first: Option<u64>,
    last: Option<u64>,
    /// The nearest numbers on both sides.
    below: Option<u64>,
    above: Option<u64>,
    /// The request id that has most of its beginning in common with what was asked for.
    alike: Option<(usize, String)>,
}

impl Known {
    fn new(wanted: &str) -> Known {
        Known {
            by_number: wanted.parse().ok(),
            wanted: wanted.to_owned(),
            calls: 0,
            first: None,
            last: None,
            below: None,
            above: None,
            alike: None,
        }
    }

    /// Takes note of a call; whether it is the one asked for.
    fn note(&mut self, id: u64, request_id: &str) -> bool {
        self.calls += 1;
        self.first = Some(self.first.map_or(id, |first| first.min(id)));
        self.last = Some(self.last.map_or(id, |last| last.max(id)));
        if let Some(wanted) = self.by_number {
            if id < wanted {
                self.below = self.below.max(Some(id));
            } else if id > wanted {
                self.above = Some(self.above.map_or(id, |above| above.min(id)));
            }
        }
        let common = self.wanted.bytes().zip(request_id.bytes()).take_while(|(one, other)| one == other).count();
        if common >= 4 && self.alike.as_ref().is_none_or(|(best, _)| common > *best) {
            self.alike = Some((common, request_id.to_owned()));
        }
        self.by_number == Some(id) || self.wanted == request_id
    }

    fn told(&self) -> String {
        let (Some(first), Some(last)) = (self.first, self.last) else {
            return "the trace has no calls".to_owned();
        };
        let mut out = format!("the trace has {} calls, {first} to {last}", self.calls);
        let nearest: Vec<String> = [self.below, self.above].iter().flatten().map(u64::to_string).collect();
        if !nearest.is_empty() {
            let _ = write!(out, "; the nearest: {}", nearest.join(" and "));
        }
        if let Some((_, alike)) = &self.alike {
            let _ = write!(out, "; the most similar request id: {alike}");
        }
        out
    }
}
