//! How a database comes to be in a directory, and how what lies there is told from damage.
//!
//! The steps of a creation, each durable before the next, and what a crash behind it leaves:
//!
//! ```text
//!   1  DIR, then LOCK in it, locked        an empty directory, or LOCK alone
//!   2  CREATING                            that
//!   3  gen-1/: engine's files, a log       CREATING, and gen-1/ in parts: no entry, no table, no checkpoint
//!   4  MEMBERS, of a member of a cluster   CREATING, gen-1/ whole, MEMBERS or not
//!      IDENTITY                            CREATING, gen-1/ whole, IDENTITY or not
//!   5  all of it is opened and read
//!   6  CREATING goes                       a database
//!   7  the first entry
//! ```
//!
//! What is found, and what it means:
//!
//! | `IDENTITY` | `CREATING` | besides | it is |
//! |---|---|---|---|
//! | there | | anything | a database; its other generations, `CREATING` and `*.new` are leftovers |
//! | none | none | nothing | nothing yet: one may be made |
//! | none | whole | generations without anything in them | a creation that was interrupted, which is begun again |
//! | none | there | an entry, a table, a checkpoint, or damage | a database that lost `IDENTITY` |
//! | none | none | a generation, whole or being removed | a database that lost `IDENTITY` |
//! | none | | any other name | somebody else's |
//!
//! Always: a directory is written to only when it is ours, and then only what the table allows.
//! Leftovers go when everything that counts has been read and found whole. A database that lost a
//! file is refused and stays as it is.

use crate::cluster::{self as membership, Membership};
use crate::config::{Creation, NodeConfig};
use crate::directory::{
    Directory, LOCK, checkpoint_path, generation_in, generation_name, generation_path, is_removed,
    log_path, remove_generation,
};
use crate::events;
use crate::failure::{NodeError, NodeResult};
use crate::identity::{self, DIRECTORY_FORMAT, DirectoryIdentity, EngineKind};
use crate::space::RESERVE;
use crate::store::{Store, tables_path};
use plinth_env::{DirLock, Env};
use plinth_format::{Identity, Keys, checksum, put};
use plinth_log::{LocalLog, LogConfig, ReplicaLog, Salvage, Salvaged};
use plinth_storage::{checkpoint, ssd};
use plinth_types::{LogPosition, probe};
use std::path::Path;
use std::sync::Arc;

/// What the nodes of a cluster write before there is a directory: who founded it (crate `peers`).
/// Never touched here.
const CHARTER: [&str; 2] = ["CHARTER", "CHARTER.new"];

/// The name of the file that says that a database is being made here.
const CREATING: &str = "CREATING";

const MAGIC: &[u8; 8] = b"PLNTHNEW";
const MARKER_LEN: usize = 16;

/// What lies in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// Nothing, or no more than a lock.
    Nothing,
    /// A creation that was interrupted, without anything in it.
    Interrupted,
    Database(DirectoryIdentity),
}

/// Tells what lies in a directory, and changes nothing there.
///
/// # Errors
/// `Foreign` if it is somebody else's; `Damaged` if it is a database that lost its identity, or has
/// a damaged one; `NewerFormat` for another format; those of files.
pub(crate) async fn look(env: &Env, dir: &Path) -> NodeResult<Found> {
    if !env.files().exists(dir).await? {
        return Ok(Found::Nothing);
    }
    let names = env.files().list(dir).await?;
    if names.iter().any(|name| name == identity::FILE_NAME) {
        return Ok(Found::Database(identity::read(env, dir).await?));
    }
    let is_part = |name: &&String| {
        let is_file = **name == identity::unfinished_name() || *name == RESERVE;
        is_file
            || *name == membership::FILE_NAME
            || generation_in(name).is_some()
            || is_removed(name)
    };
    let (part, is_marked) = (names.iter().find(is_part), names.iter().any(|name| name == CREATING));
    if let Some(part) = part.filter(|_| !is_marked) {
        return Err(identity_is_missing(dir, part));
    }
    let is_ours = |name: &String| {
        is_part(&name)
            || matches!(&**name, LOCK | CREATING | "CREATING.new" | membership::UNFINISHED_NAME)
            || CHARTER.contains(&&**name)
    };
    if let Some(stranger) = names.iter().find(|name| !is_ours(name)) {
        let detail = format!(
            "{} is no Plinth database: it has no {} but holds {stranger:?}; name the directory of one, or, to make one, an empty or a new directory",
            dir.display(),
            identity::FILE_NAME
        );
        return Err(NodeError::Foreign(detail.into()));
    }
    if !is_marked {
        return Ok(Found::Nothing);
    }
    read_marker(env, dir).await?;
    for name in names.iter().filter(|name| generation_in(name).is_some()) {
        if let Some(held) = held_in(env, &dir.join(name)).await? {
            return Err(identity_is_missing(dir, &held));
        }
    }
    Ok(Found::Interrupted)
}

