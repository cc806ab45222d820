//! Clients and a server in simulation, while connections break, clog and are cut, the server is
//! killed, its clock jumps, and its disk is full. What arrives twice: `tests/doubled.rs` of the
//! simulation.
//!
//! Every increment takes effect once, none is lost, and nobody ever sees half of one: the counter
//! always equals the number of rows that increments left, and at the end the number of increments.
//! A seed is a run.

use plinth_client::remote::{ClusterFile, RemoteEndpoint};
use plinth_client::{Database, RangeOptions, Transaction};
use plinth_env::simulated::{FaultPlan, NetworkPlan, Random, Simulation};
use plinth_env::{Env, Task};
use plinth_pipeline::{EngineKind, Node, NodeConfig, SsdSettings};
use plinth_server::{Server, ServerConfig};
use plinth_types::{Error, Result};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CLIENTS: usize = 3;
const TASKS: usize = 2;
const OPERATIONS: usize = 12;
const COUNTER: &str = "counter";

/// Both engines; what a database begins with it keeps.
const ENGINES: [EngineKind; 2] = [EngineKind::Memory, EngineKind::Ssd];

/// Opens the database of a server process and serves it until the process ends.
fn start(env: &Env, address: SocketAddr, engine: EngineKind) {
    let theirs = env.clone();
    drop(env.spawn("server", async move {
        // Tables that are written while the clients work, not after.
        let ssd = SsdSettings {
            flush_bytes: 64 << 10,
            flush_after: Duration::from_millis(100),
            ..SsdSettings::with_memory(16 << 20)
        };
        let mut config =
            NodeConfig { engine, ssd, checkpoint_bytes: 1 << 20, ..NodeConfig::default() };
        if engine == EngineKind::Ssd {
            config.window = 500_000;
        }
        let node =
            Node::open(&theirs, Path::new("/data"), config).await.expect("the disk has no faults");
        // The server keeps its name, whatever the random identity of its database.
        let file = ClusterFile::new("plinth", "any", address);
        let path = Path::new("/fdb.cluster");
        theirs
            .files()
            .replace(path, file.connection_string().as_bytes())
            .await
            .expect("the disk has no faults");
        let config = ServerConfig {
            listen: vec![address],
            cluster_file: Some(path.to_path_buf()),
            ..ServerConfig::default()
        };
        let server =
            Server::start(Arc::new(node.endpoint()), config).await.expect("the address is free");
        std::future::pending::<()>().await;
        drop(server);
    }));
}

fn connect(env: &Env, address: SocketAddr) -> Database {
    let file = ClusterFile::new("plinth", "any", address);
    Database::new(Arc::new(RemoteEndpoint::connect(env, file)))
}

/// Adds one to the counter and leaves a row that says so, once, whatever happens to answers.
async fn increment(db: &Database, row: &str) -> Result<()> {
    let tr = db.create_transaction();
    loop {
        let attempt = async {
            let (count, done) = (tr.get(COUNTER), tr.get(row));
            if done.await?.is_some() {
                return Ok(());
            }
            let count = count.await?.map_or(0, number) + 1;
            tr.set(COUNTER, count.to_be_bytes());
            tr.set(row, count.to_be_bytes());
            tr.commit().await
        };
        match attempt.await {
            Ok(()) => return Ok(()),
            Err(error) => tr.on_error(error).await?,
        }
    }
}

fn number(bytes: plinth_types::Bytes) -> u64 {
    u64::from_be_bytes(bytes[..].try_into().expect("numbers have eight bytes"))
}

/// The counter and all rows, as of one version, hold the same.
async fn check(tr: &Transaction) -> Result<u64> {
    let count = tr.get(COUNTER).await?.map_or(0, number);
    let rows = tr.range(RangeOptions::from(&b"row/"[..]..&b"row0"[..])).collect().await?;
    let mut seen: Vec<_> = rows.into_iter().map(|row| number(row.value)).collect();
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(1..=count), "the counter is {count}, the rows say {seen:?}");
    Ok(count)
}

