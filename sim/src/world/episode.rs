//! Faults with a shape: who, from when to when, how much of the traffic, and how that changes meanwhile.

use surefoot_core::time::{Span, Time};

use super::trouble::Trouble;
use crate::rng::Stream;

/// Trouble over a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Episode {
    /// Whom it meets.
    pub scope: Scope,
    /// When it begins.
    pub from: Time,
    /// When it is over.
    pub until: Time,
    /// How it runs.
    pub shape: Shape,
    /// What it brings; one of them each time.
    pub troubles: Vec<Trouble>,
    /// Share of the requests that it meets, in millionths.
    pub share_ppm: u64,
}

/// Whom an episode meets.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One source, by its place in the world.
    Site(usize),
    /// All sources of a provider.
    Provider(usize),
    /// All sources in a region.
    Region(u8),
    /// Everyone.
    World,
}

/// How an episode runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The same all along.
    Block,
    /// Rising to its middle, then falling: a brownout.
    Hill,
    /// On and off, so long each.
    Flapping(Span),
}

/// Where a source stands, for scopes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its place in the world.
    pub site: usize,
    /// Its provider.
    pub provider: usize,
    /// Its region.
    pub region: u8,
}

impl Episode {
    fn meets(&self, address: Address) -> bool {
        match self.scope {
            Scope::Site(site) => site == address.site,
            Scope::Provider(provider) => provider == address.provider,
            Scope::Region(region) => region == address.region,
            Scope::World => true,
        }
    }

    fn share_at(&self, now: Time) -> u64 {
        let (since, length) = (now.since(self.from).0, self.until.since(self.from).0.max(1));
        match self.shape {
            Shape::Block => self.share_ppm,
            Shape::Hill => {
                let distance = since.min(length.saturating_sub(since));
                (u128::from(self.share_ppm) * 2 * u128::from(distance) / u128::from(length)) as u64
            }
            Shape::Flapping(period) => {
                if (since / period.0.max(1)).is_multiple_of(2) {
                    self.share_ppm
                } else {
                    0
                }
            }
        }
    }

    /// The trouble that it brings a request now, if any.
    pub fn strike(&self, now: Time, address: Address, stream: &mut Stream) -> Option<Trouble> {
        if now < self.from || now >= self.until || !self.meets(address) || self.troubles.is_empty() {
            return None;
        }
        stream.chance(self.share_at(now)).then(|| stream.pick(&self.troubles))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_rise_fall_and_flap() {
        let episode = |shape| Episode {
            scope: Scope::World,
            from: Time(100),
            until: Time(200),
            shape,
            troubles: vec![Trouble::Tls],
            share_ppm: 1000,
        };
        let shares = |shape| [100, 125, 150, 175].map(|at| episode(shape).share_at(Time(at)));
        assert_eq!(shares(Shape::Block), [1000; 4]);
        assert_eq!(shares(Shape::Hill), [0, 500, 1000, 500]);
        assert_eq!(shares(Shape::Flapping(Span(25))), [1000, 0, 1000, 0]);
    }
}
