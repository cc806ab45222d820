//! A store of several parts as one: what is asked of all series is asked of each part, and put
//! together; what is about one series goes to the part that its name says.
//!
//! A series has one number in the whole: that of its part, times the number of parts, and the
//! part's own behind it. So numbers of all parts are different, lists by number are merged, and
//! where there is one part nothing changes. Pages of a list end where the first of the parts does
//! whose page was full.

use super::found::Found;
use super::keys::{Id, Listing};
use super::limits::{Admitted, Grant};
use super::names;
use super::plot::part_of;
use super::search::StoreStats;
use super::{Part, Role, Series, SeriesStore, Shared, Standing, retry};
use crate::error::{Error, Result};
use crate::name::{Name, plain};
use crate::tree::Span;
use plinth_env::Env;
use plinth_env::sync::all;
use plinth_types::MetricSet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rows of a page, as [`SeriesStore::browse`] gives them.
const PAGE: usize = 1000;

impl SeriesStore {
    pub(super) fn of_one(shared: Arc<Shared>) -> Self {
        Self { parts: Arc::new([Part { shared }]), sight: None }
    }

    /// The store of these parts of one place, of which there is at least one.
    pub(super) fn of(mut parts: Vec<Arc<Shared>>) -> Self {
        assert!(!parts.is_empty(), "a store has parts");
        parts.sort_by_key(|shared| shared.of.number);
        assert!(
            parts.is_sorted_by(|one, next| one.of.number < next.of.number),
            "no part of a place is in a store twice"
        );
        Self { parts: parts.into_iter().map(|shared| Part { shared }).collect(), sight: None }
    }

    /// The same store for somebody for whom there are only the series of some metrics: others are
    /// neither found nor listed, and can't be made ([`Error::Denied`]).
    #[must_use]
    pub fn within(&self, metrics: Arc<MetricSet>) -> Self {
        Self { sight: Some(metrics), ..self.clone() }
    }

    /// Whether there are series of a metric, as it stands in names, for whoever uses the store.
    fn sees(&self, metric: &str) -> bool {
        self.sight.as_ref().is_none_or(|sight| sight.has(&plain(metric)))
    }

    pub(super) fn shareds(&self) -> Vec<Arc<Shared>> {
        self.parts.iter().map(|part| part.shared.clone()).collect()
    }

    pub(super) fn first(&self) -> &Shared {
        &self.parts[0].shared
    }

    /// Whether both are the same stores of the same parts.
    pub fn is_same_as(&self, other: &Self) -> bool {
        let is_same = |(one, other): (&Part, &Part)| Arc::ptr_eq(&one.shared, &other.shared);
        self.parts.len() == other.parts.len() && self.parts.iter().zip(&*other.parts).all(is_same)
    }

    /// The environment of the database below.
    pub(crate) fn env(&self) -> &Env {
        self.first().database.endpoint().env()
    }

    /// The part with this number.
    fn part(&self, number: usize) -> Result<&Part> {
        match self.parts.get(number) {
            Some(part) if part.shared.of.number == number => Ok(part),
            _ => self
                .parts
                .iter()
                .find(|part| part.shared.of.number == number)
                .ok_or(Error::NotOwner),
        }
    }

    fn part_of_name(&self, name: &Name) -> Result<&Part> {
        self.part(part_of(name, self.first().of.whole.parts()))
    }

    /// The part of a series with this number in the whole, and its number there.
    fn part_of_id(&self, id: Id) -> Result<(&Part, Id)> {
        let (number, id) = self.first().of.whole.within(id);
        Ok((self.part(number)?, id))
    }

    /// A store of the parts with these numbers, as far as this one has them; `None` if it has none
    /// of them.
    pub fn parts_among(&self, numbers: &[usize]) -> Option<Self> {
        let of = self.parts.iter().filter(|part| numbers.contains(&part.shared.of.number));
        let parts: Vec<_> = of.map(|part| part.shared.clone()).collect();
        (!parts.is_empty()).then(|| Self { sight: self.sight.clone(), ..Self::of(parts) })
    }

