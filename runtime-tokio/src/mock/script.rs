//! Scripts: which request gets which behaviour.

use std::collections::BTreeMap;
use std::fmt;

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

/// What a rule may look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) model: &'a str,
    pub(super) key: &'a str,
    /// The value of `x-mock`.
    pub(super) header: Option<&'a str>,
    pub(super) stream: bool,
    /// Since the start of the mock.
    pub(super) elapsed_ms: u64,
    /// `GET /models`.
    pub(super) listing: bool,
}

/// Who said how to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The header `x-mock`.
    Header,
    /// The model's name.
    Model,
    /// The API key.
    Key,
    /// The rule of this index.
    Rule(usize),
    /// The script's default.
    Default,
    /// An account's limit.
    Limit,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            By::Header => f.write_str("x-mock"),
            By::Model => f.write_str("model"),
            By::Key => f.write_str("key"),
            By::Rule(index) => write!(f, "rules[{index}]"),
            By::Default => f.write_str("default"),
            By::Limit => f.write_str("limit"),
        }
    }
}

/// How often each sequence and rule was used.
#[derive(Debug, Default)]
pub(super) struct Turns(BTreeMap<String, u64>);

impl Turns {
    /// Most sequences kept apart. Clients name them, so there must be a bound; beyond it all share one count.
    const MOST: usize = 4096;

    fn next(&mut self, name: String) -> u64 {
        let name = if self.0.len() < Turns::MOST || self.0.contains_key(&name) { name } else { String::new() };
        let turn = self.0.entry(name).or_default();
        *turn += 1;
        *turn
    }
}

/// The choice for one request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) behaviour: Behaviour,
    pub(super) by: By,
    /// The how-manieth use of its sequence this is, from 1.
    pub(super) turn: u64,
}

impl Script {
    /// Header before model before key before rules: what is nearest to the request wins.
    pub(super) fn choose(&self, facts: Facts<'_>, turns: &mut Turns) -> Result<Choice, DirectiveError> {
        let said = [
            (By::Header, facts.header.map(|text| (text, true))),
            (By::Model, embedded(facts.model)),
            (By::Key, embedded(facts.key)),
        ];
        for (by, text) in said {
            let Some((text, strict)) = text else { continue };
            match Behaviour::parse_sequence(text) {
                Ok(answers) => {
                    // By path as well, so that a look at the models uses up nothing.
                    let turn = turns.next(format!("{by} {} {text}", facts.path));
                    return Ok(Choice { behaviour: at(&answers, turn), by, turn });
                }
                Err(error) if strict => return Err(error),
                Err(_) => {}
            }
        }
        for (index, rule) in self.rules.iter().enumerate().filter(|(_, rule)| rule.fits(facts)) {
            let seen = turns.next(format!("seen {index}"));
            if (rule.nth.is_empty() || rule.nth.contains(&seen)) && (rule.every == 0 || seen.is_multiple_of(rule.every))
            {
                let turn = turns.next(format!("rule {index}"));
                return Ok(Choice { behaviour: at(&rule.answers, turn), by: By::Rule(index), turn });
            }
        }
        let default: &[Behaviour] = if facts.listing { &[] } else { &self.default };
        let turn = if default.is_empty() { 1 } else { turns.next("default".to_owned()) };
        Ok(Choice { behaviour: at(default, turn), by: By::Default, turn })
    }
}

impl Rule {
    fn fits(&self, facts: Facts<'_>) -> bool {
        let path_fits = match self.path.as_deref() {
            None => !facts.listing,
            Some(pattern) if pattern.contains('*') => like(pattern, facts.path),
            Some(end) => facts.path.ends_with(end),
        };
        path_fits
            && self.method.as_deref().is_none_or(|method| method.eq_ignore_ascii_case(facts.method))
            && self.model.as_deref().is_none_or(|pattern| like(pattern, facts.model))
            && self.key.as_deref().is_none_or(|pattern| like(pattern, facts.key))
            && self.stream.is_none_or(|stream| stream == facts.stream)
            && facts.elapsed_ms >= self.from_ms
            && (self.until_ms == 0 || facts.elapsed_ms < self.until_ms)
    }
}

fn at(answers: &[Behaviour], turn: u64) -> Behaviour {
    let index = usize::try_from(turn.saturating_sub(1)).unwrap_or(usize::MAX);
    answers.get(index).or(answers.last()).cloned().unwrap_or_default()
}

/// The directive in a model's name or a key, and whether it must be one: `mock:503` must, `mock-503` may be just a name.
fn embedded(name: &str) -> Option<(&str, bool)> {
    let start = name.find("mock:").or_else(|| name.find("mock-"))?;
    let before = &name[..start];
    let fits = before.is_empty() || before.ends_with('/') || before == "sk-";
    fits.then(|| (&name[start + 5..], name[start..].starts_with("mock:")))
}

