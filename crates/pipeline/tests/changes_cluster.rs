//! Streams of changes in a cluster: every node gives them, whichever leads, and whatever a node
//! lacks it says.
//!
//! Why it matters: a consumer outlives any node. What it acknowledged must hold wherever the next
//! leader is, and a node that got its rows from others, or let go of what it kept, must not pass
//! for one that has everything.

mod machines;

use machines::{DIR, Machines};
use plinth_client::{ChangeConsumer, Database, Endpoint};
use plinth_pipeline::{EngineKind, Import, Node, NodeConfig};
use plinth_types::{ChangesRequest, Error, KeyRange, Version};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn config(engine: EngineKind) -> NodeConfig {
    let mut config = NodeConfig { engine, checkpoint_bytes: 32 << 10, ..NodeConfig::default() };
    config.follower_log_bytes = 0;
    config.log.first_segment_bytes = 64 << 10;
    config.log.max_segment_bytes = 64 << 10;
    config.log.spare_bytes = 0;
    config.ssd.memory = 8 << 20;
    config
}

fn formed(seed: u64) -> (Machines, usize) {
    let engine = if seed.is_multiple_of(2) { EngineKind::Memory } else { EngineKind::Ssd };
    let machines = Machines::new(seed, 3, config(engine));
    let leader = machines.await_leader(|_| true);
    (machines, leader)
}

fn register(machines: &Machines, leader: usize, bound: Option<u64>) -> (u64, Version) {
    let ranges = [KeyRange::new("key", "kez")];
    let stream =
        machines.sim.run_until(machines.database(leader).register_changes("all", ranges, bound));
    let stream = stream.expect("a stream");
    (stream.id, stream.registered)
}

/// Writes rows with these numbers.
fn write(machines: &Machines, leader: usize, numbers: std::ops::Range<u32>) {
    for number in numbers {
        machines.set(leader, &format!("key{}", number % 3), &number.to_string()).expect("a commit");
    }
}

/// What a consumer on this node is given next, until it has so many numbers.
fn take(
    machines: &Machines,
    at: usize,
    id: u64,
    position: Version,
    count: usize,
) -> (Vec<u32>, Version) {
    let mut consumer = machines.database(at).resume_changes(id, position);
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let changes = machines.sim.run_until(consumer.next()).expect("changes");
        for batch in &changes.batches {
            for mutation in &batch.mutations {
                let number = String::from_utf8_lossy(mutation.param2).into_owned();
                numbers.push(number.parse().expect("a number"));
            }
        }
    }
    (numbers, consumer.position())
}

#[test]
fn every_node_gives_the_same_whoever_leads() {
    for seed in 0..4 {
        let (mut machines, mut leader) = formed(seed);
        let (id, registered) = register(&machines, leader, None);
        let (mut written, mut read, mut position) = (0, 0, registered);
        for round in 0..6 {
            let more = 3 + round;
            write(&machines, leader, written..written + more);
            written += more;
            let expected: Vec<_> = (read..written).collect();
            let mut ends = Vec::new();
            for at in 0..3 {
                let (numbers, end) = take(&machines, at, id, position, expected.len());
                assert_eq!(numbers, expected, "seed {seed}, round {round}, node {at}");
                ends.push(end);
            }
            if round % 2 == 0 {
                let upto = ends.into_iter().min().expect("three nodes");
                let database = machines.database(leader);
                machines
                    .sim
                    .run_until(database.acknowledge_changes(id, upto))
                    .expect("it is committed");
                (position, read) = (upto, written);
            }
            let lost = leader;
            machines.crash(lost);
            leader = machines.await_leader(|at| at != lost);
            // What was acknowledged holds wherever the next leader is.
            let anew: ChangeConsumer = machines
                .sim
                .run_until(machines.database(leader).consume_changes("all"))
                .expect("a consumer");
            assert_eq!((anew.id(), anew.position()), (id, position), "seed {seed}, round {round}");
            machines.open(lost).expect("it opens");
        }
        for at in 0..3 {
            machines.node(at).check_invariants();
        }
    }
}

