//! The breaker's contract over a store's gate: the sequences of the pool's own tests, asked of a real server (G1–G7, G18).
//!
//! One text for both backends: what stands in the included files holds in memory, where the core's tests run it, and here.
//! Where no server is installed the worlds run in memory, which is said aloud (and fails where `CI` is set).

use std::cell::RefCell;
use std::sync::Arc;

use surefoot_core::id::{Choice, LeaseId, SourceId, TargetId};
use surefoot_core::outcome::Outcome;
use surefoot_core::pool::{
    BreakerChange, BreakerSettings, BreakerState, Entry, Keyspace, Op, Plan, Pool, Refusal, Reply, Reserve, Rest,
    RestScope, Roster, Settings, Settle, SourceSpec, Standing, Strategy, TargetSpec, TargetView,
};
use surefoot_core::time::{Span, Time};
use surefoot_tests::store::Store;

use super::store::Remote;

#[path = "../../../core/src/pool/tests/contract.rs"]
mod contract;
#[path = "../../../core/src/pool/tests/world.rs"]
#[allow(dead_code)]
mod world;

use world::*;

/// A gate at a store of the test's own.
struct Backend {
    keys: Keyspace,
    store: Option<(RefCell<Remote>, Store)>,
}

impl Backend {
    fn begin() -> Backend {
        let store = Store::start("the breaker's contract over a store");
        let store = store.map(|store| (RefCell::new(Remote::connect(store.socket_url())), store));
        Backend { keys: Keyspace::new("contract", 7), store }
    }

    /// As the gateway does it: plan, ask the store, keep its book, conclude.
    fn apply(&mut self, pool: &mut Pool, now: Time, op: &Op) -> Reply {
        let Some((remote, _)) = &self.store else { return pool.apply(now, op) };
        let asked = match pool.plan(now, op) {
            Plan::Done(reply) => return reply,
            Plan::Ask(asked) => asked,
        };
        let command = pool.encode(now, &asked, &self.keys, Some(now));
        let told = remote.borrow_mut().ask(&self.keys, &command);
        let answer = command.decode(now, &asked, &told).expect("an answer of the script");
        pool.mirror(now, &asked, &answer);
        pool.conclude(now, &asked, Some(answer.reply))
    }

    /// The pool's view with the breaker as it stands at the store: its fields are read, not what the pool made of them.
    fn look<'a>(&self, now: Time, view: TargetView<'a>) -> TargetView<'a> {
        let Some((remote, _)) = &self.store else { return view };
        let breaker = remote.borrow_mut().hash(&format!("{}t:{}", self.keys.key(), view.name));
        let field = |name: &str| breaker.get(name).map(|value| value.parse::<u64>().expect("a number"));
        let number = |name: &str| field(name).unwrap_or(0);
        let state = [BreakerState::Closed, BreakerState::HalfOpen, BreakerState::Open][number("s") as usize];
        let (samples, window_failures) = match (field("w"), field("wl")) {
            (Some(id), Some(half)) if now.0 / half == id => (number("a0") + number("a1"), number("f0") + number("f1")),
            (Some(id), Some(half)) if now.0 / half == id + 1 => (number("a0"), number("f0")),
            _ => (0, 0),
        };
        TargetView {
            state,
            epoch: number("e"),
            open_until: (state == BreakerState::Open).then(|| Time(number("u"))),
            probing: breaker.contains_key("pl") && number("pu") > now.0,
            failures: number("f") as u32,
            samples: samples as u32,
            window_failures: window_failures as u32,
            reopen_streak: number("r") as u32,
            ..view
        }
    }
}
