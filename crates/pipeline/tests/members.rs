//! Members come and go: a new node follows, votes, takes the place of one whose disk is lost.
//!
//! Whoever loses its power meanwhile, nothing that was acknowledged is missing, and rows and
//! consensus say the same of who is a member on every node.

mod machines;

use machines::{DIR, Machines};
use plinth_client::Endpoint;
use plinth_env::simulated::Random;
use plinth_pipeline::cluster::{Members, Part};
use plinth_pipeline::{EngineKind, Node, NodeConfig};
use plinth_replication::NodeId;
#[cfg(feature = "planted-bugs")]
use plinth_types::marks::plant;
use plinth_types::system::{EXCLUDED_PREFIX, FAILED_PREFIX, MEMBERS, VOTER_COUNT};
use plinth_types::{CommitRequest, Error, KeyList, KeySpace, MutationList, MutationType, Result};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn formed(seed: u64, size: usize) -> (Machines, usize) {
    let engine = if seed.is_multiple_of(2) { EngineKind::Memory } else { EngineKind::Ssd };
    let machines = Machines::new(seed, size, NodeConfig { engine, ..NodeConfig::default() });
    let leader = machines.await_leader(|_| true);
    (machines, leader)
}

/// Commits rows of the system's, as a command does.
fn wish(machines: &Machines, leader: usize, rows: &[(&[u8], &[u8], &str)]) -> Result<()> {
    let mut mutations = MutationList::new();
    for (prefix, key, value) in rows {
        mutations.push(MutationType::Set, &[*prefix, key].concat(), value.as_bytes());
    }
    let request = CommitRequest { mutations, ..CommitRequest::default() };
    machines.sim.run_until(machines.node(leader).endpoint().commit(request)).map(drop)
}

fn members(machines: &Machines, at: usize) -> Arc<Members> {
    machines.node(at).membership().expect("it is a member").members
}

/// Runs until the members are as they should be, at a node that leads; gives which.
fn await_members(machines: &Machines, is_wanted: impl Fn(&Members) -> bool) -> usize {
    for _ in 0..4000 {
        let leader = machines.await_leader(|_| true);
        if is_wanted(&members(machines, leader)) {
            return leader;
        }
        machines.sim.run_for(Duration::from_millis(10));
    }
    let leader = machines.await_leader(|_| true);
    panic!("they are {:?}", members(machines, leader));
}

fn voters(ids: &[NodeId]) -> impl Fn(&Members) -> bool {
    move |members| !members.is_joint() && members.voters() == ids
}

/// The members as a node's rows have them.
fn in_rows(machines: &Machines, leader: usize, at: usize) -> Members {
    let mut keys = KeyList::new();
    keys.push(MEMBERS);
    let endpoint = machines.node(at).endpoint();
    let tr = machines.database(leader).create_transaction();
    let version = machines.sim.run_until(tr.get_read_version()).expect("a version");
    let row = machines
        .sim
        .run_until(endpoint.get_many(version, KeySpace::System, &keys))
        .expect("a read");
    Members::decode(row[0].as_ref().expect("there is a row")).expect("members")
}

#[test]
fn a_new_node_follows_and_votes_in_the_place_of_one_that_is_excluded() {
    for seed in 0..4 {
        let (mut machines, leader) = formed(seed, 3);
        machines.set(leader, "before", "1").expect("a commit");
        let new = machines.join(leader, "10.0.0.9:4500").expect("it is taken in");
        assert_eq!(members(&machines, leader).part(4), Some(Part::Learner), "seed {seed}");
        machines.set(leader, "key", "1").expect("a commit");
        machines.sim.run_for(Duration::from_millis(500));
        assert_eq!(machines.get_at(leader, new, "before"), Ok(Some("1".into())), "seed {seed}");
        // Whoever leads is to go: another one leads before it does.
        let address = format!("10.0.0.{leader}:4500");
        wish(&machines, leader, &[(EXCLUDED_PREFIX, address.as_bytes(), "")]).expect("a commit");
        let left: Vec<_> = (1..=4).filter(|id| *id != leader as u64 + 1).collect();
        let next = await_members(&machines, voters(&left));
        assert_ne!(next, leader);
        assert_eq!(
            members(&machines, next).part(leader as u64 + 1),
            Some(Part::Learner),
            "it follows"
        );
        machines.set(next, "key", "2").expect("a commit");
        machines.sim.run_for(Duration::from_millis(500));
        for at in 0..4 {
            assert_eq!(
                machines.get_at(next, at, "key"),
                Ok(Some("2".into())),
                "seed {seed}, node {at}"
            );
            assert_eq!(
                in_rows(&machines, next, at),
                *members(&machines, at),
                "rows and consensus say the same"
            );
        }
    }
}

