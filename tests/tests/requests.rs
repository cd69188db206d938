//! What clients send that is no request, or hardly one: each hears what is wrong, in a shape that its SDK reads (X3).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use surefoot_tests::{Gateway, Runtime, on_each_runtime};

on_each_runtime!(what_is_no_request_is_told_so_in_a_shape, a_body_that_drips_is_not_waited_for);

const CONFIG: &str = r#"
[server]
listen = "127.0.0.1:0"
client_stall_seconds = 1
[discovery]
configured_models_mode = "allowlist"
[[providers]]
name = "up"
formats = ["chat", "messages"]
base_url = "http://127.0.0.1:9/v1"
models = ["m"]
"#;

fn connect(gateway: &Gateway) -> TcpStream {
    let client = TcpStream::connect(gateway.addr()).expect("the gateway listens");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    client
}

/// The status line and headers, and the body as JSON.
fn read(mut client: &TcpStream) -> (String, serde_json::Value) {
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer, and the connection's end");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}")))
}

fn what_is_no_request_is_told_so_in_a_shape(runtime: &Runtime) {
    let gateway = Gateway::start(runtime, CONFIG);
    let lengths = "content-length: 1\r\ncontent-length: 2\r\n\r\n";
    let cases = [
        ("GET\r\n\r\n".to_owned(), "400", None),
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n".to_owned(), "400", None),
        (format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(70_000)), "414", None),
        (format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(300)), "431", None),
        (format!("POST /v1/chat/completions HTTP/1.1\r\n{lengths}"), "400", None),
        (format!("POST /v1/messages HTTP/1.1\r\n{lengths}"), "400", Some("error")),
    ];
    for (request, status, kind) in cases {
        let mut client = connect(&gateway);
        client.write_all(request.as_bytes()).expect("it is sent");
        let (head, body) = read(&client);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert!(head.contains("\r\nx-request-id: ") && head.contains("\r\nconnection: close"), "{head}");
        assert_eq!(body["type"].as_str(), kind, "{body}");
        assert!(body["error"]["message"].as_str().is_some_and(|message| message.contains("the request's")), "{body}");
    }
}

/// One byte at a time is never a pause, and never an end.
fn a_body_that_drips_is_not_waited_for(runtime: &Runtime) {
    let gateway = Gateway::start(runtime, CONFIG);
    let mut client = connect(&gateway);
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n";
    client.write_all(head.as_bytes()).expect("the head is sent");
    let began = Instant::now();
    // A pause of a fifth of what is allowed; until the gateway has had enough.
    while began.elapsed() < Duration::from_secs(10) && client.write_all(b" ").is_ok() {
        client.set_nonblocking(true).expect("it can be asked");
        let answered = client.peek(&mut [0]).is_ok();
        client.set_nonblocking(false).expect("it can be asked");
        if answered {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let (head, body) = read(&client);
    assert!(head.starts_with("HTTP/1.1 408 "), "{head}");
    assert_eq!(body["error"]["message"], "the request's body did not come");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
}
