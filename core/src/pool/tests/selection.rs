//! Who is tried first, and where a call goes after failures (G8–G11, F2).

use super::*;

const BALANCED: [Strategy; 3] = [Strategy::HealthAware, Strategy::RoundRobin, Strategy::LeastInflight];

/// A breaker that never opens: these tests are about the order.
fn calm() -> Settings {
    let mut settings = Settings::default();
    (settings.breaker.fail_threshold, settings.breaker.min_calls) = (1_000_000, 1_000_000);
    settings
}

/// One call over a roster: every attempt ends as `outcome` says, `sticky` tries a turn; whom it asked.
fn walk(world: &mut World, roster: &Arc<Roster>, sticky: u16, outcomes: &[Outcome]) -> Vec<usize> {
    let mut standing: Vec<Standing> = Vec::new();
    let mut asked = Vec::new();
    for (attempt, outcome) in outcomes.iter().enumerate() {
        let reserve = Reserve { sticky, standing: standing.clone(), ..world.ask(roster) };
        let choice = world.start(&reserve);
        asked.push(choice);
        world.settle(reserve.lease, *outcome);
        standing.resize(roster.entries.len(), Standing::default());
        standing[choice].last_attempt = attempt as u16 + 1;
        if *outcome == Outcome::Transient {
            standing[choice].failed += 1;
        }
    }
    asked
}

#[test]
fn a_priority_list_is_an_order() {
    let mut world = World::new(3, calm());
    let roster = world.roster(Strategy::Priority, &[&[2], &[0], &[1]]);
    for _ in 0..4 {
        assert_eq!(walk(&mut world, &roster, 2, &[Outcome::Success]), [0]);
    }
    let one_tier = world.roster(Strategy::Priority, &[&[2, 0, 1]]);
    world.attempts(2, "ffff");
    assert_eq!(walk(&mut world, &one_tier, 2, &[Outcome::Success]), [0]);
}

#[test]
fn a_priority_call_stays_with_its_first_until_it_is_out() {
    let mut world = World::new(2, calm());
    let roster = world.roster(Strategy::Priority, &[&[0], &[1]]);
    assert_eq!(walk(&mut world, &roster, 3, &[Outcome::Transient; 3]), [0, 0, 0]);
    let spent = Standing { out: true, ..failed(3) };
    let reserve = Reserve { standing: alloc::vec![spent], ..world.ask(&roster) };
    assert_eq!(world.start(&reserve), 1);
}

#[test]
fn round_robin_begins_one_further_with_every_call_and_stays_through_its_retries() {
    let mut world = World::new(3, calm());
    let roster = world.roster(Strategy::RoundRobin, &[&[0, 1, 2]]);
    let begun: Vec<usize> = (0..6).map(|_| walk(&mut world, &roster, 2, &[Outcome::Transient; 2])[0]).collect();
    assert_eq!(begun, [0, 1, 2, 0, 1, 2]);
    let other = world.roster(Strategy::RoundRobin, &[&[2, 1]]);
    assert_eq!(walk(&mut world, &other, 2, &[Outcome::Success]), [0], "every roster has turns of its own");
}

#[test]
fn round_robin_moves_on_along_the_ring() {
    let mut world = World::new(4, calm());
    let roster = world.roster(Strategy::RoundRobin, &[&[0, 1, 2, 3]]);
    walk(&mut world, &roster, 1, &[Outcome::Success]);
    assert_eq!(walk(&mut world, &roster, 1, &[Outcome::Transient; 6]), [1, 2, 3, 0, 1, 2]);
}

#[test]
fn least_inflight_takes_the_idlest_and_draws_between_equals() {
    let mut world = World::new(3, calm());
    let roster = world.roster(Strategy::LeastInflight, &[&[0, 1, 2]]);
    let mut begun: Vec<usize> = (0..3)
        .map(|_| {
            let reserve = world.ask(&roster);
            world.start(&reserve)
        })
        .collect();
    begun.sort_unstable();
    assert_eq!(begun, [0, 1, 2]);
    let mut first = [0; 3];
    for _ in 0..300 {
        let reserve = world.ask(&roster);
        first[world.start(&reserve)] += 1;
        world.leave(reserve.lease);
    }
    assert!(first.iter().all(|count| *count > 60), "{first:?}");
}

