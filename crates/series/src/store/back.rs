//! Taking back: what was set aside of series that were damaged goes on its way when their rows can
//! be read again.
//!
//! That is looked for when the store is opened, before the tail is read; their points are taken in
//! as mail that came before the inbox's, some rows at a time, each page in the commit in which it
//! goes from aside. Meanwhile (22, whose) says so: the tail may have some of them again, and if the
//! rows can't be read after all when the store is opened next, what the tail has is set aside anew.
//! It says, too, up to where leaves had points when the series was found whole first. Of what the
//! tail had, points up to there are in leaves, under what came late and what was deleted since, and
//! are left out.

use super::aside::Row;
use super::damage::{LeavesUpto, Mark, Marked, called};
use super::inbox::{self, Taken};
use super::keys::Whose;
use super::letter::{self, Opened};
use super::nodes::{self, Reader};
use super::{Shared, names, retry, tail};
use crate::codec;
use crate::error::{Error, Result};
use crate::value::Points;
use plinth_client::{KeySelector, KeyValue, RangeOptions, StreamingMode};
use plinth_types::key_after;
use std::sync::Arc;

/// Rows that are read at a time.
const ROWS: usize = 64;

/// Learns what is damaged, for whoever is about to open the store, and gives what can be read
/// again: that is to be taken back.
pub(super) async fn learn(shared: &Shared) -> Result<Vec<Whose>> {
    let keys = &shared.keys;
    let range = &RangeOptions::prefix(keys.all_damaged()).mode(StreamingMode::WantAll);
    let rows = retry::transact(&shared.database, |tr| async move {
        tr.snapshot().range(range.clone()).collect().await
    });
    let mut whole = Vec::new();
    for row in rows.await? {
        let (whose, marked) = (keys.whose_damage(&row.key)?, Marked::decode(&row.value));
        match check(shared, &whose).await {
            Ok(()) => {
                let why = Error::damaged(called(&whose), marked.why);
                shared.note_marked(&whose, &why, (Mark::Returning, marked.sealed));
                whole.push(whose);
            }
            Err(why @ Error::Damaged { .. }) => {
                shared.note_marked(&whose, &why, (marked.mark, marked.sealed));
            }
            Err(why) => return Err(why),
        }
    }
    Ok(whole)
}

/// Fails if what was damaged still is.
async fn check(shared: &Shared, whose: &Whose) -> Result<()> {
    let gone = || Error::damaged(called(whose), "its rows are gone");
    let (id, name) = match whose {
        Whose::Unknown => return check_rows(shared, whose).await,
        Whose::Number(id) => (*id, names::name_of(shared, *id).await?.ok_or_else(gone)?),
        Whose::Name(name) => match names::number_of(shared, name).await? {
            Some(id) => (id, name.clone()),
            // It is to be made.
            None => return check_rows(shared, whose).await,
        },
    };
    let (there, named) =
        (names::name_of(shared, id).await?, names::number_of(shared, &name).await?);
    if there.as_ref() != Some(&name) || named != Some(id) {
        let why = format!("number {id} expected, {named:?} and the name {there:?} found");
        return Err(Error::damaged(called(whose), why));
    }
    nodes::trunk(shared, id).await?;
    // Leaves of late points are written anew when others come.
    let reader = Reader::new(&shared.database, &shared.keys, id);
    let mut range = RangeOptions::prefix(shared.keys.sides(id));
    let end = range.end.clone();
    loop {
        let some = range.clone().limit(ROWS).mode(StreamingMode::WantAll);
        let rows = reader.page(some).await?;
        for row in &rows {
            codec::decode(&row.value, &mut Points::default())?;
        }
        match rows.last() {
            Some(last) if rows.len() >= ROWS => {
                let begin = KeySelector::first_greater_than(last.key.clone());
                range = RangeOptions::new(begin, end.clone());
            }
            _ => return check_rows(shared, whose).await,
        }
    }
}