/// What is committed takes effect a while later, when it is written down; who joins meanwhile has
/// to see it, too.
#[test]
fn nodes_that_join_at_the_same_moment_get_numbers_of_their_own() {
    for seed in 0..12 {
        let (machines, leader) = formed(seed, 3);
        let env = &machines.envs[leader];
        machines
            .sim
            .update_faults(env, |faults| faults.rename.latency_max = Duration::from_millis(30));
        let mut random = Random::new(seed);
        let taken = Arc::new(Mutex::new(Vec::new()));
        let joins: Vec<_> = (7..10)
            .map(|place| {
                machines.sim.run_for(Duration::from_millis(random.below(12)));
                let (node, taken) = (machines.node(leader), taken.clone());
                env.spawn("joins", async move {
                    let address = format!("10.0.0.{place}:4500");
                    let membership = node.take_in(&address).await.expect("it is taken in");
                    taken.lock().expect("nobody panicked").push((membership.node, address));
                })
            })
            .collect();
        joins.into_iter().for_each(|join| machines.sim.run_until(join).expect("it ends"));
        let mut taken = taken.lock().expect("nobody panicked").clone();
        taken.sort();
        let found = members(&machines, leader);
        let learners: Vec<_> =
            found.nodes[3..].iter().map(|node| (node.id, node.address.clone())).collect();
        assert_eq!(taken, learners, "seed {seed}");
        assert_eq!(in_rows(&machines, leader, leader), *found, "seed {seed}");
    }
}

#[test]
fn a_node_whose_disk_is_lost_comes_back_as_another_one_and_votes_when_it_has_everything() {
    for seed in 0..4 {
        let (mut machines, leader) = formed(seed, 3);
        let lost = (leader + 1) % 3;
        machines.set(leader, "before", "1").expect("a commit");
        let address = format!("10.0.0.{lost}:4500");
        let there = machines.join(leader, &address).expect_err("somebody is there");
        assert!(there.to_string().contains("which is there"), "{there}");
        machines.crash(lost);
        machines.sim.run_for(Duration::from_secs(1));
        let new = machines.join(leader, &address).expect("it is taken in");
        let left: Vec<_> = (1..=4).filter(|id| *id != lost as u64 + 1).collect();
        let leader = await_members(&machines, voters(&left));
        assert_eq!(members(&machines, leader).part(lost as u64 + 1), None, "its number is gone");
        machines.set(leader, "key", "1").expect("a commit");
        // It counts now: without one of the others it goes on.
        let other = (0..3).find(|at| *at != lost && *at != leader).unwrap_or(new);
        machines.crash(other);
        let leader = machines.await_leader(|_| true);
        machines.set(leader, "key", "2").expect("a commit");
        assert_eq!(machines.get(leader, "before"), Ok(Some("1".into())));
        // The disk that was thought to be lost comes back: it says what has become of it when it
        // hears.
        machines.open(lost).expect("its directory is as it was");
        machines.sim.run_for(Duration::from_secs(2));
        machines.node(lost).be_removed();
        let told = machines.node(lost).failure().expect("it serves nothing").to_string();
        assert!(told.contains("was removed from its cluster"), "{told}");
        machines.set(leader, "key", "3").expect("nobody was disturbed");
    }
}

#[test]
fn one_voter_is_made_three_and_three_are_made_one() {
    for seed in 0..3 {
        let (mut machines, leader) = formed(seed, 1);
        machines.set(leader, "key", "1").expect("a commit");
        machines.join(leader, "10.0.0.1:4500").expect("it is taken in");
        machines.join(leader, "10.0.0.2:4500").expect("it is taken in");
        wish(&machines, leader, &[(VOTER_COUNT, b"", "3")]).expect("a commit");
        let leader = await_members(&machines, voters(&[1, 2, 3]));
        machines.set(leader, "key", "2").expect("a commit");
        machines.crash(leader);
        machines.open(leader).expect("it opens");
        let leader = machines.await_leader(|_| true);
        wish(&machines, leader, &[(VOTER_COUNT, b"", "1")]).expect("a commit");
        let leader =
            await_members(&machines, |members| members.voters().len() == 1 && !members.is_joint());
        for at in (0..3).filter(|at| *at != leader) {
            machines.crash(at);
        }
        machines.set(leader, "key", "3").expect("it needs nobody");
        assert_eq!(machines.get(leader, "key"), Ok(Some("3".into())), "seed {seed}");
    }
}

