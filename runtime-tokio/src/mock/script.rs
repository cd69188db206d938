//! Scripts: what a whole mock does, and reading that from TOML.

use serde::Deserialize;

use super::behaviour::{Behaviour, Limit};
use super::directive::DirectiveError;

/// What a whole mock provider does. `Script::default()` answers well, and listens to directives in requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// What happens to connections.
    pub accept: Accept,
    /// With another `accept` than `open`: the time after which it is open all the same, in ms; 0 = never.
    pub open_after_ms: u64,
    /// The models that `GET /models` lists.
    pub models: Vec<String>,
    /// Seed of the draws for `flaky` where a behaviour has none of its own.
    pub seed: u64,
    /// Accounts with limits, by the keys that share them.
    pub accounts: Vec<Account>,
    /// Rules; the first that fits answers.
    pub rules: Vec<Rule>,
    /// What requests get that no rule fits, in turn, the last for ever. Not for `GET /models`.
    pub default: Vec<Behaviour>,
}

impl Default for Script {
    fn default() -> Script {
        // The misbehaving ones are listed so that a gateway which believes the list lets them through.
        let models = ["mock-small", "mock-large", "mock-503", "mock-429", "mock-stall", "mock-cut", "mock-empty"];
        Script {
            accept: Accept::Open,
            open_after_ms: 0,
            models: models.map(str::to_owned).to_vec(),
            seed: 0,
            accounts: Vec::new(),
            rules: Vec::new(),
            default: Vec::new(),
        }
    }
}

/// What happens to connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accept {
    /// They are served.
    #[default]
    Open,
    /// The port refuses them, and those there were are gone.
    Refuse,
    /// They are accepted and closed.
    Close,
    /// They are accepted and reset.
    Reset,
    /// They stay in the backlog: nobody ever answers.
    Ignore,
}

/// Keys that share limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Patterns of API keys; `*` stands for anything.
    pub keys: Vec<String>,
    /// Its limits.
    pub limit: Limit,
    /// `retry-after` of its refusals; `None` = what is left of the window, 1 for requests at once.
    pub retry_after: Option<String>,
}

/// When to answer how. What is absent fits anything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// The method.
    pub method: Option<String>,
    /// The path's end, or a pattern of the whole path if there is a `*` in it. Absent: any but `GET /models`.
    pub path: Option<String>,
    /// Pattern of the model's name.
    pub model: Option<String>,
    /// Pattern of the API key.
    pub key: Option<String>,
    /// Whether a stream is asked for.
    pub stream: Option<bool>,
    /// Only the n-th fitting requests, counted from 1.
    pub nth: Vec<u64>,
    /// Only every so many-th fitting request; 0 = each.
    pub every: u64,
    /// Only from this time after the start on, in ms.
    pub from_ms: u64,
    /// Only up to this time after the start, in ms; 0 = for ever.
    pub until_ms: u64,
    /// The answers in turn, the last for ever.
    pub answers: Vec<Behaviour>,
}

