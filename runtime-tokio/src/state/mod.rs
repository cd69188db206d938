//! The shared gate: several gateways on one Redis or Valkey see one breaker, one set of limits, one pushback (G18).
//!
//! | file | does |
//! |---|---|
//! | `book` | under the pool's lock: what is asked, who waits for which answer, who stands in line |
//! | `link` | the connection: batches of script calls, deadlines, the way down and back |
//!
//! A command never waits: it is handed to the link, and its reply comes to the call's [`Place`](crate::serve::gate::Place).
//! While the store cannot be reached the same commands are answered by the gate in memory, which keeps the store's book
//! all along, or are refused, as `state.on_down` says.

mod book;
mod line;
mod link;

use std::time::Duration;

use redis::{Client, IntoConnectionInfo};
use surefoot_core::policy::config::{Config, OnDown, State};
use surefoot_core::pool::Keyspace;
use tokio::sync::mpsc::UnboundedSender;

pub use self::book::{Book, Job};
pub use self::link::Link;

/// What a batch may take, its way there and back included. Slower is down: a call would rather be decided here.
const ANSWER_LIMIT: Duration = Duration::from_millis(250);
/// What a new connection may take, name and TLS included.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// How often those in line ask anew: a place that another gateway frees is not heard of.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A store as the configuration names it.
#[derive(Clone, Debug)]
pub struct StoreAddress {
    client: Client,
    keys: Keyspace,
    on_down: OnDown,
    /// Host and port, or path; nothing secret.
    name: String,
}

impl StoreAddress {
    /// The store of a `[state]` section; `None` without a URL. `instance` tells this process from others on the store.
    ///
    /// # Errors
    ///
    /// The client cannot read the URL.
    pub fn of(state: &State, instance: u64) -> Result<Option<StoreAddress>, String> {
        let Some(url) = &state.url else { return Ok(None) };
        // The client's message may quote the URL, and a password with it.
        let unreadable = |_| "is no address of a store; write it like redis://127.0.0.1:6379/0".to_owned();
        let info = url.expose().into_connection_info().map_err(unreadable)?;
        let name = info.addr().to_string();
        let client = Client::open(info).map_err(unreadable)?;
        let keys = Keyspace::new(&state.prefix, instance);
        Ok(Some(StoreAddress { client, keys, on_down: state.on_down, name }))
    }

    /// An empty book whose commands go to `jobs`.
    pub fn book(&self, jobs: UnboundedSender<Job>) -> Book {
        Book::new(self.keys.clone(), self.on_down, jobs)
    }
}

/// What is wrong with the section beyond what the core can see.
pub fn problem(config: &Config) -> Option<String> {
    StoreAddress::of(&config.state, 0).err().map(|problem| format!("state.url: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use surefoot_core::policy::Secret;

    fn of(url: &str) -> Result<Option<StoreAddress>, String> {
        let state = State { url: Some(Secret::new(url)), on_down: OnDown::Local, prefix: "surefoot".to_owned() };
        StoreAddress::of(&state, 1)
    }

    #[test]
    fn every_scheme_is_read_and_no_password_is_shown() {
        let urls = [
            ("redis://127.0.0.1:6379/3", "127.0.0.1:6379"),
            ("rediss://user:hush@store.example:6380", "store.example:6380"),
            ("valkey://:hush@store.example", "store.example:6379"),
            ("valkeys://store.example/0", "store.example:6379"),
            ("unix:///run/redis.sock", "/run/redis.sock"),
            ("redis+unix:///run/redis.sock?db=1", "/run/redis.sock"),
        ];
        for (url, name) in urls {
            let address = of(url).unwrap().unwrap();
            assert_eq!(address.name, name);
        }
        let refused = of("redis://user:hush@host:port/").unwrap_err();
        assert!(!refused.contains("hush"), "{refused}");
    }
}
