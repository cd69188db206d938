//! Policies that the world is run under: the study's first, the ladder to the last, and anybody's own.

use std::path::{Path, PathBuf};

use serde_json::Value;
use surefoot_core::policy::config;

use super::world::{self, MODEL, SOURCES};

/// A policy file, read.
#[derive(Clone, Debug)]
pub struct Policy {
    /// What it is called in tables.
    pub name: String,
    /// Its tree, as the configuration has it; sources and model may be left to the world.
    pub tree: Value,
    /// Whether healthy evidence suppresses the consecutive channel (G4). `[study] suppression = false` turns it off.
    pub suppression: bool,
}

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("{}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not what its extension says.
    #[error("{name}: {why}")]
    Syntax {
        /// The file.
        name: String,
        /// Where and what.
        why: String,
    },
    /// It says what it must not.
    #[error("{name}: refused\n  {}", .problems.join("\n  "))]
    Refused {
        /// The file.
        name: String,
        /// Each with its key path.
        problems: Vec<String>,
    },
}

impl Policy {
    /// Reads a policy's text: TOML, or JSON.
    ///
    /// # Errors
    /// Every problem, each with its place.
    pub fn parse(name: &str, text: &str, json: bool) -> Result<Policy, PolicyError> {
        let syntax = |why: String| PolicyError::Syntax { name: name.to_owned(), why };
        let mut tree: Value = match json {
            true => serde_json::from_str(text).map_err(|error| syntax(error.to_string()))?,
            false => toml::from_str(text).map_err(|error| syntax(error.to_string()))?,
        };
        let refused = |problems| PolicyError::Refused { name: name.to_owned(), problems };
        let table = tree.as_object_mut().ok_or_else(|| refused(vec!["it is no table".to_owned()]))?;
        let suppression = match table.remove("study") {
            None => true,
            Some(study) => match study.as_object().map(|study| (study.len(), study.get("suppression"))) {
                Some((1, Some(Value::Bool(on)))) => *on,
                _ => return Err(refused(vec!["study: has one key, suppression, which is true or false".to_owned()])),
            },
        };
        let policy = Policy { name: name.to_owned(), tree, suppression };
        policy.check().map_err(refused)?;
        Ok(policy)
    }

    /// Reads a policy's file: JSON by extension, else TOML.
    ///
    /// # Errors
    /// As [`Policy::parse`], and when there is no such file.
    pub fn load(path: &Path) -> Result<Policy, PolicyError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| PolicyError::Unreadable { path: path.to_owned(), source })?;
        let json = path.extension().is_some_and(|extension| extension == "json");
        Policy::parse(&path.display().to_string(), &text, json)
    }

    fn check(&self) -> Result<(), Vec<String>> {
        let config = config::read(&world::tree(self), &|name| std::env::var(name).ok())
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let strangers = config.providers.iter().filter(|provider| !SOURCES.contains(&provider.name.as_str()));
        let mut problems: Vec<String> = strangers
            .map(|provider| {
                format!("providers: {} is not in this world, which has {}", provider.name, SOURCES.join(", "))
            })
            .collect();
        if !config.models.iter().any(|model| model.name == MODEL) {
            problems.push(format!("models: there is no {MODEL}, which every call asks for"));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

/// The files of the ladder: the name of each rung in tables, and its text.
const LADDER: [(&str, &str); 7] = [
    ("old", include_str!("../../policies/p6/0-old.toml")),
    ("+ breaker, health", include_str!("../../policies/p6/1-breaker-health.toml")),
    ("+ pace", include_str!("../../policies/p6/2-pace.toml")),
    ("+ demotion gate", include_str!("../../policies/p6/3-demotion-gate.toml")),
    ("+ 429 is no failure", include_str!("../../policies/p6/4-pushback.toml")),
    ("+ suppression", include_str!("../../policies/p6/5-final.toml")),
    ("pace.initial = 8", include_str!("../../policies/p6/6-slow-start.toml")),
];
/// The place of the first policy in the [`ladder`].
pub const OLD: usize = 0;
/// The place of the last: the defaults.
pub const FINAL: usize = 5;

/// The policies of the study from its first run to its last, each changing one thing in the order in which it was found,
/// and one variant of the last.
pub fn ladder() -> Vec<Policy> {
    let parse = |(name, text): &(&str, &str)| {
        Policy::parse(name, text, false).unwrap_or_else(|error| panic!("a policy of this repository: {error}"))
    };
    LADDER.iter().map(parse).collect()
}
