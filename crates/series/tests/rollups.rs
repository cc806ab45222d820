//! Rollups against a plain model: whatever is appended late, overwritten, deleted or kept for a
//! while only, buckets say what all points said that they were made of, and what can still be asked
//! of points is the same with them and without.

use plinth::{Builder, Database, Local};
use plinth_env::block_on;
use plinth_env::simulated::Simulation;
use plinth_series::workload::Random;
use plinth_series::{
    Direction, Keeping, Metrics, Query, Retention, Rollup, Series, SeriesStore, Settings, Summary,
    Value,
};
use std::collections::BTreeMap;
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
const QUARTER: i64 = SECOND / 4;
/// For how long points are kept.
const RAW: i64 = 300 * SECOND;
const NAMES: [&str; 3] = ["cpu.user host=a", "cpu.user host=b", "mem host=a"];

type Model = BTreeMap<i64, f64>;

fn settings(leaf_points: usize) -> Settings {
    Settings { commit_every: None, leaf_points, ..Settings::default() }
}

pub fn rollup(metrics: &str, every: u64) -> Rollup {
    Rollup::new(Metrics::parse(metrics).unwrap(), Duration::from_secs(every))
}

fn change(db: &Database, change: impl Fn(&mut Keeping) -> Result<(), String>) {
    block_on(SeriesStore::change_keeping(db, &Settings::default(), change)).unwrap();
}

/// A bucket as far as its sum doesn't depend on an order.
fn seen(summary: &Summary) -> [(i64, f64); 6] {
    let none = (0, f64::NEG_INFINITY);
    let point = |point: plinth_series::Point| (point.time, point.value.as_f64());
    [
        (summary.count as i64, summary.sum),
        (summary.numbers as i64, 0.0),
        point(summary.first),
        point(summary.last),
        summary.min.map_or(none, point),
        summary.max.map_or(none, point),
    ]
}

type Groups = Vec<(i64, [(i64, f64); 6])>;

/// The buckets of a model's points, from the one that begins at `first` on.
fn groups(model: &Model, first: i64, step: i64) -> Groups {
    let mut groups: BTreeMap<i64, Vec<plinth_series::Point>> = BTreeMap::new();
    for (time, value) in model.range(first..) {
        let begin = first + (time - first).div_euclid(step) * step;
        let point = plinth_series::Point { time: *time, value: Value::Float(*value) };
        groups.entry(begin).or_default().push(point);
    }
    let groups = groups.into_iter();
    groups
        .map(|(begin, points)| (begin, seen(&Summary::of_points(points.into_iter()).unwrap())))
        .collect()
}

async fn found(series: &Series, first: i64, step: i64) -> plinth_series::Result<Groups> {
    let mut stream = series.group_aggregate(first.., step as u64).await?;
    let mut groups = Vec::new();
    while let Some((begin, summary)) = stream.next().await? {
        groups.push((begin, seen(&summary)));
    }
    Ok(groups)
}

async fn found_backward(
    series: &Series,
    (first, behind): (i64, i64),
    step: i64,
) -> plinth_series::Result<Groups> {
    let mut stream = series.group_aggregate_backward(first..behind, step as u64).await?;
    let mut groups = Vec::new();
    while let Some((last, summary)) = stream.next().await? {
        groups.push((last + 1 - step, seen(&summary)));
    }
    groups.reverse();
    Ok(groups)
}

