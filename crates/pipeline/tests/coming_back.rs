//! A member that begins again after the others went on without it serves once it has what it
//! missed, and not before: its reads wouldn't be wrong, but whoever sends them would wait.
//!
//! The machines are simulated. Where one was away the link to it is slow, so that it can be asked
//! meanwhile: each time it refuses, and tells how many entries it lacks.

mod machines;

use machines::Machines;
use plinth_client::Endpoint;
use plinth_pipeline::{EngineKind, NodeConfig};
use plinth_types::Error;
use std::time::Duration;

const ENTRIES: usize = 1_000;

/// Three members of which one was away while a lot was committed, and a link to it on which a byte
/// is three microseconds late.
fn with_one_away(seed: u64) -> (Machines, usize, usize) {
    let engine = if seed.is_multiple_of(2) { EngineKind::Memory } else { EngineKind::Ssd };
    let mut machines = Machines::new(seed, 3, NodeConfig { engine, ..NodeConfig::default() });
    let leader = machines.await_leader(|_| true);
    machines.set(leader, "old", "1").expect("a commit");
    machines.sim.run_for(Duration::from_millis(500));
    let away = (leader + 1) % 3;
    machines.crash(away);
    for n in 0..ENTRIES {
        machines
            .set(leader, &format!("key{:03}", n % 100), &format!("{n:->700}"))
            .expect("a commit");
    }
    machines.slow(away, Duration::from_micros(3));
    (machines, leader, away)
}

/// What a node tells of how many entries it lacks.
fn entries_behind(machines: &Machines, at: usize) -> Option<u64> {
    let status =
        machines.sim.run_until(machines.host(at).endpoint().status_json()).expect("a status");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    status.pointer("/cluster/plinth/member/catching_up/entries_behind")?.as_u64()
}

/// Runs until a node serves; gives the most entries that it said to lack.
fn await_serving(
    machines: &Machines,
    leader: usize,
    at: usize,
    mut meanwhile: impl FnMut(u64),
) -> u64 {
    let mut most = 0;
    for step in 0..2_000 {
        let host = machines.host(at);
        if !host.is_catching_up() {
            return most;
        }
        let told = entries_behind(machines, at);
        let why = host.endpoint().refusal().expect("its health is told");
        if let Some(told) = told {
            assert!(
                why.to_string().contains(&format!("catching up, {told} entries behind")),
                "{why}"
            );
        }
        let refused = machines.get_at(leader, at, "old");
        assert!(refused == Err(Error::process_behind()) || !host.is_catching_up(), "{refused:?}");
        most = most.max(told.unwrap_or_default());
        meanwhile(step);
        machines.sim.run_for(Duration::from_millis(5));
    }
    panic!("node {at} never serves: {:?}", machines.host(at).endpoint().refusal());
}

#[test]
fn a_member_serves_nothing_before_it_has_the_entries_that_it_missed() {
    for seed in 0..2 {
        let (mut machines, leader, away) = with_one_away(seed);
        machines.open(away).expect("it opens");
        assert!(
            machines.host(away).is_catching_up(),
            "seed {seed}: it can't know yet what it missed"
        );
        let most = await_serving(&machines, leader, away, |step| {
            // The others go on.
            machines.set(leader, "meanwhile", &step.to_string()).expect("a commit");
        });
        assert!(most > ENTRIES as u64 / 2, "seed {seed}: {most} entries were told");
        // What it is asked now it answers, without much waiting.
        let began = machines.sim.now();
        let newest = format!("{:->700}", ENTRIES - 1);
        let key = format!("key{:03}", (ENTRIES - 1) % 100);
        assert_eq!(machines.get_at(leader, away, &key), Ok(Some(newest)), "seed {seed}");
        let took = machines.sim.now() - began;
        assert!(took < Duration::from_millis(150), "seed {seed}: {took:?}");
        assert_eq!(machines.host(away).endpoint().refusal(), None, "seed {seed}");
    }
}

