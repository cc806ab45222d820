//! Handles of the C library that own what they name: databases, transactions, futures.
//!
//! A future becomes a [`Reply`] by its callback: the callback owns the future and whatever must
//! outlive it (its transaction), decodes the value, copies it, and sends it. Giving a reply up
//! cancels through a [`Cancel`].

use super::functions::{NativeKey, NativeKeyValue, Raw};
use super::library::Library;
use plinth_env::reply::{Reply, promise};
use plinth_types::{Bytes, Error, KeySelector, Result, Rows};
use std::ffi::{CStr, CString, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Arc;

/// 0, or the error's number.
pub(super) fn check(code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::from_code(code)) }
}

/// A length as C counts it. Longer ones are beyond every limit of the database, and are cut rather
/// than wrapped.
pub(super) fn length(bytes: &[u8]) -> c_int {
    c_int::try_from(bytes.len()).unwrap_or(c_int::MAX)
}

/// A database handle.
pub(crate) struct Database {
    pub(super) library: &'static Library,
    pub(super) raw: Raw,
}

// SAFETY: the C API allows database handles on any thread.
unsafe impl Send for Database {}
// SAFETY: as above, also at once.
unsafe impl Sync for Database {}

impl Database {
    /// The database that a cluster file argument names; empty for the default one.
    pub(crate) fn open(library: &'static Library, cluster_file: &str) -> Result<Self> {
        let path = CString::new(cluster_file)
            .map_err(|_| Error::no_cluster_file_found().with_detail("the path has a zero byte"))?;
        let mut raw = null_mut();
        // SAFETY: the network is set up; the path ends in a zero byte; `raw` is writable.
        check(unsafe { (library.functions.create_database)(path.as_ptr(), &raw mut raw) })?;
        Ok(Self { library, raw })
    }

    /// Sets an option to a number.
    pub(crate) fn set_option(&self, code: i32, value: i64) -> Result<()> {
        let value = value.to_le_bytes();
        // SAFETY: the handle lives; the value is copied before the call returns.
        check(unsafe {
            (self.library.functions.database_set_option)(
                self.raw,
                code,
                value.as_ptr(),
                length(&value),
            )
        })
    }

    /// A new transaction.
    pub(crate) fn create_transaction(&self) -> Result<Arc<Transaction>> {
        let mut raw = null_mut();
        // SAFETY: the handle lives; `raw` is writable.
        check(unsafe {
            (self.library.functions.database_create_transaction)(self.raw, &raw mut raw)
        })?;
        Ok(Arc::new(Transaction { library: self.library, raw }))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody has it any more; transactions keep what they need.
        unsafe { (self.library.functions.database_destroy)(self.raw) }
    }
}

/// A transaction handle.
pub(crate) struct Transaction {
    library: &'static Library,
    raw: Raw,
}

// SAFETY: the C API allows transactions on any thread.
unsafe impl Send for Transaction {}
// SAFETY: as above, also at once.
unsafe impl Sync for Transaction {}

/// The rows to read: as the client's `RangeRead`, in C's numbers.
pub(crate) struct RangeAsk<'a> {
    pub begin: &'a KeySelector,
    pub end: &'a KeySelector,
    /// 0: no limit.
    pub limit: c_int,
    /// 0: as the mode says.
    pub target_bytes: c_int,
    pub mode: c_int,
    pub reverse: bool,
}

impl Transaction {
    /// Sets an option that takes no value.
    pub(crate) fn set_option(&self, code: i32) -> Result<()> {
        // SAFETY: the handle lives; no value is given.
        check(unsafe {
            (self.library.functions.transaction_set_option)(self.raw, code, std::ptr::null(), 0)
        })
    }

    /// Sets an option to some bytes.
    pub(crate) fn set_option_bytes(&self, code: i32, value: &[u8]) -> Result<()> {
        // SAFETY: the handle lives; the value is copied before the call returns.
        check(unsafe {
            (self.library.functions.transaction_set_option)(
                self.raw,
                code,
                value.as_ptr(),
                length(value),
            )
        })
    }

    pub(crate) fn set_read_version(&self, version: i64) {
        // SAFETY: the handle lives.
        unsafe { (self.library.functions.transaction_set_read_version)(self.raw, version) }
    }

    pub(crate) fn cancel(&self) {
        // SAFETY: the handle lives.
        unsafe { (self.library.functions.transaction_cancel)(self.raw) }
    }

    pub(crate) fn read_version(self: &Arc<Self>) -> Pending {
        // SAFETY: the handle lives.
        self.future(unsafe { (self.library.functions.transaction_get_read_version)(self.raw) })
    }

