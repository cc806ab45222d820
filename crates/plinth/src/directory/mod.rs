//! Directories: names for parts of the key space, with short prefixes chosen by the database.
//!
//! A directory is found by its path, and holds what lies under its prefix. Prefixes are a few
//! bytes, stay the same when a directory is moved, and are given once. What is written is
//! FoundationDB's directory layer, version 1.0.0: directories made by one of its bindings are found
//! here, and those made here are found by them.
//!
//! ```
//! use plinth::{Local, directory::Directory};
//!
//! let db = Local::in_memory()?.into_database();
//! let root = Directory::root();
//! let name = db.transact_blocking(|tr| {
//!     let users = root.create_or_open(tr, ["app", "users"]).wait()?;
//!     let users = users.subspace()?;
//!     tr.set(users.pack(&(42, "name")), "Ada");
//!     tr.get(users.pack(&(42, "name"))).wait()
//! })?;
//! assert_eq!(name.as_deref(), Some(&b"Ada"[..]));
//! # Ok::<(), plinth::Error>(())
//! ```
//!
//! Every operation takes part in a transaction: it takes effect, or is seen by others, when that
//! commits. In an `async` transaction operations are awaited, otherwise they have `wait()`.
//!
//! A directory that is moved or removed while somebody has it open goes on under their hands as a
//! prefix: what they write there afterwards is in the moved directory, or, after a removal, in no
//! directory at all.
//!
//! Several threads may work on directories in one transaction. They should not at the same time set
//! its option `NextWriteNoWriteConflictRange`, nor write other keys while a directory is created:
//! the allocator uses that option too, and a write that comes between would be taken for its own.

mod allocator;
mod layer;
mod operation;
mod path;

pub use operation::{Open, Operation};
pub use path::IntoPath;

use crate::subspace::Subspace;
use layer::{Layer, Request};
use plinth_client::Transaction;
use plinth_types::{Bytes, Error, Result};
use std::fmt;
use std::sync::Arc;

/// The layer of directories that are partitions: directories whose subdirectories all lie below
/// their own prefix, so that one range holds the whole tree. Directories can't be moved into or out
/// of one, and the partition's own prefix holds no data.
pub const PARTITION: &[u8] = b"partition";

/// A directory, or the root of all. Paths are relative to it, except where it is said otherwise.
/// Cheap to clone.
#[derive(Clone)]
pub struct Directory {
    inner: Arc<Inner>,
}

struct Inner {
    /// What has the directories below this one.
    below: Arc<Layer>,
    /// The absolute path.
    path: Vec<String>,
    /// What the directory is for.
    layer: Bytes,
    kind: Kind,
}

enum Kind {
    Root,
    Plain(Subspace),
    Partition {
        /// What has the partition itself.
        outside: Arc<Layer>,
    },
}

/// Where directories are kept, if not where FoundationDB keeps them.
///
/// ```
/// use plinth::{Subspace, directory::DirectoryLayer};
/// // All metadata and all contents below one prefix of an application.
/// let own = DirectoryLayer::default()
///     .nodes(Subspace::from_bytes(&b"app\xfe"[..]))
///     .contents(Subspace::from_bytes(&b"app"[..]))
///     .root();
/// ```
#[derive(Clone, Debug)]
pub struct DirectoryLayer {
    nodes: Subspace,
    contents: Subspace,
    allow_manual_prefixes: bool,
}

impl Default for DirectoryLayer {
    fn default() -> Self {
        Self {
            nodes: Subspace::from_bytes(&b"\xfe"[..]),
            contents: Subspace::all(),
            allow_manual_prefixes: false,
        }
    }
}

impl DirectoryLayer {
    /// Where it is written which directories there are. Unless said: the prefix `FE`.
    #[must_use]
    pub fn nodes(mut self, nodes: Subspace) -> Self {
        self.nodes = nodes;
        self
    }

    /// Below what prefixes are chosen. Unless said: all keys.
    #[must_use]
    pub fn contents(mut self, contents: Subspace) -> Self {
        self.contents = contents;
        self
    }

