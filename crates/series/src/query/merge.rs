//! Rows of several series in one order: by time, and at one time by line; both downwards if the
//! newest come first.
//!
//! ```text
//!   member   a cursor on a series; it has a place: the line its rows belong to, and the column it fills
//!   heap     the members that have a block, by the time of their next item, then by line
//!   row      all items of one time and line: side by side (join), folded (buckets of a group), or each for itself
//! ```
//!
//! The place of the member on top changes where it lies in the heap: if the member stays before all
//! others, that costs two comparisons. What members hold is counted: it never exceeds a bound,
//! beyond which the query ends with an error.

use super::cursor::{Block, Extent, Item, What};
use super::error::{QueryError, QueryResult};
use super::member::Member;
use crate::store::{Origin, SERIES_AT_ONCE, SeriesStore, Share};
use crate::tree::Span;
use crate::value::Value;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Rows of a batch, about.
const ROWS: usize = 2048;

/// A point in memory, in bytes.
const POINT: usize = size_of::<i64>() + size_of::<Value>();

/// What a query may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Series that are read side by side.
    pub(crate) members: usize,
    /// Points, buckets or texts of them in memory.
    pub(crate) items: usize,
}

/// Rows, each with its line, its time, and as many cells as the query has columns.
#[derive(Clone, Debug)]
pub(crate) struct Rows<T> {
    pub(crate) lines: Vec<u32>,
    pub(crate) times: Vec<i64>,
    pub(crate) width: usize,
    pub(crate) cells: Vec<Option<T>>,
}

impl<T> Rows<T> {
    pub(crate) fn new(width: usize) -> Self {
        Self { lines: Vec::new(), times: Vec::new(), width, cells: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.times.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    pub(crate) fn row(&self, row: usize) -> &[Option<T>] {
        &self.cells[row * self.width..(row + 1) * self.width]
    }

    /// Keeps the rows that `keeps` lets through.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&Self, usize) -> bool) {
        let (mut kept, width) = (0, self.width);
        for row in 0..self.len() {
            if !keeps(self, row) {
                continue;
            }
            if kept < row {
                self.lines[kept] = self.lines[row];
                self.times[kept] = self.times[row];
                for column in 0..width {
                    self.cells.swap(kept * width + column, row * width + column);
                }
            }
            kept += 1;
        }
        self.truncate(kept);
    }

    pub(crate) fn truncate(&mut self, rows: usize) {
        self.lines.truncate(rows);
        self.times.truncate(rows);
        self.cells.truncate(rows * self.width);
    }
}

/// A member that is being read.
struct Reading<T: Item> {
    line: u32,
    column: usize,
    stream: T::Stream,
    block: Block<T>,
    at: usize,
    /// What it was counted with.
    counted: Weight,
}

/// How much a member holds.
#[derive(Clone, Copy, Default)]
struct Weight {
    /// Points, buckets or texts.
    items: usize,
    bytes: usize,
}

impl<T: Item> Reading<T> {
    /// Puts the next item, which is of this time, into the last row, or into a new one.
    fn take(&mut self, rows: &mut Rows<T>, time: i64) {
        let item = self.block.items[self.at].clone();
        self.at += 1;
        let is_same = rows.times.last() == Some(&time) && rows.lines.last() == Some(&self.line);
        if is_same {
            let start = rows.cells.len() - rows.width;
            let cell = &mut rows.cells[start + self.column];
            match cell {
                Some(found) => {
                    if found.fold(&item) {
                        return;
                    }
                }
                None => {
                    *cell = Some(item);
                    return;
                }
            }
        }
        rows.lines.push(self.line);
        rows.times.push(time);
        let start = rows.cells.len();
        rows.cells.resize(start + rows.width, None);
        rows.cells[start + self.column] = Some(item);
    }
}

/// Where a member stands in the order of the rows: the rank of its time, that of its line, itself.
/// One number, since the heap does nothing but compare them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place(u128);

impl Place {
    fn new(rank: i64, rank_of_line: u32, which: usize) -> Self {
        let rank = rank.cast_unsigned() ^ (1 << 63);
        // There are not so many members: a query that wants to read more is refused.
        Self(
            u128::from(rank) << 64
                | u128::from(rank_of_line) << 32
                | which as u128 & u128::from(u32::MAX),
        )
    }

    fn rank(self) -> i64 {
        ((self.0 >> 64) as u64 ^ (1 << 63)).cast_signed()
    }

