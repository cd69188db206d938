//! X7, X8: traces as files. `data/seven-calls.trace` was written by the gateway: a retry and a transfer, a good stream, empty
//! answers, a torn stream, a refusal, a rate limit, a dead key.

use std::path::{Path, PathBuf};

use surefoot_sim::replay::explain::explain;
use surefoot_sim::replay::{Comparison, Trace, html, same, what_if};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/seven-calls.trace")
}

fn text() -> String {
    std::fs::read_to_string(fixture()).expect("the fixture")
}

/// What replaying a file with this content says, its exit code included.
fn replayed(content: &[u8]) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("calls.trace");
    std::fs::write(&path, content).expect("written");
    match same(&path, 2) {
        Ok(found) => format!("{found}exit {}", found.exit_code()),
        Err(error) => format!("{error}\nexit 2").replace(&dir.path().display().to_string(), "…"),
    }
}

/// The file with its line `number` (from 1) changed.
fn with_line(number: usize, change: impl Fn(&str) -> String) -> Vec<u8> {
    let lines = text()
        .lines()
        .enumerate()
        .map(|(at, line)| if at + 1 == number { change(line) } else { line.to_owned() })
        .collect::<Vec<_>>();
    (lines.join("\n") + "\n").into_bytes()
}

#[test]
fn a_trace_of_the_gateway_does_the_same_again_with_any_number_of_threads() {
    for threads in [1, 2, 3, 7] {
        let found = same(&fixture(), threads).expect("a trace");
        assert_eq!((found.calls, found.unfinished, found.exit_code()), (7, 0, 0), "{found}");
    }
    insta::assert_snapshot!(same(&fixture(), 2).expect("a trace"), @"7 calls in 193 lines: 7 did the same again, 0 did not");
}

/// A line that still reads well and says something else: its checksum is made anew.
fn forged(line: &str, from: &str, to: &str) -> String {
    let body = line.replace(from, to);
    assert_ne!(body, line, "{from} is not in {line}");
    body
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_its_line() {
    let whole = text();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("empty", Vec::new()),
        ("the last line is cut", whole.as_bytes()[..whole.len() - 40].to_vec()),
        ("the last line has no end, and is whole", whole.trim_end().as_bytes().to_vec()),
        ("cut in the middle of a call", whole.as_bytes()[..whole.len() / 2].to_vec()),
        ("a line was edited", with_line(9, |line| forged(line, "\"at\":1", "\"at\":2"))),
        (
            "a line is missing",
            whole
                .lines()
                .filter(|line| !line.contains("\"in\":\"head\",\"call\":3"))
                .map(|line| format!("{line}\n"))
                .collect::<String>()
                .into_bytes(),
        ),
        ("the first line is of another version", with_line(1, |line| line.replace("{\"v\":1", "{\"v\":9"))),
        ("a later line is of another version", with_line(12, |line| line.replace("{\"v\":1", "{\"v\":9"))),
        ("the first line is cut off", format!("{TORN}{whole}").into_bytes()),
        ("no policy", whole.split_once('\n').expect("lines").1.as_bytes().to_vec()),
        ("a log, no trace", b"INFO surefoot: listening\nINFO surefoot: a call\n".to_vec()),
        ("bytes, no text", vec![0xff, 0xfe, b'\n', 0x80, b'\n']),
        ("a line of bytes among the others", {
            let mut all = whole.clone().into_bytes();
            all.extend([0xff, b'\n']);
            all
        }),
        ("only empty lines", b"\n\n\n".to_vec()),
    ];
    let told: Vec<String> = cases.iter().map(|(name, content)| format!("── {name}\n{}", replayed(content))).collect();
    let missing = same(Path::new("no/such.trace"), 2).expect_err("there is none").to_string();
    insta::assert_snapshot!(told.join("\n") + "\n── missing\n" + &missing);
}

