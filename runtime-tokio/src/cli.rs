//! The `surefoot` command: its arguments, and what each of them runs.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use surefoot_runtime::cli::{ConfigArgument, FAILED, GOOD, MISUSED, arguments, complain, telemetry_note};

use crate::commands::{explain, replay, sim};
use crate::{demo, logging, mock, serve, state};

/// Keeps LLM traffic on its feet.
#[derive(Debug, Parser)]
#[command(name = "surefoot", version, about, arg_required_else_help = true)]
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
    /// Runs a provider that misbehaves to order
    Mock(mock::MockArgs),
    /// Shows a gateway among providers that misbehave: no keys, no configuration
    Demo(demo::DemoArgs),
    /// Tries the machine in simulated worlds: `chaos`, `p6`, or a file
    Sim(sim::SimArgs),
    /// Replays recorded calls: to the same decisions, or under another policy
    Replay(replay::ReplayArgs),
    /// Tells one recorded call's life, with the reason for every decision
    Explain(explain::ExplainArgs),
}

/// Runs the command that the process was started with.
pub fn run() -> ExitCode {
    let arguments: Arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let code = match arguments.command {
        Command::Serve(argument) => run_serve(&argument),
        Command::Check(argument) => argument.check(state::problem).map_or_else(|code| code, |_| GOOD),
        Command::Mock(arguments) => run_mock(arguments),
        Command::Demo(arguments) => run_demo(arguments),
        Command::Sim(arguments) => sim::run(arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
    };
    ExitCode::from(code)
}

fn run_serve(argument: &ConfigArgument) -> u8 {
    let (config, origin) = match argument.load(state::problem) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    logging::init("info");
    telemetry_note().into_iter().for_each(|what| tracing::warn!("{what}"));
    match runtime() {
        Ok(runtime) => match runtime.block_on(serve::serve(config, origin)) {
            Ok(()) => {
                // Lookups of names may still be under way in threads that nobody waits for.
                runtime.shutdown_background();
                GOOD
            }
            Err(error) => complain(&error, MISUSED),
        },
        Err(error) => complain(&error, FAILED),
    }
}

fn run_mock(arguments: mock::MockArgs) -> u8 {
    logging::init("info");
    match runtime() {
        Ok(runtime) => match runtime.block_on(mock::run(arguments)) {
            Ok(()) => GOOD,
            Err(error) => complain(&error, MISUSED),
        },
        Err(error) => complain(&error, FAILED),
    }
}

fn run_demo(arguments: demo::DemoArgs) -> u8 {
    // The show is on stdout; what a gateway logs among such providers would bury it.
    logging::init("error");
    match runtime() {
        Ok(runtime) => match runtime.block_on(demo::run(arguments)) {
            Ok(()) => GOOD,
            Err(error @ demo::DemoError::Gateway(_)) => complain(&error, MISUSED),
            Err(error) => complain(&error, FAILED),
        },
        Err(error) => complain(&error, FAILED),
    }
}

/// A runtime with a thread for each core; none beside this one where there is one core.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut builder = match cores {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if cores > 1 {
        builder.worker_threads(cores);
    }
    builder.enable_all().build()
}
