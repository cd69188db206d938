//! The other policy: a whole configuration, or a part of one over what the trace tells of the policy that was live.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use surefoot_core::gateway::models::Inventory;
use surefoot_core::gateway::{Gateway, Operation, RequestHead, Routed, pool_settings};
use surefoot_core::policy::config::{self, Config, Problem};
use surefoot_core::policy::{CallPolicy, Candidate, EmptyCompletion, Phrase, ProviderPolicy, Route, Rules, Timeouts};
use surefoot_core::pool::{Pool, Strategy};
use surefoot_core::time::{Span, Time};
use surefoot_core::wire::Format;

/// Why a policy cannot be tried on a trace.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It is no configuration.
    #[error("{}", told(.0))]
    Config(Vec<Problem>),
    /// It goes where the trace knows nothing of.
    #[error(
        "its sources {unknown} are not in the trace, so nothing is known of how they answer; those in the trace: {known}"
    )]
    Sources {
        /// Those of the policy that the trace does not have.
        unknown: String,
        /// Those that it has.
        known: String,
    },
    /// The trace has no call that ended.
    #[error("the trace has no call that ended: there is nothing to compare with")]
    Nothing,
}

fn told(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

/// The routes of a trace, as far as its calls used them.
#[derive(Debug, Default)]
pub struct Live {
    /// By model and protocol; of one that a reload changed, the last.
    routes: BTreeMap<(Arc<str>, Format), (Arc<Route>, usize)>,
}

/// A gateway under the policy, and its pool.
#[derive(Debug)]
pub struct Other {
    /// The gateway.
    pub gateway: Gateway,
    /// Its pool.
    pub pool: Pool,
    /// What is worth knowing of how the policy was read.
    pub notes: Vec<String>,
}

impl Live {
    /// Takes note of a call's route.
    pub fn note(&mut self, route: &Arc<Route>, format: Format) {
        let slot = self.routes.entry((route.model.clone(), format)).or_insert_with(|| (route.clone(), 0));
        slot.0 = route.clone();
        slot.1 += 1;
    }

    fn routes(&self) -> impl Iterator<Item = (&Arc<Route>, Format)> {
        self.routes.iter().map(|((_, format), (route, _))| (route, *format))
    }

    fn candidates(&self) -> impl Iterator<Item = (&Candidate, &Arc<Route>, Format)> {
        self.routes().flat_map(|(route, format)| route.candidates.iter().map(move |it| (it, route, format)))
    }

    /// The sources of the trace, tried or not.
    pub fn sources(&self) -> BTreeSet<Arc<str>> {
        self.candidates().map(|(candidate, ..)| candidate.source_name.clone()).collect()
    }

    /// Real models (`provider/model`) that calls asked for, by provider.
    fn real_models(&self) -> BTreeMap<Arc<str>, BTreeSet<Arc<str>>> {
        let mut real: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
        for (candidate, route, format) in self.candidates() {
            if format != Format::Raw && is_real(route) {
                real.entry(candidate.provider.name.clone()).or_default().insert(candidate.model.clone());
            }
        }
        real
    }

    /// Builds the gateway of a policy's tree. `environment` looks variables up; those of keys and addresses may be missing.
    ///
    /// # Errors
    /// Every problem of the tree; sources that the trace does not have.
    pub fn other(&self, file: &Value, environment: &dyn Fn(&str) -> Option<String>) -> Result<Other, PolicyError> {
        if self.routes.is_empty() {
            return Err(PolicyError::Nothing);
        }
        let mut notes = Vec::new();
        let whole = file.get("providers").is_some();
        let tree = if whole { file.clone() } else { self.with(file) };
        if !whole {
            notes.push(
                "sources, models and what else the file leaves out are the live policy's, as far as a trace tells it: \
                 breaker, health, pace, accounts and limits of keys are not in a trace and stand at their defaults"
                    .to_owned(),
            );
        }
        // Nobody is called: a key that is not at hand is as good as any, as long as no two are taken for one. What has a
        // default has its default.
        let said = tree.to_string();
        let stand_in = |name: &str| {
            let has_default = said.contains(&format!("${{{name}:-"));
            environment(name).or_else(|| (!has_default).then(|| format!("http://unset.invalid/{name}")))
        };
        let config = Arc::new(config::read(&tree, &stand_in).map_err(PolicyError::Config)?);
        let mut inventory = Inventory::new(&config, Time::ZERO);
        for (provider, models) in self.real_models() {
            let Some((place, _)) = config.provider(&provider) else { continue };
            let known = inventory.models(place).iter().cloned().chain(models).collect::<BTreeSet<_>>();
            let list = known.iter().map(|model| Box::from(&**model)).collect();
            inventory.record(Time::ZERO, &provider, Ok(list));
        }
        let mut pool = Pool::new(pool_settings(&config));
        let gateway = Gateway::build(config, &inventory, &mut pool);
        Ok(Other { gateway, pool, notes })
    }

    /// The live policy as a tree, with the file over it.
    fn with(&self, file: &Value) -> Value {
        let mut tree = self.tree();
        // What the file says for all models must not be hidden by what is known of each.
        for (section, places) in [("default_policy", "policy"), ("retry", "retry"), ("window", "window")] {
            let said: Vec<String> = keys(file.get(section));
            for model in tree["models"].as_array_mut().into_iter().flatten() {
                forget(model.get_mut(places), &said);
            }
        }
        let said = keys(file.get("timeouts"));
        for part in ["providers", "models"] {
            for table in tree[part].as_array_mut().into_iter().flatten() {
                forget(table.get_mut("timeouts"), &said);
            }
        }
        let mut file = file.clone();
        if let Some(Value::Array(wanted)) = file.as_object_mut().and_then(|file| file.remove("models")) {
            let models = tree["models"].as_array_mut();
            if let Some(models) = models {
                for model in wanted {
                    match models.iter_mut().find(|known| known["name"] == model["name"]) {
                        Some(known) => lay_over(known, model),
                        None => models.push(model),
                    }
                }
            }
        }
        lay_over(&mut tree, file);
        tree
    }

    fn tree(&self) -> Value {
        let busiest = self.routes.values().max_by_key(|(_, calls)| *calls).map(|(route, _)| route);
        let mut tree = json!({
            "providers": self.providers(),
            "models": self.models(),
            "discovery": { "configured_models_mode": "allowlist" },
        });
        if let Some(route) = busiest {
            let policy = &route.policy;
            tree["default_policy"] = policy_table(policy);
            tree["retry"] = retry_table(policy);
            tree["window"] = window_table(policy);
            tree["stall"] = json!({ "window_seconds": seconds(policy.stall_window) });
            tree["breaker"] = json!({ "slow_call_seconds": seconds(policy.slow_call) });
        }
        tree
    }

    fn providers(&self) -> Value {
        struct Known<'a> {
            policy: &'a ProviderPolicy,
            timeouts: &'a Timeouts,
            endpoints: BTreeMap<u16, String>,
            keys: BTreeMap<u16, String>,
            formats: BTreeSet<Format>,
        }
        let mut known: BTreeMap<u16, Known<'_>> = BTreeMap::new();
        for (candidate, _, format) in self.candidates() {
            let provider = known.entry(candidate.place.provider).or_insert_with(|| Known {
                policy: &candidate.provider,
                timeouts: &candidate.timeouts,
                endpoints: BTreeMap::new(),
                keys: BTreeMap::new(),
                formats: BTreeSet::new(),
            });
            let (endpoint, key) = parts(candidate);
            provider.endpoints.insert(candidate.place.endpoint, endpoint);
            provider.keys.extend(key.map(|key| (candidate.place.key, key)));
            provider.formats.insert(match format {
                Format::CountTokens => Format::Messages,
                other => other,
            });
        }
        let real = self.real_models();
        let tables = known.values().map(|provider| {
            let name = &*provider.policy.name;
            let named = |prefix: &str, name: &str| format!("{prefix}{name}");
            let mut formats: Vec<&str> =
                provider.formats.iter().filter(|format| **format != Format::Raw).map(|format| format.as_str()).collect();
            if formats.is_empty() {
                formats.push("chat");
            }
            let mut table = json!({
                "name": name,
                "formats": formats,
                "endpoints": provider.endpoints.iter().map(|(place, endpoint)| {
                    let shown = if endpoint.is_empty() { "default" } else { endpoint };
                    json!({ "name": shown, "base_url": format!("http://trace.invalid/{place}/v1") })
                }).collect::<Vec<_>>(),
                "keys": provider.keys.values().map(|key| json!({ "name": key, "value": named("trace-", key) })).collect::<Vec<_>>(),
                "models": real.get(name).into_iter().flatten().map(|model| Value::from(&**model)).collect::<Vec<_>>(),
                "timeouts": timeouts_table(provider.timeouts),
            });
            lay_over(&mut table, provider_table(provider.policy));
            table
        });
        Value::Array(tables.collect())
    }

    /// The virtual models. One that is asked for over several protocols has the targets of all of them.
    fn models(&self) -> Value {
        let mut models: BTreeMap<&str, (&Route, BTreeMap<u16, Vec<String>>)> = BTreeMap::new();
        for (route, _) in self.routes().filter(|(route, format)| *format != Format::Raw && !is_real(route)) {
            let (_, tiers) = models.entry(&route.model).or_insert_with(|| (route, BTreeMap::new()));
            for (candidate, entry) in route.candidates.iter().zip(&route.roster.entries) {
                let target = format!("{}/{}", candidate.provider.name, candidate.model);
                let tier = tiers.entry(entry.tier).or_default();
                if !tier.contains(&target) {
                    tier.push(target);
                }
            }
        }
        let tables = models.into_iter().map(|(name, (route, tiers))| {
            let strategy = route.roster.strategy;
            let targets = if strategy == Strategy::Priority {
                // A target's sources are tiers of their own; it is listed once.
                let mut listed: Vec<String> = Vec::new();
                for target in tiers.into_values().flatten() {
                    if listed.last() != Some(&target) {
                        listed.push(target);
                    }
                }
                json!(listed)
            } else {
                json!(tiers.into_values().collect::<Vec<_>>())
            };
            json!({
                "name": name,
                "strategy": strategy.as_str(),
                "targets": targets,
                "policy": policy_table(&route.policy),
                "retry": retry_table(&route.policy),
                "window": window_table(&route.policy),
            })
        });
        Value::Array(tables.collect())
    }
}