    /// Whether directories may be created with a prefix that the caller chose ([`Open::prefix`]).
    #[must_use]
    pub fn allow_manual_prefixes(mut self, allow: bool) -> Self {
        self.allow_manual_prefixes = allow;
        self
    }

    /// The root of these directories.
    pub fn root(self) -> Directory {
        let below =
            Arc::new(Layer::new(self.nodes, self.contents, self.allow_manual_prefixes, Vec::new()));
        let inner = Inner { below, path: Vec::new(), layer: Bytes::new(), kind: Kind::Root };
        Directory { inner: Arc::new(inner) }
    }
}

impl Directory {
    /// The root of the directories that FoundationDB's bindings use unless told otherwise.
    pub fn root() -> Self {
        DirectoryLayer::default().root()
    }

    /// The directory that `home` has at this absolute path.
    fn new(home: Arc<Layer>, path: Vec<String>, prefix: Bytes, layer: Bytes) -> Self {
        let (below, kind) = if layer == PARTITION {
            let below = Arc::new(Layer::of_partition(&prefix, path.clone()));
            (below, Kind::Partition { outside: home })
        } else {
            (home, Kind::Plain(Subspace::from_bytes(prefix)))
        };
        Self { inner: Arc::new(Inner { below, path, layer, kind }) }
    }

    /// The absolute path by which the directory was opened; empty for the root.
    pub fn path(&self) -> &[String] {
        &self.inner.path
    }

    /// What the directory is for; empty if it was not said.
    pub fn layer(&self) -> &Bytes {
        &self.inner.layer
    }

    /// What the directory holds.
    ///
    /// # Errors
    /// `cannot_use_partition_as_subspace` of a partition, `cannot_open_root_directory` of the root:
    /// both have directories only.
    pub fn subspace(&self) -> Result<&Subspace> {
        match &self.inner.kind {
            Kind::Plain(subspace) => Ok(subspace),
            Kind::Partition { .. } => {
                Err(Error::cannot_use_partition_as_subspace()
                    .with_detail(self.inner.path.join("/")))
            }
            Kind::Root => Err(Error::cannot_open_root_directory()),
        }
    }

