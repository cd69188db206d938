//! X7, X8: a recorded call, redacted or not, does the same again; no key and, redacted, no word gets into the file.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};

use proptest::prelude::{Just, ProptestConfig, any, prop_oneof, proptest};
use proptest::strategy::Strategy as Draw;

use super::{calls, traced, traced_plan};
use crate::call::tests::harness::{
    DONE, OVERLOADED, ROLE, STOP, Step, World, answer_body, body, delta, error, limited, sse,
};
use crate::event::{CancelCause, End, Fault, Input, What};
use crate::policy::config::TraceMode;
use crate::policy::{EmptyCompletion, Phrase, Rules, StopRule, rules};
use crate::pool::Strategy;
use crate::time::{Span, Time};
use crate::trace::{Entry, replay};
use crate::wire::Format;

const SECRET: &str = "sk-very-secret";
/// A word of content: in every script that follows, and in no redacted trace.
const WORD: &str = "wombat";

/// Runs the world twice, records it redacted and in full, and replays both.
#[track_caller]
fn check(name: &str, world: impl Fn() -> World) {
    check_cancelled(name, world, None);
}

#[track_caller]
fn check_cancelled(name: &str, world: impl Fn() -> World, cancel: Option<(Time, CancelCause)>) {
    let mut ends = Vec::new();
    for mode in [TraceMode::Full, TraceMode::Redacted] {
        let (outcome, file) = traced(&mut world(), mode, cancel);
        check_file(name, mode, &file);
        let recorded = &calls(&file)[0];
        let done = recorded.entries.iter().filter(|entry| matches!(entry, Entry::Do(..)));
        assert_eq!(done.count(), outcome.actions.len(), "{name}: every action has its line");
        ends.push(format!("{:?} {:?} {:?}", outcome.end, outcome.codes, outcome.text()));
    }
    assert_eq!(ends[0], ends[1], "{name}: recording changes nothing");
}

#[track_caller]
fn check_file(name: &str, mode: TraceMode, file: &str) {
    let report = replay(file.lines());
    if let Some(difference) = report.first() {
        panic!("{name}, {mode:?}: {difference}");
    }
    assert!(report.is_clean() && report.calls == 1 && report.identical == 1, "{name}, {mode:?}: {report:?}");
    // The operator's own rules may hold the word.
    for line in file.lines().filter(|line| !line.contains("\"policy\":\"") || line.contains("\"begin\"")) {
        assert!(!line.contains(SECRET), "{name}, {mode:?}: a key in {line}");
        assert!(mode == TraceMode::Full || !line.contains(WORD), "{name}: a word in {line}");
    }
    // Put together again, what was cut over chunks tells no more.
    let said = calls(file)[0].entries.iter().fold(Vec::new(), |mut said, entry| {
        match entry {
            // Another attempt, another answer.
            Entry::In(_, Input::Head { .. }) => said.push(b'\n'),
            Entry::In(_, Input::Chunk { bytes, .. }) => said.extend_from_slice(bytes),
            _ => {}
        }
        said
    });
    let said = String::from_utf8_lossy(&said);
    assert!(!said.contains(SECRET), "{name}, {mode:?}: a key in {said}");
    assert!(mode == TraceMode::Full || !said.contains(WORD), "{name}: a word in {said}");
}

fn said(text: &str) -> String {
    format!("{WORD} {text}")
}

fn good_stream() -> Vec<Step> {
    sse(&[ROLE, &delta(WORD), &delta("\\u5bb9 \\n 容🙂"), STOP, DONE])
}

fn slowly(steps: Vec<Step>, wait_ms: u64) -> Vec<Step> {
    steps.into_iter().flat_map(|step| [Step::Wait(wait_ms), step]).collect()
}

