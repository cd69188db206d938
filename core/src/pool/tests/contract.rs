//! The breaker's contract, in deterministic sequences (G1–G7): each test is one sentence of it.

use super::*;
use BreakerState::{Closed, HalfOpen, Open};

/// So many failures in a row never happen in these tests: the rate alone speaks.
fn rate_only() -> Settings {
    with_breaker(|breaker| breaker.fail_threshold = 1_000_000)
}

/// So many samples never gather: the streak alone speaks.
fn streak_only(fail_threshold: u32) -> Settings {
    with_breaker(|breaker| (breaker.fail_threshold, breaker.min_calls) = (fail_threshold, 1_000_000))
}

fn with_breaker<R>(change: impl FnOnce(&mut BreakerSettings) -> R) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings.breaker);
    settings
}

fn open_for(world: &World) -> Span {
    world.view(0).open_until.expect("it is open").since(world.now)
}

/// Waits out the open time and ends the probe so.
fn probe(world: &mut World, outcome: Outcome) -> Option<String> {
    let rest = open_for(world);
    world.wait(rest);
    said(world.attempt(0, outcome))
}

#[test]
fn a_bad_rate_opens_at_exactly_min_calls_samples() {
    let mut world = World::new(1, rate_only());
    world.attempts(0, "ffffffffs");
    assert_eq!((world.state(0), world.view(0).samples), (Closed, 9));
    assert_eq!(said(world.attempt(0, Outcome::Transient)).as_deref(), Some("closed → open"));
    assert_eq!((world.view(0).samples, world.view(0).window_failures), (10, 9));
}

#[test]
fn below_min_calls_the_rate_never_opens() {
    let mut world = World::new(1, rate_only());
    for _ in 0..20 {
        world.attempts(0, "fffffffff");
        world.wait(secs(60));
    }
    assert_eq!(world.state(0), Closed);
}

#[test]
fn exactly_the_fail_rate_opens_and_just_below_does_not() {
    let mut world = World::new(2, rate_only());
    world.attempts(0, "ssssffffff");
    assert_eq!(world.state(0), Open, "6 of 10");
    world.attempts(1, "sssssfffff");
    world.attempts(1, "sfsf");
    assert_eq!(world.state(1), Closed, "7 of 14");
}

/// Real successes are samples, and a success never opens: with five failures of nine, the tenth sample says 0.5 or 0.6.
#[test]
fn a_success_never_opens() {
    let mut world = World::new(1, rate_only());
    world.attempts(0, "ffffffsss");
    world.attempts(0, "s");
    assert_eq!((world.view(0).samples, world.view(0).window_failures, world.state(0)), (10, 6, Closed));
    world.attempts(0, "f");
    assert_eq!(world.state(0), Open);
}

#[test]
fn the_sources_own_concurrency_raises_the_consecutive_threshold() {
    let settings = || with_breaker(|breaker| breaker.min_calls = 1_000_000);
    for (max_concurrency, threshold) in [(0, 5), (2, 5), (3, 6), (64, 128)] {
        let mut world = World::limited(Limits { max_concurrency, ..Limits::default() }, settings());
        for _ in 1..threshold {
            world.attempts(0, "f");
        }
        assert_eq!(world.state(0), Closed, "{max_concurrency}");
        world.attempts(0, "f");
        assert_eq!(world.state(0), Open, "{max_concurrency}");
    }
}

#[test]
fn nobody_elses_concurrency_raises_it() {
    let mut settings = with_breaker(|breaker| breaker.min_calls = 1_000_000);
    settings.pace.ceiling = 100;
    let mut world = World::new(1, settings);
    world.add("wide", "wide", Limits { max_concurrency: 100, ..Limits::default() });
    world.attempts(0, "fffff");
    assert_eq!(world.state(0), Open);
}

