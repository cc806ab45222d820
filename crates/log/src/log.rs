//! The log as its users hold it: [`Log`] for the one writer, [`LogView`] for everybody else.
//!
//! Everything here is a few lines over the parts that do the work. The writer's methods take `&mut self`,
//! because there is one writer; what consumers ask for (register, pop) is noted at once and written
//! down with the next record, so that it never waits for the disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plinth_env::Env;
use plinth_types::{Error, Result, Version};

use crate::config::{Identity, LogConfig, Position, Recovery};
use crate::format::{MAX_CONSUMER_NAME_LEN, MAX_CONSUMERS, State};
use crate::frame::Frame;
use crate::link::Link;
use crate::reader::Reader;
use crate::recovery::recover;
use crate::segment::{Directory, Wanted};
use crate::shared::{Mark, Shared};
use crate::syncer::Syncer;
use crate::upkeep;
use crate::writer::{NewEntry, Writer};

/// A commit log, open for appending.
///
/// There is one writer; readers, consumers and syncs go through handles that can be given to other
/// tasks ([`Log::view`], [`Log::syncer`]). Nothing excludes a second [`Log`] on the same directory:
/// that is the business of whoever owns the directory's lock.
pub struct Log {
    writer: Writer,
    view: LogView,
    /// The state record that says of everything before it that it is durable, if nothing followed it.
    marker: u64,
}

/// A handle to a log: for consumers, readers, and whoever wants to know how far it is. Cheap to clone.
#[derive(Clone)]
pub struct LogView {
    shared: Arc<Shared>,
}

impl Log {
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
        let dir = dir.as_ref();
        config.check()?;
        env.files().create_dir_all(dir).await?;
        if !Directory::list(env, dir).await?.segments.is_empty() {
            let detail = format!("there is a log in {} already", dir.display());
            return Err(Error::client_invalid_operation().with_detail(detail));
        }
        let wanted = Wanted::new(identity, &config, 1, config.first_segment_bytes);
        let first_record = |seed| {
            let (mut bytes, origin) = (Vec::new(), Link::origin());
            Frame::new(&mut bytes, seed, 0, &Mark::of(&origin), origin).put_state(Arc::new(State::default()));
            bytes
        };
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

    /// Opens the log like [`Log::open`], but changes nothing in `dir` before `permission` is given: whoever has other
    /// things to read at a start can read them meanwhile, and find them damaged, or too new.
    ///
    /// # Errors
    /// As those of [`Log::open`], and that of `permission`, after which nothing was changed.
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
        let mut log = Self { writer, view: LogView { shared }, marker: 0 };
        let position = log.writer.write_state(lease).await?;
        log.syncer().sync(position).await?;
        log.marker = position.0;
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
    /// [`LogView::lease`]. Entries may be appended up to it at once. Does nothing if the lease reaches
    /// that far already.
    ///
    /// # Errors
    /// As those of [`Log::append`].
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
    /// As those of [`Log::append`] and [`Syncer::sync`].
    pub async fn mark_durable(&mut self) -> Result<()> {
        if self.marker == self.writer.link.sequence && !self.writer.has_news() {
            return Ok(());
        }
        self.syncer().sync(self.written()).await?;
        let position = self.writer.write_state(self.writer.link.state.lease).await?;
        self.syncer().sync(position).await?;
        self.marker = position.0;
        Ok(())
    }

    /// The position of the last record.
    pub fn written(&self) -> Position {
        Position(self.writer.link.sequence)
    }

    /// This opening's epoch.
    pub fn epoch(&self) -> u64 {
        self.writer.epoch
    }

    /// Something that makes records durable, for other tasks.
    pub fn syncer(&self) -> Syncer {
        Syncer::new(self.view.shared.clone())
    }

    /// A handle for readers and consumers.
    pub fn view(&self) -> LogView {
        self.view.clone()
    }