    /// Gives leases up after a last commit of what was appended: nobody owns the series then, and
    /// the next one has them at once. Without a lease, and where somebody else has them already, it
    /// is a `sync`.
    ///
    /// # Errors
    /// As [`SeriesStore::sync`]; the series are given up all the same, if the database takes that.
    pub async fn give_up(&self) -> Result<()> {
        all(self.parts.iter().map(Part::give_up)).await.into_iter().collect()
    }

    /// Gives leases up so that nothing is lost: nothing is appended any more, all that was is
    /// committed, and then nobody owns the series. Whoever held them by this store finds them
    /// [gone](SeriesStore::failure), but not [lost](SeriesStore::lost).
    ///
    /// # Errors
    /// As [`SeriesStore::sync`]; the series are this store's as before.
    pub async fn hand_over(&self) -> Result<()> {
        all(self.parts.iter().map(Part::hand_over)).await.into_iter().collect()
    }

    /// Looks in the database whether a part is this store's: for what goes with the part, and is
    /// written to others.
    ///
    /// # Errors
    /// [`Error::NotOwner`] if it is somebody else's; [`Error::Locked`], [`Error::Database`].
    pub async fn check_owned(&self, part: usize) -> Result<()> {
        let shared = &self.part(part)?.shared;
        if !matches!(shared.role, Role::Owner { .. }) {
            return Err(Error::NotOwner);
        }
        shared.check()?;
        retry::transact_all(&shared.database, |tr| async move { shared.check_owner(&tr).await })
            .await
    }

    /// The secret of the lease of a part that this store has: whoever reads the database knows it,
    /// and nobody else.
    pub fn lease_secret_of(&self, part: usize) -> Option<[u8; 16]> {
        self.part(part).ok()?.lease_secret()
    }

    /// The secret of the lease that this store has, of its first part.
    pub fn lease_secret(&self) -> Option<[u8; 16]> {
        self.parts[0].lease_secret()
    }

    /// What the owner of a part says to a question of another store, that came by its
    /// [`Owner`](super::Owner).
    ///
    /// # Errors
    /// [`Error::NotOwner`], [`Error::Database`], [`Error::Damaged`], also for what is no question.
    pub async fn answer(&self, part: usize, question: &[u8]) -> Result<Vec<u8>> {
        self.part(part)?.answer(question).await
    }

    /// The series of these names, as far as there may be more, of all and by a grant; how many were
    /// made.
    pub(crate) async fn admit(
        &self,
        names: &[&str],
        grant: Option<&Grant<'_>>,
    ) -> Result<Admitted> {
        let mut by_part: BTreeMap<usize, (Vec<usize>, Vec<Name>)> = BTreeMap::new();
        let mut series: Vec<Result<Series>> = Vec::with_capacity(names.len());
        for (place, name) in names.iter().enumerate() {
            let denied = |name: &Name| Error::Denied { metric: plain(name.metric()).into_owned() };
            let name = Name::parse(name).and_then(|name| {
                if self.sees(name.metric()) { Ok(name) } else { Err(denied(&name)) }
            });
            let name = match name {
                Ok(name) => name,
                Err(why) => {
                    series.push(Err(why));
                    continue;
                }
            };
            series.push(Err(Error::NotOwner));
            let number = part_of(&name, self.first().of.whole.parts());
            let (places, names) = by_part.entry(number).or_default();
            places.push(place);
            names.push(name);
        }
        let admit = async |number: usize, names: &[Name]| {
            names::admit(&self.part(number)?.shared, names, grant).await
        };
        let admitted = all(by_part.iter().map(|(number, (_, names))| admit(*number, names))).await;
        let mut made = 0;
        for ((places, _), admitted) in by_part.values().zip(admitted) {
            // One part's failure is that of all names: what of them is durable then nobody is told,
            // and whoever sent them sends all of them again.
            let admitted = admitted?;
            made += admitted.made;
            for (place, one) in places.iter().zip(admitted.series) {
                series[*place] = match (one, &self.sight) {
                    // How many there are of others is nobody's business.
                    (Err(Error::TooMany { .. }), Some(_)) => Err(Error::TooMany {
                        what: "series, of this metric, from one source or in all: there may be no more".to_owned(),
                    }),
                    (one, _) => one,
                };
            }
        }
        Ok(Admitted { series, made })
    }