#[test]
fn the_open_time_doubles_with_every_failed_probe_up_to_its_cap() {
    let mut world = World::new(1, streak_only(1));
    world.attempts(0, "f");
    assert_eq!((open_for(&world), world.view(0).reopen_streak), (secs(60), 0), "a plain cooldown");
    let mut seen = Vec::new();
    for _ in 0..6 {
        probe(&mut world, Outcome::Transient);
        seen.push(open_for(&world).as_secs_ceil());
    }
    assert_eq!(seen, [60, 120, 240, 300, 300, 300]);
    assert_eq!(world.view(0).reopen_streak, 6);
}

#[test]
fn a_cooldown_above_the_cap_is_its_own_cap() {
    let settings = with_breaker(|breaker| (breaker.fail_threshold, breaker.cooldown) = (1, secs(1000)));
    let mut world = World::new(1, settings);
    world.attempts(0, "f");
    probe(&mut world, Outcome::Transient);
    probe(&mut world, Outcome::Transient);
    assert_eq!(open_for(&world), secs(1000));
}

#[test]
fn every_opening_by_rate_raises_the_streak() {
    let mut world = World::new(1, rate_only());
    let mut seen = Vec::new();
    for _ in 0..3 {
        while world.state(0) == Closed {
            world.attempts(0, "f");
        }
        seen.push((open_for(&world).as_secs_ceil(), world.view(0).reopen_streak));
        probe(&mut world, Outcome::Success);
    }
    assert_eq!(seen, [(60, 1), (120, 2), (240, 3)]);
}

#[test]
fn the_streak_decays_only_after_the_stable_period() {
    let mut world = World::new(1, streak_only(1));
    world.attempts(0, "f");
    probe(&mut world, Outcome::Transient);
    probe(&mut world, Outcome::Transient);
    assert_eq!((open_for(&world), world.view(0).reopen_streak), (secs(120), 2));
    assert_eq!(probe(&mut world, Outcome::Success).as_deref(), Some("half_open → closed"));
    assert_eq!(world.view(0).reopen_streak, 2, "closing does not clear it");
    world.wait(Span(secs(240).0 - 1));
    world.attempts(0, "s");
    assert_eq!(world.view(0).reopen_streak, 2, "one microsecond short of 2 × 120 s");
    world.wait(Span(1));
    assert_eq!(world.view(0).reopen_streak, 2, "time alone does nothing");
    world.attempts(0, "s");
    assert_eq!(world.view(0).reopen_streak, 0);
}

#[test]
fn a_consecutive_opening_uses_one_plain_cooldown_whatever_the_streak() {
    let mut world = World::new(1, streak_only(2));
    world.attempts(0, "ff");
    for _ in 0..3 {
        probe(&mut world, Outcome::Transient);
    }
    probe(&mut world, Outcome::Success);
    world.attempts(0, "ff");
    assert_eq!((world.state(0), open_for(&world), world.view(0).reopen_streak), (Open, secs(60), 3));
}

#[test]
fn what_is_no_evidence_leaves_both_counters_and_the_health_alone() {
    let mut world = World::new(1, Settings::default());
    world.attempts(0, "sff");
    let before = (world.view(0).failures, world.view(0).samples, world.view(0).ewma_ppm);
    for outcome in [Outcome::ResultInvalid, Outcome::RequestRejected, Outcome::Cancelled] {
        for _ in 0..50 {
            world.attempt(0, outcome);
        }
        assert_eq!((world.view(0).failures, world.view(0).samples, world.view(0).ewma_ppm), before, "{outcome:?}");
    }
}

#[test]
fn a_pulse_of_429_never_opens() {
    let mut world = World::new(1, Settings::default());
    for _ in 0..200 {
        world.attempts(0, "l");
    }
    let view = world.view(0);
    assert_eq!((view.state, view.failures, view.samples), (Closed, 0, 0));
    assert!(view.ewma_ppm < 1000, "health hears of it");
}

#[test]
fn a_429_is_a_failure_on_wish() {
    let mut world = World::new(1, with_breaker(|breaker| breaker.count_rate_limited = true));
    world.attempts(0, "lllll");
    assert_eq!(world.state(0), Open);
}

