//! Opening what is there: engine and log, read at once, compared with each other, and only then
//! changed.
//!
//! ```text
//!   engine   read ───────────────┐ version S
//!   log      read ───▶ findings ─┴▶ do they belong together? ─▶ both may change their files
//!                                                                   ─▶ replay ─▶ leftovers go
//! ```
//!
//! The log knows up to which version entries were let go because they are in the engine, and the
//! engine up to which entry of which term it has everything. So a checkpoint that is gone, a
//! manifest or a log of an earlier moment, a log that took another course, and files of another
//! database are told by name.
//!
//! Always: as long as anything that counts may turn out to be missing or damaged, nothing is
//! written.

use crate::checkpoints;
use crate::config::NodeConfig;
use crate::creation::remove_leftovers;
use crate::directory::{Directory, checkpoint_path, log_path};
use crate::failure::{NodeError, NodeResult};
use crate::identity::{self, EngineKind};
use crate::replay::{Bounds, replay};
use crate::sequencer::Sequencer;
use crate::store::{Recovering, Store, Stored, tables_path};
use plinth_env::Env;
use plinth_env::Promise;
use plinth_format::{Corruption, Identity, Keys};
use plinth_log::{
    Findings, LocalLog, LocalView, LogConfig, LogError, Mismatch, Recovery, ReplicaLog, Salvage,
};
use plinth_storage::{checkpoint, ssd};
use plinth_types::{LogPosition, Version, planted};
use std::path::Path;

/// A log that a node can be opened with.
pub(crate) trait NodeLog: Sized + Send + 'static {
    /// As [`LocalLog::open_when`].
    fn open_when<F: Future<Output = NodeResult<()>> + Send>(
        env: &Env,
        dir: &Path,
        ids: Identity,
        config: LogConfig,
        permission: impl FnOnce(Findings) -> F + Send,
    ) -> impl Future<Output = NodeResult<(Self, Recovery)>> + Send;

    /// Its readers see what is committed.
    fn view(&self) -> LocalView;

    /// Waits until its tasks have ended.
    fn close(self) -> impl Future<Output = NodeResult<()>> + Send;
}

impl NodeLog for LocalLog {
    async fn open_when<F: Future<Output = NodeResult<()>> + Send>(
        env: &Env,
        dir: &Path,
        ids: Identity,
        config: LogConfig,
        permission: impl FnOnce(Findings) -> F + Send,
    ) -> NodeResult<(Self, Recovery)> {
        let asked = |findings| {
            let answer = permission(findings);
            async move { answer.await.map_err(|why| LogError::Refused(why.into())) }
        };
        Ok(Self::open_when(env, dir, ids, config, asked).await?)
    }

    fn view(&self) -> LocalView {
        Self::view(self)
    }

    async fn close(self) -> NodeResult<()> {
        Ok(Self::close(self).await?)
    }
}

impl NodeLog for ReplicaLog {
    async fn open_when<F: Future<Output = NodeResult<()>> + Send>(
        env: &Env,
        dir: &Path,
        ids: Identity,
        config: LogConfig,
        permission: impl FnOnce(Findings) -> F + Send,
    ) -> NodeResult<(Self, Recovery)> {
        let asked = |findings| {
            let answer = permission(findings);
            async move { answer.await.map_err(|why| LogError::Refused(why.into())) }
        };
        Ok(Self::open_when(env, dir, ids, config, asked).await?)
    }

    fn view(&self) -> LocalView {
        Self::view(self).clone()
    }

    async fn close(self) -> NodeResult<()> {
        Ok(Self::close(self).await?)
    }
}

/// Brings the storage up to the end of the log; gives both, where versions go on, and whether the
/// database is new.
pub(crate) async fn recover(
    env: &Env,
    directory: &Directory,
    config: &NodeConfig,
) -> NodeResult<(Store, LocalLog, Sequencer, bool)> {
    let (storage, log, recovery, last) = bring_up::<LocalLog>(env, directory, config).await?;
    let is_new = last == 0;
    assert!(last <= recovery.last_version, "rows of version {last} are in no entry");
    let seen = last.max(recovery.lease).max(recovery.last_version);
    let forgets = planted!("leases are forgotten at a restart");
    let sequencer = if is_new {
        Sequencer::starting_at(1, env.now())
    } else if forgets {
        Sequencer::starting_at(last.max(recovery.last_version), env.now())
    } else {
        Sequencer::after_restart(seen, env.now())
    };
    Ok((storage, log, sequencer, is_new))
}

/// Brings the storage of a member up to what its log knows to be committed, and no further; gives
/// both, and the version that it has come to.
pub(crate) async fn recover_member(
    env: &Env,
    directory: &Directory,
    config: &NodeConfig,
) -> NodeResult<(Store, ReplicaLog, Version)> {
    let (storage, log, _, last) = bring_up::<ReplicaLog>(env, directory, config).await?;
    if planted!("a restart applies what is not known committed") {
        log.commit(log.last().0)?;
    }
    Ok((storage, log, last))
}

