//! G17 over real sockets: a JSON answer that does not fit its request's schema is asked for again, and held against nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use surefoot_tests::http::{Answer, post, request};
use surefoot_tests::upstream::{Upstream, write_json};
use surefoot_tests::{Gateway, Runtime, on_each_runtime};

on_each_runtime!(
    an_answer_that_does_not_fit_the_schema_is_asked_for_again,
    after_the_retries_it_is_delivered_as_it_is_and_health_stays,
    the_responses_format_has_its_schema_elsewhere,
    a_schema_that_cannot_be_checked_breaks_nothing,
);

/// An upstream whose answers say these texts, one after the other, the last again and again.
struct Says {
    upstream: Upstream,
    asked: Arc<AtomicUsize>,
}

impl Says {
    fn start(texts: &'static [&'static str], answer: fn(&str) -> Value) -> Says {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let upstream = Upstream::start(move |_, stream| {
            let at = count.fetch_add(1, Ordering::SeqCst).min(texts.len() - 1);
            write_json(stream, &answer(texts[at]))
        });
        Says { upstream, asked }
    }

    fn gateway(&self, runtime: &Runtime) -> Gateway {
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\ndrain_seconds = 0.2\n\
             [discovery]\nconfigured_models_mode = \"allowlist\"\n\
             [[providers]]\nname = \"up\"\nformats = [\"chat\", \"responses\"]\nbase_url = \"{}/v1\"\nmodels = [\"m\"]\n\
             keys = [{{ value = \"sk-up\" }}]\n",
            self.upstream.url()
        );
        Gateway::start(runtime, &config)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn chat(text: &str) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": text }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 }
    })
}

fn response(text: &str) -> Value {
    json!({
        "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m",
        "output": [{
            "type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
            "content": [{ "type": "output_text", "text": text, "annotations": [] }]
        }],
        "usage": { "input_tokens": 1, "output_tokens": 1, "total_tokens": 2 }
    })
}

fn named() -> Value {
    json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] })
}

fn ask(gateway: &Gateway, schema: &Value) -> Answer {
    let body = json!({
        "model": "up/m", "messages": [{ "role": "user", "content": "Hi" }],
        "response_format": { "type": "json_schema", "json_schema": { "name": "x", "schema": schema, "strict": true } }
    });
    post("/v1/chat/completions", &body).fetch(gateway.addr()).expect("an answer")
}

fn an_answer_that_does_not_fit_the_schema_is_asked_for_again(runtime: &Runtime) {
    let up = Says::start(&[r#"{"nom":"x"}"#, r#"{"name":5}"#, r#"{"name":"x"}"#], chat);
    let gateway = up.gateway(runtime);
    let got = ask(&gateway, &named());
    assert_eq!((got.status, got.json()), (200, chat(r#"{"name":"x"}"#)));
    assert_eq!((got.header("x-surefoot-attempts"), up.asked()), ("3", 3));
}

fn after_the_retries_it_is_delivered_as_it_is_and_health_stays(runtime: &Runtime) {
    let up = Says::start(&["[]"], chat);
    let gateway = up.gateway(runtime);
    for calls in 1..=4 {
        let got = ask(&gateway, &named());
        assert_eq!((got.status, got.json(), up.asked()), (200, chat("[]"), 3 * calls));
    }
    let status = request("GET", "/status").fetch(&gateway.admin_addr()).expect("a status").json();
    assert_eq!(
        (&status["targets"][0]["state"], &status["targets"][0]["failures_in_a_row"]),
        (&json!("closed"), &json!(0))
    );
}

fn the_responses_format_has_its_schema_elsewhere(runtime: &Runtime) {
    let up = Says::start(&["{}", r#"{"name":"x"}"#], response);
    let gateway = up.gateway(runtime);
    let body = json!({
        "model": "up/m", "input": "Hi",
        "text": { "format": { "type": "json_schema", "name": "x", "schema": named() } }
    });
    let got = post("/v1/responses", &body).fetch(gateway.addr()).expect("an answer");
    assert_eq!((got.status, got.json()), (200, response(r#"{"name":"x"}"#)));
    assert_eq!(up.asked(), 2);
}

fn a_schema_that_cannot_be_checked_breaks_nothing(runtime: &Runtime) {
    let up = Says::start(&["[]"], chat);
    let gateway = up.gateway(runtime);
    let huge = json!({ "type": "object", "description": "x".repeat(100_000) });
    for (calls, schema) in [json!({ "type": 5 }), json!({ "$ref": "https://example.com/x" }), huge].iter().enumerate() {
        let got = ask(&gateway, schema);
        assert_eq!((got.status, got.json(), up.asked()), (200, chat("[]"), calls + 1));
    }
}
