//! Who gives a migration up is told what became of it, and a run that still is at it ends: it calls
//! nothing a whole copy, or damaged, and leaves no lock on the source for nobody.
//!
//! Others come between from where they do it for certain: the function that a run tells of its
//! progress, and a database that lets somebody in just before, or just after, one of its commits.

use plinth::{Database, Error, KeySelector, Local};
use plinth_client::{Description, Endpoint, ReadVersionReply, ReadVersionRequest};
use plinth_env::Env;
use plinth_env::reply::Reply;
use plinth_migrate::{Phase, Progress, Settings, abort, migrate, unfinished};
use plinth_types::{
    Bytes, CommitReply, CommitRequest, KeyList, KeyRange, KeySpace, RangeRead, RangeResult,
    Version, system,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn in_memory() -> Database {
    Local::in_memory().unwrap().into_database()
}

/// A source of many small pieces.
fn source() -> Database {
    let db = in_memory();
    db.transact_blocking(|tr| {
        (0..3000).for_each(|n| tr.set(format!("row/{n:06}"), [n as u8; 60]));
        Ok(())
    })
    .unwrap();
    db
}

fn settings(watcher: impl Fn(&Progress) + Send + Sync + 'static) -> Settings {
    Settings {
        piece_bytes: 3000,
        workers: 1,
        show_every: Duration::ZERO,
        watcher: Some(Arc::new(watcher)),
        ..Settings::default()
    }
}

fn quiet() -> Settings {
    settings(|_| {})
}

fn is_locked(db: &Database) -> bool {
    db.create_transaction().get("row/000000").wait() == Err(Error::database_locked())
}

fn clear(db: &Database) {
    db.transact_blocking(|tr| {
        tr.clear_range("", "\u{7f}");
        Ok(())
    })
    .unwrap();
}

/// When somebody comes between.
#[derive(Clone, Copy, PartialEq)]
enum When {
    /// Before a commit, which has read already.
    Before,
    /// After it, and its answer is lost.
    After,
}

/// A database that lets somebody in, once, at a commit that writes the record of a migration.
struct Between {
    inner: Database,
    when: When,
    who: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

fn between(inner: &Database, when: When, who: impl FnOnce() + Send + 'static) -> Database {
    let (inner, who) = (inner.clone(), Mutex::new(Some(Box::new(who) as Box<dyn FnOnce() + Send>)));
    Database::new(Arc::new(Between { inner, when, who }))
}

impl Endpoint for Between {
    fn env(&self) -> &Env {
        self.inner.endpoint().env()
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        self.inner.endpoint().read_version(request)
    }

    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        self.inner.endpoint().get_many(version, space, keys)
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        self.inner.endpoint().get_key(version, space, selector)
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        self.inner.endpoint().get_range(version, space, read)
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        let record = b"\xff\x02/plinth/migrate/";
        let writes = request
            .mutations
            .iter()
            .any(|mutation| [&record[..], system::MIGRATION_HEAD].contains(&mutation.param1));
        let Some(who) = self.who.lock().unwrap().take_if(|_| writes) else {
            return self.inner.endpoint().commit(request);
        };
        if self.when == When::Before {
            who();
            return self.inner.endpoint().commit(request);
        }
        assert!(matches!(
            self.inner.endpoint().commit(request).wait(),
            Ok(CommitReply::Committed { .. })
        ));
        who();
        Reply::ready(Err(Error::commit_unknown_result()))
    }

    fn watch(&self, key: Bytes, value: Option<Bytes>, version: Version) -> Reply<Version> {
        self.inner.endpoint().watch(key, value, version)
    }

    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        self.inner.endpoint().range_size(range)
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        self.inner.endpoint().split_points(range, chunk)
    }

    fn addresses_for_key(&self, key: &[u8]) -> Reply<Vec<String>> {
        self.inner.endpoint().addresses_for_key(key)
    }

    fn describe(&self) -> Description {
        self.inner.endpoint().describe()
    }

    fn status_json(&self) -> Reply<String> {
        self.inner.endpoint().status_json()
    }
}

/// Leaves a migration unfinished, with nothing copied.
fn begin(source: &Database, destination: &Database) {
    let settings = Settings { stop: Arc::new(AtomicBool::new(true)), ..quiet() };
    migrate(source, destination, "source", &settings).unwrap_err();
    assert!(unfinished(destination).unwrap().is_some());
}

