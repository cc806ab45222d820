//! A value a step for each series, and steps without one.
//!
//! A step without a value holds the bits of a stale mark, which no value ever is: marks end where
//! points are read. So a cell takes eight bytes, and columns are gone through one after the other.
//! A step with a histogram holds another mark, and the histogram stands in a table beside the
//! cells, which a column without histograms doesn't have. The table has the last word: no number
//! is taken for a histogram because of its bits.

use crate::histogram::Histogram;
use crate::labels::Labels;
use crate::source::{HISTOGRAM, STALE, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// A step without a value.
pub(crate) const ABSENT: f64 = f64::from_bits(STALE);

pub(crate) fn is_absent(value: f64) -> bool {
    value.to_bits() == STALE
}

/// What Prometheus says where two values of a step would be told apart by nothing.
pub(crate) const SAME_LABELSET: &str = "vector cannot contain metrics with the same labelset";

/// The histograms of a column, by step; nothing if there are none.
#[derive(Clone, Default, Debug)]
pub(crate) struct Histograms(Vec<Option<Arc<Histogram>>>);

impl Histograms {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, step: usize) -> Option<&Arc<Histogram>> {
        self.0.get(step)?.as_ref()
    }

    /// How many values they are counted as; one that is there at step after step is shared.
    fn weight(&self) -> usize {
        let mut last: Option<&Arc<Histogram>> = None;
        let mut all = self.0.len();
        for histogram in self.0.iter().flatten() {
            if !last.is_some_and(|last| Arc::ptr_eq(last, histogram)) {
                all += histogram.size();
            }
            last = Some(histogram);
        }
        all
    }
}

/// A value of a column.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cell<'a> {
    Float(f64),
    Histogram(&'a Arc<Histogram>),
}

/// A series with a value a step.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) labels: Labels,
    /// Whether the metric goes at the end, where names are dropped late.
    pub(crate) drop_name: bool,
    pub(crate) cells: Vec<f64>,
    pub(crate) histograms: Histograms,
}

impl Column {
    pub(crate) fn new(labels: Labels, steps: usize) -> Self {
        Self::of(labels, vec![ABSENT; steps])
    }

    pub(crate) fn of(labels: Labels, cells: Vec<f64>) -> Self {
        Self { labels, drop_name: false, cells, histograms: Histograms::default() }
    }

    /// How many values it is counted as.
    pub(crate) fn weight(&self) -> usize {
        self.cells.len() + self.histograms.weight()
    }

    /// The value at a step.
    pub(crate) fn get(&self, step: usize) -> Option<Cell<'_>> {
        match self.histograms.get(step) {
            Some(histogram) => Some(Cell::Histogram(histogram)),
            None => {
                self.cells.get(step).filter(|cell| !is_absent(**cell)).copied().map(Cell::Float)
            }
        }
    }

    /// The number at a step.
    pub(crate) fn float(&self, step: usize) -> Option<f64> {
        match self.get(step)? {
            Cell::Float(value) => Some(value),
            Cell::Histogram(_) => None,
        }
    }

    /// Puts a value in the place of what is at a step.
    pub(crate) fn put(&mut self, step: usize, value: Value) {
        match value {
            Value::Float(value) => {
                self.clear(step);
                self.cells[step] = value;
            }
            Value::Histogram(histogram) => {
                if self.histograms.is_empty() {
                    self.histograms.0.resize(self.cells.len(), None);
                }
                self.cells[step] = f64::from_bits(HISTOGRAM);
                self.histograms.0[step] = Some(histogram);
            }
        }
    }

    /// Puts the value of the first step at all others.
    pub(crate) fn fill(&mut self) {
        let Some(first) = self.cells.first().copied() else { return };
        self.cells.fill(first);
        if let Some(first) = self.histograms.0.first().cloned() {
            self.histograms.0 = vec![first; self.cells.len()];
        }
    }

    /// Takes the value of a step away.
    pub(crate) fn clear(&mut self, step: usize) {
        self.cells[step] = ABSENT;
        if let Some(histogram) = self.histograms.0.get_mut(step) {
            *histogram = None;
        }
    }

    /// Takes all histograms away; whether there were any.
    pub(crate) fn drop_histograms(&mut self) -> bool {
        let histograms = std::mem::take(&mut self.histograms);
        for (cell, histogram) in self.cells.iter_mut().zip(&histograms.0) {
            if histogram.is_some() {
                *cell = ABSENT;
            }
        }
        histograms.0.iter().any(Option::is_some)
    }

    /// Puts something in the place of each histogram; what is shared stays so.
    pub(crate) fn change_histograms(&mut self, change: impl Fn(&Histogram) -> Histogram) {
        let mut last: Option<(Arc<Histogram>, Arc<Histogram>)> = None;
        for histogram in self.histograms.0.iter_mut().flatten() {
            let known = last.as_ref().filter(|(before, _)| Arc::ptr_eq(before, histogram));
            let changed = match known {
                Some((_, changed)) => Arc::clone(changed),
                None => Arc::new(change(histogram)),
            };
            let before = std::mem::replace(histogram, Arc::clone(&changed));
            last = Some((before, changed));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cells.iter().all(|cell| is_absent(*cell))
    }

    /// Puts something in the place of each number.
    pub(crate) fn change(&mut self, change: impl Fn(f64) -> f64) {
        let histograms = &self.histograms;
        for (step, cell) in self.cells.iter_mut().enumerate() {
            if !is_absent(*cell) && histograms.get(step).is_none() {
                *cell = change(*cell);
            }
        }
    }
}

/// Columns with the same labels become one if no step has a value of both.
pub(crate) fn merged(columns: Vec<Column>) -> Result<Vec<Column>, String> {
    let mut places: HashMap<Labels, usize> = HashMap::with_capacity(columns.len());
    let mut all: Vec<Column> = Vec::with_capacity(columns.len());
    for mut column in columns {
        let Some(place) = places.get(&column.labels) else {
            places.insert(column.labels.clone(), all.len());
            all.push(column);
            continue;
        };
        let kept = &mut all[*place];
        for (step, value) in column.cells.iter().enumerate() {
            if is_absent(*value) {
                continue;
            }
            if !is_absent(kept.cells[step]) {
                return Err(SAME_LABELSET.to_string());
            }
            match column.histograms.0.get_mut(step).and_then(Option::take) {
                Some(histogram) => kept.put(step, Value::Histogram(histogram)),
                None => kept.cells[step] = *value,
            }
        }
    }
    Ok(all)
}

/// Whether two columns have the same labels.
pub(crate) fn has_twins(columns: &[Column]) -> bool {
    let mut seen = std::collections::HashSet::with_capacity(columns.len());
    !columns.iter().all(|column| seen.insert(&column.labels))
}