struct World {
    db: Database,
    store: SeriesStore,
    series: Vec<Series>,
    models: Vec<Model>,
    random: Random,
    leaf_points: usize,
    /// The newest time.
    now: i64,
    /// Before which points may have gone.
    kept: i64,
    seed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let leaf_points = 2 + random.below(20) as usize;
        let db = Local::in_memory().unwrap().into_database();
        let raw = Some(Duration::from_nanos(RAW as u64));
        change(&db, |keeping| {
            keeping.add(Rollup { raw, ..rollup("cpu.*", 10) })?;
            keeping.add(rollup("cpu.user", 60))
        });
        let (store, series) = block_on(Self::open(&db, leaf_points)).unwrap();
        let models = vec![Model::new(); NAMES.len()];
        let now = 1_000_000 * SECOND + random.below(400) as i64 * QUARTER;
        Self { db, store, series, models, random, leaf_points, now, kept: i64::MIN, seed }
    }

    async fn open(
        db: &Database,
        leaf_points: usize,
    ) -> plinth_series::Result<(SeriesStore, Vec<Series>)> {
        let store = SeriesStore::open_with(db, settings(leaf_points)).await?;
        let series = store.all_series(&NAMES).await?;
        Ok((store, series))
    }

    fn append(&mut self, which: usize, time: i64) {
        let value = self.random.below(400) as f64 / 4.0 - 20.0;
        self.series[which].append(time, value).unwrap();
        self.models[which].insert(time, value);
    }

    /// Something, whatever it is.
    fn act(&mut self) {
        let which = self.random.below(NAMES.len() as u64) as usize;
        match self.random.below(20) {
            0..8 => {
                for _ in 0..self.random.below(60) {
                    self.now += QUARTER * self.random.below(20) as i64;
                    self.append(which, self.now);
                }
            }
            8..11 => {
                // Late, or over what is there.
                for _ in 0..self.random.below(5) {
                    let before = self.random.below((RAW / QUARTER) as u64) as i64 * QUARTER;
                    self.append(which, (self.now - before).max(self.kept));
                }
            }
            11 => {
                let first = (self.now - self.random.below(RAW as u64) as i64).max(self.kept);
                let length = self.random.below(100 * SECOND as u64) as i64;
                self.delete(which, first, first + length);
            }
            12 => {
                // What may have gone is deleted by whole buckets.
                let minute = 60 * SECOND;
                let first = (self.now / minute - self.random.below(60) as i64) * minute;
                let length = minute * self.random.below(4) as i64;
                self.delete(which, first, first + length);
            }
            13 => {
                let now = self.now;
                block_on(self.store.forget(&Retention::default(), now)).unwrap();
                self.kept = self.kept.max(now - RAW);
            }
            14 => {
                block_on(self.store.sync()).unwrap();
                (self.store, self.series) =
                    block_on(Self::open(&self.db, self.leaf_points)).unwrap();
            }
            15..17 => block_on(self.store.roll_up()).unwrap(),
            _ => block_on(self.store.sync()).unwrap(),
        }
    }

    fn delete(&mut self, which: usize, first: i64, behind: i64) {
        block_on(self.series[which].delete_range(first..behind)).unwrap();
        self.models[which].retain(|time, _| !(first..behind).contains(time));
    }

    fn check(&mut self) {
        let seed = self.seed;
        for ((series, model), name) in self.series.iter().zip(&self.models).zip(NAMES) {
            let minute = 60 * SECOND;
            let begin = 900_000 * SECOND / minute * minute;
            for step in [10, 20, 60, 180] {
                let step = step * SECOND;
                let all = block_on(found(series, begin, step)).unwrap();
                // A series without rules has all of its points.
                assert_eq!(all, groups(model, begin, step), "seed {seed}: {name} by {step}");
                let behind = (self.now / step + 1) * step;
                let back = block_on(found_backward(series, (begin, behind), step)).unwrap();
                let aligned = |(time, _): &(i64, _)| time.rem_euclid(step) == 0;
                if begin % step == 0 {
                    assert!(back.iter().all(aligned), "seed {seed}: {name} backward by {step}");
                    assert_eq!(back, all, "seed {seed}: {name} backward by {step}");
                }
            }
            let step = 7 * SECOND;
            let first = self.kept.max(begin);
            let some = block_on(found(series, first, step)).unwrap();
            assert_eq!(some, groups(model, first, step), "seed {seed}: {name} from {first}");
            let points =
                block_on(async { series.scan(first.., Direction::Forward).await?.collect().await });
            let points: Vec<(i64, f64)> =
                points.unwrap().iter().map(|point| (point.time, point.value.as_f64())).collect();
            let expected: Vec<(i64, f64)> =
                model.range(first..).map(|(time, value)| (*time, *value)).collect();
            assert_eq!(points, expected, "seed {seed}: {name}");
            let all = block_on(series.aggregate(..)).unwrap();
            let all = all.map(|summary| (summary.count, summary.sum));
            let expected = (!model.is_empty()).then(|| (model.len() as u64, model.values().sum()));
            assert_eq!(all, expected, "seed {seed}: all of {name}");
        }
        block_on(self.store.check_invariants()).unwrap();
    }
}

