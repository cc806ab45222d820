//! The C library's change data capture: streams, a consumer's handle, and what their futures give.
//!
//! Bytes of what a stream delivers are copied before its future goes. A mutation of a kind that
//! isn't known is an error, never left out: whoever follows would be something else from then on.

use super::functions::{
    CaptureFunctions, NativeBatch, NativeKey, NativeKeyRange, NativeMutation, NativeStream, Raw,
};
use super::handles::{Database, Pending, Ready, check, length, slice};
use super::library::Library;
use plinth_client::CapturedStream;
use plinth_types::{
    Bytes, ChangeBatch, Changes, Error, KeyRange, MutationList, MutationType, Result, printable,
};
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;

/// A consumer's handle.
pub(crate) struct Consumer {
    library: &'static Library,
    functions: &'static CaptureFunctions,
    raw: Raw,
}

// SAFETY: the C API allows handles on any thread, and refuses a second operation of a consumer's
// while one is under way.
unsafe impl Send for Consumer {}
// SAFETY: as above, also at once.
unsafe impl Sync for Consumer {}

impl Drop for Consumer {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody has it any more: each of its futures owned a share.
        unsafe { (self.functions.consumer_destroy)(self.raw) }
    }
}

fn key_of(key: &[u8]) -> NativeKey {
    NativeKey { key: key.as_ptr(), key_length: length(key) }
}

impl Database {
    /// The future of a call.
    fn captured(self: &Arc<Self>, call: impl FnOnce(&CaptureFunctions) -> Raw) -> Result<Pending> {
        let raw = call(self.library.capture()?);
        Ok(Pending::new(self.library, raw, self.clone()))
    }

    pub(crate) fn register_stream(
        self: &Arc<Self>,
        name: &[u8],
        range: &KeyRange,
    ) -> Result<Pending> {
        let range = NativeKeyRange { begin: key_of(&range.begin), end: key_of(&range.end) };
        // SAFETY: the handle lives; name and range are copied before the call returns.
        self.captured(|it| unsafe {
            (it.register)(self.raw, name.as_ptr(), length(name), &raw const range, 1)
        })
    }

    pub(crate) fn remove_stream(self: &Arc<Self>, name: &[u8]) -> Result<Pending> {
        // SAFETY: the handle lives; the name is copied before the call returns.
        self.captured(|it| unsafe { (it.remove)(self.raw, name.as_ptr(), length(name)) })
    }

    pub(crate) fn list_streams(self: &Arc<Self>) -> Result<Pending> {
        // SAFETY: the handle lives.
        self.captured(|it| unsafe { (it.list)(self.raw) })
    }

    pub(crate) fn create_consumer(self: &Arc<Self>, name: &[u8]) -> Result<Pending> {
        // SAFETY: the handle lives; the name is copied before the call returns.
        self.captured(|it| unsafe { (it.create_consumer)(self.raw, name.as_ptr(), length(name)) })
    }
}

impl Consumer {
    pub(crate) fn consume(self: &Arc<Self>) -> Pending {
        // SAFETY: the handle lives.
        let raw = unsafe { (self.functions.consume)(self.raw) };
        Pending::new(self.library, raw, self.clone())
    }

    pub(crate) fn acknowledge(self: &Arc<Self>) -> Pending {
        // SAFETY: the handle lives.
        let raw = unsafe { (self.functions.acknowledge)(self.raw) };
        Pending::new(self.library, raw, self.clone())
    }
}

/// A pointer to an array, and how many it has.
fn elements(count: c_int) -> std::ops::Range<usize> {
    0..usize::try_from(count).unwrap_or(0)
}

