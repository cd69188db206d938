//! The adapter of one call in a what-if: the real loop of the core, on a virtual clock, over what upstreams did.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use surefoot_core::drive::Host;
use surefoot_core::event::{Action, Fault, Input, Judgement, Notice, Why};
use surefoot_core::id::{AttemptNo, Choice, LeaseId};
use surefoot_core::policy::Route;
use surefoot_core::pool::{Op, Pool, Reply};
use surefoot_core::time::{Span, Time};
use surefoot_core::wire::Format;

use super::facts::{Basis, Book};
use super::policy::same_rules;
use super::shelf::{Record, Shelf, Step};
use crate::rng::{Concern, Stream};

/// A timer of ours fires a little after its time, in a recording; only what was not seen well behind that is not known.
const SLACK: Span = Span::from_millis(5);

/// What all calls share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) now: Time,
    pub(super) seed: u64,
    pub(super) pool: Pool,
    pub(super) shelf: Shelf,
    /// The routes that the records were made under, by their call.
    pub(super) routes: Vec<Arc<Route>>,
    /// Grants on their way to a call.
    mail: BTreeMap<usize, VecDeque<(LeaseId, Reply)>>,
    asking: BTreeMap<LeaseId, usize>,
    /// Calls that have mail.
    pub(super) ready: Vec<usize>,
    /// Answers whose words could not be judged by the policy's own rules, for they are masked.
    pub(super) unjudged: u64,
}

impl Shared {
    pub(super) fn new(seed: u64, pool: Pool, shelf: Shelf, routes: Vec<Arc<Route>>) -> Shared {
        Shared {
            now: Time::ZERO,
            seed,
            pool,
            shelf,
            routes,
            mail: BTreeMap::new(),
            asking: BTreeMap::new(),
            ready: Vec::new(),
            unjudged: 0,
        }
    }

    fn apply(&mut self, call: usize, op: &Op) -> Reply {
        let reply = self.pool.apply(self.now, op);
        match op {
            Op::Reserve(reserve) if reserve.queue && matches!(reply, Reply::Refused { .. }) => {
                self.asking.insert(reserve.lease, call);
            }
            Op::Reserve(_) | Op::Leave { .. } => {
                self.asking.remove(&op.lease());
            }
            Op::Settle(_) | Op::Renew { .. } => {}
        }
        while let Some((lease, granted)) = self.pool.pop_granted() {
            // Whoever is refused may stand in line all the same.
            let waiter = match granted {
                Reply::Granted { .. } => self.asking.remove(&lease),
                _ => self.asking.get(&lease).copied(),
            };
            match waiter {
                Some(waiter) => {
                    self.mail.entry(waiter).or_default().push_back((lease, granted));
                    self.ready.push(waiter);
                }
                // Nobody waits under that name any more: the place goes to the next.
                None => {
                    self.pool.apply(self.now, &Op::Leave { lease });
                }
            }
        }
        reply
    }

    /// A call is over.
    pub(super) fn close(&mut self, call: usize) {
        self.mail.remove(&call);
        self.shelf.release(call);
    }
}

/// An attempt under way.
#[derive(Debug)]
struct Live {
    attempt: AttemptNo,
    choice: Choice,
    started: Time,
    /// `None` where nothing is known at all.
    record: Option<usize>,
    steps: VecDeque<(Time, Step)>,
    /// From then on nothing was seen; never for a record that was watched to its end, or whose rest was drawn already.
    blind_from: Time,
    /// The steps are drawn.
    drawn: bool,
}

/// The adapter of one call.
#[derive(Debug)]
pub(super) struct ReplayHost {
    shared: Rc<RefCell<Shared>>,
    call: usize,
    route: Arc<Route>,
    format: Format,
    stream: bool,
    masked: bool,
    live: Option<Live>,
    pub(super) book: Option<Book>,
    /// Verdicts on the answer that comes, not yet handed to the call.
    verdicts: Option<VecDeque<Judgement>>,
    sleeps_until: Time,
}

impl ReplayHost {
    pub(super) fn new(
        shared: Rc<RefCell<Shared>>,
        call: usize,
        route: Arc<Route>,
        (format, stream, masked): (Format, bool, bool),
        arrived: Time,
    ) -> ReplayHost {
        let book = Some(Book::new(route.clone(), arrived));
        let sleeps_until = Time::NEVER;
        ReplayHost { shared, call, route, format, stream, masked, live: None, book, verdicts: None, sleeps_until }
    }

    /// When there is something to hear, or the call wants to be ticked.
    pub(super) fn next_event(&self) -> Time {
        let news =
            self.live.as_ref().map_or(Time::NEVER, |live| live.steps.front().map_or(live.blind_from, |(at, _)| *at));
        news.min(self.sleeps_until)
    }

    /// Verdicts that the call has to know before it hears the answer.
    pub(super) fn take_verdicts(&mut self) -> Option<VecDeque<Judgement>> {
        self.verdicts.take()
    }

    fn chance(&self, seed: u64, attempt: AttemptNo, part: u64) -> Stream {
        Stream::new(seed, Concern::Exchange, self.call as u64, u64::from(attempt.0) << 1 | part)
    }

