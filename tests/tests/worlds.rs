//! The simulator is no world of its own: the same sources, told to do the same things in the same order, make the same
//! gateway decide the same, over real sockets and simulated (X9).
//!
//! Calls run one after the other, then a few at once where the order of what happens is certain. Times are those of the
//! policy below, which is as short as a test may be: both worlds keep them.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};
use surefoot_core::gateway::Operation;
use surefoot_core::time::{Span, Time};
use surefoot_core::wire::Format;
use surefoot_sim::scenario::Scenario;
use surefoot_sim::world::World;
use surefoot_sim::world::client::Client;
use surefoot_sim::world::episode::Address;
use surefoot_sim::world::log::Keep;
use surefoot_sim::world::site::{Account, Site};
use surefoot_sim::world::speech::Ask;
use surefoot_sim::world::tape::Tape;
use surefoot_sim::world::told::Told::{self, OverloadedStream, Pushback, Slow, Status};
use surefoot_sim::world::trouble::Trouble;
use surefoot_tests::http::{post, request};
use surefoot_tests::{Gateway, Mock, RUNTIMES, Runtime, within};

const GOOD: Told = Told::Trouble(Trouble::None);
const EMPTY: Told = Told::Trouble(Trouble::Empty);
const STALL: Told = Told::Trouble(Trouble::BlackHole);
const RESET: Told = Told::Trouble(Trouble::ResetBeforeHead);
const CUT: Told = Told::Trouble(Trouble::ResetAfterContent);
const MALFORMED: Told = Told::Trouble(Trouble::MalformedBeforeContent);
const HTML: Told = Told::Trouble(Trouble::Html);
const BAD_KEY: Told = Told::Trouble(Trouble::BadKey);

/// The sources, and what they answer one request after the other; the last for ever.
const SOURCES: [(&str, &[Told]); 6] = [
    (
        "u1",
        &[
            GOOD,
            Status(500),
            Status(503),
            GOOD,
            Status(502),
            RESET,
            Pushback(Span::from_millis(150)),
            OverloadedStream,
            GOOD,
            CUT,
            STALL,
            STALL,
            GOOD,
            MALFORMED,
            GOOD,
            EMPTY,
            EMPTY,
            Status(400),
            BAD_KEY,
            GOOD,
        ],
    ),
    ("u2", &[GOOD, EMPTY, GOOD, Status(404), HTML, GOOD, STALL, GOOD, Status(503), GOOD]),
    ("u3", &[GOOD, Status(503), GOOD, GOOD, RESET, GOOD]),
    ("u4", &[Pushback(Span::from_millis(200)), GOOD, Status(529), Status(503), Status(504), STALL, Status(500), GOOD]),
    ("narrow", &[Slow(Span::from_millis(1500)), GOOD]),
    ("wide", &[GOOD]),
];

/// The same answer in the mock's words.
fn directive(told: Told) -> String {
    match told {
        GOOD => "ok".to_owned(),
        EMPTY => "empty".to_owned(),
        STALL => "stall".to_owned(),
        RESET => "reset".to_owned(),
        CUT => "reset-after=2c".to_owned(),
        MALFORMED => "malformed".to_owned(),
        HTML => "html".to_owned(),
        BAD_KEY => "401".to_owned(),
        OverloadedStream => "error=503, code=server_is_overloaded, type=overloaded_error".to_owned(),
        Status(status) => status.to_string(),
        Slow(head) => format!("delay={}", head.as_millis()),
        Pushback(after) => format!("429:retry-after-ms={}", after.as_millis()),
        Told::Trouble(other) => panic!("{other:?} has no word here"),
    }
}

/// The calls that are made one after the other: the model, and whether a stream is asked for. After a pushback that others
/// could still feel comes a call that takes longer than it: how fast a machine is must not matter.
const SEQUENCE: [(&str, bool); 26] = [
    ("chain", true),
    ("chain", true),
    ("chain", true),
    ("chain", false),
    ("chain", true),
    ("alone", true),
    ("chain", true),
    ("chain", true),
    ("chain", true),
    ("alone", false),
    ("ring", true),
    ("ring", true),
    ("ring", true),
    ("ring", false),
    ("one-switch", true),
    ("one-switch", false),
    ("chain", true),
    ("chain", false),
    ("chain", true),
    ("alone", true),
    ("alone", true),
    ("alone", true),
    ("chain", false),
    ("ring", true),
    ("one-switch", true),
    ("chain", true),
];