/// The first thing in a generation that no creation makes: an entry, a table, a checkpoint, or
/// damage.
async fn held_in(env: &Env, generation: &Path) -> NodeResult<Option<String>> {
    let (log, checkpoints, tables) =
        (log_path(generation), checkpoint_path(generation), tables_path(generation));
    if let Some((_, path)) = checkpoint::list(env, &checkpoints).await?.pop() {
        return Ok(Some(path.display().to_string()));
    }
    if env.files().exists(&tables).await? && !ssd::is_as_created(env, &tables).await? {
        return Ok(Some(format!("{}, with tables", tables.display())));
    }
    if !env.files().exists(&log).await? {
        return Ok(None);
    }
    let found = match Salvage::look_at(env, &log, &Keys::none()).await {
        Ok(salvage) => first_rows(salvage).await?,
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(error.into()),
    };
    Ok(found.map(|found| match found {
        Salvaged::Entry(entry) => {
            format!("{}, with an entry of version {}", log.display(), entry.version)
        }
        Salvaged::Problem(problem) => problem.to_string(),
    }))
}

/// The first entry with mutations in a log, or the first problem. A log that was just made may have
/// entries of its own.
async fn first_rows(mut salvage: Salvage) -> NodeResult<Option<Salvaged>> {
    loop {
        match salvage.next().await? {
            Some(Salvaged::Entry(entry)) if !entry.kind.has_mutations() => {}
            found => return Ok(found),
        }
    }
}

fn identity_is_missing(dir: &Path, held: &str) -> NodeError {
    let what = format!(
        "{}: expected the file that says what this directory is, found none, though there is {held}; \
         bring it back from where the directory comes from",
        dir.join(identity::FILE_NAME).display()
    );
    NodeError::Damaged(what.into())
}

/// The error of a directory in which there is no database.
pub(crate) fn no_database(dir: &Path) -> NodeError {
    NodeError::Missing(format!("{} holds no database", dir.display()).into())
}

/// Takes the lock of the database in `dir`, and makes one if there is none and the settings allow
/// it.
///
/// # Errors
/// As [`crate::Node::open`].
pub(crate) async fn claim(
    env: &Env,
    dir: &Path,
    config: &NodeConfig,
) -> NodeResult<(Directory, EngineKind)> {
    let (found, lock) = lock(env, dir, config.creation).await?;
    let identity = match found {
        Found::Database(identity) => identity,
        Found::Nothing | Found::Interrupted => {
            check_unclaimed(env, dir).await?;
            create(env, dir, config, None).await?
        }
    };
    if identity.member != 0 {
        let what = format!(
            "{} is of node {} of a cluster: it may lack commits, or have some that never came to be. Start it with \
             its cluster file (`plinth server --cluster-file`; if that is gone, with a copy of another server's), or connect to \
             the cluster",
            dir.display(),
            identity.member
        );
        return Err(NodeError::Foreign(what.into()));
    }
    Ok(opened(dir, identity, Arc::new(lock)))
}

/// Takes the lock of a member's directory.
///
/// # Errors
/// As [`crate::Node::open_member`].
pub(crate) async fn claim_member(
    env: &Env,
    dir: &Path,
) -> NodeResult<(Directory, EngineKind, Membership)> {
    let (found, lock) = lock(env, dir, Creation::Never).await?;
    let Found::Database(identity) = found else { return Err(no_database(dir)) };
    member_in(env, dir, identity, Arc::new(lock)).await
}

/// The member's directory, which this process has locked.
///
/// # Errors
/// As [`claim_member`].
pub(crate) async fn claimed_member(
    env: &Env,
    dir: &Path,
    lock: Arc<DirLock>,
) -> NodeResult<(Directory, EngineKind, Membership)> {
    let Found::Database(identity) = look(env, dir).await? else { return Err(no_database(dir)) };
    member_in(env, dir, identity, lock).await
}

