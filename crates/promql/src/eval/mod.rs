//! The value of an expression at every step of a range.
//!
//! Each series is read once, forward, and what its window needs is held beside it; what comes of it
//! is a column of one value a step. Operators and functions go from columns to columns. Values,
//! points of a window and visits of points are counted against bounds, so an expression ends with
//! an error, which says what to narrow, rather than with the memory.

mod aggregate;
mod binary;
mod call;
mod classic;
mod column;
mod dates;
mod digests;
mod held;
mod instant;
mod native;
mod numbers;
mod read;
mod reading;
mod window;

use crate::annotations::Annotations;
use crate::ast::{Aggregate, Aggregation, At, Binary, Expr, Node, Shift, Type};
use crate::labels::Labels;
use crate::source::Source;
use crate::{Answer, Answered, Error, Options, Row, Took};
use binary::Unmet;
use column::{Cell, Column, SAME_LABELSET, has_twins, merged};
use native::operate::{Notes, TooMuch};
use read::{Buckets, Series};
use reading::Reading;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

/// Seconds from one time to another.
pub(crate) fn seconds(from: i64, to: i64) -> f64 {
    // The wide difference is the rare one, and takes a division of its own to make a float of.
    match to.checked_sub(from) {
        Some(difference) => difference as f64 / 1e9,
        None => (i128::from(to) - i128::from(from)) as f64 / 1e9,
    }
}

/// Drops the metric of a column whose values are none of it, now or at the end.
fn drop_name(column: &mut Column, late: bool) {
    match late {
        true => column.drop_name = true,
        false => column.labels = column.labels.without_metric(),
    }
}

/// Steps of time: from the first on, so many, so far apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    pub(crate) first: i64,
    pub(crate) count: usize,
    pub(crate) step: i64,
}

impl Steps {
    pub(crate) fn one(time: i64) -> Self {
        Self { first: time, count: 1, step: 1 }
    }

    pub(crate) fn time(&self, place: usize) -> i64 {
        self.first.saturating_add(self.step.saturating_mul(place as i64))
    }

    fn last(&self) -> i64 {
        self.time(self.count.saturating_sub(1))
    }
}

/// What an expression comes to.
enum Value {
    Scalar(Vec<f64>),
    Vector(Vec<Column>),
    Matrix(Vec<Series>),
    String(String),
}

impl Value {
    fn size(&self) -> usize {
        match self {
            Self::Scalar(numbers) => numbers.len(),
            Self::Vector(columns) => columns.iter().map(Column::weight).sum(),
            Self::Matrix(series) => series.iter().map(Series::weight).sum(),
            Self::String(_) => 0,
        }
    }
}

type Boxed<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, Error<E>>> + Send + 'a>>;

/// Evaluates one expression.
pub(crate) struct Evaluator<'a, S: Source> {
    source: &'a S,
    options: &'a Options,
    /// The steps of the whole query, which `@ start()` and `@ end()` mean.
    whole: Steps,
    /// Values that are held.
    cells: usize,
    /// Points of windows that functions looked at.
    visits: u64,
    /// Whether the buckets of what is read are looked at.
    buckets: Buckets,
    told: Annotations,
}

impl<'a, S: Source> Evaluator<'a, S> {
    pub(crate) fn new(source: &'a S, options: &'a Options, whole: Steps) -> Self {
        let (buckets, told) = (Buckets::Wanted, Annotations::default());
        Self { source, options, whole, cells: 0, visits: 0, buckets, told }
    }

    /// The answer for one time, or for a range of them.
    pub(crate) async fn answer(
        mut self,
        text: &str,
        node: &Node,
        is_range: bool,
    ) -> Result<Answer, Error<S::Error>> {
        let steps = self.whole;
        let found = node.value_type();
        if is_range && !matches!(found, Type::Scalar | Type::Vector) {
            return Err(Error::Asked(format!(
                "invalid expression type {:?} for range query, must be Scalar or instant Vector",
                found.word()
            )));
        }
        let value = match self.value(node, steps).await? {
            Value::Scalar(numbers) if is_range => {
                Value::Vector(vec![Column::of(Labels::default(), numbers)])
            }
            value => value,
        };
        let late = self.options.late_names;
        let value = match value {
            Value::Scalar(numbers) => {
                Answered::Scalar(numbers.first().copied().unwrap_or(f64::NAN))
            }
            Value::String(text) => Answered::String(text),
            Value::Matrix(series) => Answered::Matrix(read::named(series, late)?),
            Value::Vector(mut columns) => {
                for column in columns.iter_mut().filter(|column| column.drop_name) {
                    column.labels = column.labels.without_metric();
                }
                let columns = merged(columns).map_err(Error::Execution)?;
                if is_range {
                    Answered::Matrix(rows(columns, steps))
                } else {
                    Answered::Vector(ones(columns))
                }
            }
        };
        let (warnings, infos) = self.told.told(text);
        let took = Took { points: self.visits, values: self.cells };
        Ok(Answer { value, warnings, infos, took })
    }

