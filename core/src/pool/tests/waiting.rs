//! What a call waits for, what it passes over, and who is served first (G11–G15, F2).

use super::*;

fn concurrency(max_concurrency: u32) -> Limits {
    Limits { max_concurrency, ..Limits::default() }
}

/// The target's source rests for so long from now.
fn rest(world: &mut World, target: usize, span: Span, scope: RestScope) {
    let lease = world.begin(target);
    world.settle_as(Settle { lease, ..rested(span, scope) });
}

fn in_secs(world: &World, seconds: u64) -> Option<Time> {
    Some(world.now.after(secs(seconds)))
}

#[test]
fn a_resting_source_is_passed_over_at_once() {
    let mut world = World::new(2, Settings::default());
    rest(&mut world, 0, secs(5), RestScope::Account);
    let roster = world.roster(Strategy::Priority, &[&[0], &[1]]);
    let reserve = world.ask(&roster);
    assert_eq!(world.start(&reserve), 1);
}

#[test]
fn a_call_waits_for_a_rest_when_nothing_credible_can_start() {
    let mut world = World::new(2, Settings::default());
    rest(&mut world, 0, secs(5), RestScope::Account);
    let roster = world.roster(Strategy::Priority, &[&[0], &[1]]);
    let gone = Standing { out: true, ..failed(1) };
    let reserve = Reserve { standing: alloc::vec![failed(0), gone], ..world.ask(&roster) };
    let end = in_secs(&world, 5);
    assert_eq!(world.refused(&reserve), (Refusal::Resting, end, end));
    world.wait(secs(5));
    assert_eq!(world.start(&reserve), 0);
}

#[test]
fn the_first_to_wake_is_waited_for() {
    let mut world = World::new(2, Settings::default());
    rest(&mut world, 0, secs(9), RestScope::Account);
    rest(&mut world, 1, secs(2), RestScope::Account);
    let roster = world.roster(Strategy::Priority, &[&[0], &[1]]);
    let reserve = world.ask(&roster);
    let end = in_secs(&world, 2);
    assert_eq!(world.refused(&reserve), (Refusal::Resting, end, end));
}

#[test]
fn a_rest_out_of_reach_is_not_waited_for_but_told() {
    let mut world = World::new(1, Settings::default());
    rest(&mut world, 0, secs(300), RestScope::Account);
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let reserve = world.ask(&roster);
    assert_eq!(world.refused(&reserve), (Refusal::Resting, None, in_secs(&world, 300)));
    let patient = Reserve { wait_until: world.now.after(secs(300)), ..world.ask(&roster) };
    let end = in_secs(&world, 300);
    assert_eq!(world.refused(&patient), (Refusal::Resting, end, end));
}

#[test]
fn a_later_shorter_pushback_never_shortens_a_rest_and_a_day_is_the_longest() {
    let mut world = World::new(1, Settings::default());
    let [long, mut short, again, absurd] = [(); 4].map(|()| world.begin(0));
    world.settle_as(Settle { lease: long, ..rested(secs(50), RestScope::Account) });
    for scope in [RestScope::Source, RestScope::Account] {
        world.settle_as(Settle { lease: short, ..rested(secs(1), scope) });
        assert_eq!(world.view(0).resting_until, in_secs(&world, 50));
        short = again;
    }
    world.settle_as(Settle { lease: absurd, ..rested(Span::MAX, RestScope::Source) });
    assert_eq!(world.view(0).resting_until, in_secs(&world, 86_400));
}

#[test]
fn keys_of_one_account_rest_together_and_others_do_not() {
    let mut world = World::new(0, Settings::default());
    for (source, account) in [("k1", "acme"), ("k2", "acme"), ("k3", "k3")] {
        world.add(source, account, Limits::default());
    }
    rest(&mut world, 0, secs(5), RestScope::Account);
    let roster = world.roster(Strategy::Priority, &[&[0], &[1], &[2]]);
    let reserve = world.ask(&roster);
    assert_eq!(world.start(&reserve), 2);
    rest(&mut world, 2, secs(9), RestScope::Source);
    let reserve = world.ask(&roster);
    assert_eq!(world.refused(&reserve).1, in_secs(&world, 5));
}

