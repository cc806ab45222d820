//! Points that say what was added: what is kept is the sum so far, whoever asks, and whatever
//! happened to the server in between.
//!
//! What a sender sends again is counted once. Nothing is committed here but at the end of a
//! request.

use super::damage::{self, damage, id, rows, set};
use plinth::{Database, Local};
use plinth_env::block_on;
use plinth_series::ingest::{Clock, Memory, OtlpMetrics, Protocol, Session};
use plinth_series::{Direction, Point, SeriesStore, Settings, Value};

fn settings() -> Settings {
    Settings { commit_every: None, leaf_points: 4, ..Settings::default() }
}

fn open(db: &Database) -> SeriesStore {
    block_on(SeriesStore::open_with(db, settings())).unwrap()
}

fn database() -> Database {
    Local::in_memory().unwrap().into_database()
}

/// Sends a metric's points: what was told of them.
fn send(store: &SeriesStore, kind: &str, points: &str) -> String {
    let text = format!(
        r#"{{"resourceMetrics": [{{"scopeMetrics": [{{"metrics": [{{"name": "m", "{kind}":
            {{"aggregationTemporality": 1, "isMonotonic": true, "dataPoints": [{points}]}}}}]}}]}}]}}"#
    );
    let mut message = OtlpMetrics::of_json(text.as_bytes(), &mut |_| true).unwrap();
    let protocol = Protocol::Influx(Clock { unit: 1, now: 0 });
    let mut session = Session::new(protocol, 1, &Memory::default());
    while !session.take_otlp(&mut message) {
        block_on(session.save(store)).unwrap();
    }
    block_on(session.end(b"", store)).unwrap();
    String::from_utf8_lossy(session.replies()).into_owned()
}

fn sum(store: &SeriesStore, points: &[(i64, i64)]) -> String {
    let points: Vec<String> = points
        .iter()
        .map(|(time, added)| format!(r#"{{"timeUnixNano": {time}, "asInt": {added}}}"#))
        .collect();
    send(store, "sum", &points.join(","))
}

fn values(store: &SeriesStore, name: &str) -> Vec<(i64, Value)> {
    let read = async {
        let Some(series) = store.existing(name).await? else { return Ok(Vec::new()) };
        series.scan(.., Direction::Forward).await?.collect().await
    };
    let points: plinth_series::Result<Vec<Point>> = block_on(read);
    points.unwrap().into_iter().map(|point| (point.time, point.value)).collect()
}

fn integers(points: &[(i64, i64)]) -> Vec<(i64, Value)> {
    points.iter().map(|(time, value)| (*time, Value::Integer(*value))).collect()
}

#[test]
fn what_was_added_goes_on_behind_restarts_full_leaves_and_pauses() {
    let db = database();
    let mut store = open(&db);
    let mut expected = Vec::new();
    for time in 1..=20 {
        assert_eq!(sum(&store, &[(time, time)]), "");
        expected.push((time, (1..=time).sum()));
        if time % 3 == 0 {
            drop(store);
            store = open(&db);
        }
    }
    assert_eq!(values(&store, "m_total"), integers(&expected));
}

#[test]
fn what_is_sent_again_is_counted_once_and_what_is_older_refused() {
    let db = database();
    let store = open(&db);
    assert_eq!(sum(&store, &[(10, 5), (20, 1)]), "");
    assert_eq!(sum(&store, &[(20, 1)]), "");
    let told = sum(&store, &[(15, 7), (20, 1), (30, 2)]);
    assert_eq!(told, "an increment is older than the newest point: m_total\n");
    assert_eq!(values(&store, "m_total"), integers(&[(10, 5), (20, 6), (30, 8)]));
}

#[test]
fn each_bucket_of_a_histogram_is_a_sum_of_its_own() {
    let db = database();
    let store = open(&db);
    for (time, counts) in [(1, "1,2,3"), (2, "0,1,0")] {
        let point = format!(
            r#"{{"timeUnixNano": {time}, "count": 6, "sum": 1.5, "bucketCounts": [{counts}],
                "explicitBounds": [1, 2]}}"#
        );
        assert_eq!(send(&store, "histogram", &point), "");
    }
    for (name, expected) in [
        ("m_bucket le=1", [1, 1]),
        ("m_bucket le=2", [3, 4]),
        ("m_bucket le=+Inf", [6, 12]),
        ("m_count", [6, 12]),
    ] {
        let expected = integers(&[(1, expected[0]), (2, expected[1])]);
        assert_eq!(values(&store, name), expected, "{name}");
    }
    let sums = [(1, Value::Float(1.5)), (2, Value::Float(3.0))];
    assert_eq!(values(&store, "m_sum"), sums);
}

