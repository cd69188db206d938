//! The loop that turns actions into deeds, written once for every adapter and for the simulator.
//!
//! [`Drive`] owns a [`Call`] and a [`Host`]. It is polled, not spawned: an HTTP body that polls it from its own
//! `poll_frame` gets backpressure for free (nothing is read from the upstream while the client takes nothing), and
//! dropping it is the client's cancel. A spawned task with a channel was the alternative; it costs two wake-ups and a
//! queue a chunk.

use core::task::{Context, Poll};

use bytes::Bytes;

use crate::call::{Call, Judge, Phase};
use crate::event::{Action, CancelCause, Commit, End, Input, Notice, Output, Why};
use crate::id::{AttemptNo, Choice};
use crate::mutants::{Mutant, active};
use crate::pool::{Op, Reply};
use crate::time::Time;

/// What a driver can do. No method waits.
pub trait Host {
    /// The time now.
    fn now(&mut self) -> Time;

    /// Applies an operation. `None`: the reply comes later, through [`Host::poll_input`].
    fn apply(&mut self, op: &Op) -> Option<Reply>;

    /// Starts an attempt; what becomes of it comes through [`Host::poll_input`].
    fn send(&mut self, attempt: AttemptNo, choice: Choice, why: Why);

    /// Drops an attempt's connection and buffers. Its head stays known: a later answer may want it.
    fn abort(&mut self, attempt: AttemptNo);

    /// Tells something worth telling.
    fn notice(&mut self, notice: &Notice);

    /// The next news of the live attempt, or a late reply. Registers the waker when there is none.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Input>;

    /// Ready when it is `until` or later. Registers the waker otherwise; a later call replaces an earlier one.
    fn poll_sleep(&mut self, cx: &mut Context<'_>, until: Time) -> Poll<()>;

    /// Hears where the call stands, before each input. For the coverage of phases; does nothing by default.
    fn record_phase(&mut self, _phase: Phase) {}

    /// Hears every input with its time before it is handled. For traces; does nothing by default.
    fn record_input(&mut self, _now: Time, _input: &Input) {}

    /// Hears every action before it is done. For traces; does nothing by default.
    fn record_action(&mut self, _action: &Action) {}
}

/// What the client's side is to do next.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Send this head.
    Commit(Commit),
    /// Send these bytes; then poll again when there is room for more.
    Data(Bytes),
    /// It is over.
    End(End),
}

/// A call under way.
#[derive(Debug)]
pub struct Drive<H: Host> {
    call: Call,
    host: H,
    unflushed: bool,
    finished: bool,
    /// News went before a timer that was due; the timer's turn is next.
    overdue: bool,
}

impl<H: Host> Drive<H> {
    /// Takes a fresh call.
    pub fn new(call: Call, host: H) -> Drive<H> {
        Drive { call, host, unflushed: false, finished: false, overdue: false }
    }

    /// The call.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// The host.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// The host, for what only the adapter knows of.
    pub fn host_mut(&mut self) -> &mut H {
        &mut self.host
    }

    /// Sets who judges the texts of the call from now on: for replays, whose answers come with the verdicts on them.
    pub fn set_judge(&mut self, judge: Judge) {
        self.call.set_judge(judge);
    }

