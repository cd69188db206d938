//! Making a failing run small: as long as it fails by the same law, less of it is more.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::scenario::Scenario;
use crate::scenario::cut::Cut;
use crate::world::log::Keep;
use crate::world::{Report, World};

/// Runs that a shrinking may take.
const MAX_RUNS: u32 = 400;

/// A failing run made small.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// What is left.
    pub cut: Cut,
    /// The run of it, with all its lines.
    pub report: Report,
    /// Runs that it took.
    pub runs: u32,
}

struct Shrinker<'a> {
    scenario: &'a Scenario,
    id: &'static str,
    runs: u32,
}

/// Runs what a cut leaves of a scenario.
pub fn run_cut(scenario: &Scenario, cut: &Cut, keep: Keep) -> Report {
    World::new(Arc::new(cut.apply(scenario.clone())), keep, true).run()
}

/// Makes a failing run small. `failed` is its report.
pub fn shrink(scenario: &Scenario, failed: &Report) -> Option<Shrunk> {
    let violation = failed.violation.as_ref()?;
    let mut shrinker = Shrinker { scenario, id: violation.id, runs: 0 };
    let mut cut = Cut::default();
    // Who comes after it cannot have been the reason.
    let before = scenario.arrivals.iter().enumerate().filter(|(_, (at, _))| *at <= violation.at);
    cut = shrinker.better(cut, |cut| cut.clients = Some(before.map(|(client, _)| client as u32).collect()));
    cut = shrinker.better(cut, |cut| cut.no_heal = true);
    cut = shrinker.better(cut, |cut| cut.no_reload = true);
    cut = shrinker.better(cut, |cut| cut.no_store = true);
    cut = shrinker.better(cut, |cut| cut.plain = true);
    cut = shrinker.better(cut, |cut| cut.patient = true);
    cut = shrinker.better(cut, |cut| cut.episodes = Some(BTreeSet::new()));
    cut = shrinker.better(cut, |cut| cut.daily = Some(BTreeSet::new()));
    cut = shrinker.fewer_clients(cut);
    for at in 0..scenario.episodes.len() {
        let all: BTreeSet<usize> = cut.episodes.clone().unwrap_or_else(|| (0..scenario.episodes.len()).collect());
        if all.contains(&at) {
            cut = shrinker.better(cut, |cut| cut.episodes = Some(all.into_iter().filter(|kept| *kept != at).collect()));
        }
    }
    for at in 0..scenario.sites.len() {
        let all: BTreeSet<usize> = cut.daily.clone().unwrap_or_else(|| (0..scenario.sites.len()).collect());
        if all.contains(&at) {
            cut = shrinker.better(cut, |cut| cut.daily = Some(all.into_iter().filter(|kept| *kept != at).collect()));
        }
    }
    cut = shrinker.fewer_clients(cut);
    let report = run_cut(scenario, &cut, Keep::All);
    Some(Shrunk { cut, report, runs: shrinker.runs })
}

impl Shrinker<'_> {
    fn fails(&mut self, cut: &Cut) -> bool {
        self.runs += 1;
        self.runs <= MAX_RUNS
            && run_cut(self.scenario, cut, Keep::Nothing).violation.is_some_and(|violation| violation.id == self.id)
    }

    /// The changed cut if it still fails, else the one before.
    fn better(&mut self, cut: Cut, change: impl FnOnce(&mut Cut)) -> Cut {
        let mut changed = cut.clone();
        change(&mut changed);
        if self.fails(&changed) { changed } else { cut }
    }

    /// Leaves clients out, many at first, then one by one (the ddmin of Zeller and Hildebrandt, complements only).
    fn fewer_clients(&mut self, mut cut: Cut) -> Cut {
        let Some(mut kept) = cut.clients.clone().map(|clients| clients.into_iter().collect::<Vec<u32>>()) else {
            return cut;
        };
        let mut size = kept.len().div_ceil(2);
        while size > 0 && self.runs < MAX_RUNS {
            let mut at = 0;
            let mut dropped = false;
            while at < kept.len() {
                let end = (at + size).min(kept.len());
                let fewer: Vec<u32> = kept[..at].iter().chain(&kept[end..]).copied().collect();
                let trial = Cut { clients: Some(fewer.iter().copied().collect()), ..cut.clone() };
                if self.fails(&trial) {
                    (kept, cut, dropped) = (fewer, trial, true);
                } else {
                    at = end;
                }
            }
            if size == 1 && !dropped {
                break;
            }
            size = if size == 1 { 1 } else { size.div_ceil(2) };
        }
        cut
    }
}
