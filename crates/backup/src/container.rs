//! A backup as a whole: its identity, and what a listing of its target says that it holds.
//!
//! Nothing but names and headers is read here, and the key is needed for none of it.

use crate::format::{
    BlockKind, FileBuilder, FileReader, Header, Key, Kind, MAX_HEADER_LEN, damaged, is_damage,
};
use crate::names;
use crate::ranges::{are_same, json_of_ranges, ranges_of_json, show_ranges};
use crate::target::Target;
use bytes::Bytes;
use plinth_env::Env;
use plinth_types::{Error, KeyRange, Result, Version};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long who puts an identity may take for it, in a directory, where it is seen before it is
/// whole.
const TORN: Duration = Duration::from_secs(5);

/// A backup in its target.
#[derive(Clone)]
pub struct Backup {
    pub(crate) env: Env,
    pub(crate) target: Arc<dyn Target>,
    pub(crate) id: [u8; 16],
    pub(crate) key: Option<Key>,
    /// The id of the database that it is of.
    database: String,
    /// What is backed up; `None` without the key of an encrypted backup.
    ranges: Option<Vec<KeyRange>>,
    is_sealed: bool,
}

impl Backup {
    /// The backup in `target`.
    ///
    /// # Errors
    /// `file_not_found` if there is none; `client_invalid_operation` if it is encrypted by another
    /// key; `file_corrupt` and `unsupported_operation` of its identity; those of the target.
    pub async fn open(env: &Env, target: Arc<dyn Target>, key: Option<Key>) -> Result<Self> {
        let bytes = target.get(names::IDENTITY).await.map_err(|error| {
            if error == Error::file_not_found() {
                error.with_detail(format!("there is no backup in {}", target.url()))
            } else {
                error
            }
        })?;
        let is_sealed = Header::decode(&bytes, names::IDENTITY)?.is_sealed;
        if key.is_some() && !is_sealed {
            let detail = format!("the backup in {} is not encrypted: give no key", target.url());
            return Err(Error::client_invalid_operation().with_detail(detail));
        }
        let mut reader =
            FileReader::new(&bytes, names::IDENTITY, Kind::Identity, &[0; 16], key.as_ref())?;
        let (id, mut database, mut ranges) = (reader.header.backup, String::new(), None);
        while let Some(block) = reader.next()? {
            let fields: serde_json::Value = serde_json::from_slice(&block.body).unwrap_or_default();
            match block.kind {
                BlockKind::Clear => {
                    database = fields["database"].as_str().unwrap_or_default().to_owned()
                }
                BlockKind::Secret if !is_sealed || key.is_some() => {
                    let wrong = || {
                        damaged(names::IDENTITY, 0, "ranges", "a list of ranges", "something else")
                    };
                    ranges = Some(ranges_of_json(&fields["ranges"]).ok_or_else(wrong)?);
                }
                _ => {}
            }
        }
        Ok(Self { env: env.clone(), target, id, key, database, ranges, is_sealed })
    }

