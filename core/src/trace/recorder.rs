//! Writes one call's lines.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::{Buf, Bytes};

use super::codec::{Text, hex, put_action, put_input};
use super::fields::{Fields, write};
use super::hash::Hash;
use super::mask::Masker;
use super::policy::Policies;
use super::secrets::Secrets;
use super::{VERSION, mask, shape};
use crate::event::{Action, Answer, End, Input, Reason, What};
use crate::id::{AttemptNo, CallId};
use crate::policy::config::TraceMode;
use crate::policy::{Plan, Route};
use crate::time::Time;
use crate::wire::{Format, Header};

/// What a call starts with, beside its plan: the same as its [`Call`](crate::call::Call) gets.
#[derive(Copy, Clone, Debug)]
pub struct Start<'a> {
    /// Its name.
    pub id: CallId,
    /// Its chance.
    pub seed: u64,
    /// When it arrived.
    pub now: Time,
    /// The request's name.
    pub request_id: &'a str,
    /// Wall clock at its arrival, milliseconds of the Unix epoch: for people, nothing depends on it.
    pub unix_ms: u64,
}

/// Records one call. It hears every input before the call does and every action before it is done, and hands out whole
/// lines. No I/O: whoever owns it appends the lines to a file, when the call ends or from time to time.
#[derive(Debug)]
pub struct Recorder {
    redacted: bool,
    /// A replay's: only actions are written, for the inputs stand in the trace already.
    echo: bool,
    call: CallId,
    route: Arc<Route>,
    format: Format,
    secrets: Arc<Secrets>,
    now: Time,
    live: Option<Box<Live>>,
    /// The chunks of an answer that was kept for want of a better (M3, G17).
    kept: VecDeque<Bytes>,
    last_reason: Option<Reason>,
    /// Lines that wait for one that waits for the rest of a key.
    queue: VecDeque<Item>,
    lines: u32,
    hash: Hash,
    out: Vec<u8>,
    finished: bool,
}

/// The attempt whose bytes come in.
#[derive(Debug)]
struct Live {
    attempt: AttemptNo,
    ended: bool,
    /// Nothing of its body is looked at, so that nothing of it needs to be told (redacted).
    opaque: bool,
    lane: Lane,
    /// What came and was not forwarded yet, as it came: to tell the upstream's own bytes by their place.
    chunks: VecDeque<Bytes>,
}

/// An attempt's body on its way into lines.
#[derive(Debug)]
struct Lane {
    masker: Option<Masker>,
    buffer: Vec<u8>,
    /// So much of the buffer is free of keys, and masked.
    done: usize,
}

#[derive(Debug)]
enum Item {
    Heard(Time, Input, Body),
    Done(Time, Action, Body),
}

/// The bytes of a line, before they are text.
#[derive(Copy, Clone, Debug)]
enum Body {
    /// None, or only their number.
    Length(u64),
    /// The next ones of the lane.
    Lane(usize),
    /// The action's own.
    Own,
}

impl Lane {
    fn new(redacted: bool) -> Lane {
        Lane { masker: redacted.then(Masker::new), buffer: Vec::new(), done: 0 }
    }

    /// Makes ready what can be; with `end`, everything.
    fn settle(&mut self, secrets: &Secrets, end: bool) {
        let Lane { masker, buffer, done } = self;
        let rest = buffer.get_mut(*done..).unwrap_or_default();
        *done += secrets.hide_settled(rest, end, |settled| {
            if let Some(masker) = masker {
                masker.mask(settled);
            }
        });
    }

    /// The next `length` bytes, once they are ready.
    fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        if self.done < length {
            return None;
        }
        self.done -= length;
        if length == self.buffer.len() {
            return Some(core::mem::take(&mut self.buffer));
        }
        Some(self.buffer.drain(..length).collect())
    }
}