impl Other {
    /// The route of a model's calls; `None` where the policy has none.
    pub fn route(&self, model: &str, real: Option<&str>, format: Format) -> Option<Arc<Route>> {
        if format == Format::Raw {
            let provider = model.split_once('/')?.0;
            let key = self.gateway.config().server.api_keys.first().map(|key| format!("Bearer {}", key.expose()));
            let header = |name: &str| key.as_deref().filter(|_| name == "authorization");
            let path = format!("/p/{provider}/x");
            let head = RequestHead { method: "GET", path: &path, query: None, header: &header, request_id: "replay" };
            return match self.gateway.route(&head) {
                Routed::Pass { plan, .. } => Some(plan.route),
                _ => None,
            };
        }
        let operation = Operation::ALL.into_iter().find(|operation| operation.format() == format)?;
        let plan = |name: &str| {
            let body = json!({ "model": name, "messages": [], "input": "", "prompt": "", "max_tokens": 1 }).to_string();
            self.gateway.plan(operation, Some("application/json"), None, body.as_bytes(), "replay").ok()
        };
        plan(model).or_else(|| plan(real?)).map(|planned| planned.plan.route)
    }

    /// Its configuration.
    pub fn config(&self) -> &Config {
        self.gateway.config()
    }
}

/// Whether two sets of rules are the same.
pub fn same_rules(one: &Rules, other: &Rules) -> bool {
    rules_table(one) == rules_table(other)
}

