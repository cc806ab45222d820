//! The KPI page's random 90/10 and 50/50, on ten random keys a transaction, over time: the first
//! burst, then what stays. How a rate went over time is shown in the same way for others.

use super::mix::Mix;
use super::{Group, Workload};
use crate::curve::{Axis, Curve};
use crate::figures::{self, Target};
use crate::outcome::{Figure, Measurement, Outcome};
use crate::plan::Plan;
use crate::unit::Unit;
use crate::{Bench, Result, words};
use serde_json::json;

/// Nine reads and a write.
pub const RANDOM_90_10: Workload = Workload {
    name: "random-90-10",
    about: "KPI page: 90% reads and 10% writes on 10 random keys a transaction, over time, for six times --seconds",
    group: Group::Kpi,
    long: false,
    run: |bench| {
        let targets = [figures::RANDOM_90_10_STEADY, figures::RANDOM_90_10_BURST];
        run(bench, "random-90-10", Mix::new(9, 1), targets)
    },
};

/// Five reads and five writes.
pub const RANDOM_50_50: Workload = Workload {
    name: "random-50-50",
    about: "KPI page: 50% reads and 50% writes on 10 random keys a transaction, over time, for six times --seconds",
    group: Group::Kpi,
    long: false,
    run: |bench| {
        let targets = [figures::RANDOM_50_50_STEADY, figures::RANDOM_50_50_BURST];
        run(bench, "random-50-50", Mix::new(5, 5), targets)
    },
};

const CLIENTS: usize = 100;
/// In times of what other workloads take.
const TIMES: u32 = 6;
const SLICES: usize = 60;
/// Where the time is a sixth of that.
const FEW_SLICES: usize = 20;
/// The slices that are the burst; the second half is what stays.
const BURST: usize = 6;

fn run(bench: &Bench, name: &'static str, mix: Mix, targets: [Target; 2]) -> Result<Outcome> {
    let time = bench.settings.time * TIMES;
    let plan = Plan { time, slices: SLICES, ..bench.plan(name, CLIENTS, 1) };
    let measured = mix.drive(bench, &plan)?;
    let slice = time.as_secs_f64() / SLICES as f64;
    let rates = rates(&measured, slice);
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    let (burst, steady) = (mean(&rates[..BURST]), mean(&rates[SLICES / 2..]));
    let clients = words::grouped(plan.clients as u64);
    let writes =
        if mix.writes == 1 { "a write".to_owned() } else { format!("{} writes", mix.writes) };
    let title = format!("{clients} clients, {} reads and {writes}", mix.reads);
    let unit = Unit::PerSecond("operations");
    let headline = Figure::new("operations/s, steady", steady, unit, targets[0]);
    let (reads, writes) = (mix.reads * 10, mix.writes * 10);
    let curve = curve(
        format!("{reads}/{writes} on ten random keys, over time"),
        "operations",
        (&measured, slice),
        &[("guide, steady", targets[0]), ("guide, burst", targets[1])],
    );
    let mut outcome = Outcome::new(name, title, headline, Some(measured));
    outcome.figures.push(Figure::new("operations/s, first burst", burst, unit, targets[1]));
    outcome
        .details
        .push(("slices", json!({"seconds_each": slice, "operations_per_second": rates})));
    outcome.curves.push(curve);
    Ok(outcome)
}

/// The rate in each slice of time, of so many seconds.
fn rates(measured: &Measurement, slice: f64) -> Vec<f64> {
    measured.tally.slices.iter().map(|&count| count as f64 / slice).collect()
}

/// How many `things` a second there were over time, counted in slices of so many seconds, beside
/// what the seeds publish.
pub(super) fn curve(
    title: impl Into<String>,
    things: &'static str,
    (measured, slice): (&Measurement, f64),
    published: &[(&str, Target)],
) -> Curve {
    let rates = rates(measured, slice).into_iter().enumerate();
    let points = rates.map(|(at, rate)| ((at as f64 + 0.5) * slice, rate)).collect();
    let curve = Curve::new(
        title,
        Axis::linear("time", Unit::Seconds),
        Axis::linear(format!("{things} a second"), Unit::PerSecond(things)),
    );
    let beside = |curve: Curve, (name, target): &(&str, Target)| match target.published {
        Some(published) => {
            curve.beside(format!("{name}, {} cores", target.published_cores), published)
        }
        None => curve,
    };
    published.iter().fold(curve.with("Plinth", points), beside)
}

/// A plan that counts in slices of time, and how many seconds each has.
pub(super) fn in_slices(plan: Plan) -> (Plan, f64) {
    let slice = plan.time.as_secs_f64() / FEW_SLICES as f64;
    (Plan { slices: FEW_SLICES, ..plan }, slice)
}
