//! What a metric of a message says: a value, a summary, or a histogram, as the parts of which each
//! is a sample.
//!
//! ```text
//!   summary     1: count   2: sum   3: quantile (1: quantile, 2: value) ..
//!   histogram   1: count, or 4: a float   2: sum   3: bucket (1: count up to and with it, or 4: a float, 2: bound, 3: exemplar) ..
//!               5: schema   6: zero threshold   7: zero count, or 8: a float
//!               9: spans below 0, 10: deltas, or 11: counts   12: spans above 0, 13: deltas, or 14: counts   16: exemplar ..
//!   exemplar    1: label (1: name, 2: value) ..   2: value   3: time (1: seconds, 2: nanoseconds)
//! ```
//!
//! Which of two counts is meant is told by the floats: they are, where one is above 0.

use super::super::buckets::{Buckets, MAX_BUCKETS, narrow};
use super::super::protobuf::{Fields, Payload};
use super::{ScrapedExemplar, ScrapedHistograms};
use crate::exemplar::{Exemplar, MAX_LABELS};
use plinth_promql::{Histogram, Parts, ResetHint, format_short};

/// Exemplars of a native histogram, at most.
const MAX_EXEMPLARS: usize = 64;

/// What becomes a sample. Exemplars are as they stand in the message.
pub(super) enum Part<'a> {
    Number {
        /// What stands behind the name of the metric.
        suffix: &'static str,
        label: Option<(&'static str, String)>,
        value: f64,
        exemplar: Option<&'a [u8]>,
    },
    Native {
        histogram: Histogram,
        exemplars: Vec<&'a [u8]>,
    },
}

impl Part<'_> {
    fn plain(suffix: &'static str, value: f64) -> Self {
        Self::Number { suffix, label: None, value, exemplar: None }
    }
}

/// The part of a counter, a gauge, or a metric without a type.
pub(super) fn of_value(message: &[u8]) -> Result<Part<'_>, String> {
    let (mut value, mut exemplar) = (0.0, None);
    for field in Fields::of(message) {
        match field? {
            (1, Payload::Eight(bits)) => value = f64::from_bits(bits),
            (2, Payload::Bytes(message)) => exemplar = Some(message),
            _ => {}
        }
    }
    Ok(Part::Number { suffix: "", label: None, value, exemplar })
}

/// The parts of a summary.
pub(super) fn of_summary(message: &[u8]) -> Result<Vec<Part<'_>>, String> {
    let (mut count, mut sum, mut parts) = (0, 0.0, Vec::new());
    for field in Fields::of(message) {
        match field? {
            (1, Payload::Number(number)) => count = number,
            (2, Payload::Eight(bits)) => sum = f64::from_bits(bits),
            (3, Payload::Bytes(_)) if parts.len() == MAX_BUCKETS => {
                return Err(format!("a summary has more than {MAX_BUCKETS} quantiles"));
            }
            (3, Payload::Bytes(message)) => parts.push(quantile(message)?),
            _ => {}
        }
    }
    parts.extend([Part::plain("_sum", sum), Part::plain("_count", count as f64)]);
    Ok(parts)
}

fn quantile(message: &[u8]) -> Result<Part<'_>, String> {
    let (mut quantile, mut value) = (0.0, 0.0);
    for field in Fields::of(message) {
        match field? {
            (1, Payload::Eight(bits)) => quantile = f64::from_bits(bits),
            (2, Payload::Eight(bits)) => value = f64::from_bits(bits),
            _ => {}
        }
    }
    let label = Some(("quantile", bound_text(quantile)));
    Ok(Part::Number { suffix: "", label, value, exemplar: None })
}

/// A count that may be a float.
#[derive(Default)]
struct Count {
    integer: u64,
    float: f64,
}

impl Count {
    fn is_float(&self) -> bool {
        self.float > 0.0
    }

    fn value(&self) -> f64 {
        if self.is_float() { self.float } else { self.integer as f64 }
    }
}

/// A histogram as it is read.
#[derive(Default)]
struct Read<'a> {
    count: Count,
    sum: f64,
    schema: i32,
    zero_threshold: f64,
    zero_count: Count,
    above: Buckets,
    below: Buckets,
    classic: Vec<Bucket<'a>>,
    exemplars: Vec<&'a [u8]>,
}

/// A bucket of a classic histogram.
#[derive(Default)]
struct Bucket<'a> {
    bound: f64,
    count: Count,
    exemplar: Option<&'a [u8]>,
}

/// The parts of a histogram: of the native one, of the classic one, or of both.
pub(super) fn of_histogram(
    message: &[u8],
    histograms: ScrapedHistograms,
    is_gauge: bool,
) -> Result<Vec<Part<'_>>, String> {
    let read = Read::of(message)?;
    let takes_native = histograms.native && read.is_native();
    let takes_classic = !takes_native || (histograms.classic_too && !read.classic.is_empty());
    let mut parts = if takes_classic { read.classic() } else { Vec::new() };
    if takes_native {
        parts.push(read.native(is_gauge)?);
    }
    Ok(parts)
}

