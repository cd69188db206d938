//! The configuration's file: found, parsed to a tree, and read by the core's one set of rules (F14).

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Number, Value};
use surefoot_core::policy::config::{self, Config, Problem};
use surefoot_core::policy::defaults;

/// The file that is taken when none is named.
pub const DEFAULT_FILE: &str = "surefoot.toml";

/// Where a configuration comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file; by its extension JSON, else TOML.
    File(PathBuf),
    /// No file: the well-known keys of the environment.
    Environment,
}

/// A configuration that cannot be taken. Prints one problem a line; holds no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Whose problems they are.
    pub origin: Origin,
    /// At least one.
    pub problems: Vec<String>,
}

impl std::error::Error for Rejected {}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(path) => path.display().fmt(f),
            Origin::Environment => f.write_str("environment"),
        }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (line, problem) in self.problems.iter().enumerate() {
            let end = if line + 1 < self.problems.len() { "\n" } else { "" };
            write!(f, "{}: {problem}{end}", self.origin)?;
        }
        Ok(())
    }
}

impl Origin {
    /// The named file, else [`DEFAULT_FILE`] where there is one, else the environment.
    pub fn find(named: Option<&Path>) -> Origin {
        match named {
            Some(path) => Origin::File(path.to_owned()),
            None if Path::new(DEFAULT_FILE).exists() => Origin::File(DEFAULT_FILE.into()),
            None => Origin::Environment,
        }
    }

    /// Reads the configuration.
    ///
    /// # Errors
    ///
    /// Every problem, each with its key path or its line.
    pub fn load(&self) -> Result<Config, Rejected> {
        let read = match self {
            Origin::Environment => defaults::from_environment(&environment).map_err(|found| shown(&found)),
            Origin::File(path) => {
                tree(path).and_then(|tree| config::read(&tree, &environment).map_err(|found| shown(&found)))
            }
        };
        read.map_err(|problems| Rejected { origin: self.clone(), problems })
    }
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn shown(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(Problem::to_string).collect()
}

/// A file's tree, or why there is none.
///
/// # Errors
///
/// One problem: the file cannot be read, or its line cannot be parsed. The line itself is not shown: a key may stand there.
pub fn tree(path: &Path) -> Result<Value, Vec<String>> {
    let text = std::fs::read_to_string(path).map_err(|error| vec![format!("cannot be read: {error}")])?;
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let parsed = if is_json { from_json(&text) } else { from_toml(&text) };
    parsed.map_err(|problem| vec![problem])
}

fn from_json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| {
        let what = match error.classify() {
            serde_json::error::Category::Eof => "the file ends in the middle of a value",
            _ => "a comma, a colon, a quote or a bracket is missing or misplaced",
        };
        format!("line {}, column {}: not valid JSON: {what}", error.line(), error.column())
    })
}

fn from_toml(text: &str) -> Result<Value, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let before = text.as_bytes().get(..at).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        // A doubled key is worth its name; other messages may quote what stands in the line.
        let name = error.span().and_then(|span| text.get(span)).filter(|name| is_bare_key(name));
        match (error.message(), name) {
            ("duplicate key", Some(name)) => {
                format!("line {line}, column {column}: the key `{name}` stands there twice")
            }
            (message, _) => format!("line {line}, column {column}: not valid TOML: {}", without_quotes(message)),
        }
    })?;
    Ok(json_table(table))
}

fn is_bare_key(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

/// The first line of a message, unless it quotes more than a character or two of the file.
fn without_quotes(message: &str) -> &str {
    let first = message.lines().next().unwrap_or_default();
    let longest = first.split('`').skip(1).step_by(2).map(str::len).max().unwrap_or(0);
    if longest > 3 { "the line cannot be read" } else { first }
}

fn json_table(table: toml::Table) -> Value {
    Value::Object(table.into_iter().map(|(key, value)| (key, json(value))).collect::<Map<_, _>>())
}

fn json(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => Value::Number(number.into()),
        // Infinite and not-a-number are no JSON: as texts they are refused where a number is wanted.
        toml::Value::Float(number) => {
            Number::from_f64(number).map_or_else(|| Value::String(number.to_string()), Value::Number)
        }
        toml::Value::Boolean(yes) => Value::Bool(yes),
        toml::Value::Datetime(time) => Value::String(time.to_string()),
        toml::Value::Array(values) => Value::Array(values.into_iter().map(json).collect()),
        toml::Value::Table(table) => json_table(table),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toml_and_json_give_the_same_tree() {
        let toml = "[server]\nlisten = \"127.0.0.1:0\"\n[breaker]\nfail_rate = 0.5\nmin_calls = 3\n[[providers]]\nname = \"a\"\n";
        let json = r#"{"server":{"listen":"127.0.0.1:0"},"breaker":{"fail_rate":0.5,"min_calls":3},"providers":[{"name":"a"}]}"#;
        assert_eq!(from_toml(toml).unwrap(), from_json(json).unwrap());
    }

    #[test]
    fn what_cannot_be_parsed_names_its_line_and_not_its_text() {
        let cases = [
            from_toml("[server]\nlisten = \"a\"\nvalue = \"sk-SECRET\n"),
            from_toml("[server\nlisten = "),
            from_toml("[server]\nlisten = 1\nlisten = 2\n"),
            from_toml("value = sk-SECRET\n"),
            from_toml("a = 1\nsk-SECRET sk-SECRET\n"),
            from_json("{\"a\": 1,\n\"value\": \"sk-SECRET\" \"b\": 1}"),
            from_json("{\"value\": \"sk-SECRET"),
            from_json("sk-SECRET"),
        ];
        let told: Vec<String> = cases.into_iter().map(|case| case.unwrap_err()).collect();
        assert!(!told.join("\n").contains("SECRET"), "{told:#?}");
        let lines: Vec<&str> = told.iter().map(|told| told.split_once(',').unwrap().0).collect();
        assert_eq!(lines, ["line 3", "line 1", "line 3", "line 1", "line 2", "line 2", "line 1", "line 1"]);
        assert!(told[2].contains("`listen` stands there twice"), "{}", told[2]);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let rejected = Origin::File("no/such/surefoot.toml".into()).load().unwrap_err();
        assert!(rejected.to_string().starts_with("no/such/surefoot.toml: cannot be read: "), "{rejected}");
    }
}
