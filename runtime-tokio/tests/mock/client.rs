//! A client that sees everything: bytes, chunks, and how the connection ended.

use std::io::Read as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than anything takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long nothing must come to count as silence. Too short would never fail a test, only make it weaker.
const SILENCE: Duration = Duration::from_millis(120);

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// As its framing says.
    Whole,
    /// By an orderly end of the connection before that.
    Closed,
    /// By a reset.
    Reset,
    /// Not: nothing more came.
    Silent,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: &'static str,
    path: String,
    headers: String,
    body: String,
    marker: Option<String>,
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    /// 0 where there was no head.
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) chunks: Vec<Vec<u8>>,
    pub(crate) end: End,
    pub(crate) took: Duration,
}

impl Call {
    pub(crate) fn post(path: &str, body: Value) -> Call {
        Call { method: "POST", path: path.to_owned(), headers: String::new(), body: body.to_string(), marker: None }
    }

    pub(crate) fn get(path: &str) -> Call {
        Call { method: "GET", body: String::new(), ..Call::post(path, Value::Null) }
    }

    /// A chat request, told what to do by the header.
    pub(crate) fn chat(directive: &str) -> Call {
        Call::post("/v1/chat/completions", json!({ "model": "m", "messages": [] })).header("x-mock", directive)
    }

    /// The same for a stream of any protocol.
    pub(crate) fn stream(path: &str, directive: &str) -> Call {
        Call::post(path, json!({ "model": "m", "max_tokens": 9, "stream": true })).header("x-mock", directive)
    }

    pub(crate) fn chat_stream(directive: &str) -> Call {
        Call::stream("/v1/chat/completions", directive)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Call {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub(crate) fn body(mut self, body: &str) -> Call {
        body.clone_into(&mut self.body);
        self
    }

    /// Once these bytes have come, silence is the end.
    pub(crate) fn until(mut self, marker: &str) -> Call {
        self.marker = Some(marker.to_owned());
        self
    }

    /// Opens a connection and sends; the answer is not read.
    pub(crate) async fn begin(&self, addr: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(addr).await.expect("the mock listens");
        let Call { method, path, headers, body, .. } = self;
        let length = body.len();
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: mock\r\n{headers}content-length: {length}\r\n\r\n{body}");
        // A mock that turns connections away may be gone by now; what it did is found out by reading.
        let _ = stream.write_all(request.as_bytes()).await;
        stream
    }

    pub(crate) async fn send(&self, addr: SocketAddr) -> Got {
        let start = Instant::now();
        let mut stream = self.begin(addr).await;
        let mut raw = Vec::new();
        let end = loop {
            if let Some(end) = finished(&raw) {
                break end;
            }
            let marker = self.marker.as_deref().map(str::as_bytes);
            let seen = marker.is_some_and(|marker| marker.is_empty() || raw.windows(marker.len()).any(|w| w == marker));
            match timeout(if seen { SILENCE } else { PATIENCE }, stream.read_buf(&mut raw)).await {
                Err(_) => break End::Silent,
                Ok(Ok(0)) => break End::Closed,
                Ok(Ok(_)) => {}
                Ok(Err(_)) => break End::Reset,
            }
        };
        let (head, body) = split(&raw);
        let chunked = head.contains("transfer-encoding: chunked");
        let chunks = if chunked { dechunked(body).0 } else { vec![body.to_vec()] };
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Got { status, head, chunks, end, took: start.elapsed() }
    }
}

impl Got {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.chunks.concat()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes()).expect("an answer in UTF-8")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes()).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let line = self.head.lines().find(|line| line.starts_with(&format!("{name}: ")))?;
        Some(line[name.len() + 2..].to_owned())
    }

    /// The data of the events.
    pub(crate) fn data(&self) -> Vec<String> {
        let text = self.text();
        text.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    }

    /// The data as JSON; what is none is null.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.data().iter().map(|data| serde_json::from_str(data).unwrap_or(Value::Null)).collect()
    }

    /// The types of the events, in order, those of deltas once.
    pub(crate) fn types(&self) -> Vec<String> {
        let all = self.events().into_iter().map(|event| event["type"].as_str().unwrap_or("?").to_owned());
        let mut types: Vec<String> = all.collect();
        types.dedup();
        types
    }

    pub(crate) fn gunzipped(&self) -> String {
        let mut text = String::new();
        let bytes = self.bytes();
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).expect("gzip");
        text
    }
}

fn split(raw: &[u8]) -> (String, &[u8]) {
    match raw.windows(4).position(|window| window == b"\r\n\r\n") {
        Some(at) => (String::from_utf8_lossy(&raw[..at]).into_owned(), &raw[at + 4..]),
        None => (String::from_utf8_lossy(raw).into_owned(), &[]),
    }
}

/// The end by framing, if it is there.
fn finished(raw: &[u8]) -> Option<End> {
    let (head, body) = split(raw);
    if !raw.windows(4).any(|window| window == b"\r\n\r\n") {
        return None;
    }
    if head.contains("transfer-encoding: chunked") {
        return dechunked(body).1.then_some(End::Whole);
    }
    if head.starts_with("HTTP/1.1 204") {
        return Some(End::Whole);
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse::<usize>().ok()?;
    (body.len() >= length).then_some(End::Whole)
}

/// The chunks so far, and whether the last one has come.
fn dechunked(mut body: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let mut chunks = Vec::new();
    while let Some(at) = body.windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&body[..at]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        match (size, &body[at + 2..]) {
            (Some(0), _) => return (chunks, true),
            (Some(size), rest) if rest.len() >= size + 2 => {
                chunks.push(rest[..size].to_vec());
                body = &rest[size + 2..];
            }
            _ => break,
        }
    }
    (chunks, false)
}
