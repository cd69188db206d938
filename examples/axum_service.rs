//! The core as a tower service inside an axum application: the application's own routes beside it, its layers around it.
//!
//! `axum-service GATEWAY.json [ADDR]`. `GET /hello` is the application's; every other path is the gateway's.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::get;
use axum::{Router, body::to_bytes};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header, response};
use http_body::{Body as _, Frame};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::TokioExecutor;
use surefoot_core::call::Call;
use surefoot_core::drive::{Drive, Host, Step};
use surefoot_core::event::{Commit, End, Fault, Head, Input, Notice, Shape, Why};
use surefoot_core::gateway::body::ModelSlot;
use surefoot_core::gateway::headers::{Fate, Handling, request_header, request_id, response_header};
use surefoot_core::gateway::models::Inventory;
use surefoot_core::gateway::render::Served;
use surefoot_core::gateway::{Answer, Gateway, RequestHead, Routed, Tail, pool_settings};
use surefoot_core::id::{AttemptNo, CallId, Choice, LeaseId};
use surefoot_core::policy::config;
use surefoot_core::policy::{Plan, Route};
use surefoot_core::pool::{Op, Pool, Reply};
use surefoot_core::time::Time;
use surefoot_core::wire::is_relevant_header;
use tokio::time::{Instant, Sleep};
use tower_service::Service;

/// The gateway as a service. Clones are the same gateway.
#[derive(Clone)]
struct Surefoot(Arc<Shared>);

struct Shared {
    gateway: Gateway,
    pool: Mutex<(Pool, HashMap<LeaseId, Arc<Place>>)>,
    /// Plain HTTP. A connector with TLS, as hyper-rustls has one, goes here for providers on the internet.
    client: Client<HttpConnector, Full<Bytes>>,
    began: Instant,
    calls: AtomicU64,
}

/// A call's place in line: what it was granted, and whom to wake for it.
type Place = Mutex<(Option<Input>, Option<Waker>)>;

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service<Request> for Surefoot {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let shared = self.0.clone();
        Box::pin(async move { Ok(answer(shared, request).await) })
    }
}

/// From a request to the head of its answer; the body goes on with the call.
async fn answer(shared: Arc<Shared>, request: Request) -> Response {
    let id = shared.calls.fetch_add(1, Ordering::Relaxed);
    let (parts, body) = request.into_parts();
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let name = request_id(header("x-request-id"), id);
    let (dialect, routed) = {
        let (path, query) = (parts.uri.path(), parts.uri.query());
        let head = RequestHead { method: parts.method.as_str(), path, query, header: &header, request_id: &name };
        (head.dialect(), shared.gateway.route(&head))
    };
    let limit = shared.gateway.config().server.max_body_bytes;
    let body = to_bytes(body, usize::try_from(limit).unwrap_or(usize::MAX)).await;
    let planned = match (routed, body) {
        (Routed::Local(answer), _) => Err(answer),
        (_, Err(_)) => Err(Answer::too_large(dialect, limit, &name)),
        (Routed::Pass { plan, tail }, Ok(body)) => Ok((plan, None, tail, body)),
        (Routed::Call { operation, tail }, Ok(body)) => {
            let (kind, coding) = (header("content-type"), header("content-encoding"));
            let planned = shared.gateway.plan(operation, kind, coding, &body, &name);
            planned.map(|planned| (planned.plan, Some(planned.slot), tail, body))
        }
    };
    match planned {
        Err(answer) => whole(answer.status, answer.content_type, answer.headers, answer.body),
        Ok((plan, slot, tail, body)) => {
            let handling = if slot.is_some() { Handling::Inspected } else { Handling::Raw };
            let headers = passing(&parts.headers, |name| request_header(name, &[], handling));
            let asked = Asked { method: parts.method.clone(), headers, slot, tail, body, name };
            run(shared, plan, id, asked).await
        }
    }
}

async fn run(shared: Arc<Shared>, plan: Plan, id: u64, asked: Asked) -> Response {
    let (route, now) = (plan.route.clone(), shared.now());
    let call = Call::new(plan, CallId(id), id, now).with_request_id(&asked.name);
    let host = CallHost { shared, route, asked, live: None, heads: Vec::new(), place: Arc::default(), sleep: None };
    let mut drive = Drive::new(call, host);
    loop {
        match poll_fn(|cx| drive.poll_next(cx)).await {
            Step::Commit(commit) => return committed(drive, &commit),
            Step::End(End::Answer(answer)) => {
                let host = drive.host();
                let candidate = answer.choice.map(|choice| &host.route.candidates[usize::from(choice.0)]);
                let served = Served {
                    request_id: &host.asked.name,
                    source: candidate.map(|candidate| &*candidate.source_name),
                    attempts: drive.call().attempts(),
                    stop: answer.stop.map(|stop| stop.as_str()),
                    no_retry: answer.no_retry,
                    retry_after: answer.retry_after,
                };
                return whole(answer.status, "application/json", served.headers(), answer.body.clone());
            }
            Step::End(_) => return whole(503, "text/plain", Vec::new(), Bytes::new()),
            Step::Data(_) => {}
        }
    }
}

