//! Which headers pass, in both directions, and whose credentials go out (M7, X1, X6). Rules on names only: the adapter
//! keeps its own header map.

use alloc::string::String;

use crate::rng::Rng;

/// The version an Anthropic upstream is told when the client names none.
pub const ANTHROPIC_VERSION: &str = "2023-06-01";

/// The longest request id taken over from a client, in characters.
const CLIENT_REQUEST_ID_MAX: usize = 128;

/// What happens to one header on its way.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on as it is.
    Pass,
    /// It stays here.
    Drop,
    /// It goes on under another name.
    Rename(&'static str),
}

/// How much of a body the gateway touches on its way: decides over the headers that describe its bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Handling {
    /// Read and perhaps rewritten: its length and coding are the gateway's to tell.
    Inspected,
    /// Passed through unread (M7): what describes its bytes stays true.
    Raw,
}

/// Headers of one connection, not of the message (RFC 9110 §7.6.1, with the older names still in use).
const HOP_BY_HOP: [&str; 11] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// What a client proves itself with. All of it is meant for the gateway: the provider gets the gateway's own key, and
/// a foreign key beside it would decide in some providers.
const CLIENT_CREDENTIALS: [&str; 5] = ["authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"];

/// Whether `name` is one connection's own: a hop-by-hop header, or one that a `connection` header names.
///
/// `connection` are the values of all `connection` headers of the message.
pub fn is_hop_by_hop(name: &str, connection: &[&str]) -> bool {
    let named = |value: &&str| value.split(',').any(|token| token.trim_matches([' ', '\t']).eq_ignore_ascii_case(name));
    is_one_of(name, &HOP_BY_HOP) || connection.iter().any(named)
}

/// Whether a client's request header goes to the upstream (M7, X1).
///
/// `host` and `content-length` are written anew, `accept-encoding` is asked for as `identity` (X5) except in a
/// pass-through, and `expect` was answered by the gateway itself.
pub fn request_header(name: &str, connection: &[&str], handling: Handling) -> Fate {
    let ours = is_one_of(name, &["host", "content-length", "expect"]) || is_one_of(name, &CLIENT_CREDENTIALS);
    let coding = handling == Handling::Inspected && is_one_of(name, &["accept-encoding", "content-encoding"]);
    if ours || coding || is_hop_by_hop(name, connection) { Fate::Drop } else { Fate::Pass }
}

/// Whether an upstream's answer header goes to the client (X6).
///
/// The upstream's request id goes on beside the gateway's own; `x-surefoot-*` are the gateway's to say, also where
/// the upstream is another gateway.
pub fn response_header(name: &str, connection: &[&str], handling: Handling) -> Fate {
    let ours = name.get(..11).is_some_and(|head| head.eq_ignore_ascii_case("x-surefoot-"));
    let framing = handling == Handling::Inspected && is_one_of(name, &["content-length", "content-encoding"]);
    if ours || framing || is_hop_by_hop(name, connection) {
        Fate::Drop
    } else if name.eq_ignore_ascii_case("x-request-id") {
        Fate::Rename("x-upstream-request-id")
    } else {
        Fate::Pass
    }
}

/// The id of a call's answer: the client's if it is 1 to 128 visible ASCII characters, else one of our own from `seed`.
pub fn request_id(client: Option<&str>, seed: u64) -> String {
    let usable =
        |id: &&str| (1..=CLIENT_REQUEST_ID_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
    match client.filter(usable) {
        Some(id) => id.into(),
        None => {
            let mut rng = Rng::new(seed);
            alloc::format!("req_{:016x}{:016x}", rng.next_u64(), rng.next_u64())
        }
    }
}

fn is_one_of(name: &str, known: &[&str]) -> bool {
    known.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_belongs_to_a_connection_or_to_the_gateway_stays_here() {
        let names = [
            "Accept-Encoding",
            "anthropic-beta",
            "Authorization",
            "Connection",
            "Content-Encoding",
            "Content-Length",
            "Content-Type",
            "Cookie",
            "Expect",
            "Host",
            "Idempotency-Key",
            "Keep-Alive",
            "Proxy-Authorization",
            "TE",
            "Transfer-Encoding",
            "Upgrade",
            "User-Agent",
            "X-Api-Key",
            "X-Hop",
            "X-Mine",
            "X-Request-Id",
        ];
        let passing = |handling| -> Vec<&str> {
            names
                .into_iter()
                .filter(|name| request_header(name, &["close", "x-hop ,keep-alive"], handling) == Fate::Pass)
                .collect()
        };
        let always = ["anthropic-beta", "Content-Type", "Idempotency-Key", "User-Agent", "X-Mine", "X-Request-Id"];
        assert_eq!(passing(Handling::Inspected), always);
        let raw: Vec<&str> = passing(Handling::Raw).into_iter().filter(|name| !always.contains(name)).collect();
        assert_eq!(raw, ["Accept-Encoding", "Content-Encoding"]);
    }

    #[test]
    fn the_upstreams_head_passes_less_hop_by_hop_and_what_is_the_gateways_to_say() {
        let fate = |name| response_header(name, &["X-Up-Hop"], Handling::Inspected);
        assert_eq!(fate("x-ratelimit-remaining-requests"), Fate::Pass);
        assert_eq!(fate("set-cookie"), Fate::Pass);
        assert_eq!(fate("request-id"), Fate::Pass);
        assert_eq!(fate("X-Request-ID"), Fate::Rename("x-upstream-request-id"));
        for dropped in ["x-up-hop", "keep-alive", "proxy-authenticate", "X-Surefoot-Source", "content-length"] {
            assert_eq!(fate(dropped), Fate::Drop, "{dropped}");
        }
        assert_eq!(response_header("content-encoding", &[], Handling::Raw), Fate::Pass);
    }

    #[test]
    fn a_usable_client_id_is_kept_and_any_other_replaced() {
        let longest = "x".repeat(128);
        assert_eq!(request_id(Some("abc-1"), 7), "abc-1");
        assert_eq!(request_id(Some(&longest), 7), longest);
        let ours = request_id(None, 7);
        assert_eq!(ours.len(), 36);
        for bad in ["", "a b", "a\u{7f}", "é", &"x".repeat(129)] {
            assert_eq!(request_id(Some(bad), 7), ours, "{bad:?}");
        }
        assert_ne!(request_id(None, 8), ours);
    }

    proptest! {
        #[test]
        fn no_credential_passes_whatever_the_case(index in 0..CLIENT_CREDENTIALS.len(), upper: u64, raw: bool) {
            let flip = |(i, c): (usize, char)| if upper >> (i % 64) & 1 == 1 { c.to_ascii_uppercase() } else { c };
            let name: String = CLIENT_CREDENTIALS[index].chars().enumerate().map(flip).collect();
            let handling = if raw { Handling::Raw } else { Handling::Inspected };
            prop_assert_eq!(request_header(&name, &[], handling), Fate::Drop);
        }
    }
}
