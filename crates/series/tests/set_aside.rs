//! What is set aside of a damaged series comes back once, as it was, whenever that breaks off.
//!
//! A database that takes so many commits and then none stands for a server that dies between two
//! of them. Beside that, a damaged series must not become one that takes points by being looked at,
//! and what was written and deleted after its leaves were sealed must not be undone.

use super::damage::{
    ASIDE, DAMAGED, ILL, PREFIX, Row, SERIES, SIDE, TWIG, WELL, append, damage, database, fill, id,
    is_damaged, open, row_of, rows, set, settings, times,
};
use plinth::Database;
use plinth_client::{Description, Endpoint, ReadVersionReply, ReadVersionRequest};
use plinth_env::reply::{Promise, Reply, promise};
use plinth_env::{Env, block_on};
use plinth_series::workload::Random;
use plinth_series::{Direction, SeriesLayer, SeriesStore, Settings, Value};
use plinth_types::{
    Bytes, CommitReply, CommitRequest, Error, KeyList, KeyRange, KeySelector, KeySpace, RangeRead,
    RangeResult, Version,
};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

/// A database that fails all commits but the first ones, or in which a row is damaged before one,
/// or that keeps one.
struct Ending {
    inner: Arc<dyn Endpoint>,
    commits: AtomicI64,
    spoils: Option<Spoilt>,
    holds: Option<Arc<Held>>,
}

/// A row that is damaged, and as it was then.
#[derive(Clone)]
pub struct Spoilt {
    key: Vec<u8>,
    was: Arc<Mutex<Option<(Row, Row)>>>,
}

impl Spoilt {
    fn spoil(&self, db: &Database) {
        let value = db.transact_blocking(|tr| tr.get(&self.key).wait()).unwrap();
        let Some(value) = value else { return };
        *self.was.lock().unwrap() = Some(damage(db, (self.key.clone(), value.to_vec())));
    }

    /// Puts it back, unless it was written anew.
    pub fn mend(&self, db: &Database) {
        let Some((was, spoilt)) = self.was.lock().unwrap().take() else { return };
        let is = db.transact_blocking(|tr| tr.get(&self.key).wait()).unwrap();
        if is.as_deref() == Some(&spoilt.1[..]) {
            set(db, &was);
        }
    }
}

pub fn ending(db: &Database, commits: i64) -> Database {
    let commits = AtomicI64::new(commits);
    let (inner, spoils, holds) = (db.endpoint().clone(), None, None);
    Database::new(Arc::new(Ending { inner, commits, spoils, holds }))
}

/// A database in which a row is damaged after so many commits.
pub fn spoiling(db: &Database, commits: i64, key: &[u8]) -> (Database, Spoilt) {
    let spoilt = Spoilt { key: key.to_vec(), was: Arc::default() };
    let (commits, spoils) = (AtomicI64::new(commits), Some(spoilt.clone()));
    let (inner, holds) = (db.endpoint().clone(), None);
    (Database::new(Arc::new(Ending { inner, commits, spoils, holds })), spoilt)
}

/// What keeps a commit from the database until it is let go.
pub struct Held {
    inner: Arc<dyn Endpoint>,
    /// Whether the next one is kept.
    keeps: AtomicBool,
    kept: Mutex<Option<(CommitRequest, Promise<CommitReply>)>>,
}

/// A database whose commits can be held.
pub fn holding(db: &Database) -> (Database, Arc<Held>) {
    let (inner, spoils) = (db.endpoint().clone(), None);
    let (keeps, kept) = (AtomicBool::new(false), Mutex::default());
    let held = Arc::new(Held { inner: inner.clone(), keeps, kept });
    let (commits, holds) = (AtomicI64::new(i64::MAX), Some(held.clone()));
    (Database::new(Arc::new(Ending { inner, commits, spoils, holds })), held)
}

