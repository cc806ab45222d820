//! Functions of change data capture, as FoundationDB 8 has them: streams, and consumers of them.
//!
//! A consumer is a position in a stream. One operation at a time may use it, as there: consuming
//! moves the position on when the answer is there, and an answer that is given up leaves it where
//! it was.

use crate::argument::{Code, bytes, guard, guard_code, guard_future, guard_getter, handle, store};
use crate::consumer::{Consumer, Turn};
use crate::fork;
use crate::future::held::Held;
use crate::future::{FutureCore, behind};
use crate::layout::{CdcStreamInfo, CdcVersionedMutations, Key, KeyRange, length};
use crate::value::Value;
use plinth_client::{Database, Error, Result};
use plinth_types::Bytes;
use std::ffi::c_int;
use std::sync::Arc;

/// The ranges in an array of C's.
///
/// # Safety
/// `ranges` must be null, or lead to so many readable ones, whose keys are readable, too.
unsafe fn copied(ranges: *const KeyRange, count: c_int) -> Result<Vec<plinth_types::KeyRange>> {
    let misuse = |what: &str| Error::client_invalid_operation().with_detail(what);
    let count = usize::try_from(count).map_err(|_| misuse("a negative number of ranges"))?;
    if ranges.is_null() && count > 0 {
        return Err(misuse("a null pointer where ranges should be"));
    }
    let range = |at: usize| {
        // SAFETY: the caller's promise; packed structures of C may lie unaligned.
        let range = unsafe { ranges.add(at).read_unaligned() };
        // SAFETY: as above.
        let (begin, end) = unsafe {
            (
                bytes(range.begin_key, range.begin_key_length)?,
                bytes(range.end_key, range.end_key_length)?,
            )
        };
        Ok(plinth_types::KeyRange::new(Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end)))
    };
    (0..count).map(range).collect()
}

