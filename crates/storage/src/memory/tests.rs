//! The engine against the model, and what is particular to it: memory, snapshots, many threads.
//!
//! Under Miri the same tests run with small counts; they are the ones that tell whether what is
//! freed is still in use.

use super::*;
use crate::Writer;
use crate::conformance::model::{Model, Row};
use crate::conformance::{self, random};
use crate::failure::{Answer, StorageResult};
use plinth_env::simulated::Random;
use plinth_env::{Env, block_on};
use plinth_types::{LogPosition, MutationList, MutationType};
use std::sync::atomic::AtomicBool;

/// Divides counts where every step is slow.
const LESS: usize = if cfg!(miri) { 50 } else { 1 };

/// A store that checks its invariants whenever it was changed.
struct Checked(MemoryStorage);

impl Writer for Checked {
    fn reader(&self) -> Arc<dyn Reader> {
        Writer::reader(&self.0)
    }
    fn prepare(
        &mut self,
        mutations: &mut dyn Iterator<Item = MutationRef<'_>>,
    ) -> Answer<Prepared> {
        self.0.prepare(mutations)
    }
    fn apply(
        &mut self,
        prepared: Prepared,
        at: LogPosition,
        mutations: &mut dyn Iterator<Item = MutationRef<'_>>,
        changed: Changed<'_>,
    ) {
        self.0.apply(prepared, at, mutations, changed);
        self.0.check_invariants();
    }
    fn forget_before(&mut self, version: Version, budget: usize) -> bool {
        let more = self.0.forget_before(version, budget);
        self.0.check_invariants();
        more
    }
    fn pin(&mut self) -> Answer<Box<dyn PinnedVersion>> {
        self.0.pin()
    }
    fn flush(&mut self, pace: Pace) -> Waiting<StorageResult<Flushed>> {
        self.0.flush(pace)
    }
    fn check_invariants(&self) {
        self.0.check_invariants();
    }
}

fn make(version: Version) -> Box<dyn Writer> {
    Box::new(Checked(MemoryStorage::new(LogPosition::without_log(version))))
}

#[test]
#[cfg(not(miri))]
fn conformance_suite() {
    conformance::test_all(&make, 60, 100);
}

#[test]
fn random_programs() {
    for seed in 1000..if cfg!(miri) { 1002 } else { 1020 } {
        random::run(&make, seed, if cfg!(miri) { 10 } else { 200 });
    }
}

fn key(number: usize) -> Vec<u8> {
    format!("key{number:08}").into_bytes()
}

fn set_all(
    store: &mut MemoryStorage,
    version: Version,
    numbers: impl Iterator<Item = usize>,
    value: &[u8],
) {
    let mut list = MutationList::new();
    for number in numbers {
        list.push(MutationType::Set, &key(number), value);
    }
    store.apply(Prepared::default(), LogPosition::without_log(version), &mut list.iter(), None);
    store.publish(version);
}

fn clear(store: &mut MemoryStorage, version: Version, begin: usize, end: usize) {
    let mut list = MutationList::new();
    list.push(MutationType::ClearRange, &key(begin), &key(end));
    store.apply(Prepared::default(), LogPosition::without_log(version), &mut list.iter(), None);
    store.publish(version);
}

fn clean(store: &mut MemoryStorage) {
    while store.forget_before(store.newest(), 500) {}
    store.check_invariants();
}

#[test]
fn overwriting_for_ever_needs_no_more_memory_than_data_and_window() {
    let mut store = MemoryStorage::new(LogPosition::without_log(0));
    let (rows, rounds) = (20_000 / LESS, 40 / LESS.min(10));
    let mut peak = 0;
    for round in 0..rounds {
        // Lengths change, so that records wander between the classes of memory.
        let value = vec![b'v'; 20 + (round * 37) % 80];
        for part in 0..10 {
            let version = store.newest() + 10;
            set_all(&mut store, version, (0..rows).filter(|n| n % 10 == part), &value);
            store.forget_before(version - 20, rows);
        }
        store.check_invariants();
        let memory = store.memory();
        assert!(
            round < 10 || memory.total() <= peak * 5 / 4,
            "round {round}: {memory:?}, peak {peak}"
        );
        peak = peak.max(memory.total());
        assert!(memory.window < memory.data * 2 + 100_000, "{memory:?}");
    }
}

