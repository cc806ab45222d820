//! Pinned snapshots: a version that stays readable whatever is written, for whoever reaches the
//! database, in the process or behind a server.
//!
//! The window is short, so that versions leave it while a test runs; each waits for what it needs,
//! however long that takes.

mod common;

use common::*;
use plinth_client::{
    Database, Endpoint, PinnedSnapshot, RangeOptions, Transaction, TransactionOption,
};
use plinth_env::{Env, TemporaryDir, block_on};
use plinth_pipeline::{EngineKind, Node, NodeConfig, SsdSettings};
use plinth_types::{Error, KeyRange, KeySelector};
use std::sync::Arc;
use std::time::Duration;

const ROWS: usize = 300;

/// A database on the engine `ssd`, which ends before its directory.
struct Ssd {
    endpoint: Arc<dyn Endpoint>,
    _dir: TemporaryDir,
}

async fn ssd() -> Ssd {
    let env = Env::real();
    let dir = env.files().temporary_dir("pinned").await.unwrap();
    let config = NodeConfig {
        engine: EngineKind::Ssd,
        ssd: SsdSettings::with_memory(2 << 20),
        window: 50_000,
        ..NodeConfig::default()
    };
    let node = Node::open(&env, dir.path(), config).await.unwrap();
    Ssd { endpoint: provided(Arc::new(node.endpoint())), _dir: dir }
}

fn key(n: usize) -> String {
    format!("key{n:04}")
}

fn write(db: &Database, value: &str) {
    db.transact_blocking(|tr| {
        (0..ROWS).for_each(|n| tr.set(key(n), value));
        tr.set("last", value);
        Ok(())
    })
    .unwrap();
}

/// A snapshot in which `last` has this value: the window moves on with the clock.
async fn pinned_with(db: &Database, value: &str) -> PinnedSnapshot {
    loop {
        db.endpoint().env().sleep(Duration::from_millis(50)).await;
        // Whoever asks for a version moves the window.
        db.transact_blocking(|tr| tr.get_read_version().wait()).unwrap();
        let snapshot = db.pin_snapshot().await.unwrap();
        let last = snapshot.get("last").wait().unwrap();
        if last.as_deref() == Some(value.as_bytes()) {
            return snapshot;
        }
    }
}

/// How many snapshots the database says are pinned.
async fn count(db: &Database) -> u64 {
    told(db, "count").await
}

/// What it says of them.
async fn told(db: &Database, what: &str) -> u64 {
    let status: serde_json::Value = serde_json::from_str(&db.status_json().await.unwrap()).unwrap();
    status["cluster"]["plinth"]["ssd"]["pinned_snapshots"][what].as_u64().unwrap()
}

#[test]
fn a_pinned_snapshot_stays_as_it_was() {
    block_on(async {
        let ssd = ssd().await;
        let db = Database::new(ssd.endpoint.clone());
        write(&db, "before");
        let snapshot = pinned_with(&db, "before").await;
        write(&db, "after");
        let later = pinned_with(&db, "after").await;
        assert!(later.version() > snapshot.version());
        for (snapshot, value) in [(&snapshot, "before"), (&later, "after")] {
            let tr = snapshot.begin_read();
            assert_eq!(tr.get_read_version().await, Ok(snapshot.version()));
            let rows = tr.range(RangeOptions::from("key".."kez")).collect().await.unwrap();
            assert!(rows.len() == ROWS && rows.iter().all(|row| row.value == value.as_bytes()));
            assert_eq!(tr.get(key(7)).await.unwrap().as_deref(), Some(value.as_bytes()));
            let found = tr.get_key(KeySelector::first_greater_than(key(7))).await.unwrap();
            assert_eq!(found, key(8).as_bytes());
        }
        let now = db.transact_blocking(|tr| tr.get(key(5)).wait()).unwrap();
        assert_eq!(now.as_deref(), Some(&b"after"[..]));
    });
}

/// Waits until this transaction's version has left the window.
async fn grown_old(db: &Database, tr: &Transaction) {
    while tr.get("last").await != Err(Error::transaction_too_old()) {
        write(db, "after");
        db.endpoint().env().sleep(Duration::from_millis(20)).await;
    }
}