fn spawn_clients(
    sim: &Simulation,
    address: SocketAddr,
    done: &Arc<AtomicUsize>,
) -> (Vec<Env>, Vec<Task>) {
    let envs: Vec<_> =
        (0..CLIENTS).map(|client| sim.process(&format!("client-{client}"))).collect();
    let mut tasks = Vec::new();
    for (client, env) in envs.iter().enumerate() {
        let db = connect(env, address);
        for task in 0..TASKS {
            let (db, done, env) = (db.clone(), done.clone(), env.clone());
            tasks.push(env.clone().spawn("client", async move {
                for operation in 0..OPERATIONS {
                    increment(&db, &format!("row/{client}/{task}/{operation}"))
                        .await
                        .expect("it is retried");
                    done.fetch_add(1, Ordering::Relaxed);
                    if operation % 3 == task {
                        db.transact(|tr| async move { check(&tr).await })
                            .await
                            .expect("it is retried");
                    }
                    env.sleep(Duration::from_millis(20)).await;
                }
            }));
        }
    }
    (envs, tasks)
}

/// One of the things that go wrong.
fn disturb(
    sim: &Simulation,
    random: &mut Random,
    server: &mut Env,
    clients: &[Env],
    (address, engine): (SocketAddr, EngineKind),
) {
    let client = &clients[random.index(clients.len())];
    match random.below(6) {
        0 => sim.close_connections(client, server),
        1 => sim.clog(client, server, Duration::from_millis(1 + random.below(3000))),
        2 => {
            sim.partition(client, server);
            sim.run_for(Duration::from_millis(1 + random.below(20_000)));
            sim.heal(client, server);
        }
        3 => {
            sim.kill(server);
            *server = sim.restart(server);
            start(server, address, engine);
        }
        _ => {}
    }
}

fn run(seed: u64, engine: EngineKind) -> (u64, u64) {
    let sim = Simulation::new(seed);
    let mut random = sim.random();
    let mut server = sim.process("server");
    let address = SocketAddr::new(sim.ip(&server), 4500);
    start(&server, address, engine);
    let done = Arc::new(AtomicUsize::new(0));
    let (clients, tasks) = spawn_clients(&sim, address, &done);
    let close = if seed.is_multiple_of(2) { 0.002 } else { 0.0 };
    sim.set_network(NetworkPlan { clog: 0.001, close, window: 4096, ..NetworkPlan::default() });
    while !tasks.iter().all(Task::is_finished) {
        sim.run_for(Duration::from_millis(1 + random.below(400)));
        if done.load(Ordering::Relaxed) < CLIENTS * TASKS * OPERATIONS * 3 / 4 {
            disturb(&sim, &mut random, &mut server, &clients, (address, engine));
        }
        assert!(sim.now() < Duration::from_secs(3600), "seed {seed}, {engine:?}: no progress");
    }
    sim.set_network(NetworkPlan::default());
    let db = connect(&sim.process("checker"), address);
    let count =
        sim.run_until(db.transact(|tr| async move { check(&tr).await })).expect("it is retried");
    assert_eq!(count as usize, CLIENTS * TASKS * OPERATIONS, "seed {seed}, {engine:?}");
    drop(db);
    (count, sim.trace_hash())
}

