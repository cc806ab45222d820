//! Series that are damaged: a row of theirs is not what was written, so nothing can be put behind
//! what there is of them. Whatever is wrong with one stays with that one.
//!
//! ```text
//!   damage is found  ----------->  (22, whose)              why: from now on points of it are refused
//!     by a flush, when the store     (23, whose, stamp, n)  what of it was in no leaf yet, and what
//!     is opened, or in the inbox                            comes by the inbox, in that order
//!   the next opening, if its rows can be read again  -->  all of it is taken in, then both are gone
//! ```
//!
//! Points that were acknowledged are never dropped: those in memory and in the tail are set aside
//! before the tail may lose them, in commits of which the last says that the series is damaged, and
//! mail goes there instead of into the series. Nothing is written to the damaged series' own rows,
//! so they can be put back from a backup, and nothing of them goes but by a deletion of the series.
//! Rows of the inbox that can't be read are set aside as they are.
//!
//! What is set aside is no part of what is read. It is counted and told (`SeriesStore::damaged`).

use super::damage::{Mark, Marked};
use super::keys::{Id, Keys, Whose};
use super::letter::{self, Letter, RecordLetter};
use super::{Cell, Shared, Standing, State, lock, tail};
use crate::error::Error;
use crate::name::Name;
use crate::record::Record;
use crate::value::{Point, Points};
use plinth_client::{RangeOptions, Transaction};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of rows in one commit, about.
const STEP_BYTES: usize = 1 << 20;

/// What is to be set aside.
#[derive(Default)]
pub(super) struct Aside {
    /// Of which nothing stood in the database before: what lies aside of those was never finished,
    /// and goes.
    fresh: BTreeSet<Whose>,
    /// Those that come before all that lies aside.
    before: Vec<(Whose, Vec<u8>)>,
    rows: Vec<(Whose, Vec<u8>)>,
    damaged: BTreeMap<Whose, Marked>,
}

/// A row of what is set aside: a letter, as the inbox has them; or a batch, as the tail had it,
/// whose points leaves may have, too.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Row {
    Letter = 0,
    Batch = 1,
}

impl Row {
    /// As it is written. A letter that can't be read is one, too.
    pub(super) fn of(self, bytes: &[u8]) -> Vec<u8> {
        [&[self as u8], bytes].concat()
    }

    /// What a row is, and the rest of it.
    pub(super) fn split(bytes: &[u8]) -> (Self, &[u8]) {
        match bytes {
            [1, rest @ ..] => (Self::Batch, rest),
            [_, rest @ ..] => (Self::Letter, rest),
            [] => (Self::Letter, bytes),
        }
    }
}

impl Aside {
    /// Adds points of a series that came by the inbox, in their order.
    pub(super) fn add(&mut self, shared: &Shared, name: &Name, why: &Error, points: &[Point]) {
        let whose = Whose::Name(name.clone());
        self.rows.extend(letters(name, points).into_iter().map(|row| (whose.clone(), row)));
        self.note(shared, &whose, why, points.len());
    }

    /// Adds records of a series that came by the inbox.
    pub(super) fn add_records(
        &mut self,
        shared: &Shared,
        name: &Name,
        why: &Error,
        records: &[Record],
    ) {
        let (whose, mut letter) = (Whose::Name(name.clone()), RecordLetter::default());
        let mut rows: Vec<_> =
            records.iter().filter_map(|record| letter.add(name, record)).collect();
        rows.extend(letter.rest());
        self.rows.extend(rows.iter().map(|row| (whose.clone(), Row::Letter.of(row))));
        self.note(shared, &whose, why, records.len());
    }

    /// Adds points that were in memory and are in no leaf, in the order in which they came.
    fn add_memory(&mut self, shared: &Shared, cell: &Cell, why: &Error, points: &[Point]) {
        let whose = shared.index.damage.holder(cell.id, &cell.name);
        self.add_older(shared, &whose, letters(&cell.name, points));
        self.note(shared, &whose, why, points.len());
    }

