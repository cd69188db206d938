//! Good answers of every protocol, and content that is wrong.

use serde_json::{Value, json};
use surefoot::mock::Script;

use crate::client::{Call, End};
use crate::{mock, once};

const STREAMS: [&str; 3] = ["/v1/chat/completions", "/v1/responses", "/v1/messages"];

#[tokio::test]
async fn every_route_answers_in_its_own_shape() {
    let mock = mock(Script::default()).await;
    let body = json!({ "model": "m", "input": ["a", "b"], "prompt": "p", "messages": [], "max_tokens": 9 });
    let cases = [
        ("/v1/chat/completions", "/choices/0/message/content", json!("Hello! This is the mock, and all is well.")),
        ("/v1/responses", "/output/0/content/0/text", json!("Hello! This is the mock, and all is well.")),
        ("/v1/messages", "/content/0/text", json!("Hello! This is the mock, and all is well.")),
        ("/v1/messages/count_tokens", "/input_tokens", json!(18)),
        ("/v1/embeddings", "/data/1/index", json!(1)),
        ("/v1/images/generations", "/data/0/revised_prompt", json!("Hello! This is the mock, and all is well.")),
        ("/v1/images/variations", "/usage/output_tokens", json!(9)),
        ("/eu/west/v1/chat/completions", "/object", json!("chat.completion")),
    ];
    for (path, pointer, wanted) in cases {
        let got = Call::post(path, body.clone()).send(mock.addr()).await;
        assert_eq!((got.status, got.end), (200, End::Whole), "{path}");
        assert_eq!(got.header("content-type").as_deref(), Some("application/json"));
        assert_eq!(got.json().pointer(pointer), Some(&wanted), "{path} {}", got.text());
    }
    let models = Call::get("/v1/models").send(mock.addr()).await.json();
    assert_eq!((&models["data"][0]["id"], &models["has_more"]), (&json!("mock-small"), &json!(false)));
    let model = Call::get("/v1/models/any").send(mock.addr()).await.json();
    assert_eq!((&model["id"], &model["object"], &model["type"]), (&json!("any"), &json!("model"), &json!("model")));
    assert_eq!(Call::get("/v1/files").send(mock.addr()).await.status, 404);
}

#[tokio::test]
async fn streams_have_the_life_cycle_of_their_protocol() {
    let mock = mock(Script::default()).await;
    let types = async |path| Call::stream(path, "ok").send(mock.addr()).await.types().join(" ");
    insta::assert_snapshot!(types("/v1/messages").await, @"message_start content_block_start ping content_block_delta content_block_stop message_delta message_stop");
    insta::assert_snapshot!(types("/v1/responses").await, @"response.created response.in_progress response.output_item.added response.content_part.added response.output_text.delta response.output_text.done response.content_part.done response.output_item.done response.completed");
    insta::assert_snapshot!(types("/v1/images/generations").await, @"image_generation.partial_image image_generation.completed");
    let chat = Call::chat_stream("text=a b").send(mock.addr()).await;
    let deltas: Vec<Value> = chat.events().iter().map(|event| event["choices"][0]["delta"].clone()).collect();
    let role = json!({ "role": "assistant", "content": "", "refusal": null });
    assert_eq!(deltas, [role, json!({ "content": "a " }), json!({ "content": "b" }), json!({}), Value::Null]);
    assert_eq!(chat.data().last().map(String::as_str), Some("[DONE]"));
}

#[tokio::test]
async fn each_event_is_a_chunk_of_its_own_and_responses_are_numbered() {
    let got = once(Call::stream("/v1/responses", "ok")).await;
    assert_eq!(got.header("content-type").as_deref(), Some("text/event-stream; charset=utf-8"));
    assert!(got.chunks.iter().all(|chunk| chunk.starts_with(b"event: ") && chunk.ends_with(b"\n\n")));
    let numbers: Vec<Value> = got.events().into_iter().map(|mut event| event["sequence_number"].take()).collect();
    assert_eq!(numbers, (0..numbers.len()).map(|number| json!(number)).collect::<Vec<_>>());
    assert_eq!(numbers.len(), got.chunks.len());
}

#[tokio::test]
async fn usage_comes_in_a_chat_stream_only_if_asked_for() {
    let mock = mock(Script::default()).await;
    let with = json!({ "model": "m", "stream": true, "stream_options": { "include_usage": true } });
    let asked = Call::post("/v1/chat/completions", with).send(mock.addr()).await.events();
    let last = &asked[asked.len() - 2];
    assert_eq!((&last["choices"], last["usage"]["total_tokens"].is_u64()), (&json!([]), true));
    assert!(asked[0].as_object().is_some_and(|chunk| chunk["usage"].is_null()));
    let plain = Call::chat_stream("ok").send(mock.addr()).await;
    assert!(!plain.text().contains("usage"));
}

