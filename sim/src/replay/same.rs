//! The same policy: every call does again what it did, or the first difference is shown (X8).

use std::fmt;
use std::path::Path;

use surefoot_core::trace::{Difference, TraceError};

use super::scan::{ReadError, Scan, scan};

/// Problems and differences that are shown one by one; the others are counted.
const SHOWN: usize = 5;

/// What a replay under the policies of its own time found.
#[derive(Debug)]
pub struct Same {
    /// Calls replayed, the unfinished ones included.
    pub calls: usize,
    /// Calls whose record has no end: the gateway was stopped, or the file is cut.
    pub unfinished: usize,
    /// The first difference of each call that did something else, in the order of the calls.
    pub differences: Vec<Difference>,
    /// Lines that cannot be read.
    pub problems: Vec<TraceError>,
    /// Lines that are of no use because of those.
    pub useless: usize,
    /// Lines of the file.
    pub lines: usize,
}

/// Replays every call of a file with so many threads.
///
/// # Errors
/// Where there is no trace at all.
pub fn same(path: &Path, threads: usize) -> Result<Same, ReadError> {
    let Scan { calls, problems, useless, lines, .. } =
        scan(path, threads, |call| (call.complete, call.replay().err()))?;
    let unfinished = calls.iter().filter(|(_, (complete, _))| !complete).count();
    let count = calls.len();
    let differences = calls.into_iter().filter_map(|(_, (_, difference))| difference).collect();
    Ok(Same { calls: count, unfinished, differences, problems, useless, lines })
}

impl Same {
    /// 0 = everything could be read and did the same, 1 = something did not, 2 = something could not be read, or nothing was
    /// there.
    pub fn exit_code(&self) -> u8 {
        match (self.differences.is_empty(), self.problems.is_empty()) {
            (false, _) => 1,
            (true, false) => 2,
            (true, true) if self.calls == 0 => 2,
            (true, true) => 0,
        }
    }
}

impl fmt::Display for Same {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Same { calls, unfinished, differences, problems, useless, lines } = self;
        let identical = calls - differences.len();
        writeln!(
            f,
            "{} in {}: {identical} did the same again, {} did not",
            counted(*calls, "call"),
            counted(*lines, "line"),
            differences.len()
        )?;
        if *unfinished > 0 {
            writeln!(
                f,
                "{} of them without an end in the file: replayed as far as they go",
                counted(*unfinished, "call")
            )?;
        }
        if *calls == 0 && problems.is_empty() {
            writeln!(f, "there is nothing to replay; a gateway writes a call's lines once it came")?;
        }
        for difference in differences.iter().take(SHOWN) {
            writeln!(f, "{difference}")?;
        }
        if differences.len() > SHOWN {
            writeln!(f, "… and {} more", counted(differences.len() - SHOWN, "call"))?;
        }
        for problem in problems.iter().take(SHOWN) {
            writeln!(f, "{problem}")?;
        }
        if problems.len() > SHOWN {
            writeln!(f, "… and {} more with something wrong", counted(problems.len() - SHOWN, "line"))?;
        }
        if *useless > 0 {
            writeln!(f, "{} of the same calls: of no use without those", counted(*useless, "more line"))?;
        }
        Ok(())
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