/// Twelve attempts under way when the upstream hangs: five timeouts open, the other seven are of an old epoch.
#[test]
fn a_timeout_pulse_opens_without_touching_the_streak_and_heals_after_one_cooldown() {
    let mut world = World::new(1, Settings::default());
    let leases: Vec<LeaseId> = (0..12).map(|_| world.begin(0)).collect();
    world.wait(secs(10));
    let changes: Vec<_> = leases.into_iter().filter_map(|lease| world.settle(lease, Outcome::Transient)).collect();
    assert_eq!(changes.len(), 1);
    let view = world.view(0);
    assert_eq!((view.state, view.failures, view.samples, view.reopen_streak), (Open, 5, 5, 0));
    assert_eq!(open_for(&world), secs(60));
    assert_eq!(probe(&mut world, Outcome::Success).as_deref(), Some("half_open → closed"));
    world.attempts(0, "sfsfsf");
    assert_eq!((world.state(0), world.view(0).reopen_streak), (Closed, 0));
}

#[test]
fn opening_by_rate_sets_failures_to_the_threshold() {
    let mut world = World::new(1, with_breaker(|breaker| breaker.fail_threshold = 7));
    world.attempts(0, "ffffssffsf");
    assert_eq!((world.state(0), world.view(0).failures), (Open, 7));
}

#[test]
fn a_healthy_window_suppresses_a_streak() {
    let mut world = World::new(2, Settings::default());
    world.attempts(0, "sssssssssss");
    world.attempts(0, "ffffffffff");
    assert_eq!((world.state(0), world.view(0).failures), (Closed, 10), "10 of 21 failed: noise");
    world.attempts(1, "sssfffff");
    assert_eq!(world.state(1), Open, "eight samples acquit nobody");
}

/// Twenty successes in the window, then nothing but failures: f / (20 + f) reaches 0.6 at f = 30, the fiftieth sample.
#[test]
fn a_warm_targets_sudden_death_is_caught_by_the_rate_at_the_fiftieth_sample() {
    let mut world = World::new(1, Settings::default());
    for _ in 0..20 {
        world.attempts(0, "s");
    }
    for _ in 0..29 {
        world.attempts(0, "f");
    }
    assert_eq!((world.state(0), world.view(0).samples), (Closed, 49));
    world.attempts(0, "f");
    assert_eq!((world.state(0), world.view(0).samples, world.view(0).reopen_streak), (Open, 50, 1));
}

#[test]
fn a_result_of_an_old_epoch_changes_nothing() {
    let mut world = World::new(1, streak_only(2));
    let [slow_success, slow_failure, dead] = [world.begin(0), world.begin(0), world.begin(0)];
    world.attempts(0, "ff");
    let open = world.view(0).open_until;
    assert_eq!(world.settle(slow_success, Outcome::Success), None);
    assert_eq!((world.state(0), world.view(0).open_until, world.view(0).failures), (Open, open, 2));
    probe(&mut world, Outcome::Success);
    assert_eq!(world.settle(slow_failure, Outcome::Transient), None);
    assert_eq!(world.settle(dead, Outcome::SourceDead), None);
    assert_eq!((world.state(0), world.view(0).failures, world.view(0).epoch), (Closed, 0, 1));
}

#[test]
fn a_lost_probe_is_reclaimed_at_its_ttl() {
    let settings = with_breaker(|breaker| (breaker.fail_threshold, breaker.probe_ttl) = (1, secs(4)));
    let mut world = World::new(1, settings);
    world.attempts(0, "f");
    world.wait(secs(60));
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let lost = world.ask(&roster);
    let half_open = BreakerChange { target: world.targets[0], from: Open, to: HalfOpen };
    assert_eq!(world.reserve(&lost), Reply::Granted { choice: Choice(0), probe: true, change: Some(half_open) });
    world.wait(Span(secs(4).0 - 1));
    let next = world.ask(&roster);
    let (why, after, soonest) = world.refused(&next);
    assert_eq!((why, after, soonest), (Refusal::Breaker, None, Some(world.now.after(Span(1)))));
    world.wait(Span(1));
    assert_eq!(world.reserve(&next), Reply::Granted { choice: Choice(0), probe: true, change: None });
    assert_eq!(world.settle(lost.lease, Outcome::Transient), None, "the lost one has nothing to say any more");
    assert_eq!(said(world.settle(next.lease, Outcome::Success)).as_deref(), Some("half_open → closed"));
}

