//! There are so many series and no more, and what they take is bounded: one too many is refused by
//! name, and all else goes on.
//!
//! 4.9 MB of gzip once made 1.2 million series within 15 s, which took 1.3 GB beside a bound of 512
//! MiB; then keys couldn't be written either.

use plinth::{Database, Local};
use plinth_env::{Env, block_on};
use plinth_series::ingest::{Memory, Protocol, Session};
use plinth_series::{
    Error, HeldText, Newcomers, SeriesLimits, SeriesStore, Settings, opentsdb, prometheus,
};
use plinth_types::{Bytes, KeyRange};
use std::fmt::Write;
use std::sync::Arc;

fn open(db: &Database, limits: SeriesLimits) -> SeriesStore {
    let settings = Settings { commit_every: None, limits, ..Settings::default() };
    block_on(SeriesStore::open_with(db, settings)).unwrap()
}

fn limits(series: u64, of_metric: u64) -> SeriesLimits {
    SeriesLimits { series, of_metric, ..SeriesLimits::default() }
}

fn session() -> Session {
    Session::new(Protocol::Resp, 5, &Memory::default())
}

fn point(name: &str, time: u32) -> String {
    format!("+{name}\n:{time}\n:{time}\n")
}

/// Sends it and asks for an acknowledgement; what the session says.
fn said(session: &mut Session, store: &SeriesStore, text: &str) -> String {
    let mut at = 0;
    let text = format!("{text}+SYNC\n");
    loop {
        at += session.feed(&text.as_bytes()[at..]);
        if session.has_points() {
            block_on(session.save(store)).unwrap();
        }
        if at == text.len() {
            let said = String::from_utf8(session.replies().to_vec()).unwrap();
            session.forget_replies();
            return said;
        }
    }
}

fn delete(store: &SeriesStore, name: &str) {
    let series = block_on(store.existing(name)).unwrap().unwrap();
    block_on(store.delete(&series)).unwrap();
}

fn count(store: &SeriesStore, name: &str) -> u64 {
    let series = block_on(store.existing(name)).unwrap();
    series.map_or(0, |series| block_on(series.aggregate(..)).unwrap().map_or(0, |sum| sum.count))
}

#[test]
fn one_series_too_many_is_refused_by_name_and_points_of_the_others_are_taken() {
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db, limits(5, 3));
    let mut session = session();
    let text: String = (0..4).map(|host| point(&format!("cpu host={host}"), 1)).collect();
    let told = said(&mut session, &store, &(text + &point("mem host=0", 1)));
    let (refused, rest) = told.split_once("\r\n").unwrap();
    assert_eq!(
        refused,
        "-DB too many: metric \"cpu\" has 3 series, and may have no more: cpu host=3"
    );
    assert_eq!(rest, "+OK 4\r\n");
    // The fifth of all, and one too many.
    let told = said(
        &mut session,
        &store,
        &(point("mem host=1", 2) + &point("mem host=2", 2) + &point("cpu host=0", 2)),
    );
    assert!(
        told.starts_with(
            "-DB too many: there are 5 series, and no more may be made: mem host=2\r\n"
        ),
        "{told}"
    );
    assert!(told.ends_with("+OK 6\r\n"), "{told}");
    assert_eq!(
        (count(&store, "cpu host=0"), count(&store, "cpu host=3"), session.refused()),
        (2, 0, 2)
    );
    assert!(matches!(block_on(store.series("disk host=0")), Err(Error::TooMany { .. })));
    // Deleting one makes room for one, also after a restart.
    delete(&store, "cpu host=1");
    drop(store);
    let store = open(&db, limits(5, 3));
    let told =
        said(&mut self::session(), &store, &(point("cpu host=7", 3) + &point("cpu host=8", 3)));
    assert!(
        told.starts_with("-DB too many") && told.ends_with("cpu host=8\r\n+OK 1\r\n"),
        "{told}"
    );
    assert_eq!(count(&store, "cpu host=7"), 1);
}

#[test]
fn a_session_that_was_refused_a_series_gets_it_once_there_is_room() {
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db, limits(2, 2));
    let mut session = session();
    let rows = |time| (0..3).map(|host| point(&format!("m host={host}"), time)).collect::<String>();
    for time in 1..4 {
        let told = said(&mut session, &store, &rows(time));
        assert!(
            told.starts_with("-DB too many") && told.ends_with(&format!("+OK {}\r\n", 2 * time)),
            "{told}"
        );
    }
    delete(&store, "m host=0");
    let told = said(&mut session, &store, &point("m host=2", 4));
    assert_eq!(told, "+OK 7\r\n");
}

