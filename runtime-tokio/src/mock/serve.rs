//! The socket side: connections, requests, and answers played step by step.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

use super::account::Slot;
use super::ask::{Ask, Route};
use super::behaviour::Behaviour;
use super::choose::{By, Facts};
use super::compose::{Answer, Ending, Head, Step, compose};
use super::state::{Record, Seen, State};

/// Largest request body that is read, in bytes.
const MOST_BODY: usize = 64 << 20;

/// Time between the last byte and a reset: a reset may overtake bytes that the other side has not read yet.
const BEFORE_RESET: Duration = Duration::from_millis(10);

/// Serves one connection until one of the two sides ends it.
pub(super) async fn connection(stream: TcpStream, state: Arc<State>) {
    // Else small events wait for the acknowledgement of the ones before them.
    let _ = stream.set_nodelay(true);
    let line = Arc::new(Line::default());
    let wire = Wire { io: TokioIo::new(stream), line: Arc::clone(&line) };
    let service = hyper::service::service_fn({
        let line = Arc::clone(&line);
        move |request| answer(request, Arc::clone(&state), Arc::clone(&line))
    });
    let mut connection = hyper::server::conn::http1::Builder::new().serve_connection(wire, service);
    let ended = tokio::select! {
        biased;
        () = line.flushed.notified() => true,
        _ = &mut connection => false,
    };
    if ended && let Some(ending) = line.take() {
        end(connection.into_parts().io.io.into_inner(), ending).await;
    }
}

/// Ends a connection in the middle of an answer.
async fn end(mut stream: TcpStream, ending: Ending) {
    // Errors mean that the other side has left first, which is fine.
    match ending {
        Ending::Close => drop(stream.shutdown().await),
        Ending::Raw(bytes) => {
            let _ = stream.write_all(&bytes).await;
            drop(stream.shutdown().await);
        }
        Ending::Reset => {
            tokio::time::sleep(BEFORE_RESET).await;
            reset(&stream);
        }
    }
}

/// Makes the drop of `stream` a reset (RST) in place of an orderly end.
pub(super) fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// What an answer and its connection tell each other.
///
/// Hyper has no way to stop in the middle: an error of the body would drop what is still in its buffers. So the answer
/// leaves word here and says nothing more, hyper flushes, and [`Wire`] wakes the connection once everything is out.
#[derive(Debug, Default)]
struct Line {
    ending: Mutex<Option<Ending>>,
    flushed: Notify,
}

impl Line {
    fn put(&self, ending: Ending) {
        *self.ending.lock().unwrap_or_else(PoisonError::into_inner) = Some(ending);
    }

    fn take(&self) -> Option<Ending> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn asked(&self) -> bool {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// A socket that notices when hyper has written everything.
struct Wire {
    io: TokioIo<TcpStream>,
    line: Arc<Line>,
}

impl Read for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl Write for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    /// Hyper calls this on every turn, and only when its own buffer is empty.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        if flushed.is_ready() && self.line.asked() {
            self.line.flushed.notify_one();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}

/// Answers one request.
async fn answer(
    request: Request<Incoming>,
    state: Arc<State>,
    line: Arc<Line>,
) -> Result<Response<Playing>, Infallible> {
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, MOST_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => Bytes::new(),
    };
    if head.uri.path().starts_with("/_mock/") {
        let (status, text) = state.control(head.method.as_str(), head.uri.path());
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        return Ok(Playing::plain(Head { status, headers }, text.into()));
    }
    let path = head.uri.path().to_owned();
    let route = Route::of(&path);
    let form = text(&head.headers, "content-type").is_some_and(|kind| kind.starts_with("multipart/"));
    let ask = Ask::read(route, &path, form, &body);
    let seen = state.see(Record {
        number: 0,
        at_ms: state.elapsed_ms(),
        method: head.method.to_string(),
        path,
        model: ask.model.clone(),
        stream: ask.stream,
        headers: hidden(head.headers),
        body,
        by: By::Default,
        behaviour: String::new(),
        status: None,
        end: None,
    });
    let (answer, slot) = decide(route, &ask, &seen, &state);
    for step in &answer.before {
        match step {
            Step::Wait(span) => tokio::time::sleep(*span).await,
            Step::End(ending) => {
                seen.broken();
                line.put(ending.clone());
                return std::future::pending().await;
            }
            _ => return std::future::pending().await,
        }
    }
    seen.answered(answer.head.status);
    if answer.body.is_empty() {
        seen.whole();
    }
    let playing = Playing { steps: answer.body.into(), again: None, sleep: None, line, seen: Some(seen), _slot: slot };
    Ok(playing.with_head(answer.head))
}