#[test]
#[cfg(not(miri))]
fn memory_at_rest_is_as_large_as_the_data() {
    let mut store = MemoryStorage::new(LogPosition::without_log(0));
    let rows = 50_000;
    let mut random = Random::new(3);
    set_all(&mut store, 1, 0..rows, &[b'v'; 60]);
    // A window that holds everything ten times over, at random places.
    for version in 2..80 {
        let value = vec![b'w'; 8 + random.index(93)];
        set_all(&mut store, version, (0..rows / 10).map(|_| random.index(rows)), &value);
    }
    let full = store.memory();
    for second in 1..20 {
        store.publish(100 + second * 1_000_000);
        clean(&mut store);
    }
    let rest = store.memory();
    assert_eq!(rest.window, 0, "{rest:?}");
    assert!(full.total() > 2 * rest.total(), "{full:?}, then {rest:?}");
    let wanted = rest.data * 13 / 10 + 48 * store.count() + (8 << 20);
    assert!(rest.total() <= wanted, "{rest:?}, at most {wanted}");
    // And when nine of ten rows go, so does their memory.
    for tenth in 0..10 {
        let version = store.newest() + 1;
        clear(&mut store, version, tenth * rows / 10 + rows / 100, (tenth + 1) * rows / 10);
    }
    for second in 1..20 {
        store.publish(200_000_000 + second * 1_000_000);
        clean(&mut store);
    }
    let less = store.memory();
    let wanted = less.data * 13 / 10 + 48 * store.count() + (8 << 20);
    assert!(less.window == 0 && less.total() <= wanted, "{less:?}, at most {wanted}");
}

/// A call frees one helping of what readers have left behind. It used to say that this was all, and
/// what a reader that slept for long had kept stayed in memory until somebody wrote again.
#[test]
fn what_a_long_reader_kept_is_given_back_when_it_leaves() {
    let mut store = MemoryStorage::new(LogPosition::without_log(0));
    let rows = 20_000 / LESS;
    let shared = MemoryReader::clone(&store);
    let reader = shared.core().epochs.pin();
    for round in 0..4 {
        let version = store.newest() + 10;
        set_all(&mut store, version, 0..rows, &[round; 20]);
        clean(&mut store);
    }
    assert!(store.memory().window > 0, "the reader may still look at old rows");
    drop(reader);
    clean(&mut store);
    assert_eq!(store.memory().window, 0);
}

/// The rows of a snapshot, in helpings.
fn rows_of(snapshot: &Snapshot) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut from = Some(Bytes::new());
    while let Some(begin) = from {
        let take = |key: &[u8], value: &[u8]| rows.push((key.to_vec(), value.to_vec()));
        from = snapshot.visit(&begin, 300, take).unwrap();
    }
    rows
}

#[test]
fn snapshots_keep_what_they_read_and_nothing_else() {
    for seed in 0..if cfg!(miri) { 1 } else { 30 } {
        let mut random = Random::new(seed);
        let mut store = MemoryStorage::new(LogPosition::without_log(0));
        let mut model = Model::new();
        let mut snapshots: Vec<Snapshot> = Vec::new();
        for version in 1..if cfg!(miri) { 25 } else { 200 } {
            let mut list = MutationList::new();
            for _ in 0..random.index(20) {
                match random.index(4) {
                    0 => {
                        let begin = random.index(60);
                        list.push(
                            MutationType::ClearRange,
                            &key(begin),
                            &key(begin + random.index(10)),
                        );
                    }
                    _ => list.push(
                        MutationType::Set,
                        &key(random.index(60)),
                        &vec![7; random.index(50)],
                    ),
                }
            }
            for mutation in &list {
                model.apply(version, &mutation, &mut Vec::new());
            }
            store.apply(
                Prepared::default(),
                LogPosition::without_log(version),
                &mut list.iter(),
                None,
            );
            store.publish(version);
            match random.index(6) {
                0 => snapshots.push(
                    store
                        .snapshot_at(
                            version
                                - random.index((version - store.oldest()) as usize + 1) as Version,
                        )
                        .unwrap(),
                ),
                1 if !snapshots.is_empty() => {
                    drop(snapshots.swap_remove(random.index(snapshots.len())))
                }
                2 | 3 => {
                    store.forget_before(version - random.index(10) as Version, random.index(50));
                }
                _ => {}
            }
            store.check_invariants();
            for snapshot in &snapshots {
                let expected = model.rows(snapshot.version(), KeySpace::System);
                assert!(
                    rows_of(snapshot) == expected,
                    "seed {seed} at {version}: {}",
                    snapshot.version()
                );
            }
        }
        snapshots.clear();
        clean(&mut store);
        assert_eq!(store.memory().window, 0, "seed {seed}");
    }
}

