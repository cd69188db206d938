//! Providers' keys in what providers say: never in a trace, in no mode (X6).
//!
//! A key becomes a token of the same length that stands for it, so that a replay masks at the same places as the call
//! did. Keys may be split over chunks; the few bytes at a chunk's end that may begin one wait for what follows.

use alloc::boxed::Box;
use alloc::vec::Vec;

use memchr::memmem::Finder;

use crate::policy::{Route, Secret};

/// The distinct keys of a route.
#[derive(Clone, Debug, Default)]
pub(super) struct Secrets(Vec<Known>);

#[derive(Clone)]
struct Known {
    finder: Finder<'static>,
    token: Box<[u8]>,
}

impl core::fmt::Debug for Known {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("***")
    }
}

/// Where a key stands: its start, and which.
type Found = (usize, usize);

impl Secrets {
    /// The keys of a route's candidates, numbered in the order in which they first occur.
    pub(super) fn of(route: &Route) -> Secrets {
        let mut secrets = Secrets::default();
        for candidate in &route.candidates {
            secrets.number(&candidate.secret);
        }
        secrets
    }

    /// The number of a key; taken in when it is new. `None` for no key.
    pub(super) fn number(&mut self, secret: &Secret) -> Option<u32> {
        let text = secret.expose().as_bytes();
        if text.is_empty() {
            return None;
        }
        let known = self.0.iter().position(|known| known.finder.needle() == text);
        let number = known.unwrap_or(self.0.len());
        let number = u32::try_from(number).ok()?;
        if known.is_none() {
            let finder = Finder::new(text).into_owned();
            self.0.push(Known { finder, token: token(number, text.len()).into_bytes().into() });
        }
        Some(number)
    }

    /// The keys in `text`, and how much of it is settled: behind that a key may have begun, unless it is the `end`.
    ///
    /// The leftmost key counts, of several at one place the longest.
    fn scan(&self, text: &[u8], end: bool) -> (Vec<Found>, usize) {
        let mut found = Vec::new();
        let mut from = 0;
        loop {
            let rest = text.get(from..).unwrap_or_default();
            let settled = if end { rest.len() } else { self.settled(rest) };
            let first = self.0.iter().enumerate().filter_map(|(index, known)| Some((known.finder.find(rest)?, index)));
            let first = first.min_by_key(|(start, index)| (*start, usize::MAX - self.len(*index)));
            match first {
                Some((start, index)) if start < settled => {
                    found.push((from + start, index));
                    from += start + self.len(index);
                }
                _ => return (found, from + settled),
            }
        }
    }

    fn len(&self, index: usize) -> usize {
        self.0.get(index).map_or(0, |known| known.token.len())
    }

    /// Where the first key may begin that is not complete.
    fn settled(&self, text: &[u8]) -> usize {
        let open = |known: &Known| {
            let needle = known.finder.needle();
            let longest = needle.len().saturating_sub(1).min(text.len());
            (1..=longest).rev().find(|length| text.ends_with(needle.get(..*length).unwrap_or_default()))
        };
        text.len() - self.0.iter().filter_map(open).max().unwrap_or(0)
    }

    fn put_tokens(&self, text: &mut [u8], found: &[Found]) {
        for (start, index) in found {
            let Some(known) = self.0.get(*index) else { continue };
            if let Some(place) = text.get_mut(*start..*start + known.token.len()) {
                place.copy_from_slice(&known.token);
            }
        }
    }

    /// Replaces the keys in a whole text; `redact` goes over it in between.
    pub(super) fn hide(&self, text: &mut [u8], redact: impl FnOnce(&mut [u8])) {
        let (found, _) = self.scan(text, true);
        self.put_tokens(text, &found);
        redact(text);
        self.put_tokens(text, &found);
    }

    /// Replaces the keys in what is settled of `text`; `redact` goes over that in between. Returns how much it is.
    pub(super) fn hide_settled(&self, text: &mut [u8], end: bool, redact: impl FnOnce(&mut [u8])) -> usize {
        let (found, settled) = self.scan(text, end);
        if let Some(settled) = text.get_mut(..settled) {
            self.put_tokens(settled, &found);
            redact(settled);
            self.put_tokens(settled, &found);
        }
        settled
    }
}

/// What stands for key number `number` in a trace.
pub(super) fn token(number: u32, length: usize) -> alloc::string::String {
    let mut name = alloc::string::String::from("#");
    let mut rest = number;
    loop {
        name.push(char::from(b'a' + (rest % 26) as u8));
        rest /= 26;
        if rest == 0 {
            break;
        }
    }
    name.chars().cycle().take(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec;
    use proptest::prelude::*;

    fn secrets(texts: &[&str]) -> Secrets {
        let mut secrets = Secrets::default();
        for text in texts {
            secrets.number(&Secret::new(text));
        }
        secrets
    }

    fn hidden(secrets: &Secrets, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        secrets.hide(&mut bytes, |_| {});
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_key_becomes_its_token_and_the_longest_wins() {
        let secrets = secrets(&["sk-1", "", "sk-123", "sk-1"]);
        assert_eq!(hidden(&secrets, "sk-1 sk-123 sk-12"), "#a#a #b#b#b #a#a2");
        assert_eq!(alloc::format!("{secrets:?}"), "Secrets([***, ***])");
    }

    #[test]
    fn what_may_begin_a_key_is_not_settled() {
        let secrets = secrets(&["sk-1", "sk-123"]);
        assert_eq!(secrets.scan(b"x s", false), (vec![], 2));
        assert_eq!(secrets.scan(b"x sk-1", false), (vec![], 2));
        assert_eq!(secrets.scan(b"x sk-1", true), (vec![(2, 0)], 6));
        assert_eq!(secrets.scan(b"x sk-1 ", false), (vec![(2, 0)], 7));
        assert_eq!(secrets.scan(b"sk-123s", false), (vec![(0, 1)], 6));
    }

    proptest! {
        #[test]
        fn no_key_survives_and_tokens_stand_for_themselves(text in "[xyz-]{0,40}", keys in proptest::collection::vec("[xyz-]{3,5}", 0..4)) {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let once = hidden(&secrets(&keys), &text);
            prop_assert!(keys.iter().all(|key| !once.contains(key)), "{once}");
            let tokens: Vec<String> = {
                let mut distinct: Vec<&str> = Vec::new();
                keys.iter().for_each(|key| if !distinct.contains(key) { distinct.push(key) });
                distinct.iter().enumerate().map(|(number, key)| token(number as u32, key.len())).collect()
            };
            let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
            prop_assert_eq!(hidden(&secrets(&tokens), &once), once);
        }
    }
}
