//! The pace of the node: looks at the gauges, sets the gate, lets those go on who may, and keeps rates for `status`.
//!
//! The gate and its controller are pure; here they meet the node. All of it runs in the task that rings for the chores, ten times
//! a second while nothing is limited, and often enough to hand out small portions while something is.

use crate::gate::{Admitted, Controller, Gauges, Rules, THROTTLE_BEGIN, THROTTLE_END, Targets};
use crate::metrics::{Count, Metrics};
use crate::room;
use crate::shared::Shared;
use crate::together::together;
use crate::visible::Answer;
use plinth_client::{Priority, ReadVersionReply, ReadVersionRequest};
use plinth_env::reply::{Promise, Reply, promise};
use plinth_storage::Storage;
use plinth_types::{Error, KeySelector, KeySpace, RangeRead, Result};
use std::time::Duration;

/// What waits at the gate.
pub(crate) type Gate = crate::gate::Gate<Promise<ReadVersionReply>>;

/// How often the gauges are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How often those who wait are let on.
const RELEASE: Duration = Duration::from_millis(5);
/// How often the rules for tags are read, and rates are taken.
const RULES: Duration = Duration::from_secs(1);
/// How often the free space of the disk is looked at.
const DISK: Duration = Duration::from_secs(5);
/// Most rules for tags.
const RULES_MOST: usize = 1000;

/// How large the node's queues may grow before transactions are held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadTargets {
    /// Bytes of transactions that wait to be committed.
    pub queue_bytes: u64,
    /// Bytes of older versions of rows in memory; with the engine `ssd` two fifths of its memory at most.
    pub window_bytes: u64,
}

impl Default for LoadTargets {
    fn default() -> Self {
        Self { queue_bytes: 64 << 20, window_bytes: 4 << 30 }
    }
}

/// The answer to a request for a read version, now.
#[inline]
pub(crate) fn answer(shared: &Shared, lock_aware: bool, priority: Priority) -> Result<ReadVersionReply> {
    let Answer { version, locked, metadata_version } =
        shared.visible.answer(|| crate::endpoint::now_committed(shared));
    if locked && !lock_aware {
        return Err(Error::database_locked());
    }
    plinth_usdt::transaction_start(version, priority as u8);
    Ok(ReadVersionReply { version, metadata_version })
}

/// A request that doesn't pass without being looked at. Each of the transactions that it stands for is let in by itself.
pub(crate) fn begin(shared: &Shared, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
    if request.others == 0 {
        return begin_one(shared, request);
    }
    let one = || ReadVersionRequest { others: 0, ..request.clone() };
    let all: Vec<_> = (0..=request.others).map(|_| begin_one(shared, one())).collect();
    together(all.into_iter())
}

fn begin_one(shared: &Shared, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
    let (promise, reply) = promise();
    let (priority, lock_aware) = (request.priority, request.lock_aware);
    match shared.health.gate.admit(request, promise, shared.env.now()) {
        Admitted::Now(_) => {
            shared.counters.metrics.started(priority, 1);
            Reply::ready(answer(shared, lock_aware, priority))
        }
        Admitted::Later => reply,
        Admitted::Refused(_, error) => Reply::ready(Err(error)),
    }
}

/// What the task that paces the node remembers.
pub(crate) struct Pace {
    controller: Controller,
    rules: Rules,
    looked: Duration,
    /// What waited to be committed at each tick since the look before, in bytes, added up, and how many ticks there were.
    queued: (u64, u64),
    rules_read: Option<Duration>,
    disk_next: Duration,
}

impl Pace {
    /// A pace that holds to these targets, where versions stay in the window for so long.
    pub fn new(targets: LoadTargets, window: Duration) -> Self {
        let LoadTargets { queue_bytes, window_bytes } = targets;
        let controller = Controller::new(Targets { queue_bytes, window_bytes, window });
        Self {
            controller,
            rules: Rules::default(),
            looked: Duration::ZERO,
            queued: (0, 0),
            rules_read: None,
            disk_next: Duration::ZERO,
        }
    }

    /// How long until there is something to do, at most.
    pub fn pause(&self, shared: &Shared) -> Duration {
        if shared.health.gate.is_open() { LOOK } else { RELEASE }
    }

