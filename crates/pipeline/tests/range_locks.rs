//! Ranges that are locked: only lock-aware transactions read and write them, everybody else goes on
//! beside them.
//!
//! Reads are refused by the client, which is told of the locks with its read version, and writes by
//! the node. Each way to read is tried from both sides of a range: one that was forgotten would
//! show what is half there.

mod common;

use common::*;
use plinth_client::{
    Database, Endpoint, RangeOptions, ReadVersionRequest, Transaction, TransactionOption,
};
use plinth_env::block_on;
use plinth_types::system::RANGE_LOCKS;
use plinth_types::{
    Bytes, Error, KeyRange, KeySelector, MutationType as M, RangeLock, RangeLocks, Result,
};
use std::sync::Arc;

/// The row that locks these ranges.
fn locks(ranges: &[(&'static str, &'static str)]) -> Bytes {
    let lock = |(begin, end): &(&'static str, &'static str)| RangeLock {
        range: KeyRange::new(begin.as_bytes(), end.as_bytes()),
        owner: [1; 16],
    };
    RangeLocks::new(ranges.iter().map(lock).collect()).value().clone()
}

async fn lock(endpoint: &Arc<dyn Endpoint>, ranges: &[(&'static str, &'static str)]) {
    let mut locking = request(&[(M::Set, RANGE_LOCKS, &locks(ranges))]);
    locking.lock_aware = true;
    commit(endpoint, locking).await.unwrap();
}

async fn unlock(endpoint: &Arc<dyn Endpoint>) {
    let mut unlocking = request(&[(M::ClearRange, RANGE_LOCKS, &[RANGE_LOCKS, b"\0"].concat())]);
    unlocking.lock_aware = true;
    commit(endpoint, unlocking).await.unwrap();
}

/// A database with the keys a, b, ... to j, of which d to f are locked.
async fn with_locked() -> (Arc<dyn Endpoint>, Database) {
    let endpoint = in_memory().await;
    for key in b'a'..=b'j' {
        set(&endpoint, &[key], b"v").await.unwrap();
    }
    lock(&endpoint, &[("d", "g")]).await;
    (endpoint.clone(), Database::new(endpoint))
}

fn locked<T>() -> Result<T> {
    Err(Error::transaction_rejected_range_locked())
}

/// Whether this is refused, and by which words; each on a transaction of its own, since a read that
/// failed fails the commit.
macro_rules! refused {
    ($db:expr, |$tr:ident| $what:expr) => {{
        let $tr = $db.create_transaction();
        let error = $what.await.map(drop).unwrap_err();
        assert_eq!(error, Error::transaction_rejected_range_locked(), "{}", stringify!($what));
        error
    }};
}

async fn keys(tr: &Transaction, range: RangeOptions) -> Result<String> {
    let rows = tr.range(range).collect().await?;
    Ok(rows.iter().map(|row| String::from_utf8_lossy(&row.key).into_owned()).collect())
}

#[test]
fn reads_that_need_what_is_locked_fail_and_all_others_do_not() {
    block_on(async {
        let (_, db) = with_locked().await;
        let told = refused!(db, |tr| tr.get("d"));
        assert!(told.detail().is_some_and(|detail| detail.contains("d to g")), "{told}");
        refused!(db, |tr| tr.snapshot().get("f"));
        refused!(db, |tr| keys(&tr, RangeOptions::from("c".."h")));
        refused!(db, |tr| keys(&tr, RangeOptions::from("c".."h").reverse(true)));
        refused!(db, |tr| keys(&tr, RangeOptions::from("c".."h").limit(2)));
        refused!(db, |tr| keys(&tr, RangeOptions::from("dd".."dz")));
        refused!(db, |tr| tr.get_key(KeySelector::first_greater_than("c")));
        refused!(db, |tr| tr.get_key(KeySelector::last_less_than("g")));
        refused!(db, |tr| tr
            .get_key(KeySelector { offset: 5, ..KeySelector::first_greater_than("b") }));
        refused!(db, |tr| tr.watch("e"));
        let tr = db.create_transaction();
        assert_eq!(tr.get("c").await.unwrap().as_deref(), Some(&b"v"[..]));
        assert_eq!(tr.get("g").await.unwrap().as_deref(), Some(&b"v"[..]));
        assert_eq!(keys(&tr, RangeOptions::from("a".."d")).await.unwrap(), "abc");
        assert_eq!(keys(&tr, RangeOptions::from("g".."z")).await.unwrap(), "ghij");
        // A limit ends a read before it comes there.
        assert_eq!(keys(&tr, RangeOptions::from("a".."z").limit(3)).await.unwrap(), "abc");
        assert_eq!(
            keys(&tr, RangeOptions::from("a".."z").limit(4).reverse(true)).await.unwrap(),
            "jihg"
        );
        assert_eq!(tr.get_key(KeySelector::first_greater_or_equal("c")).await.unwrap(), "c");
        assert_eq!(tr.get_key(KeySelector::last_less_than("d")).await.unwrap(), "c");
        assert_eq!(tr.get_key(KeySelector::first_greater_or_equal("g")).await.unwrap(), "g");
        // What it has written itself it sees, and can't commit.
        tr.set("e", "mine");
        assert_eq!(tr.get("e").await.unwrap().as_deref(), Some(&b"mine"[..]));
        assert_eq!(tr.commit().await, locked());
    });
}

