//! Names: which number a series has, and the cell that is its in memory.
//!
//! A name is written once, with its number and a key for its metric and for each of its tags. What
//! is looked up comes into memory only if nothing was deleted meanwhile: it may be what was found,
//! and points that are appended to a series without a name would be lost with the next start.

use super::damage::{Damage, Mark};
use super::keys::{Id, Keys, Whose};
use super::limits::{self, Admitted, Grant, SeriesLimits, Taken, Within};
use super::neighbours::{self, TREES_AT_ONCE};
use super::nodes;
use super::record_mail::Mailed;
use super::{Cell, Part, Series, Shared, State, lock, retry};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::tree::Trunk;
use plinth_client::Transaction;
use plinth_env::sync::all;
use plinth_types::{Bytes, MutationType};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Names in one transaction, at most; and bytes of what they write, about. A transaction counts
/// keys several times, and has to stay below its limit.
pub(super) const NAMES_AT_ONCE: usize = 500;
const BYTES_AT_ONCE: usize = 1 << 20;

/// What a key has besides a name's parts, about.
const KEY: usize = 64;

/// Series by name.
type Known = BTreeMap<Name, Arc<Cell>>;

/// The series that are in memory.
#[derive(Default)]
pub(super) struct Index {
    /// By canonical name.
    pub(super) names: Mutex<Known>,
    pub(super) used: limits::Used,
    /// Odd while a series is being deleted; another number afterwards.
    pub(super) deletions: AtomicU64,
    pub(super) damage: Damage,
    /// Records that the inbox has, of a store that only reads.
    pub(super) posted: Mutex<Mailed>,
}

/// Cells that were looked up, and what says whether they may come into memory.
struct Looked {
    cells: Vec<(Name, Arc<Cell>)>,
    /// How many of them are new.
    made: usize,
    /// Those that there may not be, and why.
    refused: BTreeMap<Name, Error>,
    deletions: u64,
}

impl Looked {
    fn begin(shared: &Shared) -> Self {
        let deletions = shared.index.deletions.load(Ordering::SeqCst);
        Self { cells: Vec::new(), made: 0, refused: BTreeMap::new(), deletions }
    }

    /// Bytes of memory that they will take, about.
    fn bytes(&self) -> usize {
        self.cells.iter().map(|(name, _)| limits::in_memory(name)).sum()
    }

    /// Those of the names that are not known to be damaged.
    fn without_damaged<'a>(&mut self, shared: &Shared, names: &'a [Name]) -> Cow<'a, [Name]> {
        if shared.index.damage.is_none() {
            return names.into();
        }
        let whole = |name: &&Name| match shared.index.damage.of(&Whose::Name(Name::clone(name))) {
            Some(why) => {
                self.refused.insert(Name::clone(name), why);
                false
            }
            None => true,
        };
        names.iter().filter(whole).cloned().collect()
    }

    /// Notes why there may not be a series; tells it, if it is damaged.
    fn refuse(&mut self, shared: &Shared, name: &Name, why: Error) {
        if matches!(why, Error::Damaged { .. }) {
            shared.note_damage(&Whose::Name(name.clone()), &why, Mark::None);
        }
        self.refused.insert(name.clone(), why);
    }

    fn add(&mut self, id: Id, name: Name, trunk: Trunk) {
        self.add_state(id, name, State { trunk, sealed: trunk.last(), ..State::default() });
    }

    /// Adds a series that was just made.
    fn add_new(&mut self, id: Id, name: Name) {
        self.add_state(id, name, State { is_end_known: true, ..State::default() });
    }

    fn add_state(&mut self, id: Id, name: Name, state: State) {
        self.cells.push((name.clone(), Arc::new(Cell { id, name, state: Mutex::new(state) })));
    }

    /// Puts the cells into memory, where there is none yet: one series has one cell, whoever came
    /// first. Gives what `take` takes from there; `None` if a series was being deleted.
    fn settle<T>(self, shared: &Shared, take: impl FnOnce(&Known) -> T) -> Option<T> {
        let mut known = lock(&shared.index.names);
        if self.deletions % 2 == 1
            || shared.index.deletions.load(Ordering::SeqCst) != self.deletions
        {
            return None;
        }
        let was_none = shared.index.damage.is_none();
        for (name, cell) in self.cells {
            if !was_none {
                shared.index.damage.forget_unmarked(&Whose::Name(name.clone()));
            }
            add(shared, &mut known, name, cell);
        }
        Some(take(&known))
    }
}

