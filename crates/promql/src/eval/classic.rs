//! Quantiles and fractions of histograms whose buckets are series of their own, told apart by `le`,
//! and of native ones beside them.
//!
//! Series that differ in nothing else are one histogram. Its counts ascend with the bounds, or are
//! made to; who reads the answer is told if more than rounding was mended. Where a classic and a
//! native one have the same labels at a step neither is looked at.

use super::column::{ABSENT, Column};
use super::dates::rfc3339;
use super::native::values::numbers;
use crate::annotations::Annotations;
use crate::format_value;
use crate::labels::Labels;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// How far two counts may be apart that rounding alone made different.
const TOLERANCE: f64 = 1e-12;

/// Observations up to a bound.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    bound: f64,
    count: f64,
}

/// What is asked of a histogram.
#[derive(Clone, Copy)]
pub(super) enum Asked<'a> {
    /// A quantile a step.
    Quantile(&'a [f64]),
    /// How much lies between two numbers, which are there for each step.
    Fraction(&'a [f64], &'a [f64]),
}

/// Counts that had to be changed because they fell from one bucket to the next.
struct Fixed {
    buckets: (f64, f64),
    difference: f64,
    count: usize,
    times: (i64, i64),
}

/// A value a step for each histogram among series. `time` gives that of a step.
pub(super) fn histograms(
    columns: Vec<Column>,
    asked: Asked<'_>,
    time: impl Fn(usize) -> i64,
    (annotations, span): (&mut Annotations, &Range<usize>),
    late: bool,
) -> Vec<Column> {
    let mut groups = Groups::of(&columns, (annotations, span), late);
    let mut meets = Vec::new();
    let mut classic = Vec::new();
    for column in columns.iter().filter(|column| !column.histograms.is_empty()) {
        meets.extend(groups.meeting(column, late, annotations, span));
    }
    for (step, group) in meets {
        groups.all[group].silent.insert(step);
    }
    for Group { labels, mut members, silent } in std::mem::take(&mut groups.all) {
        members.sort_by(|a, b| a.0.total_cmp(&b.0));
        let steps = members.first().map_or(0, |(_, column)| column.cells.len());
        let mut column = Column::new(labels, steps);
        let mut fixed: Option<Fixed> = None;
        for step in (0..steps).filter(|step| !silent.contains(step)) {
            let bucket = |(bound, column): &(f64, &Column)| {
                Some(Bucket { bound: *bound, count: column.float(step)? })
            };
            let mut buckets: Vec<Bucket> = members.iter().filter_map(bucket).collect();
            column.cells[step] = match asked {
                _ if buckets.is_empty() => ABSENT,
                Asked::Quantile(q) => quantile(q[step], &mut buckets, time(step), &mut fixed),
                Asked::Fraction(from, to) => fraction(from[step], to[step], &mut buckets),
            };
        }
        if let Some(fixed) = fixed {
            annotations.inform(fixed.told(if late { column.labels.metric() } else { "" }), span);
        }
        super::drop_name(&mut column, late);
        classic.push(column);
    }
    let silent = groups.silent;
    let mut all = native(columns, asked, &silent, (annotations, span), late);
    all.append(&mut classic);
    all
}

/// Classic histograms: series that differ in `le` alone.
struct Group<'a> {
    labels: Labels,
    members: Vec<(f64, &'a Column)>,
    /// The steps at which there is a native one with the same labels.
    silent: HashSet<usize>,
}

#[derive(Default)]
struct Groups<'a> {
    all: Vec<Group<'a>>,
    places: HashMap<Labels, usize>,
    /// The steps at which native ones aren't looked at either, by their labels.
    silent: HashMap<Labels, HashSet<usize>>,
}

/// Behind a message the metric that it is about, which is known where names go late.
fn of_metric(column: &Column, late: bool) -> String {
    match column.labels.metric() {
        metric if late && !metric.is_empty() => format!(" for metric name {metric:?}"),
        _ => String::new(),
    }
}