/// Whether a route is that of `provider/model`, not of a name that the configuration made up.
fn is_real(route: &Route) -> bool {
    route.candidates.iter().all(|candidate| {
        let name = route.model.strip_prefix(&*candidate.provider.name).and_then(|rest| rest.strip_prefix('/'));
        name.is_some_and(|name| *name == *candidate.model || name == "*")
    })
}

/// The names of a candidate's endpoint and key; an endpoint has none where it is its provider's only one.
fn parts(candidate: &Candidate) -> (String, Option<String>) {
    let rest = candidate.source_name.strip_prefix(&*candidate.provider.name).unwrap_or_default();
    let rest = rest.strip_prefix('/').unwrap_or_default();
    if candidate.place.key == u16::MAX {
        return (rest.to_owned(), None);
    }
    match rest.split_once('/') {
        Some((endpoint, key)) => (endpoint.to_owned(), Some(key.to_owned())),
        None => (String::new(), Some(rest.to_owned())),
    }
}

fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1e6
}

fn millis(span: Span) -> f64 {
    span.0 as f64 / 1e3
}

fn policy_table(policy: &CallPolicy) -> Value {
    json!({
        "sticky_key_attempts": policy.sticky_key_attempts,
        "max_transfer_count": policy.max_transfer_count,
        "max_transfer_timeout_seconds": seconds(policy.max_transfer_timeout),
        "max_attempts": policy.max_attempts,
        "max_attempts_hard": policy.max_attempts_hard,
        "max_wait_seconds": seconds(policy.max_wait),
        "deadline_seconds": seconds(policy.deadline),
        "empty_completion": match policy.empty_completion {
            EmptyCompletion::Failover => "failover",
            EmptyCompletion::Deliver => "deliver",
        },
        "structured_max_retries": policy.structured_max_retries,
        "failover_rules": rules_table(&policy.rules),
    })
}

