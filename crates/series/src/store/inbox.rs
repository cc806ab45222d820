//! The inbox: points that transactions write beside keys and values, for the owner of the series to
//! take in.
//!
//! ```text
//!   transaction: tr.set(key, value), points --commit--> row of the inbox, by versionstamp: in the order of the commits
//!                                                         |
//!   owner: on a read, and every now and then: --> memory of the series --one step--> batch of the tail, leaf or late points
//!                                                                        last step--> the row goes
//! ```
//!
//! Who writes owns nothing and reads nothing that it could conflict about, so such transactions
//! conflict with nobody because of their points. Beside the rows stands their size, which is added
//! to and taken from in the same commits: a reader sees by it whether anything waits, and a writer
//! that there is room; if not, it is told to try again later, until the owner has taken something
//! in. A row goes in the last step of the flush that saves its points. A crash between two steps
//! leaves points that are in the tree and in the inbox; they are taken in again, to the same end,
//! because whoever opens the series takes the inbox in before it writes or deletes anything else.
//! Points that a reader of the owner's has to see were committed before it began: it looks into the
//! inbox, and has it taken in if there is anything.

use super::aside::{self, Aside, Row};
use super::damage::Mark;
use super::increments::{Bases, Came};
use super::keys::{Keys, Whose};
use super::letter::{Letters, Opened, decode, grow, size};
use super::names::POSTED_END;
use super::record_mail::Mailed;
use super::{Cell, Place, Series, Shared, Standing, lock, names, retry};
use crate::error::{Error, Result};
use crate::record::{Kind, Record};
use crate::value::Point;
use plinth_client::{Database, RangeOptions, StreamingMode, Transaction};
use plinth_types::{Bytes, KeyValue, key_after};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rows that are taken in at a time; and bytes of records that they come to, beyond which no more
/// of them are.
const ROWS: usize = 64;
const PAGE_BYTES: usize = 8 << 20;

/// Whether anything waits, as `tr` sees it.
pub(super) async fn has_any(tr: &Transaction, keys: &Keys) -> plinth_types::Result<bool> {
    Ok(size(tr.snapshot().get(keys.inbox_size()).await?.as_ref()) != 0)
}

/// The key of the last row that there is.
pub(super) async fn last(database: &Database, keys: &Keys) -> Result<Option<Bytes>> {
    let range = &RangeOptions::prefix(keys.inbox()).limit(1).reverse(true);
    let first = |tr: Transaction| async move { tr.snapshot().get_range(range.clone()).await };
    let rows = retry::transact(database, first).await?.rows;
    Ok(rows.iter().next().map(|(key, _)| Bytes::copy_from_slice(key)))
}

/// The first rows, some at a time.
async fn rows(shared: &Shared) -> Result<Vec<KeyValue>> {
    let range = RangeOptions::prefix(shared.keys.inbox()).limit(ROWS).mode(StreamingMode::WantAll);
    let range = &range;
    let rows = |tr: Transaction| async move { tr.snapshot().range(range.clone()).collect().await };
    retry::transact(&shared.database, rows).await
}

/// The rows that a flush takes in: they go in its last step.
pub(super) struct Taken {
    /// Whether they are the inbox's; else they were set aside.
    is_mail: bool,
    /// The key of the first.
    first: Bytes,
    /// A key behind the last.
    end: Bytes,
    /// What all of them have.
    bytes: i64,
    /// Their records, which memory doesn't take.
    pub(super) records: Mailed,
    /// What of them can't be taken in.
    pub(super) aside: Aside,
}

impl Taken {
    /// Whether they were set aside, and are on their way back.
    pub(super) fn come_back(&self) -> bool {
        !self.is_mail
    }

    /// Whether the row of this key is among them, or before them.
    pub(super) fn reaches(&self, key: &[u8]) -> bool {
        self.end[..] > *key
    }

    /// Removes them. Doing so twice is the same as once: what is gone already is not taken from the
    /// size again, and since it is read with a conflict, a try whose answer was lost can't be under
    /// way still.
    pub(super) async fn remove(&self, tr: &Transaction, keys: &Keys) -> plinth_types::Result<()> {
        if tr.get(&self.first).await?.is_none() {
            return Ok(());
        }
        tr.clear_range(&self.first, &self.end);
        if self.is_mail {
            grow(tr, keys, -self.bytes);
        }
        Ok(())
    }
}

