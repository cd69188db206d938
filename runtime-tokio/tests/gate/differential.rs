//! S13: a hundred thousand random commands through memory and through a real store, reply by reply the same.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use proptest::prelude::{TestCaseError, prop_assert_eq};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, TestCaseResult, TestRunner};
use surefoot_core::pool::{BreakerState, Command, GateOp, GateReply, Keyspace, Pool, Settings};
use surefoot_core::time::Time;
use surefoot_tests::store::Store;

use crate::steps::{Run, play, runs};
use crate::store::Remote;

const COMMANDS: u64 = 100_000;

/// What memory said, and what the store is to be asked.
struct Told {
    now: Time,
    op: GateOp,
    reply: GateReply,
    /// The breakers' states afterwards, and until when they are open.
    states: Vec<(BreakerState, Option<Time>)>,
}

#[test]
fn memory_and_store_agree_reply_by_reply() {
    let Some(store) = Store::start("the store's gate against the one in memory") else { return };
    let remote = RefCell::new(Remote::connect(store.socket_url()));
    let (commands, kinds) = (Cell::new(0), RefCell::new([0u64; 10]));
    let begun = Instant::now();
    while commands.get() < COMMANDS {
        // A runner is done after so many runs.
        let config = Config { cases: 50, max_shrink_iters: 2000, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new(config);
        let result = runner.run(&runs(100..400), |run| {
            let told = check(&run, &mut remote.borrow_mut())?;
            commands.set(commands.get() + told.len() as u64);
            told.iter().for_each(|told| count(told, &mut kinds.borrow_mut()));
            Ok(())
        });
        if let Err(error) = result {
            panic!("after {} commands: {error}", commands.get());
        }
    }
    let kinds = kinds.into_inner();
    eprintln!("{} commands in {:?}; by kind of reply: {kinds:?}", commands.get(), begun.elapsed());
    assert!(kinds.iter().all(|seen| *seen > COMMANDS / 1000), "some replies hardly come up: {kinds:?}");
}

/// Commands that wait for the one before, as at a gateway with one call: the same answers as in one go, and what one costs.
#[test]
fn a_command_alone_is_answered_as_it_is_among_others() {
    let Some(store) = Store::start("the store's gate, one command at a time") else { return };
    let mut remote = Remote::connect(store.url());
    let keys = Keyspace::new("alone", 7);
    let mut pool = Pool::new(Settings::default());
    let run = runs(4000..4001).new_tree(&mut TestRunner::deterministic()).expect("a run").current();
    let (mut commands, mut spent) = (0u32, Duration::ZERO);
    play(&run, &mut pool, |pool, now, op| {
        let command = pool.encode(now, &op, &keys, Some(now));
        let begun = Instant::now();
        let answer = remote.ask(&keys, &command);
        spent += begun.elapsed();
        commands += 1;
        let reply = pool.ask_local(now, &op);
        let text = String::from_utf8_lossy(&answer);
        let answer = command.decode(now, &op, &answer).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(answer.reply, reply, "the store said {text}, to {op:?}");
    });
    assert!(commands > 3000);
    eprintln!("{commands} commands over the loopback, one round trip each: {:?} a command", spent / commands);
}

fn check(run: &Run, remote: &mut Remote) -> Result<Vec<Told>, TestCaseError> {
    let keys = Keyspace::new("test", 7);
    let mut pool = Pool::new(Settings::default());
    let (mut told, mut commands): (Vec<Told>, Vec<Command>) = (Vec::new(), Vec::new());
    play(run, &mut pool, |pool, now, op| {
        commands.push(pool.encode(now, &op, &keys, Some(now)));
        let reply = pool.ask_local(now, &op);
        let states = pool.views(now).map(|view| (view.state, view.open_until)).collect();
        told.push(Told { now, op, reply, states });
    });
    let answers = remote.run(&keys, &commands);
    for ((told, command), answer) in told.iter().zip(&commands).zip(&answers) {
        same(told, command, answer)?;
    }
    Ok(told)
}

fn same(told: &Told, command: &Command, answer: &[u8]) -> TestCaseResult {
    let text = String::from_utf8_lossy(answer);
    let answer = command.decode(told.now, &told.op, answer);
    let answer = answer.map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
    prop_assert_eq!(answer.reply, told.reply, "the store said {}, to {:?}", text, told.op);
    // One that is in the list twice may have become half-open at its second place.
    let last = |target| answer.seen.iter().rfind(|seen| seen.target == target);
    for seen in answer.seen.iter().filter(|seen| last(seen.target) == Some(seen)) {
        let (state, open_until) = told.states[seen.target.0 as usize];
        prop_assert_eq!(seen.state, state, "of {:?}, the store said {}", seen.target, text);
        if let Some(until) = open_until {
            prop_assert_eq!(seen.open_until, until.max(told.now), "of {:?}, the store said {}", seen.target, text);
        }
    }
    Ok(())
}

fn count(told: &Told, kinds: &mut [u64; 10]) {
    use surefoot_core::pool::Refusal::{Backoff, Breaker, Full, Nothing, Paced, Resting, StoreDown};
    let kind = match told.reply {
        GateReply::Admitted { probe: false, .. } => 0,
        GateReply::Admitted { probe: true, .. } => 1,
        GateReply::Denied { why, .. } => match why {
            Nothing => 2,
            Breaker => 3,
            Resting => 4,
            Backoff => 5,
            Paced => 6,
            Full => 7,
            StoreDown => unreachable!("memory is never down"),
        },
        GateReply::Settled { change: None } | GateReply::Done => 8,
        GateReply::Settled { change: Some(_) } => 9,
    };
    kinds[kind] += 1;
}
