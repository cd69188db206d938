//! Rate limits of a source: `rpm` and `tpm` as token buckets in whole numbers (G15).

use crate::time::Time;

/// One minute in microseconds: a level is kept in units × this, so that a microsecond's refill is a whole number.
const MINUTE: i64 = 60_000_000;

/// Minutes of its limit that a bucket may owe at most. Usage above the estimate is a debt that later calls wait for; an
/// upstream that reports absurd usage must not close its source for days.
const MAX_DEBT_MINUTES: i64 = 5;

/// A bucket that holds one minute's worth and refills evenly; every method takes its limit per minute, 0 = no limit.
///
/// The capacity is the whole limit: a burst may use a minute's allowance at once, as the providers' own limits let it.
/// A smaller one would space calls out that nobody limits.
///
/// It remembers the limit that its level was counted under. Another one, after a reload or from a gateway with another
/// file, is noticed when the bucket is next used: nothing has to go round and tell every bucket, in a store least of all.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    level: i64,
    at: Time,
    /// 0 = never used.
    limit: u32,
}

impl Bucket {
    /// A full bucket, of any limit.
    pub(super) const FULL: Bucket = Bucket { level: 0, at: Time::ZERO, limit: 0 };

    /// When `cost` can be taken: `now` or earlier if at once. A cost above the capacity waits for a full bucket only,
    /// it could never start otherwise.
    pub(super) fn opens(&self, now: Time, limit: u32, cost: u32) -> Time {
        if limit == 0 {
            return now;
        }
        let short = i64::from(cost.min(limit)) * MINUTE - self.level(now, limit);
        if short <= 0 { now } else { Time(now.0.saturating_add((short as u64).div_ceil(u64::from(limit)))) }
    }

    /// Takes `cost`, going into debt if need be.
    pub(super) fn take(&mut self, now: Time, limit: u32, cost: u32) {
        self.shift(now, limit, -i64::from(cost));
    }

    /// Gives `amount` back, up to the capacity.
    pub(super) fn give(&mut self, now: Time, limit: u32, amount: u32) {
        self.shift(now, limit, i64::from(amount));
    }

    fn shift(&mut self, now: Time, limit: u32, units: i64) {
        if limit == 0 {
            return;
        }
        let capacity = i64::from(limit) * MINUTE;
        let level = self.level(now, limit).saturating_add(units * MINUTE);
        let owed_at_most = capacity.saturating_mul(-MAX_DEBT_MINUTES);
        *self = Bucket { level: level.clamp(owed_at_most, capacity), at: now, limit };
    }

    fn level(&self, now: Time, limit: u32) -> i64 {
        if self.limit == 0 {
            return i64::from(limit) * MINUTE;
        }
        let elapsed = i64::try_from(now.since(self.at).0).unwrap_or(i64::MAX);
        let refilled = self.level.saturating_add(elapsed.saturating_mul(i64::from(self.limit)));
        let level = refilled.min(i64::from(self.limit) * MINUTE);
        if self.limit == limit { level } else { self.rescaled(level, limit) }
    }

    /// The filled share of another limit, in whole units.
    fn rescaled(&self, level: i64, limit: u32) -> i64 {
        let units = i128::from(level.div_euclid(MINUTE)) * i128::from(limit);
        units.div_euclid(i128::from(self.limit.max(1))) as i64 * MINUTE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_minutes_allowance_may_go_at_once_and_then_refills_evenly() {
        let mut bucket = Bucket::FULL;
        for _ in 0..60 {
            assert_eq!(bucket.opens(Time(7), 60, 1), Time(7));
            bucket.take(Time(7), 60, 1);
        }
        assert_eq!(bucket.opens(Time(7), 60, 1), Time(7 + SECOND));
        assert_eq!(bucket.opens(Time(7 + SECOND / 2), 60, 1), Time(7 + SECOND));
    }

    #[test]
    fn a_request_larger_than_the_limit_waits_for_a_full_bucket_and_leaves_a_debt() {
        let mut bucket = Bucket::FULL;
        bucket.take(Time(0), 600, 900);
        assert_eq!(bucket.opens(Time(0), 600, 1000), Time(90 * SECOND));
        bucket.take(Time(90 * SECOND), 600, 1000);
        assert_eq!(bucket.opens(Time(90 * SECOND), 600, 0), Time(130 * SECOND));
    }

    #[test]
    fn absurd_usage_costs_a_few_minutes_at_most() {
        let mut bucket = Bucket::FULL;
        bucket.take(Time(0), 600, u32::MAX);
        assert_eq!(bucket.opens(Time(0), 600, 600), Time(360 * SECOND));
        bucket.take(Time(0), u32::MAX, u32::MAX);
        assert_eq!(bucket.opens(Time::NEVER, 0, 5), Time::NEVER);
    }

    #[test]
    fn a_changed_limit_keeps_the_filled_share() {
        let mut bucket = Bucket::FULL;
        bucket.take(Time(0), 100, 100);
        let half = Time(30 * SECOND);
        assert_eq!(bucket.opens(half, 10, 10), Time(60 * SECOND));
        bucket.take(half, 10, 5);
        assert_eq!(bucket.opens(half, 10, 1), Time(36 * SECOND));
        bucket.take(half, 0, 5);
        assert_eq!(bucket.opens(half, 0, 5), half, "no limit");
        assert_eq!(bucket.opens(half, 10, 1), Time(36 * SECOND), "and what it had owed stays owed");
    }

    proptest! {
        /// S7: between any two grants, no more was granted than the capacity and the refill of the time between them.
        #[test]
        fn the_limit_holds_over_every_pair_of_grants(
            limit in 1u32..200,
            tries in prop::collection::vec((0u64..3 * SECOND, 0u32..50), 1..200),
        ) {
            let (mut bucket, mut now, mut grants) = (Bucket::FULL, Time(0), Vec::new());
            for (pause, cost) in tries {
                // Every other try comes at the very moment that was told.
                now = if pause % 2 == 0 { bucket.opens(now, limit, cost) } else { now.after(Span(pause)) };
                let opens = bucket.opens(now, limit, cost);
                // The time it tells is exact: then it opens, a microsecond earlier it does not.
                prop_assert_eq!(bucket.opens(opens, limit, cost), opens);
                prop_assert!(opens == now || bucket.opens(Time(opens.0 - 1), limit, cost) == opens);
                if opens <= now {
                    bucket.take(now, limit, cost);
                    grants.push((now, cost));
                }
            }
            for (first, (start, _)) in grants.iter().enumerate() {
                let mut taken = 0;
                for (end, cost) in &grants[first..] {
                    taken += u64::from((*cost).min(limit)) * MINUTE as u64;
                    let allowed = u64::from(limit) * (MINUTE as u64 + end.since(*start).0);
                    // A cost above the limit starts from a full bucket and is paid for afterwards.
                    prop_assert!(taken <= allowed, "{taken} of {allowed}");
                }
            }
        }
    }
}
