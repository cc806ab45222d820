//! `check` reads a whole database directory and reports all damage; `salvage` copies out what can
//! be read.
//!
//! Neither changes anything in the directory, and both take its lock, so that nobody writes
//! meanwhile.

use crate::batch::{entry_mutations, internal_request};
use crate::config::{Creation, NodeConfig};
use crate::creation::{Found, look, members_of, no_database};
use crate::directory::{LOCK, checkpoint_path, generation_in, generation_path, log_path};
use crate::failure::{NodeError, NodeResult};
use crate::identity::{self, DirectoryIdentity, EngineKind};
use crate::node::Node;
use crate::opening::{disagreement, foreign_log};
use crate::store::tables_path;
use plinth_env::{DirLock, Env};
use plinth_format::crypt::KeyId;
use plinth_format::{Corruption, Identity, Keys};
use plinth_log::{Findings, LogError, Salvage, Salvaged};
use plinth_replication::NodeId;
use plinth_storage::{Loader, MemoryStorage, Reader, StorageError, Writer, checkpoint, ssd};
use plinth_types::mutation::Mutations;
use plinth_types::system::SYSTEM_END;
use plinth_types::{
    Bytes, KeySelector, KeySpace, LogPosition, MutationList, MutationType, RangeRead, Version,
};
use std::path::{Path, PathBuf};

/// What [`check`] found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CheckReport {
    /// Whole records of the log.
    pub log_records: u64,
    /// Their bytes.
    pub log_bytes: u64,
    /// Rows of the checkpoints.
    pub checkpoint_rows: u64,
    /// Their bytes on disk.
    pub checkpoint_bytes: u64,
    /// Tables of the engine `ssd`.
    pub tables: u64,
    /// Their rows; overwritten ones that were not merged yet count again.
    pub table_rows: u64,
    /// Their bytes on disk.
    pub table_bytes: u64,
    /// The unfinished end of the log, if it has one: no damage, but what a crash leaves; opening
    /// cuts it off.
    pub torn_tail: Option<String>,
    /// One of the log's two notes of how far it is durable, if it can't be read. Opening goes by
    /// the other one and writes this one anew. But with an unfinished end nobody can tell whether
    /// that was acknowledged.
    pub spoilt_note: Option<Corruption>,
    /// The keys without which it was not looked into all of it. There checksums hold, if nothing
    /// else is said, and nobody knows more.
    pub locked: Vec<String>,
    /// Which node of a cluster it is, if it is one. Why it does not go on as that, if its peers'
    /// file is what is wrong, is told by the crate `peers`.
    pub member: Option<NodeId>,
    /// Everything that is damaged.
    pub problems: Vec<Corruption>,
}

impl CheckReport {
    fn note_locked(&mut self, keys: &[KeyId]) {
        self.locked.extend(keys.iter().map(ToString::to_string));
        self.locked.sort();
        self.locked.dedup();
    }
}

/// Verifies every checksum in the database in `dir`, and that it would open with every row.
///
/// # Errors
/// `Missing` if there is no database; those of files, also if it is open. Damage is not an error
/// here: it stands in the report.
pub async fn check(env: &Env, dir: &Path) -> NodeResult<CheckReport> {
    check_with(env, dir, &Keys::none()).await
}

/// [`check`] of a database that is encrypted. Without its keys checksums are compared, and nothing
/// else.
///
/// # Errors
/// As those of [`check`].
pub async fn check_with(env: &Env, dir: &Path, keys: &Keys) -> NodeResult<CheckReport> {
    let place = Place { keys: keys.clone(), ..Place::of(env, dir).await? };
    let mut report = CheckReport::default();
    report.problems.extend(place.problem());
    report.member = place.member();
    report.problems.extend(place.members_problem(env).await);
    let Some(generation) = &place.generation else { return Ok(report) };
    let log = check_log(env, &place, generation, &mut report).await;
    let engine = place.engine(env).await?;
    let stored = match engine {
        EngineKind::Memory => check_checkpoints(env, &place, generation, &mut report).await,
        EngineKind::Ssd => check_tables(env, &place, generation, &mut report).await,
    };
    // What is damaged may be what would tell how the parts belong together.
    let is_known = report.problems.is_empty() && report.locked.is_empty();
    if let Some(findings) = log.filter(|_| is_known) {
        report.problems.extend(disagreement(generation, engine, stored, &findings));
    }
    Ok(report)
}

