//! A failover proxy on blocking sockets: a thread for each client, no runtime. What it does about failures is the core's.
//!
//! `blocking-proxy GATEWAY.json [ADDR]`. Providers are asked over plain HTTP/1.0: TLS is left to whatever stands before them.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use surefoot_core::call::Call;
use surefoot_core::event::{Action, CancelCause, End, Fault, Head, Input, Output};
use surefoot_core::gateway::models::Inventory;
use surefoot_core::gateway::{Gateway, RequestHead, Routed, Tail, Upstream, pool_settings};
use surefoot_core::id::{AttemptNo, CallId, LeaseId};
use surefoot_core::policy::config;
use surefoot_core::pool::{Op, Pool, Reply};
use surefoot_core::time::Time;

struct Proxy {
    gateway: Gateway,
    /// What calls share, and whom a place in line goes to when it frees.
    pool: Mutex<(Pool, HashMap<LeaseId, Sender<Input>>)>,
    began: Instant,
    calls: AtomicU64,
}

impl Proxy {
    fn now(&self) -> Time {
        Time(self.began.elapsed().as_micros() as u64)
    }

    fn apply(&self, op: &Op, line: &Sender<Input>) -> Reply {
        let mut guard = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let (pool, waiting) = &mut *guard;
        let reply = pool.apply(self.now(), op);
        waiting.remove(&op.lease());
        if matches!(op, Op::Reserve(reserve) if reserve.queue && matches!(reply, Reply::Refused { .. })) {
            waiting.insert(op.lease(), line.clone());
        }
        while let Some((lease, reply)) = pool.pop_granted() {
            // Its call's next command takes it off the book: whoever is refused may stand in line all the same.
            let told = waiting.get(&lease).is_some_and(|line| line.send(Input::Reply { lease, reply }).is_ok());
            if !told {
                pool.apply(self.now(), &Op::Leave { lease });
            }
        }
        reply
    }

    /// One client: one request, one answer.
    fn serve(&self, client: &mut TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(client.try_clone()?);
        let (line, headers) = read_head(&mut reader)?;
        let mut body = Vec::new();
        let header = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0).min(32 << 20);
        reader.take(length).read_to_end(&mut body)?;
        let mut words = line.split(' ');
        let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or("/"));
        let id = self.calls.fetch_add(1, Ordering::Relaxed);
        let request_id = id.to_string();
        let head = RequestHead { method, path, query: None, header: &header, request_id: &request_id };
        let planned = match self.gateway.route(&head) {
            Routed::Local(answer) => Err(answer),
            Routed::Pass { .. } => return Err(ErrorKind::Unsupported.into()),
            Routed::Call { operation, tail } => {
                self.gateway.plan(operation, header("content-type"), None, &body, &request_id).map(|plan| (plan, tail))
            }
        };
        let (planned, tail) = match planned {
            Ok(planned) => planned,
            Err(answer) => return write_answer(client, answer.status, answer.content_type, &answer.body),
        };
        let (route, body, (line, places)) = (planned.plan.route.clone(), body.into(), channel());
        let kind = if planned.plan.stream { "text/event-stream" } else { "application/json" };
        let mut call = Call::new(planned.plan, CallId(id), id, self.now());
        let mut live: Option<Live> = None;
        // The law of the core: one input, then poll until it says wait, then sleep for that one thing.
        loop {
            let input = match call.poll() {
                Output::Do(Action::Ask(op) | Action::Tell(op)) => {
                    Input::Reply { lease: op.lease(), reply: self.apply(&op, &line) }
                }
                Output::Do(Action::Send { attempt, choice, .. }) => {
                    let candidate = &route.candidates[usize::from(choice.0)];
                    let upstream = self.gateway.upstream(candidate.place).ok_or(ErrorKind::NotFound)?;
                    live = Live::start(attempt, &upstream, &tail, &planned.slot.body_for(&body, &candidate.model)).ok();
                    if live.is_some() {
                        continue;
                    }
                    Input::Fault { attempt, fault: Fault::Connect }
                }
                Output::Do(Action::Abort(_)) => {
                    live = None;
                    continue;
                }
                // Only a 200 commits on these routes.
                Output::Do(Action::Commit(_)) => {
                    write_answer(client, 200, kind, b"")?;
                    continue;
                }
                Output::Do(Action::Forward(bytes)) => match client.write_all(&bytes) {
                    Ok(()) => Input::Flushed,
                    Err(_) => Input::Cancel(CancelCause::ClientGone),
                },
                Output::Do(Action::Finish(End::Answer(answer))) => {
                    return write_answer(client, answer.status, "application/json", &answer.body);
                }
                Output::Do(Action::Finish(_)) => return Ok(()),
                Output::Do(Action::Notice(notice)) => {
                    eprintln!("call {id}: {}", notice.what.code());
                    continue;
                }
                Output::Do(Action::Judged(_)) => continue,
                Output::Wait(wake) => {
                    let until = wake.map_or(u64::MAX, |wake| wake.at.0).saturating_sub(self.now().0);
                    let patience = Duration::from_micros(until.clamp(1, 3_600_000_000));
                    match &mut live {
                        Some(live) => live.next(patience),
                        None => places.recv_timeout(patience).unwrap_or(Input::Tick),
                    }
                }
            };
            call.handle(self.now(), input);
        }
    }
}

