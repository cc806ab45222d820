//! Two databases in a simulated world, a history of the first, and what the second must be.
//!
//! The history is kept by whoever writes, from what each transaction does, so it owes nothing to
//! what is tested. Databases can be put some way off, where answers to commits get lost: [`Lossy`].

use plinth::client::{MutationType, TransactionOption};
use plinth::{Builder, Database, EngineKind, KeySelector, Version};
use plinth_client::{ChangeCapture, Endpoint, ReadVersionRequest};
use plinth_dr::{Agent, Control, Ending, Sites, StartSettings, Status, start};
use plinth_env::Env;
use plinth_env::reply::{Reply, promise};
pub use plinth_env::simulated::Random;
use plinth_env::simulated::Simulation;
use plinth_env::sync::{First, race};
use plinth_types::{
    Bytes, Changes, ChangesRequest, CommitReply, CommitRequest, Error, KeyList, KeyRange, KeySpace,
    RangeRead, RangeResult, Result, atomic, marks, system,
};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub type Model = BTreeMap<Bytes, Bytes>;

pub async fn open(machine: &Env, dir: &str) -> Database {
    Builder::new(dir)
        .env(machine.clone())
        .engine(EngineKind::Memory)
        .open_async()
        .await
        .unwrap()
        .into_database()
}

/// The same database as the library below the facade knows it.
pub fn client(db: &Database) -> plinth_client::Database {
    plinth_client::Database::new(db.endpoint().clone())
}

/// Two databases on a machine, of which nobody follows the other yet.
pub struct Pair {
    pub machine: Env,
    pub first: Database,
    pub second: Database,
    /// The two, with nothing between.
    pub sites: Sites,
}

impl Pair {
    async fn open(machine: &Env) -> Self {
        let (first, second) = (open(machine, "/first").await, open(machine, "/second").await);
        let sites = Sites::new(client(&first), client(&second));
        Self { machine: machine.clone(), first, second, sites }
    }

    /// Has the second follow until it is whole.
    pub async fn follow(&self) {
        start(&self.sites, &StartSettings::default()).await.unwrap();
        run_until(&self.machine, &self.sites, async |status| status.whole_at.is_some()).await;
    }
}

/// Runs a test of two databases in a world of its own.
pub fn with_pair<T>(seed: u64, test: impl AsyncFnOnce(Pair) -> T) -> T {
    let simulation = Simulation::new(seed);
    let machine = simulation.process("node");
    simulation.run_until(async { test(Pair::open(&machine).await).await })
}

/// All rows that users wrote, whether the database is locked or not.
pub async fn rows_of(db: &plinth_client::Database) -> Model {
    let mut rows = Model::new();
    for (begin, end) in system::USERS {
        let mut reached = Bytes::from_static(begin);
        loop {
            let request = ReadVersionRequest { lock_aware: true, ..ReadVersionRequest::default() };
            let version = db.endpoint().read_version(request).await.unwrap().version;
            let read = RangeRead {
                begin: KeySelector::first_greater_or_equal(reached.clone()),
                end: KeySelector::first_greater_or_equal(Bytes::from_static(end)),
                limit: usize::MAX,
                target_bytes: 1 << 20,
                reverse: false,
            };
            let found = db.endpoint().get_range(version, KeySpace::System, &read).await.unwrap();
            let copied = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
            rows.extend(found.rows.key_values().map(|row| (copied(&row.key), copied(&row.value))));
            match found.rows.last().filter(|_| found.more) {
                Some((key, _)) => reached = plinth_types::key_after(key),
                None => break,
            }
        }
    }
    rows
}

/// A key, and its value from then on, if it has one.
type Change = (Bytes, Option<Bytes>);

/// What the first held after each of its commits: what each of them did to which key.
#[derive(Default)]
pub struct History {
    now: Model,
    commits: Vec<(Version, Vec<Change>)>,
}

impl History {
    pub fn at(&self, version: Version) -> Model {
        let mut model = Model::new();
        for (_, changes) in self.commits.iter().take_while(|(committed, _)| *committed <= version) {
            for (key, value) in changes.iter().cloned() {
                match value {
                    Some(value) => drop(model.insert(key, value)),
                    None => drop(model.remove(&key)),
                }
            }
        }
        model
    }

    pub fn newest(&self) -> Version {
        self.commits.last().map_or(0, |(version, _)| *version)
    }

