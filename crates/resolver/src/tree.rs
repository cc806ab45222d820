//! An ordered map from keys to stamps: a B+tree that knows the newest stamp below each child.
//!
//! Each node's first entry is its lower bound; the leftmost ones begin with the empty key, which is
//! there from the beginning with stamp 0. Entries are only ever added, until the whole tree is
//! cleared.
//!
//! ```text
//!   inner   fences | child, newest stamp below it, cover: a stamp that counts for everything below it
//!   leaf    fences | stamps
//! ```
//!
//! Two uses. *Points*: a stamp belongs to its key alone. *Steps*: a stamp belongs to all keys from
//! its own up to the next one, so that the map is a step function; writing a range raises every
//! step in it, by a cover where a whole child lies in the range. What counts is the largest of a
//! step's own stamp and the covers above it.

mod fences;

use crate::keys::{KeyAt, Keys};
use crate::points::{LARGEST, Stamp};
use fences::{Fences, WIDTH};

/// Levels of inner nodes that a tree can have.
const HIGHEST: usize = 6;

const _: () = assert!((WIDTH / 2).pow(HIGHEST as u32) > 2 * LARGEST);

/// The tree.
pub(crate) struct Tree {
    leaves: Vec<Leaf>,
    inners: Vec<Inner>,
    root: u32,
    /// Levels of inner nodes.
    height: usize,
    kind: Kind,
}

/// What stamps belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Points,
    Steps,
}

struct Leaf {
    fences: Fences<u64>,
    stamps: [Stamp; WIDTH],
}

struct Inner {
    fences: Fences<u128>,
    children: [u32; WIDTH],
    newest: [Stamp; WIDTH],
    covers: [Stamp; WIDTH],
}

/// A node that a descent went through, the child it took, and the node's upper bound.
#[derive(Clone, Copy, Default)]
struct Turn {
    node: u32,
    child: usize,
    upper: Option<KeyAt>,
}

/// A new right neighbour that a full node leaves to its parent, with its first key.
struct Split {
    key: KeyAt,
    right: u32,
    /// The newest stamps in the node and in its new neighbour.
    newest: [Stamp; 2],
}

impl Split {
    fn new(right: u32, key: KeyAt, newest_left: Stamp, newest_right: Stamp) -> Self {
        Self { key, right, newest: [newest_left, newest_right] }
    }
}

/// A part of the keys; `None`: from the node's beginning, or to its end.
type Part<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

impl Tree {
    /// A tree in which no key was written.
    pub(crate) fn new(kind: Kind) -> Self {
        Self { leaves: vec![Leaf::leftmost()], inners: Vec::new(), root: 0, height: 0, kind }
    }