fn retry_table(policy: &CallPolicy) -> Value {
    let retry = &policy.retry;
    json!({
        "initial_ms": millis(retry.initial),
        "max_ms": millis(retry.max),
        "factor": f64::from(retry.factor_milli) / 1e3,
        "jitter": f64::from(retry.jitter_ppm) / 1e6,
        "stream": if retry.stream { "before_commit" } else { "never" },
    })
}

fn window_table(policy: &CallPolicy) -> Value {
    json!({ "max_bytes": policy.window.max_bytes, "max_events": policy.window.max_events })
}

fn timeouts_table(timeouts: &Timeouts) -> Value {
    json!({
        "connect_ms": millis(timeouts.connect),
        "first_byte_ms": millis(timeouts.first_byte),
        "first_content_ms": millis(timeouts.first_content),
        "idle_ms": millis(timeouts.idle),
        "total_ms": millis(timeouts.total),
    })
}

fn rules_table(rules: &Rules) -> Value {
    let stop = rules.stop.iter().map(|rule| {
        let mut table = Map::new();
        if !rule.statuses.is_empty() {
            table.insert("status_codes".to_owned(), json!(rule.statuses));
        }
        if let Some(pattern) = &rule.pattern {
            table.insert("pattern".to_owned(), json!(pattern.as_str()));
        }
        Value::Object(table)
    });
    json!({
        "success_failover_patterns": rules.success.iter().map(|rule| json!({ "pattern": rule.as_str() })).collect::<Vec<_>>(),
        "error_stop_patterns": stop.collect::<Vec<_>>(),
    })
}

fn provider_table(policy: &ProviderPolicy) -> Value {
    let phrase = |phrase: &Phrase| {
        let statuses = phrase.statuses.iter().map(u16::to_string);
        let words = phrase.words.iter().map(|word| word.to_string());
        statuses.chain(words).collect::<Vec<_>>().join(" ")
    };
    json!({
        "max_transfer_count": policy.max_transfer_count,
        "max_transfer_timeout_seconds": seconds(policy.max_transfer_timeout),
        "stop_on_transport_errors": policy.stop_on_transport_errors,
        "continue_status_codes": policy.continue_status_codes,
        "stop_status_codes": policy.stop_status_codes,
        "retry_on_errors": policy.retry_on_errors.iter().map(phrase).collect::<Vec<_>>(),
        "failover_rules": rules_table(&policy.rules),
    })
}

/// The keys of a table.
fn keys(table: Option<&Value>) -> Vec<String> {
    table.and_then(Value::as_object).map(|table| table.keys().cloned().collect()).unwrap_or_default()
}

fn forget(table: Option<&mut Value>, said: &[String]) {
    if let Some(table) = table.and_then(Value::as_object_mut) {
        table.retain(|key, _| !said.contains(key));
    }
}

/// Tables key by key, anything else as a whole.
fn lay_over(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                lay_over(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}
