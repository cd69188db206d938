//! The two policies side by side, as text.

use std::fmt::Write as _;

use surefoot_core::outcome::Outcome;
use surefoot_core::time::Span;

use super::facts::{Basis, Facts, end_words};
use super::figures::{Calls, Figures, Quantiles};
use super::whatif::{Trace, WhatIf};

/// Calls that ended otherwise and are listed one by one.
const LISTED: usize = 20;

/// A comparison, ready to be shown.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// The trace.
    pub trace: &'a Trace,
    /// The other policy's side.
    pub other: &'a WhatIf,
    /// What was recorded.
    pub before: Figures,
    /// What would have been.
    pub after: Figures,
    /// The calls that ended otherwise, by their place in the trace.
    pub changed: Vec<usize>,
}

impl<'a> Comparison<'a> {
    /// Of a trace with what another policy made of it.
    pub fn new(trace: &'a Trace, other: &'a WhatIf) -> Comparison<'a> {
        let before = Figures::of(trace, trace.calls.iter().map(|call| &call.facts));
        let after = Figures::of(trace, other.calls.iter());
        let differs = |place: &usize| {
            let (one, two) = (&trace.calls[*place].facts, &other.calls[*place]);
            one.outcome() != two.outcome() || status(one) != status(two)
        };
        let changed = (0..trace.calls.len().min(other.calls.len())).filter(differs).collect();
        Comparison { trace, other, before, after, changed }
    }

    /// Calls of [`changed`](Comparison::changed) that failed and would have been served, and the other way round.
    pub fn gained_and_lost(&self) -> (usize, usize) {
        let turned = |to: bool| {
            let turned = self.changed.iter().filter(|place| {
                let (one, two) = (&self.trace.calls[**place].facts, &self.other.calls[**place]);
                one.is_success() != to && two.is_success() == to
            });
            turned.count()
        };
        (turned(true), turned(false))
    }

    /// The share of the other side's attempts that had to be modelled, 0–1; and of those that used a record once more.
    pub fn modelled(&self) -> (f64, f64) {
        let bases = self.after.bases();
        let share = |basis| {
            let count = bases.get(&basis).copied().unwrap_or_default();
            count as f64 / self.after.all.attempts.max(1) as f64
        };
        (share(Basis::Modelled), share(Basis::Reused))
    }

    /// The report.
    pub fn text(&self, name: &str) -> String {
        let mut out = String::new();
        let (trace, before) = (self.trace, &self.before);
        let _ = writeln!(
            out,
            "{} calls over {}; `recorded` is what the trace says, `{name}` what would have been under it",
            trace.calls.len(),
            before.took
        );
        if trace.left_out > 0 {
            let _ = writeln!(
                out,
                "{} calls left out: they have no end in the trace, or the gateway's stop was it",
                trace.left_out
            );
        }
        if let Some(first) = trace.problems.first() {
            let more = trace.problems.len() - 1;
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            let _ = writeln!(out, "{first}{more}; the calls of such lines are left out");
        }
        if trace.processes > 1 {
            let _ = writeln!(
                out,
                "{} processes wrote it; on the other side one gateway takes all their calls",
                trace.processes
            );
        }
        out.push('\n');
        self.totals(name, &mut out);
        let (modelled, reused) = self.modelled();
        let _ = writeln!(
            out,
            "\nmodelled: {} of {name}'s attempts were never observed, {} more repeat an observed one",
            percent(modelled),
            percent(reused)
        );
        self.models(name, &mut out);
        self.sources(name, &mut out);
        self.list(name, &mut out);
        for note in &self.other.notes {
            let _ = writeln!(out, "\nnote: {note}");
        }
        out
    }

    fn totals(&self, name: &str, out: &mut String) {
        let mut table = Table::new(&["", "recorded", name, "change"]);
        for (label, before, after, change) in rows(&self.before.all, &self.after.all) {
            table.row(vec![label.to_owned(), before, after, change]);
        }
        out.push_str(&table.text());
    }

    fn models(&self, name: &str, out: &mut String) {
        let mut table = Table::new(&["model", "calls", "success", "", "attempts", "", "added p95", ""]);
        table.row(["", "", "recorded", name, "recorded", name, "recorded", name].map(str::to_owned).to_vec());
        for (model, before) in &self.before.models {
            let Some(after) = self.after.models.get(model) else { continue };
            table.row(vec![
                model.clone(),
                before.calls.to_string(),
                success(before),
                success(after),
                before.attempts.to_string(),
                after.attempts.to_string(),
                time(&before.added, 95),
                time(&after.added, 95),
            ]);
        }
        let _ = write!(out, "\n{}", table.text());
    }

    fn sources(&self, name: &str, out: &mut String) {
        let mut table = Table::new(&[
            "source",
            "",
            "attempts",
            "served",
            "failed",
            "429",
            "dead",
            "opened",
            "wasted",
            "≈ tokens",
            "lent",
            "reused",
            "modelled",
        ]);
        let names = self.before.sources.keys().chain(self.after.sources.keys());
        let names: std::collections::BTreeSet<&String> = names.collect();
        for source in names {
            let nothing = super::figures::Source::default();
            for (side, figures, is_other) in [("recorded", &self.before, false), (name, &self.after, true)] {
                let it = figures.sources.get(source).unwrap_or(&nothing);
                let basis = |basis| if is_other { it.basis(basis).to_string() } else { String::new() };
                table.row(vec![
                    if is_other { String::new() } else { source.clone() },
                    side.to_owned(),
                    it.attempts.to_string(),
                    it.served.to_string(),
                    it.outcome(Outcome::Transient).to_string(),
                    it.outcome(Outcome::RateLimited).to_string(),
                    it.outcome(Outcome::SourceDead).to_string(),
                    it.opened.to_string(),
                    it.wasted_time.to_string(),
                    it.wasted_tokens.to_string(),
                    basis(Basis::Lent),
                    basis(Basis::Reused),
                    basis(Basis::Modelled),
                ]);
            }
        }
        let _ = write!(out, "\n{}", table.text());
    }

    fn list(&self, name: &str, out: &mut String) {
        let (gained, lost) = self.gained_and_lost();
        let _ = writeln!(
            out,
            "\n{} calls end otherwise: {gained} more succeed, {lost} that did succeed no more",
            self.changed.len()
        );
        for place in self.changed.iter().take(LISTED) {
            let (recorded, other) = (&self.trace.calls[*place], &self.other.calls[*place]);
            let _ = writeln!(
                out,
                "  line {} call {}: recorded {}; {name}: {}",
                recorded.line,
                recorded.begin.id,
                life(&recorded.facts),
                life(other)
            );
        }
        if self.changed.len() > LISTED {
            let _ = writeln!(out, "  … and {} more", self.changed.len() - LISTED);
        }
    }
}

