//! The server's side of HTTP/1.1 over real sockets, with a responder that does what the path says.

use std::convert::Infallible;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use smol::Async;
use smol::future::poll_fn;
use surefoot_runtime::http1::Incoming;
use surefoot_runtime::serve::Respond;
use surefoot_runtime::serve::body::AnswerBody;
use surefoot_runtime::serve::lifecycle::{Lifecycle, Presence, Stage};

use super::accept::accept;
use crate::executor::Tasks;
use crate::socket::Socket;

/// Answers by path: `/echo` the body, `/pieces` in chunks, `/torn` breaks off, `/short` promises more than it sends,
/// `/never` not at all, everything else a word without having read the body.
#[derive(Clone, Default)]
struct Script {
    /// Requests that were begun.
    begun: Arc<AtomicUsize>,
    /// Answers that were dropped before they were done.
    left: Arc<AtomicUsize>,
}

struct Noticed(Arc<AtomicUsize>);

impl Drop for Noticed {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct Pieces(Vec<io::Result<&'static str>>, bool);

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.0.is_empty() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(self.0.remove(0).map(|piece| Frame::data(Bytes::from_static(piece.as_bytes())))))
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.0.iter().map(|piece| piece.as_ref().map_or(0, |piece| piece.len() as u64)).sum();
        if self.1 { SizeHint::with_exact(length) } else { SizeHint::default() }
    }
}

impl AnswerBody for Pieces {}

impl Respond<Incoming<Socket>> for Script {
    type Body = Pieces;

    fn respond(
        &self,
        request: Request<Incoming<Socket>>,
        presence: Arc<Presence>,
    ) -> impl Future<Output = Response<Pieces>> + Send + 'static {
        self.begun.fetch_add(1, Ordering::SeqCst);
        answer(self.left.clone(), request, presence)
    }

    fn refuse(&self, status: StatusCode, message: &'static str, path: &str) -> Response<Pieces> {
        let mut response =
            Response::new(Pieces(vec![Ok(message), Ok(if path.is_empty() { "" } else { " (known)" })], true));
        *response.status_mut() = status;
        response
    }

    fn client_stall(&self) -> Option<Duration> {
        None
    }
}

async fn answer(
    left: Arc<AtomicUsize>,
    request: Request<Incoming<Socket>>,
    presence: Arc<Presence>,
) -> Response<Pieces> {
    let _busy = presence.begin();
    let (parts, mut body) = request.into_parts();
    match parts.uri.path() {
        "/echo" => {
            let mut all = Vec::new();
            while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                all.extend_from_slice(&frame.unwrap().into_data().unwrap());
            }
            let text: &'static str = String::from_utf8(all).unwrap().leak();
            Response::new(Pieces(vec![Ok(text)], true))
        }
        "/pieces" => Response::new(Pieces(vec![Ok("one"), Ok("two")], false)),
        "/torn" => Response::new(Pieces(vec![Ok("one"), Err(io::ErrorKind::Other.into())], false)),
        "/short" => {
            let mut response = Response::new(Pieces(vec![Ok("one")], false));
            response.headers_mut().insert("content-length", 9.into());
            response
        }
        "/never" => {
            let _noticed = Noticed(left);
            std::future::pending::<Infallible>().await;
            unreachable!()
        }
        _ => Response::new(Pieces(vec![Ok("word")], true)),
    }
}

struct Served {
    address: SocketAddr,
    life: Arc<Lifecycle>,
    script: Script,
    stop: Option<smol::channel::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

fn serve() -> Served {
    let (life, script) = (Arc::new(Lifecycle::default()), Script::default());
    let (stop, stopped) = smol::channel::bounded::<()>(1);
    let (told, address) = mpsc::channel();
    let thread = thread::spawn({
        let (life, script) = (life.clone(), script.clone());
        move || {
            let tasks = Tasks::default();
            let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0)).unwrap();
            told.send(listener.get_ref().local_addr().unwrap()).unwrap();
            let accepting = tasks.spawn(accept(listener, life, script, tasks.clone()));
            let _ = tasks.run(async { stopped.recv().await }).unwrap();
            drop(accepting);
        }
    });
    Served { address: address.recv().unwrap(), life, script, stop: Some(stop), thread: Some(thread) }
}

impl Served {
    fn client(&self) -> TcpStream {
        let client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        client
    }

    /// What comes for `request` until the server closes.
    fn all(&self, request: &str) -> String {
        let mut client = self.client();
        client.write_all(request.as_bytes()).unwrap();
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        without_dates(&all)
    }
}

fn without_dates(bytes: &[u8]) -> String {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    text.split_inclusive('\n').filter(|line| !line.starts_with("date: ")).collect()
}

/// Reads until there is what is expected, dates left out, or more than that.
fn expect(client: &mut TcpStream, expected: &str) {
    let mut all = Vec::new();
    while without_dates(&all) != expected
        && all.len() < expected.len() + "date: Thu, 01 Jan 1970 00:00:00 GMT\r\n".len()
    {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        all.push(byte[0]);
    }
    assert_eq!(without_dates(&all), expected);
}

/// Whether a counter gets there within ten seconds.
fn reaches(counter: &AtomicUsize, count: usize) -> bool {
    (0..1000).any(|_| {
        let there = counter.load(Ordering::SeqCst) == count;
        if !there {
            thread::sleep(Duration::from_millis(10));
        }
        there
    })
}

