//! Watches: what fires them, what fails them, and what they outlive.

mod support;

use plinth_client::{DatabaseOption, Error};
use support::{StandIn, eventually, stand_in};

#[test]
fn a_watch_fires_when_the_value_changes() {
    for delayed in [false, true] {
        let (endpoint, db) = StandIn::new(delayed, 1);
        endpoint.load(&[(b"k", b"1")]);
        let watch = db.transact_blocking(|tr| Ok(tr.watch("k"))).unwrap();
        db.transact_blocking(|tr| {
            tr.set("k", "1");
            tr.set("other", "2");
            Ok(())
        })
        .unwrap();
        assert!(!watch.is_ready(), "the same value is no change");
        db.transact_blocking(|tr| {
            tr.clear("k");
            Ok(())
        })
        .unwrap();
        watch.wait().unwrap();
    }
}

#[test]
fn a_watch_remembers_what_its_transaction_saw() {
    let (_endpoint, db) = stand_in();
    let tr = db.create_transaction();
    tr.set("k", "own");
    let watch = tr.watch("k");
    tr.set("k", "own");
    assert!(!watch.is_ready());
    tr.commit().wait().unwrap();
    assert!(!watch.is_ready());
    // It outlives reset and the handle.
    tr.reset();
    drop(tr);
    assert!(!watch.is_ready());
    db.transact_blocking(|tr| {
        tr.set("k", "another");
        Ok(())
    })
    .unwrap();
    watch.wait().unwrap();
}

#[test]
fn own_changes_fire_at_once() {
    if !support::IN_PROCESS {
        return; // asks what has happened already when a call returns
    }
    let (_endpoint, db) = stand_in();
    let fires = |change: &dyn Fn(&plinth_client::Transaction)| {
        let tr = db.create_transaction();
        let watch = tr.watch("k");
        change(&tr);
        watch.is_ready().then(|| watch.wait().unwrap()).is_some()
    };
    assert!(fires(&|tr| tr.set("k", "1")));
    assert!(fires(&|tr| tr.add("k", [0])));
    assert!(fires(&|tr| tr.set_versionstamped_value("k", [0; 14])));
    assert!(!fires(&|tr| tr.clear("k")), "it did not exist before");
    assert!(!fires(&|tr| tr.clear_range("a", "z")));
    assert!(!fires(&|tr| tr.set("l", "1")));
}

#[test]
fn a_watch_fails_with_its_transaction() {
    if !support::IN_PROCESS {
        return; // asks what has happened already when a call returns
    }
    let (endpoint, db) = stand_in();
    let tr = db.create_transaction();
    let watch = tr.watch("k");
    tr.reset();
    assert_eq!(watch.wait().unwrap_err(), Error::transaction_cancelled());
    let watch = tr.watch("k");
    tr.cancel();
    assert_eq!(watch.wait().unwrap_err(), Error::transaction_cancelled());
    let tr = db.create_transaction();
    let watch = tr.watch("k");
    tr.set("other", "");
    endpoint.lock().faults.commit.push(Error::not_committed());
    assert!(tr.commit().wait().is_err());
    assert_eq!(watch.wait().unwrap_err(), Error::not_committed());
    let tr = db.create_transaction();
    let watch = tr.watch("k");
    drop(tr);
    assert_eq!(watch.wait().unwrap_err(), Error::transaction_cancelled());
    let tr = db.create_transaction();
    endpoint.lock().faults.read.push(Error::transaction_too_old());
    assert_eq!(tr.watch("k").wait().unwrap_err(), Error::transaction_too_old());
    let tr = db.create_transaction();
    assert_eq!(tr.watch(vec![b'k'; 10_001]).wait().unwrap_err(), Error::key_too_large());
    assert_eq!(tr.watch(b"\xff/k").wait().unwrap_err(), Error::key_outside_legal_range());
}

#[test]
fn a_watch_is_a_read_that_conflicts() {
    let (_endpoint, db) = stand_in();
    let tr = db.create_transaction();
    let watch = tr.watch("k");
    tr.set("other", "");
    db.transact_blocking(|tr| {
        tr.set("k", "1");
        Ok(())
    })
    .unwrap();
    assert_eq!(tr.commit().wait().unwrap_err(), Error::not_committed());
    assert_eq!(watch.wait().unwrap_err(), Error::not_committed());
}

#[test]
fn watches_are_counted_until_they_are_gone() {
    if !support::IN_PROCESS {
        return; // asks what has happened already when a call returns
    }
    let (endpoint, db) = stand_in();
    db.set_option(DatabaseOption::MaxWatches(2)).unwrap();
    let watch = |key: &str| db.transact_blocking(|tr| Ok(tr.watch(key))).unwrap();
    let (first, second) = (watch("1"), watch("2"));
    assert_eq!(watch("3").wait().unwrap_err(), Error::too_many_watches());
    drop(first);
    let third = watch("3");
    assert!(!third.is_ready());
    assert_eq!(endpoint.lock().watch_count(), 2);
    drop((second, third));
    eventually("all watches gone", || endpoint.lock().watch_count() == 0);
    for _ in 0..5 {
        let tr = db.create_transaction();
        drop((tr.watch("a"), tr.watch("b")));
    }
    assert!(!watch("4").is_ready());
}
