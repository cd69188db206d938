//! Exchanges over real sockets with a peer, in a thread of its own, that says what it is told to say.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use smol::Timer;
use smol::future::or;
use surefoot_core::event::Fault;
use surefoot_runtime::upstream::{News, Order, Origin};

use super::{Connector, Proxies};
use crate::executor::Tasks;
use crate::reactor::Smol;

type Upstream = surefoot_runtime::upstream::Upstream<Smol>;
type Upstreams = surefoot_runtime::upstream::Upstreams<Smol>;
type Exchange = surefoot_runtime::upstream::Exchange<Smol>;

fn upstreams(proxies: Proxies) -> Upstreams {
    Upstreams::new(Smol::new(Tasks::default(), Connector::new(proxies)))
}

fn to(url: &str) -> Arc<Upstream> {
    upstreams(Proxies::default()).get(Origin::of(&url.parse().unwrap()).unwrap())
}

fn listener() -> (TcpListener, Arc<Upstream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = to(&format!("http://user:pw@{}/v1", listener.local_addr().unwrap()));
    (listener, upstream)
}

fn order(inspect: bool) -> Order {
    Order {
        method: Method::POST,
        target: "/v1/chat/completions?a=b".parse().unwrap(),
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{}"),
        connect: Some(Duration::from_secs(2)),
        inspect,
    }
}

/// Reads one request of [`order`] and returns its head; `None` when there comes none.
fn request(peer: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n{}") {
        let mut byte = [0];
        peer.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(String::from_utf8(head).unwrap())
}

/// Serves each connection in turn: one answer, in its pieces, for every request. Gives the heads, one list a connection.
fn peer(listener: TcpListener, connections: usize, answer: &'static [&'static [u8]]) -> JoinHandle<Vec<Vec<String>>> {
    thread::spawn(move || {
        let serve = |_| {
            let mut stream = listener.accept().unwrap().0;
            stream.set_nodelay(true).unwrap();
            let mut heads = Vec::new();
            while let Some(head) = request(&mut stream) {
                heads.push(head);
                for piece in answer {
                    stream.write_all(piece).unwrap();
                    thread::sleep(Duration::from_millis(2));
                }
            }
            heads
        };
        (0..connections).map(serve).collect()
    })
}

/// A peer that answers each connection's first request with the bytes and closes.
fn answering(listener: TcpListener, connections: usize, answer: &'static [u8]) -> JoinHandle<()> {
    thread::spawn(move || {
        for _ in 0..connections {
            let mut stream = listener.accept().unwrap().0;
            request(&mut stream).unwrap();
            stream.write_all(answer).unwrap();
        }
    })
}

/// What came: the status, the body, and how it ended.
fn told(exchange: &mut Exchange) -> (u16, Vec<u8>, Option<Fault>) {
    let come = async {
        let (mut status, mut body) = (0, Vec::new());
        loop {
            match poll_fn(|cx| exchange.poll(cx)).await {
                News::Head(head) => status = head.status.as_u16(),
                News::Chunk(bytes) => body.extend_from_slice(&bytes),
                News::End => return (status, body, None),
                News::Fault(fault) => return (status, body, Some(fault)),
            }
        }
    };
    let late = async {
        Timer::after(Duration::from_secs(10)).await;
        panic!("nothing came for 10 s")
    };
    smol::block_on(or(come, late))
}

