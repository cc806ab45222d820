//! Whose keys a request names, before it is known what it comes to.
//!
//! A key is the tenant's whose id it begins with. A range meets all whose keys lie in it, be its
//! ends no tenant's; a selector that leads away from its key the one that stands next to it.
//!
//! Always: a request meets [`MOST_MET`] tenants at most, those of a range from where it is read.

use plinth_types::{KeySelector, RangeRead};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Tenants with quotas that a request keeps to at most.
pub(super) const MOST_MET: usize = 32;

/// What a tenant's keys begin with.
pub(super) type Id = [u8; 8];

/// Of the tenants that have quotas, those that a request names.
pub(crate) struct Met<'a, B> {
    tenants: &'a BTreeMap<Id, B>,
    ids: BTreeSet<Id>,
}

/// Where a key stands among ids: its first bytes, with zeros for those that it lacks.
fn place(key: &[u8]) -> Id {
    let mut id = Id::default();
    id.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    id
}

impl<'a, B> Met<'a, B> {
    pub(super) fn new(tenants: &'a BTreeMap<Id, B>) -> Self {
        Self { tenants, ids: BTreeSet::new() }
    }

    /// In the order of their keys, so that whoever names the same keeps to the same.
    pub(super) fn all(&self) -> impl Iterator<Item = &'a B> {
        self.ids.iter().filter_map(|id| self.tenants.get(id))
    }

    fn add(&mut self, id: Option<Id>) {
        if let Some(id) = id
            && self.ids.len() < MOST_MET
        {
            self.ids.insert(id);
        }
    }

    /// The request names a key.
    pub(crate) fn key(&mut self, key: &[u8]) {
        let id = key.first_chunk().copied();
        self.add(id.filter(|id| self.tenants.contains_key(id)));
    }

    /// The request names the keys from one up to, and without, another.
    pub(crate) fn range(&mut self, begin: &[u8], end: &[u8], is_reverse: bool) {
        if begin >= end {
            return;
        }
        let last = place(end);
        let last = if end.len() > last.len() { Bound::Included } else { Bound::Excluded }(last);
        let named = self.tenants.range((Bound::Included(place(begin)), last)).map(|(id, _)| *id);
        match is_reverse {
            true => named.rev().take(MOST_MET).for_each(|id| self.add(Some(id))),
            false => named.take(MOST_MET).for_each(|id| self.add(Some(id))),
        }
    }

    /// The request asks where a selector leads. One that leads away from a key of some length ends
    /// among its like, unless it leads far.
    pub(crate) fn selector(&mut self, selector: &KeySelector) {
        let KeySelector { key, offset, .. } = selector;
        self.key(key);
        let place = place(key);
        if *offset < 0 || *offset == 0 && key.len() <= place.len() {
            self.add(self.tenants.range(..place).next_back().map(|(id, _)| *id));
        }
        if *offset > 1 {
            let above = (Bound::Excluded(place), Bound::Unbounded);
            self.add(self.tenants.range(above).next().map(|(id, _)| *id));
        }
    }

    /// The request reads a range.
    pub(crate) fn read(&mut self, read: &RangeRead) {
        self.range(&read.begin.key, &read.end.key, read.reverse);
        self.selector(&read.begin);
        // Where it ends before its key it names no more than the range does.
        if read.end.offset > 1 {
            self.selector(&read.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenants(ids: &[u64]) -> BTreeMap<Id, u64> {
        ids.iter().map(|id| (id.to_be_bytes(), *id)).collect()
    }

    fn met(tenants: &BTreeMap<Id, u64>, name: impl FnOnce(&mut Met<'_, u64>)) -> Vec<u64> {
        let mut met = Met::new(tenants);
        name(&mut met);
        met.all().copied().collect()
    }

    fn key(id: u64, rest: &[u8]) -> Vec<u8> {
        [&id.to_be_bytes(), rest].concat()
    }

    /// Whether a key of a tenant may lie in a range: keys as they come, shorter and longer than
    /// ids.
    #[test]
    fn a_range_meets_all_whose_keys_may_lie_in_it() {
        let tenants = tenants(&[3, 0x100, 0x101, 0x1_0000, u64::MAX]);
        let mut places = vec![Vec::new(), vec![0], vec![0; 7], vec![0; 9], b"k".to_vec()];
        for id in [2, 3, 4, 0xff, 0x100, 0x101, 0x102, 0x1_0000, 0x1_0001, u64::MAX] {
            places.extend([&b""[..], b"\x00", b"m", b"\xff\xff"].map(|rest| key(id, rest)));
            places.push(key(id, b"")[..7].to_vec());
        }
        for begin in &places {
            for end in &places {
                let meets = |id: &u64| {
                    let (first, behind) = (key(*id, b""), id.checked_add(1).map(|id| key(id, b"")));
                    begin < end && first < *end && behind.is_none_or(|behind| *begin < behind)
                };
                let expected: Vec<_> = tenants.values().copied().filter(meets).collect();
                for is_reverse in [false, true] {
                    let found = met(&tenants, |met| met.range(begin, end, is_reverse));
                    assert_eq!(found, expected, "{begin:?} to {end:?}");
                }
            }
        }
    }

    #[test]
    fn a_range_over_many_meets_those_from_where_it_is_read() {
        let ids: Vec<_> = (0..100).collect();
        let tenants = tenants(&ids);
        let all = |is_reverse| met(&tenants, |met| met.range(b"", b"\xff", is_reverse));
        assert_eq!((all(false), all(true)), (ids[..MOST_MET].to_vec(), ids[68..].to_vec()));
        let keys =
            |met: &mut Met<'_, u64>| ids.iter().rev().for_each(|id| met.key(&key(*id, b"k")));
        assert_eq!(met(&tenants, keys).len(), MOST_MET);
    }

    #[test]
    fn a_selector_meets_the_one_next_to_it_where_it_may_lead_there() {
        let tenants = tenants(&[10, 20, 30]);
        let meets = |key: Vec<u8>, offset| {
            met(&tenants, |met| met.selector(&KeySelector::new(key, false, offset)))
        };
        assert_eq!(meets(key(20, b"k"), 1), [20]);
        assert_eq!(meets(key(20, b"k"), 0), [20]);
        assert_eq!(meets(key(20, b"k"), -1), [10, 20]);
        assert_eq!(meets(key(20, b"k"), 2), [20, 30]);
        assert_eq!(meets(key(21, b""), 0), [20], "from the end of a tenant's keys");
        assert_eq!(meets(key(25, b"k"), 0), [] as [u64; 0], "it is another's, who has no quota");
        assert_eq!((meets(Vec::new(), -9), meets(vec![0xff], 9)), (vec![], vec![]));
        let read = |begin, end| RangeRead { begin, end, limit: 1, target_bytes: 1, reverse: false };
        let at = |key: Vec<u8>, offset| KeySelector::new(key, false, offset);
        let reads = |begin, end| met(&tenants, |met| met.read(&read(begin, end)));
        assert_eq!(reads(at(Vec::new(), 1), at(key(20, b"z"), 1)), [10, 20]);
        assert_eq!(reads(at(key(25, b"k"), -5), at(key(26, b""), 1)), [20]);
        assert_eq!(reads(at(key(25, b"k"), 1), at(key(26, b""), 7)), [30]);
    }
}
