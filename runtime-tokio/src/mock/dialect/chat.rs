//! OpenAI Chat Completions.

use serde_json::{Map, Value, json};

use super::{Event, Part, Say};
use crate::mock::ask::Ask;

fn usage(say: &Say) -> Value {
    let (prompt, completion) = say.usage;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": { "cached_tokens": 0, "audio_tokens": 0 },
        "completion_tokens_details": { "reasoning_tokens": 0, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0 }
    })
}

pub(super) fn whole(say: &Say) -> Value {
    let choices = if say.hollow { 0 } else { say.n };
    let choices = (0..choices).map(|index| {
        let unfinished = say.unfinished && index + 1 == say.n;
        let reason = if unfinished { Value::Null } else { json!(say.reason("stop", "tool_calls")) };
        json!({ "index": index, "message": message(say), "logprobs": null, "finish_reason": reason })
    });
    json!({
        "id": format!("chatcmpl-mock{}", say.number),
        "object": "chat.completion",
        "created": say.created,
        "model": say.model,
        "choices": choices.collect::<Vec<_>>(),
        "usage": usage(say),
        "service_tier": "default",
        "system_fingerprint": "fp_mock"
    })
}

fn message(say: &Say) -> Value {
    match &say.tool {
        Some((name, arguments)) => json!({
            "role": "assistant", "content": null, "refusal": null,
            "tool_calls": [{ "id": call_id(say), "type": "function", "function": { "name": name, "arguments": arguments } }]
        }),
        None => json!({ "role": "assistant", "content": say.text(), "refusal": null, "annotations": [] }),
    }
}

fn call_id(say: &Say) -> String {
    format!("call_mock{}", say.number)
}

fn chunk(ask: &Ask, say: &Say, choices: Value, usage: Value) -> Value {
    let mut chunk = Map::new();
    chunk.insert("id".to_owned(), json!(format!("chatcmpl-mock{}", say.number)));
    chunk.insert("object".to_owned(), json!("chat.completion.chunk"));
    chunk.insert("created".to_owned(), json!(say.created));
    chunk.insert("model".to_owned(), json!(say.model));
    chunk.insert("service_tier".to_owned(), json!("default"));
    chunk.insert("system_fingerprint".to_owned(), json!("fp_mock"));
    chunk.insert("choices".to_owned(), choices);
    // Where usage is asked for, every other chunk says null.
    if ask.include_usage {
        chunk.insert("usage".to_owned(), usage);
    }
    Value::Object(chunk)
}

pub(super) fn events(ask: &Ask, say: &Say) -> Vec<Event> {
    let choice = |index: usize, delta: Value, reason: Value, part| {
        let choices = json!([{ "index": index, "delta": delta, "logprobs": null, "finish_reason": reason }]);
        Event::plain(chunk(ask, say, choices, Value::Null), part)
    };
    let mut events = Vec::new();
    if say.hollow {
        events.push(Event::plain(chunk(ask, say, json!([]), Value::Null), Part::Frame));
    } else {
        let opener = if say.tool.is_some() { Value::Null } else { json!("") };
        for index in 0..say.n {
            let delta = json!({ "role": "assistant", "content": opener, "refusal": null });
            events.push(choice(index, delta, Value::Null, Part::Frame));
        }
        let contents = deltas(say);
        for delta in contents {
            events.extend((0..say.n).map(|index| choice(index, delta.clone(), Value::Null, Part::Content)));
        }
        let finished = if say.unfinished { say.n - 1 } else { say.n };
        let reason = json!(say.reason("stop", "tool_calls"));
        events.extend((0..finished).map(|index| choice(index, json!({}), reason.clone(), Part::Finish)));
    }
    if ask.include_usage && !say.unfinished {
        events.push(Event::plain(chunk(ask, say, json!([]), usage(say)), Part::Frame));
    }
    if !say.unfinished {
        events.push(Event::plain(json!("[DONE]"), Part::Terminal));
    }
    events
}

fn deltas(say: &Say) -> Vec<Value> {
    match &say.tool {
        None => say.pieces.iter().map(|piece| json!({ "content": piece })).collect(),
        Some((name, arguments)) => vec![
            json!({ "tool_calls": [{ "index": 0, "id": call_id(say), "type": "function", "function": { "name": name, "arguments": "" } }] }),
            json!({ "tool_calls": [{ "index": 0, "function": { "arguments": arguments } }] }),
        ],
    }
}
