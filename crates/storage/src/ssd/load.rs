//! How a read gets at blocks: from the cache at once, from files only on a thread that may wait.
//!
//! A read is a future. The caller's thread polls it once; if all its blocks are in the cache it
//! comes to its end there. The first block that is missing stops it, and it is handed to the
//! [`Pool`], whose threads may wait for the disk.

use super::cache::Cache;
use super::rows::RowsBlock;
use super::table::Table;
use crate::failure::{Answer, StorageError, StorageResult};
use plinth_env::reply::{Promise, Reply};
use plinth_env::{Env, Signal, Task};
use plinth_types::probe;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

/// Reads that may wait for the disk at one time.
pub(crate) const READERS: usize = 32;

/// What reads have cost.
#[derive(Default)]
pub(crate) struct ReadCounts {
    /// Reads from files that readers waited for.
    pub device: AtomicU64,
    /// Keys whose value was looked for in a file: some block on the way was not in the cache.
    pub uncached: AtomicU64,
    /// Blocks that were damaged, and what was wrong with the first.
    pub damaged: AtomicU64,
    pub damage: OnceLock<StorageError>,
}

impl ReadCounts {
    /// Notes it if a file turned out to be damaged.
    fn note<T>(&self, read: StorageResult<T>) -> StorageResult<T> {
        if let Err(error) = &read
            && error.is_damage()
        {
            self.damaged.fetch_add(1, Ordering::Relaxed);
            let _ = self.damage.set(error.clone());
        }
        read
    }
}

/// What a read has to get blocks with.
pub(crate) struct Loader {
    cache: Arc<Cache>,
    may_wait: AtomicBool,
    /// Reads for which blocks pass by once: they take what the cache has, and leave nothing there.
    passing: bool,
    counts: Arc<ReadCounts>,
}

impl Loader {
    /// For a read that begins on the caller's thread.
    pub fn new(cache: &Arc<Cache>, counts: &Arc<ReadCounts>) -> Self {
        Self {
            cache: cache.clone(),
            may_wait: AtomicBool::new(false),
            passing: false,
            counts: counts.clone(),
        }
    }

    /// For a task that may wait.
    pub fn waiting(cache: &Arc<Cache>, counts: &Arc<ReadCounts>) -> Self {
        let loader = Self::new(cache, counts);
        loader.allow_waiting();
        loader
    }

    /// For a task that may wait and goes through everything once.
    pub fn passing(cache: &Arc<Cache>, counts: &Arc<ReadCounts>) -> Self {
        Self { passing: true, ..Self::waiting(cache, counts) }
    }

    pub fn allow_waiting(&self) {
        self.may_wait.store(true, Ordering::Release);
    }

    /// A block of rows; notes whether it had to be read from its file.
    #[inline]
    pub async fn block(
        &self,
        table: &Arc<Table>,
        number: usize,
        was_read: &mut bool,
    ) -> StorageResult<Arc<RowsBlock>> {
        if let Some(block) = self.cache.get(table.id(), number as u32) {
            return Ok(block);
        }
        *was_read = true;
        self.wait().await;
        let block = Arc::new(self.counts.note(table.read_block(number, &self.cache).await)?);
        if !self.passing {
            self.cache.insert(table.id(), number as u32, &block);
        }
        Ok(block)
    }

    /// Goes on where it may wait for the disk, and counts what is read there.
    async fn wait(&self) {
        // Nobody wakes this: whoever lets it wait polls it again.
        poll_fn(|_| {
            if self.may_wait.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        probe!("ssd: blocks read from a file");
        // What merges read nobody waits for.
        if !self.passing {
            self.counts.device.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a key that was looked for in a file.
    pub fn note_uncached(&self) {
        self.counts.uncached.fetch_add(1, Ordering::Relaxed);
    }

    /// A block from the cache.
    pub fn cached(&self, table: &Table, number: usize) -> Option<Arc<RowsBlock>> {
        self.cache.get(table.id(), number as u32)
    }

    /// Reads blocks that lie one behind the other.
    pub async fn read(
        &self,
        table: &Arc<Table>,
        first: usize,
        count: usize,
    ) -> StorageResult<VecDeque<Arc<RowsBlock>>> {
        self.wait().await;
        let blocks = match self.passing {
            true => table.read_rows(first, count, |len| vec![0; len]).await,
            false => table.read_rows(first, count, |len| self.cache.buffer(len)).await,
        };
        let blocks = self.counts.note(blocks)?;
        let blocks: VecDeque<_> = blocks.into_iter().map(Arc::new).collect();
        if !self.passing {
            for (number, block) in (first..).zip(&blocks) {
                self.cache.insert(table.id(), number as u32, block);
            }
        }
        Ok(blocks)
    }
}

/// What a future gives if it is ready at once.
#[inline]
pub(crate) fn attempt<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The threads on which reads wait for the disk.
#[derive(Default)]
pub(crate) struct Pool {
    state: Mutex<PoolState>,
    signal: Signal,
}

#[derive(Default)]
struct PoolState {
    jobs: VecDeque<Job>,
    idle: usize,
    tasks: Vec<Task>,
    closed: bool,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a read on one of the threads; their number grows with need up to [`READERS`]. Refused
    /// with `Closed` once closed.
    pub fn run<T: Send + 'static>(
        self: &Arc<Self>,
        env: &Env,
        read: impl Future<Output = StorageResult<T>> + Send + 'static,
    ) -> Answer<T> {
        let (done, reply) = Promise::pair();
        let job: Job = Box::pin(async move {
            // Nobody wants the answer of a read that was cancelled.
            if !done.is_cancelled() {
                done.send(read.await);
            }
        });
        let mut state = self.lock();
        if state.closed {
            return Reply::ready(Err(StorageError::Closed));
        }
        state.jobs.push_back(job);
        if state.jobs.len() > state.idle && state.tasks.len() < READERS {
            let pool = self.clone();
            let name = format!("read-{}", state.tasks.len());
            state.tasks.push(env.spawn(&name, async move { pool.work().await }));
        }
        assert!(state.tasks.len() <= READERS, "{} readers", state.tasks.len());
        drop(state);
        self.signal.notify();
        reply
    }

    async fn work(&self) {
        loop {
            let (job, more) = {
                let mut state = self.lock();
                let job = state.jobs.pop_front();
                if job.is_none() {
                    if state.closed {
                        drop(state);
                        return self.signal.notify();
                    }
                    state.idle += 1;
                }
                (job, !state.jobs.is_empty())
            };
            match job {
                Some(job) => {
                    // One knock stands for any number of jobs: whoever takes one passes it on.
                    if more {
                        self.signal.notify();
                    }
                    job.await;
                }
                None => {
                    self.signal.wait().await;
                    let mut state = self.lock();
                    assert!(state.idle > 0, "a reader that isn't idle is woken");
                    state.idle -= 1;
                }
            }
        }
    }

    /// Lets the threads end once the reads that were asked for are done. Gives them, to be waited
    /// for.
    pub fn close(&self) -> Vec<Task> {
        let tasks = {
            let mut state = self.lock();
            state.closed = true;
            std::mem::take(&mut state.tasks)
        };
        self.signal.notify();
        tasks
    }
}