/// What bindings have of it: they know no endpoints, and set options by their codes.
#[test]
fn a_transaction_s_option_pins_what_it_reads() {
    block_on(async {
        let env = Env::real();
        let node = Node::in_memory(&env, NodeConfig { window: 50_000, ..NodeConfig::default() })
            .await
            .unwrap();
        let (ssd, memory) = (ssd().await, provided(Arc::new(node.endpoint())));
        for db in [Database::new(ssd.endpoint.clone()), Database::new(memory)] {
            write(&db, "before");
            drop(pinned_with(&db, "before").await);
            let (pinned, other) = (db.create_transaction(), db.create_transaction());
            pinned.set_option_raw(3000, None).unwrap();
            assert_eq!(pinned.get("last").await.unwrap().as_deref(), Some(&b"before"[..]));
            other.get_read_version().await.unwrap();
            grown_old(&db, &other).await;
            let rows = pinned.range(RangeOptions::from("key".."kez")).collect().await.unwrap();
            assert!(rows.len() == ROWS && rows.iter().all(|row| row.value == b"before"[..]));
            let found = pinned.get_key(KeySelector::first_greater_than(key(7))).await.unwrap();
            assert_eq!(found, key(8).as_bytes());
            assert_eq!(pinned.get(key(7)).await.unwrap().as_deref(), Some(&b"before"[..]));
            // Nothing can be written or watched, and the version is the pin's.
            let refused = pinned.watch("last").await.unwrap_err();
            assert_eq!(refused, Error::unsupported_operation());
            pinned.set("last", "mine");
            assert_eq!(pinned.get("last").await.unwrap().as_deref(), Some(&b"mine"[..]));
            assert_eq!(pinned.commit().await.unwrap_err(), Error::transaction_read_only());
            // Anew it is like any other: nothing is kept, and it may write.
            let mut committed = Err(Error::transaction_too_old());
            while committed == Err(Error::transaction_too_old()) {
                pinned.reset();
                // The machine may rest for longer than the window.
                let last = pinned.get("last").await;
                if last == Err(Error::transaction_too_old()) {
                    continue;
                }
                assert_eq!(last.unwrap().as_deref(), Some(&b"after"[..]));
                pinned.set_option(TransactionOption::PinnedSnapshot).unwrap_err();
                pinned.set("last", "mine");
                committed = pinned.commit().await;
            }
            committed.unwrap();
            pinned.reset();
            pinned.set_option(TransactionOption::PinnedSnapshot).unwrap();
            pinned.set_read_version(7);
            let refused = pinned.get("last").await.unwrap_err();
            assert_eq!(refused, Error::client_invalid_operation());
        }
        let db = Database::new(ssd.endpoint.clone());
        while count(&db).await > 0 {
            db.endpoint().env().sleep(Duration::from_millis(5)).await;
        }
    });
}