#[test]
fn buckets_say_what_their_points_said() {
    for seed in 0..16 {
        let mut world = World::new(seed);
        for turn in 0..80 {
            world.act();
            if turn % 10 == 0 {
                world.check();
            }
        }
        world.check();
    }
}

/// A store with a rule of ten seconds whose points go after a minute, and a series with a point a
/// second for ten minutes.
fn rolled() -> (Database, SeriesStore, Series) {
    let db = Local::in_memory().unwrap().into_database();
    let raw = Some(Duration::from_mins(1));
    change(&db, |keeping| keeping.add(Rollup { raw, ..rollup("*", 10) }));
    let store = block_on(SeriesStore::open_with(&db, settings(50))).unwrap();
    let series = block_on(store.series("m a=1")).unwrap();
    for second in 0..600 {
        series.append(second * SECOND, 1.0).unwrap();
    }
    block_on(store.sync()).unwrap();
    (db, store, series)
}

fn count(series: &Series) -> u64 {
    block_on(series.aggregate(..)).unwrap().map_or(0, |summary| summary.count)
}

fn raw_points(series: &Series) -> usize {
    let points = async { series.scan(.., Direction::Forward).await?.collect().await };
    block_on(points).unwrap().len()
}

#[test]
fn points_go_and_their_buckets_stay() {
    let (_db, store, series) = rolled();
    assert_eq!(block_on(store.forget(&Retention::default(), 600 * SECOND)).unwrap(), 1);
    let left = raw_points(&series);
    assert!((60..=80).contains(&left), "{left} points are left");
    assert_eq!(count(&series), 600);
    // There is nothing left to be done, and it is not done again and again.
    assert_eq!(block_on(store.forget(&Retention::default(), 600 * SECOND)).unwrap(), 0);
    // The rules of retention mean points, too, and the sooner of both counts.
    let retention: Retention = "m=30s".parse().unwrap();
    assert_eq!(block_on(store.forget(&retention, 600 * SECOND)).unwrap(), 1);
    assert!(raw_points(&series) <= 40, "{}", raw_points(&series));
    assert_eq!(count(&series), 600);
}

#[test]
fn buckets_go_when_their_time_is_over_and_so_does_the_end_of_a_series() {
    let (db, store, series) = rolled();
    change(&db, |keeping| {
        keeping.remove(&Metrics::parse("*").unwrap(), None);
        let (raw, keep) = (Some(Duration::from_mins(1)), Some(Duration::from_mins(2)));
        keeping.add(Rollup { raw, keep, ..rollup("m", 10) })
    });
    block_on(store.forget(&Retention::default(), 600 * SECOND)).unwrap();
    assert!(count(&series) >= 120, "{}", count(&series));
    // A day later nothing of it is kept.
    block_on(store.forget(&Retention::default(), 86_400 * SECOND)).unwrap();
    assert_eq!((raw_points(&series), count(&series)), (0, 0));
    block_on(store.check_invariants()).unwrap();
}

#[test]
fn a_rule_that_is_removed_takes_its_buckets_along_and_a_new_one_begins_where_points_are() {
    let (db, store, series) = rolled();
    block_on(store.forget(&Retention::default(), 600 * SECOND)).unwrap();
    let left = raw_points(&series) as u64;
    // Another rule has what is left; the first one still answers for what has gone.
    change(&db, |keeping| keeping.add(rollup("m", 60)));
    block_on(store.roll_up()).unwrap();
    assert_eq!(count(&series), 600);
    let by_minute = block_on(found(&series, 0, 60 * SECOND)).unwrap();
    assert_eq!(by_minute.iter().map(|(_, bucket)| bucket[0].0).sum::<i64>(), 600);
    change(&db, |keeping| {
        keeping.remove(&Metrics::parse("*").unwrap(), None);
        Ok(())
    });
    block_on(store.roll_up()).unwrap();
    assert_eq!(count(&series), left);
    block_on(store.check_invariants()).unwrap();
}

