//! The tail: what was appended and is in no leaf yet, a value for each few thousand points, whatever series they belong to.
//!
//! A batch keeps the order in which points of one series came, so that the last of a duplicate stays the last when it is read again.

use super::keys::Id;
use crate::codec::{self, reader::Reader};
use crate::error::{Error, Result};
use crate::value::{Column, Point};

const FORMAT: u8 = 1;
const HEADER: usize = 8;

/// Points in one batch, at most: so that the worst ones fit a value.
pub(crate) const BATCH_POINTS: usize = 4096;

/// The points as a batch: between 1 and [`BATCH_POINTS`] of them, those of a series in the order in which they came.
pub(crate) fn encode(points: &[(Id, Point)]) -> Vec<u8> {
    assert!((1..=BATCH_POINTS).contains(&points.len()), "a batch holds points");
    let values: Column = points.iter().map(|(_, point)| point.value).collect();
    let mut out = vec![FORMAT, codec::kind(&values)];
    out.extend_from_slice(&((points.len() - 1) as u16).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    codec::encode_integers(&points.iter().map(|(id, _)| *id as i64).collect::<Vec<_>>(), &mut out);
    codec::encode_integers(&points.iter().map(|(_, point)| point.time).collect::<Vec<_>>(), &mut out);
    codec::encode_column(&values, &mut out);
    codec::put_checksum(&mut out);
    out
}

/// The points of a batch.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<(Id, Point)>> {
    codec::check_checksum("a batch of the tail", bytes)?;
    let mut reader = Reader::new(bytes);
    let [format, kind, low, high, ..] = reader.fixed::<HEADER>()?;
    if format != FORMAT {
        return Err(Error::damaged(
            "a batch of the tail",
            format!("format {FORMAT} expected, {format} found"),
        ));
    }
    let count = usize::from(u16::from_le_bytes([low, high])) + 1;
    let ids = codec::decode_integers(&mut reader, count)?;
    let times = codec::decode_integers(&mut reader, count)?;
    let mut values = Column::default();
    codec::decode_column(&mut reader, kind, count, &mut values)?;
    if !reader.is_empty() {
        return Err(reader.wrong("the end of the batch"));
    }
    let points = ids.into_iter().zip(times).zip(values.iter());
    Ok(points.map(|((id, time), value)| (id as Id, Point { time, value })).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;
    use crate::workload::Random;

    #[test]
    fn the_worst_batch_fits_a_value_and_comes_back() {
        let mut random = Random::new(2);
        let points: Vec<(Id, Point)> = (0..BATCH_POINTS)
            .map(|_| {
                let value = match random.below(2) {
                    0 => Value::Integer(random.next() as i64),
                    _ => Value::Float(f64::from_bits(random.next())),
                };
                (random.below(1 << 40), Point { time: random.next() as i64, value })
            })
            .collect();
        let bytes = encode(&points);
        assert!(bytes.len() < plinth_types::limits::VALUE_SIZE, "{}", bytes.len());
        assert_eq!(decode(&bytes).unwrap(), points);
        for at in 0..bytes.len() / 50 {
            let mut damaged = bytes.clone();
            damaged[at * 50] ^= 4;
            assert!(decode(&damaged).is_err());
        }
    }
}