impl Recorder {
    /// Begins a call's record; `None` when nothing is to be traced. The first line that `take` hands out may be the
    /// call's policy, if `policies` has not told it yet.
    pub fn new(mode: TraceMode, policies: &mut Policies, plan: &Plan, start: &Start<'_>) -> Option<Recorder> {
        let redacted = match mode {
            TraceMode::Off => return None,
            TraceMode::Redacted => true,
            TraceMode::Full => false,
        };
        let mut out = Vec::new();
        let (policy, secrets) = policies.tell(&plan.route, &mut out);
        let mut recorder = Recorder {
            redacted,
            echo: false,
            call: start.id,
            route: plan.route.clone(),
            format: plan.format,
            secrets,
            now: start.now,
            live: None,
            kept: VecDeque::new(),
            last_reason: None,
            queue: VecDeque::new(),
            lines: 0,
            hash: Hash::new(),
            out,
            finished: false,
        };
        recorder.begin(policy, plan, start);
        Some(recorder)
    }

    /// A recorder that writes what a replayed call does, to be compared with what was recorded.
    pub(super) fn echo(redacted: bool, plan: &Plan, id: CallId, now: Time) -> Recorder {
        Recorder {
            redacted,
            echo: true,
            call: id,
            route: plan.route.clone(),
            format: plan.format,
            secrets: Arc::new(Secrets::of(&plan.route)),
            now,
            live: None,
            kept: VecDeque::new(),
            last_reason: None,
            queue: VecDeque::new(),
            lines: 0,
            hash: Hash::new(),
            out: Vec::new(),
            finished: false,
        }
    }

    fn begin(&mut self, policy: u64, plan: &Plan, start: &Start<'_>) {
        let Plan { route, format, stream, include_usage, structured, replay_safe, tokens } = plan;
        let (policy, seed) = (hex(policy), hex(start.seed));
        let line = Fields {
            begin: Some(format.as_str()),
            model: Some(Box::from(&*route.model)),
            policy: Some(&policy),
            mode: Some(if self.redacted { "redacted" } else { "full" }),
            request_id: Some(self.without_keys(start.request_id)),
            seed: Some(&seed),
            stream: *stream,
            include_usage: *include_usage,
            structured: *structured,
            replay_safe: *replay_safe,
            tokens: Some(*tokens),
            unix_ms: Some(start.unix_ms),
            ..self.fields(start.now)
        };
        self.write(&line);
    }

    /// Hears an input before it is handled.
    pub fn input(&mut self, now: Time, input: &Input) {
        if self.finished {
            return;
        }
        self.now = self.now.max(now);
        let body = self.hear(input);
        if self.echo {
            return;
        }
        self.drain();
        let text = if self.queue.is_empty() { self.text(body) } else { None };
        match text {
            Some(text) => self.write_input(now, input, text),
            None => self.queue.push_back(Item::Heard(now, input.clone(), body)),
        }
    }

    /// Hears an action before it is done. After [`Action::Finish`] it hears nothing more.
    pub fn action(&mut self, action: &Action) {
        if self.finished {
            return;
        }
        let body = self.see(action);
        self.drain();
        if self.queue.is_empty() {
            self.write_action(self.now, action, body);
        } else {
            self.queue.push_back(Item::Done(self.now, action.clone(), body));
        }
        if matches!(action, Action::Finish(_)) {
            self.finished = true;
            self.end();
        }
    }

    /// Hears an action of which no line is wanted.
    pub(super) fn pass_over(&mut self, action: &Action) {
        self.see(action);
    }

    /// Takes the lines that are ready, each with its line end.
    pub fn take(&mut self) -> String {
        String::from_utf8(core::mem::take(&mut self.out)).unwrap_or_default()
    }

    /// Takes everything that is left of a call that will not finish, because its driver was dropped.
    pub fn close(&mut self) -> String {
        self.settle_live();
        self.take()
    }

