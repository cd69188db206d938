//! One connection of a client: requests one after the other, until it is idle for too long, or the server goes.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version, header};

use super::incoming::SharedInput;
use super::{
    Framing, Incoming, Malformed, Out, RequestHead, Socket, encode_response, frame_chunk, request_framing, wants_close,
};
use crate::reactor::{Alarm, Timer, timeout};
use crate::serve::body::AnswerBody;
use crate::serve::lifecycle::{Lifecycle, Presence, Stage};
use crate::serve::patience::Patience;
use crate::serve::{CLIENT_IDLE, Respond};

/// An answer's bytes that may wait for the client before more of it is asked for.
const MAX_WAITING: usize = 16 << 10;
/// Rounds of asking and writing that an answer makes in one go.
const MAX_ROUNDS: usize = 16;
/// A client that still sends when its connection is closed has this long to read its answer: closing at once would tear
/// that away from it.
const LINGER: Duration = Duration::from_secs(1);

/// Serves a client's connection to its end.
pub async fn serve<S: Socket, T: Timer, R: Respond<Incoming<S>>>(socket: S, life: Arc<Lifecycle>, responder: R) {
    let present = life.join();
    let presence = present.presence().clone();
    let mut connection = Connection::<S, T> {
        input: SharedInput::new(socket),
        patience: Patience::new(presence.clone(), responder.client_stall()),
        out: Out::default(),
        life,
        presence,
        seen: None,
    };
    connection.run(&responder).await;
}

struct Connection<S, T> {
    input: SharedInput<S>,
    out: Out,
    patience: Patience<T>,
    life: Arc<Lifecycle>,
    presence: Arc<Presence>,
    /// The stage at the last look.
    seen: Option<Stage>,
}

/// How an exchange left its connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Left {
    /// At rest, for the next request.
    Open,
    /// To be closed behind what was sent.
    Closing,
    /// Gone.
    Gone,
}

impl<S: Socket, T: Timer> Connection<S, T> {
    async fn run(&mut self, responder: &impl Respond<Incoming<S>>) {
        let left = loop {
            let left = match self.head().await {
                None => return,
                Some(Err(malformed)) => self.refuse(malformed, &Method::GET, "", responder).await,
                Some(Ok(head)) => self.exchange(head, responder).await,
            };
            match left {
                Left::Open if self.life.stage() == Stage::Running => {}
                left => break left,
            }
        };
        if left == Left::Gone {
            return;
        }
        // What the client still sends is read away: unread, it would make the kernel reset the connection and take the
        // answer with it.
        let closed = self.input.lock().socket.close_write();
        if closed.is_ok() && !self.input.lock().is_at_rest() {
            let input = &self.input;
            let _ = timeout::<T, _>(LINGER, poll_fn(|cx| input.lock().poll_away(cx))).await;
        }
    }

    /// Has this task woken at the next change of the server's stage.
    fn watch(&mut self, cx: &Context<'_>) -> Stage {
        // Woken once for each stage: listen again for the next. Before the look: a change between them is seen.
        if self.seen != Some(Stage::Running) {
            self.presence.listen(cx.waker());
        }
        let stage = self.life.stage();
        if self.seen == Some(Stage::Running) && stage != Stage::Running {
            self.presence.listen(cx.waker());
        }
        self.seen = Some(stage);
        stage
    }

    /// The next request's head; `None` when the connection is over.
    async fn head(&mut self) -> Option<Result<RequestHead, Malformed>> {
        let (mut idle, until) = (Alarm::<T>::default(), Instant::now() + CLIENT_IDLE);
        poll_fn(|cx| {
            let stage = self.watch(cx);
            let mut input = self.input.lock();
            if let Poll::Ready(head) = input.poll_head(cx) {
                return Poll::Ready(head);
            }
            if stage == Stage::Cutting || (stage == Stage::Draining && !input.has_begun()) {
                return Poll::Ready(None);
            }
            idle.poll(cx, until).map(|()| None)
        })
        .await
    }

    /// Answers what is no request, as far as is known to `path`.
    async fn refuse(
        &mut self,
        malformed: Malformed,
        method: &Method,
        path: &str,
        responder: &impl Respond<Incoming<S>>,
    ) -> Left {
        // Where the next request would begin is not known.
        self.input.lock().begin_body(Framing::Close, false);
        let response = responder.refuse(malformed.status(), malformed.message(), path);
        self.reply(response, method, Version::HTTP_11, false).await
    }

