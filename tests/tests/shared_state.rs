//! Several gateways on one store (G18): what one learns the others know, and a store that fails costs no call.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use surefoot_tests::http::{Answer, post, request};
use surefoot_tests::store::Store;
use surefoot_tests::upstream::Upstream;
use surefoot_tests::{Gateway, Launch, TOKIO, within};

/// An upstream with a book: how often it was asked, how many at once at most.
struct Counted {
    upstream: Upstream,
    asked: Arc<AtomicUsize>,
    at_once: Arc<AtomicUsize>,
}

impl Counted {
    fn start(status: &'static str, headers: &'static str, takes: Duration) -> Counted {
        let (asked, at_once) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, most, now) = (asked.clone(), at_once.clone(), AtomicUsize::new(0));
        let upstream = Upstream::start(move |_, stream| {
            count.fetch_add(1, Ordering::SeqCst);
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(takes);
            now.fetch_sub(1, Ordering::SeqCst);
            answer(stream, status, headers)
        });
        Counted { upstream, asked, at_once }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn answer(stream: &mut TcpStream, status: &str, headers: &str) -> std::io::Result<()> {
    let body = if status.starts_with("200") {
        json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "up",
            "choices": [{ "index": 0, "message": { "role": "assistant", "content": "Hi" }, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 }
        })
    } else {
        json!({ "error": { "message": "no", "type": "server_error", "param": null, "code": null } })
    };
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n{headers}content-length: {}",
        body.len()
    );
    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes())
}

/// A gateway over these upstreams, in their order, as model `m`; `key` goes into each key, `more` to the end.
fn gateway(store: &Store, upstreams: &[&Counted], key: &str, more: &str) -> Gateway {
    let mut config = String::from(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n\
         [default_policy]\nsticky_key_attempts = 1\n\
         [retry]\ninitial_ms = 10\n\
         [discovery]\nconfigured_models_mode = \"allowlist\"\n",
    );
    let mut targets = Vec::new();
    for (at, upstream) in upstreams.iter().enumerate() {
        config += &format!(
            "[[providers]]\nname = \"u{at}\"\nformats = [\"chat\"]\nbase_url = \"{}/v1\"\nmodels = [\"up\"]\n\
             keys = [{{ name = \"k\", value = \"sk-{at}\"{key} }}]\n",
            upstream.upstream.url()
        );
        targets.push(format!("\"u{at}/up\""));
    }
    config += &format!("[[models]]\nname = \"m\"\ntargets = [{}]\n", targets.join(", "));
    config += &format!("[state]\nurl = \"{}\"\n{more}\n", store.url());
    let gateway = Gateway::start(&TOKIO, &config);
    let shared = within(10, || gateway.output().contains("the gate is shared"));
    assert!(shared, "it does not find the store:\n{}", gateway.output());
    gateway
}

fn ask(gateway: &Gateway) -> Answer {
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }] });
    let asked = post("/v1/chat/completions", &body).timeout(Duration::from_secs(20)).fetch(gateway.addr());
    asked.unwrap_or_else(|error| panic!("no answer: {error}\n{}", gateway.output()))
}

/// F14: what only the store's client can see is a problem of the configuration all the same, and no secret of it shows.
#[test]
fn an_address_that_makes_no_sense_is_found_by_check_and_by_serve() {
    let config = "[[providers]]\nname = \"p\"\nformats = [\"chat\"]\nbase_url = \"http://127.0.0.1:9/v1\"\n\
                  [state]\nurl = \"redis://user:hush@host:port/\"\n";
    for command in ["check", "serve"] {
        let (code, _, err) = Launch::new(&TOKIO, &[command, "--config", "c.toml"]).file("c.toml", config).run();
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("c.toml: state.url: is no address of a store") && !err.contains("hush"), "{err}");
    }
}

const NO_TIME: Duration = Duration::ZERO;
const BREAKER: &str = "[breaker]\nfail_threshold = 2\nmin_calls = 100\ncooldown_seconds = 60";

