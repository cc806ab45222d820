//! What always holds among the rows of rollups: part of what a store is asked by tests
//! (`invariants.rs`).
//!
//! 1. Only rules that there are have rows, of series that there are.
//! 2. Rows of a series ascend, each has its key from its first bucket, and all of them lie where
//!    the series is rolled up.
//! 3. Buckets begin at multiples of their length and have the points of that time.

use super::Shared;
use super::keys::Keys;
use super::nodes::rows;
use super::rolls::{Change, State};
use crate::error::Result;
use crate::rollup::{Bucket, begin_of, decode, end_of};
use plinth_client::Transaction;

/// Looks at all rows of rollups of a part.
pub(super) async fn check(shared: &Shared, tr: &Transaction) -> Result<()> {
    let (keys, known) = (&shared.keys, shared.rolls.known());
    let gone = if known.fault.is_none() { known.keeping.gone() } else { Vec::new() };
    for (first, behind) in gone {
        let range = keys.rolled_by(first)..keys.rolled_by(behind);
        let left = tr.snapshot().range(range).collect().await?;
        assert!(left.is_empty(), "no rollups of rules {first} to {behind}, which are no more");
    }
    for row in rows(tr, &keys.all_series()).await? {
        let id = keys.id_of_series(&row.key)?;
        for rollup in known.keeping.rollups() {
            check_series(tr, keys, (rollup.id, id), rollup.every()).await?;
        }
        for row in rows(tr, &keys.changes(id)).await? {
            let change = Change::of_key(keys, &row.key)?;
            assert!(!change.span.is_empty(), "series {id}: a change of nothing");
        }
    }
    Ok(())
}

async fn check_series(
    tr: &Transaction,
    keys: &Keys,
    (rule, id): (u64, u64),
    every: i64,
) -> Result<()> {
    let mut rows = rows(tr, &keys.rolled(rule, id)).await?.into_iter();
    let Some(first) = rows.next() else { return Ok(()) };
    let what = format!("rollups of series {id} by rule {rule}");
    assert_eq!(first.key, keys.rolled(rule, id), "{what}: how far they are comes first");
    let state = State::decode(&first.value)?;
    let mut before = None;
    for row in rows {
        let buckets = decode(&row.value)?;
        assert_eq!(row.key, keys.rolled_row(rule, id, buckets[0].begin), "{what}: the key");
        for bucket in buckets {
            assert!(before < Some(bucket.begin), "{what}: {} behind {before:?}", bucket.begin);
            before = Some(bucket.begin);
            check_bucket(&bucket, (every, state), &what);
        }
    }
    Ok(())
}

fn check_bucket(bucket: &Bucket, (every, state): (i64, State), what: &str) {
    let Bucket { begin, at, rest } = bucket;
    let end = end_of(*begin, every);
    assert_eq!(begin_of(*begin, every), *begin, "{what}: where a bucket begins");
    assert!(state.from <= *begin && end <= state.upto, "{what}: {begin} lies in {state:?}");
    assert!(at.is_some() || rest.is_some(), "{what}: the bucket of {begin} has points");
    if let Some(rest) = rest {
        let (first, last) = (rest.summary.first.time, rest.summary.last.time);
        assert!(*begin < first && last < end, "{what}: {first} to {last} in {begin} to {end}");
    }
}
