//! The start after a crash: how fast a killed process's data is served again.
//!
//! Another process loads the rows, writes a checkpoint and overwrites as many rows again, so that
//! half of what must be read lies in the checkpoint and half in the log; then it is killed. The
//! time that counts goes from opening the directory to the first answer. The files are in the
//! system's cache, as they are when a process has just died: what is measured is the loading, and a
//! cold disk adds its own reading.
//!
//! With an engine that has tables on disk a memory in which all rows have room says nothing of
//! opening them: they are in the log alone. So it starts a second time from data that are several
//! times as large as its memory.

use super::{Group, Workload};
use crate::dataset::key;
use crate::figures;
use crate::host::{COMMITS, CRASH_WRITES, Crash, Host};
use crate::outcome::{Figure, Outcome};
use crate::place::Place;
use crate::unit::Unit;
use crate::{Bench, Error, Result, words};
use plinth_client::Database;
use serde_json::{Value, json};
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
/// The engine that keeps what memory has no room for in tables.
const WITH_TABLES: &str = "ssd";
/// How much larger than its memory the data are then: the ratio of the KPI page.
const TIMES: f64 = 3.5;
/// Less than this nobody gives a database.
const LEAST_MEMORY: u64 = 16 << 20;

fn restart(bench: &Bench) -> Result<Outcome> {
    let Some(host) = &bench.host else {
        return Err(Error::Skipped("it needs a database in this process".to_owned()));
    };
    if bench.stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let start = crash_and_start(bench, host.as_ref(), bench.settings.memory)?;
    let mut outcome = outcome(&bench.engine, bench.settings.rows, &start);
    let memory = (bench.dataset.bytes() as f64 / TIMES) as u64;
    if bench.engine == WITH_TABLES && bench.settings.memory.is_none() && memory >= LEAST_MEMORY {
        let start = crash_and_start(bench, host.as_ref(), Some(memory))?;
        let (_, target) = figures::restart(&bench.engine);
        let words = format!("the same with data {TIMES} times the memory");
        outcome.figures.push(Figure::new(words.clone(), start.seconds(), Unit::Seconds, target));
        outcome.notes.push(format!("{words}: {}", start.note()));
        outcome.details.push(("restart_larger", start.to_json()));
    }
    Ok(outcome)
}

/// A database that was killed, and served again.
struct Start {
    crash: Crash,
    /// From opening its directory to the first answer.
    served: Duration,
    memory: Option<u64>,
}

/// Has a process killed, and opens what it left.
fn crash_and_start(bench: &Bench, host: &dyn Host, memory: Option<u64>) -> Result<Start> {
    let rows = bench.settings.rows;
    let place = Place::new(&bench.env, bench.directory.join(DIRECTORY))?;
    let task = bench.progress.unknown("restart");
    let crash =
        host.crash(&place.path, rows, (rows / CRASH_WRITES).max(1), memory).map_err(|error| {
            // Ctrl-C reaches that process too.
            if bench.stop.load(Ordering::Relaxed) { Error::Interrupted } else { error.into() }
        })?;
    let began = bench.env.now();
    let database = host.open(&place.path, memory)?;
    let first = database.transact_blocking(|transaction| transaction.get(key(rows - 1)).wait())?;
    let served = bench.env.now() - began;
    drop(task);
    let found = count(&database)?;
    if first.is_none() || found < crash.acknowledged {
        let detail = format!(
            "{} commits were acknowledged before the crash, {found} are there",
            crash.acknowledged
        );
        return Err(plinth_types::Error::internal_error().with_detail(detail).into());
    }
    Ok(Start { crash, served, memory })
}

impl Start {
    fn seconds(&self) -> f64 {
        self.served.as_secs_f64()
    }

    /// Bytes of checkpoint and log loaded a second.
    fn rate(&self) -> f64 {
        (self.crash.checkpoint_bytes + self.crash.log_bytes) as f64 / self.seconds().max(1e-9)
    }

    fn note(&self) -> String {
        let memory =
            self.memory.map_or_else(String::new, |bytes| format!(" with {}", words::bytes(bytes)));
        format!(
            "served after {}{memory}: {} in checkpoint or tables and {} of log; all {} acknowledged commits are there",
            words::duration(self.served),
            words::bytes(self.crash.checkpoint_bytes),
            words::bytes(self.crash.log_bytes),
            words::grouped(self.crash.acknowledged),
        )
    }

    fn to_json(&self) -> Value {
        json!({
            "seconds": self.seconds(),
            "memory_bytes": self.memory,
            "checkpoint_bytes": self.crash.checkpoint_bytes,
            "log_bytes": self.crash.log_bytes,
            "acknowledged_commits": self.crash.acknowledged,
        })
    }
}

fn outcome(engine: &str, rows: u64, start: &Start) -> Outcome {
    let (bytes_target, seconds_target) = figures::restart(engine);
    let headline =
        Figure::new("loaded until it serves", start.rate(), Unit::BytesPerSecond, bytes_target);
    let title = format!("{} rows, kill -9", words::grouped(rows));
    let mut outcome = Outcome::new("restart", title, headline, None);
    let seconds = start.seconds();
    outcome.figures.push(Figure::new(
        "until the first answer",
        seconds,
        Unit::Seconds,
        seconds_target,
    ));
    outcome.notes.push(start.note());
    outcome.details.push(("restart", start.to_json()));
    outcome
}

fn count(database: &Database) -> Result<u64> {
    let count = database.transact_blocking(|transaction| transaction.get(COMMITS).wait())?;
    Ok(count.and_then(|bytes| bytes[..].try_into().ok()).map_or(0, u64::from_le_bytes))
}
