//! Laws over random worlds: S1, S2, S4, S5, S10, S12 and M5, recomputed from the actions.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::harness::*;
use crate::event::{Action, CancelCause, End, Fault};
use crate::pool::{Op, Strategy as Order};
use crate::time::Span;

/// What one upstream does with one request: pieces of a stream or a status, and an end.
fn reply() -> impl Strategy<Value = (Vec<u8>, u8, u16)> {
    (
        proptest::collection::vec(0u8..10, 0..7),
        0u8..3,
        prop_oneof![Just(200u16), Just(429), Just(503), Just(500), Just(400), Just(404)],
    )
}

fn piece(kind: u8) -> String {
    match kind {
        0 => ROLE.into(),
        1 | 2 => delta("Hi"),
        3 => STOP.into(),
        4 => DONE.into(),
        5 => OVERLOADED.into(),
        6 => ": comment\r\n\r\n".into(),
        7 => "data: {\"bad\n\n".into(),
        8 => "data: {\"choices\":[]}\r\r".into(),
        _ => "data: {\"torn".into(),
    }
}

/// The steps of a reply, its bytes cut into chunks of `size`.
fn steps((pieces, end, status): &(Vec<u8>, u8, u16), size: usize) -> Vec<Step> {
    if *status != 200 {
        return body(*status, &error("no"));
    }
    let text: String = pieces.iter().map(|kind| piece(*kind)).collect();
    let mut steps = vec![Step::HeadWith(200, vec![("content-type", "text/event-stream")])];
    steps
        .extend(text.as_bytes().chunks(size.max(1)).map(|chunk| Step::Say(String::from_utf8(chunk.to_vec()).unwrap())));
    match end {
        0 => steps.push(Step::End),
        1 => steps.push(Step::Fault(Fault::Reset)),
        _ => {}
    }
    steps
}

fn sent_bytes(reply: &(Vec<u8>, u8, u16)) -> String {
    reply.0.iter().map(|kind| piece(*kind)).collect()
}

fn world(replies: &[Vec<(Vec<u8>, u8, u16)>], size: usize, sticky: u32, transfers: u32, order: Order) -> World {
    let scripts = replies.iter().map(|all| all.iter().map(|one| steps(one, size)).collect()).collect();
    let mut world = World::streams(scripts);
    world.policy.sticky_key_attempts = sticky;
    world.policy.max_transfer_count = transfers;
    world.strategy = order;
    world
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Priority), Just(Order::HealthAware), Just(Order::RoundRobin), Just(Order::LeastInflight)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// S12: the same bytes in any chunking give the same attempts, the same answer and the same end.
    #[test]
    fn chunk_boundaries_change_nothing(replies in proptest::collection::vec(proptest::collection::vec(reply(), 1..3), 1..4),
                                       size in 1usize..40, sticky in 1u32..4, order in order()) {
        let whole = world(&replies, usize::MAX, sticky, 0, order).run();
        let split = world(&replies, size, sticky, 0, order).run();
        prop_assert_eq!(&whole.sent, &split.sent);
        prop_assert_eq!(whole.text(), split.text());
        prop_assert_eq!(&whole.end, &split.end);
        prop_assert_eq!(&whole.codes, &split.codes);
    }

    /// S1: the client's bytes are a prefix of exactly one attempt's, plus at most one error event or line end.
    #[test]
    fn one_attempt_is_delivered_byte_for_byte(replies in proptest::collection::vec(proptest::collection::vec(reply(), 1..3), 1..4),
                                              size in 1usize..40, sticky in 1u32..4) {
        let mut world = world(&replies, size, sticky, 0, Order::Priority);
        let out = world.run();
        if let Some(commit) = out.commit {
            let attempts_there = out.sent[..=usize::from(commit.attempt.0)].iter().filter(|(choice, _)| *choice == commit.choice.0).count();
            let all = &replies[usize::from(commit.choice.0)];
            let sent = sent_bytes(&all[(attempts_there - 1).min(all.len() - 1)]);
            let common = out.text().bytes().zip(sent.bytes()).take_while(|(a, b)| a == b).count();
            let rest = &out.text()[common..];
            match out.end {
                End::Incomplete(_) => {
                    prop_assert!(rest.contains("stream_incomplete") && rest.matches("stream_incomplete\"").count() == 1, "{rest}");
                    prop_assert!(!rest.contains("[DONE]"));
                }
                _ => prop_assert!(rest.chars().all(|c| c == '\n') && rest.len() <= 2, "{rest:?}"),
            }
        } else {
            let is_answer = matches!(out.end, End::Answer(_));
            prop_assert!(out.body.is_empty() && is_answer);
            prop_assert!(out.answer().status >= 400);
        }
    }

    /// S4, S5: each lease is settled once, budgets recomputed from the sends are never exceeded, a cancel ends all.
    #[test]
    fn leases_and_budgets_add_up(replies in proptest::collection::vec(proptest::collection::vec(reply(), 1..3), 1..5),
                                 sticky in 1u32..4, transfers in 0u32..4, order in order(), cancel in proptest::option::of(0u64..3000)) {
        let mut world = world(&replies, 7, sticky, transfers, order);
        let at = cancel.map(|ms| (world.now.after(Span::from_millis(ms)), CancelCause::ClientGone));
        let out = world.run_until(at);
        prop_assert_eq!(settled(&out), out.sent.len());
        prop_assert_eq!(world.inflight(), 0);
        let switches = out.sent.windows(2).filter(|pair| pair[0].0 != pair[1].0).count() as u32;
        prop_assert!(transfers == 0 || switches <= transfers);
        prop_assert!(out.sent.len() <= 64);
        if order == Order::Priority && transfers == 0 {
            for later in 1..replies.len() as u16 {
                let counted = out.sent.iter().enumerate().filter(|(_, (choice, _))| *choice == later);
                let limited = counted.filter(|(n, _)| {
                    // A 429 uses nothing up; everything else does.
                    let nth = out.sent[..*n].iter().filter(|(choice, _)| *choice == later).count();
                    let all = &replies[usize::from(later)];
                    all[nth.min(all.len() - 1)].2 != 429
                });
                prop_assert!(limited.count() <= 1, "a later source of a chain gets one try");
            }
        }
        let finishes = out.actions.iter().filter(|action| matches!(action, Action::Finish(_))).count();
        prop_assert_eq!(finishes, 1);
        let grants = out.actions.iter().filter(|action| matches!(action, Action::Ask(Op::Reserve(_)))).count();
        prop_assert!(grants >= out.sent.len());
    }
}
