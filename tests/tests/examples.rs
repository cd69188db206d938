//! The programs under `examples/` do what `docs/embedding.md` says of them.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use surefoot_tests::binaries::{Runtime, workspace};
use surefoot_tests::http::{post, request};
use surefoot_tests::{Launch, Mock};

const fn example(binary: &'static str) -> Runtime {
    Runtime { name: "example", binary, variable: "", http: "http/1.1" }
}

const BLOCKING: Runtime = example("blocking-proxy");
const AXUM: Runtime = example("axum-service");
const ORACLE: Runtime = example("oracle");

/// The configuration that stands beside them, with the mock's address in it. Its first provider always answers 503.
fn config(mock: &Mock) -> String {
    let path = workspace().join("examples/gateway.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.replace("http://127.0.0.1:4010", &mock.url())
}

fn chat(stream: bool) -> Value {
    json!({ "model": "smart", "stream": stream, "messages": [{ "role": "user", "content": "Hi" }] })
}

fn fails_over(example: &Runtime) {
    let mock = Mock::start();
    let launch = Launch::new(example, &["gateway.json", "127.0.0.1:0"]).file("gateway.json", &config(&mock));
    let proxy = launch.start();
    for _ in 0..3 {
        let whole = post("/v1/chat/completions", &chat(false)).fetch(proxy.addr()).expect("an answer");
        assert_eq!(whole.status, 200, "{}", whole.text());
        assert!(whole.json()["choices"][0]["message"]["content"].is_string(), "{}", whole.text());
        let stream = post("/v1/chat/completions", &chat(true)).fetch(proxy.addr()).expect("a stream");
        assert!(stream.header("content-type").starts_with("text/event-stream"), "{stream:?}");
        assert!(stream.text().ends_with("data: [DONE]\n\n"), "{}", stream.text());
    }
    let unknown = json!({ "model": "nope", "messages": [] });
    assert_eq!(post("/v1/chat/completions", &unknown).fetch(proxy.addr()).expect("an answer").status, 404);
    assert_eq!(request("GET", "/health").fetch(proxy.addr()).expect("an answer").status, 200);
}

#[test]
fn the_blocking_proxy_fails_over() {
    fails_over(&BLOCKING);
}

#[test]
fn the_axum_service_fails_over_and_stands_beside_the_applications_own_routes() {
    fails_over(&AXUM);
    let mock = Mock::start();
    let service = Launch::new(&AXUM, &["gateway.json", "127.0.0.1:0"]).file("gateway.json", &config(&mock)).start();
    assert_eq!(
        request("GET", "/hello").fetch(service.addr()).expect("an answer").text(),
        "hello from the application\n"
    );
    let answer = post("/v1/chat/completions", &chat(false)).fetch(service.addr()).expect("an answer");
    assert_eq!(answer.header("x-surefoot-source"), "second/key1");
    let passed = post("/p/second/v1/chat/completions", &json!({ "model": "m", "messages": [] }));
    assert_eq!(passed.fetch(service.addr()).expect("an answer").status, 200);
}

#[test]
fn the_oracle_tells_what_would_be_done() {
    let folder = workspace().join("examples");
    let told = Command::new(ORACLE.path())
        .args(["gateway.json", "oracle/failover.txt"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let told = String::from_utf8(told.stdout).expect("text");
    let deeds: Vec<String> = (told.lines())
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| !line.contains(" notice ") && !line.contains(" forward ") && !line.contains(" abort "))
        .collect();
    assert_eq!(
        deeds,
        [
            "0 ms send first/key1/m (first, attempt 0)",
            "40 ms send first/key1/m (retry, attempt 1)",
            "940 ms send second/key1/m (transfer, attempt 2)",
            "965 ms commit second/key1/m (content)",
            "965 ms end complete",
        ],
        "{told}"
    );
}
