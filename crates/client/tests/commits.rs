//! Commit: what is sent, limits, unknown results, versionstamps, retries, and the differences of
//! API versions.
//!
//! The stand-in keeps every request it got, so that a test can look at mutations and conflict
//! ranges as they were sent; faults make it refuse a commit, or lose the answer to one that took
//! effect.

mod support;

use plinth_client::{Error, KeySelector, MutationType, TransactionOption};
use plinth_types::{CommitRequest, system};
use std::sync::Arc;
use std::time::Duration;
use support::{StandIn, stand_in};

fn last(endpoint: &Arc<StandIn>) -> CommitRequest {
    endpoint.lock().commits.last().expect("something was committed").clone()
}

fn mutations(request: &CommitRequest) -> Vec<(MutationType, Vec<u8>, Vec<u8>)> {
    let owned = |m: plinth_types::MutationRef<'_>| (m.kind, m.param1.to_vec(), m.param2.to_vec());
    request.mutations.iter().map(owned).collect()
}

#[test]
fn a_transaction_that_wrote_nothing_commits_without_the_database() {
    let (endpoint, db) = stand_in();
    let tr = db.create_transaction();
    let stamp = tr.versionstamp();
    tr.get("k").wait().unwrap();
    tr.commit().wait().unwrap();
    assert_eq!((tr.committed_version(), endpoint.lock().commits.len()), (None, 0));
    assert_eq!(stamp.wait().unwrap_err(), Error::no_commit_version());
    let tr = db.create_transaction();
    tr.add_write_conflict_key("k");
    tr.commit().wait().unwrap();
    assert!(tr.committed_version() > Some(0) && last(&endpoint).mutations.is_empty());
}

#[test]
fn writes_conflict_unless_told_otherwise() {
    let (endpoint, db) = stand_in();
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::CausalWriteRisky).unwrap();
    tr.set_option(TransactionOption::NextWriteNoWriteConflictRange).unwrap();
    tr.set("a", "1");
    tr.set("b", "1");
    tr.set_option(TransactionOption::NextWriteNoWriteConflictRange).unwrap();
    tr.clear("c");
    tr.set_versionstamped_key([0; 14], "");
    tr.clear_range("d", "e");
    tr.add_write_conflict_range("x", "y").unwrap();
    tr.commit().wait().unwrap();
    let begins: Vec<Vec<u8>> =
        last(&endpoint).conflicts.writes.iter().map(|r| r.begin.to_vec()).collect();
    assert_eq!(begins, [b"b", b"d", b"x"]);
    assert!(last(&endpoint).conflicts.reads.is_empty());
    // The flag is used up by a write that fails, too.
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::NextWriteNoWriteConflictRange).unwrap();
    tr.set(b"\xff/no", "");
    assert!(tr.commit().wait().is_err());
}

#[test]
fn a_blind_write_conflicts_with_itself_where_answers_get_lost() {
    let (endpoint, db) = stand_in();
    db.transact_blocking(|tr| {
        tr.set("k", "");
        Ok(())
    })
    .unwrap();
    let request = last(&endpoint);
    let read = request.conflicts.reads.iter().next().unwrap();
    assert!(read.begin.starts_with(system::SELF_CONFLICT_PREFIX) && read.begin.len() == 6 + 16 - 1);
    assert!(request.conflicts.writes.iter().any(|write| write.begin == read.begin));
    // A transaction that wrote what it read needs no such key.
    db.transact_blocking(|tr| {
        tr.get("k").wait()?;
        tr.set("k", "");
        Ok(())
    })
    .unwrap();
    assert_eq!(last(&endpoint).conflicts.reads.len(), 1);
}

