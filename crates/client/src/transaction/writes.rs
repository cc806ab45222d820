//! Writes: sets, clears and atomic operations, and explicit conflict ranges.
//!
//! A write appends to the list of mutations and to the list of write conflict ranges, and that is
//! all: no map is built until a read may meet one of them (see `write_map`). Its checks are
//! FoundationDB's, in its order; an error is kept for the next call that can tell it.

use super::state::{After, State};
use super::{Inner, Transaction, write_cost};
use crate::range::ConflictRangeType;
use crate::write_map::{Stamped, WriteMap};
use plinth_types::{
    Error, KeyRange, MutationList, MutationType, RangeList, Result, Versionstamp, key_after,
    limits, system,
};

/// What a mutation counts beyond its two parameters.
const MUTATION_OVERHEAD: i64 = 44;
/// What a conflict range counts beyond its two keys.
pub(crate) const RANGE_OVERHEAD: i64 = 24;
/// Bytes of the offset that ends a versionstamped operand.
const OFFSET_LENGTH: usize = 4;
/// What a write of the metadata version must have as operand.
const METADATA_VERSION_OPERAND: [u8; 14] = [0; 14];

/// What was written.
#[derive(Default)]
pub(crate) struct Writes {
    pub(crate) mutations: MutationList,
    pub(crate) conflicts: RangeList,
    /// Keys that get their versionstamp at commit.
    pub(crate) stamped: Vec<Stamped>,
    /// The mutations up to `folded`, by key.
    pub(crate) map: Option<WriteMap>,
    pub(crate) folded: usize,
    /// Whether there was any write, or explicit write conflict range.
    pub(crate) any: bool,
    /// Whether any key or value gets its versionstamp at commit.
    pub(crate) any_stamp: bool,
    /// How many appends there are: two on one key take effect as one.
    pub(crate) appends: usize,
    /// The transaction's size, reads and writes, as users are told.
    pub(crate) size: i64,
    pub(crate) cost: i64,
}

/// So few mutations are looked through one by one, which costs less than a map of them.
const SCANNED_MUTATIONS: usize = 16;

impl Writes {
    /// Whether the mutations are few, and none makes keys unreadable, so that a read can look
    /// through them.
    pub(super) fn is_scannable(&self) -> bool {
        self.map.is_none() && self.mutations.len() <= SCANNED_MUTATIONS && !self.any_stamp
    }

    /// The map of all writes so far.
    pub(crate) fn map(&mut self) -> &WriteMap {
        let map = self.map.get_or_insert_with(WriteMap::new);
        if self.folded < self.mutations.next_offset() {
            self.folded = map.fold(&self.mutations, &self.stamped, self.folded);
        }
        map
    }

    fn push(&mut self, kind: MutationType, param1: &[u8], param2: &[u8]) {
        self.any = true;
        self.appends += usize::from(kind == MutationType::AppendIfFits);
        self.any_stamp |= kind.is_versionstamped();
        self.mutations.push(kind, param1, param2);
    }

    /// Adds a mutation of one key, and the conflict range if wanted.
    pub(crate) fn push_key(
        &mut self,
        kind: MutationType,
        key: &[u8],
        value: &[u8],
        conflict: bool,
    ) {
        self.push(kind, key, value);
        self.size += MUTATION_OVERHEAD + (key.len() + value.len()) as i64;
        self.cost +=
            write_cost(key.len() + if kind == MutationType::Set { value.len() } else { 0 });
        if conflict {
            self.conflicts.push_single(key);
            self.size += RANGE_OVERHEAD + 2 * key.len() as i64 + 1;
        }
    }

    /// Adds a clear of a range that is not empty, and the conflict range if wanted.
    pub(crate) fn push_clear(&mut self, begin: &[u8], end: &[u8], conflict: bool) {
        self.push(MutationType::ClearRange, begin, end);
        self.cost += write_cost(0);
        if conflict {
            self.conflicts.push(begin, end);
        }
    }

