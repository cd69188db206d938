//! F2–F6, G10–G12: what starts, how often, how far, how late.

use alloc::vec;
use alloc::vec::Vec;

use super::harness::*;
use crate::event::{Action, Input, Output, Reason, Stop, What, Why};
use crate::id::{AttemptNo, Choice};
use crate::outcome::Outcome;
use crate::pool::{Op, Refusal, Reply, Strategy};
use crate::time::{Span, Time};

fn fails(status: u16) -> Vec<Step> {
    body(status, &error("no"))
}

fn good() -> Vec<Step> {
    body(200, &answer_body("fine"))
}

fn slow(ms: u64, mut steps: Vec<Step>) -> Vec<Step> {
    steps.insert(0, Step::Wait(ms));
    steps
}

/// F2: sticky tries belong to the first source of a chain, later ones get one.
#[test]
fn the_first_source_is_sticky_and_later_ones_get_one_try() {
    let mut world = World::new(vec![vec![fails(503)], vec![fails(503)], vec![good()]]);
    world.policy.sticky_key_attempts = 3;
    let out = world.run();
    assert_eq!(out.order(), [1, 1, 1, 2, 3]);
    let whys: Vec<Why> = out.sent.iter().map(|(_, why)| *why).collect();
    assert_eq!(whys, [Why::First, Why::Retry, Why::Retry, Why::Transfer, Why::Transfer]);
    // The first retry is immediate, the second waits its backoff (G11).
    assert_eq!(out.took, Span::from_millis(500));
}

/// M6: what a retry on the same source cannot cure moves on at once.
#[test]
fn incurable_failures_use_no_sticky_tries() {
    for status in [500, 501, 401, 402, 403, 404, 301, 666] {
        let mut world = World::new(vec![vec![fails(status)], vec![good()]]);
        world.policy.sticky_key_attempts = 3;
        let out = world.run();
        assert_eq!(out.order(), [1, 2], "{status}");
        assert_eq!(out.took, Span::ZERO, "{status}");
    }
}

/// F3: the limit counts switches; retries are free; the refused switch is named.
#[test]
fn the_transfer_count_counts_switches() {
    for (limit, order, stop) in [(1, vec![1, 1, 2], Some(Stop::RoutingTransferLimit)), (2, vec![1, 1, 2, 3], None)] {
        let mut world = World::new(vec![vec![fails(503)], vec![fails(502)], vec![fails(500)]]);
        world.policy.sticky_key_attempts = 2;
        world.policy.max_transfer_count = limit;
        let out = world.run();
        assert_eq!(out.order(), order);
        assert_eq!(out.answer().stop, stop);
        assert_eq!(out.answer().no_retry, stop.is_some());
        assert_eq!(out.has("routing_transfer_limit_reached"), stop.is_some());
    }
}

/// F4: the time is looked at before each next attempt, a retry too, and never cuts one that runs.
#[test]
fn the_transfer_time_refuses_the_next_attempt_only() {
    let mut world = World::new(vec![vec![slow(300, fails(503)), good()], vec![good()]]);
    world.policy.sticky_key_attempts = 2;
    world.policy.max_transfer_timeout = Span::from_millis(300);
    let out = world.run();
    assert_eq!(out.order(), [1]);
    assert_eq!(out.answer().stop, Some(Stop::RoutingTransferLimit));

    let mut world = World::new(vec![vec![fails(500)], vec![slow(900, good())]]);
    world.policy.max_transfer_timeout = Span::from_millis(300);
    assert_eq!(world.run().served_by(), 2);
}

/// F5: zero is unlimited, the hard ceiling stands.
#[test]
fn the_hard_ceiling_ends_an_absurd_policy() {
    let mut world = World::new(vec![vec![fails(503)]]);
    world.policy.sticky_key_attempts = 10_000;
    world.policy.retry.max = Span::from_millis(1);
    let mut settings = crate::pool::Settings::default();
    settings.breaker.fail_threshold = 1000;
    settings.breaker.min_calls = 1000;
    world.pool.configure(settings);
    let out = world.run();
    assert_eq!(out.sent.len(), 64);
    assert_eq!(out.answer().stop, Some(Stop::RoutingTransferLimit));
}

