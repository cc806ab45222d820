//! Adding to the newest point of a series: whoever does so has the turn until what was added is
//! seen by the next one.

use super::turn::Turn;
use super::{Role, Series, SeriesStore, Standing, lock};
use crate::error::Result;
use crate::tree::Direction;
use crate::value::Point;

/// The turn of whoever looks at newest points and appends behind them.
pub(crate) struct Adding<'a> {
    _turn: Turn<'a>,
    store: &'a SeriesStore,
}

impl SeriesStore {
    /// Waits until nobody else in this process adds to series of the place.
    pub(crate) async fn adding(&self) -> Adding<'_> {
        Adding { _turn: self.first().of.whole.adding.take().await, store: self }
    }
}

impl Adding<'_> {
    /// Lets the next one have the turn: what was posted to others is committed first, since they
    /// are asked what is newest.
    ///
    /// # Errors
    /// As [`SeriesStore::sync`].
    pub(crate) async fn end(self) -> Result<()> {
        match self.store.shareds().iter().any(|shared| shared.is_poster()) {
            true => self.store.sync().await,
            false => Ok(()),
        }
    }
}

impl Series {
    /// Whether what was added can be summed up here: not where points are passed on to whoever owns
    /// it, since others may look at the same newest point meanwhile.
    pub(crate) fn is_owned(&self) -> bool {
        !self.shared.is_poster()
    }

    /// Whether what is newest in it can be found out, here or by asking its owner.
    pub(crate) fn can_be_read(&self) -> bool {
        !matches!(self.shared.role, Role::Poster(None))
    }

    /// Its newest point.
    ///
    /// # Errors
    /// As [`Series::scan`].
    pub(crate) async fn newest(&self) -> Result<Option<Point>> {
        if !self.shared.is_poster() {
            let state = lock(&self.cell.state);
            if state.standing == Standing::Gone {
                return Ok(None);
            }
            if let Some(point) = state.open.iter().next_back() {
                return Ok(Some(point));
            }
        }
        let points = self.scan_unchecked(.., Direction::Backward).await?.next().await?;
        // They ascend, whatever the direction.
        Ok(points.and_then(|points| points.iter().next_back()))
    }
}
