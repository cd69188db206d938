//! Many streams at once, with everything that goes wrong with them, while the configuration is reread again and again: each
//! stream is byte-exact or properly ended, and afterwards nothing is left over (M5, X4, F1, F16).
//!
//! `SUREFOOT_STRESS_SECONDS` says for how long each runtime is stressed (20), `SUREFOOT_STRESS_STREAMS` how many streams there
//! are at a time (500).

use std::io::{self, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use surefoot_tests::http::{Open, post, request};
use surefoot_tests::upstream::{Seen, Upstream, chat_end, chat_event, write_chunk, write_end, write_stream_head};
use surefoot_tests::{Gateway, Runtime, on_each_runtime, skip, within};

on_each_runtime!(hundreds_of_streams_are_exact_or_properly_ended_and_leave_nothing_behind);

/// What the first source does to a call, by the call's number. The others serve it.
const FAULTS: u64 = 10;
const OVERLOADED: u64 = 4;
const RESET_IN_THE_WINDOW: u64 = 5;
const CUT_AFTER_CONTENT: u64 = 6;
const SILENT: u64 = 7;
const SILENT_AFTER_CONTENT: u64 = 8;
/// No overload: that would cut the source's pace, and after a few of them it would hardly be asked any more.
const ERROR_IN_THE_WINDOW: u64 = 9;

/// Beyond the gateway's `first_byte_ms` and `idle_ms`.
const TOO_LONG: Duration = Duration::from_millis(3500);

/// How a call's client behaves, by the call's number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    Plain,
    /// Takes a large answer slowly.
    Slow,
    /// Leaves after so many pieces; with 0 before there is a head.
    Leaves(u64),
}

fn client(number: u64) -> Client {
    match number / FAULTS % 8 {
        0 => Client::Slow,
        1 => Client::Leaves(0),
        2 => Client::Leaves(1 + number % 5),
        _ => Client::Plain,
    }
}

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

fn config(upstreams: &[Upstream; 3], reread: u64) -> String {
    let providers: String = (upstreams.iter().zip(1..))
        .map(|(upstream, place)| {
            // The first takes fewer than there are: the rest goes past it.
            let limit = if place == 1 { "max_concurrency = 300" } else { "max_concurrency = 0" };
            format!("[[providers]]\nname = \"u{place}\"\nformats = [\"chat\"]\nbase_url = \"{}/v1\"\nmodels = [\"m\"]\nkeys = [{{ value = \"sk-{place}\", {} }}]\n", upstream.url(), limit)
        })
        .collect();
    // What changes from one reading to the next is read by every call.
    format!(
        r#"
[server]
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"
drain_seconds = 5
[default_policy]
sticky_key_attempts = 1
max_wait_seconds = {}
[timeouts]
connect_ms = 10000
first_byte_ms = 2000
idle_ms = 2000
[breaker]
fail_threshold = 1000000
min_calls = 1000000
[discovery]
configured_models_mode = "allowlist"
{providers}
[[models]]
name = "smart"
targets = ["u1/m", "u2/m", "u3/m"]
"#,
        30 + reread % 2
    )
}

/// The stream that a source gives for a call, event by event.
fn events(number: u64, source: &str) -> Vec<String> {
    let (count, length) = match client(number) {
        Client::Slow => (60, 8000),
        _ => (8 + number % 17, 40 + (number % 300) as usize),
    };
    let event = |at| chat_event(&format!("{source} {number} {at} {}", "x".repeat(length)));
    (0..count).map(event).chain([chat_end()]).collect()
}

