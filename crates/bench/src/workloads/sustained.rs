//! Random writes for minutes on end: what is left of the first minute's speed once checkpoints run, the
//! log goes round and the window is full.
//!
//! It takes sixty times as long as the other workloads: ten minutes where they take ten seconds. Writes are
//! counted in sixty slices, and the slowest one is compared with the mean of the first six.

use super::{Group, Workload, write};
use crate::clients::Plan;
use crate::figures;
use crate::outcome::{Figure, Outcome, Unit};
use crate::{Bench, Result, words};
use serde_json::json;

/// Minutes of random writes.
pub const SUSTAINED: Workload = Workload {
    name: "sustained",
    about: "100 clients, 10 random writes a transaction, for sixty times --seconds",
    group: Group::Own,
    long: true,
    run: sustained,
};

const CLIENTS: usize = 100;
const SLICES: usize = 60;
const FIRST_MINUTE: usize = 6;
/// Shorter runs don't tell what ten minutes would.
const LEAST_SECONDS: u64 = 600;

fn sustained(bench: &Bench) -> Result<Outcome> {
    let time = bench.settings.time * SLICES as u32;
    let plan = Plan { time, slices: SLICES, ..bench.plan("sustained", CLIENTS, 1) };
    let measured = write::ten_writes(bench, &plan)?;
    let slice = time.as_secs_f64() / SLICES as f64;
    let rates: Vec<f64> = measured.tally.slices.iter().map(|&writes| writes as f64 / slice).collect();
    let first_minute = rates[..FIRST_MINUTE].iter().sum::<f64>() / FIRST_MINUTE as f64;
    let (slowest, lowest) =
        rates.iter().copied().enumerate().min_by(|one, two| one.1.total_cmp(&two.1)).unwrap_or_default();
    let title =
        format!("{} clients, 10 writes, for {}", words::grouped(plan.clients as u64), words::duration(time));
    let headline = Figure::new("writes/s", measured.rate(), Unit::PerSecond("writes"), figures::SUSTAINED);
    let mut outcome = Outcome::new("sustained", title, headline, Some(measured));
    let part = lowest / first_minute.max(1e-9);
    outcome.figures.push(Figure::new(
        "slowest of 60 slices, of the first six",
        part,
        Unit::Part,
        figures::SUSTAINED_LOWEST,
    ));
    outcome.comparable = plan.clients == CLIENTS && time.as_secs() >= LEAST_SECONDS;
    outcome.notes.push(format!(
        "first six slices {} writes/s, slowest {} (number {} of {SLICES}, of {} each), last {}",
        words::short(first_minute),
        words::short(lowest),
        slowest + 1,
        words::duration(std::time::Duration::from_secs_f64(slice)),
        words::short(rates[SLICES - 1]),
    ));
    outcome.details.push(("slices", json!({"seconds_each": slice, "writes_per_second": rates})));
    Ok(outcome)
}
