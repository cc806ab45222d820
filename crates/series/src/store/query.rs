//! Reading a series: its points, and what buckets of them come to.
//!
//! Points are those of the tree, late ones and memory, merged (`merged.rs`). What is asked by the
//! bucket is answered from nodes of the tree, and from rollups where there are some (`rolled.rs`).

use super::Series;
use super::merged::Merged;
use super::origin::Origin;
use super::rolled::{Fit, GoneCheck, Parts, Read};
use crate::error::Result;
use crate::rollup::Needed;
use crate::tree::{Direction, Groups, Piece, Span, Summary};
use crate::value::{Point, Points};
use std::ops::{Bound, RangeBounds};

/// A scan of a series.
pub struct PointStream {
    merged: Merged,
    /// Finds out at the end whether points went meanwhile.
    gone_check: Option<GoneCheck>,
}

/// The buckets of a series.
pub struct GroupStream {
    parts: Parts,
    from: Origin,
    groups: Groups,
}

/// What a question about a span came to, and where that comes from.
pub(crate) struct Known<T> {
    pub(crate) found: T,
    pub(crate) origin: Origin,
}

impl Series {
    /// The points of a range of times.
    ///
    /// # Errors
    /// [`crate::Error::NotOwner`], [`crate::Error::Damaged`], [`crate::Error::Database`]; so for
    /// all that reads. A scan that outlasts the version that it began at ends with
    /// `transaction_too_old` (1007) if points of the range, of which buckets stay, went meanwhile.
    pub async fn scan(
        &self,
        range: impl RangeBounds<i64>,
        direction: Direction,
    ) -> Result<PointStream> {
        let span = Span::new(range);
        // Points may go meanwhile, so what has gone is looked at behind them.
        let merged = Merged::new(self, span, direction).await?;
        let gone_check = GoneCheck::new(self, span).await?;
        Ok(PointStream { merged, gone_check: Some(gone_check) })
    }

    /// The same for whoever has points go himself, or asks for none that could.
    pub(super) async fn scan_unchecked(
        &self,
        range: impl RangeBounds<i64>,
        direction: Direction,
    ) -> Result<PointStream> {
        let merged = Merged::new(self, Span::new(range), direction).await?;
        Ok(PointStream { merged, gone_check: None })
    }

    /// The summary of a range of times, however long, from a handful of nodes; `None` if there are
    /// no points.
    ///
    /// # Errors
    /// As [`Series::scan`].
    pub async fn aggregate(&self, range: impl RangeBounds<i64>) -> Result<Option<Summary>> {
        Ok(self.known_aggregate(Span::new(range)).await?.found)
    }

    pub(crate) async fn known_aggregate(&self, span: Span) -> Result<Known<Option<Summary>>> {
        // Nodes of the tree are faster, so buckets are for where there are no points.
        let parts =
            Parts::new(self, span, Direction::Forward, (|_| Fit::Not, Needed::COUNTS)).await?;
        let mut parts = match parts.are_missing {
            true => {
                let within = (|_| Fit::Within, Needed::SUMMARIES);
                Parts::new(self, span, Direction::Forward, within).await?
            }
            false => parts,
        };
        let origin = parts.origin();
        let mut sum: Option<Summary> = None;
        let mut add = |summary: &Summary| match &mut sum {
            Some(sum) => sum.add(summary),
            None => sum = Some(*summary),
        };
        while let Some(part) = parts.next(|_| true).await? {
            match part {
                Read::Piece(Piece::Whole(summary)) => add(&summary),
                Read::Piece(Piece::Points(points)) => {
                    Summary::of(&points).as_ref().into_iter().for_each(&mut add);
                }
                Read::Buckets(buckets, _) => buckets.summaries(false, &mut add),
            }
        }
        Ok(Known { found: sum, origin })
    }

    /// The summaries of the range's buckets of `step` nanoseconds each, oldest first, without those
    /// that are empty. Buckets are counted from the range's beginning, or from 1970 if it has none.
    ///
    /// # Errors
    /// As [`Series::scan`].
    pub async fn group_aggregate(
        &self,
        range: impl RangeBounds<i64>,
        step: u64,
    ) -> Result<GroupStream> {
        let is_open = matches!(range.start_bound(), Bound::Unbounded);
        let span = Span::new(range);
        let origin = if is_open { 0 } else { span.first };
        let fits = |every: i64| within(is_multiple(origin, every) && is_multiple_of(step, every));
        let of_all = (fits, Needed::SUMMARIES);
        let parts = Parts::new(self, span, Direction::Forward, of_all).await?;
        Ok(GroupStream { from: parts.origin(), parts, groups: Groups::new(origin, step) })
    }