#[test]
fn memory_for_series_has_a_bound_of_its_own() {
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db, SeriesLimits { memory: 300_000, ..SeriesLimits::default() });
    let mut session = session();
    let mut text = String::new();
    (0..5_000).for_each(|host| write!(text, "+m host={host}\n:1\n:1\n").unwrap());
    let told = said(&mut session, &store, &text);
    assert!(
        told.starts_with("-DB too many: ")
            && told.contains("bytes of memory that there are for them"),
        "{told}"
    );
    let (taken, refused) = (session.saved(), session.refused());
    // 500 names are looked up together.
    assert!(taken + refused == 5_000 && (300..1_500).contains(&taken), "{taken} {refused}");
    assert_eq!(said(&mut session, &store, &point("m host=0", 2)), format!("+OK {}\r\n", taken + 1));
}

#[test]
fn rows_of_series_have_a_bound_and_keys_are_written_beside_it() {
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db, SeriesLimits { stored: Some(50_000), ..SeriesLimits::default() });
    let mut session = session();
    let mut text = String::new();
    (0..5_000).for_each(|host| write!(text, "+m host={host}\n:1\n:1\n").unwrap());
    session.feed(text.as_bytes());
    block_on(session.save(&store)).unwrap();
    let error = refused_at_last(&store);
    assert!(matches!(&error, Error::TooMany { what } if what.contains("50000")), "{error}");
    db.transact_blocking(|tr| {
        tr.set("k", "v");
        Ok(())
    })
    .unwrap();
}

/// The rows of a name are short, and a database's memory counts each as 75 bytes more than its key
/// and value: series that were let have half of it by those alone had all of it.
#[test]
fn what_rows_take_besides_keys_and_values_counts() {
    let filled = |stored: Option<u64>| {
        let db = Local::in_memory().unwrap().into_database();
        let store = open(&db, SeriesLimits { stored, ..SeriesLimits::default() });
        let text: String = (0..2_000).map(|host| point(&format!("m host={host}"), 1)).collect();
        assert!(said(&mut session(), &store, &text).starts_with("+OK 2000"));
        (db, store)
    };
    let (db, _store) = filled(None);
    let everything = KeyRange::new(Bytes::new(), Bytes::from_static(b"\xff\xff"));
    let bytes = block_on(db.endpoint().range_size(everything)).unwrap();
    let (_db, store) = filled(Some(bytes as u64 * 5 / 4));
    let error = refused_at_last(&store);
    assert!(
        matches!(&error, Error::TooMany { what } if what.contains("bytes of series")),
        "{error}"
    );
}

/// What is said to points of a known series once it has been looked at how much is stored, which is
/// done once a second.
fn refused_at_last(store: &SeriesStore) -> Error {
    let (mut session, env) = (session(), Env::real());
    let end = env.now() + std::time::Duration::from_secs(60);
    loop {
        session.feed(point("m host=0", 2).as_bytes());
        match block_on(session.save(store)) {
            Err(error) => return error,
            Ok(()) => block_on(env.sleep(std::time::Duration::from_millis(50))),
        }
        assert!(env.now() < end, "more is taken than may be stored");
    }
}

#[test]
fn a_sender_that_makes_series_too_fast_waits_and_those_that_are_there_cost_him_nothing() {
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db, SeriesLimits::default());
    let env = Env::real();
    let sender = Arc::new(Newcomers::new(&env, "one".to_owned(), 1_000, 1_000_000));
    let mut session = session();
    session.count_for(sender.clone());
    let text = |hosts: std::ops::Range<u32>| {
        hosts.map(|host| point(&format!("m host={host}"), 1)).collect::<String>()
    };
    let began = env.now();
    assert!(said(&mut session, &store, &text(0..2_500)).starts_with("+OK 2500"));
    // 2,000 at once, and the others as fast as a thousand a second.
    assert!(env.now() - began >= std::time::Duration::from_millis(500));
    assert!(!sender.is_rested(env.now()));
    let mut other = self::session();
    other.count_for(Arc::new(Newcomers::new(&env, "other".to_owned(), 1, 1_000_000)));
    // At one a second, new ones would take three quarters of an hour.
    assert!(said(&mut other, &store, &text(0..2_500)).starts_with("+OK 2500"));
}