#[test]
fn a_lost_answer_is_found_out_about() {
    for (automatic, takes_effect) in [(false, true), (false, false), (true, true), (true, false)] {
        let (endpoint, db) = stand_in();
        let tr = db.create_transaction();
        if automatic {
            tr.set_option(TransactionOption::AutomaticIdempotency).unwrap();
        }
        let stamp = tr.versionstamp();
        tr.set("k", "v");
        if takes_effect {
            endpoint.lock().faults.lose_answers = 1;
        } else {
            endpoint.lock().faults.commit.push(Error::commit_unknown_result());
        }
        let result = tr.commit().wait();
        match (automatic, takes_effect) {
            (false, _) => assert_eq!(result.unwrap_err(), Error::commit_unknown_result()),
            (true, true) => {
                result.unwrap();
                assert_eq!(Some(stamp.wait().unwrap().version()), tr.committed_version());
                assert!(tr.committed_version() > Some(0));
            }
            (true, false) => assert_eq!(result.unwrap_err(), Error::transaction_too_old()),
        }
        // Before it told, another transaction wrote the key that the lost one conflicts with itself
        // on.
        let commits = &endpoint.lock().commits;
        assert_eq!(commits.len(), 2);
        let fence = commits[1].conflicts.writes.iter().next().unwrap();
        assert!(commits[0].conflicts.reads.iter().any(|read| read.overlaps(&fence)));
        assert!(commits[0].conflicts.writes.iter().any(|write| write.overlaps(&fence)));
    }
    let (endpoint, db) = stand_in();
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::CausalWriteRisky).unwrap();
    tr.set("k", "v");
    endpoint.lock().faults.lose_answers = 1;
    assert_eq!(tr.commit().wait().unwrap_err(), Error::commit_unknown_result());
    assert_eq!(endpoint.lock().commits.len(), 1);
}

/// A commit's answer was lost, and finding out failed too, on a full disk. The error asked for a
/// retry, and the retry loop had the transaction take effect twice, in spite of its idempotency id.
#[test]
fn what_has_an_id_and_cannot_be_found_out_about_is_not_retried() {
    for automatic in [true, false] {
        let (endpoint, db) = stand_in();
        let tr = db.create_transaction();
        if automatic {
            tr.set_option(TransactionOption::AutomaticIdempotency).unwrap();
        }
        tr.set("k", "v");
        endpoint.lock().faults.commit.extend([Error::commit_unknown_result(), Error::io_error()]);
        let error = tr.commit().wait().unwrap_err();
        assert_eq!(error.is_retryable(), !automatic, "{error}");
        assert_eq!(error == Error::commit_unknown_result_fatal(), automatic, "{error}");
    }
}

#[test]
fn sizes_are_limited_and_merging_counts() {
    let (endpoint, db) = stand_in();
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::SizeLimit(400)).unwrap();
    for n in 0..100u8 {
        tr.set("k", [n; 100]);
    }
    tr.commit().wait().unwrap();
    assert_eq!(mutations(&last(&endpoint)), [(MutationType::Set, b"k".to_vec(), vec![99; 100])]);
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::SizeLimit(400)).unwrap();
    for n in 0..4u8 {
        tr.set([n], [n; 100]);
    }
    assert_eq!(tr.commit().wait().unwrap_err(), Error::transaction_too_large());
    let tr = db.create_transaction();
    tr.set("k", vec![0; 100_001]);
    assert_eq!(tr.commit().wait().unwrap_err(), Error::value_too_large());
    let tr = db.create_transaction();
    for n in 0..110u8 {
        tr.set([n], vec![n; 100_000]);
    }
    assert!(tr.approximate_size().wait().unwrap() > 11_000_000);
    assert_eq!(tr.commit().wait().unwrap_err(), Error::transaction_too_large());
}

#[test]
fn approximate_size_counts_as_documented() {
    let (_endpoint, db) = stand_in();
    let tr = db.create_transaction();
    let mut expected = 0;
    let mut check = |more: i64| {
        expected += more;
        assert_eq!(tr.approximate_size().wait().unwrap(), expected);
    };
    check(0);
    tr.set("key", "value");
    check(3 + 5 + 44 + 24 + 7);
    tr.set_option(TransactionOption::NextWriteNoWriteConflictRange).unwrap();
    tr.set("key", "value");
    check(3 + 5 + 44);
    tr.clear("key");
    check(7 + 24 + 24 + 7);
    tr.clear_range("aa", "bbb");
    check(5 + 44 + 24 + 5);
    tr.add("key", [1]);
    check(3 + 1 + 44 + 24 + 7);
    tr.get("read").wait().unwrap();
    check(9 + 24);
    tr.add_read_conflict_range("x", "yy").unwrap();
    check(3 + 24);
    tr.add_write_conflict_range("x", "yy").unwrap();
    check(3 + 24);
}

