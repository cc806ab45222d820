//! Members whose disks hang: a follower says so, nobody waits for it, and it heals when the disk
//! answers; a leader lets another one lead. And of whoever takes nothing for long the one that
//! leads tells.

#[path = "common/heard.rs"]
mod heard;
mod machines;

use heard::heard;
use machines::{DIR, Machines};
use plinth_client::Endpoint;
use plinth_pipeline::{EngineKind, NodeConfig, SsdSettings};
#[cfg(feature = "planted-bugs")]
use plinth_types::marks::plant;
use plinth_types::{CommitRequest, Error, MutationList, MutationType};
use std::path::Path;
use std::time::Duration;
use tracing::Level;

fn formed(seed: u64) -> (Machines, usize) {
    let machines = Machines::new(seed, 3, NodeConfig::default());
    let leader = machines.await_leader(|_| true);
    machines.set(leader, "before", "1").expect("a commit");
    (machines, leader)
}

/// The disk of a machine answers nothing that changes a file, or answers again.
fn silence(machines: &Machines, at: usize, is_silent: bool) {
    let dir = is_silent.then(|| "/".into());
    machines.sim.update_faults(&machines.envs[at], |plan| plan.silent = dir);
}

/// Commits by whoever leads, for so many seconds.
fn put(machines: &Machines, seconds: u64) {
    let until = machines.sim.now() + Duration::from_secs(seconds);
    while machines.sim.now() < until {
        let leader = machines.await_leader(|_| true);
        // Whoever lost its place meanwhile says so.
        let _ = machines.set(leader, "row", "1");
        machines.sim.run_for(Duration::from_millis(200));
    }
}

/// Whether a member's status and its metrics tell that its disk hangs.
fn tells(machines: &Machines, at: usize) -> (bool, bool) {
    let host = machines.host(at);
    let status = machines.sim.run_until(host.endpoint().status_json()).unwrap();
    let metrics = host.metrics_text();
    let value = |line: &str| line.strip_prefix("plinth_disk_silent_seconds ")?.parse::<f64>().ok();
    let seconds = metrics.lines().find_map(value).expect("it is measured");
    (status.contains("\"name\":\"disk_silent\""), seconds > 5.0)
}

#[test]
fn a_follower_whose_disk_hangs_says_so_and_serves_what_others_commit() {
    let (machines, leader) = formed(1);
    let silent = (leader + 1) % 3;
    let ((), log) = heard(Level::INFO, || {
        silence(&machines, silent, true);
        put(&machines, 20);
        assert_eq!(machines.await_leader(|_| true), leader, "nobody had to miss it");
        assert_eq!(tells(&machines, silent), (true, true));
        // Its clients' commits are the leader's.
        assert_eq!(machines.host(silent).endpoint().refusal(), None);
        assert_eq!(tells(&machines, leader), (false, false));
        silence(&machines, silent, false);
        put(&machines, 20);
        assert_eq!(tells(&machines, silent), (false, false));
    });
    for what in ["the disk does not answer", "the disk answers again"] {
        let told = log.iter().filter(|line| line.contains(what)).count();
        assert_eq!(told, 1, "{what}: {log:#?}");
    }
    assert_eq!(machines.host(silent).failure(), None);
}

#[test]
fn a_leader_whose_disk_hangs_is_followed_by_another_one() {
    for seed in 0..6 {
        let (machines, first) = formed(seed);
        silence(&machines, first, true);
        let mut mutations = MutationList::new();
        mutations.push(MutationType::Set, b"during", b"2");
        let request = CommitRequest { mutations, ..CommitRequest::default() };
        let waits = machines.host(first).endpoint().commit(request);
        let began = machines.sim.now();
        let next = machines.await_leader(|at| at != first);
        let took = machines.sim.now() - began;
        assert!(took < Duration::from_secs(10), "seed {seed}: {took:?}");
        machines.set(next, "after", "3").expect("two of three are enough");
        silence(&machines, first, false);
        let fate = machines.sim.run_until_within(Duration::from_secs(10), waits);
        let fate = fate.expect("who has waited is told");
        assert!(
            fate.is_ok() || fate == Err(Error::commit_unknown_result()),
            "seed {seed}: {fate:?}"
        );
        put(&machines, 1);
        let leader = machines.await_leader(|_| true);
        for (key, value) in [("before", "1"), ("after", "3")] {
            let read = machines.get_at(leader, first, key).expect("it serves again");
            assert_eq!(read.as_deref(), Some(value), "seed {seed}");
        }
        if fate.is_ok() {
            assert_eq!(machines.get(leader, "during"), Ok(Some("2".to_owned())), "seed {seed}");
        }
        assert_eq!(machines.host(first).failure(), None);
    }
}

