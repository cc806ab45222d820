//! Functions of features that FoundationDB itself has withdrawn (blob granules), or has for the use
//! of another copy of its own library alone. They exist, so that every program finds its symbols,
//! and fail with `unsupported_operation`.
//!
//! Their parameters are left out: in the calling conventions of C the caller puts arguments where
//! it likes and takes them away itself, and no argument changes what these functions do.

use crate::argument::{Code, guard, guard_future};
use crate::future::FutureCore;
use plinth_types::Error;

/// `FDBResult`: a result that is there already. Only failures are ever made.
pub(super) struct Failure(Error);

fn unsupported() -> Error {
    Error::unsupported_operation().with_detail("FoundationDB has retired this")
}

/// Functions whose future fails.
macro_rules! failing_futures {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> *mut FutureCore {
                guard_future(|| Err(unsupported()))
            }
        )*
    };
}

/// Functions that give an error number.
macro_rules! failing_calls {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> Code {
                guard(4100, || unsupported().code())
            }
        )*
    };
}

/// Functions whose result is a failure.
macro_rules! failing_results {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> *mut Failure {
                guard(std::ptr::null_mut(), || Box::into_raw(Box::new(Failure(unsupported()))))
            }
        )*
    };
}

/// Functions without any effect.
macro_rules! without_effect {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name() {}
        )*
    };
}

failing_futures! {
    fdb_database_blobbify_range fdb_database_blobbify_range_blocking fdb_database_unblobbify_range
    fdb_database_list_blobbified_ranges fdb_database_verify_blob_range fdb_database_flush_blob_range
    fdb_database_purge_blob_granules fdb_database_wait_purge_granules_complete
    fdb_tenant_blobbify_range fdb_tenant_blobbify_range_blocking fdb_tenant_unblobbify_range
    fdb_tenant_list_blobbified_ranges fdb_tenant_verify_blob_range fdb_tenant_flush_blob_range
    fdb_tenant_purge_blob_granules fdb_tenant_wait_purge_granules_complete
    fdb_transaction_get_blob_granule_ranges fdb_transaction_summarize_blob_granules
    fdb_transaction_read_blob_granules_start fdb_transaction_read_blob_granules_description
    fdb_database_create_shared_state
}

failing_calls! {
    fdb_future_get_granule_summary_array fdb_future_readbg_get_descriptions fdb_result_get_bg_mutations_array
    fdb_future_get_shared_state
}

failing_results! {
    fdb_transaction_read_blob_granules fdb_transaction_read_blob_granules_finish
    fdb_readbg_parse_snapshot_file fdb_readbg_parse_delta_file
}

without_effect! {
    fdb_database_set_shared_state fdb_use_future_protocol_version
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_result_destroy(result: *mut Failure) {
    guard((), || {
        if !result.is_null() {
            // SAFETY: C gives back what one of the functions above gave, once.
            drop(unsafe { Box::from_raw(result) });
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_result_get_keyvalue_array(result: *const Failure) -> Code {
    guard(4100, || {
        // SAFETY: C gives a handle of this library's.
        unsafe { crate::argument::handle(result) }
            .map_or_else(|error| error.code(), |failure| failure.0.code())
    })
}
