//! The figures of many seeds as one table.

use std::fmt::Write;

use surefoot_core::time::Span;

use super::count::Figures;
use super::world::{CACHED, CALLERS, CALLS, SOURCES};

/// One policy's runs.
#[derive(Clone, Debug)]
pub struct Row {
    /// The policy.
    pub name: String,
    /// Its runs, one a seed.
    pub runs: Vec<Figures>,
}

impl Row {
    /// The mean of a figure over the seeds.
    pub fn mean(&self, figure: impl Fn(&Figures) -> f64) -> f64 {
        self.runs.iter().map(figure).sum::<f64>() / self.runs.len().max(1) as f64
    }

    /// The seed with the least success, and that.
    pub fn worst(&self) -> Option<(u64, f64)> {
        let by_success = self.runs.iter().map(|run| (run.seed, run.success()));
        by_success.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The mean wait of a call that waited, in seconds.
    pub fn wait(&self) -> f64 {
        let waited: u64 = self.runs.iter().map(|run| run.waited).sum();
        self.runs.iter().map(|run| seconds(run.waiting)).sum::<f64>() / waited.max(1) as f64
    }

    /// What so many percent of a run's calls took at most, in seconds, on average over the seeds.
    pub fn latency(&self, percent: usize) -> f64 {
        self.mean(|run| seconds(run.latency(percent)))
    }

    /// The mean of a source's attempts.
    pub fn attempts(&self, source: usize) -> f64 {
        self.mean(|run| run.shares[source].attempts as f64)
    }
}

/// A span in seconds.
pub fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1e6
}

/// The whole report.
pub fn text(rows: &[Row]) -> String {
    let mut out = String::new();
    let seeds = rows.first().map_or(0, |row| row.runs.len());
    let (first, last) = rows
        .first()
        .map_or((0, 0), |row| (row.runs.first().map_or(0, |run| run.seed), row.runs.last().map_or(0, |run| run.seed)));
    let (from, to) = CALLERS;
    let which = if seeds == 1 { format!("seed {first}") } else { format!("{seeds} seeds, {first} to {last}") };
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "P6: {CALLS} calls, {CACHED} of them repeats that a cache answers; {from} to {to} callers; {which}\n"
    );
    let _ = writeln!(
        out,
        "{:<20} {:^15} {:^15} {:>8}  {:>7} {:>7} {:>7} {:>7} {:>7}  {:^19} {:^13}",
        "", "success", "with repeats", "attempts", "s1", "s2", "s3", "s4", "s5", "calls that waited", "latency"
    );
    out.truncate(out.trim_end().len());
    out.push('\n');
    let _ = writeln!(
        out,
        "{:<20} {:>7} {:>7} {:>7} {:>7} {:>8}  {:>7} {:>7} {:>7} {:>7} {:>7}  {:>6} {:>5} {:>6} {:>6} {:>6}",
        "policy",
        "mean",
        "worst",
        "mean",
        "worst",
        "",
        "healthy",
        "bad key",
        "hole",
        "tight",
        "dog",
        "",
        "mean",
        "most",
        "p50",
        "p95"
    );
    for row in rows {
        out += &line(row);
    }
    if let Some(old) = rows.iter().find(|row| row.name == "old") {
        out += &calibration(old);
    }
    out
}

fn line(row: &Row) -> String {
    let worst = |figure: &dyn Fn(&Figures) -> f64| row.runs.iter().map(figure).fold(f64::INFINITY, f64::min);
    let longest = row.runs.iter().map(|run| seconds(run.longest_wait)).fold(0.0, f64::max);
    let mut line = format!(
        "{:<20} {:>6.1}% {:>6.1}% {:>6.1}% {:>6.1}% {:>8.0} ",
        row.name,
        row.mean(Figures::success),
        worst(&Figures::success),
        row.mean(Figures::success_with_cached),
        worst(&Figures::success_with_cached),
        row.mean(|run| run.attempts() as f64),
    );
    for source in 0..SOURCES.len() {
        let _ = write!(line, " {:>7.0}", row.attempts(source));
    }
    let _ = writeln!(
        line,
        "  {:>6.0} {:>4.1}s {:>5.1}s {:>5.1}s {:>5.1}s",
        row.mean(|run| run.waited as f64),
        row.wait(),
        longest,
        row.latency(50),
        row.latency(95),
    );
    line
}

/// A figure of the study and how far the simulated one may lie from it.
#[derive(Copy, Clone, Debug)]
pub struct Recorded {
    /// What.
    pub what: &'static str,
    /// The study's.
    pub figure: f64,
    /// As much more or less is near enough; `None` = told, and not required.
    pub tolerance: Option<f64>,
    /// The simulated one of a run.
    pub of: fn(&Figures) -> f64,
}

/// What the study recorded of its first run (G19).
pub const RECORDED: [Recorded; 7] = [
    Recorded { what: "success with repeats, %", figure: 58.1, tolerance: Some(4.0), of: Figures::success_with_cached },
    Recorded { what: "attempts", figure: 14_455.0, tolerance: Some(1445.5), of: |run| run.attempts() as f64 },
    Recorded { what: "of them on source 5, %", figure: 76.0, tolerance: Some(6.0), of: |run| run.part(4) },
    Recorded {
        what: "success of an attempt on source 1, %",
        figure: 43.0,
        tolerance: Some(5.0),
        of: |run| super::count::percent(run.shares[0].good, run.shares[0].attempts),
    },
    Recorded { what: "attempts on source 1", figure: 2892.0, tolerance: None, of: |run| run.shares[0].attempts as f64 },
    Recorded { what: "429s of source 1", figure: 996.0, tolerance: None, of: |run| run.shares[0].limited as f64 },
    Recorded {
        what: "failed without an attempt on source 1",
        figure: 3318.0,
        tolerance: None,
        of: |run| run.never_healthy as f64,
    },
];

fn calibration(old: &Row) -> String {
    let mut out = format!("\n{:<40} {:>8} {:>9}\n", "the old policy", "recorded", "simulated");
    for recorded in RECORDED {
        let simulated = old.mean(recorded.of);
        let digits = usize::from(recorded.what.ends_with('%'));
        let near = match recorded.tolerance {
            Some(tolerance) if (simulated - recorded.figure).abs() > tolerance => "  too far off",
            _ => "",
        };
        let _ = writeln!(out, "{:<40} {:>8.digits$} {simulated:>9.digits$}{near}", recorded.what, recorded.figure);
    }
    out
}
