//! Finding series for readers: by metric and tags, a page at a time, and the metrics, tags and
//! values that there are.
//!
//! The keys of the index that belong to one tag's value ascend by the number of the series. So
//! several conditions are met by walking their keys side by side, each skipping to where the other
//! is; nothing is held but a page of each. What is found is a number and a name: a series that is
//! only read is neither made nor kept in memory.

use super::damage::Mark;
use super::found::Found;
use super::keys::{Id, Keys, Listing, Whose};
use super::names::{self, FIRST_POSTED};
use super::rolls::Progress;
use super::{Cell, Part, Role, Series, Shared, lock, retry};
use crate::error::Result;
use crate::name::Name;
use plinth_client::{KeyValue, RangeOptions, StreamingMode, Transaction};
use plinth_types::{Bytes, key_after, strinc};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Rows that are read at a time.
const PAGE: usize = 1000;

/// What of the series is in memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StoreStats {
    /// Series that were written or opened for writing.
    pub series: usize,
    /// Points in their open leaves.
    pub open_points: usize,
    /// Points that nobody has begun to save.
    pub unsaved_points: usize,
    /// How long the oldest point has waited that is not durable yet; 0 if there is none.
    pub unsaved_for: Duration,
    /// The longest that a point waited since these series were opened: what a crash took from
    /// whoever never asked was no older.
    pub longest_unsaved: Duration,
    /// Series that are known to be damaged: see [`SeriesStore::damaged`](super::SeriesStore).
    pub damaged: usize,
    /// Points of such that were set aside since these series were opened.
    pub points_aside: u64,
    /// Bytes that queries at work hold, about.
    pub query_bytes: usize,
    /// How far rollups are with what was there before.
    pub rollups: Progress,
}

/// Reads of the index, at whatever version.
pub(super) struct Index<'a> {
    tr: Transaction,
    keys: &'a Keys,
}