#[test]
fn whole_answers_and_their_failures() {
    let good = || body(200, &answer_body(WORD));
    let scripts = [
        ("good", vec![good()]),
        ("500", vec![body(500, &error(WORD)), good()]),
        ("502 as text", vec![body(502, "<html>wombat is down</html>"), good()]),
        ("all fail", vec![body(503, &error(WORD)), body(500, &error(WORD))]),
        ("rejected", vec![body(400, &error(WORD)), good()]),
        ("foreign error", vec![body(422, r#"{"detail":[{"loc":["wombat"],"msg":"wombat"}]}"#)]),
        (
            "error of an object",
            vec![body(422, r#"{"error":{"message":{"aa":"wombat","bb":"wombat"},"type":"a wombat"}}"#)],
        ),
        ("limited", vec![limited("2000"), limited("3000")]),
        ("limited for too long", vec![limited("90000")]),
        ("quota in words", vec![body(429, &error("your credit balance is too low, wombat")), good()]),
        ("error behind a 200", vec![body(200, &error(WORD)), good()]),
        (
            "error told by its words",
            vec![body(200, r#"{"error":{"message":"wombat","code":"the rate limit is reached"}}"#), good()],
        ),
        ("no choices", vec![body(200, r#"{"choices":[]}"#), good()]),
        ("drifted", vec![body(200, r#"{"choices":"wombat"}"#), good()]),
        ("unreadable", vec![body(200, "wombat"), good()]),
        ("empty", vec![body(200, &answer_body(""))]),
        ("empty and nothing better", vec![body(200, &answer_body("")), body(500, &error(WORD))]),
        (
            "cut",
            vec![
                vec![Step::Head(200), Step::Say(r#"{"choices":[{"message":"#.into()), Step::Fault(Fault::Reset)],
                good(),
            ],
        ),
        ("unreachable", vec![vec![Step::Fault(Fault::Connect)], vec![Step::Fault(Fault::ConnectTimeout)]]),
        ("silent", vec![vec![Step::Wait(700_000), Step::Head(200)], good()]),
        ("redirect", vec![vec![Step::Head(302), Step::End], good()]),
    ];
    for (name, replies) in scripts {
        check(name, || World::new(replies.iter().map(|reply| vec![reply.clone()]).collect()));
    }
}

#[test]
fn streams_and_their_failures() {
    let cut = || sse(&[ROLE, &delta(WORD)]);
    let torn = || sse(&[ROLE, &delta(WORD), "data: {\"choices\":[{\"delta\":{\"content\":\"wom"]);
    let scripts = [
        ("good", vec![good_stream()]),
        ("slow", vec![slowly(good_stream(), 200)]),
        ("overloaded before output", vec![sse(&[ROLE, OVERLOADED]), good_stream()]),
        ("overloaded after output", vec![sse(&[ROLE, &delta(WORD), OVERLOADED])]),
        ("cut after output", vec![cut()]),
        ("torn", vec![torn()]),
        ("malformed after output", vec![sse(&[&delta(WORD), "data: {\"id\": wombat\n\n"])]),
        ("malformed before output", vec![sse(&[ROLE, "data: wombat\n\n"]), good_stream()]),
        ("empty", vec![sse(&[]), good_stream()]),
        ("empty completion", vec![sse(&[ROLE, STOP, DONE]), sse(&[ROLE, STOP, DONE])]),
        ("empty completion and an error", vec![sse(&[ROLE, STOP, DONE]), body(503, &error(WORD))]),
        (
            "reset before output",
            vec![vec![Step::Head(200), Step::Say(ROLE.into()), Step::Fault(Fault::Reset)], good_stream()],
        ),
        ("no first byte", vec![vec![Step::Wait(130_000), Step::Head(200)], good_stream()]),
        ("idle", vec![vec![Step::Head(200), Step::Say(delta(WORD)), Step::Wait(400_000), Step::End]]),
        ("a page", vec![body(200, "<html>wombat</html>"), good_stream()]),
        ("whole JSON", vec![body(200, &answer_body("wombat \u{e9}\n 容"))]),
        ("no blank line", vec![sse(&[ROLE, &delta(WORD), STOP, "data: [DONE]"])]),
        (
            "line ends",
            vec![sse(&[
                &delta(WORD).replace('\n', "\r\n"),
                "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\r",
                "\n\r",
                "\ndata: [DONE]\r\n\r\n",
            ])],
        ),
    ];
    for (name, replies) in scripts {
        check(name, || World::streams(replies.iter().map(|reply| vec![reply.clone()]).collect()));
    }
}

#[test]
fn every_format() {
    let messages = [
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":5}}}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"wombat\"}}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":7}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ];
    let messages_error =
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"wombat\"}}\n\n";
    let responses = [
        "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"r\",\"status\":\"in_progress\",\"output\":[]}}\n\n",
        "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":1,\"delta\":\"wombat\"}\n\n",
        "event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":2,\"response\":{\"status\":\"completed\",\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"wombat\"}]}],\"usage\":{\"total_tokens\":12}}}\n\n",
    ];
    let tool_use = r#"{"id":"m","type":"message","role":"assistant","content":[{"type":"text","text":"wombat"},{"type":"tool_use","id":"t","name":"wombat","input":{"lat":1.50,"lon":2}}],"stop_reason":"tool_use","usage":{"input_tokens":5,"output_tokens":7}}"#;
    let whole_response = r#"{"id":"r","object":"response","status":"completed","output":[{"type":"message","id":"i","role":"assistant","content":[{"type":"output_text","text":"wombat","annotations":[],"logprobs":[{"token":"wombat","logprob":-0.10,"bytes":[119,111]}]}]},{"type":"function_call","call_id":"c","name":"wombat","arguments":"{\"wombat\":1}"}],"usage":{"total_tokens":12}}"#;
    let vectors = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.25,-1.0e-7]}],"usage":{"prompt_tokens":3,"total_tokens":3}}"#;
    let picture = r#"{"created":1,"data":[{"b64_json":"d29tYmF0wombat"}]}"#;
    let anthropic_error = r#"{"type":"error","error":{"type":"overloaded_error","message":"wombat"}}"#;
    let failing = |reply: Vec<Step>| vec![vec![body(503, &error(WORD))], vec![reply]];
    let cases = [
        (Format::Messages, true, failing(sse(&messages))),
        (Format::Messages, true, vec![vec![sse(&[messages[0], messages_error])], vec![sse(&messages[..3])]]),
        (Format::Messages, true, failing(body(200, tool_use))),
        (Format::Messages, false, failing(body(200, tool_use))),
        (Format::Messages, false, vec![vec![body(529, anthropic_error)], vec![body(401, &error(WORD))]]),
        (Format::CountTokens, false, failing(body(200, r#"{"input_tokens":12}"#))),
        (Format::Responses, true, failing(sse(&responses))),
        (Format::Responses, true, failing(sse(&responses[..2]))),
        (Format::Responses, true, failing(body(200, whole_response))),
        (Format::Responses, false, failing(body(200, whole_response))),
        (Format::Embeddings, false, failing(body(200, vectors))),
        (Format::Images, false, failing(body(200, picture))),
        (
            Format::Images,
            true,
            failing(sse(&["event: image_generation.completed\ndata: {\"b64_json\":\"wombat\"}\n\n"])),
        ),
        (Format::Raw, false, failing(body(200, WORD))),
        (Format::Raw, true, failing(vec![Step::Head(200), Step::Say(WORD.into()), Step::Fault(Fault::Reset)])),
        (Format::Raw, false, vec![vec![body(503, WORD)], vec![body(404, WORD)]]),
    ];
    for (format, stream, scripts) in cases {
        check(&format!("{format:?} {stream}"), || World { format, stream, ..World::new(scripts.clone()) });
    }
}

#[test]
fn cancels_waits_and_switches() {
    let limited_once = || vec![limited("1500"), body(200, &answer_body(WORD))];
    check("waiting", || World::new(vec![limited_once()]));
    for cause in [CancelCause::ClientGone, CancelCause::ClientStalled, CancelCause::Shutdown] {
        for at in [1, 700, 4000] {
            let cancel = Some((Time::from_millis(at), cause));
            check_cancelled("while it waits", || World::new(vec![limited_once()]), cancel);
            check_cancelled("in a stream", || World::streams(vec![vec![slowly(good_stream(), 600)]]), cancel);
        }
    }
    check("first content", || {
        let mut world = World::streams(vec![vec![slowly(good_stream(), 3000)], vec![good_stream()]]);
        world.timeouts.first_content = Span::from_millis(500);
        world
    });
    check("deadline", || {
        let mut world = World::streams(vec![vec![slowly(good_stream(), 3000)]]);
        world.policy.deadline = Span::from_secs(8);
        world
    });
    check("balanced, with backoff", || {
        let mut world = World::new(vec![vec![body(502, &error(WORD))], vec![body(502, &error(WORD)), limited("800")]]);
        world.strategy = Strategy::HealthAware;
        world.policy.sticky_key_attempts = 3;
        world.policy.retry.jitter_ppm = 100_000;
        world
    });
    check("limits", || {
        let mut world = World::new((0..4).map(|_| vec![body(500, &error(WORD))]).collect());
        world.policy.max_transfer_count = 2;
        world.providers[1].max_transfer_timeout = Span::from_millis(1);
        world
    });
    check("window", || {
        let mut world = World::streams(vec![vec![sse(&[ROLE, ROLE, ROLE, ROLE, &delta(WORD), STOP, DONE])]]);
        world.policy.window.max_events = 3;
        world
    });
}

/// What only the words can tell is told by verdicts.
#[test]
fn rules_phrases_and_structured_answers() {
    let pattern = |text: &str| rules::compile(text).unwrap();
    let success = || Rules { success: vec![pattern("never"), pattern("(?i)WOMBAT.*busy")], stop: vec![] };
    let stop = || Rules {
        success: vec![],
        stop: vec![StopRule { statuses: vec![], pattern: Some(pattern("wombats? forbidden")) }],
    };
    check("success rule, whole", || {
        let mut world =
            World::new(vec![vec![body(200, &answer_body("wombat is busy"))], vec![body(200, &answer_body(WORD))]]);
        world.policy.rules = success();
        world
    });
    check("success rule, stream", || {
        let mut world =
            World::streams(vec![vec![sse(&[ROLE, &delta("a wombat, busy"), STOP, DONE])], vec![good_stream()]]);
        world.providers[0].rules = success();
        world
    });
    check("stop rule", || {
        let mut world =
            World::new(vec![vec![body(500, &error("wombat forbidden"))], vec![body(200, &answer_body(WORD))]]);
        world.policy.rules = stop();
        world
    });
    check("stop rule, stream", || {
        let refused = "data: {\"error\":{\"message\":\"wombats forbidden\",\"code\":\"server had a problem\"}}\n\n";
        let mut world = World::streams(vec![vec![sse(&[ROLE, refused])], vec![good_stream()]]);
        world.providers[0].rules = stop();
        world
    });
    check("phrase", || {
        let mut world =
            World::new(vec![vec![body(400, &error("the wombat is retired"))], vec![body(200, &answer_body(WORD))]]);
        world.providers[0].retry_on_errors = vec![Phrase::parse("400 wombat retired").unwrap()];
        world
    });
    for answers in [vec!["wombat", "{\\\"wombat\\\":1}"], vec!["wombat"], vec!["{}"]] {
        check("structured", || {
            let replies = answers.iter().map(|text| body(200, &answer_body(&text.replace("\\\"", "\"")))).collect();
            World { structured: true, ..World::new(vec![replies]) }
        });
    }
    check("empty is delivered", || {
        let mut world = World::streams(vec![vec![sse(&[ROLE, STOP, DONE])]]);
        world.policy.empty_completion = EmptyCompletion::Deliver;
        world
    });
}

/// A provider that tells its key: in a stream, in an answer, in an error, cut over chunks.
#[test]
fn a_told_key_gets_into_no_trace_and_replays() {
    let telling = answer_body(&said(SECRET));
    check("whole", || World::new(vec![vec![body(200, &telling)]]));
    check("bridged", || World::streams(vec![vec![body(200, &telling)]]));
    check("error", || World::new(vec![vec![body(500, &error(&said(SECRET)))]]));
    check("error behind a 200", || World::new(vec![vec![body(200, &error(&said(SECRET)))]]));
    check("header", || {
        World::new(vec![vec![vec![
            Step::HeadWith(503, vec![("x-ratelimit-key", SECRET), ("content-type", "text/plain")]),
            Step::Say(said(SECRET)),
            Step::End,
        ]]])
    });
    let told = [&delta(SECRET), &delta(WORD), STOP, DONE].concat();
    let error = delta(WORD) + &OVERLOADED.replace("overloaded\"", "overloaded sk-very-secret\"");
    for text in [told, error] {
        for size in [1, 2, 3, 7, 50] {
            let pieces: Vec<&str> =
                (0..text.len()).step_by(size).map(|at| &text[at..(at + size).min(text.len())]).collect();
            check("cut", || World::streams(vec![vec![sse(&pieces)]]));
        }
    }
}

#[test]
fn off_records_nothing() {
    let (outcome, file) = traced(&mut World::streams(vec![vec![good_stream()]]), TraceMode::Off, None);
    assert_eq!((outcome.end, file), (End::Complete, String::new()));
}

#[test]
fn a_call_left_in_the_middle_replays_as_far_as_it_goes() {
    let (_, file) = traced(&mut World::streams(vec![vec![good_stream()]]), TraceMode::Redacted, None);
    let lines: Vec<&str> = file.lines().collect();
    for cut in 2..lines.len() {
        let report = replay(lines[..cut].iter().copied());
        assert!(report.is_clean(), "{cut}: {report:?}");
        assert_eq!((report.calls, report.unfinished), (1, 1));
    }
}

/// X8: the first difference is shown with both sides.
#[test]
fn another_policy_shows_the_first_difference() {
    let replies = || vec![vec![body(500, &error(WORD))], vec![body(200, &answer_body(WORD))]];
    let mut world = World::new(replies());
    let (_, file) = traced(&mut world, TraceMode::Redacted, None);
    let mut recorded = calls(&file).remove(0);
    let mut route = (*recorded.route).clone();
    let mut policy = (*route.policy).clone();
    policy.max_attempts_hard = 1;
    route.policy = policy.into();
    recorded.route = route.into();
    let difference = recorded.replay().unwrap_err();
    let shown = difference.to_string();
    assert!(
        shown.starts_with(&format!("call 5 differs at line {} (step {}):", difference.line, difference.step)),
        "{shown}"
    );
    assert!(shown.contains(r#"recorded: {"v":1,"do":"ask""#), "{shown}");
    assert!(shown.contains(r#""what":"routing_transfer_limit_reached""#), "{shown}");
    assert_eq!(file.lines().nth(difference.line - 1), difference.recorded.as_deref());
}

/// F17, F18: both observations and the event codes stand in the trace, with the source's name.
#[test]
fn notices_are_told_with_their_source() {
    let mut world = World::streams(vec![vec![sse(&[ROLE, OVERLOADED])], vec![good_stream()]]);
    let (outcome, file) = traced(&mut world, TraceMode::Redacted, None);
    assert!(outcome.notices.iter().any(|what| matches!(what, What::LocalStreamCandidateRetryScheduled)));
    let line = |code: &str| file.lines().find(|line| line.contains(&format!("\"what\":\"{code}\""))).unwrap();
    let ended = line("attempt_ended");
    assert!(ended.contains(r#""source":"u1/k","status":200,"outcome":"transient","reason":"error_object""#), "{ended}");
    assert!(line("local_stream_candidate_retry_scheduled").contains(r#""source":"u2/k""#));
    assert!(line("commit").contains(r#""reason":"content""#));
}

fn anything() -> impl Draw<Value = Vec<Step>> {
    let piece = prop_oneof![
        Just(ROLE.to_string()),
        Just(delta("wombat sk-very-secret \\u5bb9")),
        Just(delta("")),
        Just(STOP.to_string()),
        Just(DONE.to_string()),
        Just(OVERLOADED.to_string()),
        Just(answer_body(WORD)),
        Just(answer_body("")),
        Just(error("wombat sk-very-secret")),
        Just("data: {\"error\":{\"message\":\"w\",\"code\":\"rate limit\"}}\r\n\r\n".to_string()),
        Just("sk-very-".to_string()),
        Just("secret".to_string()),
        "[\\x00-\\x7f]{0,5}",
    ];
    let status =
        prop_oneof![4 => Just(200u16), 1 => Just(429), 1 => Just(400), 1 => Just(503), 1 => Just(401), 1 => Just(301)];
    let label = prop_oneof![Just("text/event-stream"), Just("application/json"), Just("text/html")];
    let last =
        prop_oneof![3 => Just(Step::End), 1 => Just(Step::Fault(Fault::Reset)), 1 => Just(Step::Wait(1_000_000))];
    let pieces = proptest::collection::vec(piece, 0..7);
    (status, label, pieces, proptest::collection::vec(1usize..90, 1..5), last).prop_map(
        |(status, label, pieces, cuts, last)| {
            let mut steps = vec![Step::HeadWith(status, vec![("content-type", label)])];
            let (text, mut at, mut cuts) = (pieces.concat(), 0, cuts.into_iter().cycle());
            while at < text.len() {
                let end = (at + cuts.next().unwrap()).min(text.len());
                steps.push(Step::Say(text[at..end].to_string()));
                steps.push(Step::Wait(40));
                at = end;
            }
            steps.push(last);
            if steps.iter().any(|step| matches!(step, Step::Wait(1_000_000))) {
                steps.push(Step::End);
            }
            steps
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever upstreams say, in whatever chunks: the trace replays, and tells no key and no word.
    #[test]
    fn any_call_replays(
        scripts in proptest::collection::vec(proptest::collection::vec(anything(), 1..3), 1..4),
        format in proptest::sample::select(Format::ALL.as_slice()),
        (stream, structured, balanced, ruled) in any::<(bool, bool, bool, bool)>(),
        cancel in proptest::option::of(0u64..600),
    ) {
        for mode in [TraceMode::Full, TraceMode::Redacted] {
            let mut world = World { format, stream, structured, ..World::new(scripts.clone()) };
            world.policy.sticky_key_attempts = 2;
            if balanced {
                world.strategy = Strategy::LeastInflight;
            }
            if ruled {
                world.policy.rules.success = vec![rules::compile("wombat.*secret").unwrap()];
                world.providers[0].rules.stop = vec![StopRule { statuses: vec![], pattern: Some(rules::compile("wombat").unwrap()) }];
            }
            let cancel = cancel.map(|at| (Time::from_millis(at), CancelCause::ClientGone));
            let plan = world.plan();
            let (outcome, file) = traced_plan(&mut world, plan, mode, cancel);
            check_file("any", mode, &file);
            let actions = file.lines().filter(|line| line.contains(r#"{"v":1,"do":""#)).count();
            assert_eq!(actions, outcome.actions.len());
        }
    }
}
