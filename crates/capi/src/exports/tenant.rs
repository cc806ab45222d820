//! Functions on tenants. A tenant's handle is a name; each transaction looks its tenant up, and its
//! operations wait for that.

use crate::argument::{Code, bytes, guard, guard_code, guard_future, handle, store};
use crate::fork;
use crate::future::FutureCore;
use plinth_client::{Database, Transaction};
use plinth_types::{Bytes, Error};
use std::ffi::c_int;

/// `FDBTenant`.
pub(super) struct TenantHandle {
    database: Database,
    name: Bytes,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_database_open_tenant(
    db: *const Database,
    name: *const u8,
    name_length: c_int,
    out: *mut *mut TenantHandle,
) -> Code {
    guard_code(|| {
        // SAFETY: C gives a handle of this library's, readable bytes, and a place for the result.
        unsafe {
            let name = bytes(name, name_length)?;
            if name.first() == Some(&0xff) {
                return Err(Error::invalid_tenant_name());
            }
            let tenant =
                TenantHandle { database: handle(db)?.clone(), name: Bytes::copy_from_slice(name) };
            store(out, Box::into_raw(Box::new(tenant)));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_tenant_destroy(tenant: *mut TenantHandle) {
    guard((), || {
        if !tenant.is_null() && !fork::is_child() {
            // SAFETY: C gives back what `fdb_database_open_tenant` gave, once.
            drop(unsafe { Box::from_raw(tenant) });
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_tenant_create_transaction(
    tenant: *const TenantHandle,
    out: *mut *mut Transaction,
) -> Code {
    guard_code(|| {
        // SAFETY: C gives a handle of this library's, and a place for the result.
        unsafe {
            let tenant = handle(tenant)?;
            let transaction = tenant.database.create_tenant_transaction(&tenant.name);
            store(out, Box::into_raw(Box::new(transaction)));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_tenant_get_id(tenant: *const TenantHandle) -> *mut FutureCore {
    guard_future(|| {
        // SAFETY: C gives a handle of this library's.
        let tenant = unsafe { handle(tenant) }?;
        Ok(FutureCore::start(tenant.database.open_tenant(&tenant.name)).into_raw())
    })
}
