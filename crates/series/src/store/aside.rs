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
use super::letter::{self, Letter};
use super::{Cell, Shared, Standing, State, lock, tail};
use crate::error::Error;
use crate::name::Name;
use crate::value::{Point, Points};
use plinth_client::Transaction;
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
    /// Adds points of a series that are in no leaf, in the order in which they came.
    pub(super) fn add(&mut self, shared: &Shared, name: &Name, why: &Error, points: &[Point]) {
        let mut rows = Vec::new();
        let mut letter = Letter::default();
        letter.add_all(name, points, &mut rows);
        rows.extend(letter.rest());
        let whose = Whose::Name(name.clone());
        let rows = rows.iter().map(|row| Row::Letter.of(row));
        self.rows.extend(rows.map(|row| (whose.clone(), row)));
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
        self.rows.extend(batches.map(|batch| (whose.clone(), Row::Batch.of(&batch))));
        self.note(shared, whose, why, points.len());
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
        let mut all = Vec::new();
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
        self.damaged.is_empty() && self.rows.is_empty()
    }

    /// Writes it, in a transaction.
    pub(super) fn write(&self, tr: &Transaction, keys: &Keys) {
        for whose in &self.fresh {
            let (begin, end) = keys.aside(whose);
            tr.clear_range(begin, end);
        }
        for (whose, row) in &self.rows {
            tr.set_versionstamped_key(keys.aside_row(whose, letter::next()), row);
        }
        for (whose, marked) in &self.damaged {
            tr.set(keys.damaged(whose), marked.encode());
        }
    }
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
    aside.add(shared, &cell.name, &why, &points);
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
