//! What a restore reads: a snapshot's files and files of the log, for a version or a moment.
//!
//! The latest snapshot that fits is taken, and the log from there. Always: nothing older than what
//! was asked for is taken without a word, as where the manifest of a later snapshot is damaged.

use super::Mapping;
use crate::container::{Backup, Contents, Gap, LogFile, Snapshot};
use crate::format::{Kind, is_damage};
use crate::log::{self, Moment};
use crate::manifest::{Manifest, RowsFile};
use crate::moments::show_time;
use crate::names;
use crate::ranges::meant;
use plinth_types::{Error, KeyRange, Result, Version};

/// So often files are listed anew.
const LISTINGS: u32 = 5;

/// What a restore is to bring back.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Goal {
    /// The newest that there is.
    #[default]
    Newest,
    /// What there was at a version.
    Version(Version),
    /// What there was at a moment, in milliseconds since 1970.
    Time(u64),
}

/// What has to be read for a version.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The version.
    pub version: Version,
    /// Where a time was asked for: the last one at or before it that is noted, and its version.
    pub moment: Option<Moment>,
    /// Versions behind what its snapshot can be brought to that no file of the log has, although
    /// there are later ones.
    pub gap: Option<Gap>,
    /// The version at which a later snapshot was begun that has no manifest: it is under way, was
    /// interrupted, or has lost it. Not told where a version was asked for.
    pub unfinished: Option<Version>,
    /// Where a later time was asked for: the last one that is noted in the backup.
    pub ends: Option<Moment>,
    /// The version of an older snapshot that reaches it, too, should this one be damaged.
    pub older: Option<Version>,
    /// The snapshot that it begins with.
    pub snapshot: Snapshot,
    /// The ranges that are restored, by their names in the backup.
    pub ranges: Vec<KeyRange>,
    /// Their new names.
    pub mapping: Mapping,
    pub(crate) files: Vec<RowsFile>,
    pub(crate) logs: Vec<LogFile>,
}

/// Which snapshot a restore begins with, of those that reach its version.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Choice {
    /// The latest, which has the least log behind it.
    #[default]
    Latest,
    /// The latest of those before this version: a later one is damaged.
    Before(Version),
    /// The one in this directory, as a restore that was cut short had it.
    Directory(String),
}

impl Choice {
    fn allows(&self, snapshot: &Snapshot) -> bool {
        match self {
            Self::Latest => true,
            Self::Before(version) => snapshot.header.to < *version,
            Self::Directory(directory) => snapshot.directory == *directory,
        }
    }
}

impl Plan {
    /// What brings a backup's ranges back as they were.
    ///
    /// # Errors
    /// `restore_invalid_version` if the backup doesn't reach there, saying where it does;
    /// `client_invalid_operation` for ranges that it doesn't have, or without its key;
    /// `file_corrupt`, also if the newest snapshot that fits can't be read, unless a version is
    /// asked for; those of the target.
    pub async fn make(backup: &Backup, goal: Goal, mapping: Mapping) -> Result<Self> {
        Self::make_from(backup, goal, mapping, &Choice::Latest).await
    }

