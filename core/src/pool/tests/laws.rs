//! What holds whatever happens (S4, S6, S7): random commands against the pool, a book kept beside it, checked after each.

use std::collections::BTreeMap;

use proptest::prelude::{BoxedStrategy, Just, any, prop, prop_oneof, proptest};
use proptest::strategy::Strategy as _;

use super::*;
use crate::pool::engine::line_helps;

/// A command in small numbers, so that leases meet again and again. A lease always asks for the same roster.
#[derive(Clone, Debug)]
enum Step {
    Reserve { lease: u64, standing: Vec<(u16, bool, u64)>, tokens: u32, patience: u64, queue: bool },
    Settle { lease: u64, outcome: usize, slow: bool, rest: Option<(u64, bool)>, overload: bool, tokens: Option<u32> },
    Renew(u64),
    Leave(u64),
    Wait(u64),
    Configure(u32),
}

const LEASES: u64 = 24;
const TTL: Span = Span::from_secs(20);
const PROBE_TTL: Span = Span::from_secs(5);

fn step() -> BoxedStrategy<Step> {
    let standing = prop::collection::vec((0u16..5, prop::bool::weighted(0.15), 0u64..4), 0..7);
    let reserve = (0..LEASES, standing, 0u32..40, 0u64..30, any::<bool>()).prop_map(
        |(lease, standing, tokens, patience, queue)| Step::Reserve { lease, standing, tokens, patience, queue },
    );
    let outcome = prop_oneof![3 => 0usize..2, 1 => 0usize..7];
    let rest = prop::option::weighted(0.2, (0u64..10, any::<bool>()));
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    let settle = (0..LEASES, outcome, rest, flags, prop::option::of(0u32..80)).prop_map(
        |(lease, outcome, rest, (slow, overload), tokens)| Step::Settle {
            lease,
            outcome,
            slow,
            rest,
            overload,
            tokens,
        },
    );
    prop_oneof![
        8 => reserve,
        8 => settle,
        1 => (0..LEASES).prop_map(Step::Renew),
        2 => (0..LEASES).prop_map(Step::Leave),
        4 => (0u64..12).prop_map(Step::Wait),
        1 => prop_oneof![Just(0u32), Just(1), Just(2)].prop_map(Step::Configure),
    ]
    .boxed()
}

fn settings(kind: u32) -> Settings {
    let mut settings = Settings::default();
    (settings.breaker.fail_threshold, settings.breaker.min_calls) = (2 + kind, 4);
    (settings.breaker.cooldown, settings.breaker.probe_ttl) = (secs(8), PROBE_TTL);
    settings.breaker.window = secs(20 + u64::from(kind));
    settings.breaker.count_rate_limited = kind == 2;
    settings.pace.initial = kind;
    settings
}

/// Six targets on four sources; the first two sources share an account.
const SOURCES: [usize; 6] = [0, 0, 1, 2, 2, 3];
const ACCOUNTS: [&str; 4] = ["a", "a", "b", "c"];
const LIMITS: [Limits; 4] = [
    Limits { max_concurrency: 2, rpm: 0, tpm: 0 },
    Limits { max_concurrency: 0, rpm: 20, tpm: 0 },
    Limits { max_concurrency: 3, rpm: 0, tpm: 200 },
    Limits { max_concurrency: 0, rpm: 0, tpm: 0 },
];

/// The pool and what must be true of it by the replies alone.
struct Checked {
    world: World,
    rosters: Vec<Arc<Roster>>,
    /// Live leases: their targets and expiries.
    live: BTreeMap<u64, (usize, Time)>,
    /// Who may still be granted a place from the line, and what they asked for last.
    waiting: BTreeMap<u64, Reserve>,
    /// Until when they were told to wait before they ask again, if at all.
    told: BTreeMap<u64, Time>,
    /// Who took each target's probe slot last, and until when it is theirs.
    probes: BTreeMap<usize, (u64, Time)>,
    /// Grants by source; those that were given back unused are taken out.
    grants: BTreeMap<usize, Vec<(u64, Time)>>,
}

impl Checked {
    fn new() -> Checked {
        let mut world = World::new(0, settings(0));
        for source in SOURCES {
            world.add(&format!("s{source}"), ACCOUNTS[source], LIMITS[source]);
        }
        let rosters = alloc::vec![
            world.roster(Strategy::HealthAware, &[&[0, 2, 3, 5]]),
            world.roster(Strategy::Priority, &[&[0], &[1], &[4], &[5]]),
            world.roster(Strategy::RoundRobin, &[&[1, 2], &[3, 4]]),
            world.roster(Strategy::LeastInflight, &[&[0, 1, 2, 3, 4, 5]]),
        ];
        let (live, waiting, probes) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Checked { world, rosters, live, waiting, told: BTreeMap::new(), probes, grants: BTreeMap::new() }
    }

