//! Deletes, and handles of series however they were come by: what is appended through one that may
//! append is there afterwards, what is deleted is not, and nothing else goes with it.
//!
//! Nothing is committed unless the test asks for it, so what a new opening finds is exactly what
//! was synced. The seed is in each message.

use plinth::{Builder, Database, Local};
use plinth_env::simulated::Simulation;
use plinth_env::sync::race;
use plinth_env::{Env, block_on};
use plinth_series::ingest::{Memory, Protocol, Session};
use plinth_series::workload::Random;
use plinth_series::{Direction, Error, Retention, Series, SeriesStore, Settings, event};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn settings() -> Settings {
    Settings { commit_every: None, leaf_points: 4, ..Settings::default() }
}

fn open(db: &Database) -> SeriesStore {
    block_on(SeriesStore::open_with(db, settings())).unwrap()
}

fn times(series: &Series) -> Vec<i64> {
    let points =
        block_on(async { series.scan(.., Direction::Forward).await?.collect().await }).unwrap();
    points.into_iter().map(|point| point.time).collect()
}

fn append(series: &Series, times: impl IntoIterator<Item = i64>) {
    times.into_iter().for_each(|time| series.append(time, time).unwrap());
}

fn existing(store: &SeriesStore, name: &str) -> Series {
    block_on(store.existing(name)).unwrap().expect("there is such a series")
}

fn browsed(store: &SeriesStore, metric: &str) -> Series {
    block_on(store.browse(Some(metric), &[], 0)).unwrap().0.pop().expect("there is such a series")
}

/// A handle from `existing` knew nothing of the tree: what was appended through it took the place
/// of leaves that were there, and was lost.
#[test]
fn a_series_that_was_looked_for_is_written_to_like_any_other() {
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db);
    append(&block_on(store.series("m a=1")).unwrap(), 0..10);
    block_on(store.sync()).unwrap();
    let store = open(&db);
    let found = existing(&store, "m a=1");
    append(&found, 10..30);
    assert!(times(&found).into_iter().eq(0..30));
    block_on(store.sync()).unwrap();
    // Everybody has the same one.
    append(&block_on(store.series("m a=1")).unwrap(), 30..33);
    append(&existing(&store, "m a=1"), 33..35);
    block_on(store.sync()).unwrap();
    assert!(block_on(store.existing("m a=2")).unwrap().is_none());
    assert!(times(&existing(&open(&db), "m a=1")).into_iter().eq(0..35));
}

/// A handle from `browse` has nothing of the series in memory; what was appended to it would be
/// lost, and what it deleted stayed.
#[test]
fn a_series_that_was_browsed_can_be_deleted_from_and_not_be_appended_to() {
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db);
    // All of it in leaves, so that the next opening has nothing of it in memory.
    append(&block_on(store.series("m a=1")).unwrap(), 0..32);
    block_on(store.sync()).unwrap();
    append(&block_on(store.series("m a=1")).unwrap(), [5, 7]);
    block_on(store.sync()).unwrap();
    for is_opened in [false, true] {
        let store = open(&db);
        let browsed = browsed(&store, "m");
        assert!(matches!(browsed.append(99, 1), Err(Error::ReadOnly)));
        let opened = is_opened.then(|| block_on(store.series("m a=1")).unwrap());
        let before = times(&browsed);
        let middle = before[before.len() / 2];
        block_on(browsed.delete_range(..middle)).unwrap();
        assert_eq!(times(&browsed)[0], middle, "{is_opened}");
        if let Some(opened) = opened {
            append(&opened, 100..110);
            block_on(store.delete(&browsed)).unwrap();
            assert!(matches!(opened.append(111, 1), Err(Error::Deleted)));
            assert!(block_on(store.existing("m a=1")).unwrap().is_none());
        }
    }
    assert!(block_on(open(&db).existing("m a=1")).unwrap().is_none());
}