/// A series that was deleted begins again, and so does one behind a mark of its end.
#[test]
fn what_is_gone_begins_again() {
    let db = database();
    let store = open(&db);
    sum(&store, &[(1, 5)]);
    block_on(async { store.delete(&store.series("m_total").await?).await }).unwrap();
    sum(&store, &[(2, 7)]);
    assert_eq!(values(&store, "m_total"), integers(&[(2, 7)]));
    block_on(store.series("m_total")).unwrap().append(3, f64::NAN).unwrap();
    sum(&store, &[(4, 1), (5, 1)]);
    assert_eq!(values(&store, "m_total")[2..], integers(&[(4, 1), (5, 2)]));
}

/// Each has points of many series, so that they are at it at the same time.
#[test]
fn senders_at_the_same_time_lose_nothing() {
    use std::sync::atomic::{AtomicI64, Ordering};
    let db = database();
    let store = open(&db);
    let times = AtomicI64::new(1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let time = times.fetch_add(1, Ordering::SeqCst);
                    let point = |host: i32| {
                        format!(
                            r#"{{"timeUnixNano": {time}, "asInt": 1, "attributes": [
                                {{"key": "host", "value": {{"intValue": {host}}}}}]}}"#
                        )
                    };
                    let points: Vec<String> = (0..300).map(point).collect();
                    send(&store, "sum", &points.join(","));
                }
            });
        }
    });
    // Those that were overtaken were refused, or let go: each that is there adds one to the one
    // before it.
    for host in 0..300 {
        let values = values(&store, &format!("m_total host={host}"));
        let expected = (1..).map(Value::Integer).take(values.len());
        assert!(values.iter().map(|(_, value)| *value).eq(expected), "{values:?}");
    }
}

/// A server that only passes points on can't know what the sum is, and refused them.
#[test]
fn what_was_added_is_summed_up_whichever_servers_it_was_sent_to() {
    let db = database();
    let mut store = open(&db);
    assert_eq!(sum(&store, &[(1, 5)]), "");
    let others = [0, 1].map(|_| block_on(SeriesStore::post(&db, settings())).unwrap());
    let mut expected = vec![(1, 5)];
    for time in 2..60 {
        // To one after the other, and now and then to another one again.
        match time % 3 {
            0 => assert_eq!(sum(&store, &[(time, time)]), ""),
            other => assert_eq!(sum(&others[other as usize - 1], &[(time, time)]), ""),
        }
        if time % 5 == 0 {
            assert_eq!(sum(&others[0], &[(time, time)]), "");
        }
        expected.push((time, expected.last().unwrap().1 + time));
        if time % 7 == 0 {
            assert_eq!(values(&store, "m_total"), integers(&expected), "{time}");
        }
        if time % 11 == 0 {
            // What waits is summed up by the next owner.
            drop(store);
            store = open(&db);
        }
    }
    assert_eq!(values(&store, "m_total"), integers(&expected));
    // One that was overtaken on its way is in no sum.
    assert_eq!(sum(&others[0], &[(58, 1), (60, 1)]), "");
    assert_eq!(values(&store, "m_total").last(), Some(&(60, Value::Integer(expected[58].1 + 1))));
    block_on(store.check_invariants()).unwrap();
}

/// Whoever reads without owning sums up what waits, and leaves it there.
#[test]
fn what_waits_is_summed_up_for_whoever_only_reads() {
    let db = database();
    let store = open(&db);
    assert_eq!(sum(&store, &[(1, 5), (2, 1)]), "");
    block_on(store.take_in()).unwrap();
    let poster = block_on(SeriesStore::post(&db, settings())).unwrap();
    assert_eq!(sum(&poster, &[(3, 1), (4, 1)]), "");
    let expected = integers(&[(1, 5), (2, 6), (3, 7), (4, 8)]);
    for _ in 0..2 {
        let reader = block_on(SeriesStore::view(&db, settings())).unwrap();
        assert_eq!(values(&reader, "m_total"), expected);
    }
    assert_eq!(values(&store, "m_total"), expected);
}

