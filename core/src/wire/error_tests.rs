//! The many shapes of upstream errors as a table, and the shapes that clients get.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;

use super::*;

#[track_caller]
fn snapshot(name: &str, table: String) {
    insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, { insta::assert_snapshot!(name, table) });
}

fn line(out: &mut String, fact: Option<ErrorFact>, document: &str) {
    let fact = match fact {
        Some(fact) => {
            let gone = if fact.quota_gone { " GONE" } else { "" };
            format!("{} [{}|{}] {}{gone}", fact.status, fact.kind, fact.code, fact.message)
        }
        None => "no error".into(),
    };
    writeln!(out, "{fact:<64} {document}").expect("a string");
}

fn of(dialect: Dialect, document: &str) -> Option<ErrorFact> {
    of_object(dialect, &serde_json::from_str(document).expect("json"))
}

#[test]
fn shapes_of_error_objects_m2_m4() {
    let mut out = String::new();
    for document in [
        r#"{"error":{"message":"m","type":"server_error","param":null,"code":null}}"#,
        r#"{"error":{"message":"m","type":"x","code":504}}"#,
        r#"{"error":{"message":"m","type":"x","code":"503"}}"#,
        r#"{"error":{"message":"m","type":"x","code":200}}"#,
        r#"{"error":{"message":"m","status":418}}"#,
        r#"{"error":{"message":"m","code":302}}"#,
        r#"{"error":{"message":"m","code":600}}"#,
        r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}"#,
        r#"{"error":{"message":"m","status":"UNAVAILABLE"}}"#,
        r#"{"error":"m"}"#,
        r#"{"error":"m","status":503}"#,
        r#"{"error":"unavailable","message":"m"}"#,
        r#"{"error":true,"message":"m"}"#,
        r#"{"error":500,"message":"m"}"#,
        r#"{"error":[{"message":"m","code":429}]}"#,
        r#"{"error":{"message":{"message":"m"}}}"#,
        r#"{"error":{"message":["m"]}}"#,
        r#"{"object":"error","message":"m","type":"BadRequestError","code":400}"#,
        r#"{"type":"error","code":"server_is_overloaded","message":"m"}"#,
        r#"[{"error":{"code":503,"message":"m"}}]"#,
        r#"{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"m"}}}"#,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
        r#"{"error":null}"#,
        r#"{"error":{}}"#,
        r#"{"error":""}"#,
        r#"{"error":false}"#,
        r#"{"choices":[]}"#,
        "[]",
        r#"[{"error":{"message":"m"}},{}]"#,
        "7",
        r#"{"type":"message"}"#,
    ] {
        line(&mut out, of(Dialect::OpenAi, document), document);
    }
    snapshot("error_shapes", out);
}

