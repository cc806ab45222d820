//! Series as Prometheus' storage gives them back: histograms with the hints that it makes up, and
//! of classic histograms native ones with custom buckets, where a file asks for these.
//!
//! Prometheus keeps histograms in chunks. A histogram that isn't the first of its chunk is told not
//! to begin again, and one begins a chunk where it may: its counts fall, or its buckets are others.

use super::script::{self, Point, labels, points};
use plinth_promql::{CUSTOM, Histogram, Labels, Memory, Parts, ResetHint, STALE, Span};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What was loaded.
#[derive(Default)]
pub struct Store {
    pub memory: Memory,
}

impl Store {
    /// Loads lines of series; those that aren't understood are told.
    pub fn load(&mut self, lines: &[&str], step: i64, is_nhcb: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut classic = Classic::default();
        for line in lines {
            let Some((labels, points)) =
                labels(line).and_then(|(labels, rest)| Some((labels, points(rest)?)))
            else {
                wrong.push((*line).to_string());
                continue;
            };
            let times = (0..).map(|place| step * place);
            let points: Vec<(i64, Point)> = times.zip(points).collect();
            if is_nhcb {
                classic.add(&labels, &points);
            }
            self.series(&labels, points);
        }
        for (labels, histograms) in classic.histograms() {
            self.series(&labels, histograms);
        }
        wrong
    }

    fn series(&mut self, labels: &Labels, points: Vec<(i64, Point)>) {
        // The last histogram of the chunk.
        let mut last: Option<Histogram> = None;
        for (time, point) in points {
            match point {
                Point::Left => {}
                Point::Float(value) => {
                    self.memory.add(labels, time, value);
                    last = None;
                }
                Point::Histogram(literal) => {
                    let histogram = literal.histogram;
                    let hint = match (histogram.hint(), &last) {
                        (ResetHint::Gauge, _) => ResetHint::Gauge,
                        (ResetHint::Reset, _) | (_, None) => ResetHint::Unknown,
                        (_, Some(last)) if !goes_on(last, &histogram) => ResetHint::Unknown,
                        _ => ResetHint::NotReset,
                    };
                    let histogram = histogram.with_hint(hint);
                    self.memory.add_histogram(labels, time, Arc::new(histogram.clone()));
                    last = Some(histogram);
                }
            }
        }
    }
}

/// Whether a histogram goes into the chunk of another.
fn goes_on(last: &Histogram, next: &Histogram) -> bool {
    if last.hint() == ResetHint::Gauge {
        return false;
    }
    let (last, next) = (last.parts(), next.parts());
    let grows = |spans: (&[Span], &[Span]), counts: (&[f64], &[f64])| {
        let next: BTreeMap<i32, f64> = indexes(spans.1).zip(counts.1.iter().copied()).collect();
        let mut last = indexes(spans.0).zip(counts.0);
        last.all(|(index, count)| next.get(&index).is_some_and(|next| next >= count))
    };
    next.count >= last.count
        && next.schema == last.schema
        && next.zero_threshold == last.zero_threshold
        && next.bounds == last.bounds
        && next.zero_count >= last.zero_count
        && grows((&last.positive_spans, &next.positive_spans), (&last.positive, &next.positive))
        && grows((&last.negative_spans, &next.negative_spans), (&last.negative, &next.negative))
}

fn indexes(spans: &[Span]) -> impl Iterator<Item = i32> {
    let mut index = 0;
    spans.iter().flat_map(move |span| {
        let first = index + span.offset;
        index = first + span.length as i32;
        first..index
    })
}

/// Classic histograms by their labels and times.
#[derive(Default)]
struct Classic(BTreeMap<Labels, BTreeMap<i64, Observed>>);

#[derive(Default)]
struct Observed {
    /// Counts by their bounds.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: f64,
}

impl Classic {
    fn add(&mut self, labels: &Labels, points: &[(i64, Point)]) {
        let metric = labels.metric();
        let ends = ["_bucket", "_count", "_sum"];
        let Some(end) = ends.into_iter().find(|end| metric.ends_with(end)) else { return };
        let bound = match labels.get("le") {
            "+Inf" | "+inf" | "Inf" => Some(f64::INFINITY),
            text => text.parse::<f64>().ok().filter(|bound| !bound.is_nan()),
        };
        let base = &metric[..metric.len() - end.len()];
        let all = self.0.entry(labels.with("le", "").with("__name__", base)).or_default();
        for (time, point) in points {
            let Point::Float(value) = point else { continue };
            if value.to_bits() == STALE {
                continue;
            }
            let observed = all.entry(*time).or_default();
            match (end, bound) {
                ("_count", _) => observed.count = Some(*value),
                ("_sum", _) => observed.sum = *value,
                (_, Some(bound)) if !observed.buckets.iter().any(|(b, _)| *b == bound) => {
                    observed.buckets.push((bound, *value));
                }
                _ => {}
            }
        }
    }

    fn histograms(self) -> impl Iterator<Item = (Labels, Vec<(i64, Point)>)> {
        self.0.into_iter().map(|(labels, all)| {
            let points = all.into_iter().filter_map(|(time, observed)| {
                let histogram = observed.histogram()?;
                let literal = script::histogram::Literal { histogram, has_hint: false };
                Some((time, Point::Histogram(literal)))
            });
            (labels, points.collect())
        })
    }
}

impl Observed {
    fn histogram(mut self) -> Option<Histogram> {
        self.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let highest = self.buckets.last().map(|(_, count)| *count);
        let count = self.count.or(highest)?;
        if self.buckets.last().is_none_or(|(bound, _)| *bound != f64::INFINITY) {
            self.buckets.push((f64::INFINITY, count));
        }
        let mut before = 0.0;
        let counts =
            self.buckets.iter().map(|(_, count)| count - std::mem::replace(&mut before, *count));
        let positive: Vec<f64> = counts.collect();
        let bounds = self.buckets.iter().map(|(bound, _)| *bound);
        Histogram::new(Parts {
            schema: CUSTOM,
            count,
            sum: self.sum,
            positive_spans: vec![Span { offset: 0, length: positive.len() as u32 }],
            positive,
            bounds: bounds.filter(|bound| *bound != f64::INFINITY).collect(),
            ..Parts::default()
        })
        .ok()
    }
}
