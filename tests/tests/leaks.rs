//! Nothing is left over: descriptors, memory and slots after a thousand calls that went wrong in every way.

use std::time::Duration;

use serde_json::json;
use surefoot_tests::http::{post, request};
use surefoot_tests::{Gateway, Mock, Runtime, on_each_runtime, skip, within};

on_each_runtime!(a_thousand_mixed_calls_leave_nothing_behind);

/// What the first source does; the second one is good.
const FAULTS: [&str; 20] = [
    "ok",
    "503",
    "429:retry-after-ms=1",
    "404",
    "500",
    "close",
    "reset",
    "stall",
    "error=529",
    "cut",
    "cut-after=2c",
    "reset-after=2c",
    "malformed",
    "empty",
    "empty=stream",
    "html",
    "garbage",
    "drift",
    "gzip",
    "gzip=bare",
];
const CALLERS: usize = 8;

fn config(mock: &Mock) -> String {
    let models: String = FAULTS
        .iter()
        .enumerate()
        .map(|(number, fault)| format!("[[models]]\nname = \"m{number}\"\ntargets = ['u1/mock:{fault}', 'u2/good']\n"))
        .collect();
    let providers: String = ["u1", "u2"]
        .iter()
        .map(|name| {
            format!("[[providers]]\nname = \"{name}\"\nformats = [\"chat\"]\nbase_url = \"{}/{name}/v1\"\n", mock.url())
        })
        .collect();
    format!(
        r#"
[server]
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"
drain_seconds = 0.5
[default_policy]
sticky_key_attempts = 1
max_wait_seconds = 1
[retry]
initial_ms = 1
max_ms = 5
[timeouts]
connect_ms = 1000
first_byte_ms = 100
idle_ms = 200
total_ms = 150
[breaker]
fail_threshold = 1000000
min_calls = 1000000
[discovery]
configured_models_mode = "allowlist"
{providers}{models}"#
    )
}

/// One call; some leave before the end. Whether something came that no client should get.
fn call(gateway: &Gateway, number: usize) -> Result<(), String> {
    let stream = !number.is_multiple_of(3);
    let leaves = number.is_multiple_of(7);
    let model = format!("m{}", number % FAULTS.len());
    let body = json!({ "model": model, "stream": stream, "messages": [{ "role": "user", "content": "Hi" }] });
    let request = post("/v1/chat/completions", &body).timeout(Duration::from_secs(20));
    let open = match request.send(gateway.addr()) {
        Ok(open) => open,
        Err(error) => return Err(format!("{model} stream {stream}: {error}")),
    };
    if leaves {
        return Ok(());
    }
    let status = open.status;
    match open.finish() {
        // 404 is passed on to the next source, so nothing is left to fail but a stream that broke after content.
        Ok(answer)
            if status == 200
                && (!stream || answer.text().contains("[DONE]") || answer.text().contains("stream_incomplete")) =>
        {
            Ok(())
        }
        Ok(answer) => Err(format!("{model} stream {stream}: {status} {}", answer.text())),
        Err(error) => Err(format!("{model} stream {stream}: {status}, then {error}")),
    }
}

fn calls(gateway: &Gateway, count: usize) -> Vec<String> {
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                scope.spawn(move || {
                    (caller..count)
                        .step_by(CALLERS)
                        .filter_map(|number| call(gateway, number).err())
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        callers.into_iter().flat_map(|caller| caller.join().expect("no panic")).collect()
    })
}

/// What `/status` says is still under way: calls, waiting ones, attempts of each target.
fn in_flight(gateway: &Gateway) -> Vec<String> {
    let output = gateway.output();
    let admin = output.split("metrics and status on http://").nth(1).and_then(|rest| rest.split_whitespace().next());
    let status =
        request("GET", "/status").fetch(admin.expect("a line that names the admin side")).expect("a status").json();
    let targets = status["targets"].as_array().expect("targets").iter();
    let counts = [("calls".to_owned(), &status["calls"]), ("waiting".to_owned(), &status["waiting"])].into_iter();
    let counts = counts.chain(targets.map(|target| (target["target"].to_string(), &target["inflight"])));
    counts.filter(|(_, count)| count.as_u64() != Some(0)).map(|(name, count)| format!("{name}: {count}")).collect()
}

fn a_thousand_mixed_calls_leave_nothing_behind(runtime: &Runtime) {
    let mock = Mock::start();
    let mut gateway = Gateway::start(runtime, &config(&mock));
    // What stays open by right, idle connections to the upstreams among it, is there after these.
    assert_eq!(calls(&gateway, 120), Vec::<String>::new());
    let (fds, rss) = (gateway.descriptors(), gateway.rss());
    assert_eq!(calls(&gateway, 1000), Vec::<String>::new());
    if let (Some(fds), Some(rss)) = (fds, rss) {
        let mut now = 0;
        let few = within(10, || {
            now = gateway.descriptors().unwrap_or(usize::MAX);
            now <= fds + 2 * CALLERS
        });
        assert!(few, "{now} descriptors, {fds} before a thousand calls");
        let grown = gateway.rss().unwrap_or(u64::MAX).saturating_sub(rss) >> 20;
        assert!(grown < 16, "{grown} MiB more than before a thousand calls");
    } else {
        skip("descriptors and memory", "this system does not tell them");
    }
    let mut busy = Vec::new();
    let idle = within(10, || {
        busy = in_flight(&gateway);
        busy.is_empty()
    });
    assert!(idle, "slots that nobody gave back: {busy:?}");
    assert!(!gateway.output().contains("panicked"), "{}", gateway.output());
    let (code, took) = gateway.stop();
    assert!(code == Some(0) && took < Duration::from_millis(450), "a call is left over: exit {code:?} after {took:?}");
}
