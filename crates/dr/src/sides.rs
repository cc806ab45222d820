//! Changing sides: the first is locked, the second gets everything, is unlocked, and is followed by
//! the first.
//!
//! ```text
//!   second   1  head: switching, under the id of the other direction
//!            2  a stream of its own changes
//!   first    3  locked by that id at version L; head: waiting            ── from here on nobody can write
//!   second   4  follows up to L
//!            5  unlocked at version U, versions beyond L; head gone; to whom its changes go, with U   ── and up to here
//!   first    6  old stream gone; place: whole at U - 1 of the other; head: following
//! ```
//! Each step looks whether it was done, so whoever comes next goes on: before 5 the second's head
//! says what is to be done, after it the first's. Between 4 and 5 nothing but the agent writes
//! either of them, so what the first held at L is what the second holds at U.

use crate::copy::nudge;
use crate::follow::{Follower, register_at_first};
use crate::lease::{Run, taken_over};
use crate::rows::{First, HEAD, Head, Id, PLACE, Place, SECOND, Wanted, first_key, stream_name};
use crate::sites::{Direction, firsts, identity};
use crate::system::{self, lock, lock_id, lock_version, unlock};
use plinth_client::{Database, Filling};
use plinth_types::{Error, Result, Version, planted, system::DATABASE_LOCKED};

/// Writes what is wanted of a second, which has to be the one that it was.
pub(crate) async fn set_head(run: &Run, head: &Head) -> Result<()> {
    let value = head.encode();
    run.transact(|tr| {
        let value = value.clone();
        async move {
            let found = tr.get(HEAD).await?.map(|value| Head::decode(&value)).transpose()?;
            if found.is_none_or(|found| found.id != head.id) {
                return Err(taken_over());
            }
            tr.set(HEAD, value);
            Ok(())
        }
    })
    .await?;
    run.note_head(head.clone());
    Ok(())
}

/// Steps 2 to 5.
pub(crate) async fn change_sides(follower: &mut Follower<'_>, head: &Head, next: Id) -> Result<()> {
    let (run, first) = (follower.run, follower.from.clone());
    Box::pin(register_own(run, head, &next)).await?;
    // As near as it gets while the first is still written.
    let version = system::read_version(&first).await?;
    nudge(&first).await?;
    follower.follow_upto(version).await?;
    let locked = match lock_first(&first, &run.to, head, next).await? {
        Ok(locked) => locked,
        Err(refused) => {
            Box::pin(give_up(run, head, next)).await?;
            return Err(refused);
        }
    };
    if !planted!("dr: the second is unlocked before it has everything") {
        follower.follow_upto(locked).await?;
    }
    unlock_second(run, &identity(&first), head, Some(next), locked).await
}

/// Why the first can't be locked.
pub(crate) fn locked_by_another() -> Error {
    Error::database_locked().with_detail("the first site is locked by somebody else")
}

/// Step 3. Gives the version at which it was locked, or why it can't be: somebody else has done so,
/// or it has a part of something, which would go on being brought into it as a second site.
///
/// The row on the first that says to whom its changes go is the fence: whoever ends this direction
/// takes it away, and an agent that wakes late would lock the first for nobody.
async fn lock_first(
    first: &Database,
    second: &Database,
    head: &Head,
    next: Id,
) -> Result<Result<Version>> {
    let waiting = Head {
        id: next,
        from: identity(second),
        wanted: Wanted::Waiting,
        other: Some(head.id),
        ..head.clone()
    };
    let refused = system::transact(first, |tr| {
        let value = waiting.encode();
        async move {
            match tr.get(DATABASE_LOCKED).await? {
                Some(value) if lock_id(&value) == Some(next) => Ok(None),
                Some(_) => Ok(Some(locked_by_another())),
                None => {
                    let follows = tr.get(first_key(&head.tag)).await?;
                    let follows = follows.map(|value| First::decode(&value)).transpose()?;
                    if follows.is_none_or(|follows| follows.id != head.id) {
                        return Err(taken_over());
                    }
                    if let Some(filling) = Filling::find(&tr).await? {
                        return Ok(Some(filling.refusal("the first site")));
                    }
                    lock(&tr, &next);
                    tr.set(HEAD, value);
                    Ok(None)
                }
            }
        }
    })
    .await?;
    if let Some(refused) = refused {
        return Ok(Err(refused));
    }
    let value = system::read_one(first, DATABASE_LOCKED).await?;
    Ok(value.and_then(|value| lock_version(&value)).ok_or_else(locked_by_another))
}