/// Of a bucket whose points have gone nobody can say what is left of it.
#[test]
fn a_bucket_without_points_goes_when_some_of_it_is_deleted() {
    let (_db, store, series) = rolled();
    block_on(store.forget(&Retention::default(), 600 * SECOND)).unwrap();
    block_on(series.delete_range(15 * SECOND..25 * SECOND)).unwrap();
    assert_eq!(count(&series), 580);
    block_on(store.roll_up()).unwrap();
    assert_eq!(count(&series), 580);
    // A point that comes so late changes nothing of what has gone.
    series.append(100 * SECOND, 5.0).unwrap();
    assert_eq!(count(&series), 580);
    block_on(store.sync()).unwrap();
    block_on(store.roll_up()).unwrap();
    assert_eq!(count(&series), 580);
    block_on(store.delete(&series)).unwrap();
    let series = block_on(store.series("m a=1")).unwrap();
    assert_eq!(count(&series), 0);
    block_on(store.check_invariants()).unwrap();
}

#[test]
fn a_view_reads_buckets_too() {
    let (db, store, _series) = rolled();
    block_on(store.forget(&Retention::default(), 600 * SECOND)).unwrap();
    let view = block_on(SeriesStore::view(&db, Settings::default())).unwrap();
    let series = block_on(view.existing("m a=1")).unwrap().unwrap();
    assert_eq!(count(&series), 600);
}

#[test]
fn texts_are_not_rolled_up() {
    let (db, store, _series) = rolled();
    let event = block_on(store.series("!deploy app=a")).unwrap();
    for nanosecond in 0..60 {
        event.append(nanosecond, 7).unwrap();
    }
    block_on(store.forget(&Retention::default(), 600 * SECOND)).unwrap();
    assert_eq!(raw_points(&event), 60, "no rule is about them");
    drop(db);
}

/// Two rules, of which the longer one's buckets touch where the shorter one's don't.
#[test]
fn deletions_that_only_long_buckets_join_take_no_short_ones_along() {
    let (db, store, series) = rolled();
    change(&db, |keeping| keeping.add(rollup("m", 60)));
    block_on(store.forget(&Retention::default(), 600 * SECOND)).unwrap();
    for first in [120, 170] {
        block_on(series.delete_range(first * SECOND..(first + 1) * SECOND)).unwrap();
    }
    let counted = |step: i64| {
        let groups = block_on(found(&series, 0, step * SECOND)).unwrap();
        groups.iter().map(|(_, bucket)| bucket[0].0).sum::<i64>()
    };
    assert_eq!(counted(10), 580);
    block_on(store.roll_up()).unwrap();
    assert_eq!(counted(10), 580);
    block_on(store.check_invariants()).unwrap();
}

/// A second rule had the whole history of a series read in one step, which came to nothing where
/// that is long.
#[test]
fn a_rule_beside_one_that_is_far_ahead_is_carried_out_step_by_step() {
    let db = Local::in_memory().unwrap().into_database();
    change(&db, |keeping| keeping.add(rollup("m", 3600)));
    let store = block_on(SeriesStore::open_with(&db, settings(1000))).unwrap();
    let series = block_on(store.series("m a=1")).unwrap();
    let append = |some: std::ops::Range<i64>| {
        for n in some {
            series.append(n * SECOND, n).unwrap();
            if n % 10_000 == 9999 {
                block_on(store.sync()).unwrap();
            }
        }
        block_on(store.sync()).unwrap();
    };
    append(0..300_000);
    block_on(store.roll_up()).unwrap();
    append(300_000..320_000);
    change(&db, |keeping| keeping.add(rollup("m", 1)));
    block_on(store.roll_up()).unwrap();
    for step in [1, 3600] {
        let groups = block_on(found(&series, 0, step * SECOND)).unwrap();
        let (count, sum) =
            groups.iter().fold((0, 0.0), |(n, sum), (_, it)| (n + it[0].0, sum + it[0].1));
        assert_eq!((count, sum), (320_000, (320_000_i64 * 319_999 / 2) as f64), "by {step}");
    }
    block_on(store.check_invariants()).unwrap();
}