#[test]
fn a_target_opened_by_one_gateway_is_not_tried_by_the_other() {
    let Some(store) = Store::start("a breaker shared by two gateways") else { return };
    let upstream = Counted::start("500 Internal Server Error", "", NO_TIME);
    let [one, other] = [(); 2].map(|()| gateway(&store, &[&upstream], "", BREAKER));
    // Each sees one failure; together they are enough.
    assert_eq!((ask(&one).status, ask(&other).status), (500, 500));
    for gateway in [&one, &other] {
        let refused = ask(gateway);
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert!(refused.text().contains("circuit breaker is open"), "{}", refused.text());
        assert!(!refused.header("retry-after").is_empty());
    }
    assert_eq!(upstream.asked(), 2);
    let told = |gateway: &Gateway| gateway.output().contains("breaker_opened");
    assert!(within(5, || told(&other)) && !told(&one), "the one whose call opened it tells:\n{}", other.output());
}

#[test]
fn a_probe_that_closes_for_one_closes_for_both() {
    let Some(store) = Store::start("a probe shared by two gateways") else { return };
    let healthy = Arc::new(AtomicBool::new(false));
    let (asked, well) = (Arc::new(AtomicUsize::new(0)), healthy.clone());
    let count = asked.clone();
    let upstream = Upstream::start(move |_, stream| {
        count.fetch_add(1, Ordering::SeqCst);
        let status = if well.load(Ordering::SeqCst) { "200 OK" } else { "500 Internal Server Error" };
        answer(stream, status, "")
    });
    let upstream = Counted { upstream, asked, at_once: Arc::default() };
    let quick = "[breaker]\nfail_threshold = 1\nmin_calls = 100\ncooldown_seconds = 0.5";
    let [one, other] = [(); 2].map(|()| gateway(&store, &[&upstream], "", quick));
    assert_eq!((ask(&one).status, ask(&other).status), (500, 503));
    healthy.store(true, Ordering::SeqCst);
    assert!(within(10, || ask(&one).status == 200), "the cooldown ends by the store's clock");
    assert_eq!(ask(&other).status, 200, "closed for the other too");
    assert!(within(5, || one.output().contains("breaker_closed")), "{}", one.output());
}

#[test]
fn a_keys_429_seen_by_one_gateway_holds_the_other() {
    let Some(store) = Store::start("a pushback shared by two gateways") else { return };
    let limited = Counted::start("429 Too Many Requests", "retry-after: 600\r\n", NO_TIME);
    let well = Counted::start("200 OK", "", NO_TIME);
    let [one, other] = [(); 2].map(|()| gateway(&store, &[&limited, &well], "", ""));
    assert_eq!(ask(&one).header("x-surefoot-source"), "u1/k");
    assert_eq!(ask(&other).header("x-surefoot-source"), "u1/k");
    assert_eq!((limited.asked(), well.asked()), (1, 2));
}

#[test]
fn a_keys_concurrency_is_counted_over_all_gateways_and_everyone_gets_his_turn() {
    let Some(store) = Store::start("a limit shared by two gateways") else { return };
    let upstream = Counted::start("200 OK", "", Duration::from_millis(60));
    let gateways = [(); 2].map(|()| gateway(&store, &[&upstream], ", max_concurrency = 2", ""));
    std::thread::scope(|scope| {
        for at in 0..16 {
            let gateway = &gateways[at % 2];
            scope.spawn(move || assert_eq!(ask(gateway).status, 200));
        }
    });
    assert_eq!(upstream.asked(), 16);
    assert_eq!(upstream.at_once.load(Ordering::SeqCst), 2, "the limit, used to the full");
}

/// Calls go on in many threads while something is done to the store; every one of them must end well and soon.
fn under_traffic(gateways: &[Gateway], deed: impl FnOnce()) -> Duration {
    let stop = AtomicBool::new(false);
    let calls = AtomicUsize::new(0);
    let slowest = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|at| {
                let (gateway, stop, calls) = (&gateways[at % gateways.len()], &stop, &calls);
                scope.spawn(move || {
                    let mut slowest = Duration::ZERO;
                    while !stop.load(Ordering::Relaxed) {
                        let begun = Instant::now();
                        let got = ask(gateway);
                        assert_eq!(got.status, 200, "{}\n{}", got.text(), gateway.output());
                        slowest = slowest.max(begun.elapsed());
                        calls.fetch_add(1, Ordering::Relaxed);
                    }
                    slowest
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        deed();
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("a client failed")).max().unwrap_or_default()
    });
    eprintln!("{} calls, the slowest took {slowest:?}", calls.load(Ordering::Relaxed));
    slowest
}

