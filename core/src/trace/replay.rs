//! Runs recorded calls anew and compares what they do (X8).

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::fields::TraceError;
use super::reader::{Entry, Reader, RecordedCall};
use super::recorder::Recorder;
use crate::call::{Call, Judge};
use crate::event::{Action, Output};
use crate::id::CallId;
use crate::policy::config::TraceMode;

/// The first thing that a replayed call did otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The call.
    pub call: CallId,
    /// The line at which it shows, from 1; behind the call's last where it did more than was recorded.
    pub line: usize,
    /// The place among the call's inputs and actions, from 0.
    pub step: usize,
    /// The recorded action's line; none where nothing was recorded.
    pub recorded: Option<String>,
    /// The line of what it does now; none where it does nothing.
    pub now: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |line: &Option<String>| line.as_deref().map_or("nothing", |line| line).to_string();
        write!(
            f,
            "call {} differs at line {} (step {}):\n  recorded: {}\n  now:      {}",
            self.call,
            self.line,
            self.step,
            told(&self.recorded),
            told(&self.now)
        )
    }
}

impl RecordedCall {
    /// A fresh call under the route that it had, with the verdicts that were recorded.
    pub fn call(&self) -> Call {
        let verdicts = self.entries.iter().filter_map(|entry| match entry {
            Entry::Do(_, Action::Judged(judgement)) => Some(*judgement),
            _ => None,
        });
        let begin = &self.begin;
        Call::new(begin.plan(self.route.clone()), begin.id, begin.seed, begin.at)
            .with_request_id(&begin.request_id)
            .with_judge(Judge::Recorded(verdicts.collect()))
    }

    /// Replays the call under the policy that it had.
    ///
    /// # Errors
    /// The first difference.
    pub fn replay(&self) -> Result<(), Difference> {
        let mut call = self.call();
        let begin = &self.begin;
        let redacted = begin.mode == TraceMode::Redacted;
        let mut recorder = Recorder::echo(redacted, call.plan(), begin.id, begin.at);
        let mut actions = self.actions();
        for (step, entry) in self.entries.iter().enumerate() {
            if let Entry::In(at, input) = entry {
                recorder.input(*at, input);
                call.handle(*at, input.clone());
                continue;
            }
            let recorded = actions.next().unwrap_or_default();
            let now = match (call.poll(), entry) {
                (Output::Do(action), Entry::Do(_, known)) if is_plain(&action) && action == *known => {
                    recorder.pass_over(&action);
                    continue;
                }
                (Output::Do(action), _) => Some(written(&action, &mut recorder)),
                (Output::Wait(_), _) => None,
            };
            if now.as_deref() != Some(recorded) {
                return Err(self.difference(step, Some(recorded.into()), now));
            }
        }
        match call.poll() {
            Output::Do(more) if self.complete => {
                Err(self.difference(self.entries.len(), None, Some(written(&more, &mut recorder))))
            }
            _ => Ok(()),
        }
    }

    fn actions(&self) -> impl Iterator<Item = &str> {
        let starts = core::iter::once(0).chain(self.action_ends.iter().copied());
        starts.zip(&self.action_ends).map(|(start, end)| self.actions.get(start..*end).unwrap_or_default())
    }

    fn difference(&self, step: usize, recorded: Option<String>, now: Option<String>) -> Difference {
        let line = if step < self.entries.len() { self.line_of(step) } else { self.last_line() + 1 };
        Difference { call: self.begin.id, line, step, recorded, now }
    }

    fn last_line(&self) -> usize {
        self.numbers.last().copied().unwrap_or_default()
    }
}

/// Whether all of the action stands in its line, so that actions can be compared in place of lines.
fn is_plain(action: &Action) -> bool {
    !matches!(action, Action::Forward(_) | Action::Finish(_))
}

/// The line of an action.
fn written(action: &Action, recorder: &mut Recorder) -> String {
    recorder.action(action);
    let mut line = recorder.take();
    if line.ends_with('\n') {
        line.pop();
    }
    line
}

/// What a replay of a file found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Calls replayed, the unfinished ones included.
    pub calls: usize,
    /// Calls that did the same.
    pub identical: usize,
    /// Calls whose record has no end.
    pub unfinished: usize,
    /// The first difference of each call that did not.
    pub differences: Vec<Difference>,
    /// Lines that could not be read.
    pub errors: Vec<TraceError>,
}

impl Report {
    /// Whether everything could be read and every call did the same.
    pub fn is_clean(&self) -> bool {
        self.errors.is_empty() && self.differences.is_empty()
    }

    /// The first difference.
    pub fn first(&self) -> Option<&Difference> {
        self.differences.first()
    }

    fn add(&mut self, call: &RecordedCall) {
        self.calls += 1;
        self.unfinished += usize::from(!call.complete);
        match call.replay() {
            Ok(()) => self.identical += 1,
            Err(difference) => self.differences.push(difference),
        }
    }
}

/// Replays the calls of a file, one after the other. Lines that cannot be read are reported; the calls that they belong
/// to count as far as they can be read.
pub fn replay<'a>(lines: impl IntoIterator<Item = &'a str>) -> Report {
    let (mut report, mut reader) = (Report::default(), Reader::new());
    for line in lines {
        match reader.push(line) {
            Ok(Some(call)) => report.add(&call),
            Ok(None) => {}
            Err(error) => report.errors.push(error),
        }
    }
    for call in reader.unfinished() {
        report.add(&call);
    }
    report
}
