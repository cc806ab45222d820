//! Walking along keys: in one run, and in several at once as if they were one.
//!
//! A cursor stands at an entry, or between blocks, or behind the last entry. Steps inside a block
//! are plain function calls; only the way into another block waits.

use super::clears::Clears;
use super::load::Loader;
use super::rows::RowsBlock;
use super::state::Run;
use super::table::Table;
use super::window::Part;
use crate::failure::StorageResult;
use plinth_types::{Bytes, probe};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Blocks that a long walk reads at once, at most.
const MOST_AHEAD: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// At an entry.
    Here,
    /// The next entry is the first of the next block.
    Between,
    /// Behind the last entry.
    Over,
}

/// A place in a run.
pub(crate) struct RunCursor {
    run: Arc<Run>,
    forward: bool,
    /// No key from here on is wanted (walking back: none below here).
    bound: Bytes,
    place: Place,
    table: usize,
    number: usize,
    block: Option<Arc<RowsBlock>>,
    at: usize,
    key: Vec<u8>,
    /// Blocks behind the present one that were read with it.
    ahead: VecDeque<Arc<RowsBlock>>,
    read_next: usize,
}

impl RunCursor {
    /// A cursor that stands nowhere yet; it will not go beyond `bound`. Reads `ahead` blocks at
    /// once at first.
    pub fn new(run: Arc<Run>, forward: bool, bound: Bytes, ahead: usize) -> Self {
        Self {
            run,
            forward,
            bound,
            place: Place::Over,
            table: 0,
            number: 0,
            block: None,
            at: 0,
            key: Vec::new(),
            ahead: VecDeque::new(),
            read_next: ahead.clamp(1, MOST_AHEAD),
        }
    }

    #[inline(always)]
    fn is_here(&self) -> bool {
        self.place == Place::Here
    }

    #[inline(always)]
    fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value of the entry; `None` if it says that the key is removed.
    #[inline]
    fn value(&self) -> Option<&[u8]> {
        self.block.as_ref().and_then(|block| block.entry(self.at).1)
    }

    fn table(&self) -> &Arc<Table> {
        &self.run.tables[self.table]
    }

    /// The clear of this run that covers a key.
    fn covering(&self, key: &[u8]) -> Option<&(Bytes, Bytes)> {
        if !self.run.has_clears {
            return None;
        }
        self.run.table_for(key)?.clears().covering(key)
    }

    /// Moves to the first entry not below `from`, or, walking back, to the last one below it.
    async fn seek(&mut self, from: &[u8], loader: &Loader) -> StorageResult<()> {
        if self.seek_here(from) {
            return Ok(());
        }
        let tables = &self.run.tables;
        let table = match self.forward {
            true => tables.partition_point(|table| table.upper()[..] <= *from),
            false => tables.partition_point(|table| table.lower()[..] < *from).wrapping_sub(1),
        };
        self.ahead.clear();
        self.block = None;
        self.table = table;
        let Some(found) = tables.get(table) else {
            self.place = Place::Over;
            return Ok(());
        };
        let number = match (found.index().block_of(from), self.forward) {
            (Some(number), _) => number,
            (None, true) if found.index().count() > 0 => 0,
            (None, _) => {
                // Nothing of this table lies on the way.
                self.number = if self.forward { found.index().count() } else { 0 };
                return self.enter_beside(loader).await;
            }
        };
        if self.is_beyond(number) {
            self.place = Place::Over;
            return Ok(());
        }
        self.enter(number, loader).await?;
        let Some(block) = &self.block else { return Ok(()) };
        let at = block.seek(from).0;
        match if self.forward { Some(at) } else { at.checked_sub(1) } {
            Some(at) if at < block.count() => self.stand(at),
            _ => self.enter_beside(loader).await?,
        }
        Ok(())
    }

    /// Moves within the present block, if the entry is there for certain.
    fn seek_here(&mut self, from: &[u8]) -> bool {
        let Some(block) = &self.block else { return false };
        if self.place != Place::Here {
            return false;
        }
        let at = block.seek(from).0;
        // At its ends the entry may as well be in the block beside.
        let inside = 0 < at && at < block.count();
        if inside {
            let at = if self.forward { at } else { at - 1 };
            self.stand(at);
        }
        inside
    }

    /// Makes the block `number` of the present table the present one.
    async fn enter(&mut self, number: usize, loader: &Loader) -> StorageResult<()> {
        self.place = Place::Between;
        let follows = self.forward && number == self.number + 1 && self.block.is_some();
        let ready = if follows { self.ahead.pop_front() } else { None };
        let block = match ready.or_else(|| loader.cached(self.table(), number)) {
            Some(block) => block,
            None => {
                let table = self.table().clone();
                let left = table.index().count() - number;
                let count = if self.forward { self.read_next.min(left) } else { 1 };
                self.read_next = (self.read_next * 2).min(MOST_AHEAD);
                let mut blocks =
                    loader.read(&table, number, self.within_bound(&table, number, count)).await?;
                let Some(first) = blocks.pop_front() else { return Ok(()) };
                self.ahead = blocks;
                first
            }
        };
        self.number = number;
        self.key.clear();
        self.key.extend_from_slice(block.prefix());
        self.block = Some(block);
        Ok(())
    }

