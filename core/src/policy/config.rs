//! The configuration: the file's tree with every default filled in, or every mistake in it with its key path (F14).
//!
//! [`read`] takes a tree, not a file: TOML and JSON give the same one, and parsing them is the adapter's business. All
//! that a running gateway needs to know from the file is typed here; what a call reads of it is resolved by
//! [`Config::call_policy`], [`Provider::policy`] and [`Config::timeouts_for`].

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use serde_json::Value;

use self::reader::Reader;
pub(crate) use self::url::is_version;
pub use self::url::{BaseUrl, UrlError};
use super::{CallPolicy, EmptyCompletion, Phrase, ProviderPolicy, Retry, Rules, Secret, StopRule, Timeouts, Window};
use crate::pool::Strategy;
use crate::time::Span;
use crate::wire::Format;

mod models;
mod providers;
mod reader;
mod resolve;
mod rules;
mod sections;
mod text;
mod url;

#[cfg(test)]
mod tests;

/// One mistake of a configuration (F14). Prints as `path: reason`; holds no value of a secret or of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key path, like `providers[0].keys[1].value`; empty for the file as a whole.
    pub path: String,
    /// What is wrong and what to do about it.
    pub reason: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.reason) } else { write!(f, "{}: {}", self.path, self.reason) }
    }
}

impl core::error::Error for Problem {}

/// A whole configuration, valid.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients are served.
    pub server: Server,
    /// At least one, in the file's order.
    pub providers: Vec<Provider>,
    /// The virtual models, in the file's order.
    pub models: Vec<Model>,
    /// What calls follow where their model says nothing else.
    pub default_policy: Policy,
    /// G11.
    pub retry: Retry,
    /// F16.
    pub window: Window,
    /// The timeouts of attempts where neither provider nor model say otherwise.
    pub timeouts: Timeouts,
    /// G1–G7.
    pub breaker: Breaker,
    /// G8–G10.
    pub health: Health,
    /// G14.
    pub pace: Pace,
    /// G16: how long nothing may succeed before a waiting call ends; zero = for ever.
    pub stall_window: Span,
    /// M9.
    pub discovery: Discovery,
    /// G18.
    pub state: State,
    /// X7.
    pub trace: Trace,
}

/// `[server]`: where clients are served.
#[derive(Clone, Debug)]
pub struct Server {
    /// The clients' address; port 0 = any.
    pub listen: SocketAddr,
    /// The address of metrics and status; served nowhere when absent.
    pub admin_listen: Option<SocketAddr>,
    /// What clients may authenticate with; empty = open to all who can connect.
    pub api_keys: Vec<Secret>,
    /// Whether being open beyond this machine is meant.
    pub open: bool,
    /// Calls in flight; 0 = no limit.
    pub max_concurrency: u32,
    /// Bytes of a request's body at most; at least 1.
    pub max_body_bytes: u64,
    /// How long running calls may go on after SIGTERM (M10).
    pub drain: Span,
    /// A client that takes nothing for so long is dropped; zero = never.
    pub client_stall: Span,
    /// X4.
    pub on_client_disconnect: OnDisconnect,
}

/// What happens to an attempt whose client is gone (X4).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnDisconnect {
    /// It is dropped at once.
    #[default]
    Cancel,
    /// It runs to its end.
    Finish,
}

/// One of `[[providers]]`.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its name: visible ASCII without `/`, `?`, `#` and `%`, since it stands in paths and headers.
    pub name: String,
    /// What its endpoints speak; at least one.
    pub formats: Vec<Format>,
    /// At least one.
    pub endpoints: Vec<Endpoint>,
    /// The models that it is configured to have; empty = not told (M9).
    pub models: Vec<String>,
    /// Added to every request: lower-case names, values that may be secrets.
    pub headers: Vec<(String, Secret)>,
    /// F6; 0 = no limit.
    pub max_transfer_count: u32,
    /// F6; zero = no limit.
    pub max_transfer_timeout: Span,
    /// F13.
    pub stop_on_transport_errors: bool,
    /// F8, 400–599.
    pub continue_status_codes: Vec<u16>,
    /// F8, 400–599.
    pub stop_status_codes: Vec<u16>,
    /// M6.
    pub retry_on_errors: Vec<Phrase>,
    /// F8.
    pub rules: Rules,
    /// Its keys; empty = requests carry none.
    pub keys: Vec<Key>,
    /// Its own timeouts, over the global ones.
    pub timeouts: TimeoutOverrides,
}

