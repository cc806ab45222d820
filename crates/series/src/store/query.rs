//! Reading a series: the tree, late points and memory as one.
//!
//! What is in memory is taken first, then the tree is read: a leaf that was being written meanwhile is then in both, and memory gives way for
//! times that the tree has. Late points lie over everything: one with the time of another point replaces it. A node of the tree is used as
//! its summary only if no late point lies between its first and its last. The late points of the span are held in memory while a query runs.

use super::nodes::Reader;
use super::{Series, lock, side};
use crate::error::Result;
use crate::tree::{Direction, Groups, Piece, Span, Summary, Walk};
use crate::value::{Point, Points};
use std::collections::BTreeMap;
use std::ops::{Range, RangeBounds};

/// The pieces of a series, merged.
struct Merged {
    reader: Reader,
    walk: Walk,
    direction: Direction,
    /// What is in memory and not in the tree.
    memory: Option<Points>,
    late: Points,
    /// Which of them have not been given yet.
    left: Range<usize>,
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
    pub async fn scan(&self, range: impl RangeBounds<i64>, direction: Direction) -> Result<PointStream> {
        Ok(PointStream { merged: Merged::new(self, Span::new(range), direction).await? })
    }

    /// The summary of a range of times, however long, from a handful of nodes; `None` if there are no points.
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

    /// The summaries of the range's buckets of `step` nanoseconds each, oldest first, without those that are empty. Buckets are counted from
    /// the range's beginning, or from 1970 if it has none.
    ///
    /// # Errors
    /// As [`Series::scan`].
    pub async fn group_aggregate(&self, range: impl RangeBounds<i64>, step: u64) -> Result<GroupStream> {
        let span = Span::new(range);
        let origin = if span.first == i64::MIN { 0 } else { span.first };
        let merged = Merged::new(self, span, Direction::Forward).await?;
        Ok(GroupStream { merged, groups: Groups::new(origin, step) })
    }

    /// The same with the newest bucket first. Buckets are counted down from the range's last nanosecond, or from 1970 if it has none, and
    /// each comes with its last nanosecond.
    ///
    /// # Errors
    /// As [`Series::scan`].
    pub async fn group_aggregate_backward(
        &self,
        range: impl RangeBounds<i64>,
        step: u64,
    ) -> Result<GroupStream> {
        let span = Span::new(range);
        let origin = if span.last == i64::MAX { 0 } else { span.last };
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
    /// The next points, a few thousand at most, ascending by time whatever the direction. `None` at the end.
    ///
    /// # Errors
    /// As [`Series::scan`].
    pub async fn next(&mut self) -> Result<Option<Points>> {
        match self.merged.next(|_| false).await? {
            Some(Piece::Points(points)) => Ok(Some(points)),
            _ => Ok(None),
        }
    }

    /// The next points, leaving out what need not be looked at: parts of the series whose summary `is_needed` refuses.
    ///
    /// # Errors
    /// As [`Series::scan`].
    pub async fn next_needed(&mut self, is_needed: impl Fn(&Summary) -> bool) -> Result<Option<Points>> {
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
    /// The next bucket that has points: its first nanosecond, or its last if the stream goes backward, and what is in it. `None` at the end.
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
        let shared = &series.shared;
        let (mut late_in_memory, mut memory) = series.in_memory(span);
        let mut reader = Reader::new(&shared.database, &shared.keys, series.cell.id);
        if !series.is_looked_up && reader.sees_inbox(shared).await? {
            shared.take_in().await?;
            (late_in_memory, memory) = series.in_memory(span);
            // Memory is looked at first, then the tree; so what was read before does not count.
            reader = Reader::new(&shared.database, &shared.keys, series.cell.id);
        }
        let rows = reader.rows(&shared.keys.sides(series.cell.id)).await?;
        let walk = Walk::new(&reader, span, direction).await?;
        if let Some(last) = walk.last() {
            memory.keep(memory.times.partition_point(|time| *time <= last)..memory.len());
        }
        let mut late = side::points(&rows, span)?;
        if !late_in_memory.is_empty() {
            let mut over: BTreeMap<i64, Point> = late.iter().map(|point| (point.time, point)).collect();
            over.extend(late_in_memory.into_iter().filter(|p| span.contains(p.time)).map(|p| (p.time, p)));
            late = over.into_values().collect();
        }
        let left = 0..late.len();
        let memory = (!memory.is_empty()).then_some(memory);
        Ok(Self { reader, walk, direction, memory, late, left, held: None })
    }

    /// The next piece, whole where `whole` allows it.
    async fn next(&mut self, whole: impl Fn(&Summary) -> bool) -> Result<Option<Piece>> {
        if let Some(held) = self.held.take() {
            return Ok(Some(held));
        }
        let late = &self.late;
        let alone = |summary: &Summary| {
            Span { first: summary.first.time, last: summary.last.time }.places(&late.times).is_empty()
        };
        let memory = self.memory.take_if(|_| self.direction == Direction::Backward);
        let mut piece = memory.map(Piece::Points);
        if piece.is_none() {
            piece = self.walk.next(&self.reader, |summary| whole(summary) && alone(summary)).await?;
        }
        let piece = match piece {
            Some(piece) => piece,
            None => match self.memory.take() {
                Some(points) => Piece::Points(points),
                None => {
                    let rest = std::mem::replace(&mut self.left, 0..0);
                    let points = self.late_at(rest);
                    return Ok((!points.is_empty()).then_some(Piece::Points(points)));
                }
            },
        };
        Ok(Some(self.over(piece)))
    }

    /// The piece with the late points that belong before and into it.
    fn over(&mut self, piece: Piece) -> Piece {
        let times = match &piece {
            Piece::Whole(summary) => (summary.first.time, summary.last.time),
            Piece::Points(points) => (points.times[0], points.times[points.len() - 1]),
        };
        let due = match self.direction {
            Direction::Forward => {
                let end = self.late.times.partition_point(|time| *time <= times.1).max(self.left.start);
                let due = self.left.start..end;
                self.left.start = end;
                due
            }
            Direction::Backward => {
                let start = self.late.times.partition_point(|time| *time < times.0).min(self.left.end);
                let due = start..self.left.end;
                self.left.end = start;
                due
            }
        };
        if due.is_empty() {
            return piece;
        }
        let late = self.late_at(due);
        match piece {
            Piece::Whole(_) => {
                // None of them lies within it, so they all come before.
                self.held = Some(piece);
                Piece::Points(late)
            }
            Piece::Points(points) => Piece::Points(merge(&points, &late)),
        }
    }

    fn late_at(&self, places: Range<usize>) -> Points {
        places.map(|place| self.late.get(place)).collect()
    }
}

/// The points of both, the late ones in place of others of the same time.
fn merge(points: &Points, late: &Points) -> Points {
    let (mut points, mut late) = (points.iter().peekable(), late.iter().peekable());
    std::iter::from_fn(|| match (points.peek(), late.peek()) {
        (Some(point), Some(over)) if point.time < over.time => points.next(),
        (Some(point), Some(over)) => {
            if point.time == over.time {
                points.next();
            }
            late.next()
        }
        (Some(_), None) => points.next(),
        (None, _) => late.next(),
    })
    .collect()
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
