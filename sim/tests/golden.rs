//! The same seed is the same run: twice in one process, and on every machine.

use surefoot_sim::scenario::cut::Cut;
use surefoot_sim::scenario::draw::draw;
use surefoot_sim::shrink::run_cut;
use surefoot_sim::world::log::Keep;

/// Seeds whose runs differ as much as five can (19 has three gateways on one store); their hashes stand in `golden.txt`.
const SEEDS: [u64; 5] = [3, 14, 19, 65, 92];
const RENEW: &str = "SUREFOOT_RENEW=1 cargo test -p surefoot-sim --test golden";

fn hash(seed: u64) -> u64 {
    run_cut(&draw(seed), &Cut::default(), Keep::Nothing).hash
}

fn known_hashes() -> String {
    SEEDS.iter().map(|seed| format!("{seed} {:016x}\n", hash(*seed))).collect()
}

#[test]
fn five_seeds_run_as_they_always_did() {
    let now = known_hashes();
    if std::env::var_os("SUREFOOT_RENEW").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden.txt");
        std::fs::write(path, &now).unwrap_or_else(|error| panic!("{path}: {error}"));
        return;
    }
    let known = include_str!("golden.txt");
    assert!(now == known, "runs have changed; if that was meant: {RENEW}\nknown:\n{known}now:\n{now}");
}

#[test]
fn the_same_seed_twice_gives_the_same_hash_and_another_gives_another() {
    assert_eq!(hash(7), hash(7));
    assert_ne!(hash(7), hash(8));
}
