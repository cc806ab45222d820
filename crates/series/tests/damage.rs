//! What is wrong with the rows of one series stays with that series.
//!
//! One damaged row stopped its whole part for good: a flush began with the same step again and
//! again, so that nothing of any series was saved any more, and a store whose tail had points of
//! such a series could not be opened. Here rows of one series are damaged, of each kind, through
//! the interface of keys and values. Others have to go on, nothing of the damaged one may be
//! overwritten or deleted, and when the row is put back all that was acknowledged has to be there.

use plinth::{Database, Local};
use plinth_env::block_on;
use plinth_series::ingest::{Memory, Protocol, Session};
use plinth_series::{
    Direction, Error, Point, Result, SeriesLayer, SeriesStore, Settings, delete_series,
};
use plinth_types::strinc;

pub const PREFIX: &[u8] = b"s/";
pub const ILL: &str = "cpu host=ill";
pub const WELL: [&str; 2] = ["cpu host=well", "mem host=ill"];

/// The kinds of rows.
pub const NEXT_ID: u8 = 2;
pub const NAME: u8 = 3;
pub const SERIES: u8 = 4;
pub const TWIG: u8 = 7;
pub const SIDE: u8 = 8;
pub const INBOX: u8 = 11;
pub const COUNT: u8 = 13;
pub const DAMAGED: u8 = 22;
pub const ASIDE: u8 = 23;

pub fn settings() -> Settings {
    let prefix = Some(PREFIX.to_vec());
    Settings { prefix, commit_every: None, leaf_points: 4, ..Settings::default() }
}

pub fn database() -> Database {
    Local::in_memory().unwrap().into_database()
}

pub fn open(db: &Database) -> SeriesStore {
    block_on(SeriesStore::open_with(db, settings())).unwrap()
}

pub type Row = (Vec<u8>, Vec<u8>);

/// The rows of a kind.
pub fn rows(db: &Database, kind: u8) -> Vec<Row> {
    let begin = [PREFIX, &[0x15, kind]].concat();
    let end = strinc(&begin).unwrap();
    let read = db.transact_blocking(|tr| tr.range(&begin[..]..&end[..]).collect_blocking());
    read.unwrap().iter().map(|row| (row.key.to_vec(), row.value.to_vec())).collect()
}

pub fn set(db: &Database, (key, value): &Row) {
    db.transact_blocking(|tr| {
        tr.set(key, value);
        Ok(())
    })
    .unwrap();
}

/// Damages a row; gives it as it was, and as it is.
pub fn damage(db: &Database, row: Row) -> (Row, Row) {
    let mut damaged = row.clone();
    match damaged.1.len() {
        0..=8 => damaged.1.push(1),
        len => damaged.1[len / 2] ^= 0x84,
    }
    set(db, &damaged);
    (row, damaged)
}

/// The number of a series, as it stands in keys.
pub fn id(db: &Database, name: &str) -> Vec<u8> {
    let row = rows(db, SERIES).into_iter().find(|row| row.1 == name.as_bytes()).unwrap();
    row.0[PREFIX.len() + 2..].to_vec()
}

/// The first row of a kind that the damaged series has.
pub fn row_of(db: &Database, kind: u8) -> Row {
    let of = [PREFIX, &[0x15, kind], &id(db, ILL)].concat();
    rows(db, kind).into_iter().find(|row| row.0.starts_with(&of)).unwrap()
}

pub async fn append(
    store: &SeriesStore,
    name: &str,
    times: impl Iterator<Item = i64>,
) -> Result<()> {
    let series = store.series(name).await?;
    for time in times {
        series.append(time, time)?;
    }
    Ok(())
}

pub fn fill(store: &SeriesStore, times: impl Iterator<Item = i64> + Clone) {
    block_on(async {
        for name in WELL.into_iter().chain([ILL]) {
            append(store, name, times.clone()).await.unwrap();
        }
        store.sync().await.unwrap();
    });
}

pub fn times(store: &SeriesStore, name: &str) -> Result<Vec<i64>> {
    block_on(async {
        let Some(series) = store.existing(name).await? else { return Ok(Vec::new()) };
        let points: Vec<Point> = series.scan(.., Direction::Forward).await?.collect().await?;
        Ok(points.iter().map(|point| point.time).collect())
    })
}

