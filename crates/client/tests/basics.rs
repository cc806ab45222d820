//! The straightforward paths: what a first program does.

mod support;

use plinth_client::{Error, KeySelector, MutationType, RangeOptions, Result, StreamingMode};
use plinth_env::block_on;
use support::{StandIn, stand_in};

#[test]
fn writes_are_seen_by_their_transaction_and_after_commit_by_others() {
    let (_, db) = stand_in();
    let tr = db.create_transaction();
    tr.set("a", "1");
    tr.add("n", 5u64.to_le_bytes());
    assert_eq!(tr.get("a").wait().unwrap().unwrap(), "1");
    assert_eq!(db.create_transaction().get("a").wait().unwrap(), None);
    tr.commit().wait().unwrap();
    assert!(tr.committed_version() > Some(0));
    let tr = db.create_transaction();
    assert_eq!(tr.get("a").wait().unwrap().unwrap(), "1");
    assert_eq!(tr.get("n").wait().unwrap().unwrap(), &5u64.to_le_bytes()[..]);
}

#[test]
fn reads_issued_together_travel_together() {
    let (endpoint, db) = stand_in();
    endpoint.load(&[(b"k1", b"v1"), (b"k2", b"v2"), (b"k3", b"v3")]);
    let tr = db.create_transaction();
    let gets = ["k1", "k2", "k3", "k4"].map(|key| tr.get(key));
    assert_eq!(endpoint.lock().requests, 0);
    let values = gets.map(|get| get.wait().unwrap().map(|value| value.to_vec()));
    assert_eq!(values, [Some(b"v1".to_vec()), Some(b"v2".to_vec()), Some(b"v3".to_vec()), None]);
    assert_eq!(endpoint.lock().requests, 1);
}

#[test]
fn a_body_may_change_what_it_borrows() {
    let (endpoint, db) = StandIn::new(true, 1);
    endpoint.load(&[(b"a", b"1"), (b"b", b"22")]);
    endpoint.lock().faults.commit = vec![Error::not_committed()];
    let (keys, mut runs, mut longest) = (["a", "b"].map(String::from), 0, 0);
    let done = block_on(db.transact_mut(async |tr| {
        (runs, longest) = (runs + 1, 0);
        for key in &keys {
            longest = longest.max(tr.get(key).await?.map_or(0, |value| value.len()));
        }
        tr.set("longest", longest.to_le_bytes());
        Ok(())
    }));
    assert_eq!((done, runs, longest), (Ok(()), 2, 2));
}

#[test]
fn the_retry_loop_runs_until_the_commit_succeeds() {
    for delayed in [false, true] {
        let (endpoint, db) = StandIn::new(delayed, 1);
        endpoint.lock().faults.commit = vec![Error::not_committed(), Error::transaction_too_old()];
        let mut runs = 0;
        let total = block_on(db.transact(|tr| {
            runs += 1;
            async move {
                tr.atomic_op("n", 1u32.to_le_bytes(), MutationType::Add);
                Ok(tr.get("n").await?.unwrap()[0])
            }
        }));
        assert_eq!((total.unwrap(), runs), (1, 3));
        let failed: Result<(), Box<dyn std::error::Error + Send + Sync>> =
            db.try_transact_blocking(|_| Err("no".into()));
        assert_eq!(failed.unwrap_err().to_string(), "no");
        let found: Result<(), Box<dyn std::error::Error + Send + Sync>> =
            db.try_transact_blocking(|tr| {
                tr.get("\u{ff}").wait()?;
                tr.get(b"\xff/x").wait()?;
                Ok(())
            });
        assert!(found.unwrap_err().to_string().contains("2004"));
    }
}

#[test]
fn ranges_give_rows_in_both_directions_and_as_a_stream() {
    for delayed in [false, true] {
        let (endpoint, db) = StandIn::new(delayed, 2);
        let keys: Vec<String> = (0..50).map(|n| format!("k{n:02}")).collect();
        endpoint.load(&keys.iter().map(|key| (key.as_bytes(), &b"v"[..])).collect::<Vec<_>>());
        let tr = db.create_transaction();
        let all = RangeOptions::prefix("k").mode(StreamingMode::WantAll);
        let batch = tr.get_range(all.clone()).wait().unwrap();
        assert_eq!((batch.rows.len(), batch.more), (50, false));
        let rows = block_on(tr.range("k10".."k20").collect()).unwrap();
        assert_eq!(rows.len(), 10);
        tr.set("k105", "own");
        tr.clear_range("k12", "k15");
        let rows =
            tr.range(RangeOptions::from("k10".."k20").reverse(true)).collect_blocking().unwrap();
        let found: Vec<_> =
            rows.iter().map(|row| String::from_utf8(row.key.to_vec()).unwrap()).collect();
        assert_eq!(found, ["k19", "k18", "k17", "k16", "k15", "k11", "k105", "k10"]);
        let key = tr.get_key(KeySelector::first_greater_than("k11")).wait().unwrap();
        assert_eq!(key, "k15");
        let key = tr.get_key(KeySelector::last_less_than("k15").shifted(-1)).wait().unwrap();
        assert_eq!(key, "k105");
    }
}
