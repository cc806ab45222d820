//! The longest that anything held up commits: told apart by whose doing it was.
//!
//! A commit's time is the log's sync, which is the disk's, and everything else, which is ours. A
//! checkpoint adds to the first through the disk, which takes one request after the other: as long
//! as one of its steps keeps the disk busy.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The longest time of one kind since somebody asked.
#[derive(Default)]
pub(crate) struct Longest(AtomicU64);

impl Longest {
    pub fn note(&self, took: Duration) {
        self.0.fetch_max(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn take(&self) -> Duration {
        Duration::from_nanos(self.0.swap(0, Ordering::Relaxed))
    }
}

/// What the node keeps of them.
#[derive(Default)]
pub(crate) struct Waits {
    pub sync: Longest,
    pub work: Longest,
    pub checkpoint_step: Longest,
}

/// What held up commits longest.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LongestWaits {
    /// A batch waited for the log to be on the disk.
    pub sync: Duration,
    /// A batch took for everything else from leaving the queue to being answered, or the chores
    /// took between two batches.
    pub work: Duration,
    /// A checkpoint, in being written or removed, kept the disk busy in one go.
    pub checkpoint_step: Duration,
}

impl Waits {
    /// What was longest since this was last asked.
    pub fn take(&self) -> LongestWaits {
        let Self { sync, work, checkpoint_step } = self;
        LongestWaits {
            sync: sync.take(),
            work: work.take(),
            checkpoint_step: checkpoint_step.take(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_is_told_once() {
        let longest = Longest::default();
        [3, 7, 5].into_iter().for_each(|millis| longest.note(Duration::from_millis(millis)));
        assert_eq!((longest.take(), longest.take()), (Duration::from_millis(7), Duration::ZERO));
    }
}
