//! Special keys: modules and their rules, what is shown, and what commit makes of writes.
//!
//! Each API version has its set of them: few before 630, writes since 700.
//! Settings written here must be found in the system keys that the database itself looks at.

mod support;

use plinth_client::{
    Bytes, Database, Error, KeySelector, RangeOptions, Transaction, TransactionOption,
};
use support::{StandIn, stand_in};

fn get(tr: &Transaction, key: &str) -> Result<Option<Bytes>, i32> {
    tr.get([b"\xff\xff/", key.as_bytes()].concat()).wait().map_err(|error| error.code())
}

fn rows(tr: &Transaction, prefix: &str) -> Vec<(String, String)> {
    let prefix = [b"\xff\xff/", prefix.as_bytes()].concat();
    let result = tr.get_range(RangeOptions::prefix(&prefix)).wait().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    result.rows.iter().map(|(key, value)| (text(&key[prefix.len()..]), text(value))).collect()
}

fn write(db: &Database, f: impl Fn(&Transaction)) -> Result<(), i32> {
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
    f(&tr);
    tr.commit().wait().map_err(|error| error.code())
}

fn special(key: &str) -> Vec<u8> {
    [b"\xff\xff/", key.as_bytes()].concat()
}

#[test]
fn reads_stay_in_one_module() {
    let (_endpoint, db) = stand_in();
    let tr = db.create_transaction();
    let range = |begin: &str, end: &str| {
        let range = RangeOptions::from(special(begin)..special(end));
        tr.get_range(range).wait().map(|result| result.rows.len()).map_err(|error| error.code())
    };
    assert_eq!(range("transaction/a", "transaction/z"), Ok(0));
    assert_eq!(range("management/", "transaction/"), Err(2112));
    assert_eq!(range("nothing/", "nothing/x"), Err(2113));
    assert_eq!(range("m", "transaction/z"), Err(2112));
    assert_eq!(get(&tr, "nothing"), Err(2113));
    let all = RangeOptions::from(&b"\xff\xff"[..]..&b"\xff\xff\xff"[..]);
    assert_eq!(
        tr.get_range(all.clone()).wait().unwrap_err(),
        Error::special_keys_cross_module_read()
    );
    tr.set_option(TransactionOption::SpecialKeySpaceRelaxed).unwrap();
    assert_eq!(get(&tr, "nothing"), Ok(None));
    let found =
        tr.get_range(all.limit(1000).mode(plinth_client::StreamingMode::Exact)).wait().unwrap();
    assert!(found.rows.len() > 8 && !found.more);
    assert!(found.rows.iter().is_sorted_by_key(|(key, _)| key.to_vec()));
}

#[test]
fn selectors_and_limits_work_in_a_module() {
    let (_endpoint, db) = stand_in();
    let tr = db.create_transaction();
    for key in ["a", "c", "e"] {
        tr.add_write_conflict_key(key);
    }
    let prefix = special("transaction/write_conflict_range/");
    let at = |key: &[u8]| [&prefix[..], key].concat();
    let keys = |range: RangeOptions| -> Vec<Vec<u8>> {
        let result = tr.get_range(range).wait().unwrap();
        result.rows.iter().map(|(key, _)| key[prefix.len()..].to_vec()).collect()
    };
    let begin = KeySelector::first_greater_or_equal(at(b"c"));
    let end = KeySelector::first_greater_or_equal(at(b"zz"));
    assert_eq!(
        keys(RangeOptions::new(begin.clone(), end.clone())),
        [&b"c"[..], b"c\0", b"e", b"e\0"]
    );
    assert_eq!(
        keys(RangeOptions::new(begin.clone(), end.clone()).limit(2).reverse(true)),
        [&b"e\0"[..], b"e"]
    );
    let from_before = RangeOptions::new(begin.clone().shifted(-1), begin.clone().shifted(1));
    assert_eq!(keys(from_before), [&b"a\0"[..], b"c"]);
    let far = RangeOptions::new(begin.clone().shifted(-20), begin.shifted(20));
    assert_eq!(keys(far).len(), 6);
    // Nothing of this adds a conflict.
    assert_eq!(rows(&tr, "transaction/read_conflict_range/"), []);
}

#[test]
fn writes_need_the_option_and_a_module_that_takes_them() {
    let (_endpoint, db) = stand_in();
    let deferred = |f: &dyn Fn(&Transaction)| {
        let tr = db.create_transaction();
        tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
        f(&tr);
        tr.approximate_size().wait().err().map_or(0, |error| error.code())
    };
    let tr = db.create_transaction();
    tr.set(special("management/db_locked"), "x");
    assert_eq!(tr.approximate_size().wait().unwrap_err().code(), 2114);
    assert_eq!(deferred(&|tr| tr.set(special("status/json"), "x")), 2115);
    assert_eq!(deferred(&|tr| tr.clear(special("nothing"))), 2115);
    let clear =
        |tr: &Transaction, begin: &str, end: &str| tr.clear_range(special(begin), special(end));
    assert_eq!(deferred(&|tr| clear(tr, "management/excluded/", "management/maintenance/z")), 2116);
    assert_eq!(deferred(&|tr| clear(tr, "management/excluded/", "management/excluded0")), 0);
    assert_eq!(deferred(&|tr| clear(tr, "status/", "status/z")), 2115);
    assert_eq!(deferred(&|tr| tr.set(special("tracing/token"), "maybe")), 2117);
    assert_eq!(deferred(&|tr| tr.clear(special("tracing/token"))), 2117);
    // Before API version 700 these are keys like any other.
    let tr = db.clone().with_api_version(630).create_transaction();
    tr.set(special("management/db_locked"), "x");
    assert_eq!(tr.approximate_size().wait().unwrap_err().code(), 2004);
}

