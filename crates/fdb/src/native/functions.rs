//! The table of the C library's functions that the endpoint needs, each looked up by its name.
//!
//! The signatures are those of FoundationDB's C API 700 and later, `fdb_c.h`. A library without one
//! of them is refused when it is loaded, with the name that is missing, so that no call can fail
//! for it later. Those of change data capture, which came later, are a table of their own: a
//! library may lack them.

use plinth_types::{Error, Result};
use std::ffi::{c_char, c_int, c_void};

/// `FDBDatabase*`, `FDBTransaction*`, `FDBFuture*`: opaque to us.
pub(super) type Raw = *mut c_void;
/// A pointer to bytes.
type Byte = *const u8;
/// What a future calls when it is ready.
pub(super) type Callback = unsafe extern "C" fn(Raw, *mut c_void);

/// `FDBKey`.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub(super) struct NativeKey {
    pub key: Byte,
    pub key_length: c_int,
}

/// `FDBKeyValue`.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub(super) struct NativeKeyValue {
    pub key: Byte,
    pub key_length: c_int,
    pub value: Byte,
    pub value_length: c_int,
}

/// `FDBKeyRange`.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub(super) struct NativeKeyRange {
    pub begin: NativeKey,
    pub end: NativeKey,
}

/// `FDBCdcStreamInfo`.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub(super) struct NativeStream {
    pub name: NativeKey,
    pub id: u64,
    pub ranges: *const NativeKeyRange,
    pub range_count: c_int,
    pub min_version: i64,
}

/// `FDBCdcMutation`.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub(super) struct NativeMutation {
    pub kind: u8,
    pub param1: NativeKey,
    pub param2: NativeKey,
}

/// `FDBCdcVersionedMutations`.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub(super) struct NativeBatch {
    pub version: i64,
    pub mutations: *const NativeMutation,
    pub mutation_count: c_int,
}

const _: () = assert!(size_of::<usize>() != 8 || size_of::<NativeKey>() == 12);
const _: () = assert!(size_of::<usize>() != 8 || size_of::<NativeKeyValue>() == 24);
const _: () = assert!(size_of::<usize>() != 8 || size_of::<NativeKeyRange>() == 24);
const _: () = assert!(size_of::<usize>() != 8 || size_of::<NativeStream>() == 40);
const _: () = assert!(size_of::<usize>() != 8 || size_of::<NativeMutation>() == 28);
const _: () = assert!(size_of::<usize>() != 8 || size_of::<NativeBatch>() == 20);

macro_rules! functions {
    ($(#[$about:meta])* $table:ident: $($name:ident $symbol:literal ($($parameter:ty),*) $(-> $result:ty)?;)*) => {
        $(#[$about])*
        pub(super) struct $table {
            $(pub $name: unsafe extern "C" fn($($parameter),*) $(-> $result)?,)*
        }

        impl $table {
            /// Looks all of them up.
            ///
            /// # Errors
            /// `api_function_missing`, naming it.
            ///
            /// # Safety
            /// The library must be FoundationDB's C library or one with its interface, and stay
            /// loaded for as long as any of the functions may be called.
            pub unsafe fn find(library: &libloading::Library) -> Result<Self> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the name belongs to the signature by the caller's promise.
                        let symbol = unsafe {
                            library.get::<unsafe extern "C" fn($($parameter),*) $(-> $result)?>($symbol)
                        };
                        *symbol.map_err(|error| {
                            Error::api_function_missing().with_detail(format!("{}: {error}", stringify!($name)))
                        })?
                    },)*
                })
            }
        }
    };
}

