//! Ways down the tree: one key, several keys at once, and along the leaves.
//!
//! Nothing here takes a lock or waits. A reader that is pinned may find itself in a node that the
//! writer has replaced meanwhile: it was the current one after the reader began, so it still leads
//! to every record that was published then, and that is all the reader may see.

use super::node::{InnerRef, LeafRef, Node, NodeRef};
use super::record::RecordRef;
use plinth_env::prefetch_lines;

/// Keys looked up together: enough to keep all of a core's outstanding misses busy.
pub(crate) const GROUP: usize = 16;

/// Levels of inner nodes at most. A node splits only after eight entries were added to it, so that
/// eight times the rows make one more level at the worst.
const MAX_DEPTH: usize = 16;

/// How many records ahead of a scan are asked for.
const AHEAD: usize = 10;

/// Lines of a record that are asked for: head, key, and the begin of the value.
const RECORD_LINES: usize = 2;

/// The nodes from the root to a leaf, and which child of each.
#[derive(Clone)]
pub(crate) struct Path<'a> {
    steps: [Option<(InnerRef<'a>, u32)>; MAX_DEPTH],
    depth: usize,
    pub(crate) leaf: LeafRef<'a>,
    /// How many leading bytes of the key are known to be those of all keys of the leaf.
    pub(crate) verified: usize,
}

impl<'a> Path<'a> {
    /// The path to the leaf that `key` belongs to.
    #[inline]
    pub(crate) fn descend(root: NodeRef<'a>, key: &[u8]) -> Self {
        let mut node = root;
        let mut verified = 0;
        let mut steps = [None; MAX_DEPTH];
        let mut depth = 0;
        loop {
            match node.kind() {
                Node::Leaf(leaf) => return Self { steps, depth, leaf, verified },
                Node::Inner(inner) => {
                    let at = inner.route(key, &mut verified);
                    steps[depth] = Some((inner, at as u32));
                    depth += 1;
                    node = inner.child(at);
                }
            }
        }
    }

    /// How many inner nodes there are above the leaf.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The inner node at `depth` (the root's is 0), and which of its children the path follows.
    pub(crate) fn step(&self, depth: usize) -> (InnerRef<'a>, usize) {
        let (inner, at) = self.steps[depth].expect("steps above the depth are set");
        (inner, at as usize)
    }

    /// Whether it leads to the last leaf.
    pub(crate) fn is_last(&self) -> bool {
        (0..self.depth).all(|depth| self.step(depth).1 + 1 == self.step(depth).0.count())
    }

    /// The entry of `key` in the leaf and its newest record.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<(usize, RecordRef<'a>)> {
        self.leaf.confirm(self.leaf.candidate(key)?, key)
    }

    /// Moves to the next leaf, or the one before. False, and no move, if there is none.
    fn step_leaf(&mut self, forward: bool) -> bool {
        let movable = (0..self.depth).rev().find(|depth| {
            let (inner, at) = self.step(*depth);
            if forward { at + 1 < inner.count() } else { at > 0 }
        });
        let Some(mut depth) = movable else { return false };
        let (mut inner, at) = self.step(depth);
        let mut at = if forward { at + 1 } else { at - 1 };
        loop {
            self.steps[depth] = Some((inner, at as u32));
            depth += 1;
            match inner.child(at).kind() {
                Node::Leaf(leaf) => {
                    debug_assert_eq!(depth, self.depth, "all leaves are at one level");
                    self.leaf = leaf;
                    // Another leaf guarantees another prefix.
                    self.verified = 0;
                    return true;
                }
                Node::Inner(child) => {
                    inner = child;
                    at = if forward { 0 } else { child.count() - 1 };
                }
            }
        }
    }

    /// Asks for the lines of the leaf beside this one, if it has the same parent.
    fn prefetch_neighbour(&self, forward: bool) {
        let Some(depth) = self.depth.checked_sub(1) else { return };
        let (inner, at) = self.step(depth);
        let beside = if forward { at + 1 } else { at.wrapping_sub(1) };
        if beside < inner.count() {
            prefetch_lines(inner.child(beside).as_ptr().as_ptr().cast(), 16);
        }
    }
}

/// An entry: its leaf, and where in it.
pub(crate) type Entry<'a> = (LeafRef<'a>, usize);

/// Finds the newest records of up to [`GROUP`] keys. The descents go on side by side, so that the
/// time that one waits for memory the others use.
#[inline]
pub(crate) fn find_group<'a>(
    root: NodeRef<'a>,
    keys: &[&[u8]],
    found: &mut [Option<RecordRef<'a>>; GROUP],
) {
    let candidates = candidates(root, keys);
    for ((found, candidate), key) in found.iter_mut().zip(candidates).zip(keys) {
        *found = candidate.and_then(|(leaf, at)| leaf.confirm(at, key)).map(|(_, record)| record);
    }
}

/// Finds the entries of up to [`GROUP`] keys, in the same way. Keys that ascend share the steps
/// that lead to one child.
#[inline]
pub(crate) fn find_entries<'a>(
    root: NodeRef<'a>,
    keys: &[&[u8]],
    found: &mut [Option<Entry<'a>>; GROUP],
) {
    assert!(keys.len() <= GROUP);
    let candidates = if keys.is_sorted() {
        let mut nodes = [root; GROUP];
        let mut verified = [0; GROUP];
        for _ in 0..root.level() {
            let mut at = 0;
            while at < keys.len() {
                let of_node = nodes[at..keys.len()]
                    .iter()
                    .take_while(|node| node.as_ptr() == nodes[at].as_ptr());
                let together = at..at + of_node.count();
                if let Node::Inner(inner) = nodes[at].kind() {
                    step_down(
                        inner,
                        &keys[together.clone()],
                        &mut nodes[together.clone()],
                        &mut verified[together.clone()],
                    );
                }
                at = together.end;
            }
        }
        in_leaves(&nodes, keys)
    } else {
        candidates(root, keys)
    };
    for ((found, candidate), key) in found.iter_mut().zip(candidates).zip(keys) {
        *found = candidate.and_then(|(leaf, at)| leaf.confirm(at, key).map(|(at, _)| (leaf, at)));
    }
}

