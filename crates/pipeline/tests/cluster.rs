//! Members of a cluster: they elect, commit, follow, lose a leader, and get it back.
//!
//! Each test says one thing that a cluster does, on three or five simulated machines and both
//! engines, for a few seeds. What happens when everything goes wrong at once is the simulation's
//! business (`crates/sim`).

mod machines;

use machines::{DIR, Machines};
use plinth_client::{Endpoint, ReadVersionRequest};
use plinth_env::simulated::{CallKind, FaultPlan};
use plinth_pipeline::{EngineKind, Node, NodeConfig};
use plinth_types::{Bytes, CommitRequest, Error, KeyList, KeySpace, MutationList, MutationType};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn formed(seed: u64, size: usize) -> (Machines, usize) {
    let engine = if seed.is_multiple_of(2) { EngineKind::Memory } else { EngineKind::Ssd };
    let machines = Machines::new(seed, size, NodeConfig { engine, ..NodeConfig::default() });
    let leader = machines.await_leader(|_| true);
    (machines, leader)
}

/// Waits until a node answers this for a key, at the version that the leader gives.
fn await_value(machines: &Machines, leader: usize, at: usize, key: &str, value: &str) {
    for _ in 0..1000 {
        if machines.get_at(leader, at, key).ok().flatten().as_deref() == Some(value) {
            return;
        }
        machines.sim.run_for(Duration::from_millis(5));
    }
    panic!("node {at} has {:?}", machines.get_at(leader, at, key));
}

#[test]
fn what_a_leader_commits_every_member_reads() {
    for seed in 0..6 {
        let (machines, leader) = formed(seed, if seed < 4 { 3 } else { 5 });
        machines.set(leader, "key", "value").expect("a commit");
        assert_eq!(machines.get(leader, "key"), Ok(Some("value".to_string())));
        for at in 0..machines.envs.len() {
            assert_eq!(machines.get_at(leader, at, "key"), Ok(Some("value".into())), "seed {seed}");
            machines.node(at).check_invariants();
        }
    }
}

#[test]
fn a_follower_says_who_leads_and_does_nothing() {
    let (machines, leader) = formed(1, 3);
    let follower = (leader + 1) % 3;
    let refused = machines.set(follower, "key", "value").expect_err("it doesn't lead");
    let told = machines
        .sim
        .run_until(machines.node(follower).endpoint().read_version(ReadVersionRequest::default()));
    let told = told.expect_err("it doesn't lead");
    assert_eq!((refused, told.clone()), (Error::process_behind(), Error::process_behind()));
    assert!(told.to_string().contains(&format!("leader is node {}", leader + 1)), "{told}");
    let leadership = machines.node(follower).leadership();
    assert_eq!((leadership.leader, leadership.is_ready), (Some(leader as u64 + 1), false));
    assert!(machines.node(follower).endpoint().may_lose_answers());
    // A version that nobody has handed out is waited for in vain.
    let mut keys = KeyList::new();
    keys.push(b"key");
    let future = machines.node(follower).endpoint().get_many(1 << 50, KeySpace::Normal, &keys);
    assert_eq!(machines.sim.run_until(future), Err(Error::future_version()));
    assert_eq!(machines.get(leader, "key"), Ok(None));
}

#[test]
fn a_leader_that_loses_its_power_is_followed_by_another_and_comes_back() {
    for seed in 0..8 {
        let (mut machines, lost) = formed(seed, 3);
        machines.set(lost, "before", "1").expect("a commit");
        let term = machines.node(lost).leadership().term;
        machines.crash(lost);
        let leader = machines.await_leader(|at| at != lost);
        assert!(machines.node(leader).leadership().term > term);
        assert_eq!(machines.get(leader, "before"), Ok(Some("1".into())), "seed {seed}");
        machines.set(leader, "after", "2").expect("a commit");
        machines.open(lost).expect("it opens");
        await_value(&machines, leader, lost, "after", "2");
        assert_eq!(machines.get_at(leader, lost, "before"), Ok(Some("1".into())));
        // And all of them at a time.
        (0..3).for_each(|at| machines.crash(at));
        (0..3).for_each(|at| machines.open(at).expect("it opens"));
        let leader = machines.await_leader(|_| true);
        assert_eq!(machines.get(leader, "after"), Ok(Some("2".into())), "seed {seed}");
    }
}

