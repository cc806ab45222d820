//! The tail: what was appended and is in no leaf yet, a value for each few thousand points,
//! whatever series they belong to.
//!
//! A batch keeps the order in which points of one series came, so that the last of a duplicate
//! stays the last when it is read again.

use super::keys::Id;
use crate::codec::{
    self,
    reader::{Reader, write_number},
};
use crate::error::{Error, Result};
use crate::value::{Column, Point};

const FORMAT: u8 = 2;
/// As it was before: the series of each point, whichever came before it.
const FORMAT_WITHOUT_RUNS: u8 = 1;
const HEADER: usize = 8;

/// Points in one batch, at most: so that the worst ones fit a value.
pub(crate) const BATCH_POINTS: usize = 4096;

/// The points as a batch: between 1 and [`BATCH_POINTS`] of them, those of a series in the order in
/// which they came.
pub(crate) fn encode(points: &[(Id, Point)]) -> Vec<u8> {
    assert!((1..=BATCH_POINTS).contains(&points.len()), "a batch holds points");
    let values: Column = points.iter().map(|(_, point)| point.value).collect();
    let mut out = vec![FORMAT, codec::kind(&values)];
    out.extend_from_slice(&((points.len() - 1) as u16).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    let runs = || points.chunk_by(|(a, _), (b, _)| a == b);
    let (ids, lengths): (Vec<i64>, Vec<i64>) =
        runs().map(|run| (run[0].0 as i64, run.len() as i64)).unzip();
    write_number(ids.len() as u64, &mut out);
    codec::encode_integers(&ids, &mut out);
    codec::encode_integers(&lengths, &mut out);
    codec::encode_integers(
        &points.iter().map(|(_, point)| point.time).collect::<Vec<_>>(),
        &mut out,
    );
    codec::encode_column(&values, &mut out);
    codec::put_checksum(&mut out);
    out
}

/// The points of a batch, each with its series.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<(Id, Point)>> {
    let mut points = Vec::new();
    let runs = decode_into(bytes, &mut points)?;
    let ids = runs.into_iter().flat_map(|(id, length)| std::iter::repeat_n(id, length));
    Ok(ids.zip(points).collect())
}

/// Appends the points of a batch; gives the series of those that stand next to each other, and how
/// many they are.
pub(crate) fn decode_into(bytes: &[u8], points: &mut Vec<Point>) -> Result<Vec<(Id, usize)>> {
    codec::check_checksum("a batch of the tail", bytes)?;
    let mut reader = Reader::new(bytes);
    let [format, kind, low, high, ..] = reader.fixed::<HEADER>()?;
    let count = usize::from(u16::from_le_bytes([low, high])) + 1;
    let runs = match format {
        FORMAT => decode_runs(&mut reader, count)?,
        FORMAT_WITHOUT_RUNS => {
            let ids = codec::decode_integers(&mut reader, count)?;
            ids.into_iter().map(|id| (id as Id, 1)).collect()
        }
        _ => {
            let why = format!("format {FORMAT_WITHOUT_RUNS} or {FORMAT} expected, {format} found");
            return Err(Error::damaged("a batch of the tail", why));
        }
    };
    let times = codec::decode_integers(&mut reader, count)?;
    let mut values = Column::default();
    codec::decode_column(&mut reader, kind, count, &mut values)?;
    if !reader.is_empty() {
        return Err(reader.wrong("the end of the batch"));
    }
    values.with_times(&times, points);
    Ok(runs)
}

/// The series of the points, and how many each has.
fn decode_runs(reader: &mut Reader<'_>, count: usize) -> Result<Vec<(Id, usize)>> {
    let runs = reader.count(count)?;
    let ids = codec::decode_integers(reader, runs)?;
    let lengths = codec::decode_integers(reader, runs)?;
    let (mut all, mut points) = (Vec::with_capacity(runs), 0);
    for (id, length) in ids.into_iter().zip(lengths) {
        match usize::try_from(length) {
            Ok(length) if (1..=count - points).contains(&length) => {
                all.push((id as Id, length));
                points += length;
            }
            _ => {
                return Err(
                    reader.wrong("a run of one point or more, and no more points than there are")
                );
            }
        }
    }
    if points == count { Ok(all) } else { Err(reader.wrong("runs of as many points as there are")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;
    use crate::workload::Random;

    #[test]
    fn a_batch_without_runs_is_read_too() {
        let points: Vec<(Id, Point)> = (0..300)
            .map(|i| (i % 3, Point { time: i as i64, value: Value::Integer(i as i64) }))
            .collect();
        let mut bytes = vec![FORMAT_WITHOUT_RUNS, codec::kind(&Column::Integers(Vec::new()))];
        bytes.extend_from_slice(&299_u16.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let numbers: Vec<i64> = (0..300).collect();
        codec::encode_integers(&numbers.iter().map(|i| i % 3).collect::<Vec<_>>(), &mut bytes);
        codec::encode_integers(&numbers, &mut bytes);
        codec::encode_column(&Column::Integers(numbers), &mut bytes);
        codec::put_checksum(&mut bytes);
        assert_eq!(decode(&bytes).unwrap(), points);
    }

    #[test]
    fn runs_that_are_not_those_of_the_points_are_refused() {
        for lengths in [&[2, 1][..], &[2, 3], &[4, 0], &[5, -1], &[i64::MAX, 4]] {
            let mut bytes =
                vec![FORMAT, codec::kind(&Column::Integers(Vec::new())), 3, 0, 0, 0, 0, 0];
            write_number(lengths.len() as u64, &mut bytes);
            codec::encode_integers(&[7, 8], &mut bytes);
            codec::encode_integers(lengths, &mut bytes);
            codec::encode_integers(&[1, 2, 3, 4], &mut bytes);
            codec::encode_column(&Column::Integers(vec![1, 2, 3, 4]), &mut bytes);
            codec::put_checksum(&mut bytes);
            assert!(decode(&bytes).is_err(), "{lengths:?}");
        }
    }

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