    /// Whether the call is over and its last line written.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// What an input means for the bytes under way.
    fn hear(&mut self, input: &Input) -> Body {
        let none = Body::Length(0);
        let secrets = self.secrets.clone();
        match input {
            Input::Head { attempt, head } => {
                if let Some(mut live) = self.live_of(*attempt) {
                    let good = (200..300).contains(&head.status);
                    live.opaque |= self.redacted && self.format == Format::Images && good;
                    self.live = Some(live);
                }
                none
            }
            Input::Chunk { attempt, bytes } => {
                let length = Body::Length(bytes.len() as u64);
                let Some(mut live) = self.live_of(*attempt) else { return length };
                if !live.ended {
                    live.chunks.push_back(bytes.clone());
                }
                let body = if live.ended || live.opaque || self.echo {
                    length
                } else {
                    live.lane.buffer.extend_from_slice(bytes);
                    live.lane.settle(&secrets, false);
                    Body::Lane(bytes.len())
                };
                self.live = Some(live);
                body
            }
            Input::End { attempt } | Input::Fault { attempt, .. } => {
                if let Some(mut live) = self.live_of(*attempt) {
                    live.ended = true;
                    self.live = Some(live);
                    self.settle_live();
                }
                none
            }
            Input::Reply { .. } | Input::Flushed | Input::Tick | Input::Cancel(_) => none,
        }
    }

    /// Takes the live attempt out if it is this one.
    fn live_of(&mut self, attempt: AttemptNo) -> Option<Box<Live>> {
        self.live.take_if(|live| live.attempt == attempt)
    }

    /// No more bytes come: what may begin a key is none.
    fn settle_live(&mut self) {
        if let Some(live) = &mut self.live {
            live.lane.settle(&self.secrets, true);
        }
        self.drain();
    }

    /// What an action means for the bytes under way.
    fn see(&mut self, action: &Action) -> Body {
        match action {
            Action::Send { attempt, .. } => {
                self.settle_live();
                let before = self.live.take();
                if matches!(self.last_reason, Some(Reason::EmptyCompletion | Reason::NotStructured)) {
                    self.kept = before.map(|live| live.chunks).unwrap_or_default();
                }
                self.live = Some(Box::new(Live {
                    attempt: *attempt,
                    ended: false,
                    opaque: self.redacted && self.format == Format::Raw,
                    lane: Lane::new(self.redacted),
                    chunks: VecDeque::new(),
                }));
                Body::Length(0)
            }
            Action::Abort(attempt) => {
                if let Some(live) = self.live.as_mut().filter(|live| live.attempt == *attempt) {
                    live.ended = true;
                    self.settle_live();
                }
                Body::Length(0)
            }
            Action::Forward(bytes) => {
                let live = self.live.as_mut().is_some_and(|live| pass(&mut live.chunks, bytes));
                if live || pass(&mut self.kept, bytes) { Body::Length(bytes.len() as u64) } else { Body::Own }
            }
            Action::Notice(notice) => {
                if let What::AttemptEnded { reason, .. } = notice.what {
                    self.last_reason = Some(reason);
                }
                Body::Length(0)
            }
            Action::Finish(end) => {
                self.settle_live();
                if matches!(end, End::Answer(_)) { Body::Own } else { Body::Length(0) }
            }
            Action::Ask(_) | Action::Tell(_) | Action::Commit(_) | Action::Judged(_) => Body::Length(0),
        }
    }

    /// Writes the queue as far as it is ready.
    fn drain(&mut self) {
        while let Some(item) = self.queue.pop_front() {
            match item {
                Item::Heard(now, input, body) => match self.text(body) {
                    Some(text) => self.write_input(now, &input, text),
                    None => return self.queue.push_front(Item::Heard(now, input, body)),
                },
                Item::Done(now, action, body) => self.write_action(now, &action, body),
            }
        }
    }

