//! What stands at the head of a metric's points: what it is called, and what they mean.

use super::super::protobuf::{Fields, Payload};
use super::attributes::utf8;
use super::names::{self, Suffix};
use std::ops::Range;

/// What points mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Gauge,
    Sum,
    Histogram,
    Exponential,
    Summary,
}

/// A metric without its points.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: String,
    /// What it is about, and its unit, as far as they are kept.
    pub(super) description: Vec<u8>,
    pub(super) unit: Vec<u8>,
    pub(super) kind: Kind,
    /// Whether it only grows, as a sum may.
    pub(super) is_monotonic: bool,
    /// Whether its points are what was added since the one before.
    pub(super) is_delta: bool,
    /// Why none of its points is taken.
    pub(super) refused: Option<String>,
}

const CUMULATIVE: u64 = 2;
const DELTA: u64 = 1;
/// Longest name and unit that are looked at.
const MAX_NAME: usize = crate::MAX_NAME_BYTES;

impl Metric {
    /// Its type, as Prometheus calls it.
    pub(super) fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Sum if self.is_monotonic => "counter",
            Kind::Gauge | Kind::Sum => "gauge",
            Kind::Histogram | Kind::Exponential => "histogram",
            Kind::Summary => "summary",
        }
    }

    /// The metric of a message, and where in it its points are; `None` if it has none.
    ///
    /// # Errors
    /// If it is no message.
    pub(super) fn of(message: &[u8]) -> Result<Option<(Self, Range<usize>)>, String> {
        let (mut name, mut unit, mut about, mut data) = (&b""[..], &b""[..], &b""[..], None);
        let mut fields = Fields::of(message);
        while let Some(field) = fields.next() {
            let (number, Payload::Bytes(bytes)) = field? else { continue };
            let end = message.len() - fields.rest().len();
            let kind = match number {
                1 => {
                    name = bytes;
                    continue;
                }
                2 => {
                    about = bytes;
                    continue;
                }
                3 => {
                    unit = bytes;
                    continue;
                }
                5 => Kind::Gauge,
                7 => Kind::Sum,
                9 => Kind::Histogram,
                10 => Kind::Exponential,
                11 => Kind::Summary,
                _ => continue,
            };
            data = Some((kind, end - bytes.len()..end));
        }
        let Some((kind, points)) = data else { return Ok(None) };
        let (mut temporality, mut is_monotonic) = (0, false);
        for field in Fields::of(&message[points.clone()]) {
            match field? {
                (2, Payload::Number(number)) => temporality = number,
                (3, Payload::Number(number)) => is_monotonic = number != 0,
                _ => {}
            }
        }
        let has_temporality = matches!(kind, Kind::Sum | Kind::Histogram);
        let suffix = match kind {
            Kind::Sum if is_monotonic => Suffix::Total,
            Kind::Gauge => Suffix::Ratio,
            _ => Suffix::None,
        };
        let mut metric = Self {
            name: String::new(),
            description: about[..about.len().min(MAX_NAME)].to_vec(),
            unit: unit[..unit.len().min(MAX_NAME)].to_vec(),
            kind,
            is_monotonic,
            is_delta: has_temporality && temporality == DELTA,
            refused: None,
        };
        match translated(name, unit, suffix) {
            Ok(name) => metric.name = name,
            Err(why) => metric.refused = Some(why),
        }
        let shown = String::from_utf8_lossy(&name[..name.len().min(120)]);
        if kind == Kind::Exponential {
            let why =
                format!("exponential histograms are not kept, send explicit buckets: {shown}");
            metric.refused = Some(why);
        } else if has_temporality && ![DELTA, CUMULATIVE].contains(&temporality) {
            metric.refused = Some(format!("the temporality is neither of the two: {shown}"));
        }
        Ok(Some((metric, points)))
    }
}

fn translated(name: &[u8], unit: &[u8], suffix: Suffix) -> Result<String, String> {
    if name.len() + unit.len() > MAX_NAME {
        return Err(format!("a name of more than {MAX_NAME} bytes"));
    }
    let (name, unit) = (utf8(name)?, utf8(unit)?);
    names::metric(name, unit, suffix).ok_or_else(|| format!("nothing is left of the name {name:?}"))
}
