//! Taking back: what was set aside of series that were damaged goes on its way when their rows can
//! be read again.
//!
//! That is looked for when the store is opened, before the tail is read; their points are taken in
//! as mail that came before the inbox's, some rows at a time, each page in the commit in which it
//! goes from aside. This may break off anywhere, and the rows may be damaged again then, so all of
//! it goes by these rules:
//!
//! ```text
//!   (22, whose)   (23, whose)                      the tail has
//!   ASIDE         batches, then letters            nothing that is not here
//!     | can be read: batches become letters, without what leaves have
//!     v
//!   BACK          letters, of which the first go   those that went, until leaves have them
//!     | can't: what the tail has comes here as batches, before all letters
//!     v
//!   ASIDE
//! ```
//!
//! - Of what the tail had, points up to where leaves end are in them, under what came late and
//!   what was deleted since, and are left out. That is done of all that come back before the
//!   first of them is taken in: until then no leaf was written since the tail was set aside.
//! - Taking in what is left once more, in its order, ends as taking it in once. So a page that
//!   was saved in part, or is there twice, does no harm, as long as all that came later is
//!   behind it.
//! - What the tail has while letters are on their way is older than those that are left, so it
//!   comes before them. Where that takes several commits the first has the newest batches: if
//!   there are no more, the tail has all of them, and the newest come over it once more.

use super::aside::{self, Row};
use super::damage::{LeavesUpto, Mark, Marked, called};
use super::inbox::{self, Taken};
use super::keys::{Id, Keys, Whose};
use super::letter;
use super::nodes::{self, Reader, Through};
use super::{Shared, Standing, lock, names, records, retry, tail};
use crate::codec;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::value::{Point, Points};
use plinth_client::{KeySelector, KeyValue, RangeOptions, StreamingMode};
use plinth_types::key_after;
use std::slice;
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
                shared.index.damage.note_returning(&whose, marked);
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
        Whose::Unknown => return check_rows(shared, whose, None).await,
        Whose::Number(id) => (*id, names::name_of(shared, *id).await?.ok_or_else(gone)?),
        Whose::Name(name) => match names::number_of(shared, name).await? {
            Some(id) => (id, name.clone()),
            // It is to be made.
            None => return check_rows(shared, whose, None).await,
        },
    };
    let (there, named) =
        (names::name_of(shared, id).await?, names::number_of(shared, &name).await?);
    if there.as_ref() != Some(&name) || named != Some(id) {
        let why = format!("number {id} expected, {named:?} and the name {there:?} found");
        return Err(Error::damaged(called(whose), why));
    }
    let trunk = nodes::trunk(shared, id).await?;
    let behind = retry::transact(&shared.database, |tr| async move {
        Through { tr: &tr, keys: &shared.keys, id }.behind(&trunk).await
    });
    if behind.await?.is_some() {
        return Err(nodes::without_twig(&trunk));
    }
    records::check(shared, id).await?;
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
            _ => return check_rows(shared, whose, Some(id)).await,
        }
    }
}

