//! Functions on transactions.
//!
//! Those that return nothing keep their error in the transaction for the next operation that can
//! tell it, except for what can't even be an argument (a null pointer of some length), which does
//! nothing.

use crate::argument::{Code, bytes, guard, guard_code, guard_future, handle, option_value, store};
use crate::fork;
use crate::future::FutureCore;
use plinth_client::{ConflictRangeType, RangeOptions, StreamingMode, Transaction};
use plinth_types::version::INVALID_VERSION;
use plinth_types::{Bytes, Error, KeySelector, Result};
use std::ffi::c_int;

type Future = *mut FutureCore;

/// Runs a function that returns nothing on a transaction.
///
/// # Safety
/// `tr` must be null or a handle that was not destroyed.
unsafe fn on(tr: *const Transaction, f: impl FnOnce(&Transaction) -> Result<()>) {
    // SAFETY: the caller's promise.
    guard((), || drop(unsafe { handle(tr) }.and_then(f)));
}

/// Gives the future of an operation on a transaction.
///
/// # Safety
/// `tr` must be null or a handle that was not destroyed.
unsafe fn future_on<T: Into<crate::value::Value>, F>(
    tr: *const Transaction,
    f: impl FnOnce(&Transaction) -> Result<F>,
) -> Future
where
    F: std::future::Future<Output = Result<T>> + Send + Unpin + 'static,
{
    // SAFETY: the caller's promise.
    guard_future(|| Ok(FutureCore::start(f(unsafe { handle(tr) }?)?).into_raw()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_destroy(tr: *mut Transaction) {
    guard((), || {
        if !tr.is_null() && !fork::is_child() {
            // SAFETY: C gives back what created the transaction gave, once.
            unsafe { Box::from_raw(tr) }.cancel();
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_cancel(tr: *const Transaction) {
    // SAFETY: C gives a handle of this library's.
    unsafe {
        on(tr, |tr| {
            tr.cancel();
            Ok(())
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_reset(tr: *const Transaction) {
    // SAFETY: C gives a handle of this library's.
    unsafe {
        on(tr, |tr| {
            tr.reset();
            Ok(())
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_set_option(
    tr: *const Transaction,
    option: c_int,
    value: *const u8,
    length: c_int,
) -> Code {
    // SAFETY: C gives a handle of this library's, and readable bytes.
    guard_code(|| unsafe { handle(tr)?.set_option_raw(option, option_value(value, length)?) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_set_read_version(tr: *const Transaction, version: i64) {
    // SAFETY: C gives a handle of this library's.
    unsafe {
        on(tr, |tr| {
            tr.set_read_version(version);
            Ok(())
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_get_read_version(tr: *const Transaction) -> Future {
    // SAFETY: C gives a handle of this library's.
    unsafe { future_on(tr, |tr| Ok(tr.get_read_version())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_get(
    tr: *const Transaction,
    key: *const u8,
    key_length: c_int,
    snapshot: c_int,
) -> Future {
    guard_future(|| {
        // SAFETY: C gives a handle of this library's, and readable bytes.
        let (tr, key) = unsafe { (handle(tr)?, bytes(key, key_length)?) };
        let get = if snapshot != 0 { tr.snapshot().get(key) } else { tr.get(key) };
        // The first read of a transaction fixes its version now; later ones wait to go together.
        Ok(FutureCore::of_get(get).into_raw())
    })
}

/// A key selector of C's.
///
/// # Safety
/// As [`bytes`].
unsafe fn selector(
    key: *const u8,
    length: c_int,
    or_equal: c_int,
    offset: c_int,
) -> Result<KeySelector> {
    // SAFETY: the caller's promise.
    let key = unsafe { bytes(key, length) }?;
    Ok(KeySelector::new(Bytes::copy_from_slice(key), or_equal != 0, offset))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_get_key(
    tr: *const Transaction,
    key: *const u8,
    key_length: c_int,
    or_equal: c_int,
    offset: c_int,
    snapshot: c_int,
) -> Future {
    // SAFETY: C gives a handle of this library's, and readable bytes.
    unsafe {
        future_on(tr, |tr| {
            let selector = selector(key, key_length, or_equal, offset)?;
            Ok(if snapshot != 0 { tr.snapshot().get_key(selector) } else { tr.get_key(selector) })
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_get_addresses_for_key(
    tr: *const Transaction,
    key: *const u8,
    key_length: c_int,
) -> Future {
    // SAFETY: C gives a handle of this library's, and readable bytes.
    unsafe { future_on(tr, |tr| Ok(tr.addresses_for_key(bytes(key, key_length)?))) }
}

/// A range read of C's.
fn range_options(
    (begin, end): (KeySelector, KeySelector),
    limit: c_int,
    target_bytes: c_int,
    (mode, iteration): (c_int, c_int),
    reverse: c_int,
) -> Result<RangeOptions> {
    let mode = streaming_mode(mode)?;
    // What is below 1 is refused by a read, but a moment later: its keys come first.
    let iteration = usize::try_from(iteration).unwrap_or(0);
    let mut options =
        RangeOptions::new(begin, end).mode(mode).iteration(iteration).reverse(reverse != 0);
    (options.limit, options.target_bytes) = (limit_of(limit), limit_of(target_bytes));
    Ok(options)
}

/// A limit of C's: 0 and -1 are none, and what is less can't be met.
fn limit_of(limit: c_int) -> Option<usize> {
    match limit {
        0 | -1 => None,
        limit => Some(usize::try_from(limit).unwrap_or(0)),
    }
}

fn streaming_mode(code: c_int) -> Result<StreamingMode> {
    Ok(match code {
        -2 => StreamingMode::WantAll,
        -1 => StreamingMode::Iterator,
        0 => StreamingMode::Exact,
        1 => StreamingMode::Small,
        2 => StreamingMode::Medium,
        3 => StreamingMode::Large,
        4 => StreamingMode::Serial,
        _ => {
            let detail = format!("{code} is no streaming mode");
            return Err(Error::client_invalid_operation().with_detail(detail));
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_get_range(
    tr: *const Transaction,
    begin: *const u8,
    begin_length: c_int,
    begin_or_equal: c_int,
    begin_offset: c_int,
    end: *const u8,
    end_length: c_int,
    end_or_equal: c_int,
    end_offset: c_int,
    limit: c_int,
    target_bytes: c_int,
    mode: c_int,
    iteration: c_int,
    snapshot: c_int,
    reverse: c_int,
) -> Future {
    // SAFETY: C gives a handle of this library's, and readable bytes.
    unsafe {
        future_on(tr, |tr| {
            let bounds = (
                selector(begin, begin_length, begin_or_equal, begin_offset)?,
                selector(end, end_length, end_or_equal, end_offset)?,
            );
            let range = range_options(bounds, limit, target_bytes, (mode, iteration), reverse)?;
            Ok(if snapshot != 0 { tr.snapshot().get_range(range) } else { tr.get_range(range) })
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_get_mapped_range(
    tr: *const Transaction,
    begin: *const u8,
    begin_length: c_int,
    begin_or_equal: c_int,
    begin_offset: c_int,
    end: *const u8,
    end_length: c_int,
    end_or_equal: c_int,
    end_offset: c_int,
    mapper: *const u8,
    mapper_length: c_int,
    limit: c_int,
    target_bytes: c_int,
    mode: c_int,
    iteration: c_int,
    snapshot: c_int,
    reverse: c_int,
) -> Future {
    // SAFETY: C gives a handle of this library's, and readable bytes.
    unsafe {
        future_on(tr, |tr| {
            let bounds = (
                selector(begin, begin_length, begin_or_equal, begin_offset)?,
                selector(end, end_length, end_or_equal, end_offset)?,
            );
            let mapper = bytes(mapper, mapper_length)?;
            let range = range_options(bounds, limit, target_bytes, (mode, iteration), reverse)?;
            Ok(if snapshot != 0 {
                tr.snapshot().get_mapped_range(range, mapper)
            } else {
                tr.get_mapped_range(range, mapper)
            })
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_set(
    tr: *const Transaction,
    key: *const u8,
    key_length: c_int,
    value: *const u8,
    value_length: c_int,
) {
    // SAFETY: C gives a handle of this library's, and readable bytes.
    unsafe {
        on(tr, |tr| {
            tr.set(bytes(key, key_length)?, bytes(value, value_length)?);
            Ok(())
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_atomic_op(
    tr: *const Transaction,
    key: *const u8,
    key_length: c_int,
    operand: *const u8,
    operand_length: c_int,
    kind: c_int,
) {
    // SAFETY: C gives a handle of this library's, and readable bytes.
    unsafe {
        on(tr, |tr| {
            tr.atomic_op_raw(bytes(key, key_length)?, bytes(operand, operand_length)?, kind);
            Ok(())
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_clear(
    tr: *const Transaction,
    key: *const u8,
    key_length: c_int,
) {
    // SAFETY: C gives a handle of this library's, and readable bytes.
    unsafe {
        on(tr, |tr| {
            tr.clear(bytes(key, key_length)?);
            Ok(())
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_clear_range(
    tr: *const Transaction,
    begin: *const u8,
    begin_length: c_int,
    end: *const u8,
    end_length: c_int,
) {
    // SAFETY: C gives a handle of this library's, and readable bytes.
    unsafe {
        on(tr, |tr| {
            tr.clear_range(bytes(begin, begin_length)?, bytes(end, end_length)?);
            Ok(())
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_watch(
    tr: *const Transaction,
    key: *const u8,
    key_length: c_int,
) -> Future {
    // SAFETY: C gives a handle of this library's, and readable bytes.
    unsafe { future_on(tr, |tr| Ok(tr.watch(bytes(key, key_length)?))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_commit(tr: *const Transaction) -> Future {
    // SAFETY: C gives a handle of this library's.
    guard_future(|| Ok(FutureCore::of_reply(unsafe { handle(tr) }?.commit()).into_raw()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_get_committed_version(
    tr: *const Transaction,
    out: *mut i64,
) -> Code {
    guard_code(|| {
        // SAFETY: C gives a handle of this library's, and a place for the result.
        unsafe { store(out, handle(tr)?.committed_version().unwrap_or(INVALID_VERSION)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_get_versionstamp(tr: *const Transaction) -> Future {
    // SAFETY: C gives a handle of this library's.
    unsafe { future_on(tr, |tr| Ok(tr.versionstamp())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_get_approximate_size(tr: *const Transaction) -> Future {
    // SAFETY: C gives a handle of this library's.
    unsafe { future_on(tr, |tr| Ok(tr.approximate_size())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_get_total_cost(tr: *const Transaction) -> Future {
    // SAFETY: C gives a handle of this library's.
    unsafe { future_on(tr, |tr| Ok(tr.total_cost())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_get_tag_throttled_duration(tr: *const Transaction) -> Future {
    // SAFETY: C gives a handle of this library's.
    unsafe { future_on(tr, |tr| Ok(tr.tag_throttled_duration())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_on_error(tr: *const Transaction, error: Code) -> Future {
    // SAFETY: C gives a handle of this library's.
    unsafe { future_on(tr, |tr| Ok(tr.on_error_code(error))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_add_conflict_range(
    tr: *const Transaction,
    begin: *const u8,
    begin_length: c_int,
    end: *const u8,
    end_length: c_int,
    kind: c_int,
) -> Code {
    guard_code(|| {
        // SAFETY: C gives a handle of this library's, and readable bytes.
        let (tr, begin, end) =
            unsafe { (handle(tr)?, bytes(begin, begin_length)?, bytes(end, end_length)?) };
        if begin > end {
            return Err(Error::inverted_range());
        }
        let kind = match kind {
            0 => ConflictRangeType::Read,
            1 => ConflictRangeType::Write,
            _ => return Err(Error::client_invalid_operation().with_detail("0 is read, 1 is write")),
        };
        tr.add_conflict_range(begin, end, kind)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_get_estimated_range_size_bytes(
    tr: *const Transaction,
    begin: *const u8,
    begin_length: c_int,
    end: *const u8,
    end_length: c_int,
) -> Future {
    // SAFETY: C gives a handle of this library's, and readable bytes.
    unsafe {
        future_on(tr, |tr| {
            Ok(tr.estimated_range_size(bytes(begin, begin_length)?, bytes(end, end_length)?))
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_get_range_split_points(
    tr: *const Transaction,
    begin: *const u8,
    begin_length: c_int,
    end: *const u8,
    end_length: c_int,
    chunk_size: i64,
) -> Future {
    // SAFETY: C gives a handle of this library's, and readable bytes.
    unsafe {
        future_on(tr, |tr| {
            Ok(tr.split_points(bytes(begin, begin_length)?, bytes(end, end_length)?, chunk_size))
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_transaction_get_range_split_points_with_limit(
    tr: *const Transaction,
    begin: *const u8,
    begin_length: c_int,
    end: *const u8,
    end_length: c_int,
    chunk_size: i64,
    limit: c_int,
) -> Future {
    // SAFETY: C gives a handle of this library's, and readable bytes.
    unsafe {
        future_on(tr, |tr| {
            let most = usize::try_from(limit).unwrap_or(0);
            let points =
                tr.split_points(bytes(begin, begin_length)?, bytes(end, end_length)?, chunk_size);
            Ok(Box::pin(async move {
                let mut points = points.await?;
                points.truncate(most);
                Ok(points)
            }))
        })
    }
}