/// Brings the storage up to the last entry that is committed; gives its version.
async fn bring_up<L: NodeLog>(
    env: &Env,
    directory: &Directory,
    config: &NodeConfig,
) -> NodeResult<(Store, L, Recovery, Version)> {
    let (mut engine, stored, log, recovery) = open_both::<L>(env, directory, config).await?;
    let view = log.view();
    let replayed = match view.register(checkpoints::CONSUMER, stored.version + 1, None) {
        Ok(_) => {
            replay(env, &view, &mut engine, stored, Bounds::with_memory(config.ssd.memory)).await
        }
        Err(error) => Err(error.into()),
    };
    let cleared = match replayed {
        Ok(last) if directory.is_current => remove_leftovers(env, directory).await.map(|()| last),
        Ok(last) => Ok(last),
        Err(error) => Err(error),
    };
    match cleared {
        Ok(last) => {
            recovery.cut_tail.iter().for_each(crate::events::tail_cut);
            recovery.spoilt_note.iter().for_each(crate::events::note_spoilt);
            Ok((engine.finish(), log, recovery, last))
        }
        Err(error) => {
            // Their tasks hold the directory's lock, or write below it, until they end. What went
            // wrong first counts.
            drop(log.close().await);
            engine.finish().reader.close().await;
            Err(error)
        }
    }
}

/// Opens engine and log, both read at once. Nothing is changed before both were found whole and to
/// belong together.
async fn open_both<L: NodeLog>(
    env: &Env,
    directory: &Directory,
    config: &NodeConfig,
) -> NodeResult<(Recovering, LogPosition, L, Recovery)> {
    let (allow, permission) = Promise::<(), NodeError>::pair();
    let (tell, told) = Promise::pair();
    let (answer, opened) = Promise::pair();
    let opening = {
        let (path, ids, config) = (directory.log_path(), directory.ids, config.log.clone());
        let (env, lock) = (env.clone(), directory.lock.clone());
        let permission = |findings: Findings| {
            tell.send(Ok(findings));
            permission
        };
        async move {
            answer.send(L::open_when(&env, &path, ids, config, permission).await);
            // Held as long as the log may be written to, even if nobody waits for it any longer.
            drop(lock);
        }
    };
    let task = env.spawn("open-log", opening);
    let stored = Stored::read(env, directory, config).await;
    // A log that can't be opened tells nothing here, and why in the end.
    let findings: NodeResult<Findings> = told.await;
    let agreed = stored.as_ref().map_err(NodeError::clone).and_then(|stored| {
        let disagreement =
            disagreement(&directory.path, config.engine, stored.position(), &findings?);
        disagreement.map_or(Ok(()), |problem| Err(problem.into()))
    });
    allow.send(agreed);
    let log = match task.await {
        Ok(()) => opened.await,
        Err(failed) => Err(failed.into()),
    };
    let (stored, (log, recovery)) = match (stored, log) {
        (Ok(stored), Ok(log)) => (stored, log),
        (Err(error), _) | (_, Err(error)) => return Err(explained(env, directory, error).await),
    };
    let position = stored.position();
    match stored.start(env, directory, config.keys()).await {
        Ok(engine) => Ok((engine, position, log, recovery)),
        Err(error) => {
            drop(log.close().await);
            Err(error)
        }
    }
}

/// Why an engine that has everything up to `stored` and a log don't belong together, if they don't.
pub(crate) fn disagreement(
    generation: &Path,
    engine: EngineKind,
    stored: LogPosition,
    log: &Findings,
) -> Option<Corruption> {
    let popped = log.popped.get(checkpoints::CONSUMER).copied().unwrap_or(0);
    if stored.version >= popped {
        let Mismatch { what, expected, found } = log.landmarks.mismatch(stored)?;
        return Some(problem(&log_path(generation), what, expected, found));
    }
    let (path, what, found) = match engine {
        EngineKind::Memory => (
            checkpoint::path(&checkpoint_path(generation), popped),
            "a checkpoint is missing",
            if stored.version == 0 {
                "none".into()
            } else {
                format!("one of version {}", stored.version)
            },
        ),
        EngineKind::Ssd => (
            ssd::manifest_path(&tables_path(generation)),
            "the manifest is of an earlier moment",
            format!("version {}", stored.version),
        ),
    };
    let expected =
        format!("version {popped} or a later one, because the log before it may be gone");
    Some(problem(&path, what, expected, found))
}

/// Why the log is not that of this identity, if it isn't.
pub(crate) fn foreign_log(
    root: &Path,
    ours: Identity,
    log: &Path,
    theirs: Identity,
) -> Option<Corruption> {
    (ours != theirs).then(|| {
        let name = |ids: Identity| {
            let hex = |id: [u8; 16]| format!("{:032x}", u128::from_be_bytes(id));
            format!("cluster {} and node {}", hex(ids.cluster_id), hex(ids.node_id))
        };
        let found = format!("{} in {}", name(theirs), log.display());
        let what = "it and the log are of two databases";
        problem(&root.join(identity::FILE_NAME), what, name(ours), found)
    })
}

fn problem(path: &Path, what: &str, expected: String, found: String) -> Corruption {
    Corruption { file: path.display().to_string(), offset: 0, what: what.into(), expected, found }
}

/// The error of a database of which something is missing or another's. There is a database: what is
/// not found is damage, and so is what belongs to somebody else.
async fn explained(env: &Env, directory: &Directory, error: NodeError) -> NodeError {
    if !error.is_missing() && !error.is_foreign() && !error.is_damage() {
        return error;
    }
    let what = error.summary();
    let log = directory.log_path();
    if let Ok(salvage) = Salvage::look_at(env, &log, &Keys::none()).await
        && let Some(theirs) = salvage.identity()
        && let Some(problem) = foreign_log(&directory.root, directory.ids, &log, theirs)
    {
        return NodeError::Damaged(format!("{problem}: {what}").into());
    }
    NodeError::Damaged(what.into())
}
