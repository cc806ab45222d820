//! What the resolver is compared with: one ordered map, a step function from keys to the version of
//! their last write.

use plinth_resolver::{Transaction, Verdict};
use plinth_types::{RangeRef, Version};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// Steps that one call to [`OrderedMap::forget_before`] looks at.
const SWEEP: usize = 8000;

/// The map. A version counts from its key up to the next one.
pub struct OrderedMap {
    steps: BTreeMap<Box<[u8]>, Version>,
    /// Where the next sweep for forgotten steps goes on.
    sweep: Box<[u8]>,
}

impl OrderedMap {
    pub fn new() -> Self {
        Self { steps: BTreeMap::from([(Box::default(), 0)]), sweep: Box::default() }
    }

    pub fn resolve(
        &mut self,
        version: Version,
        batch: &[Transaction<'_>],
        verdicts: &mut Vec<Verdict>,
    ) {
        verdicts.clear();
        for Transaction { conflicts, .. } in batch {
            let verdict =
                if conflicts.reads.iter().any(|read| self.is_written(read, conflicts.read_version))
                {
                    Verdict::Conflict { reads: Vec::new() }
                } else {
                    conflicts.writes.iter().for_each(|write| self.write(write, version));
                    Verdict::Commit
                };
            verdicts.push(verdict);
        }
    }

    /// Joins some of the steps that are too old to matter.
    pub fn forget_before(&mut self, oldest: Version) {
        let mut dead = Vec::new();
        let (mut before, mut last) = (Version::MAX, None);
        let rest = (Excluded(&*self.sweep), Unbounded);
        for (position, (key, version)) in self.steps.range::<[u8], _>(rest).enumerate() {
            if before <= oldest && *version <= oldest {
                dead.push(key.clone());
            }
            before = *version;
            if position == SWEEP {
                last = Some(key.clone());
                break;
            }
        }
        self.sweep = last.unwrap_or_default();
        for key in dead {
            self.steps.remove(&key);
        }
    }

    fn at(&self, key: &[u8]) -> Version {
        let before = self.steps.range::<[u8], _>((Unbounded, Included(key))).next_back();
        before.map_or(0, |(_, version)| *version)
    }

    fn is_written(&self, range: RangeRef<'_>, after: Version) -> bool {
        let (begin, end) = (range.begin, range.end_key());
        let inside = (Excluded(begin), Excluded(&end[..]));
        self.at(begin) > after
            || self.steps.range::<[u8], _>(inside).any(|(_, version)| *version > after)
    }

    fn write(&mut self, range: RangeRef<'_>, version: Version) {
        let (begin, end) = (range.begin, range.end_key());
        let behind = self.at(&end);
        let inside = (Excluded(begin), Excluded(&end[..]));
        let covered: Vec<_> =
            self.steps.range::<[u8], _>(inside).map(|(key, _)| key.clone()).collect();
        for key in covered {
            self.steps.remove(&key);
        }
        self.steps.insert(end[..].into(), behind);
        self.steps.insert(begin.into(), version);
    }
}
