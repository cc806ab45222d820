//! Transactions: what they are made of, and the calls that need no more than a line.
//!
//! [`Transaction`] is a handle on [`Inner`], which is one lock around [`State`]. That has parts, of
//! which each knows its own fields only, and none of the lock: the read set, the write set, the
//! commit's attempt and its outcome, the life cycle, the read version, the batches of point reads,
//! the watches.
//!
//! The calls stand above them by topic: reads, writes, commit, retry, options, watches. A call
//! locks, has the parts decide, unlocks, and only then talks to the endpoint or wakes somebody (see
//! `state`). Special keys reach a transaction through a trait of theirs (`special`), merging
//! through another (`ranges`); mapped ranges stand above the range reads.

mod after;
mod attempt;
mod backoff;
mod batches;
mod buffers;
mod commit;
mod done;
mod get;
mod life;
mod options;
mod outcome;
mod ranges;
mod read_set;
mod read_version;
mod reading;
mod reads;
mod retry;
mod shown;
mod size;
mod special;
mod state;
mod tasks;
mod unknown;
mod version;
mod watch_list;
mod watches;
mod write_set;
mod writes;

pub use get::Get;
pub(crate) use ranges::{RangeCall, View};
pub use reads::Snapshot;
pub(crate) use tasks::Task;

use crate::database::{Database, Defaults};
use crate::options::Settings;
use crate::prefix::TenantPrefix;
use crate::special_keys::Special;
use after::After;
use plinth_env::Env;
use plinth_env::reply::Reply;
use plinth_types::{Result, Version};
use state::State;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

/// A transaction: reads at one version, writes that take effect together, or not at all.
///
/// All calls may be made from any thread, and at the same time. Clones are the same transaction.
/// What a read sees of the transaction's own writes is decided when the read is called, not when
/// its result is awaited. Calls that return nothing keep their error for the next one that can tell
/// it (a read, or commit).
///
/// When the last handle is dropped, watches that were not committed fail; reads and a commit on
/// their way go on.
pub struct Transaction {
    inner: Arc<Inner>,
}

struct Inner {
    database: Database,
    tenant: Option<Arc<TenantPrefix>>,
    /// How many [`Transaction`]s there are.
    handles: AtomicUsize,
    itself: Weak<Inner>,
    /// What is asked in place of the database's endpoint.
    shown: shown::Shown,
    /// Whether reads have anything to look for under the lock: a version that is kept, locked
    /// ranges.
    reads_apart: AtomicBool,
    state: Mutex<State>,
}

impl Transaction {
    pub(crate) fn new(database: Database, tenant: Option<Arc<TenantPrefix>>) -> Self {
        let persistent = database.defaults();
        Self::with_options(database, tenant, persistent)
    }

    /// A transaction without the user's defaults, for the client's own work.
    pub(crate) fn bare(database: &Database) -> Self {
        Self::with_options(database.newest(), None, Vec::new())
    }

    /// A transaction that begins with these options.
    fn with_options(
        database: Database,
        tenant: Option<Arc<TenantPrefix>>,
        persistent: Defaults,
    ) -> Self {
        let state = State {
            life: life::Life::new(database.endpoint().env().now()),
            options: Settings::new(database.snapshot_ryw()),
            persistent,
            version: read_version::ReadVersion::default(),
            batches: batches::Batches::default(),
            tasks: tasks::Tasks::default(),
            reads: read_set::ReadSet::default(),
            writes: write_set::WriteSet::default(),
            outcome: outcome::Outcome::default(),
            backoff: backoff::Backoff::new(),
            watches: watch_list::WatchList::default(),
            special: Special::default(),
        };
        let inner = Arc::new_cyclic(|itself| Inner {
            database,
            tenant,
            handles: AtomicUsize::new(1),
            itself: itself.clone(),
            shown: shown::Shown::default(),
            reads_apart: AtomicBool::new(false),
            state: Mutex::new(state),
        });
        inner.with(|state, after| {
            state.take_buffers();
            inner.apply_persistent(state, after);
        });
        Self { inner }
    }

    /// The database that this is a transaction on.
    pub fn database(&self) -> &Database {
        &self.inner.database
    }

    /// The clock, random numbers and timers that the transaction uses.
    pub fn env(&self) -> &Env {
        self.inner.env()
    }

    /// The version at which the transaction was committed; `None` before, and if it wrote nothing.
    ///
    /// ```
    /// # fn example(db: plinth_client::Database) -> plinth_client::Result<()> {
    /// let tr = db.create_transaction();
    /// tr.set("hello", "world");
    /// assert_eq!(tr.committed_version(), None);
    /// tr.commit().wait()?;
    /// assert!(tr.committed_version().is_some());
    /// # Ok(()) }
    /// ```
    pub fn committed_version(&self) -> Option<Version> {
        self.inner.lock().outcome.committed_version()
    }

    /// About how many bytes the commit will have, as it is held against the size limit.
    pub fn approximate_size(&self) -> Reply<i64> {
        let state = self.inner.lock();
        Reply::ready(state.life.check_deferred().map(|()| state.size()))
    }