/// A store that has met with a damaged leaf of late points; the others have five of those, and ten
/// points behind.
fn with_a_damaged_late_leaf() -> (Database, SeriesStore) {
    let db = database();
    let store = open(&db);
    fill(&store, 100..110);
    fill(&store, 0..3);
    damage(&db, row_of(&db, SIDE));
    fill(&store, 3..5);
    (db, store)
}

/// All series but the damaged one take points, are saved, and have these times afterwards.
pub fn others_go_on(store: &SeriesStore, all: &mut Vec<i64>) {
    let next = all.last().map_or(1000, |last| last.max(&999) + 1);
    block_on(async {
        for name in WELL {
            append(store, name, next..next + 9).await.unwrap();
        }
        store.sync().await.unwrap();
    });
    all.extend(next..next + 9);
    for name in WELL {
        assert_eq!(times(store, name).unwrap(), *all, "{name}");
    }
}

pub fn is_damaged<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Damaged { .. })), "{result:?}");
}

/// The next two lives find the same.
fn it_stays_so(db: &Database, all: &mut Vec<i64>) {
    for _ in 0..2 {
        let store = open(db);
        ill_is_told(&store);
        others_go_on(&store, all);
    }
}

/// The one series is told, and takes nothing.
fn ill_is_told(store: &SeriesStore) {
    is_damaged(block_on(append(store, ILL, 5000..5001)));
    let told = store.damaged();
    assert!(
        matches!(&told[..], [(name, why)] if name == ILL && why.contains("damaged")),
        "{told:?}"
    );
    assert_eq!(store.stats().damaged, 1);
}

#[test]
fn a_leaf_of_late_points() {
    let db = database();
    let store = open(&db);
    fill(&store, 100..120);
    fill(&store, 0..3);
    let (whole, damaged) = damage(&db, row_of(&db, SIDE));
    // Into the leaf that is damaged, and behind it, of each series.
    fill(&store, (3..5).chain(120..130));
    let mut all: Vec<i64> = (0..5).chain(100..130).collect();
    is_damaged(block_on(append(&store, ILL, 130..131)));
    others_go_on(&store, &mut all);
    ill_is_told(&store);
    assert!(store.stats().points_aside >= 2);
    is_damaged(times(&store, ILL));
    it_stays_so(&db, &mut all);
    assert!(rows(&db, SIDE).contains(&damaged), "it lies there as it was");
    set(&db, &whole);
    let store = open(&db);
    assert_eq!(times(&store, ILL).unwrap(), (0..5).chain(100..130).collect::<Vec<_>>());
    assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
    fill(&store, 2000..2010);
    block_on(store.check_invariants()).unwrap();
}

/// Points that were acknowledged and are in no leaf are in the tail, which moves on.
#[test]
fn a_twig_whose_series_has_points_in_the_tail() {
    let db = database();
    let store = open(&db);
    fill(&store, 0..4 * 63 + 2);
    let (whole, damaged) = damage(&db, row_of(&db, TWIG));
    // The 64th leaf makes a node of all twigs.
    fill(&store, 4 * 63 + 2..4 * 64 + 1);
    let mut all: Vec<i64> = (0..4 * 64 + 1).collect();
    others_go_on(&store, &mut all);
    ill_is_told(&store);
    drop(store);
    it_stays_so(&db, &mut all);
    assert!(rows(&db, TWIG).contains(&damaged), "it lies there as it was");
    set(&db, &whole);
    let store = open(&db);
    assert_eq!(times(&store, ILL).unwrap(), (0..4 * 64 + 1).collect::<Vec<_>>());
    block_on(store.check_invariants()).unwrap();
}

/// A row that is found to be damaged when the store is opened, while the tail has points of it.
fn found_at_opening(kind: u8, damaged_row: impl Fn(&Database) -> Row) {
    let db = database();
    let store = open(&db);
    fill(&store, 0..10);
    drop(store);
    let (whole, damaged) = damage(&db, damaged_row(&db));
    let mut all: Vec<i64> = (0..10).collect();
    for _ in 0..3 {
        let store = open(&db);
        others_go_on(&store, &mut all);
        is_damaged(block_on(append(&store, ILL, 5000..5001)));
        assert!(!store.damaged().is_empty() && store.damaged().len() <= 2);
        others_go_on(&store, &mut all);
        assert!(rows(&db, kind).contains(&damaged), "it lies there as it was");
        let layer = SeriesLayer::with_settings(&db, settings());
        db.try_transact_blocking(|tr| layer.append(tr, ILL, 11, 11).wait()).unwrap();
        block_on(store.take_in()).unwrap();
        assert!(store.failure().is_none());
    }
    set(&db, &whole);
    let store = open(&db);
    assert_eq!(times(&store, ILL).unwrap(), (0..10).chain([11]).collect::<Vec<_>>(), "{kind}");
    fill(&store, 6000..6010);
    assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
    block_on(store.check_invariants()).unwrap();
}

