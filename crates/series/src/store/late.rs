//! The late points of a series for a reader: some leaves of them at a time, in the direction of the
//! query.
//!
//! ```text
//!   forward:   given | a page, from `left` on | known up to here | leaves that were not read
//! ```
//!
//! Late points may be as many as a series has, such as its history that was imported behind its
//! present, so they are never all in memory. What a reader has to know of them is what lies before
//! the next piece of the tree, and within it: how far that is known is said by [`Late::known_of`].
//! Those that are in the owner's memory lie over those of the leaves.
//!
//! Leaves are rewritten while a query reads: divided, and joined where they have little. What is at
//! a time lies in the last leaf whose key is no later, always. So a page begins with the leaf that
//! has what lies right behind all that is known, and misses nothing that was there when the query
//! began, whatever has become of the leaves meanwhile; what comes again is left out.

use super::nodes::Reader;
use crate::codec;
use crate::error::Result;
use crate::tree::{Direction, Span, Summary};
use crate::value::{Point, Points};
use plinth_client::{KeySelector, RangeOptions, StreamingMode};
use std::ops::Range;

/// Leaves of a page, of which the first may be known.
const LEAVES: usize = 5;

/// Late points, in the direction of the query.
pub(super) struct Late {
    span: Span,
    direction: Direction,
    /// Those of the page, ascending; and which of them have not been given yet.
    points: Points,
    left: Range<usize>,
    /// Those in memory that lie beyond what is known, ascending.
    above: Vec<Point>,
    /// Where the leaves lie that were not read; `None` if all were.
    unread: Option<(KeySelector, KeySelector)>,
    /// How far all of them are known that there are, this time included; `None` as long as none
    /// are.
    reach: Option<i64>,
}

impl Late {
    /// The late points of a span, with the first page of them; `in_memory` is in the order in which
    /// they came.
    pub(super) async fn open(
        reader: &Reader,
        span: Span,
        direction: Direction,
        in_memory: Vec<Point>,
    ) -> Result<Self> {
        let mut above: Vec<Point> =
            in_memory.into_iter().filter(|point| span.contains(point.time)).collect();
        // Stable, so the last one that came of a time stays the last.
        above.sort_by_key(|point| point.time);
        let (keys, id) = (&reader.keys, reader.id);
        let begin = match (direction, span.first) {
            // The leaf that the span begins in has a key before it. There may be none, and what is
            // found then belongs to somebody else.
            (Direction::Forward, first) if first > i64::MIN => {
                KeySelector::last_less_or_equal(keys.side(id, first))
            }
            _ => KeySelector::first_greater_or_equal(keys.sides(id)),
        };
        let end = KeySelector::first_greater_than(keys.side(id, span.last));
        let unread = (!span.is_empty()).then_some((begin, end));
        let mut late = Self {
            span,
            direction,
            points: Points::default(),
            left: 0..0,
            above,
            unread,
            reach: None,
        };
        late.load(reader).await?;
        Ok(late)
    }

    /// Points that it holds.
    pub(super) fn held(&self) -> usize {
        self.points.len() + self.above.len()
    }

    /// Whether all late points are known up to a time, in the direction of the query, this one
    /// included.
    fn is_known(&self, time: i64) -> bool {
        self.unread.is_none()
            || self.reach.is_some_and(|reach| match self.direction {
                Direction::Forward => time <= reach,
                Direction::Backward => time >= reach,
            })
    }

    /// Whether there may be some that lie before a time, or before the end of all if there is none,
    /// and are not known.
    pub(super) fn is_behind(&self, time: Option<i64>) -> bool {
        time.map_or(self.unread.is_some(), |time| !self.is_known(time))
    }

    /// Whether it is known that no late point lies between the first and the last of a node.
    pub(super) fn spares(&self, summary: &Summary) -> bool {
        let between = Span { first: summary.first.time, last: summary.last.time };
        let far = match self.direction {
            Direction::Forward => between.last,
            Direction::Backward => between.first,
        };
        self.is_known(far) && between.places(&self.points.times).is_empty()
    }

    /// How many of `points`, which ascend, are within what is known: the first so many of them, or,
    /// backward, the last.
    pub(super) fn known_of(&self, points: &Points) -> usize {
        if self.unread.is_none() {
            return points.len();
        }
        let Some(reach) = self.reach else { return 0 };
        match self.direction {
            Direction::Forward => points.times.partition_point(|time| *time <= reach),
            Direction::Backward => {
                points.len() - points.times.partition_point(|time| *time < reach)
            }
        }
    }

    /// Takes the page's points that have not been given, up to a time, which is included.
    pub(super) fn take_up_to(&mut self, time: i64) -> Points {
        let due = match self.direction {
            Direction::Forward => {
                let end = self.points.times.partition_point(|at| *at <= time).max(self.left.start);
                let due = self.left.start..end.min(self.left.end);
                self.left.start = due.end;
                due
            }
            Direction::Backward => {
                let start = self.points.times.partition_point(|at| *at < time).min(self.left.end);
                let due = start.max(self.left.start)..self.left.end;
                self.left.end = due.start;
                due
            }
        };
        due.map(|place| self.points.get(place)).collect()
    }

