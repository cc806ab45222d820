//! Loading the rows: the guide's million through ordinary transactions, a hundred rows each, many
//! under way at once.
//!
//! What the process occupies is noted before, meanwhile and after, since only the run that loads
//! can know it.

use crate::dataset::{self, Dataset};
use crate::machine::{self, MemoryWatch};
use crate::progress::Progress;
use crate::random::Random;
use crate::{Error, Result, words};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use plinth_client::Database;
use plinth_env::{Env, block_on, reply};
use serde_json::{Value, json};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Rows in one transaction of the load: 7 KB.
const ROWS_A_TRANSACTION: u64 = 100;
/// Transactions of the load under way at once.
const LOADERS: u64 = 32;
/// Parts of the load whose time is noted.
const TENTHS: u64 = 10;
/// How often progress is shown.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// How the rows were loaded.
#[derive(Clone, PartialEq, Debug)]
pub struct Load {
    /// Rows loaded.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// How long it took.
    pub time: Duration,
    /// When each tenth of the rows was there, after the begin.
    pub tenths: Vec<Duration>,
    /// Memory of the process before, in bytes, where that can be known.
    pub resident_before: Option<u64>,
    /// Memory of the process right after, in bytes.
    pub resident_after: Option<u64>,
    /// The most memory of the process meanwhile, in bytes.
    pub resident_highest: Option<u64>,
}

impl Load {
    /// Rows a second.
    pub fn rate(&self) -> f64 {
        self.rows as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// For the report.
    pub fn to_json(&self) -> Value {
        json!({
            "rows": self.rows,
            "bytes": self.bytes,
            "seconds": self.time.as_secs_f64(),
            "rows_per_second": self.rate(),
            "seconds_of_tenths": self.tenths.iter().map(Duration::as_secs_f64).collect::<Vec<_>>(),
            "resident_bytes_before": self.resident_before,
            "resident_bytes_after": self.resident_after,
            "resident_bytes_highest": self.resident_highest,
        })
    }
}

/// Loads all rows of `dataset`.
pub fn load(
    env: &Env,
    database: &Database,
    dataset: &Dataset,
    progress: Progress,
    stop: &Arc<AtomicBool>,
) -> Result<Load> {
    let resident_before = machine::resident(env);
    let watch = MemoryWatch::begin(env);
    let began = env.now();
    let task = progress.counted("loading", dataset.rows(), "rows");
    let shared = Arc::new(Loading {
        database: database.clone(),
        dataset: dataset.clone(),
        next: AtomicU64::new(0),
        done: AtomicU64::new(0),
        tenths: Mutex::default(),
        env: env.clone(),
        stop: stop.clone(),
    });
    let (promise, reply) = reply::promise();
    let loading = shared.clone();
    env.spawn("bench-load", async move {
        let mut loaders: FuturesUnordered<_> =
            (0..LOADERS).map(|number| loading.some(number)).collect();
        let mut bytes = Ok(0);
        while let Some(more) = loaders.next().await {
            bytes = bytes.and_then(|bytes| more.map(|more| bytes + more));
        }
        promise.send(bytes);
    });
    while !reply.is_ready() {
        block_on(env.sleep(TICK));
        let done = shared.done.load(Ordering::Relaxed);
        let rate = done as f64 / (env.now() - began).as_secs_f64();
        task.set(done, format!("{} rows/s", words::short(rate)));
    }
    let bytes = reply.wait()?;
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let (time, resident_after, resident_highest) =
        (env.now() - began, machine::resident(env), watch.end());
    let tenths = lock(&shared.tenths).iter().map(|at| *at - began).collect();
    Ok(Load {
        rows: shared.dataset.rows(),
        bytes,
        time,
        tenths,
        resident_before,
        resident_after,
        resident_highest,
    })
}

/// What the loaders share.
struct Loading {
    database: Database,
    dataset: Dataset,
    /// The first row that no loader has taken yet.
    next: AtomicU64,
    /// Rows committed.
    done: AtomicU64,
    /// When each tenth of them was.
    tenths: Mutex<Vec<Duration>>,
    env: Env,
    stop: Arc<AtomicBool>,
}

impl Loading {
    /// One loader: takes the next hundred rows until none are left; gives the bytes of keys and
    /// values it wrote.
    async fn some(&self, number: u64) -> plinth_types::Result<u64> {
        let mut random = Random::new(self.dataset.rows(), number);
        let mut bytes = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let first = self.next.fetch_add(ROWS_A_TRANSACTION, Ordering::Relaxed);
            let end = self.dataset.rows().min(first + ROWS_A_TRANSACTION);
            if first >= end {
                break;
            }
            bytes += self.write(first..end, &mut random).await?;
            let done = self.done.fetch_add(end - first, Ordering::Relaxed) + end - first;
            let mut tenths = lock(&self.tenths);
            while done * TENTHS >= self.dataset.rows() * (tenths.len() as u64 + 1)
                && (tenths.len() as u64) < TENTHS
            {
                tenths.push(self.env.now());
            }
        }
        Ok(bytes)
    }

    /// Writes these rows in one transaction; gives the bytes of their keys and values.
    async fn write(&self, rows: Range<u64>, random: &mut Random) -> plinth_types::Result<u64> {
        let transaction = self.database.create_transaction();
        loop {
            let mut bytes = 0;
            for number in rows.clone() {
                let value = self.dataset.random_value(random);
                bytes += (dataset::KEY_LEN + value.len()) as u64;
                transaction.set(dataset::key(number), value);
            }
            match transaction.commit().await {
                Ok(()) => return Ok(bytes),
                Err(error) => transaction.on_error(error).await?,
            }
        }
    }
}

/// What a mutex guards, whoever panicked while it was locked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
