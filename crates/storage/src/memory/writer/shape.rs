//! Changes of the tree's shape: entries come and go, nodes split and merge.
//!
//! New nodes are made aside and become visible with one store: into the slot of the lowest ancestor
//! that stays, or into the root. Until then readers see the old nodes, which nobody changes any
//! more; they are retired, and freed when the readers that may be inside them have left.
//!
//! ```text
//!   insert into a full leaf            one store, into A's parent, shows all of it
//!        A                A'
//!      / | \     ──▶    / |  \ \
//!     a  b  c          a  b' b" c      b, A and no separator are retired
//! ```

use super::super::node::{Header, InnerBuilder};
use super::super::node::{
    INNER_CHILDREN, InnerRef, LEAF_SLOTS, LeafBuilder, LeafRef, Node, NodeRef, Separator,
    common_prefix, shortest_between,
};
use super::super::record::{Record, RecordRef};
use super::super::tree::Path;
use super::Writer;
use std::ops::Range;
use std::ptr::NonNull;

/// A node with this many entries or fewer looks for a neighbour to merge with.
const SMALL: usize = 16;
/// What a merged node may have at most, so that it does not split again at once.
const MERGED: usize = 48;
/// After so many appends in a row a full leaf is left full: the keys come in order.
const RUN: u8 = 8;

/// Children that take the place of others.
struct Replacement<'n> {
    children: &'n [NonNull<Header>],
    /// Between the children.
    separator: Option<NonNull<u8>>,
    /// Whether the keys come in order, so that full nodes are better left full.
    run: bool,
}

impl Writer {
    /// Adds an entry for `key`, which has none.
    pub(super) fn insert_entry(
        &mut self,
        path: &Path<'_>,
        key: &[u8],
        record: NonNull<Record>,
        weight: i64,
    ) {
        let leaf = path.leaf;
        let (count, at) = (leaf.count(), leaf.seek(key, path.verified));
        let shares = shares_prefix(leaf, key, path.verified);
        add_weight_above(path, weight);
        if at == count && count < LEAF_SLOTS && shares {
            leaf.append(record, key);
            leaf.node().add_weight(weight);
            return;
        }
        let prefix_len = match shares {
            true => leaf.node().prefix_len(),
            false if count == 0 => 0,
            false => common_prefix(leaf.record(0).key(), key),
        };
        if count == LEAF_SLOTS {
            return self.split_leaf(path, at, key, record, weight);
        }
        let mut builder = LeafBuilder::new(&mut self.arena, prefix_len);
        builder.extend(leaf, 0..at);
        builder.push(record, key);
        builder.extend(leaf, at..count);
        builder.set_weight(leaf.node().weight() + weight);
        self.replace_leaf(path, &[builder.finish()]);
    }

    /// Removes the entry at `at`, a tombstone.
    pub(super) fn remove_entry(&mut self, path: &Path<'_>, at: usize) {
        let leaf = path.leaf;
        let (count, weight) = (leaf.count(), leaf.node().weight());
        if count == 1 && path.depth() > 0 {
            return self.replace_leaf(path, &[]);
        }
        if count - 1 <= SMALL && self.merge_leaf(path, at) {
            return;
        }
        let mut builder = LeafBuilder::new(
            &mut self.arena,
            if count == 1 { 0 } else { leaf.node().prefix_len() },
        );
        builder.extend(leaf, 0..at);
        builder.extend(leaf, at + 1..count);
        builder.set_weight(weight);
        self.replace_leaf(path, &[builder.finish()]);
    }

    /// Makes a leaf anew, so that its old memory gets free.
    pub(super) fn move_leaf(&mut self, path: &Path<'_>) {
        let copy = self.copy_leaf(path.leaf, path.leaf.node().prefix_len());
        self.replace_leaf(path, &[copy]);
    }

