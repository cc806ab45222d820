//! The leader: what one replica is besides, for one term. It makes entries: version, decisions, mutations.
//!
//! ```text
//!   queue ─▶ batch lock: one batch at a time is decided and appended ─▶ in flight ─▶ settled:
//!            sequencer, resolver, metadata, the log's writer              ▲          replica applies,
//!                                              the log's commit position ─┘          clients are answered
//!   gate ─▶ read versions: the newest applied one, proven where that is needed
//! ```
//!
//! It may be dropped at any instant, with its tasks: [`Leader::resign`] answers everybody who waits.
//! What was appended has an unknown fate, what was not is told why, and may be sent again.
//!
//! Always: batches take effect in the order in which they were appended; nothing is acknowledged
//! before it is committed and applied; after it has resigned, a leader acknowledges nothing.
//! Read next: `worker.rs` for a batch's way, `chores.rs` for what is done while there is none.

use crate::batch::Decided;
use crate::batch_lock::BatchLock;
use crate::in_flight::{Appended, InFlight};
use crate::metadata::Metadata;
use crate::proof::{Proofs, Prover};
use crate::queue::CommitQueue;
use crate::replica::{Entry, Replica};
use crate::versions::Versions;
use crate::visible;
use plinth_client::{Priority, ReadVersionReply};
use plinth_env::Signal;
use plinth_env::reply::{Promise, Reply, promise};
use plinth_log::{CommitLog, Position};
use plinth_resolver::Resolver;
use plinth_types::{CommitReply, Error, LogPosition, Result, Version, planted, probe};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// What waits at the gate.
pub(crate) type Gate = crate::gate::Gate<Promise<ReadVersionReply>>;

/// What decides batches and appends them. One task at a time holds it.
pub(crate) struct Batcher {
    /// `None`: the database lives in memory alone.
    pub log: Option<Box<dyn CommitLog>>,
    pub resolver: Resolver,
    /// After the last batch that was decided, which may not be visible yet.
    pub metadata: Metadata,
}

/// A batch that was appended.
pub(crate) struct Batch {
    pub version: Version,
    /// `None`: the database lives in memory alone.
    pub position: Option<Position>,
    /// The lease that was appended with it.
    pub lease: Option<Version>,
    pub decided: Decided,
    /// How long it took to get so far, and when that was.
    pub formed: Duration,
    pub appended: Duration,
    pub span: tracing::Span,
    /// Lasts until it is committed.
    pub sync_span: tracing::Span,
}

impl Appended for Batch {
    fn position(&self) -> Option<Position> {
        self.position
    }

    fn version(&self) -> Version {
        self.version
    }
}

impl Batch {
    /// It is not known whether it will be found committed.
    pub fn unknown(self, cause: &Error) {
        self.decided.accepted.into_iter().for_each(|accepted| accepted.answer.unknown(cause));
    }

    fn entry(&self) -> Entry<'_> {
        let mut lists = Vec::with_capacity(self.decided.accepted.len() + 1);
        lists.extend(self.decided.accepted.iter().map(|accepted| &accepted.mutations));
        lists.push(&self.decided.records);
        let at = match self.position {
            Some(position) => position.entry(self.version),
            None => LogPosition::without_log(self.version),
        };
        Entry { at, lists, touches_metadata: self.decided.metadata.is_some() }
    }
}

/// Queue, batcher, sequencer, gate: one term of them.
pub(crate) struct Leader {
    pub replica: Arc<Replica>,
    pub queue: CommitQueue,
    pub batcher: BatchLock<Batcher>,
    pub in_flight: InFlight<Batch>,
    /// Commit workers that wait for the log to commit, and lend it their threads.
    pub waiting_for_log: AtomicUsize,
    pub versions: Versions,
    pub gate: Gate,
    /// Where a leader has to prove that it still is one.
    pub proofs: Option<Arc<Proofs>>,
    /// Wakes the task that does the chores.
    pub chores_due: Signal,
}

impl Leader {
    /// Begins a term on a replica that has applied everything there is.
    /// `prover` tells whether it still leads, where that has to be asked.
    pub fn begin(
        replica: Arc<Replica>,
        batcher: Batcher,
        versions: Versions,
        prover: Option<Box<dyn Prover>>,
    ) -> Self {
        Self {
            replica,
            queue: CommitQueue::default(),
            batcher: BatchLock::new(batcher),
            in_flight: InFlight::default(),
            waiting_for_log: AtomicUsize::new(0),
            versions,
            gate: Gate::default(),
            proofs: prover.map(Proofs::new),
            chores_due: Signal::new(),
        }
    }

