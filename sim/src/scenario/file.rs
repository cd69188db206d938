//! A scenario as a person writes it: sources and how they behave, who asks them, what befalls them, and the policy. TOML, or
//! JSON by extension; `docs/simulation.md` has every key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use surefoot_core::event::CancelCause;
use surefoot_core::gateway::Operation;
use surefoot_core::policy::config;
use surefoot_core::time::{Span, Time};
use surefoot_core::wire::Format;

use super::{Heal, Scenario};
use crate::rng::{Concern, Stream};
use crate::world::client::Client;
use crate::world::episode::{Address, Episode, Scope, Shape};
use crate::world::script::Chunking;
use crate::world::shared::Sharing;
use crate::world::site::{Account, Site};
use crate::world::speech::Ask;
use crate::world::trouble::{self, Trouble};

/// The upstream model that every source serves, and the virtual one that clients ask for unless the file says otherwise.
const MODEL: &str = "m";
const KEY: &str = "k";

/// Why a scenario cannot run.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file is not there, or not to be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It is no TOML or JSON, or has keys that a scenario has not.
    #[error("{}: {error}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// Where and what.
        error: String,
    },
    /// Its values do not go together.
    #[error("{}: {}", path.display(), problems.join("; "))]
    Wrong {
        /// Which.
        path: PathBuf,
        /// Each with its key.
        problems: Vec<String>,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "one")]
    seed: u64,
    #[serde(default)]
    policy: Option<Value>,
    #[serde(default)]
    arrivals: Arrivals,
    #[serde(default)]
    clients: Clients,
    sources: Vec<Source>,
    #[serde(default)]
    accounts: Vec<Quota>,
    #[serde(default)]
    faults: Vec<Fault>,
    #[serde(default)]
    store: Option<StoreEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Arrivals {
    calls: u64,
    every_ms: Option<f64>,
    workers: u32,
    think_ms: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Clients {
    model: String,
    protocol: String,
    stream: f64,
    structured: f64,
    leave: f64,
    leave_after_ms: f64,
    slow: f64,
    slow_ms: f64,
    words: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    name: String,
    #[serde(default)]
    account: Option<String>,
    #[serde(default)]
    region: u8,
    #[serde(default = "chat")]
    protocols: Vec<String>,
    #[serde(default = "head")]
    head_ms: Pair<f64>,
    #[serde(default = "gap")]
    gap_ms: f64,
    #[serde(default = "pieces")]
    pieces: Pair<u64>,
    #[serde(default)]
    gate: u32,
    #[serde(default = "gate_status")]
    gate_status: u16,
    #[serde(default)]
    watchdog_ms: f64,
    #[serde(default = "watchdog_status")]
    watchdog_status: u16,
    #[serde(default)]
    troubles: BTreeMap<String, f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quota {
    name: String,
    requests: u32,
    window_ms: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
    from_s: f64,
    until_s: f64,
    #[serde(default)]
    source: Option<String>,
    #[serde(default)]
    region: Option<u8>,
    #[serde(default)]
    flap_ms: f64,
    #[serde(default)]
    hill: bool,
    troubles: Vec<String>,
    #[serde(default = "whole")]
    share: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StoreEntry {
    gateways: u32,
    latency_ms: f64,
    lost: f64,
    away_s: Vec<Pair<f64>>,
    forgets_s: Vec<f64>,
    closed: bool,
}

/// Two values. An array of serde takes a longer list and drops what is too much.
#[derive(Copy, Clone, Debug, Deserialize)]
#[serde(try_from = "Vec<T>", bound = "T: Copy + Deserialize<'de>")]
struct Pair<T>(T, T);

impl<T: Copy> TryFrom<Vec<T>> for Pair<T> {
    type Error = String;

    fn try_from(values: Vec<T>) -> Result<Pair<T>, String> {
        match values[..] {
            [first, second] => Ok(Pair(first, second)),
            _ => Err(format!("two values stand here, not {}", values.len())),
        }
    }
}

fn one() -> u64 {
    1
}
fn chat() -> Vec<String> {
    vec!["chat".into()]
}
fn head() -> Pair<f64> {
    Pair(50.0, 100.0)
}
fn gap() -> f64 {
    20.0
}
fn pieces() -> Pair<u64> {
    Pair(2, 8)
}
fn gate_status() -> u16 {
    429
}
fn watchdog_status() -> u16 {
    504
}
fn whole() -> f64 {
    1.0
}

impl Default for Arrivals {
    fn default() -> Arrivals {
        Arrivals { calls: 1000, every_ms: None, workers: 0, think_ms: 0.0 }
    }
}

impl Default for Clients {
    fn default() -> Clients {
        Clients {
            model: MODEL.into(),
            protocol: "chat".into(),
            stream: 0.5,
            structured: 0.0,
            leave: 0.0,
            leave_after_ms: 1000.0,
            slow: 0.0,
            slow_ms: 100.0,
            words: 20,
        }
    }
}

impl Default for StoreEntry {
    fn default() -> StoreEntry {
        StoreEntry { gateways: 2, latency_ms: 1.0, lost: 0.0, away_s: Vec::new(), forgets_s: Vec::new(), closed: false }
    }
}

/// The kinds of trouble by the names that files use.
pub fn trouble_names() -> impl Iterator<Item = (String, Trouble)> {
    trouble::ALL.iter().copied().map(|trouble| {
        let name = match trouble {
            Trouble::Status(status) => format!("status-{status}"),
            other => kebab(&format!("{other:?}")),
        };
        (name, trouble)
    })
}

fn kebab(name: &str) -> String {
    let mut out = String::new();
    for (at, letter) in name.char_indices() {
        let after_digit = out.ends_with(|before: char| before.is_ascii_digit());
        if at > 0 && (letter.is_ascii_uppercase() || letter.is_ascii_digit() && !after_digit) {
            out.push('-');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

fn trouble(name: &str) -> Option<Trouble> {
    let status = name.strip_prefix("status-").and_then(|status| status.parse().ok());
    match status {
        Some(status @ 300..=999) => Some(Trouble::Status(status)),
        Some(_) => None,
        None => trouble_names().find(|(known, _)| known == name).map(|(_, trouble)| trouble),
    }
}

/// Reads a scenario. `seed` and `policy` stand above what the file says.
///
/// # Errors
/// See [`FileError`]: every problem with its key.
pub fn read(path: &Path, seed: Option<u64>, policy: Option<&Path>) -> Result<Scenario, FileError> {
    let mut file: File = parse(path)?;
    file.seed = seed.unwrap_or(file.seed);
    let policy = match (policy, file.policy.take()) {
        (Some(path), _) => parse(path)?,
        (None, Some(Value::String(name))) => parse(&path.parent().unwrap_or(Path::new(".")).join(name))?,
        (None, Some(table)) => table,
        (None, None) => json!({}),
    };
    build(&file, policy).map_err(|problems| FileError::Wrong { path: path.to_owned(), problems })
}

fn parse<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, FileError> {
    let text = std::fs::read_to_string(path).map_err(|error| FileError::Unreadable { path: path.to_owned(), error })?;
    let malformed = |error: String| FileError::Malformed { path: path.to_owned(), error };
    if path.extension().is_some_and(|extension| extension == "json") {
        return serde_json::from_str(&text).map_err(|error| malformed(error.to_string()));
    }
    toml::from_str(&text).map_err(|error| malformed(error.to_string()))
}

/// What is wrong, each with its key.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn add(&mut self, key: impl std::fmt::Display, what: &str) {
        self.0.push(format!("{key} {what}"));
    }

    fn share(&mut self, key: impl std::fmt::Display, share: f64) -> u64 {
        if !(0.0..=1.0).contains(&share) {
            self.add(key, "is a share: 0 to 1");
            return 0;
        }
        (share * 1e6).round() as u64
    }

    fn span(&mut self, key: impl std::fmt::Display, value: f64, unit: f64) -> Span {
        // A year; beyond it sums of times would not be times any more.
        if !(0.0..=365.0 * 86_400e6).contains(&(value * unit)) {
            self.add(key, "is a length of time: not negative, a year at most");
            return Span::ZERO;
        }
        Span((value * unit).round() as u64)
    }

    fn trouble(&mut self, key: impl std::fmt::Display, name: &str) -> Option<Trouble> {
        let known = trouble(name);
        if known.is_none() {
            let names: Vec<String> = trouble_names().map(|(name, _)| name).collect();
            self.add(key, &format!("names the trouble `{name}`; there are {}", names.join(", ")));
        }
        known
    }
}

const MS: f64 = 1e3;
const S: f64 = 1e6;

fn build(file: &File, policy: Value) -> Result<Scenario, Vec<String>> {
    let mut problems = Problems::default();
    if file.sources.is_empty() {
        problems.add("sources", "is empty; a world needs one at least");
    }
    let (sites, accounts) = sites(file, &mut problems);
    let episodes = file.faults.iter().enumerate().filter_map(|(at, fault)| episode(at, fault, &sites, &mut problems));
    let episodes: Vec<Episode> = episodes.collect();
    let clients = clients(file, &mut problems);
    let sharing = file.store.as_ref().map(|store| sharing(store, &mut problems));
    let every = problems.span("arrivals.every_ms", file.arrivals.every_ms.unwrap_or(20.0), MS);
    if file.arrivals.workers > 0 && file.arrivals.every_ms.is_some() {
        problems
            .add("arrivals.every_ms", "stands beside workers, who come when they have their answer; give one of them");
    }
    let thinks = problems.span("arrivals.think_ms", file.arrivals.think_ms, MS);
    if file.arrivals.calls > 1_000_000 {
        problems.add("arrivals.calls", "is more than a million; a run keeps each of them in mind");
    }
    let tree = tree(file, policy, &mut problems);
    if problems.0.is_empty()
        && let Err(wrong) = config::read(&tree, &|_| None)
    {
        problems.0.extend(wrong.iter().map(|problem| format!("policy: {problem}")));
    }
    if !problems.0.is_empty() {
        return Err(problems.0);
    }
    let mut stream = Stream::new(file.seed, Concern::Arrivals, 0, 0);
    let mut at = Time(1000);
    let open = file.arrivals.workers == 0;
    let mut arrivals = Vec::new();
    if open {
        for client in &clients {
            at = at.after(stream.exponential(every));
            arrivals.push((at, client.clone()));
        }
    }
    // More than there are calls would have nothing to do.
    let workers = u64::from(file.arrivals.workers).min(file.arrivals.calls);
    let workers = (0..workers).map(|at| Time(1000 + at * 1000)).collect();
    // What would never end is cut long after everybody came; with workers nobody knows when that is.
    let over = at.after(Span::from_secs(if open { 1800 } else { 365 * 86_400 }));
    Ok(Scenario {
        words: vec![format!("{} sources, {} calls", file.sources.len(), clients.len())],
        refuses_words: tree["default_policy"]["failover_rules"].to_string().contains(trouble::REFUSED_WORDS),
        sites,
        accounts,
        episodes,
        arrivals,
        queue: if open { Vec::new() } else { clients },
        workers,
        thinks,
        heal: open.then_some(Heal { at: over, judged: over }),
        chunking: Chunking::Anywhere,
        longest_hint: Span::from_secs(20),
        sharing,
        ..Scenario::still(file.seed, tree)
    })
}

fn sites(file: &File, problems: &mut Problems) -> (Vec<Site>, Vec<Account>) {
    let mut accounts: Vec<(String, Account)> = Vec::new();
    for (at, quota) in file.accounts.iter().enumerate() {
        let window = problems.span(format_args!("accounts[{at}].window_ms"), quota.window_ms, MS);
        if quota.requests == 0 || window.is_zero() {
            problems.add(
                format_args!("accounts[{at}]"),
                "needs requests and window_ms above 0; leave it out where none is limited",
            );
        }
        accounts.push((quota.name.clone(), Account::new(quota.requests, window)));
        if !file.sources.iter().any(|source| source.account.as_ref() == Some(&quota.name)) {
            problems.add(format_args!("accounts[{at}].name"), "is no source's account");
        }
    }
    let mut sites: Vec<Site> = Vec::new();
    for (at, source) in file.sources.iter().enumerate() {
        let key = |name: &str| format!("sources[{at}].{name}");
        let name = format!("{}/{KEY}", source.name);
        if source.name.is_empty() || source.name.contains('/') {
            problems.add(key("name"), "must be a name without `/`");
        }
        if sites.iter().any(|site| site.name == name) {
            problems.add(key("name"), "is there twice");
        }
        let account = source.account.clone().unwrap_or_else(|| format!("{}'s own", source.name));
        let account = accounts.iter().position(|(known, _)| *known == account).unwrap_or_else(|| {
            accounts.push((account, Account::new(0, Span::from_secs(1))));
            accounts.len() - 1
        });
        let address = Address { site: at, provider: at, region: source.region };
        let mut site = Site::new(&name, address, account, &format!("sk-sim-{at}"));
        site.head =
            (problems.span(key("head_ms"), source.head_ms.0, MS), problems.span(key("head_ms"), source.head_ms.1, MS));
        site.gap = problems.span(key("gap_ms"), source.gap_ms, MS);
        site.pieces = (source.pieces.0, source.pieces.1);
        if source.pieces.0 > source.pieces.1 || source.pieces.1 > 10_000 {
            problems.add(key("pieces"), "is from, to: the smaller first, 10000 at most");
        }
        for (name, status) in [("gate_status", source.gate_status), ("watchdog_status", source.watchdog_status)] {
            if !(400..=599).contains(&status) {
                problems.add(key(name), "is a status of 400 to 599");
            }
        }
        site.gate = (source.gate, source.gate_status);
        let watchdog = problems.span(key("watchdog_ms"), source.watchdog_ms, MS);
        site.watchdog = (watchdog, source.watchdog_status);
        let mut sum = 0;
        for (name, share) in &source.troubles {
            let share = problems.share(key(&format!("troubles.{name}")), *share);
            sum += share;
            site.daily.extend(problems.trouble(key("troubles"), name).map(|trouble| (trouble, share)));
        }
        if sum > 1_000_000 {
            problems.add(key("troubles"), "are more than all requests together");
        }
        sites.push(site);
    }
    (sites, accounts.into_iter().map(|(_, account)| account).collect())
}

fn episode(at: usize, fault: &Fault, sites: &[Site], problems: &mut Problems) -> Option<Episode> {
    let key = |name: &str| format!("faults[{at}].{name}");
    let from = problems.span(key("from_s"), fault.from_s, S);
    let until = problems.span(key("until_s"), fault.until_s, S);
    if from >= until {
        problems.add(key("until_s"), "must be later than from_s");
    }
    let scope = match (&fault.source, fault.region) {
        (Some(_), Some(_)) => {
            problems.add(key("region"), "stands beside source; name one of them");
            Scope::World
        }
        (Some(name), None) => match sites.iter().position(|site| site.name == format!("{name}/{KEY}")) {
            Some(site) => Scope::Site(site),
            None => {
                problems.add(key("source"), &format!("is `{name}`, which is no source"));
                Scope::World
            }
        },
        (None, Some(region)) => Scope::Region(region),
        (None, None) => Scope::World,
    };
    let flaps = problems.span(key("flap_ms"), fault.flap_ms, MS);
    let shape = match (fault.hill, flaps.is_zero()) {
        (true, false) => {
            problems.add(key("hill"), "stands beside flap_ms; give one of them");
            Shape::Hill
        }
        (true, true) => Shape::Hill,
        (false, false) => Shape::Flapping(flaps),
        (false, true) => Shape::Block,
    };
    if fault.troubles.is_empty() {
        problems.add(key("troubles"), "is empty");
    }
    let troubles: Vec<Trouble> =
        fault.troubles.iter().filter_map(|name| problems.trouble(key("troubles"), name)).collect();
    let share_ppm = problems.share(key("share"), fault.share);
    Some(Episode { scope, from: Time(from.0), until: Time(until.0), shape, troubles, share_ppm })
}

fn clients(file: &File, problems: &mut Problems) -> Vec<Client> {
    let Clients { model, protocol, .. } = &file.clients;
    let operation = match protocol.as_str() {
        "chat" => Operation::ChatCompletions,
        "responses" => Operation::Responses,
        "messages" => Operation::Messages,
        "embeddings" => Operation::Embeddings,
        _ => {
            problems.add("clients.protocol", "is one of chat, responses, messages, embeddings");
            Operation::ChatCompletions
        }
    };
    let format = operation.format();
    let streams = problems.share("clients.stream", file.clients.stream);
    let structured = problems.share("clients.structured", file.clients.structured);
    let leave = problems.share("clients.leave", file.clients.leave);
    let leave_after = problems.span("clients.leave_after_ms", file.clients.leave_after_ms, MS);
    let slow = problems.share("clients.slow", file.clients.slow);
    let slow_by = problems.span("clients.slow_ms", file.clients.slow_ms, MS);
    let can_stream = format != Format::Embeddings;
    let one = |number: u64| {
        let mut stream = Stream::new(file.seed, Concern::Client, number, 0);
        Client {
            model: model.clone(),
            operation: Some(operation),
            method: "POST",
            ask: Ask {
                format,
                stream: can_stream && stream.chance(streams),
                include_usage: stream.chance(300_000),
                structured: matches!(format, Format::Chat | Format::Responses) && stream.chance(structured),
            },
            leaves: stream.chance(leave).then(|| (stream.exponential(leave_after), CancelCause::ClientGone)),
            dawdles: if stream.chance(slow) { slow_by } else { Span::ZERO },
            words: stream.range(1, file.clients.words.clamp(1, 100_000)),
        }
    };
    (0..file.arrivals.calls.min(1_000_000)).map(one).collect()
}

fn sharing(store: &StoreEntry, problems: &mut Problems) -> Sharing {
    if !(1..=64).contains(&store.gateways) {
        problems.add("store.gateways", "is 1 to 64");
    }
    let mut time = |key: &str, seconds: f64| Time(problems.span(key, seconds, S).0);
    let outages: Vec<(Time, Time)> = store
        .away_s
        .iter()
        .map(|Pair(from, until)| (time("store.away_s", *from), time("store.away_s", *until)))
        .collect();
    let wipes = store.forgets_s.iter().map(|at| time("store.forgets_s", *at)).collect();
    if outages.iter().any(|(from, until)| from >= until) {
        problems.add("store.away_s", "is a list of [from, until]: the earlier first");
    }
    Sharing {
        gateways: store.gateways.clamp(1, 64),
        latency: problems.span("store.latency_ms", store.latency_ms, MS),
        lost_ppm: problems.share("store.lost", store.lost),
        outages,
        wipes,
        closed: store.closed,
    }
}

/// The gateway's configuration: the policy, with the file's sources behind its providers' names.
fn tree(file: &File, policy: Value, problems: &mut Problems) -> Value {
    let Value::Object(mut tree) = policy else {
        problems.add("policy", "is a table of a gateway's configuration, or the path of one");
        return json!({});
    };
    let given = tree.remove("providers").unwrap_or_else(|| json!([]));
    let given: Vec<Map<String, Value>> =
        given.as_array().into_iter().flatten().filter_map(Value::as_object).cloned().collect();
    let name_of = |provider: &Map<String, Value>| provider.get("name").and_then(Value::as_str).map(str::to_owned);
    for provider in given.iter().filter_map(name_of) {
        if !file.sources.iter().any(|source| source.name == provider) {
            problems.add("policy.providers", &format!("names `{provider}`, for which the file has no source"));
        }
    }
    let providers = file.sources.iter().enumerate().map(|(at, source)| {
        let known = given.iter().find(|provider| name_of(provider).as_deref() == Some(&source.name));
        let mut told = known.cloned().unwrap_or_default();
        let first = told.remove("keys").and_then(|keys| keys.get(0).cloned());
        let mut key = first.and_then(|key| key.as_object().cloned()).unwrap_or_default();
        key.insert("name".into(), KEY.into());
        key.insert("value".into(), format!("sk-sim-{at}").into());
        if let Some(account) = &source.account {
            key.insert("account".into(), account.as_str().into());
        }
        for unwanted in ["base_url", "endpoints", "proxy", "preset"] {
            told.remove(unwanted);
        }
        told.insert("name".into(), source.name.as_str().into());
        told.insert("base_url".into(), format!("http://{}.sim/v1", source.name).into());
        told.insert("formats".into(), json!(source.protocols));
        told.insert("keys".into(), json!([key]));
        told.entry("models").or_insert_with(|| json!([MODEL]));
        Value::Object(told)
    });
    tree.insert("providers".into(), providers.collect());
    let targets: Vec<String> = file.sources.iter().map(|source| format!("{}/{MODEL}", source.name)).collect();
    let model = json!([{ "name": MODEL, "strategy": "health_aware", "targets": [targets] }]);
    tree.entry("models").or_insert(model);
    tree.insert("discovery".into(), json!({ "configured_models_mode": "allowlist" }));
    Value::Object(tree)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::World;
    use crate::world::log::Keep;
    use std::sync::Arc;

    fn of(text: &str) -> Result<Scenario, Vec<String>> {
        let mut file: File = toml::from_str(text).expect("a scenario's keys");
        let policy = file.policy.take().unwrap_or_else(|| json!({}));
        build(&file, policy)
    }

    #[test]
    fn a_small_file_is_a_world_that_runs() {
        let scenario = of(r#"
            arrivals = { calls = 200, every_ms = 50 }
            sources = [
                { name = "well" },
                { name = "ill", account = "a", troubles = { status-503 = 0.5, empty = 0.5 } },
            ]
            accounts = [{ name = "a", requests = 50, window_ms = 1000 }]
            faults = [{ from_s = 2, until_s = 4, source = "well", troubles = ["black-hole"], share = 0.2 }]
        "#)
        .expect("it is right");
        let report = World::new(Arc::new(scenario), Keep::Nothing, true).run();
        assert_eq!(report.violation, None);
        assert_eq!(report.calls, 200);
        assert!(report.tally.ends[0] >= 195, "{:?}", report.tally.ends);
    }

    #[test]
    fn workers_and_a_shared_store_run_too() {
        let scenario = of(r#"
            arrivals = { calls = 100, workers = 8, think_ms = 5 }
            sources = [{ name = "one", gate = 4 }, { name = "two" }]
            store = { gateways = 3, latency_ms = 2, away_s = [[0.5, 1.0]] }
        "#)
        .expect("it is right");
        let report = World::new(Arc::new(scenario), Keep::Nothing, true).run();
        assert_eq!((report.violation, report.calls), (None, 100));
    }

    #[test]
    fn every_problem_is_told_with_its_key() {
        let problems = of(r#"
            clients = { protocol = "smoke-signals", stream = 2 }
            arrivals = { workers = 2, every_ms = 5 }
            sources = [
                { name = "a", troubles = { gremlins = 0.1 }, pieces = [5, 2] },
                { name = "a", account = "x", troubles = { status-200 = 0.1 } },
            ]
            accounts = [{ name = "x", requests = 0, window_ms = 0 }]
            faults = [{ from_s = 5, until_s = 5, source = "b", troubles = ["tls"] }]
            policy = { providers = [{ name = "z" }] }
        "#)
        .expect_err("much is wrong");
        let told = problems.join("\n");
        let keys = [
            "clients.protocol",
            "clients.stream",
            "arrivals.every_ms",
            "accounts[0] needs",
            "sources[1].troubles",
            "sources[0].troubles",
            "sources[0].pieces",
            "sources[1].name",
            "faults[0].until_s",
            "faults[0].source",
            "policy.providers",
        ];
        for key in keys {
            assert!(told.contains(key), "{key} is missing in\n{told}");
        }
        assert!(told.contains("reset-before-head"), "the names that there are: {told}");
    }

    #[test]
    fn a_pair_is_two_values() {
        for text in ["pieces = [1]", "pieces = [1, 2, 3]", "head_ms = []"] {
            let file = format!("sources = [{{ name = \"a\", {text} }}]");
            let error = toml::from_str::<File>(&file).expect_err(text).to_string();
            assert!(error.contains("two values stand here"), "{error}");
        }
    }

    #[test]
    fn what_the_gateway_would_refuse_is_refused_in_its_own_words() {
        let problems = of(r#"
            sources = [{ name = "a" }]
            policy = { default_policy = { max_attempts = -1 } }
        "#)
        .expect_err("a negative budget");
        assert!(problems.iter().any(|problem| problem.contains("default_policy.max_attempts")), "{problems:?}");
    }

    #[test]
    fn troubles_have_names_and_no_name_twice() {
        let names: Vec<String> = trouble_names().map(|(name, _)| name).collect();
        let unique: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        assert!(names.iter().all(|name| trouble(name).is_some()));
        assert_eq!(trouble("error-behind-200"), Some(Trouble::ErrorBehind200));
        assert_eq!(trouble("status-451"), Some(Trouble::Status(451)));
        assert_eq!(trouble("none"), None);
    }
}
