//! P6: the soak that the policy was calibrated on, simulated (G19).
//!
//! The world has five sources of which one is well. Under the policy of the study's first run it must come to the
//! figures that the study recorded; what it says of any other policy counts only because it does.

pub mod count;
pub mod picture;
pub mod policy;
pub mod table;
pub mod world;

use std::cell::RefCell;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use self::count::{Counter, Ear, Figures};
use self::policy::{Policy, PolicyError};
use self::table::Row;
use crate::world::World;
use crate::world::log::Keep;

/// What `surefoot sim p6` is asked for.
#[derive(Clone, Debug)]
pub struct P6Args {
    /// The seeds, the last not included.
    pub seeds: Range<u64>,
    /// A policy of one's own, beside the first and the last of the study; without it the whole ladder.
    pub policy: Option<PathBuf>,
    /// Where to write the picture as a page of its own.
    pub html: Option<PathBuf>,
    /// Where to write it alone.
    pub svg: Option<PathBuf>,
    /// Threads; at least 1.
    pub threads: usize,
}

impl Default for P6Args {
    fn default() -> P6Args {
        P6Args { seeds: 1..21, policy: None, html: None, svg: None, threads: 2 }
    }
}

/// Characters of a policy's name that the table has room for.
const MAX_NAME: usize = 20;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum P6Error {
    /// The policy cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// No seed was asked for.
    #[error("no seeds: give --seeds A..B with A below B")]
    NoSeeds,
    /// A picture cannot be written.
    #[error("{}: {source}", .path.display())]
    Unwritable {
        /// Where to.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Runs what was asked for and writes the pictures; the table.
///
/// # Errors
/// A policy that cannot be used, a picture that cannot be written.
pub fn run_p6(args: &P6Args) -> Result<String, P6Error> {
    if args.seeds.is_empty() {
        return Err(P6Error::NoSeeds);
    }
    let mut policies = policy::ladder();
    if let Some(path) = &args.policy {
        let mut own = Policy::load(path)?;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().chars().take(MAX_NAME).collect());
        own.name = stem.unwrap_or(own.name);
        let last = Policy { name: "defaults".to_owned(), ..policies[policy::FINAL].clone() };
        policies = vec![policies.swap_remove(policy::OLD), last, own];
    }
    let rows = run_all(&policies, args.seeds.clone(), args.threads);
    let page = |svg: String| picture::page(&svg, &table::text(&rows));
    let pictures = [(&args.svg, picture::svg(&rows)), (&args.html, page(picture::svg(&rows)))];
    for (path, text) in pictures {
        if let Some(path) = path {
            std::fs::write(path, text).map_err(|source| P6Error::Unwritable { path: path.clone(), source })?;
        }
    }
    Ok(table::text(&rows))
}

/// Runs every policy with every seed, over several threads.
pub fn run_all(policies: &[Policy], seeds: Range<u64>, threads: usize) -> Vec<Row> {
    let jobs: Vec<(usize, u64)> =
        (0..policies.len()).flat_map(|at| seeds.clone().map(move |seed| (at, seed))).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((at, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((*at, run(&policies[*at], *seed)));
        }
        done
    };
    let mut done: Vec<(usize, Figures)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
        joined.flatten().collect()
    });
    // Whichever thread was first must not matter.
    done.sort_by_key(|(at, figures)| (*at, figures.seed));
    let mut rows: Vec<Row> =
        policies.iter().map(|policy| Row { name: policy.name.clone(), runs: Vec::new() }).collect();
    done.into_iter().for_each(|(at, figures)| rows[at].runs.push(figures));
    rows
}

/// Runs the world of a seed under a policy.
pub fn run(policy: &Policy, seed: u64) -> Figures {
    let scenario = Arc::new(world::scenario(seed, world::tree(policy)));
    let mut world = World::new(scenario, Keep::Nothing, false);
    if !policy.suppression {
        world.without_suppression();
    }
    let counter = Rc::new(RefCell::new(Counter::default()));
    world.watch(Box::new(Ear(counter.clone())));
    let report = world.run();
    let mut figures = std::mem::take(&mut counter.borrow_mut().figures);
    figures.latencies.sort_unstable();
    Figures { seed, took: report.took, hash: report.hash, ..figures }
}

#[cfg(test)]
mod tests;