/// The series of these names, made where there is none, whatever the limits say: their points are
/// committed already. Such as are damaged are refused.
pub(super) async fn open(shared: &Arc<Shared>, names: &[Name]) -> Result<Vec<Result<Series>>> {
    let series = look_up(shared, names, None).await?.series;
    match series.iter().find(|one| !matches!(one, Ok(_) | Err(Error::Damaged { .. }))) {
        Some(Err(why)) => Err(why.clone()),
        _ => Ok(series),
    }
}

/// The series of these names, made where there is none and there may be one more, of all and of
/// whoever sends them.
pub(super) async fn admit(
    shared: &Arc<Shared>,
    names: &[Name],
    grant: Option<&Grant<'_>>,
) -> Result<Admitted> {
    look_up(shared, names, Some(Within { limits: &shared.settings.limits, grant })).await
}

async fn look_up(
    shared: &Arc<Shared>,
    names: &[Name],
    within: Option<Within<'_>>,
) -> Result<Admitted> {
    shared.check()?;
    let mut made = 0;
    loop {
        let mut looked = look_up_unknown(shared, names, within).await?;
        made += looked.made;
        let mut refused = std::mem::take(&mut looked.refused);
        let series =
            |known: &Known| names.iter().map(|name| known.get(name).cloned()).collect::<Vec<_>>();
        let Some(cells) = looked.settle(shared, series) else {
            shared.turn.pass().await;
            continue;
        };
        let series = |(cell, name): (Option<Arc<Cell>>, &Name)| match (cell, refused.get_mut(name))
        {
            (Some(cell), _) => Ok(Series { shared: shared.clone(), cell, is_looked_up: false }),
            (None, Some(why)) => Err(why.clone()),
            (None, None) => Err(Error::damaged("the index of series", "a name has gone")),
        };
        return Ok(Admitted { series: cells.into_iter().zip(names).map(series).collect(), made });
    }
}

/// Looks up those of the names that are not in memory.
async fn look_up_unknown(
    shared: &Arc<Shared>,
    names: &[Name],
    within: Option<Within<'_>>,
) -> Result<Looked> {
    let mut looked = Looked::begin(shared);
    let unknown: Vec<Name> = {
        let known = lock(&shared.index.names);
        let mut seen = BTreeSet::new();
        // New ones get numbers in the order in which they are asked for, which is that of their
        // points: those of neighbours take no room in the tail.
        let unknown = names.iter().filter(|name| !known.contains_key(name) && seen.insert(*name));
        unknown.cloned().collect()
    };
    let mut rest = &unknown[..];
    while !rest.is_empty() {
        let (now, later) = rest.split_at(at_once(rest));
        rest = later;
        let now = &looked.without_damaged(shared, now)[..];
        if within.is_some()
            && let Err(why) = shared.check_memory(looked.bytes())
        {
            looked.refused.extend(now.iter().map(|name| (name.clone(), why.clone())));
            continue;
        }
        let mut there = Vec::new();
        for (name, number) in now.iter().zip(numbers(shared, now, within).await?) {
            match number {
                Ok((id, true)) => {
                    looked.made += 1;
                    looked.add_new(id, name.clone());
                }
                // Points that only go through need no tree.
                Ok((id, false)) if shared.is_poster() => {
                    looked.add(id, name.clone(), Trunk::default())
                }
                Ok((id, false)) => match shared.damage_of(id, name) {
                    Some((_, why)) => drop(looked.refused.insert(name.clone(), why)),
                    None => there.push((id, name)),
                },
                Err(why) => looked.refuse(shared, name, why),
            }
        }
        for some in there.chunks(TREES_AT_ONCE) {
            let trunks = all(some.iter().map(|(id, _)| nodes::trunk(shared, *id))).await;
            for ((id, name), trunk) in some.iter().zip(trunks) {
                match trunk {
                    Ok(trunk) => looked.add(*id, Name::clone(name), trunk),
                    Err(why @ Error::Damaged { .. }) => looked.refuse(shared, name, why),
                    Err(why) => return Err(why),
                }
            }
        }
    }
    Ok(looked)
}

