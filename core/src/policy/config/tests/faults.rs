//! What is refused (F14): each fault with its path and its reason.

use super::*;

/// A file with a mistake in nearly every table.
#[test]
fn every_problem_is_listed_in_the_order_of_the_walk() {
    let tree = json!({
        "server": { "listen": "localhost", "listne": "x", "max_concurrency": 10.0, "api_keys": ["${NOT_SET}", ""] },
        "providers": [
            { "name": "a/b", "formats": ["chatt"], "bse_url": "http://x", "keys": [{ "value": "k k" }, { "vlaue": "sk-SECRET" }] },
            { "name": "u1", "formats": ["chat"], "base_url": "http://bob:hunter2@", "stop_status_codes": [200, 99999] },
            { "name": "u1", "formats": [], "endpoints": [], "retry_on_errors": ["", "4096 tokens"], "headers": { "a b": "x" } },
            "sk-SECRET",
        ],
        "models": [
            { "name": "m", "strategy": "random", "targets": ["nobody/x", "gpt-5", []], "policy": { "max_transfer_cuont": 1 } },
            { "name": "m", "targets": [] },
            {},
        ],
        "default_policy": {
            "max_transfer_count": -1, "deadline_seconds": -0.5, "empty_completion": "drop",
            "failover_rules": { "error_stop_patterns": [{}, { "pattern": "a(b" }, { "status_code": [422] }] },
        },
        "retry": { "jitter": 2, "factor": 0.5, "stream": "sometimes" },
        "window": { "max_events": 1.5, "max_bytes": 0 },
        "breaker": { "fail_rate": 1.5, "fail_threshhold": 5, "window_seconds": 0 },
        "timeout": { "idle_ms": 1 },
        "trace": { "mode": "all", "path": 5 },
        "state": { "url": "http://bob:hunter2@host" },
    });
    insta::assert_snapshot!("every_problem", told(&problems(&tree)));
}

/// One fault, its path, and what its reason must say.
fn check(tree: &Value, path: &str, words: &[&str]) {
    let problems = problems(tree);
    let told = told(&problems);
    assert_eq!(problems.len(), 1, "one mistake, one problem:\n{told}");
    assert_eq!(problems[0].path, path, "{told}");
    assert!(words.iter().all(|word| problems[0].reason.contains(word)), "{words:?} in:\n{told}");
    assert!(!told.contains("SECRET"), "{told}");
}

#[test]
fn faults_of_a_rule_are_named_wherever_rules_stand() {
    let long = "x".repeat(4097);
    let wide = "容".repeat(1400);
    let cases = [
        ("success_failover_patterns", json!({}), "", "pattern"),
        ("success_failover_patterns", json!({ "pattern": " \n" }), ".pattern", "empty"),
        ("success_failover_patterns", json!({ "status_codes": [200] }), "", "pattern"),
        ("success_failover_patterns", json!({ "pattern": "x", "status_codes": [429] }), ".status_codes[0]", "429"),
        ("success_failover_patterns", json!({ "pattern": "x(?=y)" }), ".pattern", "regex"),
        ("success_failover_patterns", json!({ "pattern": long }), ".pattern", "4096"),
        ("success_failover_patterns", json!({ "pattern": wide }), ".pattern", "4096"),
        ("success_failover_patterns", json!({ "pattern": r"(\w{900}){900}" }), ".pattern", "regex"),
        ("success_failover_patterns", json!("x"), "", "a table"),
        ("error_stop_patterns", json!({}), "", "status_codes"),
        ("error_stop_patterns", json!({ "status_codes": [] }), "", "status_codes"),
        ("error_stop_patterns", json!({ "status_codes": [200] }), ".status_codes[0]", "200"),
        ("error_stop_patterns", json!({ "status_codes": [500, 399] }), ".status_codes[1]", "399"),
        ("error_stop_patterns", json!({ "status_codes": [600], "pattern": "x" }), ".status_codes[0]", "600"),
        ("error_stop_patterns", json!({ "status_codes": [70_000] }), ".status_codes[0]", "70000"),
        ("error_stop_patterns", json!({ "status_codes": 400 }), ".status_codes", "a list"),
        ("error_stop_patterns", json!({ "pattern": "a(b" }), ".pattern", "regex"),
        ("error_stop_patterns", json!({ "pattern": 7 }), ".pattern", "text"),
        ("error_stop_patterns", json!({ "pattern": r"(a)\1" }), ".pattern", "regex"),
        ("error_stop_patterns", json!({ "patern": "x", "status_codes": [500] }), ".patern", "`pattern`"),
    ];
    for (group, rule, path, word) in cases {
        let rules = json!({ "failover_rules": { group: [{ "pattern": "fine" }, rule] } });
        let places = [
            (small(&json!({ "default_policy": rules })), "default_policy"),
            (provider(&rules), "providers[0]"),
            (model(&json!({ "policy": rules })), "models[0].policy"),
        ];
        for (tree, place) in places {
            check(&tree, &format!("{place}.failover_rules.{group}[1]{path}"), &[word]);
        }
    }
}

