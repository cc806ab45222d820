//! Signals under threads: a change that was made before a notification is seen after it, and no
//! waiting task is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plinth_env::sync::{First, race};
use plinth_env::{Env, Signal, block_on};

#[test]
fn every_change_is_seen() {
    const CHANGES: u64 = 50_000;
    let env = Env::real();
    let (signal, count) = (Arc::new(Signal::new()), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let (signal, count) = (signal.clone(), count.clone());
            env.spawn("changing", async move {
                for _ in 0..CHANGES {
                    // Relaxed: the signal itself has to carry the order.
                    count.fetch_add(1, Ordering::Relaxed);
                    signal.notify();
                }
            })
        })
        .collect();
    block_on(async {
        while count.load(Ordering::Relaxed) < 3 * CHANGES {
            signal.wait().await;
        }
    });
    for task in tasks {
        task.wait().unwrap();
    }
}

#[test]
fn a_waiter_that_gives_up_passes_its_turn_on() {
    let env = Env::real();
    for round in 0..300 {
        let signal = Arc::new(Signal::new());
        let (theirs, env2) = (signal.clone(), env.clone());
        let giving_up = env.spawn("giving up", async move {
            let soon = env2.sleep(Duration::from_micros(round % 60));
            if let First::Left(()) = race(theirs.wait(), soon).await {
                theirs.notify();
            }
        });
        let theirs = signal.clone();
        let patient = env.spawn("patient", async move { theirs.wait().await });
        signal.notify();
        giving_up.wait().unwrap();
        patient.wait().unwrap();
    }
}