impl<'a> Read<'a> {
    fn of(message: &'a [u8]) -> Result<Self, String> {
        let mut read = Self::default();
        for field in Fields::of(message) {
            match field? {
                (1, Payload::Number(count)) => read.count.integer = count,
                (2, Payload::Eight(bits)) => read.sum = f64::from_bits(bits),
                (3, Payload::Bytes(_)) if read.classic.len() == MAX_BUCKETS => {
                    return Err(format!("a histogram has more than {MAX_BUCKETS} buckets"));
                }
                (3, Payload::Bytes(bucket)) => read.classic.push(Bucket::of(bucket)?),
                (4, Payload::Eight(bits)) => read.count.float = f64::from_bits(bits),
                (5, Payload::Number(schema)) => read.schema = narrow(schema)?,
                (6, Payload::Eight(bits)) => read.zero_threshold = f64::from_bits(bits),
                (7, Payload::Number(count)) => read.zero_count.integer = count,
                (8, Payload::Eight(bits)) => read.zero_count.float = f64::from_bits(bits),
                (9, Payload::Bytes(span)) => read.below.take_span(span)?,
                (10, payload) => read.below.take_deltas(payload)?,
                (11, payload) => read.below.take_counts(payload)?,
                (12, Payload::Bytes(span)) => read.above.take_span(span)?,
                (13, payload) => read.above.take_deltas(payload)?,
                (14, payload) => read.above.take_counts(payload)?,
                (16, Payload::Bytes(exemplar)) if read.exemplars.len() < MAX_EXEMPLARS => {
                    read.exemplars.push(exemplar);
                }
                _ => {}
            }
        }
        Ok(read)
    }

    /// Whether it has anything that only a native one has. One without observations says so by a
    /// span of no buckets.
    fn is_native(&self) -> bool {
        self.above.has_spans()
            || self.below.has_spans()
            || self.zero_threshold > 0.0
            || self.zero_count.value() > 0.0
    }

    fn classic(&self) -> Vec<Part<'a>> {
        let mut parts = Vec::with_capacity(self.classic.len() + 3);
        let mut put = |bound, value, exemplar| {
            let label = Some(("le", bound_text(bound)));
            parts.push(Part::Number { suffix: "_bucket", label, value, exemplar });
        };
        for Bucket { bound, count, exemplar } in &self.classic {
            put(*bound, count.value(), *exemplar);
        }
        let count = self.count.value();
        if self.classic.iter().all(|bucket| bucket.bound != f64::INFINITY) {
            put(f64::INFINITY, count, None);
        }
        parts.extend([Part::plain("_sum", self.sum), Part::plain("_count", count)]);
        parts
    }

    /// The native one, with exemplars that say of when they are: its own, or else its buckets'.
    fn native(self, is_gauge: bool) -> Result<Part<'a>, String> {
        let are_floats = self.count.is_float() || self.zero_count.is_float();
        let (positive_spans, positive) = self.above.counts(are_floats);
        let (negative_spans, negative) = self.below.counts(are_floats);
        let count = |count: &Count| if are_floats { count.float } else { count.integer as f64 };
        let histogram = Histogram::new(Parts {
            hint: if is_gauge { ResetHint::Gauge } else { ResetHint::Unknown },
            schema: self.schema,
            zero_threshold: self.zero_threshold,
            zero_count: count(&self.zero_count),
            count: count(&self.count),
            sum: self.sum,
            positive_spans,
            positive,
            negative_spans,
            negative,
            bounds: Vec::new(),
        })?;
        let mut exemplars = self.exemplars;
        if exemplars.is_empty() {
            exemplars = self.classic.iter().filter_map(|bucket| bucket.exemplar).collect();
        }
        exemplars.retain(|message| exemplar(message).is_some_and(|it| it.time.is_some()));
        exemplars.truncate(MAX_EXEMPLARS);
        Ok(Part::Native { histogram, exemplars })
    }
}

impl<'a> Bucket<'a> {
    fn of(message: &'a [u8]) -> Result<Self, String> {
        let mut bucket = Self::default();
        for field in Fields::of(message) {
            match field? {
                (1, Payload::Number(count)) => bucket.count.integer = count,
                (2, Payload::Eight(bits)) => bucket.bound = f64::from_bits(bits),
                (3, Payload::Bytes(exemplar)) => bucket.exemplar = Some(exemplar),
                (4, Payload::Eight(bits)) => bucket.count.float = f64::from_bits(bits),
                _ => {}
            }
        }
        Ok(bucket)
    }
}

/// The exemplar of a message; `None` if it is none, or longer than is kept.
pub(super) fn exemplar(message: &[u8]) -> Option<ScrapedExemplar> {
    let (mut exemplar, mut time) = (Exemplar::default(), None);
    for field in Fields::of(message) {
        match field.ok()? {
            (1, Payload::Bytes(_)) if exemplar.labels.len() == MAX_LABELS => return None,
            (1, Payload::Bytes(message)) => {
                let (name, value) = label(message).ok()?;
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
                exemplar.labels.push((text(name)?, text(value)?));
            }
            (2, Payload::Eight(bits)) => exemplar.value = f64::from_bits(bits),
            (3, Payload::Bytes(message)) => time = Some(timestamp(message)?),
            _ => {}
        }
    }
    exemplar.fits().then_some(ScrapedExemplar { exemplar, time })
}

fn timestamp(message: &[u8]) -> Option<i64> {
    let (mut seconds, mut nanoseconds) = (0_i64, 0_i64);
    for field in Fields::of(message) {
        match field.ok()? {
            (1, Payload::Number(number)) => seconds = number as i64,
            (2, Payload::Number(number)) => nanoseconds = number as i64,
            _ => {}
        }
    }
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// The name and the value of a label.
pub(super) fn label(message: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let (mut name, mut value) = (&b""[..], &b""[..]);
    for field in Fields::of(message) {
        match field? {
            (1, Payload::Bytes(text)) => name = text,
            (2, Payload::Bytes(text)) => value = text,
            _ => {}
        }
    }
    Ok((name, value))
}

/// A bound, or a quantile, as it stands in a label of OpenMetrics: a number always looks like a
/// float.
fn bound_text(bound: f64) -> String {
    // Of -0 it says 0.
    let mut text = format_short(bound + 0.0);
    if bound.is_finite() && !text.contains(['.', 'e']) {
        text.push_str(".0");
    }
    text
}