/// Deleting through a handle of the one before took the name of the one that there is.
#[test]
fn an_old_handle_deletes_no_new_series_of_its_name() {
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db);
    let old = block_on(store.series("m a=1")).unwrap();
    append(&old, 0..3);
    block_on(store.delete(&old)).unwrap();
    let new = block_on(store.series("m a=1")).unwrap();
    append(&new, 3..6);
    assert!(matches!(block_on(store.delete(&old)), Err(Error::Deleted)));
    append(&new, 6..9);
    block_on(store.sync()).unwrap();
    assert!(times(&existing(&open(&db), "m a=1")).into_iter().eq(3..9));
    block_on(store.delete(&new)).unwrap_err();
}

/// Each delete sealed what was in the series' open leaf, so retention left small leaves behind, an
/// hour's worth each.
#[test]
fn a_delete_that_is_far_from_the_open_leaf_leaves_it_open() {
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db);
    let series = block_on(store.series("m a=1")).unwrap();
    append(&series, 0..10);
    block_on(store.sync()).unwrap();
    assert_eq!(store.stats().open_points, 2);
    block_on(series.delete_range(..7)).unwrap();
    assert_eq!((store.stats().open_points, times(&series)), (2, vec![7, 8, 9]));
    block_on(series.delete_range(9..)).unwrap();
    assert_eq!((store.stats().open_points, times(&series)), (0, vec![7, 8]));
    // Late points, points of leaves and of the open one: what is deleted stays so.
    append(&series, [20, 3, 8, 21, 4]);
    block_on(series.delete_range(4..=8)).unwrap();
    assert_eq!(times(&series), [3, 20, 21]);
    block_on(store.sync()).unwrap();
    assert_eq!(times(&existing(&open(&db), "m a=1")), [3, 20, 21]);
}

