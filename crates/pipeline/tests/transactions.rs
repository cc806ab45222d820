//! What a client may count on at the edge of the node: visibility, conflicts, versions, stamps,
//! watches, locks.
//!
//! The requests are made by hand, as a client would send them, so that each says just what its test
//! is about; what a transaction makes of its reads and writes before that is tested with the
//! client.

mod common;

use common::*;
use plinth_client::ReadVersionRequest;
use plinth_env::block_on;
use plinth_types::system::{
    DATABASE_LOCKED, IDEMPOTENCY_PREFIX, METADATA_VERSION, MIN_REQUIRED_COMMIT_VERSION,
};
use plinth_types::{
    Bytes, CommitReply, Error, KeySelector, KeySpace, MutationType as M, RangeRead, Versionstamp,
};
use std::sync::Arc;

#[test]
fn an_acknowledged_commit_is_visible_to_every_later_read_version() {
    block_on(async {
        let node = in_memory().await;
        let before = version(&node).await;
        let committed = set(&node, b"k", b"v").await.unwrap();
        assert!(committed > before && version(&node).await >= committed);
        assert_eq!(get(&node, b"k").await.as_deref(), Some(&b"v"[..]));
        assert_eq!(
            get_at(&node, before, b"k").await.unwrap(),
            None,
            "older snapshots stay as they were"
        );
    });
}

#[test]
fn a_read_that_was_overwritten_conflicts_and_a_blind_write_does_not() {
    block_on(async {
        let node = in_memory().await;
        let read_at = version(&node).await;
        set(&node, b"x", b"1").await.unwrap();
        let write = || request(&[(M::Set, b"y", b"2")]);
        let mut reader = having_read(write(), read_at, &[b"a", b"x"]);
        reader.report_conflicting_keys = true;
        let reply = node.commit(reader).await.unwrap();
        assert_eq!(reply, CommitReply::Conflict { conflicting_reads: vec![1] });
        assert_eq!(get(&node, b"y").await, None);
        commit(&node, write()).await.unwrap();
        commit(&node, having_read(write(), version(&node).await, &[b"x"])).await.unwrap();
    });
}

#[test]
fn a_transaction_whose_reads_left_the_window_is_too_old() {
    block_on(async {
        let node = in_memory().await;
        set(&node, b"k", b"v").await.unwrap();
        let old = having_read(request(&[(M::Set, b"a", b"")]), -1_000_000_000, &[b"k"]);
        assert_eq!(node.commit(old).await.unwrap_err(), Error::transaction_too_old());
        assert_eq!(get_at(&node, -5, b"k").await.unwrap_err(), Error::transaction_too_old());
    });
}

#[test]
fn versionstamps_are_the_commits_version_and_position() {
    block_on(async {
        let node = in_memory().await;
        let key = [b"log/".as_slice(), &[0xff; 10], &4u32.to_le_bytes()].concat();
        let value = [[0; 10].as_slice(), b"tail", &0u32.to_le_bytes()].concat();
        let both = request(&[
            (M::SetVersionstampedKey, &key, b"event"),
            (M::SetVersionstampedValue, b"at", &value),
        ]);
        let (version, position) = commit(&node, both).await.unwrap();
        let stamp = Versionstamp::new(version, position);
        let stamped = [b"log/".as_slice(), stamp.as_bytes()].concat();
        assert_eq!(get(&node, &stamped).await.as_deref(), Some(&b"event"[..]));
        let expected = [stamp.as_bytes().as_slice(), b"tail"].concat();
        assert_eq!(get(&node, b"at").await.as_deref(), Some(&expected[..]));
        let reader = having_read(request(&[(M::Set, b"z", b"")]), version - 1, &[&stamped]);
        assert!(matches!(node.commit(reader).await.unwrap(), CommitReply::Conflict { .. }));
    });
}

/// A database that takes another one's place has to go on beyond its versions, or newer stamps
/// would sort before older ones.
#[test]
fn versions_can_be_moved_ahead_and_go_on_from_there() {
    block_on(async {
        let node = in_memory().await;
        let least = version(&node).await + 3_600_000_000;
        let before = set(&node, b"k", b"1").await.unwrap();
        let mut moved = request(&[(M::Set, MIN_REQUIRED_COMMIT_VERSION, &least.to_le_bytes())]);
        moved.lock_aware = true;
        commit(&node, moved).await.unwrap();
        let after = set(&node, b"k", b"2").await.unwrap();
        assert!(before < least && after >= least, "{before} {least} {after}");
        assert!(version(&node).await >= after);
        assert_eq!(get(&node, b"k").await.as_deref(), Some(&b"2"[..]));
        assert!(set(&node, b"k", b"3").await.unwrap() > after);
        // What nobody could commit beyond is refused, as ever, and undone by nobody: but it harms
        // nothing.
        let last = version(&node).await;
        let never = request(&[(M::Set, MIN_REQUIRED_COMMIT_VERSION, &i64::MAX.to_le_bytes())]);
        commit(&node, never).await.unwrap();
        assert_eq!(set(&node, b"k", b"4").await.unwrap_err(), Error::transaction_too_old());
        assert!(version(&node).await >= last && version(&node).await < last + 3_600_000_000);
    });
}

#[test]
fn a_stamp_that_does_not_fit_is_refused_and_the_rest_of_the_batch_is_not() {
    block_on(async {
        let node = in_memory().await;
        let bad = node.commit(request(&[(M::SetVersionstampedKey, b"short\x08\0\0\0", b"")]));
        let good = node.commit(request(&[(M::Set, b"k", b"v")]));
        assert_eq!(bad.await.unwrap_err(), Error::client_invalid_operation());
        good.await.unwrap();
        assert_eq!(get(&node, b"k").await.as_deref(), Some(&b"v"[..]));
    });
}

