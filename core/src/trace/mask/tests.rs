//! Redaction: what stays, what goes, and that nothing that decides depends on what goes.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use proptest::prelude::*;
use proptest::sample::select;

use super::{Masker, masked};
use crate::wire::sniff::{Sniffed, sniff};
use crate::wire::stream::StreamReader;
use crate::wire::{Dialect, Event, Format, Kind, Verdict, body, error, json};

fn shown(text: &str) -> String {
    String::from_utf8(masked(text.as_bytes())).unwrap()
}

#[test]
fn texts_go_and_what_decides_stays() {
    let table = [
        // A chat stream.
        "data: {\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"model\":\"up/m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hi, Bob!\"},\"finish_reason\":null}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"t\",\"function\":{\"name\":\"find\",\"arguments\":\"{\\\"who\\\":\\\"Bob\\\"}\"}}]},\"finish_reason\":\"stop\"}],\"usage\":{\"total_tokens\":27}}\r\n\r\n",
        ": hello\nretry: 500\ndata: [DONE]\n\n",
        // Other protocols.
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"find\",\"input\":{\"Bob\":{\"age\":405.10,\"type\":\"Bob\"}}}}\n\n",
        "{\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"Bob\",\"annotations\":[{\"type\":\"Bob\"}]}]}]}",
        "{\"data\":[{\"index\":1,\"embedding\":[0.25,-1e-7]}]}",
        // Errors.
        "{\"error\":{\"message\":\"No, Bob\",\"type\":\"rate_limit_error\",\"code\":\"too many Bobs\",\"status\":429}}",
        "<html>\n<h1>502 Bad Gateway</h1>",
        // Escapes: as long when decoded and written again.
        "{\"content\":\"a\\nb\\\"\\u00e9\\u5bb9\\ud83d\\ude42\\u0041é容🙂\"}",
        "{\"ty\\u0070e\":\"err\\u006fr\",\"model\":\"a\\/b c\"}",
    ];
    let shown: Vec<String> = table.iter().map(|text| shown(text).escape_debug().to_string()).collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn a_document_that_breaks_is_text_from_there_on() {
    assert_eq!(shown("{\"model\":\"m\"} and Bob"), "{\"model\":\"m\"} *** ***");
    assert_eq!(
        shown("{\"model\":\ndata: {\"model\":\"m\",\"x\":\"Bob\"}\n\n"),
        "{\"model\":\ndata: {\"model\":\"m\",\"x\":\"***\"}\n\n"
    );
    assert_eq!(
        shown("data: {\"model\" Bob\ndata: \"model\n\ndata: {\"role\":\"a\"}"),
        "data: {\"model\" ***\ndata: \"*****\n\ndata: {\"role\":\"a\"}"
    );
    assert_eq!(shown("dataset: Bob\nevent: no word\nid: 7"), "data***: ***\nevent: no ****\nid: 7");
}

#[test]
fn what_is_no_utf8_stays_none() {
    for (text, expected) in [
        (&b"\"\xc3\xa9\""[..], &b"\"\xc3\x97\""[..]),
        (b"\"\xc3\"", b"\"\xc3\""),
        (b"\"\xe0\x80\x80\"", b"\"\xe2\xff\x80\""),
        (b"\"\xed\xa0\x80\"", b"\"\xe2\xff\x80\""),
        (b"\"\xf0\x9f\x99\x82\xbf\xff\"", b"\"\xf0\x9f\x9f\xa6\x80\xff\""),
    ] {
        assert_eq!(masked(text), expected);
    }
}

/// Pieces of answers: what protocols say, and what breaks them.
const PIECES: [&str; 73] = [
    "data: ",
    "data:",
    "data",
    "event: ",
    "event: error\n",
    "event: message_stop\n",
    ": c\n",
    "id: 1\n",
    "retry: 5\n",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "\u{feff}",
    " ",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    "\\\"",
    "\\n",
    "\\u00e9",
    "\\ud83d",
    "\\u0065",
    "\\u006",
    "\":",
    ",",
    ":",
    "null",
    "true",
    "0",
    "01",
    "-1.50",
    "1e400",
    "429",
    "wombat",
    "no way",
    "容",
    "🙂",
    "<html>",
    "[DONE]",
    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"",
    "\"},\"finish_reason\":null}]}",
    "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"wombat\"}}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"total_tokens\":12}}\n\n",
    "{\"id\":\"c\",\"choices\":[{\"message\":{\"content\":\"wombat\"},\"finish_reason\":\"stop\"}],\"usage\":{\"total_tokens\":5}}",
    "{\"choices\":[{\"message\":{\"content\":\"\",\"name\":\"x\"},\"finish_reason\":\"stop\"}]}",
    "{\"error\":{\"message\":\"wombat\",\"type\":\"server_error\",\"code\":\"rate_limit_exceeded\"}}",
    "{\"error\":\"wombat\"}",
    "{\"error\":null}",
    "{\"error\":{}}",
    "{\"object\":\"error\",\"message\":\"w\",\"code\":400}",
    "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"w\"}}",
    "[{\"error\":{\"code\":503}}]",
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[],\"usage\":{\"input_tokens\":3}}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"wombat\"}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\",\"input\":{\"a\":1}}}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":3}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    "event: ping\ndata: wombat\n\n",
    "{\"type\":\"message\",\"content\":[{\"type\":\"text\",\"text\":\"wombat\"}],\"stop_reason\":\"end_turn\",\"usage\":{\"input_tokens\":0,\"output_tokens\":0}}",
    "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":3,\"response\":{\"status\":\"in_progress\",\"output\":[]}}\n\n",
    "data: {\"type\":\"response.output_text.delta\",\"delta\":\"wombat\",\"sequence_number\":4}\n\n",
    "data: {\"type\":\"response.output_item.added\",\"item\":{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"\"}]}}\n\n",
    "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[{\"type\":\"function_call\"}],\"usage\":{\"total_tokens\":9}}}\n\n",
    "{\"status\":\"completed\",\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"wombat\",\"annotations\":[]}]}]}",
    "{\"data\":[{\"embedding\":[0.5,1]}],\"usage\":{\"prompt_tokens\":2}}",
    "{\"input_tokens\":12}",
    "{\"choices\":[{\"delta\":{\"wombat\":{\"content\":[]}}}]}",
];

