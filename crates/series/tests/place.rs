//! Series have a place of their own among the system's keys. They lay among users' keys once, where
//! one `set` kept a server from starting, and `clearrange "" \xff` ended ingestion: what users do
//! now touches no series. What lies in the former place is moved, whole and once, whoever is killed
//! when; what is written there afterwards is the user's.

use plinth::{Builder, Database, Local, RangeOptions};
use plinth_env::simulated::Simulation;
use plinth_env::{Env, block_on};
use plinth_series::workload::Random;
use plinth_series::{
    Candidate, Claim, Direction, Error, Look, Result, SeriesLayer, SeriesStore, Settings, Value,
};
use plinth_types::system::{SERIES_LAYER_PREFIX, SERIES_PREFIX};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NAMES: [&str; 4] = ["m a=1", "m a=2", "n b=1", "n b=2"];

/// As series were kept before they had a place.
fn former() -> Settings {
    Settings { prefix: Some(SERIES_LAYER_PREFIX.to_vec()), ..Settings::default() }
}

/// Points of each series, by name and time.
type Points = BTreeMap<(String, i64), i64>;

async fn all(store: &SeriesStore) -> Result<Points> {
    let mut points = Points::new();
    for name in NAMES {
        let Some(series) = store.existing(name).await? else { continue };
        for point in series.scan(.., Direction::Forward).await?.collect().await? {
            let Value::Integer(value) = point.value else { panic!("{point:?}") };
            let before = points.insert((name.to_owned(), point.time), value);
            assert_eq!(before, None, "{name} has {} twice", point.time);
        }
    }
    Ok(points)
}

/// Appends points to all series, some of them late, and some through the inbox.
async fn fill(
    db: &Database,
    settings: &Settings,
    (from, to): (i64, i64),
    points: &mut Points,
) -> Result<SeriesStore> {
    let settings = Settings { leaf_points: 16, ..settings.clone() };
    let store = SeriesStore::open_with(db, settings.clone()).await?;
    for (number, series) in store.all_series(&NAMES).await?.iter().enumerate() {
        for time in from..to {
            let at = if time % 7 == 0 { time - 100 * (to - from) } else { time };
            series.append(at, time + number as i64)?;
            points.insert((NAMES[number].to_owned(), at), time + number as i64);
        }
    }
    store.sync().await?;
    store.keep(KEPT, &kept()).await?;
    post(db, &settings, to, points).await?;
    Ok(store)
}

const KEPT: &str = "rules/alerts";

/// What is kept beside the series: more than is moved at once.
fn kept() -> Vec<u8> {
    (0..3_u32 << 19).map(|at| (at / 1000) as u8).collect()
}

/// A point in the inbox.
async fn post(db: &Database, settings: &Settings, time: i64, points: &mut Points) -> Result<()> {
    let layer = SeriesLayer::with_settings(db, settings.clone());
    let tr = db.create_transaction();
    layer.append(&tr, NAMES[0], time, -time).await?;
    tr.commit().await?;
    points.insert((NAMES[0].to_owned(), time), -time);
    Ok(())
}

/// Rows whose keys begin with a prefix.
async fn rows(db: &Database, prefix: &[u8]) -> usize {
    let db = db.clone().with_system_keys();
    let range = &RangeOptions::prefix(prefix);
    db.transact(|tr| async move { tr.range(range.clone()).collect().await }).await.unwrap().len()
}

async fn set(db: &Database, key: Vec<u8>, value: &[u8]) {
    let key = &key;
    db.transact(|tr| async move {
        tr.set(key, value);
        Ok(())
    })
    .await
    .unwrap();
}

#[test]
fn what_users_write_and_clear_touches_no_series() {
    block_on(async {
        let db = Local::in_memory().unwrap().into_database();
        let mut points = Points::new();
        let store = fill(&db, &Settings::default(), (0, 50), &mut points).await.unwrap();
        let there = rows(&db, SERIES_PREFIX).await;
        assert_eq!(rows(&db, b"").await, 0, "nothing lies among users' keys");
        // What kept a server from starting, and damage of every kind of row.
        set(&db, [SERIES_LAYER_PREFIX, b"\x14"].concat(), b"\x09").await;
        for kind in 1..=17 {
            for rest in [&b""[..], b"\x15\x01", b"\x02m\0", &[0xff; 9]] {
                let key = [SERIES_LAYER_PREFIX, &[0x15, kind], rest].concat();
                set(&db, key, b"\x02").await;
            }
        }
        // All of users' keys, as FoundationDB's programs clear them.
        db.transact(|tr| async move {
            tr.clear_range(b"", b"\xff");
            (0..=254_u8).for_each(|byte| tr.set([byte], "mine"));
            Ok(())
        })
        .await
        .unwrap();
        let beyond = db.create_transaction();
        beyond.clear_range(b"", b"\xff\xff");
        assert_eq!(beyond.commit().await.unwrap_err().code(), 2004, "needs access to system keys");
        assert!(store.failure().is_none());
        store.series(NAMES[0]).await.unwrap().append(1000, 7).unwrap();
        store.sync().await.unwrap();
        points.insert((NAMES[0].to_owned(), 1000), 7);
        assert_eq!(all(&store).await.unwrap(), points);
        drop(store);
        let store = SeriesStore::open(&db).await.unwrap();
        assert_eq!(all(&store).await.unwrap(), points);
        assert!(rows(&db, SERIES_PREFIX).await >= there && rows(&db, b"").await == 255);
    });
}