async fn member_in(
    env: &Env,
    dir: &Path,
    identity: DirectoryIdentity,
    lock: Arc<DirLock>,
) -> NodeResult<(Directory, EngineKind, Membership)> {
    if identity.member == 0 {
        let what = format!(
            "{} holds a database of its own, which is no member of a cluster: open it without a cluster file; its \
             rows get into a cluster with `plinth migrate`",
            dir.display()
        );
        return Err(NodeError::Foreign(what.into()));
    }
    let membership = members_of(env, dir, &identity).await?;
    let (directory, engine) = opened(dir, identity, lock);
    Ok((directory, engine, membership))
}

/// Who the members are that the directory of one knows.
///
/// # Errors
/// `Damaged` if the file that says so is missing, damaged, or another node's; `NewerFormat` if it
/// is of a later format; those of files.
pub(crate) async fn members_of(
    env: &Env,
    dir: &Path,
    identity: &DirectoryIdentity,
) -> NodeResult<Membership> {
    let membership = membership::read(env, dir).await?;
    if (membership.node, membership.cluster_id) != (identity.member, identity.ids.cluster_id) {
        let what = format!(
            "{}: it is of node {} of another cluster than {}, or of another node than {} there",
            dir.join(membership::FILE_NAME).display(),
            membership.node,
            dir.join(identity::FILE_NAME).display(),
            identity.member
        );
        return Err(NodeError::Damaged(what.into()));
    }
    Ok(membership)
}

/// Makes the directory of a member, which has no rows yet. It is whole when this returns; a crash
/// leaves that or what [`form`] begins again.
///
/// # Errors
/// As [`crate::Node::form`].
pub(crate) async fn form(
    env: &Env,
    dir: &Path,
    config: &NodeConfig,
    membership: &Membership,
) -> NodeResult<()> {
    membership.check()?;
    let (_, lock) = lock(env, dir, Creation::Always).await?;
    create(env, dir, config, Some(membership)).await?;
    drop(lock);
    Ok(())
}

/// Takes the lock of a directory that is fit for this.
async fn lock(env: &Env, dir: &Path, creation: Creation) -> NodeResult<(Found, DirLock)> {
    // Not even a lock is written to a directory that may be somebody else's.
    if !env.files().exists(dir.join(LOCK)).await? {
        check_wanted(dir, look(env, dir).await?, creation)?;
        make_directory(env, dir).await?;
    }
    let lock = env.files().lock(&dir.join(LOCK)).await?;
    let found = look(env, dir).await?;
    check_wanted(dir, found, creation)?;
    if env.files().is_open_to_others(dir).await? {
        events::open_to_others(dir);
    }
    Ok((found, lock))
}

/// Whether a directory without a database may get one of its own.
///
/// # Errors
/// `Foreign` if it is on its way to become a member of a cluster: the others count on it.
async fn check_unclaimed(env: &Env, dir: &Path) -> NodeResult<()> {
    for name in CHARTER {
        if env.files().exists(dir.join(name)).await? {
            let what = format!(
                "{} is becoming a member of a cluster ({name} is there): start it with its cluster file \
                 (`plinth server --cluster-file`), or name another directory",
                dir.display()
            );
            return Err(NodeError::Foreign(what.into()));
        }
    }
    Ok(())
}

fn opened(dir: &Path, identity: DirectoryIdentity, lock: Arc<DirLock>) -> (Directory, EngineKind) {
    let DirectoryIdentity { ids, engine, generation, member } = identity;
    let (root, path) = (dir.to_path_buf(), generation_path(dir, generation));
    (Directory { root, path, generation, is_current: true, ids, member, lock }, engine)
}

/// # Errors
/// `Missing` if the directory above it doesn't exist: more than one missing is a mistyped name.
async fn make_directory(env: &Env, dir: &Path) -> NodeResult<()> {
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty())
        && !env.files().exists(parent).await?
    {
        let detail = format!("{}: there is no directory {}", dir.display(), parent.display());
        return Err(NodeError::Missing(detail.into()));
    }
    Ok(env.files().create_dir_all(dir).await?)
}

fn check_wanted(dir: &Path, found: Found, creation: Creation) -> NodeResult<()> {
    match (found, creation) {
        (Found::Database(_), Creation::Always) => {
            let what = format!("{} holds a database already", dir.display());
            Err(NodeError::Foreign(what.into()))
        }
        (Found::Nothing | Found::Interrupted, Creation::Never) => Err(no_database(dir)),
        _ => Ok(()),
    }
}

