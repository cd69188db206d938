//! `surefoot sim`: worlds in which the very machine that serves traffic is tried, without a socket or a wait.

mod p6;

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use surefoot_runtime::cli::{FAILED, GOOD, MISUSED, complain};
use surefoot_sim::chaos::{ChaosArgs, SeedArgs, run_chaos, run_seed};
use surefoot_sim::rng::parse_seed;
use surefoot_sim::scenario::cut::Cut;
use surefoot_sim::scenario::{file, run};

/// Runs of `chaos` unless something else is asked for.
const USUAL_RUNS: u64 = 1000;

/// Arguments of `surefoot sim`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    subcommand_value_name = "SCENARIO",
    subcommand_help_heading = "Scenarios",
    after_help = "SCENARIO may also be the path of a scenario file (TOML, or JSON by extension):\n  \
                  surefoot sim FILE [--seed N] [--policy FILE] [--log]\n\
                  A seed is a number, 0x…, or a commit's hash. docs/simulation.md tells more."
)]
pub struct SimArgs {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Clone, Debug, Subcommand)]
enum Scenario {
    /// Many hostile worlds, each drawn from its seed, under every law; what fails is made small
    Chaos(Chaos),
    /// Five sources of which one is well, under the policies that led to the defaults, or under one's own
    P6(p6::P6Arguments),
    #[command(external_subcommand)]
    File(Vec<OsString>),
}

#[derive(Clone, Debug, clap::Args)]
struct Chaos {
    /// These seeds, the last not included
    #[arg(long, value_name = "A..B", value_parser = seeds, conflicts_with = "seed")]
    seeds: Option<Range<u64>>,
    /// This one alone; with --runs the first of so many
    #[arg(long, value_name = "SEED", value_parser = seed)]
    seed: Option<u64>,
    /// How many
    #[arg(long, value_name = "N", conflicts_with = "seeds", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// What is left of the seed's world, in the words that a failure printed
    #[arg(long, value_name = "WORDS", value_parser = Cut::parse, requires = "seed", conflicts_with = "runs")]
    cut: Option<Cut>,
    /// Prints every event of the one seed
    #[arg(long, requires = "seed", conflicts_with = "runs")]
    log: bool,
    /// Threads, 256 at most; as many as there are cores unless given
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<usize>,
    /// Stops at the first run that fails
    #[arg(long)]
    fail_fast: bool,
    /// Fails when the runs have fewer calls together
    #[arg(long, value_name = "N", default_value_t = 0)]
    min_calls: u64,
    /// Fails when some input never met some phase, without a reason that is written down
    #[arg(long)]
    matrix: bool,
}

/// Arguments behind the path of a scenario file.
#[derive(Clone, Debug, Parser)]
#[command(name = "surefoot sim")]
struct FileArgs {
    /// The scenario: TOML, or JSON by extension
    #[arg(value_name = "FILE")]
    path: PathBuf,
    /// In place of the file's
    #[arg(long, value_name = "SEED", value_parser = seed)]
    seed: Option<u64>,
    /// A gateway's configuration in place of the file's; its providers get the file's sources
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Prints every event
    #[arg(long)]
    log: bool,
}

fn seed(text: &str) -> Result<u64, String> {
    parse_seed(text).ok_or_else(|| "a seed is a number, 0x… or a commit's hash".to_owned())
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("seeds are given as A..B, the last not included")?;
    let range = seed(from)?..seed(to)?;
    if range.is_empty() { Err(format!("{text} has no seed in it")) } else { Ok(range) }
}

fn threads(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| (1..=256).contains(count)).ok_or_else(|| "1 to 256 threads".to_owned())
}

/// Runs it; the exit code.
pub fn run(arguments: SimArgs) -> u8 {
    let out = &mut io::stdout().lock();
    let ran = match arguments.scenario {
        Scenario::Chaos(chaos) => run_one_or_many(chaos, out),
        Scenario::P6(arguments) => return p6::run(arguments, out),
        Scenario::File(words) => match FileArgs::try_parse_from(std::iter::once("surefoot sim".into()).chain(words)) {
            Ok(arguments) => return run_file(&arguments, out),
            Err(error) => {
                let _ = error.print();
                return if error.use_stderr() { MISUSED } else { GOOD };
            }
        },
    };
    verdict(ran)
}