/// The calls that are made at once, in this order: the first holds the one place of its source, the second goes
/// elsewhere, the third waits.
const AT_ONCE: [&str; 3] = ["either", "either", "narrow-alone"];

const POLICY: &str = r#"
[default_policy]
max_wait_seconds = 5

[retry]
initial_ms = 50
max_ms = 100

[timeouts]
total_ms = 2000

[breaker]
min_calls = 100

[discovery]
configured_models_mode = "allowlist"

[[models]]
name = "chain"
targets = ["u1/m", "u2/m", "u3/m"]

[[models]]
name = "one-switch"
targets = ["u1/m", "u2/m", "u3/m"]
policy = { max_transfer_count = 1 }

[[models]]
name = "ring"
strategy = "round_robin"
targets = [["u1/m", "u2/m", "u3/m"]]

[[models]]
name = "alone"
targets = ["u4/m"]

[[models]]
name = "either"
targets = ["narrow/m", "wide/m"]

[[models]]
name = "narrow-alone"
targets = ["narrow/m"]
"#;

/// The providers of the configuration, at this address.
fn providers(url: &str) -> String {
    let provider = |(name, _): &(&str, _)| {
        let (most, patience) = if *name == "narrow" { (1, 20_000) } else { (0, 400) };
        format!(
            "[[providers]]\nname = \"{name}\"\nformats = [\"chat\"]\nbase_url = \"{url}/v1\"\nmodels = [\"m\"]\n\
             timeouts = {{ first_byte_ms = {patience} }}\n\
             keys = [{{ value = \"sk-{name}\", max_concurrency = {most} }}]\n"
        )
    };
    SOURCES.iter().map(provider).collect()
}

/// What was decided for each call: its attempts with where, why and how they ended, and how it ended itself.
type Decisions = BTreeMap<String, Vec<String>>;

/// Reads it out of a trace's lines.
fn decisions(trace: &str) -> Decisions {
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let mut calls = Decisions::new();
    for line in trace.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let Some(call) = line["call"].as_u64() else { continue };
        if line.get("begin").is_some() {
            let name = line["request_id"].as_str().unwrap_or_default().to_owned();
            names.insert(call, name);
            continue;
        }
        let (Some(name), Some(action)) = (names.get(&call), line["do"].as_str()) else { continue };
        let mut words = vec![action.to_owned()];
        for key in ["what", "attempt", "choice", "why", "after", "outcome", "reason", "status", "end_as", "stop"] {
            match &line[key] {
                Value::Null => {}
                Value::String(word) => words.push(format!("{key}={word}")),
                // A time: the two worlds have clocks of their own.
                _ if key == "after" => {}
                other => words.push(format!("{key}={other}")),
            }
        }
        // Bytes go in whatever pieces they come, and a connection may be over before it is dropped. What was asked of the
        // pool shows in what was sent. Judgements are told for a replay's sake, by a gateway that traces.
        if !["forward", "abort", "ask", "tell", "judge"].contains(&action) {
            calls.entry(name.clone()).or_default().push(words.join(" "));
        }
    }
    calls
}

/// The name of a call in both worlds: those that are made at once come first.
fn name(number: usize) -> String {
    format!("c{number}")
}

