//! Aggregations: one series of many, or some of many.
//!
//! Which series a group has is found out once; then each series' steps are added to its group's,
//! one series after the other. A group has a value at the steps at which one of its series has one.

use super::column::{ABSENT, Column, is_absent};
use super::native::group::pool_into;
use super::native::operate::{Notes, TooMuch};
use super::numbers::{Mean, Sum, ascending, quantile};
use crate::ast::{Aggregate, Aggregation};
use crate::labels::{Labels, NAME};
use crate::source::Value;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Steps of a group that are computed together: what they have come to stays near the processor.
pub(super) const TOGETHER: usize = 512;

/// The labels of a group, and the places of its series.
pub(super) type Group = (Labels, Vec<usize>);

/// What groups series have, and the places of the series of each.
pub(super) fn grouped(aggregate: &Aggregate, columns: &[Column]) -> Vec<Group> {
    let mut places: HashMap<Labels, usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for (place, column) in columns.iter().enumerate() {
        let labels = group_labels(aggregate, &column.labels);
        let group = *places.entry(labels).or_insert_with_key(|labels| {
            groups.push((labels.clone(), Vec::new()));
            groups.len() - 1
        });
        groups[group].1.push(place);
    }
    groups
}

fn group_labels(aggregate: &Aggregate, labels: &Labels) -> Labels {
    let listed = |name: &str| aggregate.grouping.iter().any(|label| label == name);
    match aggregate.without {
        true => labels.only(|name| name != NAME && !listed(name)),
        false => labels.only(listed),
    }
}

/// How many values are held at most besides the columns while they become what they come to.
pub(super) fn weight(op: Aggregation, columns: &[Column], groups: &[Group]) -> usize {
    let picks = op.picks() || op == Aggregation::CountValues;
    if picks || columns.iter().any(|column| !column.histograms.is_empty()) {
        return columns.iter().map(Column::weight).sum();
    }
    let steps = columns.first().map_or(0, |column| column.cells.len());
    groups.len() * steps + TOGETHER * size_of::<Option<State>>() / size_of::<f64>()
}

/// One series a group; `params` is what `quantile` wants, a number a step.
pub(super) fn aggregated(
    op: Aggregation,
    (columns, groups): (&[Column], Vec<Group>),
    params: &[f64],
    steps: usize,
    notes: &mut Notes<'_>,
) -> Result<Vec<Column>, TooMuch> {
    let mut out = Vec::new();
    for (labels, places) in groups {
        let mut column = Column::new(labels, steps);
        // Where names go late, `by (__name__)` keeps one until then.
        column.drop_name = places.iter().any(|place| columns[*place].drop_name);
        match op {
            Aggregation::Quantile => {
                for (step, cell) in column.cells.iter_mut().enumerate() {
                    let values = places.iter().map(|place| columns[*place].cells[step]);
                    let mut values: Vec<f64> = values.filter(|value| !is_absent(*value)).collect();
                    if !values.is_empty() {
                        *cell = quantile(params[step], &mut values);
                    }
                }
            }
            op => {
                for begin in (0..steps).step_by(TOGETHER) {
                    let end = steps.min(begin + TOGETHER);
                    let group = places.iter().map(|place| &columns[*place].cells[begin..end]);
                    fold(op, group, &mut column.cells[begin..end]);
                }
                if matches!(op, Aggregation::Sum | Aggregation::Avg) {
                    let group: Vec<&Column> = places.iter().map(|place| &columns[*place]).collect();
                    if group.iter().any(|column| !column.histograms.is_empty()) {
                        pool_into(&mut column, op, &group, notes)?;
                    }
                }
            }
        }
        out.push(column);
    }
    Ok(out)
}

/// Puts what the values of a group come to at each step.
fn fold<'a>(op: Aggregation, group: impl Iterator<Item = &'a [f64]>, cells: &mut [f64]) {
    if op == Aggregation::Sum {
        return sum(group, cells);
    }
    let mut states: Vec<Option<State>> = vec![None; cells.len()];
    for values in group {
        for (state, value) in states.iter_mut().zip(values) {
            if is_absent(*value) {
                continue;
            }
            match state {
                Some(state) => state.add(*value),
                None => *state = Some(State::new(op, *value)),
            }
        }
    }
    for (cell, state) in cells.iter_mut().zip(states) {
        *cell = state.map_or(ABSENT, State::value);
    }
}

/// Puts the sums of a group. Where none of its values is, adding them takes no turns.
fn sum<'a>(group: impl Iterator<Item = &'a [f64]>, cells: &mut [f64]) {
    // Nothing is added to what no value was added to but the other zero.
    let mut sums = vec![Sum::new(-0.0); cells.len()];
    let mut is_any = vec![false; cells.len()];
    for values in group {
        for ((sum, is_any), value) in sums.iter_mut().zip(&mut is_any).zip(values) {
            let is_here = !is_absent(*value);
            sum.add(if is_here { *value } else { -0.0 });
            *is_any |= is_here;
        }
    }
    for ((cell, sum), is_any) in cells.iter_mut().zip(sums).zip(is_any) {
        *cell = if is_any { sum.sum + sum.lost } else { ABSENT };
    }
}

