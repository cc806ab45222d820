//! Letters: points of any series as rows of the inbox, and how they are put there.
//!
//! Whoever writes them owns nothing: transactions with points beside keys (`layer.rs`), and stores
//! that post (`post.rs`). What becomes of them is the owner's affair (`inbox.rs`).

use super::Series;
use super::keys::Keys;
use crate::codec::{self, reader::Reader, reader::write_number};
use crate::error::{Error, Result};
use crate::increment;
use crate::name::{MAX_NAME_BYTES, Name};
use crate::record::{Kind, MAX_RECORD_BYTES, Record};
use crate::value::{Column, Point};
use plinth_client::{MutationType, Transaction};
use plinth_types::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of points, and of records.
const FORMAT: u8 = 1;
const RECORDS: u8 = 2;
const HEADER: usize = 8;
/// Points of a row, at most; and bytes of names beyond which it gets no more of them. Both together
/// fit a value.
const ROW_POINTS: usize = 2048;
const ROW_NAMES: usize = 40 << 10;

/// Bytes of records and names beyond which a row gets no more of them.
const ROW_RECORDS: usize = 24 << 10;

const _: () =
    assert!(ROW_POINTS * 20 + ROW_NAMES + MAX_NAME_BYTES < plinth_types::limits::VALUE_SIZE);
const _: () = assert!(
    ROW_RECORDS + MAX_NAME_BYTES + MAX_RECORD_BYTES + 100 < plinth_types::limits::VALUE_SIZE
);

/// Tells the rows of one transaction apart, and orders them.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The names of a row, each of which stands in it once.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    places: BTreeMap<Name, i64>,
}

impl Names {
    /// The place of a name among them.
    fn place(&mut self, name: &Name) -> i64 {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let next = self.places.len() as i64;
        write_number(name.as_str().len() as u64, &mut self.bytes);
        self.bytes.extend_from_slice(name.as_str().as_bytes());
        self.places.insert(name.clone(), next);
        next
    }

    /// The beginning of a row of so many things.
    fn begin(&self, format: u8, kind: u8, count: usize) -> Vec<u8> {
        let mut out = vec![format, kind];
        out.extend_from_slice(&((count - 1) as u16).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        write_number(self.places.len() as u64, &mut out);
        out.extend_from_slice(&self.bytes);
        out
    }
}

/// Records for rows of the inbox, gathered until there is enough for one.
#[derive(Default)]
pub(super) struct RecordLetter {
    names: Names,
    which: Vec<i64>,
    times: Vec<i64>,
    kinds: Vec<u8>,
    lengths: Vec<u8>,
    bytes: Vec<u8>,
}

impl RecordLetter {
    /// Adds a record. Gives a row if that fills one.
    pub(super) fn add(&mut self, name: &Name, record: &Record) -> Option<Vec<u8>> {
        self.which.push(self.names.place(name));
        self.times.push(record.time);
        self.kinds.push(record.kind as u8);
        write_number(record.bytes.len() as u64, &mut self.lengths);
        self.bytes.extend_from_slice(&record.bytes);
        // Of each its place, its time, its kind and its length, too.
        let held = self.bytes.len() + self.names.bytes.len() + 24 * self.which.len();
        (held >= ROW_RECORDS).then(|| std::mem::take(self).encode())
    }

    /// What is left as a row; `None` if that is nothing.
    pub(super) fn rest(self) -> Option<Vec<u8>> {
        (!self.which.is_empty()).then(|| self.encode())
    }

    fn encode(self) -> Vec<u8> {
        let mut out = self.names.begin(RECORDS, 0, self.which.len());
        codec::encode_integers(&self.which, &mut out);
        codec::encode_integers(&self.times, &mut out);
        out.extend_from_slice(&self.kinds);
        out.extend_from_slice(&self.lengths);
        out.extend_from_slice(&self.bytes);
        codec::put_checksum(&mut out);
        out
    }
}

/// Points for rows of the inbox, gathered until there is enough for one.
#[derive(Default)]
pub(super) struct Letter {
    names: Names,
    which: Vec<i64>,
    times: Vec<i64>,
    values: Column,
}

impl Letter {
    /// Adds a point. Gives a row if that fills one.
    pub(super) fn add(&mut self, name: Name, point: Point) -> Option<Vec<u8>> {
        let place = self.names.place(&name);
        self.put(place, point)
    }

    /// Adds points of one series; rows that they fill come to `rows`.
    pub(super) fn add_all(&mut self, name: &Name, points: &[Point], rows: &mut Vec<Vec<u8>>) {
        let mut place = None;
        for point in points {
            let at = *place.get_or_insert_with(|| self.names.place(name));
            if let Some(row) = self.put(at, *point) {
                rows.push(row);
                place = None;
            }
        }
    }

    fn put(&mut self, place: i64, point: Point) -> Option<Vec<u8>> {
        self.which.push(place);
        self.times.push(point.time);
        self.values.push(point.value);
        (self.times.len() >= ROW_POINTS || self.names.bytes.len() >= ROW_NAMES)
            .then(|| std::mem::take(self).encode())
    }

