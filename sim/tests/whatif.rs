//! X8: another policy on recorded traffic. The traces are made to order, so what must come out is known.

mod common;

use common::{Reply, record, two_sources};
use serde_json::{Value, json};
use surefoot_core::policy::config::TraceMode;
use surefoot_core::time::{Span, Time};
use surefoot_sim::replay::facts::Basis;
use surefoot_sim::replay::{Comparison, Trace, WhatIf, what_if};

fn read(content: &str) -> Trace {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), content).expect("written");
    Trace::read(file.path(), 2).expect("a trace")
}

fn tried(trace: &Trace, policy: &Value) -> WhatIf {
    what_if(trace, policy, &|_| None, 1).unwrap_or_else(|error| panic!("{error}"))
}

/// `a` fails every other minute; `b` is well. Calls two a second for ten minutes.
fn flapping(_: &str, at: Time) -> bool {
    (at.0 / 60_000_000).is_multiple_of(2)
}

const NEVER_OPENS: &str = r#"{ "fail_threshold": 1000000, "min_calls": 1000000 }"#;

/// G1, G10: a half-dead source under a policy that stays there, then under one that moves on.
#[test]
fn a_policy_that_moves_on_serves_what_a_sticky_one_lost_and_says_what_it_rests_on() {
    for mode in [TraceMode::Full, TraceMode::Redacted] {
        let mut tree = two_sources(json!({
            "default_policy": { "sticky_key_attempts": 2, "max_attempts": 2 },
            "retry": { "initial_ms": 100, "max_ms": 100, "jitter": 0 },
            "breaker": serde_json::from_str::<Value>(NEVER_OPENS).expect("a table"),
        }));
        tree["models"][0]["strategy"] = json!("round_robin");
        let content = record(&tree, mode, 600, Span::from_millis(500), Span::MAX, |source, at, _| match source {
            "a/k" if !flapping(source, at) => Reply::error(503, 40),
            _ => Reply::good(30),
        });
        let trace = read(&content);
        let recorded = trace.calls.iter().filter(|call| call.facts.is_success()).count();
        assert!((400..500).contains(&recorded), "a quarter meets the dead source: {recorded}");

        let same = tried(&trace, &tree);
        let same = Comparison::new(&trace, &same);
        assert_eq!(same.changed.len(), 0, "{}", same.text("same"));
        assert_eq!(same.before.all.attempts, same.after.all.attempts);
        assert_eq!(same.modelled(), (0.0, 0.0));

        let moving = json!({
            "default_policy": { "sticky_key_attempts": 1, "max_attempts": 3 },
            "breaker": { "fail_threshold": 3, "min_calls": 5, "cooldown_seconds": 10 },
        });
        let other = tried(&trace, &moving);
        let compared = Comparison::new(&trace, &other);
        let told = compared.text("moving.toml");
        assert_eq!(compared.after.all.success, 600, "{told}");
        assert!(compared.after.sources["a/k"].opened >= 3, "{told}");
        assert!(compared.after.sources["a/k"].attempts < compared.before.sources["a/k"].attempts, "{told}");
        // `b` gets more than it had: what was seen there about then is used once more, and the report says so.
        let b = &compared.after.sources["b/k"];
        assert!(b.basis(Basis::Reused) > 100 && b.basis(Basis::Modelled) == 0, "{told}");
        assert_eq!(compared.gained_and_lost(), (600 - recorded, 0), "{told}");
        let shares = told.lines().find(|line| line.starts_with("modelled: ")).expect("the share is stated");
        assert!(
            shares.contains("0.0 %") && shares.contains(&format!("{:.1} %", 100.0 * compared.modelled().1)),
            "{shares}"
        );
    }
}

#[test]
fn a_source_that_was_never_tried_is_modelled_on_the_others_and_named() {
    let tree = two_sources(json!({}));
    let content = record(&tree, TraceMode::Redacted, 50, Span::from_millis(500), Span::MAX, |_, _, _| Reply::good(30));
    let trace = read(&content);
    let other = tried(&trace, &json!({ "models": [{ "name": "m", "targets": ["b/x", "a/x"] }] }));
    let compared = Comparison::new(&trace, &other);
    let told = compared.text("turned.toml");
    assert_eq!(compared.after.sources["b/k"].basis(Basis::Modelled), 50, "{told}");
    assert_eq!(compared.modelled(), (1.0, 0.0));
    assert!(told.contains("never tried in the trace, so modelled on the other sources: b/k"), "{told}");
    assert!(told.contains("100.0 % of turned.toml's attempts were never observed"), "{told}");
}

