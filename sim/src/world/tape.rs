//! The trace that a gateway would write of a run (X7).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use surefoot_core::id::CallId;
use surefoot_core::policy::config::TraceMode;
use surefoot_core::time::Time;
use surefoot_core::trace::{Policies, Recorder, Start};

use super::log::Watch;
use super::record::Record;
use super::script::EPOCH_MS;

/// Writes the lines down. Calls are named `c0`, `c1`, … by their numbers in the run.
#[derive(Debug, Default)]
pub struct Tape {
    policies: Policies,
    recorders: BTreeMap<u32, Recorder>,
    lines: Rc<RefCell<String>>,
}

impl Tape {
    /// An empty tape, and where its lines will be.
    pub fn new() -> (Tape, Rc<RefCell<String>>) {
        let tape = Tape::default();
        let lines = tape.lines.clone();
        (tape, lines)
    }
}

impl Watch for Tape {
    fn watch(&mut self, now: Time, record: &Record<'_>) {
        match record {
            Record::Arrived { call, plan, .. } => {
                let request_id = format!("c{call}");
                let start = Start {
                    id: CallId(u64::from(*call) + 1),
                    seed: 0,
                    now,
                    request_id: &request_id,
                    unix_ms: EPOCH_MS + now.0 / 1000,
                };
                let recorder = Recorder::new(TraceMode::Full, &mut self.policies, plan, &start);
                self.recorders.extend(recorder.map(|recorder| (*call, recorder)));
            }
            Record::Input { call, input, .. } => {
                if let Some(recorder) = self.recorders.get_mut(call) {
                    recorder.input(now, input);
                }
            }
            Record::Action { call, action } => {
                if let Some(recorder) = self.recorders.get_mut(call) {
                    recorder.action(action);
                    self.lines.borrow_mut().push_str(&recorder.take());
                }
            }
            Record::Over { call, .. } => {
                if let Some(mut recorder) = self.recorders.remove(call) {
                    self.lines.borrow_mut().push_str(&recorder.close());
                }
            }
            _ => {}
        }
    }
}
