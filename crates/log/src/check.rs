//! Looking at a log that nobody has open: [`verify`] and [`Salvage`]. Neither changes anything.
//!
//! Both walk the log as opening does, but go on behind damage, at the next record that is whole in
//! itself. Both end where opening would cut the tail: what lies behind that was never acknowledged.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use plinth_env::{Env, Open};
use plinth_format::crypt::KeyId;
use plinth_format::{Corruption, Flaw, Identity, Keys, hex};
use plinth_types::Version;

use crate::entry::Entry;
use crate::failure::{LogError, LogResult};
use crate::findings::{CutTail, Findings};
use crate::format::{Kind, RecordHeader};
use crate::landmarks::Landmarks;
use crate::recovery::check_beginning;
use crate::shared::Before;
use crate::walk::{Step, Walk, survey_files};

/// What [`verify`] found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Whole records, the log's own included.
    pub records: u64,
    /// Bytes of whole records.
    pub bytes: u64,
    /// Segment files.
    pub segments: u64,
    /// The cluster and node whose log it is; `None` if no segment has a readable header.
    pub identity: Option<Identity>,
    /// What it holds, as opening tells it; of what there is no key for nothing.
    pub findings: Findings,
    /// The keys that would be needed to look into all of it. Checksums were compared without them.
    pub locked: Vec<KeyId>,
    /// Everything that is damaged or missing.
    pub problems: Vec<Corruption>,
    /// A torn tail, which is no damage: opening the log cuts it off. Its length is not looked for.
    pub torn_tail: Option<CutTail>,
    /// One of the two notes of how far the log is durable, if it can't be read: the other one
    /// counts, and the next goes to this place. If it was the newer one, a torn tail may be records
    /// that were acknowledged.
    pub spoilt_note: Option<Corruption>,
}

/// Reads the whole log in `dir` and reports everything that is wrong with it.
///
/// # Errors
/// `Missing` if there is no log; `ForeignFormat` if a newer program wrote it; errors
/// of files.
pub async fn verify(env: &Env, dir: impl AsRef<Path>, keys: &Keys) -> LogResult<Report> {
    let mut salvage = Salvage::look_at(env, dir.as_ref(), keys).await?;
    let mut report =
        Report { segments: salvage.segments, identity: salvage.identity(), ..Report::default() };
    report.locked = salvage.locked().into_iter().map(|(id, _)| id).collect();
    report.locked.dedup();
    let (mut landmarks, mut segment) = (Landmarks::default(), None);
    while let Some(found) = salvage.next_record().await? {
        match found {
            Found::Record(step) => {
                if segment.replace(step.station) != Some(step.station) {
                    landmarks.segment(&step.header);
                }
                match step.header.kind {
                    Kind::Entry(_) => landmarks.entry(&step.header),
                    Kind::Rewind => landmarks.rewind(&step.header),
                    Kind::State | Kind::Vote => {}
                }
                report.records += 1;
                report.bytes += step.header.span();
            }
            Found::Problem(problem) => report.problems.push(problem),
        }
    }
    report.torn_tail = salvage.torn_tail;
    report.spoilt_note = salvage.spoilt_note;
    if let Some(link) = &salvage.walk.link {
        let (lease, popped) = (link.memory.lease, BTreeMap::clone(&link.memory.popped));
        report.findings = Findings { landmarks, lease, popped };
    }
    Ok(report)
}

/// Something that a salvage met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Salvaged {
    /// An entry, whole. Its index tells whether any are missing before it.
    Entry(Entry),
    /// A place that can't be read, or isn't there.
    Problem(Corruption),
}

/// Reads every entry that is whole, past any damage.
pub struct Salvage {
    dir: PathBuf,
    walk: Walk,
    segments: u64,
    /// Serial of the first segment, and after what it begins.
    beginning: Option<(u64, Before)>,
    /// Problems met and not told yet, last first.
    problems: Vec<Corruption>,
    /// A record to be told after them.
    step: Option<Step>,
    /// The highest number of a record that anything says was durable, once that was looked for.
    durable_sequence: Option<u64>,
    torn_tail: Option<CutTail>,
    spoilt_note: Option<Corruption>,
    has_ended: bool,
    unsettled: Unsettled,
}

/// What was read and can't be told yet.
#[derive(Default)]
struct Unsettled {
    /// Entries that a rewind may still void.
    waiting: VecDeque<Entry>,
    /// The highest version known committed.
    committed: Version,
    /// A problem behind them.
    broken: Option<Corruption>,
}

enum Found {
    Record(Step),
    Problem(Corruption),
}

impl Salvage {
    /// Opens the log in `dir`, whosever it is.
    ///
    /// # Errors
    /// `Missing` if there is none; `ForeignFormat` if a newer program wrote it; `Locked` if a key
    /// is lacking; errors of files.
    pub async fn open(env: &Env, dir: impl AsRef<Path>, keys: &Keys) -> LogResult<Self> {
        let salvage = Self::look_at(env, dir.as_ref(), keys).await?;
        match salvage.locked().first() {
            Some((id, file)) => Err(LogError::Locked(keys.lack(file, *id))),
            None => Ok(salvage),
        }
    }

