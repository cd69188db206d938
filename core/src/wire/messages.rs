//! Anthropic Messages: its events.

use super::facts::{Class, Finish, Memory, is_done};
use super::json::{Bad, Cursor, Parsed, Token};

/// The events that Anthropic's SDKs read; the others they pass over, whatever is in them.
const EVENTS: [(&[u8], Meaning); 8] = [
    (b"message_start", Meaning::ByContent),
    (b"content_block_start", Meaning::ByContent),
    (b"content_block_delta", Meaning::ByContent),
    (b"content_block_stop", Meaning::Opener),
    (b"message_delta", Meaning::Finish),
    (b"message_stop", Meaning::Last),
    (b"ping", Meaning::Opener),
    (b"error", Meaning::Failure),
];

#[derive(Copy, Clone, PartialEq, Eq)]
enum Meaning {
    Opener,
    ByContent,
    Finish,
    Last,
    Failure,
}

fn meaning(word: &[u8]) -> Option<Meaning> {
    EVENTS.iter().find(|(known, _)| *known == word).map(|(_, meaning)| *meaning)
}

/// What the event with this name and data is.
pub(super) fn read(name: &[u8], data: &[u8], memory: &mut Memory) -> Parsed<Class> {
    if is_done(data) {
        // Not of this protocol: its clients pass over it, so it ends nothing.
        return Ok(Class::Opener);
    }
    let (mut error, mut content, mut finish, mut typed) = (false, false, Finish::None, None);
    let (mut buffer, mut kind) = ([0; 64], [0; 64]);
    let mut cursor = Cursor::new(data);
    let read = cursor.object(|c, key| {
        match key.word(&mut buffer) {
            b"type" => typed = c.text_or_null("type")?,
            b"message" => match c.peek() {
                // An error may have its words here.
                Token::Text => c.skip()?,
                _ => content |= start(c, memory)?,
            },
            b"content_block" => content |= block(c, "content_block")?,
            b"delta" => content |= delta(c, &mut finish)?,
            b"usage" => memory.usage.read(c)?,
            b"error" => error |= c.tells_error()?,
            _ => c.skip()?,
        }
        Ok(())
    });
    match read.and_then(|()| cursor.end()) {
        Err(_) if !name.is_empty() && name != b"message" && meaning(name).is_none() => return Ok(Class::Opener),
        read => read?,
    }
    let kind = match &typed {
        Some(text) => text.word(&mut kind),
        None => name,
    };
    Ok(match meaning(kind) {
        _ if error => Class::Error,
        Some(Meaning::Failure) => Class::Error,
        Some(Meaning::Last) => {
            memory.ended = true;
            Class::Last
        }
        Some(Meaning::ByContent) if content => Class::Content,
        Some(Meaning::Finish) => match finish {
            Finish::None => Class::Opener,
            Finish::Plain => Class::PlainStop,
            Finish::Other | Finish::Error => Class::Stop(false),
        },
        Some(Meaning::Opener | Meaning::ByContent) | None => Class::Opener,
    })
}

/// Reads the message of `message_start`; whether it carries content already.
fn start(c: &mut Cursor<'_>, memory: &mut Memory) -> Parsed<bool> {
    let mut filled = false;
    let mut buffer = [0; 64];
    c.object_or_null("message", |c, key| {
        match key.word(&mut buffer) {
            b"content" => filled |= blocks(c, "message.content")?,
            b"usage" => memory.usage.read(c)?,
            _ => c.skip()?,
        }
        Ok(())
    })?;
    Ok(filled)
}

/// Reads a list of content blocks or null; whether any of them carries content.
pub(super) fn blocks(c: &mut Cursor<'_>, field: &'static str) -> Parsed<bool> {
    let mut filled = false;
    c.array_or_null(field, |c| {
        filled |= block(c, "content[]")?;
        Ok(())
    })?;
    Ok(filled)
}

/// Reads a content block; whether it carries content. Text and thinking may be empty, any other block is content.
fn block(c: &mut Cursor<'_>, field: &'static str) -> Parsed<bool> {
    let (mut filled, mut other) = (false, false);
    let mut buffer = [0; 64];
    let object = c.object_or_null(field, |c, key| {
        match key.word(&mut buffer) {
            b"type" => {
                let mut word = [0; 64];
                other = match c.text_or_null("content_block.type")?.map(|kind| kind.word(&mut word)) {
                    None | Some(b"text" | b"thinking" | b"") => false,
                    Some(_) => true,
                };
            }
            b"text" | b"thinking" => {
                filled |= c.text_or_null("content_block.text")?.is_some_and(|text| !text.is_empty());
            }
            _ => c.skip()?,
        }
        Ok(())
    })?;
    Ok(object && (filled || other))
}

/// Reads a delta of a block or of the message; whether it carries content.
fn delta(c: &mut Cursor<'_>, finish: &mut Finish) -> Parsed<bool> {
    let mut filled = false;
    let mut buffer = [0; 64];
    c.object_or_null("delta", |c, key| {
        match key.word(&mut buffer) {
            b"type" => c.skip()?,
            b"stop_reason" => *finish = Finish::of(c.text_or_null("delta.stop_reason")?),
            b"text" | b"thinking" | b"partial_json" => match c.peek() {
                Token::Text | Token::Null | Token::Nothing => filled |= c.filled()?,
                _ => return Err(Bad::Type("delta.text")),
            },
            // Signatures, citations and what is still to come.
            _ => filled |= c.filled()?,
        }
        Ok(())
    })?;
    Ok(filled)
}
