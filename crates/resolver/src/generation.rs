//! One stretch of time: what was written in it, and whether a read overlaps that.
//!
//! Only the newest generation grows; old ones go away whole. Single keys go into a hash table at
//! once. In order they are put only as far as range reads ask for it: `ordered` has those with
//! stamps above `from` and up to `upto`. A range read looks at the rest of the log one by one, and
//! earns [`Credit`] for that, which pays for putting keys in order. So what is spent on both stays
//! within about twice the better of the two whatever comes, no range read causes much more work
//! than it does itself, and where there are no range reads nothing is ever put in order.

use crate::keys::{Keys, common_prefix, eight_bytes};
use crate::points::{Points, Stamp};
use crate::tree::{Kind, Tree};
use plinth_types::Version;

/// Putting a key in order costs about as much as looking at this many keys of the log.
const LOOKS_PER_INSERT: u32 = 32;

/// Most credit that can be had: the keys that one range read may put in order in each generation.
const MOST_CREDIT: u32 = 16_384;

/// Key bytes with which a generation counts as full.
const KEY_BYTES: usize = 8 << 20;

/// What a generation has.
pub(crate) struct Generation {
    keys: Keys,
    points: Points,
    ordered: Ordered,
    ranges: Ranges,
    /// Those with writes, in order. A batch that fills a generation goes on in the next one, where
    /// it is noted again.
    batches: Vec<Batch>,
}

/// A batch with writes; theirs are the stamps above `points`.
struct Batch {
    version: Version,
    points: Stamp,
}

/// Points in order: those above stamp `from` and up to `upto`.
struct Ordered {
    tree: Tree,
    from: Stamp,
    upto: Stamp,
}

/// The written ranges. A range's stamp is its batch's place in the list of batches, counted from 1.
struct Ranges {
    tree: Tree,
    count: usize,
    newest: Stamp,
}

/// Where the writes begin that are too new for a read: above these stamps.
#[derive(Clone, Copy, Default)]
pub(crate) struct After {
    points: Stamp,
    ranges: Stamp,
}

/// How many keys may be put in order, for keys that were looked at.
#[derive(Default)]
pub(crate) struct Credit(u32);

impl Credit {
    fn earn(&mut self, looks: u32) {
        self.0 = (self.0 + looks / LOOKS_PER_INSERT).min(MOST_CREDIT);
    }

    /// Takes as much as there is, up to `wanted`.
    fn spend(&mut self, wanted: u32) -> u32 {
        let spent = wanted.min(self.0);
        self.0 -= spent;
        spent
    }
}

