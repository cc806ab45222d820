//! Prometheus' remote read: the samples of series that meet conditions, for a Prometheus, or a
//! Thanos, that asks this store beside its own.
//!
//! ```text
//!   request    1: query     1: from, 2: to (milliseconds, both included)   3: condition   1: kind  2: label  3: value
//!              2: kinds of answers that the sender takes
//!
//!   samples    1: result    1: series    1: label (1: name, 2: value)      2: sample      1: value  2: time
//!                                                                          4: histogram
//!   stream     length, CRC-32C, then    1: series   1: label   2: chunk (1: from, 2: to, 3: kind, 4: bytes)   2: query
//! ```
//!
//! Request and samples are compressed as blocks of snappy. A stream holds no more than a series'
//! chunks, up to a mebibyte: it is made while it is read. Samples are one message, whose size is
//! bounded. Series come in the order of their labels, as whoever merges them expects; of points
//! within one millisecond the last counts. Hints are passed over.

mod chunk;
mod histogram;

use super::source::{Points, Selected, StoreSource};
use super::{Failure, TIMEOUT};
use crate::protobuf::{Fields, Payload, numbers, put_bytes, put_number};
use crate::query::{QueryResult, pause};
use crate::store::{SeriesStore, Share};
use chunk::Chunk;
use plinth_promql::{
    HISTOGRAM, HistogramSample, Labels, MatchOp, Matcher, Sample, Samples, Source, Value,
};

/// Bytes of a request when it is decompressed, at most.
const MAX_REQUEST: usize = 1 << 20;
/// Queries of a request: Prometheus sends one.
const MAX_QUERIES: usize = 64;
/// Bytes of an answer that is one message.
const MAX_MESSAGE: usize = 32 << 20;
/// Bytes of a frame of a stream, but for the last chunk in it.
const MAX_FRAME: usize = 1 << 20;
/// Bytes of a piece, about.
const PIECE: usize = 64 << 10;
/// What a series that was found takes, about.
const OVERHEAD: usize = 256;
const MILLISECOND: i64 = 1_000_000;
/// The kinds of answers, by their numbers.
const SAMPLES: u64 = 0;
const STREAM: u64 = 1;
/// The kinds of chunks: of floats, and of native histograms whose counts are floats.
const XOR: i64 = 1;
const FLOAT_HISTOGRAM: i64 = 3;

/// An answer to remote read.
pub enum RemoteRead {
    /// All of it: samples.
    Whole(Vec<u8>),
    /// One that is being made: chunks.
    Stream(Box<ChunkStream>),
}

impl RemoteRead {
    /// Where it is asked for.
    pub const PATH: &str = "/api/v1/read";
    /// The type of [`RemoteRead::Whole`], which is compressed as a block of snappy.
    pub const SAMPLES: &str = "application/x-protobuf";
    /// The type of [`RemoteRead::Stream`].
    pub const STREAM: &str =
        "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";

    /// Whether a body is a request.
    ///
    /// # Errors
    /// Why it is none.
    pub fn check(body: &[u8]) -> Result<(), String> {
        Request::decode(body).map(|_| ())
    }

    /// Answers the request in a body.
    ///
    /// # Errors
    /// A status, and a text that says what is wrong.
    pub async fn begin(store: &SeriesStore, body: &[u8]) -> Result<Self, (u16, String)> {
        Self::of(store, body).await.map_err(|failure| {
            let status = match &failure {
                Failure::Parse(_) | Failure::Asked(_) | Failure::Execution(_) => 400,
                Failure::Timeout(_) | Failure::Source(_) => 503,
            };
            (status, format!("{failure}\n"))
        })
    }

    async fn of(store: &SeriesStore, body: &[u8]) -> Result<Self, Failure> {
        let request = Request::decode(body).map_err(Failure::Asked)?;
        let source = StoreSource::new(store, TIMEOUT);
        let mut share = Share::new(store);
        let mut found = Vec::new();
        for (place, query) in request.queries.iter().enumerate() {
            let mut all = source.find(&query.matchers).await?;
            all.sort_by(|(one, _), (other, _)| one.cmp(other));
            share.add(all.len() * OVERHEAD).map_err(Failure::Source)?;
            let (after, until) = (query.after, query.until);
            found.extend(all.into_iter().map(|(labels, series)| Wanted {
                place,
                labels,
                series,
                after,
                until,
            }));
        }
        if request.wants_stream {
            let (store, rest) = (store.clone(), found.into_iter());
            return Ok(Self::Stream(Box::new(ChunkStream {
                store,
                rest,
                current: None,
                _share: share,
            })));
        }
        let message = message(&source, found, request.queries.len(), &mut share).await?;
        compressed(&message).await.map(Self::Whole)
    }
}