/// Puts the next rows' points into memory, for whoever has the turn and saves them now. `None` if
/// there are no more.
pub(super) async fn take_some(shared: &Arc<Shared>) -> Result<Option<Taken>> {
    let rows = rows(shared).await?;
    take_rows(shared, &rows, None, decode).await
}

/// The same of rows that lie behind each other in the inbox, or aside; `open` says what is in one.
pub(super) async fn take_rows(
    shared: &Arc<Shared>,
    rows: &[KeyValue],
    of: Option<&Whose>,
    open: impl Fn(&[u8]) -> Result<Opened>,
) -> Result<Option<Taken>> {
    if rows.is_empty() {
        return Ok(None);
    }
    let is_of_series = matches!(of, Some(Whose::Number(_) | Whose::Name(_)));
    let mut letters = Letters::with_capacity(rows.len());
    for row in rows {
        letters.push(match open(&row.value) {
            Ok(opened) => {
                let series = names::open(shared, &opened.names).await?;
                Ok((opened, series))
            }
            // Nothing of a series comes back before what comes first.
            Err(why @ Error::Damaged { .. }) if !is_of_series => Err(why),
            Err(why) => return Err(why),
        });
    }
    // Boxed, since what it reads is deep, and seldom wanted.
    let (mut bases, damaged, covered) = Box::pin(Bases::read(&letters)).await?;
    for (series, why) in damaged {
        if is_of_series {
            return Err(why);
        }
        // From now on its mail goes aside, and so does what is in memory of it.
        let memory = aside::of_memory(shared, &series.cell, &why);
        lock(&shared.flusher).set_aside(memory);
    }
    let (mut aside, mut mailed) = (Aside::default(), Mailed::default());
    let mut taken = 0;
    for (letter, row) in letters.into_iter().zip(rows).take(covered) {
        taken += 1;
        match letter {
            Ok(letter) => place(shared, letter, &mut bases, (&mut mailed, &mut aside))?,
            Err(why) => {
                let row = match of {
                    Some(_) => row.value.to_vec(),
                    None => Row::Letter.of(&row.value),
                };
                aside.add_row(shared, &Whose::Unknown, &why, row);
            }
        }
        if mailed.bytes() >= PAGE_BYTES {
            break;
        }
    }
    // Stamps ascend with the versions of commits, and all of them up to the version of the read
    // were there: none can come in between.
    let taken = &rows[..taken];
    let bytes = taken.iter().map(|row| row.value.len() as i64).sum();
    let (Some(first), Some(last)) = (taken.first(), taken.last()) else { return Ok(None) };
    let (first, end) = (first.key.clone(), key_after(&last.key));
    Ok(Some(Taken { is_mail: of.is_none(), first, end, bytes, records: mailed, aside }))
}

/// Puts what a letter has into memory, and among the records that are to be saved; what is of
/// damaged series goes aside.
fn place(
    shared: &Shared,
    (Opened { names, points, records }, series): (Opened, Vec<Result<Series>>),
    bases: &mut Bases,
    (mailed, aside): (&mut Mailed, &mut Aside),
) -> Result<()> {
    let mut refused: BTreeMap<usize, (Error, Vec<Record>)> = BTreeMap::new();
    for (which, record) in records {
        let why = match &series[which] {
            Ok(series) if lock(&series.cell.state).standing == Standing::Damaged => {
                shared.why_damaged(&names[which])
            }
            Ok(series) => {
                match bases.come(series, record, mailed) {
                    Came::Point(point) => {
                        take(shared, &series.cell, point)?;
                        bases.placed(series, point);
                    }
                    Came::Record(record) => mailed.add(&series.cell, record),
                    Came::Nothing => {}
                }
                continue;
            }
            Err(why) => why.clone(),
        };
        refused.entry(which).or_insert_with(|| (why, Vec::new())).1.push(record);
    }
    for (which, (why, records)) in refused {
        aside.add_records(shared, &names[which], &why, &records);
    }
    let mut refused: BTreeMap<usize, (Error, Vec<Point>)> = BTreeMap::new();
    for (which, point) in points {
        let taken = match &series[which] {
            Ok(series) => take(shared, &series.cell, point).map(|()| bases.placed(series, point)),
            Err(why) => Err(why.clone()),
        };
        if let Err(why) = taken {
            refused.entry(which).or_insert_with(|| (why, Vec::new())).1.push(point);
        }
    }
    for (which, (why, points)) in refused {
        aside.add(shared, &names[which], &why, &points);
    }
    Ok(())
}

