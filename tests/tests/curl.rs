//! Plain curl against gateway and mock: the commands that people type.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use surefoot_tests::clients::{CLIENT_KEY, Stage, runs};
use surefoot_tests::{Runtime, on_each_runtime, skip, within};

on_each_runtime!(
    curl_gets_whole_answers_of_every_protocol,
    curl_gets_streams_as_they_come,
    curl_sees_who_served_and_how_often_it_was_tried,
    curl_gets_errors_in_the_shape_of_the_route,
    curl_uploads_files,
    curl_passes_through_to_a_provider,
    curl_leaving_drops_the_upstream,
);

/// What curl printed, if it is there.
fn curl(stage: &Stage, path: &str, args: &[&str]) -> Option<String> {
    if !runs(Path::new("curl")) {
        skip("curl", "it is not installed");
        return None;
    }
    let done = Command::new("curl")
        .args(["-sS", "--noproxy", "*", "--max-time", "20", "-H", &format!("authorization: Bearer {CLIENT_KEY}")])
        .args(args)
        .arg(format!("{}{path}", stage.gateway.url()))
        .stdin(Stdio::null())
        .output()
        .expect("curl was there a moment ago");
    Some(String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("no JSON: {text}"))
}

const CHAT: &str = r#"{"model":"MODEL","messages":[{"role":"user","content":"Hi"}]}"#;
const MESSAGES: &str = r#"{"model":"MODEL","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}"#;

