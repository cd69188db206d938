//! One request of a client: routed, its body read, its call begun, its head answered.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header, request};
use http_body::Body;
use surefoot_core::call::{Call, Judge};
use surefoot_core::drive::{Drive, Step};
use surefoot_core::event::End;
use surefoot_core::gateway::body::ModelSlot;
use surefoot_core::gateway::headers::{self, Fate, Handling};
use surefoot_core::gateway::{Answer, Operation, Planned, RequestHead, Routed, Tail};
use surefoot_core::id::CallId;
use surefoot_core::outcome::Outcome;
use surefoot_core::policy::Plan;
use surefoot_core::wire::{Dialect, Format};

use super::body::{self, Refused, ReplyBody};
use super::host::{Asked, CallHost};
use super::lifecycle::{Busy, CallPermit, Presence, Stage};
use super::reply;
use super::running::Running;
use super::schema::RequestSchema;
use super::shared::{Shared, Snapshot};
use crate::reactor::Reactor;

/// The model of requests that no model of ours answers, in metrics.
const NO_MODEL: &str = "unknown";

/// A request with what its answer needs.
struct Arrived<R: Reactor> {
    shared: Arc<Shared<R>>,
    snapshot: Arc<Snapshot<R>>,
    busy: Busy,
    parts: request::Parts,
    call: CallId,
    seed: u64,
    request_id: String,
    dialect: Dialect,
}

/// Answers a request.
pub(super) async fn respond<R: Reactor, B>(
    shared: Arc<Shared<R>>,
    request: Request<B>,
    presence: Arc<Presence>,
) -> Response<ReplyBody<R>>
where
    B: Body<Data = Bytes, Error = std::io::Error> + Unpin,
{
    let busy = presence.begin();
    let snapshot = shared.snapshot();
    let (parts, body) = request.into_parts();
    let (call, seed) = shared.next_call();
    let (routed, request_id, dialect) = route(&snapshot, &parts, seed);
    let arrived = Arrived { shared, snapshot, busy, parts, call, seed, request_id, dialect };
    match routed {
        Routed::Local(answer) => reply::local(answer),
        Routed::Call { operation, tail } => match arrived.take_call(operation, tail, body).await {
            Ok(response) => response,
            Err((arrived, answer)) => arrived.refuse(operation.format(), answer),
        },
        Routed::Pass { plan, tail } => match arrived.take_pass(plan, tail, body).await {
            Ok(response) => response,
            Err((arrived, answer)) => arrived.refuse(Format::Raw, answer),
        },
    }
}

/// Answers what is no request.
pub(super) fn refuse<R: Reactor>(
    shared: &Shared<R>,
    status: StatusCode,
    message: &str,
    path: &str,
) -> Response<ReplyBody<R>> {
    let request_id = headers::request_id(None, shared.next_call().1);
    let head = RequestHead { method: "", path, query: None, header: &|_| None, request_id: &request_id };
    reply::local(Answer::error(head.dialect(), status.as_u16(), message, None, &request_id))
}

fn route<R: Reactor>(snapshot: &Snapshot<R>, parts: &request::Parts, seed: u64) -> (Routed, String, Dialect) {
    let header = |name: &str| text_of(&parts.headers, name);
    let request_id = headers::request_id(header("x-request-id"), seed);
    let head = RequestHead {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query(),
        header: &header,
        request_id: &request_id,
    };
    let dialect = head.dialect();
    (snapshot.gateway.route(&head), request_id, dialect)
}

fn text_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The request came to nothing: its answer, and what is left of it for the books. Boxed: it is the rare way.
type Refusal<R> = (Box<Arrived<R>>, Answer);

impl<R: Reactor> Arrived<R> {
    async fn take_call(
        self,
        operation: Operation,
        tail: Tail,
        body: impl Body<Data = Bytes, Error = std::io::Error> + Unpin,
    ) -> Result<Response<ReplyBody<R>>, Refusal<R>> {
        let (arrived, permit, body) = self.admit(body).await?;
        let content_type = text_of(&arrived.parts.headers, header::CONTENT_TYPE.as_str());
        let coding = text_of(&arrived.parts.headers, header::CONTENT_ENCODING.as_str());
        let planned = arrived.snapshot.gateway.plan(operation, content_type, coding, &body, &arrived.request_id);
        match planned {
            Ok(Planned { plan, slot, schema }) => {
                let schema =
                    schema.filter(|_| is_checked(&plan)).and_then(|place| RequestSchema::new(body.get(place)?));
                Ok(arrived.run(plan, tail, Some(slot), schema, body, permit).await)
            }
            Err(answer) => Err((Box::new(arrived), answer)),
        }
    }

    async fn take_pass(
        self,
        plan: Plan,
        tail: Tail,
        body: impl Body<Data = Bytes, Error = std::io::Error> + Unpin,
    ) -> Result<Response<ReplyBody<R>>, Refusal<R>> {
        let (arrived, permit, body) = self.admit(body).await?;
        Ok(arrived.run(plan, tail, None, None, body, permit).await)
    }

