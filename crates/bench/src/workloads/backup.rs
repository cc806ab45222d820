//! Backups to files of the same disk: how fast an idle database is saved, what it costs writers to
//! be saved all the while, and how many bytes of log that makes.
//!
//! ```text
//!   snapshot:  one after the other, of the same rows, each into a directory of its own      bytes of rows a second
//!   turns:     writes of a hundred clients without a backup ▸ with one ▸ without ▸ ...      rates, and their ratio
//!   log:       what the backups of those turns put, read again                              bytes for each byte written
//! ```
//! A turn's backup is restorable before the measuring begins: its first snapshot isn't measured,
//! the log of all writes is. Of a database in this process an agent does it in this process, too; a
//! server does it itself.

use super::turns::{TURNS, in_turns};
use super::watched::watched;
use super::write::ten_writes;
use super::{Group, Workload, join};
use crate::figures;
use crate::outcome::{Figure, Measurement, Outcome};
use crate::place::Place;
use crate::unit::Unit;
use crate::{Bench, Error, Result, words};
use plinth_backup::agent::{self, State, TagStatus, Wish};
use plinth_backup::{
    Agent, Backup, LogSizes, SnapshotReport, SnapshotSettings, everything, take_snapshot, target,
};
use plinth_env::block_on;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Snapshots, and what continuous backups cost.
pub const BACKUP: Workload = Workload {
    name: "backup",
    about: "a snapshot to local files; writes with a continuous backup and without, and the bytes of its log",
    group: Group::Own,
    long: true,
    run: backup,
};

/// Below the database's own directory, so that it is on the same disk.
const DIRECTORY: &str = "plinth-bench-backup";
const TAG: &str = "plinth-bench";
/// Snapshots, and each turn, take such a part of the time.
const PART: u32 = 2;
/// How often it is looked how a backup is.
const TICK: Duration = Duration::from_millis(50);
/// How long a backup may get no further before that is an error.
const PATIENCE: Duration = Duration::from_secs(60);
const CLIENTS: usize = 100;
const THREADS: usize = 2;

fn backup(bench: &Bench) -> Result<Outcome> {
    if bench.is_served() && bench.process().is_none() {
        return Err(Error::Skipped(
            "the server may be on another machine, where this one's files aren't".to_owned(),
        ));
    }
    let place = Place::new(&bench.env, bench.directory.join(DIRECTORY))?;
    block_on(bench.env.files().create_dir_all(&place.path))?;
    let snapshots = snapshots(bench, &place.path)?;
    let cost = cost(bench, &place.path)?;
    Ok(outcome(bench, &snapshots, cost))
}

/// What snapshots of the same rows took.
struct Snapshots {
    count: u32,
    time: Duration,
    last: SnapshotReport,
}