/// Where a garbage collector drops handles that was long after the end.
#[test]
fn a_transaction_that_was_cancelled_keeps_no_version() {
    block_on(async {
        let ssd = ssd().await;
        let db = Database::new(ssd.endpoint.clone());
        write(&db, "v");
        let tr = db.create_transaction();
        tr.set_option(TransactionOption::PinnedSnapshot).unwrap();
        tr.get("last").await.unwrap();
        assert_eq!(count(&db).await, 1);
        tr.cancel();
        while count(&db).await > 0 {
            db.endpoint().env().sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(tr.get("last").await, Err(Error::transaction_cancelled()));
    });
}

#[test]
fn a_pinned_snapshot_takes_no_writes_and_has_nothing_to_watch() {
    block_on(async {
        let ssd = ssd().await;
        let db = Database::new(ssd.endpoint.clone());
        write(&db, "v");
        let snapshot = pinned_with(&db, "v").await;
        let endpoint = snapshot.endpoint();
        let tr = Database::new(endpoint.clone()).create_transaction();
        tr.set("key", "no");
        let refused = tr.commit().await.unwrap_err();
        assert_eq!(refused, Error::transaction_read_only());
        assert_eq!(refused.detail(), Some("a pinned snapshot takes no writes"));
        let refused = endpoint.watch("key".into(), None, snapshot.version()).await.unwrap_err();
        assert_eq!(refused, Error::unsupported_operation());
        assert_eq!(endpoint.pin_snapshot().await.err(), Some(Error::unsupported_operation()));
        // What it has is measured and cut like any database.
        let range = KeyRange::new(&b""[..], &b"\xff"[..]);
        assert!(endpoint.range_size(range.clone()).await.unwrap() > 0);
        let pieces = endpoint.split_points(range.clone(), 1 << 30).await.unwrap();
        assert_eq!((pieces.first(), pieces.last()), (Some(&range.begin), Some(&range.end)));
    });
}

#[test]
fn a_snapshot_is_counted_until_its_last_handle_has_gone() {
    block_on(async {
        let ssd = ssd().await;
        let db = Database::new(ssd.endpoint.clone());
        write(&db, "v");
        assert_eq!(count(&db).await, 0);
        let (one, two) = (db.pin_snapshot().await.unwrap(), db.pin_snapshot().await.unwrap());
        let again = one.clone();
        assert_eq!(count(&db).await, 2);
        drop((one, two));
        while count(&db).await > 1 {
            db.endpoint().env().sleep(Duration::from_millis(5)).await;
        }
        again.read_blocking(|tr| tr.get("last").wait()).unwrap();
        let tr = again.begin_read();
        drop(again);
        // A transaction is a handle as well.
        tr.get("last").await.unwrap();
        assert_eq!(count(&db).await, 1);
        drop(tr);
        while count(&db).await > 0 {
            db.endpoint().env().sleep(Duration::from_millis(5)).await;
        }
    });
}

/// What it costs is the files that nobody else needs.
#[test]
fn a_snapshot_s_cost_stands_in_the_status_until_it_is_dropped() {
    block_on(async {
        let ssd = ssd().await;
        let db = Database::new(ssd.endpoint.clone());
        write(&db, &"before".repeat(100));
        let snapshot = pinned_with(&db, &"before".repeat(100)).await;
        assert_eq!(told(&db, "bytes").await, 0, "the database needs all of its files itself");
        // Merges replace them.
        while told(&db, "bytes").await == 0 {
            write(&db, "after");
            drop(pinned_with(&db, "after").await);
            // A server hears of a drop a little later.
            while count(&db).await > 1 {
                db.endpoint().env().sleep(Duration::from_millis(5)).await;
            }
        }
        assert!(told(&db, "bytes").await > 1000);
        assert_eq!(count(&db).await, 1);
        drop(snapshot);
        while count(&db).await > 0 {
            db.endpoint().env().sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(told(&db, "bytes").await, 0);
    });
}

#[test]
fn the_engine_memory_keeps_the_newest_version_and_says_what_that_costs() {
    block_on(async {
        let env = Env::real();
        let config = NodeConfig { window: 50_000, ..NodeConfig::default() };
        let node = Node::in_memory(&env, config).await.unwrap();
        let db = Database::new(provided(Arc::new(node.endpoint())));
        let kept = async || {
            let status: serde_json::Value =
                serde_json::from_str(&db.status_json().await.unwrap()).unwrap();
            status["cluster"]["plinth"]["memory"]["pinned_bytes"].as_u64().unwrap()
        };
        write(&db, "before");
        let snapshot = db.pin_snapshot().await.unwrap();
        // Rows that only the snapshot reads are kept once their version has left the window.
        while kept().await < (ROWS * "before".len()) as u64 {
            write(&db, "after");
            env.sleep(Duration::from_millis(20)).await;
        }
        for _ in 0..3 {
            write(&db, "later");
        }
        let tr = snapshot.begin_read();
        assert_eq!(tr.get_read_version().await, Ok(snapshot.version()));
        let rows =
            tr.range(RangeOptions::from("key".."kez").reverse(true)).collect().await.unwrap();
        assert!(rows.len() == ROWS && rows.iter().all(|row| row.value == b"before"[..]));
        assert_eq!(tr.get(key(7)).await.unwrap().as_deref(), Some(&b"before"[..]));
        assert_eq!(
            tr.get_key(KeySelector::last_less_than(key(7))).await.unwrap(),
            key(6).as_bytes()
        );
        drop((tr, snapshot));
        while kept().await > 0 {
            write(&db, "last");
            env.sleep(Duration::from_millis(20)).await;
        }
    });
}
