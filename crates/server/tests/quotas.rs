//! Quotas: whoever is over his waits and has what it says, and nobody else waits for him.
//!
//! Users are machines of a simulated world, each with an address of its own, so a second is one and
//! what somebody moves in it is a matter of counting. The operator is in the process and writes
//! rows as `plinth shell` does.

mod common;
#[path = "quotas/counted.rs"]
mod counted;
#[path = "quotas/series.rs"]
mod series;

use common::quotas::quota;
use plinth_client::remote::{ClusterFile, RemoteEndpoint, RemoteOptions};
use plinth_client::{
    Database, Endpoint, PinnedSnapshot, RangeOptions, Transaction, TransactionOption,
};
use plinth_env::simulated::Simulation;
use plinth_env::{Env, Task};
use plinth_pipeline::{EngineKind, Node, NodeConfig, SsdSettings};
use plinth_server::{Server, ServerConfig};
use plinth_types::quotas::Bounds;
use plinth_types::rights::Grant;
use plinth_types::{Bytes, Error, KeySelector, codes, system};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of a value that is read or written at a time.
const LARGE: usize = 50_000;
/// Between two of somebody's: nobody moves more than some ten megabytes a second.
const PAUSE: Duration = Duration::from_millis(20);
/// For as long what is moved is counted.
const SECONDS: u64 = 10;

/// A server, and the database behind it.
struct World {
    sim: Simulation,
    place: Env,
    address: SocketAddr,
    inside: Database,
    server: Option<Server>,
    engine: EngineKind,
}

impl World {
    fn new(engine: EngineKind) -> Self {
        let sim = Simulation::new(7);
        let place = sim.process("server");
        let address = SocketAddr::new(sim.ip(&place), 4500);
        let (inside, server) = sim.run_until(serve(&place, address, engine));
        let world = Self { sim, place, address, inside, server: Some(server), engine };
        world.write(|tr| {
            (0..8_u8).for_each(|number| tr.set([b'k', number], vec![number; LARGE]));
        });
        world
    }

    fn write(&self, what: impl Fn(&Transaction)) {
        let done = self.inside.transact(async |tr| {
            tr.set_option(TransactionOption::AccessSystemKeys)?;
            tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites)?;
            what(&tr);
            Ok::<_, Error>(())
        });
        self.sim.run_until(done).unwrap();
    }

    /// Sets quotas, and lets the server take them in.
    fn set(&self, quotas: &[String]) {
        self.write(|tr| {
            for text in quotas {
                let quota = quota(text);
                match quota.change(Bounds::default()) {
                    bounds if bounds.is_empty() => tr.clear(quota.whom.key()),
                    bounds => tr.set(quota.whom.key(), bounds.value(0)),
                }
            }
        });
        self.sim.run_for(Duration::from_secs(1));
    }

    fn grant(&self, text: &str) {
        let words: Vec<_> = text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        self.write(|tr| tr.set(Grant::parse(&words).unwrap().key(), b"\x01"));
        self.sim.run_for(Duration::from_secs(1));
    }

    /// A machine, and a client of one connection on it.
    fn user(&self, name: &str) -> User {
        self.client_of(&self.sim.process(name))
    }

    /// One more client on a machine.
    fn client_of(&self, env: &Env) -> User {
        let env = env.clone();
        let file = ClusterFile::new("plinth", "any", self.address);
        let options = RemoteOptions { connections: 1, ..RemoteOptions::new(&env) };
        let endpoint = RemoteEndpoint::with_options(&env, file, &options);
        User {
            address: self.sim.ip(&env).to_string(),
            db: Database::new(Arc::new(endpoint)),
            env,
            moved: Arc::default(),
            has_enough: Arc::default(),
        }
    }

    /// What the users move within some seconds, in bytes.
    fn moved(&self, users: &[&User]) -> Vec<u64> {
        let all = || users.iter().map(|user| user.moved.load(Ordering::Relaxed));
        let before: Vec<_> = all().collect();
        self.sim.run_for(Duration::from_secs(SECONDS));
        all().zip(before).map(|(now, before)| now - before).collect()
    }

    fn status(&self) -> Value {
        let checker = self.user("checker");
        let status = self.sim.run_until(checker.db.status_json()).unwrap();
        let status: Value = serde_json::from_str(&status).unwrap();
        status["cluster"]["plinth"]["server"].clone()
    }

    fn budget(&self, whose: &str) -> Value {
        let status = self.status();
        let budgets = status["quotas"]["budgets"].as_array().unwrap().clone();
        let found = budgets.into_iter().find(|budget| budget["whose"] == *whose);
        found.unwrap_or_else(|| panic!("{whose} isn't told of in {}", status["quotas"]))
    }

    fn restart(&mut self) {
        self.sim.kill(&self.place);
        self.server = None;
        self.place = self.sim.restart(&self.place);
        let serving = serve(&self.place, self.address, self.engine);
        let (inside, server) = self.sim.run_until(serving);
        (self.inside, self.server) = (inside, Some(server));
    }
}

