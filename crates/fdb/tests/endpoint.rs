//! What the client expects of an endpoint, asked through the C library: versions, conflicts,
//! versionstamps, watches, locks, sizes, errors with their numbers.
//!
//! The databases are in memory unless a test says otherwise, each one its own; the library is
//! loaded once for all of them.

mod common;

use common::{memory, open};
use plinth_client::{
    Database, Endpoint, KeySelector, MutationType, RangeOptions, StreamingMode, TransactionOption,
};
use plinth_env::{Env, block_on};
use plinth_fdb::{Foundation, Target};
use plinth_types::Error;
use std::sync::Arc;

fn set(db: &Database, key: &str, value: &str) {
    db.transact_blocking(|tr| {
        tr.set(key, value);
        Ok(())
    })
    .unwrap();
}

#[test]
fn the_newest_agreed_api_version_is_selected() {
    let endpoint = open(":memory:");
    assert_eq!(endpoint.library_api_version(), 730);
    assert_eq!(endpoint.library_version().split(',').count(), 3);
    let description = endpoint.describe();
    assert!(!description.cluster_id.is_empty(), "{description:?}");
}

#[test]
fn a_missing_library_is_an_error_that_says_what_to_do() {
    let target: Target = "fdb:?lib=/nowhere/libfdb_c.so".parse().unwrap();
    let error = Foundation::open(&target).map(|_| ()).unwrap_err();
    assert_eq!(error, Error::file_not_found());
    assert!(error.to_string().contains("?lib=PATH"), "{error}");
}

/// A library may tell it when the database is opened or, as Apple's and ours do, by each operation.
#[test]
fn a_missing_cluster_file_is_an_error() {
    let target =
        Target { cluster_file: "/nowhere/fdb.cluster".into(), library: Some(common::library()) };
    let outcome = Foundation::open(&target).and_then(|endpoint| {
        Database::new(Arc::new(endpoint)).create_transaction().get_read_version().wait()
    });
    assert_eq!(outcome.unwrap_err(), Error::no_cluster_file_found());
}