    /// A snapshot read of a key.
    pub(crate) fn get(self: &Arc<Self>, key: &[u8]) -> Pending {
        // SAFETY: the handle lives; the key is copied before the call returns.
        self.future(unsafe {
            (self.library.functions.transaction_get)(self.raw, key.as_ptr(), length(key), 1)
        })
    }

    /// A snapshot read of the key that a selector describes.
    pub(crate) fn get_key(self: &Arc<Self>, selector: &KeySelector) -> Pending {
        let KeySelector { key, or_equal, offset } = selector;
        // SAFETY: the handle lives; the key is copied before the call returns.
        self.future(unsafe {
            (self.library.functions.transaction_get_key)(
                self.raw,
                key.as_ptr(),
                length(key),
                c_int::from(*or_equal),
                *offset,
                1,
            )
        })
    }

    /// A snapshot read of a range.
    pub(crate) fn get_range(self: &Arc<Self>, ask: &RangeAsk<'_>) -> Pending {
        let (begin, end) = (ask.begin, ask.end);
        // SAFETY: the handle lives; the keys are copied before the call returns.
        self.future(unsafe {
            (self.library.functions.transaction_get_range)(
                self.raw,
                begin.key.as_ptr(),
                length(&begin.key),
                c_int::from(begin.or_equal),
                begin.offset,
                end.key.as_ptr(),
                length(&end.key),
                c_int::from(end.or_equal),
                end.offset,
                ask.limit,
                ask.target_bytes,
                ask.mode,
                1,
                1,
                c_int::from(ask.reverse),
            )
        })
    }

    pub(crate) fn addresses(self: &Arc<Self>, key: &[u8]) -> Pending {
        // SAFETY: the handle lives; the key is copied before the call returns.
        self.future(unsafe {
            (self.library.functions.transaction_addresses)(self.raw, key.as_ptr(), length(key))
        })
    }

    pub(crate) fn range_size(self: &Arc<Self>, begin: &[u8], end: &[u8]) -> Pending {
        // SAFETY: the handle lives; the keys are copied before the call returns.
        self.future(unsafe {
            (self.library.functions.transaction_range_size)(
                self.raw,
                begin.as_ptr(),
                length(begin),
                end.as_ptr(),
                length(end),
            )
        })
    }

    pub(crate) fn split_points(self: &Arc<Self>, begin: &[u8], end: &[u8], chunk: i64) -> Pending {
        // SAFETY: the handle lives; the keys are copied before the call returns.
        self.future(unsafe {
            (self.library.functions.transaction_split_points)(
                self.raw,
                begin.as_ptr(),
                length(begin),
                end.as_ptr(),
                length(end),
                chunk,
            )
        })
    }

    pub(crate) fn set(&self, key: &[u8], value: &[u8]) {
        // SAFETY: the handle lives; key and value are copied before the call returns.
        unsafe {
            (self.library.functions.transaction_set)(
                self.raw,
                key.as_ptr(),
                length(key),
                value.as_ptr(),
                length(value),
            );
        }
    }

    pub(crate) fn clear_range(&self, begin: &[u8], end: &[u8]) {
        // SAFETY: the handle lives; the keys are copied before the call returns.
        unsafe {
            (self.library.functions.transaction_clear_range)(
                self.raw,
                begin.as_ptr(),
                length(begin),
                end.as_ptr(),
                length(end),
            );
        }
    }

    pub(crate) fn atomic_op(&self, key: &[u8], operand: &[u8], kind: c_int) {
        // SAFETY: the handle lives; key and operand are copied before the call returns.
        unsafe {
            (self.library.functions.transaction_atomic_op)(
                self.raw,
                key.as_ptr(),
                length(key),
                operand.as_ptr(),
                length(operand),
                kind,
            );
        }
    }

    /// Adds a conflict range: `kind` 0 as if read, 1 as if written.
    pub(crate) fn add_conflict_range(&self, begin: &[u8], end: &[u8], kind: c_int) -> Result<()> {
        // SAFETY: the handle lives; the keys are copied before the call returns.
        check(unsafe {
            (self.library.functions.transaction_add_conflict_range)(
                self.raw,
                begin.as_ptr(),
                length(begin),
                end.as_ptr(),
                length(end),
                kind,
            )
        })
    }

    pub(crate) fn watch(self: &Arc<Self>, key: &[u8]) -> Pending {
        // SAFETY: the handle lives; the key is copied before the call returns.
        self.future(unsafe {
            (self.library.functions.transaction_watch)(self.raw, key.as_ptr(), length(key))
        })
    }