/// # Safety
/// As the exported functions.
unsafe fn register(
    db: *const Database,
    (name, name_length): (*const u8, c_int),
    (ranges, count): (*const KeyRange, c_int),
) -> Result<*mut FutureCore> {
    // SAFETY: the caller's promise.
    let (database, name, ranges) =
        unsafe { (handle(db)?, bytes(name, name_length)?, copied(ranges, count)?) };
    let registered = database.register_changes(name, ranges, None);
    let id = async move { registered.await.map(|stream| Value::Unsigned(stream.id)) };
    Ok(FutureCore::start(Box::pin(id)).into_raw())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_database_register_cdc_stream(
    db: *const Database,
    name: *const u8,
    name_length: c_int,
    ranges: *const KeyRange,
    range_count: c_int,
) -> *mut FutureCore {
    // SAFETY: C gives a handle of this library's, and readable bytes and ranges.
    guard_future(|| unsafe { register(db, (name, name_length), (ranges, range_count)) })
}

/// One log has every stream in order already, so where it would be split is only looked at.
#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_database_register_cdc_ordered_stream(
    db: *const Database,
    name: *const u8,
    name_length: c_int,
    ranges: *const KeyRange,
    range_count: c_int,
    split_points: *const Key,
    split_point_count: c_int,
) -> *mut FutureCore {
    guard_future(|| {
        if split_point_count < 0 || (split_points.is_null() && split_point_count > 0) {
            return Err(Error::client_invalid_operation().with_detail("no array of split points"));
        }
        // SAFETY: C gives a handle of this library's, and readable bytes and ranges.
        unsafe { register(db, (name, name_length), (ranges, range_count)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_database_remove_cdc_stream(
    db: *const Database,
    name: *const u8,
    name_length: c_int,
) -> *mut FutureCore {
    guard_future(|| {
        // SAFETY: C gives a handle of this library's, and readable bytes.
        let (database, name) = unsafe { (handle(db)?, bytes(name, name_length)?) };
        Ok(FutureCore::of_reply(database.remove_changes(name)).into_raw())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_database_list_cdc_streams(db: *const Database) -> *mut FutureCore {
    // SAFETY: C gives a handle of this library's.
    guard_future(|| Ok(FutureCore::start(unsafe { handle(db) }?.list_changes()).into_raw()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_database_create_cdc_consumer(
    db: *const Database,
    name: *const u8,
    name_length: c_int,
) -> *mut FutureCore {
    guard_future(|| {
        // SAFETY: C gives a handle of this library's, and readable bytes.
        let (database, name) = unsafe { (handle(db)?.clone(), bytes(name, name_length)?) };
        let found = database.consume_changes(name);
        let consumer = async move {
            let found = found.await?;
            Ok(Value::Consumer(Consumer::new(database, found.id(), found.position())))
        };
        Ok(FutureCore::start(Box::pin(consumer)).into_raw())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_database_resume_cdc_consumer(
    db: *const Database,
    stream_id: u64,
    last_consumed_version: i64,
) -> *mut FutureCore {
    guard_future(|| {
        // SAFETY: C gives a handle of this library's.
        let database = unsafe { handle(db) }?.clone();
        let consumer = Consumer::new(database, stream_id, last_consumed_version);
        Ok(FutureCore::done(Value::Consumer(consumer)).into_raw())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_cdc_consumer_destroy(consumer: *mut Arc<Consumer>) {
    guard((), || {
        if !consumer.is_null() && !fork::is_child() {
            // SAFETY: C gives back what `fdb_future_get_cdc_consumer` gave, once.
            drop(unsafe { Box::from_raw(consumer) });
        }
    });
}

/// Begins an operation of a consumer, and gives C's future of it.
pub(crate) fn begin<T, F>(
    consumer: &Arc<Consumer>,
    operation: impl FnOnce(Turn) -> F,
) -> Result<Held>
where
    T: Into<Value>,
    F: Future<Output = Result<T>> + Send + 'static,
{
    consumer.begin(|turn| FutureCore::start(Box::pin(operation(turn))), |future| future.is_ready())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_cdc_consumer_consume(consumer: *const Arc<Consumer>) -> *mut FutureCore {
    guard_future(|| {
        // SAFETY: C gives a handle of this library's.
        Ok(begin(unsafe { handle(consumer) }?, Turn::consume)?.into_raw())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_cdc_consumer_acknowledge(
    consumer: *const Arc<Consumer>,
) -> *mut FutureCore {
    guard_future(|| {
        // SAFETY: C gives a handle of this library's.
        Ok(begin(unsafe { handle(consumer) }?, Turn::acknowledge)?.into_raw())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_cdc_consumer_get_position(
    consumer: *const Arc<Consumer>,
    out_stream_id: *mut u64,
    out_last_consumed_version: *mut i64,
) -> Code {
    guard_code(|| {
        // SAFETY: C gives a handle of this library's, and places for the results.
        unsafe {
            let consumer = handle(consumer)?;
            store(out_stream_id, consumer.id());
            store(out_last_consumed_version, consumer.position());
        }
        Ok(())
    })
}

/// What is taken out of a future's value.
///
/// # Safety
/// As [`behind`].
unsafe fn get<R>(future: *const FutureCore, take: impl FnOnce(&Value) -> Option<R>) -> Result<R> {
    // SAFETY: the caller's promise.
    unsafe { behind(future) }?.get(take)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_cdc_stream_info_array(
    future: *const FutureCore,
    out_streams: *mut *const CdcStreamInfo,
    out_count: *mut c_int,
) -> Code {
    guard_getter(|| {
        // SAFETY: C gives a handle of this library's, and places for the results.
        unsafe {
            let (streams, count) = get(future, |value| {
                value.streams().map(|streams| (streams.as_ptr(), length(streams.len())))
            })?;
            store(out_streams, streams);
            store(out_count, count);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_cdc_consumer(
    future: *const FutureCore,
    out_consumer: *mut *mut Arc<Consumer>,
) -> Code {
    guard_getter(|| {
        // SAFETY: C gives a handle of this library's, and a place for the result.
        unsafe {
            let consumer = get(future, |value| match value {
                Value::Consumer(consumer) => Some(consumer.clone()),
                _ => None,
            })?;
            store(out_consumer, Box::into_raw(Box::new(consumer)));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_cdc_versioned_mutations(
    future: *const FutureCore,
    out_mutations: *mut *const CdcVersionedMutations,
    out_count: *mut c_int,
    out_last_consumed_version: *mut i64,
) -> Code {
    guard_getter(|| {
        // SAFETY: C gives a handle of this library's, and places for the results.
        unsafe {
            let (batches, count, upto) = get(future, |value| {
                value
                    .changes()
                    .map(|(batches, upto)| (batches.as_ptr(), length(batches.len()), upto))
            })?;
            store(out_mutations, batches);
            store(out_count, count);
            store(out_last_consumed_version, upto);
        }
        Ok(())
    })
}
