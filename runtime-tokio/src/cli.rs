//! The `surefoot` command: its arguments, and what each of them runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config_file::Origin;
use crate::{demo, logging, mock, serve};

/// Good.
const GOOD: u8 = 0;
/// It ran, and came out badly.
const FAILED: u8 = 1;
/// Usage or configuration.
const MISUSED: u8 = 2;

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
}

#[derive(Debug, clap::Args)]
struct ConfigArgument {
    /// TOML, or JSON by extension; without it ./surefoot.toml, else providers from OPENAI_API_KEY and its like
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs the command that the process was started with.
pub fn run() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { MISUSED } else { GOOD });
        }
    };
    let code = match arguments.command {
        Command::Serve(argument) => run_serve(argument.config.as_deref()),
        Command::Check(argument) => run_check(argument.config.as_deref()),
        Command::Mock(arguments) => run_mock(arguments),
        Command::Demo(arguments) => run_demo(&arguments),
    };
    ExitCode::from(code)
}

fn run_serve(file: Option<&Path>) -> u8 {
    let origin = Origin::find(file);
    let config = match origin.load() {
        Ok(config) => config,
        Err(rejected) => return complain(&rejected, MISUSED),
    };
    logging::init("info");
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

fn run_check(file: Option<&Path>) -> u8 {
    let origin = Origin::find(file);
    match origin.load() {
        Ok(config) => {
            println!("{origin}: good: {} providers, {} models", config.providers.len(), config.models.len());
            GOOD
        }
        Err(rejected) => complain(&rejected, MISUSED),
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

fn run_demo(arguments: &demo::DemoArgs) -> u8 {
    // The show is on stdout; what a gateway logs among such providers would bury it.
    logging::init("error");
    match runtime() {
        Ok(runtime) => match runtime.block_on(demo::run(arguments, std::io::stdout())) {
            Ok(tally) if tally.failed() == 0 => GOOD,
            Ok(_) => FAILED,
            Err(error) => complain(&error, MISUSED),
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

fn complain(error: &dyn std::fmt::Display, code: u8) -> u8 {
    eprintln!("{error}");
    code
}