fn answers() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        20 => select(PIECES.as_slice()).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 1..4),
    ];
    proptest::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

/// What the reader says of a stream.
type Read = (Vec<(Event, u64)>, bool, Option<u32>, Option<&'static str>, bool);

/// Reads a stream, but for what an error's words mean.
fn events(format: Format, bytes: &[u8]) -> Read {
    let mut reader = StreamReader::new(format);
    let mut rest = bytes;
    let mut events = Vec::new();
    while let Some(event) = reader.next(&mut rest) {
        events.push((wordless(event), reader.next_sequence()));
    }
    if let Some(event) = reader.finish() {
        events.push((wordless(event), reader.next_sequence()));
    }
    (events, reader.complete(), reader.tokens(), reader.silent(), reader.any_event())
}

fn wordless(mut event: Event) -> Event {
    if let Kind::Error(fact) = &mut event.kind {
        **fact = crate::wire::ErrorFact::default();
    }
    event
}

fn verdict(format: Format, bytes: &[u8]) -> Verdict {
    match body::inspect(format, bytes) {
        Verdict::Error(_) => Verdict::Error(Default::default()),
        other => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// The law that replay stands on.
    #[test]
    fn the_wire_reads_the_same_of_a_masked_answer(bytes in answers()) {
        let hidden = masked(&bytes);
        prop_assert_eq!(hidden.len(), bytes.len());
        for format in Format::ALL {
            prop_assert_eq!(events(format, &bytes), events(format, &hidden), "{:?}: {}", format, String::from_utf8_lossy(&hidden));
            prop_assert_eq!(verdict(format, &bytes), verdict(format, &hidden));
        }
        for dialect in [Dialect::OpenAi, Dialect::Anthropic] {
            prop_assert_eq!(error::fits(dialect, &bytes), error::fits(dialect, &hidden));
        }
        for label in [None, Some("text/event-stream"), Some("application/json")] {
            for end in 0..=bytes.len().min(20) {
                let look = |bytes: &[u8]| -> (Sniffed, Sniffed) {
                    (sniff(label, &bytes[..end], false), sniff(label, &bytes[..end], true))
                };
                prop_assert_eq!(look(&bytes), look(&hidden), "{:?}", &bytes[..end]);
            }
        }
    }

    #[test]
    fn validity_line_ends_and_lengths_stay(bytes in answers()) {
        let hidden = masked(&bytes);
        prop_assert_eq!(json::is_valid(&bytes), json::is_valid(&hidden));
        let parses = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).is_ok();
        prop_assert_eq!(parses(&bytes), parses(&hidden));
        prop_assert_eq!(core::str::from_utf8(&bytes).is_ok(), core::str::from_utf8(&hidden).is_ok());
        let ends = |bytes: &[u8]| -> Vec<usize> { (0..bytes.len()).filter(|at| matches!(bytes[*at], b'\n' | b'\r')).collect() };
        prop_assert_eq!(ends(&bytes), ends(&hidden));
    }

    #[test]
    fn chunks_make_no_difference_and_twice_is_once(bytes in answers(), cuts in proptest::collection::vec(0usize..200, 0..8)) {
        let whole = masked(&bytes);
        let mut chunked = bytes.clone();
        let mut masker = Masker::new();
        let mut rest = chunked.as_mut_slice();
        for cut in cuts {
            let (chunk, after) = rest.split_at_mut(cut.min(rest.len()));
            masker.mask(chunk);
            rest = after;
        }
        masker.mask(rest);
        prop_assert_eq!(String::from_utf8_lossy(&chunked), String::from_utf8_lossy(&whole));
        let twice = masked(&whole);
        prop_assert_eq!(String::from_utf8_lossy(&twice), String::from_utf8_lossy(&whole));
    }

    /// A word of content is a word under a key that is no machine word, or in text that is no JSON.
    #[test]
    fn no_word_of_content_survives(word in "[a-z]{4,12}|[α-ω]{3,9}", before in ".{0,6}", after in ".{0,6}", deep in any::<bool>()) {
        // A part of a protocol's own word is no content.
        prop_assume!(!"choices delta reasoning refusal content_block_start tool_use input output arguments metadata message param details error".contains(&*word));
        let said = alloc::format!("{before} {word} {after}");
        let text = serde_json::Value::from(said.as_str());
        let input = if deep { serde_json::json!({&word: {"type": &word, "content": [&word]}}) } else { text.clone() };
        for answer in [
            serde_json::json!({"choices": [{"delta": {"content": &text, "reasoning": &text, "refusal": [&text]}}]}),
            serde_json::json!({"type": "content_block_start", "content_block": {"type": "tool_use", "input": input}}),
            serde_json::json!({"output": [{"content": [{"text": &text}], "arguments": &text, "metadata": {"id": &text}}]}),
            serde_json::json!({"error": {"message": &text, "param": null, "details": [&text]}}),
        ] {
            let (plain, escaped) = (answer.to_string(), answer.to_string().replace(&word, &escapes(&word)));
            for answer in [plain.clone(), escaped, alloc::format!("data: {plain}\n\n"), alloc::format!("x {said}\n{plain}")] {
                let hidden = String::from_utf8_lossy(&masked(answer.as_bytes())).into_owned();
                prop_assert!(!hidden.contains(&word) && !hidden.contains(&escapes(&word)), "{answer} became {hidden}");
            }
        }
    }
}

fn escapes(word: &str) -> String {
    word.chars().map(|c| alloc::format!("\\u{:04x}", u32::from(c))).collect()
}