    /// Forgets everything but the buffers.
    pub(crate) fn clear(&mut self) {
        self.mutations.clear();
        self.conflicts.clear();
        self.stamped.clear();
        self.map = None;
        self.folded = 0;
        self.any = false;
        self.any_stamp = false;
        self.appends = 0;
        self.size = 0;
        self.cost = 0;
    }
}

impl State {
    /// Keeps the error of a call that can't tell it.
    pub(crate) fn defer(&mut self, result: Result<()>, _after: &mut After) {
        if let Err(error) = result {
            self.life.deferred.get_or_insert(error);
        }
    }

    fn take_conflict_flag(&mut self) -> bool {
        !std::mem::take(&mut self.options.next_write_no_conflict)
    }
}

impl Transaction {
    /// Stores `value` under `key`.
    ///
    /// A key outside of what the transaction may write (`key_outside_legal_range`) or too long
    /// (`key_too_large`), or a value too long (`value_too_large`), is an error that the next read
    /// or the commit tells.
    #[inline]
    pub fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.write(|inner, state, after| inner.set(state, key, value, after));
    }

    /// Removes `key`.
    pub fn clear(&self, key: impl AsRef<[u8]>) {
        let key = key.as_ref();
        self.write(|inner, state, after| inner.clear(state, key, after));
    }

    /// Removes the keys from `begin` up to, and without, `end`. `inverted_range` is kept for the
    /// next call that can tell it.
    pub fn clear_range(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) {
        let (begin, end) = (begin.as_ref(), end.as_ref());
        self.write(|inner, state, after| {
            if begin > end {
                return Err(Error::inverted_range());
            }
            inner.clear_range(state, begin, end, after)
        });
    }

    /// Removes the keys that begin with `prefix`.
    pub fn clear_prefix(&self, prefix: impl AsRef<[u8]>) {
        let prefix = prefix.as_ref();
        let end = plinth_types::strinc(prefix).unwrap_or_else(|| system::NORMAL_END.into());
        self.clear_range(prefix, end);
    }

    /// Changes the value of `key` by an operation that is carried out at commit, so that it
    /// conflicts with no other such operation.
    #[inline]
    pub fn atomic_op(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>, kind: MutationType) {
        self.atomic_op_raw(key, operand, kind as i32);
    }

    /// [`Transaction::atomic_op`] with FoundationDB's code; `invalid_mutation_type` is kept for the
    /// next call that can tell it.
    pub fn atomic_op_raw(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>, kind: i32) {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        self.write(|inner, state, after| inner.atomic_op(state, key, operand, kind, after));
    }

    /// Has the commit conflict if anybody writes between `begin` and `end`, or, with
    /// [`ConflictRangeType::Write`], has others conflict that read there.
    ///
    /// # Errors
    /// `inverted_range`. A range that the transaction may not use is an error that the next call
    /// tells.
    pub fn add_conflict_range(
        &self,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
        kind: ConflictRangeType,
    ) -> Result<()> {
        let (begin, end) = (begin.as_ref(), end.as_ref());
        if begin > end {
            return Err(Error::inverted_range());
        }
        self.write(|inner, state, after| match kind {
            ConflictRangeType::Read => inner.add_read_conflict(state, begin, end, after),
            ConflictRangeType::Write => inner.add_write_conflict(state, begin, end, after),
        });
        Ok(())
    }

    #[inline]
    fn write(&self, f: impl FnOnce(&Inner, &mut State, &mut After) -> Result<()>) {
        let mut after = After::default();
        let mut state = self.inner.lock();
        if state.life.deferred.is_none()
            && let Err(error) = f(&self.inner, &mut state, &mut after)
        {
            state.life.deferred.get_or_insert(error);
        }
        drop(state);
        after.run();
    }
}