    async fn exchange(&mut self, head: RequestHead, responder: &impl Respond<Incoming<S>>) -> Left {
        let framing = match request_framing(&head) {
            Ok(framing) => framing,
            Err(malformed) => return self.refuse(malformed, &head.method, head.uri.path(), responder).await,
        };
        let expects = head
            .headers
            .get(header::EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        self.input.lock().begin_body(framing, expects && head.version == Version::HTTP_11);
        let keep = !wants_close(head.version, &head.headers);
        let (method, version) = (head.method.clone(), head.version);
        let mut request = Request::new(Incoming(self.input.clone()));
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (head.method, head.uri, head.headers);
        *request.version_mut() = version;
        let response = {
            let mut answering = pin!(responder.respond(request, self.presence.clone()));
            poll_fn(|cx| {
                self.watch(cx);
                if let Poll::Ready(response) = answering.as_mut().poll(cx) {
                    return Poll::Ready(Some(response));
                }
                // Dropping the answer is how a call hears that its client is gone.
                self.input.lock().poll_gone(cx).map(|()| None)
            })
            .await
        };
        match response {
            Some(response) => self.reply(response, &method, version, keep).await,
            None => Left::Gone,
        }
    }

    async fn reply<B>(&mut self, response: Response<B>, method: &Method, version: Version, keep: bool) -> Left
    where
        B: AnswerBody,
    {
        let (parts, body) = response.into_parts();
        let (framing, has_body) = framing(&parts.headers, parts.status, method, version, body.size_hint().exact());
        let unread = !self.input.lock().is_at_rest();
        let close = !keep
            || unread
            || framing == Some(Framing::Close)
            || self.life.stage() != Stage::Running
            || wants_close(Version::HTTP_11, &parts.headers);
        self.push_head(parts.status, version, &parts.headers, framing, close);
        // The body may take long.
        drop(parts);
        let mut sending = Sending { framing: framing.unwrap_or(Framing::Length(0)), sent: 0, state: State::More };
        if !has_body {
            sending.state = State::Whole;
        }
        let mut body = pin!(body);
        let sent = poll_fn(|cx| self.poll_reply(cx, body.as_mut(), &mut sending)).await;
        match (sent, sending.state) {
            (Ok(()), State::Whole) if close => Left::Closing,
            (Ok(()), State::Whole) => Left::Open,
            // Where the connection's end is the body's, an orderly end would make a torn body a whole one.
            _ if framing == Some(Framing::Close) => {
                self.input.lock().socket.break_off();
                Left::Gone
            }
            _ => Left::Gone,
        }
    }

    /// Sends an answer. Ready when all of it is sent, or as much as there will be.
    fn poll_reply<B>(
        &mut self,
        cx: &mut Context<'_>,
        mut body: Pin<&mut B>,
        sending: &mut Sending,
    ) -> Poll<std::io::Result<()>>
    where
        B: AnswerBody,
    {
        self.watch(cx);
        for round in 1.. {
            // Others want their turn too: an upstream and a client that are both fast would never let go.
            if round > MAX_ROUNDS {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let mut pending = false;
            while sending.state == State::More && self.out.waiting() < MAX_WAITING && !pending {
                match body.as_mut().poll_frame(cx) {
                    Poll::Ready(frame) => sending.take(frame, &mut self.out),
                    Poll::Pending => pending = true,
                }
            }
            let written = self.poll_out(cx)?;
            match (written, sending.state) {
                (Poll::Ready(()), State::More) if !pending => {}
                // It took a part: there is room to ask for more, or else nobody would look at the body's timers.
                (Poll::Pending, State::More) if !pending && self.out.waiting() < MAX_WAITING => {}
                (Poll::Ready(()), State::Whole | State::Broken) => return Poll::Ready(Ok(())),
                _ => break,
            }
        }
        if sending.state == State::More && self.out.waiting() >= MAX_WAITING {
            body.as_mut().poll_blocked(cx);
        }
        // A client that left is noticed even while there is nothing to tell it.
        self.input.lock().poll_gone(cx).map(|()| Err(std::io::ErrorKind::ConnectionAborted.into()))
    }

    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let Connection { input, out, patience, .. } = self;
        if out.waiting() == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut input = input.lock();
        out.poll_write(cx, |cx, slices| {
            let written = input.socket.poll_write(cx, slices);
            patience.after_write(cx, written)
        })
    }

    fn push_head(
        &mut self,
        status: StatusCode,
        version: Version,
        headers: &HeaderMap,
        framing: Option<Framing>,
        close: bool,
    ) {
        let date = httpdate::fmt_http_date(SystemTime::now());
        self.out.push(encode_response(status, version, headers, framing, close, &date));
    }
}

/// How an answer's body is to end, and whether one is sent at all. `None`: the head says nothing but what stands in it.
fn framing(
    headers: &HeaderMap,
    status: StatusCode,
    method: &Method,
    version: Version,
    exact: Option<u64>,
) -> (Option<Framing>, bool) {
    let promised = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if matches!(status.as_u16(), 100..=199 | 204 | 304) {
        return (None, false);
    }
    let framing = match (promised.or(exact), version) {
        (Some(length), _) => Framing::Length(length),
        (None, Version::HTTP_10) => Framing::Close,
        (None, _) => Framing::Chunked,
    };
    if *method == Method::HEAD {
        // What a GET would get. An empty body says nothing of that, unless the head does.
        return (promised.or(exact.filter(|length| *length > 0)).map(Framing::Length), false);
    }
    (Some(framing), true)
}

/// An answer's body on its way.
struct Sending {
    framing: Framing,
    sent: u64,
    state: State,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// There is more to come.
    More,
    /// All of it was handed over.
    Whole,
    /// It broke off, or is not what its head promised: the connection must break as well, so that the client sees it.
    Broken,
}

impl Sending {
    fn take(&mut self, frame: Option<std::io::Result<http_body::Frame<Bytes>>>, out: &mut Out) {
        match frame {
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { return };
                self.data(data, out);
            }
            Some(Err(_)) => self.state = State::Broken,
            None => {
                if self.framing == Framing::Chunked {
                    out.push(Bytes::from_static(b"0\r\n\r\n"));
                }
                let short = matches!(self.framing, Framing::Length(length) if self.sent < length);
                self.state = if short { State::Broken } else { State::Whole };
            }
        }
    }