#[test]
fn a_twig_when_the_store_is_opened() {
    found_at_opening(TWIG, |db| row_of(db, TWIG));
}

#[test]
fn a_twig_that_has_gone() {
    let db = database();
    let store = open(&db);
    fill(&store, 0..30);
    drop(store);
    let whole = row_of(&db, TWIG);
    db.transact_blocking(|tr| {
        tr.clear(&whole.0);
        Ok(())
    })
    .unwrap();
    let store = open(&db);
    is_damaged(block_on(append(&store, ILL, 5000..5001)));
    others_go_on(&store, &mut (0..30).collect());
    drop(store);
    set(&db, &whole);
    assert_eq!(times(&open(&db), ILL).unwrap(), (0..30).collect::<Vec<_>>());
}

/// Nothing but the next leaf tells: that was written over.
#[test]
fn the_last_twig_that_has_gone() {
    // A leaf's and a node's, with points in the tail, or none.
    for points in [28, 30, 4 * 64, 4 * 64 + 2] {
        let db = database();
        let store = open(&db);
        let mut all: Vec<i64> = (0..points).collect();
        fill(&store, all.iter().copied());
        drop(store);
        let of = [PREFIX, &[0x15, TWIG], &id(&db, ILL)].concat();
        let mut twigs = rows(&db, TWIG).into_iter().filter(|row| row.0.starts_with(&of));
        let whole = twigs.next_back().unwrap();
        db.transact_blocking(|tr| {
            tr.clear(&whole.0);
            Ok(())
        })
        .unwrap();
        const NODE: u8 = 6;
        let nodes = rows(&db, NODE);
        let store = open(&db);
        // What fills no leaf yet is taken.
        let next = all.last().unwrap() + 1;
        block_on(append(&store, ILL, next..next + 9)).unwrap();
        others_go_on(&store, &mut all);
        ill_is_told(&store);
        drop(store);
        it_stays_so(&db, &mut all);
        let now = rows(&db, NODE);
        assert!(nodes.iter().all(|row| now.contains(row)), "it lies there as it was");
        set(&db, &whole);
        let store = open(&db);
        assert_eq!(times(&store, ILL).unwrap(), (0..next + 9).collect::<Vec<_>>(), "{points}");
        assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
        block_on(store.check_invariants()).unwrap();
    }
}

#[test]
fn a_name() {
    found_at_opening(SERIES, |db| {
        let mut row = row_of(db, SERIES);
        // One that is no name when a byte of it is changed.
        row.1 = ILL.as_bytes().to_vec();
        row
    });
}

#[test]
fn the_number_of_a_name() {
    for (leaves, is_in_tail) in [(3, false), (2, true)] {
        let db = database();
        let store = open(&db);
        let mut all: Vec<i64> = (0..4 * leaves + i64::from(is_in_tail)).collect();
        fill(&store, all.iter().copied());
        drop(store);
        let is_its = |row: &Row| row.0.windows(ILL.len()).any(|part| part == ILL.as_bytes());
        let number = rows(&db, NAME).into_iter().find(is_its).unwrap();
        let (whole, damaged) = damage(&db, number);
        let store = open(&db);
        let before = all.clone();
        others_go_on(&store, &mut all);
        // One that the tail has points of is known without its name.
        assert_eq!(block_on(append(&store, ILL, 5000..5001)).is_ok(), is_in_tail);
        others_go_on(&store, &mut all);
        // Nor does it keep back who sends points of it and of others.
        let mut session = Session::new(Protocol::OpenTsdb, 1, &Memory::default());
        let sent = b"put cpu 6000000000 1 host=well\nput cpu 6000000000 1 host=ill\n";
        session.feed(&sent[..sent.len() / 2 + 1]);
        if !is_in_tail {
            session.feed(&sent[sent.len() / 2 + 1..]);
        }
        block_on(session.save(&store)).unwrap();
        assert_eq!((session.saved(), session.refused()), (1, u64::from(!is_in_tail)));
        assert!(rows(&db, NAME).contains(&damaged), "it lies there as it was");
        drop(store);
        set(&db, &whole);
        let wanted = before.into_iter().chain(is_in_tail.then_some(5000));
        assert_eq!(times(&open(&db), ILL).unwrap(), wanted.collect::<Vec<_>>());
    }
}

