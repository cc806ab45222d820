//! Calibrators: what this machine gives right now, without a database.
//!
//! Machines differ, and the same machine differs from minute to minute. So each figure that depends
//! on the disk or on how reads scale stands beside one of these, taken in between slices of the
//! same run: random gets from a read-only `BTreeMap`, loads from memory that depend on each other,
//! and synced writes to a file beside the database's.

use crate::Bench;
use crate::dataset::{self, Dataset};
use crate::random::Random;
use plinth_env::reply;
use plinth_env::{Open, block_on};
use plinth_types::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of a synced write: one page, which is what a small commit puts on the disk.
const SYNC_BYTES: usize = 4096;
/// Bytes of the file that the writes go round in, allocated beforehand as a log's is.
const SYNC_FILE: usize = 16 << 20;
const SYNC_FILE_NAME: &str = "plinth-bench-calibrator";
/// Gets between two looks at the clock.
const GETS: u64 = 256;

/// A map of the benchmark's rows.
pub type RowMap = BTreeMap<Vec<u8>, Vec<u8>>;

/// Synced writes of 4 KiB, how long each took.
#[derive(Clone, Default, Debug)]
pub struct SyncTimes {
    nanos: Vec<u64>,
}

impl SyncTimes {
    /// One write and sync after the other, for a while, in the database's directory; adds to what
    /// was there.
    pub fn measure(&mut self, bench: &Bench, time: Duration) -> Result<()> {
        let env = &bench.env;
        Ok(block_on(async {
            let path = bench.directory.join(SYNC_FILE_NAME);
            let file = env.files().open(&path, Open::Create).await?;
            file.allocate(SYNC_FILE as u64).await?;
            file.sync_all().await?;
            let (page, end) = ([0x5a; SYNC_BYTES], env.now() + time);
            for offset in (0..SYNC_FILE).step_by(SYNC_BYTES).cycle() {
                let began = env.now();
                if (began >= end && !self.nanos.is_empty()) || bench.stop.load(Ordering::Relaxed) {
                    break;
                }
                file.write_all_at(offset as u64, &page).await?;
                file.sync_data().await?;
                self.nanos.push((env.now() - began).as_nanos() as u64);
            }
            drop(file);
            env.files().remove(&path).await
        })?)
    }

    /// Adds what another measured.
    pub fn add(&mut self, other: Self) {
        self.nanos.extend(other.nanos);
    }

    /// The mean; zero before the first measurement.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.nanos.iter().sum::<u64>() / self.nanos.len().max(1) as u64)
    }

    /// The one that so many in a hundred were faster than.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.nanos.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
        Duration::from_nanos(sorted.get(at).copied().unwrap_or_default())
    }

    /// The longest.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.nanos.iter().max().copied().unwrap_or_default())
    }

    /// For the report, in microseconds.
    pub fn to_json(&self) -> Value {
        let micros = |duration: Duration| duration.as_nanos() as f64 / 1e3;
        json!({
            "bytes": SYNC_BYTES,
            "writes": self.nanos.len(),
            "mean_us": micros(self.mean()),
            "median_us": micros(self.percentile(50)),
            "p99_us": micros(self.percentile(99)),
            "max_us": micros(self.longest()),
        })
    }
}

/// The benchmark's rows in a map.
pub fn row_map(dataset: &Dataset, seed: u64) -> Arc<RowMap> {
    let mut random = Random::new(seed, u64::MAX - 1);
    let row = |number| (dataset::key(number).to_vec(), dataset.random_value(&mut random).to_vec());
    Arc::new((0..dataset.rows()).map(row).collect())
}

/// Words of a cache line.
const LINE: usize = 8;
/// More memory than this makes a load no slower, and leaves less of it for the database.
const MOST_BYTES: usize = 1 << 30;
const LOADS: u32 = 1 << 20;

/// Seconds for a load from so many bytes of memory, each of another line and known only when the
/// one before is there: what a search waits for.
pub fn dependent_load(bench: &Bench, bytes: usize) -> f64 {
    let count = (bytes.min(MOST_BYTES) / (LINE * size_of::<u64>())).max(2);
    let mut random = Random::new(1, 0);
    // One cycle through all lines (Sattolo): each holds the number of the next.
    let mut lines: Vec<[u64; LINE]> = (0..count as u64).map(|line| [line; LINE]).collect();
    for last in (1..count).rev() {
        let other = random.below(last as u64) as usize;
        let next = lines[last][0];
        lines[last][0] = lines[other][0];
        lines[other][0] = next;
    }
    let began = bench.env.now();
    let mut at = 0;
    for _ in 0..LOADS {
        at = lines[at as usize][0];
    }
    std::hint::black_box(at);
    (bench.env.now() - began).as_secs_f64() / f64::from(LOADS)
}

/// Random gets a second from the map, on so many threads, and a hash of what was got.
pub fn map_gets(
    bench: &Bench,
    map: &Arc<RowMap>,
    threads: usize,
    time: Duration,
) -> Result<(f64, u64)> {
    let began = bench.env.now();
    let end = began + time;
    let replies: Vec<_> = (0..threads as u64)
        .map(|thread| {
            let (promise, reply) = reply::promise();
            let (map, dataset) = (map.clone(), bench.dataset.clone());
            let (clock, stop) = (bench.env.clone(), bench.stop.clone());
            bench.env.spawn("bench-calibrator", async move {
                let mut random = Random::new(1, thread);
                let (mut gets, mut hash) = (0, 0_u64);
                while gets == 0 || (clock.now() < end && !stop.load(Ordering::Relaxed)) {
                    for _ in 0..GETS {
                        let value = map.get(&dataset.random_key(&mut random)[..]);
                        let first =
                            value.and_then(|value| value.first()).copied().unwrap_or_default();
                        hash = hash.rotate_left(5) ^ u64::from(first);
                    }
                    gets += GETS;
                }
                promise.send(Ok((gets, hash)));
            });
            reply
        })
        .collect();
    let (mut gets, mut hash) = (0, 0);
    for reply in replies {
        let (more, other) = reply.wait()?;
        gets += more;
        hash ^= other;
    }
    Ok((gets as f64 / (bench.env.now() - began).as_secs_f64(), hash))
}
