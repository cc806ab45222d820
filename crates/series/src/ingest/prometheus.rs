//! Prometheus' remote write: a message of series and samples in protocol buffers' encoding,
//! compressed as a block of snappy.
//!
//! ```text
//!   WriteRequest  1: TimeSeries*          TimeSeries  1: Label*, 2: Sample*          Label  1: name, 2: value          Sample  1: f64, 2: milliseconds
//! ```
//!
//! The label `__name__` is the metric, the others are tags. What a series is called is looked up as
//! the bytes of its labels, so only one that is new is put together. Fields that are not known are
//! passed over: exemplars, histograms, metadata.

use super::Sample;
use super::intake::{Intake, SAMPLES, Shown};
use super::names::{Row, escape};
use super::protobuf::{Fields, Payload};
use crate::value::Value;

/// Largest message, when it is decompressed.
const MAX_BYTES: usize = 64 << 20;
/// Samples of one series in a message: senders have some thousand of all series together.
const MAX_SAMPLES: usize = 1 << 18;
const MILLISECOND: i64 = 1_000_000;

/// A message of Prometheus' remote write, version 1, and how far it has been taken.
#[derive(Debug)]
pub struct RemoteWrite {
    bytes: Vec<u8>,
    at: usize,
    /// Series that were taken or refused.
    series: u64,
}

impl RemoteWrite {
    /// The message in a request's body.
    ///
    /// # Errors
    /// Why it is none. Whether it is whole is known before anything is taken of it.
    pub fn decode(body: &[u8]) -> Result<Self, String> {
        let len = snap::raw::decompress_len(body)
            .map_err(|error| format!("the body is no block of snappy: {error}"))?;
        if len > MAX_BYTES {
            return Err(format!("the message has {len} bytes, and {MAX_BYTES} may be"));
        }
        let bytes = snap::raw::Decoder::new().decompress_vec(body);
        let bytes = bytes.map_err(|error| format!("the body is no block of snappy: {error}"))?;
        Fields::of(&bytes).try_for_each(|field| field.map(|_| ()))?;
        Ok(Self { bytes, at: 0, series: 0 })
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Takes in a message, until there is something to save, or as many series of it were looked at:
/// whether that was the rest of it. What is wrong with one series is told among the replies, and
/// the others are taken.
pub(super) fn take(intake: &mut Intake, message: &mut RemoteWrite) -> bool {
    let RemoteWrite { bytes, at, series } = message;
    let mut fields = Fields::of(&bytes[*at..]);
    let mut labels = Vec::new();
    for _ in 0..SAMPLES {
        if intake.samples.len() >= SAMPLES {
            break;
        }
        let Some(field) = fields.next() else { break };
        if let Ok((1, Payload::Bytes(one))) = field {
            *series += 1;
            if let Err(why) = take_series(intake, one, &mut labels) {
                intake.reply(format_args!("{why} (series {series})\n"));
            }
        }
    }
    *at = bytes.len() - fields.rest().len();
    *at == bytes.len()
}

/// Takes a series with all of its samples, or nothing of it. One that has none is not made.
fn take_series(intake: &mut Intake, series: &[u8], labels: &mut Vec<u8>) -> Result<(), String> {
    let begin = intake.samples.len();
    let row = gather(intake, series, labels).and_then(|()| match intake.names.find(labels, b"") {
        _ if intake.samples.len() == begin => Ok(None),
        Some(row) => Ok(Some(row)),
        None => name(intake, labels).map(Some),
    });
    match row {
        Ok(Some(row)) => {
            intake.samples[begin..].iter_mut().for_each(|sample| sample.target = row.first)
        }
        Ok(None) => {}
        Err(_) => intake.samples.truncate(begin),
    }
    row.map(|_| ())
}

/// Puts the labels of a series into `labels`, and its samples, which belong to nobody yet, behind
/// those that there are.
fn gather(intake: &mut Intake, series: &[u8], labels: &mut Vec<u8>) -> Result<(), String> {
    labels.clear();
    let begin = intake.samples.len();
    for field in Fields::of(series) {
        match field? {
            (1, Payload::Bytes(label)) => {
                // With lengths, so that the labels can be told from each other again.
                labels.extend_from_slice(&(label.len() as u32).to_le_bytes());
                labels.extend_from_slice(label);
            }
            (2, Payload::Bytes(_)) if intake.samples.len() - begin >= MAX_SAMPLES => {
                return Err(format!("more than {MAX_SAMPLES} samples of one series in a message"));
            }
            (2, Payload::Bytes(sample)) => {
                let (time, value) = take_sample(sample)?;
                intake.samples.push(Sample { target: u32::MAX, time, value });
            }
            _ => {}
        }
    }
    Ok(())
}

fn take_sample(bytes: &[u8]) -> Result<(i64, Value), String> {
    let (mut time, mut value) = (0, 0.0);
    for field in Fields::of(bytes) {
        match field? {
            (1, Payload::Eight(bits)) => value = f64::from_bits(bits),
            (2, Payload::Number(number)) => time = number as i64,
            _ => {}
        }
    }
    let time = time
        .checked_mul(MILLISECOND)
        .ok_or_else(|| format!("the time {time} ms is not between 1677 and 2262"))?;
    Ok((time, Value::Float(value)))
}

/// The name that labels mean.
#[cold]
fn name(intake: &mut Intake, labels: &[u8]) -> Result<Row, String> {
    let (mut metric, mut tags) = (Vec::new(), Vec::new());
    let mut rest = labels;
    while let Some((len, more)) = rest.split_first_chunk() {
        let label;
        (label, rest) = more.split_at(u32::from_le_bytes(*len) as usize);
        let (mut key, mut value): (&[u8], &[u8]) = (b"", b"");
        for field in Fields::of(label) {
            match field? {
                (1, Payload::Bytes(bytes)) => key = bytes,
                (2, Payload::Bytes(bytes)) => value = bytes,
                _ => {}
            }
        }
        if key == b"__name__" {
            escape(value, &mut metric);
        } else if !value.is_empty() {
            tags.push(b' ');
            escape(key, &mut tags);
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
    intake.names.insert(labels, b"", &metric, &tags).map_err(|error| match error {
        crate::Error::Name { why, .. } => refuse(&why),
        other => other.to_string(),
    })
}