fn illegal(key: &[u8]) -> Error {
    Error::key_outside_legal_range()
        .with_detail(plinth_types::printable(&key[..key.len().min(100)]))
}

/// The longest key that may be written; with raw access a tenant's prefix may stand before it.
pub(super) fn max_writable_key_size(key: &[u8], raw: bool) -> usize {
    let is_normal = key.first() != Some(&0xff);
    limits::key_size_limit(key) + if raw && is_normal { 8 } else { 0 }
}

/// The longest key that can exist.
pub(crate) fn max_existing_key_size(key: &[u8]) -> usize {
    max_writable_key_size(key, true)
}

fn check_sizes(key: &[u8], value: &[u8], raw: bool) -> Result<()> {
    let most = max_writable_key_size(key, raw);
    if key.len() > most {
        return Err(
            Error::key_too_large().with_detail(format!("{} bytes, at most {most}", key.len()))
        );
    }
    if value.len() > limits::VALUE_SIZE {
        return Err(Error::value_too_large().with_detail(format!(
            "{} bytes, at most {}",
            value.len(),
            limits::VALUE_SIZE
        )));
    }
    Ok(())
}

/// A bound, cut to an equivalent one if it is longer than any key can be.
pub(super) fn cut(bound: &[u8]) -> &[u8] {
    &bound[..bound.len().min(max_existing_key_size(bound) + 1)]
}

impl Inner {
    #[inline]
    fn set(&self, state: &mut State, key: &[u8], value: &[u8], after: &mut After) -> Result<()> {
        if key.first() == Some(&0xff) {
            if *key == *system::METADATA_VERSION {
                return Err(Error::client_invalid_operation().with_detail(
                    "the metadata version is written by set_versionstamped_value alone",
                ));
            }
            if self.is_special_write(key) {
                return self.special_set(state, key, value);
            }
        }
        let conflict = state.take_conflict_flag();
        state.check_write(after)?;
        if key >= state.options.max_write_key() {
            return Err(illegal(key));
        }
        check_sizes(key, value, state.options.access.raw)?;
        state.writes.push_key(MutationType::Set, key, value, conflict);
        if !state.watches.is_empty() {
            state.watches.written(key, Some(value), after);
        }
        Ok(())
    }

    fn clear(&self, state: &mut State, key: &[u8], after: &mut After) -> Result<()> {
        let conflict = state.take_conflict_flag();
        state.check_write(after)?;
        if self.is_special_write(key) {
            return self.special_clear(state, key, &key_after(key));
        }
        if key >= state.options.max_write_key() {
            return Err(illegal(key));
        }
        if key.len() > max_existing_key_size(key) {
            return Ok(());
        }
        let size = RANGE_OVERHEAD + 2 * key.len() as i64 + 1;
        state.writes.size += if conflict { 2 * size } else { size };
        state.writes.push_clear(key, &key_after(key), conflict);
        if !state.watches.is_empty() {
            state.watches.written(key, None, after);
        }
        Ok(())
    }

    fn clear_range(
        &self,
        state: &mut State,
        begin: &[u8],
        end: &[u8],
        after: &mut After,
    ) -> Result<()> {
        let conflict = state.take_conflict_flag();
        state.check_write(after)?;
        if begin >= system::SYSTEM_END && end <= system::SPECIAL_END && self.api(700) {
            return self.special_clear(state, begin, end);
        }
        let max = state.options.max_write_key();
        if begin > max || end > max {
            return Err(illegal(if begin > max { begin } else { end }));
        }
        let keys = (begin.len() + end.len()) as i64;
        state.writes.size +=
            MUTATION_OVERHEAD + keys + if conflict { RANGE_OVERHEAD + keys } else { 0 };
        let begin = cut(begin);
        let end = cut(end);
        if begin == end {
            return Ok(());
        }
        state.writes.push_clear(begin, end, conflict);
        if !state.watches.is_empty() {
            state.watches.cleared(begin, end, after);
        }
        Ok(())
    }

