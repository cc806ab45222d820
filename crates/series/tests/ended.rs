//! A name goes with the last point, when that is too old, and no point with it.
//!
//! Names of series that nobody writes to any more stayed for ever, and counted for the limits on
//! how many there may be. Here series end by retention, by rollups, and while others append to
//! them, in a simulated world from a seed: what was acknowledged and isn't too old has to be there.

use super::damage::{WELL, append, database, fill, open, rows, settings, times};
use plinth::Builder;
use plinth_env::simulated::Simulation;
use plinth_env::{Env, block_on};
use plinth_promql::Labels;
use plinth_series::workload::Random;
use plinth_series::{
    Direction, Keeping, Metrics, Retention, Rollup, SeriesLayer, SeriesStore, Settings,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * SECOND;
const NOW: i64 = 1_767_225_600 * SECOND;
const HERE: &str = "cpu host=here";
const HOSTS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// For how long points are kept that are written all the time.
const KEPT: i64 = 40_000_000;
const ENDED: &str = "cpu host=ended";

/// Rows of names, series, indexes, leaves and twigs.
fn count(db: &plinth::Database) -> usize {
    (3..=9).map(|kind| rows(db, kind).len()).sum()
}

#[test]
fn a_name_goes_with_its_last_point_and_comes_again() {
    let db = database();
    let store = open(&db);
    block_on(append(&store, HERE, (0..10).map(|hour| NOW - hour * HOUR))).unwrap();
    block_on(store.sync()).unwrap();
    let without = count(&db);
    // One that is in memory, and one that came late and was never sealed.
    block_on(append(&store, ENDED, (20..30).rev().map(|hour| NOW - hour * HOUR))).unwrap();
    block_on(append(&store, "ram host=ended", [NOW - 20 * HOUR].into_iter())).unwrap();
    block_on(store.sync()).unwrap();
    let kept: Retention = "*=12h".parse().unwrap();
    // A pass deletes the points, and the name with the last of them.
    assert_eq!(block_on(store.forget(&kept, NOW)).unwrap(), 2);
    assert!(block_on(store.existing(ENDED)).unwrap().is_none());
    assert!(block_on(store.existing("ram host=ended")).unwrap().is_none());
    assert_eq!(block_on(store.find("cpu", &[])).unwrap().len(), 1);
    assert_eq!(count(&db), without, "nothing is left of them");
    assert_eq!(store.stats().series, 1);
    block_on(store.check_invariants()).unwrap();
    for _ in 0..2 {
        block_on(append(&store, ENDED, [NOW].into_iter())).unwrap();
        block_on(store.sync()).unwrap();
        assert_eq!(times(&store, ENDED).unwrap(), [NOW]);
        assert_eq!(block_on(store.forget(&kept, NOW)).unwrap(), 0);
    }
    let store = open(&db);
    assert_eq!(times(&store, ENDED).unwrap(), [NOW]);
    assert_eq!(times(&store, HERE).unwrap().len(), 10);
    block_on(store.check_invariants()).unwrap();
}

#[test]
fn one_that_has_points_or_never_had_one_stays() {
    let db = database();
    let store = open(&db);
    let kept: Retention = "*=12h".parse().unwrap();
    let series = block_on(store.all_series(&[HERE, ENDED, WELL[0], WELL[1]])).unwrap();
    // In memory alone; sealed; in the inbox; none at all.
    series[0].append(NOW, 1).unwrap();
    (0..8).for_each(|second| series[1].append(NOW - 30 * HOUR + second, 1).unwrap());
    block_on(store.sync()).unwrap();
    let layer = SeriesLayer::with_settings(&db, settings());
    db.try_transact_blocking(|tr| layer.append(tr, ENDED, NOW, 1).wait()).unwrap();
    assert_eq!(block_on(store.forget(&kept, NOW)).unwrap(), 1);
    assert_eq!(times(&store, ENDED).unwrap(), [NOW]);
    assert_eq!(times(&store, HERE).unwrap(), [NOW]);
    assert!(block_on(store.existing(WELL[0])).unwrap().is_some());
    series[2].append(NOW, 1).unwrap();
    block_on(store.sync()).unwrap();
    // Nothing is kept for ever that nobody said a time for.
    assert_eq!(block_on(store.forget(&Retention::default(), NOW + 99 * HOUR)).unwrap(), 0);
    assert_eq!(times(&store, WELL[0]).unwrap(), [NOW]);
    // One point of it is late, and the only one that is young enough.
    fill(&store, [NOW + 9 * HOUR, NOW + 9 * HOUR + 1].into_iter());
    block_on(store.check_invariants()).unwrap();
}

#[test]
fn where_there_are_rollups_a_name_stays_until_the_buckets_go() {
    let db = database();
    let store = open(&db);
    let settings = settings();
    let change = SeriesStore::change_keeping(&db, &settings, |keeping: &mut Keeping| {
        let rollup = Rollup::new(Metrics::parse("*").unwrap(), Duration::from_hours(1));
        let (keep, raw) = (Duration::from_hours(100), Duration::from_hours(12));
        keeping.add(Rollup { keep: Some(keep), raw: Some(raw), ..rollup })
    });
    block_on(change).unwrap();
    block_on(append(&store, ENDED, (20..40).rev().map(|hour| NOW - hour * HOUR))).unwrap();
    block_on(store.sync()).unwrap();
    let forget = |now: i64| {
        block_on(store.roll_up()).unwrap();
        block_on(store.forget(&Retention::default(), now)).unwrap()
    };
    assert_eq!(forget(NOW), 1);
    assert!(block_on(store.existing(ENDED)).unwrap().is_some(), "its buckets are kept");
    assert_eq!(forget(NOW + 200 * HOUR), 1);
    assert!(block_on(store.existing(ENDED)).unwrap().is_none());
    block_on(store.check_invariants()).unwrap();
}

/// Appends to series that end all the time, and looks for each point once it is acknowledged.
async fn write(env: Env, store: SeriesStore, mut random: Random, acknowledged: Arc<AtomicU64>) {
    loop {
        let which = random.below(HOSTS.len() as u64) as usize;
        let time = i64::try_from(env.wall_clock().as_nanos()).unwrap();
        let labels: Labels = [("__name__", "m"), ("of", HOSTS[which])].into_iter().collect();
        let refused = store.append_labelled(&[(labels, (time, 1.0))]).await.unwrap();
        assert!(refused.is_empty(), "{refused:?}");
        store.sync().await.unwrap();
        let name = format!("m of={}", HOSTS[which]);
        let series = store.existing(&name).await.unwrap();
        let found = match series {
            Some(series) => {
                let points = series.scan(time..=time, Direction::Forward).await.unwrap();
                points.collect().await.unwrap().len()
            }
            None => 0,
        };
        let age = env.wall_clock().as_nanos() as i64 - time;
        assert!(found == 1 || age >= KEPT, "{name} lost a point that is {age} ns old");
        acknowledged.fetch_add(1, Ordering::Relaxed);
        env.sleep(Duration::from_millis(random.below(60))).await;
    }
}

#[test]
fn no_point_goes_with_a_name_while_others_append() {
    let mut ended = 0;
    for seed in 0..8 {
        let simulation = Simulation::new(seed);
        let (machine, mut random) = (simulation.process("node"), Random::new(seed));
        let settings = Settings { leaf_points: 4, ..Settings::default() };
        let store = simulation
            .run_until(async {
                let db = Builder::new("/db").env(machine.clone()).open_async().await?;
                SeriesStore::open_with(&db.into_database(), settings).await
            })
            .unwrap();
        let acknowledged = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..6)
            .map(|at| {
                let random = Random::new(seed * 10 + at);
                let writing = write(machine.clone(), store.clone(), random, acknowledged.clone());
                machine.spawn("writer", writing)
            })
            .collect();
        let kept: Retention = "*=40ms".parse().unwrap();
        simulation.run_until(async {
            for _ in 0..200 {
                machine.sleep(Duration::from_millis(random.below(8))).await;
                let before = store.stats().series;
                let now = i64::try_from(machine.wall_clock().as_nanos()).unwrap();
                store.forget(&kept, now).await.unwrap();
                ended += before.saturating_sub(store.stats().series);
            }
        });
        drop(tasks);
        assert!(acknowledged.load(Ordering::Relaxed) > 100, "seed {seed}");
        simulation.run_until(store.check_invariants()).unwrap();
    }
    assert!(ended > 100, "only {ended}");
}
