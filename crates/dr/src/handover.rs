//! Taking the place of a first that can't follow: FoundationDB.
//!
//! ```text
//!   second   1  head: switching, under an id for the lock
//!   first    2  locked by that id at version L                         ── from here on nobody can write
//!   second   3  follows up to L
//!   first    4  row and stream gone; the lock stays
//!   second   5  unlocked, versions beyond L; head gone                 ── and up to here
//! ```
//! Each step looks whether it was done, so whoever comes next goes on. After 4 there is no stream,
//! but the place is at L already.

use crate::capture::{self, locked_at};
use crate::follow::Follower;
use crate::lease::taken_over;
use crate::rows::{First, Head, Id, first_key};
use crate::sides::{give_up, locked_by_another, unlock_second};
use crate::sites::identity;
use crate::system::{self, lock_id};
use plinth_client::{Database, Filling};
use plinth_types::{
    Error, Result, Version, planted,
    system::{DATABASE_LOCKED, NORMAL_END},
};

/// Lets the second take the first's place. The first stays locked by `next`.
pub(crate) async fn hand_over(follower: &mut Follower<'_>, head: &Head, next: Id) -> Result<()> {
    let (run, first) = (follower.run, follower.from.clone());
    let Some(capture) = capture::of(&first) else { return Err(Error::unsupported_operation()) };
    let locked = match locked_at(&first, &next).await? {
        Some(locked) => locked,
        None => {
            // As near as it gets while the first is still written.
            let version = system::read_version(&first).await?;
            capture::nudge(&first).await?;
            follower.follow_upto(version).await?;
            match lock(&first, head, next).await? {
                Ok(locked) => locked,
                Err(refused) => {
                    give_up(run, head, next).await?;
                    return Err(refused);
                }
            }
        }
    };
    // Where the place is there already, the stream may be gone.
    if follower.place.position < locked
        && !planted!("dr: a captured first is left before it is followed")
    {
        capture::nudge(&first).await?;
        follower.follow_upto(locked).await?;
    }
    capture::end(&first, capture, (&head.tag, &head.id), None).await?;
    unlock_second(run, &identity(&first), head, None, locked).await
}

/// Locks the first as FoundationDB's tools do, if it still knows of this relation. Gives the
/// version, or why it can't be: somebody else has locked it, or it has a part of something.
async fn lock(first: &Database, head: &Head, by: Id) -> Result<Result<Version>> {
    let refused = system::transact(first, |tr| async move {
        if let Some(value) = tr.get(DATABASE_LOCKED).await? {
            return Ok((lock_id(&value) != Some(by)).then(locked_by_another));
        }
        let row =
            tr.get(first_key(&head.tag)).await?.map(|value| First::decode(&value)).transpose()?;
        if row.is_none_or(|row| row.id != head.id) {
            return Err(taken_over());
        }
        if let Some(filling) = Filling::find(&tr).await? {
            return Ok(Some(filling.refusal("the first site")));
        }
        system::lock(&tr, &by);
        // Whoever read before it was locked conflicts.
        tr.add_write_conflict_range(b"", NORMAL_END)?;
        Ok(None)
    })
    .await?;
    match refused {
        Some(refused) => Ok(Err(refused)),
        None => Ok(locked_at(first, &by).await?.ok_or_else(locked_by_another)),
    }
}