/// Whether `text` is like `pattern`, in which `*` stands for anything.
pub(super) fn like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(middle) = last.replace(part) {
            let Some(found) = rest.find(middle) else { return false };
            rest = &rest[found + middle.len()..];
        }
    }
    last.map_or(rest.is_empty(), |end| rest.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: Facts<'_> = Facts {
        method: "POST",
        path: "/v1/chat/completions",
        model: "m",
        key: "sk-a",
        header: None,
        stream: false,
        elapsed_ms: 0,
        listing: false,
    };

    fn script(text: &str) -> Script {
        Script::from_toml(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// What each of the requests gets, as `by: directive`.
    fn choices(script: &Script, requests: &[Facts<'_>]) -> Vec<String> {
        let mut turns = Turns::default();
        let choose = |facts: &Facts<'_>| match script.choose(*facts, &mut turns) {
            Ok(choice) => format!("{}: {}", choice.by, choice.behaviour),
            Err(error) => panic!("{error}"),
        };
        requests.iter().map(choose).collect()
    }

    #[test]
    fn what_is_nearest_to_the_request_decides() {
        let script = script("default = \"500\"\n[[rules]]\nkey = \"sk-b\"\nanswer = 401");
        let requests = [
            Facts { header: Some("502"), model: "mock-503", key: "mock:504", ..CHAT },
            Facts { model: "openai/mock-503", key: "mock:504", ..CHAT },
            Facts { key: "sk-mock:504", ..CHAT },
            Facts { key: "sk-b", ..CHAT },
            Facts { model: "mock-small", ..CHAT },
        ];
        let expected = ["x-mock: 502", "model: 503", "key: 504", "rules[0]: 401", "default: 500"];
        assert_eq!(choices(&script, &requests), expected);
    }

    #[test]
    fn answers_come_in_turn_and_the_last_one_stays() {
        let script = script("[[rules]]\nanswer = [\"503*2\", { status = 429, retry_after = 1 }, \"ok\"]");
        let expected = ["503", "503", "429, retry-after=1", "ok", "ok"].map(|words| format!("rules[0]: {words}"));
        assert_eq!(choices(&script, &[CHAT; 5]), expected);
    }

    #[test]
    fn each_directive_has_its_own_turns_and_listing_models_uses_up_none() {
        let listing = Facts { method: "GET", path: "/v1/models", key: "mock:503;ok", listing: true, ..CHAT };
        let asking = Facts { key: "mock:503;ok", ..CHAT };
        let other = Facts { key: "mock:503; ok", ..CHAT };
        let got = choices(&Script::default(), &[listing, asking, other, asking]);
        assert_eq!(got, ["key: 503", "key: 503", "key: 503", "key: ok"]);
        let default = Script::always("503; ok").expect("it is right");
        let listing = Facts { key: "", ..listing };
        assert_eq!(choices(&default, &[listing, CHAT]), ["default: ok", "default: 503"]);
    }

    #[test]
    fn rules_choose_by_pattern_count_and_time() {
        let script = script(
            "[[rules]]\npath = \"/eu/*\"\nanswer = 500\n[[rules]]\nnth = [2]\nmodel = \"gpt-*\"\nanswer = 501\n\
             [[rules]]\nevery = 2\nkey = \"*-z\"\nanswer = 502\n[[rules]]\nfrom_ms = 100\nuntil_ms = 200\nanswer = 503",
        );
        let eu = Facts { path: "/eu/v1/messages", ..CHAT };
        let gpt = Facts { model: "gpt-5", ..CHAT };
        let z = Facts { key: "sk-z", ..CHAT };
        let late = Facts { elapsed_ms: 150, ..CHAT };
        let later = Facts { elapsed_ms: 200, ..CHAT };
        let got = choices(&script, &[eu, gpt, gpt, gpt, z, z, late, later]);
        let statuses: Vec<_> = got.iter().map(|choice| choice.rsplit(' ').next().unwrap_or_default()).collect();
        assert_eq!(statuses, ["500", "ok", "501", "ok", "ok", "502", "503", "ok"]);
    }

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

    #[test]
    fn stars_stand_for_anything() {
        let yes = [("a*c", "abc"), ("*", ""), ("a", "a"), ("*b*", "abc"), ("a*b*c", "a-b-c"), ("a*", "a")];
        let no = [("a*c", "ab"), ("a", "ab"), ("", "a"), ("a*a", "a"), ("*b*", "ac")];
        assert!(yes.iter().all(|(pattern, text)| like(pattern, text)));
        assert!(!no.iter().any(|(pattern, text)| like(pattern, text)));
    }
}
