//! Anthropic Messages.

use serde_json::{Value, json};

use super::{Event, Part, Say};

fn id(say: &Say) -> String {
    format!("msg_mock{}", say.number)
}

fn tool_id(say: &Say) -> String {
    format!("toolu_mock{}", say.number)
}

fn arguments(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!({}))
}

fn usage(say: &Say, output: u64) -> Value {
    json!({
        "input_tokens": say.usage.0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
        "output_tokens": output, "service_tier": "standard"
    })
}

pub(super) fn whole(say: &Say) -> Value {
    let content = match &say.tool {
        _ if say.hollow => json!([]),
        Some((name, input)) => {
            json!([{ "type": "tool_use", "id": tool_id(say), "name": name, "input": arguments(input) }])
        }
        None => json!([{ "type": "text", "text": say.text() }]),
    };
    let reason = if say.unfinished { Value::Null } else { json!(say.reason("end_turn", "tool_use")) };
    json!({
        "id": id(say), "type": "message", "role": "assistant", "model": say.model, "content": content,
        "stop_reason": reason, "stop_sequence": null, "usage": usage(say, say.usage.1)
    })
}

pub(super) fn events(say: &Say) -> Vec<Event> {
    let start = json!({
        "id": id(say), "type": "message", "role": "assistant", "model": say.model, "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage(say, say.usage.1.min(1))
    });
    let mut events = vec![event(json!({ "type": "message_start", "message": start }), "message_start", Part::Frame)];
    if !say.hollow {
        let block = match &say.tool {
            Some((name, _)) => json!({ "type": "tool_use", "id": tool_id(say), "name": name, "input": {} }),
            None => json!({ "type": "text", "text": "" }),
        };
        // A tool call is business from its first event on; an empty text block is not.
        let part = if say.tool.is_some() { Part::Content } else { Part::Frame };
        let begin = json!({ "type": "content_block_start", "index": 0, "content_block": block });
        events.push(event(begin, "content_block_start", part));
        events.push(event(json!({ "type": "ping" }), "ping", Part::Frame));
        events.extend(deltas(say).into_iter().map(|delta| {
            let data = json!({ "type": "content_block_delta", "index": 0, "delta": delta });
            event(data, "content_block_delta", Part::Content)
        }));
        let end = json!({ "type": "content_block_stop", "index": 0 });
        events.push(event(end, "content_block_stop", Part::Frame));
    }
    if !say.unfinished {
        let delta = json!({ "stop_reason": say.reason("end_turn", "tool_use"), "stop_sequence": null });
        let data = json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": say.usage.1 } });
        events.push(event(data, "message_delta", Part::Finish));
        events.push(event(json!({ "type": "message_stop" }), "message_stop", Part::Terminal));
    }
    events
}

fn deltas(say: &Say) -> Vec<Value> {
    match &say.tool {
        None => say.pieces.iter().map(|piece| json!({ "type": "text_delta", "text": piece })).collect(),
        Some((_, input)) => vec![
            json!({ "type": "input_json_delta", "partial_json": "" }),
            json!({ "type": "input_json_delta", "partial_json": input }),
        ],
    }
}

fn event(data: Value, name: &'static str, part: Part) -> Event {
    Event::typed(data, name, part)
}
