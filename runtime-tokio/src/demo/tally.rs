//! The sums, and the summary that they make.

use std::collections::BTreeMap;
use std::time::Duration;

use surefoot_core::event::Why;
use surefoot_core::outcome::Outcome;
use surefoot_core::pool::BreakerState;

use super::client::{Ask, Mode, Seen, Verdict};
use super::screen::{Screen, Tone, waited_for};
use super::watch::{Breaker, Life, Step};

/// How often each.
type Counts = BTreeMap<String, u64>;

/// What came of a demo. Every number is counted from what single calls saw and did.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    /// Calls that were answered.
    pub(super) calls: u64,
    /// Those among them that got a whole good answer.
    pub(super) good: u64,
    /// Streams that ended with the event that says that they are incomplete.
    pub(super) told: u64,
    /// Calls that got an error.
    pub(super) errors: u64,
    /// Calls that ended in silence or with a wrong answer: there must be none.
    pub(super) misled: u64,
    /// Calls whose first attempt failed: what clients would have seen of the same attempts without failover.
    pub(super) first_failed: u64,
    /// The same calls sent straight to the first provider's twin: all of them, and the good ones.
    pub(super) straight: (u64, u64),
    /// Attempts that started.
    pub(super) attempts: u64,
    /// Further attempts on the same source, asking again for JSON included.
    pub(super) retries: u64,
    /// Attempts on another source.
    pub(super) transfers: u64,
    /// Committed streams that the gateway could not complete.
    pub(super) incomplete: u64,
    /// Openings of breakers.
    pub(super) opened: u64,
    kinds: Counts,
    streams: u64,
    sources: BTreeMap<String, Counts>,
    switches: Counts,
    waits: BTreeMap<&'static str, (u64, u64)>,
    commits: BTreeMap<&'static str, u64>,
    breakers: Counts,
    straight_saw: Counts,
    failures: Counts,
    added_us: Vec<u64>,
    plain_us: Vec<u64>,
    rescued_us: Vec<u64>,
}

fn count(counts: &mut Counts, what: impl Into<String>) {
    *counts.entry(what.into()).or_default() += 1;
}