    /// Commits a random transaction of sets, clears, atomic operations and versionstamps.
    pub async fn write(&mut self, db: &plinth_client::Database, random: &mut Random) {
        let (model, mut changes) = (&mut self.now, Vec::new());
        let mut change = |model: &mut Model, key: Bytes, value: Option<Bytes>| {
            match value.clone() {
                Some(value) => drop(model.insert(key.clone(), value)),
                None => drop(model.remove(&key)),
            }
            changes.push((key, value));
        };
        let tr = db.create_transaction();
        let mut stamped = Vec::new();
        let key_of = |number: usize| Bytes::from(format!("key{number:04}"));
        for _ in 0..=random.index(6) {
            let number = random.index(2000);
            let name = key_of(number);
            match random.index(10) {
                0 => {
                    let end = key_of(number + random.index(40));
                    if name < end {
                        tr.clear_range(&name, &end);
                        let gone: Vec<_> =
                            model.range(name..end).map(|(key, _)| key.clone()).collect();
                        gone.into_iter().for_each(|key| change(model, key, None));
                        // What a range is replaced by.
                        tr.set(key_of(number), "new");
                        change(model, key_of(number), Some("new".into()));
                    }
                }
                1 | 2 => {
                    let operand = [3, 0, 0, 1];
                    tr.add(&name, operand);
                    let sum = atomic::apply(
                        MutationType::Add,
                        model.get(&name).map(|value| &value[..]),
                        &operand,
                    );
                    change(model, name, Some(Bytes::copy_from_slice(&sum.unwrap())));
                }
                3 => {
                    let operand =
                        [b"stamp/"[..].to_vec(), vec![0; 10], name.to_vec(), vec![6, 0, 0, 0]]
                            .concat();
                    tr.atomic_op(&operand, b"x", MutationType::SetVersionstampedKey);
                    stamped.push(name);
                }
                _ => {
                    let value = vec![random.index(250) as u8; 1 + random.index(60)];
                    tr.set(&name, &value);
                    change(model, name, Some(value.into()));
                }
            }
        }
        let stamp = tr.versionstamp();
        match tr.commit().await {
            // Sides are changed, and this was never there.
            Err(error) if error == Error::database_locked() => return,
            committed => committed.unwrap(),
        }
        let Some(version) = tr.committed_version() else { return };
        let stamp = if stamped.is_empty() { None } else { Some(stamp.await.unwrap()) };
        for name in stamped {
            let stamp = stamp.as_ref().unwrap().as_bytes();
            change(model, [&b"stamp/"[..], stamp, &name].concat().into(), Some("x".into()));
        }
        self.commits.push((version, changes));
    }
}

/// Writes until it is told to stop.
pub struct Writer {
    pub history: Arc<Mutex<History>>,
    stop: Arc<AtomicBool>,
    /// It writes little while nobody follows.
    pub is_slow: Arc<AtomicBool>,
    task: plinth_env::Task,
}

impl Writer {
    pub fn start(env: &Env, db: &plinth_client::Database, history: History, seed: u64) -> Self {
        let (history, stop) = (Arc::new(Mutex::new(history)), Arc::new(AtomicBool::new(false)));
        let is_slow = Arc::new(AtomicBool::new(false));
        let slow = is_slow.clone();
        let (env, db, told, over) = (env.clone(), db.clone(), history.clone(), stop.clone());
        let task = env.clone().spawn("writer", async move {
            let mut random = Random::new(seed);
            while !over.load(Ordering::Relaxed) {
                let mut states = std::mem::take(&mut *told.lock().unwrap());
                states.write(&db, &mut random).await;
                *told.lock().unwrap() = states;
                let pause = if slow.load(Ordering::Relaxed) { 1000 } else { 1 };
                env.sleep(Duration::from_micros(random.index(6000) as u64 * pause)).await;
            }
        });
        Self { history, stop, is_slow, task }
    }

    pub async fn stop(self) -> History {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
        std::mem::take(&mut *self.history.lock().unwrap())
    }

    /// Long enough for the beat of a killed agent to count as dead.
    pub async fn rest(&self, env: &Env) {
        self.is_slow.store(true, Ordering::Relaxed);
        env.sleep(Duration::from_secs(11)).await;
        self.is_slow.store(false, Ordering::Relaxed);
    }

