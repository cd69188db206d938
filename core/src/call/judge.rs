//! Who says what a text means.
//!
//! A few decisions depend on an upstream's very words: rules, phrases, the JSON asked for, what an error's sentences
//! say. A redacted trace does not hold the words, so their verdicts are traced, and a replay goes by those. Everything
//! else is decided by structure, which redaction keeps.

use alloc::collections::VecDeque;

use crate::event::{Action, Judgement};
use crate::wire::ErrorFact;

use super::Call;

/// Who judges the texts of a call.
#[derive(Clone, Debug, Default)]
pub enum Judge {
    /// The call itself.
    #[default]
    Live,
    /// The call itself; each verdict becomes an [`Action::Judged`], for the trace.
    Telling,
    /// Whoever recorded these verdicts, in their order; the call itself where they do not answer what is asked, as under
    /// another policy. Each becomes an [`Action::Judged`].
    Recorded(VecDeque<Judgement>),
}

impl Judge {
    /// The next recorded verdict, if it answers what is asked.
    fn recall<T>(&mut self, answer: impl Fn(Judgement) -> Option<T>) -> Option<T> {
        let Judge::Recorded(verdicts) = self else { return None };
        let verdict = answer(*verdicts.front()?)?;
        verdicts.pop_front();
        Some(verdict)
    }
}

impl Call {
    /// The verdict of whoever judges; `live` asks the text itself.
    pub(super) fn judged<T: Copy>(
        &mut self,
        live: impl FnOnce(&Call) -> T,
        told: impl Fn(T) -> Judgement,
        answer: impl Fn(Judgement) -> Option<T>,
    ) -> T {
        let verdict = self.judge.recall(answer).unwrap_or_else(|| live(self));
        if !matches!(self.judge, Judge::Live) {
            self.act(Action::Judged(told(verdict)));
        }
        verdict
    }

    /// An error with the status and the meaning that its words were found to have.
    pub(super) fn judged_error(&mut self, mut fact: ErrorFact) -> ErrorFact {
        (fact.status, fact.quota_gone) = self.judged(
            |_| (fact.status, fact.quota_gone),
            |(status, quota_gone)| Judgement::Error { status, quota_gone },
            |judgement| match judgement {
                Judgement::Error { status, quota_gone } => Some((status, quota_gone)),
                _ => None,
            },
        );
        fact
    }
}