impl Held {
    /// Goes on with what commits until that commit is kept, and drops it then.
    pub async fn leave<T>(&self, committing: impl Future<Output = T>) {
        self.keeps.store(true, Ordering::SeqCst);
        let mut committing = Box::pin(committing);
        poll_fn(|context| {
            assert!(committing.as_mut().poll(context).is_pending(), "its commit is kept");
            match self.kept.lock().unwrap().is_some() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Lets the commit go that was kept: whether it conflicts with another one.
    pub async fn let_go(&self) -> bool {
        // Until it is answered its sender knows nothing, and looks for nothing.
        let (request, kept) = self.kept.lock().unwrap().take().expect("one is kept");
        let came = self.inner.commit(request).await;
        drop(kept);
        matches!(came, Ok(CommitReply::Conflict { .. }))
    }
}

impl Endpoint for Ending {
    fn env(&self) -> &Env {
        self.inner.env()
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        self.inner.read_version(request)
    }

    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        self.inner.get_many(version, space, keys)
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        self.inner.get_key(version, space, selector)
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        self.inner.get_range(version, space, read)
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        if let Some(holds) = &self.holds
            && holds.keeps.swap(false, Ordering::SeqCst)
        {
            let (kept, reply) = promise();
            *holds.kept.lock().unwrap() = Some((request, kept));
            return reply;
        }
        match (self.commits.fetch_sub(1, Ordering::Relaxed), &self.spoils) {
            (1.., _) => self.inner.commit(request),
            (at, Some(spoils)) => {
                if at == 0 {
                    spoils.spoil(&Database::new(self.inner.clone()));
                }
                self.inner.commit(request)
            }
            (_, None) => Reply::ready(Err(Error::io_error())),
        }
    }

    fn watch(&self, key: Bytes, value: Option<Bytes>, version: Version) -> Reply<Version> {
        self.inner.watch(key, value, version)
    }

    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        self.inner.range_size(range)
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        self.inner.split_points(range, chunk)
    }

    fn addresses_for_key(&self, key: &[u8]) -> Reply<Vec<String>> {
        self.inner.addresses_for_key(key)
    }

    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn status_json(&self) -> Reply<String> {
        self.inner.status_json()
    }
}

/// Opens the store, and saves what that set aside or took back, with one commit more each time,
/// until it gets to the end. Gives how often it broke off.
fn with_ever_more_commits(db: &Database, settings: &Settings) -> i64 {
    for commits in 0.. {
        let opened = block_on(async {
            let store = SeriesStore::open_with(&ending(db, commits), settings.clone()).await?;
            store.sync().await?;
            // What has nothing to be saved commits nothing, so this says that there was one left.
            append(&store, WELL[0], 1_000_000 + commits..1_000_001 + commits).await?;
            store.sync().await
        });
        if opened.is_ok() {
            return commits;
        }
    }
    unreachable!("there are so many commits")
}

pub fn clear(db: &Database, key: &[u8]) {
    db.transact_blocking(|tr| {
        tr.clear(key);
        Ok(())
    })
    .unwrap();
}

fn points(store: &SeriesStore, name: &str) -> Vec<(i64, Value)> {
    block_on(async {
        let series = store.existing(name).await.unwrap().unwrap();
        let points = series.scan(.., Direction::Forward).await.unwrap().collect().await.unwrap();
        points.iter().map(|point| (point.time, point.value)).collect()
    })
}

/// Points that leaves have are set aside as well, since which they are can't be read: megabytes
/// before those that nothing has but the tail.
#[test]
fn a_server_that_dies_while_much_is_set_aside_and_taken_back_loses_nothing() {
    const POINTS: i64 = 250_000;
    let db = database();
    let settings = Settings { leaf_points: 8000, ..settings() };
    let open = || block_on(SeriesStore::open_with(&db, settings.clone())).unwrap();
    let store = open();
    let mut random = Random::new(1);
    block_on(async {
        // One that rests, with more than would be written once more, keeps the tail.
        append(&store, WELL[1], 0..7000).await.unwrap();
        store.sync().await.unwrap();
        let series = store.all_series(&[ILL, WELL[0]]).await.unwrap();
        for time in 0..POINTS {
            // Values that don't compress.
            series[0].append(time, f64::from_bits(random.next() >> 2)).unwrap();
            if time % 2000 == 0 {
                store.sync().await.unwrap();
            }
        }
        store.sync().await.unwrap();
    });
    let all = points(&store, ILL);
    drop(store);
    let (whole, _) = damage(&db, row_of(&db, TWIG));
    // The others let the tail go.
    let small = Settings { tail_bytes: 1000, ..settings.clone() };
    let broke_off = with_ever_more_commits(&db, &small);
    assert!(broke_off >= 4, "{broke_off}");
    let store = block_on(SeriesStore::open_with(&db, small)).unwrap();
    let mut well: Vec<i64> = times(&store, WELL[0]).unwrap();
    block_on(store.sync()).unwrap();
    let next = well.last().unwrap() + 1;
    block_on(append(&store, WELL[0], next..next + 100)).unwrap();
    block_on(store.sync()).unwrap();
    well.extend(next..next + 100);
    assert_eq!(times(&store, WELL[0]).unwrap(), well);
    drop(store);
    set(&db, &whole);
    let broke_off = with_ever_more_commits(&db, &settings);
    assert!(broke_off >= 4, "{broke_off}");
    let store = open();
    assert!(points(&store, ILL) == all, "as they were");
    assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
    block_on(store.check_invariants()).unwrap();
}

/// The tail has them, and its points are set aside whether leaves have them or not.
#[test]
fn what_was_written_over_and_deleted_since_stays_so() {
    let db = database();
    let store = open(&db);
    block_on(async {
        // One that rests keeps the tail.
        append(&store, WELL[1], 0..1).await.unwrap();
        store.sync().await.unwrap();
        for time in 0..11 {
            append(&store, ILL, time..time + 1).await.unwrap();
            store.sync().await.unwrap();
        }
        let series = store.series(ILL).await.unwrap();
        series.append(2, 77).unwrap();
        store.sync().await.unwrap();
        series.delete_range(5..7).await.unwrap();
        store.sync().await.unwrap();
    });
    let all = points(&store, ILL);
    assert_eq!(all.iter().find(|(time, _)| *time == 2), Some(&(2, Value::Integer(77))));
    drop(store);
    let (whole, _) = damage(&db, row_of(&db, TWIG));
    let store = open(&db);
    block_on(store.sync()).unwrap();
    block_on(append(&store, WELL[0], 0..9)).unwrap();
    block_on(store.sync()).unwrap();
    drop(store);
    set(&db, &whole);
    with_ever_more_commits(&db, &settings());
    let store = open(&db);
    assert_eq!(points(&store, ILL), all);
    assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
    block_on(store.check_invariants()).unwrap();
}

/// What it would take goes with the tail at the next opening, or comes under what is older.
#[test]
fn a_damaged_series_takes_nothing_after_it_was_looked_at() {
    for kind in [SERIES, SIDE, TWIG] {
        let db = database();
        let store = open(&db);
        fill(&store, 100..110);
        fill(&store, 0..3);
        let (whole, _) = damage(&db, row_of(&db, kind));
        drop(store);
        // It is found out by whoever writes there.
        let store = open(&db);
        let _ = block_on(append(&store, ILL, 3..4));
        block_on(store.sync()).unwrap();
        drop(store);
        for _ in 0..2 {
            let store = open(&db);
            let _ = times(&store, ILL);
            is_damaged(block_on(append(&store, ILL, 200..201)));
            let series = block_on(store.existing(ILL)).unwrap().unwrap();
            is_damaged(block_on(series.delete_range(100..105)));
            let layer = SeriesLayer::with_settings(&db, settings());
            db.try_transact_blocking(|tr| layer.append(tr, ILL, 300, 1).wait()).unwrap();
            block_on(store.take_in()).unwrap();
            block_on(store.sync()).unwrap();
        }
        set(&db, &whole);
        let store = open(&db);
        // The fourth is aside, if it was taken before that was known.
        let mut wanted: Vec<i64> = (0..3).chain(100..110).chain([300]).collect();
        if kind == SIDE {
            wanted.insert(3, 3);
        }
        assert_eq!(times(&store, ILL).unwrap(), wanted, "{kind}");
        assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0), "{kind}");
        block_on(store.check_invariants()).unwrap();
    }
}

