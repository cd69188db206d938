//! From a configuration and an inventory to routes: which candidates each model has for each protocol.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::auth::ClientKeys;
use super::models::Inventory;
use super::{Gateway, Model, models_page};
use crate::id::TargetId;
use crate::policy::config::{self, Config, Provider};
use crate::policy::{CallPolicy, Candidate, Place, ProviderPolicy, Route, Secret};
use crate::pool::{
    BreakerSettings, Entry, HealthSettings, PaceSettings, Pool, Roster, Settings, SourceSpec, Strategy, TargetSpec,
};
use crate::wire::Format;

/// The owner of virtual models, in lists.
const OWNER: &str = "surefoot";
/// The model of pass-through targets: no upstream calls one so.
const ANY_MODEL: &str = "*";
/// Candidates of a roster at most; what is listed beyond is never reached by any call.
const MAX_CANDIDATES: usize = 4096;

/// The work of one build.
pub(super) struct Builder<'a> {
    config: &'a Arc<Config>,
    pool: &'a mut Pool,
    providers: Vec<Resolved<'a>>,
    registered: Vec<TargetId>,
    rosters: u32,
}

/// A provider with what all its candidates share.
struct Resolved<'a> {
    name: Arc<str>,
    provider: &'a Provider,
    policy: Arc<ProviderPolicy>,
    /// Endpoint by endpoint, in each key by key.
    sources: Vec<Source>,
}

struct Source {
    name: Arc<str>,
    place: Place,
    secret: Secret,
    account: Arc<str>,
    max_concurrency: u32,
    rpm: u32,
    tpm: u32,
}

/// The pool's knobs out of a configuration: for a pool that is made; one that runs gets them with each build.
pub fn pool_settings(config: &Config) -> Settings {
    let config::Breaker {
        fail_threshold,
        min_calls,
        fail_rate_ppm,
        window,
        cooldown,
        max_cooldown,
        probe_ttl,
        count_rate_limited,
        // A call measures its own time and tells the pool what was slow.
        slow_call: _,
    } = config.breaker;
    let config::Health { alpha_ppm, floor_ppm, credible_ppm } = config.health;
    let config::Pace { initial, cut_ppm, min } = config.pace;
    Settings {
        breaker: BreakerSettings {
            fail_threshold,
            min_calls,
            fail_rate_ppm,
            window,
            cooldown,
            max_cooldown,
            probe_ttl,
            count_rate_limited,
            suppress: true,
        },
        health: HealthSettings { alpha_ppm, floor_ppm, credible_ppm },
        pace: PaceSettings { initial, cut_ppm, min, ceiling: config.server.max_concurrency },
        ..Settings::default()
    }
}

