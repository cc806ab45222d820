//! Functions of histograms that give numbers.

use super::super::column::{ABSENT, Column};
use super::super::drop_name;
use crate::histogram::Histogram;

/// The function of a histogram with this name, if there is one.
pub(in super::super) fn of_histogram(name: &str) -> Option<fn(&Histogram) -> f64> {
    Some(match name {
        "histogram_count" => Histogram::count,
        "histogram_sum" => Histogram::sum,
        "histogram_avg" => Histogram::mean,
        "histogram_stdvar" => Histogram::variance,
        "histogram_stddev" => |histogram| histogram.variance().sqrt(),
        _ => return None,
    })
}

/// Puts numbers in the place of histograms; what was a number is left out.
pub(in super::super) fn numbers(
    columns: Vec<Column>,
    late: bool,
    mut number: impl FnMut(usize, &Column, &Histogram) -> Option<f64>,
) -> Vec<Column> {
    let mut out = Vec::new();
    for column in columns.into_iter().filter(|column| !column.histograms.is_empty()) {
        let cell = |step| {
            let histogram = column.histograms.get(step)?;
            number(step, &column, histogram)
        };
        let cells = (0..column.cells.len()).map(cell);
        let cells = cells.map(|number| number.unwrap_or(ABSENT)).collect();
        let drops = column.drop_name;
        let mut numbers = Column { drop_name: drops, ..Column::of(column.labels.clone(), cells) };
        drop_name(&mut numbers, late);
        if !numbers.is_empty() {
            out.push(numbers);
        }
    }
    out
}
