//! The pace of the node: looks at the gauges, sets the gate, lets those go on who may, and keeps
//! rates for `status`.
//!
//! The gate and its controller are pure; here they meet the node. All of it runs in the task that
//! rings for the chores, ten times a second while nothing is limited, and often enough to hand out
//! small portions while something is.

use crate::backpressure;
use crate::config::LoadTargets;
use crate::failure::NodeError;
use crate::gate::{
    Admitted, Controller, Gauges, Reason, Rules, THROTTLE_BEGIN, THROTTLE_END, Targets,
};
use crate::leader::Leader;
use crate::metrics::{Count, Metrics};
use crate::space::Level;
use crate::together::together;
use plinth_client::{ReadVersionReply, ReadVersionRequest};
use plinth_env::reply::{Reply, promise};
use plinth_types::version::VERSIONS_PER_SECOND;
use plinth_types::{KeySelector, KeySpace, RangeRead, planted};
use std::sync::Arc;
use std::time::Duration;

/// How often the chores are asked for.
const CHORES: Duration = Duration::from_millis(200);
/// How often the gauges are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How often those who wait are let on.
const RELEASE: Duration = Duration::from_millis(5);
/// How often the rules for tags are read, and rates are taken.
const RULES: Duration = Duration::from_secs(1);
/// How often the free space of the disk is looked at: while there is plenty, and while there isn't.
const DISK: [Duration; 2] = [Duration::from_millis(500), Duration::from_millis(100)];
/// How often it is told at most that the limits have another reason: near a bound it changes
/// several times a second.
const TOLD: Duration = Duration::from_secs(10);
/// Most rules for tags.
const RULES_MOST: usize = 1000;

/// Asks for the chores when they are due, and keeps the pace, until the node closes.
pub(crate) async fn keep_time(leader: Arc<Leader>) {
    let replica = leader.replica.clone();
    let window = replica.config.window.max(0) as f64 / VERSIONS_PER_SECOND as f64;
    let mut pace = Pace::new(replica.config.load, Duration::from_secs_f64(window));
    let mut next = Duration::ZERO;
    while !leader.is_over() {
        replica.pause(&leader.chores_due, pace.pause(&leader).min(CHORES)).await;
        assert!(!planted!("the task for the chores panics"), "planted");
        pace.tick(&leader);
        pace.look_at_disk(&leader).await;
        if replica.env.now() >= next || leader.is_over() {
            next = replica.env.now() + CHORES;
            if let Err(lost) = replica.check_place() {
                leader.fail(lost);
            }
            leader.queue.ask_for_chores();
        }
    }
    close(&leader);
}

/// A request that doesn't pass without being looked at. Each of the transactions that it stands for
/// is let in by itself.
pub(crate) fn begin(leader: &Arc<Leader>, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
    if request.others == 0 {
        return begin_one(leader, request);
    }
    let one = || ReadVersionRequest { others: 0, ..request.clone() };
    let all: Vec<_> = (0..=request.others).map(|_| begin_one(leader, one())).collect();
    together(all.into_iter())
}

fn begin_one(leader: &Arc<Leader>, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
    let (promise, reply) = promise();
    let (priority, lock_aware) = (request.priority, request.lock_aware);
    match leader.gate.admit(request, promise, leader.replica.env.now()) {
        Admitted::Now(_) => {
            leader.replica.counters.metrics.started(priority, 1);
            leader.proven_read_version(lock_aware, priority)
        }
        Admitted::Later => {
            if leader.is_over() {
                // Nobody would let it in any more.
                leader.empty_gate(&NodeError::Behind(None));
            }
            reply
        }
        Admitted::Refused(_, error) => Reply::ready(Err(error.into())),
    }
}

/// What the task that paces the node remembers.
struct Pace {
    controller: Controller,
    rules: Rules,
    looked: Duration,
    /// What waited to be committed at each tick since the look before, in bytes, added up, and how
    /// many ticks there were.
    queued: (u64, u64),
    rules_read: Option<Duration>,
    disk_next: Duration,
    told: Told,
}

/// The reasons of the limits that were told last, for default and for batch priority, and when.
#[derive(Default)]
struct Told {
    reasons: Option<[Reason; 2]>,
    at: Duration,
}

impl Told {
    /// Whether these are others and it is time to tell them. What was passed over is told later if
    /// it is still so.
    fn is_news(&mut self, reasons: [Reason; 2], now: Duration) -> bool {
        let before = self.reasons.unwrap_or([Reason::Workload; 2]);
        if before == reasons || (self.reasons.is_some() && now < self.at + TOLD) {
            return false;
        }
        *self = Self { reasons: Some(reasons), at: now };
        true
    }
}

impl Pace {
    /// A pace that holds to these targets, where versions stay in the window for so long.
    fn new(targets: LoadTargets, window: Duration) -> Self {
        let LoadTargets { queue_bytes, window_bytes } = targets;
        let controller = Controller::new(Targets { queue_bytes, window_bytes, window });
        Self {
            controller,
            rules: Rules::default(),
            looked: Duration::ZERO,
            queued: (0, 0),
            rules_read: None,
            disk_next: Duration::ZERO,
            told: Told::default(),
        }
    }

    /// How long until there is something to do, at most.
    fn pause(&self, leader: &Leader) -> Duration {
        if leader.gate.is_open() { LOOK } else { RELEASE }
    }

