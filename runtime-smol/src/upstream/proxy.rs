//! The environment's proxies: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in either case of letters.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderValue, Uri};
use surefoot_runtime::upstream::Origin;

/// Which connections go through which proxy.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    around: Vec<Around>,
}

/// A proxy.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(crate) way: Way,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// User and password.
    pub(crate) login: Option<(String, String)>,
}

/// How a proxy is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Http,
    /// Names are looked up here and not by the proxy (`socks5`, not `socks5h`).
    Socks5 {
        local_names: bool,
    },
    /// One that nobody here can speak to, by its scheme.
    Unknown(String),
}

/// What goes around the proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Around {
    Everything,
    /// A network: its address and how many of its bits count.
    Network(IpAddr, u8),
    /// A domain and all below it, without a leading dot.
    Domain(String),
}

impl Proxies {
    /// The environment's. None under CGI: there `HTTP_PROXY` is a client's header.
    pub fn from_env() -> Proxies {
        if std::env::var_os("REQUEST_METHOD").is_some() {
            return Proxies::default();
        }
        let first = |names: [&str; 2]| names.iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
        let all = first(["ALL_PROXY", "all_proxy"]);
        let or_all = |own: String| if own.is_empty() { all.clone() } else { own };
        let http = or_all(first(["HTTP_PROXY", "http_proxy"]));
        let https = or_all(first(["HTTPS_PROXY", "https_proxy"]));
        Proxies::new(&http, &https, &first(["NO_PROXY", "no_proxy"]))
    }

    /// The proxies for plain connections and for TLS, and a list of what goes around them, as the environment has them.
    /// An empty URL, or one that is none, stands for no proxy.
    pub fn new(http: &str, https: &str, around: &str) -> Proxies {
        let around = around.split(',').map(str::trim).filter(|word| !word.is_empty()).map(Around::parse).collect();
        Proxies { http: Proxy::parse(http), https: Proxy::parse(https), around }
    }

    pub(crate) fn of(&self, origin: &Origin) -> Option<&Proxy> {
        let host = bare_host(origin.authority.host());
        if self.around.iter().any(|around| around.covers(host)) {
            return None;
        }
        if origin.https { self.https.as_ref() } else { self.http.as_ref() }
    }
}

impl Proxy {
    fn parse(url: &str) -> Option<Proxy> {
        let url: Uri = url.parse().ok()?;
        let way = match url.scheme_str() {
            None | Some("http") => Way::Http,
            Some(scheme @ ("socks5" | "socks5h")) => Way::Socks5 { local_names: scheme == "socks5" },
            Some(scheme) => Way::Unknown(scheme.to_owned()),
        };
        let authority = url.authority()?;
        let login = authority.as_str().rsplit_once('@').map(|(login, _)| {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            (decoded(user), decoded(password))
        });
        let usual = if way == Way::Http { 80 } else { 1080 };
        let port = authority.port_u16().unwrap_or(usual);
        Some(Proxy { way, host: bare_host(authority.host()).to_owned(), port, login })
    }

    /// The header that an HTTP proxy knows its user by.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        let (user, password) = self.login.as_ref()?;
        let mut value =
            HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its login stays out.
        write!(f, "{:?} {}:{}", self.way, self.host, self.port)
    }
}

impl Around {
    fn parse(word: &str) -> Around {
        let (address, bits) = match word.split_once('/') {
            Some((address, bits)) => (address, bits.parse().ok()),
            None => (word, Some(u8::MAX)),
        };
        match (word, address.parse(), bits) {
            ("*", _, _) => Around::Everything,
            (_, Ok(address), Some(bits)) => Around::Network(address, bits),
            _ => Around::Domain(word.trim_start_matches('.').to_ascii_lowercase()),
        }
    }

    fn covers(&self, host: &str) -> bool {
        match (self, host.parse::<IpAddr>()) {
            (Around::Everything, _) => true,
            (Around::Network(network, bits), Ok(host)) => first_bits(*network, *bits) == first_bits(host, *bits),
            (Around::Domain(domain), Err(_)) => {
                let host = host.to_ascii_lowercase();
                host.strip_suffix(domain.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            _ => false,
        }
    }
}

/// An address with all but its first bits zero, and which family it is of.
fn first_bits(address: IpAddr, bits: u8) -> (bool, u128) {
    let (v4, value, width) = match address {
        IpAddr::V4(address) => (true, u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (false, u128::from(address), 128),
    };
    let dropped = width - u32::from(bits).min(width);
    (v4, value.checked_shr(dropped).unwrap_or(0))
}

/// A host without the brackets of an IPv6 address.
pub(crate) fn bare_host(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Percent signs resolved; what is none stays.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let byte = match (first, behind) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        rest = if byte.is_some() { &behind[2..] } else { behind };
        bytes.push(byte.unwrap_or(*first));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goes(proxies: &Proxies, url: &str) -> Option<String> {
        proxies.of(&Origin::of(&url.parse().unwrap()).unwrap()).map(|proxy| format!("{proxy:?}"))
    }

    #[test]
    fn each_scheme_goes_through_its_proxy_and_the_exceptions_around() {
        let around = "localhost, .example.com,10.0.0.0/8,192.168.1.7,fd00::/8";
        let proxies = Proxies::new("http://bob:pw@p1:3128", "socks5h://p2", around);
        assert_eq!(goes(&proxies, "http://a.test/"), Some("Http p1:3128".into()));
        assert_eq!(goes(&proxies, "https://a.test/"), Some("Socks5 { local_names: false } p2:1080".into()));
        for direct in [
            "http://LOCALHOST:1/",
            "https://example.com/",
            "https://eu.example.com/",
            "http://10.9.8.7/",
            "http://192.168.1.7:99/",
            "https://[fd00::1]/",
        ] {
            assert_eq!(goes(&proxies, direct), None, "{direct}");
        }
        for through in ["http://notexample.com/", "http://11.0.0.1/", "http://192.168.1.8/", "http://[fe80::1]/"] {
            assert!(goes(&proxies, through).is_some(), "{through}");
        }
        assert_eq!(goes(&Proxies::new("http://p", "http://p", "*"), "http://a.test/"), None);
    }

    #[test]
    fn a_login_is_decoded_for_the_proxy_and_shown_to_nobody() {
        let proxy = Proxy::parse("http://bob:p%40w%zz@p1").unwrap();
        assert_eq!(proxy.login, Some(("bob".into(), "p@w%zz".into())));
        assert_eq!(proxy.authorization().unwrap(), format!("Basic {}", BASE64_STANDARD.encode("bob:p@w%zz")).as_str());
        assert!(!format!("{proxy:?}").contains("bob"));
    }

    #[test]
    fn what_is_no_proxy_is_none_and_what_is_unknown_is_not_passed_by() {
        assert_eq!(Proxy::parse(""), None);
        assert_eq!(Proxy::parse("p1:3128").map(|proxy| (proxy.host, proxy.port)), Some(("p1".into(), 3128)));
        assert_eq!(Proxy::parse("https://p1").map(|proxy| proxy.way), Some(Way::Unknown("https".into())));
    }
}
