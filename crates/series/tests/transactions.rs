//! Points that transactions write: committed with the transaction's keys or not at all, and there
//! once, whoever owns the series and whatever fails.
//!
//! Against a map: transactions, the owner's own appends, deletes, and openings without a farewell.
//! And in simulation with crashes, where each transaction writes a key beside its points, so that
//! keys and points say the same afterwards.

use plinth::{Builder, Database, Local, tuple};
use plinth_env::simulated::Simulation;
use plinth_env::{Env, block_on};
use plinth_series::workload::Random;
use plinth_series::{
    Direction, Error, Point, Result, Series, SeriesLayer, SeriesStore, Settings, Value,
};
use plinth_types::system::SERIES_PREFIX;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NAMES: [&str; 3] = ["load host=a", "load host=b os=x", "!odd host=a"];
type Points = BTreeMap<i64, Value>;

fn quiet() -> Settings {
    Settings { commit_every: None, ..Settings::default() }
}

fn all(series: &Series) -> Vec<Point> {
    block_on(async { series.scan(.., Direction::Forward).await?.collect().await }).unwrap()
}

/// What a rival writes.
fn write(db: &Database, key: &str, value: &[u8]) {
    db.transact_blocking(|tr| {
        tr.set(key, value);
        Ok(())
    })
    .unwrap();
}

fn listed(points: &Points) -> Vec<Point> {
    points.iter().map(|(time, value)| Point { time: *time, value: *value }).collect()
}

struct Model {
    seed: u64,
    random: Random,
    db: Database,
    settings: Settings,
    layer: SeriesLayer,
    store: SeriesStore,
    /// What the owner has, what of that a crash leaves, and what waits in the inbox.
    now: Vec<Points>,
    durable: Vec<Points>,
    inbox: Vec<(usize, Point)>,
    time: i64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let settings = Settings {
            leaf_points: 1 + random.below(40) as usize,
            tail_bytes: [200, 1 << 20][random.below(2) as usize],
            open_points: [2000, 1 << 20][random.below(2) as usize],
            ..quiet()
        };
        let db = Local::in_memory().unwrap().into_database();
        let layer = SeriesLayer::with_settings(&db, settings.clone());
        let store = block_on(layer.open()).unwrap();
        let now = vec![Points::new(); NAMES.len()];
        Self {
            seed,
            random,
            db,
            settings,
            layer,
            store,
            durable: now.clone(),
            now,
            inbox: Vec::new(),
            time: 0,
        }
    }

    fn point(&mut self) -> (usize, Point) {
        self.time += 1 + self.random.below(4) as i64;
        let late = if self.random.below(20) == 0 { self.random.below(2000) as i64 } else { 0 };
        let value = Value::Integer(self.random.next() as i64);
        (self.random.below(NAMES.len() as u64) as usize, Point { time: self.time - late, value })
    }

    /// A transaction that commits, conflicts, or is forgotten.
    fn transact(&mut self) {
        let count = [3, 30, 300][self.random.below(3) as usize];
        let points: Vec<_> = (0..self.random.below(count)).map(|_| self.point()).collect();
        let fate = self.random.below(4);
        let tr = self.db.create_transaction();
        block_on(tr.get("hot")).unwrap();
        let named = |points: &[(usize, Point)]| -> Vec<(&str, Point)> {
            points.iter().map(|(which, point)| (NAMES[*which], *point)).collect()
        };
        // In one call or in several: the order is that of the calls.
        let (one, two) = points.split_at(points.len() / 3);
        self.layer.append_all(&tr, named(one)).wait().unwrap();
        self.layer.append_all(&tr, named(two)).wait().unwrap();
        tr.set("hot", "written");
        if fate == 0 {
            write(&self.db, "hot", b"by another");
        }
        if fate == 1 {
            return;
        }
        assert_eq!(tr.commit().wait().is_ok(), fate != 0, "seed {}", self.seed);
        if fate != 0 {
            self.inbox.extend(points);
        }
    }

    /// What reads, deletes and openings do first.
    fn taken_in(&mut self) {
        if !self.inbox.is_empty() {
            for (which, point) in self.inbox.drain(..) {
                self.now[which].insert(point.time, point.value);
            }
            self.durable.clone_from(&self.now);
        }
    }

    fn append(&mut self) {
        for _ in 0..self.random.below(30) {
            let (which, point) = self.point();
            let series = block_on(self.store.series(NAMES[which])).unwrap();
            match series.append(point.time, point.value) {
                Ok(()) => drop(self.now[which].insert(point.time, point.value)),
                Err(Error::Behind) => self.sync(),
                Err(error) => panic!("seed {}: {error}", self.seed),
            }
        }
    }

    fn sync(&mut self) {
        block_on(self.store.sync()).unwrap();
        self.durable.clone_from(&self.now);
    }

    fn delete(&mut self) {
        let which = self.random.below(NAMES.len() as u64) as usize;
        let first = self.time - self.random.below(1000) as i64;
        let range = first..first + self.random.below(800) as i64;
        let series = block_on(self.store.series(NAMES[which])).unwrap();
        block_on(series.delete_range(range.clone())).unwrap();
        self.taken_in();
        self.now[which].retain(|time, _| !range.contains(time));
        self.durable.clone_from(&self.now);
    }

    /// The owner is gone, and another begins.
    fn reopen(&mut self) {
        self.store = block_on(self.layer.open()).unwrap();
        self.now.clone_from(&self.durable);
        self.taken_in();
    }

    fn read(&mut self) {
        self.taken_in();
        for (name, points) in NAMES.iter().zip(&self.now) {
            match block_on(self.store.existing(name)).unwrap() {
                Some(series) => assert_eq!(all(&series), listed(points), "seed {}", self.seed),
                None => assert!(points.is_empty(), "seed {}: {name} is not there", self.seed),
            }
        }
    }

    /// Somebody looks who owns nothing: all that a crash would leave, and the inbox over it.
    fn view(&mut self) {
        let mut expected = self.durable.clone();
        for (which, point) in &self.inbox {
            expected[*which].insert(point.time, point.value);
        }
        let view = block_on(SeriesStore::view(&self.db, self.settings.clone())).unwrap();
        for (name, points) in NAMES.iter().zip(&expected) {
            let found = block_on(view.existing(name)).unwrap().map(|series| all(&series));
            assert_eq!(
                found.unwrap_or_default(),
                listed(points),
                "seed {}: {name}, as seen",
                self.seed
            );
        }
    }
}