#[test]
fn a_source_alone_rests_after_a_pushback_that_was_no_429() {
    let mut world = World::new(0, Settings::default());
    world.add("k1", "acme", Limits::default());
    world.add("k2", "acme", Limits::default());
    rest(&mut world, 0, secs(5), RestScope::Source);
    let roster = world.roster(Strategy::Priority, &[&[0], &[1]]);
    let reserve = world.ask(&roster);
    assert_eq!(world.start(&reserve), 1);
}

#[test]
fn a_call_rather_waits_for_a_well_source_than_goes_to_a_sick_one() {
    let mut settings = Settings::default();
    (settings.breaker.fail_threshold, settings.breaker.min_calls) = (1000, 1000);
    let mut world = World::new(3, settings);
    world.attempts(1, "fffffffff");
    world.attempts(2, "fffffffff");
    rest(&mut world, 0, secs(5), RestScope::Account);
    let tier = world.roster(Strategy::HealthAware, &[&[0, 1]]);
    let reserve = world.ask(&tier);
    assert_eq!(world.refused(&reserve), (Refusal::Resting, in_secs(&world, 5), in_secs(&world, 5)));
    let hurried = Reserve { wait_until: world.now.after(secs(4)), ..world.ask(&tier) };
    assert_eq!(world.start(&hurried), 1, "out of reach: the sick one it is");
    let tiers = world.roster(Strategy::HealthAware, &[&[0, 1], &[2]]);
    let reserve = world.ask(&tiers);
    assert_eq!(world.start(&reserve), 2, "a later tier is credible, however sick");
    let round_robin = world.roster(Strategy::RoundRobin, &[&[0, 1]]);
    let reserve = world.ask(&round_robin);
    assert_eq!(world.start(&reserve), 1, "a selector without health does not judge it");
    world.leave(reserve.lease);
    rest(&mut world, 1, secs(2), RestScope::Account);
    let reserve = world.ask(&tier);
    let (why, after, soonest) = world.refused(&reserve);
    assert_eq!((why, after), (Refusal::Resting, in_secs(&world, 5)), "no use waking when the sick one wakes");
    assert_eq!(soonest, in_secs(&world, 2));
}

#[test]
fn who_used_up_his_tries_is_no_stand_in_for_a_resting_source() {
    let mut world = World::new(2, Settings::default());
    rest(&mut world, 0, secs(5), RestScope::Account);
    let roster = world.roster(Strategy::RoundRobin, &[&[0, 1]]);
    let tried = Reserve { standing: alloc::vec![failed(0), failed(2)], ..world.ask(&roster) };
    assert_eq!(world.refused(&tried).0, Refusal::Resting);
    let amid = Reserve { standing: alloc::vec![failed(0), failed(1)], ..world.ask(&roster) };
    assert_eq!(world.start(&amid), 1);
}

/// F2: sticky 3, the first retry was immediate, the second waits its backoff in place though another could start.
#[test]
fn the_backoff_of_the_source_that_keeps_its_place_is_waited_for() {
    let mut world = World::new(2, Settings::default());
    let until = world.now.after(secs(3));
    let waiting = Standing { not_before: until, ..failed(2) };
    for strategy in [Strategy::Priority, Strategy::RoundRobin, Strategy::HealthAware] {
        let roster = world.roster(strategy, &[&[0], &[1]]);
        let reserve = Reserve { sticky: 3, standing: alloc::vec![waiting], ..world.ask(&roster) };
        assert_eq!(world.refused(&reserve), (Refusal::Backoff, Some(until), None), "{strategy:?}");
    }
    assert_eq!(world.pool.waiting(), 0, "no place is missing: nobody queues for a backoff");
    world.wait(secs(3));
    let roster = world.roster(Strategy::Priority, &[&[0], &[1]]);
    let reserve = Reserve { sticky: 3, standing: alloc::vec![waiting], ..world.ask(&roster) };
    assert_eq!(world.start(&reserve), 0);
}

