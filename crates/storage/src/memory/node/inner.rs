//! Inner nodes: up to 63 children and the separators between them.
//!
//! A child holds the keys from the separator before it up to the one behind it. Separators are as
//! short as they can be, in allocations of their own, which outlive the node: a node that is made
//! anew takes them over. The last bytes of the common prefix stand in the node itself, so that
//! checking it costs no cache miss.

use super::super::arena::{Arena, Kind, NODE_ALIGN};
use super::{Header, NodeRef, Separator, common_prefix, head, lower_bound, upper_bound};
use std::cmp::Ordering::{Equal, Greater, Less};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Most children of an inner node.
pub(crate) const INNER_CHILDREN: usize = 63;
const SEPARATORS: usize = INNER_CHILDREN - 1;
const TAIL: usize = 16;

#[repr(C, align(64))]
struct Inner {
    header: Header,
    /// The last bytes of the prefix, where they are at hand.
    tail: [u8; TAIL],
    heads: [u64; SEPARATORS],
    children: [AtomicPtr<Header>; INNER_CHILDREN],
    separators: [*mut u8; SEPARATORS],
}

const _: () = assert!(size_of::<Inner>() == 1536 && align_of::<Inner>() == NODE_ALIGN);

/// An inner node that stays allocated for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct InnerRef<'a>(NodeRef<'a>);

impl<'a> InnerRef<'a> {
    #[inline(always)]
    pub(super) fn of(node: NodeRef<'a>) -> Self {
        debug_assert_ne!(node.level(), 0);
        Self(node)
    }