#[tokio::test]
async fn tools_are_called_when_asked_with_arguments_that_fit() {
    let mock = mock(Script::default()).await;
    let parameters =
        json!({ "type": "object", "properties": { "city": { "type": "string" }, "days": { "type": "integer" } } });
    let tools = json!([{ "type": "function", "function": { "name": "weather", "parameters": parameters } }]);
    let body = json!({ "model": "m", "tools": tools, "tool_choice": "required" });
    let got = Call::post("/v1/chat/completions", body.clone()).send(mock.addr()).await.json();
    let function = &got["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(function, &json!({ "name": "weather", "arguments": "{\"city\":\"mock\",\"days\":1}" }));
    assert_eq!(got["choices"][0]["finish_reason"], "tool_calls");
    for (path, kind) in [("/v1/messages", "tool_use"), ("/v1/responses", "function_call")] {
        let got = Call::stream(path, "tool=f").send(mock.addr()).await.text();
        assert!(got.contains(&format!("\"type\":\"{kind}\"")) && got.contains("\"name\":\"f\""), "{got}");
    }
}

#[tokio::test]
async fn structured_answers_fit_the_schema_unless_told_otherwise() {
    let mock = mock(Script::default()).await;
    let schema = json!({ "type": "object", "properties": { "ok": { "type": "boolean" } } });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "s", "schema": schema } });
    let call = Call::post("/v1/chat/completions", json!({ "model": "m", "response_format": format }));
    let content = async |call: Call| call.send(mock.addr()).await.json()["choices"][0]["message"]["content"].take();
    assert_eq!(content(call.clone()).await, json!("{\"ok\":true}"));
    assert_eq!(content(call.header("x-mock", "text=no JSON")).await, json!("no JSON"));
}

#[tokio::test]
async fn embeddings_come_as_numbers_or_as_base64_of_the_same_numbers() {
    let mock = mock(Script::default()).await;
    let ask = async |format: &str| {
        let body = json!({ "model": "m", "input": "a", "dimensions": 2, "encoding_format": format });
        Call::post("/v1/embeddings", body).send(mock.addr()).await.json()["data"][0]["embedding"].take()
    };
    assert_eq!(ask("float").await.as_array().map(Vec::len), Some(2));
    assert_eq!(ask("base64").await.as_str().map(str::len), Some(12));
}

#[tokio::test]
async fn empty_answers_lack_what_they_were_told_to() {
    let mock = mock(Script::default()).await;
    let chat = async |directive| Call::chat(directive).send(mock.addr()).await;
    assert_eq!(chat("empty").await.json()["choices"][0]["message"]["content"], "");
    assert_eq!(chat("empty=choices").await.json()["choices"], json!([]));
    assert_eq!(chat("empty=usage").await.json()["usage"]["total_tokens"], 0);
    let nothing = chat("empty=body").await;
    assert_eq!((nothing.status, nothing.bytes().len(), nothing.end), (200, 0, End::Whole));
    for path in STREAMS {
        let stream = async |directive| Call::stream(path, directive).send(mock.addr()).await;
        let silent = stream("empty=stream").await;
        assert_eq!((silent.status, silent.chunks.len(), silent.end), (200, 0, End::Whole), "{path}");
        let wordless = stream("empty").await.text();
        assert!(!wordless.contains("Hello") && !wordless.contains("text_delta"), "{wordless}");
        let hollow = stream("empty=choices").await.text();
        assert!(
            !hollow.contains("role\":\"assistant\",\"content\":\"\"") && !hollow.contains("content_block"),
            "{hollow}"
        );
    }
}

#[tokio::test]
async fn a_drifted_field_has_the_wrong_type() {
    let mock = mock(Script::default()).await;
    assert_eq!(Call::chat("drift").send(mock.addr()).await.json()["choices"], "drifted");
    let event = &Call::stream("/v1/messages", "drift").send(mock.addr()).await.events()[3];
    assert_eq!((&event["type"], &event["delta"]), (&json!("content_block_delta"), &json!("drifted")));
}

#[tokio::test]
async fn ends_are_missing_or_doubled_as_told() {
    let mock = mock(Script::default()).await;
    let stream = async |path, directive| Call::stream(path, directive).send(mock.addr()).await;
    for (path, done, finish) in [
        ("/v1/chat/completions", "data: [DONE]", "\"finish_reason\":\"stop\""),
        ("/v1/messages", "event: message_stop", "\"stop_reason\":\"end_turn\""),
        ("/v1/responses", "event: response.completed", "\"status\":\"completed\",\"background\""),
    ] {
        let count = |text: &str, what| text.matches(what).count();
        let (good, twice) = (stream(path, "ok").await, stream(path, "double-done").await);
        assert_eq!((count(&good.text(), done), count(&twice.text(), done)), (1, 2), "{path}");
        let open = stream(path, "no-done").await;
        assert_eq!((count(&open.text(), done), open.end), (0, End::Whole), "{path}");
        let endless = stream(path, "no-finish").await.text();
        assert_eq!((count(&endless, done), count(&endless, finish)), (0, 0), "{path}");
    }
    let torn = stream("/v1/chat/completions", "torn").await;
    assert!(torn.text().ends_with("data: [DONE]"));
}