/// How many of these names, of which there are some, one transaction may write.
fn at_once(names: &[Name]) -> usize {
    let mut bytes = 0;
    let fit = names.iter().take(NAMES_AT_ONCE).take_while(|name| {
        bytes += weight(name);
        bytes <= BYTES_AT_ONCE
    });
    fit.count().max(1)
}

/// Bytes that a new name writes, about: itself three times, and its metric with each tag.
fn weight(name: &Name) -> usize {
    3 * (name.as_str().len() + KEY) + name.tags().count() * (name.metric().len() + KEY)
}

/// The series with this number, to be written to; `None` if there is none.
pub(super) async fn existing(shared: &Arc<Shared>, id: Id) -> Result<Option<Series>> {
    loop {
        let mut looked = Looked::begin(shared);
        let Some((name, trunk)) = stored(shared, id).await? else { return Ok(None) };
        if let Some((_, why)) = shared.damage_of(id, &name) {
            return Err(why);
        }
        looked.add(id, name.clone(), trunk);
        match looked.settle(shared, |known| known.get(&name).filter(|cell| cell.id == id).cloned())
        {
            Some(cell) => {
                return Ok(cell.map(|cell| Series {
                    shared: shared.clone(),
                    cell,
                    is_looked_up: false,
                }));
            }
            None => shared.turn.pass().await,
        }
    }
}

/// The name of the series with this number, and its tree.
async fn stored(shared: &Shared, id: Id) -> Result<Option<(Name, Trunk)>> {
    match all_stored(shared, &[id]).await?.pop() {
        Some(Err((_, why))) => Err(why),
        Some(Ok(found)) => Ok(found),
        None => Ok(None),
    }
}

/// What was read of a series; or whose rows can't be read, and why.
pub(super) type Stored<T> = Result<Option<T>, (Whose, Error)>;

/// The names of the series with these numbers, and their trees, read in one transaction; `None`
/// where there is no such series.
async fn all_stored(shared: &Shared, ids: &[Id]) -> Result<Vec<Stored<(Name, Trunk)>>> {
    let tr = shared.database.create_transaction();
    loop {
        match try_stored(shared, &tr, ids).await {
            Err(error) => retry::again(&tr, error).await?,
            result => return result,
        }
    }
}

async fn try_stored(
    shared: &Shared,
    tr: &Transaction,
    ids: &[Id],
) -> Result<Vec<Stored<(Name, Trunk)>>> {
    let keys = &shared.keys;
    let rows = neighbours::names(tr, keys, ids).await?;
    let names = ids.iter().zip(rows).map(|(id, row)| row.map(|row| name_in(*id, &row)).transpose());
    let names: Vec<Result<Option<Name>>> = names.collect();
    let named = names.iter().map(|name| match name {
        Ok(Some(name)) => Some(tr.snapshot().get(keys.name(name.as_str()))),
        Ok(None) | Err(_) => None,
    });
    let named: Vec<_> = named.collect();
    let trunks = neighbours::trunks(tr, keys, ids).await?;
    let mut found = Vec::with_capacity(ids.len());
    for (((id, name), named), trunk) in ids.iter().zip(names).zip(named).zip(trunks) {
        let named = match named {
            Some(row) => number(row.await?),
            None => Ok(None),
        };
        found.push(match (name, named, trunk) {
            (Err(why), ..) => Err((Whose::Number(*id), why)),
            (Ok(None), ..) => Ok(None),
            // One that can't be read is found by whoever looks the name up.
            (Ok(Some(name)), Ok(named), _) if named != Some(*id) => {
                Err((Whose::Number(*id), has_other_name(*id, &name, named)))
            }
            (Ok(Some(name)), _, Ok(trunk)) => Ok(Some((name, trunk))),
            (Ok(Some(name)), _, Err(why)) => Err((shared.index.damage.holder(*id, &name), why)),
        });
    }
    Ok(found)
}

/// That the row of a series has a name which is not its own: as whose its points would be known,
/// of which there may be another, nobody can tell.
fn has_other_name(id: Id, name: &Name, named: Option<Id>) -> Error {
    let why = match named {
        Some(named) => format!("its name is that of number {named}, {name}"),
        None => format!("its name is {name}, which no series has"),
    };
    Error::damaged(format!("series number {id}"), why)
}