    #[inline(always)]
    pub(crate) fn node(self) -> NodeRef<'a> {
        self.0
    }

    /// How many children there are; one more than separators. Never changes.
    #[inline(always)]
    pub(crate) fn count(self) -> usize {
        self.0.count()
    }

    #[inline(always)]
    fn at(self) -> *mut Inner {
        self.0.at.cast().as_ptr()
    }

    #[inline(always)]
    fn heads(self) -> &'a [u64] {
        // SAFETY: the node is an inner node, live for 'a; it has count - 1 separators, which never
        // change.
        unsafe {
            std::slice::from_raw_parts((&raw const (*self.at()).heads).cast(), self.count() - 1)
        }
    }

    #[inline(always)]
    fn slot(self, at: usize) -> &'a AtomicPtr<Header> {
        debug_assert!(at < self.count());
        // SAFETY: as for `heads`; children change by atomic stores only.
        unsafe { &*(&raw const (*self.at()).children).cast::<AtomicPtr<Header>>().add(at) }
    }

    /// The child at `at`, which is below the count.
    #[inline(always)]
    pub(crate) fn child(self, at: usize) -> NodeRef<'a> {
        let child = self.slot(at).load(Ordering::Acquire);
        // SAFETY: children below the count are never null, and what a reader can reach outlives its
        // pin.
        unsafe { NodeRef::new(NonNull::new_unchecked(child)) }
    }

    /// Puts another node in the place of the child at `at`. Writer only.
    pub(crate) fn set_child(self, at: usize, child: NonNull<Header>) {
        self.slot(at).store(child.as_ptr(), Ordering::Release);
    }

    /// The separator between the children `at` and `at + 1`.
    #[inline]
    pub(crate) fn separator(self, at: usize) -> Separator<'a> {
        assert!(at + 1 < self.count());
        // SAFETY: separators below count - 1 are set and never change; they outlive the node.
        unsafe {
            let bytes = (&raw const (*self.at()).separators).cast::<*mut u8>().add(at).read();
            Separator::new(NonNull::new_unchecked(bytes))
        }
    }

    /// The child that `key` belongs to. `verified` leading bytes of `key` are those of every key
    /// here; it is raised to what holds for every key of that child.
    #[inline(always)]
    pub(crate) fn route(self, key: &[u8], verified: &mut usize) -> usize {
        let prefix_len = self.0.prefix_len();
        if prefix_len > *verified {
            match self.compare_prefix(key, *verified) {
                Less => return 0,
                Greater => return self.count() - 1,
                Equal => {}
            }
        }
        let heads = self.heads();
        let head = head(key, prefix_len);
        let mut at = lower_bound(heads, head);
        if at < heads.len() && heads[at] == head {
            at = self.route_in_run(at, head, key);
        }
        if at > 0 && at < heads.len() {
            *verified = (*verified).max(prefix_len);
        }
        at
    }

    /// Among the separators from `from` on that have this head: how many are not above `key`.
    #[inline(never)]
    fn route_in_run(self, from: usize, head: u64, key: &[u8]) -> usize {
        let (mut low, mut high) = (from, from + upper_bound(&self.heads()[from..], head));
        while low < high {
            let middle = (low + high) / 2;
            if self.separator(middle).bytes() <= key { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn compare_prefix(self, key: &[u8], verified: usize) -> std::cmp::Ordering {
        let prefix_len = self.0.prefix_len();
        let key = &key[verified..key.len().min(prefix_len)];
        let len = prefix_len - verified;
        if len <= TAIL {
            // SAFETY: the node is live for 'a, and the tail never changes.
            let tail: &[u8; TAIL] = unsafe { &(*self.at()).tail };
            return key.cmp(&tail[TAIL - len..]);
        }
        key.cmp(&self.separator(0).bytes()[verified..prefix_len])
    }
}

/// What an inner node will be made of.
#[derive(Default)]
pub(crate) struct InnerBuilder {
    pub(crate) children: Vec<NonNull<Header>>,
    /// One fewer than children.
    pub(crate) separators: Vec<NonNull<u8>>,
}

impl InnerBuilder {
    pub(crate) fn clear(&mut self) {
        self.children.clear();
        self.separators.clear();
    }

    /// Takes over the children and separators of a node.
    pub(crate) fn extend(&mut self, from: InnerRef<'_>) {
        for at in 0..from.count() {
            self.children.push(from.child(at).as_ptr());
        }
        for at in 0..from.count() - 1 {
            self.separators.push(from.separator(at).as_ptr());
        }
    }

    /// A node of the children in `range`, and the separators between them. `weight` is what the
    /// children weigh, where that is known.
    ///
    /// # Safety
    /// Children and separators are live, and the separators lie in order between the children's
    /// keys.
    pub(crate) unsafe fn build(
        &self,
        arena: &mut Arena,
        level: u8,
        range: std::ops::Range<usize>,
        weight: Option<i64>,
    ) -> NonNull<Header> {
        let children = &self.children[range.clone()];
        let separators = &self.separators[range.start..range.end - 1];
        assert!(children.len() <= INNER_CHILDREN);
        // SAFETY: by the caller's promise they are live.
        let bytes = |at: usize| unsafe { Separator::new(separators[at]) }.bytes();
        let prefix_len = match separators.len() {
            0 => 0,
            len => common_prefix(bytes(0), bytes(len - 1)),
        };
        // SAFETY: by the caller's promise they are live.
        let weights = children.iter().map(|child| unsafe { NodeRef::new(*child) }.weight());
        let weight = weight.unwrap_or_else(|| weights.sum());
        let header = Header::new(level, children.len(), prefix_len, weight);
        let at = arena.alloc(Kind::Inner, size_of::<Inner>()).cast::<Inner>();
        // SAFETY: the node is ours alone, and there is room for what is written: children and
        // separators are at most as many as the arrays hold.
        unsafe {
            let inner = at.as_ptr();
            (&raw mut (*inner).header).write(header);
            let tail = (&raw mut (*inner).tail).cast::<u8>();
            tail.write_bytes(0, TAIL);
            let len = prefix_len.min(TAIL);
            for (place, from) in (prefix_len - len..prefix_len).enumerate() {
                tail.add(TAIL - len + place).write(bytes(0)[from]);
            }
            for (at, separator) in separators.iter().enumerate() {
                (&raw mut (*inner).heads).cast::<u64>().add(at).write(head(bytes(at), prefix_len));
                (&raw mut (*inner).separators).cast::<*mut u8>().add(at).write(separator.as_ptr());
            }
            for (at, child) in children.iter().enumerate() {
                let slot = (&raw mut (*inner).children).cast::<AtomicPtr<Header>>().add(at);
                slot.write(AtomicPtr::new(child.as_ptr()));
            }
        }
        at.cast()
    }
}
