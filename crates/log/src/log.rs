//! The log as its users hold it: [`LocalLog`] for the one writer, [`LocalView`] for everybody else.
//!
//! Everything here is a few lines over the parts that do the work. The writer's methods take `&mut self`,
//! because there is one writer; what consumers ask for (register, pop) is noted at once and written
//! down with the next record, so that it never waits for the disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plinth_env::Env;
use plinth_types::{Error, Result, Version};

use crate::commit_log::Progress;
use crate::config::{Identity, LogConfig, Position, Recovery};
use crate::format::State;
use crate::format::mark::mark_seed;
use crate::frame::Frame;
use crate::link::Link;
use crate::marks::{self, Marks};
use crate::reader::Reader;
use crate::recovery::recover;
use crate::segment::{Directory, Wanted};
use crate::shared::{Inner, Shared};
use crate::syncer::Syncer;
use crate::upkeep;
use crate::writer::{NewEntry, Writer};

/// A commit log, open for appending.
///
/// There is one writer; readers, consumers and syncs go through handles that can be given to other
/// tasks ([`LocalLog::view`], [`LocalLog::syncer`]). Nothing excludes a second [`LocalLog`] on the same directory:
/// that is the business of whoever owns the directory's lock.
pub struct LocalLog {
    writer: Writer,
    view: LocalView,
    /// The state record that says of everything before it that it is durable, if nothing followed it.
    marker: u64,
}

/// A handle to a log: for consumers, readers, and whoever wants to know how far it is. Cheap to clone.
#[derive(Clone)]
pub struct LocalView {
    pub(crate) shared: Arc<Shared>,
}

impl LocalLog {
    /// Makes a new log in `dir`, which is made if need be, and opens it. A crash leaves a whole log or none.
    ///
    /// # Errors
    /// `client_invalid_operation` if there is a log already; `invalid_option_value`; errors of files.
    pub async fn create(
        env: &Env,
        dir: impl AsRef<Path>,
        identity: Identity,
        config: LogConfig,
    ) -> Result<(Self, Recovery)> {
        Self::create_at(env, dir, identity, config, (0, 0, 0)).await
    }

    /// Makes a new log that begins behind an entry that it doesn't have: its index, term and version. For
    /// a node that has the rows of that version from elsewhere. The lease reaches up to the version.
    ///
    /// # Errors
    /// As those of [`LocalLog::create`]; `version_invalid` if the version is below 0.
    pub async fn create_at(
        env: &Env,
        dir: impl AsRef<Path>,
        identity: Identity,
        config: LogConfig,
        (index, term, version): (u64, u64, Version),
    ) -> Result<(Self, Recovery)> {
        let dir = dir.as_ref();
        config.check()?;
        if version < 0 {
            let detail = format!("a log can't begin behind version {version}");
            return Err(Error::version_invalid().with_detail(detail));
        }
        env.files().create_dir_all(dir).await?;
        if !Directory::list(env, dir).await?.segments.is_empty() {
            let detail = format!("there is a log in {} already", dir.display());
            return Err(Error::client_invalid_operation().with_detail(detail));
        }
        let wanted = Wanted::new(identity, &config, 1, config.first_segment_bytes);
        let first_record = |seed| {
            let (mut bytes, mut origin) = (Vec::new(), Link::origin());
            (origin.index, origin.epoch, origin.version) = (index, term, version);
            origin.durable = version;
            let state = State { lease: version, ..State::default() };
            Frame::new(&mut bytes, seed, term, &origin.clone(), origin).put_state(Arc::new(state));
            bytes
        };
        Marks::create(env, dir, mark_seed(&identity, config.log_id)).await?;
        wanted.make(env, dir, first_record, || true).await?;
        Self::open(env, dir, identity, config).await
    }

