//! Members whose disks are full: a leader lets another one lead, a follower says so and waits, and
//! both heal once there is room.
//!
//! Nothing that fills a disk may end a node, or have it hold on to what it can't do.

mod machines;

use machines::Machines;
use plinth_client::Endpoint;
use plinth_pipeline::{EngineKind, NodeConfig};
use std::time::Duration;

const ENGINES: [EngineKind; 2] = [EngineKind::Memory, EngineKind::Ssd];

fn formed(seed: u64, engine: EngineKind) -> (Machines, usize) {
    let machines = Machines::new(seed, 3, NodeConfig { engine, ..NodeConfig::default() });
    let leader = machines.await_leader(|_| true);
    machines.set(leader, "before", "1").expect("a commit");
    (machines, leader)
}

/// Other programs take all that is free on a machine's disk, or give it back.
fn fill(machines: &Machines, at: usize, is_full: bool) {
    let used = machines
        .sim
        .files(&machines.envs[at])
        .iter()
        .map(|(_, len)| len.next_multiple_of(4096))
        .sum();
    machines.sim.update_faults(&machines.envs[at], |plan| plan.capacity = is_full.then_some(used));
    // Disks are looked at now and then.
    machines.sim.run_for(Duration::from_secs(1));
}

/// Commits so many rows of 90 kB by whoever leads; within how long the slowest came to be.
fn put(machines: &Machines, rows: usize) -> Duration {
    let mut longest = Duration::ZERO;
    for n in 0..rows {
        let (began, mut tries) = (machines.sim.now(), 0);
        loop {
            let leader = machines.await_leader(|_| true);
            match machines.set(leader, &format!("row{}", n % 10), &"x".repeat(90_000)) {
                Ok(()) => break,
                Err(error) => assert!(tries < 2_000, "row {n}: {error}"),
            }
            tries += 1;
            machines.sim.run_for(Duration::from_millis(10));
        }
        longest = longest.max(machines.sim.now() - began);
    }
    longest
}

fn catches_up(machines: &Machines, at: usize, what: &str) {
    for _ in 0..2_000 {
        let leader = machines.await_leader(|_| true);
        if machines.get_at(leader, at, "after") == Ok(Some("1".into())) {
            return;
        }
        machines.sim.run_for(Duration::from_millis(20));
    }
    panic!(
        "{what}: it doesn't heal: {:?}, {:?}",
        machines.host(at).leadership(),
        machines.host(at).failure()
    );
}

fn says_so(machines: &Machines, at: usize, what: &str) {
    let refusal = machines.host(at).endpoint().refusal();
    assert!(
        refusal.is_some_and(|error| error.code() == 1514),
        "{what}: it says that its disk is full"
    );
    let metrics = machines.host(at).metrics_text();
    assert!(metrics.contains("plinth_refusing{cause=\"disk_full\"} 1"), "{what}");
}

#[test]
fn a_leader_whose_disk_is_full_lets_another_one_lead_and_heals() {
    for (engine, seed) in ENGINES.into_iter().zip(0..) {
        let (machines, full) = formed(seed, engine);
        let what = format!("{engine:?}, seed {seed}");
        fill(&machines, full, true);
        let longest = put(&machines, 5);
        assert!(longest < Duration::from_secs(15), "{what}: {longest:?}");
        let leader = machines.await_leader(|_| true);
        assert_ne!(leader, full, "{what}");
        assert_eq!(machines.host(full).failure(), None, "{what}");
        // Past its reserve the log itself has no room.
        put(&machines, 70);
        assert_eq!(machines.host(full).failure(), None, "{what}");
        says_so(&machines, full, &what);
        fill(&machines, full, false);
        machines.set(machines.await_leader(|_| true), "after", "1").expect("a commit");
        catches_up(&machines, full, &what);
        assert_eq!(machines.host(full).failure(), None, "{what}");
    }
}

#[test]
fn a_follower_whose_disk_is_full_waits_and_heals_while_the_others_go_on() {
    for (engine, seed) in ENGINES.into_iter().zip(10..) {
        let (mut machines, leader) = formed(seed, engine);
        let (full, what) = ((leader + 1) % 3, format!("{engine:?}, seed {seed}"));
        fill(&machines, full, true);
        let longest = put(&machines, 70);
        assert!(longest < Duration::from_secs(2), "{what}: {longest:?}");
        assert_eq!(machines.await_leader(|_| true), leader, "{what}: nobody had to miss it");
        says_so(&machines, full, &what);
        // On a full disk it may be opened and closed too.
        machines.sim.run_until(machines.host(full).close()).expect("it closes");
        machines.crash(full);
        if seed == 10 {
            machines.open(full).expect("it opens");
            put(&machines, 5);
        }
        fill(&machines, full, false);
        if seed != 10 {
            machines.open(full).expect("it opens");
        }
        machines.set(machines.await_leader(|_| true), "after", "1").expect("a commit");
        catches_up(&machines, full, &what);
        assert_eq!(machines.host(full).failure(), None, "{what}");
    }
}
