//! Queries in Akumuli's language: from JSON to rows of text, a piece at a time.
//!
//! ```text
//!   JSON --> Query --> Plan: which series, which line of the answer each belongs to
//!                        |
//!   cursors, one a series: values | summaries of buckets | texts        cursor.rs
//!                        |  by time, or line after line                 merge.rs
//!   rows: line, time, cells -> filter -> functions -> offset, limit     apply.rs
//!                        |
//!   text: RESP or CSV; or a stream of Arrow's, if the feature is there  output.rs
//! ```
//!
//! Nothing is read before it is asked for: [`Answer::next`] reads on until it has a piece of text,
//! and whoever drops the answer has stopped the work. What an answer holds is bounded by
//! [`QueryLimits`], whatever the query and the data, and what all of them hold by
//! [`crate::Settings::query_bytes`]. Points that are written while it runs may be in it or not.

mod apply;
mod cursor;
mod error;
mod expression;
mod filter;
mod held;
mod json;
mod member;
mod merge;
mod numbers;
mod opentsdb;
mod output;
mod parse;
mod plan;
mod prometheus;
mod range;
mod remarks;
mod source;

pub use apply::FUNCTION_NAMES;
pub use error::{QueryError, QueryResult};
pub use held::HeldText;
pub use json::MAX_QUERY_BYTES;
pub use opentsdb::{LOOKUP, is_opentsdb, opentsdb, opentsdb_expressions, opentsdb_fixed};
pub use parse::Query;
pub use prometheus::{
    ChunkStream, Export, RemoteRead, delete_series, form_pairs, is_prometheus, prometheus,
};
pub use remarks::Remarks;

use crate::store::{SeriesStore, Share};
use crate::value::Value;
use apply::Step;
use cursor::Text;
use merge::{Bounds, Rows};
use output::Sink;
use parse::{Kind, Output, Suggest};
use plinth_env::sync::pause;
use source::Source;

/// Text of a piece, about.
const PIECE: usize = 64 << 10;
/// Room behind it for the row that fills it.
const ROOM: usize = 8 << 10;
/// Batches of rows in a row without a pause for others.
const BATCHES: u32 = 64;

/// What a query may use.
#[derive(Clone, Copy, Debug)]
pub struct QueryLimits {
    /// Series that it may find. Each costs its name and some tens of bytes.
    pub series: usize,
    /// Series that it may read side by side, as one ordered by time does.
    pub at_once: usize,
    /// Points that it may hold of them.
    pub points: usize,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self { series: 1_000_000, at_once: 50_000, points: 16 << 20 }
    }
}

/// What is said of an answer that lacks points of which there are only rollups that don't fit.
const GONE: &str = "points have gone, of which there are only rollups: those answer aggregate, and \
                    group-aggregate where from and step are multiples of theirs";

/// What a stream of Arrow's is called in HTTP, and whoever wants one says so.
pub const ARROW_CONTENT_TYPE: &str = "application/vnd.apache.arrow.stream";

/// The answer to a query, as text or as a stream of Arrow's.
pub struct Answer {
    source: Source,
    steps: Vec<Step>,
    /// The names of the lines.
    names: Vec<String>,
    sink: Sink,
    offset: u64,
    limit: u64,
    /// What is done when no rows come any more: the steps from this one on have to finish.
    finishing: Option<usize>,
    /// Rows for which the last piece had no room, from this one on.
    unwritten: Option<(Rows<Value>, usize)>,
    is_ended: bool,
    /// What the names take, as long as the answer lives.
    _share: Share,
}

/// Some of an answer's rows.
enum Batch {
    Values(Rows<Value>),
    Texts(Rows<Text>),
    Names(Vec<String>),
}

impl SeriesStore {
    /// Begins to answer a query, within the default limits.
    ///
    /// # Errors
    /// [`QueryError::NotFound`] if no series is as the query wants it, [`QueryError::TooMany`],
    /// [`QueryError::Series`].
    pub async fn query(&self, query: &Query) -> QueryResult<Answer> {
        self.query_within(query, QueryLimits::default()).await
    }

    /// Begins to answer a query.
    ///
    /// # Errors
    /// As [`SeriesStore::query`].
    pub async fn query_within(&self, query: &Query, limits: QueryLimits) -> QueryResult<Answer> {
        let bounds = Bounds { members: limits.at_once, items: limits.points };
        let (source, names, share) = Source::new(self, query, limits.series, bounds).await?;
        let is_narrowed = query.apply.iter().any(apply::Function::makes_one);
        let is_tuple =
            matches!(query.kind, Kind::Group { .. } | Kind::Join { .. } | Kind::GroupJoin { .. });
        Ok(Answer {
            source,
            steps: query.apply.iter().cloned().map(Step::new).collect(),
            names,
            sink: query_sink(query, is_tuple && !is_narrowed)?,
            offset: query.offset,
            limit: query.limit.unwrap_or(u64::MAX),
            finishing: None,
            unwritten: None,
            is_ended: false,
            _share: share,
        })
    }

    /// Begins to answer a request to suggest metrics, tags or values, which is JSON too.
    ///
    /// # Errors
    /// [`QueryError::Query`].
    pub fn suggest(&self, text: &[u8]) -> QueryResult<Answer> {
        let Suggest { listing, starts_with, output } = parse::suggest(text)?;
        Ok(Answer {
            source: Source::list(self, listing, starts_with),
            steps: Vec::new(),
            names: Vec::new(),
            sink: suggest_sink(output)?,
            offset: 0,
            limit: u64::MAX,
            finishing: None,
            unwritten: None,
            is_ended: false,
            _share: Share::new(self),
        })
    }
}