/// Another one leads meanwhile, and the log goes on: what is asked for is asked anew, and it serves
/// all the same. (That a log which grows faster than a member follows keeps nobody away, `host.rs`
/// tests: here a link is late, never full.)
#[test]
fn a_change_of_leader_under_load_keeps_no_member_away() {
    for seed in 0..2 {
        let (mut machines, leader, away) = with_one_away(seed);
        machines.open(away).expect("it opens");
        machines.sim.run_for(Duration::from_millis(20));
        machines.sim.run_until(machines.host(leader).hand_over());
        let third = 3 - leader - away;
        let leader = machines.await_leader(|at| at == third);
        await_serving(&machines, leader, away, |step| {
            for n in 0..10 {
                machines.set(leader, "load", &format!("{step} {n}")).expect("a commit");
            }
        });
        assert_eq!(machines.get_at(leader, away, "old"), Ok(Some("1".into())), "seed {seed}");
    }
}

/// Nobody waits for somebody else where all of them were down.
#[test]
fn members_that_begin_together_serve_as_soon_as_one_of_them_leads() {
    for seed in 0..6 {
        let mut machines = Machines::new(seed, 3, NodeConfig::default());
        let leader = machines.await_leader(|_| true);
        machines.set(leader, "key", "1").expect("a commit");
        machines.sim.run_for(Duration::from_millis(500));
        (0..3).for_each(|at| machines.crash(at));
        (0..3).for_each(|at| machines.open(at).expect("it opens"));
        let leader = machines.await_leader(|_| true);
        machines.sim.run_for(Duration::from_millis(20));
        for at in 0..3 {
            assert!(!machines.host(at).is_catching_up(), "seed {seed}: node {at}");
            assert_eq!(
                machines.get_at(leader, at, "key"),
                Ok(Some("1".into())),
                "seed {seed}: node {at}"
            );
        }
    }
}

/// Who hears of nobody that leads tells what it has after a while, for those who know the version.
#[test]
fn a_member_that_is_alone_serves_what_it_has() {
    let mut machines = Machines::new(3, 3, NodeConfig::default());
    let leader = machines.await_leader(|_| true);
    machines.set(leader, "key", "1").expect("a commit");
    machines.sim.run_for(Duration::from_millis(500));
    (0..3).for_each(|at| machines.crash(at));
    machines.open(0).expect("it opens");
    machines.sim.run_for(Duration::from_secs(3));
    let why = machines.host(0).endpoint().refusal().expect("nobody has told it anything");
    assert!(why.to_string().contains("catching up, and nobody has told"), "{why}");
    machines.sim.run_for(Duration::from_secs(3));
    assert!(!machines.host(0).is_catching_up());
    // With another one there is a majority again.
    machines.open(1).expect("it opens");
    let leader = machines.await_leader(|_| true);
    assert_eq!(machines.get(leader, "key"), Ok(Some("1".into())));
}

/// A member without a majority answered probes as if it served.
#[test]
fn who_hears_of_no_leader_says_so_and_not_while_one_is_elected() {
    let mut machines = Machines::new(31, 3, NodeConfig::default());
    let leader = machines.await_leader(|_| true);
    let (one, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let refusal = |machines: &Machines, at: usize| machines.host(at).endpoint().refusal();
    machines.crash(leader);
    let next = machines.await_leader(|at| at != leader);
    for at in [one, other] {
        assert_eq!(refusal(&machines, at), None, "an election is no cause");
    }
    let alone = if next == one { other } else { one };
    machines.crash(next);
    machines.sim.run_for(Duration::from_secs(4));
    assert_eq!(refusal(&machines, alone), None);
    machines.sim.run_for(Duration::from_secs(4));
    let told = refusal(&machines, alone).expect("it is told");
    assert!(told.code() == 1037 && told.to_string().contains("no leader"), "{told}");
    let metrics = machines.host(alone).metrics_text();
    assert!(metrics.contains("plinth_refusing{cause=\"no_leader\"} 1"), "{metrics}");
    machines.open(next).expect("its directory is whole");
    machines.await_leader(|_| true);
    machines.sim.run_for(Duration::from_secs(1));
    assert_eq!(refusal(&machines, alone), None, "it hears of one again");
}
