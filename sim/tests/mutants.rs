//! Testing the tester: every planted bug of the core is found, and the small runs that were kept of them still show it.
//!
//! One process, one planted bug at a time: the two tests must not run beside each other, so they are one.
#![cfg(feature = "mutants")]

use std::io::{Write, stderr};

use surefoot_core::mutants::Mutant;
use surefoot_sim::mutants::{MutantArgs, run_mutants, run_with};
use surefoot_sim::scenario::cut::Cut;

const RENEW: &str =
    "cargo run --release -p surefoot-sim --features mutants --example smoke -- cuts >sim/tests/cuts.txt";

#[test]
fn every_planted_bug_is_found_and_its_small_run_shows_it() {
    let mut table = Vec::new();
    let found = run_mutants(&MutantArgs::default(), &mut table).expect("writes to memory");
    let _ = stderr().write_all(&table);
    assert!(found, "a planted bug lives");
    for (name, law, seed, cut) in cuts() {
        let mutant = Mutant::ALL.iter().copied().find(|mutant| mutant.name() == name);
        let mutant = mutant.unwrap_or_else(|| panic!("there is no `{name}`; renew the list: {RENEW}"));
        let broken = run_with(Some(mutant), seed, &cut).violation.map(|violation| violation.id);
        assert_eq!(broken, Some(law), "{name} in seed {seed}, cut to '{cut}'; if worlds have changed: {RENEW}");
        assert_eq!(run_with(None, seed, &cut).violation, None, "{name} is not planted");
    }
    assert_eq!(cuts().count(), Mutant::ALL.len(), "one small run for every bug: {RENEW}");
}

fn cuts() -> impl Iterator<Item = (&'static str, &'static str, u64, Cut)> {
    include_str!("cuts.txt").lines().map(|line| {
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("`{line}` is not `bug law seed cut`"));
        let (name, law, seed, cut) = (word(), word(), word(), word());
        (name, law, seed.parse().expect("a seed"), Cut::parse(cut).expect("a cut"))
    })
}