    /// Takes all of the page's points that have not been given.
    pub(super) fn take_rest(&mut self) -> Points {
        std::mem::replace(&mut self.left, 0..0).map(|place| self.points.get(place)).collect()
    }

    /// Reads on, until the page has points or there are no more. What was left of the page before
    /// is forgotten.
    pub(super) async fn load(&mut self, reader: &Reader) -> Result<()> {
        self.points = Points::default();
        while let Some(unread) = self.unread.take() {
            let found = self.page(reader, unread).await?;
            let over = self.take_above();
            self.points = over_each_other(&found, &over);
            if !self.points.is_empty() {
                break;
            }
        }
        self.left = 0..self.points.len();
        Ok(())
    }

    /// The next leaves' points that were not there before, ascending.
    async fn page(
        &mut self,
        reader: &Reader,
        unread: (KeySelector, KeySelector),
    ) -> Result<Points> {
        let is_backward = self.direction == Direction::Backward;
        let (begin, end) = unread.clone();
        let range = RangeOptions::new(begin, end)
            .limit(LEAVES)
            .reverse(is_backward)
            .mode(StreamingMode::WantAll);
        let mut rows = reader.page(range).await?;
        let are_more = rows.len() >= LEAVES;
        let last_key = rows.last().map(|row| row.key.clone());
        if is_backward {
            rows.reverse();
        }
        let own = reader.keys.sides(reader.id);
        let before = self.reach;
        let is_new = |time: i64| match (before, is_backward) {
            (None, _) => true,
            (Some(reach), false) => time > reach,
            (Some(reach), true) => time < reach,
        };
        let (mut found, mut leaf, mut edge) = (Points::default(), Points::default(), None);
        for row in rows.iter().filter(|row| row.key.starts_with(&own)) {
            codec::decode(&row.value, &mut leaf)?;
            let places = self.span.places(&leaf.times);
            for place in places {
                let point = leaf.get(place);
                // Leaves that another transaction rewrote between two pages may overlap.
                if is_new(point.time) && found.times.last().is_none_or(|last| *last < point.time) {
                    found.push(point);
                }
            }
            let far = if is_backward { leaf.times.first() } else { leaf.times.last() };
            edge = match (edge, is_backward) {
                (Some(first), true) => Some(first),
                _ => far.copied(),
            };
        }
        let is_within =
            |time: i64| if is_backward { time > self.span.first } else { time < self.span.last };
        if let Some(key) = last_key.filter(|_| are_more && edge.is_none_or(is_within)) {
            self.reach = match (self.reach, edge, is_backward) {
                (Some(reach), Some(edge), false) => Some(reach.max(edge)),
                (Some(reach), Some(edge), true) => Some(reach.min(edge)),
                (reach, edge, _) => edge.or(reach),
            };
            self.unread = Some(match (is_backward, self.reach) {
                (false, Some(reach)) => {
                    let behind = reader.keys.side(reader.id, reach.saturating_add(1));
                    (KeySelector::last_less_or_equal(behind), unread.1)
                }
                (false, None) => (KeySelector::first_greater_than(key), unread.1),
                (true, _) => (unread.0, KeySelector::first_greater_or_equal(key)),
            });
        }
        Ok(found)
    }

    /// Takes those in memory that are within what is known now.
    fn take_above(&mut self) -> Points {
        let taken = match (&self.unread, self.reach, self.direction) {
            (None, ..) => std::mem::take(&mut self.above),
            (Some(_), None, _) => Vec::new(),
            (Some(_), Some(reach), Direction::Forward) => {
                let rest =
                    self.above.split_off(self.above.partition_point(|point| point.time <= reach));
                std::mem::replace(&mut self.above, rest)
            }
            (Some(_), Some(reach), Direction::Backward) => {
                self.above.split_off(self.above.partition_point(|point| point.time < reach))
            }
        };
        let mut points = Points::default();
        for point in taken {
            // The last one of a time.
            points.insert(point);
        }
        points
    }
}

/// The points of both, those of `over` in place of others of the same time.
pub(super) fn over_each_other(points: &Points, over: &Points) -> Points {
    let (mut points, mut over) = (points.iter().peekable(), over.iter().peekable());
    std::iter::from_fn(|| match (points.peek(), over.peek()) {
        (Some(point), Some(other)) if point.time < other.time => points.next(),
        (Some(point), Some(other)) => {
            if point.time == other.time {
                points.next();
            }
            over.next()
        }
        (Some(_), None) => points.next(),
        (None, _) => over.next(),
    })
    .collect()
}
