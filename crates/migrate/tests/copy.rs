//! Copies of databases at rest: whole, verified, resumed where they were interrupted, refused where
//! they would do harm.
//!
//! Pieces are made small, so that a small database has many of them; whoever interrupts or damages
//! a copy does so from the function that is told of its progress, in the middle of the work.

use plinth::{Database, Error, MutationType, RangeOptions, TransactionOption};
use plinth_client::Filling;
use plinth_env::block_on;
use plinth_migrate::{Progress, Settings, abort, migrate, unfinished};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/provided/database.rs"));

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn settings() -> Settings {
    Settings { piece_bytes: 3000, show_every: Duration::ZERO, ..Settings::default() }
}

fn fill(db: &Database, rows: usize) {
    for chunk in (0..rows).collect::<Vec<_>>().chunks(500) {
        db.transact_blocking(|tr| {
            chunk.iter().for_each(|n| tr.set(format!("row/{n:06}"), vec![*n as u8; 1 + n % 90]));
            Ok(())
        })
        .unwrap();
    }
}

/// All rows below `\xff`, whether the database is locked or not.
fn dump(db: &Database) -> Map {
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::LockAware).unwrap();
    let rows = tr.range(RangeOptions::from(&b""[..]..&b"\xff"[..])).collect_blocking().unwrap();
    rows.into_iter().map(|row| (row.key.to_vec(), row.value.to_vec())).collect()
}

fn set(db: &Database, key: &str, value: &str) {
    db.transact_blocking(|tr| {
        tr.set(key, value);
        Ok(())
    })
    .unwrap();
}

fn leftovers(db: &Database) -> usize {
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::ReadSystemKeys).unwrap();
    tr.range(RangeOptions::prefix(b"\xff\x02/plinth/")).collect_blocking().unwrap().len()
}

#[test]
fn a_copy_is_whole_and_leaves_nothing_behind() {
    let (source, destination) = (in_memory(), in_memory());
    fill(&source, 5000);
    set(&source, "", "the empty key");
    let report = migrate(&source, &destination, "source", &settings()).unwrap();
    assert_eq!(dump(&destination), dump(&source));
    assert_eq!((report.sum.rows, report.rounds, report.resumed_pieces), (5001, 1, 0));
    assert!(report.pieces_written > 20 && !report.source_is_locked, "{report:?}");
    assert_eq!(leftovers(&destination), 1, "how it ended");
    // Open to everybody again.
    set(&destination, "new", "1");
}

/// Series lie among the system's keys, and are copied with users': the one part of those that is.
#[test]
fn series_are_copied_with_their_place() {
    let (source, destination) = (in_memory(), in_memory());
    let place = b"\xff\x02/plinth/series/";
    let write = |db: &Database, rows: u16| {
        let db = db.clone().with_system_keys();
        db.transact_blocking(|tr| {
            for number in 0..rows {
                tr.set([&place[..], &number.to_be_bytes()].concat(), [7; 60]);
            }
            tr.set(b"\xff\x02/plinth/series", "no row of theirs");
            Ok(())
        })
        .unwrap();
    };
    let series = |db: &Database| {
        let tr = db.create_transaction();
        tr.set_option(TransactionOption::ReadSystemKeys).unwrap();
        tr.range(RangeOptions::prefix(place)).collect_blocking().unwrap()
    };
    write(&source, 2000);
    fill(&source, 100);
    let report = migrate(&source, &destination, "source", &settings()).unwrap();
    assert_eq!((dump(&destination), series(&destination)), (dump(&source), series(&source)));
    assert_eq!((report.sum.rows, leftovers(&destination)), (2100, 2001));
    // They count where nothing may be.
    let other = in_memory();
    write(&other, 1);
    let error = migrate(&source, &other, "source", &settings()).unwrap_err();
    assert!(error.to_string().contains("not empty"), "{error}");
}

#[test]
fn an_empty_database_can_be_copied() {
    let (source, destination) = (in_memory(), in_memory());
    let report = migrate(&source, &destination, "source", &settings()).unwrap();
    assert_eq!((report.sum.rows, dump(&destination).len()), (0, 0));
}

/// Interrupts the copy once it has come this far.
fn interrupted(source: &Database, destination: &Database, after: usize) -> Error {
    let (stop, seen) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
    let watcher = {
        let stop = stop.clone();
        move |_: &Progress| {
            if seen.fetch_add(1, Ordering::Relaxed) >= after {
                stop.store(true, Ordering::Relaxed);
            }
        }
    };
    let workers = 1;
    let settings = Settings { stop, watcher: Some(Arc::new(watcher)), workers, ..settings() };
    migrate(source, destination, "source", &settings).unwrap_err()
}