#[test]
fn a_long_snapshot_costs_one_row_a_key_at_most() {
    let mut store = MemoryStorage::new(LogPosition::without_log(0));
    let rows = 2000 / LESS;
    set_all(&mut store, 1, 0..rows, &[1; 30]);
    let snapshot = store.snapshot_at(1).unwrap();
    for version in 2..50 / LESS.min(5) as Version {
        set_all(&mut store, version, 0..rows, &[version as u8; 30]);
        clean(&mut store);
        let window = store.memory().window as usize;
        assert!(window <= rows * (80 + 8) + 10_000, "{window} bytes at version {version}");
    }
    clear(&mut store, 50, 0, rows);
    clean(&mut store);
    assert_eq!(store.count(), 0);
    assert_eq!(rows_of(&snapshot).len(), rows);
    drop(snapshot);
    clean(&mut store);
    assert_eq!((store.memory().window, store.memory().data), (0, 0));
}

#[test]
fn a_snapshot_outlives_the_store() {
    let mut store = MemoryStorage::new(LogPosition::without_log(0));
    set_all(&mut store, 1, 0..10, b"v");
    let snapshot = store.snapshot_at(1).unwrap();
    drop(store);
    assert_eq!(rows_of(&snapshot).len(), 10);
}

#[test]
fn rows_loaded_in_any_order_are_there() {
    for step in [1, 7, 999] {
        let count = 1000 / LESS;
        let mut loader = Loader::new(LogPosition::without_log(5));
        for number in 0..count {
            loader.push(&key(number * step % count), &[step as u8; 9]);
        }
        let store = loader.finish();
        store.check_invariants();
        assert_eq!((store.newest(), store.oldest()), (5, 5));
        assert_eq!(rows_of(&store.snapshot_at(5).unwrap()).len(), store.count() as usize);
    }
}

/// Rows of one kind lie together, and a hundred times as heavy as those of another: whoever counts
/// them by the weight of all is wrong by as much.
#[test]
fn rows_of_different_weight_are_counted_by_what_leaves_hold() {
    let mut store = MemoryStorage::new(LogPosition::without_log(0));
    let short = 20_000 / LESS;
    set_all(&mut store, 1, 0..short, &[1; 8]);
    set_all(&mut store, 2, short..short + short / 10, &[2; 4_000]);
    let near = |told: u64, many: usize| told.abs_diff(many as u64) <= many as u64 / 10;
    for (begin, end) in [(0, short), (short, short * 2), (0, short * 2), (short / 2, short + 50)] {
        let rows = end.min(short + short / 10) - begin;
        let told = store.range_count(&key(begin), &key(end));
        assert!(near(told, rows), "{told} of {rows} rows from {begin} to {end}");
    }
    assert_eq!(store.range_count(&key(7), &key(8)), 1);
    assert_eq!(store.range_count(b"x", b"y"), 0);
}

#[test]
fn estimates_are_exact_while_nobody_writes() {
    let mut store = MemoryStorage::new(LogPosition::without_log(0));
    let count = 3000 / LESS;
    let mut random = Random::new(4);
    for version in 1..10 {
        let value = vec![0; random.index(60)];
        set_all(&mut store, version, (0..count).filter(|_| random.index(3) == 0), &value);
    }
    clear(&mut store, 10, count / 3, count / 2);
    let snapshot = store.snapshot_at(10).unwrap();
    let rows = rows_of(&snapshot);
    for _ in 0..50 / LESS.min(10) {
        let (begin, end) = (key(random.index(count)), key(random.index(count)));
        let inside = rows.iter().filter(|(key, _)| *key >= begin && *key < end);
        let expected: usize = inside.clone().map(|(key, value)| key.len() + value.len()).sum();
        assert_eq!(store.range_size(&begin, &end), expected as u64);
        let (told, many) = (store.range_count(&begin, &end), inside.count() as u64);
        assert!(told.abs_diff(many) <= many / 4, "{told} of {many} rows");
        if begin < end {
            let points = store.split_points(&begin, &end, 1000);
            let sizes = points.windows(2).map(|pair| store.range_size(&pair[0], &pair[1]));
            assert!(sizes.clone().all(|size| size < 2000), "{:?}", sizes.collect::<Vec<_>>());
        }
    }
}

