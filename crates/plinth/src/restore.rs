//! A new database made of rows: what a restore fills, and what nobody sees before it is whole.
//!
//! ```text
//!   DIR.restoring/LOCK     held while it is made; whoever else wants to restore to DIR is refused
//!   DIR.restoring/db/      an empty database, whose next generation takes the rows as files of its engine
//!   DIR                    the same, renamed, once the rows and what came on top of them are there
//! ```
//! Always: there is no DIR, or an empty one, until everything is in it. A crash before leaves
//! `DIR.restoring`, which the next restore to DIR removes.

use crate::{Builder, Local};
use plinth_backup::restore::Loader;
use plinth_backup::{Piece, target::Doing};
use plinth_client::Endpoint;
use plinth_env::{DirLock, Env};
use plinth_pipeline::{Chunk, Import, Node, NodeConfig};
use plinth_types::system::{NORMAL_END, SERIES_END, SERIES_PREFIX, SYSTEM_END};
use plinth_types::{
    Bytes, Error, KeySelector, KeySpace, LogPosition, RangeRead, Result, Rows, Version,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Makes a database of rows, in the directory of a [`Builder`]. See [`Builder::loader`].
pub struct DirectoryLoader {
    env: Env,
    /// The directory that is asked for.
    directory: PathBuf,
    config: NodeConfig,
    at: LogPosition,
    /// Takes the rows, until it is opened.
    import: Option<Import>,
    /// The rows of the system's keys that were not taken yet, but those of time series: they are
    /// few, and come where their turn is.
    system: BTreeMap<Bytes, Bytes>,
    opened: Option<Local>,
    _lock: DirLock,
}

/// Refuses a directory in which anything is.
async fn check_empty(env: &Env, directory: &Path) -> Result<()> {
    let files = env.files();
    if files.exists(directory).await? && !files.list(directory).await?.is_empty() {
        let detail = format!(
            "{} is not empty; name a directory that doesn't exist yet",
            directory.display()
        );
        return Err(Error::restore_destination_not_empty().with_detail(detail));
    }
    Ok(())
}

impl Builder {
    /// Looks whether [`Builder::loader`] would begin in the directory, and changes nothing.
    ///
    /// # Errors
    /// `restore_destination_not_empty` if there is anything in the directory; those of files.
    pub async fn check_loader(self) -> Result<()> {
        let (env, directory, _) = self.parts()?;
        check_empty(&env, &directory).await
    }

    /// Begins to make a new database of rows, for a restore. Its versions go on behind `version`.
    ///
    /// # Errors
    /// `restore_destination_not_empty` if there is anything in the directory; `lock_file_failure`
    /// if another restore fills it; those of files.
    pub async fn loader(self, version: Version) -> Result<DirectoryLoader> {
        let (env, directory, config) = self.parts()?;
        let env = env.keeping_private();
        let files = env.files();
        check_empty(&env, &directory).await?;
        let root = beside(&directory);
        files.create_dir_all(&root).await?;
        let lock = files.lock(root.join("LOCK")).await?;
        let place = root.join("db");
        files.remove_dir_all(&place).await?;
        let fresh = Node::open(&env, &place, config.clone()).await?;
        let system = system_rows(&fresh.endpoint()).await;
        fresh.close().await?;
        drop(fresh);
        let at = LogPosition::without_log(version);
        let import = Import::begin(&env, &place, config.clone(), at).await?;
        let system = system?;
        Ok(DirectoryLoader {
            env,
            directory,
            config,
            at,
            import: Some(import),
            system,
            opened: None,
            _lock: lock,
        })
    }
}

/// Where it is made: beside where it goes, so that one step brings it there.
fn beside(directory: &Path) -> PathBuf {
    let mut name = directory.as_os_str().to_owned();
    name.push(".restoring");
    name.into()
}

/// The system rows that every new database has.
async fn system_rows(endpoint: &impl Endpoint) -> Result<BTreeMap<Bytes, Bytes>> {
    let version = endpoint.read_version(Default::default()).await?.version;
    let read = RangeRead {
        begin: KeySelector::first_greater_or_equal(Bytes::from_static(NORMAL_END)),
        end: KeySelector::first_greater_or_equal(Bytes::from_static(SYSTEM_END)),
        limit: usize::MAX,
        target_bytes: usize::MAX,
        reverse: false,
    };
    let found = endpoint.get_range(version, KeySpace::System, &read).await?;
    Ok(found.rows.key_values().map(|row| (row.key, row.value)).collect())
}

impl DirectoryLoader {
    async fn take_piece(&mut self, piece: Piece) -> Result<()> {
        let begin = &piece.range.begin[..];
        if (SERIES_PREFIX..SERIES_END).contains(&begin) {
            self.take_system(SERIES_PREFIX).await?;
        } else if begin >= NORMAL_END {
            self.system.extend(piece.rows.key_values().map(|row| (row.key, row.value)));
            return Ok(());
        }
        let chunk =
            Chunk { at: self.at, begin: piece.range.begin, end: piece.range.end, rows: piece.rows };
        Ok(self.import()?.take(&chunk).await?)
    }

    /// Takes the rows of the system's keys that were not taken yet and lie before this one.
    async fn take_system(&mut self, end: &'static [u8]) -> Result<()> {
        let later = self.system.split_off(end);
        let mut rows = Rows::builder();
        for (key, value) in std::mem::replace(&mut self.system, later) {
            rows.push(&key, &value);
        }
        let reached = self.import()?.reached();
        let begin = Bytes::copy_from_slice(reached.max(NORMAL_END));
        if begin[..] >= *end {
            return Ok(());
        }
        let end = Bytes::from_static(end);
        let chunk = Chunk { at: self.at, begin, end, rows: rows.finish() };
        Ok(self.import()?.take(&chunk).await?)
    }

    fn import(&mut self) -> Result<&mut Import> {
        let detail = "the database has been opened already";
        self.import.as_mut().ok_or_else(|| Error::client_invalid_operation().with_detail(detail))
    }

    fn place(&self) -> PathBuf {
        beside(&self.directory).join("db")
    }

    async fn open_filled(&mut self) -> Result<plinth_client::Database> {
        self.take_system(SYSTEM_END).await?;
        if let Some(import) = self.import.take() {
            import.put_in_place().await?;
        }
        let builder = Builder::of(self.env.clone(), self.place(), self.config.clone());
        let local = builder.must_exist().open_async().await?;
        let db = local.database().clone();
        self.opened = Some(local);
        Ok(db)
    }

    async fn rename(&mut self) -> Result<()> {
        match self.opened.take() {
            Some(local) => local.close_async().await?,
            None => {
                return Err(Error::client_invalid_operation().with_detail("nothing was restored"));
            }
        }
        let (files, root) = (self.env.files(), beside(&self.directory));
        if files.exists(&self.directory).await? {
            if !files.list(&self.directory).await?.is_empty() {
                let detail = format!("{} has been filled meanwhile", self.directory.display());
                return Err(Error::restore_destination_not_empty().with_detail(detail));
            }
            files.remove_dir_all(&self.directory).await?;
        }
        files.rename(self.place(), &self.directory).await?;
        files.sync_dir(&root).await?;
        let parent = self.directory.parent().filter(|parent| !parent.as_os_str().is_empty());
        files.sync_dir(parent.unwrap_or(Path::new("."))).await?;
        Ok(files.remove_dir_all(&root).await?)
    }
}

impl Loader for DirectoryLoader {
    fn take(&mut self, piece: Piece) -> Doing<'_, ()> {
        Box::pin(self.take_piece(piece))
    }

    fn open(&mut self) -> Doing<'_, plinth_client::Database> {
        Box::pin(self.open_filled())
    }

    fn put_in_place(&mut self) -> Doing<'_, ()> {
        Box::pin(self.rename())
    }
}
