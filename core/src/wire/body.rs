//! Whole JSON answers: good, empty, drifted, or an error behind a 200 (M1, M2, M3).

use alloc::boxed::Box;
use alloc::string::String;

use super::chat;
use super::facts::{Finish, Memory, is_word};
use super::json::{self, Bad, Cursor, Parsed, Token};
use super::messages;
use super::responses::Answer;
use super::{Format, Verdict, error};

/// What a whole answer to a request of `format` is. Reads every byte once and keeps nothing.
pub fn inspect(format: Format, body: &[u8]) -> Verdict {
    let mut memory = Memory::default();
    let read = match format {
        // F11: a picture is paid for, so it is never looked at twice; M7: bytes as they are.
        Format::Images | Format::Raw => return Verdict::Good { empty: None, tokens: None },
        Format::Chat => chat_body(body, &mut memory),
        Format::Responses => responses_body(body, &mut memory),
        Format::Messages => messages_body(body, &mut memory),
        Format::Embeddings => embeddings_body(body, &mut memory),
        Format::CountTokens => count_body(body, &mut memory),
    };
    let tokens = memory.usage.tokens();
    let no_usage = || memory.usage.is_all_zero().then_some("no_usage");
    match read {
        Ok(Found::Good) => Verdict::Good { empty: no_usage(), tokens },
        Ok(Found::NoOutput) => Verdict::Good { empty: Some("no_output"), tokens },
        Ok(Found::Empty) => Verdict::EmptyCompletion { tokens },
        Ok(Found::NoChoices) => Verdict::NoChoices,
        Ok(Found::Error) => Verdict::Error(Box::new(error::of_event(format.dialect(), body))),
        Err(bad) => match (error::in_document(format.dialect(), body), bad) {
            (Some(fact), _) => Verdict::Error(Box::new(fact)),
            (None, Bad::Type(field)) if json::is_valid(body) => Verdict::Drifted { field },
            (None, _) => Verdict::Unreadable,
        },
    }
}

enum Found {
    Good,
    NoOutput,
    Empty,
    NoChoices,
    Error,
}

/// Reads a body's one object; `member` gets each key but those that tell of an error. Whether they told of one.
fn object<'a>(body: &'a [u8], mut member: impl FnMut(&mut Cursor<'a>, &[u8]) -> Parsed<()>) -> Parsed<bool> {
    let mut error = false;
    let mut buffer = [0; 64];
    let mut cursor = Cursor::new(body);
    cursor.object(|c, key| {
        match key.word(&mut buffer) {
            b"error" => error |= c.tells_error()?,
            b"type" | b"object" => error |= is_word(c, b"error")?,
            key => member(c, key)?,
        }
        Ok(())
    })?;
    cursor.end()?;
    Ok(error)
}

/// Reads `usage`: an object or null.
fn usage(c: &mut Cursor<'_>, memory: &mut Memory) -> Parsed<()> {
    match c.peek() {
        Token::Object | Token::Null | Token::Nothing => memory.usage.read(c),
        _ => Err(Bad::Type("usage")),
    }
}

fn chat_body(body: &[u8], memory: &mut Memory) -> Parsed<Found> {
    let (mut choices, mut content, mut finish) = (0, false, Finish::None);
    let error = object(body, |c, key| {
        match key {
            b"choices" => {
                c.array_or_null("choices", |c| {
                    let choice = chat::choice(c, choices, memory)?;
                    choices += 1;
                    content |= choice.held.content;
                    finish = finish.max(choice.finish);
                    Ok(())
                })?;
            }
            b"usage" => usage(c, memory)?,
            _ => c.skip()?,
        }
        Ok(())
    })?;
    Ok(match finish {
        _ if error => Found::Error,
        Finish::Error => Found::Error,
        _ if choices == 0 => Found::NoChoices,
        // An end that is not told is no reason to call nothing an answer.
        Finish::Plain | Finish::None if !content => Found::Empty,
        _ => Found::Good,
    })
}

fn responses_body(body: &[u8], memory: &mut Memory) -> Parsed<Found> {
    let mut answer = Answer::default();
    let error = object(body, |c, key| match key {
        b"usage" => usage(c, memory),
        key => answer.member(c, key, memory),
    })?;
    Ok(if error || answer.failed {
        Found::Error
    } else if answer.completed && answer.output != Some(true) {
        Found::NoOutput
    } else {
        Found::Good
    })
}