    fn roster(&self, lease: u64) -> &Arc<Roster> {
        &self.rosters[lease as usize % self.rosters.len()]
    }

    fn run(&mut self, step: Step) {
        let now = self.world.now;
        let applied = !matches!(step, Step::Wait(_) | Step::Configure(_));
        match step {
            Step::Wait(seconds) => self.world.wait(secs(seconds)),
            Step::Configure(kind) => self.world.pool.configure(settings(kind)),
            Step::Renew(lease) => self.renew(lease),
            Step::Leave(lease) => self.leave(lease),
            Step::Reserve { lease, standing, tokens, patience, queue } => {
                let standing = standing.into_iter().map(|(failed, out, backoff)| Standing {
                    failed,
                    out,
                    not_before: if backoff == 0 { Time::ZERO } else { now.after(secs(backoff)) },
                    last_attempt: failed,
                });
                let reserve = Reserve {
                    lease: LeaseId(lease),
                    roster: Arc::clone(self.roster(lease)),
                    standing: standing.collect(),
                    sticky: 2,
                    draw: now.0 ^ (lease << 7) ^ u64::from(tokens),
                    tokens,
                    wait_until: now.after(secs(patience)),
                    ttl: TTL,
                    queue,
                };
                self.reserve(reserve);
            }
            Step::Settle { lease, outcome, slow, rest, overload, tokens } => {
                let scope = |account| if account { RestScope::Account } else { RestScope::Source };
                let rest = rest.map(|(seconds, account)| Rest { span: secs(seconds), scope: scope(account) });
                let outcome = Outcome::ALL[outcome];
                self.settle(Settle { lease: LeaseId(lease), outcome, slow, rest, overload, tokens });
            }
        }
        self.check();
        if applied {
            self.check_line();
        }
    }

    fn apply(&mut self, op: Op) -> Reply {
        let now = self.world.now;
        self.live.retain(|_, (_, expires)| *expires > now);
        self.world.pool.apply(now, &op)
    }

    fn reserve(&mut self, reserve: Reserve) {
        let (now, lease) = (self.world.now, reserve.lease.0);
        let reply = self.apply(Op::Reserve(reserve.clone()));
        let held = self.live.get(&lease).map(|(target, _)| *target);
        match (held, reply) {
            (Some(target), Reply::Granted { choice, change: None, .. }) => {
                assert_eq!(self.index(lease, choice), target, "asked again, the same place");
            }
            (Some(_), reply) => panic!("asked again: {reply:?}"),
            // The line goes first: what it got stands in the pool before this lease was looked at.
            (None, Reply::Granted { choice, probe, .. }) => {
                self.take_posted();
                self.granted(lease, choice, probe);
            }
            (None, Reply::Refused { why, after, soonest, .. }) => {
                assert!(after.is_none_or(|after| after > now && after <= reserve.wait_until), "{after:?}");
                assert!(soonest.is_none_or(|soonest| soonest > now));
                self.waiting.remove(&lease);
                if reserve.queue && line_helps(why, after) {
                    self.waiting.insert(lease, reserve);
                    self.told.insert(lease, after.unwrap_or(Time::NEVER));
                }
            }
            (None, reply) => panic!("answer to a reservation: {reply:?}"),
        }
        self.take_posted();
    }

    fn settle(&mut self, settle: Settle) {
        let lease = settle.lease.0;
        let reply = self.apply(Op::Settle(settle));
        let known = self.live.remove(&lease).is_some();
        assert!(known || reply == Reply::Settled { change: None }, "an unknown lease changed something: {reply:?}");
        self.take_posted();
    }

    fn renew(&mut self, lease: u64) {
        assert_eq!(self.apply(Op::Renew { lease: LeaseId(lease) }), Reply::Done);
        let expires = self.world.now.after(TTL);
        self.live.entry(lease).and_modify(|held| held.1 = expires);
        self.take_posted();
    }

    fn leave(&mut self, lease: u64) {
        assert_eq!(self.apply(Op::Leave { lease: LeaseId(lease) }), Reply::Done);
        if let Some((target, _)) = self.live.remove(&lease) {
            let grants = self.grants.entry(SOURCES[target]).or_default();
            if let Some(at) = grants.iter().rposition(|(holder, _)| *holder == lease) {
                grants.remove(at);
            }
        }
        self.waiting.remove(&lease);
        self.take_posted();
    }

