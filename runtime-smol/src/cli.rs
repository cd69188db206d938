//! The `surefoot-smol` command: its arguments, and what each of them runs.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use surefoot_core::policy::config::Config;
use surefoot_runtime::cli::{ConfigArgument, FAILED, GOOD, MISUSED, arguments, complain, telemetry_note};
use surefoot_runtime::logging;

use crate::executor::Tasks;
use crate::serve;

/// Keeps LLM traffic on its feet, on smol.
#[derive(Debug, Parser)]
#[command(name = "surefoot-smol", version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the gateway
    Serve(ConfigArgument),
    /// Validates a configuration offline
    Check(ConfigArgument),
}

/// Runs the command that the process was started with.
pub fn run() -> ExitCode {
    let arguments: Arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let code = match arguments.command {
        Command::Serve(argument) => run_serve(&argument),
        Command::Check(argument) => run_check(&argument),
    };
    ExitCode::from(code)
}

fn run_check(argument: &ConfigArgument) -> u8 {
    match argument.check(|_| None) {
        Ok(config) => {
            absent(&config).for_each(|what| println!("note: {what}"));
            GOOD
        }
        Err(code) => code,
    }
}

/// What a configuration asks for and this binary does not have.
fn absent(config: &Config) -> impl Iterator<Item = &'static str> {
    let shared = config.state.url.is_some().then_some(
        "state.url: surefoot-smol shares no gate with other gateways and keeps its own; run surefoot where they must share one",
    );
    shared.into_iter().chain(telemetry_note())
}

fn run_serve(argument: &ConfigArgument) -> u8 {
    let (config, origin) = match argument.load(|_| None) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    logging::init("info");
    absent(&config).for_each(|what| tracing::warn!("{what}"));
    let tasks = Tasks::default();
    match tasks.run(serve::serve(config, origin, tasks.clone())) {
        Ok(Ok(())) => GOOD,
        Ok(Err(error)) => complain(&error, MISUSED),
        Err(error) => complain(&error, FAILED),
    }
}
