//! The stall guard's two facts: when anything last succeeded, and when a waiting call is stalled (G16).

use crate::time::{Span, Time};

/// When anything at all last succeeded at a pool; [`Time::ZERO`] before the first success.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress(Time);

impl Progress {
    /// A success at `now`.
    pub(super) fn note(&mut self, now: Time) {
        self.0 = self.0.max(now);
    }

    /// The time of the last success.
    pub const fn last(self) -> Time {
        self.0
    }
}

/// When a call that has waited since `waiting_since` is stalled, if nothing succeeds until then (G16).
///
/// Both must have lasted longer than `window`, so the later of the two counts. `None` when `window` is zero: no guard.
pub fn stalled_at(waiting_since: Time, progress: Time, window: Span) -> Option<Time> {
    let window = window.limit()?;
    Some(waiting_since.max(progress).after(window))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_stalls_only_when_both_the_wait_and_the_drought_are_long() {
        let window = Span(100);
        assert_eq!(stalled_at(Time(50), Time::ZERO, window), Some(Time(150)));
        assert_eq!(stalled_at(Time(50), Time(120), window), Some(Time(220)));
        assert_eq!(stalled_at(Time(50), Time(10), Span::ZERO), None);
    }

    #[test]
    fn progress_never_goes_back() {
        let mut progress = Progress::default();
        progress.note(Time(9));
        progress.note(Time(3));
        assert_eq!(progress.last(), Time(9));
    }
}
