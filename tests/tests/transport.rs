//! The way to the providers: TLS, HTTP/2, proxies.

use serde_json::json;
use surefoot_tests::http::{Answer, post};
use surefoot_tests::proxy::Proxy;
use surefoot_tests::tls::TlsUpstream;
use surefoot_tests::upstream::{Upstream, chat_end, chat_event, write_chunk, write_end, write_stream_head};
use surefoot_tests::{Gateway, Runtime, TOKIO, on_each_runtime, provider};
use tempfile::NamedTempFile;

on_each_runtime!(
    an_upstream_that_offers_both_is_spoken_to_in_what_the_runtime_prefers,
    an_upstream_without_http2_is_spoken_to_in_http1,
    an_upstream_that_nobody_vouches_for_is_not_spoken_to,
    https_proxy_is_honoured,
    http_proxy_is_honoured_and_no_proxy_too,
);

fn config(base_url: &str) -> String {
    format!(
        r#"
[server]
listen = "127.0.0.1:0"
drain_seconds = 0.2
[default_policy]
sticky_key_attempts = 1
[timeouts]
connect_ms = 3000
{}
keys = [{{ value = "sk-up" }}]
"#,
        provider(base_url)
    )
}

fn ask(gateway: &Gateway, stream: bool) -> Answer {
    let body = json!({ "model": "up/m", "stream": stream, "messages": [{ "role": "user", "content": "Hi" }] });
    post("/v1/chat/completions", &body).fetch(gateway.addr()).expect("an answer")
}

fn root_file(upstream: &TlsUpstream) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a place for the certificate");
    std::fs::write(file.path(), upstream.root()).expect("the certificate is written");
    file
}

fn start(runtime: &Runtime, upstream: &TlsUpstream, root: &NamedTempFile, more: &[(&str, &str)]) -> Gateway {
    let root = root.path().to_string_lossy();
    let env = [&[("SSL_CERT_FILE", &*root)], more].concat();
    Gateway::start_with(runtime, &config(&format!("https://{}", upstream.authority())), &env)
}

fn an_upstream_that_offers_both_is_spoken_to_in_what_the_runtime_prefers(runtime: &Runtime) {
    let upstream = TlsUpstream::start(&["h2", "http/1.1"]);
    let root = root_file(&upstream);
    let gateway = start(runtime, &upstream, &root, &[]);
    for stream in [false, true] {
        let answer = ask(&gateway, stream);
        let over = format!("over {}", runtime.http);
        assert!(answer.status == 200 && answer.text().contains(&over), "{} {}", answer.status, answer.text());
    }
}

fn an_upstream_without_http2_is_spoken_to_in_http1(runtime: &Runtime) {
    let upstream = TlsUpstream::start(&["http/1.1"]);
    let root = root_file(&upstream);
    let gateway = start(runtime, &upstream, &root, &[]);
    for stream in [false, true] {
        let answer = ask(&gateway, stream);
        assert!(answer.status == 200 && answer.text().contains("over http/1.1"), "{} {}", answer.status, answer.text());
    }
    assert_eq!(upstream.connections(), 1, "the second call uses the first one's connection");
}

#[test]
fn many_calls_share_a_http2_connection() {
    let upstream = TlsUpstream::start(&["h2"]);
    let root = root_file(&upstream);
    let gateway = start(&TOKIO, &upstream, &root, &[]);
    assert_eq!(ask(&gateway, false).status, 200);
    std::thread::scope(|scope| {
        let gateway = &gateway;
        let calls: Vec<_> = (0..20).map(|n| scope.spawn(move || ask(gateway, n % 2 == 0).status)).collect();
        for call in calls {
            assert_eq!(call.join().expect("no panic"), 200);
        }
    });
    assert_eq!(upstream.connections(), 1);
}

fn an_upstream_that_nobody_vouches_for_is_not_spoken_to(runtime: &Runtime) {
    let upstream = TlsUpstream::start(&["h2", "http/1.1"]);
    let other = root_file(&TlsUpstream::start(&["h2"]));
    let gateway = start(runtime, &upstream, &other, &[]);
    let answer = ask(&gateway, true);
    assert_eq!(
        (answer.status, answer.json()["error"]["type"].as_str()),
        (502, Some("provider_error")),
        "{}",
        answer.text()
    );
}

fn https_proxy_is_honoured(runtime: &Runtime) {
    let (upstream, proxy) = (TlsUpstream::start(&["h2", "http/1.1"]), Proxy::start());
    let root = root_file(&upstream);
    for variable in ["HTTPS_PROXY", "https_proxy"] {
        let gateway = start(runtime, &upstream, &root, &[(variable, &proxy.url())]);
        let answer = ask(&gateway, true);
        let over = format!("over {}", runtime.http);
        assert!(answer.status == 200 && answer.text().contains(&over), "{} {}", answer.status, answer.text());
    }
    assert_eq!(proxy.asked(), vec![format!("CONNECT {}", upstream.authority()); 2]);
}

fn http_proxy_is_honoured_and_no_proxy_too(runtime: &Runtime) {
    let upstream = Upstream::start(|_, stream| {
        write_stream_head(stream)?;
        write_chunk(stream, (chat_event("plain") + &chat_end()).as_bytes())?;
        write_end(stream)
    });
    let proxy = Proxy::start();
    let config = config(&upstream.url());
    let gateway = Gateway::start_with(runtime, &config, &[("HTTP_PROXY", &proxy.url())]);
    let answer = ask(&gateway, true);
    assert!(answer.status == 200 && answer.text().contains("plain"), "{} {}", answer.status, answer.text());
    let asked = proxy.asked();
    let place = format!("{}/v1/chat/completions", upstream.url());
    let (host, port) =
        upstream.url().rsplit_once(':').map(|(host, port)| (host.to_owned(), port.to_owned())).unwrap_or_default();
    let tunnel = format!("CONNECT {}:{port}", host.trim_start_matches("http://"));
    assert!(asked == [format!("POST {place}")] || asked == [tunnel], "{asked:?}");
    let gateway = Gateway::start_with(runtime, &config, &[("HTTP_PROXY", &proxy.url()), ("NO_PROXY", "127.0.0.1")]);
    assert_eq!(ask(&gateway, true).status, 200);
    assert_eq!(proxy.asked(), asked, "NO_PROXY names the host, and the proxy was asked all the same");
}
