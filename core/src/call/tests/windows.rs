//! F9, F10, F15, F16, M5: what is held, what commits, how committed streams end.

use alloc::vec;
use alloc::vec::Vec;

use super::harness::*;
use crate::event::{CommitReason, End, Fault, Incomplete, Shape};
use crate::outcome::Outcome;
use crate::time::Span;

fn good() -> Vec<Step> {
    sse(&[ROLE, &delta("fine"), STOP, DONE])
}

fn cut(pieces: &[&str]) -> Vec<Step> {
    let mut steps = sse(pieces);
    steps.pop();
    steps.push(Step::Fault(Fault::Reset));
    steps
}

/// F15: whatever fails before content fails over, and nothing of it is seen.
#[test]
fn failures_in_the_window_leave_no_trace_in_the_answer() {
    let json_error = r#"{"error":{"message":"busy","type":"server_error","code":503}}"#;
    let first: Vec<Vec<Step>> = vec![
        sse(&[ROLE, OVERLOADED]),
        sse(&[ROLE]),
        cut(&[ROLE]),
        sse(&[]),
        sse(&[": hi\n\n"]),
        sse(&[ROLE, "data: {\"bad\n\n"]),
        sse(&[DONE]),
        sse(&[ROLE, STOP, DONE]),
        body(200, json_error),
        body(200, "<html>busy</html>"),
    ];
    for steps in first {
        let shown = alloc::format!("{steps:?}");
        let mut world = World::streams(vec![vec![steps], vec![good()]]);
        let out = world.run();
        assert_eq!((out.order(), out.served_by(), &out.end), (vec![1, 2], 2, &End::Complete), "{shown}");
        assert_eq!(out.text(), [ROLE, &delta("fine"), STOP, DONE].concat(), "{shown}");
        assert!(
            out.has("local_stream_candidate_retry_scheduled") || out.has("local_stream_transport_retry_scheduled"),
            "{shown}"
        );
        assert_eq!(world.inflight(), 0);
    }
}

/// F15, F16: held bytes come once, in order, byte for byte, with the first content.
#[test]
fn the_first_content_commits_and_everything_held_goes_along() {
    let mut world = World::streams(vec![vec![sse(&[": hi\n\n", ROLE, ROLE, &delta("a"), &delta("b"), STOP, DONE])]]);
    let out = world.run();
    assert_eq!(out.commit.map(|commit| (commit.reason, commit.shape)), Some((CommitReason::Content, Shape::AsSent)));
    assert_eq!(out.text(), [": hi\n\n", ROLE, ROLE, &delta("a"), &delta("b"), STOP, DONE].concat());
}

/// F16: a full window commits conservatively.
#[test]
fn a_full_window_commits() {
    for (bytes, events, reason) in [(400, 4096, CommitReason::WindowBytes), (262_144, 3, CommitReason::WindowEvents)] {
        let mut world = World::streams(vec![vec![sse(&[ROLE, ROLE, ROLE, ROLE, OVERLOADED])], vec![good()]]);
        world.policy.window.max_bytes = bytes;
        world.policy.window.max_events = events;
        let out = world.run();
        assert_eq!((out.order(), out.commit.map(|commit| commit.reason)), (vec![1], Some(reason)));
        assert_eq!(out.end, End::UpstreamError(Outcome::Transient));
        assert_eq!(out.text(), [ROLE, ROLE, ROLE, ROLE, OVERLOADED].concat());
    }
}

/// F9: the event that would commit is still searched; what comes behind the commit is not.
#[test]
fn a_success_rule_sees_the_committing_event_and_nothing_after_it() {
    let rule = || vec![regex::Regex::new("(?i)capacity").unwrap()];
    let mut world = World::streams(vec![vec![sse(&[ROLE, &delta("Capacity"), STOP, DONE])], vec![good()]]);
    world.policy.rules.success = rule();
    assert_eq!(world.run().order(), [1, 2]);

    let mut world =
        World::streams(vec![vec![sse(&[ROLE, &delta("ok"), &delta("capacity"), STOP, DONE])], vec![good()]]);
    world.policy.rules.success = rule();
    assert_eq!(world.run().order(), [1]);
}