    fn split_leaf(
        &mut self,
        path: &Path<'_>,
        at: usize,
        key: &[u8],
        record: NonNull<Record>,
        weight: i64,
    ) {
        let leaf = path.leaf;
        if at == LEAF_SLOTS && leaf.appended() >= RUN {
            return self.continue_run(path, key, record, weight);
        }
        let half = LEAF_SLOTS.div_ceil(2);
        // Entries before `middle` go left; the new one is among the first `half` if it comes before
        // them.
        let new_is_left = at < half;
        let middle = half - usize::from(new_is_left);
        let parts = [(0..middle, new_is_left), (middle..LEAF_SLOTS, !new_is_left)];
        let entries = parts.map(|(range, with_new)| Half {
            leaf,
            range,
            new: with_new.then_some((at, key, record)),
        });
        let separator = self.separator(entries[0].last_key(), entries[1].first_key());
        let left_weight = entries[0].weight();
        let weights = [left_weight, leaf.node().weight() + weight - left_weight];
        let mut children = [leaf.node().as_ptr(); 2];
        for ((child, half), weight) in children.iter_mut().zip(&entries).zip(weights) {
            *child = half.build(self, weight);
        }
        self.splice_leaf(
            path,
            Replacement { children: &children, separator: Some(separator), run: false },
        );
        self.garbage.retire(leaf.node().as_ptr());
    }

    /// Leaves a full leaf full and begins another behind it: keys come in order.
    fn continue_run(&mut self, path: &Path<'_>, key: &[u8], record: NonNull<Record>, weight: i64) {
        let leaf = path.leaf;
        let (first, last) = (leaf.record(0).key(), leaf.record(LEAF_SLOTS - 1).key());
        leaf.reset_appended();
        // The keys to come will differ where these do: a good guess at their prefix, and heads that
        // tell them apart.
        let prefix_len = common_prefix(first, last);
        let mut builder = LeafBuilder::new(&mut self.arena, prefix_len.min(key.len()));
        builder.push(record, key);
        builder.set_weight(weight);
        let separator = Some(self.separator(last, key));
        let mut children = [leaf.node().as_ptr(), builder.finish()];
        if leaf.node().prefix_len() < prefix_len {
            children[0] = self.copy_leaf(leaf, prefix_len);
            self.garbage.retire(leaf.node().as_ptr());
        }
        self.splice_leaf(path, Replacement { children: &children, separator, run: true });
    }

    fn copy_leaf(&mut self, leaf: LeafRef<'_>, prefix_len: usize) -> NonNull<Header> {
        let mut builder = LeafBuilder::new(&mut self.arena, prefix_len);
        builder.extend(leaf, 0..leaf.count());
        builder.set_weight(leaf.node().weight());
        builder.finish()
    }

    fn separator(&mut self, left: &[u8], right: &[u8]) -> NonNull<u8> {
        Separator::create(&mut self.arena, shortest_between(left, right)).as_ptr()
    }