#[test]
fn what_was_written_is_read_and_a_read_version_stays() {
    let db = memory();
    set(&db, "a", "1");
    let old = db.create_transaction();
    assert!(old.get_read_version().wait().unwrap() > 0);
    set(&db, "a", "2");
    assert_eq!(old.get("a").wait().unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(old.get("b").wait().unwrap(), None);
    let new = db.create_transaction();
    assert_eq!(new.get("a").wait().unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn conflicts_are_found_and_reported_by_range() {
    let db = memory();
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::ReportConflictingKeys).unwrap();
    for key in ["a", "c", "e"] {
        tr.get(key).wait().unwrap();
    }
    tr.set("x", "");
    set(&db, "c", "meanwhile");
    assert_eq!(tr.commit().wait(), Err(Error::not_committed()));
    let begin = b"\xff\xff/transaction/conflicting_keys/".to_vec();
    let rows = tr.get_range(RangeOptions::prefix(&begin)).wait().unwrap().rows;
    let keys: Vec<_> =
        rows.iter().map(|(key, value)| (key[begin.len()..].to_vec(), value.to_vec())).collect();
    assert_eq!(keys, [(b"c".to_vec(), b"1".to_vec()), (b"c\0".to_vec(), b"0".to_vec())]);
    // What nobody read doesn't conflict.
    let blind = db.create_transaction();
    blind.get_read_version().wait().unwrap();
    blind.set("c", "blind");
    set(&db, "c", "again");
    blind.commit().wait().unwrap();
}

#[test]
fn a_write_without_a_conflict_range_conflicts_with_nobody() {
    let db = memory();
    let reader = db.create_transaction();
    reader.get("quiet").wait().unwrap();
    reader.set("x", "");
    let writer = db.create_transaction();
    writer.set_option(TransactionOption::NextWriteNoWriteConflictRange).unwrap();
    writer.set("quiet", "1");
    writer.commit().wait().unwrap();
    reader.commit().wait().unwrap();
}

#[test]
fn versionstamps_are_those_of_the_commit() {
    let db = memory();
    let tr = db.create_transaction();
    let stamp = tr.versionstamp();
    tr.atomic_op(b"k..........\x01\0\0\0", "v", MutationType::SetVersionstampedKey);
    tr.atomic_op("value", b"..........\0\0\0\0", MutationType::SetVersionstampedValue);
    tr.commit().wait().unwrap();
    let stamp = stamp.wait().unwrap();
    assert_eq!(Some(stamp.version()), tr.committed_version());
    let tr = db.create_transaction();
    assert_eq!(tr.get("value").wait().unwrap().as_deref(), Some(&stamp.as_bytes()[..]));
    let key = [b"k", &stamp.as_bytes()[..]].concat();
    assert_eq!(tr.get(key).wait().unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn watches_fire_for_a_change_and_can_be_given_up() {
    let db = memory();
    set(&db, "watched", "1");
    let watch = || {
        let tr = db.create_transaction();
        let watch = tr.watch("watched");
        tr.commit().wait().unwrap();
        watch
    };
    let fires = watch();
    drop(watch());
    assert!(!fires.is_ready());
    set(&db, "other", "2");
    set(&db, "watched", "2");
    fires.wait().unwrap();
    // One that comes late: the value is another by the time that the endpoint is asked.
    let endpoint = db.endpoint();
    endpoint.watch("watched".into(), Some("1".into()), 1).wait().unwrap();
}

#[test]
fn a_locked_database_lets_only_the_lock_aware_in() {
    let db = memory();
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
    tr.set(b"\xff\xff/management/db_locked", "0123456789abcdef0123456789abcdef");
    tr.commit().wait().unwrap();
    let tr = db.create_transaction();
    assert_eq!(tr.get("a").wait(), Err(Error::database_locked()));
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::LockAware).unwrap();
    tr.set("a", "1");
    tr.commit().wait().unwrap();
}

#[test]
fn system_keys_sizes_and_addresses_are_there() {
    let db = memory();
    for n in 0..2000 {
        set(&db, &format!("row/{n:05}"), &"x".repeat(100));
    }
    let tr = db.create_transaction();
    let size = tr.estimated_range_size("row/", "row0").wait().unwrap();
    assert!((100_000..600_000).contains(&size), "{size}");
    let points = tr.split_points("row/", "row0", 50_000).wait().unwrap();
    assert!(points.len() >= 3, "{points:?}");
    assert_eq!((&points[0][..], &points[points.len() - 1][..]), (&b"row/"[..], &b"row0"[..]));
    assert!(tr.addresses_for_key("row/").wait().unwrap()[0].contains(':'));
    tr.set_option(TransactionOption::ReadSystemKeys).unwrap();
    let last = tr.get_key(KeySelector::last_less_than(&b"\xff\xff"[..])).wait().unwrap();
    assert!(last.starts_with(b"\xff"), "{last:?}");
    let status = db.status_json().wait().unwrap();
    assert!(status.starts_with('{') && status.contains("\"cluster\""), "{status}");
    let metadata = db.create_transaction().get(b"\xff/metadataVersion").wait().unwrap();
    assert!(metadata.is_none_or(|version| version.len() == 10));
}

#[test]
fn long_ranges_come_whole_in_both_directions() {
    let db = memory();
    db.transact_blocking(|tr| {
        (0..3000).for_each(|n| tr.set(format!("{n:05}"), [b'v'; 50]));
        Ok(())
    })
    .unwrap();
    for reverse in [false, true] {
        let tr = db.create_transaction();
        let range = RangeOptions::from("0".."1").mode(StreamingMode::WantAll).reverse(reverse);
        let rows = tr.range(range).collect_blocking().unwrap();
        let mut keys: Vec<_> =
            rows.iter().map(|row| String::from_utf8(row.key.to_vec()).unwrap()).collect();
        if reverse {
            keys.reverse();
        }
        assert_eq!(keys.len(), 3000);
        assert!(keys.is_sorted());
    }
}

#[test]
fn errors_carry_their_numbers() {
    let db = memory();
    set(&db, "a", "1");
    let tr = db.create_transaction();
    tr.set_read_version(1 << 60);
    assert_eq!(tr.get("a").wait(), Err(Error::future_version()));
    let tr = db.create_transaction();
    tr.set(b"\xff/system", "");
    assert_eq!(tr.commit().wait(), Err(Error::key_outside_legal_range()));
    let old = db.with_api_version(500);
    let tr = old.create_transaction();
    tr.atomic_op("a", "1", MutationType::BitAnd);
    assert_eq!(tr.commit().wait(), Err(Error::unsupported_operation()));
}

#[test]
fn a_directory_is_shared_with_whoever_opens_it_next() {
    let env = Env::real();
    let folder = block_on(env.files().temporary_dir("fdb-endpoint")).unwrap();
    let path = folder.path().join("data").display().to_string();
    set(&Database::new(Arc::new(open(&path))), "kept", "1");
    let db = Database::new(Arc::new(open(&path)));
    let value = db.transact_blocking(|tr| tr.get("kept").wait()).unwrap();
    assert_eq!(value.as_deref(), Some(&b"1"[..]));
}
