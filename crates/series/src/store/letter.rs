//! Letters: points of any series as rows of the inbox, and how they are put there.
//!
//! Whoever writes them owns nothing: transactions with points beside keys (`layer.rs`), and stores
//! that post (`post.rs`). What becomes of them is the owner's affair (`inbox.rs`).

use super::keys::Keys;
use crate::codec::{self, reader::Reader, reader::write_number};
use crate::error::{Error, Result};
use crate::name::{MAX_NAME_BYTES, Name};
use crate::value::{Column, Point};
use plinth_client::{MutationType, Transaction};
use plinth_types::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

const FORMAT: u8 = 1;
const HEADER: usize = 8;
/// Points of a row, at most; and bytes of names beyond which it gets no more of them. Both together
/// fit a value.
const ROW_POINTS: usize = 2048;
const ROW_NAMES: usize = 40 << 10;

const _: () =
    assert!(ROW_POINTS * 20 + ROW_NAMES + MAX_NAME_BYTES < plinth_types::limits::VALUE_SIZE);

/// Tells the rows of one transaction apart, and orders them.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Points for rows of the inbox, gathered until there is enough for one.
#[derive(Default)]
pub(super) struct Letter {
    names: Vec<u8>,
    places: BTreeMap<Name, i64>,
    which: Vec<i64>,
    times: Vec<i64>,
    values: Column,
}

impl Letter {
    /// Adds a point. Gives a row if that fills one.
    pub(super) fn add(&mut self, name: Name, point: Point) -> Option<Vec<u8>> {
        let place = self.place(name);
        self.put(place, point)
    }

    /// Adds points of one series; rows that they fill come to `rows`.
    pub(super) fn add_all(&mut self, name: &Name, points: &[Point], rows: &mut Vec<Vec<u8>>) {
        let mut place = None;
        for point in points {
            let at = *place.get_or_insert_with(|| self.place(name.clone()));
            if let Some(row) = self.put(at, *point) {
                rows.push(row);
                place = None;
            }
        }
    }

    /// The place of a name among those of the row.
    fn place(&mut self, name: Name) -> i64 {
        let next = self.places.len() as i64;
        match self.places.get(&name) {
            Some(place) => *place,
            None => {
                write_number(name.as_str().len() as u64, &mut self.names);
                self.names.extend_from_slice(name.as_str().as_bytes());
                self.places.insert(name, next);
                next
            }
        }
    }

    fn put(&mut self, place: i64, point: Point) -> Option<Vec<u8>> {
        self.which.push(place);
        self.times.push(point.time);
        self.values.push(point.value);
        (self.times.len() >= ROW_POINTS || self.names.len() >= ROW_NAMES)
            .then(|| std::mem::take(self).encode())
    }

    /// What is left as a row; `None` if that is nothing.
    pub(super) fn rest(self) -> Option<Vec<u8>> {
        (!self.times.is_empty()).then(|| self.encode())
    }

