//! What is accepted, and what is read from it.

use super::*;
use crate::policy::config::read_policy;
use crate::pool::Strategy;
use crate::time::Span;
use crate::wire::Format;

/// F1, F14: every key of the interface page, as the page writes it; and its global sections are the defaults.
#[test]
fn the_documented_file_is_read_and_its_sections_are_the_defaults() {
    let tree = documented();
    let config = read(&tree, &documented_env).unwrap_or_else(|problems| panic!("{}", told(&problems)));
    insta::assert_debug_snapshot!("documented", config);

    let mut bare = tree.clone();
    for section in
        tree.as_object().unwrap().keys().filter(|key| !["providers", "models", "server"].contains(&key.as_str()))
    {
        bare.as_object_mut().unwrap().remove(section);
    }
    let bare = read(&bare, &documented_env).unwrap_or_else(|problems| panic!("{}", told(&problems)));
    assert_eq!(format!("{bare:#?}"), format!("{config:#?}"), "a default differs from the page");
}

/// F1: the seed form as it stands, alone and in a served file.
#[test]
fn the_seed_form_is_accepted_as_it_stands() {
    let seed = r#"{"default_policy":{"sticky_key_attempts":2,"max_transfer_count":3,"max_transfer_timeout_seconds":90,"failover_rules":{"success_failover_patterns":[{"pattern":"(?i)capacity.*exhausted"}],"error_stop_patterns":[{"status_codes":[400,413],"pattern":"invalid.*parameter"},{"status_codes":[422]}]}}}"#;
    let seed: Value = serde_json::from_str(seed).unwrap();
    let policy = read_policy(&seed, &nothing).unwrap().call_policy(None);
    assert_eq!((policy.sticky_key_attempts, policy.max_transfer_count), (2, 3));
    assert_eq!(policy.max_transfer_timeout, Span::from_secs(90));
    assert_eq!(policy.rules.success_match("Capacity all EXHAUSTED"), Some(0));
    assert_eq!(policy.rules.stop_match(413, "an invalid parameter"), Some(0));
    assert_eq!(policy.rules.stop_match(422, ""), Some(1));

    assert_eq!(config(&small(&seed)).default_policy.max_transfer_count, 3);
    assert_eq!(told(&problems(&seed)).lines().count(), 1, "served, it only lacks a provider");
    assert!(problems(&seed)[0].path == "providers");
}

#[test]
fn a_plain_list_is_a_chain_or_one_tier_and_nested_lists_are_tiers() {
    let shape = |over: Value| {
        let config = config(&model(&over));
        let tiers: Vec<usize> = config.models[0].tiers.iter().map(Vec::len).collect();
        (config.models[0].strategy, tiers)
    };
    let flat = json!(["u1/a", "u1/b", "u1/c"]);
    let nested = json!([["u1/a", "u1/b"], "u1/c"]);
    assert_eq!(shape(json!({ "targets": flat })), (Strategy::Priority, vec![1, 1, 1]));
    assert_eq!(shape(json!({ "targets": flat, "strategy": "round_robin" })), (Strategy::RoundRobin, vec![3]));
    assert_eq!(shape(json!({ "targets": nested })), (Strategy::HealthAware, vec![2, 1]));
    assert_eq!(
        shape(json!({ "targets": nested, "strategy": "least_inflight" })),
        (Strategy::LeastInflight, vec![2, 1])
    );
    assert_eq!(shape(json!({ "targets": nested, "strategy": "priority" })), (Strategy::Priority, vec![1, 1, 1]));
}

#[test]
fn a_targets_model_is_all_behind_the_first_slash() {
    let config = config(&model(&json!({ "targets": ["u1/org/other:free"] })));
    assert_eq!((config.models[0].tiers[0][0].provider, &*config.models[0].tiers[0][0].model), (0, "org/other:free"));
}