    /// Counts values that come to be held.
    fn hold(&mut self, more: usize) -> Result<(), Error<S::Error>> {
        self.cells = self.cells.saturating_add(more);
        let most = self.options.max_values;
        if self.cells > most {
            return Err(Error::Asked(self.too_much()));
        }
        self.source.hold(self.cells).map_err(Error::Source)
    }

    /// What is told of an operator, and what may come of it.
    fn notes<'b>(&'b mut self, span: &'b Range<usize>) -> Notes<'b> {
        let room = self.options.max_values.saturating_sub(self.cells);
        Notes { told: &mut self.told, span, room }
    }

    fn too_much(&self) -> String {
        let most = self.options.max_values;
        format!(
            "the expression holds more than {most} values; take a larger step, a shorter range or fewer series"
        )
    }

    /// The value of an expression. How often it calls itself is bounded by the parser.
    fn value<'b>(&'b mut self, node: &'b Node, steps: Steps) -> Boxed<'b, Value, S::Error> {
        Box::pin(async move {
            let before = self.cells;
            let value = self.unbounded(node, steps).await?;
            self.cells = before;
            self.hold(value.size())?;
            Ok(value)
        })
    }

    fn unbounded<'b>(&'b mut self, node: &'b Node, steps: Steps) -> Boxed<'b, Value, S::Error> {
        Box::pin(async move {
            match &node.expr {
                Expr::Number(number) => Ok(Value::Scalar(vec![*number; steps.count])),
                Expr::String(text) => Ok(Value::String(text.clone())),
                Expr::Vector(selector) => {
                    let reading = self.reading(self.options.lookback, selector.shift, steps);
                    let of = (selector, &node.span);
                    Ok(Value::Vector(self.last_values(of, reading, steps, false).await?))
                }
                Expr::Matrix(selector, range) => {
                    let reading = self.reading(*range, selector.shift, steps);
                    Ok(Value::Matrix(self.points((selector, &node.span), reading).await?))
                }
                Expr::Subquery(subquery) => {
                    let reading = self.reading(subquery.range, subquery.shift, steps);
                    Ok(Value::Matrix(self.subquery(subquery, reading).await?))
                }
                Expr::Call(function, arguments) => {
                    self.call(function.name, node, arguments, steps).await
                }
                Expr::Aggregate(aggregate) => {
                    self.aggregate(aggregate, &node.span, steps).await.map(Value::Vector)
                }
                Expr::Positive(inner) => self.value(inner, steps).await,
                Expr::Negative(inner) => match self.value(inner, steps).await? {
                    Value::Scalar(numbers) => {
                        Ok(Value::Scalar(numbers.into_iter().map(|number| -number).collect()))
                    }
                    Value::Vector(mut columns) => {
                        for column in &mut columns {
                            column.change(|value| -value);
                            column.change_histograms(|histogram| histogram.times(-1.0));
                            drop_name(column, self.options.late_names);
                        }
                        self.together(columns).map(Value::Vector)
                    }
                    value => Ok(value),
                },
                Expr::Binary(binary) => self.binary(binary, &node.span, steps).await,
            }
        })
    }

    /// Columns whose labels may have become the same.
    fn together(&self, columns: Vec<Column>) -> Result<Vec<Column>, Error<S::Error>> {
        if self.options.late_names {
            return Ok(columns);
        }
        merged(columns).map_err(Error::Execution)
    }

