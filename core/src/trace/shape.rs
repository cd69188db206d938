//! What is left of bytes that were made here out of an upstream's words, in a redacted trace.
//!
//! A bridged stream or an error told anew is written from parsed values, so the lengths of what is masked may differ from
//! the original's (two keys that look alike once masked are one key). Only what is surely equal is traced: the known keys,
//! the words that decide, and of everything else whether there is any.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Map, Value};

use super::mask::{KNOWN, NUMBER, WORD, class_of, masked};

/// The shape of event lines or of a JSON document.
pub(super) fn of(bytes: &[u8]) -> String {
    let masked = masked(bytes);
    let text = String::from_utf8_lossy(&masked);
    if let Some(document) = document(&text) {
        return document;
    }
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (content, end) = match line.strip_suffix('\n') {
            Some(content) => (content, "\n"),
            None => (line, ""),
        };
        match content.strip_prefix("data: ").map(|data| document(data).ok_or(data)) {
            Some(Ok(data)) => {
                out.push_str("data: ");
                out.push_str(&data);
            }
            Some(Err("[DONE]")) => out.push_str(content),
            Some(Err(_)) => out.push_str("data: *"),
            None if content.is_empty() || content.starts_with("event: ") => out.push_str(content),
            None => out.push('*'),
        }
        out.push_str(end);
    }
    out
}

fn document(text: &str) -> Option<String> {
    let value: Value = serde_json::from_str(text).ok().filter(|value: &Value| value.is_object() || value.is_array())?;
    Some(reduced(value, KNOWN).to_string())
}

/// Depth is bounded by the parser.
fn reduced(value: Value, class: u8) -> Value {
    match value {
        Value::Object(fields) if class & KNOWN != 0 => Value::Object(
            fields
                .into_iter()
                .map(|(key, value)| {
                    let class = class_of(key.as_bytes());
                    (key, reduced(value, class))
                })
                .collect::<Map<_, _>>(),
        ),
        Value::Array(items) if class != 0 => {
            Value::Array(items.into_iter().map(|item| reduced(item, class)).collect::<Vec<_>>())
        }
        Value::Object(fields) if fields.is_empty() => Value::Object(fields),
        Value::Array(items) if items.is_empty() => Value::Array(items),
        Value::Object(_) | Value::Array(_) => "*".into(),
        Value::String(text) if class & WORD != 0 || text.is_empty() => text.into(),
        Value::String(_) => "*".into(),
        Value::Number(number) if class & NUMBER != 0 => number.into(),
        Value::Number(_) => 0.into(),
        other => other,
    }
}
