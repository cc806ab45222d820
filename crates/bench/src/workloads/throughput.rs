//! The performance page's throughput, from 100% reads to 100% writes: reads and writes unmixed at
//! the ends, and in between the transactions of ten operations with one write more at each step.

use super::mix::{Mix, OPERATIONS};
use super::{Group, Workload};
use crate::curve::{Axis, Curve};
use crate::figures;
use crate::outcome::{Figure, Outcome};
use crate::plan::Plan;
use crate::unit::Unit;
use crate::{Bench, Result};

/// Throughput by the share of writes.
pub const THROUGHPUT: Workload = Workload {
    name: "throughput",
    about: "performance page: 100 clients, 10 operations a transaction, from 100% reads to 100% writes",
    group: Group::Performance,
    long: false,
    run: throughput,
};

const CLIENTS: usize = 100;
/// There are eleven steps: each takes a part of the time.
const PART: u32 = 4;

fn throughput(bench: &Bench) -> Result<Outcome> {
    let mut points = Vec::new();
    let mut ends = [None, None];
    let mut sum = None;
    for writes in 0..=OPERATIONS {
        let title = format!("throughput, {} % writes", writes * 10);
        let plan = Plan { time: bench.settings.time / PART, ..bench.plan(&title, CLIENTS, 1) };
        let measured = Mix::new(OPERATIONS - writes, writes).drive(bench, &plan)?;
        points.push((writes as f64 / OPERATIONS as f64, measured.rate()));
        if writes == 0 || writes == OPERATIONS {
            ends[usize::from(writes > 0)] = Some(measured.rate());
        }
        sum = Some(super::join(sum, measured));
    }
    let [reads, writes] = ends.map(Option::unwrap_or_default);
    let (read_target, write_target) = figures::unmixed(&bench.engine);
    let title = "100 clients, 10 operations".to_owned();
    let headline =
        Figure::new("reads/s, nothing but reads", reads, Unit::PerSecond("reads"), read_target);
    let mut outcome = Outcome::new("throughput", title, headline, sum);
    outcome.figures.push(Figure::new(
        "writes/s, nothing but writes",
        writes,
        Unit::PerSecond("writes"),
        write_target,
    ));
    let mut curve = Curve::new(
        "Throughput from reads to writes",
        Axis::linear("share of writes", Unit::Part),
        Axis::linear("operations a second", Unit::PerSecond("operations")),
    )
    .with("Plinth", points);
    for (name, x, target) in
        [("guide, reads", 0.0, read_target), ("guide, writes", 1.0, write_target)]
    {
        if let Some(published) = target.published {
            curve = curve.beside_at(format!("{name} ({})", bench.engine), x, published);
        }
    }
    outcome.curves.push(curve);
    Ok(outcome)
}