/// The first row alone used to be tried.
#[test]
fn a_row_of_the_inbox_comes_back_from_behind_one_that_does_not() {
    const INBOX: u8 = 11;
    let db = database();
    drop(open(&db));
    let layer = SeriesLayer::with_settings(&db, settings());
    for time in 0..3 {
        db.try_transact_blocking(|tr| layer.append(tr, WELL[0], time, time).wait()).unwrap();
    }
    let letters = rows(&db, INBOX);
    letters.iter().for_each(|row| drop(damage(&db, row.clone())));
    block_on(open(&db).sync()).unwrap();
    let aside: Vec<Row> = rows(&db, ASIDE);
    assert_eq!((letters.len(), aside.len()), (3, 3));
    set(&db, &(aside[1].0.clone(), [&[0], &letters[1].1[..]].concat()));
    let store = open(&db);
    assert_eq!(times(&store, WELL[0]).unwrap(), [1]);
    assert_eq!(rows(&db, ASIDE).len(), 2);
    assert!(rows(&db, ASIDE).iter().all(|row| row.0.starts_with(PREFIX)));
    drop(store);
    // One that is given up for good is told no more.
    rows(&db, ASIDE).iter().for_each(|row| clear(&db, &row.0));
    let store = open(&db);
    assert_eq!(times(&store, WELL[0]).unwrap(), [1]);
    assert_eq!(store.damaged(), vec![]);
}

