//! RocksDB through its C interface, with optimistic transactions.
//!
//! Only what the workloads call is declared here. Handles are owned by the types below, which free
//! them; RocksDB allows their use by several threads at once, transactions and iterators excepted,
//! and those never leave the call that made them.
#![expect(unsafe_code, reason = "RocksDB has no other interface than C's and C++'s")]

use super::CACHE_BYTES;
use crate::store::{Key, Result, Seen, Store};
use std::ffi::{CStr, CString, c_char, c_uchar, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// Any of RocksDB's objects.
type Handle = *mut c_void;
/// Where a call leaves its error: a text to be freed.
type ErrorText = *mut c_char;

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_options_create() -> Handle;
    fn rocksdb_options_set_create_if_missing(options: Handle, yes: c_uchar);
    fn rocksdb_block_based_options_create() -> Handle;
    fn rocksdb_block_based_options_set_block_cache(options: Handle, cache: Handle);
    fn rocksdb_options_set_block_based_table_factory(options: Handle, table: Handle);
    fn rocksdb_cache_create_lru(bytes: usize) -> Handle;
    fn rocksdb_optimistictransactiondb_open(
        options: Handle,
        path: *const c_char,
        error: *mut ErrorText,
    ) -> Handle;
    fn rocksdb_optimistictransactiondb_get_base_db(database: Handle) -> Handle;
    fn rocksdb_optimistictransactiondb_close_base_db(base: Handle);
    fn rocksdb_optimistictransactiondb_close(database: Handle);
    fn rocksdb_optimistictransaction_options_create() -> Handle;
    fn rocksdb_optimistictransaction_options_set_set_snapshot(options: Handle, yes: c_uchar);
    fn rocksdb_optimistictransaction_begin(
        database: Handle,
        write: Handle,
        options: Handle,
        old: Handle,
    ) -> Handle;
    fn rocksdb_transaction_get_for_update(
        transaction: Handle,
        options: Handle,
        key: *const c_char,
        key_len: usize,
        value_len: *mut usize,
        exclusive: c_uchar,
        error: *mut ErrorText,
    ) -> *mut c_char;
    fn rocksdb_transaction_put(
        transaction: Handle,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: *mut ErrorText,
    );
    fn rocksdb_transaction_commit(transaction: Handle, error: *mut ErrorText);
    fn rocksdb_transaction_destroy(transaction: Handle);
    fn rocksdb_writeoptions_create() -> Handle;
    fn rocksdb_writeoptions_set_sync(options: Handle, yes: c_uchar);
    fn rocksdb_writebatch_create() -> Handle;
    fn rocksdb_writebatch_put(
        batch: Handle,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
    );
    fn rocksdb_writebatch_destroy(batch: Handle);
    fn rocksdb_write(base: Handle, options: Handle, batch: Handle, error: *mut ErrorText);
    fn rocksdb_readoptions_create() -> Handle;
    fn rocksdb_readoptions_set_snapshot(options: Handle, snapshot: *const c_void);
    fn rocksdb_readoptions_destroy(options: Handle);
    fn rocksdb_create_snapshot(base: Handle) -> *const c_void;
    fn rocksdb_release_snapshot(base: Handle, snapshot: *const c_void);
    fn rocksdb_get_pinned(
        base: Handle,
        options: Handle,
        key: *const c_char,
        key_len: usize,
        error: *mut ErrorText,
    ) -> Handle;
    fn rocksdb_pinnableslice_value(slice: Handle, len: *mut usize) -> *const c_char;
    fn rocksdb_pinnableslice_destroy(slice: Handle);
    fn rocksdb_create_iterator(base: Handle, options: Handle) -> Handle;
    fn rocksdb_iter_seek(iterator: Handle, key: *const c_char, key_len: usize);
    fn rocksdb_iter_valid(iterator: Handle) -> c_uchar;
    fn rocksdb_iter_key(iterator: Handle, len: *mut usize) -> *const c_char;
    fn rocksdb_iter_value(iterator: Handle, len: *mut usize) -> *const c_char;
    fn rocksdb_iter_next(iterator: Handle);
    fn rocksdb_iter_get_error(iterator: Handle, error: *mut ErrorText);
    fn rocksdb_iter_destroy(iterator: Handle);
    fn rocksdb_free(memory: *mut c_void);
}

