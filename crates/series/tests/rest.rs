//! Series at rest: what of them is in no full leaf goes into leaves by itself, and nothing else
//! does.
//!
//! In a simulated world, where an hour is over at once.

use plinth::{Builder, Database, RangeOptions};
use plinth_env::Env;
use plinth_env::simulated::Simulation;
use plinth_series::workload::Random;
use plinth_series::{Direction, Result, Series, SeriesStore, Settings};
use plinth_types::system::SERIES_PREFIX;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: i64 = 1_000_000_000;

fn settings() -> Settings {
    Settings { leaf_points: 80, ..Settings::default() }
}

async fn open(
    env: &Env,
    settings: &Settings,
    count: usize,
) -> Result<(Database, SeriesStore, Vec<Series>)> {
    let db = Builder::new("/db").env(env.clone()).open_async().await?.into_database();
    let store = SeriesStore::open_with(&db, settings.clone()).await?;
    let names: Vec<String> = (0..count).map(|which| format!("load host={which}")).collect();
    let series = store.all_series(&names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    Ok((db, store, series))
}

/// Runs `test` on a machine of a simulated world.
fn simulated(test: impl AsyncFnOnce(Env) -> Result<()>) {
    let simulation = Simulation::new(5);
    let machine = simulation.process("node");
    simulation.run_until(test(machine)).unwrap();
}

/// Appends points a second apart, of values that nobody foresees.
fn append(series: &Series, seconds: std::ops::Range<i64>) {
    for second in seconds {
        series.append(second * SECOND, Random::new(second as u64).next() as i64).unwrap();
    }
}

async fn seconds(series: &Series) -> Result<Vec<i64>> {
    let points = series.scan(.., Direction::Forward).await?.collect().await?;
    Ok(points.iter().map(|point| point.time / SECOND).collect())
}

/// Bytes of each of the tail's batches.
async fn tail(db: &Database) -> Vec<usize> {
    let range = &RangeOptions::prefix([SERIES_PREFIX, &[0x15, 10]].concat());
    let db = db.clone().with_system_keys();
    let rows = db.transact(|tr| async move { tr.range(range.clone()).collect().await });
    rows.await.unwrap().iter().map(|row| row.value.len()).collect()
}

async fn batches(db: &Database) -> usize {
    tail(db).await.len()
}

#[test]
fn a_series_at_rest_is_sealed_and_goes_on_behind_that() {
    simulated(async |env| {
        let (db, store, series) = open(&env, &settings(), 1).await?;
        append(&series[0], 0..70);
        env.sleep(Duration::from_secs(55)).await;
        assert_eq!((store.stats().open_points, batches(&db).await), (70, 1));
        env.sleep(2 * MINUTE).await;
        assert_eq!((store.stats().open_points, batches(&db).await), (0, 0));
        // Late ones, new ones, and then another rest.
        append(&series[0], 60..100);
        env.sleep(3 * MINUTE).await;
        assert_eq!((store.stats().open_points, batches(&db).await), (0, 0));
        assert_eq!(seconds(&series[0]).await?, (0..100).collect::<Vec<_>>());
        drop((db, store, series));
        let (_db, store, series) = open(&env, &settings(), 1).await?;
        assert_eq!(store.stats().open_points, 0);
        assert_eq!(seconds(&series[0]).await?, (0..100).collect::<Vec<_>>());
        Ok(())
    });
}

#[test]
fn fewer_points_than_an_eighth_of_a_leaf_stay_in_the_tail() {
    simulated(async |env| {
        let (db, store, series) = open(&env, &settings(), 2).await?;
        append(&series[0], 0..9);
        append(&series[1], 0..10);
        env.sleep(10 * MINUTE).await;
        assert_eq!((store.stats().open_points, batches(&db).await), (9, 1));
        drop((db, store, series));
        let (_db, store, series) = open(&env, &settings(), 2).await?;
        // What an opening finds in the tail rests like any other.
        append(&series[0], 9..10);
        env.sleep(3 * MINUTE).await;
        assert_eq!(store.stats().open_points, 0);
        assert_eq!(seconds(&series[0]).await?, (0..10).collect::<Vec<_>>());
        Ok(())
    });
}

#[test]
fn a_series_with_a_point_each_two_minutes_is_not_at_rest_before_half_an_hour() {
    simulated(async |env| {
        let (_db, store, series) = open(&env, &settings(), 1).await?;
        for point in 0..15 {
            append(&series[0], point * 120..point * 120 + 1);
            env.sleep(2 * MINUTE).await;
        }
        assert_eq!(store.stats().open_points, 15);
        env.sleep(28 * MINUTE).await;
        assert_eq!(store.stats().open_points, 15);
        env.sleep(5 * MINUTE).await;
        assert_eq!(store.stats().open_points, 0);
        Ok(())
    });
}

#[test]
fn a_series_that_has_as_many_points_as_before_behind_a_full_leaf_is_not_at_rest() {
    simulated(async |env| {
        let (_db, store, series) = open(&env, &settings(), 2).await?;
        append(&series[1], 0..70);
        append(&series[0], 0..70);
        // A full leaf each half a minute, and behind it as many points as before it.
        for leaf in 0..10 {
            env.sleep(MINUTE / 2).await;
            append(&series[0], 70 + leaf * 80..150 + leaf * 80);
        }
        env.sleep(Duration::from_secs(1)).await;
        assert_eq!(store.stats().open_points, 70);
        env.sleep(3 * MINUTE).await;
        assert_eq!(store.stats().open_points, 0);
        Ok(())
    });
}

/// More series than a round looks at in one go, and among them more points than it seals in one.
#[test]
fn a_round_comes_by_all_series_whatever_those_before_are_like() {
    const SERIES: usize = 19_000;
    simulated(async |env| {
        let (db, store, series) = open(&env, &settings(), SERIES).await?;
        for (which, series) in series.iter().enumerate() {
            append(series, 0..if which < 17_000 { 1 } else { 70 });
        }
        env.sleep(3 * MINUTE).await;
        assert_eq!(store.stats().open_points, 17_000);
        assert_ne!(batches(&db).await, 0);
        for which in [0, 16_999, 17_000, 18_000, SERIES - 1] {
            assert_eq!(
                seconds(&series[which]).await?.len(),
                if which < 17_000 { 1 } else { 70 },
                "{which}"
            );
        }
        Ok(())
    });
}

/// One series has a point now and then, others fill leaf after leaf.
#[test]
fn a_few_points_do_not_keep_the_tail_from_becoming_shorter() {
    simulated(async |env| {
        let settings = Settings { tail_bytes: 8 << 20, ..settings() };
        let (db, store, series) = open(&env, &settings, 3).await?;
        let (slow, others) = series.split_first().unwrap();
        let mut longest = 0;
        for minute in 0..30 {
            append(slow, minute * 60..minute * 60 + 1);
            // Leaves of eighty, never one whole between two commits; and at the end one more point,
            // in no leaf.
            for part in 0..if minute < 29 { 32 } else { 1 } {
                for other in others {
                    append(other, minute * 1280 + part * 40..minute * 1280 + part * 40 + 40);
                }
                env.sleep(Duration::from_millis(20)).await;
            }
            longest = longest.max(tail(&db).await.iter().sum());
            env.sleep(MINUTE / 6).await;
        }
        let open_points = store.stats().open_points;
        assert_eq!(open_points, 30 + 80);
        let most = settings.tail_bytes / 64;
        assert!(longest > most, "{longest}: the tail never had to become shorter");
        assert!(longest < 2 * most, "{longest}");
        // As a crash would leave it.
        drop((db, store, series));
        let (_db, store, series) = open(&env, &settings, 3).await?;
        assert_eq!(store.stats().open_points, open_points);
        assert_eq!(
            seconds(&series[0]).await?,
            (0..30).map(|minute| minute * 60).collect::<Vec<_>>()
        );
        assert_eq!(seconds(&series[2]).await?, (0..29 * 1280 + 40).collect::<Vec<_>>());
        Ok(())
    });
}

#[test]
fn nothing_is_sealed_where_nobody_asked_for_it() {
    simulated(async |env| {
        let never = Settings { seal_after: None, ..settings() };
        let (_db, store, series) = open(&env, &never, 1).await?;
        append(&series[0], 0..70);
        env.sleep(10 * MINUTE).await;
        assert_eq!(store.stats().open_points, 70);
        Ok(())
    });
}

/// A rest of no time at all is found by rounds with a pause between them, which leave the store's
/// task time for everything else.
#[test]
fn a_rest_may_be_of_no_time() {
    simulated(async |env| {
        let at_once = Settings { seal_after: Some(Duration::ZERO), ..settings() };
        let (_db, store, series) = open(&env, &at_once, 1).await?;
        append(&series[0], 0..70);
        env.sleep(MINUTE).await;
        assert_eq!(store.stats().open_points, 0);
        assert_eq!(seconds(&series[0]).await?, (0..70).collect::<Vec<_>>());
        Ok(())
    });
}
