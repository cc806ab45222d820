//! A record: one version of one key, in one allocation, never changed once a reader may see it.
//!
//! ```text
//!   | version 8 | prev 8 | key length 4 | value length 4 | key .. | value .. |
//! ```
//!
//! `prev` is the record of the next older version of the same key, until no transaction can read it
//! any more: then the writer cuts the chain. A removed key has a record too (a tombstone) until its
//! version leaves the window. A record that has not been published yet may be given another value
//! of the same length: no reader looks at the value of a version above the published one.

use super::arena::{Arena, Kind};
use plinth_types::Version;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The head of a record in memory; key and value follow.
#[repr(C)]
pub(crate) struct Record {
    version: Version,
    prev: AtomicPtr<Record>,
    key_len: u32,
    value_len: u32,
}

const TOMBSTONE: u32 = u32::MAX;

/// What a record costs beyond its key and value, before rounding.
pub(crate) const OVERHEAD: usize = size_of::<Record>();

/// A record that stays allocated for `'a`: as long as the reader is pinned, or the writer's lock is
/// held.
#[derive(Clone, Copy)]
pub(crate) struct RecordRef<'a> {
    at: NonNull<Record>,
    lifetime: PhantomData<&'a Record>,
}

/// Writes a new record. `None` for the value makes a tombstone.
pub(crate) fn create(
    arena: &mut Arena,
    version: Version,
    key: &[u8],
    value: Option<&[u8]>,
    prev: Option<RecordRef<'_>>,
) -> NonNull<Record> {
    assert!(key.len() < TOMBSTONE as usize, "a key of {} bytes", key.len());
    let bytes = value.unwrap_or_default();
    assert!(bytes.len() < TOMBSTONE as usize, "a value of {} bytes", bytes.len());
    let at = arena.alloc(Kind::Record, OVERHEAD + key.len() + bytes.len()).cast::<Record>();
    let head = Record {
        version,
        prev: AtomicPtr::new(prev.map_or(ptr::null_mut(), |prev| prev.at.as_ptr())),
        key_len: key.len() as u32,
        value_len: value.map_or(TOMBSTONE, |value| value.len() as u32),
    };
    // SAFETY: the arena gave us OVERHEAD + key + value bytes, aligned to 8, that nobody else knows
    // of.
    unsafe {
        at.write(head);
        let key_at = at.add(1).cast::<u8>().as_ptr();
        ptr::copy_nonoverlapping(key.as_ptr(), key_at, key.len());
        ptr::copy_nonoverlapping(bytes.as_ptr(), key_at.add(key.len()), bytes.len());
    }
    at
}

impl<'a> RecordRef<'a> {
    /// # Safety
    /// `at` was made by [`create`] and is not freed during `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(at: NonNull<Record>) -> Self {
        Self { at, lifetime: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn as_ptr(self) -> NonNull<Record> {
        self.at
    }

    #[inline(always)]
    fn head(self) -> &'a Record {
        // SAFETY: the record is live for 'a, and its head is only changed through its atomic part.
        // The value length may change before the record is published; see `overwrite`.
        unsafe { self.at.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn version(self) -> Version {
        self.head().version
    }

    #[inline(always)]
    pub(crate) fn key(self) -> &'a [u8] {
        // SAFETY: `create` wrote that many key bytes behind the head, and nobody changes them.
        unsafe {
            let bytes = self.at.add(1).cast::<u8>().as_ptr();
            std::slice::from_raw_parts(bytes, self.head().key_len as usize)
        }
    }

    /// The record of the next older version that is kept.
    #[inline(always)]
    pub(crate) fn prev(self) -> Option<RecordRef<'a>> {
        let prev = NonNull::new(self.head().prev.load(Ordering::Acquire))?;
        // SAFETY: a record is freed only after it is unlinked and all readers that could have
        // followed the link have left; 'a ends before that.
        Some(unsafe { RecordRef::new(prev) })
    }

    /// Makes `prev` the next older version. Writer only.
    pub(crate) fn set_prev(self, prev: Option<RecordRef<'_>>) {
        let prev = prev.map_or(ptr::null_mut(), |prev| prev.at.as_ptr());
        self.head().prev.store(prev, Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn is_tombstone(self) -> bool {
        self.head().value_len == TOMBSTONE
    }

    /// The value; `None` for a tombstone. Only for records that are published, or for the writer.
    #[inline(always)]
    pub(crate) fn value(self) -> Option<&'a [u8]> {
        let head = self.head();
        if head.value_len == TOMBSTONE {
            return None;
        }
        // SAFETY: `create` wrote that many value bytes behind the key, and they do not change any
        // more once the record's version is published.
        unsafe {
            let bytes = self.at.add(1).cast::<u8>().as_ptr().add(head.key_len as usize);
            Some(std::slice::from_raw_parts(bytes, head.value_len as usize))
        }
    }

    /// The value at `version`: the newest one that is not above. `None` if the key did not exist.
    #[inline(always)]
    pub(crate) fn value_at(self, version: Version) -> Option<&'a [u8]> {
        self.at_version(version)?.value()
    }

    /// The newest record of the chain that is not above `version`.
    #[inline(always)]
    pub(crate) fn at_version(self, version: Version) -> Option<RecordRef<'a>> {
        let mut record = self;
        while record.version() > version {
            record = record.prev()?;
        }
        Some(record)
    }

    /// What the row counts in sizes: the bytes of key and value; nothing for a tombstone.
    pub(crate) fn weight(self) -> i64 {
        let head = self.head();
        if head.value_len == TOMBSTONE {
            0
        } else {
            i64::from(head.key_len) + i64::from(head.value_len)
        }
    }

    /// Puts another value of the same length into a record that is not published. Writer only; no
    /// `value()` of this record may be in use.
    pub(crate) fn overwrite(self, value: &[u8]) {
        assert!(self.head().value_len as usize == value.len(), "the length of a record is fixed");
        // SAFETY: the value bytes lie behind the key; readers never look at them before the version
        // is published, and the writer, who alone calls this, holds no slice of them.
        unsafe {
            let bytes = self.at.add(1).cast::<u8>().as_ptr().add(self.head().key_len as usize);
            ptr::copy_nonoverlapping(value.as_ptr(), bytes, value.len());
        }
    }
}
