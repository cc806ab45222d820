//! Opening a log that was left in whatever state.
//!
//! 1. Every record is read and compared with the one before it, until one isn't there.
//! 2. If anything behind that place says that the missing record had been durable, it is damage:
//!    the start stops. Otherwise it is the torn tail of writes that were never acknowledged.
//! 3. The tail is overwritten with zeros, and segments that lie wholly in it are removed, last
//!    first.
//! 4. Records above the last one known durable are written once more before they are synced: the
//!    operating system may hold them in memory and believe them written although an earlier sync
//!    failed, and would then sync nothing.
//!
//! The first two steps read, the others write, and between them whoever opens the log may say that
//! nothing is to be changed. Only after all of that has been synced is anything appended. A crash
//! at any instant of it leaves a log that the next start handles in the same way.
#![deny(clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use plinth_env::{Env, Open};
use plinth_format::{Corruption, Flaw, Identity};
use plinth_types::{Version, probe};

use crate::config::LogConfig;
use crate::failure::{LogError, LogResult};
use crate::findings::{CutTail, Findings, Recovery};
use crate::format::mark::mark_seed;
use crate::format::{Kind, RECORDS_START};
use crate::frame::BLOCK;
use crate::history::History;
use crate::landmarks::Landmarks;
use crate::link::{Link, Popped};
use crate::marks::Marks;
use crate::segment::{check_owner, segment_path, unfinished_path};
use crate::shared::{Before, Commits, Kept, Start};
use crate::supply::{Next, Prepared, Upkeep, adopt_spares};
use crate::walk::{Station, Step, Surroundings, Survey, Walk, survey_files};

const FIRST: &str = "there is a first record";
/// How much is written at once when a tail is overwritten.
const PIECE: u64 = 1 << 20;

/// A log ready to be written to.
pub(crate) struct Recovered {
    pub(crate) start: Start,
    /// Up to where in the last segment old bytes may follow the last record.
    pub(crate) dirty: u64,
    /// All but the term, which is that of the last entry.
    pub(crate) recovery: Recovery,
    /// The opening before this one.
    pub(crate) opening: u32,
}

/// Brings the log in `dir` into order, once there is permission to change it.
pub(crate) async fn recover<F: Future<Output = LogResult<()>>>(
    env: &Env,
    dir: &Path,
    identity: &Identity,
    config: &LogConfig,
    commits: Commits,
    permission: impl FnOnce(Findings) -> F,
) -> LogResult<Recovered> {
    let files =
        survey_files(env, dir, (Open::Write, &config.keys), config.replays_torn_tail()).await?;
    if files.directory.segments.is_empty() {
        return Err(LogError::Missing(format!("no log in {}", dir.display())));
    }
    check_files(&files, identity, config)?;
    let mut walk = Walk::new(files.stations, files.mark.sequence);
    let mut read = read_all(&mut walk).await?;
    let Some(link) = walk.link.clone() else {
        return Err(walk.blame(read.stopped).await?.into());
    };
    let survey = walk.survey().await?;
    if survey.durable_sequence > link.sequence {
        return Err(walk.blame(read.stopped).await?.into());
    }
    let first = read.kept.front().expect(FIRST);
    let (serial, gone) = (first.segment.header.serial, first.before.version);
    let first_index = first.before.index + 1;
    if let Some(problem) = check_beginning(dir, serial, gone, &link.memory.popped) {
        return Err(problem.into());
    }

    let (lease, popped) = (link.memory.lease, BTreeMap::clone(&link.memory.popped));
    permission(Findings { landmarks: std::mem::take(&mut read.landmarks), lease, popped }).await?;
    remove_unfinished(env, dir, &files.directory.unfinished).await?;
    // The process before may have been killed between giving a file its name and making that
    // durable.
    env.files().sync_dir(dir).await?;
    let cut_tail = cut(env, dir, &mut walk, &survey, &read.stopped).await?;
    write_again(&mut walk, &read).await?;
    let upkeep = Upkeep {
        next: adopt_next(env, dir, config, &mut walk).await?,
        spares: adopt_spares(env, dir, &files.directory.spares, &config.keys).await?,
        ..Upkeep::default()
    };
    let last = read.kept.back().expect(FIRST);
    last.segment.open_lanes(env, config.syncs_in_flight).await?;
    let known = link.committed.max(files.mark.committed);
    read.history.commit_version(known);
    read.history.commit_index(link.memory.vote.commit);
    let recovery = Recovery {
        term: link.term,
        first_index,
        last_index: link.index,
        last_version: link.version,
        known_committed: read.history.committed().version,
        lease: link.memory.lease,
        cut_tail,
        spoilt_note: files.spoilt_note,
    };
    let opening = link.opening.max(survey.opening);
    // What follows the last record in its block is of unknown origin in a recycled file.
    let dirty = last.end.next_multiple_of(BLOCK);
    let segments = std::mem::take(&mut read.kept);
    let marks = Marks::open(env, dir, mark_seed(identity, config.log_id), files.mark).await?;
    let start = Start { segments, link, history: read.history, commits, upkeep, marks };
    Ok(Recovered { start, dirty, recovery, opening })
}

