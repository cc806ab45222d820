//! Adding up where the series are owned: what was added becomes points at once, by no inbox.
//!
//! ```text
//!   the turn | what waits in the inbox is taken in | each increment: the newest point and what was added | saved |
//! ```
//!
//! Whoever has the turn is the only one that takes in, so behind what waits in the inbox he knows
//! what is newest in each series; he commits once, where an increment that goes by the inbox is
//! written, read and written again. An increment is older than what is newest, or not, in the same
//! way as there (`increments.rs`), so whoever doesn't know what became of one may send it again,
//! to anybody.

use super::flush::{self, flush_now, take_in_now};
use super::increments::AT_ONCE;
use super::{Series, SeriesStore, Shared, lock};
use crate::error::{Error, Result};
use crate::increment;
use crate::value::Point;
use plinth_env::sync::{all, pause};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What was added to a series: its numbers, as points.
pub(crate) struct Adding {
    pub(crate) series: Series,
    pub(crate) points: Vec<Point>,
}

/// What became of what was added to a series.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Added {
    /// How many are in the sum now. What is as new as the newest point was in it before.
    pub(crate) taken: u64,
    /// How many are older than that, and in no sum.
    pub(crate) older: u64,
}

impl SeriesStore {
    /// Adds to series that are owned, to each in this order: what became of each. When it returns,
    /// the sums survive a crash.
    ///
    /// Of each [`Error::Deleted`], [`Error::Damaged`], and [`Error::NotOwner`] or
    /// [`Error::ReadOnly`] if it isn't owned any more.
    ///
    /// # Errors
    /// As [`SeriesStore::sync`]. Then some may be in their sums.
    pub(crate) async fn add_up(&self, adding: &[Adding]) -> Result<Vec<Result<Added>>> {
        let mut parts = BTreeMap::<usize, Vec<usize>>::new();
        for (place, one) in adding.iter().enumerate() {
            parts.entry(one.series.shared.of.number).or_default().push(place);
        }
        let mut came = vec![Ok(Added::default()); adding.len()];
        let added = parts.values().map(|places| add_to_part(adding, places));
        for (places, added) in parts.values().zip(all(added).await) {
            match added {
                Ok(added) => places.iter().zip(added).for_each(|(at, one)| came[*at] = one),
                Err(Error::NotOwner) => {
                    places.iter().for_each(|at| came[*at] = Err(Error::NotOwner));
                }
                Err(why) => return Err(why),
            }
        }
        Ok(came)
    }
}

/// Adds to the series of one part, which lie at these places.
async fn add_to_part(adding: &[Adding], places: &[usize]) -> Result<Vec<Result<Added>>> {
    let Some(first) = places.first() else { return Ok(Vec::new()) };
    let shared = &adding[*first].series.shared;
    flush::only_an_owner(shared)?;
    let turn = shared.take_turn().await?;
    turn.done(add_now(shared, adding, places).await)
}

async fn add_now(
    shared: &Arc<Shared>,
    adding: &[Adding],
    places: &[usize],
) -> Result<Vec<Result<Added>>> {
    take_in_now(shared).await?;
    let mut came = Vec::with_capacity(places.len());
    for some in places.chunks(AT_ONCE) {
        pause().await;
        let mut newest: Vec<Result<Option<Point>>> =
            some.iter().map(|at| Ok(adding[*at].series.newest_open())).collect();
        let is_elsewhere = |at: &usize| matches!(newest[*at], Ok(None));
        let elsewhere: Vec<usize> = (0..some.len()).filter(is_elsewhere).collect();
        if !elsewhere.is_empty() {
            let read = elsewhere.iter().map(|at| adding[some[*at]].series.newest_known());
            // Boxed, since what it reads is deep, and seldom wanted.
            for (at, found) in elsewhere.iter().zip(Box::pin(all(read)).await) {
                newest[*at] = found;
            }
        }
        for (at, newest) in some.iter().zip(newest) {
            let Adding { series, points } = &adding[*at];
            came.push(match newest {
                Ok(newest) => series.add(points, newest),
                Err(why @ (Error::Damaged { .. } | Error::Deleted)) => Err(why),
                Err(why) => return Err(why),
            });
        }
    }
    flush_now(shared, flush::Sealed::Nothing).await?;
    Ok(came)
}

impl Series {
    /// Adds increments to the newest point, which was this or is in memory.
    fn add(&self, increments: &[Point], newest: Option<Point>) -> Result<Added> {
        let mut state = lock(&self.cell.state);
        self.may_take(&state)?;
        // Somebody may have appended a point meanwhile.
        let open = state.open.iter().next_back();
        let mut newest = match (newest, open) {
            (Some(saved), Some(open)) if open.time < saved.time => Some(saved),
            (saved, open) => open.or(saved),
        };
        let (mut added, mut sums) = (Added::default(), Vec::with_capacity(increments.len()));
        for increment in increments {
            let value = match newest {
                Some(newest) if increment.time < newest.time => {
                    added.older += 1;
                    continue;
                }
                Some(newest) if increment.time == newest.time => continue,
                Some(newest) => increment::sum(newest.value, increment.value),
                None => increment.value,
            };
            let sum = Point { time: increment.time, value };
            newest = Some(sum);
            sums.push(sum);
        }
        added.taken = sums.len() as u64;
        self.put(&mut state, &sums);
        Ok(added)
    }
}
