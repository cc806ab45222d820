//! A run of a migration that was given up meanwhile ends: it calls nothing damaged, and locks no
//! source for nobody.
//!
//! Whoever gives it up comes from the function that a run tells of its progress.

use plinth::{Database, Error, Local};
use plinth_migrate::{Phase, Progress, Settings, abort, migrate};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
