//! The engine against the model and the suite, with each flush and compaction taken on purpose,
//! with tiny blocks and tables so that every way through them is gone; and what is particular to
//! it.
//!
//! Seeded: a failure of a random program names its seed, which repeats it.

mod slow_disk;

use super::*;
use crate::conformance::{self, random};
use crate::failure::{Answer, StorageError, StorageResult};
use plinth_env::simulated::Random;
use plinth_env::{TemporaryDir, block_on};
use plinth_types::{LogPosition, MutationList, MutationType};

const IDENTITY: Identity = Identity { cluster_id: [1; 16], node_id: [2; 16] };

fn tiny() -> SsdSettings {
    SsdSettings {
        block_bytes: 256,
        table_bytes: 8 << 10,
        level_bytes: 24 << 10,
        flush_bytes: 1,
        background: false,
        ..SsdSettings::with_memory(4 << 20)
    }
}

/// An engine that flushes and compacts when it is told to forget, as a seed has it.
struct Stepped {
    store: SsdStorage,
    random: Mutex<Random>,
    _dir: TemporaryDir,
}

impl Stepped {
    fn new(version: Version, seed: u64, settings: SsdSettings) -> Self {
        let env = Env::real();
        let dir = block_on(env.files().temporary_dir("plinth-ssd")).unwrap();
        let store = block_on(async {
            let at = LogPosition::without_log(version);
            SsdStorage::create_at(&env, dir.path(), IDENTITY, at).await.unwrap();
            SsdStorage::open(&env, dir.path(), IDENTITY, settings).await.unwrap()
        });
        Self { store, random: Mutex::new(Random::new(seed)), _dir: dir }
    }
}

impl Writer for Stepped {
    fn reader(&self) -> Arc<dyn Reader> {
        Writer::reader(&self.store)
    }
    fn prepare(
        &mut self,
        mutations: &mut dyn Iterator<Item = MutationRef<'_>>,
    ) -> Answer<Prepared> {
        self.store.prepare(mutations)
    }
    fn apply(
        &mut self,
        prepared: Prepared,
        at: LogPosition,
        mutations: &mut dyn Iterator<Item = MutationRef<'_>>,
        changed: Changed<'_>,
    ) {
        self.store.apply(prepared, at, mutations, changed);
        self.store.check_invariants();
    }
    fn forget_before(&mut self, version: Version, budget: usize) -> bool {
        self.store.forget_before(version, budget);
        let mut random = self.random.lock().unwrap();
        if random.index(3) != 0 {
            block_on(self.store.flush_now()).unwrap();
            self.store.check_invariants();
        }
        for _ in 0..[0, 1, 100][random.index(3)] {
            if !block_on(self.store.compact()).unwrap() {
                break;
            }
        }
        block_on(maintain::bury(&self.store.engine));
        // Those who forget until nothing is left want all of it in the tables.
        let oldest = self.store.oldest();
        let has_more = self.store.engine.window.bytes_until(oldest) > 0
            || self.store.figures().flushed_runs > 3;
        // What garbage there is then goes at the leisure of compaction: now.
        while !has_more && budget > 500 && block_on(self.store.compact()).unwrap() {}
        has_more
    }
    fn pin(&mut self) -> Answer<Box<dyn PinnedVersion>> {
        self.store.pin()
    }
    fn flush(&mut self, pace: Pace) -> Waiting<StorageResult<Flushed>> {
        self.store.flush(pace)
    }
    fn check_invariants(&self) {
        self.store.check_invariants();
    }
}

#[test]
fn the_suite_passes() {
    conformance::test_all(&|version| Box::new(Stepped::new(version, 7, tiny())), 300, 150);
}

#[test]
fn the_suite_passes_without_cache_and_compression() {
    let settings = || SsdSettings { memory: 1, compression: Compression::None, ..tiny() };
    conformance::test_all(&|version| Box::new(Stepped::new(version, 9, settings())), 60, 150);
}

