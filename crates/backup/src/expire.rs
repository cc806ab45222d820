//! Removing what is old: the newest restorable point, and everything from a version on that could
//! be restored, stays so.

use crate::container::{Backup, Contents};
use crate::restore::Goal;
use crate::restore::moment_at;
use plinth_types::{Error, Result, Version, planted};

/// What expiring removed, and what it kept.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Expired {
    /// Snapshots that were removed, unfinished ones among them.
    pub snapshots: usize,
    /// Files of the log that were removed.
    pub logs: usize,
    /// Bytes of all that.
    pub bytes: u64,
    /// The first version that can be restored now.
    pub first: Option<Version>,
}

/// Removes what is needed for nothing from a version or time on. A snapshot that lies before it is
/// kept if what comes behind it needs it, and the newest one always.
///
/// # Errors
/// `backup_cannot_expire` if there is no whole snapshot, or the time is before the first one; those
/// of the target and, for a time, of reading the log. No key is needed.
pub async fn expire(backup: &Backup, before: Goal) -> Result<Expired> {
    let mut contents = backup.contents().await?;
    let nothing = || {
        Error::backup_cannot_expire()
            .with_detail(format!("nothing in {} is older than that", backup.url()))
    };
    let version = match before {
        Goal::Newest => Version::MAX,
        Goal::Version(version) => version,
        Goal::Time(time) => {
            moment_at(backup, &mut contents, time).await.map(|moment| moment.version).map_err(
                |error| if error == Error::restore_invalid_version() { nothing() } else { error },
            )?
        }
    };
    // The snapshot that restores to `version` begin with: the last one at or before it, which is
    // the newest one if all are.
    let base = contents.snapshots.iter().rfind(|snapshot| snapshot.header.to <= version);
    let base = base.ok_or_else(nothing)?.clone();
    // What stays is to stay for certain before anything goes because of it.
    backup.target.settle(&base.directory).await?;
    backup.target.settle(crate::names::LOGS).await?;
    let mut expired = Expired::default();
    for snapshot in contents.snapshots.iter().filter(|snapshot| snapshot.header.to < base.header.to)
    {
        backup.target.delete(&snapshot.manifest).await?;
        expired.bytes += remove(backup, &snapshot.directory).await?;
        expired.snapshots += 1;
    }
    for directory in contents.unfinished.iter().filter(|directory| **directory < base.directory) {
        expired.bytes += remove(backup, directory).await?;
        expired.snapshots += 1;
    }
    let needed = base.header.from
        + 1
        + if planted!("expire removes a log that is needed") { 3_000_000 } else { 0 };
    for file in contents.logs.iter().filter(|file| file.to <= needed) {
        backup.target.delete(&file.name).await?;
        expired.bytes += file.stored;
        expired.logs += 1;
    }
    for end in contents.ends.iter().filter(|end| **end < needed) {
        backup.target.delete(&crate::names::end(*end)).await?;
    }
    let contents: Contents = backup.contents().await?;
    expired.first = contents.restorable().first().map(|(from, _)| *from);
    Ok(expired)
}

async fn remove(backup: &Backup, directory: &str) -> Result<u64> {
    let mut bytes = 0;
    for object in backup.target.list(directory).await? {
        backup.target.delete(&object.name).await?;
        bytes += object.len;
    }
    Ok(bytes)
}

/// Removes a whole backup, what makes it one last, and under a lease: nobody else writes it
/// meanwhile, nor what is left of it.
///
/// # Errors
/// `backup_duplicate` if somebody writes it; those of the target. Then it can be tried again.
pub async fn delete(backup: &Backup) -> Result<()> {
    let mut lease = crate::lease::Lease::take(backup, "a deletion").await?;
    for prefix in [crate::names::SNAPSHOTS, crate::names::LOGS] {
        for object in backup.target.list(prefix).await? {
            lease.renew().await?;
            backup.target.delete(&object.name).await?;
        }
    }
    // Whoever waits for the lease finds that what it was to write is gone.
    backup.target.delete(crate::names::IDENTITY).await?;
    lease.give_back().await?;
    // Whatever else lies there is somebody's.
    for prefix in [crate::names::LEASES, crate::names::SNAPSHOTS, crate::names::LOGS] {
        // The backup is gone, and nothing finds it again to try once more.
        if let Err(error) = backup.target.tidy(prefix).await {
            tracing::warn!(error = %error, "an empty directory of a deleted backup stays");
        }
    }
    Ok(())
}
