//! `surefoot sim p6`: the soak that the policy was calibrated on, simulated.

use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;

use surefoot_runtime::cli::{FAILED, MISUSED, complain};
use surefoot_sim::p6::{P6Args, P6Error, run_p6};

use super::super::say_to;
use super::{seed, seeds, threads};

/// Seeds of one table.
const MOST_SEEDS: u64 = 10_000;

/// Arguments of `surefoot sim p6`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct P6Arguments {
    /// These seeds, the last not included
    #[arg(long, value_name = "A..B", value_parser = seeds, default_value = "1..21", conflicts_with = "seed")]
    seeds: Range<u64>,
    /// This one alone
    #[arg(long, value_name = "SEED", value_parser = seed)]
    seed: Option<u64>,
    /// A policy of one's own, beside the study's first and the defaults: any configuration; the world brings the sources
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Writes the picture and the table as a page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Writes the picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Threads, 256 at most; as many as there are cores unless given
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<usize>,
}

/// Runs it; the exit code.
pub(super) fn run(arguments: P6Arguments, out: &mut dyn Write) -> u8 {
    let P6Arguments { seeds, seed, policy, html, svg, threads } = arguments;
    let seeds = seed.map_or(seeds, |seed| seed..seed.saturating_add(1));
    if seeds.end - seeds.start > MOST_SEEDS {
        return complain(&format!("{MOST_SEEDS} seeds at most"), MISUSED);
    }
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let args = P6Args { seeds, policy, html, svg, threads: threads.unwrap_or_else(cores) };
    match run_p6(&args) {
        Ok(table) => say_to(out, &table),
        Err(error @ P6Error::Unwritable { .. }) => complain(&error, FAILED),
        Err(error) => complain(&error, MISUSED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        p6: P6Arguments,
    }

    #[test]
    fn twenty_seeds_unless_told_otherwise() {
        let parse = |words: &str| Command::try_parse_from(std::iter::once("p6").chain(words.split_whitespace()));
        assert!(parse("").is_ok_and(|line| line.p6.seeds == (1..21) && line.p6.seed.is_none()));
        assert!(parse("--seeds 5..6 --policy mine.toml").is_ok_and(|line| line.p6.seeds == (5..6)));
        assert!(parse("--seed 0x10").is_ok_and(|line| line.p6.seed == Some(16)));
        for wrong in ["--seeds 6..5", "--seeds 5", "--seed x", "--seed 1 --seeds 1..2"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
