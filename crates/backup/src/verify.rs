//! Verifying: every file of a backup is read, and what is damaged or missing is told with what that
//! costs.
//!
//! The backup may run meanwhile, and somebody may expire what is old. Always: what is told to be
//! wrong is; a file of the log that was merged since it was listed is not missing, and what has its
//! versions is read instead; nor is what nothing needs any more that is still there.

use crate::container::{Backup, Contents, Gap, LogFile, Snapshot};
use crate::format::{FileReader, Header, Kind};
use crate::log;
use crate::manifest::{Manifest, RowsFile};
use crate::restore::read_pieces;
use plinth_types::{Error, Result, Version};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A file that isn't what it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// What is wrong with which file.
    pub error: Error,
    /// Versions that can't be restored because of it, first and last; those of a file of the log
    /// are its own.
    pub costs: Option<(Version, Version)>,
    /// What can be done about it, if there is something.
    pub help: Option<Help>,
}

/// How to restore in spite of a file that isn't what it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Help {
    /// An older snapshot reaches the same versions as this one; its version.
    OlderThan(Version),
    /// Other files have the versions of this one: it can be removed.
    Remove,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.error.summary())
    }
}

/// What was read.
#[derive(Clone, Default, Debug)]
pub struct VerifyReport {
    /// Files that were read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// The versions that can be restored all the same, first and last of each stretch.
    pub restorable: Vec<(Version, Version)>,
    /// Versions of which no file of the log has anything although there are later ones: the backup
    /// was broken or begun anew then. Where files are missing that is among the problems.
    pub gaps: Vec<Gap>,
    /// Directories of snapshots without a manifest: they are under way, were interrupted, or have
    /// lost it.
    pub unfinished: Vec<String>,
    /// Versions that were committed at such a time or later, in milliseconds since 1970, and those
    /// that were by then; each ascending.
    floors: Vec<(Version, u64)>,
    ceilings: Vec<(Version, u64)>,
    /// Whether rows and mutations were looked at, or, for want of the key, checksums alone.
    pub is_deep: bool,
}

/// Reads all files of a backup. `read` counts bytes, and `stop` ends it.
///
/// # Errors
/// Those of listing the target; `operation_cancelled` if it was stopped. What is wrong with a file
/// is no error; that nothing can be restored is among the problems.
pub async fn verify(backup: &Backup, read: &AtomicU64, stop: &AtomicBool) -> Result<VerifyReport> {
    let mut contents = backup.contents().await?;
    let is_deep = !backup.is_sealed() || backup.key.is_some();
    let mut report = VerifyReport { is_deep, ..VerifyReport::default() };
    for (_, error) in std::mem::take(&mut contents.damaged) {
        report.problems.push(Problem { error, costs: None, help: None });
    }
    let whole = contents.clone();
    let mut unsound = Vec::new();
    check_logs(backup, &mut contents, &mut report, read, stop).await?;
    for end in &whole.ends {
        let mut error = check_blocks(backup, &crate::names::end(*end), Kind::End).await.err();
        if error == Some(Error::file_not_found()) && !backup.contents().await?.ends.contains(end) {
            error = None;
        }
        report.problems.extend(error.map(|error| Problem { error, costs: None, help: None }));
        report.files += 1;
    }
    for snapshot in &whole.snapshots {
        let reach = whole.reach(snapshot);
        report.learn((snapshot.header.to, snapshot.header.to), &snapshot.header);
        let errors = check_snapshot(backup, snapshot, &mut report, read, stop).await?;
        let is_gone = errors.contains(&Error::file_not_found())
            && is_expired(snapshot, &backup.contents().await?);
        if is_gone || !errors.is_empty() {
            contents.snapshots.retain(|other| other.directory != snapshot.directory);
        }
        let told = errors.into_iter().filter(|_| !is_gone);
        unsound.extend(told.map(|error| (error, reach, snapshot.header.to)));
    }
    report.restorable = contents.restorable();
    report.unfinished = whole.unfinished.clone();
    for gap in whole.restorable().iter().filter_map(|(_, last)| whole.gap_behind(*last)) {
        match gap.is_missing {
            true => report.problems.push(missing(&gap, &whole)),
            false => report.gaps.push(gap),
        }
    }
    for (error, reach, version) in unsound {
        let costs = reach.and_then(|reach| unreached(reach, &report.restorable));
        let help = (reach.is_some() && costs.is_none()).then_some(Help::OlderThan(version));
        report.problems.push(Problem { error, costs, help });
    }
    if report.restorable.is_empty() && report.problems.is_empty() {
        report.problems.push(nothing(&whole));
    }
    report.floors.sort_unstable();
    report.ceilings.sort_unstable();
    Ok(report)
}