#[test]
fn another_run_goes_on_and_copies_only_what_has_changed() {
    let (source, destination) = (in_memory(), in_memory());
    fill(&source, 60_000);
    assert_eq!(interrupted(&source, &destination, 1), Error::operation_cancelled());
    // Nobody takes half a copy for a whole one.
    assert_eq!(
        destination.create_transaction().get("row/000000").wait(),
        Err(Error::database_locked())
    );
    source
        .transact_blocking(|tr| {
            tr.set("row/000001", "changed while nobody copied");
            tr.clear_range("row/000100", "row/000200");
            Ok(())
        })
        .unwrap();
    let before = dump(&destination).len();
    let report = migrate(&source, &destination, "source", &settings()).unwrap();
    assert_eq!(dump(&destination), dump(&source));
    assert!(before > 0 && report.resumed_pieces > 0, "{report:?}");
    let all = report.sum.bytes / 3000;
    assert!(report.pieces_written < all + all / 2, "{report:?}");
    assert_eq!(leftovers(&destination), 1, "how it ended");
}

#[test]
fn a_destination_that_is_not_empty_or_not_ours_is_left_alone() {
    let (source, destination) = (in_memory(), in_memory());
    fill(&source, 10);
    fill(&destination, 1);
    let refused = |source: &Database, destination: &Database, name: &str| {
        migrate(source, destination, name, &settings()).unwrap_err()
    };
    let error = refused(&source, &destination, "source");
    assert_eq!(error, Error::client_invalid_operation());
    assert!(error.to_string().contains("row/000000"), "{error}");
    assert_eq!(dump(&destination).len(), 1);
    assert_eq!(refused(&source, &source, "source"), Error::client_invalid_operation());

    let destination = in_memory();
    fill(&source, 60_000);
    interrupted(&source, &destination, 0);
    let error = refused(&source, &destination, "another source");
    assert!(error.to_string().contains("unfinished copy of source"), "{error}");

    let locked = in_memory();
    let lock = |tr: &plinth::Transaction| {
        tr.set_option(TransactionOption::AccessSystemKeys)?;
        let operand = [&b"0123456789"[..], &[7; 16], &[0; 4]].concat();
        tr.atomic_op(b"\xff/dbLocked", operand, MutationType::SetVersionstampedValue);
        Ok(())
    };
    locked.transact_blocking(lock).unwrap();
    assert_eq!(refused(&source, &locked, "source"), Error::database_locked());
}

/// A migration whose source is gone could be ended by nobody, and what it had noted kept all else
/// from the database for ever.
#[test]
fn a_migration_that_nobody_goes_on_with_can_be_given_up() {
    let (source, destination) = (in_memory(), in_memory());
    assert_eq!(unfinished(&destination), Ok(None));
    assert_eq!(abort(&destination), Ok(false));
    fill(&source, 60_000);
    interrupted(&source, &destination, 1);
    let before = dump(&destination);
    let found = unfinished(&destination).unwrap().unwrap();
    assert_eq!((&*found.source, found.copied.rows), ("source", before.len() as u64));
    assert!(found.is_locked && found.copied.rows > 0);
    let told = Filling::Migration.to_string();
    assert!(told.contains("plinth migrate --abort"), "{told}");
    assert_eq!(abort(&destination), Ok(true));
    assert_eq!(unfinished(&destination), Ok(None));
    assert_eq!(leftovers(&destination), 1, "how it ended");
    assert_eq!(block_on(Filling::now(&destination)), Ok(None));
    // The rows are there, and are a part: neither is another one begun over them.
    assert_eq!(dump(&destination), before);
    destination.create_transaction().get("row/000000").wait().unwrap();
    let again = migrate(&source, &destination, "source", &settings()).unwrap_err();
    assert!(again.to_string().contains("not empty"), "{again}");
}

/// A run that went on from one that was killed left the lock of that on the source, and nobody knew
/// its id any more.
#[test]
fn the_source_is_unlocked_by_whoever_is_given_up() {
    let (source, destination) = (in_memory(), in_memory());
    fill(&source, 60_000);
    interrupted(&source, &destination, 0);
    let lock = |tr: &plinth::Transaction| {
        tr.set_option(TransactionOption::AccessSystemKeys)?;
        tr.set_option(TransactionOption::LockAware)?;
        Ok::<_, Error>(b"\xff/dbLocked")
    };
    // Both have the migration's id.
    let id = destination.transact_blocking(|tr| tr.get(lock(tr)?).wait()).unwrap().unwrap();
    source
        .transact_blocking(|tr| {
            tr.set(lock(tr)?, &id);
            Ok(())
        })
        .unwrap();
    let given_up = destination.clone();
    let watcher = move |_: &Progress| drop(abort(&given_up));
    let settings = Settings { watcher: Some(Arc::new(watcher)), workers: 1, ..settings() };
    let ended = migrate(&source, &destination, "source", &settings);
    assert_eq!(ended.unwrap_err(), Error::operation_cancelled());
    assert!(source.create_transaction().get("row/000000").wait().unwrap().is_some());
}

