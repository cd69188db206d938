//! Start, reload and end of the process (F1, F14, M10).

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use surefoot_tests::http::{post, request};
use surefoot_tests::upstream::{Upstream, chat_end, chat_event, write_chunk, write_end, write_stream_head};
use surefoot_tests::{Gateway, Launch, Runtime, SMOL, on_each_runtime, provider, within};

on_each_runtime!(
    keys_in_the_environment_are_enough_to_start,
    without_file_and_keys_it_says_what_is_missing,
    a_bad_configuration_is_refused_with_every_problem,
    serve_says_that_no_telemetry_is_sent,
    sighup_takes_a_good_file_and_refuses_a_bad_one,
    a_reload_does_not_touch_a_running_stream,
    sigterm_ends_an_idle_gateway_at_once,
    sigterm_lets_a_stream_finish_within_the_drain,
    at_the_drains_deadline_a_stream_ends_openly,
);

fn config(upstream: &Upstream, more: &str) -> String {
    format!(
        r#"
[server]
listen = "127.0.0.1:0"
drain_seconds = 3
{more}
[default_policy]
sticky_key_attempts = 1
{}
keys = [{{ value = "sk-up" }}]
"#,
        provider(&upstream.url())
    )
}

fn chat(model: &str) -> Value {
    json!({ "model": model, "stream": true, "messages": [{ "role": "user", "content": "Hi" }] })
}

/// A stream that goes on for about so many milliseconds.
fn paced(ms: u64) -> Upstream {
    Upstream::start(move |_, stream| {
        write_stream_head(stream)?;
        for _ in 0..ms / 50 {
            write_chunk(stream, chat_event("tick ").as_bytes())?;
            std::thread::sleep(Duration::from_millis(50));
        }
        write_chunk(stream, chat_end().as_bytes())?;
        write_end(stream)
    })
}

fn keys_in_the_environment_are_enough_to_start(runtime: &Runtime) {
    // Discovery is kept on this machine: nobody is behind the proxy.
    let launch = Launch::new(runtime, &["serve"])
        .env("OPENAI_API_KEY", "sk-test-openai")
        .env("ANTHROPIC_API_KEY", "sk-test-anthropic");
    let launch = launch.env("HTTPS_PROXY", "http://127.0.0.1:9");
    if TcpListener::bind("127.0.0.1:4000").is_err() {
        // Somebody has the default port: then it must say so.
        let (code, _, err) = launch.run();
        assert!(code != Some(0) && err.contains("127.0.0.1:4000"), "exit {code:?}: {err}");
        return;
    }
    let gateway = launch.start();
    assert_eq!(gateway.addr(), "127.0.0.1:4000");
    let mut ids = Vec::new();
    let listed = within(10, || {
        let models = request("GET", "/v1/models").fetch(gateway.addr()).expect("a list").json();
        let data = models["data"].as_array().cloned().unwrap_or_default();
        ids = data.iter().filter_map(|model| model["id"].as_str().map(str::to_owned)).collect();
        ids.iter().any(|id| id.starts_with("openai/")) && ids.iter().any(|id| id.starts_with("anthropic/"))
    });
    assert!(listed, "{ids:?}");
    let answer = post("/v1/chat/completions", &chat("openai/gpt-5")).fetch(gateway.addr()).expect("an answer");
    assert_eq!(answer.status, 502, "{}", answer.text());
    assert!(!gateway.output().contains("sk-test") && !answer.text().contains("sk-test"), "a key shows");
}

fn without_file_and_keys_it_says_what_is_missing(runtime: &Runtime) {
    let (code, _, err) = Launch::new(runtime, &["serve"]).run();
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("surefoot.toml") && err.contains("OPENAI_API_KEY"), "{err}");
}

fn a_bad_configuration_is_refused_with_every_problem(runtime: &Runtime) {
    let text = r#"
[server]
listne = "127.0.0.1:0"
[[providers]]
name = "up"
formats = ["chat"]
base_url = "${NO_SUCH_VARIABLE}"
[breaker]
fail_rate = 2
"#;
    let (code, _, err) = Launch::new(runtime, &["serve", "--config", "c.toml"]).file("c.toml", text).run();
    assert_eq!(code, Some(2), "{err}");
    for part in ["c.toml", "server.listne", "listen", "providers[0].base_url", "NO_SUCH_VARIABLE", "breaker.fail_rate"]
    {
        assert!(err.contains(part), "no {part} in: {err}");
    }
}

const TELEMETRY: &str = "OTEL_EXPORTER_OTLP_ENDPOINT: OpenTelemetry data is not sent yet";

fn serve_says_that_no_telemetry_is_sent(runtime: &Runtime) {
    let upstream = paced(1);
    let otlp = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
    let gateway = Gateway::start_with(runtime, &config(&upstream, ""), &[otlp]);
    assert!(within(5, || gateway.output().contains(TELEMETRY)), "{}", gateway.output());
}