    fn atomic_op(
        &self,
        state: &mut State,
        key: &[u8],
        operand: &[u8],
        kind: i32,
        after: &mut After,
    ) -> Result<()> {
        let conflict = state.take_conflict_flag();
        state.check_write(after)?;
        if *key == *system::METADATA_VERSION {
            if kind != MutationType::SetVersionstampedValue as i32
                || *operand != METADATA_VERSION_OPERAND
            {
                return Err(Error::client_invalid_operation().with_detail(
                    "the metadata version takes a versionstamped value of 14 zero bytes",
                ));
            }
        } else if key >= state.options.max_write_key() {
            return Err(illegal(key));
        }
        let Some(kind) = MutationType::from_code(kind).filter(|kind| kind.is_atomic()) else {
            return Err(Error::invalid_mutation_type().with_detail(format!("{kind}")));
        };
        check_sizes(key, operand, state.options.access.raw)?;
        match kind {
            MutationType::SetVersionstampedKey => self.stamp_key(state, key, operand)?,
            MutationType::SetVersionstampedValue => {
                let widened;
                let operand = if self.api(520) {
                    operand
                } else {
                    widened = [operand, &[0; OFFSET_LENGTH]].concat();
                    &widened
                };
                stamp_position(operand)?;
                state.writes.push_key(kind, key, operand, conflict);
            }
            kind => {
                let kind = match kind {
                    MutationType::Min if self.api(510) => MutationType::MinV2,
                    MutationType::BitAnd if self.api(510) => MutationType::BitAndV2,
                    kind => kind,
                };
                state.writes.push_key(kind, key, operand, conflict);
            }
        }
        if !state.watches.is_empty() {
            state.watches.touched(key, after);
        }
        Ok(())
    }

    /// A key that gets its versionstamp at commit: until then nobody can say what the keys are that
    /// it may become.
    fn stamp_key(&self, state: &mut State, key: &[u8], value: &[u8]) -> Result<()> {
        let mut key = key.to_vec();
        if !self.api(520) {
            // The offset had two bytes then.
            key.extend_from_slice(&[0, 0]);
        }
        let at = stamp_position(&key)?;
        let bare = key.len() - OFFSET_LENGTH;
        let least = Versionstamp::new(state.version.known().unwrap_or(0), 0);
        key[at..at + Versionstamp::LEN].copy_from_slice(least.as_bytes());
        let mut last = key[..bare].to_vec();
        last[at..at + Versionstamp::LEN].fill(0xff);
        last.push(0);
        let max = state.options.max_read_key();
        let end = if last[..] < *max { last } else { max.to_vec() };
        let range = KeyRange::new(key[..bare].to_vec(), end);
        let offset = state.writes.mutations.next_offset();
        state.writes.stamped.push(Stamped { offset, range });
        state.writes.push_key(MutationType::SetVersionstampedKey, &key, value, false);
        Ok(())
    }

    fn add_read_conflict(
        &self,
        state: &mut State,
        begin: &[u8],
        end: &[u8],
        after: &mut After,
    ) -> Result<()> {
        state.check_write(after)?;
        let max = state.options.max_read_key();
        let is_metadata_version = *begin == *system::METADATA_VERSION && is_key_after(end, begin);
        if self.api(300) && (begin > max || end > max) && !is_metadata_version {
            return Err(illegal(if begin > max { begin } else { end }));
        }
        let begin = cut(begin);
        let end = cut(end);
        state.add_read_conflict_now(begin, end);
        Ok(())
    }

    fn add_write_conflict(
        &self,
        state: &mut State,
        begin: &[u8],
        end: &[u8],
        after: &mut After,
    ) -> Result<()> {
        state.check_write(after)?;
        let max = state.options.max_write_key();
        if self.api(300) && (begin > max || end > max) {
            return Err(illegal(if begin > max { begin } else { end }));
        }
        let begin = cut(begin);
        let end = cut(end);
        if begin < end {
            state.writes.size += RANGE_OVERHEAD + (begin.len() + end.len()) as i64;
            state.writes.conflicts.push(begin, end);
            state.writes.any |= !state.options.ryw_disabled;
        }
        Ok(())
    }