/// Somebody has unlocked it, and somebody else has locked it since.
#[test]
fn the_lock_of_somebody_else_stays_when_a_migration_is_given_up() {
    let (source, destination) = (in_memory(), in_memory());
    fill(&source, 60_000);
    interrupted(&source, &destination, 0);
    let lock = |tr: plinth::Transaction| {
        tr.set_option(TransactionOption::AccessSystemKeys)?;
        tr.set_option(TransactionOption::LockAware)?;
        tr.set(b"\xff/dbLocked", [&b"0123456789"[..], &[7; 16]].concat());
        Ok(())
    };
    destination.transact_blocking(|tr| lock(tr.clone())).unwrap();
    assert!(!unfinished(&destination).unwrap().unwrap().is_locked);
    assert_eq!(abort(&destination), Ok(true));
    let read = destination.create_transaction().get("row/000000").wait();
    assert_eq!(read, Err(Error::database_locked()));
}

#[test]
fn tenants_are_refused() {
    let (source, destination) = (in_memory(), in_memory());
    source
        .transact_blocking(|tr| {
            tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites)?;
            tr.set(b"\xff\xff/management/tenant/map/one", "");
            Ok(())
        })
        .unwrap();
    let error = migrate(&source, &destination, "source", &settings()).unwrap_err();
    assert_eq!(error, Error::unsupported_operation());
    assert!(error.to_string().contains("tenants"), "{error}");
}

#[test]
fn the_source_can_be_left_locked() {
    let (source, destination) = (in_memory(), in_memory());
    fill(&source, 3000);
    let settings = Settings { lock_source: true, ..settings() };
    let report = migrate(&source, &destination, "source", &settings).unwrap();
    assert!(report.source_is_locked);
    assert_eq!(source.create_transaction().get("a").wait(), Err(Error::database_locked()));
    assert_eq!(dump(&destination), dump(&source));
    set(&destination, "new", "1");
}

#[test]
fn damage_in_the_destination_is_found_by_range() {
    let (source, destination) = (in_memory(), in_memory());
    fill(&source, 20_000);
    // Changes a row behind the copy's back, through the lock, as soon as the row must have been
    // copied.
    let damaged = AtomicBool::new(false);
    let target = destination.clone();
    let watcher = move |progress: &Progress| {
        if progress.copied.rows >= 1000 && !damaged.swap(true, Ordering::Relaxed) {
            let damage = |tr: &plinth::Transaction| {
                tr.set_option(TransactionOption::LockAware)?;
                tr.set("row/000001", "damaged");
                Ok(())
            };
            target.transact_blocking(damage).unwrap();
        }
    };
    let settings = Settings { watcher: Some(Arc::new(watcher)), workers: 1, ..settings() };
    let error = migrate(&source, &destination, "source", &settings).unwrap_err();
    assert_eq!(error, Error::checksum_failed());
    assert!(error.to_string().contains("the source has"), "{error}");
}

/// Writes as an unfinished restore does: its record, and a row. It is aware of locks, so that it
/// goes on whoever locks the database.
fn begin_restore(db: &Database) {
    db.transact_blocking(|tr| {
        tr.set_option(TransactionOption::AccessSystemKeys)?;
        tr.set_option(TransactionOption::LockAware)?;
        tr.set(plinth_types::system::RESTORE_HEAD, "a restore");
        tr.set("restored", "half");
        Ok(())
    })
    .unwrap();
}

/// A half was copied as if it were a whole, or was written to while it was verified.
#[test]
fn neither_side_may_have_a_part_of_something() {
    let (whole, half) = (in_memory(), in_memory());
    fill(&whole, 10);
    begin_restore(&half);
    half.transact_blocking(|tr| {
        tr.clear("restored");
        Ok(())
    })
    .unwrap();
    for (source, destination, words) in [
        (&whole, &half, "the destination has a part of what is being restored"),
        (&half, &whole, "the source has a part of what is being restored"),
    ] {
        let error = migrate(source, destination, "source", &settings()).unwrap_err();
        assert_eq!(error, Error::database_locked());
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(dump(&half), Map::new());
    assert_eq!(leftovers(&half), 1, "the record of the restore alone");
}

/// One that begins while the source is copied is told, too.
#[test]
fn a_restore_into_the_source_ends_the_migration() {
    let (source, destination) = (in_memory(), in_memory());
    fill(&source, 5000);
    let begun = AtomicBool::new(false);
    let watched = source.clone();
    let watcher = move |_: &Progress| {
        if !begun.swap(true, Ordering::SeqCst) {
            begin_restore(&watched);
        }
    };
    let settings = Settings { watcher: Some(Arc::new(watcher)), ..settings() };
    let error = migrate(&source, &destination, "source", &settings).unwrap_err();
    assert!(error.to_string().contains("the source has a part"), "{error}");
    assert_eq!(
        destination.create_transaction().get("restored").wait(),
        Err(Error::database_locked())
    );
}