impl Summary {
    /// Adds a call.
    pub(super) fn add(&mut self, ask: Ask, life: &Life, seen: &Seen) {
        self.calls += 1;
        self.streams += u64::from(ask.mode == Mode::Stream);
        count(&mut self.kinds, ask.protocol.name());
        match &seen.verdict {
            Verdict::Good => self.good += 1,
            Verdict::Incomplete { .. } => self.told += 1,
            Verdict::Error(_) => self.errors += 1,
            Verdict::Silent(_) | Verdict::Wrong(_) => self.misled += 1,
        }
        if let Some(why) = explained(life, seen) {
            count(&mut self.failures, why);
        }
        self.add_life(life);
        let first = seen.first_content.map_or(0, |span| u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
        if let Some(added) = life.added {
            self.added_us.push(added.0);
            self.rescued_us.push(first);
        } else if life.is_plain() {
            self.plain_us.push(first);
        }
    }

    fn add_life(&mut self, life: &Life) {
        let mut last: Option<&str> = None;
        for (source, why, end) in life.tries() {
            self.attempts += 1;
            let failed = end.is_some_and(|end| end.outcome != Outcome::Success);
            match (why, last) {
                (Why::First, _) => self.first_failed += u64::from(failed),
                (Why::Transfer, Some(last)) => {
                    self.transfers += 1;
                    count(&mut self.switches, format!("{last} → {source}"));
                }
                (Why::Transfer, None) => self.transfers += 1,
                (Why::Retry | Why::Reask, _) => self.retries += 1,
            }
            let kind = end.map_or_else(|| "under way".to_owned(), super::watch::Ended::words);
            count(self.sources.entry(source.to_owned()).or_default(), kind);
            last = Some(source);
        }
        for step in &life.steps {
            if let Step::Wait { why, from, until } = step {
                let (times, longest) = self.waits.entry(waited_for(*why)).or_default();
                *times += 1;
                *longest = (*longest).max(until.0.saturating_sub(from.0));
            }
        }
        if let Some(reason) = life.commit {
            *self.commits.entry(reason).or_default() += 1;
        }
        self.incomplete += u64::from(life.incomplete.is_some());
    }

    /// Adds the same call as its twin without failover saw it.
    pub(super) fn add_straight(&mut self, seen: &Seen) {
        self.straight.0 += 1;
        self.straight.1 += u64::from(seen.verdict.is_good());
        let kind = match &seen.verdict {
            Verdict::Good => return,
            Verdict::Incomplete { .. } => "incomplete, said so",
            Verdict::Error(error) if error.len() == 3 => error,
            Verdict::Error(error) if error.starts_with("nothing") => "hung",
            Verdict::Error(error) if error.starts_with("the connection") => "connection broke",
            Verdict::Error(_) => "error inside the stream",
            Verdict::Silent(_) => "cut off, and it did not say so",
            Verdict::Wrong(_) => "200, but not an answer",
        };
        count(&mut self.straight_saw, kind);
    }

    /// Adds a change of a breaker.
    pub(super) fn add_breaker(&mut self, change: &Breaker) {
        if change.to == BreakerState::Open {
            self.opened += 1;
            count(&mut self.breakers, change.target.clone());
        }
    }

    /// Whether every committed stream that broke told its client so, and nothing else went wrong unnoticed.
    pub(super) fn is_loud(&self) -> bool {
        self.misled == 0 && self.incomplete == self.told
    }

    /// The share of the calls that were good, in percent.
    pub(super) fn good_percent(&self) -> f64 {
        percent(self.good, self.calls)
    }

    pub(super) fn print(&self, screen: &mut Screen<'_>, took: Duration) -> std::io::Result<()> {
        screen.line("")?;
        screen.line(&screen.paint(Tone::Title, "── what happened ──"))?;
        let kinds = listed(&self.kinds);
        let calls = format!("{} in {:.0} s: {kinds}; {} of them streams", self.calls, took.as_secs_f64(), self.streams);
        fact(screen, "calls", Tone::Plain, &calls)?;
        self.print_clients(screen)?;
        screen.line("")?;
        screen.line(&screen.paint(Tone::Title, "── what the providers did to the gateway ──"))?;
        for (source, kinds) in &self.sources {
            let attempts: u64 = kinds.values().sum();
            let tone = if kinds.len() > 1 { Tone::Note } else { Tone::Plain };
            fact(screen, source, tone, &format!("{attempts} attempts: {}", times(kinds)))?;
        }
        screen.line("")?;
        screen.line(&screen.paint(Tone::Title, "── what the gateway did about it ──"))?;
        self.print_deeds(screen)
    }

    fn print_clients(&self, screen: &mut Screen<'_>) -> std::io::Result<()> {
        let tone = if self.misled > 0 { Tone::Bad } else { Tone::Good };
        let saw = format!(
            "{:.1} % whole good answers ({}); {} streams that broke and said so; {} errors; {} misled",
            self.good_percent(),
            self.good,
            self.told,
            self.errors,
            self.misled,
        );
        fact(screen, "clients saw", tone, &saw)?;
        for (why, times) in &self.failures {
            fact(screen, "", Tone::Quiet, &format!("{} {why}", together(&format!("{times} ×"))))?;
        }
        let kept = self.calls - self.first_failed;
        let first = format!(
            "{:.1} %: {} of {} first attempts failed, even with breakers to steer them",
            percent(kept, self.calls),
            self.first_failed,
            self.calls
        );
        fact(screen, "no failover", Tone::Note, &first)?;
        let (all, good) = self.straight;
        if all > 0 {
            let straight =
                format!("{:.1} %: the same {all} calls, each sent straight to a twin of u1, once", percent(good, all));
            fact(screen, "no gateway", Tone::Bad, &straight)?;
            fact(screen, "", Tone::Quiet, &times(&self.straight_saw))?;
        }
        Ok(())
    }

    fn print_deeds(&self, screen: &mut Screen<'_>) -> std::io::Result<()> {
        fact(screen, "retries", Tone::Plain, &format!("{} on the same provider", self.retries))?;
        let switches = if self.switches.is_empty() { String::new() } else { format!(": {}", listed(&self.switches)) };
        fact(screen, "transfers", Tone::Plain, &format!("{} to another provider{switches}", self.transfers))?;
        let waits = self.waits.iter().map(|(why, (times, longest))| {
            format!("{times} × for {why}, {} at the longest", surefoot_core::time::Span(*longest))
        });
        fact(screen, "waited", Tone::Plain, &or_never(waits.collect::<Vec<_>>().join("; ")))?;
        let opened = self.breakers.iter().map(|(target, times)| together(&format!("{target} {times} ×")));
        fact(screen, "breakers", Tone::Plain, &format!("opened: {}", or_never(opened.collect::<Vec<_>>().join(", "))))?;
        let commits =
            self.commits.iter().map(|(why, times)| format!("{times} on {why}")).collect::<Vec<_>>().join(", ");
        fact(screen, "commits", Tone::Plain, &format!("{commits}; from there on the client owns the answer"))?;
        let (tone, loud) = match (self.incomplete, self.is_loud()) {
            (0, true) => (Tone::Plain, "none".to_owned()),
            (some, true) => (Tone::Good, format!("{some}, each ended with its stream_incomplete event")),
            (some, false) => {
                (Tone::Bad, format!("{some}, but {} clients were told and {} misled", self.told, self.misled))
            }
        };
        fact(screen, "incomplete", tone, &loud)?;
        let added = match spread(&self.added_us) {
            Some((median, p95, most)) => {
                format!("{median} median, {p95} p95, {most} at most, from the first failure to the first content")
            }
            None => "nothing: no answer needed it".to_owned(),
        };
        fact(screen, "failover", Tone::Plain, &format!("added {added}"))?;
        if let (Some((plain, ..)), Some((rescued, ..))) = (spread(&self.plain_us), spread(&self.rescued_us)) {
            let both = format!("{plain} (median) when the first attempt was good, {rescued} after failover");
            fact(screen, "first word", Tone::Plain, &both)?;
        }
        Ok(())
    }
}

/// Why a call did not end well; `None` = it did.
fn explained(life: &Life, seen: &Seen) -> Option<String> {
    let last = life.tries().last().and_then(|(source, _, end)| Some(format!("{source} {}", end?.words())));
    let last = last.unwrap_or_else(|| "no attempt".to_owned());
    match &seen.verdict {
        Verdict::Good => None,
        Verdict::Incomplete { .. } => {
            Some(format!("{last}, after its first words: those stay, and stream_incomplete follows"))
        }
        Verdict::Error(error) => Some(format!("{last}: the client got {error}")),
        Verdict::Silent(what) | Verdict::Wrong(what) => Some(format!("{last}: {what}")),
    }
}

/// A labelled line; what is too long for one goes on below, in the same column.
fn fact(screen: &mut Screen<'_>, label: &str, tone: Tone, text: &str) -> std::io::Result<()> {
    const LABEL: usize = 13;
    const WIDTH: usize = 66;
    let mut label = label;
    for line in wrapped(text, WIDTH) {
        screen.line(&format!("{label:LABEL$}{}", screen.paint(tone, &line)))?;
        label = "";
    }
    Ok(())
}

pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { continue };
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.into_iter().map(|line| line.replace('\u{a0}', " ")).collect()
}