#[test]
fn names_are_made_up_where_they_may_be_left_out() {
    let tree = json!({
        "providers": [{
            "name": "u1",
            "formats": ["messages"],
            "endpoints": [{ "base_url": "http://a" }, { "name": "b", "base_url": "http://b" }, { "base_url": "http://c" }],
            "keys": [{ "value": "1" }, { "name": "mine", "value": "2" }, { "value": "3" }],
        }],
    });
    let config = config(&tree);
    let provider = &config.providers[0];
    assert_eq!(provider.keys.iter().map(|key| &*key.name).collect::<Vec<_>>(), ["key1", "mine", "key3"]);
    assert_eq!(provider.endpoints.iter().map(|end| &*end.name).collect::<Vec<_>>(), ["endpoint1", "b", "endpoint3"]);
    assert!(provider.speaks(Format::Messages) && provider.speaks(Format::CountTokens) && provider.speaks(Format::Raw));
    assert!(!provider.speaks(Format::Chat));
}

#[test]
fn lengths_of_time_take_fractions_and_never_round_down_to_none() {
    let tree = small(&json!({
        "breaker": { "cooldown_seconds": 0.5, "window_seconds": 0.25 },
        "retry": { "initial_ms": 0.5 },
        "default_policy": { "deadline_seconds": 1e-9, "max_wait_seconds": 0 },
    }));
    let config = config(&tree);
    assert_eq!((config.breaker.cooldown, config.breaker.window), (Span::from_millis(500), Span::from_millis(250)));
    assert_eq!((config.retry.initial, config.default_policy.deadline), (Span(500), Span(1)));
    assert_eq!(config.default_policy.max_wait, Span::ZERO);
}

#[test]
fn the_longest_cooldown_follows_the_plain_one_and_caps_it() {
    let longest = |breaker: Value| {
        let breaker = config(&small(&json!({ "breaker": breaker }))).breaker;
        (breaker.cooldown.as_secs_ceil(), breaker.max_cooldown.as_secs_ceil())
    };
    assert_eq!(longest(json!({ "cooldown_seconds": 7 })), (7, 300));
    assert_eq!(longest(json!({ "cooldown_seconds": 900 })), (900, 900));
    assert_eq!(longest(json!({ "max_cooldown_seconds": 20 })), (20, 20));
}

#[test]
fn variables_are_filled_in_everywhere_and_white_space_around_a_secret_is_dropped() {
    let env = |name: &str| Some(format!(" {name}-value\n"));
    let tree = provider(&json!({
        "base_url": "${URL:-http://other}",
        "headers": { "X-Team": "${TEAM}" },
        "keys": [{ "name": "k-${N:-1}", "value": "${KEY}" }],
    }));
    let with_env = read(&tree, &env);
    assert!(with_env.unwrap_err().iter().all(|problem| !problem.reason.contains("value")));

    let env = |name: &str| (name != "URL" && name != "N").then(|| format!(" {name}-value\n"));
    let provider = &read(&tree, &env).unwrap().providers[0];
    assert_eq!(provider.endpoints[0].base_url.expose(), "http://other");
    assert_eq!((provider.headers[0].0.as_str(), provider.headers[0].1.expose()), ("x-team", "TEAM-value"));
    assert_eq!((provider.keys[0].name.as_str(), provider.keys[0].value.expose()), ("k-1", "KEY-value"));
}

#[test]
fn beyond_loopback_keys_or_a_word_are_needed() {
    let serves = |server: Value| problems(&small(&json!({ "server": server }))).is_empty();
    for loopback in ["127.0.0.1:0", "127.9.9.9:1", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
        assert!(serves(json!({ "listen": loopback })), "{loopback}");
    }
    for world in ["0.0.0.0:0", "[::]:0", "10.0.0.1:80"] {
        assert!(!serves(json!({ "listen": world })), "{world}");
        assert!(!serves(json!({ "listen": world, "api_keys": [] })), "{world}");
        assert!(serves(json!({ "listen": world, "api_keys": ["k"] })), "{world}");
        assert!(serves(json!({ "listen": world, "open": true })), "{world}");
    }
}

/// A list that shares no format with its model's other targets, or one its provider does not tell of, is fine.
#[test]
fn targets_may_speak_different_protocols_and_name_models_that_are_not_listed() {
    let tree = json!({
        "providers": [
            { "name": "a", "formats": ["chat"], "base_url": "http://a", "models": ["x"] },
            { "name": "b", "formats": ["messages"], "base_url": "http://b" },
        ],
        "models": [{ "name": "m", "targets": ["a/unlisted", "b/y", "a/unlisted"] }],
    });
    assert_eq!(config(&tree).models[0].tiers.len(), 3);
}
