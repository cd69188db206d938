//! What holds for any tree.

use proptest::prelude::*;
use serde_json::Map;

use super::*;
use crate::policy::config::read_policy;

/// Any JSON tree; many of its keys and words are known ones, so that the walk gets somewhere.
fn any_tree() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        Just("${A}".to_owned()),
        Just("u1/x".to_owned()),
        Just("priority".to_owned()),
        Just("http://h".to_owned()),
        Just("chat".to_owned()),
        ".{0,12}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0..700_u64).prop_map(Value::from),
        word.prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        let key = prop_oneof![proptest::sample::select(known_keys()), ".{0,6}"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((key, inner), 0..8)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn known_keys() -> Vec<String> {
    fn collect(value: &Value, keys: &mut Vec<String>) {
        if let Value::Object(map) = value {
            keys.extend(map.keys().cloned());
        }
        for_each_child(value, |_, child| collect(child, keys));
    }
    let mut keys = Vec::new();
    collect(&documented(), &mut keys);
    keys.sort();
    keys.dedup();
    keys
}

/// Each child of a value with its part of the key path.
fn for_each_child(value: &Value, mut see: impl FnMut(String, &Value)) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, child)| see(format!(".{key}"), child)),
        Value::Array(list) => list.iter().enumerate().for_each(|(at, child)| see(format!("[{at}]"), child)),
        _ => {}
    }
}

/// The paths of everything below a value that `wanted` likes.
fn paths(value: &Value, path: &str, wanted: &dyn Fn(&Value) -> bool, into: &mut Vec<String>) {
    if wanted(value) {
        into.push(path.trim_start_matches('.').to_owned());
    }
    for_each_child(value, |part, child| paths(child, &format!("{path}{part}"), wanted, into));
}

/// The value at a path that `paths` wrote.
fn at<'v>(tree: &'v mut Value, path: &str) -> &'v mut Value {
    let pointer: String = path
        .split(['.', '['])
        .filter(|part| !part.is_empty())
        .map(|part| format!("/{}", part.trim_end_matches(']')))
        .collect();
    tree.pointer_mut(&pointer).unwrap()
}

/// Every table of the documented file, less the one whose keys are the file's own.
fn tables() -> Vec<String> {
    let mut found = Vec::new();
    paths(&documented(), "", &Value::is_object, &mut found);
    found.retain(|path| !path.ends_with("headers"));
    found
}

#[test]
fn every_table_refuses_a_key_that_it_does_not_know() {
    let tables = tables();
    assert!(tables.len() >= 30, "{tables:?}");
    for table in tables {
        let mut tree = documented();
        at(&mut tree, &table)["zzz_unknown"] = json!("sk-SECRET");
        let problems = read(&tree, &documented_env).expect_err(&table);
        let path = if table.is_empty() { "zzz_unknown".to_owned() } else { format!("{table}.zzz_unknown") };
        assert_eq!(problems.iter().map(|problem| &problem.path).collect::<Vec<_>>(), [&path], "{}", told(&problems));
        assert!(problems[0].reason.contains("the nearest known one is `") && !problems[0].reason.contains("SECRET"));
    }
}

#[test]
fn every_value_of_a_wrong_type_is_reported_at_its_path() {
    let mut everything = Vec::new();
    paths(&documented(), "", &|_| true, &mut everything);
    for path in everything {
        // A list of targets may hold a list; nothing else may be two kinds of thing but `structured`.
        let tree_value = at(&mut documented(), &path).clone();
        let wrong = if tree_value.is_number() || tree_value.is_boolean() { json!("SECRET") } else { json!(7) };
        let mut tree = documented();
        *at(&mut tree, &path) = wrong;
        let problems = read(&tree, &documented_env).expect_err(&path);
        assert!(problems.iter().any(|problem| problem.path == path), "{path}:\n{}", told(&problems));
        assert!(!told(&problems).contains("SECRET"), "{}", told(&problems));
    }
}

proptest! {
    #[test]
    fn no_tree_makes_the_reader_panic(tree in any_tree(), set in any::<bool>()) {
        let env = |_: &str| set.then(|| "value".to_owned());
        for outcome in [read(&tree, &env), read_policy(&tree, &env)] {
            if let Err(problems) = outcome {
                prop_assert!(!problems.is_empty());
                prop_assert!(problems.iter().all(|problem| !problem.reason.is_empty()));
            }
        }
    }

    #[test]
    fn a_key_that_is_unknown_is_reported_wherever_it_stands(
        table in proptest::sample::select(tables()),
        key in "[a-z_]{1,20}",
        value in any_tree(),
    ) {
        prop_assume!(!known_keys().contains(&key) && key != "endpoints" && key != "max_retries" && key != "base_url");
        let mut tree = documented();
        at(&mut tree, &table)[key.as_str()] = value;
        let problems = read(&tree, &documented_env).err().unwrap_or_default();
        let path = if table.is_empty() { key.clone() } else { format!("{table}.{key}") };
        prop_assert!(problems.iter().any(|problem| problem.path == path && problem.reason.contains("unknown key")), "{}", told(&problems));
    }

    #[test]
    fn the_order_of_keys_means_nothing(seed in any::<u64>()) {
        fn shuffled(value: &Value, seed: &mut u64) -> Value {
            match value {
                Value::Object(map) => {
                    let mut pairs: Vec<(&String, &Value)> = map.iter().collect();
                    for at in (1..pairs.len()).rev() {
                        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        pairs.swap(at, usize::try_from(*seed >> 33).unwrap_or(0) % (at + 1));
                    }
                    pairs.into_iter().map(|(key, child)| (key.clone(), shuffled(child, seed))).collect()
                }
                Value::Array(list) => list.iter().map(|child| shuffled(child, seed)).collect(),
                other => other.clone(),
            }
        }
        let one = read(&documented(), &documented_env).unwrap();
        let two = read(&shuffled(&documented(), &mut seed.clone()), &documented_env).unwrap();
        prop_assert_eq!(format!("{one:?}"), format!("{two:?}"));
    }
}
