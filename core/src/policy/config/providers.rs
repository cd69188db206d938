//! `[[providers]]`: who is asked, where, and with which keys.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::reader::{Node, Table};
use super::text::Text;
use super::{BaseUrl, Endpoint, Key, Provider, rules, sections};
use crate::policy::{Phrase, Secret};
use crate::time::Span;
use crate::wire::Format;

/// The formats that a provider can be said to speak; counting tokens comes with Messages.
const FORMATS: [(&str, Format); 5] = [
    ("chat", Format::Chat),
    ("responses", Format::Responses),
    ("messages", Format::Messages),
    ("embeddings", Format::Embeddings),
    ("images", Format::Images),
];
/// Candidates of a roster at most.
pub(super) const MAX_CANDIDATES: usize = 4096;
/// Headers that say how a message is framed: a fixed value would break every request.
const FRAMING: [&str; 5] = ["connection", "content-length", "transfer-encoding", "upgrade", "te"];

/// A provider as targets know it; one that was refused too, so that one mistake does not make others.
#[derive(Default)]
pub(super) struct Known {
    /// Its name, if that is a valid one.
    pub(super) name: Option<Text>,
    /// Its sources: endpoints times keys.
    pub(super) sources: usize,
}

/// All providers, and what targets may know of them, by place. `needed` = a file without any is a mistake.
pub(super) fn all(table: &mut Table<'_, '_>, needed: bool) -> (Vec<Provider>, Vec<Known>) {
    let mut known: Vec<Known> = Vec::new();
    let given = table.key("providers");
    let none = given.as_ref().is_none_or(|node| node.is_list() && node.elements().is_empty());
    let providers = given.and_then(|node| {
        node.list(|mut node| {
            let read = node.table_mut(|table| provider(table, &known));
            let (provider, name) = read.unzip();
            let sources = provider.as_ref().map_or(0, sources);
            known.push(Known { name: name.flatten(), sources });
            if sources > MAX_CANDIDATES {
                return node.wrong(format!("{sources} sources (endpoints times keys); at most {MAX_CANDIDATES}"));
            }
            provider
        })
    });
    if needed && none {
        table.wrong("providers", "no provider; add a [[providers]] table with a `name`, `formats` and a `base_url`");
    }
    (providers.unwrap_or_default(), known)
}

fn sources(provider: &Provider) -> usize {
    provider.endpoints.len() * provider.keys.len().max(1)
}

fn provider(table: &mut Table<'_, '_>, earlier: &[Known]) -> (Provider, Option<Text>) {
    let taken = |name: &str| earlier.iter().flat_map(|known| &known.name).any(|known| known.as_str() == name);
    let name = match table.key("name") {
        Some(node) => unique_name(node, taken),
        None => {
            table.wrong("name", "missing; every provider needs a name");
            None
        }
    };
    let provider = Provider {
        name: name.clone().map(Text::into_string).unwrap_or_default(),
        formats: formats(table),
        endpoints: endpoints(table),
        models: models(table),
        headers: headers(table),
        max_transfer_count: table.count("max_transfer_count").unwrap_or(0),
        max_transfer_timeout: table.seconds("max_transfer_timeout_seconds").unwrap_or(Span::ZERO),
        stop_on_transport_errors: table.flag("stop_on_transport_errors").unwrap_or(false),
        continue_status_codes: sections::statuses(table, "continue_status_codes"),
        stop_status_codes: sections::statuses(table, "stop_status_codes"),
        retry_on_errors: table
            .key("retry_on_errors")
            .and_then(|node| node.list(|node| node.parsed(|text| Phrase::parse(text.as_str()))))
            .unwrap_or_default(),
        rules: rules::own(table),
        keys: keys(table),
        timeouts: table.section("timeouts", sections::timeouts),
    };
    (provider, name)
}

/// A name as it stands in headers and paths.
fn unique_name(node: Node<'_, '_>, taken: impl Fn(&str) -> bool) -> Option<Text> {
    node.parsed(|text| {
        let fine = |b: u8| b.is_ascii_graphic() && !b"/?#%\"\\".contains(&b);
        match text.as_str() {
            "" => Err("is empty".to_owned()),
            name if !name.bytes().all(fine) => {
                Err(format!("{} must be visible ASCII without spaces, slashes, `?`, `#`, `%` and quotes", text.shown()))
            }
            name if taken(name) => Err(format!("the name {} is used already", text.shown())),
            _ => Ok(text.clone()),
        }
    })
}

/// A name that may be left out: then it is the word and the place, counted from 1.
fn name_or_place(table: &mut Table<'_, '_>, word: &str, place: usize, taken: impl Fn(&str) -> bool) -> Option<String> {
    if let Some(node) = table.key("name") {
        return unique_name(node, taken).map(Text::into_string);
    }
    let name = format!("{word}{}", place + 1);
    if taken(&name) {
        table.wrong("name", format!("left out, so it would be `{name}`, but that name is used already"));
        return None;
    }
    Some(name)
}