    /// The same, of the snapshots that may be chosen.
    ///
    /// # Errors
    /// As [`Plan::make`].
    pub async fn make_from(
        backup: &Backup,
        goal: Goal,
        mapping: Mapping,
        choice: &Choice,
    ) -> Result<Self> {
        backup.needs_key()?;
        let mut contents = backup.contents().await?;
        let moment = match goal {
            Goal::Time(time) => Some(moment_at(backup, &mut contents, time).await?),
            _ => None,
        };
        let ends = end_before(backup, &mut contents, goal).await?;
        let version = match goal {
            Goal::Version(version) => version,
            Goal::Time(_) => moment.map_or(0, |moment| moment.version),
            Goal::Newest => newest(backup, &contents).await?,
        };
        // The latest has the least log behind it.
        let fits = |snapshot: &&Snapshot| {
            let reach = contents.reach(snapshot);
            reach.is_some_and(|(from, to)| (from..=to).contains(&version))
                && choice.allows(snapshot)
        };
        let Some(snapshot) = contents.snapshots.iter().rev().find(fits).cloned() else {
            let asked = match goal {
                Goal::Time(time) => {
                    format!(", the last one noted at or before {}", show_time(time))
                }
                _ => String::new(),
            };
            return Err(
                unreachable_goal(backup, &contents, &format!("version {version}{asked}")).await
            );
        };
        if !matches!(goal, Goal::Version(_)) && *choice == Choice::Latest {
            check_none_is_hidden(backup, &contents, &snapshot, version)?;
        }
        let manifest = Manifest::read(backup, &snapshot).await?;
        let ranges = mapping.select(&meant(&manifest.ranges))?;
        let overlaps = |file: &RowsFile| {
            ranges.iter().any(|range| range.begin < file.range.end && file.range.begin < range.end)
        };
        let files = manifest.files.into_iter().filter(overlaps).collect();
        let is_version = matches!(goal, Goal::Version(_));
        Ok(Self {
            version,
            moment,
            gap: contents.reach(&snapshot).and_then(|(_, last)| contents.gap_behind(last)),
            unfinished: later_unfinished(&contents, version).filter(|_| !is_version),
            ends,
            older: older_than(&contents, &snapshot, version),
            logs: logs_from(&contents, &snapshot, version),
            snapshot,
            ranges,
            mapping,
            files,
        })
    }

    /// Whether the ranges cut files that are read, of which fewer rows are restored than they have.
    pub fn cuts_files(&self) -> bool {
        !self.files.iter().all(|file| self.has_whole(file))
    }

    /// Whether all rows of a file are restored.
    pub(crate) fn has_whole(&self, file: &RowsFile) -> bool {
        let (begin, end) = (&file.range.begin, &file.range.end);
        self.ranges.iter().any(|range| range.begin <= *begin && *end <= range.end)
    }

    /// Bytes of rows in the files of the snapshot that are read.
    pub fn row_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Rows in them, of which fewer are restored where [`Plan::cuts_files`].
    pub fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }

    /// Bytes of all files that are read.
    pub fn stored_bytes(&self) -> u64 {
        let rows: u64 = self.files.iter().map(|file| file.len).sum();
        rows + self.logs.iter().map(|log| log.stored).sum::<u64>()
    }

    /// How many those are.
    pub fn file_count(&self) -> usize {
        self.files.len() + self.logs.len()
    }

    /// Bytes of the files of the log among them.
    pub fn log_bytes(&self) -> u64 {
        self.logs.iter().map(|log| log.stored).sum()
    }
}

/// The files of the log that bring a snapshot to a version.
fn logs_from(contents: &Contents, snapshot: &Snapshot, version: Version) -> Vec<LogFile> {
    if version <= snapshot.header.from {
        return Vec::new();
    }
    let (chain, _) = contents.chain(snapshot.header.from + 1, version + 1);
    chain.into_iter().cloned().collect()
}

/// The version of the latest snapshot before this one that can be brought to a version too.
fn older_than(contents: &Contents, snapshot: &Snapshot, version: Version) -> Option<Version> {
    let ends = contents.snapshots.iter().rev().map(|other| other.header.to);
    ends.filter(|to| *to < snapshot.header.to && *to <= version)
        .find(|to| reaches(contents, *to, version))
}

