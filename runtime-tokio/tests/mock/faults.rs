//! Statuses, errors, breaks, delays and chance.

use std::time::Duration;

use serde_json::json;
use surefoot::mock::Script;

use crate::client::{Call, End};
use crate::{mock, once};

const STREAMS: [&str; 3] = ["/v1/chat/completions", "/v1/responses", "/v1/messages"];

#[tokio::test]
async fn statuses_have_error_bodies_of_their_protocol_and_headers() {
    let mock = mock(Script::default()).await;
    let openai = Call::chat("429:retry-after=2:x-a=b, retry-after-ms=250").send(mock.addr()).await;
    let headers = ["retry-after", "x-a", "retry-after-ms"].map(|name| openai.header(name).unwrap_or_default());
    assert_eq!((openai.status, headers), (429, ["2", "b", "250"].map(str::to_owned)));
    insta::assert_snapshot!(openai.text(), @r#"{"error":{"message":"mock: rate limit reached, please slow down","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}"#);
    let anthropic = Call::stream("/v1/messages", "529").send(mock.addr()).await;
    assert_eq!(anthropic.header("request-id").as_deref(), Some("req_mock2"));
    insta::assert_snapshot!(anthropic.text(), @r#"{"type":"error","error":{"type":"overloaded_error","message":"mock: the engine is currently overloaded, please try again later"},"request_id":"req_mock2"}"#);
    let quota =
        Call::chat("429, code=insufficient_quota, type=insufficient_quota, message=no credit").send(mock.addr()).await;
    insta::assert_snapshot!(quota.text(), @r#"{"error":{"message":"no credit","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#);
    let dated = Call::chat("503:retry-after=@date+2").send(mock.addr()).await;
    assert!(dated.header("retry-after").is_some_and(|date| date.ends_with(" GMT")));
    assert_eq!(Call::chat("204").send(mock.addr()).await.bytes().len(), 0);
}

#[tokio::test]
async fn directives_come_by_header_model_or_key() {
    let mock = mock(Script::default()).await;
    let status = async |call: Call| call.send(mock.addr()).await.status;
    let chat = |model: &str| Call::post("/v1/chat/completions", json!({ "model": model }));
    assert_eq!(status(chat("m").header("x-mock", "502")).await, 502);
    assert_eq!(status(chat("openai/mock-503")).await, 503);
    assert_eq!(status(chat("m").header("authorization", "Bearer sk-mock:504")).await, 504);
    assert_eq!(status(chat("m").header("x-api-key", "mock:500; ok")).await, 500);
    assert_eq!(status(chat("m").header("x-api-key", "mock:500; ok")).await, 200);
    assert_eq!(status(chat("mock-large")).await, 200);
    let wrong = chat("m").header("x-mock", "stal").send(mock.addr()).await;
    assert_eq!(wrong.status, 400);
    assert!(wrong.text().contains("did you mean `stall`") && wrong.text().contains("watchdog"), "{}", wrong.text());
}

#[tokio::test]
async fn bad_requests_are_refused_as_a_provider_does() {
    let mock = mock(Script::default()).await;
    let refused = async |call: Call| call.send(mock.addr()).await;
    let torn = refused(Call::post("/v1/chat/completions", json!({})).body("{\"model\":")).await;
    assert!(torn.status == 400 && torn.json()["error"]["type"] == "invalid_request_error");
    assert_eq!(refused(Call::post("/v1/responses", json!({}))).await.status, 400);
    let unbounded = refused(Call::post("/v1/messages", json!({ "model": "m" }))).await;
    assert!(unbounded.status == 400 && unbounded.json()["error"]["message"] == "max_tokens: Field required");
    assert_eq!(refused(Call::get("/v1/messages")).await.status, 405);
    let told = Call::post("/v1/responses", json!({})).header("x-mock", "503");
    assert_eq!(refused(told).await.status, 503, "what goes wrong to order goes wrong for bad requests too");
}

#[tokio::test]
async fn streams_break_after_so_many_events_or_contents() {
    let mock = mock(Script::default()).await;
    for path in STREAMS {
        let good = Call::stream(path, "ok").send(mock.addr()).await;
        for (directive, end) in [("cut-after=3", End::Closed), ("reset-after=3", End::Reset)] {
            let got = Call::stream(path, directive).send(mock.addr()).await;
            assert_eq!((got.status, got.chunks.len(), got.end), (200, 3, end), "{path} {directive}");
        }
        let openers = good.text().find("Hello").map(|at| good.text()[..at].matches("\n\n").count());
        let got = Call::stream(path, "cut").send(mock.addr()).await;
        assert_eq!((Some(got.chunks.len() - 1), got.end), (openers, End::Closed), "{path}");
        assert!(got.text().contains("Hello") && !got.text().contains("This"), "{path}");
    }
}

#[tokio::test]
async fn bodies_break_at_the_byte() {
    let mock = mock(Script::default()).await;
    for call in [Call::chat_stream("cut-at=120"), Call::chat("cut-at=120"), Call::chat("cut-at=120, chunk=50")] {
        let got = call.send(mock.addr()).await;
        assert_eq!((got.status, got.bytes().len(), got.end), (200, 120, End::Closed));
    }
    let got = Call::chat("reset-at=120").send(mock.addr()).await;
    assert_eq!((got.bytes().len(), got.end), (120, End::Reset));
    let half = Call::chat("cut-after=1").send(mock.addr()).await;
    let promised = half.header("content-length").and_then(|length| length.parse().ok());
    assert_eq!((promised.map(|length: usize| length / 2), half.end), (Some(half.bytes().len()), End::Closed));
    let large = Call::chat_stream("huge=3000000, cut-at=2500000").send(mock.addr()).await;
    assert_eq!((large.bytes().len(), large.end), (2_500_000, End::Closed), "full buffers lose nothing");
}

#[tokio::test]
async fn answers_break_before_their_head() {
    let mock = mock(Script::default()).await;
    let ended = async |directive| {
        let got = Call::chat(directive).send(mock.addr()).await;
        (got.head, got.end)
    };
    assert_eq!(ended("close").await, (String::new(), End::Closed));
    assert_eq!(ended("reset").await, (String::new(), End::Reset));
    assert_eq!(ended("raw=\"HTTP/1.1 2\"").await, ("HTTP/1.1 2".to_owned(), End::Closed));
    assert_eq!(ended("garbage").await, ("SSH-2.0-OpenSSH_9.6\r\n".to_owned(), End::Closed));
    let slow = Call::chat("watchdog=60").send(mock.addr()).await;
    assert!(slow.end == End::Closed && slow.head.is_empty() && slow.took >= Duration::from_millis(60));
}

#[tokio::test]
async fn answers_fall_silent_where_told() {
    let mock = mock(Script::default()).await;
    let never = Call::chat("stall").until("").send(mock.addr()).await;
    assert_eq!((never.head.as_str(), never.end), ("", End::Silent));
    let head = Call::chat_stream("stall-after=0").until("\r\n\r\n").send(mock.addr()).await;
    assert_eq!((head.status, head.chunks.len(), head.end), (200, 0, End::Silent));
    let begun = Call::chat_stream("stall-after=2").until("Hello").send(mock.addr()).await;
    assert_eq!((begun.chunks.len(), begun.end), (2, End::Silent));
    let torn = Call::chat_stream("stall-at=10").until("data: {\"id").send(mock.addr()).await;
    assert_eq!((torn.bytes().len(), torn.end), (10, End::Silent));
    let whole = Call::chat("stall-after=1").until("\r\n\r\n{").send(mock.addr()).await;
    assert!(whole.end == End::Silent && !whole.bytes().is_empty());
}

#[tokio::test]
async fn errors_come_inside_a_stream_or_behind_a_200() {
    let mock = mock(Script::default()).await;
    let last = async |path, directive: &str| {
        let got = Call::stream(path, directive).send(mock.addr()).await;
        assert_eq!((got.status, got.end), (200, End::Whole), "{path}");
        let words = got.text().contains("Hello");
        (got.events().pop().unwrap_or_default(), words)
    };
    let (chat, words) = last("/v1/chat/completions", "error").await;
    assert_eq!((&chat["error"]["code"], words), (&json!("service_unavailable"), false));
    let (chat, words) = last("/v1/chat/completions", "error-after=content, as=529").await;
    assert_eq!((&chat["error"]["type"], words), (&json!("overloaded_error"), true));
    let (responses, _) = last("/v1/responses", "error=429").await;
    assert_eq!((&responses["type"], &responses["code"]), (&json!("error"), &json!("rate_limit_exceeded")));
    assert_eq!(responses["sequence_number"], 4);
    let (failed, _) = last("/v1/responses", "failed=429").await;
    assert_eq!(failed["type"], "response.failed");
    assert_eq!(failed["response"]["error"]["code"], "rate_limit_exceeded");
    let failed =
        Call::post("/v1/responses", json!({ "model": "m" })).header("x-mock", "failed").send(mock.addr()).await;
    assert_eq!((failed.status, &failed.json()["status"]), (200, &json!("failed")));
    let (messages, words) = last("/v1/messages", "error-after=2c, as=529").await;
    assert_eq!(messages["error"]["type"], "overloaded_error");
    assert!(words);
    let behind = Call::chat("error=402, code=no_credit").send(mock.addr()).await;
    assert_eq!((behind.status, &behind.json()["error"]["code"]), (200, &json!("no_credit")));
    let unasked = Call::chat_stream("error, as-json").send(mock.addr()).await;
    assert!(unasked.status == 200 && unasked.json()["error"].is_object());
}

#[tokio::test]
async fn malformed_json_stands_where_told_and_the_rest_follows() {
    let mock = mock(Script::default()).await;
    let whole = Call::chat("malformed").send(mock.addr()).await;
    assert!(serde_json::from_slice::<serde_json::Value>(&whole.bytes()).is_err() && whole.end == End::Whole);
    for (directive, index) in [("malformed", 1), ("malformed-after=0", 0), ("malformed-after=2c", 3)] {
        let events = Call::chat_stream(directive).send(mock.addr()).await.events();
        let broken: Vec<usize> = (0..events.len() - 1).filter(|index| events[*index].is_null()).collect();
        assert_eq!(broken, [index], "{directive}");
    }
}

#[tokio::test]
async fn comments_and_pings_go_on_for_ever() {
    let mock = mock(Script::default()).await;
    // The third of them is as good as for ever; the marker's silence never comes.
    let forever = async |call: Call, thing: &str| {
        let mut stream = call.begin(mock.addr()).await;
        let mut seen = Vec::new();
        while String::from_utf8_lossy(&seen).matches(thing).count() < 4 {
            let read = tokio::io::AsyncReadExt::read_buf(&mut stream, &mut seen).await;
            assert!(read.is_ok_and(|read| read > 0), "the stream goes on");
        }
        String::from_utf8_lossy(&seen).into_owned()
    };
    let comments = forever(Call::chat_stream("comments, gap=5"), ": keep-alive").await;
    assert!(!comments.contains("data:"));
    let pings = forever(Call::stream("/v1/messages", "pings-after=content, gap=5"), "event: ping").await;
    assert!(pings.contains("Hello") && !pings.contains("message_stop"));
    let blank = forever(Call::chat("comments, gap=5"), "1\r\n\n\r\n").await;
    assert!(blank.contains("chunked") && !blank.contains('{'));
}

#[tokio::test]
async fn waits_are_kept() {
    let mock = mock(Script::default()).await;
    let took = async |call: Call| call.send(mock.addr()).await.took;
    assert!(took(Call::chat("delay=80")).await >= Duration::from_millis(80));
    assert!(took(Call::chat_stream("first=80")).await >= Duration::from_millis(80));
    assert!(took(Call::chat_stream("text=a b c, gap=15")).await >= Duration::from_millis(75));
    let body = "12345";
    assert!(took(Call::chat(&format!("trickle=15, body={body}"))).await >= Duration::from_millis(60));
}

#[tokio::test]
async fn chance_follows_its_seed_whatever_the_order() {
    let statuses = async |seed: u64| {
        let mock = mock(Script { seed, ..Script::default() }).await;
        let mut statuses = Vec::new();
        for _ in 0..100 {
            statuses.push(Call::chat("500, flaky=0.3").send(mock.addr()).await.status);
        }
        statuses
    };
    let (first, again, other) = (statuses(7).await, statuses(7).await, statuses(8).await);
    assert_eq!(first, again);
    assert_ne!(first, other);
    let share = first.iter().filter(|status| **status == 500).count();
    assert!((15..=45).contains(&share), "{share} of 100");
}

#[tokio::test]
async fn luck_and_certainty_are_the_ends_of_chance() {
    assert_eq!(once(Call::chat("500, flaky=0")).await.status, 200);
    assert_eq!(once(Call::chat("500, flaky=1")).await.status, 500);
    assert_eq!(once(Call::chat("watchdog=5, lucky=1")).await.status, 200);
}
