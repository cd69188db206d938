//! OpenAI Chat Completions: its chunks.

use super::facts::{Class, Finish, Memory, is_done, is_word};
use super::json::{Bad, Cursor, Parsed, Token};

/// The paths of a message's fields, for the one reader of deltas and of whole messages.
struct Paths {
    message: &'static str,
    content: &'static str,
    tool_calls: &'static str,
    refusal: &'static str,
}

const DELTA: Paths = Paths {
    message: "choices[].delta",
    content: "choices[].delta.content",
    tool_calls: "choices[].delta.tool_calls",
    refusal: "choices[].delta.refusal",
};

const MESSAGE: Paths = Paths {
    message: "choices[].message",
    content: "choices[].message.content",
    tool_calls: "choices[].message.tool_calls",
    refusal: "choices[].message.refusal",
};

/// What a message or a delta holds.
#[derive(Copy, Clone, Default)]
pub(super) struct Held {
    /// Any field at all.
    pub(super) any: bool,
    /// Any field that is content: text, a refusal, reasoning under whatever name, a tool call, audio (F15).
    pub(super) content: bool,
}

/// One choice of a chunk or of a whole answer.
#[derive(Copy, Clone)]
pub(super) struct Choice {
    index: u64,
    pub(super) held: Held,
    pub(super) finish: Finish,
}

/// What the event with this data is.
pub(super) fn read(data: &[u8], memory: &mut Memory) -> Parsed<Class> {
    if is_done(data) {
        memory.ended = memory.finished != 0;
        return Ok(if memory.ended { Class::Last } else { Class::EarlyDone });
    }
    let (mut error, mut content, mut best) = (false, false, Finish::None);
    let mut buffer = [0; 64];
    let mut cursor = Cursor::new(data);
    cursor.object(|c, key| {
        match key.word(&mut buffer) {
            b"choices" => choices(c, memory, |choice, fresh| {
                content |= choice.held.content;
                // A finish that is told again is no second end.
                best = best.max(if fresh { choice.finish } else { Finish::None });
            })?,
            b"usage" => memory.usage.read(c)?,
            b"error" => error |= c.tells_error()?,
            b"object" | b"type" => error |= is_word(c, b"error")?,
            _ => c.skip()?,
        }
        Ok(())
    })?;
    cursor.end()?;
    Ok(match best {
        _ if error => Class::Error,
        Finish::Error => Class::Error,
        _ if content => Class::Content,
        Finish::Other => Class::Stop(false),
        Finish::Plain => Class::PlainStop,
        Finish::None => Class::Opener,
    })
}

fn choices(c: &mut Cursor<'_>, memory: &mut Memory, mut tell: impl FnMut(Choice, bool)) -> Parsed<()> {
    let mut position = 0;
    c.array_or_null("choices", |c| {
        let choice = choice(c, position, memory)?;
        position += 1;
        // OpenAI's `n` ends at 128. Indices beyond share the last bit: total, and right as long as nobody goes there.
        let bit = 1_u128 << choice.index.min(127);
        tell(choice, memory.finished & bit == 0);
        if choice.held.any || choice.finish != Finish::None {
            memory.started |= bit;
        }
        if choice.finish != Finish::None {
            memory.finished |= bit;
        }
        Ok(())
    })
    .map(drop)
}

/// Reads one choice; `position` is its index if it has none.
pub(super) fn choice(c: &mut Cursor<'_>, position: u64, memory: &mut Memory) -> Parsed<Choice> {
    if !matches!(c.peek(), Token::Object | Token::Nothing) {
        return Err(Bad::Type("choices[]"));
    }
    let mut choice = Choice { index: position, held: Held::default(), finish: Finish::None };
    let mut buffer = [0; 64];
    c.object(|c, key| {
        match key.word(&mut buffer) {
            b"index" => choice.index = index(c)?.unwrap_or(position),
            b"delta" => message(c, &DELTA, &mut choice.held)?,
            // Some send a whole message at the end of a stream.
            b"message" => message(c, &MESSAGE, &mut choice.held)?,
            // The legacy completions have their text here.
            b"text" => note(c.filled()?, &mut choice.held),
            b"finish_reason" => {
                let reason = c.text_or_null("choices[].finish_reason")?;
                choice.finish = Finish::of(reason);
            }
            // Moonshot tells the usage in the choice.
            b"usage" => memory.usage.read(c)?,
            _ => c.skip()?,
        }
        Ok(())
    })?;
    Ok(choice)
}

fn index(c: &mut Cursor<'_>) -> Parsed<Option<u64>> {
    match c.peek() {
        Token::Number => Ok(c.number()?.as_u64()),
        Token::Null => c.skip().map(|()| None),
        Token::Nothing => Err(Bad::Syntax),
        _ => Err(Bad::Type("choices[].index")),
    }
}

/// Reads a message or a delta, or null.
fn message(c: &mut Cursor<'_>, paths: &Paths, held: &mut Held) -> Parsed<()> {
    let mut buffer = [0; 64];
    c.object_or_null(paths.message, |c, key| {
        held.any |= c.peek() != Token::Null;
        match key.word(&mut buffer) {
            // Who speaks and what the parts are called is no content.
            b"role" | b"name" | b"id" | b"type" | b"object" | b"index" => c.skip()?,
            b"content" => match c.peek() {
                Token::Text | Token::Array | Token::Null | Token::Nothing => note(c.filled()?, held),
                _ => return Err(Bad::Type(paths.content)),
            },
            b"tool_calls" => {
                let mut any = false;
                c.array_or_null(paths.tool_calls, |c| {
                    any = true;
                    c.skip()
                })?;
                note(any, held);
            }
            b"refusal" => {
                let refusal = c.text_or_null(paths.refusal)?;
                note(refusal.is_some_and(|text| !text.is_empty()), held);
            }
            // Reasoning goes by many names, audio and function calls are objects: whatever is not empty is content.
            _ => note(c.filled()?, held),
        }
        Ok(())
    })
    .map(drop)
}

fn note(filled: bool, held: &mut Held) {
    held.any |= filled;
    held.content |= filled;
}

/// Whether the end of the stream here is a good end: every choice that was started is finished, and there was one (M5).
pub(super) fn complete(memory: &Memory) -> bool {
    memory.ended || (memory.finished != 0 && memory.started & !memory.finished == 0)
}
