//! `check` reads a whole database directory and reports all damage; `salvage` copies out what can be read.
//!
//! Neither changes anything in the directory, and both take its lock, so that nobody writes meanwhile.

use crate::batch::{entry_mutations, internal_request};
use crate::config::{Creation, NodeConfig};
use crate::identity::{self, EngineKind};
use crate::node::Node;
use crate::store::tables_path;
use plinth_env::Env;
use plinth_log::{EntryKind, Problem, Salvage, Salvaged};
use plinth_storage::{Loader, MemoryStorage, Storage, checkpoint, ssd};
use plinth_types::mutation::Mutations;
use plinth_types::system::SYSTEM_END;
use plinth_types::{
    Bytes, Error, KeySelector, KeySpace, MutationList, MutationType, RangeRead, Result, Version,
};
use std::path::Path;

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
    /// The unfinished end of the log, if it has one: no damage, but what a crash leaves; opening cuts it off.
    pub torn_tail: Option<String>,
    /// Everything that is damaged.
    pub problems: Vec<Problem>,
}

/// Verifies every checksum in the database in `dir`.
///
/// # Errors
/// `lock_file_failure` if it is open; `file_not_found` if there is no database; errors of files. Damage is not
/// an error here: it stands in the report.
pub async fn check(env: &Env, dir: &Path) -> Result<CheckReport> {
    let _lock = lock(env, dir).await?;
    let mut report = CheckReport::default();
    let identity = match identity::read(env, dir).await {
        Ok(identity) => identity,
        Err(error) => {
            report.problems.push(whole_file(dir.join(identity::FILE_NAME).display().to_string(), &error));
            None
        }
    };
    match plinth_log::verify(env, dir.join("log")).await {
        Ok(log) => {
            report.log_records = log.records;
            report.log_bytes = log.bytes;
            report.torn_tail = log
                .torn_tail
                .map(|tail| format!("{} from offset {}: {}", tail.file, tail.offset, tail.reason));
            report.problems.extend(log.problems);
        }
        Err(error) => report.problems.push(whole_file(dir.join("log").display().to_string(), &error)),
    }
    if is_ssd(env, dir).await? {
        let ids = identity.map(|identity| storage_ids(identity.ids));
        match ssd::verify_ssd(env, &tables_path(dir), ids).await {
            Ok(tables) => {
                report.tables = tables.tables;
                report.table_rows = tables.rows;
                report.table_bytes = tables.bytes;
                report.problems.extend(tables.problems.into_iter().map(from_storage));
            }
            Err(error) => {
                report.problems.push(whole_file(tables_path(dir).display().to_string(), &error));
            }
        }
        return Ok(report);
    }
    match checkpoint::verify(env, &dir.join("checkpoint")).await {
        Ok(checkpoints) => {
            report.checkpoint_rows = checkpoints.rows;
            report.checkpoint_bytes = checkpoints.bytes;
            report.problems.extend(checkpoints.problems.into_iter().map(from_storage));
        }
        Err(error) => report.problems.push(whole_file(dir.join("checkpoint").display().to_string(), &error)),
    }
    Ok(report)
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
    /// What could not be read.
    pub problems: Vec<Problem>,
}

/// Copies what can be read of the damaged database in `dir` into a new one in `out`.
///
/// # Errors
/// `lock_file_failure` if `dir` is open; `client_invalid_operation` if `out` holds anything; errors of files.
pub async fn salvage(env: &Env, dir: &Path, out: &Path) -> Result<SalvageReport> {
    let _lock = lock(env, dir).await?;
    let mut report = SalvageReport::default();
    if is_ssd(env, dir).await? {
        let config =
            NodeConfig { creation: Creation::Always, engine: EngineKind::Ssd, ..NodeConfig::default() };
        let node = Node::open(env, out, config).await?;
        let version = salvage_tables(env, dir, &node, &mut report).await?;
        salvage_log(env, dir, version, &mut report, &Destination::Node(&node)).await?;
        report.rows = node.leader.replica.storage.count();
        node.close().await?;
        return Ok(report);
    }
    let (storage, version) = salvage_checkpoint(env, dir, &mut report).await?;
    salvage_log(env, dir, version, &mut report, &Destination::Index(&storage)).await?;
    let config = NodeConfig { creation: Creation::Always, ..NodeConfig::default() };
    let node = Node::open(env, out, config).await?;
    copy(&storage, &node, &mut report).await?;
    node.close().await?;
    Ok(report)
}

