//! The log as its one writer holds it: [`LocalLog`].
//!
//! Everything here is a few lines over the parts that do the work. The methods take `&mut self`,
//! because there is one writer.

use std::path::Path;

use plinth_env::Env;
use plinth_format::Identity;
use plinth_types::Version;

use crate::config::LogConfig;
use crate::entry::{EntryHead, EntryKind};
use crate::failure::{LogError, LogResult};
use crate::findings::{Findings, Recovery};
use crate::format::Vote;
use crate::link::Link;
use crate::opened::Opened;
use crate::position::Position;
use crate::shared::Commits;
use crate::syncer::Syncer;
use crate::view::LocalView;
use crate::writer::NewEntry;

/// A commit log, open for appending.
///
/// There is one writer; readers, consumers and syncs go through handles that can be given to other
/// tasks ([`LocalLog::view`], [`LocalLog::syncer`]). Nothing excludes a second [`LocalLog`] on the
/// same directory: that is the business of whoever owns the directory's lock.
pub struct LocalLog {
    opened: Opened,
}

impl LocalLog {
    /// Makes a new log in `dir`, which is made if need be, and opens it. A crash leaves a whole log
    /// or none.
    ///
    /// # Errors
    /// `Misused` if there is a log already; `Option`; errors of
    /// files.
    pub async fn create(
        env: &Env,
        dir: impl AsRef<Path>,
        identity: Identity,
        config: LogConfig,
    ) -> LogResult<(Self, Recovery)> {
        Self::create_at(env, dir, identity, config, (0, 0, 0)).await
    }

    /// Makes a new log that begins behind an entry that it doesn't have: its index, term and
    /// version. For a node that has the rows of that version from elsewhere. The lease reaches up
    /// to the version.
    ///
    /// # Errors
    /// As those of [`LocalLog::create`]; `Version` if the version is below 0.
    pub async fn create_at(
        env: &Env,
        dir: impl AsRef<Path>,
        identity: Identity,
        config: LogConfig,
        beginning: (u64, u64, Version),
    ) -> LogResult<(Self, Recovery)> {
        let dir = dir.as_ref();
        Opened::create_at(env, dir, identity, &config, beginning).await?;
        Self::open(env, dir, identity, config).await
    }

    /// Opens the log in `dir`, after whatever crash, and begins a new term. Reads all of it first.
    ///
    /// # Errors
    /// `Missing` if there is none; `Corrupt`, saying file, offset, what was expected
    /// and what was found, if anything is damaged that was durable; `ForeignFormat` if
    /// another version of the program wrote it; `Misused` if it is another node's.
    pub async fn open(
        env: &Env,
        dir: impl AsRef<Path>,
        identity: Identity,
        config: LogConfig,
    ) -> LogResult<(Self, Recovery)> {
        Self::open_when(env, dir, identity, config, |_| std::future::ready(Ok(()))).await
    }

    /// Opens the log like [`LocalLog::open`], but changes nothing in `dir` before `permission` is
    /// given: whoever has other things to read at a start can read them meanwhile, compare them
    /// with what the log was found to hold, and find them damaged, or too new.
    ///
    /// # Errors
    /// As those of [`LocalLog::open`], and that of `permission`, after which nothing was changed.
    pub async fn open_when<F: Future<Output = LogResult<()>>>(
        env: &Env,
        dir: impl AsRef<Path>,
        identity: Identity,
        config: LogConfig,
        permission: impl FnOnce(Findings) -> F,
    ) -> LogResult<(Self, Recovery)> {
        let commits = Commits::WhenDurable;
        let (mut opened, found) =
            Opened::open(env, dir.as_ref(), identity, config, commits, permission).await?;
        // The only node there is votes for itself.
        let link = &opened.writer.link;
        let term = link.term.max(link.memory.vote.term) + 1;
        match opened.vote(Vote { term, vote: 0, commit: link.index }).await {
            Ok(position) => opened.set_marker(position),
            Err(why) => return Err(opened.give_up(why).await),
        }
        opened.start();
        Ok((Self { opened }, Recovery { term, ..found }))
    }

