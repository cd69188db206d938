//! The policy: what a configuration means to a call. A call takes the snapshot in force when it arrives (F1).
//!
//! [`config`] is the file's tree with every default filled in and every mistake reported; this file is what a call reads.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::id::SourceId;
use crate::pool::Roster;
use crate::time::Span;
use crate::wire::Format;

pub mod config;
pub mod defaults;
pub mod rules;

/// What happens to an answer with no content and a plain stop (M3).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum EmptyCompletion {
    /// Another source is tried; the empty answer is delivered if nothing better comes.
    #[default]
    Failover,
    /// It is delivered as it is.
    Deliver,
}

/// Backoff between attempts on one source (G11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The first wait.
    pub initial: Span,
    /// The longest wait, jitter included.
    pub max: Span,
    /// Growth from wait to wait, in thousandths (2000 = twice).
    pub factor_milli: u32,
    /// Share by which a wait is drawn longer or shorter, in millionths.
    pub jitter_ppm: u32,
    /// Whether a stream is retried on its source before its commit (`before_commit`) or not at all (`never`).
    pub stream: bool,
}

/// Bounds of the recovery window (F16).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Bytes held at most.
    pub max_bytes: u64,
    /// Events held at most.
    pub max_events: u32,
}

/// Timeouts of one attempt; zero = none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// DNS, TCP and TLS together.
    pub connect: Span,
    /// Start to first byte, for streams.
    pub first_byte: Span,
    /// Start to commit, for streams, while another candidate could start.
    pub first_content: Span,
    /// Silence between bytes of a stream.
    pub idle: Span,
    /// The whole of a non-stream attempt.
    pub total: Span,
}

/// The policy of one call: the defaults with its model's overrides.
#[derive(Clone, Debug)]
pub struct CallPolicy {
    /// Total tries on the first source (F2); at least 1.
    pub sticky_key_attempts: u32,
    /// Switches of source (F3); 0 = no limit.
    pub max_transfer_count: u32,
    /// Time in which another attempt may start (F4); zero = no limit.
    pub max_transfer_timeout: Span,
    /// Attempts in a balanced tier (G11); 0 = no limit.
    pub max_attempts: u32,
    /// Attempts of a call, whatever else is said (F5); at least 1.
    pub max_attempts_hard: u32,
    /// All waiting of a call together (G11); zero = no limit.
    pub max_wait: Span,
    /// The whole call; zero = none.
    pub deadline: Span,
    /// M3.
    pub empty_completion: EmptyCompletion,
    /// Further askings for a structured answer (G17).
    pub structured_max_retries: u32,
    /// The global rules (F8).
    pub rules: Rules,
    /// G11.
    pub retry: Retry,
    /// F16.
    pub window: Window,
    /// G16.
    pub stall_window: Span,
    /// A success slower than this counts against the breaker (M6); zero = off.
    pub slow_call: Span,
}

/// A provider as a call sees it: its own budgets and rules (F6, F8).
#[derive(Clone, Debug)]
pub struct ProviderPolicy {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// As [`CallPolicy::max_transfer_count`], for this provider alone.
    pub max_transfer_count: u32,
    /// As [`CallPolicy::max_transfer_timeout`], from this provider's first attempt.
    pub max_transfer_timeout: Span,
    /// A transport error ends the call (F13).
    pub stop_on_transport_errors: bool,
    /// Statuses that move on though they would not by default (F8).
    pub continue_status_codes: Vec<u16>,
    /// Statuses that end the call (F8).
    pub stop_status_codes: Vec<u16>,
    /// Phrases that make a 4xx move on (M6).
    pub retry_on_errors: Vec<Phrase>,
    /// Its own rules (F8).
    pub rules: Rules,
}

/// A phrase of `retry_on_errors`: all words must occur in the error's code or message, case ignored; numbers constrain the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phrase {
    /// Lower-case words.
    pub words: Vec<Box<str>>,
    /// Allowed statuses; empty = any.
    pub statuses: Vec<u16>,
}

/// Compiled failover rules (F9, F12, F14).
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// A 200 whose text matches one of them is a transient failure.
    pub success: Vec<regex::Regex>,
    /// An error that fits one of them ends the call.
    pub stop: Vec<StopRule>,
}

/// One stop rule (F12): both parts must hold where both are given.
#[derive(Clone, Debug)]
pub struct StopRule {
    /// 400–599; empty = any error status.
    pub statuses: Vec<u16>,
    /// Searched in the upstream's own body text.
    pub pattern: Option<regex::Regex>,
}

/// A text that must never be shown; prints as `***`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a text.
    pub fn new(text: &str) -> Secret {
        Secret(text.into())
    }

    /// The text itself: for the upstream's request and for masking, nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("***")
    }
}

/// A candidate: where an attempt may go.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The source (provider, endpoint, key): what transfers are counted by (F3).
    pub source: SourceId,
    /// `provider/endpoint/key`, the endpoint left out where there is one (X6).
    pub source_name: Arc<str>,
    /// Its provider.
    pub provider: Arc<ProviderPolicy>,
    /// The place of its provider, endpoint and key in the configuration, for the adapter.
    pub place: Place,
    /// The model's name at the provider; empty for pass-through.
    pub model: Arc<str>,
    /// Its timeouts: global, then the provider's, then the model's, key by key.
    pub timeouts: Timeouts,
    /// The provider's key, to be masked in whatever the provider says; empty = none.
    pub secret: Secret,
}

/// Indices into the configuration's providers, a provider's endpoints and its keys.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Provider.
    pub provider: u16,
    /// Endpoint of the provider.
    pub endpoint: u16,
    /// Key of the provider; `u16::MAX` = the provider has none.
    pub key: u16,
}

/// A model's candidates for one protocol, fixed for a snapshot.
#[derive(Clone, Debug)]
pub struct Route {
    /// The model's name as it is shown in metrics; never a client's word that the configuration does not have.
    pub model: Arc<str>,
    /// The policy of its calls.
    pub policy: Arc<CallPolicy>,
    /// The candidates, in the order of the roster's entries.
    pub candidates: Vec<Candidate>,
    /// The same for the pool.
    pub roster: Arc<Roster>,
}

/// What a call is to do: its route and what its request asks for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where it may go, under which policy.
    pub route: Arc<Route>,
    /// Its protocol.
    pub format: Format,
    /// Whether the client asked for a stream.
    pub stream: bool,
    /// Whether a stream's usage chunk was asked for (`stream_options.include_usage`).
    pub include_usage: bool,
    /// The answer must be JSON (`response_format`; G17).
    pub structured: bool,
    /// Whether a failed attempt may be followed by another; false for pass-through requests that are not replay-safe (M7).
    pub replay_safe: bool,
    /// Tokens that the request is estimated to use (G15).
    pub tokens: u32,
}
