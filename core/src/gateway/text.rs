//! Percent and base64 coding: the little of it that paths and credentials need.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

/// `text` with its `%XX` decoded; as it is where that gives no UTF-8. A `%` that stands for nothing is kept.
pub(super) fn percent_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        match (first, after) {
            (b'%', [high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                decoded.push(hex(*high) << 4 | hex(*low));
                rest = after;
            }
            _ => {
                decoded.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(decoded).map_or(Cow::Borrowed(text), Cow::Owned)
}

const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        b'A'..=b'F' => digit - b'A' + 10,
        _ => 0,
    }
}

/// Standard base64 with padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut coded = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = (bits >> (18 - 6 * at) & 63) as usize;
            coded.push(if at > group.len() { '=' } else { char::from(DIGITS[digit]) });
        }
    }
    coded
}

/// The first characters of a client's word, for a message: enough to know it again, however long it is.
pub(super) fn shortened(word: &str) -> Cow<'_, str> {
    const MAX: usize = 200;
    match word.char_indices().nth(MAX) {
        Some((at, _)) => Cow::Owned(alloc::format!("{}…", word.get(..at).unwrap_or_default())),
        None => Cow::Borrowed(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percent_codes_are_decoded_and_what_is_none_is_kept() {
        let cases = [
            ("u1%2Fup%2fmodel", "u1/up/model"),
            ("100%", "100%"),
            ("%zz%4", "%zz%4"),
            ("%C3%A9", "é"),
            ("%ff", "%ff"),
            ("", ""),
        ];
        for (coded, plain) in cases {
            assert_eq!(percent_decoded(coded), plain, "{coded}");
        }
    }

    #[test]
    fn base64_has_the_vectors_of_its_standard() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, coded) in vectors {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn long_words_are_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"é".repeat(300)), "é".repeat(200) + "…");
    }

    proptest! {
        #[test]
        fn what_was_coded_is_decoded(text: String) {
            let coded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
            prop_assert_eq!(percent_decoded(&coded), text.as_str());
        }
    }
}