/// Readers take snapshots of the rows again and again and compare them with each other, while the
/// writer keeps the sum of all values at zero in every version. Nodes split and merge all the time.
#[test]
fn readers_on_other_threads_see_whole_versions() {
    const KEYS: usize = if cfg!(miri) { 100 } else { 3000 };
    let mut store = MemoryStorage::new(LogPosition::without_log(0));
    let done = Arc::new(AtomicBool::new(false));
    let env = Env::real();
    let readers: Vec<_> = (0..3)
        .map(|reader| {
            let (store, done) = (store.clone(), done.clone());
            env.spawn("reader", async move { read_until(&store, &done, reader) })
        })
        .collect();
    let mut random = Random::new(9);
    let mut values = vec![0i64; KEYS];
    for version in 1..if cfg!(miri) { 15 } else { 3000 } {
        let mut list = MutationList::new();
        for _ in 0..20 {
            let (from, to) = (random.index(KEYS), random.index(KEYS));
            let amount = random.index(100) as i64;
            for (place, change) in [(from, -amount), (to, amount)] {
                values[place] += change;
                match values[place] {
                    0 => list.push(MutationType::ClearRange, &key(place), &key(place + 1)),
                    value => list.push(MutationType::Set, &key(place), &wide(value, place)),
                }
            }
        }
        if version % 50 == 0 {
            // Whole neighbourhoods vanish into one row.
            let begin = random.index(KEYS);
            let end = (begin + KEYS / 4).min(KEYS - 1);
            let sum: i64 = values[begin..=end].iter().sum();
            values[begin..=end].fill(0);
            values[end] = sum;
            list.push(MutationType::ClearRange, &key(begin), &key(end + 1));
            list.push(MutationType::Set, &key(end), &wide(sum, end));
        }
        store.apply(Prepared::default(), LogPosition::without_log(version), &mut list.iter(), None);
        store.publish(version);
        store.forget_before(version - 5, 200);
    }
    done.store(true, Ordering::Relaxed);
    for reader in readers {
        block_on(reader).expect("a reader saw something that never was");
    }
    clean(&mut store);
    assert_eq!(store.memory().window, 0);
}

/// A value of a length that depends on the key: the number, then the key's number again and again.
fn wide(value: i64, place: usize) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(8 + place % 90, place as u8);
    bytes
}

fn narrow(key_bytes: &[u8], value: &[u8]) -> i64 {
    let place: usize = std::str::from_utf8(&key_bytes[3..]).unwrap().parse().unwrap();
    assert_eq!(value.len(), 8 + place % 90);
    assert!(value[8..].iter().all(|byte| *byte == place as u8), "a torn value");
    i64::from_le_bytes(value[..8].try_into().unwrap())
}

fn read_until(store: &MemoryReader, done: &AtomicBool, reader: usize) {
    let mut random = Random::new(reader as u64);
    let all = |reverse| RangeRead {
        begin: KeySelector::first_greater_or_equal(&b""[..]),
        end: KeySelector::first_greater_or_equal(&b"\xff"[..]),
        limit: usize::MAX,
        target_bytes: usize::MAX,
        reverse,
    };
    let mut read = 0;
    while !done.load(Ordering::Relaxed) || read == 0 {
        let version = store.newest();
        let Ok(result) = store.get_range(version, KeySpace::Normal, &all(reader == 1)).wait()
        else {
            continue;
        };
        let sum: i64 = result.rows.iter().map(|(key, value)| narrow(key, value)).sum();
        assert_eq!(sum, 0, "version {version}");
        // The same rows one by one, from the same version, if it lasts.
        let mut keys = KeyList::new();
        let places: Vec<usize> =
            (0..30.min(result.rows.len())).map(|_| random.index(result.rows.len())).collect();
        for place in &places {
            keys.push(result.rows.row(*place).unwrap().0);
        }
        if let Ok(values) = store.get_many(version, KeySpace::Normal, &keys).wait() {
            for (place, value) in places.iter().zip(values) {
                assert_eq!(
                    value.as_deref(),
                    Some(result.rows.row(*place).unwrap().1),
                    "version {version}"
                );
            }
        }
        read += 1;
    }
}