impl<'a> Index<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        Self { tr: shared.database.create_transaction(), keys: &shared.keys }
    }

    /// Up to a page of the rows of a range.
    async fn page(&self, begin: &[u8], end: &[u8]) -> Result<Vec<KeyValue>> {
        if begin >= end {
            return Ok(Vec::new());
        }
        loop {
            let range =
                RangeOptions::from(Bytes::copy_from_slice(begin)..Bytes::copy_from_slice(end));
            let range = range.limit(PAGE).mode(StreamingMode::WantAll);
            match self.tr.snapshot().range(range).collect().await {
                Ok(rows) => return Ok(rows),
                Err(error) => retry::again(&self.tr, error.into()).await?,
            }
        }
    }

    /// Metrics, tags or values that begin with `prefix`, ascending, those behind `after`, at most
    /// `limit`.
    pub(super) async fn items(
        &self,
        listing: &Listing,
        (prefix, after): (&str, Option<&str>),
        limit: usize,
    ) -> Result<Vec<String>> {
        let keys = self.keys;
        let end = end_of(&keys.listing_prefix(listing, prefix));
        let mut begin = match after {
            Some(after) if after >= prefix => keys.behind(listing, after),
            _ => keys.listing_prefix(listing, prefix),
        };
        // Under an empty tag stand all series of a metric.
        begin = begin.max(keys.behind(listing, ""));
        let mut found: Vec<String> = Vec::new();
        while found.len() < limit {
            let rows = self.page(&begin, &end).await?;
            let is_end = rows.len() < PAGE;
            for row in rows {
                let item = keys.item_of_index(&row.key, listing)?;
                begin = key_after(&row.key).to_vec();
                let is_new = !item.is_empty() && found.last().is_none_or(|last| *last != item);
                if is_new && found.len() < limit {
                    found.push(item);
                }
            }
            if is_end {
                break;
            }
            if let Some(last) = found.last() {
                begin = begin.max(keys.behind(listing, last));
            }
        }
        Ok(found)
    }

    /// The numbers of a metric's series that have for each tag one of its values, from `least` on,
    /// ascending, at most `limit` of them.
    async fn numbers(
        &self,
        metric: &str,
        tags: &[(String, Vec<String>)],
        least: Id,
        limit: usize,
    ) -> Result<Vec<Id>> {
        let any = [(String::new(), vec![String::new()])];
        let conditions = if tags.is_empty() { &any[..] } else { tags };
        let postings = |tag: &String, value: &String| Postings {
            metric: metric.to_string(),
            tag: tag.clone(),
            value: value.clone(),
            ahead: VecDeque::new(),
            next: Some(0),
        };
        let condition = |(tag, values): &(String, Vec<String>)| Condition {
            values: values.iter().map(|value| postings(tag, value)).collect(),
            next: BinaryHeap::new(),
            is_begun: false,
        };
        let mut conditions: Vec<Condition> = conditions.iter().map(condition).collect();
        let mut ids = Vec::new();
        let mut least = least;
        'series: while ids.len() < limit {
            let mut agreed = 0;
            while agreed < conditions.len() {
                let Some(first) = conditions[agreed].seek(self, least).await? else {
                    break 'series;
                };
                // Beyond what the others have agreed upon: they look again.
                agreed = if first == least { agreed + 1 } else { 0 };
                least = first;
            }
            ids.push(least);
            least += 1;
        }
        Ok(ids)
    }

    /// The number of the series of a name, as it is kept.
    async fn name_row(&self, name: &Name) -> Result<Option<Bytes>> {
        loop {
            match self.tr.snapshot().get(self.keys.name(name.as_str())).await {
                Ok(row) => return Ok(row),
                Err(error) => retry::again(&self.tr, error.into()).await?,
            }
        }
    }

    /// The names of these series, as `named` says of what was read; those that have gone meanwhile
    /// are left out, and those of which it says nothing.
    async fn names(
        &self,
        ids: &[Id],
        named: impl Fn(Id, Result<Name>) -> Result<Option<Name>>,
    ) -> Result<Vec<Found>> {
        let mut found = Vec::with_capacity(ids.len());
        for ids in ids.chunks(PAGE) {
            let rows = loop {
                let reads: Vec<_> =
                    ids.iter().map(|id| self.tr.snapshot().get(self.keys.series(*id))).collect();
                let mut rows = Vec::with_capacity(ids.len());
                let mut failed = None;
                for read in reads {
                    match read.await {
                        Ok(row) => rows.push(row),
                        Err(error) => failed = Some(error),
                    }
                }
                match failed {
                    None => break rows,
                    Some(error) => retry::again(&self.tr, error.into()).await?,
                }
            };
            for (id, row) in ids.iter().zip(rows) {
                if let Some(row) = row
                    && let Some(name) = named(*id, names::name_in(*id, &row))?
                {
                    found.push(Found::new(*id, name));
                }
            }
        }
        Ok(found)
    }
}

fn end_of(prefix: &[u8]) -> Vec<u8> {
    strinc(prefix).map_or_else(|| vec![0xff], |end| end.to_vec())
}

/// The numbers of the series with one value of one tag, ascending.
struct Postings {
    metric: String,
    tag: String,
    value: String,
    ahead: VecDeque<Id>,
    /// The least that has not been read.
    next: Option<Id>,
}

impl Postings {
    /// The first number from `least` on.
    async fn seek(&mut self, index: &Index<'_>, least: Id) -> Result<Option<Id>> {
        loop {
            while let Some(id) = self.ahead.front() {
                if *id >= least {
                    return Ok(Some(*id));
                }
                self.ahead.pop_front();
            }
            let Some(next) = self.next else { return Ok(None) };
            let begin = index.keys.index(&self.metric, &self.tag, &self.value, next.max(least));
            let end = end_of(&index.keys.index_of(&self.metric, &self.tag, &self.value));
            let rows = index.page(&begin, &end).await?;
            for row in &rows {
                self.ahead.push_back(index.keys.id_of_index(&row.key)?);
            }
            self.next =
                if rows.len() < PAGE { None } else { self.ahead.back().map(|last| last + 1) };
        }
    }
}

