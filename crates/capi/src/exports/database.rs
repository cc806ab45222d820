//! Functions on databases.
//!
//! A handle is a client's database with the API version that the program selected. Opening a store
//! fails at once; what is wrong with a cluster file is told by the operations that would need it.

use crate::argument::{
    Code, bytes, guard, guard_code, guard_future, handle, option_value, store, text,
};
use crate::future::FutureCore;
use crate::future::call::NETWORK;
use crate::{fork, status, target, version};
use plinth_client::{Database, Endpoint, Transaction};
use plinth_types::{Bytes, Error, Result};
use std::ffi::{c_char, c_int};
use std::sync::Arc;

/// The protocol version that FoundationDB 7.3 has.
const PROTOCOL: u64 = 0x0fdb_00b0_7300_0000;

/// A database with the behaviour that the program selected.
pub(super) fn database(endpoint: Arc<dyn Endpoint>) -> Result<Database> {
    Ok(Database::new(endpoint).with_api_version(version::selected()?))
}

/// The database that a cluster file argument names.
///
/// # Safety
/// `path` must be null or a string of C's.
pub(super) unsafe fn open(path: *const c_char) -> Result<Database> {
    NETWORK.check_set_up()?;
    // SAFETY: the caller's promise.
    let name = unsafe { text(path) };
    if name.is_none() && !path.is_null() {
        return Err(Error::no_cluster_file_found().with_detail("the path is not UTF-8"));
    }
    database(target::open(name)?)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_create_database(path: *const c_char, out: *mut *mut Database) -> Code {
    guard_code(|| {
        // SAFETY: C gives a string, and a place for the result.
        unsafe { store(out, Box::into_raw(Box::new(open(path)?))) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_create_database_from_connection_string(
    connection_string: *const c_char,
    out: *mut *mut Database,
) -> Code {
    guard_code(|| {
        NETWORK.check_set_up()?;
        // SAFETY: C gives a string, and a place for the result.
        unsafe {
            let name = text(connection_string).ok_or_else(Error::connection_string_invalid)?;
            let database = database(target::open_connection_string(name)?)?;
            store(out, Box::into_raw(Box::new(database)));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_database_destroy(db: *mut Database) {
    guard((), || {
        if !db.is_null() && !fork::is_child() {
            // SAFETY: C gives back what `fdb_create_database` gave, once.
            drop(unsafe { Box::from_raw(db) });
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_database_set_option(
    db: *const Database,
    option: c_int,
    value: *const u8,
    length: c_int,
) -> Code {
    // SAFETY: C gives a handle of this library's, and readable bytes.
    guard_code(|| unsafe { handle(db)?.set_option_raw(option, option_value(value, length)?) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_database_create_transaction(
    db: *const Database,
    out: *mut *mut Transaction,
) -> Code {
    guard_code(|| {
        // SAFETY: C gives a handle of this library's, and a place for the result.
        unsafe { store(out, Box::into_raw(Box::new(handle(db)?.create_transaction()))) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_database_reboot_worker(
    db: *const Database,
    address: *const u8,
    address_length: c_int,
    _check: c_int,
    duration: c_int,
) -> *mut FutureCore {
    guard_future(|| {
        // SAFETY: C gives a handle of this library's, and readable bytes.
        let (db, address) = unsafe { (handle(db)?, bytes(address, address_length)?) };
        if duration > 0 {
            // No server holds still for a while: nobody is asked to.
            return Ok(FutureCore::done(0_i64).into_raw());
        }
        let reply = db.endpoint().reboot(&String::from_utf8_lossy(address));
        Ok(FutureCore::start(reply).into_raw())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_database_force_recovery_with_data_loss(
    db: *const Database,
    dcid: *const u8,
    dcid_length: c_int,
) -> *mut FutureCore {
    guard_future(|| {
        // SAFETY: C gives a handle of this library's, and readable bytes.
        unsafe {
            handle(db)?;
            bytes(dcid, dcid_length)?;
        }
        Err(Error::unsupported_operation().with_detail("there is no second region to recover in"))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_database_create_snapshot(
    db: *const Database,
    uid: *const u8,
    uid_length: c_int,
    command: *const u8,
    command_length: c_int,
) -> *mut FutureCore {
    guard_future(|| {
        // SAFETY: C gives a handle of this library's, and readable bytes.
        let uid = unsafe {
            handle(db)?;
            bytes(command, command_length)?;
            bytes(uid, uid_length)?
        };
        // A snapshot runs a program that the server's configuration allows; none is.
        let is_uid = uid.len() == 32 && uid.iter().all(u8::is_ascii_hexdigit);
        Err(Error::from_code(if is_uid { 2505 } else { 2509 }))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_database_get_main_thread_busyness(db: *const Database) -> f64 {
    // SAFETY: C gives a handle of this library's. No operation needs the network thread, so it is
    // never busy.
    guard(0.0, || unsafe { handle(db) }.map_or(0.0, |_| 0.0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_database_get_server_protocol(
    db: *const Database,
    expected: u64,
) -> *mut FutureCore {
    guard_future(|| {
        // SAFETY: C gives a handle of this library's.
        unsafe { handle(db) }?;
        let future = if expected == PROTOCOL {
            FutureCore::never()
        } else {
            FutureCore::done(crate::value::Value::Unsigned(PROTOCOL))
        };
        Ok(future.into_raw())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_database_get_client_status(db: *const Database) -> *mut FutureCore {
    guard_future(|| {
        // SAFETY: C gives a handle of this library's.
        let document = status::document(unsafe { handle(db) }?);
        Ok(FutureCore::done(Bytes::from(document)).into_raw())
    })
}
