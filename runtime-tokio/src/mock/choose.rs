//! Which behaviour a request gets: what is nearest to it decides.

use std::collections::BTreeMap;
use std::fmt;

use super::behaviour::Behaviour;
use super::directive::DirectiveError;
use super::script::{Rule, Script};

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
    fn stars_stand_for_anything() {
        let yes = [("a*c", "abc"), ("*", ""), ("a", "a"), ("*b*", "abc"), ("a*b*c", "a-b-c"), ("a*", "a")];
        let no = [("a*c", "ab"), ("a", "ab"), ("", "a"), ("a*a", "a"), ("*b*", "ac")];
        assert!(yes.iter().all(|(pattern, text)| like(pattern, text)));
        assert!(!no.iter().any(|(pattern, text)| like(pattern, text)));
    }
}
