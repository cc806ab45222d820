//! The value of an expression at every step of a range, series by series.
//!
//! Each series is scanned once, forward, with what its window needs held beside it. Results are columns of one value a step. Series, steps, cells
//! and visits of points are counted against bounds, so an expression ends with an error rather than with the memory.

use super::parse::{Aggregation, Expr, Grouping, Matcher, NAME, Operator, Over, Selector, Test};
use crate::name::{Name, plain, written};
use crate::store::{Found, Listing, SeriesStore};
use crate::tree::Direction;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;

/// How far a point is seen that is followed by none.
const LOOKBACK: i64 = 300_000_000_000;
/// Series that an expression may read, cells of all columns, points of a window, and visits of points.
const MAX_SERIES: usize = 20_000;
const MAX_CELLS: usize = 1 << 20;
const MAX_WINDOW: usize = 1 << 20;
const MAX_VISITS: u64 = 1 << 30;
/// Metrics that a condition on names is compared with.
const MAX_METRICS: usize = 10_000;
/// The value that says that a series has ended: Prometheus writes it when what it measured is gone.
const STALE: u64 = 0x7ff0_0000_0000_0002;
/// Series that are looked up and compared with conditions without a pause for others.
const AT_ONCE: usize = 1000;

/// Labels with their values; the metric is `__name__`.
pub(super) type Labels = BTreeMap<String, String>;

/// A value a step, where there is one.
pub(super) type Column = Vec<Option<f64>>;

/// What an expression comes to.
pub(super) enum Values {
    Scalar(f64),
    Vector(Vec<(Labels, Column)>),
}

/// Steps of time: from the first on, so many, so far apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    pub(super) first: i64,
    pub(super) count: usize,
    pub(super) step: i64,
}

impl Steps {
    pub(super) fn time(&self, place: usize) -> i64 {
        self.first.saturating_add(self.step.saturating_mul(place as i64))
    }
}

/// Why there is no value: what is asked is wrong, or something failed.
pub(super) enum Failure {
    Asked(String),
    Store(crate::Error),
}

impl From<crate::Error> for Failure {
    fn from(error: crate::Error) -> Self {
        Self::Store(error)
    }
}

/// Evaluates expressions.
pub(super) struct Evaluator<'a> {
    pub(super) store: &'a SeriesStore,
    pub(super) steps: Steps,
    pub(super) cells: usize,
    pub(super) visits: u64,
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(store: &'a SeriesStore, steps: Steps) -> Self {
        Self { store, steps, cells: 0, visits: 0 }
    }

    /// The value of an expression. What it calls itself for is bounded by the parser.
    pub(super) fn value<'b>(
        &'b mut self,
        expression: &'b Expr,
    ) -> Pin<Box<dyn Future<Output = Result<Values, Failure>> + Send + 'b>> {
        Box::pin(async move {
            match expression {
                Expr::Number(number) => Ok(Values::Scalar(*number)),
                Expr::Select(selector) => self.columns(selector, None).await,
                Expr::Over(over, selector, range) => self.columns(selector, Some((*over, *range))).await,
                Expr::Aggregate(aggregation, grouping, inner) => match self.value(inner).await? {
                    Values::Vector(vector) => Ok(Values::Vector(aggregated(*aggregation, grouping, vector))),
                    Values::Scalar(_) => {
                        Err(Failure::Asked("series expected in an aggregation, a number found".into()))
                    }
                },
                Expr::Binary(operator, left, right) => {
                    let left = self.value(left).await?;
                    Ok(combined(*operator, left, self.value(right).await?))
                }
            }
        })
    }

    async fn columns(&mut self, selector: &Selector, over: Option<(Over, i64)>) -> Result<Values, Failure> {
        let found = find(self.store, selector, MAX_SERIES).await?;
        let mut vector = Vec::new();
        for found in found {
            self.cells += self.steps.count;
            if self.cells > MAX_CELLS {
                return Err(Failure::Asked(format!(
                    "more than {MAX_CELLS} values; take a larger step or fewer series"
                )));
            }
            let column = self.column(&found, over).await?;
            if column.iter().any(Option::is_some) {
                let mut labels = labels_of(&found.name);
                // A point of the series itself is still one of that metric.
                if over.is_some_and(|(over, _)| over != Over::Last) {
                    labels.remove(NAME);
                }
                vector.push((labels, column));
            }
            super::super::pause().await;
        }
        Ok(Values::Vector(vector))
    }

    /// The points themselves, in so many nanoseconds up to the first step, of each series that has some.
    pub(super) async fn points(
        &mut self,
        selector: &Selector,
        range: i64,
    ) -> Result<Vec<(Labels, Vec<(i64, f64)>)>, Failure> {
        let end = self.steps.first;
        let bounds = (std::ops::Bound::Excluded(end.saturating_sub(range)), std::ops::Bound::Included(end));
        let mut all = Vec::new();
        for found in find(self.store, selector, MAX_SERIES).await? {
            let mut scan = self.store.reading(&found).scan(bounds, Direction::Forward).await?;
            let mut points = Vec::new();
            while let Some(more) = scan.next().await? {
                self.cells += more.len();
                if self.cells > MAX_CELLS {
                    return Err(Failure::Asked(format!(
                        "more than {MAX_CELLS} points; take a shorter range or fewer series"
                    )));
                }
                let more = more.iter().map(|point| (point.time, point.value.as_f64()));
                points.extend(more.filter(|(_, value)| !is_stale(*value)));
            }
            if !points.is_empty() {
                all.push((labels_of(&found.name), points));
            }
            super::super::pause().await;
        }
        Ok(all)
    }

    /// One series: at each step what its window comes to.
    async fn column(&mut self, found: &Found, over: Option<(Over, i64)>) -> Result<Column, Failure> {
        let range = over.map_or(LOOKBACK, |(_, range)| range);
        let steps = self.steps;
        let (begin, end) = (steps.first.saturating_sub(range), steps.time(steps.count.saturating_sub(1)));
        let bounds = (std::ops::Bound::Excluded(begin), std::ops::Bound::Included(end));
        let mut points = self.store.reading(found).scan(bounds, Direction::Forward).await?;
        let mut ahead: VecDeque<(i64, f64)> = VecDeque::new();
        let (mut window, mut is_end) = (VecDeque::new(), false);
        let mut column = Column::with_capacity(steps.count);
        for place in 0..steps.count {
            let time = steps.time(place);
            loop {
                match ahead.front() {
                    Some((then, _)) if *then > time => break,
                    Some(_) => window.extend(ahead.pop_front()),
                    None if is_end => break,
                    None => match points.next().await? {
                        Some(more) => {
                            let points = more.iter().map(|point| (point.time, point.value.as_f64()));
                            // The end of a series is no value of it.
                            ahead.extend(points.filter(|(_, value)| over.is_none() || !is_stale(*value)));
                        }
                        None => is_end = true,
                    },
                }
                if over.is_none() && window.len() > 1 {
                    window.pop_front();
                }
                if window.len() > MAX_WINDOW {
                    return Err(Failure::Asked(format!("more than {MAX_WINDOW} points in one range")));
                }
            }
            while window.front().is_some_and(|(then, _): &(i64, f64)| *then <= time.saturating_sub(range)) {
                window.pop_front();
            }
            self.visits += window.len() as u64;
            if self.visits > MAX_VISITS {
                return Err(Failure::Asked(
                    "it looks at too many points; take a larger step or a shorter range".into(),
                ));
            }
            column.push(match over {
                None => window.back().map(|(_, value)| *value).filter(|value| !is_stale(*value)),
                Some((over, _)) => over.value(&window, time, range),
            });
        }
        Ok(column)
    }
}

