//! Mapped range reads: a range read of an index, and for each of its rows what the row points at.
//!
//! A *mapper* is a tuple; each row of the primary range turns it into the key, or the prefix of a
//! range, of a second read. Elements are taken as they are, except byte and text strings: `{K[i]}`
//! and `{V[i]}` stand for element `i` of the row's key and value, `{...}` at the end for all keys
//! that begin with what stands before, `{{` and `}}` for braces.

use crate::conflicts::of_get_range;
use crate::merge::Source;
use crate::range::{Limits, RangeOptions};
use crate::transaction::{RangeCall, Snapshot, Transaction, View};
use crate::tuple;
use bytes::Bytes;
use plinth_env::reply::Reply;
use plinth_types::{Error, KeySelector, KeyValue, RangeResult, Result, key_after, strinc};

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
        get_mapped_range(self, &range.into(), mapper.as_ref(), false)
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
        get_mapped_range(self.transaction(), &range.into(), mapper.as_ref(), true)
    }
}

fn get_mapped_range(
    tr: &Transaction,
    range: &RangeOptions,
    mapper: &[u8],
    snapshot: bool,
) -> Reply<MappedRangeResult> {
    match tr.call_range(range, snapshot) {
        Err(error) => Reply::ready(Err(error)),
        Ok(None) => Reply::ready(Ok(MappedRangeResult::default())),
        Ok(Some(call)) => {
            let mapper = Bytes::copy_from_slice(mapper);
            let view = call.view.clone();
            view.launch(async move { run(call, &mapper).await })
        }
    }
}

async fn run(call: RangeCall, mapper: &[u8]) -> Result<MappedRangeResult> {
    let RangeCall { view, begin, end, limits, reverse } = call;
    let mapper = Mapper::parse(mapper)?;
    let primary = view.read_through(begin.clone(), end.clone(), limits, reverse).await?;
    let mut conflicts = vec![of_get_range(&begin, &end, reverse, &primary, view.max_key())];
    let mut rows = Vec::with_capacity(primary.rows.len());
    let last = primary.rows.len().saturating_sub(1);
    for (at, row) in primary.rows.key_values().enumerate() {
        let mapped = follow(&view, mapper.map(&row)?, mapper.is_range, &mut conflicts).await?;
        let is_boundary = at == 0 || at == last;
        let KeyValue { key, value } =
            if is_boundary { row } else { KeyValue { key: Bytes::new(), value: Bytes::new() } };
        rows.push(MappedRow { key, value, mapped });
    }
    for (low, high) in conflicts {
        if !view.is_unmodified(&low, &high) {
            return Err(Error::get_mapped_range_reads_your_writes());
        }
        view.add_conflict(&low, &high);
    }
    Ok(MappedRangeResult { rows, more: primary.more })
}

/// Reads what a row points at; notes what that depends on.
async fn follow(
    view: &View,
    key: Bytes,
    is_range: bool,
    conflicts: &mut Vec<(Bytes, Bytes)>,
) -> Result<Mapped> {
    if !is_range {
        let value = view.get(&key).await?;
        conflicts.push((key.clone(), key_after(&key)));
        return Ok(Mapped::Key { key, value });
    }
    let end = strinc(&key).unwrap_or_else(|| Bytes::from_static(view.max_key()));
    let begin = KeySelector::first_greater_or_equal(key);
    let end = KeySelector::first_greater_or_equal(end);
    let limits = Limits { rows: None, bytes: None };
    let result = view.read_through(begin.clone(), end.clone(), limits, false).await?;
    conflicts.push(of_get_range(&begin, &end, false, &result, view.max_key()));
    Ok(Mapped::Range { begin, end, result })
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
