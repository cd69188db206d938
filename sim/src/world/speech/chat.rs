//! OpenAI Chat Completions.

use super::{Answer, Ask, Kind, Part, Piece, Style, content, opener};

fn chunk(answer: &Answer, index: u64, delta: &str, finish: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-{:x}","object":"chat.completion.chunk","created":1760000000,"model":"up","choices":[{{"index":{index},"delta":{delta},"finish_reason":{finish}}}]}}"#,
        answer.id
    )
}

fn finish(kind: Kind) -> &'static str {
    match kind {
        Kind::Tool => "\"tool_calls\"",
        Kind::Length => "\"length\"",
        _ => "\"stop\"",
    }
}

pub(super) fn usage(answer: &Answer) -> String {
    let (prompt, out) = answer.usage;
    format!(r#"{{"prompt_tokens":{prompt},"completion_tokens":{out},"total_tokens":{}}}"#, prompt + out)
}

pub(super) fn stream(ask: &Ask, style: &Style, answer: &Answer) -> Vec<Piece> {
    let mut pieces = Vec::with_capacity(answer.words.len() + 5);
    let mut say = |index, delta: &str, part| {
        let bytes = style.event("", &chunk(answer, index, delta, "null"));
        pieces.push(Piece { bytes, part });
    };
    for index in 0..answer.choices {
        say(index, r#"{"role":"assistant","content":""}"#, Part::Opener);
        match answer.kind {
            Kind::Tool => {
                let call = r#"{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"step","arguments":""}}]}"#;
                say(index, call, Part::Content);
                say(index, r#"{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}"#, Part::Content);
            }
            Kind::Refusal => say(index, r#"{"refusal":"I will not step there."}"#, Part::Content),
            Kind::Reasoning => say(index, r#"{"reasoning_content":"Let me look"}"#, Part::Content),
            Kind::Text | Kind::Length | Kind::Empty => {}
        }
    }
    for word in answer.words.iter().filter(|_| matches!(answer.kind, Kind::Text | Kind::Length | Kind::Reasoning)) {
        for index in 0..answer.choices {
            let delta = format!(r#"{{"content":"{word}"}}"#);
            pieces.push(content(style.event("", &chunk(answer, index, &delta, "null"))));
        }
    }
    for index in 0..answer.choices {
        let bytes = style.event("", &chunk(answer, index, "{}", finish(answer.kind)));
        pieces.push(Piece { bytes, part: Part::Finish });
    }
    if ask.include_usage {
        let data = format!(r#"{{"id":"chatcmpl-{:x}","choices":[],"usage":{}}}"#, answer.id, usage(answer));
        pieces.push(opener(style.event("", &data)));
    }
    pieces.push(Piece { bytes: style.event("", "[DONE]"), part: Part::Last });
    pieces
}

pub(super) fn whole(answer: &Answer) -> String {
    let text = answer.text();
    let message = match answer.kind {
        Kind::Tool => r#"{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"step","arguments":"{}"}}]}"#.to_owned(),
        Kind::Refusal => r#"{"role":"assistant","content":null,"refusal":"I will not step there."}"#.to_owned(),
        Kind::Reasoning => format!(r#"{{"role":"assistant","reasoning_content":"Let me look","content":"{text}"}}"#),
        Kind::Text | Kind::Length | Kind::Empty => format!(r#"{{"role":"assistant","content":"{text}"}}"#),
    };
    let choices: Vec<String> = (0..answer.choices)
        .map(|index| format!(r#"{{"index":{index},"message":{message},"finish_reason":{}}}"#, finish(answer.kind)))
        .collect();
    format!(
        r#"{{"id":"chatcmpl-{:x}","object":"chat.completion","created":1760000000,"model":"up","choices":[{}],"usage":{}}}"#,
        answer.id,
        choices.join(","),
        usage(answer)
    )
}