    /// The backup of these ranges of the database with this id in `target`; made there if there is
    /// none. All its snapshots and its log are of these ranges, which are in order and don't
    /// overlap; see [`everything`](crate::everything).
    ///
    /// # Errors
    /// As [`Backup::open`]; `client_invalid_operation` if it is that of another database or of
    /// other ranges, or one is encrypted and the other not.
    pub async fn open_or_create(
        env: &Env,
        target: Arc<dyn Target>,
        key: Option<Key>,
        database: &str,
        ranges: &[KeyRange],
    ) -> Result<Self> {
        let is_torn = match Self::open_own(env, target.clone(), key.clone(), database, ranges).await
        {
            Err(error) if error == Error::file_not_found() => false,
            Err(error) if error == Error::file_corrupt() && is_bare(&*target).await? => true,
            opened => return opened,
        };
        let mut id = [0; 16];
        env.fill_random(&mut id);
        let mut file =
            FileBuilder::new(env, Kind::Identity, names::IDENTITY.into(), id, key.as_ref());
        let now = env.wall_clock().as_millis() as u64;
        (file.header.time_from, file.header.time_to) = (now, now);
        let fields = serde_json::json!({ "database": database }).to_string();
        file.block(BlockKind::Clear, 1, fields.as_bytes());
        // Keys are no secret of a backup that isn't sealed. In one that is another key is told by
        // this block at once.
        let fields = serde_json::json!({ "ranges": json_of_ranges(ranges) }).to_string();
        file.block(BlockKind::Secret, 1, fields.as_bytes());
        let contents = bytes::Bytes::from(file.finish());
        if is_torn {
            // Whoever began to put it may be at it still.
            env.sleep(TORN).await;
            match Self::open_own(env, target.clone(), key.clone(), database, ranges).await {
                Err(error) if error == Error::file_corrupt() => {
                    target.put(names::IDENTITY, contents).await?
                }
                opened => return opened,
            }
        } else if !target.create(names::IDENTITY, contents).await? {
            tracing::info!(url = target.url(), "another one has begun the backup at the same time");
        }
        // Of several who put one at the same time one did. Where a store knows no condition it is
        // the last one, which the lease finds out.
        let opened = Self::open(env, target, key).await?;
        opened.check_is_of(database, ranges).map(|()| opened)
    }

    /// The backup in `target`, to write it: it has to be of these ranges of this database.
    ///
    /// # Errors
    /// As [`Backup::open_or_create`]; `file_not_found` if there is none.
    pub(crate) async fn open_own(
        env: &Env,
        target: Arc<dyn Target>,
        key: Option<Key>,
        database: &str,
        ranges: &[KeyRange],
    ) -> Result<Self> {
        let backup = Self::open(env, target, key).await?;
        if backup.is_sealed && backup.key.is_none() {
            let detail = format!("the backup in {} is encrypted: give its key file", backup.url());
            return Err(Error::client_invalid_operation().with_detail(detail));
        }
        backup.check_is_of(database, ranges).map(|()| backup)
    }

    /// Whether it is a backup of these ranges of this database, which is what may be put into it.
    ///
    /// # Errors
    /// `client_invalid_operation`, with both in words, if it isn't.
    pub fn check_is_of(&self, database: &str, ranges: &[KeyRange]) -> Result<()> {
        let refuse = |what: String| Err(Error::client_invalid_operation().with_detail(what));
        let url = self.url();
        if self.database != database {
            return refuse(format!(
                "{url} holds a backup of another database ({}), not of this one ({database}); take a place of its own",
                self.database
            ));
        }
        match &self.ranges {
            Some(own) if !are_same(own, ranges) => refuse(format!(
                "{url} holds a backup of {}, not of {}; take a place of its own",
                show_ranges(own),
                show_ranges(ranges)
            )),
            _ => Ok(()),
        }
    }

    /// What is backed up: ranges in order; `None` without the key of an encrypted backup.
    pub fn ranges(&self) -> Option<&[KeyRange]> {
        self.ranges.as_deref()
    }

    /// Whether it is still the one that its target holds.
    ///
    /// # Errors
    /// `file_not_found` if it was deleted, or deleted and begun anew; those of the target.
    pub(crate) async fn check_is_there(&self) -> Result<()> {
        let header = self.header(names::IDENTITY).await;
        match header {
            Ok(header) if header.backup == self.id => Ok(()),
            Err(error) if error != Error::file_not_found() => Err(error),
            _ => {
                let detail =
                    format!("the backup in {} was deleted, or is another one now", self.url());
                Err(Error::file_not_found().with_detail(detail))
            }
        }
    }

    /// The id of the database that it is of.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Whether what it holds is encrypted.
    pub fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// Where it is, without secrets.
    pub fn url(&self) -> String {
        self.target.url()
    }

