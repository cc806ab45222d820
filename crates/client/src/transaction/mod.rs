//! Transactions: what they are made of, and the calls that need no more than a line.
//!
//! [`Transaction`] is a handle on [`Inner`], which is one lock around [`State`]. The calls stand by
//! topic: reads, writes, commit, retry, options, watches. A call locks, decides, unlocks, and only
//! then talks to the endpoint or wakes somebody (see `state`).

pub(crate) mod batch;
mod buffers;
mod commit;
mod conflicts;
mod done;
pub(crate) mod options;
mod ranges;
mod reading;
mod reads;
mod retry;
mod state;
mod tasks;
mod unknown;
mod version;
mod watches;
mod writes;

pub use batch::Get;
pub(crate) use conflicts::{coalesced, of_get_range as range_conflict};
pub(crate) use ranges::View;
pub use reads::Snapshot;
pub(crate) use reads::unreadable;
pub(crate) use state::{After, State};

use crate::database::{Database, Defaults};
use crate::endpoint::Endpoint;
use crate::tenant::TenantPrefix;
use options::Options;
use plinth_env::Env;
use plinth_env::reply::Reply;
use plinth_types::{Result, Version};
use state::{Life, Outcome, ReadVersion, Reads, Retry};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
pub(crate) use tasks::Task;

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

pub(crate) struct Inner {
    database: Database,
    tenant: Option<Arc<TenantPrefix>>,
    /// How many [`Transaction`]s there are.
    handles: AtomicUsize,
    itself: Weak<Inner>,
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

    /// A transaction that begins with these options.
    pub(crate) fn with_options(
        database: Database,
        tenant: Option<Arc<TenantPrefix>>,
        persistent: Defaults,
    ) -> Self {
        let life = Life {
            deferred: None,
            dead: None,
            committing: false,
            renewal_due: false,
            epoch: 0,
            created: database.endpoint().env().now(),
            timer: None,
        };
        let state = State {
            life,
            options: Options::new(database.snapshot_ryw()),
            version: ReadVersion::default(),
            batches: batch::Batches::default(),
            tasks: tasks::Tasks::default(),
            reads: Reads::default(),
            writes: writes::Writes::default(),
            outcome: Outcome::default(),
            retry: Retry::new(persistent),
            watches: watches::WatchList::default(),
            special: None,
        };
        let inner = Arc::new_cyclic(|itself| Inner {
            database,
            tenant,
            handles: AtomicUsize::new(1),
            itself: itself.clone(),
            reads_apart: AtomicBool::new(false),
            state: Mutex::new(state),
        });
        inner.with(|state, after| {
            state.take_buffers();
            inner.apply_persistent(state, after);
        });
        Self { inner }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// The database that this is a transaction on.
    pub fn database(&self) -> &Database {
        &self.inner.database
    }

    /// The clock, random numbers and timers that the transaction uses.
    pub fn env(&self) -> &Env {
        self.inner.env()
    }

    /// The version at which the transaction was committed; -1 before, and if it wrote nothing.
    pub fn committed_version(&self) -> Version {
        self.inner.lock().outcome.committed_version
    }

    /// About how many bytes the commit will have, as it is held against the size limit.
    pub fn approximate_size(&self) -> Reply<i64> {
        let state = self.inner.lock();
        Reply::ready(state.check_deferred().map(|()| state.writes.size))
    }

    /// What the transaction's reads and writes cost so far: each a multiple of 4096 bytes, writes
    /// four times.
    pub fn total_cost(&self) -> Reply<i64> {
        let state = self.inner.lock();
        Reply::ready(state.check_deferred().map(|()| state.reads.cost + state.writes.cost))
    }

    /// How many seconds this try of the transaction was held back because of its tags: how long it
    /// has waited for its read version, if it has tags, and at least five milliseconds.
    pub fn tag_throttled_duration(&self) -> Reply<f64> {
        let state = self.inner.lock();
        Reply::ready(state.check_deferred().map(|()| state.version.held_back.as_secs_f64()))
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
                if let Some(timer) = state.life.timer.take() {
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
            .field("mutations", &state.writes.mutations.len())
            .field("committed_version", &state.outcome.committed_version)
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
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `f` under the lock, then what it left to be called afterwards.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State, &mut After) -> R) -> R {
        let mut after = After::default();
        let result = f(&mut self.lock(), &mut after);
        after.run();
        result
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    #[inline]
    pub(crate) fn endpoint(&self) -> &(dyn Endpoint + 'static) {
        &**self.database.endpoint()
    }

    #[inline]
    pub(crate) fn env(&self) -> &Env {
        self.endpoint().env()
    }

    /// The prefix of all keys of the tenant; empty without one. Only behind a read version, or
    /// `tenant_known`: before it may not be known.
    #[inline]
    pub(crate) fn prefix(&self) -> &[u8] {
        self.tenant.as_deref().map_or(&[], |tenant| tenant.prefix())
    }

    #[inline]
    pub(crate) fn has_tenant(&self) -> bool {
        self.tenant.is_some()
    }

    /// Ready once the tenant is known, or fails because there is none; `None` if nothing needs to
    /// be waited for.
    #[inline]
    pub(crate) fn tenant_known(&self) -> Option<Reply<()>> {
        let tenant = self.tenant.as_deref().filter(|tenant| !tenant.is_known())?;
        Some(tenant.looked_up())
    }

    /// Whether the transaction has the behaviour of this API version or a later one.
    #[inline]
    pub(crate) fn api(&self, version: i32) -> bool {
        self.database.api_version() >= version
    }

    /// Notes what an operation leaves that was over at once.
    fn over_at_once(&self, epoch: u64, read: bool, error: Option<&plinth_types::Error>) {
        if !read && !self.api(410) {
            self.with(|state, after| self.renew_if_due(state, after));
        }
        if read && let Some(error) = error {
            self.with(|state, _| {
                if state.life.epoch == epoch {
                    state.reads.failed.get_or_insert_with(|| error.clone());
                }
            });
        }
    }

    /// Starts an operation: over at once if all its answers are there, else driven by them (see
    /// `tasks`).
    ///
    /// With `read`, commit waits for it and fails with its error.
    pub(crate) fn launch<T: Send + 'static>(
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
                    if state.life.epoch == epoch
                        && let Some(task) = state.tasks.remove(at)
                    {
                        state.read_finished(1, None, after);
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
                    && state.life.epoch == epoch
                    && state.tasks.remove(at).is_some()
                    && read
                {
                    state.read_finished(1, result.as_ref().err(), after);
                }
                inner.renew_if_due(state, after);
            });
        });
        let outdated = self.with(|state, _| {
            if state.life.epoch != epoch {
                return Some(plinth_types::Error::transaction_cancelled());
            }
            if let Some(dead) = &state.life.dead {
                return Some(dead.clone());
            }
            let at = state.tasks.insert(task.clone());
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
            state.reads.pending += usize::from(read);
            None
        });
        match outdated {
            Some(error) => tasks::Abort::abort(&*task, error),
            None => task.run(),
        }
        reply
    }
}

/// What reading so many bytes costs.
pub(crate) fn read_cost(bytes: usize) -> i64 {
    const PAGE: usize = 4096;
    (bytes.div_ceil(PAGE).max(1) * PAGE) as i64
}

/// What writing so many bytes costs.
pub(crate) fn write_cost(bytes: usize) -> i64 {
    4 * read_cost(bytes)
}
