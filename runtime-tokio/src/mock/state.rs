//! What a running mock knows: its script, what it was asked, and what it answered.

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::HeaderMap;
use serde_json::json;
use surefoot_core::rng::Rng;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::account::{Accounts, Refusal, Slot};
use super::behaviour::Behaviour;
use super::choose::{By, Choice, Facts, Turns, like};
use super::directive::DirectiveError;
use super::script::Script;

/// One request and what became of it. Headers with credentials are marked sensitive.
#[derive(Clone, Debug)]
pub struct Record {
    /// Counted from 1 in the order of arrival.
    pub number: u64,
    /// Arrival, in ms after the start of the mock.
    pub at_ms: u64,
    /// The method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The model asked for.
    pub model: String,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// Who said how to answer.
    pub by: By,
    /// The behaviour, as a directive.
    pub behaviour: String,
    /// The status sent; `None` while or when there was no head.
    pub status: Option<u16>,
    /// How the answer ended; `None` while it runs.
    pub end: Option<RecordEnd>,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEnd {
    /// Every byte was handed over.
    Whole,
    /// The mock broke it, as told.
    Broken,
    /// The other side left.
    Left,
}

impl RecordEnd {
    fn word(self) -> &'static str {
        match self {
            RecordEnd::Whole => "whole",
            RecordEnd::Broken => "broken",
            RecordEnd::Left => "left",
        }
    }
}

/// Shared by all connections.
#[derive(Debug)]
pub(super) struct State {
    started: Instant,
    inner: Mutex<Inner>,
    accounts: Arc<Accounts>,
    /// Rung when the script changes.
    pub(super) changed: Notify,
    log: bool,
}

#[derive(Debug, Default)]
struct Inner {
    script: Script,
    turns: Turns,
    records: VecDeque<Record>,
    count: u64,
    in_flight: usize,
    most_in_flight: usize,
    connections: u64,
}

/// Most records kept; the oldest go first.
const KEPT: usize = 10_000;