/// Batches of all kinds of mutations, in key order or not, leave what applying them at versions of
/// their own leaves.
#[test]
fn replay_leaves_what_applying_leaves() {
    for seed in 0..if cfg!(miri) { 2 } else { 30 } {
        let mut random = Random::new(seed);
        let rows = 1 + random.index(3_000 / LESS);
        let mut store = MemoryStorage::new(LogPosition::without_log(0));
        let mut loader = Loader::new(LogPosition::without_log(1));
        (0..rows)
            .filter(|_| random.index(3) > 0)
            .for_each(|number| loader.push(&key(number), b"loaded"));
        let mut replay = MemoryReplay::new(loader.finish()).unwrap();
        let mut random_again = Random::new(seed);
        assert_eq!(1 + random_again.index(3_000 / LESS), rows);
        let loaded: Vec<_> = (0..rows).filter(|_| random_again.index(3) > 0).collect();
        set_all(&mut store, 1, loaded.into_iter(), b"loaded");
        for version in 2..6 {
            let mut mutations: Vec<(MutationType, Vec<u8>, Vec<u8>)> = Vec::new();
            let clears = random.index(3);
            for _ in 0..random.index(4 * rows) {
                let key = super::tests::key(random.index(rows));
                let value = vec![b'v'; random.index(100)];
                mutations.push(match random.index(10) {
                    0 => (MutationType::ClearRange, key.clone(), key_after(&key).to_vec()),
                    1 => (MutationType::CompareAndClear, key, b"loaded".to_vec()),
                    2 => (MutationType::Add, key, 7_u64.to_le_bytes().to_vec()),
                    3 => (MutationType::AppendIfFits, key, value),
                    _ => (MutationType::Set, key, value),
                });
            }
            if random.index(2) == 0 {
                mutations.sort_by(|a, b| a.1.cmp(&b.1));
            }
            for _ in 0..clears {
                let begin = random.index(rows);
                let range = (key(begin), key(begin + random.index(rows - begin + 1)));
                mutations.insert(
                    random.index(mutations.len() + 1),
                    (MutationType::ClearRange, range.0, range.1),
                );
            }
            let mut list = MutationList::new();
            mutations.iter().for_each(|(kind, param1, param2)| list.push(*kind, param1, param2));
            store.apply(
                Prepared::default(),
                LogPosition::without_log(version),
                &mut list.iter(),
                None,
            );
            store.publish(version);
            replay.apply(LogPosition::without_log(version), &mut list.iter());
        }
        clean(&mut store);
        let mut replayed = replay.finish();
        replayed.check_invariants();
        assert_eq!((replayed.oldest(), replayed.newest()), (5, 5), "seed {seed}");
        assert_eq!(all_rows(&replayed), all_rows(&store), "seed {seed}");
        assert_eq!(replayed.count(), store.count(), "seed {seed}");
        assert_eq!(replayed.memory().data, store.memory().data, "seed {seed}");
        assert_eq!(replayed.memory().window, 0, "seed {seed}");
        // It goes on as any store does.
        clear(&mut replayed, 6, 0, rows / 2);
        clear(&mut store, 6, 0, rows / 2);
        clean(&mut replayed);
        assert_eq!(all_rows(&replayed), all_rows(&store), "seed {seed}");
    }
}

fn all_rows(store: &MemoryReader) -> Vec<(Vec<u8>, Vec<u8>)> {
    let found = block_on(store.get_range(store.newest(), KeySpace::Normal, &everything())).unwrap();
    found.rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

#[test]
fn only_a_store_that_nobody_else_has_can_be_replayed_into() {
    let filled = || {
        let mut store = MemoryStorage::new(LogPosition::without_log(0));
        set_all(&mut store, 1, 0..10, b"v");
        store
    };
    let (store, other) = (filled(), filled());
    let (snapshot, reader) = (store.snapshot(), MemoryReader::clone(&other));
    assert!(MemoryReplay::new(store).is_none() && MemoryReplay::new(other).is_none());
    // Whoever has a part of a store has its rows, though nobody writes to it any more.
    assert_eq!((rows_of(&snapshot).len(), reader.count()), (10, 10));
    let all = block_on(reader.get_range(1, KeySpace::Normal, &everything())).unwrap();
    assert_eq!(all.rows.len(), 10);
    assert_eq!(MemoryReplay::new(filled()).unwrap().finish().count(), 10);
}

fn everything() -> RangeRead {
    RangeRead {
        begin: KeySelector::first_greater_or_equal(Bytes::new()),
        end: KeySelector::first_greater_or_equal(Bytes::from_static(b"\xff")),
        limit: usize::MAX,
        target_bytes: usize::MAX,
        reverse: false,
    }
}