#[test]
fn a_row_of_the_inbox_and_mail_for_a_damaged_series() {
    let db = database();
    let store = open(&db);
    fill(&store, 100..110);
    let (twig, _) = damage(&db, row_of(&db, TWIG));
    drop(store);
    let layer = SeriesLayer::with_settings(&db, settings());
    let post = |name: &str, time: i64| {
        db.try_transact_blocking(|tr| layer.append(tr, name, time, time).wait()).unwrap();
    };
    post("disk host=a", 1);
    let (letter, damaged) = damage(&db, rows(&db, INBOX).remove(0));
    post(ILL, 111);
    post(WELL[0], 111);
    let store = open(&db);
    assert_eq!(times(&store, WELL[0]).unwrap(), (100..110).chain([111]).collect::<Vec<_>>());
    post(ILL, 112);
    post(WELL[0], 112);
    block_on(store.take_in()).unwrap();
    assert_eq!(times(&store, WELL[0]).unwrap().last(), Some(&112));
    assert!(rows(&db, INBOX).is_empty(), "it doesn't fill up");
    let told: Vec<String> = store.damaged().into_iter().map(|(name, _)| name).collect();
    assert_eq!(told, [ILL, "rows of the inbox"]);
    drop(store);
    let store = open(&db);
    let aside = rows(&db, ASIDE).into_iter().find(|row| row.1[1..] == damaged.1);
    let (key, aside) = aside.expect("it is kept, byte by byte");
    set(&db, &(key, [&aside[..1], &letter.1].concat()));
    set(&db, &twig);
    drop(store);
    let store = open(&db);
    assert_eq!(times(&store, ILL).unwrap(), (100..110).chain([111, 112]).collect::<Vec<_>>());
    assert_eq!(times(&store, "disk host=a").unwrap(), [1]);
    assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
    block_on(store.check_invariants()).unwrap();
}

#[test]
fn what_new_series_need_is_none_of_the_others_affair() {
    for kind in [NEXT_ID, COUNT] {
        let db = database();
        let store = open(&db);
        fill(&store, 0..10);
        drop(store);
        let (whole, _) = damage(&db, rows(&db, kind).remove(0));
        let store = open(&db);
        let mut all: Vec<i64> = (0..10).collect();
        others_go_on(&store, &mut all);
        is_damaged(block_on(append(&store, "new host=a", 0..1)));
        let layer = SeriesLayer::with_settings(&db, settings());
        db.try_transact_blocking(|tr| layer.append(tr, "new host=a", 7, 7).wait()).unwrap();
        others_go_on(&store, &mut all);
        drop(store);
        set(&db, &whole);
        assert_eq!(times(&open(&db), "new host=a").unwrap(), [7], "{kind}");
    }
}

#[test]
fn a_damaged_series_can_be_deleted_with_what_is_aside() {
    for kind in [SERIES, TWIG, SIDE] {
        let db = database();
        let store = open(&db);
        fill(&store, 100..110);
        fill(&store, 0..3);
        damage(&db, row_of(&db, kind));
        drop(store);
        let store = open(&db);
        let _ = block_on(append(&store, ILL, 3..4));
        block_on(store.sync()).unwrap();
        let series = block_on(store.existing(ILL)).unwrap().unwrap();
        block_on(store.delete(&series)).unwrap();
        assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
        block_on(append(&store, ILL, 50..51)).unwrap();
        drop(store);
        block_on(async {
            let store = open(&db);
            append(&store, ILL, 50..51).await.unwrap();
            store.sync().await.unwrap();
            store.check_invariants().await.unwrap();
        });
        assert_eq!(times(&open(&db), ILL).unwrap(), [50], "{kind}");
    }
}

#[test]
fn a_sender_is_told_which_series_it_is() {
    let (_db, store) = with_a_damaged_late_leaf();
    let mut session = Session::new(Protocol::Resp, 1, &Memory::default());
    let sent = b"+cpu host=ill\r\n:900\r\n:1\r\n+cpu host=well\r\n:900\r\n:1\r\n+SYNC\r\n";
    for _ in 0..2 {
        assert_eq!(session.feed(sent), sent.len());
        block_on(session.save(&store)).unwrap();
    }
    let told = String::from_utf8_lossy(session.replies()).into_owned();
    assert!(told.starts_with("-DB the series cpu host=ill is damaged: "), "{told}");
    assert!(told.contains("+OK 1\r\n") && told.contains("+OK 2\r\n"), "{told}");
    assert_eq!(times(&store, WELL[0]).unwrap().last(), Some(&900));
}