    /// What the transaction's reads and writes cost so far: each a multiple of 4096 bytes, writes
    /// four times.
    pub fn total_cost(&self) -> Reply<i64> {
        let state = self.inner.lock();
        let checked = state.life.check_deferred();
        Reply::ready(checked.map(|()| state.reads.cost() + state.writes.cost()))
    }

    /// How many seconds this try of the transaction was held back because of its tags: how long it
    /// has waited for its read version, if it has tags, and at least five milliseconds.
    pub fn tag_throttled_duration(&self) -> Reply<f64> {
        let state = self.inner.lock();
        let checked = state.life.check_deferred();
        Reply::ready(checked.map(|()| state.version.held_back().as_secs_f64()))
    }
}

impl Clone for Transaction {
    fn clone(&self) -> Self {
        self.inner.handles.fetch_add(1, Ordering::Relaxed);
        Self { inner: self.inner.clone() }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.inner.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.inner.with(|state, after| {
                state.watches.fail_all(&plinth_types::Error::transaction_cancelled(), after);
                if let Some(timer) = state.life.disarm() {
                    after.drop_later(timer);
                }
            });
        }
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.inner.lock();
        f.debug_struct("Transaction")
            .field("read_version", &state.version.known())
            .field("mutations", &state.writes.mutation_count())
            .field("committed_version", &state.outcome.committed_version())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner).leave_buffers();
    }
}

impl Inner {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `f` under the lock, then what it left to be called afterwards.
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut State, &mut After) -> R) -> R {
        let mut after = After::default();
        let result = f(&mut self.lock(), &mut after);
        after.run();
        result
    }

    fn database(&self) -> &Database {
        &self.database
    }

    #[inline]
    fn endpoint(&self) -> shown::Asked<'_> {
        match self.shown.get() {
            None => shown::Asked::Plain(&**self.database.endpoint()),
            Some(showing) => shown::Asked::Showing(showing),
        }
    }

    #[inline]
    fn env(&self) -> &Env {
        self.database.endpoint().env()
    }

    /// The prefix of all keys of the tenant; empty without one. Only behind a read version, or
    /// `tenant_known`: before it may not be known.
    #[inline]
    fn prefix(&self) -> &[u8] {
        self.tenant.as_deref().map_or(&[], |tenant| tenant.prefix())
    }

    #[inline]
    fn has_tenant(&self) -> bool {
        self.tenant.is_some()
    }

    /// The API version whose behaviour the transaction has.
    #[inline]
    fn api_version(&self) -> i32 {
        self.database.api_version()
    }

    /// Whether the transaction has the behaviour of this API version or a later one.
    #[inline]
    fn api(&self, version: i32) -> bool {
        self.api_version() >= version
    }

    /// Notes what an operation leaves that was over at once.
    fn over_at_once(&self, epoch: u64, read: bool, error: Option<&plinth_types::Error>) {
        if !read && !self.api(410) {
            self.with(|state, after| self.renew_if_due(state, after));
        }
        if read && let Some(error) = error {
            self.with(|state, _| {
                if state.life.is_in(epoch) {
                    state.reads.fail(error);
                }
            });
        }
    }

    /// Starts an operation: over at once if all its answers are there, else driven by them (see
    /// `tasks`).
    ///
    /// With `read`, commit waits for it and fails with its error.
    fn launch<T: Send + 'static>(
        self: &Arc<Self>,
        epoch: u64,
        read: bool,
        operation: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Reply<T> {
        let mut operation: tasks::Operation<T> = Box::pin(operation);
        if let Poll::Ready(result) =
            operation.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            self.over_at_once(epoch, read, result.as_ref().err());
            return Reply::ready(result);
        }
        let (mut promise, reply) = plinth_env::reply::promise();
        let slot = Arc::new(Mutex::new(None::<usize>));
        if read {
            // A read that nobody waits for any more is taken back; a commit or a retry goes on.
            let (inner, slot) = (Arc::downgrade(self), slot.clone());
            promise.on_cancel(move || {
                let at = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
                let (Some(inner), Some(at)) = (inner.upgrade(), at) else { return };
                inner.with(|state, after| {
                    if state.life.is_in(epoch)
                        && let Some(task) = state.tasks.remove(at)
                    {
                        state.reads.finish(1, None, after);
                        after.abort(task, plinth_types::Error::operation_cancelled());
                    }
                });
            });
        }
        let task = Task::new(operation, promise);
        let (inner, finished) = (self.clone(), slot.clone());
        task.on_finish(move |result| {
            let at = finished.lock().unwrap_or_else(PoisonError::into_inner).take();
            inner.with(|state, after| {
                if let Some(at) = at
                    && state.life.is_in(epoch)
                    && state.tasks.remove(at).is_some()
                    && read
                {
                    state.reads.finish(1, result.as_ref().err(), after);
                }
                inner.renew_if_due(state, after);
            });
        });
        let outdated = self.with(|state, _| {
            if !state.life.is_in(epoch) {
                return Some(plinth_types::Error::transaction_cancelled());
            }
            if let Err(dead) = state.life.check_alive() {
                return Some(dead);
            }
            let at = state.tasks.insert(task.clone());
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
            if read {
                state.reads.begin();
            }
            None
        });
        match outdated {
            Some(error) => tasks::Abort::abort(&*task, error),
            None => task.run(),
        }
        reply
    }
}
