//! Sessions and the store that they save into: what a sender was told is there, whatever stood in between.
//!
//! Nothing is committed here unless a session asks for it, so what an opening without a farewell finds is exactly what was acknowledged.

use plinth::Database;
use plinth_env::block_on;
use plinth_series::ingest::{Memory, Protocol, Session};
use plinth_series::{Direction, Point, SeriesStore, Settings};
use std::fmt::Write;

fn settings() -> Settings {
    Settings { commit_every: None, ..Settings::default() }
}

fn open(db: &Database, settings: Settings) -> SeriesStore {
    block_on(SeriesStore::open_with(db, settings)).unwrap()
}

fn session() -> Session {
    Session::new(Protocol::Resp, 5, &Memory::default())
}

/// Feeds all of it, and saves as often as the session asks for; what is left is saved by whoever calls this.
fn feed(session: &mut Session, store: &SeriesStore, text: &str) {
    let mut at = 0;
    loop {
        at += session.feed(&text.as_bytes()[at..]);
        if !session.wants_save() {
            return;
        }
        block_on(session.save(store)).unwrap();
    }
}

fn times(store: &SeriesStore, name: &str) -> Vec<i64> {
    let Some(series) = block_on(store.existing(name)).unwrap() else { return Vec::new() };
    let points: Vec<Point> =
        block_on(async { series.scan(.., Direction::Forward).await?.collect().await }).unwrap();
    points.into_iter().map(|point| point.time).collect()
}

fn points(name: &str, times: std::ops::Range<i64>) -> String {
    times.fold(String::new(), |mut text, time| {
        write!(text, "+{name}\n:{time}\n:{time}\n").unwrap();
        text
    })
}

#[test]
fn a_store_that_is_behind_is_waited_for_and_takes_every_point() {
    let db = Database::in_memory().unwrap();
    let store = open(&db, Settings { open_points: 70, ..settings() });
    let mut session = session();
    feed(&mut session, &store, &(points("m a=1", 0..20_000) + "+SYNC\n"));
    assert_eq!(session.replies(), b"+OK 20000\r\n");
    drop(store);
    assert!(times(&open(&db, settings()), "m a=1").into_iter().eq(0..20_000));
}

#[test]
fn what_a_session_ends_with_is_committed_without_being_asked() {
    let db = Database::in_memory().unwrap();
    let store = open(&db, settings());
    let mut session = session();
    feed(&mut session, &store, &points("m a=1", 0..10));
    block_on(session.end(b"", &store)).unwrap();
    drop(store);
    assert_eq!(times(&open(&db, settings()), "m a=1").len(), 10);
}

#[test]
fn points_for_a_series_that_was_deleted_begin_another() {
    let db = Database::in_memory().unwrap();
    let store = open(&db, settings());
    let mut session = session();
    feed(&mut session, &store, &(points("m a=1", 0..10) + "+SYNC\n"));
    block_on(async { store.delete(&store.series("m a=1").await?).await }).unwrap();
    feed(&mut session, &store, &(points("m a=1", 20..22) + "+SYNC\n"));
    assert_eq!(session.replies(), b"+OK 10\r\n+OK 12\r\n");
    assert_eq!(times(&store, "m a=1"), [20, 21]);
}

/// A `+SYNC` in a datagram cost a commit whose acknowledgement nobody hears.
#[test]
fn a_sync_that_is_forgone_commits_nothing() {
    let db = Database::in_memory().unwrap();
    let store = open(&db, settings());
    let mut session = session();
    let text = points("m a=1", 0..10) + "+SYNC\n";
    assert_eq!(session.feed(text.as_bytes()), text.len());
    session.forgo_sync();
    assert!(!session.wants_save() && session.has_points());
    block_on(session.save(&store)).unwrap();
    assert!(session.replies().is_empty());
    assert_eq!(times(&store, "m a=1").len(), 10);
    drop(store);
    assert!(times(&open(&db, settings()), "m a=1").is_empty());
}
