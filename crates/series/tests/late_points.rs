//! Late points lie in leaves of their own, which are divided when they get too large and joined
//! when they have little: there are few of them whatever the order in which points come, and who
//! reads meanwhile misses none.

use super::set_aside::holding;
use plinth::{Builder, Database, Local, RangeOptions};
use plinth_env::block_on;
use plinth_env::simulated::Simulation;
use plinth_series::workload::Random;
use plinth_series::{Direction, Series, SeriesStore, Settings, Value};
use plinth_types::system::SERIES_PREFIX;
use std::collections::BTreeMap;
use std::time::Duration;

/// Behind all others: what comes before it comes late.
const NEWEST: i64 = 1_000_000;

fn settings() -> Settings {
    Settings { leaf_points: 1, commit_every: None, ..Settings::default() }
}

async fn open(db: &Database) -> (SeriesStore, Series) {
    let store = SeriesStore::open_with(db, settings()).await.unwrap();
    let series = store.series("m").await.unwrap();
    series.append(NEWEST, 1).unwrap();
    store.sync().await.unwrap();
    (store, series)
}

/// How many leaves of late points there are.
async fn leaves(db: &Database) -> usize {
    let range = &RangeOptions::prefix([SERIES_PREFIX, &[0x15, 8]].concat());
    let rows = db.clone().with_system_keys();
    let rows = rows.transact(async |tr| tr.range(range.clone()).collect().await);
    rows.await.unwrap().len()
}

fn times(series: &Series) -> Vec<i64> {
    let points = block_on(block_on(series.scan(.., Direction::Forward)).unwrap().collect());
    points.unwrap().into_iter().map(|point| point.time).collect()
}

/// Each point is older than all before, and is committed alone: each had a leaf of its own once.
#[test]
fn those_that_come_newest_first_lie_in_few_leaves() {
    let db = Local::in_memory().unwrap().into_database();
    let (store, series) = block_on(open(&db));
    for time in (0..3000).rev() {
        series.append(time, time).unwrap();
        block_on(store.sync()).unwrap();
    }
    let leaves = block_on(leaves(&db));
    assert!((3..=6).contains(&leaves), "{leaves} leaves of 3000 late points");
    block_on(store.check_invariants()).unwrap();
    assert_eq!(times(&series), (0..3000).chain([NEWEST]).collect::<Vec<_>>());
}

/// In any order, overwritten and deleted, some in one commit: against a map.
#[test]
fn what_comes_in_any_order_is_there_and_lies_in_few_leaves() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let db = Local::in_memory().unwrap().into_database();
        let (mut store, mut series) = block_on(open(&db));
        let mut all = BTreeMap::from([(NEWEST, Value::Integer(1))]);
        let mut begin = 500_000;
        for round in 0..400 {
            begin -= random.below(300) as i64;
            for _ in 0..1 + random.below(60) {
                let spread = [20, 2000, 400_000][random.below(3) as usize];
                let time = (begin + random.below(spread) as i64).min(NEWEST - 1);
                series.append(time, round).unwrap();
                all.insert(time, Value::Integer(round));
            }
            block_on(store.sync()).unwrap();
            if random.below(10) == 0 {
                let first = begin + random.below(20_000) as i64;
                let span = first..first + random.below(40_000) as i64;
                block_on(series.delete_range(span.clone())).unwrap();
                all.retain(|time, _| !span.contains(time));
            }
            if random.below(100) == 0 {
                (store, series) = block_on(async {
                    let store = SeriesStore::open_with(&db, settings()).await.unwrap();
                    let series = store.series("m").await.unwrap();
                    (store, series)
                });
            }
        }
        block_on(store.check_invariants()).unwrap();
        for direction in [Direction::Forward, Direction::Backward] {
            let points = block_on(block_on(series.scan(.., direction)).unwrap().collect());
            let mut points: Vec<_> =
                points.unwrap().into_iter().map(|point| (point.time, point.value)).collect();
            if direction == Direction::Backward {
                points.reverse();
            }
            assert!(points.into_iter().eq(all.clone()), "seed {seed}: {direction:?}");
        }
        let (leaves, most) = (block_on(leaves(&db)), 2 + all.len() / 300);
        assert!(leaves <= most, "seed {seed}: {leaves} leaves of {} points", all.len());
    }
}

