//! What each event of each protocol is, as tables, and the laws of the reader.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use proptest::prelude::*;

use super::*;

/// One line per event: what it is, and its data; then what the reader says at the end of the stream.
fn table(format: Format, events: &[&str]) -> String {
    let mut out = String::new();
    for event in events {
        // Each in a stream of its own, so that a terminal does not hide the ones after it.
        let mut reader = StreamReader::new(format);
        let block = if event.contains('\n') { format!("{event}\n\n") } else { format!("data: {event}\n\n") };
        let seen = reader.next(&mut block.as_bytes()).expect("one event");
        let end = if seen.terminal { " end" } else { "" };
        writeln!(out, "{:<28} {}", kind(&seen.kind) + end, event.replace('\n', "⏎")).expect("a string");
    }
    out
}

#[track_caller]
fn snapshot(name: &str, table: String) {
    insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, { insta::assert_snapshot!(name, table) });
}

fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Error(fact) => format!("Error {} {}", fact.status, fact.message),
        other => format!("{other:?}"),
    }
}

fn delta(delta: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
}

fn finish(reason: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":{reason}}}]}}"#)
}

fn data(events: &[&str]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// The kinds of all events of a stream given at once, and the reader behind its end.
fn run(format: Format, stream: &str) -> (Vec<Event>, StreamReader) {
    let mut reader = StreamReader::new(format);
    let mut input = stream.as_bytes();
    let mut events: Vec<Event> = core::iter::from_fn(|| reader.next(&mut input)).collect();
    events.extend(reader.finish());
    (events, reader)
}

fn kinds(format: Format, stream: &str) -> Vec<String> {
    run(format, stream).0.iter().map(|event| kind(&event.kind)).collect()
}

#[test]
fn chat_events_f15() {
    let deltas: Vec<String> = [
        "{}",
        "null",
        r#"{"role":"assistant"}"#,
        r#"{"role":"assistant","content":""}"#,
        r#"{"content":null,"refusal":null}"#,
        r#"{"content":"","tool_calls":[]}"#,
        r#"{"content":" "}"#,
        r#"{"content":"Hi"}"#,
        r#"{"\u0063ontent":"Hi"}"#,
        r#"{"content":[{"type":"text","text":"Hi"}]}"#,
        r#"{"refusal":"No"}"#,
        r#"{"reasoning":"Let"}"#,
        r#"{"reasoning_content":"Let"}"#,
        r#"{"reasoning_details":[]}"#,
        r#"{"thoughts":"Hm"}"#,
        r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]}"#,
        r#"{"function_call":{"name":"f"}}"#,
        r#"{"audio":{"id":"a","data":"UklG"}}"#,
        r#"{"audio":{}}"#,
        r#"{"content":7}"#,
        r#"{"tool_calls":{}}"#,
        r#"{"refusal":[]}"#,
        r#""Hi""#,
        "[]",
    ]
    .map(delta)
    .to_vec();
    let finishes = [
        "null",
        r#""""#,
        r#""stop""#,
        r#""end_turn""#,
        r#""STOP""#,
        r#""length""#,
        r#""tool_calls""#,
        r#""content_filter""#,
        r#""error""#,
        "1",
    ]
    .map(finish);
    let others = [
        r#"{"choices":[],"usage":{"total_tokens":11}}"#,
        r#"{"choices":null}"#,
        "{}",
        r#"{"error":null,"choices":[]}"#,
        r#"{"choices":[],"prompt_filter_results":[{}]}"#,
        r#"{"choices":[{"index":0,"finish_reason":null,"content_filter_results":{}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}"#,
        r#"{"choices":[{"text":"Hi","index":0}]}"#,
        r#"{"choices":[{"message":{"content":"Hi"}}]}"#,
        "[DONE]",
        " [DONE] ",
        "",
        r#"{"choices":"none"}"#,
        r#"{"choices":["none"]}"#,
        r#"{"choices":[{"index":"0"}]}"#,
        r#"{"choices":[],"usage":"none"}"#,
        r#"{"bad"#,
        "Hi",
        "7",
        "null",
        "[]",
        r#"{"error":{"message":"boom","type":"server_error","code":null}}"#,
        r#"{"error":"boom"}"#,
        r#"{"object":"error","message":"boom","code":400}"#,
        r#"[{"error":{"message":"boom","code":503}}]"#,
        r#"{"error":{"message":"boom"},"choices":"none"}"#,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"boom"}}"#,
        "event: error\ndata: {\"message\":\"boom\",\"code\":\"server_error\"}",
        "event: error\ndata: boom",
        "event: error\ndata",
        "event: error\nretry: 1",
        "event: ping\ndata: {}",
        "event: ping\ndata: 1760000000",
        "event: ping\nid: 7",
        ": hi\n: ho",
        "retry: 3000\nid: 7",
        "data: {\"choices\":[\ndata: {\"delta\":{\"content\":\"Hi\"}}]}",
    ];
    let all: Vec<&str> = deltas.iter().chain(&finishes).map(String::as_str).chain(others).collect();
    snapshot("chat_events", table(Format::Chat, &all));
}

