//! Files as they are found: edited, cut, of another version, mixed, from several processes.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};

use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};

use super::{calls, traced};
use crate::call::tests::harness::{DONE, ROLE, STOP, World, body, delta, error, sse};
use crate::policy::config::TraceMode;
use crate::policy::{Phrase, Rules, Secret, StopRule, rules};
use crate::pool::Strategy;
use crate::trace::fields::{check, parse};
use crate::trace::{Line, Policies, Problem, Reader, read_line, replay};

fn file() -> String {
    let scripts = vec![vec![body(503, &error("busy"))], vec![sse(&[ROLE, &delta("Hi"), STOP, DONE])]];
    traced(&mut World::streams(scripts), TraceMode::Redacted, None).1
}

/// What `replay` says first of a file whose line `number` (from 1) was changed.
fn first_error(number: usize, change: impl Fn(&str) -> String) -> String {
    let file = file();
    let lines: Vec<String> = file
        .lines()
        .enumerate()
        .map(|(at, line)| if at + 1 == number { change(line) } else { line.to_string() })
        .collect();
    replay(lines.iter().map(String::as_str)).errors.first().map(ToString::to_string).unwrap_or_default()
}

#[test]
fn a_trace_reads_like_this() {
    insta::assert_snapshot!(file());
}

#[test]
fn what_is_wrong_with_a_line_is_told_with_its_number() {
    let told = [
        first_error(5, |line| line.replace("\"choice\":0", "\"choice\":1")),
        first_error(6, |line| line[..line.len() / 2].to_string()),
        first_error(7, |line| line.replace("\"v\":1", "\"v\":2")),
        first_error(7, |line| line.replace("{\"v\":1,", "{")),
        first_error(8, |_| "Mon 12:00 something else".to_string()),
        first_error(8, |_| "[1, 2]".to_string()),
        first_error(9, |line| format!(" {line}")),
        first_error(9, |line| line[..line.len() - 18].to_string() + "}"),
        first_error(1, |_| String::new()),
        first_error(1, |line| line.replace("\"model\":\"m\"", "\"model\":\"n\"")),
        first_error(2, |_| String::new()),
        first_error(10, |_| String::new()),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

/// A line with a good checksum that this program still does not understand.
#[test]
fn what_a_line_lacks_is_named() {
    let read = |body: &str| {
        let sum = crate::trace::hash::Hash::new().with(body.as_bytes()).folded();
        read_line(&format!("{body},\"sum\":\"{sum:08x}\"}}"), 3).unwrap_err().to_string()
    };
    let told = [
        r#"{"v":1,"in":"chunk","call":1,"at":5,"attempt":0"#,
        r#"{"v":1,"in":"chunk","at":5,"attempt":0,"n":1"#,
        r#"{"v":1,"in":"chunk","call":1,"attempt":0,"n":1"#,
        r#"{"v":1,"in":"chunk","call":1,"at":5,"attempt":0,"b64":"?""#,
        r#"{"v":1,"in":"chunk","call":1,"at":5,"attempt":0,"n":99999999999"#,
        r#"{"v":1,"in":"gossip","call":1,"at":5"#,
        r#"{"v":1,"do":"dance","call":1,"at":5"#,
        r#"{"v":1,"do":"send","call":1,"at":5,"attempt":0,"choice":0,"why":"fun""#,
        r#"{"v":1,"do":"send","in":"tick","call":1,"at":5"#,
        r#"{"v":1,"say":"x","call":1,"at":5"#,
        r#"{"v":1,"in":"head","call":1,"at":5,"attempt":"zero""#,
        r#"{"v":1,"begin":"chat","call":1,"at":5,"mode":"some""#,
        r#"{"v":1,"policy":"00""#,
    ]
    .map(read);
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn every_cut_and_every_changed_byte_is_noticed() {
    let file = file();
    for line in file.lines() {
        for at in (0..line.len()).step_by(3) {
            assert!(read_line(&line[..at], 1).is_err(), "cut to {}", &line[..at]);
            let mut changed = line.as_bytes().to_vec();
            changed[at] ^= 1;
            let Ok(changed) = String::from_utf8(changed) else { continue };
            assert!(read_line(&changed, 1).is_err(), "changed at {at}: {changed}");
        }
    }
}

#[test]
fn lines_of_a_call_that_are_gone_doubled_or_moved_are_noticed() {
    let file = file();
    let lines: Vec<&str> = file.lines().collect();
    let last = lines.len();
    let torn =
        |lines: &[&str]| replay(lines.iter().copied()).errors.iter().any(|error| error.problem == Problem::Torn(5));
    for at in 3..last - 1 {
        let mut changed = lines.clone();
        let line = changed.remove(at);
        assert!(torn(&changed), "line {at} is gone");
        changed.insert(at - 1, line);
        assert!(torn(&changed) || changed == lines, "line {at} was moved");
        let mut changed = lines.clone();
        changed.insert(at, lines[at]);
        assert!(torn(&changed), "line {at} is doubled");
    }
}

#[test]
fn calls_may_be_mixed_and_names_come_again_with_the_next_process() {
    let file = file();
    let lines: Vec<&str> = file.lines().collect();
    let (policy, call) = (lines[0], &lines[1..]);
    let other: Vec<String> = call.iter().map(|line| renamed(line, 6)).collect();
    // The second call's own hash is over its own checksums.
    let mixed = call.iter().zip(&other[..other.len() - 1]).flat_map(|(one, two)| [*one, two.as_str()]);
    let mixed = mixed.chain(call.last().copied());
    let report = replay(core::iter::once(policy).chain(mixed));
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    assert_eq!((report.calls, report.unfinished), (2, 1));
    let twice = core::iter::once(policy).chain(call[..9].iter().copied()).chain(lines.iter().copied());
    let report = replay(twice);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.calls, report.identical, report.unfinished), (2, 2, 1));
}

/// The line as another call's.
fn renamed(line: &str, call: u64) -> String {
    let body = &line[..line.len() - 18];
    let body = body.replace("\"call\":5", &format!("\"call\":{call}"));
    let sum = crate::trace::hash::Hash::new().with(body.as_bytes()).folded();
    format!("{body},\"sum\":\"{sum:08x}\"}}")
}

/// Everything that a call reads of its route comes back; keys come back as tokens.
#[test]
fn a_policy_comes_back() {
    let mut world = World::new(vec![vec![], vec![], vec![]]);
    world.strategy = Strategy::LeastInflight;
    world.policy.rules = Rules {
        success: vec![rules::compile("(?i)a.*b").unwrap()],
        stop: vec![StopRule { statuses: vec![400, 413], pattern: Some(rules::compile("x|\"y\"").unwrap()) }],
    };
    world.policy.retry.jitter_ppm = 3;
    world.providers[1].retry_on_errors = vec![Phrase::parse("422 not now").unwrap()];
    world.providers[1].continue_status_codes = vec![418];
    let mut plan = world.plan();
    let route = std::sync::Arc::make_mut(&mut plan.route);
    route.candidates[1].secret = Secret::new("another-secret");
    route.candidates[2].secret = Secret::default();
    route.candidates[2].provider = route.candidates[0].provider.clone();
    let mut out = Vec::new();
    let mut policies = Policies::new();
    let (id, _) = policies.tell(&plan.route, &mut out);
    let line = String::from_utf8(out).unwrap();
    assert!(!line.contains("secret"), "{line}");
    let Line::Policy { id: read, route } = read_line(line.trim_end(), 1).unwrap() else { panic!("{line}") };
    let told = |route: &crate::policy::Route| format!("{route:?}");
    assert_eq!((read, told(&route)), (id, told(&plan.route)));
    let secrets: Vec<&str> = route.candidates.iter().map(|candidate| candidate.secret.expose()).collect();
    assert_eq!(secrets, ["#a#a#a#a#a#a#a", "#b#b#b#b#b#b#b", ""]);
    assert!(std::sync::Arc::ptr_eq(&route.candidates[0].provider, &route.candidates[2].provider));

    let mut again = Vec::new();
    assert_eq!(policies.tell(&plan.route, &mut again).0, id);
    let copy = std::sync::Arc::new((*plan.route).clone());
    assert_eq!(policies.tell(&copy, &mut again).0, id);
    assert!(again.is_empty(), "told once a file, also after a reload that changes nothing");
    policies.retell();
    policies.tell(&plan.route, &mut again);
    assert_eq!(String::from_utf8(again).unwrap(), line);
}

#[test]
fn the_reader_goes_on_behind_a_bad_line() {
    let file = file();
    let mut reader = Reader::new();
    assert!(reader.push("nonsense").is_err());
    assert!(reader.push("\r\n").unwrap().is_none());
    let read = file.split_inclusive('\n').filter_map(|line| reader.push(line).unwrap()).count();
    assert_eq!((read, reader.lines()), (1, file.lines().count() + 2));
    assert_eq!(calls(&file)[0].begin.request_id.as_ref(), "req-5");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// A trace file is a peer's, too.
    #[test]
    fn no_line_makes_the_reader_panic(line in any::<usize>(), cut in any::<(usize, usize)>(), put in ".{0,6}") {
        let file = file();
        let lines: Vec<&str> = file.lines().collect();
        let line = lines[line % lines.len()];
        let (from, to) = (cut.0 % line.len(), cut.1 % 9);
        let changed = format!("{}{put}{}", &line[..from], line.get(from + to..).unwrap_or_default());
        let _ = check(&changed);
        let _ = parse::<crate::trace::fields::Fields<'_>>(&changed);
        let fixed = renamed(&format!("{changed}{}", ",\"sum\":\"00000000\"}"), 5);
        prop_assert!(changed == line || read_line(&changed, 1).is_err());
        let _ = read_line(&fixed, 1);
    }
}