#[test]
fn what_smol_does_not_have_is_said_by_check_and_by_serve() {
    let upstream = paced(1);
    let config = config(&upstream, "") + "[state]\nurl = \"redis://127.0.0.1:6379\"\n";
    let otlp = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
    let check = Launch::new(&SMOL, &["check", "--config", "c.toml"]).file("c.toml", &config).env(otlp.0, otlp.1);
    let (code, out, err) = check.run();
    assert_eq!(code, Some(0), "{err}");
    let gateway = Gateway::start_with(&SMOL, &config, &[otlp]);
    for what in ["state.url: surefoot-smol shares no gate", TELEMETRY] {
        assert!(out.contains(&format!("note: {what}")), "no {what} in: {out}");
        assert!(within(5, || gateway.output().contains(what)), "no {what} in: {}", gateway.output());
    }
}

fn model_is_there(gateway: &Gateway, model: &str) -> bool {
    request("GET", &format!("/v1/models/{model}")).fetch(gateway.addr()).expect("an answer").status == 200
}

fn sighup_takes_a_good_file_and_refuses_a_bad_one(runtime: &Runtime) {
    let upstream = paced(50);
    let config = config(&upstream, "");
    let gateway = Gateway::start(runtime, &config);
    assert!(!model_is_there(&gateway, "fresh"));
    let fresh = format!("{config}\n[[models]]\nname = \"fresh\"\ntargets = [\"up/m\"]\n");
    gateway.reload(&fresh);
    assert!(within(10, || model_is_there(&gateway, "fresh")), "the new model is not served");
    gateway.reload(&format!("{fresh}\n[breaker]\nfail_rat = 0.5\n"));
    assert!(
        within(10, || gateway.output().contains("breaker.fail_rat")),
        "the log does not tell the problem:\n{}",
        gateway.output()
    );
    assert!(model_is_there(&gateway, "fresh"), "the old configuration stays in force");
    let answer = post("/v1/chat/completions", &chat("fresh")).fetch(gateway.addr()).expect("an answer");
    assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
}

fn a_reload_does_not_touch_a_running_stream(runtime: &Runtime) {
    let (upstream, other) = (paced(1500), paced(50));
    let gateway = Gateway::start(runtime, &config(&upstream, ""));
    let open = post("/v1/chat/completions", &chat("up/m")).send(gateway.addr()).expect("a head");
    gateway.reload(&config(&other, "max_body_bytes = 10"));
    let refused =
        || post("/v1/chat/completions", &chat("up/m")).fetch(gateway.addr()).expect("an answer").status == 413;
    assert!(within(10, refused), "the new limit is not in force");
    let answer = open.finish().expect("the whole stream");
    assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
}

fn sigterm_ends_an_idle_gateway_at_once(runtime: &Runtime) {
    for signal in [Signal::TERM, Signal::INT] {
        let upstream = paced(50);
        let mut gateway = Gateway::start(runtime, &config(&upstream, ""));
        assert_eq!(request("GET", "/health").fetch(gateway.addr()).expect("an answer").status, 200);
        // An idle keep-alive connection must not hold up the end.
        let idle = TcpStream::connect(gateway.addr()).expect("a connection");
        gateway.signal(signal);
        let status = gateway.wait(2).unwrap_or_else(|| panic!("still running; output:\n{}", gateway.output()));
        assert_eq!(status.code(), Some(0), "{}", gateway.output());
        drop(idle);
    }
}

fn sigterm_lets_a_stream_finish_within_the_drain(runtime: &Runtime) {
    let upstream = paced(1000);
    let mut gateway = Gateway::start(runtime, &config(&upstream, ""));
    let open = post("/v1/chat/completions", &chat("up/m")).send(gateway.addr()).expect("a head");
    gateway.signal(Signal::TERM);
    let addr = gateway.addr().to_owned();
    assert!(within(5, || TcpStream::connect(&addr).is_err()), "it still takes new connections");
    let answer = open.finish().expect("the whole stream");
    assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
    assert_eq!(gateway.wait(3).and_then(|status| status.code()), Some(0), "{}", gateway.output());
}

fn at_the_drains_deadline_a_stream_ends_openly(runtime: &Runtime) {
    let upstream = paced(60_000);
    let config = config(&upstream, "").replace("drain_seconds = 3", "drain_seconds = 0.5");
    let mut gateway = Gateway::start(runtime, &config);
    let open = post("/v1/chat/completions", &chat("up/m")).send(gateway.addr()).expect("a head");
    gateway.signal(Signal::TERM);
    let answer = open.finish().expect("an end of the body");
    let text = answer.text();
    let last = text.trim_end().lines().last().unwrap_or_default().to_owned();
    assert!(last.contains(r#""code":"stream_incomplete""#) && last.contains("shutdown"), "{last}");
    assert!(!text.contains("[DONE]"));
    assert_eq!(gateway.wait(5).and_then(|status| status.code()), Some(0), "{}", gateway.output());
}
