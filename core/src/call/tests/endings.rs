//! F7, F17–F19, G7, G16, X4, M10: how calls end, and what is told of it.

use alloc::vec;
use alloc::vec::Vec;

use super::harness::*;
use crate::event::{CancelCause, End, Fault, Incomplete, Reason, What};
use crate::outcome::Outcome;
use crate::pool::Settings;
use crate::time::{Span, Time};
use crate::wire::Format;

fn fails(status: u16, words: &str) -> Vec<Step> {
    body(status, &error(words))
}

fn never() -> Vec<Step> {
    vec![Step::Wait(u64::MAX / 2000)]
}

/// F19: the last genuine error, as sent; transport errors do not hide it.
#[test]
fn the_last_genuine_error_is_shown() {
    let mut world =
        World::new(vec![vec![fails(503, "first")], vec![fails(404, "genuine")], vec![vec![Step::Fault(Fault::Reset)]]]);
    let out = world.run();
    let answer = out.answer();
    assert_eq!((answer.status, answer.as_sent, answer.head.map(|head| head.0)), (404, true, Some(1)));
    assert_eq!(&answer.body[..], error("genuine").as_bytes());
    assert_eq!(answer.choice.map(|choice| choice.0), Some(2), "the last source that was tried");
}

/// F19, M6: nothing but transport errors is 502, nothing but timeouts 504, both 502.
#[test]
fn without_an_upstreams_words_the_kind_of_failure_decides() {
    let reset = || vec![Step::Fault(Fault::Reset)];
    for (scripts, status) in [
        (vec![vec![reset()], vec![reset()]], 502),
        (vec![vec![never()], vec![never()]], 504),
        (vec![vec![reset()], vec![never()]], 502),
        (vec![vec![vec![Step::Fault(Fault::ConnectTimeout)]]], 504),
    ] {
        let mut world = World::new(scripts);
        let out = world.run();
        assert_eq!(out.answer().status, status);
        assert!(core::str::from_utf8(&out.answer().body).unwrap().contains("provider_error"));
    }
}

/// F12, F8: a stop rule ends the call with the upstream's own words.
#[test]
fn a_stop_rule_ends_the_call() {
    let mut world = World::new(vec![vec![fails(503, "account suspended")], vec![body(200, &answer_body("x"))]]);
    world.policy.rules.stop.push(crate::policy::StopRule {
        statuses: vec![],
        pattern: Some(regex::Regex::new("account.*suspended").unwrap()),
    });
    let out = world.run();
    assert_eq!((out.order(), out.answer().status, out.answer().no_retry), (vec![1], 503, true));
}

/// F12: in a stream the pattern sees the error event alone, not what its openers echo of the request.
#[test]
fn a_stop_rule_does_not_read_the_openers() {
    let pattern = regex::Regex::new("account.*suspended").unwrap();
    let echo = ROLE.replace("\"id\":\"c\"", "\"id\":\"account suspended\"");
    for (events, order) in [
        (vec![echo.as_str(), OVERLOADED], vec![1, 2]),
        (vec![ROLE, &OVERLOADED.replace("overloaded\"", "account suspended\"")], vec![1]),
    ] {
        let mut world = World::streams(vec![vec![sse(&events)], vec![sse(&[&delta("x"), STOP, DONE])]]);
        world.policy.rules.stop.push(crate::policy::StopRule { statuses: vec![], pattern: Some(pattern.clone()) });
        assert_eq!(world.run().order(), order);
    }
}

/// F9, F19: every answer matched a success rule: an error of our own, never one of the answers.
#[test]
fn a_matched_answer_is_never_shown() {
    let mut world = World::new(vec![vec![body(200, &answer_body("capacity exhausted"))]; 2]);
    world.policy.rules.success.push(regex::Regex::new("exhausted").unwrap());
    let out = world.run();
    assert_eq!((out.order(), out.answer().status), (vec![1, 2], 502));
    assert!(!core::str::from_utf8(&out.answer().body).unwrap().contains("exhausted"));
}

/// F7: an error of the gateway's own ends the call: nobody else is asked, and no source is blamed.
#[test]
fn the_gateways_own_want_blames_nobody() {
    let mut world = World::new(vec![vec![vec![Step::Fault(Fault::Local)]; 2], vec![body(200, &answer_body("other"))]]);
    let out = world.run();
    assert_eq!((out.order(), out.answer().status), (vec![1], 503));
    let ended: Vec<_> = out.notices.iter().filter(|what| matches!(what, What::AttemptEnded { .. })).collect();
    assert!(matches!(ended[..], [What::AttemptEnded { outcome: Outcome::Cancelled, .. }]), "{ended:?}");
}