/// What one brings may fill a leaf of the next: what that one has aside was taken for what leaves
/// have, and dropped.
#[test]
fn several_that_come_back_at_once_lose_nothing() {
    let db = database();
    let small = Settings { tail_bytes: 1, ..settings() };
    let open = |settings: &Settings| block_on(SeriesStore::open_with(&db, settings.clone()));
    let store = open(&settings()).unwrap();
    let both = |times: Range<i64>| {
        for time in times {
            block_on(append(&store, "aaa host=ill", time..time + 1)).unwrap();
            block_on(append(&store, ILL, time..time + 1)).unwrap();
            block_on(store.sync()).unwrap();
        }
    };
    // A leaf, and points in none. One that rests keeps the tail from its point on.
    both(0..5);
    block_on(append(&store, WELL[1], 0..1)).unwrap();
    both(5..7);
    drop(store);
    let twigs: Vec<Row> = rows(&db, TWIG).into_iter().map(|row| damage(&db, row).0).collect();
    let store = open(&settings()).unwrap();
    block_on(store.sync()).unwrap();
    assert_eq!(store.stats().damaged, 2);
    // The tail goes on, and loses what theirs has before that.
    block_on(append(&store, WELL[0], 0..9)).unwrap();
    block_on(store.sync()).unwrap();
    drop(store);
    twigs.iter().for_each(|row| set(&db, row));
    // What comes in of one seals the other, as the tail is too long.
    with_ever_more_commits(&db, &small);
    let store = open(&small).unwrap();
    for name in ["aaa host=ill", ILL] {
        assert_eq!(times(&store, name).unwrap(), (0..7).collect::<Vec<_>>(), "{name}");
    }
    assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
    block_on(store.check_invariants()).unwrap();
}

/// A series that takes points while a row of it is aside would have them lie under that.
#[test]
fn a_series_is_damaged_while_a_row_of_it_that_is_aside_is() {
    let db = database();
    let store = open(&db);
    for time in 0..11 {
        block_on(append(&store, ILL, time..time + 1)).unwrap();
        block_on(store.sync()).unwrap();
    }
    drop(store);
    let (whole, _) = damage(&db, row_of(&db, TWIG));
    let store = open(&db);
    let layer = SeriesLayer::with_settings(&db, settings());
    db.try_transact_blocking(|tr| layer.append(tr, ILL, 11, 11).wait()).unwrap();
    block_on(store.take_in()).unwrap();
    block_on(store.sync()).unwrap();
    drop(store);
    set(&db, &whole);
    let aside = rows(&db, ASIDE);
    assert!(aside.len() >= 2);
    for row in aside {
        let (row, _) = damage(&db, row);
        let store = open(&db);
        is_damaged(block_on(append(&store, ILL, 20..21)));
        assert_eq!(store.stats().damaged, 1);
        drop(store);
        set(&db, &row);
    }
    let store = open(&db);
    assert_eq!(times(&store, ILL).unwrap(), (0..12).collect::<Vec<_>>());
    assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
    block_on(store.check_invariants()).unwrap();
}

