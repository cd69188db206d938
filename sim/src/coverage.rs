//! Which input met a call in which phase, and why some pairs cannot meet.

use std::io::{self, Write};

use surefoot_core::call::Phase;

use crate::chaos::phase_name;
use crate::world::log::{Coverage, INPUTS};

/// Pairs that cannot meet, and why. A cell that is empty without standing here is a hole in the worlds.
pub const IMPOSSIBLE: [(Phase, &str, &str); 19] = [
    (Phase::Opening, "chunk", "HTTP has no body before its head"),
    (Phase::Opening, "flushed", "nothing is forwarded before the commit"),
    (Phase::Asking, "flushed", "nothing is forwarded before the commit"),
    (Phase::Waiting, "flushed", "nothing is forwarded before the commit"),
    (Phase::Sniffing, "flushed", "nothing is forwarded before the commit"),
    (Phase::Window, "flushed", "nothing is forwarded before the commit"),
    (Phase::Body, "flushed", "nothing is forwarded before the commit"),
    (Phase::ErrorBody, "flushed", "nothing is forwarded before the commit"),
    (Phase::Sniffing, "head", "there is one head, and an attempt that was left has none to come after it"),
    (Phase::Window, "head", "there is one head, and late ones were heard before"),
    (Phase::Body, "head", "there is one head, and late ones were heard before"),
    (Phase::ErrorBody, "head", "there is one head, and late ones were heard before"),
    (Phase::Streaming, "head", "there is one head, and late ones were heard before"),
    (Phase::Passing, "head", "there is one head, and late ones were heard before"),
    (Phase::Finished, "head", "the loop hears no upstream of a call that is over"),
    (Phase::Finished, "chunk", "the loop hears no upstream of a call that is over"),
    (Phase::Finished, "end", "the loop hears no upstream of a call that is over"),
    (Phase::Finished, "fault", "the loop hears no upstream of a call that is over"),
    (Phase::Finished, "tick", "a call that is over has no timers"),
];

/// Adds the counts of one run.
pub fn add(sums: &mut Coverage, one: &Coverage) {
    for (sums, one) in sums.iter_mut().zip(one) {
        sums.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
    }
}

/// Empty cells that nothing explains.
pub fn holes(coverage: &Coverage) -> Vec<String> {
    let mut holes = Vec::new();
    for (phase, row) in Phase::ALL.into_iter().zip(coverage) {
        for (input, count) in INPUTS.into_iter().zip(row) {
            let explained = IMPOSSIBLE.iter().any(|(at, what, _)| *at == phase && *what == input);
            if *count == 0 && !explained {
                holes.push(format!("{} × {input}", phase_name(phase)));
            }
        }
    }
    holes
}

/// Writes the matrix.
pub(crate) fn write(coverage: &Coverage, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{:10}", "")?;
    for input in INPUTS {
        write!(out, "{input:>11}")?;
    }
    writeln!(out)?;
    for (phase, row) in Phase::ALL.into_iter().zip(coverage) {
        write!(out, "{:10}", phase_name(phase))?;
        for (input, count) in INPUTS.into_iter().zip(row) {
            let explained = IMPOSSIBLE.iter().any(|(at, what, _)| *at == phase && *what == input);
            match (count, explained) {
                (0, true) => write!(out, "{:>11}", "·")?,
                (0, false) => write!(out, "{:>11}", "EMPTY")?,
                (count, _) => write!(out, "{count:>11}")?,
            }
        }
        writeln!(out)?;
    }
    let holes = holes(coverage);
    if holes.is_empty() {
        return writeln!(out, "every pair met, but those that cannot (·)");
    }
    writeln!(out, "never met: {}", holes.join(", "))
}
