//! The order half of the pool: in which sequence a call's candidates are tried (G9, G10).
//!
//! A tier's candidates fall in three groups. With the *staying* ones the call is in the middle of a turn, or it failed
//! there often enough to leave and finds no credible other. *Fresh* ones are in the selector's order. The *yielded* ones
//! had their turn. When all of a tier had theirs, a new round begins and all are fresh again, the longest unused first.

use alloc::vec::Vec;

use crate::id::TargetId;
use crate::rng::Rng;

use super::gate::Hold;
use super::health::Health;
use super::settings::HealthSettings;
use super::{Reserve, Roster, Standing, Strategy};

/// Entries of a roster that are looked at.
pub(super) const MAX_ENTRIES: usize = 4096;

/// What the order goes by, for each target.
#[derive(Copy, Clone, Debug)]
pub(super) struct Load {
    pub(super) health: Health,
    pub(super) inflight: u32,
}

/// One decision's question.
#[derive(Copy, Clone, Debug)]
pub(super) struct Question<'a> {
    pub(super) roster: &'a Roster,
    pub(super) standing: &'a [Standing],
    pub(super) sticky: u16,
    pub(super) draw: u64,
    /// How many calls began before on this roster (round robin).
    pub(super) turn: u32,
}

impl<'a> Question<'a> {
    pub(super) fn of(reserve: &'a Reserve, turn: u32) -> Question<'a> {
        let Reserve { roster, standing, sticky, draw, .. } = reserve;
        Question { roster, standing, sticky: *sticky, draw: *draw, turn }
    }

    pub(super) fn standing(&self, choice: u16) -> Standing {
        self.standing.get(usize::from(choice)).copied().unwrap_or_default()
    }
}

/// A candidate in its place.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Ranked {
    pub(super) choice: u16,
    pub(super) tier: u16,
    pub(super) target: TargetId,
    pub(super) health: u32,
    pub(super) hold: Hold,
    pub(super) standing: Standing,
    group: Group,
    key: [u64; 2],
    /// Breaks ties; the candidate's place in the list where nothing is drawn.
    tie: u64,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Staying,
    Fresh,
    Yielded,
}

/// Writes the sequence into `out`, whose room is used again. `load` says `None` for a target that it does not know.
pub(super) fn rank(
    out: &mut Vec<Ranked>,
    question: Question<'_>,
    settings: &HealthSettings,
    load: impl Fn(TargetId) -> Option<Load>,
) {
    out.clear();
    let mut rng = Rng::new(question.draw);
    let picks = rng.next_u64();
    let strategy = question.roster.strategy;
    for (choice, entry) in question.roster.entries.iter().take(MAX_ENTRIES).enumerate() {
        let standing = question.standing(choice as u16);
        let Some(load) = load(entry.target).filter(|_| !standing.out) else { continue };
        let (key, tie) = match strategy {
            Strategy::Priority | Strategy::RoundRobin => (0, choice as u64),
            Strategy::HealthAware => (u64::MAX - load.health.score(load.inflight, settings), rng.next_u64()),
            Strategy::LeastInflight => (u64::from(load.inflight), rng.next_u64()),
        };
        out.push(Ranked {
            choice: choice as u16,
            tier: entry.tier,
            target: entry.target,
            health: if strategy == Strategy::HealthAware { load.health.ppm() } else { 0 },
            hold: if standing.failed < question.sticky.max(1) { Hold::Call } else { Hold::Tier },
            standing,
            group: Group::Fresh,
            key: [key, 0],
            tie,
        });
    }
    if !out.is_sorted_by_key(|ranked| ranked.tier) {
        out.sort_unstable_by_key(|ranked| (ranked.tier, ranked.choice));
    }
    if strategy != Strategy::Priority {
        for tier in out.chunk_by_mut(|a, b| a.tier == b.tier) {
            arrange(tier, &question, settings, picks);
        }
    }
}