/// An answer may take longer than the TTL; a target that has only such answers must close all the same.
#[test]
fn a_probe_that_outlived_its_slot_still_closes() {
    let mut world = World::new(1, streak_only(1));
    world.attempts(0, "f");
    world.wait(secs(60));
    let slow = world.begin(0);
    world.wait(secs(61));
    let second = world.begin(0);
    assert_eq!(said(world.settle(slow, Outcome::Success)).as_deref(), Some("half_open → closed"));
    assert_eq!(world.settle(second, Outcome::Success), None);
    assert_eq!(world.state(0), Closed);
}

#[test]
fn a_probes_lease_that_expires_frees_the_slot() {
    let mut world = World::new(1, streak_only(1));
    world.attempts(0, "f");
    world.wait(secs(60));
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let crashed = Reserve { ttl: secs(5), ..world.ask(&roster) };
    world.start(&crashed);
    world.wait(secs(5));
    let next = world.ask(&roster);
    assert_eq!(world.start(&next), 0);
    assert_eq!(world.view(0).inflight, 1);
}

#[test]
fn fifty_waiters_at_half_open_are_one_probe() {
    let mut world = World::new(1, streak_only(1));
    world.attempts(0, "f");
    world.wait(secs(60));
    let roster = world.roster(Strategy::HealthAware, &[&[0]]);
    let asked: Vec<Reserve> = (0..50).map(|_| world.ask(&roster)).collect();
    let started: Vec<&Reserve> =
        asked.iter().filter(|reserve| matches!(world.reserve(reserve), Reply::Granted { probe: true, .. })).collect();
    assert_eq!((started.len(), world.view(0).inflight), (1, 1));
    assert!(world.granted().is_empty(), "nobody waits for a breaker");
    assert_eq!(said(world.settle(started[0].lease, Outcome::Success)).as_deref(), Some("half_open → closed"));
}

#[test]
fn a_neutral_probe_frees_the_slot_at_once_and_changes_nothing_else() {
    for outcome in [Outcome::RequestRejected, Outcome::RateLimited, Outcome::Cancelled, Outcome::ResultInvalid] {
        let mut world = World::new(1, streak_only(1));
        world.attempts(0, "f");
        world.wait(secs(60));
        assert_eq!(world.attempt(0, outcome), None);
        let view = world.view(0);
        assert_eq!((view.state, view.failures, view.reopen_streak, view.epoch), (HalfOpen, 1, 0, 1), "{outcome:?}");
        assert_eq!(said(world.attempt(0, Outcome::Success)).as_deref(), Some("half_open → closed"));
    }
}

#[test]
fn an_unused_probe_can_be_taken_again_at_once() {
    let mut world = World::new(1, streak_only(1));
    world.attempts(0, "f");
    world.wait(secs(60));
    let unused = world.begin(0);
    world.leave(unused);
    let view = world.view(0);
    assert_eq!((view.probing, view.failures, view.reopen_streak, view.inflight), (false, 1, 0, 0));
    assert_eq!(said(world.attempt(0, Outcome::Transient)).as_deref(), Some("half_open → open"));
}

#[test]
fn a_dead_key_opens_every_target_of_its_source_and_no_other() {
    let mut world = World::new(1, Settings::default());
    let (one, _) = world.add("key", "acme", Limits::default());
    let (two, _) = world.add("key", "acme", Limits::default());
    let (other, _) = world.add("other-key", "acme", Limits::default());
    assert_eq!(said(world.attempt(one, Outcome::SourceDead)).as_deref(), Some("closed → open"));
    assert_eq!([0, one, two, other].map(|at| world.state(at)), [Closed, Open, Open, Closed]);
    assert_eq!((world.view(two).epoch, world.view(two).reopen_streak, world.view(two).transitions.opened), (1, 0, 1));
}

