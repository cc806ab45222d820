//! Series that have ended: where retention has taken the last point of one, and the last bucket,
//! its name goes, too.
//!
//! ```text
//!   under the turn:   saved, inbox taken in  ->  nothing in memory?  ->  Gone  ->  nothing in the
//!                                                no: it stays            database? deleted whole
//! ```
//!
//! Always: a point that was taken is never lost with a name. Memory is looked at and the series
//! marked as gone in one step, so whoever appends either comes before, and it stays, or is told
//! that it was deleted, and looks the name up again: that waits until it is known whether it is
//! there. A series that never had a point stays: somebody is about to append the first.

use super::keys::Id;
use super::nodes::Through;
use super::remove::{self, Deletion};
use super::rolls::{self, Known};
use super::{Series, Shared, Standing, State, flush, lock, names, record_rows, retry};
use crate::error::Result;
use crate::name::Name;
use crate::tree::{Nodes, Span, Twig};
use plinth_client::{KeySelector, RangeOptions, Transaction};
use plinth_env::reply::promise;
use std::sync::Arc;

impl Series {
    /// Deletes the series if it has ended, and these are still the rules about what is kept;
    /// `had_records` if it has just lost some, which leave no trace. Whether it did.
    pub(super) async fn delete_if_ended(
        &self,
        known: &Arc<Known>,
        had_records: bool,
    ) -> Result<bool> {
        if self.newest().await?.is_some() {
            return Ok(false);
        }
        // As other deletions it is a task of its own.
        let (series, known) = (self.clone(), known.clone());
        let (done, reply) = promise();
        let env = self.shared.database.endpoint().env();
        let task = env.spawn("plinth-series-delete", async move {
            done.send(Ok(series.delete_if_ended_here(&known, had_records).await));
        });
        drop(task);
        reply.await?
    }

    async fn delete_if_ended_here(&self, known: &Known, had_records: bool) -> Result<bool> {
        let (shared, id, name) = (&self.shared, self.cell.id, &self.cell.name);
        flush::sealed(shared, (id, name), Span::NONE, async || {
            if shared.damage_of(id, name).is_some() {
                return Ok(false);
            }
            let _under_way = Deletion::begin(shared);
            let cell = shared.in_memory(id, name);
            if let Some(cell) = &cell {
                let mut state = lock(&cell.state);
                if state.standing != Standing::Known || state.has_points() {
                    return Ok(false);
                }
                state.standing = Standing::Gone;
            }
            let deleted = delete(shared, (id, name), known, had_records).await;
            match (&deleted, cell) {
                (Ok(false), Some(cell)) => lock(&cell.state).standing = Standing::Known,
                // Whether it was deleted is found out by whoever looks it up, if this failed.
                _ => remove::forget_in_memory(shared, id, name),
            }
            deleted
        })
        .await
    }
}

impl State {
    /// Whether there are points that are in no leaf yet.
    fn has_points(&self) -> bool {
        !(self.open.is_empty()
            && self.sealing.is_empty()
            && self.late.is_empty()
            && self.merging.is_empty())
    }
}

/// Deletes a series of which nothing is in memory, if nothing else is there of it. Whether it did.
async fn delete(
    shared: &Shared,
    of: (Id, &Name),
    known: &Known,
    had_records: bool,
) -> Result<bool> {
    let tr = shared.database.create_transaction();
    loop {
        match try_delete(shared, &tr, of, (known, had_records)).await {
            Err(error) => retry::again(&tr, error).await?,
            deleted => return deleted,
        }
    }
}

async fn try_delete(
    shared: &Shared,
    tr: &Transaction,
    (id, name): (Id, &Name),
    (known, had_records): (&Known, bool),
) -> Result<bool> {
    shared.check_owner(tr).await?;
    if names::number(tr.get(shared.keys.name(name.as_str())).await?)? != Some(id) {
        // The answer of an earlier try was lost, or somebody else was faster.
        return Ok(true);
    }
    if !rolls::are_known(tr, shared, known).await?
        || !has_ended(shared, tr, id, (known, had_records)).await?
    {
        return Ok(false);
    }
    names::count(tr, &shared.keys, name.metric(), -1);
    remove::clear(tr, shared, id, name);
    tr.commit().await?;
    Ok(true)
}

/// Whether a series had points or records and has neither these nor buckets any more, as far as the
/// database knows.
async fn has_ended(
    shared: &Shared,
    tr: &Transaction,
    id: Id,
    (known, had_records): (&Known, bool),
) -> Result<bool> {
    let keys = &shared.keys;
    let nodes = Through { tr, keys, id };
    let (twigs, masks) = (nodes.twigs(None).await?, nodes.masks().await?);
    // Twigs stay when points go.
    let is_gone = |twig: &Twig| masks.iter().any(|mask| mask.covers(&twig.summary));
    if (twigs.is_empty() && !had_records) || !twigs.iter().all(is_gone) {
        return Ok(false);
    }
    if record_rows::has_any(tr, keys, id).await? {
        return Ok(false);
    }
    if !is_empty(tr, RangeOptions::prefix(keys.sides(id))).await? {
        return Ok(false);
    }
    for rollup in known.keeping.rollups() {
        // The first row says how far the series is rolled up.
        let range = RangeOptions::prefix(keys.rolled(rollup.id, id));
        let begin = KeySelector::first_greater_than(keys.rolled(rollup.id, id));
        if !is_empty(tr, RangeOptions::new(begin, range.end)).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn is_empty(tr: &Transaction, range: RangeOptions) -> Result<bool> {
    Ok(tr.get_range(range.limit(1)).await?.rows.iter().next().is_none())
}