#[test]
fn a_breaker_saves_attempts_and_the_report_lays_both_sides_out() {
    let tree = two_sources(json!({
        "default_policy": { "sticky_key_attempts": 2 },
        "retry": { "initial_ms": 100, "max_ms": 100, "jitter": 0 },
        "breaker": serde_json::from_str::<Value>(NEVER_OPENS).expect("a table"),
    }));
    let content =
        record(&tree, TraceMode::Redacted, 400, Span::from_millis(500), Span::MAX, |source, at, number| match source {
            "a/k" if !flapping(source, at) => Reply::error(503, 40),
            "b/k" if number % 50 == 0 => Reply::error(500, 10),
            _ => Reply::good(30),
        });
    let trace = read(&content);
    let policy = json!({ "breaker": { "fail_threshold": 5, "min_calls": 10, "cooldown_seconds": 20 } });
    let other = tried(&trace, &policy);
    let compared = Comparison::new(&trace, &other);
    assert!(compared.after.all.attempts < compared.before.all.attempts);
    insta::assert_snapshot!(compared.text("breaker.toml"));
    // The same seed, the same figures.
    assert_eq!(Comparison::new(&trace, &tried(&trace, &policy)).text("breaker.toml"), compared.text("breaker.toml"));
}

/// Nobody is called, so nobody's keys are needed; what has a default has it.
#[test]
fn a_whole_configuration_is_tried_without_the_environment_that_it_was_written_for() {
    let tree = two_sources(json!({}));
    let content = record(&tree, TraceMode::Redacted, 20, Span::from_millis(200), Span::MAX, |_, _, _| Reply::good(30));
    let trace = read(&content);
    let mut whole = tree;
    whole["providers"][0]["keys"][0]["value"] = json!("${KEY_OF_A}");
    whole["providers"][1]["keys"][0]["value"] = json!("${KEY_OF_B}");
    whole["providers"][0]["base_url"] = json!("${URL_OF_A}/v1");
    whole["server"] = json!({ "listen": "${LISTEN:-127.0.0.1:0}" });
    let other = tried(&trace, &whole);
    let compared = Comparison::new(&trace, &other);
    assert_eq!((compared.after.all.success, compared.changed.len(), compared.modelled()), (20, 0, (0.0, 0.0)));
    assert!(compared.other.notes.is_empty(), "{:?}", compared.other.notes);
}

/// What a call met because of what it asks, it meets everywhere.
#[test]
fn a_refused_request_stays_refused_wherever_it_goes() {
    let tree = two_sources(json!({}));
    let content =
        record(&tree, TraceMode::Redacted, 100, Span::from_millis(200), Span::MAX, |_, _, number| match number % 10 {
            3 => Reply::error(400, 5),
            _ => Reply::good(30),
        });
    let trace = read(&content);
    let other = tried(&trace, &json!({ "models": [{ "name": "m", "targets": ["b/x", "a/x"] }] }));
    let compared = Comparison::new(&trace, &other);
    assert_eq!((compared.before.all.success, compared.after.all.success), (90, 90), "{}", compared.text("turned"));
    assert!(compared.changed.is_empty());
}

/// What nobody waited for long enough to see is drawn from what others saw, and told.
#[test]
fn behind_what_was_watched_an_attempt_goes_on_as_others_did() {
    let tree = two_sources(json!({ "timeouts": { "total_ms": 1000 }, "default_policy": { "sticky_key_attempts": 1 } }));
    // Every fifth answer of `a` takes longer than its timeout; one in fifty just not.
    let content =
        record(&tree, TraceMode::Full, 500, Span::from_millis(2500), Span::MAX, |source, _, number| match source {
            "a/k" if number % 50 == 7 => Reply::good(990),
            "a/k" if number % 5 == 0 => Reply::silence(),
            _ => Reply::good(30),
        });
    let trace = read(&content);
    let patient = tried(&trace, &json!({ "timeouts": { "total_ms": 20000 } }));
    let compared = Comparison::new(&trace, &patient);
    // Nothing was ever seen later than a second: silence goes on, and nothing is made up.
    assert_eq!(compared.modelled().0, 0.0, "{}", compared.text("patient"));
    assert_eq!(compared.after.all.success, 500);
    let added = |calls: &surefoot_sim::replay::figures::Calls| calls.added.at(95).expect("answers").0 / 1_000_000;
    assert_eq!((added(&compared.before.all), added(&compared.after.all)), (1, 20));
    let hasty = tried(&trace, &json!({ "timeouts": { "total_ms": 100 } }));
    let compared = Comparison::new(&trace, &hasty);
    assert_eq!(compared.modelled().0, 0.0);
    assert!(compared.after.all.added.at(95) < compared.before.all.added.at(95), "{}", compared.text("hasty"));
    assert!(compared.after.all.transfers > compared.before.all.transfers);
}