/// M5: everything whole, then exactly one error event with its reason, and no success for the source.
#[test]
fn a_committed_stream_that_breaks_ends_loudly() {
    let stall = {
        let mut steps = sse(&[ROLE, &delta("Hi")]);
        steps.pop();
        steps
    };
    let cases = [
        (sse(&[ROLE, &delta("Hi")]), Incomplete::Cut),
        (cut(&[ROLE, &delta("Hi"), "data: {\"id\":\"c\",\"cho"]), Incomplete::Cut),
        (sse(&[ROLE, &delta("Hi"), DONE]), Incomplete::Cut),
        (sse(&[ROLE, &delta("Hi"), "data: {\"bad\n\n", &delta("never")]), Incomplete::Malformed),
        (stall, Incomplete::Idle),
    ];
    for (steps, reason) in cases {
        let mut world = World::streams(vec![vec![steps], vec![good()]]);
        let out = world.run();
        assert_eq!((out.order(), &out.end), (vec![1], &End::Incomplete(reason)));
        let whole = [ROLE, &delta("Hi")].concat();
        let told = out.text().strip_prefix(whole.as_str()).expect("the whole events first");
        assert!(told.starts_with("data: {\"error\":") && told.ends_with("\n\n"), "{told}");
        assert!(
            told.contains("\"code\":\"stream_incomplete\"") && told.contains("u1") && told.contains(reason.as_str())
        );
        assert_eq!(told.matches("data:").count(), 1);
        assert!(out.has("stream_incomplete"));
        assert_eq!(out.end.outcome(), Outcome::Transient);
    }
}

/// M5: however the connection ends, a finish reason for every choice is a good end.
#[test]
fn a_finished_chat_needs_no_done() {
    for steps in [sse(&[ROLE, &delta("Hi"), STOP]), cut(&[ROLE, &delta("Hi"), STOP])] {
        let out = World::streams(vec![vec![steps]]).run();
        assert_eq!((&out.end, out.text()), (&End::Complete, [ROLE, &delta("Hi"), STOP].concat().as_str()));
    }
    // A last event without its blank line is closed.
    let out = World::streams(vec![vec![sse(&[ROLE, &delta("Hi"), STOP, "data: [DONE]"])]]).run();
    assert_eq!(&out.end, &End::Complete);
    assert!(out.text().ends_with("data: [DONE]\n\n"), "{:?}", out.text());
}

/// M5: nothing behind the terminal event is delivered.
#[test]
fn there_is_one_terminal_event() {
    let out = World::streams(vec![vec![sse(&[ROLE, &delta("Hi"), STOP, DONE, DONE, &delta("more")])]]).run();
    assert_eq!(out.text(), [ROLE, &delta("Hi"), STOP, DONE].concat());
}

/// F15: a whole good answer to a stream request is the stream it stands for; so is an empty one that is kept.
#[test]
fn a_json_answer_to_a_stream_request_becomes_a_stream() {
    for (text, scripts) in [("fine", vec![]), ("", vec![vec![body(503, &error("no"))]])] {
        let mut all = vec![vec![body(200, &answer_body(text))]];
        all.extend(scripts);
        let out = World::streams(all).run();
        assert_eq!(out.commit.map(|commit| (commit.choice.0, commit.shape)), Some((0, Shape::EventStream)));
        assert!(out.text().ends_with("data: [DONE]\n\n"), "{}", out.text());
        assert!(out.text().contains("\"finish_reason\":\"stop\""));
    }
}

