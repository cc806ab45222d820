//! How the cost of a read and of a write grows with the data: on databases of a hundredth and a
//! tenth of the rows, and of all; of very many rows also on one of a thousandth, so that one run
//! goes from a hundred thousand rows to a hundred million.
//!
//! Cost is time of a processor, the engine's own work in the background included, so that other
//! processes disturb it little. Much of it is waiting for memory, which is the slower the more of
//! it is in use: beside it stands what a plain load costs in as many bytes as the rows have.

use super::memory::wait;
use super::mix::{Mix, OPERATIONS};
use super::{Group, Workload};
use crate::calibrate;
use crate::curve::{Axis, Curve};
use crate::figures;
use crate::outcome::{Figure, Measurement, Outcome};
use crate::place::Place;
use crate::unit::Unit;
use crate::{Bench, Error, Progress, Result, Settings, words};
use serde_json::json;
use std::time::Duration;

/// The cost of operations by the number of rows.
pub const GROWTH: Workload = Workload {
    name: "growth",
    about: "processor time of a read and of a write with a hundredth of the rows (a thousandth, of 100,000,000 or more), a tenth, and all",
    group: Group::Own,
    long: true,
    run: growth,
};

const DIRECTORY: &str = "plinth-bench-growth";
const CLIENTS: usize = 100;
const PARTS: [u64; 4] = [1_000, 100, 10, 1];
/// With so many rows the first part is measured too.
const VERY_MANY_ROWS: u64 = 100_000_000;
/// What is measured, on one thread: its words, the transaction.
const MEASURED: [(&str, Mix); 2] =
    [("read", Mix::new(OPERATIONS, 0)), ("write", Mix::new(0, OPERATIONS))];

fn growth(bench: &Bench) -> Result<Outcome> {
    let host = bench.host.as_ref();
    let host =
        host.ok_or_else(|| Error::Skipped("it needs a database in this process".to_owned()))?;
    let mut points = [const { Vec::new() }; 2];
    let mut reads = None;
    let mut loads = Vec::new();
    for rows in sizes(bench.dataset.rows()) {
        let place = Place::new(&bench.env, bench.directory.join(DIRECTORY))?;
        let database = host.create(&place.path, bench.settings.memory)?;
        let task =
            bench.progress.unknown(&format!("growth, loading {} rows", words::grouped(rows)));
        let settings = Settings { rows, ..bench.settings.clone() };
        let own = Bench::prepare(
            database,
            place.path.clone(),
            settings,
            Progress::Silent,
            bench.stop.clone(),
        )?;
        drop(task);
        let own = Bench { progress: bench.progress, ..own };
        for ((what, mix), points) in MEASURED.iter().zip(&mut points) {
            // What the load and the writes before left to do in the background is not this
            // measurement's.
            wait(&own, "growth, at rest", 2 * bench.settings.rest);
            let title = format!("growth, {what}s of {} rows", words::grouped(rows));
            let measured = mix.drive(&own, &own.plan(&title, CLIENTS, 1))?;
            points.push((rows as f64, cost(&measured)));
            if mix.reads > 0 {
                reads = Some(measured);
            }
        }
        let bytes = usize::try_from(own.dataset.bytes()).unwrap_or(usize::MAX);
        loads.push((rows as f64, calibrate::dependent_load(&own, bytes)));
    }
    Ok(outcome(&points, &loads, reads))
}

/// The numbers of rows that are measured, ascending.
fn sizes(rows: u64) -> impl Iterator<Item = u64> {
    PARTS.iter().skip(usize::from(rows < VERY_MANY_ROWS)).map(move |part| (rows / part).max(1))
}

/// Seconds of a processor for an operation; of the clock, where the former can't be known.
fn cost(measured: &Measurement) -> f64 {
    1.0 / measured.rate_of_processor().unwrap_or_else(|| measured.rate()).max(1e-9)
}

fn outcome(
    points: &[Vec<(f64, f64)>; 2],
    loads: &[(f64, f64)],
    reads: Option<Measurement>,
) -> Outcome {
    let mut figures = MEASURED.iter().zip(points).map(|((what, _), points)| {
        let ((rows_first, first), (rows_last, last)) = (points[0], points[points.len() - 1]);
        let target = figures::growth(rows_first, rows_last);
        let what = format!(
            "{what} with {} rows, of {}",
            words::short(rows_last),
            words::short(rows_first)
        );
        Figure::new(what, last / first.max(1e-12), Unit::Times, target)
    });
    let headline = figures.next().expect("reads are measured");
    let mut outcome =
        Outcome::new("growth", "cost by the number of rows".to_owned(), headline, reads);
    outcome.figures.extend(figures);
    let mut curve = Curve::new(
        "Cost by the number of rows",
        Axis::logarithmic("rows", Unit::Count),
        Axis::linear("processor time an operation", Unit::Seconds),
    );
    let measured = MEASURED.iter().zip(points).map(|((what, _), points)| (*what, &points[..]));
    for (what, points) in measured.chain([("load from memory", loads)]) {
        let costs = points.iter().map(|(rows, cost)| {
            format!(
                "{} with {} rows",
                words::duration(Duration::from_secs_f64(*cost)),
                words::short(*rows)
            )
        });
        outcome.notes.push(format!("a {what}: {}", costs.collect::<Vec<_>>().join(", ")));
        curve = curve.with(what, points.to_vec());
    }
    let points = json!({"reads": points[0], "writes": points[1], "loads": loads});
    outcome.details.push(("seconds_of_processor_by_rows", points));
    outcome.curves.push(curve);
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_of_a_hundred_million_rows_covers_each_power_of_ten_from_a_hundred_thousand_on() {
        let sizes = |rows| sizes(rows).collect::<Vec<_>>();
        assert_eq!(sizes(100_000_000), [100_000, 1_000_000, 10_000_000, 100_000_000]);
        assert_eq!(sizes(99_999_999), [999_999, 9_999_999, 99_999_999]);
        assert_eq!(sizes(50), [1, 5, 50]);
    }
}