impl Ready<'_> {
    pub(crate) fn uint64(&self) -> Result<u64> {
        self.done()?;
        let mut value = 0;
        // SAFETY: the handle lives; `value` is writable.
        check(unsafe { (self.library().capture()?.future_uint64)(self.raw(), &raw mut value) })?;
        Ok(value)
    }

    pub(crate) fn consumer(&self) -> Result<Consumer> {
        self.done()?;
        let (functions, mut raw) = (self.library().capture()?, null_mut());
        // SAFETY: the handle lives; `raw` is writable, and what it gets is ours.
        check(unsafe { (functions.future_consumer)(self.raw(), &raw mut raw) })?;
        Ok(Consumer { library: self.library(), functions, raw })
    }

    pub(crate) fn streams(&self) -> Result<Vec<CapturedStream>> {
        self.done()?;
        let (mut array, mut count): (*const NativeStream, _) = (std::ptr::null(), 0);
        let get = self.library().capture()?.future_streams;
        // SAFETY: the handle lives; both are writable.
        check(unsafe { get(self.raw(), &raw mut array, &raw mut count) })?;
        let stream = |at: usize| {
            // SAFETY: the library gave an array of `count` streams, packed as the structure is, and
            // the future lives.
            let stream = unsafe { array.add(at).read_unaligned() };
            // SAFETY: as above.
            let name = unsafe { slice(stream.name.key, stream.name.key_length) };
            CapturedStream {
                name: Bytes::copy_from_slice(name),
                id: stream.id,
                needed: stream.min_version,
            }
        };
        Ok(elements(count).map(stream).collect())
    }

    pub(crate) fn changes(&self) -> Result<Changes> {
        self.done()?;
        let (mut array, mut count, mut upto): (*const NativeBatch, _, _) = (std::ptr::null(), 0, 0);
        let get = self.library().capture()?.future_changes;
        // SAFETY: the handle lives; all three are writable.
        check(unsafe { get(self.raw(), &raw mut array, &raw mut count, &raw mut upto) })?;
        let batch = |at: usize| {
            // SAFETY: the library gave an array of `count` batches, packed as the structure is, and
            // the future lives.
            let batch = unsafe { array.add(at).read_unaligned() };
            // SAFETY: as above, for the batch's mutations.
            let mutations = unsafe { mutations(batch.mutations, batch.mutation_count) }?;
            Ok(ChangeBatch { version: batch.version, mutations })
        };
        let batches = elements(count).map(batch).collect::<Result<Vec<_>>>()?;
        Ok(Changes { batches, upto, newest: upto })
    }
}

/// The mutations of a batch.
///
/// # Safety
/// So many must be readable there, and what they point to.
unsafe fn mutations(array: *const NativeMutation, count: c_int) -> Result<MutationList> {
    let mut list = MutationList::new();
    for at in elements(count) {
        // SAFETY: the caller's promise.
        let mutation = unsafe { array.add(at).read_unaligned() };
        // SAFETY: as above.
        let (param1, param2) = unsafe {
            let NativeMutation { param1, param2, .. } = mutation;
            (slice(param1.key, param1.key_length), slice(param2.key, param2.key_length))
        };
        list.push(kind_of(mutation.kind, param1)?, param1, param2);
    }
    Ok(list)
}

/// The kind of a mutation that was committed, in which there are no versionstamps left to be filled
/// in.
fn kind_of(code: u8, key: &[u8]) -> Result<MutationType> {
    use MutationType::{SetVersionstampedKey, SetVersionstampedValue};
    MutationType::from_code(code.into())
        .filter(|kind| !matches!(kind, SetVersionstampedKey | SetVersionstampedValue))
        .ok_or_else(|| {
            let detail =
                format!("the stream has a mutation of kind {code}, of the key {}", printable(key));
            Error::unsupported_operation().with_detail(detail)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_a_stream_can_not_have_are_refused() {
        assert_eq!(kind_of(0, b"k"), Ok(MutationType::Set));
        assert_eq!(kind_of(20, b"k"), Ok(MutationType::CompareAndClear));
        for code in [3, 14, 15, 21, 255] {
            assert_eq!(kind_of(code, b"k"), Err(Error::unsupported_operation()), "{code}");
        }
    }
}
