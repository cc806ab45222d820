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
//! A second that has a part of what is being restored into the first is freed with that, or
//! cleared, only if it is said: otherwise nothing is written, whoever asked is told, and what is
//! under way goes on, a change of sides as well.
//!
//! Always: a stream goes in the transaction that takes away the row that knows of it, and comes in
//! one that has read that row. So whoever comes late with a stream leaves none that nobody knows
//! of, and takes none away that somebody follows.

use crate::capture;
use crate::lease::Run;
use crate::rows::{
    First, HALF, HEAD, Head, Id, Leftover, PLACE, Place, SECOND, Wanted, first_key, stream_name,
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

/// What a second site holds that is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freed {
    /// What the first held at this version.
    Whole(Version),
    /// The rows that it had, which are a part.
    Part,
    /// Nothing: they were cleared.
    Empty,
    /// What it held before, at which nobody has looked: it was free already, or unlocked, or it was
    /// the first until a moment ago.
    AsItWas,
}

/// A run on a database that is still what `head` says.
async fn take_over(to: &Database, head: &Head) -> Result<Option<Run>> {
    let mut holder = Id::default();
    to.endpoint().env().fill_random(&mut holder);
    Run::begin(to, &holder, head, None).await
}

/// Ends it, on both sides. Where nobody says what becomes of rows that are a part, a second that
/// was never whole is cleared.
///
/// # Errors
/// `client_invalid_operation` if neither follows the other; `database_locked` while something is
/// being restored into a first that can't tell the second of it, or the second has a part of that
/// still and `leftover` doesn't say what becomes of it; `timed_out` if one of them can't be
/// reached.
pub async fn abort(sites: &Sites, tag: &str, leftover: Option<Leftover>) -> Result<Freed> {
    sites.reach().await?;
    loop {
        let Some(direction) = sites.direction().await? else {
            return forget(sites, tag).await.map(|()| Freed::AsItWas);
        };
        let Direction { from, to, head, .. } = &direction;
        // Before anybody is taken over from, who may have told why it has ended. What was found may
        // have changed while the other database was waited for: look again.
        let Some(held) = Held::now(to, head).await? else { continue };
        choose(&held, from, head, leftover).await.flatten()?;
        let Some(run) = take_over(to, head).await? else { continue };
        if head.wanted == Wanted::Waiting {
            or_as_it_was(&run, take_up(&run, &direction).await).await?;
            run.retire().await;
            continue;
        }
        let held = Held::of(&run, head).await?;
        let chosen = choose(&held, from, head, leftover).await.flatten();
        return end(&run, from, head, or_as_it_was(&run, chosen).await?).await;
    }
}

/// What a run came to: where that is a refusal, all becomes as it was before the run.
async fn or_as_it_was<T>(run: &Run, done: Result<T>) -> Result<T> {
    if done.is_err() {
        run.give_back().await;
    }
    done
}

/// Goes on with an end for an agent, wherever it is. Gives false if it can't come to that yet: it
/// was noted by an older program, and the second has a part of something.
pub(crate) async fn go_on(run: &Run, first: &Database, head: &Head) -> Result<bool> {
    match choose(&Held::of(run, head).await?, first, head, None).await? {
        Ok(chosen) => end(run, first, head, chosen).await.map(|_| true),
        Err(_) => Ok(false),
    }
}

/// What becomes of the second's rows if those are a part, or why it isn't ended.
async fn choose(
    held: &Held,
    first: &Database,
    head: &Head,
    said: Option<Leftover>,
) -> Result<Result<Leftover>> {
    let noted = match head.wanted {
        Wanted::Aborting(noted) => noted,
        _ => None,
    };
    Ok(match (said, noted) {
        // It was begun, and is gone on with.
        (None, Some(noted)) => Ok(noted),
        (None, None) if held.has_half() => Err(half(head)),
        (Some(said), _) if held.has_half() => Ok(said),
        (said, _) => match untold(first, head, held).await? {
            Some(filling) => Err(filling.refusal("the first site")),
            None => Ok(said.unwrap_or(Leftover::Clear)),
        },
    })
}

/// What is being brought into a first that follows on, of which the second may have a part without
/// knowing it.
async fn untold(first: &Database, head: &Head, held: &Held) -> Result<Option<Filling>> {
    let key = first_key(&head.tag);
    let keys: Vec<&[u8]> = [&key[..]].into_iter().chain(Filling::KEYS).collect();
    let (_, mut values) = system::read(first, &keys).await?;
    let row = values.remove(0).map(|value| First::decode(&value)).transpose()?;
    let filling = Filling::of(&values).filter(|found| *found != Filling::SecondSite);
    Ok(filling.filter(|_| held.is_copied && row.is_some_and(|row| row.id == head.id)))
}

/// That a second isn't ended as long as it has a part, and what can be done about that.
fn half(head: &Head) -> Error {
    let wait = match head.wanted {
        Wanted::Switching(_) => {
            "sides are being changed: have that come to its end first (plinth dr switch, with the same names)"
        }
        _ => "wait until it has the rest (plinth restore wait, plinth dr wait)",
    };
    let detail = format!(
        "something is being restored or migrated into the first site, or was, and the second has a part of that; {wait}, \
         or say what becomes of the second's rows: --keep-partial or --clear"
    );
    Error::database_locked().with_detail(detail)
}

