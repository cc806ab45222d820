//! Clients of a database of several servers, in simulation: the leader is another one again and
//! again, servers are killed, cut off and come back, and every increment takes effect once.
//!
//! The servers here have one database behind them and are told who leads: what is tested is how
//! clients find their way. That the rows survive is tested where the nodes are real.

#[path = "several/members.rs"]
mod members;
#[path = "common/quotas.rs"]
mod quotas;

use plinth_client::TransactionOption;
use plinth_client::remote::{ClusterFile, RemoteEndpoint};
use plinth_client::{
    Database, Description, Endpoint, Pinned, RangeOptions, ReadVersionReply, ReadVersionRequest,
};
use plinth_env::reply::{Reply, promise};
use plinth_env::simulated::{NetworkPlan, Random, Simulation};
use plinth_env::{Env, Task};
use plinth_pipeline::{Node, NodeConfig};
use plinth_server::{Server, ServerConfig};
use plinth_types::{
    Bytes, Changes, ChangesRequest, CommitReply, CommitRequest, Error, KeyList, KeyRange,
    KeySelector, KeySpace, Located, LocatedMember, Quorum, RangeRead, RangeResult, Result,
    Standing, Version,
};
use quotas::put_quota;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SERVERS: usize = 3;
const CLIENTS: usize = 3;
const OPERATIONS: usize = 25;

/// A server that is silent for 250 ms is taken to have failed. That is looked for every 50 ms, and
/// the next server takes a round trip.
const NOTICED: Duration = Duration::from_millis(320);

/// Who leads, and how often reads went to which server.
struct World {
    sim: Simulation,
    located: Mutex<Located>,
    reads: [AtomicUsize; SERVERS],
    store: Arc<Node>,
    file: ClusterFile,
    /// Which servers have none of the changes that are asked for, a bit each.
    lacks: AtomicUsize,
    /// How many read versions were left for the client to count, and how many proven.
    counted: AtomicUsize,
    proven: AtomicUsize,
    /// A server that still believes that it leads, in the term before, and gives old versions.
    behind_the_times: Mutex<Option<usize>>,
}

/// What one that is behind the times gives.
const OLD: Version = 7;

/// What one server of the cluster offers.
struct Seat {
    env: Env,
    at: usize,
    world: Arc<World>,
    behind: Arc<dyn Endpoint>,
}

impl Seat {
    fn leads(&self) -> Result<()> {
        let located = self.world.located.lock().unwrap();
        match located.leader == Some(self.at as u64 + 1) {
            true => Ok(()),
            false => Err(Error::process_behind().with_detail("this node doesn't lead")),
        }
    }

    /// Whom it says it follows, as [`Standing`] has it.
    fn stands(&self) -> Standing {
        let Located { term, leader, .. } = *self.world.located.lock().unwrap();
        let node = self.at as u64 + 1;
        Standing { node, term, follows: leader.filter(|leader| *leader != node) }
    }