/// A series whose newest point can't be read kept all that came with it from being stored, each
/// time it was sent.
#[test]
fn increments_of_a_damaged_series_keep_no_others_back() {
    let db = database();
    let store = damage::open(&db);
    let both = |time: i64| {
        let point = |host: &str| {
            format!(
                r#"{{"timeUnixNano": {time}, "asInt": 1, "attributes":
                    [{{"key": "host", "value": {{"stringValue": "{host}"}}}}]}}"#
            )
        };
        send(&store, "sum", &[point("ill"), point("well")].join(","))
    };
    // As many as a leaf has: none is in memory.
    for time in 1..=4 {
        assert_eq!(both(time), "");
    }
    block_on(store.take_in()).unwrap();
    let of = id(&db, "m_total host=ill");
    let is_its = |row: &damage::Row| row.0.windows(of.len()).any(|part| part == of);
    let leaves = 5..=7;
    let ill: Vec<_> = leaves.flat_map(|kind| rows(&db, kind)).filter(is_its).collect();
    assert!(!ill.is_empty());
    let whole: Vec<_> = ill.into_iter().map(|row| damage(&db, row).0).collect();
    for time in 5..=6 {
        let told = both(time);
        assert!(told.contains("damaged") && told.lines().count() == 1, "{told}");
    }
    assert_eq!(
        values(&store, "m_total host=well"),
        integers(&[1, 2, 3, 4, 5, 6].map(|time| (time, time)))
    );
    whole.iter().for_each(|row| set(&db, row));
    assert_eq!(both(7), "");
    assert_eq!(
        values(&store, "m_total host=ill"),
        integers(&[(1, 1), (2, 2), (3, 3), (4, 4), (7, 5)])
    );
}

/// The newest point may be older than what leaves end with, some of which was deleted: each of
/// several increments of a page was added to the same point then. And one is added to a point that
/// came with it, over one that a leaf has.
#[test]
fn increments_are_added_to_those_before_them_also_where_leaves_end_later() {
    let db = database();
    let store = open(&db);
    assert_eq!(sum(&store, &[(1, 1), (2, 1), (3, 1), (4, 1)]), "");
    block_on(store.take_in()).unwrap();
    let series = block_on(store.series("m_total")).unwrap();
    block_on(series.delete_range(3..=4)).unwrap();
    assert_eq!(sum(&store, &[(3, 1), (4, 1)]), "");
    let poster = block_on(SeriesStore::post(&db, settings())).unwrap();
    assert_eq!(sum(&poster, &[(5, 1)]), "");
    let expected = [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)];
    assert_eq!(values(&store, "m_total"), integers(&expected));
    // A leaf ends with the last one, over which a point lies.
    assert_eq!(sum(&store, &[(6, 1), (7, 1), (8, 1)]), "");
    block_on(store.take_in()).unwrap();
    let posted = block_on(poster.series("m_total")).unwrap();
    posted.append(8, 100_i64).unwrap();
    block_on(poster.sync()).unwrap();
    assert_eq!(sum(&poster, &[(9, 1), (10, 1)]), "");
    block_on(store.take_in()).unwrap();
    let found = values(&store, "m_total");
    assert_eq!(found[7..], integers(&[(8, 100), (9, 101), (10, 102)]));
    block_on(store.check_invariants()).unwrap();
}

/// Increments of a series whose newest point can't be read wait aside, in their order, and points
/// that came behind them with them; what is in memory of it waits there, too.
#[test]
fn increments_of_a_series_that_turns_out_to_be_damaged_wait_until_it_can_be_read() {
    let db = damage::database();
    let store = damage::open(&db);
    // As many as a leaf has, and a late one over them: none is in memory.
    assert_eq!(sum(&store, &[(1, 1), (2, 1), (3, 1), (4, 1)]), "");
    let series = block_on(store.series("m_total")).unwrap();
    block_on(store.take_in()).unwrap();
    series.append(2, 50_i64).unwrap();
    block_on(store.sync()).unwrap();
    let side = rows(&db, damage::SIDE).pop().expect("a late point has a row");
    let (whole, _) = damage(&db, side);
    let poster = block_on(SeriesStore::post(&db, damage::settings())).unwrap();
    assert_eq!(sum(&poster, &[(5, 1), (6, 1)]), "");
    block_on(store.take_in()).unwrap();
    assert_eq!(store.damaged().len(), 1);
    // Whoever asks the owner is told; whoever doesn't know it passes on what he has.
    assert!(series.append(8, 100_i64).is_err());
    assert_eq!(sum(&poster, &[(7, 1)]), "");
    block_on(poster.series("m_total")).unwrap().append(8, 100_i64).unwrap();
    block_on(poster.sync()).unwrap();
    block_on(store.take_in()).unwrap();
    drop((store, series));
    let store = damage::open(&db);
    assert_eq!(store.damaged().len(), 1);
    drop(store);
    set(&db, &whole);
    let store = damage::open(&db);
    assert_eq!(store.damaged(), []);
    let expected = [(1, 1), (2, 50), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7), (8, 100)];
    assert_eq!(values(&store, "m_total"), integers(&expected));
    block_on(store.check_invariants()).unwrap();
}
