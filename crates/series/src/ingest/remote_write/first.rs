//! Version 1: each series has its labels as they are.

use super::super::intake::Intake;
use super::super::metadata::Metadata;
use super::super::protobuf::{Fields, Payload};
use super::{Besides, Labels, take_exemplar, take_histogram, take_sample, text};

/// Puts the labels of a series into `key`, and its samples and histograms, which belong to nobody
/// yet, behind those that there are.
pub(super) fn gather<'a>(
    intake: &mut Intake,
    series: &'a [u8],
    key: &mut Vec<u8>,
) -> Result<Besides<'a>, String> {
    let begin = (intake.samples.len(), intake.records.len());
    let besides = Besides { labels: Some(labels), ..Besides::default() };
    for field in Fields::of(series) {
        match field? {
            (1, Payload::Bytes(label)) => {
                // With lengths, so that the labels can be told from each other again.
                key.extend_from_slice(&(label.len() as u32).to_le_bytes());
                key.extend_from_slice(label);
            }
            (2, Payload::Bytes(sample)) => take_sample(intake, begin.0, sample)?,
            (3, Payload::Bytes(one)) => take_exemplar(intake, one, take_label),
            (4, Payload::Bytes(one)) => take_histogram(intake, begin.1, one)?,
            _ => {}
        }
    }
    Ok(besides)
}

/// The labels of a key.
fn labels(key: &[u8]) -> Labels<'_> {
    let mut rest = key;
    Box::new(std::iter::from_fn(move || {
        let (len, more) = rest.split_first_chunk()?;
        let label;
        (label, rest) = more.split_at(u32::from_le_bytes(*len) as usize);
        Some(label_of(label))
    }))
}

fn take_label(payload: Payload<'_>, labels: &mut Vec<(String, String)>) -> Result<(), String> {
    if let Payload::Bytes(label) = payload {
        let (name, value) = label_of(label)?;
        labels.push((text(name)?, text(value)?));
    }
    Ok(())
}

fn label_of(label: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let (mut name, mut value): (&[u8], &[u8]) = (b"", b"");
    for field in Fields::of(label) {
        match field? {
            (1, Payload::Bytes(bytes)) => name = bytes,
            (2, Payload::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    Ok((name, value))
}

/// Takes what is said of a metric.
pub(super) fn take_metadata(intake: &mut Intake, message: &[u8]) -> Result<(), String> {
    let (mut kind, mut metric, mut help, mut unit) = (0, &b""[..], &b""[..], &b""[..]);
    for field in Fields::of(message) {
        match field? {
            (1, Payload::Number(number)) => kind = number,
            (2, Payload::Bytes(bytes)) => metric = bytes,
            (4, Payload::Bytes(bytes)) => help = bytes,
            (5, Payload::Bytes(bytes)) => unit = bytes,
            _ => {}
        }
    }
    intake.describe(metric, Metadata::kind(kind), help, unit);
    Ok(())
}
