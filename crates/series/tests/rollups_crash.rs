//! The machine stops in the middle of rolling up, of saving late points, of deletes and of points
//! that go: after each restart buckets say what the points say, and where these have gone nothing
//! is missing that a sync had covered.
//!
//! A simulated world, from a seed: the database, its log, the task that commits and the one that
//! rolls up are the real ones.

use super::rollups::rollup;
use plinth::{Builder, Database};
use plinth_env::Env;
use plinth_env::simulated::Simulation;
use plinth_series::workload::Random;
use plinth_series::{Direction, Result, Retention, Rollup, Series, SeriesStore, Settings, Summary};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
const NAMES: [&str; 3] = ["m a=1", "m a=2", "m a=3"];
/// For how long points are kept, if not for ever.
const RAW: Duration = Duration::from_mins(2);

/// The times of each series' points, and whether a sync covered them; every one has the value 1.
type History = BTreeMap<(usize, i64), bool>;

async fn open(
    env: &Env,
    settings: &Settings,
    raw: Option<Duration>,
) -> Result<(Database, SeriesStore, Vec<Series>)> {
    let db = Builder::new("/db").env(env.clone()).open_async().await?.into_database();
    SeriesStore::change_keeping(&db, settings, |keeping| {
        if keeping.rollups().is_empty() {
            keeping.add(Rollup { raw, ..rollup("m", 10) })?;
            keeping.add(rollup("*", 60))?;
        }
        Ok(())
    })
    .await?;
    let store = SeriesStore::open_with(&db, settings.clone()).await?;
    let series = store.all_series(&NAMES).await?;
    Ok((db, store, series))
}

/// Appends, syncs, deletes and forgets until the machine stops.
async fn write(
    env: Env,
    settings: Settings,
    raw: Option<Duration>,
    mut random: Random,
    (mut now, history): (i64, Arc<Mutex<History>>),
) -> Result<()> {
    let (_db, store, series) = open(&env, &settings, raw).await?;
    loop {
        for _ in 0..random.below(40) {
            let which = random.below(NAMES.len() as u64) as usize;
            now += random.below(4) as i64 * SECOND;
            let late = random.below(8) == 0;
            let at = if late { now - random.below(100) as i64 * SECOND } else { now };
            series[which].append(at, 1.0)?;
            history.lock().unwrap().entry((which, at)).or_insert(false);
        }
        match random.below(12) {
            0 if raw.is_none() => {
                let which = random.below(NAMES.len() as u64) as usize;
                let first = now - random.below(600) as i64 * SECOND;
                let span = first..first + random.below(60) as i64 * SECOND;
                history.lock().unwrap().retain(|(of, at), _| *of != which || !span.contains(at));
                series[which].delete_range(span).await?;
            }
            1 if raw.is_some() => drop(store.forget(&Retention::default(), now).await?),
            2..5 => env.sleep(Duration::from_micros(random.below(300_000))).await,
            _ => {
                store.sync().await?;
                history.lock().unwrap().values_mut().for_each(|is_covered| *is_covered = true);
            }
        }
    }
}

async fn buckets(series: &Series, step: i64) -> Result<Vec<(i64, Summary)>> {
    let mut stream = series.group_aggregate(0.., step as u64).await?;
    let mut buckets = Vec::new();
    while let Some(bucket) = stream.next().await? {
        buckets.push(bucket);
    }
    Ok(buckets)
}

/// Gives how many buckets were compared.
async fn check(
    env: &Env,
    settings: &Settings,
    raw: Option<Duration>,
    (history, seed): (&mut History, u64),
) -> Result<usize> {
    let (_db, store, series) = open(env, settings, raw).await?;
    store.check_invariants().await?;
    let mut compared = 0;
    for (which, series) in series.iter().enumerate() {
        let points = series.scan(.., Direction::Forward).await?.collect().await?;
        for step in [10 * SECOND, 60 * SECOND] {
            let found = buckets(series, step).await?;
            let mut times: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
            for ((of, at), is_covered) in history.iter() {
                if *of == which {
                    let (covered, all) = times.entry(at.div_euclid(step) * step).or_default();
                    *covered += u64::from(*is_covered);
                    *all += 1;
                }
            }
            let mut by_points: BTreeMap<i64, u64> = BTreeMap::new();
            for point in &points {
                *by_points.entry(point.time.div_euclid(step) * step).or_default() += 1;
            }
            let found: BTreeMap<i64, u64> =
                found.iter().map(|(begin, summary)| (*begin, summary.count)).collect();
            compared += found.len();
            match raw {
                None => assert_eq!(found, by_points, "seed {seed}: {which} by {step}"),
                Some(_) => {
                    for (begin, (covered, all)) in times {
                        let count = found.get(&begin).copied().unwrap_or(0);
                        assert!(
                            (covered..=all).contains(&count),
                            "seed {seed}: {count} at {begin} of {which} by {step}, {covered} to {all} expected"
                        );
                    }
                }
            }
        }
        if raw.is_none() {
            let found: std::collections::BTreeSet<i64> =
                points.iter().map(|point| point.time).collect();
            history.retain(|(of, at), _| *of != which || found.contains(at));
        }
    }
    Ok(compared)
}

/// Lives that each end with a crash.
fn live_and_crash(raw: Option<Duration>) {
    let mut compared = 0;
    for seed in 0..10 {
        let simulation = Simulation::new(seed);
        let mut random = Random::new(seed);
        let settings = Settings {
            leaf_points: 2 + random.below(20) as usize,
            tail_bytes: [300, 64 << 10][random.below(2) as usize],
            ..Settings::default()
        };
        let mut machine = simulation.process("node");
        let history = Arc::new(Mutex::new(History::new()));
        for life in 0..4 {
            let (random_of_life, now) =
                (Random::new(random.next()), (1 + life) * 1_000_000 * SECOND);
            let writing = write(
                machine.clone(),
                settings.clone(),
                raw,
                random_of_life,
                (now, history.clone()),
            );
            let task = machine.spawn("writer", async move {
                let ended = writing.await;
                panic!("seed {seed}: the writer ended: {ended:?}");
            });
            simulation.run_for(Duration::from_millis(100 + random.below(1000)));
            simulation.crash(&machine);
            drop(task);
            machine = simulation.restart(&machine);
            let mut history = history.lock().unwrap();
            let checked = check(&machine, &settings, raw, (&mut history, seed));
            compared += simulation
                .run_until(checked)
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            simulation.crash(&machine);
            machine = simulation.restart(&machine);
        }
    }
    assert!(compared > 1000, "{compared} buckets are too few to say anything");
}

#[test]
fn buckets_agree_with_points_after_a_crash() {
    live_and_crash(None);
}

#[test]
fn what_a_sync_covered_is_in_buckets_after_a_crash_when_its_points_have_gone() {
    live_and_crash(Some(RAW));
}
