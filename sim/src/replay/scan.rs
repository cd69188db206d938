//! A trace file read by several threads. Each call's lines go to one of them, so that calls are put together and worked on
//! side by side, and no call stays in memory once it was.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use memchr::{memchr, memrchr};
use surefoot_core::trace::{Problem, Reader, RecordedCall, TraceError, read_line};

/// So much is read at a time.
const BLOCK: usize = 1 << 20;
/// No line of a trace is longer: an answer is held to 64 MiB, and base64 makes a third more of it.
pub(super) const MAX_LINE: usize = 128 << 20;
/// Blocks that wait for one thread.
const WAITING: usize = 4;
/// Where a line names its call, if it does.
const NAMES_CALL_WITHIN: usize = 96;

/// Why a file is no trace to begin with.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not there, or may not be read.
    #[error("{path}: cannot be read: {source}; name a file that `surefoot serve` wrote (`trace.path`)")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is nothing in it.
    #[error("{path}: line 1: the file is empty; a gateway writes to it once `trace.path` names it and a call came")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Its first lines are none of a trace's.
    #[error("{path}: {error}")]
    NoTrace {
        /// The file.
        path: PathBuf,
        /// What is wrong with the line.
        error: TraceError,
    },
    /// A line without an end.
    #[error("{path}: line {line}: longer than any line of a trace; is it one?")]
    Endless {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
}

/// What a whole file gave.
#[derive(Debug)]
pub struct Scan<T> {
    /// What was made of each call, with the line where the call begins; in that order.
    pub calls: Vec<(usize, T)>,
    /// Lines that cannot be read, in their order: of each call the first.
    pub problems: Vec<TraceError>,
    /// Lines that are of no use because one before them cannot be read.
    pub useless: usize,
    /// Lines of the file.
    pub lines: usize,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Goes through a file with so many threads, and makes something of each call: of those that ended as soon as they did,
/// of the others when the file is over. What comes out does not depend on the number of threads.
///
/// # Errors
/// Where there is no trace at all. Single lines that are wrong are told in the result.
pub fn scan<T: Send>(
    path: &Path,
    threads: usize,
    make: impl Fn(&RecordedCall) -> T + Sync,
) -> Result<Scan<T>, ReadError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    let threads = threads.clamp(1, 64);
    std::thread::scope(|scope| {
        let (senders, workers): (Vec<_>, Vec<_>) = (0..threads)
            .map(|number| {
                let (sender, batches) = sync_channel(WAITING);
                let make = &make;
                (sender, scope.spawn(move || work(&batches, number == 0, make)))
            })
            .unzip();
        let mut deal = Deal { path, senders, number: 0, bytes: 0, beginning: Beginning::default() };
        let dealt = deal.all(&mut file);
        let (lines, bytes) = (deal.number, deal.bytes);
        drop(deal);
        let mut whole = Scan { calls: Vec::new(), problems: Vec::new(), useless: 0, lines, bytes };
        for worker in workers {
            let part: Part<T> = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            whole.calls.extend(part.calls);
            whole.problems.extend(part.problems);
            whole.useless += part.useless;
        }
        dealt?;
        whole.calls.sort_by_key(|(line, _)| *line);
        whole.problems.sort_by_key(|error| error.line);
        Ok(whole)
    })
}

/// As many threads as the machine has cores.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Some lines of a block, with their numbers.
struct Batch {
    block: Arc<Vec<u8>>,
    lines: Vec<(usize, Range<usize>)>,
}

/// Deals the lines out.
struct Deal<'a> {
    path: &'a Path,
    senders: Vec<SyncSender<Batch>>,
    number: usize,
    bytes: u64,
    beginning: Beginning,
}

impl Deal<'_> {
    fn all(&mut self, file: &mut File) -> Result<(), ReadError> {
        let mut rest: Vec<u8> = Vec::new();
        loop {
            let mut block = std::mem::take(&mut rest);
            block.reserve(BLOCK);
            let read = file.by_ref().take(BLOCK as u64).read_to_end(&mut block);
            let read = read.map_err(|source| ReadError::Io { path: self.path.to_owned(), source })?;
            self.bytes += read as u64;
            if read == 0 {
                // A last line without its end: cut off, or all there.
                let length = block.len();
                self.block(block, length)?;
                self.beginning.over().map_err(|error| self.no_trace(error))?;
                return if self.number == 0 { Err(ReadError::Empty { path: self.path.to_owned() }) } else { Ok(()) };
            }
            let whole = memrchr(b'\n', &block).map_or(0, |at| at + 1);
            rest.extend_from_slice(block.get(whole..).unwrap_or_default());
            if rest.len() > MAX_LINE {
                let lines = block.iter().filter(|byte| **byte == b'\n').count();
                return Err(ReadError::Endless { path: self.path.to_owned(), line: self.number + lines + 1 });
            }
            self.block(block, whole)?;
        }
    }

    /// Deals the first `whole` bytes of a block out.
    fn block(&mut self, block: Vec<u8>, whole: usize) -> Result<(), ReadError> {
        let threads = self.senders.len();
        let mut lots: Vec<Vec<(usize, Range<usize>)>> = vec![Vec::new(); threads];
        let mut from = 0;
        while from < whole {
            let text = block.get(from..whole).unwrap_or_default();
            let length = memchr(b'\n', text).unwrap_or(text.len());
            let line = text.get(..length).unwrap_or_default();
            self.number += 1;
            self.beginning.hear(self.number, line).map_err(|error| self.no_trace(error))?;
            let place = (self.number, from..from + length);
            match call_of(line) {
                Some(call) => lots[(call % threads as u64) as usize].push(place),
                None => lots.iter_mut().for_each(|lot| lot.push(place.clone())),
            }
            from += length + 1;
        }
        let block = Arc::new(block);
        for (sender, lines) in self.senders.iter().zip(lots).filter(|(_, lines)| !lines.is_empty()) {
            // A thread that is gone has panicked, and says so when it is joined.
            let _ = sender.send(Batch { block: block.clone(), lines });
        }
        Ok(())
    }

    fn no_trace(&self, error: TraceError) -> ReadError {
        ReadError::NoTrace { path: self.path.to_owned(), error }
    }
}