fn times(gateway: &Gateway, words: &str) -> usize {
    gateway.output().matches(words).count()
}

const AWAY: &str = "the store cannot be reached";
const BACK: &str = "the store is back";

#[test]
fn a_store_killed_and_restarted_in_mid_traffic_fails_no_call() {
    let Some(mut store) = Store::start("a store that dies and comes back") else { return };
    let upstream = Counted::start("200 OK", "", Duration::from_millis(20));
    // Few places: calls stand in line when the store goes.
    let gateways = [(); 2].map(|()| gateway(&store, &[&upstream], ", max_concurrency = 3", ""));
    let slowest = under_traffic(&gateways, || {
        store.kill();
        let away = |gateway: &Gateway| times(gateway, AWAY) == 1;
        assert!(within(10, || gateways.iter().all(away)), "{}", gateways[0].output());
        std::thread::sleep(Duration::from_millis(300));
        store.restart();
        let back = |gateway: &Gateway| times(gateway, BACK) == 1;
        assert!(within(20, || gateways.iter().all(back)), "{}", gateways[0].output());
        std::thread::sleep(Duration::from_millis(300));
    });
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    for gateway in &gateways {
        assert_eq!((times(gateway, AWAY), times(gateway, BACK)), (1, 1), "{}", gateway.output());
    }
    assert_ne!(store.command("DBSIZE"), ":0", "shared again");
}

#[test]
fn a_store_that_hangs_in_mid_traffic_fails_no_call() {
    let Some(store) = Store::start("a store that hangs") else { return };
    let upstream = Counted::start("200 OK", "", Duration::from_millis(20));
    let gateways = [gateway(&store, &[&upstream], ", max_concurrency = 3", "")];
    let slowest = under_traffic(&gateways, || {
        store.freeze();
        assert!(within(10, || times(&gateways[0], AWAY) == 1), "{}", gateways[0].output());
        std::thread::sleep(Duration::from_millis(500));
        store.thaw();
        assert!(within(20, || times(&gateways[0], BACK) == 1), "{}", gateways[0].output());
        std::thread::sleep(Duration::from_millis(300));
    });
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
}

#[test]
fn a_store_flushed_in_mid_traffic_is_a_fresh_one_and_no_news() {
    let Some(store) = Store::start("a store that forgets") else { return };
    let upstream = Counted::start("200 OK", "", Duration::from_millis(20));
    let gateways = [(); 2].map(|()| gateway(&store, &[&upstream], ", max_concurrency = 3", ""));
    under_traffic(&gateways, || {
        for _ in 0..5 {
            assert_eq!(store.command("FLUSHALL"), "+OK");
            assert_eq!(store.command("SCRIPT FLUSH"), "+OK");
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    assert!(gateways.iter().all(|gateway| times(gateway, AWAY) == 0), "{}", gateways[0].output());
}

#[test]
fn on_down_closed_admits_nothing_until_the_store_is_back() {
    let Some(mut store) = Store::start("failing closed") else { return };
    let upstream = Counted::start("200 OK", "", NO_TIME);
    let gateway = gateway(&store, &[&upstream], "", "on_down = \"closed\"");
    assert_eq!(ask(&gateway).status, 200);
    store.kill();
    let begun = Instant::now();
    let refused = ask(&gateway);
    assert_eq!((refused.status, upstream.asked()), (503, 1), "{}", refused.text());
    assert!(begun.elapsed() < Duration::from_secs(3));
    store.restart();
    assert!(within(20, || ask(&gateway).status == 200), "{}", gateway.output());
}

/// The views follow the store: `/status` of one tells what the other found out.
#[test]
fn the_status_tells_how_things_stand_at_the_store() {
    let Some(store) = Store::start("the status of a shared gate") else { return };
    let upstream = Counted::start("500 Internal Server Error", "", NO_TIME);
    let [one, other] = [(); 2].map(|()| gateway(&store, &[&upstream], "", BREAKER));
    assert_eq!((ask(&one).status, ask(&one).status, ask(&other).status), (500, 500, 503));
    let output = other.output();
    let admin = output.split("metrics and status on http://").nth(1).and_then(|rest| rest.split_whitespace().next());
    let status = request("GET", "/status").fetch(admin.expect("an admin side")).expect("a status").json();
    assert_eq!(status["targets"][0]["state"], "open", "{status}");
}