    /// A copy of the history that has everything up to this version.
    pub async fn model_at(&self, env: &Env, version: Version) -> Model {
        loop {
            {
                let history = self.history.lock().unwrap();
                // It is away while a transaction is under way.
                if !history.commits.is_empty() {
                    return history.at(version);
                }
            }
            env.sleep(Duration::from_micros(100)).await;
        }
    }
}

/// Runs an agent for a while, and kills it: nothing of it runs any more, but what was sent arrives.
pub async fn run_for(env: &Env, sites: &Sites, time: Duration) -> Option<Result<Ending>> {
    let agent = Agent::new(sites.clone(), Control::default());
    match race(agent.run(), env.sleep(time)).await {
        First::Left(ended) => Some(ended),
        First::Right(()) => None,
    }
}

/// Runs an agent until something is so.
pub async fn run_until(env: &Env, sites: &Sites, is_so: impl AsyncFn(&Status) -> bool) {
    let agent = Agent::new(sites.clone(), Control::default());
    let watch = async {
        for _ in 0..20_000 {
            let status = plinth_dr::status(Some(&sites.from), &sites.to).await.unwrap();
            if let Some(status) = &status
                && is_so(status).await
            {
                return;
            }
            env.sleep(Duration::from_millis(10)).await;
        }
        panic!("it never came to that");
    };
    match race(agent.run(), watch).await {
        First::Left(ended) => panic!("the agent ended: {ended:?}"),
        First::Right(()) => {}
    }
}

/// Whether ordinary transactions are told that the database is locked.
pub async fn is_locked(db: &plinth_client::Database) -> bool {
    let tr = db.create_transaction();
    match tr.get("key").await {
        Err(error) => {
            assert_eq!(error, Error::database_locked());
            true
        }
        Ok(_) => false,
    }
}

/// A value as a transaction reads it that is aware of locks.
pub async fn read_aware(db: &plinth_client::Database, key: impl AsRef<[u8]>) -> Option<Bytes> {
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::ReadSystemKeys).unwrap();
    tr.set_option(TransactionOption::LockAware).unwrap();
    tr.get(key).await.unwrap()
}

/// A database some way off, whose commits lose their answers now and then: some were made, some
/// weren't, some will be.
pub struct Lossy {
    pub inner: Arc<dyn Endpoint>,
    pub random: Mutex<Random>,
    /// One of so many. Of none: it never answers at all.
    pub one_of: usize,
    pub held: Held,
    /// Its streams, where they are no rows.
    pub capture: Option<Arc<dyn ChangeCapture>>,
}

/// Commits that wait on their way to a database until they are let go, while everything else goes
/// on: a process that stands still.
#[derive(Clone, Default)]
pub struct Held {
    /// Those that write this key.
    key: Arc<Mutex<Option<&'static [u8]>>>,
    /// How many have waited.
    pub count: Arc<AtomicUsize>,
}

impl Held {
    pub fn hold(&self, key: &'static [u8]) {
        *self.key.lock().unwrap() = Some(key);
    }

    pub fn let_go(&self) {
        *self.key.lock().unwrap() = None;
    }

    /// Waits until so many have waited.
    pub async fn until(&self, env: &Env, count: usize) {
        while self.count.load(Ordering::Relaxed) < count {
            env.sleep(Duration::from_millis(1)).await;
        }
    }