fn arrange(tier: &mut [Ranked], question: &Question<'_>, settings: &HealthSettings, picks: u64) {
    if question.roster.strategy == Strategy::RoundRobin {
        rotate(tier, question);
    }
    let round = if question.standing.is_empty() { 0 } else { group(tier, question, settings) };
    tier.sort_unstable_by_key(|ranked| (ranked.group, ranked.key, ranked.tie));
    if question.roster.strategy == Strategy::HealthAware && round == 0 {
        let start = tier.partition_point(|ranked| ranked.group < Group::Fresh);
        let end = tier.partition_point(|ranked| ranked.group <= Group::Fresh);
        draw_two(&mut tier[start..end], picks);
    }
}

/// Round robin: the tier's whole list is the ring, those that are out included, else their absence would shift it.
fn rotate(tier: &mut [Ranked], question: &Question<'_>) {
    let of = tier.first().map_or(0, |ranked| ranked.tier);
    let whole = || question.roster.entries.iter().take(MAX_ENTRIES).enumerate().filter(|(_, entry)| entry.tier == of);
    let length = whole().count().max(1) as u64;
    let mut ring = whole().enumerate();
    for ranked in tier {
        let place = ring.find(|(_, (choice, _))| *choice == usize::from(ranked.choice)).map_or(0, |(place, _)| place);
        ranked.tie = (place as u64 + length - u64::from(question.turn) % length) % length;
    }
}

/// Puts every candidate of a tier in its group and says which round this is.
///
/// A round is `sticky` failures of each. Counted so, a source yields after its turn and gets the next one only when the
/// others had theirs; without rounds a call whose sources all failed would stay with whichever the order puts first.
fn group(tier: &mut [Ranked], question: &Question<'_>, settings: &HealthSettings) -> u16 {
    let sticky = question.sticky.max(1);
    let round = tier.iter().map(|ranked| ranked.standing.failed / sticky).min().unwrap_or(0);
    let by_health = question.roster.strategy == Strategy::HealthAware;
    for at in 0..tier.len() {
        let Ranked { standing, health, .. } = tier[at];
        let turns = standing.failed / sticky;
        let amid = !standing.failed.is_multiple_of(sticky);
        let last = u64::from(standing.last_attempt);
        let longest_unused_first = [last, standing.not_before.0];
        let (group, key) = if turns > round {
            let other = |other: &Ranked| {
                let weight = u64::from(other.health) * 1_000_000;
                other.standing.failed / sticky == round
                    && weight >= u64::from(settings.credible_ppm) * u64::from(health)
            };
            match by_health && !tier.iter().any(other) {
                true if amid => (Group::Staying, [0, u64::MAX - last]),
                true => (Group::Staying, [1 + u64::from(turns), last]),
                false => (Group::Yielded, [u64::from(turns), last]),
            }
        } else if amid {
            (Group::Staying, [0, u64::MAX - last])
        } else if round > 0 {
            let key = if by_health { [tier[at].key[0], last] } else { longest_unused_first };
            (Group::Fresh, key)
        } else {
            (Group::Fresh, tier[at].key)
        };
        tier[at].group = group;
        tier[at].key = key;
        if group == Group::Yielded {
            tier[at].hold = Hold::None;
        }
    }
    round
}

/// Power of two choices: two picks without replacement, the better to the front. The slice is in order of score, so
/// the better of two places is the smaller one.
fn draw_two(fresh: &mut [Ranked], picks: u64) {
    let count = fresh.len() as u32;
    if count < 3 {
        return;
    }
    let mut rng = Rng::new(picks);
    let first = rng.below(count);
    let second = rng.below(count - 1);
    let second = if second >= first { second + 1 } else { second };
    fresh[..=first.min(second) as usize].rotate_right(1);
}

/// Whether a candidate may stand in for a resting one (G10): it has tries left in this call.
pub(super) fn is_fresh(standing: &Standing, sticky: u16) -> bool {
    standing.failed < sticky.max(1)
}
