//! Health: a moving average of a target's successes (G8). Process-local on purpose: it is an opinion, not a fact.

use super::settings::HealthSettings;

/// One in millionths.
const ONE: u64 = 1_000_000;

/// EWMA of success in millionths, 1.0 at the start: a new target is trusted until it fails.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Health(u32);

impl Health {
    pub(super) const NEW: Health = Health(ONE as u32);

    /// The average itself: what credibility is measured by.
    pub(super) const fn ppm(self) -> u32 {
        self.0
    }

    /// Takes one outcome in. Steps are rounded up, so that both ends are really reached.
    pub(super) fn learn(&mut self, success: bool, settings: &HealthSettings) {
        let (now, alpha) = (u64::from(self.0), u64::from(settings.alpha_ppm).min(ONE));
        let gap = if success { ONE - now } else { now };
        let step = (gap * alpha).div_ceil(ONE) as u32;
        self.0 = if success { self.0 + step } else { self.0 - step };
    }

    /// What a selector goes by: max(health, floor) / (1 + in-flight), in units of 2⁻³² millionths. Larger is better.
    pub(super) fn score(self, inflight: u32, settings: &HealthSettings) -> u64 {
        let health = u64::from(self.0.max(settings.floor_ppm.min(ONE as u32)));
        (health << 32) / (1 + u64::from(inflight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_weigh_a_fifth_each_and_recovery_climbs_the_same_way() {
        let settings = HealthSettings::default();
        let mut health = Health::NEW;
        let seen = [false, false, true, true].map(|success| {
            health.learn(success, &settings);
            health.ppm()
        });
        assert_eq!(seen, [800_000, 640_000, 712_000, 769_600]);
    }

    #[test]
    fn both_ends_are_reached_and_never_passed() {
        let settings = HealthSettings::default();
        let mut health = Health::NEW;
        (0..200).for_each(|_| health.learn(false, &settings));
        assert_eq!(health.ppm(), 0);
        assert_eq!(health.score(0, &settings), 50_000 << 32, "the floor is the exploration");
        (0..200).for_each(|_| health.learn(true, &settings));
        assert_eq!(health, Health::NEW);
    }

    #[test]
    fn the_score_falls_with_every_attempt_in_flight() {
        let settings = HealthSettings::default();
        let (well, sick) = (Health::NEW, Health(400_000));
        assert!(well.score(1, &settings) > sick.score(0, &settings));
        assert!(well.score(2, &settings) < sick.score(0, &settings));
    }
}
