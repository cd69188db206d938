//! A call under way at the client's side: polled for its steps, ended once, and cancelled when it is dropped.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use surefoot_core::drive::{Drive, Step};
use surefoot_core::event::{CancelCause, End, Incomplete};
use surefoot_core::gateway::health;
use surefoot_core::outcome::Outcome;
use surefoot_core::policy::config::OnDisconnect;
use surefoot_core::time::Time;
use surefoot_core::wire::Format;

use super::host::CallHost;
use super::lifecycle::{Busy, CallPermit, Stage};
use crate::reactor::Reactor;

/// A call and what must be given back when it ends.
pub struct Running<R: Reactor> {
    /// `None` once it goes on without a client.
    drive: Option<Drive<CallHost<R>>>,
    format: Format,
    started: Time,
    /// What the client was told; 0 = nothing so far.
    status: u16,
    /// The cut was told to the call.
    cut: bool,
    ended: bool,
    on_disconnect: OnDisconnect,
    busy: Busy,
    permit: Option<CallPermit>,
}

impl<R: Reactor> Running<R> {
    /// A fresh call.
    pub fn new(
        drive: Drive<CallHost<R>>,
        started: Time,
        on_disconnect: OnDisconnect,
        busy: Busy,
        permit: CallPermit,
    ) -> Box<Running<R>> {
        let format = drive.call().plan().format;
        let (drive, permit) = (Some(drive), Some(permit));
        Box::new(Running { drive, format, started, status: 0, cut: false, ended: false, on_disconnect, busy, permit })
    }

    /// Its means; `None` once it goes on without a client.
    pub fn host(&self) -> Option<&CallHost<R>> {
        self.drive.as_ref().map(Drive::host)
    }

    /// Drops what only another attempt would want: there is none behind the commit.
    pub fn forget_request(&mut self) {
        if let Some(drive) = &mut self.drive {
            drive.host_mut().forget_request();
        }
    }

    /// Attempts started so far.
    pub fn attempts(&self) -> u32 {
        self.drive.as_ref().map_or(0, |drive| drive.call().attempts())
    }

    /// Notes the status that the client is told.
    pub fn set_status(&mut self, status: u16) {
        self.status = status;
    }

    /// The next step for the client's side.
    pub fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        self.watch_stage();
        let Some(drive) = &mut self.drive else { return Poll::Pending };
        let step = std::task::ready!(drive.poll_next(cx));
        if let Step::End(end) = &step {
            if let End::Answer(answer) = end {
                self.status = answer.status;
            }
            self.end(end);
        }
        Poll::Ready(step)
    }

    /// Gives the call's timers their turn while the client has no room for more.
    pub fn poll_timers(&mut self, cx: &mut Context<'_>) {
        self.watch_stage();
        if let Some(drive) = &mut self.drive {
            drive.poll_timers(cx);
        }
    }

    /// Tells the call of the cut, once.
    fn watch_stage(&mut self) {
        if let Some(drive) = &mut self.drive
            && !self.cut
            && drive.host().shared().life.stage() == Stage::Cutting
        {
            self.cut = true;
            drive.cancel(CancelCause::Shutdown);
        }
    }

    /// Books the end of the call, once.
    fn end(&mut self, end: &End) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.permit = None;
        let Some(host) = self.host() else { return };
        let (shared, model) = (host.shared(), &host.route().model);
        let took = shared.clock.now().since(self.started);
        shared.metrics.call_ended(model, self.format, self.status, end.outcome(), took);
        let verdict = match end {
            End::Incomplete(Incomplete::Shutdown) => None,
            end => health::verdict(end.outcome()),
        };
        if let Some(ok) = verdict {
            shared.request_health().record(shared.clock.now(), model, ok);
        }
    }

    /// The client is gone.
    fn leave(&mut self) {
        let Some(mut drive) = self.drive.take() else { return };
        if drive.is_finished() || self.ended {
            return;
        }
        let stalled = self.busy.presence().is_stalled();
        let cause = if stalled { CancelCause::ClientStalled } else { CancelCause::ClientGone };
        let stage = drive.host().shared().life.stage();
        if self.on_disconnect == OnDisconnect::Finish && stage != Stage::Cutting {
            let shared = drive.host().shared().clone();
            shared.upstreams.reactor().spawn(finish(drive, self.detached(), cause));
            return;
        }
        drive.cancel(cause);
        self.drive = Some(drive);
        self.end(&End::Cancelled(cause));
    }

    /// What goes on without the client: the same call with nobody to tell.
    fn detached(&mut self) -> Detached {
        Detached { format: self.format, started: self.started, status: self.status, permit: self.permit.take() }
    }
}

impl<R: Reactor> Drop for Running<R> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<R: Reactor> fmt::Debug for Running<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("format", &self.format).field("ended", &self.ended).finish_non_exhaustive()
    }
}

struct Detached {
    format: Format,
    started: Time,
    status: u16,
    permit: Option<CallPermit>,
}

/// Runs a call to its end for nobody (`on_client_disconnect = "finish"`): its source is paid for the answer anyway, and
/// what it teaches is kept.
async fn finish<R: Reactor>(mut drive: Drive<CallHost<R>>, detached: Detached, cause: CancelCause) {
    let shared = Arc::clone(drive.host().shared());
    let present = shared.life.join();
    let mut cut = false;
    let end = poll_fn(|cx| {
        present.presence().listen(cx.waker());
        if !cut && shared.life.stage() == Stage::Cutting {
            cut = true;
            drive.cancel(cause);
            return Poll::Ready(End::Cancelled(cause));
        }
        loop {
            match std::task::ready!(drive.poll_next(cx)) {
                Step::End(end) => return Poll::Ready(end),
                Step::Commit(_) | Step::Data(_) => {}
            }
        }
    })
    .await;
    let took = shared.clock.now().since(detached.started);
    let model = drive.host().route().model.clone();
    let outcome = if matches!(end, End::Answer(_)) { end.outcome() } else { Outcome::Cancelled };
    shared.metrics.call_ended(&model, detached.format, detached.status, outcome, took);
    drop(detached.permit);
}
