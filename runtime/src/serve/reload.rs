//! The configuration in force and the models known, and how both change: whole or not at all (F1, F14).

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use surefoot_core::gateway::models::{Fetch, FetchError, Inventory};
use surefoot_core::gateway::{Gateway, pool_settings};
use surefoot_core::policy::config::{Config, State};
use surefoot_core::pool::Pool;
use surefoot_core::time::Time;

use super::gate::Gate;
use super::lifecycle::Bell;
use super::shared::{Clock, Shared, Snapshot};
use crate::config_file::Origin;
use crate::reactor::Reactor;
use crate::trace_file::TraceFile;
use crate::upstream::Upstreams;

/// What snapshots are made of, and what they are made into.
#[derive(Debug)]
pub struct World<R: Reactor> {
    shared: Arc<Shared<R>>,
    made_of: Mutex<MadeOf>,
    /// The inventory has other questions than before.
    changed: Bell,
}

#[derive(Debug)]
struct MadeOf {
    config: Arc<Config>,
    inventory: Inventory,
}

impl<R: Reactor> World<R> {
    /// The world of a configuration.
    pub fn new(config: Config, reactor: R) -> World<R> {
        let config = Arc::new(config);
        let clock = Clock::start();
        let inventory = Inventory::new(&config, clock.now());
        let mut pool = Pool::new(pool_settings(&config));
        let gateway = Gateway::build(config.clone(), &inventory, &mut pool);
        let upstreams = Upstreams::new(reactor);
        let snapshot = Snapshot::new(gateway, &upstreams);
        let shared = Arc::new(Shared::new(clock, Gate::new(pool), upstreams, snapshot));
        World { shared, made_of: Mutex::new(MadeOf { config, inventory }), changed: Bell::default() }
    }

    /// What all calls share.
    pub fn shared(&self) -> &Arc<Shared<R>> {
        &self.shared
    }

    fn made_of(&self) -> MutexGuard<'_, MadeOf> {
        self.made_of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rereads the configuration. A bad one is refused whole, and the log tells every problem in it.
    pub fn reload(&self, origin: &Origin) {
        let config = match origin.load() {
            Ok(config) => config,
            Err(rejected) => {
                for problem in &rejected.problems {
                    tracing::error!("{}: {problem}", rejected.origin);
                }
                tracing::error!("the new configuration is refused, the old one stays in force");
                return;
            }
        };
        match self.adopt(config) {
            Ok(()) => tracing::info!("the configuration was read anew from {origin}"),
            Err(problem) => {
                tracing::error!("{origin}: {problem}");
                tracing::error!("the new configuration is refused, the old one stays in force");
            }
        }
    }

    /// Puts another configuration in force.
    ///
    /// # Errors
    ///
    /// What cannot change while the process runs.
    pub fn adopt(&self, config: Config) -> Result<(), String> {
        let mut made_of = self.made_of();
        if !same_store(&made_of.config.state, &config.state) {
            return Err("state: cannot change while the gateway runs; restart it".to_owned());
        }
        let (old, new) = (&made_of.config.server, &config.server);
        for (key, changed) in
            [("listen", old.listen != new.listen), ("admin_listen", old.admin_listen != new.admin_listen)]
        {
            if changed {
                return Err(format!("server.{key}: cannot change while the gateway runs; restart it"));
            }
        }
        let trace = match self.shared.trace() {
            Some(trace) if trace.is(&config.trace) => Some(trace),
            _ => TraceFile::open(&config.trace).map_err(|error| error.to_string())?,
        };
        self.shared.set_trace(trace);
        let config = Arc::new(config);
        let mut inventory = Inventory::new(&config, self.shared.clock.now());
        inventory.carry_over(&made_of.inventory);
        *made_of = MadeOf { config, inventory };
        self.rebuild(&made_of);
        drop(made_of);
        self.changed.ring();
        Ok(())
    }

    fn rebuild(&self, made_of: &MadeOf) {
        let config = made_of.config.clone();
        let gateway = self.shared.gate.with_pool(|pool| Gateway::build(config, &made_of.inventory, pool));
        self.shared.replace(Snapshot::new(gateway, &self.shared.upstreams));
        self.shared.gate.look(self.shared.clock.now());
    }

    /// The model lists to be fetched now, and the snapshot that says where.
    pub fn due(&self) -> (Vec<Fetch>, Arc<Snapshot<R>>, Time) {
        let mut made_of = self.made_of();
        let due = made_of.inventory.begin_due(self.shared.clock.now());
        (due, self.shared.snapshot(), made_of.inventory.next_due())
    }

    /// Takes a fetched list; routes are built anew if it changed anything.
    pub fn record(&self, provider: &str, list: Result<Vec<Box<str>>, FetchError>) {
        let mut made_of = self.made_of();
        match &list {
            Ok(list) => tracing::debug!(provider, models = list.len(), "the model list was fetched"),
            Err(error) => tracing::warn!(provider, "the model list could not be fetched: {error}"),
        }
        if made_of.inventory.record(self.shared.clock.now(), provider, list) {
            self.rebuild(&made_of);
        }
        drop(made_of);
        self.changed.ring();
    }

    /// Looks at the inventory.
    pub fn with_inventory<T>(&self, look: impl FnOnce(&Inventory) -> T) -> T {
        look(&self.made_of().inventory)
    }

    /// Ready when the inventory has other questions than before.
    pub async fn changed(&self) {
        poll_fn(|cx| self.changed.poll(cx)).await;
    }
}

fn same_store(old: &State, new: &State) -> bool {
    let url = |state: &State| state.url.as_ref().map(|url| url.expose().to_owned());
    (url(old), old.on_down, &old.prefix) == (url(new), new.on_down, &new.prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::still::Still;
    use serde_json::json;
    use surefoot_core::policy::config;

    fn config(server: serde_json::Value, model: &str) -> Config {
        let provider =
            json!({"name": "p", "formats": ["chat"], "base_url": "http://127.0.0.1:9/v1", "models": [model]});
        let tree = json!({
            "server": server, "providers": [provider], "trace": {"mode": "off"},
            "discovery": {"configured_models_mode": "allowlist"},
        });
        config::read(&tree, &|_| None).unwrap()
    }

    #[test]
    fn a_new_configuration_is_taken_whole_or_not_at_all() {
        let world = World::new(config(json!({"listen": "127.0.0.1:4000"}), "old"), Still);
        let kept = world.shared().snapshot();
        for server in
            [json!({"listen": "127.0.0.1:4002"}), json!({"listen": "127.0.0.1:4000", "admin_listen": "127.0.0.1:4003"})]
        {
            let refused = world.adopt(config(server, "new")).unwrap_err();
            assert!(refused.contains("listen: cannot change"), "{refused}");
            assert!(world.shared().snapshot().gateway.knows("p/old"));
        }
        world.adopt(config(json!({"listen": "127.0.0.1:4000"}), "new")).unwrap();
        let now = world.shared().snapshot();
        assert!(now.gateway.knows("p/new") && !now.gateway.knows("p/old"));
        assert!(kept.gateway.knows("p/old"), "a call that runs keeps its snapshot");
    }
}