fn formats(table: &mut Table<'_, '_>) -> Vec<Format> {
    let Some(node) = table.key("formats") else {
        table.wrong("formats", "missing; say what the provider speaks, for example [\"chat\"] or [\"messages\"]");
        return Vec::new();
    };
    let empty = node.is_list() && node.elements().is_empty();
    let mut formats = node.list(|node| node.word(&FORMATS)).unwrap_or_default();
    if empty {
        table.wrong("formats", "empty; say what the provider speaks, for example [\"chat\"] or [\"messages\"]");
    }
    formats.sort_unstable();
    formats.dedup();
    formats
}

fn endpoints(table: &mut Table<'_, '_>) -> Vec<Endpoint> {
    if table.has("endpoints") && table.has("base_url") {
        table.wrong("base_url", "stands beside `endpoints`; keep one of the two");
    }
    if let Some(base_url) = table.key("base_url") {
        let base_url = base_url.parsed(|text| BaseUrl::parse(text.as_str()));
        let single: Vec<Endpoint> =
            base_url.into_iter().map(|base_url| Endpoint { name: "default".to_owned(), base_url }).collect();
        // Asked for here too, so that the key is a known one.
        let _ = table.key("endpoints");
        return single;
    }
    let Some(node) = table.key("endpoints") else {
        table.wrong("base_url", "missing; give the provider's address, like https://api.openai.com/v1");
        return Vec::new();
    };
    let empty = node.is_list() && node.elements().is_empty();
    let mut endpoints: Vec<Endpoint> = Vec::new();
    node.list(|node| {
        let place = node.place();
        let endpoint = node.table(|table| endpoint(table, place, &endpoints))?;
        endpoints.extend(endpoint);
        Some(())
    });
    if empty {
        table.wrong("endpoints", "empty; give at least one with a `base_url`, or a `base_url` instead of `endpoints`");
    }
    endpoints
}

fn endpoint(table: &mut Table<'_, '_>, place: usize, earlier: &[Endpoint]) -> Option<Endpoint> {
    let name = name_or_place(table, "endpoint", place, |name| earlier.iter().any(|known| known.name == name));
    let Some(node) = table.key("base_url") else {
        table.wrong("base_url", "missing; give the endpoint's address, like https://api.openai.com/v1");
        return None;
    };
    let base_url = node.parsed(|text| BaseUrl::parse(text.as_str()));
    Some(Endpoint { name: name?, base_url: base_url? })
}

/// The models that it is configured to have, each once.
fn models(table: &mut Table<'_, '_>) -> Vec<String> {
    let mut models: Vec<String> = Vec::new();
    if let Some(node) = table.key("models") {
        node.list(|node| {
            let model = node.parsed(|text| {
                let name = model_name(text)?;
                if models.contains(&name) { Err(format!("{} stands here twice", text.shown())) } else { Ok(name) }
            })?;
            models.push(model);
            Some(())
        });
    }
    models
}

/// A model's name: anything that is not empty and can be told in a line.
pub(super) fn model_name(text: &Text) -> Result<String, String> {
    match text.as_str() {
        "" => Err("is empty".to_owned()),
        name if name.trim() != name || name.chars().any(char::is_control) => {
            Err(format!("{} must not begin or end with a space or hold control characters", text.shown()))
        }
        name => Ok(name.to_owned()),
    }
}

fn headers(table: &mut Table<'_, '_>) -> Vec<(String, Secret)> {
    let mut headers: Vec<(String, Secret)> = Vec::new();
    if let Some(node) = table.key("headers") {
        node.entries(|name, node| {
            let name = name.to_ascii_lowercase();
            let taken = headers.iter().any(|(known, _)| *known == name);
            if let Some(value) = header(&name, taken, node) {
                headers.push((name, value));
            }
        });
    }
    headers
}

fn header(name: &str, taken: bool, mut node: Node<'_, '_>) -> Option<Secret> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) {
        return node.wrong("is no name of a header");
    }
    if FRAMING.contains(&name) {
        return node.wrong("is set for every request by itself and cannot be given here");
    }
    if taken {
        return node.wrong("the header stands here twice; their names ignore case");
    }
    node.parsed(|text| {
        let value = text.as_str().trim();
        let fine = value.bytes().all(|b| b == b'\t' || (b >= b' ' && b != 0x7f));
        if fine { Ok(Secret::new(value)) } else { Err("holds characters that no header can carry") }
    })
}

fn keys(table: &mut Table<'_, '_>) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    if let Some(node) = table.key("keys") {
        node.list(|node| {
            let place = node.place();
            let key = node.table(|table| key(table, place, &keys))?;
            keys.push(key);
            Some(())
        });
    }
    keys
}

fn key(table: &mut Table<'_, '_>, place: usize, earlier: &[Key]) -> Key {
    let name = name_or_place(table, "key", place, |name| earlier.iter().any(|known| known.name == name));
    if !table.has("value") {
        table.wrong("value", "missing; give the key, or leave out the whole entry where none is needed");
    }
    Key {
        name: name.unwrap_or_default(),
        value: table.key("value").and_then(sections::secret).unwrap_or_default(),
        account: table.key("account").and_then(|node| {
            node.parsed(|text| match text.as_str() {
                "" => Err("is empty; leave it out where the key shares its quota with no other"),
                account => Ok(account.to_string()),
            })
        }),
        max_concurrency: table.count("max_concurrency").unwrap_or(0),
        rpm: table.count("rpm").unwrap_or(0),
        tpm: table.count("tpm").unwrap_or(0),
    }
}