#[test]
fn who_is_a_member_is_written_by_nobody_else() {
    let (machines, leader) = formed(0, 3);
    assert_eq!(
        wish(&machines, leader, &[(MEMBERS, b"", "x")]),
        Err(Error::client_invalid_operation())
    );
    let mut mutations = MutationList::new();
    mutations.push(MutationType::ClearRange, b"\xff/conf/", b"\xff/conf0");
    let request = CommitRequest { mutations, ..CommitRequest::default() };
    let cleared = machines.sim.run_until(machines.node(leader).endpoint().commit(request));
    assert_eq!(cleared, Err(Error::client_invalid_operation()));
    machines.set(leader, "key", "1").expect("a commit");
}

/// Who leads since a moment takes nobody for gone yet. Two voters were left of which one was lost
/// before the other led, and nobody led any more.
#[test]
fn a_new_leader_excludes_nobody_before_it_has_heard_of_a_majority_of_those_left() {
    for seed in 0..8 {
        let (mut machines, lost) = formed(seed, 3);
        machines.crash(lost);
        let leader = machines.await_leader(|at| at != lost);
        let excluded = (0..3).find(|at| ![lost, leader].contains(at)).expect("there are three");
        let address = format!("10.0.0.{excluded}:4500");
        wish(&machines, leader, &[(EXCLUDED_PREFIX, address.as_bytes(), "")]).expect("a commit");
        machines.sim.run_for(Duration::from_secs(3));
        let leader = machines.await_leader(|at| at != lost);
        assert!(voters(&[1, 2, 3])(&members(&machines, leader)), "seed {seed}");
        machines.set(leader, "key", "1").expect("a commit");
        machines.open(lost).expect("it comes back");
        let left: Vec<_> = (1..=3).filter(|id| *id != excluded as u64 + 1).collect();
        await_members(&machines, voters(&left));
    }
}

/// A node that was removed while it was away is told by its own log, and says so at each start.
#[test]
fn a_node_that_hears_that_it_was_removed_serves_nothing() {
    let (machines, leader) = formed(1, 3);
    let lost = (leader + 1) % 3;
    let address = format!("10.0.0.{lost}:4500");
    wish(&machines, leader, &[(FAILED_PREFIX, address.as_bytes(), "")]).expect("a commit");
    let left: Vec<_> = (1..=3).filter(|id| *id != lost as u64 + 1).collect();
    let leader = await_members(&machines, voters(&left));
    machines.set(leader, "key", "1").expect("a commit");
    machines.node(lost).be_removed();
    assert!(machines.node(lost).failure().is_some());
    machines.set(leader, "key", "2").expect("a commit");
}

/// Commits, changes and losses of power at random. What was acknowledged is there, and in the end
/// all agree.
fn turmoil(seed: u64) {
    let (mut machines, _) = formed(seed, 3);
    let mut random = Random::new(seed);
    let mut acknowledged = 0_u64;
    for round in 0..60 {
        let leader = machines.await_leader(|_| true);
        if machines.set(leader, &format!("key{round}"), "1").is_ok() {
            acknowledged |= 1 << round;
        }
        let others: Vec<_> =
            (0..machines.envs.len()).filter(|at| machines.is_up(*at) && *at != leader).collect();
        match random.below(8) {
            0 if machines.envs.len() < 7 => {
                let place = random.below(6);
                // Where somebody is nobody else can be.
                let _ = machines.join(leader, &format!("10.0.0.{place}:4500"));
            }
            1 => {
                let count = [1, 3, 5][random.index(3)];
                let _ = wish(&machines, leader, &[(VOTER_COUNT, b"", &format!("{count}"))]);
            }
            2 => {
                let at = if random.chance(0.5) {
                    leader
                } else {
                    others.first().copied().unwrap_or(leader)
                };
                machines.crash(at);
                machines.sim.run_for(Duration::from_millis(random.below(300)));
                // One that was removed says so.
                if let Err(error) = machines.open(at) {
                    assert!(error.to_string().contains("was removed"), "seed {seed}: {error}");
                }
            }
            3 => machines.lose(random.below(100)),
            _ => machines.sim.run_for(Duration::from_millis(random.below(400))),
        }
    }
    machines.lose(0);
    let leader = await_members(&machines, |members| !members.is_joint());
    machines.set(leader, "last", "1").expect("a commit");
    machines.sim.run_for(Duration::from_secs(3));
    let leader = machines.await_leader(|_| true);
    let found = members(&machines, leader);
    for node in &found.nodes {
        let at = node.id as usize - 1;
        if !machines.is_up(at) {
            continue;
        }
        assert_eq!(*members(&machines, at), *found, "seed {seed}: node {at}");
        assert_eq!(in_rows(&machines, leader, at), *found, "seed {seed}: node {at}");
        for round in (0..60).filter(|round| acknowledged & (1 << round) != 0) {
            let key = format!("key{round}");
            assert_eq!(
                machines.get_at(leader, at, &key),
                Ok(Some("1".into())),
                "seed {seed}: {key} at {at}"
            );
        }
    }
}

