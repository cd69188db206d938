//! The upstream's side of a request: its address, and the headers that are the provider's (X1, M7).

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::headers::ANTHROPIC_VERSION;
use super::text::{base64, percent_decoded};
use crate::policy::config::{BaseUrl, Key, Provider, is_version};
use crate::wire::Format;

/// What stands behind a base URL: the same for every source of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The protocol: decides over the version part and the credentials.
    pub format: Format,
    /// The path behind the version part, with its slash; may be empty for pass-through.
    pub path: Cow<'static, str>,
    /// The client's query, as it came.
    pub query: Option<String>,
    /// Whether the client spoke of an `anthropic-version` itself.
    pub anthropic: bool,
}

/// One source's address and credentials, out of a snapshot's configuration.
#[derive(Copy, Clone, Debug)]
pub struct Upstream<'a> {
    /// Where it is.
    pub base: &'a BaseUrl,
    /// Whose it is.
    pub provider: &'a Provider,
    /// What it is asked with; `None` = the provider needs none.
    pub key: Option<&'a Key>,
}

/// How a provider wants its key.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Style {
    /// `authorization: Bearer K`
    Bearer,
    /// `x-api-key: K` and an `anthropic-version`
    ApiKey,
}

impl<'a> Upstream<'a> {
    /// Path and query of a request there.
    pub fn path_and_query(&self, tail: &Tail) -> String {
        let joined = match tail.format {
            Format::Raw => self.raw_path(&tail.path),
            format => self.base.join(format, &tail.path),
        };
        let joined = if joined.is_empty() { "/".into() } else { joined };
        match &tail.query {
            Some(query) => format!("{joined}?{query}"),
            None => joined,
        }
    }

    /// The version part stands in a pass-through path once, whether the client's path, the base URL or neither has it:
    /// SDKs differ in who brings it, and no API has `/v1/v1`.
    fn raw_path(&self, path: &str) -> String {
        let mut segments = path.splitn(3, '/').skip(1);
        let first = segments.next().filter(|first| is_version(first));
        let last = self.base.path().rsplit('/').next().filter(|last| is_version(last));
        match (first, last) {
            (Some(first), Some(last)) if first == last => {
                let rest = path.get(1 + first.len()..).unwrap_or_default();
                self.base.join(Format::Raw, rest)
            }
            (None, None) if self.speaks_messages_only() && !path.is_empty() => self.base.join(Format::Messages, path),
            _ => self.base.join(Format::Raw, path),
        }
    }

    /// The headers to set, in lower case, each over a client's one of the same name: the provider's configured ones,
    /// its credentials where those do not name them, the coding that the gateway can read (X5).
    ///
    /// Values may be secrets.
    pub fn headers(&self, tail: &Tail) -> Vec<(Cow<'a, str>, String)> {
        let configured = self.provider.headers.iter();
        let mut headers: Vec<(Cow<'a, str>, String)> =
            configured.map(|(name, value)| (name.as_str().into(), value.expose().into())).collect();
        let mut set = |name: &'static str, value: String| {
            if !headers.iter().any(|(known, _)| known == name) {
                headers.push((name.into(), value));
            }
        };
        let style = self.style(tail);
        if style == Style::ApiKey && !tail.anthropic {
            set("anthropic-version", ANTHROPIC_VERSION.into());
        }
        match (self.key, style) {
            (Some(key), Style::Bearer) => set("authorization", format!("Bearer {}", key.value.expose())),
            (Some(key), Style::ApiKey) => set("x-api-key", key.value.expose().into()),
            (None, _) => {}
        }
        if let Some(credentials) = self.base.credentials() {
            set("authorization", format!("Basic {}", base64(percent_decoded(credentials).as_bytes())));
        }
        if tail.format != Format::Raw {
            headers.retain(|(name, _)| name != "accept-encoding");
            headers.push(("accept-encoding".into(), "identity".into()));
        }
        headers
    }

    /// Where its model list is, and how to ask for it (M9).
    pub fn discovery(&self) -> Tail {
        let anthropic = self.speaks_messages_only();
        let format = if anthropic { Format::Messages } else { Format::Chat };
        // Anthropic's list has pages of 20 unless told otherwise; 1000 is its most.
        let query = anthropic.then(|| "limit=1000".into());
        Tail { format, path: "/models".into(), query, anthropic: false }
    }

    /// By what the provider speaks; one that speaks both families is asked in the way of the route, and in a
    /// pass-through in the way that the client's own headers show.
    fn style(&self, tail: &Tail) -> Style {
        let by_route = match tail.format {
            Format::Messages | Format::CountTokens => true,
            Format::Raw => tail.anthropic,
            Format::Chat | Format::Responses | Format::Embeddings | Format::Images => false,
        };
        let api_key = self.speaks_messages_only() || self.provider.speaks(Format::Messages) && by_route;
        if api_key { Style::ApiKey } else { Style::Bearer }
    }