    /// The text of an input's bytes, once it is known.
    fn text(&mut self, body: Body) -> Option<Text> {
        match body {
            Body::Length(length) => Some(Text::Length(length)),
            Body::Own => Some(Text::Length(0)),
            Body::Lane(length) => self.live.as_mut()?.lane.take(length).map(Text::Bytes),
        }
    }

    fn write_input(&mut self, now: Time, input: &Input, text: Text) {
        let headers = match input {
            Input::Head { head, .. } => head.headers.iter().map(|header| self.header(header)).collect(),
            _ => Vec::new(),
        };
        let mut fields = self.fields(now);
        put_input(&mut fields, input, headers, text);
        self.write(&fields);
    }

    fn write_action(&mut self, now: Time, action: &Action, body: Body) {
        let text = match (body, action) {
            (Body::Length(length), _) => Text::Length(length),
            (_, Action::Forward(bytes)) => self.made(bytes),
            (_, Action::Finish(End::Answer(answer))) => self.answer(answer),
            _ => Text::Length(0),
        };
        let (route, mut draw) = (self.route.clone(), String::new());
        let mut fields = self.fields(now);
        put_action(&mut fields, action, &route, text, &mut draw);
        self.write(&fields);
    }

    /// Bytes that were written here.
    fn made(&self, bytes: &[u8]) -> Text {
        let mut text = bytes.to_vec();
        self.secrets.hide(&mut text, |_| {});
        Text::Bytes(if self.redacted { shape::of(&text).into_bytes() } else { text })
    }

    fn answer(&self, answer: &Answer) -> Text {
        let upstreams = answer.head.is_some();
        if !self.redacted || !upstreams {
            // Our own words name providers and statuses, nothing that a client or an upstream said.
            let mut text = answer.body.to_vec();
            self.secrets.hide(&mut text, |_| {});
            return Text::Bytes(text);
        }
        match (answer.as_sent, self.format) {
            (true, Format::Raw) => Text::Length(answer.body.len() as u64),
            (true, _) => {
                let mut text = answer.body.to_vec();
                self.secrets.hide(&mut text, |text| text.copy_from_slice(&mask::masked(text)));
                Text::Bytes(text)
            }
            (false, _) => self.made(&answer.body),
        }
    }

    fn header(&self, (name, value): &Header) -> Header {
        (name.clone(), self.without_keys(value))
    }

    fn without_keys(&self, text: &str) -> Box<str> {
        let mut bytes = text.as_bytes().to_vec();
        self.secrets.hide(&mut bytes, |_| {});
        String::from_utf8(bytes).unwrap_or_default().into()
    }

    fn fields<'a>(&self, now: Time) -> Fields<'a> {
        Fields { v: VERSION, call: Some(self.call.0), at: Some(now.0), ..Fields::default() }
    }

    fn write(&mut self, fields: &Fields<'_>) {
        let sum = write(fields, &mut self.out);
        self.lines += 1;
        self.hash = self.hash.with(&sum.to_le_bytes());
    }

    fn end(&mut self) {
        if self.echo {
            return;
        }
        let (lines, hash) = (self.lines, format!("{:016x}", self.hash.value()));
        let line = Fields { end: Some(&hash), lines: Some(lines), ..self.fields(self.now) };
        self.write(&line);
    }
}

/// Whether `bytes` are the next of `chunks`, or further on in them; takes them out, with what lies before them.
///
/// A slice of an upstream's chunk is at the chunk's own place in memory, and the chunk is held here, so nothing else is.
fn pass(chunks: &mut VecDeque<Bytes>, bytes: &Bytes) -> bool {
    let is_here = |chunk: &Bytes| chunk.as_ptr() == bytes.as_ptr() && chunk.len() >= bytes.len();
    let Some(index) = chunks.iter().position(is_here) else { return false };
    chunks.drain(..index);
    if let Some(chunk) = chunks.front_mut() {
        chunk.advance(bytes.len());
        if chunk.is_empty() {
            chunks.pop_front();
        }
    }
    true
}