    /// The verdicts of a record that hold under the policy that is tried: what words mean always, what rules make of them
    /// where the rules are the same.
    fn verdicts(&self, record: &Record, choice: Choice, shared: &Shared) -> (VecDeque<Judgement>, bool) {
        let (then, now) = (shared.routes.get(record.call), &self.route);
        let provider = |route: &Route, choice: Choice| {
            route.candidates.get(usize::from(choice.0)).map(|candidate| candidate.provider.clone())
        };
        let before = then.and_then(|then| provider(then, record.choice));
        let after = provider(now, choice);
        let (Some(then), Some(before), Some(after)) = (then, before, after) else { return (VecDeque::new(), false) };
        let same = same_rules(&then.policy.rules, &now.policy.rules) && same_rules(&before.rules, &after.rules);
        let phrases = before.retry_on_errors == after.retry_on_errors;
        let holds = |verdict: &Judgement| match verdict {
            Judgement::SuccessRule(_) | Judgement::StopRule(_) => same,
            Judgement::Phrase(_) => phrases,
            Judgement::Structured(_) | Judgement::Error { .. } => true,
        };
        let asks = |rules: &surefoot_core::policy::Rules| !rules.success.is_empty() || !rules.stop.is_empty();
        let unknown = (!same && (asks(&now.policy.rules) || asks(&after.rules)))
            || (!phrases && !after.retry_on_errors.is_empty());
        (record.verdicts.iter().copied().filter(holds).collect(), unknown)
    }
}

impl Host for ReplayHost {
    fn now(&mut self) -> Time {
        self.shared.borrow().now
    }

    fn apply(&mut self, op: &Op) -> Option<Reply> {
        Some(self.shared.borrow_mut().apply(self.call, op))
    }

    fn send(&mut self, attempt: AttemptNo, choice: Choice, _: Why) {
        let Some(candidate) = self.route.candidates.get(usize::from(choice.0)) else { return };
        let key = (candidate.source_name.clone(), candidate.model.clone(), self.format, self.stream);
        let mut guard = self.shared.borrow_mut();
        let shared = &mut *guard;
        let started = shared.now;
        let mut chance = self.chance(shared.seed, attempt, 0);
        let given = shared.shelf.give(self.call, &key, started, &mut chance);
        if let Some(book) = &mut self.book {
            book.basis(given.basis);
        }
        let record = given.record.and_then(|place| shared.shelf.record(place));
        let Some(record) = record else {
            // Nothing of the kind was ever seen: it is as if nobody were there.
            let steps = VecDeque::from([(started, Step::Fault(Fault::Connect))]);
            self.live =
                Some(Live { attempt, choice, started, record: None, steps, blind_from: Time::NEVER, drawn: true });
            return;
        };
        if self.masked {
            let (verdicts, unknown) = self.verdicts(record, choice, shared);
            self.verdicts = Some(verdicts);
            shared.unjudged += u64::from(unknown);
        }
        let Some(record) = given.record.and_then(|place| shared.shelf.record(place)) else { return };
        let steps = record.steps.iter().map(|(at, step)| (started.after(*at), step.clone())).collect();
        let blind_from = if record.whole { Time::NEVER } else { started.after(record.watched).after(SLACK) };
        self.live = Some(Live { attempt, choice, started, record: given.record, steps, blind_from, drawn: false });
    }

    fn abort(&mut self, attempt: AttemptNo) {
        self.live.take_if(|live| live.attempt == attempt);
    }

    fn notice(&mut self, _: &Notice) {}

    fn poll_input(&mut self, _: &mut Context<'_>) -> Poll<Input> {
        let mut shared = self.shared.borrow_mut();
        if let Some((lease, reply)) = shared.mail.get_mut(&self.call).and_then(VecDeque::pop_front) {
            return Poll::Ready(Input::Reply { lease, reply });
        }
        if self.verdicts.is_some() {
            return Poll::Pending;
        }
        let (now, seed) = (shared.now, shared.seed);
        if let Some(live) = &mut self.live
            && live.steps.is_empty()
            && live.blind_from <= now
        {
            live.blind_from = Time::NEVER;
            live.drawn = true;
            let part = u64::from(live.attempt.0) << 1 | 1;
            let mut chance = Stream::new(seed, Concern::Exchange, self.call as u64, part);
            let drawn = live.record.map(|place| shared.shelf.rest(place, &mut chance));
            let (rest, other) = drawn.unwrap_or_default();
            let (started, choice) = (live.started, live.choice);
            live.steps.extend(rest.into_iter().map(|(at, step)| (started.after(at).max(now), step)));
            let other = other.filter(|_| self.masked).and_then(|other| shared.shelf.record(other));
            if let Some(other) = other {
                self.verdicts = Some(self.verdicts(other, choice, &shared).0);
                return Poll::Pending;
            }
        }
        let Some(live) = &mut self.live else { return Poll::Pending };
        if live.steps.front().is_none_or(|(at, _)| *at > now) {
            return Poll::Pending;
        }
        let Some((_, step)) = live.steps.pop_front() else { return Poll::Pending };
        let attempt = live.attempt;
        if live.drawn
            && let Some(book) = &mut self.book
        {
            book.basis(Basis::Modelled);
        }
        if matches!(step, Step::End | Step::Fault(_)) {
            self.live = None;
        }
        Poll::Ready(step.into_input(attempt))
    }

    fn poll_sleep(&mut self, _: &mut Context<'_>, until: Time) -> Poll<()> {
        let now = self.shared.borrow().now;
        if until <= now {
            return Poll::Ready(());
        }
        self.sleeps_until = until;
        Poll::Pending
    }

    fn record_input(&mut self, now: Time, input: &Input) {
        self.sleeps_until = Time::NEVER;
        if let Some(book) = &mut self.book {
            book.input(now, input);
        }
    }

    fn record_action(&mut self, action: &Action) {
        let now = self.shared.borrow().now;
        if let Some(book) = &mut self.book {
            book.action(now, action);
        }
    }
}
