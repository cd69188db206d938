//! The trace's file (X7): calls record, one thread writes. A slow disk costs trace lines, never a call.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use surefoot_core::event::{Action, Input};
use surefoot_core::id::CallId;
use surefoot_core::policy::Plan;
use surefoot_core::policy::config::{Trace, TraceMode};
use surefoot_core::time::Time;
use surefoot_core::trace::{Policies, Recorder, Start};

/// Lines that wait for the disk take so many bytes at most; what comes on top is dropped, and said so once.
const MAX_WAITING_BYTES: usize = 64 << 20;
/// The end of the process waits so long for the last lines.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
#[error("trace.path: cannot append to {path}: {source}; name a file in a folder that this process may write to")]
pub struct TraceFileError {
    path: String,
    source: io::Error,
}

/// A trace file that is open.
#[derive(Debug)]
pub struct TraceFile {
    wanted: Trace,
    policies: Mutex<Policies>,
    to_writer: Sender<Work>,
    waiting: Arc<AtomicUsize>,
    overrun: AtomicBool,
    /// Lines were left out since the last call began: a policy may be among them, so they are told again.
    lost: AtomicBool,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
enum Work {
    Lines(String),
    /// Write what there is, then answer.
    Flush(SyncSender<()>),
}

/// Appends, and lets nobody else read a file that it makes: a full trace holds what people said.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

impl TraceFile {
    /// Opens what the configuration asks for; `None` when it asks for no trace.
    ///
    /// # Errors
    ///
    /// A file that cannot be appended to.
    pub fn open(wanted: &Trace) -> Result<Option<Arc<TraceFile>>, TraceFileError> {
        let Some(path) = wanted.path.as_ref().filter(|_| wanted.mode != TraceMode::Off) else { return Ok(None) };
        let refused = |source| TraceFileError { path: path.clone(), source };
        let file = options().open(path).map_err(refused)?;
        let waiting = Arc::new(AtomicUsize::new(0));
        let (to_writer, work) = channel();
        let writer = std::thread::Builder::new()
            .name("trace".into())
            .spawn({
                let (waiting, path) = (waiting.clone(), path.clone());
                move || write_all(&work, &file, &waiting, &path)
            })
            .map_err(refused)?;
        Ok(Some(Arc::new(TraceFile {
            wanted: wanted.clone(),
            policies: Mutex::new(Policies::new()),
            to_writer,
            waiting,
            overrun: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            writer: Mutex::new(Some(writer)),
        })))
    }

    /// Whether this is what a configuration asks for.
    pub fn is(&self, wanted: &Trace) -> bool {
        self.wanted == *wanted
    }

    /// Begins a call's record.
    pub fn begin(
        self: &Arc<Self>,
        plan: &Plan,
        id: CallId,
        seed: u64,
        now: Time,
        request_id: &str,
    ) -> Option<CallTrace> {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        let start = Start { id, seed, now, request_id, unix_ms };
        let mut policies = self.policies();
        if self.lost.swap(false, Ordering::Relaxed) {
            policies.retell();
        }
        let mut recorder = Recorder::new(self.wanted.mode, &mut policies, plan, &start)?;
        // Under the lock: a policy's line comes before the first call that names it.
        self.append(recorder.take());
        Some(CallTrace { file: self.clone(), recorder })
    }

    fn policies(&self) -> MutexGuard<'_, Policies> {
        self.policies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, lines: String) {
        if lines.is_empty() {
            return;
        }
        if self.waiting.load(Ordering::Relaxed) + lines.len() > MAX_WAITING_BYTES {
            self.lost.store(true, Ordering::Relaxed);
            if !self.overrun.swap(true, Ordering::Relaxed) {
                tracing::warn!("the trace file does not keep up: lines are left out of it");
            }
            return;
        }
        self.waiting.fetch_add(lines.len(), Ordering::Relaxed);
        // A writer that is gone has said why.
        let _ = self.to_writer.send(Work::Lines(lines));
    }

    /// Waits until everything told so far is in the file, for a bounded time.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.to_writer.send(Work::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(LAST_LINES);
        }
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        self.flush();
        // The sender goes with this value; the thread ends by itself.
        drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

fn write_all(work: &Receiver<Work>, mut file: &File, waiting: &AtomicUsize, path: &str) {
    let mut failed = false;
    while let Ok(next) = work.recv() {
        match next {
            Work::Lines(lines) => {
                waiting.fetch_sub(lines.len(), Ordering::Relaxed);
                if let Err(error) = file.write_all(lines.as_bytes())
                    && !std::mem::replace(&mut failed, true)
                {
                    tracing::warn!("cannot write to the trace file {path}: {error}");
                }
            }
            Work::Flush(done) => {
                let _ = done.send(());
            }
        }
    }
}

/// One call's record on its way to the file.
#[derive(Debug)]
pub struct CallTrace {
    file: Arc<TraceFile>,
    recorder: Recorder,
}

impl CallTrace {
    /// Hears an input before it is handled.
    pub fn input(&mut self, now: Time, input: &Input) {
        self.recorder.input(now, input);
    }

    /// Hears an action before it is done.
    pub fn action(&mut self, action: &Action) {
        self.recorder.action(action);
        // A step's worth at a time: a stream of hours must not pile up here.
        if matches!(action, Action::Forward(_) | Action::Send { .. } | Action::Finish(_)) {
            self.file.append(self.recorder.take());
        }
    }
}

impl Drop for CallTrace {
    fn drop(&mut self) {
        self.file.append(self.recorder.close());
    }
}
