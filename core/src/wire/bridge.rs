//! A whole JSON answer to a stream request, told as the stream it stands for (F15).
//!
//! The answer's own words are kept: ids, model, texts, calls, usage. Each text is one event, for cutting it up would only
//! pretend that it came in pieces.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::Format;

type Object = Map<String, Value>;

/// The events of the stream that `body` stands for, one a piece; `None` when the body is no answer of `format`, or none
/// that a stream of it could end with (a Responses answer that still runs).
///
/// `include_usage`: whether a chat request asked for a usage chunk; the other protocols always tell it.
pub fn as_stream(format: Format, body: &[u8], include_usage: bool) -> Option<Vec<Bytes>> {
    let Ok(Value::Object(answer)) = serde_json::from_slice(body) else { return None };
    match format {
        Format::Chat => chat(answer, include_usage),
        Format::Responses => responses(&answer),
        Format::Messages => messages(&answer),
        _ => None,
    }
}

fn chat(mut answer: Object, include_usage: bool) -> Option<Vec<Bytes>> {
    let Some(Value::Array(choices)) = answer.remove("choices") else { return None };
    let usage = answer.remove("usage").filter(Value::is_object);
    answer.insert("object".into(), "chat.completion.chunk".into());
    let (mut content, mut ends) = (Vec::new(), Vec::new());
    for (position, choice) in choices.into_iter().enumerate() {
        let Value::Object(mut choice) = choice else { return None };
        let index = choice.get("index").filter(|index| index.is_u64()).cloned().unwrap_or_else(|| position.into());
        let reason = choice.remove("finish_reason").filter(Value::is_string).unwrap_or_else(|| "stop".into());
        let mut delta = choice.remove("message").filter(Value::is_object).unwrap_or_else(|| json!({}));
        if let Some(calls) = delta.get_mut("tool_calls").and_then(Value::as_array_mut) {
            // In a stream the pieces of a call find each other by its index.
            for (index, call) in calls.iter_mut().enumerate() {
                if let Some(call) = call.as_object_mut() {
                    call.entry("index").or_insert_with(|| index.into());
                }
            }
        }
        choice.insert("index".into(), index.clone());
        choice.insert("delta".into(), delta);
        choice.insert("finish_reason".into(), Value::Null);
        content.push(Value::Object(choice));
        ends.push(json!({"index": index, "delta": {}, "finish_reason": reason}));
    }
    let chunk = |choices: Vec<Value>, usage: Option<Value>| {
        let mut chunk = answer.clone();
        chunk.insert("choices".into(), choices.into());
        if let Some(usage) = usage {
            chunk.insert("usage".into(), usage);
        }
        unnamed(&Value::Object(chunk))
    };
    let mut events = Vec::from([chunk(content, None), chunk(ends, None)]);
    if let Some(usage) = usage.filter(|_| include_usage) {
        events.push(chunk(Vec::new(), Some(usage)));
    }
    events.push(Bytes::from_static(b"data: [DONE]\n\n"));
    Some(events)
}

/// The events of a Responses stream, numbered as they are told.
struct Lifecycle {
    events: Vec<Bytes>,
}

impl Lifecycle {
    fn tell(&mut self, kind: &str, fields: Value) {
        let mut data = json!({"type": kind, "sequence_number": self.events.len()});
        if let (Some(data), Value::Object(fields)) = (data.as_object_mut(), fields) {
            data.extend(fields);
        }
        self.events.push(named(kind, &data));
    }

    /// A text in its place: the empty opener was told, this is the one delta and the whole of it.
    fn text(&mut self, kind: &str, place: &Value, field: &str, text: &str) {
        if !text.is_empty() {
            self.tell(&format!("response.{kind}.delta"), with(place, "delta", text.into()));
        }
        self.tell(&format!("response.{kind}.done"), with(place, field, text.into()));
    }

    fn item(&mut self, output_index: usize, item: &Value) {
        let id = item.get("id").cloned().unwrap_or(Value::Null);
        let place = json!({"item_id": id, "output_index": output_index});
        let mut opener = item.clone();
        if let Some(opener) = opener.as_object_mut() {
            for (field, value) in opener.iter_mut() {
                match field.as_str() {
                    "content" | "summary" if value.is_array() => *value = json!([]),
                    "arguments" | "input" if value.is_string() => *value = "".into(),
                    "status" => *value = "in_progress".into(),
                    _ => {}
                }
            }
        }
        self.tell("response.output_item.added", json!({"output_index": output_index, "item": opener}));
        for (index, part) in list(item, "summary").iter().enumerate() {
            let place = with(&place, "summary_index", index.into());
            self.part("reasoning_summary_part", &place, part, "reasoning_summary_text");
        }
        for (index, part) in list(item, "content").iter().enumerate() {
            let place = with(&place, "content_index", index.into());
            let text = match part.get("type").and_then(Value::as_str) {
                Some("refusal") => "refusal",
                Some("reasoning_text") => "reasoning_text",
                _ => "output_text",
            };
            self.part("content_part", &place, part, text);
        }
        match item.get("type").and_then(Value::as_str) {
            Some("function_call") => self.call("function_call_arguments", &place, item, "arguments"),
            Some("mcp_call") => self.call("mcp_call_arguments", &place, item, "arguments"),
            Some("custom_tool_call") => self.call("custom_tool_call_input", &place, item, "input"),
            _ => {}
        }
        self.tell("response.output_item.done", json!({"output_index": output_index, "item": item}));
    }

