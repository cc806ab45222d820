//! The KPI page's random 90/10 and 50/50, on ten random keys a transaction, over time: the first
//! burst, then what stays.

use super::mix::Mix;
use super::{Group, Workload};
use crate::curve::{Axis, Curve};
use crate::figures::{self, Target};
use crate::outcome::{Figure, Outcome};
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
/// The slices that are the burst; the second half is what stays.
const BURST: usize = 6;

fn run(bench: &Bench, name: &'static str, mix: Mix, targets: [Target; 2]) -> Result<Outcome> {
    let time = bench.settings.time * TIMES;
    let plan = Plan { time, slices: SLICES, ..bench.plan(name, CLIENTS, 1) };
    let measured = mix.drive(bench, &plan)?;
    let slice = time.as_secs_f64() / SLICES as f64;
    let rates: Vec<f64> = measured.tally.slices.iter().map(|&count| count as f64 / slice).collect();
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    let (burst, steady) = (mean(&rates[..BURST]), mean(&rates[SLICES / 2..]));
    let clients = words::grouped(plan.clients as u64);
    let writes =
        if mix.writes == 1 { "a write".to_owned() } else { format!("{} writes", mix.writes) };
    let title = format!("{clients} clients, {} reads and {writes}", mix.reads);
    let unit = Unit::PerSecond("operations");
    let headline = Figure::new("operations/s, steady", steady, unit, targets[0]);
    let mut outcome = Outcome::new(name, title, headline, Some(measured));
    outcome.figures.push(Figure::new("operations/s, first burst", burst, unit, targets[1]));
    outcome
        .details
        .push(("slices", json!({"seconds_each": slice, "operations_per_second": rates})));
    let points =
        rates.iter().enumerate().map(|(at, &rate)| ((at as f64 + 0.5) * slice, rate)).collect();
    let (reads, writes) = (mix.reads * 10, mix.writes * 10);
    let mut curve = Curve::new(
        format!("{reads}/{writes} on ten random keys, over time"),
        Axis::linear("time", Unit::Seconds),
        Axis::linear("operations a second", unit),
    )
    .with("Plinth", points);
    for (name, target) in [("steady", targets[0]), ("burst", targets[1])] {
        if let Some(published) = target.published {
            curve =
                curve.beside(format!("guide, {name}, {} cores", target.published_cores), published);
        }
    }
    outcome.curves.push(curve);
    Ok(outcome)
}