/// Everything about the files is as it should be, as far as that can be told without reading
/// records.
fn check_files(files: &Surroundings, identity: &Identity, config: &LogConfig) -> LogResult<()> {
    for station in &files.stations {
        check_owner(&station.segment, identity, config.log_id)?;
        if let Some(id) = station.segment.cipher.locked() {
            return Err(LogError::Locked(config.keys.lack(&station.segment.name(), id)));
        }
    }
    match files.problems.first() {
        Some(problem) => Err(problem.clone().into()),
        None => Ok(()),
    }
}

/// What there is to read.
struct Everything {
    kept: VecDeque<Kept>,
    history: History,
    landmarks: Landmarks,
    /// Records not known durable by the end: number, station, offset.
    unsure: VecDeque<(u64, usize, u64)>,
    stopped: Corruption,
}

/// Removes what was being made when the log was open last.
async fn remove_unfinished(env: &Env, dir: &Path, serials: &[u64]) -> LogResult<()> {
    for serial in serials {
        match env.files().remove(unfinished_path(dir, *serial)).await {
            // A task of a log that was dropped a moment ago, and could not finish it either, has
            // removed it.
            Err(error) if error.is_not_found() => {}
            removed => removed?,
        }
    }
    Ok(())
}

async fn read_all(walk: &mut Walk) -> LogResult<Everything> {
    let (mut kept, mut unsure) = (VecDeque::<Kept>::new(), VecDeque::new());
    let mut before = Before::default();
    let mut history = History::beginning(Link::origin());
    let mut landmarks = Landmarks::default();
    loop {
        let Step { station, offset, header, .. } = match walk.next().await? {
            Ok(step) => step,
            Err(stopped) => return Ok(Everything { kept, history, landmarks, unsure, stopped }),
        };
        let link = walk.link.as_ref().expect("there was a step");
        let (index, term, version) = (header.index, header.term, header.version);
        if kept.len() <= station {
            if kept.is_empty() {
                before = Before { sequence: header.sequence - 1, index, term, version };
                // In front of the first record: what that names may turn out to be void.
                history =
                    History::beginning(Link { sequence: header.sequence - 1, ..link.clone() });
            }
            landmarks.segment(&header);
            let segment = walk.station(station).segment.clone();
            kept.push_back(Kept { segment, before, last: 0, end: RECORDS_START, leaving: false });
        }
        match header.kind {
            Kind::Entry(kind) => {
                history.push(link.clone(), kind);
                landmarks.entry(&header);
            }
            Kind::Rewind if history.rewind(&header, &link.memory) => {
                kept.iter_mut().for_each(|kept| kept.before.rewind(&header));
                landmarks.rewind(&header);
            }
            Kind::Rewind => {
                let found =
                    format_args!("entry {index} of term {term} at version {version}").to_string();
                let flaw = Flaw::new(
                    "entry that a rewind goes back to",
                    "one that is not committed yet",
                    found,
                );
                return Err(flaw.at(&walk.station(station).segment.name(), offset).into());
            }
            Kind::State | Kind::Vote => {}
        }
        // So that no more entries wait to be known committed than there were at the time.
        history.commit_version(link.committed);
        history.commit_index(link.memory.vote.commit);
        let kept = kept.back_mut().expect("one was pushed");
        (kept.last, kept.end) = (header.sequence, walk.offset);
        before = Before { sequence: header.sequence, index, term, version };
        let durable = link.durable_sequence.max(walk.marked);
        unsure.push_back((header.sequence, station, offset));
        while unsure.front().is_some_and(|(sequence, ..)| *sequence <= durable) {
            unsure.pop_front();
        }
    }
}

