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
//! themselves; it is told for as long as it is there, and neither it nor its neighbours are read
//! again and again. Nothing goes for its sake, though it has the name of a file that has all of it.

use crate::container::{Backup, Contents, LogFile};
use crate::format::{Kind, is_damage};
use crate::log::{self, LogBuilder};
use plinth_types::{MutationList, Result, Version};
use std::collections::BTreeMap;
use std::time::Duration;

/// A file of so many bytes is left as it is.
const LARGE: u64 = 4 << 20;
/// About how many bytes a merged file has at most.
const MOST: u64 = 16 << 20;
/// How long files stay whose versions another one has: longer than a listing takes, of a million
/// files, too.
const LINGERS: Duration = Duration::from_secs(600);

/// What is known of files of the log from one merging to the next.
#[derive(Default)]
pub(crate) struct Superseded {
    /// Files whose versions another file has, and since when that is known.
    since: BTreeMap<String, Duration>,
    /// Files that can't be read, and why.
    unread: BTreeMap<String, String>,
    /// That was so before this began, and hasn't been looked at since.
    is_hearsay: bool,
}

impl Superseded {
    /// One that was told which files can't be read, and why.
    pub fn after(unread: BTreeMap<String, String>) -> Self {
        Self { is_hearsay: !unread.is_empty(), unread, ..Self::default() }
    }

    /// Files that are there and can't be read, and why, as far as somebody has tried.
    pub fn unread(&self) -> &BTreeMap<String, String> {
        &self.unread
    }

    /// Merges the small files up to a version that follow one another, and removes what has been
    /// superseded for long enough.
    ///
    /// # Errors
    /// Those of the target.
    pub async fn merge_logs(&mut self, backup: &Backup, upto: Version) -> Result<()> {
        let contents = backup.contents().await?;
        self.unread.retain(|name, _| contents.logs.iter().any(|file| file.name == *name));
        if self.is_hearsay {
            self.look_again(backup, &contents).await?;
        }
        let mut covered = covered(&contents, &self.unread);
        let mut run: Vec<&LogFile> = Vec::new();
        let mut bytes = 0;
        for file in contents.logs.iter().filter(|file| file.to <= upto + 1) {
            if covered.contains(&file) {
                continue;
            }
            let is_left = file.stored >= LARGE || self.unread.contains_key(&file.name);
            let follows = run.last().is_none_or(|last| last.to == file.from);
            if is_left || !follows || bytes + file.stored > MOST {
                self.merge(backup, std::mem::take(&mut run), &mut covered).await?;
                bytes = 0;
            }
            if !is_left {
                run.push(file);
                bytes += file.stored;
            }
        }
        self.merge(backup, run, &mut covered).await?;
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
        Ok(())
    }

    /// Tries files that couldn't be read before this began: somebody may have put them right.
    async fn look_again(&mut self, backup: &Backup, contents: &Contents) -> Result<()> {
        for file in &contents.logs {
            if self.unread.contains_key(&file.name)
                && self.added(&mut Merged::default(), backup, file).await?
            {
                self.unread.remove(&file.name);
            }
        }
        self.is_hearsay = false;
        Ok(())
    }

