//! Transactions of nearly ten megabytes, while the server that leads loses its power, is cut off,
//! or hands over and ends.
//!
//! Each commit comes to an end: it is acknowledged, or known to have come to nothing, or nobody
//! knows. Its rows are all there or none of them, and all where it was acknowledged. Clients are on
//! machines of their own, as where there are servers: a commit in the process of a leader dies with
//! that.

#[path = "../../pipeline/tests/machines/mod.rs"]
mod machines;

use machines::Machines;
use plinth_client::remote::{ClusterFile, RemoteEndpoint};
use plinth_client::{Database, RangeOptions};
use plinth_env::Env;
use plinth_env::reply::{Reply, promise};
use plinth_pipeline::{EngineKind, NodeConfig};
use plinth_server::{Server, ServerConfig};
use plinth_types::{Error, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const SERVERS: usize = 3;
/// Rows of a transaction, and the bytes of each: 9.9 MB.
const ROWS: usize = 100;
const ROW: usize = 99_000;
/// Longer than it takes to find out that somebody else leads, by far.
const LIMIT: Duration = Duration::from_secs(30);
/// How long after it was begun something happens to whoever leads.
const WHEN: [u64; 6] = [0, 1, 5, 20, 60, 200];

struct World {
    machines: Machines,
    file: ClusterFile,
    client: Env,
}

impl World {
    fn new(seed: u64) -> Self {
        let engine = if seed.is_multiple_of(2) { EngineKind::Memory } else { EngineKind::Ssd };
        let config = NodeConfig { engine, ..NodeConfig::default() };
        let mut machines = Machines::empty(seed, SERVERS, config);
        machines.has_addresses = true;
        let client = machines.sim.process("client");
        for at in 0..SERVERS {
            machines.form(at).expect("a member");
        }
        let list: Vec<_> = (0..SERVERS).map(|at| address(&machines, at).to_string()).collect();
        let file =
            ClusterFile::parse(&format!("plinth:07070707@{}", list.join(","))).expect("it is one");
        let mut world = Self { machines, file, client };
        (0..SERVERS).for_each(|at| world.start(at));
        world
    }

    fn start(&mut self, at: usize) {
        self.machines.open(at).expect("a member opens");
        let env = self.machines.envs[at].clone();
        let endpoint = Arc::new(self.machines.host(at).endpoint());
        let listen = vec![address(&self.machines, at)];
        drop(env.spawn("server", async move {
            let config = ServerConfig { listen, ..ServerConfig::default() };
            let server = Server::start(endpoint, config).await.expect("the address is free");
            std::future::pending::<()>().await;
            drop(server);
        }));
    }

    fn database(&self) -> Database {
        Database::new(Arc::new(RemoteEndpoint::connect(&self.client, self.file.clone())))
    }

    /// Has the client's machine do something.
    fn begin<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Reply<T> {
        let (promise, reply) = promise();
        drop(self.client.spawn("client", async move { promise.send(work.await) }));
        reply
    }

    /// Nobody hears a machine, and it hears nobody; or all is well again.
    fn isolate(&self, at: usize, isolated: bool) {
        let one = &self.machines.envs[at];
        let others =
            self.machines.envs.iter().filter(|other| other.process_id() != one.process_id());
        for other in others.chain([&self.client]) {
            match isolated {
                true => self.machines.sim.partition(one, other),
                false => self.machines.sim.heal(one, other),
            }
        }
        match isolated {
            true => self.machines.isolate(at),
            false => self.machines.heal(),
        }
    }

    /// Something happens to whoever leads.
    fn disturb(&mut self, leader: usize, how: usize) {
        match how {
            0 => self.machines.crash(leader),
            1 => self.isolate(leader, true),
            _ => {
                let host = self.machines.host(leader);
                let _ =
                    self.machines.sim.run_until_within(Duration::from_secs(5), host.hand_over());
                drop(host);
                self.machines.crash(leader);
            }
        }
    }

    fn mend(&mut self, leader: usize, how: usize) {
        match how {
            1 => self.isolate(leader, false),
            _ => self.start(leader),
        }
    }
}

fn address(machines: &Machines, at: usize) -> SocketAddr {
    SocketAddr::new(machines.sim.ip(&machines.envs[at]), 4500)
}

/// One transaction, tried once.
async fn write(db: Database, name: String) -> Result<()> {
    write_rows(db, name, ROWS).await
}

async fn write_rows(db: Database, name: String, rows: usize) -> Result<()> {
    let tr = db.create_transaction();
    for row in 0..rows {
        tr.set(format!("{name}/{row:03}"), vec![row as u8; ROW]);
    }
    tr.commit().await
}

async fn count(db: Database, name: String) -> Result<usize> {
    db.transact(|tr| {
        let range =
            RangeOptions::from(format!("{name}/").as_bytes()..format!("{name}0").as_bytes());
        async move { Ok(tr.range(range).collect().await?.len()) }
    })
    .await
}

#[test]
fn a_commit_of_ten_megabytes_during_an_election_is_whole_or_nothing_and_comes_to_an_end() {
    let (mut acknowledged, mut unknown) = (0, 0);
    for seed in 0..2 {
        let mut world = World::new(seed);
        world.machines.await_leader(|_| true);
        for (round, when) in WHEN.into_iter().enumerate() {
            for how in 0..3 {
                let leader = world.machines.await_leader(|_| true);
                let name = format!("{round}-{how}");
                let what = format!("seed {seed}, {when} ms, way {how}");
                let commit = world.begin(write(world.database(), name.clone()));
                world.machines.sim.run_for(Duration::from_millis(when));
                world.disturb(leader, how);
                let ended = world.machines.sim.run_until_within(LIMIT, commit);
                let ended = ended.unwrap_or_else(|| panic!("{what}: it never ends"));
                world.mend(leader, how);
                let counted = world.begin(count(world.database(), name));
                let counted = world.machines.sim.run_until_within(LIMIT, counted);
                let counted = counted.unwrap_or_else(|| panic!("{what}: rows can't be read"));
                let counted = counted.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(counted == 0 || counted == ROWS, "{what}: {counted} rows");
                match ended {
                    Ok(()) => {
                        assert_eq!(counted, ROWS, "{what}: acknowledged");
                        acknowledged += 1;
                    }
                    Err(error) if error == Error::commit_unknown_result() => unknown += 1,
                    Err(error) => {
                        assert!(error.is_retryable(), "{what}: {error}");
                        assert_eq!(counted, 0, "{what}: {error}");
                    }
                }
            }
        }
    }
    println!("{acknowledged} acknowledged, {unknown} of unknown fate");
    assert!(
        acknowledged > 0 && unknown > 0,
        "{acknowledged} acknowledged, {unknown} of unknown fate"
    );
}

/// They let small ones go first, so that those met them long after whoever had sent them.
#[test]
fn what_a_client_that_has_gone_had_waiting_comes_to_nothing() {
    const COMMITS: usize = 12;
    let mut world = World::new(0);
    world.machines.await_leader(|_| true);
    let others = world.machines.sim.process("others");
    let file = world.file.clone();
    let of_others = Database::new(Arc::new(RemoteEndpoint::connect(&others, file)));
    drop(others.spawn("others", {
        let db = of_others.clone();
        async move {
            loop {
                drop(write_rows(db.clone(), "others".to_owned(), 1).await);
            }
        }
    }));
    world.machines.sim.run_for(Duration::from_secs(1));
    let db = world.database();
    let _begun: Vec<_> = (0..COMMITS)
        .map(|number| world.begin(write_rows(db.clone(), format!("large/{number:02}"), 20)))
        .collect();
    world.machines.sim.run_for(Duration::from_millis(200));
    world.machines.sim.kill(&world.client);
    world.machines.sim.run_for(LIMIT);
    world.client = others;
    let counted = world.begin(count(of_others, "large".to_owned()));
    let counted = world.machines.sim.run_until_within(LIMIT, counted).expect("an end").unwrap();
    println!("{counted} rows");
    assert_eq!(counted % 20, 0, "each is whole or nothing");
    assert!((20..COMMITS * 20 / 2).contains(&counted), "{counted} rows");
}