    fn call(&mut self, kind: &str, place: &Value, item: &Value, field: &str) {
        if let Some(text) = item.get(field).and_then(Value::as_str) {
            self.text(kind, place, field, text);
        }
    }

    fn part(&mut self, kind: &str, place: &Value, part: &Value, text_kind: &str) {
        let field = if text_kind == "refusal" { "refusal" } else { "text" };
        let text = part.get(field).and_then(Value::as_str);
        let opener = if text.is_some() { with(part, field, "".into()) } else { part.clone() };
        self.tell(&format!("response.{kind}.added"), with(place, "part", opener));
        if let Some(text) = text {
            self.text(text_kind, place, field, text);
        }
        self.tell(&format!("response.{kind}.done"), with(place, "part", part.clone()));
    }
}

fn responses(answer: &Object) -> Option<Vec<Bytes>> {
    let last = match answer.get("status").and_then(Value::as_str) {
        None | Some("completed") => "response.completed",
        Some("incomplete") => "response.incomplete",
        Some(_) => return None,
    };
    let mut started = answer.clone();
    for (field, value) in [("status", json!("in_progress")), ("output", json!([])), ("usage", Value::Null)] {
        started.insert(field.into(), value);
    }
    // They say how it ended, so nothing of them is known at the beginning.
    for field in ["incomplete_details", "completed_at"] {
        if let Some(value) = started.get_mut(field) {
            *value = Value::Null;
        }
    }
    let mut lifecycle = Lifecycle { events: Vec::new() };
    lifecycle.tell("response.created", json!({ "response": started }));
    lifecycle.tell("response.in_progress", json!({ "response": started }));
    let output = answer.get("output").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (index, item) in output.iter().enumerate() {
        lifecycle.item(index, item);
    }
    let mut whole = answer.clone();
    whole.entry("status").or_insert_with(|| "completed".into());
    lifecycle.tell(last, json!({ "response": whole }));
    Some(lifecycle.events)
}

fn messages(answer: &Object) -> Option<Vec<Bytes>> {
    let content = answer.get("content")?.as_array()?;
    let mut events = Vec::new();
    let mut tell = |kind: &str, fields: Value| {
        let mut data = json!({ "type": kind });
        if let (Some(data), Value::Object(fields)) = (data.as_object_mut(), fields) {
            data.extend(fields);
        }
        events.push(named(kind, &data));
    };
    let usage = answer.get("usage").cloned().unwrap_or_else(|| json!({"input_tokens": 0, "output_tokens": 0}));
    let mut start = answer.clone();
    let mut start_usage = usage.clone();
    if let Some(output) = start_usage.get_mut("output_tokens") {
        *output = 0.into();
    }
    for (field, value) in
        [("content", json!([])), ("stop_reason", Value::Null), ("stop_sequence", Value::Null), ("usage", start_usage)]
    {
        start.insert(field.into(), value);
    }
    tell("message_start", json!({ "message": start }));
    for (index, block) in content.iter().enumerate() {
        let (opener, deltas) = opened(block);
        tell("content_block_start", json!({"index": index, "content_block": opener}));
        for delta in deltas {
            tell("content_block_delta", json!({"index": index, "delta": delta}));
        }
        tell("content_block_stop", json!({ "index": index }));
    }
    let reason =
        answer.get("stop_reason").filter(|reason| reason.is_string()).cloned().unwrap_or_else(|| "end_turn".into());
    let sequence = answer.get("stop_sequence").cloned().unwrap_or(Value::Null);
    tell("message_delta", json!({"delta": {"stop_reason": reason, "stop_sequence": sequence}, "usage": usage}));
    tell("message_stop", json!({}));
    Some(events)
}

/// A content block as it opens in a stream, and the deltas that fill it.
fn opened(block: &Value) -> (Value, Vec<Value>) {
    let mut opener = block.clone();
    let mut deltas = Vec::new();
    // Takes a field's text out of the opener and makes it the delta `kind`.
    let mut fill = |opener: &mut Value, field: &str, kind: &str| {
        if let Some(Value::String(text)) = opener.get_mut(field)
            && !text.is_empty()
        {
            deltas.push(with(&json!({ "type": kind }), field, core::mem::take(text).into()));
        }
    };
    match block.get("type").and_then(Value::as_str) {
        Some("text") => {
            fill(&mut opener, "text", "text_delta");
            let citations = opener.get_mut("citations").and_then(Value::as_array_mut).map(core::mem::take);
            for citation in citations.into_iter().flatten() {
                deltas.push(json!({"type": "citations_delta", "citation": citation}));
            }
        }
        Some("thinking") => {
            fill(&mut opener, "thinking", "thinking_delta");
            fill(&mut opener, "signature", "signature_delta");
        }
        Some("tool_use" | "server_tool_use" | "mcp_tool_use") => {
            if let Some(input) = opener.get_mut("input") {
                let input = core::mem::replace(input, json!({}));
                deltas.push(json!({"type": "input_json_delta", "partial_json": input.to_string()}));
            }
        }
        _ => {}
    }
    (opener, deltas)
}

