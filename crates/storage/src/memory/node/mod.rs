//! Nodes of the tree: what readers see of them never changes, but for pointers.
//!
//! ```text
//!   Leaf, 1 KiB                                      Inner
//!   | header | heads: 63 × 8 | slots: 63 × 8 |       | header | prefix tail | heads | children | separators |
//!                               │                                                       │          │
//!                               ▼ newest record of the key                              ▼ node     ▼ key bytes
//! ```
//!
//! A *head* is what follows the node's common prefix in a key: its next eight bytes, big-endian,
//! padded with zeros. Comparing heads settles nearly every comparison within one or two cache
//! lines; keys with equal heads are compared whole.
//!
//! The prefix is that of the keys (or separators) that the node was made of, which may be longer
//! than what the node's place in the tree guarantees. Who descends therefore carries `verified`:
//! how many leading bytes of the key are known to be those of all keys below. A point read doesn't
//! need it in a leaf: a key that does not share the prefix is not there, and the comparison with
//! the record it is led to finds out.
//!
//! The writer changes a node in two ways that readers can bear: it stores another pointer into a
//! slot, and it adds an entry behind the last one before it raises the count. Everything else makes
//! a new node (see `writer`).

mod inner;
mod leaf;
mod separator;

pub(crate) use inner::{INNER_CHILDREN, InnerBuilder, InnerRef};
pub(crate) use leaf::{LEAF_SLOTS, LeafBuilder, LeafRef};
pub(crate) use separator::{Separator, shortest_between};

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU16, Ordering};

/// What every node begins with.
#[repr(C)]
pub(crate) struct Header {
    /// Key and value bytes of the newest rows below. Kept by the writer, read by estimates.
    weight: AtomicI64,
    /// Entries of a leaf, children of an inner node.
    count: AtomicU16,
    /// 0 for a leaf.
    level: u8,
    /// How many entries were added at the end since the node was made. The writer's alone.
    appended: AtomicU8,
    prefix_len: u32,
}

impl Header {
    fn new(level: u8, count: usize, prefix_len: usize, weight: i64) -> Self {
        Self {
            weight: AtomicI64::new(weight),
            count: AtomicU16::new(count as u16),
            level,
            appended: AtomicU8::new(0),
            prefix_len: prefix_len as u32,
        }
    }
}

/// A node that stays allocated for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct NodeRef<'a> {
    at: NonNull<Header>,
    lifetime: PhantomData<&'a Header>,
}

/// Which of the two a node is.
pub(crate) enum Node<'a> {
    Leaf(LeafRef<'a>),
    Inner(InnerRef<'a>),
}

impl<'a> NodeRef<'a> {
    /// # Safety
    /// `at` was made by one of the builders and is not freed during `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(at: NonNull<Header>) -> Self {
        Self { at, lifetime: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn as_ptr(self) -> NonNull<Header> {
        self.at
    }

    #[inline(always)]
    fn header(self) -> &'a Header {
        // SAFETY: the node is live for 'a, and what changes in a header is atomic.
        unsafe { self.at.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn level(self) -> u8 {
        self.header().level
    }

    /// Entries of a leaf, children of an inner node.
    #[inline(always)]
    pub(crate) fn count(self) -> usize {
        self.header().count.load(Ordering::Acquire) as usize
    }

    #[inline(always)]
    pub(crate) fn prefix_len(self) -> usize {
        self.header().prefix_len as usize
    }

    /// Key and value bytes of the newest rows below.
    pub(crate) fn weight(self) -> i64 {
        self.header().weight.load(Ordering::Relaxed)
    }

    /// Writer only.
    #[inline(always)]
    pub(crate) fn add_weight(self, change: i64) {
        // One thread writes, so this need not be one atomic step.
        self.header().weight.store(self.weight() + change, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn kind(self) -> Node<'a> {
        if self.level() == 0 {
            Node::Leaf(LeafRef::of(self))
        } else {
            Node::Inner(InnerRef::of(self))
        }
    }
}

/// The eight bytes of `key` from `prefix_len` on, as a number that compares as they do.
#[inline(always)]
pub(crate) fn head(key: &[u8], prefix_len: usize) -> u64 {
    let rest = key.get(prefix_len..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => short_head(rest),
    }
}

#[inline]
fn short_head(rest: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(rest) {
        *to = *from;
    }
    u64::from_be_bytes(bytes)
}

/// How many leading bytes two keys have in common.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// How many of the sorted `heads` are below `head`. Without branches that depend on the keys.
#[inline(always)]
fn lower_bound(heads: &[u64], head: u64) -> usize {
    let (mut base, mut len) = (0, heads.len());
    if len == 0 {
        return 0;
    }
    while len > 1 {
        let half = len / 2;
        base = std::hint::select_unpredictable(heads[base + half - 1] < head, base + half, base);
        len -= half;
    }
    base + usize::from(heads[base] < head)
}

/// How many of the sorted `heads` are not above `head`.
fn upper_bound(heads: &[u64], head: u64) -> usize {
    heads.partition_point(|other| *other <= head)
}

#[cfg(test)]
mod tests;
