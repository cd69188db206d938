//! The call's timers: a fixed, named set.

use crate::event::{Timer, Wake};
use crate::time::{Span, Time};

/// Whether it measures what the upstream takes, of which a client's pause is no part (M5, S11).
fn is_upstreams(timer: Timer) -> bool {
    matches!(timer, Timer::Idle | Timer::Total)
}

/// When each timer is due; [`Time::NEVER`] = not set.
#[derive(Clone, Debug)]
pub(crate) struct Timers([Time; Timer::ALL.len()]);

impl Timers {
    pub(crate) const fn new() -> Timers {
        Timers([Time::NEVER; Timer::ALL.len()])
    }

    pub(crate) fn set(&mut self, timer: Timer, at: Time) {
        self.0[timer as usize] = at;
    }

    pub(crate) fn clear(&mut self, timer: Timer) {
        self.set(timer, Time::NEVER);
    }

    pub(crate) fn at(&self, timer: Timer) -> Time {
        self.0[timer as usize]
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.at(timer) != Time::NEVER
    }

    /// Moves a timer that is set.
    pub(crate) fn delay(&mut self, timer: Timer, span: Span) {
        self.0[timer as usize] = self.0[timer as usize].after(span);
    }

    /// Clears everything that belongs to an attempt.
    pub(crate) fn clear_attempt(&mut self) {
        for timer in [Timer::FirstByte, Timer::FirstContent, Timer::Idle, Timer::Total, Timer::Renew] {
            self.clear(timer);
        }
    }

    /// Clears everything that belongs to waiting.
    pub(crate) fn clear_waiting(&mut self) {
        for timer in [Timer::Again, Timer::MaxWait, Timer::Stall] {
            self.clear(timer);
        }
    }

    /// Takes the first timer that is due at `now`, in the order of [`Timer::ALL`].
    pub(crate) fn take_due(&mut self, now: Time, upstreams_count: bool) -> Option<Timer> {
        let due = |timer: &Timer| self.0[*timer as usize] <= now && (upstreams_count || !is_upstreams(*timer));
        let timer = Timer::ALL.into_iter().find(due)?;
        self.clear(timer);
        Some(timer)
    }

    /// The earliest timer.
    pub(crate) fn next(&self, upstreams_count: bool) -> Option<Wake> {
        Timer::ALL
            .into_iter()
            .filter(|timer| upstreams_count || !is_upstreams(*timer))
            .map(|why| Wake { at: self.0[why as usize], why })
            .filter(|wake| wake.at != Time::NEVER)
            .min_by_key(|wake| wake.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_wakes_and_the_upstreams_can_be_left_out() {
        let mut timers = Timers::new();
        timers.set(Timer::Idle, Time(5));
        timers.set(Timer::Deadline, Time(9));
        assert_eq!(timers.next(true), Some(Wake { at: Time(5), why: Timer::Idle }));
        assert_eq!(timers.next(false), Some(Wake { at: Time(9), why: Timer::Deadline }));
        assert_eq!(timers.take_due(Time(9), false), Some(Timer::Deadline));
        assert_eq!(timers.take_due(Time(9), false), None);
        assert_eq!(timers.take_due(Time(9), true), Some(Timer::Idle));
        assert_eq!(timers.next(true), None);
    }
}
