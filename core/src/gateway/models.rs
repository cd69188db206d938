//! The model inventory: what each provider serves, as far as is known, and when to ask it again (M9).
//!
//! A machine without I/O: the driver takes [`Inventory::begin_due`], asks, and hands the answer to [`Inventory::record`].

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::catalogue;
use crate::policy::Place;
use crate::policy::config::{BaseUrl, Config, ModelsMode, Provider};
use crate::time::{Span, Time};

/// How long a question may be out before it is taken for lost and asked again.
pub const FETCH_LIMIT: Span = Span::from_secs(30);
/// The longest list taken over; what is beyond is left out.
const MAX_MODELS: usize = 10_000;
/// The longest model name taken over, in bytes.
const MAX_NAME: usize = 512;
/// Gemini's compatible endpoint lists its models under this prefix and takes them without it.
const GEMINI: (&str, &str) = ("generativelanguage.googleapis.com", "models/");

/// Why a provider's list could not be had.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// No answer, for whatever reason.
    #[error("it could not be reached")]
    Transport,
    /// Another status than 200.
    #[error("it answered with status {0}")]
    Status(u16),
    /// An answer that is no list of models.
    #[error("its answer is no list of models")]
    Unreadable,
    /// A list with nothing on it.
    #[error("its list is empty")]
    Empty,
}

/// A question to be asked: `GET` of the provider's model list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The provider's name: what [`Inventory::record`] wants back, also after a reload.
    pub provider: Arc<str>,
    /// Whom to ask: another endpoint or key after each failure.
    pub place: Place,
}

/// What a provider's models are known from (M9).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Listing {
    /// Its own list, or an allowlist: what is not on it does not exist.
    Certain,
    /// Configured or built-in models, in place of a list that could not be had so far.
    StandIn,
    /// Nothing at all so far.
    Nothing,
}

/// Reads the answer to a [`Fetch`]: the shapes of OpenAI and Anthropic (`data`), and the bare list that some send.
///
/// Entries that are no model, doubled, or could not stand in a header or a log line are left out.
pub fn read_list(status: u16, body: &[u8]) -> Result<Vec<Box<str>>, FetchError> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow)]
        data: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Entry {
        id: Box<str>,
    }
    if status != 200 {
        return Err(FetchError::Status(status));
    }
    let entries = serde_json::from_slice::<List<'_>>(body).map(|list| list.data);
    let entries = entries.or_else(|_| serde_json::from_slice(body)).map_err(|_| FetchError::Unreadable)?;
    let ids = entries.into_iter().filter_map(|entry: &RawValue| serde_json::from_str::<Entry>(entry.get()).ok());
    let mut seen = BTreeSet::new();
    let usable = |id: &str| (1..=MAX_NAME).contains(&id.len()) && !id.chars().any(char::is_control);
    let fresh: Vec<Box<str>> =
        ids.map(|entry| entry.id).filter(|id| usable(id) && seen.insert(id.clone())).take(MAX_MODELS).collect();
    if fresh.is_empty() { Err(FetchError::Empty) } else { Ok(fresh) }
}

/// What each provider of a configuration serves, and when to ask next.
#[derive(Clone, Debug)]
pub struct Inventory {
    recheck: Span,
    refresh: Span,
    providers: Vec<Known>,
}

#[derive(Clone, Debug)]
struct Known {
    name: Arc<str>,
    endpoints: Vec<BaseUrl>,
    keys: u16,
    /// The last good list of its own.
    fetched: Option<Vec<Arc<str>>>,
    /// Why the last question failed; `None` after a good one, and before the first.
    failed: Option<FetchError>,
    /// Configured or built-in models, for as long as there is no list of its own.
    stand_in: Vec<Arc<str>>,
    /// Whether it is asked at all; not with an allowlist.
    asked: bool,
    /// When to ask next.
    due: Time,
    /// Questions that failed so far: turns over endpoints and keys.
    failures: u32,
}

impl Inventory {
    /// Nothing asked yet: stand-ins only, every provider due now unless the configured lists are an allowlist.
    pub fn new(config: &Config, now: Time) -> Inventory {
        let discovery = &config.discovery;
        let asked = discovery.mode == ModelsMode::Fallback;
        let providers = config.providers.iter().map(|provider| Known::new(provider, asked, now)).collect();
        Inventory { recheck: discovery.recheck, refresh: discovery.refresh, providers }
    }

    /// Takes over what is known of providers that stand in both configurations, at the same addresses.
    ///
    /// The next question to one with a good list comes when it would have come, or sooner where the new file says so.
    /// One that failed is asked at once: the new file may be the cure.
    pub fn carry_over(&mut self, old: &Inventory) {
        for known in self.providers.iter_mut().filter(|known| known.asked) {
            let before = old.providers.iter().find(|old| old.name == known.name && old.endpoints == known.endpoints);
            let Some(before) = before else { continue };
            known.fetched.clone_from(&before.fetched);
            known.failed = before.failed;
            if known.fetched.is_some() && known.failed.is_none() {
                known.due = before.due.min(pause_after(known.due, self.refresh));
            }
        }
    }