impl VerifyReport {
    /// Between which times these versions were committed, in milliseconds since 1970: the last
    /// known time before them, and the first one behind, if there are any.
    pub fn times(&self, (from, to): (Version, Version)) -> (Option<u64>, Option<u64>) {
        let before = self.floors.iter().rfind(|(version, _)| *version <= from);
        let behind = self.ceilings.iter().find(|(version, _)| *version >= to);
        (before.map(|(_, time)| *time), behind.map(|(_, time)| *time))
    }

    /// What a header says of the times of these versions. Of a file of the log those are its first
    /// and last moment, between which others of its versions may lie: its first version came by
    /// then, its last one not before.
    fn learn(&mut self, (first, last): (Version, Version), header: &Header) {
        let known = |time: u64| time > 0;
        self.ceilings.extend(Some((first, header.time_from)).filter(|told| known(told.1)));
        self.floors.extend(Some((last, header.time_to)).filter(|told| known(told.1)));
    }

    fn count(&mut self, bytes: u64, read: &AtomicU64) {
        self.files += 1;
        self.bytes += bytes;
        read.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A gap that is none of the backup's own.
fn missing(gap: &Gap, contents: &Contents) -> Problem {
    let next =
        contents.restorable().into_iter().map(|(first, _)| first).find(|first| *first > gap.from);
    let end = contents.logs.iter().map(|log| log.to).chain([gap.to + 1]).max();
    let end = end.unwrap_or_default();
    let detail = format!(
        "{}: a file of the log with the versions {} to {} is missing",
        crate::names::LOGS,
        gap.from,
        gap.to
    );
    let error = Error::restore_missing_data().with_detail(detail);
    Problem { error, costs: Some((gap.from, next.unwrap_or(end) - 1)), help: None }
}

/// No file is wrong, and yet there is nothing to restore.
fn nothing(contents: &Contents) -> Problem {
    let why = match contents.snapshots.last() {
        Some(snapshot) => format!(
            "no file of the log has what {} needs, versions {} to {}",
            snapshot.directory,
            snapshot.header.from + 1,
            snapshot.header.to
        ),
        None if contents.unfinished.is_empty() => "it has no snapshot".to_owned(),
        None => format!("none of its {} snapshots has a manifest", contents.unfinished.len()),
    };
    let error =
        Error::restore_missing_data().with_detail(format!("nothing can be restored: {why}"));
    Problem { error, costs: None, help: None }
}

/// The versions of a stretch that none of these reaches.
fn unreached(
    (mut from, mut to): (Version, Version),
    reached: &[(Version, Version)],
) -> Option<(Version, Version)> {
    for (first, last) in reached {
        if (*first..=*last).contains(&from) {
            from = last + 1;
        }
        if (*first..=*last).contains(&to) {
            to = first - 1;
        }
    }
    (from <= to).then_some((from, to))
}

/// What is wrong with the files of a snapshot.
async fn check_snapshot(
    backup: &Backup,
    snapshot: &Snapshot,
    report: &mut VerifyReport,
    read: &AtomicU64,
    stop: &AtomicBool,
) -> Result<Vec<Error>> {
    let mut errors = Vec::new();
    if report.is_deep {
        match Manifest::read(backup, snapshot).await {
            Ok(manifest) => {
                for file in &manifest.files {
                    if stop.load(Ordering::Relaxed) {
                        return Err(Error::operation_cancelled());
                    }
                    errors.extend(check_rows(backup, file).await.err());
                    report.count(file.len, read);
                }
            }
            Err(error) => errors.push(error),
        }
    } else {
        let listed = backup.target.list(&snapshot.directory).await?;
        // Without a key only its listing tells which files it has.
        if !listed.iter().any(|object| object.name == snapshot.manifest) {
            let detail = format!("{}: it is gone", snapshot.manifest);
            errors.push(Error::file_not_found().with_detail(detail));
        }
        for object in listed {
            let kind = if object.name == snapshot.manifest { Kind::Manifest } else { Kind::Rows };
            errors.extend(check_blocks(backup, &object.name, kind).await.err());
            report.count(object.len, read);
        }
    }
    Ok(errors)
}

/// Whether a snapshot that was there has been expired since: its manifest goes first, and a later
/// one is there.
fn is_expired(snapshot: &Snapshot, now: &Contents) -> bool {
    let is_there = now.snapshots.iter().any(|other| other.directory == snapshot.directory);
    !is_there && now.snapshots.iter().any(|other| other.header.to > snapshot.header.to)
}

/// Whether a file of the log that is gone has been expired: no snapshot that is there needs it.
fn is_unneeded(file: &LogFile, now: &Contents) -> bool {
    now.snapshots.first().is_some_and(|first| file.to <= first.header.from + 1)
}

/// Reads the files of the log; `contents` has those that are sound then. One that was merged since
/// it was listed is not missing: what has its versions now is read in its stead.
async fn check_logs(
    backup: &Backup,
    contents: &mut Contents,
    report: &mut VerifyReport,
    read: &AtomicU64,
    stop: &AtomicBool,
) -> Result<()> {
    let mut waiting: VecDeque<LogFile> = contents.logs.iter().cloned().collect();
    let mut known: BTreeSet<String> = waiting.iter().map(|file| file.name.clone()).collect();
    let (mut sound, mut unsound) = (Vec::new(), Vec::new());
    let mut latest: Option<Contents> = None;
    while let Some(file) = waiting.pop_front() {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::operation_cancelled());
        }
        let checked = check_log(backup, &file, report).await;
        if checked == Err(Error::file_not_found()) {
            let is_listed =
                |listed: &Contents| listed.logs.iter().any(|other| other.name == file.name);
            let listed = match latest.take().filter(|listed| !is_listed(listed)) {
                Some(listed) => listed,
                None => backup.contents().await?,
            };
            if !is_listed(&listed) && is_unneeded(&file, &listed) {
                latest = Some(listed);
                continue;
            }
            let (chain, end) = listed.chain(file.from, file.to);
            let covers = end >= file.to && !is_listed(&listed);
            let others =
                chain.into_iter().filter(|other| covers && known.insert(other.name.clone()));
            waiting.extend(others.cloned());
            latest = Some(listed);
            if covers {
                continue;
            }
        }
        report.count(file.stored, read);
        match checked {
            Ok(()) => sound.push(file),
            Err(error) => unsound.push((file, error)),
        }
    }
    sound.sort_by_key(|file| (file.from, file.to));
    contents.logs = sound;
    for (file, error) in unsound {
        let is_covered = contents.chain(file.from, file.to).1 >= file.to;
        let costs = (!is_covered).then_some((file.from, file.to - 1));
        report.problems.push(Problem { error, costs, help: is_covered.then_some(Help::Remove) });
    }
    Ok(())
}

