//! `surefoot replay`: a trace once more, under the policy that it had or under another.

use std::path::{Path, PathBuf};
use std::time::Instant;

use surefoot_runtime::cli::{FAILED, GOOD, MISUSED, complain};
use surefoot_runtime::config_file;

use super::say;
use surefoot_sim::replay::{Comparison, Trace, html, same, threads, what_if};

/// What to replay, and under what.
#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
    /// A file that a gateway wrote (`trace.path`)
    pub trace: PathBuf,
    /// Another policy: a whole configuration, or a part of one over what the trace tells of the live policy
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Writes the result as a page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// What the drawing of modelled attempts begins with
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Replays. The exit code.
pub fn run(arguments: &ReplayArgs) -> u8 {
    let inputs = [Some(&arguments.trace), arguments.policy.as_ref()];
    if let Some(input) = inputs.into_iter().flatten().find(|input| is_same(input, arguments.html.as_deref())) {
        return complain(&format!("{}: --html would write over it; name another file", input.display()), MISUSED);
    }
    match &arguments.policy {
        Some(policy) => under_another(arguments, policy),
        None => under_the_same(arguments),
    }
}

/// Whether both are one file, by whatever names.
fn is_same(input: &Path, page: Option<&Path>) -> bool {
    let whole = |path: &Path| path.canonicalize().ok();
    page.is_some_and(|page| whole(input).is_some_and(|input| Some(input) == whole(page)))
}

fn under_the_same(arguments: &ReplayArgs) -> u8 {
    let begun = Instant::now();
    let found = match same(&arguments.trace, threads()) {
        Ok(found) => found,
        Err(error) => return complain(&error, MISUSED),
    };
    let took = begun.elapsed().as_secs_f64();
    let told = say(&format!("{found}{took:.2} s, {:.0} calls/s\n", found.calls as f64 / took.max(1e-9)));
    if let Some(path) = &arguments.html {
        let trace = match Trace::read(&arguments.trace, threads()) {
            Ok(trace) => trace,
            Err(error) => return complain(&error, MISUSED),
        };
        let code = write(path, &html::page(&shown(&arguments.trace), &trace, None));
        return found.exit_code().max(code).max(told);
    }
    found.exit_code().max(told)
}

fn under_another(arguments: &ReplayArgs, policy: &Path) -> u8 {
    let tree = match config_file::tree(policy) {
        Ok(tree) => tree,
        Err(problems) => return complain(&format!("{}: {}", policy.display(), problems.join("\n")), MISUSED),
    };
    let trace = match Trace::read(&arguments.trace, threads()) {
        Ok(trace) => trace,
        Err(error) => return complain(&error, MISUSED),
    };
    let other = match what_if(&trace, &tree, &|name| std::env::var(name).ok(), arguments.seed) {
        Ok(other) => other,
        Err(error) => return complain(&format!("{}: {error}", policy.display()), MISUSED),
    };
    let name = shown(policy);
    let compared = Comparison::new(&trace, &other);
    let told = say(&compared.text(&name));
    let written = match &arguments.html {
        Some(path) => write(path, &html::page(&shown(&arguments.trace), &trace, Some((&name, &compared)))),
        None => GOOD,
    };
    // The figures are those of what could be read.
    if trace.problems.is_empty() { written.max(told) } else { MISUSED }
}

fn write(path: &Path, page: &str) -> u8 {
    match std::fs::write(path, page) {
        Ok(()) => GOOD,
        Err(error) => complain(&format!("{}: cannot be written: {error}", path.display()), FAILED),
    }
}

/// A file's name, for titles.
fn shown(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
