//! The rows of a range read, in one buffer.
//!
//! A thousand rows cost two allocations, not two thousand; a row that is kept shares the buffer.
//! The order is that of the read, so descending for a reverse one.
//!
//! What is called for each row is `#[inline]`: a range read gives a hundred million rows a second,
//! and a call for each of them, from the crates that read and write rows, costs it a quarter.

use crate::{Bytes, Error, Result, limits};

/// One row with its bytes shared, not copied.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
}

/// Rows in the order in which a range read gives them.
///
/// ```
/// use plinth_types::Rows;
/// let mut rows = Rows::builder();
/// rows.push(b"k", b"v");
/// let rows = rows.finish();
/// assert_eq!(rows.iter().next(), Some((&b"k"[..], &b"v"[..])));
/// assert_eq!(&rows.get(0).unwrap().value[..], b"v");
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Rows {
    data: Bytes,
    spans: Vec<Span>,
}

/// Where a row's key and value end in the buffer; a row begins where the one before ends.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Span {
    key_end: u32,
    value_end: u32,
}

impl Rows {
    /// No rows.
    pub const fn new() -> Self {
        Self { data: Bytes::new(), spans: Vec::new() }
    }

    /// Something to push rows into.
    pub fn builder() -> RowsBuilder {
        RowsBuilder::default()
    }

    /// How many rows there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The bytes of all keys and values together.
    pub fn data_len(&self) -> usize {
        self.data.len()
    }

    /// The keys and values of all rows, one after the other.
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// Where, in [`Rows::data`], each row's key and its value end.
    pub fn ends(&self) -> impl ExactSizeIterator<Item = (u32, u32)> {
        self.spans.iter().map(|span| (span.key_end, span.value_end))
    }

    /// The rows whose keys and values stand in `data`, and end where `ends` says.
    ///
    /// # Errors
    /// `file_corrupt` if these ends go backwards, or don't lead to the end of `data`.
    pub fn from_parts(
        data: Bytes,
        ends: impl ExactSizeIterator<Item = (u32, u32)>,
    ) -> Result<Self> {
        let mut spans = Vec::with_capacity(ends.len());
        let mut last = 0;
        for (key_end, value_end) in ends {
            if key_end < last || value_end < key_end {
                return Err(Error::file_corrupt().with_detail("the ends of rows go backwards"));
            }
            last = value_end;
            spans.push(Span { key_end, value_end });
        }
        if last as usize != data.len() {
            let detail = format!("the rows end at {last}, their bytes at {}", data.len());
            return Err(Error::file_corrupt().with_detail(detail));
        }
        Ok(Self { data, spans })
    }

    /// The row at `index`, sharing this buffer.
    pub fn get(&self, index: usize) -> Option<KeyValue> {
        let (begin, span) = self.span(index)?;
        Some(KeyValue {
            key: self.data.slice(begin..span.key_end as usize),
            value: self.data.slice(span.key_end as usize..span.value_end as usize),
        })
    }

    /// The key and value at `index`, borrowed.
    #[inline]
    pub fn row(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let (begin, span) = self.span(index)?;
        Some((
            &self.data[begin..span.key_end as usize],
            &self.data[span.key_end as usize..span.value_end as usize],
        ))
    }

    /// The last row, borrowed.
    #[inline]
    pub fn last(&self) -> Option<(&[u8], &[u8])> {
        self.row(self.len().checked_sub(1)?)
    }

    /// The rows, borrowed, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> + DoubleEndedIterator {
        (0..self.len()).map(|index| self.row(index).unwrap_or_default())
    }

    /// The rows as shared key-value pairs, in order.
    pub fn key_values(&self) -> impl ExactSizeIterator<Item = KeyValue> + '_ {
        (0..self.len()).map(|index| {
            self.get(index).unwrap_or(KeyValue { key: Bytes::new(), value: Bytes::new() })
        })
    }

    #[inline]
    fn span(&self, index: usize) -> Option<(usize, Span)> {
        let span = *self.spans.get(index)?;
        let begin = index.checked_sub(1).map_or(0, |before| self.spans[before].value_end as usize);
        Some((begin, span))
    }
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.key_values()).finish()
    }
}

/// Collects rows, and counts their bytes as range limits do.
#[derive(Default)]
pub struct RowsBuilder {
    data: Vec<u8>,
    spans: Vec<Span>,
}

impl RowsBuilder {
    /// A builder with room for this many rows and bytes.
    pub fn with_capacity(rows: usize, bytes: usize) -> Self {
        Self { data: Vec::with_capacity(bytes), spans: Vec::with_capacity(rows) }
    }

    /// Adds a row at the end.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.data.extend_from_slice(key);
        let key_end = self.data.len() as u32;
        self.data.extend_from_slice(value);
        self.spans.push(Span { key_end, value_end: self.data.len() as u32 });
    }

    /// How many rows there are so far.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none so far.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The bytes so far as a range read's byte target counts them: 8 more than key and value, for
    /// each row.
    #[inline]
    pub fn accounted_bytes(&self) -> usize {
        self.data.len() + self.spans.len() * row_overhead()
    }

    /// The rows.
    pub fn finish(self) -> Rows {
        Rows { data: self.data.into(), spans: self.spans }
    }
}

/// What a row counts towards a byte target beyond its key and value.
pub const fn row_overhead() -> usize {
    8
}

const _: () = assert!(limits::TRANSACTION_SIZE < u32::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_what_their_parts_say_or_an_error() {
        let mut rows = Rows::builder();
        rows.push(b"a", b"1");
        rows.push(b"", b"");
        rows.push(b"b", b"22");
        let rows = rows.finish();
        let ends: Vec<_> = rows.ends().collect();
        assert_eq!(Rows::from_parts(rows.data().clone(), ends.iter().copied()).unwrap(), rows);
        for wrong in [vec![(1, 2)], vec![(2, 1), (3, 5)], vec![(1, 2), (1, 5)], vec![(1, 9)]] {
            assert!(Rows::from_parts(rows.data().clone(), wrong.into_iter()).is_err());
        }
    }
}
