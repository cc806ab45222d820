//! Mapped range reads: a range read of an index, and for each of its rows what the row points at.
//!
//! A *mapper* is a tuple; each row of the primary range turns it into the key, or the prefix of a
//! range, of a second read. Elements are taken as they are, except byte and text strings: `{K[i]}`
//! and `{V[i]}` stand for element `i` of the row's key and value, `{...}` at the end for all keys
//! that begin with what stands before, `{{` and `}}` for braces.

pub(crate) mod tuple;

use crate::range::{Limits, RangeOptions};
use crate::transaction::{Inner, Snapshot, Transaction, View, range_conflict};
use bytes::Bytes;
use plinth_env::reply::Reply;
use plinth_types::{
    Error, KeyList, KeySelector, KeySpace, KeyValue, RangeResult, Result, key_after, strinc, system,
};
use std::sync::Arc;

/// The rows of a mapped range read.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MappedRangeResult {
    /// One for each row of the primary range.
    pub rows: Vec<MappedRow>,
    /// Whether a limit ended the read, so that rows may be left.
    pub more: bool,
}

/// A row of the primary range, and what it points at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappedRow {
    /// The row's key; empty, like the value, for all rows but the first and the last of a batch.
    pub key: Bytes,
    /// The row's value.
    pub value: Bytes,
    /// What the mapper made of the row, and what was found there.
    pub mapped: Mapped,
}

/// What one row of a mapped range read points at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mapped {
    /// A key.
    Key {
        /// The key.
        key: Bytes,
        /// Its value, if it exists.
        value: Option<Bytes>,
    },
    /// A range.
    Range {
        /// Selects its first row.
        begin: KeySelector,
        /// Selects the first row not in it.
        end: KeySelector,
        /// All its rows.
        result: RangeResult,
    },
}

impl Transaction {
    /// One batch of a range read with, for each row, the read that `mapper` (an encoded tuple)
    /// makes of it.
    ///
    /// # Errors
    /// `get_mapped_range_reads_your_writes` if any of it was written by this transaction;
    /// `unsupported_operation` without read-your-writes; `mapper_not_tuple` and the like.
    pub fn get_mapped_range(
        &self,
        range: impl Into<RangeOptions>,
        mapper: impl AsRef<[u8]>,
    ) -> Reply<MappedRangeResult> {
        self.inner().get_mapped_range(range.into(), mapper.as_ref(), false)
    }
}

impl Snapshot<'_> {
    /// As [`Transaction::get_mapped_range`]; not supported, FoundationDB's clients don't either.
    ///
    /// # Errors
    /// `unsupported_operation`.
    pub fn get_mapped_range(
        &self,
        range: impl Into<RangeOptions>,
        mapper: impl AsRef<[u8]>,
    ) -> Reply<MappedRangeResult> {
        self.transaction().inner().get_mapped_range(range.into(), mapper.as_ref(), true)
    }
}

impl Inner {
    fn get_mapped_range(
        self: &Arc<Self>,
        range: RangeOptions,
        mapper: &[u8],
        snapshot: bool,
    ) -> Reply<MappedRangeResult> {
        let limits = match Limits::of(&range) {
            Ok(limits) => limits,
            Err(error) => return Reply::ready(Err(error)),
        };
        let prepared = self.with(|state, after| {
            state.check_deferred()?;
            if self.is_special_range(&range) {
                return Err(Error::client_invalid_operation()
                    .with_detail("special keys cannot be read by a mapped range read"));
            }
            state.check(after)?;
            let max = state.options.max_read_key();
            if range.begin.key[..] > *max || range.end.key[..] > *max {
                return Err(Error::key_outside_legal_range());
            }
            let limits = limits.ok_or_else(Error::range_limits_invalid)?;
            let (begin, end) = (range.begin.clone().normalized(), range.end.clone().normalized());
            if begin.offset >= end.offset && begin.key >= end.key {
                return Ok(None);
            }
            if snapshot || state.options.ryw_disabled {
                return Err(Error::unsupported_operation().with_detail(
                    "mapped range reads need read-your-writes and serializable isolation",
                ));
            }
            let view = self.view(state, false);
            let mapper = Bytes::copy_from_slice(mapper);
            Ok(Some(Task { view, begin, end, limits, reverse: range.reverse, mapper }))
        });
        match prepared {
            Err(error) => Reply::ready(Err(error)),
            Ok(None) => Reply::ready(Ok(MappedRangeResult::default())),
            Ok(Some(task)) => {
                let epoch = task.view.epoch;
                self.launch(epoch, false, task.run())
            }
        }
    }

    fn is_special_range(&self, range: &RangeOptions) -> bool {
        let (begin, end) = (&range.begin.key[..], &range.end.key[..]);
        if !self.api(630) {
            return begin == b"\xff\xff/worker_interfaces";
        }
        begin >= system::SYSTEM_END
            && begin < system::SPECIAL_END
            && end >= system::SYSTEM_END
            && end <= system::SPECIAL_END
    }
}

/// A mapped range read on its way.
struct Task {
    view: View,
    begin: KeySelector,
    end: KeySelector,
    limits: Limits,
    reverse: bool,
    mapper: Bytes,
}

