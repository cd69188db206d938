//! What a decision costs: `cargo run --release -p surefoot-core --example pool_bench`.
//!
//! Prints nanoseconds and allocations for a Reserve + Settle pair over eight candidates, per strategy, with calls in
//! flight, with a line, and with expiries far and near. Exits with 1 if a warm pool allocates.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use surefoot_core::id::LeaseId;
use surefoot_core::outcome::Outcome;
use surefoot_core::pool::{
    Entry, Op, Pool, Reply, Reserve, Roster, Settings, Settle, SourceSpec, Standing, Strategy, TargetSpec,
};
use surefoot_core::time::{Span, Time};

/// The system's allocator, counted.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it is; counting touches no memory of theirs.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const CANDIDATES: usize = 8;
const BATCHES: u64 = 40;
const PAIRS: u64 = 10_000;

/// A pool with calls in flight and the two commands that are used over and over, as a driver would.
struct Bench {
    pool: Pool,
    now: Time,
    lease: u64,
    reserve: Op,
    settle: Op,
}

impl Bench {
    fn new(strategy: Strategy, max_concurrency: u32, standing: Vec<Standing>) -> Bench {
        let mut pool = Pool::new(Settings::default());
        let entries = (0..CANDIDATES).map(|at| {
            let name = format!("provider/eu/key{at}");
            let target = format!("{name}/model");
            let limits = SourceSpec { name: &name, account: &name, max_concurrency, rpm: u32::MAX, tpm: u32::MAX };
            let spec = TargetSpec { name: &target, provider: "provider", model: "model", source: limits };
            let tier = if strategy == Strategy::Priority { at as u16 } else { 0 };
            Entry { target: pool.register(&spec).0, tier }
        });
        let roster = Arc::new(Roster { id: 1, strategy, entries: entries.collect() });
        let reserve = Reserve {
            lease: LeaseId(0),
            roster,
            standing,
            sticky: 2,
            draw: 0,
            tokens: 300,
            wait_until: Time::NEVER,
            ttl: Span::from_secs(600),
            queue: true,
        };
        let settle = Settle {
            lease: LeaseId(0),
            outcome: Outcome::Success,
            slow: false,
            rest: None,
            overload: false,
            tokens: Some(280),
        };
        let (reserve, settle) = (Op::Reserve(reserve), Op::Settle(settle));
        Bench { pool, now: Time::from_millis(1), lease: 0, reserve, settle }
    }

    fn reserve(&mut self) -> Reply {
        self.lease += 1;
        self.now = self.now.after(Span(50));
        if let Op::Reserve(reserve) = &mut self.reserve {
            reserve.lease = LeaseId(self.lease);
            reserve.draw = self.lease.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        self.pool.apply(self.now, &self.reserve)
    }

    fn settle(&mut self, lease: u64) -> Reply {
        if let Op::Settle(settle) = &mut self.settle {
            settle.lease = LeaseId(lease);
            // One in eight fails, so that health, windows and streaks are at work.
            settle.outcome = if lease.is_multiple_of(8) { Outcome::Transient } else { Outcome::Success };
        }
        self.pool.apply(self.now, &self.settle)
    }

    /// Pairs with `inflight` others under way: nanoseconds a pair in the fastest and in the median batch, allocations a
    /// pair over all. On a shared machine the fastest says what the work costs, the rest what the neighbours do.
    fn pairs(&mut self, inflight: u64) -> (u64, u64, f64) {
        for _ in 0..inflight {
            self.reserve();
        }
        let mut oldest = self.lease + 1 - inflight;
        let mut turn = |bench: &mut Bench| {
            black_box(bench.reserve());
            black_box(bench.settle(oldest));
            oldest += 1;
            while let Some(granted) = bench.pool.pop_granted() {
                black_box(granted);
            }
        };
        (0..20_000).for_each(|_| turn(self));
        let allocated = ALLOCATIONS.load(Ordering::Relaxed);
        let mut batches = [0; BATCHES as usize];
        for batch in &mut batches {
            let started = clock();
            (0..PAIRS).for_each(|_| turn(self));
            *batch = clock().duration_since(started).as_nanos() as u64 / PAIRS;
        }
        let allocated = ALLOCATIONS.load(Ordering::Relaxed) - allocated;
        batches.sort_unstable();
        (batches[0], batches[BATCHES as usize / 2], allocated as f64 / (BATCHES * PAIRS) as f64)
    }
}

/// The core may not look at a clock; who measures it must.
#[expect(clippy::disallowed_methods, clippy::disallowed_types)]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

fn main() -> ExitCode {
    let retry = || vec![Standing { failed: 1, last_attempt: 1, ..Standing::default() }; CANDIDATES];
    let unlimited = 0;
    let cases = [
        ("priority, 100 in flight", Bench::new(Strategy::Priority, unlimited, Vec::new()), 100),
        ("health_aware, 1 in flight", Bench::new(Strategy::HealthAware, unlimited, Vec::new()), 1),
        ("health_aware, 100 in flight", Bench::new(Strategy::HealthAware, unlimited, Vec::new()), 100),
        ("health_aware, 10000 in flight", Bench::new(Strategy::HealthAware, unlimited, Vec::new()), 10_000),
        ("health_aware, retries", Bench::new(Strategy::HealthAware, unlimited, retry()), 100),
        ("round_robin, 100 in flight", Bench::new(Strategy::RoundRobin, unlimited, Vec::new()), 100),
        ("least_inflight, 100 in flight", Bench::new(Strategy::LeastInflight, unlimited, Vec::new()), 100),
        ("all full, 100 in line", Bench::new(Strategy::HealthAware, 8, Vec::new()), 164),
        ("all full, 2000 in line", Bench::new(Strategy::HealthAware, 8, Vec::new()), 2064),
        ("all full, 100 retries in line", Bench::new(Strategy::HealthAware, 8, retry()), 164),
    ];
    println!("{:<32} {:>10} {:>10} {:>12}", "Reserve + Settle, 8 candidates", "best ns", "median ns", "allocations");
    let mut clean = true;
    for (name, mut bench, inflight) in cases {
        let (best, median, allocations) = bench.pairs(inflight);
        println!("{name:<32} {best:>10} {median:>10} {allocations:>12.6}");
        clean &= allocations == 0.0;
    }
    if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
