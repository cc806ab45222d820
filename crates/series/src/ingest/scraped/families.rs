//! Prometheus' messages: families of metrics, each behind its length, one after the other.
//!
//! ```text
//!   family   1: name   2: help   3: type   4: metric ..   5: unit
//!   metric   1: label (1: name, 2: value) ..   6: time, in ms   by the type:
//!            3: counter    2: gauge    5: untyped     each 1: value, a counter 2: exemplar
//!            4: summary    7: histogram               distribution.rs
//! ```
//!
//! What is said of a family may stand behind its metrics, so its fields are looked at twice: some
//! hundred at a time, and a metric at once. A metric becomes parts, and each part a sample when it
//! is asked for, so that what is in memory is bounded by a metric, however many series it has.

use super::super::lines::MAX_LINE_BYTES;
use super::super::metadata::Metadata;
use super::super::protobuf::{Fields, Payload};
use super::distribution::{self, Part, exemplar};
use super::{DESCRIBED, LINE, ScrapedHistograms, ScrapedSample, ScrapedValue};
use crate::ingest::intake::Shown;

/// Fields that are looked at in a step.
const FIELDS: usize = 256;
/// Work that a field is besides its bytes, as so many bytes.
const FIELD: usize = 16;
/// Bytes of a metric, which is read at once.
const MAX_METRIC_BYTES: usize = 1 << 20;

/// Families that are being read.
pub(super) struct Families<'a> {
    rest: &'a [u8],
    histograms: ScrapedHistograms,
    family: Option<Family<'a>>,
    /// Metrics that were begun.
    metrics: usize,
    parts: std::vec::IntoIter<Part<'a>>,
    /// Labels of the metric that has these parts, as they stand in the text; and its time.
    labels: Vec<u8>,
    time: Option<i64>,
    series: Vec<u8>,
    metadata: Vec<Metadata>,
}

/// A family, and how far it was read.
struct Family<'a> {
    message: &'a [u8],
    fields: Fields<'a>,
    is_known: bool,
    name: &'a [u8],
    help: &'a [u8],
    unit: &'a [u8],
    kind: u64,
}

impl<'a> Family<'a> {
    fn of(message: &'a [u8]) -> Self {
        let (name, help, unit) = (&b""[..], &b""[..], &b""[..]);
        let fields = Fields::of(message);
        Self { message, fields, is_known: false, name, help, unit, kind: 0 }
    }

