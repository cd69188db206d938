//! Answers by order: what a source is told to do, one request after the other.

use surefoot_core::outcome::Outcome;
use surefoot_core::time::Span;

use super::script::{Fate, Script};
use super::speech;
use super::trouble::{Telling, Trouble, outcome_of};

/// One answer, with nothing left to chance that a policy would see.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// This trouble, or none.
    Trouble(Trouble),
    /// A good answer whose head takes so long.
    Slow(Span),
    /// This status and a short body.
    Status(u16),
    /// 429, to come back after so long (`retry-after-ms`).
    Pushback(Span),
    /// A stream that an error event ends before any content: overloaded, 503.
    OverloadedStream,
}

impl Told {
    /// The script of it.
    pub(super) fn script(self, mut telling: Telling<'_>) -> Script {
        match self {
            Told::Trouble(trouble) => telling.compose(trouble),
            Told::Slow(head) => {
                telling.opens_after = head;
                telling.compose(Trouble::None)
            }
            Told::Status(status) => {
                let text = speech::error_text(telling.ask.format, status, "upstream_failure", "", "it failed");
                let mut script = telling.error(Trouble::Status(status), status, Vec::new(), text.into_bytes());
                script.fate = Fate::Fails(outcome_of(status));
                script
            }
            Told::Pushback(after) => {
                let mut script = telling.bare_pushback();
                let hint = vec![("retry-after-ms", after.as_millis().to_string())];
                let body = std::mem::take(&mut script.pieces);
                script = telling.error(Trouble::Limited, 429, hint, Vec::new());
                script.pieces = body;
                script.fate = Fate::Fails(Outcome::RateLimited);
                script.hint = Some((after, after));
                script
            }
            Told::OverloadedStream => telling.overloaded_stream(),
        }
    }
}
