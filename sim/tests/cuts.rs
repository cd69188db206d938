//! Runs that once failed, made small: each shows a bug that somebody could make again, and none of them fails.
//!
//! Those in `cuts.txt` show planted bugs; `mutants.rs` proves the other half: with its bug planted, every one of them fails
//! by its law. Those in `found.txt` showed bugs that nobody had planted.

use surefoot_sim::scenario::cut::Cut;
use surefoot_sim::scenario::draw::draw;
use surefoot_sim::shrink::run_cut;
use surefoot_sim::world::log::Keep;

fn passes(seed: &str, cut: &str, shows: &str) {
    let seed = seed.parse().expect("a seed");
    let report = run_cut(&draw(seed), &Cut::parse(cut).expect("a cut"), Keep::Nothing);
    assert_eq!(report.violation, None, "{shows}, seed {seed}, cut to '{cut}'");
    assert!(report.records > 0, "an empty run shows nothing");
}

#[test]
fn no_kept_run_fails() {
    for line in include_str!("cuts.txt").lines() {
        let [name, law, seed, cut] = line.splitn(4, ' ').collect::<Vec<_>>()[..] else {
            panic!("`{line}` is not `bug law seed cut`")
        };
        passes(seed, cut, &format!("{name} ({law})"));
    }
    for line in include_str!("found.txt").lines() {
        let [law, seed, cut] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("`{line}` is not `law seed cut`")
        };
        passes(seed, cut, law);
    }
}