async fn check_log(
    env: &Env,
    place: &Place,
    generation: &Path,
    report: &mut CheckReport,
) -> Option<Findings> {
    let path = log_path(generation);
    let log = match plinth_log::verify(env, &path, &place.keys).await {
        Ok(log) => log,
        Err(error) => {
            report.problems.push(whole_file(path.display().to_string(), &error.into()));
            return None;
        }
    };
    report.note_locked(&log.locked);
    report.log_records = log.records;
    report.log_bytes = log.bytes;
    report.torn_tail = log
        .torn_tail
        .map(|tail| format!("{} from offset {}: {}", tail.file, tail.offset, tail.reason));
    report.spoilt_note = log.spoilt_note;
    report.problems.extend(log.problems);
    if let (Ok(identity), Some(theirs)) = (&place.identity, log.identity) {
        report.problems.extend(foreign_log(&place.root, identity.ids, &path, theirs));
    }
    Some(log.findings)
}

/// Gives up to where in the log the tables have everything.
async fn check_tables(
    env: &Env,
    place: &Place,
    generation: &Path,
    report: &mut CheckReport,
) -> LogPosition {
    let path = tables_path(generation);
    match ssd::verify_ssd(env, &path, place.ids(), &place.keys).await {
        Ok(tables) => {
            report.note_locked(&tables.locked);
            report.tables = tables.tables;
            report.table_rows = tables.rows;
            report.table_bytes = tables.bytes;
            report.problems.extend(tables.problems);
            tables.at
        }
        Err(error) => {
            report.problems.push(whole_file(path.display().to_string(), &error.into()));
            LogPosition::default()
        }
    }
}

/// Gives up to where in the log the newest checkpoint has everything.
async fn check_checkpoints(
    env: &Env,
    place: &Place,
    generation: &Path,
    report: &mut CheckReport,
) -> LogPosition {
    let path = checkpoint_path(generation);
    match checkpoint::verify(env, &path, place.ids(), &place.keys).await {
        Ok(checkpoints) => {
            report.note_locked(&checkpoints.locked);
            report.checkpoint_rows = checkpoints.rows;
            report.checkpoint_bytes = checkpoints.bytes;
            report.problems.extend(checkpoints.problems);
            checkpoints.newest
        }
        Err(error) => {
            report.problems.push(whole_file(path.display().to_string(), &error.into()));
            LogPosition::default()
        }
    }
}

/// A database that is looked at, locked.
struct Place {
    root: PathBuf,
    /// What it says it is, or what is wrong with that.
    identity: NodeResult<DirectoryIdentity>,
    /// The generation that counts; without an identity the newest.
    generation: Option<PathBuf>,
    keys: Keys,
    _lock: Option<DirLock>,
}

impl Place {
    /// # Errors
    /// As those of [`check`].
    async fn of(env: &Env, dir: &Path) -> NodeResult<Self> {
        let env = &env.keeping_private();
        let mut identity = Self::identity(env, dir).await?;
        let mut lock = None;
        // A database that is damaged gets nothing written into it, not even a lock: then nobody has
        // it open.
        if identity.is_ok() || env.files().exists(dir.join(LOCK)).await? {
            lock = Some(env.files().lock(dir.join(LOCK)).await?);
            identity = Self::identity(env, dir).await?;
        }
        let generation = match &identity {
            Ok(identity) => Some(identity.generation),
            Err(error) if error.is_unreadable() => None,
            Err(_) => {
                env.files().list(dir).await?.iter().filter_map(|name| generation_in(name)).max()
            }
        };
        let generation = generation.map(|number| generation_path(dir, number));
        let (root, keys) = (dir.to_path_buf(), Keys::none());
        Ok(Self { root, identity, generation, keys, _lock: lock })
    }

