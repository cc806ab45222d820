//! What the tail has comes back when the store is opened, however much of it there is: it is read
//! by windows, each of which is put in the order of series, and every point has to end where it
//! was, with the last of a time as the one that counts.
//!
//! Nothing is committed unless the test asks for it, so each sync makes a batch. How large a window
//! is goes by the points that there may be in open leaves, so the store is opened with room for
//! few. Every check is made with the store before the opening, and a map.

use plinth::{Database, Local};
use plinth_env::block_on;
use plinth_series::workload::Random;
use plinth_series::{Direction, Error, Series, SeriesStore, Settings, Value};
use plinth_types::key_after;
use plinth_types::system::SERIES_PREFIX;
use std::collections::BTreeMap;

const SERIES: usize = 40;
/// Some dozens of windows.
const BATCHES: usize = 450;
const LEAF: usize = 64;

type Points = BTreeMap<i64, Value>;

fn settings(open_points: usize) -> Settings {
    Settings { leaf_points: LEAF, open_points, commit_every: None, ..Settings::default() }
}

fn name(at: usize) -> String {
    format!("m at={at:02}")
}

/// Series with points in many batches, a few of them in leaves besides; what each has.
fn fill(db: &Database, seed: u64) -> (SeriesStore, Vec<Series>, Vec<Points>) {
    let mut random = Random::new(seed);
    let store = block_on(SeriesStore::open_with(db, settings(1 << 20))).unwrap();
    let names: Vec<String> = (0..SERIES).map(name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let series = block_on(store.all_series(&names)).unwrap();
    let (mut all, mut time) = (vec![Points::new(); SERIES], 0);
    for _ in 0..BATCHES {
        for _ in 0..random.below(10) {
            // A few have so many points that they fill leaves.
            let few = random.below(20) < 3;
            let which = random.below(if few { 2 } else { SERIES as u64 }) as usize;
            for _ in 0..1 + random.below(3) {
                time += random.below(4) as i64;
                let late = if random.below(6) == 0 { random.below(200) as i64 } else { 0 };
                let value = match random.below(4) {
                    0 => Value::Integer(random.below(100) as i64),
                    _ => Value::Float(random.below(100) as f64 / 4.0),
                };
                series[which].append(time - late, value).unwrap();
                all[which].insert(time - late, value);
            }
        }
        block_on(store.sync()).unwrap();
    }
    (store, series, all)
}

fn points(series: &Series) -> Points {
    let points = block_on(block_on(series.scan(.., Direction::Forward)).unwrap().collect());
    points.unwrap().into_iter().map(|point| (point.time, point.value)).collect()
}

/// The rows whose keys begin as this tuple does in the place of series.
fn rows(db: &Database, kind: u8) -> Vec<(Vec<u8>, Vec<u8>)> {
    let prefix = [SERIES_PREFIX, &[0x15, kind]].concat();
    let rows = db.clone().with_system_keys().transact_blocking(|tr| {
        tr.range(plinth::RangeOptions::prefix(prefix.clone())).collect_blocking()
    });
    rows.unwrap().into_iter().map(|row| (row.key.to_vec(), row.value.to_vec())).collect()
}

fn set(db: &Database, key: &[u8], value: &[u8]) {
    let db = db.clone().with_system_keys();
    db.transact_blocking(|tr| {
        tr.set(key, value);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_tail_of_many_windows_comes_back_with_the_last_of_each_time() {
    for seed in 0..12 {
        let db = Local::in_memory().unwrap().into_database();
        let (before, series, all) = fill(&db, seed);
        assert!(rows(&db, 10).len() > 300, "seed {seed}: the tail has windows");
        // The points of one that is deleted stay in the tail.
        block_on(before.delete(&series[7])).unwrap();
        let open_points = before.stats().open_points;
        drop((before, series));
        let store = block_on(SeriesStore::open_with(&db, settings(1600))).unwrap();
        block_on(store.check_invariants()).unwrap();
        assert_eq!(store.stats().open_points, open_points, "seed {seed}");
        for (at, expected) in all.iter().enumerate() {
            let found = block_on(store.existing(&name(at))).unwrap();
            assert_eq!(found.is_some(), at != 7, "seed {seed}: series {at}");
            let found = found.map_or(Points::new(), |series| points(&series));
            let none = Points::new();
            assert_eq!(&found, if at == 7 { &none } else { expected }, "seed {seed}: series {at}");
        }
    }
}

/// A store that only reads sees the same, and who goes on from there loses nothing.
#[test]
fn who_views_a_long_tail_sees_it_and_who_goes_on_from_it_keeps_it() {
    let db = Local::in_memory().unwrap().into_database();
    let (before, series, mut all) = fill(&db, 100);
    drop((before, series));
    let view = block_on(SeriesStore::view(&db, settings(1 << 20))).unwrap();
    for (at, expected) in all.iter().enumerate() {
        let series = block_on(view.existing(&name(at))).unwrap().unwrap();
        assert_eq!(&points(&series), expected, "series {at}");
    }
    drop(view);
    // With little room for it, all that came back goes into leaves.
    let store = block_on(SeriesStore::open_with(&db, settings(1600))).unwrap();
    for round in 0..100 {
        let one = block_on(store.series(&name(5))).unwrap();
        let time = 1_000_000 + round;
        match one.append(time, round) {
            Ok(()) => drop(all[5].insert(time, Value::Integer(round))),
            Err(why) => assert!(matches!(why, Error::Behind), "{why}"),
        }
        block_on(store.sync()).unwrap();
    }
    assert!(store.stats().open_points <= 2400, "{:?}", store.stats());
    drop(store);
    let store = block_on(SeriesStore::open_with(&db, settings(1 << 20))).unwrap();
    block_on(store.check_invariants()).unwrap();
    for (at, expected) in all.iter().enumerate() {
        let series = block_on(store.existing(&name(at))).unwrap().unwrap();
        assert_eq!(&points(&series), expected, "series {at}");
    }
}

/// Which windows have the points of a series that can't be read makes no difference: all of them
/// are set aside, and are back when its rows are what they were.
#[test]
fn points_of_a_damaged_series_are_set_aside_from_all_windows() {
    let db = Local::in_memory().unwrap().into_database();
    let (before, series, all) = fill(&db, 200);
    drop((before, series));
    let of = |at: usize| {
        let wanted = name(at).into_bytes();
        rows(&db, 4).into_iter().find(|(_, value)| *value == wanted).unwrap()
    };
    let (key, value) = of(9);
    set(&db, &key, b"\xff");
    let store = block_on(SeriesStore::open_with(&db, settings(1600))).unwrap();
    assert_eq!(store.damaged().len(), 1);
    block_on(store.sync()).unwrap();
    let aside = store.stats().points_aside;
    assert!(aside >= all[9].len() as u64, "{aside} aside of {}", all[9].len());
    for at in [8, 10] {
        let series = block_on(store.existing(&name(at))).unwrap().unwrap();
        assert_eq!(points(&series), all[at], "series {at}");
    }
    drop(store);
    set(&db, &key, &value);
    let store = block_on(SeriesStore::open_with(&db, settings(1 << 20))).unwrap();
    assert_eq!(store.damaged().len(), 0);
    let series = block_on(store.existing(&name(9))).unwrap().unwrap();
    assert_eq!(points(&series), all[9]);
}

/// A batch of which nobody can say whose points it has keeps the place shut, in a late window as in
/// the first one.
#[test]
fn a_batch_that_is_damaged_is_an_error_wherever_it_is() {
    let db = Local::in_memory().unwrap().into_database();
    let (before, series, all) = fill(&db, 300);
    drop((before, series));
    let batches = rows(&db, 10);
    for at in [0, batches.len() / 2, batches.len() - 1] {
        let (key, value) = &batches[at];
        let mut damaged = value.clone();
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        set(&db, key, &damaged);
        let why = block_on(SeriesStore::open_with(&db, settings(1600))).map(drop).unwrap_err();
        assert!(why.to_string().contains("a batch of the tail"), "batch {at}: {why}");
        set(&db, key, value);
    }
    // What comes behind a batch that has no number is no batch.
    let behind = key_after(&batches[batches.len() - 1].0);
    set(&db, &behind, b"");
    assert!(block_on(SeriesStore::open_with(&db, settings(1600))).is_err());
    let db = db.clone().with_system_keys();
    db.transact_blocking(|tr| {
        tr.clear(&behind);
        Ok(())
    })
    .unwrap();
    let store = block_on(SeriesStore::open_with(&db, settings(1600))).unwrap();
    let series = block_on(store.existing(&name(3))).unwrap().unwrap();
    assert_eq!(points(&series), all[3]);
}

/// So many series that two tasks look them up, of which some have leaves, one was deleted, and one
/// can't be read: each has its own points afterwards.
#[test]
fn each_of_very_many_series_has_its_own_points_again() {
    for with_leaves in [false, true] {
        let db = Local::in_memory().unwrap().into_database();
        let store = block_on(SeriesStore::open_with(&db, settings(1 << 20))).unwrap();
        let count = 5000;
        let names: Vec<String> = (0..count).map(|at| format!("many at={at}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let series = block_on(store.all_series(&names)).unwrap();
        for time in 0..3 {
            // Not in the order of their numbers.
            for at in (0..count).rev() {
                let points = if with_leaves && at % 1000 == 999 { LEAF as i64 } else { 1 };
                for more in 0..points {
                    series[at].append(1000 * time + more, at as i64).unwrap();
                }
            }
            block_on(store.sync()).unwrap();
        }
        block_on(store.delete(&series[7])).unwrap();
        drop((store, series));
        let damaged = rows(&db, 4).into_iter().find(|(_, name)| *name == b"many at=4321").unwrap();
        set(&db, &damaged.0, b"\xff");
        let store = block_on(SeriesStore::open_with(&db, settings(1600))).unwrap();
        assert_eq!(store.damaged().len(), 1, "{:?}", store.damaged());
        for (at, name) in names.iter().enumerate() {
            if at == 4321 {
                continue;
            }
            let found = block_on(store.existing(name)).unwrap();
            assert_eq!(found.is_some(), at != 7, "{name}");
            let points = found.map_or(Points::new(), |series| points(&series));
            let many = with_leaves && at % 1000 == 999;
            let each = if at == 7 {
                0
            } else if many {
                LEAF
            } else {
                1
            };
            assert_eq!(points.len(), 3 * each, "{name}");
            assert!(points.values().all(|value| *value == Value::Integer(at as i64)), "{name}");
        }
        set(&db, &damaged.0, &damaged.1);
        drop(store);
        let store = block_on(SeriesStore::open_with(&db, settings(1 << 20))).unwrap();
        block_on(store.check_invariants()).unwrap();
        let back = block_on(store.existing(names[4321])).unwrap().unwrap();
        assert_eq!(points(&back).len(), 3);
    }
}