/// A call that does something else is shown with its line; here an input was left out, and the checksums forged.
#[test]
fn the_first_difference_of_a_call_is_shown() {
    use surefoot_core::event::Input;
    use surefoot_core::trace::{Entry, Reader};
    let mut reader = Reader::new();
    let mut calls: Vec<_> = text().lines().filter_map(|line| reader.push(line).expect("a good line")).collect();
    let call = &mut calls[0];
    for entry in &mut call.entries {
        if let Entry::In(_, Input::Head { head, .. }) = entry {
            head.status = 404;
        }
    }
    let difference = call.replay().expect_err("another status, another life");
    let told = difference.to_string();
    assert!(told.starts_with("call 1 differs at line "), "{told}");
    assert!(told.contains("recorded: {") && told.contains("now:      {"), "{told}");
}

#[test]
fn a_calls_life_is_told_with_its_reasons() {
    let lives = ["1", "fixture-3", "5", "6", "fixture-6"].map(|call| explain(&fixture(), call).expect("a call"));
    insta::assert_snapshot!(lives.concat());
}

/// The rest of a line, as the tail of a file begins with.
const TORN: &str = "\"lines\":9,\"sum\":\"01234567\"}\n";

#[test]
fn a_first_line_that_is_cut_off_says_nothing_of_those_behind_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("tail.trace");
    std::fs::write(&path, format!("{TORN}{}", text())).expect("written");
    // All but the lines' numbers.
    let life = |path: &Path| {
        let told = explain(path, "fixture-3").expect("a call");
        let number = |letter: char| letter == ' ' || letter.is_ascii_digit();
        told.lines().map(|line| line.trim_start_matches(number).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(life(&path), life(&fixture()));
    // Also where the second line is longer than what is read at a time.
    let long = format!("{{\"v\":1,\"do\":\"finish\",\"call\":3,\"at\":1,\"body\":\"{}\"}}\n", "x".repeat(2 << 20));
    std::fs::write(&path, format!("{TORN}{long}{}", text())).expect("written");
    assert_eq!(life(&path), life(&fixture()));
    same(&path, 1).expect("a trace");
    for alone in [TORN.to_owned(), format!("{TORN}{TORN}")] {
        std::fs::write(&path, alone).expect("written");
        let error = explain(&path, "fixture-3").expect_err("no trace").to_string();
        assert!(error.ends_with("line 1: not JSON; a trace has one JSON object a line"), "{error}");
    }
}

/// A disk's worth of zeros is no line, and is not read into memory to find out.
#[test]
fn a_line_without_end_is_not_read_to_its_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("zeros.trace");
    std::fs::File::create(&path).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    for error in
        [explain(&path, "1").expect_err("no trace").to_string(), same(&path, 1).expect_err("no trace").to_string()]
    {
        assert!(error.ends_with("line 1: longer than any line of a trace; is it one?"), "{error}");
    }
}

#[test]
fn who_asks_for_a_call_that_is_not_there_hears_which_are() {
    let path = fixture();
    let told = ["8", "0", "fixture-9", "nothing like it"].map(|call| {
        explain(&path, call).expect_err("no such call").to_string().replace(&path.display().to_string(), "calls.trace")
    });
    insta::assert_snapshot!(told.join("\n"));
}

/// X8: without any change of the policy the simulation comes to what was recorded.
#[test]
fn the_policy_as_it_was_makes_of_a_trace_what_it_was() {
    let trace = Trace::read(&fixture(), 2).expect("a trace");
    let other = what_if(&trace, &serde_json::json!({}), &|_| None, 1).expect("a policy");
    let compared = Comparison::new(&trace, &other);
    assert_eq!(compared.changed, [0usize; 0], "{}", compared.text("same"));
    assert_eq!(compared.modelled(), (0.0, 0.0));
    let key =
        |calls: &surefoot_sim::replay::figures::Calls| (calls.attempts, calls.transfers, calls.retries, calls.success);
    assert_eq!(key(&compared.before.all), key(&compared.after.all));
}