/// Step 2: the second's own changes, for the other direction. A head that says something else by
/// now knows nothing of them.
async fn register_own(run: &Run, head: &Head, next: &Id) -> Result<()> {
    run.transact(|tr| async move {
        if !head.is_in(tr.get(HEAD).await?.as_ref())? {
            return Err(taken_over());
        }
        tr.register_all_changes(stream_name(next), head.log_bytes).await.map(drop)
    })
    .await
}

/// Sides aren't changed after all: the first was never locked.
pub(crate) async fn give_up(run: &Run, head: &Head, next: Id) -> Result<()> {
    let head = Head { wanted: Wanted::Following, other: None, ..head.clone() };
    let value = head.encode();
    run.transact(|tr| {
        let value = value.clone();
        async move {
            let found = tr.get(HEAD).await?.map(|value| Head::decode(&value)).transpose()?;
            if found.is_none_or(|found| found.wanted != Wanted::Switching(next)) {
                return Err(taken_over());
            }
            tr.remove_changes(stream_name(&next)).await?;
            tr.set(HEAD, value);
            Ok(())
        }
    })
    .await?;
    run.note_head(head);
    Ok(())
}

/// Step 5. Without a next direction the second is free, and nobody follows it.
pub(crate) async fn unlock_second(
    run: &Run,
    first: &str,
    head: &Head,
    next: Option<Id>,
    locked: Version,
) -> Result<()> {
    let record = next.map(|id| First { id, to: first.to_owned(), since: 0 }.to_be_stamped());
    let is_ours = run
        .transact(|tr| {
            let record = record.clone();
            async move {
                let now = tr.get_read_version().await?;
                if tr.get(DATABASE_LOCKED).await?.and_then(|value| lock_id(&value)) != Some(head.id)
                {
                    return Ok(false);
                }
                unlock(&tr, locked, now)?;
                tr.clear_range(SECOND.0, SECOND.1);
                if let Some(record) = record {
                    let kind = plinth_types::MutationType::SetVersionstampedValue;
                    tr.atomic_op(first_key(&head.tag), record, kind);
                }
                Ok(true)
            }
        })
        .await?;
    if is_ours {
        return Ok(());
    }
    let detail = "the second site isn't locked any more, or by somebody else: plinth dr abort";
    Err(Error::client_invalid_operation().with_detail(detail))
}

/// Step 6: the second, which was the first, follows from where the other one was unlocked.
pub(crate) async fn take_up(run: &Run, direction: &Direction) -> Result<()> {
    let Direction { from, head, .. } = direction;
    let first = firsts(from).await?.into_iter().find(|(_, first)| first.id == head.id);
    let Some((_, first)) = first else {
        let detail = "the two were changing sides, and the one that was to become the first was given up: \
                      plinth dr abort --dstonly makes this one free";
        return Err(Error::client_invalid_operation().with_detail(detail));
    };
    // It was registered before the other one was unlocked.
    let stream = Box::pin(register_at_first(from, head))
        .await?
        .map(|(stream, _)| stream)
        .filter(|stream| stream.registered < first.since);
    let Some(stream) = stream else {
        return Err(
            Error::version_invalid().with_detail("the stream of the new first site was removed")
        );
    };
    let place = Place { stream: stream.id, position: first.since - 1, ..Place::default() };
    let before = head.other;
    let head = Head { wanted: Wanted::Following, other: None, ..head.clone() };
    run.transact(|tr| {
        let (place, value, head) = (place.encode(), head.encode(), &head);
        async move {
            if let Some(before) = &before {
                tr.remove_changes(stream_name(before)).await?;
            }
            tr.clear(first_key(&head.tag));
            tr.set(PLACE, place);
            tr.set(HEAD, value);
            Ok(())
        }
    })
    .await
}
