//! Aggregations of series of which some have histograms.
//!
//! Sums and means are those of histograms alone or of floats alone, at each step by itself. What
//! looks for the least, the most or how far values are apart passes over histograms.

use super::super::column::{Cell, Column};
use super::operate::{Notes, TooMuch};
use super::{Tell, pool};
use crate::annotations::Annotations;
use crate::ast::Aggregation;
use crate::histogram::{Histogram, Mixed};
use crate::labels::NAME;
use crate::source::Value;
use std::ops::Range;
use std::sync::Arc;

/// The word for an aggregation that knows only numbers.
fn of_numbers(op: Aggregation) -> Option<&'static str> {
    Some(match op {
        Aggregation::Min => "min",
        Aggregation::Max => "max",
        Aggregation::Stddev => "stddev",
        Aggregation::Stdvar => "stdvar",
        Aggregation::Quantile => "quantile",
        Aggregation::Topk => "topk",
        Aggregation::Bottomk => "bottomk",
        _ => return None,
    })
}

/// Takes histograms away from an aggregation that knows only numbers, and says so.
pub(in super::super) fn ignored(
    op: Aggregation,
    columns: &mut [Column],
    told: &mut Annotations,
    span: &Range<usize>,
) {
    let Some(word) = of_numbers(op) else { return };
    for column in columns.iter_mut().filter(|column| !column.histograms.is_empty()) {
        if column.drop_histograms() {
            told.inform(format!("ignored histogram in {word} aggregation"), span);
        }
    }
}

/// The sum or the mean of a group with a histogram at a step; nothing if they don't fit together.
fn pooled(
    op: Aggregation,
    group: &[&Column],
    step: usize,
    told: &mut Annotations,
    span: &Range<usize>,
) -> Option<Histogram> {
    let values = || group.iter().filter_map(|column| column.get(step));
    if values().any(|value| matches!(value, Cell::Float(_))) {
        told.warn("encountered a mix of histograms and floats for aggregation".to_string(), span);
        return None;
    }
    let histograms = values().filter_map(|value| match value {
        Cell::Histogram(histogram) => Some(&**histogram),
        Cell::Float(_) => None,
    });
    let found = match op {
        Aggregation::Avg => pool::mean(histograms),
        _ => pool::sum(histograms),
    };
    match found {
        Ok(found) => {
            Tell { told, span, metric: "" }.of_merge(found.merged, "aggregation");
            Some(found.histogram)
        }
        Err(Mixed) => {
            // The first that doesn't fit to the first.
            let mut kinds = group.iter().filter_map(|column| {
                let histogram = column.histograms.get(step)?;
                Some((histogram.is_custom(), column.labels.get(NAME)))
            });
            let first = kinds.next().map(|(kind, _)| kind);
            let metric = kinds.find(|(kind, _)| Some(*kind) != first).map_or("", |(_, name)| name);
            Tell { told, span, metric }.of_mixed_schemas();
            None
        }
    }
}

/// Puts the sums or means of a group into its column, at the steps at which it has histograms.
pub(in super::super) fn pool_into(
    out: &mut Column,
    op: Aggregation,
    group: &[&Column],
    notes: &mut Notes<'_>,
) -> Result<(), TooMuch> {
    for step in 0..out.cells.len() {
        if !group.iter().any(|column| column.histograms.get(step).is_some()) {
            continue;
        }
        match pooled(op, group, step, notes.told, notes.span) {
            Some(histogram) => {
                notes.made(&histogram)?;
                out.put(step, Value::Histogram(Arc::new(histogram)));
            }
            None => out.clear(step),
        }
    }
    Ok(())
}