    /// Does what is due.
    pub fn tick(&mut self, shared: &Shared) {
        let now = shared.env.now();
        let rows = room::look(shared);
        self.queued = (self.queued.0 + shared.queue.depth().1 as u64, self.queued.1 + 1);
        if now >= self.looked + LOOK || self.rules_read.is_none() {
            self.looked = now;
            if self.rules_read.is_none_or(|then| now >= then + RULES) {
                self.rules_read = Some(now);
                self.read_rules(shared);
                shared.counters.metrics.rates.take(now, totals(shared));
            }
            let queue_bytes = self.queue(shared);
            let started = shared.counters.metrics.started_all();
            let window_bytes = shared.storage.memory().window;
            let waiting = shared.health.gate.held_back() as u64;
            let gauges = Gauges {
                queue_bytes,
                window_bytes,
                fullness: shared.storage.fullness().into(),
                backlog: shared.storage.backlog().into(),
                rows,
                started,
                written: shared.counters.bytes_written.get(),
                waiting,
            };
            let (before, limits) = (shared.health.gate.limits(), self.controller.look(gauges, now));
            if (before.reason, before.batch_reason) != (limits.reason, limits.batch_reason) {
                crate::events::limited(&limits);
            }
            shared.health.gate.limit(limits, &self.rules, now);
        }
        if !shared.health.gate.is_open() {
            release(shared, now);
        }
    }

    /// The bytes that wait to be committed, lately. The queue is empty at some moment of each batch, so one look says little. While nothing
    /// is limited, it is the most that there were; while something is, halfway between the mean of the ticks and the most, which a
    /// single burst can double: starts of a connection come together.
    fn queue(&mut self, shared: &Shared) -> u64 {
        let peak = shared.queue.take_peak() as u64;
        let (bytes, ticks) = std::mem::take(&mut self.queued);
        if shared.health.gate.is_open() {
            peak
        } else {
            bytes.checked_div(ticks).unwrap_or(peak).midpoint(peak)
        }
    }

    /// Looks at the disk, now and then.
    pub async fn look_at_disk(&mut self, shared: &Shared) {
        let now = shared.env.now();
        let Some(directory) = shared.directory.as_ref().filter(|_| now >= self.disk_next) else { return };
        self.disk_next = now + DISK;
        if let Ok(free) = shared.env.files().free_space(&directory.path).await {
            shared.counters.metrics.note_free_bytes(free);
        }
    }

    /// Reads the rules for tags. What can't be read at once stays as it was.
    fn read_rules(&mut self, shared: &Shared) {
        let read = RangeRead {
            begin: KeySelector::first_greater_or_equal(THROTTLE_BEGIN),
            end: KeySelector::first_greater_or_equal(THROTTLE_END),
            limit: RULES_MOST,
            target_bytes: usize::MAX,
            reverse: false,
        };
        let version = shared.versions.committed();
        if let Some(Ok(result)) = shared.storage.get_range(version, KeySpace::System, &read).try_take() {
            self.rules = Rules::read(result.rows.iter(), shared.env.wall_clock());
        }
    }
}

/// Everything that has a rate in `status`, in the order of [`Rated`].
fn totals(shared: &Shared) -> [u64; Rated::COUNT] {
    let (counters, metrics) = (&shared.counters, &shared.counters.metrics);
    let mut totals = [0; Rated::COUNT];
    let counts = [
        (Rated::Reads, metrics.get(Count::Reads)),
        (Rated::Keys, metrics.get(Count::Keys)),
        (Rated::BytesRead, metrics.get(Count::Bytes)),
        (Rated::StartedBatch, metrics.get(Count::StartedBatch)),
        (Rated::StartedDefault, metrics.get(Count::StartedDefault)),
        (Rated::StartedImmediate, metrics.get(Count::StartedImmediate)),
        (Rated::Committed, counters.committed.get()),
        (Rated::Conflicted, counters.conflicted.get()),
        (Rated::Mutations, counters.mutations.get()),
        (Rated::BytesWritten, counters.bytes_written.get()),
    ];
    for (rated, total) in counts {
        totals[rated as usize] = total;
    }
    totals
}

pub(crate) use crate::metrics::Rated;

/// Lets those go on who may by now.
fn release(shared: &Shared, now: Duration) {
    let metrics: &Metrics = &shared.counters.metrics;
    for (waiter, error) in shared.health.gate.release(now) {
        let result = match error {
            Some(error) => Err(error),
            None => {
                metrics.started(waiter.request.priority, 1);
                answer(shared, waiter.request.lock_aware, waiter.request.priority)
            }
        };
        metrics.start_wait.record(now.saturating_sub(waiter.since), 1);
        waiter.answer.send(result);
    }
}

/// The node closes: nobody waits any longer.
pub(crate) fn close(shared: &Shared) {
    crate::events::closed();
    for waiter in shared.health.gate.drain() {
        waiter.answer.send(Err(Error::shutdown_in_progress()));
    }
}
