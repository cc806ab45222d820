//! What a range read is asked for: bounds, limits, direction, and how much travels at a time.
//!
//! A streaming mode is a byte target and nothing else: it never changes which rows a whole range
//! has, only how many come at a time. Contradictory limits are refused before anything is read.

use bytes::Bytes;
use plinth_types::{KeyRange, KeySelector, strinc};
use std::ops::{Bound, RangeBounds};

/// How much of a range one batch carries.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum StreamingMode {
    /// All of the range will be wanted soon: big batches.
    WantAll,
    /// Small batches first, then bigger ones.
    #[default]
    Iterator,
    /// Exactly `limit` rows in one batch.
    Exact,
    /// Little: when few rows are expected to be used.
    Small,
    /// More.
    Medium,
    /// Much.
    Large,
    /// As much as one client gets out of one range.
    Serial,
}

impl StreamingMode {
    /// The bytes that a batch is meant to have; `None` for as many as it takes.
    ///
    /// `iteration` counts the batches of one range from 1; only [`StreamingMode::Iterator`] looks
    /// at it.
    pub fn target_bytes(self, iteration: usize) -> Option<usize> {
        const ITERATIONS: [usize; 10] =
            [4096, 6144, 9216, 13_824, 20_736, 31_104, 46_656, 69_984, 80_000, 120_000];
        Some(match self {
            Self::Exact => return None,
            Self::Small => 256,
            Self::Medium => 1000,
            Self::Large => 4096,
            Self::WantAll | Self::Serial => 80_000,
            Self::Iterator => ITERATIONS[iteration.clamp(1, 10) - 1],
        })
    }
}

/// Which conflict set a range is added to, with FoundationDB's codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum ConflictRangeType {
    /// As if the range had been read.
    Read = 0,
    /// As if the range had been written.
    Write = 1,
}

/// A range read. Made from `begin..end` of keys, from [`RangeOptions::prefix`], or from two
/// selectors.
///
/// ```
/// use plinth_client::{RangeOptions, StreamingMode};
/// let first_ten = RangeOptions::from("a".."b").limit(10).mode(StreamingMode::WantAll);
/// let last_one = RangeOptions::prefix("users/").reverse(true).limit(1);
/// # assert_eq!((first_ten.limit, last_one.reverse), (Some(10), true));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeOptions {
    /// Selects the first row.
    pub begin: KeySelector,
    /// Selects the first row not to give.
    pub end: KeySelector,
    /// Most rows to give, at least 1; `None` for all.
    pub limit: Option<usize>,
    /// Bytes after which a batch ends, at least 1; `None` for what the mode says.
    pub target_bytes: Option<usize>,
    /// How much a batch carries.
    pub mode: StreamingMode,
    /// The number of the batch within the range, from 1.
    pub iteration: usize,
    /// From the end to the begin.
    pub reverse: bool,
}

impl RangeOptions {
    /// The range between two selectors.
    pub fn new(begin: KeySelector, end: KeySelector) -> Self {
        Self {
            begin,
            end,
            limit: None,
            target_bytes: None,
            mode: StreamingMode::Iterator,
            iteration: 1,
            reverse: false,
        }
    }

    /// All keys that begin with `prefix`.
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Self {
        let prefix = prefix.as_ref();
        let end = strinc(prefix).unwrap_or_else(|| Bytes::from_static(b"\xff"));
        Self::new(
            KeySelector::first_greater_or_equal(Bytes::copy_from_slice(prefix)),
            KeySelector::first_greater_or_equal(end),
        )
    }

