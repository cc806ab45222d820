//! Restores from files of the same disk: into a new directory, and into a server that is running.
//!
//! One snapshot of the rows is restored again and again, each time to a place that is removed
//! afterwards. What counts goes from the begin of the restore, its plan included, until the
//! database is whole: in its place, or unlocked. The files are in the system's cache, as they are
//! when they were just written; a cold disk adds its own reading.

use super::backup::snapshot;
use super::watched::watched;
use super::{Group, Workload};
use crate::figures::{self, Target};
use crate::host::Host;
use crate::outcome::{Figure, Outcome};
use crate::place::Place;
use crate::unit::Unit;
use crate::{Bench, Error, Result, words};
use plinth_backup::restore::{
    Goal, Mapping, Plan, RestoreControl, RestoreReport, restore_into, restore_served,
};
use plinth_backup::{Backup, SnapshotReport, target};
use plinth_env::block_on;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Restores of a snapshot.
pub const RESTORE: Workload = Workload {
    name: "restore",
    about: "a restore from local files, into a new directory and into a running server",
    group: Group::Own,
    long: true,
    run: restore,
};

/// Below the database's own directory, so that it is on the same disk.
const DIRECTORY: &str = "plinth-bench-restore";
/// Restores of each kind take such a part of the time.
const PART: u32 = 2;

fn restore(bench: &Bench) -> Result<Outcome> {
    let Some(host) = &bench.host else {
        return Err(Error::Skipped("it needs a database in this process".to_owned()));
    };
    let place = Place::new(&bench.env, bench.directory.join(DIRECTORY))?;
    block_on(bench.env.files().create_dir_all(&place.path))?;
    let source = place.path.join("backup");
    let (saved, _) = snapshot(bench, "restore, the backup", &source)?;
    let run = Run { bench, host, source: &source, saved: &saved };
    let directory = run.repeat(|number| run.new_directory(number, &place.path.join("restored")))?;
    let served = run.repeat(|number| run.new_server(number, &place.path.join("server")))?;
    let figure = |what: &str, restored: &Restored, target: Target| {
        Figure::new(what, restored.rate(), Unit::BytesPerSecond, target)
    };
    let headline = figure("into a new directory, of rows", &directory, figures::RESTORE);
    let title = format!("{} and {} restores of a snapshot", directory.count, served.count);
    let mut outcome = Outcome::new("restore", title, headline, None);
    outcome.figures.push(figure(
        "into a running server, of rows",
        &served,
        figures::RESTORE_SERVED,
    ));
    outcome.notes.push(format!(
        "{} of rows, {} rows, in {} of files; a restore into a directory takes {}, into a server {}",
        words::bytes(saved.bytes),
        words::grouped(saved.rows),
        words::bytes(saved.stored),
        words::duration(directory.time / directory.count),
        words::duration(served.time / served.count),
    ));
    let details = json!({
        "bytes": saved.bytes,
        "rows": saved.rows,
        "stored_bytes": saved.stored,
        "into_directory_seconds": directory.time.as_secs_f64() / f64::from(directory.count),
        "into_server_seconds": served.time.as_secs_f64() / f64::from(served.count),
    });
    outcome.details.push(("restore", details));
    Ok(outcome)
}

/// What restores of one kind took.
struct Restored {
    count: u32,
    bytes: u64,
    time: Duration,
}

impl Restored {
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

struct Run<'b> {
    bench: &'b Bench,
    host: &'b Arc<dyn Host>,
    source: &'b Path,
    saved: &'b SnapshotReport,
}

impl Run<'_> {
    /// Restores for a while; the first time is not counted.
    fn repeat(&self, one: impl Fn(u32) -> Result<(RestoreReport, Duration)>) -> Result<Restored> {
        let mut restored = Restored { count: 0, bytes: 0, time: Duration::ZERO };
        for number in 0.. {
            let (report, took) = one(number)?;
            if (report.rows, report.bytes) != (self.saved.rows, self.saved.bytes) {
                let detail =
                    format!("{} rows were saved, {} restored", self.saved.rows, report.rows);
                return Err(plinth_types::Error::internal_error().with_detail(detail).into());
            }
            if number > 0 {
                restored.count += 1;
                restored.bytes += report.bytes;
                restored.time += took;
            }
            if number > 0 && restored.time >= self.bench.settings.time / PART {
                break;
            }
        }
        Ok(restored)
    }

    fn new_directory(&self, number: u32, path: &Path) -> Result<(RestoreReport, Duration)> {
        let place = Place::new(&self.bench.env, path.to_path_buf())?;
        let (host, path) = (self.host.clone(), place.path.clone());
        self.watched(&format!("restore, directory {number}"), |backup, plan, control| async move {
            let mut loader = host.loader(&path, plan.version)?;
            restore_into(&backup, &plan, &control, &mut *loader).await
        })
    }

    fn new_server(&self, number: u32, path: &Path) -> Result<(RestoreReport, Duration)> {
        let place = Place::new(&self.bench.env, path.to_path_buf())?;
        let server = self.host.serve(&place.path)?;
        let database = server.database.clone();
        self.watched(&format!("restore, server {number}"), |backup, plan, control| async move {
            restore_served(&backup, &plan, &control, &database).await
        })
    }

    fn watched<F: Future<Output = plinth_types::Result<RestoreReport>> + Send + 'static>(
        &self,
        title: &str,
        restore: impl FnOnce(Backup, Plan, RestoreControl) -> F + Send + 'static,
    ) -> Result<(RestoreReport, Duration)> {
        let control = RestoreControl { stop: self.bench.stop.clone(), ..RestoreControl::default() };
        let (env, url) = (self.bench.env.clone(), self.source.display().to_string());
        let done = control.restored.clone();
        watched(self.bench, title, self.saved.bytes, &done, async move {
            let place = target::named(&env, &url, &[]).await?;
            let backup = Backup::open(&env, place, None).await?;
            let plan = Plan::make(&backup, Goal::Newest, Mapping::default()).await?;
            restore(backup, plan, control).await
        })
    }
}
