//! Ranges of keys that were removed as a whole: one record whatever they cover.
//!
//! ```text
//!   Clears        b──────f        k───m          disjoint, ascending, never adjacent
//!   WindowClears  b──────f        k───m          between two boundaries: the versions of the clears
//!                 │  7 9 │   -    │ 9 │   -      that cover it, ascending
//! ```
//!
//! A table's clears hide what older tables have, never its own rows. The window's hide what the
//! engine has, from their version on; the keys that the window itself holds have tombstones of
//! their own.

use plinth_types::{Bytes, Version};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Ranges that do not touch each other, ascending.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Clears {
    ranges: Vec<(Bytes, Bytes)>,
}

impl Clears {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &(Bytes, Bytes)> {
        self.ranges.iter()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.ranges
            .iter()
            .map(|(begin, end)| begin.len() + end.len() + 2 * size_of::<Bytes>())
            .sum()
    }

    /// The range that covers a key.
    #[inline]
    pub fn covering(&self, key: &[u8]) -> Option<&(Bytes, Bytes)> {
        let after = self.ranges.partition_point(|(begin, _)| begin[..] <= *key);
        let range = &self.ranges[after.checked_sub(1)?];
        (*key < range.1[..]).then_some(range)
    }

    /// Whether every key of a range is covered. By one range, for those that touch are one.
    pub fn covers(&self, begin: &[u8], end: &[u8]) -> bool {
        begin >= end || self.covering(begin).is_some_and(|range| *end <= range.1[..])
    }

    /// Adds a range.
    pub fn add(&mut self, begin: &[u8], end: &[u8]) {
        if begin >= end {
            return;
        }
        let first = self.ranges.partition_point(|(_, other_end)| other_end[..] < *begin);
        let after = self.ranges.partition_point(|(other_begin, _)| other_begin[..] <= *end);
        let (mut low, mut high) = (Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end));
        if first < after {
            low = low.min(self.ranges[first].0.clone());
            high = high.max(self.ranges[after - 1].1.clone());
        }
        self.ranges.splice(first..after, [(low, high)]);
    }

    /// Adds the ranges of another.
    pub fn add_all(&mut self, other: &Self) {
        other.iter().for_each(|(begin, end)| self.add(begin, end));
    }

    /// The parts between two keys; `None` for no end.
    pub fn clipped(&self, begin: &[u8], end: Option<&[u8]>) -> Self {
        let first = self.ranges.partition_point(|(_, other_end)| other_end[..] <= *begin);
        let mut clipped = Self::new();
        for (low, high) in &self.ranges[first..] {
            if end.is_some_and(|end| low[..] >= *end) {
                break;
            }
            let low = if low[..] < *begin { Bytes::copy_from_slice(begin) } else { low.clone() };
            let high = match end {
                Some(end) if high[..] > *end => Bytes::copy_from_slice(end),
                _ => high.clone(),
            };
            clipped.ranges.push((low, high));
        }
        clipped
    }

    /// From the begin of the first to the end of the last.
    pub fn span(&self) -> Option<(&Bytes, &Bytes)> {
        Some((&self.ranges.first()?.0, &self.ranges.last()?.1))
    }

    /// Whether the ranges are as they must be, for those that were read from a file.
    pub fn are_sound(&self) -> bool {
        self.ranges.iter().all(|(begin, end)| begin < end)
            && self.ranges.windows(2).all(|pair| pair[0].1 < pair[1].0)
    }

    /// Adds a range behind all others, unchecked: see [`Clears::are_sound`].
    pub fn push(&mut self, begin: &[u8], end: &[u8]) {
        self.ranges.push((Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end)));
    }
}

/// The window's cleared ranges with their versions.
#[derive(Default, Debug)]
pub(crate) struct WindowClears {
    /// From this boundary to the next: the versions of the clears that cover it, ascending.
    segments: BTreeMap<Bytes, Vec<Version>>,
    /// Versions in all segments.
    versions: usize,
}

impl WindowClears {
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// # Panics
    /// If versions of a segment don't ascend, or aren't as many as were counted.
    pub fn check_invariants(&self) {
        let ascend = |versions: &Vec<Version>| versions.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(self.segments.values().all(ascend), "versions of a cleared segment ascend");
        let counted: usize = self.segments.values().map(Vec::len).sum();
        assert_eq!(counted, self.versions, "versions of cleared segments");
        let last = self.segments.values().next_back();
        assert!(last.is_none_or(Vec::is_empty), "a cleared range without an end");
    }

    /// About how many bytes of memory.
    pub fn bytes(&self) -> usize {
        self.segments.len() * 128 + self.versions * size_of::<Version>()
    }

    /// Adds a range. Versions do not descend.
    pub fn add(&mut self, begin: &[u8], end: &[u8], version: Version) {
        if begin >= end {
            return;
        }
        self.cut(begin);
        self.cut(end);
        let range = (Bound::Included(begin), Bound::Excluded(end));
        for versions in self.segments.range_mut::<[u8], _>(range).map(|(_, versions)| versions) {
            if versions.last() != Some(&version) {
                versions.push(version);
                self.versions += 1;
            }
        }
    }

