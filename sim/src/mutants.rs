//! Testing the tester: every planted bug of the core must be found, and soon.

use std::io::{self, Write};
use std::panic;

use surefoot_core::mutants::{Mutant, plant};

use crate::chaos::{ChaosArgs, run_seeds};
use crate::scenario::cut::Cut;
use crate::scenario::draw::draw;
use crate::shrink;
use crate::world::Report;
use crate::world::log::Keep;

/// What a hunt for planted bugs is asked for.
#[derive(Clone, Debug)]
pub struct MutantArgs {
    /// Runs in which each must be found.
    pub runs: u64,
    /// The first seed.
    pub first: u64,
    /// Threads; at least 1.
    pub threads: usize,
    /// This one alone.
    pub only: Option<String>,
}

impl Default for MutantArgs {
    fn default() -> MutantArgs {
        MutantArgs { runs: 2000, first: 0, threads: 2, only: None }
    }
}

impl MutantArgs {
    fn chooses(&self, mutant: Mutant) -> bool {
        self.only.as_ref().is_none_or(|only| mutant.name() == only)
    }
}

/// How a planted bug was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The bug.
    pub mutant: Mutant,
    /// Runs that it took; `None` = it lived.
    pub runs: Option<u64>,
    /// The law that it broke, or the panic.
    pub law: String,
}

/// Hunts one bug.
pub fn hunt(mutant: Mutant, args: &MutantArgs) -> Found {
    plant(Some(mutant));
    let seeds = args.first..args.first + args.runs;
    let mut first: Option<(u64, String)> = None;
    let chaos = ChaosArgs {
        seeds: seeds.clone(),
        threads: args.threads,
        progress: false,
        fail_fast: true,
        ..ChaosArgs::default()
    };
    let hunted = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        run_seeds(&chaos, |report| {
            if let Some(violation) = &report.violation
                && first.as_ref().is_none_or(|(seed, _)| report.seed < *seed)
            {
                first = Some((report.seed, violation.id.to_owned()));
            }
        });
    }));
    plant(None);
    match (first, hunted) {
        (Some((seed, law)), _) => Found { mutant, runs: Some(seed - args.first + 1), law },
        (None, Err(_)) => Found { mutant, runs: Some(1), law: "a panic".to_owned() },
        (None, Ok(())) => Found { mutant, runs: None, law: String::new() },
    }
}

/// Runs what a cut leaves of a seed's scenario with a bug planted, or with none.
pub fn run_with(mutant: Option<Mutant>, seed: u64, cut: &Cut) -> Report {
    plant(mutant);
    let report = shrink::run_cut(&draw(seed), cut, Keep::Nothing);
    plant(None);
    report
}

/// Hunts every bug and writes the small run that shows it, one a line: the bug, the law, the seed, the cut. These lines are
/// what `tests/cuts.txt` keeps.
///
/// # Errors
/// Those of `out`; a bug that lives.
pub fn write_cuts(args: &MutantArgs, out: &mut dyn Write) -> io::Result<()> {
    for mutant in Mutant::ALL.iter().copied().filter(|mutant| args.chooses(*mutant)) {
        let found = hunt(mutant, args);
        let Some(runs) = found.runs else { return Err(io::Error::other(format!("{} lives", mutant.name()))) };
        let seed = args.first + runs - 1;
        let scenario = draw(seed);
        let failed = run_with(Some(mutant), seed, &Cut::default());
        plant(Some(mutant));
        let shrunk = shrink::shrink(&scenario, &failed);
        plant(None);
        let Some(shrunk) = shrunk else {
            return Err(io::Error::other(format!("{} was not found twice", mutant.name())));
        };
        let law = shrunk.report.violation.as_ref().map_or("", |violation| violation.id);
        writeln!(out, "{} {law} {seed} {}", mutant.name(), shrunk.cut)?;
    }
    Ok(())
}

/// Hunts all planted bugs and tells how each was found. True when none lived.
///
/// # Errors
/// Those of `out`.
pub fn run_mutants(args: &MutantArgs, out: &mut dyn Write) -> io::Result<bool> {
    let mut runs = Vec::new();
    let mut lived = Vec::new();
    writeln!(out, "{:28} {:>6}  found by", "planted bug", "runs")?;
    for mutant in Mutant::ALL.iter().filter(|mutant| args.chooses(**mutant)) {
        let found = hunt(*mutant, args);
        match found.runs {
            Some(count) => {
                runs.push(count);
                writeln!(out, "{:28} {count:>6}  {}", mutant.name(), found.law)?;
            }
            None => {
                lived.push(mutant.name());
                writeln!(out, "{:28} {:>6}  nothing: it lives", mutant.name(), "-")?;
            }
        }
        out.flush()?;
    }
    runs.sort_unstable();
    let median = runs.get(runs.len() / 2).copied().unwrap_or(0);
    let most = runs.last().copied().unwrap_or(0);
    writeln!(out, "{} of {} found; median {median} runs, at most {most}", runs.len(), runs.len() + lived.len())?;
    Ok(lived.is_empty() && !runs.is_empty())
}