/// Who breaks off before he says so in (22) leaves rows that count for nothing.
#[test]
fn what_was_begun_to_be_set_aside_goes_when_it_is_begun_anew() {
    let db = database();
    fill(&open(&db), 0..6);
    let (whole, damaged) = damage(&db, row_of(&db, TWIG));
    let store = open(&db);
    let layer = SeriesLayer::with_settings(&db, settings());
    db.try_transact_blocking(|tr| layer.append(tr, ILL, 2, 99).wait()).unwrap();
    block_on(store.take_in()).unwrap();
    block_on(store.sync()).unwrap();
    drop(store);
    let left = rows(&db, ASIDE);
    set(&db, &whole);
    let store = open(&db);
    let series = block_on(store.existing(ILL)).unwrap().unwrap();
    series.append(2, 5).unwrap();
    block_on(store.sync()).unwrap();
    let all = points(&store, ILL);
    assert_eq!(all[2], (2, Value::Integer(5)));
    drop(store);
    left.iter().for_each(|row| set(&db, row));
    set(&db, &damaged);
    block_on(open(&db).sync()).unwrap();
    set(&db, &whole);
    let store = open(&db);
    assert_eq!(points(&store, ILL), all);
    assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
}

/// Batches name the series of their points.
#[test]
fn points_that_are_aside_as_those_of_another_series_stay_there() {
    let db = database();
    fill(&open(&db), 0..6);
    let twigs = rows(&db, TWIG);
    twigs.iter().for_each(|row| drop(damage(&db, row.clone())));
    block_on(open(&db).sync()).unwrap();
    let aside = rows(&db, ASIDE);
    assert_eq!(aside.len(), 3);
    twigs.iter().for_each(|row| set(&db, row));
    // In the order of names: the first series' row lies where the second's did.
    set(&db, &(aside[1].0.clone(), aside[0].1.clone()));
    let store = open(&db);
    let told = store.damaged();
    assert!(matches!(&told[..], [(name, _)] if name == WELL[0]), "{told:?}");
    is_damaged(block_on(append(&store, WELL[0], 20..21)));
    assert_eq!(times(&store, ILL).unwrap(), (0..6).collect::<Vec<_>>());
    drop(store);
    set(&db, &aside[1]);
    let store = open(&db);
    for name in WELL {
        assert_eq!(times(&store, name).unwrap(), (0..6).collect::<Vec<_>>());
    }
    assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
}

/// They came back as those of a new series: so they lay aside where one of a damaged name and tree
/// was taken for a series of that name.
#[test]
fn points_that_are_aside_of_a_name_without_a_series_stay_there() {
    let db = database();
    fill(&open(&db), 0..6);
    let twig = row_of(&db, TWIG);
    damage(&db, twig.clone());
    block_on(open(&db).sync()).unwrap();
    let (aside, damaged) = (rows(&db, ASIDE), rows(&db, DAMAGED));
    assert_eq!((aside.len(), damaged.len()), (1, 1));
    set(&db, &twig);
    const NONE: &str = "cpu host=no";
    let named_none = |row: &Row| {
        let at = row.0.windows(ILL.len()).position(|part| part == ILL.as_bytes()).unwrap();
        let rest = &row.0[at + ILL.len()..];
        ([&row.0[..at], NONE.as_bytes(), rest].concat(), row.1.clone())
    };
    for row in aside.iter().chain(&damaged) {
        set(&db, &named_none(row));
        clear(&db, &row.0);
    }
    let store = open(&db);
    assert_eq!(store.stats().damaged, 1);
    is_damaged(block_on(append(&store, NONE, 20..21)));
    drop(store);
    for row in aside.iter().chain(&damaged) {
        set(&db, row);
        clear(&db, &named_none(row).0);
    }
    let store = open(&db);
    assert_eq!(times(&store, ILL).unwrap(), (0..6).collect::<Vec<_>>());
    assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
}