    fn speaks_messages_only(&self) -> bool {
        self.provider.formats == [Format::Messages]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::fixture;

    fn tail(format: Format, path: &'static str, query: Option<&str>) -> Tail {
        Tail { format, path: path.into(), query: query.map(Into::into), anthropic: false }
    }

    fn upstream(config: &crate::policy::config::Config) -> Upstream<'_> {
        let provider = &config.providers[0];
        Upstream { base: &provider.endpoints[0].base_url, provider, key: provider.keys.first() }
    }

    fn path(base: &str, format: &str, tail: &Tail) -> String {
        let config = fixture::config(&serde_json::json!({
            "providers": [{ "name": "p", "formats": [format], "base_url": base }],
        }));
        upstream(&config).path_and_query(tail)
    }

    #[test]
    fn routes_stand_below_the_base_url() {
        let chat = tail(Format::Chat, "/chat/completions", None);
        assert_eq!(path("http://h/api/openai/v1/", "chat", &chat), "/api/openai/v1/chat/completions");
        let messages = tail(Format::Messages, "/messages", Some("beta=true"));
        assert_eq!(path("http://h/v1", "messages", &messages), "/v1/messages?beta=true");
        assert_eq!(path("http://h", "messages", &messages), "/v1/messages?beta=true");
    }

    #[test]
    fn a_pass_through_path_has_its_version_part_once() {
        let raw = |base, format, rest| path(base, format, &tail(Format::Raw, rest, None));
        let cases = [
            ("http://h/v1", "chat", "/files/x%20y", "/v1/files/x%20y"),
            ("http://h/v1", "chat", "/v1/files", "/v1/files"),
            ("http://h/v1", "chat", "/v1", "/v1"),
            ("http://h/v1", "chat", "/v1beta/files", "/v1/v1beta/files"),
            ("http://h/v1", "chat", "", "/v1"),
            ("http://h", "chat", "", "/"),
            ("http://h", "chat", "/v1/files", "/v1/files"),
            ("http://h", "chat", "/files", "/files"),
            ("http://h", "messages", "/v1/messages/batches", "/v1/messages/batches"),
            ("http://h", "messages", "/messages/batches", "/v1/messages/batches"),
            ("http://h/v1", "messages", "/messages/batches", "/v1/messages/batches"),
        ];
        for (base, format, rest, expected) in cases {
            assert_eq!(raw(base, format, rest), expected, "{base} {format} {rest}");
        }
    }

    #[test]
    fn each_family_gets_its_key_in_its_own_way() {
        let both = [Format::Chat, Format::Messages];
        let cases: [(&str, &[Format]); 3] =
            [("openai", &[Format::Chat]), ("anthropic", &[Format::Messages]), ("both", &both)];
        let mut shown = Vec::new();
        for (name, formats) in cases {
            let words: Vec<&str> = formats.iter().map(|format| format.as_str()).collect();
            let config = fixture::config(&serde_json::json!({
                "providers": [{ "name": "p", "formats": words, "base_url": "http://h/v1", "keys": [{ "value": "K" }] }],
            }));
            for (format, anthropic) in
                [(Format::Chat, false), (Format::Messages, false), (Format::Raw, false), (Format::Raw, true)]
            {
                let headers = upstream(&config).headers(&Tail { anthropic, ..tail(format, "/x", None) });
                let headers: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
                shown.push(format!(
                    "{name}, {format:?}, version from the client: {anthropic} -> {}",
                    headers.join("; ")
                ));
            }
        }
        insta::assert_snapshot!(shown.join("\n"));
    }

    #[test]
    fn configured_headers_have_their_way_and_identity_is_asked_for() {
        let config = fixture::config(&serde_json::json!({
            "providers": [{
                "name": "p", "formats": ["chat"], "base_url": "http://bob:hunter%322@h/v1", "keys": [{ "value": "K" }],
                "headers": { "X-Team": "blue", "authorization": "Custom T", "accept-encoding": "gzip" },
            }],
        }));
        let headers = |format| -> Vec<String> {
            let headers = upstream(&config).headers(&tail(format, "/x", None));
            headers.iter().map(|(name, value)| format!("{name}: {value}")).collect()
        };
        assert_eq!(headers(Format::Chat), ["x-team: blue", "authorization: Custom T", "accept-encoding: identity"]);
        assert_eq!(headers(Format::Raw), ["x-team: blue", "authorization: Custom T", "accept-encoding: gzip"]);
    }

    #[test]
    fn a_url_with_credentials_and_no_key_is_asked_with_them() {
        let config = fixture::config(&serde_json::json!({
            "providers": [{ "name": "p", "formats": ["chat"], "base_url": "http://bob:hunter%322@h/v1" }],
        }));
        let headers = upstream(&config).headers(&tail(Format::Raw, "/x", None));
        assert_eq!(headers, [("authorization".into(), format!("Basic {}", base64(b"bob:hunter22")))]);
    }
}
