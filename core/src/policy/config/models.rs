//! `[[models]]`: virtual models, their tiers of targets and what they override.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::providers::{Known, MAX_CANDIDATES, model_name};
use super::reader::{Node, Table};
use super::text::{Text, nearest};
use super::{Model, PolicyOverrides, Target, sections};
use crate::pool::Strategy;

/// The strategies by their words.
const STRATEGIES: [(&str, Strategy); 4] = [
    (Strategy::Priority.as_str(), Strategy::Priority),
    (Strategy::HealthAware.as_str(), Strategy::HealthAware),
    (Strategy::RoundRobin.as_str(), Strategy::RoundRobin),
    (Strategy::LeastInflight.as_str(), Strategy::LeastInflight),
];
/// Further askings of a model with `structured = true` where its policy has none.
const STRUCTURED_RETRIES: u32 = 2;

/// All virtual models. `providers` are those that targets may name.
pub(super) fn all(table: &mut Table<'_, '_>, providers: &[Known]) -> Vec<Model> {
    let mut models: Vec<Model> = Vec::new();
    if let Some(node) = table.key("models") {
        node.list(|node| {
            let model = node.table(|table| model(table, providers, &models))?;
            models.push(model);
            Some(())
        });
    }
    models
}

fn model(table: &mut Table<'_, '_>, providers: &[Known], earlier: &[Model]) -> Model {
    let name = match table.key("name") {
        None => {
            table.wrong("name", "missing; it is what clients ask for");
            None
        }
        Some(node) => node.parsed(|text| {
            let name = model_name(text)?;
            let taken = earlier.iter().any(|known| known.name == name);
            if taken { Err(format!("the name {} is used already", text.shown())) } else { Ok(name) }
        }),
    };
    let given = table.word("strategy", &STRATEGIES);
    let (tiers, nested) = targets(table, providers);
    // Who writes tiers wants each of them balanced (G9); a plain list is a chain (F2).
    let strategy = given.unwrap_or(if nested { Strategy::HealthAware } else { Strategy::Priority });
    let mut policy = table.section("policy", sections::policy);
    structured(table, &mut policy);
    Model {
        name: name.unwrap_or_default(),
        strategy,
        tiers: arranged(tiers, strategy, nested),
        policy,
        timeouts: table.section("timeouts", sections::timeouts),
        window: table.section("window", sections::window),
        retry: table.section("retry", sections::retry),
    }
}

/// The targets as they are listed, a plain one as a list of one, and whether any list is nested.
fn targets(table: &mut Table<'_, '_>, providers: &[Known]) -> (Vec<Vec<Target>>, bool) {
    let Some(node) = table.key("targets") else {
        table.wrong("targets", "missing; list at least one \"provider/model\"");
        return (Vec::new(), false);
    };
    let empty = node.is_list() && node.elements().is_empty();
    let nested = node.elements().iter().any(serde_json::Value::is_array);
    let tiers = node.list(|mut node| {
        if !node.is_list() {
            return target(node, providers).map(|target| [target].into());
        }
        if node.elements().is_empty() {
            return node.wrong("an empty tier; list at least one \"provider/model\" or leave it out");
        }
        node.list(|node| target(node, providers))
    });
    if empty {
        table.wrong("targets", "empty; list at least one \"provider/model\"");
    }
    let sources = |target: &Target| providers.get(target.provider).map_or(0, |known| known.sources);
    let candidates: usize = tiers.iter().flatten().flatten().map(sources).sum();
    if candidates > MAX_CANDIDATES {
        table.wrong("targets", format!("{candidates} sources in all; at most {MAX_CANDIDATES}"));
    }
    (tiers.unwrap_or_default(), nested)
}

fn target(node: Node<'_, '_>, providers: &[Known]) -> Option<Target> {
    node.parsed(|text| {
        let (provider, model) = match text.as_str().split_once('/') {
            Some((provider, model)) if !provider.is_empty() && !model.trim().is_empty() => (provider, model),
            _ => return Err(format!("{} is no target; write it as \"provider/model\"", text.shown())),
        };
        let known =
            providers.iter().position(|known| known.name.as_ref().is_some_and(|name| name.as_str() == provider));
        match known {
            Some(provider) => Ok(Target { provider, model: model.to_owned() }),
            None => Err(unknown_provider(text, provider, providers)),
        }
    })
}

fn unknown_provider(text: &Text, provider: &str, providers: &[Known]) -> String {
    let shown = text.part_shown(provider);
    let tellable = providers.iter().filter_map(|known| known.name.as_ref()).filter(|name| !name.is_from_env());
    match nearest(provider, tellable.map(Text::as_str)) {
        Some(known) if !text.is_from_env() => format!("unknown provider {shown}; the nearest known one is `{known}`"),
        _ => format!("unknown provider {shown}"),
    }
}

/// Tiers as the strategy takes them.
fn arranged(listed: Vec<Vec<Target>>, strategy: Strategy, nested: bool) -> Vec<Vec<Target>> {
    let flat = |listed: Vec<Vec<Target>>| listed.into_iter().flatten();
    match strategy {
        Strategy::Priority => flat(listed).map(|target| [target].into()).collect(),
        _ if nested => listed,
        _ => [flat(listed).collect()].into(),
    }
}

/// `structured`: `false` = answers are never asked again (G17), `true` = they are, or a table with `max_retries`.
///
/// Another way to say `policy.structured_max_retries`, over which it has its way.
fn structured(table: &mut Table<'_, '_>, policy: &mut PolicyOverrides) {
    let Some(node) = table.key("structured") else { return };
    let retries = if node.is_table() {
        node.table(|table| table.count("max_retries")).flatten()
    } else {
        match node.flag() {
            Some(false) => Some(0),
            Some(true) => {
                Some(policy.structured_max_retries.filter(|retries| *retries > 0).unwrap_or(STRUCTURED_RETRIES))
            }
            None => None,
        }
    };
    policy.structured_max_retries = retries.or(policy.structured_max_retries);
}