/// M3: an empty completion is delivered when nothing better comes.
#[test]
fn an_empty_answer_is_kept_for_want_of_a_better() {
    let mut world = World::new(vec![vec![body(200, &answer_body(""))], vec![fails(503, "no")]]);
    let out = world.run();
    assert_eq!((out.order(), out.served_by(), &out.end), (vec![1, 2], 1, &End::Complete));
    assert_eq!(out.text(), answer_body(""));

    let mut world = World::new(vec![vec![body(200, &answer_body(""))], vec![body(200, &answer_body("full"))]]);
    let out = world.run();
    assert_eq!((out.served_by(), out.text()), (2, answer_body("full").as_str()));
}

/// G17: asked again on the same source, outside the retry budget, then delivered as it is.
#[test]
fn an_answer_that_is_not_the_json_asked_for_is_asked_again() {
    let mut world = World::new(vec![vec![body(200, &answer_body("prose"))], vec![body(200, &answer_body("{}"))]]);
    world.structured = true;
    let out = world.run();
    assert_eq!((out.order(), out.text()), (vec![1, 1, 1], answer_body("prose").as_str()));
    let invalid =
        out.notices.iter().filter(|what| matches!(what, What::AttemptEnded { outcome: Outcome::ResultInvalid, .. }));
    assert_eq!(invalid.count(), 2);
}

/// G17: JSON that does not fit the request's schema is treated like no JSON; a schema is only asked about JSON.
#[test]
fn an_answer_that_does_not_fit_the_schema_is_asked_again() {
    let answers = ["[]", "prose", "{}"].map(|text| body(200, &answer_body(text)));
    let mut world = World::new(vec![answers.to_vec()]);
    world.structured = true;
    world.schema = Some(|text| {
        assert_ne!(text, "prose");
        text == "{}"
    });
    let out = world.run();
    assert_eq!((out.order(), out.text()), (vec![1, 1, 1], answer_body("{}").as_str()));
    assert_eq!(world.pool.views(world.now).map(|view| (view.samples, view.failures)).collect::<Vec<_>>(), [(1, 0)]);
}

/// G7: breakers that refuse all fail fast.
#[test]
fn open_breakers_fail_fast() {
    let mut world = World::new(vec![vec![fails(500, "no")]]);
    let mut settings = Settings::default();
    settings.breaker.fail_threshold = 1;
    world.pool.configure(settings);
    assert_eq!(world.run().answer().status, 500);
    let out = world.run();
    assert_eq!((out.sent.len(), out.answer().status, out.took), (0, 503, Span::ZERO));
    assert_eq!(out.answer().retry_after.map(Span::as_secs_ceil), Some(60));
    assert!(core::str::from_utf8(&out.answer().body).unwrap().contains("circuit breaker is open"));
}

/// X4, F7: the client leaves: dropped at once, nothing counted, nobody else asked; in every phase.
#[test]
fn a_client_that_leaves_costs_nobody_anything() {
    let stalls = |pieces: &[&str]| {
        let mut steps = sse(pieces);
        steps.pop();
        steps.push(Step::Wait(10_000_000));
        steps
    };
    let phases: [Vec<Step>; 4] = [never(), stalls(&[]), stalls(&[ROLE]), stalls(&[ROLE, &delta("Hi")])];
    for steps in phases {
        let mut world = World::streams(vec![vec![steps, sse(&[ROLE, &delta("Hi"), STOP, DONE])], vec![never()]]);
        let mut settings = Settings::default();
        settings.breaker.fail_threshold = 1;
        world.pool.configure(settings);
        let at = world.now.after(Span::from_millis(50));
        let out = world.run_until(Some((at, CancelCause::ClientGone)));
        assert_eq!((out.order(), &out.end), (vec![1], &End::Cancelled(CancelCause::ClientGone)));
        assert!(out.has("client_cancelled"));
        assert_eq!((world.inflight(), settled(&out)), (0, 1));
        assert_eq!(world.run().served_by(), 1, "the breaker heard nothing of it");
    }
}