/// Takes a point that is committed into the memory of its series, unless that is damaged.
fn take(shared: &Shared, cell: &Arc<Cell>, point: Point) -> Result<()> {
    let mut state = lock(&cell.state);
    if state.standing == Standing::Damaged {
        return Err(shared.why_damaged(&cell.name));
    }
    let place = state.take(point);
    if place == Place::More {
        shared.open_points.fetch_add(1, Ordering::Relaxed);
    }
    match place {
        Place::Late => shared.note(cell, &mut state, &[], 1),
        _ => shared.note(cell, &mut state, &[point], 0),
    }
    Ok(())
}

/// Puts the points of rows into the memory of a store that only reads.
pub(super) async fn look(shared: &Arc<Shared>, rows: &[KeyValue]) -> Result<()> {
    let mut unknown = POSTED_END;
    for row in rows {
        let Opened { names, points, records } = match decode(&row.value) {
            Err(why @ Error::Damaged { .. }) => {
                shared.note_damage(&Whose::Unknown, &why, Mark::None);
                continue;
            }
            opened => opened?,
        };
        let mut cells = Vec::with_capacity(names.len());
        for name in &names {
            cells.push(match names::known(shared, name, &mut unknown).await {
                Err(why @ Error::Damaged { .. }) => {
                    shared.note_damage(&Whose::Name(name.clone()), &why, Mark::None);
                    None
                }
                cell => Some(cell?),
            });
        }
        for (which, point) in points {
            let Some(cell) = &cells[which] else { continue };
            put(shared, cell, point);
        }
        let series = |cell: Arc<Cell>| Series { shared: shared.clone(), cell, is_looked_up: true };
        let there = |cell: Option<Arc<Cell>>| cell.map(series).ok_or(Error::Deleted);
        let series = cells.into_iter().map(there).collect();
        look_at_records(shared, records, series).await?;
        shared.check_room()?;
    }
    Ok(())
}

/// Puts what records come to into the memory of a store that only reads.
async fn look_at_records(
    shared: &Shared,
    records: Vec<(usize, Record)>,
    series: Vec<Result<Series>>,
) -> Result<()> {
    let letter = Opened { names: Vec::new(), points: Vec::new(), records };
    let letters = Letters::from([Ok((letter, series))]);
    let (mut bases, damaged, _) = Box::pin(Bases::read(&letters)).await?;
    for (series, why) in &damaged {
        shared.note_damage(&Whose::Name(series.cell.name.clone()), why, Mark::None);
    }
    let is_damaged = |one: &Series| damaged.iter().any(|(series, _)| series.cell.id == one.cell.id);
    for (Opened { records, .. }, series) in letters.into_iter().flatten() {
        for (which, record) in records {
            let Ok(series) = &series[which] else { continue };
            if !Kind::KEPT.contains(&record.kind) && is_damaged(series) {
                continue;
            }
            let mut posted = lock(&shared.index.posted);
            match bases.come(series, record, &posted) {
                Came::Point(point) => {
                    put(shared, &series.cell, point);
                    bases.placed(series, point);
                }
                Came::Record(record) => posted.add(&series.cell, record),
                Came::Nothing => {}
            }
        }
    }
    Ok(())
}

/// Puts a point into the memory of a store that only reads.
fn put(shared: &Shared, cell: &Cell, point: Point) {
    if lock(&cell.state).take(point) == Place::More {
        shared.open_points.fetch_add(1, Ordering::Relaxed);
    }
}
