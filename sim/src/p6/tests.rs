//! G19, simulated: the old policy lands on the study's figures, the new one where it must.

use super::policy::{FINAL, OLD, Policy, ladder};
use super::table::RECORDED;
use super::{run, run_all, table, world};

#[test]
fn the_old_policy_lands_on_the_figures_that_the_study_recorded() {
    let old = &run_all(&ladder()[OLD..=OLD], 1..3, 2)[0];
    for run in &old.runs {
        for recorded in RECORDED {
            let simulated = (recorded.of)(run);
            let near = recorded.tolerance.is_none_or(|most| (simulated - recorded.figure).abs() <= most);
            assert!(near, "seed {}: {} is {simulated}, recorded {}", run.seed, recorded.what, recorded.figure);
        }
        // No tolerance was set for it, but it is what the study was about.
        assert!((2600..=3600).contains(&run.never_healthy), "{}", run.never_healthy);
    }
}

#[test]
fn the_defaults_serve_98_of_100_calls_with_and_without_repeats() {
    let last = &ladder()[FINAL];
    assert_eq!(last.tree, serde_json::json!({}), "the last rung is the defaults");
    for run in &run_all(std::slice::from_ref(last), 1..3, 2)[0].runs {
        assert!(run.success() >= 98.0 && run.success_with_cached() >= 98.0, "seed {}: {}", run.seed, run.success());
        let watchdog = run.shares[4].attempts;
        assert!((1..600).contains(&watchdog), "attempts on source 5: {watchdog}");
    }
}

#[test]
fn every_call_of_the_study_is_made_and_the_same_seed_gives_the_same_run() {
    let policy = &ladder()[FINAL];
    let runs = run_all(&[policy.clone(), policy.clone()], 7..8, 2);
    let [one, other] = [&runs[0].runs[0], &runs[1].runs[0]];
    assert_eq!(one.calls, world::CALLS - world::CACHED);
    assert_eq!(one, other);
    assert_ne!(one.hash, run(policy, 8).hash);
}

#[test]
fn the_ladder_for_one_seed() {
    insta::assert_snapshot!(table::text(&run_all(&ladder(), 1..2, 2)));
}

#[test]
fn a_policy_says_over_the_world_what_it_wants_to_and_nothing_that_the_world_does_not_know() {
    let own = |text: &str| Policy::parse("own.toml", text, false);
    let policy = own("[[providers]]\nname = \"s3-black-hole\"\nkeys = [{ max_concurrency = 8 }]\n").expect("good");
    let tree = world::tree(&policy);
    assert_eq!(tree["providers"][2]["keys"][0]["max_concurrency"], 8);
    assert_eq!(tree["providers"][2]["keys"][0]["value"], "sk-s3-black-hole", "the world's word stands beside it");
    let refusals = [
        own("[pace]\ninital = 8\n"),
        own("[study]\nsuppresion = false\n"),
        own("[[models]]\nname = \"fast\"\ntargets = [\"s1-healthy/m\"]\n"),
        own("[[providers]]\nname = \"s6\"\nformats = [\"chat\"]\nbase_url = \"http://s6\"\n"),
        own("[pace\n"),
    ];
    let told: Vec<String> = refusals.into_iter().map(|refused| refused.expect_err("refused").to_string()).collect();
    insta::assert_snapshot!(told.join("\n"));
}