/// The name in the row of a series.
pub(super) fn name_in(id: Id, row: &[u8]) -> Result<Name> {
    let name = std::str::from_utf8(row).ok().and_then(|text| Name::parse(text).ok());
    name.ok_or_else(|| Error::damaged(format!("the name of series {id}"), "it is none"))
}

/// The name of the series with this number.
pub(super) async fn name_of(shared: &Shared, id: Id) -> Result<Option<Name>> {
    let key = &shared.keys.series(id);
    let row = retry::transact(&shared.database, |tr| async move { tr.snapshot().get(key).await });
    row.await?.map(|row| name_in(id, &row)).transpose()
}

/// The number of the series of this name.
pub(super) async fn number_of(shared: &Shared, name: &Name) -> Result<Option<Id>> {
    let key = &shared.keys.name(name.as_str());
    let row = retry::transact(&shared.database, |tr| async move { tr.snapshot().get(key).await });
    number(row.await?)
}

/// Puts a cell into memory, unless there is one already; gives that which is there.
fn add(shared: &Shared, known: &mut Known, name: Name, cell: Arc<Cell>) -> Arc<Cell> {
    let bytes = limits::in_memory(&name);
    known
        .entry(name)
        .or_insert_with(|| {
            shared.note_known(bytes);
            cell
        })
        .clone()
}

/// The one cell of a series, whoever came first, where nothing can be deleted.
fn know(shared: &Shared, id: Id, name: Name, trunk: Trunk) -> Arc<Cell> {
    let state = State { trunk, sealed: trunk.last(), ..State::default() };
    let cell = Arc::new(Cell { id, name: name.clone(), state: Mutex::new(state) });
    add(shared, &mut lock(&shared.index.names), name, cell)
}

/// The series with these numbers, while the series are being opened; `None` where there is none.
/// Such as are known to be damaged can't be read.
pub(super) async fn load(shared: &Arc<Shared>, ids: &[Id]) -> Result<Vec<Stored<Arc<Cell>>>> {
    let mut cells = Vec::with_capacity(ids.len());
    let known = |id: Id, (name, trunk): (Name, Trunk)| match shared.damage_of(id, &name) {
        Some((_, why)) => Err((shared.index.damage.holder(id, &name), why)),
        None => {
            let cell = know(shared, id, name, trunk);
            if cell.id == id {
                return Ok(cell);
            }
            Err((Whose::Number(id), has_other_name(id, &cell.name, Some(cell.id))))
        }
    };
    for ids in ids.chunks(NAMES_AT_ONCE) {
        let found = all_stored(shared, ids).await?.into_iter().zip(ids);
        cells.extend(found.map(|(found, id)| match found {
            Ok(found) => found.map(|found| known(*id, found)).transpose(),
            Err(why) => Err(why),
        }));
    }
    Ok(cells)
}

/// Numbers of series that are in the inbox alone, for a store that only reads: where nothing is
/// kept, and far enough from the end of all numbers for those in the whole.
pub(super) const FIRST_POSTED: Id = 1 << 54;
pub(super) const POSTED_END: Id = FIRST_POSTED + (1 << 40);

/// The cell of a series for a store that only reads. One that is in the inbox alone gets a number
/// from [`FIRST_POSTED`] on.
pub(super) async fn known(
    shared: &Arc<Shared>,
    name: &Name,
    unknown: &mut Id,
) -> Result<Arc<Cell>> {
    if let Some(cell) = lock(&shared.index.names).get(name) {
        return Ok(cell.clone());
    }
    let row = retry::transact(&shared.database, |tr| async move {
        tr.get(shared.keys.name(name.as_str())).await
    })
    .await?;
    if let Some(id) = number(row)? {
        match load(shared, &[id]).await?.pop() {
            Some(Ok(Some(cell))) => return Ok(cell),
            Some(Err((_, why))) => return Err(why),
            Some(Ok(None)) | None => {}
        }
    }
    *unknown -= 1;
    Ok(know(shared, *unknown, name.clone(), Trunk::default()))
}