#[test]
fn of_two_the_healthier_is_first_and_of_many_the_better_of_two_picks() {
    let mut world = World::new(2, calm());
    world.attempts(0, "f");
    let pair = world.roster(Strategy::HealthAware, &[&[0, 1]]);
    for _ in 0..20 {
        assert_eq!(walk(&mut world, &pair, 2, &[Outcome::Success]), [1]);
    }
    let mut world = World::new(4, calm());
    world.attempts(0, "ffff");
    let four = world.roster(Strategy::HealthAware, &[&[0, 1, 2, 3]]);
    let mut first = [0; 4];
    for _ in 0..400 {
        let reserve = world.ask(&four);
        first[world.start(&reserve)] += 1;
        world.leave(reserve.lease);
    }
    assert_eq!(first[0], 0, "the worst never wins against any other");
    assert!(first[1..].iter().all(|count| *count > 80), "{first:?}");
}

#[test]
fn a_sick_source_is_explored_and_climbs_back() {
    let mut world = World::new(2, calm());
    for _ in 0..30 {
        world.attempts(0, "f");
    }
    assert!(world.view(0).ewma_ppm < 50_000);
    let roster = world.roster(Strategy::HealthAware, &[&[0, 1]]);
    let mut leases = Vec::new();
    let chosen = loop {
        let reserve = world.ask(&roster);
        let choice = world.start(&reserve);
        leases.push(reserve.lease);
        if choice == 0 {
            break leases.len();
        }
    };
    assert!((20..=21).contains(&chosen), "floor 0.05 against 1/(1+19): {chosen}");
}

#[test]
fn a_balanced_source_yields_after_its_tries_and_gets_its_turn_again() {
    for strategy in [Strategy::RoundRobin, Strategy::LeastInflight, Strategy::HealthAware] {
        let mut world = World::new(2, calm());
        let roster = world.roster(strategy, &[&[0, 1]]);
        let asked = walk(&mut world, &roster, 2, &[Outcome::Transient; 8]);
        let (a, b) = (asked[0], 1 - asked[0]);
        assert_eq!(asked, [a, a, b, b, a, a, b, b], "{strategy:?}");
    }
}

/// Two turns under way, because the first source rested for a while: the call stays with the one it asked last.
#[test]
fn of_two_turns_under_way_the_latest_goes_on() {
    for strategy in BALANCED {
        let mut world = World::new(3, calm());
        let roster = world.roster(strategy, &[&[0, 1, 2]]);
        let amid = |last_attempt| Standing { last_attempt, ..failed(1) };
        let reserve = Reserve { standing: alloc::vec![amid(1), amid(2)], ..world.ask(&roster) };
        assert_eq!(world.start(&reserve), 1, "{strategy:?}");
    }
    let mut world = World::new(3, calm());
    world.attempts(2, "fffffffff");
    let roster = world.roster(Strategy::HealthAware, &[&[0, 1, 2]]);
    let amid = |last_attempt| Standing { last_attempt, ..failed(3) };
    let reserve = Reserve { standing: alloc::vec![amid(5), amid(6)], ..world.ask(&roster) };
    assert_eq!(world.start(&reserve), 1, "nor do they yield to the sick third");
}

#[test]
fn by_health_a_new_round_begins_with_the_best() {
    let mut world = World::new(4, calm());
    for (target, failures) in [(0, "fff"), (1, "ff"), (2, "f"), (3, "ffff")] {
        world.attempts(target, failures);
    }
    let roster = world.roster(Strategy::HealthAware, &[&[0, 1, 2, 3]]);
    for _ in 0..20 {
        let reserve = Reserve { standing: alloc::vec![failed(2); 4], ..world.ask(&roster) };
        assert_eq!(world.start(&reserve), 2);
        world.leave(reserve.lease);
    }
}

