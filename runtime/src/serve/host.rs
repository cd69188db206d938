//! What a call's decisions do here: an adapter's side of [`Drive`](surefoot_core::drive::Drive).

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, response};
use surefoot_core::drive::Host;
use surefoot_core::event::{Action, Fault, Head, Input, Notice, What, Why};
use surefoot_core::gateway::Tail;
use surefoot_core::gateway::body::ModelSlot;
use surefoot_core::gateway::headers::Handling;
use surefoot_core::id::{AttemptNo, CallId, Choice, LeaseId};
use surefoot_core::outcome::Outcome;
use surefoot_core::policy::{Candidate, Route};
use surefoot_core::pool::{Op, Reply};
use surefoot_core::time::Time;
use surefoot_core::wire::is_relevant_header;

use super::gate::Place;
use super::shared::{Shared, Snapshot};
use crate::reactor::{Alarm, Reactor};
use crate::trace_file::CallTrace;
use crate::upstream::{Exchange, News, Order};

/// What the client asked, kept for as long as another attempt may want it.
#[derive(Debug)]
pub struct Asked {
    /// The id that its answer carries.
    pub request_id: String,
    /// Its method.
    pub method: Method,
    /// Its headers, less those that stay here.
    pub headers: HeaderMap,
    /// What stands behind each source's base URL.
    pub tail: Tail,
    /// Its body.
    pub body: Bytes,
    /// Where the body names the model; `None` in a pass-through.
    pub slot: Option<ModelSlot>,
}

/// A call's means.
pub struct CallHost<R: Reactor> {
    shared: Arc<Shared<R>>,
    snapshot: Arc<Snapshot<R>>,
    asked: Asked,
    call: CallId,
    route: Arc<Route>,
    handling: Handling,
    live: Option<(AttemptNo, Exchange<R>)>,
    /// An attempt that could not even be begun.
    unsent: Option<AttemptNo>,
    /// Every attempt's head: a final answer may want an earlier one's.
    heads: Vec<(AttemptNo, response::Parts)>,
    place: Arc<Place>,
    /// The lease that waits for a reply or stands in line.
    queued: Option<LeaseId>,
    /// A settlement's reply is still to come.
    settling: bool,
    began: Time,
    /// The attempt that ended as a success: what is left of its answer is read away and its connection kept.
    served: Option<AttemptNo>,
    alarm: Alarm<R::Timer>,
    trace: Option<Box<CallTrace>>,
}

impl<R: Reactor> CallHost<R> {
    /// The means of `call` over `route`.
    pub fn new(
        shared: Arc<Shared<R>>,
        snapshot: Arc<Snapshot<R>>,
        asked: Asked,
        call: CallId,
        route: Arc<Route>,
    ) -> CallHost<R> {
        let handling = if asked.slot.is_some() { Handling::Inspected } else { Handling::Raw };
        let began = shared.clock.now();
        CallHost {
            shared,
            snapshot,
            asked,
            call,
            route,
            handling,
            live: None,
            unsent: None,
            heads: Vec::new(),
            place: Arc::default(),
            queued: None,
            settling: false,
            began,
            served: None,
            alarm: Alarm::default(),
            trace: None,
        }
    }

    /// Has the call traced.
    #[must_use]
    pub fn traced(mut self, trace: Option<CallTrace>) -> CallHost<R> {
        self.trace = trace.map(Box::new);
        self
    }

    /// What all calls share.
    pub fn shared(&self) -> &Arc<Shared<R>> {
        &self.shared
    }

    /// The call's route.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// The id that the answer carries.
    pub fn request_id(&self) -> &str {
        &self.asked.request_id
    }

    /// How much of the bodies is touched.
    pub fn handling(&self) -> Handling {
        self.handling
    }

    /// Drops what only another attempt would want: the request and the heads.
    pub fn forget_request(&mut self) {
        self.asked.headers = HeaderMap::new();
        self.asked.body = Bytes::new();
        self.heads = Vec::new();
    }

    /// An attempt's head.
    pub fn head(&self, attempt: AttemptNo) -> Option<&response::Parts> {
        self.heads.iter().rev().find(|(no, _)| *no == attempt).map(|(_, head)| head)
    }

    /// A candidate of the call's route.
    pub fn candidate(&self, choice: Choice) -> Option<&Candidate> {
        self.route.candidates.get(usize::from(choice.0))
    }