/// M5: silence counts from the last byte and only while the client takes what there is.
#[test]
fn a_slow_client_is_not_the_upstreams_silence() {
    use crate::event::{Action, Input, Output, Timer};
    use crate::id::{AttemptNo, Choice};
    use crate::pool::Reply;
    let mut world = World::streams(vec![vec![good()]]);
    let mut call = world.call();
    let now = world.now;
    let Output::Do(Action::Ask(op)) = call.poll() else { panic!("asks first") };
    call.handle(
        now,
        Input::Reply { lease: op.lease(), reply: Reply::Granted { choice: Choice(0), probe: false, change: None } },
    );
    while let Output::Do(_) = call.poll() {}
    let attempt = AttemptNo(0);
    call.handle(now, input(attempt, Step::HeadWith(200, vec![("content-type", "text/event-stream")])));
    call.handle(now, input(attempt, Step::Say(delta("Hi"))));
    while !matches!(call.poll(), Output::Do(Action::Forward(_))) {}
    let blocked = call.poll();
    assert!(matches!(blocked, Output::Wait(Some(wake)) if wake.why == Timer::Renew), "{blocked:?}");
    let later = now.after(Span::from_secs(1000));
    call.handle(later, Input::Flushed);
    let Output::Wait(Some(wake)) = call.poll() else { panic!("waits") };
    call.handle(later, Input::Tick);
    assert!(wake.at <= later.after(Span::from_secs(300)));
    assert_eq!(call.phase(), crate::call::Phase::Streaming);
}

/// M5, S12: the upstream's own error event is closed like a good end, wherever a chunk was cut.
#[test]
fn an_error_event_keeps_its_last_line_feed() {
    let crlf = |text: &str| text.replace('\n', "\r\n");
    let all = [ROLE, &delta("Hi"), OVERLOADED].map(crlf).concat();
    let pieces: Vec<String> = all.chars().map(String::from).collect();
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    for steps in [sse(&[&all]), sse(&pieces)] {
        let out = World::streams(vec![vec![steps]]).run();
        assert_eq!(out.text(), all);
        assert!(matches!(out.end, End::UpstreamError(_)));
    }
}

/// S1: what an attempt before had held says nothing of how much of this one is whole.
#[test]
fn an_attempt_begins_with_nothing_held() {
    let long = format!("data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{}", "x".repeat(600));
    let mut world = World::streams(vec![vec![sse(&[ROLE])], vec![cut(&[&long])]]);
    world.policy.window.max_bytes = 400;
    let out = world.run();
    assert!(out.text().starts_with("data: {\"error\""), "{}", out.text());
}

/// M5, S12: nor does a good end lose it, in whatever chunks it comes and however fast they are taken; nor does an empty
/// completion that is delivered. Lines that end in a single carriage return get none.
#[test]
fn the_last_line_feed_does_not_depend_on_chunks() {
    for end in ["\n", "\r\n", "\r"] {
        for content in [vec![delta("Hi")], vec![]] {
            let all = [&[ROLE.to_owned()][..], &content, &[STOP.to_owned(), DONE.to_owned()]].concat().concat();
            let all = all.replace('\n', end);
            let run = |steps: Vec<Step>| {
                let mut world = World::streams(vec![vec![steps]]);
                world.policy.empty_completion = crate::policy::EmptyCompletion::Deliver;
                let out = world.run();
                (out.end.clone(), out.text().to_owned())
            };
            let bytes: Vec<&str> = all.split_inclusive(|_| true).collect();
            assert_eq!(run(sse(&bytes)), (End::Complete, all.clone()), "byte by byte");
            for at in 1..all.len() {
                let (one, two) = all.split_at(at);
                assert_eq!(run(sse(&[one, two])), (End::Complete, all.clone()), "cut at {at}");
            }
        }
    }
}