/// Who looked a name up while its series was deleted had a series without a name, and what was
/// appended to that was gone with the next start.
#[test]
fn points_that_come_while_their_series_is_deleted_again_and_again_are_kept_behind_the_last_time() {
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db);
    let (is_over, env) = (Arc::new(AtomicBool::new(false)), Env::real());
    let deletes = {
        let (store, is_over) = (store.clone(), is_over.clone());
        env.spawn("deletes", async move {
            let mut deleted = 0;
            while !is_over.load(Ordering::Relaxed) || deleted < 100 {
                if let Some(series) = store.existing("m a=1").await.unwrap() {
                    match store.delete(&series).await {
                        Ok(()) | Err(Error::Deleted) => deleted += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        })
    };
    let send = |session: &mut Session, times: std::ops::Range<i64>| {
        let text: String = times.map(|time| format!("+m a=1\n:{time}\n:{time}\n")).collect();
        assert_eq!(session.feed(text.as_bytes()), text.len());
        block_on(session.save(&store)).unwrap();
    };
    for round in 0..400 {
        // One that looks the name up each time, as a new connection does.
        let mut session = Session::new(Protocol::Resp, 1, &Memory::default());
        send(&mut session, round * 10..round * 10 + 10);
        block_on(store.sync()).unwrap();
        if round == 350 {
            is_over.store(true, Ordering::Relaxed);
        }
    }
    is_over.store(true, Ordering::Relaxed);
    while !deletes.is_finished() {
        append_any(&store);
    }
    deletes.wait().unwrap();
    let mut session = Session::new(Protocol::Resp, 1, &Memory::default());
    send(&mut session, 100_000..100_050);
    block_on(store.sync()).unwrap();
    let found = times(&existing(&open(&db), "m a=1"));
    assert!(found.into_iter().filter(|time| *time >= 100_000).eq(100_000..100_050));
}

/// So that there is something to delete.
fn append_any(store: &SeriesStore) {
    let series = block_on(store.series("m a=1")).unwrap();
    let _ = series.append(-1, 1);
}

/// A series most of whose points came late, and a map of the same: two stretches of the present
/// with a gap between them, one point behind all else, the history before, within and between, and
/// some of that in memory alone.
fn history(random: &mut Random, store: &SeriesStore) -> (Series, BTreeMap<i64, i64>) {
    let series = block_on(store.series("m a=1")).unwrap();
    let mut model = BTreeMap::new();
    let mut add = |time: i64, value: i64| {
        if matches!(series.append(time, value), Err(Error::Behind)) {
            block_on(store.sync()).unwrap();
            series.append(time, value).unwrap();
        }
        model.insert(time, value);
    };
    for time in (40_000..60_000).chain(100_000..110_000) {
        add(time, time);
    }
    block_on(store.sync()).unwrap();
    add(200_000, 1);
    for _ in 0..3 {
        for _ in 0..20_000 {
            add(random.below(150_000) as i64, -(random.below(1000) as i64));
        }
        block_on(store.sync()).unwrap();
    }
    (0..500).for_each(|_| add(random.below(150_000) as i64, 7));
    (series, model)
}

/// What scans, the aggregate and buckets of `step` say of a span is what the map says.
fn check_span(
    series: &Series,
    model: &BTreeMap<i64, i64>,
    (from, to): (i64, i64),
    step: u64,
    context: &str,
) {
    let expected: Vec<(i64, i64)> =
        model.range(from..to).map(|(time, value)| (*time, *value)).collect();
    for direction in [Direction::Forward, Direction::Backward] {
        let found =
            block_on(async { series.scan(from..to, direction).await?.collect().await }).unwrap();
        let mut found: Vec<(i64, i64)> =
            found.iter().map(|point| (point.time, point.value.as_f64() as i64)).collect();
        if direction == Direction::Backward {
            found.reverse();
        }
        assert!(
            found == expected,
            "{context} {direction:?}: {} of {}",
            found.len(),
            expected.len()
        );
    }
    let summary = block_on(series.aggregate(from..to)).unwrap();
    let sum: i64 = expected.iter().map(|(_, value)| value).sum();
    assert_eq!(
        summary.map(|summary| (summary.count as usize, summary.sum)),
        (!expected.is_empty()).then_some((expected.len(), sum as f64)),
        "{context}"
    );
    let counts = block_on(async {
        let (mut there, mut back) = (0, 0);
        let mut groups = series.group_aggregate(from..to, step).await?;
        while let Some((_, summary)) = groups.next().await? {
            there += summary.count;
        }
        let mut groups = series.group_aggregate_backward(from..to, step).await?;
        while let Some((_, summary)) = groups.next().await? {
            back += summary.count;
        }
        Ok::<_, Error>((there, back))
    });
    assert_eq!(counts.unwrap(), (expected.len() as u64, expected.len() as u64), "{context} {step}");
}

/// All late points of a series were read and held for whatever was asked of it, were they its
/// history of ten years.
#[test]
fn a_history_behind_the_present_is_read_a_few_leaves_at_a_time() {
    for seed in 0..3 {
        let mut random = Random::new(seed);
        let db = Local::in_memory().unwrap().into_database();
        let open = Settings { commit_every: None, leaf_points: 500, ..Settings::default() };
        let store = block_on(SeriesStore::open_with(&db, open)).unwrap();
        let (series, mut model) = history(&mut random, &store);
        for query in 0..60 {
            let (a, b) =
                (random.below(220_000) as i64 - 10_000, random.below(220_000) as i64 - 10_000);
            let span = match query % 4 {
                0 => (i64::MIN, i64::MAX),
                1 => (a, a + random.below(300) as i64),
                _ => (a.min(b), a.max(b)),
            };
            let step = 1 + random.below(40_000);
            check_span(&series, &model, span, step, &format!("seed {seed}, {span:?}"));
        }
        // What goes of it goes, in spans of any length, and nothing else.
        for _ in 0..20 {
            let from = random.below(160_000) as i64;
            let to = from + [3, 500, 20_000][random.below(3) as usize];
            block_on(series.delete_range(from..to)).unwrap();
            model.retain(|time, _| !(from..to).contains(time));
            assert!(
                times(&series).into_iter().eq(model.keys().copied()),
                "seed {seed}: {from}..{to}"
            );
        }
        block_on(store.check_invariants()).unwrap();
    }
}

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * SECOND;

/// What the database says counts, whoever has learnt it first: rules are changed while a pass goes
/// on, and the task of rollups looks at them several times a second.
#[test]
fn what_is_said_to_be_kept_stays_whatever_the_program_was_started_with() {
    const NOW: i64 = 1_767_225_600 * SECOND;
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db);
    let series = block_on(store.series("cpu.user host=a")).unwrap();
    append(&series, (1..=100).rev().map(|hour| NOW - hour * HOUR));
    block_on(store.sync()).unwrap();
    let asked: Retention = "*=10h".parse().unwrap();
    let settings = settings();
    let say = |text: Option<&str>| {
        let change = SeriesStore::change_keeping(&db, &settings, |keeping| {
            keeping.set_retention(text.map(str::to_owned));
            Ok(())
        });
        block_on(change).unwrap();
    };
    say(Some("*=forever"));
    assert_eq!(block_on(store.forget(&asked, NOW)).unwrap(), 0);
    assert_eq!(times(&series).len(), 100);
    say(Some("*=20h"));
    assert_eq!(block_on(store.forget(&asked, NOW)).unwrap(), 1);
    assert_eq!(times(&series).len(), 20);
    say(None);
    assert_eq!(block_on(store.forget(&asked, NOW)).unwrap(), 1);
    assert_eq!(times(&series).len(), 10);
}

/// Whoever waits for a deletion may leave: it is carried out all the same, at some time, and not
/// while another one is.
#[test]
fn a_deletion_that_nobody_waits_for_is_carried_out() {
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db);
    let series = block_on(store.series("cpu.user host=a")).unwrap();
    append(&series, (0..10_000).map(|second| second * SECOND));
    block_on(store.sync()).unwrap();
    for round in 0..20 {
        let begin = round * 500 * SECOND;
        let left = series.delete_range(begin..begin + 200 * SECOND);
        block_on(race(left, db.endpoint().env().sleep(Duration::from_micros(round as u64 * 20))));
        block_on(series.delete_range(begin + 250 * SECOND..begin + 450 * SECOND)).unwrap();
    }
    let kept = |second: &i64| (200..250).contains(&(second % 500)) || second % 500 >= 450;
    let expected: Vec<_> = (0..10_000).filter(kept).map(|second| second * SECOND).collect();
    // The last one of those that were left may not even have begun.
    for _ in 0..3000 {
        if times(&series).len() <= expected.len() {
            break;
        }
        block_on(db.endpoint().env().sleep(Duration::from_millis(10)));
    }
    assert!(times(&series) == expected);
}