    /// The newest version that may be read, moved along with the clock.
    #[inline]
    pub fn newest_readable(&self) -> Version {
        let Replica { env, storage, versions, .. } = &*self.replica;
        self.versions.read_version(versions, env.now(), |version| storage.publish(version))
    }

    /// The answer to a request for a read version, now.
    #[inline]
    pub fn read_version(&self, lock_aware: bool, priority: Priority) -> Result<ReadVersionReply> {
        let visible::Answer { version, locked, metadata_version } =
            self.replica.visible.answer(|| self.newest_readable());
        if locked && !lock_aware {
            return Err(Error::database_locked());
        }
        plinth_usdt::transaction_start(version, priority as u8);
        Ok(ReadVersionReply { version, metadata_version })
    }

    /// The same, once it is proven that this node leads, where that has to be proven.
    pub fn proven_read_version(
        self: &Arc<Self>,
        lock_aware: bool,
        priority: Priority,
    ) -> Reply<ReadVersionReply> {
        let Some(proofs) = &self.proofs else { return Reply::ready(self.read_version(lock_aware, priority)) };
        let (promise, reply) = promise();
        let this = self.clone();
        proofs.ask().on_complete(move |proven| {
            promise.send(proven.and_then(|()| this.read_version(lock_aware, priority)));
        });
        reply
    }

    /// Settles whatever is in flight up to `committed`: the replica applies it, its clients are answered.
    /// `None` where there is no log.
    pub async fn settle(&self, committed: Option<Position>) {
        while let Some(mut settling) = self.in_flight.next_committed(committed).await {
            settling.batch_mut().sync_span = tracing::Span::none();
            // Synced into files that nobody finds again is not durable.
            if let Err(lost) = self.replica.check_place() {
                self.fail(lost);
            }
            if let Some(cause) = self.replica.health.failure() {
                settling.done().unknown(&cause);
                continue;
            }
            let began = self.replica.env.now();
            let span = crate::events::apply(&settling.batch().span);
            let effect = self.replica.apply(&settling.batch().entry()).await;
            drop(span);
            match effect {
                Ok(fired) => {
                    self.versions.finish(settling.batch().lease);
                    self.answer(settling.done(), fired, began);
                }
                // It is in the log, and a restart will apply it.
                Err(cause) => {
                    settling.done().unknown(&cause);
                    self.fail(cause);
                }
            }
        }
    }

    /// Tells whoever waits for a batch that it has taken effect, or for what it changed.
    fn answer(&self, batch: Batch, fired: Vec<Promise<Version>>, settled: Duration) {
        let Replica { env, counters, waiting, .. } = &*self.replica;
        let Batch { version, decided, formed, appended, .. } = batch;
        counters.committed.add(decided.accepted.len() as u64);
        let took = formed + env.now().saturating_sub(appended);
        plinth_usdt::commit(version, decided.accepted.len(), took);
        for accepted in decided.accepted {
            let batch_index = accepted.batch_index;
            accepted.answer.send(Ok(CommitReply::Committed { version, batch_index }));
        }
        fired.into_iter().for_each(|promise| promise.send(Ok(version)));
        waiting.reached(version);
        let waits = &counters.metrics.waits;
        waits.sync.note(settled.saturating_sub(appended));
        waits.work.note(formed + env.now().saturating_sub(settled));
    }

    /// A planted bug: what was appended last takes effect although it isn't durable.
    pub async fn settle_early(&self) {
        if planted!("visible before it is durable") {
            self.settle(self.in_flight.last_position()).await;
        }
    }

    /// The node takes no more commits, and the leader is none any more.
    pub fn fail(&self, cause: Error) {
        self.replica.health.fail(cause.clone());
        self.resign(&cause);
    }

    /// Ends the term: whoever waits is answered, and nothing more is taken. May be called again.
    pub fn resign(&self, cause: &Error) {
        probe!("pipeline: the leader resigns");
        self.queue.fail(cause);
        self.in_flight.close(cause).into_iter().for_each(|batch| batch.unknown(cause));
        self.gate.drain().into_iter().for_each(|waiter| waiter.answer.send(Err(cause.clone())));
        self.chores_due.notify();
        self.replica.checkpoint_due.notify();
    }

    /// Panics if what must hold doesn't.
    pub fn check_invariants(&self) {
        self.in_flight.check_invariants();
        self.replica.check_invariants();
    }
}