impl Generation {
    /// An empty one with room for this many writes; a range counts as two.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            keys: Keys::new(),
            points: Points::with_capacity(capacity),
            ordered: Ordered { tree: Tree::new(Kind::Points), from: 0, upto: 0 },
            ranges: Ranges { tree: Tree::new(Kind::Steps), count: 0, newest: 0 },
            batches: Vec::new(),
        }
    }

    /// Makes it as good as new, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.points.clear();
        self.ordered.tree.clear();
        (self.ordered.from, self.ordered.upto) = (0, 0);
        self.ranges.tree.clear();
        (self.ranges.count, self.ranges.newest) = (0, 0);
        self.batches.clear();
    }

    pub(crate) fn capacity(&self) -> usize {
        self.points.capacity()
    }

    /// Writes so far; a range counts as two.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.points.newest() as usize + 2 * self.ranges.count
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.capacity() || self.keys.len() >= KEY_BYTES
    }

    /// The version of the newest write.
    #[inline]
    pub(crate) fn newest(&self) -> Option<Version> {
        self.batches.last().map(|batch| batch.version)
    }

    /// The version of the oldest write.
    pub(crate) fn oldest(&self) -> Option<Version> {
        self.batches.first().map(|batch| batch.version)
    }

    /// Writes from now on are of this version, which is none below any before it.
    pub(crate) fn begin_batch(&mut self, version: Version) {
        if self.newest() != Some(version) {
            self.batches.push(Batch { version, points: self.points.newest() });
        }
    }

    /// What is too new for a read at `version`.
    pub(crate) fn after(&self, version: Version) -> After {
        // Most reads are a few batches old.
        let near = self.batches.len().saturating_sub(8);
        let older = |batch: &Batch| batch.version <= version;
        let first = if near == 0 || older(&self.batches[near - 1]) {
            near + self.batches[near..].iter().take_while(|batch| older(batch)).count()
        } else {
            self.batches.partition_point(older)
        };
        let points = self.batches.get(first).map_or(self.points.newest(), |batch| batch.points);
        After { points, ranges: first as Stamp }
    }

    /// Brings what a key with this hash needs into the cache. What it gives means nothing.
    #[inline]
    pub(crate) fn touch(&self, hash: u64) -> u32 {
        self.points.touch(hash)
    }

    #[inline]
    pub(crate) fn write_point(&mut self, hash: u64, key: &[u8]) {
        let batch = self.batches.last().map_or(0, |batch| batch.points);
        self.points.write(&mut self.keys, hash, key, batch);
    }

    pub(crate) fn write_range(&mut self, begin: &[u8], end: &[u8]) {
        self.ranges.count += 1;
        self.ranges.newest = self.batches.len() as Stamp;
        self.ranges.tree.raise(&mut self.keys, begin, end, self.ranges.newest);
    }

    /// Whether `key` was written.
    #[inline]
    pub(crate) fn has_point(&self, hash: u64, key: &[u8], after: After) -> bool {
        self.points.written_after(&self.keys, hash, key, after.points)
            || self.ranges.newest > after.ranges
                && self.ranges.tree.is_raised(&self.keys, key, after.ranges)
    }

    /// Whether any key from `begin` up to `end` was written.
    pub(crate) fn has_any(
        &mut self,
        begin: &[u8],
        end: &[u8],
        after: After,
        credit: &mut Credit,
    ) -> bool {
        if self.ranges.newest > after.ranges
            && self.ranges.tree.any(&self.keys, begin, end, after.ranges)
        {
            return true;
        }
        let newest = self.points.newest();
        if newest <= after.points {
            return false;
        }
        self.put_in_order(after.points, credit);
        let Ordered { tree, from, upto } = &self.ordered;
        *upto > after.points && tree.any(&self.keys, begin, end, after.points)
            || self.look(begin, end, after.points.max(*upto), newest, credit)
            || self.look(begin, end, after.points, *from, credit)
    }

    /// Puts points above stamp `after` in order, as far as the credit goes: the newest ones first.
    fn put_in_order(&mut self, after: Stamp, credit: &mut Credit) {
        let Ordered { tree, from, upto } = &mut self.ordered;
        if from == upto {
            (*from, *upto) = (after, after);
        }
        let mut put = |stamp| tree.put(&self.keys, self.points.key_at(stamp), stamp);
        let newer = credit.spend(self.points.newest() - *upto);
        (*upto + 1..=*upto + newer).for_each(&mut put);
        *upto += newer;
        let older = credit.spend(from.saturating_sub(after));
        (*from - older + 1..=*from).rev().for_each(&mut put);
        *from -= older;
    }

    /// Whether a point above stamp `after` and up to `upto` lies between `begin` and `end`, by
    /// looking at each.
    fn look(
        &self,
        begin: &[u8],
        end: &[u8],
        after: Stamp,
        upto: Stamp,
        credit: &mut Credit,
    ) -> bool {
        if after >= upto {
            return false;
        }
        // Most keys outside differ in the last bytes of what the bounds, and so all keys between
        // them, have in common.
        let shared = common_prefix(begin, end);
        let probe = shared.saturating_sub(8);
        let mask = u64::MAX.checked_shl(64 - 8 * (shared - probe) as u32).unwrap_or(0);
        let wanted = eight_bytes(begin, probe) & mask;
        let found = self.points.between(after, upto).iter().any(|at| {
            let key = self.keys.get(*at);
            let outside = match key.get(probe..).and_then(|rest| rest.first_chunk()) {
                Some(bytes) => u64::from_be_bytes(*bytes) & mask != wanted,
                None => key.len() < shared,
            };
            !outside && begin <= key && key < end
        });
        credit.earn(upto - after);
        found
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.keys.memory()
            + self.points.memory()
            + self.ordered.tree.memory()
            + self.ranges.tree.memory()
            + self.batches.capacity() * size_of::<Batch>()
    }

    /// Checks everything against everything.
    ///
    /// # Panics
    /// If anything is wrong.
    pub(crate) fn check(&self, hash: impl Fn(&[u8]) -> u64) {
        let Self { keys, points, ordered, ranges, batches } = self;
        let older = |a: &Batch, b: &Batch| a.version < b.version && a.points <= b.points;
        assert!(batches.is_sorted_by(older), "batches are in order");
        assert!(
            batches.last().is_none_or(|batch| batch.points <= points.newest()),
            "a batch's writes exist"
        );
        points.check(keys, hash);

        assert!(
            ordered.from <= ordered.upto && ordered.upto <= points.newest(),
            "only points are put in order"
        );
        let mut expected = std::collections::BTreeMap::from([(&b""[..], 0)]);
        for (stamp, at) in (ordered.from + 1..).zip(points.between(ordered.from, ordered.upto)) {
            expected.insert(keys.get(*at), stamp);
        }
        let entries = ordered.tree.check(keys);
        let found = entries.iter().map(|(at, stamp)| (keys.get(*at), *stamp));
        assert!(
            found.eq(expected),
            "the ordered points are those of the log, with their newest stamps"
        );

        let steps = ranges.tree.check(keys);
        assert!(steps.len() <= 2 * ranges.count + 1, "a range has two bounds");
        assert_eq!(
            steps.iter().map(|step| step.1).max(),
            Some(ranges.newest),
            "the newest range is a step"
        );
        assert_eq!(steps.last().map(|step| step.1), Some(0), "no range goes on for ever");
        assert!(ranges.newest as usize <= batches.len(), "a range's batch exists");
    }
}
