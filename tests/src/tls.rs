//! An upstream behind TLS with an authority of its own, speaking HTTP/2 or HTTP/1.1 by ALPN.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A running upstream behind TLS. It answers every request with a chat completion, or a stream of one, that tells the
/// version of HTTP it came over.
#[derive(Debug)]
pub struct TlsUpstream {
    addr: SocketAddr,
    authority: String,
    connections: Arc<AtomicUsize>,
    /// Ends the runtime, and every connection with it, when dropped.
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl TlsUpstream {
    /// Starts one for the name `localhost` that offers these protocols (`h2`, `http/1.1`).
    ///
    /// # Panics
    ///
    /// There is no free port, or no certificate can be made.
    pub fn start(protocols: &'static [&'static str]) -> TlsUpstream {
        let (authority, tls) = certificates(protocols);
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
        let (started, addr) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
                started.send(listener.local_addr().expect("an address")).expect("the test waits");
                loop {
                    tokio::select! {
                        biased;
                        _ = &mut stopped => return,
                        accepted = listener.accept() => {
                            let Ok((stream, _)) = accepted else { continue };
                            counted.fetch_add(1, Ordering::Relaxed);
                            tokio::spawn(serve(stream, tls.clone()));
                        }
                    }
                }
            });
        });
        let addr = addr.recv().expect("the upstream starts");
        TlsUpstream { addr, authority, connections, _stop: stop }
    }

    /// Host and port, by the name that its certificate holds.
    pub fn authority(&self) -> String {
        format!("localhost:{}", self.addr.port())
    }

    /// The certificate of its authority in PEM, as a trust store has it.
    pub fn root(&self) -> &str {
        &self.authority
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

fn certificates(protocols: &[&str]) -> (String, TlsAcceptor) {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters of the authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters of the server");
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("the provider's own versions").with_no_client_auth();
    let mut config = builder.with_single_cert(chain, key).expect("a key that fits the certificate");
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    (authority.pem(), TlsAcceptor::from(Arc::new(config)))
}

async fn serve(stream: TcpStream, tls: TlsAcceptor) {
    // A client that does not trust us, or leaves, is what some tests are about.
    let Ok(stream) = tls.accept(stream).await else { return };
    let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let io = TokioIo::new(stream);
    let _ = if h2 {
        hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(io, service_fn(answer)).await
    } else {
        hyper::server::conn::http1::Builder::new().serve_connection(io, service_fn(answer)).await
    };
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let version = match request.version() {
        Version::HTTP_2 => "over h2",
        _ => "over http/1.1",
    };
    let body = request.into_body().collect().await?.to_bytes();
    let asked: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let (kind, text) = if asked["stream"] == true {
        ("text/event-stream", crate::upstream::chat_event(version) + &crate::upstream::chat_end())
    } else {
        let whole = serde_json::json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "up",
            "choices": [{ "index": 0, "message": { "role": "assistant", "content": version }, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 }
        });
        ("application/json", whole.to_string())
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static(kind));
    Ok(response)
}
