//! The `surefoot-smol` command: its arguments, and what each of them runs.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use surefoot_runtime::cli::{ConfigArgument, FAILED, GOOD, MISUSED, arguments, complain};
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
        Command::Check(argument) => argument.check(),
    };
    ExitCode::from(code)
}

fn run_serve(argument: &ConfigArgument) -> u8 {
    let (config, origin) = match argument.load() {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    logging::init("info");
    let tasks = Tasks::default();
    match tasks.run(serve::serve(config, origin, tasks.clone())) {
        Ok(Ok(())) => GOOD,
        Ok(Err(error)) => complain(&error, MISUSED),
        Err(error) => complain(&error, FAILED),
    }
}
