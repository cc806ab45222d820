//! What is left of transactions that have ended: nothing, at whatever answers them in this process.
//! A server behind a socket isn't told, and answers nobody.

mod support;

use plinth_client::{Transaction, TransactionOption};
use std::time::Duration;
use support::{eventually, stand_in};

fn code<T>(result: plinth_client::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.code())
}

/// Nobody keeps anything of transactions that have ended while nobody gave versions, as when a
/// cluster has no leader.
#[test]
fn a_transaction_that_ends_takes_back_what_it_asked_for() {
    let ends: [fn(&Transaction); 3] = [Transaction::cancel, Transaction::reset, |tr| {
        tr.set_option(TransactionOption::Timeout(Some(Duration::from_millis(1)))).unwrap()
    }];
    for end in ends {
        let (store, db) = stand_in();
        store.lock().faults.withheld = Some(Vec::new());
        let tr = db.create_transaction();
        let value = tr.get("k");
        let version = tr.get_read_version();
        let is_kept = || {
            let store = store.lock();
            let withheld = store.faults.withheld.as_ref().unwrap();
            assert_eq!(withheld.len(), 1);
            !withheld[0].is_cancelled()
        };
        assert!(is_kept());
        end(&tr);
        eventually("taking it back", || !is_kept());
        assert!(
            [code(value.wait()), code(version.wait())]
                .iter()
                .all(|code| [1025, 1031].contains(code))
        );
    }
}