    fn rank_of_line(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn which(self) -> usize {
        self.0 as u32 as usize
    }
}

/// Members, merged by time.
pub(crate) struct Merge<T: Item> {
    store: SeriesStore,
    extent: Extent,
    width: usize,
    bounds: Bounds,
    waiting: Vec<Member>,
    what: Vec<What>,
    reading: Vec<Reading<T>>,
    heap: BinaryHeap<Reverse<Place>>,
    /// The member whose block was given away, and whose next one is read when it is wanted: often
    /// enough it never is. The block is counted until then.
    emptied: Option<usize>,
    held: Weight,
    share: Share,
    /// Where what was opened comes from.
    pub(crate) origin: Origin,
}

impl<T: Item> Merge<T> {
    /// A merge of these members; what is read of each is said by column. Rows have `width` columns.
    pub(crate) fn new(
        store: &SeriesStore,
        extent: Extent,
        mut members: Vec<Member>,
        what: &[What],
        bounds: Bounds,
    ) -> QueryResult<Self> {
        if members.len() > bounds.members {
            return Err(QueryError::TooMany(format!(
                "{} series would be read at once, at most {} can; narrow `where`, or set \"order-by\": \"series\"",
                members.len(),
                bounds.members
            )));
        }
        // They are taken from the end.
        members.reverse();
        Ok(Self {
            store: store.clone(),
            extent,
            width: what.len(),
            bounds,
            waiting: members,
            what: what.to_vec(),
            reading: Vec::new(),
            heap: BinaryHeap::new(),
            emptied: None,
            held: Weight::default(),
            share: Share::new(store),
            origin: Origin::default(),
        })
    }

    /// The next rows, at least one; `None` at the end.
    pub(crate) async fn next(&mut self) -> QueryResult<Option<Rows<T>>> {
        while let Some(last) = self.waiting.last() {
            if self.store.is_to_be_brought(&last.found) {
                let next = self.waiting.len().saturating_sub(SERIES_AT_ONCE);
                let members = self.waiting[next..].iter_mut().map(|member| &mut member.found);
                self.store.bring(members, Span::new(self.extent.bounds)).await?;
            }
            let Some(member) = self.waiting.pop() else { break };
            let what = &self.what[member.column];
            let stream = T::open(&self.store, &member.found, what, &self.extent).await?;
            self.origin = self.origin.with(T::origin(&stream));
            let (line, column) = (member.line, member.column);
            let (block, counted) = (Block::default(), Weight::default());
            self.reading.push(Reading { line, column, stream, block, at: 0, counted });
            let which = self.reading.len() - 1;
            self.refill(which).await?;
        }
        if let Some(which) = self.emptied.take() {
            self.refill(which).await?;
        }
        if self.heap.len() == 1 && self.width == 1 {
            return Ok(self.whole_block());
        }
        let mut rows = Rows::new(self.width);
        while rows.len() < ROWS || self.goes_on(&rows) {
            let Some(mut top) = self.heap.peek_mut() else { break };
            let place = top.0;
            let reading = &mut self.reading[place.which()];
            reading.take(&mut rows, self.extent.rank(place.rank()));
            match reading.block.times.get(reading.at) {
                Some(time) => {
                    top.0 = Place::new(self.extent.rank(*time), place.rank_of_line(), place.which())
                }
                None => {
                    PeekMut::pop(top);
                    self.refill(place.which()).await?;
                }
            }
        }
        Ok((!rows.is_empty()).then_some(rows))
    }

    /// Whether the next item is of the last row's time and line.
    fn goes_on(&self, rows: &Rows<T>) -> bool {
        self.heap.peek().is_some_and(|Reverse(place)| {
            rows.times.last() == Some(&self.extent.rank(place.rank()))
                && rows.lines.last() == Some(&self.extent.rank_of_line(place.rank_of_line()))
        })
    }

    /// The only member's block as it is.
    fn whole_block(&mut self) -> Option<Rows<T>> {
        let Reverse(place) = self.heap.pop()?;
        let reading = &mut self.reading[place.which()];
        let Block { mut times, mut items } = std::mem::take(&mut reading.block);
        times.drain(..reading.at);
        items.drain(..reading.at);
        let cells = items.into_iter().map(Some).collect();
        self.emptied = Some(place.which());
        Some(Rows { lines: vec![reading.line; times.len()], times, width: 1, cells })
    }

    /// Reads a member's next block, and puts it into the heap if there is one.
    async fn refill(&mut self, which: usize) -> QueryResult<()> {
        let reading = &mut self.reading[which];
        reading.at = 0;
        reading.block = match T::next(&mut reading.stream, &self.extent).await? {
            Some(block) => {
                let (rank, rank_of_line) =
                    (self.extent.rank(block.times[0]), self.extent.rank_of_line(reading.line));
                self.heap.push(Reverse(Place::new(rank, rank_of_line, which)));
                block
            }
            None => Block::default(),
        };
        self.count(which)
    }

    /// Counts what a member holds now in place of what it held before.
    fn count(&mut self, which: usize) -> QueryResult<()> {
        let reading = &mut self.reading[which];
        let points = T::points_held(&reading.stream);
        let items = reading.block.times.len();
        let own = items * (size_of::<i64>() + size_of::<T>()) + T::bytes_beside(&reading.block);
        let now = Weight { items: items + points, bytes: own + points * POINT };
        let before = std::mem::replace(&mut reading.counted, now);
        self.held.items = self.held.items - before.items + now.items;
        self.held.bytes = self.held.bytes - before.bytes + now.bytes;
        if self.held.items > self.bounds.items {
            return Err(QueryError::TooMany(format!(
                "more than {} points would be in memory at once; narrow `where` or `range`, or set \"order-by\": \"series\"",
                self.bounds.items
            )));
        }
        Ok(self.share.hold(self.held.bytes)?)
    }
}