/// What a group's values came to so far at a step.
#[derive(Clone, Copy)]
enum State {
    Sum(Sum),
    Mean(Mean),
    Min(f64),
    Max(f64),
    Count(f64),
    Group,
    /// The squares of how far values are from the mean, the mean, how many; and whether the root is
    /// asked for.
    Spread(f64, f64, f64, bool),
}

impl State {
    fn new(op: Aggregation, first: f64) -> Self {
        match op {
            Aggregation::Avg => Self::Mean(Mean::new(first)),
            Aggregation::Min => Self::Min(first),
            Aggregation::Max => Self::Max(first),
            Aggregation::Count => Self::Count(1.0),
            Aggregation::Group => Self::Group,
            Aggregation::Stddev | Aggregation::Stdvar => {
                let squares = if first.is_finite() { 0.0 } else { f64::NAN };
                Self::Spread(squares, first, 1.0, op == Aggregation::Stddev)
            }
            _ => Self::Sum(Sum { sum: first, lost: 0.0 }),
        }
    }

    fn add(&mut self, value: f64) {
        match self {
            Self::Sum(sum) => sum.add(value),
            Self::Mean(mean) => mean.add(value),
            Self::Min(least) if *least > value || least.is_nan() => *least = value,
            Self::Max(most) if *most < value || most.is_nan() => *most = value,
            Self::Min(_) | Self::Max(_) | Self::Group => {}
            Self::Count(count) => *count += 1.0,
            Self::Spread(squares, mean, count, _) => {
                *count += 1.0;
                let delta = value - *mean;
                *mean += delta / *count;
                *squares += delta * (value - *mean);
            }
        }
    }

    fn value(self) -> f64 {
        match self {
            Self::Sum(sum) => sum.sum + sum.lost,
            Self::Mean(mean) => mean.value(),
            Self::Min(value) | Self::Max(value) | Self::Count(value) => value,
            Self::Group => 1.0,
            Self::Spread(squares, _, count, false) => squares / count,
            Self::Spread(squares, _, count, true) => (squares / count).sqrt(),
        }
    }
}

/// What is wrong with the numbers that say how many, if something is.
pub(super) fn wrong_counts(params: &[f64]) -> Option<String> {
    if params.iter().any(|param| param.is_nan()) {
        return Some("Parameter value is NaN".to_string());
    }
    let most = params.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // Prometheus looks at nothing else if none is asked for.
    if most < 1.0 {
        return None;
    }
    let least = params.iter().copied().fold(f64::INFINITY, f64::min);
    match () {
        () if least <= i64::MIN as f64 => Some(format!("Scalar value {least} underflows int64")),
        () if most >= i64::MAX as f64 => Some(format!("Scalar value {most} overflows int64")),
        () => None,
    }
}

/// The values of a group at a step that an aggregation gives, of those that are there.
fn picked(op: Aggregation, param: f64, values: &mut Vec<(f64, usize)>, columns: &[Column]) {
    match op {
        // What is no number comes last in both.
        Aggregation::Topk => values.sort_by(|a, b| ascending(b.0, a.0)),
        Aggregation::Bottomk => {
            values.sort_by(|a, b| a.0.is_nan().cmp(&b.0.is_nan()).then(ascending(a.0, b.0)));
        }
        Aggregation::LimitRatio => {
            return values.retain(|(_, place)| is_within(param, &columns[*place].labels));
        }
        _ => {}
    }
    let count = if param < 1.0 || param.is_nan() { 0 } else { param as usize };
    values.truncate(count);
}

/// Whether a series is of those that make this part of all; where the part is negative, of those
/// that the rest of one doesn't have.
fn is_within(ratio: f64, labels: &Labels) -> bool {
    let place = place_among_all(labels);
    if ratio < 0.0 { place >= 1.0 + ratio.max(-1.0) } else { place < ratio }
}

/// A number from 0 on and below 1, always the same for the same labels, and even over many.
///
/// It has 32 bits, so that none lies between a ratio and what is left of one without the other,
/// which may differ in their last digit.
fn place_among_all(labels: &Labels) -> f64 {
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for (name, value) in labels.iter() {
        // No UTF-8 has the byte that ends a text.
        for byte in name.bytes().chain([0xff]).chain(value.bytes()).chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    }
    // The last bytes have reached few of the upper bits.
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (hash >> 32) as f64 / 4_294_967_296.0
}

