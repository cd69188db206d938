//! What a call reads: defaults, provider and model laid over one another (F1, F6).

use super::*;
use crate::policy::EmptyCompletion;
use crate::time::Span;

#[test]
fn a_models_policy_overrides_the_default_key_by_key() {
    let tree = laid(
        &model(&json!({
            "policy": {
                "max_transfer_count": 1, "empty_completion": "deliver",
                "failover_rules": { "error_stop_patterns": [{ "status_codes": [422] }] },
            },
            "window": { "max_events": 9 },
            "retry": { "stream": "never" },
        })),
        &json!({
            "default_policy": {
                "sticky_key_attempts": 0, "max_transfer_count": 7, "deadline_seconds": 5,
                "failover_rules": {
                    "success_failover_patterns": [{ "pattern": "busy" }],
                    "error_stop_patterns": [{ "status_codes": [400] }],
                },
            },
            "window": { "max_bytes": 77 },
            "retry": { "initial_ms": 3 },
            "stall": { "window_seconds": 8 },
            "breaker": { "slow_call_seconds": 9 },
            "server": { "client_stall_seconds": 4 },
        }),
    );
    let config = config(&tree);
    let (plain, own) = (config.call_policy(None), config.call_policy(config.model("m")));
    assert_eq!((plain.max_transfer_count, own.max_transfer_count), (7, 1));
    assert_eq!((plain.empty_completion, own.empty_completion), (EmptyCompletion::Failover, EmptyCompletion::Deliver));
    assert_eq!((own.sticky_key_attempts, own.deadline), (1, Span::from_secs(5)), "0 and 1 are one try");
    assert_eq!((own.window.max_bytes, own.window.max_events, plain.window.max_events), (77, 9, 4096));
    assert_eq!((own.retry.initial, own.retry.stream, plain.retry.stream), (Span::from_millis(3), false, true));
    // A group of rules that the model does not give stays.
    assert_eq!(own.rules.success_match("busy"), Some(0));
    assert_eq!((own.rules.stop_match(400, ""), own.rules.stop_match(422, "")), (None, Some(0)));
    assert_eq!((plain.rules.stop_match(400, ""), plain.rules.stop_match(422, "")), (Some(0), None));
    for policy in [plain, own] {
        let spans = [policy.stall_window, policy.slow_call].map(Span::as_secs_ceil);
        assert_eq!(spans, [8, 9]);
    }
}

#[test]
fn timeouts_go_from_global_over_provider_to_model() {
    let mut tree = small(&json!({ "timeouts": { "connect_ms": 1, "idle_ms": 1, "total_ms": 1 } }));
    tree["providers"][0]["timeouts"] = json!({ "idle_ms": 2, "total_ms": 2 });
    tree["models"][0]["timeouts"] = json!({ "total_ms": 3 });
    let config = config(&tree);
    let (_, provider) = config.provider("u1").unwrap();
    let millis = |model| {
        let timeouts = config.timeouts_for(provider, model);
        [timeouts.connect, timeouts.idle, timeouts.total, timeouts.first_byte].map(Span::as_millis)
    };
    assert_eq!(millis(None), [1, 2, 2, 120_000]);
    assert_eq!(millis(config.model("m")), [1, 2, 3, 120_000]);
}

#[test]
fn a_providers_policy_is_its_own() {
    let tree = provider(&json!({
        "max_transfer_count": 2, "max_transfer_timeout_seconds": 1.5, "stop_on_transport_errors": true,
        "continue_status_codes": [400], "stop_status_codes": [503], "retry_on_errors": ["retired 404"],
        "failover_rules": { "success_failover_patterns": [{ "pattern": "busy" }] },
    }));
    let policy = config(&tree).providers[0].policy();
    assert_eq!(
        (&*policy.name, policy.max_transfer_count, policy.max_transfer_timeout),
        ("u1", 2, Span::from_millis(1500))
    );
    assert!(policy.stop_on_transport_errors);
    assert_eq!((policy.continue_status_codes, policy.stop_status_codes), (vec![400], vec![503]));
    assert!(policy.retry_on_errors[0].matches(404, "model_retired", ""));
    assert_eq!(policy.rules.success_match("busy"), Some(0));
}

/// G17: `structured` of a model.
#[test]
fn structured_says_whether_and_how_often_an_answer_is_asked_again() {
    let retries = |over: Value| {
        let config = config(&model(&over));
        config.call_policy(config.model("m")).structured_max_retries
    };
    let none = json!({ "structured_max_retries": 0 });
    assert_eq!(retries(json!({})), 2);
    assert_eq!(retries(json!({ "structured": false })), 0);
    assert_eq!(retries(json!({ "structured": true })), 2);
    assert_eq!(retries(json!({ "structured": true, "policy": none })), 2);
    assert_eq!(retries(json!({ "structured": { "max_retries": 5 }, "policy": none })), 5);
    assert_eq!(retries(json!({ "structured": {}, "policy": none })), 0);
}