    /// Appends an entry whose body is `parts` one after the other. It is written when this returns,
    /// and durable once a [`Syncer::sync`] of its position has returned.
    ///
    /// # Errors
    /// `Version` if `version` is not above the last one or is above the lease;
    /// `Io` if the disk is full, and other errors of files: nothing was appended
    /// then, and the next append writes to the same place. `Poisoned` for good once the log is
    /// poisoned.
    pub async fn append(&mut self, version: Version, parts: &[&[u8]]) -> LogResult<Position> {
        let lease = self.opened.writer.link.memory.lease;
        if version > lease {
            let detail =
                format!("entry at version {version}, the lease ends at {lease}: extend it first");
            return Err(LogError::Version(detail));
        }
        self.append_entry(EntryKind::Mutations, version, parts).await
    }

    async fn append_entry(
        &mut self,
        kind: EntryKind,
        version: Version,
        parts: &[&[u8]],
    ) -> LogResult<Position> {
        let (index, previous) =
            (self.opened.writer.link.index + 1, self.opened.writer.link.version);
        let (term, committed) = (self.term(), self.committed().version);
        let head = EntryHead { kind, index, term, version, previous, committed };
        self.opened.writer.write_entry(NewEntry { head, parts }).await
    }

    /// Appends an entry that lets versions up to `upto` be handed out, once it is durable: see
    /// [`LocalView::lease`]. Entries may be appended up to it at once. Does nothing if the lease
    /// reaches that far already.
    ///
    /// # Errors
    /// As those of [`LocalLog::append`].
    pub async fn extend_lease(&mut self, upto: Version) -> LogResult<Position> {
        if upto <= self.opened.writer.link.memory.lease {
            return Ok(self.written());
        }
        let version = self.opened.writer.link.version;
        self.append_entry(EntryKind::Lease, version, &[&upto.to_le_bytes()]).await
    }

    /// Appends a record that says that everything before it is durable, and syncs it, so that
    /// damage to the last records is known to be damage and not a torn tail. Also writes down what
    /// consumers have popped. To be called when the system falls idle; does nothing if nothing
    /// happened since.
    ///
    /// # Errors
    /// As those of [`LocalLog::append`] and [`Syncer::sync`].
    pub async fn mark_durable(&mut self) -> LogResult<()> {
        self.opened.mark_durable().await
    }

    /// The position of the last record.
    pub fn written(&self) -> Position {
        self.opened.writer.link.position()
    }

    /// The term in which this writer appends: each opening begins a new one.
    pub fn term(&self) -> u64 {
        self.opened.writer.link.memory.vote.term
    }

    /// Something that makes records durable, for other tasks.
    pub fn syncer(&self) -> Syncer {
        self.opened.syncer()
    }

    /// A handle for readers and consumers.
    pub fn view(&self) -> LocalView {
        self.opened.view.clone()
    }

    /// Leaves the log as after [`LocalLog::mark_durable`], notes where it ends, and waits for its
    /// background tasks to end. A log that is merely dropped is as after a crash, except that
    /// nothing written is lost.
    ///
    /// # Errors
    /// As those of [`LocalLog::mark_durable`]; the log is closed all the same.
    pub async fn close(self) -> LogResult<()> {
        self.opened.close().await
    }

    /// Panics if what the log believes of itself contradicts itself.
    pub fn check_invariants(&self) {
        self.opened.check_invariants();
    }
}

impl std::ops::Deref for LocalLog {
    type Target = LocalView;

    fn deref(&self) -> &LocalView {
        &self.opened.view
    }
}

impl std::fmt::Debug for LocalLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Link { sequence, index, version, .. } = &self.opened.writer.link;
        let fields =
            format_args!("{sequence} records, {index} entries, version {version}").to_string();
        f.debug_tuple("LocalLog").field(&fields).finish()
    }
}