/// Some series of each group, so many a step: the largest, the smallest, any, or a part of them.
pub(super) fn some(
    op: Aggregation,
    (columns, groups): (&[Column], &[Group]),
    params: &[f64],
    steps: usize,
) -> Vec<Column> {
    let mut kept: Vec<Option<Column>> = vec![None; columns.len()];
    // In the order in which an answer for one time gives them.
    let mut order: Vec<usize> = Vec::new();
    for (_, places) in groups {
        for (step, param) in params.iter().enumerate().take(steps) {
            let values = places.iter().map(|place| (columns[*place].cells[step], *place));
            let mut values: Vec<(f64, usize)> =
                values.filter(|(value, _)| !is_absent(*value)).collect();
            picked(op, *param, &mut values, columns);
            for (value, place) in &values {
                let column = &columns[*place];
                let kept = kept[*place].get_or_insert_with(|| {
                    order.push(*place);
                    let drop_name = column.drop_name;
                    Column { drop_name, ..Column::new(column.labels.clone(), steps) }
                });
                match column.histograms.get(step) {
                    Some(histogram) => kept.put(step, Value::Histogram(Arc::clone(histogram))),
                    None => kept.cells[step] = *value,
                }
            }
        }
    }
    order.into_iter().filter_map(|place| kept[place].take()).collect()
}

/// How many series have each value: one series a value.
pub(super) fn counted(
    aggregate: &Aggregate,
    label: &str,
    columns: &[Column],
    steps: usize,
    most: usize,
) -> Result<Vec<Column>, String> {
    let (out, places) = (Vec::new(), HashMap::new());
    let mut counting = Counting { aggregate, label, steps, most, out, places, texts: 0 };
    for column in columns {
        // Of this series, by the value's bits: most come again and again.
        let mut known: HashMap<u64, usize> = HashMap::new();
        for (step, value) in
            column.cells.iter().enumerate().filter(|(_, value)| !is_absent(**value))
        {
            let place = match column.histograms.get(step) {
                Some(histogram) => counting.place(column, &histogram.to_string())?,
                None => match known.entry(value.to_bits()) {
                    Entry::Occupied(place) => *place.get(),
                    Entry::Vacant(free) => *free.insert(counting.place(column, &written(*value))?),
                },
            };
            let cell = &mut counting.out[place].cells[step];
            *cell = if is_absent(*cell) { 1.0 } else { *cell + 1.0 };
        }
    }
    Ok(counting.out)
}

/// Series that count values, which their labels have as texts.
struct Counting<'a> {
    aggregate: &'a Aggregate,
    label: &'a str,
    steps: usize,
    most: usize,
    out: Vec<Column>,
    places: HashMap<Labels, usize>,
    /// What the texts take, in values.
    texts: usize,
}

impl Counting<'_> {
    /// The series that counts a value of another.
    fn place(&mut self, column: &Column, text: &str) -> Result<usize, String> {
        let labels = column.labels.with(self.label, text);
        let labels = match self.aggregate.without {
            true => group_labels(self.aggregate, &labels),
            // The value is part of a group's labels, whichever others are.
            false => group_labels(self.aggregate, &labels).with(self.label, labels.get(self.label)),
        };
        let (out, texts, steps) = (&mut self.out, &mut self.texts, self.steps);
        let place = *self.places.entry(labels).or_insert_with_key(|labels| {
            *texts += text.len() / size_of::<f64>();
            out.push(Column::new(labels.clone(), steps));
            out.len() - 1
        });
        match self.out.len() * steps + self.texts > self.most {
            true => Err("count_values finds too many different values".to_string()),
            false => Ok(place),
        }
    }
}

/// A value as Go writes it without an exponent.
fn written(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_string(),
        f64::INFINITY => "+Inf".to_string(),
        f64::NEG_INFINITY => "-Inf".to_string(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ratio gives so many of the series, and what is left of one without it the others,
    /// whichever way they are rounded.
    #[test]
    fn a_part_of_all_and_the_rest_are_all() {
        let names = |number: usize| [(NAME, "up".to_string()), ("host", format!("host-{number}"))];
        let all: Vec<Labels> =
            (0..4000).map(|number| names(number).into_iter().collect()).collect();
        for percent in 0..=100 {
            let ratio = f64::from(percent) / 100.0;
            let mut count = 0;
            for labels in &all {
                let is_in = is_within(ratio, labels);
                assert_ne!(
                    is_in,
                    is_within(ratio - 1.0, labels) && percent < 100,
                    "{ratio} {labels}"
                );
                count += usize::from(is_in);
            }
            assert!(count.abs_diff(percent as usize * 40) < 160, "{count} of 4000 for {ratio}");
        }
    }

    /// A server that begins again, or another one, gives the same series.
    #[test]
    fn a_series_keeps_its_place_among_all() {
        let labels: Labels = [(NAME, "up"), ("host", "a")].into_iter().collect();
        let other: Labels = [(NAME, "up"), ("hosta", "")].into_iter().collect();
        assert_eq!(place_among_all(&labels), 0.361_437_530_489_638_45);
        assert_ne!(place_among_all(&labels), place_among_all(&other));
        assert!(place_among_all(&Labels::default()) < 1.0);
    }
}
