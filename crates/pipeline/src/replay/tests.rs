//! Replay in batches against replay mutation by mutation, on random logs of all kinds of mutations.
//!
//! A model takes the mutations one by one. The lists in key order must leave the same in the model,
//! and in both engines; a mistake that is planted must show.

use super::Bounds;
use super::batch::Batch;
use super::handover::handover;
use crate::changes::StreamRows;
use crate::config::NodeConfig;
use crate::metadata::{Metadata, may_concern};
use crate::replica::{Beginning, Entry, Replica};
use crate::store::{Recovering, Store};
use plinth_env::simulated::Random;
use plinth_env::{Env, block_on};
use plinth_storage::{MemoryReplay, MemoryStorage, Reader, SsdSettings, SsdStorage};
use plinth_types::{
    Bytes, KeySelector, KeySpace, LogPosition, MutationList, MutationRef, MutationType, RangeRead,
    Version, atomic, key_after,
};
use std::collections::BTreeMap;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a mutation does, in the plainest way.
fn apply(rows: &mut Rows, mutation: MutationRef<'_>) {
    let MutationRef { kind, param1, param2 } = mutation;
    if kind == MutationType::ClearRange {
        rows.retain(|key, _| !(param1 <= &key[..] && &key[..] < param2));
        return;
    }
    let existing = rows.get(param1).cloned();
    match atomic::apply(kind, existing.as_deref(), param2) {
        Some(value) => drop(rows.insert(param1.to_vec(), value.into_owned())),
        None => drop(rows.remove(param1)),
    }
}

const ATOMIC: [MutationType; 12] = [
    MutationType::Add,
    MutationType::BitAnd,
    MutationType::BitOr,
    MutationType::BitXor,
    MutationType::AppendIfFits,
    MutationType::Max,
    MutationType::Min,
    MutationType::ByteMin,
    MutationType::ByteMax,
    MutationType::MinV2,
    MutationType::BitAndV2,
    MutationType::CompareAndClear,
];

/// Keys that share beginnings, end early, hold zeros, and come again.
fn key(random: &mut Random) -> Vec<u8> {
    let begin: &[u8] =
        [&b""[..], b"row", b"row:00000000", b"row:00000000\0", b"index/name/"][random.index(5)];
    let letters = [0, 1, b'a', b'b', 0xfe];
    let rest = (0..random.index(5)).map(|_| letters[random.index(letters.len())]);
    begin.iter().copied().chain(rest).collect()
}

fn value(random: &mut Random) -> Vec<u8> {
    (0..random.index(12)).map(|_| random.index(3) as u8).collect()
}

/// A log entry of up to a few dozen mutations, with more clears in some logs than in others.
fn entry(random: &mut Random, clears: usize) -> MutationList {
    let mut list = MutationList::new();
    for _ in 0..random.index(40) {
        let key = key(random);
        match random.index(20) {
            at if at < clears => {
                let other = self::key(random);
                let (begin, end) =
                    if random.index(10) == 0 || key < other { (key, other) } else { (other, key) };
                list.push(MutationType::ClearRange, &begin, &end);
            }
            at if at < clears + 2 => list.push(MutationType::ClearRange, &key, &key_after(&key)),
            at if at < clears + 8 => {
                list.push(ATOMIC[random.index(ATOMIC.len())], &key, &value(random))
            }
            _ => list.push(MutationType::Set, &key, &value(random)),
        }
    }
    list
}

/// A random log, cut into batches: each as the list in key order, with the rows after it.
fn log(seed: u64) -> Vec<(MutationList, Rows)> {
    let mut random = Random::new(seed);
    let clears = random.index(4);
    let bounds = Bounds { mutations: 1 + random.index(400), bytes: 1 << random.index(16) };
    let mut rows = Rows::new();
    (0..1 + random.index(6))
        .map(|_| {
            let mut batch = Batch::default();
            while batch.is_below(bounds) {
                let entry = entry(&mut random, clears);
                entry.iter().for_each(|mutation| apply(&mut rows, mutation));
                batch.add(Bytes::copy_from_slice(entry.as_bytes()));
            }
            (batch.into_key_order(), rows.clone())
        })
        .collect()
}

