//! Every input and every action, to a line and back.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::{Just, any, prop_assert_eq, prop_oneof, proptest};
use proptest::sample::select;
use proptest::strategy::{BoxedStrategy, Strategy as Draw};

use crate::call::tests::harness::World;
use crate::event::{
    Action, Answer, CancelCause, Commit, End, Fault, Head, Hit, Incomplete, Input, Judgement, Notice, Reason, What,
};
use crate::id::{AttemptNo, Choice, LeaseId, TargetId};
use crate::pool::{BreakerChange, Op, Refusal, Reply, Reserve, Rest, Roster, Settle, Standing, Strategy};
use crate::time::{Span, Time};
use crate::trace::codec::{Stars, Text, action_of, input_of, put_action, put_input};
use crate::trace::fields::{Fields, check, parse, write};
use crate::trace::words::Word;

fn word<T: Word + core::fmt::Debug>() -> impl Draw<Value = T> {
    select(T::ALL)
}

fn attempt() -> impl Draw<Value = AttemptNo> {
    any::<u16>().prop_map(AttemptNo)
}

fn choice() -> impl Draw<Value = Choice> {
    any::<u16>().prop_map(Choice)
}

fn lease() -> impl Draw<Value = LeaseId> {
    any::<u64>().prop_map(LeaseId)
}

fn time() -> impl Draw<Value = Time> {
    prop_oneof![any::<u64>().prop_map(Time), Just(Time::NEVER), Just(Time::ZERO)]
}

fn span() -> impl Draw<Value = Span> {
    any::<u64>().prop_map(Span)
}

fn bytes() -> impl Draw<Value = Bytes> {
    prop_oneof![
        vec(any::<u8>(), 0..20).prop_map(Bytes::from),
        "[\\PC\\x00-\\x20\"\\\\]{0,20}".prop_map(|text: String| Bytes::from(text)),
    ]
}

fn change() -> impl Draw<Value = BreakerChange> {
    (any::<u32>(), word(), word()).prop_map(|(target, from, to)| BreakerChange { target: TargetId(target), from, to })
}

fn reply() -> impl Draw<Value = Reply> {
    prop_oneof![
        (choice(), any::<bool>(), of(change())).prop_map(|(choice, probe, change)| Reply::Granted {
            choice,
            probe,
            change
        }),
        (word::<Refusal>(), of(time()), of(time()), time())
            .prop_map(|(why, after, soonest, progress)| Reply::Refused { why, after, soonest, progress }),
        of(change()).prop_map(|change| Reply::Settled { change }),
        Just(Reply::Done),
    ]
}

fn head() -> impl Draw<Value = Head> {
    let header = (".{0,9}", ".{0,9}").prop_map(|(name, value): (String, String)| (name.into(), value.into()));
    (any::<u16>(), vec(header, 0..3), any::<u64>()).prop_map(|(status, headers, unix_ms)| Head {
        status,
        headers,
        unix_ms,
    })
}

fn input() -> impl Draw<Value = Input> {
    prop_oneof![
        (lease(), reply()).prop_map(|(lease, reply)| Input::Reply { lease, reply }),
        (attempt(), head()).prop_map(|(attempt, head)| Input::Head { attempt, head }),
        (attempt(), bytes()).prop_map(|(attempt, bytes)| Input::Chunk { attempt, bytes }),
        attempt().prop_map(|attempt| Input::End { attempt }),
        (attempt(), word::<Fault>()).prop_map(|(attempt, fault)| Input::Fault { attempt, fault }),
        Just(Input::Flushed),
        Just(Input::Tick),
        word::<CancelCause>().prop_map(Input::Cancel),
    ]
}

fn roster() -> Arc<Roster> {
    Arc::new(Roster { id: 9, strategy: Strategy::RoundRobin, entries: Vec::new() })
}

fn op() -> impl Draw<Value = Op> {
    let standing = (any::<u16>(), any::<bool>(), time(), any::<u16>())
        .prop_map(|(failed, out, not_before, last_attempt)| Standing { failed, out, not_before, last_attempt });
    let numbers = any::<(u16, u64, u32, bool)>();
    let reserve = (lease(), vec(standing, 0..4), time(), span(), numbers).prop_map(
        |(lease, standing, wait_until, ttl, (sticky, draw, tokens, queue))| {
            Op::Reserve(Reserve { lease, roster: roster(), standing, sticky, draw, tokens, wait_until, ttl, queue })
        },
    );
    let rest = (span(), word()).prop_map(|(span, scope)| Rest { span, scope });
    let settle = (lease(), word(), of(rest), any::<(bool, bool, Option<u32>)>()).prop_map(
        |(lease, outcome, rest, (slow, overload, tokens))| {
            Op::Settle(Settle { lease, outcome, slow, rest, overload, tokens })
        },
    );
    prop_oneof![
        reserve,
        settle,
        lease().prop_map(|lease| Op::Renew { lease }),
        lease().prop_map(|lease| Op::Leave { lease }),
    ]
}