impl State {
    pub(super) fn new(script: Script, log: bool) -> Arc<State> {
        Arc::new(State {
            started: Instant::now(),
            inner: Mutex::new(Inner { script, ..Inner::default() }),
            accounts: Arc::default(),
            changed: Notify::new(),
            log,
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn started(&self) -> Instant {
        self.started
    }

    pub(super) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn set_script(&self, script: Script) {
        let mut inner = self.inner();
        inner.script = script;
        // Counts belong to a script: the rules they counted for are gone.
        inner.turns = Turns::default();
        drop(inner);
        self.changed.notify_one();
    }

    pub(super) fn with_script<T>(&self, look: impl FnOnce(&Script) -> T) -> T {
        look(&self.inner().script)
    }

    pub(super) fn models(&self) -> Vec<String> {
        self.with_script(|script| script.models.clone())
    }

    pub(super) fn connected(&self) {
        self.inner().connections += 1;
    }

    pub(super) fn choose(&self, facts: Facts<'_>) -> Result<Choice, DirectiveError> {
        let inner = &mut *self.inner();
        inner.script.choose(facts, &mut inner.turns)
    }

    /// Takes a place wherever one is needed: under the behaviour's own limit, and in the script's account of the key. The
    /// refusal is a behaviour too.
    pub(super) fn enter(&self, behaviour: &Behaviour, facts: Facts<'_>) -> Result<Option<Slot>, Box<Behaviour>> {
        let (mut limits, mut afters) = (Vec::new(), Vec::new());
        let own = behaviour.limit;
        if own.in_flight > 0 || own.requests > 0 {
            limits.push((behaviour.account.clone().unwrap_or_else(|| facts.key.to_owned()), own));
            afters.push(behaviour.retry_after.clone());
        }
        if !facts.listing {
            self.with_script(|script| {
                let theirs = |pattern: &String| like(pattern, facts.key);
                let account = script.accounts.iter().find(|account| account.keys.iter().any(theirs));
                // A behaviour that names the very account speaks for it: two limits would count in one place.
                if let Some(account) = account.filter(|account| limits.iter().all(|(name, _)| *name != account.name)) {
                    limits.push((account.name.clone(), account.limit));
                    afters.push(account.retry_after.clone());
                }
            });
        }
        if limits.is_empty() {
            return Ok(None);
        }
        match self.accounts.enter(&limits, Instant::now()) {
            Ok(slot) => Ok(Some(slot)),
            Err(refusal) => Err(Box::new(refused(refusal, afters.swap_remove(refusal.at)))),
        }
    }

    /// Whether this use of a behaviour goes wrong. Drawn from seed and turn alone, so that concurrency changes nothing.
    pub(super) fn strikes(&self, behaviour: &Behaviour, turn: u64) -> bool {
        let Some(share) = behaviour.flaky else { return true };
        let seed = behaviour.seed.unwrap_or_else(|| self.with_script(|script| script.seed));
        let draw = Rng::new(Rng::new(seed).next_u64().wrapping_add(turn)).next_u64();
        // 53 bits: as many as a float holds.
        ((draw >> 11) as f64) < share * (1_u64 << 53) as f64
    }

    pub(super) fn see(self: &Arc<Self>, mut record: Record) -> Seen {
        let mut inner = self.inner();
        inner.count += 1;
        inner.in_flight += 1;
        inner.most_in_flight = inner.most_in_flight.max(inner.in_flight);
        record.number = inner.count;
        let number = record.number;
        if inner.records.len() >= KEPT {
            inner.records.pop_front();
        }
        inner.records.push_back(record.clone());
        drop(inner);
        Seen { state: Arc::clone(self), number, record }
    }

    pub(super) fn count(&self) -> u64 {
        self.inner().count
    }

    pub(super) fn connections(&self) -> u64 {
        self.inner().connections
    }

    pub(super) fn most_in_flight(&self) -> usize {
        self.inner().most_in_flight
    }

    pub(super) fn in_flight(&self) -> usize {
        self.inner().in_flight
    }

    pub(super) fn records(&self) -> Vec<Record> {
        self.inner().records.iter().cloned().collect()
    }

    pub(super) fn forget(&self) {
        let mut inner = self.inner();
        (inner.turns, inner.most_in_flight) = (Turns::default(), inner.in_flight);
        inner.records.clear();
    }

    /// The routes for tests in other languages: `GET /_mock/requests`, `DELETE /_mock/requests`.
    pub(super) fn control(&self, method: &str, path: &str) -> (u16, String) {
        match (method, path) {
            ("GET", "/_mock/requests") => {
                let records = self.records();
                let each = records.iter().map(|record| {
                    json!({
                        "number": record.number, "at_ms": record.at_ms, "method": record.method, "path": record.path,
                        "model": record.model, "stream": record.stream, "by": record.by.to_string(),
                        "behaviour": record.behaviour, "status": record.status,
                        "end": record.end.map(RecordEnd::word), "body": String::from_utf8_lossy(&record.body)
                    })
                });
                (200, json!({ "count": self.count(), "requests": each.collect::<Vec<_>>() }).to_string())
            }
            ("DELETE", "/_mock/requests") => {
                self.forget();
                (200, json!({ "count": self.count() }).to_string())
            }
            _ => (404, json!({ "error": "there is GET and DELETE /_mock/requests" }).to_string()),
        }
    }

    fn update(&self, number: u64, change: impl FnOnce(&mut Record)) {
        // Searched from the end: a request that is being answered is a late one.
        if let Some(record) = self.inner().records.iter_mut().rev().find(|record| record.number == number) {
            change(record);
        }
    }
}

fn refused(refusal: Refusal, after: Option<String>) -> Behaviour {
    let ms = refusal.after.as_millis().max(1);
    let mut behaviour = Behaviour { status: Some(429), ..Behaviour::default() };
    match after {
        Some(after) => behaviour.retry_after = Some(after),
        None => {
            behaviour.retry_after = Some(ms.div_ceil(1000).to_string());
            behaviour.headers.push(("retry-after-ms".to_owned(), ms.to_string()));
        }
    }
    behaviour.error.message = Some(format!("mock: rate limit reached ({}), retry in {ms} ms", refusal.what));
    behaviour
}

/// A request on its way: says what becomes of it, and notices when it is given up.
#[derive(Debug)]
pub(super) struct Seen {
    state: Arc<State>,
    number: u64,
    record: Record,
}

impl Seen {
    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    pub(super) fn chosen(&self, by: By, behaviour: &Behaviour) {
        let words = behaviour.to_string();
        if self.state.log {
            let Record { method, path, model, .. } = &self.record;
            let model = if model.is_empty() { "-" } else { model };
            let line = format!("#{} {method} {path} {model} -> {words} ({by})", self.number);
            // Escaped, for clients name models; and a closed stderr is no reason to stop answering.
            let _ = writeln!(std::io::stderr(), "{}", line.escape_debug());
        }
        self.state.update(self.number, |record| (record.by, record.behaviour) = (by, words));
    }

    pub(super) fn answered(&self, status: u16) {
        self.state.update(self.number, |record| record.status = Some(status));
    }

    pub(super) fn broken(&self) {
        self.finish(RecordEnd::Broken);
    }

    pub(super) fn whole(&self) {
        self.finish(RecordEnd::Whole);
    }

    fn finish(&self, end: RecordEnd) {
        self.state.update(self.number, |record| record.end = record.end.or(Some(end)));
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        self.finish(RecordEnd::Left);
        self.state.inner().in_flight -= 1;
    }
}
