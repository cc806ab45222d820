//! A memory that is much smaller than the data: whether the process keeps to it while rows are
//! loaded, overwritten and read, and what the device is made to do for that.
//!
//! It looks at the run's own database, which must be the only large thing in the process: memory
//! that another database gave back would be taken again unseen. All it holds against bounds are
//! counts and sizes, which a busy machine leaves alone.

use super::device::Device;
use super::mix::{Mix, OPERATIONS};
use super::{Group, Workload, join, uncached};
use crate::figures::{self, Target};
use crate::machine::MemoryWatch;
use crate::outcome::{Figure, Measurement, Outcome};
use crate::plan::Plan;
use crate::unit::Unit;
use crate::{Bench, Error, Result, words};
use serde_json::json;

/// A memory much smaller than the data.
pub const BUDGET: Workload = Workload {
    name: "budget",
    about: "a memory given by --memory: what the process takes, and what the device does, while each row is overwritten",
    group: Group::Own,
    long: true,
    run: budget,
};

const CLIENTS: usize = 100;

fn budget(bench: &Bench) -> Result<Outcome> {
    let skipped = |why: &str| Error::Skipped(why.to_owned());
    let memory = bench
        .settings
        .memory
        .ok_or_else(|| skipped("it needs a memory to keep to: --memory BYTES"))?;
    let load = bench.load.as_ref().ok_or_else(|| {
        skipped("the rows were there already; it needs a database that the run itself loads")
    })?;
    let counts = || {
        Device::of(&bench.env, &bench.database).ok_or_else(|| {
            skipped("the engine holds all data in memory, or does not say what it reads and writes")
        })
    };
    let before = counts()?;
    let (written, written_memory) = overwrite(bench)?;
    let between = counts()?;
    let watch = MemoryWatch::begin(&bench.env);
    let read = Mix::new(OPERATIONS, 0).drive(bench, &bench.plan("budget, reading", CLIENTS, 2))?;
    let (read_memory, reads) = (watch.end(), counts()?.since(between));
    let title = format!(
        "{} rows, {:.1} times a memory of {}",
        words::grouped(load.rows),
        load.bytes as f64 / memory as f64,
        words::bytes(memory),
    );
    let mut figures = between.since(before).of_writes();
    if reads.has_uncached() {
        figures.extend(reads.of_reads());
        figures.extend(uncached::measure(bench)?.into_iter().flat_map(|(_, figures)| figures));
    }
    let base = load.resident_before.unwrap_or_default();
    let stages = [
        ("loading", load.resident_highest),
        ("overwriting", written_memory),
        ("reading", read_memory),
    ];
    for (stage, highest) in stages {
        let Some(highest) = highest else { continue };
        let part = highest.saturating_sub(base) as f64 / memory as f64;
        figures.push(Figure::new(
            format!("memory {stage}, of the setting"),
            part,
            Unit::Part,
            figures::BUDGET,
        ));
    }
    let rate = |what: &str, measured: &Measurement, things| {
        Figure::new(what, measured.rate(), Unit::PerSecond(things), Target::NONE)
    };
    figures.push(rate("reads/s", &read, "reads"));
    let headline = rate("each row overwritten once, writes/s", &written, "writes");
    let mut outcome = Outcome::new("budget", title, headline, Some(written.and(&read)));
    outcome.figures.extend(figures);
    outcome.notes.push(format!(
        "process: {} before the load; loaded {} rows/s",
        words::bytes(base),
        words::short(load.rate())
    ));
    let resident = stages.map(|(stage, highest)| json!({"stage": stage, "highest_bytes": highest}));
    outcome
        .details
        .push(("resident", json!({"before_load": base, "setting": memory, "stages": resident})));
    Ok(outcome)
}

/// Overwrites as many random rows as there are; gives what was measured, and the most memory
/// meanwhile.
fn overwrite(bench: &Bench) -> Result<(Measurement, Option<u64>)> {
    let watch = MemoryWatch::begin(&bench.env);
    let plan = Plan { title: "budget, overwriting".to_owned(), ..bench.plan("", CLIENTS, 1) };
    let mut sum: Option<Measurement> = None;
    while sum.as_ref().is_none_or(|sum| sum.tally.operations < bench.dataset.rows()) {
        let slice = Mix::new(0, OPERATIONS).drive(bench, &plan)?;
        sum = Some(join(sum, slice));
    }
    let sum = sum.expect("a slice was measured");
    Ok((sum, watch.end()))
}
