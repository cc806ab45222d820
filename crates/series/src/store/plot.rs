//! Plots: where each part of the series is, and what the parts that are open in this process share.
//!
//! A place that is not divided has one plot, which is all of it. Which part a series is in is said
//! by its canonical name and the number of parts, so nobody has to ask; in the whole a series has
//! one number, in which that of its part stands.

use super::Settings;
use super::budget::Budget;
use super::keys::{Id, Keys};
use super::place::{Home, parts_of};
use crate::codec::MAX_LEAF_POINTS;
use crate::error::{Error, Result};
use crate::name::Name;
use plinth_client::{Database, Transaction};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// The part, of `of`, that a series is in: FNV-1a with 64 bits of the name's bytes, its upper half
/// folded into the lower one.
pub(super) fn part_of(name: &Name, of: usize) -> usize {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in name.as_str().bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    ((hash ^ hash >> 32) as usize) & (of - 1)
}

/// What the parts that are open in this process share.
pub(super) struct Whole {
    /// The place.
    pub(super) root: Keys,
    /// Those of each part.
    pub(super) keys: Vec<Keys>,
    /// What queries hold.
    pub(super) queries: Arc<Budget>,
    /// Bytes of memory that the series take that are known to those who own parts.
    pub(super) known_bytes: AtomicUsize,
    /// And to those who post to others' parts, which may become this process's while they do.
    pub(super) posted_bytes: AtomicUsize,
}

impl Whole {
    pub(super) fn new(root: Keys, parts: usize, query_bytes: usize) -> Arc<Self> {
        let keys = match parts {
            1 => vec![root.clone()],
            _ => (0..parts).map(|number| root.part(number)).collect(),
        };
        let queries = Arc::new(Budget::new(query_bytes));
        let (known_bytes, posted_bytes) = Default::default();
        Arc::new(Self { root, keys, queries, known_bytes, posted_bytes })
    }

    /// Fails if the place is not divided as it was taken to be: somebody made it meanwhile, or its
    /// rows were cleared. Puts that among the transaction's read conflicts: who divides a place
    /// then meets with whoever knows of no parts, in whatever order they commit.
    pub(super) async fn check(&self, tr: &Transaction) -> Result<()> {
        let format = tr.get(self.root.format()).await?;
        match parts_of(format.as_deref())? {
            parts if parts == self.parts() => Ok(()),
            _ => Err(Error::NotOwner),
        }
    }

    /// How many parts there are.
    pub(super) fn parts(&self) -> usize {
        self.keys.len()
    }

    /// The number in the whole of a series that has the number `id` in a part.
    pub(super) fn id(&self, id: Id, part: usize) -> Id {
        id * self.parts() as u64 + part as u64
    }

    /// The part of a series with this number in the whole, and its number there.
    pub(super) fn within(&self, id: Id) -> (usize, Id) {
        let parts = self.parts() as u64;
        ((id % parts) as usize, id / parts)
    }
}

/// Where one part is, and what it needs of the whole.
#[derive(Clone)]
pub(super) struct Plot {
    pub(super) database: Database,
    pub(super) home: Home,
    pub(super) number: usize,
    pub(super) whole: Arc<Whole>,
    pub(super) settings: Settings,
}

impl Plot {
    /// The only part of a place that is not divided.
    pub(super) fn only(database: &Database, settings: Settings) -> Self {
        let home = Home::of(database, &settings);
        let whole = Whole::new(home.keys.clone(), 1, settings.query_bytes);
        let settings = divided(settings, 1);
        Self { database: database.clone(), home, number: 0, whole, settings }
    }
}

/// What each of so many parts may have of what there may be in all.
pub(super) fn of_each(all: usize, parts: usize) -> usize {
    all.div_ceil(parts)
}

/// The settings of each of so many parts: what bounds memory and rows is divided, but for what all
/// of them count together.
pub(super) fn divided(settings: Settings, parts: usize) -> Settings {
    let share = |all: usize| of_each(all, parts);
    Settings {
        leaf_points: settings.leaf_points.clamp(1, MAX_LEAF_POINTS),
        tail_bytes: share(settings.tail_bytes),
        open_points: share(settings.open_points),
        inbox_bytes: share(settings.inbox_bytes),
        unsaved_points: share(settings.unsaved_points),
        ..settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a series is was settled by whoever made the place: it may never change.
    #[test]
    fn a_name_is_in_the_part_that_the_format_says() {
        let part = |name: &str, of| part_of(&Name::parse(name).unwrap(), of);
        let names = ["cpu", "cpu host=a", "cpu host=b", "cpu.user core=0 host=a", "!deploy app=x"];
        assert_eq!(names.map(|name| part(name, 1)), [0; 5]);
        assert_eq!(names.map(|name| part(name, 8)), [0, 2, 7, 2, 4]);
        assert_eq!(names.map(|name| part(name, 128)), [80, 18, 71, 98, 100]);
        let mut counts = [0_u32; 8];
        for host in 0..8000 {
            counts[part(&format!("cpu host=h{host}"), 8)] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }
}
