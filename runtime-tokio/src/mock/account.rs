//! Limits of accounts: so many requests at once, so many in a window.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::behaviour::Limit;

/// What every account has used.
#[derive(Debug, Default)]
pub(super) struct Accounts(Mutex<BTreeMap<String, Used>>);

#[derive(Debug)]
struct Used {
    in_flight: u32,
    window: Instant,
    requests: u32,
}

/// Places taken, one in each account that limits a request; dropping it gives them back.
#[derive(Debug)]
pub(super) struct Slot {
    accounts: Arc<Accounts>,
    names: Vec<String>,
}

/// A refusal: when to come back, what was used up, and by whose limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) after: Duration,
    pub(super) what: &'static str,
    /// Its place among the limits asked.
    pub(super) at: usize,
}

impl Used {
    /// Brings the window up to `now`, and says what stands in the way of another request.
    fn refusal(&mut self, limit: Limit, now: Instant) -> Option<(Duration, &'static str)> {
        let window = Duration::from_millis(limit.window_ms.max(1));
        let since = now.saturating_duration_since(self.window);
        if since >= window {
            (self.window, self.requests) = (now, 0);
        } else if limit.requests > 0 && self.requests >= limit.requests {
            return Some((window.saturating_sub(since), "requests per window"));
        }
        let full = limit.in_flight > 0 && self.in_flight >= limit.in_flight;
        full.then_some((Duration::from_secs(1), "requests at once"))
    }
}

impl Accounts {
    /// Most accounts kept apart; clients name them by their keys. Beyond it new ones are refused.
    const MOST: usize = 4096;

    /// Takes a place for one request in every account that limits it, or says which one has none. A refused request
    /// uses up nothing, in none of them.
    pub(super) fn enter(self: &Arc<Self>, limits: &[(String, Limit)], now: Instant) -> Result<Slot, Refusal> {
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, (name, limit)) in limits.iter().enumerate() {
            if accounts.len() >= Accounts::MOST && !accounts.contains_key(name) {
                return Err(Refusal { after: Duration::from_secs(60), what: "accounts", at });
            }
            let used = accounts.entry(name.clone()).or_insert(Used { in_flight: 0, window: now, requests: 0 });
            if let Some((after, what)) = used.refusal(*limit, now) {
                return Err(Refusal { after, what, at });
            }
        }
        let names: Vec<String> = limits.iter().map(|(name, _)| name.clone()).collect();
        for name in &names {
            if let Some(used) = accounts.get_mut(name) {
                used.requests += 1;
                used.in_flight += 1;
            }
        }
        Ok(Slot { accounts: Arc::clone(self), names })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut accounts = self.accounts.0.lock().unwrap_or_else(PoisonError::into_inner);
        for name in &self.names {
            if let Some(used) = accounts.get_mut(name) {
                used.in_flight = used.in_flight.saturating_sub(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(name: &str, limit: Limit) -> [(String, Limit); 1] {
        [(name.to_owned(), limit)]
    }

    #[test]
    fn places_come_back_when_they_are_dropped() {
        let accounts = Arc::new(Accounts::default());
        let limit = Limit { in_flight: 1, ..Limit::default() };
        let now = Instant::now();
        let slot = accounts.enter(&only("a", limit), now).expect("the first finds a place");
        let refusal = accounts.enter(&only("a", limit), now).expect_err("the second does not");
        assert_eq!(refusal.what, "requests at once");
        assert!(accounts.enter(&only("b", limit), now).is_ok(), "another account has its own places");
        drop(slot);
        assert!(accounts.enter(&only("a", limit), now).is_ok());
    }

    #[test]
    fn a_window_refuses_until_it_is_over_and_says_when() {
        let accounts = Arc::new(Accounts::default());
        let limit = Limit { requests: 2, window_ms: 1000, in_flight: 0 };
        let start = Instant::now();
        let at = |ms| accounts.enter(&only("a", limit), start + Duration::from_millis(ms)).map(drop);
        assert_eq!((at(0), at(100)), (Ok(()), Ok(())));
        let refusal = Refusal { after: Duration::from_millis(600), what: "requests per window", at: 0 };
        assert_eq!(at(400), Err(refusal));
        assert_eq!(at(1000), Ok(()));
    }

    #[test]
    fn who_has_no_place_in_one_account_takes_none_in_the_other() {
        let accounts = Arc::new(Accounts::default());
        let gate = Limit { in_flight: 1, ..Limit::default() };
        let rate = Limit { requests: 2, window_ms: 1000, in_flight: 0 };
        let both = [("key".to_owned(), gate), ("account".to_owned(), rate)];
        let now = Instant::now();
        let slot = accounts.enter(&both, now).expect("both have room");
        assert_eq!(accounts.enter(&both, now).expect_err("the gate is shut").at, 0);
        drop(slot);
        drop(accounts.enter(&both, now).expect("the refused request used up nothing"));
        assert_eq!(accounts.enter(&both, now).expect_err("now the rate is").at, 1);
        assert!(accounts.enter(&only("key", gate), now).is_ok(), "nor did that one");
    }
}
