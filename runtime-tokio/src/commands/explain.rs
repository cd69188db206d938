//! `surefoot explain`: one call's life, line by line, with the reason for every decision.

use std::path::PathBuf;

use surefoot_runtime::cli::{MISUSED, complain};
use surefoot_sim::replay::explain::explain;

use super::say;

/// Which call of which trace.
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    /// A file that a gateway wrote (`trace.path`)
    pub trace: PathBuf,
    /// The call's number in the trace, or the `x-request-id` that its answer carried
    pub call: String,
}

/// Explains. The exit code.
pub fn run(arguments: &ExplainArgs) -> u8 {
    match explain(&arguments.trace, &arguments.call) {
        Ok(text) => say(&text),
        Err(error) => complain(&error, MISUSED),
    }
}
