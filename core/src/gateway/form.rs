//! Multipart forms (RFC 7578): the image routes that take files. Parts are found, never decoded or put together anew.

use alloc::string::String;
use core::ops::Range;

use memchr::memmem;

use super::body::{BodyError, ModelSlot, Wish, estimate};

/// More parts than this are no picture request but an attack on the scan.
const MAX_PARTS: usize = 1000;

/// The parameters of a `multipart/form-data` content type; `None` for any other type.
pub(super) fn parameters(content_type: &str) -> Option<&str> {
    let (kind, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    kind.trim().eq_ignore_ascii_case("multipart/form-data").then_some(parameters)
}

/// The boundary among them; 1 to 70 bytes.
fn boundary(parameters: &str) -> Result<String, BodyError> {
    let boundary = parameter(parameters, "boundary").filter(|boundary| (1..=70).contains(&boundary.len()));
    boundary.ok_or(BodyError::BrokenForm("its content type names no boundary of 1 to 70 bytes"))
}

/// The value of `name` among `; name=value` parameters, unquoted. A parameter without a value is passed over.
fn parameter(parameters: &str, name: &str) -> Option<String> {
    let mut rest = parameters;
    loop {
        let (before, after) = rest.split_once('=')?;
        let key = before.rsplit(';').next().unwrap_or_default();
        let (value, after) = match after.trim_start_matches([' ', '\t']).strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let (value, after) = after.split_once(';').unwrap_or((after, ""));
                (value.trim().into(), after)
            }
        };
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = after;
    }
}

/// The text up to the closing quote, backslashes taken off, and what follows.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, text.get(at + 1..).unwrap_or(""))),
            '\\' => value.push(chars.next()?.1),
            _ => value.push(c),
        }
    }
    None
}

/// One part: what its `content-disposition` says, and where its content stands.
struct Part<'a> {
    name: String,
    is_file: bool,
    content: &'a [u8],
    span: Range<usize>,
}

/// Reads a form: the text parts `model` and `stream`. `parameters` are those of its content type.
pub(super) fn read(parameters: &str, body: &[u8]) -> Result<Wish, BodyError> {
    if body.is_empty() {
        return Err(BodyError::Empty);
    }
    let mut slot = None;
    let mut stream = false;
    let mut text_bytes = 0_usize;
    each_part(&boundary(parameters)?, body, |part| {
        if part.is_file {
            return Ok(());
        }
        text_bytes = text_bytes.saturating_add(part.content.len());
        match part.name.as_str() {
            "model" if slot.is_some() => return Err(BodyError::ModelTwice),
            "model" => {
                let name = core::str::from_utf8(part.content).map_err(|_| BodyError::ModelNotText)?;
                slot = Some(ModelSlot::new(part.span, name, false));
            }
            "stream" => stream = part.content == b"true",
            _ => {}
        }
        Ok(())
    })?;
    let slot = slot.ok_or(BodyError::NoModel)?;
    Ok(Wish { slot, stream, include_usage: false, structured: false, schema: None, tokens: estimate(text_bytes) })
}

fn each_part<'a>(
    boundary: &str,
    body: &'a [u8],
    mut visit: impl FnMut(Part<'a>) -> Result<(), BodyError>,
) -> Result<(), BodyError> {
    let delimiter = alloc::format!("\r\n--{boundary}");
    let finder = memmem::Finder::new(delimiter.as_bytes());
    // The first delimiter may stand at the very beginning, without its line break; anything before it is no content.
    let mut at = match body.strip_prefix(&delimiter.as_bytes()[2..]) {
        Some(_) => delimiter.len() - 2,
        None => finder.find(body).ok_or(BodyError::BrokenForm("its boundary never occurs"))? + delimiter.len(),
    };
    for _ in 0..MAX_PARTS {
        let rest = body.get(at..).unwrap_or_default();
        if rest.starts_with(b"--") {
            return Ok(());
        }
        let head = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(rest.len());
        if !rest.get(head..).unwrap_or_default().starts_with(b"\r\n") {
            return Err(BodyError::BrokenForm("a boundary is not followed by a line break"));
        }
        // A part without headers has its blank line right here: search from the line break on.
        let headers_end = memmem::find(rest.get(head..).unwrap_or_default(), b"\r\n\r\n")
            .ok_or(BodyError::BrokenForm("a part has no blank line after its headers"))?;
        let start = at + head + headers_end + 4;
        let headers = rest.get(head..head + headers_end).unwrap_or_default();
        let content = body.get(start..).unwrap_or_default();
        let length = finder.find(content).ok_or(BodyError::BrokenForm("its last boundary is missing"))?;
        let (name, is_file) = disposition(headers);
        let content = content.get(..length).unwrap_or_default();
        visit(Part { name, is_file, content, span: start..start + length })?;
        at = start + length + delimiter.len();
    }
    Err(BodyError::BrokenForm("it has more than 1000 parts"))
}

