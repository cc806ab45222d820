//! Small files of the log become larger ones: a backup that puts a file each second would have a
//! listing of millions in a year.
//!
//! ```text
//!   before    ├1┤├2┤├3┤├4┤             a listing that goes on meanwhile has the small ones, one that begins then has the merged one:
//!   merged    ├1┤├2┤├3┤├4┤├── M ──┤    either way it has every version
//!   later     ├── M ──┤                 the small ones go when no listing can go on from before M was there
//! ```
//! Always: the merged file is there for [`LINGERS`] before those that it was made of go, and has
//! all of their versions; files may overlap. Whoever listed them before and finds one gone lists
//! again. A file that can't be read stays as it is, and those on either side of it are merged by
//! themselves.

use crate::container::{Backup, Contents, LogFile};
use crate::format::Kind;
use crate::log::{self, LogBuilder};
use plinth_types::{Error, MutationList, Result, Version};
use std::collections::BTreeMap;
use std::time::Duration;

/// A file of so many bytes is left as it is.
const LARGE: u64 = 4 << 20;
/// About how many bytes a merged file has at most.
const MOST: u64 = 16 << 20;
/// How long files stay whose versions another one has: longer than a listing takes, of a million
/// files, too.
const LINGERS: Duration = Duration::from_secs(600);

/// Files whose versions another file has, and since when that is known.
#[derive(Default)]
pub(crate) struct Superseded {
    since: BTreeMap<String, Duration>,
}

impl Superseded {
    /// Merges the small files up to a version that follow one another, and removes what has been
    /// superseded for long enough. Gives why one of them couldn't be read, if that is so.
    ///
    /// # Errors
    /// Those of the target.
    pub async fn merge_logs(&mut self, backup: &Backup, upto: Version) -> Result<Option<Error>> {
        let contents = backup.contents().await?;
        let mut covered = covered(&contents);
        let mut run: Vec<&LogFile> = Vec::new();
        let (mut bytes, mut unread) = (0, None);
        for file in contents.logs.iter().filter(|file| file.to <= upto + 1) {
            if covered.contains(&file) {
                continue;
            }
            let follows = run.last().is_none_or(|last| last.to == file.from);
            if file.stored >= LARGE || !follows || bytes + file.stored > MOST {
                unread = unread.or(merge(backup, std::mem::take(&mut run), &mut covered).await?);
                bytes = 0;
            }
            if file.stored < LARGE {
                run.push(file);
                bytes += file.stored;
            }
        }
        unread = unread.or(merge(backup, run, &mut covered).await?);
        let now = backup.env.now();
        let before = std::mem::take(&mut self.since);
        let mut due = Vec::new();
        for file in covered {
            let since = before.get(&file.name).copied().unwrap_or(now);
            match now.saturating_sub(since) >= LINGERS {
                true => due.push(file),
                false => drop(self.since.insert(file.name.clone(), since)),
            }
        }
        if !due.is_empty() {
            // Those that have their versions are to stay.
            backup.target.settle(crate::names::LOGS).await?;
        }
        for file in due {
            backup.target.delete(&file.name).await?;
        }
        Ok(unread)
    }
}

/// Files whose versions one other file has, all of them.
fn covered(contents: &Contents) -> Vec<&LogFile> {
    let mut files: Vec<&LogFile> = contents.logs.iter().collect();
    files.sort_by_key(|file| (file.from, std::cmp::Reverse(file.to)));
    let mut reached = Version::MIN;
    files.retain(|file| {
        let is_covered = file.to <= reached;
        reached = reached.max(file.to);
        is_covered
    });
    files
}

/// A file that has what some have that follow one another.
#[derive(Default)]
struct Merged<'f> {
    files: Vec<&'f LogFile>,
    log: Option<LogBuilder>,
}

impl<'f> Merged<'f> {
    /// Adds a file, all of it or nothing.
    async fn add(&mut self, backup: &Backup, file: &'f LogFile) -> Result<()> {
        let bytes = backup.target.get(&file.name).await?;
        let mut reader = backup.reader(&bytes, &file.name, Kind::Log)?;
        let mut batches: Vec<(Version, MutationList)> = Vec::new();
        let moments = log::read(&mut reader, |version, mutation| {
            if batches.last().is_none_or(|(last, _)| *last != version) {
                batches.push((version, MutationList::new()));
            }
            if let Some((_, batch)) = batches.last_mut() {
                batch.push(mutation.kind, mutation.param1, mutation.param2);
            }
            Ok(())
        })?;
        let log = self.log.get_or_insert_with(|| {
            LogBuilder::new(file.from).that_begins(file.begins == Some(true))
        });
        batches.iter().for_each(|(version, batch)| log.push(*version, batch.iter()));
        moments.into_iter().for_each(|moment| log.moment(moment));
        self.files.push(file);
        Ok(())
    }

    /// Puts it, and says that others have the versions of its files now; nothing if it would have
    /// no more than one of them.
    async fn put(self, backup: &Backup, covered: &mut Vec<&'f LogFile>) -> Result<()> {
        if let ([_, .., last], Some(log)) = (&self.files[..], self.log) {
            backup.put_log(log, last.to).await?;
            covered.extend(self.files);
        }
        Ok(())
    }
}

