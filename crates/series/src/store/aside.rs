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
//! in the commit that says that the series is damaged, before the tail may lose them, and mail goes
//! there instead of into the series. Nothing is written to the damaged series' own rows, so they
//! can be put back from a backup, and nothing of them goes but by a deletion of the series. Rows of
//! the inbox that can't be read are set aside as they are.
//!
//! What is set aside is no part of what is read. It is counted and told (`SeriesStore::damaged`).

use super::keys::{Id, Keys, Whose};
use super::letter::{self, Letter};
use super::{Cell, Shared, Standing, State, lock, tail};
use crate::error::Error;
use crate::name::Name;
use crate::value::{Point, Points};
use plinth_client::Transaction;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of rows in one commit, about.
const STEP_BYTES: usize = 1 << 20;
/// What the row of a damaged series begins with: what the tail has of it is aside; or it is on its
/// way back, and the tail may have some of it again.
const DAMAGED: u8 = 0;
pub(super) const BACK: u8 = 1;

/// What is to be set aside.
#[derive(Default)]
pub(super) struct Aside {
    damaged: BTreeMap<Whose, Error>,
    rows: Vec<(Whose, Vec<u8>)>,
}

impl Aside {
    /// Adds points of a series.
    pub(super) fn add(&mut self, shared: &Shared, whose: &Whose, why: &Error, points: &[Point]) {
        shared.index.damage.points.fetch_add(points.len() as u64, Ordering::Relaxed);
        let mut rows = Vec::new();
        match whose {
            Whose::Name(name) => {
                let mut letter = Letter::default();
                letter.add_all(name, points, &mut rows);
                rows.extend(letter.rest());
            }
            Whose::Number(id) => {
                let points: Vec<(Id, Point)> = points.iter().map(|point| (*id, *point)).collect();
                rows.extend(points.chunks(tail::BATCH_POINTS).map(tail::encode));
            }
            Whose::Unknown => {}
        }
        self.rows.extend(rows.into_iter().map(|row| (whose.clone(), row)));
        self.note(shared, whose, why);
    }

    /// Adds a row that can't be read, or not as whose.
    pub(super) fn add_row(&mut self, shared: &Shared, whose: &Whose, why: &Error, row: &[u8]) {
        self.rows.push((whose.clone(), row.to_vec()));
        self.note(shared, whose, why);
    }

    fn note(&mut self, shared: &Shared, whose: &Whose, why: &Error) {
        shared.note_damage(whose, why, true);
        self.damaged.entry(whose.clone()).or_insert_with(|| why.clone());
    }

    /// The same for several transactions. The first of them says what is damaged.
    pub(super) fn divided(self) -> Vec<Self> {
        let mut all = Vec::new();
        let (mut now, mut bytes) = (Self { damaged: self.damaged, rows: Vec::new() }, 0);
        for row in self.rows {
            bytes += row.1.len();
            now.rows.push(row);
            if bytes >= STEP_BYTES {
                all.push(std::mem::take(&mut now));
                bytes = 0;
            }
        }
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
        for (whose, why) in &self.damaged {
            tr.set(keys.damaged(whose), [&[DAMAGED], why.to_string().as_bytes()].concat());
        }
        for (whose, row) in &self.rows {
            tr.set_versionstamped_key(keys.aside_row(whose, letter::next()), row);
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
    aside.add(shared, &Whose::Name(cell.name.clone()), &why, &points);
    aside
}

/// Removes all that is known of the damage of a series that is deleted.
pub(super) fn clear(tr: &Transaction, keys: &Keys, (id, name): (Id, &Name)) {
    for whose in [Whose::Number(id), Whose::Name(name.clone())] {
        tr.clear(keys.damaged(&whose));
        let (begin, end) = keys.aside(&whose);
        tr.clear_range(begin, end);
    }
}