    /// The questions that are due, each handed out once: it counts as out for [`FETCH_LIMIT`] or until its answer.
    pub fn begin_due(&mut self, now: Time) -> Vec<Fetch> {
        let due = self.providers.iter_mut().enumerate().filter(|(_, known)| known.asked && known.due <= now);
        due.map(|(index, known)| {
            known.due = now.after(FETCH_LIMIT);
            Fetch { provider: known.name.clone(), place: known.place(index) }
        })
        .collect()
    }

    /// When the next question is due; [`Time::NEVER`] with an allowlist.
    pub fn next_due(&self) -> Time {
        self.providers.iter().filter(|known| known.asked).map(|known| known.due).min().unwrap_or(Time::NEVER)
    }

    /// Takes the answer to a [`Fetch`]; whether it changed what the provider serves, so that routes must be built anew.
    ///
    /// A failure takes nothing away: the last good list stays, else the stand-in. An answer for a provider that a
    /// reload took out, or put under an allowlist, is dropped.
    pub fn record(&mut self, now: Time, provider: &str, answer: Result<Vec<Box<str>>, FetchError>) -> bool {
        let known = self.providers.iter_mut().find(|known| *known.name == *provider && known.asked);
        let Some(known) = known else { return false };
        known.due = pause_after(now, if answer.is_ok() { self.refresh } else { self.recheck });
        match answer {
            Ok(list) => known.take(list),
            Err(error) => {
                known.failed = Some(error);
                known.failures = known.failures.wrapping_add(1);
                false
            }
        }
    }

    /// The models of a provider, by its place in the configuration: its own list, else the stand-in.
    pub fn models(&self, provider: usize) -> &[Arc<str>] {
        self.providers.get(provider).map_or(&[], Known::models)
    }

    /// Why a provider's last question failed, by its place in the configuration; for the log and the status page.
    pub fn failure(&self, provider: usize) -> Option<FetchError> {
        self.providers.get(provider).and_then(|known| known.failed)
    }

    /// What a provider's models are known from, by its place in the configuration.
    pub fn listing(&self, provider: usize) -> Listing {
        match self.providers.get(provider) {
            Some(known) if known.fetched.is_some() || !known.asked => Listing::Certain,
            Some(known) if !known.stand_in.is_empty() => Listing::StandIn,
            _ => Listing::Nothing,
        }
    }
}

/// A pause of zero is no pause but the wish not to be asked again.
fn pause_after(now: Time, pause: Span) -> Time {
    pause.limit().map_or(Time::NEVER, |pause| now.after(pause))
}

impl Known {
    fn new(provider: &Provider, asked: bool, due: Time) -> Known {
        let endpoints: Vec<BaseUrl> = provider.endpoints.iter().map(|endpoint| endpoint.base_url.clone()).collect();
        let mut stand_in: Vec<Arc<str>> = provider.models.iter().map(|model| model.as_str().into()).collect();
        if stand_in.is_empty() && asked {
            let host = endpoints.first().map_or("", BaseUrl::host);
            stand_in = catalogue::models_at(host).iter().map(|model| (*model).into()).collect();
        }
        Known {
            name: provider.name.as_str().into(),
            endpoints,
            keys: u16::try_from(provider.keys.len()).unwrap_or(u16::MAX),
            fetched: None,
            failed: None,
            stand_in,
            asked,
            due,
            failures: 0,
        }
    }

    fn models(&self) -> &[Arc<str>] {
        self.fetched.as_deref().unwrap_or(&self.stand_in)
    }

    /// Takes a good list over; whether it differs from what was served before.
    fn take(&mut self, list: Vec<Box<str>>) -> bool {
        let gemini = self.endpoints.first().is_some_and(|url| url.host().eq_ignore_ascii_case(GEMINI.0));
        let bare = |id: Box<str>| match id.strip_prefix(GEMINI.1) {
            Some(bare) if gemini => bare.into(),
            _ => id.into(),
        };
        let list: Vec<Arc<str>> = list.into_iter().map(bare).collect();
        let changed = *self.models() != *list;
        self.fetched = Some(list);
        self.failed = None;
        changed
    }

