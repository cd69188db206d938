//! Commands that serve nobody: they look at what a gateway wrote, or play worlds.

pub mod explain;
pub mod replay;
pub mod sim;

use std::io::{ErrorKind, Write};

use surefoot_runtime::cli::{FAILED, GOOD, complain};

/// Writes to stdout. The exit code: whoever closed the pipe has seen enough, a full disk is an error.
fn say(text: &str) -> u8 {
    say_to(&mut std::io::stdout().lock(), text)
}

fn say_to(out: &mut dyn Write, text: &str) -> u8 {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            complain(&format!("the result cannot be written: {error}"), FAILED)
        }
        _ => GOOD,
    }
}
