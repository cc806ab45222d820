//! The start after a crash: how fast a killed process's data is served again.
//!
//! Another process loads the rows, writes a checkpoint and overwrites as many rows again, so that half of what must be
//! read lies in the checkpoint and half in the log; then it is killed. The time that counts goes from opening the
//! directory to the first answer. The files are in the system's cache, as they are when a process has just died: what
//! is measured is the loading, and a cold disk adds its own reading.

use super::{Group, Workload};
use crate::dataset::key;
use crate::figures;
use crate::host::{COMMITS, CRASH_WRITES, Crash};
use crate::outcome::{Figure, Outcome, Unit};
use crate::place::Place;
use crate::{Bench, Error, Result, words};
use plinth_client::Database;
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The start after a crash.
pub const RESTART: Workload = Workload {
    name: "restart",
    about: "opening a directory after kill -9 of a writer, until the first answer",
    group: Group::Own,
    long: false,
    run: restart,
};

/// Below the database's own directory, so that it is on the same disk.
const DIRECTORY: &str = "plinth-bench-restart";

fn restart(bench: &Bench) -> Result<Outcome> {
    let Some(host) = &bench.host else {
        return Err(Error::Skipped("it needs a database in this process".to_owned()));
    };
    if bench.stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let rows = bench.settings.rows;
    let place = Place::new(&bench.env, bench.directory.join(DIRECTORY))?;
    let task = bench.progress.unknown("restart");
    let crash = host.crash(&place.path, rows, (rows / CRASH_WRITES).max(1)).map_err(|error| {
        // Ctrl-C reaches that process too.
        if bench.stop.load(Ordering::Relaxed) { Error::Interrupted } else { error.into() }
    })?;
    let began = bench.env.now();
    let database = host.open(&place.path)?;
    let first = database.transact_blocking(|transaction| transaction.get(key(rows - 1)).wait())?;
    let served = bench.env.now() - began;
    drop(task);
    let found = count(&database)?;
    if first.is_none() || found < crash.acknowledged {
        let detail =
            format!("{} commits were acknowledged before the crash, {found} are there", crash.acknowledged);
        return Err(plinth_types::Error::internal_error().with_detail(detail).into());
    }
    Ok(outcome(&bench.engine, rows, crash, served))
}

fn outcome(engine: &str, rows: u64, crash: Crash, served: Duration) -> Outcome {
    let bytes = crash.checkpoint_bytes + crash.log_bytes;
    let rate = bytes as f64 / served.as_secs_f64().max(1e-9);
    let (bytes_target, seconds_target) = figures::restart(engine);
    let headline = Figure::new("loaded until it serves", rate, Unit::BytesPerSecond, bytes_target);
    let title = format!("{} rows, kill -9", words::grouped(rows));
    let mut outcome = Outcome::new("restart", title, headline, None);
    let seconds = served.as_secs_f64();
    outcome.figures.push(Figure::new("until the first answer", seconds, Unit::Seconds, seconds_target));
    outcome.notes.push(format!(
        "served after {}: {} in checkpoint or tables and {} of log; all {} acknowledged commits are there",
        words::duration(served),
        words::bytes(crash.checkpoint_bytes),
        words::bytes(crash.log_bytes),
        words::grouped(crash.acknowledged),
    ));
    outcome.details.push((
        "restart",
        json!({
            "seconds": seconds,
            "checkpoint_bytes": crash.checkpoint_bytes,
            "log_bytes": crash.log_bytes,
            "acknowledged_commits": crash.acknowledged,
        }),
    ));
    outcome
}

fn count(database: &Database) -> Result<u64> {
    let count = database.transact_blocking(|transaction| transaction.get(COMMITS).wait())?;
    Ok(count.and_then(|bytes| bytes[..].try_into().ok()).map_or(0, u64::from_le_bytes))
}