impl<'a> Groups<'a> {
    fn of(
        columns: &'a [Column],
        (annotations, span): (&mut Annotations, &Range<usize>),
        late: bool,
    ) -> Self {
        let mut groups = Self::default();
        let has_floats = |column: &&Column| {
            let steps = 0..column.cells.len();
            column.histograms.is_empty()
                || steps.into_iter().any(|step| column.float(step).is_some())
        };
        for column in columns.iter().filter(has_floats) {
            let text = column.labels.get("le");
            let Some(bound) = bound(text) else {
                let of = of_metric(column, late);
                let why = format!(
                    "bucket label \"le\" is missing or has a malformed value of {text:?}{of}"
                );
                annotations.warn(why, span);
                continue;
            };
            let labels = column.labels.only(|name| name != "le");
            let all = &mut groups.all;
            let group = *groups.places.entry(labels).or_insert_with_key(|labels| {
                let (labels, members) = (labels.clone(), Vec::new());
                all.push(Group { labels, members, silent: HashSet::new() });
                all.len() - 1
            });
            groups.all[group].members.push((bound, column));
        }
        groups
    }

    /// The steps at which a native histogram meets a classic one, which is told.
    fn meeting(
        &mut self,
        column: &Column,
        late: bool,
        annotations: &mut Annotations,
        span: &Range<usize>,
    ) -> Vec<(usize, usize)> {
        let Some(group) = self.places.get(&column.labels).copied() else { return Vec::new() };
        let members = &self.all[group].members;
        let is_met = |step: &usize| {
            column.histograms.get(*step).is_some()
                && members.iter().any(|(_, member)| member.float(*step).is_some())
        };
        let steps: Vec<usize> = (0..column.cells.len()).filter(is_met).collect();
        if !steps.is_empty() {
            let of = of_metric(column, late);
            let why = format!("vector contains a mix of classic and native histograms{of}");
            annotations.warn(why, span);
            self.silent.entry(column.labels.clone()).or_default().extend(&steps);
        }
        steps.into_iter().map(|step| (step, group)).collect()
    }
}

/// The same of native histograms, but for some steps.
fn native(
    columns: Vec<Column>,
    asked: Asked<'_>,
    silent: &HashMap<Labels, HashSet<usize>>,
    (annotations, span): (&mut Annotations, &Range<usize>),
    late: bool,
) -> Vec<Column> {
    numbers(columns, late, |step, column, histogram| {
        if silent.get(&column.labels).is_some_and(|steps| steps.contains(&step)) {
            return None;
        }
        let (value, note) = match asked {
            Asked::Quantile(q) => histogram.quantile(q[step]),
            Asked::Fraction(from, to) => histogram.fraction(from[step], to[step]),
        };
        if let Some(note) = note {
            // Prometheus names the metric of what it looks at, which has lost it unless names go
            // late.
            annotations.inform(format!("{note}{}", of_metric(column, late)), span);
        }
        Some(value)
    })
}

fn bound(text: &str) -> Option<f64> {
    match text {
        "+Inf" | "Inf" | "+inf" | "inf" => Some(f64::INFINITY),
        "-Inf" | "-inf" => Some(f64::NEG_INFINITY),
        text => text.parse().ok(),
    }
}

/// Buckets with the same bound become one.
fn joined(buckets: &mut Vec<Bucket>) {
    buckets.dedup_by(|next, kept| {
        let is_same = next.bound == kept.bound;
        if is_same {
            kept.count += next.count;
        }
        is_same
    });
}

fn quantile(q: f64, buckets: &mut Vec<Bucket>, time: i64, fixed: &mut Option<Fixed>) -> f64 {
    match q {
        q if q.is_nan() => return f64::NAN,
        q if q < 0.0 => return f64::NEG_INFINITY,
        q if q > 1.0 => return f64::INFINITY,
        _ if buckets.last().is_none_or(|last| last.bound != f64::INFINITY) => return f64::NAN,
        _ => joined(buckets),
    }
    make_ascend(buckets, time, fixed);
    let [.., before_last, last] = buckets.as_slice() else { return f64::NAN };
    if last.count == 0.0 || last.count.is_nan() {
        return f64::NAN;
    }
    let rank = q * last.count;
    let place = buckets[..buckets.len() - 1].partition_point(|bucket| bucket.count < rank);
    let found = buckets[place];
    match place {
        place if place == buckets.len() - 1 => before_last.bound,
        0 if found.bound <= 0.0 => found.bound,
        0 => found.bound * (rank / found.count),
        _ => {
            let before = buckets[place - 1];
            let part = (rank - before.count) / (found.count - before.count);
            before.bound + (found.bound - before.bound) * part
        }
    }
}