fn listed(counts: &Counts) -> String {
    counts.iter().map(|(what, times)| together(&format!("{what} {times}"))).collect::<Vec<_>>().join(", ")
}

/// A text that is not to be wrapped.
fn together(text: &str) -> String {
    text.replace(' ', "\u{a0}")
}

/// `12 × 503, 3 × 200 empty`, the most frequent first.
fn times(counts: &Counts) -> String {
    let mut counts: Vec<(&String, &u64)> = counts.iter().collect();
    counts.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    counts.iter().map(|(what, times)| together(&format!("{times} × {what}"))).collect::<Vec<_>>().join(", ")
}

fn or_never(text: String) -> String {
    if text.is_empty() { "never".to_owned() } else { text }
}

fn percent(part: u64, all: u64) -> f64 {
    // Rounded down: one bad call among thousands is not 100.0 %.
    (part * 1000).checked_div(all).map_or(100.0, |tenths| tenths as f64 / 10.0)
}

/// Median, 95th percentile and maximum.
fn spread(values: &[u64]) -> Option<(surefoot_core::time::Span, surefoot_core::time::Span, surefoot_core::time::Span)> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = |percent: usize| sorted.get((sorted.len() * percent / 100).min(sorted.len() - 1)).copied();
    let last = *sorted.last()?;
    let span = surefoot_core::time::Span;
    Some((span(at(50)?), span(at(95)?), span(last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_of_few_values_is_made_of_them() {
        let shown = |values: &[u64]| spread(values).map(|(median, p95, most)| (median.0, p95.0, most.0));
        assert_eq!(shown(&[]), None);
        assert_eq!(shown(&[7]), Some((7, 7, 7)));
        assert_eq!(shown(&[3, 1, 2]), Some((2, 3, 3)));
    }

    #[test]
    fn long_facts_are_wrapped_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("longer than", 3), ["longer", "than"]);
        assert_eq!(wrapped(&format!("some {}", together("3 × 503")), 9), ["some", "3 × 503"]);
    }

    #[test]
    fn a_share_is_never_rounded_up() {
        assert_eq!((percent(9999, 10000), percent(0, 0), percent(2, 2)), (99.9, 100.0, 100.0));
    }
}