    /// Whether a write of this key goes to the special keys.
    fn is_special_write(&self, key: &[u8]) -> bool {
        key >= system::SYSTEM_END && key < system::SPECIAL_END && self.api(700)
    }
}

fn is_key_after(end: &[u8], begin: &[u8]) -> bool {
    end.strip_prefix(begin) == Some(&[0])
}

/// Where in a versionstamped parameter the stamp goes: its last four bytes say so.
fn stamp_position(parameter: &[u8]) -> Result<usize> {
    let invalid = |what: String| Error::client_invalid_operation().with_detail(what);
    let Some((rest, offset)) = parameter.split_last_chunk::<OFFSET_LENGTH>() else {
        return Err(invalid("a versionstamped parameter ends with a 4-byte offset".into()));
    };
    let offset = i32::from_le_bytes(*offset);
    usize::try_from(offset)
        .ok()
        .filter(|at| at + Versionstamp::LEN <= rest.len())
        .ok_or_else(|| invalid(format!("no 10 bytes at offset {offset} of {}", rest.len())))
}

macro_rules! shorthands {
    ($($(#[$doc:meta])* $name:ident $kind:ident;)*) => {
        impl Transaction {
            $(
                $(#[$doc])*
                pub fn $name(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
                    self.atomic_op(key, operand, MutationType::$kind);
                }
            )*
        }
    };
}

shorthands! {
    /// Adds the operand to the value, both little-endian, at the operand's length.
    add Add;
    /// Bitwise and with the operand.
    bit_and BitAnd;
    /// Bitwise or with the operand.
    bit_or BitOr;
    /// Bitwise exclusive or with the operand.
    bit_xor BitXor;
    /// Appends the operand, unless the value would get too long.
    append_if_fits AppendIfFits;
    /// Stores the operand if it is larger, both little-endian.
    max Max;
    /// Stores the operand if it is smaller, both little-endian.
    min Min;
    /// Stores the operand if it comes first in byte order.
    byte_min ByteMin;
    /// Stores the operand if it comes last in byte order.
    byte_max ByteMax;
    /// Removes the key if its value is the operand.
    compare_and_clear CompareAndClear;
    /// Stores a value under a key that gets the commit's versionstamp: the key ends with the 4-byte
    /// little-endian offset of the ten bytes that the stamp replaces.
    set_versionstamped_key SetVersionstampedKey;
    /// Stores a value that gets the commit's versionstamp: it ends with the 4-byte little-endian
    /// offset of the ten bytes that the stamp replaces.
    set_versionstamped_value SetVersionstampedValue;
}

impl Transaction {
    /// [`Transaction::add_conflict_range`] of what this would have been read.
    ///
    /// # Errors
    /// `inverted_range`.
    pub fn add_read_conflict_range(
        &self,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.add_conflict_range(begin, end, ConflictRangeType::Read)
    }

    /// [`Transaction::add_conflict_range`] of what this would have been written.
    ///
    /// # Errors
    /// `inverted_range`.
    pub fn add_write_conflict_range(
        &self,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.add_conflict_range(begin, end, ConflictRangeType::Write)
    }

    /// As if `key` had been read.
    pub fn add_read_conflict_key(&self, key: impl AsRef<[u8]>) {
        let key = key.as_ref();
        let _ = self.add_read_conflict_range(key, key_after(key));
    }

    /// As if `key` had been written.
    pub fn add_write_conflict_key(&self, key: impl AsRef<[u8]>) {
        let key = key.as_ref();
        let _ = self.add_write_conflict_range(key, key_after(key));
    }
}