impl Over {
    /// The value of the points of a window that ends at a time.
    fn value(self, points: &VecDeque<(i64, f64)>, time: i64, range: i64) -> Option<f64> {
        let (first, last) = (*points.front()?, *points.back()?);
        let values = points.iter().map(|(_, value)| *value);
        let count = points.len() as f64;
        match self {
            Self::Avg => Some(values.sum::<f64>() / count),
            Self::Sum => Some(values.sum()),
            Self::Count => Some(count),
            Self::Min => values.reduce(f64::min),
            Self::Max => values.reduce(f64::max),
            Self::Last => Some(last.1),
            Self::Irate => {
                let before = *points.get(points.len().checked_sub(2)?)?;
                let rise = if last.1 < before.1 { last.1 } else { last.1 - before.1 };
                Some(rise / seconds(before.0, last.0))
            }
            Self::Rate | Self::Increase | Self::Delta if first.0 == last.0 => None,
            Self::Rate | Self::Increase | Self::Delta => {
                let is_counter = self != Self::Delta;
                let rise = if is_counter { rise(values) } else { last.1 - first.1 };
                let seen = seconds(first.0, last.0);
                // What lies between the window's ends and its points is taken to go on alike, but not beyond about one point, nor below zero.
                let each = seen / (count - 1.0);
                let reach = |gap: f64| if gap < each * 1.1 { gap } else { each / 2.0 };
                let mut before = reach(seconds(time.saturating_sub(range), first.0));
                if is_counter && rise > 0.0 && first.1 >= 0.0 {
                    before = before.min(seen * first.1 / rise);
                }
                let whole = rise * (seen + before + reach(seconds(last.0, time))) / seen;
                Some(if self == Self::Rate { whole / (range as f64 / 1e9) } else { whole })
            }
        }
    }
}

/// How far a counter rose, which begins anew where it falls.
fn rise(values: impl Iterator<Item = f64>) -> f64 {
    let mut before = None;
    values.fold(0.0, |rise, value| {
        let from = before.replace(value).unwrap_or(value);
        rise + if value < from { value } else { value - from }
    })
}

fn seconds(from: i64, to: i64) -> f64 {
    (i128::from(to) - i128::from(from)) as f64 / 1e9
}

fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE
}

/// The labels of a series, as they were meant.
pub(super) fn labels_of(name: &Name) -> Labels {
    let tags = name.tags().map(|(tag, value)| (plain(tag).into_owned(), plain(value).into_owned()));
    tags.chain([(NAME.to_string(), plain(name.metric()).into_owned())]).collect()
}