/// Where a label tells each request from all others, what is refused is its values, by the label's
/// name, and series of known values are made on.
#[test]
fn a_label_of_too_many_values_is_named_and_others_go_on() {
    let db = Local::in_memory().unwrap().into_database();
    let limits = SeriesLimits { of_label: Some(3), ..SeriesLimits::default() };
    let store = open(&db, limits.clone());
    let mut session = session();
    // The first two are made of one batch; the third batch has a value twice, and a known one.
    let names = |of: &[&str]| of.iter().map(|name| point(name, 1)).collect::<String>();
    assert_eq!(said(&mut session, &store, &names(&["m a=1 b=x", "m a=2 b=x"])), "+OK 2\r\n");
    assert_eq!(said(&mut session, &store, &names(&["m a=3 b=x", "m a=3 b=y"])), "+OK 4\r\n");
    let told = said(&mut session, &store, &names(&["m a=4 b=x", "m a=1 b=y", "n a=4", "m c=1"]));
    assert_eq!(
        told,
        "-DB too many: label \"a\" of metric \"m\" has 3 values, and may have no more: m a=4 b=x\r\n\
         +OK 7\r\n"
    );
    // Counted anew behind a restart; of another label there is still room.
    drop(store);
    let store = open(&db, limits);
    let told = said(&mut self::session(), &store, &names(&["m a=5", "m a=2 b=z", "m b=w"]));
    assert!(told.starts_with("-DB too many: label \"a\"") && told.ends_with("+OK 1\r\n"), "{told}");
    assert!(told.contains("label \"b\" of metric \"m\" has 3 values"), "{told}");
}

/// It was refused like the whole list, which nobody had asked for.
#[test]
fn a_list_that_is_too_long_can_be_asked_for_its_beginning() {
    let db = Local::in_memory().unwrap().into_database();
    let store = open(&db, SeriesLimits { of_label: None, ..limits(200_000, 200_000) });
    let mut session = session();
    for begin in [0, 50_000, 100_000] {
        let hosts = begin..(begin + 50_000).min(100_001);
        let text: String = hosts.map(|host| point(&format!("m host={host:06}"), 1)).collect();
        assert!(said(&mut session, &store, &text).starts_with("+OK"));
    }
    let ask = |parameters: &str| {
        let path = "/api/v1/label/host/values";
        block_on(prometheus(&store, path, &[parameters.as_bytes(), b""], 1_000_000_000))
    };
    let (status, text) = ask("");
    assert!(status == 400 && text.contains("more than 100000"), "{text}");
    let (status, text) = ask("limit=100000");
    assert!(status == 200 && text.contains("truncated") && text.contains("099999"), "{status}");
    let (status, text) = ask("limit=2");
    assert!(status == 200 && text.starts_with(r#"{"data":["000000","000001"],"#), "{text}");
    assert!(text.contains("truncated"), "{text}");
}

/// Only what was worked with counted, so whoever asked often and read nothing held any amount.
#[test]
fn answers_count_until_they_are_let_go_of() {
    const MOST: usize = 300_000;
    let db = Local::in_memory().unwrap().into_database();
    let settings = Settings { commit_every: None, query_bytes: MOST, ..Settings::default() };
    let store = block_on(SeriesStore::open_with(&db, settings)).unwrap();
    let point = |second: u64| format!("+m a=1\n:{}\n:{second}\n", second * 1_000_000_000);
    let text: String = (1..=2000).map(point).collect();
    assert_eq!(said(&mut session(), &store, &text), "+OK 2000\r\n");
    let ask_prometheus = || {
        let range: &[u8] = b"query=timestamp({\"m\"})&start=0&end=4000&step=1&lookback_delta=1h";
        let (status, text) = block_on(prometheus(&store, "/api/v1/query_range", &[range], 0));
        (status, text)
    };
    let ask_opentsdb = || {
        let ask: &[u8] = b"start=1970/01/01-00:00:00&m=sum:m&ms=true";
        let (status, text, _) =
            block_on(opentsdb(&store, "/api/query", (ask, b""), 1_000_000_000_000));
        (status, text)
    };
    for ask in [&ask_prometheus as &dyn Fn() -> (u16, HeldText), &ask_opentsdb] {
        let (status, text) = ask();
        assert!(status == 200 && text.len() > 10_000, "{}", &text[..text.len().min(300)]);
        assert!(store.stats().query_bytes >= text.len(), "{}", store.stats().query_bytes);
        let mut answers = vec![text];
        let refused = loop {
            let (status, text) = ask();
            if status != 200 {
                break text;
            }
            // As a server sends it.
            answers.push(text);
            assert!(answers.iter().map(|text| text.len()).sum::<usize>() <= MOST);
        };
        assert!(refused.contains("held by all queries together"), "{refused:?}");
        drop(answers.drain(1..));
        let sent = plinth_types::Bytes::from(answers.remove(0));
        let piece = sent.slice(5..10);
        drop(sent);
        assert!(store.stats().query_bytes > 10_000, "a piece holds it");
        drop(piece);
        assert_eq!(store.stats().query_bytes, 0);
        assert_eq!(ask().0, 200);
    }
}
