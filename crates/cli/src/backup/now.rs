//! `plinth backup now`: a snapshot, and nothing that runs on.

use super::progress::watched;
use super::{
    Opened, check_is_whole, database_id, key_ranges, open_database, read_key, target, url,
};
use crate::failure::{Failure, INTERRUPTED, tell};
use crate::interrupt;
use crate::terminal::{self, Terminal};
use clap::ArgMatches;
use plinth::Error;
use plinth::backup::target::redacted;
use plinth::backup::{Backup, Lease, SnapshotReport, SnapshotSettings, everything, take_snapshot};
use plinth_bench::words::{bytes, grouped};
use plinth_env::Env;
use plinth_env::sync::{First, race};
use std::sync::atomic::Ordering;
use std::time::Duration;

pub fn run(options: &ArgMatches) -> Result<u8, Failure> {
    let env = Env::real();
    let url = url(options);
    let (key, ranges) = (read_key(options)?, key_ranges(options)?);
    let target = target(&env, &url, options)?;
    let url = redacted(&url);
    let opened = open_database(options)?;
    let Opened { db, opened, is_exclusive, name } = opened;
    let failed = |error: Error| Failure::of(format!("cannot back up {name} to {url}"), error);
    let id = database_id(&db)?;
    check_is_whole(&db)?;
    let stop = interrupt::flag();
    let settings = SnapshotSettings {
        ranges: if ranges.is_empty() { everything() } else { ranges },
        is_exclusive,
        workers: options.get_one::<u64>("workers").map_or(4, |count| *count as usize),
        stop: stop.clone(),
        ..SnapshotSettings::default()
    };
    let size = |range: &plinth::KeyRange| {
        db.endpoint().range_size(range.clone()).wait().unwrap_or_default()
    };
    let total = settings.ranges.iter().map(size).sum::<i64>().max(0) as u64;
    let client = db.clone();
    let (inner, saved, began) = (env.clone(), settings.saved.clone(), env.now());
    let taken = watched(&env, "backing up", total, &saved, async move {
        let backup = Backup::open_or_create(&inner, target, key, &id, &settings.ranges).await?;
        under_lease(&inner, &backup, take_snapshot(&backup, &client, &settings)).await
    });
    let took = env.now().saturating_sub(began).as_secs_f64();
    let report = match taken {
        Err(_) if stop.load(Ordering::Relaxed) => {
            tell("interrupted; nothing of this snapshot counts, those before it are as they were");
            return Ok(INTERRUPTED);
        }
        taken => taken.map_err(failed)?,
    };
    opened.close().map_err(|error| Failure::of(format!("cannot close {name}"), error))?;
    let rate = report.bytes as f64 / took.max(0.001);
    let lines = [
        format!("rows         {}, {}", grouped(report.rows), bytes(report.bytes)),
        format!("files        {}, {}", grouped(report.files as u64), bytes(report.stored)),
        format!("version      {}", report.version),
        format!("took         {took:.1} s, {} a second", bytes(rate as u64)),
        format!(
            "{}: restore it by plinth restore -r {url} --dest-dir DIR",
            Terminal::stdout().good("ok")
        ),
    ];
    terminal::print(&(lines.join("\n") + "\n"))?;
    Ok(0)
}

/// Waits for a snapshot while this process has the lease of the backup.
async fn under_lease(
    env: &Env,
    backup: &Backup,
    taking: impl Future<Output = plinth::Result<SnapshotReport>>,
) -> plinth::Result<SnapshotReport> {
    let mut lease = Lease::take(backup, &format!("process {}", env.process_id())).await?;
    let renewing = async {
        loop {
            env.sleep(Duration::from_secs(1)).await;
            if let Err(error) = lease.renew().await {
                return error;
            }
        }
    };
    // Workers that go on putting files when the lease is lost do no harm: without a manifest they
    // are nothing.
    let taken = match race(taking, renewing).await {
        First::Left(taken) => taken,
        First::Right(error) => return Err(error),
    };
    let given_back = lease.give_back().await;
    let taken = taken?;
    given_back.map(|()| taken)
}