async fn serve(env: &Env, address: SocketAddr, engine: EngineKind) -> (Database, Server) {
    let ssd = SsdSettings {
        flush_bytes: 64 << 10,
        flush_after: Duration::from_millis(100),
        ..SsdSettings::with_memory(2 << 20)
    };
    let mut config = NodeConfig { engine, ssd, ..NodeConfig::default() };
    if engine == EngineKind::Ssd {
        // What waits for longer is too old when it begins. Of commits each paid once, and nothing
        // was ever written.
        config.window = 500_000;
    }
    let node = Node::open(env, Path::new("/data"), config).await.expect("the disk has no faults");
    let (file, path) = (ClusterFile::new("plinth", "any", address), Path::new("/fdb.cluster"));
    let text = file.connection_string();
    env.files().replace(path, text.as_bytes()).await.expect("the disk has no faults");
    let endpoint: Arc<dyn Endpoint> = Arc::new(node.endpoint());
    let config = ServerConfig {
        listen: vec![address],
        cluster_file: Some(path.to_path_buf()),
        ..ServerConfig::default()
    };
    let server = Server::start(endpoint.clone(), config).await.expect("the address is free");
    (Database::new(endpoint), server)
}

/// Somebody, and how many bytes he has moved.
struct User {
    env: Env,
    address: String,
    db: Database,
    moved: Arc<AtomicU64>,
    has_enough: Arc<AtomicBool>,
}

impl User {
    /// The same one, whose other kind of bytes are counted apart.
    fn apart(&self) -> Self {
        let (env, address) = (self.env.clone(), self.address.clone());
        let (db, has_enough) = (self.db.clone(), self.has_enough.clone());
        Self { env, address, db, moved: Arc::default(), has_enough }
    }

    /// Nothing more is begun.
    fn stop(&self) {
        self.has_enough.store(true, Ordering::Relaxed);
    }

    /// Reads large values again and again, several at a time.
    fn reads(&self) {
        for number in 0..4_u8 {
            let (env, db, moved) = (self.env.clone(), self.db.clone(), self.moved.clone());
            let has_enough = self.has_enough.clone();
            drop(self.env.spawn("reader", async move {
                let key = [b'k', number];
                let snapshot = pin(&env, &db, key).await;
                while !has_enough.load(Ordering::Relaxed) {
                    let value = match number {
                        // With the version, in a snapshot, and behind the version.
                        0 => db.transact(async |tr| tr.get(key).await).await,
                        1 => snapshot.get(key).await,
                        2 => {
                            let read = db.transact(async |tr| {
                                tr.get_read_version().await?;
                                tr.get(key).await
                            });
                            read.await
                        }
                        _ => db.transact(async |tr| ranged(&tr, key).await).await,
                    };
                    let value = value.unwrap_or_else(|why| panic!("{number}: {why}"));
                    let value = value.unwrap_or_else(|| panic!("{number}: it is there"));
                    moved.fetch_add(2 + value.len() as u64, Ordering::Relaxed);
                    env.sleep(PAUSE).await;
                }
            }));
        }
    }