    /// Adds points that the tail has: which of them are in leaves can't be read.
    pub(super) fn add_batches(
        &mut self,
        shared: &Shared,
        whose: &Whose,
        why: &Error,
        points: &[(Id, Point)],
    ) {
        let batches = points.chunks(tail::BATCH_POINTS).map(tail::encode);
        self.add_older(shared, whose, batches.map(|batch| Row::Batch.of(&batch)).collect());
        self.note(shared, whose, why, points.len());
    }

    /// Adds rows of what is older than all that is still on its way back.
    fn add_older(&mut self, shared: &Shared, whose: &Whose, rows: Vec<Vec<u8>>) {
        let to = match shared.index.damage.mark(whose).0 {
            Mark::Back => &mut self.before,
            Mark::None | Mark::Aside => &mut self.rows,
        };
        to.extend(rows.into_iter().map(|row| (whose.clone(), row)));
    }

    /// Adds a row that can't be read, or not as whose.
    pub(super) fn add_row(&mut self, shared: &Shared, whose: &Whose, why: &Error, row: Vec<u8>) {
        self.rows.push((whose.clone(), row));
        self.note(shared, whose, why, 0);
    }

    fn note(&mut self, shared: &Shared, whose: &Whose, why: &Error, points: usize) {
        let damage = &shared.index.damage;
        damage.points.fetch_add(points as u64, Ordering::Relaxed);
        let (before, sealed) = damage.mark(whose);
        if before == Mark::None {
            self.fresh.insert(whose.clone());
        }
        shared.note_damage(whose, why, Mark::Aside);
        let marked = || Marked { mark: Mark::Aside, sealed, why: why.to_string() };
        self.damaged.entry(whose.clone()).or_insert_with(marked);
    }

    /// The same for several transactions. The last of them says what is damaged, when all is aside:
    /// a store that is opened in between finds it out anew, by the tail.
    pub(super) fn divided(self) -> Vec<Self> {
        let mut all = before_others(self.before);
        let (mut now, mut bytes) = (Self { fresh: self.fresh, ..Self::default() }, 0);
        for row in self.rows {
            if bytes >= STEP_BYTES {
                all.push(std::mem::take(&mut now));
                bytes = 0;
            }
            bytes += row.1.len();
            now.rows.push(row);
        }
        now.damaged = self.damaged;
        if !now.is_empty() {
            all.push(now);
        }
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.damaged.is_empty() && self.rows.is_empty() && self.before.is_empty()
    }

    /// Writes it, in a transaction.
    pub(super) async fn write(&self, tr: &Transaction, keys: &Keys) -> plinth_types::Result<()> {
        for whose in &self.fresh {
            let (begin, end) = keys.aside(whose);
            tr.clear_range(begin, end);
        }
        for of_one in self.before.chunk_by(|(one, _), (next, _)| one == next) {
            let Some((whose, _)) = of_one.first() else { continue };
            let (begin, end) = keys.aside(whose);
            let range = RangeOptions::from(begin..end).limit(1);
            let there = tr.snapshot().get_range(range).await?.rows;
            let first = there.iter().next().map(|(key, _)| key);
            for ((_, row), number) in of_one.iter().zip(0..) {
                tr.set(keys.aside_before(whose, first, number), row);
            }
        }
        for (whose, row) in &self.rows {
            tr.set_versionstamped_key(keys.aside_row(whose, letter::next()), row);
        }
        for (whose, marked) in &self.damaged {
            tr.set(keys.damaged(whose), marked.encode());
        }
        Ok(())
    }
}

/// Points of a series as rows of letters.
pub(super) fn letters(name: &Name, points: &[Point]) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    let mut letter = Letter::default();
    letter.add_all(name, points, &mut rows);
    rows.extend(letter.rest());
    rows.iter().map(|row| Row::Letter.of(row)).collect()
}