/// It ended with the first that was damaged, and never came to those behind it.
#[test]
fn a_range_goes_from_all_others_that_a_selector_names() {
    let (_db, store) = with_a_damaged_late_leaf();
    is_damaged(block_on(append(&store, ILL, 130..131)));
    let form = "match[]={host=~\".%2B\"}&start=0&end=0";
    let (status, told) = block_on(delete_series(&store, &[form.as_bytes()]));
    assert!(status >= 400 && told.contains("cpu host=ill is damaged"), "{status} {told}");
    for name in WELL {
        let left: Vec<i64> = (1..5).chain(100..110).collect();
        assert_eq!(times(&store, name).unwrap(), left, "{name}");
    }
}

#[test]
fn each_series_is_had_or_refused_by_itself() {
    let (db, store) = with_a_damaged_late_leaf();
    is_damaged(block_on(append(&store, ILL, 130..131)));
    drop(store);
    let store = open(&db);
    let each = block_on(store.each_series(&[WELL[0], "no name", ILL, WELL[1]])).unwrap();
    let told = each.iter().map(|one| match one {
        Ok(series) => series.name().to_string(),
        Err(Error::Name { .. }) => "name".to_owned(),
        Err(Error::Damaged { .. }) => "damaged".to_owned(),
        Err(why) => panic!("{why}"),
    });
    assert_eq!(told.collect::<Vec<_>>(), [WELL[0], "name", "damaged", WELL[1]]);
}

/// Its points came back as the other's.
#[test]
fn a_name_that_is_another_series() {
    for with_twig in [false, true] {
        let db = database();
        let store = open(&db);
        fill(&store, 0..10);
        drop(store);
        let (name, twig) = (row_of(&db, SERIES), row_of(&db, TWIG));
        set(&db, &(name.0.clone(), WELL[0].as_bytes().to_vec()));
        if with_twig {
            damage(&db, twig.clone());
        }
        let mut all: Vec<i64> = (0..10).collect();
        for _ in 0..2 {
            let store = open(&db);
            others_go_on(&store, &mut all);
            assert_eq!(store.stats().damaged, 1);
            drop(store);
            set(&db, &twig);
        }
        set(&db, &name);
        let store = open(&db);
        assert_eq!(times(&store, ILL).unwrap(), (0..10).collect::<Vec<_>>());
        others_go_on(&store, &mut all);
        assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
        block_on(store.check_invariants()).unwrap();
    }
}

/// Its points came back as the other's that rests, or as those of one that is made of that name:
/// then the next leaf of one was written over the other's.
#[test]
fn a_name_that_is_a_series_at_rest_or_none() {
    const NONE: &str = "cpu host=none";
    for (other, with_twig) in [(WELL[0], false), (WELL[0], true), (NONE, false), (NONE, true)] {
        let db = database();
        let store = open(&db);
        // Two leaves, and nothing of it in the tail.
        block_on(append(&store, WELL[0], 100..108)).unwrap();
        block_on(store.sync()).unwrap();
        block_on(append(&store, ILL, 0..6)).unwrap();
        block_on(store.sync()).unwrap();
        drop(store);
        let (name, twig) = (row_of(&db, SERIES), row_of(&db, TWIG));
        set(&db, &(name.0.clone(), other.as_bytes().to_vec()));
        if with_twig {
            damage(&db, twig.clone());
        }
        for at in [200, 210] {
            let store = open(&db);
            assert_eq!(store.stats().damaged, 1, "{other} {with_twig}");
            block_on(append(&store, other, at..at + 10)).unwrap();
            block_on(store.sync()).unwrap();
            drop(store);
            set(&db, &twig);
        }
        set(&db, &name);
        let store = open(&db);
        assert_eq!(times(&store, ILL).unwrap(), (0..6).collect::<Vec<_>>(), "{other} {with_twig}");
        let before = (100..108).filter(|_| other == WELL[0]);
        assert_eq!(times(&store, other).unwrap(), before.chain(200..220).collect::<Vec<_>>());
        block_on(append(&store, ILL, 6..16)).unwrap();
        block_on(store.sync()).unwrap();
        assert_eq!(times(&store, ILL).unwrap(), (0..16).collect::<Vec<_>>());
        assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
        block_on(store.check_invariants()).unwrap();
    }
}