    /// Merges files that follow one another, up to one that can't be read and from behind it on.
    async fn merge<'f>(
        &mut self,
        backup: &Backup,
        run: Vec<&'f LogFile>,
        covered: &mut Vec<&'f LogFile>,
    ) -> Result<()> {
        if run.len() < 2 {
            return Ok(());
        }
        let mut merged = Merged::default();
        for file in run {
            if !self.added(&mut merged, backup, file).await? {
                std::mem::take(&mut merged).put(backup, covered).await?;
            }
        }
        merged.put(backup, covered).await
    }

    /// Adds a file to what is merged; false if it can't be read, which is noted.
    async fn added<'f>(
        &mut self,
        merged: &mut Merged<'f>,
        backup: &Backup,
        file: &'f LogFile,
    ) -> Result<bool> {
        match merged.add(backup, file).await {
            Ok(()) => Ok(true),
            Err(error) if is_damage(&error) => {
                tracing::warn!(error = %error, "a file of a backup's log can't be merged, and stays as it is");
                self.unread.insert(file.name.clone(), error.to_string());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Files whose versions one other file has, all of them, and can be read as far as is known.
fn covered<'f>(contents: &'f Contents, unread: &BTreeMap<String, String>) -> Vec<&'f LogFile> {
    let mut files: Vec<&LogFile> = contents.logs.iter().collect();
    files.sort_by_key(|file| (file.from, std::cmp::Reverse(file.to)));
    let mut reached = Version::MIN;
    files.retain(|file| {
        let is_covered = file.to <= reached;
        if !unread.contains_key(&file.name) {
            reached = reached.max(file.to);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Directory;
    use crate::target::Target;
    use plinth_env::simulated::Simulation;
    use plinth_env::{Env, Open};
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
            drop(
                machine.spawn(
                    "merge",
                    async move { superseded.merge_logs(&backup, 8).await.unwrap() },
                ),
            );
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

    /// A new backup in a directory.
    async fn opened(machine: &Env) -> (Arc<Directory>, Backup) {
        let target = Arc::new(Directory::new(machine, "/backup"));
        let backup = Backup::open_or_create(machine, target.clone(), None, "db", &[]).await;
        (target, backup.unwrap())
    }

    /// The files that a damaged one was made of went, since its name says that it has what they
    /// have.
    #[test]
    fn what_a_damaged_file_was_made_of_stays() {
        let simulation = Simulation::new(1);
        let machine = simulation.process("node");
        simulation.run_until(async {
            let (target, backup) = opened(&machine).await;
            for (from, to) in [(1, 5), (5, 9), (9, 13)] {
                backup.put_log(LogBuilder::new(from), to).await.unwrap();
            }
            let mut superseded = Superseded::default();
            superseded.merge_logs(&backup, 8).await.unwrap();
            let logs = backup.contents().await.unwrap().logs;
            let merged = logs.iter().find(|file| (file.from, file.to) == (1, 9)).unwrap();
            let mut contents = target.get(&merged.name).await.unwrap().to_vec();
            *contents.last_mut().unwrap() ^= 1;
            target.put(&merged.name, contents.into()).await.unwrap();
            // It is found to be damaged when it is to be merged with the one behind it.
            for _ in 0..3 {
                superseded.merge_logs(&backup, 12).await.unwrap();
                machine.sleep(LINGERS).await;
            }
            let mut reached = 1;
            for file in backup.contents().await.unwrap().logs {
                let bytes = target.get(&file.name).await.unwrap();
                let reader = backup.reader(&bytes, &file.name, Kind::Log);
                let is_good = reader.and_then(|mut reader| log::read(&mut reader, |_, _| Ok(())));
                if file.from <= reached && is_good.is_ok() {
                    reached = reached.max(file.to);
                }
            }
            assert_eq!(reached, 13, "all versions are in files that can be read");
        });
    }

    /// One damaged file kept all from being merged, and the backup began again each time.
    #[test]
    fn a_file_that_cannot_be_read_stays_between_those_that_can() {
        let simulation = Simulation::new(1);
        let machine = simulation.process("node");
        simulation.run_until(async {
            let (target, backup) = opened(&machine).await;
            for from in [1, 5, 9, 13, 17] {
                let mut log = LogBuilder::new(from);
                let mut mutations = MutationList::new();
                mutations.push(plinth_types::MutationType::Set, b"key", &from.to_le_bytes());
                log.push(from + 1, mutations.iter());
                backup.put_log(log, from + 4).await.unwrap();
            }
            let logs = backup.contents().await.unwrap().logs;
            let mut contents_of_damaged = target.get(&logs[2].name).await.unwrap().to_vec();
            *contents_of_damaged.last_mut().unwrap() ^= 1;
            target.put(&logs[2].name, contents_of_damaged.clone().into()).await.unwrap();
            let mut superseded = Superseded::default();
            superseded.merge_logs(&backup, 20).await.unwrap();
            let damaged: Vec<_> = superseded.unread().keys().cloned().collect();
            assert_eq!(damaged, [logs[2].name.clone()]);
            assert!(superseded.unread()[&logs[2].name].contains(&logs[2].name));
            let contents = backup.contents().await.unwrap();
            let spans: Vec<_> = contents.logs.iter().map(|file| (file.from, file.to)).collect();
            assert_eq!(
                spans,
                [(1, 5), (1, 9), (5, 9), (9, 13), (13, 17), (13, 21), (17, 21)],
                "what is merged, and the damaged file is in none"
            );
            // It is told as long as it is there, and those beside it aren't read for it: they would
            // be found damaged, too.
            for file in contents.logs.iter().filter(|file| **file != logs[2]) {
                target.put(&file.name, "damaged".into()).await.unwrap();
            }
            superseded.merge_logs(&backup, 20).await.unwrap();
            assert!(superseded.unread().keys().eq(&damaged), "{:?}", superseded.unread());
            // What a place fails with for a while says nothing of it.
            machine.files().open("/backup/logs/x", Open::Create).await.unwrap();
            superseded.merge_logs(&backup, 20).await.unwrap_err();
            assert!(superseded.unread().keys().eq(&damaged));
            machine.files().remove("/backup/logs/x").await.unwrap();
            // Nor what another process found before: it may have been put right.
            let mut next = Superseded::after(superseded.unread().clone());
            next.merge_logs(&backup, 20).await.unwrap();
            assert!(next.unread().keys().eq(&damaged));
            *contents_of_damaged.last_mut().unwrap() ^= 1;
            target.put(&damaged[0], contents_of_damaged.into()).await.unwrap();
            let mut next = Superseded::after(superseded.unread().clone());
            next.merge_logs(&backup, 20).await.unwrap();
            assert!(!next.unread().contains_key(&damaged[0]));
            target.delete(&damaged[0]).await.unwrap();
            superseded.merge_logs(&backup, 20).await.unwrap();
            assert!(superseded.unread().is_empty());
        });
    }

    #[test]
    fn covered_files_are_those_that_one_other_has() {
        let file =
            |from, to| LogFile { name: format!("{from}-{to}"), from, to, begins: None, stored: 1 };
        let spans = [(1, 5), (1, 9), (5, 9), (7, 12), (9, 10), (12, 14), (12, 14), (20, 30)];
        let logs = spans.map(|(from, to)| file(from, to)).to_vec();
        let contents = Contents { logs, ..Contents::default() };
        let none = BTreeMap::new();
        let names: Vec<_> = covered(&contents, &none).into_iter().map(|file| &*file.name).collect();
        assert_eq!(names, ["1-5", "5-9", "9-10", "12-14"], "of two that are the same one stays");
    }
}