    /// Looks at some fields that say what the family is; whether all of them were.
    fn look(&mut self, work: &mut usize) -> Result<bool, String> {
        for _ in 0..FIELDS {
            *work += FIELD;
            match self.fields.next().transpose()? {
                Some((1, Payload::Bytes(name))) => self.name = name,
                Some((2, Payload::Bytes(help))) => self.help = help,
                Some((3, Payload::Number(kind))) => self.kind = kind,
                Some((5, Payload::Bytes(unit))) => self.unit = unit,
                Some(_) => {}
                None => {
                    self.fields = Fields::of(self.message);
                    self.is_known = true;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// What Prometheus calls its type, and the field of a metric that has what it says.
    fn kind(&self) -> Result<(&'static str, u64), String> {
        Ok(match self.kind {
            0 => ("counter", 3),
            1 => ("gauge", 2),
            2 => ("summary", 4),
            3 => ("unknown", 5),
            4 => ("histogram", 7),
            5 => ("gaugehistogram", 7),
            other => return Err(format!("a metric has no type {other}")),
        })
    }
}

impl<'a> Families<'a> {
    pub(super) fn of(body: &'a [u8], histograms: ScrapedHistograms) -> Self {
        Self {
            rest: body,
            histograms,
            family: None,
            metrics: 0,
            parts: Vec::new().into_iter(),
            labels: Vec::new(),
            time: None,
            series: Vec::new(),
            metadata: Vec::new(),
        }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty() && self.family.is_none() && self.parts.as_slice().is_empty()
    }

    pub(super) fn place(&self) -> String {
        let name = self.family.as_ref().map_or(&b""[..], |family| family.name);
        format!("metric {} ({})", self.metrics, Shown(name))
    }

    pub(super) fn take_metadata(&mut self) -> Vec<Metadata> {
        std::mem::take(&mut self.metadata)
    }

    /// Reads on, until there is a sample, or others can have their turn.
    pub(super) fn step(&mut self, work: &mut usize) -> Result<Option<ScrapedSample<'_>>, String> {
        let part = match self.next_part(work) {
            Ok(Some(part)) => part,
            Ok(None) => return Ok(None),
            Err(why) => return Err(format!("{}: {why}", self.place())),
        };
        self.name(&part);
        *work += self.series.len() + LINE;
        let (value, exemplars) = match part {
            Part::Number { value, exemplar, .. } => {
                (ScrapedValue::Float(value), Vec::from_iter(exemplar))
            }
            Part::Native { histogram, exemplars } => {
                (ScrapedValue::Histogram(histogram), exemplars)
            }
        };
        let exemplars = exemplars.into_iter().filter_map(exemplar).collect();
        Ok(Some(ScrapedSample { series: &self.series, value, time: self.time, exemplars }))
    }

    fn next_part(&mut self, work: &mut usize) -> Result<Option<Part<'a>>, String> {
        if let Some(part) = self.parts.next() {
            return Ok(Some(part));
        }
        let Some(family) = &mut self.family else {
            *work += FIELD;
            self.family = self.next_family()?;
            return Ok(None);
        };
        if !family.is_known {
            if family.look(work)? {
                self.describe()?;
            }
            return Ok(None);
        }
        for _ in 0..FIELDS {
            *work += FIELD;
            match family.fields.next().transpose()? {
                Some((4, Payload::Bytes(metric))) => {
                    *work += metric.len();
                    self.metrics += 1;
                    self.take_metric(metric)?;
                    return Ok(self.parts.next());
                }
                Some(_) => {}
                None => {
                    self.family = None;
                    break;
                }
            }
        }
        Ok(None)
    }

    fn next_family(&mut self) -> Result<Option<Family<'a>>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let mut rest = Fields::of(self.rest);
        let message = rest.delimited().ok_or("a family of metrics is cut off")?;
        self.rest = rest.rest();
        Ok(Some(Family::of(message)))
    }

    fn describe(&mut self) -> Result<(), String> {
        let Some(family) = &self.family else { return Ok(()) };
        let (kind, _) = family.kind()?;
        if !family.name.is_empty() && self.metadata.len() < DESCRIBED {
            let Family { name, help, unit, .. } = family;
            self.metadata.push(Metadata::new(name, kind, help, unit));
        }
        Ok(())
    }

    /// Takes a metric apart.
    fn take_metric(&mut self, metric: &'a [u8]) -> Result<(), String> {
        let Some(family) = &self.family else { return Ok(()) };
        if metric.len() > MAX_METRIC_BYTES {
            return Err(format!("the metric has more than {MAX_METRIC_BYTES} bytes"));
        }
        let (kind, wanted) = family.kind()?;
        let mut said = None;
        (self.labels, self.time) = (Vec::new(), None);
        for field in Fields::of(metric) {
            match field? {
                (1, Payload::Bytes(label)) => put_label(label, &mut self.labels)?,
                (6, Payload::Number(0)) => self.time = None,
                (6, Payload::Number(time)) => {
                    let time = (time as i64).checked_mul(1_000_000);
                    self.time = Some(time.ok_or("the time is not between 1677 and 2262")?);
                }
                (number, Payload::Bytes(message)) if number == wanted => said = Some(message),
                _ => {}
            }
            if self.labels.len() + family.name.len() > MAX_LINE_BYTES {
                return Err(format!(
                    "the name and its labels have more than {MAX_LINE_BYTES} bytes"
                ));
            }
        }
        let said = said.ok_or_else(|| format!("it is no {kind}, which its type says"))?;
        let parts = match kind {
            "summary" => distribution::of_summary(said)?,
            "histogram" | "gaugehistogram" => {
                distribution::of_histogram(said, self.histograms, kind == "gaugehistogram")?
            }
            _ => vec![distribution::of_value(said)?],
        };
        self.parts = parts.into_iter();
        Ok(())
    }

    /// Puts the series of a part together, as it stands in the text.
    fn name(&mut self, part: &Part<'_>) {
        let Self { series, family, labels, .. } = self;
        let name = family.as_ref().map_or(&b""[..], |family| family.name);
        let (suffix, label) = match part {
            Part::Number { suffix, label, .. } => (*suffix, label.as_ref()),
            Part::Native { .. } => ("", None),
        };
        series.clear();
        let is_plain = is_plain(name, b":");
        if is_plain {
            series.extend_from_slice(name);
            series.extend_from_slice(suffix.as_bytes());
        }
        if is_plain && labels.is_empty() && label.is_none() {
            return;
        }
        series.push(b'{');
        if !is_plain {
            put_quoted(&[name, suffix.as_bytes()].concat(), series);
            series.push(b',');
        }
        series.extend_from_slice(labels);
        if let Some((label, value)) = label {
            series.extend_from_slice(label.as_bytes());
            series.push(b'=');
            put_quoted(value.as_bytes(), series);
        } else if series.last() == Some(&b',') {
            series.pop();
        }
        series.push(b'}');
    }
}

/// Whether a name stands in the text without quotes.
fn is_plain(name: &[u8], besides: &[u8]) -> bool {
    let is_plain =
        |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || besides.contains(byte);
    name.first().is_some_and(|first| !first.is_ascii_digit()) && name.iter().all(is_plain)
}

fn put_quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            other => out.push(*other),
        }
    }
    out.push(b'"');
}

/// Appends a label with a comma behind it.
fn put_label(message: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let (name, value) = distribution::label(message)?;
    match is_plain(name, b"") {
        true => out.extend_from_slice(name),
        false => put_quoted(name, out),
    }
    out.push(b'=');
    put_quoted(value, out);
    out.push(b',');
    Ok(())
}
