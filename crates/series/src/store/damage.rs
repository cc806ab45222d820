//! What a store knows to be damaged: whose rows are not what was written, and why. What of their
//! points is set aside is the affair of `aside.rs`.
//!
//! A series that can be read again takes points as any other. Where one is damaged, a mark only
//! ever grows within a store's life, until it is forgotten: what the tail has is set aside once,
//! and the series takes no points from then on.

use super::keys::{Id, Whose};
use super::{Shared, lock};
use crate::error::Error;
use crate::name::Name;
use plinth_env::Burst;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What stands in the database of something that is damaged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Mark {
    /// Nothing yet.
    None,
    /// What is aside is on its way back: the tail may have some of it again, and all that is behind
    /// it is still aside.
    Back,
    /// What the tail has of it is aside.
    Aside,
}

/// Up to where leaves have the points of a series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LeavesUpto(pub(super) Option<i64>);

impl LeavesUpto {
    /// Whether a point that the tail had is in a leaf: then what came late lies over it, and it may
    /// be deleted.
    pub(super) fn has(self, time: i64) -> bool {
        self.0.is_some_and(|sealed| time <= sealed)
    }
}

/// What the row says of something that is damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Marked {
    pub(super) mark: Mark,
    /// If it is not what leaves have when the series is found whole: as it was written once.
    pub(super) sealed: Option<LeavesUpto>,
    /// For people.
    pub(super) why: String,
}

impl Marked {
    const ASIDE: u8 = 0;
    const BACK: u8 = 1;

    pub(super) fn encode(&self) -> Vec<u8> {
        let mark = if self.mark == Mark::Aside { Self::ASIDE } else { Self::BACK };
        let (known, sealed) = match self.sealed {
            None => (0, None),
            Some(LeavesUpto(None)) => (1, None),
            Some(LeavesUpto(sealed)) => (2, sealed),
        };
        let mut bytes = vec![mark, known];
        bytes.extend(sealed.into_iter().flat_map(i64::to_le_bytes));
        bytes.extend_from_slice(self.why.as_bytes());
        bytes
    }

    /// One that makes no sense says that what the tail has is aside.
    pub(super) fn decode(bytes: &[u8]) -> Self {
        let (mark, rest) = match bytes {
            [Self::BACK, rest @ ..] => (Mark::Back, rest),
            [_, rest @ ..] => (Mark::Aside, rest),
            [] => (Mark::Aside, bytes),
        };
        let (sealed, why) = match rest {
            [1, why @ ..] => (Some(LeavesUpto(None)), why),
            [2, rest @ ..] => match rest.split_first_chunk() {
                Some((time, why)) => (Some(LeavesUpto(Some(i64::from_le_bytes(*time)))), why),
                None => (None, rest),
            },
            [_, why @ ..] => (None, why),
            [] => (None, rest),
        };
        Self { mark, sealed, why: String::from_utf8_lossy(why).into_owned() }
    }
}

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
    mark: Mark,
    sealed: Option<LeavesUpto>,
    /// It can be read again, and takes points.
    is_returning: bool,
}

impl Known {
    fn is_damaged(&self) -> bool {
        !self.is_returning
    }
}

impl Damage {
    /// Whether nothing is known to be damaged, as nearly always.
    pub(super) fn is_none(&self) -> bool {
        lock(&self.known).is_empty()
    }

    /// Why a series is taken for damaged, if that stands in the database.
    pub(super) fn of(&self, whose: &Whose) -> Option<Error> {
        let known = lock(&self.known);
        let known = known.get(whose).filter(|known| known.is_damaged());
        known.filter(|known| known.mark >= Mark::Back).map(|known| known.why.clone())
    }

    /// As whose the points of a series are set aside that the tail has, or the memory: where those
    /// are that came before them, if any are aside.
    pub(super) fn holder(&self, id: Id, name: &Name) -> Whose {
        let number = Whose::Number(id);
        match self.mark(&number).0 {
            Mark::None => Whose::Name(name.clone()),
            Mark::Back | Mark::Aside => number,
        }
    }

    /// What stands in the database of it.
    pub(super) fn mark(&self, whose: &Whose) -> (Mark, Option<LeavesUpto>) {
        let known = lock(&self.known);
        known.get(whose).map_or((Mark::None, None), |known| (known.mark, known.sealed))
    }