#[test]
fn a_source_that_yielded_holds_nobody_up_with_its_backoff() {
    let mut world = World::new(2, Settings::default());
    let waiting = Standing { not_before: world.now.after(secs(3)), ..failed(2) };
    for strategy in [Strategy::RoundRobin, Strategy::HealthAware, Strategy::LeastInflight] {
        let roster = world.roster(strategy, &[&[0, 1]]);
        let reserve = Reserve { standing: alloc::vec![waiting], ..world.ask(&roster) };
        assert_eq!(world.start(&reserve), 1, "{strategy:?}");
    }
}

#[test]
fn in_a_new_round_the_turn_is_waited_for_but_a_later_tier_is_not_held_up() {
    let mut world = World::new(3, Settings::default());
    let standing = |now: Time| {
        let at = |last_attempt, seconds| Standing { last_attempt, not_before: now.after(secs(seconds)), ..failed(2) };
        alloc::vec![at(2, 4), at(4, 3)]
    };
    let roster = world.roster(Strategy::RoundRobin, &[&[0, 1]]);
    let reserve = Reserve { standing: standing(world.now), ..world.ask(&roster) };
    assert_eq!(world.refused(&reserve), (Refusal::Backoff, in_secs(&world, 4), None));
    let roster = world.roster(Strategy::RoundRobin, &[&[0, 1], &[2]]);
    let reserve = Reserve { standing: standing(world.now), ..world.ask(&roster) };
    assert_eq!(world.start(&reserve), 2);
}

#[test]
fn a_backoff_out_of_reach_lets_others_go() {
    let mut world = World::new(2, Settings::default());
    let waiting = Standing { not_before: world.now.after(secs(90)), ..failed(2) };
    let roster = world.roster(Strategy::Priority, &[&[0], &[1]]);
    let reserve = Reserve { sticky: 3, standing: alloc::vec![waiting], ..world.ask(&roster) };
    assert_eq!(world.start(&reserve), 1);
    let alone = world.roster(Strategy::Priority, &[&[0]]);
    let reserve = Reserve { sticky: 3, standing: alloc::vec![waiting], ..world.ask(&alone) };
    assert_eq!(world.refused(&reserve), (Refusal::Backoff, None, None));
}

#[test]
fn a_reason_that_a_wait_cures_wins_over_a_breaker() {
    let mut settings = Settings::default();
    (settings.breaker.fail_threshold, settings.breaker.cooldown) = (1, secs(30));
    let mut world = World::new(2, settings);
    world.attempts(0, "f");
    rest(&mut world, 1, secs(50), RestScope::Account);
    let roster = world.roster(Strategy::Priority, &[&[0], &[1]]);
    let reserve = world.ask(&roster);
    let soon = in_secs(&world, 30);
    assert_eq!(world.refused(&reserve), (Refusal::Resting, soon, soon), "the breaker ends first");
    world.wait(secs(30));
    assert_eq!(world.start(&reserve), 0);
}

#[test]
fn a_full_source_is_passed_over_and_alone_waited_for() {
    let mut world = World::limited(concurrency(1), Settings::default());
    world.add("s1", "a1", Limits::default());
    let held = world.begin(0);
    let pair = world.roster(Strategy::Priority, &[&[0], &[1]]);
    let reserve = world.ask(&pair);
    assert_eq!(world.start(&reserve), 1);
    let alone = world.roster(Strategy::Priority, &[&[0]]);
    let waiting = world.ask(&alone);
    assert_eq!(world.refused(&waiting), (Refusal::Full, None, None));
    assert!(world.granted().is_empty());
    world.settle(held, Outcome::Success);
    assert_eq!(world.granted(), [(waiting.lease.0, 0)]);
    assert_eq!(world.view(0).inflight, 1);
}

#[test]
fn everything_paced_is_waited_for_and_never_called_open() {
    let mut settings = Settings::default();
    settings.pace.initial = 1;
    let mut world = World::new(1, settings);
    let held = world.begin(0);
    let roster = world.roster(Strategy::HealthAware, &[&[0]]);
    let waiting = world.ask(&roster);
    assert_eq!(world.refused(&waiting), (Refusal::Paced, None, None));
    world.settle(held, Outcome::Transient);
    assert_eq!(world.granted(), [(waiting.lease.0, 0)]);
}