    fn note(&self, space: KeySpace) {
        // The server itself reads among the system's keys.
        if space == KeySpace::Normal {
            self.world.reads[self.at].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Endpoint for Seat {
    fn env(&self) -> &Env {
        &self.env
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        self.world.proven.fetch_add(1, Ordering::Relaxed);
        self.leads()
            .map_or_else(|error| Reply::ready(Err(error)), |()| self.behind.read_version(request))
    }

    fn counted_read_version(
        &self,
        request: ReadVersionRequest,
    ) -> Reply<(ReadVersionReply, Option<Quorum>)> {
        self.world.counted.fetch_add(1, Ordering::Relaxed);
        let (Standing { node: leader, term, .. }, voters) = (self.stands(), vec![1, 2, 3]);
        if *self.world.behind_the_times.lock().unwrap() == Some(self.at) {
            let (metadata_version, range_locks) = (None, None);
            let answer = ReadVersionReply { version: OLD, metadata_version, range_locks };
            let quorum = Quorum { term: term - 1, leader, voters };
            return Reply::ready(Ok((answer, Some(quorum))));
        }
        let quorum = Some(Quorum { term, leader, voters });
        let (promise, reply) = promise();
        match self.leads() {
            Err(error) => promise.send(Err(error)),
            Ok(()) => self.behind.read_version(request).on_complete(move |answer| {
                promise.send(answer.map(|answer| (answer, quorum)));
            }),
        }
        reply
    }

    fn standing(&self) -> Option<Standing> {
        Some(self.stands())
    }

    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        self.note(space);
        self.behind.get_many(version, space, keys)
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        self.behind.get_key(version, space, selector)
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        self.note(space);
        self.behind.get_range(version, space, read)
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        self.leads().map_or_else(|error| Reply::ready(Err(error)), |()| self.behind.commit(request))
    }

    fn watch(&self, key: Bytes, value: Option<Bytes>, version: Version) -> Reply<Version> {
        self.behind.watch(key, value, version)
    }

    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        self.behind.range_size(range)
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        self.behind.split_points(range, chunk)
    }

    fn addresses_for_key(&self, key: &[u8]) -> Reply<Vec<String>> {
        self.behind.addresses_for_key(key)
    }

    fn describe(&self) -> Description {
        self.behind.describe()
    }

    fn status_json(&self) -> Reply<String> {
        self.behind.status_json()
    }

    fn read_changes(&self, request: ChangesRequest) -> Reply<Changes> {
        self.note(KeySpace::Normal);
        if self.world.lacks.load(Ordering::Relaxed) & (1 << self.at) != 0 {
            let detail = format!("node {} lacks it", self.at);
            return Reply::ready(Err(Error::version_invalid().with_detail(detail)));
        }
        self.behind.read_changes(request)
    }

    fn pin_snapshot(&self) -> Reply<Pinned> {
        self.behind.pin_snapshot()
    }

    fn newest_here(&self) -> Result<Version> {
        self.behind.newest_here()
    }

    fn located(&self) -> Option<Located> {
        let located = self.world.located.lock().unwrap().clone();
        Some(Located { node: self.at as u64 + 1, ..located })
    }
}

fn name(at: usize) -> String {
    format!("server-{at}")
}

impl World {
    fn new(seed: u64) -> Arc<Self> {
        let sim = Simulation::new(seed);
        let address = |at| SocketAddr::new(sim.ip(&sim.process(&name(at))), 4500).to_string();
        let addresses: Vec<_> = (0..SERVERS).map(address).collect();
        let file = ClusterFile::parse(&format!("test:several@{}", addresses.join(","))).unwrap();
        let env = sim.process("store");
        let store =
            sim.run_until(Node::open(&env, Path::new("/data"), NodeConfig::default())).unwrap();
        let member = |(address, node)| LocatedMember { node, address, votes: true };
        let members = addresses.into_iter().zip(1..).map(member).collect();
        let located = Mutex::new(Located { term: 1, node: 0, leader: Some(1), members });
        let world = Arc::new(Self {
            sim,
            located,
            reads: Default::default(),
            store,
            file,
            lacks: AtomicUsize::new(0),
            counted: AtomicUsize::new(0),
            proven: AtomicUsize::new(0),
            behind_the_times: Mutex::new(None),
        });
        (0..SERVERS).for_each(|at| world.start(at));
        world
    }

    fn env(&self, at: usize) -> Env {
        self.sim.process(&name(at))
    }

    fn start(self: &Arc<Self>, at: usize) {
        let env = self.env(at);
        let seat = Seat {
            env: env.clone(),
            at,
            world: self.clone(),
            behind: Arc::new(self.store.endpoint()),
        };
        let address: SocketAddr = self.file.addresses()[at].to_string().parse().unwrap();
        let line = self.file.connection_string();
        drop(env.clone().spawn("server", async move {
            let path = Path::new("/fdb.cluster");
            env.files().replace(path, line.as_bytes()).await.expect("the disk has no faults");
            let config = ServerConfig {
                listen: vec![address],
                cluster_file: Some(path.to_path_buf()),
                ..ServerConfig::default()
            };
            let server = Server::start(Arc::new(seat), config).await.expect("the address is free");
            std::future::pending::<()>().await;
            drop(server);
        }));
    }

    fn kill(self: &Arc<Self>, at: usize) {
        self.sim.kill(&self.env(at));
    }

    fn leader(&self) -> usize {
        self.located.lock().unwrap().leader.expect("somebody leads") as usize - 1
    }

