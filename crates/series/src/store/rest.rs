//! Series at rest: what of them is in no full leaf becomes a leaf that is not full.
//!
//! The tail costs twice as much for a point as a leaf, is read whole when the store is opened, and
//! keeps its points in memory besides. A series that nobody writes to any more would stay there
//! until the tail has to become shorter. So the store's own task goes its rounds, a few thousand
//! series at a time:
//!
//! ```text
//!   a look: the open leaf has n points  ...  still n, and it is due  ->  a leaf, if n is an eighth of a full one; fewer stay in the tail
//!           they are noted, with the time                                (each leaf has a key, a header and a summary of its own)
//! ```
//!
//! Those that stay keep the whole tail from the oldest of them on, whatever else is in it: a single
//! series with a point a minute, beside which others filled one leaf after another, would have it
//! grow to what it may have at most. Where the tail is much longer than the points in no leaf can
//! need, a round writes its oldest points anew, at its end, and what lay between them goes.
//!
//! Appending knows nothing of it. When a series is due, its own pace says: what has a point an hour
//! is not at rest after a minute, or each of its leaves would have an eighth of what it could.

use super::keys::Id;
use super::{Cell, Shared, State, lock, prefetch_cells};
use crate::value::Points;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Series that are looked at in one go, while whoever saves has to wait.
const LOOKED_AT: usize = 16_384;

/// Points that are sealed in one go, about, and that are written into the tail anew.
pub(super) const TOGETHER: usize = 64 << 10;

/// A leaf of a series at rest has one in so many of a full leaf's points, at least.
const LEAST_PART: usize = 8;

/// So many times as long as between two of its points, on average, a series has to be without a new
/// one.
const STEPS: u32 = 16;

/// Such a part of what the tail may have at most it may have whatever is in it, 4 MiB by default;
/// and for each point that is in no leaf so many bytes more, more than the worst points of full
/// batches take, so that a tail that was written anew is short enough.
const SHORT_PART: usize = 64;
const LONG_POINT: usize = 32;

/// From the end of a round to the beginning of the next one, at least.
const PAUSE: Duration = Duration::from_millis(100);

/// Series with points in no leaf, by the oldest batch of the tail that they need.
pub(super) type Ages = BTreeMap<(u64, Id), Arc<Cell>>;

/// Where the rounds are.
#[derive(Default)]
pub(super) struct Rounds {
    /// The last series that this round has looked at; `None` between two rounds.
    place: Option<(u64, Id)>,
    /// When the next round may begin, by the environment's clock.
    next: Duration,
}

impl Rounds {
    /// Whether a round is under way, or the next one may begin.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.place.is_some() || now >= self.next
    }

    /// The next series of the round that are at rest.
    pub(super) fn find(&mut self, shared: &Shared, ages: &Ages, after: Duration) -> Vec<Arc<Cell>> {
        let now = shared.database.endpoint().env().now();
        let begin = self.place.map_or(Bound::Unbounded, Bound::Excluded);
        let next: Vec<(&(u64, Id), &Arc<Cell>)> =
            ages.range((begin, Bound::Unbounded)).take(LOOKED_AT).collect();
        let (mut resting, mut points, mut looked_at) = (Vec::new(), 0, 0);
        while let Some((_, cell)) = next.get(looked_at)
            && points < TOGETHER
        {
            prefetch_cells(looked_at, |place| next.get(place).map(|(_, cell)| &***cell));
            let mut state = lock(&cell.state);
            if is_resting(&mut state, now, after, shared.settings.leaf_points) {
                points += state.open.len();
                resting.push((*cell).clone());
            }
            looked_at += 1;
        }
        let is_over = looked_at == next.len() && looked_at < LOOKED_AT;
        let place =
            looked_at.checked_sub(1).and_then(|last| next.get(last)).map(|(place, _)| **place);
        self.place = place.filter(|_| !is_over);
        if is_over {
            self.next = now.saturating_add(PAUSE.max(after / 2));
        }
        resting
    }
}

/// What the last look saw of an open leaf that has changed since the look before.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    points: u32,
    /// The environment's clock, in milliseconds, of which this is what 32 bits hold: 49 days, and
    /// then it begins anew.
    at: u32,
}

/// Whether a tail of so many bytes is much longer than so many points in no leaf can need.
pub(super) fn is_tail_too_long(shared: &Shared, bytes: usize, open_points: usize) -> bool {
    bytes
        > (shared.settings.tail_bytes / SHORT_PART)
            .saturating_add(open_points.saturating_mul(LONG_POINT))
}

/// Whether a series has been without new points for long enough, and has enough of them; notes what
/// there is.
fn is_resting(state: &mut State, now: Duration, after: Duration, leaf_points: usize) -> bool {
    let now = now.as_millis() as u32;
    let points = u32::try_from(state.open.len()).unwrap_or(u32::MAX);
    if state.seen.points != points {
        state.seen = Seen { points, at: now };
        return false;
    }
    let rested = Duration::from_millis(u64::from(now.wrapping_sub(state.seen.at)));
    state.open.len() >= leaf_points.div_ceil(LEAST_PART)
        && rested >= after.max(mean_step(&state.open).saturating_mul(STEPS))
}

/// How long it is from one point to the next, on average.
fn mean_step(points: &Points) -> Duration {
    let (Some(first), Some(last)) = (points.times.first(), points.times.last()) else {
        return Duration::ZERO;
    };
    let steps = points.len().saturating_sub(1).max(1) as u64;
    Duration::from_nanos(last.abs_diff(*first) / steps)
}
