//! Commits that arrive twice take effect once, whichever of the two comes first and however late
//! the other is.
//!
//! What the transactions do can't be done twice without a trace: they add to a counter, and append
//! a row under their versionstamp. Half of them read a mark of their own, by which they see that
//! they have been there; the others read nothing and have an idempotency id.

use plinth_client::remote::{ClusterFile, RemoteEndpoint};
use plinth_client::{Database, RangeOptions, Transaction, TransactionOption};
use plinth_env::simulated::{NetworkPlan, Simulation};
use plinth_env::{Env, Task};
use plinth_pipeline::{Node, NodeConfig};
use plinth_server::{Server, ServerConfig};
use plinth_sim::{Between, Doubles, Tally};
use plinth_types::{MutationType, Result};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const CLIENTS: u64 = 3;
const TASKS: u64 = 2;
const OPERATIONS: u64 = 12;
const COUNTER: &str = "counter";

/// Opens the database of a server process and serves it until the process ends.
fn start(env: &Env, address: SocketAddr) {
    let theirs = env.clone();
    drop(env.spawn("server", async move {
        let node = Node::open(&theirs, Path::new("/data"), NodeConfig::default()).await.unwrap();
        // The server keeps its name, whatever the random identity of its database.
        let path = Path::new("/fdb.cluster");
        let file = ClusterFile::new("plinth", "any", address).connection_string();
        theirs.files().replace(path, file.as_bytes()).await.unwrap();
        let config = ServerConfig {
            listen: vec![address],
            cluster_file: Some(path.to_path_buf()),
            ..ServerConfig::default()
        };
        let server = Server::start(Arc::new(node.endpoint()), config).await.unwrap();
        std::future::pending::<()>().await;
        drop(server);
    }));
}

fn connect(env: &Env, address: SocketAddr) -> Database {
    let file = ClusterFile::new("plinth", "any", address);
    Database::new(Arc::new(RemoteEndpoint::connect(env, file)))
}

/// Adds one to the counter and leaves a row under its versionstamp, once, whatever happens to
/// answers.
async fn operate(db: &Database, row: &str, is_blind: bool) -> Result<()> {
    let tr = db.create_transaction();
    let head = format!("stamp/{row}/");
    let stamped = [head.as_bytes(), &[0; 10], &(head.len() as u32).to_le_bytes()].concat();
    loop {
        let attempt = async {
            if is_blind {
                tr.set_option(TransactionOption::AutomaticIdempotency)?;
            } else if tr.get(row).await?.is_some() {
                return Ok(());
            } else {
                tr.set(row, "");
            }
            tr.atomic_op(COUNTER, 1_u64.to_le_bytes(), MutationType::Add);
            tr.set_versionstamped_key(&stamped, "");
            tr.commit().await
        };
        match attempt.await {
            Ok(()) => return Ok(()),
            Err(error) => tr.on_error(error).await?,
        }
    }
}

/// The counter, and how many rows each operation left.
async fn look(tr: &Transaction) -> Result<(u64, BTreeMap<String, u64>)> {
    let counter =
        tr.get(COUNTER).await?.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()));
    let rows = tr.range(RangeOptions::from(&b"stamp/"[..]..&b"stamp0"[..])).collect().await?;
    let mut left = BTreeMap::new();
    for row in rows {
        let name = row.key["stamp/".len()..row.key.len() - "/0123456789".len()].to_vec();
        *left.entry(String::from_utf8(name).unwrap()).or_default() += 1;
    }
    Ok((counter, left))
}

fn spawn_clients(sim: &Simulation, address: SocketAddr) -> Vec<Task> {
    let mut tasks = Vec::new();
    for client in 0..CLIENTS {
        let env = sim.process(&format!("client-{client}"));
        let db = connect(&env, address);
        for task in 0..TASKS {
            let (db, theirs) = (db.clone(), env.clone());
            tasks.push(env.spawn("client", async move {
                for operation in 0..OPERATIONS {
                    let is_blind = operation % 2 == 1;
                    let row = format!("{client}.{task}.{operation}");
                    operate(&db, &row, is_blind).await.expect("it is retried");
                    theirs.sleep(Duration::from_millis(20)).await;
                }
            }));
        }
    }
    tasks
}

fn run(seed: u64) -> Tally {
    let sim = Simulation::new(seed);
    let mut random = sim.random();
    let server = sim.process("server");
    let address = SocketAddr::new(sim.ip(&server), 4500);
    start(&server, address);
    let between = Between::stand(&sim, address, Doubles::AnyTime);
    let tasks = spawn_clients(&sim, between.address);
    let close = if seed.is_multiple_of(2) { 0.002 } else { 0.0 };
    let latency_max = Duration::from_millis(5);
    sim.set_network(NetworkPlan { latency_max, clog: 0.001, close, ..NetworkPlan::default() });
    while !tasks.iter().all(Task::is_finished) {
        sim.run_for(Duration::from_millis(1 + random.below(300)));
        // Now the one and now the other comes first, and the one behind may be long behind.
        let late = &between.machines[random.index(2)];
        sim.clog(late, &server, Duration::from_millis(1 + random.below(500)));
        assert!(sim.now() < Duration::from_secs(3600), "seed {seed}: no progress");
    }
    sim.set_network(NetworkPlan::default());
    sim.run_for(Duration::from_secs(5));
    let db = connect(&sim.process("checker"), address);
    let (count, left) =
        sim.run_until(db.transact(|tr| async move { look(&tr).await })).expect("it is retried");
    assert_eq!(left.values().sum::<u64>(), CLIENTS * TASKS * OPERATIONS, "seed {seed}: {left:?}");
    assert!(left.values().all(|rows| *rows == 1), "seed {seed}: {left:?}");
    assert_eq!(count, CLIENTS * TASKS * OPERATIONS, "seed {seed}");
    let tally = between.tally();
    assert_eq!(tally.violation, None, "seed {seed}");
    tally
}

#[test]
fn a_commit_that_arrives_twice_takes_effect_once() {
    let (mut doubled, mut overtaken) = (0, 0);
    for seed in 1..19 {
        let tally = run(seed);
        doubled += tally
            .commits
            .values()
            .filter(|(answers, committed)| *answers == 2 && *committed == 1)
            .count();
        overtaken += tally.overtaken;
    }
    // Both happened: that the double came second, and that it came first.
    assert!(
        doubled > 300 && overtaken > 20,
        "{doubled} were answered twice, {overtaken} overtaken"
    );
}
