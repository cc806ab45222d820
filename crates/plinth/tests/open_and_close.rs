//! Opening, closing and opening again: what is kept, who is kept out, and what is said when it
//! can't be.

use plinth::{Builder, Database, EngineKind, Env, Error, block_on};
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
    let db = Database::open(&place.path).unwrap();
    put(&db, "closed").unwrap();
    db.close().unwrap();
    let db = Database::builder(&place.path).engine(EngineKind::Memory).must_exist().open().unwrap();
    assert_eq!(stored(&db), Some(b"closed".to_vec()));
    put(&db, "dropped").unwrap();
    drop(db);
    assert_eq!(stored(&Database::open(&place.path).unwrap()), Some(b"dropped".to_vec()));
}

#[test]
fn a_database_in_memory_is_its_own() {
    let (one, other) = (
        Database::in_memory().unwrap(),
        Builder::in_memory().engine(EngineKind::Memory).open().unwrap(),
    );
    put(&one, "one").unwrap();
    assert_eq!(stored(&one.clone()), Some(b"one".to_vec()));
    assert_eq!(stored(&other), None);
    one.close().unwrap();
}

#[test]
fn a_second_opener_is_kept_out_until_the_last_handle_is_gone() {
    let place = place();
    let db = Database::open(&place.path).unwrap();
    let refused = Database::open(&place.path).err().unwrap();
    assert_eq!(refused, Error::lock_file_failure());
    assert!(refused.to_string().contains(place.path.to_str().unwrap()), "{refused}");
    let other = db.clone();
    drop(db);
    assert!(Database::open(&place.path).is_err());
    let transaction = other.create_transaction();
    drop(other);
    transaction.set("key", "late");
    transaction.commit().wait().unwrap();
    drop(transaction);
    assert_eq!(stored(&Database::open(&place.path).unwrap()), Some(b"late".to_vec()));
}

#[test]
fn after_close_other_handles_read_and_no_longer_commit() {
    let place = place();
    let db = Database::open(&place.path).unwrap();
    put(&db, "before").unwrap();
    let other = db.clone();
    db.close().unwrap();
    assert_eq!(put(&other, "after"), Err(Error::shutdown_in_progress()));
    assert_eq!(stored(&other), Some(b"before".to_vec()));
    drop(other);
    assert_eq!(stored(&Database::open(&place.path).unwrap()), Some(b"before".to_vec()));
}

#[test]
fn what_cannot_be_opened_says_why() {
    let place = place();
    let code = |builder: Builder| builder.open().map(drop).map_err(|error| error.code());
    let unknown = EngineKind::from_name("ssd-redwood-1").unwrap_err();
    assert_eq!(unknown, Error::invalid_option_value());
    assert!(
        unknown.to_string().contains("ssd-redwood-1") && unknown.to_string().contains("memory"),
        "{unknown}"
    );
    assert_eq!(code(Database::builder(&place.path).must_exist()), Err(1511));
    drop(Database::builder(&place.path).must_be_new().open().unwrap());
    assert_eq!(code(Database::builder(&place.path).must_be_new()), Err(2000));
    // The directory around it holds something, and no database.
    let around = place.path.parent().unwrap();
    assert_eq!(code(Database::builder(around)), Err(2000));
}

#[test]
fn a_closed_database_can_be_checked_and_copied() {
    let place = place();
    put(&Database::open(&place.path).unwrap(), "kept").unwrap();
    let env = Env::real();
    let report = block_on(plinth::check(&env, &place.path)).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
    let copy = place.path.with_file_name("copy");
    block_on(plinth::salvage(&env, &place.path, &copy)).unwrap();
    assert_eq!(
        stored(&Database::builder(&copy).must_exist().open().unwrap()),
        Some(b"kept".to_vec())
    );
}