/// Leaves are joined that the reader has not read yet with such as it has, so what it has yet to
/// read lies before where it is. It goes on at another version, since the one that it began with is
/// too old by then.
#[test]
fn who_reads_while_leaves_are_joined_misses_nothing() {
    for (seed, left) in [40, 100, 300, 370].into_iter().enumerate() {
        let simulation = Simulation::new(seed as u64);
        let machine = simulation.process("node");
        let env = machine.clone();
        let test = machine.spawn("test", async move {
            let db = Builder::new("/db").env(env.clone()).open_async().await.unwrap();
            let db = db.into_database();
            let (store, series) = open(&db).await;
            for time in 0..20_000 {
                series.append(time, time).unwrap();
            }
            store.sync().await.unwrap();
            assert_eq!(leaves(&db).await, 20);
            let mut reading = series.scan(.., Direction::Forward).await.unwrap();
            let mut found = reading.next().await.unwrap().unwrap().times;
            // Some are left of each leaf.
            for first in (0..20_000).step_by(1000) {
                series.delete_range(first + left..first + 1000).await.unwrap();
            }
            for first in (0..20_000).step_by(1000) {
                series.append(first, 7).unwrap();
            }
            store.sync().await.unwrap();
            let joined = leaves(&db).await;
            assert!(joined <= 10, "{joined} leaves");
            env.sleep(Duration::from_secs(30)).await;
            while let Some(points) = reading.next().await.unwrap() {
                found.extend(points.times);
            }
            assert!(found.is_sorted_by(|one, next| one < next));
            // It had read some of the others before.
            found.retain(|time| *time == NEWEST || time % 1000 < left);
            let there = (0..20_000).filter(|time| time % 1000 < left).chain([NEWEST]);
            assert_eq!(found, there.collect::<Vec<_>>());
        });
        simulation.run_for(Duration::from_secs(1000));
        assert!(test.is_finished());
        test.wait().unwrap();
    }
}

/// Who asked for a sync left in the middle of its commit, and the next ones went on. When the one
/// that nobody waited for got through at last it put back what they had written over.
#[test]
fn a_commit_that_nobody_waits_for_is_never_behind_the_next_ones() {
    let db = Local::in_memory().unwrap().into_database();
    let (slow, held) = holding(&db);
    block_on(async {
        let (store, series) = open(&slow).await;
        series.append(5, 1).unwrap();
        held.leave(store.sync()).await;
        store.sync().await.unwrap();
        series.append(5, 2).unwrap();
        store.sync().await.unwrap();
        assert!(held.let_go().await, "it comes to nothing");
        let view = SeriesStore::view(&db, settings()).await.unwrap();
        let found = view.existing("m").await.unwrap().unwrap().aggregate(..10).await.unwrap();
        assert_eq!(found.map(|found| (found.count, found.sum)), Some((1, 2.0)));
    });
}

/// The same of a store that passes points on.
#[test]
fn a_letter_that_nobody_waits_for_is_never_behind_the_next_ones() {
    let db = Local::in_memory().unwrap().into_database();
    let (slow, held) = holding(&db);
    block_on(async {
        let (owner, _) = open(&db).await;
        let poster = SeriesStore::post(&slow, settings()).await.unwrap();
        let series = poster.series("m").await.unwrap();
        series.append(5, 1).unwrap();
        held.leave(poster.sync()).await;
        poster.sync().await.unwrap();
        series.append(5, 2).unwrap();
        poster.sync().await.unwrap();
        assert!(held.let_go().await, "it comes to nothing");
        let found = owner.existing("m").await.unwrap().unwrap().aggregate(..10).await.unwrap();
        assert_eq!(found.map(|found| (found.count, found.sum)), Some((1, 2.0)));
    });
}