/// Whoever writes points beside keys gets no right to write anything else.
#[test]
fn a_transaction_with_points_reaches_their_place_alone() {
    block_on(async {
        let db = Local::in_memory().unwrap().into_database();
        for key in [&b"\xff\x02/plinth/dr/x"[..], b"\xff/dbLocked", b"\xff\x02/plinth/series"] {
            let tr = db.create_transaction();
            SeriesLayer::new(&db).append(&tr, NAMES[0], 1, 1).await.unwrap();
            tr.set(key, "");
            assert_eq!(tr.commit().await.unwrap_err().code(), 2004, "{key:?}");
            let tr = db.create_transaction();
            SeriesLayer::new(&db).append(&tr, NAMES[0], 1, 1).await.unwrap();
            assert_eq!(tr.get(key).await.unwrap_err().code(), 2004, "{key:?}");
            let tr = db.create_transaction();
            SeriesLayer::new(&db).append(&tr, NAMES[0], 1, 1).await.unwrap();
            tr.clear_range(b"", b"\xff\xff");
            assert_eq!(tr.commit().await.unwrap_err().code(), 2004);
        }
        assert_eq!(rows(&db, b"\xff\x02/plinth/").await, 0);
    });
}

#[test]
fn a_former_place_is_moved_once_and_is_the_users_afterwards() {
    block_on(async {
        let db = Local::in_memory().unwrap().into_database();
        let mut points = Points::new();
        drop(fill(&db, &former(), (0, 300), &mut points).await.unwrap());
        let before = rows(&db, SERIES_LAYER_PREFIX).await;
        let view = SeriesStore::view(&db, Settings::default()).await.unwrap();
        assert_eq!(all(&view).await.unwrap(), points, "seen where it is");
        // Somebody with a newer program has written before anybody opened.
        post(&db, &Settings::default(), 999, &mut points).await.unwrap();
        let view = SeriesStore::view(&db, Settings::default()).await.unwrap();
        assert_eq!(all(&view).await.unwrap(), points, "and what was posted to the place");
        let store = SeriesStore::open(&db).await.unwrap();
        assert_eq!(all(&store).await.unwrap(), points);
        assert_eq!(rows(&db, b"").await, 0, "{before} rows were there");
        let again = fill(&db, &Settings::default(), (2000, 2050), &mut points).await.unwrap();
        // What is written there now is a user's, whatever it looks like.
        let mut users = Points::new();
        drop(fill(&db, &former(), (5000, 5010), &mut users).await.unwrap());
        let theirs = rows(&db, SERIES_LAYER_PREFIX).await;
        assert!(theirs > 0);
        drop(again);
        let store = SeriesStore::open(&db).await.unwrap();
        assert_eq!(all(&store).await.unwrap(), points);
        assert_eq!(rows(&db, SERIES_LAYER_PREFIX).await, theirs);
    });
}

/// Points of transactions that nobody has ever taken in.
#[test]
fn what_was_only_posted_is_moved() {
    block_on(async {
        let db = Local::in_memory().unwrap().into_database();
        let mut points = Points::new();
        for time in 1..20 {
            post(&db, &former(), time, &mut points).await.unwrap();
        }
        let store = SeriesStore::open(&db).await.unwrap();
        assert_eq!(all(&store).await.unwrap(), points);
        assert_eq!(rows(&db, b"").await, 0);
    });
}

/// Of two who have the series, the one who knows the former place alone writes nothing any more.
#[test]
fn whoever_owns_the_former_place_is_fenced_out() {
    block_on(async {
        let db = Local::in_memory().unwrap().into_database();
        let mut points = Points::new();
        let old = fill(&db, &former(), (0, 50), &mut points).await.unwrap();
        let store = SeriesStore::open(&db).await.unwrap();
        old.series(NAMES[0]).await.unwrap().append(77, 7).unwrap();
        assert!(matches!(old.sync().await, Err(Error::NotOwner)), "it owns nothing any more");
        assert_eq!(all(&store).await.unwrap(), points);
        assert_eq!(rows(&db, b"").await, 0);
    });
}

