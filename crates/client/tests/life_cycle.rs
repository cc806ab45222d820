//! Every call in every state of a transaction gives the documented number.
//!
//! A state is a function that brings a transaction there; each call meets a transaction of its own,
//! because some calls change the state (using a transaction that commits poisons it).

mod support;

use plinth_client::{Database, Error, KeySelector, RangeOptions, Transaction, TransactionOption};
use plinth_env::Env;
use std::sync::Arc;
use std::time::Duration;
use support::{StandIn, eventually, stand_in};

/// The number of a result; 0 for success.
fn code<T>(result: plinth_client::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.code())
}

type Call = fn(&Transaction) -> i32;

/// Calls by name. Those that tell no error are followed by one that does.
const CALLS: &[(&str, Call)] = &[
    ("get", |tr| code(tr.get("k").wait())),
    ("snapshot get", |tr| code(tr.snapshot().get("k").wait())),
    ("get_key", |tr| code(tr.get_key(KeySelector::first_greater_or_equal("k")).wait())),
    ("get_range", |tr| code(tr.get_range("a".."z").wait())),
    ("get of the metadata version", |tr| code(tr.get(b"\xff/metadataVersion").wait())),
    ("get_read_version", |tr| code(tr.get_read_version().wait())),
    ("commit", |tr| code(tr.commit().wait())),
    ("versionstamp", |tr| {
        let stamp = tr.versionstamp();
        if stamp.is_ready() { code(stamp.wait()) } else { 0 }
    }),
    ("watch", |tr| {
        let watch = tr.watch("k");
        if watch.is_ready() { code(watch.wait()) } else { 0 }
    }),
    ("addresses_for_key", |tr| code(tr.addresses_for_key("k").wait())),
    ("estimated_range_size", |tr| code(tr.estimated_range_size("a", "b").wait())),
    ("split_points", |tr| code(tr.split_points("a", "b", 10).wait())),
    ("approximate_size", |tr| code(tr.approximate_size().wait())),
    ("set", |tr| {
        tr.set("k", "v");
        code(tr.approximate_size().wait())
    }),
    ("clear", |tr| {
        tr.clear("k");
        code(tr.approximate_size().wait())
    }),
    ("clear_range", |tr| {
        tr.clear_range("a", "b");
        code(tr.approximate_size().wait())
    }),
    ("atomic_op", |tr| {
        tr.add("k", [1]);
        code(tr.approximate_size().wait())
    }),
    ("add_read_conflict_key", |tr| {
        tr.add_read_conflict_key("k");
        code(tr.approximate_size().wait())
    }),
    ("add_write_conflict_key", |tr| {
        tr.add_write_conflict_key("k");
        code(tr.approximate_size().wait())
    }),
    ("special get", |tr| code(tr.get(b"\xff\xff/cluster_file_path").wait())),
    ("special get_range", |tr| {
        code(
            tr.get_range(RangeOptions::prefix(b"\xff\xff/transaction/write_conflict_range/"))
                .wait(),
        )
    }),
    ("on_error 1020", |tr| code(tr.on_error_code(1020).wait())),
    ("on_error 2000", |tr| code(tr.on_error_code(2000).wait())),
];

/// Calls that go on while and after a transaction commits.
const ALLOWED_AFTER_COMMIT: &[&str] =
    &["get_read_version", "approximate_size", "special get", "special get_range", "on_error 1020"];
/// Calls that a dead transaction takes: the writes come to nothing.
const ALLOWED_WHEN_DEAD: &[&str] = &[
    "approximate_size",
    "set",
    "clear",
    "clear_range",
    "atomic_op",
    "add_read_conflict_key",
    "add_write_conflict_key",
    "special get",
    "special get_range",
];

fn check(
    state: &str,
    make: impl Fn() -> (Arc<StandIn>, Transaction),
    expected: impl Fn(&str) -> i32,
) {
    for (name, call) in CALLS {
        let (_endpoint, tr) = make();
        assert_eq!(call(&tr), expected(name), "{name} when {state}");
    }
}

fn transaction(db: &Database) -> Transaction {
    let tr = db.create_transaction();
    tr.set("mine", "1");
    tr
}

#[test]
fn fresh() {
    let make = || {
        let (endpoint, db) = stand_in();
        (endpoint, transaction(&db))
    };
    check("fresh", make, |name| if name == "on_error 2000" { 2000 } else { 0 });
}

