//! Generations: a whole new state is taken in beside the one that a database has, and put in its
//! place in one step.
//!
//! ```text
//!   1  the database is opened and closed: where do its versions end?       gen-1/            IDENTITY: 1
//!   2  gen-2/: an engine without rows and a log, behind that version       gen-1/ gen-2/     IDENTITY: 1
//!   3  rows are committed into it                                          gen-1/ gen-2/     IDENTITY: 1
//!   4  it is closed; IDENTITY is replaced: the step                        gen-1/ gen-2/     IDENTITY: 2
//!   5  gen-1/ is renamed, and removed                                      gen-2/            IDENTITY: 2
//! ```
//!
//! There are two ways to fill it. Through a node of its own, so that it takes whatever is committed
//! ([`Incoming`]); or with chunks of rows that somebody exported, which become the engine's files
//! as they are ([`Import`]): then the log begins behind the place that the rows are everything of,
//! and the old state need not even be whole. A crash before the step leaves the old state, one
//! behind it the new one; what counts no more is removed at the next opening. Versions go on: none
//! is given out a second time.

use crate::config::{Creation, NodeConfig};
use crate::creation::{claim, claim_member, make_generation, make_log, remove_leftovers};
use crate::directory::{Directory, generation_path, log_path, remove_generation};
use crate::endpoint::InProcess;
use crate::failure::{NodeError, NodeResult};
use crate::identity::{self, DirectoryIdentity};
use crate::node::{Node, fitted};
use crate::opening::recover;
use crate::store::import_engine;
use plinth_env::Env;
use plinth_log::{LogConfig, ReplicaLog, Vote};
use plinth_storage::Chunk;
use plinth_types::{LogPosition, planted};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A new state of a database that nobody has open. Until [`Incoming::put_in_place`] the old one
/// counts.
pub struct Incoming {
    env: Env,
    node: Arc<Node>,
    /// Where the new state is, and the lock.
    directory: Directory,
    next: DirectoryIdentity,
}

impl Incoming {
    /// Begins a new state, without rows but those that every database has, of the database in
    /// `dir`.
    ///
    /// # Errors
    /// As [`Node::open`], with [`Creation::Never`].
    pub async fn begin(env: &Env, dir: &Path, config: NodeConfig) -> NodeResult<Self> {
        let env = env.keeping_private();
        let (old, engine) =
            claim(&env, dir, &NodeConfig { creation: Creation::Never, ..config.clone() }).await?;
        let config = fitted(config, engine);
        let (storage, log, sequencer, _) = recover(&env, &old, &config).await?;
        let behind = LogPosition::without_log(sequencer.newest());
        let closed = log.close().await;
        storage.reader.close().await;
        closed?;
        let (ids, generation, member) = (old.ids, old.generation + 1, old.member);
        let next = DirectoryIdentity { ids, engine, generation, member };
        make_generation(&env, dir, &next, config.log.clone(), behind).await?;
        let place = || Directory {
            root: old.root.clone(),
            path: generation_path(dir, next.generation),
            generation: next.generation,
            is_current: false,
            ids: old.ids,
            member,
            lock: old.lock.clone(),
        };
        let (storage, log, sequencer, _) = recover(&env, &place(), &config).await?;
        let node =
            Node::start(&env, config, Some(place()), storage, Some(Box::new(log)), sequencer)
                .await?;
        if let Err(error) = node.write_first_rows().await {
            // What went wrong first is what counts.
            let _ = node.close().await;
            return Err(error);
        }
        Ok(Self { env, node, directory: place(), next })
    }

    /// What takes the rows of the new state.
    pub fn endpoint(&self) -> InProcess {
        self.node.endpoint()
    }

    /// Puts the new state in the place of the old one, which is removed. Handles that are left get
    /// `shutdown_in_progress`; whoever wants the database opens it.
    ///
    /// # Errors
    /// Those of closing a node and of files. Either state may be the one that counts then, whole.
    pub async fn put_in_place(mut self) -> NodeResult<()> {
        self.node.close().await?;
        identity::write(&self.env, &self.directory.root, &self.next).await?;
        self.directory.is_current = true;
        remove_leftovers(&self.env, &self.directory).await
    }

    /// Gives the new state up. Merely dropped, it is removed when the database is opened next.
    ///
    /// # Errors
    /// Those of removing files.
    pub async fn abandon(self) -> NodeResult<()> {
        // Nobody wants to know what couldn't be written any more.
        let _ = self.node.close().await;
        remove_generation(&self.env, &self.directory.root, self.next.generation).await
    }
}

/// A new state of a database that nobody has open, made of chunks. Until [`Import::put_in_place`]
/// the old one counts.
pub struct Import {
    env: Env,
    config: NodeConfig,
    old: Directory,
    next: DirectoryIdentity,
    path: PathBuf,
    at: LogPosition,
    /// What a member of a cluster has promised, which it must not forget with its log.
    promised: Option<Vote>,
    engine: Box<dyn plinth_storage::Import>,
}

impl Import {
    /// Begins a new state of the database in `dir`, which will have everything up to `at`. What an
    /// import that was interrupted has left goes. The old state is not looked at.
    ///
    /// # Errors
    /// As [`Node::open`], with [`Creation::Never`], but that damage to log and data is not met
    /// with.
    pub async fn begin(
        env: &Env,
        dir: &Path,
        config: NodeConfig,
        at: LogPosition,
    ) -> NodeResult<Self> {
        let env = env.keeping_private();
        let (old, engine) =
            claim(&env, dir, &NodeConfig { creation: Creation::Never, ..config.clone() }).await?;
        Self::begin_in(env, old, fitted(config, engine), at, None).await
    }

