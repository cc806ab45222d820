//! Separators: the keys in inner nodes that tell which child to follow.

use super::super::arena::{Arena, Kind};
use super::common_prefix;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

const LEN: usize = size_of::<u32>();

/// A separator: its length, then its bytes, in an allocation of its own.
#[derive(Clone, Copy)]
pub(crate) struct Separator<'a> {
    at: NonNull<u8>,
    lifetime: PhantomData<&'a u8>,
}

impl<'a> Separator<'a> {
    /// A new separator with these bytes.
    pub(crate) fn create(arena: &mut Arena, bytes: &[u8]) -> Self {
        let at = arena.alloc(Kind::Inner, LEN + bytes.len());
        // SAFETY: the arena gave us that many bytes, aligned to 8.
        unsafe {
            at.cast::<u32>().write(bytes.len() as u32);
            ptr::copy_nonoverlapping(bytes.as_ptr(), at.as_ptr().add(LEN), bytes.len());
        }
        Self { at, lifetime: PhantomData }
    }

    /// # Safety
    /// `at` was made by [`Separator::create`] and is not freed during `'a`.
    #[inline(always)]
    pub(super) unsafe fn new(at: NonNull<u8>) -> Self {
        Self { at, lifetime: PhantomData }
    }

    pub(crate) fn as_ptr(self) -> NonNull<u8> {
        self.at
    }

    #[inline]
    pub(crate) fn bytes(self) -> &'a [u8] {
        // SAFETY: `create` wrote length and bytes, which never change, and they are live for 'a.
        unsafe {
            let len = self.at.cast::<u32>().read() as usize;
            std::slice::from_raw_parts(self.at.as_ptr().add(LEN), len)
        }
    }
}

/// The shortest key that is above `left` and not above `right`.
pub(crate) fn shortest_between<'a>(left: &[u8], right: &'a [u8]) -> &'a [u8] {
    debug_assert!(left < right);
    &right[..common_prefix(left, right) + 1]
}