/// M5: what comes behind the finish of every choice and is no event of an answer is dropped, and the answer is whole.
#[test]
fn trouble_behind_a_finished_answer_is_dropped() {
    let whole = [ROLE, &delta("Hi"), STOP].concat();
    for behind in [OVERLOADED, "data: {\"bad\n\n", "data: {\"bad"] {
        for steps in [sse(&[&whole, behind]), sse(&[&(whole.clone() + behind)]), cut(&[&whole, behind])] {
            let out = World::streams(vec![vec![steps]]).run();
            assert_eq!((&out.end, out.text()), (&End::Complete, whole.as_str()), "{behind}");
        }
    }
    // Another choice is still at work: what breaks now breaks the answer.
    let two = whole.replace("\"index\":0,\"delta\":{\"role\"", "\"index\":1,\"delta\":{\"role\"");
    let out = World::streams(vec![vec![sse(&[&two, OVERLOADED])]]).run();
    assert!(matches!(out.end, End::UpstreamError(_)), "{:?}", out.end);
}

/// M5, S12: a line feed that came a chunk after its carriage return, before an event that ends the stream, goes as it
/// would have gone in one chunk.
#[test]
fn a_late_line_feed_goes_before_a_malformed_event_too() {
    let all = [ROLE, &delta("Hi"), "data: {\"bad\n\n", &delta("never")].concat().replace('\n', "\r\n");
    let whole = World::streams(vec![vec![sse(&[&all])]]).run();
    for cut in 1..all.len() {
        let (one, two) = all.split_at(cut);
        let out = World::streams(vec![vec![sse(&[one, two])]]).run();
        assert_eq!(out.text(), whole.text(), "cut at {cut}");
        assert_eq!(out.end, End::Incomplete(Incomplete::Malformed));
    }
}

/// M5, S12: the same where the window's limit makes the commit, at any byte and in any chunks.
#[test]
fn a_late_line_feed_goes_at_any_limit_of_the_window() {
    let ping = ": ping\n\n";
    for last in ["data: {\"bad\n\n", OVERLOADED, STOP, "data: {\"cut"] {
        let all = [ROLE, ping, ping, last].concat().replace('\n', "\r\n");
        let from = ROLE.len() as u64;
        for limit in from..from + 3 * ping.len() as u64 {
            let run = |pieces: &[&str]| {
                let mut world = World::streams(vec![vec![cut(pieces)]]);
                world.policy.window.max_bytes = limit;
                let out = world.run();
                (out.commit.map(|commit| commit.reason), out.end.clone(), out.text().to_owned())
            };
            let whole = run(&[&all]);
            let (pings, _) = whole.2.rsplit_once("ping\r\n\r\n").expect("both pings are told");
            assert!(pings.contains("ping\r\n\r\n"), "{limit}: {whole:?}");
            let bytes: Vec<&str> = all.split_inclusive(|_| true).collect();
            assert_eq!(run(&bytes), whole, "limit {limit}, byte by byte");
            for at in usize::try_from(from).unwrap() - 4..all.len() - 1 {
                let (one, rest) = all.split_at(at);
                let (two, three) = rest.split_at(1);
                assert_eq!(run(&[one, two, three]), whole, "limit {limit}, cut at {at}");
            }
        }
    }
}

/// F16, S12: the window's limit is met at the same byte in any chunking: an error behind it does not fail over.
#[test]
fn the_windows_limit_does_not_depend_on_chunks() {
    let long = format!(": {}\n\n", "x".repeat(200));
    let all = [ROLE, &long, OVERLOADED].concat();
    let limit = ROLE.len() as u64 + 100;
    let bytes: Vec<&str> = all.split_inclusive(|_| true).collect();
    for steps in [sse(&[&all]), sse(&[ROLE, &long, OVERLOADED]), sse(&bytes)] {
        let mut world = World::streams(vec![vec![steps], vec![good()]]);
        world.policy.window.max_bytes = limit;
        let out = world.run();
        assert_eq!(out.commit.map(|commit| commit.reason), Some(CommitReason::WindowBytes));
        assert_eq!((out.order(), out.text()), (vec![1], all.as_str()));
    }
}
