//! Deleting: a span of a series, or a series whole.
//!
//! What of a span is in an open leaf is sealed first, so that it lies in the tree and among the
//! late points alone. In the tree it gets a mask, and nodes that lie wholly within it go, by a
//! range clear for neighbours; late points go by leaves, and records by rows. Twigs stay: they say
//! where the tree goes on. A series that goes whole is forgotten by memory in the same turn, and
//! whoever looked its name up meanwhile looks again.

use super::keys::{Id, Keys, Whose};
use super::nodes::{self, Through};
use super::rolls::Known;
use super::side::LatePoints;
use super::{
    Part, Series, Shared, Standing, State, aside, by_time, flush, limits, lock, mask, names,
    record_rows, retry, rolls,
};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::tree::{Address, FANOUT, Nodes, Span, Twig, decode_summaries};
use plinth_client::Transaction;
use plinth_env::reply::promise;
use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

impl Series {
    /// Deletes the points of a range of times. Points that come later are seen, whatever their
    /// time.
    ///
    /// # Errors
    /// [`Error::TooMany`] if the series has more than 4096 deleted spans that do not touch;
    /// [`Error::NotOwner`], [`Error::Damaged`], [`Error::Database`].
    pub async fn delete_range(&self, range: impl RangeBounds<i64>) -> Result<()> {
        self.delete_span(Span::new(range), None).await.map(drop)
    }

    /// Deletes a span, if these are the rules about what is kept, where it is by them that it goes.
    /// Whether it did.
    ///
    /// It is a task of its own: whoever waits for it may leave, and the next deletion must not
    /// begin while a commit of this one is under way.
    pub(super) async fn delete_span(&self, span: Span, by: Option<Arc<Known>>) -> Result<bool> {
        let (series, env) = (self.clone(), self.shared.database.endpoint().env().clone());
        let (done, reply) = promise();
        let task = env.spawn("plinth-series-delete", async move {
            done.send(Ok(series.delete_span_here(span, by.as_deref()).await));
        });
        drop(task);
        reply.await?
    }

    /// Deletes the records before a time, for whom points are another affair. Whether there were
    /// any.
    pub(super) async fn forget_records(&self, first: i64) -> Result<bool> {
        if !self.has_records_before(first).await? {
            return Ok(false);
        }
        let (shared, id) = (&self.shared, self.cell.id);
        flush::sealed(shared, (id, &self.cell.name), Span::NONE, async || {
            if let Some((_, why)) = shared.damage_of(id, &self.cell.name) {
                return Err(why);
            }
            retry::transact_all(&shared.database, |tr| async move {
                shared.check_owner(&tr).await?;
                record_rows::remove(&tr, &shared.keys, id, Span::new(..first)).await
            })
            .await
        })
        .await?;
        Ok(true)
    }

    async fn delete_span_here(&self, span: Span, by: Option<&Known>) -> Result<bool> {
        let (shared, id, name) = (&self.shared, self.cell.id, &self.cell.name);
        flush::sealed(shared, (id, name), span, async || {
            if let Some((_, why)) = shared.damage_of(id, name) {
                // What is aside would come back.
                return Err(why);
            }
            let tr = shared.database.create_transaction();
            let sealed = last_sealed(shared, id, name).await?;
            loop {
                let of = (id, name.metric());
                match try_delete_range(shared, &tr, of, (span, sealed), by).await {
                    Err(error) => retry::again(&tr, error).await?,
                    Ok(went) => {
                        let now = shared.database.endpoint().env().now();
                        shared.rolls.note((id, name), 0, Some(now));
                        return Ok(went);
                    }
                }
            }
        })
        .await
    }
}

impl Part {
    pub(super) async fn delete(&self, series: &Series) -> Result<()> {
        let (shared, id, name) = (self.shared.clone(), series.cell.id, series.cell.name.clone());
        let (done, reply) = promise();
        let task =
            self.shared.database.endpoint().env().spawn("plinth-series-delete", async move {
                let result = delete(&shared, id, &name).await;
                done.send(Ok(result));
            });
        drop(task);
        reply.await?
    }
}

/// Says, as long as it lives, that a series is being deleted.
pub(super) struct Deletion<'a>(&'a AtomicU64);

impl<'a> Deletion<'a> {
    pub(super) fn begin(shared: &'a Shared) -> Self {
        shared.index.deletions.fetch_add(1, Ordering::SeqCst);
        Self(&shared.index.deletions)
    }
}

impl Drop for Deletion<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

async fn delete(shared: &Arc<Shared>, id: Id, name: &Name) -> Result<()> {
    flush::sealed(shared, (id, name), Span::ALL, async || {
        let _under_way = Deletion::begin(shared);
        let tr = shared.database.create_transaction();
        while let Err(error) = try_delete(shared, &tr, id, name).await {
            retry::again(&tr, error).await?;
        }
        Whose::of(id, name).iter().for_each(|whose| shared.index.damage.forget(whose));
        forget_in_memory(shared, id, name);
        Ok(())
    })
    .await
}

/// Takes a series out of memory. Whoever has it is told that it was deleted, and looks its name up
/// again.
pub(super) fn forget_in_memory(shared: &Shared, id: Id, name: &Name) {
    let Some(cell) = shared.in_memory(id, name) else { return };
    if lock(&shared.index.names).remove(name).is_some() {
        shared.note_forgotten(limits::in_memory(name));
    }
    let mut state = lock(&cell.state);
    shared.open_points.fetch_sub(state.open.len(), Ordering::Relaxed);
    *state = State { standing: Standing::Gone, is_noted: state.is_noted, ..State::default() };
}

