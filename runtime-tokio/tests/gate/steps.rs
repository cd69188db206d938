//! Random commands to a gate, as steps that can be left out one by one: a failing run shrinks to its few guilty steps.

use proptest::prelude::{Just, any, prop, prop_oneof};
use proptest::strategy::{BoxedStrategy, Strategy};
use surefoot_core::id::{Choice, LeaseId, TargetId};
use surefoot_core::pool::{
    Admit, BreakerSettings, Candidate, Evidence, GateOp, Hold, Pool, Rest, RestScope, Settings, SourceSpec, TargetSpec,
};
use surefoot_core::time::{Span, Time};

/// `target, source, account`: two targets of one key, a key of the same account, one that stands alone, a name that tries.
const TARGETS: [(&str, &str, &str); 5] = [
    ("p/a/m1", "p/a", "acme"),
    ("p/a/m2", "p/a", "acme"),
    ("p/b/m1", "p/b", "acme"),
    ("q/eu/k/m", "q/eu/k", "q/eu/k"),
    ("r {x} é 0 1/k/m", "r {x} é 0 1/k", "r:\n9"),
];

/// A time as the store would have it: numbers this large must not lose a microsecond.
pub(crate) const BEGIN: Time = Time(1_790_000_000_000_001);

/// A run: what is configured at first, then what happens.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The knobs and limits.
    pub config: Config,
    /// What happens.
    pub steps: Vec<Step>,
}

/// Knobs and limits, small enough for everything to happen often.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    breaker: BreakerSettings,
    /// `max_concurrency, rpm, tpm` of each source in the order of their first targets.
    limits: Vec<(u32, u32, u32)>,
}

/// Something happens.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Time passes.
    Wait(Span),
    /// The file is reread.
    Configure(Config),
    /// A place is asked for; leases count up.
    Admit(Asked),
    /// A place is given back: the so-manieth last one that was asked for, granted or not.
    Settle(u64, Evidence, Option<Rest>, Option<u32>),
    /// It goes on.
    Renew(u64),
    /// It is given back unused.
    Release(u64),
}

/// A question.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    ttl: Span,
    tokens: u32,
    wait: Option<Span>,
    candidates: Vec<Picked>,
}

#[derive(Clone, Debug)]
struct Picked {
    target: u32,
    tier: u16,
    fresh: bool,
    health: u32,
    paced: bool,
    behind: bool,
    hold: Hold,
    backoff: Span,
}

impl Config {
    /// Brings it into force.
    pub(crate) fn apply(&self, pool: &mut Pool) {
        pool.configure(Settings { breaker: self.breaker.clone(), ..Settings::default() });
        let mut sources: Vec<&str> = Vec::new();
        for (name, source, account) in TARGETS {
            if !sources.contains(&source) {
                sources.push(source);
            }
            let at = sources.iter().position(|known| *known == source).unwrap_or(0);
            let (max_concurrency, rpm, tpm) = self.limits[at];
            let source = SourceSpec { name: source, account, max_concurrency, rpm, tpm };
            pool.register(&TargetSpec { name, provider: "p", model: "m", source });
        }
    }
}

impl Asked {
    fn command(&self, now: Time, lease: LeaseId) -> GateOp {
        let candidate = |(at, picked): (usize, &Picked)| Candidate {
            choice: Choice(at as u16),
            target: TargetId(picked.target),
            tier: picked.tier,
            fresh: picked.fresh,
            health_ppm: picked.health,
            paced: picked.paced,
            behind: picked.behind,
            hold: picked.hold,
            not_before: if picked.backoff.is_zero() { Time::ZERO } else { now.after(picked.backoff) },
        };
        GateOp::Admit(Admit {
            lease,
            ttl: self.ttl,
            tokens: self.tokens,
            wait_until: self.wait.map_or(Time::NEVER, |wait| now.after(wait)),
            credible_ppm: 500_000,
            candidates: self.candidates.iter().enumerate().map(candidate).collect(),
        })
    }
}

/// The commands of a run, one after the other: `tell` hears of each with the pool as it stands before it.
pub(crate) fn play(run: &Run, pool: &mut Pool, mut tell: impl FnMut(&mut Pool, Time, GateOp)) {
    let (mut now, mut asked) = (BEGIN, 0u64);
    run.config.apply(pool);
    for step in &run.steps {
        let lease = |back: u64| LeaseId(asked.saturating_sub(back));
        let op = match step {
            Step::Wait(span) => {
                now = now.after(*span);
                continue;
            }
            Step::Configure(config) => {
                config.apply(pool);
                continue;
            }
            Step::Admit(question) => {
                asked += 1;
                question.command(now, LeaseId(asked))
            }
            Step::Settle(back, evidence, rest, tokens) => {
                GateOp::Settle { lease: lease(*back), evidence: *evidence, rest: *rest, tokens: *tokens }
            }
            Step::Renew(back) => GateOp::Renew { lease: lease(*back) },
            Step::Release(back) => GateOp::Release { lease: lease(*back) },
        };
        tell(pool, now, op);
    }
}