/// A call's life in one line: its attempts and its end.
pub fn life(facts: &Facts) -> String {
    let mut out = String::new();
    for attempt in &facts.attempts {
        let how = match (attempt.reason, attempt.status) {
            (Some(surefoot_core::event::Reason::Status), Some(status)) => status.to_string(),
            (Some(reason), _) => reason.as_str().to_owned(),
            (None, _) => "no end".to_owned(),
        };
        let _ = write!(out, "{} {how} → ", attempt.source);
    }
    out + &end_words(facts.end.as_ref())
}

fn status(facts: &Facts) -> u16 {
    match &facts.end {
        Some(surefoot_core::event::End::Answer(answer)) => answer.status,
        _ => 0,
    }
}

/// The rows of the totals: label, before, after, change.
pub fn rows(before: &Calls, after: &Calls) -> Vec<(&'static str, String, String, String)> {
    let count =
        |label, one: u64, two: u64| (label, one.to_string(), two.to_string(), signed(two as f64 - one as f64, 0, ""));
    let span = |label, one: Option<Span>, two: Option<Span>| {
        let change = match (one, two) {
            (Some(one), Some(two)) if two >= one => format!("+{}", Span(two.0 - one.0)),
            (Some(one), Some(two)) => format!("−{}", Span(one.0 - two.0)),
            _ => String::new(),
        };
        (label, shown(one), shown(two), change)
    };
    let (one, two) = (100.0 * rate(before), 100.0 * rate(after));
    vec![
        count("calls", before.calls, after.calls),
        ("success", success(before), success(after), signed(two - one, 2, " points")),
        count("clients gone before their answer's end", before.left, after.left),
        count("attempts", before.attempts, after.attempts),
        count("transfers", before.transfers, after.transfers),
        count("retries", before.retries, after.retries),
        count("waits", before.waits, after.waits),
        span("added latency p50", before.added.at(50), after.added.at(50)),
        span("added latency p95", before.added.at(95), after.added.at(95)),
        span("added latency p99", before.added.at(99), after.added.at(99)),
        span("to the answer's head p50", before.first.at(50), after.first.at(50)),
        span("to the answer's head p95", before.first.at(95), after.first.at(95)),
        span("wasted upstream time", Some(before.wasted_time), Some(after.wasted_time)),
        count("wasted upstream tokens, about", before.wasted_tokens, after.wasted_tokens),
    ]
}

fn signed(number: f64, places: usize, unit: &str) -> String {
    let size = format!("{:.places$}{unit}", number.abs());
    if number < 0.0 { format!("−{size}") } else { format!("+{size}") }
}

/// The share of calls with a whole good answer, 0–1.
pub fn rate(calls: &Calls) -> f64 {
    calls.success as f64 / calls.calls.max(1) as f64
}

/// The same in words.
pub fn success(calls: &Calls) -> String {
    format!("{:.2} %", 100.0 * rate(calls))
}

/// A share in words.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A quantile in words.
pub fn time(times: &Quantiles, percent: usize) -> String {
    shown(times.at(percent))
}

fn shown(span: Option<Span>) -> String {
    span.map_or_else(|| "–".to_owned(), |span| span.to_string())
}

/// Columns as wide as they need to be; the first to the left, the others to the right.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(head: &[&str]) -> Table {
        Table { rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    fn row(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let _ = match column {
                    0 => write!(line, "{cell:<width$}"),
                    _ => write!(line, "  {cell:>width$}"),
                };
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
        out
    }
}