/// Transactions that write rows before all others, the newest first: as many of them as there are
/// when that breaks off are the end of what was, and change nothing where they come once more.
fn before_others(mut rows: Vec<(Whose, Vec<u8>)>) -> Vec<Aside> {
    let mut all = Vec::new();
    while !rows.is_empty() {
        let mut bytes = 0;
        let fit = rows.iter().rev().take_while(|row| {
            bytes += row.1.len();
            bytes <= STEP_BYTES
        });
        let fit = fit.count().max(1);
        let before = rows.split_off(rows.len().saturating_sub(fit));
        all.push(Aside { before, ..Aside::default() });
    }
    all
}

/// Takes all that is in memory of a series that turned out to be damaged, to be set aside. Whoever
/// does so has the turn; the series is noted nowhere else then.
pub(super) fn of_memory(shared: &Shared, cell: &Arc<Cell>, why: &Error) -> Aside {
    let why = Error::damaged(format!("the series {}", cell.name), why.to_string());
    let state = {
        let mut state = lock(&cell.state);
        let (is_noted, trunk) = (state.is_noted, state.trunk);
        let damaged = State { standing: Standing::Damaged, is_noted, trunk, ..State::default() };
        std::mem::replace(&mut *state, State { sealed: trunk.last(), ..damaged })
    };
    if let Some(since) = state.since {
        lock(&shared.flusher).forget_age(since, cell.id);
    }
    let leaves = state.sealing.iter().map(|leaf| &**leaf).chain([&state.open]);
    let mut points: Vec<Point> = leaves.flat_map(Points::iter).collect();
    shared.open_points.fetch_sub(points.len(), Ordering::Relaxed);
    // These lie over the others, of the same times.
    points.extend(state.merging.into_iter().chain(state.late));
    let mut aside = Aside::default();
    aside.add_memory(shared, cell, &why, &points);
    aside
}

/// Removes all that is known of the damage of a series that is deleted.
pub(super) fn clear(tr: &Transaction, keys: &Keys, (id, name): (Id, &Name)) {
    for whose in Whose::of(id, name) {
        tr.clear(keys.damaged(&whose));
        let (begin, end) = keys.aside(&whose);
        tr.clear_range(begin, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_in_the_order_in_which_they_come_back() {
        let keys = Keys::new(b"s/");
        for whose in [Whose::Number(3), Whose::Name(Name::parse("cpu host=a").unwrap())] {
            let (begin, end) = keys.aside(&whose);
            let stamped = keys.aside_row(&whose, 7);
            // Without the place of its stamp.
            let stamped = stamped[..stamped.len() - 4].to_vec();
            let second = keys.aside_before(&whose, Some(&stamped), 300);
            let first = keys.aside_before(&whose, Some(&Keys::aside_behind(&second, 1)), 0);
            let others = [keys.aside_before(&whose, None, 301), keys.aside_row(&whose, 8)];
            let all = [begin, first, second.clone(), Keys::aside_behind(&second, 1)];
            let all = all.into_iter().chain([others[0].clone(), stamped.clone()]);
            let behind = Keys::aside_behind(&stamped, 1);
            let all: Vec<_> = all.chain([behind, others[1].clone(), end]).collect();
            assert!(all.is_sorted_by(|one, next| one < next), "{all:?}");
        }
    }

    #[test]
    fn what_comes_before_others_is_written_from_its_end_on() {
        let row = |at: u8| (Whose::Number(1), vec![at; STEP_BYTES / 3]);
        let aside = Aside { before: (0..7).map(row).collect(), ..Aside::default() };
        let steps = aside.divided();
        let of = |step: &Aside| step.before.iter().map(|row| row.1[0]).collect::<Vec<_>>();
        assert_eq!(
            steps.iter().map(of).collect::<Vec<_>>(),
            [vec![4, 5, 6], vec![1, 2, 3], vec![0]]
        );
    }
}
