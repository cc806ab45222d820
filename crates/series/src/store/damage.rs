//! What a store knows to be damaged: whose rows are not what was written, and why. What of their
//! points is set aside is the affair of `aside.rs`.

use super::keys::Whose;
use super::{Shared, lock};
use crate::error::Error;
use crate::name::Name;
use plinth_env::Burst;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is known to be damaged.
#[derive(Default)]
pub(super) struct Damage {
    known: Mutex<BTreeMap<Whose, Known>>,
    /// Points that were set aside since the store was opened.
    pub(super) points: AtomicU64,
    told: Burst,
}

struct Known {
    why: Error,
    /// Whether that stands in the database, so that what was in memory of it is set aside.
    is_marked: bool,
}

impl Damage {
    /// Whether nothing is known to be damaged, as nearly always.
    pub(super) fn is_none(&self) -> bool {
        lock(&self.known).is_empty()
    }

    /// Why a series is taken for damaged, if that stands in the database.
    pub(super) fn of(&self, whose: &Whose) -> Option<Error> {
        lock(&self.known).get(whose).filter(|known| known.is_marked).map(|known| known.why.clone())
    }

    /// It isn't: it can be read, or was deleted.
    pub(super) fn forget(&self, whose: &Whose, also_marked: bool) {
        let mut known = lock(&self.known);
        if known.get(whose).is_some_and(|known| also_marked || !known.is_marked) {
            known.remove(whose);
        }
    }

    /// How many series are damaged, and how many points were set aside since the store was opened.
    pub(super) fn count(&self) -> (usize, u64) {
        (lock(&self.known).len(), self.points.load(Ordering::Relaxed))
    }

    /// What is damaged, and why.
    pub(super) fn list(&self) -> Vec<(String, String)> {
        let told = |(whose, known): (&Whose, &Known)| (called(whose), known.why.to_string());
        lock(&self.known).iter().map(told).collect()
    }
}

/// How people call what is damaged.
pub(super) fn called(whose: &Whose) -> String {
    match whose {
        Whose::Unknown => "rows of the inbox".to_owned(),
        Whose::Number(id) => format!("series number {id}"),
        Whose::Name(name) => name.to_string(),
    }
}

impl Shared {
    /// Why a series is taken for damaged that was found to be.
    pub(super) fn why_damaged(&self, name: &Name) -> Error {
        let why = self.index.damage.of(&Whose::Name(name.clone()));
        why.unwrap_or_else(|| Error::damaged(format!("the series {name}"), "it was found to be"))
    }

    /// Notes that something is damaged; tells it, if that is news.
    pub(super) fn note_damage(&self, whose: &Whose, why: &Error, is_marked: bool) {
        let mut known = lock(&self.index.damage.known);
        let before = known.get(whose).map(|known| known.is_marked);
        if before == Some(true) || (before.is_some() && !is_marked) {
            return;
        }
        known.insert(whose.clone(), Known { why: why.clone(), is_marked });
        drop(known);
        if self.index.damage.told.note(1, self.database.endpoint().env().now()) {
            tracing::error!(series = called(whose), error = %why, "a series is damaged: no points of it are taken, and what was acknowledged of them is set aside");
        }
    }
}
