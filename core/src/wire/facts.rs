//! What one event tells, before it is an [`Event`](super::Event), and what a stream remembers between its events.

use super::json::{Cursor, Parsed, Text, Token};

/// What an event is; the error's words are read later, off the hot path.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Opener,
    Content,
    PlainStop,
    /// An end that is an answer; `true` when it is the protocol's last event too.
    Stop(bool),
    Last,
    EarlyDone,
    Error,
}

/// What a stream has shown so far. Copied per event, so that an event that fails half-way leaves no trace.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Memory {
    /// A bit for each chat choice of which anything came, and for each that was finished.
    pub(super) started: u128,
    pub(super) finished: u128,
    pub(super) usage: Usage,
    pub(super) next_sequence: u64,
    /// The protocol's last event came.
    pub(super) ended: bool,
    /// A Responses answer was completed without any output (M3).
    pub(super) no_output: bool,
}

/// Token counts as far as they are told. The last told value of each counts: Messages tells its output twice.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Usage {
    input: Option<u64>,
    output: Option<u64>,
    total: Option<u64>,
}

impl Usage {
    /// Reads a `usage` value. One that is no object is passed over: nothing that a client waits for hangs on it.
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        if cursor.peek() != Token::Object {
            return cursor.skip();
        }
        let (mut input, mut cached) = (None, 0_u64);
        let mut buffer = [0; 64];
        cursor.object(|c, key| {
            match key.word(&mut buffer) {
                b"prompt_tokens" | b"input_tokens" => input = c.count()?.or(input),
                // Anthropic counts these beside `input_tokens`; OpenAI has no fields of these names.
                b"cache_creation_input_tokens" | b"cache_read_input_tokens" => {
                    cached = cached.saturating_add(c.count()?.unwrap_or(0));
                }
                b"completion_tokens" | b"output_tokens" => self.output = c.count()?.or(self.output),
                b"total_tokens" => self.total = c.count()?.or(self.total),
                _ => c.skip()?,
            }
            Ok(())
        })?;
        self.input = input.map(|input| input.saturating_add(cached)).or(self.input);
        Ok(())
    }

    /// All tokens, where told.
    pub(super) fn tokens(self) -> Option<u32> {
        let sum = || match (self.input, self.output) {
            (None, None) => None,
            (input, output) => Some(input.unwrap_or(0).saturating_add(output.unwrap_or(0))),
        };
        self.total.or_else(sum).map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX))
    }

    /// Whether counts were told and every one of them is zero (M3, `no_usage`).
    pub(super) fn is_all_zero(self) -> bool {
        let told = [self.input, self.output, self.total];
        told.iter().any(Option::is_some) && told.iter().flatten().all(|count| *count == 0)
    }
}

/// How an answer ended, from the word that the provider gives.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Finish {
    /// Not said, null or empty.
    None,
    /// An end that says nothing else: an answer only if there was content (M3).
    Plain,
    /// `length`, `content_filter`, `tool_calls` and the like: an answer in itself.
    Other,
    /// OpenRouter and its like end a choice with `error` when their own upstream broke.
    Error,
}

impl Finish {
    /// The meaning of a finish or stop reason.
    pub(super) fn of(reason: Option<Text<'_>>) -> Finish {
        const PLAIN: [&[u8]; 6] = [b"stop", b"end_turn", b"stop_sequence", b"eos", b"eos_token", b"end"];
        let mut buffer = [0; 64];
        match reason.map(|reason| reason.word(&mut buffer)) {
            None | Some([]) => Finish::None,
            Some(word) if PLAIN.iter().any(|plain| word.eq_ignore_ascii_case(plain)) => Finish::Plain,
            Some(b"error") => Finish::Error,
            Some(_) => Finish::Other,
        }
    }
}

/// Reads any value; whether it is exactly the string `word`.
pub(super) fn is_word(cursor: &mut Cursor<'_>, word: &[u8]) -> Parsed<bool> {
    if cursor.peek() != Token::Text {
        return cursor.skip().map(|()| false);
    }
    Ok(cursor.text()?.word(&mut [0; 64]) == word)
}

/// Whether an event's data, white space aside, is `[DONE]`.
pub(super) fn is_done(data: &[u8]) -> bool {
    data.trim_ascii() == b"[DONE]"
}