#[test]
fn committed() {
    let make = || {
        let (endpoint, db) = stand_in();
        let tr = transaction(&db);
        tr.commit().wait().unwrap();
        assert!(tr.committed_version() > Some(0));
        (endpoint, tr)
    };
    check("committed", make, |name| match name {
        "on_error 2000" => 2000,
        name if ALLOWED_AFTER_COMMIT.contains(&name) => 0,
        _ => 2017,
    });
}

#[test]
fn commit_refused() {
    let make = || {
        let (endpoint, db) = stand_in();
        endpoint.lock().faults.commit.push(Error::not_committed());
        let tr = transaction(&db);
        let stamp = tr.versionstamp();
        assert_eq!(code(tr.commit().wait()), 1020);
        assert_eq!(code(stamp.wait()), 2020);
        assert_eq!(tr.committed_version(), None);
        (endpoint, tr)
    };
    check("its commit failed", make, |name| match name {
        "on_error 2000" => 2000,
        name if ALLOWED_AFTER_COMMIT.contains(&name) => 0,
        _ => 2017,
    });
}

#[test]
fn used_after_commit() {
    let make = || {
        let (endpoint, db) = stand_in();
        let tr = transaction(&db);
        tr.commit().wait().unwrap();
        assert_eq!(code(tr.get("k").wait()), 2017);
        (endpoint, tr)
    };
    // Everything fails now, whatever would have been allowed before; writes keep their error.
    check("used after commit", make, |name| match name {
        "approximate_size" | "special get" | "special get_range" => 0,
        _ => 2017,
    });
    let make_protected = || {
        let (endpoint, db) = stand_in();
        let tr = transaction(&db);
        tr.set_option(TransactionOption::UsedDuringCommitProtectionDisable).unwrap();
        tr.commit().wait().unwrap();
        assert_eq!(code(tr.get("k").wait()), 2017);
        (endpoint, tr)
    };
    check("used after commit without protection", make_protected, |name| match name {
        "on_error 2000" => 2000,
        name if ALLOWED_AFTER_COMMIT.contains(&name) => 0,
        _ => 2017,
    });
}

#[test]
fn used_while_committing() {
    for protected in [true, false] {
        let (_endpoint, db) = StandIn::new(true, 1);
        let tr = transaction(&db);
        if !protected {
            tr.set_option(TransactionOption::UsedDuringCommitProtectionDisable).unwrap();
        }
        let stamp = tr.versionstamp();
        let commit = tr.commit();
        let get = tr.get("k");
        assert_eq!(code(get.wait()), 2017);
        // The commit is poisoned, or, if it was faster than the get, done.
        let (commit, stamp) = (code(commit.wait()), code(stamp.wait()));
        assert!(commit == 0 || (protected && commit == 2017), "{commit}");
        assert!(stamp == commit, "{stamp}");
        tr.reset();
        assert_eq!(code(tr.get("k").wait()), 0);
    }
}

#[test]
fn cancelled() {
    let make = || {
        let (endpoint, db) = stand_in();
        let tr = transaction(&db);
        tr.cancel();
        (endpoint, tr)
    };
    check("cancelled", make, |name| if ALLOWED_WHEN_DEAD.contains(&name) { 0 } else { 1025 });
    let failed = || {
        let (endpoint, db) = stand_in();
        let tr = transaction(&db);
        assert_eq!(code(tr.on_error_code(1500).wait()), 1500);
        (endpoint, tr)
    };
    check(
        "on_error failed",
        failed,
        |name| if ALLOWED_WHEN_DEAD.contains(&name) { 0 } else { 1025 },
    );
}

#[test]
fn timed_out() {
    let make = || {
        let (endpoint, db) = stand_in();
        let tr = transaction(&db);
        tr.set_option(TransactionOption::Timeout(Some(Duration::from_millis(1)))).unwrap();
        eventually("the timeout", || code(tr.get_read_version().wait()) == 1031);
        (endpoint, tr)
    };
    check("timed out", make, |name| if ALLOWED_WHEN_DEAD.contains(&name) { 0 } else { 1031 });
    // A timeout that has passed already fires at once.
    let (_endpoint, db) = stand_in();
    let tr = db.create_transaction();
    plinth_env::block_on(Env::real().sleep(Duration::from_millis(5)));
    tr.set_option(TransactionOption::Timeout(Some(Duration::from_millis(2)))).unwrap();
    assert_eq!(code(tr.get("k").wait()), 1031);
    tr.reset();
    assert_eq!(code(tr.get("k").wait()), 0);
}

