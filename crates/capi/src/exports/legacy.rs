//! What programs compiled for API versions below 620 call: cluster objects, and a getter's old
//! name.

use crate::argument::{Code, bytes, code, guard, guard_future, guard_getter, handle, store, text};
use crate::future::{FutureCore, behind};
use crate::value::Value;
use plinth_client::Database;
use plinth_types::Error;
use std::ffi::{CString, c_char, c_int};

/// `FDBCluster`: the path of a cluster file.
pub(super) struct Cluster(Option<CString>);

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_version(future: *const FutureCore, out: *mut i64) -> Code {
    guard_getter(|| {
        // SAFETY: C gives a handle of this library's, and a place for the result.
        unsafe {
            let version = behind(future)?.get(|value| match value {
                Value::Int(version) => Some(*version),
                _ => None,
            })?;
            store(out, version);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_is_error(future: *const FutureCore) -> c_int {
    guard(0, || {
        // SAFETY: C gives a handle of this library's.
        unsafe { behind(future) }
            .map_or(0, |future| c_int::from(future.is_ready() && future.error().is_err()))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_create_cluster(path: *const c_char) -> *mut FutureCore {
    guard_future(|| {
        // SAFETY: C gives a string.
        let path = unsafe { text(path) }.and_then(|path| CString::new(path).ok());
        Ok(FutureCore::done(Value::Cluster(path)).into_raw())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_cluster(
    future: *const FutureCore,
    out: *mut *mut Cluster,
) -> Code {
    guard_getter(|| {
        // SAFETY: C gives a handle of this library's, and a place for the result.
        unsafe {
            let path = behind(future)?.get(|value| match value {
                Value::Cluster(path) => Some(path.clone()),
                _ => None,
            })?;
            store(out, Box::into_raw(Box::new(Cluster(path))));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_cluster_set_option(
    _cluster: *const Cluster,
    _option: c_int,
    _value: *const u8,
    _length: c_int,
) -> Code {
    code(Err(Error::invalid_option())) // there never were any
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_cluster_create_database(
    cluster: *const Cluster,
    name: *const u8,
    name_length: c_int,
) -> *mut FutureCore {
    guard_future(|| {
        // SAFETY: C gives a handle of this library's, and readable bytes; the path is a string.
        let database = unsafe {
            if bytes(name, name_length)? != b"DB" {
                return Err(Error::invalid_database_name());
            }
            let path = handle(cluster)?.0.as_ref().map_or(std::ptr::null(), |path| path.as_ptr());
            super::database::open(path)?
        };
        Ok(FutureCore::done(Value::Database(database)).into_raw())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_future_get_database(
    future: *const FutureCore,
    out: *mut *mut Database,
) -> Code {
    guard_getter(|| {
        // SAFETY: C gives a handle of this library's, and a place for the result.
        unsafe {
            let database = behind(future)?.get(|value| match value {
                Value::Database(database) => Some(database.clone()),
                _ => None,
            })?;
            store(out, Box::into_raw(Box::new(database)));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_cluster_destroy(cluster: *mut Cluster) {
    guard((), || {
        if !cluster.is_null() {
            // SAFETY: C gives back what `fdb_future_get_cluster` gave, once.
            drop(unsafe { Box::from_raw(cluster) });
        }
    });
}
