//! What a future can hold, and the C arrays made of it.
//!
//! Arrays are made when they are first asked for, so that the thread that brings an answer does no
//! work for it. They point into the value beside them, which nothing changes until both are
//! dropped.

use crate::consumer::{Consumed, Consumer, Turn};
use crate::layout::{
    CdcMutation, CdcStreamInfo, CdcVersionedMutations, Key, KeyRange, KeyValue, MappedKeyValue,
    MappedRange, Selector, length,
};
use plinth_client::{ChangeStream, Mapped, MappedRangeResult, Tenant};
use plinth_types::{Bytes, ChangeBatch, Changes, MutationRef, RangeResult, Versionstamp};
use std::ffi::{CString, c_char};
use std::sync::{Arc, OnceLock};

/// The value of a future.
pub(crate) enum Value {
    Nothing,
    Int(i64),
    Unsigned(u64),
    Double(f64),
    Bytes(Bytes),
    Optional(Option<Bytes>),
    Rows(Box<Listed<RangeResult, Array<KeyValue>>>),
    Mapped(Box<Listed<MappedRangeResult, MappedArray>>),
    Keys(Box<Listed<Vec<Bytes>, Array<Key>>>),
    Texts(Box<Listed<Vec<CString>, Array<*const c_char>>>),
    Streams(Box<Listed<Vec<ChangeStream>, StreamArray>>),
    Consumer(Arc<Consumer>),
    Changes(Box<Delivered>),
    /// What `fdb_create_cluster` gave before API version 610: the path.
    Cluster(Option<CString>),
    /// What `fdb_cluster_create_database` gave before API version 610.
    Database(plinth_client::Database),
}

// Every future has room for a value: what is large has a place of its own.
const _: () = assert!(size_of::<Value>() <= 40);

/// What a stream has delivered, and whose consumer is to move on when the future has it.
pub(crate) struct Delivered {
    changes: Listed<Changes, ChangeArray>,
    turn: Option<Turn>,
}

/// A value, and the array that C sees of it.
pub(crate) struct Listed<V, A> {
    value: V,
    array: OnceLock<A>,
}

impl<V, A> Listed<V, A> {
    fn boxed(value: V) -> Box<Self> {
        Box::new(Self { value, array: OnceLock::new() })
    }

    fn array(&self, make: impl FnOnce(&V) -> A) -> &A {
        self.array.get_or_init(|| make(&self.value))
    }
}

/// An array for C. It points into the value that it is kept beside.
pub(crate) struct Array<T>(Box<[T]>);

// SAFETY: the pointers in it lead to memory that is shared immutably and lives as long as the
// array's owner.
unsafe impl<T> Send for Array<T> {}
// SAFETY: as above; the array itself is only read.
unsafe impl<T> Sync for Array<T> {}

impl<T> Array<T> {
    fn of(elements: impl Iterator<Item = T>) -> Self {
        Self(elements.collect())
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        &self.0
    }
}

/// The array of a mapped range read, and the arrays that its elements point to.
pub(crate) struct MappedArray {
    rows: Array<MappedKeyValue>,
    _inner: Vec<Array<KeyValue>>,
}

/// The array of the streams of changes, and those of their ranges.
pub(crate) struct StreamArray {
    streams: Array<CdcStreamInfo>,
    _ranges: Vec<Array<KeyRange>>,
}

/// The array of what a stream has delivered, and those of the mutations of each version.
pub(crate) struct ChangeArray {
    batches: Array<CdcVersionedMutations>,
    _mutations: Vec<Array<CdcMutation>>,
}

impl StreamArray {
    fn of(streams: &[ChangeStream]) -> Self {
        let range = |range: &plinth_types::KeyRange| KeyRange {
            begin_key: range.begin.as_ptr(),
            begin_key_length: length(range.begin.len()),
            end_key: range.end.as_ptr(),
            end_key_length: length(range.end.len()),
        };
        let ranges: Vec<_> =
            streams.iter().map(|stream| Array::of(stream.ranges.iter().map(range))).collect();
        let shown = |(stream, ranges): (&ChangeStream, &Array<KeyRange>)| CdcStreamInfo {
            name: Key::of(&stream.name),
            stream_id: stream.id,
            ranges: ranges.as_slice().as_ptr(),
            range_count: length(ranges.as_slice().len()),
            min_version: stream.acknowledged.saturating_add(1),
        };
        Self { streams: Array::of(streams.iter().zip(&ranges).map(shown)), _ranges: ranges }
    }
}

impl ChangeArray {
    fn of(changes: &Changes) -> Self {
        let mutation = |mutation: MutationRef<'_>| CdcMutation {
            kind: mutation.kind as u8,
            param1: mutation.param1.as_ptr(),
            param1_length: length(mutation.param1.len()),
            param2: mutation.param2.as_ptr(),
            param2_length: length(mutation.param2.len()),
        };
        let mutations: Vec<_> = changes
            .batches
            .iter()
            .map(|batch| Array::of(batch.mutations.iter().map(mutation)))
            .collect();
        let batch =
            |(batch, mutations): (&ChangeBatch, &Array<CdcMutation>)| CdcVersionedMutations {
                version: batch.version,
                mutations: mutations.as_slice().as_ptr(),
                mutation_count: length(mutations.as_slice().len()),
            };
        Self {
            batches: Array::of(changes.batches.iter().zip(&mutations).map(batch)),
            _mutations: mutations,
        }
    }
}