struct Rocks {
    database: Handle,
    base: Handle,
    synced: Handle,
    with_snapshot: Handle,
}

// SAFETY: RocksDB's databases and options may be used by several threads at once.
unsafe impl Send for Rocks {}
// SAFETY: as above.
unsafe impl Sync for Rocks {}

pub fn open(path: &Path) -> Result<Arc<dyn Store>> {
    let path = CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: the handles are fresh and given to the calls that they are for; options live as long
    // as the process.
    unsafe {
        let options = rocksdb_options_create();
        rocksdb_options_set_create_if_missing(options, 1);
        let table = rocksdb_block_based_options_create();
        rocksdb_block_based_options_set_block_cache(
            table,
            rocksdb_cache_create_lru(CACHE_BYTES as usize),
        );
        rocksdb_options_set_block_based_table_factory(options, table);
        let mut error = null_mut();
        let database = rocksdb_optimistictransactiondb_open(options, path.as_ptr(), &mut error);
        check(error)?;
        let base = rocksdb_optimistictransactiondb_get_base_db(database);
        let synced = rocksdb_writeoptions_create();
        rocksdb_writeoptions_set_sync(synced, 1);
        let with_snapshot = rocksdb_optimistictransaction_options_create();
        rocksdb_optimistictransaction_options_set_set_snapshot(with_snapshot, 1);
        Ok(Arc::new(Rocks { database, base, synced, with_snapshot }))
    }
}

impl Drop for Rocks {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handles any more.
        unsafe {
            rocksdb_optimistictransactiondb_close_base_db(self.base);
            rocksdb_optimistictransactiondb_close(self.database);
        }
    }
}

/// The error that a call left, if it left one.
///
/// # Safety
/// `error` is null or a text that RocksDB allocated and nobody has freed.
unsafe fn check(error: ErrorText) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: as the caller promises.
    unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        rocksdb_free(error.cast());
        Err(text.into())
    }
}

/// Bytes that RocksDB lends.
///
/// # Safety
/// `bytes` is valid for `len` bytes as long as the slice is used.
unsafe fn lent<'a>(bytes: *const c_char, len: usize) -> &'a [u8] {
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(bytes.cast(), len) }
}

/// Read options at one version.
struct Snapshot<'a> {
    store: &'a Rocks,
    snapshot: *const c_void,
    options: Handle,
}

impl<'a> Snapshot<'a> {
    fn new(store: &'a Rocks) -> Self {
        // SAFETY: the base database is open as long as the store.
        unsafe {
            let (snapshot, options) =
                (rocksdb_create_snapshot(store.base), rocksdb_readoptions_create());
            rocksdb_readoptions_set_snapshot(options, snapshot);
            Self { store, snapshot, options }
        }
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        // SAFETY: both were made by `new`, and nobody else has them.
        unsafe {
            rocksdb_readoptions_destroy(self.options);
            rocksdb_release_snapshot(self.store.base, self.snapshot);
        }
    }
}

impl Store for Rocks {
    fn name(&self) -> String {
        "RocksDB".to_owned()
    }