fn messages_body(body: &[u8], memory: &mut Memory) -> Parsed<Found> {
    let (mut content, mut finish) = (false, Finish::None);
    let error = object(body, |c, key| {
        match key {
            b"content" => content |= messages::blocks(c, "content")?,
            b"stop_reason" => finish = Finish::of(c.text_or_null("stop_reason")?),
            b"usage" => usage(c, memory)?,
            _ => c.skip()?,
        }
        Ok(())
    })?;
    Ok(match finish {
        _ if error => Found::Error,
        Finish::Plain | Finish::None if !content => Found::Empty,
        _ => Found::Good,
    })
}

fn embeddings_body(body: &[u8], memory: &mut Memory) -> Parsed<Found> {
    let mut buffer = [0; 64];
    let error = object(body, |c, key| {
        match key {
            b"data" => {
                c.array_or_null("data", |c| {
                    if c.peek() != Token::Object {
                        return Err(Bad::Type("data[]"));
                    }
                    c.object(|c, key| {
                        let embedding = key.word(&mut buffer) == b"embedding";
                        match c.peek() {
                            // Numbers, or base64 where the request asked for that.
                            Token::Array | Token::Text | Token::Null | Token::Nothing => c.skip(),
                            _ if embedding => Err(Bad::Type("data[].embedding")),
                            _ => c.skip(),
                        }
                    })
                })?;
            }
            b"usage" => usage(c, memory)?,
            _ => c.skip()?,
        }
        Ok(())
    })?;
    Ok(if error { Found::Error } else { Found::Good })
}

fn count_body(body: &[u8], _: &mut Memory) -> Parsed<Found> {
    let error = object(body, |c, key| match (key, c.peek()) {
        (b"input_tokens", Token::Number | Token::Null | Token::Nothing) => c.skip(),
        (b"input_tokens", _) => Err(Bad::Type("input_tokens")),
        _ => c.skip(),
    })?;
    Ok(if error { Found::Error } else { Found::Good })
}

/// The answer's own text, its parts joined: of the first choice, of all text blocks. `None` where there is none.
pub fn content_text(format: Format, body: &[u8]) -> Option<String> {
    let mut text = None;
    each_text(format, body, &mut |part, first| {
        if first {
            text.get_or_insert_with(String::new).push_str(part);
        }
    })?;
    text
}

/// Whether an answer that was asked for as JSON is JSON (G17): the text of every choice parses.
///
/// An answer without text, be it a tool call or a refusal, is no JSON gone wrong: asking again would not mend it.
pub fn is_structured_ok(format: Format, body: &[u8]) -> bool {
    let mut ok = true;
    let mut joined = String::new();
    let read = each_text(format, body, &mut |part, _| match format {
        Format::Chat => ok &= json::is_valid(part.as_bytes()),
        _ => joined.push_str(part),
    });
    read.is_none() || (ok && (joined.is_empty() || json::is_valid(joined.as_bytes())))
}