/// Whether all batches of a log leave what its mutations leave.
fn is_right(seed: u64) -> bool {
    let mut rows = Rows::new();
    log(seed).into_iter().all(|(list, expected)| {
        list.iter().for_each(|mutation| apply(&mut rows, mutation));
        rows == expected
    })
}

#[test]
fn a_batch_in_key_order_leaves_what_its_mutations_leave_one_by_one() {
    for seed in 0..2_000 {
        assert!(is_right(seed), "seed {seed}");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_replay_that_forgets_later_writes_is_noticed() {
    plinth_types::marks::plant(Some("replay lets the first write of a key win"));
    let noticed = (0..100).filter(|seed| !is_right(*seed)).count();
    plinth_types::marks::plant(None);
    assert!(noticed > 50, "{noticed} of 100 logs");
}

#[test]
fn a_list_has_its_clears_first_and_then_its_keys_in_order() {
    for seed in 0..500 {
        for (list, _) in log(seed) {
            let is_range = |mutation: &MutationRef<'_>| {
                mutation.kind == MutationType::ClearRange
                    && *mutation.param2 != key_after(mutation.param1)[..]
            };
            let mutations: Vec<_> = list.iter().collect();
            let (ranges, points) = mutations.split_at(mutations.partition_point(is_range));
            assert!(ranges.is_sorted_by(|a, b| a.param2 < b.param1), "seed {seed}: {ranges:?}");
            assert!(points.is_sorted_by_key(|point| point.param1), "seed {seed}");
            assert!(!points.iter().any(is_range), "seed {seed}");
        }
    }
}

/// Sorting has other ways for many keys than for few.
#[test]
fn many_keys_are_in_order_too() {
    for (seed, count, letters) in [(1, 5_000, 256), (2, 20_000, 2), (3, 3_000, 1)] {
        let mut random = Random::new(seed);
        let mut list = MutationList::new();
        let mut rows = Rows::new();
        for number in 0..count {
            let key: Vec<u8> = (0..random.index(24)).map(|_| random.index(letters) as u8).collect();
            list.push(MutationType::Set, &key, format!("{number}").as_bytes());
        }
        list.iter().for_each(|mutation| apply(&mut rows, mutation));
        let mut batch = Batch::default();
        batch.add(Bytes::copy_from_slice(list.as_bytes()));
        let ordered = batch.into_key_order();
        let found =
            ordered.iter().map(|mutation| (mutation.param1.to_vec(), mutation.param2.to_vec()));
        assert!(found.eq(rows), "seed {seed}");
    }
}

fn rows_of(store: &dyn Reader) -> Rows {
    let read = RangeRead {
        begin: KeySelector::first_greater_or_equal(Bytes::new()),
        end: KeySelector::first_greater_or_equal(Bytes::from_static(b"\xff\xff")),
        limit: usize::MAX,
        target_bytes: usize::MAX,
        reverse: false,
    };
    let found = block_on(store.get_range(store.newest(), KeySpace::System, &read)).unwrap();
    found.rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Applies a log's batches to an engine and compares what it has in the end.
async fn engine_is_right(env: &Env, mut engine: Recovering, seed: u64) {
    let log = log(seed);
    for (at, (list, _)) in log.iter().enumerate() {
        engine.apply(env, LogPosition::without_log(10 * (at + 1) as Version), list).await.unwrap();
    }
    let Store { reader: store, writer } = engine.finish();
    let expected = log.last().map(|(_, rows)| rows.clone()).unwrap_or_default();
    assert_eq!(rows_of(&*store), expected, "seed {seed}");
    assert_eq!(store.count(), expected.len() as u64, "seed {seed}");
    assert_eq!(
        (store.oldest(), store.newest()),
        (10 * log.len() as Version, 10 * log.len() as Version)
    );
    writer.check_invariants();
    store.close().await;
}

#[test]
fn the_engine_memory_has_what_the_log_has() {
    let env = Env::real();
    for seed in 0..300 {
        let replay = MemoryReplay::new(MemoryStorage::new(LogPosition::default())).unwrap();
        block_on(engine_is_right(&env, Recovering::Memory(Box::new(replay), None), seed));
    }
}

#[test]
fn the_engine_ssd_has_what_the_log_has() {
    let env = Env::real();
    let identity = plinth_format::Identity { cluster_id: [1; 16], node_id: [2; 16] };
    block_on(async {
        for seed in 0..20 {
            let dir = env.files().temporary_dir("plinth-replay").await.unwrap();
            SsdStorage::create(&env, dir.path(), identity).await.unwrap();
            let settings = SsdSettings::with_memory(16 << 20);
            let storage = SsdStorage::open(&env, dir.path(), identity, settings).await.unwrap();
            engine_is_right(&env, Recovering::Ssd(storage), seed).await;
        }
    });
}

/// The log's entries as the node takes them while it runs: one after the other, through
/// [`Replica::apply`].
async fn applied_one_by_one(
    env: &Env,
    store: Store,
    entries: &[MutationList],
) -> (Rows, u64, Version) {
    let config = NodeConfig { window: 0, ..NodeConfig::default() };
    let beginning =
        Beginning { newest: 0, metadata: Metadata::default(), streams: StreamRows::default() };
    let replica = Replica::new(env, config, None, (store, None), beginning);
    for (at, list) in entries.iter().enumerate() {
        let touches_metadata = list.iter().any(may_concern);
        let entry = Entry {
            at: LogPosition::without_log(10 * (at + 1) as Version),
            lists: vec![list],
            touches_metadata,
        };
        replica.apply(&entry).await.unwrap();
        replica.check_invariants();
    }
    let store = &replica.storage;
    let found = (rows_of(&**store), store.count(), store.newest());
    store.close().await;
    found
}

/// The same as a restart takes them: merged into one load in key order.
async fn loaded_at_once(
    env: &Env,
    mut engine: Recovering,
    entries: &[MutationList],
) -> (Rows, u64, Version) {
    let mut batch = Batch::default();
    entries.iter().for_each(|list| batch.add(Bytes::copy_from_slice(list.as_bytes())));
    let at = LogPosition::without_log(10 * entries.len() as Version);
    engine.apply(env, at, &batch.into_key_order()).await.unwrap();
    let Store { reader: store, writer } = engine.finish();
    let found = (rows_of(&*store), store.count(), store.newest());
    drop(writer);
    store.close().await;
    found
}

#[test]
fn a_restart_leaves_what_applying_entry_by_entry_leaves() {
    let env = Env::real();
    let identity = plinth_format::Identity { cluster_id: [1; 16], node_id: [2; 16] };
    let ssd = async |dir: &plinth_env::TemporaryDir| {
        SsdStorage::create(&env, dir.path(), identity).await.unwrap();
        let settings = SsdSettings::with_memory(16 << 20);
        SsdStorage::open(&env, dir.path(), identity, settings).await.unwrap()
    };
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let clears = random.index(4);
        let entries: Vec<_> =
            (0..1 + random.index(60)).map(|_| entry(&mut random, clears)).collect();
        block_on(async {
            let replay = MemoryReplay::new(MemoryStorage::new(LogPosition::default())).unwrap();
            let expected =
                loaded_at_once(&env, Recovering::Memory(Box::new(replay), None), &entries).await;
            let store = Store::new(MemoryStorage::new(LogPosition::default()));
            assert_eq!(applied_one_by_one(&env, store, &entries).await, expected, "seed {seed}");
            if seed % 20 != 0 {
                return;
            }
            let dirs = [
                env.files().temporary_dir("plinth-one-by-one").await.unwrap(),
                env.files().temporary_dir("plinth-at-once").await.unwrap(),
            ];
            let engine = Recovering::Ssd(ssd(&dirs[1]).await);
            assert_eq!(loaded_at_once(&env, engine, &entries).await, expected, "seed {seed}");
            let store = Store::new(ssd(&dirs[0]).await);
            assert_eq!(applied_one_by_one(&env, store, &entries).await, expected, "seed {seed}");
        });
    }
}

#[test]
fn what_is_handed_over_arrives_in_order_and_both_ends_notice_the_other_s_end() {
    let env = Env::real();
    block_on(async {
        let (sender, mut receiver) = handover(2);
        let task = env.spawn("sender", async move {
            for number in 0..1_000 {
                assert!(sender.send(number).await);
            }
        });
        for number in 0..1_000 {
            assert_eq!(receiver.next().await, Some(number));
        }
        assert_eq!(receiver.next().await, None);
        task.await.unwrap();
        let (sender, receiver) = handover(1);
        assert!(sender.send(1).await);
        drop(receiver);
        assert!(!sender.send(2).await);
    });
}