functions! {
    /// The functions of a loaded library.
    Functions:
    select_api_version b"fdb_select_api_version_impl\0" (c_int, c_int) -> c_int;
    max_api_version b"fdb_get_max_api_version\0" () -> c_int;
    client_version b"fdb_get_client_version\0" () -> *const c_char;
    setup_network b"fdb_setup_network\0" () -> c_int;
    run_network b"fdb_run_network\0" () -> c_int;
    stop_network b"fdb_stop_network\0" () -> c_int;

    future_cancel b"fdb_future_cancel\0" (Raw);
    future_destroy b"fdb_future_destroy\0" (Raw);
    future_set_callback b"fdb_future_set_callback\0" (Raw, Callback, *mut c_void) -> c_int;
    future_error b"fdb_future_get_error\0" (Raw) -> c_int;
    future_int64 b"fdb_future_get_int64\0" (Raw, *mut i64) -> c_int;
    future_key b"fdb_future_get_key\0" (Raw, *mut Byte, *mut c_int) -> c_int;
    future_value b"fdb_future_get_value\0" (Raw, *mut c_int, *mut Byte, *mut c_int) -> c_int;
    future_rows b"fdb_future_get_keyvalue_array\0"
        (Raw, *mut *const NativeKeyValue, *mut c_int, *mut c_int) -> c_int;
    future_keys b"fdb_future_get_key_array\0" (Raw, *mut *const NativeKey, *mut c_int) -> c_int;
    future_strings b"fdb_future_get_string_array\0" (Raw, *mut *const *const c_char, *mut c_int) -> c_int;

    create_database b"fdb_create_database\0" (*const c_char, *mut Raw) -> c_int;
    database_destroy b"fdb_database_destroy\0" (Raw);
    database_set_option b"fdb_database_set_option\0" (Raw, c_int, Byte, c_int) -> c_int;
    database_create_transaction b"fdb_database_create_transaction\0" (Raw, *mut Raw) -> c_int;

    transaction_destroy b"fdb_transaction_destroy\0" (Raw);
    transaction_cancel b"fdb_transaction_cancel\0" (Raw);
    transaction_set_option b"fdb_transaction_set_option\0" (Raw, c_int, Byte, c_int) -> c_int;
    transaction_set_read_version b"fdb_transaction_set_read_version\0" (Raw, i64);
    transaction_get_read_version b"fdb_transaction_get_read_version\0" (Raw) -> Raw;
    transaction_get b"fdb_transaction_get\0" (Raw, Byte, c_int, c_int) -> Raw;
    transaction_get_key b"fdb_transaction_get_key\0" (Raw, Byte, c_int, c_int, c_int, c_int) -> Raw;
    transaction_get_range b"fdb_transaction_get_range\0"
        (Raw, Byte, c_int, c_int, c_int, Byte, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int) -> Raw;
    transaction_addresses b"fdb_transaction_get_addresses_for_key\0" (Raw, Byte, c_int) -> Raw;
    transaction_range_size b"fdb_transaction_get_estimated_range_size_bytes\0"
        (Raw, Byte, c_int, Byte, c_int) -> Raw;
    transaction_split_points b"fdb_transaction_get_range_split_points\0"
        (Raw, Byte, c_int, Byte, c_int, i64) -> Raw;
    transaction_set b"fdb_transaction_set\0" (Raw, Byte, c_int, Byte, c_int);
    transaction_clear_range b"fdb_transaction_clear_range\0" (Raw, Byte, c_int, Byte, c_int);
    transaction_atomic_op b"fdb_transaction_atomic_op\0" (Raw, Byte, c_int, Byte, c_int, c_int);
    transaction_add_conflict_range b"fdb_transaction_add_conflict_range\0"
        (Raw, Byte, c_int, Byte, c_int, c_int) -> c_int;
    transaction_watch b"fdb_transaction_watch\0" (Raw, Byte, c_int) -> Raw;
    transaction_versionstamp b"fdb_transaction_get_versionstamp\0" (Raw) -> Raw;
    transaction_commit b"fdb_transaction_commit\0" (Raw) -> Raw;
    transaction_committed_version b"fdb_transaction_get_committed_version\0" (Raw, *mut i64) -> c_int;
}

functions! {
    /// The functions of change data capture, which libraries have from release 8 on. Ordered
    /// streams aren't used: they came when a stream began to have several ranges, so a library with
    /// them has these functions in the form that is called here.
    CaptureFunctions:
    register b"fdb_database_register_cdc_stream\0" (Raw, Byte, c_int, *const NativeKeyRange, c_int) -> Raw;
    _register_ordered b"fdb_database_register_cdc_ordered_stream\0" () -> Raw;
    remove b"fdb_database_remove_cdc_stream\0" (Raw, Byte, c_int) -> Raw;
    list b"fdb_database_list_cdc_streams\0" (Raw) -> Raw;
    create_consumer b"fdb_database_create_cdc_consumer\0" (Raw, Byte, c_int) -> Raw;
    consumer_destroy b"fdb_cdc_consumer_destroy\0" (Raw);
    consume b"fdb_cdc_consumer_consume\0" (Raw) -> Raw;
    acknowledge b"fdb_cdc_consumer_acknowledge\0" (Raw) -> Raw;
    future_uint64 b"fdb_future_get_uint64\0" (Raw, *mut u64) -> c_int;
    future_streams b"fdb_future_get_cdc_stream_info_array\0" (Raw, *mut *const NativeStream, *mut c_int) -> c_int;
    future_consumer b"fdb_future_get_cdc_consumer\0" (Raw, *mut Raw) -> c_int;
    future_changes b"fdb_future_get_cdc_versioned_mutations\0"
        (Raw, *mut *const NativeBatch, *mut c_int, *mut i64) -> c_int;
}
