//! Exchanges over real sockets with a peer that says what it is told to say.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use hyper_util::client::proxy::matcher::Matcher;
use surefoot_core::event::Fault;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::reactor::Tokio;

use super::{Connector, Exchange, News, Order, Origin, Upstream, Upstreams};

fn upstreams(matcher: Matcher) -> Upstreams {
    Upstreams::new(Tokio::new(Connector::new(matcher)))
}

async fn listener() -> (TcpListener, Arc<Upstream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://user:pw@{}/v1", listener.local_addr().unwrap());
    let upstream = upstreams(Matcher::builder().build()).get(Origin::of(&url.parse().unwrap()).unwrap());
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

/// Reads one request of [`order`] and returns its head.
async fn request(peer: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n{}") {
        head.push(peer.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// What came: the status, the body, and how it ended.
async fn told(exchange: &mut Exchange) -> (u16, Vec<u8>, Option<Fault>) {
    let (mut status, mut body) = (0, Vec::new());
    loop {
        match poll_fn(|cx| exchange.poll(cx)).await {
            News::Head(head) => status = head.status.as_u16(),
            News::Chunk(bytes) => body.extend_from_slice(&bytes),
            News::End => return (status, body, None),
            News::Fault(fault) => return (status, body, Some(fault)),
        }
    }
}

/// A peer that answers each connection's first request with the bytes and closes.
fn answering(listener: TcpListener, bytes: &'static [u8]) -> JoinHandle<()> {
    tokio::spawn(async move {
        while let Ok((mut peer, _)) = listener.accept().await {
            request(&mut peer).await;
            peer.write_all(bytes).await.unwrap();
        }
    })
}

#[tokio::test]
async fn a_request_names_its_host_without_credentials_and_the_answer_comes_whole() {
    let (listener, upstream) = listener().await;
    let address = listener.local_addr().unwrap();
    let peer = tokio::spawn(async move {
        let (mut peer, _) = listener.accept().await.unwrap();
        let head = request(&mut peer).await;
        peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel").await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        peer.write_all(b"lo").await.unwrap();
        head
    });
    let mut exchange = Exchange::start(upstream, order(true));
    assert_eq!(told(&mut exchange).await, (200, b"hello".to_vec(), None));
    let head = peer.await.unwrap();
    assert!(head.starts_with("POST /v1/chat/completions?a=b HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("host: {address}\r\n")) && head.contains("content-length: 2\r\n"), "{head}");
    assert!(!head.contains("user") && !head.contains("pw@"), "{head}");
}

#[tokio::test]
async fn every_break_has_its_fault() {
    let cases: [(&[u8], Fault); 8] = [
        (b"", Fault::Reset),
        (b"HTTP/1.1 2", Fault::Reset),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Fault::Protocol),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", Fault::Reset),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", Fault::Reset),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n", Fault::Protocol),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 2\r\n\r\nxx", Fault::Coding),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nxx", Fault::Coding),
    ];
    for (answer, fault) in cases {
        let (listener, upstream) = listener().await;
        let peer = answering(listener, answer);
        let mut exchange = Exchange::start(upstream, order(true));
        let found = tokio::time::timeout(Duration::from_secs(5), told(&mut exchange)).await.unwrap();
        assert_eq!(found.2, Some(fault), "{}", String::from_utf8_lossy(answer));
        peer.abort();
    }
}

#[tokio::test]
async fn a_body_that_is_not_inspected_keeps_its_coding() {
    let (listener, upstream) = listener().await;
    answering(listener, b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nxx");
    let mut exchange = Exchange::start(upstream, order(false));
    assert_eq!(told(&mut exchange).await, (200, b"xx".to_vec(), None));
}

#[tokio::test]
async fn a_refused_connection_and_one_that_never_completes_are_told_apart() {
    let (listener, upstream) = listener().await;
    drop(listener);
    assert_eq!(told(&mut Exchange::start(upstream, order(true))).await.2, Some(Fault::Connect));

    // A full backlog: the handshake of whoever comes later is not answered.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut fillers = Vec::new();
    for _ in 0..4 {
        let filler = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        filler.set_nonblocking(true).unwrap();
        let _ = filler.connect(&address.into());
        fillers.push(filler);
    }
    let url = format!("http://{address}/").parse().unwrap();
    let upstream = upstreams(Matcher::builder().build()).get(Origin::of(&url).unwrap());
    let order = Order { connect: Some(Duration::from_millis(100)), ..order(true) };
    assert_eq!(told(&mut Exchange::start(upstream, order)).await.2, Some(Fault::ConnectTimeout));
}

/// A peer that serves any number of requests over its first connection, and counts connections.
async fn serving(listener: TcpListener, pieces: &'static [&'static [u8]]) -> usize {
    let mut connections = 0;
    let mut serving = Vec::new();
    while let Ok(Ok((mut peer, _))) = tokio::time::timeout(Duration::from_millis(300), listener.accept()).await {
        connections += 1;
        serving.push(tokio::spawn(async move {
            let mut byte = [0];
            while peer.peek(&mut byte).await.is_ok_and(|read| read > 0) {
                request(&mut peer).await;
                for piece in pieces {
                    peer.write_all(piece).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
        }));
    }
    connections
}

#[tokio::test]
async fn connections_are_used_again_one_call_after_the_other() {
    let (listener, upstream) = listener().await;
    let peer = tokio::spawn(serving(listener, &[b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", b"ok"]));
    for _ in 0..5 {
        assert_eq!(told(&mut Exchange::start(upstream.clone(), order(true))).await, (200, b"ok".to_vec(), None));
    }
    assert_eq!(upstream.kept(), 1);
    assert_eq!(peer.await.unwrap(), 1);
}

#[tokio::test]
async fn what_is_left_behind_the_end_of_a_protocol_is_read_away() {
    let (listener, upstream) = listener().await;
    const PIECES: [&[u8]; 2] = [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\n[DONE]\r\n", b"0\r\n\r\n"];
    let peer = tokio::spawn(serving(listener, &PIECES));
    for _ in 0..3 {
        let mut exchange = Exchange::start(upstream.clone(), order(true));
        assert!(matches!(poll_fn(|cx| exchange.poll(cx)).await, News::Head(_)));
        assert!(matches!(poll_fn(|cx| exchange.poll(cx)).await, News::Chunk(_)));
        exchange.release();
        tokio::time::timeout(Duration::from_secs(2), async {
            while upstream.kept() == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
    }
    assert_eq!(peer.await.unwrap(), 1);
}

#[tokio::test]
async fn a_dropped_exchange_closes_its_connection() {
    let (listener, upstream) = listener().await;
    let mut exchange = Exchange::start(upstream.clone(), order(true));
    let peer = tokio::spawn(async move {
        let (mut peer, _) = listener.accept().await.unwrap();
        request(&mut peer).await;
        peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n").await.unwrap();
        peer.read(&mut [0; 8]).await
    });
    assert!(matches!(poll_fn(|cx| exchange.poll(cx)).await, News::Head(_)));
    drop(exchange);
    assert!(matches!(peer.await.unwrap(), Ok(0) | Err(_)));
    assert_eq!(upstream.kept(), 0);
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_is_not_used() {
    let (listener, upstream) = listener().await;
    answering(listener, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    for _ in 0..4 {
        assert_eq!(told(&mut Exchange::start(upstream.clone(), order(true))).await, (200, b"ok".to_vec(), None));
        // The peer's end is seen as soon as the runtime looked at its sockets.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// As many as one look takes, in one task: tokio lets a task look at so many sockets only before it must yield.
#[tokio::test]
async fn of_many_kept_connections_that_were_closed_none_is_kept_on() {
    const MANY: usize = 200;
    let (listener, upstreams, upstream) = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstreams = upstreams(Matcher::builder().build());
        let url = format!("http://{}/v1", listener.local_addr().unwrap()).parse().unwrap();
        let upstream = upstreams.get(Origin::of(&url).unwrap());
        (listener, upstreams, upstream)
    };
    let peer = tokio::spawn(async move {
        let mut peers = Vec::new();
        for _ in 0..MANY {
            let (mut peer, _) = listener.accept().await.unwrap();
            request(&mut peer).await;
            peers.push(peer);
        }
        for peer in &mut peers {
            peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        }
        peers
    });
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..MANY {
        let upstream = upstream.clone();
        calls.spawn(async move { told(&mut Exchange::start(upstream, order(true))).await.0 });
    }
    assert!(calls.join_all().await.iter().all(|status| *status == 200));
    assert_eq!(upstream.kept(), MANY);
    drop(peer.await.unwrap());
    // The ends are seen as soon as the runtime looked at its sockets.
    tokio::time::sleep(Duration::from_millis(50)).await;
    upstreams.sweep();
    assert_eq!(upstream.kept(), 0);
}

#[tokio::test]
async fn a_plain_proxy_gets_the_whole_url_and_its_own_credentials() {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://pat:secret@{}", proxy.local_addr().unwrap());
    let upstreams = upstreams(Matcher::builder().http(url).no("127.0.0.2").build());
    let upstream = upstreams.get(Origin::of(&"http://api.example.com/v1".parse().unwrap()).unwrap());
    let peer = tokio::spawn(async move {
        let (mut peer, _) = proxy.accept().await.unwrap();
        let head = request(&mut peer).await;
        peer.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        head
    });
    assert_eq!(told(&mut Exchange::start(upstream, order(true))).await.0, 204);
    let head = peer.await.unwrap();
    assert!(head.starts_with("POST http://api.example.com/v1/chat/completions?a=b HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("host: api.example.com\r\n") && head.contains("proxy-authorization: Basic "), "{head}");
}