async fn is_ssd(env: &Env, dir: &Path) -> Result<bool> {
    env.files().exists(tables_path(dir)).await
}

fn storage_ids(ids: plinth_log::Identity) -> checkpoint::Identity {
    checkpoint::Identity { cluster_id: ids.cluster_id, node_id: ids.node_id }
}

/// Plays the tables into the new database, the oldest first: they may be more than memory holds.
async fn salvage_tables(env: &Env, dir: &Path, node: &Node, report: &mut SalvageReport) -> Result<Version> {
    let mut salvage = ssd::SsdSalvage::open(env, &tables_path(dir)).await?;
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
    report.problems.extend(salvage.problems().into_iter().map(from_storage));
    Ok(salvage.version())
}

async fn commit(node: &Node, mutations: MutationList) -> Result<()> {
    let version = node.leader.replica.newest();
    node.leader.queue.submit(internal_request(mutations, version)).await.map(drop)
}

/// What takes the batches of a damaged log.
enum Destination<'a> {
    /// An index in memory, which is copied later.
    Index(&'a MemoryStorage),
    /// The new database itself.
    Node(&'a Node),
}

impl Destination<'_> {
    async fn take(&self, version: Version, mut mutations: Mutations<'_>) -> Result<()> {
        match self {
            Self::Index(storage) => {
                storage.apply(version, &mut mutations, None);
                storage.publish(version);
                storage.forget_before(version, usize::MAX);
                Ok(())
            }
            Self::Node(node) => {
                let mut list = MutationList::new();
                mutations.for_each(|mutation| list.push(mutation.kind, mutation.param1, mutation.param2));
                commit(node, list).await
            }
        }
    }
}

async fn lock(env: &Env, dir: &Path) -> Result<plinth_env::DirLock> {
    if !env.files().exists(dir.join("log")).await?
        && !env.files().exists(dir.join(identity::FILE_NAME)).await?
    {
        return Err(Error::file_not_found().with_detail(format!("{} holds no database", dir.display())));
    }
    env.files().lock(dir.join("LOCK")).await
}

async fn salvage_checkpoint(
    env: &Env,
    dir: &Path,
    report: &mut SalvageReport,
) -> Result<(MemoryStorage, Version)> {
    let path = dir.join("checkpoint");
    if !env.files().exists(&path).await? {
        return Ok((MemoryStorage::new(0), 0));
    }
    let Some((version, file)) = checkpoint::list(env, &path).await?.pop() else {
        return Ok((MemoryStorage::new(0), 0));
    };
    let mut rows = checkpoint::Salvage::open(env, &file).await?;
    let mut loader = Loader::new(version);
    while let Some(found) = rows.next().await? {
        match found {
            checkpoint::Salvaged::Rows(rows) => rows.iter().for_each(|(key, value)| loader.push(key, value)),
            checkpoint::Salvaged::Damage(problem) => report.problems.push(from_storage(problem)),
        }
    }
    Ok((loader.finish(), version))
}

async fn salvage_log(
    env: &Env,
    dir: &Path,
    from: Version,
    report: &mut SalvageReport,
    destination: &Destination<'_>,
) -> Result<()> {
    let mut salvage = match Salvage::open(env, dir.join("log")).await {
        Ok(salvage) => salvage,
        Err(error) if error == Error::file_not_found() => return Ok(()),
        Err(error) => return Err(error),
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
        report.missing_batches += last_index.map_or(0, |last: u64| entry.index.saturating_sub(last + 1));
        last_index = Some(entry.index);
        if entry.version <= from || entry.kind != EntryKind::Mutations {
            continue;
        }
        match entry_mutations(&entry.body) {
            Ok(mutations) => {
                destination.take(entry.version, Mutations::of(&mutations)).await?;
                report.batches += 1;
            }
            Err(error) => report.problems.push(whole_file(format!("log entry {}", entry.index), &error)),
        }
    }
    Ok(())
}

/// Bytes of rows that go into one transaction.
const COPY_BYTES: usize = 1 << 20;

async fn copy(storage: &MemoryStorage, node: &Node, report: &mut SalvageReport) -> Result<()> {
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

fn whole_file(file: String, error: &Error) -> Problem {
    let found = error.detail().unwrap_or(error.description()).to_string();
    Problem { file, offset: 0, what: "file".into(), expected: "one that can be read".into(), found }
}

fn from_storage(problem: checkpoint::Problem) -> Problem {
    let checkpoint::Problem { file, offset, what, expected, found } = problem;
    Problem { file, offset, what, expected, found }
}
