//! A log that is open: what the log of one node and the log of a replica have in common.
//!
//! Creating, opening in order, votes, markers, closing. What an entry may be and when it counts is
//! the business of [`LocalLog`](crate::LocalLog) and [`ReplicaLog`](crate::ReplicaLog).

use std::path::{Path, PathBuf};

use plinth_env::Env;
use plinth_format::crypt::{NONCE_LEN, Nonces};
use plinth_format::{Cipher, Identity};
use plinth_types::Version;

use crate::config::LogConfig;
use crate::failure::{LogError, LogResult};
use crate::findings::{Findings, Recovery};
use crate::format::Vote;
use crate::format::mark::mark_seed;
use crate::frame::{Frame, Known, Sealing};
use crate::link::Link;
use crate::marking;
use crate::marks::Marks;
use crate::position::Position;
use crate::recovery::recover;
use crate::segment::{Directory, Wanted as NewSegment};
use crate::shared::{Commits, Inner, Shared};
use crate::syncer::Syncer;
use crate::upkeep;
use crate::view::LocalView;
use crate::writer::{Wanted, Writer};

/// The writer of a log, with its handle for others.
pub(crate) struct Opened {
    pub(crate) writer: Writer,
    pub(crate) view: LocalView,
    /// The record that says of everything before it that it is durable, if nothing followed it.
    marker: u64,
}

impl Opened {
    /// Makes a log that begins behind an entry that it doesn't have: its index, term and version.
    pub(crate) async fn create_at(
        env: &Env,
        dir: &Path,
        identity: Identity,
        config: &LogConfig,
        (index, term, version): (u64, u64, Version),
    ) -> LogResult<()> {
        config.check()?;
        if version < 0 {
            let detail = format!("a log can't begin behind version {version}");
            return Err(LogError::Version(detail));
        }
        env.files().create_dir_all(dir).await?;
        if !Directory::list(env, dir).await?.segments.is_empty() {
            let detail = format!("there is a log in {} already", dir.display());
            return Err(LogError::Misused(detail));
        }
        let wanted = NewSegment::new(identity, config, 1, config.first_segment_bytes);
        let mut nonces = nonces(env);
        let first_record = |seed, cipher: &Cipher| {
            let (mut bytes, mut origin) = (Vec::new(), Link::origin());
            (origin.index, origin.term, origin.version) = (index, term, version);
            origin.memory.lease = version;
            origin.memory.vote = Vote { term, vote: 0, commit: index };
            let known = Known { opening: 0, durable: 0, committed: version };
            let popped = origin.memory.popped.clone();
            let sealing = Sealing { seed, cipher, nonces: &mut nonces };
            Frame::new(&mut bytes, sealing, known, origin).put_state(popped);
            bytes
        };
        Marks::create(env, dir, mark_seed(&identity, config.log_id)).await?;
        wanted.make(env, dir, first_record, || true).await?;
        Ok(())
    }

    /// Brings the log in `dir` into order, once there is permission to change it. Its tasks begin
    /// with [`Opened::start`].
    pub(crate) async fn open<F: Future<Output = LogResult<()>>>(
        env: &Env,
        dir: &Path,
        identity: Identity,
        config: LogConfig,
        commits: Commits,
        permission: impl FnOnce(Findings) -> F,
    ) -> LogResult<(Self, Recovery)> {
        let dir: PathBuf = dir.to_path_buf();
        config.check()?;
        let recovered = recover(env, &dir, &identity, &config, commits, permission).await?;
        let link = recovered.start.link.clone();
        let Some(opening) = recovered.opening.checked_add(1) else {
            return Err(LogError::Internal("the log was opened 2^32 times".into()));
        };
        let shared = Shared::new(env.clone(), dir, identity, config, recovered.start);
        let place = (opening, recovered.dirty);
        let writer = Writer::new(shared.clone(), link, place, nonces(env));
        Ok((Self { writer, view: LocalView { shared }, marker: 0 }, recovered.recovery))
    }