impl Value {
    /// The streams of changes.
    pub(crate) fn streams(&self) -> Option<&[CdcStreamInfo]> {
        let Self::Streams(listed) = self else { return None };
        Some(listed.array(|streams| StreamArray::of(streams)).streams.as_slice())
    }

    /// What a stream has delivered, and up to which version.
    pub(crate) fn changes(&self) -> Option<(&[CdcVersionedMutations], i64)> {
        let Self::Changes(delivered) = self else { return None };
        let listed = &delivered.changes;
        Some((listed.array(ChangeArray::of).batches.as_slice(), listed.value.upto))
    }

    /// A future has it, and nobody can see it yet.
    pub(crate) fn is_had(&mut self) {
        let Self::Changes(delivered) = self else { return };
        let upto = delivered.changes.value.upto;
        delivered.turn.take().into_iter().for_each(|turn| turn.move_on(upto));
    }

    /// The rows and whether there may be more.
    pub(crate) fn rows(&self) -> Option<(&[KeyValue], bool)> {
        let Self::Rows(listed) = self else { return None };
        let pairs = |result: &RangeResult| {
            Array::of(result.rows.iter().map(|(key, value)| KeyValue::of(key, value)))
        };
        Some((listed.array(pairs).as_slice(), listed.value.more))
    }

    pub(crate) fn keys(&self) -> Option<&[Key]> {
        let Self::Keys(listed) = self else { return None };
        Some(listed.array(|keys| Array::of(keys.iter().map(|key| Key::of(key)))).as_slice())
    }

    pub(crate) fn texts(&self) -> Option<&[*const c_char]> {
        let Self::Texts(listed) = self else { return None };
        Some(listed.array(|texts| Array::of(texts.iter().map(|text| text.as_ptr()))).as_slice())
    }

    /// The rows of a mapped range read and whether there may be more.
    pub(crate) fn mapped(&self) -> Option<(&[MappedKeyValue], bool)> {
        let Self::Mapped(listed) = self else { return None };
        Some((listed.array(MappedArray::of).rows.as_slice(), listed.value.more))
    }

    /// No lists of ranges exist: what would give one is retired.
    pub(crate) fn ranges(&self) -> Option<&[KeyRange]> {
        None
    }
}

impl MappedArray {
    fn of(result: &MappedRangeResult) -> Self {
        let mut inner = Vec::with_capacity(result.rows.len());
        let mut rows = Vec::with_capacity(result.rows.len());
        for row in &result.rows {
            let (begin, end, array) = match &row.mapped {
                Mapped::Key { key, value } => {
                    let pair = value.iter().map(|value| KeyValue::of(key, value));
                    let begin = Selector { key: Key::of(key), or_equal: 0, offset: 1 };
                    let end = Selector { key: Key::of(key), or_equal: 1, offset: 1 };
                    (begin, end, Array::of(pair))
                }
                Mapped::Range { begin, end, result } => {
                    let pairs = result.rows.iter().map(|(key, value)| KeyValue::of(key, value));
                    (Selector::of(begin), Selector::of(end), Array::of(pairs))
                }
            };
            let size = crate::layout::length(array.as_slice().len());
            let range =
                MappedRange { begin, end, data: array.as_slice().as_ptr(), size, capacity: size };
            rows.push(MappedKeyValue {
                key: Key::of(&row.key),
                value: Key::of(&row.value),
                range,
                private: [0; 32],
            });
            inner.push(array);
        }
        Self { rows: Array(rows.into_boxed_slice()), _inner: inner }
    }
}

impl From<()> for Value {
    fn from((): ()) -> Self {
        Self::Nothing
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Double(value)
    }
}

impl From<Bytes> for Value {
    fn from(value: Bytes) -> Self {
        Self::Bytes(value)
    }
}

impl From<Option<Bytes>> for Value {
    fn from(value: Option<Bytes>) -> Self {
        Self::Optional(value)
    }
}

impl From<Versionstamp> for Value {
    fn from(value: Versionstamp) -> Self {
        Self::Bytes(Bytes::copy_from_slice(value.as_bytes()))
    }
}

impl From<RangeResult> for Value {
    fn from(result: RangeResult) -> Self {
        Self::Rows(Listed::boxed(result))
    }
}

impl From<MappedRangeResult> for Value {
    fn from(result: MappedRangeResult) -> Self {
        Self::Mapped(Listed::boxed(result))
    }
}

impl From<Vec<Bytes>> for Value {
    fn from(keys: Vec<Bytes>) -> Self {
        Self::Keys(Listed::boxed(keys))
    }
}

impl From<Vec<String>> for Value {
    fn from(texts: Vec<String>) -> Self {
        let texts = texts.into_iter().filter_map(|text| CString::new(text).ok()).collect();
        Self::Texts(Listed::boxed(texts))
    }
}

impl From<Tenant> for Value {
    fn from(tenant: Tenant) -> Self {
        Self::Int(tenant.id())
    }
}

impl From<Vec<ChangeStream>> for Value {
    fn from(streams: Vec<ChangeStream>) -> Self {
        Self::Streams(Listed::boxed(streams))
    }
}

impl From<Consumed> for Value {
    fn from(Consumed { changes, turn }: Consumed) -> Self {
        let changes = Listed { value: changes, array: OnceLock::new() };
        Self::Changes(Box::new(Delivered { changes, turn: Some(turn) }))
    }
}