/// F6: a provider's own limit skips that provider, and is the reason when nothing else is left.
#[test]
fn a_providers_limit_skips_the_provider() {
    for others in [0, 1] {
        let mut world = World::new(vec![vec![fails(503)]; 3 + others]);
        if others == 1 {
            world.scripts[3] = vec![good()];
        }
        let mut own = provider("p");
        own.max_transfer_count = 1;
        let keys = alloc::sync::Arc::new(own);
        let mut plan = world.plan();
        let route = alloc::sync::Arc::make_mut(&mut plan.route);
        for candidate in &mut route.candidates[..3] {
            candidate.provider = keys.clone();
        }
        let out = world.run_plan(plan);
        assert!(out.has("provider_transfer_limit_reached"));
        if others == 1 {
            assert_eq!(out.order(), [1, 2, 4]);
            assert_eq!(out.served_by(), 4);
        } else {
            assert_eq!(out.order(), [1, 2]);
            assert_eq!(out.answer().stop, Some(Stop::ProviderTransferLimit));
        }
    }
}

/// G10, G11: in a balanced tier each source keeps its place for its sticky tries; the tier has its attempts.
#[test]
fn a_balanced_tier_alternates_and_is_bounded() {
    let mut world = World::new(vec![vec![fails(503), fails(503), good()], vec![fails(503), fails(503), good()]]);
    world.strategy = Strategy::RoundRobin;
    world.policy.sticky_key_attempts = 2;
    world.policy.max_attempts = 5;
    let order = world.run().order();
    assert!(order == [1, 1, 2, 2, 1] || order == [2, 2, 1, 1, 2], "{order:?}");

    let mut world = World::new(vec![vec![fails(503)]; 5]);
    world.strategy = Strategy::RoundRobin;
    let out = world.run();
    assert_eq!(out.sent.len(), 3);
    assert!(out.answer().no_retry);
}

/// G12, F2: a pushback moves on at once, uses no budget, and is waited for only when nothing else can start.
#[test]
fn a_rate_limit_is_a_schedule() {
    let mut world = World::new(vec![vec![limited("400"), good()], vec![good()]]);
    let out = world.run();
    assert_eq!((out.order(), out.took), (vec![1, 2], Span::ZERO));

    let mut world = World::new(vec![vec![limited("900"), good()], vec![fails(500)]]);
    let out = world.run();
    assert_eq!((out.order(), out.took), (vec![1, 2, 1], Span::from_millis(900)));
    assert!(out.has("paced"));

    // max(Retry-After, backoff): the backoff grows from pushback to pushback.
    let mut world = World::new(vec![vec![limited("0"), limited("0"), limited("0"), good()]]);
    let out = world.run();
    assert_eq!((out.order(), out.took), (vec![1, 1, 1, 1], Span::from_millis(500 + 1000 + 2000)));
}

/// G11, G12: a wait that does not fit what is left is refused at once: 429 with the shortest wait.
#[test]
fn waiting_is_bounded() {
    let mut world = World::new(vec![vec![limited("50000")], vec![limited("40000")]]);
    let out = world.run();
    assert_eq!((out.order(), out.took), (vec![1, 2], Span::ZERO));
    assert_eq!((out.answer().status, out.answer().retry_after), (429, Some(Span::from_secs(40))));

    let mut world = World::new(vec![vec![limited("20000"), limited("20000"), good()]]);
    let out = world.run();
    assert_eq!((out.order(), out.took), (vec![1, 1], Span::from_secs(20)), "all waiting together has 30 s");
    assert_eq!(out.answer().status, 429);

    let mut world = World::new(vec![vec![limited("900"), good()]]);
    world.policy.deadline = Span::from_millis(500);
    assert_eq!(world.run().took, Span::ZERO);
}