/// An attempt under way.
struct Live {
    attempt: AttemptNo,
    stream: TcpStream,
    /// Bytes that were not told yet; the head is, once `told`.
    held: Vec<u8>,
    told: bool,
}

impl Live {
    fn start(attempt: AttemptNo, upstream: &Upstream<'_>, tail: &Tail, body: &[u8]) -> io::Result<Live> {
        let (host, port) = (upstream.base.host(), upstream.base.port());
        let mut stream = TcpStream::connect((host, port))?;
        let mut head = format!("POST {} HTTP/1.0\r\nhost: {host}:{port}\r\n", upstream.path_and_query(tail));
        for (name, value) in upstream.headers(tail) {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), body].concat())?;
        Ok(Live { attempt, stream, held: Vec::new(), told: false })
    }

    /// The next news within `patience`, or a tick.
    fn next(&mut self, patience: Duration) -> Input {
        let attempt = self.attempt;
        if !self.told || self.held.is_empty() {
            let mut buf = [0; 8192];
            match self.stream.set_read_timeout(Some(patience)).and_then(|()| self.stream.read(&mut buf)) {
                Ok(0) if self.told => return Input::End { attempt },
                Ok(count) if count > 0 => self.held.extend_from_slice(&buf[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Input::Tick;
                }
                _ => return Input::Fault { attempt, fault: Fault::Reset },
            }
        }
        if self.told {
            return Input::Chunk { attempt, bytes: std::mem::take(&mut self.held).into() };
        }
        let Some(end) = self.held.windows(4).position(|four| four == b"\r\n\r\n") else { return Input::Tick };
        let body = self.held.split_off(end + 4);
        let head = std::mem::replace(&mut self.held, body);
        self.told = true;
        let Ok((line, headers)) = read_head(&mut &head[..]) else { return Input::Tick };
        let Some(status) = line.split(' ').nth(1).and_then(|status| status.parse().ok()) else {
            return Input::Fault { attempt, fault: Fault::Protocol };
        };
        let headers = headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Input::Head { attempt, head: Head { status, headers, ..Head::default() } }
    }
}

/// The first line of a message, and its headers by lower-case name.
fn read_head(reader: &mut impl io::BufRead) -> io::Result<(String, Vec<(String, String)>)> {
    let mut lines = reader.lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let mut headers = Vec::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Ok((first, headers))
}

fn write_answer(client: &mut TcpStream, status: u16, kind: &str, body: &[u8]) -> io::Result<()> {
    write!(client, "HTTP/1.1 {status} -\r\nconnection: close\r\ncontent-type: {kind}\r\n\r\n")?;
    client.write_all(body)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: blocking-proxy GATEWAY.json [ADDR]")?;
    let tree = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let config = Arc::new(config::read(&tree, &|name| std::env::var(name).ok()).map_err(|found| format!("{found:?}"))?);
    let mut pool = Pool::new(pool_settings(&config));
    let gateway = Gateway::build(config.clone(), &Inventory::new(&config, Time::ZERO), &mut pool);
    let pool = Mutex::new((pool, HashMap::new()));
    let proxy = Arc::new(Proxy { gateway, pool, began: Instant::now(), calls: AtomicU64::new(1) });
    let listener = TcpListener::bind(arguments.next().as_deref().unwrap_or("127.0.0.1:4000"))?;
    println!("listening on http://{}", listener.local_addr()?);
    for mut client in listener.incoming().flatten() {
        let proxy = proxy.clone();
        std::thread::spawn(move || {
            if let Err(error) = proxy.serve(&mut client) {
                eprintln!("a client was not served: {error}");
            }
        });
    }
    Ok(())
}
