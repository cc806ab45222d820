//! Calls of functions: what their arguments are, and which file answers.
//!
//! Arguments are evaluated first, numbers as one a step. What comes of a function is no longer of
//! the metric, which is dropped then, and series that have become the same are one or an error.

use super::column::{ABSENT, Column, is_absent};
use super::native::values::{numbers, of_histogram};
use super::read::{Asked, Buckets};
use super::window::Over;
use super::{Boxed, Evaluator, Steps, Value, classic, drop_name, instant, refuse_twins};
use crate::Error;
use crate::ast::{Expr, Node, Type};
use crate::histogram::Histogram;
use crate::labels::Labels;
use crate::source::Source;
use std::ops::Range;

/// How the names of counters end.
const COUNTERS: [&str; 4] = ["_total", "_sum", "_count", "_bucket"];

impl<S: Source> Evaluator<'_, S> {
    pub(super) fn call<'b>(
        &'b mut self,
        name: &'b str,
        node: &'b Node,
        arguments: &'b [Node],
        steps: Steps,
    ) -> Boxed<'b, Value, S::Error> {
        Box::pin(async move {
            if let Some(over) = Over::named(name) {
                return self.over_time(over, name, arguments, steps).await.map(Value::Vector);
            }
            let times = |function: fn(f64) -> f64| {
                let times =
                    (0..steps.count).map(|place| function(super::seconds(0, steps.time(place))));
                times.collect::<Vec<f64>>()
            };
            let one = |cells: Vec<f64>| Value::Vector(vec![Column::of(Labels::default(), cells)]);
            match (name, arguments) {
                ("time", _) => Ok(Value::Scalar(times(|time| time))),
                ("pi", _) => Ok(Value::Scalar(vec![std::f64::consts::PI; steps.count])),
                ("vector", [number]) => Ok(one(self.numbers(number, steps).await?)),
                ("scalar", [series]) => {
                    let columns = self.columns(series, steps).await?;
                    Ok(Value::Scalar(only_values(&columns, steps.count)))
                }
                ("absent", [series]) => {
                    let columns = self.columns(series, steps).await?;
                    let labels = instant::labels_of_absent(series);
                    Ok(Value::Vector(instant::absence(&columns, labels, steps.count)))
                }
                ("timestamp", [series]) => self.timestamps(series, steps).await.map(Value::Vector),
                ("histogram_quantile" | "histogram_fraction", [numbers @ .., series]) => {
                    self.histograms(numbers, series, steps).await.map(Value::Vector)
                }
                (name, [series]) if let Some(function) = of_histogram(name) => {
                    self.of_histograms(name, function, series, steps).await.map(Value::Vector)
                }
                (_, [series, texts @ ..])
                    if matches!(texts.first().map(Node::value_type), Some(Type::String))
                        || name.starts_with("sort") =>
                {
                    self.with_texts(name, node, (series, texts), steps).await.map(Value::Vector)
                }
                (_, []) => match instant::of_one(name) {
                    Some(function) => Ok(one(times(function))),
                    None => Err(Error::Asked(format!("{name} needs an argument"))),
                },
                (_, [series, numbers @ ..]) => {
                    self.of_values(name, series, numbers, steps).await.map(Value::Vector)
                }
            }
        })
    }

    /// Functions of each histogram by itself.
    fn of_histograms<'b>(
        &'b mut self,
        name: &'b str,
        function: fn(&Histogram) -> f64,
        series: &'b Node,
        steps: Steps,
    ) -> Boxed<'b, Vec<Column>, S::Error> {
        Box::pin(async move {
            let before = self.buckets;
            if before == Buckets::Wanted && !name.starts_with("histogram_std") {
                self.buckets = Buckets::Unwanted;
            }
            let columns = self.columns(series, steps).await;
            self.buckets = before;
            let late = self.options.late_names;
            let number = |_, _: &Column, histogram: &Histogram| Some(function(histogram));
            self.together(numbers(columns?, late, number))
        })
    }

    /// Functions of histograms, native ones and those whose buckets are series.
    fn histograms<'b>(
        &'b mut self,
        numbers: &'b [Node],
        series: &'b Node,
        steps: Steps,
    ) -> Boxed<'b, Vec<Column>, S::Error> {
        Box::pin(async move {
            let mut all = Vec::new();
            for number in numbers {
                all.push(self.numbers(number, steps).await?);
            }
            let before = std::mem::replace(&mut self.buckets, Buckets::Needed);
            let columns = self.columns(series, steps).await;
            self.buckets = before;
            let columns = columns?;
            let asked = match all.as_slice() {
                [q] => classic::Asked::Quantile(q),
                [from, to] => classic::Asked::Fraction(from, to),
                _ => return Ok(Vec::new()),
            };
            if let classic::Asked::Quantile(q) = asked {
                q.iter().for_each(|q| self.check_quantile(*q, &numbers[0].span));
            }
            let (told, late) = ((&mut self.told, &series.span), self.options.late_names);
            let columns =
                classic::histograms(columns, asked, |place| steps.time(place), told, late);
            self.together(columns)
        })
    }

    /// Functions of each value by itself.
    fn of_values<'b>(
        &'b mut self,
        name: &'b str,
        series: &'b Node,
        numbers: &'b [Node],
        steps: Steps,
    ) -> Boxed<'b, Vec<Column>, S::Error> {
        Box::pin(async move {
            let mut columns = self.columns(series, steps).await?;
            let mut all = Vec::new();
            for number in numbers {
                all.push(self.numbers(number, steps).await?);
            }
            let function = instant::of_one(name);
            let mut now = vec![0.0; all.len()];
            for column in &mut columns {
                column.drop_histograms();
                for (place, cell) in
                    column.cells.iter_mut().enumerate().filter(|(_, cell)| !is_absent(**cell))
                {
                    for (number, all) in now.iter_mut().zip(&all) {
                        *number = all[place];
                    }
                    *cell = match function {
                        Some(function) => function(*cell),
                        None => instant::with_numbers(name, *cell, &now).unwrap_or(ABSENT),
                    };
                }
                drop_name(column, self.options.late_names);
            }
            columns.retain(|column| !column.is_empty());
            self.together(columns)
        })
    }

    /// Functions of labels, and of the order of series.
    fn with_texts<'b>(
        &'b mut self,
        name: &'b str,
        node: &'b Node,
        (series, texts): (&'b Node, &'b [Node]),
        steps: Steps,
    ) -> Boxed<'b, Vec<Column>, S::Error> {
        Box::pin(async move {
            let text = |text: &Node| match &text.expr {
                Expr::String(text) => Ok(text.clone()),
                _ => Err(Error::Asked(format!("{name} takes texts in quotes"))),
            };
            let texts = texts.iter().map(text).collect::<Result<Vec<String>, _>>()?;
            let mut columns = self.columns(series, steps).await?;
            let done = match name {
                "label_replace" => instant::label_replace(&mut columns, &texts),
                "label_join" => instant::label_join(&mut columns, &texts),
                _ => {
                    if self.whole.count > 1 {
                        let why = "sort is ineffective for range queries since results are always ordered by labels";
                        self.told.warn(why.to_string(), &node.span);
                    }
                    if name == "sort" || name == "sort_desc" {
                        columns.iter_mut().for_each(|column| _ = column.drop_histograms());
                        columns.retain(|column| !column.is_empty());
                    }
                    instant::sort(name, &mut columns, &texts);
                    return Ok(columns);
                }
            };
            done.map_err(Error::Execution)?;
            super::merged(columns).map_err(Error::Execution)
        })
    }

    /// When the value of each series was taken.
    fn timestamps<'b>(
        &'b mut self,
        series: &'b Node,
        steps: Steps,
    ) -> Boxed<'b, Vec<Column>, S::Error> {
        Box::pin(async move {
            let mut columns = match &series.expr {
                Expr::Vector(selector) => {
                    let reading = self.reading(self.options.lookback, selector.shift, steps);
                    self.last_values((selector, &series.span), reading, steps, true).await?
                }
                _ => self.columns(series, steps).await?,
            };
            let is_computed = !matches!(series.expr, Expr::Vector(_));
            for column in &mut columns {
                for place in 0..column.cells.len() {
                    if is_computed && !is_absent(column.cells[place]) {
                        let time = super::seconds(0, steps.time(place));
                        column.put(place, crate::Value::Float(time));
                    }
                }
                drop_name(column, self.options.late_names);
            }
            self.together(columns)
        })
    }

    /// Functions of ranges.
    fn over_time<'b>(
        &'b mut self,
        over: Over,
        name: &'b str,
        arguments: &'b [Node],
        steps: Steps,
    ) -> Boxed<'b, Vec<Column>, S::Error> {
        Box::pin(async move {
            let (mut ranges, mut numbers) = (None, Vec::new());
            for argument in arguments {
                match argument.value_type() {
                    Type::Matrix => ranges = Some(argument),
                    _ => {
                        let all = self.numbers(argument, steps).await?;
                        if over == Over::Quantile {
                            all.iter().for_each(|q| self.check_quantile(*q, &argument.span));
                        }
                        numbers.push(all);
                    }
                }
            }
            if over == Over::Smoothing {
                check_factors(&numbers).map_err(Error::Execution)?;
            }
            let Some(ranges) = ranges else {
                return Err(Error::Asked(format!("{name} needs a range vector")));
            };
            let (numbers, span) = (numbers.as_slice(), &ranges.span);
            let columns = match &ranges.expr {
                Expr::Matrix(selector, range) => {
                    let reading = self.reading(*range, selector.shift, steps);
                    self.over_selector(selector, &Asked { over, numbers, steps, reading, span })
                        .await?
                }
                Expr::Subquery(subquery) => {
                    let reading = self.reading(subquery.range, subquery.shift, steps);
                    let series = self.subquery(subquery, reading).await?;
                    self.over_subquery(series, &Asked { over, numbers, steps, reading, span })
                        .await?
                }
                _ => return Err(Error::Asked(format!("{name} needs a range vector"))),
            };
            if over == Over::Absent {
                let mut columns =
                    instant::absence(&columns, instant::labels_of_absent(ranges), steps.count);
                columns.iter_mut().for_each(|column| column.drop_name = true);
                return Ok(columns);
            }
            refuse_twins(columns, self.options.late_names)
        })
    }

    /// Tells of a metric that doesn't look like a counter.
    pub(super) fn tell_of_counter(&mut self, metric: &str, span: &Range<usize>) {
        if !metric.is_empty() && !COUNTERS.iter().any(|end| metric.ends_with(end)) {
            let why =
                "metric might not be a counter, name does not end in _total/_sum/_count/_bucket";
            self.told.inform(format!("{why}: {metric:?}"), span);
        }
    }
}

fn check_factors(numbers: &[Vec<f64>]) -> Result<(), String> {
    for (all, which) in
        numbers.iter().zip(["smoothing factor. Expected: 0 < sf", "trend factor. Expected: 0 < tf"])
    {
        if let Some(wrong) = all.iter().find(|number| !(**number > 0.0 && **number < 1.0)) {
            return Err(format!("invalid {which} < 1, got: {wrong:.6}"));
        }
    }
    Ok(())
}

/// The value of the only series at each step, if there is one.
fn only_values(columns: &[Column], steps: usize) -> Vec<f64> {
    let value = |place: usize| {
        let mut values = columns.iter().filter_map(|column| column.float(place));
        match (values.next(), values.next()) {
            (Some(value), None) => value,
            _ => f64::NAN,
        }
    };
    (0..steps).map(value).collect()
}