#[test]
fn the_suite_passes_with_keys() {
    let key = plinth_format::crypt::Key::of_file(&[1; 32]).unwrap();
    let keys = Keys::new(&[key]);
    let settings = || SsdSettings { keys: keys.clone(), ..tiny() };
    conformance::test_all(&|version| Box::new(Stepped::new(version, 13, settings())), 60, 150);
}

#[test]
fn long_programs_reach_the_deeper_levels() {
    for seed in 1000..1012 {
        random::run(&|version| Box::new(Stepped::new(version, seed, tiny())), seed, 1500);
    }
}

fn apply(store: &mut dyn Writer, version: Version, fill: impl FnOnce(&mut MutationList)) {
    let mut list = MutationList::new();
    fill(&mut list);
    let prepared = store.prepare(&mut list.iter()).wait().unwrap();
    store.apply(prepared, LogPosition::without_log(version), &mut list.iter(), None);
    store.reader().publish(version);
}

fn settle(store: &mut SsdStorage) {
    store.forget_before(store.newest(), 0);
    block_on(async {
        store.flush_now().await.unwrap();
        while store.compact().await.unwrap() {}
        maintain::bury(&store.engine).await;
    });
}

fn key(n: usize) -> Vec<u8> {
    format!("key{n:08}").into_bytes()
}