    /// Writes large values again and again, several at a time, with keys that begin so.
    fn writes(&self, prefix: &[u8]) {
        for number in 0..4_u8 {
            let (env, db, moved) = (self.env.clone(), self.db.clone(), self.moved.clone());
            let key = [prefix, &[number]].concat();
            let has_enough = self.has_enough.clone();
            drop(self.env.spawn("writer", async move {
                while !has_enough.load(Ordering::Relaxed) {
                    let written = db.transact(async |tr| {
                        tr.set(&key, vec![number; LARGE]);
                        Ok::<_, Error>(())
                    });
                    written.await.expect("nothing fails");
                    moved.fetch_add((key.len() + LARGE) as u64, Ordering::Relaxed);
                    env.sleep(PAUSE).await;
                }
            }));
        }
    }
}

/// A snapshot that has a key: on the engine `ssd` one is as old as the window.
async fn pin(env: &Env, db: &Database, key: [u8; 2]) -> PinnedSnapshot {
    loop {
        let snapshot = db.pin_snapshot().await.expect("nothing fails");
        if snapshot.get(key).await.expect("nothing fails").is_some() {
            return snapshot;
        }
        env.sleep(PAUSE).await;
    }
}

/// The value of a key, read as a range.
async fn ranged(tr: &Transaction, key: [u8; 2]) -> Result<Option<Bytes>, Error> {
    let rows = tr.get_range(key..[key[0], key[1] + 1]).await?.rows;
    Ok(rows.get(0).map(|row| row.value))
}

/// Within a fifth of so many bytes a second.
fn assert_is_rate(moved: u64, a_second: u64, what: &str) {
    let expected = a_second * SECONDS;
    assert!(
        (expected * 4 / 5..=expected * 6 / 5).contains(&moved),
        "{what}: {moved} bytes in {SECONDS} seconds, and {expected} are expected"
    );
}

#[test]
fn who_is_over_his_rate_has_just_that_and_nobody_waits_for_him() {
    for engine in [EngineKind::Memory, EngineKind::Ssd] {
        let world = World::new(engine);
        let (slow, good) = (world.user("slow"), world.user("good"));
        let slow_writer = slow.apart();
        [&slow, &good].into_iter().for_each(User::reads);
        world.sim.run_for(Duration::from_secs(2));
        let before = world.moved(&[&good]);
        world.set(&[format!("address {} read=200kB/s write=400kB/s", slow.address)]);
        slow_writer.writes(b"w");
        world.sim.run_for(Duration::from_secs(2));
        let moved = world.moved(&[&slow, &slow_writer, &good]);
        // Who reads too much may write as much as he may, and the other way round.
        assert_is_rate(moved[0], 200_000, "reads");
        assert_is_rate(moved[1], 400_000, "commits");
        assert!(moved[2] >= before[0] * 4 / 5, "{engine:?}: {before:?}, then {moved:?}");
        assert!(moved[2] > 20 * moved[0], "the test's users are too slow: {moved:?}");
        let budget = world.budget(&format!("address {}", slow.address));
        for (of, bytes) in [("read", 200_000), ("write", 400_000)] {
            let told = &budget[of];
            assert_eq!(told["bytes_per_second_max"], bytes, "{budget}");
            assert!(told["bytes"].as_u64() > Some(bytes * SECONDS), "{budget}");
            let recent = told["bytes_per_second"].as_u64().unwrap();
            assert!((bytes / 2..=2 * bytes).contains(&recent), "{budget}");
            assert!(told["waiting"].as_u64() > Some(0), "{budget}");
            assert!(told["waiting_for_seconds"].as_f64() >= Some(0.0), "{budget}");
        }
    }
}