    /// # Errors
    /// `client_invalid_operation` if it is encrypted, and no key was given.
    pub(crate) fn needs_key(&self) -> Result<()> {
        if self.is_sealed && self.key.is_none() {
            let detail = format!("the backup in {} is encrypted; give its key file", self.url());
            return Err(Error::client_invalid_operation().with_detail(detail));
        }
        Ok(())
    }

    pub(crate) async fn put(&self, name: &str, contents: Vec<u8>) -> Result<()> {
        self.target.put(name, contents.into()).await
    }

    pub(crate) fn builder(&self, kind: Kind, name: String) -> FileBuilder {
        FileBuilder::new(&self.env, kind, name, self.id, self.key.as_ref())
    }

    pub(crate) fn reader<'b>(
        &self,
        bytes: &'b Bytes,
        name: &str,
        kind: Kind,
    ) -> Result<FileReader<'b>> {
        FileReader::new(bytes, name, kind, &self.id, self.key.as_ref()).map_err(|error| {
            if error != Error::client_invalid_operation() {
                return error;
            }
            // The identity has told that the key is the right one.
            damaged(name, 0, "seal of the file", "one by the backup's key for this name", "another")
        })
    }

    /// The header of a file.
    pub(crate) async fn header(&self, name: &str) -> Result<Header> {
        let begin = self.target.get_begin(name, MAX_HEADER_LEN).await?;
        Header::decode(&begin, name)
    }

    /// What it holds.
    ///
    /// # Errors
    /// Those of the target. A manifest that is damaged or missing stands among
    /// [`Contents::damaged`]; where the target couldn't be asked nothing is known of it, and that
    /// is an error.
    pub async fn contents(&self) -> Result<Contents> {
        let mut contents = Contents::default();
        let mut unfinished = BTreeMap::<String, u64>::new();
        let mut manifests = Vec::new();
        for object in self.target.list(names::SNAPSHOTS).await? {
            contents.bytes += object.len;
            let Some((snapshot, is_manifest)) = names::parse_snapshot(&object.name) else {
                continue;
            };
            *unfinished.entry(snapshot.to_owned()).or_default() += object.len;
            if is_manifest {
                manifests.push((snapshot.to_owned(), object.name));
            }
        }
        for (directory, name) in manifests {
            let stored = unfinished.remove(&directory).unwrap_or_default();
            match self.header(&name).await {
                Ok(header) => {
                    contents.snapshots.push(Snapshot { directory, manifest: name, header, stored })
                }
                Err(error) if is_of_the_file(&error) => contents.damaged.push((name, error)),
                Err(error) => return Err(error),
            }
        }
        contents.unfinished = unfinished.into_keys().collect();
        contents.snapshots.sort_by_key(|snapshot| (snapshot.header.to, snapshot.directory.clone()));
        for object in self.target.list(names::LOGS).await? {
            contents.bytes += object.len;
            contents.ends.extend(names::parse_end(&object.name));
            if let Some((from, to)) = names::parse_log(&object.name) {
                let begins = names::begins(&object.name);
                contents.logs.push(LogFile {
                    name: object.name,
                    from,
                    to,
                    begins,
                    stored: object.len,
                });
            }
        }
        contents.logs.sort_by_key(|log| (log.from, log.to));
        contents.ends.sort_unstable();
        Ok(contents)
    }
}

