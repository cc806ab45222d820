//! The memory that the loaded rows occupy when the database is at rest.
//!
//! Memory is what the operating system says the process occupies: before the load, and again once
//! the window of old versions has passed and what the load left behind has been given back.

use super::{Group, Workload};
use crate::figures;
use crate::machine;
use crate::outcome::{Figure, Outcome};
use crate::unit::Unit;
use crate::{Bench, Error, Result, words};
use plinth_env::block_on;
use serde_json::json;
use std::time::Duration;

/// Memory at rest.
pub const AT_REST: Workload = Workload {
    name: "memory",
    about: "memory that the loaded rows occupy at rest, in bytes a key",
    group: Group::Own,
    long: false,
    run: at_rest,
};

/// With fewer rows, the process itself outweighs them.
const LEAST_ROWS: u64 = 1_000_000;
const TICK: Duration = Duration::from_millis(100);

fn at_rest(bench: &Bench) -> Result<Outcome> {
    let Some(load) = &bench.load else {
        let reason = "the rows were there already; it needs a database that the run itself loads";
        return Err(Error::Skipped(reason.to_owned()));
    };
    rest(bench);
    let Some((before, after)) = load.resident_before.zip(machine::resident(&bench.env)) else {
        return Err(Error::Skipped(
            "this system does not say how much memory a process occupies".to_owned(),
        ));
    };
    let rows = load.rows as f64;
    let (grown, data) = (after.saturating_sub(before) as f64, load.bytes as f64);
    let title = format!("{} rows at rest", words::grouped(load.rows));
    let target = figures::memory_at_rest(&bench.engine, data / rows);
    let headline = Figure::new("memory a key", grown / rows, Unit::BytesPerKey, target);
    let mut outcome = Outcome::new("memory", title, headline, None);
    outcome.comparable = load.rows >= LEAST_ROWS;
    let mib = |bytes: u64| format!("{} MiB", words::grouped(bytes >> 20));
    outcome.notes.push(format!(
        "process: {} before the load, {} after, {} at rest; {:.1} bytes of key and value a key",
        mib(before),
        load.resident_after.map_or_else(|| "?".to_owned(), mib),
        mib(after),
        data / rows,
    ));
    outcome.details.push((
        "resident",
        json!({
            "before_load": before,
            "after_load": load.resident_after,
            "at_rest": after,
            "data_bytes": load.bytes,
        }),
    ));
    Ok(outcome)
}

/// Waits until old versions have left the window and are forgotten.
fn rest(bench: &Bench) {
    wait(bench, "memory at rest", bench.settings.rest);
}

/// Waits, and shows that it does.
pub(super) fn wait(bench: &Bench, title: &str, time: Duration) {
    let began = bench.env.now();
    let task = bench.progress.timed(title, time);
    loop {
        let passed = bench.env.now() - began;
        if passed >= time {
            return;
        }
        task.set(passed.as_millis() as u64, String::new());
        block_on(bench.env.sleep(TICK.min(time - passed)));
    }
}