#[test]
fn the_transaction_and_the_connection_show_themselves() {
    if !support::IN_PROCESS {
        return; // shows what the stand-in calls itself
    }
    for delayed in [false, true] {
        let (_endpoint, db) = StandIn::new(delayed, 5);
        let tr = db.create_transaction();
        assert_eq!(get(&tr, "cluster_file_path").unwrap().unwrap(), "/tmp/stand-in.cluster");
        assert_eq!(get(&tr, "connection_string").unwrap().unwrap(), "test:test@127.0.0.1:4500");
        assert_eq!(get(&tr, "clusterId"), get(&tr, "cluster_id"));
        assert!(get(&tr, "status/json").unwrap().unwrap().starts_with(b"{\"client\""));
        assert_eq!(rows(&tr, "worker_interfaces/"), []);
        assert_eq!(rows(&tr, "management/excluded/"), []);
        assert_eq!(rows(&tr, "metrics/health/").len(), 1);
        assert_eq!(rows(&tr, "configuration/coordinators/").len(), 2);
        assert_eq!(rows(&tr, "tracing/").len(), 2);
        tr.set("a", "1");
        tr.set_versionstamped_key([&b"v"[..], &[0; 10], &1u32.to_le_bytes()].concat(), "");
        drop(tr.get("b"));
        tr.get("c").wait().unwrap();
        let expected = [("b", "1"), ("b\0", "0"), ("c", "1"), ("c\0", "0")];
        let reads = rows(&tr, "transaction/read_conflict_range/");
        assert!(
            reads
                .iter()
                .map(|(key, value)| (&key[..], &value[..]))
                .eq(expected[2..].iter().copied())
        );
        let writes = rows(&tr, "transaction/write_conflict_range/");
        assert_eq!(writes.len(), 4);
        tr.commit().wait().unwrap();
        // Afterwards the versionstamped key is known.
        let writes = tr
            .get_range(RangeOptions::prefix(special("transaction/write_conflict_range/v")))
            .wait()
            .unwrap();
        let version =
            &writes.rows.row(0).unwrap().0[special("transaction/write_conflict_range/v").len()..];
        assert_eq!(&version[..8], &tr.committed_version().unwrap().to_be_bytes());
    }
}

#[test]
fn old_api_versions_have_few_special_keys() {
    let (_endpoint, db) = stand_in();
    let tr = db.clone().with_api_version(620).create_transaction();
    assert!(get(&tr, "status/json").unwrap().is_some());
    assert!(get(&tr, "connection_string").unwrap().is_some());
    assert_eq!(get(&tr, "transaction/read_conflict_range/"), Err(2004));
    let range = RangeOptions::from(special("worker_interfaces")..special("worker_interfaces0"));
    assert!(tr.get_range(range).wait().unwrap().rows.is_empty());
    let tr = db.clone().with_api_version(710).create_transaction();
    assert_eq!(
        get(&tr, "management/profiling/client_txn_sample_rate").unwrap().unwrap(),
        "default"
    );
    let tr = db.create_transaction();
    assert_eq!(get(&tr, "management/profiling/client_txn_sample_rate"), Ok(None));
}

#[test]
fn conflicting_keys_are_reported_when_asked_for() {
    let (_endpoint, db) = stand_in();
    for report in [true, false] {
        let tr = db.create_transaction();
        if report {
            tr.set_option(TransactionOption::ReportConflictingKeys).unwrap();
        }
        for key in ["r1", "r2", "r3"] {
            tr.get(key).wait().unwrap();
        }
        tr.set("own", "");
        db.transact_blocking(|other| {
            other.set("r2", "changed");
            other.clear_range("r3", "r4");
            Ok(())
        })
        .unwrap();
        assert_eq!(tr.commit().wait().unwrap_err().code(), 1020);
        let found = rows(&tr, "transaction/conflicting_keys/");
        let expected = [("r2", "1"), ("r2\0", "0"), ("r3", "1"), ("r3\0", "0")];
        let expected = if report { &expected[..] } else { &[] };
        assert!(
            found.iter().map(|(key, value)| (&key[..], &value[..])).eq(expected.iter().copied()),
            "{found:?}"
        );
        tr.on_error_code(1020).wait().unwrap();
        assert_eq!(rows(&tr, "transaction/conflicting_keys/").len(), expected.len());
    }
}