    /// How many of `count` blocks are wanted.
    fn within_bound(&self, table: &Table, number: usize, count: usize) -> usize {
        let wanted = |at: &usize| *at == number || table.index().separator(*at) < &self.bound[..];
        (number..number + count).take_while(wanted).count()
    }

    #[inline]
    fn stand(&mut self, at: usize) {
        let Some(block) = &self.block else { return };
        self.at = at;
        self.key.truncate(block.prefix().len());
        self.key.extend_from_slice(block.entry(at).0);
        self.place = Place::Here;
    }

    /// Goes on to the next entry if it is in this block; else the cursor stands between blocks.
    #[inline]
    fn step(&mut self) {
        let Some(block) = &self.block else { return };
        let next = if self.forward { self.at + 1 } else { self.at.wrapping_sub(1) };
        if next < block.count() {
            self.stand(next);
        } else {
            self.place = Place::Between;
        }
    }

    /// How many entries of this block, from this one on, come before `end` and before the keys of
    /// `others`.
    fn count_before<'k>(&self, end: &[u8], others: impl Iterator<Item = &'k [u8]>) -> usize {
        let Some(block) = &self.block else { return 0 };
        let from = |key: &[u8]| block.seek(key);
        if self.forward {
            let nearest = others.fold(end, |nearest, key| nearest.min(key));
            from(nearest).0 - self.at
        } else {
            // Walking back, the end is still wanted, what others have is not.
            let lowest = others.map(from).map(|(at, is_there)| at + usize::from(is_there));
            self.at + 1 - lowest.fold(from(end).0, usize::max)
        }
    }

    /// Visits the next entries of this block, as many as there are for certain, and goes on behind
    /// them.
    #[inline]
    fn visit(
        &mut self,
        count: usize,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(block) = &self.block else { return ControlFlow::Continue(()) };
        let prefix = block.prefix().len();
        for past in 0..count {
            let at = if self.forward { self.at + past } else { self.at - past };
            let (rest, value) = block.entry(at);
            self.key.truncate(prefix);
            self.key.extend_from_slice(rest);
            if let Some(value) = value {
                visit(&self.key, value)?;
            }
        }
        self.at = if self.forward { self.at + count - 1 } else { self.at + 1 - count };
        self.step();
        ControlFlow::Continue(())
    }

    /// Comes to stand at an entry or at the end.
    async fn settle(&mut self, loader: &Loader) -> StorageResult<()> {
        if self.place == Place::Between { self.enter_beside(loader).await } else { Ok(()) }
    }

    /// Enters the next block on the way and stands at its first entry.
    async fn enter_beside(&mut self, loader: &Loader) -> StorageResult<()> {
        let mut number = self.number;
        let mut begun = self.block.is_some() || self.forward;
        loop {
            let count = self.table().index().count();
            let next = if self.forward {
                let next = if self.block.is_some() { number + 1 } else { number };
                (next < count).then_some(next)
            } else if begun {
                number.checked_sub(1)
            } else {
                None
            };
            if let Some(next) = next {
                if self.is_beyond(next) {
                    break;
                }
                self.enter(next, loader).await?;
                let Some(block) = &self.block else { break };
                let at = if self.forward { 0 } else { block.count() - 1 };
                self.stand(at);
                return Ok(());
            }
            self.ahead.clear();
            self.block = None;
            let table = if self.forward { self.table + 1 } else { self.table.wrapping_sub(1) };
            if table >= self.run.tables.len() {
                break;
            }
            self.table = table;
            begun = true;
            number = if self.forward { 0 } else { self.table().index().count() };
        }
        self.place = Place::Over;
        Ok(())
    }

    /// Whether a block lies wholly beyond the bound.
    fn is_beyond(&self, number: usize) -> bool {
        let index = self.table().index();
        match self.forward {
            true => index.separator(number) >= &self.bound[..],
            false if number + 1 < index.count() => index.separator(number + 1) <= &self.bound[..],
            false => self.table().upper()[..] <= self.bound[..],
        }
    }
}

/// Several runs as one, the window's part before them.
pub(crate) struct Merge {
    forward: bool,
    part: Part,
    sources: Vec<RunCursor>,
    /// Whether any source clears ranges.
    clears: bool,
}

/// Which source has the next entry, and which have an older one of the same key.
#[derive(Clone, Copy)]
pub(crate) struct Winner {
    /// `None`: the window.
    source: Option<usize>,
    ties: u64,
}

impl Merge {
    /// Of these runs, the newest first. At most 64.
    pub fn new(sources: Vec<RunCursor>, forward: bool) -> Self {
        assert!(sources.len() <= 64, "{} runs", sources.len());
        let clears = sources.iter().any(|source| source.run.has_clears);
        Self { forward, part: Part::default(), sources, clears }
    }

