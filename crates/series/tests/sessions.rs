//! Sessions and the store that they save into: what a sender was told is there, whatever stood in
//! between.
//!
//! Nothing is committed here unless a session asks for it, so what an opening without a farewell
//! finds is exactly what was acknowledged.

use plinth::{Database, Local};
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

/// Feeds all of it, and saves as often as the session asks for; what is left is saved by whoever
/// calls this.
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
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db, Settings { open_points: 70, ..settings() });
    let mut session = session();
    feed(&mut session, &store, &(points("m a=1", 0..20_000) + "+SYNC\n"));
    assert_eq!(session.replies(), b"+OK 20000\r\n");
    drop(store);
    assert!(times(&open(&db, settings()), "m a=1").into_iter().eq(0..20_000));
}

#[test]
fn what_a_session_ends_with_is_committed_without_being_asked() {
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db, settings());
    let mut session = session();
    feed(&mut session, &store, &points("m a=1", 0..10));
    block_on(session.end(b"", &store)).unwrap();
    drop(store);
    assert_eq!(times(&open(&db, settings()), "m a=1").len(), 10);
}

#[test]
fn points_for_a_series_that_was_deleted_begin_another() {
    let db = Local::in_memory().unwrap().into_database();
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
    let db = Local::in_memory().unwrap().into_database();
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

/// When all sessions remembered too much, one forgot the series of the row that it was in the
/// middle of: the rest of it went to whatever came into that place, or panicked.
#[test]
fn what_is_remembered_of_names_can_go_at_any_moment() {
    let mut text = String::from("*4\n+d|e a=1\n:1\n+f a=1\n:2\n");
    let mut sent = 0;
    for time in 0..300 {
        let host = time % 40;
        write!(text, "+m|n|!o host={host}\n:{time}000\n*3\n:{time}\n+{time}.5\n+note {time}\n")
            .unwrap();
        write!(
            text,
            ":1\n:{time}\n*2\n:{time}\n:-{time}\n+p host={host}\n:{time}\n:{time}\n:2\n:{time}\n+7.25\n"
        )
        .unwrap();
        sent += 1;
    }
    let names = ["d a=1", "e a=1", "f a=1", "m host=7", "n host=7", "!o host=7", "p host=7"];
    let found = |memory: Memory, piece: usize| -> Vec<Vec<(i64, String)>> {
        let db = Local::in_memory().unwrap().into_database();
        let store = open(&db, settings());
        let mut session = Session::new(Protocol::Resp, 5, &memory);
        let (mut held, mut points) = (Vec::new(), 0);
        for piece in text.as_bytes().chunks(piece) {
            held.extend_from_slice(piece);
            let taken = session.feed(&held);
            held.drain(..taken);
            points += session.points().count();
            block_on(session.save(&store)).unwrap();
        }
        assert_eq!((held.len(), session.replies().len(), session.refused()), (0, 0, 0));
        // Each text is two points of the store's, and one of the sender's.
        assert_eq!(session.saved(), (points - sent) as u64);
        let of = |name: &&str| {
            let series = block_on(store.existing(name)).unwrap().expect("it was sent");
            let points =
                block_on(async { series.scan(.., Direction::Forward).await?.collect().await })
                    .unwrap();
            points.iter().map(|point| (point.time, format!("{:?}", point.value))).collect()
        };
        names.iter().map(of).collect()
    };
    let expected = found(Memory::default(), text.len());
    assert_eq!((expected[0].len(), expected[3].len(), expected[6].len()), (sent, 8, 8));
    for piece in [1, 2, 7, 23, 64, 1000] {
        assert!(found(Memory::bounded(0, 0), piece) == expected, "pieces of {piece}");
    }
}

/// Each datagram with a dictionary left its names behind for good.
#[test]
fn a_session_that_begins_again_forgets_its_dictionary() {
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db, settings());
    let memory = Memory::bounded(0, 0);
    let mut session = Session::new(Protocol::Resp, 5, &memory);
    for time in 0..5 {
        session.restart(Protocol::Resp);
        feed(&mut session, &store, &format!("*2\n+m a=1\n:1\n:1\n:{time}\n:{time}\n"));
        block_on(session.save(&store)).unwrap();
        assert_eq!(session.names_remembered(), 1);
    }
    session.restart(Protocol::Resp);
    feed(&mut session, &store, ":1\n:9\n:9\n");
    assert!(session.replies().starts_with(b"-PARSER "), "it stands for nothing any more");
    assert_eq!(times(&store, "m a=1"), [0, 1, 2, 3, 4]);
}

/// Names of some thousand bytes and a hundred tags were written in one transaction, which was too
/// large, so that their sender got no further.
#[test]
fn new_names_of_the_largest_size_are_taken_however_many_come_at_once() {
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db, settings());
    let mut session = session();
    let tags: String = (0..128).map(|tag| format!(" t{tag}=1")).collect();
    let metric = "m".repeat(plinth_series::MAX_NAME_BYTES - tags.len() - 8);
    for name in 0..120 {
        let text = format!("+{metric}{name:04}{tags}\n:1\n:{name}\n");
        assert_eq!(session.feed(text.as_bytes()), text.len());
    }
    block_on(session.save(&store)).unwrap();
    assert_eq!((session.saved(), session.replies().len()), (120, 0));
    assert_eq!(times(&store, &format!("{metric}0119{tags}")), [1]);
}