    /// Has the tasks begin that work beside the writer.
    pub(crate) fn start(&self) {
        marking::start(&self.view.shared);
        upkeep::look(&self.view.shared);
    }

    /// Writes down what this node promises, durably.
    pub(crate) async fn vote(&mut self, vote: Vote) -> LogResult<Position> {
        let position = self.writer.write(Wanted::Vote(vote)).await?;
        self.syncer().sync(position).await?;
        Ok(position)
    }

    /// Writes the log's memory down in a new record, durably.
    pub(crate) async fn mark(&mut self) -> LogResult<()> {
        let position = self.writer.write_state().await?;
        self.syncer().sync(position).await?;
        self.set_marker(position);
        Ok(())
    }

    /// As [`Opened::mark_durable`], without waiting for a disk: only if everything is durable
    /// already, and what it writes is to be synced by the caller.
    pub(crate) async fn begin_mark(&mut self) -> LogResult<Option<Position>> {
        let durable = self.view.shared.with(|inner| inner.durable.sequence);
        let is_marked = self.marker == self.writer.link.sequence && !self.writer.has_news();
        if is_marked || durable < self.writer.link.sequence {
            return Ok(None);
        }
        let position = self.writer.write_state().await?;
        self.marker = position.sequence;
        Ok(Some(position))
    }

    /// Has the disk say of everything that it is durable; does nothing if nothing happened since
    /// the last time.
    pub(crate) async fn mark_durable(&mut self) -> LogResult<()> {
        if self.marker == self.writer.link.sequence && !self.writer.has_news() {
            return Ok(());
        }
        self.syncer().sync(self.writer.link.position()).await?;
        self.mark().await
    }

    /// Nothing would be missed if the record at `position` were lost, or it is no harm: nobody need
    /// note that it is durable.
    pub(crate) fn set_marker(&mut self, position: Position) {
        self.marker = position.sequence;
        self.view.shared.with(|inner| {
            assert!(position.sequence <= inner.durable.sequence, "a marker is synced");
            inner.marked = inner.marked.max(position.sequence);
        });
    }

    pub(crate) fn syncer(&self) -> Syncer {
        Syncer::new(self.view.shared.clone())
    }

    /// Leaves the log as after [`Opened::mark_durable`], and waits for its tasks to end.
    pub(crate) async fn close(mut self) -> LogResult<()> {
        let marked = self.mark_durable().await;
        self.end_tasks().await;
        marked?;
        marking::mark_end(&self.view.shared).await
    }

    /// Gives up one that could not be opened, and passes on why. Whoever tries again finds that
    /// nobody is at the files any more.
    pub(crate) async fn give_up(self, why: LogError) -> LogError {
        self.end_tasks().await;
        why
    }

    async fn end_tasks(&self) {
        self.begin_close();
        let is_over = |inner: &mut Inner| !inner.upkeep.is_running && !inner.upkeep.is_marking;
        self.view.shared.until(|inner| is_over(inner).then_some(())).await;
    }

    fn begin_close(&self) {
        self.view.shared.change(|inner| inner.upkeep.is_closing = true);
        self.view.shared.marks.closing.notify();
    }

    /// Panics if what the log believes of itself contradicts itself.
    pub(crate) fn check_invariants(&self) {
        let link = &self.writer.link;
        self.view.shared.with(|inner| {
            inner.check_invariants();
            assert_eq!(inner.written.sequence, link.sequence);
            let ours = (link.index, link.term, link.version);
            assert_eq!((inner.written.index, inner.written.term, inner.written.version), ours);
            assert_eq!(inner.written.memory, link.memory);
        });
    }
}

/// Nonces for one who writes, be it to one segment or many.
pub(crate) fn nonces(env: &Env) -> Nonces {
    let mut random = [0; NONCE_LEN];
    env.fill_random(&mut random);
    Nonces::starting_at(random)
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.begin_close();
    }
}