/// What writes the rows of a query.
fn query_sink(query: &Query, is_tuple: bool) -> QueryResult<Sink> {
    match query.output.format {
        #[cfg(feature = "arrow")]
        Some(parse::Format::Arrow) => Sink::arrow(&query.columns()),
        _ => Ok(Sink::text(query.output, is_tuple)),
    }
}

/// What writes what is suggested.
fn suggest_sink(output: Output) -> QueryResult<Sink> {
    match output.format {
        #[cfg(feature = "arrow")]
        Some(parse::Format::Arrow) => Sink::arrow(&crate::arrow::Columns::Names("name")),
        _ => Ok(Sink::text(output, false)),
    }
}

impl Answer {
    /// Whether it is text; if not it is a stream of Arrow's ([`ARROW_CONTENT_TYPE`]), which is
    /// whole if it has an end.
    pub fn is_text(&self) -> bool {
        self.sink.is_text()
    }

    /// The next piece, some tens of kilobytes, of text ending with a row; `None` at the end.
    ///
    /// # Errors
    /// [`QueryError::TooMany`], [`QueryError::Series`]. Pieces that were given before are right.
    pub async fn next(&mut self) -> QueryResult<Option<Vec<u8>>> {
        if self.is_ended {
            return Ok(None);
        }
        // All of it at once, and below what allocators ask the system for each time.
        let mut text = Vec::with_capacity(PIECE + ROOM);
        let mut batches = 0_u32;
        while text.len() < PIECE {
            if let Some((rows, from)) = self.unwritten.take() {
                self.write_values(rows, from, &mut text)?;
                continue;
            }
            let batch = if self.limit > 0 { self.batch().await? } else { None };
            let Some(batch) = batch else {
                self.is_ended = true;
                self.sink.end(&mut text)?;
                break;
            };
            self.write(batch, &mut text)?;
            batches += 1;
            if batches.is_multiple_of(BATCHES) {
                pause().await;
            }
        }
        Ok((!text.is_empty()).then_some(text))
    }

    /// What is to be said of it beside its rows, as far as it has come: of one that is ordered by
    /// time all of it is known when there is a first piece.
    pub fn remarks(&self) -> Remarks {
        Remarks::of(self.source.origin(), GONE)
    }

    /// Whether it is known that no piece comes any more.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// All that is left, as one text.
    ///
    /// # Errors
    /// As [`Answer::next`].
    pub async fn collect(mut self) -> QueryResult<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(text) = self.next().await? {
            all.extend(text);
        }
        Ok(all)
    }

    /// The next rows, which may be none.
    async fn batch(&mut self) -> QueryResult<Option<Batch>> {
        if self.finishing.is_none() {
            match self.source.next().await? {
                Some(Batch::Values(rows)) => {
                    return Ok(Some(Batch::Values(self.through(0, rows)?)));
                }
                Some(batch) => return Ok(Some(batch)),
                None => self.finishing = Some(0),
            }
        }
        while let Some(step) = self.finishing.filter(|step| *step < self.steps.len()) {
            self.finishing = Some(step + 1);
            if let Some(rows) = self.steps[step].finish() {
                return Ok(Some(Batch::Values(self.through(step + 1, rows)?)));
            }
        }
        Ok(None)
    }

    /// What the steps from this one on make of rows.
    fn through(&mut self, from: usize, mut rows: Rows<Value>) -> QueryResult<Rows<Value>> {
        for step in &mut self.steps[from..] {
            rows = step.rows(rows)?;
        }
        Ok(rows)
    }

    /// Writes rows from `from` on, and keeps those for which there is no room.
    fn write_values(
        &mut self,
        rows: Rows<Value>,
        from: usize,
        text: &mut Vec<u8>,
    ) -> QueryResult<()> {
        let next = self.sink.rows(&rows, from, &self.names, PIECE, text)?;
        if next < rows.len() {
            self.unwritten = Some((rows, next));
        }
        Ok(())
    }

    fn write(&mut self, batch: Batch, text: &mut Vec<u8>) -> QueryResult<()> {
        let (sink, names) = (&mut self.sink, &self.names);
        match batch {
            Batch::Values(mut rows) => {
                cut(&mut self.offset, &mut self.limit, &mut rows);
                self.write_values(rows, 0, text)?;
            }
            Batch::Texts(mut rows) => {
                cut(&mut self.offset, &mut self.limit, &mut rows);
                sink.events(&rows, names, text)?;
            }
            Batch::Names(found) => {
                for name in found {
                    if self.offset > 0 {
                        self.offset -= 1;
                    } else if self.limit > 0 {
                        self.limit -= 1;
                        sink.name(&name, text)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Leaves out the rows before the offset and behind the limit.
fn cut<T>(offset: &mut u64, limit: &mut u64, rows: &mut Rows<T>) {
    if *offset > 0 {
        let skipped = usize::try_from(*offset).unwrap_or(usize::MAX).min(rows.len());
        rows.retain(|_, row| row >= skipped);
        *offset -= skipped as u64;
    }
    rows.truncate(usize::try_from(*limit).unwrap_or(usize::MAX).min(rows.len()));
    *limit -= rows.len() as u64;
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("lines", &self.names.len()).finish_non_exhaustive()
    }
}