/// Steps 1 to 3.
async fn end(run: &Run, first: &Database, head: &Head, leftover: Leftover) -> Result<Freed> {
    let head = Head { wanted: Wanted::Aborting(Some(leftover)), ..head.clone() };
    set_head(run, &head).await?;
    end_both(run, first, &head, leftover).await
}

/// Steps 2 and 3.
async fn end_both(run: &Run, first: &Database, head: &Head, leftover: Leftover) -> Result<Freed> {
    if let Some(capture) = capture::of(first) {
        capture::end(first, capture, (&head.tag, &head.id), head.other).await?;
        return free(run, head, leftover).await;
    }
    system::transact(first, |tr| async move {
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
        clear_first(&tr, &head.tag, &head.id).await
    })
    .await?;
    free(run, head, leftover).await
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

/// Makes the second free when the first is gone.
///
/// # Errors
/// `client_invalid_operation` if the database follows nobody, or was never whole, or has a part of
/// what was being restored into the first, and `leftover` doesn't say what becomes of that.
pub async fn abort_second(to: &Database, leftover: Option<Leftover>) -> Result<Freed> {
    loop {
        let Some(head) = system::within(to, PATIENCE, head(to)).await? else {
            let detail = "the database follows no other one";
            return Err(Error::client_invalid_operation().with_detail(detail));
        };
        // Before anybody is taken over from, who may have told why it has ended. What is wanted of
        // it may have changed meanwhile: look again.
        let Some(held) = Held::now(to, &head).await? else { continue };
        choose_alone(&held, leftover)?;
        let Some(run) = take_over(to, &head).await? else { continue };
        let chosen = choose_alone(&Held::of(&run, &head).await?, leftover);
        return free(&run, &head, or_as_it_was(&run, chosen).await?).await;
    }
}

/// What becomes of the rows of a second whose first is gone, or why it isn't made free.
fn choose_alone(held: &Held, said: Option<Leftover>) -> Result<Leftover> {
    match said {
        None if !held.is_whole => Err(Error::client_invalid_operation().with_detail(held.part())),
        said => Ok(said.unwrap_or(Leftover::Keep)),
    }
}

/// What a second holds.
struct Held {
    place: Option<Place>,
    /// Its first copy was done.
    is_copied: bool,
    /// It is what the first was at one version.
    is_whole: bool,
}

impl Held {
    /// What it holds now; whoever works at it moves it on. Nothing if its head says something else
    /// by now.
    async fn now(to: &Database, head: &Head) -> Result<Option<Self>> {
        system::transact(to, |tr| async move {
            match head.is_in(tr.get(HEAD).await?.as_ref())? {
                true => Self::find(&tr, head).await.map(Some),
                false => Ok(None),
            }
        })
        .await
    }

    /// What it holds for as long as this run is the one that may write.
    async fn of(run: &Run, head: &Head) -> Result<Self> {
        run.transact(|tr| async move { Self::find(&tr, head).await }).await
    }

    async fn find(tr: &Transaction, head: &Head) -> Result<Self> {
        let place = tr.get(PLACE).await?.map(|value| Place::decode(&value)).transpose()?;
        let is_copied = match &place {
            Some(place) => place.whole_at().is_some(),
            None => head.wanted == Wanted::Waiting,
        };
        let is_whole = is_copied && tr.get(HALF).await?.is_none();
        Ok(Self { place, is_copied, is_whole })
    }

    /// It has a part of what something is bringing into the first.
    fn has_half(&self) -> bool {
        self.is_copied && !self.is_whole
    }

    /// What it has, where that is a part, and what can be done with that.
    fn part(&self) -> String {
        if self.is_copied {
            return "something was being restored into the first site, and the second has a part of that; keep all rows as they \
                    are, that part among them (--keep-partial), or clear them all (--clear)"
                .to_owned();
        }
        let (rows, bytes) = self.place.as_ref().map_or((0, 0), |place| (place.rows, place.bytes));
        format!(
            "the second site was never whole: {rows} rows, {bytes} bytes have been copied, each as it was at some version; keep \
             them as they are (--keep-partial) or clear them (--clear)"
        )
    }
}

/// Step 3.
async fn free(run: &Run, head: &Head, leftover: Leftover) -> Result<Freed> {
    let freed = run
        .transact(|tr| async move {
            let now = tr.get_read_version().await?;
            let held = Held::find(&tr, head).await?;
            let (is_whole, place) = (held.is_whole, held.place);
            let is_locked =
                tr.get(DATABASE_LOCKED).await?.and_then(|value| lock_id(&value)) == Some(head.id);
            // Rows of a database that somebody has unlocked are somebody's.
            let is_cleared = !is_whole && leftover == Leftover::Clear && is_locked;
            if is_cleared {
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
            let whole_at = place.and_then(|place| place.whole_at());
            Ok(match whole_at.filter(|_| is_whole && is_locked) {
                Some(version) => Freed::Whole(version),
                None if is_cleared => Freed::Empty,
                None if !is_whole => Freed::Part,
                None => Freed::AsItWas,
            })
        })
        .await;
    match freed {
        // The answer to the commit that did it may have been lost.
        Err(error)
            if error == Error::operation_cancelled()
                && crate::sites::head(&run.to).await?.is_none() =>
        {
            Ok(Freed::AsItWas)
        }
        freed => freed,
    }
}
