//! What the directories `ENGINE-layers` are filled with: every kind of row that series have in a
//! place of their own, divided in parts or not, and what else is rows among the system's keys:
//! rights, quotas, streams of changes.
//!
//! The place is the one that servers have. In it are points that are in leaves, in late leaves, in
//! the tail, in the inbox; some are deleted; of some metrics buckets are all that there is, and
//! have late points and deletions to be taken in yet; histograms and exemplars, saved and in the
//! inbox; texts of rules; the clock of what is too old; and a series that is damaged, whose points
//! are set aside.

use super::archives::{hex, unhex};
use super::fill::{SERIES, commit, into_files};
use super::told;
use plinth::series::{
    CUSTOM_BUCKETS, Exemplar, Histogram, HistogramParts, HistogramSpan, Metrics, Point, ResetHint,
    Retention, Rollup, SeriesLayer, SeriesStore, Settings, Value,
};
use plinth::{Database, KeyRange, KeyValue, Local, TransactionOption, block_on, tuple};
use plinth_types::quotas::{Bounds, Quota};
use plinth_types::rights::Grant;
use plinth_types::system;
use std::collections::BTreeSet;
use std::time::Duration;

/// The series that is damaged, and the one whose points are in buckets alone.
const ILL: &str = "disk host=ill";
const ROLLED: &str = "cpu.user host=a";
/// The series that has histograms and exemplars, and the one that has them in the inbox alone.
pub const TOOK: [&str; 2] = ["took path=/", "took path=/new"];
/// The streams of changes.
const STREAMS: [&str; 2] = ["many", "some"];
/// The first time, and that by which points were too old.
pub const BASE: i64 = 1_767_268_800 * SECOND;
pub const CLOCK: i64 = BASE + 2_000 * SECOND;
pub const SECOND: i64 = 1_000_000_000;
const YEAR: i64 = 365 * 24 * 3600 * SECOND;

/// Every kind of row that the series of these directories have: all but those of a lease, of
/// servers, and of parts, which is no row's by itself.
pub const KINDS: [u8; 23] =
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 19, 20, 21, 22, 23, 24, 25];
/// Kinds of rows: a series' name, a late leaf, what is in a part.
const SERIES_ROW: u8 = 4;
const LATE_LEAF: u8 = 8;
const PART: u8 = 17;

const GRANTS: [&str; 6] = [
    "operator user root",
    "writer cert S.CN=till prefix shop/",
    "reader token sub=ann,aud=shop tenant a",
    "reader address 10.0.0.0/8",
    "writer token sub=sensor series",
    "reader anybody metric cpu.*",
];
const QUOTAS: [&str; 4] = [
    "cert S.CN=till read=10MB/s watches=5",
    "tenant a write=1MB/s",
    "address 10.0.0.0/8 connections=100 snapshots=2",
    "* read=100MB/s",
];

type Done = Result<(), plinth::series::Error>;

/// Fills a new database, with a place of so many parts, and gives lines of what comes back once the
/// damage is mended: `mend KEY VALUE`, and `mended point NAME TIME VALUE` for each.
pub fn fill(local: &Local, parts: usize) -> Vec<String> {
    let db = local.database();
    let many = [KeyRange::new("a", "m")];
    db.register_changes(STREAMS[0], many, Some(64 << 20)).wait().unwrap();
    let some = [KeyRange::new("a", "b"), KeyRange::single(b"k")];
    db.register_changes(STREAMS[1], some, None).wait().unwrap();
    for number in 0..5_u64 {
        commit(db, |tr| {
            tr.set(format!("a{number}"), number.to_string());
            tr.add("k", number.to_le_bytes());
            tr.set(tuple::pack(&("row", number)), "x");
        })
        .unwrap();
    }
    grant(db);
    // What the first ones are is known; the rest is yet to be read.
    let mut consumer = db.consume_changes(STREAMS[1]).wait().unwrap();
    block_on(async {
        consumer.try_next().await?;
        consumer.acknowledge().await
    })
    .unwrap();
    commit(db, |tr| {
        tr.clear_range("a1", "a3");
        tr.set("a9", "behind what was acknowledged");
    })
    .unwrap();
    block_on(points(db, parts)).unwrap();
    into_files(local);
    block_on(beside(db)).unwrap();
    block_on(late(db)).unwrap();
    let mended = block_on(damaged(db)).unwrap();
    block_on(posted(db)).unwrap();
    mended
}

