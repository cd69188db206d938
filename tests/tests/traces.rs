//! Both runtimes trace what they did (X7): every trace replays to identical actions (X8), and in the same scripted world the
//! decisions are the same ones.

use serde_json::{Value, json};
use surefoot_tests::http::post;
use surefoot_tests::{Gateway, Mock, RUNTIMES, Runtime, on_each_runtime};

on_each_runtime!(a_trace_replays_to_identical_actions);

/// What the first source does, and whether a stream is asked for. The second source is good.
const SCRIPT: [(&str, bool); 16] = [
    ("ok", true),
    ("ok", false),
    ("503", true),
    ("500", false),
    ("404", false),
    ("401", true),
    ("429:retry-after-ms=1", true),
    ("error=529", true),
    ("empty=stream", true),
    ("empty", false),
    ("html", false),
    ("garbage", true),
    ("cut", true),
    ("cut-after=2c", true),
    ("malformed", true),
    ("gzip", true),
];

/// The lines of the trace that a runtime writes of the script's calls, made one after the other.
fn trace(runtime: &Runtime, mode: &str) -> Vec<String> {
    let mock = Mock::start();
    let models: String = (SCRIPT.iter().enumerate())
        .map(|(number, (fault, _))| {
            format!("[[models]]\nname = \"m{number}\"\ntargets = ['u1/mock:{fault}', 'u2/good']\n")
        })
        .collect();
    let provider = |name| {
        let url = mock.url();
        format!(
            "[[providers]]\nname = \"{name}\"\nformats = [\"chat\"]\nbase_url = \"{url}/{name}/v1\"\nkeys = [{{ value = \"sk-{name}-secret\" }}]\n"
        )
    };
    let config = format!(
        r#"
[server]
listen = "127.0.0.1:0"
drain_seconds = 1
[trace]
mode = "{mode}"
path = "calls.trace"
[retry]
initial_ms = 1
max_ms = 1
[breaker]
fail_threshold = 1000000
min_calls = 1000000
[discovery]
configured_models_mode = "allowlist"
{}{}{models}"#,
        provider("u1"),
        provider("u2")
    );
    let mut gateway = Gateway::start(runtime, &config);
    for (number, (fault, stream)) in SCRIPT.iter().enumerate() {
        let words = json!([{ "role": "user", "content": "Hi" }]);
        let body = json!({ "model": format!("m{number}"), "stream": stream, "messages": words });
        let answer = post("/v1/chat/completions", &body).fetch(gateway.addr());
        assert!(answer.is_ok(), "{fault}: {answer:?}");
    }
    assert_eq!(gateway.stop().0, Some(0));
    let text = std::fs::read_to_string(gateway.dir().join("calls.trace")).expect("a trace");
    assert!(!text.contains("-secret"), "a key is in the trace");
    text.lines().map(str::to_owned).collect()
}

fn a_trace_replays_to_identical_actions(runtime: &Runtime) {
    for mode in ["full", "redacted"] {
        let lines = trace(runtime, mode);
        let report = surefoot_core::trace::replay(lines.iter().map(String::as_str));
        assert!(report.is_clean(), "{mode}: {report:#?}");
        assert_eq!((report.calls, report.identical, report.unfinished), (SCRIPT.len(), SCRIPT.len(), 0), "{mode}");
    }
}

/// What was decided, in order: the actions of each call without what depends on the moment.
fn decisions(lines: &[String]) -> Vec<String> {
    let kept =
        ["do", "call", "op", "what", "choice", "attempt", "why", "outcome", "reason", "status", "shape", "end_as"];
    let decision = |line: &String| {
        let Ok(Value::Object(mut line)) = serde_json::from_str(line) else { panic!("no JSON: {line}") };
        // Bytes go on in whatever pieces they came.
        if line.get("do").is_none_or(|action| action == "forward") {
            return None;
        }
        line.retain(|key, _| kept.contains(&key.as_str()));
        Some(Value::Object(line).to_string())
    };
    lines.iter().filter_map(decision).collect()
}

#[test]
fn the_same_world_makes_every_runtime_decide_the_same() {
    let [one, other] = RUNTIMES.map(|runtime| decisions(&trace(runtime, "full")));
    assert!(one.len() > SCRIPT.len() * 5, "{one:#?}");
    for (number, (one, other)) in one.iter().zip(&other).enumerate() {
        assert_eq!(one, other, "decision {number}");
    }
    assert_eq!(one.len(), other.len());
}