/// Fails if a row that is aside of a series can't be read, or none of those of the inbox: of a
/// series all have to come back in their order. Points that the tail had under another number are
/// another series', and whose name has none yet had none in the tail.
async fn check_rows(shared: &Shared, whose: &Whose, id: Option<Id>) -> Result<()> {
    let (mut behind, mut result) = (None, Ok(()));
    loop {
        let rows = rows(shared, whose, behind.as_deref()).await?;
        for row in &rows {
            result = match Row::split(&row.value) {
                (Row::Letter, row) => letter::decode(row).map(drop),
                (Row::Batch, row) => tail::decode(row).and_then(|points| {
                    let is_other = |of: &Id| Some(*of) != id;
                    match points.iter().map(|(of, _)| *of).find(is_other) {
                        None => Ok(()),
                        Some(of) => {
                            let why = format!("points of series number {of} are aside as its own");
                            Err(Error::damaged(called(whose), why))
                        }
                    }
                }),
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
/// them into memory and saves them. `None` if there are no more, or the series has turned out to be
/// damaged once more: they stay where they are, behind what was in memory.
pub(super) async fn take_some(shared: &Arc<Shared>, whose: &Whose) -> Result<Option<Taken>> {
    let rows = rows(shared, whose, None).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let open = |row: &[u8]| match Row::split(row) {
        (Row::Letter, row) => letter::decode(row),
        (Row::Batch, _) => Err(Error::damaged(called(whose), "a letter expected, a batch found")),
    };
    let Some((_, name)) = series_of(shared, whose).await? else {
        return inbox::take_rows(shared, &rows, Some(whose), open).await;
    };
    let taken = match names::open(shared, slice::from_ref(&name)).await?.pop() {
        Some(Err(why)) => Err(why),
        Some(Ok(series)) if lock(&series.cell.state).standing == Standing::Damaged => {
            Err(shared.why_damaged(&name))
        }
        Some(Ok(_)) | None => inbox::take_rows(shared, &rows, Some(whose), open).await,
    };
    match taken {
        Err(why @ Error::Damaged { .. }) => {
            stop(shared, whose, &name, &why);
            Ok(None)
        }
        taken => taken,
    }
}

/// Has what is left of a series stay aside, since it is damaged once more, and what of it is in
/// memory go there.
fn stop(shared: &Shared, whose: &Whose, name: &Name, why: &Error) {
    let cell = lock(&shared.index.names).get(name).cloned();
    if let Some(cell) = cell.filter(|cell| lock(&cell.state).standing != Standing::Damaged) {
        let aside = aside::of_memory(shared, &cell, why);
        lock(&shared.flusher).set_aside(aside);
    }
    shared.note_damage(whose, why, Mark::Back);
}

/// The series whose points are aside, which can be read: its name, and its number if it has one.
async fn series_of(shared: &Shared, whose: &Whose) -> Result<Option<(Option<Id>, Name)>> {
    Ok(match whose {
        Whose::Unknown => None,
        Whose::Number(id) => names::name_of(shared, *id).await?.map(|name| (Some(*id), name)),
        Whose::Name(name) => Some((names::number_of(shared, name).await?, name.clone())),
    })
}

/// Says that what was set aside is on its way back, as letters all of it.
pub(super) async fn begin(shared: &Shared, whose: &Whose) -> Result<()> {
    if let Some((id, name)) = series_of(shared, whose).await? {
        let upto = match (shared.index.damage.mark(whose).1, id) {
            (Some(upto), _) => upto,
            (None, Some(id)) => LeavesUpto(nodes::trunk(shared, id).await?.last()),
            (None, None) => LeavesUpto(None),
        };
        let mut behind = None;
        loop {
            let rows = rows(shared, whose, behind.as_deref()).await?;
            let Some(last) = rows.last() else { break };
            make_letters(shared, &name, upto, &rows).await?;
            behind = Some(last.key.to_vec());
        }
    }
    let marked = Marked { mark: Mark::Back, sealed: None, why: String::new() };
    let (key, value) = (&shared.keys.damaged(whose), &marked.encode());
    retry::transact_all(&shared.database, |tr| async move {
        shared.check_owner(&tr).await?;
        tr.set(key, value);
        Ok(())
    })
    .await?;
    shared.index.damage.note_back(whose);
    Ok(())
}

/// Puts letters in the place of batches among some rows, of the points that no leaf has.
async fn make_letters(
    shared: &Shared,
    name: &Name,
    upto: LeavesUpto,
    rows: &[KeyValue],
) -> Result<()> {
    let mut made = Vec::new();
    for row in rows {
        let (Row::Batch, batch) = Row::split(&row.value) else { continue };
        let points = tail::decode(batch)?.into_iter().map(|(_, point)| point);
        let points: Vec<Point> = points.filter(|point| !upto.has(point.time)).collect();
        made.push((&row.key, aside::letters(name, &points)));
    }
    if made.is_empty() {
        return Ok(());
    }
    let made = &made;
    retry::transact_all(&shared.database, |tr| async move {
        shared.check_owner(&tr).await?;
        for (key, letters) in made {
            tr.clear(key);
            for (letter, number) in letters.iter().zip(0..) {
                match number {
                    0 => tr.set(key, letter),
                    _ => tr.set(Keys::aside_behind(key, number), letter),
                }
            }
        }
        Ok(())
    })
    .await
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