#[test]
fn a_request_names_its_host_without_credentials_and_the_answer_comes_whole() {
    let (listener, upstream) = listener();
    let address = listener.local_addr().unwrap();
    let peer = peer(
        listener,
        1,
        &[b"HTTP/1.1 103 Early Hints\r\na: b\r\n\r\nHTTP/1.1 200 OK\r\ncontent-le", b"ngth: 5\r\n\r\nhel", b"lo"],
    );
    let mut exchange = Exchange::start(upstream.clone(), order(true));
    assert_eq!(told(&mut exchange), (200, b"hello".to_vec(), None));
    drop((exchange, upstream));
    let head = peer.join().unwrap().remove(0).remove(0);
    assert!(head.starts_with("POST /v1/chat/completions?a=b HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("host: {address}\r\n")) && head.contains("content-length: 2\r\n"), "{head}");
    assert!(!head.contains("user") && !head.contains("pw@"), "{head}");
}

#[test]
fn every_break_has_its_fault() {
    let cases: [(&[u8], Fault); 10] = [
        (b"", Fault::Reset),
        (b"HTTP/1.1 2", Fault::Reset),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Fault::Protocol),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", Fault::Protocol),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", Fault::Reset),
        (b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\nshort", Fault::Protocol),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", Fault::Reset),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n", Fault::Protocol),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 2\r\n\r\nxx", Fault::Coding),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nxx", Fault::Coding),
    ];
    for (answer, fault) in cases {
        let (listener, upstream) = listener();
        let peer = answering(listener, 1, answer);
        let found = told(&mut Exchange::start(upstream, order(true)));
        assert_eq!(found.2, Some(fault), "{}", String::from_utf8_lossy(answer));
        peer.join().unwrap();
    }
}

#[test]
fn the_connections_end_is_an_answers_end_where_nothing_else_says_it() {
    let (listener, upstream) = listener();
    let peer = answering(listener, 1, b"HTTP/1.0 200 OK\r\n\r\nall of it");
    assert_eq!(told(&mut Exchange::start(upstream.clone(), order(true))), (200, b"all of it".to_vec(), None));
    assert_eq!(upstream.kept(), 0);
    peer.join().unwrap();
}

#[test]
fn connections_are_used_again_and_only_for_whole_requests() {
    let (listener, upstream) = listener();
    let peer = peer(listener, 1, &[b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n", b"0\r\n\r\n"]);
    for _ in 0..5 {
        assert_eq!(told(&mut Exchange::start(upstream.clone(), order(true))), (200, b"ok".to_vec(), None));
        assert_eq!(upstream.kept(), 1);
    }
    drop(upstream);
    assert_eq!(peer.join().unwrap()[0].len(), 5);
}

#[test]
fn a_connection_is_not_kept_when_either_side_is_not_done_with_it() {
    let cases: [&[u8]; 3] = [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok and more",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ];
    for answer in cases {
        let (listener, upstream) = listener();
        let peer = answering(listener, 1, answer);
        assert_eq!(told(&mut Exchange::start(upstream.clone(), order(true))), (200, b"ok".to_vec(), None));
        assert_eq!(upstream.kept(), 0, "{}", String::from_utf8_lossy(answer));
        peer.join().unwrap();
    }
}

#[test]
fn a_kept_connection_that_was_closed_is_not_used() {
    let (listener, upstream) = listener();
    let (close, closed) = std::sync::mpsc::channel();
    let peer = thread::spawn(move || {
        for _ in 0..4 {
            let mut stream = listener.accept().unwrap().0;
            request(&mut stream).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
            drop(stream);
            close.send(()).unwrap();
        }
    });
    for _ in 0..4 {
        assert_eq!(told(&mut Exchange::start(upstream.clone(), order(true))), (200, b"ok".to_vec(), None));
        closed.recv().unwrap();
    }
    peer.join().unwrap();
}

/// F2: an upstream in trouble often closes behind its answer without a word. A retry that follows at once must not be
/// written into that connection.
#[test]
fn a_connection_that_brought_trouble_is_not_used_again_at_once() {
    let (listener, upstream) = listener();
    let peer = thread::spawn(move || {
        for answer in [&b"HTTP/1.1 503 x\r\ncontent-length: 0\r\n\r\n"[..], b"HTTP/1.1 204 No Content\r\n\r\n"] {
            let mut stream = listener.accept().unwrap().0;
            request(&mut stream).unwrap();
            stream.write_all(answer).unwrap();
            // Whatever is written here now is lost: closing comes too late to be seen by an immediate retry.
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(20));
                drop(stream);
            });
        }
    });
    assert_eq!(told(&mut Exchange::start(upstream.clone(), order(true))), (503, vec![], None));
    assert_eq!(upstream.kept(), 1);
    assert_eq!(told(&mut Exchange::start(upstream, order(true))), (204, vec![], None));
    peer.join().unwrap();
}

