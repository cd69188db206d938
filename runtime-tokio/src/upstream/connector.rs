//! Connections to upstreams: DNS, TCP, the environment's proxies and TLS, with every failure told by its kind (F13).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderValue;
use http::uri::{Authority, Scheme, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use surefoot_core::event::Fault;
use surefoot_runtime::upstream::{Origin, connect_fault, tls_config, trusted_roots};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use crate::socket::Socket;

/// A connection, made.
#[derive(Debug)]
pub(crate) struct Dialed {
    pub(super) socket: Socket,
    /// HTTP/2 was agreed on.
    pub(super) h2: bool,
    /// A plain proxy forwards: it wants the whole URL in the request line, and this header if it asks for one.
    pub(super) forward: Option<Option<HeaderValue>>,
}

/// Makes connections. One for the whole process: the roots and the proxies do not change while it runs.
pub struct Connector {
    tcp: HttpConnector,
    proxies: Matcher,
    tls: OnceLock<TlsConnector>,
}

impl Connector {
    /// A connector that heeds the given proxies; [`Matcher::from_env`] reads `HTTP_PROXY` and its kin.
    pub fn new(proxies: Matcher) -> Connector {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_secs(60)));
        Connector { tcp, proxies, tls: OnceLock::new() }
    }

    /// Reads the trusted roots now and not at the first request.
    pub fn warm_tls(&self) {
        self.tls.get_or_init(|| TlsConnector::from(Arc::new(tls_config(trusted_roots(), true))));
    }

    /// Trusts these roots alone.
    ///
    /// # Errors
    ///
    /// The roots, when TLS was set up before.
    pub fn trust(&self, roots: RootCertStore) -> Result<(), RootCertStore> {
        let config = tls_config(roots.clone(), true);
        self.tls.set(TlsConnector::from(Arc::new(config))).map_err(|_| roots)
    }

    /// Connects to `origin`, for as long as the system tries.
    pub(crate) async fn dial(&self, origin: &Origin) -> Result<Dialed, Fault> {
        let uri = origin.uri();
        let (tcp, forward) = match self.proxies.intercept(&uri) {
            None => (call(self.tcp.clone(), uri).await?, None),
            Some(proxy) => self.dial_through(&proxy, origin, uri).await?,
        };
        if !origin.https {
            return Ok(Dialed { socket: Socket::Plain(tcp), h2: false, forward });
        }
        self.warm_tls();
        let tls = self.tls.get().ok_or(Fault::Tls)?;
        let host = origin.authority.host().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|_| Fault::Tls)?;
        let stream = tls.connect(name, tcp).await.map_err(|error| {
            tracing::debug!(origin = %origin.authority, %error, "the TLS handshake failed");
            Fault::Tls
        })?;
        let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Dialed { socket: Socket::Tls(Box::new(stream)), h2, forward: None })
    }

    async fn dial_through(
        &self,
        proxy: &Intercept,
        origin: &Origin,
        uri: Uri,
    ) -> Result<(TcpStream, Option<Option<HeaderValue>>), Fault> {
        let scheme = proxy.uri().scheme_str().unwrap_or("http");
        if scheme.starts_with("socks5") {
            let mut socks = SocksV5::new(proxy.uri().clone(), self.tcp.clone()).local_dns(scheme == "socks5");
            if let Some((user, password)) = proxy.raw_auth() {
                socks = socks.with_auth(user.to_owned(), password.to_owned());
            }
            return Ok((call(socks, with_port(uri)).await?, None));
        }
        if scheme != "http" {
            tracing::warn!(scheme, "proxies of this kind are not supported; use http:// or socks5://");
            return Err(Fault::Connect);
        }
        if origin.https {
            let mut tunnel = Tunnel::new(proxy.uri().clone(), self.tcp.clone());
            if let Some(auth) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(auth.clone());
            }
            return Ok((call(tunnel, with_port(uri)).await?, None));
        }
        Ok((call(self.tcp.clone(), proxy.uri().clone()).await?, Some(proxy.basic_auth().cloned())))
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The proxies may hold passwords.
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

/// One call of a connector service. None of them has a readiness of its own.
async fn call<S, T>(mut service: S, uri: Uri) -> Result<TcpStream, Fault>
where
    S: Service<Uri, Response = T>,
    T: Into<Tcp>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let fault = |origin: Option<Authority>, error: S::Error| {
        let error = error.into();
        // The proxy's address stays out: it may hold a password.
        tracing::debug!(origin = origin.map(tracing::field::display), %error, "no connection");
        connect_fault(&*error)
    };
    std::future::poll_fn(|cx| service.poll_ready(cx)).await.map_err(|error| fault(None, error))?;
    let origin = uri.authority().cloned().filter(|authority| !authority.as_str().contains('@'));
    let stream = service.call(uri).await.map_err(|error| fault(origin, error))?;
    Ok(stream.into().0)
}

struct Tcp(TcpStream);

impl From<hyper_util::rt::TokioIo<TcpStream>> for Tcp {
    fn from(io: hyper_util::rt::TokioIo<TcpStream>) -> Tcp {
        Tcp(io.into_inner())
    }
}

fn with_port(uri: Uri) -> Uri {
    if uri.port().is_some() {
        return uri;
    }
    let default = if uri.scheme() == Some(&Scheme::HTTP) { 80 } else { 443 };
    let mut parts = uri.clone().into_parts();
    parts.authority = uri.host().and_then(|host| format!("{host}:{default}").parse().ok());
    Uri::from_parts(parts).unwrap_or(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_name_the_port_that_the_scheme_means() {
        let told = |url: &str| with_port(url.parse().unwrap()).to_string();
        assert_eq!(told("https://a.example/"), "https://a.example:443/");
        assert_eq!(told("https://a.example:8443/"), "https://a.example:8443/");
        assert_eq!(told("http://a.example/"), "http://a.example:80/");
    }
}