    async fn wait(&self, env: &Env, request: &CommitRequest) {
        let writes = |key: &[u8]| request.mutations.iter().any(|mutation| mutation.param1 == key);
        let is_held = || self.key.lock().unwrap().is_some_and(writes);
        if is_held() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        while is_held() {
            env.sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Endpoint for Lossy {
    fn env(&self) -> &Env {
        self.inner.env()
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<plinth_client::ReadVersionReply> {
        if self.one_of > 0 {
            return self.inner.read_version(request);
        }
        let (promise, reply) = promise();
        let env = self.inner.env().clone();
        drop(env.clone().spawn("silent", async move {
            env.sleep(Duration::from_secs(3600)).await;
            drop(promise);
        }));
        reply
    }

    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        self.inner.get_many(version, space, keys)
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        self.inner.get_key(version, space, selector)
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        self.inner.get_range(version, space, read)
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        let dice = {
            let mut random = self.random.lock().unwrap();
            if random.index(self.one_of) == 0 {
                Some((random.index(3), random.index(300)))
            } else {
                None
            }
        };
        let (inner, env) = (self.inner.clone(), self.inner.env().clone());
        let way = Duration::from_micros(self.random.lock().unwrap().index(4000) as u64);
        let (promise, reply) = promise();
        let held = self.held.clone();
        drop(env.clone().spawn("lossy", async move {
            env.sleep(way).await;
            held.wait(&env, &request).await;
            let Some((kind, delay)) = dice else {
                return promise.send(inner.commit(request).await);
            };
            match kind {
                0 => drop(inner.commit(request).await),
                1 => {}
                _ => {
                    drop(env.clone().spawn("late", async move {
                        env.sleep(Duration::from_millis(delay as u64)).await;
                        drop(inner.commit(request).await);
                    }));
                }
            }
            promise.send(Err(Error::commit_unknown_result()));
        }));
        reply
    }

    fn watch(&self, key: Bytes, value: Option<Bytes>, version: Version) -> Reply<Version> {
        self.inner.watch(key, value, version)
    }

    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        self.inner.range_size(range)
    }

    fn split_points(&self, range: KeyRange, _: i64) -> Reply<Vec<Bytes>> {
        // Small pieces, so that a small database has several rounds.
        let points = (0..40).map(|number| Bytes::from(format!("key{:04}", 50 * number)));
        Reply::ready(Ok(points.filter(|point| range.contains(point)).collect()))
    }

    fn addresses_for_key(&self, key: &[u8]) -> Reply<Vec<String>> {
        self.inner.addresses_for_key(key)
    }

    fn describe(&self) -> plinth_client::Description {
        self.inner.describe()
    }

    fn status_json(&self) -> Reply<String> {
        self.inner.status_json()
    }

    fn read_changes(&self, request: ChangesRequest) -> Reply<Changes> {
        match self.capture {
            Some(_) => Reply::ready(Err(Error::unsupported_operation())),
            None => self.inner.read_changes(request),
        }
    }

    fn change_capture(&self) -> Option<&dyn ChangeCapture> {
        self.capture.as_deref()
    }
}

/// The database with lost answers, and range reads in small pieces.
pub fn lossy(db: &Database, seed: u64, one_of: usize) -> plinth_client::Database {
    lossy_with(db, seed, one_of, None)
}

/// The same, with streams of its own.
pub fn lossy_with(
    db: &Database,
    seed: u64,
    one_of: usize,
    capture: Option<Arc<dyn ChangeCapture>>,
) -> plinth_client::Database {
    let (inner, random, held) =
        (db.endpoint().clone(), Mutex::new(Random::new(seed)), Held::default());
    plinth_client::Database::new(Arc::new(Lossy { inner, random, one_of, held, capture }))
}

/// The database as a process sees it that can be made to stand still.
pub fn held(db: &Database) -> (plinth_client::Database, Held) {
    let (random, held) = (Mutex::new(Random::new(1)), Held::default());
    let (inner, one_of) = (db.endpoint().clone(), usize::MAX);
    let endpoint = Lossy { inner, random, one_of, held: held.clone(), capture: None };
    (plinth_client::Database::new(Arc::new(endpoint)), held)
}

/// Locks a database as somebody else would, or takes that lock away.
pub async fn lock_as_another(db: &plinth_client::Database, is_locked: bool) {
    let tr = db.create_transaction();
    tr.set_option(plinth::client::TransactionOption::AccessSystemKeys).unwrap();
    tr.set_option(plinth::client::TransactionOption::LockAware).unwrap();
    match is_locked {
        true => tr.set(system::DATABASE_LOCKED, b"0123456789abcdefghijklmnop"),
        false => tr.clear(system::DATABASE_LOCKED),
    }
    tr.commit().await.unwrap();
}

/// The test is tested: one of so many seeds notices a mistake that is planted.
pub fn is_noticed<T>(
    bug: &'static str,
    seeds: u64,
    run: impl Fn(u64) -> std::result::Result<T, String>,
) {
    let noticed = (0..seeds).find(|seed| {
        marks::plant(Some(bug));
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| run(*seed)));
        marks::plant(None);
        !matches!(result, Ok(Ok(_)))
    });
    println!("{bug}: noticed by seed {noticed:?}");
    assert!(noticed.is_some(), "{bug} was not noticed by {seeds} seeds");
}
