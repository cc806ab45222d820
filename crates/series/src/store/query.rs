//! Reading a series: the tree, late points and memory as one.
//!
//! What is in memory is taken first, then the tree is read: a leaf that was being written meanwhile
//! is then in both, and memory gives way for times that the tree has. Late points lie over
//! everything: one with the time of another point replaces it. A node of the tree is used as its
//! summary only if it is known that no late point lies between its first and its last. Late points
//! are read some leaves at a time, ahead of the tree.

use super::late::{Late, over_each_other};
use super::nodes::Reader;
use super::{Series, lock};
use crate::error::Result;
use crate::tree::{Direction, Groups, Piece, Span, Summary, Walk};
use crate::value::{Point, Points};
use std::ops::{Bound, RangeBounds};

/// The pieces of a series, merged.
struct Merged {
    reader: Reader,
    walk: Walk,
    direction: Direction,
    /// What is in memory and not in the tree.
    memory: Option<Points>,
    late: Late,
    /// What comes after the late points that were given before it.
    held: Option<Piece>,
}

/// A scan of a series.
pub struct PointStream {
    merged: Merged,
}

/// The buckets of a series.
pub struct GroupStream {
    merged: Merged,
    groups: Groups,
}

impl Series {
    /// The points of a range of times.
    ///
    /// # Errors
    /// [`crate::Error::Damaged`], [`crate::Error::Database`]; so for all that reads.
    pub async fn scan(
        &self,
        range: impl RangeBounds<i64>,
        direction: Direction,
    ) -> Result<PointStream> {
        Ok(PointStream { merged: Merged::new(self, Span::new(range), direction).await? })
    }

    /// The summary of a range of times, however long, from a handful of nodes; `None` if there are
    /// no points.
    ///
    /// # Errors
    /// As [`Series::scan`].
    pub async fn aggregate(&self, range: impl RangeBounds<i64>) -> Result<Option<Summary>> {
        let mut merged = Merged::new(self, Span::new(range), Direction::Forward).await?;
        let mut sum: Option<Summary> = None;
        while let Some(piece) = merged.next(|_| true).await? {
            let summary = match piece {
                Piece::Whole(summary) => Some(summary),
                Piece::Points(points) => Summary::of(&points),
            };
            match (&mut sum, summary) {
                (Some(sum), Some(summary)) => sum.add(&summary),
                (sum, summary) => *sum = sum.or(summary),
            }
        }
        Ok(sum)
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
        let merged = Merged::new(self, span, Direction::Forward).await?;
        Ok(GroupStream { merged, groups: Groups::new(origin, step) })
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
        let merged = Merged::new(self, span, Direction::Backward).await?;
        Ok(GroupStream { merged, groups: Groups::backward(origin, step) })
    }

    /// What of the span is in memory: late points, and points behind the tree's.
    fn in_memory(&self, span: Span) -> (Vec<Point>, Points) {
        let state = lock(&self.cell.state);
        let late = state.merging.iter().chain(&state.late).copied().collect();
        let mut points = Points::default();
        for leaf in state.sealing.iter().map(|leaf| &**leaf).chain([&state.open]) {
            points.append(leaf, span.places(&leaf.times));
        }
        (late, points)
    }
}

impl PointStream {
    /// How many points it holds that have not been asked for.
    pub(crate) fn points_held(&self) -> usize {
        self.merged.points_held()
    }

    /// The next points, a few thousand at most, ascending by time whatever the direction. `None` at
    /// the end.
    ///
    /// # Errors
    /// As [`Series::scan`].
    pub async fn next(&mut self) -> Result<Option<Points>> {
        match self.merged.next(|_| false).await? {
            Some(Piece::Points(points)) => Ok(Some(points)),
            _ => Ok(None),
        }
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
                None => return Ok(None),
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
    /// How many points it holds that have not been looked at.
    pub(crate) fn points_held(&self) -> usize {
        self.merged.points_held()
    }

    /// The next bucket that has points: its first nanosecond, or its last if the stream goes
    /// backward, and what is in it. `None` at the end.
    ///
    /// # Errors
    /// As [`Series::scan`].
    pub async fn next(&mut self) -> Result<Option<(i64, Summary)>> {
        loop {
            if let Some(bucket) = self.groups.next_done() {
                return Ok(Some(bucket));
            }
            let groups = &self.groups;
            match self.merged.next(|summary| groups.is_whole(summary)).await? {
                Some(piece) => self.groups.add(piece),
                None => return Ok(self.groups.finish()),
            }
        }
    }
}

impl Merged {
    async fn new(series: &Series, span: Span, direction: Direction) -> Result<Self> {
        let series = &series.brought(span).await?;
        let shared = &series.shared;
        let (mut late_in_memory, mut memory) = series.in_memory(span);
        let mut reader = Reader::new(&shared.database, &shared.keys, series.cell.id);
        if !series.is_looked_up && reader.sees_inbox(shared).await? {
            shared.take_in().await?;
            (late_in_memory, memory) = series.in_memory(span);
            // Memory is looked at first, then the tree; so what was read before does not count.
            reader = Reader::new(&shared.database, &shared.keys, series.cell.id);
        }
        let late = Late::open(&reader, span, direction, late_in_memory).await?;
        let walk = Walk::new(&reader, span, direction).await?;
        if let Some(last) = walk.last() {
            memory.keep(memory.times.partition_point(|time| *time <= last)..memory.len());
        }
        let memory = (!memory.is_empty()).then_some(memory);
        Ok(Self { reader, walk, direction, memory, late, held: None })
    }

