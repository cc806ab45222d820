//! Series in a database against a map: appends in and out of order, deletes, syncs, and openings
//! that come without a farewell.
//!
//! Nothing is committed unless the test asks for it, so what a new opening finds is exactly what
//! the last sync covered. All values are small multiples of 1/4, whose sums do not depend on the
//! order. The seed is in each message.

use plinth::{Database, Local, TransactionOption};
use plinth_env::block_on;
use plinth_series::workload::Random;
use plinth_series::{
    Direction, Error, Point, Query, Series, SeriesStore, Settings, Summary, Value,
};
use plinth_types::system::{self, SERIES_PREFIX};
use plinth_types::{KeyRange, RangeLock, RangeLocks};
use std::collections::BTreeMap;
use std::future::Future;
use std::task::Poll;
use std::time::Duration;

const NAMES: [&str; 3] = ["load host=a", "load host=b os=x", "!odd host=a"];
type Points = BTreeMap<i64, Value>;

struct Model {
    seed: u64,
    random: Random,
    db: Database,
    settings: Settings,
    store: SeriesStore,
    series: Vec<Series>,
    /// What is in each series now, and what the last sync covered.
    now: Vec<Points>,
    synced: Vec<Points>,
    time: i64,
}

fn open(db: &Database, settings: &Settings) -> (SeriesStore, Vec<Series>) {
    let store = block_on(SeriesStore::open_with(db, settings.clone())).unwrap();
    let series = block_on(store.all_series(&NAMES)).unwrap();
    (store, series)
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let settings = Settings {
            leaf_points: 1 + random.below(40) as usize,
            tail_bytes: [200, 2000, 1 << 20][random.below(3) as usize],
            open_points: [20, 1000, 1 << 20][random.below(3) as usize],
            commit_every: None,
            ..Settings::default()
        };
        let db = Local::in_memory().unwrap().into_database();
        let (store, series) = open(&db, &settings);
        let now = vec![Points::new(); NAMES.len()];
        let time = [-5000, 0, 1 << 60][random.below(3) as usize];
        Self { seed, random, db, settings, store, series, synced: now.clone(), now, time }
    }

    fn which(&mut self) -> usize {
        self.random.below(NAMES.len() as u64) as usize
    }

    fn append(&mut self) {
        let which = self.which();
        let points: Vec<Point> = (0..=self.random.below(60)).map(|_| self.point()).collect();
        let mut at = 0;
        while at < points.len() {
            let together = (1 + self.random.below(12) as usize).min(points.len() - at);
            let (taken, appended) = self.series[which].append_all(&points[at..at + together]);
            let taken = points[at..at + taken].iter();
            at += taken.len();
            self.now[which].extend(taken.map(|point| (point.time, point.value)));
            match appended {
                Ok(()) => {}
                Err(Error::Behind) => self.sync(),
                Err(error) => panic!("seed {}: {error}", self.seed),
            }
        }
    }

    /// The next point, which may be late, at a time that there was before, or of another kind than
    /// the one before.
    fn point(&mut self) -> Point {
        self.time += 1 + self.random.below(4) as i64;
        let late = match self.random.below(30) {
            0 => self.random.below(3000) as i64,
            1 => self.random.below(20) as i64,
            _ => 0,
        };
        let value = match self.random.below(20) {
            0 => Value::Float(f64::NAN),
            1..4 => Value::Integer(self.random.below(100) as i64),
            _ => Value::Float(self.random.below(800) as f64 / 4.0),
        };
        Point { time: self.time - late, value }
    }

    fn sync(&mut self) {
        block_on(self.store.sync()).unwrap();
        block_on(self.store.check_invariants()).unwrap();
        self.synced.clone_from(&self.now);
    }

    /// The process is gone, and another begins.
    fn reopen(&mut self) {
        (self.store, self.series) = open(&self.db, &self.settings);
        block_on(self.store.check_invariants()).unwrap();
        self.now.clone_from(&self.synced);
    }

    fn range(&mut self) -> std::ops::Range<i64> {
        let span = 1 + self.random.below(20_000) as i64;
        let first = self.time - self.random.below(20_000) as i64;
        if self.random.below(4) == 0 { i64::MIN..first } else { first..first.saturating_add(span) }
    }

    fn delete(&mut self) {
        let (which, range) = (self.which(), self.range());
        block_on(self.series[which].delete_range(range.clone())).unwrap();
        block_on(self.store.check_invariants()).unwrap();
        self.now[which].retain(|time, _| !range.contains(time));
        self.synced.clone_from(&self.now);
    }

    fn query(&mut self) {
        let which = self.which();
        let range = if self.random.below(2) == 0 { i64::MIN..i64::MAX } else { self.range() };
        let context = format!("seed {}, series {which}, {range:?}", self.seed);
        let series = &self.series[which];
        let points: Vec<Point> = self.now[which]
            .range(range.clone())
            .map(|(time, value)| Point { time: *time, value: *value })
            .collect();
        let summary = block_on(series.aggregate(range.clone())).unwrap();
        assert_eq!(summary, Summary::of_points(points.iter().copied()), "{context}");
        for direction in [Direction::Forward, Direction::Backward] {
            let found =
                block_on(async { series.scan(range.clone(), direction).await?.collect().await })
                    .unwrap();
            let mut expected = points.clone();
            if direction == Direction::Backward {
                expected.reverse();
            }
            assert_eq!(found, expected, "{context} {direction:?}");
        }
        let step = 1 + self.random.below(2000) as i64;
        // Also where that is the least time: it is named, and the steps begin there.
        let (origin, long) = (i128::from(range.start), i128::from(step));
        let mut buckets: BTreeMap<i64, Vec<Point>> = BTreeMap::new();
        for point in points {
            let time = i128::from(point.time);
            let bucket = i64::try_from(time - (time - origin).rem_euclid(long)).unwrap();
            buckets.entry(bucket).or_default().push(point);
        }
        let expected: Vec<(i64, Summary)> = buckets
            .into_iter()
            .filter_map(|(bucket, points)| Some((bucket, Summary::of_points(points.into_iter())?)))
            .collect();
        let found = block_on(async {
            let mut groups = series.group_aggregate(range, step as u64).await?;
            let mut found = Vec::new();
            while let Some(bucket) = groups.next().await? {
                found.push(bucket);
            }
            Ok::<_, Error>(found)
        });
        assert_eq!(found.unwrap(), expected, "{context} step {step}");
    }

    /// All points of all series, so that the step that loses one is told.
    fn check(&self, operation: u64) {
        for (which, series) in self.series.iter().enumerate() {
            let found =
                block_on(async { series.scan(.., Direction::Forward).await?.collect().await })
                    .unwrap();
            let expected =
                self.now[which].iter().map(|(time, value)| Point { time: *time, value: *value });
            assert_eq!(
                found,
                expected.collect::<Vec<_>>(),
                "seed {}, series {which}, operation {operation}",
                self.seed
            );
        }
    }

    fn step(&mut self) {
        let operation = self.random.below(40);
        match operation {
            0 => self.reopen(),
            1 => self.delete(),
            2..12 => self.sync(),
            12..18 => self.query(),
            _ => self.append(),
        }
        self.check(operation);
    }
}