    /// Forgets everything and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.leaves.clear();
        self.inners.clear();
        self.leaves.push(Leaf::leftmost());
        (self.root, self.height) = (0, 0);
    }

    /// Puts the key at `at` into a tree of points, or raises its stamp.
    pub(crate) fn put(&mut self, keys: &Keys, at: KeyAt, stamp: Stamp) {
        debug_assert_eq!(self.kind, Kind::Points);
        self.insert(keys, at, stamp);
    }

    /// Raises all steps from `begin` up to `end` to `stamp`, which is none below any before it.
    pub(crate) fn raise(&mut self, keys: &mut Keys, begin: &[u8], end: &[u8], stamp: Stamp) {
        debug_assert!(self.kind == Kind::Steps && begin < end);
        if self.raise_in_one_leaf(keys, begin, end, stamp) {
            return;
        }
        for bound in [begin, end] {
            let at = keys.push(bound);
            if !self.insert(keys, at, 0) {
                keys.pop(at);
            }
        }
        self.raise_below(keys, (self.root, self.height), (Some(begin), Some(end)), stamp);
    }

    /// Raises the steps if they lie in one leaf that has room for both bounds, as those of most
    /// ranges do.
    fn raise_in_one_leaf(
        &mut self,
        keys: &mut Keys,
        begin: &[u8],
        end: &[u8],
        stamp: Stamp,
    ) -> bool {
        let (mut node, mut upper) = (self.root as usize, None);
        for _ in 0..self.height {
            let inner = &mut self.inners[node];
            let child = inner.fences.find(keys, begin).0 - 1;
            inner.newest[child] = stamp;
            upper = inner.fences.upper(child, upper);
            node = inner.children[child] as usize;
        }
        let leaf = &mut self.leaves[node];
        if leaf.fences.len() + 2 >= WIDTH || upper.is_some_and(|upper| keys.get(upper) < end) {
            return false;
        }
        let first = leaf.add_step(keys, begin);
        let last = match upper {
            Some(upper) if keys.get(upper) == end => leaf.fences.len(),
            _ => leaf.add_step(keys, end),
        };
        leaf.stamps[first..last].fill(stamp);
        true
    }

    /// Whether the step that `key` lies on is above stamp `after`.
    pub(crate) fn is_raised(&self, keys: &Keys, key: &[u8], after: Stamp) -> bool {
        debug_assert_eq!(self.kind, Kind::Steps);
        let mut node = self.root as usize;
        for _ in 0..self.height {
            let inner = &self.inners[node];
            let child = inner.fences.find(keys, key).0 - 1;
            if inner.covers[child] > after {
                return true;
            }
            if inner.newest[child] <= after {
                return false;
            }
            node = inner.children[child] as usize;
        }
        let leaf = &self.leaves[node];
        leaf.stamps[leaf.fences.find(keys, key).0 - 1] > after
    }

    /// Whether any key from `begin` up to `end` has a stamp above `after`.
    pub(crate) fn any(&self, keys: &Keys, begin: &[u8], end: &[u8], after: Stamp) -> bool {
        debug_assert!(begin < end);
        self.any_below(keys, (self.root, self.height), (Some(begin), Some(end)), after)
    }

    fn any_below(
        &self,
        keys: &Keys,
        (node, height): (u32, usize),
        part: Part<'_>,
        after: Stamp,
    ) -> bool {
        if height == 0 {
            let leaf = &self.leaves[node as usize];
            let (first, last) = leaf.entries(keys, part, self.kind);
            return leaf.stamps[first..last].iter().any(|stamp| *stamp > after);
        }
        let inner = &self.inners[node as usize];
        let (first, last) = inner.entries(keys, part);
        let (begin, end) = part;
        let (whole_first, whole_last) =
            (first + usize::from(begin.is_some()), last - usize::from(end.is_some()));
        if whole_first < whole_last
            && inner.newest[whole_first..whole_last].iter().any(|newest| *newest > after)
        {
            return true;
        }
        // A child that lies in the part with one end only. A cover counts: some of its keys are in
        // the part.
        let edge = |child: usize, part| {
            inner.covers[child] > after
                || inner.newest[child] > after
                    && self.any_below(keys, (inner.children[child], height - 1), part, after)
        };
        if first + 1 == last {
            return edge(first, part);
        }
        begin.is_some() && edge(first, (begin, None))
            || end.is_some() && edge(last - 1, (None, end))
    }

    fn raise_below(
        &mut self,
        keys: &Keys,
        (node, height): (u32, usize),
        part: Part<'_>,
        stamp: Stamp,
    ) {
        if height == 0 {
            let leaf = &mut self.leaves[node as usize];
            let (first, last) = leaf.entries(keys, part, Kind::Steps);
            leaf.stamps[first..last].fill(stamp);
            return;
        }
        let inner = &mut self.inners[node as usize];
        let (first, last) = inner.entries(keys, part);
        let (begin, end) = part;
        inner.newest[first..last].fill(stamp);
        let (whole_first, whole_last) =
            (first + usize::from(begin.is_some()), last - usize::from(end.is_some()));
        if whole_first < whole_last {
            inner.covers[whole_first..whole_last].fill(stamp);
        }
        let (left, right) = (inner.children[first], inner.children[last - 1]);
        if first + 1 == last {
            return self.raise_below(keys, (left, height - 1), part, stamp);
        }
        if begin.is_some() {
            self.raise_below(keys, (left, height - 1), (begin, None), stamp);
        }
        if end.is_some() {
            self.raise_below(keys, (right, height - 1), (None, end), stamp);
        }
    }

    /// Puts the key at `at` in: among steps with the stamp of the step it splits, among points with
    /// `stamp`. If it is there already, raises its stamp to `stamp`. Gives whether it is new.
    fn insert(&mut self, keys: &Keys, at: KeyAt, stamp: Stamp) -> bool {
        let key = keys.get(at);
        let mut path = [Turn::default(); HIGHEST];
        let (mut node, mut upper) = (self.root, None);
        for turn in &mut path[..self.height] {
            let inner = &mut self.inners[node as usize];
            let child = inner.fences.find(keys, key).0 - 1;
            *turn = Turn { node, child, upper };
            inner.newest[child] = inner.newest[child].max(stamp);
            (node, upper) = (inner.children[child], inner.fences.upper(child, upper));
        }
        let leaf = &mut self.leaves[node as usize];
        let (position, equal) = leaf.fences.find(keys, key);
        let before = leaf.stamps[position - 1];
        if equal {
            leaf.stamps[position - 1] = before.max(stamp);
            return false;
        }
        leaf.insert(keys, position, at, if self.kind == Kind::Steps { before } else { stamp });
        if leaf.fences.is_full() {
            let split = self.split_leaf(keys, node, upper);
            self.split_above(keys, &path[..self.height], split);
        }
        true
    }

    fn split_leaf(&mut self, keys: &Keys, node: u32, upper: Option<KeyAt>) -> Split {
        let right = self.leaves.len() as u32;
        let leaf = &mut self.leaves[node as usize];
        let neighbour = leaf.split(keys, upper);
        let split = Split::new(right, neighbour.fences.key(0), leaf.newest(), neighbour.newest());
        self.leaves.push(neighbour);
        split
    }

    /// Tells the nodes above a split one, from below, as far as they have to be split too.
    fn split_above(&mut self, keys: &Keys, path: &[Turn], mut split: Split) {
        for turn in path.iter().rev() {
            let right = self.inners.len() as u32;
            let inner = &mut self.inners[turn.node as usize];
            inner.add_child(keys, turn.child, &split);
            if !inner.fences.is_full() {
                return;
            }
            let neighbour = inner.split(keys, turn.upper);
            split = Split::new(right, neighbour.fences.key(0), inner.newest(), neighbour.newest());
            self.inners.push(neighbour);
        }
        let mut root = Inner::leftmost();
        root.children[0] = self.root;
        root.add_child(keys, 0, &split);
        self.root = self.inners.len() as u32;
        self.inners.push(root);
        self.height += 1;
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.leaves.capacity() * size_of::<Leaf>() + self.inners.capacity() * size_of::<Inner>()
    }

    /// Checks every node; gives keys and the stamps that count, in order, the empty key first.
    ///
    /// # Panics
    /// If anything is wrong.
    pub(crate) fn check(&self, keys: &Keys) -> Vec<(KeyAt, Stamp)> {
        let (mut entries, mut nodes) = (Vec::new(), 0);
        self.check_below(keys, (self.root, self.height), None, 0, &mut entries, &mut nodes);
        assert_eq!(
            nodes,
            self.leaves.len() + self.inners.len(),
            "every node hangs in the tree once"
        );
        assert!(keys.get(entries[0].0).is_empty(), "the tree begins with the empty key");
        entries
    }

    fn check_below(
        &self,
        keys: &Keys,
        (node, height): (u32, usize),
        upper: Option<KeyAt>,
        cover: Stamp,
        entries: &mut Vec<(KeyAt, Stamp)>,
        nodes: &mut usize,
    ) -> Stamp {
        *nodes += 1;
        if height == 0 {
            let leaf = &self.leaves[node as usize];
            leaf.fences.check(keys, upper);
            entries.extend(
                (0..leaf.fences.len()).map(|at| (leaf.fences.key(at), leaf.stamps[at].max(cover))),
            );
            return leaf.newest();
        }
        let inner = &self.inners[node as usize];
        inner.fences.check(keys, upper);
        for child in 0..inner.fences.len() {
            let own = inner.covers[child];
            let (at, first) = ((inner.children[child], height - 1), entries.len());
            let bound = inner.fences.upper(child, upper);
            let newest = self.check_below(keys, at, bound, cover.max(own), entries, nodes).max(own);
            assert_eq!(inner.newest[child], newest, "the newest stamp below a child");
            assert_eq!(
                inner.fences.key(child),
                entries[first].0,
                "a child begins with its lower bound"
            );
            assert!(self.kind == Kind::Steps || own == 0, "points are never covered");
        }
        inner.newest()
    }
}