#[test]
fn responses_events_f15() {
    snapshot(
        "responses_events",
        table(
            Format::Responses,
            &[
                r#"{"type":"response.created","sequence_number":0,"response":{"id":"r","status":"in_progress","error":null,"output":[],"usage":null}}"#,
                r#"{"type":"response.queued","response":{"status":"queued"}}"#,
                r#"{"type":"response.in_progress","response":{"status":"in_progress"}}"#,
                r#"{"type":"response.output_item.added","item":{"type":"message","content":[]}}"#,
                r#"{"type":"response.output_item.added","item":{"type":"reasoning","summary":[],"encrypted_content":"gAAA"}}"#,
                r#"{"type":"response.output_item.added","item":{"type":"message","content":[{"type":"output_text","text":"Hi"}]}}"#,
                r#"{"type":"response.output_item.done","item":{"type":"reasoning","summary":[{"type":"summary_text","text":"Hm"}]}}"#,
                r#"{"type":"response.output_item.added","item":{"type":"function_call","name":"f","arguments":""}}"#,
                r#"{"type":"response.output_item.added","item":{"type":"image_generation_call","result":null}}"#,
                r#"{"type":"response.content_part.added","part":{"type":"output_text","text":"","annotations":[]}}"#,
                r#"{"type":"response.content_part.added","part":{"type":"output_text","text":"Hi","annotations":[]}}"#,
                r#"{"type":"response.reasoning_summary_part.added","part":{"type":"summary_text","text":""}}"#,
                r#"{"type":"response.output_text.delta","delta":""}"#,
                r#"{"type":"response.output_text.delta","delta":"Hi"}"#,
                "event: response.output_text.delta\ndata: {\"delta\":\"Hi\"}",
                r#"{"type":"response.refusal.delta","delta":"No"}"#,
                r#"{"type":"response.function_call_arguments.delta","delta":"{"}"#,
                r#"{"type":"response.reasoning_text.delta","delta":"Hm"}"#,
                r#"{"type":"response.output_text.done","text":"Hi"}"#,
                r#"{"type":"response.image_generation_call.partial_image","partial_image_b64":"aGk="}"#,
                r#"{"type":"response.image_generation_call.in_progress","item_id":"i"}"#,
                r#"{"type":"response.unknown_thing"}"#,
                "{}",
                r#"{"type":"response.completed","response":{"status":"completed","error":null,"output":[]}}"#,
                "event: response.incomplete\ndata: {\"response\":{\"status\":\"incomplete\"}}",
                r#"{"type":"response.completed","response":{"status":"failed","error":null}}"#,
                r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"boom"}}}"#,
                r#"{"type":"response.failed","response":{}}"#,
                r#"{"type":"error","code":"server_is_overloaded","message":"boom","param":null}"#,
                r#"{"type":"error","error":{"type":"service_unavailable_error","code":"server_is_overloaded","message":"boom"}}"#,
                r#"{"error":{"message":"boom","type":"tokens","code":"rate_limit_exceeded"}}"#,
                "[DONE]",
                r#"{"type":7}"#,
                r#"{"type":"response.created","response":"r"}"#,
                r#"{"type":"response.output_item.added","item":"i"}"#,
                r#"{"bad"#,
            ],
        ),
    );
}

#[test]
fn messages_events_f15() {
    snapshot(
        "messages_events",
        table(
            Format::Messages,
            &[
                r#"{"type":"message_start","message":{"content":[],"stop_reason":null,"usage":{"input_tokens":9,"output_tokens":1}}}"#,
                r#"{"type":"message_start","message":{"content":[{"type":"text","text":"Hi"}]}}"#,
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"thinking","thinking":"","signature":""}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"text","text":"Hi"}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"redacted_thinking","data":"Emw"}}"#,
                r#"{"type": "ping"}"#,
                r#"{"type":"content_block_stop","index":0}"#,
                r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":""}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"Hi"}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"Hm"}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":""}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{"}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"signature_delta","signature":"Ew"}}"#,
                "event: content_block_delta\ndata: {\"delta\":{\"text\":\"Hi\"}}",
                r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":2}}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"stop_sequence","stop_sequence":"3"}}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"refusal"}}"#,
                r#"{"type":"message_stop"}"#,
                "event: message_stop\ndata: {}",
                r#"{"type":"future_event"}"#,
                "[DONE]",
                "event: future_event\ndata: no JSON",
                "no JSON",
                "event: message_stop\ndata: {\"type\":\"mess",
                r#"{"type":"error","error":{"type":"overloaded_error","message":"boom"}}"#,
                r#"{"type":"error","error":{"type":"brand_new_error","message":"boom"}}"#,
                r#"{"error":{"message":"boom","code":"rate_limit_exceeded"}}"#,
                "event: error\ndata: {\"type\":\"error\",\"message\":\"boom\"}",
                r#"{"type":"message_start","message":{"content":7}}"#,
                r#"{"type":"content_block_delta","delta":"Hi"}"#,
                r#"{"type":"content_block_delta","delta":{"text":{}}}"#,
                r#"{"type":"content_block_start","content_block":7}"#,
            ],
        ),
    );
}