/// Of a copy that a run had finished in the same moment it was said that it is a part; and where
/// the answer was lost that nothing was given up.
#[test]
fn who_gives_up_is_told_whether_it_did() {
    for (when, given_up) in [(When::After, true), (When::Before, false)] {
        let (source, destination) = (source(), in_memory());
        begin(&source, &destination);
        let others = (source.clone(), destination.clone());
        let slow = between(&destination, when, move || {
            if when == When::Before {
                migrate(&others.0, &others.1, "source", &quiet()).unwrap();
            }
        });
        assert_eq!(abort(&slow), Ok(given_up));
        assert_eq!(unfinished(&destination), Ok(None));
        assert!(!is_locked(&destination));
    }
}

/// The answer to the commit that took it was lost, and it was given up before that was tried again:
/// what comes then isn't given up, and whoever takes it over keeps the source's lock. It was
/// unlocked under a run that had told that it takes no writes.
#[test]
fn what_is_taken_anew_after_it_was_given_up_is_not_given_up() {
    let (source, destination) = (source(), in_memory());
    let inner = destination.clone();
    let slow = between(&destination, When::After, move || assert_eq!(abort(&inner), Ok(true)));
    let others = Mutex::new(Some((source.clone(), destination.clone())));
    let watcher = move |_: &Progress| {
        if let Some((source, destination)) = others.lock().unwrap().take() {
            let settings = Settings { lock_source: true, ..quiet() };
            assert!(migrate(&source, &destination, "source", &settings).unwrap().source_is_locked);
        }
    };
    let settings = Settings { lock_source: true, ..settings(watcher) };
    let ended = migrate(&source, &slow, "source", &settings);
    assert_eq!(ended.unwrap_err(), Error::operation_cancelled());
    assert!(is_locked(&source) && !is_locked(&destination));
}

/// Others have ended behind it, so that it isn't noted any more how it ended: it was told of as
/// whole, or left the source locked.
#[test]
fn who_was_given_up_long_ago_unlocks_the_source_and_tells_of_no_copy() {
    for is_next_whole in [false, true] {
        let (source, destination) = (source(), in_memory());
        let others = Mutex::new(Some((source.clone(), destination.clone())));
        let watcher = move |_: &Progress| {
            let mut others = others.lock().unwrap();
            if let Some((source, destination)) = others.take_if(|(source, _)| is_locked(source)) {
                assert_eq!(abort(&destination), Ok(true));
                clear(&destination);
                let another = in_memory();
                match is_next_whole {
                    true => drop(migrate(&another, &destination, "another", &quiet()).unwrap()),
                    false => {
                        begin(&another, &destination);
                        assert_eq!(abort(&destination), Ok(true));
                    }
                }
                assert!(is_locked(&source));
            }
        };
        let settings = Settings { lock_source: true, ..settings(watcher) };
        let ended = migrate(&source, &destination, "source", &settings);
        assert_eq!(ended.unwrap_err(), Error::operation_cancelled());
        assert!(!is_locked(&source) && !is_locked(&destination));
    }
}

/// Cleared, as whoever gives it up is told to, it was called damaged.
#[test]
fn who_verifies_what_was_given_up_ends_and_finds_no_damage() {
    let (source, destination) = (source(), in_memory());
    let given_up = destination.clone();
    let watcher = move |progress: &Progress| {
        if progress.phase == Phase::Verifying && abort(&given_up).unwrap() {
            clear(&given_up);
        }
    };
    let ended = migrate(&source, &destination, "source", &settings(watcher));
    assert_eq!(ended.unwrap_err(), Error::operation_cancelled());
}

/// The source was locked for nobody, read once more, and verified.
#[test]
fn who_was_given_up_locks_no_source() {
    let (source, destination) = (source(), in_memory());
    let (given_up, was_locked) = (destination.clone(), Arc::new(AtomicBool::new(false)));
    let (watched, noted) = (source.clone(), was_locked.clone());
    let watcher = move |progress: &Progress| {
        noted.fetch_or(is_locked(&watched), Ordering::Relaxed);
        if progress.clean_pieces == progress.pieces {
            abort(&given_up).unwrap();
        }
    };
    let settings = Settings { lock_source: true, ..settings(watcher) };
    let ended = migrate(&source, &destination, "source", &settings);
    assert_eq!(ended.unwrap_err(), Error::operation_cancelled());
    assert!(!was_locked.load(Ordering::Relaxed) && !is_locked(&source));
}