    /// How many points are in memory because of it.
    fn points_held(&self) -> usize {
        self.late.held() + self.memory.as_ref().map_or(0, Points::len)
    }

    /// Before which time nothing comes but late points; `None` if nothing else comes.
    fn front(&self) -> Option<i64> {
        match (&self.held, self.direction) {
            (Some(piece), Direction::Forward) => Some(ends(piece).0),
            (Some(piece), Direction::Backward) => Some(ends(piece).1),
            (None, Direction::Forward) => {
                let memory = || self.memory.as_ref()?.times.first().copied();
                self.walk.front().or_else(memory)
            }
            (None, Direction::Backward) => {
                let memory = self.memory.as_ref().and_then(|memory| memory.times.last().copied());
                memory.or_else(|| self.walk.front())
            }
        }
    }

    /// The next piece, whole where `whole` allows it.
    async fn next(&mut self, whole: impl Fn(&Summary) -> bool) -> Result<Option<Piece>> {
        loop {
            let front = self.front();
            if self.late.is_behind(front) {
                // All that is known of late points lies before the rest.
                let points = self.late.take_rest();
                self.late.load(&self.reader).await?;
                if points.is_empty() {
                    continue;
                }
                return Ok(Some(Piece::Points(points)));
            }
            let piece = match self.held.take() {
                Some(piece) => piece,
                None => match self.fetch(&whole).await? {
                    Some(piece) => piece,
                    // What was left of the tree has been deleted.
                    None if front.is_some() => continue,
                    None => {
                        let points = self.late.take_rest();
                        return Ok((!points.is_empty()).then_some(Piece::Points(points)));
                    }
                },
            };
            if let Some(piece) = self.over(piece) {
                return Ok(Some(piece));
            }
        }
    }

    /// The next piece of the tree or of memory.
    async fn fetch(&mut self, whole: impl Fn(&Summary) -> bool) -> Result<Option<Piece>> {
        if let Some(points) = self.memory.take_if(|_| self.direction == Direction::Backward) {
            return Ok(Some(Piece::Points(points)));
        }
        let late = &self.late;
        let piece =
            self.walk.next(&self.reader, |summary| whole(summary) && late.spares(summary)).await?;
        Ok(piece.or_else(|| self.memory.take().map(Piece::Points)))
    }

    /// The piece with the late points that belong before and into it; what else of it there is is
    /// held. `None` if it lies beyond all that is known of them.
    fn over(&mut self, piece: Piece) -> Option<Piece> {
        let (first, last) = ends(&piece);
        let Piece::Points(mut points) = piece else {
            // None of them lies within it, so those that are due come before.
            let due = self.late.take_up_to(if self.direction == Direction::Forward {
                last
            } else {
                first
            });
            if due.is_empty() {
                return Some(piece);
            }
            self.held = Some(piece);
            return Some(Piece::Points(due));
        };
        let known = self.late.known_of(&points);
        if known < points.len() {
            let rest = match self.direction {
                Direction::Forward => points.split_off(known),
                Direction::Backward => {
                    let now = points.split_off(points.len() - known);
                    std::mem::replace(&mut points, now)
                }
            };
            self.held = Some(Piece::Points(rest));
        }
        let bounds = points.times.first().zip(points.times.last());
        let (first, last) = bounds.map(|(first, last)| (*first, *last))?;
        let due =
            self.late.take_up_to(if self.direction == Direction::Forward { last } else { first });
        Some(Piece::Points(if due.is_empty() { points } else { over_each_other(&points, &due) }))
    }
}

/// The first and the last time of a piece, which is not empty.
fn ends(piece: &Piece) -> (i64, i64) {
    match piece {
        Piece::Whole(summary) => (summary.first.time, summary.last.time),
        Piece::Points(points) => (points.times[0], points.times[points.len() - 1]),
    }
}

impl std::fmt::Debug for PointStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PointStream").field("walk", &self.merged.walk).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for GroupStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupStream").field("groups", &self.groups).finish_non_exhaustive()
    }
}
