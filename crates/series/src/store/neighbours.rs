//! Rows of many series at once, for whoever opens them: where their numbers lie close together so
//! do their rows, and one read of a range brings all of them. To ask for those of each took most of
//! the time to open a million series.

use super::keys::{Id, Keys};
use super::nodes::Through;
use crate::error::{Error, Result};
use crate::tree::{Trunk, Twig, decode_summary};
use plinth_client::{KeyValue, RangeOptions, StreamingMode, Transaction};
use plinth_env::sync::all;
use plinth_types::{Bytes, strinc};
use std::collections::BTreeMap;

/// Of so many numbers in a row one has to be wanted, about: others' rows are read, too.
const SPREAD: u64 = 4;
/// Trees that are read beside each other: one after the other takes minutes for many series where
/// the database is elsewhere.
pub(super) const TREES_AT_ONCE: usize = 64;

/// The first and the last of numbers, if they lie so close together that all between them are read.
fn close(ids: &[Id]) -> Option<(Id, Id)> {
    let (least, greatest) = (*ids.iter().min()?, *ids.iter().max()?);
    (ids.len() > 1 && (greatest - least) / SPREAD < ids.len() as u64).then_some((least, greatest))
}

/// All rows from those with one beginning up to those with another, these among them.
async fn rows(
    tr: &Transaction,
    first: Vec<u8>,
    last: &[u8],
) -> plinth_types::Result<Vec<KeyValue>> {
    let end = strinc(last).unwrap_or_else(|| Bytes::from_static(b"\xff"));
    let range = RangeOptions::from(Bytes::from(first)..end).mode(StreamingMode::WantAll);
    tr.snapshot().range(range).collect().await
}

/// The rows that have the names of series, in the order of their numbers here.
pub(super) async fn names(tr: &Transaction, keys: &Keys, ids: &[Id]) -> Result<Vec<Option<Bytes>>> {
    if let Some((least, greatest)) = close(ids) {
        let rows = rows(tr, keys.series(least), &keys.series(greatest)).await?;
        let found = rows.into_iter().map(|row| Ok((keys.id_of_series(&row.key)?, row.value)));
        // What has no business there is looked at by nobody who asks for each.
        if let Ok(found) = found.collect::<Result<BTreeMap<Id, Bytes>>>() {
            return Ok(ids.iter().map(|id| found.get(id).cloned()).collect());
        }
    }
    let rows: Vec<_> = ids.iter().map(|id| tr.snapshot().get(keys.series(*id))).collect();
    let mut all = Vec::with_capacity(ids.len());
    for row in rows {
        all.push(row.await?);
    }
    Ok(all)
}

/// What is known of the trees of series, in the order of their numbers here; or that the rows which
/// say so can't be read.
pub(super) async fn trunks(
    tr: &Transaction,
    keys: &Keys,
    ids: &[Id],
) -> Result<Vec<Result<Trunk>>> {
    let Some((least, greatest)) = close(ids) else { return each(tr, keys, ids).await };
    let mut twigs: BTreeMap<Id, Result<Vec<Twig>>> = BTreeMap::new();
    for row in rows(tr, keys.twigs(least, None), &keys.twigs(greatest, None)).await? {
        let Ok((id, address)) = keys.of_twig(&row.key) else {
            // Whose it is can be told only by looking at those of each.
            return each(tr, keys, ids).await;
        };
        let of_one = twigs.entry(id).or_insert_with(|| Ok(Vec::new()));
        match (decode_summary(address.level, &row.value), &mut *of_one) {
            (Ok(summary), Ok(twigs)) => twigs.push(Twig { address, summary }),
            (Err(why), Ok(_)) => *of_one = Err(why),
            (_, Err(_)) => {}
        }
    }
    let trunk = |id: &Id| match twigs.get(id) {
        Some(Ok(twigs)) => Trunk::of(twigs),
        Some(Err(why)) => Err(why.clone()),
        None => Ok(Trunk::default()),
    };
    Ok(ids.iter().map(trunk).collect())
}

/// The same, of which each is asked for, if any has one.
async fn each(tr: &Transaction, keys: &Keys, ids: &[Id]) -> Result<Vec<Result<Trunk>>> {
    let (Some(least), Some(greatest)) = (ids.iter().min(), ids.iter().max()) else {
        return Ok(Vec::new());
    };
    // Where many are young none has a twig.
    if ids.len() > 1 {
        let end =
            strinc(&keys.twigs(*greatest, None)).unwrap_or_else(|| Bytes::from_static(b"\xff"));
        let range = RangeOptions::from(Bytes::from(keys.twigs(*least, None))..end).limit(1);
        if tr.snapshot().get_range(range).await?.rows.is_empty() {
            return Ok(ids.iter().map(|_| Ok(Trunk::default())).collect());
        }
    }
    let mut trunks = Vec::with_capacity(ids.len());
    for some in ids.chunks(TREES_AT_ONCE) {
        let open = async |id: Id| Trunk::open(&Through { tr, keys, id }).await;
        for trunk in all(some.iter().map(|id| open(*id))).await {
            match trunk {
                Ok(_) | Err(Error::Damaged { .. }) => trunks.push(trunk),
                Err(why) => return Err(why),
            }
        }
    }
    Ok(trunks)
}
