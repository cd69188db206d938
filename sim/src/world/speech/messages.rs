//! Anthropic Messages.

use super::{Answer, Kind, Part, Piece, Style, content, opener};

fn stop(kind: Kind) -> &'static str {
    match kind {
        Kind::Tool => "tool_use",
        Kind::Length => "max_tokens",
        Kind::Refusal => "refusal",
        Kind::Text | Kind::Reasoning | Kind::Empty => "end_turn",
    }
}

/// A block's beginning, its deltas, its end.
fn block(pieces: &mut Vec<Piece>, style: &Style, index: usize, start: &str, call: bool, deltas: &[String]) {
    let begin = format!(r#"{{"type":"content_block_start","index":{index},"content_block":{start}}}"#);
    let part = if call { Part::Content } else { Part::Opener };
    pieces.push(Piece { bytes: style.event("content_block_start", &begin), part });
    for delta in deltas {
        let data = format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#);
        pieces.push(content(style.event("content_block_delta", &data)));
    }
    let end = format!(r#"{{"type":"content_block_stop","index":{index}}}"#);
    pieces.push(opener(style.event("content_block_stop", &end)));
}

pub(super) fn stream(style: &Style, answer: &Answer) -> Vec<Piece> {
    let (input, output) = answer.usage;
    let mut pieces = Vec::with_capacity(answer.words.len() + 9);
    let start = format!(
        r#"{{"type":"message_start","message":{{"id":"msg_{:x}","type":"message","role":"assistant","model":"up","content":[],"stop_reason":null,"stop_sequence":null,"usage":{{"input_tokens":{input},"output_tokens":0}}}}}}"#,
        answer.id
    );
    pieces.push(opener(style.event("message_start", &start)));
    let texts =
        || answer.words.iter().map(|word| format!(r#"{{"type":"text_delta","text":"{word}"}}"#)).collect::<Vec<_>>();
    let mut index = 0;
    if answer.kind == Kind::Reasoning {
        let thought = [r#"{"type":"thinking_delta","thinking":"Let me look"}"#.to_owned()];
        block(&mut pieces, style, 0, r#"{"type":"thinking","thinking":"","signature":""}"#, false, &thought);
        index = 1;
    }
    match answer.kind {
        Kind::Tool => {
            let start = r#"{"type":"tool_use","id":"toolu_1","name":"step","input":{}}"#;
            let input = [r#"{"type":"input_json_delta","partial_json":"{}"}"#.to_owned()];
            block(&mut pieces, style, index, start, true, &input);
        }
        Kind::Empty => {}
        _ => block(&mut pieces, style, index, r#"{"type":"text","text":""}"#, false, &texts()),
    }
    pieces.insert(1, opener(style.event("ping", r#"{"type": "ping"}"#)));
    let delta = format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{}","stop_sequence":null}},"usage":{{"output_tokens":{output}}}}}"#,
        stop(answer.kind)
    );
    pieces.push(Piece { bytes: style.event("message_delta", &delta), part: Part::Finish });
    pieces.push(Piece { bytes: style.event("message_stop", r#"{"type":"message_stop"}"#), part: Part::Last });
    pieces
}

pub(super) fn whole(answer: &Answer) -> String {
    let (input, output) = answer.usage;
    let text = answer.text();
    let blocks = match answer.kind {
        Kind::Tool => r#"{"type":"tool_use","id":"toolu_1","name":"step","input":{}}"#.to_owned(),
        Kind::Empty => String::new(),
        Kind::Reasoning => {
            format!(
                r#"{{"type":"thinking","thinking":"Let me look","signature":"Es"}},{{"type":"text","text":"{text}"}}"#
            )
        }
        Kind::Text | Kind::Refusal | Kind::Length => format!(r#"{{"type":"text","text":"{text}"}}"#),
    };
    format!(
        r#"{{"id":"msg_{:x}","type":"message","role":"assistant","model":"up","content":[{blocks}],"stop_reason":"{}","stop_sequence":null,"usage":{{"input_tokens":{input},"output_tokens":{output}}}}}"#,
        answer.id,
        stop(answer.kind)
    )
}