#[test]
fn a_leader_that_is_cut_off_answers_nobody_and_its_last_entries_are_void() {
    for seed in 0..6 {
        let (machines, lost) = formed(seed, 3);
        machines.set(lost, "key", "old").expect("a commit");
        machines.isolate(lost);
        let stale = machines.node(lost).endpoint().read_version(ReadVersionRequest::default());
        let tr = machines.database(lost).create_transaction();
        tr.set("alone", "1");
        let commit = tr.commit();
        let leader = machines.await_leader(|at| at != lost);
        machines.set(leader, "key", "new").expect("a commit");
        machines.sim.run_until(stale).expect_err("nobody has said that it still leads");
        machines.heal();
        let fate = machines.sim.run_until(commit);
        assert!(fate.is_err(), "seed {seed}");
        await_value(&machines, leader, lost, "key", "new");
        assert_eq!(machines.get_at(leader, lost, "alone"), Ok(None), "seed {seed}");
    }
}

#[test]
fn whoever_counts_votes_takes_nobody_for_the_leader_once_another_one_is() {
    for seed in 0..8 {
        let (machines, lost) = formed(seed, if seed < 4 { 3 } else { 5 });
        machines.set(lost, "key", "old").expect("a commit");
        let count = || {
            let others = (0..machines.envs.len()).filter(|at| *at != lost);
            others.filter_map(|at| machines.node(at).endpoint().standing()).collect::<Vec<_>>()
        };
        let ask =
            || machines.node(lost).endpoint().counted_read_version(ReadVersionRequest::default());
        let (before, quorum) = machines.sim.run_until(ask()).expect("it leads");
        let quorum = quorum.expect("nothing has to be proven while all is well");
        assert_eq!(quorum.leader, lost as u64 + 1);
        assert!(quorum.is_met(&count()) && !quorum.is_met(&[]));
        machines.isolate(lost);
        // Whoever wants to lead has a later term before anybody has elected it.
        let is_led_anew = || {
            let mut others = (0..machines.envs.len()).filter(|at| *at != lost);
            others.any(|at| machines.node(at).leadership().leader == Some(at as u64 + 1))
        };
        while !is_led_anew() {
            machines.sim.run_for(Duration::from_micros(300));
        }
        assert!(!quorum.is_met(&count()), "seed {seed}: two lead");
        let leader = machines.await_leader(|at| at != lost);
        machines.set(leader, "key", "new").expect("a commit");
        // Whatever it says now.
        if let Some(Ok((_, Some(quorum)))) = ask().try_take() {
            assert!(!quorum.is_met(&count()), "seed {seed}");
        }
        machines.heal();
        await_value(&machines, leader, lost, "key", "new");
        let endpoint = machines.node(leader).endpoint();
        let (after, quorum) = machines
            .sim
            .run_until(endpoint.counted_read_version(ReadVersionRequest::default()))
            .expect("it leads");
        assert!(after.version > before.version);
        let standing = machines.node(lost).endpoint().standing().expect("it takes part again");
        assert!(quorum.is_none_or(|quorum| quorum.is_agreed_by(&standing)), "seed {seed}");
    }
}

#[test]
fn a_watch_on_a_follower_fires_and_what_fired_it_can_be_read() {
    let (machines, leader) = formed(2, 3);
    machines.set(leader, "key", "1").expect("a commit");
    for at in 0..3 {
        let version = machines
            .sim
            .run_until(machines.database(leader).create_transaction().get_read_version());
        let key = Bytes::from_static(b"key");
        let seen = machines
            .get(leader, "key")
            .expect("a read")
            .map(|value| Bytes::from(value.into_bytes()));
        let watch = machines.node(at).endpoint().watch(key, seen, version.expect("a version"));
        machines.set(leader, "key", &format!("at {at}")).expect("a commit");
        let fired = machines.sim.run_until(watch).expect("it fires");
        let newest = machines
            .sim
            .run_until(machines.database(leader).create_transaction().get_read_version());
        assert!(newest.expect("a version") >= fired);
    }
}