/// Fails if a row that is aside of a series can't be read, or none of those of the inbox: of a
/// series all have to come back in their order.
async fn check_rows(shared: &Shared, whose: &Whose) -> Result<()> {
    let (mut behind, mut result) = (None, Ok(()));
    loop {
        let rows = rows(shared, whose, behind.as_deref()).await?;
        for row in &rows {
            result = match Row::split(&row.value) {
                (Row::Letter, row) => letter::decode(row).map(drop),
                (Row::Batch, row) => tail::decode(row).map(drop),
            };
            if result.is_ok() == (*whose == Whose::Unknown) {
                return result;
            }
        }
        match rows.last() {
            Some(last) => behind = Some(last.key.to_vec()),
            None => return result,
        }
    }
}

/// Rows that are set aside, from behind a key on: some at a time.
async fn rows(shared: &Shared, whose: &Whose, behind: Option<&[u8]>) -> Result<Vec<KeyValue>> {
    let (begin, end) = shared.keys.aside(whose);
    let begin = behind.map_or(begin, |behind| key_after(behind).to_vec());
    let range = &RangeOptions::from(begin..end).limit(ROWS).mode(StreamingMode::WantAll);
    retry::transact(&shared.database, |tr| async move {
        tr.snapshot().range(range.clone()).collect().await
    })
    .await
}

/// The key of the last row that is set aside of somebody's points.
pub(super) async fn last(shared: &Shared, whose: &Whose) -> Result<Option<Vec<u8>>> {
    let (begin, end) = shared.keys.aside(whose);
    let range = &RangeOptions::from(begin..end).limit(1).reverse(true);
    let rows = retry::transact(&shared.database, |tr| async move {
        tr.snapshot().get_range(range.clone()).await
    });
    Ok(rows.await?.rows.iter().next().map(|(key, _)| key.to_vec()))
}

/// The next rows that were set aside, of what can be read again: for whoever has the turn, puts
/// them into memory and saves them. `None` if there are no more.
pub(super) async fn take_some(
    shared: &Arc<Shared>,
    whose: &Whose,
    sealed: LeavesUpto,
) -> Result<Option<Taken>> {
    let rows = rows(shared, whose, None).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let name = match whose {
        Whose::Number(id) => names::name_of(shared, *id).await?,
        Whose::Name(name) => Some(name.clone()),
        Whose::Unknown => None,
    };
    let open = |row: &[u8]| -> Result<Opened> {
        let (kind, row) = Row::split(row);
        if kind == Row::Letter {
            return letter::decode(row);
        }
        let gone = || Error::damaged(called(whose), "its name has gone");
        let name = name.clone().ok_or_else(gone)?;
        let points = tail::decode(row)?.into_iter().map(|(_, point)| point);
        let points = points.filter(|point| !sealed.has(point.time));
        Ok((vec![name], points.map(|point| (0, point)).collect()))
    };
    inbox::take_rows(shared, &rows, Some(whose), open).await
}

/// Says that what was set aside is on its way back. Gives up to where leaves had points when the
/// series was found whole first.
pub(super) async fn begin(shared: &Shared, whose: &Whose) -> Result<LeavesUpto> {
    let before = shared.index.damage.mark(whose).1;
    let sealed = match (before, whose) {
        (Some(sealed), _) => sealed,
        (None, Whose::Unknown) => LeavesUpto(None),
        (None, Whose::Number(id)) => LeavesUpto(nodes::trunk(shared, *id).await?.last()),
        (None, Whose::Name(name)) => match names::number_of(shared, name).await? {
            Some(id) => LeavesUpto(nodes::trunk(shared, id).await?.last()),
            None => LeavesUpto(None),
        },
    };
    let marked = Marked { mark: Mark::Back, sealed: Some(sealed), why: String::new() };
    let (key, value) = (&shared.keys.damaged(whose), &marked.encode());
    retry::transact_all(&shared.database, |tr| async move {
        shared.check_owner(&tr).await?;
        tr.set(key, value);
        Ok(())
    })
    .await?;
    shared.index.damage.note_upto(whose, sealed);
    Ok(sealed)
}

/// Nothing is aside of it any more.
pub(super) async fn end(shared: &Shared, whose: &Whose) -> Result<()> {
    let key = &shared.keys.damaged(whose);
    retry::transact_all(&shared.database, |tr| async move {
        shared.check_owner(&tr).await?;
        tr.clear(key);
        Ok(())
    })
    .await?;
    shared.index.damage.forget(whose);
    Ok(())
}