/// A series that is wanted, by which query, and the times of its points.
struct Wanted {
    place: usize,
    labels: Labels,
    series: Selected,
    after: i64,
    until: i64,
}

/// What is asked for.
struct Request {
    queries: Vec<Asked>,
    wants_stream: bool,
}

struct Asked {
    /// Nanoseconds: points later than the one, and no later than the other.
    after: i64,
    until: i64,
    matchers: Vec<Matcher>,
}

impl Request {
    fn decode(body: &[u8]) -> Result<Self, String> {
        let none = |error: snap::Error| format!("the body is no block of snappy: {error}");
        let len = snap::raw::decompress_len(body).map_err(none)?;
        if len > MAX_REQUEST {
            return Err(format!("the request has {len} bytes, and {MAX_REQUEST} may be"));
        }
        let bytes = snap::raw::Decoder::new().decompress_vec(body).map_err(none)?;
        let (mut queries, mut kinds) = (Vec::new(), Vec::new());
        for field in Fields::of(&bytes) {
            match field? {
                (1, Payload::Bytes(query)) => queries.push(Asked::decode(query)?),
                (2, payload) => numbers(payload, |kind| kinds.push(kind))?,
                _ => {}
            }
        }
        if queries.len() > MAX_QUERIES {
            return Err(format!("{} queries, and {MAX_QUERIES} may be", queries.len()));
        }
        let known = kinds.iter().find(|kind| [SAMPLES, STREAM].contains(kind));
        match known {
            None if !kinds.is_empty() => {
                Err("none of the accepted types of responses is one of samples or chunks"
                    .to_owned())
            }
            known => Ok(Self { queries, wants_stream: known == Some(&STREAM) }),
        }
    }
}

impl Asked {
    fn decode(message: &[u8]) -> Result<Self, String> {
        let (mut first, mut last, mut matchers) = (0, 0, Vec::new());
        for field in Fields::of(message) {
            match field? {
                (1, Payload::Number(time)) => first = time as i64,
                (2, Payload::Number(time)) => last = time as i64,
                (3, Payload::Bytes(matcher)) => matchers.push(decode_matcher(matcher)?),
                _ => {}
            }
        }
        if matchers.is_empty() {
            return Err("a query has no conditions".to_owned());
        }
        let after = first.saturating_mul(MILLISECOND).saturating_sub(1);
        let until = last.saturating_mul(MILLISECOND).saturating_add(MILLISECOND - 1);
        Ok(Self { after, until, matchers })
    }
}

