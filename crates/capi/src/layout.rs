//! Structures as C sees them: sizes and offsets are part of the ABI.
//!
//! FoundationDB packs them to 4 bytes, and bindings walk arrays of them with these strides, so
//! fields may lie unaligned: they are only ever copied in and out as a whole.

use plinth_types::KeySelector;
use std::ffi::c_int;

/// `FDBKey`.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(crate) struct Key {
    pub(crate) key: *const u8,
    pub(crate) key_length: c_int,
}

/// `FDBKeyValue`.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(crate) struct KeyValue {
    pub(crate) key: *const u8,
    pub(crate) key_length: c_int,
    pub(crate) value: *const u8,
    pub(crate) value_length: c_int,
}

/// `FDBKeyRange`.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(crate) struct KeyRange {
    pub(crate) begin_key: *const u8,
    pub(crate) begin_key_length: c_int,
    pub(crate) end_key: *const u8,
    pub(crate) end_key_length: c_int,
}

/// `FDBKeySelector`.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(crate) struct Selector {
    pub(crate) key: Key,
    pub(crate) or_equal: c_int,
    pub(crate) offset: c_int,
}

/// `FDBGetRangeReqAndResult`.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(crate) struct MappedRange {
    pub(crate) begin: Selector,
    pub(crate) end: Selector,
    pub(crate) data: *const KeyValue,
    pub(crate) size: c_int,
    pub(crate) capacity: c_int,
}

/// `FDBMappedKeyValue`.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(crate) struct MappedKeyValue {
    pub(crate) key: Key,
    pub(crate) value: Key,
    pub(crate) range: MappedRange,
    pub(crate) private: [u8; 32],
}

/// `FDBCdcStreamInfo`, with an array of ranges, as the packages of FoundationDB 8 read it.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(crate) struct CdcStreamInfo {
    pub(crate) name: Key,
    pub(crate) stream_id: u64,
    pub(crate) ranges: *const KeyRange,
    pub(crate) range_count: c_int,
    pub(crate) min_version: i64,
}

/// `FDBCdcMutation`.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(crate) struct CdcMutation {
    pub(crate) kind: u8,
    pub(crate) param1: *const u8,
    pub(crate) param1_length: c_int,
    pub(crate) param2: *const u8,
    pub(crate) param2_length: c_int,
}

/// `FDBCdcVersionedMutations`.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(crate) struct CdcVersionedMutations {
    pub(crate) version: i64,
    pub(crate) mutations: *const CdcMutation,
    pub(crate) mutation_count: c_int,
}

const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<Key>() == 12);
    assert!(size_of::<KeyValue>() == 24 && offset_of!(KeyValue, value) == 12);
    assert!(size_of::<KeyRange>() == 24 && offset_of!(KeyRange, end_key) == 12);
    assert!(size_of::<Selector>() == 20 && offset_of!(Selector, offset) == 16);
    assert!(size_of::<MappedRange>() == 56 && offset_of!(MappedRange, data) == 40);
    assert!(size_of::<CdcStreamInfo>() == 40 && offset_of!(CdcStreamInfo, min_version) == 32);
    assert!(size_of::<CdcMutation>() == 28 && offset_of!(CdcMutation, param1) == 4);
    assert!(
        size_of::<CdcVersionedMutations>() == 20
            && offset_of!(CdcVersionedMutations, mutations) == 8
    );
    assert!(size_of::<MappedKeyValue>() == 112 && offset_of!(MappedKeyValue, private) == 80);
};

/// A length as C has it; nothing here is longer than an `int` can say.
pub(crate) fn length(length: usize) -> c_int {
    c_int::try_from(length).unwrap_or(c_int::MAX)
}

impl Key {
    /// The bytes are the caller's to keep alive.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { key: bytes.as_ptr(), key_length: length(bytes.len()) }
    }
}

impl KeyValue {
    /// The bytes are the caller's to keep alive.
    pub(crate) fn of(key: &[u8], value: &[u8]) -> Self {
        Self {
            key: key.as_ptr(),
            key_length: length(key.len()),
            value: value.as_ptr(),
            value_length: length(value.len()),
        }
    }
}

impl Selector {
    /// The key is the caller's to keep alive.
    pub(crate) fn of(selector: &KeySelector) -> Self {
        Self {
            key: Key::of(&selector.key),
            or_equal: c_int::from(selector.or_equal),
            offset: selector.offset,
        }
    }
}
