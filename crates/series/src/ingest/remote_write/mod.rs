//! Prometheus' remote write: a message of series and samples in protocol buffers' encoding,
//! compressed as a block of snappy.
//!
//! ```text
//!   version 1   1: series   1: label (1: name, 2: value)    2: sample   3: exemplar   4: histogram
//!               3: metadata
//!   version 2   4: symbol   texts, which all else names by their places
//!               5: series   1: places of labels             2: sample   3: histogram  4: exemplar   5: metadata
//! ```
//!
//! The label `__name__` is the metric, the others are tags. What a series is called is looked up as
//! the bytes of its labels, so only one that is new is put together. Fields that are not known are
//! passed over.

mod first;
mod histogram;
mod second;

use super::Sample;
use super::intake::{Intake, Shown, TURN};
use super::names::{Row, escape};
use super::protobuf::{Fields, Payload};
use super::start::{Start, is_before};
use crate::exemplar::Exemplar;
use crate::record::Kind;
use crate::value::Value;
use plinth_promql::ResetHint;
use second::Symbols;

/// Largest message, when it is decompressed.
const MAX_BYTES: usize = 64 << 20;
/// Samples of one series in a message: senders have some thousand of all series together.
const MAX_SAMPLES: usize = 1 << 18;
/// Bytes of one series in a message: they are read at once.
const MAX_SERIES_BYTES: usize = 1 << 20;
/// Work that a field is, besides its bytes, as so many bytes.
const FIELD: usize = 16;
const MILLISECOND: i64 = 1_000_000;

/// A message of Prometheus' remote write, and how far it has been taken.
#[derive(Debug)]
pub struct RemoteWrite {
    bytes: Vec<u8>,
    at: usize,
    /// Series that were taken or refused.
    series: u64,
    /// The texts of a message of version 2.
    symbols: Option<Symbols>,
}

impl RemoteWrite {
    /// The message of version 1 in a request's body.
    ///
    /// # Errors
    /// Why it is none. Whether it is whole is known before anything is taken of it.
    pub fn decode(body: &[u8]) -> Result<Self, String> {
        let bytes = decompressed(body)?;
        Fields::of(&bytes).try_for_each(|field| field.map(|_| ()))?;
        Ok(Self { bytes, at: 0, series: 0, symbols: None })
    }

    /// The message of version 2 in a request's body.
    ///
    /// # Errors
    /// As [`RemoteWrite::decode`]; also if it has more texts than series could need.
    pub fn decode_second(body: &[u8]) -> Result<Self, String> {
        let bytes = decompressed(body)?;
        let symbols = Some(Symbols::of(&bytes)?);
        Ok(Self { bytes, at: 0, series: 0, symbols })
    }

    /// How many bytes the message of a body has, which may be far more than the body.
    ///
    /// # Errors
    /// If the body is none, or that is too much.
    pub fn bytes_of(body: &[u8]) -> Result<usize, String> {
        let len = snap::raw::decompress_len(body)
            .map_err(|error| format!("the body is no block of snappy: {error}"))?;
        if len > MAX_BYTES {
            return Err(format!("the message has {len} bytes, and {MAX_BYTES} may be"));
        }
        Ok(len)
    }

    /// How many bytes it has in memory.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.symbols.as_ref().map_or(0, Symbols::bytes)
    }
}

fn decompressed(body: &[u8]) -> Result<Vec<u8>, String> {
    RemoteWrite::bytes_of(body)?;
    let bytes = snap::raw::Decoder::new().decompress_vec(body);
    bytes.map_err(|error| format!("the body is no block of snappy: {error}"))
}

