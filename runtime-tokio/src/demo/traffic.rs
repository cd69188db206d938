//! The show's client: asks the gateway over a real socket, as any client would.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, header};
use hyper_util::client::proxy::matcher::Matcher;
use tokio::time::Instant;

use crate::upstream::{Connector, Exchange, News, Order, Origin, Upstream, Upstreams};

/// What a client got.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) number: u64,
    pub(super) stream: bool,
    /// The status; 0 = no answer.
    pub(super) status: u16,
    /// Whether the answer was whole and had content.
    pub(super) good: bool,
    pub(super) took: Duration,
    pub(super) request: String,
    pub(super) source: String,
    pub(super) attempts: u64,
}

/// A client of the gateway.
#[derive(Clone, Debug)]
pub(super) struct Client {
    gateway: Option<Arc<Upstream>>,
}

impl Client {
    pub(super) fn new(gateway: SocketAddr) -> Client {
        // Straight to this machine, whatever proxy the environment names.
        let upstreams = Upstreams::new(Connector::new(Matcher::builder().build()));
        let origin = format!("http://{gateway}/").parse().ok().and_then(|url| Origin::of(&url));
        Client { gateway: origin.map(|origin| upstreams.get(origin)) }
    }

    /// Asks once.
    pub(super) async fn ask(&self, number: u64, stream: bool) -> Answered {
        let begun = Instant::now();
        let mut answered = Answered {
            number,
            stream,
            status: 0,
            good: false,
            took: Duration::ZERO,
            request: String::new(),
            source: String::new(),
            attempts: 0,
        };
        if let Some(gateway) = self.gateway.clone() {
            let body = read(Exchange::start(gateway, order(stream)), &mut answered).await;
            answered.good = body.is_some_and(|body| is_good(answered.status, stream, &body));
        }
        answered.took = begun.elapsed();
        answered
    }
}

fn order(stream: bool) -> Order {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let body = format!(r#"{{"model":"demo","stream":{stream},"messages":[{{"role":"user","content":"Hi"}}]}}"#);
    Order {
        method: Method::POST,
        target: http::Uri::from_static("/v1/chat/completions"),
        headers,
        body: Bytes::from(body),
        connect: Some(Duration::from_secs(5)),
        inspect: true,
    }
}

/// The body; `None` if it broke.
async fn read(mut exchange: Exchange, answered: &mut Answered) -> Option<Bytes> {
    let mut body = BytesMut::new();
    loop {
        match poll_fn(|cx| exchange.poll(cx)).await {
            News::Head(head) => {
                let text =
                    |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
                answered.status = head.status.as_u16();
                answered.request = text("x-request-id").to_owned();
                answered.source = text("x-surefoot-source").to_owned();
                answered.attempts = text("x-surefoot-attempts").parse().unwrap_or(0);
            }
            News::Chunk(bytes) => body.extend_from_slice(&bytes),
            News::End => return Some(body.freeze()),
            News::Fault(_) => return None,
        }
    }
}

fn is_good(status: u16, stream: bool, body: &[u8]) -> bool {
    let has = |text: &str| memchr::memmem::find(body, text.as_bytes()).is_some();
    status == 200 && has("\"content\":\"") && (!stream || has("[DONE]")) && !has("stream_incomplete")
}