impl<'a> Builder<'a> {
    pub(super) fn new(config: &'a Arc<Config>, pool: &'a mut Pool) -> Builder<'a> {
        let providers = config.providers.iter().enumerate().map(|(place, provider)| Resolved {
            name: provider.name.as_str().into(),
            provider,
            policy: Arc::new(provider.policy()),
            sources: sources(place, provider),
        });
        Builder { config, providers: providers.collect(), pool, registered: Vec::new(), rosters: 0 }
    }

    pub(super) fn build(mut self, inventory: &Inventory) -> Gateway {
        let config = self.config;
        // First: a new target begins with the pace that the new knobs give it.
        self.pool.configure(pool_settings(config));
        let policy = Arc::new(config.call_policy(None));
        let mut models: BTreeMap<Arc<str>, Model> = BTreeMap::new();
        let mut order: Vec<Arc<str>> = Vec::new();
        for model in &config.models {
            let name: Arc<str> = model.name.as_str().into();
            let model = self.virtual_model(&name, model);
            models.insert(name.clone(), model);
            order.push(name);
        }
        for (place, provider) in config.providers.iter().enumerate() {
            for model in inventory.models(place) {
                let name: Arc<str> = format!("{}/{model}", provider.name).into();
                // A virtual model of the same name was made to stand in its place.
                if !models.contains_key(&name) {
                    let model = self.real_model(&name, place, model, &policy);
                    models.insert(name.clone(), model);
                    order.push(name);
                }
            }
        }
        let listings = (0..config.providers.len()).map(|place| inventory.listing(place)).collect();
        let passes = (0..config.providers.len()).map(|place| self.pass(place, &policy)).collect();
        self.pool.keep_only(&self.registered);
        let cards = order.iter().filter_map(|name| Some((&**name, &*models.get(name)?.owner)));
        Gateway {
            keys: ClientKeys::new(config.server.api_keys.clone()),
            listing: models_page::list(cards),
            config: config.clone(),
            models,
            listings,
            passes,
        }
    }

    /// A virtual model: for each protocol, the targets whose providers speak it. Protocols with the same targets share
    /// one route, and so their round robin.
    fn virtual_model(&mut self, name: &Arc<str>, model: &config::Model) -> Model {
        let policy = Arc::new(self.config.call_policy(Some(model)));
        let mut routes: Vec<(Vec<bool>, Arc<Route>)> = Vec::new();
        let mut by_format = Vec::new();
        for format in spoken() {
            let targets = || model.tiers.iter().flatten();
            let speaking: Vec<bool> = targets().map(|target| self.speaks(target.provider, format)).collect();
            if !speaking.contains(&true) {
                continue;
            }
            let route = match routes.iter().find(|(known, _)| *known == speaking) {
                Some((_, route)) => route.clone(),
                None => {
                    let route = self.virtual_route(name, model, &policy, format);
                    routes.push((speaking, route.clone()));
                    route
                }
            };
            by_format.push((format, route));
        }
        Model { owner: OWNER.into(), routes: by_format }
    }

    fn virtual_route(
        &mut self,
        name: &Arc<str>,
        model: &config::Model,
        policy: &Arc<CallPolicy>,
        format: Format,
    ) -> Arc<Route> {
        let mut candidates = Candidates::new(model.strategy);
        for tier in &model.tiers {
            for target in tier {
                if self.speaks(target.provider, format) {
                    self.add(&mut candidates, target.provider, &target.model.as_str().into(), Some(model));
                }
            }
            candidates.end_tier();
        }
        self.route(name, policy, candidates)
    }

    /// `provider/model`: its provider's sources in their order, for every protocol that the provider speaks.
    fn real_model(&mut self, name: &Arc<str>, place: usize, model: &Arc<str>, policy: &Arc<CallPolicy>) -> Model {
        let mut candidates = Candidates::new(Strategy::Priority);
        self.add(&mut candidates, place, model, None);
        let route = self.route(name, policy, candidates);
        let routes =
            spoken().filter(|format| self.speaks(place, *format)).map(|format| (format, route.clone())).collect();
        let owner = self.providers.get(place).map_or_else(|| OWNER.into(), |provider| provider.name.clone());
        Model { owner, routes }
    }

    fn pass(&mut self, place: usize, policy: &Arc<CallPolicy>) -> (Arc<str>, Arc<Route>) {
        let provider = self.providers.get(place).map(|provider| provider.name.clone()).unwrap_or_default();
        let mut candidates = Candidates::new(Strategy::Priority);
        self.add(&mut candidates, place, &"".into(), None);
        let route = self.route(&format!("{provider}/{ANY_MODEL}").into(), policy, candidates);
        (provider, route)
    }

    fn speaks(&self, place: usize, format: Format) -> bool {
        self.providers.get(place).is_some_and(|resolved| resolved.provider.speaks(format))
    }

    /// Registers and adds every source of a provider; an empty model is a pass-through's.
    fn add(&mut self, candidates: &mut Candidates, place: usize, model: &Arc<str>, of: Option<&config::Model>) {
        let Some(resolved) = self.providers.get(place) else { return };
        let timeouts = self.config.timeouts_for(resolved.provider, of);
        let shown = if model.is_empty() { ANY_MODEL } else { model };
        for source in &resolved.sources {
            let name = format!("{}/{shown}", source.name);
            let spec = TargetSpec { name: &name, provider: &resolved.name, model: shown, source: source.spec() };
            let (target, id) = self.pool.register(&spec);
            self.registered.push(target);
            let candidate = Candidate {
                source: id,
                source_name: source.name.clone(),
                provider: resolved.policy.clone(),
                place: source.place,
                model: model.clone(),
                timeouts: timeouts.clone(),
                secret: source.secret.clone(),
            };
            candidates.push(candidate, target);
        }
    }

    fn route(&mut self, name: &Arc<str>, policy: &Arc<CallPolicy>, candidates: Candidates) -> Arc<Route> {
        let id = self.rosters;
        self.rosters = self.rosters.wrapping_add(1);
        let Candidates { strategy, candidates, entries, .. } = candidates;
        let roster = Arc::new(Roster { id, strategy, entries });
        Arc::new(Route { model: name.clone(), policy: policy.clone(), candidates, roster })
    }
}

