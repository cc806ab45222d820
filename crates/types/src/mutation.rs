//! Mutations, alone and in the flat list in which a transaction's travel.
//!
//! A list is one buffer: per mutation a type, two lengths, two parameters. The same bytes are what
//! the client collects, what the log stores and what storage applies, so none of them takes the
//! parts apart.

use crate::{Bytes, Error, Result};

/// What a mutation does, with FoundationDB's codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MutationType {
    /// Store a value. `param1` is the key, `param2` the value.
    Set = 0,
    /// Remove the keys from `param1` up to `param2`.
    ClearRange = 1,
    /// Little-endian addition.
    Add = 2,
    /// Bitwise and; an absent key counts as zeros (API versions below 510).
    BitAnd = 6,
    /// Bitwise or.
    BitOr = 7,
    /// Bitwise exclusive or.
    BitXor = 8,
    /// Append, unless the result would be longer than a value may be.
    AppendIfFits = 9,
    /// Little-endian maximum.
    Max = 12,
    /// Little-endian minimum; an absent key counts as zero (API versions below 510).
    Min = 13,
    /// Store a value under a key that gets the commit's versionstamp.
    SetVersionstampedKey = 14,
    /// Store a value that gets the commit's versionstamp.
    SetVersionstampedValue = 15,
    /// Lexicographic minimum.
    ByteMin = 16,
    /// Lexicographic maximum.
    ByteMax = 17,
    /// Little-endian minimum; on an absent key the operand.
    MinV2 = 18,
    /// Bitwise and; on an absent key the operand.
    BitAndV2 = 19,
    /// Remove the key if its value is the operand.
    CompareAndClear = 20,
}

impl MutationType {
    /// The type with this code, if there is one.
    pub fn from_code(code: i32) -> Option<Self> {
        use MutationType::*;
        const ALL: [MutationType; 16] = [
            Set,
            ClearRange,
            Add,
            BitAnd,
            BitOr,
            BitXor,
            AppendIfFits,
            Max,
            Min,
            SetVersionstampedKey,
            SetVersionstampedValue,
            ByteMin,
            ByteMax,
            MinV2,
            BitAndV2,
            CompareAndClear,
        ];
        ALL.into_iter().find(|kind| *kind as i32 == code)
    }

    /// Whether an application may ask for this by `atomic_op`.
    pub fn is_atomic(self) -> bool {
        !matches!(self, Self::Set | Self::ClearRange)
    }

    /// Whether the commit fills a versionstamp into this mutation.
    pub fn is_versionstamped(self) -> bool {
        matches!(self, Self::SetVersionstampedKey | Self::SetVersionstampedValue)
    }
}

/// One mutation that owns its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mutation {
    /// What to do.
    pub kind: MutationType,
    /// The key, or the begin of the range to clear.
    pub param1: Bytes,
    /// The value or operand, or the end of the range to clear.
    pub param2: Bytes,
}

/// One mutation of a list, borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MutationRef<'a> {
    /// What to do.
    pub kind: MutationType,
    /// The key, or the begin of the range to clear.
    pub param1: &'a [u8],
    /// The value or operand, or the end of the range to clear.
    pub param2: &'a [u8],
}

impl MutationRef<'_> {
    /// The same mutation with bytes of its own.
    pub fn to_owned(&self) -> Mutation {
        Mutation {
            kind: self.kind,
            param1: Bytes::copy_from_slice(self.param1),
            param2: Bytes::copy_from_slice(self.param2),
        }
    }
}

/// Mutations in the order in which they apply, in one buffer.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct MutationList {
    bytes: Vec<u8>,
    count: usize,
}

const HEADER: usize = 9;

