//! The shared gate's store: Redis or Valkey (G18). What is asked of it, and who waits for which answer, stands in
//! [`surefoot_runtime::state`]; here is the connection: batches of script calls, deadlines, the way down and back.

mod link;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use redis::{Client, IntoConnectionInfo};
use surefoot_core::policy::config::{Config, OnDown, State};
use surefoot_core::pool::Keyspace;
use surefoot_runtime::state::{Book, Carrier, Job};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::link::Link;
use crate::serve::Shared;

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
    /// The store of a `[state]` section; `None` without a URL.
    ///
    /// # Errors
    ///
    /// The client cannot read the URL.
    pub fn of(state: &State) -> Result<Option<StoreAddress>, String> {
        let Some(url) = &state.url else { return Ok(None) };
        // The client's message may quote the URL, and a password with it.
        let unreadable = |_| "state.url: is no address of a store; write it like redis://127.0.0.1:6379/0".to_owned();
        let info = url.expose().into_connection_info().map_err(unreadable)?;
        let name = info.addr().to_string();
        let client = Client::open(info).map_err(unreadable)?;
        // Tells this process from others on the store.
        let instance = RandomState::new().build_hasher().finish();
        let keys = Keyspace::new(&state.prefix, instance);
        Ok(Some(StoreAddress { client, keys, on_down: state.on_down, name }))
    }

    /// Has this store decide from now on, for as long as the gate is there. Must be called within a tokio runtime.
    pub fn share(self, shared: &Shared) {
        let (jobs, received) = unbounded_channel();
        let book = Book::new(self.keys.clone(), self.on_down, Box::new(Jobs(jobs)));
        let keeper = shared.gate.share(book, shared.clock);
        tokio::spawn(Link::new(self, received, keeper).run());
    }
}

/// The way to the link's task.
#[derive(Debug)]
struct Jobs(UnboundedSender<Job>);

impl Carrier for Jobs {
    fn carry(&self, job: Job) -> Option<Job> {
        self.0.send(job).err().map(|unsent| unsent.0)
    }
}

/// What is wrong with the section beyond what the core can see.
pub fn problem(config: &Config) -> Option<String> {
    StoreAddress::of(&config.state).err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use surefoot_core::policy::Secret;

    fn of(url: &str) -> Result<Option<StoreAddress>, String> {
        let state = State { url: Some(Secret::new(url)), on_down: OnDown::Local, prefix: "surefoot".to_owned() };
        StoreAddress::of(&state)
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
