//! Ending: both databases become free, or the second alone, when the first is gone.
//!
//! ```text
//!   second   1  head: aborting
//!   first    2  to whom its changes go is gone, and with it the stream; if sides were being changed, unlocked again
//!   second   3  unlocked, whole or cleared; its stream for the other direction gone, and the head
//! ```
//! As long as the second has a head whoever comes next goes on; whoever finds that it has changed
//! looks again. When the first is gone, there is step 3 alone: the second is at a version at which
//! it is whole after every transaction, so nothing has to be finished first.
//!
//! A second that has a part of what is being restored into the first isn't freed with that: it
//! follows on, and whoever asked is told.
//!
//! Always: a stream goes in the transaction that takes away the row that knows of it, and comes in
//! one that has read that row. So whoever comes late with a stream leaves none that nobody knows
//! of, and takes none away that somebody follows.

use crate::capture;
use crate::lease::{Run, taken_over};
use crate::rows::{
    First, HALF, HEAD, Head, Id, PLACE, Place, SECOND, Wanted, first_key, stream_name,
};
use crate::sides::{set_head, take_up};
use crate::sites::{Direction, Sites, firsts, head, identity, nothing};
use crate::system::{self, lock_id, unlock};
use plinth_client::{Database, Filling, Transaction};
use plinth_types::{
    Error, Result, Version,
    system::{DATABASE_LOCKED, USERS},
};
use std::time::Duration;

/// How long the second may take for its first answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What becomes of a second site that was never whole, when it is made free without the first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Leftover {
    /// Nothing: it stays as it is, and that is told.
    #[default]
    Refuse,
    /// It is free with the rows that it has.
    Keep,
    /// It is free and empty.
    Clear,
}

/// A run on a database that is still what `head` says.
async fn take_over(to: &Database, head: &Head) -> Result<Option<Run>> {
    let mut holder = Id::default();
    to.endpoint().env().fill_random(&mut holder);
    Run::begin(to, &holder, head, None).await
}

/// Ends it, on both sides. Gives the version of the first that the second holds; none if it was
/// never whole, and so is empty.
///
/// # Errors
/// `client_invalid_operation` if neither follows the other; `database_locked` while something is
/// being restored into the first, or the second has a part of that still; `timed_out` if one of
/// them can't be reached.
pub async fn abort(sites: &Sites, tag: &str) -> Result<Option<Version>> {
    sites.reach().await?;
    loop {
        let Some(direction) = sites.direction().await? else {
            return forget(sites, tag).await.map(|()| None);
        };
        // What was found may have changed while the other database was waited for: look again.
        let Some(run) = take_over(&direction.to, &direction.head).await? else { continue };
        if direction.head.wanted == Wanted::Waiting {
            take_up(&run, &direction).await?;
            continue;
        }
        let Direction { from, head, .. } = &direction;
        let head = Head { wanted: Wanted::Aborting, ..head.clone() };
        set_head(&run, &head).await?;
        return end_both(&run, from, &head).await;
    }
}

/// Steps 2 and 3. Without the first's stream the second stays what it is: where that is a part of
/// what is being restored into the first, it follows on instead.
///
/// # Errors
/// `database_locked` then.
pub(crate) async fn end_both(run: &Run, first: &Database, head: &Head) -> Result<Option<Version>> {
    // Nobody but this run moves it on.
    if system::read_one(&run.to, HALF).await?.is_some() {
        let half = Filling::SecondSite.refusal("the second site");
        return follow_on(run, head).await.and(Err(half));
    }
    if let Some(capture) = capture::of(first) {
        // Where the row is gone, so is the stream: an attempt before has done it.
        let is_known = system::read_one(first, &first_key(&head.tag)).await?.is_some();
        if let Some(filling) = Filling::now(first).await?.filter(|_| is_known) {
            return follow_on(run, head).await.and(Err(filling.refusal("the first site")));
        }
        capture::end(first, capture, (&head.tag, &head.id), head.other).await?;
        return free(run, head, Leftover::Clear).await;
    }
    let filling = system::transact(first, |tr| async move {
        let row = tr.get(first_key(&head.tag)).await?.map(|value| First::decode(&value));
        let filling = Filling::find(&tr).await?.filter(|found| *found != Filling::SecondSite);
        // Where the row is gone, so is the stream: an attempt before has done it.
        if filling.is_some() && row.transpose()?.is_some_and(|row| row.id == head.id) {
            return Ok(filling);
        }
        if let Some(other) = &head.other {
            let waiting = tr.get(HEAD).await?.map(|value| Head::decode(&value)).transpose()?;
            if waiting.is_some_and(|waiting| waiting.id == *other) {
                if tr.get(DATABASE_LOCKED).await?.and_then(|value| lock_id(&value)) == Some(*other)
                {
                    tr.clear(DATABASE_LOCKED);
                }
                tr.clear_range(SECOND.0, SECOND.1);
            }
        }
        // At once: an agent that wakes late locks the first, and registers a stream there, only
        // where this is.
        clear_first(&tr, &head.tag, &head.id).await.map(|()| None)
    })
    .await?;
    match filling {
        Some(filling) => follow_on(run, head).await.and(Err(filling.refusal("the first site"))),
        None => free(run, head, Leftover::Clear).await,
    }
}

