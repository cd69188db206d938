//! The `policy` line: a route, as a call reads it.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::VERSION;
use super::fields::{self, Problem};
use super::hash::Hash;
use super::secrets::{Secrets, token};
use super::words::Word;
use crate::id::{SourceId, TargetId};
use crate::policy::{
    CallPolicy, Candidate, Phrase, Place, ProviderPolicy, Retry, Route, Rules, Secret, StopRule, Timeouts, Window,
    rules,
};
use crate::pool::{Entry, Roster};
use crate::time::Span;

/// The routes that a file has told, and what its recorders share. One a file: a new file begins with a new one.
#[derive(Debug, Default)]
pub struct Policies {
    /// By the route's address: a route is hashed once, not once a call.
    known: BTreeMap<usize, Known>,
    /// What has been written.
    told: alloc::collections::BTreeSet<u64>,
}

#[derive(Clone, Debug)]
struct Known {
    /// Another route at the address of one that is gone is no acquaintance.
    route: Weak<Route>,
    id: u64,
    secrets: Arc<Secrets>,
}

/// Routes that are gone are forgotten when so many are known.
const MAX_KNOWN: usize = 1024;

impl Policies {
    /// Nothing told yet.
    pub fn new() -> Policies {
        Policies::default()
    }

    /// Tells every route again: lines were lost on their way to the file, or the file was emptied.
    pub fn retell(&mut self) {
        self.known.clear();
        self.told.clear();
    }

    /// The route's id and keys; its line goes to `out` when the file does not have it yet.
    pub(super) fn tell(&mut self, route: &Arc<Route>, out: &mut Vec<u8>) -> (u64, Arc<Secrets>) {
        let address = Arc::as_ptr(route).addr();
        if let Some(known) = self.known.get(&address)
            && known.route.as_ptr() == Arc::as_ptr(route)
            && known.route.strong_count() > 0
        {
            return (known.id, known.secrets.clone());
        }
        let mut secrets = Secrets::of(route);
        let line = line_of(route, &mut secrets);
        let id = line.hash();
        if self.told.insert(id) {
            fields::write(&PolicyLine { policy: format!("{id:016x}"), ..line }, out);
        }
        if self.known.len() >= MAX_KNOWN {
            self.known.retain(|_, known| known.route.strong_count() > 0);
        }
        let secrets = Arc::new(secrets);
        self.known.insert(address, Known { route: Arc::downgrade(route), id, secrets: secrets.clone() });
        (id, secrets)
    }
}

