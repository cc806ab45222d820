//! What the engine `ssd` does in a second: reads from its cache, reads from the disk, ranges,
//! writes until the window is flushed and compacted; and what all that wrote.
//!
//! `cargo bench -p plinth-storage --bench ssd` takes a million rows (`-- --rows N` another number,
//! `-- --memory BYTES` another budget than four times the data); under `cargo test` it runs with a
//! thousand, so that it can't rot. Every line ends with a hash of what was read.

use plinth_env::simulated::Random;
use plinth_env::{Env, TemporaryDir, block_on};
use plinth_storage::checkpoint::Identity;
use plinth_storage::{Reader, SsdSettings, SsdStorage, Writer};
use plinth_types::{
    KeyList, KeySelector, KeySpace, LogPosition, MutationList, MutationType, RangeRead, Version,
};
use std::time::Duration;

const IDENTITY: Identity = Identity { cluster_id: [1; 16], node_id: [2; 16] };
const BATCH: usize = 1000;
/// Batches that the window keeps.
const WINDOW: Version = 200;

struct Bench {
    env: Env,
    rows: usize,
    time: Duration,
    store: SsdStorage,
    random: Random,
    version: Version,
    _dir: TemporaryDir,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let benching = arguments.iter().any(|argument| argument == "--bench");
    let rows = value("--rows").unwrap_or(if benching { 1_000_000 } else { 1000 });
    let memory = value("--memory").unwrap_or(400 * rows.max(10_000));
    let time = if benching { Duration::from_secs(2) } else { Duration::from_millis(2) };
    Bench::new(rows as usize, memory, time).run();
}

fn key(number: usize) -> Vec<u8> {
    format!("key{number:013}").into_bytes()
}

impl Bench {
    fn new(rows: usize, memory: u64, time: Duration) -> Self {
        let env = Env::real();
        let (dir, store) = block_on(async {
            let dir = env.files().temporary_dir("plinth-ssd-bench").await.expect("a directory");
            SsdStorage::create(&env, dir.path(), IDENTITY).await.expect("an engine");
            let settings = SsdSettings::with_memory(memory);
            let store =
                SsdStorage::open(&env, dir.path(), IDENTITY, settings).await.expect("an engine");
            (dir, store)
        });
        println!("{rows} rows, {} MB of memory", memory >> 20);
        Self { env, rows, time, store, random: Random::new(1), version: 0, _dir: dir }
    }

    fn run(&mut self) {
        let rows = self.rows;
        self.write("load, keys in random order", rows, |at, rows| at.wrapping_mul(7919) % rows);
        self.settle();
        self.reads("10 random reads together", 10);
        self.reads("10 random reads together, again", 10);
        self.reads("1 random read", 1);
        self.ranges();
        let mut random = Random::new(2);
        self.write("overwrites, random keys", rows, move |_, rows| random.index(rows));
        self.reads("10 random reads amid compactions", 10);
        self.settle();
        let figures = self.store.figures();
        let amplification = figures.written_bytes as f64 / figures.flushed_bytes.max(1) as f64;
        println!("written {:.1} times what was flushed; {figures:?}", amplification);
        block_on(self.store.close());
    }

    /// Writes as quickly as the memory allows.
    fn write(&mut self, what: &str, count: usize, mut number: impl FnMut(usize, usize) -> usize) {
        let begun = self.env.now();
        for batch in 0..count.div_ceil(BATCH) {
            self.version += 1;
            let mut list = MutationList::new();
            for at in 0..BATCH.min(count) {
                let mut value = vec![0; 8 + self.random.index(93)];
                self.random.fill(&mut value);
                list.push(MutationType::Set, &key(number(batch * BATCH + at, self.rows)), &value);
            }
            let prepared = self.store.prepare(&mut list.iter()).wait().expect("rows can be read");
            self.store.apply(
                prepared,
                LogPosition::without_log(self.version),
                &mut list.iter(),
                None,
            );
            self.store.publish(self.version);
            self.store.forget_before(self.version - WINDOW, 0);
            while self.store.fullness() > 1.0 {
                self.store.forget_before(self.version, 0);
                block_on(self.env.sleep(Duration::from_millis(1)));
            }
        }
        self.report(what, count, begun, 0);
    }

    /// Waits until all is in the tables and compaction has nothing to do.
    fn settle(&mut self) {
        self.store.forget_before(self.version, 0);
        let begun = self.env.now();
        block_on(async {
            while self.store.flush_now().await.expect("files can be written") {}
            while self.store.compact().await.expect("files can be written") {}
        });
        self.report("settling", 0, begun, 0);
    }

    fn report(&self, what: &str, done: usize, begun: Duration, hash: u64) {
        let seconds = (self.env.now() - begun).as_secs_f64();
        let reads = self.store.figures().device_reads;
        println!(
            "{what:<36} {:>8.3} M/s in {seconds:>6.2} s, {reads} device reads  {hash:016x}",
            done as f64 / seconds / 1e6
        );
    }

    fn reads(&mut self, what: &str, together: usize) {
        let (begun, mut done, mut hash) = (self.env.now(), 0, 0u64);
        while self.env.now() - begun < self.time {
            for _ in 0..20 {
                let mut keys = KeyList::new();
                for _ in 0..together {
                    keys.push(&key(self.random.index(self.rows)));
                }
                let values = self.store.get_many(self.version, KeySpace::Normal, &keys).wait();
                let values = values.expect("a version of the window");
                done += values.len();
                hash = hash
                    .wrapping_mul(31)
                    .wrapping_add(values.iter().flatten().map(|value| value.len() as u64).sum());
            }
        }
        self.report(what, done, begun, hash);
    }

    fn ranges(&mut self) {
        let (begun, mut done, mut hash) = (self.env.now(), 0, 0u64);
        while self.env.now() - begun < self.time {
            let read = RangeRead {
                begin: KeySelector::first_greater_or_equal(key(self.random.index(self.rows))),
                end: KeySelector::first_greater_or_equal(&b"\xff"[..]),
                limit: 1000,
                target_bytes: usize::MAX,
                reverse: false,
            };
            let range = self.store.get_range(self.version, KeySpace::Normal, &read).wait();
            let rows = range.expect("a version of the window").rows;
            done += rows.len();
            hash = hash.wrapping_mul(31).wrapping_add(rows.data_len() as u64);
        }
        self.report("keys of 1000-key ranges", done, begun, hash);
    }
}
