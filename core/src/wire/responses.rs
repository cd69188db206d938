//! OpenAI Responses: its events.

use super::facts::{Class, Memory, is_done, is_word};
use super::json::{Cursor, Parsed, Token};

/// The events that mean something by their type alone; every other is what it carries.
const EVENTS: [(&[u8], Meaning); 7] = [
    (b"error", Meaning::Failure),
    (b"response.failed", Meaning::Failure),
    (b"response.completed", Meaning::End),
    (b"response.incomplete", Meaning::End),
    (b"response.created", Meaning::Opener),
    (b"response.in_progress", Meaning::Opener),
    (b"response.queued", Meaning::Opener),
];

#[derive(Copy, Clone, PartialEq, Eq)]
enum Meaning {
    Opener,
    End,
    Failure,
    ByContent,
}

fn meaning(word: &[u8]) -> Meaning {
    EVENTS.iter().find(|(known, _)| *known == word).map_or(Meaning::ByContent, |(_, meaning)| *meaning)
}

/// What the event with this name and data is.
pub(super) fn read(name: &[u8], data: &[u8], memory: &mut Memory) -> Parsed<Class> {
    if is_done(data) {
        // Clients stop reading at it: without the end before it, it would end the stream in silence.
        return Ok(Class::EarlyDone);
    }
    let (mut error, mut content, mut typed) = (false, false, None);
    let mut answer = Answer::default();
    let (mut buffer, mut kind) = ([0; 64], [0; 64]);
    let mut cursor = Cursor::new(data);
    cursor.object(|c, key| {
        match key.word(&mut buffer) {
            b"type" => typed = c.text_or_null("type")?,
            b"sequence_number" => {
                memory.next_sequence = c.count()?.map_or(memory.next_sequence, |n| n.saturating_add(1));
            }
            b"delta" | b"text" | b"refusal" | b"arguments" | b"code" | b"input" | b"transcript" | b"data"
            | b"partial_image_b64" | b"b64_json" => content |= c.filled()?,
            b"item" => content |= item(c, "item")?,
            b"part" => content |= part(c, "part")?,
            b"response" => answer.read(c, memory)?,
            b"error" => error |= c.tells_error()?,
            b"object" => error |= is_word(c, b"error")?,
            _ => c.skip()?,
        }
        Ok(())
    })?;
    cursor.end()?;
    let kind = match &typed {
        Some(text) => text.word(&mut kind),
        None => name,
    };
    let class = match meaning(kind) {
        _ if error || answer.failed => Class::Error,
        Meaning::Failure => Class::Error,
        Meaning::End => Class::Stop(true),
        Meaning::ByContent if content => Class::Content,
        Meaning::Opener | Meaning::ByContent => Class::Opener,
    };
    if class == Class::Stop(true) {
        memory.ended = true;
        memory.no_output = kind == b"response.completed" && answer.output == Some(false);
    }
    Ok(class)
}

/// The `response` object of an event, or the whole answer.
#[derive(Copy, Clone, Default)]
pub(super) struct Answer {
    /// It carries an error, or its status is `failed`.
    pub(super) failed: bool,
    /// Its status is `completed`.
    pub(super) completed: bool,
    /// Whether its output holds anything; `None` without an output field.
    pub(super) output: Option<bool>,
}

impl Answer {
    /// Reads an answer or null.
    pub(super) fn read(&mut self, c: &mut Cursor<'_>, memory: &mut Memory) -> Parsed<()> {
        let mut buffer = [0; 64];
        c.object_or_null("response", |c, key| self.member(c, key.word(&mut buffer), memory)).map(drop)
    }

    /// Reads the value of one of an answer's fields.
    pub(super) fn member(&mut self, c: &mut Cursor<'_>, key: &[u8], memory: &mut Memory) -> Parsed<()> {
        match key {
            b"error" => self.failed |= c.tells_error()?,
            b"status" => {
                let mut buffer = [0; 64];
                match c.text_or_null("status")?.map(|status| status.word(&mut buffer)) {
                    Some(b"failed") => self.failed = true,
                    Some(b"completed") => self.completed = true,
                    _ => {}
                }
            }
            b"output" => {
                let mut any = false;
                let list = c.array_or_null("output", |c| {
                    any |= item(c, "output[]")?;
                    Ok(())
                })?;
                self.output = list.then_some(any);
            }
            b"usage" => memory.usage.read(c)?,
            _ => c.skip()?,
        }
        Ok(())
    }
}

/// Reads an output item; whether it carries content. A message or reasoning may be empty, any other item is a call.
fn item(c: &mut Cursor<'_>, field: &'static str) -> Parsed<bool> {
    let (mut filled, mut call) = (false, false);
    let mut buffer = [0; 64];
    let object = c.object_or_null(field, |c, key| {
        match key.word(&mut buffer) {
            b"type" => {
                let mut word = [0; 64];
                call = match c.text_or_null("item.type")?.map(|kind| kind.word(&mut word)) {
                    None | Some(b"message" | b"reasoning" | b"") => false,
                    Some(_) => true,
                };
            }
            b"content" | b"summary" => match c.peek() {
                Token::Array => c.array(|c| {
                    filled |= part(c, "item.content[]")?;
                    Ok(())
                })?,
                _ => filled |= c.filled()?,
            },
            _ => c.skip()?,
        }
        Ok(())
    })?;
    Ok(object && (filled || call))
}

/// Reads a content part; whether it carries content: any field but its type and its notes that is not empty.
fn part(c: &mut Cursor<'_>, field: &'static str) -> Parsed<bool> {
    let mut filled = false;
    let mut buffer = [0; 64];
    c.object_or_null(field, |c, key| {
        match key.word(&mut buffer) {
            b"type" | b"annotations" | b"logprobs" | b"id" | b"status" => c.skip()?,
            _ => filled |= c.filled()?,
        }
        Ok(())
    })?;
    Ok(filled)
}