    /// Gives at most this many rows, at least 1: of a read without any, which is
    /// `range_limits_invalid`, nothing could be told.
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = Some(rows);
        self
    }

    /// Ends a batch after this many bytes, at least 1.
    #[must_use]
    pub fn target_bytes(mut self, bytes: usize) -> Self {
        self.target_bytes = Some(bytes);
        self
    }

    /// Sets how much a batch carries.
    #[must_use]
    pub fn mode(mut self, mode: StreamingMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the number of the batch within the range, from 1.
    #[must_use]
    pub fn iteration(mut self, iteration: usize) -> Self {
        self.iteration = iteration;
        self
    }

    /// Reads from the end to the begin.
    #[must_use]
    pub fn reverse(mut self, reverse: bool) -> Self {
        self.reverse = reverse;
        self
    }

    /// The read of what is left after a batch that ended at `last`, its last key, having given
    /// `rows` rows. If those were all that the limit allows, its limit is `Some(0)`, and nothing is
    /// left to read.
    #[must_use]
    pub fn after(mut self, last: &[u8], rows: usize) -> Self {
        let last = Bytes::copy_from_slice(last);
        if self.reverse {
            self.end = KeySelector::first_greater_or_equal(last);
        } else {
            self.begin = KeySelector::first_greater_than(last);
        }
        self.limit = self.limit.map(|limit| limit.saturating_sub(rows));
        self.iteration = self.iteration.saturating_add(1);
        self
    }

    fn of_bounds<K: AsRef<[u8]>>(range: impl RangeBounds<K>) -> Self {
        let key = |key: &K| Bytes::copy_from_slice(key.as_ref());
        let begin = match range.start_bound() {
            Bound::Included(begin) => KeySelector::first_greater_or_equal(key(begin)),
            Bound::Excluded(begin) => KeySelector::first_greater_than(key(begin)),
            Bound::Unbounded => KeySelector::first_greater_or_equal(Bytes::new()),
        };
        let end = match range.end_bound() {
            Bound::Included(end) => KeySelector::first_greater_than(key(end)),
            Bound::Excluded(end) => KeySelector::first_greater_or_equal(key(end)),
            Bound::Unbounded => KeySelector::first_greater_or_equal(Bytes::from_static(b"\xff")),
        };
        Self::new(begin, end)
    }
}

impl<K: AsRef<[u8]>> From<std::ops::Range<K>> for RangeOptions {
    fn from(range: std::ops::Range<K>) -> Self {
        Self::of_bounds(range)
    }
}

impl<K: AsRef<[u8]>> From<std::ops::RangeInclusive<K>> for RangeOptions {
    fn from(range: std::ops::RangeInclusive<K>) -> Self {
        Self::of_bounds(range)
    }
}

impl<K: AsRef<[u8]>> From<std::ops::RangeFrom<K>> for RangeOptions {
    fn from(range: std::ops::RangeFrom<K>) -> Self {
        Self::of_bounds(range)
    }
}

impl<K: AsRef<[u8]>> From<std::ops::RangeTo<K>> for RangeOptions {
    fn from(range: std::ops::RangeTo<K>) -> Self {
        Self::of_bounds(range)
    }
}

impl From<std::ops::RangeFull> for RangeOptions {
    fn from(range: std::ops::RangeFull) -> Self {
        Self::of_bounds::<&[u8]>(range)
    }
}

impl From<KeyRange> for RangeOptions {
    fn from(range: KeyRange) -> Self {
        Self::new(
            KeySelector::first_greater_or_equal(range.begin),
            KeySelector::first_greater_or_equal(range.end),
        )
    }
}

impl From<(KeySelector, KeySelector)> for RangeOptions {
    fn from((begin, end): (KeySelector, KeySelector)) -> Self {
        Self::new(begin, end)
    }
}

/// Rows and bytes that a range read may still give; `None` for no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    pub(crate) rows: Option<usize>,
    pub(crate) bytes: Option<usize>,
}

impl Limits {
    /// The limits of one batch, or why they are none: `exact_mode_without_limits`,
    /// `client_invalid_operation`, `range_limits_invalid` (checked later, hence the nesting).
    pub(crate) fn of(options: &RangeOptions) -> plinth_types::Result<Option<Self>> {
        use plinth_types::Error;
        let (rows, mut bytes) = (options.limit, options.target_bytes);
        if options.mode == StreamingMode::Exact && rows.is_none() && bytes.is_none() {
            return Err(Error::exact_mode_without_limits());
        }
        if options.mode == StreamingMode::Iterator && options.iteration == 0 {
            return Err(Error::client_invalid_operation().with_detail("iterations count from 1"));
        }
        if let Some(target) = options.mode.target_bytes(options.iteration) {
            bytes = Some(bytes.map_or(target, |bytes| bytes.min(target)));
        }
        if rows == Some(0) || bytes == Some(0) {
            return Ok(None);
        }
        Ok(Some(Self { rows, bytes }))
    }
}
