//! Which values each option takes, and what the wrong ones give.
//!
//! Options are set by code and bytes, as the C library does: the error of a value that an option
//! does not take is told by the next call.

mod support;

use plinth_client::{DatabaseOption, Error, OptionParameter, TransactionOption};
use std::time::Duration;
use support::{StandIn, stand_in};

fn int(n: i64) -> Vec<u8> {
    n.to_le_bytes().to_vec()
}

/// The error that an option of a fresh transaction leaves for the next call; 0 for none.
fn set(code: i32, value: Option<&[u8]>) -> i32 {
    let (_endpoint, db) = stand_in();
    let tr = db.create_transaction();
    if let Err(error) = tr.set_option_raw(code, value) {
        return error.code();
    }
    tr.approximate_size().wait().err().map_or(0, |error| error.code())
}

/// Options that are accepted whatever comes with them.
const UNCHECKED: &[i32] = &[21, 110, 120, 130, 304, 401, 507, 508, 509, 510, 511, 2000];

#[test]
fn options_without_value_take_none() {
    for (code, name, kind) in TransactionOption::ALL {
        if *kind != OptionParameter::None {
            continue;
        }
        let alone = match code {
            404 => 2000,
            1101 => 2007,
            _ => 0,
        };
        assert_eq!(set(*code, None), alone, "{name}");
        assert_eq!(set(*code, Some(b"")), alone, "{name} with an empty value");
        let with_value = if UNCHECKED.contains(code) { 0 } else { 2006 };
        assert_eq!(set(*code, Some(b"x")), with_value, "{name} with a value");
    }
}

#[test]
fn options_with_value_check_it() {
    let long = vec![b'i'; 300];
    let cases: &[(i32, Option<Vec<u8>>, i32)] = &[
        (402, Some(b"name".to_vec()), 0),
        (402, None, 2006),
        (403, Some(vec![b'n'; 100]), 0),
        (403, Some(vec![b'n'; 101]), 2006),
        (403, Some(vec![]), 2006),
        (403, None, 2006),
        (405, Some(int(-1)), 0),
        (405, Some(int(0)), 2006),
        (405, Some(int(1024)), 0),
        (405, Some(vec![1, 2]), 2006),
        (500, Some(int(60_000)), 0),
        (500, Some(int(-1)), 2006),
        (500, Some(int(1 << 31)), 2006),
        (500, None, 2006),
        (501, Some(int(-1)), 0),
        (501, Some(int(-2)), 2006),
        (502, Some(int(0)), 0),
        (502, Some(int(-1)), 2006),
        (503, Some(int(31)), 2006),
        (503, Some(int(32)), 0),
        (503, Some(int(10_000_000)), 0),
        (503, Some(int(10_000_001)), 2006),
        (504, Some(vec![1; 16]), 0),
        (504, Some(vec![1; 15]), 2007),
        (504, Some(vec![1; 256]), 2007),
        (800, Some(b"tag".to_vec()), 0),
        (800, Some(vec![b't'; 255]), 0),
        (800, Some(vec![b't'; 256]), 2110),
        (801, None, 2006),
        (900, Some(vec![0; 33]), 0),
        (900, Some(vec![0; 32]), 2006),
        (900, None, 2006),
        (2000, Some(long), 0),
        (12_345, None, 2007),
    ];
    for (code, value, expected) in cases {
        assert_eq!(set(*code, value.as_deref()), *expected, "{code} with {value:?}");
    }
}

#[test]
fn options_that_depend_on_what_came_before() {
    let (_endpoint, db) = stand_in();
    let failed = |tr: &plinth_client::Transaction| {
        tr.approximate_size().wait().err().map(|error| error.code())
    };
    let tr = db.create_transaction();
    tr.set_option_raw(403, Some(b"one")).unwrap();
    tr.set_option_raw(404, None).unwrap();
    tr.set_option_raw(403, Some(b"one")).unwrap();
    assert_eq!(failed(&tr), None);
    tr.set_option_raw(403, Some(b"two")).unwrap();
    assert_eq!(failed(&tr), Some(2000));
    let tr = db.create_transaction();
    for n in 0..5u8 {
        tr.set_option_raw(800, Some(&[b't', n])).unwrap();
    }
    assert_eq!(failed(&tr), None);
    tr.set_option_raw(801, Some(b"sixth")).unwrap();
    assert_eq!(failed(&tr), Some(2109));
    // Read-your-writes is disabled before the first read and write, or not at all.
    type Use = fn(&plinth_client::Transaction);
    let uses: [(Use, Option<i32>); 6] = [
        (|tr| drop(tr.get("k").wait()), Some(2000)),
        (|tr| tr.set("k", "v"), Some(2000)),
        (|tr| tr.clear("k"), Some(2000)),
        (|tr| tr.add_write_conflict_key("k"), Some(2000)),
        (|tr| tr.add_read_conflict_key("k"), None),
        (|tr| drop(tr.get_read_version().wait()), None),
    ];
    for (at, (use_it, expected)) in uses.into_iter().enumerate() {
        let tr = db.create_transaction();
        use_it(&tr);
        tr.set_option_raw(51, None).unwrap();
        assert_eq!(failed(&tr), expected, "use {at}");
    }
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::ReadYourWritesDisable).unwrap();
    tr.set("k", "v");
    assert_eq!(tr.get("k").wait().unwrap(), None);
    tr.set_option(TransactionOption::ReadYourWritesDisable).unwrap();
    assert_eq!(tr.watch("k").wait().unwrap_err().code(), 1034);
    // Old API versions have a cache of read versions to choose.
    let tr = db.clone().with_api_version(710).create_transaction();
    tr.set_option_raw(1101, None).unwrap();
}