#[test]
fn points_go_when_they_are_older_than_their_metric_is_kept() {
    const NOW: i64 = 1_767_225_600 * SECOND;
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db);
    let names = [
        "cpu.user host=a",
        "cpu.user host=b",
        "cpu.sys host=a",
        "audit who=me",
        "mem host=a",
        "idle host=a",
    ];
    for name in names {
        let series = block_on(store.series(name)).unwrap();
        // One an hour, for a hundred hours; some of them late.
        append(&series, (1..=100).rev().filter(|hour| hour % 7 > 0).map(|hour| NOW - hour * HOUR));
        append(&series, (1..=100).rev().filter(|hour| hour % 7 == 0).map(|hour| NOW - hour * HOUR));
    }
    let notes = block_on(store.series("!note host=a")).unwrap();
    for hour in (1..=100).rev() {
        for point in
            event::points(NOW - hour * HOUR + 999, format!("{hour} hours ago it was").as_bytes())
                .unwrap()
        {
            notes.append(point.time, point.value).unwrap();
        }
    }
    block_on(store.sync()).unwrap();
    // Series that nobody has in memory are read as they are in the database, and stay out of it.
    let store = open(&db);
    let in_memory = store.stats().series;
    let retention: Retention =
        "cpu.user=10h, cpu.*=20h, audit=forever, idle=1h, *=2d".parse().unwrap();
    assert_eq!(block_on(store.forget(&retention, NOW)).unwrap(), 6);
    assert_eq!(store.stats().series, in_memory);
    let left =
        |name: &str| times(&existing(&store, name)).iter().map(|time| (NOW - time) / HOUR).max();
    let ages: Vec<_> = names.iter().map(|name| left(name)).collect();
    assert_eq!(ages, [Some(10), Some(10), Some(20), Some(100), Some(48), Some(1)]);
    // No event is cut in two.
    let mut events = event::Events::default();
    let found = block_on(async {
        let mut points = existing(&store, "!note host=a").scan(.., Direction::Forward).await?;
        let mut found = Vec::new();
        while let Some(more) = points.next().await? {
            found.extend(more.iter().filter_map(|point| events.push(point)));
        }
        Ok::<_, Error>(found)
    });
    let found = found.unwrap();
    assert!(
        found.len() == 48 && found.iter().all(|(_, text)| text.ends_with(b" hours ago it was")),
        "{}",
        found.len()
    );
    // Nothing more for now, and what comes late for a time that has gone is seen until it goes too.
    assert_eq!(block_on(store.forget(&retention, NOW)).unwrap(), 0);
    append(&existing(&store, "idle host=a"), [NOW - 50 * HOUR]);
    assert_eq!(left("idle host=a"), Some(50));
    assert_eq!(block_on(store.forget(&retention, NOW)).unwrap(), 1);
    assert_eq!(left("idle host=a"), Some(1));
    // All of them go in time, and may come again.
    assert_eq!(block_on(store.forget(&retention, NOW + 3 * HOUR)).unwrap(), 6);
    assert!(block_on(store.existing("idle host=a")).unwrap().is_none(), "with its name");
    append(&block_on(store.series("idle host=a")).unwrap(), [NOW]);
    block_on(store.sync()).unwrap();
    assert_eq!(times(&existing(&open(&db), "idle host=a")), [NOW]);
}

