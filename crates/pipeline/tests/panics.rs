//! A task of a node that panics, or ends early: whoever waits is answered, and the node says what
//! happened and takes nothing more.
//!
//! A commit worker that panicked used to leave everybody waiting for ever: those whose batch it
//! carried, and all behind them.
#![cfg(feature = "planted-bugs")]

mod common;
mod machines;

use common::world::World;
use common::*;
use machines::Machines;
use plinth_client::ReadVersionRequest;
use plinth_env::simulated::Unsynced;
use plinth_pipeline::{EngineKind, NodeConfig};
use plinth_types::marks::plant;
use plinth_types::{CommitReply, Error, MutationType as M, Result};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Every place where a task of a node can be made to end.
const PLACES: [&str; 6] = [
    "a commit worker panics before it appends",
    "a commit worker panics behind its append",
    "a commit worker panics while it applies",
    "a commit worker ends early",
    "the task for the chores panics",
    "the task for checkpoints panics",
];

/// What is planted is so for the whole process: one test at a time.
static PLANTED: Mutex<()> = Mutex::new(());

type Answers = Arc<Mutex<Vec<Result<CommitReply>>>>;

/// Clients that commit one after the other until they are refused; gives what each was told last.
fn clients(world: &World, count: u8) -> Answers {
    let answers = Answers::default();
    for client in 0..count {
        let (endpoint, answers) = (world.endpoint().clone(), answers.clone());
        let env = endpoint.env().clone();
        world.endpoint().env().spawn("client", async move {
            for n in 0u32.. {
                env.sleep(Duration::from_millis(u64::from(client))).await;
                let key = [&[client][..], &n.to_be_bytes()].concat();
                let told = endpoint.commit(request(&[(M::Set, &key, b"v")])).await;
                if told.is_err() {
                    return answers.lock().unwrap().push(told);
                }
            }
        });
    }
    answers
}

fn trial(place: &'static str, engine: EngineKind, seed: u64) {
    let config = || NodeConfig { engine, ..NodeConfig::default() };
    let mut world = World::new(seed, config());
    world.run(set(&world, b"before", b"v")).unwrap();
    world.sim.tolerate_panics(true);
    let answers = clients(&world, 20);
    world.sim.run_for(Duration::from_millis(300 + 7 * seed));
    assert!(answers.lock().unwrap().is_empty(), "{place}: nothing has gone wrong yet");
    plant(Some(place));
    let cause = Error::from(world.run(world.node().until_failed()));
    plant(None);
    world.sim.run_for(Duration::from_secs(2));
    let told = answers.lock().unwrap().clone();
    assert_eq!(told.len(), 20, "{place}: somebody waits for ever: {told:?}");
    for told in told {
        let error = told.unwrap_err();
        let expected = [Error::commit_unknown_result(), Error::internal_error()];
        assert!(expected.contains(&error), "{place}: {error:?}");
    }
    let detail = cause.detail().unwrap();
    assert!(cause == Error::internal_error() && detail.contains("task"), "{place}: {cause:?}");
    // Nothing more is taken, and what is there can be read.
    assert!(world.run(set(&world, b"after", b"v")).is_err(), "{place}");
    drop(world.run(world.endpoint().read_version(ReadVersionRequest::default())));
    let closed = world.run(world.node().close());
    let why = closed.unwrap_err();
    assert_eq!(Error::from(why), Error::internal_error(), "{place}: closing says what happened");
    world.crash(Unsynced::Lost, config());
    assert_eq!(world.run(get(&world, b"before")).as_deref(), Some(&b"v"[..]), "{place}");
}

#[test]
fn whoever_waits_is_answered_when_a_task_of_the_node_ends() {
    let _one = PLANTED.lock();
    for place in PLACES {
        for engine in [EngineKind::Memory, EngineKind::Ssd] {
            (0..4).for_each(|seed| trial(place, engine, seed));
        }
    }
}

/// The task that catches up panicked, and the member was closed for ever, and well.
#[test]
fn a_member_that_can_catch_up_no_more_says_so() {
    let _one = PLANTED.lock();
    // A new node takes rows where the log is longer than an eighth of this.
    let config = NodeConfig { follower_log_bytes: 80_000, ..NodeConfig::default() };
    let mut machines = Machines::new(58, 3, config);
    let leader = machines.await_leader(|_| true);
    for n in 0..60 {
        machines.set(leader, &format!("key{n}"), &format!("{n:->300}")).unwrap();
    }
    // A leader that has just begun doesn't know yet who else may need entries.
    machines.sim.run_for(Duration::from_secs(1));
    machines.sim.tolerate_panics(true);
    plant(Some("the task that catches up panics"));
    let new = machines.join(leader, "10.0.0.9:4500").unwrap();
    machines.sim.run_for(Duration::from_secs(3));
    plant(None);
    let failure = machines.host(new).failure().map(Error::from);
    assert_eq!(failure, Some(Error::internal_error()));
}