/// M10: at the drain's deadline a committed stream ends loudly, a waiting call gets an answer.
#[test]
fn a_shutdown_is_loud() {
    let mut steps = sse(&[ROLE, &delta("Hi")]);
    steps.pop();
    let at = |world: &World| Some((world.now.after(Span::from_millis(50)), CancelCause::Shutdown));
    let mut world = World::streams(vec![vec![steps]]);
    let out = world.run_until(at(&world));
    assert_eq!(out.end, End::Incomplete(Incomplete::Shutdown));
    assert!(out.text().ends_with("\n\n") && out.text().contains("stream_incomplete"));

    let mut world = World::new(vec![vec![limited("5000")]]);
    let out = world.run_until(at(&world));
    assert_eq!((out.answer().status, out.answer().outcome), (503, Outcome::Cancelled));
}

/// The deadline blames nobody.
#[test]
fn the_calls_deadline_is_no_evidence() {
    let mut world = World::new(vec![vec![never()]]);
    world.policy.deadline = Span::from_millis(300);
    let out = world.run();
    assert_eq!((out.answer().status, out.took), (504, Span::from_millis(300)));
    assert!(
        out.notices.iter().any(|what| matches!(
            what,
            What::AttemptEnded { outcome: Outcome::Cancelled, reason: Reason::Deadline, .. }
        ))
    );
}

/// X6: a key that an upstream repeats reaches nobody.
#[test]
fn a_key_in_an_upstreams_words_is_masked() {
    for status in [401, 400] {
        let mut world = World::new(vec![vec![fails(status, "bad key sk-very-secret, sorry")]]);
        let out = world.run();
        let text = core::str::from_utf8(&out.answer().body).unwrap();
        assert!(text.contains("bad key") && text.contains("sorry") && !text.contains("sk-very-secret"), "{text}");
    }
    let told = "data: {\"error\":{\"message\":\"bad key sk-very-secret\",\"type\":\"server_error\"}}\n\n";
    let mut world = World::streams(vec![vec![sse(&[ROLE, &delta("Hi"), told])]]);
    let out = world.run();
    assert_eq!(out.end, End::UpstreamError(Outcome::Transient));
    assert!(out.text().contains("bad key ****") && !out.text().contains("sk-very-secret"));
}

/// M7: an upstream that breaks behind a head that was sent breaks the client's connection, too.
#[test]
fn a_broken_pass_through_is_broken_for_the_client() {
    let mut world = World::new(vec![vec![vec![Step::Head(200), Step::Say("half".into()), Step::Fault(Fault::Reset)]]]);
    world.format = Format::Raw;
    let out = world.run();
    assert_eq!((out.text(), &out.end), ("half", &End::Broken));
}

/// F18: every notice carries when it was.
#[test]
fn notices_carry_the_time_since_the_calls_start() {
    let mut world = World::new(vec![vec![limited("700"), body(200, &answer_body("x"))]]);
    let out = world.run();
    let last = out.actions.iter().rev().find_map(|action| match action {
        crate::event::Action::Notice(notice) => Some(notice.elapsed),
        _ => None,
    });
    assert_eq!(last, Some(Span::from_millis(700)));
    assert!(world.now > Time::from_millis(700));
}

/// M7, F17: an error that is passed through as it came is delivered, and no success of its source.
#[test]
fn a_passed_error_teaches_what_it_is() {
    for (status, expected) in [
        (200, Outcome::Success),
        (404, Outcome::RequestRejected),
        (500, Outcome::Transient),
        (401, Outcome::SourceDead),
    ] {
        let mut world = World::new(vec![vec![fails(status, "as it is")]]);
        world.format = Format::Raw;
        world.replay_safe = false;
        let out = world.run();
        assert_eq!((&out.end, out.text()), (&End::Complete, error("as it is").as_str()));
        let taught = out.notices.iter().find_map(|what| match what {
            What::AttemptEnded { outcome, .. } => Some(*outcome),
            _ => None,
        });
        assert_eq!(taught, Some(expected), "{status}");
    }
    let mut world = World::new(vec![vec![limited("700")]]);
    world.format = Format::Raw;
    world.replay_safe = false;
    world.run();
    let rest = world.pool.views(world.now).next().and_then(|view| view.resting_until);
    assert_eq!(rest, Some(world.now.after(Span::from_millis(700))));
}