    /// The same for a member of a cluster, whose log has fallen behind `at`: an entry that is known
    /// committed. What the member has promised to others stays promised.
    ///
    /// # Errors
    /// As [`Node::open_member`]: a member whose log is damaged may have forgotten a promise, and is
    /// none any more. `Misused` if its log goes beyond `at`: entries that it told others it has
    /// would be lost.
    pub async fn begin_member(
        env: &Env,
        dir: &Path,
        config: NodeConfig,
        at: LogPosition,
    ) -> NodeResult<Self> {
        let env = env.keeping_private();
        let (old, engine, _) = claim_member(&env, dir).await?;
        let config = fitted(config, engine);
        let (log, _) = ReplicaLog::open(&env, old.log_path(), old.ids, config.log.clone()).await?;
        let (promised, (last, _), has) = (log.promised(), log.last(), log.term_of(at.index));
        log.close().await?;
        // Entries behind another one than the committed one were never committed by anybody.
        if last > at.index && has.is_none_or(|term| term == at.term) {
            let detail =
                format!("a state up to {at} for a member whose log has entries up to {last}");
            return Err(NodeError::Misused(detail.into()));
        }
        Self::begin_in(env, old, config, at, Some(promised)).await
    }

    /// The same for a member that runs: its state is replaced when the node is closed, and
    /// [`Import::promise`] was called.
    pub(crate) async fn begin_beside(node: &Node, at: LogPosition) -> NodeResult<Self> {
        let replica = &node.replica;
        let no_files = || NodeError::Internal("a member has a directory".into());
        let directory = replica.directory.clone().ok_or_else(no_files)?;
        Self::begin_in(replica.env.clone(), directory, replica.config.clone(), at, None).await
    }

    /// What the member has promised to others stays promised.
    pub(crate) fn promise(&mut self, promised: Vote) {
        self.promised = Some(promised);
    }

    async fn begin_in(
        env: Env,
        old: Directory,
        config: NodeConfig,
        at: LogPosition,
        promised: Option<Vote>,
    ) -> NodeResult<Self> {
        let (dir, engine) = (old.root.clone(), config.engine);
        let (ids, generation, member) = (old.ids, old.generation + 1, old.member);
        let next = DirectoryIdentity { ids, engine, generation, member };
        let path = generation_path(&dir, next.generation);
        if env.files().exists(&path).await? {
            remove_generation(&env, &dir, next.generation).await?;
        }
        let engine = import_engine(&env, &path, &next, &config, at).await?;
        Ok(Self { env, config, old, next, path, at, promised, engine })
    }

    /// Takes the next chunk; they come in key order. What none of them speaks of is not there
    /// afterwards.
    ///
    /// # Errors
    /// As [`plinth_storage::Import::take`].
    pub async fn take(&mut self, chunk: &Chunk) -> NodeResult<()> {
        Ok(self.engine.take(chunk).await?)
    }

    /// The first key behind the chunks that were taken.
    pub fn reached(&self) -> &[u8] {
        self.engine.reached()
    }

    /// What it will have everything up to.
    pub fn position(&self) -> LogPosition {
        self.at
    }

    /// Puts the new state in the place of the old one, which is removed. Whoever wants the database
    /// opens it.
    ///
    /// # Errors
    /// Those of files. Either state may be the one that counts then, whole.
    pub async fn put_in_place(self) -> NodeResult<()> {
        let Self { env, config, mut old, next, path, at, promised, engine } = self;
        let imported = engine.finish().await?;
        assert_eq!(imported, at, "an engine has what it was to take");
        make_log(&env, &path, &next, config.log.clone(), at).await?;
        if let Some(promised) = promised {
            keep_promise(&env, &path, &next, config.log.clone(), promised).await?;
        }
        env.files().sync_dir(&path).await?;
        env.files().sync_dir(&old.root).await?;
        if planted!("the old log is reset before the pointer has moved") {
            let before = DirectoryIdentity { generation: old.generation, ..next };
            env.files().remove_dir_all(old.log_path()).await?;
            make_log(&env, &old.path, &before, config.log.clone(), at).await?;
        }
        identity::write(&env, &old.root, &next).await?;
        (old.path, old.generation, old.is_current) = (path, next.generation, true);
        remove_leftovers(&env, &old).await
    }

    /// Gives the new state up. Merely dropped, it is removed when the database is opened next.
    ///
    /// # Errors
    /// Those of removing files.
    pub async fn abandon(self) -> NodeResult<()> {
        let Self { env, old, next, engine, .. } = self;
        drop(engine);
        remove_generation(&env, &old.root, next.generation).await
    }
}

/// Has the new log of a member say what the old one said of its votes.
async fn keep_promise(
    env: &Env,
    generation: &Path,
    identity: &DirectoryIdentity,
    config: LogConfig,
    promised: Vote,
) -> NodeResult<()> {
    let (mut log, _) = ReplicaLog::open(env, log_path(generation), identity.ids, config).await?;
    let new = log.promised();
    let kept = if promised.term < new.term {
        Ok(())
    } else {
        log.vote(Vote { commit: promised.commit.max(new.commit), ..promised }).await
    };
    let closed = log.close().await;
    Ok(kept.and(closed)?)
}