#[test]
fn sixty_four_rules_a_group_pass_and_one_more_does_not() {
    let rules = |n: usize| vec![json!({ "status_codes": [400, 599], "pattern": "x" }); n];
    let tree = |n| small(&json!({ "default_policy": { "failover_rules": { "error_stop_patterns": rules(n) } } }));
    assert_eq!(config(&tree(64)).default_policy.rules.stop.len(), 64);
    check(&tree(65), "default_policy.failover_rules.error_stop_patterns", &["64", "65"]);
    let just = format!("  {} ", "x".repeat(4096));
    config(&small(
        &json!({ "default_policy": { "failover_rules": { "success_failover_patterns": [{ "pattern": just }] } } }),
    ));
}

#[test]
fn wrong_types_and_ranges_are_refused_with_their_paths() {
    let cases = [
        ("server.listen", json!("localhost"), "`localhost`"),
        ("server.listen", json!("localhost:4000"), "127.0.0.1:4000"),
        ("server.listen", json!(4000), "text"),
        ("server.admin_listen", json!("127.0.0.1"), "port"),
        ("server.open", json!("yes"), "true or false"),
        ("server.api_keys", json!("sk-SECRET"), "a list"),
        ("server.max_body_bytes", json!(0), "at least 1"),
        ("server.max_concurrency", json!("10"), "a whole number"),
        ("server.on_client_disconnect", json!("stop"), "`stop`"),
        ("server.drain_seconds", json!(null), "nothing"),
        ("default_policy.sticky_key_attempts", json!("two"), "a whole number"),
        ("default_policy.max_attempts", json!(4_294_967_296_u64), "at most 4294967295"),
        ("default_policy.max_attempts_hard", json!(0), "at least 1"),
        ("default_policy.max_transfer_count", json!(-1), "negative"),
        ("default_policy.deadline_seconds", json!(-0.5), "negative"),
        ("default_policy.max_wait_seconds", json!(1e300), "at most"),
        ("default_policy.empty_completion", json!("drop"), "`drop`"),
        ("retry.jitter", json!(2), "at most 1"),
        ("retry.factor", json!(0.5), "at least 1"),
        ("retry.factor", json!("2"), "a number"),
        ("retry.stream", json!("sometimes"), "`before_commit`"),
        ("window.max_events", json!(1.5), "1.5"),
        ("window.max_events", json!(0), "at least 1"),
        ("timeouts.idle_ms", json!([]), "a list"),
        ("breaker.min_calls", json!(10.0), "10.0"),
        ("breaker.min_calls", json!("10"), "text"),
        ("breaker.fail_rate", json!(1.5), "at most 1"),
        ("breaker.fail_rate", json!(-0.1), "negative"),
        ("breaker.probe_ttl_seconds", json!(0), "more than 0"),
        ("breaker.count_rate_limited", json!(1), "true or false"),
        ("health.alpha", json!(1.01), "at most 1"),
        ("pace.min", json!(0), "at least 1"),
        ("pace.cut", json!(7), "at most 1"),
        ("stall.window_seconds", json!({}), "a number"),
        ("discovery.configured_models_mode", json!("allow-list"), "`allowlist`"),
        ("state.url", json!("http://:SECRET@x"), "redis://"),
        ("state.on_down", json!("open"), "`closed`"),
        ("state.prefix", json!("{x}"), "braces"),
        ("trace.mode", json!("all"), "`redacted`"),
        ("trace.path", json!(7), "text"),
    ];
    for (path, value, word) in cases {
        let (section, key) = path.split_once('.').unwrap();
        check(&small(&json!({ section: { key: value } })), path, &[word]);
        check(&small(&json!({ section: true })), section, &["a table"]);
    }
    for tree in [json!([]), json!(null), json!("x")] {
        check(&tree, "", &["a table"]);
    }
}