fn over_sockets(runtime: &Runtime) -> Decisions {
    let rules = SOURCES.iter().map(|(name, told)| {
        let answers: Vec<String> = told.iter().map(|told| directive(*told)).collect();
        format!("[[rules]]\nkey = \"sk-{name}\"\nanswer = {}\n", json!(answers))
    });
    let mock = Mock::with_script(&rules.collect::<String>());
    let server =
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain_seconds = 1\n[trace]\nmode = \"full\"\npath = \"calls.trace\"\n";
    let mut gateway = Gateway::start(runtime, &[server, POLICY, &providers(&mock.url())].concat());
    let call = |number: usize, model: &str, stream: bool| {
        let body = json!({ "model": model, "stream": stream, "messages": [{ "role": "user", "content": "Hi" }] });
        post("/v1/chat/completions", &body).header("x-request-id", &name(number))
    };
    for (number, (model, stream)) in SEQUENCE.iter().enumerate() {
        let answer = call(AT_ONCE.len() + number, model, *stream).fetch(gateway.addr());
        assert!(answer.is_ok(), "call {number}: {answer:?}");
    }
    let seen = || {
        let list = request("GET", "/_mock/requests").fetch(mock.addr()).expect("the mock answers").json();
        list["requests"].as_array().or(list.as_array()).map_or(0, Vec::len)
    };
    let before = seen();
    let statuses = std::thread::scope(|scope| {
        let ask = |number: usize| {
            let request = call(number, AT_ONCE[number], true);
            let addr = gateway.addr();
            scope.spawn(move || request.fetch(addr).map(|answer| answer.status).ok())
        };
        let first = ask(0);
        assert!(within(10, || seen() > before), "the first of them is on its way");
        [ask(1), ask(2), first].map(|call| call.join().ok().flatten())
    });
    assert_eq!(statuses, [Some(200); 3]);
    assert_eq!(gateway.stop().0, Some(0));
    let trace = std::fs::read_to_string(gateway.dir().join("calls.trace")).expect("a trace");
    decisions(&trace)
}

fn simulated() -> Decisions {
    let text = [POLICY, &providers("http://sim")].concat();
    let tree: Value = toml::from_str(&text).expect("the configuration is TOML");
    let site = |(place, (name, told)): (usize, &(&str, &[Told]))| {
        let address = Address { site: place, provider: place, region: 0 };
        let mut site = Site::new(&format!("{name}/key1"), address, 0, &format!("sk-{name}"));
        (site.head, site.gap) = ((Span::from_millis(2), Span::ZERO), Span::ZERO);
        site.pieces = (3, 3);
        site.told = told.iter().copied().collect::<VecDeque<_>>();
        site
    };
    let client = |model: &str, stream: bool| Client {
        model: model.to_owned(),
        operation: Some(Operation::ChatCompletions),
        method: "POST",
        ask: Ask { format: Format::Chat, stream, include_usage: false, structured: false },
        leaves: None,
        dawdles: Span::ZERO,
        words: 1,
    };
    let late = |number: u64| Time(100_000_000 + 300_000 * number);
    let scenario = Scenario {
        sites: SOURCES.iter().enumerate().map(site).collect(),
        accounts: vec![Account::new(0, Span::from_secs(1))],
        arrivals: AT_ONCE.iter().zip(0..).map(|(model, number)| (late(number), client(model, true))).collect(),
        queue: SEQUENCE.iter().map(|(model, stream)| client(model, *stream)).collect(),
        workers: vec![Time(1)],
        thinks: Span::from_millis(1),
        ..Scenario::still(1, tree)
    };
    let mut world = World::new(Arc::new(scenario), Keep::Nothing, true);
    let (tape, lines) = Tape::new();
    world.watch(Box::new(tape));
    let report = world.run();
    assert!(report.violation.is_none(), "{:?}", report.violation);
    let lines = lines.borrow();
    decisions(&lines)
}

fn told(calls: &Decisions) -> String {
    let mut out = String::new();
    let models = AT_ONCE.into_iter().chain(SEQUENCE.iter().map(|(model, _)| *model));
    for (number, model) in models.enumerate() {
        out += &format!("{} {model}\n", name(number));
        for decision in calls.get(&name(number)).into_iter().flatten() {
            out += &format!("  {decision}\n");
        }
    }
    out
}

#[test]
fn the_same_world_over_sockets_and_simulated_gives_the_same_attempts_and_ends() {
    let simulated = told(&simulated());
    insta::assert_snapshot!(simulated);
    for runtime in RUNTIMES {
        let real = told(&over_sockets(runtime));
        if real != simulated {
            let (mut one, mut other) = (real.lines(), simulated.lines());
            let differs = one.by_ref().zip(other.by_ref()).find(|(one, other)| one != other);
            panic!("{}: the first difference is {differs:?}\nreal\n{real}\nsimulated\n{simulated}", runtime.name);
        }
    }
}