#[test]
fn sticky_zero_and_one_are_one_try() {
    for sticky in [0, 1] {
        let mut world = World::new(3, calm());
        let roster = world.roster(Strategy::RoundRobin, &[&[0, 1, 2]]);
        assert_eq!(walk(&mut world, &roster, sticky, &[Outcome::Transient; 4]), [0, 1, 2, 0]);
    }
}

#[test]
fn without_a_credible_other_a_source_keeps_its_place() {
    let mut world = World::new(2, calm());
    world.attempts(1, "fffffffff");
    let roster = world.roster(Strategy::HealthAware, &[&[0, 1]]);
    assert_eq!(walk(&mut world, &roster, 1, &[Outcome::Transient; 4]), [0, 0, 0, 0]);
}

#[test]
fn it_yields_as_soon_as_the_other_has_half_its_health() {
    let mut world = World::new(2, calm());
    world.attempts(1, "ffff");
    let roster = world.roster(Strategy::HealthAware, &[&[0, 1]]);
    assert_eq!(walk(&mut world, &roster, 2, &[Outcome::Transient, Outcome::Transient, Outcome::Success]), [0, 0, 1]);
    assert_eq!(walk(&mut world, &roster, 2, &[Outcome::Success]), [0], "the next call begins in the ordinary order");
}

#[test]
fn selectors_without_health_demote_whoever_is_behind() {
    let mut world = World::new(2, calm());
    world.attempts(1, "fffffffff");
    let roster = world.roster(Strategy::RoundRobin, &[&[0, 1]]);
    assert_eq!(walk(&mut world, &roster, 1, &[Outcome::Transient; 2]), [0, 1]);
}

#[test]
fn tiers_are_tried_in_order_however_the_list_is_written() {
    let mut world = World::new(3, calm());
    let [a, b, c] = [world.targets[0], world.targets[1], world.targets[2]];
    let entries = alloc::vec![Entry { target: a, tier: 1 }, Entry { target: b, tier: 0 }, Entry { target: c, tier: 0 }];
    let roster = Arc::new(Roster { id: 9, strategy: Strategy::RoundRobin, entries });
    let out = Standing { out: true, ..Standing::default() };
    let reserve = world.ask(&roster);
    assert_eq!(world.start(&reserve), 1);
    let reserve = Reserve { standing: alloc::vec![failed(0), out], ..world.ask(&roster) };
    assert_eq!(world.start(&reserve), 2);
    let reserve = Reserve { standing: alloc::vec![failed(0), out, out], ..world.ask(&roster) };
    assert_eq!(world.start(&reserve), 0);
    let reserve = Reserve { standing: alloc::vec![out; 3], ..world.ask(&roster) };
    assert_eq!(world.refused(&reserve), (Refusal::Nothing, None, None));
}

#[test]
fn the_same_draw_gives_the_same_sequence() {
    for strategy in BALANCED {
        let order = || {
            let mut world = World::new(8, calm());
            let roster = world.roster(strategy, &[&[0, 1, 2, 3], &[4, 5, 6, 7]]);
            walk(&mut world, &roster, 2, &[Outcome::Transient; 12])
        };
        assert_eq!(order(), order(), "{strategy:?}");
    }
}

#[test]
fn unknown_targets_are_no_candidates() {
    let mut world = World::new(1, calm());
    let unknown = Entry { target: TargetId(77), tier: 0 };
    let known = Entry { target: world.targets[0], tier: 0 };
    let roster = |entries| Arc::new(Roster { id: 1, strategy: Strategy::HealthAware, entries });
    let reserve = world.ask(&roster(alloc::vec![unknown]));
    assert_eq!(world.refused(&reserve), (Refusal::Nothing, None, None));
    let reserve = world.ask(&roster(alloc::vec![unknown, known]));
    assert_eq!(world.start(&reserve), 1);
}