/// G14: four in flight, one 429: two may stay; three successes lift it to 3.24.
#[test]
fn a_429_halves_what_is_in_flight_and_successes_lift_it_again() {
    let mut world = World::new(1, Settings::default());
    let leases: Vec<LeaseId> = (0..4).map(|_| world.begin(0)).collect();
    world.settle(leases[0], Outcome::RateLimited);
    assert_eq!(world.view(0).pace_limit_ppm, Some(2_000_000));
    for lease in &leases[1..] {
        world.settle(*lease, Outcome::Success);
    }
    assert_eq!(world.view(0).pace_limit_ppm, Some(3_244_827));
    let lease = world.begin(0);
    world.settle_as(Settle { lease, outcome: Outcome::Transient, overload: true, ..settled() });
    assert_eq!(world.view(0).pace_limit_ppm, Some(1_622_413), "a 529 cuts too");
}

#[test]
fn requests_a_minute_are_a_wait_with_a_known_end() {
    let mut world = World::limited(Limits { rpm: 2, ..Limits::default() }, Settings::default());
    world.attempts(0, "ss");
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let waiting = world.ask(&roster);
    let refill = in_secs(&world, 30);
    assert_eq!(world.refused(&waiting), (Refusal::Full, refill, refill));
    let hurried = Reserve { wait_until: world.now.after(secs(29)), ..world.ask(&roster) };
    assert_eq!(world.refused(&hurried), (Refusal::Full, None, refill), "a slot is waited for to the end");
    world.wait(secs(30));
    assert_eq!(world.start(&waiting), 0);
}

#[test]
fn tokens_are_charged_by_estimate_and_corrected_by_usage() {
    let mut world = World::limited(Limits { tpm: 600, ..Limits::default() }, Settings::default());
    let used = world.begin(0);
    world.settle_as(Settle { lease: used, tokens: Some(909), ..settled() });
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let reserve = world.ask(&roster);
    assert_eq!(world.refused(&reserve).1, Some(world.now.after(Span(31_900_000))), "319 tokens at 10 a second");
    world.leave(reserve.lease);
    world.wait(secs(120));
    let large = Reserve { tokens: 600, ..world.ask(&roster) };
    world.start(&large);
    world.settle_as(Settle { lease: large.lease, tokens: Some(100), ..settled() });
    let next = Reserve { tokens: 500, ..world.ask(&roster) };
    assert_eq!(world.start(&next), 0, "what was not used came back");
}

#[test]
fn an_unused_grant_gives_everything_back() {
    let limits = Limits { max_concurrency: 1, rpm: 1, tpm: 10 };
    let mut world = World::limited(limits, Settings::default());
    for _ in 0..5 {
        let lease = world.begin(0);
        world.leave(lease);
    }
    assert_eq!((world.view(0).inflight, world.view(0).source_inflight), (0, 0));
}

#[test]
fn the_line_is_served_first_come_first_served_and_nobody_overtakes() {
    let mut world = World::limited(concurrency(2), Settings::default());
    let mut held = alloc::vec![world.begin(0), world.begin(0)];
    let roster = world.roster(Strategy::RoundRobin, &[&[0]]);
    let line: Vec<Reserve> = (0..20).map(|_| world.ask(&roster)).collect();
    for reserve in &line {
        world.refused(reserve);
    }
    world.refused(&line[7]);
    let mut served = Vec::new();
    while let Some(lease) = held.pop() {
        world.settle(lease, Outcome::Success);
        let newcomer = world.ask(&roster);
        if served.len() < line.len() - 2 {
            world.refused(&newcomer);
            world.leave(newcomer.lease);
        }
        for (lease, _) in world.granted() {
            served.push(lease);
            held.insert(0, LeaseId(lease));
        }
        assert!(world.view(0).inflight <= 2);
        world.leave(newcomer.lease);
    }
    assert_eq!(served, line.iter().map(|reserve| reserve.lease.0).collect::<Vec<_>>());
}

#[test]
fn one_freed_slot_wakes_one() {
    let mut world = World::limited(concurrency(1), Settings::default());
    let held = world.begin(0);
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    for _ in 0..50 {
        let reserve = world.ask(&roster);
        world.refused(&reserve);
    }
    world.settle(held, Outcome::Success);
    assert_eq!((world.granted().len(), world.pool.waiting()), (1, 49));
}

