//! Points of one metric: gauges and sums are a series each; a histogram is its buckets, which count
//! all that is below their `le`, its sum and its count; a summary its quantiles, sum and count.
//!
//! An exponential histogram is a native one. Exemplars are those of their point's series, or of the
//! bucket that counted them.
//!
//! A point is taken with all of its samples, or nothing of it. What its series are called is looked
//! up as the bytes that were sent, so names are put together for those alone that are new.

use super::super::Sample;
use super::super::intake::{Intake, Shown};
use super::super::protobuf::{Fields, Payload, eights};
use super::attributes::{Attributes, Labels};
use super::exemplar;
use super::exponential::Exponential;
use super::head::Kind;
use super::metric::Metric;
use super::resource::Resource;
use super::scope::Scope;
use crate::record;
use crate::value::Value;
use plinth_promql::STALE;

/// Bytes of a point: it is read at once.
pub(super) const MAX_POINT_BYTES: usize = 1 << 20;
/// Buckets of a histogram, and quantiles of a summary, at most: each is a series.
const MAX_BUCKETS: usize = 1000;
/// Bytes of a point's attributes: each of its series is looked up by all of them, and a name has
/// no room for more.
const MAX_ATTRIBUTES: usize = 2 * crate::MAX_NAME_BYTES;
/// What a key of names begins with here: no other protocol's can.
const OURS: [u8; 4] = [0xff; 4];
/// The flag of a point without a value: its series ends.
const NO_RECORDED_VALUE: u64 = 1;

/// What all kinds of points have.
struct Point<'a> {
    attributes: Attributes<'a>,
    time: i64,
    is_end: bool,
}

/// Reads what all kinds have, and gives what is left.
fn read<'a>(
    point: &'a [u8],
    (attributes, flags): (u64, u64),
    mut other: impl FnMut(u64, Payload<'a>) -> Result<(), String>,
) -> Result<Point<'a>, String> {
    let mut read = Point { attributes: Attributes::default(), time: 0, is_end: false };
    let mut time = 0;
    for field in Fields::of(point) {
        match field? {
            (3, Payload::Eight(nanoseconds)) => time = nanoseconds,
            (number, Payload::Bytes(attribute)) if number == attributes => {
                read.attributes.push(attribute)?;
                if read.attributes.bytes() > MAX_ATTRIBUTES {
                    return Err(format!("attributes of more than {MAX_ATTRIBUTES} bytes"));
                }
            }
            (number, Payload::Number(bits)) if number == flags => {
                read.is_end = bits & NO_RECORDED_VALUE != 0;
            }
            (number, payload) => other(number, payload)?,
        }
    }
    read.time = i64::try_from(time).map_err(|_| "its time is beyond 2262")?;
    if time == 0 {
        return Err("it has no time".to_owned());
    }
    Ok(read)
}

/// Where the samples of one point go.
pub(super) struct Taker<'a> {
    pub(super) intake: &'a mut Intake,
    pub(super) metric: &'a Metric,
    pub(super) resource: &'a mut Resource,
    pub(super) scope: &'a Scope,
    /// What the names of the point's series are looked up as; its memory is used again.
    pub(super) key: &'a mut Vec<u8>,
    /// How many names were looked up, be the point taken or not.
    pub(super) looked_up: usize,
}