async fn try_delete(shared: &Shared, tr: &Transaction, id: Id, name: &Name) -> Result<()> {
    shared.check_owner(tr).await?;
    let keys = &shared.keys;
    let named = match names::number(tr.get(keys.name(name.as_str())).await?) {
        // What is damaged can go.
        Err(Error::Damaged { .. }) => Some(id),
        named => named?,
    };
    if named.is_some_and(|named| named != id) {
        return Err(Error::Deleted);
    }
    if named.is_some() {
        names::count(tr, keys, name.metric(), -1);
    }
    clear(tr, shared, id, name);
    Ok(tr.commit().await?)
}

/// Clears all rows of a series.
pub(super) fn clear(tr: &Transaction, shared: &Shared, id: Id, name: &Name) {
    let keys = &shared.keys;
    tr.clear(keys.name(name.as_str()));
    tr.clear(keys.series(id));
    tr.clear(keys.index(name.metric(), "", "", id));
    for (tag, value) in name.tags() {
        tr.clear(keys.index(name.metric(), tag, value, id));
    }
    for prefix in [keys.nodes(id), keys.twigs(id, None), keys.sides(id)] {
        tr.clear_prefix(prefix);
    }
    tr.clear(keys.mask(id));
    record_rows::clear(tr, keys, id);
    rolls::clear(tr, shared, id);
    aside::clear(tr, keys, (id, name));
}

async fn try_delete_range(
    shared: &Shared,
    tr: &Transaction,
    (id, metric): (Id, &str),
    (span, sealed): (Span, Option<i64>),
    by: Option<&Known>,
) -> Result<bool> {
    shared.check_owner(tr).await?;
    if let Some(known) = by
        && !rolls::are_known(tr, shared, known).await?
    {
        return Ok(false);
    }
    remove_points(shared, tr, id, (span, sealed)).await?;
    rolls::note_deleted(tr, shared, (id, metric), span);
    tr.commit().await?;
    Ok(true)
}

/// Removes the points of a span, of which no memory has any, in a transaction; `sealed` is the last
/// that the tree has.
pub(super) async fn remove_points(
    shared: &Shared,
    tr: &Transaction,
    id: Id,
    (span, sealed): (Span, Option<i64>),
) -> Result<()> {
    let keys = &shared.keys;
    by_time::remove(&LatePoints, (tr, keys, id), span).await?;
    record_rows::remove(tr, keys, id, span).await?;
    let Some(sealed) = sealed else { return Ok(()) };
    let nodes = Through { tr, keys, id };
    let before = nodes.masks().await?;
    let span = span.intersection(Span { first: i64::MIN, last: sealed });
    let masks = mask::with(before.clone(), span);
    if masks.len() > mask::MAX_MASKS {
        return Err(Error::TooMany {
            what: format!("{} deleted spans of a series", mask::MAX_MASKS),
        });
    }
    if masks != before {
        for (level, ranges) in within(&nodes, &before, &masks).await? {
            clear_nodes(tr, keys, id, level, &ranges);
        }
        tr.set(keys.mask(id), mask::encode(&masks));
    }
    Ok(())
}

/// The time of the last point that the tree of a series has, for whoever has the turn: the tree
/// stays what it is, and whoever has the series open knows it.
pub(super) async fn last_sealed(shared: &Shared, id: Id, name: &Name) -> Result<Option<i64>> {
    Ok(match shared.in_memory(id, name) {
        Some(cell) => lock(&cell.state).trunk.last(),
        None => nodes::trunk(shared, id).await?.last(),
    })
}

/// Indexes of neighbours: the first, and the one behind the last.
type Neighbours = Vec<(u64, u64)>;

/// The nodes that lie wholly within one of `masks` and not within one of `before`, by level.
async fn within(
    nodes: &Through<'_>,
    before: &[Span],
    masks: &[Span],
) -> Result<BTreeMap<u8, Neighbours>> {
    let mut found: BTreeMap<u8, Neighbours> = BTreeMap::new();
    let mut stack = nodes.twigs(None).await?;
    stack.sort_by_key(|twig| std::cmp::Reverse(twig.summary.first.time));
    while let Some(twig) = stack.pop() {
        let Address { level, index } = twig.address;
        let covered = |masks: &[Span]| masks.iter().any(|mask| mask.covers(&twig.summary));
        if covered(before) || !masks.iter().any(|mask| mask.meets(&twig.summary)) {
            continue;
        }
        if covered(masks) {
            let mut width = 1;
            for level in (0..=level).rev() {
                add(found.entry(level).or_default(), index * width, (index + 1) * width);
                width *= FANOUT;
            }
        } else if level > 0 {
            let Some(bytes) = nodes.node(twig.address).await? else {
                return Err(Error::damaged(
                    format!("node {index} of level {level}"),
                    "it is missing",
                ));
            };
            let children = decode_summaries(level, &bytes)?;
            let child = |place: u64| Address { level: level - 1, index: index * FANOUT + place };
            let twigs = children.into_iter().zip(0..);
            let mut twigs: Vec<Twig> =
                twigs.map(|(summary, place)| Twig { address: child(place), summary }).collect();
            twigs.reverse();
            stack.append(&mut twigs);
        }
    }
    Ok(found)
}

fn add(ranges: &mut Neighbours, first: u64, end: u64) {
    match ranges.last_mut() {
        Some(last) if last.1 == first => last.1 = end,
        _ => ranges.push((first, end)),
    }
}

fn clear_nodes(tr: &Transaction, keys: &Keys, id: Id, level: u8, ranges: &Neighbours) {
    for (first, end) in ranges {
        let key = |index| keys.node(id, Address { level, index });
        tr.clear_range(key(*first), key(*end));
    }
}