/// Answers a call as its number and the source say.
fn answer(source: &str, seen: &Seen, stream: &mut TcpStream) -> io::Result<()> {
    let asked: Value = serde_json::from_slice(&seen.body)?;
    let number = asked["user"].as_str().and_then(|user| user.parse().ok()).unwrap_or(0);
    let fault = if source == "u1" { number % FAULTS } else { 0 };
    match fault {
        OVERLOADED => {
            let body = r#"{"error":{"message":"overloaded","type":"server_error"}}"#;
            let length = body.len();
            let head = format!("HTTP/1.1 503 No\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
            return stream.write_all((head + body).as_bytes());
        }
        SILENT => {
            thread::sleep(TOO_LONG);
            return Err(io::ErrorKind::TimedOut.into());
        }
        _ => write_stream_head(stream)?,
    }
    let opener = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#.to_owned() + "\n\n";
    match fault {
        RESET_IN_THE_WINDOW => {
            write_chunk(stream, opener.as_bytes())?;
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        ERROR_IN_THE_WINDOW => {
            write_chunk(stream, opener.as_bytes())?;
            write_chunk(
                stream,
                b"data: {\"error\":{\"message\":\"broken\",\"type\":\"server_error\",\"code\":500}}\n\n",
            )?;
            return write_end(stream);
        }
        _ => {}
    }
    let whole = events(number, source).concat().into_bytes();
    let end = match fault {
        CUT_AFTER_CONTENT | SILENT_AFTER_CONTENT => whole.len() / 2,
        _ => whole.len(),
    };
    // In pieces that have nothing to do with the events.
    let step = if client(number) == Client::Slow { 4096 } else { 150 + (number % 700) as usize };
    for piece in whole[..end].chunks(step) {
        write_chunk(stream, piece)?;
        thread::sleep(Duration::from_millis(10 + number % 90));
    }
    match fault {
        CUT_AFTER_CONTENT => stream.shutdown(Shutdown::Both),
        SILENT_AFTER_CONTENT => {
            thread::sleep(TOO_LONG);
            Err(io::ErrorKind::TimedOut.into())
        }
        _ => write_end(stream),
    }
}

/// What became of the streams.
#[derive(Default)]
struct Books {
    next: AtomicU64,
    complete: AtomicU64,
    incomplete: AtomicU64,
    left: AtomicU64,
    passed_on: AtomicU64,
    bytes: AtomicU64,
    open: AtomicUsize,
    wrong: Mutex<Vec<String>>,
}

/// One call, and what is wrong with its answer.
fn call(addr: &str, books: &Books) -> Result<(), String> {
    let number = books.next.fetch_add(1, Ordering::Relaxed);
    let words = json!([{ "role": "user", "content": "Hi" }]);
    let body = json!({ "model": "smart", "stream": true, "user": number.to_string(), "messages": words });
    let request = post("/v1/chat/completions", &body).timeout(Duration::from_secs(60));
    let told = |what: &dyn std::fmt::Display| format!("call {number}: {what}");
    if client(number) == Client::Leaves(0) {
        let stream = request.start(addr).map_err(|error| told(&error))?;
        thread::sleep(Duration::from_millis(number % 400));
        drop(stream);
        books.left.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    let mut open = request.send(addr).map_err(|error| told(&error))?;
    let source = open.header("x-surefoot-source").split('/').next().unwrap_or_default().to_owned();
    if open.status != 200 {
        return Err(told(&open.status));
    }
    match read(&mut open, client(number)).map_err(|error| told(&error))? {
        None => {
            books.left.fetch_add(1, Ordering::Relaxed);
        }
        Some(body) => {
            books.bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
            books.passed_on.fetch_add(u64::from(source != "u1"), Ordering::Relaxed);
            let ended = if is_whole(number, &source, &body).map_err(|what| told(&what))? {
                &books.complete
            } else {
                &books.incomplete
            };
            ended.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// The body, unless its client leaves before its end.
fn read(open: &mut Open, client: Client) -> io::Result<Option<String>> {
    let (mut body, mut pieces) = (Vec::new(), 0);
    while let Some(piece) = open.chunk()? {
        body.extend_from_slice(&piece);
        pieces += 1;
        match client {
            Client::Slow => thread::sleep(Duration::from_millis(25)),
            Client::Leaves(after) if pieces >= after => return Ok(None),
            _ => {}
        }
    }
    String::from_utf8(body).map(Some).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Whether a body is its source's whole stream (`true`), or whole events of it with one last word (`false`).
fn is_whole(number: u64, source: &str, body: &str) -> Result<bool, String> {
    let events = events(number, source);
    if body == events.concat() {
        return Ok(true);
    }
    let breaks = source == "u1" && matches!(number % FAULTS, CUT_AFTER_CONTENT | SILENT_AFTER_CONTENT);
    let start = body[..body.len().saturating_sub(2)].rfind("\n\n").map_or(0, |at| at + 2);
    let (before, last) = body.split_at(start);
    let mut end = 0;
    let boundary = before.is_empty()
        || events.iter().any(|event| {
            end += event.len();
            end == before.len()
        });
    if breaks && boundary && events.concat().starts_with(before) && last.contains("\"stream_incomplete\"") {
        return Ok(false);
    }
    Err(format!("{} bytes of {source} that are not its stream; the last of them: {last:?}", body.len()))
}

/// The admin side's address, as the log tells it.
fn admin(gateway: &Gateway) -> String {
    let mut found = String::new();
    assert!(
        within(10, || {
            let told = gateway.output();
            let line =
                told.lines().find_map(|line| line.split_once("status on http://")).map(|(_, address)| address.trim());
            found = line.unwrap_or_default().to_owned();
            !found.is_empty()
        }),
        "{}",
        gateway.output()
    );
    found
}

/// Calls, waiting calls, and attempts under way, as the gateway's own books have them.
fn under_way(admin: &str) -> Option<(u64, u64, u64)> {
    let status = request("GET", "/status").fetch(admin).ok()?.json();
    let inflight = status["targets"].as_array()?.iter().map(|target| target["inflight"].as_u64().unwrap_or(u64::MAX));
    Some((status["calls"].as_u64()?, status["waiting"].as_u64()?, inflight.sum()))
}

fn hundreds_of_streams_are_exact_or_properly_ended_and_leave_nothing_behind(runtime: &Runtime) {
    // One runtime at a time: both together would only measure the machine.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let seconds = setting("SUREFOOT_STRESS_SECONDS", 20);
    let streams = setting("SUREFOOT_STRESS_STREAMS", 500);

    let active = Arc::new(AtomicUsize::new(0));
    let upstream = |source: &'static str| {
        let active = active.clone();
        Upstream::keeping(move |seen, stream| {
            active.fetch_add(1, Ordering::Relaxed);
            let answered = answer(source, seen, stream);
            active.fetch_sub(1, Ordering::Relaxed);
            answered
        })
    };
    let upstreams = [upstream("u1"), upstream("u2"), upstream("u3")];
    // A line for every client that leaves would be all that is to be seen.
    let log = [("RUST_LOG", "info,surefoot::call=error")];
    let mut gateway = Gateway::start_with(runtime, &config(&upstreams, 0), &log);
    let admin = admin(&gateway);
    let before = gateway.descriptors();

    let (books, over) = (Books::default(), AtomicBool::new(false));
    let (mut samples, mut peak, mut rereads) = (Vec::new(), (0, 0), 0);
    thread::scope(|scope| {
        for _ in 0..streams {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    books.open.fetch_add(1, Ordering::Relaxed);
                    if let Err(wrong) = call(gateway.addr(), &books) {
                        books.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(wrong);
                    }
                    books.open.fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(seconds) {
            thread::sleep(Duration::from_millis(500));
            samples.extend(gateway.rss());
            let open = gateway.descriptors().unwrap_or(0);
            peak = (peak.0.max(open), peak.1.max(books.open.load(Ordering::Relaxed)));
            if begun.elapsed().as_secs() / 2 > rereads {
                rereads += 1;
                gateway.reload(&config(&upstreams, rereads));
            }
        }
        over.store(true, Ordering::Relaxed);
    });

    let nothing = within(15, || under_way(&admin) == Some((0, 0, 0)));
    assert!(nothing, "calls, waiting, attempts: {:?} after the last client", under_way(&admin));
    let asked_for_nothing = within(15, || active.load(Ordering::Relaxed) == 0);
    assert!(asked_for_nothing, "{} upstreams still answer nobody", active.load(Ordering::Relaxed));
    // The upstreams close what is kept; the gateway looks at it every ten seconds.
    drop(upstreams);
    let mut after = None;
    let closed = within(25, || {
        after = gateway.descriptors();
        after.zip(before).is_none_or(|(after, before)| after <= before + 4)
    });
    let rss = gateway.rss();
    report(runtime, &books, &samples, rss, (before, peak, after), rereads);

    let wrong = books.wrong.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(
        wrong.is_empty(),
        "{} of {} calls: {:#?}",
        wrong.len(),
        books.next.into_inner(),
        &wrong[..wrong.len().min(5)]
    );
    for (what, count) in [("complete", &books.complete), ("incomplete", &books.incomplete), ("left", &books.left)] {
        assert!(count.load(Ordering::Relaxed) > streams / 20, "too few streams that were {what} to say anything");
    }
    let told = gateway.output();
    assert_eq!(told.matches("the configuration was read anew").count() as u64, rereads, "rereads");
    assert!(!told.contains("panicked"), "{told}");
    if before.is_some() && !samples.is_empty() {
        assert!(closed, "{after:?} descriptors are open, {before:?} were before");
        flat(&samples);
    } else {
        skip("descriptors and memory", "this system does not tell them");
    }
    let (code, took) = gateway.stop();
    assert!(code == Some(0) && took < Duration::from_secs(2), "something is left over: exit {code:?} after {took:?}");
}

/// Memory may grow with the load, but not with time: the last quarter is as the second.
fn flat(samples: &[u64]) {
    let quarter = samples.len() / 4;
    let highest = |part: &[u64]| part.iter().copied().max().unwrap_or(0);
    let (early, late) = (highest(&samples[quarter..2 * quarter]), highest(&samples[3 * quarter..]));
    assert!(late <= early + early / 5 + (8 << 20), "memory grew from {} to {} MiB", early >> 20, late >> 20);
}

/// Descriptors before, at the peak (with the streams open then), and after.
type Descriptors = (Option<usize>, (usize, usize), Option<usize>);

fn report(runtime: &Runtime, books: &Books, samples: &[u64], rss: Option<u64>, fds: Descriptors, rereads: u64) {
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let quarter = (samples.len() / 4).max(1);
    let highest: Vec<String> = samples
        .chunks(quarter)
        .take(4)
        .map(|part| format!("{:.1}", mib(part.iter().copied().max().unwrap_or(0))))
        .collect();
    let _ = writeln!(
        io::stderr(),
        "\nstress on {}: {} calls ({} complete, {} properly ended early, {} left by their client; {} served by another source), \
         {:.1} MiB delivered, {} rereads; {} streams at a time\n  resident MiB, highest of each quarter: {}; at rest after it {:.1}\n  \
         descriptors: {} before, {} at the peak, {} after",
        runtime.name,
        count(&books.next),
        count(&books.complete),
        count(&books.incomplete),
        count(&books.left),
        count(&books.passed_on),
        mib(count(&books.bytes)),
        rereads,
        fds.1.1,
        highest.join(", "),
        mib(rss.unwrap_or_default()),
        fds.0.unwrap_or_default(),
        fds.1.0,
        fds.2.unwrap_or_default(),
    );
}
