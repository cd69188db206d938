//! Client keys: who may ask (X3).

use alloc::vec::Vec;
use core::hint::black_box;

use crate::policy::Secret;

/// The keys that open the gateway; none = open to all.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientKeys {
    keys: Vec<Secret>,
}

impl ClientKeys {
    /// The given keys.
    pub(super) fn new(keys: Vec<Secret>) -> ClientKeys {
        ClientKeys { keys }
    }

    /// Whether a request with these headers may pass: `Authorization: Bearer K` or `x-api-key: K`, either suffices.
    ///
    /// Every key is compared to its end, so that the time taken tells nothing but lengths.
    pub(super) fn admit(&self, authorization: Option<&str>, x_api_key: Option<&str>) -> bool {
        let presented = [authorization.and_then(bearer), x_api_key.map(str::trim)];
        let fits = |given: &str| self.keys.iter().fold(false, |fits, key| fits | is_equal(given, key.expose()));
        self.keys.is_empty() || presented.into_iter().flatten().fold(false, |fitted, given| fitted | fits(given))
    }
}

/// The token of a bearer header; the scheme's case does not matter (RFC 9110 §11.1).
fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn is_equal(given: &str, key: &str) -> bool {
    let differing = given.bytes().zip(key.bytes()).fold(0, |differing, (a, b)| black_box(differing | (a ^ b)));
    given.len() == key.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_opens_in_either_header_and_nothing_else_does() {
        let keys = ClientKeys::new(["another-secret", "client-secret"].map(Secret::new).into());
        let bearer = |value| keys.admit(Some(value), None);
        assert!(bearer("Bearer client-secret") && bearer("bearer  another-secret "));
        assert!(keys.admit(None, Some("client-secret")));
        assert!(keys.admit(Some("Bearer wrong"), Some("another-secret")));
        let refused = [
            "Bearer client-secre",
            "Bearer client-secret1",
            "Basic client-secret",
            "client-secret",
            "Bearer ",
            "Bearer",
            "",
        ];
        for value in refused {
            assert!(!bearer(value), "{value:?}");
        }
        assert!(!keys.admit(None, None) && !keys.admit(None, Some("")));
    }

    #[test]
    fn without_keys_everyone_may_ask() {
        assert!(ClientKeys::default().admit(None, None));
    }
}
