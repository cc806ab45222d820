//! Reading a tree: a walk over the pieces of a span of time, forward or backward, from which all
//! queries are made.
//!
//! The walk keeps a stack of twigs whose next one in order lies on top. A twig that the query can
//! use whole is given as its summary; any other is replaced by its children, or by its points if it
//! is a leaf. Nodes do not change, so a walk may go on across any number of read versions; what is
//! sealed after it began is not in it.

use super::summary::{Summary, decode_summaries};
use super::{Nodes, Twig};
use crate::codec;
use crate::error::{Error, Result};
use crate::value::Points;
use std::collections::VecDeque;
use std::ops::{Bound, Range, RangeBounds};

/// A span of time, both ends included; empty if the first lies behind the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The first nanosecond of it.
    pub first: i64,
    /// The last nanosecond of it.
    pub last: i64,
}

impl Span {
    /// All of time.
    pub const ALL: Self = Self { first: i64::MIN, last: i64::MAX };
    /// No time.
    pub const NONE: Self = Self { first: 0, last: -1 };

    /// The times of a range.
    pub fn new(range: impl RangeBounds<i64>) -> Self {
        let first = match range.start_bound() {
            Bound::Included(time) => Some(*time),
            Bound::Excluded(time) => time.checked_add(1),
            Bound::Unbounded => Some(i64::MIN),
        };
        let last = match range.end_bound() {
            Bound::Included(time) => Some(*time),
            Bound::Excluded(time) => time.checked_sub(1),
            Bound::Unbounded => Some(i64::MAX),
        };
        match (first, last) {
            (Some(first), Some(last)) => Self { first, last },
            _ => Self::NONE,
        }
    }

    /// Whether the time lies in it.
    pub fn contains(&self, time: i64) -> bool {
        self.first <= time && time <= self.last
    }

    /// Whether all of `summary`'s points lie in it.
    pub fn covers(&self, summary: &Summary) -> bool {
        self.first <= summary.first.time && summary.last.time <= self.last
    }

    /// Whether a point of `summary` may lie in it.
    pub fn meets(&self, summary: &Summary) -> bool {
        self.first <= summary.last.time && summary.first.time <= self.last
    }

    /// What lies in both.
    #[must_use]
    pub fn intersection(&self, other: Self) -> Self {
        Self { first: self.first.max(other.first), last: self.last.min(other.last) }
    }

    /// Whether there is no time in it.
    pub fn is_empty(&self) -> bool {
        self.first > self.last
    }

    /// The places of those of `times`, which ascend, that lie in it.
    pub fn places(&self, times: &[i64]) -> Range<usize> {
        let begin = times.partition_point(|time| *time < self.first);
        let end = times.partition_point(|time| *time <= self.last);
        begin..end.max(begin)
    }
}

/// In which order points are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The oldest first.
    Forward,
    /// The newest first.
    Backward,
}

/// A part of a series, in the order of the walk.
#[derive(Clone, PartialEq, Debug)]
pub enum Piece {
    /// Points that were not looked at.
    Whole(Summary),
    /// Points of the span, ascending by time whatever the walk's direction.
    Points(Points),
}

/// A walk over a tree.
#[derive(Clone, Debug)]
pub struct Walk {
    span: Span,
    direction: Direction,
    /// Spans that are left out.
    masks: Vec<Span>,
    last: Option<i64>,
    /// The next twig last.
    stack: Vec<Twig>,
}

impl Walk {
    /// A walk over what is in the tree now.
    pub async fn new(nodes: &impl Nodes, span: Span, direction: Direction) -> Result<Self> {
        let mut twigs = nodes.twigs(None).await?;
        twigs.sort_by_key(|twig| std::cmp::Reverse(twig.address.level));
        let last = twigs.last().map(|twig| twig.summary.last.time);
        let mut walk =
            Self { span, direction, masks: nodes.masks().await?, last, stack: Vec::new() };
        walk.push(twigs);
        Ok(walk)
    }

    /// The time of the newest point that the tree had, whatever the span.
    pub fn last(&self) -> Option<i64> {
        self.last
    }

    /// Before which time, in the direction of the walk, nothing of the tree comes any more; `None`
    /// if nothing comes.
    pub fn front(&self) -> Option<i64> {
        let next = &self.stack.last()?.summary;
        Some(match self.direction {
            Direction::Forward => next.first.time.max(self.span.first),
            Direction::Backward => next.last.time.min(self.span.last),
        })
    }

