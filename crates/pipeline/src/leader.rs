//! The leader: what one replica is besides, for one term. It makes entries: version, decisions,
//! mutations.
//!
//! ```text
//!   queue ─▶ batch lock: one batch at a time is decided and appended ─▶ in flight ─▶ settled:
//!            sequencer, resolver, metadata, the log's writer              ▲          replica applies,
//!                                              the log's commit position ─┘          clients are answered
//!   gate ─▶ read versions: the newest applied one, proven where that is needed
//! ```
//!
//! It may be dropped at any instant, with its tasks: [`Leader::resign`] answers everybody who
//! waits. What was appended has an unknown fate, what was not is told why, and may be sent again.
//!
//! Always: batches take effect in the order in which they were appended; nothing is acknowledged
//! before it is committed and applied; after it has resigned, a leader acknowledges nothing.
//! Read next: `worker.rs` for a batch's way, `chores.rs` for what is done while there is none.

use crate::batch::Decided;
use crate::batch_lock::BatchLock;
use crate::failure::{NodeError, NodeResult};
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
use plinth_log::{CommitLog, LogView, Position};
use plinth_resolver::Resolver;
use plinth_types::{CommitReply, Error, LogPosition, Version, planted, probe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
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

impl Appended for Box<Batch> {
    fn position(&self) -> Option<Position> {
        self.position
    }

    fn version(&self) -> Version {
        self.version
    }
}

impl Batch {
    /// It is not known whether it will be found committed.
    pub fn unknown(self: Box<Self>, cause: &NodeError) {
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
        Entry { at, lists, touches_metadata: self.decided.touches_system }
    }
}

/// The term in which a leader leads a cluster.
pub(crate) struct Term {
    pub number: u64,
    /// The version of the newest entry of this term that has been applied.
    applied: AtomicI64,
}

/// How a leader ends: it takes nothing more, then everybody who waited is answered.
#[derive(Default)]
struct End {
    /// Its tasks are to end: it takes nothing more.
    retired: AtomicBool,
    resigned: AtomicBool,
    over: Signal,
}

impl End {
    fn retire(&self) {
        self.retired.store(true, Ordering::SeqCst);
    }

    fn is_retired(&self) -> bool {
        self.retired.load(Ordering::SeqCst)
    }

    fn resign(&self) {
        self.resigned.store(true, Ordering::SeqCst);
        self.over.notify();
    }

    fn check_invariants(&self) {
        let has_resigned = self.resigned.load(Ordering::SeqCst);
        assert!(!has_resigned || self.is_retired(), "who has resigned takes nothing more");
    }

    /// Waits until it has resigned.
    async fn wait(&self) {
        while !self.resigned.load(Ordering::SeqCst) {
            self.over.wait().await;
        }
        // The next one who waits is to be woken too.
        self.over.notify();
    }
}

/// Queue, batcher, sequencer, gate: one term of them.
pub(crate) struct Leader {
    pub replica: Arc<Replica>,
    pub queue: CommitQueue,
    pub batcher: BatchLock<Batcher>,
    /// Boxed: a batch is passed on several times on its way, and has half a kilobyte.
    pub in_flight: InFlight<Box<Batch>>,
    /// Commit workers that wait for the log to commit, and lend it their threads.
    pub waiting_for_log: AtomicUsize,
    pub versions: Versions,
    pub gate: Gate,
    /// Where a leader has to prove that it still is one.
    pub proofs: Option<Arc<Proofs>>,
    /// In a cluster. There it is the participant who applies entries, its own among them, and the
    /// term may end before the node does.
    pub term: Option<Term>,
    /// The same log, for whoever waits for its entries.
    pub log: Option<Arc<dyn LogView>>,
    end: End,
    /// Wakes the task that does the chores.
    pub chores_due: Signal,
}

impl Leader {
    /// Begins a term on a replica that has applied everything there is.
    /// In a cluster it has a number, and what tells whether the node still leads.
    pub fn begin(
        replica: Arc<Replica>,
        batcher: Batcher,
        versions: Versions,
        in_cluster: Option<(u64, Box<dyn Prover>)>,
    ) -> Self {
        // In a cluster another term may have begun, and its entries be applied, already.
        if in_cluster.is_none() {
            versions.check_invariants(&replica.visible.applied);
        }
        let (term, prover) = in_cluster.unzip();
        let log = batcher.log.as_ref().map(|log| log.view());
        Self {
            replica,
            queue: CommitQueue::default(),
            batcher: BatchLock::new(batcher),
            in_flight: InFlight::default(),
            waiting_for_log: AtomicUsize::new(0),
            versions,
            gate: Gate::default(),
            proofs: prover.map(Proofs::new),
            term: term.map(|number| Term { number, applied: AtomicI64::new(0) }),
            log,
            end: End::default(),
            chores_due: Signal::new(),
        }
    }

    /// The number of its term, in a cluster.
    pub fn term_number(&self) -> Option<u64> {
        self.term.as_ref().map(|term| term.number)
    }

    /// The newest version that may be read, moved along with the clock.
    #[inline]
    pub fn newest_readable(&self) -> Version {
        let Replica { env, storage, visible, .. } = &*self.replica;
        self.versions.read_version(&visible.applied, env.now(), |version| storage.publish(version))
    }

    /// The answer to a request for a read version, now.
    #[inline]
    pub fn read_version(
        &self,
        lock_aware: bool,
        priority: Priority,
    ) -> NodeResult<ReadVersionReply> {
        let visible::Answer { version, locked, range_locks, metadata_version } =
            self.replica.visible.answer(|| self.newest_readable());
        if locked && !lock_aware {
            return Err(NodeError::Locked);
        }
        plinth_usdt::transaction_start(version, priority as u8);
        let range_locks = range_locks.filter(|_| !lock_aware);
        Ok(ReadVersionReply { version, metadata_version, range_locks })
    }

    /// The same, once it is proven that this node leads, where that has to be proven.
    pub fn proven_read_version(
        self: &Arc<Self>,
        lock_aware: bool,
        priority: Priority,
    ) -> Reply<ReadVersionReply> {
        let Some(proofs) = &self.proofs else {
            return Reply::ready(self.read_version(lock_aware, priority).map_err(Error::from));
        };
        let (promise, reply) = promise();
        let this = self.clone();
        proofs.ask().on_complete(move |proven| {
            let answer = proven.and_then(|()| this.read_version(lock_aware, priority));
            promise.send(answer.map_err(Error::from));
        });
        reply
    }

    /// Settles whatever is in flight up to `committed`: the replica applies it, its clients are
    /// answered. `None` where there is no log. In a cluster it is the participant who applies.
    pub async fn settle(&self, committed: Option<Position>) {
        if self.term.is_some() {
            return;
        }
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

    /// In a cluster: an entry of this term has been applied, and so has everything before it. Its
    /// clients are told, and whoever waits for what it changed.
    pub async fn settle_applied(&self, version: Version, fired: Vec<Promise<Version>>) {
        if let Some(term) = &self.term {
            term.applied.fetch_max(version, Ordering::SeqCst);
        }
        assert!(
            version <= self.replica.newest(),
            "version {version} is acknowledged before it is applied"
        );
        let settled = self.replica.env.now();
        let mut fired = Some(fired);
        while let Some(mut settling) = self.in_flight.next_up_to(version).await {
            settling.batch_mut().sync_span = tracing::Span::none();
            self.versions.finish(settling.batch().lease);
            let batch = settling.done();
            let of_it = if batch.version == version { fired.take() } else { None };
            self.answer(batch, of_it.unwrap_or_default(), settled);
        }
        // Its clients have been told already that nobody knows.
        fired.into_iter().flatten().for_each(|promise| promise.send(Ok(version)));
    }

    /// In a cluster: a batch is in flight, whose entry may have been applied before it was.
    pub async fn settle_late(&self, version: Version) {
        let is_applied = |term: &Term| term.applied.load(Ordering::SeqCst) >= version;
        if self.term.as_ref().is_some_and(is_applied) {
            self.settle_applied(version, Vec::new()).await;
        }
    }

    /// Tells whoever waits for a batch that it has taken effect, or for what it changed.
    fn answer(&self, batch: Box<Batch>, fired: Vec<Promise<Version>>, settled: Duration) {
        let Replica { env, counters, waiting, .. } = &*self.replica;
        let Batch { version, decided, formed, appended, .. } = *batch;
        let newest = self.replica.newest();
        assert!(
            version <= newest || planted!("what is in flight is acknowledged when a term ends"),
            "version {version} is acknowledged, {newest} can be read"
        );
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

    /// The log takes or commits nothing more: in a cluster because the term is over, unless the log
    /// itself is broken.
    pub fn lose_log(&self, cause: NodeError) {
        let is_sound = self.log.as_ref().is_none_or(|log| log.check().is_ok());
        if self.term.is_some() && is_sound { self.resign(&cause) } else { self.fail(cause) }
    }

    /// Whether tasks of this leader are to end.
    pub fn is_over(&self) -> bool {
        self.end.is_retired() || self.replica.health.is_over()
    }

    /// Waits until it has resigned.
    pub async fn until_over(&self) {
        self.end.wait().await;
    }

    /// Whether the newest version is so old that whoever reads at it may soon be too old to commit.
    /// Only an entry moves it in a cluster.
    pub fn is_stale(&self) -> bool {
        let Replica { env, visible, config, .. } = &*self.replica;
        self.versions.lag(&visible.applied, env.now()) > config.window / 8
    }

    /// The node takes no more commits, and the leader is none any more.
    pub fn fail(&self, cause: NodeError) {
        self.replica.health.fail(cause.clone());
        self.resign(&cause);
    }

    /// Ends the term: whoever waits is answered, and nothing more is taken. May be called again.
    pub fn resign(&self, cause: &NodeError) {
        probe!("pipeline: the leader resigns");
        self.retire(cause);
        for batch in self.in_flight.close(cause) {
            if planted!("what is in flight is acknowledged when a term ends") && self.term.is_some()
            {
                self.answer(batch, Vec::new(), self.replica.env.now());
            } else {
                batch.unknown(cause);
            }
        }
        self.end.resign();
        self.replica.space.checkpoint.due.notify();
    }

    /// Nothing more is taken, and whoever waits to be is told; what was appended goes on.
    pub fn retire(&self, cause: &NodeError) {
        self.end.retire();
        self.queue.fail(cause);
        self.empty_gate(cause);
        self.chores_due.notify();
    }

    /// Nobody waits at the gate any longer.
    pub fn empty_gate(&self, cause: &NodeError) {
        let cause = Error::from(cause);
        self.gate.drain().into_iter().for_each(|waiter| waiter.answer.send(Err(cause.clone())));
    }

    /// Panics if what must hold doesn't.
    pub fn check_invariants(&self) {
        self.in_flight.check_invariants();
        self.queue.check_invariants();
        self.gate.check_invariants();
        self.end.check_invariants();
        let applied = &self.replica.visible.applied;
        match &self.term {
            None => self.versions.check_invariants(applied),
            // Entries of later terms are applied beside a leader that is one no longer.
            Some(term) => assert!(
                term.applied.load(Ordering::SeqCst) <= applied.newest(),
                "entries of a term were answered, not applied"
            ),
        }
        self.replica.check_invariants();
    }
}