fn what() -> BoxedStrategy<What> {
    let empty = ["no_choices", "no_usage", "no_output", "empty_completion", "empty_body", "empty_stream"];
    prop_oneof![
        (word(), any::<bool>(), of(choice()), of(word::<Reason>()))
            .prop_map(|(why, probe, from, after)| What::AttemptStarted { why, probe, from, after }),
        (word(), any::<Option<u16>>(), word::<Reason>(), span())
            .prop_map(|(outcome, status, reason, took)| What::AttemptEnded { outcome, status, reason, took }),
        Just(What::RoutingTransferLimitReached),
        Just(What::ProviderTransferLimitReached),
        Just(What::LocalStreamCandidateRetryScheduled),
        Just(What::LocalStreamTransportRetryScheduled),
        (word(), of(span())).prop_map(|(reason, failover_added)| What::Commit { reason, failover_added }),
        word().prop_map(|reason| What::StreamIncomplete { reason }),
        word().prop_map(|cause| What::ClientCancelled { cause }),
        change().prop_map(What::BreakerOpened),
        change().prop_map(What::BreakerClosed),
        change().prop_map(What::Probe),
        (word(), span()).prop_map(|(why, until)| What::Paced { why, until }),
        Just(What::Stalled),
        select(empty.to_vec()).prop_map(|reason| What::EmptyResponse { reason }),
    ]
    .boxed()
}

fn judgement() -> impl Draw<Value = Judgement> {
    let hit = || of(any::<(bool, u16)>().prop_map(|(own, place)| Hit { own, place }));
    prop_oneof![
        hit().prop_map(Judgement::SuccessRule),
        hit().prop_map(Judgement::StopRule),
        any::<bool>().prop_map(Judgement::Phrase),
        any::<bool>().prop_map(Judgement::Structured),
        any::<(u16, bool)>().prop_map(|(status, quota_gone)| Judgement::Error { status, quota_gone }),
    ]
}

fn end() -> impl Draw<Value = End> {
    let optional = (of(attempt()), of(span()), of(word()), of(choice()));
    let answer = (any::<(u16, bool, bool)>(), bytes(), optional, word()).prop_map(
        |((status, as_sent, no_retry), body, (head, retry_after, stop, choice), outcome)| {
            End::Answer(Box::new(Answer { status, body, as_sent, head, retry_after, stop, no_retry, choice, outcome }))
        },
    );
    prop_oneof![
        Just(End::Complete),
        word::<Incomplete>().prop_map(End::Incomplete),
        word().prop_map(End::UpstreamError),
        Just(End::Broken),
        answer,
        word().prop_map(End::Cancelled),
    ]
}

fn action() -> impl Draw<Value = Action> {
    let notice = (span(), of(attempt()), of(choice()), any::<(u64, u32)>(), what()).prop_map(
        |(elapsed, attempt, choice, (held_bytes, held_events), what)| {
            Action::Notice(Notice { elapsed, attempt, choice, held_bytes, held_events, what })
        },
    );
    let commit = (attempt(), choice(), word(), word(), any::<Option<u64>>()).prop_map(
        |(attempt, choice, reason, shape, length)| Action::Commit(Commit { attempt, choice, reason, shape, length }),
    );
    prop_oneof![
        op().prop_map(Action::Ask),
        op().prop_map(Action::Tell),
        (attempt(), choice(), word()).prop_map(|(attempt, choice, why)| Action::Send { attempt, choice, why }),
        attempt().prop_map(Action::Abort),
        commit,
        bytes().prop_map(Action::Forward),
        notice,
        judgement().prop_map(Action::Judged),
        end().prop_map(Action::Finish),
    ]
}

/// The line of fields, checked.
fn line<'a>(put: impl FnOnce(&mut Fields<'a>)) -> String {
    let mut out = Vec::new();
    let mut fields = Fields { v: 1, ..Fields::default() };
    put(&mut fields);
    write(&fields, &mut out);
    let mut line = String::from_utf8(out).unwrap();
    assert_eq!((line.pop(), line.contains('\n')), (Some('\n'), false), "one line: {line}");
    check(&line).unwrap();
    line
}

proptest! {
    #[test]
    fn every_input_comes_back(input in input()) {
        let (headers, text) = match &input {
            Input::Head { head, .. } => (head.headers.clone(), Text::Length(0)),
            Input::Chunk { bytes, .. } => (Vec::new(), Text::Bytes(bytes.to_vec())),
            _ => (Vec::new(), Text::Length(0)),
        };
        let line = line(|fields| put_input(fields, &input, headers, text));
        prop_assert_eq!(input_of(&mut parse(&line).unwrap(), &mut Stars::default()).unwrap(), input, "{}", line);
    }

    #[test]
    fn every_action_comes_back(action in action()) {
        let route = World::new(Vec::from([Vec::new()])).plan().route;
        let text = match &action {
            Action::Forward(bytes) => bytes.to_vec(),
            Action::Finish(End::Answer(answer)) => answer.body.to_vec(),
            _ => Vec::new(),
        };
        let mut draw = String::new();
        let line = line(|fields| put_action(fields, &action, &route, Text::Bytes(text), &mut draw));
        prop_assert_eq!(action_of(&mut parse(&line).unwrap(), &roster(), &mut Stars::default()).unwrap(), action, "{}", line);
    }
}