/// Makes a database, or what a member of a cluster begins with, in a directory that has none; what
/// an interrupted attempt left is replaced.
async fn create(
    env: &Env,
    dir: &Path,
    config: &NodeConfig,
    membership: Option<&Membership>,
) -> NodeResult<DirectoryIdentity> {
    env.files().replace(dir.join(CREATING), &marker()).await?;
    for name in env.files().list(dir).await? {
        if let Some(generation) = generation_in(&name) {
            probe!("pipeline: creating the database was begun before");
            remove_generation(env, dir, generation).await?;
        }
        if name == membership::FILE_NAME {
            probe!("pipeline: forming the cluster was begun before");
            env.files().remove(dir.join(&name)).await?;
        }
    }
    let mut ids = Identity { cluster_id: [0; 16], node_id: [0; 16] };
    env.fill_random(&mut ids.cluster_id);
    env.fill_random(&mut ids.node_id);
    if let Some(membership) = membership {
        ids.cluster_id = membership.cluster_id;
    }
    let member = membership.map_or(0, |membership| membership.node);
    let identity = DirectoryIdentity { ids, engine: config.engine, generation: 1, member };
    make_generation(env, dir, &identity, config.log.clone(), LogPosition::default()).await?;
    if let Some(membership) = membership {
        membership::write(env, dir, membership).await?;
    }
    identity::write(env, dir, &identity).await?;
    Ok(identity)
}

/// Makes the files of a generation without rows, with a log that goes on behind this entry,
/// durably.
pub(crate) async fn make_generation(
    env: &Env,
    dir: &Path,
    identity: &DirectoryIdentity,
    config: LogConfig,
    at: LogPosition,
) -> NodeResult<()> {
    let path = generation_path(dir, identity.generation);
    env.files().create_dir_all(&path).await?;
    Store::create(env, &path, identity.ids, (identity.engine, &config.keys), at).await?;
    make_log(env, &path, identity, config, at).await?;
    env.files().sync_dir(&path).await?;
    Ok(env.files().sync_dir(dir).await?)
}

/// Makes the log of a generation, which goes on behind this entry.
pub(crate) async fn make_log(
    env: &Env,
    generation: &Path,
    identity: &DirectoryIdentity,
    config: LogConfig,
    at: LogPosition,
) -> NodeResult<()> {
    let (path, behind) = (log_path(generation), (at.index, at.term, at.version));
    // Its background task must have ended before the log is opened for good: both would make the
    // next segment.
    if identity.member == 0 {
        Ok(LocalLog::create_at(env, path, identity.ids, config, behind).await?.0.close().await?)
    } else {
        Ok(ReplicaLog::create_at(env, path, identity.ids, config, behind).await?.0.close().await?)
    }
}

/// Removes what creations and changes of generations left. To be called when all that counts was
/// found whole.
pub(crate) async fn remove_leftovers(env: &Env, directory: &Directory) -> NodeResult<()> {
    assert!(directory.is_current, "what counts is no leftover");
    let (files, root) = (env.files(), &directory.root);
    let mut is_changed = false;
    for name in files.list(root).await? {
        let is_file = matches!(&*name, CREATING | "CREATING.new" | membership::UNFINISHED_NAME)
            || name == identity::unfinished_name()
            || (name == membership::FILE_NAME && directory.member == 0);
        if is_file {
            files.remove(root.join(&name)).await?;
        } else if is_removed(&name) {
            files.remove_dir_all(root.join(&name)).await?;
        } else if let Some(generation) = generation_in(&name)
            && directory.path != root.join(generation_name(generation))
        {
            remove_generation(env, root, generation).await?;
        } else {
            continue;
        }
        is_changed = true;
    }
    // Not one entry is written while the database can still be taken for one that is being made.
    if is_changed { Ok(files.sync_dir(root).await?) } else { Ok(()) }
}

/// The bytes of `CREATING`.
fn marker() -> [u8; MARKER_LEN] {
    let mut bytes = [0; MARKER_LEN];
    put(&mut bytes, 0, *MAGIC);
    put(&mut bytes, 8, DIRECTORY_FORMAT.to_le_bytes());
    let checksum = checksum(&bytes[..12]);
    put(&mut bytes, 12, checksum.to_le_bytes());
    bytes
}

/// # Errors
/// `Damaged` if `CREATING` is not what a creation writes.
async fn read_marker(env: &Env, dir: &Path) -> NodeResult<()> {
    let path = dir.join(CREATING);
    if env.files().read(&path).await? == marker() {
        return Ok(());
    }
    let expected = "what a creation of a database in this format writes";
    let what = format!("{} at offset 0: expected {expected}, found something else", path.display());
    Err(NodeError::Damaged(what.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_the_marker_are_as_documented() {
        assert_eq!(marker(), *b"PLNTHNEW\x03\0\0\0\xb9\x39\x3e\x56");
    }
}