    fn masked(&self, summary: &Summary) -> bool {
        self.masks.iter().any(|mask| mask.covers(summary))
    }

    /// Puts twigs, ascending by time, before what is left.
    fn push(&mut self, mut twigs: Vec<Twig>) {
        twigs.retain(|twig| self.span.meets(&twig.summary) && !self.masked(&twig.summary));
        if self.direction == Direction::Forward {
            twigs.reverse();
        }
        self.stack.append(&mut twigs);
    }

    /// The next piece, whole where `whole` allows it.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a node is missing or wrong; the errors of `nodes`.
    pub async fn next(
        &mut self,
        nodes: &impl Nodes,
        whole: impl Fn(&Summary) -> bool,
    ) -> Result<Option<Piece>> {
        while let Some(twig) = self.stack.pop() {
            let untouched = !self.masks.iter().any(|mask| mask.meets(&twig.summary));
            if untouched && self.span.covers(&twig.summary) && whole(&twig.summary) {
                return Ok(Some(Piece::Whole(twig.summary)));
            }
            let address = twig.address;
            let name = || format!("node {} of level {}", address.index, address.level);
            let Some(bytes) = nodes.node(address).await? else {
                // It may have been deleted since the walk began.
                self.masks = nodes.masks().await?;
                if self.masked(&twig.summary) {
                    continue;
                }
                return Err(Error::damaged(name(), "it is missing"));
            };
            let in_node = |error: Error| match error {
                Error::Damaged { why, .. } => Error::damaged(name(), why),
                error => error,
            };
            if address.level == 0 {
                let mut points = Points::default();
                codec::decode(&bytes, &mut points).map_err(in_node)?;
                points.keep(self.span.places(&points.times));
                if !untouched {
                    let kept = points
                        .iter()
                        .filter(|point| !self.masks.iter().any(|mask| mask.contains(point.time)));
                    points = kept.collect();
                }
                if !points.is_empty() {
                    return Ok(Some(Piece::Points(points)));
                }
                continue;
            }
            let children = decode_summaries(address.level, &bytes).map_err(in_node)?;
            let twigs = children.into_iter().zip(0..);
            self.push(
                twigs
                    .map(|(summary, place)| Twig { address: address.child(place), summary })
                    .collect(),
            );
        }
        Ok(None)
    }
}

/// The points of a span, some at a time.
#[derive(Clone, Debug)]
pub struct Scan {
    walk: Walk,
}

impl Scan {
    /// A scan of what is in the tree now.
    pub async fn new(nodes: &impl Nodes, span: Span, direction: Direction) -> Result<Self> {
        Ok(Self { walk: Walk::new(nodes, span, direction).await? })
    }

    /// The next points, those of a leaf, ascending by time whatever the direction. `None` at the
    /// end.
    pub async fn next(&mut self, nodes: &impl Nodes) -> Result<Option<Points>> {
        match self.walk.next(nodes, |_| false).await? {
            Some(Piece::Points(points)) => Ok(Some(points)),
            _ => Ok(None),
        }
    }
}