/// An address of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its name; `default` for a provider's single `base_url`, `endpoint1`, … where the file gives none.
    pub name: String,
    /// Where it is.
    pub base_url: BaseUrl,
}

/// One of `[[providers.keys]]`.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its name; `key1`, `key2`, … by its place where the file gives none.
    pub name: String,
    /// The key itself: visible ASCII, not empty.
    pub value: Secret,
    /// The account that it shares with other keys, of other providers too (G13); `None` = the key stands for itself.
    pub account: Option<String>,
    /// Attempts in flight; 0 = no limit.
    pub max_concurrency: u32,
    /// Requests a minute; 0 = no limit.
    pub rpm: u32,
    /// Tokens a minute; 0 = no limit.
    pub tpm: u32,
}

/// One of `[[models]]`: a virtual model.
#[derive(Clone, Debug)]
pub struct Model {
    /// What clients ask for.
    pub name: String,
    /// The order within a tier (G9).
    pub strategy: Strategy,
    /// Tiers of targets, none of them empty. In a `priority` chain each target is a tier of its own (F2).
    pub tiers: Vec<Vec<Target>>,
    /// Over `default_policy`, key by key.
    pub policy: PolicyOverrides,
    /// Over the provider's timeouts, key by key.
    pub timeouts: TimeoutOverrides,
    /// Over `[window]`, key by key.
    pub window: WindowOverrides,
    /// Over `[retry]`, key by key.
    pub retry: RetryOverrides,
}

/// `provider/model` in a virtual model's list: all endpoints and keys of the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The provider's place in [`Config::providers`].
    pub provider: usize,
    /// The model's name at the provider; may hold `/` and `:`.
    pub model: String,
}

/// `[default_policy]` (F1–F14, G10–G12, G17); the meaning of each field is [`CallPolicy`]'s.
#[derive(Clone, Debug)]
pub struct Policy {
    /// F2; 0 and 1 are one try.
    pub sticky_key_attempts: u32,
    /// F3; 0 = no limit.
    pub max_transfer_count: u32,
    /// F4; zero = no limit.
    pub max_transfer_timeout: Span,
    /// G11; 0 = no limit.
    pub max_attempts: u32,
    /// F5; at least 1.
    pub max_attempts_hard: u32,
    /// G11; zero = no limit.
    pub max_wait: Span,
    /// The whole call; zero = none.
    pub deadline: Span,
    /// M3.
    pub empty_completion: EmptyCompletion,
    /// G17.
    pub structured_max_retries: u32,
    /// F8.
    pub rules: Rules,
}

/// What a table says of a [`Policy`]; what it leaves out stays as it was.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "the fields are Policy's")]
pub struct PolicyOverrides {
    pub sticky_key_attempts: Option<u32>,
    pub max_transfer_count: Option<u32>,
    pub max_transfer_timeout: Option<Span>,
    pub max_attempts: Option<u32>,
    pub max_attempts_hard: Option<u32>,
    pub max_wait: Option<Span>,
    pub deadline: Option<Span>,
    pub empty_completion: Option<EmptyCompletion>,
    pub structured_max_retries: Option<u32>,
    pub rules: RuleOverrides,
}

/// What a table says of [`Rules`], group by group.
#[derive(Clone, Debug, Default)]
pub struct RuleOverrides {
    /// Instead of all success rules.
    pub success: Option<Vec<regex::Regex>>,
    /// Instead of all stop rules.
    pub stop: Option<Vec<StopRule>>,
}

/// What a table says of [`Timeouts`]; what it leaves out stays as it was.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are Timeouts'")]
pub struct TimeoutOverrides {
    pub connect: Option<Span>,
    pub first_byte: Option<Span>,
    pub first_content: Option<Span>,
    pub idle: Option<Span>,
    pub total: Option<Span>,
}

/// What a table says of a [`Window`]; what it leaves out stays as it was.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are Window's")]
pub struct WindowOverrides {
    pub max_bytes: Option<u64>,
    pub max_events: Option<u32>,
}

/// What a table says of a [`Retry`]; what it leaves out stays as it was.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are Retry's")]
pub struct RetryOverrides {
    pub initial: Option<Span>,
    pub max: Option<Span>,
    pub factor_milli: Option<u32>,
    pub jitter_ppm: Option<u32>,
    pub stream: Option<bool>,
}

