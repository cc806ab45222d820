//! Making records durable, several syncs at a time.
//!
//! A sync covers every record that was written before it began. So a caller whose record is covered
//! by a sync under way waits for that one; a caller whose record is newer begins the next one at
//! once, if a lane is free, without waiting for the one before: that is what keeps the disk busy.
//! A lane is a handle of its own on each file, see [`Segment`].

use std::sync::Arc;

use crate::failure::{LogError, LogResult};
use crate::link::Link;
use crate::position::{Position, Progress};
use crate::segment::Segment;
use crate::shared::{Inner, Shared};
use crate::upkeep;

/// Makes records durable. Cheap to clone; may be used by several tasks at once.
#[derive(Clone)]
pub struct Syncer {
    shared: Arc<Shared>,
}

/// What one sync is to do.
struct Job {
    lane: usize,
    reaches: Link,
    segments: Vec<Arc<Segment>>,
}

enum Turn {
    Done(LogResult<()>),
    Sync(Job),
}

impl Syncer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Returns when the record at `upto` and all before it are durable.
    ///
    /// # Errors
    /// If a sync fails, the log is poisoned: this and every later sync and append gives `Poisoned`.
    /// What had not been acknowledged may or may not be found at the next start.
    pub async fn sync(&self, upto: Position) -> LogResult<()> {
        match self.shared.until(|inner| inner.turn(upto.sequence)).await {
            Turn::Done(result) => result,
            Turn::Sync(job) => {
                Lane { shared: &self.shared, lane: job.lane, is_held: true }.run(&job).await
            }
        }
    }

    /// Up to where the log is durable.
    pub fn durable(&self) -> Position {
        self.shared.with(|inner| inner.durable.position())
    }

    /// Lends the caller's task to one sync, if there is one to begin: something was written that no
    /// sync under way covers, and a lane is free. Gives up to where the log is durable then; `None`
    /// if there was nothing to do.
    ///
    /// # Errors
    /// As those of [`Syncer::sync`].
    pub async fn drive(&self) -> LogResult<Option<Position>> {
        let job = self.shared.with(|inner| match inner.turn(inner.written.sequence) {
            Some(Turn::Sync(job)) => Ok(Some(job)),
            Some(Turn::Done(Err(error))) => Err(error),
            Some(Turn::Done(Ok(()))) | None => Ok(None),
        })?;
        let Some(job) = job else { return Ok(None) };
        Lane { shared: &self.shared, lane: job.lane, is_held: true }.run(&job).await?;
        Ok(Some(job.reaches.position()))
    }
}

/// One sync on the caller's thread, if there is one to do: see
/// [`LogView::drive`](crate::LogView::drive).
pub(crate) async fn drive(shared: &Arc<Shared>) -> LogResult<Option<Progress>> {
    let job = shared.with(|inner| {
        inner.check_poison()?;
        Ok::<_, LogError>(if inner.is_uncovered() { inner.take_lane() } else { None })
    })?;
    let Some(job) = job else { return Ok(None) };
    Lane { shared, lane: job.lane, is_held: true }.run(&job).await?;
    Ok(Some(shared.with(|inner| inner.committed().progress())))
}

impl std::fmt::Debug for Syncer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Syncer")
    }
}

impl Inner {
    /// What the caller who needs record `upto` to be durable has to do: nothing any longer, sync,
    /// or wait (`None`).
    fn turn(&mut self, upto: u64) -> Option<Turn> {
        if let Err(error) = self.check_poison() {
            return Some(Turn::Done(Err(error)));
        }
        if upto <= self.durable.sequence {
            return Some(Turn::Done(Ok(())));
        }
        if upto > self.written.sequence {
            let detail = format!(
                "position {upto} was asked to be synced, {} is the last",
                self.written.sequence
            );
            return Some(Turn::Done(Err(LogError::Misused(detail))));
        }
        if self.syncs.lanes.iter().flatten().any(|reaches| *reaches >= upto) {
            return None;
        }
        self.take_lane().map(Turn::Sync)
    }

    /// A sync of all that is written, if there is a lane for it.
    fn take_lane(&mut self) -> Option<Job> {
        let lane = self.syncs.lanes.iter().position(Option::is_none)?;
        self.syncs.lanes[lane] = Some(self.written.sequence);
        let durable = self.durable.sequence;
        assert!(durable <= self.written.sequence, "record {durable} is durable and not written");
        let segments = self
            .segments
            .iter()
            .filter(|kept| kept.last > durable)
            .map(|kept| kept.segment.clone());
        Some(Job { lane, reaches: self.written.clone(), segments: segments.collect() })
    }

    /// Whether anything is written that neither is durable nor will be once the syncs under way
    /// have ended.
    fn is_uncovered(&self) -> bool {
        let covered = self.syncs.lanes.iter().flatten().copied().max().unwrap_or(0);
        self.written.sequence > covered.max(self.durable.sequence)
    }
}

/// A lane that is taken. Given back when dropped, also if the sync is given up half-way.
struct Lane<'a> {
    shared: &'a Arc<Shared>,
    lane: usize,
    is_held: bool,
}

impl Lane<'_> {
    async fn run(mut self, job: &Job) -> LogResult<()> {
        let began = self.shared.env.now();
        // Older segments first: nothing may be durable that follows something which is not.
        for segment in &job.segments {
            if self.shared.config.skips_sync() {
                continue;
            }
            if let Err(error) = segment.lane(self.lane).sync_data().await {
                self.shared.change(|inner| inner.poison(&error));
                break;
            }
        }
        plinth_usdt::fsync(
            self.shared.env.now().saturating_sub(began),
            job.reaches.sequence,
            job.segments.len(),
        );
        let result = self.shared.change_durable(|inner| {
            let reached = inner.syncs.lanes[self.lane].take();
            assert_eq!(reached, Some(job.reaches.sequence), "a lane is its sync's alone");
            self.is_held = false;
            // Another sync's failure may be about the very same records.
            inner.check_poison()?;
            inner.note_durable(&job.reaches);
            Ok(())
        });
        if result.is_ok() {
            // The last one is, or may be, still written to.
            self.shared.marks.synced.notify();
            job.segments.iter().rev().skip(1).for_each(|segment| segment.close_lanes());
        }
        upkeep::look(self.shared);
        result
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        if self.is_held {
            self.shared.change(|inner| inner.syncs.lanes[self.lane] = None);
        }
    }
}