/// Shows each text of an answer, and whether it belongs to the first choice.
fn each_text(format: Format, body: &[u8], show: &mut dyn FnMut(&str, bool)) -> Option<()> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    let texts = |parts: &serde_json::Value, show: &mut dyn FnMut(&str)| {
        for part in parts.as_array().into_iter().flatten() {
            if matches!(part["type"].as_str(), Some("text" | "output_text") | None)
                && let Some(text) = part["text"].as_str()
            {
                show(text);
            }
        }
    };
    match format {
        Format::Chat => {
            for (position, choice) in value["choices"].as_array()?.iter().enumerate() {
                let content = &choice["message"]["content"];
                let mut joined = String::new();
                texts(content, &mut |text| joined.push_str(text));
                match content.as_str().unwrap_or(&joined) {
                    "" => {}
                    text => show(text, position == 0),
                }
            }
        }
        Format::Responses => {
            for item in value["output"].as_array()? {
                if item["type"].as_str() == Some("message") {
                    texts(&item["content"], &mut |text| show(text, true));
                }
            }
        }
        Format::Messages => texts(&value["content"], &mut |text| show(text, true)),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use core::fmt::Write;

    fn table(format: Format, bodies: &[&str]) -> String {
        let mut out = String::new();
        for body in bodies {
            let verdict = match inspect(format, body.as_bytes()) {
                Verdict::Error(fact) => format!("Error {} {}", fact.status, fact.message),
                other => format!("{other:?}"),
            };
            writeln!(out, "{verdict:<58} {}", body.escape_debug()).expect("a string");
        }
        out
    }

    #[track_caller]
    fn snapshot(name: &str, table: String) {
        insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, { insta::assert_snapshot!(name, table) });
    }

    #[test]
    fn chat_bodies_m1_m2_m3() {
        snapshot(
            "chat_bodies",
            table(
                Format::Chat,
                &[
                    r#"{"choices":[{"message":{"content":"Hi"}}]}"#,
                    r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}"#,
                    r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}"#,
                    r#"{"choices":[],"usage":{"total_tokens":9}}"#,
                    r#"{"id":"c"}"#,
                    r#"{"choices":null}"#,
                    r#"{"choices":[{"message":{"content":""},"finish_reason":"stop"}],"usage":{"total_tokens":10}}"#,
                    r#"{"choices":[{"message":{"content":null,"tool_calls":[]},"finish_reason":"stop"}]}"#,
                    r#"{"choices":[{"message":{"content":""}}]}"#,
                    r#"{"choices":[{"message":{"content":""},"finish_reason":"stop"},{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#,
                    r#"{"choices":[{"message":{"content":null,"refusal":"No."},"finish_reason":"stop"}]}"#,
                    r#"{"choices":[{"message":{"content":"","reasoning_content":"Hm"},"finish_reason":"stop"}]}"#,
                    r#"{"choices":[{"message":{"tool_calls":[{"id":"c"}]},"finish_reason":"tool_calls"}]}"#,
                    r#"{"choices":[{"message":{"content":""},"finish_reason":"length"}]}"#,
                    r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"error"}]}"#,
                    r#"{"choices":"none"}"#,
                    r#"{"choices":["none"]}"#,
                    r#"{"choices":[{"message":"Hi"}]}"#,
                    r#"{"choices":[{"message":{"content":7}}]}"#,
                    r#"{"choices":[{"message":{"content":"Hi"}}],"usage":"none"}"#,
                    r#"{"choices":"none""#,
                    "",
                    " \n",
                    "not json",
                    r#"{"id":"c","choices":["#,
                    "data: {\"choices\":[]}\n\n",
                    "7",
                    "[]",
                    "null",
                    r#"{"error":{"message":"busy","type":"x","code":503}}"#,
                    r#"{"error":{"message":"busy","type":"x","code":"502"}}"#,
                    r#"{"error":{"message":"busy","type":"server_error","code":null}}"#,
                    r#"{"error":{"message":"busy","type":"strange","code":200}}"#,
                    r#"{"error":"backend unavailable"}"#,
                    r#"[{"error":{"code":429,"message":"busy"}}]"#,
                    r#"{"error":{"message":"busy","code":400},"choices":"none"}"#,
                    r#"{"error":null,"choices":[{"message":{"content":"Hi"}}]}"#,
                ],
            ),
        );
    }

    #[test]
    fn other_bodies_m1_m2_m3() {
        snapshot(
            "responses_bodies",
            table(
                Format::Responses,
                &[
                    r#"{"status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"Hi"}]}],"usage":{"input_tokens":9,"output_tokens":2,"total_tokens":11}}"#,
                    r#"{"status":"completed","output":[]}"#,
                    r#"{"status":"completed","output":[{"type":"message","content":[]}]}"#,
                    r#"{"status":"queued","output":[]}"#,
                    r#"{"status":"in_progress","output":[]}"#,
                    r#"{"status":"incomplete","output":[]}"#,
                    r#"{"status":"completed","output":[{"type":"function_call","name":"f"}]}"#,
                    r#"{"output":"Hi"}"#,
                    r#"{"output":["Hi"]}"#,
                    r#"{"status":"failed","error":{"code":"server_error","message":"boom"}}"#,
                    r#"{"status":"failed","error":null}"#,
                    r#"{"error":{"message":"busy","type":"server_error","code":"server_is_overloaded"}}"#,
                    "[1,2",
                ],
            ),
        );
        snapshot(
            "messages_bodies",
            table(
                Format::Messages,
                &[
                    r#"{"type":"message","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":2}}"#,
                    r#"{"content":[],"stop_reason":"end_turn"}"#,
                    r#"{"content":[{"type":"text","text":""}],"stop_reason":"stop_sequence"}"#,
                    r#"{"content":[],"stop_reason":"max_tokens"}"#,
                    r#"{"content":[{"type":"tool_use","id":"t","name":"f","input":{}}],"stop_reason":"tool_use"}"#,
                    r#"{"content":[{"type":"thinking","thinking":"Hm"}],"stop_reason":"end_turn"}"#,
                    r#"{"content":7}"#,
                    r#"{"content":"Hi"}"#,
                    r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#,
                    "<html></html>",
                ],
            ),
        );
        snapshot(
            "other_bodies",
            table(
                Format::Embeddings,
                &[
                    r#"{"data":[{"embedding":[0.25,-0.5,1e-3]}],"usage":{"prompt_tokens":3,"total_tokens":3}}"#,
                    r#"{"data":[{"embedding":"AAAA"}]}"#,
                    r#"{"data":"no"}"#,
                    r#"{"data":[7]}"#,
                    r#"{"data":[{"embedding":7}]}"#,
                    r#"{"error":{"message":"busy","type":"server_error"}}"#,
                ],
            ) + &table(
                Format::CountTokens,
                &[
                    r#"{"input_tokens":12}"#,
                    r#"{"input_tokens":"12"}"#,
                    "{}",
                    "12",
                    r#"{"type":"error","error":{"type":"api_error","message":"busy"}}"#,
                ],
            ) + &table(Format::Images, &["", r#"{"data":[]}"#])
                + &table(Format::Raw, &["anything"]),
        );
    }

    #[test]
    fn structured_answers_are_checked_by_their_text_g17() {
        let chat = |content: &str| format!(r#"{{"choices":[{{"message":{{"content":{content}}}}}]}}"#);
        let ok = |content: &str| is_structured_ok(Format::Chat, chat(content).as_bytes());
        assert!(
            ok(r#""{\"a\":1}""#)
                && ok(r#"" [] ""#)
                && ok(r#"[{"type":"text","text":"{}"}]"#)
                && ok("null")
                && ok(r#""""#)
        );
        assert!(!ok(r#""sorry""#) && !ok(r#""```json\n{}\n```""#) && !ok(r#""{\"a\":""#));
        let second = r#"{"choices":[{"message":{"content":"{}"}},{"message":{"content":"no"}}]}"#;
        assert!(!is_structured_ok(Format::Chat, second.as_bytes()));
        let responses = |text: &str| {
            format!(
                r#"{{"output":[{{"type":"reasoning","content":[{{"type":"reasoning_text","text":"Hm"}}]}},{{"type":"message","content":[{{"type":"output_text","text":"{text}"}}]}}]}}"#
            )
        };
        assert!(is_structured_ok(Format::Responses, responses("{}").as_bytes()));
        assert!(!is_structured_ok(Format::Responses, responses("no").as_bytes()));
        assert!(!is_structured_ok(
            Format::Messages,
            br#"{"content":[{"type":"text","text":"{"},{"type":"text","text":"no"}]}"#
        ));
    }

    #[test]
    fn the_text_of_an_answer_is_its_parts_joined() {
        let text = |format, body: &str| content_text(format, body.as_bytes());
        assert_eq!(
            text(Format::Chat, r#"{"choices":[{"message":{"content":"Hi"}},{"message":{"content":"Ho"}}]}"#).as_deref(),
            Some("Hi")
        );
        assert_eq!(text(Format::Messages, r#"{"content":[{"type":"thinking","thinking":"Hm"},{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#).as_deref(), Some("ab"));
        assert_eq!(
            [text(Format::Chat, "{}"), text(Format::Chat, "no"), text(Format::Embeddings, "{}")],
            [None, None, None]
        );
    }

    proptest::proptest! {
        #[test]
        fn no_document_makes_anything_panic(
            template in proptest::sample::select(alloc::vec![
                r#"{"choices":[{"index":@,"message":{"role":"assistant","content":@,"tool_calls":@},"finish_reason":@}],"usage":@,"error":@}"#,
                r#"{"status":@,"output":[{"type":@,"content":[{"type":@,"text":@}],"summary":@,"arguments":@}],"usage":{"total_tokens":@},"error":@}"#,
                r#"{"type":@,"content":[{"type":@,"text":@,"input":@,"citations":@}],"stop_reason":@,"usage":{"output_tokens":@},"error":{"type":@,"message":@,"code":@}}"#,
                r#"{"data":[{"embedding":@}],"input_tokens":@,"response":{"error":@},"choices":@,"output":@,"object":@}"#,
            ]),
            fills in proptest::collection::vec(proptest::sample::select(alloc::vec![
                "null", "true", "0", "-1", "1e400", "\"\"", "\"error\"", "\"text\"", "\"\\ud83d\"", "[]", "[[]]", "[7]", "{}", "{\"a\":1}", "[{}]", "{", "\"stop\"", "\"completed\"",
            ]), 12),
        ) {
            let mut fills = fills.iter();
            let body: String = template.split('@').flat_map(|part| [part, fills.next().copied().unwrap_or("1")]).collect();
            let body = body.strip_suffix('1').unwrap_or(&body);
            for format in Format::ALL {
                let _ = (inspect(format, body.as_bytes()), content_text(format, body.as_bytes()), is_structured_ok(format, body.as_bytes()));
                let _ = (crate::wire::bridge::as_stream(format, body.as_bytes(), true), error::fits(format.dialect(), body.as_bytes()));
                let mut reader = crate::wire::stream::StreamReader::new(format);
                let _ = (reader.next(&mut format!("data: {body}\n\n").as_bytes()), reader.finish());
            }
            let _ = (error::from_body(500, body.as_bytes()), crate::wire::haystack::of_body(body.as_bytes()));
        }
    }
}