    /// Whether more points may be stored.
    pub(crate) async fn check_stored(&self) -> Result<()> {
        self.first().check_stored().await
    }

    /// The series of this name, if there is one.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::Database`], [`Error::Damaged`].
    pub async fn existing(&self, name: &str) -> Result<Option<Series>> {
        let name = Name::parse(name)?;
        if !self.sees(name.metric()) {
            return Ok(None);
        }
        self.part_of_name(&name)?.existing(name).await
    }

    /// Takes in what transactions have written before
    /// ([`append`](super::SeriesLayer::append)). Reads do so by themselves, and so does the store
    /// now and then.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Database`].
    pub async fn take_in(&self) -> Result<()> {
        let own = self.parts.iter().filter(|part| !part.is_foreign());
        all(own.map(Part::take_in)).await.into_iter().collect()
    }

    /// Why nothing can be written to some of the series any more, if that is so:
    /// [`Error::NotOwner`]. What is to be written then has to go to a store that is opened anew.
    pub fn failure(&self) -> Option<Error> {
        self.parts.iter().find_map(Part::failure)
    }

    /// Why some of what was appended and not synced may be lost, if that is so. Parts that were
    /// handed over lost nothing.
    pub fn lost(&self) -> Option<Error> {
        self.parts.iter().filter(|part| !part.is_handed_over()).find_map(Part::failure)
    }

    /// Commits all that was appended before. When it returns, that survives a crash.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::NotOwner`], [`Error::Database`]: what was appended stays in
    /// memory and the next call tries again.
    pub async fn sync(&self) -> Result<()> {
        match &*self.parts {
            [part] => part.sync().await,
            parts => all(parts.iter().map(Part::sync)).await.into_iter().collect(),
        }
    }

    /// What of the series is in memory now.
    pub fn stats(&self) -> StoreStats {
        let mut stats = StoreStats::default();
        for part in self.parts.iter() {
            let more = part.stats();
            stats.series += more.series;
            stats.open_points += more.open_points;
            stats.unsaved_points += more.unsaved_points;
            stats.unsaved_for = stats.unsaved_for.max(more.unsaved_for);
            stats.longest_unsaved = stats.longest_unsaved.max(more.longest_unsaved);
            stats.query_bytes = more.query_bytes;
            stats.damaged += more.damaged;
            stats.points_aside += more.points_aside;
            stats.rollups.looked_at += more.rollups.looked_at;
            stats.rollups.left += more.rollups.left;
            stats.rollups.failed += more.rollups.failed;
            stats.rollups.too_late += more.rollups.too_late;
        }
        stats
    }

    /// Which of these series are known to be damaged, and why, as it is to be told to people: rows
    /// of theirs are not what was written. No points of them are taken; what of them was
    /// acknowledged and in no leaf yet is set aside, and taken in when the store is opened and the
    /// rows can be read again, from a backup for example. All other series are what they were.
    pub fn damaged(&self) -> Vec<(String, String)> {
        let all = self.parts.iter().flat_map(|part| part.shared.index.damage.list());
        // Some have no name that could be told.
        all.filter(|_| self.sight.is_none()).collect()
    }