#[test]
fn a_node_made_of_rows_says_what_it_lacks_and_gives_what_comes_later() {
    // With `ssd` the version that can be pinned lies seconds back, which other nodes wouldn't know
    // as the end of their entries.
    for seed in [0, 2] {
        let (mut machines, leader) = formed(seed);
        let (id, registered) = register(&machines, leader, None);
        write(&machines, leader, 0..5);
        let behind = (leader + 1) % 3;
        machines.crash(behind);
        // So much that its entries are let go of, but for the stream, which holds them back at the
        // others.
        let filling = |machines: &Machines, round: u32| {
            machines.set(leader, "other", &"x".repeat(60_000)).expect("a commit");
            write(machines, leader, 5 + round..6 + round);
        };
        (0..10).for_each(|round| filling(&machines, round));
        // It gets the rows of another one.
        make_of_rows(&machines, behind, machines.node(leader));
        machines.open(behind).expect("it opens");
        let rows_at = machines.node(behind).endpoint();
        let request = ChangesRequest { stream: id, from: registered + 1, bytes: 1000, wait: false };
        let lacking =
            machines.sim.run_until(rows_at.read_changes(request)).expect_err("it came as rows");
        assert_eq!(lacking, Error::wrong_shard_server());
        assert!(lacking.to_string().contains("this node has changes from version"), "{lacking}");
        // The others have all of them.
        let leader = machines.await_leader(|at| at != behind);
        let (numbers, end) = take(&machines, leader, id, registered, 15);
        assert_eq!(numbers, (0..15).collect::<Vec<_>>());
        // What came after its rows it has; and once all before is acknowledged it is as good as
        // they are.
        machines
            .sim
            .run_until(machines.database(leader).acknowledge_changes(id, end))
            .expect("committed");
        write(&machines, leader, 15..20);
        let (numbers, _) = take(&machines, behind, id, end, 5);
        assert_eq!(numbers, (15..20).collect::<Vec<_>>());
        machines.crash(behind);
        machines.open(behind).expect("it opens");
        let (numbers, _) = take(&machines, behind, id, end, 5);
        assert_eq!(numbers, (15..20).collect::<Vec<_>>());
    }
}

/// Gives a machine whose node is down the rows of another one.
fn make_of_rows(machines: &Machines, at: usize, source: Arc<Node>) {
    let (env, config) = (machines.envs[at].clone(), machines.config.clone());
    machines.sim.run_until(async move {
        let pinned = source.pin().await.expect("a pinned version");
        let mut import = Import::begin_member(&env, Path::new(DIR), config, pinned.position())
            .await
            .expect("an import");
        loop {
            let begin = import.reached().to_vec();
            let chunk = pinned.export(&begin, b"\xff\xff", 1 << 20).await.expect("a chunk");
            let is_last = chunk.end[..] == b"\xff\xff"[..];
            import.take(&chunk).await.expect("it is taken");
            if is_last {
                break;
            }
        }
        import.put_in_place().await.expect("it is put in place");
    });
}

#[test]
fn a_stream_whose_bound_is_exceeded_is_lost_on_every_node_and_said_so() {
    let (machines, leader) = formed(0);
    let (id, registered) = register(&machines, leader, Some(100 << 10));
    write(&machines, leader, 0..3);
    for round in 0..40 {
        machines
            .set(leader, &format!("other{}", round % 2), &"x".repeat(40_000))
            .expect("a commit");
        machines.sim.run_for(Duration::from_millis(500));
    }
    for at in 0..3 {
        let endpoint = machines.node(at).endpoint();
        let request = ChangesRequest { stream: id, from: registered + 1, bytes: 1000, wait: false };
        let lost = machines.sim.run_until(endpoint.read_changes(request)).expect_err("it is lost");
        assert_eq!(lost, Error::version_invalid());
        assert!(lost.to_string().contains("stream all has lost changes"), "{lost}");
    }
    // The consumer that gives up what was lost goes on.
    let database: Database = machines.database(leader);
    let now = machines
        .sim
        .run_until(database.create_transaction().get_read_version())
        .expect("a version");
    machines.sim.run_until(database.acknowledge_changes(id, now)).expect("an acknowledgement");
    write(&machines, leader, 3..6);
    for at in 0..3 {
        assert_eq!(take(&machines, at, id, now, 3).0, [3, 4, 5]);
    }
}

/// It would say for ever that there is nothing new.
#[test]
fn a_node_that_is_cut_off_does_not_say_that_there_is_nothing() {
    for seed in 0..2 {
        let (machines, leader) = formed(seed);
        let (id, registered) = register(&machines, leader, None);
        write(&machines, leader, 0..3);
        let alone = (leader + 1) % 3;
        let (_, end) = take(&machines, alone, id, registered, 3);
        machines.isolate(alone);
        machines.sim.run_for(Duration::from_secs(5));
        let leader = machines.await_leader(|at| at != alone);
        write(&machines, leader, 3..6);
        let endpoint = machines.node(alone).endpoint();
        for wait in [true, false] {
            let request = ChangesRequest { stream: id, from: end + 1, bytes: 1000, wait };
            let told = machines.sim.run_until(endpoint.read_changes(request));
            assert_eq!(told, Err(Error::process_behind()), "seed {seed}: it is asked elsewhere");
        }
        // What it has it gives.
        let request = ChangesRequest { stream: id, from: registered + 1, bytes: 1000, wait: true };
        let found = machines.sim.run_until(endpoint.read_changes(request)).expect("changes");
        assert!(!found.batches.is_empty());
        machines.heal();
        assert_eq!(take(&machines, alone, id, end, 3).0, [3, 4, 5]);
    }
}
