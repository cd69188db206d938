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

#[cfg(test)]
mod tests {
    use super::super::client::{Mode, Protocol};
    use super::super::watch::Ended;
    use super::*;
    use surefoot_core::event::{Fault, Reason, Why};
    use surefoot_core::time::Span;

    fn tried(source: &str, outcome: Outcome, status: Option<u16>, reason: Reason) -> Step {
        let end = Some(Ended { outcome, status, reason });
        Step::Try { source: source.to_owned(), why: Why::First, probe: false, end }
    }

    fn shown(live: bool, steps: Vec<Step>, verdict: Verdict) -> String {
        let mut out = Vec::new();
        let ask = Ask { model: "smart", protocol: Protocol::Chat, mode: Mode::Stream };
        let seen = Seen { verdict, first_content: None, took: Duration::from_millis(64), attempts: None };
        let life = Life { steps, ..Life::default() };
        Screen::new(&mut out, live).call(Duration::from_millis(4120), ask, &life, &seen).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn failing() -> Step {
        tried("u1", Outcome::Transient, Some(503), Reason::Status)
    }

    fn good() -> Step {
        tried("u2", Outcome::Success, Some(200), Reason::Good)
    }

    #[test]
    fn a_call_is_one_line_that_tells_its_way() {
        let line = shown(false, vec![failing(), failing(), good()], Verdict::Good);
        assert_eq!(line, "  4.1s smart chat      stream u1 503 → u1 503 → u2 200                64 ms  ok\n");
        let wait = Step::Wait { why: Refusal::Resting, from: Span::from_millis(3), until: Span::from_millis(409) };
        let limited = tried("u1", Outcome::RateLimited, Some(429), Reason::Status);
        let line = shown(false, vec![limited, wait, good()], Verdict::Incomplete { words: 5 });
        assert!(line.contains("u1 429 → waits 406 ms → u2 200"), "{line}");
        assert!(line.ends_with("5 words, then stream_incomplete\n"), "{line}");
    }

    #[test]
    fn the_middle_of_a_long_way_is_left_out() {
        let mut steps = vec![failing(); 9];
        steps.push(good());
        let line = shown(false, steps, Verdict::Good);
        assert!(line.contains("u1 503 → u1 503 → u1 503 → 5 more → u1 503 → u2 200"), "{line}");
    }

    #[test]
    fn a_200_that_is_none_says_what_is_wrong_with_it() {
        let words = |status, reason| told(&tried("u1", Outcome::Transient, status, reason)).1;
        assert_eq!(words(Some(200), Reason::ErrorObject), "u1 200 error inside");
        assert_eq!(words(Some(200), Reason::Fault(Fault::Reset)), "u1 200 cut off");
        assert_eq!(words(None, Reason::Fault(Fault::ConnectTimeout)), "u1 connect timeout");
        assert_eq!(words(None, Reason::FirstByteTimeout), "u1 silence");
    }

    #[test]
    fn only_a_terminal_gets_colours_and_a_line_that_is_written_over() {
        assert!(shown(true, vec![failing(), good()], Verdict::Good).contains("\x1b[31mu1 503\x1b[0m"));
        let played = |live| {
            let mut out = Vec::new();
            let mut screen = Screen::new(&mut out, live);
            screen.bottom("below").and_then(|()| screen.line("above")).and_then(|()| screen.bottom("")).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(played(true), "\r\x1b[2Kbelow\r\x1b[2Kabove\nbelow\r\x1b[2K");
        assert_eq!(played(false), "above\n");
    }
}