/// The number in a row.
pub(super) fn number(row: Option<Bytes>) -> Result<Option<Id>> {
    let Some(row) = row else { return Ok(None) };
    match row[..].try_into() {
        Ok(bytes) => Ok(Some(u64::from_le_bytes(bytes))),
        Err(_) => Err(Error::damaged("the number of a series", "8 bytes expected")),
    }
}

/// The number of a series, and whether it is new; or why there may be none.
type Numbered = Result<(Id, bool)>;

/// The numbers of names, given out where there is none yet.
async fn numbers(
    shared: &Shared,
    names: &[Name],
    within: Option<Within<'_>>,
) -> Result<Vec<Numbered>> {
    let tr = shared.database.create_transaction();
    loop {
        match try_numbers(shared, &tr, names, within).await {
            Err(error) => retry::again(&tr, error).await?,
            result => return result,
        }
    }
}

/// So many more series of a metric; so many fewer, if it is less than 0.
pub(super) fn count(tr: &Transaction, keys: &Keys, metric: &str, more: i64) {
    for key in [keys.count(), keys.count_of(metric)] {
        tr.atomic_op(&key, more.to_le_bytes(), MutationType::Add);
    }
}

impl Part {
    /// How many series there are.
    pub(super) async fn count(&self) -> Result<u64> {
        let key = &self.shared.keys.count();
        let row = retry::transact(&self.shared.database, |tr| async move { tr.get(key).await });
        counted(row.await?)
    }
}

/// A count of series: 0 where nothing was counted yet.
fn counted(row: Option<Bytes>) -> Result<u64> {
    Ok(number(row)?.unwrap_or(0))
}

/// How many series there are of a metric, and how many more there are about to be.
type Counts<'a> = BTreeMap<&'a str, (u64, i64)>;

/// Adds what the other parts of the place count to what this one does, for names that are new.
/// Their owners change it at any time: only where that could take the whole beyond its limits is it
/// read with conflicts, so that limits hold exactly and nobody is in the others' way before.
async fn elsewhere(
    shared: &Shared,
    tr: &Transaction,
    (limits, new): (&SeriesLimits, &[&Name]),
    (all, counts): (&mut u64, &mut Counts<'_>),
) -> Result<()> {
    let others =
        shared.of.whole.keys.iter().enumerate().filter(|(part, _)| *part != shared.of.number);
    let others: Vec<&Keys> = others.map(|(_, keys)| keys).collect();
    if others.is_empty() || new.is_empty() {
        return Ok(());
    }
    let metrics: BTreeSet<&str> = new.iter().map(|name| name.metric()).collect();
    for is_exact in [false, true] {
        let get = |key: Vec<u8>| if is_exact { tr.get(key) } else { tr.snapshot().get(key) };
        let rows: Vec<_> = others.iter().map(|keys| get(keys.count())).collect();
        let of_metrics: Vec<(&str, Vec<_>)> = metrics
            .iter()
            .map(|metric| (*metric, others.iter().map(|keys| get(keys.count_of(metric))).collect()))
            .collect();
        let (mut whole, mut of) = (*all, BTreeMap::new());
        for row in rows {
            whole += counted(row.await?)?;
        }
        for (metric, rows) in of_metrics {
            let mut count = counts.get(metric).map_or(0, |count| count.0);
            for row in rows {
                count += counted(row.await?)?;
            }
            of.insert(metric, count);
        }
        let is_near = limits.is_near(whole, of.values().copied().max(), new.len());
        if is_exact || !is_near {
            *all = whole;
            for (metric, count) in of {
                if let Some(counts) = counts.get_mut(metric) {
                    counts.0 = count;
                }
            }
            return Ok(());
        }
    }
    Ok(())
}

/// What there is of some names, and beside them.
struct There<'a> {
    /// The next number.
    next: Id,
    /// How many series there are.
    all: u64,
    counts: Counts<'a>,
    /// The number of each name.
    known: Vec<Result<Option<Id>>>,
    faults: Faults<'a>,
}

/// Why no series can be made, those that there are aside: of all, and of a metric.
#[derive(Default)]
struct Faults<'a> {
    all: Option<Error>,
    of: BTreeMap<&'a str, Error>,
}

impl Faults<'_> {
    fn of(&self, metric: &str) -> Option<&Error> {
        self.all.as_ref().or_else(|| self.of.get(metric))
    }
}