    /// The same for who wants to know which entries there are: where a key is lacking, their bodies
    /// are empty.
    ///
    /// # Errors
    /// As those of [`Salvage::open`], but for `Locked`.
    pub async fn look_at(env: &Env, dir: &Path, keys: &Keys) -> LogResult<Self> {
        let files = survey_files(env, dir, (Open::Read, keys), false).await?;
        if files.directory.segments.is_empty() {
            return Err(LogError::Missing(format!("no log in {}", dir.display())));
        }
        let mut problems = files.problems;
        let owners = files
            .stations
            .iter()
            .map(|station| (&station.segment, station.segment.header.identity));
        let first = owners.clone().next().map(|(_, identity)| identity);
        for (segment, identity) in owners {
            if Some(identity) != first {
                let expected = first.map(|first| ids(&first)).unwrap_or_default();
                let flaw = Flaw::new("cluster and node of the segment", expected, ids(&identity));
                problems.push(flaw.at(&segment.name(), 0));
            }
        }
        problems.reverse();
        Ok(Self {
            dir: dir.to_path_buf(),
            beginning: None,
            segments: files.directory.segments.len() as u64,
            has_ended: files.stations.is_empty(),
            walk: Walk::new(files.stations, files.mark.sequence),
            problems,
            step: None,
            durable_sequence: None,
            torn_tail: None,
            spoilt_note: files.spoilt_note,
            unsettled: Unsettled::default(),
        })
    }

    /// The cluster and node whose log it is; `None` if no segment has a readable header.
    pub fn identity(&self) -> Option<Identity> {
        self.walk.stations.first().map(|station| station.segment.header.identity)
    }

    /// Whether any of it is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.walk.stations.iter().any(|station| station.segment.cipher.key_id().is_some())
    }

    /// The keys that are lacking, each with a segment that needs it.
    fn locked(&self) -> Vec<(KeyId, String)> {
        let segments = self.walk.stations.iter().map(|station| &station.segment);
        segments.filter_map(|segment| Some((segment.cipher.locked()?, segment.name()))).collect()
    }

    /// The next whole entry, or the next problem; `None` at the end. Entries that a rewind has
    /// voided are left out; those of every kind are given, so that their indices tell whether any
    /// are missing.
    ///
    /// # Errors
    /// Errors of files.
    pub async fn next(&mut self) -> LogResult<Option<Salvaged>> {
        loop {
            let is_certain = |entry: &Entry| entry.version <= self.unsettled.committed;
            if let Some(entry) = self.unsettled.waiting.pop_front_if(|entry| is_certain(entry)) {
                return Ok(Some(Salvaged::Entry(entry)));
            }
            if self.unsettled.broken.is_some() || self.has_ended {
                // Nothing that is read from here on can void them.
                let entry = self.unsettled.waiting.pop_front().map(Salvaged::Entry);
                if let Some(found) =
                    entry.or_else(|| self.unsettled.broken.take().map(Salvaged::Problem))
                {
                    return Ok(Some(found));
                }
            }
            match self.next_record().await? {
                None => {
                    self.has_ended = true;
                    if self.unsettled.waiting.is_empty() {
                        return Ok(None);
                    }
                }
                Some(Found::Problem(problem)) => self.unsettled.broken = Some(problem),
                Some(Found::Record(Step { header, body, .. })) => {
                    if header.kind == Kind::Rewind {
                        self.unsettled.waiting.retain(|entry| entry.index <= header.index);
                    }
                    self.unsettled.committed = self.unsettled.committed.max(header.committed);
                    self.unsettled.waiting.extend(header.entry(body.or_empty()));
                }
            }
        }
    }

    async fn next_record(&mut self) -> LogResult<Option<Found>> {
        if let Some(problem) = self.problems.pop() {
            return Ok(Some(Found::Problem(problem)));
        }
        if let Some(step) = self.step.take() {
            return Ok(Some(Found::Record(step)));
        }
        if self.has_ended {
            return Ok(None);
        }
        let stopped = match self.walk.next().await? {
            Ok(step) => {
                let serial = self.walk.stations[step.station].segment.header.serial;
                let RecordHeader { kind, sequence, index, term, version, .. } = step.header;
                let before = Before { sequence: sequence - 1, index, term, version };
                let (_, beginning) = self.beginning.get_or_insert((serial, before));
                if kind == Kind::Rewind {
                    beginning.rewind(&step.header);
                }
                return Ok(Some(Found::Record(step)));
            }
            Err(stopped) => stopped,
        };
        if let Some(link) = self.walk.link.clone()
            && self.durable_sequence().await? <= link.sequence
        {
            self.has_ended = true;
            self.note_tail(stopped).await?;
            let missing = self.beginning.and_then(|(serial, gone)| {
                check_beginning(&self.dir, serial, gone.version, &link.memory.popped)
            });
            return Ok(missing.map(Found::Problem));
        }
        let stopped = self.walk.blame(stopped).await?;
        let mut skipped = Vec::new();
        self.step = self.walk.resume(&mut skipped).await?;
        self.has_ended = self.step.is_none();
        skipped.retain(|problem| *problem != stopped);
        skipped.reverse();
        self.problems = skipped;
        Ok(Some(Found::Problem(stopped)))
    }

    async fn durable_sequence(&mut self) -> LogResult<u64> {
        if let Some(known) = self.durable_sequence {
            return Ok(known);
        }
        let found = self.walk.survey().await?.durable_sequence;
        self.durable_sequence = Some(found);
        Ok(found)
    }

    /// Tells a torn tail from a clean end.
    async fn note_tail(&mut self, stopped: Corruption) -> LogResult<()> {
        let survey = self.walk.survey().await?;
        self.torn_tail = self.walk.tail(&survey, &stopped);
        Ok(())
    }
}

impl std::fmt::Debug for Salvage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Salvage").field("segments", &self.segments).finish()
    }
}

fn ids(identity: &Identity) -> String {
    format!("{} {}", hex(&identity.cluster_id), hex(&identity.node_id))
}
