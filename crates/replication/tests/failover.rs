//! A leader is lost, and another goes on: nothing that was acknowledged is missing, nothing else is
//! believed.
//!
//! The ways to lose one: the power, the network, the disk. What it had appended and nobody else had
//! is voided when it comes back, and its clients were told that they don't know.

mod machines;

use std::sync::Arc;
use std::time::Duration;

use machines::{Cluster, NODES};
use plinth_env::simulated::FaultPlan;
use plinth_log::{CommitLog, LogError, LogResult, LogView, Position};
use plinth_replication::ReplicatedLog;
use plinth_replication::planted::Planted;
use plinth_types::Version;

/// A new cluster, and the log of its leader with a lease that is long enough.
fn formed(seed: u64) -> (Cluster, ReplicatedLog) {
    let mut cluster = Cluster::new(seed, 1 << 14, Planted::None);
    let mut log = cluster.form((0, 0, 0));
    let lease = cluster.sim.run_until(log.extend_lease(1_000_000)).expect("a lease");
    cluster.sim.run_until(log.view().sync(lease)).expect("a committed lease");
    (cluster, log)
}

fn append(
    cluster: &Cluster,
    log: &mut ReplicatedLog,
    version: Version,
    len: usize,
) -> LogResult<Position> {
    let body = vec![version as u8; len];
    cluster.sim.run_until(log.append(version, &[&body]))
}

fn commit(cluster: &Cluster, log: &mut ReplicatedLog, version: Version, len: usize) {
    let position = append(cluster, log, version, len).expect("an append");
    cluster.sim.run_until(log.view().sync(position)).expect("a commit");
}

/// The versions that readers of a node see.
fn versions(cluster: &Cluster, at: usize) -> Vec<Version> {
    let member = cluster.member(at).expect("it is up");
    cluster.sim.run_until(async {
        let (mut reader, mut versions) = (member.view().reader(1), Vec::new());
        while let Some(entry) = reader.next().await.expect("an entry") {
            assert!(entry.body.iter().all(|byte| *byte == entry.version as u8));
            versions.push(entry.version);
        }
        versions
    })
}

/// Waits until readers of a node see everything up to this version.
fn await_version(cluster: &Cluster, at: usize, version: Version) {
    let member = cluster.member(at).expect("it is up");
    for _ in 0..2000 {
        if member.view().committed().version >= version {
            return;
        }
        cluster.sim.run_for(Duration::from_millis(5));
    }
    panic!("node {at} has come to {:?}, {version} is committed", member.view().committed());
}