/// A server that will not have the body answers before it has read it, and closes.
#[test]
fn an_answer_that_comes_before_the_request_is_sent_counts() {
    let (listener, upstream) = listener();
    let peer = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut some = [0; 4096];
        let _ = stream.read(&mut some).unwrap();
        stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig").unwrap();
        // Kept open: what is decisive is that nobody waits for the rest of the request.
        stream
    });
    let large = Order { body: Bytes::from(vec![b'x'; 32 << 20]), ..order(true) };
    assert_eq!(told(&mut Exchange::start(upstream.clone(), large)), (413, b"big".to_vec(), None));
    assert_eq!(upstream.kept(), 0);
    drop(peer.join().unwrap());
}

#[test]
fn a_dropped_exchange_closes_its_connection() {
    let (listener, upstream) = listener();
    let peer = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        request(&mut stream).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n").unwrap();
        stream.read(&mut [0; 8])
    });
    let mut exchange = Exchange::start(upstream.clone(), order(true));
    assert!(matches!(smol::block_on(poll_fn(|cx| exchange.poll(cx))), News::Head(_)));
    drop(exchange);
    assert!(matches!(peer.join().unwrap(), Ok(0) | Err(_)));
    assert_eq!(upstream.kept(), 0);
}

#[test]
fn a_refused_connection_is_told_as_one_and_the_next_address_is_tried() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // `localhost` may be ::1 first: nobody listens there.
    let peer = answering(listener, 1, b"HTTP/1.1 204 No Content\r\n\r\n");
    let upstream = to(&format!("http://localhost:{port}/"));
    assert_eq!(told(&mut Exchange::start(upstream.clone(), order(true))).0, 204);
    peer.join().unwrap();
    assert_eq!(told(&mut Exchange::start(upstream, order(true))).2, Some(Fault::Connect));
}

#[test]
fn a_plain_proxy_gets_the_whole_url_and_its_own_credentials() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://pat:secret@{}", proxy.local_addr().unwrap());
    let upstreams = upstreams(Proxies::new(&url, "", "127.0.0.2"));
    let upstream = upstreams.get(Origin::of(&"http://api.example.com/v1".parse().unwrap()).unwrap());
    let peer = peer(proxy, 1, &[b"HTTP/1.1 204 No Content\r\n\r\n"]);
    assert_eq!(told(&mut Exchange::start(upstream.clone(), order(true))).0, 204);
    drop((upstream, upstreams));
    let head = peer.join().unwrap().remove(0).remove(0);
    assert!(head.starts_with("POST http://api.example.com/v1/chat/completions?a=b HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("host: api.example.com\r\n") && head.contains("proxy-authorization: Basic "), "{head}");
}

#[test]
fn a_proxy_that_will_not_connect_is_a_failed_connection_and_one_that_will_is_spoken_tls_through() {
    for (answer, fault) in [("HTTP/1.1 407 No\r\n\r\n", Fault::Connect), ("HTTP/1.1 200 Yes\r\n\r\nno TLS", Fault::Tls)]
    {
        let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
        let upstreams = upstreams(Proxies::new("", &format!("http://{}", proxy.local_addr().unwrap()), ""));
        let upstream = upstreams.get(Origin::of(&"https://api.example.com/v1".parse().unwrap()).unwrap());
        let peer = thread::spawn(move || {
            let mut stream = proxy.accept().unwrap().0;
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(head).unwrap()
        });
        assert_eq!(told(&mut Exchange::start(upstream, order(true))).2, Some(fault), "{answer}");
        let head = peer.join().unwrap();
        assert!(head.starts_with("CONNECT api.example.com:443 HTTP/1.1\r\nhost: api.example.com:443\r\n"), "{head}");
    }
}