fn verdict(ran: io::Result<bool>) -> u8 {
    match ran {
        Ok(true) => GOOD,
        Ok(false) => FAILED,
        Err(error) => complain(&error, FAILED),
    }
}

fn run_one_or_many(chaos: Chaos, out: &mut dyn Write) -> io::Result<bool> {
    let seeds = match (chaos.seeds, chaos.seed, chaos.runs) {
        (None, Some(seed), None) => {
            return run_seed(&SeedArgs { seed, cut: chaos.cut.unwrap_or_default(), log: chaos.log }, out);
        }
        (Some(seeds), ..) => seeds,
        (None, first, runs) => {
            let first = first.unwrap_or(0);
            // The last seeds that there are, where there are not as many behind the first.
            let runs = runs.unwrap_or(USUAL_RUNS);
            let first = first.min(u64::MAX - runs);
            first..first + runs
        }
    };
    let threads = chaos.threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
    let args = ChaosArgs {
        seeds,
        threads: threads.unwrap_or(1),
        progress: true,
        fail_fast: chaos.fail_fast,
        min_calls: chaos.min_calls,
        matrix: chaos.matrix,
    };
    run_chaos(&args, out)
}

fn run_file(arguments: &FileArgs, out: &mut dyn Write) -> u8 {
    let FileArgs { path, seed, policy, log } = arguments;
    if !path.exists() && path.components().count() == 1 && path.extension().is_none() {
        let told = format!("there is no scenario `{}`; name one of `surefoot sim --help`, or a file", path.display());
        return complain(&told, MISUSED);
    }
    match file::read(path, *seed, policy.as_deref()) {
        Ok(scenario) => verdict(run::run_scenario(scenario, *log, out)),
        Err(error) => complain(&error, MISUSED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        sim: SimArgs,
    }

    fn chaos(words: &str) -> Result<Chaos, String> {
        let words = std::iter::once("sim").chain(words.split_whitespace());
        let parsed = Command::try_parse_from(words).map_err(|error| error.to_string())?;
        match parsed.sim.scenario {
            Scenario::Chaos(chaos) => Ok(chaos),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn seeds_are_numbers_or_hashes() {
        assert_eq!(chaos("chaos --seeds 3..7").map(|chaos| chaos.seeds), Ok(Some(3..7)));
        assert_eq!(chaos("chaos --seed 0x10").map(|chaos| chaos.seed), Ok(Some(16)));
        let hash = chaos("chaos --seed 42b034a7a1b2c3d4e5f60718293a4b5c6d7e8f90 --runs 5").map(|chaos| chaos.seed);
        assert!(hash.is_ok_and(|seed| seed.is_some_and(|seed| seed > u64::from(u32::MAX))));
        for wrong in ["chaos --seeds 7..3", "chaos --seeds 7", "chaos --seed you", "chaos --cut plain"] {
            assert!(chaos(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_failures_line_is_a_command() {
        let line = chaos("chaos --seed 5 --cut clients=1,2 --log").expect("a command");
        assert_eq!((line.seed, line.log), (Some(5), true));
        assert_eq!(line.cut.map(|cut| cut.to_string()), Some("clients=1,2".to_owned()));
    }

    #[test]
    fn anything_else_is_a_file() {
        let parsed = Command::try_parse_from(["sim", "storm.toml", "--seed", "3"]).expect("a file");
        let Scenario::File(words) = parsed.sim.scenario else { panic!("no file") };
        let args =
            FileArgs::try_parse_from(std::iter::once("surefoot sim".into()).chain(words)).expect("its arguments");
        assert_eq!((args.path, args.seed), (PathBuf::from("storm.toml"), Some(3)));
    }
}