    /// Begins the exchange of an attempt; `None` if the snapshot has no such place, which no built one does.
    fn exchange(&self, choice: Choice) -> Option<Exchange<R>> {
        let candidate = self.candidate(choice)?;
        let upstream = self.snapshot.gateway.upstream(candidate.place)?;
        let target = upstream.path_and_query(&self.asked.tail).parse().ok()?;
        let mut headers = self.asked.headers.clone();
        for (name, value) in upstream.headers(&self.asked.tail) {
            let mut value = HeaderValue::from_str(&value).ok()?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_bytes(name.as_bytes()).ok()?, value);
        }
        let body = match &self.asked.slot {
            Some(slot) => slot.body_for(&self.asked.body, &candidate.model),
            None => self.asked.body.clone(),
        };
        let order = Order {
            method: self.asked.method.clone(),
            target,
            headers,
            body,
            connect: candidate.timeouts.connect.limit().map(|span| Duration::from_micros(span.0)),
            inspect: self.handling == Handling::Inspected,
        };
        Some(Exchange::start(self.snapshot.origin(candidate.place)?, order))
    }

    fn told(&mut self, attempt: AttemptNo, news: News) -> Input {
        match news {
            News::Head(mut parts) => {
                let head = core_head(&parts);
                parts.headers.values_mut().for_each(|value| *value = super::reply::copied(value));
                self.heads.push((attempt, parts));
                Input::Head { attempt, head }
            }
            News::Chunk(bytes) => Input::Chunk { attempt, bytes },
            News::End => {
                self.live = None;
                Input::End { attempt }
            }
            News::Fault(fault) => {
                self.live = None;
                Input::Fault { attempt, fault }
            }
        }
    }
}

impl<R: Reactor> Host for CallHost<R> {
    fn now(&mut self) -> Time {
        self.shared.clock.now()
    }

    fn apply(&mut self, op: &Op) -> Option<Reply> {
        let reply = self.shared.gate.apply(self.shared.clock.now(), op, &self.place);
        match op {
            Op::Reserve(reserve) => {
                let queued = reply.is_none() || reserve.queue && matches!(reply, Some(Reply::Refused { .. }));
                self.queued = queued.then_some(reserve.lease);
            }
            Op::Leave { lease } if self.queued == Some(*lease) => self.queued = None,
            Op::Settle(_) => self.settling |= reply.is_none(),
            Op::Leave { .. } | Op::Renew { .. } => {}
        }
        reply
    }

    fn send(&mut self, attempt: AttemptNo, choice: Choice, _why: Why) {
        self.live = self.exchange(choice).map(|exchange| (attempt, exchange));
        if self.live.is_none() {
            self.unsent = Some(attempt);
            tracing::error!(call = self.call.0, choice = choice.0, "an attempt has no address; this is a defect");
        }
    }

    fn abort(&mut self, attempt: AttemptNo) {
        match self.live.take() {
            Some((live, exchange)) if live == attempt => {
                if self.served == Some(attempt) {
                    exchange.release();
                }
            }
            other => self.live = other,
        }
    }

    fn notice(&mut self, notice: &Notice) {
        if let What::AttemptEnded { outcome: Outcome::Success, .. } = notice.what {
            self.served = notice.attempt;
        }
        self.shared.observe(self.call, &self.asked.request_id, &self.route, notice);
    }

    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Input> {
        if (self.queued.is_some() || self.settling)
            && let Poll::Ready((lease, reply)) = self.place.poll(self.queued, cx)
        {
            // Whoever is refused may stand in line all the same.
            if matches!(reply, Reply::Granted { .. }) {
                self.queued = None;
            }
            return Poll::Ready(Input::Reply { lease, reply });
        }
        if let Some(attempt) = self.unsent.take() {
            return Poll::Ready(Input::Fault { attempt, fault: Fault::Connect });
        }
        let Some((attempt, exchange)) = &mut self.live else { return Poll::Pending };
        let attempt = *attempt;
        exchange.poll(cx).map(|news| self.told(attempt, news))
    }

    fn poll_sleep(&mut self, cx: &mut Context<'_>, until: Time) -> Poll<()> {
        self.alarm.poll(cx, self.shared.clock.instant(until))
    }

    fn record_input(&mut self, now: Time, input: &Input) {
        if let Some(trace) = &mut self.trace {
            trace.input(now, input);
        }
    }

    fn record_action(&mut self, action: &Action) {
        if let Some(trace) = &mut self.trace {
            trace.action(action);
        }
    }
}

impl<R: Reactor> Drop for CallHost<R> {
    /// An answer whose end was not waited for: its connection may serve on if it was a good one.
    fn drop(&mut self) {
        if let Some((attempt, exchange)) = self.live.take()
            && self.served == Some(attempt)
        {
            exchange.release();
        }
        if self.settling || self.queued.is_some() {
            let (shared, call, request) = (self.shared.clone(), self.call, std::mem::take(&mut self.asked.request_id));
            let (route, began) = (self.route.clone(), self.began);
            self.place.bequeath(move |change| {
                let elapsed = shared.clock.now().since(began);
                shared.observe(call, &request, &route, &Notice::of_change(elapsed, change));
            });
        }
    }
}

/// The head as far as it decides anything.
fn core_head(parts: &response::Parts) -> Head {
    let relevant = parts.headers.iter().filter(|(name, _)| is_relevant_header(name.as_str()));
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned().into_boxed_str();
    let headers = relevant.map(|(name, value)| (name.as_str().into(), text(value))).collect();
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let unix_ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
    Head { status: parts.status.as_u16(), headers, unix_ms }
}
