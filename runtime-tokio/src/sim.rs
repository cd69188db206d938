//! `surefoot sim`: worlds in which the very machine that serves traffic is tried, without a socket or a wait.

use clap::Subcommand;

use crate::sim_p6::{self, P6Arguments};

/// Arguments of `surefoot sim`.
#[derive(Clone, Debug, clap::Args)]
#[command(subcommand_value_name = "SCENARIO", subcommand_help_heading = "Scenarios")]
pub struct SimArgs {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Clone, Debug, Subcommand)]
enum Scenario {
    /// Five sources of which one is well, under the policies that led to the defaults, or under one's own
    P6(P6Arguments),
}

/// Runs it; the exit code.
pub fn run(arguments: SimArgs) -> u8 {
    match arguments.scenario {
        Scenario::P6(arguments) => sim_p6::run(arguments),
    }
}