    /// Keeps a text under a name, in place of what was kept there. An empty one is nothing.
    ///
    /// # Errors
    /// [`Error::NotOwner`], also without the first part, which has it; [`Error::Database`];
    /// `transaction_too_large` beyond four mebibytes.
    pub async fn keep(&self, name: &str, text: &[u8]) -> Result<()> {
        self.part(0)?.keep(name, text).await
    }

    /// All that is kept, by its names.
    ///
    /// # Errors
    /// [`Error::Database`], [`Error::Damaged`]; [`Error::NotOwner`] without the first part.
    pub async fn kept(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        self.part(0)?.kept().await
    }

    /// Deletes a series with all of its points. Handles of it can't append any more; a series of
    /// the same name is a new one. It is done also if the future is dropped in the middle.
    ///
    /// # Errors
    /// [`Error::Deleted`] if it was deleted before and there is another one of its name;
    /// [`Error::NotOwner`], [`Error::Database`].
    pub async fn delete(&self, series: &Series) -> Result<()> {
        self.part(series.shared.of.number)?.delete(series).await
    }

    /// Panics if what is kept contradicts itself. Reads all of it, each part at one version: for
    /// tests, and for simulations that have little.
    ///
    /// # Errors
    /// [`Error::Damaged`] for bytes that are wrong; [`Error::Database`], among others if reading
    /// takes longer than a version can be read.
    pub async fn check_invariants(&self) -> Result<()> {
        for part in self.parts.iter() {
            part.check_invariants().await?;
        }
        Ok(())
    }

    /// Looks for what waits for the owners of foreign parts: before a query looks for series.
    async fn have_taken_in(&self) -> Result<()> {
        let foreign = self.parts.iter().filter(|part| part.is_foreign());
        all(foreign.map(Part::have_taken_in)).await.into_iter().collect()
    }

    /// Series of a metric that have for each tag one of its values, with numbers from `least` on,
    /// ascending, at most `limit` of them; and where the next ones begin, if there may be more.
    pub(crate) async fn search(
        &self,
        metric: &str,
        tags: &[(String, Vec<String>)],
        least: Id,
        limit: usize,
    ) -> Result<(Vec<Found>, Option<Id>)> {
        self.search_or_skip((metric, tags), (least, limit), false).await
    }

    async fn search_or_skip(
        &self,
        (metric, tags): (&str, &[(String, Vec<String>)]),
        (least, limit): (Id, usize),
        skips: bool,
    ) -> Result<(Vec<Found>, Option<Id>)> {
        if !self.sees(metric) {
            return Ok((Vec::new(), None));
        }
        if least == 0 {
            self.have_taken_in().await?;
        }
        // Names are spread evenly, so that little is read twice.
        let each = limit.div_ceil(self.parts.len());
        let page = |part: &'_ Part| (part.shared.least(least), each);
        let pages = self.parts.iter().map(|part| part.search(metric, tags, page(part), skips));
        let mut pages = self.merged(all(pages).await)?;
        if pages.0.len() > limit {
            pages.0.truncate(limit);
            pages.1 = pages.0.last().map(|last| last.id + 1);
        }
        Ok(pages)
    }

    /// Pages of the parts as one of the whole.
    fn merged(
        &self,
        pages: Vec<Result<(Vec<Found>, Option<Id>)>>,
    ) -> Result<(Vec<Found>, Option<Id>)> {
        let (mut found, mut next) = (Vec::new(), None);
        for (part, page) in self.parts.iter().zip(pages) {
            let (page, behind) = page?;
            let shared = &part.shared;
            let behind = behind.map(|behind| shared.of.whole.id(behind, shared.of.number));
            next = [next, behind].into_iter().flatten().min();
            found.extend(page.into_iter().map(|found| Found {
                id: shared.of.whole.id(found.id, shared.of.number),
                ..found
            }));
        }
        if self.parts.len() > 1 {
            // What lies behind the first page's end comes with the next ones.
            found.retain(|found| next.is_none_or(|next| found.id < next));
            found.sort_unstable_by_key(|found| found.id);
        }
        Ok((found, next))
    }

