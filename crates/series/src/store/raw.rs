//! Points that go while rollups of them stay.
//!
//! Before points go all rules have rolled them up, and no change of theirs is left unknown: that is
//! read, with conflicts, by the transaction in which they go. What goes ends where a bucket of each
//! rule ends. So the buckets at the end of a series that has no points any more can't be whole, and
//! the points of the last ones stay until the buckets go, too.

use super::keys::Id;
use super::roll::{self, Came, Ruled};
use super::rolls::{self, Known, State};
use super::{Series, Shared, flush, lock, remove, retry};
use crate::error::Result;
use crate::rollup::begin_of;
use crate::tree::Span;
use plinth_client::Transaction;
use std::sync::Arc;

/// How often it is tried to have all points before a time rolled up, while late ones come.
const TRIES: usize = 3;

/// The last moment up to `time` at which a bucket of each of these lengths begins.
pub(super) fn aligned(time: i64, everies: &[i64]) -> i64 {
    let mut time = time;
    // Days begin buckets of all lengths, so that comes to an end.
    while let Some(every) = everies.iter().find(|every| begin_of(time, **every) < time) {
        time = begin_of(time, *every);
    }
    time
}

/// What is known of a series' rules, and up to where points may go.
fn may_go(rules: &[Ruled], first: i64) -> i64 {
    let upto = rules.iter().map(|rule| rule.state.map_or(i64::MIN, |state| state.upto));
    let everies: Vec<i64> = rules.iter().map(|rule| rule.every).collect();
    aligned(upto.min().unwrap_or(first).min(first), &everies)
}

/// Before which time points have gone by all of the rules.
fn gone(rules: &[Ruled]) -> i64 {
    let gone = rules.iter().map(|rule| rule.state.map_or(i64::MIN, |state| state.gone));
    gone.min().unwrap_or(i64::MIN)
}

impl Series {
    /// Deletes points that are older than `first` and of which there are rollups. Whether there
    /// were any.
    pub(super) async fn forget_points(&self, known: &Arc<Known>, first: i64) -> Result<bool> {
        let keeping = &known.keeping;
        let (shared, id, name) = (&self.shared, self.cell.id, &self.cell.name);
        let everies = rolls::everies(keeping.of(name.metric()));
        let first = aligned(first, &everies);
        let (has_open, last) = self.ends(first).await?;
        let rules = retry::transact_all(&shared.database, |tr| async move {
            roll::ruled(&tr, shared, known, (id, name)).await
        });
        // What lies in the last bucket of all stays.
        let reach = last.map_or(i64::MIN, |last| aligned(last.min(first), &everies));
        if !has_open && gone(&rules.await?) >= reach {
            return Ok(false);
        }
        // Most of it is done without being in anybody's way. What is behind by much is left to the
        // task that does it in the background, and the points stay until then.
        if shared.settings.commit_every.is_some() {
            if roll::roll_some(shared, id, name).await? == Came::More {
                shared.rolls.note_rest((id, name));
                return Ok(false);
            }
        } else {
            roll::roll(shared, id, name).await?;
        }
        let span = Span::new(..first);
        flush::sealed(shared, (id, name), span, async || {
            for _ in 0..TRIES {
                roll::roll(shared, id, name).await?;
                if let Some(went) = self.forget_rolled(known, first).await? {
                    return Ok(went);
                }
            }
            Ok(false)
        })
        .await
    }

    /// Whether points before a time are in no leaf, and the last time of those that are.
    async fn ends(&self, first: i64) -> Result<(bool, Option<i64>)> {
        let (shared, id, name) = (&self.shared, self.cell.id, &self.cell.name);
        let is_open = |time: i64| time < first;
        let has_open = shared.in_memory(id, name).is_some_and(|cell| {
            let state = lock(&cell.state);
            let leaves = state.sealing.iter().map(|leaf| &**leaf).chain([&state.open]);
            leaves.filter_map(|leaf| leaf.times.first()).any(|time| is_open(*time))
        });
        Ok((has_open, remove::last_sealed(shared, id, name).await?))
    }

    /// Deletes what is rolled up and older than `first`, for whoever has the turn. `None` if
    /// something has to be rolled up again before.
    async fn forget_rolled(&self, known: &Known, first: i64) -> Result<Option<bool>> {
        let (shared, id, name) = (&self.shared, self.cell.id, &self.cell.name);
        let sealed = remove::last_sealed(shared, id, name).await?;
        let tr = shared.database.create_transaction();
        shared.rolls.begin_to_forget();
        loop {
            match try_forget(shared, &tr, self, (known, first, sealed)).await {
                Err(error) => retry::again(&tr, error).await?,
                result => {
                    shared.rolls.have_forgotten();
                    return result;
                }
            }
        }
    }
}

async fn try_forget(
    shared: &Arc<Shared>,
    tr: &Transaction,
    series: &Series,
    (known, first, sealed): (&Known, i64, Option<i64>),
) -> Result<Option<bool>> {
    let (id, name): (Id, _) = (series.cell.id, &series.cell.name);
    shared.check_owner(tr).await?;
    if !rolls::are_known(tr, shared, known).await? {
        return Ok(Some(false));
    }
    if !roll::changes(tr, shared, id, 1).await?.is_empty() {
        return Ok(None);
    }
    let rules = roll::ruled(tr, shared, known, (id, name)).await?;
    let end = may_go(&rules, first);
    if rules.is_empty() || end <= gone(&rules) {
        return Ok(Some(false));
    }
    remove::remove_points(shared, tr, id, (Span::new(..end), sealed)).await?;
    for rule in rules {
        if let Some(state) = rule.state {
            let state = State { gone: state.gone.max(end), ..state };
            tr.set(shared.keys.rolled(rule.id, id), state.encode());
        }
    }
    tr.commit().await?;
    Ok(Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_go_up_to_where_a_bucket_of_each_length_begins() {
        const MINUTE: i64 = 60_000_000_000;
        let day = 1440 * MINUTE;
        assert_eq!(aligned(day + 77 * MINUTE, &[5 * MINUTE, 60 * MINUTE]), day + 60 * MINUTE);
        assert_eq!(aligned(day + 77 * MINUTE, &[45 * MINUTE, 32 * MINUTE]), day);
        assert_eq!(aligned(7, &[]), 7);
        assert_eq!(aligned(i64::MIN, &[day]), i64::MIN);
        assert_eq!(aligned(-1, &[MINUTE]), -MINUTE);
    }
}
