//! X7, X8: what `surefoot serve` traced of ten thousand calls among providers that misbehave, `surefoot replay` does again to
//! the same actions; and it says what another policy would have made of them.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use surefoot_tests::http::post;
use surefoot_tests::{Gateway, Launch, Mock, TOKIO, skip};

/// Of some whose client leaves at once the gateway never hears.
const CALLS: usize = 10_200;
const CALLERS: usize = 24;

/// What the first source does, by model. The second is good.
const FAULTS: [&str; 14] = [
    "ok",
    "flaky=0.5",
    "503",
    "500",
    "404",
    "400",
    "429:retry-after-ms=1",
    "error=529",
    "empty",
    "html",
    "garbage",
    "cut",
    "cut-after=2c",
    "malformed",
];

fn provider(mock: &Mock, name: &str) -> String {
    let url = mock.url();
    format!(
        "[[providers]]\nname = \"{name}\"\nformats = [\"chat\"]\nbase_url = \"{url}/{name}/v1\"\nkeys = [{{ name = \"k\", value = \"sk-{name}-secret\" }}]\n"
    )
}

fn misbehaving(mock: &Mock, mode: &str) -> String {
    let models: String = (FAULTS.iter().enumerate())
        .map(|(number, fault)| format!("[[models]]\nname = \"m{number}\"\ntargets = ['u1/mock:{fault}', 'u2/good']\n"))
        .collect();
    format!(
        r#"
[server]
listen = "127.0.0.1:0"
drain_seconds = 1
[trace]
mode = "{mode}"
path = "calls.trace"
[retry]
initial_ms = 1
max_ms = 2
[breaker]
cooldown_seconds = 0.3
max_cooldown_seconds = 0.5
[discovery]
configured_models_mode = "allowlist"
{}{}{models}
[[models]]
name = "dead"
strategy = "health_aware"
targets = ["u3/mock:401", "u2/good"]
"#,
        provider(mock, "u1"),
        provider(mock, "u2") + &provider(mock, "u3"),
    )
}

/// Makes so many calls over these models; every hundredth client leaves without waiting for its answer.
fn load(gateway: &Gateway, calls: usize, models: &[String]) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= calls {
                        return;
                    }
                    let words = json!([{ "role": "user", "content": "How are you?" }]);
                    let model = &models[number % models.len()];
                    let body = json!({ "model": model, "stream": number.is_multiple_of(2), "messages": words });
                    let request = post("/v1/chat/completions", &body).header("x-request-id", &format!("call-{number}"));
                    if number % 100 == 99 {
                        let left = request.start(gateway.addr());
                        assert!(left.is_ok(), "{left:?}");
                    } else {
                        // A torn stream is an answer like any other here.
                        let _ = request.fetch(gateway.addr());
                    }
                }
            });
        }
    });
}

fn surefoot(args: &[&str]) -> (Option<i32>, String, String) {
    Launch::new(&TOKIO, args).run()
}

fn path(file: &Path) -> &str {
    file.to_str().expect("a path of text")
}

/// A row of the report's totals: recorded, and under the other policy.
fn row(report: &str, label: &str) -> (f64, f64) {
    let line = report.lines().find(|line| line.starts_with(label)).unwrap_or_else(|| panic!("no {label} in\n{report}"));
    let mut numbers = line[label.len()..].split_whitespace().filter_map(|word| word.parse().ok());
    (numbers.next().expect("a figure"), numbers.next().expect("another"))
}

struct Recorded {
    gateway: Gateway,
    file: PathBuf,
}

fn record(config: &str, calls: usize, models: &[String]) -> Recorded {
    let mut gateway = Gateway::start_with(&TOKIO, config, &[("RUST_LOG", "error")]);
    load(&gateway, calls, models);
    assert_eq!(gateway.stop().0, Some(0));
    let file = gateway.dir().join("calls.trace");
    Recorded { gateway, file }
}

/// Ten thousand calls, recorded in full and redacted; both replay to identical actions.
#[test]
fn ten_thousand_calls_do_the_same_again() {
    let models: Vec<String> = (0..FAULTS.len()).map(|number| format!("m{number}")).chain(["dead".to_owned()]).collect();
    std::thread::scope(|scope| {
        for mode in ["full", "redacted"] {
            let models = &models;
            scope.spawn(move || {
                let mock = Mock::start();
                let config = misbehaving(&mock, mode);
                let recorded = record(&config, CALLS, models);
                let (code, said, complaint) = surefoot(&["replay", path(&recorded.file)]);
                assert_eq!(code, Some(0), "{mode}: {said}{complaint}");
                let calls: usize = said.split(' ').next().and_then(|word| word.parse().ok()).expect("a count");
                assert!(calls >= 10_000, "{mode}: {said}");
                assert!(said.contains(&format!("{calls} did the same again, 0 did not")), "{mode}: {said}");
                // Past the harness: the figure is worth seeing; how fast is a matter of the build and of who else is busy.
                let speed = said.lines().last().unwrap_or_default();
                let _ = writeln!(std::io::stderr(), "\nreplay of {calls} {mode} calls: {speed}");
                unchanged(&recorded, mode);
                broken(&recorded, mode);
            });
        }
    });
}

