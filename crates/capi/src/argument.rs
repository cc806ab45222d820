//! What C hands in, made safe: bytes, texts, handles, and the wall that no panic passes.
//!
//! A null pointer of length 0 is the empty bytes; a null pointer of another length, or a negative
//! length, is misuse, which becomes FoundationDB's number for it and never a crash.

use crate::future::FutureCore;
pub(crate) use crate::guard::guard;
use crate::words;
use plinth_types::{Error, Result};
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `fdb_error_t`.
pub(crate) type Code = c_int;

/// Runs what an exported function does that gives an error number; a panic becomes
/// `internal_error`.
pub(crate) fn guard_code(f: impl FnOnce() -> Result<()>) -> Code {
    guard(Error::internal_error().code(), || code(f()))
}

/// As [`guard_code`], where the number is that of a future: what was wrong came about elsewhere.
pub(crate) fn guard_getter(f: impl FnOnce() -> Result<()>) -> Code {
    guard(Error::internal_error().code(), || numbered(f(), |_| words::forget()))
}

/// Runs what an exported function does that gives a future; an error, or a panic, becomes a failed
/// one.
pub(crate) fn guard_future(f: impl FnOnce() -> Result<*mut FutureCore>) -> *mut FutureCore {
    let result = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err(Error::internal_error()));
    result.unwrap_or_else(|error| FutureCore::failed(error).into_raw())
}

/// 0, or the error's number, whose words this thread can ask for.
pub(crate) fn code(result: Result<()>) -> Code {
    numbered(result, words::keep)
}

/// 0, or the error's number once the error was noted.
fn numbered(result: Result<()>, note: impl FnOnce(&Error)) -> Code {
    let Err(error) = result else { return 0 };
    note(&error);
    error.code()
}

fn misuse(what: &str) -> Error {
    Error::client_invalid_operation().with_detail(what)
}

/// The bytes that C names by pointer and length.
///
/// # Safety
/// If `length` is positive and `pointer` not null, that many bytes must be readable there for as
/// long as the result is used.
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, length: c_int) -> Result<&'a [u8]> {
    match usize::try_from(length) {
        Ok(0) => Ok(&[]),
        Ok(length) if !pointer.is_null() => {
            // SAFETY: the caller's promise, and the pointer is not null.
            Ok(unsafe { std::slice::from_raw_parts(pointer, length) })
        }
        Ok(_) => Err(misuse("a null pointer where bytes should be")),
        Err(_) => Err(misuse("a negative length")),
    }
}

/// The value of an option: none if there is no pointer.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn option_value<'a>(
    pointer: *const u8,
    length: c_int,
) -> Result<Option<&'a [u8]>> {
    if pointer.is_null() && length == 0 {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { bytes(pointer, length) }.map(Some).map_err(|_| Error::invalid_option_value())
}

/// The text that C names; `None` for null or bytes that are no UTF-8.
///
/// # Safety
/// `pointer` must be null or lead to a string that ends in a zero byte and stays while the result
/// is used.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a str> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the caller's promise, and the pointer is not null.
    unsafe { CStr::from_ptr(pointer) }.to_str().ok()
}

/// The object behind a handle.
///
/// # Safety
/// `handle` must be null or one that this library gave and that was not destroyed.
pub(crate) unsafe fn handle<'a, T>(handle: *const T) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| misuse("a null handle"))
}

/// Writes a result to where C wants it, unless that is nowhere.
///
/// # Safety
/// `out` must be null or writable.
pub(crate) unsafe fn store<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: the caller's promise; packed structures of C may leave it unaligned.
        unsafe { out.write_unaligned(value) };
    }
}
