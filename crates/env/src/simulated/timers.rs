//! Simulated time: an ordered map of what happens when.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Duration;

/// When, and which of those at the same time: in the order of asking.
pub(crate) type TimerId = (Duration, u64);

pub(crate) enum Action {
    Wake(Waker),
    /// A call for one incarnation of one process.
    Call {
        process: usize,
        incarnation: u32,
        call: Box<dyn FnOnce() + Send>,
    },
}

#[derive(Default)]
pub(crate) struct Timers {
    queue: BTreeMap<TimerId, Action>,
    next: u64,
}

impl Timers {
    pub(crate) fn add(&mut self, at: Duration, action: Action) -> TimerId {
        let id = (at, self.next);
        self.next += 1;
        self.queue.insert(id, action);
        id
    }

    /// An action whose time had come comes again.
    pub(crate) fn put_back(&mut self, id: TimerId, action: Action) {
        self.queue.insert(id, action);
    }

    #[must_use = "an action's destructor may be foreign code: drop it outside of the lock"]
    pub(crate) fn remove(&mut self, id: TimerId) -> Option<Action> {
        self.queue.remove(&id)
    }

    /// The first action whose time has come.
    pub(crate) fn pop_due(&mut self, now: Duration) -> Option<(TimerId, Action)> {
        let first = self.queue.first_entry()?;
        (first.key().0 <= now).then(|| first.remove_entry())
    }

    pub(crate) fn first(&self) -> Option<Duration> {
        self.queue.first_key_value().map(|(id, _)| id.0)
    }

    /// Takes out the calls of a process's incarnation.
    pub(crate) fn take_calls_of(&mut self, of: usize, in_incarnation: u32) -> Vec<Action> {
        let is_theirs = |_: &TimerId, action: &mut Action| matches!(action, Action::Call { process, incarnation, .. } if *process == of && *incarnation == in_incarnation);
        self.queue.extract_if(.., is_theirs).map(|(_, action)| action).collect()
    }

    pub(crate) fn take_all(&mut self) -> BTreeMap<TimerId, Action> {
        std::mem::take(&mut self.queue)
    }
}