/// A file that does not even begin like a trace is none: one message, not one a line. A first line that is cut off, as in
/// the tail of a file, says nothing of those behind it.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    /// What is wrong with the first line, until the second is seen.
    doubt: Option<TraceError>,
}

impl Beginning {
    /// Hears a line.
    ///
    /// # Errors
    /// What is wrong with the first, once it is sure that there is no trace.
    pub(super) fn hear(&mut self, number: usize, line: &[u8]) -> Result<(), TraceError> {
        match number {
            1 => match strange(line) {
                Some(error) if !matches!(error.problem, Problem::NotJson) => Err(error),
                doubt => {
                    self.doubt = doubt;
                    Ok(())
                }
            },
            2 if line.is_empty() || strange(line).is_some() => self.over(),
            _ => {
                self.doubt = None;
                Ok(())
            }
        }
    }

    /// No line comes any more, or none that is a trace's.
    ///
    /// # Errors
    /// As [`Beginning::hear`].
    pub(super) fn over(&mut self) -> Result<(), TraceError> {
        self.doubt.take().map_or(Ok(()), Err)
    }
}

/// Why a line is none that any trace has.
fn strange(line: &[u8]) -> Option<TraceError> {
    let read = std::str::from_utf8(line).map_err(|_| TraceError { line: 1, problem: Problem::NotJson });
    let error = read.and_then(|text| if text.is_empty() { Ok(()) } else { read_line(text, 1).map(drop) }).err()?;
    matches!(error.problem, Problem::NotJson | Problem::Version { .. }).then_some(error)
}

/// The call that a line is of: policies' lines and such as cannot be read are nobody's.
pub(super) fn call_of(line: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b",\"call\":";
    let head = line.get(..line.len().min(NAMES_CALL_WITHIN)).unwrap_or_default();
    let at = memchr::memmem::find(head, NAME)?;
    let digits = line.get(at + NAME.len()..).unwrap_or_default();
    let digits = digits.iter().take(20).take_while(|byte| byte.is_ascii_digit());
    digits.fold(None, |number: Option<u64>, digit| {
        Some(number.unwrap_or(0).wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
    })
}

/// What one thread made.
struct Part<T> {
    calls: Vec<(usize, T)>,
    problems: Vec<TraceError>,
    useless: usize,
}

/// Takes the lines of its calls. Lines that are nobody's come to every thread; the first tells of them.
fn work<T>(batches: &Receiver<Batch>, first: bool, make: &impl Fn(&RecordedCall) -> T) -> Part<T> {
    let mut reader = Reader::new();
    let mut part = Part { calls: Vec::new(), problems: Vec::new(), useless: 0 };
    // Calls of which a line is missing: what is left of them says nothing.
    let mut broken: BTreeSet<u64> = BTreeSet::new();
    while let Ok(Batch { block, lines }) = batches.recv() {
        for (number, range) in lines {
            let line = block.get(range).unwrap_or_default();
            let call = call_of(line);
            let read = match std::str::from_utf8(line) {
                Ok(text) => reader.push_at(number, text),
                Err(_) => Err(TraceError { line: number, problem: Problem::NotJson }),
            };
            match (read, call) {
                (Ok(Some(call)), _) => part.calls.push((call.first_line(), make(&call))),
                (Ok(None), Some(call)) if line.starts_with(b"{\"v\":1,\"begin\"") => {
                    broken.remove(&call);
                }
                (Ok(None), _) => {}
                (Err(_), Some(call)) if broken.contains(&call) => part.useless += 1,
                (Err(error), Some(call)) => {
                    broken.insert(call);
                    part.problems.push(error);
                }
                (Err(error), None) if first => part.problems.push(error),
                (Err(_), None) => {}
            }
        }
    }
    for call in reader.unfinished().iter().filter(|call| !broken.contains(&call.begin.id.0)) {
        part.calls.push((call.first_line(), make(call)));
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lines_call_is_found_without_reading_the_line() {
        let call = |line: &str| call_of(line.as_bytes());
        assert_eq!(call(r#"{"v":1,"in":"chunk","call":42,"at":5,"text":",\"call\":7"}"#), Some(42));
        assert_eq!(call(r#"{"v":1,"begin":"count_tokens","call":7"#), Some(7));
        assert_eq!(call(r#"{"v":1,"policy":"00","model":"m"}"#), None);
        assert_eq!([call(""), call(r#"{"v":1,"in":"x","call":"#)], [None, None]);
    }
}
