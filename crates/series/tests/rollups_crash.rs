//! The machine stops in the middle of rolling up, of saving late points, of deletes and of points
//! that go: after each restart buckets say what the points say, increases over falls among it, and
//! where these have gone nothing is missing that a sync had covered.

use super::lives::{Life, lives};
use super::rollups::rollup;
use plinth::{Builder, Database};
use plinth_env::Env;
use plinth_series::{
    Direction, Result, Retention, Rollup, Series, SeriesStore, Settings, Summary, prometheus,
};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
const NAMES: [&str; 3] = ["m a=1", "m a=2", "m a=3"];
/// For how long points are kept, if not for ever.
const RAW: Duration = Duration::from_mins(2);

/// The times of each series' points, and what is known of them.
type History = BTreeMap<(usize, i64), Known>;

/// What is known of a point.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Appended,
    /// A sync covered it.
    Covered,
    /// It was not covered when the machine stopped, and isn't among the points behind that: it has
    /// gone, or only buckets have it.
    Doubtful,
}

/// What a series' point of a time has, whoever writes it: a counter that begins again every seven
/// seconds or so.
fn value(which: usize, at: i64) -> f64 {
    (at / SECOND * 7 + which as i64 * 13).rem_euclid(50) as f64
}

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
async fn write(life: Life<History>, raw: Option<Duration>) -> Result<()> {
    let Life { env, settings, mut random, number, history, .. } = life;
    let mut now = number * 1_000_000 * SECOND;
    let (_db, store, series) = open(&env, &settings, raw).await?;
    loop {
        for _ in 0..random.below(40) {
            let which = random.below(NAMES.len() as u64) as usize;
            now += random.below(4) as i64 * SECOND;
            let late = random.below(8) == 0;
            let at = if late { now - random.below(100) as i64 * SECOND } else { now };
            series[which].append(at, value(which, at))?;
            let mut history = history.lock().unwrap();
            let known = history.entry((which, at)).or_insert(Known::Appended);
            if *known == Known::Doubtful {
                *known = Known::Appended;
            }
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
                // Not what the machine lost when it stopped.
                let mut history = history.lock().unwrap();
                let appended = history.values_mut().filter(|known| **known == Known::Appended);
                appended.for_each(|known| *known = Known::Covered);
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

/// Compares what buckets say of how counters increased in a minute with what points say, where all
/// of them are known to be there. Gives how many minutes were compared.
async fn check_increases(store: &SeriesStore, points: &History, seed: u64) -> Result<usize> {
    const MINUTE: i64 = 60 * SECOND;
    let Some(last) = points.keys().map(|(_, at)| *at).max() else { return Ok(0) };
    let end = last.div_euclid(MINUTE) * MINUTE + MINUTE;
    let begin = end - 50 * MINUTE;
    let (query, labels) = ("increase(m[1m])", ["1", "2", "3"]);
    let mut memory = plinth_promql::Memory::default();
    for (which, at) in points.keys() {
        let labels = [("__name__", "m"), ("a", labels[*which])].into_iter().collect();
        memory.add(&labels, *at, value(*which, *at));
    }
    let options = plinth_promql::Options::default();
    let answer = plinth_promql::range(&memory, query, (begin, end, MINUTE), &options).await;
    let Ok(plinth_promql::Answered::Matrix(rows)) = answer.map(|answer| answer.value) else {
        panic!("seed {seed}: no rows of increases");
    };
    let expected = rows.iter().flat_map(|row| {
        let of = row.labels.get("a").to_string();
        row.samples.iter().map(move |(time, value)| ((of.clone(), time / SECOND), *value))
    });
    let expected: BTreeMap<(String, i64), f64> = expected.collect();
    let form = format!(
        "query=increase%28m%5B1m%5D%29&start={}&end={}&step=60",
        begin / SECOND,
        end / SECOND
    );
    let asked = prometheus(store, "/api/v1/query_range", &[form.as_bytes()], 0).await;
    assert_eq!(asked.0, 200, "seed {seed}: {}", asked.1);
    let answer: Json = serde_json::from_str(&asked.1).unwrap();
    let mut found = BTreeMap::new();
    for row in answer["data"]["result"].as_array().unwrap() {
        for sample in row["values"].as_array().unwrap() {
            let value: f64 = sample[1].as_str().unwrap().parse().unwrap();
            let of = row["metric"]["a"].as_str().unwrap().to_string();
            found.insert((of, sample[0].as_i64().unwrap()), value);
        }
    }
    let mut compared = 0;
    for (which, of) in labels.iter().enumerate() {
        for at in (begin..=end).step_by(MINUTE as usize) {
            let window = (which, at - MINUTE + 1)..=(which, at);
            if points.range(window).any(|(_, known)| *known != Known::Covered) {
                continue;
            }
            let place = (of.to_string(), at / SECOND);
            let (expected, found) = (expected.get(&place), found.get(&place));
            let is_same = match (expected, found) {
                (Some(expected), Some(found)) => (expected - found).abs() < 1e-6,
                (expected, found) => expected == found,
            };
            assert!(is_same, "seed {seed}: {place:?}: {found:?} found, {expected:?} expected");
            compared += usize::from(found.is_some());
        }
    }
    let is_from_buckets = answer["infos"].to_string().contains("answered from rollups of");
    Ok(if is_from_buckets { compared } else { 0 })
}

/// Gives how many buckets were compared, and how many minutes' increases from such.
async fn check(
    env: &Env,
    settings: &Settings,
    raw: Option<Duration>,
    (mut history, seed): (History, u64),
) -> Result<(History, (usize, usize))> {
    let (_db, store, series) = open(env, settings, raw).await?;
    store.check_invariants().await?;
    let (mut compared, mut there) = (0, History::new());
    for (which, series) in series.iter().enumerate() {
        let points = series.scan(.., Direction::Forward).await?.collect().await?;
        there.extend(points.iter().map(|point| ((which, point.time), Known::Covered)));
        for step in [10 * SECOND, 60 * SECOND] {
            let found = buckets(series, step).await?;
            let mut times: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
            for ((of, at), known) in history.iter() {
                if *of == which {
                    let (covered, all) = times.entry(at.div_euclid(step) * step).or_default();
                    *covered += u64::from(*known == Known::Covered);
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
    for (one, known) in history.iter_mut() {
        if *known == Known::Appended && !there.contains_key(one) {
            *known = Known::Doubtful;
        }
    }
    let points = if raw.is_none() { &there } else { &history };
    let increases = check_increases(&store, points, seed).await?;
    Ok((history, (compared, increases)))
}

/// Lives that each end with a crash.
fn live_and_crash(raw: Option<Duration>) {
    let found = lives(
        0..40,
        |life| write(life, raw),
        |env, settings, known| async move { check(&env, &settings, raw, known).await },
    );
    let (buckets, increases) = found.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(buckets > 1000, "{buckets} buckets are too few to say anything");
    assert!(increases > 100, "{increases} increases are too few to say anything");
}

#[test]
fn buckets_agree_with_points_after_a_crash() {
    live_and_crash(None);
}

#[test]
fn what_a_sync_covered_is_in_buckets_after_a_crash_when_its_points_have_gone() {
    live_and_crash(Some(RAW));
}
