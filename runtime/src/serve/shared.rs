//! What all calls share: the snapshot in force, the gate, the connections, what is counted and told.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use surefoot_core::event::Notice;
use surefoot_core::gateway::Gateway;
use surefoot_core::gateway::health::RequestHealth;
use surefoot_core::id::CallId;
use surefoot_core::policy::{Place, Route};
use surefoot_core::rng::Rng;
use surefoot_core::time::Time;

use super::gate::Gate;
use super::lifecycle::Lifecycle;
use crate::admin::metrics::Metrics;
use crate::admin::recent::Recent;
use crate::logging;
use crate::reactor::Reactor;
use crate::trace_file::TraceFile;
use crate::upstream::{Origin, Upstream, Upstreams};

/// The core's time: microseconds since this process began to serve.
#[derive(Copy, Clone, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that starts now, a second in: zero stays "never" to whoever reads it so.
    pub fn start() -> Clock {
        Clock(Instant::now().checked_sub(Duration::from_secs(1)).unwrap_or_else(Instant::now))
    }

    /// The time now.
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// The instant of a time; one far away for [`Time::NEVER`] and its neighbours.
    pub fn instant(&self, time: Time) -> Instant {
        const YEAR_US: u64 = 365 * 24 * 3_600_000_000;
        self.0 + Duration::from_micros(time.0.min(self.now().0.saturating_add(YEAR_US)))
    }
}

/// One immutable snapshot (F1): the core's, and where its endpoints are.
#[derive(Debug)]
pub struct Snapshot<R: Reactor> {
    /// Everything that is decided from it.
    pub gateway: Gateway,
    /// By provider, then by endpoint.
    origins: Vec<Vec<Option<Arc<Upstream<R>>>>>,
}

impl<R: Reactor> Snapshot<R> {
    /// The snapshot of a gateway.
    pub fn new(gateway: Gateway, upstreams: &Upstreams<R>) -> Snapshot<R> {
        let origin = |url: &str| Some(upstreams.get(Origin::of(&url.parse().ok()?)?));
        let endpoints = gateway.config().providers.iter().map(|provider| &provider.endpoints);
        let origins = endpoints.map(|all| all.iter().map(|endpoint| origin(endpoint.base_url.expose())).collect());
        let origins = origins.collect();
        Snapshot { gateway, origins }
    }

    /// The connections of a place.
    pub fn origin(&self, place: Place) -> Option<Arc<Upstream<R>>> {
        self.origins.get(usize::from(place.provider))?.get(usize::from(place.endpoint))?.clone()
    }
}

/// Hears what calls do, beside the log and the metrics: for programs that run a gateway inside them.
pub trait Watch: fmt::Debug + Send + Sync {
    /// A call that the client knows by this request id tells something. Called while the call is driven: must not wait.
    fn notice(&self, request: &str, route: &Route, notice: &Notice);
}

/// What all calls share.
#[derive(Debug)]
pub struct Shared<R: Reactor> {
    /// The time.
    pub clock: Clock,
    /// The pool.
    pub gate: Gate,
    /// The connections to the providers.
    pub upstreams: Upstreams<R>,
    /// Who is here.
    pub life: Arc<Lifecycle>,
    /// What is counted.
    pub metrics: Metrics,
    /// The decisions that the status page shows.
    pub recent: Recent,
    health: Mutex<RequestHealth>,
    snapshot: ArcSwap<Snapshot<R>>,
    trace: ArcSwapOption<TraceFile>,
    seed: u64,
    calls: AtomicU64,
    watch: OnceLock<Arc<dyn Watch>>,
}

impl<R: Reactor> Shared<R> {
    /// Begins with a snapshot.
    pub fn new(clock: Clock, gate: Gate, upstreams: Upstreams<R>, snapshot: Snapshot<R>) -> Shared<R> {
        Shared {
            clock,
            gate,
            upstreams,
            life: Arc::default(),
            metrics: Metrics::new(),
            recent: Recent::default(),
            health: Mutex::default(),
            snapshot: ArcSwap::from_pointee(snapshot),
            trace: ArcSwapOption::empty(),
            seed: RandomState::new().build_hasher().finish(),
            calls: AtomicU64::new(1),
            watch: OnceLock::new(),
        }
    }

    /// Lets somebody hear what calls do from now on; `false` = somebody does already, and goes on alone.
    pub fn watch(&self, watch: Arc<dyn Watch>) -> bool {
        self.watch.set(watch).is_ok()
    }

    /// The snapshot in force.
    pub fn snapshot(&self) -> Arc<Snapshot<R>> {
        self.snapshot.load_full()
    }

    /// Puts another snapshot in force; running calls keep theirs.
    pub fn replace(&self, snapshot: Snapshot<R>) {
        let snapshot = Arc::new(snapshot);
        self.request_health().retain(|model| snapshot.gateway.knows(model) || model.ends_with("/*"));
        self.snapshot.store(snapshot);
    }

    /// The trace's file, if there is a trace.
    pub fn trace(&self) -> Option<Arc<TraceFile>> {
        self.trace.load_full()
    }

    /// Traces the calls that begin from now on there, or nowhere.
    pub fn set_trace(&self, trace: Option<Arc<TraceFile>>) {
        self.trace.store(trace);
    }

    /// The name and the seed of the next call.
    pub fn next_call(&self) -> (CallId, u64) {
        let id = self.calls.fetch_add(1, Ordering::Relaxed);
        (CallId(id), Rng::new(self.seed.wrapping_add(id.wrapping_mul(0x9e37_79b9_7f4a_7c15))).next_u64())
    }

    /// The request health of the models (M8).
    pub fn request_health(&self) -> MutexGuard<'_, RequestHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the log, the metrics and the status page of a notice.
    pub fn observe(&self, call: CallId, request: &str, route: &Route, notice: &Notice) {
        logging::notice(call, request, route, notice);
        self.metrics.notice(route, notice);
        self.recent.notice(self.clock.now(), call, request, route, notice);
        if let Some(watch) = self.watch.get() {
            watch.notice(request, route, notice);
        }
    }
}