/// M6: a half-open probe is a single attempt.
#[test]
fn a_probe_is_not_retried() {
    let mut world = World::new(vec![vec![fails(503)], vec![good()]]);
    world.policy.sticky_key_attempts = 3;
    let mut settings = crate::pool::Settings::default();
    settings.breaker.fail_threshold = 3;
    world.pool.configure(settings);
    let out = world.run();
    assert_eq!(out.order(), [1, 1, 1, 2]);
    assert!(out.has("breaker_opened"));
    world.now = world.now.after(Span::from_secs(61));
    let out = world.run();
    assert_eq!(out.order(), [1, 2]);
    assert!(out.has("probe"));
}

/// M7: a request that is not replay-safe has one attempt.
#[test]
fn what_must_not_be_repeated_is_not() {
    let mut world = World::new(vec![vec![vec![Step::Fault(crate::event::Fault::Reset)]], vec![good()]]);
    world.format = crate::wire::Format::Raw;
    world.replay_safe = false;
    let out = world.run();
    assert_eq!(out.order(), [1]);
    assert_eq!(out.answer().status, 502);
}

/// F16: late first content gives way only to a candidate that can start.
#[test]
fn first_content_yields_only_to_another_that_can_start() {
    let slow = || {
        let mut steps = sse(&[ROLE]);
        steps.insert(2, Step::Wait(350));
        steps.extend(sse(&[&delta("late"), STOP, DONE]).into_iter().skip(1));
        steps.remove(3);
        steps
    };
    let mut world = World::streams(vec![vec![slow()], vec![sse(&[ROLE, &delta("b"), STOP, DONE])]]);
    world.timeouts.first_content = Span::from_millis(100);
    let out = world.run();
    assert_eq!((out.order(), out.took), (vec![1, 2], Span::from_millis(100)));
    assert!(out.notices.iter().any(|what| matches!(
        what,
        What::AttemptEnded { reason: Reason::FirstContentTimeout, outcome: Outcome::Transient, .. }
    )));

    let mut world = World::streams(vec![vec![slow()]]);
    world.timeouts.first_content = Span::from_millis(100);
    let out = world.run();
    assert_eq!((out.order(), out.took), (vec![1], Span::from_millis(350)));
    assert!(out.text().contains("late"));
}

/// G11: an attempt that is left for another counts like one that failed.
#[test]
fn a_switch_uses_the_tiers_attempts() {
    let slow_stream = || slow(1000, sse(&[ROLE, &delta("late"), STOP, DONE]));
    let mut world = World::streams(vec![vec![slow_stream()], vec![slow_stream()], vec![slow_stream()]]);
    world.strategy = Strategy::RoundRobin;
    world.timeouts.first_content = Span::from_millis(100);
    world.policy.max_attempts = 2;
    let out = world.run();
    assert_eq!(out.sent.len(), 2);
    assert!(out.text().contains("late"), "the last one is waited for");
}

/// F6: a place that comes after the provider's time is over is given back, and another is asked for.
#[test]
fn a_place_that_comes_too_late_for_its_provider_is_given_back() {
    let mut world = World::new(vec![vec![fails(503)], vec![good()]]);
    let mut own = provider("p");
    own.max_transfer_timeout = Span::from_millis(300);
    let (done, lease) = granted_late(&mut world, own);
    assert!(done.contains(&Action::Tell(Op::Leave { lease })));
    assert!(!done.iter().any(|action| matches!(action, Action::Send { .. })));
    assert!(matches!(done.last(), Some(Action::Finish(_))));
}

/// S2: at the deadline nothing starts any more, whatever is granted then.
#[test]
fn a_place_that_comes_at_the_deadline_is_given_back() {
    let mut world = World::new(vec![vec![fails(503)], vec![good()]]);
    world.policy.deadline = Span::from_millis(300);
    let (done, lease) = granted_late(&mut world, provider("p"));
    assert!(done.contains(&Action::Tell(Op::Leave { lease })));
    assert!(!done.iter().any(|action| matches!(action, Action::Send { .. })));
    assert!(matches!(done.last(), Some(Action::Finish(_))));
}