#[test]
fn every_query_agrees_with_a_map_across_openings() {
    for seed in 0..40 {
        let mut model = Model::new(seed);
        for _ in 0..250 {
            model.step();
        }
        model.sync();
        model.reopen();
        for _ in 0..6 {
            model.query();
        }
    }
}

/// Two leaves of one series in one flush: a full one, and the rest that a delete seals. The second
/// was once taken for a repetition of the first.
#[test]
fn a_delete_right_behind_a_full_leaf_loses_nothing() {
    let db = Local::in_memory().unwrap().into_database();
    let settings = Settings { leaf_points: 4, commit_every: None, ..Settings::default() };
    let store = block_on(SeriesStore::open_with(&db, settings)).unwrap();
    let series = block_on(store.series("m a=1")).unwrap();
    for time in 0..10 {
        series.append(time, time).unwrap();
    }
    block_on(series.delete_range(..1)).unwrap();
    assert_eq!(block_on(series.aggregate(..)).unwrap().map(|summary| summary.sum), Some(45.0));
}

/// A range that names the least or the greatest time begins there, and its steps with it; one
/// without an end has them counted from 1970.
#[test]
fn steps_are_counted_from_an_end_that_is_named() {
    let db = Local::in_memory().unwrap().into_database();
    let store = block_on(SeriesStore::open_with(&db, Settings::default())).unwrap();
    let series = block_on(store.series("m a=1")).unwrap();
    let (first, last) = (i64::MIN, i64::MAX);
    for time in [first, first + 1, first + 3, last - 3, last - 1, last] {
        series.append(time, 1).unwrap();
    }
    block_on(async {
        let mut named = series.group_aggregate(first.., 5).await.unwrap();
        let (time, summary) = named.next().await.unwrap().unwrap();
        assert_eq!((time, summary.count), (first, 3));
        let mut open = series.group_aggregate(.., 5).await.unwrap();
        assert_eq!(open.next().await.unwrap().unwrap().1.count, 2, "a multiple of 5 lies between");
        let mut named = series.group_aggregate_backward(..=last, 5).await.unwrap();
        let (time, summary) = named.next().await.unwrap().unwrap();
        assert_eq!((time, summary.count), (last, 3));
    });
}

