//! What a run consists of: everything that is decided before its first event.

pub mod cut;
pub mod draw;
pub mod file;
mod knobs;
pub mod run;

use std::collections::BTreeSet;

use surefoot_core::time::{Span, Time};

use crate::world::client::Client;
use crate::world::episode::Episode;
use crate::world::script::Chunking;
use crate::world::shared::Sharing;
use crate::world::site::{Account, Site};

/// A run before it begins. The same scenario always gives the same run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Where all chance comes from.
    pub seed: u64,
    /// What was drawn, in words.
    pub words: Vec<String>,
    /// The configuration of the gateway.
    pub tree: serde_json::Value,
    /// Configurations that come later.
    pub reloads: Vec<(Time, serde_json::Value)>,
    /// The sources.
    pub sites: Vec<Site>,
    /// Their quotas.
    pub accounts: Vec<Account>,
    /// Faults with a shape.
    pub episodes: Vec<Episode>,
    /// Clients that come when they will. A call's number is its client's place here, whoever else comes.
    pub arrivals: Vec<(Time, Client)>,
    /// Clients of [`Scenario::arrivals`] that stay away.
    pub absent: BTreeSet<u32>,
    /// Clients that come one after the other, as many at once as there are workers.
    pub queue: Vec<Client>,
    /// When each worker begins.
    pub workers: Vec<Time>,
    /// Between two clients of a worker.
    pub thinks: Span,
    /// When everything gets well.
    pub heal: Option<Heal>,
    /// How bodies are cut.
    pub chunking: Chunking,
    /// The policy has a rule against certain words.
    pub refuses_words: bool,
    /// The longest pushback.
    pub longest_hint: Span,
    /// Latency of the store, one way; zero = the pool answers at once.
    pub store_latency: Span,
    /// Several gateways on one store; `None` = one gateway by itself.
    pub sharing: Option<Sharing>,
    /// Attempts run on for clients that left (`on_client_disconnect = "finish"`).
    pub finishes_for_nobody: bool,
    /// News of attempts that are over may come late, this share of times in millionths.
    pub late_ppm: u64,
    /// Exactly one source works, all calls go over it and the dead ones (L4).
    pub lone: Option<usize>,
}

impl Scenario {
    /// A world in which nobody comes and nothing happens, under this configuration: what a scenario does not say.
    pub fn still(seed: u64, tree: serde_json::Value) -> Scenario {
        Scenario {
            seed,
            words: Vec::new(),
            tree,
            reloads: Vec::new(),
            sites: Vec::new(),
            accounts: Vec::new(),
            episodes: Vec::new(),
            arrivals: Vec::new(),
            absent: BTreeSet::new(),
            queue: Vec::new(),
            workers: Vec::new(),
            thinks: Span::ZERO,
            heal: None,
            chunking: Chunking::Pieces,
            refuses_words: false,
            longest_hint: Span::from_secs(5),
            store_latency: Span::ZERO,
            sharing: None,
            finishes_for_nobody: false,
            late_ppm: 0,
            lone: None,
        }
    }
}

/// The end of all trouble.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Heal {
    /// From here on nothing fails.
    pub at: Time,
    /// From here on every call that arrives must end well.
    pub judged: Time,
}
