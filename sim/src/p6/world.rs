//! The world of G19: five sources, four of which are bad in a way of their own, and callers that come back for more.
//!
//! What the study recorded is in `docs/p6.md`, beside what this world makes of it. What it did not record (latencies, the
//! account's size, the gates') is chosen here, so that the policy of the study's first run lands on its figures.

use serde_json::{Value, json};
use surefoot_core::gateway::Operation;
use surefoot_core::time::{Span, Time};
use surefoot_core::wire::Format;

use super::policy::Policy;
use crate::scenario::Scenario;
use crate::world::client::Client;
use crate::world::episode::Address;
use crate::world::site::{Account, AtLimit, Site};
use crate::world::speech::Ask;
use crate::world::trouble::Trouble;

/// The sources, as providers of the configuration.
pub const SOURCES: [&str; 5] = ["s1-healthy", "s2-bad-key", "s3-black-hole", "s4-tight", "s5-watchdog"];
/// The virtual model that everybody asks for.
pub const MODEL: &str = "smart";
/// Calls of the study.
pub const CALLS: u64 = 8000;
/// Those among them that a cache answered: successes of the study that never reached its engine.
pub const CACHED: u64 = 2373;
/// Callers: so many begin together, and others join them until there are as many as the second number.
pub const CALLERS: (u64, u64) = (64, 100);
/// Between two that join. After six minutes all are there; the study says how many there were, not when.
const JOINING: Span = Span::from_secs(10);
/// What a caller does between two calls: a client's own overhead. With none, calls that fail at once would fail by the
/// thousand in no time at all.
const THINKS: Span = Span::from_millis(20);

/// Empty completions of source 1, in millionths of the requests that it takes on (G19).
const EMPTY: u64 = 170_000;
/// Requests of source 5 that its watchdog kills, in millionths (G19: 10 % success).
const KILLED: u64 = 900_000;
/// When it does (G19).
const WATCHDOG: Span = Span::from_millis(500);

/// Until the head of sources 1 and 4: at least, and more on average. With [`GAP`] and [`PIECES`] a good answer takes
/// 1.8 s and an empty one 0.8 s: short turns, for a watchdog of 0.5 s lets one in ten through.
const HEAD: (Span, Span) = (Span::from_millis(300), Span::from_millis(500));
/// Between tokens on average.
const GAP: Span = Span::from_millis(40);
/// Tokens of an answer.
const PIECES: (u64, u64) = (10, 40);
/// The head and the gap of what source 5 answers: the quick ones, all well within the watchdog's time.
const QUICK: (Span, Span, Span) = (Span::from_millis(100), Span::from_millis(30), Span::from_millis(3));

/// Requests in a second that the account of sources 1, 4 and 5 has room for. With [`CHARGED`] it is what makes a third of
/// source 1's attempts a 429 (996 of 2,892).
const ACCOUNT: u32 = 30;
/// The part of source 5's requests that the account is charged for, in millionths: its watchdog kills most of them
/// before a model has seen them. A part, and not all, lets the limit bite under the later policies, too.
const CHARGED: u64 = 300_000;
/// Of the requests beyond the account's room source 1 breaks off this part in the stream, in millionths, and answers
/// 429 to the rest. Among the study's 2,892 attempts are 996 × 429, some 320 empty ones and 1,244 successes: this stands
/// for the others.
const OVERLOADS: u64 = 280_000;
/// Requests at once at source 4 (G19: a tight gate). The configuration tells the gateway: whoever finds it full moves
/// on, else source 4 would have had more of the study's attempts than the few hundred that it shares with 2 and 3.
const GATE: u32 = 2;
/// Requests at once at source 5, told as well. Whoever finds it full comes to source 1 in the old policy's ring: that is
/// what brings source 1 from the 12 % of attempts that a fifth of the calls makes up to the study's 20 %.
const CROWD: u32 = 46;