    /// Does what is due.
    fn tick(&mut self, leader: &Arc<Leader>) {
        let now = leader.replica.env.now();
        let rows = backpressure::look_at_memory(&leader.replica);
        leader.replica.health.refusals.tick(now);
        leader.replica.note_trouble();
        self.queued = (self.queued.0 + leader.queue.pressing() as u64, self.queued.1 + 1);
        if now >= self.looked + LOOK || self.rules_read.is_none() {
            self.looked = now;
            if self.rules_read.is_none_or(|then| now >= then + RULES) {
                self.rules_read = Some(now);
                self.read_rules(leader);
                leader.replica.counters.metrics.rates.take(now, totals(leader));
            }
            let queue_bytes = self.queue(leader);
            let started = leader.replica.counters.metrics.started_all();
            let memory = leader.replica.storage.memory();
            // Slower writes wouldn't make what pinned versions keep any less.
            let window_bytes = memory.window.saturating_sub(memory.pinned);
            let is_crowded = window_bytes >= leader.replica.config.load.window_bytes / 2;
            leader.replica.health.refusals.set_crowded(is_crowded);
            backpressure::end_snapshots(&leader.replica);
            let waiting = leader.gate.held_back() as u64;
            let gauges = Gauges {
                queue_bytes,
                window_bytes,
                fullness: leader.replica.storage.fullness().into(),
                backlog: leader.replica.storage.backlog().into(),
                rows,
                disk: leader.replica.space.pressure(),
                started,
                written: leader.replica.counters.bytes_written.get(),
                waiting,
            };
            let limits = self.controller.look(gauges, now);
            if self.told.is_news([limits.reason, limits.batch_reason], now) {
                crate::events::limited(&limits);
            }
            leader.gate.limit(limits, &self.rules, now);
        }
        if !leader.gate.is_open() {
            release(leader, now);
        }
    }

    /// The bytes that wait to be committed, lately. The queue is empty at some moment of each
    /// batch, so one look says little. While nothing is limited, it is the most that there were;
    /// while something is, halfway between the mean of the ticks and the most, which a single burst
    /// can double: starts of a connection come together.
    fn queue(&mut self, leader: &Leader) -> u64 {
        let peak = leader.queue.take_peak() as u64;
        let (bytes, ticks) = std::mem::take(&mut self.queued);
        if leader.gate.is_open() {
            peak
        } else {
            bytes.checked_div(ticks).unwrap_or(peak).midpoint(peak)
        }
    }

    /// Looks at the disk, now and then.
    async fn look_at_disk(&mut self, leader: &Leader) {
        let now = leader.replica.env.now();
        if leader.replica.directory.is_none() || now < self.disk_next {
            return;
        }
        let space = &leader.replica.space;
        let level = space.look(0).await;
        if level == Level::Kept
            && space.is_untried()
            && space.may_help(leader.replica.counters.bytes_written.get())
        {
            // After a start nobody knows whether there is hope, until it was tried: health would
            // say that rows are taken.
            space.ask();
        }
        self.disk_next = now + DISK[usize::from(level != Level::Plenty)];
    }

    /// Reads the rules for tags. What can't be read at once stays as it was.
    fn read_rules(&mut self, leader: &Leader) {
        let read = RangeRead {
            begin: KeySelector::first_greater_or_equal(THROTTLE_BEGIN),
            end: KeySelector::first_greater_or_equal(THROTTLE_END),
            limit: RULES_MOST,
            target_bytes: usize::MAX,
            reverse: false,
        };
        let version = leader.replica.newest();
        if let Some(Ok(result)) =
            leader.replica.storage.get_range(version, KeySpace::System, &read).try_take()
        {
            self.rules = Rules::read(result.rows.iter(), leader.replica.env.wall_clock());
        }
    }
}

/// Everything that has a rate in `status`, in the order of [`Rated`].
fn totals(leader: &Leader) -> [u64; Rated::COUNT] {
    let (counters, metrics) = (&leader.replica.counters, &leader.replica.counters.metrics);
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
fn release(leader: &Arc<Leader>, now: Duration) {
    let metrics: &Metrics = &leader.replica.counters.metrics;
    for (waiter, error) in leader.gate.release(now) {
        metrics.start_wait.record(now.saturating_sub(waiter.since), 1);
        let answer = waiter.answer;
        if let Some(error) = error {
            answer.send(Err(error.into()));
            continue;
        }
        let ReadVersionRequest { priority, lock_aware, .. } = waiter.request;
        metrics.started(priority, 1);
        leader
            .proven_read_version(lock_aware, priority)
            .on_complete(move |result| answer.send(result));
    }
}

/// The node closes, or the term is over: nobody waits any longer.
fn close(leader: &Leader) {
    leader.replica.health.refusals.end();
    if leader.replica.health.is_over() {
        crate::events::closed();
    }
    leader.empty_gate(&NodeError::Closed(None));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_come_and_go_are_told_every_ten_seconds_and_the_last_one_is() {
        let (mut told, [none, room, queue]) =
            (Told::default(), [Reason::Workload, Reason::Room, Reason::LogQueue]);
        let at = Duration::from_millis;
        assert!(!told.is_news([none, none], at(0)), "as everybody takes it to be");
        assert!(told.is_news([none, room], at(100)), "the first at once");
        for n in 2..=100 {
            let now = if n % 2 == 0 { none } else { queue };
            assert!(!told.is_news([none, now], at(100 * n)), "{n}");
        }
        assert!(!told.is_news([none, room], at(10_100)), "was told");
        assert!(told.is_news([none, none], at(10_200)));
        assert!(!told.is_news([room, room], at(10_300)) && told.is_news([room, room], at(20_200)));
    }
}
