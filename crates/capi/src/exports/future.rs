//! Functions on futures.
//!
//! A getter fails with `future_not_set` before the future is ready, with the future's own error,
//! with `future_released` after its memory was released, and with `client_invalid_operation` on a
//! future of another kind. What it gives points into the future and stays until that is released or
//! destroyed.

use crate::argument::{Code, guard, guard_code, guard_getter, store};
use crate::fork;
use crate::future::call::Callback;
use crate::future::held::Held;
use crate::future::{FutureCore, behind};
use crate::layout::{Key, KeyRange, KeyValue, MappedKeyValue, length};
use crate::network::{Due, Parameter, call_each};
use crate::value::Value;
use plinth_types::{Error, Result};
use std::ffi::{c_char, c_int, c_void};

/// Gives what a getter takes out of a future's value.
///
/// # Safety
/// As [`behind`].
unsafe fn get<R>(future: *const FutureCore, take: impl FnOnce(&Value) -> Option<R>) -> Result<R> {
    // SAFETY: the caller's promise.
    unsafe { behind(future) }?.get(take)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fdb_future_cancel(future: *const FutureCore) {
    let cancel = || {
        // SAFETY: C gives a handle of this library's.
        unsafe { behind(future) }.map_or_else(|_| Vec::new(), |future| future.cancel())
    };
    call_each(guard(Vec::new(), cancel), Due::run);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_release_memory(future: *const FutureCore) {
    // SAFETY: C gives a handle of this library's.
    guard((), || drop(unsafe { behind(future) }.map(|future| future.release())));
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fdb_future_destroy(future: *const FutureCore) {
    let destroy = || {
        if future.is_null() || fork::is_child() {
            return Vec::new();
        }
        // SAFETY: the handle's own count, which C gives back here and only here.
        unsafe { Held::from_raw(future) }.cancel()
    };
    call_each(guard(Vec::new(), destroy), Due::run);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_block_until_ready(future: *const FutureCore) -> Code {
    // SAFETY: C gives a handle of this library's.
    guard_getter(|| unsafe { behind(future) }?.block())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_is_ready(future: *const FutureCore) -> c_int {
    // SAFETY: C gives a handle of this library's.
    guard(0, || unsafe { behind(future) }.map_or(0, |future| c_int::from(future.is_ready())))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fdb_future_set_callback(
    future: *const FutureCore,
    callback: Option<Callback>,
    parameter: *mut c_void,
) -> Code {
    let mut due = None;
    let code = guard_code(|| {
        // SAFETY: C gives a handle of this library's.
        let future = unsafe { behind(future) }?;
        let callback = callback.ok_or_else(Error::client_invalid_operation)?;
        due = future.call_back(callback, Parameter(parameter));
        Ok(())
    });
    if let Some(call) = due {
        call.run();
    }
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_error(future: *const FutureCore) -> Code {
    // SAFETY: C gives a handle of this library's.
    guard_getter(|| unsafe { behind(future) }?.error())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_bool(future: *const FutureCore, out: *mut c_int) -> Code {
    guard_getter(|| {
        // SAFETY: C gives a handle of this library's, and a place for the result.
        unsafe {
            let value = get(future, |value| match value {
                Value::Int(value) => Some(c_int::from(*value != 0)),
                _ => None,
            })?;
            store(out, value);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_int64(future: *const FutureCore, out: *mut i64) -> Code {
    guard_getter(|| {
        // SAFETY: C gives a handle of this library's, and a place for the result.
        unsafe {
            let value = get(future, |value| match value {
                Value::Int(value) => Some(*value),
                Value::Unsigned(value) => Some(*value as i64),
                _ => None,
            })?;
            store(out, value);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_uint64(future: *const FutureCore, out: *mut u64) -> Code {
    guard_getter(|| {
        // SAFETY: C gives a handle of this library's, and a place for the result.
        unsafe {
            let value = get(future, |value| match value {
                Value::Unsigned(value) => Some(*value),
                Value::Int(value) => Some(*value as u64),
                _ => None,
            })?;
            store(out, value);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_double(future: *const FutureCore, out: *mut f64) -> Code {
    guard_getter(|| {
        // SAFETY: C gives a handle of this library's, and a place for the result.
        unsafe {
            let value = get(future, |value| match value {
                Value::Double(value) => Some(*value),
                _ => None,
            })?;
            store(out, value);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_key(
    future: *const FutureCore,
    out_key: *mut *const u8,
    out_length: *mut c_int,
) -> Code {
    guard_getter(|| {
        // SAFETY: C gives a handle of this library's, and places for the results.
        unsafe {
            let (key, size) = get(future, |value| match value {
                Value::Bytes(bytes) => Some((bytes.as_ptr(), length(bytes.len()))),
                _ => None,
            })?;
            store(out_key, key);
            store(out_length, size);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_value(
    future: *const FutureCore,
    out_present: *mut c_int,
    out_value: *mut *const u8,
    out_length: *mut c_int,
) -> Code {
    guard_getter(|| {
        // SAFETY: C gives a handle of this library's, and places for the results.
        unsafe {
            let found = get(future, |value| match value {
                Value::Optional(value) => {
                    Some(value.as_ref().map(|v| (v.as_ptr(), length(v.len()))))
                }
                // The Go package reads the client's status with this getter.
                Value::Bytes(bytes) => Some(Some((bytes.as_ptr(), length(bytes.len())))),
                _ => None,
            })?;
            store(out_present, c_int::from(found.is_some()));
            if let Some((value, size)) = found {
                store(out_value, value);
                store(out_length, size);
            }
        }
        Ok(())
    })
}

/// What an array of C is: where it begins and how long it is.
fn array<T>(elements: &[T]) -> (*const T, c_int) {
    (elements.as_ptr(), length(elements.len()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_keyvalue_array(
    future: *const FutureCore,
    out_rows: *mut *const KeyValue,
    out_count: *mut c_int,
    out_more: *mut c_int,
) -> Code {
    guard_getter(|| {
        // SAFETY: C gives a handle of this library's, and places for the results.
        unsafe {
            let ((rows, count), more) =
                get(future, |value| value.rows().map(|(rows, more)| (array(rows), more)))?;
            store(out_rows, rows);
            store(out_count, count);
            store(out_more, c_int::from(more));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_mappedkeyvalue_array(
    future: *const FutureCore,
    out_rows: *mut *const MappedKeyValue,
    out_count: *mut c_int,
    out_more: *mut c_int,
) -> Code {
    guard_getter(|| {
        // SAFETY: C gives a handle of this library's, and places for the results.
        unsafe {
            let ((rows, count), more) =
                get(future, |value| value.mapped().map(|(rows, more)| (array(rows), more)))?;
            store(out_rows, rows);
            store(out_count, count);
            store(out_more, c_int::from(more));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_key_array(
    future: *const FutureCore,
    out_keys: *mut *const Key,
    out_count: *mut c_int,
) -> Code {
    guard_getter(|| {
        // SAFETY: C gives a handle of this library's, and places for the results.
        unsafe {
            let (keys, count) = get(future, |value| value.keys().map(array))?;
            store(out_keys, keys);
            store(out_count, count);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_string_array(
    future: *const FutureCore,
    out_strings: *mut *const *const c_char,
    out_count: *mut c_int,
) -> Code {
    guard_getter(|| {
        // SAFETY: C gives a handle of this library's, and places for the results.
        unsafe {
            let (strings, count) = get(future, |value| value.texts().map(array))?;
            store(out_strings, strings);
            store(out_count, count);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_keyrange_array(
    future: *const FutureCore,
    out_ranges: *mut *const KeyRange,
    out_count: *mut c_int,
) -> Code {
    guard_getter(|| {
        // SAFETY: C gives a handle of this library's, and places for the results.
        unsafe {
            let (ranges, count) = get(future, |value| value.ranges().map(array))?;
            store(out_ranges, ranges);
            store(out_count, count);
        }
        Ok(())
    })
}
