//! Ports, limits, scripts and records.

use std::io::ErrorKind;
use std::time::Duration;

use serde_json::json;
use surefoot::mock::{Accept, By, Mock, RecordEnd, Script};
use tokio::net::TcpStream;

use crate::client::{Call, End};
use crate::mock;

fn accepting(accept: Accept) -> Script {
    Script { accept, ..Script::default() }
}

/// Waits for something that another task is about to do.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}

async fn refuses(mock: &Mock) -> bool {
    TcpStream::connect(mock.addr()).await.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[tokio::test]
async fn a_port_refuses_closes_or_resets() {
    assert!(refuses(&mock(accepting(Accept::Refuse)).await).await);
    let closing = mock(accepting(Accept::Close)).await;
    let got = Call::chat("ok").send(closing.addr()).await;
    assert!(matches!(got.end, End::Closed | End::Reset) && got.head.is_empty());
    assert_eq!((closing.connections(), closing.count()), (1, 0));
    let resetting = mock(accepting(Accept::Reset)).await;
    let mut stream = TcpStream::connect(resetting.addr()).await.expect("it is accepted first");
    let read = tokio::io::AsyncReadExt::read_u8(&mut stream).await;
    assert_eq!(read.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    let ignoring = mock(accepting(Accept::Ignore)).await;
    assert_eq!(Call::chat("ok").until("").send(ignoring.addr()).await.end, End::Silent);
}

#[tokio::test]
async fn a_provider_falls_ill_dies_and_heals() {
    let mock = mock(Script::default()).await;
    let status = async || Call::post("/v1/responses", json!({ "model": "m" })).send(mock.addr()).await.status;
    assert_eq!(status().await, 200);
    mock.set_script(Script::always("503").expect("it is right"));
    assert_eq!(status().await, 503);
    let hanging = Call::chat("stall").begin(mock.addr()).await;
    eventually("the call arrives", || mock.in_flight() == 1).await;
    mock.set_script(accepting(Accept::Refuse));
    eventually("death takes the calls along", || mock.in_flight() == 0).await;
    assert!(refuses(&mock).await);
    drop(hanging);
    mock.set_script(Script::default());
    for _ in 0..2000 {
        if !refuses(&mock).await {
            break;
        }
    }
    assert_eq!(status().await, 200);
}

#[tokio::test]
async fn a_port_opens_after_its_time() {
    let mock = mock(Script { open_after_ms: 150, ..accepting(Accept::Refuse) }).await;
    assert!(refuses(&mock).await);
    while refuses(&mock).await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(Call::chat("ok").send(mock.addr()).await.status, 200);
}

#[tokio::test]
async fn a_stopped_mock_frees_its_port() {
    let first = mock(Script::default()).await;
    let addr = first.addr();
    let hanging = Call::chat_stream("stall-after=1").begin(addr).await;
    first.stop().await;
    let second = Mock::start(addr, Script::default()).await.expect("the port is free");
    assert_eq!(Call::chat("ok").send(second.addr()).await.status, 200);
    drop(hanging);
}

#[tokio::test]
async fn an_account_takes_so_many_at_once() {
    let script = "[[accounts]]\nname = \"acme\"\nkeys = [\"sk-a*\"]\nin_flight = 1\nretry_after = \"3\"";
    let mock = mock(Script::from_toml(script).expect("it is right")).await;
    let chat = |key: &str, directive: &str| Call::chat(directive).header("authorization", &format!("Bearer {key}"));
    let hanging = chat("sk-a1", "stall").begin(mock.addr()).await;
    eventually("the place is taken", || mock.in_flight() == 1).await;
    let refused = chat("sk-a2", "ok").send(mock.addr()).await;
    assert_eq!((refused.status, refused.header("retry-after").as_deref()), (429, Some("3")));
    assert_eq!(chat("sk-b", "ok").send(mock.addr()).await.status, 200);
    drop(hanging);
    eventually("the place is free", || mock.in_flight() == 0).await;
    assert_eq!(chat("sk-a2", "ok").send(mock.addr()).await.status, 200);
    let records = mock.records();
    assert_eq!((records[1].by, records[1].status, records[0].end), (By::Limit, Some(429), Some(RecordEnd::Left)));
    assert!(mock.most_in_flight() >= 1);
}

/// Sources of one account with a gate of their own: both limits hold, and each refuses in its own words.
#[tokio::test]
async fn a_key_has_its_own_gate_within_its_account() {
    let script = "[[accounts]]\nname = \"acme\"\nkeys = [\"sk-*\"]\nrequests = 2\nwindow_ms = 60000\nretry_after = \"9\"\n\
                  [[rules]]\nkey = \"sk-tight\"\nanswer = [\"stall, in-flight=1, retry-after=0.5\", \"ok, in-flight=1, retry-after=0.5\"]";
    let mock = mock(Script::from_toml(script).expect("it is right")).await;
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }] });
    let chat =
        |key: &str| Call::post("/v1/chat/completions", body.clone()).header("authorization", &format!("Bearer {key}"));
    let hanging = chat("sk-tight").begin(mock.addr()).await;
    eventually("the gate is shut", || mock.in_flight() == 1).await;
    let gate = chat("sk-tight").send(mock.addr()).await;
    assert_eq!((gate.status, gate.header("retry-after").as_deref()), (429, Some("0.5")));
    assert_eq!(
        chat("sk-other").send(mock.addr()).await.status,
        200,
        "the gate is that key's, and what it refused used up nothing"
    );
    drop(hanging);
    eventually("the gate is open", || mock.in_flight() == 0).await;
    let account = chat("sk-tight").send(mock.addr()).await;
    assert_eq!((account.status, account.header("retry-after").as_deref()), (429, Some("9")));
}