#[test]
fn a_changed_quota_holds_on_an_open_connection_and_one_that_is_cleared_lets_go() {
    let world = World::new(EngineKind::Memory);
    let user = world.user("user");
    let who = format!("address {}", user.address);
    user.reads();
    let free = world.moved(&[&user])[0];
    for rate in [100_000, 1_000_000, 250_000] {
        world.set(&[format!("{who} read={rate}")]);
        world.sim.run_for(Duration::from_secs(2));
        assert_is_rate(world.moved(&[&user])[0], rate, "after a change");
    }
    world.set(&[format!("{who} read=none")]);
    assert!(world.moved(&[&user])[0] > free / 2);
    user.stop();
    world.sim.run_for(Duration::from_secs(1));
    // Whoever owes a minute owes nothing to nobody.
    world.set(&[format!("{who} read=1kB/s")]);
    let read = || user.db.transact(async |tr| tr.get(b"k\x01").await);
    world.sim.run_until(read()).unwrap();
    let mut waits = Box::pin(read());
    assert!(world.sim.run_until_within(Duration::from_secs(20), &mut waits).is_none());
    world.set(&[format!("{who} read=none")]);
    let read = world.sim.run_until_within(Duration::from_secs(1), &mut waits);
    assert!(read.is_some(), "it waits for a quota that is gone");
}

/// A commit of ten megabytes once kept its sender waiting for hours.
#[test]
fn nobody_owes_more_than_a_minute() {
    let world = World::new(EngineKind::Memory);
    let user = world.user("user");
    world.set(&[format!("address {} write=1kB/s", user.address)]);
    let commit = |number: u8| {
        let tr = user.db.create_transaction();
        (0..20).for_each(|row| tr.set([b'w', number, row], vec![row; LARGE]));
        async move { tr.commit().await }
    };
    world.sim.run_until(commit(0)).unwrap();
    let whose = format!("address {}", user.address);
    let owes = || world.budget(&whose)["write"]["owes_seconds"].as_f64().unwrap();
    assert!((50.0..=60.0).contains(&owes()), "{}", owes());
    world.sim.run_for(Duration::from_secs(30));
    assert!((20.0..=30.0).contains(&owes()), "{}", owes());
    world.sim.run_for(Duration::from_secs(30));
    world.sim.run_until_within(Duration::from_secs(1), commit(1)).expect("it waits").unwrap();
}

/// Each user's was bounded, and there are ten thousand.
#[test]
fn all_that_waits_takes_a_bounded_part_of_memory() {
    let world = World::new(EngineKind::Memory);
    world.set(&["* write=1kB/s".to_owned()]);
    let users: Vec<_> = (0..10).map(|number| world.user(&format!("user {number}"))).collect();
    for user in &users {
        for number in 0..7_u8 {
            let tr = user.db.create_transaction();
            (0..25_u8).for_each(|row| tr.set([b'w', number, row], vec![row; 80_000]));
            drop(user.env.spawn("writer", async move { drop(tr.commit().await) }));
        }
    }
    world.sim.run_for(Duration::from_secs(5));
    let held = world.server.as_ref().unwrap().buffered_bytes();
    // A frame of each connection more, and the buffer that it comes in.
    assert!((60 << 20..90 << 20).contains(&held), "{held}");
    world.set(&["* write=none".to_owned()]);
    world.sim.run_for(Duration::from_secs(10));
    assert!(world.server.as_ref().unwrap().buffered_bytes() < 1 << 20);
}

/// Such a server was silent to its client, who connected anew after seconds: what became of the
/// commits was unknown then, and he sent all of them again.
#[test]
fn who_is_not_read_since_too_much_of_his_waits_is_told_and_keeps_his_connection() {
    let world = World::new(EngineKind::Memory);
    let user = world.user("user");
    let who = format!("address {}", user.address);
    world.set(&[format!("{who} write=1kB/s")]);
    let commit = |number: u8| {
        let tr = user.db.create_transaction();
        (0..25_u8).for_each(|row| tr.set([b'w', number, row], vec![row; 80_000]));
        user.env.spawn("writer", async move {
            // By then all but the first are too old.
            let done = tr.commit().await.map_err(|why| why.code());
            assert!(matches!(done, Ok(()) | Err(codes::TRANSACTION_TOO_OLD)), "{done:?}");
        })
    };
    // More than may wait for a quota.
    let commits: Vec<_> = (0..12).map(commit).collect();
    world.sim.run_for(Duration::from_secs(45));
    assert_eq!(commits.iter().filter(|commit| commit.is_finished()).count(), 1);
    let accepted = || world.status()["connections_accepted"].as_u64().unwrap();
    let before = accepted();
    world.set(&[format!("{who} write=none")]);
    world.sim.run_for(Duration::from_secs(10));
    assert!(commits.iter().all(Task::is_finished));
    assert_eq!(accepted(), before + 1, "that of whoever asks for the status");
}

