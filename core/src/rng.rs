//! Randomness as data: a small generator that a seed decides.

use crate::mutants::{Mutant, active};
use crate::time::Span;

/// SplitMix64 (Steele, Lea, Flood 2014): one word of state, every seed a good one. Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng(u64);

impl Rng {
    /// A generator that always yields the same sequence for `seed`.
    pub const fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when `bound` is 0. Multiply-shift: its bias is below 2⁻³² for every bound used here.
    pub const fn below(&mut self, bound: u32) -> u32 {
        (((self.next_u64() >> 32) * bound as u64) >> 32) as u32
    }

    /// `span` × (1 ± `share_ppm` millionths), then cut to `cap`: jitter never leaves the cap (G11).
    pub fn jittered(&mut self, span: Span, share_ppm: u32, cap: Span) -> Span {
        let width = u64::from(share_ppm.min(1_000_000));
        let draw = self.next_u64() % (2 * width + 1);
        let cap = if active(Mutant::JitterPastCap) { Span::MAX } else { cap };
        span.scaled(1_000_000 - width + draw, 1_000_000).min(cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            [rng.next_u64(), rng.next_u64(), u64::from(rng.below(10))]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn jitter_stays_within_its_share_and_its_cap() {
        let mut rng = Rng::new(1);
        let drawn: alloc::vec::Vec<u64> = (0..1000).map(|_| rng.jittered(Span(1000), 100_000, Span(1050)).0).collect();
        assert!(drawn.iter().all(|us| (900..=1050).contains(us)));
        assert!(drawn.contains(&1050) && drawn.iter().any(|us| *us < 950));
        assert_eq!(rng.jittered(Span(1000), 0, Span::MAX), Span(1000));
    }
}