/// All late points of a series that came between two flushes went into one transaction, which was
/// too large from about a million on, and then nothing was saved any more.
#[test]
fn many_late_points_of_one_series_are_saved() {
    let db = Local::in_memory().unwrap().into_database();
    let settings = Settings { commit_every: None, ..Settings::default() };
    let store = block_on(SeriesStore::open_with(&db, settings.clone())).unwrap();
    let (count, last) = (1_300_000_i64, 10_000_000_000);
    let series = block_on(store.series("m a=1")).unwrap();
    // The leaf is full, so what comes before it is late.
    for time in 0..settings.leaf_points as i64 {
        series.append(last + time, 0).unwrap();
    }
    block_on(store.sync()).unwrap();
    let value = |n: i64| {
        Value::Float(f64::from_bits(
            0x3ff0_0000_0000_0000 | (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12,
        ))
    };
    for n in 0..count {
        // Not in order: a stride through all of them.
        let n = n * 7_919 % count;
        series.append(n * 1000, value(n)).unwrap();
    }
    block_on(store.sync()).unwrap();
    drop(store);
    let store = block_on(SeriesStore::open_with(&db, settings)).unwrap();
    let series = block_on(store.series("m a=1")).unwrap();
    let found =
        block_on(async { series.scan(..last, Direction::Forward).await?.collect().await }).unwrap();
    let expected = (0..count).map(|n| (n * 1000, value(n)));
    assert!(
        found.len() == count as usize
            && found.iter().map(|point| (point.time, point.value)).eq(expected)
    );
}

/// Nothing overflows at the ends of time, whatever is asked about them.
#[test]
fn the_first_and_the_last_nanosecond_are_points_like_others() {
    let db = Local::in_memory().unwrap().into_database();
    let settings = Settings { leaf_points: 2, commit_every: None, ..Settings::default() };
    let store = block_on(SeriesStore::open_with(&db, settings)).unwrap();
    let series = block_on(store.series("m a=1")).unwrap();
    let times = [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX];
    // In order, then once more as late points.
    for round in 0..2 {
        for time in times {
            series.append(time, round).unwrap();
        }
        block_on(store.sync()).unwrap();
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let mut found =
            block_on(async { series.scan(.., direction).await?.collect().await }).unwrap();
        if direction == Direction::Backward {
            found.reverse();
        }
        assert!(
            found
                .iter()
                .map(|point| (point.time, point.value))
                .eq(times.map(|time| (time, 1.into())))
        );
    }
    for step in [1, 3_600_000_000_000, u64::MAX] {
        block_on(async {
            let mut forward = series.group_aggregate(.., step).await.unwrap();
            let mut backward = series.group_aggregate_backward(.., step).await.unwrap();
            let (mut there, mut back) = (0, 0);
            while let Some((_, summary)) = forward.next().await.unwrap() {
                there += summary.count;
            }
            while let Some((_, summary)) = backward.next().await.unwrap() {
                back += summary.count;
            }
            assert_eq!((there, back), (6, 6), "step {step}");
        });
    }
    for from in ["-9223372036854775808", "9223372036854775807"] {
        let to = if from.starts_with('-') { "9223372036854775807" } else { "-9223372036854775808" };
        for kind in [
            r#""select": "m""#,
            r#""group-aggregate": {"metric": "m", "step": "1h", "func": "count"}"#,
        ] {
            let query = format!(r#"{{{kind}, "range": {{"from": "{from}ns", "to": "{to}ns"}}}}"#);
            let query = Query::parse(query.as_bytes()).unwrap();
            let text =
                block_on(async { store.query(&query).await.unwrap().collect().await }).unwrap();
            assert!(text.len() > 100, "{}", String::from_utf8_lossy(&text));
        }
    }
    block_on(series.delete_range(i64::MAX..)).unwrap();
    block_on(series.delete_range(..=i64::MIN)).unwrap();
    assert_eq!(block_on(series.aggregate(..)).unwrap().map(|summary| summary.count), Some(4));
}

#[test]
fn a_directory_keeps_what_was_synced() {
    let directory = block_on(plinth_env::Env::real().files().temporary_dir("series")).unwrap();
    let name = "temperature room=7";
    for round in 0..3 {
        let local = Local::open(directory.path()).unwrap();
        let store = block_on(SeriesStore::open(local.database())).unwrap();
        let series = block_on(store.series(name)).unwrap();
        let before = block_on(series.aggregate(..)).unwrap().map_or(0, |summary| summary.count);
        assert_eq!(before, round * 5000);
        for index in 0..5000 {
            series.append((round * 5000 + index) as i64, 0.25).unwrap();
        }
        block_on(store.sync()).unwrap();
        drop((series, store));
        local.close().unwrap();
    }
}

#[test]
fn what_was_appended_is_committed_without_being_asked() {
    let db = Local::in_memory().unwrap().into_database();
    let store = block_on(SeriesStore::open(&db)).unwrap();
    let series = block_on(store.series("m a=1")).unwrap();
    series.append(5, 1.5).unwrap();
    while tail_bytes(&db) == 0 {
        std::thread::yield_now();
    }
    let again = block_on(SeriesStore::open(&db)).unwrap();
    let series = block_on(again.series("m a=1")).unwrap();
    assert_eq!(block_on(series.aggregate(..)).unwrap().map(|summary| summary.sum), Some(1.5));
}

/// Somebody asks for a sync and goes away, before or behind its commit: what was written twice then
/// is there once, whole nodes among it.
#[test]
fn a_sync_that_is_dropped_on_its_way_is_made_good_by_the_next() {
    for polls in 1..8 {
        let settings = Settings { leaf_points: 1, commit_every: None, ..Settings::default() };
        let db = Local::in_memory().unwrap().into_database();
        let (store, series) = open(&db, &settings);
        for time in 0..200 {
            series[0].append(time, 1.0).unwrap();
        }
        let mut sync = Box::pin(store.sync());
        for _ in 0..polls {
            let polled =
                block_on(std::future::poll_fn(|context| Poll::Ready(sync.as_mut().poll(context))));
            if polled.is_ready() {
                break;
            }
            block_on(plinth_env::Env::real().sleep(Duration::from_millis(5)));
        }
        drop(sync);
        block_on(store.sync()).unwrap();
        series[0].append(200, 1.0).unwrap();
        block_on(store.sync()).unwrap();
        drop((store, series));
        let (_store, series) = open(&db, &settings);
        let counted =
            |range| block_on(series[0].aggregate(range)).unwrap().map(|summary| summary.count);
        assert_eq!((counted(0..300), counted(3..150)), (Some(201), Some(147)), "{polls} polls");
    }
}

/// A store, and so many series in it.
fn hosts(db: &Database, settings: &Settings, count: usize) -> (SeriesStore, Vec<Series>) {
    let store = block_on(SeriesStore::open_with(db, settings.clone())).unwrap();
    let names: Vec<String> = (0..count).map(|host| format!("load host={host}")).collect();
    let series =
        block_on(store.all_series(&names.iter().map(String::as_str).collect::<Vec<_>>())).unwrap();
    (store, series)
}

/// A point for each of these series, and a sync: how many points it sealed.
fn append_and_sync(
    store: &SeriesStore,
    series: &[Series],
    time: i64,
    random: &mut Random,
) -> usize {
    for series in series {
        series.append(time, random.unit()).unwrap();
    }
    let before = store.stats().open_points;
    block_on(store.sync()).unwrap();
    before - store.stats().open_points
}

/// Each batch of the tail is needed by hundreds of series here, all of which had to be sealed at
/// once for the first of them to go.
#[test]
fn among_many_series_a_sync_seals_little_more_than_came_and_the_tail_stays_bounded() {
    const SERIES: usize = 3000;
    const TOGETHER: usize = 100;
    let settings =
        Settings { leaf_points: 64, tail_bytes: 30_000, commit_every: None, ..Settings::default() };
    let db = Local::in_memory().unwrap().into_database();
    let (store, series) = hosts(&db, &settings, SERIES);
    let (mut sealed, mut most_open, mut random) = (0, 0, Random::new(6));
    for round in 0..20 {
        for together in series.chunks(TOGETHER) {
            let now = append_and_sync(&store, together, round, &mut random);
            // A leaf may pass it by what it has, 20 points at most.
            let most = 2 * TOGETHER + settings.leaf_points + 20;
            assert!(now <= most, "{now} sealed in round {round}, {most} expected");
            (sealed, most_open) = (sealed + now, most_open.max(store.stats().open_points));
        }
    }
    assert!(sealed > SERIES * 5, "{sealed} points were sealed before their leaves were full");
    // A point of a series of its own takes ten bytes of the tail, about.
    assert!(most_open < 2 * settings.tail_bytes / 10 + SERIES, "{most_open} points in no leaf");
    for series in [&series[0], &series[SERIES - 1]] {
        assert_eq!(block_on(series.aggregate(..)).unwrap().map(|summary| summary.count), Some(20));
    }
}

/// Bytes of the tail.
fn tail_bytes(db: &Database) -> usize {
    let range = &plinth::RangeOptions::prefix([SERIES_PREFIX, &[0x15, 10]].concat());
    let db = db.clone().with_system_keys();
    let rows = db.transact(|tr| async move { tr.range(range.clone()).collect().await });
    block_on(rows).unwrap().iter().map(|row| row.value.len()).sum()
}

/// All series have their first points in one batch, whose bytes come back only when none of them
/// needs it any more.
#[test]
fn a_batch_that_all_series_need_does_not_make_one_sync_seal_them_all() {
    const SERIES: usize = 2000;
    const TOGETHER: usize = 100;
    let settings =
        Settings { leaf_points: 64, tail_bytes: 80_000, commit_every: None, ..Settings::default() };
    let db = Local::in_memory().unwrap().into_database();
    let (store, series) = hosts(&db, &settings, SERIES);
    let mut random = Random::new(7);
    for series in &series {
        series.append(0, random.unit()).unwrap();
    }
    block_on(store.sync()).unwrap();
    let mut sealed = 0;
    for round in 1..=6 {
        for together in series.chunks(TOGETHER) {
            let now = append_and_sync(&store, together, round, &mut random);
            // A leaf may pass it by what it has, 7 points at most.
            let most = 2 * TOGETHER + settings.leaf_points + 7;
            assert!(now <= most, "{now} sealed in round {round}, {most} expected");
            sealed += now;
        }
    }
    assert!(sealed > SERIES, "{sealed} points were sealed before their leaves were full");
}

/// What came first takes a byte a point and what comes then ten, so that to seal twice as many
/// points as come is not enough.
#[test]
fn the_tail_is_never_more_than_half_as_long_again() {
    const SERIES: usize = 1000;
    const TOGETHER: usize = 100;
    let settings =
        Settings { leaf_points: 64, tail_bytes: 60_000, commit_every: None, ..Settings::default() };
    let db = Local::in_memory().unwrap().into_database();
    let (store, series) = hosts(&db, &settings, SERIES);
    for series in &series {
        let points: Vec<Point> =
            (0..40).map(|time| Point { time, value: Value::Integer(1) }).collect();
        assert!(matches!(series.append_all(&points), (40, Ok(()))));
    }
    block_on(store.sync()).unwrap();
    let (mut random, mut longest) = (Random::new(8), 0);
    for round in 40..56 {
        for together in series.chunks(TOGETHER) {
            append_and_sync(&store, together, round, &mut random);
            longest = longest.max(tail_bytes(&db));
        }
    }
    assert!(longest > settings.tail_bytes, "{longest} bytes: the tail never had to become shorter");
    assert!(longest <= settings.tail_bytes * 3 / 2, "the tail had {longest} bytes");
}

/// The point behind the full leaf came in an earlier batch of the tail, which goes with the leaf's
/// points.
#[test]
fn what_lies_behind_a_full_leaf_stays_in_the_tail() {
    let db = Local::in_memory().unwrap().into_database();
    let settings = Settings { leaf_points: 10, commit_every: None, ..Settings::default() };
    let store = block_on(SeriesStore::open_with(&db, settings.clone())).unwrap();
    let series = block_on(store.series("m a=1")).unwrap();
    for times in [&[100, 101][..], &[1, 2, 3, 4, 5, 6, 7, 8, 9]] {
        for time in times {
            series.append(*time, *time).unwrap();
        }
        block_on(store.sync()).unwrap();
    }
    assert_eq!(store.stats().open_points, 1);
    // Opening takes them over as they would be after a crash.
    let store = block_on(SeriesStore::open_with(&db, settings)).unwrap();
    assert_eq!(store.stats().open_points, 1);
    let series = block_on(store.series("m a=1")).unwrap();
    let points =
        block_on(async { series.scan(.., Direction::Forward).await?.collect().await }).unwrap();
    assert_eq!(
        points.iter().map(|point| point.time).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 100, 101]
    );
}

#[test]
fn who_appends_more_than_may_wait_is_told_and_loses_nothing() {
    let db = Local::in_memory().unwrap().into_database();
    let settings = Settings {
        leaf_points: 10,
        unsaved_points: 100,
        commit_every: None,
        ..Settings::default()
    };
    let store = block_on(SeriesStore::open_with(&db, settings)).unwrap();
    let series = block_on(store.all_series(&["m a=1", "m a=2"])).unwrap();
    let points = |times: std::ops::Range<i64>| -> Vec<Point> {
        times.map(|time| Point { time, value: Value::Integer(time) }).collect()
    };
    assert!(matches!(series[0].append_all(&points(100..160)), (60, Ok(()))));
    assert!(matches!(series[1].append_all(&points(100..160)), (40, Err(Error::Behind))));
    assert!(matches!(series[0].append(200, 1), Err(Error::Behind)));
    assert_eq!(store.stats().unsaved_points, 100);
    block_on(store.sync()).unwrap();
    assert_eq!(store.stats().unsaved_points, 0);
    // Late ones are counted too, and so are those in place of others.
    assert!(matches!(series[0].append_all(&points(0..60)), (60, Ok(()))));
    assert!(matches!(series[1].append_all(&points(130..140)), (10, Ok(()))));
    assert!(matches!(series[1].append_all(&points(140..180)), (30, Err(Error::Behind))));
    block_on(store.sync()).unwrap();
    let counts = series.iter().map(|series| block_on(series.aggregate(..)).unwrap().unwrap().count);
    assert_eq!(counts.collect::<Vec<_>>(), [120, 70]);
}

/// Whatever they are, a sync seals enough of them for more to come.
#[test]
fn points_in_no_leaf_are_never_more_than_twice_what_they_should_be() {
    let db = Local::in_memory().unwrap().into_database();
    let settings =
        Settings { leaf_points: 1000, open_points: 100, commit_every: None, ..Settings::default() };
    let store = block_on(SeriesStore::open_with(&db, settings)).unwrap();
    let series = block_on(store.all_series(&NAMES)).unwrap();
    let points: Vec<Point> =
        (0..90).map(|time| Point { time, value: Value::Integer(time) }).collect();
    assert!(matches!(series[0].append_all(&points), (90, Ok(()))));
    assert!(matches!(series[1].append_all(&points), (90, Ok(()))));
    assert!(matches!(series[2].append_all(&points), (20, Err(Error::Behind))));
    assert!(matches!(series[0].append(90, 1), Err(Error::Behind)));
    block_on(store.sync()).unwrap();
    assert!(store.stats().open_points <= 150, "{} points in no leaf", store.stats().open_points);
    assert!(matches!(series[2].append_all(&points[20..60]), (40, Ok(()))));
    let counts = series.iter().map(|series| block_on(series.aggregate(..)).unwrap().unwrap().count);
    assert_eq!(counts.collect::<Vec<_>>(), [90, 90, 60]);
}

#[test]
fn a_series_takes_no_more_than_a_leaf_can_have_before_it_is_saved() {
    let db = Local::in_memory().unwrap().into_database();
    let settings = Settings { commit_every: None, ..Settings::default() };
    let store = block_on(SeriesStore::open_with(&db, settings)).unwrap();
    let series = block_on(store.series("m a=1")).unwrap();
    let points: Vec<Point> =
        (0..70_000).map(|time| Point { time, value: Value::Integer(time) }).collect();
    let (taken, result) = series.append_all(&points);
    assert!(matches!((taken, result), (65_536, Err(Error::Behind))), "{taken}");
    block_on(store.sync()).unwrap();
    assert!(matches!(series.append_all(&points[taken..]), (4_464, Ok(()))));
    assert_eq!(block_on(series.aggregate(..)).unwrap().map(|summary| summary.count), Some(70_000));
}

/// Its commit failed for ever, and that of all others with it.
#[test]
fn a_leaf_that_would_not_fit_a_value_becomes_several() {
    let db = Local::in_memory().unwrap().into_database();
    let settings = Settings { leaf_points: 1 << 16, commit_every: None, ..Settings::default() };
    let mut random = Random::new(3);
    let mut time = 0;
    // Times and values that don't compress.
    let mut point = || {
        time += 1 + (random.next() >> 20) as i64;
        Point { time, value: Value::Float(f64::from_bits(random.next() >> 2)) }
    };
    let all: Vec<Point> = (0..150_000).map(|_| point()).collect();
    block_on(async {
        let store = SeriesStore::open_with(&db, settings.clone()).await.unwrap();
        let series = store.series("noise").await.unwrap();
        for some in all.chunks(1 << 15) {
            for point in some {
                series.append(point.time, point.value).unwrap();
            }
            store.sync().await.unwrap();
        }
        // As it is after a change of the settings, and where the tail has to become shorter.
        drop(store);
        let small = Settings { tail_bytes: 1, ..settings };
        let store = SeriesStore::open_with(&db, small).await.unwrap();
        let series = store.series("noise").await.unwrap();
        store.sync().await.unwrap();
        let found = series.scan(.., Direction::Forward).await.unwrap().collect().await.unwrap();
        assert!(found == all);
        store.check_invariants().await.unwrap();
    });
}

#[test]
fn who_was_succeeded_can_write_no_more() {
    let db = Local::in_memory().unwrap().into_database();
    let quiet = Settings { commit_every: None, ..Settings::default() };
    let first = block_on(SeriesStore::open_with(&db, quiet.clone())).unwrap();
    let mine = block_on(first.series("m a=1")).unwrap();
    mine.append(1, 1).unwrap();
    block_on(first.sync()).unwrap();
    mine.append(2, 2).unwrap();
    let second = block_on(SeriesStore::open_with(&db, quiet)).unwrap();
    assert!(matches!(block_on(first.sync()), Err(Error::NotOwner)));
    assert!(matches!(block_on(first.series("m a=2")), Err(Error::NotOwner)));
    assert!(matches!(mine.append(3, 3), Err(Error::NotOwner)));
    let theirs = block_on(second.series("m a=1")).unwrap();
    let points =
        block_on(async { theirs.scan(.., Direction::Forward).await?.collect().await }).unwrap();
    assert_eq!(points, [Point { time: 1, value: Value::Integer(1) }]);
}

/// An owner that wrote nothing never learned that it was succeeded, and told for ever what was true
/// once.
#[test]
fn who_was_succeeded_and_is_at_rest_answers_nothing_more() {
    let db = Local::in_memory().unwrap().into_database();
    let quiet = Settings { commit_every: None, ..Settings::default() };
    for is_known in [false, true] {
        let first = block_on(SeriesStore::open_with(&db, quiet.clone())).unwrap();
        let mine = block_on(first.series("m a=1")).unwrap();
        mine.append(1, 1).unwrap();
        block_on(first.sync()).unwrap();
        let second = block_on(SeriesStore::open_with(&db, quiet.clone())).unwrap();
        block_on(second.series("m a=1")).unwrap().append(2, 2).unwrap();
        block_on(second.sync()).unwrap();
        if is_known {
            assert!(matches!(block_on(first.sync()), Ok(()) | Err(Error::NotOwner)));
            mine.append(3, 3).unwrap();
            assert!(matches!(block_on(first.sync()), Err(Error::NotOwner)));
        }
        assert!(matches!(block_on(mine.aggregate(..)), Err(Error::NotOwner)), "{is_known}");
        let query =
            Query::parse(br#"{"aggregate": {"m": "count"}, "range": {"from": 0, "to": 9}}"#)
                .unwrap();
        let rows = block_on(async { first.query(&query).await?.collect().await });
        assert!(rows.is_err(), "{is_known}");
        assert!(matches!(first.failure(), Some(Error::NotOwner)));
        let view = block_on(SeriesStore::view(&db, quiet.clone())).unwrap();
        let theirs = block_on(view.existing("m a=1")).unwrap().unwrap();
        let summary = block_on(theirs.aggregate(..)).unwrap();
        assert_eq!(summary.map(|summary| summary.count), Some(2));
    }
}

#[test]
fn series_are_found_by_their_tags_and_can_be_deleted() {
    let db = Local::in_memory().unwrap().into_database();
    let store = block_on(SeriesStore::open(&db)).unwrap();
    let names = [
        "cpu host=a os=x",
        "cpu os=y host=b",
        "cpu host=c os=x",
        "mem host=a os=x",
        "cpu host=a os=x",
    ];
    let series = block_on(store.all_series(&names)).unwrap();
    assert_eq!(series[0].name(), series[4].name());
    let find = |metric: &str, tags: &[(&str, &[&str])]| -> Vec<String> {
        block_on(store.find(metric, tags)).unwrap().iter().map(ToString::to_string).collect()
    };
    assert_eq!(find("cpu", &[]), ["cpu host=a os=x", "cpu host=b os=y", "cpu host=c os=x"]);
    assert_eq!(find("cpu", &[("host", &["a", "b"]), ("os", &["x"])]), ["cpu host=a os=x"]);
    assert_eq!(find("cpu", &[("host", &["z"])]), [""; 0]);
    assert_eq!(find("disk", &[]), [""; 0]);

    series[0].append(1, 1.0).unwrap();
    block_on(store.delete(&series[0])).unwrap();
    assert!(matches!(series[0].append(2, 1.0), Err(Error::Deleted)));
    assert_eq!(find("cpu", &[("os", &["x"])]), ["cpu host=c os=x"]);
    let anew = block_on(store.series("cpu host=a os=x")).unwrap();
    assert_eq!(block_on(anew.aggregate(..)).unwrap(), None);
    assert!(matches!(block_on(store.series("cpu host")), Err(Error::Name { .. })));
}

#[test]
fn futures_can_be_sent_to_other_threads() {
    fn sent<T: Send>(_: &T) {}
    let db = Local::in_memory().unwrap().into_database();
    let store = block_on(SeriesStore::open(&db)).unwrap();
    let series = block_on(store.series("m a=1")).unwrap();
    sent(&SeriesStore::open(&db));
    sent(&store.sync());
    sent(&store.delete(&series));
    sent(&series.delete_range(..));
    sent(&series.scan(.., Direction::Forward));
    sent(&series.group_aggregate(.., 1));
}

/// What is under restore is told as that, not as a database that somebody has to unlock.
#[test]
fn series_whose_keys_are_locked_say_so() {
    let db = Local::in_memory().unwrap().into_database();
    let range = KeyRange::new(&b""[..], &b"\xff"[..]);
    let locks = RangeLocks::new(vec![RangeLock { range, owner: [1; 16] }]);
    db.transact_blocking(|tr| {
        tr.set_option(TransactionOption::AccessSystemKeys)?;
        tr.set_option(TransactionOption::LockAware)?;
        tr.set(system::RANGE_LOCKS, locks.value());
        Ok(())
    })
    .unwrap();
    let Err(error) = block_on(SeriesStore::open(&db)) else { panic!("its keys are locked") };
    let told = error.to_string();
    assert!(matches!(error, Error::Locked(_)), "{told}");
    assert!(
        told.contains("1242") && told.contains("restore") && !told.contains("unlock UID"),
        "{told}"
    );
}