/// History that is imported when points of that age have gone already had no buckets made.
#[test]
fn history_that_comes_when_its_points_would_have_gone_is_rolled_up() {
    let (_db, store, series) = rolled();
    block_on(store.forget(&Retention::default(), 600 * SECOND)).unwrap();
    let imported = |now: i64| {
        for second in (-500..-200).chain(200..205) {
            series.append(second * SECOND, 2.0).unwrap();
        }
        block_on(store.sync()).unwrap();
        block_on(store.forget(&Retention::default(), now * SECOND)).unwrap();
        block_on(store.roll_up()).unwrap();
    };
    imported(640);
    assert!(raw_points(&series) <= 80, "{} points", raw_points(&series));
    assert_eq!(count(&series), 900, "a bucket of points that have gone stays as it was");
    let too_late = || store.stats().rollups.too_late;
    assert_eq!(too_late(), 5, "those of a bucket that was there, and not those of new ones");
    // Whoever sends again doesn't count twice.
    imported(680);
    assert_eq!(count(&series), 900);
    assert_eq!(too_late(), 10, "what is sent again is in its bucket");
    // More of them than there were stand for those that have gone.
    for half in 400..420 {
        series.append(half * SECOND / 2 + 1, 1.0).unwrap();
    }
    block_on(store.sync()).unwrap();
    block_on(store.roll_up()).unwrap();
    assert_eq!(count(&series), 910);
    assert_eq!(too_late(), 10);
    block_on(store.check_invariants()).unwrap();
}

/// Nothing said so: such a point is answered as any other, and no answer knows it.
#[test]
fn points_that_come_too_late_for_their_bucket_are_counted_once() {
    let (db, store, series) = rolled();
    change(&db, |keeping| keeping.add(rollup("*", 60)));
    block_on(store.forget(&Retention::default(), 600 * SECOND)).unwrap();
    let too_late = || store.stats().rollups.too_late;
    // A point of the same bucket at a time, and one whose points are still there.
    for (millisecond, counted) in (1..=10).zip(1..) {
        series.append(100 * SECOND + millisecond * 1_000_000, 5.0).unwrap();
        series.append(570 * SECOND + millisecond * 1_000_000, 5.0).unwrap();
        block_on(store.sync()).unwrap();
        block_on(store.roll_up()).unwrap();
        assert_eq!(too_late(), counted);
    }
    assert_eq!(count(&series), 610);
    block_on(store.roll_up()).unwrap();
    assert_eq!(too_late(), 10);
    block_on(store.check_invariants()).unwrap();
}

/// Lengths of which none divides the other: where one rule follows another, each point counts once.
#[test]
fn buckets_of_two_lengths_meet_without_a_gap_and_without_an_overlap() {
    let db = Local::in_memory().unwrap().into_database();
    change(&db, |keeping| keeping.add(rollup("m", 10)));
    let store = block_on(SeriesStore::open_with(&db, settings(10))).unwrap();
    let series = block_on(store.series("m a=1")).unwrap();
    let append = |some: std::ops::Range<i64>| {
        some.for_each(|n| series.append(n * SECOND, 1.0).unwrap());
        block_on(store.sync()).unwrap();
    };
    append(0..300);
    let raw = Some(Duration::from_mins(1));
    change(&db, |keeping| {
        keeping.remove(&Metrics::parse("m").unwrap(), None);
        keeping.add(Rollup { raw, ..rollup("m", 10) })
    });
    block_on(store.forget(&Retention::default(), 200 * SECOND)).unwrap();
    change(&db, |keeping| keeping.add(rollup("m", 15)));
    append(300..600);
    block_on(store.forget(&Retention::default(), 500 * SECOND)).unwrap();
    for step in [30, 60, 90] {
        for first in [0, 30] {
            let groups = block_on(found(&series, first * SECOND, step * SECOND)).unwrap();
            let counted: i64 = groups.iter().map(|(_, bucket)| bucket[0].0).sum();
            assert_eq!(counted, 600 - first, "from {first} by {step}: {groups:?}");
        }
    }
    assert_eq!(count(&series), 600);
    block_on(store.check_invariants()).unwrap();
}

