//! A value a step for each series, and steps without one.
//!
//! A step without a value holds the bits of a stale mark, which no value ever is: marks end where
//! points are read. So a cell takes eight bytes, and columns are gone through one after the other.

use crate::labels::Labels;
use crate::source::STALE;
use std::collections::HashMap;

/// A step without a value.
pub(crate) const ABSENT: f64 = f64::from_bits(STALE);

pub(crate) fn is_absent(value: f64) -> bool {
    value.to_bits() == STALE
}

/// What Prometheus says where two values of a step would be told apart by nothing.
pub(crate) const SAME_LABELSET: &str = "vector cannot contain metrics with the same labelset";

/// A series with a value a step.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) labels: Labels,
    /// Whether the metric goes at the end, where names are dropped late.
    pub(crate) drop_name: bool,
    pub(crate) cells: Vec<f64>,
}

impl Column {
    pub(crate) fn new(labels: Labels, steps: usize) -> Self {
        Self { labels, drop_name: false, cells: vec![ABSENT; steps] }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cells.iter().all(|cell| is_absent(*cell))
    }

    /// Puts something in the place of each value.
    pub(crate) fn change(&mut self, change: impl Fn(f64) -> f64) {
        for cell in &mut self.cells {
            if !is_absent(*cell) {
                *cell = change(*cell);
            }
        }
    }
}

/// Columns with the same labels become one if no step has a value of both.
pub(crate) fn merged(columns: Vec<Column>) -> Result<Vec<Column>, String> {
    let mut places: HashMap<Labels, usize> = HashMap::with_capacity(columns.len());
    let mut all: Vec<Column> = Vec::with_capacity(columns.len());
    for column in columns {
        let Some(place) = places.get(&column.labels) else {
            places.insert(column.labels.clone(), all.len());
            all.push(column);
            continue;
        };
        for (cell, value) in all[*place].cells.iter_mut().zip(column.cells) {
            if is_absent(value) {
                continue;
            }
            if !is_absent(*cell) {
                return Err(SAME_LABELSET.to_string());
            }
            *cell = value;
        }
    }
    Ok(all)
}

/// Whether two columns have the same labels.
pub(crate) fn has_twins(columns: &[Column]) -> bool {
    let mut seen = std::collections::HashSet::with_capacity(columns.len());
    !columns.iter().all(|column| seen.insert(&column.labels))
}
