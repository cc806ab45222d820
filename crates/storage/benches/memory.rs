//! What the engine `memory` does in a second, beside a `BTreeMap` in the same run.
//!
//! `cargo bench -p plinth-storage` takes a million rows (`-- --rows N` another number,
//! `-- --only NAME` one part); under `cargo test` it runs with a thousand, so that it can't rot.
//! Rows are 16-byte keys with 8 to 100-byte values, as in the workloads of the `plinth bench`
//! program. Every line ends with a hash of what was read.

use plinth_env::Env;
use plinth_env::simulated::Random;
use plinth_storage::checkpoint::{self, Identity, Pace};
use plinth_storage::{
    Chunk, Loader, MemoryReader, MemoryStorage, PinnedVersion, Reader, SsdSettings, SsdStorage,
    Writer,
};
use plinth_types::{
    Bytes, KeyList, KeySelector, KeySpace, LogPosition, MutationList, MutationType, RangeRead,
};
use std::collections::BTreeMap;
use std::time::Duration;

const READS_TOGETHER: usize = 10;

struct Bench {
    env: Env,
    rows: usize,
    time: Duration,
    only: Option<String>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let benching = arguments.iter().any(|argument| argument == "--bench");
    let rows = value("--rows").and_then(|rows| rows.parse().ok());
    let bench = Bench {
        env: Env::real(),
        rows: rows.unwrap_or(if benching { 1_000_000 } else { 1000 }),
        time: if benching { Duration::from_secs(2) } else { Duration::from_millis(2) },
        only: value("--only"),
    };
    bench.run();
}