    fn isolation(&self) -> &'static str {
        "serializable for keys that are read (get for update), optimistic"
    }

    fn read(&self, keys: &[Key], seen: Seen<'_>) -> Result<()> {
        let snapshot = Snapshot::new(self);
        for key in keys {
            let mut error = null_mut();
            // SAFETY: key and options are valid during the call; the slice is, until it is
            // destroyed.
            unsafe {
                let value = rocksdb_get_pinned(
                    self.base,
                    snapshot.options,
                    key.as_ptr().cast(),
                    key.len(),
                    &mut error,
                );
                check(error)?;
                if !value.is_null() {
                    let mut len = 0;
                    let bytes = rocksdb_pinnableslice_value(value, &mut len);
                    seen(lent(bytes, len));
                    rocksdb_pinnableslice_destroy(value);
                }
            }
        }
        Ok(())
    }

    fn range(&self, first: &Key, rows: usize, seen: Seen<'_>) -> Result<u64> {
        let snapshot = Snapshot::new(self);
        // SAFETY: the iterator is this call's own; what it lends is valid until it moves on.
        unsafe {
            let iterator = rocksdb_create_iterator(self.base, snapshot.options);
            rocksdb_iter_seek(iterator, first.as_ptr().cast(), first.len());
            let mut count = 0;
            while count < rows && rocksdb_iter_valid(iterator) != 0 {
                let mut len = 0;
                let key = rocksdb_iter_key(iterator, &mut len);
                seen(lent(key, len));
                let value = rocksdb_iter_value(iterator, &mut len);
                seen(lent(value, len));
                count += 1;
                rocksdb_iter_next(iterator);
            }
            let mut error = null_mut();
            rocksdb_iter_get_error(iterator, &mut error);
            rocksdb_iter_destroy(iterator);
            check(error)?;
            Ok(count as u64)
        }
    }

    fn write(&self, rows: &[(Key, &[u8])]) -> Result<()> {
        // SAFETY: the batch is this call's own; keys and values are valid during the calls, which
        // copy them.
        unsafe {
            let batch = rocksdb_writebatch_create();
            for (key, value) in rows {
                rocksdb_writebatch_put(
                    batch,
                    key.as_ptr().cast(),
                    key.len(),
                    value.as_ptr().cast(),
                    value.len(),
                );
            }
            let mut error = null_mut();
            rocksdb_write(self.base, self.synced, batch, &mut error);
            rocksdb_writebatch_destroy(batch);
            check(error)
        }
    }

    fn read_and_write(&self, keys: &[Key], rows: &[(Key, &[u8])], seen: Seen<'_>) -> Result<bool> {
        // SAFETY: transaction and options are this call's own; keys and values are valid during the
        // calls.
        unsafe {
            let options = rocksdb_readoptions_create();
            let transaction = rocksdb_optimistictransaction_begin(
                self.database,
                self.synced,
                self.with_snapshot,
                null::<c_void>().cast_mut(),
            );
            let result = read_then_write(transaction, options, keys, rows, seen);
            let committed = result.and_then(|()| {
                let mut error = null_mut();
                rocksdb_transaction_commit(transaction, &mut error);
                match check(error) {
                    Ok(()) => Ok(true),
                    Err(text)
                        if ["busy", "try again"]
                            .iter()
                            .any(|word| text.to_string().to_lowercase().contains(word)) =>
                    {
                        Ok(false)
                    }
                    Err(text) => Err(text),
                }
            });
            rocksdb_transaction_destroy(transaction);
            rocksdb_readoptions_destroy(options);
            committed
        }
    }
}

/// The reads and writes of a transaction.
///
/// # Safety
/// Both handles are valid, and nobody else uses them.
unsafe fn read_then_write(
    transaction: Handle,
    options: Handle,
    keys: &[Key],
    rows: &[(Key, &[u8])],
    seen: Seen<'_>,
) -> Result<()> {
    const SHARED: c_uchar = 0;
    for key in keys {
        let (mut error, mut len) = (null_mut(), 0);
        // SAFETY: as the caller promises; the value is ours to free.
        unsafe {
            let value = rocksdb_transaction_get_for_update(
                transaction,
                options,
                key.as_ptr().cast(),
                key.len(),
                &mut len,
                SHARED,
                &mut error,
            );
            check(error)?;
            if !value.is_null() {
                seen(lent(value, len));
                rocksdb_free(value.cast());
            }
        }
    }
    for (key, value) in rows {
        let mut error = null_mut();
        // SAFETY: as the caller promises.
        unsafe {
            rocksdb_transaction_put(
                transaction,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
                &mut error,
            );
            check(error)?;
        }
    }
    Ok(())
}