/// Reads it, with conflicts.
async fn there<'a>(tr: &Transaction, keys: &Keys, names: &'a [Name]) -> Result<There<'a>> {
    let (next, all) = (tr.get(keys.next_id()), tr.get(keys.count()));
    let metrics: BTreeSet<&str> = names.iter().map(Name::metric).collect();
    let of_metrics: Vec<_> = metrics.iter().map(|metric| tr.get(keys.count_of(metric))).collect();
    let rows: Vec<_> = names.iter().map(|name| tr.get(keys.name(name.as_str()))).collect();
    let mut faults = Faults::default();
    let mut or_fault = |found: Result<u64>| match found {
        Ok(found) => found,
        Err(why) => {
            faults.all = Some(why);
            0
        }
    };
    let next = or_fault(number(next.await?).map(|next| next.unwrap_or(1)));
    let all = or_fault(counted(all.await?));
    let mut counts = Counts::new();
    for (metric, row) in metrics.into_iter().zip(of_metrics) {
        match counted(row.await?) {
            Ok(count) => drop(counts.insert(metric, (count, 0))),
            Err(why) => drop(faults.of.insert(metric, why)),
        }
    }
    let mut known = Vec::with_capacity(names.len());
    for row in rows {
        known.push(number(row.await?));
    }
    Ok(There { next, all, counts, known, faults })
}

/// Writes the rows of a new series.
fn make(tr: &Transaction, keys: &Keys, name: &Name, id: Id) {
    tr.set(keys.name(name.as_str()), id.to_le_bytes());
    tr.set(keys.series(id), name.as_str());
    tr.set(keys.index(name.metric(), "", "", id), "");
    for (tag, value) in name.tags() {
        tr.set(keys.index(name.metric(), tag, value, id), "");
    }
}

async fn try_numbers(
    shared: &Shared,
    tr: &Transaction,
    names: &[Name],
    within: Option<Within<'_>>,
) -> Result<Vec<Numbered>> {
    shared.check_owner(tr).await?;
    let keys = &shared.keys;
    let There { next: first, mut all, mut counts, known, mut faults } =
        there(tr, keys, names).await?;
    let limits = within.map(|within| within.limits);
    if let Some(limits) = limits {
        let new = names.iter().zip(&known).filter(|(_, known)| matches!(known, Ok(None)));
        let new: Vec<&Name> = new.map(|(name, _)| name).collect();
        match elsewhere(shared, tr, (limits, &new), (&mut all, &mut counts)).await {
            Err(why @ Error::Damaged { .. }) => faults.all = Some(why),
            read => read?,
        }
    }
    let mut next = first;
    let mut taken = Taken::of(within.and_then(|within| within.grant));
    let mut numbers = Vec::with_capacity(names.len());
    for (name, known) in names.iter().zip(known) {
        let known = match (known, faults.of(name.metric())) {
            (Ok(Some(id)), _) => Some(Ok((id, false))),
            (Err(why), _) => Some(Err(why)),
            (Ok(None), Some(why)) => Some(Err(why.clone())),
            (Ok(None), None) => None,
        };
        if let Some(known) = known {
            numbers.push(known);
            continue;
        }
        let (of_metric, more) = counts.entry(name.metric()).or_default();
        if let Some(Err(why)) = limits.map(|limits| limits.check(name, all, *of_metric)) {
            numbers.push(Err(why));
            continue;
        }
        if let Some(most) = limits.and_then(|limits| limits.of_label)
            && let Err(why) = shared.check_labels(tr, name, (*of_metric, most)).await?
        {
            numbers.push(Err(why));
            continue;
        }
        if let Err(why) = taken.take_one() {
            numbers.push(Err(why));
            continue;
        }
        (all, *of_metric, *more) = (all + 1, *of_metric + 1, *more + 1);
        make(tr, keys, name, next);
        numbers.push(Ok((next, true)));
        next += 1;
    }
    if next != first {
        for (metric, (_, more)) in counts.into_iter().filter(|(_, (_, more))| *more > 0) {
            count(tr, keys, metric, more);
        }
        tr.set(keys.next_id(), next.to_le_bytes());
        tr.commit().await?;
    }
    taken.keep();
    Ok(numbers)
}
