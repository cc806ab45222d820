//! Bad luck of clusters: clocks that are hours off, and windows that differ.

mod machines;

use machines::Machines;
use plinth_pipeline::NodeConfig;
use std::time::Duration;

/// Versions are the clock's only where it goes forward, and no node believes another one's:
/// whichever leads, an hour ahead or behind, commits go on, and versions only grow.
#[test]
fn a_clock_that_is_an_hour_off_moves_no_version_back() {
    for seed in 0..2 {
        let mut machines = Machines::new(seed, 3, NodeConfig::default());
        for (env, ahead) in machines.envs.iter().zip([3600, -3600, 0]) {
            machines.sim.move_wall_clock(env, ahead);
        }
        let mut newest = 0;
        for round in 0..4 {
            let leader = machines.await_leader(|_| true);
            for n in 0..5 {
                machines.set(leader, &format!("key{round}-{n}"), "1").expect("a commit");
                let tr = machines.database(leader).create_transaction();
                let version = machines.sim.run_until(tr.get_read_version()).expect("a version");
                assert!(version > newest, "seed {seed}: {version} after {newest}");
                newest = version;
            }
            let began = machines.sim.now();
            machines
                .sim
                .move_wall_clock(&machines.envs[leader], if round % 2 == 0 { -3600 } else { 3600 });
            machines.crash(leader);
            let next = machines.await_leader(|_| true);
            assert!(
                machines.sim.now() - began < Duration::from_secs(2),
                "seed {seed}: it takes no longer"
            );
            machines.open(leader).expect("it opens");
            assert_eq!(
                machines.get(next, &format!("key{round}-4")),
                Ok(Some("1".into())),
                "seed {seed}"
            );
        }
    }
}

/// Each server has a window by its own setting. The leader's decides what commits, each one's own
/// which old versions it reads; nobody commits what a shorter window has let go of, whoever leads
/// next.
#[test]
fn windows_that_differ_lose_nothing_and_confuse_nobody() {
    for seed in 0..2 {
        let mut machines = Machines::new(seed, 3, NodeConfig::default());
        for (at, window) in [(0, 500_000), (1, 5_000_000), (2, 2_000_000)] {
            machines.crash(at);
            machines.config.window = window;
            machines.open(at).expect("it opens");
        }
        for round in 0..4 {
            let leader = machines.await_leader(|_| true);
            machines.set(leader, "key", &format!("{round}")).expect("a commit");
            // It reads, another one writes the same, and the leader changes: the first may not
            // commit, be it old or overtaken.
            let early = machines.database(leader).create_transaction();
            assert_eq!(
                machines.sim.run_until(early.get("key")).expect("a read").as_deref(),
                Some(format!("{round}").as_bytes())
            );
            let version = machines.sim.run_until(early.get_read_version()).expect("a version");
            machines.set(leader, "key", "other").expect("a commit");
            machines.sim.run_for(Duration::from_millis(900));
            machines.crash(leader);
            let next = machines.await_leader(|at| at != leader);
            let late = machines.database(next).create_transaction();
            late.set_read_version(version);
            let read = machines.sim.run_until(late.get("key"));
            let is_right =
                |found: &Option<_>| *found == Some(format!("{round}").into_bytes().into());
            assert!(
                read.as_ref().map_or_else(|why| matches!(why.code(), 1007 | 1009), is_right),
                "seed {seed}: {read:?}"
            );
            late.set("key", "lost");
            let refused = machines.sim.run_until(late.commit()).expect_err("it was overtaken");
            assert!(matches!(refused.code(), 1007 | 1009 | 1020), "seed {seed}: {refused}");
            machines.open(leader).expect("it opens");
            assert_eq!(machines.get(next, "key"), Ok(Some("other".into())), "seed {seed}");
        }
    }
}