    /// Merges the leaf without its entry `at` with a neighbour, if one has room.
    fn merge_leaf<'a>(&mut self, path: &Path<'a>, at: usize) -> bool {
        let Some(depth) = path.depth().checked_sub(1) else { return false };
        let (parent, place) = path.step(depth);
        let leaf = path.leaf;
        let kept = leaf.count() - 1;
        let Some((left_place, other)) = neighbour(parent, place, MERGED.saturating_sub(kept))
        else {
            return false;
        };
        let Node::Leaf(other) = other.kind() else { unreachable!("leaves are beside leaves") };
        let other_is_left = left_place < place;
        let ends = |leaf: LeafRef<'a>| (leaf.record(0).key(), leaf.record(leaf.count() - 1).key());
        // The removed entry's key may be an end of ours; a prefix that is too short does no harm.
        let (ours, theirs) = (ends(leaf), ends(other));
        let prefix_len = match other_is_left {
            true => common_prefix(theirs.0, ours.1),
            false => common_prefix(ours.0, theirs.1),
        };
        let mut builder = LeafBuilder::new(&mut self.arena, prefix_len);
        if other_is_left {
            builder.extend(other, 0..other.count());
        }
        builder.extend(leaf, 0..at);
        builder.extend(leaf, at + 1..leaf.count());
        if !other_is_left {
            builder.extend(other, 0..other.count());
        }
        builder.set_weight(leaf.node().weight() + other.node().weight());
        let merged = Replacement { children: &[builder.finish()], separator: None, run: false };
        self.splice(path, depth, left_place..left_place + 2, merged);
        self.garbage.retire(leaf.node().as_ptr());
        self.garbage.retire(other.node().as_ptr());
        true
    }

    /// Puts at most one leaf in the place of the path's, which is retired.
    pub(super) fn replace_leaf(&mut self, path: &Path<'_>, children: &[NonNull<Header>]) {
        self.splice_leaf(path, Replacement { children, separator: None, run: false });
        self.garbage.retire(path.leaf.node().as_ptr());
    }

    fn splice_leaf(&mut self, path: &Path<'_>, new: Replacement<'_>) {
        match path.depth().checked_sub(1) {
            Some(depth) => {
                let place = path.step(depth).1;
                self.splice(path, depth, place..place + 1, new);
            }
            None => self.new_root(1, new),
        }
    }

    /// Replaces the root.
    fn new_root(&mut self, level: u8, new: Replacement<'_>) {
        let root = match new.children {
            [only] => *only,
            children => {
                let mut builder = std::mem::take(&mut self.spare);
                builder.clear();
                builder.children.extend(children);
                builder.separators.extend(new.separator);
                // SAFETY: the children were just made, and the separator lies between their keys.
                let root =
                    unsafe { builder.build(&mut self.arena, level, 0..children.len(), None) };
                self.spare = builder;
                root
            }
        };
        self.core.set_root(root);
    }

    /// Puts new children in the place of those in `range` of the inner node at `depth` of the path.
    /// At most two for one, or one for two, or none for one. The replaced children are the caller's
    /// to retire.
    fn splice(&mut self, path: &Path<'_>, depth: usize, range: Range<usize>, new: Replacement<'_>) {
        let (inner, _) = path.step(depth);
        if let ([child], 1) = (new.children, range.len()) {
            return inner.set_child(range.start, *child);
        }
        let mut builder = std::mem::take(&mut self.spare);
        builder.clear();
        builder.extend(inner);
        let at_end = range.end == builder.children.len();
        builder.children.splice(range.clone(), new.children.iter().copied());
        let between = match (new.children.len(), range.start) {
            // With a child goes the separator before it, or, if it was the first, the one behind.
            (0, 0) => 0..usize::from(!builder.separators.is_empty()),
            (0, start) => start - 1..start,
            (_, start) => start..range.end - 1,
        };
        for gone in builder.separators.splice(between, new.separator) {
            self.garbage.retire(gone);
        }
        self.replace_inner(path, depth, &builder, new.run && at_end);
        self.garbage.retire(inner.node().as_ptr());
        self.spare = builder;
    }

    /// Puts what `builder` holds in the place of the inner node at `depth`: as one node, two, or
    /// merged with a neighbour, as its size demands.
    fn replace_inner(&mut self, path: &Path<'_>, depth: usize, builder: &InnerBuilder, run: bool) {
        let (inner, _) = path.step(depth);
        let level = inner.node().level();
        let count = builder.children.len();
        let above = depth.checked_sub(1);
        let mut children = Vec::with_capacity(2);
        let mut separator = None;
        match count {
            0 => {}
            // A root with one child is no use.
            1 if above.is_none() => children.push(builder.children[0]),
            _ if count <= INNER_CHILDREN => {
                if let Some(above) = above
                    && count <= SMALL
                    && self.merge_inner(path, above, builder)
                {
                    return;
                }
                let weight = Some(inner.node().weight());
                // SAFETY: children and separators are those of a live node, spliced in order.
                children.push(unsafe { builder.build(&mut self.arena, level, 0..count, weight) });
            }
            _ => {
                let middle = if run { count - 1 } else { count / 2 };
                for range in [0..middle, middle..count] {
                    // SAFETY: as above.
                    children.push(unsafe { builder.build(&mut self.arena, level, range, None) });
                }
                separator = Some(builder.separators[middle - 1]);
            }
        }
        let new = Replacement { children: &children, separator, run };
        match above {
            Some(above) => {
                let place = path.step(above).1;
                self.splice(path, above, place..place + 1, new);
            }
            None if children.is_empty() => {
                let empty = LeafBuilder::new(&mut self.arena, 0).finish();
                self.core.set_root(empty);
            }
            None => self.new_root(level + 1, new),
        }
    }

    /// Makes one node of what `builder` holds and a neighbour of the inner node below `above`, if
    /// it fits.
    fn merge_inner(&mut self, path: &Path<'_>, above: usize, builder: &InnerBuilder) -> bool {
        let (parent, place) = path.step(above);
        let room = MERGED.saturating_sub(builder.children.len());
        let Some((left_place, other)) = neighbour(parent, place, room) else { return false };
        let Node::Inner(other) = other.kind() else {
            unreachable!("inner nodes are beside inner nodes")
        };
        // The separator between the two comes down between their children, as a copy: the one in
        // the parent is retired with the splice.
        let between = parent.separator(left_place).bytes();
        let between = Separator::create(&mut self.arena, between).as_ptr();
        let mut merged = InnerBuilder::default();
        let append = |merged: &mut InnerBuilder, ours: bool| match ours {
            true => {
                merged.children.extend(&builder.children);
                merged.separators.extend(&builder.separators);
            }
            false => merged.extend(other),
        };
        append(&mut merged, left_place == place);
        merged.separators.push(between);
        append(&mut merged, left_place != place);
        let level = other.node().level();
        // SAFETY: both nodes' children are live, and the separator lies between them.
        let node = unsafe { merged.build(&mut self.arena, level, 0..merged.children.len(), None) };
        let new = Replacement { children: &[node], separator: None, run: false };
        self.splice(path, above, left_place..left_place + 2, new);
        self.garbage.retire(other.node().as_ptr());
        true
    }
}