fn rows_of(store: &SsdReader, version: Version) -> Vec<(Vec<u8>, Vec<u8>)> {
    let read = RangeRead {
        begin: KeySelector::first_greater_or_equal(&b""[..]),
        end: KeySelector::first_greater_or_equal(&b"\xff"[..]),
        limit: usize::MAX,
        target_bytes: usize::MAX,
        reverse: false,
    };
    let result = store.get_range(version, KeySpace::Normal, &read).wait().unwrap();
    result.rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

#[test]
fn a_range_clear_is_one_record_and_gives_the_space_back() {
    let mut stepped = Stepped::new(0, 1, SsdSettings { table_bytes: 64 << 10, ..tiny() });
    let store = &mut stepped.store;
    for part in 0..20 {
        apply(store, part as Version + 1, |list| {
            (0..1000).for_each(|n| {
                list.push(MutationType::Set, &key(part * 1000 + n), &[part as u8; 80])
            });
        });
        settle(store);
    }
    let full = store.figures();
    assert!(full.disk_bytes > 500_000, "{full:?}");
    let window = store.engine.window.live();
    apply(store, 100, |list| list.push(MutationType::ClearRange, b"key", b"kez"));
    assert!(
        store.engine.window.live() < window + 1000,
        "a clear takes one record, whatever it covers"
    );
    assert_eq!(rows_of(store, 100), []);
    assert_eq!(rows_of(store, 99).len(), 20_000);
    let written = store.figures().written_bytes;
    settle(store);
    let empty = store.figures();
    assert_eq!((empty.tables, empty.disk_bytes, store.count()), (0, 0, 0));
    assert!(
        empty.written_bytes < written + 10_000,
        "what is cleared whole is not rewritten: {empty:?}"
    );
    let files = block_on(store.engine.making.env.files().list(&store.engine.making.dir)).unwrap();
    assert_eq!(files, ["MANIFEST"]);
}

/// Two flushes, the second of which clears rows of the first and brings others: what is in tables
/// when nothing is left to be done.
fn flushes_with_clears(cleared: usize) -> SsdFigures {
    let settings = SsdSettings { table_bytes: 1 << 20, level_bytes: 64 << 20, ..tiny() };
    let settings = SsdSettings { memory: 64 << 20, compression: Compression::None, ..settings };
    let mut stepped = Stepped::new(0, 1, settings);
    let store = &mut stepped.store;
    let fill = |list: &mut MutationList, rows: std::ops::Range<usize>| {
        rows.for_each(|n| list.push(MutationType::Set, &key(n), &[n as u8; 80]));
    };
    apply(store, 1, |list| fill(list, 0..2000));
    settle(store);
    apply(store, 2, |list| {
        list.push(MutationType::ClearRange, &key(0), &key(cleared));
        fill(list, 2000..2500);
    });
    settle(store);
    assert_eq!(rows_of(store, 2).len(), 2500 - cleared);
    store.figures()
}

#[test]
fn flushes_are_merged_early_where_clears_in_them_hide_two_fifths() {
    const ROW: u64 = 11 + 80;
    let (few, many) = (flushes_with_clears(900), flushes_with_clears(1100));
    assert!(few.flushed_runs == 2 && few.disk_bytes > 2500 * ROW, "{few:?}");
    assert!(many.flushed_runs == 0 && many.disk_bytes < 2000 * ROW, "{many:?}");
}

/// What clearing a range costs whose rows are in tables, and no others beside them: bytes of the
/// window, reads of the device, bytes written.
fn cost_of_clearing(rows: usize) -> (usize, u64, u64) {
    // Many tables on one level: on each level below the record is written once more.
    let settings = SsdSettings { table_bytes: 256 << 10, level_bytes: 64 << 20, ..tiny() };
    let mut stepped = Stepped::new(0, 1, SsdSettings { memory: 64 << 20, ..settings });
    let store = &mut stepped.store;
    apply(store, 1, |list| {
        (0..rows).for_each(|n| list.push(MutationType::Set, &key(n), b"a value like any"));
    });
    settle(store);
    let (window, before) = (store.engine.window.live(), store.figures());
    apply(store, 2, |list| list.push(MutationType::ClearRange, b"key", b"kez"));
    let window = store.engine.window.live() - window;
    settle(store);
    let after = store.figures();
    assert_eq!((after.tables, rows_of(store, 2)), (0, Vec::new()));
    (window, after.device_reads - before.device_reads, after.written_bytes - before.written_bytes)
}

#[test]
fn a_range_clear_costs_the_same_of_ten_rows_and_of_many() {
    let [few, many] = [10, 200_000].map(cost_of_clearing);
    assert_eq!(few, many);
}

#[test]
fn keys_in_order_are_written_once() {
    let mut stepped = Stepped::new(0, 1, tiny());
    let store = &mut stepped.store;
    for part in 0..40 {
        apply(store, part as Version + 1, |list| {
            (0..500).for_each(|n| {
                list.push(MutationType::Set, &key(part * 500 + n), b"a value like any")
            });
        });
        settle(store);
    }
    let figures = store.figures();
    assert!(figures.written_bytes < figures.disk_bytes * 21 / 20, "{figures:?}");
    assert_eq!(rows_of(store, 40).len(), 20_000);
}

#[test]
fn a_pinned_snapshot_outlives_everything_and_costs_what_it_says() {
    let mut stepped = Stepped::new(0, 1, tiny());
    let store = &mut stepped.store;
    let fill = |list: &mut MutationList, byte| {
        (0..2000).for_each(|n| list.push(MutationType::Set, &key(n), &[byte; 40]));
    };
    apply(store, 1, |list| fill(list, 1));
    settle(store);
    let pinned = store.pin_tables();
    assert_eq!((pinned.version(), store.figures().pinned_bytes), (1, 0));
    for version in 2..6 {
        apply(store, version, |list| fill(list, version as u8));
        settle(store);
    }
    let figures = store.figures();
    assert!(figures.pinned == 1 && figures.pinned_bytes > 10_000, "{figures:?}");
    let read = RangeRead {
        begin: KeySelector::first_greater_or_equal(&b""[..]),
        end: KeySelector::first_greater_or_equal(&b"\xff"[..]),
        limit: usize::MAX,
        target_bytes: usize::MAX,
        reverse: true,
    };
    let rows = pinned.get_range(KeySpace::Normal, &read).wait().unwrap().rows;
    assert!(rows.len() == 2000 && rows.iter().all(|(_, value)| value == [1; 40]));
    let mut keys = KeyList::new();
    keys.push(&key(77));
    assert_eq!(
        pinned.get_many(KeySpace::Normal, &keys).wait().unwrap(),
        [Some(Bytes::from(vec![1; 40]))]
    );
    let selector = KeySelector::last_less_than(key(77));
    assert_eq!(pinned.get_key(KeySpace::Normal, &selector).wait().unwrap(), key(76));
    drop(pinned);
    settle(store);
    let figures = store.figures();
    assert_eq!((figures.pinned, figures.pinned_bytes), (0, 0));
    let files = block_on(store.engine.making.env.files().list(&store.engine.making.dir)).unwrap();
    assert_eq!(files.len() as u64, figures.tables + 1, "{files:?}");
}

/// Looks at the newest version: it is whole, or too old by now, which is said by `false`.
async fn read_a_version(store: &dyn Reader, random: &mut Random) -> bool {
    let version = store.newest();
    let mut keys = KeyList::new();
    for _ in 0..8 {
        keys.push(&key(random.index(400)));
    }
    let read = RangeRead {
        begin: KeySelector::first_greater_or_equal(key(random.index(200))),
        end: KeySelector::first_greater_or_equal(key(200 + random.index(200))),
        limit: usize::MAX,
        target_bytes: usize::MAX,
        reverse: random.index(2) == 0,
    };
    let values = store.get_many(version, KeySpace::Normal, &keys).await;
    let rows = store.get_range(version, KeySpace::Normal, &read).await;
    let expected = [version as u8];
    match (values, rows) {
        (Ok(values), Ok(range)) => {
            // Each version sets all keys to itself, or clears them all first and sets half.
            let half = version % 3 == 0;
            let shown = |key: &[u8]| !half || key[key.len() - 1].is_multiple_of(2);
            for (key, value) in keys.iter().zip(values) {
                assert_eq!(value.as_deref(), shown(key).then_some(&expected[..]), "{version}");
            }
            assert!(range.rows.iter().all(|(key, value)| value == expected && shown(key)));
            true
        }
        (values, rows) => {
            let error = values.err().or(rows.err());
            assert_eq!(error, Some(StorageError::TooOld("".into())));
            false
        }
    }
}

#[test]
fn readers_see_whole_versions_while_everything_moves() {
    let settings = SsdSettings {
        background: true,
        flush_bytes: 20_000,
        flush_after: Duration::ZERO,
        ..tiny()
    };
    let mut stepped = Stepped::new(0, 1, settings);
    let (env, stop) = (Env::real(), Arc::new(AtomicBool::new(false)));
    apply(&mut stepped.store, 1, |list| {
        (0..400).for_each(|n| list.push(MutationType::Set, &key(n), &[1]))
    });
    let readers: Vec<_> = (0..3)
        .map(|reader| {
            let (stepped, stop) = (Writer::reader(&stepped), stop.clone());
            env.spawn("reader", async move {
                let mut random = Random::new(reader);
                let (mut reads, mut late) = (0u64, 0u64);
                while !stop.load(Ordering::Relaxed) || reads < 200 {
                    reads += 1;
                    late += u64::from(!read_a_version(&*stepped, &mut random).await);
                }
                assert!(late * 2 < reads, "{late} of {reads} reads came too late");
            })
        })
        .collect();
    for version in 2..600 {
        apply(&mut stepped.store, version, |list| {
            if version % 3 == 0 {
                list.push(MutationType::ClearRange, b"key", b"kez");
            }
            let step = if version % 3 == 0 { 2 } else { 1 };
            let numbers = (0..400).step_by(step);
            numbers.for_each(|n| list.push(MutationType::Set, &key(n), &[version as u8]));
        });
        stepped.store.forget_before(version - 20, 0);
    }
    stop.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.wait().unwrap());
    assert_eq!(stepped.store.trouble(), None);
    block_on(stepped.store.close());
}

