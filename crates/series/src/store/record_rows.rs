//! Rows of records: those of one kind and series, by time.

use super::by_time::{self, ByTime};
use super::keys::{Id, Keys};
use crate::codec::{self, reader::Reader, reader::write_number};
use crate::error::{Error, Result};
use crate::record::{Kind, MAX_RECORD_BYTES};
use crate::tree::Span;
use plinth_client::{RangeOptions, Transaction};
use plinth_types::Bytes;

const FORMAT: u8 = 1;
const HEADER: usize = 8;
/// Bytes beyond which a row becomes several: what comes next rewrites the last one.
pub(super) const ROW_BYTES: usize = 8 << 10;
/// Records of a row, at most.
const ROW_RECORDS: usize = 1 << 16;
/// What a record takes beside its bytes, about.
const BESIDE: usize = 16;

const _: () = assert!(MAX_RECORD_BYTES + 64 < plinth_types::limits::VALUE_SIZE);

impl ByTime for Kind {
    type Value = Bytes;
    const VISIT: usize = 512;
    const JOINED: usize = 0;

    fn all(&self, keys: &Keys, id: Id) -> Vec<u8> {
        keys.records(*self, id)
    }

    fn row(&self, keys: &Keys, id: Id, first: i64) -> Vec<u8> {
        keys.record_row(*self, id, first)
    }

    fn weight(bytes: &Bytes) -> usize {
        BESIDE + bytes.len()
    }

    fn decode(&self, row: &[u8]) -> Result<Vec<(i64, Bytes)>> {
        decode(*self, row)
    }

    /// Full rows before one that others go on with; evenly full ones where others lie behind.
    fn encode(&self, records: Vec<(i64, Bytes)>, are_last: bool) -> Vec<(i64, Vec<u8>)> {
        let bytes: usize = records.iter().map(|(_, bytes)| Self::weight(bytes)).sum();
        let most = match are_last {
            true => ROW_BYTES,
            false => bytes / bytes.div_ceil(ROW_BYTES).max(1),
        };
        let (mut rows, mut begin, mut held) = (Vec::new(), 0, 0);
        for (at, (_, bytes)) in records.iter().enumerate() {
            let weight = Self::weight(bytes);
            if at > begin && (held + weight > most || at - begin == ROW_RECORDS) {
                rows.push(&records[begin..at]);
                (begin, held) = (at, 0);
            }
            held += weight;
        }
        rows.push(&records[begin..]);
        let rows = rows.into_iter().filter(|row| !row.is_empty());
        rows.map(|row| (row[0].0, encode(*self, row))).collect()
    }
}

/// Some records as a row: at least one.
fn encode(kind: Kind, records: &[(i64, Bytes)]) -> Vec<u8> {
    let mut out = vec![FORMAT, kind as u8];
    out.extend_from_slice(&((records.len() - 1) as u16).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    let times: Vec<i64> = records.iter().map(|(time, _)| *time).collect();
    codec::encode_integers(&times, &mut out);
    records.iter().for_each(|(_, bytes)| write_number(bytes.len() as u64, &mut out));
    records.iter().for_each(|(_, bytes)| out.extend_from_slice(bytes));
    codec::put_checksum(&mut out);
    out
}

pub(super) fn decode(expected: Kind, row: &[u8]) -> Result<Vec<(i64, Bytes)>> {
    codec::check_checksum("a row of records", row)?;
    let mut reader = Reader::new(row);
    let [format, kind, low, high, ..] = reader.fixed::<HEADER>()?;
    if format != FORMAT || kind != expected as u8 {
        let why = format!("format {FORMAT} of kind {} expected", expected as u8);
        return Err(Error::damaged("a row of records", format!("{why}, {format} of {kind} found")));
    }
    let count = usize::from(u16::from_le_bytes([low, high])) + 1;
    let times = codec::decode_integers(&mut reader, count)?;
    let mut lengths = Vec::with_capacity(count);
    for _ in 0..count {
        lengths.push(reader.count(MAX_RECORD_BYTES)?);
    }
    let mut records = Vec::with_capacity(count);
    for (time, length) in times.into_iter().zip(lengths) {
        records.push((time, Bytes::copy_from_slice(reader.take(length)?)));
    }
    match reader.is_empty() && records.is_sorted_by(|one, next| one.0 < next.0) {
        true => Ok(records),
        false => Err(reader.wrong("the end of the row, and times that ascend")),
    }
}

/// Removes what there is of a span, of all kinds.
pub(super) async fn remove(tr: &Transaction, keys: &Keys, id: Id, span: Span) -> Result<()> {
    for kind in Kind::KEPT {
        by_time::remove(&kind, (tr, keys, id), span).await?;
    }
    Ok(())
}

/// Removes all of a series.
pub(super) fn clear(tr: &Transaction, keys: &Keys, id: Id) {
    Kind::KEPT.into_iter().for_each(|kind| tr.clear_prefix(keys.records(kind, id)));
}

/// Whether a series has any, as `tr` sees it: with a conflict.
pub(super) async fn has_any(tr: &Transaction, keys: &Keys, id: Id) -> Result<bool> {
    for kind in Kind::KEPT {
        let range = RangeOptions::prefix(keys.records(kind, id)).limit(1);
        if tr.get_range(range).await?.rows.iter().next().is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
