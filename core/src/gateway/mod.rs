//! The gateway, as far as it is pure: from a request to a plan or an answer, and from a configuration to everything that
//! this takes.
//!
//! A [`Gateway`] is one immutable snapshot (F1). A call keeps the one in force when it came; a reload or a new model list
//! makes another. The adapter's part is I/O:
//!
//! 1. [`Gateway::route`] with the request's head: an answer, a pass-through, or a call whose body is to be read;
//! 2. [`Gateway::plan`] with the body: a [`Plan`](crate::policy::Plan) and the place of the model's name in it;
//! 3. for each attempt, [`Gateway::upstream`] of its candidate: address and credentials; [`headers`] tells which of
//!    the client's headers go along.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;

use self::auth::ClientKeys;
use self::build::Builder;
pub use self::build::pool_settings;
use self::models::{Inventory, Listing};
pub use self::render::Answer;
pub use self::request::Planned;
pub use self::route::{Operation, RequestHead, Routed};
pub use self::upstream::{Tail, Upstream};
use crate::policy::config::Config;
use crate::policy::{Place, Route};
use crate::pool::Pool;
use crate::wire::Format;

mod auth;
pub mod body;
mod build;
mod catalogue;
mod form;
pub mod headers;
pub mod health;
pub mod models;
mod models_page;
pub mod render;
mod request;
mod route;
mod text;
mod upstream;

#[cfg(test)]
mod fixture;

/// One immutable snapshot: a configuration and the models known of, resolved to routes.
#[derive(Debug)]
pub struct Gateway {
    config: Arc<Config>,
    keys: ClientKeys,
    /// Virtual models and `provider/model`, by the name that clients ask for.
    models: BTreeMap<Arc<str>, Model>,
    /// The answer to `GET /v1/models`.
    listing: Bytes,
    /// The pass-through route of each provider, in the configuration's order.
    passes: Vec<(Arc<str>, Arc<Route>)>,
    /// What each provider's models are known from, in the configuration's order.
    listings: Vec<Listing>,
}

/// One name that clients may ask for.
#[derive(Debug)]
struct Model {
    /// The provider's name, or the gateway's own.
    owner: Arc<str>,
    /// Its route for each protocol that any of its providers speaks; those with the same candidates share one.
    routes: Vec<(Format, Arc<Route>)>,
}

impl Gateway {
    /// Resolves a configuration. The pool gets its knobs and its targets: virtual models' targets, known real models, and
    /// each source's pass-through; others leave its views. Calls that are under way keep theirs.
    pub fn build(config: Arc<Config>, inventory: &Inventory, pool: &mut Pool) -> Gateway {
        Builder::new(&config, pool).build(inventory)
    }

    /// The configuration that it was built from.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Where and with what a candidate is asked; `None` for a place that the configuration does not have.
    pub fn upstream(&self, place: Place) -> Option<Upstream<'_>> {
        let provider = self.config.providers.get(usize::from(place.provider))?;
        let base = &provider.endpoints.get(usize::from(place.endpoint))?.base_url;
        let key = if place.key == u16::MAX { None } else { Some(provider.keys.get(usize::from(place.key))?) };
        Some(Upstream { base, provider, key })
    }

    /// The names that clients may ask for, in their own order.
    pub fn models(&self) -> impl Iterator<Item = &Arc<str>> {
        self.models.keys()
    }

    /// Whether clients may ask for this name.
    pub fn knows(&self, model: &str) -> bool {
        self.models.contains_key(model)
    }

    /// The body of `/health/ready`: degraded when there is no model at all (M9). 200 either way: the instance stays in
    /// rotation, since another one would know no more.
    fn readiness(&self) -> &'static str {
        if self.models.is_empty() {
            r#"{"status":"degraded","components":{"models":"down"}}"#
        } else {
            r#"{"status":"ready"}"#
        }
    }
}