#[test]
fn appends_and_stamped_keys_take_effect_as_they_are_seen() {
    let (endpoint, db) = stand_in();
    let tr = db.create_transaction();
    tr.append_if_fits("k", "a");
    tr.append_if_fits("k", "b");
    tr.commit().wait().unwrap();
    assert_eq!(
        mutations(&last(&endpoint)),
        [(MutationType::AppendIfFits, b"k".to_vec(), b"ab".to_vec())]
    );
    // Clearing the place of a stamped key takes the key back.
    let tr = db.create_transaction();
    tr.set_versionstamped_key([&b"s"[..], &[0; 10], &1u32.to_le_bytes()].concat(), "gone");
    tr.clear_range("s", "t");
    tr.set("s1", "stays");
    tr.commit().wait().unwrap();
    let stored: Vec<Vec<u8>> = endpoint.rows().into_iter().map(|(key, _)| key).collect();
    assert_eq!(stored, [b"k".to_vec(), b"s1".to_vec()]);
}

#[test]
fn versionstamps_are_filled_in_and_known_afterwards() {
    let (endpoint, db) = stand_in();
    let tr = db.create_transaction();
    tr.set_versionstamped_key([&b"k"[..], &[0; 10], b"/", &1u32.to_le_bytes()].concat(), "v");
    tr.set_versionstamped_value("v", [&[0; 10][..], b"rest", &0u32.to_le_bytes()].concat());
    assert_eq!(tr.get("v").wait().unwrap_err(), Error::accessed_unreadable());
    assert_eq!(tr.get_key(KeySelector::first_greater_than("a")).wait().unwrap_err().code(), 1036);
    tr.reset();
    tr.set_versionstamped_key([&b"k"[..], &[0; 10], b"/", &1u32.to_le_bytes()].concat(), "v");
    let stamp = tr.versionstamp();
    tr.commit().wait().unwrap();
    let stamp = stamp.wait().unwrap();
    assert_eq!(endpoint.rows(), [([b"k", &stamp.as_bytes()[..], b"/"].concat(), b"v".to_vec())]);
    for operand in [&b"abc"[..], &[0; 13], &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]] {
        for kind in [MutationType::SetVersionstampedKey, MutationType::SetVersionstampedValue] {
            let tr = db.create_transaction();
            let (key, value) = if kind == MutationType::SetVersionstampedKey {
                (operand, &b""[..])
            } else {
                (&b"k"[..], operand)
            };
            tr.atomic_op(key, value, kind);
            assert_eq!(
                tr.commit().wait().unwrap_err(),
                Error::client_invalid_operation(),
                "{kind:?} {operand:?}"
            );
        }
    }
}

#[test]
fn old_api_versions_have_other_operands_and_operations() {
    let (endpoint, db) = stand_in();
    let tr = db.clone().with_api_version(510).create_transaction();
    tr.set_versionstamped_key([&b"k"[..], &[0; 10], &1u16.to_le_bytes()].concat(), "v");
    tr.set_versionstamped_value("v", [&[0; 10][..], b"rest"].concat());
    tr.min("m", [5]);
    let stamp = tr.versionstamp();
    tr.commit().wait().unwrap();
    let stamp = stamp.wait().unwrap();
    let expected = [
        ([b"k", &stamp.as_bytes()[..]].concat(), b"v".to_vec()),
        (b"m".to_vec(), vec![5]),
        (b"v".to_vec(), [&stamp.as_bytes()[..], b"rest"].concat()),
    ];
    assert_eq!(endpoint.rows(), expected);
    let tr = db.clone().with_api_version(500).create_transaction();
    tr.min("m2", [5]);
    tr.bit_and("m3", [5, 5]);
    assert_eq!(tr.get("m2").wait().unwrap().unwrap(), &[0][..]);
    tr.commit().wait().unwrap();
    let kinds: Vec<MutationType> =
        last(&endpoint).mutations.iter().map(|mutation| mutation.kind).collect();
    assert_eq!(kinds, [MutationType::Min, MutationType::BitAnd]);
    let tr = db.clone().with_api_version(290).create_transaction();
    tr.set("own", "1");
    assert_eq!(tr.snapshot().get("own").wait().unwrap(), None);
    assert_eq!(tr.get("own").wait().unwrap().unwrap(), "1");
}