/// A server whose clock was years ahead deleted all points that were ever to go, at once.
#[test]
fn one_clock_that_is_years_ahead_deletes_nothing_that_is_to_be_kept() {
    const MINUTE: i64 = 60_000_000_000;
    const HOUR: i64 = 60 * MINUTE;
    let simulation = Simulation::new(11);
    let env = simulation.process("machine");
    let opened = Builder::new("/db").env(env).open_async();
    let db = simulation.run_until(opened).unwrap().into_database();
    let store = simulation.run_until(SeriesStore::open_with(&db, settings())).unwrap();
    let retention: Retention = "*=20h".parse().unwrap();
    let begun = 480_000 * HOUR;
    let pass = |wall: i64| {
        simulation.run_until(async {
            let now = store.time_to_forget(wall).await.unwrap();
            (now, store.forget(&retention, now).await.unwrap())
        })
    };
    let series = simulation.run_until(store.series("cpu host=a")).unwrap();
    series.append(begun - 19 * HOUR, 1).unwrap();
    assert_eq!(pass(begun), (begun, 0), "the first clock is believed");
    simulation.run_for(Duration::from_secs(60));
    let (now, lost) = pass(begun + 90_000 * HOUR);
    assert!(now < begun + HOUR && lost == 0, "{} minutes on", (now - begun) / MINUTE);
    simulation.run_for(Duration::from_secs(60));
    assert_eq!(pass(begun + 2 * MINUTE), (begun + 2 * MINUTE, 0), "a good one is right at once");
    // The database was away for four hours, and was here for ten minutes since.
    simulation.run_for(Duration::from_secs(600));
    // On a machine whose clock is not set yet.
    assert_eq!(pass(MINUTE), (MINUTE, 0));
    simulation.run_for(Duration::from_secs(1200));
    assert_eq!(pass(begun + 4 * HOUR), (begun + 4 * HOUR, 1), "and set now");
}