#[test]
fn what_was_acknowledged_is_on_the_next_leader_and_comes_back_to_the_last() {
    for seed in 0..10 {
        let (mut cluster, mut log) = formed(seed);
        (1..=20).for_each(|version| commit(&cluster, &mut log, version, 300));
        let (lost, term) = (cluster.leader, log.term());
        cluster.sim.crash(&cluster.envs[lost]);
        cluster.restart_node(lost);
        let mut log = cluster.await_leader(|at| at != lost);
        assert!(log.term() > term);
        assert_eq!(versions(&cluster, cluster.leader), (1..=20).collect::<Vec<_>>(), "seed {seed}");
        (21..=25).for_each(|version| commit(&cluster, &mut log, version, 300));
        cluster.open_node(lost).expect("its log opens");
        await_version(&cluster, lost, 25);
        assert_eq!(versions(&cluster, lost), (1..=25).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(log.view().consumers(), []);
    }
}

#[test]
fn what_a_lost_leader_had_alone_is_voided() {
    for seed in 0..10 {
        let (mut cluster, mut old) = formed(seed);
        commit(&cluster, &mut old, 1, 300);
        let lost = cluster.leader;
        cluster.cut_off(Some(lost));
        let alone: Vec<_> =
            (2..5).map(|version| append(&cluster, &mut old, version, 300)).collect();
        let last = alone.last().cloned().expect("three").expect("it doesn't know yet");
        let mut log = cluster.await_leader(|at| at != lost);
        (10..=15).for_each(|version| commit(&cluster, &mut log, version, 300));
        let fate = cluster.sim.run_until(old.view().sync(last));
        assert_eq!(fate, Err(LogError::Unknown(String::new())), "seed {seed}");
        let refused = append(&cluster, &mut old, 6, 1);
        assert_eq!(refused, Err(LogError::Behind(String::new())), "seed {seed}");
        assert_eq!(versions(&cluster, lost), [1], "nothing that isn't committed is read");
        cluster.cut_off(None);
        await_version(&cluster, lost, 15);
        assert_eq!(versions(&cluster, lost), [1, 10, 11, 12, 13, 14, 15], "seed {seed}");
        // A restart of the one with void entries reads the same.
        cluster.sim.crash(&cluster.envs[lost]);
        cluster.restart_node(lost);
        cluster.open_node(lost).expect("its log opens");
        await_version(&cluster, lost, 15);
        assert_eq!(versions(&cluster, lost), [1, 10, 11, 12, 13, 14, 15], "seed {seed}");
    }
}

#[test]
fn a_leader_proves_that_it_leads_and_one_that_is_cut_off_does_not() {
    let (cluster, _log) = formed(3);
    let leader = cluster.member(cluster.leader).expect("it leads");
    let proofs: Vec<_> = (0..5).map(|_| leader.prove()).collect();
    for proof in proofs {
        assert_eq!(cluster.sim.run_until(proof), Ok(0), "no mutations yet");
    }
    let follower = cluster.member((cluster.leader + 1) % NODES).expect("it follows");
    assert_eq!(cluster.sim.run_until(follower.prove()), Err(LogError::Behind(String::new())));
    cluster.cut_off(Some(cluster.leader));
    assert_eq!(cluster.sim.run_until(leader.prove()), Err(LogError::Behind(String::new())));
    assert_eq!(leader.leads(), None, "whoever hears of no majority leads no longer");
}

#[test]
fn a_follower_far_behind_catches_up_from_files() {
    let (mut cluster, mut log) = formed(4);
    let behind = (cluster.leader + 1) % NODES;
    cluster.sim.crash(&cluster.envs[behind]);
    cluster.restart_node(behind);
    // Far more than memory keeps, and one entry larger than a frame should be.
    (1..=200).for_each(|version| commit(&cluster, &mut log, version, 2000));
    commit(&cluster, &mut log, 201, 3 << 20);
    cluster.open_node(behind).expect("its log opens");
    await_version(&cluster, behind, 201);
    assert_eq!(versions(&cluster, behind), (1..=201).collect::<Vec<_>>());
}

#[test]
fn a_leader_whose_disk_fails_gives_way() {
    let (mut cluster, mut log) = formed(5);
    commit(&cluster, &mut log, 1, 300);
    let (lost, view): (_, Arc<dyn LogView>) = (cluster.leader, log.view());
    let mut broken = FaultPlan::default();
    broken.sync.fail = 1.0;
    cluster.sim.set_faults(&cluster.envs[lost], broken);
    let position = append(&cluster, &mut log, 2, 300).expect("it is written");
    let told = cluster.sim.run_until(view.sync(position)).expect_err("its sync fails");
    assert!(
        matches!(told, LogError::Unknown(_) | LogError::Poisoned(_) | LogError::Io(_)),
        "{told}"
    );
    cluster.sim.run_for(Duration::from_millis(100));
    assert_eq!(view.check(), Err(LogError::Poisoned(String::new())));
    assert_eq!(
        append(&cluster, &mut log, 3, 1),
        Err(LogError::Poisoned(String::new())),
        "it takes nothing more"
    );
    let mut log = cluster.await_leader(|at| at != lost);
    commit(&cluster, &mut log, 10, 300);
    let found = versions(&cluster, cluster.leader);
    assert!(found == [1, 10] || found == [1, 2, 10], "{found:?}");
}

/// A member whose log waited for room answered nobody, so a task that was to make room waited for
/// it.
#[test]
fn a_member_whose_disk_is_full_answers_what_is_asked_of_it() {
    let (mut cluster, mut log) = formed(6);
    commit(&cluster, &mut log, 1, 300);
    let full = cluster.leader;
    let files = cluster.sim.files(&cluster.envs[full]);
    let used = files.iter().map(|(_, len)| len.next_multiple_of(4096)).sum();
    cluster.sim.update_faults(&cluster.envs[full], |plan| plan.capacity = Some(used));
    let mut version = 2;
    while append(&cluster, &mut log, version, 60_000).is_ok() {
        version += 1;
        assert!(version < 100, "the disk is never full");
    }
    let member = cluster.member(full).expect("it is up");
    let asked = [member.prove(), member.prove()];
    let marked = cluster.envs[full].spawn("mark", {
        let member = member.clone();
        async move { drop(member.mark_durable().await) }
    });
    cluster.sim.run_for(Duration::from_secs(1));
    assert!(member.standing().full.is_some(), "it waits for room");
    assert!(asked.iter().all(|reply| reply.is_ready()) && marked.is_finished(), "nobody waits");
    let mut log = cluster.await_leader(|at| at != full);
    commit(&cluster, &mut log, 1000, 300);
    cluster.sim.update_faults(&cluster.envs[full], |plan| plan.capacity = None);
    cluster.sim.run_for(Duration::from_secs(2));
    assert!(member.standing().full.is_none() && member.check().is_ok(), "it goes on");
}