#[test]
fn whatever_happens_while_members_change_nothing_acknowledged_is_lost() {
    for seed in 0..12 {
        turmoil(seed);
    }
}

#[test]
fn a_directory_of_a_node_that_was_removed_says_so() {
    let machines = Machines::empty(1, 1, NodeConfig::default());
    let mut membership = machines.membership(0);
    let others = Members::of_voters([(2, "10.0.0.1:4500".to_owned())]);
    membership.members = Arc::new(others);
    machines
        .sim
        .run_until(Node::form(&machines.envs[0], Path::new(DIR), &machines.config, &membership))
        .expect("it is made");
    let mut machines = machines;
    let told = machines.open(0).expect_err("it is no member").to_string();
    assert!(told.contains("node 1 was removed from its cluster"), "{told}");
}

/// A server has moved, knows it, and comes to lead. Whether the members say so within two seconds.
fn is_told_that_it_has_moved(seed: u64) -> bool {
    let (machines, mut leader) = formed(seed, 3);
    let moved = (leader + 1) % 3;
    let place =
        |at: usize| members(&machines, at).node(moved as u64 + 1).map(|node| node.address.clone());
    machines.node(moved).note_move(moved as u64 + 1, "10.0.0.77:4500");
    for _ in 0..50 {
        if leader == moved {
            break;
        }
        let before = place(leader);
        assert_eq!(before, Some(format!("10.0.0.{moved}:4500")), "seed {seed}: who said so?");
        let node = machines.node(leader);
        machines.sim.run_until(async move { node.hand_over().await });
        leader = machines.await_leader(|_| true);
    }
    assert_eq!(leader, moved, "seed {seed}: it never leads");
    machines.sim.run_for(Duration::from_secs(2));
    place(moved).as_deref() == Some("10.0.0.77:4500")
}

/// A leader never heard where it is itself, so clients were sent to where it had been, and nothing
/// brought that to an end.
#[test]
fn a_server_that_has_moved_and_leads_says_where_it_is() {
    assert!((0..3).all(is_told_that_it_has_moved));
    #[cfg(feature = "planted-bugs")]
    {
        plant(Some("a leader doesn't say where it is"));
        let told = (0..3).filter(|seed| is_told_that_it_has_moved(*seed)).count();
        plant(None);
        assert_eq!(told, 0, "the planted mistake is not noticed");
    }
}

/// The news of another address came when nobody led: it was lost, and the server stayed where
/// nobody looked for it.
#[test]
fn news_of_another_address_is_kept_until_somebody_leads() {
    for seed in 0..3 {
        let (machines, leader) = formed(seed, 3);
        let moved = (leader + 1) % 3;
        (0..3).for_each(|at| machines.isolate(at));
        machines.sim.run_for(Duration::from_secs(5));
        for at in (0..3).filter(|at| *at != moved) {
            assert!(!machines.node(at).leadership().is_ready, "seed {seed}");
            machines.node(at).note_move(moved as u64 + 1, "10.0.0.77:4500");
        }
        // Each has heard something else, and only one of both was the last.
        machines.node((leader + 2) % 3).note_move(moved as u64 + 1, "10.0.0.78:4500");
        machines.heal();
        let place =
            |members: &Members| members.node(moved as u64 + 1).map(|node| node.address.clone());
        let before = format!("10.0.0.{moved}:4500");
        let next =
            await_members(&machines, |members| place(members).is_some_and(|place| place != before));
        let there = place(&members(&machines, next));
        // Whoever leads next doesn't bring up again what it had heard before.
        let node = machines.node(next);
        machines.sim.run_until(async move { node.hand_over().await });
        machines.sim.run_for(Duration::from_secs(3));
        let next = machines.await_leader(|_| true);
        assert_eq!(place(&members(&machines, next)), there, "seed {seed}");
    }
}
