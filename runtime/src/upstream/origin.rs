//! Where connections go, and whom they trust there.

use std::sync::Arc;

use http::uri::{Authority, Scheme, Uri};
use rustls::{ClientConfig, RootCertStore};

/// Where connections go: scheme, host and port of a base URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// TLS or not.
    pub https: bool,
    /// Host and port, credentials taken off, as the `host` header wants it.
    pub authority: Authority,
}

impl Origin {
    /// The origin of a base URL; `None` when it has no host.
    pub fn of(base: &Uri) -> Option<Origin> {
        let authority = base.authority()?.as_str();
        let bare = authority.rsplit_once('@').map_or(authority, |(_, bare)| bare);
        let https = base.scheme() != Some(&Scheme::HTTP);
        Some(Origin { https, authority: bare.parse().ok().filter(|bare: &Authority| !bare.host().is_empty())? })
    }

    /// As a URL without a path.
    pub fn uri(&self) -> Uri {
        let scheme = if self.https { Scheme::HTTPS } else { Scheme::HTTP };
        Uri::builder().scheme(scheme).authority(self.authority.clone()).path_and_query("/").build().unwrap_or_default()
    }
}

/// The system's roots, or Mozilla's where the system has none (a container without certificates).
pub fn trusted_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

/// How TLS is spoken with upstreams: by these roots, over HTTP/2 where the adapter and the server can both.
pub fn tls_config(roots: RootCertStore, h2: bool) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    // The versions are the provider's own, so this cannot fail; falling back to the process default would be as good.
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.unwrap_or_else(|_| ClientConfig::builder());
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    let spoken: &[&[u8]] = if h2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
    config.alpn_protocols = spoken.iter().map(|name| name.to_vec()).collect();
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_of_a_base_url_has_no_credentials() {
        let origin = |url: &str| Origin::of(&url.parse().unwrap()).map(|o| (o.https, o.authority.to_string()));
        assert_eq!(origin("https://api.example.com/v1"), Some((true, "api.example.com".into())));
        assert_eq!(origin("http://bob:hunter2@127.0.0.1:8080/v1"), Some((false, "127.0.0.1:8080".into())));
        assert_eq!(origin("http://bob:p%40w@[::1]:80/"), Some((false, "[::1]:80".into())));
        assert_eq!(origin("/v1"), None);
    }
}
