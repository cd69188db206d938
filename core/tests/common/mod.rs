//! The recordings, and an oracle of event streams that shares nothing with the scanner: lines split by a regex, documents
//! read by `serde_json`.
#![allow(dead_code, unreachable_pub, reason = "each test file takes what it needs")]

use std::path::{Path, PathBuf};

use regex::bytes::Regex;
use serde_json::Value;
use surefoot_core::wire::Format;

/// The recordings whose name ends with `suffix`. They are not part of the project: without them there is nothing to test.
pub fn recordings(suffix: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/recordings");
    let mut found = Vec::new();
    for folder in std::fs::read_dir(&root).into_iter().flatten().flatten() {
        for file in std::fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            if file.path().to_string_lossy().ends_with(suffix) {
                found.push(file.path());
            }
        }
    }
    found.sort();
    if found.is_empty() {
        assert!(std::env::var_os("CI").is_none(), "no recordings in {}: CI must have them", root.display());
        eprintln!("SKIPPED: no recordings *{suffix} in {}, nothing was tested", root.display());
    }
    found
}

pub fn format_of(path: &Path) -> Option<Format> {
    let name = path.file_name()?.to_str()?;
    [
        ("chat", Format::Chat),
        ("responses", Format::Responses),
        ("messages", Format::Messages),
        ("embeddings", Format::Embeddings),
    ]
    .into_iter()
    .find(|(start, _)| name.starts_with(start))
    .map(|(_, format)| format)
}

/// An event as both sides tell it: where it ends, what it is, whether it ends the stream.
pub type Told = (usize, &'static str, bool);

/// The events of a stream as a person would read them off the page.
pub struct Oracle {
    format: Format,
    finished: bool,
    ended: bool,
}

impl Oracle {
    /// All events of `stream`, each with its end; an open last one is not among them.
    pub fn events(format: Format, stream: &[u8]) -> Vec<Told> {
        let line_end = Regex::new(r"\r\n|\n|\r").expect("a regex");
        let mut oracle = Oracle { format, finished: false, ended: false };
        let (mut told, mut start, mut line) = (Vec::new(), 0, 0);
        for end in line_end.find_iter(stream) {
            if end.start() == line {
                let (kind, terminal) = oracle.kind(&data(&stream[start..end.end()]));
                told.push((end.end(), kind, terminal));
                start = end.end();
            }
            line = end.end();
        }
        told
    }

    /// What the stream tells when it is cut to `stream`; `whole` are the events of the uncut one.
    pub fn cut(format: Format, stream: &[u8], whole: &[Told]) -> (Vec<Told>, bool) {
        let mut told: Vec<Told> = whole.iter().copied().take_while(|event| event.0 <= stream.len()).collect();
        let start = told.last().map_or(0, |last| last.0);
        let mut oracle = Oracle {
            format,
            finished: told.iter().any(|event| matches!(event.1, "PlainStop" | "Stop" | "Finish")),
            ended: told.iter().any(|event| event.2),
        };
        let tail = data(&stream[start..]);
        let is_whole = tail == "[DONE]" || serde_json::from_str::<Value>(&tail).is_ok();
        if is_whole && !oracle.ended {
            let (kind, terminal) = oracle.kind(&tail);
            told.push((stream.len(), kind, terminal));
        }
        let good = if format == Format::Chat { oracle.finished } else { oracle.ended };
        (told, good)
    }

    fn kind(&mut self, data: &str) -> (&'static str, bool) {
        let event: Value = serde_json::from_str(data).unwrap_or(Value::Null);
        let (kind, terminal) = match self.format {
            Format::Chat if data == "[DONE]" => ("Last", true),
            Format::Chat => (self.chat(&event), false),
            Format::Responses => responses(&event),
            _ => messages(&event),
        };
        self.ended |= terminal;
        (kind, terminal)
    }

    fn chat(&mut self, event: &Value) -> &'static str {
        let choice = &event["choices"][0];
        let says = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        let content = choice["delta"]
            .as_object()
            .is_some_and(|delta| delta.iter().any(|(key, value)| key != "role" && says(value)));
        let first_finish = says(&choice["finish_reason"]) && !self.finished;
        self.finished |= says(&choice["finish_reason"]);
        match (content, first_finish) {
            // Gemini says all in one chunk; the oracle for cuts must know that it finished there.
            (true, true) => "Finish",
            (true, false) => "Content",
            (false, true) => "PlainStop",
            (false, false) => "Opener",
        }
    }
}

fn responses(event: &Value) -> (&'static str, bool) {
    let kind = event["type"].as_str().unwrap_or_default();
    let long = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let parts = |item: &Value, list: &str| {
        item[list].as_array().is_some_and(|parts| parts.iter().any(|part| long(&part["text"])))
    };
    let content = match kind {
        "response.completed" => return ("Stop", true),
        "response.output_item.added" | "response.output_item.done" => {
            parts(&event["item"], "content") || parts(&event["item"], "summary")
        }
        "response.content_part.added"
        | "response.content_part.done"
        | "response.reasoning_summary_part.added"
        | "response.reasoning_summary_part.done" => long(&event["part"]["text"]),
        _ if kind.ends_with(".delta") => long(&event["delta"]),
        _ if kind.ends_with("text.done") => long(&event["text"]),
        _ => false,
    };
    (if content { "Content" } else { "Opener" }, false)
}

fn messages(event: &Value) -> (&'static str, bool) {
    match event["type"].as_str() {
        Some("message_stop") => ("Last", true),
        Some("message_delta") if event["delta"]["stop_reason"] == "end_turn" => ("PlainStop", false),
        Some("content_block_delta") => ("Content", false),
        _ => ("Opener", false),
    }
}

fn data(block: &[u8]) -> String {
    let text = String::from_utf8_lossy(block);
    let lines = text.split(['\r', '\n']).filter_map(|line| line.strip_prefix("data:"));
    lines.map(|value| value.strip_prefix(' ').unwrap_or(value)).collect::<Vec<_>>().join("\n")
}
