//! An upstream whose every byte a test decides: a thread per connection, a closure that writes.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// What an upstream saw of a request.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `POST /v1/chat/completions HTTP/1.1`.
    pub line: String,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// A running upstream; its threads end with their connections, its listener when it is dropped.
#[derive(Debug)]
pub struct Upstream {
    addr: SocketAddr,
    left: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Upstream {
    /// Starts one. `answer` writes the answer of one request; the connection closes after it. An error of its writing
    /// means that the other side left, and is counted.
    ///
    /// # Panics
    ///
    /// There is no free port.
    pub fn start(answer: impl Fn(&Seen, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static) -> Upstream {
        Upstream::serve(answer, false)
    }

    /// The same, but a connection serves on until its other side leaves, an answer is an error, or the upstream is dropped.
    ///
    /// # Panics
    ///
    /// There is no free port.
    pub fn keeping(answer: impl Fn(&Seen, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static) -> Upstream {
        Upstream::serve(answer, true)
    }

    fn serve(answer: impl Fn(&Seen, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static, keep: bool) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("no free port: {error}"));
        let addr = listener.local_addr().unwrap_or_else(|error| panic!("no address: {error}"));
        let (left, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let upstream = Upstream { addr, left: Arc::clone(&left), stop: Arc::clone(&stop) };
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(mut stream) = connection else { continue };
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let (left, answer, stop) = (Arc::clone(&left), Arc::clone(&answer), Arc::clone(&stop));
                std::thread::spawn(move || {
                    let _ = stream.set_nodelay(true);
                    loop {
                        if keep && !comes(&stream, &stop) {
                            return;
                        }
                        let Ok(seen) = read(&stream) else { return };
                        if answer(&seen, &mut stream).is_err() {
                            left.fetch_add(1, Ordering::Relaxed);
                            return;
                        }
                        if !keep {
                            return;
                        }
                    }
                });
            }
        });
        upstream
    }

    /// Its address as a URL without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// How many answers could not be written to their end, for the other side had left.
    pub fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the listener up, so that it sees the flag.
        let _ = TcpStream::connect(self.addr);
    }
}

/// Waits for a request on a kept connection; `false` when there comes none any more.
fn comes(stream: &TcpStream, stop: &AtomicBool) -> bool {
    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
    let found = loop {
        match stream.peek(&mut [0]) {
            Ok(count) => break count > 0,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                if stop.load(Ordering::Relaxed) {
                    break false;
                }
            }
            Err(_) => break false,
        }
    };
    let _ = stream.set_read_timeout(None);
    found
}

fn read(stream: &TcpStream) -> io::Result<Seen> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    Ok(Seen { line: line.trim_end().to_owned(), headers, body })
}

/// The head of a chunked event stream.
pub fn write_stream_head(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
}

/// One chunk.
pub fn write_chunk(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(format!("{:x}\r\n", bytes.len()).as_bytes())?;
    stream.write_all(bytes)?;
    stream.write_all(b"\r\n")
}

/// The end of a chunked body.
pub fn write_end(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"0\r\n\r\n")
}

/// A chat event with this text.
pub fn chat_event(text: &str) -> String {
    let delta = serde_json::json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "up",
        "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": null }]
    });
    format!("data: {delta}\n\n")
}

/// The events that end a chat stream.
pub fn chat_end() -> String {
    let last = serde_json::json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "up",
        "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }]
    });
    format!("data: {last}\n\ndata: [DONE]\n\n")
}