#[test]
fn a_deferred_error_is_told_by_everything_until_a_retry() {
    let make = || {
        let (endpoint, db) = stand_in();
        let tr = transaction(&db);
        tr.set(b"\xff/system", "no");
        tr.set(vec![b'k'; 20_000], "the first error remains");
        (endpoint, tr)
    };
    check("an error is deferred", make, |name| match name {
        "on_error 1020" => 0,
        "on_error 2000" => 2000,
        _ => 2004,
    });
    let (_endpoint, tr) = make();
    tr.on_error_code(1020).wait().unwrap();
    assert_eq!(code(tr.get("k").wait()), 0);
    assert_eq!(code(tr.commit().wait()), 0);
}

#[test]
fn old_api_versions_reset_by_themselves() {
    // A commit whose answer has to wait must not end itself with what it ends.
    for delayed in [false, true] {
        let (endpoint, db) = StandIn::new(delayed, 2);
        let tr = transaction(&db.clone().with_api_version(400));
        tr.commit().wait().unwrap();
        assert_eq!(tr.get("mine").wait().unwrap().unwrap(), "1");
        endpoint.lock().faults.commit.push(Error::not_committed());
        tr.set("mine", "2");
        assert_eq!(code(tr.commit().wait()), 1020);
        assert_eq!(tr.get("mine").wait().unwrap().unwrap(), "1");
    }
    let (_endpoint, db) = stand_in();
    let tr = transaction(&db.clone().with_api_version(600));
    assert_eq!(code(tr.on_error_code(1500).wait()), 1500);
    assert_eq!(code(tr.get("k").wait()), 0);
    // Since 700 the read version remains after commit.
    for (api, remains) in [(630, false), (730, true)] {
        let tr = transaction(&db.clone().with_api_version(api));
        let before = tr.get_read_version().wait().unwrap();
        tr.commit().wait().unwrap();
        assert_eq!(tr.get_read_version().wait().unwrap() == before, remains, "{api}");
    }
}

#[test]
fn reset_and_dropping_end_what_is_under_way() {
    let (_endpoint, db) = StandIn::new(true, 2);
    for _ in 0..50 {
        let tr = transaction(&db);
        let reads = [tr.get("a"), tr.get("b")];
        let range = tr.get_range("a".."z");
        let version = tr.get_read_version();
        let stamp = tr.versionstamp();
        tr.reset();
        assert_eq!(code(stamp.wait()), 1025);
        for code in reads
            .map(|read| code(read.wait()))
            .into_iter()
            .chain([code(range.wait()), code(version.wait())])
        {
            assert!(code == 1025 || code == 0, "{code}");
        }
        drop((tr.get("a"), tr.get_range("a".."z"), tr.commit()));
        let tr = transaction(&db);
        let get = tr.get("mine");
        drop(tr);
        assert_eq!(get.wait().unwrap().unwrap(), "1");
    }
}

#[test]
fn a_failed_read_fails_the_commit() {
    for delayed in [false, true] {
        let (endpoint, db) = StandIn::new(delayed, 3);
        let tr = transaction(&db);
        endpoint.lock().faults.read.push(Error::future_version());
        assert_eq!(code(tr.get("k").wait()), 1009);
        assert_eq!(code(tr.commit().wait()), 1009);
        assert_eq!(code(tr.on_error_code(1009).wait()), 0);
        tr.set_versionstamped_value("k", [0; 14]);
        let get = tr.get("k");
        assert_eq!(code(tr.commit().wait()), 1036);
        assert_eq!(code(get.wait()), 1036);
        // A read that is not awaited is waited for by commit; one that was dropped adds no
        // conflict.
        tr.reset();
        tr.set("mine", "2");
        let kept = tr.get("kept");
        drop(tr.get("dropped"));
        tr.commit().wait().unwrap();
        assert!(kept.is_ready());
        let request = endpoint.lock().commits.last().unwrap().clone();
        let reads: Vec<Vec<u8>> =
            request.conflicts.reads.iter().map(|range| range.begin.to_vec()).collect();
        assert!(
            reads.contains(&b"kept".to_vec()) && !reads.contains(&b"dropped".to_vec()),
            "{reads:?}"
        );
    }
}
