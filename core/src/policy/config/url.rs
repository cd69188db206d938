//! Base URLs: checked when read, shown without their credentials.
//!
//! A URL crate would bring IDNA tables into the core for what is a scheme, a host and a port here; the adapter's HTTP
//! client has the last word on what it sends anyway.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::net::Ipv6Addr;

use thiserror::Error;

use crate::wire::Format;

/// Why a text is no base URL. Never tells the text: it may hold credentials.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    /// Neither `http` nor `https`.
    #[error("must begin with http:// or https://")]
    Scheme,
    /// Nothing where the host should be, or something that is no host.
    #[error("has no valid host; write it like https://api.example.com/v1")]
    Host,
    /// The port is no number from 1 to 65535.
    #[error("has no valid port; it is a number from 1 to 65535")]
    Port,
    /// A character that must be percent-encoded.
    #[error("holds a space or another character that must be percent-encoded")]
    Character,
    /// A query or a fragment, which paths cannot be added to.
    #[error("must end with its path: `?` and `#` have no place in a base URL")]
    Query,
}

/// A provider's address with its version part: `https://api.openai.com/v1`. Without a slash at its end.
///
/// `Debug` and `Display` leave out credentials (`http://bob:…@host`).
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl {
    text: String,
    /// Where the authority begins, just behind `://`.
    authority: usize,
    /// Where the host begins: behind the credentials, if there are any.
    host: usize,
    /// Where the host ends.
    host_end: usize,
    /// Where the path begins; the text's length when there is none.
    path: usize,
}

impl BaseUrl {
    /// Checks a base URL.
    ///
    /// # Errors
    /// What is wrong with it, without its text.
    pub fn parse(text: &str) -> Result<BaseUrl, UrlError> {
        let text = text.trim();
        let (scheme, behind) = text.split_once("://").ok_or(UrlError::Scheme)?;
        let behind = behind.trim_end_matches('/');
        let text = &text[..scheme.len() + "://".len() + behind.len()];
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return Err(UrlError::Scheme);
        }
        if !text.bytes().all(|b| b.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&b)) {
            return Err(UrlError::Character);
        }
        if behind.contains(['?', '#']) {
            return Err(UrlError::Query);
        }
        let authority = text.len() - behind.len();
        let path = behind.find('/').map_or(text.len(), |at| authority + at);
        let host_port = &text[authority..path];
        let host = host_port.rfind('@').map_or(authority, |at| authority + at + 1);
        let host_len = check_host_and_port(&text[host..path])?;
        let text = format!("{}{}", scheme.to_ascii_lowercase(), &text[scheme.len()..]);
        Ok(BaseUrl { text, authority, host, host_end: host + host_len, path })
    }

    /// The whole URL, credentials included: for the upstream's request, nothing else.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// Whether it is `https`.
    pub fn is_https(&self) -> bool {
        self.text.starts_with("https:")
    }

    /// The host as written, an IPv6 address in its brackets.
    pub fn host(&self) -> &str {
        &self.text[self.host..self.host_end]
    }

    /// The port: the one written, else the scheme's.
    pub fn port(&self) -> u16 {
        let written = self.text[self.host_end..self.path].trim_start_matches(':').parse();
        written.unwrap_or(if self.is_https() { 443 } else { 80 })
    }

    /// `user:password`, percent-encoded as written, where the URL has them.
    pub fn credentials(&self) -> Option<&str> {
        (self.host > self.authority).then(|| &self.text[self.authority..self.host - 1])
    }

    /// Scheme, host and port as written: `https://api.openai.com`. No credentials.
    pub fn origin(&self) -> String {
        format!("{}{}", &self.text[..self.authority], &self.text[self.host..self.path])
    }

    /// The path as written, without a slash at its end; empty when there is none.
    pub fn path(&self) -> &str {
        &self.text[self.path..]
    }

    /// The path of a route below it: `join(Format::Chat, "/chat/completions")` is `/v1/chat/completions`.
    ///
    /// Anthropic's own SDK takes its base without the version part and adds it; a Messages base may be written either way.
    pub fn join(&self, format: Format, tail: &str) -> String {
        let versioned = self.path().rsplit('/').next().is_some_and(is_version);
        let version = if matches!(format, Format::Messages | Format::CountTokens) && !versioned { "/v1" } else { "" };
        format!("{}{version}{tail}", self.path())
    }
}

