//! `surefoot sim chaos`: many seeds, every law judged, and what fails made small.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use surefoot_core::call::Phase;

use crate::coverage;
use crate::digest::Digest;
use crate::scenario::cut::Cut;
use crate::scenario::draw::draw;
use crate::shrink::{self, Shrunk};
use crate::world::Report;
use crate::world::log::{Coverage, Keep};

/// Failing laws that are made small in one command; the others are only told.
const MAX_SHRUNK: usize = 3;
/// Lines of a small run that are printed.
const MAX_LINES: usize = 60;

/// What `surefoot sim chaos` is asked for.
#[derive(Clone, Debug)]
pub struct ChaosArgs {
    /// The seeds, the last not included.
    pub seeds: Range<u64>,
    /// Threads; at least 1.
    pub threads: usize,
    /// A bar on standard error, where that is a terminal.
    pub progress: bool,
    /// Stop at the first run that fails.
    pub fail_fast: bool,
    /// Fewer calls than this are a failure: so a gate in CI cannot shrink unseen.
    pub min_calls: u64,
    /// A pair of phase and input that is empty without a reason, or met against it, is a failure. Few runs do not meet all.
    pub matrix: bool,
}

impl Default for ChaosArgs {
    fn default() -> ChaosArgs {
        ChaosArgs { seeds: 0..1000, threads: 2, progress: true, fail_fast: false, min_calls: 0, matrix: false }
    }
}

/// What `surefoot sim chaos --seed` is asked for.
#[derive(Clone, Debug, Default)]
pub struct SeedArgs {
    /// The seed.
    pub seed: u64,
    /// What is left of its scenario.
    pub cut: Cut,
    /// Print every event.
    pub log: bool,
}

/// The sums over many runs.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Runs.
    pub runs: u64,
    /// Calls.
    pub calls: u64,
    /// Events.
    pub records: u64,
    /// Simulated microseconds.
    pub simulated: u64,
    /// Calls by how they ended.
    pub ends: [u64; 6],
    /// How often each input met each phase.
    pub coverage: Coverage,
    /// Seeds by the law that they broke, the smallest first.
    pub failed: BTreeMap<&'static str, Vec<u64>>,
    /// Each run's hash by its seed, all of them together.
    pub hash: u64,
}

impl Sums {
    fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.calls += report.calls;
        self.records += report.records;
        self.simulated += report.took.0;
        self.ends.iter_mut().zip(report.tally.ends).for_each(|(sum, one)| *sum += one);
        coverage::add(&mut self.coverage, &report.coverage);
        // A sum: the order in which threads finish must not matter.
        let mut digest = Digest::default();
        digest.word(report.seed);
        digest.word(report.hash);
        self.hash = self.hash.wrapping_add(digest.value());
        if let Some(violation) = &report.violation {
            self.failed.entry(violation.id).or_default().push(report.seed);
        }
    }
}

/// Runs every seed and returns the sums. `each` hears every report, in the order in which they are done.
pub fn run_seeds(args: &ChaosArgs, mut each: impl FnMut(&Report)) -> Sums {
    let next = AtomicU64::new(args.seeds.start);
    let stop = AtomicBool::new(false);
    let mut sums = Sums::default();
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..args.threads.max(1) {
            let (send, next, stop) = (send.clone(), &next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // Never beyond the end: behind the last number there is comes the first.
                    let more = |seed| (seed < args.seeds.end).then(|| seed + 1);
                    let Ok(seed) = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) else { break };
                    if send.send(shrink::run_cut(&draw(seed), &Cut::default(), Keep::Nothing)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        for report in receive {
            if args.fail_fast && report.violation.is_some() {
                stop.store(true, Ordering::Relaxed);
            }
            sums.add(&report);
            each(&report);
        }
    });
    sums.failed.values_mut().for_each(|seeds| seeds.sort_unstable());
    sums
}