/// Half of a full leaf and, perhaps, the entry that made it split.
struct Half<'a> {
    leaf: LeafRef<'a>,
    range: Range<usize>,
    /// Where among the leaf's entries, key and record.
    new: Option<(usize, &'a [u8], NonNull<Record>)>,
}

impl<'a> Half<'a> {
    fn first_key(&self) -> &'a [u8] {
        match self.new {
            Some((at, key, _)) if at == self.range.start => key,
            _ => self.leaf.record(self.range.start).key(),
        }
    }

    fn last_key(&self) -> &'a [u8] {
        match self.new {
            Some((at, key, _)) if at == self.range.end => key,
            _ => self.leaf.record(self.range.end - 1).key(),
        }
    }

    fn weight(&self) -> i64 {
        self.leaf.prefetch_records(self.range.clone());
        let old: i64 = self.range.clone().map(|at| self.leaf.record(at).weight()).sum();
        // SAFETY: the record was just made.
        old + self.new.map_or(0, |(.., record)| unsafe { RecordRef::new(record) }.weight())
    }

    fn build(&self, writer: &mut Writer, weight: i64) -> NonNull<Header> {
        let prefix_len = common_prefix(self.first_key(), self.last_key());
        let mut builder = LeafBuilder::new(&mut writer.arena, prefix_len);
        match self.new {
            Some((at, key, record)) => {
                builder.extend(self.leaf, self.range.start..at);
                builder.push(record, key);
                builder.extend(self.leaf, at..self.range.end);
            }
            None => builder.extend(self.leaf, self.range.clone()),
        }
        builder.set_weight(weight);
        builder.finish()
    }
}

/// A neighbour of the child at `place` with at most `room` entries: the left one's place of the
/// two, and the neighbour.
fn neighbour<'a>(parent: InnerRef<'a>, place: usize, room: usize) -> Option<(usize, NodeRef<'a>)> {
    let left = place.checked_sub(1).map(|left| (left, left));
    let right = (place + 1 < parent.count()).then_some((place, place + 1));
    let mut both = [left, right].into_iter().flatten().map(|(left, at)| (left, parent.child(at)));
    both.find(|(_, node)| node.count() <= room)
}

/// Whether `key` begins with the prefix of the leaf's keys.
pub(super) fn shares_prefix(leaf: LeafRef<'_>, key: &[u8], verified: usize) -> bool {
    let prefix_len = leaf.node().prefix_len();
    if prefix_len <= verified {
        return true;
    }
    leaf.count() > 0
        && key.get(verified..prefix_len) == Some(&leaf.record(0).key()[verified..prefix_len])
}

/// Adds to what the inner nodes of the path know to be below them.
pub(super) fn add_weight_above(path: &Path<'_>, change: i64) {
    for depth in 0..path.depth() {
        path.step(depth).0.node().add_weight(change);
    }
}