#[test]
fn words_become_statuses_m4() {
    let mut out = String::new();
    for (kind, code) in [
        ("rate_limit_error", ""),
        ("requests", "rate_limit_exceeded"),
        ("tokens", "rate_limit_exceeded"),
        ("RateLimitError", ""),
        ("insufficient_quota", "insufficient_quota"),
        ("exceeded_current_quota_error", ""),
        ("billing_hard_limit_reached", ""),
        ("request_too_large", ""),
        ("invalid_request_error", "context_length_exceeded"),
        ("authentication_error", ""),
        ("invalid_request_error", "invalid_api_key"),
        ("permission_error", ""),
        ("not_found_error", ""),
        ("invalid_request_error", "model_not_found"),
        ("overloaded_error", ""),
        ("service_unavailable_error", "server_is_overloaded"),
        ("server_error", "server_is_overloaded"),
        ("server_error", ""),
        ("api_error", ""),
        ("InternalServerError", ""),
        ("timeout_error", ""),
        ("invalid_request_error", ""),
        ("BadRequestError", ""),
        ("invalid_request_error", "strange"),
        ("strange_thing", ""),
        ("", ""),
        ("brand_new_error", ""),
        ("billing_error", ""),
    ] {
        let document = format!(r#"{{"error":{{"message":"m","type":"{kind}","code":"{code}"}}}}"#);
        let status = |dialect| of(dialect, &document).map_or(0, |fact| fact.status);
        let gone = if of(Dialect::OpenAi, &document).is_some_and(|fact| fact.quota_gone) { "gone" } else { "" };
        writeln!(
            out,
            "openai {} anthropic {} {gone:<5} {kind} {code}",
            status(Dialect::OpenAi),
            status(Dialect::Anthropic)
        )
        .expect("a string");
    }
    snapshot("error_words", out);
}

#[test]
fn bodies_of_error_answers_keep_their_status() {
    let mut out = String::new();
    for body in [
        r#"{"error":{"message":"m","type":"server_error","code":429}}"#,
        r#"{"detail":"m"}"#,
        r#"{"detail":[{"loc":["body"],"msg":"m"}]}"#,
        r#"{"message":"m"}"#,
        r#"{"error":"m"}"#,
        r#"{"errors":[{"message":"m","code":7}]}"#,
        r#"{"title":"m","status":400}"#,
        r#""m""#,
        "upstream connect error",
        "<html>busy</html>",
        "",
        "{\"cloudflare_error\":true,\"status\":520}",
        "[]",
        "null",
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#,
        r#"{"error":{"message":"You exceeded your current quota","code":429,"status":"RESOURCE_EXHAUSTED"}}"#,
    ] {
        line(&mut out, Some(from_body(503, body.as_bytes())), body);
    }
    assert_eq!(from_body(500, &[b'x'; 1001]).message, "");
    assert_eq!(from_body(500, b"\xff\xfe").message, "");
    snapshot("error_bodies", out);
}

#[test]
fn types_follow_the_status() {
    let types =
        |dialect| [400, 401, 403, 404, 405, 413, 422, 429, 500, 502, 529, 302].map(|status| type_for(dialect, status));
    let request = "invalid_request_error";
    let common = [
        request,
        "authentication_error",
        "permission_error",
        "not_found_error",
        request,
        request,
        request,
        "rate_limit_error",
    ];
    assert_eq!((&types(Dialect::OpenAi)[..8], &types(Dialect::Anthropic)[..8]), (&common[..], &common[..]));
    assert_eq!(types(Dialect::OpenAi)[8..], ["provider_error"; 4]);
    assert_eq!(types(Dialect::Anthropic)[8..], ["api_error", "api_error", "overloaded_error", "api_error"]);
}

#[test]
fn our_errors_have_the_shape_of_the_protocol() {
    assert_eq!(
        render(Dialect::OpenAi, 404, "no \"x\"", Some("model_not_found"), "req-1"),
        r#"{"error":{"message":"no \"x\"","type":"not_found_error","param":null,"code":"model_not_found"}}"#
    );
    assert_eq!(
        render(Dialect::OpenAi, 502, "m", None, "req-1"),
        r#"{"error":{"message":"m","type":"provider_error","param":null,"code":null}}"#
    );
    assert_eq!(
        render(Dialect::Anthropic, 529, "m", Some("c"), "req-1"),
        r#"{"type":"error","error":{"type":"overloaded_error","message":"m"},"request_id":"req-1"}"#
    );
}

#[test]
fn an_upstreams_own_words_are_kept_where_the_shape_has_a_place() {
    let fact = |kind: &str, message: &str| ErrorFact {
        status: 503,
        kind: kind.into(),
        code: "c".into(),
        message: message.into(),
        quota_gone: false,
    };
    assert_eq!(
        render_fact(Dialect::OpenAi, 503, &fact("server_error", "m"), "r"),
        r#"{"error":{"message":"m","type":"server_error","param":null,"code":"c"}}"#
    );
    assert_eq!(
        render_fact(Dialect::Anthropic, 529, &fact("overloaded_error", "m"), "r"),
        r#"{"type":"error","error":{"type":"overloaded_error","message":"m"},"request_id":"r"}"#
    );
    assert_eq!(
        render_fact(Dialect::Anthropic, 503, &fact("server_error", "m"), "r"),
        r#"{"type":"error","error":{"type":"api_error","message":"m"},"request_id":"r"}"#
    );
    assert!(
        core::str::from_utf8(&render_fact(Dialect::OpenAi, 520, &fact("", ""), "r"))
            .expect("text")
            .contains("status 520")
    );
}

#[test]
fn a_body_in_the_clients_shape_is_told_from_a_foreign_one() {
    let openai = br#"{"error" : {"message":"as it is","type":"x"}, "extra":1}"#;
    let anthropic = br#"{"type":"error","error":{"type":"api_error","message":"m"},"request_id":"r"}"#;
    assert!(fits(Dialect::OpenAi, openai) && !fits(Dialect::Anthropic, openai));
    assert!(!fits(Dialect::OpenAi, anthropic) && fits(Dialect::Anthropic, anthropic));
    for other in [
        "",
        "<html>",
        "[]",
        "{}",
        r#"{"error":"m"}"#,
        r#"{"error":{"message":7}}"#,
        r#"{"type":"error","error":{"message":"m"}}"#,
        r#"{"detail":"m"}"#,
    ] {
        assert!(!fits(Dialect::OpenAi, other.as_bytes()) && !fits(Dialect::Anthropic, other.as_bytes()), "{other}");
    }
}

#[test]
fn a_broken_stream_ends_in_one_error_event_of_its_protocol_m5() {
    let event =
        |format, reason| String::from_utf8(render_incomplete(format, "acme", reason, 7).to_vec()).expect("text");
    let message = "stream_incomplete: the stream of provider acme went silent (reason: idle)";
    assert_eq!(
        event(Format::Chat, "idle"),
        format!(
            "data: {{\"error\":{{\"code\":\"stream_incomplete\",\"message\":\"{message}\",\"param\":null,\"type\":\"provider_error\"}}}}\n\n"
        )
    );
    assert_eq!(
        event(Format::Responses, "idle"),
        format!(
            "event: error\ndata: {{\"type\":\"error\",\"code\":\"stream_incomplete\",\"message\":\"{message}\",\"param\":null,\"sequence_number\":7}}\n\n"
        )
    );
    assert_eq!(
        event(Format::Messages, "idle"),
        format!(
            "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"api_error\",\"message\":\"{message}\"}}}}\n\n"
        )
    );
    for reason in ["cut", "malformed", "oversized", "shutdown", "other"] {
        assert!(event(Format::Chat, reason).contains(&format!("(reason: {reason})")));
    }
}