/// The summary of a span, from a handful of nodes; `None` if it has no points.
pub async fn aggregate(nodes: &impl Nodes, span: Span) -> Result<Option<Summary>> {
    let mut walk = Walk::new(nodes, span, Direction::Forward).await?;
    let mut sum: Option<Summary> = None;
    while let Some(piece) = walk.next(nodes, |_| true).await? {
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

/// Gathers pieces into buckets of a step each, counted from an origin. Pieces come in the order of
/// their direction.
#[derive(Clone, Debug)]
pub struct Groups {
    origin: i64,
    step: u64,
    direction: Direction,
    open: Option<Bucket>,
    done: VecDeque<(i64, Summary)>,
}

#[derive(Clone, Debug)]
struct Bucket {
    /// Its first nanosecond, as far as there is one.
    first: i64,
    /// Its last, as far as there is one.
    last: i64,
    summary: Summary,
}

impl Groups {
    /// No buckets yet; pieces ascend, and each bucket comes with its first nanosecond. A `step` of
    /// 0 is one of 1.
    pub fn new(origin: i64, step: u64) -> Self {
        Self {
            origin,
            step: step.max(1),
            direction: Direction::Forward,
            open: None,
            done: VecDeque::new(),
        }
    }

    /// No buckets yet; pieces descend, the origin is the last nanosecond of a bucket, and each
    /// bucket comes with its last nanosecond.
    pub fn backward(origin: i64, step: u64) -> Self {
        Self { direction: Direction::Backward, ..Self::new(origin, step) }
    }

    /// Whether pieces descend.
    pub fn is_backward(&self) -> bool {
        self.direction == Direction::Backward
    }

    /// The first and the last nanosecond of the bucket of a time.
    fn bucket(&self, time: i64) -> (i64, i64) {
        self.near_bucket(time).unwrap_or_else(|| self.far_bucket(time))
    }

    /// The same, where nothing comes near the ends of time: divisions of 64 bits are far cheaper.
    fn near_bucket(&self, time: i64) -> Option<(i64, i64)> {
        let step = i64::try_from(self.step).ok()?;
        let origin = match self.direction {
            Direction::Forward => self.origin,
            Direction::Backward => self.origin.checked_add(1)?,
        };
        let first = time.checked_sub(time.checked_sub(origin)?.rem_euclid(step))?;
        Some((first, first.checked_add(step - 1)?))
    }

    fn far_bucket(&self, time: i64) -> (i64, i64) {
        let (time, mut origin, step) =
            (i128::from(time), i128::from(self.origin), i128::from(self.step));
        if self.direction == Direction::Backward {
            origin += 1;
        }
        let first = time - (time - origin).rem_euclid(step);
        let clamped = |time: i128| time.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        (clamped(first), clamped(first + step - 1))
    }

    /// Whether all of `summary` belongs to one bucket.
    pub fn is_whole(&self, summary: &Summary) -> bool {
        let (_, last) = self.bucket(summary.first.time);
        summary.last.time <= last
    }

    /// Adds what comes next. A whole piece has to be of one bucket.
    pub fn add(&mut self, piece: Piece) {
        match (piece, self.direction) {
            (Piece::Whole(summary), _) => self.add_whole(&summary),
            (Piece::Points(points), Direction::Forward) => {
                let mut begin = 0;
                while begin < points.len() {
                    let (_, last) = self.bucket(points.times[begin]);
                    let end = begin + points.times[begin..].partition_point(|time| *time <= last);
                    self.add_places(&points, begin..end);
                    begin = end;
                }
            }
            (Piece::Points(points), Direction::Backward) => {
                let mut end = points.len();
                while end > 0 {
                    let (first, _) = self.bucket(points.times[end - 1]);
                    let begin = points.times[..end].partition_point(|time| *time < first);
                    self.add_places(&points, begin..end);
                    end = begin;
                }
            }
        }
    }

    /// Adds points that come next, all of one bucket.
    fn add_places(&mut self, points: &Points, places: Range<usize>) {
        if let Some(summary) = Summary::of_places(points, places) {
            self.add_whole(&summary);
        }
    }

    /// Adds the summary of what comes next, all of one bucket.
    pub(crate) fn add_whole(&mut self, summary: &Summary) {
        match &mut self.open {
            Some(open) if open.first <= summary.first.time && summary.last.time <= open.last => {
                if self.direction == Direction::Forward {
                    open.summary.add(summary);
                } else {
                    let later = std::mem::replace(&mut open.summary, *summary);
                    open.summary.add(&later);
                }
            }
            _ => {
                let (first, last) = self.bucket(summary.first.time);
                let full = self.open.replace(Bucket { first, last, summary: *summary });
                self.done.extend(full.map(|bucket| bucket.named(self.direction)));
            }
        }
    }

    /// How many buckets wait to be asked for.
    pub(crate) fn held(&self) -> usize {
        self.done.len()
    }

    /// The next bucket to which nothing can be added any more: its time, and what is in it.
    pub fn next_done(&mut self) -> Option<(i64, Summary)> {
        self.done.pop_front()
    }

    /// The next bucket when nothing comes any more.
    pub fn finish(&mut self) -> Option<(i64, Summary)> {
        let direction = self.direction;
        self.done.pop_front().or_else(|| self.open.take().map(|bucket| bucket.named(direction)))
    }
}

impl Bucket {
    fn named(self, direction: Direction) -> (i64, Summary) {
        match direction {
            Direction::Forward => (self.first, self.summary),
            Direction::Backward => (self.last, self.summary),
        }
    }
}
