//! Leaves: points as bytes, as few as their information allows, and back at hundreds of millions a
//! second.
//!
//! ```text
//!   0        1        2             4            8
//!   +--------+--------+-------------+------------+---------+----------+
//!   | format | values | points - 1  | checksum   | times   | values   |
//!   +--------+--------+-------------+------------+---------+----------+
//!                                                 integers   integers, floats, or which is which and both
//! ```
//!
//! Everything ends as a sequence of integers (`integers.rs`): times as they are, floats by
//! `floats.rs`. The checksum covers all other bytes, so that damage is an error and never a wrong
//! point; decoding is safe without it too. The bytes are drawn in `docs/format/series.md`.

mod bits;
mod floats;
mod integers;
pub(crate) mod reader;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::value::{Column, Points, Value};
use reader::Reader;

/// The format of leaves that is written.
const FORMAT: u8 = 1;
const HEADER: usize = 8;
const CHECKSUM: std::ops::Range<usize> = 4..8;

/// Points that one leaf can hold.
pub const MAX_LEAF_POINTS: usize = 1 << 16;

const FLOATS: u8 = 1;
const INTEGERS: u8 = 2;
const MIXED: u8 = 3;

/// The points as a leaf: at least one, at most [`MAX_LEAF_POINTS`], as many values as times.
pub fn encode(points: &Points) -> Vec<u8> {
    let count = points.len();
    assert!((1..=MAX_LEAF_POINTS).contains(&count), "a leaf holds 1 to 65536 points, not {count}");
    assert_eq!(points.values.len(), count, "a point has a time and a value");
    let mut out = Vec::with_capacity(HEADER + 64 + count * 4);
    out.extend_from_slice(&[FORMAT, kind(&points.values)]);
    out.extend_from_slice(&((count - 1) as u16).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    integers::encode(&points.times, &mut out);
    encode_column(&points.values, &mut out);
    put_checksum(&mut out);
    out
}

/// The points of a leaf, in place of those in `points`, whose memory is used again.
///
/// # Errors
/// [`Error::Damaged`] for bytes that [`encode`] did not make.
pub fn decode(bytes: &[u8], points: &mut Points) -> Result<()> {
    check_checksum("a leaf", bytes)?;
    let mut reader = Reader::new(bytes);
    let [format, kind, low, high, ..] = reader.fixed::<HEADER>()?;
    if format != FORMAT {
        return Err(Error::damaged("a leaf", format!("format {FORMAT} expected, {format} found")));
    }
    let count = usize::from(u16::from_le_bytes([low, high])) + 1;
    integers::decode(&mut reader, count, &mut points.times)?;
    decode_column(&mut reader, kind, count, &mut points.values)?;
    if !reader.is_empty() {
        return Err(reader.wrong("the end of the leaf"));
    }
    Ok(())
}

/// Puts the checksum of all other bytes into bytes 4 to 8, where leaves and nodes have it.
pub(crate) fn put_checksum(bytes: &mut [u8]) {
    let checksum = checksum(bytes);
    bytes[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}

/// Whether [`put_checksum`] would put what is there.
pub(crate) fn check_checksum(what: &str, bytes: &[u8]) -> Result<()> {
    let Some(expected) =
        bytes.get(CHECKSUM).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes)
    else {
        return Err(Error::damaged(
            what,
            format!("{HEADER} bytes or more expected, {} found", bytes.len()),
        ));
    };
    let found = checksum(bytes);
    if expected != found {
        return Err(Error::damaged(
            what,
            format!("checksum {expected:08x} expected, {found:08x} found"),
        ));
    }
    Ok(())
}

fn checksum(bytes: &[u8]) -> u32 {
    let (header, body) = bytes.split_at(HEADER);
    crc32c::crc32c_append(crc32c::crc32c(&header[..CHECKSUM.start]), body)
}

/// The byte that says what a column holds.
pub(crate) fn kind(column: &Column) -> u8 {
    match column {
        Column::Floats(_) => FLOATS,
        Column::Integers(_) => INTEGERS,
        Column::Mixed(_) => MIXED,
    }
}

/// Appends integers; the reader has to know how many.
pub(crate) fn encode_integers(numbers: &[i64], out: &mut Vec<u8>) {
    integers::encode(numbers, out);
}

/// Reads what [`encode_integers`] wrote.
pub(crate) fn decode_integers(reader: &mut Reader<'_>, count: usize) -> Result<Vec<i64>> {
    let mut numbers = Vec::new();
    integers::decode(reader, count, &mut numbers)?;
    Ok(numbers)
}

/// Reads what [`encode_integers`] wrote of a single one.
pub(crate) fn decode_integer(reader: &mut Reader<'_>) -> Result<i64> {
    integers::decode_one(reader)
}

/// Reads the kind of a column and the single value that [`encode_column`] wrote of it.
pub(crate) fn decode_value(reader: &mut Reader<'_>) -> Result<Value> {
    match reader.byte()? {
        FLOATS => Ok(Value::Float(floats::decode_one(reader)?)),
        INTEGERS => Ok(Value::Integer(integers::decode_one(reader)?)),
        MIXED => {
            let mixed = decode_mixed(reader, 1)?;
            mixed.first().copied().ok_or_else(|| reader.wrong("a value"))
        }
        _ => Err(reader.wrong("a known kind of values")),
    }
}

/// Appends values; the reader has to know their [`kind`] and how many they are.
pub(crate) fn encode_column(column: &Column, out: &mut Vec<u8>) {
    match column {
        Column::Floats(floats) => floats::encode(floats, out),
        Column::Integers(numbers) => integers::encode(numbers, out),
        Column::Mixed(values) => {
            let mut numbers = Vec::new();
            let mut floats = Vec::new();
            let mut which = vec![0_u8; values.len().div_ceil(8)];
            for (index, value) in values.iter().enumerate() {
                match value {
                    Value::Integer(number) => numbers.push(*number),
                    Value::Float(float) => {
                        which[index / 8] |= 1 << (index % 8);
                        floats.push(*float);
                    }
                }
            }
            out.extend_from_slice(&which);
            encode_integers(&numbers, out);
            floats::encode(&floats, out);
        }
    }
}

/// Reads what [`encode_column`] wrote, in place of what is in `column`.
pub(crate) fn decode_column(
    reader: &mut Reader<'_>,
    kind: u8,
    count: usize,
    column: &mut Column,
) -> Result<()> {
    match kind {
        FLOATS => {
            let mut decoded = if let Column::Floats(floats) = column {
                std::mem::take(floats)
            } else {
                Vec::new()
            };
            floats::decode(reader, count, &mut decoded)?;
            *column = Column::Floats(decoded);
        }
        INTEGERS => {
            let mut decoded = if let Column::Integers(numbers) = column {
                std::mem::take(numbers)
            } else {
                Vec::new()
            };
            integers::decode(reader, count, &mut decoded)?;
            *column = Column::Integers(decoded);
        }
        MIXED => *column = Column::Mixed(decode_mixed(reader, count)?),
        _ => return Err(reader.wrong("a known kind of values")),
    }
    Ok(())
}

fn decode_mixed(reader: &mut Reader<'_>, count: usize) -> Result<Vec<Value>> {
    let which = reader.take(count.div_ceil(8))?;
    let is_float = |index: usize| which[index / 8] >> (index % 8) & 1 == 1;
    let float_count = (0..count).filter(|index| is_float(*index)).count();
    let numbers = decode_integers(reader, count - float_count)?;
    let mut floats = Vec::new();
    floats::decode(reader, float_count, &mut floats)?;
    let (mut numbers, mut floats) = (numbers.into_iter(), floats.into_iter());
    let mut values = Vec::with_capacity(count);
    for index in 0..count {
        let value = if is_float(index) {
            floats.next().map(Value::Float)
        } else {
            numbers.next().map(Value::Integer)
        };
        values.extend(value);
    }
    Ok(values)
}