/// Every consumer's next entry must still be there. `serial` is that of the first segment, `gone`
/// the version of the last entry before it.
pub(crate) fn check_beginning(
    dir: &Path,
    serial: u64,
    gone: Version,
    popped: &Popped,
) -> Option<Corruption> {
    let (name, popped) = popped.iter().find(|(_, popped)| **popped < gone)?;
    let missing = segment_path(dir, serial.saturating_sub(1)).display().to_string();
    let expected = format!("entries after version {popped}, which consumer {name} needs");
    let flaw =
        Flaw::new("a segment file is missing", expected, format_args!("none up to version {gone}"));
    Some(flaw.at(&missing, 0))
}

/// Overwrites the torn tail, if there is one, in the segment in which the log ends, and removes the
/// segments after it that are not empty.
async fn cut(
    env: &Env,
    dir: &Path,
    walk: &mut Walk,
    survey: &Survey,
    stopped: &Corruption,
) -> LogResult<Option<CutTail>> {
    let tail = walk.tail(survey, stopped);
    let (at, offset) = (walk.at, walk.offset);
    for later in (at + 1..walk.stations.len()).rev() {
        let end = survey.end_of_tail(later - at, walk.station(later));
        let is_next_and_empty = later == at + 1 && end == RECORDS_START;
        if is_next_and_empty {
            continue;
        }
        probe!("log: segment behind the end removed");
        let station = walk.stations.remove(later);
        env.files().remove(segment_path(dir, station.segment.header.serial)).await?;
        env.files().sync_dir(dir).await?;
    }
    let end = survey.end_of_tail(0, walk.station(at));
    overwrite(walk.station(at), offset, end).await?;
    tail.iter().for_each(|_| probe!("log: torn tail cut"));
    Ok(tail)
}

async fn overwrite(station: &Station, offset: u64, end: u64) -> LogResult<()> {
    let zeros = vec![0; usize::try_from((end - offset).min(PIECE)).unwrap_or(0)];
    let mut at = offset;
    while at < end {
        let piece = (end - at).min(PIECE);
        let some = usize::try_from(piece).ok().and_then(|piece| zeros.get(..piece));
        station.segment.file.write_all_at(at, some.unwrap_or(&zeros)).await?;
        at += piece;
    }
    if end > offset {
        station.segment.file.sync_data().await?;
    }
    Ok(())
}

/// Writes the records above the last one known durable once more, and syncs them.
async fn write_again(walk: &mut Walk, read: &Everything) -> LogResult<()> {
    let Some((_, first, start)) = read.unsure.front().copied() else { return Ok(()) };
    probe!("log: records not known durable written again");
    let mut begin = start;
    for (kept, station) in read.kept.iter().zip(&mut walk.stations).skip(first) {
        let mut at = begin;
        while at < kept.end {
            let piece = station.scanner.bytes(at, (kept.end - at).min(PIECE)).await?;
            if piece.is_empty() {
                break;
            }
            station.segment.file.write_all_at(at, &piece).await?;
            at += u64::try_from(piece.len()).expect("no longer than was asked for");
        }
        station.segment.file.sync_data().await?;
        begin = RECORDS_START;
    }
    Ok(())
}

/// A segment that was made and not used yet.
async fn adopt_next(env: &Env, dir: &Path, config: &LogConfig, walk: &mut Walk) -> LogResult<Next> {
    if walk.stations.len() <= walk.at + 1 {
        return Ok(Next::None);
    }
    let station = walk.stations.pop().expect("there is one behind the last");
    if station.segment.cipher.is_outdated(&config.keys) {
        probe!("log: unused segment of another key removed");
        env.files().remove(segment_path(dir, station.segment.header.serial)).await?;
        env.files().sync_dir(dir).await?;
        return Ok(Next::None);
    }
    probe!("log: unused segment adopted");
    station.segment.open_lanes(env, config.syncs_in_flight).await?;
    Ok(Next::Ready(Prepared { segment: Arc::clone(&station.segment), dirty: RECORDS_START }))
}
