//! The points of a series: the tree, late points and memory as one.
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
use crate::tree::{Direction, Piece, Span, Summary, Walk};
use crate::value::{Point, Points};

/// The pieces of a series, merged.
pub(super) struct Merged {
    pub(super) reader: Reader,
    walk: Walk,
    pub(super) direction: Direction,
    /// What is in memory and not in the tree.
    memory: Option<Points>,
    late: Late,
    /// What comes after the late points that were given before it.
    held: Option<Piece>,
}

impl Series {
    /// What of the span is in memory: late points, and points behind the tree's.
    pub(super) fn in_memory(&self, span: Span) -> (Vec<Point>, Points) {
        let state = lock(&self.cell.state);
        let late = state.merging.iter().chain(&state.late).copied().collect();
        let mut points = Points::default();
        for leaf in state.sealing.iter().map(|leaf| &**leaf).chain([&state.open]) {
            points.append(leaf, span.places(&leaf.times));
        }
        (late, points)
    }
}

impl Merged {
    /// The series as whoever owns it says that it is in a span, after what waits was taken in.
    pub(super) async fn look(series: &Series, span: Span) -> Result<Series> {
        let series = series.brought(span).await?;
        if !series.is_looked_up {
            let reader = Reader::new(&series.shared.database, &series.shared.keys, series.cell.id);
            if reader.sees_inbox(&series.shared).await? {
                series.shared.take_in().await?;
            }
        }
        Ok(Series { is_looked_up: true, ..series })
    }

    pub(super) async fn new(series: &Series, span: Span, direction: Direction) -> Result<Self> {
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
        Self::of(reader, (late_in_memory, memory), span, direction).await
    }

    /// The same of a series that is owned, or only read, without what waits in the inbox.
    pub(super) async fn known(series: &Series, span: Span, direction: Direction) -> Result<Self> {
        let shared = &series.shared;
        let in_memory = series.in_memory(span);
        let reader = Reader::new(&shared.database, &shared.keys, series.cell.id);
        Self::of(reader, in_memory, span, direction).await
    }

    async fn of(
        reader: Reader,
        (late_in_memory, mut memory): (Vec<Point>, Points),
        span: Span,
        direction: Direction,
    ) -> Result<Self> {
        let late = Late::open(&reader, span, direction, late_in_memory).await?;
        let walk = Walk::new(&reader, span, direction).await?;
        if let Some(last) = walk.last() {
            memory.keep(memory.times.partition_point(|time| *time <= last)..memory.len());
        }
        let memory = (!memory.is_empty()).then_some(memory);
        Ok(Self { reader, walk, direction, memory, late, held: None })
    }

    /// How many points are in memory because of it.
    pub(super) fn points_held(&self) -> usize {
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
    pub(super) async fn next(&mut self, whole: impl Fn(&Summary) -> bool) -> Result<Option<Piece>> {
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
