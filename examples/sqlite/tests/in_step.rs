//! The file is in step after stops between any two steps, and nothing takes effect twice.

use plinth::{Database, Local, MutationType, block_on};
use plinth_to_sqlite::Mirror;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::path::PathBuf;
use std::task::Poll;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn write(db: &Database, round: u64) {
    db.transact_blocking(|tr| {
        for n in 0..5 {
            let key = format!("order/{:02}", (round * 7 + n * 3) % 40);
            match (round + n) % 5 {
                0 => tr.set(&key, format!("{round}")),
                1 => tr.clear_range("order/1", key.as_str().max("order/1")),
                _ => tr.atomic_op(&key, [1, 0, 0, 0], MutationType::Add),
            }
            tr.set(format!("other/{n}"), "not in it");
        }
        Ok(())
    })
    .expect("a commit");
}

fn rows_of(db: &Database) -> Rows {
    let rows =
        db.transact_blocking(|tr| block_on(tr.range("order/".."order0").collect())).expect("rows");
    rows.into_iter().map(|row| (row.key.to_vec(), row.value.to_vec())).collect()
}

fn rows_in(file: &PathBuf) -> Rows {
    let sqlite = Connection::open(file).expect("a file");
    let mut read = sqlite.prepare("select key, value from rows").expect("a table");
    let rows = read.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    rows.collect::<Result<_, _>>().expect("rows")
}

#[test]
fn a_file_is_in_step_whenever_it_was_stopped() {
    let file = std::env::temp_dir().join(format!("plinth-to-sqlite-{}.db", std::process::id()));
    let db = Local::in_memory().expect("a database").into_database();
    (0..20).for_each(|round| write(&db, round));
    for life in 0..10_u64 {
        let mut mirror = block_on(Mirror::open(&db, b"order/", &file)).expect("it opens");
        for round in 0..life {
            write(&db, 20 + life * 10 + round);
            // A step given up leaves SQLite as it was, or has committed without an acknowledgement.
            let polls = round % 3;
            if polls > 0 {
                block_on(async {
                    let mut step = Box::pin(mirror.step());
                    for _ in 0..polls {
                        let polled =
                            poll_fn(|context| Poll::Ready(step.as_mut().poll(context))).await;
                        if let Poll::Ready(stepped) = polled {
                            stepped.expect("a step");
                            break;
                        }
                    }
                });
                mirror = block_on(Mirror::open(&db, b"order/", &file)).expect("it opens");
            }
        }
        let version = db.transact_blocking(|tr| tr.get_read_version().wait()).expect("a version");
        while mirror.position() < version {
            block_on(mirror.step()).expect("a step");
        }
        assert_eq!(rows_in(&file), rows_of(&db), "life {life}");
    }
    let _ = std::fs::remove_file(&file);
}

/// A step that SQLite didn't take moved the consumer on, and the next one left out what it had been
/// given.
#[test]
fn what_sqlite_did_not_take_comes_again() {
    let file =
        std::env::temp_dir().join(format!("plinth-to-sqlite-busy-{}.db", std::process::id()));
    let db = Local::in_memory().expect("a database").into_database();
    write(&db, 1);
    let mut mirror = block_on(Mirror::open(&db, b"order/", &file)).expect("it opens");
    let other = Connection::open(&file).expect("a file");
    for round in 2..4 {
        write(&db, round);
        other.execute_batch("begin immediate").expect("a lock");
        while mirror_step_succeeds(&mut mirror) {}
        other.execute_batch("rollback").expect("no lock");
    }
    let version = db.transact_blocking(|tr| tr.get_read_version().wait()).expect("a version");
    while mirror.position() < version {
        block_on(mirror.step()).expect("a step");
    }
    assert_eq!(rows_in(&file), rows_of(&db));
    // The file is lost: another one begins with a copy.
    drop(mirror);
    std::fs::remove_file(&file).expect("it was there");
    let mut mirror = block_on(Mirror::open(&db, b"order/", &file)).expect("it opens");
    block_on(mirror.step()).expect("a step");
    assert_eq!(rows_in(&file), rows_of(&db));
    let _ = std::fs::remove_file(&file);
}

fn mirror_step_succeeds(mirror: &mut Mirror) -> bool {
    block_on(mirror.step()).is_ok()
}