#[test]
fn increments_take_effect_once_whatever_the_network_does() {
    // Another range of seeds can be asked for: PLINTH_SERVER_SEEDS=100..200
    let asked = std::env::var("PLINTH_SERVER_SEEDS").ok();
    let asked = asked.as_deref().and_then(|text| text.split_once(".."));
    let (from, to) =
        asked.map_or((1, 13), |(from, to)| (from.parse().unwrap(), to.parse().unwrap()));
    for (seed, engine) in (from..to).flat_map(|seed| ENGINES.map(|engine| (seed, engine))) {
        run(seed, engine);
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for engine in ENGINES {
        assert_eq!(run(77, engine), run(77, engine));
    }
}

#[test]
fn a_clock_that_jumps_disturbs_no_client() {
    for seed in 1..7 {
        let sim = Simulation::new(seed);
        let mut random = sim.random();
        let mut server = sim.process("server");
        let address = SocketAddr::new(sim.ip(&server), 4500);
        start(&server, address, EngineKind::Memory);
        let done = Arc::new(AtomicUsize::new(0));
        let (clients, tasks) = spawn_clients(&sim, address, &done);
        while !tasks.iter().all(Task::is_finished) {
            sim.run_for(Duration::from_millis(1 + random.below(50)));
            let machine =
                if random.chance(0.5) { &server } else { &clients[random.index(CLIENTS)] };
            sim.move_wall_clock(machine, random.below(20_000_000) as i64 - 10_000_000);
            if random.chance(0.1) {
                sim.kill(&server);
                server = sim.restart(&server);
                start(&server, address, EngineKind::Memory);
            }
            assert!(sim.now() < Duration::from_secs(3600), "seed {seed}: no progress");
        }
        let db = connect(&sim.process("checker"), address);
        let count = sim
            .run_until(db.transact(|tr| async move { check(&tr).await }))
            .expect("it is retried");
        assert_eq!(count as usize, CLIENTS * TASKS * OPERATIONS, "seed {seed}");
    }
}

/// What clients know of rows that they have written one after the other.
#[derive(Default)]
struct Known {
    acknowledged: Vec<String>,
    refused: Vec<Error>,
}

/// Eight clients that write row after row, until told to stop.
fn spawn_writers(sim: &Simulation, address: SocketAddr) -> (Arc<Mutex<Known>>, Arc<AtomicUsize>) {
    let (known, stop) = (Arc::new(Mutex::new(Known::default())), Arc::new(AtomicUsize::new(0)));
    for client in 0..8 {
        let env = sim.process(&format!("writer-{client}"));
        let db = connect(&env, address);
        let (known, stop, theirs) = (known.clone(), stop.clone(), env.clone());
        drop(env.spawn("writer", async move {
            for number in 0.. {
                if stop.load(Ordering::Relaxed) > 0 {
                    return;
                }
                let row = format!("full/{client}/{number}");
                let tr = db.create_transaction();
                tr.set(&row, vec![7; 20_000]);
                match tr.commit().await {
                    Ok(()) => known.lock().unwrap().acknowledged.push(row),
                    Err(error) => {
                        known.lock().unwrap().refused.push(error);
                        theirs.sleep(Duration::from_millis(50)).await;
                    }
                }
            }
        }));
    }
    (known, stop)
}

#[test]
fn a_disk_that_is_full_under_load_is_told_to_each_and_takes_nothing_that_was_acknowledged() {
    for (seed, engine) in (1..5).flat_map(|seed| ENGINES.map(|engine| (seed, engine))) {
        let sim = Simulation::new(seed);
        let mut server = sim.process("server");
        let address = SocketAddr::new(sim.ip(&server), 4500);
        start(&server, address, engine);
        let (known, stop) = spawn_writers(&sim, address);
        sim.run_for(Duration::from_millis(200));
        sim.set_faults(&server, FaultPlan { capacity: Some(3 << 20), ..FaultPlan::default() });
        sim.run_for(Duration::from_secs(5));
        let reader = connect(&sim.process("reader"), address);
        {
            let known = known.lock().unwrap();
            let told =
                known.refused.iter().filter(|error| **error == Error::file_not_writable()).count();
            assert!(
                told > 8,
                "seed {seed}, {engine:?}: {told} of {} refusals name the disk",
                known.refused.len()
            );
            assert!(!known.acknowledged.is_empty(), "seed {seed}, {engine:?}");
        }
        // Others are served: what was acknowledged can be read.
        let last = known.lock().unwrap().acknowledged.last().cloned().unwrap();
        let read = |row: String| {
            let reader = reader.clone();
            async move {
                reader
                    .transact(|tr| {
                        let row = row.clone();
                        async move { tr.get(row).await }
                    })
                    .await
            }
        };
        assert!(sim.run_until(read(last)).unwrap().is_some(), "seed {seed}, {engine:?}");
        sim.set_faults(&server, FaultPlan::default());
        let before = known.lock().unwrap().acknowledged.len();
        sim.run_for(Duration::from_secs(5));
        assert!(
            known.lock().unwrap().acknowledged.len() > before,
            "seed {seed}, {engine:?}: there is room, and nobody writes"
        );
        sim.kill(&server);
        server = sim.restart(&server);
        start(&server, address, engine);
        stop.store(1, Ordering::Relaxed);
        sim.run_for(Duration::from_secs(5));
        let acknowledged = known.lock().unwrap().acknowledged.clone();
        for row in acknowledged {
            let found = sim.run_until(read(row.clone())).unwrap();
            assert_eq!(
                found.map(|value| value.len()),
                Some(20_000),
                "seed {seed}, {engine:?}: {row} was acknowledged"
            );
        }
    }
}