/// Name and whether a file, from a part's headers; nameless parts have an empty name.
fn disposition(headers: &[u8]) -> (String, bool) {
    let text = core::str::from_utf8(headers).unwrap_or("");
    let lines = text.split("\r\n").filter_map(|line| line.split_once(':'));
    let mut values =
        lines.filter(|(key, _)| key.trim().eq_ignore_ascii_case("content-disposition")).map(|(_, value)| value);
    let parameters = values.next().and_then(|value| value.split_once(';')).map_or("", |(_, parameters)| parameters);
    let is_file = parameter(parameters, "filename").or_else(|| parameter(parameters, "filename*")).is_some();
    (parameter(parameters, "name").unwrap_or_default(), is_file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    const EDIT: &str = "--b1\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nadd a bird\r\n\
        --b1\r\ncontent-disposition: form-data; filename=\"model\"; name=\"image\"\r\nContent-Type: image/png\r\n\r\nmodel m\r\n--b2\r\n\r\n\
        --b1 \r\nContent-Disposition: form-data;name=model\r\n\r\nm\r\n\
        --b1\r\nContent-Disposition: form-data; name=\"stream\"\r\n\r\ntrue\r\n--b1--\r\n";

    #[test]
    fn the_models_text_part_is_swapped_and_the_file_is_left_alone() {
        let wish = read("boundary=b1", EDIT.as_bytes()).unwrap();
        assert!(wish.stream);
        let swapped = wish.slot.body_for(&Bytes::from(EDIT), "up-model");
        assert_eq!(swapped, EDIT.replace("\r\n\r\nm\r\n", "\r\n\r\nup-model\r\n").as_bytes());
    }

    #[test]
    fn a_form_that_cannot_be_read_says_why() {
        let told = |boundary: &str, body: &str| read(&format!("boundary={boundary}"), body.as_bytes()).unwrap_err();
        assert_eq!(told("b1", ""), BodyError::Empty);
        assert_eq!(told("zz", EDIT), BodyError::BrokenForm("its boundary never occurs"));
        assert_eq!(told("b1", &EDIT[..EDIT.len() - 10]), BodyError::BrokenForm("its last boundary is missing"));
        assert_eq!(told("b1", "--b1\r\nX: y\r\n"), BodyError::BrokenForm("a part has no blank line after its headers"));
        assert_eq!(told("b1", "--b1x"), BodyError::BrokenForm("a boundary is not followed by a line break"));
        assert_eq!(told("b1", "--b1--"), BodyError::NoModel);
        let twice = "--b1\r\nContent-Disposition: form-data; name=model\r\n\r\nm\r\n".repeat(2) + "--b1--";
        assert_eq!(told("b1", &twice), BodyError::ModelTwice);
        assert_eq!(
            told("b1", &("--b1\r\n\r\n\r\n".repeat(1001) + "--b1--")),
            BodyError::BrokenForm("it has more than 1000 parts")
        );
    }

    #[test]
    fn boundaries_are_read_bare_and_quoted() {
        let found = |content_type| parameters(content_type).map(boundary);
        assert_eq!(found("multipart/form-data; boundary=----x"), Some(Ok("----x".into())));
        assert_eq!(found("multipart/form-data; flag; boundary=x; y"), Some(Ok("x".into())));
        assert_eq!(found("Multipart/Form-Data; charset=\"a;b\\\"\" ; Boundary=\"a b\""), Some(Ok("a b".into())));
        let broken = BodyError::BrokenForm("its content type names no boundary of 1 to 70 bytes");
        for none in ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; charset=utf-8"] {
            assert_eq!(found(none), Some(Err(broken.clone())), "{none}");
        }
        for other in ["application/json", "multipart/mixed; boundary=x", ""] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_forms_never_panic_and_splice_in_place(
            parts in prop::collection::vec((prop::sample::select(&["model", "image", "a\"b", ""][..]), any::<bool>(), any::<Vec<u8>>()), 0..5),
            cut: prop::sample::Index, new in "[ -~]{0,9}",
        ) {
            let mut body = Vec::new();
            for (name, file, content) in &parts {
                let file = if *file { "; filename=x" } else { "" };
                body.extend_from_slice(format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").as_bytes());
                body.extend_from_slice(content);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(b"--b--\r\n");
            let _ = read("boundary=b", &body[..cut.index(body.len())]);
            if let Ok(wish) = read("boundary=b", &body) {
                let body = Bytes::from(body);
                let swapped = read("boundary=b", &wish.slot.body_for(&body, &new)).unwrap().slot;
                prop_assert_eq!(swapped.name(), new);
                prop_assert_eq!(swapped.body_for(&wish.slot.body_for(&body, swapped.name()), wish.slot.name()), body);
            }
        }
    }
}