/// The series of a selector.
pub(super) async fn find(
    store: &SeriesStore,
    selector: &Selector,
    limit: usize,
) -> Result<Vec<Found>, Failure> {
    let exactly = |matcher: &&Matcher| match &matcher.test {
        Test::Is(text) if !matcher.is_not && !text.is_empty() => Some(text.clone()),
        _ => None,
    };
    let names: Vec<&Matcher> = selector.matchers.iter().filter(|matcher| matcher.label == NAME).collect();
    let metrics = match names.iter().find_map(exactly) {
        Some(metric) => written(&metric),
        None => store.list(&Listing::Metrics, "", None, MAX_METRICS + 1).await?,
    };
    if metrics.len() > MAX_METRICS {
        return Err(Failure::Asked(format!("there are more than {MAX_METRICS} metrics; name one")));
    }
    let others: Vec<&Matcher> = selector.matchers.iter().filter(|matcher| matcher.label != NAME).collect();
    // What a label has to be exactly is looked up in each form that it may have in a name, and compared with what it means like all others.
    let tags = others.iter().filter_map(|matcher| Some((matcher.label.clone(), written(&exactly(matcher)?))));
    let tags: Vec<(String, Vec<String>)> = tags.collect();
    let fits = |found: &Found| {
        let labels = labels_of(&found.name);
        let value = |label: &str| labels.get(label).map_or("", String::as_str);
        others.iter().all(|matcher| matcher.matches(value(&matcher.label)))
    };
    let mut all = Vec::new();
    for metric in metrics {
        if !names.iter().all(|matcher| matcher.matches(&plain(&metric))) {
            continue;
        }
        let mut begin = Some(0);
        while let Some(least) = begin {
            let found;
            (found, begin) = store.search(&metric, &tags, least, AT_ONCE).await?;
            all.extend(found.into_iter().filter(&fits));
            if all.len() > limit {
                return Err(Failure::Asked(format!("more than {limit} series match; name more labels")));
            }
            super::super::pause().await;
        }
    }
    Ok(all)
}

fn aggregated(
    aggregation: Aggregation,
    grouping: &Grouping,
    vector: Vec<(Labels, Column)>,
) -> Vec<(Labels, Column)> {
    let mut groups: BTreeMap<Labels, Vec<Option<(f64, f64)>>> = BTreeMap::new();
    for (mut labels, column) in vector {
        labels.retain(|label, _| match grouping {
            Grouping::By(kept) => kept.contains(label),
            Grouping::Without(gone) => label != NAME && !gone.contains(label),
        });
        let group = groups.entry(labels).or_insert_with(|| vec![None; column.len()]);
        for (sum, value) in group.iter_mut().zip(column) {
            let Some(value) = value else { continue };
            *sum = Some(match (*sum, aggregation) {
                (None, _) => (value, 1.0),
                (Some((sum, count)), Aggregation::Min) => (sum.min(value), count + 1.0),
                (Some((sum, count)), Aggregation::Max) => (sum.max(value), count + 1.0),
                (Some((sum, count)), _) => (sum + value, count + 1.0),
            });
        }
    }
    let value = |(sum, count): (f64, f64)| match aggregation {
        Aggregation::Avg => sum / count,
        Aggregation::Count => count,
        _ => sum,
    };
    groups
        .into_iter()
        .map(|(labels, column)| (labels, column.into_iter().map(|cell| cell.map(value)).collect()))
        .collect()
}

impl Operator {
    fn value(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Add => a + b,
            Self::Subtract => a - b,
            Self::Multiply => a * b,
            Self::Divide => a / b,
            Self::Remainder => a % b,
            Self::Power => a.powf(b),
        }
    }
}

/// Two values by an operator; series meet those with the same labels, the metric aside.
fn combined(operator: Operator, left: Values, right: Values) -> Values {
    let each = |vector: Vec<(Labels, Column)>, function: &dyn Fn(f64) -> f64| {
        let column = |(mut labels, column): (Labels, Column)| {
            labels.remove(NAME);
            (labels, column.into_iter().map(|cell| cell.map(function)).collect())
        };
        Values::Vector(vector.into_iter().map(column).collect())
    };
    match (left, right) {
        (Values::Scalar(a), Values::Scalar(b)) => Values::Scalar(operator.value(a, b)),
        (Values::Vector(a), Values::Scalar(b)) => each(a, &|a| operator.value(a, b)),
        (Values::Scalar(a), Values::Vector(b)) => each(b, &|b| operator.value(a, b)),
        (Values::Vector(a), Values::Vector(b)) => {
            let without = |(mut labels, column): (Labels, Column)| {
                labels.remove(NAME);
                (labels, column)
            };
            let mut right: BTreeMap<Labels, Column> = b.into_iter().map(without).collect();
            let met = a.into_iter().map(without).filter_map(|(labels, left)| {
                let right = right.remove(&labels)?;
                let cells = left.into_iter().zip(right);
                Some((labels, cells.map(|(a, b)| Some(operator.value(a?, b?))).collect()))
            });
            Values::Vector(met.collect())
        }
    }
}