    /// What the window knows of the keys to come.
    pub fn set_part(&mut self, part: Part) {
        self.part = part;
    }

    /// Moves all sources to the first entries not below `from`, or, walking back, the last ones
    /// below it.
    pub async fn seek(&mut self, from: &[u8], loader: &Loader) -> StorageResult<()> {
        for source in &mut self.sources {
            source.seek(from, loader).await?;
        }
        Ok(())
    }

    /// The next entry, removed keys too, but nothing that newer sources have cleared.
    pub async fn peek(&mut self, loader: &Loader) -> StorageResult<Option<Winner>> {
        loop {
            for source in &mut self.sources {
                if source.place == Place::Between {
                    source.settle(loader).await?;
                }
            }
            let Some(winner) = self.choose() else { return Ok(None) };
            if !self.clears && self.part.clears.is_empty() {
                return Ok(Some(winner));
            }
            let Some((owner, to)) = self.cleared(winner) else { return Ok(Some(winner)) };
            self.skip(owner, &to, loader).await?;
        }
    }

    #[inline]
    fn choose(&self) -> Option<Winner> {
        let before = if self.forward { Ordering::Less } else { Ordering::Greater };
        let mut best: Option<(Option<usize>, &[u8])> = self.part.key().map(|key| (None, key));
        let mut ties = 0;
        for (at, source) in self.sources.iter().enumerate() {
            if !source.is_here() {
                continue;
            }
            match best.map(|(_, key)| source.key().cmp(key)) {
                Some(Ordering::Equal) => ties |= 1 << at,
                Some(order) if order != before => {}
                _ => {
                    best = Some((Some(at), source.key()));
                    ties = 0;
                }
            }
        }
        best.map(|(source, _)| Winner { source, ties })
    }

    /// If a newer source has cleared the winner's key: which (0 is the window), and where the clear
    /// ends.
    fn cleared(&self, winner: Winner) -> Option<(usize, Bytes)> {
        let at = winner.source?;
        let key = self.sources[at].key();
        let end =
            |range: &(Bytes, Bytes)| if self.forward { range.1.clone() } else { range.0.clone() };
        if let Some(range) = self.part.clears.covering(key) {
            return Some((0, end(range)));
        }
        let newer = self.sources[..at].iter().enumerate();
        newer
            .map(|(owner, source)| Some((owner + 1, end(source.covering(key)?))))
            .find(Option::is_some)?
    }

    /// Takes all sources older than the clear's owner behind the clear.
    async fn skip(&mut self, owner: usize, to: &[u8], loader: &Loader) -> StorageResult<()> {
        probe!("ssd: cleared rows skipped");
        let forward = self.forward;
        for source in &mut self.sources[owner..] {
            let inside = if forward { source.key() < to } else { source.key() >= to };
            if source.is_here() && inside {
                source.seek(to, loader).await?;
            }
        }
        Ok(())
    }

    /// Visits the winner if it has a value, and behind it what follows in its block before any
    /// other source has an entry and before `end`; then goes on behind them. Of long runs most rows
    /// are visited so, and compared with nothing.
    pub fn visit(
        &mut self,
        winner: Winner,
        end: &[u8],
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if let Some(at) = winner.source
            && winner.ties == 0
            && !self.clears
            && self.part.clears.is_empty()
        {
            let others = self.sources.iter().enumerate();
            let others = others.filter(|(other, source)| *other != at && source.is_here());
            let others = others.map(|(_, source)| source.key()).chain(self.part.key());
            let count = self.sources[at].count_before(end, others);
            return self.sources[at].visit(count, visit);
        }
        if let Some(value) = self.value(winner) {
            visit(self.key(winner), value)?;
        }
        self.step(winner);
        ControlFlow::Continue(())
    }

    #[inline]
    pub fn key(&self, winner: Winner) -> &[u8] {
        match winner.source {
            Some(at) => self.sources[at].key(),
            None => self.part.key().unwrap_or_default(),
        }
    }

    /// The value; `None` if the key is removed.
    #[inline]
    pub fn value(&self, winner: Winner) -> Option<&[u8]> {
        match winner.source {
            Some(at) => self.sources[at].value(),
            None => self.part.value(),
        }
    }

    /// Goes on behind an entry.
    #[inline]
    pub fn step(&mut self, winner: Winner) {
        match winner.source {
            Some(at) => self.sources[at].step(),
            None => self.part.step(),
        }
        let mut ties = winner.ties;
        while ties != 0 {
            self.sources[ties.trailing_zeros() as usize].step();
            ties &= ties - 1;
        }
    }
}

/// The ranges cleared by the newer of several runs, for each of them: what the runs before it
/// clear.
pub(crate) fn clears_of<'r>(tables: impl Iterator<Item = &'r Arc<Table>>) -> Clears {
    let mut all = Clears::new();
    tables.for_each(|table| all.add_all(table.clears()));
    all
}