    async fn columns(&mut self, node: &Node, steps: Steps) -> Result<Vec<Column>, Error<S::Error>> {
        match self.value(node, steps).await? {
            Value::Vector(columns) => Ok(columns),
            _ => Err(Error::Asked("an instant vector expected".to_string())),
        }
    }

    async fn numbers(&mut self, node: &Node, steps: Steps) -> Result<Vec<f64>, Error<S::Error>> {
        match self.value(node, steps).await? {
            Value::Scalar(numbers) => Ok(numbers),
            _ => Err(Error::Asked("a scalar expected".to_string())),
        }
    }

    fn binary<'b>(
        &'b mut self,
        binary: &'b Binary,
        span: &'b Range<usize>,
        steps: Steps,
    ) -> Boxed<'b, Value, S::Error> {
        Box::pin(async move {
            let late = self.options.late_names;
            // Whether histograms are equal their buckets say, and what is left of them.
            let before = self.buckets;
            if binary.op.is_comparison() || binary.op.is_trim() {
                self.buckets = Buckets::Needed;
            }
            let left = self.value(&binary.left, steps).await;
            let right = self.value(&binary.right, steps).await;
            self.buckets = before;
            let (left, right) = (left?, right?);
            self.hold(left.size().max(right.size()))?;
            let (mut columns, numbers, swapped) = match (left, right) {
                (Value::Scalar(left), Value::Scalar(right)) => {
                    return Ok(Value::Scalar(binary::scalars(binary, &left, &right)));
                }
                (Value::Vector(left), Value::Vector(right)) => {
                    if binary.op.is_set() {
                        let met = binary::sets(binary, left, right, steps.count);
                        return met.map(Value::Vector).map_err(Error::Execution);
                    }
                    let notes = self.notes(span);
                    let met = binary::vectors(binary, (left, right), steps.count, late, notes);
                    return match met {
                        Ok(columns) => Ok(Value::Vector(columns)),
                        Err(Unmet::Wrong(why)) => Err(Error::Execution(why)),
                        Err(Unmet::TooMuch) => Err(Error::Asked(self.too_much())),
                    };
                }
                (Value::Vector(columns), Value::Scalar(numbers)) => (columns, numbers, false),
                (Value::Scalar(numbers), Value::Vector(columns)) => (columns, numbers, true),
                _ => {
                    return Err(Error::Asked(
                        "numbers or series expected around an operator".to_string(),
                    ));
                }
            };
            let mut notes = self.notes(span);
            let done =
                binary::with_scalar(binary, &mut columns, &numbers, swapped, late, &mut notes);
            done.map_err(|TooMuch| Error::Asked(self.too_much()))?;
            self.together(columns).map(Value::Vector)
        })
    }

    fn aggregate<'b>(
        &'b mut self,
        aggregate: &'b Aggregate,
        span: &'b Range<usize>,
        steps: Steps,
    ) -> Boxed<'b, Vec<Column>, S::Error> {
        Box::pin(async move {
            let param = match &aggregate.param {
                Some(param) => Some((self.value(param, steps).await?, &param.span)),
                None => None,
            };
            let mut columns = self.columns(&aggregate.inner, steps).await?;
            let inner = &aggregate.inner.span;
            let of = if aggregate.op.picks() { span } else { inner };
            native::group::ignored(aggregate.op, &mut columns, &mut self.told, of);
            let groups = aggregate::grouped(aggregate, &columns);
            self.hold(aggregate::weight(aggregate.op, &columns, &groups))?;
            match (aggregate.op, param) {
                (Aggregation::Quantile, Some((Value::Scalar(params), span))) => {
                    for q in [f64::NEG_INFINITY, f64::INFINITY] {
                        let worst = if q > 0.0 { f64::max } else { f64::min };
                        self.check_quantile(
                            params.iter().copied().reduce(worst).unwrap_or(f64::NAN),
                            span,
                        );
                    }
                    let mut notes = self.notes(inner);
                    aggregate::aggregated(
                        aggregate.op,
                        (&columns, groups),
                        &params,
                        steps.count,
                        &mut notes,
                    )
                    .map_err(|TooMuch| Error::Asked(self.too_much()))
                }
                (op, Some((Value::Scalar(params), span))) => {
                    if op == Aggregation::LimitRatio {
                        self.check_ratios(&params, span)?;
                    } else if let Some(why) = aggregate::wrong_counts(&params) {
                        return Err(Error::Execution(why));
                    }
                    Ok(aggregate::some(aggregate.op, (&columns, &groups), &params, steps.count))
                }
                (_, Some((Value::String(label), _))) => {
                    if label.is_empty() {
                        return Err(Error::Execution(format!("invalid label name {label:?}")));
                    }
                    let most = self.options.max_values;
                    aggregate::counted(aggregate, &label, &columns, steps.count, most)
                        .map_err(Error::Asked)
                }
                _ => {
                    let mut notes = self.notes(inner);
                    aggregate::aggregated(
                        aggregate.op,
                        (&columns, groups),
                        &[],
                        steps.count,
                        &mut notes,
                    )
                    .map_err(|TooMuch| Error::Asked(self.too_much()))
                }
            }
        })
    }

    fn check_quantile(&mut self, q: f64, span: &Range<usize>) {
        if !(0.0..=1.0).contains(&q) {
            let found = crate::format_value(q);
            self.told.warn(format!("quantile value should be between 0 and 1, got {found}"), span);
        }
    }

    fn check_ratios(&mut self, params: &[f64], span: &Range<usize>) -> Result<(), Error<S::Error>> {
        if params.iter().any(|param| param.is_nan()) {
            return Err(Error::Execution("Ratio value is NaN".to_string()));
        }
        let most = params.iter().copied().fold(0.0, f64::max);
        let least = params.iter().copied().fold(0.0, f64::min);
        for (found, bound) in [(most, 1.0), (least, -1.0)] {
            if found.abs() > 1.0 {
                let found = crate::format_value(found);
                let why = "ratio value should be between -1 and 1";
                self.told.warn(format!("{why}, got {found}, capping to {bound}"), span);
            }
        }
        Ok(())
    }

    /// When a selector looks, and how far back.
    fn reading(&self, range: i64, shift: Shift, steps: Steps) -> Reading {
        let offset = shift.offset.unwrap_or(0);
        let fixed = match shift.at {
            Some(At::Time(time)) => Some(time),
            Some(At::Start) => Some(self.whole.first),
            Some(At::End) => Some(self.whole.last()),
            None => None,
        };
        let steps = match fixed {
            Some(time) => Steps::one(time.saturating_sub(offset)),
            None => Steps { first: steps.first.saturating_sub(offset), ..steps },
        };
        Reading { steps, range, is_fixed: fixed.is_some() }
    }
}