/// Merges files that follow one another, up to one that can't be read and from behind it on. Gives
/// why that is.
async fn merge<'f>(
    backup: &Backup,
    run: Vec<&'f LogFile>,
    covered: &mut Vec<&'f LogFile>,
) -> Result<Option<Error>> {
    let (mut merged, mut unread) = (Merged::default(), None);
    if run.len() < 2 {
        return Ok(None);
    }
    for file in run {
        match merged.add(backup, file).await {
            Ok(()) => {}
            Err(error)
                if error == Error::file_corrupt() || error == Error::unsupported_operation() =>
            {
                unread.get_or_insert(error);
                std::mem::take(&mut merged).put(backup, covered).await?;
            }
            Err(error) => return Err(error),
        }
    }
    merged.put(backup, covered).await?;
    Ok(unread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Directory;
    use plinth_env::Open;
    use plinth_env::simulated::Simulation;
    use std::path::Path;
    use std::sync::Arc;

    /// An agent died between giving a merged file its name and making that durable; the next one
    /// takes away what has been merged, and the machine loses its power just then.
    #[test]
    fn files_go_only_when_the_one_that_has_their_versions_is_durable() {
        for round in 0..200 {
            let simulation = Simulation::new(round);
            let machine = simulation.process("node");
            let target = |machine| Arc::new(Directory::new(machine, "/backup"));
            let (backup, mut superseded) = simulation.run_until(async {
                let backup = Backup::open_or_create(&machine, target(&machine), None, "db", &[])
                    .await
                    .unwrap();
                for (from, to) in [(1, 5), (5, 9)] {
                    backup.put_log(LogBuilder::new(from), to).await.unwrap();
                }
                let mut superseded = Superseded::default();
                superseded.merge_logs(&backup, 8).await.unwrap();
                let files = machine.files();
                let all = backup.contents().await.unwrap().logs;
                let merged =
                    all.iter().find(|file| (file.from, file.to) == (1, 9)).expect("a merged file");
                let name = Path::new("/backup").join(&merged.name);
                let contents = files.read(&name).await.unwrap();
                files.remove(&name).await.unwrap();
                files.sync_dir("/backup/logs").await.unwrap();
                let before = name.with_extension("new");
                let file = files.open(&before, Open::Create).await.unwrap();
                file.write_all_at(0, &contents).await.unwrap();
                file.sync_all().await.unwrap();
                files.rename(&before, &name).await.unwrap();
                machine.sleep(LINGERS).await;
                (backup, superseded)
            });
            drop(machine.spawn("merge", async move {
                drop(superseded.merge_logs(&backup, 8).await.unwrap())
            }));
            simulation.run_for(Duration::from_micros(20 * round));
            simulation.crash(&machine);
            let machine = simulation.restart(&machine);
            let contents = simulation.run_until(async {
                let backup = Backup::open(&machine, target(&machine), None).await.unwrap();
                backup.contents().await.unwrap()
            });
            assert_eq!(contents.chain(1, Version::MAX).1, 9, "round {round}: {:?}", contents.logs);
        }
    }

    /// One damaged file kept all from being merged, and the backup began again each time.
    #[test]
    fn a_file_that_cannot_be_read_stays_between_those_that_can() {
        let simulation = Simulation::new(1);
        let machine = simulation.process("node");
        simulation.run_until(async {
            let target = Arc::new(Directory::new(&machine, "/backup"));
            let backup =
                Backup::open_or_create(&machine, target.clone(), None, "db", &[]).await.unwrap();
            for from in [1, 5, 9, 13, 17] {
                let mut log = LogBuilder::new(from);
                let mut mutations = MutationList::new();
                mutations.push(plinth_types::MutationType::Set, b"key", &from.to_le_bytes());
                log.push(from + 1, mutations.iter());
                backup.put_log(log, from + 4).await.unwrap();
            }
            let logs = backup.contents().await.unwrap().logs;
            let path = Path::new("/backup").join(&logs[2].name);
            let mut contents = machine.files().read(&path).await.unwrap().to_vec();
            *contents.last_mut().unwrap() ^= 1;
            machine.files().remove(&path).await.unwrap();
            let file = machine.files().open(&path, Open::Create).await.unwrap();
            file.write_all_at(0, &contents).await.unwrap();
            let unread = Superseded::default().merge_logs(&backup, 20).await.unwrap().unwrap();
            assert!(unread == Error::file_corrupt() && unread.to_string().contains(&logs[2].name));
            let contents = backup.contents().await.unwrap();
            let spans: Vec<_> = contents.logs.iter().map(|file| (file.from, file.to)).collect();
            assert_eq!(
                spans,
                [(1, 5), (1, 9), (5, 9), (9, 13), (13, 17), (13, 21), (17, 21)],
                "what is merged, and the damaged file is in none"
            );
        });
    }

    #[test]
    fn covered_files_are_those_that_one_other_has() {
        let file =
            |from, to| LogFile { name: format!("{from}-{to}"), from, to, begins: None, stored: 1 };
        let spans = [(1, 5), (1, 9), (5, 9), (7, 12), (9, 10), (12, 14), (12, 14), (20, 30)];
        let logs = spans.map(|(from, to)| file(from, to)).to_vec();
        let contents = Contents { logs, ..Contents::default() };
        let names: Vec<_> = covered(&contents).into_iter().map(|file| &*file.name).collect();
        assert_eq!(names, ["1-5", "5-9", "9-10", "12-14"], "of two that are the same one stays");
    }
}