/// Keys by which conflicts are found were in no budget: a process took 126 % of its memory while
/// rows were loaded.
#[test]
fn what_others_keep_of_writes_counts_as_memory() {
    const MEMORY: u64 = 16 << 20;
    let stepped = Stepped::new(0, 2, SsdSettings { memory: MEMORY, ..tiny() });
    let engine = &stepped.store.engine;
    let cache = |elsewhere: u64| {
        stepped.store.note_elsewhere(elsewhere as usize);
        engine.divide_memory();
        engine.making.cache.room() as u64
    };
    let [nothing, as_much_as_is_kept, more] = [0, MEMORY / 5, MEMORY / 5 * 3].map(cache);
    assert_eq!(nothing, as_much_as_is_kept, "two fifths are kept for writes anyway");
    assert!(more + MEMORY / 6 < nothing, "{more} of {nothing}");
    // What is left with others can't be emptied: writes go on all the same.
    let fullness = stepped.store.fullness();
    assert!((0.5..0.75).contains(&fullness), "{fullness}");
}

/// The cache took what the window left, and gave it back when the window grew: but to the
/// allocator, so that the process had both at once, 141 % of its budget.
#[test]
fn the_cache_never_takes_what_the_window_may_want() {
    const MEMORY: u64 = 16 << 20;
    let mut stepped =
        Stepped::new(0, 2, SsdSettings { memory: MEMORY, block_bytes: 4096, ..tiny() });
    let store = &mut stepped.store;
    for part in 0..24 {
        apply(store, part as Version + 1, |list| {
            (0..1000).for_each(|n| list.push(MutationType::Set, &key(part * 1000 + n), &[7; 1000]));
        });
        settle(store);
    }
    store.engine.divide_memory();
    assert!(rows_of(store, 24).len() == 24_000 && store.data_bytes() > MEMORY);
    assert!(store.memory().window < MEMORY / 20, "the window is empty: {:?}", store.memory());
    let cached = store.memory().data;
    assert!(cached > MEMORY / 4 && cached <= MEMORY / 5 * 3, "{cached} of {MEMORY}");
}