#[test]
fn the_database_is_locked_and_unlocked() {
    let (_endpoint, db) = stand_in();
    let id = "0123456789abcdef0123456789abcdef";
    let locked = special("management/db_locked");
    assert_eq!(write(&db, |tr| tr.set(&locked, id)), Ok(()));
    let tr = db.create_transaction();
    assert_eq!(tr.get("k").wait().unwrap_err(), Error::database_locked());
    assert_eq!(get(&db.create_transaction(), "management/db_locked").unwrap().unwrap(), id);
    let tr = db.create_transaction();
    tr.set("k", "v");
    assert_eq!(tr.commit().wait().unwrap_err(), Error::database_locked());
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::ReadLockAware).unwrap();
    assert_eq!(tr.get("k").wait().unwrap(), None);
    tr.set("k", "v");
    assert_eq!(tr.commit().wait().unwrap_err(), Error::transaction_read_only());
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::LockAware).unwrap();
    tr.set_option(TransactionOption::ReadLockAware).unwrap();
    tr.set("k", "v");
    tr.commit().wait().unwrap();
    assert_eq!(write(&db, |tr| tr.set(&locked, id)), Ok(()), "the same lock again");
    assert_eq!(write(&db, |tr| tr.set(&locked, "ffff".repeat(8))), Err(1038), "another one");
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
    tr.set(&locked, "no id");
    assert_eq!(tr.commit().wait().unwrap_err(), Error::special_keys_api_failure());
    let message = get(&tr, "error_message").unwrap().unwrap();
    assert!(
        message.starts_with(br#"{"command":"lock","message":"Invalid UID hex string: no id""#),
        "{message:?}"
    );
    assert_eq!(write(&db, |tr| tr.clear(&locked)), Ok(()));
    assert!(db.create_transaction().get("k").wait().unwrap().is_some());
}

#[test]
fn settings_become_system_keys() {
    let (endpoint, db) = stand_in();
    assert_eq!(write(&db, |tr| tr.set(special("management/maintenance/zone"), "100")), Ok(()));
    assert_eq!(
        rows(&db.create_transaction(), "management/maintenance/"),
        [("zone".into(), "99".into())]
    );
    assert_eq!(write(&db, |tr| tr.set(special("management/maintenance/zone"), "-1")), Err(2117));
    assert_eq!(write(&db, |tr| tr.clear(special("management/maintenance/zone"))), Ok(()));
    assert_eq!(rows(&db.create_transaction(), "management/maintenance/"), []);
    assert_eq!(write(&db, |tr| tr.set(special("management/data_distribution/mode"), "0")), Ok(()));
    assert_eq!(
        write(&db, |tr| tr.set(special("management/data_distribution/mode"), "7")),
        Err(2117)
    );
    assert_eq!(
        rows(&db.create_transaction(), "management/data_distribution/"),
        [("mode".into(), "0".into())]
    );
    assert_eq!(
        write(&db, |tr| tr.set(special("management/consistency_check_suspended"), "")),
        Ok(())
    );
    assert_eq!(
        get(&db.create_transaction(), "management/consistency_check_suspended"),
        Ok(Some(Bytes::new()))
    );
    assert_eq!(
        write(&db, |tr| tr.set(special("management/version_epoch"), 77i64.to_le_bytes())),
        Ok(())
    );
    assert_eq!(get(&db.create_transaction(), "management/version_epoch").unwrap().unwrap(), "77");
    assert_eq!(
        write(&db, |tr| tr.set(special("management/min_required_commit_version"), "9999999999")),
        Err(2117)
    );
    assert_eq!(write(&db, |tr| tr.clear(special("management/version_epoch"))), Ok(()));
    assert_eq!(
        write(&db, |tr| tr.set(special("management/min_required_commit_version"), "9999999999")),
        Ok(())
    );
    let stored = endpoint.lock().value(i64::MAX, b"\xff/minRequiredCommitVersion").unwrap();
    assert_eq!(stored[..], 10_000_000_000i64.to_le_bytes());
    assert_eq!(write(&db, |tr| tr.set(special("global_config/config/a"), "\u{2}text\0")), Ok(()));
    assert_eq!(
        rows(&db.create_transaction(), "global_config/"),
        [("config/a".into(), "text".into())]
    );
    assert_eq!(write(&db, |tr| tr.set(special("management/excluded/10.0.0.1"), "")), Err(2117));
    // Own writes show before commit.
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
    tr.set(special("management/data_distribution/rebalance_ignored"), "");
    tr.clear(special("management/data_distribution/mode"));
    assert_eq!(
        rows(&tr, "management/data_distribution/"),
        [("rebalance_ignored".into(), "".into())]
    );
    tr.set(special("tracing/transaction_id"), "ff".repeat(16));
    assert_eq!(get(&tr, "tracing/transaction_id").unwrap().unwrap(), "ff".repeat(16));
    tr.set(special("tracing/token"), "true");
    assert_ne!(get(&tr, "tracing/token").unwrap().unwrap(), "0");
    tr.set("k", "v");
    tr.set(special("tracing/transaction_id"), "00".repeat(16));
    assert_eq!(tr.commit().wait().unwrap_err(), Error::special_keys_api_failure());
}
