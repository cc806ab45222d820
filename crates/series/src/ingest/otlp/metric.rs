//! What stands at the head of a metric's points: what it is called, and what they mean.

use super::attributes::utf8;
use super::head::{Kind, MetricHead};
use super::names::{self, Suffix};
use std::ops::Range;

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

    /// The metric of a head, and where its points are; `None` if it has none.
    pub(super) fn of(bytes: &[u8], head: MetricHead) -> Option<(Self, Range<usize>)> {
        let (kind, points) = head.data?;
        let MetricHead { temporality, is_monotonic, .. } = head;
        let text = |place: &Range<usize>| &bytes[place.clone()];
        let (name, about, unit) = (text(&head.name), text(&head.description), text(&head.unit));
        let has_temporality = matches!(kind, Kind::Sum | Kind::Histogram | Kind::Exponential);
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
        if has_temporality && ![DELTA, CUMULATIVE].contains(&temporality) {
            metric.refused = Some(format!("the temporality is neither of the two: {shown}"));
        }
        Some((metric, points))
    }
}

fn translated(name: &[u8], unit: &[u8], suffix: Suffix) -> Result<String, String> {
    if name.len() + unit.len() > MAX_NAME {
        return Err(format!("a name of more than {MAX_NAME} bytes"));
    }
    let (name, unit) = (utf8(name)?, utf8(unit)?);
    names::metric(name, unit, suffix).ok_or_else(|| format!("nothing is left of the name {name:?}"))
}