/// The sources' part of the configuration, as far as a policy does not say otherwise.
fn providers() -> Vec<Value> {
    let provider = |name: &&str| {
        let mut key = json!({ "value": format!("sk-{name}") });
        if ["s1-healthy", "s4-tight", "s5-watchdog"].contains(name) {
            key["account"] = "acme".into();
        }
        match *name {
            "s4-tight" => key["max_concurrency"] = GATE.into(),
            "s5-watchdog" => key["max_concurrency"] = CROWD.into(),
            _ => {}
        }
        let base_url = format!("http://{name}.sim/v1");
        json!({ "name": name, "formats": ["chat"], "base_url": base_url, "models": ["m"], "keys": [key] })
    };
    SOURCES.iter().map(provider).collect()
}

fn overlay(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (name, value) in over {
                overlay(base.entry(name.as_str()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(base), Value::Array(over)) if base.len() == over.len() => {
            base.iter_mut().zip(over).for_each(|(base, over)| overlay(base, over));
        }
        (base, over) => base.clone_from(over),
    }
}

/// The whole configuration: the world's sources under a policy. What the policy says of a source or of the model goes
/// over what the world says.
pub fn tree(policy: &Policy) -> Value {
    let mut tree = policy.tree.clone();
    let mut listed = providers();
    let own = tree.get("providers").and_then(Value::as_array).cloned().unwrap_or_default();
    for provider in own {
        match listed.iter_mut().find(|known| known["name"] == provider["name"]) {
            Some(known) => overlay(known, &provider),
            None => listed.push(provider),
        }
    }
    tree["providers"] = listed.into();
    if tree.get("models").is_none() {
        let targets: Vec<String> = SOURCES.iter().map(|name| format!("{name}/m")).collect();
        tree["models"] = json!([{ "name": MODEL, "strategy": "health_aware", "targets": [targets] }]);
    }
    tree["discovery"] = json!({ "configured_models_mode": "allowlist" });
    tree
}

fn sites() -> Vec<Site> {
    let site = |(place, name): (usize, &&str)| {
        let address = Address { site: place, provider: place, region: 0 };
        let account = match place {
            1 => 1,
            2 => 2,
            _ => 0,
        };
        let mut site = Site::new(&format!("{name}/key1"), address, account, &format!("sk-{name}"));
        (site.head, site.gap, site.pieces) = (HEAD, GAP, PIECES);
        match place {
            0 => {
                site.daily = vec![(Trouble::Empty, EMPTY)];
                site.at_limit = AtLimit::RefusesBarely(OVERLOADS);
            }
            1 => site.daily = vec![(Trouble::BadKey, 1_000_000)],
            2 => site.daily = vec![(Trouble::BlackHole, 1_000_000)],
            3 => {
                site.gate = (GATE, 429);
                site.at_limit = AtLimit::RefusesBarely(0);
            }
            _ => {
                site.daily = vec![(Trouble::BlackHole, KILLED)];
                site.gate = (CROWD, 429);
                site.watchdog = (WATCHDOG, 504);
                (site.head, site.gap) = ((QUICK.0, QUICK.1), QUICK.2);
                site.at_limit = AtLimit::Ignores(CHARGED);
            }
        }
        site
    };
    SOURCES.iter().enumerate().map(site).collect()
}

/// The run of a seed under a configuration.
pub fn scenario(seed: u64, tree: Value) -> Scenario {
    let ask = Ask { format: Format::Chat, stream: true, include_usage: false, structured: false };
    let client = Client {
        model: MODEL.into(),
        operation: Some(Operation::ChatCompletions),
        method: "POST",
        ask,
        leaves: None,
        dawdles: Span::ZERO,
        words: 20,
    };
    let second = Span::from_secs(1);
    let accounts = vec![Account::new(ACCOUNT, second), Account::new(0, second), Account::new(0, second)];
    let begins = |caller: u64| match caller.checked_sub(CALLERS.0) {
        None => Time(1),
        Some(late) => Time((1 + late) * JOINING.0),
    };
    Scenario {
        sites: sites(),
        accounts,
        queue: vec![client; (CALLS - CACHED) as usize],
        workers: (0..CALLERS.1).map(begins).collect(),
        thinks: THINKS,
        ..Scenario::still(seed, tree)
    }
}