#[test]
fn damage_in_the_former_place_is_told_and_mended() {
    block_on(async {
        let db = Local::in_memory().unwrap().into_database();
        let mut points = Points::new();
        drop(fill(&db, &former(), (0, 50), &mut points).await.unwrap());
        let format = [SERIES_LAYER_PREFIX, b"\x14"].concat();
        set(&db, format.clone(), b"\x09").await;
        let error = SeriesStore::open(&db).await.expect_err("it is damaged");
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("plinth.series"), "{error}");
        assert_eq!(rows(&db, SERIES_PREFIX).await, 0, "nothing was begun");
        set(&db, format, b"\x01").await;
        let store = SeriesStore::open(&db).await.unwrap();
        assert_eq!(all(&store).await.unwrap(), points);
        // Where there are no series such a row is anybody's.
        let other = Local::in_memory().unwrap().into_database();
        set(&other, [SERIES_LAYER_PREFIX, b"\x14"].concat(), b"\x09").await;
        SeriesStore::open(&other).await.unwrap();
        assert_eq!(rows(&other, b"").await, 1);
    });
}

/// A server of a cluster waits for whoever holds the former place, by the lease that is there, and
/// for as long as others may look for series there.
#[test]
fn a_candidate_waits_for_the_holder_of_the_former_place() {
    let simulation = Simulation::new(3);
    let env = simulation.process("machine");
    let opened = Builder::new("/db").env(env.clone()).open_async();
    let db = simulation.run_until(opened).unwrap().into_database();
    simulation.run_until(async {
        let mut old = Candidate::new(&db, former(), Claim::new("old", "at old"));
        let Look::Ours(store) = old.look().await.unwrap() else { panic!("nobody else is there") };
        store.series(NAMES[0]).await.unwrap().append(1, 1).unwrap();
        store.sync().await.unwrap();
        let mut new = Candidate::new(&db, Settings::default(), Claim::new("new", "at new"));
        for _ in 0..20 {
            let Look::Held(holder) = new.look().await.unwrap() else { panic!("it was stolen") };
            assert_eq!(holder.name, "old");
            new.wait().await;
        }
        store.give_up().await.unwrap();
        new.hold_back(true);
        assert!(matches!(new.look().await.unwrap(), Look::Held(_)));
        assert_eq!(rows(&db, SERIES_PREFIX).await, 0);
        new.hold_back(false);
        let Look::Ours(store) = new.look().await.unwrap() else { panic!("it is free") };
        assert_eq!(all(&store).await.unwrap(), Points::from([((NAMES[0].to_owned(), 1), 1)]));
        assert!(matches!(old.look().await.unwrap(), Look::Ours(_)), "another place by now");
    });
}

/// What lives of a database have seen.
#[derive(Default)]
struct Seen {
    /// How many began with rows in both places.
    halves: usize,
    points: Option<Points>,
}

/// One life of a database: opens its series, which moves what is left, and reads them.
async fn look(env: Env, seen: Arc<Mutex<Seen>>) -> Result<()> {
    let db = Builder::new("/db").env(env).open_async().await?.into_database();
    let is_half = rows(&db, SERIES_PREFIX).await > 3 && rows(&db, SERIES_LAYER_PREFIX).await > 1;
    seen.lock().unwrap().halves += usize::from(is_half);
    if is_half {
        let error = SeriesStore::view(&db, Settings::default()).await.expect_err("rows are apart");
        assert!(error.to_string().contains("being moved"), "{error}");
    }
    let store = SeriesStore::open(&db).await?;
    let (found, texts) = (all(&store).await?, store.kept().await?);
    assert!(texts.len() == 1 && texts[KEPT] == kept());
    seen.lock().unwrap().points = Some(found);
    Ok(())
}

/// Machines that stop at any instant of the move, again and again.
#[test]
fn a_move_that_is_cut_off_anywhere_loses_nothing_and_doubles_nothing() {
    let seen = Arc::new(Mutex::new(Seen::default()));
    for seed in 0..6 {
        let simulation = Simulation::new(seed);
        let mut random = Random::new(seed);
        let mut machine = simulation.process("node");
        let mut points = Points::new();
        simulation.run_until(async {
            let db = Builder::new("/db")
                .env(machine.clone())
                .open_async()
                .await
                .unwrap()
                .into_database();
            let to = 50 + random.below(400) as i64;
            drop(fill(&db, &former(), (0, to), &mut points).await.unwrap());
        });
        for life in 0_u64.. {
            simulation.crash(&machine);
            machine = simulation.restart(&machine);
            let looking = look(machine.clone(), seen.clone());
            let task = machine.spawn("look", async move {
                looking.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            });
            simulation.run_for(Duration::from_micros(200 + random.below(4000 * (life + 1))));
            drop(task);
            let found = seen.lock().unwrap().points.take();
            if found.is_some_and(|found| {
                assert_eq!(found, points, "seed {seed}, life {life}");
                true
            }) {
                break;
            }
        }
        simulation.crash(&machine);
        machine = simulation.restart(&machine);
        simulation.run_until(async {
            let db = Builder::new("/db")
                .env(machine.clone())
                .open_async()
                .await
                .unwrap()
                .into_database();
            assert_eq!(rows(&db, b"").await, 0, "seed {seed}: left in the former place");
            let store = SeriesStore::open(&db).await.unwrap();
            assert_eq!(all(&store).await.unwrap(), points, "seed {seed}");
        });
    }
    let halves = seen.lock().unwrap().halves;
    assert!(halves > 5, "{halves} moves that were cut off are too few to say anything");
}