#[test]
fn reads_of_the_future_wait_and_then_give_up() {
    block_on(async {
        let node = in_memory().await;
        let next = version(&node).await + 150_000;
        let waiting = get_at(&node, next, b"k");
        assert_eq!(waiting.await.unwrap(), None, "the clock reaches it in a moment");
        let far = version(&node).await + 1_000_000_000;
        assert_eq!(get_at(&node, far, b"k").await.unwrap_err(), Error::future_version());
    });
}

#[test]
fn a_watch_fires_when_the_value_becomes_another() {
    block_on(async {
        let node = in_memory().await;
        let at = set(&node, b"k", b"a").await.unwrap();
        let value = Some(Bytes::from_static(b"a"));
        let mut watch = node.watch(Bytes::from_static(b"k"), value.clone(), at);
        set(&node, b"k", b"a").await.unwrap();
        assert!(watch.try_take().is_none(), "the same value is no change");
        let changed = set(&node, b"k", b"b").await.unwrap();
        assert_eq!(watch.await.unwrap(), changed);
        let late = node.watch(Bytes::from_static(b"k"), value, at);
        assert!(late.await.unwrap() >= changed, "it has changed already");
    });
}

#[test]
fn a_locked_database_lets_only_the_lock_aware_in() {
    block_on(async {
        let node = in_memory().await;
        let mut locking = request(&[(M::Set, DATABASE_LOCKED, b"0123456789abcdefghijklmnop")]);
        locking.lock_aware = true;
        commit(&node, locking).await.unwrap();
        let refused = node.read_version(ReadVersionRequest::default()).await.unwrap_err();
        assert_eq!(refused, Error::database_locked());
        assert_eq!(set(&node, b"k", b"v").await.unwrap_err(), Error::database_locked());
        let mut unlocking = request(&[(M::ClearRange, DATABASE_LOCKED, b"\xff/dbLocked\0")]);
        unlocking.lock_aware = true;
        commit(&node, unlocking).await.unwrap();
        set(&node, b"k", b"v").await.unwrap();
    });
}

#[test]
fn the_metadata_version_travels_with_read_versions() {
    block_on(async {
        let node = in_memory().await;
        let ask = || node.read_version(ReadVersionRequest::default());
        assert_eq!(ask().await.unwrap().metadata_version, None);
        let (version, position) =
            commit(&node, request(&[(M::SetVersionstampedValue, METADATA_VERSION, &[0; 14])]))
                .await
                .unwrap();
        let told = ask().await.unwrap().metadata_version.unwrap();
        assert_eq!(told[..], Versionstamp::new(version, position).as_bytes()[..]);
    });
}

#[test]
fn an_idempotency_id_leaves_its_record() {
    block_on(async {
        let node = in_memory().await;
        let mut identified = request(&[(M::Set, b"k", b"v")]);
        identified.idempotency_id = Some(Bytes::from_static(b"0123456789abcdef"));
        let (version, position) = commit(&node, identified).await.unwrap();
        let key = [IDEMPOTENCY_PREFIX, &version.to_be_bytes(), &[(position >> 8) as u8]].concat();
        let record = get(&node, &key).await.unwrap();
        assert_eq!(
            record[16..],
            [b"\x10".as_slice(), b"0123456789abcdef", &[position as u8]].concat()
        );
    });
}

#[test]
fn many_commits_at_once_are_each_whole_and_in_order() {
    block_on(async {
        let node = in_memory().await;
        let one = 1u64.to_le_bytes();
        let replies: Vec<_> =
            (0..5000).map(|_| node.commit(request(&[(M::Add, b"sum", &one)]))).collect();
        let mut stamps = Vec::new();
        for reply in replies {
            let CommitReply::Committed { version, batch_index } = reply.await.unwrap() else {
                panic!("conflict")
            };
            stamps.push((version, batch_index));
        }
        assert!(
            stamps.windows(2).all(|pair| pair[0] < pair[1]),
            "versionstamps follow the order of submission"
        );
        assert_eq!(get(&node, b"sum").await.as_deref(), Some(&5000u64.to_le_bytes()[..]));
    });
}

#[test]
fn every_database_begins_with_the_rows_that_tools_look_for() {
    block_on(async {
        let node = in_memory().await;
        let at = version(&node).await;
        let read = RangeRead {
            begin: KeySelector::first_greater_or_equal(&b"\xff/keyServers/"[..]),
            end: KeySelector::first_greater_or_equal(&b"\xff/keyServers0"[..]),
            limit: usize::MAX,
            target_bytes: usize::MAX,
            reverse: false,
        };
        assert_eq!(node.get_range(at, KeySpace::System, &read).await.unwrap().rows.len(), 1);
        let status: serde_json::Value =
            serde_json::from_str(&node.status_json().await.unwrap()).unwrap();
        assert_eq!(status["client"]["database_status"]["healthy"], true);
        assert_eq!(status["cluster"]["configuration"]["storage_engine"], "memory");
    });
}

#[test]
fn a_closed_node_takes_no_commits_and_still_reads() {
    block_on(async {
        let near = in_process().await;
        let node = provided(Arc::new(near.clone()));
        set(&node, b"k", b"v").await.unwrap();
        near.node().close().await.unwrap();
        assert_eq!(set(&node, b"k", b"w").await.unwrap_err(), Error::shutdown_in_progress());
        assert_eq!(get(&node, b"k").await.as_deref(), Some(&b"v"[..]));
    });
}