#[test]
fn faults_of_a_provider_are_named() {
    let cases = [
        (json!({ "name": "a/b" }), "providers[0].name", "`a/b`"),
        (json!({ "name": "" }), "providers[0].name", "empty"),
        (json!({ "name": "a b" }), "providers[0].name", "spaces"),
        (json!({ "formats": ["chatt"] }), "providers[0].formats[0]", "`chatt`"),
        (json!({ "formats": ["raw"] }), "providers[0].formats[0]", "`raw`"),
        (json!({ "formats": [] }), "providers[0].formats", "empty"),
        (json!({ "base_url": "not a url" }), "providers[0].base_url", "http://"),
        (json!({ "base_url": "http://bob:SECRET@:80" }), "providers[0].base_url", "host"),
        (json!({ "endpoints": [{ "base_url": "http://x" }] }), "providers[0].base_url", "endpoints"),
        (json!({ "models": ["a", "a"] }), "providers[0].models[1]", "twice"),
        (json!({ "models": [" a"] }), "providers[0].models[0]", "space"),
        (json!({ "headers": { "a b": "x" } }), "providers[0].headers.\"a b\"", "header"),
        (json!({ "headers": { "x": "a\nb" } }), "providers[0].headers.x", "no header can carry"),
        (json!({ "headers": { "Content-Length": "1" } }), "providers[0].headers.Content-Length", "cannot be given"),
        (json!({ "headers": { "x": "1", "X": "2" } }), "providers[0].headers.X", "twice"),
        (json!({ "stop_status_codes": [200] }), "providers[0].stop_status_codes[0]", "200"),
        (json!({ "continue_status_codes": [600] }), "providers[0].continue_status_codes[0]", "600"),
        (json!({ "retry_on_errors": [" "] }), "providers[0].retry_on_errors[0]", "empty"),
        (json!({ "retry_on_errors": ["4096 tokens"] }), "providers[0].retry_on_errors[0]", "status"),
        (json!({ "timeouts": { "idle": 1 } }), "providers[0].timeouts.idle", "`idle_ms`"),
        (json!({ "keys": ["sk-SECRET"] }), "providers[0].keys[0]", "a table"),
        (json!({ "keys": { "a": "sk-SECRET" } }), "providers[0].keys", "a list"),
        (json!({ "keys": [{}] }), "providers[0].keys[0].value", "missing"),
        (json!({ "keys": [{ "value": " " }] }), "providers[0].keys[0].value", "empty"),
        (json!({ "keys": [{ "value": "sk SECRET" }] }), "providers[0].keys[0].value", "header"),
        (json!({ "keys": [{ "value": "${NOT_SET}" }] }), "providers[0].keys[0].value", "NOT_SET"),
        (json!({ "keys": [{ "value": "a", "account": "" }] }), "providers[0].keys[0].account", "empty"),
        (json!({ "keys": [{ "value": "a", "rpm": -1 }] }), "providers[0].keys[0].rpm", "negative"),
        (
            json!({ "keys": [{ "value": "a", "name": "k" }, { "value": "b", "name": "k" }] }),
            "providers[0].keys[1].name",
            "`k`",
        ),
        (
            json!({ "keys": [{ "value": "a", "name": "key2" }, { "value": "b" }] }),
            "providers[0].keys[1].name",
            "`key2`",
        ),
        (json!({ "bse_url": "http://SECRET" }), "providers[0].bse_url", "`base_url`"),
    ];
    for (over, path, word) in cases {
        let mut tree = provider(&over);
        tree["models"] = json!([]);
        check(&tree, path, &[word]);
    }
}

