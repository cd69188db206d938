//! Time as data: microseconds since an origin that the driver chose.

use core::fmt;

/// A point in time: microseconds since the driver's origin.
///
/// The core never asks for the time, it is told; [`Call::handle`](crate::call::Call::handle) takes the larger of what it
/// is told and what it knew, so time never goes back.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);
    /// A point that is never reached.
    pub const NEVER: Time = Time(u64::MAX);

    /// The point `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Time {
        Time(millis.saturating_mul(1000))
    }

    /// The point `span` later; saturates at [`Time::NEVER`].
    #[must_use]
    pub const fn after(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

/// A length of time in microseconds.
#[derive(Copy, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Span {
    /// No time at all. Most limits read it as "no limit".
    pub const ZERO: Span = Span(0);
    /// Longer than anything.
    pub const MAX: Span = Span(u64::MAX);

    /// A span of whole milliseconds; saturates.
    pub const fn from_millis(millis: u64) -> Span {
        Span(millis.saturating_mul(1000))
    }

    /// A span of whole seconds; saturates.
    pub const fn from_secs(seconds: u64) -> Span {
        Span(seconds.saturating_mul(1_000_000))
    }

    /// Whether it is [`Span::ZERO`].
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1000
    }

    /// Whole seconds, rounded up: what a `retry-after` header may say.
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// `None` for [`Span::ZERO`], which limits read as "none".
    pub const fn limit(self) -> Option<Span> {
        if self.is_zero() { None } else { Some(self) }
    }

    /// `self × numerator / denominator`, saturating; a zero denominator counts as one.
    #[must_use]
    pub fn scaled(self, numerator: u64, denominator: u64) -> Span {
        let product = u128::from(self.0) * u128::from(numerator) / u128::from(denominator.max(1));
        Span(u64::try_from(product).unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            us @ 0..1000 => write!(f, "{us} µs"),
            us @ 1000..1_000_000 => write!(f, "{} ms", us / 1000),
            us => write!(f, "{}.{:03} s", us / 1_000_000, us % 1_000_000 / 1000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn arithmetic_saturates_and_never_goes_below_zero() {
        assert_eq!(Time::NEVER.after(Span::from_secs(1)), Time::NEVER);
        assert_eq!(Time(5).since(Time(9)), Span::ZERO);
        assert_eq!(Span::MAX.scaled(2, 1), Span::MAX);
        assert_eq!(Span(10).scaled(3, 0), Span(30));
    }

    #[test]
    fn spans_print_in_the_unit_a_person_would_take() {
        let printed = [Span(7), Span(7_300), Span(1_234_567)].map(|s| s.to_string());
        assert_eq!(printed, ["7 µs", "7 ms", "1.234 s"]);
        assert_eq!(Span(1_000_001).as_secs_ceil(), 2);
    }
}