#[cfg(feature = "zstd")]
#[test]
fn the_suite_passes_with_zstd() {
    let settings = || SsdSettings { memory: 1, compression: Compression::Zstd, ..tiny() };
    conformance::test_all(&|version| Box::new(Stepped::new(version, 11, settings())), 60, 150);
}

/// Bytes on disk of rows that look like text.
fn bytes_of_text(compression: Compression) -> u64 {
    let mut stepped = Stepped::new(0, 1, SsdSettings { compression, block_bytes: 4096, ..tiny() });
    let store = &mut stepped.store;
    let words = ["plinth", "column", "capital", "frieze", "cornice", "arch", "vault", "apse"];
    let mut random = Random::new(5);
    apply(store, 1, |list| {
        for n in 0..2000 {
            let value: Vec<&str> = (0..12).map(|_| words[random.index(words.len())]).collect();
            list.push(MutationType::Set, &key(n), value.join(" ").as_bytes());
        }
    });
    settle(store);
    assert_eq!(rows_of(store, 1).len(), 2000);
    store.figures().disk_bytes
}

#[test]
fn text_gets_smaller_by_each_compression_that_is_built_in() {
    let [none, lz4] = [Compression::None, Compression::Lz4].map(bytes_of_text);
    assert!(lz4 < none * 3 / 4, "{lz4} of {none}");
    if Compression::Zstd.is_built_in() {
        let zstd = bytes_of_text(Compression::Zstd);
        assert!(zstd < lz4 * 9 / 10, "{zstd}, with LZ4 {lz4}");
    }
}

#[cfg(not(feature = "zstd"))]
#[test]
fn what_is_not_built_in_is_refused_and_named() {
    let env = Env::real();
    let dir = block_on(env.files().temporary_dir("plinth-ssd")).unwrap();
    let settings = SsdSettings { compression: Compression::Zstd, ..tiny() };
    let opened = block_on(async {
        SsdStorage::create(&env, dir.path(), IDENTITY).await.unwrap();
        SsdStorage::open(&env, dir.path(), IDENTITY, settings).await
    });
    let error = opened.err().unwrap();
    assert_eq!(error, StorageError::Unsupported("".into()));
    assert!(error.summary().contains("zstd"), "{error}");
}