/// Runs many seeds and tells of them. True when no law was broken.
///
/// # Errors
/// Those of `out`.
pub fn run_chaos(args: &ChaosArgs, out: &mut dyn Write) -> io::Result<bool> {
    writeln!(out, "seeds {}..{}, {} threads", args.seeds.start, args.seeds.end, args.threads.max(1))?;
    let bar = if args.progress {
        ProgressBar::new(args.seeds.end.saturating_sub(args.seeds.start))
    } else {
        ProgressBar::hidden()
    };
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} runs {per_sec}, {msg}") {
        bar.set_style(style);
    }
    // The one clock here: how fast it went. No run sees it.
    let start = Instant::now();
    let (mut calls, mut failed) = (0, 0);
    let sums = run_seeds(args, |report| {
        calls += report.calls;
        failed += u64::from(report.violation.is_some());
        bar.set_message(format!("{calls} calls, {failed} failed"));
        bar.inc(1);
    });
    bar.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64().max(1e-9);
    writeln!(
        out,
        "{} runs, {} calls, {} events in {seconds:.1} s: {:.0} calls/s, {:.0} events/s, {:.0} simulated hours",
        sums.runs,
        sums.calls,
        sums.records,
        sums.calls as f64 / seconds,
        sums.records as f64 / seconds,
        sums.simulated as f64 / 3.6e9
    )?;
    let [complete, incomplete, upstream, broken, answered, cancelled] = sums.ends;
    writeln!(
        out,
        "calls ended: {complete} complete, {incomplete} incomplete, {upstream} by the upstream's error, {broken} broken, \
         {answered} with an error answer, {cancelled} by the client"
    )?;
    coverage::write(&sums.coverage, out)?;
    tell_failures(&sums, out)?;
    let few = sums.calls < args.min_calls;
    if few {
        writeln!(out, "{} calls are fewer than the {} asked for: give more seeds", sums.calls, args.min_calls)?;
    }
    let holes = args.matrix && !coverage::surprises(&sums.coverage).is_empty();
    if holes {
        writeln!(out, "the matrix is not as `coverage.rs` explains it")?;
    }
    writeln!(out, "hash of all runs: {:016x}", sums.hash)?;
    Ok(sums.failed.is_empty() && !few && !holes)
}

fn tell_failures(sums: &Sums, out: &mut dyn Write) -> io::Result<()> {
    if sums.failed.is_empty() {
        return writeln!(out, "no law was broken");
    }
    for (id, seeds) in &sums.failed {
        let shown: Vec<String> = seeds.iter().take(10).map(u64::to_string).collect();
        writeln!(out, "{id} was broken by {} runs: seeds {}", seeds.len(), shown.join(" "))?;
    }
    for seeds in sums.failed.values().take(MAX_SHRUNK) {
        let Some(seed) = seeds.first() else { continue };
        let scenario = draw(*seed);
        let report = shrink::run_cut(&scenario, &Cut::default(), Keep::Nothing);
        if let Some(shrunk) = shrink::shrink(&scenario, &report) {
            tell_shrunk(*seed, &shrunk, out)?;
        }
    }
    Ok(())
}

fn tell_shrunk(seed: u64, shrunk: &Shrunk, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    if let Some(violation) = &shrunk.report.violation {
        writeln!(out, "seed {seed}: {violation}")?;
    }
    writeln!(out, "  made small by {} runs; to see it again:", shrunk.runs)?;
    writeln!(out, "  surefoot sim chaos --seed {seed} --cut '{}' --log", shrunk.cut)?;
    let lines = &shrunk.report.lines;
    if lines.len() > MAX_LINES {
        writeln!(out, "  … {} lines before", lines.len() - MAX_LINES)?;
    }
    for line in &lines[lines.len().saturating_sub(MAX_LINES)..] {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

/// Runs one seed, its number first and its hash last. True when no law was broken.
///
/// # Errors
/// Those of `out`.
pub fn run_seed(args: &SeedArgs, out: &mut dyn Write) -> io::Result<bool> {
    writeln!(out, "seed {}", args.seed)?;
    let scenario = args.cut.apply(draw(args.seed));
    for words in &scenario.words {
        writeln!(out, "  {words}")?;
    }
    if args.log {
        writeln!(out, "  {}", scenario.tree)?;
        for episode in &scenario.episodes {
            writeln!(out, "  {episode:?}")?;
        }
    }
    let report = shrink::run_cut(&scenario, &Cut::default(), if args.log { Keep::All } else { Keep::Nothing });
    for line in &report.lines {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "{} calls, {} events, {} simulated", report.calls, report.records, report.took)?;
    match &report.violation {
        Some(violation) => writeln!(out, "{violation}")?,
        None => writeln!(out, "no law was broken")?,
    }
    writeln!(out, "hash {:016x}", report.hash)?;
    Ok(report.violation.is_none())
}

/// Phases by their names, for tables.
pub(crate) fn phase_name(phase: Phase) -> String {
    format!("{phase:?}").to_lowercase()
}