impl MutationList {
    /// An empty list.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), count: 0 }
    }

    /// Adds a mutation at the end.
    pub fn push(&mut self, kind: MutationType, param1: &[u8], param2: &[u8]) {
        self.bytes.reserve(HEADER + param1.len() + param2.len());
        self.bytes.push(kind as u8);
        self.bytes.extend_from_slice(&(param1.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(param2.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(param1);
        self.bytes.extend_from_slice(param2);
        self.count += 1;
    }

    /// Adds all of another list at the end.
    pub fn append(&mut self, other: &MutationList) {
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
    }

    /// How many mutations the list has.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the list has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Forgets all mutations and keeps the buffer.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// The bytes of the whole list, for [`MutationList::decode`].
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The offset at which the next mutation will stand; usable with [`MutationList::at`] once
    /// pushed.
    pub fn next_offset(&self) -> usize {
        self.bytes.len()
    }

    /// The mutation that was pushed when [`MutationList::next_offset`] was `offset`.
    pub fn at(&self, offset: usize) -> Option<MutationRef<'_>> {
        self.bytes.get(offset..).and_then(split).map(|(mutation, _)| mutation)
    }

    /// The mutations in order.
    pub fn iter(&self) -> Mutations<'_> {
        Mutations { rest: &self.bytes }
    }

    /// The list that these bytes spell, checked whole.
    ///
    /// # Errors
    /// `file_corrupt` (1522) if they spell none; the caller adds where they came from.
    pub fn decode(bytes: Vec<u8>) -> Result<Self> {
        let count = Self::validate(&bytes)?;
        Ok(Self { bytes, count })
    }

    /// Checks that these bytes spell a list, and counts its mutations; [`Mutations::of`] can then
    /// walk them.
    pub fn validate(bytes: &[u8]) -> Result<usize> {
        let mut mutations = Mutations { rest: bytes };
        let count = mutations.by_ref().count();
        if mutations.rest.is_empty() {
            Ok(count)
        } else {
            let at = bytes.len() - mutations.rest.len();
            Err(Error::file_corrupt()
                .with_detail(format!("mutation list is broken at byte {at} of {}", bytes.len())))
        }
    }
}

impl std::fmt::Debug for MutationList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for &'a MutationList {
    type Item = MutationRef<'a>;
    type IntoIter = Mutations<'a>;

    fn into_iter(self) -> Mutations<'a> {
        self.iter()
    }
}

/// Walks a flat list of mutations; ends at the first byte that spells none.
#[derive(Clone)]
pub struct Mutations<'a> {
    rest: &'a [u8],
}

impl<'a> Mutations<'a> {
    /// Walks bytes that [`MutationList::validate`] has accepted.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes that were not walked yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for Mutations<'a> {
    type Item = MutationRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<MutationRef<'a>> {
        let (mutation, rest) = split(self.rest)?;
        self.rest = rest;
        Some(mutation)
    }
}

#[inline]
fn split(bytes: &[u8]) -> Option<(MutationRef<'_>, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
    let kind = MutationType::from_code(i32::from(header[0]))?;
    let len1 = u32::from_le_bytes([header[1], header[2], header[3], header[4]]) as usize;
    let len2 = u32::from_le_bytes([header[5], header[6], header[7], header[8]]) as usize;
    let (param1, rest) = rest.split_at_checked(len1)?;
    let (param2, rest) = rest.split_at_checked(len2)?;
    Some((MutationRef { kind, param1, param2 }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_gives_back_what_was_pushed() {
        let mut list = MutationList::new();
        list.push(MutationType::Set, b"a", b"1");
        let offset = list.next_offset();
        list.push(MutationType::ClearRange, b"", b"\xff");
        let decoded = MutationList::decode(list.as_bytes().to_vec()).unwrap();
        assert_eq!(decoded, list);
        assert_eq!(list.len(), 2);
        assert_eq!(list.at(offset).unwrap().kind, MutationType::ClearRange);
        assert_eq!(
            list.iter().map(|m| m.param1.to_vec()).collect::<Vec<_>>(),
            [b"a".to_vec(), vec![]]
        );
    }

    #[test]
    fn broken_bytes_are_refused_at_every_length() {
        let mut list = MutationList::new();
        list.push(MutationType::Add, b"key", b"operand");
        for len in 1..list.as_bytes().len() {
            assert!(MutationList::decode(list.as_bytes()[..len].to_vec()).is_err(), "{len}");
        }
        assert!(
            MutationList::decode(vec![3, 0, 0, 0, 0, 0, 0, 0, 0]).is_err(),
            "3 is no mutation type"
        );
        assert_eq!(MutationType::from_code(20), Some(MutationType::CompareAndClear));
        assert_eq!(MutationType::from_code(3), None);
    }
}
