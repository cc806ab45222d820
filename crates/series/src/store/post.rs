//! Posting: points that somebody takes who doesn't own the series, on their way to the owner's
//! inbox.
//!
//! Series wait with their points (`State::late`) until the next flush, which writes all that waits
//! as rows of the inbox, some hundred thousand points in a commit. From there on they are what
//! transactions write: durable, in the order of commits, and the owner takes them in. So whoever
//! takes points needs no owner that answers, and the owner no other door. A commit whose fate is
//! not known is made again, which may leave its rows twice: points are taken in again then, to the
//! same end.

use super::letter::{self, Letter};
use super::{Cell, Shared, Standing, lock};
use crate::error::{Error, Result};
use crate::value::Point;
use plinth_client::Transaction;
use std::sync::Arc;

/// Bytes of rows in one commit, about.
const STEP_BYTES: usize = 1 << 20;

impl Shared {
    /// Takes points of a series in, as many as may wait: how many, and why not the next one.
    pub(super) fn post(&self, cell: &Arc<Cell>, points: &[Point]) -> (usize, Result<()>) {
        let mut state = lock(&cell.state);
        if state.standing == Standing::Gone {
            return (0, Err(Error::Deleted));
        }
        let room = self.settings.unsaved_points.saturating_sub(self.pending.points());
        let (now, later) = points.split_at(room.min(points.len()));
        if !now.is_empty() {
            state.late.extend_from_slice(now);
            self.note(cell, &mut state, &[], now.len());
        }
        (now.len(), if later.is_empty() { Ok(()) } else { Err(Error::Behind) })
    }
}

/// Rows for one commit.
pub(super) type Mail = Vec<Vec<u8>>;

/// What a flush writes.
pub(super) fn prepare(shared: &Shared) -> Vec<Mail> {
    let mut flusher = lock(&shared.flusher);
    let mut pending = shared.pending.take(std::mem::take(&mut flusher.room));
    flusher.since = flusher.since.or(pending.since);
    let (mut letter, mut rows) = (Letter::default(), Vec::new());
    for cell in &pending.cells {
        let mut state = lock(&cell.state);
        state.is_noted = false;
        let points = std::mem::take(&mut state.late);
        drop(state);
        letter.add_all(&cell.name, &points, &mut rows);
    }
    rows.extend(letter.rest());
    pending.clear();
    flusher.room = pending;
    let (mut all, mut mail, mut bytes) = (Vec::new(), Mail::new(), 0);
    for row in rows {
        bytes += row.len();
        mail.push(row);
        if bytes >= STEP_BYTES {
            all.push(std::mem::take(&mut mail));
            bytes = 0;
        }
    }
    all.extend(Some(mail).filter(|mail| !mail.is_empty()));
    all
}

/// Commits rows, if the inbox has room for them, and the place is what it was.
pub(super) async fn try_commit(shared: &Shared, tr: &Transaction, rows: &[Vec<u8>]) -> Result<()> {
    let size = tr.snapshot().get(shared.keys.inbox_size());
    shared.check_owner(tr).await?;
    letter::judge(size.await?.as_ref(), shared.settings.inbox_bytes)?;
    rows.iter().for_each(|row| letter::put(tr, &shared.keys, row));
    Ok(tr.commit().await?)
}
