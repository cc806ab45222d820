//! What a client asks of storage, and what it gets.

use crate::{Bytes, KeySelector, Rows};

/// A read of one version of the database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// The value of a key.
    Get(Bytes),
    /// The key that a selector describes.
    GetKey(KeySelector),
    /// The rows of a range.
    Range(RangeRead),
}

/// A read of the rows `begin <= key < end`, both bounds resolved at the read's version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeRead {
    /// Selects the first row.
    pub begin: KeySelector,
    /// Selects the first row not to give.
    pub end: KeySelector,
    /// Most rows to give; `usize::MAX` for all.
    pub limit: usize,
    /// Stop after the row with which `8 + key + value` bytes, summed over the rows, reach this;
    /// `usize::MAX` for never.
    pub target_bytes: usize,
    /// From the end to the begin, keys descending.
    pub reverse: bool,
}

/// The answer to a [`Read`], of the same kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadResult {
    /// The value, if the key exists.
    Value(Option<Bytes>),
    /// The key; empty before the first one, the end of the visible key space after the last one.
    Key(Bytes),
    /// The rows.
    Range(RangeResult),
}

/// The rows of a range read, and how far it got.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RangeResult {
    /// The rows in the order asked for.
    pub rows: Rows,
    /// Whether a limit ended the read, so that rows may be left. Never true when there are no rows.
    pub more: bool,
    /// Whether resolving the begin selector ran into the begin of the key space.
    pub read_to_begin: bool,
    /// Whether resolving the end selector ran into the end of the visible key space.
    pub read_through_end: bool,
}

/// How much of the key space a read may see. Selectors are clamped to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeySpace {
    /// Keys below `\xff`.
    Normal,
    /// Keys below `\xff\xff`.
    System,
}

impl KeySpace {
    /// The first key that can't be seen.
    pub fn end(self) -> &'static [u8] {
        match self {
            Self::Normal => crate::system::NORMAL_END,
            Self::System => crate::system::SYSTEM_END,
        }
    }
}