#[test]
fn a_provider_needs_a_name_formats_and_an_address() {
    let without = |key: &str| {
        let mut tree = small(&json!({ "models": [] }));
        tree["providers"][0].as_object_mut().unwrap().remove(key);
        tree
    };
    check(&without("name"), "providers[0].name", &["missing"]);
    check(&without("formats"), "providers[0].formats", &["missing", "chat"]);
    check(&without("base_url"), "providers[0].base_url", &["missing"]);
    config(&without("keys"));
    for endpoints in [json!([]), json!([{}]), json!([{ "base_url": "x" }])] {
        let mut tree = without("base_url");
        tree["providers"][0]["endpoints"] = endpoints;
        assert_eq!(problems(&tree).len(), 1, "{tree}");
    }
    check(&json!({}), "providers", &["no provider"]);
    check(&json!({ "providers": [] }), "providers", &["no provider"]);
    check(&json!({ "providers": {} }), "providers", &["a list"]);
}

#[test]
fn faults_of_a_model_are_named() {
    let many: Vec<String> = (0..4097).map(|n| format!("u1/{n}")).collect();
    let cases = [
        (json!({ "name": "" }), "models[0].name", "empty"),
        (json!({ "strategy": "random" }), "models[0].strategy", "`random`"),
        (json!({ "targets": [] }), "models[0].targets", "empty"),
        (json!({ "targets": "u1/x" }), "models[0].targets", "a list"),
        (json!({ "targets": many }), "models[0].targets", "4096"),
        (json!({ "targets": ["u1/x", "gpt-5"] }), "models[0].targets[1]", "provider/model"),
        (json!({ "targets": ["u1/"] }), "models[0].targets[0]", "provider/model"),
        (json!({ "targets": ["nobody/x"] }), "models[0].targets[0]", "`nobody`"),
        (
            json!({ "targets": [["u1/x"], ["u1/x", "u2/x"]] }),
            "models[0].targets[1][1]",
            "`u2`; the nearest known one is `u1`",
        ),
        (json!({ "targets": [[]] }), "models[0].targets[0]", "empty"),
        (json!({ "target": ["u1/x"] }), "models[0].target", "`targets`"),
        (json!({ "policy": { "max_wait": 1 } }), "models[0].policy.max_wait", "`max_wait_seconds`"),
        (json!({ "structured": "yes" }), "models[0].structured", "true or false"),
        (json!({ "structured": { "retries": 1 } }), "models[0].structured.retries", "`max_retries`"),
        (json!({ "window": { "max_bytes": 0 } }), "models[0].window.max_bytes", "at least 1"),
        (json!({ "retry": { "jitter": -1 } }), "models[0].retry.jitter", "negative"),
    ];
    for (over, path, word) in cases {
        check(&model(&over), path, &[word]);
    }
    check(&small(&json!({ "models": [{ "targets": ["u1/x"] }] })), "models[0].name", &["missing"]);
    check(&small(&json!({ "models": [{ "name": "x" }] })), "models[0].targets", &["missing"]);
    let twin = json!({ "name": "twin", "targets": ["u1/x"] });
    check(&small(&json!({ "models": [twin, twin] })), "models[1].name", &["`twin`"]);
}

