//! The `surefoot-smol` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    surefoot_smol::cli::run()
}