/// Candidates being gathered, with their tiers.
struct Candidates {
    strategy: Strategy,
    candidates: Vec<Candidate>,
    entries: Vec<Entry>,
    tier: u16,
    tier_begin: usize,
}

impl Candidates {
    fn new(strategy: Strategy) -> Candidates {
        Candidates { strategy, candidates: Vec::new(), entries: Vec::new(), tier: 0, tier_begin: 0 }
    }

    /// In a chain every source is a tier of its own: it is tried in its place, whatever its health (F2).
    fn push(&mut self, candidate: Candidate, target: TargetId) {
        if self.entries.len() >= MAX_CANDIDATES {
            return;
        }
        self.candidates.push(candidate);
        self.entries.push(Entry { target, tier: self.tier });
        if self.strategy == Strategy::Priority {
            self.end_tier();
        }
    }

    /// Tiers are numbered without gaps, also where a tier has nobody for the protocol.
    fn end_tier(&mut self) {
        if self.entries.len() > self.tier_begin {
            self.tier = self.tier.saturating_add(1);
            self.tier_begin = self.entries.len();
        }
    }
}

impl Source {
    fn spec(&self) -> SourceSpec<'_> {
        SourceSpec {
            name: &self.name,
            account: &self.account,
            max_concurrency: self.max_concurrency,
            rpm: self.rpm,
            tpm: self.tpm,
        }
    }
}

/// What a model can be asked over.
fn spoken() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|format| *format != Format::Raw)
}

/// The account of every key value of a provider without an account of its own: the name of the first key that has this
/// value.
///
/// Equal keys of one provider share one quota, over its endpoints too (G13). Two providers are two vendors: that their
/// keys read alike, as dummies do, means nothing; who means it names the `account`. The account's name goes where a key
/// must never: to status pages and to a shared store. Every gateway with the same file comes to the same name.
fn accounts(provider: &Provider) -> BTreeMap<&str, Arc<str>> {
    let mut accounts = BTreeMap::new();
    for key in provider.keys.iter().filter(|key| key.account.is_none()) {
        accounts.entry(key.value.expose()).or_insert_with(|| format!("{}/{}", provider.name, key.name).into());
    }
    accounts
}

fn sources(place: usize, provider: &Provider) -> Vec<Source> {
    let accounts = accounts(provider);
    let sent = configured_secret(provider);
    let small = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
    let mut sources = Vec::new();
    for (number, endpoint) in provider.endpoints.iter().enumerate() {
        let base = match provider.endpoints.len() {
            1 => provider.name.clone(),
            _ => format!("{}/{}", provider.name, endpoint.name),
        };
        let place = Place { provider: small(place), endpoint: small(number), key: u16::MAX };
        if provider.keys.is_empty() {
            sources.push(Source { secret: sent.clone().unwrap_or_default(), ..keyless(&base, place) });
        }
        for (number, key) in provider.keys.iter().enumerate() {
            let own = || accounts.get(key.value.expose()).cloned().unwrap_or_default();
            sources.push(Source {
                name: format!("{base}/{}", key.name).into(),
                place: Place { key: small(number), ..place },
                secret: sent.clone().unwrap_or_else(|| key.value.clone()),
                account: key.account.as_ref().map_or_else(own, |account| account.as_str().into()),
                max_concurrency: key.max_concurrency,
                rpm: key.rpm,
                tpm: key.tpm,
            });
        }
    }
    sources
}