/// Takes in a message, until there is something to save, or as much of it was read as others can
/// wait for: whether that was the rest of it. What is wrong with one series is told among the
/// replies, and the others are taken.
pub(super) fn take(intake: &mut Intake, message: &mut RemoteWrite) -> bool {
    let RemoteWrite { bytes, at, series, symbols } = message;
    let mut fields = Fields::of(&bytes[*at..]);
    let (mut key, mut work) = (Vec::new(), 0);
    while work < TURN && !intake.is_full() {
        let left = fields.rest().len();
        let Some(field) = fields.next() else { break };
        work += FIELD + left - fields.rest().len();
        let taken = match (field, &symbols) {
            (Ok((1 | 5, Payload::Bytes(one))), _) if one.len() > MAX_SERIES_BYTES => {
                *series += 1;
                Err(format!("more than {MAX_SERIES_BYTES} bytes of one series in a message"))
            }
            (Ok((1, Payload::Bytes(one))), None) => {
                *series += 1;
                take_series(intake, &mut key, |intake, key| first::gather(intake, one, key))
            }
            (Ok((3, Payload::Bytes(one))), None) => first::take_metadata(intake, one),
            (Ok((5, Payload::Bytes(one))), Some(symbols)) => {
                *series += 1;
                let of = (&bytes[..], symbols);
                take_series(intake, &mut key, |intake, key| second::gather(intake, one, of, key))
            }
            _ => Ok(()),
        };
        if let Err(why) = taken {
            intake.reply(format_args!("{why} (series {series})\n"));
        }
    }
    *at = bytes.len() - fields.rest().len();
    *at == bytes.len()
}

/// What a series has besides its samples.
#[derive(Default)]
struct Besides<'a> {
    /// What its labels are read by, if its name has to be put together.
    labels: Option<fn(&[u8]) -> Labels<'_>>,
    /// Its type, what it is about, its unit.
    metadata: Option<(&'static str, &'a [u8], &'a [u8])>,
}

/// Names and values of labels.
type Labels<'a> = Box<dyn Iterator<Item = Result<(&'a [u8], &'a [u8]), String>> + 'a>;

/// Takes a series with all of its samples, or nothing of it. One that has none is not made.
fn take_series<'a>(
    intake: &mut Intake,
    key: &mut Vec<u8>,
    gather: impl FnOnce(&mut Intake, &mut Vec<u8>) -> Result<Besides<'a>, String>,
) -> Result<(), String> {
    let begin = intake.mark();
    key.clear();
    let taken = gather(intake, key).and_then(|besides| {
        if intake.samples.len() > begin.samples || intake.records.len() > begin.records {
            let row = match intake.names.find(key, b"") {
                Some(row) => row,
                None => name(intake, key, &besides)?,
            };
            intake.samples[begin.samples..].iter_mut().for_each(|sample| sample.target = row.first);
            intake.records[begin.records..].iter_mut().for_each(|record| record.target = row.first);
            intake.own_starts(begin.starts, row.first);
        }
        Ok(())
    });
    // Of a series whose name is none nothing is left.
    if taken.is_err() {
        intake.go_back(begin);
    }
    taken
}

/// Appends a sample, which belongs to nobody yet, behind those of its series since `begin`.
fn take_sample(intake: &mut Intake, begin: usize, bytes: &[u8]) -> Result<(), String> {
    if intake.samples.len() - begin >= MAX_SAMPLES {
        return Err(format!("more than {MAX_SAMPLES} samples of one series in a message"));
    }
    let (mut time, mut value, mut start) = (0, 0.0, 0);
    for field in Fields::of(bytes) {
        match field? {
            (1, Payload::Eight(bits)) => value = f64::from_bits(bits),
            (2, Payload::Number(number)) => time = number as i64,
            (3, Payload::Number(number)) => start = number as i64,
            _ => {}
        }
    }
    let (time, start) = (nanoseconds(time)?, nanoseconds(start).unwrap_or(0));
    let before = intake.samples[begin..].last().map(|sample| sample.time);
    if is_before(start, time, before) {
        intake.starts.push(Start::of_number(start));
    }
    intake.samples.push(Sample { target: u32::MAX, time, value: Value::Float(value) });
    Ok(())
}

