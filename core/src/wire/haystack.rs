//! The text that success rules search (F9), and the masking of secrets in what upstreams say (X6).

use alloc::string::String;
use alloc::vec::Vec;

use super::facts::is_done;
use super::json::{self, Cursor};
use super::sse::{Scanned, Scanner};

/// The text of a stream's held events: their data payloads as sent, one a line, then the decoded string values in them,
/// one a line. One text over all events, so that a pattern may span them.
pub fn of_stream(held: &[u8]) -> String {
    let (mut payloads, mut values) = (String::new(), String::new());
    let mut add = |data: &[u8]| {
        payloads.push_str(&String::from_utf8_lossy(data));
        payloads.push('\n');
        add_values(data, &mut values);
    };
    let mut scanner = Scanner::new();
    let mut rest = held;
    while let Some(step) = scanner.scan(&mut rest) {
        if let Scanned::Block(block) = step {
            block.data.into_iter().for_each(&mut add);
        }
    }
    // The last event may lack its blank line; half a payload says nothing (F10).
    if let Some((block, _)) = scanner.close() {
        block.data.into_iter().filter(|data| is_done(data) || json::is_valid(data)).for_each(&mut add);
    }
    payloads + &values
}

/// The text of a whole answer: the body as sent, then the decoded string values in it, one a line. Of anything but JSON
/// just the text.
pub fn of_body(body: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(body).into_owned();
    let mut values = String::new();
    add_values(body, &mut values);
    if !values.is_empty() {
        text.push('\n');
        text.push_str(&values);
    }
    text
}

/// Adds the string values of a document; of a broken one none, for half a payload says nothing (F10).
fn add_values(document: &[u8], values: &mut String) {
    let before = values.len();
    let mut cursor = Cursor::new(document);
    let walked = cursor.walk(|text| {
        text.decode_into(values);
        values.push('\n');
    });
    if walked.and_then(|()| cursor.end()).is_err() {
        values.truncate(before);
    }
}

/// Overwrites every occurrence of `secret` with as many `*`, so that no length changes. An empty secret hides nothing.
pub fn mask(text: &mut [u8], secret: &str) {
    if secret.is_empty() {
        return;
    }
    let found: Vec<usize> = memchr::memmem::find_iter(text, secret).collect();
    for start in found {
        if let Some(place) = text.get_mut(start..start + secret.len()) {
            place.fill(b'*');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_its_payloads_and_then_its_values_f9() {
        let held = b": c\n\nevent: x\ndata: {\"role\": \"assistant\",\"n\":[1,\"a\\nb\"]}\n\ndata: {\"c\":\"\\u5bb9\\u91cf\"}\r\n\r\ndata: busy\n\ndata: [DONE]\n\n";
        assert_eq!(
            of_stream(held),
            "{\"role\": \"assistant\",\"n\":[1,\"a\\nb\"]}\n{\"c\":\"\\u5bb9\\u91cf\"}\nbusy\n[DONE]\nassistant\na\nb\n容量\n"
        );
        assert_eq!(of_stream(b"data: {\"a\":\"x\"}"), "{\"a\":\"x\"}\nx\n");
        assert_eq!(of_stream(b"data: {\"a\":\"x\"\n\n"), "{\"a\":\"x\"\n");
        assert_eq!(of_stream(b"data: {\"a\":\"x"), "");
    }

    #[test]
    fn a_body_is_itself_and_then_its_values_f9() {
        assert_eq!(
            of_body(br#"{"content":"no \"capacity\""}"#),
            "{\"content\":\"no \\\"capacity\\\"\"}\nno \"capacity\"\n"
        );
        assert_eq!(of_body(b"[upstream] capacity exhausted"), "[upstream] capacity exhausted");
        assert_eq!(of_body(b"caf\xe9"), "caf\u{fffd}");
    }

    #[test]
    fn a_secret_is_masked_wherever_it_stands_x6() {
        let mut text = b"key sk-1, sk-1sk-1".to_vec();
        mask(&mut text, "sk-1");
        assert_eq!(text, b"key ****, ********");
        mask(&mut text, "");
        mask(&mut text, "sk-12345678901234567890");
        assert_eq!(text, b"key ****, ********");
    }
}