    fn take_posted(&mut self) {
        while let Some((lease, reply)) = self.world.pool.pop_granted() {
            assert!(self.waiting.contains_key(&lease.0), "{lease} does not wait");
            match reply {
                Reply::Granted { choice, probe, .. } => self.granted(lease.0, choice, probe),
                Reply::Refused { why, after, .. } => {
                    if line_helps(why, after) {
                        self.told.insert(lease.0, after.unwrap_or(Time::NEVER));
                    } else {
                        self.waiting.remove(&lease.0);
                    }
                }
                reply => panic!("posted: {reply:?}"),
            }
        }
    }

    fn index(&self, lease: u64, choice: Choice) -> usize {
        let target = self.roster(lease).entries[usize::from(choice.0)].target;
        self.world.targets.iter().position(|known| *known == target).expect("a target of the world")
    }

    fn granted(&mut self, lease: u64, choice: Choice, probe: bool) {
        let (now, target) = (self.world.now, self.index(lease, choice));
        let state = self.world.state(target);
        if probe {
            assert_eq!(state, BreakerState::HalfOpen);
            if let Some((holder, until)) = self.probes.insert(target, (lease, now.after(PROBE_TTL))) {
                let at_it = self.live.get(&holder).is_some_and(|(held, _)| *held == target);
                assert!(!at_it || until <= now, "two probes at {target}");
            }
        } else {
            assert_eq!(state, BreakerState::Closed, "an ordinary attempt at {target}");
        }
        assert!(self.live.insert(lease, (target, now.after(TTL))).is_none(), "{lease} was live");
        self.waiting.remove(&lease);
        self.grants.entry(SOURCES[target]).or_default().push((lease, now));
    }

    /// Nobody is forgotten: whoever stands in line when a command is done could not start, were he to ask again.
    ///
    /// Two kinds might, and need not be woken for it: by load the grants of others change the order, and with it who
    /// stands in for a resting source; and whoever is held by a backoff of his own is freed of it when that source rests.
    ///
    /// Nor is the line itself: if its time comes, somebody in it asks again by then (L1).
    fn check_line(&self) {
        let now = self.world.now;
        let line = &self.world.pool.line;
        let due = (0..line.len()).filter_map(|at| line.get(at)).map(|waiter| waiter.next).min();
        let stands = |lease: &&u64| line.position(LeaseId(**lease)).is_some();
        let asks = self.waiting.keys().filter(stands).filter_map(|lease| self.told.get(lease)).min();
        assert!(asks.copied().unwrap_or(Time::NEVER) <= due.unwrap_or(Time::NEVER), "{due:?}, {asks:?}");
        for (lease, reserve) in &self.waiting {
            let by_list = matches!(reserve.roster.strategy, Strategy::Priority | Strategy::RoundRobin);
            let backs_off = reserve.standing.iter().any(|standing| standing.not_before > now);
            if by_list && !backs_off && reserve.wait_until >= now {
                let reply = self.world.pool.clone().apply(now, &Op::Reserve(reserve.clone()));
                assert!(matches!(reply, Reply::Refused { .. }), "{lease} was forgotten: {reply:?}");
            }
        }
    }

    fn check(&mut self) {
        let now = self.world.now;
        let at_source = |source| self.live.values().filter(|(target, _)| SOURCES[*target] == source).count() as u32;
        for (at, source) in SOURCES.into_iter().enumerate() {
            let view = self.world.view(at);
            let limit = LIMITS[source].max_concurrency;
            let expired = self.live.values().any(|(_, expires)| *expires <= now);
            // S4: in-flight = live leases, at every moment at which the pool has heard of the time.
            if !expired {
                let inflight = self.live.values().filter(|(target, _)| *target == at).count() as u32;
                assert_eq!((view.inflight, view.source_inflight), (inflight, at_source(source)), "target {at}");
                assert!(limit == 0 || view.source_inflight <= limit);
            }
            assert!(view.open_until.is_none_or(|until| until <= now.after(secs(300))));
            assert!(view.ewma_ppm <= 1_000_000 && view.window_failures <= view.samples);
            assert!(view.pace_limit_ppm.is_none_or(|limit| limit >= 1_000_000));
        }
        // S7: from any grant to the last, no more than a full bucket and what flowed in between.
        for (source, grants) in self.grants.iter().filter(|(source, _)| LIMITS[**source].rpm > 0) {
            let rpm = u64::from(LIMITS[*source].rpm);
            for (first, (_, start)) in grants.iter().enumerate() {
                let span = grants.last().map_or(Span::ZERO, |(_, end)| end.since(*start));
                let count = (grants.len() - first) as u64;
                assert!(count * 60_000_000 <= rpm * (60_000_000 + span.0), "{count} requests in {span}");
            }
        }
    }
}