/// What a call does when its second place is granted after 300 ms of waiting, and that place.
fn granted_late(world: &mut World, own: crate::policy::ProviderPolicy) -> (Vec<Action>, crate::id::LeaseId) {
    let shared = alloc::sync::Arc::new(own);
    let mut plan = world.plan();
    for candidate in &mut alloc::sync::Arc::make_mut(&mut plan.route).candidates {
        candidate.provider = shared.clone();
    }
    let mut call = crate::call::Call::new(plan, crate::id::CallId(1), 1, world.now);
    let grant = |choice| Reply::Granted { choice: Choice(choice), probe: false, change: None };
    let ask = |call: &mut crate::call::Call| {
        loop {
            match call.poll() {
                Output::Do(Action::Ask(op)) => break op.lease(),
                Output::Do(_) => {}
                Output::Wait(wake) => panic!("asks, and does not wait for {wake:?}"),
            }
        }
    };
    let lease = ask(&mut call);
    call.handle(world.now, Input::Reply { lease, reply: grant(0) });
    for step in fails(503) {
        call.handle(world.now, input(AttemptNo(0), step));
    }
    let lease = ask(&mut call);
    let refused = Reply::Refused { why: Refusal::Paced, after: None, soonest: None, progress: Time::ZERO };
    call.handle(world.now, Input::Reply { lease, reply: refused });
    call.handle(world.now.after(Span::from_millis(300)), Input::Reply { lease, reply: grant(1) });
    let mut done = vec![];
    while let Output::Do(action) = call.poll() {
        done.push(action);
    }
    (done, lease)
}

/// G11: the backoff that came before uses none of `max_wait`: who finds the source at its pace behind it may wait for it, and
/// what was waited before the backoff counts on.
#[test]
fn backoff_is_no_waiting_for_a_place() {
    use crate::event::{Timer, Wake};
    let mut world = World::new(vec![vec![body(200, &answer_body("one"))]]);
    world.policy.max_wait = Span::from_millis(500);
    let mut call = world.call();
    let start = world.now;
    let mut now = start;
    let mut left = Span::from_millis(500);
    for (why, wait_ms) in
        [(Refusal::Paced, 200), (Refusal::Backoff, 8000), (Refusal::Full, 100), (Refusal::Backoff, 9000)]
    {
        let reserve = asked(&mut call);
        assert_eq!(reserve.wait_until, now.after(left), "before {why:?}");
        let lease = reserve.lease;
        let wait = Span::from_millis(wait_ms);
        let after = Some(now.after(wait));
        call.handle(now, Input::Reply { lease, reply: Reply::Refused { why, after, soonest: None, progress: start } });
        while let Output::Do(action) = call.poll() {
            assert!(!matches!(action, Action::Finish(_)), "{why:?}: {action:?}");
        }
        now = now.after(wait);
        if why != Refusal::Backoff {
            left = Span(left.0 - wait.0);
        }
        call.handle(now, Input::Tick);
    }
    let lease = asked(&mut call).lease;
    let refused = Reply::Refused { why: Refusal::Paced, after: None, soonest: None, progress: start };
    call.handle(now, Input::Reply { lease, reply: refused });
    assert_eq!(call.poll(), Output::Wait(Some(Wake { at: now.after(Span::from_millis(200)), why: Timer::MaxWait })));
}

/// The call's next question to the pool.
fn asked(call: &mut crate::call::Call) -> crate::pool::Reserve {
    loop {
        match call.poll() {
            Output::Do(Action::Ask(Op::Reserve(reserve))) => return reserve,
            Output::Do(_) => {}
            Output::Wait(wake) => panic!("asks, and does not wait for {wake:?}"),
        }
    }
}