#[test]
fn a_leader_hands_over_before_it_closes() {
    for seed in 0..6 {
        let (machines, old) = formed(seed, 3);
        machines.set(old, "key", "1").expect("a commit");
        let began = machines.sim.now();
        machines.sim.run_until(machines.node(old).hand_over());
        let leader = machines.await_leader(|at| at != old);
        let took = machines.sim.now() - began;
        assert!(took < Duration::from_millis(200), "nobody had to miss the leader: {took:?}");
        machines.sim.run_until(machines.node(old).close()).expect("it closes");
        machines.set(leader, "key", "2").expect("a commit");
    }
}

#[test]
fn a_member_shows_how_it_stands() {
    let (machines, leader) = formed(0, 3);
    machines.set(leader, "key", "1").expect("a commit");
    machines.sim.run_for(Duration::from_secs(1));
    for at in 0..3 {
        let member = shown(&machines, at);
        assert_eq!(member["role"], if at == leader { "leader" } else { "follower" }, "{member}");
        assert_eq!((&member["leader"], &member["node"]), (&(leader + 1).into(), &(at + 1).into()));
        assert_eq!(member["committed_index"], member["last_index"], "{member}");
        for voter in 0..3 {
            let known = (voter != leader).then_some(0);
            assert_eq!(lag(&machines, at, "voters", voter), known, "of {voter}: {member}");
        }
        let metrics = machines.node(at).metrics_text();
        assert!(
            metrics.contains(&format!("\nplinth_is_leader {}\n", u8::from(at == leader))),
            "{metrics}"
        );
        let tells = metrics.contains("\nplinth_follower_lag_entries{");
        assert_eq!(tells, at == leader, "one member tells it, or there are three alerts");
    }
}

/// How a node stands in its cluster, as its status shows it.
fn shown(machines: &Machines, at: usize) -> serde_json::Value {
    let status = machines.sim.run_until(machines.node(at).endpoint().status_json());
    let status: serde_json::Value = serde_json::from_str(&status.expect("a status")).expect("JSON");
    status["cluster"]["plinth"]["member"].clone()
}

/// How many entries a member lacks, as the status of the node `at` shows it.
fn lag(machines: &Machines, at: usize, part: &str, place: usize) -> Option<u64> {
    shown(machines, at)[part][place]["lag_entries"].as_u64()
}

/// Only whoever leads knew it: who asked another member, as two of three clients do, learned of no
/// member that it lacks anything.
#[test]
fn those_who_follow_tell_who_lacks_entries_too() {
    let (mut machines, leader) = formed(0, 3);
    let learner = machines.join(leader, "10.0.0.9:4500").expect("it is taken in");
    let (near, away) = ((leader + 1) % 3, (leader + 2) % 3);
    machines.set(leader, "key", "1").expect("a commit");
    machines.sim.run_for(Duration::from_secs(2));
    for at in [leader, near, learner] {
        assert_eq!(lag(&machines, at, "voters", away), Some(0), "at {at}");
        assert_eq!(lag(&machines, at, "learners", 0), Some(0), "at {at}");
    }
    machines.isolate(away);
    (0..10).for_each(|_| machines.set(leader, "key", "2").expect("a commit"));
    machines.sim.run_for(Duration::from_secs(3));
    for at in [leader, near, learner] {
        let lacks = lag(&machines, at, "voters", away);
        assert!(lacks >= Some(10), "at {at}: {lacks:?}");
        assert_eq!(lag(&machines, at, "learners", 0), Some(0), "at {at}");
    }
    assert_eq!(lag(&machines, away, "voters", near), None, "nobody leads there");
    machines.heal();
    machines.sim.run_for(Duration::from_secs(5));
    let leader = machines.await_leader(|_| true);
    for at in [0, 1, 2, learner] {
        for voter in 0..3 {
            let known = (voter != leader).then_some(0);
            assert_eq!(lag(&machines, at, "voters", voter), known, "of {voter} at {at}");
        }
        assert_eq!(lag(&machines, at, "learners", 0), Some(0), "at {at}");
    }
}

