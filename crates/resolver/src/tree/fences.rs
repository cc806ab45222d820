//! The sorted part of a node: its keys, and a head of each for the first comparison.
//!
//! A head is the next 8 (leaves) or 16 (inner nodes) bytes of a key behind the node's `depth`, as a number. All keys of
//! a node agree with its two bounds in as many bytes as the bounds have in common; that is the depth, so heads tell keys
//! apart even where all of them share a long prefix. Equal heads are settled by the keys themselves.

use crate::keys::{KeyAt, Keys, common_prefix, first_bytes};

/// Entries of a node.
pub(super) const WIDTH: usize = 32;

/// How many heads one step of the search passes over.
const STRIDE: usize = 8;

/// The first bytes of a key, as a number that orders like them; zeros stand behind the key's end.
pub(super) trait Head: Copy + Ord {
    /// Behind or equal to every head: fills the places that no entry has.
    const LAST: Self;
    /// The head of a key of which this is left.
    fn of(rest: &[u8]) -> Self;
}

impl Head for u64 {
    const LAST: Self = u64::MAX;

    #[inline]
    fn of(rest: &[u8]) -> Self {
        first_bytes(rest)
    }
}

impl Head for u128 {
    const LAST: Self = u128::MAX;

    #[inline]
    fn of(rest: &[u8]) -> Self {
        if let Some(bytes) = rest.first_chunk() {
            return u128::from_be_bytes(*bytes);
        }
        let (high, low) = rest.split_at(rest.len().min(8));
        u128::from(first_bytes(high)) << 64 | u128::from(first_bytes(low))
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
        let mut fences = Self { heads: [H::LAST; WIDTH], keys: [Keys::EMPTY; WIDTH], len: 1, depth: 0 };
        fences.heads[0] = H::of(&[]);
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

    /// How many entries are at or below `key`, and whether the last of them equals it. The key lies within the node's
    /// bounds, or is its upper bound.
    #[inline]
    pub(super) fn find(&self, keys: &Keys, key: &[u8]) -> (usize, bool) {
        let rest = &key[self.depth..];
        let wanted = H::of(rest);
        let below = self.heads_below(wanted);
        if below < self.len && self.heads[below] == wanted {
            self.find_equal_heads(keys, rest, wanted, below)
        } else {
            (below, false)
        }
    }

    /// How many entries are below `key`. The first `known` are; often no others.
    #[inline]
    pub(super) fn below(&self, keys: &Keys, key: &[u8], known: usize) -> usize {
        if known == self.len || H::of(&key[self.depth..]) < self.heads[known] {
            return known;
        }
        let (count, equal) = self.find(keys, key);
        count - usize::from(equal)
    }

    /// Two short runs of comparisons that don't wait for each other, unlike those of a binary search: a node that is not
    /// in the cache costs one wait.
    #[inline]
    fn heads_below(&self, wanted: H) -> usize {
        let strides = self.heads.chunks_exact(STRIDE);
        let skip: usize = strides.map(|stride| usize::from(stride[STRIDE - 1] < wanted)).sum();
        let skip = skip * STRIDE;
        let rest = self.heads[skip.min(WIDTH - STRIDE)..].iter().take(STRIDE);
        let count: usize = rest.map(|head| usize::from(*head < wanted)).sum();
        skip.min(WIDTH - STRIDE) + count
    }

    fn find_equal_heads(&self, keys: &Keys, rest: &[u8], wanted: H, below: usize) -> (usize, bool) {
        let equal = self.heads[below..self.len].iter().take_while(|head| **head == wanted).count();
        let entries = &self.keys[below..below + equal];
        let rest_of = |at: &KeyAt| &keys.get(*at)[self.depth..];
        let upto = entries.partition_point(|at| rest_of(at) <= rest);
        (below + upto, upto > 0 && rest_of(&entries[upto - 1]) == rest)
    }

    pub(super) fn insert(&mut self, keys: &Keys, position: usize, at: KeyAt) {
        self.heads.copy_within(position..self.len, position + 1);
        self.keys.copy_within(position..self.len, position + 1);
        self.heads[position] = H::of(&keys.get(at)[self.depth..]);
        self.keys[position] = at;
        self.len += 1;
    }

    /// Adds an entry behind the others of a node that has no upper bound.
    pub(super) fn push(&mut self, keys: &Keys, at: KeyAt) {
        debug_assert_eq!(self.depth, 0);
        self.insert(keys, self.len, at);
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
                *head = H::of(&keys.get(*at)[depth..]);
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
        assert_eq!(self.depth, self.depth_below(keys, upper), "a node's depth is what its bounds share");
        let entries: Vec<&[u8]> = self.keys[..self.len].iter().map(|at| keys.get(*at)).collect();
        assert!(entries.is_sorted_by(|a, b| a < b), "keys are out of order");
        assert!(
            upper.is_none_or(|upper| entries[self.len - 1] < keys.get(upper)),
            "a key is beyond its node"
        );
        for (head, key) in used.iter().zip(entries) {
            assert!(*head == H::of(&key[self.depth..]), "a head is not its key's");
        }
    }
}