#[test]
fn image_streams_never_end_and_are_never_malformed() {
    snapshot(
        "images_events",
        table(
            Format::Images,
            &[
                r#"{"type":"image_generation.partial_image","b64_json":"aGk="}"#,
                r#"{"type":"image_generation.completed","b64_json":"aGk="}"#,
                "[DONE]",
                "no JSON",
                "{}",
                r#"{"error":{"message":"boom","code":"server_error"}}"#,
            ],
        ),
    );
    assert!(StreamReader::new(Format::Images).complete());
}

#[test]
fn a_chat_is_complete_when_every_started_choice_is_finished() {
    let choice = |index: u8, content: &str, reason: &str| {
        format!(r#"{{"choices":[{{"index":{index},"delta":{{"content":"{content}"}},"finish_reason":{reason}}}]}}"#)
    };
    let complete = |events: &[&str]| run(Format::Chat, &data(events)).1.complete();
    let (a, b) = (choice(0, "a", "null"), choice(1, "b", "null"));
    let (end_a, end_b) = (choice(0, "", r#""stop""#), choice(1, "", r#""length""#));
    assert!(!complete(&[]) && !complete(&[&a]) && !complete(&["{}"]));
    assert!(complete(&[&a, &end_a]) && complete(&[&end_a]));
    assert!(!complete(&[&a, &b, &end_a]) && complete(&[&a, &b, &end_b, &end_a]));
    assert!(complete(&[&a, &b, &end_a, "[DONE]"]));
    let role_b = r#"{"choices":[{"index":1,"delta":{"role":"assistant","content":""}}]}"#;
    assert!(!complete(&[&a, role_b, &end_a]), "a role starts a choice");
    let both = r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"},{"delta":{"content":"b"}}]}"#;
    assert!(!complete(&[both]));
}

#[test]
fn done_after_a_finish_ends_a_chat_and_what_follows_is_dropped() {
    let (hi, stop) = (delta(r#"{"content":"Hi"}"#), finish(r#""stop""#));
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}"#;
    let stream = data(&[&hi, &stop, &stop, usage, "[DONE]", "[DONE]", &hi]);
    let (events, reader) = run(Format::Chat, &stream);
    let seen: Vec<String> = events.iter().map(|event| kind(&event.kind)).collect();
    assert_eq!(seen, ["Content", "PlainStop", "Opener", "Opener", "Last"]);
    assert_eq!((reader.tokens(), reader.complete(), reader.silent()), (Some(11), true, None));
    assert_eq!((reader.offset(), reader.whole()), (stream.len() as u64, events[4].end));
}

#[test]
fn the_last_event_without_its_blank_line_counts_if_it_is_whole_m5() {
    let stop = data(&[&finish(r#""stop""#)]);
    for (tail, closing) in
        [("data: [DONE]", "\n\n"), ("data: [DONE]\n", "\n"), ("data: [DONE]\r", "\n\n"), ("data: {}\n: c", "\n\n")]
    {
        let stream = format!("{stop}{tail}");
        let (events, reader) = run(Format::Chat, &stream);
        assert_eq!(events.len(), 2, "{tail:?}");
        assert_eq!((reader.closing(), reader.whole()), (closing.as_bytes(), stream.len() as u64));
        let mut closed = StreamReader::new(Format::Chat);
        let text = format!("{stream}{closing}");
        let mut input = text.as_bytes();
        assert_eq!(core::iter::from_fn(|| closed.next(&mut input)).count(), 2);
    }
    for torn in [
        "data: {\"choices\":[",
        "data: [DON",
        "event: error\n",
        "data: {}\ndata: {",
        ": c",
        "dat",
        "data",
        "data: \"\u{e9}",
    ] {
        let (events, mut reader) = run(Format::Chat, &format!("{stop}{torn}"));
        assert_eq!(
            (events.len(), reader.closing(), reader.whole()),
            (1, b"".as_slice(), stop.len() as u64),
            "{torn:?}"
        );
        assert_eq!(reader.finish(), None);
    }
}

#[test]
fn comments_alone_are_no_event_and_empty_data_is_one() {
    let any = |stream: &str| run(Format::Chat, stream).1.any_event();
    assert!(!any("") && !any("\n") && !any(": hi\n\nretry: 1\n\nevent: x\n\n data: {}\n\n"));
    assert!(any("data\n\n") && any("data: {}"));
}

#[test]
fn responses_number_their_next_event() {
    let (_, reader) = run(Format::Responses, &data(&[r#"{"type":"a","sequence_number":6}"#, r#"{"type":"b"}"#]));
    assert_eq!((reader.next_sequence(), reader.complete()), (7, false));
    assert_eq!(StreamReader::new(Format::Responses).next_sequence(), 0);
}

#[test]
fn messages_tell_their_tokens_in_two_events() {
    let (_, reader) = run(
        Format::Messages,
        &data(&[
            r#"{"type":"message_start","message":{"usage":{"input_tokens":9,"cache_read_input_tokens":100,"output_tokens":1}}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":20}}"#,
        ]),
    );
    assert_eq!((reader.tokens(), reader.complete()), (Some(129), false));
}

#[test]
fn silent_failures_of_streams_are_told_m3() {
    let silent = |format, events: &[&str]| run(format, &data(events)).1.silent();
    assert_eq!(
        silent(Format::Responses, &[r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#]),
        Some("no_output")
    );
    assert_eq!(silent(Format::Responses, &[r#"{"type":"response.incomplete","response":{"output":[]}}"#]), None);
    assert_eq!(
        silent(Format::Chat, &[r#"{"choices":[],"usage":{"prompt_tokens":0,"total_tokens":0}}"#]),
        Some("no_usage")
    );
    assert_eq!(silent(Format::Chat, &[r#"{"choices":[],"usage":null}"#]), None);
}

#[test]
fn an_error_ends_the_stream_and_a_malformed_event_leaves_no_trace() {
    let boom = r#"{"error":{"message":"boom","code":503}}"#;
    assert_eq!(kinds(Format::Chat, &data(&[boom, "[DONE]"])), ["Error 503 boom"]);
    let half = r#"{"choices":[{"index":3,"delta":{"content":"x"}},7]}"#;
    let (_, reader) = run(Format::Chat, &data(&[&finish(r#""stop""#), half]));
    assert!(reader.complete());
}

/// The events of a stream fed in slices, each end taken behind the LF that comes late.
fn chunked(format: Format, stream: &[u8], sizes: &[usize]) -> (Vec<(String, u64, bool)>, [u64; 2], bool) {
    let mut reader = StreamReader::new(format);
    let mut seen = Vec::new();
    let (mut rest, mut turn) = (stream, 0);
    let late = |end: u64| end + u64::from(stream.get(end as usize - 1..=end as usize) == Some(b"\r\n"));
    while !rest.is_empty() {
        let size = if sizes.is_empty() { rest.len() } else { sizes[turn % sizes.len()] };
        let (mut slice, after) = rest.split_at(size.clamp(1, rest.len()));
        (rest, turn) = (after, turn + 1);
        while let Some(event) = reader.next(&mut slice) {
            seen.push((kind(&event.kind), late(event.end), event.terminal));
        }
    }
    seen.extend(reader.finish().map(|event| (kind(&event.kind), event.end, event.terminal)));
    (seen, [reader.whole(), reader.offset()], reader.complete())
}

proptest! {
    #[test]
    fn any_chunking_tells_the_same_events(
        pieces in proptest::collection::vec(prop_oneof![
            Just(r#"data: {"choices":[{"index":0,"delta":{"content":"é🙂"}}]}"#), Just(r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}]}"#), Just("data: [DONE]"),
            Just("data:"), Just("data: {\"type\":\"message_stop\"}"), Just("data: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}"), Just("event: error"), Just("data: {\"choices\":["), Just("data: ]}"), Just(": c"), Just("\u{feff}"),
            Just("\n"), Just("\r"), Just("\r\n"), Just("\n\n"), Just("\r\r"), Just("\r\n\r\n"),
        ], 0..30),
        sizes in proptest::collection::vec(1_usize..40, 1..20),
        format in prop_oneof![Just(Format::Chat), Just(Format::Responses), Just(Format::Messages), Just(Format::Images)],
    ) {
        let stream = pieces.concat();
        let whole = chunked(format, stream.as_bytes(), &[]);
        prop_assert_eq!(&chunked(format, stream.as_bytes(), &[1]), &whole);
        prop_assert_eq!(&chunked(format, stream.as_bytes(), &sizes), &whole);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), sizes in proptest::collection::vec(1_usize..9, 1..5)) {
        for format in Format::ALL {
            let _ = chunked(format, &bytes, &sizes);
        }
    }
}