/// Letters that could not be read were laid under what the tail had before them.
#[test]
fn what_the_inbox_had_lies_over_what_the_tail_had() {
    const INBOX: u8 = 11;
    let db = database();
    let store = open(&db);
    block_on(append(&store, ILL, 0..9)).unwrap();
    block_on(store.sync()).unwrap();
    let (twig, _) = damage(&db, row_of(&db, TWIG));
    drop(store);
    let layer = SeriesLayer::with_settings(&db, settings());
    db.try_transact_blocking(|tr| layer.append(tr, ILL, 8, 88).wait()).unwrap();
    let (letter, _) = damage(&db, rows(&db, INBOX).remove(0));
    block_on(open(&db).sync()).unwrap();
    let null = |row: &Row| row.0[PREFIX.len() + 2] == 0;
    let of_inbox: Vec<Row> = rows(&db, ASIDE).into_iter().filter(null).collect();
    assert_eq!(of_inbox.len(), 1);
    set(&db, &(of_inbox[0].0.clone(), [&[0], &letter.1[..]].concat()));
    set(&db, &twig);
    let store = open(&db);
    assert_eq!(points(&store, ILL).last(), Some(&(8, Value::Integer(88))));
    assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
}

/// Leaves have got further since it was found whole first, and have what the tail has an older
/// value of.
#[test]
fn what_leaves_got_while_it_came_back_is_not_undone_by_the_tail() {
    for commits in 0.. {
        let db = database();
        let store = open(&db);
        // One that rests keeps the tail.
        block_on(append(&store, WELL[1], 0..1)).unwrap();
        for time in 0..7 {
            block_on(append(&store, ILL, time..time + 1)).unwrap();
            block_on(store.sync()).unwrap();
        }
        drop(store);
        let (whole, _) = damage(&db, row_of(&db, TWIG));
        let layer = SeriesLayer::with_settings(&db, settings());
        for (time, value) in [(5, 55), (7, 7)] {
            db.try_transact_blocking(|tr| layer.append(tr, ILL, time, value).wait()).unwrap();
        }
        block_on(open(&db).sync()).unwrap();
        set(&db, &whole);
        // Some of it is back, with a leaf.
        let is_open = block_on(SeriesStore::open_with(&ending(&db, commits), settings())).is_ok();
        let (whole, _) = damage(&db, row_of(&db, TWIG));
        block_on(open(&db).sync()).unwrap();
        set(&db, &whole);
        let store = open(&db);
        let value = |time| if time == 5 { 55 } else { time };
        let wanted = (0..8).map(|time| (time, Value::Integer(value(time))));
        assert_eq!(points(&store, ILL), wanted.collect::<Vec<_>>(), "{commits}");
        assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
        block_on(store.check_invariants()).unwrap();
        if is_open {
            assert!(commits >= 4, "{commits}");
            break;
        }
    }
}

/// A series that is damaged and mended again and again, by servers that die.
struct Trial {
    db: Database,
    random: Random,
    /// What was acknowledged.
    points: BTreeMap<i64, i64>,
    value: i64,
    front: i64,
}

impl Trial {
    fn new(seed: u64) -> Self {
        let (db, random) = (database(), Random::new(seed));
        Self { db, random, points: BTreeMap::new(), value: 0, front: 0 }
    }

    fn settings(&mut self) -> Settings {
        let tail_bytes = [1, 300, 1 << 20][self.random.below(3) as usize];
        Settings { tail_bytes, ..settings() }
    }

    fn open(&mut self) -> SeriesStore {
        let settings = self.settings();
        block_on(SeriesStore::open_with(&self.db, settings)).unwrap()
    }