impl Leaf {
    fn leftmost() -> Self {
        Self { fences: Fences::leftmost(), stamps: [0; WIDTH] }
    }

    /// The entries that say something about `part`. The step before its begin reaches into it, a
    /// point doesn't.
    fn entries(&self, keys: &Keys, (begin, end): Part<'_>, kind: Kind) -> (usize, usize) {
        let first = begin.map_or(0, |begin| {
            let (count, equal) = self.fences.find(keys, begin);
            count - usize::from(equal || kind == Kind::Steps)
        });
        (first, end.map_or(self.fences.len(), |end| self.fences.below(keys, end, first)))
    }

    /// Where the step that begins at `key` is, which is made if there is none.
    fn add_step(&mut self, keys: &mut Keys, key: &[u8]) -> usize {
        let (position, equal) = self.fences.find(keys, key);
        if equal {
            return position - 1;
        }
        let at = keys.push(key);
        self.insert(keys, position, at, self.stamps[position - 1]);
        position
    }

    fn insert(&mut self, keys: &Keys, position: usize, at: KeyAt, stamp: Stamp) {
        self.stamps.copy_within(position..self.fences.len(), position + 1);
        self.stamps[position] = stamp;
        self.fences.insert(keys, position, at);
    }

    fn newest(&self) -> Stamp {
        self.stamps[..self.fences.len()].iter().copied().max().unwrap_or(0)
    }