    /// The same with the newest bucket first. Buckets are counted down from the range's last
    /// nanosecond, or from 1970 if it has none, and each comes with its last nanosecond.
    ///
    /// # Errors
    /// As [`Series::scan`].
    pub async fn group_aggregate_backward(
        &self,
        range: impl RangeBounds<i64>,
        step: u64,
    ) -> Result<GroupStream> {
        let is_open = matches!(range.end_bound(), Bound::Unbounded);
        let span = Span::new(range);
        let origin = if is_open { 0 } else { span.last };
        let begin = origin.checked_add(1);
        let fits = |every: i64| {
            let is_aligned = begin.is_some_and(|begin| is_multiple(begin, every));
            within(is_aligned && is_multiple_of(step, every))
        };
        let of_all = (fits, Needed::SUMMARIES);
        let parts = Parts::new(self, span, Direction::Backward, of_all).await?;
        Ok(GroupStream { from: parts.origin(), parts, groups: Groups::backward(origin, step) })
    }

    /// The parts of a span, in the order of time: buckets where their length fits what is asked,
    /// with what is needed of them.
    pub(crate) async fn parts(
        &self,
        span: Span,
        fits: impl Fn(i64) -> Fit + Send,
        needed: Needed,
    ) -> Result<Parts> {
        Parts::new(self, span, Direction::Forward, (fits, needed)).await
    }
}

impl PointStream {
    /// How many points it holds that have not been asked for.
    pub(crate) fn points_held(&self) -> usize {
        self.merged.points_held()
    }

    /// Where they come from: no buckets are points.
    pub(crate) fn origin(&self) -> Origin {
        let gone_check = self.gone_check.as_ref();
        Origin { are_missing: gone_check.is_some_and(|check| check.are_missing), every: None }
    }

    /// The next points, a few thousand at most, ascending by time whatever the direction. `None` at
    /// the end.
    ///
    /// # Errors
    /// As [`Series::scan`].
    pub async fn next(&mut self) -> Result<Option<Points>> {
        self.next_needed(|_| true).await
    }

    /// The next points, leaving out what need not be looked at: parts of the series whose summary
    /// `is_needed` refuses.
    ///
    /// # Errors
    /// As [`Series::scan`].
    pub async fn next_needed(
        &mut self,
        is_needed: impl Fn(&Summary) -> bool,
    ) -> Result<Option<Points>> {
        loop {
            match self.merged.next(|summary| !is_needed(summary)).await? {
                Some(Piece::Points(points)) => return Ok(Some(points)),
                Some(Piece::Whole(_)) => {}
                None => {
                    if let Some(gone_check) = &self.gone_check {
                        gone_check.check(&self.merged.reader).await?;
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// All points that are left, in the scan's order.
    ///
    /// # Errors
    /// As [`Series::scan`].
    pub async fn collect(mut self) -> Result<Vec<Point>> {
        let mut all = Vec::new();
        while let Some(points) = self.next().await? {
            match self.merged.direction {
                Direction::Forward => all.extend(points.iter()),
                Direction::Backward => all.extend(points.iter().rev()),
            }
        }
        Ok(all)
    }
}

impl GroupStream {
    /// Where they come from.
    pub(crate) fn origin(&self) -> Origin {
        self.from
    }

    /// How many points it holds that have not been looked at.
    pub(crate) fn points_held(&self) -> usize {
        self.parts.points_held() + self.groups.held()
    }

    /// The next bucket that has points: its first nanosecond, or its last if the stream goes
    /// backward, and what is in it. `None` at the end.
    ///
    /// # Errors
    /// As [`Series::scan`].
    pub async fn next(&mut self) -> Result<Option<(i64, Summary)>> {
        let is_backward = self.groups.is_backward();
        loop {
            if let Some(bucket) = self.groups.next_done() {
                return Ok(Some(bucket));
            }
            let groups = &self.groups;
            match self.parts.next(|summary| groups.is_whole(summary)).await? {
                Some(Read::Piece(piece)) => self.groups.add(piece),
                Some(Read::Buckets(buckets, _)) => {
                    buckets.summaries(is_backward, |summary| self.groups.add_whole(summary));
                }
                None => return Ok(self.groups.finish()),
            }
        }
    }
}

/// Whether a time is a multiple of so many nanoseconds.
fn is_multiple(time: i64, every: i64) -> bool {
    time.rem_euclid(every) == 0
}

fn within(fits: bool) -> Fit {
    if fits { Fit::Within } else { Fit::Not }
}

/// Whether a step is.
fn is_multiple_of(step: u64, every: i64) -> bool {
    step > 0 && step.is_multiple_of(every.unsigned_abs())
}

impl std::fmt::Debug for PointStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PointStream")
            .field("direction", &self.merged.direction)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for GroupStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupStream").field("groups", &self.groups).finish_non_exhaustive()
    }
}