/// It isn't ended after all: nothing was done but that the second says so.
async fn follow_on(run: &Run, head: &Head) -> Result<()> {
    let following = Head { wanted: Wanted::Following, other: None, ..head.clone() };
    run.transact(|tr| {
        let value = following.encode();
        async move {
            let found = tr.get(HEAD).await?.map(|value| Head::decode(&value)).transpose()?;
            if found.is_none_or(|found| (found.id, found.wanted) != (head.id, Wanted::Aborting)) {
                return Err(taken_over());
            }
            if let Some(other) = &head.other {
                tr.remove_changes(stream_name(other)).await?;
            }
            tr.set(HEAD, value);
            Ok(())
        }
    })
    .await?;
    run.note_head(following);
    Ok(())
}

/// A first is none any more, for this second: neither the row that says so nor the stream stays.
pub(crate) async fn clear_first(tr: &Transaction, tag: &str, id: &Id) -> Result<()> {
    let found = tr.get(first_key(tag)).await?.map(|value| First::decode(&value)).transpose()?;
    if found.is_some_and(|found| found.id == *id) {
        tr.clear(first_key(tag));
    }
    tr.remove_changes(stream_name(id)).await
}

/// The second was made free without the first, which still keeps its log for it. Either may be the
/// one.
async fn forget(sites: &Sites, tag: &str) -> Result<()> {
    // Whoever names them may not know that they had changed sides.
    for (first, second) in [(&sites.from, &sites.to), (&sites.to, &sites.from)] {
        let second = identity(second);
        let found =
            firsts(first).await?.into_iter().find(|(other, to)| other == tag && to.to == second);
        if let (Some((_, row)), Some(capture)) = (&found, capture::of(first)) {
            return capture::end(first, capture, (tag, &row.id), None).await;
        }
        if let Some((_, row)) = found {
            return system::transact(
                first,
                |tr| async move { clear_first(&tr, tag, &row.id).await },
            )
            .await;
        }
    }
    Err(nothing())
}

/// Makes the second free when the first is gone: it keeps what it has. Gives the version of the
/// first that that is, if it is known.
///
/// # Errors
/// `client_invalid_operation` if the database follows nobody, or was never whole, or has a part of
/// what was being restored into the first, and `leftover` doesn't say what becomes of that.
pub async fn abort_second(to: &Database, leftover: Leftover) -> Result<Option<Version>> {
    loop {
        let Some(head) = system::within(to, PATIENCE, head(to)).await? else {
            let detail = "the database follows no other one";
            return Err(Error::client_invalid_operation().with_detail(detail));
        };
        // What is wanted of it may have changed meanwhile: look again.
        let Some(run) = take_over(to, &head).await? else { continue };
        return free(&run, &head, leftover).await;
    }
}

/// What a second has that isn't whole, in words.
fn part(place: Option<Place>, is_copied: bool) -> String {
    let (what, choice) = match (is_copied, place) {
        (true, _) => (
            "something was being restored into the first site, and the second has a part of that"
                .to_owned(),
            "keep all rows as they are, that part among them (--keep-partial), or clear them all (--clear)",
        ),
        (false, place) => {
            let (rows, bytes) = place.map_or((0, 0), |place| (place.rows, place.bytes));
            (
                format!(
                    "the second site was never whole: {rows} rows, {bytes} bytes have been copied, each as it was at some version"
                ),
                "keep them as they are (--keep-partial) or clear them (--clear)",
            )
        }
    };
    format!("{what}; {choice}")
}

/// Step 3.
async fn free(run: &Run, head: &Head, leftover: Leftover) -> Result<Option<Version>> {
    let freed = run
        .transact(|tr| async move {
            let now = tr.get_read_version().await?;
            let place = tr.get(PLACE).await?.map(|value| Place::decode(&value)).transpose()?;
            let is_copied = match &place {
                Some(place) => place.whole_at().is_some(),
                None => head.wanted == Wanted::Waiting,
            };
            let is_whole = is_copied && tr.get(HALF).await?.is_none();
            if !is_whole && leftover == Leftover::Refuse {
                return Err(Error::client_invalid_operation().with_detail(part(place, is_copied)));
            }
            let is_locked =
                tr.get(DATABASE_LOCKED).await?.and_then(|value| lock_id(&value)) == Some(head.id);
            // Rows of a database that somebody has unlocked are somebody's.
            if !is_whole && leftover == Leftover::Clear && is_locked {
                USERS.iter().for_each(|(begin, end)| tr.clear_range(begin, end));
            }
            tr.clear_range(SECOND.0, SECOND.1);
            if let Some(other) = &head.other {
                // The stream of its own changes. Where it waits, that of the direction before: it
                // was the first until a moment ago.
                clear_first(&tr, &head.tag, other).await?;
            }
            if is_locked {
                let beyond = place.as_ref().filter(|_| leftover != Leftover::Clear || is_whole);
                unlock(&tr, beyond.map_or(0, |place| place.position), now)?;
            }
            Ok(place.and_then(|place| place.whole_at()))
        })
        .await;
    match freed {
        // The answer to the commit that did it may have been lost.
        Err(error)
            if error == Error::operation_cancelled()
                && crate::sites::head(&run.to).await?.is_none() =>
        {
            Ok(None)
        }
        freed => freed,
    }
}