#[test]
fn an_idle_cluster_takes_commits_of_young_transactions() {
    let (machines, leader) = formed(0, 3);
    machines.set(leader, "key", "1").expect("a commit");
    machines.sim.run_for(Duration::from_secs(120));
    let tr = machines.database(leader).create_transaction();
    assert_eq!(machines.sim.run_until(tr.get("key")).map(|value| value.is_some()), Ok(true));
    tr.set("key", "2");
    machines.sim.run_until(tr.commit()).expect("it isn't too old");
}

#[test]
fn a_directory_is_opened_as_what_it_is() {
    let (mut machines, _) = formed(0, 3);
    let config = NodeConfig::default();
    for at in 0..3 {
        machines.sim.run_until(machines.node(at).close()).expect("it closes");
        machines.crash(at);
    }
    let dir = Path::new(DIR);
    let alone =
        machines.sim.run_until(Node::open(&machines.envs[0], dir, config.clone())).map(drop);
    let alone = alone.expect_err("a member's");
    assert_eq!(Error::from(&alone), Error::client_invalid_operation());
    assert!(alone.to_string().contains("node 1 of a cluster"), "{alone}");
    let formed = machines.form(0).expect_err("it is formed");
    assert_eq!(formed, Error::client_invalid_operation());
    let report =
        machines.sim.run_until(plinth_pipeline::check(&machines.envs[0], dir)).expect("a report");
    assert!(report.problems.is_empty(), "{report:?}");
    let other = Path::new("/other");
    let node = machines
        .sim
        .run_until(Node::open(&machines.envs[0], other, config.clone()))
        .expect("a node");
    machines.sim.run_until(node.close()).expect("it closes");
    drop(node);
    let membership = machines.membership(0);
    let form = Node::form(&machines.envs[0], other, &config, &membership);
    let formed = machines.sim.run_until(form).map_err(Error::from);
    assert_eq!(formed, Err(Error::client_invalid_operation()));
    (0..3).for_each(|at| machines.open(at).expect("it opens"));
    let leader = machines.await_leader(|_| true);
    machines.set(leader, "key", "1").expect("a commit");
}

/// Forms a member until it has made so many file calls. Whether it was still under way.
fn form_until(machines: &Machines, bound: u64) -> bool {
    let kinds = [CallKind::Read, CallKind::Write, CallKind::Sync, CallKind::Open, CallKind::Rename];
    let machine = machines.envs[0].clone();
    let calls = || kinds.iter().map(|kind| machines.sim.call_count(&machine, *kind)).sum::<u64>();
    let before = calls();
    let (env, config, membership) =
        (machine.clone(), machines.config.clone(), machines.membership(0));
    let done = Arc::new(AtomicBool::new(false));
    let told = done.clone();
    drop(machine.spawn("form", async move {
        Node::form(&env, Path::new(DIR), &config, &membership).await.expect("it is formed");
        told.store(true, Ordering::SeqCst);
    }));
    while calls() - before < bound {
        if done.load(Ordering::SeqCst) {
            return false;
        }
        machines.sim.run_for(Duration::from_micros(1));
    }
    !done.load(Ordering::SeqCst)
}

#[test]
fn a_crash_at_any_file_call_leaves_a_member_or_what_is_formed_anew() {
    let (mut crashes, mut anew) = (0, 0);
    for engine in [EngineKind::Memory, EngineKind::Ssd] {
        for bound in 1.. {
            let config = NodeConfig { engine, ..NodeConfig::default() };
            let mut machines = Machines::empty(bound, 1, config);
            let crashed = form_until(&machines, bound);
            crashes += u32::from(crashed);
            machines.crash(0);
            if machines.open(0).is_err() {
                assert!(crashed, "what was formed is durable");
                anew += 1;
                // What was begun as a member may become a database of its own, and the other way
                // round.
                if bound % 3 == 0 {
                    let dir = Path::new(DIR);
                    let config = machines.config.clone();
                    let alone = machines.sim.run_until(Node::open(&machines.envs[0], dir, config));
                    machines
                        .sim
                        .run_until(alone.expect("a database of its own").close())
                        .expect("it closes");
                    assert_eq!(machines.open(0), Err(Error::client_invalid_operation()));
                    continue;
                }
                machines.form(0).expect("it is begun again");
                machines.open(0).expect("it opens");
            }
            let leader = machines.await_leader(|_| true);
            machines.set(leader, "key", "1").expect("a commit");
            if !crashed {
                break;
            }
        }
    }
    assert!(crashes > 50 && anew > 30, "{crashes} crashes, {anew} formed anew");
}

