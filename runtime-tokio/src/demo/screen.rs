//! What is printed: a line for each call, one at the bottom that changes, and colours, where there is a terminal for them.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use super::client::{Ask, Seen, Verdict};
use super::watch::{Life, Step};
use surefoot_core::outcome::Outcome;
use surefoot_core::pool::Refusal;

/// Columns of the chain; a longer one pushes what follows to the right.
pub(super) const CHAIN: usize = 36;
/// Steps of a call that are shown; of a longer story the middle is left out.
const STEPS: usize = 6;

/// What a piece of text is about.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Title,
    Quiet,
    Good,
    /// Worth a look.
    Note,
    Bad,
}

/// Where the demo writes.
pub(super) struct Screen<'a> {
    out: &'a mut (dyn Write + Send),
    /// A terminal: colours, and a line at the bottom that is written over.
    live: bool,
    bottom: String,
}

impl<'a> Screen<'a> {
    pub(super) fn new(out: &'a mut (dyn Write + Send), live: bool) -> Screen<'a> {
        Screen { out, live, bottom: String::new() }
    }

    pub(super) fn is_live(&self) -> bool {
        self.live
    }

    /// Text in its tone, if this is a terminal.
    pub(super) fn paint(&self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Title => "1",
            Tone::Quiet => "2",
            Tone::Good => "32",
            Tone::Note => "33",
            Tone::Bad => "31",
        };
        if self.live { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Writes a line above the one at the bottom.
    pub(super) fn line(&mut self, line: &str) -> io::Result<()> {
        if self.live && !self.bottom.is_empty() {
            write!(self.out, "\r\x1b[2K{line}\n{}", self.bottom)?;
        } else {
            writeln!(self.out, "{line}")?;
        }
        self.out.flush()
    }

    /// Writes the line at the bottom anew; empty takes it away. Nothing without a terminal.
    pub(super) fn bottom(&mut self, line: &str) -> io::Result<()> {
        if !self.live || line == self.bottom {
            return Ok(());
        }
        // A line that wraps could not be written over.
        write!(self.out, "\r\x1b[2K{line}")?;
        line.clone_into(&mut self.bottom);
        self.out.flush()
    }

    /// What stands above the lines of calls.
    pub(super) fn headings(&mut self) -> io::Result<()> {
        let chain = "what happened upstream";
        self.line(
            &self.paint(Tone::Quiet, &format!("  time model protocol  kind   {chain:CHAIN$}     took  the client saw")),
        )
    }

    /// The line of a call.
    pub(super) fn call(&mut self, at: Duration, ask: Ask, life: &Life, seen: &Seen) -> io::Result<()> {
        let (mut chain, mut width) = (String::new(), 0);
        for (tone, text) in chained(&life.steps) {
            if width > 0 {
                chain.push_str(&self.paint(Tone::Quiet, " → "));
                width += 3;
            }
            width += text.chars().count();
            chain.push_str(&self.paint(tone, &text));
        }
        let pad = " ".repeat(CHAIN.saturating_sub(width));
        let (model, protocol, mode) = (ask.model, ask.protocol.name(), ask.mode.name());
        let (tone, verdict) = judged(&seen.verdict);
        let verdict = self.paint(tone, &verdict);
        let (at, took) = (self.paint(Tone::Quiet, &seconds(at)), seen.took.as_millis());
        self.line(&format!("{at} {model:5} {protocol:9} {mode:6} {chain}{pad} {took:>5} ms  {verdict}"))
    }
}

/// Whether to colour and to write over lines: a terminal that can, and nobody who asked for less.
pub(super) fn is_terminal() -> bool {
    let said = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    io::stdout().is_terminal() && said("NO_COLOR").is_none() && said("TERM").is_none_or(|term| term != "dumb")
}

pub(super) fn seconds(span: Duration) -> String {
    format!("{:5.1}s", span.as_secs_f64())
}

/// The steps of a call in words, those in the middle of a long story as a number.
fn chained(steps: &[Step]) -> Vec<(Tone, String)> {
    let all = steps.iter().map(told);
    if steps.len() <= STEPS {
        return all.collect();
    }
    let (head, tail) = (STEPS / 2, STEPS / 2 - 1);
    let left_out = (Tone::Quiet, format!("{} more", steps.len() - head - tail));
    all.clone().take(head).chain([left_out]).chain(all.skip(steps.len() - tail)).collect()
}

/// A step of a call in words: `u1 503`.
fn told(step: &Step) -> (Tone, String) {
    match step {
        Step::Try { source, probe, end, .. } => {
            let (tone, words) = match end {
                Some(end) if end.outcome == Outcome::Success => (Tone::Plain, end.words()),
                Some(end) if end.outcome == Outcome::RateLimited => (Tone::Note, end.words()),
                Some(end) => (Tone::Bad, end.words()),
                None => (Tone::Quiet, "under way".to_owned()),
            };
            let probe = if *probe { " probe" } else { "" };
            (tone, format!("{source}{probe} {words}"))
        }
        Step::Wait { from, until, .. } => {
            (Tone::Note, format!("waits {}", surefoot_core::time::Span(until.0.saturating_sub(from.0))))
        }
    }
}

/// Why a call had to wait.
pub(super) fn waited_for(why: Refusal) -> &'static str {
    match why {
        Refusal::Resting => "rate limits",
        Refusal::Backoff => "backoff",
        Refusal::Paced => "pace after a rate limit",
        Refusal::Full => "limits of our own",
        Refusal::Breaker => "a breaker",
        Refusal::StoreDown => "the store",
        Refusal::Nothing => "nothing",
    }
}

/// What the client saw, in a word or two.
fn judged(verdict: &Verdict) -> (Tone, String) {
    match verdict {
        Verdict::Good => (Tone::Good, "ok".to_owned()),
        Verdict::Incomplete { words } => (Tone::Note, format!("{words} words, then stream_incomplete")),
        Verdict::Error(error) => (Tone::Note, error.clone()),
        Verdict::Silent(what) | Verdict::Wrong(what) => (Tone::Bad, format!("WRONG: {what}")),
    }
}