fn words(text: &str) -> Vec<Vec<u8>> {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn grant(db: &Database) {
    let since = 1_767_268_800_u64;
    db.transact_blocking(|tr| {
        tr.set_option(TransactionOption::AccessSystemKeys)?;
        for text in GRANTS {
            let grant = Grant::parse(&words(text))?;
            tr.set(grant.key(), [&[1][..], &since.to_le_bytes()].concat());
        }
        for text in QUOTAS {
            let quota = Quota::parse(&words(text))?;
            tr.set(quota.whom.key(), quota.change(Bounds::default()).value(since));
        }
        Ok(())
    })
    .unwrap();
}

/// Small leaves, so that some are full; and nothing in the background, where buckets would take in
/// what is to be left.
fn settings(parts: usize) -> Settings {
    Settings { parts, leaf_points: 8, ..at_rest() }
}

/// Settings of an owner who has no tasks: those would hold the database open for a moment more.
pub fn at_rest() -> Settings {
    Settings { commit_every: None, ..Settings::default() }
}

/// Series that are told apart by their tags, so that each part has some.
fn hosts(metric: &str) -> Vec<String> {
    ["a", "b", "c", "d", "e"].iter().map(|host| format!("{metric} host={host}")).collect()
}

async fn append(store: &SeriesStore, name: &str, times: impl Iterator<Item = i64>) -> Done {
    let series = store.series(name).await?;
    for second in times {
        series.append(BASE + second * SECOND, value_at(second))?;
    }
    Ok(())
}

/// What a series has at a second.
fn value_at(second: i64) -> Value {
    match second % 3 {
        0 => Value::Integer(second * second - 7),
        _ => Value::Float(second as f64 / 4.0),
    }
}

/// Points, some of which go again, with buckets in their place or without.
async fn points(db: &Database, parts: usize) -> Done {
    let store = SeriesStore::open_with(db, settings(parts)).await?;
    SeriesStore::change_keeping(db, &settings(parts), |keeping| {
        let metrics = || Metrics::parse("cpu.*").ok_or("cpu.* is metrics");
        let raw = Some(Duration::from_mins(5));
        keeping.add(Rollup { raw, ..Rollup::new(metrics()?, Duration::from_secs(10)) })?;
        let keep = Some(Duration::from_hours(24 * 365 * 100));
        keeping.add(Rollup { keep, ..Rollup::new(metrics()?, Duration::from_mins(1)) })?;
        keeping.set_retention(Some("net.*=20m".to_owned()));
        Ok(())
    })
    .await?;
    for name in hosts("cpu.user").iter().chain(&hosts("net.in")).chain(&hosts("mem")) {
        let is_there = |second: &i64| second % 60 < 9 && second % 4 == 0;
        append(&store, name, (0..1_900).filter(is_there)).await?;
    }
    append(&store, SERIES[0], 0..100).await?;
    append(&store, "events", 0..3).await?;
    store.sync().await?;
    let retention = "net.*=20m".parse::<Retention>().unwrap_or_default();
    let now = store.time_to_forget(CLOCK).await?;
    store.forget(&retention, now).await?;
    store.roll_up().await?;
    // Late leaves, a mask, a series that is no more.
    append(&store, SERIES[0], (3..60).step_by(7)).await?;
    store.series("mem host=b").await?.delete_range(BASE + 40 * SECOND..BASE + 333 * SECOND).await?;
    store.delete(&store.series("events").await?).await?;
    store.keep("rules/a.yml;some/alerts", br#"{"format":1,"slot":null,"rules":[]}"#).await?;
    store.keep("rules/a.yml;some/series", "x".repeat(100_000).as_bytes()).await?;
    store.sync().await
}

fn span(offset: i32, length: u32) -> HistogramSpan {
    HistogramSpan { offset, length }
}

fn histograms() -> [Histogram; 3] {
    let whole = HistogramParts {
        hint: ResetHint::NotReset,
        schema: 3,
        zero_threshold: 1e-128,
        zero_count: 2.0,
        count: 15.0,
        sum: 18.4,
        positive_spans: vec![span(-2, 2), span(3, 1)],
        positive: vec![4.0, 1.0, 3.0],
        negative_spans: vec![span(0, 1)],
        negative: vec![5.0],
        ..HistogramParts::default()
    };
    let broken = HistogramParts {
        hint: ResetHint::Gauge,
        count: 15.5,
        positive: vec![4.5, 1.0, 3.0],
        ..whole.clone()
    };
    let custom = HistogramParts {
        schema: CUSTOM_BUCKETS,
        count: 5.5,
        sum: f64::NEG_INFINITY,
        positive_spans: vec![span(0, 3)],
        positive: vec![1.5, 0.0, 4.0],
        bounds: vec![0.5, 2.0],
        ..HistogramParts::default()
    };
    [whole, broken, custom].map(|parts| Histogram::new(parts).expect("it is one"))
}

fn exemplar(trace: &str, value: f64) -> Exemplar {
    let labels = [("trace_id", trace), ("odd", "ä \" \\")];
    Exemplar { labels: labels.map(|(name, value)| (name.into(), value.into())).into(), value }
}

/// Native histograms and exemplars.
async fn beside(db: &Database) -> Done {
    let store = SeriesStore::open_with(db, settings(1)).await?;
    let all = histograms();
    for round in 0..3 {
        let at = |place: i64| BASE + (3 * round + place) * 15 * SECOND;
        let some: Vec<_> = (0..).zip(&all).map(|(place, one)| (TOOK[0], at(place), one)).collect();
        store.append_histograms(&some).await?;
        let (one, two) = (exemplar("0af7", 0.25), exemplar("be11", f64::INFINITY));
        store.append_exemplars(&[(TOOK[0], at(0), &one), (TOOK[0], at(1), &two)]).await?;
    }
    store.sync().await
}

/// Late points and a deletion that buckets don't know of yet.
async fn late(db: &Database) -> Done {
    let store = SeriesStore::open_with(db, settings(1)).await?;
    append(&store, ROLLED, [1_805, 1_806].into_iter()).await?;
    append(&store, "cpu.user host=b", 1_900..1_910).await?;
    let series = store.series("cpu.user host=c").await?;
    series.delete_range(BASE + 1_850 * SECOND..).await?;
    store.sync().await
}

/// Damages a late leaf, and writes on, so that it is set aside.
async fn damaged(db: &Database) -> Result<Vec<String>, plinth::series::Error> {
    let (first, late, behind) = (100..117, [1, 3, 5, 7], [2, 9, 200]);
    let store = SeriesStore::open_with(db, settings(1)).await?;
    append(&store, ILL, first.clone()).await?;
    store.sync().await?;
    append(&store, ILL, late.into_iter()).await?;
    store.sync().await?;
    let KeyValue { key, value } = late_leaf(db);
    let mut wrong = value.to_vec();
    let at = wrong.len() / 2;
    wrong[at] ^= 0x84;
    set(db, &key, &wrong);
    append(&store, ILL, behind.into_iter()).await?;
    // Others are saved whatever becomes of this one.
    let _ = store.sync().await;
    assert_eq!(store.damaged().len(), 1, "the late leaf is damaged, and was needed");
    let mut seconds: Vec<i64> = first.chain(late).chain(behind).collect();
    seconds.sort_unstable();
    let mend = format!("mend {} {}", hex(&key), hex(&value));
    let point = |second: &i64| Point { time: BASE + second * SECOND, value: value_at(*second) };
    let points = seconds.iter().map(|second| format!("mended {}", told::point(ILL, point(second))));
    Ok([mend].into_iter().chain(points).collect())
}

/// What comes back once the damage is mended, as lines of [`told::lines`]; and which of those it
/// takes the place of.
pub fn mended(expected: &[String]) -> (Vec<String>, Vec<String>) {
    let mended = expected.iter().filter_map(|line| line.strip_prefix("mended "));
    (mended.map(str::to_owned).collect(), vec![told::unreadable(ILL)])
}

/// What shows to the owner of the series alone, if the lines say that there is any: the clock of
/// what is too old, and what is set aside, which is mended.
pub fn judge(db: &Database, expected: &[String]) {
    let Some(mend) = expected.iter().find_map(|line| line.strip_prefix("mend ")) else { return };
    let (key, value) = mend.split_once(' ').expect("a row");
    block_on(async {
        let store = SeriesStore::open_with(db, at_rest()).await?;
        // A clock that is centuries ahead is held back by what was noted, and by that alone.
        let time = store.time_to_forget(i64::MAX).await?;
        assert!((CLOCK..CLOCK + 100 * YEAR).contains(&time), "{time}");
        let damaged: Vec<_> = store.damaged().into_iter().map(|(name, _)| name).collect();
        assert_eq!(damaged, [ILL]);
        drop(store);
        set(db, &unhex(key), &unhex(value));
        let store = SeriesStore::open_with(db, at_rest()).await?;
        assert_eq!(store.damaged(), []);
        store.sync().await
    })
    .unwrap();
}

/// Writes a row of the series' place.
pub fn set(db: &Database, key: &[u8], value: &[u8]) {
    db.transact_blocking(|tr| {
        tr.set_option(TransactionOption::AccessSystemKeys)?;
        tr.set(key, value);
        Ok(())
    })
    .unwrap();
}

/// A row of the series' place: the part that it is in, if there are parts, and behind it its kind
/// and the rest of its key.
struct Kept {
    row: KeyValue,
    part: Vec<u8>,
    kind: u8,
    rest: Vec<u8>,
}

/// The rows of the series' place.
fn kept(db: &Database) -> Vec<Kept> {
    let rows = db.transact_blocking(|tr| {
        tr.set_option(TransactionOption::ReadSystemKeys)?;
        tr.range(system::SERIES_PREFIX..system::SERIES_END).collect_blocking()
    });
    // A number in a tuple is the byte that says how long it is, and its bytes.
    let number = |key: &[u8]| match *key {
        [0x14, ..] => (0, 1),
        [0x15, number, ..] => (number, 2),
        _ => panic!("{} begins with no small number", hex(key)),
    };
    let kept = |row: KeyValue| {
        let mut rest = &row.key[system::SERIES_PREFIX.len()..];
        let (mut kind, mut len) = number(rest);
        let mut part = Vec::new();
        if kind == PART {
            let in_part = len + number(&rest[len..]).1;
            (part, rest) = (rest[..in_part].to_vec(), &rest[in_part..]);
            (kind, len) = number(rest);
        }
        Kept { part, kind, rest: rest[len..].to_vec(), row }
    };
    rows.unwrap().into_iter().map(kept).collect()
}

/// The kinds of rows that there are of series.
pub fn kinds(db: &Database) -> BTreeSet<u8> {
    kept(db).iter().map(|row| row.kind).collect()
}

/// The row of the first late leaf of the series that is to be damaged.
fn late_leaf(db: &Database) -> KeyValue {
    let rows = kept(db);
    let series = rows.iter().find(|row| row.kind == SERIES_ROW && row.row.value == ILL);
    let series = series.expect("it has a number");
    let is_its = |row: &&Kept| row.part == series.part && row.rest.starts_with(&series.rest);
    let leaf = rows.iter().filter(|row| row.kind == LATE_LEAF).find(is_its);
    leaf.expect("it has a late leaf").row.clone()
}

/// Leaves points and records in the inbox: their owner has not seen them.
async fn posted(db: &Database) -> Done {
    let layer = SeriesLayer::new(db);
    db.transact_blocking(|tr| {
        layer.append(tr, SERIES[2], BASE, 7).wait().expect("the name is one");
        layer.append(tr, ROLLED, BASE + 1_807 * SECOND, 0.5).wait().expect("the name is one");
        Ok(())
    })?;
    let post = SeriesStore::post(db, settings(1)).await?;
    let [first, ..] = histograms();
    post.append_histograms(&[(TOOK[1], BASE, &first)]).await?;
    post.append_exemplars(&[(TOOK[1], BASE, &exemplar("cafe", -1.0))]).await?;
    post.sync().await
}
