//! The KPI page's bulk load: an empty database is filled through ordinary transactions. It is the
//! load that every run begins with, looked at afterwards.

use super::{Group, Workload};
use crate::curve::{Axis, Curve};
use crate::figures;
use crate::outcome::{Figure, Outcome};
use crate::unit::Unit;
use crate::{Bench, Error, Result, words};

/// The load.
pub const BULK_LOAD: Workload = Workload {
    name: "bulk-load",
    about: "KPI page: loading the rows into an empty database through standard transactions",
    group: Group::Kpi,
    long: false,
    run: bulk_load,
};

fn bulk_load(bench: &Bench) -> Result<Outcome> {
    let Some(load) = &bench.load else {
        let reason = "the rows were there already; it needs a database that the run itself loads";
        return Err(Error::Skipped(reason.to_owned()));
    };
    let title = format!("{} rows, 100 a transaction", words::grouped(load.rows));
    let headline =
        Figure::new("rows/s", load.rate(), Unit::PerSecond("rows"), figures::BULK_LOAD_ROWS);
    let mut outcome = Outcome::new("bulk-load", title, headline, None);
    let bytes = load.bytes as f64 / load.time.as_secs_f64().max(1e-9);
    outcome.figures.push(Figure::new(
        "keys and values",
        bytes,
        Unit::BytesPerSecond,
        figures::BULK_LOAD_BYTES,
    ));
    let tenth = load.rows as f64 / load.tenths.len().max(1) as f64;
    let rates: Vec<f64> = std::iter::once(0.0)
        .chain(load.tenths.iter().map(|end| end.as_secs_f64()))
        .collect::<Vec<_>>()
        .windows(2)
        .map(|ends| tenth / (ends[1] - ends[0]).max(1e-9))
        .collect();
    if let [first, .., last] = rates[..] {
        let part = last / first;
        outcome.figures.push(Figure::new(
            "last tenth, of the first",
            part,
            Unit::Part,
            figures::BULK_LOAD_LAST,
        ));
    }
    let points =
        rates.iter().enumerate().map(|(at, &rate)| ((at as f64 + 0.5) * tenth, rate)).collect();
    outcome.curves.push(
        Curve::new(
            "Bulk load",
            Axis::linear("rows loaded", Unit::Count),
            Axis::linear("rows a second", Unit::PerSecond("rows")),
        )
        .with("Plinth", points)
        .beside("guide, 96 cores", figures::BULK_LOAD_ROWS.published.unwrap_or_default()),
    );
    Ok(outcome)
}