    /// Opens the log in `dir`, after whatever crash, and begins a new epoch. Reads all of it first.
    ///
    /// # Errors
    /// `file_not_found` if there is none; `file_corrupt`, saying file, offset, what was expected and
    /// what was found, if anything is damaged that was durable; `unsupported_operation` if a newer
    /// program wrote it; `client_invalid_operation` if it is another node's.
    pub async fn open(
        env: &Env,
        dir: impl AsRef<Path>,
        identity: Identity,
        config: LogConfig,
    ) -> Result<(Self, Recovery)> {
        Self::open_when(env, dir, identity, config, std::future::ready(Ok(()))).await
    }

    /// Opens the log like [`LocalLog::open`], but changes nothing in `dir` before `permission` is given: whoever has other
    /// things to read at a start can read them meanwhile, and find them damaged, or too new.
    ///
    /// # Errors
    /// As those of [`LocalLog::open`], and that of `permission`, after which nothing was changed.
    pub async fn open_when(
        env: &Env,
        dir: impl AsRef<Path>,
        identity: Identity,
        config: LogConfig,
        permission: impl Future<Output = Result<()>>,
    ) -> Result<(Self, Recovery)> {
        let dir: PathBuf = dir.as_ref().to_path_buf();
        config.check()?;
        let recovered = recover(env, &dir, &identity, &config, permission).await?;
        let (link, lease) = (recovered.start.link.clone(), recovered.start.link.state.lease);
        let recovery = Recovery { epoch: recovered.recovery.epoch + 1, ..recovered.recovery };
        let shared = Shared::new(env.clone(), dir, identity, config, recovered.start);
        let writer = Writer::new(shared.clone(), link, recovery.epoch, recovered.dirty);
        let mut log = Self { writer, view: LocalView { shared }, marker: 0 };
        let position = log.writer.write_state(lease).await?;
        log.syncer().sync(position).await?;
        log.set_marker(position);
        marks::start(&log.view.shared);
        upkeep::look(&log.view.shared);
        Ok((log, recovery))
    }

    /// Appends an entry whose body is `parts` one after the other. It is written when this returns, and
    /// durable once a [`Syncer::sync`] of its position has returned.
    ///
    /// # Errors
    /// `version_invalid` if `version` is not above the last one or is above the lease;
    /// `file_not_writable` if the disk is full, and other errors of files: nothing was appended then,
    /// and the next append writes to the same place. `io_error` for good once the log is poisoned.
    pub async fn append(&mut self, version: Version, parts: &[&[u8]]) -> Result<Position> {
        self.writer.write_entry(NewEntry { version, parts }).await
    }

    /// Appends a record that lets versions up to `upto` be handed out, once it is durable: see
    /// [`LocalView::lease`]. Entries may be appended up to it at once. Does nothing if the lease reaches
    /// that far already.
    ///
    /// # Errors
    /// As those of [`LocalLog::append`].
    pub async fn extend_lease(&mut self, upto: Version) -> Result<Position> {
        if upto <= self.writer.link.state.lease {
            return Ok(self.written());
        }
        self.writer.write_state(upto).await
    }

    /// Appends a record that says that everything before it is durable, and syncs it, so that damage to
    /// the last records is known to be damage and not a torn tail. Also writes down what consumers
    /// have popped. To be called when the system falls idle; does nothing if nothing happened since.
    ///
    /// # Errors
    /// As those of [`LocalLog::append`] and [`Syncer::sync`].
    pub async fn mark_durable(&mut self) -> Result<()> {
        if self.marker == self.writer.link.sequence && !self.writer.has_news() {
            return Ok(());
        }
        self.syncer().sync(self.written()).await?;
        let position = self.writer.write_state(self.writer.link.state.lease).await?;
        self.syncer().sync(position).await?;
        self.set_marker(position);
        Ok(())
    }

    /// Nothing would be missed if the record at `position` were lost: nobody need note that it is durable.
    fn set_marker(&mut self, position: Position) {
        self.marker = position.0;
        self.view.shared.with(|inner| {
            assert!(position.0 <= inner.durable.sequence, "a marker is synced");
            inner.marked = inner.marked.max(position.0);
        });
    }

    /// The position of the last record.
    pub fn written(&self) -> Position {
        Position(self.writer.link.sequence)
    }