/// Sixty-four attempts that meet a dead key are one discovery, not sixty-four.
#[test]
fn a_dead_key_found_again_under_an_old_epoch_opens_nothing() {
    let mut world = World::new(0, Settings::default());
    let (one, _) = world.add("key", "acme", Limits::default());
    let (two, _) = world.add("key", "acme", Limits::default());
    let leases = [world.begin(one), world.begin(one)];
    world.settle(leases[0], Outcome::SourceDead);
    world.wait(secs(60));
    world.attempt(two, Outcome::Success);
    world.settle(leases[1], Outcome::SourceDead);
    assert_eq!([one, two].map(|at| (world.state(at), world.view(at).epoch)), [(Open, 1), (Closed, 1)]);
}

#[test]
fn a_slow_success_is_a_failure_for_the_breaker_and_a_success_for_health() {
    let mut world = World::new(1, streak_only(2));
    world.attempts(0, "l");
    let before = world.view(0).ewma_ppm;
    for _ in 0..2 {
        let lease = world.begin(0);
        world.settle_as(Settle { lease, slow: true, ..settled() });
    }
    assert_eq!(world.state(0), Open);
    assert!(world.view(0).ewma_ppm > before);
}

#[test]
fn everything_refused_by_breakers_fails_fast_with_the_soonest_end() {
    let mut world = World::new(2, streak_only(1));
    world.attempts(0, "f");
    world.wait(secs(20));
    world.attempts(1, "f");
    let roster = world.roster(Strategy::HealthAware, &[&[0, 1]]);
    let reserve = world.ask(&roster);
    assert_eq!(world.refused(&reserve), (Refusal::Breaker, None, Some(world.now.after(secs(40)))));
    assert_eq!(world.pool.waiting(), 0);
}

#[test]
fn a_settled_lease_settles_once_and_an_expired_one_not_at_all() {
    let mut world = World::new(1, Settings::default());
    let lease = world.begin(0);
    world.settle(lease, Outcome::Transient);
    let once = world.view(0).ewma_ppm;
    world.settle(lease, Outcome::Transient);
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let expiring = Reserve { ttl: secs(1), ..world.ask(&roster) };
    world.start(&expiring);
    world.wait(secs(1));
    world.settle(expiring.lease, Outcome::Transient);
    let view = world.view(0);
    assert_eq!((view.failures, view.ewma_ppm, view.inflight, view.source_inflight), (1, once, 0, 0));
}

#[test]
fn a_renewed_lease_lives_on() {
    let mut world = World::new(1, Settings::default());
    let roster = world.roster(Strategy::Priority, &[&[0]]);
    let long = Reserve { ttl: secs(10), ..world.ask(&roster) };
    world.start(&long);
    for _ in 0..5 {
        world.wait(secs(9));
        assert_eq!(world.pool.apply(world.now, &Op::Renew { lease: long.lease }), Reply::Done);
    }
    assert_eq!((world.view(0).inflight, world.view(0).source_inflight), (1, 1));
    world.settle(long.lease, Outcome::Success);
    assert_eq!(world.view(0).samples, 1);
}

#[test]
fn a_reload_keeps_what_was_learnt() {
    let mut world = World::new(2, streak_only(3));
    world.attempts(0, "ff");
    let window = with_breaker(|breaker| (breaker.fail_threshold, breaker.window) = (3, secs(600)));
    world.pool.configure(window);
    assert_eq!((world.view(0).failures, world.view(0).samples), (2, 2));
    world.pool.keep_only(&[world.targets[1]]);
    assert_eq!(world.pool.views(world.now).map(|view| view.name).collect::<Vec<_>>(), ["s1/m1"]);
    world.attempts(0, "f");
    let same = world.pool.register(&TargetSpec {
        name: "s0/m0",
        provider: "p",
        model: "m",
        source: SourceSpec { name: "s0", account: "a0", max_concurrency: 0, rpm: 0, tpm: 0 },
    });
    assert_eq!(same.0, world.targets[0]);
    assert_eq!(world.state(0), Open, "calls under way taught it meanwhile");
}