proptest! {
    #[test]
    fn the_invariants_hold_over_any_commands(steps in prop::collection::vec(step(), 1..250)) {
        let mut checked = Checked::new();
        for step in steps {
            checked.run(step);
        }
        // L3: once everybody has gone, nothing is left over.
        for lease in 0..LEASES {
            checked.leave(lease);
        }
        checked.check();
        assert!(checked.live.is_empty() && checked.world.pool.waiting() == 0);
    }

    /// S4: settling twice is settling once.
    #[test]
    fn a_second_settlement_changes_nothing(steps in prop::collection::vec(step(), 1..120)) {
        let mut checked = Checked::new();
        for step in steps {
            let again = match &step {
                Step::Settle { lease, .. } => Some(*lease),
                _ => None,
            };
            checked.run(step);
            if let Some(lease) = again.filter(|lease| !checked.live.contains_key(lease)) {
                let before = format!("{:?}", checked.world.pool.views(checked.world.now).collect::<Vec<_>>());
                checked.settle(Settle { lease: LeaseId(lease), outcome: Outcome::SourceDead, ..settled() });
                let after = format!("{:?}", checked.world.pool.views(checked.world.now).collect::<Vec<_>>());
                assert_eq!(before, after);
            }
        }
    }

    /// Any numbers at all: no panic, an answer that fits the question.
    #[test]
    fn no_numbers_panic(
        knobs in prop::array::uniform14(any::<u32>()),
        ops in prop::collection::vec((any::<u64>(), any::<u64>(), 0u8..4, any::<[u32; 4]>()), 1..60),
    ) {
        let mut pool = Pool::new(Settings {
            breaker: BreakerSettings {
                fail_threshold: knobs[0], min_calls: knobs[1] % 4, fail_rate_ppm: knobs[2],
                window: Span(u64::from(knobs[3]) << (knobs[3] % 33)), cooldown: Span(u64::from(knobs[4]) << (knobs[4] % 33)),
                max_cooldown: Span(u64::from(knobs[5])), probe_ttl: Span(u64::from(knobs[6])),
                count_rate_limited: knobs[7] % 2 == 0, suppress: knobs[7] % 3 > 0,
            },
            health: HealthSettings { alpha_ppm: knobs[8], floor_ppm: knobs[9], credible_ppm: knobs[10] },
            pace: PaceSettings { initial: knobs[11], cut_ppm: knobs[12], min: knobs[13], ceiling: knobs[0] % 3 },
            max_queue: 3,
        });
        let targets: Vec<TargetId> = ["x", "y", "z"].into_iter().enumerate().map(|(at, name)| {
            let (rpm, tpm) = (knobs[at], knobs[at + 3]);
            let source = SourceSpec { name, account: "a", max_concurrency: knobs[at + 6] % 3, rpm, tpm };
            pool.register(&TargetSpec { name, provider: "p", model: "m", source }).0
        }).collect();
        for (time, number, kind, [a, b, c, d]) in ops {
            let lease = LeaseId(number % 5);
            let op = match kind {
                0 => Op::Settle(Settle {
                    lease, outcome: Outcome::ALL[a as usize % 7], slow: b % 2 == 0, overload: b % 3 == 0,
                    rest: Some(Rest { span: Span(number), scope: RestScope::Account }), tokens: Some(c),
                }),
                1 => Op::Renew { lease },
                2 => Op::Leave { lease },
                _ => {
                    let strategies =
                        [Strategy::Priority, Strategy::HealthAware, Strategy::RoundRobin, Strategy::LeastInflight];
                    let entry = |at: u32| Entry { target: TargetId(at % 4), tier: (at >> 8) as u16 % 3 };
                    let entries = alloc::vec![entry(a), entry(b), entry(c), entry(d)];
                    let standing = Standing {
                        failed: a as u16, out: b % 5 == 0, not_before: Time(number), last_attempt: c as u16,
                    };
                    Op::Reserve(Reserve {
                        lease, roster: Arc::new(Roster { id: a % 2, strategy: strategies[d as usize % 4], entries }),
                        standing: alloc::vec![standing; b as usize % 6], sticky: c as u16, draw: number, tokens: d,
                        wait_until: Time(time.wrapping_add(number)), ttl: Span(time ^ number), queue: a % 2 == 0,
                    })
                }
            };
            let reply = pool.apply(Time(time), &op);
            assert!(match op {
                Op::Reserve(_) => matches!(reply, Reply::Granted { .. } | Reply::Refused { .. }),
                Op::Settle(_) => matches!(reply, Reply::Settled { .. }),
                Op::Renew { .. } | Op::Leave { .. } => reply == Reply::Done,
            });
            while pool.pop_granted().is_some() {}
            assert_eq!(pool.views(Time(time)).count(), targets.len());
        }
    }
}