    fn data(&mut self, mut data: Bytes, out: &mut Out) {
        if data.is_empty() {
            return;
        }
        match self.framing {
            Framing::Length(length) => {
                let room = length - self.sent;
                if data.len() as u64 > room {
                    data.truncate(usize::try_from(room).unwrap_or(usize::MAX));
                    self.state = State::Broken;
                }
                self.sent += data.len() as u64;
                out.push(data);
            }
            Framing::Chunked => {
                out.push(frame_chunk(data.len()));
                out.push(data);
                out.push(Bytes::from_static(b"\r\n"));
            }
            Framing::Close => out.push(data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::still::StillTimer;
    use http_body::{Body, Frame};
    use std::io::IoSlice;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Waker;

    /// A client that sent one request and has room for so many bytes.
    #[derive(Debug)]
    struct Client {
        request: Option<&'static [u8]>,
        room: usize,
    }

    impl Socket for Client {
        fn poll_read(&mut self, _: &mut Context<'_>, buf: &mut [u8]) -> Poll<std::io::Result<usize>> {
            let Some(request) = self.request.take() else { return Poll::Pending };
            buf[..request.len()].copy_from_slice(request);
            Poll::Ready(Ok(request.len()))
        }

        fn poll_write(&mut self, _: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<std::io::Result<usize>> {
            if self.room == 0 {
                return Poll::Pending;
            }
            let taken = slices.iter().map(|slice| slice.len()).sum::<usize>().min(self.room);
            self.room -= taken;
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn tcp(&self) -> socket2::SockRef<'_> {
            unreachable!("it stays open")
        }
    }

    /// An answer of one large piece and much silence, which counts how it is polled.
    #[derive(Clone, Default)]
    struct Answer(Arc<(AtomicUsize, AtomicUsize)>);

    impl Body for Answer {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
            match self.0.0.fetch_add(1, Ordering::SeqCst) {
                0 => Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b'x'; 20 << 10]))))),
                _ => Poll::Pending,
            }
        }
    }

    impl AnswerBody for Answer {
        fn poll_blocked(self: Pin<&mut Self>, _: &mut Context<'_>) {
            self.0.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Respond<Incoming<Client>> for Answer {
        type Body = Answer;

        fn respond(
            &self,
            _: Request<Incoming<Client>>,
            _: Arc<Presence>,
        ) -> impl Future<Output = Response<Answer>> + Send + 'static {
            std::future::ready(Response::new(self.clone()))
        }

        fn refuse(&self, _: StatusCode, _: &'static str, _: &str) -> Response<Answer> {
            unreachable!("it is a request")
        }

        fn client_stall(&self) -> Option<Duration> {
            None
        }
    }

    /// S4: however much of an answer its client takes, the body is asked for more or for its timers.
    #[test]
    fn a_body_has_its_turn_wherever_its_client_stops() {
        for room in [0, 1000, 4000, 8 << 10, 16 << 10, 20 << 10, 40 << 10] {
            let (answer, life) = (Answer::default(), Arc::new(Lifecycle::default()));
            let client = Client { request: Some(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"), room };
            let mut serving = pin!(serve::<_, StillTimer, _>(client, life, answer.clone()));
            assert!(serving.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            let (frames, blocked) = (answer.0.0.load(Ordering::SeqCst), answer.0.1.load(Ordering::SeqCst));
            assert!(frames >= 2 || blocked >= 1, "room {room}: {frames} frames, {blocked} times blocked");
        }
    }
}