fn body(template: &str, model: &str, stream: bool) -> String {
    let body = template.replace("MODEL", model);
    if stream { body.replacen('{', r#"{"stream":true,"#, 1) } else { body }
}

fn curl_gets_whole_answers_of_every_protocol(runtime: &Runtime) {
    let stage = Stage::start(runtime);
    let cases = [
        ("/v1/chat/completions", body(CHAT, "failover", false), "/choices/0/message/content"),
        ("/v1/responses", r#"{"model":"failover","input":"Hi"}"#.to_owned(), "/output/0/content/0/text"),
        ("/v1/messages", body(MESSAGES, "claude-failover", false), "/content/0/text"),
        ("/v1/embeddings", r#"{"model":"failover","input":"Hi"}"#.to_owned(), "/data/0/embedding/0"),
        (
            "/v1/images/generations",
            r#"{"model":"image-failover","prompt":"A red boat"}"#.to_owned(),
            "/data/0/b64_json",
        ),
        ("/v1/messages/count_tokens", body(MESSAGES, "claude-failover", false), "/input_tokens"),
    ];
    for (path, body, place) in cases {
        let Some(text) = curl(&stage, path, &["-d", &body]) else { return };
        let found = json(&text).pointer(place).cloned().unwrap_or_else(|| panic!("{path}: no {place} in {text}"));
        let good = if found.is_string() { found == "served" || path.contains("images") } else { found.is_number() };
        assert!(good, "{path}: {found}");
    }
    let models = json(&curl(&stage, "/v1/models", &[]).unwrap_or_default());
    let ids: Vec<&str> =
        models["data"].as_array().expect("a list").iter().filter_map(|model| model["id"].as_str()).collect();
    assert!(ids.contains(&"good") && ids.contains(&"claude"), "{ids:?}");
    assert_eq!(json(&curl(&stage, "/health", &[]).unwrap_or_default())["status"], "ok");
}

fn curl_gets_streams_as_they_come(runtime: &Runtime) {
    let stage = Stage::start(runtime);
    let Some(chat) = curl(&stage, "/v1/chat/completions", &["-N", "-d", &body(CHAT, "failover", true)]) else { return };
    assert!(chat.contains(r#""content":"served""#) && chat.ends_with("data: [DONE]\n\n"), "{chat}");
    let chat = curl(&stage, "/v1/chat/completions", &["-N", "-d", &body(CHAT, "breaks", true)]).unwrap_or_default();
    let last = chat.trim_end().lines().last().unwrap_or_default();
    let error = json(last.strip_prefix("data: ").unwrap_or_else(|| panic!("no event at the end: {chat}")));
    assert_eq!(
        (&error["error"]["code"], &error["error"]["type"]),
        (&"stream_incomplete".into(), &"provider_error".into()),
        "{chat}"
    );
    assert!(!chat.contains("[DONE]"), "{chat}");
    let messages =
        curl(&stage, "/v1/messages", &["-N", "-d", &body(MESSAGES, "claude-breaks", true)]).unwrap_or_default();
    assert!(messages.contains("event: error\ndata: {\"type\":\"error\""), "{messages}");
}

fn curl_sees_who_served_and_how_often_it_was_tried(runtime: &Runtime) {
    let stage = Stage::start(runtime);
    for stream in [false, true] {
        let args = ["-i", "-H", "x-request-id: curl-1", "-d", &body(CHAT, "failover", stream)];
        let Some(text) = curl(&stage, "/v1/chat/completions", &args) else { return };
        let head = text.to_ascii_lowercase();
        for line in ["x-surefoot-source: u2/key1", "x-surefoot-attempts: 2", "x-request-id: curl-1"] {
            assert_eq!(head.lines().filter(|found| *found == line).count(), 1, "{line}: {text}");
        }
        assert!(!text.contains("sk-of-"), "a provider's key shows: {text}");
    }
}

fn curl_gets_errors_in_the_shape_of_the_route(runtime: &Runtime) {
    let stage = Stage::start(runtime);
    let status = ["-w", "\n%{http_code}"];
    let cases = [
        ("/v1/chat/completions", "{\"model\"", "400", "/error/type", "invalid_request_error"),
        ("/v1/chat/completions", &body(CHAT, "nobody", true), "404", "/error/code", "model_not_found"),
        ("/v1/chat/completions", &body(CHAT, "closes", false), "502", "/error/type", "provider_error"),
        ("/v1/chat/completions", &body(CHAT, "stalls", false), "504", "/error/type", "provider_error"),
        ("/v1/messages", "{\"model\"", "400", "/error/type", "invalid_request_error"),
        ("/v1/messages", &body(MESSAGES, "nobody", true), "404", "/error/type", "not_found_error"),
        ("/v1/messages", &body(MESSAGES, "claude-closes", false), "502", "/error/type", "api_error"),
        ("/v1/no/such/route", "{}", "404", "/error/type", "not_found_error"),
    ];
    for (path, body, code, place, word) in cases {
        let Some(text) = curl(&stage, path, &[&status[..], &["-d", body]].concat()) else { return };
        let (answer, found) = text.rsplit_once('\n').unwrap_or_default();
        assert_eq!((found, json(answer).pointer(place)), (code, Some(&Value::from(word))), "{path}: {text}");
    }
    let wrong = curl(&stage, "/v1/models", &["-i", "-X", "PATCH"]).unwrap_or_default();
    assert!(wrong.starts_with("HTTP/1.1 405") && wrong.to_ascii_lowercase().contains("\nallow: get"), "{wrong}");
}

fn curl_uploads_files(runtime: &Runtime) {
    let stage = Stage::start(runtime);
    for path in ["/v1/images/edits", "/v1/images/variations"] {
        let image = "image=@/dev/null;filename=boat.png;type=image/png";
        let args = ["-i", "-F", "model=image-failover", "-F", "prompt=A red boat", "-F", image];
        let Some(text) = curl(&stage, path, &args) else { return };
        assert!(
            text.contains("b64_json") && text.to_ascii_lowercase().contains("x-surefoot-attempts: 2"),
            "{path}: {text}"
        );
    }
}

fn curl_passes_through_to_a_provider(runtime: &Runtime) {
    let stage = Stage::start(runtime);
    // The base URL has the version part, so what follows the provider's name goes after it.
    let Some(text) = curl(&stage, "/p/u1/files/abc?purpose=x", &["-i", "-X", "DELETE"]) else { return };
    assert!(text.contains("x-surefoot-source: u1/key1"), "{text}");
    let seen =
        Command::new("curl").args(["-sS", "--noproxy", "*", &format!("{}/_mock/requests", stage.mock.url())]).output();
    let seen = json(&String::from_utf8_lossy(&seen.expect("curl was there a moment ago").stdout));
    let last = seen["requests"].as_array().and_then(|all| all.iter().rfind(|one| one["method"] == "DELETE").cloned());
    assert_eq!(last.unwrap_or_default()["path"], "/u1/v1/files/abc");
}

fn curl_leaving_drops_the_upstream(runtime: &Runtime) {
    let stage = Stage::start(runtime);
    let body = body(CHAT, "slow", true);
    let Some(text) = curl(&stage, "/v1/chat/completions", &["-N", "--max-time", "0.7", "-d", &body]) else { return };
    assert!(text.contains("Hello!"), "it left before there was anything: {text}");
    let left = within(10, || {
        let seen = Command::new("curl")
            .args(["-sS", "--noproxy", "*", &format!("{}/_mock/requests", stage.mock.url())])
            .output();
        let seen = json(&String::from_utf8_lossy(&seen.expect("curl was there a moment ago").stdout));
        seen["requests"].as_array().is_some_and(|all| all.iter().any(|one| one["end"] == "left"))
    });
    assert!(left, "the upstream's stream runs on without a reader (X4)");
}
