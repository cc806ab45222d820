//! Names: which number a series has, and which series have a metric and tags.
//!
//! A name is written once, with its number and a key for its metric and for each of its tags. A search reads the keys of each
//! tag's values and keeps the numbers that are among all of them.

use super::keys::Id;
use super::{Cell, Series, Shared, State, lock, open};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::tree::Trunk;
use plinth_client::Transaction;
use plinth_types::Bytes;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Names in one transaction, at most.
const NAMES_AT_ONCE: usize = 500;

/// The series of these names, made where there is none.
pub(super) async fn open(shared: &Arc<Shared>, names: &[Name]) -> Result<Vec<Series>> {
    shared.check()?;
    let unknown: Vec<Name> = {
        let known = lock(&shared.names);
        let unknown: BTreeSet<&Name> = names.iter().filter(|name| !known.contains_key(name)).collect();
        unknown.into_iter().cloned().collect()
    };
    for names in unknown.chunks(NAMES_AT_ONCE) {
        let numbers = numbers(shared, names).await?;
        for (name, (id, is_new)) in names.iter().zip(numbers) {
            let trunk = if is_new { Trunk::default() } else { open::trunk(shared, id).await? };
            know(shared, id, name.clone(), trunk);
        }
    }
    let known = lock(&shared.names);
    let series = |name: &Name| {
        let cell = known.get(name).cloned();
        let cell = cell.ok_or_else(|| Error::damaged("the index of series", "a name has gone"))?;
        Ok(Series { shared: shared.clone(), cell, is_looked_up: false })
    };
    names.iter().map(series).collect()
}

/// The one cell of a series, whoever came first.
fn know(shared: &Shared, id: Id, name: Name, trunk: Trunk) -> Arc<Cell> {
    let state = State { trunk, sealed: trunk.last(), ..State::default() };
    let cell = || Arc::new(Cell { id, name: name.clone(), state: Mutex::new(state) });
    lock(&shared.names).entry(name.clone()).or_insert_with(cell).clone()
}

/// The series with this number; `None` if there is none.
pub(super) async fn load(shared: &Arc<Shared>, id: Id) -> Result<Option<Arc<Cell>>> {
    let row = shared.database.transact(|tr| async move { tr.get(shared.keys.series(id)).await }).await?;
    let Some(row) = row else { return Ok(None) };
    let name = std::str::from_utf8(&row).ok().and_then(|text| Name::parse(text).ok());
    let name = name.ok_or_else(|| Error::damaged(format!("the name of series {id}"), "it is none"))?;
    let trunk = open::trunk(shared, id).await?;
    Ok(Some(know(shared, id, name, trunk)))
}

/// The cell of a series for a store that only reads. One that is in the inbox alone gets a number from the end of all numbers, which nothing is kept under.
pub(super) async fn known(shared: &Arc<Shared>, name: &Name, unknown: &mut Id) -> Result<Arc<Cell>> {
    if let Some(cell) = lock(&shared.names).get(name) {
        return Ok(cell.clone());
    }
    let row =
        shared.database.transact(|tr| async move { tr.get(shared.keys.name(name.as_str())).await }).await?;
    if let Some(id) = number(row)?
        && let Some(cell) = load(shared, id).await?
    {
        return Ok(cell);
    }
    *unknown -= 1;
    Ok(know(shared, *unknown, name.clone(), Trunk::default()))
}

/// The number in a row.
fn number(row: Option<Bytes>) -> Result<Option<Id>> {
    let Some(row) = row else { return Ok(None) };
    match row[..].try_into() {
        Ok(bytes) => Ok(Some(u64::from_le_bytes(bytes))),
        Err(_) => Err(Error::damaged("the number of a series", "8 bytes expected")),
    }
}

/// The numbers of names, given out where there is none yet, and whether each is new.
async fn numbers(shared: &Shared, names: &[Name]) -> Result<Vec<(Id, bool)>> {
    let tr = shared.database.create_transaction();
    loop {
        match try_numbers(shared, &tr, names).await {
            Err(Error::Database(error)) => tr.on_error(error).await?,
            result => return result,
        }
    }
}

async fn try_numbers(shared: &Shared, tr: &Transaction, names: &[Name]) -> Result<Vec<(Id, bool)>> {
    shared.check_owner(tr).await?;
    let keys = &shared.keys;
    let next = tr.get(keys.next_id());
    let rows: Vec<_> = names.iter().map(|name| tr.get(keys.name(name.as_str()))).collect();
    let first = number(next.await?)?.unwrap_or(1);
    let mut next = first;
    let mut ids = Vec::with_capacity(names.len());
    for (name, row) in names.iter().zip(rows) {
        if let Some(id) = number(row.await?)? {
            ids.push((id, false));
            continue;
        }
        let id = next;
        next += 1;
        tr.set(keys.name(name.as_str()), id.to_le_bytes());
        tr.set(keys.series(id), name.as_str());
        tr.set(keys.index(name.metric(), "", "", id), "");
        for (tag, value) in name.tags() {
            tr.set(keys.index(name.metric(), tag, value, id), "");
        }
        ids.push((id, true));
    }
    if next != first {
        tr.set(keys.next_id(), next.to_le_bytes());
        tr.commit().await?;
    }
    Ok(ids)
}

/// The names of the series of a metric with one of the values of each tag, sorted.
pub(super) async fn find(shared: &Shared, metric: &str, tags: &[(&str, &[&str])]) -> Result<Vec<Name>> {
    let tr = shared.database.create_transaction();
    loop {
        match try_find(shared, &tr, metric, tags).await {
            Err(Error::Database(error)) => tr.on_error(error).await?,
            result => return result,
        }
    }
}

async fn try_find(
    shared: &Shared,
    tr: &Transaction,
    metric: &str,
    tags: &[(&str, &[&str])],
) -> Result<Vec<Name>> {
    let mut found: Option<BTreeSet<Id>> = None;
    let every: (&str, &[&str]) = ("", &[""]);
    for (tag, values) in if tags.is_empty() { std::slice::from_ref(&every) } else { tags } {
        let mut with_tag = BTreeSet::new();
        for value in *values {
            for row in super::nodes::rows(tr, &shared.keys.index_of(metric, tag, value)).await? {
                with_tag.insert(shared.keys.id_of_index(&row.key)?);
            }
        }
        found = Some(match found {
            Some(found) => found.intersection(&with_tag).copied().collect(),
            None => with_tag,
        });
    }
    let rows: Vec<_> =
        found.into_iter().flatten().map(|id| tr.snapshot().get(shared.keys.series(id))).collect();
    let mut names = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(row) = row.await? {
            names.push(Name::parse(&String::from_utf8_lossy(&row))?);
        }
    }
    names.sort_unstable();
    Ok(names)
}