/// The head of the committed attempt, and the rest of the call as the body.
fn committed(drive: Drive<CallHost>, commit: &Commit) -> Response {
    let (mut response, host) = (Response::new(Body::empty()), drive.host());
    if let Some((_, head)) = host.heads.iter().find(|(attempt, _)| *attempt == commit.attempt) {
        *response.status_mut() = head.status;
        let handling = if host.asked.slot.is_some() { Handling::Inspected } else { Handling::Raw };
        *response.headers_mut() = passing(&head.headers, |name| response_header(name, &[], handling));
    }
    let source = &*host.route.candidates[usize::from(commit.choice.0)].source_name;
    let (request_id, attempts) = (&*host.asked.name, drive.call().attempts());
    put(response.headers_mut(), Served { request_id, source: Some(source), attempts, ..Served::default() }.headers());
    if commit.shape == Shape::EventStream {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    *response.body_mut() = Body::new(CallBody(Some(drive)));
    response
}

fn whole(status: u16, kind: &'static str, headers: Vec<(&'static str, String)>, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::BAD_GATEWAY);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    put(response.headers_mut(), headers);
    response
}

fn put(headers: &mut HeaderMap, values: Vec<(&'static str, String)>) {
    for (name, value) in values {
        headers.extend(value.parse().ok().map(|value: HeaderValue| (HeaderName::from_static(name), value)));
    }
}

/// The headers that go on.
fn passing(headers: &HeaderMap, fate: impl Fn(&str) -> Fate) -> HeaderMap {
    let mut passing = HeaderMap::new();
    for (name, value) in headers {
        match fate(name.as_str()) {
            Fate::Pass => passing.append(name, value.clone()),
            Fate::Rename(name) => passing.append(name, value.clone()),
            Fate::Drop => false,
        };
    }
    passing
}

/// The rest of a call as a body: a client that takes nothing has nothing read for it, and one that leaves drops it.
struct CallBody(Option<Drive<CallHost>>);

impl http_body::Body for CallBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(drive) = &mut self.0 else { return Poll::Ready(None) };
        loop {
            match ready!(drive.poll_next(cx)) {
                Step::Data(bytes) if !bytes.is_empty() => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Step::End(End::Broken) => return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into()))),
                Step::End(_) => return Poll::Ready(None),
                Step::Data(_) | Step::Commit(_) => {}
            }
        }
    }
}

impl Drop for CallBody {
    fn drop(&mut self) {
        if let Some(drive) = &mut self.0 {
            drive.cancel(surefoot_core::event::CancelCause::ClientGone);
        }
    }
}

impl Shared {
    fn now(&self) -> Time {
        Time(self.began.elapsed().as_micros() as u64)
    }
}

/// What the client asked.
struct Asked {
    method: Method,
    headers: HeaderMap,
    slot: Option<ModelSlot>,
    tail: Tail,
    body: Bytes,
    name: String,
}

/// What a call's decisions do here.
struct CallHost {
    shared: Arc<Shared>,
    route: Arc<Route>,
    asked: Asked,
    live: Option<(AttemptNo, Live)>,
    heads: Vec<(AttemptNo, response::Parts)>,
    place: Arc<Place>,
    sleep: Option<Pin<Box<Sleep>>>,
}

enum Live {
    Asking(ResponseFuture),
    Reading(Incoming),
    Unsent,
}

impl CallHost {
    fn request(&self, choice: Choice) -> Result<http::Request<Full<Bytes>>, Box<dyn Error>> {
        let candidate = &self.route.candidates[usize::from(choice.0)];
        let upstream = self.shared.gateway.upstream(candidate.place).ok_or("no such place")?;
        let (base, path) = (upstream.base, upstream.path_and_query(&self.asked.tail));
        let body = self.asked.slot.as_ref().map(|slot| slot.body_for(&self.asked.body, &candidate.model));
        let mut request = http::Request::new(Full::new(body.unwrap_or_else(|| self.asked.body.clone())));
        *request.method_mut() = self.asked.method.clone();
        *request.uri_mut() = format!("http://{}:{}{path}", base.host(), base.port()).parse::<Uri>()?;
        *request.headers_mut() = self.asked.headers.clone();
        for (name, value) in upstream.headers(&self.asked.tail) {
            request.headers_mut().insert(HeaderName::from_bytes(name.as_bytes())?, value.parse()?);
        }
        Ok(request)
    }
}

