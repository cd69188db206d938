//! What the cursor accepts, refuses and reads.

use super::*;
use alloc::string::ToString;
use alloc::vec::Vec;
use proptest::prelude::*;

fn strings(document: &str) -> Vec<String> {
    let mut found = Vec::new();
    Cursor::new(document.as_bytes())
        .walk(|text| {
            let mut out = String::new();
            text.decode_into(&mut out);
            found.push(out);
        })
        .expect("a valid document");
    found
}

#[test]
fn accepts_what_rfc_8259_accepts() {
    for good in [
        "{}",
        "[]",
        " [ ] ",
        "\t{\"a\" : [1 , 2]}\r\n",
        "\"\"",
        "0",
        "-0",
        "-0.5e+10",
        "1E9",
        "true",
        "null",
        r#""\"\\\/\b\f\n\r\t\u00e9""#,
        r#"{"a":{"b":[{"c":null}]},"":""}"#,
        "\"\u{7f}é🙂\"",
        r#""\ud83d""#,
        "123456789012345678901234567890",
    ] {
        assert!(is_valid(good.as_bytes()), "{good}");
    }
}

#[test]
fn refuses_what_rfc_8259_refuses() {
    for bad in [
        "",
        " ",
        "{",
        "}",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{\"a\":1 \"b\":2}",
        "[1 2]",
        "01",
        "-",
        "+1",
        ".5",
        "1.",
        "1e",
        "1e+",
        "0x1",
        "NaN",
        "tru",
        "nul",
        "True",
        "'a'",
        "\"",
        "\"a",
        "\"\n\"",
        "\"\u{1}\"",
        r#""\x""#,
        r#""\u12g4""#,
        r#""\u12"#,
        r#""\"#,
        "1 2",
        "{} x",
        "[}",
        "{\"a\":1]",
        "\u{feff}{}",
        "// x\n1",
        "\"12345678\u{0}\"",
    ] {
        assert!(!is_valid(bad.as_bytes()), "{bad}");
    }
    assert!(!is_valid(b"\"\xff\"") && !is_valid(b"\"\xc3\"") && !is_valid(b"\"\xed\xa0\x80\""));
    assert!(
        !is_valid(b"\"long enough for a word \x1f and more of it\"")
            && is_valid(b"\"long enough for a word \x20 and more\"")
    );
    assert!(!is_valid(b"\"long enough for a word \xff and more of it\""));
}

#[test]
fn nests_as_deep_as_the_limit_and_no_deeper() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(is_valid(nested(128).as_bytes()));
    assert!(!is_valid(("[".repeat(129) + "1" + &"]".repeat(129)).as_bytes()));
    assert!(!is_valid("[".repeat(1_000_000).as_bytes()));
    assert!(is_valid(("{\"a\":[".repeat(64) + "1" + &"]}".repeat(64)).as_bytes()));
}

#[test]
fn shows_string_values_decoded_and_no_keys() {
    assert_eq!(
        strings(r#"{"k":"a\nb","l":[ "\u5bb9\u91cf", {"m":""}, "\ud83d\ude42", 1]}"#),
        ["a\nb", "容量", "", "🙂"]
    );
    assert_eq!(
        strings(r#"["\ud83d", "\ud83dx", "\ude42", "\ud83d\ud83d\ude42"]"#),
        ["\u{fffd}", "\u{fffd}x", "\u{fffd}", "\u{fffd}🙂"]
    );
}

#[test]
fn words_are_compared_decoded() {
    let mut buffer = [0; 64];
    let mut word = |document: &str| Cursor::new(document.as_bytes()).text().expect("text").word(&mut buffer).to_vec();
    assert_eq!(word(r#""cho\u0069ces""#), b"choices");
    assert_eq!(word(r#""choices""#), b"choices");
    assert_eq!(word(&("\"\\n".to_string() + &"x".repeat(64) + "\"")), b"\xff");
}

#[test]
fn numbers_become_counts() {
    let count = |document: &str| Cursor::new(document.as_bytes()).count().expect("a value");
    assert_eq!(
        ["7", "1e2", "99999999999999999999", "0.9", "-1", "\"7\"", "null"].map(count),
        [Some(7), Some(100), Some(u64::MAX), Some(0), None, None, None]
    );
}

#[test]
fn an_error_field_counts_only_when_it_says_something() {
    let tells = |document: &str| Cursor::new(document.as_bytes()).tells_error().expect("a value");
    assert_eq!(["null", "false", "\"\"", "{}", "[]", "0"].map(tells), [false; 6]);
    assert_eq!(["true", "\"x\"", "{\"a\":1}", "[1]", "500"].map(tells), [true; 5]);
}

proptest! {
    #[test]
    fn agrees_with_serde_json_about_documents(text in r#"[\[\]{}",:\\a-c0-2eEu.+ \-tf]{0,24}"#) {
        // serde_json refuses lone surrogates; this alphabet cannot write one.
        prop_assert_eq!(is_valid(text.as_bytes()), serde_json::from_str::<serde_json::Value>(&text).is_ok());
    }

    #[test]
    fn reads_every_string_that_serde_json_writes(words in proptest::collection::vec(".{0,40}", 0..6)) {
        prop_assert_eq!(strings(&serde_json::to_string(&words).expect("json")), words);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = is_valid(&bytes);
    }
}
