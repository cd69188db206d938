//! The example that the documents point at is a scenario that runs, and a policy from outside stands above its own.

use std::path::Path;

use surefoot_sim::scenario::file::read;
use surefoot_sim::scenario::run::run_scenario;

fn example() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/storm.toml"))
}

fn told(scenario: surefoot_sim::scenario::Scenario) -> String {
    let mut out = Vec::new();
    assert!(run_scenario(scenario, false, &mut out).expect("writes to memory"), "a law was broken");
    String::from_utf8(out).expect("text")
}

#[test]
fn the_example_runs_and_rides_out_its_storm() {
    let text = told(read(example(), None, None).expect("it is right"));
    let percent = text.lines().find_map(|line| line.split_once(" % complete")).map(|(percent, _)| percent);
    let percent: f64 = percent.and_then(|percent| percent.parse().ok()).unwrap_or(0.0);
    assert!(percent > 90.0, "{text}");
    assert!(text.contains("stormy/k"), "{text}");
}

#[test]
fn another_seed_and_another_policy_give_another_run() {
    let run = |seed, policy| told(read(example(), seed, policy).expect("it is right"));
    let policy = std::env::temp_dir().join(format!("surefoot-sim-{}.toml", std::process::id()));
    std::fs::write(&policy, "[default_policy]\nmax_attempts = 1\nsticky_key_attempts = 1\n").expect("a file");
    let runs = [run(None, None), run(Some(8), None), run(None, Some(policy.as_path()))];
    let hashes: std::collections::BTreeSet<&str> = runs.iter().filter_map(|text| text.lines().last()).collect();
    let _ = std::fs::remove_file(&policy);
    assert_eq!(hashes.len(), 3);
    assert_eq!(run(None, None), runs[0]);
}

#[test]
fn what_is_not_there_is_told_by_its_path() {
    let error = read(Path::new("nowhere/at-all.toml"), None, None).expect_err("no file");
    assert!(error.to_string().contains("nowhere/at-all.toml"), "{error}");
}