    /// All series with numbers from `least` on, ascending, some of them; and whether there are no
    /// more.
    pub(crate) async fn page_of_all(&self, mut least: Id) -> Result<(Vec<Found>, bool)> {
        if least == 0 {
            self.have_taken_in().await?;
        }
        // Of a series without a name that can be read nobody knows whether it is one of those.
        let skips = self.sight.is_some();
        loop {
            let page = async |part: &Part| {
                let (found, is_end) = part.page_of_all(part.shared.least(least), skips).await?;
                let next = found.last().map(|last| last.id + 1).filter(|_| !is_end);
                Ok((found, next))
            };
            let (mut found, next) = self.merged(all(self.parts.iter().map(page)).await)?;
            found.retain(|found| self.sees(found.name.metric()));
            match next {
                // An empty page is the last one.
                Some(next) if found.is_empty() => least = next,
                next => return Ok((found, next.is_none())),
            }
            self.env().give_way().await;
        }
    }

    /// Series in the order of their numbers, some of them: those of a metric that have for each of
    /// `tags` one of its values, or all. And where the next ones begin, which is to be given as
    /// `from`; 0 for the first. They are to be read or deleted; what is to be written to is opened
    /// by its name.
    ///
    /// # Errors
    /// [`Error::Database`], [`Error::Damaged`].
    pub async fn browse(
        &self,
        metric: Option<&str>,
        tags: &[(String, Vec<String>)],
        from: u64,
    ) -> Result<(Vec<Series>, Option<u64>)> {
        let (found, next) = match metric {
            None => {
                let (found, is_end) = self.page_of_all(from).await?;
                let next = found.last().map(|last| last.id + 1).filter(|_| !is_end);
                (found, next)
            }
            Some(metric) => self.search(metric, tags, from, PAGE).await?,
        };
        Ok((found.iter().map(|found| self.found(found)).collect(), next))
    }

    /// Series of a metric as [`SeriesStore::browse`] gives them, without those whose names can't be
    /// read: for what is done to each of them.
    pub(super) async fn browse_readable(
        &self,
        metric: &str,
        from: u64,
    ) -> Result<(Vec<Series>, Option<u64>)> {
        let (found, next) = self.search_or_skip((metric, &[]), (from, PAGE), true).await?;
        Ok((found.iter().map(|found| self.found(found)).collect(), next))
    }

    /// The series of these names, as far as there are such.
    pub(crate) async fn named(&self, names: &[Name]) -> Result<Vec<Found>> {
        self.have_taken_in().await?;
        let mut by_part: BTreeMap<usize, Vec<Name>> = BTreeMap::new();
        for name in names.iter().filter(|name| self.sees(name.metric())) {
            let number = part_of(name, self.first().of.whole.parts());
            by_part.entry(number).or_default().push(name.clone());
        }
        let mut all_found = Vec::new();
        for (number, names) in by_part {
            let Ok(part) = self.part(number) else { continue };
            let found = part.named(&names).await?;
            all_found.extend(
                found
                    .into_iter()
                    .map(|found| Found { id: part.shared.of.whole.id(found.id, number), ..found }),
            );
        }
        all_found.sort_unstable_by_key(|found| found.id);
        Ok(all_found)
    }