    /// Leaves the log as after [`Log::mark_durable`] and waits for its background task to end. A log
    /// that is merely dropped is as after a crash, except that nothing written is lost.
    ///
    /// # Errors
    /// As those of [`Log::mark_durable`]; the log is closed all the same.
    pub async fn close(mut self) -> Result<()> {
        let marked = self.mark_durable().await;
        self.view.shared.change(|inner| inner.upkeep.is_closing = true);
        self.view.shared.until(|inner| (!inner.upkeep.is_running).then_some(())).await;
        marked
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

impl std::ops::Deref for Log {
    type Target = LogView;

    fn deref(&self) -> &LogView {
        &self.view
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.view.shared.change(|inner| inner.upkeep.is_closing = true);
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Link { sequence, index, version, .. } = &self.writer.link;
        let fields = format_args!("{sequence} records, {index} entries, version {version}").to_string();
        f.debug_tuple("Log").field(&fields).finish()
    }
}

impl LogView {
    /// The version of the last durable entry.
    pub fn known_durable(&self) -> Version {
        self.shared.with(|inner| inner.durable.version)
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
        Reader::new(self.shared.clone(), from)
    }

    /// Makes `consumer` known: entries from version `from` on are kept until it pops them. A consumer
    /// that is known already, be it from before a restart, stays where it is. Gives the version that
    /// it is to go on from.
    ///
    /// Durable as soon as anything appended later is.
    ///
    /// # Errors
    /// `version_invalid` if entries from `from` on are gone already; `invalid_option_value` if the name
    /// is empty or too long, or there are too many consumers.
    pub fn register(&self, consumer: &str, from: Version) -> Result<Version> {
        let refuse = |what: String| Err(Error::invalid_option_value().with_detail(what));
        if consumer.is_empty() || consumer.len() > MAX_CONSUMER_NAME_LEN {
            return refuse(format!(
                "a consumer's name has 1 to {MAX_CONSUMER_NAME_LEN} bytes, not {}",
                consumer.len()
            ));
        }
        // There are no versions below 1.
        let from = from.max(1);
        let registered = self.shared.with(|inner| {
            let known = inner.consumers.popped.get(consumer).copied();
            if let Some(popped) = known {
                return Ok(popped.saturating_add(1));
            }
            if inner.consumers.popped.len() >= MAX_CONSUMERS {
                return refuse(format!("the log has {MAX_CONSUMERS} consumers already"));
            }
            check_kept(inner.gone(), from)?;
            inner.consumers.popped.insert(consumer.to_string(), from - 1);
            inner.consumers.generation += 1;
            Ok(from)
        });
        upkeep::look(&self.shared);
        registered
    }

    /// `consumer` needs no entries up to version `upto` any longer. Segments that no consumer needs are
    /// reused or removed, once this is durable: as soon as anything appended later is.
    ///
    /// # Errors
    /// `client_invalid_operation` if there is no such consumer. Popping backwards does nothing.
    pub fn pop(&self, consumer: &str, upto: Version) -> Result<()> {
        let popped = self.shared.with(|inner| {
            inner.upkeep.is_stuck = false;
            let Some(popped) = inner.consumers.popped.get_mut(consumer) else {
                let detail = format!("the log has no consumer {consumer}");
                return Err(Error::client_invalid_operation().with_detail(detail));
            };
            if upto > *popped {
                *popped = upto;
                inner.consumers.generation += 1;
            }
            Ok(())
        });
        upkeep::look(&self.shared);
        popped
    }

    /// Forgets a consumer: nothing is kept for it any longer. Without any consumer everything is kept.
    pub fn unregister(&self, consumer: &str) {
        self.shared.with(|inner| {
            if inner.consumers.popped.remove(consumer).is_some() {
                inner.consumers.generation += 1;
            }
        });
    }

    /// The consumers, and from which version on each needs entries.
    pub fn consumers(&self) -> Vec<(String, Version)> {
        self.shared.with(|inner| {
            let popped = inner.consumers.popped.iter();
            popped.map(|(name, popped)| (name.clone(), popped.saturating_add(1))).collect()
        })
    }
}

impl std::fmt::Debug for LogView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogView").field("known_durable", &self.known_durable()).finish()
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