#[tokio::test]
async fn a_rate_refuses_with_the_rest_of_its_window() {
    let mock = mock(Script::default()).await;
    let chat = async || Call::chat("rate=2/60000, account=x").send(mock.addr()).await;
    assert_eq!((chat().await.status, chat().await.status), (200, 200));
    let refused = chat().await;
    let after = refused.header("retry-after").and_then(|after| after.parse::<u64>().ok());
    assert!(refused.status == 429 && after.is_some_and(|after| (50..=60).contains(&after)), "{}", refused.head);
    assert!(refused.header("retry-after-ms").is_some());
}

#[tokio::test]
async fn a_script_decides_by_path_and_model() {
    let script = "models = [\"one\"]\n[[rules]]\npath = \"/models\"\nanswer = [500, \"ok\"]\n\
                  [[rules]]\nmodel = \"gpt-*\"\nanswer = [{ status = 503, headers = { x-a = \"b\" }, message = \"down, for now\" }, \"ok\"]";
    let mock = mock(Script::from_toml(script).expect("it is right")).await;
    assert_eq!(Call::get("/v1/models").send(mock.addr()).await.status, 500);
    assert_eq!(Call::get("/v1/models").send(mock.addr()).await.json()["data"][0]["id"], "one");
    let gpt = Call::post("/v1/chat/completions", json!({ "model": "gpt-5" }));
    let down = gpt.send(mock.addr()).await;
    assert_eq!((down.status, down.header("x-a").as_deref()), (503, Some("b")));
    assert_eq!(down.json()["error"]["message"], "down, for now");
    assert_eq!(gpt.send(mock.addr()).await.status, 200);
}

#[tokio::test]
async fn what_was_asked_is_on_record_without_secrets() {
    let mock = mock(Script::default()).await;
    let call = Call::chat_stream("cut-after=1").header("authorization", "Bearer sk-very-secret");
    call.send(mock.addr()).await;
    Call::chat("503").send(mock.addr()).await;
    eventually("both are over", || mock.in_flight() == 0).await;
    let records = mock.records();
    let told: Vec<_> = records.iter().map(|r| (r.behaviour.as_str(), r.by, r.stream, r.status, r.end)).collect();
    let expected = [
        ("close-after=1", By::Header, true, Some(200), Some(RecordEnd::Broken)),
        ("503", By::Header, false, Some(503), Some(RecordEnd::Whole)),
    ];
    assert_eq!(told, expected);
    let shown = format!("{records:?}");
    let listed = Call::get("/_mock/requests").send(mock.addr()).await;
    assert!(!shown.contains("very-secret") && !listed.text().contains("very-secret"));
    assert_eq!((&listed.json()["count"], &listed.json()["requests"][0]["end"]), (&json!(2), &json!("broken")));
    let forget = Call::post("/_mock/requests", json!({}));
    assert_eq!(forget.send(mock.addr()).await.status, 404);
    mock.forget();
    assert!(mock.records().is_empty() && mock.count() == 2);
}
