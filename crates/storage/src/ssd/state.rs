//! What the engine holds at one moment: runs of tables, the newest first, and the version that they
//! make.
//!
//! ```text
//!   level 0    [table]            each run is what one flush of the window made; they overlap
//!              [table]
//!   level 1    [table][table]     one run a level, its tables side by side
//!   level 2    [table][table][table][table] ...
//! ```
//!
//! A state never changes. The next one is made beside it and takes its place in one step; who began
//! to read the old one goes on with it.

use super::filter;
use super::load::Loader;
use super::separators::Separators;
use super::table::Table;
use crate::failure::StorageResult;
use plinth_types::LogPosition;
use std::sync::Arc;

/// The deepest level.
pub(crate) const DEEPEST: u32 = 6;

/// Tables side by side, in key order.
pub(crate) struct Run {
    pub level: u32,
    /// Among runs of level 0: which flush made it.
    pub flush: u64,
    pub tables: Vec<Arc<Table>>,
    pub has_clears: bool,
    /// Of each table the first key that it says something about: searched without a look at the
    /// tables.
    lowers: Separators,
}

impl Run {
    /// # Panics
    /// If the tables are not side by side.
    pub fn new(level: u32, flush: u64, tables: Vec<Arc<Table>>) -> Self {
        let apart = tables.windows(2).all(|pair| pair[0].upper() <= pair[1].lower());
        assert!(apart, "the tables of a run do not overlap");
        let has_clears = tables.iter().any(|table| !table.clears().is_empty());
        let (mut keys, mut ends) = (Vec::new(), Vec::with_capacity(tables.len()));
        for table in &tables {
            keys.extend_from_slice(table.lower());
            ends.push(keys.len() as u32);
        }
        Self { level, flush, tables, has_clears, lowers: Separators::new(keys, ends) }
    }

    /// The table that may say something about a key.
    #[inline]
    pub fn table_for(&self, key: &[u8]) -> Option<&Arc<Table>> {
        let table = &self.tables[self.lowers.last_up_to(key)?];
        (*key < table.upper()[..]).then_some(table)
    }

    /// The tables that say something about a range.
    pub fn overlapping(&self, lower: &[u8], upper: &[u8]) -> &[Arc<Table>] {
        let first = self.tables.partition_point(|table| table.upper()[..] <= *lower);
        let after = self.tables.partition_point(|table| table.lower()[..] < *upper);
        self.tables.get(first..after).unwrap_or_default()
    }

    /// Bytes of the files.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.file_len()).sum()
    }

    /// Key and value bytes of the rows in a range, estimated.
    pub fn row_bytes_in(&self, begin: &[u8], end: &[u8]) -> u64 {
        self.overlapping(begin, end).iter().map(|table| bytes_in(table, begin, end)).sum()
    }
}

/// All that the engine holds.
pub(crate) struct State {
    /// Everything up to this place in the log is in the tables, and nothing later.
    pub at: LogPosition,
    /// The newest first.
    pub runs: Vec<Arc<Run>>,
    /// The number of the next flush.
    pub next_flush: u64,
    /// Changes with each state that is made durable.
    pub serial: u64,
}

impl State {
    /// An engine without rows.
    pub fn empty(at: LogPosition) -> Self {
        Self { at, runs: Vec::new(), next_flush: 1, serial: 0 }
    }

    /// A state of these tables: level, flush, table.
    pub fn of(at: LogPosition, serial: u64, next_flush: u64, placed: Vec<Placed>) -> Self {
        let mut placed = placed;
        placed.sort_by(|a, b| {
            let order = |placed: &Placed| (placed.level, u64::MAX - placed.flush);
            order(a).cmp(&order(b)).then_with(|| a.table.lower().cmp(b.table.lower()))
        });
        let mut runs: Vec<Arc<Run>> = Vec::new();
        let mut rest = placed.into_iter().peekable();
        while let Some(first) = rest.next() {
            let (level, flush) = (first.level, first.flush);
            let mut tables = vec![first.table];
            while let Some(next) = rest.next_if(|next| (next.level, next.flush) == (level, flush)) {
                tables.push(next.table);
            }
            assert!(level == 0 || flush == 0, "below the first level runs have no flush");
            runs.push(Arc::new(Run::new(level, flush, tables)));
        }
        Self { at, runs, next_flush, serial }
    }

    /// The tables, each with its place.
    pub fn placed(&self) -> impl Iterator<Item = Placed> + '_ {
        self.runs.iter().flat_map(|run| {
            let place = |table: &Arc<Table>| Placed {
                level: run.level,
                flush: run.flush,
                table: table.clone(),
            };
            run.tables.iter().map(place)
        })
    }

    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.runs.iter().flat_map(|run| &run.tables)
    }

    /// The run of a level below the first.
    pub fn level(&self, level: u32) -> Option<&Arc<Run>> {
        assert!(level > 0);
        self.runs.iter().find(|run| run.level == level)
    }

    /// The runs that flushes made, the newest first.
    pub fn flushed(&self) -> impl DoubleEndedIterator<Item = &Arc<Run>> {
        self.runs.iter().filter(|run| run.level == 0)
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes()).sum()
    }

    /// Bytes of memory that the tables take without their blocks.
    pub fn memory(&self) -> usize {
        self.tables().map(|table| table.memory()).sum()
    }

    /// Adds the value of a key to `out`, if it has one, and says whether it has.
    ///
    /// # Errors
    /// Those of reading a block.
    pub async fn get(&self, key: &[u8], loader: &Loader, out: &mut Vec<u8>) -> StorageResult<bool> {
        let mut was_read = false;
        let found = self.find(key, loader, out, &mut was_read).await;
        if was_read {
            loader.note_uncached();
        }
        found
    }

    async fn find(
        &self,
        key: &[u8],
        loader: &Loader,
        out: &mut Vec<u8>,
        was_read: &mut bool,
    ) -> StorageResult<bool> {
        let hash = filter::hash(key);
        for run in &self.runs {
            let Some(table) = run.table_for(key) else { continue };
            if table.filter().may_contain(hash)
                && let Some(number) = table.index().block_of(key)
            {
                let block = loader.block(table, number, was_read).await?;
                if let Some(found) = block.get(key) {
                    out.extend_from_slice(found.unwrap_or_default());
                    return Ok(found.is_some());
                }
            }
            if run.has_clears && table.clears().covering(key).is_some() {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Key and value bytes in a range, estimated: rows that were overwritten or removed and not yet
    /// dropped count until then.
    pub fn range_size(&self, begin: &[u8], end: &[u8]) -> u64 {
        self.runs.iter().map(|run| run.row_bytes_in(begin, end)).sum()
    }
}

/// Bytes of the rows of a table in a range, estimated from how many of its blocks lie there.
fn bytes_in(table: &Table, begin: &[u8], end: &[u8]) -> u64 {
    let (index, footer) = (table.index(), table.footer());
    let total = index.count() as u64;
    if total == 0 {
        return 0;
    }
    // A bound inside a block counts as in its middle; together with a block for the width of a
    // short range.
    let place = |key: &[u8]| match index.block_of(key) {
        None => 0,
        Some(_) if key > &index.last_key()[..] => 2 * total,
        Some(at) => 2 * at as u64 + u64::from(key != index.separator(at)),
    };
    let halves = place(end).saturating_sub(place(begin));
    footer.row_bytes * halves / (2 * total)
}

/// A table and where it stands.
pub(crate) struct Placed {
    pub level: u32,
    pub flush: u64,
    pub table: Arc<Table>,
}