/// Everything that is wrong with a script, each with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.join("\n"))]
pub struct ScriptError {
    /// One line each: the place, then the problem.
    pub problems: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScript {
    #[serde(default)]
    accept: Accept,
    #[serde(default)]
    open_after_ms: u64,
    models: Option<Vec<String>>,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    accounts: Vec<RawAccount>,
    #[serde(default)]
    rules: Vec<RawRule>,
    default: Option<toml::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAccount {
    name: String,
    keys: Vec<String>,
    #[serde(default)]
    in_flight: u32,
    #[serde(default)]
    requests: u32,
    #[serde(default = "one_second")]
    window_ms: u64,
    retry_after: Option<String>,
}

fn one_second() -> u64 {
    1000
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    method: Option<String>,
    path: Option<String>,
    model: Option<String>,
    key: Option<String>,
    stream: Option<bool>,
    #[serde(default)]
    nth: Vec<u64>,
    #[serde(default)]
    every: u64,
    #[serde(default)]
    from_ms: u64,
    #[serde(default)]
    until_ms: u64,
    answer: toml::Value,
}

impl Script {
    /// A script in which every request gets the behaviours of `directives` in turn (the notation of the header).
    pub fn always(directives: &str) -> Result<Script, DirectiveError> {
        Ok(Script { default: Behaviour::parse_sequence(directives)?, ..Script::default() })
    }

    /// Reads a script in TOML; refused whole, with every problem.
    pub fn from_toml(text: &str) -> Result<Script, ScriptError> {
        let raw: RawScript = toml::from_str(text)
            .map_err(|error| ScriptError { problems: vec![error.to_string().trim().to_owned()] })?;
        let mut problems = Vec::new();
        let mut rules = Vec::new();
        for (index, rule) in raw.rules.into_iter().enumerate() {
            let place = format!("rules[{index}]");
            if rule.until_ms > 0 && rule.until_ms <= rule.from_ms {
                problems.push(format!("{place}.until_ms: not after from_ms, the rule would never apply"));
            }
            if rule.nth.contains(&0) {
                problems.push(format!("{place}.nth: requests are counted from 1"));
            }
            let answers = answers(&rule.answer, &format!("{place}.answer"), &mut problems);
            let RawRule { method, path, model, key, stream, nth, every, from_ms, until_ms, .. } = rule;
            rules.push(Rule { method, path, model, key, stream, nth, every, from_ms, until_ms, answers });
        }
        let default = raw.default.map_or_else(Vec::new, |value| answers(&value, "default", &mut problems));
        let accounts = raw.accounts.into_iter().map(|raw| Account {
            name: raw.name,
            keys: raw.keys,
            limit: Limit { in_flight: raw.in_flight, requests: raw.requests, window_ms: raw.window_ms.max(1) },
            retry_after: raw.retry_after,
        });
        let script = Script {
            accept: raw.accept,
            open_after_ms: raw.open_after_ms,
            models: raw.models.unwrap_or_else(|| Script::default().models),
            seed: raw.seed,
            accounts: accounts.collect(),
            rules,
            default,
        };
        if problems.is_empty() { Ok(script) } else { Err(ScriptError { problems }) }
    }
}

/// A directive, a table of directives, or a list of either.
fn answers(value: &toml::Value, place: &str, problems: &mut Vec<String>) -> Vec<Behaviour> {
    let found = match value {
        toml::Value::Array(items) if items.is_empty() => Err("an empty list: give one answer at least".to_owned()),
        toml::Value::Array(items) => {
            let each = items.iter().enumerate();
            return each.flat_map(|(index, item)| answers(item, &format!("{place}[{index}]"), problems)).collect();
        }
        toml::Value::Table(table) => from_table(table).map(|one| vec![one]),
        toml::Value::String(text) => Behaviour::parse_sequence(text).map_err(|error| error.to_string()),
        toml::Value::Integer(status) => {
            Behaviour::parse_sequence(&status.to_string()).map_err(|error| error.to_string())
        }
        _ => Err("neither a directive like \"503\", nor a table like { status = 503 }, nor a list of these".to_owned()),
    };
    found.unwrap_or_else(|problem| {
        problems.push(format!("{place}: {problem}"));
        Vec::new()
    })
}

fn from_table(table: &toml::Table) -> Result<Behaviour, String> {
    let mut behaviour = Behaviour::default();
    for (name, value) in table {
        let done = match value {
            toml::Value::Table(headers) if name == "headers" => headers
                .iter()
                .try_for_each(|(header, value)| behaviour.set("header", Some(&format!("{header}:{}", plain(value))))),
            toml::Value::Boolean(true) => behaviour.set(name, None),
            toml::Value::Boolean(false) => Ok(()),
            value => behaviour.set(name, Some(&plain(value))),
        };
        done.map_err(|error| error.to_string())?;
    }
    Ok(behaviour)
}

fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        toml::Value::Boolean(flag) => flag.to_string(),
        other => format!("<{}>", other.type_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_of_a_script_is_listed_with_its_place() {
        let error = Script::from_toml(
            "default = \"stal\"\n[[rules]]\nuntil_ms = 5\nfrom_ms = 5\nanswer = [\"ok\", { gap = \"x\" }, true]\n\
             [[rules]]\nnth = [0]\nanswer = []",
        );
        let problems = error.expect_err("it is wrong").problems;
        let places: Vec<_> = problems.iter().map(|problem| problem.split(": ").next().unwrap_or_default()).collect();
        let expected = [
            "rules[0].until_ms",
            "rules[0].answer[1]",
            "rules[0].answer[2]",
            "rules[1].nth",
            "rules[1].answer",
            "default",
        ];
        assert_eq!(places, expected);
        let unknown = Script::from_toml("[[rules]]\nanswr = 1").expect_err("an unknown key").to_string();
        assert!(unknown.contains("answr") && unknown.contains("answer"), "{unknown}");
    }
}
