//! The sorted part of a node: its keys, and a head of each for the first comparison.
//!
//! A head is the next 8 (leaves) or 16 (inner nodes) bytes of a key behind the node's `depth`, as a
//! number. All keys of a node agree with its two bounds in as many bytes as the bounds have in
//! common; that is the depth, so heads tell keys apart even where all of them share a long prefix.
//! Equal heads are settled by the keys themselves.

use crate::keys::{KeyAt, Keys, common_prefix, eight_bytes, sixteen_bytes};

/// Entries of a node.
pub(super) const WIDTH: usize = 64;

/// How many heads one step of the search passes over.
const STRIDE: usize = 8;

/// The first bytes of a key, as a number that orders like them; zeros stand behind the key's end.
pub(super) trait Head: Copy + Ord {
    /// Behind or equal to every head: fills the places that no entry has.
    const LAST: Self;
    /// The head of `key` behind `depth`, which is at most its length.
    fn of(key: &[u8], depth: usize) -> Self;
}

impl Head for u64 {
    const LAST: Self = u64::MAX;

    #[inline]
    fn of(key: &[u8], depth: usize) -> Self {
        eight_bytes(key, depth)
    }
}

impl Head for u128 {
    const LAST: Self = u128::MAX;

    #[inline]
    fn of(key: &[u8], depth: usize) -> Self {
        sixteen_bytes(key, depth)
    }
}

/// Up to [`WIDTH`] keys in order, the first of which is the node's lower bound.
pub(super) struct Fences<H> {
    heads: [H; WIDTH],
    keys: [KeyAt; WIDTH],
    len: usize,
    depth: usize,
}

impl<H: Head> Fences<H> {
    /// The fences of a leftmost node: the empty key alone.
    pub(super) fn leftmost() -> Self {
        let mut fences =
            Self { heads: [H::LAST; WIDTH], keys: [Keys::EMPTY; WIDTH], len: 1, depth: 0 };
        fences.heads[0] = H::of(&[], 0);
        fences
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == WIDTH
    }

    pub(super) fn key(&self, position: usize) -> KeyAt {
        self.keys[position]
    }

    /// The bound above the entry at `position`; `upper` is the node's own.
    pub(super) fn upper(&self, position: usize, upper: Option<KeyAt>) -> Option<KeyAt> {
        self.keys[..self.len].get(position + 1).copied().or(upper)
    }

    /// How many entries are at or below `key`, and whether the last of them equals it. The key lies
    /// within the node's bounds, or is its upper bound.
    #[inline]
    pub(super) fn find(&self, keys: &Keys, key: &[u8]) -> (usize, bool) {
        let wanted = H::of(key, self.depth);
        let below = self.heads_below(wanted);
        if below < self.len && self.heads[below] == wanted {
            self.find_equal_heads(keys, key, wanted, below)
        } else {
            (below, false)
        }
    }

    /// How many entries are below `key`. The first `known` are; often no others.
    #[inline]
    pub(super) fn below(&self, keys: &Keys, key: &[u8], known: usize) -> usize {
        if known == self.len || H::of(key, self.depth) < self.heads[known] {
            return known;
        }
        let (count, equal) = self.find(keys, key);
        count - usize::from(equal)
    }

    /// Two short runs of comparisons that don't wait for each other, unlike those of a binary
    /// search: a node that is not in the cache costs one wait.
    #[inline]
    fn heads_below(&self, wanted: H) -> usize {
        let mut strides = 0;
        for last in (STRIDE - 1..WIDTH - 1).step_by(STRIDE) {
            strides += usize::from(self.heads[last] < wanted);
        }
        let mut count = strides * STRIDE;
        if let Some(stride) = self.heads[count..].first_chunk::<STRIDE>() {
            count += stride.iter().map(|head| usize::from(*head < wanted)).sum::<usize>();
        }
        count
    }

    fn find_equal_heads(&self, keys: &Keys, key: &[u8], wanted: H, below: usize) -> (usize, bool) {
        let equal = self.heads[below..self.len].iter().take_while(|head| **head == wanted).count();
        let entries = &self.keys[below..below + equal];
        let upto = entries.partition_point(|at| keys.get(*at) <= key);
        (below + upto, upto > 0 && keys.get(entries[upto - 1]) == key)
    }

    pub(super) fn insert(&mut self, keys: &Keys, position: usize, at: KeyAt) {
        self.heads.copy_within(position..self.len, position + 1);
        self.keys.copy_within(position..self.len, position + 1);
        self.heads[position] = H::of(keys.get(at), self.depth);
        self.keys[position] = at;
        self.len += 1;
    }

    /// Moves the upper half out. `upper` is the node's upper bound.
    pub(super) fn split(&mut self, keys: &Keys, upper: Option<KeyAt>) -> Self {
        let middle = self.len / 2;
        let mut right = Self { len: self.len - middle, depth: self.depth, ..Self::leftmost() };
        right.keys[..right.len].copy_from_slice(&self.keys[middle..self.len]);
        right.heads[..right.len].copy_from_slice(&self.heads[middle..self.len]);
        self.heads[middle..self.len].fill(H::LAST);
        self.len = middle;
        let bound = right.keys[0];
        self.bounds_changed(keys, Some(bound));
        right.bounds_changed(keys, upper);
        right
    }

    fn bounds_changed(&mut self, keys: &Keys, upper: Option<KeyAt>) {
        let depth = self.depth_below(keys, upper);
        if depth != self.depth {
            self.depth = depth;
            for (head, at) in self.heads.iter_mut().zip(&self.keys[..self.len]) {
                *head = H::of(keys.get(*at), depth);
            }
        }
    }

    /// How many bytes the lower bound has in common with this upper one.
    fn depth_below(&self, keys: &Keys, upper: Option<KeyAt>) -> usize {
        upper.map_or(0, |upper| common_prefix(keys.get(self.keys[0]), keys.get(upper)))
    }

    /// Checks order, heads and depth against the node's upper bound.
    ///
    /// # Panics
    /// If anything is wrong.
    pub(super) fn check(&self, keys: &Keys, upper: Option<KeyAt>) {
        let (used, free) = self.heads.split_at(self.len);
        assert!(!used.is_empty() && self.len < WIDTH, "a node is neither empty nor left full");
        assert!(free.iter().all(|head| *head == H::LAST), "a free place keeps a head");
        assert_eq!(
            self.depth,
            self.depth_below(keys, upper),
            "a node's depth is what its bounds share"
        );
        let entries: Vec<&[u8]> = self.keys[..self.len].iter().map(|at| keys.get(*at)).collect();
        assert!(entries.is_sorted_by(|a, b| a < b), "keys are out of order");
        assert!(
            upper.is_none_or(|upper| entries[self.len - 1] < keys.get(upper)),
            "a key is beyond its node"
        );
        for (head, key) in used.iter().zip(entries) {
            assert!(*head == H::of(key, self.depth), "a head is not its key's");
        }
    }
}