impl Task {
    async fn run(self) -> Result<MappedRangeResult> {
        let Self { view, begin, end, limits, reverse, mapper } = self;
        let mapper = Mapper::parse(&mapper)?;
        let primary = view.read_through(begin.clone(), end.clone(), limits, reverse).await?;
        let (low, high) = range_conflict(&begin, &end, reverse, &primary, view.max_key);
        let mut conflicts = vec![(low, high)];
        let mut rows = Vec::with_capacity(primary.rows.len());
        let last = primary.rows.len().saturating_sub(1);
        for (at, row) in primary.rows.key_values().enumerate() {
            let mapped = view.follow(mapper.map(&row)?, mapper.is_range, &mut conflicts).await?;
            let is_boundary = at == 0 || at == last;
            let KeyValue { key, value } =
                if is_boundary { row } else { KeyValue { key: Bytes::new(), value: Bytes::new() } };
            rows.push(MappedRow { key, value, mapped });
        }
        for (low, high) in conflicts {
            if view.map.as_ref().is_some_and(|map| low < high && !map.is_unmodified(&low, &high)) {
                return Err(Error::get_mapped_range_reads_your_writes());
            }
            view.add_conflict(&low, &high);
        }
        Ok(MappedRangeResult { rows, more: primary.more })
    }
}

impl View {
    /// Reads what a row points at; notes what that depends on.
    async fn follow(
        &self,
        key: Bytes,
        is_range: bool,
        conflicts: &mut Vec<(Bytes, Bytes)>,
    ) -> Result<Mapped> {
        if !is_range {
            let version = self.version().await?;
            let mut keys = KeyList::new();
            keys.push(&[self.inner.prefix(), &key].concat());
            let values = self.inner.reading().get_many(version, KeySpace::Normal, &keys).await?;
            conflicts.push((key.clone(), key_after(&key)));
            return Ok(Mapped::Key { key, value: values.into_iter().next().flatten() });
        }
        let end = strinc(&key).unwrap_or_else(|| Bytes::from_static(self.max_key));
        let begin = KeySelector::first_greater_or_equal(key);
        let end = KeySelector::first_greater_or_equal(end);
        let limits = Limits { rows: None, bytes: None };
        let result = self.read_through(begin.clone(), end.clone(), limits, false).await?;
        conflicts.push(range_conflict(&begin, &end, false, &result, self.max_key));
        Ok(Mapped::Range { begin, end, result })
    }
}

/// A mapper, taken apart.
struct Mapper {
    elements: Vec<Element>,
    is_range: bool,
}

enum Element {
    /// Encoded, as it is.
    Literal(Vec<u8>),
    FromKey(Option<usize>),
    FromValue(Option<usize>),
}

impl Mapper {
    fn parse(mapper: &[u8]) -> Result<Self> {
        let parts = tuple::elements(mapper).ok_or_else(Error::mapper_not_tuple)?;
        let mut elements = Vec::with_capacity(parts.len());
        let mut is_range = false;
        for (at, part) in parts.iter().enumerate() {
            let text = match part.first() {
                Some(1 | 2) => tuple::unescape(&part[1..]),
                _ => None,
            };
            let Some(text) = text else {
                elements.push(Element::Literal(part.to_vec()));
                continue;
            };
            let plain = replace(&replace(&text, b"{{", b"{"), b"}}", b"}");
            if plain != text[..] {
                elements.push(Element::Literal(tuple::bytes(&plain)));
            } else if let Some((from_key, index)) = reference(&text) {
                elements.push(if from_key {
                    Element::FromKey(index)
                } else {
                    Element::FromValue(index)
                });
            } else if text[..] == *b"{...}" {
                if at + 1 != parts.len() {
                    return Err(Error::mapper_bad_range_decriptor());
                }
                is_range = true;
            } else {
                elements.push(Element::Literal(part.to_vec()));
            }
        }
        Ok(Self { elements, is_range })
    }

    /// The key that a row leads to.
    fn map(&self, row: &KeyValue) -> Result<Bytes> {
        let mut key = Vec::new();
        let (mut of_key, mut of_value) = (None, None);
        for element in &self.elements {
            let (index, parts) = match element {
                Element::Literal(bytes) => {
                    key.extend_from_slice(bytes);
                    continue;
                }
                Element::FromKey(index) => {
                    if of_key.is_none() {
                        of_key = Some(tuple::elements(&row.key).ok_or_else(Error::key_not_tuple)?);
                    }
                    (index, &of_key)
                }
                Element::FromValue(index) => {
                    if of_value.is_none() {
                        of_value =
                            Some(tuple::elements(&row.value).ok_or_else(Error::value_not_tuple)?);
                    }
                    (index, &of_value)
                }
            };
            let part = index.and_then(|index| parts.as_ref()?.get(index));
            key.extend_from_slice(part.ok_or_else(Error::mapper_bad_index)?);
        }
        Ok(key.into())
    }
}

/// `{K[i]}` or `{V[i]}`: whether it is of the key, and which element, if that is a number.
fn reference(text: &[u8]) -> Option<(bool, Option<usize>)> {
    let inner = text.strip_prefix(b"{")?.strip_suffix(b"]}")?;
    let (from_key, number) = match inner {
        [b'K', b'[', number @ ..] => (true, number),
        [b'V', b'[', number @ ..] => (false, number),
        _ => return None,
    };
    if number.is_empty() {
        return None;
    }
    let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
    Some((
        from_key,
        std::str::from_utf8(&number[..digits]).ok().and_then(|digits| digits.parse().ok()),
    ))
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix(from) {
            out.extend_from_slice(to);
            rest = tail;
        } else {
            out.push(rest[0]);
            rest = &rest[1..];
        }
    }
    out
}
