//! The task that notes how far the log is durable; `marks.rs` says why, and has the file.

use std::sync::Arc;
use std::time::Duration;

use plinth_env::sync::race;
use plinth_types::{Version, probe};

use crate::failure::LogResult;
use crate::format::mark::MARK_PLACES;
use crate::shared::{Inner, Shared};

/// How often it is looked whether there is something to note: a note is written at the second tick,
/// and at the next one once more, to the other place, if nothing happened meanwhile.
const TICK: Duration = Duration::from_millis(7);
/// After so many ticks without anything to note the task sleeps until the next sync.
const LINGER_TICKS: u32 = 8;

impl Inner {
    /// The last durable record, if nothing on the disk says yet that it is.
    fn unmarked(&self) -> Option<u64> {
        (self.durable.sequence > self.marked).then_some(self.durable.sequence)
    }

    /// What a note says: the last durable record, and the version known committed. Not before that
    /// is durable here: after a crash the note would speak of entries that a lost rewind had
    /// voided.
    fn to_note(&self) -> (u64, Version) {
        let committed = self.committed();
        let is_durable = committed.sequence <= self.durable.sequence;
        (self.durable.sequence, if is_durable { committed.version } else { 0 })
    }
}

/// Starts the task that writes notes.
pub(crate) fn start(shared: &Arc<Shared>) {
    let was = shared.with(|inner| std::mem::replace(&mut inner.upkeep.is_marking, true));
    assert!(!was, "one task notes how far the log is durable");
    let task = Task { shared: shared.clone() };
    drop(shared.env.spawn("plinth-log-marks", task.run()));
}

/// The task. Whoever waits for its end is told, also if it is dropped.
struct Task {
    shared: Arc<Shared>,
}

impl Task {
    async fn run(self) {
        let (shared, marks) = (&self.shared, &self.shared.marks);
        let (mut before, mut quiet) = (None, 0);
        // Whether only one of the two places says what was noted last.
        let mut is_single = false;
        while !shared.with(|inner| inner.upkeep.is_closing || inner.poison.is_some()) {
            let (marked, unmarked) = shared.with(|inner| (inner.marked, inner.unmarked()));
            let is_due = before.is_some_and(|before| before > marked);
            let is_repeated = is_single && unmarked.is_none();
            if is_due || is_repeated {
                let noted = mark(shared).await;
                is_single = noted.is_ok() && !is_repeated;
                if noted.is_err() {
                    // Tried again after the next sync: a disk that takes nothing isn't asked all
                    // the time.
                    quiet = LINGER_TICKS;
                }
            }
            quiet = if unmarked.is_some() && !is_due { 0 } else { quiet + 1 };
            before = if is_due { None } else { unmarked };
            if quiet > LINGER_TICKS {
                race(marks.closing.wait(), marks.synced.wait()).await;
                quiet = 0;
            } else {
                race(marks.closing.wait(), shared.env.sleep(TICK)).await;
            }
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.shared.change(|inner| inner.upkeep.is_marking = false);
    }
}

/// Notes how far the log is durable.
async fn mark(shared: &Shared) -> LogResult<()> {
    probe!("log: durable without a record that says so");
    let durable = shared.with(|inner| inner.to_note());
    shared.marks.note(durable).await?;
    shared.with(|inner| inner.marked = inner.marked.max(durable.0));
    Ok(())
}

/// The last notes of a log that is being closed, and durable.
pub(crate) async fn mark_end(shared: &Shared) -> LogResult<()> {
    let durable = shared.with(|inner| inner.to_note());
    // To both places, and one after the other: whatever happens to one, the other one says it.
    for _ in MARK_PLACES {
        shared.marks.note(durable).await?;
        shared.marks.sync().await?;
    }
    Ok(())
}