/// The points of columns, by labels.
fn rows(columns: Vec<Column>, steps: Steps) -> Vec<Row> {
    let row = |column: Column| {
        let (mut samples, mut histograms) = (Vec::new(), Vec::new());
        if column.histograms.is_empty() {
            let cells = column.cells.iter().enumerate();
            let points = cells.filter(|(_, cell)| !column::is_absent(**cell));
            samples.extend(points.map(|(place, cell)| (steps.time(place), *cell)));
            return Row { labels: column.labels, samples, histograms };
        }
        for place in 0..column.cells.len() {
            match column.get(place) {
                Some(Cell::Float(value)) => samples.push((steps.time(place), value)),
                Some(Cell::Histogram(histogram)) => {
                    histograms.push((steps.time(place), Arc::clone(histogram)));
                }
                None => {}
            }
        }
        Row { labels: column.labels, samples, histograms }
    };
    let mut rows: Vec<_> = columns.into_iter().map(row).filter(|row| !row.is_empty()).collect();
    rows.sort_by(|a, b| a.labels.cmp(&b.labels));
    rows
}

/// The one value of each column.
fn ones(columns: Vec<Column>) -> Vec<(Labels, crate::Value)> {
    let one = |column: Column| {
        let value = match column.get(0)? {
            Cell::Float(value) => crate::Value::Float(value),
            Cell::Histogram(histogram) => crate::Value::Histogram(Arc::clone(histogram)),
        };
        Some((column.labels, value))
    };
    columns.into_iter().filter_map(one).collect()
}

fn refuse_twins<E>(columns: Vec<Column>, late: bool) -> Result<Vec<Column>, Error<E>> {
    if !late && has_twins(&columns) {
        return Err(Error::Execution(SAME_LABELSET.to_string()));
    }
    Ok(columns)
}