fn decode_matcher(message: &[u8]) -> Result<Matcher, String> {
    let (mut kind, mut label, mut value) = (0, &b""[..], &b""[..]);
    for field in Fields::of(message) {
        match field? {
            (1, Payload::Number(number)) => kind = number,
            (2, Payload::Bytes(bytes)) => label = bytes,
            (3, Payload::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    let ops = [MatchOp::Equal, MatchOp::NotEqual, MatchOp::Matches, MatchOp::MatchesNot];
    let op = usize::try_from(kind).ok().and_then(|kind| ops.get(kind));
    let op = op.ok_or_else(|| format!("no condition is of kind {kind}"))?;
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| "a condition is no UTF-8".to_owned());
    let label = text(label)?;
    Matcher::new(label, *op, text(value)?).map_err(|why| format!("condition on {label}: {why}"))
}

/// The labels of a series, as a message has them.
fn put_labels(labels: &Labels, out: &mut Vec<u8>) {
    for (name, value) in labels.iter() {
        let mut label = Vec::with_capacity(name.len() + value.len() + 8);
        put_bytes(1, name.as_bytes(), &mut label);
        put_bytes(2, value.as_bytes(), &mut label);
        put_bytes(1, &label, out);
    }
}

fn put_field(field: u64, number: i64, out: &mut Vec<u8>) {
    put_number(field << 3, out);
    put_number(number as u64, out);
}

/// Takes points as samples with whole milliseconds, of which each comes once. Gives back the one
/// that the next point may replace.
fn each_millisecond(
    points: impl Iterator<Item = (i64, Value)>,
    held: &mut Option<(i64, Value)>,
    mut take: impl FnMut(i64, Value),
) {
    for (time, value) in points {
        let time = time.div_euclid(MILLISECOND);
        if let Some((before, value)) = held.replace((time, value))
            && before != time
        {
            take(before, value);
        }
    }
}

/// What was read of a series last.
#[derive(Default)]
struct Page {
    samples: Vec<Sample>,
    histograms: Vec<HistogramSample>,
}

impl Page {
    /// Reads the next points; false at the end.
    async fn read(&mut self, points: &mut Points) -> crate::Result<bool> {
        self.samples.clear();
        self.histograms.clear();
        let is_any = points.more(&mut self.samples).await?;
        points.histograms(&mut self.histograms);
        Ok(is_any)
    }

    /// Each of them.
    fn values(&mut self) -> impl Iterator<Item = (i64, Value)> + '_ {
        let mut histograms = self.histograms.drain(..).peekable();
        self.samples.iter().map(move |(time, value)| {
            let of_it = |one: &HistogramSample| value.to_bits() == HISTOGRAM && one.0 == *time;
            let histogram = histograms.next_if(of_it);
            (*time, histogram.map_or(Value::Float(*value), |(_, one)| Value::Histogram(one)))
        })
    }
}

/// A message with all samples.
async fn message(
    source: &StoreSource<'_>,
    found: Vec<Wanted>,
    queries: usize,
    share: &mut Share,
) -> Result<Vec<u8>, Failure> {
    let mut results = vec![Vec::new(); queries];
    let mut all = 0;
    for wanted in found {
        let read = source.read(&wanted.series, wanted.after, wanted.until).await;
        let mut points = read.map_err(Failure::Source)?;
        let (mut series, mut page, mut held) = (Vec::new(), Page::default(), None);
        put_labels(&wanted.labels, &mut series);
        let labels = series.len();
        while page.read(&mut points).await.map_err(Failure::Source)? {
            each_millisecond(page.values(), &mut held, |time, value| {
                put_value(time, &value, &mut series)
            });
            bounded(all + series.len())?;
            source.pause().await?;
        }
        if let Some((time, value)) = held {
            put_value(time, &value, &mut series);
        }
        if series.len() > labels {
            share.add(series.len()).map_err(Failure::Source)?;
            all += series.len();
            put_bytes(1, &series, &mut results[wanted.place]);
        }
        bounded(all)?;
        source.pause().await?;
    }
    let mut message = Vec::new();
    share.add(all).map_err(Failure::Source)?;
    results.iter().for_each(|result| put_bytes(1, result, &mut message));
    Ok(message)
}

fn bounded(bytes: usize) -> Result<(), Failure> {
    if bytes <= MAX_MESSAGE {
        return Ok(());
    }
    Err(Failure::Asked(format!(
        "more than {MAX_MESSAGE} bytes of samples: take a shorter time or fewer series, or accept \
         a stream of chunks"
    )))
}

fn put_value(time: i64, value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Float(value) => put_sample(time, *value, out),
        Value::Histogram(one) => histogram::put_histogram(time, one, out),
    }
}

fn put_sample(time: i64, value: f64, out: &mut Vec<u8>) {
    let mut sample = Vec::with_capacity(20);
    sample.push(1 << 3 | 1);
    sample.extend_from_slice(&value.to_bits().to_le_bytes());
    put_field(2, time, &mut sample);
    put_bytes(2, &sample, out);
}

/// A block of snappy. It consists of smaller ones that know nothing of each other, each of which is
/// compressed while others have their turn before and behind it.
async fn compressed(message: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    put_number(message.len() as u64, &mut out);
    let mut encoder = snap::raw::Encoder::new();
    for part in message.chunks(PIECE) {
        let block = encoder.compress_vec(part);
        let block = block.map_err(|error| Failure::Execution(error.to_string()))?;
        // Its length stands before it.
        let mut len = Vec::new();
        put_number(part.len() as u64, &mut len);
        out.extend_from_slice(&block[len.len()..]);
        pause().await;
    }
    Ok(out)
}

