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

/// A place taken in an account; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Slot {
    accounts: Arc<Accounts>,
    name: String,
}

/// A refusal: when to come back, and what was used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) after: Duration,
    pub(super) what: &'static str,
}

impl Accounts {
    /// Most accounts kept apart; clients name them by their keys. Beyond it new ones are refused.
    const MOST: usize = 4096;

    /// Takes a place for one request, or says why not. A refused request uses up nothing.
    pub(super) fn enter(self: &Arc<Self>, name: &str, limit: Limit, now: Instant) -> Result<Slot, Refusal> {
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if accounts.len() >= Accounts::MOST && !accounts.contains_key(name) {
            return Err(Refusal { after: Duration::from_secs(60), what: "accounts" });
        }
        let used = accounts.entry(name.to_owned()).or_insert(Used { in_flight: 0, window: now, requests: 0 });
        let window = Duration::from_millis(limit.window_ms.max(1));
        let since = now.saturating_duration_since(used.window);
        if since >= window {
            (used.window, used.requests) = (now, 0);
        }
        if limit.requests > 0 && used.requests >= limit.requests {
            return Err(Refusal { after: window.saturating_sub(since), what: "requests per window" });
        }
        if limit.in_flight > 0 && used.in_flight >= limit.in_flight {
            return Err(Refusal { after: Duration::from_secs(1), what: "requests at once" });
        }
        used.requests += 1;
        used.in_flight += 1;
        Ok(Slot { accounts: Arc::clone(self), name: name.to_owned() })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut accounts = self.accounts.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = accounts.get_mut(&self.name) {
            used.in_flight = used.in_flight.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_when_they_are_dropped() {
        let accounts = Arc::new(Accounts::default());
        let limit = Limit { in_flight: 1, ..Limit::default() };
        let now = Instant::now();
        let slot = accounts.enter("a", limit, now).expect("the first finds a place");
        assert_eq!(accounts.enter("a", limit, now).expect_err("the second does not").what, "requests at once");
        assert!(accounts.enter("b", limit, now).is_ok(), "another account has its own places");
        drop(slot);
        assert!(accounts.enter("a", limit, now).is_ok());
    }

    #[test]
    fn a_window_refuses_until_it_is_over_and_says_when() {
        let accounts = Arc::new(Accounts::default());
        let limit = Limit { requests: 2, window_ms: 1000, in_flight: 0 };
        let start = Instant::now();
        let at = |ms| accounts.enter("a", limit, start + Duration::from_millis(ms)).map(drop);
        assert_eq!((at(0), at(100)), (Ok(()), Ok(())));
        let refusal = Refusal { after: Duration::from_millis(600), what: "requests per window" };
        assert_eq!(at(400), Err(refusal));
        assert_eq!(at(1000), Ok(()));
    }
}