    /// What is left as a row; `None` if that is nothing.
    pub(super) fn rest(self) -> Option<Vec<u8>> {
        (!self.times.is_empty()).then(|| self.encode())
    }

    fn encode(self) -> Vec<u8> {
        let mut out = self.names.begin(FORMAT, codec::kind(&self.values), self.times.len());
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

/// What a row has: names, and points or records with the place of the name of each.
#[derive(Default)]
pub(super) struct Opened {
    pub(super) names: Vec<Name>,
    pub(super) points: Vec<(usize, Point)>,
    pub(super) records: Vec<(usize, Record)>,
}

/// Letters that were opened, with the series of their names; or why one can't be read.
pub(super) type Letters = Vec<Result<(Opened, Vec<Result<Series>>)>>;

pub(super) fn decode(bytes: &[u8]) -> Result<Opened> {
    codec::check_checksum("a row of the inbox", bytes)?;
    let mut reader = Reader::new(bytes);
    let [format, kind, low, high, ..] = reader.fixed::<HEADER>()?;
    if format != FORMAT && format != RECORDS {
        return Err(Error::damaged(
            "a row of the inbox",
            format!("format {FORMAT} or {RECORDS} expected, {format} found"),
        ));
    }
    let count = usize::from(u16::from_le_bytes([low, high])) + 1;
    let mut opened = Opened::default();
    for _ in 0..reader.count(count)? {
        let len = reader.count(MAX_NAME_BYTES)?;
        let name =
            std::str::from_utf8(reader.take(len)?).ok().and_then(|text| Name::parse(text).ok());
        opened.names.push(name.ok_or_else(|| reader.wrong("the name of a series"))?);
    }
    let which = codec::decode_integers(&mut reader, count)?;
    let which = which.into_iter().map(|which| match usize::try_from(which) {
        Ok(which) if which < opened.names.len() => Ok(which),
        _ => Err(Error::damaged("a row of the inbox", format!("it has no name {which}"))),
    });
    let which = which.collect::<Result<Vec<usize>>>()?;
    let times = codec::decode_integers(&mut reader, count)?;
    if format == RECORDS {
        opened.records = which.into_iter().zip(records(&mut reader, times)?).collect();
    } else {
        let mut values = Column::default();
        codec::decode_column(&mut reader, kind, count, &mut values)?;
        let points = times.into_iter().zip(values.iter());
        let points = points.map(|(time, value)| Point { time, value });
        opened.points = which.into_iter().zip(points).collect();
    }
    match reader.is_empty() {
        true => Ok(opened),
        false => Err(reader.wrong("the end of the row")),
    }
}

/// The records of a row, which have these times.
fn records(reader: &mut Reader<'_>, times: Vec<i64>) -> Result<Vec<Record>> {
    let mut kinds = Vec::with_capacity(times.len());
    for number in reader.take(times.len())? {
        kinds.push(Kind::of(*number).ok_or_else(|| reader.wrong("a known kind of records"))?);
    }
    let mut lengths = Vec::with_capacity(times.len());
    for _ in &times {
        lengths.push(reader.count(MAX_RECORD_BYTES)?);
    }
    let mut records = Vec::with_capacity(times.len());
    for ((time, kind), length) in times.into_iter().zip(kinds).zip(lengths) {
        let bytes = Bytes::copy_from_slice(reader.take(length)?);
        if !increment::is_whole(kind, &bytes) {
            return Err(reader.wrong("what can be taken in"));
        }
        records.push(Record { kind, time, bytes });
    }
    Ok(records)
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
                let Opened { names, points, .. } = decode(row).unwrap();
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

    #[test]
    fn the_worst_rows_of_records_fit_a_value_and_come_back() {
        let mut random = Random::new(8);
        let (mut letter, mut sent, mut rows) = (RecordLetter::default(), Vec::new(), Vec::new());
        for at in 0..3000 {
            let long = [4, MAX_NAME_BYTES - 20][usize::from(random.below(5) == 0)];
            let name = Name::parse(&format!("m t={}{at:06}", "x".repeat(long))).unwrap();
            let most = [0, 40, MAX_RECORD_BYTES as u64][random.below(3) as usize];
            let bytes = vec![at as u8; random.below(most + 1) as usize].into();
            let record = Record { kind: Kind::Histogram, time: random.next() as i64, bytes };
            sent.push((name.clone(), record.clone()));
            rows.extend(letter.add(&name, &record));
        }
        rows.extend(letter.rest());
        let mut found = Vec::new();
        for row in &rows {
            assert!(row.len() <= plinth_types::limits::VALUE_SIZE, "{}", row.len());
            let Opened { names, records, .. } = decode(row).unwrap();
            found.extend(records.into_iter().map(|(which, one)| (names[which].clone(), one)));
            assert!(decode(&row[..row.len() / 2]).is_err());
        }
        assert!(found == sent && rows.len() > 10);
    }
}
