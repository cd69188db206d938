//! Pace: how many attempts a target may have in flight, learnt from its pushbacks (AIMD, G14).

use super::settings::PaceSettings;
use crate::mutants::{Mutant, active};

/// One attempt in millionths: a limit is a whole number of these.
const ONE: u64 = 1_000_000;

/// The limit of one target. Process-local.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// In millionths of an attempt; `None` until the first cut: the ceiling alone holds.
    limit: Option<u64>,
}

impl Pace {
    pub(super) fn new(settings: &PaceSettings) -> Pace {
        let initial = u64::from(settings.initial.max(settings.min));
        Pace { limit: (settings.initial > 0).then_some(initial * ONE) }
    }

    /// The limit in millionths; `None` = none. `ceiling` 0 = no ceiling.
    pub(super) fn limit(&self, ceiling: u32) -> Option<u64> {
        let ceiling = (ceiling > 0).then_some(u64::from(ceiling) * ONE);
        match (self.limit, ceiling) {
            (Some(limit), Some(ceiling)) => Some(limit.min(ceiling)),
            (limit, ceiling) => limit.or(ceiling),
        }
    }

    /// Whether a further attempt may start beside `inflight` others. At the ceiling the pace says nothing: whose limit
    /// that is says it, and a full source is not called a paced one.
    pub(super) fn allows(&self, inflight: u32, ceiling: u32) -> bool {
        let learnt = self.limit.filter(|limit| ceiling == 0 || *limit < u64::from(ceiling) * ONE);
        learnt.is_none_or(|limit| u64::from(inflight) < limit / ONE)
    }

    /// A pushback. The first cut of an unlimited target starts from what is in flight, the attempt that was pushed
    /// back included: that many were too many, nothing is known of the ceiling.
    pub(super) fn cut(&mut self, inflight: u32, settings: &PaceSettings, ceiling: u32) {
        if active(Mutant::PaceNeverCut) {
            return;
        }
        let from = match self.limit {
            Some(_) => self.limit(ceiling).unwrap_or(0),
            None => u64::from(inflight) * ONE,
        };
        let left = u128::from(from) * u128::from(settings.cut_ppm.min(1_000_000)) / 1_000_000;
        self.limit = Some((left as u64).max(u64::from(settings.min.max(1)) * ONE));
    }

    /// A success: 1/limit more, so a whole round of successes allows one more attempt.
    pub(super) fn grow(&mut self, ceiling: u32) {
        if let Some(limit) = self.limit {
            self.limit = Some(limit.saturating_add(ONE * ONE / limit.max(ONE)));
            self.limit = self.limit(ceiling);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> PaceSettings {
        PaceSettings::default()
    }

    #[test]
    fn no_limit_until_the_first_cut_which_halves_what_is_in_flight() {
        let mut pace = Pace::new(&settings());
        assert!(pace.allows(10_000, 0));
        assert_eq!((pace.limit(8), pace.allows(8, 8)), (Some(8 * ONE), true), "the ceiling's owner keeps it");
        pace.cut(8, &settings(), 0);
        assert_eq!(pace.limit(0), Some(4 * ONE));
        assert!(pace.allows(3, 0) && !pace.allows(4, 0));
    }

    #[test]
    fn a_cut_never_goes_below_one() {
        let mut pace = Pace::new(&settings());
        for _ in 0..5 {
            pace.cut(1, &settings(), 0);
        }
        assert!(pace.allows(0, 0) && !pace.allows(1, 0));
        let none = PaceSettings { min: 0, cut_ppm: 0, ..settings() };
        pace.cut(9, &none, 0);
        assert_eq!(pace.limit(0), Some(ONE));
    }

    #[test]
    fn at_its_ceiling_the_pace_says_nothing() {
        let pace = Pace::new(&PaceSettings { initial: 3, ..settings() });
        assert!(pace.allows(9, 3) && pace.allows(2, 4) && !pace.allows(3, 4));
    }

    #[test]
    fn successes_add_one_over_the_limit_up_to_the_ceiling() {
        let mut pace = Pace::new(&PaceSettings { initial: 2, ..settings() });
        pace.grow(3);
        assert_eq!(pace.limit(3), Some(2_500_000));
        pace.grow(3);
        assert_eq!(pace.limit(3), Some(2_900_000));
        assert!(!pace.allows(2, 3), "2.9 is two attempts");
        pace.grow(3);
        pace.grow(3);
        assert_eq!(pace.limit(3), Some(3 * ONE));
        pace.cut(1, &settings(), 3);
        assert_eq!(pace.limit(3), Some(1_500_000), "a later cut starts from the limit");
    }
}
