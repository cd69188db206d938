//! Request health: which models fail too many of their calls (M8). A view for people; nothing is decided by it.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use crate::outcome::Outcome;
use crate::time::{Span, Time};

/// A slice of the window.
const SLICE: Span = Span::from_secs(30);
/// Slices kept: 10 minutes in all, the running slice included.
const SLICES: usize = 20;
/// Errors below which a model is never degraded.
const MIN_ERRORS: u32 = 3;

/// What a call's own outcome ([`End::outcome`](crate::event::End::outcome)) says of its model: `Some(false)` = an error,
/// `None` = nothing, since the client asked for what cannot be had, or left.
pub const fn verdict(outcome: Outcome) -> Option<bool> {
    match outcome {
        Outcome::Success => Some(true),
        Outcome::Transient | Outcome::RateLimited | Outcome::SourceDead => Some(false),
        Outcome::ResultInvalid | Outcome::RequestRejected | Outcome::Cancelled => None,
    }
}

/// The request health of every model that had calls; bounded by the configuration's and the providers' models.
#[derive(Debug, Default)]
pub struct RequestHealth {
    models: BTreeMap<Arc<str>, Window>,
}

impl RequestHealth {
    /// No calls yet.
    pub fn new() -> RequestHealth {
        RequestHealth::default()
    }

    /// Notes one ended call of `model`: its [`Route::model`](crate::policy::Route::model), never a client's word.
    pub fn record(&mut self, now: Time, model: &Arc<str>, ok: bool) {
        match self.models.get_mut(model) {
            Some(window) => window.record(now, ok),
            None => self.models.entry(model.clone()).or_default().record(now, ok),
        }
    }

    /// Whether `model` failed at least three calls and half of all in the last 10 minutes.
    pub fn is_degraded(&self, now: Time, model: &str) -> bool {
        self.models.get(model).is_some_and(|window| window.is_degraded(now))
    }

    /// Every model that had calls, by name, and whether it is degraded.
    pub fn iter(&self, now: Time) -> impl Iterator<Item = (&Arc<str>, bool)> {
        self.models.iter().map(move |(model, window)| (model, window.is_degraded(now)))
    }

    /// Forgets the models that `keep` does not know: after a reload or a new list.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.models.retain(|model, _| keep(model));
    }
}

/// Fixed slices in a ring, each labelled with the slice of time it stands for: a stale one is told by its label, so
/// nothing has to be swept.
#[derive(Debug, Default)]
struct Window {
    slices: [Slice; SLICES],
}

#[derive(Copy, Clone, Debug, Default)]
struct Slice {
    /// Number of the slice since the origin, plus one; 0 = never used.
    label: u64,
    ok: u32,
    errors: u32,
}

impl Window {
    fn record(&mut self, now: Time, ok: bool) {
        let label = Self::label(now);
        let place = usize::try_from(label % SLICES as u64).unwrap_or(0);
        let Some(slice) = self.slices.get_mut(place) else { return };
        if slice.label != label {
            *slice = Slice { label, ..Slice::default() };
        }
        let count = if ok { &mut slice.ok } else { &mut slice.errors };
        *count = count.saturating_add(1);
    }

    fn is_degraded(&self, now: Time) -> bool {
        let newest = Self::label(now);
        let live =
            self.slices.iter().filter(|slice| slice.label != 0 && newest.saturating_sub(slice.label) < SLICES as u64);
        let (ok, errors) = live.fold((0_u32, 0_u32), |(ok, errors), slice| {
            (ok.saturating_add(slice.ok), errors.saturating_add(slice.errors))
        });
        errors >= MIN_ERRORS && errors >= ok
    }

    const fn label(now: Time) -> u64 {
        now.0 / SLICE.0 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO.after(Span::from_secs(seconds))
    }

    fn after(calls: &[(u64, bool)]) -> RequestHealth {
        let mut health = RequestHealth::new();
        for (seconds, ok) in calls {
            health.record(at(*seconds), &"m".into(), *ok);
        }
        health
    }

    #[test]
    fn three_errors_and_half_of_the_calls_degrade_a_model() {
        assert!(!after(&[(0, false), (1, false)]).is_degraded(at(2), "m"));
        assert!(after(&[(0, false), (1, false), (2, false)]).is_degraded(at(2), "m"));
        let even = [(0, true), (0, false), (1, true), (1, false), (2, true), (2, false)];
        assert!(after(&even).is_degraded(at(2), "m"));
        let mostly_well = [&even[..], &[(3, true)]].concat();
        assert!(!after(&mostly_well).is_degraded(at(3), "m"));
        assert!(!after(&even).is_degraded(at(2), "other"));
    }

    #[test]
    fn errors_are_forgotten_after_ten_minutes_and_not_before_nine_and_a_half() {
        let health = after(&[(0, false), (29, false), (29, false)]);
        assert!(health.is_degraded(at(599), "m"));
        assert!(!health.is_degraded(at(600), "m"));
    }

    #[test]
    fn a_slice_that_comes_round_again_starts_empty() {
        let health = after(&[(0, false), (0, false), (600, false)]);
        assert!(!health.is_degraded(at(600), "m"));
    }

    #[test]
    fn only_what_says_something_of_the_model_counts() {
        let told: Vec<(&str, bool)> =
            Outcome::ALL.iter().filter_map(|outcome| Some((outcome.as_str(), verdict(*outcome)?))).collect();
        assert_eq!(told, [("success", true), ("transient", false), ("rate_limited", false), ("source_dead", false)]);
    }

    #[test]
    fn models_that_left_are_forgotten() {
        let mut health = after(&[(0, true)]);
        health.record(at(1), &"gone".into(), false);
        health.retain(|model| model == "m");
        let left: Vec<(String, bool)> = health.iter(at(1)).map(|(model, bad)| (model.to_string(), bad)).collect();
        assert_eq!(left, [("m".to_string(), false)]);
    }
}