/// A redacted trace has no texts: what its words meant is known from the verdicts in it.
#[test]
fn policies_that_cannot_be_tried_are_refused_with_a_reason() {
    let trace = Trace::read(&fixture(), 1).expect("a trace");
    let refuse = |tree: serde_json::Value| what_if(&trace, &tree, &|_| None, 1).expect_err("no policy").to_string();
    let strange = serde_json::json!({
        "providers": [{ "name": "u3", "formats": ["chat"], "base_url": "http://h/v1", "keys": [{ "name": "k", "value": "${K}" }] }],
        "models": [{ "name": "m0", "targets": ["u3/x"] }],
    });
    let told = [
        refuse(serde_json::json!({ "breaker": { "fail_treshold": 3 } })),
        refuse(serde_json::json!({ "default_policy": { "max_attempts": -1 } })),
        refuse(strange),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

/// A process that was killed in the middle of a line is no reason to say nothing about the rest.
#[test]
fn another_policy_is_tried_on_what_can_be_read_and_the_report_says_what_cannot() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("calls.trace");
    let whole = text();
    std::fs::write(&path, &whole[..whole.len() - 40]).expect("written");
    let trace = Trace::read(&path, 2).expect("a trace");
    let other = what_if(&trace, &serde_json::json!({}), &|_| None, 1).expect("a policy");
    let told = Comparison::new(&trace, &other).text("same");
    assert_eq!((trace.calls.len(), trace.problems.len()), (6, 1));
    assert!(told.contains("line 193: the line is cut off"), "{told}");
}

/// Whatever became of a file: something is said of it, and nothing panics.
#[test]
fn files_that_were_mangled_are_told_of_and_never_panic() {
    use surefoot_sim::rng::{Concern, Stream};
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("calls.trace");
    let lines: Vec<Vec<u8>> = text().lines().map(|line| line.as_bytes().to_vec()).collect();
    let mut noticed = 0;
    for round in 0..120 {
        let mut chance = Stream::new(7, Concern::Sample, round, 0);
        let mut mangled = lines.clone();
        for _ in 0..chance.range(1, 4) {
            let at = chance.below(mangled.len() as u64) as usize;
            match chance.below(5) {
                0 => drop(mangled.remove(at)),
                1 => mangled.insert(at, mangled[at].clone()),
                2 => {
                    let other = chance.below(mangled.len() as u64) as usize;
                    mangled.swap(at, other);
                }
                3 => {
                    let length = mangled[at].len() as u64;
                    mangled[at].truncate(chance.below(length + 1) as usize);
                }
                _ => {
                    let place = chance.below(mangled[at].len().max(1) as u64) as usize;
                    if let Some(byte) = mangled[at].get_mut(place) {
                        *byte = chance.bits() as u8;
                    }
                }
            }
        }
        std::fs::write(&path, mangled.join(&b'\n')).expect("written");
        noticed += usize::from(same(&path, 3).map_or(2, |found| found.exit_code()) != 0);
        let _ = explain(&path, "3");
        if let Ok(trace) = Trace::read(&path, 3)
            && let Ok(other) = what_if(&trace, &serde_json::json!({}), &|_| None, 1)
        {
            let compared = Comparison::new(&trace, &other);
            html::page("calls", &trace, Some(("same", &compared)));
        }
    }
    // Lines of different calls may change places, and bytes may be replaced by themselves.
    assert!(noticed > 100, "{noticed} of 120");
}

#[test]
fn a_page_holds_nothing_but_text_of_the_trace_and_needs_nothing_from_elsewhere() {
    let mut trace = Trace::read(&fixture(), 1).expect("a trace");
    trace.calls[3].begin.request_id = "<script>alert(1)</script>\u{7}\"'&".into();
    let policy = serde_json::json!({ "models": [{ "name": "m3", "targets": ["u2/good"] }] });
    let other = what_if(&trace, &policy, &|_| None, 1).expect("a policy");
    let compared = Comparison::new(&trace, &other);
    let page = html::page("<calls>", &trace, Some(("a\"b.toml", &compared)));
    assert!(!page.contains("<script") && !page.contains("<calls>") && !page.contains('\u{7}'));
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "the call is listed");
    for reference in ["http://", "https://", "src=", "href=", "@import", "url(http"] {
        assert!(!page.contains(reference), "{reference}");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert_eq!(page.matches("<g ").count(), page.matches("</g>").count());
}