    /// Takes a call in: its place among the calls in flight, and its body.
    async fn admit(
        self,
        body: impl Body<Data = Bytes, Error = std::io::Error> + Unpin,
    ) -> Result<(Arrived<R>, CallPermit, Bytes), Refusal<R>> {
        let server = &self.snapshot.gateway.config().server;
        let (max, stall) = (server.max_body_bytes, stall(server.client_stall));
        if self.shared.life.stage() != Stage::Running {
            let answer = Answer::stopping(self.dialect, &self.request_id);
            return Err((Box::new(self), answer));
        }
        let Some(permit) = self.shared.life.begin_call(server.max_concurrency) else {
            let answer = Answer::busy(self.dialect, &self.request_id);
            return Err((Box::new(self), answer));
        };
        match body::collect::<R, _>(body, max, stall).await {
            Ok(body) => Ok((self, permit, body)),
            Err(refused) => {
                let answer = match refused {
                    Refused::TooLarge => Answer::too_large(self.dialect, max, &self.request_id),
                    Refused::Malformed => {
                        Answer::error(self.dialect, 400, "the request's chunks cannot be read", None, &self.request_id)
                    }
                    Refused::Slow | Refused::Gone => {
                        Answer::error(self.dialect, 408, "the request's body did not come", None, &self.request_id)
                    }
                };
                // What is left of the body is not read: the connection cannot go on behind it.
                Err((Box::new(self), answer.with("connection", "close")))
            }
        }
    }

    fn refuse(self: Box<Self>, format: Format, answer: Answer) -> Response<ReplyBody<R>> {
        let outcome = Outcome::RequestRejected;
        self.shared.metrics.call_ended(NO_MODEL, format, answer.status, outcome, surefoot_core::time::Span::ZERO);
        reply::local(answer)
    }

    async fn run(
        self,
        plan: Plan,
        tail: Tail,
        slot: Option<ModelSlot>,
        schema: Option<RequestSchema>,
        body: Bytes,
        permit: CallPermit,
    ) -> Response<ReplyBody<R>> {
        let Arrived { shared, snapshot, busy, parts, call, seed, request_id, .. } = self;
        let handling = if slot.is_some() { Handling::Inspected } else { Handling::Raw };
        let headers = passing(&parts.headers, handling);
        let on_disconnect = snapshot.gateway.config().server.on_client_disconnect;
        let started = shared.clock.now();
        let route = plan.route.clone();
        let trace = shared.trace().and_then(|file| file.begin(&plan, call, seed, started, &request_id));
        let judge = if trace.is_some() { Judge::Telling } else { Judge::Live };
        let mut machine = Call::new(plan, call, seed, started).with_request_id(&request_id).with_judge(judge);
        if let Some(schema) = schema {
            machine = machine.with_schema(Box::new(schema));
        }
        let method = parts.method.clone();
        drop(parts);
        let asked = Asked { request_id, method: method.clone(), headers, tail, body, slot };
        let host = CallHost::new(shared, snapshot, asked, call, route).traced(trace);
        let mut running = Running::new(Drive::new(machine, host), started, on_disconnect, busy, permit);
        loop {
            match poll_fn(|cx| running.poll_step(cx)).await {
                Step::Commit(commit) => {
                    let response = reply::committed(running, &commit);
                    return without_body(response, &method).await;
                }
                Step::End(End::Answer(answer)) => return reply::answered(&running, &answer),
                Step::End(_) => return reply::nothing(),
                // A call commits before it forwards.
                Step::Data(_) => {}
            }
        }
    }
}

/// Whether a call may ask again for the JSON that it was promised (G17).
fn is_checked(plan: &Plan) -> bool {
    plan.structured && !plan.stream && plan.route.policy.structured_max_retries > 0
}

/// An answer without a body is sent when its call is at its end: nobody polls such a body.
async fn without_body<R: Reactor>(response: Response<ReplyBody<R>>, method: &Method) -> Response<ReplyBody<R>> {
    let status = response.status().as_u16();
    if *method != Method::HEAD && !matches!(status, 100..=199 | 204 | 304) {
        return response;
    }
    let (parts, mut body) = response.into_parts();
    if let ReplyBody::Call(call) = &mut body {
        poll_fn(|cx| call.poll_out(cx)).await;
    }
    Response::from_parts(parts, body)
}

/// The client's headers that go to the upstream.
fn passing(sent: &HeaderMap, handling: Handling) -> HeaderMap {
    let connection = reply::connection_tokens(sent);
    let mut headers = HeaderMap::with_capacity(sent.len() + 4);
    for (name, value) in sent {
        if headers::request_header(name.as_str(), &connection, handling) == Fate::Pass {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

/// A span as a timeout; zero = none.
pub(super) fn stall(span: surefoot_core::time::Span) -> Option<Duration> {
    span.limit().map(|span| Duration::from_micros(span.0))
}