    fn encode(self) -> Vec<u8> {
        let mut out = vec![FORMAT, codec::kind(&self.values)];
        out.extend_from_slice(&((self.times.len() - 1) as u16).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        write_number(self.places.len() as u64, &mut out);
        out.extend_from_slice(&self.names);
        codec::encode_integers(&self.which, &mut out);
        codec::encode_integers(&self.times, &mut out);
        codec::encode_column(&self.values, &mut out);
        codec::put_checksum(&mut out);
        out
    }
}

/// The next of the numbers that order the rows of a transaction.
pub(super) fn next() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Writes a row in a transaction.
pub(super) fn put(tr: &Transaction, keys: &Keys, row: &[u8]) {
    tr.set_versionstamped_key(keys.inbox_row(next()), row);
    grow(tr, keys, row.len() as i64);
}

pub(super) fn grow(tr: &Transaction, keys: &Keys, bytes: i64) {
    tr.atomic_op(keys.inbox_size(), bytes.to_le_bytes(), MutationType::Add);
}

/// How many bytes wait, as the row says that has it.
pub(super) fn size(row: Option<&Bytes>) -> i64 {
    row.and_then(|row| row[..].try_into().ok()).map_or(0, i64::from_le_bytes)
}

/// Whether an inbox, of which there may be `most` bytes, has room for more than waits there.
pub(super) fn judge(row: Option<&Bytes>, most: usize) -> Result<()> {
    let waiting = size(row);
    if waiting < i64::try_from(most).unwrap_or(i64::MAX) {
        return Ok(());
    }
    let detail = format!(
        "{waiting} bytes of points wait in the inbox of the series, {most} may: their owner has to take them in"
    );
    Err(plinth_types::Error::process_behind().with_detail(detail).into())
}

/// The names of a row, and its points with the place of the name of each.
pub(super) type Opened = (Vec<Name>, Vec<(usize, Point)>);

pub(super) fn decode(bytes: &[u8]) -> Result<Opened> {
    codec::check_checksum("a row of the inbox", bytes)?;
    let mut reader = Reader::new(bytes);
    let [format, kind, low, high, ..] = reader.fixed::<HEADER>()?;
    if format != FORMAT {
        return Err(Error::damaged(
            "a row of the inbox",
            format!("format {FORMAT} expected, {format} found"),
        ));
    }
    let count = usize::from(u16::from_le_bytes([low, high])) + 1;
    let mut names = Vec::new();
    for _ in 0..reader.count(count)? {
        let len = reader.count(MAX_NAME_BYTES)?;
        let name =
            std::str::from_utf8(reader.take(len)?).ok().and_then(|text| Name::parse(text).ok());
        names.push(name.ok_or_else(|| reader.wrong("the name of a series"))?);
    }
    let which = codec::decode_integers(&mut reader, count)?;
    let times = codec::decode_integers(&mut reader, count)?;
    let mut values = Column::default();
    codec::decode_column(&mut reader, kind, count, &mut values)?;
    if !reader.is_empty() {
        return Err(reader.wrong("the end of the row"));
    }
    let mut points = Vec::with_capacity(count);
    for ((which, time), value) in which.into_iter().zip(times).zip(values.iter()) {
        match usize::try_from(which) {
            Ok(which) if which < names.len() => points.push((which, Point { time, value })),
            _ => {
                return Err(Error::damaged(
                    "a row of the inbox",
                    format!("it has no name {which}"),
                ));
            }
        }
    }
    Ok((names, points))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;
    use crate::workload::Random;

    #[test]
    fn the_worst_rows_fit_a_value_and_come_back() {
        let mut random = Random::new(7);
        for long in [4, MAX_NAME_BYTES - 20] {
            let mut letter = Letter::default();
            let (mut sent, mut rows) = (Vec::new(), Vec::new());
            for at in 0..5000 {
                let value = match random.below(2) {
                    0 => Value::Integer(random.next() as i64),
                    _ => Value::Float(f64::from_bits(random.next())),
                };
                let name = Name::parse(&format!("m t={}{at:06}", "x".repeat(long))).unwrap();
                let point = Point { time: random.next() as i64, value };
                sent.push((name.clone(), point));
                rows.extend(letter.add(name, point));
            }
            rows.extend(letter.rest());
            let mut found = Vec::new();
            for row in &rows {
                assert!(row.len() <= plinth_types::limits::VALUE_SIZE, "{}", row.len());
                let (names, points) = decode(row).unwrap();
                found
                    .extend(points.into_iter().map(|(which, point)| (names[which].clone(), point)));
                for at in 0..row.len() / 200 {
                    let mut damaged = row.clone();
                    damaged[at * 200] ^= 4;
                    assert!(decode(&damaged).is_err());
                    assert!(decode(&row[..at * 200]).is_err());
                }
            }
            assert_eq!(found, sent);
        }
    }
}