fn key(number: usize) -> [u8; 16] {
    let mut key = [b'0'; 16];
    key[..3].copy_from_slice(b"key");
    let mut rest = number;
    for digit in key[3..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn value(random: &mut Random) -> Vec<u8> {
    let mut value = vec![0; 8 + random.index(93)];
    random.fill(&mut value);
    value
}

impl Bench {
    fn run(&self) {
        println!("{} rows", self.rows);
        if self.wants("map") {
            self.map();
        }
        let baseline = resident();
        let mut store = self.fill();
        self.checkpoint(&store);
        self.chunks(&store);
        for threads in [1, 2] {
            self.reads(&store, threads, READS_TOGETHER);
        }
        self.reads(&store, 1, 1);
        for threads in [1, 2] {
            self.ranges(&store, threads);
        }
        self.overwrites(&mut store, baseline);
        self.inserts(false);
        self.inserts(true);
    }

    fn wants(&self, part: &str) -> bool {
        self.only.as_deref().is_none_or(|only| part.contains(only))
    }

    /// Does `work` until the time is over. Prints how many it did in a second.
    fn measure(&self, what: &str, mut work: impl FnMut() -> (usize, u64)) {
        let (begun, begun_thread) = (self.env.now(), thread_time(&self.env));
        let (mut done, mut hash) = (0, 0u64);
        while self.env.now() - begun < self.time {
            for _ in 0..100 {
                let (count, part) = work();
                done += count;
                hash = hash.wrapping_mul(31).wrapping_add(part);
            }
        }
        let used = thread_time(&self.env) - begun_thread;
        self.report(what, done, self.env.now() - begun, used, hash);
    }

    /// Prints how many were done in a second, and in a second of a processor.
    fn report(&self, what: &str, done: usize, time: Duration, used: Duration, hash: u64) {
        let used = if used.is_zero() { time } else { used };
        let millions = |time: Duration| done as f64 / time.as_secs_f64() / 1e6;
        println!(
            "{what:<44} {:>8.2} M/s {:>8.2} M/cpu-s   {hash:016x}",
            millions(time),
            millions(used)
        );
    }

    /// The same on several threads, each with its number.
    fn measure_on(
        &self,
        threads: usize,
        what: &str,
        work: impl Fn(&mut Random) -> (usize, u64) + Send + Sync + 'static,
    ) {
        let work = std::sync::Arc::new(work);
        let total = std::sync::Arc::new(std::sync::Mutex::new((0, Duration::ZERO, 0u64)));
        let begun = self.env.now();
        let tasks: Vec<_> = (0..threads)
            .map(|thread| {
                let (env, work, total, time) =
                    (self.env.clone(), work.clone(), total.clone(), self.time);
                self.env.spawn("bench", async move {
                    let mut random = Random::new(thread as u64 + 77);
                    let begun_thread = thread_time(&env);
                    let (mut done, mut hash) = (0, 0u64);
                    while env.now() - begun < time {
                        for _ in 0..100 {
                            let (count, part) = work(&mut random);
                            done += count;
                            hash = hash.wrapping_mul(31).wrapping_add(part);
                        }
                    }
                    let mut total = total.lock().expect("no thread panics");
                    total.0 += done;
                    total.1 += thread_time(&env) - begun_thread;
                    total.2 ^= hash;
                })
            })
            .collect();
        for task in tasks {
            task.wait().expect("no thread panics");
        }
        let (done, used, hash) = *total.lock().expect("no thread panics");
        self.report(
            &format!("{what}, threads: {threads}"),
            done,
            self.env.now() - begun,
            used / threads as u32,
            hash,
        );
    }

    /// The calibrator.
    fn map(&self) {
        let before = resident();
        let mut random = Random::new(1);
        let map: BTreeMap<[u8; 16], Vec<u8>> =
            (0..self.rows).map(|n| (key(n), value(&mut random))).collect();
        let payload: usize = map.values().map(|value| 16 + value.len()).sum();
        self.report_memory("BTreeMap", resident() - before, payload);
        let map = std::sync::Arc::new(map);
        let rows = self.rows;
        for threads in [1, 2] {
            let map = map.clone();
            self.measure_on(threads, "BTreeMap get", move |random| {
                let mut hash = 0;
                for _ in 0..10 {
                    let found = map.get(&key(random.index(rows))).map_or(0, |value| value[0]);
                    hash += u64::from(found);
                }
                (10, hash)
            });
        }
    }

    fn report_memory(&self, what: &str, resident: usize, payload: usize) {
        let per_key = resident as f64 - 1.3 * payload as f64;
        println!(
            "{what:<44} {:>9.1} MiB resident, {:.2} times the data, or 1.3 times and {:.0} bytes a key",
            resident as f64 / (1 << 20) as f64,
            resident as f64 / payload as f64,
            per_key / self.rows as f64,
        );
    }

    fn fill(&self) -> MemoryStorage {
        let before = resident();
        let mut random = Random::new(1);
        let values: Vec<Vec<u8>> = (0..1000).map(|_| value(&mut random)).collect();
        let begun = self.env.now();
        let mut loader = Loader::new(LogPosition::without_log(0));
        let mut payload = 0;
        for number in 0..self.rows {
            let value = &values[random.index(values.len())];
            loader.push(&key(number), value);
            payload += 16 + value.len();
        }
        let store = loader.finish();
        let seconds = (self.env.now() - begun).as_secs_f64();
        println!(
            "{:<44} {:>9.2} M/s   {:.0} MB/s",
            "load in order",
            self.rows as f64 / seconds / 1e6,
            payload as f64 / seconds / 1e6
        );
        self.report_memory("loaded", resident() - before, payload);
        println!("{:<44} {:?}", "", store.memory());
        store
    }

    /// To a file and back; the file is in the system's cache when it is read.
    fn checkpoint(&self, store: &MemoryStorage) {
        if !self.wants("checkpoint") {
            return;
        }
        plinth_env::block_on(async {
            let files = self.env.files();
            let dir = files.temporary_dir("bench").await.expect("a directory");
            let identity = Identity { cluster_id: [1; 16], node_id: [2; 16] };
            let (begun, begun_thread) = (self.env.now(), thread_time(&self.env));
            let pace = Pace::default();
            let written =
                checkpoint::write(&self.env, dir.path(), identity, &store.snapshot(), pace).await;
            let bytes = written.expect("room").bytes as usize;
            let used = thread_time(&self.env) - begun_thread;
            self.report(
                "checkpoint written, bytes",
                bytes,
                self.env.now() - begun,
                used,
                bytes as u64,
            );
            let (begun, begun_thread) = (self.env.now(), thread_time(&self.env));
            let loaded = MemoryStorage::load(&self.env, dir.path(), identity).await.expect("whole");
            let used = thread_time(&self.env) - begun_thread;
            let rows = loaded.expect("it was written").store.count();
            self.report("checkpoint loaded, bytes", bytes, self.env.now() - begun, used, rows);
        });
    }

    /// All rows exported in chunks, encoded; decoded again, and taken into files of either engine.
    fn chunks(&self, store: &MemoryStorage) {
        if !self.wants("chunks") {
            return;
        }
        plinth_env::block_on(async {
            let (snapshot, end) = (store.snapshot(), KeySpace::System.end());
            let (begun, begun_thread) = (self.env.now(), thread_time(&self.env));
            let (mut encoded, mut reached, mut bytes) = (Vec::new(), Bytes::new(), 0);
            while *reached < *end {
                let chunk = snapshot.export(&reached, end, 1 << 20).await.expect("it is pinned");
                bytes += chunk.rows.data_len();
                encoded.push(chunk.encode());
                reached = chunk.end;
            }
            let used = thread_time(&self.env) - begun_thread;
            let stored: usize = encoded.iter().map(Vec::len).sum();
            self.report(
                "chunks exported, bytes of rows",
                bytes,
                self.env.now() - begun,
                used,
                stored as u64,
            );
            for engine in ["memory", "ssd"] {
                let dir = self.env.files().temporary_dir("bench").await.expect("a directory");
                let (identity, at) =
                    (Identity { cluster_id: [1; 16], node_id: [2; 16] }, snapshot.position());
                let settings = SsdSettings::default();
                let import = match engine {
                    "memory" => checkpoint::import(&self.env, dir.path(), identity, at).await,
                    _ => SsdStorage::import(&self.env, dir.path(), identity, &settings, at),
                };
                let mut import = import.expect("an empty directory");
                let (begun, begun_thread) = (self.env.now(), thread_time(&self.env));
                for chunk in &encoded {
                    let chunk = Chunk::decode(chunk).expect("what was encoded");
                    import.take(&chunk).await.expect("room");
                }
                import.finish().await.expect("room");
                let used = thread_time(&self.env) - begun_thread;
                let what = format!("chunks imported into {engine}, bytes of rows");
                self.report(&what, bytes, self.env.now() - begun, used, stored as u64);
            }
        });
    }

    fn reads(&self, store: &MemoryStorage, threads: usize, together: usize) {
        if !self.wants("reads") {
            return;
        }
        let (store, rows) = (MemoryReader::clone(store), self.rows);
        self.measure_on(threads, &format!("get_many, {together} keys"), move |random| {
            let mut keys = KeyList::new();
            for _ in 0..together {
                keys.push(&key(random.index(rows)));
            }
            let values = store
                .get_many(store.newest(), KeySpace::Normal, &keys)
                .wait()
                .expect("in the window");
            (together, values.iter().flatten().map(|value| u64::from(value[0])).sum())
        });
    }

    fn ranges(&self, store: &MemoryStorage, threads: usize) {
        if !self.wants("ranges") {
            return;
        }
        let (store, rows) = (MemoryReader::clone(store), self.rows);
        self.measure_on(threads, "get_range, 1000 keys", move |random| {
            let begin = KeySelector::first_greater_or_equal(key(random.index(rows)).to_vec());
            let end = KeySelector::first_greater_or_equal(&b"\xff"[..]);
            let read =
                RangeRead { begin, end, limit: 1000, target_bytes: usize::MAX, reverse: false };
            let result = store
                .get_range(store.newest(), KeySpace::Normal, &read)
                .wait()
                .expect("in the window");
            (result.rows.len(), result.rows.last().map_or(0, |(_, value)| u64::from(value[0])))
        });
    }

    fn overwrites(&self, store: &mut MemoryStorage, baseline: usize) {
        if !self.wants("overwrites") {
            return;
        }
        let mut random = Random::new(5);
        let mut list = MutationList::new();
        let mut version = store.newest();
        let values: Vec<Vec<u8>> = (0..1000).map(|_| value(&mut random)).collect();
        // The window holds as many writes as there are rows; what it costs to keep it there is
        // measured too.
        for round in 1..=5 {
            self.measure(&format!("overwrites, 100 a batch, cleaned up, round {round}"), || {
                list.clear();
                for _ in 0..100 {
                    let at = random.index(self.rows);
                    list.push(MutationType::Set, &key(at), &values[random.index(values.len())]);
                }
                version += 100;
                let prepared = store.prepare(&mut list.iter()).wait().expect("rows are at hand");
                store.apply(prepared, LogPosition::without_log(version), &mut list.iter(), None);
                store.publish(version);
                store.forget_before(version - self.rows as i64, 200);
                (100, 0)
            });
        }
        println!("{:<44} {:?}", "", store.memory());
        let before = self.env.now();
        while store.forget_before(version, 1000) {}
        println!("{:<44} {:?} after {:?}", "at rest", store.memory(), self.env.now() - before);
        // All the process has, but for what it had before the store was filled.
        self.report_memory("at rest", resident() - baseline, store.memory().data as usize);
    }

    fn inserts(&self, ordered: bool) {
        if !self.wants("inserts") {
            return;
        }
        let mut random = Random::new(6);
        let mut store = MemoryStorage::new(LogPosition::without_log(0));
        let before = resident();
        let mut list = MutationList::new();
        let (mut version, mut number) = (0, 0);
        let values: Vec<Vec<u8>> = (0..1000).map(|_| value(&mut random)).collect();
        let what = if ordered {
            "inserts in order, 100 a batch"
        } else {
            "inserts at random, 100 a batch"
        };
        self.measure(what, || {
            list.clear();
            for _ in 0..100 {
                number += 1;
                let at = if ordered { number } else { random.next_u64() as usize % (1 << 40) };
                list.push(MutationType::Set, &key(at), &values[random.index(values.len())]);
            }
            version += 100;
            let prepared = store.prepare(&mut list.iter()).wait().expect("rows are at hand");
            store.apply(prepared, LogPosition::without_log(version), &mut list.iter(), None);
            store.publish(version);
            store.forget_before(version - 100_000, 200);
            (100, 0)
        });
        while store.forget_before(version, 1000) {}
        let memory = store.memory();
        println!(
            "{:<44} {memory:?}, RSS {} MiB, index per key {}",
            "",
            (resident() - before) >> 20,
            memory.index / store.count().max(1)
        );
    }
}

/// Resident memory of this process in bytes, where the system tells.
fn resident() -> usize {
    let pages = system_file("/proc/self/statm")
        .and_then(|text| text.split(' ').nth(1)?.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

/// What this thread has had of a processor, where the system tells; else the time. On a busy
/// machine the time says nothing.
fn thread_time(env: &Env) -> Duration {
    let nanoseconds = system_file("/proc/thread-self/schedstat")
        .and_then(|text| text.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| env.now(), Duration::from_nanos)
}

fn system_file(path: &str) -> Option<String> {
    plinth_env::block_on(async {
        let env = Env::real();
        let file = env.files().open(path, plinth_env::Open::Read).await.ok()?;
        let mut bytes = [0; 200];
        let len = file.read_at(0, &mut bytes).await.ok()?;
        String::from_utf8(bytes[..len].to_vec()).ok()
    })
}
