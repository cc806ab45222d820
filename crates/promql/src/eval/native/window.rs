//! Functions of a range in which there are histograms.
//!
//! What needs numbers passes over the histograms and says so. What sums or subtracts takes
//! histograms alone: floats among them have no bucket to go to.

use super::super::column::Cell;
use super::super::seconds;
use super::super::window::{Over, Reach, Window};
use super::{Tell, pool};
use crate::histogram::{Histogram, Merged, ResetHint, Total};
use crate::source::{HISTOGRAM, HistogramSample, Sample, Value};
use std::borrow::Cow;
use std::sync::Arc;

/// The points of a window: all of them, and the histograms among them.
#[derive(Clone, Copy)]
pub(in super::super) struct Points<'a> {
    pub(in super::super) samples: &'a [Sample],
    pub(in super::super) histograms: &'a [HistogramSample],
}

impl<'a> Points<'a> {
    /// How many values they are counted as.
    pub(in super::super) fn weight(&self) -> usize {
        self.samples.len() + self.histograms.iter().map(|(_, all)| all.size()).sum::<usize>()
    }

    /// All of them as what they are.
    fn cells(&self) -> impl Iterator<Item = (i64, Cell<'a>)> + use<'a> {
        let mut rest = self.histograms.iter().peekable();
        self.samples.iter().map(move |(time, value)| {
            while rest.next_if(|(next, _)| next < time).is_some() {}
            let is_histogram = value.to_bits() == HISTOGRAM;
            let found = rest.peek().filter(|(next, _)| is_histogram && next == time);
            let cell = found.map_or(Cell::Float(*value), |(_, all)| Cell::Histogram(all));
            (*time, cell)
        })
    }

    fn floats(&self) -> Vec<Sample> {
        let float = |(time, cell)| match cell {
            Cell::Float(value) => Some((time, value)),
            Cell::Histogram(_) => None,
        };
        self.cells().filter_map(float).collect()
    }
}

fn owned(cell: Cell<'_>) -> Value {
    match cell {
        Cell::Float(value) => Value::Float(value),
        Cell::Histogram(histogram) => Value::Histogram(Arc::clone(histogram)),
    }
}

/// The value of a window.
pub(in super::super) fn value(
    over: Over,
    points: Points<'_>,
    window: Window,
    args: &[f64],
    tell: &mut Tell<'_>,
) -> Option<Value> {
    let (first, last) = (points.samples.first()?, points.samples.last()?);
    let histograms = || points.histograms.iter().map(|(_, histogram)| &**histogram);
    let pairs = || points.cells().zip(points.cells().skip(1)).map(|(a, b)| (a.1, b.1));
    let counted = |is: &dyn Fn(Cell<'_>, Cell<'_>) -> bool| {
        pairs().filter(|(before, now)| is(*before, *now)).count() as f64
    };
    let float = match over {
        Over::Rate | Over::Increase | Over::Delta | Over::Avg | Over::Sum => {
            if points.samples.len() > points.histograms.len() {
                tell.of_floats_among();
                return None;
            }
            let histogram = match over {
                Over::Avg => pooled(pool::mean(histograms()), tell),
                Over::Sum => pooled(pool::sum(histograms()), tell),
                _ => rate(over, points.histograms, window, tell),
            };
            return Some(Value::Histogram(Arc::new(histogram?)));
        }
        Over::Irate | Over::Idelta => return of_the_last_two(over, points, tell),
        Over::First => return points.cells().next().map(|(_, cell)| owned(cell)),
        Over::Last => return points.cells().last().map(|(_, cell)| owned(cell)),
        Over::Count => points.samples.len() as f64,
        Over::Present | Over::Absent => 1.0,
        Over::TimeOfFirst => seconds(0, first.0),
        Over::TimeOfLast => seconds(0, last.0),
        Over::Changes => counted(&differ),
        Over::Resets => counted(&is_reset),
        over => {
            let floats = points.floats();
            if floats.is_empty() {
                return None;
            }
            tell.of_ignored();
            over.value(&floats, window, args)?
        }
    };
    Some(Value::Float(float))
}

fn differ(before: Cell<'_>, now: Cell<'_>) -> bool {
    match (before, now) {
        (Cell::Float(before), Cell::Float(now)) => {
            before != now && !(before.is_nan() && now.is_nan())
        }
        (Cell::Histogram(before), Cell::Histogram(now)) => !before.equals(now),
        _ => true,
    }
}

fn is_reset(before: Cell<'_>, now: Cell<'_>) -> bool {
    match (before, now) {
        (Cell::Float(before), Cell::Float(now)) => now < before,
        (Cell::Histogram(before), Cell::Histogram(now)) => now.is_reset_after(before),
        _ => true,
    }
}

/// What many histograms come to, with what is to be said of it.
fn pooled(
    pooled: Result<pool::Pooled, crate::histogram::Mixed>,
    tell: &mut Tell<'_>,
) -> Option<Histogram> {
    match pooled {
        Ok(pool::Pooled { histogram, merged }) => {
            tell.of_merge(merged, "aggregation");
            Some(histogram)
        }
        Err(crate::histogram::Mixed) => {
            tell.of_mixed_schemas();
            None
        }
    }
}

fn is_gauge(histogram: &Histogram) -> bool {
    histogram.hint() == ResetHint::Gauge
}

/// How far histograms rose, with what lies between the window's ends and its points.
fn rate(
    over: Over,
    points: &[HistogramSample],
    window: Window,
    tell: &mut Tell<'_>,
) -> Option<Histogram> {
    let [(begin, first), inner @ .., (end, last)] = points else { return None };
    let is_counter = over != Over::Delta;
    if is_counter && points.iter().any(|(_, histogram)| is_gauge(histogram)) {
        tell.of_no_counter();
    }
    // If it began again behind the first one nothing of that is looked at, nor what buckets it had.
    let second = &points[1].1;
    let mut before = Cow::Borrowed(&**first);
    if is_counter && second.is_reset_after(first) {
        before = Cow::Owned(second.emptied());
    }
    let counted = if is_counter { inner } else { &[] };
    let are_mixed = |(_, one): &HistogramSample| one.is_custom() != before.is_custom();
    if last.is_custom() != before.is_custom() || counted.iter().any(are_mixed) {
        tell.of_mixed_schemas();
        return None;
    }
    let schemas = counted.iter().map(|(_, one)| one.schema()).chain([before.schema()]);
    let mut total = Total::new(last);
    total.coarsen(schemas.min().unwrap_or(last.schema()));
    let rose = risen(&mut total, points, &before, is_counter, tell);
    if rose.is_none() {
        tell.of_mixed_schemas();
        return None;
    }
    if over == Over::Delta && (!is_gauge(first) || !is_gauge(last)) {
        tell.of_no_gauge();
    }
    let rise = total.histogram().with_hint(ResetHint::Gauge);
    let values = (first.count(), rise.count());
    let mut reach = Reach::default();
    reach.look(points.len() as u64, (*begin, *end), window)?;
    Some(rise.times(over.factor(&reach, values, window.range)))
}

/// Subtracts the first one from the last one, and adds what was before each new beginning. Whether
/// hints contradict each other doesn't matter: they have been heeded.
fn risen(
    total: &mut Total,
    points: &[HistogramSample],
    first: &Histogram,
    is_counter: bool,
    tell: &mut Tell<'_>,
) -> Option<()> {
    let merge = |merged: Merged| Merged { hints_collide: false, ..merged };
    tell.of_merge(merge(total.sub(first).ok()?), "subtraction");
    let mut before = first;
    for (_, now) in points[1..].iter().filter(|_| is_counter) {
        if now.is_reset_after(before) {
            tell.of_merge(merge(total.add(before).ok()?), "addition");
        }
        before = now;
    }
    Some(())
}

fn of_the_last_two(over: Over, points: Points<'_>, tell: &mut Tell<'_>) -> Option<Value> {
    let mut cells: Vec<(i64, Cell<'_>)> = points.cells().collect();
    let cells = cells.split_off(cells.len().saturating_sub(2));
    let [(then, before), (now, last)] = cells.as_slice() else { return None };
    if then == now {
        return None;
    }
    let (before, last) = match (before, last) {
        (Cell::Histogram(before), Cell::Histogram(last)) => (before, last),
        (Cell::Float(before), Cell::Float(last)) => {
            let both = [(*then, *before), (*now, *last)];
            return over.of_the_last_two(&both).map(Value::Float);
        }
        _ => {
            tell.of_floats_among();
            return None;
        }
    };
    let is_counter = over == Over::Irate;
    match is_counter {
        true if is_gauge(before) || is_gauge(last) => tell.of_no_counter(),
        false if !is_gauge(before) || !is_gauge(last) => tell.of_no_gauge(),
        _ => {}
    }
    let mut total = Total::new(last);
    if !is_counter || !last.is_reset_after(before) {
        match total.sub(before) {
            Ok(merged) => {
                tell.of_merge(Merged { hints_collide: false, ..merged }, "subtraction");
            }
            Err(crate::histogram::Mixed) => {
                tell.of_mixed_schemas();
                return None;
            }
        }
    }
    let mut found = total.histogram().with_hint(ResetHint::Gauge);
    if is_counter {
        found = found.divided(seconds(*then, *now));
    }
    Some(Value::Histogram(Arc::new(found)))
}