/// What a provider's configured headers send in place of a key: that is what it may repeat, and what is to be masked (X6).
fn configured_secret(provider: &Provider) -> Option<Secret> {
    let names = ["authorization", "x-api-key"];
    let (_, value) = provider.headers.iter().find(|(name, _)| names.contains(&name.as_str()))?;
    value.expose().rsplit(' ').next().map(Secret::new)
}

/// A source without a key has its quota to itself.
fn keyless(name: &str, place: Place) -> Source {
    let name: Arc<str> = name.into();
    Source { account: name.clone(), name, place, secret: Secret::default(), max_concurrency: 0, rpm: 0, tpm: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::fixture;

    /// `tier target-of-the-candidate [account]`, a line a candidate, for each distinct route of a model.
    fn shown(gateway: &Gateway, name: &str) -> String {
        let model = gateway.models.get(name).unwrap();
        let mut lines = Vec::new();
        for (format, route) in &model.routes {
            lines.push(format!("{} {} roster {}", format.as_str(), route.roster.strategy.as_str(), route.roster.id));
            for (candidate, entry) in route.candidates.iter().zip(&route.roster.entries) {
                lines.push(format!("  {} {} {}", entry.tier, candidate.source_name, candidate.model));
            }
        }
        lines.join("\n")
    }

    #[test]
    fn targets_become_sources_endpoint_by_endpoint_and_key_by_key() {
        let gateway = fixture::gateway(&fixture::tree());
        let all: Vec<String> = gateway.models().map(|name| format!("## {name}\n{}", shown(&gateway, name))).collect();
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn places_lead_to_the_address_and_the_key() {
        let gateway = fixture::gateway(&fixture::tree());
        let model = &gateway.models["flat"];
        let candidate = &model.routes[0].1.candidates[3];
        assert_eq!(&*candidate.source_name, "u2/us/a");
        let upstream = gateway.upstream(candidate.place).unwrap();
        assert_eq!(upstream.base.host(), "h3");
        assert_eq!(upstream.key.unwrap().value.expose(), "sk-u1-a");
        let keyless = gateway.models["claude/opus"].routes[0].1.candidates[0].place;
        assert_eq!(keyless.key, u16::MAX);
        assert!(gateway.upstream(keyless).unwrap().key.is_none());
        assert!(gateway.upstream(Place { provider: 9, ..Place::default() }).is_none());
    }

    #[test]
    fn equal_keys_of_a_provider_share_an_account_and_no_name_holds_a_key() {
        let config = fixture::config(&fixture::tree());
        let named: Vec<Vec<(String, String)>> = config
            .providers
            .iter()
            .enumerate()
            .map(|(place, provider)| {
                let sources = sources(place, provider);
                sources.iter().map(|source| (source.name.to_string(), source.account.to_string())).collect()
            })
            .collect();
        let pair = |name: &str, account: &str| (name.to_string(), account.to_string());
        assert_eq!(named[0], [pair("u1/a", "u1/a"), pair("u1/b", "acme")]);
        assert_eq!(named[1], [pair("u2/eu/a", "u2/a"), pair("u2/us/a", "u2/a")]);
        assert_eq!(named[2], [pair("claude", "claude")]);
        assert!(!format!("{:?}", fixture::gateway(&fixture::tree())).contains("sk-u1"));
    }

    /// X6: what is masked is what is sent.
    #[test]
    fn a_configured_authorization_is_the_secret_in_place_of_the_key() {
        let gateway = fixture::gateway(&serde_json::json!({
            "providers": [
                { "name": "u", "formats": ["chat"], "base_url": "http://h/v1", "keys": [{ "value": "K" }],
                  "headers": { "authorization": "Bearer sent" } },
                { "name": "v", "formats": ["chat"], "base_url": "http://h/v1", "headers": { "x-api-key": "bare" } },
            ],
            "models": [{ "name": "m", "targets": ["u/a", "v/a"] }],
        }));
        let route = &gateway.models["m"].routes[0].1;
        let secrets: Vec<&str> = route.candidates.iter().map(|candidate| candidate.secret.expose()).collect();
        assert_eq!(secrets, ["sent", "bare"]);
    }

    #[test]
    fn two_models_on_one_source_are_one_source_and_two_targets() {
        let gateway = fixture::gateway(&serde_json::json!({
            "providers": [{ "name": "u", "formats": ["chat"], "base_url": "http://h/v1", "models": ["x"], "keys": [{ "value": "K" }] }],
            "models": [{ "name": "m", "targets": ["u/a", "u/b"] }],
        }));
        let route = &gateway.models["m"].routes[0].1;
        assert_eq!(route.candidates[0].source, route.candidates[1].source);
        assert_ne!(route.roster.entries[0].target, route.roster.entries[1].target);
    }

    #[test]
    fn a_models_own_policy_and_timeouts_are_its_routes() {
        let mut tree = fixture::tree();
        tree["models"][0]["policy"] = serde_json::json!({ "max_transfer_count": 7 });
        tree["models"][0]["timeouts"] = serde_json::json!({ "idle_ms": 5 });
        let gateway = fixture::gateway(&tree);
        let route = |name: &str| gateway.models[name].routes[0].1.clone();
        assert_eq!(route("m").policy.max_transfer_count, 7);
        assert_eq!(route("m").candidates[0].timeouts.idle, crate::time::Span::from_millis(5));
        assert_eq!(route("flat").policy.max_transfer_count, 0);
        assert_ne!(route("flat").candidates[0].timeouts.idle, crate::time::Span::from_millis(5));
    }

    #[test]
    fn the_pool_has_the_knobs_and_the_targets_of_the_newest_build_and_keeps_their_numbers() {
        let mut tree = fixture::tree();
        tree["server"] = serde_json::json!({ "max_concurrency": 9 });
        tree["breaker"] = serde_json::json!({ "fail_threshold": 3 });
        let (first, mut pool) = fixture::gateway_and_pool(&tree);
        let targets = |pool: &Pool| -> Vec<String> {
            pool.views(crate::time::Time::ZERO).map(|view| view.name.to_string()).collect()
        };
        assert!(targets(&pool).iter().any(|name| name == "u2/eu/a/*"));
        let config = fixture::config(&tree);
        let settings = pool_settings(&config);
        assert_eq!((settings.pace.ceiling, settings.breaker.fail_threshold), (9, 3));
        tree["providers"].as_array_mut().unwrap().remove(1);
        tree["models"] = serde_json::json!([{ "name": "m", "targets": ["u1/up-model"] }]);
        let config = Arc::new(fixture::config(&tree));
        let inventory = Inventory::new(&config, crate::time::Time::ZERO);
        let second = Gateway::build(config, &inventory, &mut pool);
        assert!(!targets(&pool).iter().any(|name| name.starts_with("u2/")));
        let entry = |gateway: &Gateway| gateway.models["u1/up-model"].routes[0].1.roster.entries[0].target;
        assert_eq!(entry(&first), entry(&second));
    }

    #[test]
    fn a_virtual_model_stands_in_front_of_a_real_one() {
        let mut tree = fixture::tree();
        tree["models"][0]["name"] = "u1/up-model".into();
        let gateway = fixture::gateway(&tree);
        assert_eq!(&*gateway.models["u1/up-model"].owner, OWNER);
        let page: serde_json::Value = serde_json::from_slice(&gateway.listing).unwrap();
        let ids: Vec<&str> = page["data"].as_array().unwrap().iter().filter_map(|card| card["id"].as_str()).collect();
        assert_eq!(ids, ["u1/up-model", "flat", "tiers", "u1/org/other:free", "u2/up-model", "claude/opus"]);
    }
}
