//! Runs seeds without the gateway's command line: `smoke A B`, or `smoke SEED [log] [cut words]`.

use std::io::{Write, stdout};

use surefoot_sim::chaos::{ChaosArgs, SeedArgs, run_chaos, run_seed};
use surefoot_sim::scenario::cut::Cut;

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = args.iter().map_while(|word| word.parse().ok()).collect();
    let out = &mut stdout().lock();
    match numbers[..] {
        [seed] => {
            let cut = args.get(2).and_then(|words| Cut::parse(words).ok()).unwrap_or_default();
            run_seed(&SeedArgs { seed, cut, log: args.get(1).is_some_and(|word| word == "log") }, out)?;
        }
        [from, to] => {
            run_chaos(&ChaosArgs { seeds: from..to, ..ChaosArgs::default() }, out)?;
        }
        #[cfg(feature = "mutants")]
        _ if args.first().is_some_and(|word| word == "cuts") => {
            let args = surefoot_sim::mutants::MutantArgs { only: args.get(1).cloned(), ..Default::default() };
            surefoot_sim::mutants::write_cuts(&args, out)?;
        }
        #[cfg(feature = "mutants")]
        _ if args.first().is_some_and(|word| word == "mutants") => {
            let args = surefoot_sim::mutants::MutantArgs { only: args.get(1).cloned(), ..Default::default() };
            surefoot_sim::mutants::run_mutants(&args, out)?;
        }
        _ => writeln!(out, "smoke A B | smoke SEED [log] [cut]")?,
    }
    Ok(())
}