/// A rule that is said again keeps its buckets, and is about other times from then on.
#[test]
fn a_rule_that_is_said_again_is_changed() {
    let (db, store, series) = rolled();
    block_on(store.forget(&Retention::default(), 600 * SECOND)).unwrap();
    let (keep, raw) = (Some(Duration::from_hours(1)), Some(Duration::from_mins(2)));
    change(&db, |keeping| {
        let id = keeping.rollups()[0].id;
        keeping.add(Rollup { keep, raw, ..rollup("*", 10) })?;
        assert_eq!((keeping.rollups().len(), keeping.rollups()[0].id), (1, id));
        assert_eq!((keeping.rollups()[0].keep, keeping.rollups()[0].raw), (keep, raw));
        Ok(())
    });
    block_on(store.roll_up()).unwrap();
    assert_eq!(count(&series), 600);
}

/// Puts this in the place of the rules: what they were.
fn replace_rules(db: &Database, value: &[u8]) -> Vec<u8> {
    let tr = db.create_transaction();
    tr.set_option(plinth::TransactionOption::AccessSystemKeys).unwrap();
    let rows = tr.range(&b"\xff\x02/plinth/series/"[..]..&b"\xff\x02/plinth/series0"[..]);
    let rows = block_on(rows.collect()).unwrap();
    let rules = rows.into_iter().find(|row| row.value.starts_with(b"{\"format\":")).unwrap();
    tr.set(&rules.key, value);
    block_on(tr.commit()).unwrap();
    rules.value.to_vec()
}

/// What is said beside the counts of all series of a metric.
fn warning(store: &SeriesStore, query: &str) -> Option<&'static str> {
    let query = Query::parse(query.as_bytes()).unwrap();
    block_on(async {
        let mut answer = store.query(&query).await.unwrap();
        while answer.next().await.unwrap().is_some() {}
        answer.remarks().warning
    })
}

/// Where rules were a later version's, what only buckets have was left out, and nobody was told.
#[test]
fn points_that_have_gone_are_said_to_be_missing_where_nobody_can_read_the_rules() {
    const ALL: &str = r#"{"aggregate": {"m": "count"}, "range": {"from": "0s", "to": "600s"}}"#;
    const ROWS: &str = r#"{"select": "m", "range": {"from": "0s", "to": "600s"}}"#;
    const LAST: &str = r#"{"aggregate": {"m": "count"}, "range": {"from": "590s", "to": "600s"}}"#;
    let (db, store, _) = rolled();
    block_on(store.forget(&Retention::default(), 600 * SECOND)).unwrap();
    assert_eq!(warning(&store, ALL), None);
    let rules = replace_rules(&db, b"{\"format\":2}");
    let view = block_on(SeriesStore::view(&db, Settings::default())).unwrap();
    drop(store);
    let store = block_on(SeriesStore::open_with(&db, settings(50))).unwrap();
    for store in [&view, &store] {
        assert!(warning(store, ALL).is_some_and(|why| why.contains("points have gone")));
        assert!(warning(store, ROWS).is_some());
        assert_eq!(warning(store, LAST), None);
    }
    replace_rules(&db, &rules);
    block_on(store.roll_up()).unwrap();
    assert_eq!(warning(&store, ALL), None);
}

/// A query that had begun read fewer points than there were, as of no time, and nobody was told:
/// what it was to read as points went, and it knew of no buckets.
#[test]
fn points_that_go_while_they_are_read_fail_whoever_reads_them() {
    let (_db, store, series) = rolled();
    let all = async |mut groups: plinth_series::GroupStream| {
        let mut count = 0;
        while let Some((_, group)) = groups.next().await? {
            count += group.count;
        }
        Ok::<_, plinth_series::Error>(count)
    };
    block_on(async {
        let groups = || series.group_aggregate(.., 10 * SECOND as u64);
        let before = groups().await.unwrap();
        // What lies behind all that goes is read as before.
        let behind = series.group_aggregate(560 * SECOND.., 10 * SECOND as u64).await.unwrap();
        store.forget(&Retention::default(), 600 * SECOND).await.unwrap();
        let why = all(before).await.unwrap_err();
        assert!(why.to_string().contains("ask again"), "{why}");
        assert_eq!(all(behind).await.unwrap(), 40);
        assert_eq!(all(groups().await.unwrap()).await.unwrap(), 600);
    });
}

