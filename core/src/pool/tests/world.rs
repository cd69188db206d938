//! A pool on a clock of the test's own, over whatever gate the parent module brings (`Backend`).

use super::*;

/// A pool with a clock, names for its targets and leases that count up.
pub(crate) struct World {
    pub(crate) pool: Pool,
    pub(crate) now: Time,
    pub(crate) leases: u64,
    pub(crate) targets: Vec<TargetId>,
    gate: Backend,
}

/// Limits of a source under test.
#[derive(Copy, Clone, Default)]
pub(crate) struct Limits {
    pub(crate) max_concurrency: u32,
    pub(crate) rpm: u32,
    pub(crate) tpm: u32,
}

impl World {
    /// `count` targets without limits, each on a source and an account of its own: t0, t1, …
    pub(crate) fn new(count: usize, settings: Settings) -> World {
        let mut world = World {
            pool: Pool::new(settings),
            now: Time::from_millis(1_000_000),
            leases: 0,
            targets: Vec::new(),
            gate: Backend::begin(),
        };
        for at in 0..count {
            world.add(&format!("s{at}"), &format!("a{at}"), Limits::default());
        }
        world
    }

    /// One target with limits.
    pub(crate) fn limited(limits: Limits, settings: Settings) -> World {
        let mut world = World::new(0, settings);
        world.add("s0", "a0", limits);
        world
    }

    /// One more target: its place in `targets`.
    pub(crate) fn add(&mut self, source: &str, account: &str, limits: Limits) -> (usize, SourceId) {
        let name = format!("{source}/m{}", self.targets.len());
        let Limits { max_concurrency, rpm, tpm } = limits;
        let (target, source) = self.pool.register(&TargetSpec {
            name: &name,
            provider: "p",
            model: "m",
            source: SourceSpec { name: source, account, max_concurrency, rpm, tpm },
        });
        self.targets.push(target);
        (self.targets.len() - 1, source)
    }

    pub(crate) fn wait(&mut self, span: Span) {
        self.now = self.now.after(span);
    }

    /// A roster over targets, by tiers.
    pub(crate) fn roster(&self, strategy: Strategy, tiers: &[&[usize]]) -> Arc<Roster> {
        let entries = tiers.iter().enumerate().flat_map(|(tier, targets)| {
            targets.iter().map(move |at| Entry { target: self.targets[*at], tier: tier as u16 })
        });
        let id = tiers.concat().iter().fold(strategy as u32, |id, at| id.wrapping_mul(31) + *at as u32 + 1);
        Arc::new(Roster { id, strategy, entries: entries.collect() })
    }

    /// A question with a fresh lease, a minute of patience and a seat in line.
    pub(crate) fn ask(&mut self, roster: &Arc<Roster>) -> Reserve {
        self.leases += 1;
        Reserve {
            lease: LeaseId(self.leases),
            roster: Arc::clone(roster),
            standing: Vec::new(),
            sticky: 2,
            draw: self.leases.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            tokens: 10,
            wait_until: self.now.after(Span::from_secs(60)),
            ttl: Span::from_secs(3600),
            queue: true,
        }
    }

    /// One command, as the gate answers it.
    pub(crate) fn apply(&mut self, op: &Op) -> Reply {
        self.gate.apply(&mut self.pool, self.now, op)
    }

    pub(crate) fn reserve(&mut self, reserve: &Reserve) -> Reply {
        self.apply(&Op::Reserve(reserve.clone()))
    }

    /// Who was granted: the index of the choice.
    pub(crate) fn start(&mut self, reserve: &Reserve) -> usize {
        match self.reserve(reserve) {
            Reply::Granted { choice, .. } => usize::from(choice.0),
            refused => panic!("nothing started: {refused:?}"),
        }
    }

    pub(crate) fn refused(&mut self, reserve: &Reserve) -> (Refusal, Option<Time>, Option<Time>) {
        match self.reserve(reserve) {
            Reply::Refused { why, after, soonest, .. } => (why, after, soonest),
            granted => panic!("it started: {granted:?}"),
        }
    }

    pub(crate) fn settle(&mut self, lease: LeaseId, outcome: Outcome) -> Option<BreakerChange> {
        self.settle_as(Settle { lease, outcome, ..settled() })
    }

    pub(crate) fn settle_as(&mut self, settle: Settle) -> Option<BreakerChange> {
        match self.apply(&Op::Settle(settle)) {
            Reply::Settled { change } => change,
            other => panic!("not settled: {other:?}"),
        }
    }

    pub(crate) fn leave(&mut self, lease: LeaseId) {
        assert_eq!(self.apply(&Op::Leave { lease }), Reply::Done);
    }

    /// An attempt under way on one target.
    pub(crate) fn begin(&mut self, target: usize) -> LeaseId {
        let roster = self.roster(Strategy::Priority, &[&[target]]);
        let reserve = self.ask(&roster);
        self.start(&reserve);
        reserve.lease
    }

    /// A whole attempt on one target.
    pub(crate) fn attempt(&mut self, target: usize, outcome: Outcome) -> Option<BreakerChange> {
        let lease = self.begin(target);
        self.settle(lease, outcome)
    }

    /// Attempts in a row, one a letter: `s`uccess, `f`ailure (transient), rate `l`imited.
    pub(crate) fn attempts(&mut self, target: usize, outcomes: &str) {
        for letter in outcomes.chars() {
            let outcome = match letter {
                's' => Outcome::Success,
                'f' => Outcome::Transient,
                'l' => Outcome::RateLimited,
                other => panic!("unknown letter {other}"),
            };
            self.attempt(target, outcome);
        }
    }

    pub(crate) fn view(&self, target: usize) -> TargetView<'_> {
        let id = self.targets[target];
        let view = self.pool.views(self.now).find(|view| view.id == id).expect("a registered target is in view");
        self.gate.look(self.now, view)
    }

    pub(crate) fn state(&self, target: usize) -> BreakerState {
        self.view(target).state
    }

    /// Leases granted to the line since the last look, with their choices.
    pub(crate) fn granted(&mut self) -> Vec<(u64, usize)> {
        core::iter::from_fn(|| self.pool.pop_granted())
            .filter_map(|(lease, reply)| match reply {
                Reply::Granted { choice, .. } => Some((lease.0, usize::from(choice.0))),
                Reply::Refused { after: Some(_), .. } => None,
                other => panic!("posted to somebody in line: {other:?}"),
            })
            .collect()
    }
}

pub(crate) fn settled() -> Settle {
    Settle { lease: LeaseId(0), outcome: Outcome::Success, slow: false, rest: None, overload: false, tokens: None }
}

pub(crate) fn rested(span: Span, scope: RestScope) -> Settle {
    Settle { outcome: Outcome::RateLimited, rest: Some(Rest { span, scope }), ..settled() }
}

/// What a call remembers of one candidate.
pub(crate) fn failed(failed: u16) -> Standing {
    Standing { failed, last_attempt: failed, ..Standing::default() }
}

pub(crate) fn secs(seconds: u64) -> Span {
    Span::from_secs(seconds)
}

/// A breaker's change in words.
pub(crate) fn said(change: Option<BreakerChange>) -> Option<String> {
    change.map(|change| format!("{} → {}", change.from.as_str(), change.to.as_str()))
}