/// Whether a place has nothing of a backup but its identity: whoever put that got no further.
async fn is_bare(target: &dyn Target) -> Result<bool> {
    for prefix in [names::LEASES, names::SNAPSHOTS, names::LOGS] {
        if !target.list(prefix).await?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether an error says something of the file, not of the way to it.
fn is_of_the_file(error: &Error) -> bool {
    is_damage(error) || *error == Error::file_not_found()
}

/// What a backup holds.
#[derive(Clone, Default, Debug)]
pub struct Contents {
    /// Whole snapshots, by version.
    pub snapshots: Vec<Snapshot>,
    /// Directories of snapshots without a manifest: under way, or left by one that was interrupted.
    pub unfinished: Vec<String>,
    /// Files of the log, by version.
    pub logs: Vec<LogFile>,
    /// Where a log has ended, ascending: it has, or had, everything up to and with that version.
    pub ends: Vec<Version>,
    /// Manifests that can't be read, and why.
    pub damaged: Vec<(String, Error)>,
    /// Bytes of snapshots and log.
    pub bytes: u64,
}

/// A whole snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The directory of its files.
    pub directory: String,
    /// The name of its manifest.
    pub manifest: String,
    /// What the manifest says in the clear: versions, times, rows, bytes of rows.
    pub header: Header,
    /// Bytes of its files.
    pub stored: u64,
}

/// A file of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogFile {
    /// Its name.
    pub name: String,
    /// The first version that it speaks of.
    pub from: Version,
    /// The first version that it no longer speaks of.
    pub to: Version,
    /// Whether it is the first of its stream, or follows on another; `None` of those that the first
    /// programs put.
    pub begins: Option<bool>,
    /// Its bytes.
    pub stored: u64,
}

/// Versions of which no file of the log has anything although there are later ones, or were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The first of them.
    pub from: Version,
    /// The last.
    pub to: Version,
    /// Whether a file is missing; else the log was begun anew behind it, or nobody knows.
    pub is_missing: bool,
}

impl Contents {
    /// Files of the log that lead from `from` on, each beginning where one before ends or earlier,
    /// as far as they go, but no further than `to` takes. Gives them, and the first version that
    /// they don't speak of.
    pub fn chain(&self, from: Version, to: Version) -> (Vec<&LogFile>, Version) {
        let (mut chain, mut at) = (Vec::new(), from);
        let mut files = self.logs.iter().peekable();
        while at < to {
            // The longest of those that go on here: a merged file, or one that somebody else wrote
            // besides.
            let mut best: Option<&LogFile> = None;
            while let Some(file) = files.next_if(|file| file.from <= at) {
                if file.to > at && best.is_none_or(|best| file.to > best.to) {
                    best = Some(file);
                }
            }
            let Some(file) = best else { break };
            chain.push(file);
            at = file.to;
        }
        (chain, at)
    }

    /// The versions that the database can be restored to: first and last of each stretch,
    /// ascending. Stretches may overlap.
    pub fn restorable(&self) -> Vec<(Version, Version)> {
        let mut stretches: Vec<(Version, Version)> = Vec::new();
        for snapshot in &self.snapshots {
            let Some((from, to)) = self.reach(snapshot) else { continue };
            match stretches.last_mut() {
                Some(last) if last.1 >= from => last.1 = last.1.max(to),
                _ => stretches.push((from, to)),
            }
        }
        stretches
    }

    /// The gap behind this version, the last that can be restored of a stretch, if there are later
    /// files, or if there were when the log ended.
    pub fn gap_behind(&self, last: Version) -> Option<Gap> {
        let mut later = self.logs.iter().filter(|log| log.from > last + 1);
        let next = later.next();
        let end = self.ends.iter().copied().find(|end| *end > last);
        if let Some(end) = end.filter(|end| next.is_none_or(|next| *end < next.from)) {
            return Some(Gap { from: last + 1, to: end, is_missing: true });
        }
        let next = next?;
        let mut alike = later.take_while(|log| log.from == next.from).chain([next]);
        Some(Gap {
            from: last + 1,
            to: next.from - 1,
            is_missing: alike.all(|log| log.begins == Some(false)),
        })
    }

    /// The versions that a snapshot can be brought to with the log that is there.
    pub fn reach(&self, snapshot: &Snapshot) -> Option<(Version, Version)> {
        let (from, to) = (snapshot.header.from, snapshot.header.to);
        let (_, end) = self.chain(from + 1, Version::MAX);
        (end > to).then(|| (to, end - 1))
    }
}