    fn split(&mut self, keys: &Keys, upper: Option<KeyAt>) -> Self {
        let old = self.fences.len();
        let fences = self.fences.split(keys, upper);
        let mut stamps = [0; WIDTH];
        stamps[..fences.len()].copy_from_slice(&self.stamps[self.fences.len()..old]);
        Self { fences, stamps }
    }
}

impl Inner {
    fn leftmost() -> Self {
        Self {
            fences: Fences::leftmost(),
            children: [0; WIDTH],
            newest: [0; WIDTH],
            covers: [0; WIDTH],
        }
    }

    /// The children with keys in `part`.
    fn entries(&self, keys: &Keys, (begin, end): Part<'_>) -> (usize, usize) {
        let first = begin.map_or(0, |begin| self.fences.find(keys, begin).0 - 1);
        let known = if begin.is_some() { first + 1 } else { 0 };
        (first, end.map_or(self.fences.len(), |end| self.fences.below(keys, end, known)))
    }

    fn newest(&self) -> Stamp {
        self.newest[..self.fences.len()].iter().copied().max().unwrap_or(0)
    }

    /// Puts the new neighbour of the child at `child` behind it. What covered the child covers
    /// both.
    fn add_child(&mut self, keys: &Keys, child: usize, split: &Split) {
        let (position, len) = (child + 1, self.fences.len());
        self.fences.insert(keys, position, split.key);
        for list in [&mut self.children, &mut self.newest, &mut self.covers] {
            list.copy_within(position..len, position + 1);
        }
        let cover = self.covers[child];
        self.children[position] = split.right;
        self.covers[position] = cover;
        self.newest[child] = split.newest[0].max(cover);
        self.newest[position] = split.newest[1].max(cover);
    }

    fn split(&mut self, keys: &Keys, upper: Option<KeyAt>) -> Self {
        let old = self.fences.len();
        let fences = self.fences.split(keys, upper);
        let (middle, len) = (self.fences.len(), fences.len());
        let mut right = Self { fences, ..Self::leftmost() };
        right.children[..len].copy_from_slice(&self.children[middle..old]);
        right.newest[..len].copy_from_slice(&self.newest[middle..old]);
        right.covers[..len].copy_from_slice(&self.covers[middle..old]);
        right
    }
}