    pub(crate) fn versionstamp(self: &Arc<Self>) -> Pending {
        // SAFETY: the handle lives.
        self.future(unsafe { (self.library.functions.transaction_versionstamp)(self.raw) })
    }

    pub(crate) fn commit(self: &Arc<Self>) -> Pending {
        // SAFETY: the handle lives.
        self.future(unsafe { (self.library.functions.transaction_commit)(self.raw) })
    }

    /// The version of the commit that succeeded; -1 if there was nothing to commit.
    pub(crate) fn committed_version(&self) -> Result<i64> {
        let mut version = 0;
        // SAFETY: the handle lives; `version` is writable.
        check(unsafe {
            (self.library.functions.transaction_committed_version)(self.raw, &raw mut version)
        })?;
        Ok(version)
    }

    fn future(self: &Arc<Self>, raw: Raw) -> Pending {
        Pending::new(self.library, raw, self.clone())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody has it any more; a committed watch lives on without it.
        unsafe { (self.library.functions.transaction_destroy)(self.raw) }
    }
}

/// A future's handle; shared between its callback and whoever may cancel it.
struct Future {
    library: &'static Library,
    raw: Raw,
}

// SAFETY: the C API allows futures on any thread; destroying one happens when nobody has it.
unsafe impl Send for Future {}
// SAFETY: as above, also at once.
unsafe impl Sync for Future {}

impl Drop for Future {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody has it any more. Its callback, if any, owned a share and has
        // run.
        unsafe { (self.library.functions.future_destroy)(self.raw) }
    }
}

/// Gives a future up, from any thread.
#[derive(Clone)]
pub(crate) struct Cancel(Arc<Future>);

impl Cancel {
    pub(crate) fn cancel(&self) {
        // SAFETY: the handle lives.
        unsafe { (self.0.library.functions.future_cancel)(self.0.raw) }
    }
}

/// A future that has not been asked for its value.
pub(crate) struct Pending {
    future: Arc<Future>,
    /// What gave it: a transaction, a database, a consumer.
    giver: Arc<dyn Send + Sync>,
}