    /// Opens a directory that exists.
    ///
    /// # Errors
    /// `directory_does_not_exist`; `mismatched_layer`; `cannot_open_root_directory` for an empty
    /// path of the root; those of the reads.
    pub fn open<'a>(&self, tr: &'a Transaction, path: impl IntoPath) -> Open<'a> {
        self.request(tr, path, Request { may_open: true, ..Request::default() })
    }

    /// Creates a directory that does not exist, and those above it that don't.
    ///
    /// # Errors
    /// `directory_already_exists`; `cannot_open_root_directory` for an empty path of the root;
    /// `directory_prefix_not_empty` if somebody wrote to the prefix that was chosen; those of the
    /// reads.
    pub fn create<'a>(&self, tr: &'a Transaction, path: impl IntoPath) -> Open<'a> {
        self.request(tr, path, Request { may_create: true, ..Request::default() })
    }

    /// Opens a directory, or creates it if it doesn't exist.
    ///
    /// # Errors
    /// As [`Directory::open`] and [`Directory::create`].
    pub fn create_or_open<'a>(&self, tr: &'a Transaction, path: impl IntoPath) -> Open<'a> {
        self.request(tr, path, Request { may_open: true, may_create: true, ..Request::default() })
    }

    fn request<'a>(&self, tr: &'a Transaction, path: impl IntoPath, request: Request) -> Open<'a> {
        let (home, path) = self.inside(path);
        Open::new(home, tr, path, request)
    }

    /// The names of the directories in the one at `path`, sorted.
    ///
    /// # Errors
    /// `directory_does_not_exist`; those of the reads.
    pub fn list<'a>(&self, tr: &'a Transaction, path: impl IntoPath) -> Operation<'a, Vec<String>> {
        let (home, path) = self.inside(path);
        Operation::new(async move { home.list(tr, &path).await })
    }

    /// Whether there is a directory at `path`; with an empty path: whether this one still exists.
    ///
    /// # Errors
    /// Those of the reads.
    pub fn exists<'a>(&self, tr: &'a Transaction, path: impl IntoPath) -> Operation<'a, bool> {
        let (home, path) = self.itself(path);
        Operation::new(async move { home.exists(tr, &path).await })
    }

    /// Removes the directory at `path` (an empty path: this one), its contents, and all directories
    /// in it.
    ///
    /// # Errors
    /// `directory_does_not_exist`; `cannot_modify_root_directory`; those of the reads.
    pub fn remove<'a>(&self, tr: &'a Transaction, path: impl IntoPath) -> Operation<'a, ()> {
        let (home, path) = self.itself(path);
        Operation::new(async move {
            if home.remove(tr, &path).await? { Ok(()) } else { Err(home.does_not_exist(&path)) }
        })
    }

    /// Removes the directory at `path` if it exists; gives whether it did.
    ///
    /// # Errors
    /// `cannot_modify_root_directory`; those of the reads.
    pub fn remove_if_exists<'a>(
        &self,
        tr: &'a Transaction,
        path: impl IntoPath,
    ) -> Operation<'a, bool> {
        let (home, path) = self.itself(path);
        Operation::new(async move { home.remove(tr, &path).await })
    }

    /// Moves the directory at `old` to `new`, both relative to this one. Its prefix stays, and so
    /// does what it holds.
    ///
    /// # Errors
    /// `directory_does_not_exist`; `directory_already_exists` if there is one at `new`;
    /// `parent_directory_does_not_exist`; `invalid_destination_directory` if `new` lies in the
    /// directory itself; `cannot_move_directory_between_partitions`; those of the reads.
    pub fn move_directory<'a>(
        &self,
        tr: &'a Transaction,
        old: impl IntoPath,
        new: impl IntoPath,
    ) -> Operation<'a, Self> {
        let (home, old) = self.inside(old);
        let (_, new) = self.inside(new);
        Operation::new(async move { home.rename(tr, &old, &new).await })
    }

    /// Moves this directory to an absolute path, that of the root of all directories.
    ///
    /// # Errors
    /// As [`Directory::move_directory`], and `cannot_modify_root_directory` of the root.
    pub fn move_to<'a>(&self, tr: &'a Transaction, new: impl IntoPath) -> Operation<'a, Self> {
        let is_root = matches!(self.inner.kind, Kind::Root);
        let (home, old) = self.itself(());
        let new = new.into_path();
        Operation::new(async move {
            if is_root {
                return Err(Error::cannot_modify_root_directory());
            }
            let new = new.strip_prefix(home.path()).ok_or_else(|| {
                let what = format!("{} is not in {}", new.join("/"), home.path().join("/"));
                Error::cannot_move_directory_between_partitions().with_detail(what)
            })?;
            home.rename(tr, &old, new).await
        })
    }

    /// What has the directories in this one, and the path there.
    fn inside(&self, path: impl IntoPath) -> (Arc<Layer>, Vec<String>) {
        let home = Arc::clone(&self.inner.below);
        let path = [&self.inner.path[home.path().len()..], &path.into_path()].concat();
        (home, path)
    }

    /// The same, except that an empty path means the directory itself, which for a partition lies
    /// outside.
    fn itself(&self, path: impl IntoPath) -> (Arc<Layer>, Vec<String>) {
        let path = path.into_path();
        match &self.inner.kind {
            Kind::Partition { outside } if path.is_empty() => {
                (Arc::clone(outside), self.inner.path[outside.path().len()..].to_vec())
            }
            _ => self.inside(path),
        }
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Directory({}", self.inner.path.join("/"))?;
        if let Kind::Plain(subspace) = &self.inner.kind {
            write!(f, ", {}", plinth_types::printable(subspace.prefix()))?;
        }
        if !self.inner.layer.is_empty() {
            write!(f, ", {}", plinth_types::printable(&self.inner.layer))?;
        }
        f.write_str(")")
    }
}
