//! The inbox: points that transactions write beside keys and values, for the owner of the series to take in.
//!
//! ```text
//!   transaction: tr.set(key, value), points --commit--> row of the inbox, by versionstamp: in the order of the commits
//!                                                         |
//!   owner: on a read, and every now and then: --> memory of the series --one step--> batch of the tail, leaf or late points
//!                                                                        last step--> the row goes
//! ```
//!
//! Who writes owns nothing and reads nothing that it could conflict about, so such transactions conflict with nobody because of their points. Beside the rows
//! stands their size, which is added to and taken from in the same commits: a reader sees by it whether anything waits, and a writer that there is
//! room; if not, it is told to try again later, until the owner has taken something in. A row goes in the last step of
//! the flush that saves its points. A crash between two steps leaves points that are in the tree and in the inbox; they are taken in again, to the same
//! end, because whoever opens the series takes the inbox in before it writes or deletes anything else. Points that a reader of the owner's
//! has to see were committed before it began: it looks into the inbox, and has it taken in if there is anything.

use super::keys::{Id, Keys};
use super::{Place, Shared, lock, names, nodes, retry};
use crate::codec::{self, reader::Reader, reader::write_number};
use crate::error::{Error, Result};
use crate::name::{MAX_NAME_BYTES, Name};
use crate::value::{Column, Point};
use plinth_client::{Get, MutationType, RangeOptions, StreamingMode, Transaction};
use plinth_types::{Bytes, KeyValue, key_after};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

const FORMAT: u8 = 1;
const HEADER: usize = 8;
/// Points of a row, at most; and bytes of names beyond which it gets no more of them. Both together fit a value.
const ROW_POINTS: usize = 2048;
const ROW_NAMES: usize = 40 << 10;
/// Rows that are taken in at a time.
const ROWS: i32 = 64;

const _: () = assert!(ROW_POINTS * 20 + ROW_NAMES + MAX_NAME_BYTES < plinth_types::limits::VALUE_SIZE);

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
        let next = self.places.len() as i64;
        let place = match self.places.get(&name) {
            Some(place) => *place,
            None => {
                write_number(name.as_str().len() as u64, &mut self.names);
                self.names.extend_from_slice(name.as_str().as_bytes());
                self.places.insert(name, next);
                next
            }
        };
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

/// Writes a row in a transaction.
pub(super) fn put(tr: &Transaction, keys: &Keys, row: &[u8]) {
    tr.set_versionstamped_key(keys.inbox_row(NEXT.fetch_add(1, Ordering::Relaxed)), row);
    grow(tr, keys, row.len() as i64);
}

fn grow(tr: &Transaction, keys: &Keys, bytes: i64) {
    tr.atomic_op(keys.inbox_size(), bytes.to_le_bytes(), MutationType::Add);
}

/// How many bytes wait, as the row says that has it.
fn size(row: Option<&Bytes>) -> i64 {
    row.and_then(|row| row[..].try_into().ok()).map_or(0, i64::from_le_bytes)
}

/// Points that were written in a transaction: await it, or call [`Appended::wait`], to know that the inbox has room for them.
#[must_use = "the points may be too many for the inbox: await it, or `wait()`"]
pub struct Appended(Result<(Get, i64)>);

impl Appended {
    /// Asks how much waits in the inbox, of which there may be `most` bytes. To be called before anything is put there.
    pub(super) fn new(tr: &Transaction, keys: &Keys, most: usize) -> Self {
        Self(Ok((tr.snapshot().get(keys.inbox_size()), i64::try_from(most).unwrap_or(i64::MAX))))
    }

    pub(super) fn refused(error: Error) -> Self {
        Self(Err(error))
    }

    /// The same for threads that may block.
    ///
    /// # Errors
    /// As those of the call that gave it.
    pub fn wait(self) -> Result<()> {
        let (get, most) = self.0?;
        Self::judge(get.wait()?, most)
    }

    fn judge(row: Option<Bytes>, most: i64) -> Result<()> {
        let waiting = size(row.as_ref());
        if waiting < most {
            return Ok(());
        }
        let detail = format!(
            "{waiting} bytes of points wait in the inbox of the series, {most} may: their owner has to take them in"
        );
        Err(plinth_types::Error::process_behind().with_detail(detail).into())
    }
}

impl Future for Appended {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match &mut self.0 {
            Ok((get, most)) => {
                let row = ready!(Pin::new(get).poll(context))?;
                Poll::Ready(Self::judge(row, *most))
            }
            Err(error) => Poll::Ready(Err(error.clone())),
        }
    }
}

impl std::fmt::Debug for Appended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Appended")
    }
}