    /// It can be read, and nothing of it stands in the database.
    pub(super) fn forget_unmarked(&self, whose: &Whose) {
        let mut known = lock(&self.known);
        if known.get(whose).is_some_and(|known| known.mark == Mark::None) {
            known.remove(whose);
        }
    }

    /// It can be read again, and this stands in the database.
    pub(super) fn note_returning(&self, whose: &Whose, marked: Marked) {
        let Marked { mark, sealed, why } = marked;
        let why = Error::damaged(called(whose), why);
        let known = Known { why, mark, sealed, is_returning: true };
        lock(&self.known).insert(whose.clone(), known);
    }

    /// What is aside is on its way back, as stands in the database.
    pub(super) fn note_back(&self, whose: &Whose) {
        if let Some(known) = lock(&self.known).get_mut(whose) {
            (known.mark, known.sealed) = (Mark::Back, None);
        }
    }

    /// It is whole again, or was deleted.
    pub(super) fn forget(&self, whose: &Whose) {
        lock(&self.known).remove(whose);
    }

    /// How many are damaged, and how many points were set aside since the store was opened.
    pub(super) fn count(&self) -> (usize, u64) {
        let count = lock(&self.known).values().filter(|known| known.is_damaged()).count();
        (count, self.points.load(Ordering::Relaxed))
    }

    /// What is damaged, and why.
    pub(super) fn list(&self) -> Vec<(String, String)> {
        let known = lock(&self.known);
        let damaged = known.iter().filter(|(_, known)| known.is_damaged());
        damaged.map(|(whose, known)| (called(whose), known.why.to_string())).collect()
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
    /// Why a series is taken for damaged, by its number or name, if that stands in the database.
    pub(super) fn damage_of(&self, id: Id, name: &Name) -> Option<(Whose, Error)> {
        let damage = &self.index.damage;
        if damage.is_none() {
            return None;
        }
        Whose::of(id, name).into_iter().find_map(|whose| Some((whose.clone(), damage.of(&whose)?)))
    }

    /// Why a series is taken for damaged that was found to be.
    pub(super) fn why_damaged(&self, name: &Name) -> Error {
        let why = self.index.damage.of(&Whose::Name(name.clone()));
        why.unwrap_or_else(|| Error::damaged(format!("the series {name}"), "it was found to be"))
    }

    /// Notes that something is damaged, and what stands in the database of that; tells it, if that
    /// is news.
    pub(super) fn note_damage(&self, whose: &Whose, why: &Error, mark: Mark) {
        self.note_marked(whose, why, (mark, None));
    }

    /// The same, with up to where leaves have its points if that stands there.
    pub(super) fn note_marked(
        &self,
        whose: &Whose,
        why: &Error,
        (mark, sealed): (Mark, Option<LeavesUpto>),
    ) {
        let damage = &self.index.damage;
        let mut known = lock(&damage.known);
        let before = known.get(whose);
        let is_news =
            |before: &Known| mark > before.mark || (mark == before.mark && before.is_returning);
        if !before.is_none_or(is_news) {
            return;
        }
        let sealed = before.and_then(|before| before.sealed).or(sealed);
        let damaged = Known { why: why.clone(), mark, sealed, is_returning: false };
        known.insert(whose.clone(), damaged);
        drop(known);
        if damage.told.note_alone(1, self.database.endpoint().env().now()) {
            tracing::error!(series = called(whose), error = %why, "a series is damaged: no points of it are taken, and what was acknowledged of them is set aside");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_the_database_is_read_as_it_was_written() {
        for mark in [Mark::Back, Mark::Aside] {
            for sealed in [None, Some(LeavesUpto(None)), Some(LeavesUpto(Some(-7)))] {
                let marked = Marked { mark, sealed, why: "2".to_owned() };
                assert_eq!(Marked::decode(&marked.encode()), marked);
            }
        }
        for damaged in [&b""[..], b"\0", b"\x07\x07", b"\0\x02abc"] {
            assert_eq!(Marked::decode(damaged).mark, Mark::Aside, "{damaged:?}");
        }
        let sealed = [None, Some(5)].map(LeavesUpto);
        assert_eq!([4, 5, 6].map(|time| sealed[1].has(time)), [true, true, false]);
        assert!(!sealed[0].has(i64::MIN));
    }
}