    fn place(&self, index: usize) -> Place {
        let endpoints = u32::try_from(self.endpoints.len()).unwrap_or(1).max(1);
        let turn = |of: u32, by: u32| u16::try_from(self.failures / by % of.max(1)).unwrap_or(0);
        Place {
            provider: u16::try_from(index).unwrap_or(u16::MAX),
            endpoint: turn(endpoints, 1),
            key: if self.keys == 0 { u16::MAX } else { turn(u32::from(self.keys), endpoints) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::{Gateway, fixture};
    use crate::pool::Pool;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO.after(Span::from_secs(seconds))
    }

    fn tree() -> serde_json::Value {
        serde_json::json!({ "providers": [
            {
                "name": "u1", "formats": ["chat"], "models": ["stand-in"],
                "endpoints": [{ "name": "eu", "base_url": "http://h1/v1" }, { "name": "us", "base_url": "http://h2/v1" }],
                "keys": [{ "value": "K1" }, { "value": "K2" }],
            },
            { "name": "u2", "formats": ["chat"], "base_url": "http://h3/v1" },
            { "name": "ai", "formats": ["messages"], "base_url": "https://api.anthropic.com" },
        ] })
    }

    fn inventory(tree: &serde_json::Value, now: Time) -> Inventory {
        Inventory::new(&fixture::config(tree), now)
    }

    fn list(models: &[&str]) -> Result<Vec<Box<str>>, FetchError> {
        Ok(models.iter().map(|model| (*model).into()).collect())
    }

    fn names(inventory: &Inventory, provider: usize) -> Vec<&str> {
        inventory.models(provider).iter().map(|model| &**model).collect()
    }

    fn asked(inventory: &mut Inventory, now: Time) -> Vec<String> {
        inventory.begin_due(now).iter().map(|fetch| fetch.provider.to_string()).collect()
    }

    #[test]
    fn stand_ins_serve_until_there_is_a_list() {
        let mut inventory = inventory(&tree(), at(0));
        assert_eq!(names(&inventory, 0), ["stand-in"]);
        assert!(names(&inventory, 1).is_empty());
        assert_eq!([0, 1].map(|provider| inventory.listing(provider)), [Listing::StandIn, Listing::Nothing]);
        assert_eq!(names(&inventory, 2), catalogue::models_at("api.anthropic.com"));
        assert!(inventory.record(at(1), "u1", list(&["gpt-x"])));
        assert_eq!((names(&inventory, 0), inventory.listing(0)), (vec!["gpt-x"], Listing::Certain));
    }

    #[test]
    fn every_provider_is_asked_at_once_and_only_once() {
        let mut inventory = inventory(&tree(), at(5));
        assert_eq!(inventory.next_due(), at(5));
        assert!(asked(&mut inventory, at(4)).is_empty());
        assert_eq!(asked(&mut inventory, at(5)), ["u1", "u2", "ai"]);
        assert!(asked(&mut inventory, at(6)).is_empty());
        assert_eq!(asked(&mut inventory, at(5).after(FETCH_LIMIT)), ["u1", "u2", "ai"]);
    }

    #[test]
    fn failed_providers_are_asked_again_sooner_than_good_ones() {
        let mut inventory = inventory(&tree(), at(0));
        inventory.begin_due(at(0));
        inventory.record(at(1), "u1", list(&["a"]));
        inventory.record(at(1), "u2", Err(FetchError::Transport));
        inventory.record(at(1), "ai", Err(FetchError::Status(401)));
        assert_eq!((inventory.next_due(), inventory.failure(2)), (at(61), Some(FetchError::Status(401))));
        assert_eq!(asked(&mut inventory, at(61)), ["u2", "ai"]);
        inventory.record(at(62), "u2", list(&["b"]));
        inventory.record(at(62), "ai", list(&["c"]));
        assert_eq!(inventory.failure(2), None);
        assert_eq!(inventory.next_due(), at(3601));
    }

    #[test]
    fn a_failed_refresh_takes_nothing_away_and_the_same_list_changes_nothing() {
        let mut inventory = inventory(&tree(), at(0));
        assert!(inventory.record(at(0), "u2", list(&["gpt-x"])));
        assert!(!inventory.record(at(1), "u2", Err(FetchError::Empty)));
        assert_eq!(names(&inventory, 1), ["gpt-x"]);
        assert!(!inventory.record(at(2), "u2", list(&["gpt-x"])));
        assert!(!inventory.record(at(2), "u1", list(&["stand-in"])));
        assert!(!inventory.record(at(2), "gone", list(&["gpt-x"])));
    }

    #[test]
    fn each_failure_turns_to_the_next_endpoint_then_key() {
        let mut inventory = inventory(&tree(), at(0));
        let mut places = Vec::new();
        for round in 0..5 {
            let fetches = inventory.begin_due(at(round * 100));
            places.push((fetches[0].place.endpoint, fetches[0].place.key));
            assert_eq!(fetches[1].place, Place { provider: 1, endpoint: 0, key: u16::MAX });
            for fetch in &fetches {
                inventory.record(at(round * 100), &fetch.provider, Err(FetchError::Transport));
            }
        }
        assert_eq!(places, [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0)]);
    }

    #[test]
    fn an_allowlist_asks_nobody_and_has_no_catalogue() {
        let mut tree = tree();
        tree["discovery"] = serde_json::json!({ "configured_models_mode": "allowlist" });
        let mut inventory = inventory(&tree, at(0));
        assert_eq!(inventory.next_due(), Time::NEVER);
        assert!(inventory.begin_due(Time::NEVER).is_empty());
        assert!(!inventory.record(at(0), "u1", list(&["not-configured"])));
        assert_eq!((names(&inventory, 0), inventory.listing(0)), (vec!["stand-in"], Listing::Certain));
        assert_eq!((names(&inventory, 2), inventory.listing(2)), (vec![], Listing::Certain));
    }

    #[test]
    fn what_is_known_outlives_a_reload_at_the_same_address() {
        let mut old = inventory(&tree(), at(0));
        old.begin_due(at(0));
        old.record(at(1), "u1", list(&["a"]));
        old.record(at(1), "u2", list(&["b"]));
        old.record(at(1), "ai", Err(FetchError::Transport));
        let mut changed = tree();
        changed["providers"][1]["base_url"] = "http://elsewhere/v1".into();
        changed["providers"][0]["models"] = serde_json::json!(["other"]);
        let mut new = inventory(&changed, at(10));
        new.carry_over(&old);
        assert_eq!(names(&new, 0), ["a"]);
        assert!(names(&new, 1).is_empty());
        assert_eq!(asked(&mut new, at(10)), ["u2", "ai"]);
        new.record(at(11), "u2", list(&["b"]));
        new.record(at(11), "ai", list(&["c"]));
        assert_eq!(new.next_due(), at(3601));
        changed["discovery"] = serde_json::json!({ "refresh_seconds": 5 });
        let mut sooner = inventory(&changed, at(20));
        sooner.carry_over(&new);
        assert_eq!(sooner.next_due(), at(25));
    }

    #[test]
    fn zero_means_never_again() {
        let mut tree = tree();
        tree["discovery"] = serde_json::json!({ "refresh_seconds": 0 });
        let mut inventory = inventory(&tree, at(0));
        for provider in ["u1", "u2", "ai"] {
            inventory.record(at(0), provider, list(&["a"]));
        }
        assert_eq!(inventory.next_due(), Time::NEVER);
    }

    #[test]
    fn lists_of_every_family_are_read_and_nothing_else_is() {
        let read = |body: &str| read_list(200, body.as_bytes());
        assert_eq!(
            read(r#"{"object":"list","data":[{"id":"a","object":"model"},{"id":"b"},{"id":"a"}]}"#),
            list(&["a", "b"])
        );
        assert_eq!(
            read(r#"{"data":[{"type":"model","id":"opus","display_name":"O"}],"has_more":false}"#),
            list(&["opus"])
        );
        assert_eq!(read(r#"[{"id":"bare"},5,{"id":7},{"id":""},{"id":"a\nb"}]"#), list(&["bare"]));
        for empty in [r#"{"object":"list","data":[]}"#, r#"{"data":[{"name":"x"}]}"#, "[]"] {
            assert_eq!(read(empty), Err(FetchError::Empty), "{empty}");
        }
        for unreadable in ["", "<html>", "{}", r#"{"data":null}"#, "null", r#"{"error":{"message":"no"}}"#] {
            assert_eq!(read(unreadable), Err(FetchError::Unreadable), "{unreadable}");
        }
        assert_eq!(read_list(404, b"{}"), Err(FetchError::Status(404)));
    }

    #[test]
    fn gemini_names_lose_their_prefix() {
        let tree = serde_json::json!({ "providers": [{
            "name": "g", "formats": ["chat"], "base_url": "https://generativelanguage.googleapis.com/v1beta/openai",
        }] });
        let mut inventory = inventory(&tree, at(0));
        inventory.record(at(0), "g", list(&["models/gemini-2.5-pro"]));
        assert_eq!(names(&inventory, 0), ["gemini-2.5-pro"]);
    }

    #[test]
    fn a_fetched_list_is_what_clients_may_ask_for() {
        let config = Arc::new(fixture::config(&tree()));
        let mut inventory = Inventory::new(&config, at(0));
        inventory.record(at(0), "u1", list(&["gpt-x"]));
        let mut pool = Pool::new(crate::gateway::pool_settings(&config));
        let gateway = Gateway::build(config, &inventory, &mut pool);
        assert!(gateway.knows("u1/gpt-x") && !gateway.knows("u1/stand-in"));
    }

    proptest! {
        #[test]
        fn arbitrary_lists_never_panic(status: u16, body: Vec<u8>) {
            let _ = read_list(status, &body);
        }
    }
}