#[test]
fn requests_on_one_connection_are_answered_in_order_even_sent_at_once() {
    let served = serve();
    let answers = served.all(
        "POST /echo HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc\
         POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nde\r\n1\r\nf\r\n0\r\n\r\n\
         GET /pieces HTTP/1.1\r\n\r\n\
         HEAD /word HTTP/1.1\r\n\r\n\
         GET /word HTTP/1.1\r\nconnection: close\r\n\r\n",
    );
    assert_eq!(
        answers,
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc\
         HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\ndef\
         HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n\
         HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\
         HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nword"
    );
}

#[test]
fn an_old_client_gets_the_connections_end_for_an_answers_end() {
    let served = serve();
    assert_eq!(served.all("GET /pieces HTTP/1.0\r\n\r\n"), "HTTP/1.0 200 OK\r\nconnection: close\r\n\r\nonetwo");
    let kept = "GET /word HTTP/1.0\r\nconnection: keep-alive\r\n\r\nGET /word HTTP/1.0\r\n\r\n";
    let answer = |close| format!("HTTP/1.0 200 OK\r\ncontent-length: 4\r\nconnection: {close}\r\n\r\nword");
    assert_eq!(served.all(kept), answer("keep-alive") + &answer("close"));
}

#[test]
fn what_is_no_request_is_told_so_and_the_connection_ends() {
    let served = serve();
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(70_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(300));
    let unclear = "POST /echo HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabc";
    let cases = [
        ("GET\r\n\r\n", "400", "the request's head cannot be read as HTTP/1.1"),
        (unclear, "400", "the request's head cannot be read as HTTP/1.1 (known)"),
        (&long, "414", "the request's target is longer than 64 KiB"),
        (&many, "431", "the request's head is longer than 256 KiB, or has more than 256 headers"),
    ];
    for (request, status, message) in cases {
        let answer = served.all(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        let end = format!("content-length: {}\r\nconnection: close\r\n\r\n{message}", message.len());
        assert!(answer.ends_with(&end), "{answer}");
    }
}

#[test]
fn a_client_that_asks_first_is_invited_when_its_body_is_wanted_and_only_then() {
    let served = serve();
    let mut client = served.client();
    client.write_all(b"POST /echo HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n").unwrap();
    expect(&mut client, "HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"hi").unwrap();
    expect(&mut client, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
    client.write_all(b"POST /word HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n").unwrap();
    expect(&mut client, "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nword");
}

/// The answer comes before the body was read; it must survive the connection's end.
#[test]
fn an_answer_to_a_body_that_nobody_reads_arrives() {
    let served = serve();
    let body = "x".repeat(2 << 20);
    let mut client = served.client();
    client.write_all(format!("POST /word HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes()).unwrap();
    // Whether all of it can still be sent does not matter.
    let _ = client.write_all(body.as_bytes());
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    assert!(without_dates(&all).ends_with("connection: close\r\n\r\nword"));
}

#[test]
fn a_broken_answer_is_not_ended_as_if_it_were_whole() {
    let served = serve();
    let torn = served.all("GET /torn HTTP/1.1\r\n\r\n");
    assert_eq!(torn, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n");
    let short = served.all("GET /short HTTP/1.1\r\n\r\n");
    assert_eq!(short, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\none");
}

/// X4.
#[test]
fn an_answer_is_dropped_when_its_client_is_gone() {
    let served = serve();
    let mut client = served.client();
    client.write_all(b"GET /never HTTP/1.1\r\n\r\n").unwrap();
    assert!(reaches(&served.script.begun, 1));
    assert_eq!(served.script.left.load(Ordering::SeqCst), 0);
    drop(client);
    assert!(reaches(&served.script.left, 1), "the answer is still awaited");
}

/// X4: bytes behind the request hide nothing, be they a stray line end or another request.
#[test]
fn a_client_that_leaves_is_noticed_behind_what_it_sent_ahead() {
    for ahead in ["\r\n", "GET /word HTTP/1.1\r\n\r\n"] {
        let served = serve();
        let mut client = served.client();
        client.write_all(format!("GET /never HTTP/1.1\r\n\r\n{ahead}").as_bytes()).unwrap();
        assert!(reaches(&served.script.begun, 1));
        drop(client);
        assert!(reaches(&served.script.left, 1), "the answer is still awaited behind {ahead:?}");
    }
}

/// An old client sees a torn answer as an error: the connection's end would say that it was whole.
#[test]
fn a_torn_answer_without_framing_ends_in_a_reset() {
    let served = serve();
    let mut client = served.client();
    client.write_all(b"GET /torn HTTP/1.0\r\n\r\n").unwrap();
    let mut all = Vec::new();
    let error = client.read_to_end(&mut all).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

/// M10.
#[test]
fn draining_closes_what_rests_and_lets_what_runs_finish() {
    let served = serve();
    let (mut resting, mut running) = (served.client(), served.client());
    resting.write_all(b"GET /word HTTP/1.1\r\n\r\n").unwrap();
    expect(&mut resting, "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nword");
    running.write_all(b"POST /echo HTTP/1.1\r\ncontent-length: 2\r\n\r\nh").unwrap();
    assert!(reaches(&served.script.begun, 2));
    served.life.enter(Stage::Draining);
    assert_eq!(resting.read(&mut [0]).unwrap(), 0);
    running.write_all(b"i").unwrap();
    expect(&mut running, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi");
    assert_eq!(running.read(&mut [0]).unwrap(), 0);
    smol::block_on(served.life.empty());
}