impl Taker<'_> {
    /// Takes a point.
    ///
    /// # Errors
    /// Why it is refused: nothing of it was taken then.
    pub(super) fn take(&mut self, point: &[u8]) -> Result<(), String> {
        let begin = self.intake.mark();
        let taken = match self.metric.kind {
            Kind::Gauge | Kind::Sum => self.number(point),
            Kind::Histogram => self.histogram(point),
            Kind::Summary => self.summary(point),
            Kind::Exponential => self.exponential(point),
        };
        match taken {
            Ok(time) => self.resource.latest = self.resource.latest.max(Some(time)),
            Err(_) => self.intake.go_back(begin),
        }
        taken.map(|_| ())
    }

    fn number(&mut self, point: &[u8]) -> Result<i64, String> {
        let (mut value, mut exemplars) = (None, Vec::new());
        let point = read(point, (7, 8), |number, payload| {
            match (number, payload) {
                (5, Payload::Bytes(exemplar)) => exemplars.push(exemplar),
                (4, Payload::Eight(bits)) => value = Some(Value::Float(f64::from_bits(bits))),
                (6, Payload::Eight(bits)) => value = Some(Value::Integer(bits as i64)),
                _ => {}
            }
            Ok(())
        })?;
        let value = value.filter(|_| !point.is_end);
        if value.is_none() && !point.is_end {
            return Err("it has no value".to_owned());
        }
        let mut naming = self.naming(&point);
        let series = self.push(&mut naming, &point, ("", None), value)?;
        for exemplar in exemplars {
            exemplar::take(self.intake, exemplar, |_| series);
        }
        Ok(point.time)
    }

    fn histogram(&mut self, point: &[u8]) -> Result<i64, String> {
        let (mut count, mut sum) = (0, None);
        let (mut counts, mut bounds, mut exemplars) = (Vec::new(), Vec::new(), Vec::new());
        let point = read(point, (9, 10), |number, payload| {
            match (number, payload) {
                (8, Payload::Bytes(exemplar)) => exemplars.push(exemplar),
                (4, Payload::Eight(bits)) => count = bits,
                (5, Payload::Eight(bits)) => sum = Some(f64::from_bits(bits)),
                (6, payload) => eights(payload, |bits| counts.push(bits)),
                (7, payload) => eights(payload, |bits| bounds.push(f64::from_bits(bits))),
                _ => {}
            }
            if counts.len().max(bounds.len()) > MAX_BUCKETS + 1 {
                return Err(format!("a histogram has more than {MAX_BUCKETS} buckets"));
            }
            Ok(())
        })?;
        let known = |value: Value| (!point.is_end).then_some(value);
        let mut naming = self.naming(&point);
        if let Some(sum) = sum {
            self.push(&mut naming, &point, ("_sum", None), known(Value::Float(sum)))?;
        }
        self.push(&mut naming, &point, ("_count", None), known(counted(count)))?;
        let (mut below, mut buckets) = (0_u64, Vec::with_capacity(bounds.len()));
        for (bound, count) in bounds.iter().zip(&counts) {
            below = below.saturating_add(*count);
            let text = bound_text(*bound);
            let bucket = ("_bucket", Some(("le", &text[..])));
            let series = self.push(&mut naming, &point, bucket, known(counted(below)))?;
            buckets.push((*bound, series));
        }
        let all = ("_bucket", Some(("le", "+Inf")));
        let last = self.push(&mut naming, &point, all, known(counted(count)))?;
        for exemplar in exemplars {
            exemplar::take(self.intake, exemplar, |value| {
                let bucket = buckets.iter().find(|(bound, _)| value <= *bound);
                bucket.map_or(last, |(_, series)| *series)
            });
        }
        Ok(point.time)
    }

    fn exponential(&mut self, point: &[u8]) -> Result<i64, String> {
        let (mut read_of, mut exemplars) = (Exponential::default(), Vec::new());
        let point = read(point, (1, 10), |number, payload| match (number, payload) {
            (11, Payload::Bytes(exemplar)) => {
                exemplars.push(exemplar);
                Ok(())
            }
            (number, payload) => read_of.take(number, payload),
        })?;
        let mut naming = self.naming(&point);
        let series = match point.is_end {
            true => self.push(&mut naming, &point, ("", None), None)?,
            false => {
                let histogram = read_of.histogram()?;
                let series = self.series(&mut naming, &point, ("", None))?;
                match self.metric.is_delta {
                    true => self.intake.take_increment(series, point.time, histogram),
                    false => self.intake.take_histogram(
                        (series, record::Kind::Histogram),
                        point.time,
                        &histogram,
                    )?,
                }
                series
            }
        };
        for exemplar in exemplars {
            exemplar::take(self.intake, exemplar, |_| series);
        }
        Ok(point.time)
    }

    fn summary(&mut self, point: &[u8]) -> Result<i64, String> {
        let (mut count, mut sum, mut quantiles) = (0, 0.0, Vec::new());
        let point = read(point, (7, 8), |number, payload| {
            match (number, payload) {
                (4, Payload::Eight(bits)) => count = bits,
                (5, Payload::Eight(bits)) => sum = f64::from_bits(bits),
                (6, Payload::Bytes(_)) if quantiles.len() == MAX_BUCKETS => {
                    return Err(format!("a summary has more than {MAX_BUCKETS} quantiles"));
                }
                (6, Payload::Bytes(quantile)) => quantiles.push(quantile_of(quantile)?),
                _ => {}
            }
            Ok(())
        })?;
        let known = |value: Value| (!point.is_end).then_some(value);
        let mut naming = self.naming(&point);
        self.push(&mut naming, &point, ("_sum", None), known(Value::Float(sum)))?;
        self.push(&mut naming, &point, ("_count", None), known(counted(count)))?;
        for (quantile, value) in quantiles {
            let quantile = bound_text(quantile);
            let of = ("", Some(("quantile", &quantile[..])));
            self.push(&mut naming, &point, of, known(Value::Float(value)))?;
        }
        Ok(point.time)
    }

    /// Begins a point's key: whose it is, and what is known of it.
    fn naming(&mut self, point: &Point<'_>) -> Option<Labels> {
        self.key.clear();
        self.key.extend_from_slice(&OURS);
        let texts = [&self.metric.name, &self.resource.job, &self.resource.instance];
        let texts = texts.map(|text| text.as_bytes()).into_iter().chain([&self.scope.key[..]]);
        for text in texts.chain(point.attributes.iter()) {
            // With lengths, so that they can't be taken for each other.
            self.key.extend_from_slice(&(text.len() as u32).to_le_bytes());
            self.key.extend_from_slice(text);
        }
        None
    }

    /// Takes one of a point's samples, for the series of the metric and this suffix, with a label
    /// more perhaps. Without a value the series ends. Gives the series.
    fn push(
        &mut self,
        labels: &mut Option<Labels>,
        point: &Point<'_>,
        of: (&str, Option<(&str, &str)>),
        value: Option<Value>,
    ) -> Result<u32, String> {
        let target = self.series(labels, point, of)?;
        let sample = |value| Sample { target, time: point.time, value };
        match value {
            Some(value) if self.metric.is_delta => self.intake.increments.push(sample(value)),
            Some(value) => self.intake.samples.push(sample(value)),
            // Increments that don't come say nothing of what was counted.
            None if self.metric.is_delta => {}
            None => self.intake.samples.push(sample(Value::Float(f64::from_bits(STALE)))),
        }
        Ok(target)
    }

    /// The series of the metric and a suffix, with a label more perhaps.
    fn series(
        &mut self,
        labels: &mut Option<Labels>,
        point: &Point<'_>,
        (suffix, label): (&str, Option<(&str, &str)>),
    ) -> Result<u32, String> {
        self.looked_up += 1;
        let len = self.key.len();
        let (name, text) = label.unwrap_or_default();
        for part in [suffix, "\0", name, "\0", text] {
            self.key.extend_from_slice(part.as_bytes());
        }
        let found = self.intake.names.find(self.key, b"");
        let row = match found {
            Some(row) => Ok(row),
            None => self.name(labels, point, suffix, label),
        };
        self.key.truncate(len);
        row.map(|row| row.first)
    }

    /// Puts the name of a series together.
    #[cold]
    fn name(
        &mut self,
        labels: &mut Option<Labels>,
        point: &Point<'_>,
        suffix: &str,
        label: Option<(&str, &str)>,
    ) -> Result<super::super::names::Row, String> {
        let labels = match labels {
            Some(labels) => labels,
            None => {
                let mut all = Labels::of(&point.attributes.texts()?)?;
                self.scope.label(&mut all);
                self.resource.label(&mut all);
                let Metric { name, description, unit, .. } = self.metric;
                let kind = self.metric.type_name();
                self.intake.describe(name.as_bytes(), kind, description, unit);
                labels.insert(all)
            }
        };
        let tags = labels.tags(label);
        let metric = format!("{}{suffix}", self.metric.name);
        let added = self.intake.names.insert(self.key, b"", metric.as_bytes(), &tags);
        added.map_err(|error| match error {
            crate::Error::Name { why, .. } => {
                format!("no name of a series: {why}: {metric}{}", Shown(&tags))
            }
            other => other.to_string(),
        })
    }
}

/// A count, which is an integer as long as it fits.
fn counted(count: u64) -> Value {
    i64::try_from(count).map_or(Value::Float(count as f64), Value::Integer)
}

fn quantile_of(message: &[u8]) -> Result<(f64, f64), String> {
    let (mut quantile, mut value) = (0.0, 0.0);
    for field in Fields::of(message) {
        match field? {
            (1, Payload::Eight(bits)) => quantile = f64::from_bits(bits),
            (2, Payload::Eight(bits)) => value = f64::from_bits(bits),
            _ => {}
        }
    }
    Ok((quantile, value))
}

/// A bound as Prometheus writes it in a label.
fn bound_text(bound: f64) -> String {
    match bound {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        bound => bound.to_string(),
    }
}