/// The numbers of the series with one of several values of a tag, ascending.
struct Condition {
    values: Vec<Postings>,
    /// The next number of each value that has one.
    next: BinaryHeap<Reverse<(Id, usize)>>,
    is_begun: bool,
}

impl Condition {
    /// The first number from `least` on.
    async fn seek(&mut self, index: &Index<'_>, least: Id) -> Result<Option<Id>> {
        if !self.is_begun {
            self.is_begun = true;
            for (place, value) in self.values.iter_mut().enumerate() {
                self.next.extend(value.seek(index, least).await?.map(|id| Reverse((id, place))));
            }
        }
        while let Some(Reverse((id, place))) = self.next.peek().copied() {
            if id >= least {
                return Ok(Some(id));
            }
            self.next.pop();
            self.next.extend(
                self.values[place].seek(index, least).await?.map(|id| Reverse((id, place))),
            );
        }
        Ok(None)
    }
}

impl Part {
    /// Takes in what waits, if that is not somebody else's to do: he was asked for it.
    async fn take_in_own(&self) -> Result<()> {
        if self.is_foreign() { Ok(()) } else { self.take_in().await }
    }

    /// A name that was read. One that can't be is an error, unless whoever asks does something with
    /// all that can be: then it is noted.
    fn or_skip(&self, id: Id, name: Result<Name>, skips: bool) -> Result<Option<Name>> {
        let whose = Whose::Number(id);
        match name {
            Err(why) if skips => {
                self.shared.note_damage(&whose, &why, Mark::None);
                Ok(None)
            }
            Ok(name) => {
                self.shared.index.damage.forget_unmarked(&whose);
                Ok(Some(name))
            }
            Err(why) => Err(why),
        }
    }

    /// Series of a metric that have for each tag one of its values, with numbers from `least` on,
    /// ascending, at most `limit` of them; and where the next ones begin, if there may be more.
    /// Such as have no name that can be read are an error, or left out.
    pub(super) async fn search(
        &self,
        metric: &str,
        tags: &[(String, Vec<String>)],
        (least, limit): (Id, usize),
        skips: bool,
    ) -> Result<(Vec<Found>, Option<Id>)> {
        if least == 0 {
            self.take_in_own().await?;
        }
        let index = Index::new(&self.shared);
        let ids = index.numbers(metric, tags, least, limit).await?;
        // Some of them may have gone meanwhile, so it is not their names that tell whether there
        // are more.
        let next = ids.last().map(|last| last + 1).filter(|_| ids.len() >= limit);
        let mut found = index.names(&ids, |id, name| self.or_skip(id, name, skips)).await?;
        if next.is_some() {
            return Ok((found, next));
        }
        let is_wanted = |name: &Name| {
            let has = |(tag, values): &(String, Vec<String>)| {
                name.tags().any(|(key, value)| key == tag && values.iter().any(|of| of == value))
            };
            name.metric() == metric && tags.iter().all(has)
        };
        let (posted, is_end) =
            self.posted(&index, is_wanted, least, limit - ids.len().min(limit)).await?;
        let next = posted.last().map(|last| last.id + 1).filter(|_| !is_end);
        found.extend(posted);
        Ok((found, next))
    }

    /// Series that a store that only reads has found in the inbox alone, as `index` sees it: some
    /// from `least` on, and whether they are all.
    async fn posted(
        &self,
        index: &Index<'_>,
        is_wanted: impl Fn(&Name) -> bool,
        least: Id,
        limit: usize,
    ) -> Result<(Vec<Found>, bool)> {
        if !matches!(self.shared.role, Role::Reader) {
            return Ok((Vec::new(), true));
        }
        let mut all: Vec<Found> = lock(&self.shared.index.names)
            .iter()
            .filter(|(name, cell)| cell.id >= least.max(FIRST_POSTED) && is_wanted(name))
            .map(|(name, cell)| Found::new(cell.id, name.clone()))
            .collect();
        all.sort_unstable_by_key(|found| found.id);
        let is_end = all.len() <= limit;
        all.truncate(limit);
        let mut posted = Vec::with_capacity(all.len());
        for found in all {
            // The owner may have given it a number since, under which it was found just now.
            if index.name_row(&found.name).await?.is_none() {
                posted.push(found);
            }
        }
        Ok((posted, is_end))
    }