    fn lead(&self, at: usize) {
        let mut located = self.located.lock().unwrap();
        located.term += 1;
        located.leader = Some(at as u64 + 1);
    }

    fn connect(&self, process: &str) -> Database {
        Database::new(Arc::new(RemoteEndpoint::connect(
            &self.sim.process(process),
            self.file.clone(),
        )))
    }

    /// Runs the world until a task has ended.
    fn finish(&self, tasks: &[Task]) {
        while !tasks.iter().all(Task::is_finished) {
            self.sim.run_for(Duration::from_millis(100));
            assert!(
                self.sim.now() < Duration::from_secs(3600),
                "seed {}: no progress",
                self.sim.seed()
            );
        }
    }
}

fn number(bytes: Bytes) -> u64 {
    u64::from_be_bytes(bytes[..].try_into().expect("numbers have eight bytes"))
}

/// Adds one to the counter and leaves a row that says so, once, whatever happens to answers.
async fn increment(db: &Database, row: &str) -> Result<()> {
    let tr = db.create_transaction();
    loop {
        let attempt = async {
            let (count, done) = (tr.get("counter"), tr.get(row));
            if done.await?.is_some() {
                return Ok(());
            }
            let count = count.await?.map_or(0, number) + 1;
            tr.set("counter", count.to_be_bytes());
            tr.set(row, count.to_be_bytes());
            tr.commit().await
        };
        match attempt.await {
            Ok(()) => return Ok(()),
            Err(error) => tr.on_error(error).await?,
        }
    }
}

async fn check(db: &Database) -> Result<u64> {
    db.transact(|tr| async move {
        let count = tr.get("counter").await?.map_or(0, number);
        let rows = tr.range(RangeOptions::from(&b"row/"[..]..&b"row0"[..])).collect().await?;
        let mut seen: Vec<_> = rows.into_iter().map(|row| number(row.value)).collect();
        seen.sort_unstable();
        assert!(
            seen.iter().copied().eq(1..=count),
            "the counter is {count}, the rows say {seen:?}"
        );
        Ok(count)
    })
    .await
}

fn spawn_clients(world: &World) -> Vec<Task> {
    let spawn = |client: usize| {
        let (db, env) = (
            world.connect(&format!("client-{client}")),
            world.sim.process(&format!("client-{client}")),
        );
        env.clone().spawn("client", async move {
            for operation in 0..OPERATIONS {
                increment(&db, &format!("row/{client}/{operation}")).await.expect("it is retried");
                env.sleep(Duration::from_millis(20)).await;
            }
        })
    };
    (0..CLIENTS).map(spawn).collect()
}

/// Something happens to a server, or to its connections.
fn trouble(world: &Arc<World>, random: &mut Random, clients: &[String]) {
    let pause = |random: &mut Random, most| {
        world.sim.run_for(Duration::from_millis(random.below(most)));
    };
    pause(random, 300);
    let (leader, next) = (world.leader(), random.index(SERVERS));
    let clients: Vec<_> = clients.iter().map(|client| world.sim.process(client)).collect();
    let client = &clients[random.index(clients.len())];
    match random.below(5) {
        0 => {
            world.kill(leader);
            pause(random, 600);
            world.lead((leader + 1) % SERVERS);
            pause(random, 600);
            world.start(leader);
        }
        1 => world.lead(next),
        2 => {
            let env = world.env(next);
            world.sim.partition(client, &env);
            pause(random, 5000);
            world.sim.heal(client, &env);
        }
        3 => {
            // The leader hangs: nobody hears of it, and another one leads.
            let env = world.env(leader);
            clients.iter().for_each(|client| world.sim.partition(client, &env));
            world.sim.run_for(Duration::from_millis(300));
            world.lead((leader + 1) % SERVERS);
            pause(random, 3000);
            clients.iter().for_each(|client| world.sim.heal(client, &env));
        }
        _ => world.sim.close_connections(client, &world.env(next)),
    }
}

#[test]
fn increments_take_effect_once_while_leaders_come_and_go() {
    for seed in 0..24 {
        let world = World::new(seed);
        let mut random = world.sim.random();
        let tasks = spawn_clients(&world);
        let close = if seed % 2 == 0 { 0.002 } else { 0.0 };
        world.sim.set_network(NetworkPlan { close, clog: 0.001, ..NetworkPlan::default() });
        let clients: Vec<_> = (0..CLIENTS).map(|at| format!("client-{at}")).collect();
        (0..25).for_each(|_| trouble(&world, &mut random, &clients));
        world.sim.set_network(NetworkPlan::default());
        world.finish(&tasks);
        let db = world.connect("checker");
        let count = world.sim.run_until(check(&db)).expect("it is retried");
        assert_eq!(count as usize, CLIENTS * OPERATIONS, "seed {seed}");
    }
}

/// Reads once in each way that any server can answer, at one version.
async fn read_in_every_way(db: &Database) -> Result<()> {
    let tr = db.create_transaction();
    let (first, second) = (tr.get("row/1"), tr.get("none"));
    assert_eq!((first.await?.map(number), second.await?), (Some(1), None));
    let rows = RangeOptions::from(&b"row/"[..]..&b"row0"[..]);
    let (again, key) = (tr.get("counter"), tr.get_key(KeySelector::first_greater_than("row/")));
    assert_eq!((again.await?.map(number), &key.await?[..]), (Some(1), &b"row/1"[..]));
    assert_eq!(tr.range(rows).collect().await?.len(), 1);
    let size = tr.estimated_range_size("row/", "row0");
    let points = tr.split_points("row/", "row0", 10_000);
    assert!(size.await? >= 0);
    assert_eq!(points.await?.len(), 2);
    Ok(())
}

/// Most of what is asked for has nobody to look after it but the server at hand.
#[test]
fn whatever_is_read_is_read_elsewhere_when_the_server_at_hand_fails() {
    for seed in 0..12 {
        let world = World::new(seed);
        let mut random = world.sim.random();
        let clients = ["client".to_owned()];
        let (db, env) = (world.connect(&clients[0]), world.sim.process(&clients[0]));
        world.sim.run_until(increment(&db, "row/1")).unwrap();
        let slowest = Arc::new(AtomicUsize::new(0));
        let is_over = Arc::new(AtomicUsize::new(0));
        let reader = || {
            let (db, env) = (db.clone(), env.clone());
            let (slowest, is_over) = (slowest.clone(), is_over.clone());
            env.clone().spawn("reader", async move {
                while is_over.load(Ordering::Relaxed) == 0 {
                    let began = env.now();
                    let read = read_in_every_way(&db).await;
                    read.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                    let took = env.now() - began;
                    slowest.fetch_max(took.as_millis() as usize, Ordering::Relaxed);
                    env.sleep(Duration::from_millis(30)).await;
                }
            })
        };
        let readers: Vec<_> = (0..3).map(|_| reader()).collect();
        (0..20).for_each(|_| trouble(&world, &mut random, &clients));
        is_over.store(1, Ordering::Relaxed);
        world.finish(&readers);
        let slowest = slowest.load(Ordering::Relaxed);
        assert!(slowest < 8000, "seed {seed}: {slowest} ms");
    }
}

/// Time is that of the simulation, so it makes no difference how busy the machine is.
#[test]
fn a_leader_that_hangs_is_left_for_the_next_as_soon_as_there_is_one() {
    for seed in 0..10 {
        let world = World::new(seed);
        let db = world.connect("client");
        world.sim.run_until(increment(&db, "row/1")).unwrap();
        let client = world.sim.process("client");
        world.sim.partition(&client, &world.env(0));
        world.lead(1);
        let began = world.sim.now();
        let tr = db.create_transaction();
        world.sim.run_until(tr.get_read_version()).unwrap();
        let noticed = world.sim.now() - began;
        assert!(noticed < NOTICED, "seed {seed}: {noticed:?}");
        let began = world.sim.now();
        world.sim.run_until(increment(&db, "row/2")).unwrap();
        let took = world.sim.now() - began;
        // It may be the one at hand for reads, too, and is found out once more.
        assert!(took < NOTICED, "seed {seed}: {took:?}");
        world.sim.run_until(check(&db)).unwrap();
    }
}

#[test]
fn clients_spread_their_reads_over_all_servers_and_go_to_others_when_one_is_silent() {
    let world = World::new(5);
    let clients: Vec<_> = (0..24).map(|number| format!("client {number}")).collect();
    let databases: Vec<_> = clients.iter().map(|client| world.connect(client)).collect();
    world.sim.run_until(increment(&databases[0], "row/1")).unwrap();
    let counts = || world.reads.each_ref().map(|reads| reads.load(Ordering::Relaxed));
    let read = |times: usize| {
        world.sim.run_until(async {
            for db in databases.iter().cycle().take(times * databases.len()) {
                db.create_transaction().get("key").await.unwrap();
            }
        });
    };
    read(50);
    // Each client keeps to one of them: which, is drawn.
    assert!(counts().iter().all(|count| *count > 80), "{:?}", counts());
    for client in &clients {
        world.sim.partition(&world.sim.process(client), &world.env(2));
    }
    let before = counts();
    read(20);
    let moved = counts()[0] + counts()[1] - before[0] - before[1];
    assert!(moved >= 20 * databases.len() - 2 * databases.len(), "{before:?} {:?}", counts());
}

#[test]
fn clients_count_votes_themselves_and_leave_it_to_the_leader_when_others_are_away() {
    let world = World::new(6);
    let db = world.connect("client");
    let client = world.sim.process("client");
    world.sim.run_until(increment(&db, "row/1")).unwrap();
    let asked = || [&world.counted, &world.proven].map(|number| number.swap(0, Ordering::Relaxed));
    let read = |times: usize| {
        let began = world.sim.now();
        world.sim.run_until(async {
            for _ in 0..times {
                db.create_transaction().get_read_version().await.unwrap();
            }
        });
        world.sim.now() - began
    };
    read(1);
    asked();
    read(20);
    assert_eq!(asked(), [20, 0]);
    // The one that is asked is silent: the leader is to prove it then, and the other one is asked.
    for away in [1, 2] {
        world.sim.partition(&client, &world.env(away));
        let took = read(20);
        let [counted, proven] = asked();
        assert!(counted >= 19 && proven <= 1, "{counted} and {proven}");
        assert!(took < Duration::from_millis(200), "{took:?}");
        world.sim.heal(&client, &world.env(away));
        world.sim.run_for(Duration::from_secs(12));
        read(1);
        asked();
    }
    // Both are.
    [1, 2].iter().for_each(|away| world.sim.partition(&client, &world.env(*away)));
    let took = read(20);
    let [_, proven] = asked();
    assert!(proven >= 18, "{proven}");
    assert!(took < Duration::from_millis(400), "{took:?}");
}

#[test]
fn nobody_reads_at_a_version_of_a_leader_that_others_follow_no_more() {
    for seed in 0..20 {
        let world = World::new(seed);
        let db = world.connect("client");
        world.sim.run_until(increment(&db, "row/1")).unwrap();
        *world.behind_the_times.lock().unwrap() = Some(0);
        world.lead(1);
        let version = world.sim.run_until(db.create_transaction().get_read_version()).unwrap();
        assert!(version != OLD, "seed {seed}");
        world.sim.run_until(check(&db)).unwrap();
    }
}

/// Such a server was taken for lost after a quarter of a second, and each of the others was asked
/// and paid, too.
#[test]
fn a_read_that_waits_for_a_quota_is_asked_of_one_server_and_paid_for_once() {
    const LARGE: usize = 4_200;
    for seed in 0..4 {
        let world = World::new(seed);
        let client = world.sim.process("client");
        let endpoint = Arc::new(RemoteEndpoint::connect(&client, world.file.clone()));
        let db = Database::new(endpoint.clone());
        let quota = format!("address {} read=1kB/s", world.sim.ip(&client));
        let written = db.transact(async |tr| {
            tr.set("large", vec![7; LARGE]);
            put_quota(&tr, &quota)?;
            Ok::<_, Error>(())
        });
        world.sim.run_until(written).unwrap();
        world.sim.run_for(Duration::from_secs(1));
        let counts = || world.reads.each_ref().map(|reads| reads.load(Ordering::Relaxed));
        let read = async |number: usize| {
            let tr = db.create_transaction();
            match number % 3 {
                0 => assert_eq!(tr.get("large").await.unwrap().map(|it| it.len()), Some(LARGE)),
                1 => assert_eq!(tr.get_range("large".."large0").await.unwrap().rows.len(), 1),
                _ => {
                    // More than are answered whole go another way through the client.
                    let version = tr.get_read_version().await.unwrap();
                    let mut keys = KeyList::new();
                    keys.push(b"large");
                    let _ = (0..11).map(|_| keys.push(b"none")).max();
                    let values = endpoint.get_many(version, KeySpace::Normal, &keys).await.unwrap();
                    assert_eq!(values[0].as_ref().map(|it| it.len()), Some(LARGE));
                }
            }
        };
        world.sim.run_until(async {
            for _ in 0..40 {
                assert_eq!(db.create_transaction().get("none").await, Ok(None));
            }
        });
        let before = counts();
        world.sim.run_until(async {
            for number in 0..21 {
                read(number).await;
            }
        });
        let mut asked: Vec<_> = counts().iter().zip(before).map(|(now, then)| now - then).collect();
        asked.sort_unstable();
        // The server begins twice with many keys.
        assert_eq!(asked, [0, 0, 21 + 7], "seed {seed}: the others were asked, too");
        let took = world.sim.now();
        assert!(took > Duration::from_secs(60), "seed {seed}: it never waited, in {took:?}");
    }
}

#[test]
fn a_watch_outlives_the_server_that_it_waited_at() {
    for seed in 0..6 {
        let world = World::new(seed);
        let db = world.connect("client");
        let tr = db.create_transaction();
        let watch = tr.watch("watched");
        world.sim.run_until(tr.commit()).unwrap();
        for at in 0..SERVERS {
            world.kill(at);
            world.sim.run_for(Duration::from_millis(100));
            world.start(at);
            world.sim.run_for(Duration::from_secs(2));
        }
        let other = world.connect("other");
        let set = async {
            other
                .transact(|tr| async move {
                    tr.set("watched", "x");
                    Ok(())
                })
                .await
                .unwrap();
        };
        world.sim.run_until(set);
        world.sim.run_until(watch).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn a_majority_that_is_gone_is_waited_for_until_the_timeout_and_then_found_again() {
    let world = World::new(3);
    let db = world.connect("client");
    world.sim.run_until(increment(&db, "row/1")).unwrap();
    (0..SERVERS).for_each(|at| world.kill(at));
    let error = world.sim.run_until(async {
        let tr = db.create_transaction();
        tr.set_option(TransactionOption::Timeout(Some(Duration::from_millis(2000)))).unwrap();
        tr.get("counter").await.unwrap_err()
    });
    assert_eq!(error, Error::transaction_timed_out());
    (0..SERVERS).for_each(|at| world.start(at));
    world.sim.run_until(increment(&db, "row/2")).unwrap();
    assert_eq!(world.sim.run_until(check(&db)), Ok(2));
}

/// Clients of a cluster without a majority waited without a word: what says that no server answers
/// heard of one that does.
#[test]
fn it_can_be_told_what_is_waited_for() {
    let world = World::new(5);
    let endpoint = RemoteEndpoint::connect(&world.sim.process("client"), world.file.clone());
    let asked = || endpoint.read_version(ReadVersionRequest::default());
    assert_eq!(endpoint.stalled(), None, "nobody asks for anything");
    world.sim.run_until(asked()).unwrap();
    assert_eq!(endpoint.stalled(), None);
    world.located.lock().unwrap().leader = None;
    world.located.lock().unwrap().term += 1;
    world.kill(2);
    let waits = asked();
    world.sim.run_for(Duration::from_secs(30));
    let told = endpoint.stalled().unwrap();
    let away = world.file.addresses()[2].to_string();
    assert!(told.contains("leads") && told.contains("1 of 3") && told.contains(&away), "{told}");
    (0..2).for_each(|at| world.kill(at));
    world.sim.run_for(Duration::from_secs(30));
    let told = endpoint.stalled().unwrap();
    assert!(told.starts_with("no server answers: "), "{told}");
    (0..SERVERS).for_each(|at| world.start(at));
    world.lead(0);
    world.sim.run_until(waits).unwrap();
    assert_eq!(endpoint.stalled(), None);
    // Nobody waits any more: neither when they had been handed over, nor when they weren't yet.
    world.located.lock().unwrap().leader = None;
    world.located.lock().unwrap().term += 1;
    for pause in [0, 30] {
        let waits: Vec<_> = (0..3).map(|_| asked()).collect();
        world.sim.run_for(Duration::from_secs(pause));
        drop(waits);
        world.sim.run_for(Duration::from_secs(30));
        assert_eq!(endpoint.stalled(), None, "after {pause} s");
    }
}

#[test]
fn servers_of_another_cluster_are_told_to_who_waits() {
    let world = World::new(4);
    let file = ClusterFile::parse(&format!("other:cluster@{}", world.file.address_list())).unwrap();
    let endpoint = RemoteEndpoint::connect(&world.sim.process("client"), file);
    let asked = endpoint.read_version(ReadVersionRequest::default());
    let error = world.sim.run_until(asked).unwrap_err();
    assert!(error.code() == 2104 && error.detail().unwrap().contains("test:several"), "{error}");
    // The file is as it should be, but for whose it is.
    assert!(!error.to_string().contains("write description:id@ip:port"), "{error}");
}

/// Clients were spread among both, each by who answered it first, and rows lay in either.
#[test]
fn a_server_of_another_cluster_at_one_address_is_not_asked() {
    let world = World::new(7);
    world.kill(2);
    let intruder = world.env(2);
    let there =
        world.sim.run_until(Node::open(&intruder, Path::new("/theirs"), NodeConfig::default()));
    let theirs = there.expect("a database of its own");
    let address: SocketAddr = world.file.addresses()[2].to_string().parse().unwrap();
    let config = ServerConfig {
        listen: vec![address],
        cluster_file: Some(Path::new("/theirs.cluster").to_path_buf()),
        ..ServerConfig::default()
    };
    // Its file begins as that of the others does.
    let line = format!("test:several@{address}\n");
    let server = world.sim.run_until(async {
        let path = Path::new("/theirs.cluster");
        intruder.files().replace(path, line.as_bytes()).await.expect("the disk has no faults");
        Server::start(Arc::new(theirs.endpoint()), config).await.expect("the address is free")
    });
    let mut clients = Vec::new();
    for client in 0..24 {
        let db = world.connect(&format!("client {client}"));
        let row = format!("row/{client}");
        world.sim.run_until(increment(&db, &row)).expect("two of three servers are there");
        assert_eq!(world.sim.run_until(check(&db)).unwrap(), client + 1);
        clients.push(db);
    }
    let alone = Database::new(Arc::new(theirs.endpoint()));
    let rows = world.sim.run_until(check(&alone)).unwrap();
    assert_eq!(rows, 0, "so many went into the other database");
    drop((server, clients));
}

#[test]
fn changes_come_from_whichever_server_has_them() {
    for seed in 0..6 {
        let world = World::new(seed);
        let db = world.connect("client");
        let everything = KeyRange::new("", &b"\xff"[..]);
        let stream =
            world.sim.run_until(db.register_changes("all", [everything], None)).expect("a stream");
        let mut consumer = db.resume_changes(stream.id, stream.registered);
        let mut delivered = 0;
        for round in 0..12 {
            // One has them, or two; one of those is killed while the consumer waits for it.
            let only = round % SERVERS;
            world.lacks.store((0b111 ^ (1 << only)) & [0b111, 0b110][round % 2], Ordering::Relaxed);
            if round % 4 == 3 && only != 0 {
                world.kill(only);
                world.lacks.store(0b010, Ordering::Relaxed);
            }
            world.sim.run_until(increment(&db, &format!("row/{round}"))).expect("it is retried");
            while delivered <= round {
                let changes = world.sim.run_until(consumer.next()).expect("somebody has them");
                delivered += changes.batches.len();
            }
            assert_eq!(delivered, round + 1, "seed {seed}");
            if round % 4 == 3 && only != 0 {
                world.start(only);
            }
        }
        world.lacks.store(0b111, Ordering::Relaxed);
        let lost = world.sim.run_until(consumer.next()).expect_err("nobody has them");
        assert_eq!(lost, Error::version_invalid());
        world.lacks.store(0, Ordering::Relaxed);
        world.sim.run_until(consumer.acknowledge()).expect("an acknowledgement");
        world.sim.run_until(db.remove_changes("all")).expect("it is there");
        let gone = world.sim.run_until(consumer.next()).expect_err("it was removed");
        assert_eq!(gone, Error::client_invalid_operation());
    }
}
