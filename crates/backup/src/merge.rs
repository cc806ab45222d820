//! Small files of the log become larger ones: a backup that puts a file each second would have a listing of millions in a year.
//!
//! Always: the merged file is there before those that it was made of go, and has all of their versions; files may overlap. Whoever
//! listed them before and finds one gone lists again.

use crate::container::{Backup, LogFile};
use crate::format::Kind;
use crate::log::{self, LogBuilder};
use plinth_types::{Result, Version};

/// A file of so many bytes is left as it is.
const LARGE: u64 = 4 << 20;
/// About how many bytes a merged file has at most.
const MOST: u64 = 16 << 20;

/// Merges the small files up to a version that follow one another.
pub(crate) async fn merge_logs(backup: &Backup, upto: Version) -> Result<()> {
    let contents = backup.contents().await?;
    let mut run: Vec<&LogFile> = Vec::new();
    let mut bytes = 0;
    for file in contents.logs.iter().filter(|file| file.to <= upto + 1) {
        let follows = run.last().is_none_or(|last| last.to == file.from);
        if file.stored >= LARGE || !follows || bytes + file.stored > MOST {
            merge(backup, &run).await?;
            run.clear();
            bytes = 0;
        }
        if file.stored < LARGE {
            run.push(file);
            bytes += file.stored;
        }
    }
    merge(backup, &run).await
}

async fn merge(backup: &Backup, run: &[&LogFile]) -> Result<()> {
    let [first, .., last] = run else { return Ok(()) };
    let mut merged = LogBuilder::new(first.from);
    for file in run {
        let bytes = backup.target.get(&file.name).await?;
        let mut reader = backup.reader(&bytes, &file.name, Kind::Log)?;
        let mut batch = (0, plinth_types::MutationList::new());
        let moments = log::read(&mut reader, |version, mutation| {
            if version != batch.0 {
                merged.push(batch.0.max(file.from), batch.1.iter());
                batch = (version, plinth_types::MutationList::new());
            }
            batch.1.push(mutation.kind, mutation.param1, mutation.param2);
            Ok(())
        })?;
        merged.push(batch.0.max(file.from), batch.1.iter());
        moments.into_iter().for_each(|moment| merged.moment(moment));
    }
    backup.put_log(merged, last.to).await?;
    for file in run {
        backup.target.delete(&file.name).await?;
    }
    Ok(())
}
