//! Which input met a call in which phase, and why some pairs cannot meet.

use std::io::{self, Write};

use surefoot_core::call::Phase;

use crate::chaos::phase_name;
use crate::world::log::{Coverage, INPUTS};

/// Pairs that cannot meet, and why. A cell that is empty without standing here is a hole in the worlds.
pub const IMPOSSIBLE: [(Phase, &str, &str); 18] = [
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

/// With more surprises than this they are only counted.
const MAX_TOLD: usize = 8;

/// Adds the counts of one run.
pub fn add(sums: &mut Coverage, one: &Coverage) {
    for (sums, one) in sums.iter_mut().zip(one) {
        sums.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
    }
}

fn explained(phase: Phase, input: &str) -> bool {
    IMPOSSIBLE.iter().any(|(at, what, _)| *at == phase && *what == input)
}

/// What the table of [`IMPOSSIBLE`] does not say rightly: empty cells without a reason, and cells that were met although
/// there is a reason why they cannot be.
pub fn surprises(coverage: &Coverage) -> Vec<String> {
    let mut surprises = Vec::new();
    for (phase, row) in Phase::ALL.into_iter().zip(coverage) {
        for (input, count) in INPUTS.into_iter().zip(row) {
            match (*count, explained(phase, input)) {
                (0, false) => surprises.push(format!("{} × {input} was never met", phase_name(phase))),
                (1.., true) => surprises.push(format!("{} × {input} cannot be, and was met", phase_name(phase))),
                _ => {}
            }
        }
    }
    surprises
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
            match (count, explained(phase, input)) {
                (0, true) => write!(out, "{:>11}", "·")?,
                (0, false) => write!(out, "{:>11}", "EMPTY")?,
                (count, _) => write!(out, "{count:>11}")?,
            }
        }
        writeln!(out)?;
    }
    let surprises = surprises(coverage);
    if surprises.is_empty() {
        return writeln!(out, "every pair met, but those that cannot (·)");
    }
    if surprises.len() > MAX_TOLD {
        return writeln!(out, "{} pairs never met; more runs meet more", surprises.len());
    }
    writeln!(out, "{}", surprises.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_and_an_impossible_pair_are_both_surprises() {
        let mut coverage = Coverage::default();
        for (phase, row) in Phase::ALL.into_iter().zip(&mut coverage) {
            for (input, count) in INPUTS.into_iter().zip(row) {
                *count = u64::from(!explained(phase, input));
            }
        }
        assert!(surprises(&coverage).is_empty());
        coverage[Phase::Asking as usize][0] = 0;
        coverage[Phase::Finished as usize][2] = 1;
        let both = surprises(&coverage);
        assert_eq!(both, ["asking × reply was never met", "finished × chunk cannot be, and was met"]);
    }
}