impl Host for CallHost {
    fn now(&mut self) -> Time {
        self.shared.now()
    }

    fn apply(&mut self, op: &Op) -> Option<Reply> {
        let mut guard = lock(&self.shared.pool);
        let (pool, line) = &mut *guard;
        let reply = pool.apply(self.shared.now(), op);
        line.remove(&op.lease());
        if matches!(op, Op::Reserve(reserve) if reserve.queue && matches!(reply, Reply::Refused { .. })) {
            line.insert(op.lease(), self.place.clone());
        }
        while let Some((lease, reply)) = pool.pop_granted() {
            // Its call's next command takes it off the book: whoever is refused may stand in line all the same.
            let Some(place) = line.get(&lease).cloned() else {
                pool.apply(self.shared.now(), &Op::Leave { lease });
                continue;
            };
            let mut place = lock(&place);
            place.0 = Some(Input::Reply { lease, reply });
            place.1.take().into_iter().for_each(Waker::wake);
        }
        Some(reply)
    }

    fn send(&mut self, attempt: AttemptNo, choice: Choice, _: Why) {
        let live =
            self.request(choice).map_or(Live::Unsent, |request| Live::Asking(self.shared.client.request(request)));
        self.live = Some((attempt, live));
    }

    fn abort(&mut self, _: AttemptNo) {
        self.live = None;
    }

    fn notice(&mut self, notice: &Notice) {
        eprintln!("{}: {}", self.asked.name, notice.what.code());
    }

    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Input> {
        let mut place = lock(&self.place);
        if let Some(granted) = place.0.take() {
            return Poll::Ready(granted);
        }
        place.1 = Some(cx.waker().clone());
        drop(place);
        let Some((attempt, live)) = &mut self.live else { return Poll::Pending };
        let attempt = *attempt;
        let input = match live {
            Live::Unsent => Input::Fault { attempt, fault: Fault::Connect },
            Live::Asking(asking) => match ready!(Pin::new(asking).poll(cx)) {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let relevant = head.headers.iter().filter(|(name, _)| is_relevant_header(name.as_str()));
                    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into();
                    let headers = relevant.map(|(name, value)| (name.as_str().into(), text(value))).collect();
                    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    let unix_ms = since.as_millis() as u64;
                    let told = Head { status: head.status.as_u16(), headers, unix_ms };
                    self.heads.push((attempt, head));
                    self.live = Some((attempt, Live::Reading(body)));
                    Input::Head { attempt, head: told }
                }
                Err(error) if error.is_connect() => Input::Fault { attempt, fault: Fault::Connect },
                Err(_) => Input::Fault { attempt, fault: Fault::Reset },
            },
            Live::Reading(body) => match ready!(Pin::new(body).poll_frame(cx)) {
                Some(Ok(frame)) => Input::Chunk { attempt, bytes: frame.into_data().unwrap_or_default() },
                Some(Err(_)) => Input::Fault { attempt, fault: Fault::Reset },
                None => Input::End { attempt },
            },
        };
        if matches!(input, Input::End { .. } | Input::Fault { .. }) {
            self.live = None;
        }
        Poll::Ready(input)
    }

    fn poll_sleep(&mut self, cx: &mut Context<'_>, until: Time) -> Poll<()> {
        let until = self.shared.began + Duration::from_micros(until.0.min(self.shared.now().0 + (1 << 40)));
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if sleep.deadline() != until {
            sleep.as_mut().reset(until);
        }
        sleep.as_mut().poll(cx)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: axum-service GATEWAY.json [ADDR]")?;
    let tree = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let config = Arc::new(config::read(&tree, &|name| std::env::var(name).ok()).map_err(|found| format!("{found:?}"))?);
    let mut pool = Pool::new(pool_settings(&config));
    let gateway = Gateway::build(config.clone(), &Inventory::new(&config, Time::ZERO), &mut pool);
    let client = Client::builder(TokioExecutor::new()).build_http();
    let pool = Mutex::new((pool, HashMap::new()));
    let surefoot =
        Surefoot(Arc::new(Shared { gateway, pool, client, began: Instant::now(), calls: AtomicU64::new(1) }));
    let app =
        Router::new().route("/hello", get(|| async { "hello from the application\n" })).fallback_service(surefoot);
    let listener = tokio::net::TcpListener::bind(arguments.next().as_deref().unwrap_or("127.0.0.1:4000")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
