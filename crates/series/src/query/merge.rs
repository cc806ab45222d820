//! Rows of several series in one order: by time, and at one time by line.
//!
//! ```text
//!   member   a cursor on a series; it has a place: the line its rows belong to, and the column it fills
//!   heap     the members that have a block, by the time of their next item, then by line
//!   row      all items of one time and line: side by side (join), folded (buckets of a group), or each for itself
//! ```
//!
//! While the member on top stays before all others its items are taken without the heap. What members hold is counted: it never exceeds a bound,
//! beyond which the query ends with an error.

use super::cursor::{Block, Extent, Item, What};
use super::error::{QueryError, QueryResult};
use super::plan::Member;
use crate::store::SeriesStore;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Rows of a batch, about.
const ROWS: usize = 2048;

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
    heap: BinaryHeap<Reverse<(i64, u32, usize)>>,
    held: usize,
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
            held: 0,
        })
    }

    /// The next rows, at least one; `None` at the end.
    pub(crate) async fn next(&mut self) -> QueryResult<Option<Rows<T>>> {
        while let Some(member) = self.waiting.pop() {
            let what = &self.what[member.column];
            let stream = T::open(&self.store, &member.found, what, &self.extent).await?;
            let (line, column) = (member.line, member.column);
            self.reading.push(Reading { line, column, stream, block: Block::default(), at: 0 });
            let which = self.reading.len() - 1;
            self.refill(which).await?;
        }
        if self.heap.len() == 1 && self.width == 1 {
            return self.whole_block().await;
        }
        let mut rows = Rows::new(self.width);
        while rows.len() < ROWS || self.goes_on(&rows) {
            let Some(Reverse((rank, line, which))) = self.heap.pop() else { break };
            self.take(&mut rows, rank, line, which);
            if self.run(&mut rows, which) {
                self.refill(which).await?;
            }
        }
        Ok((!rows.is_empty()).then_some(rows))
    }

    /// Whether the next item is of the last row's time and line.
    fn goes_on(&self, rows: &Rows<T>) -> bool {
        self.heap.peek().is_some_and(|Reverse((rank, line, _))| {
            rows.times.last() == Some(&self.extent.rank(*rank)) && rows.lines.last() == Some(line)
        })
    }

    /// The only member's block as it is.
    async fn whole_block(&mut self) -> QueryResult<Option<Rows<T>>> {
        let Some(Reverse((_, line, which))) = self.heap.pop() else { return Ok(None) };
        let reading = &mut self.reading[which];
        let block = std::mem::take(&mut reading.block);
        let times: Vec<i64> = block.times.into_iter().skip(reading.at).collect();
        let cells: Vec<Option<T>> = block.items.into_iter().skip(reading.at).map(Some).collect();
        self.refill(which).await?;
        Ok(Some(Rows { lines: vec![line; times.len()], times, width: 1, cells }))
    }

    /// Takes the items of a member as long as it stays before all others. Whether it needs a new block; if not it is in the heap again.
    fn run(&mut self, rows: &mut Rows<T>, which: usize) -> bool {
        loop {
            let reading = &self.reading[which];
            let Some(time) = reading.block.times.get(reading.at) else { return true };
            let (rank, line) = (self.extent.rank(*time), reading.line);
            let is_first = self.heap.peek().is_none_or(|Reverse(other)| (rank, line, which) < *other);
            if !is_first || rows.len() >= ROWS {
                self.heap.push(Reverse((rank, line, which)));
                return false;
            }
            self.take(rows, rank, line, which);
        }
    }

    /// Puts a member's next item into the last row, or into a new one.
    fn take(&mut self, rows: &mut Rows<T>, rank: i64, line: u32, which: usize) {
        let time = self.extent.rank(rank);
        let reading = &mut self.reading[which];
        let item = reading.block.items[reading.at].clone();
        reading.at += 1;
        let is_same = rows.times.last() == Some(&time) && rows.lines.last() == Some(&line);
        if is_same {
            let start = rows.cells.len() - self.width;
            let cell = &mut rows.cells[start + reading.column];
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
        rows.lines.push(line);
        rows.times.push(time);
        rows.cells.resize(rows.cells.len() + self.width, None);
        let start = rows.cells.len() - self.width;
        rows.cells[start + reading.column] = Some(item);
    }

    /// Reads a member's next block, and puts it into the heap if there is one.
    async fn refill(&mut self, which: usize) -> QueryResult<()> {
        let reading = &mut self.reading[which];
        self.held -= reading.block.times.len();
        reading.at = 0;
        match T::next(&mut reading.stream, &self.extent).await? {
            Some(block) => {
                self.heap.push(Reverse((self.extent.rank(block.times[0]), reading.line, which)));
                reading.block = block;
            }
            None => reading.block = Block::default(),
        }
        self.held += self.reading[which].block.times.len();
        if self.held > self.bounds.items {
            return Err(QueryError::TooMany(format!(
                "more than {} points would be in memory at once; narrow `where` or `range`, or set \"order-by\": \"series\"",
                self.bounds.items
            )));
        }
        Ok(())
    }
}