/// Takes the step from a node to the children of ascending keys: if the first and the last go to
/// the same one, so do all between them.
fn step_down<'a>(
    inner: InnerRef<'a>,
    keys: &[&[u8]],
    nodes: &mut [NodeRef<'a>],
    verified: &mut [usize],
) {
    let [first, .., last] = keys else {
        let at = inner.route(keys[0], &mut verified[0]);
        nodes[0] = ask_for_child(inner, at);
        return;
    };
    let (mut of_first, mut of_last) = (verified[0], *verified.last().unwrap_or(&0));
    let at = inner.route(first, &mut of_first);
    if inner.route(last, &mut of_last) == at {
        nodes.fill(ask_for_child(inner, at));
        verified.fill(of_first.min(of_last));
        return;
    }
    let half = keys.len() / 2;
    for part in [0..half, half..keys.len()] {
        step_down(inner, &keys[part.clone()], &mut nodes[part.clone()], &mut verified[part]);
    }
}

#[inline(always)]
fn ask_for_child(inner: InnerRef<'_>, at: usize) -> NodeRef<'_> {
    let node = inner.child(at);
    let lines = if inner.node().level() == 1 { 8 } else { 9 };
    prefetch_lines(node.as_ptr().as_ptr().cast(), lines);
    node
}

/// Where each key's entry is, if it is anywhere; its record has been asked for.
#[inline(always)]
fn candidates<'a>(root: NodeRef<'a>, keys: &[&[u8]]) -> [Option<Entry<'a>>; GROUP] {
    assert!(keys.len() <= GROUP);
    let mut nodes = [root; GROUP];
    let mut verified = [0; GROUP];
    for _ in 0..root.level() {
        for ((node, key), verified) in nodes.iter_mut().zip(keys).zip(&mut verified) {
            let Node::Inner(inner) = node.kind() else { continue };
            let at = inner.route(key, verified);
            *node = ask_for_child(inner, at);
        }
    }
    in_leaves(&nodes, keys)
}

/// Where in its leaf each key's entry is, if it is anywhere; its record has been asked for.
#[inline(always)]
fn in_leaves<'a>(nodes: &[NodeRef<'a>; GROUP], keys: &[&[u8]]) -> [Option<Entry<'a>>; GROUP] {
    let mut candidates = [None; GROUP];
    for ((candidate, node), key) in candidates.iter_mut().zip(nodes).zip(keys) {
        let Node::Leaf(leaf) = node.kind() else { continue };
        *candidate = leaf.candidate(key).inspect(|at| leaf.prefetch_slot(*at)).map(|at| (leaf, at));
    }
    for (leaf, at) in candidates.iter().take(keys.len()).flatten() {
        prefetch_record(leaf.record(*at));
    }
    candidates
}

#[inline(always)]
fn prefetch_record(record: RecordRef<'_>) {
    prefetch_lines(record.as_ptr().as_ptr().cast(), RECORD_LINES);
}

/// A place between two entries, from which one can walk in either direction. Gives newest records,
/// tombstones too.
pub(crate) struct Cursor<'a> {
    path: Path<'a>,
    count: usize,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The place before the first entry whose key is not below `key`.
    pub(crate) fn seek(root: NodeRef<'a>, key: &[u8]) -> Self {
        let path = Path::descend(root, key);
        let count = path.leaf.count();
        let at = path.leaf.seek(key, path.verified).min(count);
        Self { path, count, at }
    }

    /// The entry after this place; the place is behind it then.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<RecordRef<'a>> {
        while self.at == self.count {
            if !self.path.step_leaf(true) {
                return None;
            }
            self.count = self.path.leaf.count();
            self.at = 0;
            self.ask_ahead(true);
        }
        let record = self.path.leaf.record(self.at);
        if self.at + AHEAD < self.count {
            prefetch_record(self.path.leaf.record(self.at + AHEAD));
        }
        self.at += 1;
        Some(record)
    }

    /// The entry before this place; the place is before it then.
    #[inline]
    pub(crate) fn prev(&mut self) -> Option<RecordRef<'a>> {
        while self.at == 0 {
            if !self.path.step_leaf(false) {
                return None;
            }
            self.count = self.path.leaf.count();
            self.at = self.count;
            self.ask_ahead(false);
        }
        self.at -= 1;
        if self.at >= AHEAD {
            prefetch_record(self.path.leaf.record(self.at - AHEAD));
        }
        Some(self.path.leaf.record(self.at))
    }

    /// Asks for the first records from here on, and for the leaf after this one.
    pub(crate) fn ask_ahead(&self, forward: bool) {
        let range = match forward {
            true => self.at..self.count.min(self.at + AHEAD),
            false => self.at.saturating_sub(AHEAD)..self.at,
        };
        for at in range {
            prefetch_record(self.path.leaf.record(at));
        }
        self.path.prefetch_neighbour(forward);
    }

    /// The path to the leaf of the entry that [`Cursor::next`] gave last, and that entry's place.
    pub(crate) fn last_given(&self) -> (&Path<'a>, usize) {
        (&self.path, self.at - 1)
    }
}