    /// All series with numbers from `least` on, ascending, some of them; and whether there are no
    /// more. Such as have no name that can be read are an error, or left out.
    pub(super) async fn page_of_all(&self, least: Id, skips: bool) -> Result<(Vec<Found>, bool)> {
        if least == 0 {
            self.take_in_own().await?;
        }
        let index = Index::new(&self.shared);
        let begin = index.keys.series(least);
        let rows = index.page(&begin, &end_of(&index.keys.all_series())).await?;
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            let id = index.keys.id_of_series(&row.key)?;
            let name = self.or_skip(id, names::name_in(id, &row.value), skips)?;
            found.extend(name.map(|name| Found::new(id, name)));
        }
        if rows.len() >= PAGE {
            return Ok((found, false));
        }
        let (posted, is_end) = self.posted(&index, |_| true, least, PAGE).await?;
        found.extend(posted);
        Ok((found, is_end))
    }

    /// The series of these names, as far as there are such.
    pub(super) async fn named(&self, names: &[Name]) -> Result<Vec<Found>> {
        self.take_in_own().await?;
        let index = Index::new(&self.shared);
        let mut known = BTreeMap::new();
        for name in names {
            if let Some(id) = names::number(index.name_row(name).await?)? {
                known.insert(id, name);
            }
        }
        let ids: Vec<Id> = known.keys().copied().collect();
        // Whoever asks by name needs none.
        let asked = |id: Id| known.get(&id).map(|name| Name::clone(name));
        index.names(&ids, |id, _| Ok(asked(id))).await
    }

    /// A series that was found: the one in memory, or else one that has nothing there and is
    /// forgotten with the handle.
    pub(super) fn found(&self, found: &Found) -> Series {
        if self.is_foreign() {
            // What is in memory here waits to be posted, and is no part of what is read.
            let cell = found.brought.cell().unwrap_or_else(|| found.cell());
            return Series { shared: self.shared.clone(), cell, is_looked_up: false };
        }
        let cell = lock(&self.shared.index.names).get(&found.name).cloned();
        // What was posted and has a number since is seen as it was when this store began to look.
        let is_it = |cell: &Arc<Cell>| cell.id == found.id || cell.id >= FIRST_POSTED;
        let cell = cell.filter(is_it).unwrap_or_else(|| found.cell());
        Series { shared: self.shared.clone(), cell, is_looked_up: false }
    }

    /// What of the series is in memory now.
    pub(super) fn stats(&self) -> StoreStats {
        let shared = &self.shared;
        let (damaged, points_aside) = shared.index.damage.count();
        StoreStats {
            damaged,
            points_aside,
            series: lock(&shared.index.names).len(),
            open_points: shared.open_points.load(Ordering::Relaxed),
            unsaved_points: shared.pending.points(),
            unsaved_for: Duration::from_nanos(shared.unsaved_for()),
            longest_unsaved: Duration::from_nanos(
                shared.pending.longest_unsaved.load(Ordering::Relaxed),
            ),
            query_bytes: shared.of.whole.queries.held(),
            rollups: shared.rolls.progress(),
        }
    }

    /// Metrics, tags or values that begin with `prefix`, ascending, those behind `after`, at most
    /// `limit`.
    pub(super) async fn list(
        &self,
        listing: &Listing,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>> {
        if after.is_none() {
            self.take_in_own().await?;
        }
        Index::new(&self.shared).items(listing, (prefix, after), limit).await
    }
}