#[test]
fn everybody_has_a_budget_of_his_own_by_the_quota_for_each_but_operators() {
    let world = World::new(EngineKind::Memory);
    let [one, two, own, operator] = ["one", "two", "own", "operator"].map(|name| world.user(name));
    world.grant(&format!("operator address {}", operator.address));
    world.grant("reader anybody");
    world.set(&["* read=100kB/s".to_owned(), format!("address {} read=300kB/s", own.address)]);
    [&one, &two, &own, &operator].into_iter().for_each(User::reads);
    world.sim.run_for(Duration::from_secs(2));
    let moved = world.moved(&[&one, &two, &own, &operator]);
    assert_is_rate(moved[0], 100_000, "one");
    assert_is_rate(moved[1], 100_000, "another");
    assert_is_rate(moved[2], 300_000, "who has his own");
    assert!(moved[3] > 10 * moved[2], "an operator is not each: {moved:?}");
    // Who comes again owes what he owed.
    let again = world.client_of(&one.env);
    again.reads();
    let moved = world.moved(&[&one, &again]);
    assert_is_rate(moved[0] + moved[1], 100_000, "over all his connections");
}

#[test]
fn a_tenant_has_its_rate_whoever_uses_it_and_other_keys_are_nothing_to_it() {
    let world = World::new(EngineKind::Memory);
    for name in ["app", "other"] {
        world
            .write(|tr| tr.set([b"\xff\xff/management/tenant/map/", name.as_bytes()].concat(), ""));
    }
    world.set(&["tenant app write=100kB/s".to_owned()]);
    let [one, two] = ["one", "two"].map(|name| world.user(name));
    let id = |name: &str| {
        let tenant = world.sim.run_until(one.db.open_tenant(name)).unwrap();
        tenant.id().to_be_bytes().to_vec()
    };
    let [app, other] = ["app", "other"].map(id);
    let elsewhere = one.apart();
    one.writes(&app);
    two.writes(&app);
    elsewhere.writes(&other);
    world.sim.run_for(Duration::from_secs(2));
    let moved = world.moved(&[&one, &two, &elsewhere]);
    assert_is_rate(moved[0] + moved[1], 100_000, "both together");
    assert!(moved[2] > 20 * (moved[0] + moved[1]), "{moved:?}");
    assert!(world.budget("tenant app")["write"]["bytes"].as_u64() > Some(100_000 * SECONDS));
}