/// Chooses the behaviour, asks the account and draws, in this order; then composes.
fn decide(route: Route, ask: &Ask, seen: &Seen, state: &State) -> (Answer, Option<Slot>) {
    let record = seen.record();
    let key = key(&record.headers);
    let facts = Facts {
        method: &record.method,
        path: &record.path,
        model: &ask.model,
        key: &key,
        header: text(&record.headers, "x-mock"),
        stream: ask.stream,
        elapsed_ms: record.at_ms,
        listing: matches!(route, Route::Models | Route::Model),
    };
    let choice = match state.choose(facts) {
        Ok(choice) => choice,
        Err(error) => {
            let mut sorry = Behaviour { status: Some(400), ..Behaviour::default() };
            sorry.error.message = Some(format!("mock: {error}"));
            seen.chosen(By::Header, &sorry);
            return (compose(route, ask, &sorry, record.number, &[]), None);
        }
    };
    let mut behaviour = choice.behaviour;
    let slot = match state.enter(&behaviour, facts) {
        Ok(slot) => slot,
        Err(refused) => {
            seen.chosen(By::Limit, &refused);
            return (compose(route, ask, &refused, record.number, &[]), None);
        }
    };
    if !state.strikes(&behaviour, choice.turn) {
        behaviour = Behaviour { text: behaviour.text, gap_ms: behaviour.gap_ms, ..Behaviour::default() };
    }
    let wrong_method = route.method().is_some_and(|method| method != record.method);
    let mistake =
        if wrong_method { Some((405, "method not allowed")) } else { ask.problem.as_deref().map(|p| (400, p)) };
    if let Some((status, problem)) = mistake.filter(|_| behaviour.is_good()) {
        behaviour.status = Some(status);
        behaviour.error.message = Some(problem.to_owned());
    }
    seen.chosen(choice.by, &behaviour);
    (compose(route, ask, &behaviour, record.number, &state.models()), slot)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The API key, wherever the protocol puts it.
fn key(headers: &HeaderMap) -> String {
    let bearer = text(headers, "authorization").map(|value| value.strip_prefix("Bearer ").unwrap_or(value));
    bearer.or(text(headers, "x-api-key")).or(text(headers, "api-key")).unwrap_or_default().to_owned()
}

/// Marks credentials, so that no debug output shows them.
fn hidden(mut headers: HeaderMap) -> HeaderMap {
    for name in ["authorization", "x-api-key", "api-key", "cookie"] {
        if let Some(value) = headers.get_mut(name) {
            value.set_sensitive(true);
        }
    }
    headers
}

/// A body that plays its steps.
struct Playing {
    steps: VecDeque<Step>,
    /// Bytes to repeat for ever.
    again: Option<(Bytes, Duration)>,
    sleep: Option<Pin<Box<Sleep>>>,
    line: Arc<Line>,
    seen: Option<Seen>,
    _slot: Option<Slot>,
}

impl Playing {
    fn plain(head: Head, body: Bytes) -> Response<Playing> {
        let steps = VecDeque::from([Step::Send(body)]);
        Playing { steps, again: None, sleep: None, line: Arc::default(), seen: None, _slot: None }.with_head(head)
    }

    fn with_head(self, head: Head) -> Response<Playing> {
        let mut response = Response::new(self);
        *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        for (name, value) in head.headers {
            // Headers are checked when a directive is read; a value like a redirect's may still be no header.
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                response.headers_mut().append(name, value);
            }
        }
        response
    }
}

impl Body for Playing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Some(sleep) = &mut self.sleep {
                std::task::ready!(sleep.as_mut().poll(cx));
                self.sleep = None;
            }
            if let Some((bytes, gap)) = self.again.clone() {
                self.sleep = Some(Box::pin(tokio::time::sleep(gap)));
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            match self.steps.pop_front() {
                Some(Step::Send(bytes)) => {
                    // Not at the end of the body: where hyper knows the length it never asks for that.
                    if let (true, Some(seen)) = (self.steps.is_empty(), &self.seen) {
                        seen.whole();
                    }
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Some(Step::Wait(span)) => self.sleep = Some(Box::pin(tokio::time::sleep_until(Instant::now() + span))),
                Some(Step::Repeat(bytes, gap)) => self.again = Some((bytes, gap)),
                Some(Step::Stall) => {
                    self.steps.push_front(Step::Stall);
                    return Poll::Pending;
                }
                Some(Step::End(ending)) => {
                    if let Some(seen) = &self.seen {
                        seen.broken();
                    }
                    self.line.put(ending);
                    self.steps.push_front(Step::Stall);
                    return Poll::Pending;
                }
                None => return Poll::Ready(None),
            }
        }
    }
}
