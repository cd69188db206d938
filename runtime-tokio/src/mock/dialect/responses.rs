//! OpenAI Responses.

use serde_json::{Value, json};

use super::{Event, Part, Say};

fn response(say: &Say, status: &str, output: Value, usage: Value) -> Value {
    let incomplete = match status {
        "incomplete" => json!({ "reason": "max_output_tokens" }),
        _ => Value::Null,
    };
    json!({
        "id": format!("resp_mock{}", say.number), "object": "response", "created_at": say.created, "status": status,
        "background": false, "error": null, "incomplete_details": incomplete, "instructions": null,
        "max_output_tokens": null, "model": say.model, "output": output, "parallel_tool_calls": true,
        "previous_response_id": null, "reasoning": { "effort": null, "summary": null }, "service_tier": "default",
        "store": false, "temperature": 1.0, "text": { "format": { "type": "text" } }, "tool_choice": "auto", "tools": [],
        "top_p": 1.0, "truncation": "disabled", "usage": usage, "user": null, "metadata": {}
    })
}

fn usage(say: &Say) -> Value {
    let (input, output) = say.usage;
    json!({
        "input_tokens": input, "input_tokens_details": { "cached_tokens": 0 }, "output_tokens": output,
        "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": input + output
    })
}

/// `length` and `max_output_tokens` are how the other protocols and this one call the same end.
fn status(say: &Say) -> &'static str {
    match say.finish.as_deref() {
        Some("length" | "max_tokens" | "max_output_tokens" | "incomplete") => "incomplete",
        _ if say.unfinished => "in_progress",
        _ => "completed",
    }
}

fn item_id(say: &Say) -> String {
    let kind = if say.tool.is_some() { "fc" } else { "msg" };
    format!("{kind}_mock{}", say.number)
}

fn item(say: &Say, done: bool) -> Value {
    let status = if done { "completed" } else { "in_progress" };
    match &say.tool {
        Some((name, arguments)) => json!({
            "id": item_id(say), "type": "function_call", "status": status, "call_id": format!("call_mock{}", say.number),
            "name": name, "arguments": if done { arguments.as_str() } else { "" }
        }),
        None => {
            let content = if done { json!([part(&say.text())]) } else { json!([]) };
            json!({ "id": item_id(say), "type": "message", "status": status, "role": "assistant", "content": content })
        }
    }
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

pub(super) fn whole(say: &Say) -> Value {
    let output = if say.hollow { json!([]) } else { json!([item(say, true)]) };
    response(say, status(say), output, usage(say))
}

pub(super) fn failed(say: &Say, error: Value) -> Value {
    let mut failed = response(say, "failed", json!([]), Value::Null);
    failed["error"] = error;
    failed
}

/// Events numbered as they are written down.
struct Line(Vec<Event>);

impl Line {
    fn add(&mut self, name: &'static str, part: Part, fields: Value) {
        let mut data = json!({ "type": name, "sequence_number": self.0.len() });
        if let (Value::Object(data), Value::Object(fields)) = (&mut data, fields) {
            data.extend(fields);
        }
        self.0.push(Event::typed(data, name, part));
    }
}

pub(super) fn events(say: &Say) -> Vec<Event> {
    let mut line = Line(Vec::new());
    let begun = response(say, "in_progress", json!([]), Value::Null);
    line.add("response.created", Part::Frame, json!({ "response": begun }));
    line.add("response.in_progress", Part::Frame, json!({ "response": begun }));
    if !say.hollow {
        // An added function call names its tool: business from there on.
        let added = if say.tool.is_some() { Part::Content } else { Part::Frame };
        line.add("response.output_item.added", added, json!({ "output_index": 0, "item": item(say, false) }));
        match &say.tool {
            Some((_, arguments)) => call(&mut line, say, arguments),
            None => text(&mut line, say),
        }
        line.add("response.output_item.done", Part::Content, json!({ "output_index": 0, "item": item(say, true) }));
    }
    match status(say) {
        "in_progress" => {}
        "incomplete" => line.add("response.incomplete", Part::Terminal, json!({ "response": whole(say) })),
        _ => line.add("response.completed", Part::Terminal, json!({ "response": whole(say) })),
    }
    line.0
}

fn text(line: &mut Line, say: &Say) {
    let at = |more: Value| {
        let mut fields = json!({ "item_id": item_id(say), "output_index": 0, "content_index": 0 });
        if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
            fields.extend(more);
        }
        fields
    };
    line.add("response.content_part.added", Part::Frame, at(json!({ "part": part("") })));
    for piece in &say.pieces {
        line.add("response.output_text.delta", Part::Content, at(json!({ "delta": piece, "logprobs": [] })));
    }
    let done = if say.pieces.is_empty() { Part::Frame } else { Part::Content };
    line.add("response.output_text.done", done, at(json!({ "text": say.text(), "logprobs": [] })));
    line.add("response.content_part.done", done, at(json!({ "part": part(&say.text()) })));
}

fn call(line: &mut Line, say: &Say, arguments: &str) {
    let at = json!({ "item_id": item_id(say), "output_index": 0 });
    let with = |name: &str| {
        let mut fields = at.clone();
        fields[name] = json!(arguments);
        fields
    };
    line.add("response.function_call_arguments.delta", Part::Content, with("delta"));
    line.add("response.function_call_arguments.done", Part::Content, with("arguments"));
}
