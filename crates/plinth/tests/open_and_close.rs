//! Opening, closing and opening again: what is kept, who is kept out, and what is said when it
//! can't be.
//!
//! A directory belongs to whoever holds a handle, whichever type that has: it is free again when
//! the last one is gone, and not before. Opening by a future is the same, on another thread.

use plinth::{Builder, Database, EngineKind, Env, Error, Local, block_on};
use std::path::PathBuf;

/// A place for a database; removed at the end.
struct Place {
    _temporary: plinth_env::TemporaryDir,
    path: PathBuf,
}

fn place() -> Place {
    let temporary = block_on(Env::real().files().temporary_dir("plinth")).unwrap();
    let path = temporary.path().join("db");
    Place { _temporary: temporary, path }
}

fn put(db: &Database, value: &str) -> plinth::Result<()> {
    db.transact_blocking(|tr| {
        tr.set("key", value);
        Ok(())
    })
}

fn stored(db: &Database) -> Option<Vec<u8>> {
    db.transact_blocking(|tr| tr.get("key").wait()).unwrap().map(|value| value.to_vec())
}

#[test]
fn what_was_committed_is_there_again() {
    let place = place();
    let local = Local::open(&place.path).unwrap();
    put(local.database(), "closed").unwrap();
    local.close().unwrap();
    let local = Builder::new(&place.path).engine(EngineKind::Memory).must_exist().open().unwrap();
    assert_eq!(stored(local.database()), Some(b"closed".to_vec()));
    put(local.database(), "dropped").unwrap();
    drop(local);
    assert_eq!(
        stored(&Local::open(&place.path).unwrap().into_database()),
        Some(b"dropped".to_vec())
    );
}

#[test]
fn a_database_in_memory_is_its_own() {
    let (one, other) = (
        Local::in_memory().unwrap(),
        Builder::in_memory().engine(EngineKind::Memory).open().unwrap(),
    );
    put(one.database(), "one").unwrap();
    assert_eq!(stored(&one.clone().into_database()), Some(b"one".to_vec()));
    assert_eq!(stored(other.database()), None);
    one.close().unwrap();
}

#[test]
fn a_second_opener_is_kept_out_until_the_last_handle_is_gone() {
    let place = place();
    let db = Local::open(&place.path).unwrap().into_database();
    let refused = Local::open(&place.path).err().unwrap();
    assert_eq!(refused, Error::lock_file_failure());
    assert!(refused.to_string().contains(place.path.to_str().unwrap()), "{refused}");
    let other = db.clone();
    drop(db);
    assert!(Local::open(&place.path).is_err());
    let transaction = other.create_transaction();
    drop(other);
    transaction.set("key", "late");
    transaction.commit().wait().unwrap();
    drop(transaction);
    assert_eq!(stored(&Local::open(&place.path).unwrap().into_database()), Some(b"late".to_vec()));
}

#[test]
fn after_close_other_handles_read_and_no_longer_commit() {
    let place = place();
    let local = Local::open(&place.path).unwrap();
    put(local.database(), "before").unwrap();
    let other = local.database().clone();
    local.close().unwrap();
    assert_eq!(put(&other, "after"), Err(Error::shutdown_in_progress()));
    assert_eq!(stored(&other), Some(b"before".to_vec()));
    drop(other);
    assert_eq!(
        stored(&Local::open(&place.path).unwrap().into_database()),
        Some(b"before".to_vec())
    );
}

#[test]
fn what_cannot_be_opened_says_why() {
    let place = place();
    let code = |builder: Builder| builder.open().map(drop).map_err(|error| error.code());
    let unknown = Error::from(EngineKind::from_name("ssd-redwood-1").unwrap_err());
    assert_eq!(unknown, Error::invalid_option_value());
    assert!(
        unknown.to_string().contains("ssd-redwood-1") && unknown.to_string().contains("memory"),
        "{unknown}"
    );
    assert_eq!(code(Builder::new(&place.path).must_exist()), Err(1511));
    drop(Builder::new(&place.path).must_be_new().open().unwrap());
    assert_eq!(code(Builder::new(&place.path).must_be_new()), Err(2000));
    // The directory around it holds something, and no database.
    let around = place.path.parent().unwrap();
    assert_eq!(code(Builder::new(around)), Err(2000));
}

#[test]
fn a_closed_database_can_be_checked_and_copied() {
    let place = place();
    put(&Local::open(&place.path).unwrap().into_database(), "kept").unwrap();
    let env = Env::real();
    let report = block_on(plinth::check(&env, &place.path)).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
    let copy = place.path.with_file_name("copy");
    block_on(plinth::salvage(&env, &place.path, &copy)).unwrap();
    assert_eq!(
        stored(Builder::new(&copy).must_exist().open().unwrap().database()),
        Some(b"kept".to_vec())
    );
}

/// Who opens and closes by futures on a thread that others need: it goes on meanwhile.
#[test]
fn opening_and_closing_by_a_future_leave_the_thread_alone() {
    let place = place();
    let mut opening = std::pin::pin!(Builder::new(&place.path).open_async());
    let mut nobody = std::task::Context::from_waker(std::task::Waker::noop());
    // Whatever the files take: it is not this thread that waits for them.
    let here = std::thread::current().id();
    assert!(opening.as_mut().poll(&mut nobody).is_pending(), "{here:?} opened it");
    let local = block_on(opening).unwrap();
    put(local.database(), "there").unwrap();
    block_on(local.close_async()).unwrap();
    let refused = block_on(Builder::new(&place.path).must_be_new().open_async());
    assert_eq!(refused.err(), Some(Error::client_invalid_operation()));
    let again = block_on(Builder::new(&place.path).must_exist().open_async()).unwrap();
    assert_eq!(stored(again.database()), Some(b"there".to_vec()));
}

/// A future that is dropped leaves nothing open.
#[test]
fn an_opening_that_is_given_up_frees_the_directory() {
    let place = place();
    let mut opening = Box::pin(Builder::new(&place.path).open_async());
    let mut nobody = std::task::Context::from_waker(std::task::Waker::noop());
    let _ = opening.as_mut().poll(&mut nobody);
    drop(opening);
    while Local::open(&place.path).is_err() {
        block_on(Env::real().sleep(std::time::Duration::from_millis(5)));
    }
}