/// It refused all commits of the cluster instead, once what waits to be written took all of the
/// memory that it may take.
#[test]
fn a_leader_that_can_not_write_its_tables_lets_another_one_lead() {
    let ssd = SsdSettings::with_memory(4 << 20);
    let config = NodeConfig { engine: EngineKind::Ssd, ssd, ..NodeConfig::default() };
    let machines = Machines::new(3, 3, config);
    let first = machines.await_leader(|_| true);
    let tables = Path::new(DIR).join("gen-1/tables");
    machines.sim.update_faults(&machines.envs[first], |plan| plan.silent = Some(tables));
    let value = "v".repeat(50_000);
    let (mut committed, mut since) = (0, 0);
    let until = machines.sim.now() + Duration::from_secs(120);
    while since < 20 {
        assert!(machines.sim.now() < until, "{committed} commits, and {since} by another leader");
        let leader = machines.await_leader(|_| true);
        match machines.set(leader, &format!("row{committed}"), &value) {
            Ok(()) => {
                committed += 1;
                since += u32::from(leader != first);
            }
            // It tells what is wrong, and then that it leads no more.
            Err(error) => {
                let told = [Error::io_timeout(), Error::process_behind()];
                assert!(told.contains(&error), "after {committed} commits: {error}");
            }
        }
        machines.sim.run_for(Duration::from_millis(50));
    }
    assert_eq!(machines.host(first).failure(), None, "it may answer yet");
}

/// A follower's disk hangs, and rows are put. Whether the leader names it before the disk has hung
/// for half a minute, behind that, and when it answers again.
fn named_while_its_disk_hangs() -> [bool; 3] {
    let (machines, leader) = formed(1);
    let silent = (leader + 1) % 3;
    let is_named = || {
        let endpoint = machines.host(leader).endpoint();
        let status = machines.sim.run_until(endpoint.status_json()).expect("a status");
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        let voters = &status["cluster"]["plinth"]["member"]["voters"];
        assert!((0..3).all(|at| voters[at]["stalled"].is_boolean()), "{voters}");
        let stalled: Vec<_> = (0..3).filter(|at| voters[at]["stalled"] == true).collect();
        assert!(stalled.iter().all(|at| *at == silent), "{stalled:?}");
        !stalled.is_empty()
    };
    put(&machines, 40);
    assert!(!is_named(), "all is well");
    silence(&machines, silent, true);
    put(&machines, 20);
    let early = is_named();
    put(&machines, 15);
    let late = is_named();
    assert_eq!(machines.await_leader(|_| true), leader, "nobody had to miss it");
    silence(&machines, silent, false);
    put(&machines, 5);
    [early, late, is_named()]
}

/// It could be reached, so it was counted on: that one server may fail was said of a cluster in
/// which no commit would have come about then.
#[test]
fn a_follower_that_takes_nothing_is_told_by_who_leads() {
    let named = named_while_its_disk_hangs();
    assert_eq!(
        named,
        [false, true, false],
        "it may be slow; it is stalled; it takes what it lacks"
    );
    #[cfg(feature = "planted-bugs")]
    {
        plant(Some("who can be reached is never stalled"));
        let named = named_while_its_disk_hangs();
        plant(None);
        assert_eq!(named, [false; 3], "the planted mistake is not noticed");
    }
}