    /// Metrics, tags or values that begin with `prefix`, ascending, those behind `after`, at most
    /// `limit`.
    ///
    /// # Errors
    /// [`Error::Database`], [`Error::Damaged`].
    pub async fn list(
        &self,
        listing: &Listing,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>> {
        match listing {
            Listing::Tags { metric } | Listing::Values { metric, .. } if !self.sees(metric) => {
                return Ok(Vec::new());
            }
            Listing::Metrics if self.sight.is_some() => {}
            _ => return self.list_all(listing, prefix, after, limit).await,
        }
        let (mut found, mut after) = (Vec::new(), after.map(str::to_owned));
        while found.len() < limit {
            let page = self.list_all(listing, prefix, after.as_deref(), PAGE).await?;
            let is_end = page.len() < PAGE;
            after = page.last().cloned();
            found.extend(page.into_iter().filter(|metric| self.sees(metric)));
            if is_end {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    async fn list_all(
        &self,
        listing: &Listing,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>> {
        if let [part] = &*self.parts
            && !part.is_foreign()
        {
            return part.list(listing, prefix, after, limit).await;
        }
        if after.is_none() {
            self.have_taken_in().await?;
        }
        let lists = self.parts.iter().map(|part| part.list(listing, prefix, after, limit));
        let mut found = BTreeSet::new();
        for list in all(lists).await {
            found.extend(list?);
        }
        Ok(found.into_iter().take(limit).collect())
    }

    /// A series to be read by the query that has found it, which has looked into the inbox when it
    /// began.
    pub(crate) fn reading(&self, found: &Found) -> Series {
        let series = self.found(found);
        Series { is_looked_up: !series.shared.is_poster() || found.brought.is_some(), ..series }
    }

    /// A series that was found.
    fn found(&self, found: &Found) -> Series {
        // Whoever found it had its part.
        match self.part_of_id(found.id) {
            Ok((part, id)) => part.found(&Found { id, ..found.clone() }),
            Err(_) => self.parts[0].found(found),
        }
    }

    /// Asks the owners of foreign parts for what these series have in no leaf yet, in `span`, so
    /// that they are asked once for all of them. What was asked before is not asked again.
    pub(crate) async fn bring<'a>(
        &self,
        series: impl Iterator<Item = &'a mut Found>,
        span: Span,
    ) -> Result<()> {
        let mut by_part: BTreeMap<usize, Vec<&mut Found>> = BTreeMap::new();
        for found in series.filter(|found| self.is_to_be_brought(found)) {
            let (number, _) = self.first().of.whole.within(found.id);
            by_part.entry(number).or_default().push(found);
        }
        let bring = async |number: usize, series| self.part(number)?.bring(series, span).await;
        let brought = all(by_part.into_iter().map(|(number, series)| bring(number, series)));
        brought.await.into_iter().collect()
    }

    /// Whether the owner of a series is somebody else, and was not asked about it yet.
    pub(crate) fn is_to_be_brought(&self, found: &Found) -> bool {
        !found.brought.is_some()
            && self.part_of_id(found.id).is_ok_and(|(part, _)| part.is_foreign())
    }
}

impl Shared {
    /// The least number here of a series whose number in the whole is `least` or greater.
    fn least(&self, least: Id) -> Id {
        least.saturating_sub(self.of.number as u64).div_ceil(self.of.whole.parts() as u64)
    }
}

impl Part {
    async fn give_up(&self) -> Result<()> {
        let synced = self.sync().await;
        self.release().await?;
        synced
    }

    async fn hand_over(&self) -> Result<()> {
        let shared = &self.shared;
        shared.pending.is_closed.store(true, Ordering::SeqCst);
        // Whoever appends has seen that, or is done with it now: it looks with a series in hand.
        let cells: Vec<_> = super::lock(&shared.index.names).values().cloned().collect();
        cells.iter().for_each(|cell| drop(super::lock(&cell.state)));
        let handed_over = async {
            self.sync().await?;
            shared.pending.is_settled.store(true, Ordering::SeqCst);
            self.release().await
        };
        let handed_over = handed_over.await;
        if handed_over.is_err() {
            // If it was released after all, the next commit says so.
            shared.pending.is_settled.store(false, Ordering::SeqCst);
            shared.pending.is_closed.store(false, Ordering::SeqCst);
        }
        handed_over
    }

    /// Whether all that was appended here is committed, and nothing more can be: not so of a part
    /// that somebody else took over before it came to that.
    pub(super) fn is_handed_over(&self) -> bool {
        self.shared.pending.is_settled.load(Ordering::SeqCst) && self.failure().is_some()
    }
}

impl Series {
    /// The series as its owner says that it is in `span`, if it is a foreign one that was not asked
    /// for yet.
    pub(super) async fn brought(&self, span: Span) -> Result<Self> {
        if !self.shared.is_poster() || self.is_looked_up {
            return Ok(self.clone());
        }
        let whole = &self.shared.of.whole;
        let id = whole.id(self.cell.id, self.shared.of.number);
        let mut found = Found::new(id, self.cell.name.clone());
        let part = Part { shared: self.shared.clone() };
        part.have_taken_in().await?;
        part.bring(vec![&mut found], span).await?;
        let cell = found.brought.cell().unwrap_or_else(|| self.cell.clone());
        assert!(super::lock(&cell.state).standing == Standing::Found, "it is only read");
        Ok(Self { shared: self.shared.clone(), cell, is_looked_up: true })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Claim, Division, Look, Settings};
    use super::*;
    use plinth::TransactionOption;
    use plinth_client::{Database, Transaction};
    use plinth_env::block_on;
    use plinth_types::{KeyRange, RangeLock, RangeLocks, system};

    /// Among users' keys, which can be locked.
    fn settings() -> Settings {
        let prefix = Some(b"series/".to_vec());
        Settings { prefix, parts: 2, commit_every: None, ..Settings::default() }
    }

    /// A store that owns the first of two parts, and one of its series.
    async fn opened(database: &Database) -> (SeriesStore, Series) {
        let division = Division::of(database, settings()).await.unwrap();
        let look = division.candidate(0, Claim::new("one", "")).look().await.unwrap();
        let Look::Ours(store) = look else { panic!("it is free") };
        for host in 0.. {
            if let Ok(series) = store.series(&format!("x host={host}")).await {
                return (store, series);
            }
        }
        unreachable!("names are spread over all parts")
    }

    /// A server whose part somebody else took over while it was about to hand it over told senders
    /// that what it couldn't commit any more was durable.
    #[test]
    fn what_is_lost_while_a_part_is_handed_over_is_not_told_durable() {
        let database = plinth::Local::in_memory().unwrap().into_database();
        block_on(async {
            let (store, series) = opened(&database).await;
            series.append(1, 1.0).unwrap();
            store.parts[0].shared.pending.is_closed.store(true, Ordering::SeqCst);
            drop(SeriesStore::open_with(&database, settings()).await.unwrap());
            for _ in 0..2 {
                assert!(matches!(store.sync().await, Err(Error::NotOwner)));
            }
            assert!(store.lost().is_some());
        });
    }

    /// It was nobody's to write to any more, and its lease was renewed for ever.
    #[test]
    fn a_part_that_can_not_be_released_goes_on() {
        let database = plinth::Local::in_memory().unwrap().into_database();
        let lock = async |is_locked: bool| {
            let set = |tr: Transaction| async move {
                tr.set_option(TransactionOption::AccessSystemKeys)?;
                tr.set_option(TransactionOption::LockAware)?;
                let range = KeyRange::new(&b""[..], &b"\xff"[..]);
                let locks = RangeLocks::new(vec![RangeLock { range, owner: [1; 16] }]);
                match is_locked {
                    true => tr.set(system::RANGE_LOCKS, locks.value()),
                    false => tr.clear(system::RANGE_LOCKS),
                }
                Ok(())
            };
            database.transact(set).await.unwrap();
        };
        block_on(async {
            let (store, series) = opened(&database).await;
            lock(true).await;
            assert!(matches!(store.hand_over().await, Err(Error::Locked(_))));
            lock(false).await;
            series.append(1, 1.0).unwrap();
            store.sync().await.unwrap();
            store.hand_over().await.unwrap();
            assert!(matches!(series.append(2, 1.0), Err(Error::NotOwner)));
            assert!(store.lost().is_none() && store.sync().await.is_ok());
        });
    }
}