fn with(object: &Value, field: &str, value: Value) -> Value {
    let mut object = object.clone();
    if let Some(object) = object.as_object_mut() {
        object.insert(field.to_string(), value);
    }
    object
}

fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn unnamed(data: &Value) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}

fn named(name: &str, data: &Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Kind;
    use crate::wire::stream::StreamReader;

    fn text(events: &[Bytes]) -> String {
        events.iter().map(|event| core::str::from_utf8(event).expect("text")).collect()
    }

    #[track_caller]
    fn snapshot(name: &str, events: Option<Vec<Bytes>>) {
        let text = text(&events.expect("a stream"));
        insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, { insta::assert_snapshot!(name, text) });
    }

    const CHAT: &str = r#"{"id":"c-1","object":"chat.completion","created":17,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"fine","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11},"system_fingerprint":"fp"}"#;
    const CALLS: &str = r#"{"id":"c-2","model":"m","choices":[{"message":{"content":null,"reasoning_content":"Hm","tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"t2","type":"function","function":{"name":"g","arguments":""}}]},"finish_reason":"tool_calls"},{"index":1,"message":{"refusal":"No."}}]}"#;
    const RESPONSE: &str = r#"{"id":"r-1","object":"response","created_at":17,"status":"completed","error":null,"incomplete_details":null,"model":"m","output":[{"id":"rs","type":"reasoning","summary":[{"type":"summary_text","text":"Hm"}]},{"id":"msg","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"fine","annotations":[]},{"type":"refusal","refusal":"No."}]},{"id":"fc","type":"function_call","call_id":"c","name":"f","arguments":"{}"}],"usage":{"input_tokens":9,"output_tokens":2,"total_tokens":11}}"#;
    const MESSAGE: &str = r#"{"id":"msg-1","type":"message","role":"assistant","model":"m","content":[{"type":"thinking","thinking":"Hm","signature":"Ew"},{"type":"text","text":"fine","citations":[{"type":"char_location"}]},{"type":"tool_use","id":"t","name":"f","input":{"a":1}},{"type":"redacted_thinking","data":"Em"}],"stop_reason":"stop_sequence","stop_sequence":"3","usage":{"input_tokens":9,"output_tokens":2}}"#;

    #[test]
    fn answers_become_the_streams_they_stand_for_f15() {
        snapshot("bridged_chat", as_stream(Format::Chat, CHAT.as_bytes(), false));
        snapshot("bridged_chat_calls", as_stream(Format::Chat, CALLS.as_bytes(), true));
        snapshot("bridged_responses", as_stream(Format::Responses, RESPONSE.as_bytes(), false));
        snapshot("bridged_messages", as_stream(Format::Messages, MESSAGE.as_bytes(), false));
    }

    #[test]
    fn what_is_bridged_reads_as_a_complete_stream_of_its_protocol() {
        for (format, body) in
            [(Format::Chat, CHAT), (Format::Chat, CALLS), (Format::Responses, RESPONSE), (Format::Messages, MESSAGE)]
        {
            let mut reader = StreamReader::new(format);
            let stream = text(&as_stream(format, body.as_bytes(), true).expect("a stream"));
            let mut input = stream.as_bytes();
            let events: Vec<_> = core::iter::from_fn(|| reader.next(&mut input)).collect();
            assert!(
                events.iter().any(|event| event.kind == Kind::Content)
                    && events.iter().all(|event| event.kind != Kind::Malformed)
            );
            assert!(reader.complete() && events.last().is_some_and(|event| event.terminal));
        }
        assert_eq!(as_stream(Format::Chat, CHAT.as_bytes(), true).map(|events| events.len()), Some(4));
    }

    #[test]
    fn an_incomplete_response_ends_as_one_and_a_running_one_is_no_stream() {
        let response = |status: &str| {
            format!(
                r#"{{"id":"r","status":"{status}","incomplete_details":{{"reason":"max_output_tokens"}},"output":[]}}"#
            )
        };
        let events = as_stream(Format::Responses, response("incomplete").as_bytes(), false).expect("a stream");
        assert!(text(&events[2..]).starts_with("event: response.incomplete\n"));
        assert!(text(&events[..1]).contains(r#""incomplete_details":null"#));
        assert_eq!(as_stream(Format::Responses, response("queued").as_bytes(), false), None);
    }

    #[test]
    fn what_is_no_answer_is_no_stream() {
        for body in ["", "[]", "{}", r#"{"choices":"none"}"#, r#"{"choices":["none"]}"#, r#"{"content":"Hi"}"#] {
            assert_eq!(
                [as_stream(Format::Chat, body.as_bytes(), true), as_stream(Format::Messages, body.as_bytes(), true)],
                [None, None],
                "{body}"
            );
        }
        assert_eq!(as_stream(Format::Embeddings, b"{}", false), None);
    }
}