#[test]
fn reads_agree_with_a_map_whoever_wrote() {
    for seed in 0..60 {
        let mut model = Model::new(seed);
        for _ in 0..120 {
            match model.random.below(20) {
                0 => model.reopen(),
                1 => model.delete(),
                2..4 => model.sync(),
                4..7 => model.read(),
                7..10 => model.view(),
                10..14 => model.append(),
                _ => model.transact(),
            }
        }
        model.view();
        model.read();
    }
}

#[test]
fn a_retried_body_writes_its_points_once_and_with_its_last_values() {
    let db = Local::in_memory().unwrap().into_database();
    let layer = SeriesLayer::new(&db);
    let mut runs = 0;
    db.try_transact_blocking(|tr| {
        runs += 1;
        let seen = tr.get("stock").wait()?.map_or(0, |value| value[0]);
        if runs < 3 {
            write(&db, "stock", &[10 + runs as u8]);
        }
        tr.set("stock", [seen + 1]);
        layer.append(tr, "stock shop=1", runs, i64::from(seen)).wait()?;
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(runs, 3);
    let view = block_on(layer.view()).unwrap();
    let stock = block_on(view.existing("stock shop=1")).unwrap().unwrap();
    assert_eq!(all(&stock), [Point { time: 3, value: Value::Integer(12) }]);
}

#[test]
fn who_only_looks_writes_nothing_and_takes_nothing_away() {
    let db = Local::in_memory().unwrap().into_database();
    let layer = SeriesLayer::with_settings(&db, quiet());
    let owner = block_on(layer.open()).unwrap();
    let mine = block_on(owner.series("m a=1")).unwrap();
    mine.append(1, 1).unwrap();
    block_on(owner.sync()).unwrap();
    let view = block_on(layer.view()).unwrap();
    let seen = block_on(view.existing("m a=1")).unwrap().unwrap();
    assert!(matches!(seen.append(2, 2), Err(Error::ReadOnly)));
    assert!(matches!(block_on(view.sync()), Err(Error::ReadOnly)));
    assert!(matches!(block_on(view.series("m a=2")), Err(Error::ReadOnly)));
    assert!(matches!(block_on(seen.delete_range(..)), Err(Error::ReadOnly)));
    assert!(matches!(block_on(view.delete(&seen)), Err(Error::ReadOnly)));
    assert!(block_on(view.existing("m a=2")).unwrap().is_none());
    mine.append(2, 2).unwrap();
    block_on(owner.sync()).unwrap();
    assert_eq!(all(&mine).len(), 2);
}

#[test]
fn who_only_looks_finds_series_that_nobody_has_taken_in() {
    let db = Local::in_memory().unwrap().into_database();
    let layer = SeriesLayer::with_settings(&db, quiet());
    let owner = block_on(layer.open()).unwrap();
    block_on(owner.series("m a=0 b=1")).unwrap();
    let put = |names: &[&str]| {
        db.try_transact_blocking(|tr| {
            let points = names.iter().map(|name| (*name, Point { time: 1, value: 1.0.into() }));
            layer.append_all(tr, points).wait()
        })
        .unwrap();
    };
    put(&["m a=0 b=1", "m a=1 b=1", "m a=2 b=2", "n a=1"]);
    let view = block_on(layer.view()).unwrap();
    let found = |view: &SeriesStore, metric: Option<&str>, tags: &[(String, Vec<String>)]| {
        let (series, next) = block_on(view.browse(metric, tags, 0)).unwrap();
        assert_eq!(next, None);
        let mut names: Vec<_> = series.iter().map(|series| series.name().to_string()).collect();
        names.sort_unstable();
        assert!(series.iter().all(|series| block_on(series.aggregate(..)).unwrap().is_some()));
        names
    };
    let all = ["m a=0 b=1", "m a=1 b=1", "m a=2 b=2", "n a=1"];
    let of_one = [("b".to_owned(), vec!["1".to_owned(), "3".to_owned()])];
    for _ in 0..2 {
        assert_eq!(found(&view, None, &[]), all);
        assert_eq!(found(&view, Some("m"), &[]), all[..3]);
        assert_eq!(found(&view, Some("m"), &of_one), all[..2]);
        assert_eq!(block_on(view.find("n", &[])).unwrap().len(), 1);
        // Once they have numbers, they are found by those, and once.
        block_on(owner.take_in()).unwrap();
    }
}

#[test]
fn more_points_than_a_row_holds_keep_their_order() {
    let db = Local::in_memory().unwrap().into_database();
    let layer = SeriesLayer::with_settings(&db, quiet());
    let store = block_on(layer.open()).unwrap();
    let names: Vec<String> = (0..700).map(|n| format!("m a={n:04}{}", "x".repeat(100))).collect();
    let value = |n: usize| Point { time: (n % 5000) as i64, value: Value::Integer(n as i64) };
    db.try_transact_blocking(|tr| {
        layer.append_all(tr, (0..20_000).map(|n| (names[n % 5000 % 700].as_str(), value(n)))).wait()
    })
    .unwrap();
    let mut found = 0;
    for (which, name) in names.iter().enumerate() {
        for point in all(&block_on(store.existing(name)).unwrap().unwrap()) {
            assert_eq!(
                point.value,
                Value::Integer(15_000 + point.time),
                "the last of a time counts"
            );
            assert_eq!(point.time as usize % 700, which);
            found += 1;
        }
    }
    assert_eq!(found, 5000);
    assert!(matches!(
        layer.append(&db.create_transaction(), "m a", 0, 0).wait(),
        Err(Error::Name { .. })
    ));
}

/// An owner that nobody asks for anything takes in what transactions write.
#[test]
fn what_transactions_write_is_taken_in_without_being_asked() {
    let simulation = Simulation::new(1);
    let env = simulation.process("node");
    simulation.run_until(async {
        let db = Builder::new("/db").env(env.clone()).open_async().await.unwrap().into_database();
        let layer = SeriesLayer::new(&db);
        let store = layer.open().await.unwrap();
        db.try_transact(|tr| {
            let layer = layer.clone();
            async move { layer.append(&tr, "m a=1", 5, 1.5).await }
        })
        .await
        .unwrap();
        while store.stats().series == 0 {
            env.sleep(Duration::from_millis(100)).await;
        }
    });
}

/// How many bytes the inbox says that it has.
async fn inbox_size(db: &Database, settings: &Settings) -> Result<i64> {
    let prefix = settings.prefix.as_deref().unwrap_or(SERIES_PREFIX);
    let key = [prefix, &tuple::pack(&(12,))].concat();
    let key = &key;
    let db = db.clone().with_system_keys();
    let row = db.transact(|tr| async move { tr.get(key).await }).await?;
    Ok(row.map_or(0, |row| i64::from_le_bytes(row[..].try_into().unwrap())))
}

/// Nobody has the series for a while: writers fill the inbox, wait, and lose nothing when somebody
/// comes.
#[test]
fn a_full_inbox_makes_writers_wait_for_an_owner() {
    const POINTS: i64 = 500;
    let simulation = Simulation::new(1);
    let env = simulation.process("node");
    simulation.run_until(async {
        let db = Builder::new("/db").env(env.clone()).open_async().await.unwrap().into_database();
        let settings = Settings { inbox_bytes: 3000, ..Settings::default() };
        let layer = SeriesLayer::with_settings(&db, settings.clone());
        let (theirs, writer) = (db.clone(), layer.clone());
        let writing = env.spawn("writer", async move {
            for time in 0..POINTS {
                let (layer, db) = (&writer, &theirs);
                let body = |tr| async move { layer.append(&tr, "m a=1", time, time).await };
                db.try_transact(body).await.unwrap();
            }
        });
        env.sleep(Duration::from_secs(60)).await;
        assert!(!writing.is_finished(), "all of it found room");
        let size = inbox_size(&db, &settings).await.unwrap();
        assert!((3000..3200).contains(&size), "{size} bytes wait");
        // Who does not want to wait is told, with what to do.
        let tr = db.create_transaction();
        let error = layer.append(&tr, "m a=1", 0, 0).await.unwrap_err();
        let Error::Database(error) = error else { panic!("{error}") };
        assert_eq!(error, plinth::Error::process_behind());
        assert!(error.to_string().contains("their owner has to take them in"), "{error}");
        let store = layer.open().await.unwrap();
        writing.await.unwrap();
        let series = store.series("m a=1").await.unwrap();
        let found = series.scan(.., Direction::Forward).await.unwrap().collect().await.unwrap();
        assert!(found.iter().map(|point| point.time).eq(0..POINTS));
        assert_eq!(inbox_size(&db, &settings).await.unwrap(), 0);
    });
}

/// Transactions that were acknowledged.
type Acknowledged = Arc<Mutex<BTreeSet<i64>>>;

/// Transactions, each with a key and points of all series under its number: some run again because
/// of a rival, some are given up.
async fn transact(
    env: Env,
    db: Database,
    mut random: Random,
    first: i64,
    acknowledged: Acknowledged,
) -> Result<()> {
    let layer = SeriesLayer::new(&db);
    for number in first.. {
        let points = 1 + random.below(40) as i64;
        let (mut has_rival, is_given_up) = (random.below(5) == 0, random.below(5) == 0);
        let tr = db.create_transaction();
        loop {
            tr.get("hot").await?;
            tr.set(tuple::pack(&("done", number)), tuple::pack(&points));
            for name in NAMES {
                let point =
                    |at| (name, Point { time: number * 1000 + at, value: Value::Integer(number) });
                layer.append_all(&tr, (0..points).map(point)).await?;
            }
            if std::mem::take(&mut has_rival) {
                db.transact(|tr| async move {
                    tr.set("hot", "written");
                    Ok(())
                })
                .await?;
            }
            if is_given_up {
                break;
            }
            match tr.commit().await {
                Ok(()) => {
                    acknowledged.lock().unwrap().insert(number);
                    break;
                }
                Err(error) => tr.on_error(error).await?,
            }
        }
        env.sleep(Duration::from_micros(random.below(3000))).await;
    }
    Ok(())
}

/// Owners that come and go while transactions write, and append and read themselves.
async fn own(env: Env, db: Database, settings: Settings, mut random: Random) -> Result<()> {
    let layer = SeriesLayer::with_settings(&db, settings);
    loop {
        let store = layer.open().await?;
        for _ in 0..random.below(6) {
            match random.below(3) {
                0 => env.sleep(Duration::from_micros(random.below(400_000))).await,
                1 => store.sync().await?,
                _ => drop(store.series(NAMES[0]).await?.aggregate(..).await?),
            }
        }
    }
}

/// Every transaction is there with its key and all of its points, each once, or not at all.
async fn check(
    db: &Database,
    store: &SeriesStore,
    acknowledged: &Acknowledged,
    seed: u64,
) -> Result<i64> {
    let rows =
        db.transact(|tr| async move { tr.range(tuple::range(&("done",))).collect().await }).await?;
    let mut expected = BTreeMap::new();
    for row in rows {
        let (_, number): (String, i64) = tuple::unpack(&row.key)?;
        expected.insert(number, tuple::unpack::<i64>(&row.value)?);
    }
    for number in acknowledged.lock().unwrap().iter() {
        assert!(expected.contains_key(number), "seed {seed}: transaction {number} is lost");
    }
    let points = expected.iter().flat_map(|(number, points)| {
        (0..*points)
            .map(move |at| Point { time: number * 1000 + at, value: Value::Integer(*number) })
    });
    let points: Vec<_> = points.collect();
    for name in NAMES {
        let series = store.existing(name).await?;
        let found = match series {
            Some(series) => series.scan(.., Direction::Forward).await?.collect().await?,
            None => Vec::new(),
        };
        assert_eq!(found, points, "seed {seed}: {name}");
    }
    Ok(expected.keys().next_back().copied().unwrap_or(0) + 1)
}

#[test]
fn keys_and_points_of_a_transaction_survive_a_crash_together() {
    let mut transactions = 0;
    for seed in 0..30 {
        let simulation = Simulation::new(seed);
        let mut random = Random::new(seed);
        let settings = Settings {
            leaf_points: 1 + random.below(60) as usize,
            tail_bytes: [300, 1 << 20][random.below(2) as usize],
            ..Settings::default()
        };
        let mut machine = simulation.process("node");
        let acknowledged = Acknowledged::default();
        let mut next = 0;
        for _ in 0..4 {
            let (env, settings_now, done) =
                (machine.clone(), settings.clone(), acknowledged.clone());
            let (one, two) = (Random::new(random.next()), Random::new(random.next()));
            let task = machine.spawn("application", async move {
                let db = Builder::new("/db")
                    .env(env.clone())
                    .open_async()
                    .await
                    .unwrap()
                    .into_database();
                let owning = own(env.clone(), db.clone(), settings_now, one);
                drop(env.spawn("owner", async move { panic!("seed {seed}: {:?}", owning.await) }));
                let ended = transact(env, db, two, next, done).await;
                panic!("seed {seed}: the writer ended: {ended:?}");
            });
            simulation.run_for(Duration::from_millis(20 + random.below(1500)));
            simulation.crash(&machine);
            drop(task);
            machine = simulation.restart(&machine);
            let checked = async {
                let db =
                    Builder::new("/db").env(machine.clone()).open_async().await?.into_database();
                let view = SeriesStore::view(&db, settings.clone()).await?;
                check(&db, &view, &acknowledged, seed).await?;
                let store = SeriesStore::open_with(&db, settings.clone()).await?;
                let next = check(&db, &store, &acknowledged, seed).await?;
                store.check_invariants().await?;
                assert_eq!(
                    inbox_size(&db, &settings).await?,
                    0,
                    "seed {seed}: nothing waits, and its size"
                );
                Ok::<_, Error>(next)
            };
            next = simulation
                .run_until(checked)
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            simulation.crash(&machine);
            machine = simulation.restart(&machine);
        }
        transactions += acknowledged.lock().unwrap().len();
    }
    assert!(transactions > 5000, "{transactions} transactions are too few to say anything");
}