/// Where a range began before the tenant's keys nobody waited, though the tenant paid; and the
/// tenant's users waited for an operator's backup.
#[test]
fn a_range_over_a_tenant_waits_for_it_and_operators_are_nothing_to_it() {
    let world = World::new(EngineKind::Memory);
    world.write(|tr| tr.set(b"\xff\xff/management/tenant/map/app", ""));
    let [user, operator, checker] = ["user", "operator", "checker"].map(|name| world.user(name));
    world.grant(&format!("operator address {}", operator.address));
    world.grant(&format!("operator address {}", checker.address));
    world.grant("reader anybody");
    let app = world.sim.run_until(operator.db.open_tenant("app")).unwrap().id().to_be_bytes();
    world.write(|tr| tr.set([&app[..], b"k"].concat(), vec![7; LARGE]));
    world.set(&["tenant app read=100kB/s".to_owned()]);
    let reads_all = |user: &User| {
        let (env, db, moved) = (user.env.clone(), user.db.clone(), user.moved.clone());
        drop(user.env.spawn("reader", async move {
            for round in 0.. {
                let read = db.transact(async |tr| {
                    let range = RangeOptions::from(&b""[..]..&b"k"[..]);
                    // Also from a key that lies behind, and the last ones first.
                    let begins = KeySelector::new(&b"k"[..], false, -1);
                    match round % 3 {
                        0 => tr.get_range(range).await,
                        1 => tr.get_range(RangeOptions { reverse: true, ..range }).await,
                        _ => tr.get_range(RangeOptions { begin: begins, ..range }).await,
                    }
                });
                let read = read.await.expect("nothing fails").rows;
                let bytes: usize = read.iter().map(|(key, value)| key.len() + value.len()).sum();
                assert!(bytes > LARGE || round % 3 == 2, "{bytes}");
                moved.fetch_add(bytes as u64, Ordering::Relaxed);
                env.sleep(PAUSE).await;
            }
        }));
    };
    reads_all(&user);
    world.sim.run_for(Duration::from_secs(2));
    assert_is_rate(world.moved(&[&user])[0], 100_000, "ranges");
    let bytes = || world.budget("tenant app")["read"]["bytes"].as_u64().unwrap();
    let before = bytes();
    reads_all(&operator);
    let moved = world.moved(&[&user, &operator]);
    assert_is_rate(moved[0], 100_000, "beside an operator");
    assert!(moved[1] > 10 * moved[0], "{moved:?}");
    assert!(bytes() - before < 2 * 100_000 * SECONDS, "it paid for the operator");
}

/// Whoever asked for those had all of a tenant's keys read for nothing.
#[test]
fn keys_that_cut_a_range_are_read() {
    let world = World::new(EngineKind::Memory);
    world.write(|tr| {
        (0..100_u8)
            .for_each(|row| tr.set([&b"m"[..], &[b'm'; 90], &[row]].concat(), vec![1; 1000]));
    });
    let user = world.user("user");
    world.set(&[format!("address {} read=1kB/s", user.address)]);
    let cut = || user.db.create_transaction().split_points("m", "n", 1_000);
    let points: usize = world.sim.run_until(cut()).unwrap().iter().map(|key| key.len()).sum();
    assert!(points > 2_000, "{points}");
    let told = world.budget(&format!("address {}", user.address))["read"]["bytes"].as_u64();
    assert!(told > Some(2_000), "{told:?}");
    let waits = world.sim.run_until_within(Duration::from_millis(500), cut());
    assert!(waits.is_none(), "it is over");
}

/// Such a request waited for the tenant's budget first.
#[test]
fn who_may_not_read_a_tenant_is_told_so_at_once() {
    let world = World::new(EngineKind::Memory);
    world.write(|tr| tr.set(b"\xff\xff/management/tenant/map/app", ""));
    let [user, stranger] = ["user", "stranger"].map(|name| world.user(name));
    world.grant(&format!("reader address {} tenant app", user.address));
    world.grant(&format!("writer address {} prefix k", stranger.address));
    let app = world.sim.run_until(world.inside.open_tenant("app")).unwrap().id().to_be_bytes();
    let key = [&app[..], b"k"].concat();
    world.write(|tr| tr.set(&key, vec![7; LARGE]));
    world.set(&["tenant app read=1kB/s write=1kB/s".to_owned()]);
    let read = async |user: &User| user.db.create_transaction().get(&key).await;
    world.sim.run_until(read(&user)).unwrap();
    let mut waits = Box::pin(read(&user));
    let second = Duration::from_secs(1);
    assert!(world.sim.run_until_within(second, &mut waits).is_none());
    let denied = Error::permission_denied().code();
    let told = world.sim.run_until_within(second, read(&stranger)).expect("it waits");
    assert_eq!(told.unwrap_err().code(), denied);
    let tr = stranger.db.create_transaction();
    let ranged = world.sim.run_until_within(second, tr.get_range(&b""[..]..&b"l"[..]));
    assert_eq!(ranged.expect("it waits").unwrap_err().code(), denied);
    // Who had to wait, and may no longer.
    world.write(|tr| tr.clear_range(system::RIGHTS.0, system::RIGHTS.1));
    world.grant("reader address 1.2.3.4");
    let told = world.sim.run_until_within(second, &mut waits).expect("it waits");
    assert_eq!(told.unwrap_err().code(), denied);
}