/// The first process had no patience with what the second one saw to its end.
#[test]
fn an_attempt_that_was_cut_short_goes_on_like_those_that_were_not_and_is_counted_as_modelled() {
    for mode in [TraceMode::Full, TraceMode::Redacted] {
        let process = |total_ms: u64| {
            let tree = two_sources(json!({
                "timeouts": { "total_ms": total_ms },
                "default_policy": { "sticky_key_attempts": 1 },
                "breaker": serde_json::from_str::<Value>(NEVER_OPENS).expect("a table"),
            }));
            let slow = |source: &str, _: Time, number: u64| match source {
                "a/k" if number.is_multiple_of(5) => Reply::good(4000),
                _ => Reply::good(30),
            };
            record(&tree, mode, 200, Span::from_millis(5000), Span::MAX, slow)
        };
        let trace = read(&(process(1000) + &process(10_000)));
        let policy = json!({ "timeouts": { "total_ms": 10_000 }, "breaker": { "fail_threshold": 1_000_000, "min_calls": 1_000_000 } });
        let other = tried(&trace, &policy);
        let compared = Comparison::new(&trace, &other);
        let told = compared.text("patient");
        assert_eq!((compared.before.all.transfers, compared.after.all.transfers), (40, 0), "{told}");
        assert_eq!(compared.after.all.success, 400, "{told}");
        assert_eq!(compared.after.sources["a/k"].basis(Basis::Modelled), 40, "{told}");
        assert!(told.contains("modelled: 10.0 % of patient's attempts were never observed"), "{told}");
    }
}

/// X4: who left, leaves at the same moment, unless the answer is there before.
#[test]
fn clients_keep_their_patience() {
    let tree = two_sources(
        json!({ "default_policy": { "sticky_key_attempts": 1 }, "breaker": { "fail_threshold": 1000000, "min_calls": 1000000 } }),
    );
    let slow = |source: &str, _: Time, number: u64| match source {
        "a/k" if number.is_multiple_of(4) => Reply::good(5000),
        "a/k" if number % 10 == 1 => Reply::error(500, 5),
        _ => Reply::good(30),
    };
    let content = record(&tree, TraceMode::Redacted, 200, Span::from_millis(3000), Span::from_millis(2000), slow);
    let trace = read(&content);
    let same = tried(&trace, &tree);
    let same = Comparison::new(&trace, &same);
    assert_eq!((same.before.all.left, same.after.all.left), (50, 50), "{}", same.text("same"));
    let quick = json!({ "timeouts": { "total_ms": 500 } });
    let quick = tried(&trace, &quick);
    let compared = Comparison::new(&trace, &quick);
    assert_eq!((compared.after.all.left, compared.after.all.success), (0, 200), "{}", compared.text("quick"));
}

#[test]
fn what_a_policy_leaves_out_is_read_from_the_trace() {
    let mut tree = two_sources(json!({
        "default_policy": { "sticky_key_attempts": 3 },
        "retry": { "initial_ms": 100, "max_ms": 100, "jitter": 0 },
        "breaker": serde_json::from_str::<Value>(NEVER_OPENS).expect("a table"),
    }));
    tree["models"] = json!([{ "name": "m", "targets": ["a/x"] }]);
    let content = record(&tree, TraceMode::Redacted, 60, Span::from_millis(500), Span::MAX, |_, _, number| {
        if number % 6 < 2 { Reply::error(503, 20) } else { Reply::good(30) }
    });
    let trace = read(&content);
    // Breakers are not in a trace.
    let never_opens: Value = serde_json::from_str(NEVER_OPENS).expect("a table");
    let other = tried(&trace, &json!({ "breaker": never_opens }));
    let compared = Comparison::new(&trace, &other);
    assert_eq!(compared.before.all.retries, compared.after.all.retries, "{}", compared.text("empty"));
    assert_eq!(compared.changed.len(), 0);
    assert!(
        compared.other.notes.iter().any(|note| note.contains("breaker, health, pace")),
        "{:?}",
        compared.other.notes
    );
}