type Answer = Box<dyn FnOnce(Ready<'_>) + Send>;

/// What a callback owns while C holds it.
struct Call {
    pending: Pending,
    answer: Answer,
}

impl Pending {
    pub(super) fn new(library: &'static Library, raw: Raw, giver: Arc<dyn Send + Sync>) -> Self {
        Self { future: Arc::new(Future { library, raw }), giver }
    }

    /// How the future is given up.
    pub(crate) fn canceller(&self) -> Cancel {
        Cancel(self.future.clone())
    }

    /// Has `answer` called once with the value: now if it is there, else on the network's thread.
    /// What gave it lives until then.
    pub(crate) fn on_ready(self, answer: impl FnOnce(Ready<'_>) + Send + 'static) {
        let future = self.future.clone();
        let call = Box::into_raw(Box::new(Call { pending: self, answer: Box::new(answer) }));
        // SAFETY: the handle lives, and `called` takes the box over: it runs exactly once.
        let code = unsafe {
            (future.library.functions.future_set_callback)(future.raw, called, call.cast())
        };
        if code != 0 {
            // SAFETY: the library refused the callback, so the box is still ours.
            let call = unsafe { Box::from_raw(call) };
            (call.answer)(Ready { future: &future, refused: code });
        }
    }

    /// The value as a reply. Dropping the reply cancels the future.
    pub(crate) fn reply<T: Send + 'static>(
        self,
        decode: impl FnOnce(Ready<'_>) -> Result<T> + Send + 'static,
    ) -> Reply<T> {
        let (mut promise, reply) = promise();
        let cancel = self.canceller();
        promise.on_cancel(move || cancel.cancel());
        self.on_ready(move |ready| promise.send(decode(ready)));
        reply
    }
}

unsafe extern "C" fn called(_: Raw, parameter: *mut c_void) {
    // SAFETY: the parameter is the box that `on_ready` made for this one call.
    let call = unsafe { Box::from_raw(parameter.cast::<Call>()) };
    let Call { pending, answer } = *call;
    // A panic must not pass into C; whoever waits gets `broken_promise`.
    let _ =
        catch_unwind(AssertUnwindSafe(|| answer(Ready { future: &pending.future, refused: 0 })));
    // What gave it goes after it.
    let Pending { future, giver } = pending;
    drop(future);
    drop(giver);
}

/// A future whose value is there. Every getter copies.
pub(crate) struct Ready<'a> {
    future: &'a Future,
    /// Why the future could not be waited for; 0 if it could.
    refused: c_int,
}

impl Ready<'_> {
    pub(super) fn library(&self) -> &'static Library {
        self.future.library
    }

    pub(super) fn raw(&self) -> Raw {
        self.future.raw
    }

    fn functions(&self) -> &super::functions::Functions {
        &self.future.library.functions
    }

    /// Whether the operation succeeded.
    pub(crate) fn done(&self) -> Result<()> {
        check(self.refused)?;
        // SAFETY: the handle lives.
        check(unsafe { (self.functions().future_error)(self.future.raw) })
    }

    pub(crate) fn int64(&self) -> Result<i64> {
        self.done()?;
        let mut value = 0;
        // SAFETY: the handle lives; `value` is writable.
        check(unsafe { (self.functions().future_int64)(self.future.raw, &raw mut value) })?;
        Ok(value)
    }

    pub(crate) fn key(&self) -> Result<Bytes> {
        self.done()?;
        let (mut key, mut length) = (std::ptr::null(), 0);
        // SAFETY: the handle lives; both are writable.
        check(unsafe {
            (self.functions().future_key)(self.future.raw, &raw mut key, &raw mut length)
        })?;
        // SAFETY: the library gave them, and the future lives.
        Ok(Bytes::copy_from_slice(unsafe { slice(key, length) }))
    }

    pub(crate) fn value(&self) -> Result<Option<Bytes>> {
        self.done()?;
        let (mut present, mut value, mut length) = (0, std::ptr::null(), 0);
        // SAFETY: the handle lives; all three are writable.
        check(unsafe {
            (self.functions().future_value)(
                self.future.raw,
                &raw mut present,
                &raw mut value,
                &raw mut length,
            )
        })?;
        if present == 0 {
            return Ok(None);
        }
        // SAFETY: the library gave them, and the future lives.
        Ok(Some(Bytes::copy_from_slice(unsafe { slice(value, length) })))
    }

    /// The rows, and whether more are left.
    pub(crate) fn rows(&self) -> Result<(Rows, bool)> {
        self.done()?;
        let (mut array, mut count, mut more): (*const NativeKeyValue, _, _) =
            (std::ptr::null(), 0, 0);
        // SAFETY: the handle lives; all three are writable.
        check(unsafe {
            (self.functions().future_rows)(
                self.future.raw,
                &raw mut array,
                &raw mut count,
                &raw mut more,
            )
        })?;
        let mut rows = Rows::builder();
        for at in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the library gave an array of `count` rows, packed as the structure is, and
            // the future lives.
            let row = unsafe { array.add(at).read_unaligned() };
            // SAFETY: as above.
            let (key, value) =
                unsafe { (slice(row.key, row.key_length), slice(row.value, row.value_length)) };
            rows.push(key, value);
        }
        Ok((rows.finish(), more != 0))
    }

    pub(crate) fn keys(&self) -> Result<Vec<Bytes>> {
        self.done()?;
        let (mut array, mut count): (*const NativeKey, _) = (std::ptr::null(), 0);
        // SAFETY: the handle lives; both are writable.
        check(unsafe {
            (self.functions().future_keys)(self.future.raw, &raw mut array, &raw mut count)
        })?;
        let mut keys = Vec::new();
        for at in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the library gave an array of `count` keys, packed as the structure is, and
            // the future lives.
            let key = unsafe { array.add(at).read_unaligned() };
            // SAFETY: as above.
            keys.push(Bytes::copy_from_slice(unsafe { slice(key.key, key.key_length) }));
        }
        Ok(keys)
    }

    pub(crate) fn strings(&self) -> Result<Vec<String>> {
        self.done()?;
        let (mut array, mut count) = (std::ptr::null(), 0);
        // SAFETY: the handle lives; both are writable.
        check(unsafe {
            (self.functions().future_strings)(self.future.raw, &raw mut array, &raw mut count)
        })?;
        let mut strings = Vec::new();
        for at in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the library gave an array of `count` pointers to strings, and the future
            // lives.
            let text = unsafe { CStr::from_ptr(array.add(at).read_unaligned()) };
            strings.push(text.to_string_lossy().into_owned());
        }
        Ok(strings)
    }
}

/// The bytes that the library names by pointer and length; none for null.
///
/// # Safety
/// Unless null, that many bytes must be readable there while the result is used.
pub(super) unsafe fn slice<'a>(pointer: *const u8, length: c_int) -> &'a [u8] {
    match usize::try_from(length) {
        // SAFETY: the caller's promise, and the pointer is not null.
        Ok(length) if !pointer.is_null() => unsafe { std::slice::from_raw_parts(pointer, length) },
        _ => &[],
    }
}
