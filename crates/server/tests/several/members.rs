//! Members come and go while the same server leads, or while a client is not there: it finds those
//! that there are when all that it knew at first are gone.
//! However many have come and gone: a client has a bounded number of places for servers, and gives
//! those of the lost ones again.

use super::{SERVERS, World, increment};
use plinth_client::Database;
use plinth_client::remote::{ClusterFile, RemoteEndpoint};
use plinth_env::sync::{First, race};
use plinth_types::LocatedMember;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Increments a row, and doesn't wait for ever.
fn increment_soon(world: &World, db: &Database, row: &str) {
    let limit = world.sim.process("clock").sleep(Duration::from_secs(20));
    match world.sim.run_until(race(increment(db, row), limit)) {
        First::Left(done) => done.unwrap(),
        First::Right(()) => panic!("seed {}: the client is lost", world.sim.seed()),
    }
}

/// Increments a row each second for so many.
fn keep_busy(world: &World, db: &Database, seconds: u64) {
    for _ in 0..seconds {
        world.sim.run_for(Duration::from_secs(1));
        increment_soon(world, db, "row/1");
    }
}

/// So many members that don't vote, and aren't there; each generation has addresses of its own.
fn absent(generation: u64, count: u64) -> impl Iterator<Item = LocatedMember> {
    (0..count).map(move |number| LocatedMember {
        node: 100 + count * generation + number,
        address: format!("10.99.{generation}.{number}:4500"),
        votes: false,
    })
}

/// Has the client's own cluster file name some servers.
fn name_servers(world: &World, servers: &[usize]) {
    let env = world.sim.process("client");
    let named: Vec<_> = servers.iter().map(|at| world.file.addresses()[*at].to_string()).collect();
    let line = format!("test:several@{}\n", named.join(","));
    let written = env.files().replace(Path::new("/fdb.cluster"), line.as_bytes());
    world.sim.run_until(written).unwrap();
}

/// A client whose own file names the first two servers.
fn client_of_two(world: &World) -> Database {
    name_servers(world, &[0, 1]);
    let env = world.sim.process("client");
    let file = world.sim.run_until(ClusterFile::read(&env, "/fdb.cluster")).unwrap();
    Database::new(Arc::new(RemoteEndpoint::connect(&env, file)))
}

/// Members were heard of only when a leader was looked for: as long as one led, a client knew those
/// of its beginning, and was lost with the last of them.
#[test]
fn members_that_come_while_the_leader_stays_are_known_when_it_is_gone() {
    for is_busy in [false, true] {
        let world = World::new(9);
        let third = world.located.lock().unwrap().members.pop().unwrap();
        let db = client_of_two(&world);
        increment_soon(&world, &db, "row/1");
        world.located.lock().unwrap().members.push(third);
        for _ in 0..50 {
            world.sim.run_for(Duration::from_millis(100));
            if is_busy {
                increment_soon(&world, &db, "row/1");
            }
        }
        [0, 1].iter().for_each(|at| world.kill(*at));
        world.lead(2);
        increment_soon(&world, &db, "row/2");
        let reads = world.reads[2].load(Ordering::Relaxed);
        assert!(!is_busy || reads > 0, "reads go to members that came later, too");
        let env = world.sim.process("client");
        let file = world.sim.run_until(ClusterFile::read(&env, "/fdb.cluster")).unwrap();
        assert_eq!(file.addresses().len(), SERVERS, "its file names all who vote");
    }
}

/// All members were exchanged while a client couldn't hear of it: others had its file name the new
/// ones, and it looked no more.
#[test]
fn a_client_whose_servers_are_all_gone_reads_its_cluster_file_again() {
    let world = World::new(10);
    let db = client_of_two(&world);
    world.located.lock().unwrap().members.pop();
    increment_soon(&world, &db, "row/1");
    let client = world.sim.process("client");
    world.sim.partition(&client, &world.env(2));
    [0, 1].iter().for_each(|at| world.kill(*at));
    world.lead(2);
    world.sim.run_for(Duration::from_secs(10));
    world.sim.heal(&client, &world.env(2));
    name_servers(&world, &[2]);
    increment_soon(&world, &db, "row/2");
}

/// One that asked for nothing went on asking the server that had led, and no other: it heard of
/// nobody who came behind that.
#[test]
fn a_client_at_rest_hears_of_another_leader_and_of_members_that_come_then() {
    let world = World::new(11);
    let third = world.located.lock().unwrap().members.pop().unwrap();
    let db = client_of_two(&world);
    increment_soon(&world, &db, "row/1");
    let rest = || world.sim.run_for(Duration::from_secs(70));
    rest();
    world.kill(0);
    world.lead(1);
    rest();
    world.located.lock().unwrap().members.push(third);
    rest();
    world.kill(1);
    world.lead(2);
    rest();
    increment_soon(&world, &db, "row/2");
}

/// A client has 64 places for servers, and each address that it ever heard of kept one: where
/// servers have another one after each restart, as in containers, no client that lives for long
/// heard of the last of them.
#[test]
fn a_client_hears_of_members_however_many_have_come_and_gone() {
    let world = World::new(12);
    let third = world.located.lock().unwrap().members.pop().unwrap();
    let db = client_of_two(&world);
    let others_are = |others: &mut dyn Iterator<Item = LocatedMember>| {
        let mut located = world.located.lock().unwrap();
        located.members.truncate(2);
        located.members.extend(others);
    };
    for generation in 0..20 {
        others_are(&mut absent(generation, 8));
        keep_busy(&world, &db, 4);
    }
    others_are(&mut [third].into_iter());
    keep_busy(&world, &db, 4);
    [0, 1].iter().for_each(|at| world.kill(*at));
    world.lead(2);
    increment_soon(&world, &db, "row/2");
}

/// One that had answered and went while nothing was asked of it kept its place: it wasn't known to
/// be lost.
#[test]
fn a_place_of_a_server_that_went_while_nobody_asked_is_given_again() {
    let world = World::new(13);
    let mut third = world.located.lock().unwrap().members.pop().unwrap();
    // No cluster file will name it.
    third.votes = false;
    let db = client_of_two(&world);
    increment_soon(&world, &db, "row/1");
    // As many as there are places for.
    world.located.lock().unwrap().members.extend(absent(0, 62));
    keep_busy(&world, &db, 8);
    let rest = || world.sim.run_for(Duration::from_secs(70));
    rest();
    world.located.lock().unwrap().members.remove(1);
    world.kill(1);
    rest();
    world.located.lock().unwrap().members.push(third);
    rest();
    world.kill(0);
    world.lead(2);
    increment_soon(&world, &db, "row/2");
}
