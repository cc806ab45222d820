//! The task that rolls up by itself, as long as somebody holds the store.
//!
//! What has come since it looked last is rolled up at once: series that got some leaves, and such
//! of which points changed. All others it goes through one after the other, once when the store is
//! opened and whenever rules change, and rests three times as long as it worked, so that history
//! that is long doesn't take a processor for itself.

use super::keys::Id;
use super::roll::{self, Came};
use super::rolls::{self, Known};
use super::{Part, Shared};
use crate::error::{Error, Result};
use crate::name::Name;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often it looks.
const LOOK: Duration = Duration::from_millis(250);
/// How often series are rolled up that got less than is worth while by itself.
const SELDOM: Duration = Duration::from_hours(1);
/// For each moment that it works through what there was before, so many in which it rests.
const RESTS: u32 = 3;
/// For how long it works without looking at what has come.
const STRETCH: Duration = Duration::from_millis(50);
/// How long it waits when something has failed: a database that is locked stays so for a while.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Where the task is among the series that were there before.
struct Walk {
    /// The next number to look at; `None` when all were.
    next: Option<u64>,
    looked_at: u64,
    /// How many there are.
    all: u64,
    /// When all that is due is taken, however little.
    seldom: Duration,
}

/// Starts it for a part that is owned, if that commits by itself.
pub(super) fn start(shared: &Arc<Shared>) {
    if shared.settings.commit_every.is_none() {
        return;
    }
    let env = shared.database.endpoint().env().clone();
    let shared: Weak<Shared> = Arc::downgrade(shared);
    let timer = env.clone();
    let task = env.spawn("plinth-series-rollups", async move {
        let mut walk = Walk { next: Some(0), looked_at: 0, all: 0, seldom: timer.now() + SELDOM };
        let mut pause = Duration::ZERO;
        loop {
            timer.sleep(pause).await;
            let Some(shared) = shared.upgrade() else { return };
            if shared.check().is_err() {
                return;
            }
            let worked = timer.now();
            pause = match work(&shared, &mut walk).await {
                Ok(()) if walk.next.is_some() => timer.now().saturating_sub(worked) * RESTS,
                Ok(()) => LOOK,
                Err(_) => TRY_AGAIN,
            };
        }
    });
    drop(task);
}

/// Looks at the rules, does what is due, and goes on with the walk for a while.
async fn work(shared: &Arc<Shared>, walk: &mut Walk) -> Result<()> {
    let env = shared.database.endpoint().env();
    if rolls::learn(shared).await? {
        (walk.next, walk.looked_at) = (Some(0), 0);
    }
    let known = shared.rolls.known();
    if known.keeping.rollups().is_empty() {
        walk.next = None;
        shared.rolls.set_walked(0, 0);
        return Ok(());
    }
    let is_seldom = env.now() >= walk.seldom;
    if is_seldom {
        walk.seldom = env.now() + SELDOM;
    }
    let begun = env.now();
    let mut failed = Ok(());
    let mut due = shared.rolls.take_due(is_seldom, begun).into_iter();
    for (id, name) in due.by_ref() {
        let step = step(shared, (id, &name)).await;
        match &step {
            Ok(Came::Done) => {}
            Ok(Came::More) => shared.rolls.note_rest((id, &name)),
            Err(_) => shared.rolls.note((id, &name), 0, Some(env.now())),
        }
        failed = step.map(drop).and(failed);
        if ends(&failed) || env.now().saturating_sub(begun) >= STRETCH {
            break;
        }
    }
    // What there was no time for.
    due.for_each(|(id, name)| shared.rolls.note_rest((id, &name)));
    if !ends(&failed) {
        failed = go_on(shared, walk, &known).await.and(failed);
    }
    failed
}

/// Whether nothing can be done at all: the database is locked, or somebody else's.
fn ends(result: &Result<()>) -> bool {
    matches!(result, Err(Error::Locked(_) | Error::NotOwner))
}

/// A step of one series. If that fails for a cause of its own, others go on.
async fn step(shared: &Arc<Shared>, (id, name): (Id, &Name)) -> Result<Came> {
    let came = roll::roll_some(shared, id, name).await;
    if let Err(why) = &came
        && shared.rolls.count_failure(shared.database.endpoint().env().now())
    {
        tracing::warn!(series = %name, error = %why, "a series can't be rolled up");
    }
    came
}

/// Goes on with the walk for a while.
async fn go_on(shared: &Arc<Shared>, walk: &mut Walk, known: &Known) -> Result<()> {
    let env = shared.database.endpoint().env();
    let part = Part { shared: shared.clone() };
    if walk.next == Some(0) {
        walk.all = part.count().await?;
    }
    let begun = env.now();
    let is_over = |begun: Duration| env.now().saturating_sub(begun) >= STRETCH;
    let mut failed = Ok(());
    while let Some(least) = walk.next {
        let (found, is_end) = part.page_of_all(least, true).await?;
        for found in &found {
            let mut came = Ok(Came::Done);
            if known.keeping.has(found.name.metric()) {
                came = step(shared, (found.id, &found.name)).await;
            }
            let is_done = !matches!(came, Ok(Came::More));
            failed = came.map(drop).and(failed);
            if ends(&failed) {
                return failed;
            }
            walk.next = Some(found.id + u64::from(is_done));
            walk.looked_at += u64::from(is_done);
            if !is_done || is_over(begun) {
                break;
            }
        }
        let is_all = is_end && found.last().is_none_or(|last| walk.next > Some(last.id));
        if is_all {
            walk.next = None;
        }
        let left = if is_all { 0 } else { walk.all.saturating_sub(walk.looked_at).max(1) };
        shared.rolls.set_walked(walk.looked_at, left);
        if is_all || is_over(begun) {
            break;
        }
        env.yield_now().await;
    }
    failed
}