#[test]
fn quotas_outlive_the_server_and_hold_from_its_first_moment() {
    let mut world = World::new(EngineKind::Memory);
    let user = world.user("user");
    world.set(&[format!("address {} read=100kB/s", user.address)]);
    user.reads();
    world.sim.run_for(Duration::from_secs(5));
    // What was pinned is gone with the server.
    user.stop();
    world.sim.run_for(Duration::from_secs(5));
    world.restart();
    let user = world.client_of(&user.env);
    user.reads();
    let moved = world.moved(&[&user]);
    assert_is_rate(moved[0], 100_000, "behind a restart");
}

/// Of a later program's, or nobody's.
#[test]
fn rows_that_cannot_be_read_bound_nobody_and_are_told() {
    let world = World::new(EngineKind::Memory);
    let user = world.user("user");
    let row = |key: &[u8]| [system::QUOTAS.0, key].concat();
    let good = quota(&format!("address {} read=100kB/s", user.address));
    world.write(|tr| {
        let value = good.change(Bounds::default()).value(0);
        tr.set(good.whom.key(), &value);
        tr.set(row(b""), &value);
        tr.set(row(b"*"), &value);
        tr.set(row(b"*\x00\x00x"), &value);
        tr.set(row(b"z\x00\x01x"), &value);
        tr.set(row(b"a\xff\xffx"), &value);
        tr.set(row(b"c\x00\x02\xff\xfe"), &value);
        tr.set(row(b"n\x00\x00"), &value);
        tr.set(row(b"*\x00\x00"), [&[2][..], &value[1..]].concat());
        tr.set(row(b"n\x00\x01t"), [&value[..], b"x"].concat());
        tr.set(row(b"n\x00\x01u"), "");
        // A rule that nobody can fulfil is one all the same.
        tr.set(row(b"c\x00\x06S.XX=1"), &value);
    });
    world.sim.run_for(Duration::from_secs(1));
    let status = world.status();
    assert_eq!(
        (&status["quotas"]["count"], &status["quotas"]["unreadable"]),
        (&2.into(), &10.into())
    );
    let other = world.user("other");
    [&user, &other].into_iter().for_each(User::reads);
    world.sim.run_for(Duration::from_secs(2));
    let moved = world.moved(&[&user, &other]);
    assert_is_rate(moved[0], 100_000, "whose row can be read");
    assert!(moved[1] > 10 * moved[0], "{moved:?}");
}

#[test]
fn what_waits_when_the_server_stops_is_answered_and_who_goes_is_forgotten() {
    let mut world = World::new(EngineKind::Memory);
    let [stays, goes] = ["stays", "goes"].map(|name| world.user(name));
    world.set(&["* read=1kB/s write=1kB/s".to_owned()]);
    let read = |user: &User| {
        let db = user.db.clone();
        async move { db.transact(async |tr| tr.get(b"k\x01").await).await }
    };
    for user in [&stays, &goes] {
        world.sim.run_until(read(user)).unwrap();
    }
    let [mut waits, mut forgotten] = [&stays, &goes].map(|user| Box::pin(read(user)));
    let second = Duration::from_secs(1);
    assert!(world.sim.run_until_within(second, &mut waits).is_none());
    assert!(world.sim.run_until_within(second, &mut forgotten).is_none());
    let whose = format!("* (address {})", goes.address);
    assert_eq!(world.budget(&whose)["read"]["waiting"], 1);
    world.sim.kill(&goes.env);
    drop((forgotten, goes));
    world.sim.run_for(second);
    assert_eq!(world.budget(&whose)["read"]["waiting"], 0);
    let server = world.server.take().unwrap();
    let ended = world.sim.run_until_within(Duration::from_secs(60), async {
        let stopped = world.place.spawn("stop", server.stop());
        (waits.await, stopped.await.unwrap_or_default())
    });
    let (read, ()) = ended.expect("what waits is answered before the server ends");
    assert_eq!(read.unwrap().map(|value| value.len()), Some(LARGE));
}