#[tokio::test]
async fn the_last_of_several_choices_never_finishes_when_told() {
    let got = once(Call::chat_stream("unfinished")).await;
    let finished: Vec<Value> = got
        .events()
        .into_iter()
        .filter(|event| !event["choices"][0]["finish_reason"].is_null())
        .map(|mut event| event["choices"][0]["index"].take())
        .collect();
    assert_eq!(
        (finished, got.text().contains("\"index\":1"), got.text().contains("[DONE]")),
        (vec![json!(0)], true, false)
    );
}

#[tokio::test]
async fn huge_content_html_redirects_and_given_bodies_arrive() {
    let mock = mock(Script::default()).await;
    let chat = async |directive| Call::chat_stream(directive).send(mock.addr()).await;
    let huge = chat("huge=3000000").await;
    assert!(huge.chunks[1].len() > 3_000_000 && huge.end == End::Whole);
    let page = chat("502, html").await;
    assert_eq!(page.header("content-type").as_deref(), Some("text/html; charset=utf-8"));
    assert!(page.status == 502 && page.text().starts_with("<!DOCTYPE html>"));
    let moved = chat("307, redirect=/elsewhere").await;
    assert_eq!((moved.status, moved.header("location").as_deref()), (307, Some("/elsewhere")));
    let given = chat("body={\"error\":{}}").await;
    assert_eq!(
        (given.header("content-type").as_deref(), given.text().as_str()),
        (Some("application/json"), "{\"error\":{}}")
    );
}

#[tokio::test]
async fn shapes_types_and_finish_reasons_are_swapped_as_told() {
    let mock = mock(Script::default()).await;
    let whole = Call::chat_stream("as-json").send(mock.addr()).await;
    assert_eq!(whole.json()["object"], "chat.completion");
    let stream = Call::chat("as-stream").send(mock.addr()).await;
    assert_eq!(stream.events()[0]["object"], "chat.completion.chunk");
    let wrong = Call::chat("content-type=text/plain").send(mock.addr()).await;
    assert_eq!(wrong.header("content-type").as_deref(), Some("text/plain"));
    assert_eq!(Call::chat("content-type=\"\"").send(mock.addr()).await.header("content-type"), None);
    let cut_short = Call::chat("finish=length").send(mock.addr()).await;
    assert_eq!(cut_short.json()["choices"][0]["finish_reason"], "length");
    let responses = Call::stream("/v1/responses", "finish=length").send(mock.addr()).await;
    assert_eq!(responses.types().last().map(String::as_str), Some("response.incomplete"));
}

#[tokio::test]
async fn gzip_is_real_undeclared_or_a_lie() {
    let mock = mock(Script::default()).await;
    let chat = async |directive| Call::chat(directive).send(mock.addr()).await;
    let encoding = |got: &crate::Got| got.header("content-encoding");
    let (real, bare, lie) = (chat("gzip").await, chat("gzip=bare").await, chat("gzip=header").await);
    assert!(encoding(&real).as_deref() == Some("gzip") && real.gunzipped().contains("Hello"));
    assert!(encoding(&bare).is_none() && bare.gunzipped().contains("Hello"));
    assert!(encoding(&lie).as_deref() == Some("gzip") && lie.text().contains("Hello"));
    let stream = Call::chat_stream("gzip").send(mock.addr()).await;
    assert!(stream.chunks.len() > 5, "a compressed stream still comes event by event");
    assert!(stream.gunzipped().ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn lines_and_chunks_are_cut_as_told() {
    let mock = mock(Script::default()).await;
    let chat = async |directive| Call::chat_stream(directive).send(mock.addr()).await;
    let plain = chat("ok").await.text();
    assert!(chat("line=crlf").await.text().ends_with("data: [DONE]\r\n\r\n"));
    assert!(chat("line=cr").await.text().ends_with("data: [DONE]\r\r"));
    assert!(chat("bom").await.bytes().starts_with(b"\xef\xbb\xbfdata: "));
    assert_eq!(chat("chunk=whole").await.chunks.len(), 1);
    let sevens = chat("chunk=7").await;
    assert!(sevens.chunks.iter().rev().skip(1).all(|chunk| chunk.len() == 7));
    assert_eq!(sevens.text().len(), plain.len());
}