#[test]
fn what_rust_says_is_what_c_says() {
    let (_endpoint, db) = stand_in();
    let tr = db.create_transaction();
    let longest = Duration::from_millis(i32::MAX as u64);
    tr.set_option(TransactionOption::Timeout(Some(longest))).unwrap();
    let too_long = TransactionOption::Timeout(Some(longest + Duration::from_nanos(1)));
    assert_eq!(tr.set_option(too_long).unwrap_err(), Error::invalid_option_value());
    assert!(tr.set_option(TransactionOption::MaxRetryDelay(Duration::MAX)).is_err());
    tr.set_option(TransactionOption::RetryLimit(Some(i32::MAX as usize))).unwrap();
    assert!(tr.set_option(TransactionOption::RetryLimit(Some(usize::MAX))).is_err());
}

#[test]
fn persistent_options_survive_a_retry_and_defaults_a_reset() {
    let (endpoint, db) = stand_in();
    db.set_option(DatabaseOption::TransactionRetryLimit(Some(1))).unwrap();
    db.set_option(DatabaseOption::TransactionSizeLimit(64)).unwrap();
    let tr = db.create_transaction();
    assert!(tr.on_error_code(1020).wait().is_ok());
    assert_eq!(tr.on_error_code(1020).wait().unwrap_err().code(), 1020);
    tr.reset();
    tr.set_option(TransactionOption::RetryLimit(None)).unwrap();
    tr.set_option(TransactionOption::MaxRetryDelay(Duration::ZERO)).unwrap();
    for _ in 0..3 {
        assert!(tr.on_error_code(1020).wait().is_ok());
    }
    tr.set("k", [0; 100]);
    assert_eq!(tr.commit().wait().unwrap_err().code(), 2101);
    tr.reset();
    tr.set_option(TransactionOption::SizeLimit(1000)).unwrap();
    tr.set("k", [0; 100]);
    tr.commit().wait().unwrap();
    // The default is as of the transaction's reset.
    db.set_option(DatabaseOption::TransactionSizeLimit(10_000)).unwrap();
    tr.reset();
    tr.set("k", [0; 1000]);
    tr.commit().wait().unwrap();
    assert_eq!(endpoint.lock().commits.len(), 2);
    // Before API version 610 options don't survive a retry.
    let (_endpoint, db) = stand_in();
    let old = db.with_api_version(600);
    assert_eq!(
        old.set_option(DatabaseOption::TransactionTimeout(Some(Duration::from_millis(5))))
            .unwrap_err(),
        Error::invalid_option()
    );
    let tr = old.create_transaction();
    tr.set_option(TransactionOption::RetryLimit(Some(1))).unwrap();
    for _ in 0..3 {
        assert!(tr.on_error_code(1020).wait().is_ok());
    }
}

#[test]
fn database_options_check_their_values() {
    let (_endpoint, db) = StandIn::new(false, 0);
    let cases: &[(i32, Option<Vec<u8>>, i32)] = &[
        (10, Some(int(-1)), 2006),
        (20, Some(int(1_000_000)), 0),
        (20, Some(int(1_000_001)), 2006),
        (21, Some(b"aa".to_vec()), 0),
        (26, None, 0),
        (27, Some(b"x".to_vec()), 2006),
        (500, Some(int(5)), 0),
        (500, Some(vec![5]), 2006),
        (501, Some(int(-2)), 2006),
        (506, None, 0),
        (900, Some(int(101)), 2006),
        (77, None, 2007),
    ];
    for (code, value, expected) in cases {
        let found =
            db.set_option_raw(*code, value.as_deref()).err().map_or(0, |error| error.code());
        assert_eq!(found, *expected, "{code} with {value:?}");
    }
    assert_eq!(DatabaseOption::MaxWatches(1).code(), 20);
    assert!(
        TransactionOption::ALL
            .iter()
            .any(|(code, name, _)| (*code, *name) == (712, "report_conflicting_keys"))
    );
}