impl Snapshots {
    fn rate(&self) -> f64 {
        f64::from(self.count) * self.last.bytes as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

fn snapshots(bench: &Bench, directory: &Path) -> Result<Snapshots> {
    let path = directory.join("snapshot");
    // The first one is not counted: tables of an engine on a disk first have to have what was
    // loaded.
    snapshot(bench, "backup, to begin with", &path)?;
    block_on(bench.env.files().remove_dir_all(&path))?;
    let (mut count, mut time) = (0, Duration::ZERO);
    loop {
        let (last, took) = snapshot(bench, &format!("backup, snapshot {}", count + 1), &path)?;
        block_on(bench.env.files().remove_dir_all(&path))?;
        (count, time) = (count + 1, time + took);
        if time >= bench.settings.time / PART {
            return Ok(Snapshots { count, time, last });
        }
    }
}

/// Takes a snapshot of the database into a new directory.
pub(super) fn snapshot(
    bench: &Bench,
    title: &str,
    path: &Path,
) -> Result<(SnapshotReport, Duration)> {
    let settings = SnapshotSettings { stop: bench.stop.clone(), ..SnapshotSettings::default() };
    let (env, database, url) = (bench.env.clone(), bench.database.clone(), url(path));
    let saved = settings.saved.clone();
    watched(bench, title, bench.dataset.bytes(), &saved, async move {
        let id = database.endpoint().describe().cluster_id;
        let place = target::named(&env, &url, &[]).await?;
        let backup = Backup::open_or_create(&env, place, None, &id, &everything()).await?;
        take_snapshot(&backup, &database, &settings).await
    })
}

fn url(path: &Path) -> String {
    path.display().to_string()
}

/// What was measured with a continuous backup and without.
struct Cost {
    without: Measurement,
    with: Measurement,
    sizes: LogSizes,
    /// The furthest that a backup was behind when its turn ended, in seconds.
    behind: f64,
}

fn cost(bench: &Bench, directory: &Path) -> Result<Cost> {
    let agent = (!bench.is_served()).then(|| Agent::start(&bench.env, &bench.database));
    let cost = cost_with_agent(bench, directory);
    if let Some(agent) = agent {
        block_on(agent.stop())?;
    }
    cost
}

fn cost_with_agent(bench: &Bench, directory: &Path) -> Result<Cost> {
    // One may be left by a run that was killed.
    if of_tag(bench)?.is_some_and(|status| status.ended.is_none()) {
        block_on(agent::change(&bench.database, TAG, State::Aborting))?;
        until(bench, "backup, ending the one before", |status| status.ended.is_some())?;
    }
    let (turn, behind) = (Cell::new(0), Cell::new(0.0_f64));
    let sizes = RefCell::new(LogSizes::default());
    let measure = |title: &str| {
        let plan = bench.plan(title, CLIENTS, THREADS);
        ten_writes(bench, &crate::plan::Plan { time: plan.time / PART, ..plan })
    };
    let titles = ["backup, writes without one", "backup, writes with one"];
    let begin = || {
        turn.set(turn.get() + 1);
        begin(bench, directory.join(format!("turn-{}", turn.get())))
    };
    let [without, with] = in_turns(titles, measure, begin, |path| {
        let status = of_tag(bench)?;
        behind.set(status.map_or(0.0, |status| status.behind_seconds).max(behind.get()));
        *sizes.borrow_mut() += end(bench, &path)?;
        block_on(bench.env.files().remove_dir_all(&path))?;
        Ok(())
    })?;
    let joined = |all: Vec<Measurement>| {
        let all = all.into_iter().fold(None, |sum, more| Some(join(sum, more)));
        all.expect("there is at least one turn")
    };
    let (without, with) = (joined(without), joined(with));
    Ok(Cost { without, with, sizes: sizes.into_inner(), behind: behind.get() })
}

/// Begins a continuous backup, and waits until it has its first snapshot.
fn begin(bench: &Bench, path: PathBuf) -> Result<PathBuf> {
    block_on(agent::start(&bench.database, TAG, &Wish::new(url(&path))))?;
    until(bench, "backup, the first snapshot", |status| status.is_restorable)?;
    Ok(path)
}

/// Ends it when everything is saved, and says what its log takes.
fn end(bench: &Bench, path: &Path) -> Result<LogSizes> {
    block_on(agent::change(&bench.database, TAG, State::Discontinuing))?;
    until(bench, "backup, saving the rest", |status| status.ended.is_some())?;
    let url = url(path);
    let sizes = block_on(async {
        let place = target::named(&bench.env, &url, &[]).await?;
        Backup::open(&bench.env, place, None).await?.log_sizes().await
    });
    Ok(sizes?)
}

fn of_tag(bench: &Bench) -> Result<Option<TagStatus>> {
    Ok(block_on(agent::tags(&bench.database))?.into_iter().find(|status| status.tag == TAG))
}

/// Waits until the backup is as it should be. It is ended if that takes too long, or nobody wants
/// to wait.
fn until(bench: &Bench, title: &str, is_so: impl Fn(&TagStatus) -> bool) -> Result<()> {
    let _task = bench.progress.unknown(title);
    let (mut saved, mut since) = (None, bench.env.now());
    loop {
        let status = of_tag(bench)?;
        if status.as_ref().is_some_and(&is_so) {
            return Ok(());
        }
        let now = bench.env.now();
        let (stored, error) = status
            .map_or((0, None), |status| (status.log_bytes + status.snapshot_bytes, status.error));
        if saved != Some(stored) {
            (saved, since) = (Some(stored), now);
        }
        let result = match bench.stop.load(Ordering::Relaxed) {
            true => Err(Error::Interrupted),
            false if now - since > PATIENCE => {
                let why = error.unwrap_or_else(|| "nobody does it".to_owned());
                let detail = format!("the continuous backup gets no further: {why}");
                Err(plinth_types::Error::backup_error().with_detail(detail).into())
            }
            false => Ok(()),
        };
        if result.is_err() {
            block_on(agent::change(&bench.database, TAG, State::Aborting))?;
            return result;
        }
        block_on(bench.env.sleep(TICK));
    }
}

fn outcome(bench: &Bench, snapshots: &Snapshots, cost: Cost) -> Outcome {
    let (without, with) = (cost.without.rate(), cost.with.rate());
    let headline = Figure::new(
        "a snapshot of an idle database",
        snapshots.rate(),
        Unit::BytesPerSecond,
        figures::SNAPSHOT,
    )
    .served(figures::SNAPSHOT);
    let writes = |what: &str, value| {
        Figure::new(what, value, Unit::PerSecond("writes"), figures::Target::NONE)
    };
    let title = format!(
        "{} snapshots; {} clients, 10 writes; {TURNS} turns without and with a continuous backup",
        snapshots.count, cost.with.clients
    );
    let mut outcome = Outcome::new("backup", title, headline, Some(cost.with.clone()));
    outcome.figures.extend([
        Figure::new(
            "writes with a continuous backup, of those without",
            with / without.max(1.0),
            Unit::Part,
            figures::BACKUP_COST,
        )
        .served(figures::BACKUP_COST)
        .if_quiet(),
        Figure::new(
            "bytes of its log for each byte written",
            cost.sizes.before_compression(),
            Unit::Times,
            figures::BACKUP_LOG,
        )
        .served(figures::BACKUP_LOG),
        writes("writes without a backup", without),
        writes("writes with a backup", with),
        Figure::new(
            "behind when a turn ended, at most",
            cost.behind,
            Unit::Seconds,
            figures::Target::NONE,
        ),
    ]);
    outcome.notes = vec![
        format!(
            "a snapshot of {} in {} rows takes {} in {} files; {} a snapshot",
            words::bytes(snapshots.last.bytes),
            words::grouped(snapshots.last.rows),
            words::bytes(snapshots.last.stored),
            snapshots.last.files,
            words::duration(snapshots.time / snapshots.count),
        ),
        format!(
            "the log of {} of keys and values takes {} before compression and {} after",
            words::bytes(cost.sizes.keys_and_values),
            words::bytes(cost.sizes.raw),
            words::bytes(cost.sizes.stored),
        ),
    ];
    outcome.details.push(("backup", details(bench, snapshots, &cost)));
    outcome
}

fn details(bench: &Bench, snapshots: &Snapshots, cost: &Cost) -> Value {
    json!({
        "snapshots": snapshots.count,
        "snapshot_seconds": snapshots.time.as_secs_f64(),
        "snapshot_bytes": snapshots.last.bytes,
        "snapshot_stored_bytes": snapshots.last.stored,
        "log_keys_and_values": cost.sizes.keys_and_values,
        "log_bytes_before_compression": cost.sizes.raw,
        "log_stored_bytes": cost.sizes.stored,
        "without": cost.without.to_json(),
        "served": bench.is_served(),
    })
}