#[test]
fn a_leader_whose_disk_stalls_or_fails_gives_way() {
    for seed in 0..6 {
        let (machines, lost) = formed(seed, 3);
        machines.set(lost, "key", "1").expect("a commit");
        let mut plan = FaultPlan::default();
        match seed % 3 {
            0 => {
                (plan.sync.latency_min, plan.sync.latency_max) =
                    (Duration::from_secs(60), Duration::from_secs(60))
            }
            1 => plan.sync.fail = 1.0,
            _ => plan.write.fail = 1.0,
        }
        machines.sim.set_faults(&machines.envs[lost], plan);
        let mut mutations = MutationList::new();
        mutations.push(MutationType::Set, b"key", b"2");
        let commit = machines
            .node(lost)
            .endpoint()
            .commit(CommitRequest { mutations, ..CommitRequest::default() });
        let began = machines.sim.now();
        let leader = machines.await_leader(|at| at != lost);
        assert!(machines.sim.now() - began < Duration::from_secs(3), "seed {seed}");
        machines.set(leader, "key", "3").expect("a commit");
        let fate =
            machines.sim.run_until_within(Duration::from_secs(3), commit).expect("an answer");
        fate.expect_err("nobody knows, or it did not come to be");
        assert_eq!(machines.get(leader, "key"), Ok(Some("3".into())), "seed {seed}");
        let is_failed = machines.node(lost).failure().is_some();
        assert_eq!(
            is_failed,
            !seed.is_multiple_of(3),
            "seed {seed}: {:?}",
            machines.node(lost).failure()
        );
    }
}

/// With three disks that are slower than the timeout of an election nobody led for good, though any
/// of them could have: answers to heartbeats waited for what was to be synced.
#[test]
fn a_leader_stays_where_all_disks_are_as_slow() {
    for seed in 0..6 {
        let (machines, leader) = formed(seed, 3);
        let mut plan = FaultPlan::default();
        let slow = Duration::from_millis(700 + 100 * (seed % 3));
        (plan.sync.latency_min, plan.sync.latency_max) = (slow, slow + slow / 4);
        machines.envs.iter().for_each(|env| machines.sim.set_faults(env, plan.clone()));
        let mut changes = 0;
        let mut leads = leader;
        for n in 0..40 {
            let now = machines.await_leader(|_| true);
            changes += u32::from(now != leads);
            leads = now;
            // Its fate is unknown where a leader gives way all the same.
            let _ = machines.set(leads, "key", &n.to_string());
        }
        assert_eq!(changes, 0, "seed {seed}");
    }
}

/// A member's sync failed, and whoever noticed first that its log was closed said that its own work
/// was left undone: a bug to be reported, where a disk was broken.
#[test]
fn a_member_whose_disk_fails_says_so() {
    for seed in 0..12 {
        let machines = Machines::new(seed, 3, NodeConfig::default());
        let leader = machines.await_leader(|_| true);
        let at = if seed % 2 == 0 { leader } else { (leader + 1) % 3 };
        machines.sim.update_faults(&machines.envs[at], |plan| plan.sync.fail = 1.0);
        // Its fate is not known where the leader's disk fails.
        let _ = machines.set(leader, "key", "1");
        machines.sim.run_for(Duration::from_secs(1));
        let failure = machines.host(at).failure();
        assert!(
            failure.as_ref().is_some_and(|why| Error::from(why) == Error::io_error()),
            "seed {seed}: {failure:?}"
        );
        let next = machines.await_leader(|other| other != at);
        machines.set(next, "key", "2").expect("the others go on");
    }
}