    /// The term in which this writer appends: each opening begins a new one.
    pub fn term(&self) -> u64 {
        self.writer.epoch
    }

    /// Something that makes records durable, for other tasks.
    pub fn syncer(&self) -> Syncer {
        Syncer::new(self.view.shared.clone())
    }

    /// A handle for readers and consumers.
    pub fn view(&self) -> LocalView {
        self.view.clone()
    }

    /// Leaves the log as after [`LocalLog::mark_durable`], notes where it ends, and waits for its background
    /// tasks to end. A log
    /// that is merely dropped is as after a crash, except that nothing written is lost.
    ///
    /// # Errors
    /// As those of [`LocalLog::mark_durable`]; the log is closed all the same.
    pub async fn close(mut self) -> Result<()> {
        let marked = self.mark_durable().await;
        self.begin_close();
        let shared = &self.view.shared;
        let is_over = |inner: &mut Inner| !inner.upkeep.is_running && !inner.upkeep.is_marking;
        shared.until(|inner| is_over(inner).then_some(())).await;
        marked?;
        marks::mark_end(shared).await
    }

    fn begin_close(&self) {
        self.view.shared.change(|inner| inner.upkeep.is_closing = true);
        self.view.shared.marks.closing.notify();
    }

    /// Panics if what the log believes of itself contradicts itself.
    pub fn check_invariants(&self) {
        let link = &self.writer.link;
        self.view.shared.with(|inner| {
            inner.check_invariants();
            assert_eq!(inner.written.sequence, link.sequence);
            assert_eq!((inner.written.index, inner.written.version), (link.index, link.version));
            assert_eq!(inner.written.state, link.state);
        });
    }
}

impl std::ops::Deref for LocalLog {
    type Target = LocalView;

    fn deref(&self) -> &LocalView {
        &self.view
    }
}

impl Drop for LocalLog {
    fn drop(&mut self) {
        self.begin_close();
    }
}

impl std::fmt::Debug for LocalLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Link { sequence, index, version, .. } = &self.writer.link;
        let fields = format_args!("{sequence} records, {index} entries, version {version}").to_string();
        f.debug_tuple("LocalLog").field(&fields).finish()
    }
}

impl LocalView {
    /// The version of the last durable entry.
    pub fn known_durable(&self) -> Version {
        self.shared.with(|inner| inner.durable.version)
    }

    /// Up to where entries will never be lost; here the same as what is durable.
    pub fn committed(&self) -> Progress {
        self.shared.with(|inner| inner.committed().progress())
    }

    /// Up to where everything is synced.
    pub fn durable(&self) -> Progress {
        self.shared.with(|inner| inner.durable.progress())
    }

    /// The lease that is durable: no version above it may be handed out.
    pub fn lease(&self) -> Version {
        self.shared.with(|inner| inner.durable.state.lease)
    }

    /// Whether a failure has poisoned the log, and which.
    ///
    /// # Errors
    /// The error that every append and sync gives since.
    pub fn check(&self) -> Result<()> {
        self.shared.with(|inner| inner.check_poison())
    }

    /// Bytes of records in the segments that are kept.
    pub fn bytes(&self) -> u64 {
        self.shared.with(|inner| inner.bytes())
    }

    /// Bytes that the log's files take on the disk: segments, the next one, spares.
    pub fn disk_bytes(&self) -> u64 {
        self.shared.with(|inner| inner.disk_bytes())
    }

    /// Reads durable entries with versions from `from` on, in order.
    pub fn reader(&self, from: Version) -> Reader {
        Reader::new(self.shared.clone(), from, None)
    }
}

impl std::fmt::Debug for LocalView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalView").field("known_durable", &self.known_durable()).finish()
    }
}

/// Whether entries from version `from` on are all there. `gone` is the last one that isn't.
pub(crate) fn check_kept(gone: (u64, Version), from: Version) -> Result<()> {
    let (index, version) = gone;
    if index == 0 || from > version {
        return Ok(());
    }
    let detail =
        format!("entries from version {from} on were asked for, those up to {version} have been popped");
    Err(Error::version_invalid().with_detail(detail))
}
