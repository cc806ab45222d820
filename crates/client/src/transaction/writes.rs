//! Writes: sets, clears and atomic operations, and explicit conflict ranges.
//!
//! Whether a transaction takes a write, and where it goes, is decided here: to the special keys, or
//! to the write set, and then to the watches that it may fire. An error is kept for the next call
//! that can tell it.

use super::after::After;
use super::state::State;
use super::write_set::{Rules, check_bounds, cut};
use super::{Inner, Transaction};
use crate::range::ConflictRangeType;
use crate::special_keys::{self, Writer};
use plinth_types::{Error, MutationType, Result, key_after, system};

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
        if !state.life.is_deferred() {
            let result = f(&self.inner, &mut state, &mut after);
            state.defer(result);
        }
        drop(state);
        after.run();
    }
}

impl State {
    /// Begins a write: whether it adds a conflict range.
    #[inline]
    fn begin_write(&mut self, after: &mut After) -> Result<bool> {
        let conflict = !std::mem::take(&mut self.options.next_write_no_conflict);
        self.check_write(after)?;
        Ok(conflict)
    }
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
            if special_keys::is_write(self.api_version(), key) {
                let (special, by) = self.special_writer(state);
                return special.set(&by, key, value);
            }
        }
        let conflict = state.begin_write(after)?;
        let rules = Rules { api: self.api_version(), settings: &state.options };
        state.writes.set(&rules, key, value, conflict)?;
        if !state.watches.is_empty() {
            state.watches.written(key, Some(value), after);
        }
        Ok(())
    }

    fn clear(&self, state: &mut State, key: &[u8], after: &mut After) -> Result<()> {
        let conflict = state.begin_write(after)?;
        if special_keys::is_write(self.api_version(), key) {
            let (special, by) = self.special_writer(state);
            return special.clear(&by, key, &key_after(key));
        }
        let rules = Rules { api: self.api_version(), settings: &state.options };
        state.writes.clear_key(&rules, key, conflict)?;
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
        let conflict = state.begin_write(after)?;
        if begin >= system::SYSTEM_END && end <= system::SPECIAL_END && self.api(700) {
            let (special, by) = self.special_writer(state);
            return special.clear(&by, begin, end);
        }
        let rules = Rules { api: self.api_version(), settings: &state.options };
        state.writes.clear_range(&rules, begin, end, conflict)?;
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
        let conflict = state.begin_write(after)?;
        let version = state.version.known();
        let rules = Rules { api: self.api_version(), settings: &state.options };
        state.writes.atomic_op(&rules, key, operand, kind, conflict, version)?;
        if !state.watches.is_empty() {
            state.watches.touched(key, after);
        }
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
        let is_metadata_version = *begin == *system::METADATA_VERSION && is_key_after(end, begin);
        if self.api(300) && !is_metadata_version {
            check_bounds(begin, end, state.options.max_read_key())?;
        }
        state.add_read_conflict(cut(begin), cut(end));
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
        let rules = Rules { api: self.api_version(), settings: &state.options };
        let counts = !state.options.ryw_disabled;
        state.writes.add_conflict(&rules, begin, end, counts)
    }

    /// What takes a write of special keys, and what it goes by.
    fn special_writer<'a>(
        &'a self,
        state: &'a mut State,
    ) -> (&'a mut special_keys::Special, Writer<'a>) {
        let (api, allowed, is_begun) = (self.api_version(), state.allowed(), state.size() > 0);
        (&mut state.special, Writer { env: self.env(), api, allowed, is_begun })
    }
}

fn is_key_after(end: &[u8], begin: &[u8]) -> bool {
    end.strip_prefix(begin) == Some(&[0])
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