    /// A point for the series, near those that it has.
    fn point(&mut self) -> (i64, i64) {
        self.value += 1;
        self.front += self.random.below(2) as i64;
        (self.front - self.random.below(6) as i64, self.value)
    }

    /// Others take points, and the tail moves on.
    fn others_go_on(&mut self, store: &SeriesStore) {
        self.value += 10;
        let (from, which) = (self.value, self.random.below(2) as usize);
        block_on(append(store, WELL[which], from..from + 5)).unwrap();
        block_on(store.sync()).unwrap();
    }

    fn write(&mut self) {
        let store = self.open();
        let series = block_on(store.series(ILL)).unwrap();
        for _ in 0..self.random.below(12) + 1 {
            let (time, value) = self.point();
            series.append(time, value).unwrap();
            self.points.insert(time, value);
            if self.random.below(2) == 0 {
                block_on(store.sync()).unwrap();
            }
            if self.random.below(8) == 0 {
                let first = self.front - self.random.below(9) as i64;
                block_on(series.delete_range(first..first + 2)).unwrap();
                self.points.retain(|time, _| !(first..first + 2).contains(time));
            }
            if self.random.below(6) == 0 {
                self.others_go_on(&store);
            }
        }
        block_on(store.sync()).unwrap();
        self.check(&store);
    }

    /// Points come by the inbox: sometimes in more rows than are taken back at a time.
    fn post(&mut self) {
        let layer = SeriesLayer::with_settings(&self.db, settings());
        let most = [0, 3, 5, 70][self.random.below(4) as usize];
        for _ in 0..most {
            let (time, value) = self.point();
            let tr = |tr: &_| layer.append(tr, ILL, time, value).wait();
            self.db.try_transact_blocking(tr).unwrap();
            self.points.insert(time, value);
        }
    }

    /// A server opens the series, and dies after some commits.
    fn die(&mut self) {
        let commits = self.random.below(14) as i64;
        let (db, settings) = (ending(&self.db, commits), self.settings());
        self.value += 10;
        let from = self.value;
        let _ = block_on(async {
            let store = SeriesStore::open_with(&db, settings).await?;
            store.sync().await?;
            append(&store, WELL[0], from..from + 5).await?;
            store.sync().await
        });
    }

    /// Damages a row of the series, lets some time pass, and puts it back.
    fn damage(&mut self) {
        let of = id(&self.db, ILL);
        let kind = [TWIG, TWIG, SIDE, SERIES][self.random.below(4) as usize];
        let of = |kind| [PREFIX, &[0x15, kind], &of].concat();
        let mut found = rows(&self.db, kind);
        found.retain(|row| row.0.starts_with(&of(kind)));
        if found.is_empty() {
            return;
        }
        let which = self.random.below(found.len() as u64) as usize;
        let (whole, _) = damage(&self.db, found.swap_remove(which));
        for _ in 0..self.random.below(4) {
            match self.random.below(3) {
                0 => self.post(),
                1 => self.die(),
                _ => {
                    let store = self.open();
                    block_on(store.sync()).unwrap();
                    self.others_go_on(&store);
                }
            }
        }
        set(&self.db, &whole);
    }

    fn check(&self, store: &SeriesStore) {
        let wanted = self.points.iter().map(|(time, value)| (*time, Value::Integer(*value)));
        assert_eq!(points(store, ILL), wanted.collect::<Vec<_>>());
        assert_eq!((store.damaged(), rows(&self.db, ASIDE).len()), (vec![], 0));
        block_on(store.check_invariants()).unwrap();
    }
}

/// What the tail had of a series while it was taken back came over what was still aside, once it
/// was damaged again, and over what leaves had by then.
#[test]
fn a_series_that_is_damaged_again_while_it_comes_back_keeps_the_newest() {
    for seed in 0..30 {
        let mut trial = Trial::new(seed);
        for _ in 0..4 {
            trial.write();
            for _ in 0..trial.random.below(5) + 1 {
                trial.damage();
                (0..trial.random.below(3)).for_each(|_| trial.die());
            }
            let store = trial.open();
            trial.check(&store);
        }
    }
}