#[test]
fn writes_of_what_is_locked_are_refused_and_all_others_are_not() {
    block_on(async {
        let (_, db) = with_locked().await;
        let writes: [&dyn Fn(&Transaction); 6] = [
            &|tr| tr.set("d", "w"),
            &|tr| tr.add("e", 1u64.to_le_bytes()),
            &|tr| tr.clear("f"),
            &|tr| tr.clear_range("a", "z"),
            &|tr| tr.clear_range("fz", "h"),
            &|tr| {
                tr.set_versionstamped_key([&b"d"[..], &[0; 10], &1u32.to_le_bytes()].concat(), "w")
            },
        ];
        for (at, write) in writes.iter().enumerate() {
            let tr = db.create_transaction();
            tr.set("k", "w");
            write(&tr);
            assert_eq!(tr.commit().await, locked(), "write {at}");
        }
        let tr = db.create_transaction();
        assert_eq!(tr.get("k").await.unwrap(), None, "nothing of it took effect");
        tr.set("c", "w");
        tr.clear_range("g", "h");
        tr.commit().await.unwrap();
    });
}

#[test]
fn the_lock_aware_read_and_write_what_is_locked_and_all_do_when_it_is_over() {
    block_on(async {
        let (endpoint, db) = with_locked().await;
        let tr = db.create_transaction();
        tr.set_option(TransactionOption::LockAware).unwrap();
        assert_eq!(keys(&tr, RangeOptions::from("a".."z")).await.unwrap(), "abcdefghij");
        tr.set("e", "w");
        tr.commit().await.unwrap();
        // A loop of retries waits until it is over, and so does one that has read of it.
        let reader = db.create_transaction();
        assert_eq!(reader.get("e").await, locked());
        unlock(&endpoint).await;
        reader.on_error(Error::transaction_rejected_range_locked()).await.unwrap();
        assert_eq!(reader.get("e").await.unwrap().as_deref(), Some(&b"w"[..]));
        set(&endpoint, b"e", b"x").await.unwrap();
        assert_eq!(
            endpoint.read_version(ReadVersionRequest::default()).await.unwrap().range_locks,
            None
        );
    });
}

#[test]
fn a_tenant_s_keys_are_locked_by_their_whole_names() {
    block_on(async {
        let (endpoint, db) = with_locked().await;
        let tr = db.create_transaction();
        tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
        tr.set(b"\xff\xff/management/tenant/map/shop", "");
        tr.commit().await.unwrap();
        let tenant = db.open_tenant("shop").await.unwrap();
        let tr = tenant.create_transaction();
        tr.set("e", "v");
        tr.commit().await.unwrap();
        // Not what it calls e, which is free.
        let tr = tenant.create_transaction();
        assert_eq!(tr.get("e").await.unwrap().as_deref(), Some(&b"v"[..]));
        lock(&endpoint, &[("\0", "\u{1}")]).await;
        refused!(tenant, |tr| tr.get("e"));
        refused!(tenant, |tr| keys(&tr, RangeOptions::from("a".."z")));
        let tr = tenant.create_transaction();
        tr.set("f", "v");
        assert_eq!(tr.commit().await, locked());
    });
}

#[test]
fn a_snapshot_that_is_pinned_meanwhile_stays_locked() {
    block_on(async {
        let (endpoint, db) = with_locked().await;
        let tr = db.create_transaction();
        tr.set_option(TransactionOption::PinnedSnapshot).unwrap();
        assert_eq!(tr.get("c").await.unwrap().as_deref(), Some(&b"v"[..]));
        let snapshot = db.pin_snapshot().await.unwrap();
        unlock(&endpoint).await;
        assert_eq!(tr.get("e").await, locked(), "what was half there at that version stays so");
        assert_eq!(snapshot.get("e").await, locked());
        let aware = snapshot.begin_read();
        aware.set_option(TransactionOption::LockAware).unwrap();
        assert_eq!(aware.get("e").await.unwrap().as_deref(), Some(&b"v"[..]));
        let now = db.pin_snapshot().await.unwrap();
        assert_eq!(now.get("e").await.unwrap().as_deref(), Some(&b"v"[..]));
    });
}

#[test]
fn locks_of_a_later_format_keep_everybody_out_of_everything() {
    block_on(async {
        let (endpoint, db) = with_locked().await;
        let mut locking = request(&[(M::Set, RANGE_LOCKS, b"\xfewho knows")]);
        locking.lock_aware = true;
        commit(&endpoint, locking).await.unwrap();
        refused!(db, |tr| tr.get("a"));
        assert_eq!(set(&endpoint, b"a", b"v").await, locked());
    });
}