#[test]
fn a_name_used_twice_is_told_at_its_second_place() {
    let one = small(&json!({}))["providers"][0].clone();
    check(&small(&json!({ "providers": [one, one] })), "providers[1].name", &["`u1`"]);
}

/// More sources than a roster holds would be cut in silence later.
#[test]
fn sources_beyond_a_rosters_bound_are_refused() {
    let keys = |n: usize| (0..n).map(|n| json!({ "value": format!("v{n}") })).collect::<Vec<_>>();
    let endpoints = |n: usize| (0..n).map(|n| json!({ "base_url": format!("http://h{n}") })).collect::<Vec<_>>();
    let tree = |n| {
        json!({
            "providers": [{ "name": "u1", "formats": ["chat"], "endpoints": endpoints(n), "keys": keys(64) }],
            "models": [{ "name": "m", "targets": ["u1/x"] }],
        })
    };
    config(&tree(64));
    let told = told(&problems(&tree(65)));
    assert!(told.contains("providers[0]: 4160 sources") && told.contains("models[0].targets: 4160 sources"), "{told}");
}

/// A mistake in a provider is no reason to call its name unknown.
#[test]
fn a_faulty_provider_is_still_known_to_targets() {
    check(&provider(&json!({ "base_url": "nowhere" })), "providers[0].base_url", &["http://"]);
}

#[test]
fn no_value_of_the_environment_is_ever_shown() {
    let env = |_: &str| Some("SECRET/ x".to_owned());
    let v = "${V}";
    let tree = json!({
        "server": { "listen": v, "admin_listen": v, "api_keys": [v], "on_client_disconnect": v, "lissten": v },
        "providers": [
            {
                "name": v, "formats": [v], "base_url": v, "models": [v, v], "headers": { "x": "\n${V}" }, "account": v,
                "retry_on_errors": ["${V} 99"], "keys": [{ "name": v, "value": v }], "stop_status_codes": [v],
                "failover_rules": { "success_failover_patterns": [{ "pattern": "(${V}" }] },
            },
            { "name": "u1", "formats": ["chat"], "base_url": "http://${V}" },
        ],
        "models": [{ "name": v, "strategy": v, "targets": [v, "nobody/x"] }, { "name": v, "targets": ["u1/x"] }],
        "state": { "url": v },
        "trace": { "mode": v },
        "retry": { "stream": v, "factor": v },
    });
    let problems = read(&tree, &env).unwrap_err();
    assert!(problems.len() > 18, "{}", told(&problems));
    assert!(!told(&problems).contains("SECRET"), "{}", told(&problems));

    // A name that is fine, used twice and sought: it came from the environment, so it is not told either.
    let env = |_: &str| Some("SECRET".to_owned());
    let one = json!({ "name": v, "formats": ["chat"], "base_url": "http://h" });
    let tree = json!({ "providers": [one, one], "models": [{ "name": "m", "targets": ["other/x"] }] });
    let told = told(&read(&tree, &env).unwrap_err());
    assert!(told.lines().count() == 2 && !told.contains("SECRET"), "{told}");
}

/// What is kept is not printed either, however it is asked for.
#[test]
fn a_configuration_prints_no_secret() {
    let tree = small(&json!({
        "server": { "api_keys": ["client-SECRET"] },
        "providers": [{
            "name": "u1", "formats": ["chat"], "base_url": "http://bob:SECRET@h/v1", "keys": [{ "value": "sk-SECRET" }],
            "headers": { "authorization": "Bearer SECRET" },
        }],
        "state": { "url": "redis://:SECRET@h:6379" },
    }));
    assert!(!format!("{:?}", config(&tree)).contains("SECRET"));
}
