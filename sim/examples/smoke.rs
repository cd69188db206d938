//! Runs some seeds.
use std::sync::Arc;
use surefoot_sim::{scenario::draw::draw, world::{World, log::Keep}};
fn main() {
    let mut args = std::env::args().skip(1);
    let a: u64 = args.next().unwrap().parse().unwrap();
    let b: u64 = args.next().unwrap().parse().unwrap();
    let all = args.next().is_some();
    let start = std::time::Instant::now();
    let (mut calls, mut records, mut bad) = (0, 0, std::collections::BTreeMap::<&str, Vec<u64>>::new());
    let mut ends = [0; 6];
    let mut coverage = surefoot_sim::world::log::Coverage::default();
    for seed in a..b {
        let scenario = Arc::new(draw(seed));
        if all { for w in &scenario.words { println!("{w}"); } println!("{}", scenario.tree); for e in &scenario.episodes { println!("{e:?}"); } }
        let report = World::new(scenario, if all { Keep::All } else { Keep::Nothing }, true).run();
        if all { for line in &report.lines { println!("{line}"); } }
        calls += report.calls; records += report.records;
        for i in 0..6 { ends[i] += report.tally.ends[i]; }
        for (x, y) in coverage.iter_mut().zip(report.coverage) { for (p, q) in x.iter_mut().zip(y) { *p += q; } }
        if let Some(v) = report.violation {
            if bad.entry(v.id).or_default().len() < 3 || all { println!("seed {seed}: {} at {:.6} call {:?}: {}", v.id, v.at.0 as f64/1e6, v.call, v.text); }
            bad.entry(v.id).or_default().push(seed);
        }
    }
    let took = start.elapsed().as_secs_f64();
    println!("{calls} calls {records} records {:.0} calls/s {:.0} records/s ends {ends:?}", calls as f64 / took, records as f64 / took);
    for (id, seeds) in bad { println!("{id}: {} {:?}", seeds.len(), &seeds[..seeds.len().min(8)]); }
    if b - a > 50 { for row in coverage { println!("{row:?}"); } }
}