#[test]
fn only_known_operations_and_the_metadata_versions_own_are_taken() {
    let (endpoint, db) = stand_in();
    for code in [0, 1, 3, 5, 10, 11, 21, 255, -1] {
        let tr = db.create_transaction();
        tr.atomic_op_raw("k", "v", code);
        assert_eq!(
            tr.approximate_size().wait().unwrap_err(),
            Error::invalid_mutation_type(),
            "{code}"
        );
    }
    let key = system::METADATA_VERSION;
    let tr = db.create_transaction();
    assert_eq!(tr.get(key).wait().unwrap(), None);
    tr.set_versionstamped_value(key, [0; 14]);
    assert_eq!(tr.get(key).wait().unwrap_err(), Error::accessed_unreadable());
    tr.reset();
    tr.set_versionstamped_value(key, [0; 14]);
    let stamp = tr.versionstamp();
    tr.commit().wait().unwrap();
    let before = endpoint.lock().requests;
    let tr = db.create_transaction();
    assert_eq!(tr.get(key).wait().unwrap().unwrap()[..], stamp.wait().unwrap().as_bytes()[..]);
    assert_eq!(endpoint.lock().requests, before, "it came with the read version");
    type Write = fn(&plinth_client::Transaction);
    let refused: [(Write, i32); 3] = [
        (|tr| tr.set(system::METADATA_VERSION, "x"), 2000),
        (|tr| tr.set_versionstamped_value(system::METADATA_VERSION, [1; 14]), 2000),
        (|tr| tr.clear(system::METADATA_VERSION), 2004),
    ];
    for (write, code) in refused {
        let tr = db.create_transaction();
        write(&tr);
        assert_eq!(tr.approximate_size().wait().unwrap_err().code(), code);
    }
}

#[test]
fn keys_must_be_legal_and_long_ones_are_cut() {
    let (endpoint, db) = stand_in();
    let tr = db.create_transaction();
    let long = vec![b'k'; 20_000];
    assert_eq!(tr.get(&long).wait().unwrap(), None);
    tr.clear(&long);
    tr.clear_range("a", &long);
    tr.commit().wait().unwrap();
    let sent = mutations(&last(&endpoint));
    assert_eq!((sent.len(), sent[0].2.len()), (1, 10_009));
    let code = |f: &dyn Fn(&plinth_client::Transaction)| {
        let tr = db.create_transaction();
        f(&tr);
        tr.approximate_size().wait().err().map_or(0, |error| error.code())
    };
    assert_eq!(code(&|tr| tr.set(vec![b'k'; 10_001], "")), 2102);
    assert_eq!(code(&|tr| tr.set(vec![b'k'; 10_000], "")), 0);
    assert_eq!(code(&|tr| tr.set(b"\xff", "")), 2004);
    assert_eq!(code(&|tr| tr.clear_range("", b"\xff")), 0);
    assert_eq!(code(&|tr| tr.clear_range("", b"\xff\0")), 2004);
    assert_eq!(code(&|tr| tr.clear_range("b", "a")), 2005);
    assert_eq!(code(&|tr| tr.clear_range("b", "b")), 0);
    assert_eq!(
        db.create_transaction().add_read_conflict_range("b", "a").unwrap_err(),
        Error::inverted_range()
    );
    assert_eq!(code(&|tr| tr.add_read_conflict_key(b"\xff/x")), 2004);
    assert_eq!(code(&|tr| tr.add_read_conflict_key(system::METADATA_VERSION)), 0);
    assert_eq!(code(&|tr| tr.add_write_conflict_key(b"\xff/x")), 2004);
    let tr = db.create_transaction();
    let get = |key: &[u8]| tr.get(key).wait().err().map_or(0, |error| error.code());
    assert_eq!((get(b"\xff"), get(b"\xff\x02/x"), get(b"")), (2004, 2004, 0));
    assert_eq!(
        tr.get_key(KeySelector::first_greater_or_equal(&b"\xff"[..])).wait().unwrap(),
        &b"\xff"[..]
    );
    assert_eq!(
        tr.get_key(KeySelector::last_less_than(&b"\xff\0"[..])).wait().unwrap_err().code(),
        2004
    );
    tr.set_option(TransactionOption::ReadSystemKeys).unwrap();
    assert_eq!(tr.get(b"\xff\x02/x").wait().unwrap(), None);
    tr.set(b"\xff\x02/x", "");
    assert_eq!(tr.commit().wait().unwrap_err(), Error::key_outside_legal_range());
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::AccessSystemKeys).unwrap();
    tr.set(b"\xff", "");
    tr.set([&b"\xff"[..], &[b'k'; 29_000]].concat(), "");
    tr.commit().wait().unwrap();
}

