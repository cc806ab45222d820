//! No prefix is given twice, whatever runs at the same time, and those who run at the same time
//! hardly wait for each other.

use plinth::directory::Directory;
use plinth::{Bytes, Database, Error, Result, Transaction};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/provided/database.rs"));

fn create(tr: &Transaction, name: String) -> Result<Bytes> {
    Ok(Directory::root().create(tr, name).wait()?.subspace()?.prefix().clone())
}

#[test]
fn transactions_of_one_moment_get_different_prefixes() {
    let db = in_memory();
    create_all(&db, &["first".to_owned()]);
    let mut prefixes = BTreeSet::new();
    let mut conflicts = 0;
    let mut waiting: Vec<String> = (0..60).map(|n| format!("d{n}")).collect();
    while !waiting.is_empty() {
        // All read before any of them commits.
        let started: Vec<_> = waiting
            .drain(..)
            .map(|name| {
                let tr = db.create_transaction();
                let prefix = create(&tr, name.clone()).unwrap();
                (name, tr, prefix)
            })
            .collect();
        for (name, tr, prefix) in started {
            match tr.commit().wait() {
                Ok(()) => assert!(prefixes.insert(prefix.clone()), "{prefix:?} was given twice"),
                Err(error) => {
                    assert_eq!(error, Error::not_committed());
                    conflicts += 1;
                    waiting.push(name);
                }
            }
        }
    }
    assert_eq!(prefixes.len(), 60);
    assert!(conflicts > 0, "two in sixty should have drawn the same number of sixty-four");
}

fn create_all(db: &Database, names: &[String]) -> Vec<Bytes> {
    names.iter().map(|name| db.transact_blocking(|tr| create(tr, name.clone())).unwrap()).collect()
}

#[test]
fn threads_get_different_prefixes_while_windows_move_on() {
    const THREADS: usize = 4;
    const EACH: usize = 60;
    let db = in_memory();
    create_all(&db, &["first".to_owned()]);
    let runs = AtomicUsize::new(0);
    let prefixes: Vec<Bytes> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (db, runs) = (&db, &runs);
                scope.spawn(move || {
                    let one = |n| {
                        db.transact_blocking(|tr| {
                            runs.fetch_add(1, Ordering::Relaxed);
                            create(tr, format!("{thread}-{n}"))
                        })
                    };
                    (0..EACH).map(one).collect::<Result<Vec<_>>>().unwrap()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let different: BTreeSet<_> = prefixes.iter().collect();
    assert_eq!(different.len(), THREADS * EACH);
    let runs = runs.into_inner();
    assert!(runs < 2 * THREADS * EACH, "{runs} runs for {} directories", THREADS * EACH);
    assert!(prefixes.iter().all(|prefix| prefix.len() <= 3));
    // 241 are more than half of the first windows: numbers beyond them were drawn.
    assert!(prefixes.iter().any(|prefix| prefix.len() == 3));
    let listed = db.transact_blocking(|tr| Directory::root().list(tr, ()).wait()).unwrap();
    assert_eq!(listed.len(), THREADS * EACH + 1);
}

#[test]
fn threads_that_share_a_transaction_get_different_prefixes() {
    let db = in_memory();
    let tr = db.create_transaction();
    let root = Directory::root();
    root.create(&tr, "first").wait().unwrap();
    let prefixes: Vec<Bytes> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|thread| {
                let tr = &tr;
                let one = move |n| create(tr, format!("{thread}-{n}"));
                scope.spawn(move || (0..25).map(one).collect::<Result<Vec<_>>>().unwrap())
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(prefixes.iter().collect::<BTreeSet<_>>().len(), 100);
    tr.commit().wait().unwrap();
    assert_eq!(db.transact_blocking(|tr| root.list(tr, ()).wait()).unwrap().len(), 101);
}

#[test]
fn what_is_forgotten_is_not_given_again() {
    let db = in_memory();
    let names: Vec<_> = (0..100).map(|n| format!("d{n}")).collect();
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        seen.extend(create_all(&db, &names));
        for name in &names {
            db.transact_blocking(|tr| Directory::root().remove(tr, name).wait()).unwrap();
        }
    }
    assert_eq!(seen.len(), 300);
}
