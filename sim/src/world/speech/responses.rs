//! OpenAI Responses.

use super::{Answer, Kind, Part, Piece, Style};

fn usage(answer: &Answer) -> String {
    let (input, output) = answer.usage;
    format!(r#"{{"input_tokens":{input},"output_tokens":{output},"total_tokens":{}}}"#, input + output)
}

fn item(answer: &Answer) -> String {
    let text = answer.text();
    match answer.kind {
        Kind::Tool => {
            r#"{"id":"fc_1","type":"function_call","status":"completed","name":"step","call_id":"call_1","arguments":"{}"}"#.to_owned()
        }
        Kind::Refusal => {
            r#"{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"refusal","refusal":"I will not."}]}"#.to_owned()
        }
        _ => format!(
            r#"{{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{{"type":"output_text","text":"{text}","annotations":[]}}]}}"#
        ),
    }
}

fn response(answer: &Answer, status: &str, output: &str, usage: &str) -> String {
    format!(
        r#"{{"id":"resp_{:x}","object":"response","created_at":1760000000,"status":"{status}","error":null,"incomplete_details":null,"model":"up","output":[{output}],"usage":{usage}}}"#,
        answer.id
    )
}

fn status(kind: Kind) -> &'static str {
    if kind == Kind::Length { "incomplete" } else { "completed" }
}

pub(super) fn stream(style: &Style, answer: &Answer) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::with_capacity(answer.words.len() + 9);
    let mut say = |name: &str, rest: &str, part| {
        let data = format!(r#"{{"type":"{name}","sequence_number":{},{rest}}}"#, pieces.len());
        pieces.push(Piece { bytes: style.event(name, &data), part });
    };
    let bare = format!(r#""response":{}"#, response(answer, "in_progress", "", "null"));
    say("response.created", &bare, Part::Opener);
    say("response.in_progress", &bare, Part::Opener);
    match answer.kind {
        Kind::Empty => {}
        Kind::Tool => {
            let added = r#""output_index":0,"item":{"id":"fc_1","type":"function_call","status":"in_progress","name":"step","call_id":"call_1","arguments":""}"#;
            say("response.output_item.added", added, Part::Content);
            say(
                "response.function_call_arguments.delta",
                r#""item_id":"fc_1","output_index":0,"delta":"{}""#,
                Part::Content,
            );
        }
        kind => {
            let added = r#""output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}"#;
            say("response.output_item.added", added, Part::Opener);
            let part = r#""item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}"#;
            say("response.content_part.added", part, Part::Opener);
            if kind == Kind::Refusal {
                say(
                    "response.refusal.delta",
                    r#""item_id":"msg_1","output_index":0,"content_index":0,"delta":"I will not.""#,
                    Part::Content,
                );
            } else {
                for word in &answer.words {
                    let delta = format!(r#""item_id":"msg_1","output_index":0,"content_index":0,"delta":"{word}""#);
                    say("response.output_text.delta", &delta, Part::Content);
                }
                let done =
                    format!(r#""item_id":"msg_1","output_index":0,"content_index":0,"text":"{}""#, answer.text());
                say("response.output_text.done", &done, Part::Content);
            }
        }
    }
    let output = if answer.kind == Kind::Empty { String::new() } else { item(answer) };
    if answer.kind != Kind::Empty {
        say("response.output_item.done", &format!(r#""output_index":0,"item":{output}"#), Part::Content);
    }
    let end = format!(r#""response":{}"#, response(answer, status(answer.kind), &output, &usage(answer)));
    say(&format!("response.{}", status(answer.kind)), &end, Part::Last);
    pieces
}

pub(super) fn whole(answer: &Answer) -> String {
    let output = if answer.kind == Kind::Empty { String::new() } else { item(answer) };
    response(answer, status(answer.kind), &output, &usage(answer))
}