    /// Whether [`Step::End`] was handed out.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Goes on until the client's side has something to do. Polling again after [`Step::Data`] says that the client
    /// took it. After [`Step::End`] it stays pending.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if core::mem::take(&mut self.unflushed) {
            self.handle(Input::Flushed);
        }
        loop {
            let wake = match self.run() {
                Ok(step) => return Poll::Ready(step),
                Err(wake) => wake,
            };
            if self.finished {
                return Poll::Pending;
            }
            // News is never late, so it comes before a timer that is due with it; but once only: a client that reads slowly
            // finds news waiting every time, and its lease would run out unrenewed, its deadline pass unheard.
            let due = wake.is_some_and(|at| at <= self.host.now());
            if core::mem::take(&mut self.overdue) && due && !active(Mutant::TimersStarve) {
                self.handle(Input::Tick);
                continue;
            }
            if let Poll::Ready(input) = self.host.poll_input(cx) {
                self.overdue = due;
                self.handle(input);
                continue;
            }
            match wake {
                Some(at) if self.host.poll_sleep(cx, at).is_ready() => self.handle(Input::Tick),
                _ => return Poll::Pending,
            }
        }
    }

    /// Gives the call's timers their turn while the client has not taken the last [`Step::Data`], and reads nothing: its
    /// lease is renewed and its deadline kept however long the client pauses (S4, M5). Registers the waker for the next
    /// timer. Whoever stops polling [`Drive::poll_next`] for want of room polls this instead.
    pub fn poll_timers(&mut self, cx: &mut Context<'_>) {
        while self.unflushed && !active(Mutant::TimersStarve) {
            match self.run() {
                Err(Some(at)) if self.host.poll_sleep(cx, at).is_ready() => self.handle(Input::Tick),
                Err(_) => return,
                Ok(step) => {
                    debug_assert!(false, "{step:?} before the last piece was taken");
                    return;
                }
            }
        }
    }

    /// Ends the call for `cause` and does what is left to do. Returns the steps that still concern a client, which is
    /// nobody unless the cause is [`CancelCause::Shutdown`]: then poll on.
    pub fn cancel(&mut self, cause: CancelCause) {
        if self.finished {
            return;
        }
        self.handle(Input::Cancel(cause));
        if cause != CancelCause::Shutdown {
            while self.run().is_ok() && !self.finished {}
        }
    }

    fn handle(&mut self, input: Input) {
        let now = self.host.now();
        self.host.record_phase(self.call.phase());
        self.host.record_input(now, &input);
        self.call.handle(now, input);
    }

    /// Does what is to do; the next step for the client's side, or when to wake.
    fn run(&mut self) -> Result<Step, Option<Time>> {
        loop {
            let action = match self.call.poll() {
                Output::Do(action) => action,
                Output::Wait(wake) => return Err(wake.map(|wake| wake.at)),
            };
            self.host.record_action(&action);
            match action {
                Action::Ask(op) | Action::Tell(op) => {
                    let lease = op.lease();
                    if let Some(reply) = self.host.apply(&op) {
                        self.handle(Input::Reply { lease, reply });
                    }
                }
                Action::Send { attempt, choice, why } => self.host.send(attempt, choice, why),
                Action::Abort(attempt) => self.host.abort(attempt),
                Action::Notice(notice) => self.host.notice(&notice),
                Action::Judged(_) => {}
                Action::Commit(commit) => return Ok(Step::Commit(commit)),
                Action::Forward(bytes) => {
                    self.unflushed = true;
                    return Ok(Step::Data(bytes));
                }
                Action::Finish(end) => {
                    self.finished = true;
                    return Ok(Step::End(end));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;
    use alloc::string::String;
    use alloc::vec;
    use alloc::vec::Vec;
    use core::task::Waker;

    use super::*;
    use crate::call::tests::harness::{DONE, ROLE, STOP, Step as Deed, World, delta, input, sse};
    use crate::event::Fault;
    use crate::pool::Pool;

    /// A host on a clock of its own whose only upstream follows a list.
    struct Scripted {
        pool: Pool,
        now: Time,
        script: VecDeque<Deed>,
        live: Option<AttemptNo>,
        slept: Option<Time>,
        asked_upstream: usize,
    }

    impl Host for Scripted {
        fn now(&mut self) -> Time {
            self.now
        }

        fn apply(&mut self, op: &Op) -> Option<Reply> {
            Some(self.pool.apply(self.now, op))
        }

        fn send(&mut self, attempt: AttemptNo, _: Choice, _: Why) {
            self.live = Some(attempt);
        }

        fn abort(&mut self, attempt: AttemptNo) {
            assert_eq!(self.live.take(), Some(attempt));
        }

        fn notice(&mut self, _: &Notice) {}

        fn poll_input(&mut self, _: &mut Context<'_>) -> Poll<Input> {
            let Some(attempt) = self.live else { return Poll::Pending };
            self.asked_upstream += 1;
            match self.script.pop_front() {
                Some(Deed::Wait(_)) | None => Poll::Pending,
                Some(deed) => Poll::Ready(input(attempt, deed)),
            }
        }

        fn poll_sleep(&mut self, _: &mut Context<'_>, until: Time) -> Poll<()> {
            self.slept = Some(until);
            if until <= self.now { Poll::Ready(()) } else { Poll::Pending }
        }
    }

    fn drive(script: Vec<Deed>) -> Drive<Scripted> {
        drive_with(script, |_| {})
    }

    fn drive_with(script: Vec<Deed>, change: impl FnOnce(&mut crate::policy::CallPolicy)) -> Drive<Scripted> {
        let mut world = World::streams(vec![vec![]]);
        change(&mut world.policy);
        drive_of(world, script)
    }

    fn drive_of(mut world: World, script: Vec<Deed>) -> Drive<Scripted> {
        let call = world.call();
        let host = Scripted {
            pool: world.pool,
            now: world.now,
            script: script.into(),
            live: None,
            slept: None,
            asked_upstream: 0,
        };
        Drive::new(call, host)
    }

    fn step(drive: &mut Drive<Scripted>) -> Poll<Step> {
        drive.poll_next(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_call_runs_to_its_end_one_piece_at_a_time() {
        let mut drive = drive(sse(&[ROLE, &delta("Hi"), STOP, DONE]));
        assert!(matches!(step(&mut drive), Poll::Ready(Step::Commit(_))));
        let mut body = Vec::new();
        let end = loop {
            match step(&mut drive) {
                Poll::Ready(Step::Data(bytes)) => body.extend_from_slice(&bytes),
                Poll::Ready(Step::End(end)) => break end,
                other => panic!("data or an end, not {other:?}"),
            }
        };
        assert_eq!(end, End::Complete);
        assert_eq!(body, [ROLE, &delta("Hi"), STOP, DONE].concat().into_bytes());
        assert!(drive.is_finished() && step(&mut drive).is_pending());
    }

    /// M5: what the client has not taken keeps the driver from reading on.
    #[test]
    fn the_upstream_is_not_read_while_a_piece_is_out() {
        let mut drive = drive(sse(&[&delta("a"), &delta("b")]));
        assert!(matches!(step(&mut drive), Poll::Ready(Step::Commit(_))));
        let before = drive.host().asked_upstream;
        assert!(matches!(step(&mut drive), Poll::Ready(Step::Data(_))));
        assert_eq!(drive.host().asked_upstream, before);
        assert!(matches!(step(&mut drive), Poll::Ready(Step::Data(_))));
        assert_eq!(drive.host().asked_upstream, before + 1);
    }

    #[test]
    fn it_sleeps_until_the_calls_next_timer_and_ticks() {
        let mut drive = drive(vec![Deed::Wait(1)]);
        assert!(step(&mut drive).is_pending());
        let due = drive.host().slept.unwrap();
        drive.host_mut().now = due;
        drive.host_mut().script = vec![Deed::Fault(Fault::Reset)].into();
        // The upstream's news comes before the timer's: both were there, and news is never late.
        assert!(matches!(step(&mut drive), Poll::Ready(Step::End(End::Answer(_)))));
    }

    /// M5, S4: an upstream that is always ahead of its client does not keep the timers from their turn.
    #[test]
    fn timers_have_their_turn_while_news_is_waiting() {
        let deltas: Vec<String> = (0..200).map(|_| delta("word")).collect();
        let pieces: Vec<&str> = deltas.iter().map(String::as_str).collect();
        let mut drive = drive(sse(&pieces));
        assert!(matches!(step(&mut drive), Poll::Ready(Step::Commit(_))));
        for _ in 0..150 {
            assert!(matches!(step(&mut drive), Poll::Ready(Step::Data(_))));
            // A second for each piece; the lease holds 150.
            drive.host_mut().now = drive.host().now.after(crate::time::Span::from_secs(1));
        }
        let now = drive.host().now;
        drive.host_mut().pool.apply(now, &Op::Leave { lease: crate::id::LeaseId(0) });
        assert_eq!(drive.host().pool.views(now).map(|view| view.inflight).sum::<u32>(), 1, "the lease was renewed");
    }

    /// M5, S4: a client that takes nothing for an hour keeps its place, has nothing read for it, and misses no byte.
    #[test]
    fn timers_have_their_turn_while_the_client_takes_nothing() {
        let mut drive = drive(sse(&[&delta("a"), &delta("b"), STOP, DONE]));
        assert!(matches!(step(&mut drive), Poll::Ready(Step::Commit(_))));
        let Poll::Ready(Step::Data(first)) = step(&mut drive) else { panic!("no data") };
        let before = drive.host().asked_upstream;
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..60 {
            drive.poll_timers(&mut cx);
            let due = drive.host().slept.expect("a timer");
            drive.host_mut().now = due;
        }
        assert_eq!(drive.host().asked_upstream, before);
        let now = drive.host().now;
        assert!(now >= Time(3_600_000_000), "{now:?}");
        drive.host_mut().pool.apply(now, &Op::Leave { lease: crate::id::LeaseId(0) });
        assert_eq!(drive.host().pool.views(now).map(|view| view.inflight).sum::<u32>(), 1, "the lease was renewed");
        let mut body = Vec::from(&first[..]);
        while let Poll::Ready(Step::Data(bytes)) = step(&mut drive) {
            body.extend_from_slice(&bytes);
        }
        assert!(drive.is_finished());
        assert_eq!(body, [&delta("a"), &delta("b"), STOP, DONE].concat().into_bytes());
    }

    /// M5, S11: nor is the time that it takes the upstream's, where the whole of an answer is bounded.
    #[test]
    fn a_pause_is_no_part_of_what_an_answer_took() {
        let mut world = World::new(vec![vec![]]);
        world.format = crate::wire::Format::Images;
        let head = Deed::HeadWith(200, vec![("content-type", "application/json")]);
        let mut drive = drive_of(world, vec![head, Deed::Say("{".into())]);
        let total = crate::time::Span::from_secs(600);
        let begun = drive.host().now;
        assert!(matches!(step(&mut drive), Poll::Ready(Step::Commit(_))));
        assert!(matches!(step(&mut drive), Poll::Ready(Step::Data(_))));
        for _ in 0..14 {
            drive.host_mut().now = drive.host().now.after(crate::time::Span::from_secs(50));
            drive.poll_timers(&mut Context::from_waker(Waker::noop()));
        }
        assert!(drive.host().live.is_some() && drive.host().now > begun.after(total));
        // It goes on where it stopped.
        assert!(step(&mut drive).is_pending());
        let resumed = drive.host().now;
        while drive.host().live.is_some() && drive.host().slept.is_some_and(|due| due <= resumed.after(total)) {
            drive.host_mut().now = drive.host().slept.expect("a timer");
            let _ = step(&mut drive);
        }
        assert!(drive.host().live.is_none() && drive.host().now >= resumed.after(crate::time::Span::from_secs(300)));
        let view = drive.host().pool.views(drive.host().now).next().map(|view| view.failures);
        assert_eq!(view, Some(1), "silence behind it is the upstream's");
    }

    /// M5, F6: the deadline passes while the client takes nothing: its place is free at once, the error waits for it.
    #[test]
    fn the_deadline_passes_while_the_client_takes_nothing() {
        let mut drive = drive_with(sse(&[&delta("a"), &delta("b")]), |policy| {
            policy.deadline = crate::time::Span::from_secs(30);
        });
        assert!(matches!(step(&mut drive), Poll::Ready(Step::Commit(_))));
        assert!(matches!(step(&mut drive), Poll::Ready(Step::Data(_))));
        drive.host_mut().now = Time(31_000_000);
        drive.poll_timers(&mut Context::from_waker(Waker::noop()));
        let now = drive.host().now;
        assert_eq!(drive.host().pool.views(now).map(|view| view.inflight).sum::<u32>(), 0);
        assert_eq!(drive.host().live, None);
        let Poll::Ready(Step::Data(told)) = step(&mut drive) else { panic!("no error event") };
        assert!(String::from_utf8_lossy(&told).contains("stream_incomplete"));
        assert_eq!(step(&mut drive), Poll::Ready(Step::End(End::Incomplete(crate::event::Incomplete::Deadline))));
    }

    /// X4: a client that leaves what is over already, without having taken the last of it, ends it all the same.
    #[test]
    fn leaving_what_is_over_but_not_taken_ends_it() {
        let mut drive = drive(sse(&[&delta("a"), &delta("b"), STOP, DONE]));
        assert!(matches!(step(&mut drive), Poll::Ready(Step::Commit(_))));
        assert!(matches!(step(&mut drive), Poll::Ready(Step::Data(_))));
        drive.host_mut().now = Time(3_600_000_000);
        drive.cancel(CancelCause::Shutdown);
        assert!(!drive.is_finished(), "the client may still take its stream_incomplete");
        drive.cancel(CancelCause::ClientStalled);
        assert!(drive.is_finished());
    }

    /// X4: leaving drops the attempt and gives its lease back at once.
    #[test]
    fn a_cancel_needs_no_further_poll() {
        let mut drive = drive(vec![Deed::Wait(1)]);
        assert!(step(&mut drive).is_pending());
        drive.cancel(CancelCause::ClientGone);
        assert!(drive.is_finished());
        assert_eq!(drive.host().live, None);
        let now = drive.host().now;
        assert_eq!(drive.host().pool.views(now).map(|view| view.inflight).sum::<u32>(), 0);
    }
}