/// `[breaker]` (G1–G7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    /// Consecutive failures that open it; at least 1.
    pub fail_threshold: u32,
    /// Samples from which the failure rate counts; at least 1.
    pub min_calls: u32,
    /// The failure rate that opens it, in parts per million.
    pub fail_rate_ppm: u32,
    /// How far back samples count; never zero.
    pub window: Span,
    /// The plain open time; never longer than `max_cooldown`.
    pub cooldown: Span,
    /// The longest open time.
    pub max_cooldown: Span,
    /// How long a probe may keep its place; never zero.
    pub probe_ttl: Span,
    /// Whether a 429 counts as a failure (G3).
    pub count_rate_limited: bool,
    /// A success slower than this counts as a failure (M6); zero = off.
    pub slow_call: Span,
}

/// `[health]` (G8–G10), all in parts per million.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The weight of the newest result.
    pub alpha_ppm: u32,
    /// The least score, so that a bad target is still explored.
    pub floor_ppm: u32,
    /// The share of a failed source's health that another must have to be credible.
    pub credible_ppm: u32,
}

/// `[pace]` (G14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The limit at the start; 0 = the ceiling until the first cut.
    pub initial: u32,
    /// What a cut leaves of the limit, in parts per million.
    pub cut_ppm: u32,
    /// The lowest limit; at least 1.
    pub min: u32,
}

/// `[discovery]` (M9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// What configured models are.
    pub mode: ModelsMode,
    /// How often a failed provider is asked again; zero = never.
    pub recheck: Span,
    /// How often a good list is fetched anew; zero = never.
    pub refresh: Span,
}

/// `configured_models_mode`: what configured models are (M9).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum ModelsMode {
    /// A stand-in for a list that could not be fetched.
    #[default]
    Fallback,
    /// The list itself; nobody is asked.
    Allowlist,
}

/// `[state]`: the shared gate (G18).
#[derive(Clone, Debug)]
pub struct State {
    /// The store, its password included; none = this process alone.
    pub url: Option<Secret>,
    /// What happens while it cannot be reached.
    pub on_down: OnDown,
    /// The beginning of all its keys; not empty.
    pub prefix: String,
}

/// Admission while the store is down (G18).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnDown {
    /// By this process's own gate.
    #[default]
    Local,
    /// None.
    Closed,
}

/// `[trace]` (X7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// How much is written.
    pub mode: TraceMode,
    /// The file that is appended to; none = no trace.
    pub path: Option<String>,
}

/// How much of a call is traced (X7).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum TraceMode {
    /// Nothing.
    Off,
    /// Structure and lengths; texts and keys are masked.
    #[default]
    Redacted,
    /// Everything but credentials.
    Full,
}

/// Reads a configuration's tree. `env` answers for `${NAME}` and `${NAME:-default}` in any text.
///
/// # Errors
/// Every problem, in the order of the walk (F14).
pub fn read(tree: &Value, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, Vec<Problem>> {
    walk(tree, env, true)
}

/// Reads a tree that may do without providers: a policy for the simulator or a replay, like the seed form of F1.
///
/// # Errors
/// As [`read`], except that no provider at all is no problem.
pub fn read_policy(tree: &Value, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, Vec<Problem>> {
    walk(tree, env, false)
}

fn walk(tree: &Value, env: &dyn Fn(&str) -> Option<String>, serves: bool) -> Result<Config, Vec<Problem>> {
    let mut reader = Reader::new(env);
    let config = reader.root(tree).table(|table| {
        let server = table.section("server", sections::server);
        let (providers, known) = providers::all(table, serves);
        let models = models::all(table, &known);
        let overrides = table.section("default_policy", sections::policy);
        Config {
            server,
            providers,
            models,
            default_policy: Policy::default().with(&overrides),
            retry: Retry::default().with(&table.section("retry", sections::retry)),
            window: Window::default().with(&table.section("window", sections::window)),
            timeouts: Timeouts::default().with(&table.section("timeouts", sections::timeouts)),
            breaker: table.section("breaker", sections::breaker),
            health: table.section("health", sections::health),
            pace: table.section("pace", sections::pace),
            stall_window: table.section("stall", sections::stall),
            discovery: table.section("discovery", sections::discovery),
            state: table.section("state", sections::state),
            trace: table.section("trace", sections::trace),
        }
    });
    let problems = reader.into_problems();
    match config {
        Some(config) if problems.is_empty() => Ok(config),
        _ => Err(problems),
    }
}