/// Appends a native histogram in the same way; the mark that ends its series is a sample.
fn take_histogram(intake: &mut Intake, begin: usize, bytes: &[u8]) -> Result<(), String> {
    if intake.records.len() - begin >= MAX_SAMPLES {
        return Err(format!("more than {MAX_SAMPLES} histograms of one series in a message"));
    }
    let histogram::Read { time, start, histogram } = histogram::read(bytes)?;
    let (time, start) = (nanoseconds(time)?, nanoseconds(start).unwrap_or(0));
    match histogram {
        Some(histogram) => {
            let before = intake.last_histogram(begin);
            if histogram.hint() != ResetHint::Gauge && is_before(start, time, before) {
                intake.starts.push(Start::of_histogram(start, &histogram)?);
            }
            intake.take_histogram((u32::MAX, Kind::Histogram), time, &histogram)?;
        }
        None => {
            let value = Value::Float(f64::from_bits(plinth_promql::STALE));
            intake.samples.push(Sample { target: u32::MAX, time, value });
        }
    }
    Ok(())
}

/// Appends an exemplar in the same way; `label` takes what stands for its labels. One that is none
/// costs its series nothing: it is counted.
fn take_exemplar<'a>(
    intake: &mut Intake,
    bytes: &'a [u8],
    label: impl FnMut(Payload<'a>, &mut Vec<(String, String)>) -> Result<(), String>,
) {
    match exemplar(bytes, label) {
        Ok((time, exemplar)) => intake.take_exemplar(u32::MAX, time, &exemplar),
        Err(_) => intake.besides.exemplars += 1,
    }
}

fn exemplar<'a>(
    bytes: &'a [u8],
    mut label: impl FnMut(Payload<'a>, &mut Vec<(String, String)>) -> Result<(), String>,
) -> Result<(i64, Exemplar), String> {
    let (mut exemplar, mut time) = (Exemplar::default(), 0);
    for field in Fields::of(bytes) {
        match field? {
            (1, payload) => label(payload, &mut exemplar.labels)?,
            (2, Payload::Eight(bits)) => exemplar.value = f64::from_bits(bits),
            (3, Payload::Number(number)) => time = number as i64,
            _ => {}
        }
    }
    Ok((nanoseconds(time)?, exemplar))
}

/// A text of an exemplar.
fn text(bytes: &[u8]) -> Result<String, String> {
    let text = String::from_utf8(bytes.to_vec());
    text.map_err(|_| "a label of an exemplar is not UTF-8".to_owned())
}

/// A time in milliseconds.
fn nanoseconds(time: i64) -> Result<i64, String> {
    i64::checked_mul(time, MILLISECOND)
        .ok_or_else(|| format!("the time {time} ms is not between 1677 and 2262"))
}

/// The name that labels mean.
#[cold]
fn name(intake: &mut Intake, key: &[u8], besides: &Besides<'_>) -> Result<Row, String> {
    let (mut metric, mut tags) = (Vec::new(), Vec::new());
    let mut plain = &b""[..];
    for label in besides.labels.into_iter().flat_map(|labels| labels(key)) {
        let (name, value) = label?;
        if name == b"__name__" {
            metric.clear();
            escape(value, &mut metric);
            plain = value;
        } else if !value.is_empty() {
            tags.push(b' ');
            escape(name, &mut tags);
            tags.push(b'=');
            escape(value, &mut tags);
        }
    }
    let refuse =
        |why: &str| format!("no name of a series: {why}: {}{}", Shown(&metric), Shown(&tags));
    if metric.is_empty() {
        return Err(refuse("it has no label __name__"));
    }
    if metric.contains(&b'|') || metric[0] == b'!' {
        return Err(refuse("| and ! at its beginning mean something else"));
    }
    let row = intake.names.insert(key, b"", &metric, &tags).map_err(|error| match error {
        crate::Error::Name { why, .. } => refuse(&why),
        other => other.to_string(),
    })?;
    if let Some((kind, help, unit)) = besides.metadata {
        intake.describe(plain, kind, help, unit);
    }
    Ok(row)
}
