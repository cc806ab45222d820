//! The machine stops in the middle of it, and its disk forgets what was not synced: what a sync
//! covered is there afterwards, once, and nothing is there that was not appended. A point that is
//! overwritten may come back as it was before, if no sync covered the new value.
//!
//! A simulated world, from a seed: the database, its log and the task that commits every few
//! milliseconds are the real ones.

use plinth::{Builder, Database};
use plinth_env::Env;
use plinth_env::simulated::Simulation;
use plinth_series::workload::Random;
use plinth_series::{Direction, Result, Series, SeriesStore, Settings, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The last of them has a point in a hundred.
const NAMES: [&str; 4] = ["m a=1", "m a=2", "m a=3", "m a=4"];

/// Of each series, what was ever appended at a time, the newest last; and how many of those a sync
/// has covered.
type History = BTreeMap<(usize, i64), (Vec<i64>, usize)>;

async fn open(env: &Env, settings: &Settings) -> Result<(Database, SeriesStore, Vec<Series>)> {
    let db = Builder::new("/db").env(env.clone()).open_async().await?.into_database();
    let store = SeriesStore::open_with(&db, settings.clone()).await?;
    let series = store.all_series(&NAMES).await?;
    Ok((db, store, series))
}

/// Appends and syncs until the machine stops; now and then it rests for as long as half a second,
/// if the settings have series at rest sealed.
async fn write(
    env: Env,
    settings: Settings,
    mut random: Random,
    history: Arc<Mutex<History>>,
) -> Result<()> {
    let (_db, store, series) = open(&env, &settings).await?;
    let mut time = random.below(1000) as i64;
    loop {
        for _ in 0..random.below(30) {
            let which = if random.below(100) == 0 { 3 } else { random.below(3) as usize };
            time += random.below(3) as i64;
            let at = if random.below(10) == 0 { time - random.below(500) as i64 } else { time };
            let value = random.below(1000) as i64;
            series[which].append(at, value)?;
            history.lock().unwrap().entry((which, at)).or_default().0.push(value);
        }
        let rests = settings.seal_after.is_some() && random.below(10) == 0;
        match random.below(3) {
            _ if rests => env.sleep(Duration::from_millis(random.below(500))).await,
            0 => env.sleep(Duration::from_micros(random.below(10_000))).await,
            _ => {
                store.sync().await?;
                for (values, covered) in history.lock().unwrap().values_mut() {
                    *covered = values.len();
                }
            }
        }
    }
}

async fn check(env: &Env, settings: &Settings, history: &mut History, seed: u64) -> Result<()> {
    let (_db, store, series) = open(env, settings).await?;
    store.check_invariants().await?;
    let mut found = BTreeMap::new();
    for (which, series) in series.iter().enumerate() {
        for point in series.scan(.., Direction::Forward).await?.collect().await? {
            assert_eq!(
                found.insert((which, point.time), point.value),
                None,
                "seed {seed}: a time twice"
            );
        }
    }
    for (key, value) in &found {
        let (values, covered) =
            history.get(key).unwrap_or_else(|| panic!("seed {seed}: {key:?} from nowhere"));
        let possible = &values[covered.saturating_sub(1)..];
        assert!(
            possible.iter().any(|possible| *value == Value::Integer(*possible)),
            "seed {seed}: {value:?} at {key:?}, one of {possible:?} expected"
        );
    }
    for (key, (_, covered)) in history.iter() {
        assert!(
            *covered == 0 || found.contains_key(key),
            "seed {seed}: {key:?} was synced and is lost"
        );
    }
    // What is there now is what the next life goes on from.
    history.retain(|key, _| found.contains_key(key));
    for (key, value) in found {
        if let Value::Integer(value) = value {
            history.insert(key, (vec![value], 1));
        }
    }
    Ok(())
}

#[test]
fn what_a_sync_covered_survives_a_crash() {
    live_and_crash(Duration::from_millis(300), None);
}

#[test]
fn what_a_sync_covered_survives_a_crash_while_series_at_rest_are_sealed() {
    live_and_crash(Duration::from_secs(3), Some(Duration::from_millis(20)));
}

/// Lives of at most so long, each of which ends with a crash.
fn live_and_crash(life: Duration, seal_after: Option<Duration>) {
    let mut points = 0;
    for seed in 0..30 {
        let simulation = Simulation::new(seed);
        let mut random = Random::new(seed);
        let settings = Settings {
            leaf_points: 1 + random.below(30) as usize,
            tail_bytes: [300, 64 << 10, 1 << 20][random.below(3) as usize],
            seal_after,
            ..Settings::default()
        };
        let mut machine = simulation.process("node");
        let history = Arc::new(Mutex::new(History::new()));
        for _ in 0..4 {
            let writing = write(
                machine.clone(),
                settings.clone(),
                Random::new(random.next()),
                history.clone(),
            );
            let task = machine.spawn("writer", async move {
                let ended = writing.await;
                panic!("seed {seed}: the writer ended: {ended:?}");
            });
            simulation.run_for(Duration::from_millis(20 + random.below(life.as_millis() as u64)));
            simulation.crash(&machine);
            drop(task);
            machine = simulation.restart(&machine);
            let mut history = history.lock().unwrap();
            let checked = check(&machine, &settings, &mut history, seed);
            simulation.run_until(checked).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            points += history.len();
            simulation.crash(&machine);
            machine = simulation.restart(&machine);
        }
    }
    assert!(points > 10_000, "{points} points are too few to say anything");
}