#[test]
fn who_waits_for_another_source_does_not_block_the_line() {
    let mut world = World::limited(concurrency(1), Settings::default());
    world.add("s1", "a1", concurrency(1));
    let [first, second] = [world.begin(0), world.begin(1)];
    let [one, two] = [0, 1].map(|at| world.roster(Strategy::Priority, &[&[at]]));
    let (early, late) = (world.ask(&one), world.ask(&two));
    world.refused(&early);
    world.refused(&late);
    world.settle(second, Outcome::Success);
    assert_eq!(world.granted(), [(late.lease.0, 0)]);
    world.settle(first, Outcome::Success);
    assert_eq!(world.granted(), [(early.lease.0, 0)]);
}

#[test]
fn who_left_the_line_is_served_no_more() {
    let mut world = World::limited(concurrency(1), Settings::default());
    let held = world.begin(0);
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let (gone, next) = (world.ask(&roster), world.ask(&roster));
    world.refused(&gone);
    world.refused(&next);
    world.leave(gone.lease);
    world.settle(held, Outcome::Success);
    assert_eq!(world.granted(), [(next.lease.0, 0)]);
}

#[test]
fn a_grant_that_was_not_fetched_can_be_given_back_or_asked_for() {
    let mut world = World::limited(concurrency(1), Settings::default());
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let held = world.begin(0);
    let (first, second) = (world.ask(&roster), world.ask(&roster));
    world.refused(&first);
    world.refused(&second);
    world.settle(held, Outcome::Success);
    world.leave(first.lease);
    assert_eq!(world.start(&second), 0, "granted by the departure, fetched by asking");
    assert!(world.granted().is_empty());
}

#[test]
fn the_end_of_a_rest_serves_the_line_in_its_order() {
    let mut world = World::limited(concurrency(2), Settings::default());
    rest(&mut world, 0, secs(5), RestScope::Account);
    world.attempts(0, "");
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let line: Vec<Reserve> = (0..5).map(|_| world.ask(&roster)).collect();
    for reserve in &line {
        assert_eq!(world.refused(reserve).0, Refusal::Resting);
    }
    world.wait(secs(5));
    // All five wake at once; the last one's question comes first.
    assert_eq!(world.refused(&line[4]).0, Refusal::Paced, "the 429 left a pace of one");
    assert_eq!(world.granted(), [(line[0].lease.0, 0)]);
    assert_eq!(world.view(0).inflight, 1);
}

/// Who can wait for less is refused for less: one who can wait longer is woken by what the other would not live to see.
#[test]
fn who_can_wait_longer_is_woken_though_one_like_him_was_refused_first() {
    let mut world = World::limited(concurrency(1), Settings::default());
    world.begin(0);
    let (resting, _) = world.add("s1", "a1", Limits::default());
    let (first, second) = (world.begin(resting), world.begin(resting));
    world.settle_as(Settle { lease: first, ..rested(secs(2), RestScope::Source) });
    let roster = world.roster(Strategy::Priority, &[&[0], &[resting]]);
    let short = Reserve { wait_until: world.now.after(secs(5)), ..world.ask(&roster) };
    let long = Reserve { wait_until: world.now.after(secs(20)), ..world.ask(&roster) };
    world.refused(&short);
    world.refused(&long);
    world.settle_as(Settle { lease: second, ..rested(secs(8), RestScope::Source) });
    for _ in 0..4 {
        world.wait(secs(2));
        world.pool.apply(world.now, &Op::Renew { lease: LeaseId(999) });
    }
    assert_eq!(world.granted(), [(long.lease.0, 1)]);
}

#[test]
fn an_expired_lease_serves_the_line() {
    let mut world = World::limited(concurrency(1), Settings::default());
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let crashed = Reserve { ttl: secs(2), ..world.ask(&roster) };
    world.start(&crashed);
    let waiting = world.ask(&roster);
    world.refused(&waiting);
    world.wait(secs(2));
    world.pool.apply(world.now, &Op::Renew { lease: LeaseId(999) });
    assert_eq!(world.granted(), [(waiting.lease.0, 0)]);
}