/// The names of a row, and its points with the place of the name of each.
type Opened = (Vec<Name>, Vec<(usize, Point)>);

fn decode(bytes: &[u8]) -> Result<Opened> {
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
        let name = std::str::from_utf8(reader.take(len)?).ok().and_then(|text| Name::parse(text).ok());
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
            _ => return Err(Error::damaged("a row of the inbox", format!("it has no name {which}"))),
        }
    }
    Ok((names, points))
}

/// Whether anything waits, as `tr` sees it.
pub(super) async fn has_any(tr: &Transaction, keys: &Keys) -> plinth_types::Result<bool> {
    Ok(size(tr.snapshot().get(keys.inbox_size()).await?.as_ref()) != 0)
}

/// The key of the last row that there is.
pub(super) async fn last(shared: &Shared) -> Result<Option<Bytes>> {
    let range = &RangeOptions::prefix(shared.keys.inbox()).limit(1).reverse(true);
    let first = |tr: Transaction| async move { tr.snapshot().get_range(range.clone()).await };
    let rows = retry::transact(&shared.database, first).await?.rows;
    Ok(rows.iter().next().map(|(key, _)| Bytes::copy_from_slice(key)))
}

/// The first rows, some at a time.
async fn rows(shared: &Shared) -> Result<Vec<KeyValue>> {
    let range = RangeOptions::prefix(shared.keys.inbox()).limit(ROWS).mode(StreamingMode::WantAll);
    let range = &range;
    let rows = |tr: Transaction| async move { tr.snapshot().range(range.clone()).collect().await };
    retry::transact(&shared.database, rows).await
}

/// The rows that a flush takes in: they go in its last step.
pub(super) struct Taken {
    /// The key of the first.
    first: Bytes,
    /// A key behind the last.
    end: Bytes,
    /// What all of them have.
    bytes: i64,
}

impl Taken {
    /// Whether the row of this key is among them, or before them.
    pub(super) fn reaches(&self, key: &[u8]) -> bool {
        self.end[..] > *key
    }

    /// Removes them. Doing so twice is the same as once: what is gone already is not taken from the size again, and since it is read with a conflict, a
    /// try whose answer was lost can't be under way still.
    pub(super) async fn remove(&self, tr: &Transaction, keys: &Keys) -> plinth_types::Result<()> {
        if tr.get(&self.first).await?.is_some() {
            tr.clear_range(&self.first, &self.end);
            grow(tr, keys, -self.bytes);
        }
        Ok(())
    }
}

/// Puts the next rows' points into memory, for whoever has the turn and saves them now. `None` if there are no more.
pub(super) async fn take_some(shared: &Arc<Shared>) -> Result<Option<Taken>> {
    let rows = rows(shared).await?;
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(None) };
    // Stamps ascend with the versions of commits, and all of them up to the version of the read were there: none can come in between.
    let bytes = rows.iter().map(|row| row.value.len() as i64).sum();
    let taken = Taken { first: first.key.clone(), end: key_after(&last.key), bytes };
    let mut letters = Vec::with_capacity(rows.len());
    for row in &rows {
        let (names, points) = decode(&row.value)?;
        letters.push((names::open(shared, &names).await?, points));
    }
    for (series, points) in letters {
        for (which, point) in points {
            let cell = &series[which].cell;
            let mut state = lock(&cell.state);
            let place = state.take(point);
            if place == Place::More {
                shared.open_points.fetch_add(1, Ordering::Relaxed);
            }
            match place {
                Place::Late => shared.note(cell, &mut state, &[], 1),
                _ => shared.note(cell, &mut state, &[point], 0),
            }
        }
    }
    Ok(Some(taken))
}

/// All rows, for a store that only reads.
pub(super) async fn all_rows(tr: &Transaction, shared: &Shared) -> plinth_types::Result<Vec<KeyValue>> {
    nodes::rows(tr, &shared.keys.inbox()).await
}

/// Puts the points of rows into the memory of a store that only reads.
pub(super) async fn look(shared: &Arc<Shared>, rows: &[KeyValue]) -> Result<()> {
    let mut unknown = Id::MAX;
    for row in rows {
        let (names, points) = decode(&row.value)?;
        let mut cells = Vec::with_capacity(names.len());
        for name in &names {
            cells.push(names::known(shared, name, &mut unknown).await?);
        }
        for (which, point) in points {
            if lock(&cells[which].state).take(point) == Place::More {
                shared.open_points.fetch_add(1, Ordering::Relaxed);
            }
        }
        shared.check_room()?;
    }
    Ok(())
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
                found.extend(points.into_iter().map(|(which, point)| (names[which].clone(), point)));
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