fn is_almost(a: f64, b: f64) -> bool {
    let (sum, difference) = (a.abs() + b.abs(), (a - b).abs());
    a == b || difference / sum.min(f64::MAX) < TOLERANCE
}

/// Counts never fall from one bucket to the next; what rounding did is mended without a word.
fn make_ascend(buckets: &mut [Bucket], time: i64, fixed: &mut Option<Fixed>) {
    let mut before = buckets.first().map_or(0.0, |first| first.count);
    let (mut range, mut difference) = ((f64::INFINITY, f64::NEG_INFINITY), 0.0_f64);
    for bucket in buckets.iter_mut().skip(1) {
        if bucket.count == before {
            continue;
        }
        let is_rounding = is_almost(before, bucket.count);
        if !is_rounding && bucket.count < before {
            range = (range.0.min(bucket.bound), range.1.max(bucket.bound));
            difference = difference.max(before - bucket.count);
        }
        match is_rounding || bucket.count < before {
            true => bucket.count = before,
            false => before = bucket.count,
        }
    }
    if range.0 <= range.1 {
        let all = fixed.get_or_insert(Fixed {
            buckets: range,
            difference,
            count: 0,
            times: (time, time),
        });
        all.buckets = (all.buckets.0.min(range.0), all.buckets.1.max(range.1));
        all.difference = all.difference.max(difference);
        all.count += 1;
        all.times = (all.times.0.min(time), all.times.1.max(time));
    }
}

impl Fixed {
    fn told(&self, metric: &str) -> String {
        let of =
            if metric.is_empty() { String::new() } else { format!(" for metric name {metric:?}") };
        format!(
            "input to histogram_quantile needed to be fixed for monotonicity (see \
             https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile){of}, \
             from buckets {} to {}, with a max diff of {}, over {} samples from {} to {}",
            format_value(self.buckets.0),
            format_value(self.buckets.1),
            two_digits(self.difference),
            self.count,
            rfc3339(self.times.0),
            rfc3339(self.times.1),
        )
    }
}

/// Two significant digits, as Go's `%.2g` has them.
fn two_digits(value: f64) -> String {
    let text = format!("{value:.1e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    match exponent.parse::<i32>().unwrap_or(0) {
        exponent if (-4..2).contains(&exponent) => {
            text.parse::<f64>().map_or(text.clone(), |value| value.to_string())
        }
        exponent if exponent < 0 => format!("{digits}e-{:02}", -exponent),
        exponent => format!("{digits}e+{exponent:02}"),
    }
}

/// How much of the observations lies between two numbers.
fn fraction(from: f64, to: f64, buckets: &mut Vec<Bucket>) -> f64 {
    if buckets.last().is_none_or(|last| last.bound != f64::INFINITY) {
        return f64::NAN;
    }
    joined(buckets);
    let all = buckets.last().map_or(0.0, |last| last.count);
    if all == 0.0 || from.is_nan() || to.is_nan() {
        return f64::NAN;
    }
    if from >= to {
        return 0.0;
    }
    (rank(to, buckets) - rank(from, buckets)) / all
}

/// How many observations lie below a number, evenly spread in each bucket.
fn rank(value: f64, buckets: &[Bucket]) -> f64 {
    let first = buckets.first().map_or(0.0, |first| first.bound);
    let mut below = (if first <= 0.0 { f64::NEG_INFINITY } else { 0.0 }, 0.0);
    for bucket in buckets {
        if below.0 >= value {
            return below.1;
        }
        if bucket.bound > value {
            return match below.0 {
                f64::NEG_INFINITY => bucket.count,
                // Nobody knows how far the last bucket reaches.
                _ if bucket.bound == f64::INFINITY => below.1,
                bound => {
                    below.1 + (bucket.count - below.1) * (value - bound) / (bucket.bound - bound)
                }
            };
        }
        below = (bucket.bound, bucket.count);
    }
    below.1
}