    /// Makes a boundary.
    fn cut(&mut self, at: &[u8]) {
        let before =
            self.segments.range::<[u8], _>((Bound::Unbounded, Bound::Included(at))).next_back();
        match before {
            Some((boundary, _)) if boundary[..] == *at => {}
            Some((_, versions)) => {
                let versions = versions.clone();
                self.versions += versions.len();
                self.segments.insert(Bytes::copy_from_slice(at), versions);
            }
            None => {
                self.segments.insert(Bytes::copy_from_slice(at), Vec::new());
            }
        }
    }

    /// Whether a key was cleared at or before `version`.
    pub fn covers(&self, key: &[u8], version: Version) -> bool {
        let segment =
            self.segments.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        segment.is_some_and(|(_, versions)| is_at(versions, version))
    }

    /// What was cleared at or before `version`, between two keys.
    pub fn at(&self, version: Version, begin: &[u8], end: Option<&[u8]>) -> Clears {
        let mut clears = Clears::new();
        if self.segments.is_empty() {
            return clears;
        }
        let before =
            self.segments.range::<[u8], _>((Bound::Unbounded, Bound::Included(begin))).next_back();
        let from = before.map_or(begin, |(boundary, _)| boundary);
        let mut open: Option<Bytes> = None;
        for (boundary, versions) in
            self.segments.range::<[u8], _>((Bound::Included(from), Bound::Unbounded))
        {
            match (is_at(versions, version), &open) {
                (true, None) => open = Some(boundary.clone()),
                (false, Some(low)) => {
                    clears.ranges.push((low.clone(), boundary.clone()));
                    open = None;
                }
                _ => {}
            }
            if end.is_some_and(|end| boundary[..] >= *end) && open.is_none() {
                break;
            }
        }
        assert!(open.is_none(), "the last boundary ends all ranges");
        clears.clipped(begin, end)
    }

    /// Forgets the clears up to `version`.
    pub fn forget(&mut self, version: Version) {
        for versions in self.segments.values_mut() {
            let gone = versions.partition_point(|at| *at <= version);
            versions.drain(..gone);
        }
        let mut before: Vec<Version> = Vec::new();
        let mut left = 0;
        self.segments.retain(|_, versions| {
            let needed = *versions != before;
            if needed {
                before.clone_from(versions);
                left += versions.len();
            }
            needed
        });
        self.versions = left;
    }
}

fn is_at(versions: &[Version], version: Version) -> bool {
    versions.first().is_some_and(|first| *first <= version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::simulated::Random;

    fn random_range(random: &mut Random) -> (Vec<u8>, Vec<u8>) {
        let mut key = || vec![random.index(40) as u8; 1 + random.index(2)];
        (key(), key())
    }

    #[test]
    fn clears_are_the_union_of_what_was_added() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let (mut clears, mut added) = (Clears::new(), Vec::new());
            for _ in 0..random.index(12) {
                let (begin, end) = random_range(&mut random);
                clears.add(&begin, &end);
                added.push((begin, end));
                assert!(clears.are_sound(), "seed {seed}");
            }
            let (low, high) = random_range(&mut random);
            let clipped = clears.clipped(&low, Some(&high));
            for byte in 0..42u8 {
                for key in [vec![byte], vec![byte; 2], vec![byte, 0]] {
                    let covered = added.iter().any(|(begin, end)| *begin <= key && key < *end);
                    assert_eq!(clears.covering(&key).is_some(), covered, "seed {seed}: {key:?}");
                    let inside = covered && low <= key && key < high;
                    assert_eq!(clipped.covering(&key).is_some(), inside, "seed {seed}: {key:?}");
                }
            }
        }
    }

    #[test]
    fn the_windows_clears_count_from_their_version_until_they_are_forgotten() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let (mut clears, mut added) = (WindowClears::default(), Vec::new());
            let (mut version, mut forgotten) = (0, 0);
            for _ in 0..random.index(14) {
                version = (version + random.index(2) as Version).max(forgotten + 1);
                let (begin, end) = random_range(&mut random);
                clears.add(&begin, &end, version);
                added.push((begin, end, version));
                if random.index(5) == 0 {
                    forgotten = forgotten.max(version - random.index(3) as Version);
                    clears.forget(forgotten);
                }
            }
            for at in forgotten + 1..=version {
                let snapshot = clears.at(at, &[], None);
                assert!(snapshot.are_sound(), "seed {seed}");
                for key in (0..42u8).flat_map(|byte| [vec![byte], vec![byte; 2]]) {
                    let hit = |(begin, end, cleared): &(Vec<u8>, Vec<u8>, Version)| {
                        *begin <= key && key < *end && *cleared <= at && *cleared > forgotten
                    };
                    let covered = added.iter().any(hit);
                    assert_eq!(clears.covers(&key, at), covered, "seed {seed}: {key:?} at {at}");
                    assert_eq!(
                        snapshot.covering(&key).is_some(),
                        covered,
                        "seed {seed}: {key:?} at {at}"
                    );
                }
            }
            clears.forget(version);
            assert!(clears.is_empty(), "seed {seed}");
        }
    }
}