/// The same of one that has read some of them, and goes on when its version can be read no more.
#[test]
fn points_that_go_in_the_middle_of_a_long_query_fail_it() {
    let simulation = Simulation::new(3);
    let env = simulation.process("machine");
    let db = simulation.run_until(Builder::new("/db").env(env).open_async()).unwrap();
    let (db, raw) = (db.into_database(), Some(Duration::from_mins(1)));
    let settings = Settings { seal_after: None, ..settings(50) };
    let change = |keeping: &mut Keeping| keeping.add(Rollup { raw, ..rollup("*", 10) });
    let changed = SeriesStore::change_keeping(&db, &settings, change);
    simulation.run_until(changed).unwrap();
    let store = simulation.run_until(SeriesStore::open_with(&db, settings)).unwrap();
    let series = simulation.run_until(store.series("m a=1")).unwrap();
    (0..600).for_each(|second| series.append(second * SECOND, 1.0).unwrap());
    simulation.run_until(store.sync()).unwrap();
    let mut groups = simulation.run_until(series.group_aggregate(.., 7 * SECOND as u64)).unwrap();
    assert!(simulation.run_until(groups.next()).unwrap().is_some());
    let mut scans = [Direction::Forward, Direction::Backward].map(|direction| {
        let mut scan = simulation.run_until(series.scan(.., direction)).unwrap();
        assert!(simulation.run_until(scan.next()).unwrap().is_some());
        scan
    });
    let mut behind = simulation.run_until(series.scan(560 * SECOND.., Direction::Forward)).unwrap();
    simulation.run_until(store.forget(&Retention::default(), 600 * SECOND)).unwrap();
    simulation.run_for(Duration::from_secs(20));
    let why = loop {
        match simulation.run_until(groups.next()) {
            Ok(group) => assert!(group.is_some(), "it ends as if all were there"),
            Err(why) => break why,
        }
    };
    assert!(why.to_string().contains("ask again"), "{why}");
    for scan in &mut scans {
        let why = loop {
            match simulation.run_until(scan.next()) {
                Ok(points) => assert!(points.is_some(), "it ends as if all were there"),
                Err(why) => break why,
            }
        };
        assert!(why.to_string().contains("ask again"), "{why}");
    }
    // What lies behind all that goes is read as before.
    let mut count = 0;
    while let Some(points) = simulation.run_until(behind.next()).unwrap() {
        count += points.len();
    }
    assert_eq!(count, 40);
}

/// Rules of a later version kept the owner from opening: no points were taken.
#[test]
fn rules_that_nobody_can_read_stop_rollups_and_nothing_else() {
    let (db, store, series) = rolled();
    block_on(store.forget(&Retention::default(), 600 * SECOND)).unwrap();
    assert_eq!(count(&series), 600);
    let rules = replace_rules(&db, b"{\"format\":2}");
    let store = block_on(SeriesStore::open_with(&db, settings(50))).unwrap();
    let series = block_on(store.series("m a=1")).unwrap();
    series.append(700 * SECOND, 1.0).unwrap();
    series.append(560 * SECOND + 1, 1.0).unwrap();
    block_on(series.delete_range(580 * SECOND..581 * SECOND)).unwrap();
    block_on(store.sync()).unwrap();
    block_on(store.roll_up()).unwrap();
    let retention: Retention = "*=1s".parse().unwrap();
    let why = block_on(store.forget(&retention, 10_000 * SECOND)).unwrap_err();
    assert!(why.to_string().contains("format 1 expected"), "{why}");
    assert!((61..=81).contains(&raw_points(&series)), "{}", raw_points(&series));
    // Whoever can read them has all that was there, and what changed meanwhile.
    replace_rules(&db, &rules);
    block_on(store.roll_up()).unwrap();
    assert_eq!(count(&series), 601);
    block_on(store.check_invariants()).unwrap();
}
