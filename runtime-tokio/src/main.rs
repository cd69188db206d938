//! The `surefoot` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    surefoot::cli::run()
}
