//! Giving a migration up that nobody goes on with: its source is gone, say.
//!
//! The destination is open to everybody afterwards, with the rows that were copied: a part of what
//! the source had, and whoever has unlocked it since may have written others. So they stay, and
//! whoever gives it up is told.
//!
//! Always: a run that is still at it finds that it was given up, and ends; it opens nothing any
//! more, and doesn't say that the copy is whole.

use crate::destination::{
    End, HEAD, LAST, decode_head, ended, known, lock_id, note_end, open_to_everybody, privileged,
};
use crate::sum::Sum;
use plinth_client::Database;
use plinth_types::{Result, system};

/// What a destination has noted of a migration that isn't done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unfinished {
    /// What the source is called.
    pub source: String,
    /// The rows that were copied, each as it was at some version.
    pub copied: Sum,
    /// Whether the destination is locked for it.
    pub is_locked: bool,
}

/// The migration that a database holds unfinished, if there is one.
///
/// # Errors
/// `unsupported_operation` if another version of this program began it; those of the database.
pub fn unfinished(destination: &Database) -> Result<Option<Unfinished>> {
    let (head, lock) = privileged(destination, |tr| {
        Ok((tr.get(HEAD).wait()?, tr.get(system::DATABASE_LOCKED).wait()?))
    })?;
    let Some(head) = head else { return Ok(None) };
    let (id, source) = decode_head(&head)?;
    let sums = known(destination)?.into_values();
    let copied = sums.fold(Sum::default(), |all, (_, sum)| all.with(sum));
    let is_locked = lock.is_some_and(|lock| lock_id(&lock) == Some(id));
    Ok(Some(Unfinished { source, copied, is_locked }))
}

/// Gives a migration up: removes what is noted of it, and its lock. The rows stay. Gives false if
/// there is none.
///
/// # Errors
/// `unsupported_operation` if another version of this program began it; those of the database.
pub fn abort(destination: &Database) -> Result<bool> {
    let mut tried = None;
    privileged(destination, |tr| {
        let Some(head) = tr.get(HEAD).wait()? else {
            // Where the answer to the commit was lost; else a run has finished it meanwhile.
            return Ok(tried.is_some() && tr.get(LAST).wait()?.as_deref() == tried.as_deref());
        };
        let (id, _) = decode_head(&head)?;
        tried = Some(ended(&head, End::GivenUp));
        note_end(tr, &head, End::GivenUp);
        let lock = tr.get(system::DATABASE_LOCKED).wait()?;
        if lock.is_some_and(|lock| lock_id(&lock) == Some(id)) {
            open_to_everybody(tr);
        }
        Ok(true)
    })
}