/// Chunks that are being made.
pub struct ChunkStream {
    store: SeriesStore,
    rest: std::vec::IntoIter<Wanted>,
    current: Option<Current>,
    /// What the names take, as long as the answer lives.
    _share: Share,
}

/// The series whose points come next.
struct Current {
    place: usize,
    /// As they stand in its frames.
    labels: Vec<u8>,
    points: Points,
    /// Those of the frame that comes next.
    chunks: Vec<u8>,
    chunk: Chunk,
    held: Option<(i64, Value)>,
}

impl ChunkStream {
    /// The next frames; `None` at the end.
    ///
    /// # Errors
    /// Those of reading; nothing comes behind one.
    pub async fn next(&mut self) -> QueryResult<Option<Vec<u8>>> {
        let (mut out, mut page) = (Vec::new(), Page::default());
        while out.len() < PIECE {
            let current = match &mut self.current {
                Some(current) => current,
                None => match self.rest.next() {
                    Some(wanted) => self.current.insert(begun(&self.store, wanted).await?),
                    None => break,
                },
            };
            if page.read(&mut current.points).await? {
                current.take(&mut page, &mut out);
            } else if let Some(current) = self.current.take() {
                current.end(&mut out);
            }
            pause().await;
        }
        Ok((!out.is_empty()).then_some(out))
    }
}

async fn begun(store: &SeriesStore, wanted: Wanted) -> crate::Result<Current> {
    let Wanted { place, labels: names, series, after, until } = wanted;
    let points = StoreSource::new(store, TIMEOUT).read(&series, after, until).await?;
    let mut labels = Vec::new();
    put_labels(&names, &mut labels);
    Ok(Current { place, labels, points, chunks: Vec::new(), chunk: Chunk::new(), held: None })
}

impl Current {
    fn take(&mut self, page: &mut Page, out: &mut Vec<u8>) {
        let mut held = self.held.take();
        each_millisecond(page.values(), &mut held, |time, value| self.put(time, &value, out));
        self.held = held;
    }

    fn put(&mut self, time: i64, value: &Value, out: &mut Vec<u8>) {
        if self.chunk.is_full() || matches!(value, Value::Histogram(_)) {
            self.cut();
        }
        if self.chunks.len() >= MAX_FRAME {
            self.frame(out);
        }
        match value {
            Value::Float(value) => self.chunk.push(time, value.to_bits()),
            Value::Histogram(one) => {
                self.put_chunk(FLOAT_HISTOGRAM, &histogram::chunk(time, one), (time, time));
            }
        }
    }

    fn end(mut self, out: &mut Vec<u8>) {
        if let Some((time, value)) = self.held.take() {
            self.put(time, &value, out);
        }
        self.cut();
        if !self.chunks.is_empty() {
            self.frame(out);
        }
    }

    /// Puts the chunk to those of the frame, and begins the next.
    fn cut(&mut self) {
        let chunk = std::mem::replace(&mut self.chunk, Chunk::new());
        if let Some((bytes, first, last)) = chunk.end() {
            self.put_chunk(XOR, &bytes, (first, last));
        }
    }

    fn put_chunk(&mut self, kind: i64, bytes: &[u8], (first, last): (i64, i64)) {
        let mut message = Vec::with_capacity(bytes.len() + 32);
        put_field(1, first, &mut message);
        put_field(2, last, &mut message);
        put_field(3, kind, &mut message);
        put_bytes(4, bytes, &mut message);
        put_bytes(2, &message, &mut self.chunks);
    }

    fn frame(&mut self, out: &mut Vec<u8>) {
        let series = [&self.labels[..], &self.chunks].concat();
        self.chunks.clear();
        let mut frame = Vec::with_capacity(series.len() + 16);
        put_bytes(1, &series, &mut frame);
        put_field(2, self.place as i64, &mut frame);
        put_number(frame.len() as u64, out);
        out.extend_from_slice(&crc32c::crc32c(&frame).to_be_bytes());
        out.extend_from_slice(&frame);
    }
}
