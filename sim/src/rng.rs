//! Chance: one generator a concern, so that dropping one thing from a run disturbs nothing else in it.

use surefoot_core::time::Span;

/// xoshiro256** (Blackman, Vigna 2018) behind a seed mixed from a run's seed and a place's name.
///
/// Not the core's generator: a fault of that one must not be able to hide in the tester.
#[derive(Clone, Debug)]
pub struct Stream([u64; 4]);

/// What a stream is for. Each draws from numbers of its own.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names tell")]
pub enum Concern {
    Options = 1,
    Config,
    Episodes,
    Arrivals,
    Client,
    CallSeed,
    Exchange,
    Chunks,
    Store,
    Sample,
    Late,
}

impl Stream {
    /// The stream of one concern in one place of a run.
    pub fn new(seed: u64, concern: Concern, place: u64, part: u64) -> Stream {
        let mut state = seed;
        let mut word = |salt: u64| {
            state = mix(state ^ mix(salt).rotate_left(17)).wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        };
        let words = [word(concern as u64), word(place), word(part), word(0x5eed)];
        // All zero is the one state that it never leaves.
        Stream(if words == [0; 4] { [1; 4] } else { words })
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let out = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        out
    }

    /// A number below `bound`; 0 when it is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True with a chance of `ppm` millionths.
    pub fn chance(&mut self, ppm: u64) -> bool {
        self.below(1_000_000) < ppm
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// An exponential waiting time of this mean.
    ///
    /// In whole numbers: a float's logarithm may differ between machines, and then so would the hashes.
    pub fn exponential(&mut self, mean: Span) -> Span {
        // −ln u = (leading zeros + 1 − log2 of the mantissa) × ln 2, the logarithm cut to a line: off by 0.06 at most.
        let bits = self.bits() | 1;
        let zeros = bits.leading_zeros();
        let mantissa = (bits << zeros) >> 32;
        let fraction = mantissa - (1 << 31);
        let log2 = u64::from(zeros + 1) * (1 << 31) - fraction;
        Span((u128::from(mean.0) * u128::from(log2) * 693_147 / (1_000_000u128 << 31)) as u64)
    }
}

/// The finalizer of SplitMix64.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A seed as a person or a CI job gives it: a number, `0x…`, or a commit's hash.
pub fn parse_seed(text: &str) -> Option<u64> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if digits.is_empty() || digits.len() > 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    if digits.len() <= 16 && text.starts_with("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    Some(digits.bytes().fold(0, |seed, digit| mix(seed ^ u64::from(digit.to_ascii_lowercase()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_different_places_differ_and_the_same_place_repeats() {
        let draw = |concern, place, part| Stream::new(7, concern, place, part).bits();
        assert_eq!(draw(Concern::Client, 3, 0), draw(Concern::Client, 3, 0));
        let all = [
            draw(Concern::Client, 3, 0),
            draw(Concern::Client, 0, 3),
            draw(Concern::Client, 4, 0),
            draw(Concern::Chunks, 3, 0),
            Stream::new(8, Concern::Client, 3, 0).bits(),
        ];
        assert!((0..all.len()).all(|i| (0..i).all(|j| all[i] != all[j])));
    }

    #[test]
    fn exponential_times_have_their_mean() {
        let mut stream = Stream::new(1, Concern::Sample, 0, 0);
        let sum: u64 = (0..20_000).map(|_| stream.exponential(Span(1_000_000)).0).sum();
        let mean = sum / 20_000;
        assert!((900_000..1_100_000).contains(&mean), "{mean}");
    }

    #[test]
    fn a_commit_hash_is_a_seed() {
        assert_eq!(parse_seed("42"), Some(42));
        assert_eq!(parse_seed("0x2a"), Some(42));
        let hash = parse_seed("c42bc2a0f8d94f6a0e0d1b2c3d4e5f6071829304");
        assert!(hash.is_some() && hash == parse_seed("C42BC2A0F8D94F6A0E0D1B2C3D4E5F6071829304"));
        assert_eq!([parse_seed(""), parse_seed("seed"), parse_seed("-1")], [None; 3]);
    }
}