/// Runs of so many steps.
pub(crate) fn runs(steps: std::ops::Range<usize>) -> impl Strategy<Value = Run> {
    (config(), prop::collection::vec(step(), steps)).prop_map(|(config, steps)| Run { config, steps })
}

fn config() -> impl Strategy<Value = Config> {
    let limit = |some: std::ops::Range<u32>| prop_oneof![3 => Just(0), 3 => some, 1 => Just(u32::MAX)];
    let limits = prop::collection::vec((limit(1..4), limit(1..30), limit(1..2000)), 4);
    let counts = (1u32..4, 1u32..8, 0u32..=1_000_000);
    let spans = (short(), short(), short(), short());
    (limits, counts, spans).prop_map(|(limits, counts, spans)| {
        let (fail_threshold, min_calls, fail_rate_ppm) = counts;
        let (window, cooldown, max_cooldown, probe_ttl) = spans;
        let breaker = BreakerSettings {
            fail_threshold,
            min_calls,
            fail_rate_ppm,
            window,
            cooldown,
            max_cooldown,
            probe_ttl,
            count_rate_limited: false,
            suppress: true,
        };
        Config { breaker, limits }
    })
}

fn step() -> BoxedStrategy<Step> {
    let evidence = prop_oneof![
        5 => Just(Evidence::Success),
        6 => Just(Evidence::Failure),
        1 => Just(Evidence::Dead),
        2 => Just(Evidence::Neutral),
    ];
    let scope = prop_oneof![Just(RestScope::Account), Just(RestScope::Source)];
    let rest = prop::option::weighted(0.15, (long(), scope).prop_map(|(span, scope)| Rest { span, scope }));
    let tokens = prop::option::of(prop_oneof![8 => 0u32..400, 1 => any::<u32>()]);
    prop_oneof![
        3 => short().prop_map(Step::Wait),
        1 => long().prop_map(Step::Wait),
        1 => config().prop_map(Step::Configure),
        24 => asked().prop_map(Step::Admit),
        20 => (0u64..6, evidence, rest, tokens).prop_map(|(back, evidence, rest, tokens)| {
            Step::Settle(back, evidence, rest, tokens)
        }),
        3 => (0u64..6).prop_map(Step::Renew),
        3 => (0u64..6).prop_map(Step::Release),
    ]
    .boxed()
}

fn asked() -> impl Strategy<Value = Asked> {
    let ttl = prop_oneof![1 => short(), 3 => long()];
    let tokens = prop_oneof![8 => 0u32..300, 1 => any::<u32>()];
    let wait = prop_oneof![1 => Just(None), 1 => short().prop_map(Some), 2 => long().prop_map(Some)];
    (ttl, tokens, wait, prop::collection::vec(picked(), 0..6)).prop_map(|(ttl, tokens, wait, candidates)| Asked {
        ttl,
        tokens,
        wait,
        candidates,
    })
}

fn picked() -> impl Strategy<Value = Picked> {
    let health = prop_oneof![2 => Just(0u32), 3 => 0u32..=1_000_000];
    let hold = prop_oneof![Just(Hold::None), Just(Hold::Tier), Just(Hold::Call)];
    let backoff = prop_oneof![6 => Just(Span::ZERO), 1 => short(), 1 => long()];
    let often = || prop::bool::weighted(0.8);
    let seldom = || prop::bool::weighted(0.1);
    (0u32..TARGETS.len() as u32, 0u16..3, often(), health, seldom(), seldom(), hold, backoff).prop_map(
        |(target, tier, fresh, health, paced, behind, hold, backoff)| Picked {
            target,
            tier,
            fresh,
            health,
            paced,
            behind,
            hold,
            backoff,
        },
    )
}

/// Up to some seconds, often a round number of them so that ends coincide.
fn short() -> impl Strategy<Value = Span> {
    prop_oneof![2 => (0u64..8).prop_map(Span::from_secs), 1 => (0u64..5_000_000).prop_map(Span)]
}

/// Up to some minutes, seldom to beyond a day.
fn long() -> impl Strategy<Value = Span> {
    prop_oneof![
        6 => (0u64..200).prop_map(Span::from_secs),
        2 => (0u64..600_000_000).prop_map(Span),
        1 => (0u64..200_000).prop_map(Span::from_secs),
    ]
}