    /// Outer: it can't be looked at, or there is no database.
    async fn identity(env: &Env, dir: &Path) -> NodeResult<NodeResult<DirectoryIdentity>> {
        match look(env, dir).await {
            Ok(Found::Database(identity)) => Ok(Ok(identity)),
            Ok(Found::Nothing | Found::Interrupted) => Err(no_database(dir)),
            Err(error) if error.is_damage() || error.is_unreadable() => Ok(Err(error)),
            Err(error) => Err(error),
        }
    }

    fn problem(&self) -> Option<Corruption> {
        let error = self.identity.as_ref().err()?;
        Some(whole_file(self.root.join(identity::FILE_NAME).display().to_string(), error))
    }

    fn member(&self) -> Option<NodeId> {
        let member = self.identity.as_ref().ok().map(|identity| identity.member);
        member.filter(|member| *member != 0)
    }

    /// What is wrong with what a member knows of the others.
    async fn members_problem(&self, env: &Env) -> Option<Corruption> {
        let identity = self.identity.as_ref().ok().filter(|identity| identity.member != 0)?;
        let error = members_of(env, &self.root, identity).await.err()?;
        let file = self.root.join(crate::cluster::FILE_NAME);
        Some(whole_file(file.display().to_string(), &error))
    }

    fn ids(&self) -> Option<Identity> {
        self.identity.as_ref().ok().map(|identity| identity.ids)
    }

    async fn engine(&self, env: &Env) -> NodeResult<EngineKind> {
        let Some(generation) = &self.generation else { return Ok(EngineKind::Memory) };
        match &self.identity {
            Ok(identity) => Ok(identity.engine),
            Err(_) if env.files().exists(tables_path(generation)).await? => Ok(EngineKind::Ssd),
            Err(_) => Ok(EngineKind::Memory),
        }
    }
}

/// What [`salvage`] brought out, and what it had to leave.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SalvageReport {
    /// Rows in the new database.
    pub rows: u64,
    /// Batches of commits that were read from the log.
    pub batches: u64,
    /// Batches known to be missing. What they wrote may be older than it was, or absent.
    pub missing_batches: u64,
    /// Whether it was a member of a cluster: others may have had commits that it never heard of,
    /// and some of its own may have been void.
    pub was_member: bool,
    /// What could not be read.
    pub problems: Vec<Corruption>,
}

/// Copies what can be read of the damaged database in `dir` into a new one in `out`.
///
/// # Errors
/// `Foreign` if `out` holds anything; those of files, also if `dir` is open.
pub async fn salvage(env: &Env, dir: &Path, out: &Path) -> NodeResult<SalvageReport> {
    salvage_with(env, dir, out, &Keys::none()).await
}

/// [`salvage`] of a database that is encrypted, into one that is, by the newest of these keys.
///
/// # Errors
/// As those of [`salvage`]; that of a key that is lacking.
pub async fn salvage_with(
    env: &Env,
    dir: &Path,
    out: &Path,
    keys: &Keys,
) -> NodeResult<SalvageReport> {
    let place = Place::of(env, dir).await?;
    let mut report =
        SalvageReport { was_member: place.member().is_some(), ..SalvageReport::default() };
    // Who the database is, a copy has no use for.
    let Some(dir) = &place.generation else { return place.identity.map(|_| report) };
    if place.engine(env).await? == EngineKind::Ssd {
        check_log_key(env, dir, keys).await?;
        let mut salvage = ssd::SsdSalvage::open(env, &tables_path(dir), keys).await?;
        let node = Node::open(env, out, destination(EngineKind::Ssd, keys)).await?;
        let version = salvage_tables(&mut salvage, &node, &mut report).await?;
        let from = (dir.as_path(), version, keys);
        salvage_log(env, from, &mut report, &mut Destination::Node(&node)).await?;
        report.rows = node.replica.storage.count();
        node.close().await?;
        return Ok(report);
    }
    let (mut storage, version) = salvage_checkpoint(env, dir, keys, &mut report).await?;
    let from = (dir.as_path(), version, keys);
    salvage_log(env, from, &mut report, &mut Destination::Index(&mut storage)).await?;
    let node = Node::open(env, out, destination(EngineKind::Memory, keys)).await?;
    copy(&storage, &node, &mut report).await?;
    node.close().await?;
    Ok(report)
}

