//! Data larger than memory: 3.5 times as large as all that the engine may use, the KPI page's ratio
//! of data to page cache.
//!
//! A database of its own is made with so little memory, loaded, and measured: reads, 90/10, 50/50,
//! writes. Where its engine counts them, the reads that reached the device stand beside, and the
//! bytes written for each byte that was flushed.

use super::device::Device;
use super::mix::{Mix, OPERATIONS};
use super::{Group, Workload};
use crate::dataset::{KEY_LEN, VALUE_MAX, VALUE_MIN};
use crate::figures::Target;
use crate::outcome::{Figure, Measurement, Outcome};
use crate::place::Place;
use crate::plan::Plan;
use crate::unit::Unit;
use crate::{Bench, Error, Progress, Result, words};

/// Data larger than memory.
pub const LARGER: Workload = Workload {
    name: "larger",
    about: "reads, 90/10, 50/50 and writes on data 3.5 times as large as the engine's memory",
    group: Group::Kpi,
    long: false,
    run: larger,
};

const DIRECTORY: &str = "plinth-bench-larger";
const CLIENTS: usize = 100;
const TIMES: f64 = 3.5;
/// Each of the four takes a part of the time.
const PART: u32 = 2;

/// What is measured: its words, its unit, the transaction, its threads.
const MEASURED: [(&str, &str, Mix, usize); 4] = [
    ("reads/s", "reads", Mix::new(OPERATIONS, 0), 2),
    ("90/10, operations/s", "operations", Mix::new(9, 1), 1),
    ("50/50, operations/s", "operations", Mix::new(5, 5), 1),
    ("writes/s", "writes", Mix::new(0, OPERATIONS), 1),
];

fn larger(bench: &Bench) -> Result<Outcome> {
    let Some(host) = &bench.host else {
        return Err(Error::Skipped("it needs a database in this process".to_owned()));
    };
    let data = bench.dataset.rows() * (KEY_LEN + (VALUE_MIN + VALUE_MAX) / 2) as u64;
    let memory = (data as f64 / TIMES) as u64;
    let place = Place::new(&bench.env, bench.directory.join(DIRECTORY))?;
    let database = host.create(&place.path, Some(memory)).map_err(|error| {
        let refused = [
            plinth_types::Error::unsupported_operation(),
            plinth_types::Error::invalid_option_value(),
        ];
        if refused.contains(&error) {
            Error::Skipped(
                error.detail().unwrap_or("the engine can't have so little memory").to_owned(),
            )
        } else {
            error.into()
        }
    })?;
    let task = bench.progress.unknown("larger, loading");
    let (path, stop) = (place.path.clone(), bench.stop.clone());
    let own =
        Bench::prepare(database.clone(), path, bench.settings.clone(), Progress::Silent, stop)?;
    drop(task);
    let load = own.load.as_ref().map(super::Load::rate).unwrap_or_default();
    let own = Bench { progress: bench.progress, ..own };
    let before = Device::of(&bench.env, &database);
    let mut measured = Vec::new();
    let mut after_reads = None;
    for (what, _, mix, threads) in MEASURED {
        let time = bench.settings.time / PART;
        let plan = Plan { time, ..own.plan(&format!("larger, {what}"), CLIENTS, threads) };
        measured.push(mix.drive(&own, &plan)?);
        after_reads = after_reads.or_else(|| Device::of(&bench.env, &database));
    }
    let mut outcome = outcome(&measured, memory, load);
    if let (Some(before), Some(after_reads), Some(end)) =
        (before, after_reads, Device::of(&bench.env, &database))
    {
        outcome.figures.extend(after_reads.since(before).of_reads());
        outcome.figures.extend(end.since(before).of_writes());
    }
    Ok(outcome)
}

fn outcome(measured: &[Measurement], memory: u64, load: f64) -> Outcome {
    let title = format!("data {TIMES} times the memory");
    let mut figures = MEASURED.iter().zip(measured).map(|((what, things, ..), measured)| {
        Figure::new(*what, measured.rate(), Unit::PerSecond(things), Target::NONE)
    });
    let headline = figures.next().expect("reads are the first of them");
    let mut outcome = Outcome::new("larger", title, headline, measured.first().cloned());
    outcome.figures.extend(figures);
    outcome.notes.push(format!(
        "memory {}, loaded {} rows/s",
        words::bytes(memory),
        words::short(load)
    ));
    outcome
}
