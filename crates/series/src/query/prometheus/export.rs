//! Series with all of their points, as lines of JSON: what VictoriaMetrics' `/api/v1/export` gives
//! and `/api/v1/import` takes.
//!
//! A line has a series and some thousand points at most, or as many as `max_rows_per_line` says, so
//! an answer is made while it is read, and holds the names of its series and one leaf. Times are
//! whole milliseconds. What JSON has no number for is `null` (NaN, and the marks of ends) or a text
//! (`"Infinity"`).

use super::super::numbers;
use super::answer::metric;
use super::source::{is_of_events, labels_of};
use super::{Failure, Parameters, failed, missing, selected, wall_clock};
use crate::query::{QueryResult, pause};
use crate::store::{Found, PointStream, SeriesStore, Share};
use crate::tree::Direction;
use crate::value::{Point, Value};

/// Text of a piece, about.
const PIECE: usize = 64 << 10;
const MILLISECOND: i64 = 1_000_000;
/// What the name of a series that was found takes, about.
const OVERHEAD: usize = 256;

/// Lines that are being made.
pub struct Export {
    store: SeriesStore,
    rest: std::vec::IntoIter<Found>,
    first: i64,
    last: i64,
    /// Points of a line, at most.
    rows: usize,
    /// The series whose points come next, as it stands in its lines.
    current: Option<(String, PointStream)>,
    /// What the names take, as long as the answer lives.
    _share: Share,
}

impl Export {
    /// Begins to export what a request names: `match[]`, `start` and `end`, both included, and
    /// `max_rows_per_line`.
    ///
    /// # Errors
    /// A status, and JSON that says what is wrong.
    pub async fn begin(store: &SeriesStore, encoded: &[&[u8]]) -> Result<Self, (u16, String)> {
        let parameters = Parameters::of(encoded, wall_clock(store));
        Self::of(store, &parameters).await.map_err(failed)
    }

    async fn of(store: &SeriesStore, parameters: &Parameters) -> Result<Self, Failure> {
        let first = parameters.bound("start")?.unwrap_or(i64::MIN);
        let last = parameters.bound("end")?.unwrap_or(i64::MAX);
        let rows = rows_of(parameters)?;
        let all = selected(store, parameters).await?.ok_or_else(|| missing("match[]"))?;
        let mut share = Share::new(store);
        share.hold(all.len() * OVERHEAD).map_err(Failure::Source)?;
        let rest = all.into_values().filter(|found| !is_of_events(found.name.metric()));
        let rest = rest.collect::<Vec<_>>().into_iter();
        Ok(Self { store: store.clone(), rest, first, last, rows, current: None, _share: share })
    }

    /// The next lines; `None` at the end.
    ///
    /// # Errors
    /// Those of reading; nothing comes behind one.
    pub async fn next(&mut self) -> QueryResult<Option<Vec<u8>>> {
        let mut text = Vec::new();
        while text.len() < PIECE {
            let (labels, points) = match &mut self.current {
                Some(current) => current,
                None => match self.rest.next() {
                    Some(found) => self.current.insert(self.read(&found).await?),
                    None => break,
                },
            };
            match points.next().await? {
                Some(points) => {
                    let points: Vec<Point> = points.iter().collect();
                    points.chunks(self.rows).for_each(|some| line(labels, some, &mut text));
                }
                None => self.current = None,
            }
            pause().await;
        }
        Ok((!text.is_empty()).then_some(text))
    }

    async fn read(&self, found: &Found) -> QueryResult<(String, PointStream)> {
        let labels = metric(&labels_of(&found.name)).to_string();
        let series = self.store.reading(found);
        Ok((labels, series.scan(self.first..=self.last, Direction::Forward).await?))
    }
}

/// Points of a line, if it is said how many; 0 is as many as there are.
fn rows_of(parameters: &Parameters) -> Result<usize, Failure> {
    let Some(text) = parameters.get("max_rows_per_line") else { return Ok(usize::MAX) };
    match text.parse::<usize>() {
        Ok(0) => Ok(usize::MAX),
        Ok(rows) => Ok(rows),
        Err(_) => Err(Failure::Asked(format!("max_rows_per_line={text} is no number"))),
    }
}

/// Appends a series and some of its points.
fn line(labels: &str, points: &[Point], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"metric\":");
    out.extend_from_slice(labels.as_bytes());
    out.extend_from_slice(b",\"values\":");
    list(points.iter().map(|point| point.value), out, |value, out| match value {
        Value::Float(float) if float.is_nan() => out.extend_from_slice(b"null"),
        Value::Float(f64::INFINITY) => out.extend_from_slice(b"\"Infinity\""),
        Value::Float(f64::NEG_INFINITY) => out.extend_from_slice(b"\"-Infinity\""),
        Value::Float(float) => numbers::write_float(float, out),
        Value::Integer(integer) => numbers::write_integer(integer, out),
    });
    out.extend_from_slice(b",\"timestamps\":");
    list(points.iter().map(|point| point.time.div_euclid(MILLISECOND)), out, |time, out| {
        out.extend_from_slice(time.to_string().as_bytes());
    });
    out.extend_from_slice(b"}\n");
}

fn list<T>(
    items: impl Iterator<Item = T>,
    out: &mut Vec<u8>,
    mut write: impl FnMut(T, &mut Vec<u8>),
) {
    for (place, item) in items.enumerate() {
        out.push(if place == 0 { b'[' } else { b',' });
        write(item, out);
    }
    out.push(b']');
}