/// The length of the host in `host`, `host:port`, `[v6]` or `[v6]:port`.
fn check_host_and_port(text: &str) -> Result<usize, UrlError> {
    let (len, valid) = match text.strip_prefix('[') {
        Some(inside) => {
            let end = inside.find(']').ok_or(UrlError::Host)?;
            (end + 2, inside[..end].parse::<Ipv6Addr>().is_ok())
        }
        None => {
            let len = text.find(':').unwrap_or(text.len());
            (len, is_host_name(&text[..len]))
        }
    };
    if !valid {
        return Err(UrlError::Host);
    }
    match &text[len..] {
        "" => Ok(len),
        rest => {
            let digits = rest.strip_prefix(':').ok_or(UrlError::Host)?;
            let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u16>().ok()).flatten();
            number.filter(|port| *port > 0).map(|_| len).ok_or(UrlError::Port)
        }
    }
}

fn is_host_name(name: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"-._~%".contains(&b);
    !name.is_empty() && name.len() <= 253 && !name.starts_with('.') && name.bytes().all(fine)
}

/// `v1`, `v1beta` …
pub(crate) fn is_version(segment: &str) -> bool {
    segment.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin())?;
        f.write_str(self.path())
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let url = BaseUrl::parse("HTTPS://bob:hunter2@api.example.com:8443/openai/v1/").unwrap();
        assert_eq!(url.expose(), "https://bob:hunter2@api.example.com:8443/openai/v1");
        assert_eq!((url.host(), url.port(), url.path()), ("api.example.com", 8443, "/openai/v1"));
        assert_eq!((url.credentials(), url.is_https()), (Some("bob:hunter2"), true));
        assert_eq!(url.origin(), "https://api.example.com:8443");
        let plain = BaseUrl::parse("http://[::1]").unwrap();
        assert_eq!((plain.host(), plain.port(), plain.path(), plain.credentials()), ("[::1]", 80, "", None));
        assert_eq!(BaseUrl::parse("https://h").unwrap().port(), 443);
    }

    #[test]
    fn credentials_are_never_printed() {
        let url = BaseUrl::parse("http://bob:hunter2@host/v1").unwrap();
        assert_eq!((format!("{url}"), format!("{url:?}")), ("http://host/v1".into(), "\"http://host/v1\"".into()));
        let at = BaseUrl::parse("http://bob:hun@ter2@host/v1").unwrap();
        assert_eq!(format!("{at}"), "http://host/v1");
    }

    #[test]
    fn what_is_no_url_is_refused_with_its_reason() {
        use UrlError::{Character, Host, Port, Query, Scheme};
        let cases = [
            ("", Scheme),
            ("not a url", Scheme),
            ("api.openai.com/v1", Scheme),
            ("ftp://host", Scheme),
            ("://host", Scheme),
            ("http://", Host),
            ("http:///v1", Host),
            ("http://:80", Host),
            ("http://a@", Host),
            ("http://.", Host),
            ("http://[::1", Host),
            ("http://[zz]", Host),
            ("http://[::1]x", Host),
            ("http://ho!st", Host),
            ("http://host:", Port),
            ("http://host:0", Port),
            ("http://host:65536", Port),
            ("http://host:+80", Port),
            ("http://ho st", Character),
            ("http://host/a b", Character),
            ("http://höst", Character),
            ("http://host/v1?x=1", Query),
            ("http://host#x", Query),
        ];
        for (text, why) in cases {
            assert_eq!(BaseUrl::parse(text).err(), Some(why), "{text}");
        }
    }

    #[test]
    fn a_messages_base_may_be_written_with_or_without_its_version() {
        let joined = |base, format, tail| BaseUrl::parse(base).unwrap().join(format, tail);
        assert_eq!(joined("https://api.anthropic.com", Format::Messages, "/messages"), "/v1/messages");
        assert_eq!(
            joined("https://api.anthropic.com/v1/", Format::CountTokens, "/messages/count_tokens"),
            "/v1/messages/count_tokens"
        );
        assert_eq!(joined("https://h/anthropic", Format::Messages, "/messages"), "/anthropic/v1/messages");
        assert_eq!(joined("https://api.deepseek.com", Format::Chat, "/chat/completions"), "/chat/completions");
        assert_eq!(
            joined("https://h/v1beta/openai", Format::Chat, "/chat/completions"),
            "/v1beta/openai/chat/completions"
        );
    }
}