async fn check_log(backup: &Backup, listed: &LogFile, report: &mut VerifyReport) -> Result<()> {
    let name = &*listed.name;
    let bytes = backup.target.get(name).await?;
    let mut file = backup.reader(&bytes, name, Kind::Log)?;
    report.learn((listed.from, listed.to - 1), &file.header);
    if !report.is_deep {
        return read_blocks(&mut file);
    }
    let count = file.header.count;
    let mut found = 0;
    log::read(&mut file, |_, _| {
        found += 1;
        Ok(())
    })?;
    if found != count {
        let detail = format!("{name} at offset 0: mutations: expected {count}, found {found}");
        return Err(Error::file_corrupt().with_detail(detail));
    }
    Ok(())
}

async fn check_rows(backup: &Backup, file: &RowsFile) -> Result<()> {
    let pieces = read_pieces(backup, file, std::slice::from_ref(&file.range)).await?;
    let rows: u64 = pieces.iter().map(|piece| piece.rows.len() as u64).sum();
    if rows != file.rows {
        let detail =
            format!("{} at offset 0: rows: expected {}, found {rows}", file.name, file.rows);
        return Err(Error::file_corrupt().with_detail(detail));
    }
    Ok(())
}

async fn check_blocks(backup: &Backup, name: &str, kind: Kind) -> Result<()> {
    let bytes = backup.target.get(name).await?;
    read_blocks(&mut backup.reader(&bytes, name, kind)?)
}

fn read_blocks(file: &mut FileReader<'_>) -> Result<()> {
    while file.next()?.is_some() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_lie_between_the_times_that_are_known_around_them() {
        let moments = vec![(10, 1_000), (20, 2_000), (30, 3_000)];
        let report =
            VerifyReport { floors: moments.clone(), ceilings: moments, ..VerifyReport::default() };
        assert_eq!(report.times((12, 25)), (Some(1_000), Some(3_000)));
        assert_eq!(report.times((20, 20)), (Some(2_000), Some(2_000)));
        assert_eq!(report.times((5, 15)), (None, Some(2_000)));
        assert_eq!(report.times((31, 40)), (Some(3_000), None));
    }
}