#[test]
fn a_grant_that_expired_unfetched_is_not_handed_out() {
    let mut world = World::limited(concurrency(1), Settings::default());
    let held = world.begin(0);
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let lost = Reserve { ttl: secs(2), ..world.ask(&roster) };
    world.refused(&lost);
    world.settle(held, Outcome::Success);
    world.wait(secs(2));
    world.pool.apply(world.now, &Op::Renew { lease: LeaseId(999) });
    assert_eq!((world.granted(), world.view(0).inflight), (Vec::new(), 0));
}

#[test]
fn whoever_can_wait_no_more_has_left_the_line() {
    let mut world = World::limited(concurrency(1), Settings::default());
    let held = world.begin(0);
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let hurried = Reserve { wait_until: world.now.after(secs(1)), ..world.ask(&roster) };
    let patient = world.ask(&roster);
    world.refused(&hurried);
    world.refused(&patient);
    world.wait(secs(2));
    world.settle(held, Outcome::Success);
    assert_eq!(world.granted(), [(patient.lease.0, 0)]);
}

#[test]
fn many_small_requests_do_not_starve_a_large_one() {
    let mut world = World::limited(Limits { tpm: 600, ..Limits::default() }, Settings::default());
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let first = Reserve { tokens: 400, ..world.ask(&roster) };
    world.start(&first);
    let large = Reserve { tokens: 500, ..world.ask(&roster) };
    assert_eq!(world.refused(&large).1, in_secs(&world, 30));
    let small = Reserve { tokens: 1, ..world.ask(&roster) };
    assert_eq!(world.refused(&small), (Refusal::Full, None, None), "200 are left, but the large one was first");
    world.wait(secs(30));
    let third = Reserve { tokens: 1, ..world.ask(&roster) };
    world.refused(&third);
    assert_eq!(world.granted(), [(large.lease.0, 0)]);
    world.wait(secs(1));
    world.pool.apply(world.now, &Op::Renew { lease: LeaseId(999) });
    assert_eq!(world.granted(), [(small.lease.0, 0), (third.lease.0, 0)]);
}

/// L1: the place that calls wait for is freed by a pushback, and rests. One of them hears until when, for nobody else may
/// come by then; if he leaves, the next does.
#[test]
fn who_waits_for_a_place_that_comes_to_rest_is_told_until_when() {
    let mut world = World::limited(concurrency(1), Settings::default());
    let held = world.begin(0);
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let waiting = [0, 1, 2].map(|_| world.ask(&roster));
    for reserve in &waiting {
        assert_eq!(world.refused(reserve), (Refusal::Full, None, None));
    }
    world.apply(&Op::Settle(Settle { lease: held, ..rested(secs(5), RestScope::Source) }));
    for reserve in &waiting[..2] {
        let told = world.pool.pop_granted();
        let end = in_secs(&world, 5);
        assert!(
            matches!(told, Some((lease, Reply::Refused { why: Refusal::Resting, after, soonest, .. }))
                if lease == reserve.lease && after == end && soonest == end),
            "{told:?}"
        );
        assert_eq!(world.pool.pop_granted(), None, "one is enough");
        world.leave(reserve.lease);
    }
    let last = &waiting[2];
    assert!(world.pool.pop_granted().is_some_and(|(lease, _)| lease == last.lease));
    assert_eq!(world.pool.waiting(), 1);
    world.wait(secs(5));
    world.start(last);
    assert_eq!(world.pool.waiting(), 0);
}

/// F1: a reload may open what somebody stands in line for; a look at the line is enough.
#[test]
fn what_a_reload_frees_is_given_out() {
    let mut world = World::limited(concurrency(1), Settings::default());
    world.begin(0);
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let waiting = world.ask(&roster);
    world.refused(&waiting);
    world.add("s0", "a0", concurrency(2));
    world.pool.look(world.now);
    assert_eq!(world.granted(), [(waiting.lease.0, 0)]);
}