/// Under the policy that was live, the simulation lands near what was recorded.
fn unchanged(recorded: &Recorded, mode: &str) {
    let config = recorded.gateway.dir().join("surefoot.toml");
    let (code, report, complaint) = surefoot(&["replay", path(&recorded.file), "--policy", path(&config)]);
    assert_eq!(code, Some(0), "{mode}: {complaint}");
    let (before, after) = row(&report, "success ");
    assert!((before - after).abs() < 1.0, "{mode}: success {before} and {after}\n{report}");
    let (before, after) = row(&report, "attempts ");
    assert!((before - after).abs() < 0.05 * before, "{mode}: attempts {before} and {after}\n{report}");
}

/// A file that was cut is told so, with the line; a call can be looked at all the same.
fn broken(recorded: &Recorded, mode: &str) {
    let (code, life, _) = surefoot(&["explain", path(&recorded.file), "call-5"]);
    assert_eq!(code, Some(0), "{mode}");
    assert!(life.contains("request call-5") && life.contains("over: "), "{mode}: {life}");
    let (code, _, complaint) = surefoot(&["explain", path(&recorded.file), "call-none"]);
    assert_eq!(code, Some(2), "{mode}: {complaint}");
    assert!(complaint.contains("no call `call-none`; the trace has 10"), "{mode}: {complaint}");
    let whole = std::fs::read(&recorded.file).expect("the trace");
    let lines = whole.iter().filter(|byte| **byte == b'\n').count();
    let cut = recorded.gateway.dir().join("cut.trace");
    std::fs::write(&cut, &whole[..whole.len() - 30]).expect("written");
    let (code, said, _) = surefoot(&["replay", path(&cut)]);
    assert_eq!(code, Some(2), "{mode}: {said}");
    assert!(said.contains(&format!("line {lines}: the line is cut off")), "{mode}: {said}");
}

/// One source half dead under a policy of one attempt; then under one that transfers and has a breaker.
#[test]
fn another_policy_serves_what_was_lost_and_the_page_shows_it() {
    let mock = Mock::start();
    let config = format!(
        r#"
[server]
listen = "127.0.0.1:0"
drain_seconds = 1
[trace]
mode = "redacted"
path = "calls.trace"
[default_policy]
max_attempts = 1
sticky_key_attempts = 1
[breaker]
fail_threshold = 1000000
min_calls = 1000000
[discovery]
configured_models_mode = "allowlist"
[[models]]
name = "smart"
strategy = "round_robin"
targets = ["u1/mock:503,flaky=0.8", "u2/good"]
{}{}"#,
        provider(&mock, "u1"),
        provider(&mock, "u2")
    );
    let recorded = record(&config, 1500, &["smart".to_owned()]);
    let dir = recorded.gateway.dir();
    let (policy, page) = (dir.join("moves-on.toml"), dir.join("page.html"));
    let tree = "[default_policy]\nmax_attempts = 3\n[breaker]\nfail_threshold = 5\nmin_calls = 10\ncooldown_seconds = 0.2\nmax_cooldown_seconds = 0.4\n";
    std::fs::write(&policy, tree).expect("written");
    let args = ["replay", path(&recorded.file), "--policy", path(&policy), "--html", path(&page)];
    let (code, report, complaint) = surefoot(&args);
    assert_eq!(code, Some(0), "{complaint}");
    let (before, after) = row(&report, "success ");
    assert!(before < 75.0 && after > 95.0, "{report}");
    assert!(report.contains("of moves-on.toml's attempts were never observed"), "{report}");
    assert!(report.contains("u1/k"), "{report}");
    seen_in_a_browser(&page, "moves-on.toml");
}

/// A real browser makes of the page what it is meant to be, without a complaint.
fn seen_in_a_browser(page: &Path, policy: &str) {
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|it| it.success())
    });
    let Some(browser) = found else { return skip("the replay's page in a browser", "no chromium") };
    let profile = tempfile::tempdir().expect("a folder");
    let done = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("it starts");
    let (dom, log) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{log}");
    assert!(dom.contains("Sources over time") && dom.contains(policy), "{dom}");
    assert!(dom.contains("the breaker of mock:503,flaky=0.8 opened"), "breakers are drawn");
    assert!(dom.matches("<svg class=\"lanes\"").count() == 2, "a picture of either side");
    assert!(!log.contains("CONSOLE"), "the browser complains: {log}");
}