#[test]
fn an_uncached_read_is_counted_and_costs_one_device_read() {
    let mut stepped = Stepped::new(0, 1, tiny());
    let store = &mut stepped.store;
    apply(store, 1, |list| {
        (0..4000).for_each(|n| list.push(MutationType::Set, &key(n), b"a value like any"));
    });
    settle(store);
    let counts = || {
        let figures = store.figures();
        (figures.device_reads, figures.uncached_reads)
    };
    let read = |number: usize| {
        let mut keys = KeyList::new();
        for n in 0..10 {
            keys.push(&key((number * 10 + n) * 37 % 4000));
        }
        assert!(
            store.get_many(1, KeySpace::Normal, &keys).wait().unwrap().iter().all(Option::is_some)
        );
    };
    let capacity = 8 << 20;
    store.engine.making.cache.set_capacity(capacity);
    (0..400).for_each(read);
    let cached = counts();
    (0..400).for_each(read);
    assert_eq!(counts(), cached, "what is in the cache needs no device");
    store.engine.making.cache.set_capacity(0);
    (0..40).for_each(read);
    assert_eq!(counts(), (cached.0 + 400, cached.1 + 400));
}

/// What a run of tables looks like to a reader of single rows.
struct Layout {
    blocks: usize,
    /// Blocks that lie in more pages than their length needs.
    crossing: usize,
    file_bytes: u64,
}

/// Loads 20,000 rows of these lengths, in part text, as in one bulk load; reads them back.
fn laid_out(
    compression: Compression,
    text: f64,
    mut len: impl FnMut(&mut Random) -> usize,
) -> Layout {
    const WORDS: [&str; 8] =
        ["plinth ", "column ", "capital ", "frieze ", "cornice ", "arch ", "vault ", "apse "];
    let settings = SsdSettings { compression, block_bytes: 4096, table_bytes: 1 << 20, ..tiny() };
    let mut stepped = Stepped::new(0, 1, SsdSettings { memory: 64 << 20, ..settings });
    let (store, mut random) = (&mut stepped.store, Random::new(8));
    let mut rows = Vec::new();
    for n in 0..20_000 {
        let len = len(&mut random);
        let mut value = Vec::with_capacity(len + 8);
        while value.len() < len {
            if random.chance(text) {
                value.extend_from_slice(WORDS[random.index(WORDS.len())].as_bytes());
            } else {
                value.push(random.below(256) as u8);
            }
        }
        value.truncate(len);
        rows.push((key(n), value));
    }
    apply(store, 1, |list| {
        rows.iter().for_each(|(key, value)| list.push(MutationType::Set, key, value))
    });
    settle(store);
    assert!(rows_of(store, 1) == rows);
    let mut layout = Layout { blocks: 0, crossing: 0, file_bytes: store.figures().disk_bytes };
    for table in store.engine.state().tables() {
        for number in 0..table.index().count() {
            let (begin, len) = table.index().place(number);
            let pages = (begin + len as u64 - 1) / 4096 - begin / 4096 + 1;
            layout.blocks += 1;
            layout.crossing += usize::from(pages as usize > len.div_ceil(4096));
        }
    }
    layout
}

/// A block as long as a page that began anywhere had two pages fetched for each row that was read.
#[test]
fn blocks_of_rows_lie_in_as_few_pages_as_their_length_needs() {
    for compression in [Compression::None, Compression::Lz4] {
        let Layout { blocks, crossing, file_bytes } =
            laid_out(compression, 0.0, |random| 8 + random.index(93));
        assert_eq!(crossing, 0, "of {blocks}, {compression:?}");
        let row_bytes = 20_000 * (11 + 54);
        assert!(file_bytes < row_bytes * 21 / 20, "{file_bytes} of {row_bytes}");
    }
    let compressions = [Compression::Lz4, Compression::Zstd];
    for compression in compressions.into_iter().filter(|compression| compression.is_built_in()) {
        for text in [0.3, 0.8, 1.0] {
            let Layout { blocks, crossing, .. } =
                laid_out(compression, text, |random| 8 + random.index(93));
            assert!(
                crossing * 10 < blocks,
                "{crossing} of {blocks}, {compression:?} of {text} text"
            );
        }
    }
    // Rows of which no whole number fills a page.
    let Layout { blocks, crossing, .. } = laid_out(Compression::None, 0.0, |_| 1024);
    assert!(crossing * 100 < blocks * 55, "{crossing} of {blocks}");
}