/// G14: the time that he named is over when his question comes, but he asks for more of it: he is still the first.
#[test]
fn who_asks_again_keeps_his_place() {
    let mut world = World::limited(concurrency(1), Settings::default());
    let held = world.begin(0);
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let first = Reserve { wait_until: world.now.after(secs(1)), ..world.ask(&roster) };
    let second = world.ask(&roster);
    world.refused(&first);
    world.refused(&second);
    world.wait(secs(2));
    let first = Reserve { wait_until: world.now.after(secs(1)), ..first };
    world.refused(&first);
    world.settle(held, Outcome::Success);
    assert_eq!(world.granted(), [(first.lease.0, 0)]);
}

/// G7: the source that a call waits for dies under it. It hears so at once and does not wait its time out in vain.
#[test]
fn who_waits_in_vain_is_told() {
    let mut world = World::limited(concurrency(1), Settings::default());
    let held = world.begin(0);
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let waiting = world.ask(&roster);
    world.refused(&waiting);
    world.settle(held, Outcome::SourceDead);
    let told = world.pool.pop_granted();
    let soonest = in_secs(&world, 60);
    assert!(matches!(told, Some((lease, Reply::Refused { why: Refusal::Breaker, after: None, soonest: told, .. }))
            if lease == waiting.lease && told == soonest));
    assert_eq!(world.pool.waiting(), 0);
}

#[test]
fn news_for_who_has_left_or_asked_again_is_taken_back() {
    for asks_again in [false, true] {
        let mut world = World::limited(concurrency(1), Settings::default());
        let held = world.begin(0);
        let roster = world.roster(Strategy::Priority, &[&[0]]);
        let waiting = world.ask(&roster);
        world.refused(&waiting);
        world.settle(held, Outcome::SourceDead);
        match asks_again {
            true => assert_eq!(world.refused(&waiting).0, Refusal::Breaker),
            false => world.leave(waiting.lease),
        }
        assert!(world.pool.pop_granted().is_none(), "an old refusal must not follow a newer answer");
    }
}

#[test]
fn who_asks_again_in_line_is_served_by_what_he_asked_last() {
    let mut world = World::limited(concurrency(1), Settings::default());
    world.add("s1", "a1", concurrency(1));
    let [first, second] = [world.begin(0), world.begin(1)];
    let roster = world.roster(Strategy::Priority, &[&[0], &[1]]);
    let waiting = world.ask(&roster);
    world.refused(&waiting);
    let out = Standing { out: true, ..Standing::default() };
    let wait_until = world.now.after(secs(1000));
    world.refused(&Reserve { standing: alloc::vec![out], wait_until, ..waiting.clone() });
    world.wait(secs(500));
    world.settle(first, Outcome::Success);
    assert_eq!(world.granted(), []);
    world.settle(second, Outcome::Success);
    assert_eq!(world.granted(), [(waiting.lease.0, 1)]);
}

#[test]
fn a_full_line_turns_newcomers_away_but_tells_them_why() {
    let mut world = World::limited(concurrency(1), Settings { max_queue: 2, ..Settings::default() });
    let _held = world.begin(0);
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    for _ in 0..5 {
        let reserve = world.ask(&roster);
        assert_eq!(world.refused(&reserve).0, Refusal::Full);
    }
    assert_eq!(world.pool.waiting(), 2);
}

#[test]
fn a_raised_limit_serves_the_line() {
    let mut world = World::limited(concurrency(1), Settings::default());
    let _held = world.begin(0);
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let waiting = world.ask(&roster);
    world.refused(&waiting);
    let source = SourceSpec { name: "s0", account: "a0", max_concurrency: 2, rpm: 0, tpm: 0 };
    world.pool.register(&TargetSpec { name: "s0/m0", provider: "p", model: "m", source });
    world.pool.apply(world.now, &Op::Renew { lease: LeaseId(999) });
    assert_eq!(world.granted(), [(waiting.lease.0, 0)]);
}

#[test]
fn refusals_tell_when_anything_last_succeeded() {
    let mut world = World::limited(concurrency(1), Settings::default());
    world.add("s1", "a1", Limits::default());
    let _held = world.begin(0);
    world.wait(secs(7));
    world.attempts(1, "s");
    let success = world.now;
    world.wait(secs(7));
    world.attempts(1, "f");
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let reserve = world.ask(&roster);
    assert!(matches!(world.reserve(&reserve), Reply::Refused { progress, .. } if progress == success));
}