/// A pattern, and the statuses that it is for.
type StopLine = (Vec<u16>, Option<Box<str>>);

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesLine {
    success: Vec<Box<str>>,
    stop: Vec<StopLine>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderLine {
    name: Box<str>,
    max_transfer_count: u32,
    max_transfer_timeout: u64,
    stop_on_transport_errors: bool,
    continue_status_codes: Vec<u16>,
    stop_status_codes: Vec<u16>,
    retry_on_errors: Vec<(Vec<Box<str>>, Vec<u16>)>,
    rules: RulesLine,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CandidateLine {
    source: u32,
    name: Box<str>,
    provider: usize,
    place: (u16, u16, u16),
    model: Box<str>,
    connect: u64,
    first_byte: u64,
    first_content: u64,
    idle: u64,
    total: u64,
    /// The number of its key among the route's, and the key's length: what its token is made of.
    key: Option<(u32, usize)>,
}

/// The line as it is written; times in µs.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyLine {
    v: u32,
    pub(super) policy: String,
    model: Box<str>,
    sticky_key_attempts: u32,
    max_transfer_count: u32,
    max_transfer_timeout: u64,
    max_attempts: u32,
    max_attempts_hard: u32,
    max_wait: u64,
    deadline: u64,
    empty_completion: Box<str>,
    structured_max_retries: u32,
    rules: RulesLine,
    retry_initial: u64,
    retry_max: u64,
    retry_factor_milli: u32,
    retry_jitter_ppm: u32,
    retry_stream: bool,
    window_max_bytes: u64,
    window_max_events: u32,
    stall_window: u64,
    slow_call: u64,
    providers: Vec<ProviderLine>,
    candidates: Vec<CandidateLine>,
    roster: u32,
    strategy: Box<str>,
    /// Target and tier, by choice.
    entries: Vec<(u32, u16)>,
    #[serde(default, skip_serializing)]
    sum: Option<Box<str>>,
}

impl PolicyLine {
    /// The hash of its content: its name.
    fn hash(&self) -> u64 {
        let content = serde_json::to_vec(self).unwrap_or_default();
        Hash::new().with(&content).value()
    }

    /// The route that it tells; its keys are tokens.
    pub(super) fn read(mut self) -> Result<(u64, Route), Problem> {
        let told = core::mem::take(&mut self.policy);
        self.sum = None;
        let id = self.hash();
        if u64::from_str_radix(&told, 16) != Ok(id) {
            return Err(Problem::Edited);
        }
        Ok((id, route_of(self)?))
    }
}

fn line_of(route: &Route, secrets: &mut Secrets) -> PolicyLine {
    // Without `..`: a new field of the policy must find its place here.
    let Route { model, policy, candidates, roster } = route;
    let CallPolicy {
        sticky_key_attempts,
        max_transfer_count,
        max_transfer_timeout,
        max_attempts,
        max_attempts_hard,
        max_wait,
        deadline,
        empty_completion,
        structured_max_retries,
        rules,
        retry,
        window,
        stall_window,
        slow_call,
    } = &**policy;
    let Retry { initial, max, factor_milli, jitter_ppm, stream } = retry;
    let mut providers: Vec<&Arc<ProviderPolicy>> = Vec::new();
    let candidates = candidates
        .iter()
        .map(|candidate| {
            // Two providers that are equal are still two: their limits are counted apart.
            let known = providers.iter().position(|known| Arc::ptr_eq(known, &candidate.provider));
            let provider = known.unwrap_or(providers.len());
            if known.is_none() {
                providers.push(&candidate.provider);
            }
            candidate_line(candidate, provider, secrets)
        })
        .collect();
    PolicyLine {
        v: VERSION,
        policy: String::new(),
        model: Box::from(&**model),
        sticky_key_attempts: *sticky_key_attempts,
        max_transfer_count: *max_transfer_count,
        max_transfer_timeout: max_transfer_timeout.0,
        max_attempts: *max_attempts,
        max_attempts_hard: *max_attempts_hard,
        max_wait: max_wait.0,
        deadline: deadline.0,
        empty_completion: empty_completion.word().into(),
        structured_max_retries: *structured_max_retries,
        rules: rules_line(rules),
        retry_initial: initial.0,
        retry_max: max.0,
        retry_factor_milli: *factor_milli,
        retry_jitter_ppm: *jitter_ppm,
        retry_stream: *stream,
        window_max_bytes: window.max_bytes,
        window_max_events: window.max_events,
        stall_window: stall_window.0,
        slow_call: slow_call.0,
        providers: providers.into_iter().map(|provider| provider_line(provider)).collect(),
        candidates,
        roster: roster.id,
        strategy: roster.strategy.word().into(),
        entries: roster.entries.iter().map(|entry| (entry.target.0, entry.tier)).collect(),
        sum: None,
    }
}

fn candidate_line(candidate: &Candidate, provider: usize, secrets: &mut Secrets) -> CandidateLine {
    let Candidate { source, source_name, provider: _, place, model, timeouts, secret } = candidate;
    let Timeouts { connect, first_byte, first_content, idle, total } = timeouts;
    CandidateLine {
        source: source.0,
        name: Box::from(&**source_name),
        provider,
        place: (place.provider, place.endpoint, place.key),
        model: Box::from(&**model),
        connect: connect.0,
        first_byte: first_byte.0,
        first_content: first_content.0,
        idle: idle.0,
        total: total.0,
        key: secrets.number(secret).map(|number| (number, secret.expose().len())),
    }
}

fn provider_line(provider: &ProviderPolicy) -> ProviderLine {
    let ProviderPolicy {
        name,
        max_transfer_count,
        max_transfer_timeout,
        stop_on_transport_errors,
        continue_status_codes,
        stop_status_codes,
        retry_on_errors,
        rules,
    } = provider;
    ProviderLine {
        name: Box::from(&**name),
        max_transfer_count: *max_transfer_count,
        max_transfer_timeout: max_transfer_timeout.0,
        stop_on_transport_errors: *stop_on_transport_errors,
        continue_status_codes: continue_status_codes.clone(),
        stop_status_codes: stop_status_codes.clone(),
        retry_on_errors: retry_on_errors
            .iter()
            .map(|Phrase { words, statuses }| (words.clone(), statuses.clone()))
            .collect(),
        rules: rules_line(rules),
    }
}

fn rules_line(rules: &Rules) -> RulesLine {
    let source = |pattern: &regex::Regex| Box::from(pattern.as_str());
    let stop = |rule: &StopRule| (rule.statuses.clone(), rule.pattern.as_ref().map(source));
    RulesLine { success: rules.success.iter().map(source).collect(), stop: rules.stop.iter().map(stop).collect() }
}

fn route_of(line: PolicyLine) -> Result<Route, Problem> {
    let providers: Vec<Arc<ProviderPolicy>> =
        line.providers.into_iter().map(|provider| Ok(Arc::new(provider_of(provider)?))).collect::<Result<_, _>>()?;
    let candidates = line
        .candidates
        .into_iter()
        .map(|candidate| candidate_of(candidate, &providers))
        .collect::<Result<Vec<_>, _>>()?;
    if candidates.len() != line.entries.len() {
        return Err(Problem::Value("`candidates` and `entries` are not of one length".into()));
    }
    let entries = line.entries.into_iter().map(|(target, tier)| Entry { target: TargetId(target), tier }).collect();
    let policy = CallPolicy {
        sticky_key_attempts: line.sticky_key_attempts,
        max_transfer_count: line.max_transfer_count,
        max_transfer_timeout: Span(line.max_transfer_timeout),
        max_attempts: line.max_attempts,
        max_attempts_hard: line.max_attempts_hard,
        max_wait: Span(line.max_wait),
        deadline: Span(line.deadline),
        empty_completion: word("empty_completion", &line.empty_completion)?,
        structured_max_retries: line.structured_max_retries,
        rules: rules_of(line.rules)?,
        retry: Retry {
            initial: Span(line.retry_initial),
            max: Span(line.retry_max),
            factor_milli: line.retry_factor_milli,
            jitter_ppm: line.retry_jitter_ppm,
            stream: line.retry_stream,
        },
        window: Window { max_bytes: line.window_max_bytes, max_events: line.window_max_events },
        stall_window: Span(line.stall_window),
        slow_call: Span(line.slow_call),
    };
    let strategy = word("strategy", &line.strategy)?;
    let roster = Arc::new(Roster { id: line.roster, strategy, entries });
    Ok(Route { model: (&*line.model).into(), policy: Arc::new(policy), candidates, roster })
}

fn candidate_of(line: CandidateLine, providers: &[Arc<ProviderPolicy>]) -> Result<Candidate, Problem> {
    /// Longer than any key of the field.
    const MAX_KEY: usize = 1 << 16;
    let provider = providers.get(line.provider).cloned();
    let secret = match line.key {
        Some((number, length)) if length <= MAX_KEY => Secret::new(&token(number, length)),
        Some(_) => return Err(Problem::Value("a key of that length is none".into())),
        None => Secret::default(),
    };
    let (provider_place, endpoint, key) = line.place;
    Ok(Candidate {
        source: SourceId(line.source),
        source_name: (&*line.name).into(),
        provider: provider.ok_or(Problem::Value("a candidate's `provider` is not in the list".into()))?,
        place: Place { provider: provider_place, endpoint, key },
        model: (&*line.model).into(),
        timeouts: Timeouts {
            connect: Span(line.connect),
            first_byte: Span(line.first_byte),
            first_content: Span(line.first_content),
            idle: Span(line.idle),
            total: Span(line.total),
        },
        secret,
    })
}

fn provider_of(line: ProviderLine) -> Result<ProviderPolicy, Problem> {
    Ok(ProviderPolicy {
        name: (&*line.name).into(),
        max_transfer_count: line.max_transfer_count,
        max_transfer_timeout: Span(line.max_transfer_timeout),
        stop_on_transport_errors: line.stop_on_transport_errors,
        continue_status_codes: line.continue_status_codes,
        stop_status_codes: line.stop_status_codes,
        retry_on_errors: line.retry_on_errors.into_iter().map(|(words, statuses)| Phrase { words, statuses }).collect(),
        rules: rules_of(line.rules)?,
    })
}

fn rules_of(line: RulesLine) -> Result<Rules, Problem> {
    let compile = |pattern: Box<str>| {
        rules::compile(&pattern).map_err(|error| Problem::Value(format!("a rule does not compile: {error}").into()))
    };
    let stop = |(statuses, pattern): StopLine| Ok(StopRule { statuses, pattern: pattern.map(compile).transpose()? });
    Ok(Rules {
        success: line.success.into_iter().map(compile).collect::<Result<_, _>>()?,
        stop: line.stop.into_iter().map(stop).collect::<Result<_, _>>()?,
    })
}

pub(super) fn word<T: Word>(what: &str, word: &str) -> Result<T, Problem> {
    T::of(word).ok_or_else(|| Problem::unknown(what, word))
}