/// The last moment that is noted, if a later time was asked for.
async fn end_before(
    backup: &Backup,
    contents: &mut Contents,
    goal: Goal,
) -> Result<Option<Moment>> {
    let Goal::Time(time) = goal else { return Ok(None) };
    match moment_at(backup, contents, u64::MAX).await {
        Ok(last) => Ok(Some(last).filter(|last| last.time < time)),
        // It is of later times: of those that were asked for everything has been read.
        Err(error) if is_damage(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The version at which the latest snapshot without a manifest was begun, if that is above this
/// one.
fn later_unfinished(contents: &Contents, version: Version) -> Option<Version> {
    let begun = |directory: &String| names::parse_snapshot_version(directory);
    contents.unfinished.iter().filter_map(begun).rfind(|begun| *begun > version)
}

/// Whether the snapshot of one version can be brought to another.
fn reaches(contents: &Contents, of: Version, version: Version) -> bool {
    let mut snapshots = contents.snapshots.iter().filter(|snapshot| snapshot.header.to == of);
    snapshots.any(|snapshot| contents.reach(snapshot).is_some_and(|(_, last)| version <= last))
}

/// The newest version that can be restored, unless there is something newer that can't: whoever
/// wants the newest would get what is old.
async fn newest(backup: &Backup, contents: &Contents) -> Result<Version> {
    let Some((_, last)) = contents.restorable().last().copied() else {
        return Err(unreachable_goal(backup, contents, "anything").await);
    };
    let Some(Gap { from, to, .. }) = contents.gap_behind(last) else { return Ok(last) };
    Err(Error::restore_missing_data().with_detail(format!(
        "no file of the log in {} has versions {from} to {to}, and no snapshot reaches what was saved behind them; give --version \
         {last} to take what there was before",
        backup.url()
    )))
}

/// Refuses what is older than asked for, for want of a snapshot whose manifest is damaged.
fn check_none_is_hidden(
    backup: &Backup,
    contents: &Contents,
    chosen: &Snapshot,
    version: Version,
) -> Result<()> {
    let end = contents.reach(chosen).map_or(version, |(_, end)| end);
    for (name, error) in &contents.damaged {
        let Some(hidden) = names::parse_snapshot_version(name).filter(|hidden| *hidden > end)
        else {
            continue;
        };
        // One between that can be read was not chosen, so it is later than what is asked for, and
        // this one, too.
        let is_later = |other: &Snapshot| version < other.header.to && other.header.to < hidden;
        if !contents.snapshots.iter().any(is_later) {
            let said = error.summary();
            return Err(error.clone().with_detail(format!(
                "a snapshot of version {hidden} in {} can't be read ({said}); give --version {version} to take what is older",
                backup.url()
            )));
        }
    }
    Ok(())
}

async fn unreachable_goal(backup: &Backup, contents: &Contents, what: &str) -> Error {
    let mut stretches = Vec::new();
    for (from, to) in contents.restorable() {
        let times = match times_of(backup, contents, from, to).await {
            Some((begin, end)) => format!(" ({} to {})", show_time(begin), show_time(end)),
            None => String::new(),
        };
        stretches.push(format!("{from} to {to}{times}"));
    }
    let has = match (stretches.is_empty(), contents.damaged.first()) {
        (true, None) => "it has no whole snapshot".to_owned(),
        (true, Some((_, error))) => format!(
            "it has no whole snapshot whose manifest can be read ({}); plinth backup verify says more",
            error.summary()
        ),
        (false, _) => format!("it reaches versions {}", stretches.join(", and ")),
    };
    Error::restore_invalid_version()
        .with_detail(format!("{} cannot be restored to {what}: {has}", backup.url()))
}

/// The first and the last time that are known of a stretch, as far as headers tell.
async fn times_of(
    backup: &Backup,
    contents: &Contents,
    from: Version,
    to: Version,
) -> Option<(u64, u64)> {
    let of_stretch = |version: Version| (from..=to).contains(&version);
    let mut snapshots = contents.snapshots.iter().filter(|snapshot| of_stretch(snapshot.header.to));
    let first = snapshots.next()?.header.time_to;
    let mut last = snapshots.next_back().map_or(first, |snapshot| snapshot.header.time_to);
    for file in contents.logs.iter().rev().filter(|file| of_stretch(file.to - 1)) {
        match backup.header(&file.name).await {
            Ok(header) if header.time_to > 0 => {
                last = last.max(header.time_to);
                break;
            }
            _ => {}
        }
    }
    Some((first, last))
}

/// The last moment at or before a time that is noted. Files are listed anew if some were merged
/// meanwhile.
///
/// # Errors
/// `restore_invalid_version` for a time before anything that can be restored; those of reading
/// files.
pub(crate) async fn moment_at(
    backup: &Backup,
    contents: &mut Contents,
    time: u64,
) -> Result<Moment> {
    for _ in 0..LISTINGS {
        match moment_in(backup, contents, time).await {
            Err(error) if error == Error::file_not_found() => *contents = backup.contents().await?,
            found => return found,
        }
    }
    moment_in(backup, contents, time).await
}

async fn moment_in(backup: &Backup, contents: &Contents, time: u64) -> Result<Moment> {
    let mut best: Option<Moment> = None;
    let consider = |best: &mut Option<Moment>, moment: Moment| {
        if moment.time <= time && best.is_none_or(|best| best.version < moment.version) {
            *best = Some(moment);
        }
    };
    // Versions that are known to be later than that.
    let mut later = Version::MAX;
    for snapshot in &contents.snapshots {
        let (moment, version) = (snapshot.header.time_to, snapshot.header.to);
        consider(&mut best, Moment { time: moment, version });
        later = if moment > time { later.min(version) } else { later };
    }
    let mut unread = Vec::new();
    // Times ascend with versions, but not every file has any, and files overlap: one that begins
    // earlier may have a later moment than the one that was found, up to where it ends.
    for file in contents.logs.iter().rev() {
        if best.is_some_and(|best| file.to <= best.version + 1) {
            continue;
        }
        let moments = match moments_from(backup, file, time).await {
            Ok(moments) => moments,
            Err(error) if is_damage(&error) => {
                unread.push((file, error));
                continue;
            }
            Err(error) => return Err(error),
        };
        match moments {
            Moments::None => {}
            Moments::Later => later = later.min(file.from),
            Moments::Of(moments) => {
                let behind = moments.iter().find(|moment| moment.time > time);
                later = behind.map_or(later, |behind| later.min(behind.version));
                if let Some(moment) = moments.into_iter().rfind(|moment| moment.time <= time) {
                    consider(&mut best, moment);
                }
            }
        }
    }
    let Some(found) = best else {
        let what = format!("{}, which is before its first snapshot", show_time(time));
        return Err(unreachable_goal(backup, contents, &what).await);
    };
    check_none_is_unread(contents, &unread, (found.version, later))?;
    Ok(found)
}

/// What a file of the log says of times.
enum Moments {
    None,
    /// They are all later than the one that was asked for.
    Later,
    Of(Vec<Moment>),
}

async fn moments_from(backup: &Backup, file: &LogFile, time: u64) -> Result<Moments> {
    let header = backup.header(&file.name).await?;
    match header.time_from {
        0 => return Ok(Moments::None),
        from if from > time => return Ok(Moments::Later),
        _ => {}
    }
    let bytes = backup.target.get(&file.name).await?;
    log::read_moments(&mut backup.reader(&bytes, &file.name, Kind::Log)?).map(Moments::Of)
}

/// Refuses a moment if a file that can't be read may have a later one that isn't too late: its
/// versions lie between, and no other file has them.
fn check_none_is_unread(
    contents: &Contents,
    unread: &[(&LogFile, Error)],
    (found, later): (Version, Version),
) -> Result<()> {
    let is_read = |file: &&LogFile| unread.iter().all(|(other, _)| other.name != file.name);
    let readable = Contents {
        logs: contents.logs.iter().filter(is_read).cloned().collect(),
        ..Contents::default()
    };
    let is_hidden = |file: &LogFile| {
        file.to > found + 1 && file.from < later && readable.chain(file.from, file.to).1 < file.to
    };
    let Some((file, error)) = unread.iter().find(|(file, _)| is_hidden(file)) else {
        return Ok(());
    };
    Err(error.clone().with_detail(format!(
        "{}; it may be of the time that was asked for: the last version that is known to be of before is {found}, and what was \
         committed behind it can be asked for by its version",
        error.detail().unwrap_or(&file.name)
    )))
}
