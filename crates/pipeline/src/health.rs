//! Whether a node still takes commits, and why not; which it refused; and whether reads have met
//! with damage, or the disk answers nothing.
//!
//! What happens again and again is told when it begins and when it is over, which somebody has to
//! look for now and then. A failure is for ever: the first cause counts.

use crate::batch_lock::lock;
use crate::failure::NodeError;
use crate::refusals::Refusals;
use plinth_env::{Burst, Signal};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

#[derive(Default)]
pub(crate) struct Health {
    failure: OnceLock<NodeError>,
    failed: Signal,
    over: Signal,
    closing: AtomicBool,
    /// How often damage had been met with at the last look, and that it is being met with.
    damaged: AtomicU64,
    damage: Burst,
    /// Tables can't be written, or merged.
    tables: Burst,
    /// The disk doesn't answer what the log, or a checkpoint, waits for.
    silence: Burst,
    /// Since when a member hears of no leader.
    leaderless: Mutex<Option<Duration>>,
    /// Whether a member hears of another one that leads.
    follows: AtomicBool,
    /// The commits that weren't taken.
    pub refusals: Refusals,
}

impl Health {
    /// From now on no commit is taken: what is on disk, or in memory, is not known any more. The
    /// first cause counts.
    pub fn fail(&self, error: NodeError) {
        if self.failure.set(error.clone()).is_ok() {
            crate::events::failed(&error);
            self.failed.notify();
            self.over.notify();
        }
    }

    /// Damage has been met with so many times since the start, first with this error. The first
    /// time is told at once, and how often it was when there has been none for a while. To be
    /// called now and then; whether something was told.
    pub fn note_damage(&self, met: Option<(NodeError, u64)>, now: Duration) -> bool {
        let (error, times) = met.unzip();
        let times = times.unwrap_or_default();
        let new = times.saturating_sub(self.damaged.swap(times, Ordering::Relaxed));
        let first = error.filter(|_| new > 0 && self.damage.note(new, now));
        let over = self.damage.over(now);
        first.iter().for_each(crate::events::damaged);
        over.into_iter().for_each(crate::events::damage_over);
        first.is_some() || over.is_some()
    }

    /// Why tables can't be written or merged at this moment, if so. The first time is told at once,
    /// and that it goes on when it has for a while. To be called now and then; whether something
    /// was told.
    pub fn note_tables(&self, trouble: Option<NodeError>, now: Duration) -> bool {
        let first = trouble.filter(|_| self.tables.note(1, now));
        let over = self.tables.over(now);
        first.iter().for_each(crate::events::tables_failing);
        over.iter().for_each(crate::events::tables_go_on);
        first.is_some() || over.is_some()
    }

    /// What the disk doesn't answer at this moment, if so; as [`Health::note_tables`].
    pub fn note_silence(&self, silent: Option<NodeError>, now: Duration) -> bool {
        let first = silent.filter(|_| self.silence.note(1, now));
        let over = self.silence.over(now);
        first.iter().for_each(crate::events::disk_silent);
        over.iter().for_each(crate::events::disk_answers);
        first.is_some() || over.is_some()
    }

    /// A member hears of a leader, which it may be itself, or of none from now on.
    pub fn set_leader(&self, is_known: bool, is_another: bool, now: Duration) {
        let mut leaderless = lock(&self.leaderless);
        *leaderless = if is_known { None } else { leaderless.or(Some(now)) };
        self.follows.store(is_known && is_another, Ordering::Relaxed);
    }

    /// Whether this is a member of a cluster in which another one leads.
    pub fn follows(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
    }

    /// For how long it has heard of none, if so.
    pub fn leaderless_for(&self, now: Duration) -> Option<Duration> {
        lock(&self.leaderless).map(|since| now.saturating_sub(since))
    }

    /// Why no commit is taken, if so.
    pub fn failure(&self) -> Option<NodeError> {
        self.failure.get().cloned()
    }

    /// Waits until the node fails, and says why.
    pub async fn until_failed(&self) -> NodeError {
        loop {
            if let Some(cause) = self.failure() {
                // The next one who waits is to be woken too.
                self.failed.notify();
                return cause;
            }
            self.failed.wait().await;
        }
    }

    /// True for the first caller.
    pub fn begin_closing(&self) -> bool {
        let is_first = !self.closing.swap(true, Ordering::SeqCst);
        self.over.notify();
        is_first
    }

    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Waits until tasks are to end.
    pub async fn until_over(&self) {
        while !self.is_over() {
            self.over.wait().await;
        }
        // The next one who waits is to be woken too.
        self.over.notify();
    }

    /// Whether tasks are to end: the node closes, or has failed.
    pub fn is_over(&self) -> bool {
        self.is_closing() || self.failure.get().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of damaged tables failed, `status` said so, and the server's log was silent.
    #[test]
    fn damage_is_told_when_it_is_met_with_and_when_it_is_not_any_more() {
        let (health, at) = (Health::default(), Duration::from_secs);
        let met = |times| Some((NodeError::Damaged("a table".into()), times));
        assert!(!health.note_damage(None, at(0)));
        assert!(health.note_damage(met(1), at(1)), "the first");
        assert!(!health.note_damage(met(127), at(2)) && !health.note_damage(met(127), at(11)));
        assert!(health.note_damage(met(127), at(12)), "how often it was");
        assert!(!health.note_damage(met(127), at(99)));
        assert!(health.note_damage(met(128), at(100)), "again");
    }
}