/// How the new database is made.
fn destination(engine: EngineKind, keys: &Keys) -> NodeConfig {
    let mut config = NodeConfig { creation: Creation::Always, engine, ..NodeConfig::default() };
    config.set_keys(keys.clone());
    config
}

/// Whether the database in `dir` has its log encrypted; `None` if there is none.
///
/// # Errors
/// Those of files.
pub async fn is_encrypted(env: &Env, dir: &Path) -> NodeResult<Option<bool>> {
    let Ok(Found::Database(identity)) = look(env, dir).await else { return Ok(None) };
    let log = log_path(&generation_path(dir, identity.generation));
    Ok(Some(Salvage::look_at(env, &log, &Keys::none()).await?.is_encrypted()))
}

/// Whether the keys of the database in `dir`, if there is one, are all among these. What else may
/// be wrong with it is told by opening it.
///
/// # Errors
/// That of the log or the storage if one is lacking.
pub async fn check_keys(env: &Env, dir: &Path, keys: &Keys) -> NodeResult<()> {
    let Ok(Found::Database(identity)) = look(env, dir).await else { return Ok(()) };
    let generation = generation_path(dir, identity.generation);
    check_log_key(env, &generation, keys).await?;
    let opened = match identity.engine {
        EngineKind::Ssd => {
            ssd::SsdSalvage::open(env, &tables_path(&generation), keys).await.map(drop)
        }
        EngineKind::Memory => {
            match checkpoint::list(env, &checkpoint_path(&generation)).await?.pop() {
                Some((_, path)) => checkpoint::Salvage::open(env, &path, keys).await.map(drop),
                None => Ok(()),
            }
        }
    };
    match opened {
        Err(error @ StorageError::Locked(_)) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Nothing is begun if the log's key is lacking.
async fn check_log_key(env: &Env, generation: &Path, keys: &Keys) -> NodeResult<()> {
    match Salvage::open(env, log_path(generation), keys).await {
        Err(error @ LogError::Locked(_)) => Err(error.into()),
        // Whatever else is wrong with it is told when it is read.
        _ => Ok(()),
    }
}

/// Plays the tables into the new database, the oldest first: they may be more than memory holds.
async fn salvage_tables(
    salvage: &mut ssd::SsdSalvage,
    node: &Node,
    report: &mut SalvageReport,
) -> NodeResult<Version> {
    let mut gathered = MutationList::new();
    while let Some(list) = salvage.next().await? {
        gathered.append(&list);
        if gathered.as_bytes().len() >= COPY_BYTES {
            commit(node, std::mem::take(&mut gathered)).await?;
        }
    }
    if !gathered.is_empty() {
        commit(node, gathered).await?;
    }
    report.problems.extend(salvage.problems());
    Ok(salvage.version())
}

async fn commit(node: &Node, mutations: MutationList) -> NodeResult<()> {
    let version = node.replica.newest();
    node.submit_own(internal_request(mutations, version)).await.map(drop)
}

/// What takes the batches of a damaged log.
enum Destination<'a> {
    /// An index in memory, which is copied later.
    Index(&'a mut MemoryStorage),
    /// The new database itself.
    Node(&'a Node),
}

impl Destination<'_> {
    async fn take(&mut self, version: Version, mut mutations: Mutations<'_>) -> NodeResult<()> {
        match self {
            Self::Index(storage) => {
                let prepared = storage.prepare(&mut mutations.clone()).await?;
                storage.apply(prepared, LogPosition::without_log(version), &mut mutations, None);
                storage.publish(version);
                storage.forget_before(version, usize::MAX);
                Ok(())
            }
            Self::Node(node) => {
                let mut list = MutationList::new();
                mutations.for_each(|mutation| {
                    list.push(mutation.kind, mutation.param1, mutation.param2)
                });
                commit(node, list).await
            }
        }
    }
}

async fn salvage_checkpoint(
    env: &Env,
    dir: &Path,
    keys: &Keys,
    report: &mut SalvageReport,
) -> NodeResult<(MemoryStorage, Version)> {
    let Some((version, file)) = checkpoint::list(env, &checkpoint_path(dir)).await?.pop() else {
        return Ok((MemoryStorage::new(LogPosition::default()), 0));
    };
    let mut rows = checkpoint::Salvage::open(env, &file, keys).await?;
    let mut loader = Loader::new(LogPosition::without_log(version));
    while let Some(found) = rows.next().await? {
        match found {
            checkpoint::Salvaged::Rows(rows) => {
                rows.iter().for_each(|(key, value)| loader.push(key, value))
            }
            checkpoint::Salvaged::Damage(problem) => report.problems.push(problem),
        }
    }
    Ok((loader.finish(), version))
}

async fn salvage_log(
    env: &Env,
    (dir, from, keys): (&Path, Version, &Keys),
    report: &mut SalvageReport,
    destination: &mut Destination<'_>,
) -> NodeResult<()> {
    let mut salvage = match Salvage::open(env, log_path(dir), keys).await {
        Ok(salvage) => salvage,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut last_index = None;
    while let Some(found) = salvage.next().await? {
        let entry = match found {
            Salvaged::Problem(problem) => {
                report.problems.push(problem);
                continue;
            }
            Salvaged::Entry(entry) => entry,
        };
        report.missing_batches +=
            last_index.map_or(0, |last: u64| entry.index.saturating_sub(last + 1));
        last_index = Some(entry.index);
        if entry.version <= from || !entry.kind.has_mutations() {
            continue;
        }
        match entry_mutations(&entry.body) {
            Ok(mutations) => {
                destination.take(entry.version, Mutations::of(&mutations)).await?;
                report.batches += 1;
            }
            Err(error) => {
                report.problems.push(whole_file(format!("log entry {}", entry.index), &error))
            }
        }
    }
    Ok(())
}

/// Bytes of rows that go into one transaction.
const COPY_BYTES: usize = 1 << 20;

async fn copy(storage: &MemoryStorage, node: &Node, report: &mut SalvageReport) -> NodeResult<()> {
    let version = storage.newest();
    let mut read = RangeRead {
        begin: KeySelector::first_greater_or_equal(Bytes::new()),
        end: KeySelector::first_greater_or_equal(SYSTEM_END),
        limit: usize::MAX,
        target_bytes: COPY_BYTES,
        reverse: false,
    };
    loop {
        let part = storage.get_range(version, KeySpace::System, &read).await?;
        let Some((last, _)) = part.rows.last() else { return Ok(()) };
        let mut mutations = MutationList::new();
        part.rows.iter().for_each(|(key, value)| mutations.push(MutationType::Set, key, value));
        report.rows += part.rows.len() as u64;
        commit(node, mutations).await?;
        read.begin = KeySelector::first_greater_than(Bytes::copy_from_slice(last));
    }
}

fn whole_file(file: String, error: &NodeError) -> Corruption {
    let summary = error.summary();
    // What is known of this very file is told once.
    let of_file = summary.strip_prefix(&file).and_then(|rest| rest.strip_prefix(": expected "));
    let (expected, found) = of_file
        .and_then(|rest| rest.split_once(", found "))
        .unwrap_or(("one that can be read", &summary));
    let (expected, found) = (expected.to_owned(), found.to_owned());
    Corruption { file, offset: 0, what: "file".into(), expected, found }
}