#[test]
fn on_error_knows_what_to_retry() {
    let (_endpoint, db) = stand_in();
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::MaxRetryDelay(Duration::ZERO)).unwrap();
    for code in [1020, 1021, 1037, 1038, 1051, 1079, 1213, 1223, 1235, 1242, 1007, 1009, 1039] {
        tr.on_error_code(code).wait().unwrap();
    }
    for code in [1000, 1025, 1031, 1036, 2017, 2101, 2004, 4000, 1, 5000] {
        let tr = db.create_transaction();
        assert_eq!(tr.on_error_code(code).wait().unwrap_err().code(), code);
        assert_eq!(tr.get("k").wait().unwrap_err(), Error::transaction_cancelled());
    }
    assert_eq!(
        db.create_transaction().on_error_code(0).wait().unwrap_err(),
        Error::client_invalid_operation()
    );
    assert_eq!(
        db.create_transaction().on_error_code(1100).wait().unwrap_err(),
        Error::transaction_cancelled()
    );
    let tr = db.create_transaction();
    let waiting = tr.on_error_code(1042);
    tr.cancel();
    assert!(waiting.wait().err().is_none_or(|error| error == Error::transaction_cancelled()));
}

#[test]
fn read_versions_are_fetched_once_or_set_once() {
    let (endpoint, db) = stand_in();
    endpoint.load(&[(b"k", b"1")]);
    let tr = db.create_transaction();
    let version = tr.get_read_version().wait().unwrap();
    endpoint.load(&[(b"k", b"2")]);
    assert_eq!(tr.get_read_version().wait().unwrap(), version);
    assert_eq!(tr.get("k").wait().unwrap().unwrap(), "1");
    let tr = db.create_transaction();
    tr.set_read_version(version);
    assert_eq!(tr.get("k").wait().unwrap().unwrap(), "1");
    tr.set_read_version(version);
    assert_eq!(tr.get("k").wait().unwrap_err(), Error::read_version_already_set());
    for bad in [0, -1] {
        let tr = db.create_transaction();
        tr.set_read_version(bad);
        assert_eq!(tr.get("k").wait().unwrap_err(), Error::version_invalid());
    }
    let tr = db.create_transaction();
    endpoint.lock().faults.read_version.push(Error::process_behind());
    assert_eq!(tr.get("k").wait().unwrap_err().code(), 1037);
    assert_eq!(tr.get_read_version().wait().unwrap_err().code(), 1037);
    tr.on_error_code(1037).wait().unwrap();
    assert_eq!(tr.get("k").wait().unwrap().unwrap(), "2");
    assert_eq!(tr.total_cost().wait().unwrap(), 4096);
    tr.set("k", [0; 5000]);
    assert_eq!(tr.total_cost().wait().unwrap(), 4096 + 4 * 8192);
    assert_eq!(tr.tag_throttled_duration().wait().unwrap(), 0.0);
}
